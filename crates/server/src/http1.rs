//! One request and one answer over HTTP/1.1, on a connection of its own.

use std::net::SocketAddr;
use std::time::Duration;
use tidewire_change::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const ANSWER_BYTES: u64 = 64 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

/// `head` is `GET /status` or the like. `Unavailable` when nobody answers there.
pub(crate) async fn request(
    address: SocketAddr,
    head: &str,
    token: Option<&str>,
    body: Option<&[u8]>,
) -> Result<Answer> {
    let exchange = async {
        let io = |e| Error::io(e, address);
        let mut stream = TcpStream::connect(address).await.map_err(io)?;
        let mut request = format!("{head} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n");
        if let Some(token) = token {
            request += &format!("Authorization: Bearer {token}\r\n");
        }
        if let Some(body) = body {
            request += &format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        }
        request += "\r\n";
        stream.write_all(request.as_bytes()).await.map_err(io)?;
        stream.write_all(body.unwrap_or_default()).await.map_err(io)?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES).read_to_end(&mut answer).await.map_err(io)?;
        parse(&answer)
    };
    let answered = tokio::time::timeout(PATIENCE, exchange).await;
    answered
        .unwrap_or_else(|_| Err(Error::unavailable(format!("{address} did not answer in {} s", PATIENCE.as_secs()))))
        .map_err(|e| {
            e.context("while asking the running Tidewire").hint("is `tidewire run` running, with this http address?")
        })
}

/// Whether `parse` can tell a cut answer from a whole one.
pub(crate) fn tells_its_length(answer: &[u8]) -> bool {
    let head = answer.windows(4).position(|w| w == b"\r\n\r\n").map(|split| &answer[..split]);
    let head = head.and_then(|head| std::str::from_utf8(head).ok()).unwrap_or_default();
    head.split("\r\n").any(|line| line.to_ascii_lowercase().starts_with("content-length:"))
}

pub(crate) fn parse(answer: &[u8]) -> Result<Answer> {
    let no_http = || Error::unavailable("the answer is not one of HTTP/1.1");
    let split = answer.windows(4).position(|w| w == b"\r\n\r\n").ok_or_else(no_http)?;
    let head = std::str::from_utf8(&answer[..split]).map_err(|_| no_http())?;
    let body = &answer[split + 4..];
    let mut lines = head.split("\r\n");
    let line = lines.next().filter(|l| l.starts_with("HTTP/1.")).ok_or_else(no_http)?;
    let status = line.split(' ').nth(1).and_then(|s| s.parse().ok()).ok_or_else(no_http)?;
    let mut expected = None;
    for (name, value) in lines.filter_map(|l| l.split_once(':')) {
        if name.eq_ignore_ascii_case("content-length") {
            expected = value.trim().parse::<usize>().ok();
        }
        if name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(no_http());
        }
    }
    match expected {
        Some(expected) if expected != body.len() => Err(Error::unavailable("the answer was cut short")),
        _ => Ok(Answer { status, body: body.to_vec() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_read_and_a_cut_one_is_refused() {
        let answer = parse(b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        assert_eq!((answer.status, answer.body.as_slice()), (202, b"{}".as_slice()));
        for wrong in [
            &b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}"[..],
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            b"SSH-2.0-x\r\n\r\n",
            b"HTTP/1.1 OK\r\n\r\n",
            b"",
        ] {
            assert!(parse(wrong).is_err());
        }
    }
}
