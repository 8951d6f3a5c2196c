use crate::auth::Login;
use crate::config::{Config, SslMode};
use crate::connection::{self, Connection, Mode};
use crate::frames;
use crate::pinned;
use crate::server_error::{sqlstate, PgError};
use crate::stream::Stream;
use crate::tls;
use crate::wire::Wire;
use bytes::Bytes;
use postgres_protocol::message::frontend;
use std::future::Future;
use std::time::Duration;
use tidewire_change::{Error, Result};

/// What one attempt does about TLS.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Encryption {
    Off,
    IfOffered,
    Needed,
}

/// The attempts that a mode stands for, the first that succeeds counts.
fn attempts(config: &Config) -> &'static [Encryption] {
    match config.ssl_mode {
        _ if config.is_unix() => &[Encryption::Off],
        SslMode::Disable => &[Encryption::Off],
        SslMode::Allow => &[Encryption::Off, Encryption::Needed],
        SslMode::Prefer => &[Encryption::IfOffered, Encryption::Off],
        SslMode::Require | SslMode::VerifyCa | SslMode::VerifyFull => &[Encryption::Needed],
    }
}

pub(crate) async fn connect(config: &Config, mode: Mode) -> Result<Connection> {
    let connected =
        tokio::time::timeout(config.connect_timeout, try_each(config, |encryption| start(config, mode, encryption)));
    connected.await.unwrap_or_else(|_| Err(too_slow(config)))
}

/// A socket to the server, with TLS if the mode wants it, for a cancel request.
pub(crate) async fn open(config: &Config) -> Result<Stream> {
    try_each(config, |encryption| open_stream(config, encryption)).await
}

async fn try_each<T, F: Future<Output = Result<T>>>(config: &Config, attempt: impl Fn(Encryption) -> F) -> Result<T> {
    let mut first_error: Option<Error> = None;
    for encryption in attempts(config) {
        match (attempt(*encryption).await, first_error.take()) {
            (Ok(connected), _) => return Ok(connected),
            (Err(error), None) if depends_on_encryption(&error) => first_error = Some(error),
            (Err(error), None) => return Err(error),
            // Both ways are barred: the reason that the preferred one is tells more.
            (Err(error), Some(first)) => return Err(if depends_on_encryption(&error) { first } else { error }),
        }
    }
    Err(first_error.unwrap_or_else(|| Error::bug("no way to connect was tried")))
}

/// The other attempt of `allow` and `prefer` may get through: pg_hba.conf refused this kind of connection, or TLS failed.
fn depends_on_encryption(error: &Error) -> bool {
    sqlstate(error) == Some("28000") || tls::is_tls(error)
}

async fn open_stream(config: &Config, encryption: Encryption) -> Result<Stream> {
    let stream = Stream::open(config).await?;
    match (stream, encryption) {
        (Stream::Tcp(socket), Encryption::IfOffered) => tls::upgrade(socket, config, false).await,
        (Stream::Tcp(socket), Encryption::Needed) => tls::upgrade(socket, config, true).await,
        (stream, _) => Ok(stream),
    }
}

