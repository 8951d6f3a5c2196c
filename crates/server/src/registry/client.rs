//! Asks a registry over HTTP: ours, or another with Confluent's API.

use super::tls;
use crate::http1;
use serde_json::Value;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;
use tidewire_change::{topic::escape, Error, Result};
use tidewire_registry::base64;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

const PATIENCE: Duration = Duration::from_secs(30);
const ANSWER_BYTES: u64 = 256 << 20;

/// With TLS or without.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

pub struct Client {
    /// Without its port.
    name: String,
    /// host:port.
    host: String,
    /// Stands before every path.
    prefix: String,
    /// What stands in the header `Authorization`.
    authorization: Option<String>,
    /// The address asks for TLS.
    is_secure: bool,
    /// Made at the first question.
    connector: OnceLock<TlsConnector>,
}

impl Client {
    /// `url` as `http://127.0.0.1:8081`. `Invalid`: it isn't one.
    pub fn new(url: &str, token: Option<String>) -> Result<Client> {
        let wrong = |why: &str| Error::invalid(format!("the registry's address {url:?} {why}"));
        let (is_secure, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => return Err(wrong("doesn't begin with http:// or https://")),
        };
        if rest.contains('@') {
            return Err(wrong("holds a password")
                .hint("give it by the variable TIDEWIRE_TOKEN or with --user; a pipeline has `user` and `password`"));
        }
        let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let with_port = host.rsplit_once(':').filter(|(name, port)| !name.is_empty() && port.parse::<u16>().is_ok());
        if host.is_empty() {
            return Err(wrong("names no machine"));
        }
        let name = with_port.map_or(host, |(name, _)| name).to_string();
        let host = match with_port {
            Some(_) => host.to_string(),
            None => format!("{host}:{}", if is_secure { 443 } else { 80 }),
        };
        let prefix = prefix.trim_end_matches('/');
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{prefix}") };
        let authorization = token.map(|token| format!("Bearer {token}"));
        Ok(Client { name, host, prefix, authorization, is_secure, connector: OnceLock::new() })
    }

    /// Trusts the authorities of this PEM file and no others. `Invalid`: it can't be used, or the address asks for no TLS.
    pub fn trusting(self, authority: Option<&Path>) -> Result<Client> {
        match authority {
            Some(_) if !self.is_secure => {
                Err(Error::invalid("an authority's certificate is given, and the registry's address is http://")
                    .hint("say https://, or leave the certificate out"))
            }
            Some(path) => Ok(Client { connector: tls::connector(Some(path))?.into(), ..self }),
            None => Ok(self),
        }
    }

    /// One that logs in with a name and a password.
    pub fn with_user(url: &str, user: Option<(String, String)>) -> Result<Client> {
        let authorization =
            user.map(|(name, password)| format!("Basic {}", base64::encode(format!("{name}:{password}").as_bytes())));
        Ok(Client { authorization, ..Client::new(url, None)? })
    }

    /// A name as part of a path.
    pub fn part(name: &str) -> String {
        escape(name)
    }

    async fn connect(&self) -> Result<Box<dyn Connection>> {
        let stream = TcpStream::connect(&self.host).await.map_err(|e| Error::io(e, &self.host))?;
        if !self.is_secure {
            return Ok(Box::new(stream));
        }
        let connector = match self.connector.get() {
            Some(connector) => connector,
            None => {
                let made = tls::connector(None)?;
                self.connector.get_or_init(|| made)
            }
        };
        Ok(Box::new(tls::start(connector, stream, &self.name).await?))
    }

    /// Status and body. `path` begins with a slash. `Unavailable`: nobody answers there.
    pub async fn ask(&self, method: &str, path: &str, body: Option<&Value>) -> Result<(u16, Value)> {
        let exchange = async {
            let io = |e| Error::io(e, &self.host);
            let mut stream = self.connect().await?;
            // The old version of HTTP: its answers come in one piece.
            let mut request = format!("{method} {}{path} HTTP/1.0\r\nHost: {}\r\n", self.prefix, self.host);
            request += "Accept: application/vnd.schemaregistry.v1+json, application/json\r\n";
            if let Some(authorization) = &self.authorization {
                request += &format!("Authorization: {authorization}\r\n");
            }
            let body = body.map(Value::to_string).unwrap_or_default();
            if !body.is_empty() {
                let length = body.len();
                request +=
                    &format!("Content-Type: application/vnd.schemaregistry.v1+json\r\nContent-Length: {length}\r\n");
            }
            stream.write_all(format!("{request}\r\n{body}").as_bytes()).await.map_err(io)?;
            let mut answer = Vec::new();
            match stream.take(ANSWER_BYTES).read_to_end(&mut answer).await {
                // Many servers end TLS without a word: the answer's own length says whether it is whole.
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof && http1::tells_its_length(&answer) => {}
                read => {
                    read.map_err(io)?;
                }
            }
            http1::parse(&answer)
        };
        let answered = tokio::time::timeout(PATIENCE, exchange).await;
        let answer = answered
            .unwrap_or_else(|_| {
                Err(Error::unavailable(format!("{} did not answer in {} s", self.host, PATIENCE.as_secs())))
            })
            .map_err(|e| {
                let is_told = e.hint_text().is_some();
                let e = e.context("while asking the schema registry");
                if is_told {
                    e
                } else {
                    e.hint("is a registry running at this address?")
                }
            })?;
        let body =
            serde_json::from_slice(&answer.body).unwrap_or_else(|_| String::from_utf8_lossy(&answer.body).into());
        Ok((answer.status, body))
    }

    /// The body of an answer that says yes; none where the registry says that there is no such thing.
    pub async fn get(&self, path: &str) -> Result<Option<Value>> {
        let (status, body) = self.ask("GET", path, None).await?;
        match status {
            200..=299 => Ok(Some(body)),
            404 => Ok(None),
            status => Err(refused(status, &body)),
        }
    }
}

/// What a registry answered in place of what was asked for.
pub fn refused(status: u16, body: &Value) -> Error {
    let message = body["message"].as_str().map_or_else(|| body.to_string(), str::to_string);
    let message: String = message.chars().take(2000).collect();
    match status {
        401 | 403 => Error::invalid(format!("the schema registry let nobody in: {message}")).hint(
            "give its token in the variable TIDEWIRE_TOKEN, or a login by --user, or correct them; a pipeline has user and password beside the url of its `registry`",
        ),
        400..=499 => Error::invalid(format!("the schema registry refused it ({status}): {message}")),
        status => Error::unavailable(format!("the schema registry answered with {status}: {message}")),
    }
}
