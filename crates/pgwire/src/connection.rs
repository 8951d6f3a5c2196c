use crate::cancel::Canceller;
use crate::config::Config;
use crate::copy_in::CopyIn;
use crate::copy_out::CopyOut;
use crate::frames::{self, Frame};
use crate::replication::Replication;
use crate::rows::{self, Rows};
use crate::server_error::PgError;
use crate::startup;
use crate::wire::Wire;
use bytes::BytesMut;
use postgres_protocol::message::frontend;
use std::io;
use std::time::Duration;
use tidewire_change::{Error, Result};

/// What the connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Sql,
    /// A logical walsender: replication commands, and SQL too.
    Replication,
}

/// One session on a PostgreSQL server, with all settings pinned that change the text of values. One statement at a time.
///
/// A future of this type that is dropped half-way leaves the rest of its answer on the wire: the next call reads that off
/// first, so the session stays usable (use `canceller` to cut a long answer short).
pub struct Connection {
    pub(crate) wire: Wire,
    pub(crate) config: Config,
    pub(crate) process_id: i32,
    pub(crate) secret_key: i32,
    pub(crate) server_version: u32,
    /// Statements sent whose ReadyForQuery hasn't come yet.
    pub(crate) unanswered: u32,
    /// The server waits for COPY data.
    pub(crate) copying_in: bool,
}

/// How long an orderly close may take before the socket is just dropped.
const CLOSE_LIMIT: Duration = Duration::from_secs(1);

impl Connection {
    /// Fails within `config.connect_timeout`.
    pub async fn connect(config: &Config, mode: Mode) -> Result<Connection> {
        startup::connect(config, mode).await
    }

    /// The server's version as a number, e.g. 150018.
    pub fn server_version(&self) -> u32 {
        self.server_version
    }

    /// Runs statements by the simple protocol; returns the rows of the last one that has any.
    pub async fn query(&mut self, sql: &str) -> Result<Rows> {
        self.query_by(sql, rows::utf8).await
    }

    /// The same for names in the catalog of a database whose text has no encoding: what isn't UTF-8 in them becomes U+FFFD, so
    /// that one such name doesn't hide all others. Whoever asks looks for it.
    pub async fn query_names(&mut self, sql: &str) -> Result<Rows> {
        self.query_by(sql, |bytes| Ok(String::from_utf8_lossy(&bytes).into_owned())).await
    }

    async fn query_by(&mut self, sql: &str, text: fn(Vec<u8>) -> Result<String>) -> Result<Rows> {
        self.send_query(sql).await?;
        let mut rows = Rows::default();
        while let Some(frame) = self.next_answer().await? {
            match frame.tag {
                frames::ROW_DESCRIPTION => {
                    rows = Rows { columns: rows::columns(frame).map_err(|e| self.wire.at(e))?, ..Rows::default() }
                }
                frames::DATA_ROW => rows.rows.push(rows::values(frame, text).map_err(|e| self.wire.at(e))?),
                frames::COMMAND_COMPLETE => rows.affected = rows::affected(&frame),
                frames::EMPTY_QUERY => {}
                _ => return Err(self.unexpected(&frame, "query").await),
            }
        }
        Ok(rows)
    }

    /// Runs one or several statements and throws their rows away.
    pub async fn execute(&mut self, sql: &str) -> Result<()> {
        self.send_query(sql).await?;
        while let Some(frame) = self.next_answer().await? {
            match frame.tag {
                frames::ROW_DESCRIPTION | frames::DATA_ROW | frames::COMMAND_COMPLETE | frames::EMPTY_QUERY => {}
                _ => return Err(self.unexpected(&frame, "execute").await),
            }
        }
        Ok(())
    }

    /// Has the server analyse one statement (syntax, names, types) and run nothing. Several statements in one text are
    /// refused: what was checked can be put where one statement belongs.
    pub async fn check(&mut self, sql: &str) -> Result<()> {
        let parse = |out: &mut BytesMut| {
            frontend::parse("", sql, [], out)?;
            frontend::sync(out);
            Ok(())
        };
        self.send(parse).await?;
        while let Some(frame) = self.next_answer().await? {
            if frame.tag != frames::PARSE_COMPLETE {
                return Err(self.unexpected(&frame, "check").await);
            }
        }
        Ok(())
    }

