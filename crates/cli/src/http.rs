//! A small HTTP client for the API of a running pipeline: one request, one answer, loopback.

use crate::secret::Secret;
use std::net::SocketAddr;
use std::time::Duration;
use tidewire_change::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

pub struct Client {
    address: SocketAddr,
    token: Option<Secret>,
}

pub struct Answer {
    pub status: u16,
    pub body: Vec<u8>,
}

impl Client {
    pub fn new(address: SocketAddr, token: Option<Secret>) -> Self {
        Client { address, token }
    }

    pub async fn get(&self, path: &str) -> Result<Answer> {
        self.request("GET", path, &[]).await
    }

    pub async fn post(&self, path: &str, json: &serde_json::Value) -> Result<Answer> {
        self.request("POST", path, json.to_string().as_bytes()).await
    }

    /// Fails with `Unavailable` when nobody answers.
    async fn request(&self, method: &str, path: &str, body: &[u8]) -> Result<Answer> {
        let gone = |e: std::io::Error| Error::unavailable(format!("no answer from http://{}: {e}", self.address));
        let connecting = tokio::time::timeout(Duration::from_secs(5), TcpStream::connect(self.address));
        let mut stream = connecting
            .await
            .map_err(|_| Error::unavailable(format!("no answer from http://{} within 5 s", self.address)))?
            .map_err(gone)?;
        let token = self.token.as_ref().map(|t| format!("Authorization: Bearer {}\r\n", t.reveal())).unwrap_or_default();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{token}Content-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(head.as_bytes()).await.map_err(gone)?;
        stream.write_all(body).await.map_err(gone)?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.map_err(gone)?;
        parse(&bytes).ok_or_else(|| {
            Error::unavailable(format!("what answers at http://{} doesn't speak HTTP", self.address))
                .hint("is another program on this port? Set another `http` address in the configuration")
        })
    }
}

impl Answer {
    /// The body as JSON if the status is a success; else the error that the body tells.
    pub fn json(&self) -> Result<serde_json::Value> {
        let value = serde_json::from_slice::<serde_json::Value>(&self.body);
        match (self.status, value) {
            (200..=299, Ok(value)) => Ok(value),
            (401 | 403, _) => Err(Error::invalid("the running pipeline wants another token")
                .hint("use the configuration that it was started with")),
            (status, Ok(value)) => {
                let text = |name: &str| value.get(name).and_then(|v| v.as_str()).map(str::to_string);
                let message = text("error").or(text("message")).unwrap_or(format!("the pipeline answered {status}"));
                let error = match status {
                    400 | 404 | 422 => Error::invalid(message),
                    503 => Error::unavailable(message),
                    _ => Error::bug(message),
                };
                Err(match text("hint") {
                    Some(hint) => error.hint(hint),
                    None => error,
                })
            }
            (status, Err(_)) => Err(Error::bug(format!("the pipeline answered {status} without JSON"))),
        }
    }
}

fn parse(bytes: &[u8]) -> Option<Answer> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&bytes[..end]).ok()?;
    let status = head.strip_prefix("HTTP/1.")?.split(' ').nth(1)?.parse().ok()?;
    let body = &bytes[end + 4..];
    let is_chunked = head.lines().any(|line| line.to_ascii_lowercase().replace(' ', "") == "transfer-encoding:chunked");
    let body = if is_chunked { unchunk(body)? } else { body.to_vec() };
    Some(Answer { status, body })
}

fn unchunk(mut bytes: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        let end = bytes.windows(2).position(|w| w == b"\r\n")?;
        let size = std::str::from_utf8(&bytes[..end]).ok()?.split(';').next()?.trim();
        let size = usize::from_str_radix(size, 16).ok()?;
        bytes = &bytes[end + 2..];
        if size == 0 {
            return Some(out);
        }
        out.extend_from_slice(bytes.get(..size)?);
        bytes = bytes.get(size + 2..)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_whole_whichever_way_they_are_framed() {
        let plain = parse(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        assert_eq!((plain.status, plain.body.as_slice()), (200, b"{}".as_slice()));
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n";
        assert_eq!(parse(chunked).unwrap().body, b"[1,2]");
        assert!(parse(b"SSH-2.0-x\r\n\r\n").is_none());
        assert!(parse(&chunked[..chunked.len() - 8]).is_none(), "a cut answer isn't taken for a whole one");
    }
}