async fn start(config: &Config, mode: Mode, encryption: Encryption) -> Result<Connection> {
    let stream = open_stream(config, encryption).await?;
    let mut login = Login::new(config, &stream);
    let mut wire = Wire::new(stream, place(config));
    let mut parameters = vec![("user", config.user.as_str()), ("database", config.database.as_str())];
    parameters.push(("application_name", &config.application_name));
    if mode == Mode::Replication {
        parameters.push(("replication", "database"));
    }
    parameters.extend(pinned::AT_STARTUP);
    frontend::startup_message(parameters, &mut wire.outgoing).map_err(connection::encoding)?;
    wire.flush().await?;

    let (mut server_version, mut encoding, mut key) = (0, String::new(), (0, 0));
    loop {
        let frame = wire.next_frame().await?;
        match frame.tag {
            frames::AUTHENTICATION => login.step(frame.body, &mut wire).await?,
            frames::PARAMETER_STATUS => {
                if let Some(text) = frame.body.strip_prefix(b"server_version\0") {
                    server_version = parse_version(text);
                } else if let Some(text) = frame.body.strip_prefix(b"server_encoding\0") {
                    encoding = String::from_utf8_lossy(text.strip_suffix(b"\0").unwrap_or(text)).into_owned();
                }
            }
            frames::BACKEND_KEY => key = backend_key(&frame.body),
            frames::ERROR => return Err(PgError::parse(&frame.body).into_error(&wire.place)),
            frames::NOTICE | frames::NEGOTIATE_VERSION => {}
            frames::READY => break,
            tag => {
                return Err(wire.at(Error::unavailable(format!("the server began with the message '{}'", tag as char))))
            }
        }
    }
    login.must_be_done()?;
    wire.limit = frames::MAX_FRAME;
    let (process_id, secret_key) = key;
    let config = config.clone();
    let unanswered = 0;
    let mut connection =
        Connection { wire, config, process_id, secret_key, server_version, unanswered, copying_in: false };
    pin(&mut connection, &pinned::Server { version: server_version, encoding: &encoding }).await?;
    Ok(connection)
}

/// Makes sure that every setting of `pinned` has its value.
async fn pin(connection: &mut Connection, server: &pinned::Server<'_>) -> Result<()> {
    let rows = connection.query(&pinned::statement(server)).await.map_err(|error| error.context("pinning settings"))?;
    let values = rows.rows.first().map_or(&[][..], |row| row);
    for (at, (name, wanted)) in pinned::settings(server).enumerate() {
        let got = values.get(at).and_then(Option::as_deref);
        if got != Some(wanted) {
            return Err(Error::invalid(format!("the server has {name} = {got:?} where {wanted:?} was asked for"))
                .hint("connect to PostgreSQL itself, not through something that changes settings"));
        }
    }
    Ok(())
}

fn place(config: &Config) -> String {
    format!("{}:{}/{}", config.host, config.port, config.database)
}

pub(crate) fn too_slow(config: &Config) -> Error {
    let seconds = config.connect_timeout.as_secs_f64();
    Error::unavailable(format!("no connection to PostgreSQL at {} within {seconds} s", place(config)))
        .hint("check host, port and network, or raise connect_timeout in the database URL")
}

/// Bounds a wait: `Unavailable` when `future` isn't done within `limit`. `what` completes "… took longer than".
pub async fn within<T>(limit: Duration, what: &str, future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(limit, future).await.unwrap_or_else(|_| {
        Err(Error::unavailable(format!("{what} took longer than {} s", limit.as_secs_f64()))
            .hint("the network or the server hangs"))
    })
}

fn backend_key(body: &Bytes) -> (i32, i32) {
    let word = |at: usize| body.get(at..at + 4).and_then(|b| b.first_chunk()).map_or(0, |b| i32::from_be_bytes(*b));
    (word(0), word(4))
}

/// `15.18 (Debian …)` is 150018, `17beta1` is 170000, `9.6.3` is 90603; 0 when it is no version.
fn parse_version(text: &[u8]) -> u32 {
    let text = String::from_utf8_lossy(text);
    let numbers = text.split(|c: char| c != '.' && !c.is_ascii_digit()).next().unwrap_or("");
    let mut parts = numbers.split('.').map(|part| part.parse::<u32>().unwrap_or(0).min(9999));
    let mut part = || parts.next().unwrap_or(0);
    match (part(), part(), part()) {
        (major, minor, _) if major >= 10 => major * 10_000 + minor,
        (major, minor, patch) => major * 10_000 + minor * 100 + patch,
    }
}

#[cfg(test)]
mod tests {
    use super::parse_version;

    #[test]
    fn versions_are_read_as_the_server_counts_them() {
        for (text, number) in [
            ("15.18 (Debian 15.18-0+deb12u1)\0", 150_018),
            ("17beta1\0", 170_000),
            ("18.6", 180_006),
            ("9.6.3", 90_603),
            ("devel", 0),
        ] {
            assert_eq!(parse_version(text.as_bytes()), number, "{text}");
        }
    }
}