    /// Runs `COPY … TO STDOUT`.
    pub async fn copy_out(&mut self, sql: &str) -> Result<CopyOut<'_>> {
        self.send_query(sql).await?;
        self.expect(frames::COPY_OUT, "copy_out").await?;
        Ok(CopyOut::new(self))
    }

    /// Runs `COPY … FROM STDIN`.
    pub async fn copy_in(&mut self, sql: &str) -> Result<CopyIn<'_>> {
        self.send_query(sql).await?;
        self.expect(frames::COPY_IN, "copy_in").await?;
        self.copying_in = true;
        Ok(CopyIn::new(self))
    }

    /// Runs `START_REPLICATION …`.
    pub async fn start_replication(mut self, sql: &str) -> Result<Replication> {
        self.send_query(sql).await?;
        self.expect(frames::COPY_BOTH, "start_replication").await?;
        Ok(Replication::new(self))
    }

    /// Cancels what this session runs, from any task.
    pub fn canceller(&self) -> Canceller {
        Canceller { config: self.config.clone(), process_id: self.process_id, secret_key: self.secret_key }
    }

    /// Ends the session in order.
    pub async fn close(mut self) {
        frontend::terminate(&mut self.wire.outgoing);
        // The server may be gone already: closed is closed.
        let _ = tokio::time::timeout(CLOSE_LIMIT, async {
            self.wire.flush().await?;
            self.wire.shutdown().await.map_err(|error| self.wire.io(error))
        })
        .await;
    }

    pub(crate) async fn send_query(&mut self, sql: &str) -> Result<()> {
        self.send(|out| frontend::query(sql, out)).await
    }

    /// `put` writes messages that the server answers with one ReadyForQuery.
    async fn send(&mut self, put: impl FnOnce(&mut BytesMut) -> io::Result<()>) -> Result<()> {
        self.settle().await?;
        let start = self.wire.outgoing.len();
        if let Err(error) = put(&mut self.wire.outgoing) {
            self.wire.outgoing.truncate(start);
            return Err(encoding(error));
        }
        self.unanswered += 1;
        self.wire.flush().await
    }

    /// Reads off what a dropped future left.
    async fn settle(&mut self) -> Result<()> {
        while self.unanswered > 0 {
            if self.copying_in {
                self.copying_in = false;
                frontend::copy_fail("abandoned", &mut self.wire.outgoing).map_err(encoding)?;
            }
            self.wire.flush().await?;
            match self.wire.next_frame().await? {
                frame if frame.tag == frames::READY => self.unanswered -= 1,
                frame if frame.tag == frames::COPY_IN => self.copying_in = true,
                frame if frame.tag == frames::ERROR => {
                    let error = PgError::parse(&frame.body);
                    if error.is_fatal() {
                        return Err(error.into_error(&self.wire.place));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The next message of the answer; `None` at its end. An error of the server is returned once its answer has ended and
    /// the session is ready again.
    pub(crate) async fn next_answer(&mut self) -> Result<Option<Frame>> {
        loop {
            let frame = self.wire.next_frame().await?;
            match frame.tag {
                frames::NOTICE | frames::NOTIFICATION | frames::PARAMETER_STATUS => {}
                frames::READY => {
                    self.unanswered -= 1;
                    return Ok(None);
                }
                frames::ERROR => {
                    let error = PgError::parse(&frame.body);
                    self.copying_in = false;
                    let is_fatal = error.is_fatal();
                    let error = error.into_error(&self.wire.place);
                    if !is_fatal {
                        self.settle().await?;
                    }
                    return Err(error);
                }
                _ => return Ok(Some(frame)),
            }
        }
    }

    async fn expect(&mut self, tag: u8, call: &str) -> Result<()> {
        match self.next_answer().await? {
            Some(frame) if frame.tag == tag => Ok(()),
            Some(frame) => Err(self.unexpected(&frame, call).await),
            None => Err(Error::bug(format!("{call} ran a statement that isn't its kind"))),
        }
    }

    /// A fault of the caller: a COPY through `query`, a SELECT through `copy_out`.
    async fn unexpected(&mut self, frame: &Frame, call: &str) -> Error {
        self.copying_in = frame.tag == frames::COPY_IN;
        let tag = frame.tag as char;
        let error =
            Error::bug(format!("{call} got the message '{tag}', which isn't for it: was it the right statement?"));
        if frame.tag == frames::COPY_BOTH {
            // Can't be settled: a replication stream has no end.
            return error;
        }
        match self.settle().await {
            Ok(()) => error,
            Err(broken) => broken,
        }
    }
}

pub(crate) fn encoding(error: io::Error) -> Error {
    Error::bug(format!("text for the server holds a NUL or is too long: {error}"))
}
