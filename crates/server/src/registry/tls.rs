//! TLS to a registry of somebody else.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tidewire_change::{Error, Result};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::TlsConnector;

/// Trusts the authorities of a PEM file, without one those of the system.
pub(super) fn connector(authority: Option<&Path>) -> Result<TlsConnector> {
    let mut store = RootCertStore::empty();
    match authority {
        Some(path) => {
            let wrong = |error: String| {
                Error::invalid(format!("the registry's authority {}: {error}", path.display()))
                    .hint("it must be a PEM file with certificates, readable by Tidewire")
            };
            let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            for certificate in found.map_err(|error| wrong(error.to_string()))? {
                store.add(certificate).map_err(|error| wrong(error.to_string()))?;
            }
            if store.is_empty() {
                return Err(wrong("holds no certificate".into()));
            }
        }
        None => {
            store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            if store.is_empty() {
                return Err(Error::invalid("this system has no trusted certificates")
                    .hint("install ca-certificates, or name the registry's authority by a file (`ca`, --ca)"));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| Error::bug(format!("rustls has no protocol versions: {error}")))?
        .with_root_certificates(store)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// `host`: a name or an address, without a port.
pub(super) async fn start(connector: &TlsConnector, stream: TcpStream, host: &str) -> Result<TlsStream<TcpStream>> {
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(bare.to_string())
        .map_err(|_| Error::invalid(format!("{host:?} is no host name that TLS can check")))?;
    connector.connect(name, stream).await.map_err(|error| explain(&error, host))
}

fn explain(error: &io::Error, host: &str) -> Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let what = |what: &str| format!("TLS with the schema registry at {host}: {what}");
    match inner {
        Some(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
            Error::invalid(what("its certificate comes from an authority that isn't trusted here"))
                .hint("name the authority's certificate by a file (`ca` under `registry`, or --ca)")
        }
        Some(rustls::Error::InvalidCertificate(reason)) => Error::invalid(what(&format!(
            "its certificate is refused: {reason}"
        )))
        .hint("give the registry a certificate for the name that it is called by, or call it by a name that it has"),
        Some(rustls::Error::InvalidMessage(_)) => {
            Error::invalid(what("it speaks no TLS")).hint("is it http:// rather than https://?")
        }
        Some(other) => Error::invalid(what(&other.to_string())).hint("the registry's log may tell why"),
        None => Error::unavailable(what(&format!("the connection broke off: {error}"))),
    }
}
