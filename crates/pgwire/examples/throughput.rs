//! How fast COPY and replication are read, and thrown away.
//!
//!     cargo run --release -p tidewire-pgwire --example throughput -- URL copy "COPY t TO STDOUT"
//!     cargo run --release -p tidewire-pgwire --example throughput -- URL stream SLOT PUBLICATION END_LSN_AS_NUMBER

use std::time::Instant;
use tidewire_change::{Error, Result};
use tidewire_pgwire::{quote_ident, quote_literal, Config, Connection, Mode, ReplicationMessage};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let start = Instant::now();
    let (count, bytes) = match arguments[..] {
        [url, "copy", sql] => copy(url, sql).await?,
        [url, "stream", slot, publication, end] => {
            let end = end.parse().map_err(|_| Error::invalid("the end isn't a number"))?;
            stream(url, slot, publication, end).await?
        }
        _ => return Err(Error::invalid("usage: URL copy SQL | URL stream SLOT PUBLICATION END")),
    };
    let seconds = start.elapsed().as_secs_f64();
    let (rate, megabytes) = (count as f64 / seconds / 1e3, bytes as f64 / seconds / 1e6);
    println!("{count} in {seconds:.2} s: {rate:.0} k/s, {megabytes:.0} MB/s");
    Ok(())
}

async fn copy(url: &str, sql: &str) -> Result<(usize, usize)> {
    let mut pg = Connection::connect(&Config::parse(url)?, Mode::Sql).await?;
    let mut copy = pg.copy_out(sql).await?;
    let (mut count, mut bytes) = (0, 0);
    while let Some(chunk) = copy.next().await? {
        for row in chunk.rows() {
            count += 1;
            bytes += row.len();
        }
    }
    Ok((count, bytes))
}

async fn stream(url: &str, slot: &str, publication: &str, end: u64) -> Result<(usize, usize)> {
    let pg = Connection::connect(&Config::parse(url)?, Mode::Replication).await?;
    let sql = format!(
        "START_REPLICATION SLOT {} LOGICAL 0/0 (proto_version '1', publication_names {})",
        quote_ident(slot),
        quote_literal(publication)
    );
    let mut stream = pg.start_replication(&sql).await?;
    let (mut count, mut bytes, mut reached) = (0, 0, 0);
    while reached < end {
        let chunk = stream.next().await?;
        for message in chunk.messages() {
            match message {
                ReplicationMessage::XLogData { wal_start, payload, .. } => {
                    count += usize::from(matches!(payload.first(), Some(b'I' | b'U' | b'D')));
                    bytes += payload.len();
                    reached = reached.max(wal_start);
                }
                ReplicationMessage::Keepalive { wal_end, reply_requested, .. } => {
                    reached = reached.max(wal_end);
                    if reply_requested {
                        stream.send_status(0, 0, 0, 0, false).await?;
                    }
                }
            }
        }
    }
    stream.stop().await?;
    Ok((count, bytes))
}
