use crate::config::{Config, SslMode};
use crate::end_point;
use crate::stream::Stream;
use crate::trust;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CertificateError, ClientConfig};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tidewire_change::{Error, Result};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::TlsConnector;

/// SSLRequest ("SSL Session Encryption"): length 8, code 80877103.
const SSL_REQUEST: [u8; 8] = [0, 0, 0, 8, 0x04, 0xd2, 0x16, 0x2f];

/// Asks the server for TLS and starts it. A server that has none: an error if it is needed, else the plain socket.
pub(crate) async fn upgrade(mut socket: TcpStream, config: &Config, is_needed: bool) -> Result<Stream> {
    let io = |error: io::Error| {
        Error::unavailable(format!(
            "{}:{} broke the connection off when asked for TLS: {error}",
            config.host, config.port
        ))
        .hint("is it a PostgreSQL server?")
        .caused_by(error)
    };
    socket.write_all(&SSL_REQUEST).await.map_err(io)?;
    // One byte and no more: what follows it must not be taken for something that was encrypted.
    let mut answer = [0];
    socket.read_exact(&mut answer).await.map_err(io)?;
    match answer[0] {
        b'S' => handshake(socket, config).await,
        b'N' if !is_needed => Ok(Stream::Tcp(socket)),
        b'N' => Err(Error::invalid(format!("PostgreSQL at {}:{} has no TLS", config.host, config.port))
            .hint("turn ssl on in postgresql.conf, or choose a lower sslmode in the database URL")
            .caused_by(rustls::Error::General("the server has no TLS".into()))),
        _ => {
            Err(Error::unavailable(format!("{}:{} answered a request for TLS with an error", config.host, config.port))
                .hint("is it a PostgreSQL server, and is it up?"))
        }
    }
}

async fn handshake(socket: TcpStream, config: &Config) -> Result<Stream> {
    let client = client_config(config)?;
    let name = ServerName::try_from(config.host.clone())
        .map_err(|_| Error::invalid(format!("{:?} is no host name that TLS can check", config.host)))?;
    let stream = TlsConnector::from(Arc::new(client)).connect(name, socket).await.map_err(|error| {
        let place = format!("{}:{}", config.host, config.port);
        explain(&error, &place).unwrap_or_else(|| {
            Error::unavailable(format!("the TLS handshake with {place} broke off: {error}"))
                .hint("the server's log may tell why")
                .caused_by(rustls::Error::General(error.to_string()))
        })
    })?;
    Ok(Stream::Tls(Box::new(stream)))
}

fn client_config(config: &Config) -> Result<ClientConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::bug(format!("rustls has no protocol versions: {error}")))?;
    // As in libpq: `require` with a root certificate checks against it.
    let mode = match config.ssl_mode {
        SslMode::Require if config.ssl_root_cert.is_some() => SslMode::VerifyCa,
        mode => mode,
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(trust::verifier(mode, config, &provider)?);
    let (Some(cert), Some(key)) = (&config.ssl_cert, &config.ssl_key) else {
        return Ok(builder.with_no_client_auth());
    };
    let chain = certificates(cert, "sslcert")?;
    let key = PrivateKeyDer::from_pem_file(key).map_err(|error| {
        Error::invalid(format!("sslkey {}: {error}", key.display()))
            .hint("it must be a PEM file with a private key that isn't encrypted, readable by Tidewire")
    })?;
    builder.with_client_auth_cert(chain, key).map_err(|error| {
        Error::invalid(format!("sslcert {} and sslkey don't go together: {error}", cert.display()))
            .hint("give the key that the certificate was made for")
    })
}

/// All certificates of a PEM file. `what` is the parameter that names it.
pub(crate) fn certificates(path: &Path, what: &str) -> Result<Vec<CertificateDer<'static>>> {
    let wrong = |error: String| {
        Error::invalid(format!("{what} {}: {error}", path.display()))
            .hint("it must be a PEM file with certificates, readable by Tidewire")
    };
    let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<std::result::Result<Vec<_>, _>>);
    let found = found.map_err(|error| wrong(error.to_string()))?;
    match found.is_empty() {
        true => Err(wrong("holds no certificate".into())),
        false => Ok(found),
    }
}

/// What SCRAM is bound to on this connection.
pub(crate) fn end_point(stream: &TlsStream<TcpStream>) -> Option<Vec<u8>> {
    end_point::hash(stream.get_ref().1.peer_certificates()?.first()?)
}

pub(crate) fn is_tls(error: &Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<rustls::Error>())
}

/// An I/O error that is TLS's says what is wrong with which certificate; `None` for any other.
pub(crate) fn explain(error: &io::Error, place: &str) -> Option<Error> {
    let error: &rustls::Error = error.get_ref()?.downcast_ref()?;
    let (what, hint) = match error {
        rustls::Error::InvalidCertificate(reason) => certificate(reason),
        rustls::Error::AlertReceived(alert) => (
            format!("the server broke TLS off with the alert {alert:?}"),
            "check sslcert and sslkey: the server's log tells what it didn't like",
        ),
        rustls::Error::PeerIncompatible(_) => (error.to_string(), "the server's TLS is too old: it must speak TLS 1.2"),
        _ => (error.to_string(), "the server's log may tell why"),
    };
    Some(Error::invalid(format!("TLS with PostgreSQL at {place}: {what}")).hint(hint).caused_by(error.clone()))
}

fn certificate(reason: &CertificateError) -> (String, &'static str) {
    use CertificateError::*;
    match reason {
        Expired | ExpiredContext { .. } => {
            ("the server's certificate has expired".into(), "renew it on the server (or is the clock here wrong?)")
        }
        NotValidYet | NotValidYetContext { .. } => {
            ("the server's certificate isn't valid yet".into(), "is a clock wrong, here or where it was made?")
        }
        UnknownIssuer => (
            "the server's certificate comes from an authority that isn't trusted here".into(),
            "name the authority's certificate by sslrootcert in the database URL",
        ),
        NotValidForNameContext { presented, .. } if presented.is_empty() => (
            "the server's certificate names no host as its subject alternative name".into(),
            "make one with subjectAltName, or use sslmode=verify-ca",
        ),
        NotValidForNameContext { expected, presented } => (
            format!("the server's certificate is for {}, not for {}", names(presented), expected.to_str()),
            "connect by a name that the certificate has, or use sslmode=verify-ca",
        ),
        NotValidForName => (
            "the server's certificate is for another host".into(),
            "connect by a name that the certificate has, or use sslmode=verify-ca",
        ),
        Other(reason) if reason.to_string() == "CaUsedAsEndEntity" => (
            "the server's certificate is an authority's own (self-signed?), and isn't one that is trusted here".into(),
            "name that very certificate by sslrootcert in the database URL",
        ),
        reason => (format!("the server's certificate is refused: {reason}"), "give the server another certificate"),
    }
}

/// rustls writes `DnsName("a.example")`, `IpAddress(10.0.0.1)`.
fn names(presented: &[String]) -> String {
    let inner = |name: &String| -> String {
        let inside = name.split_once('(').map_or(name.as_str(), |(_, inside)| inside.trim_end_matches(')'));
        inside.trim_matches('"').to_owned()
    };
    presented.iter().map(inner).collect::<Vec<_>>().join(", ")
}
