use crate::config::{Config, SslMode};
use crate::tls;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{verify_tls12_signature, verify_tls13_signature, CryptoProvider, WebPkiSupportedAlgorithms};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::path::Path;
use std::sync::Arc;
use tidewire_change::{Error, Result};

/// Checks the server's certificate as far as the mode says. That the server holds the certificate's key is always checked:
/// channel binding rests on it.
#[derive(Debug)]
struct Verifier {
    roots: Option<Roots>,
    check_name: bool,
    algorithms: WebPkiSupportedAlgorithms,
}

#[derive(Debug)]
struct Roots {
    store: RootCertStore,
    /// The certificates that the user named: a server may use one of these itself (self-signed).
    named: Vec<CertificateDer<'static>>,
}

pub(crate) fn verifier(
    mode: SslMode,
    config: &Config,
    provider: &CryptoProvider,
) -> Result<Arc<dyn ServerCertVerifier>> {
    let roots = match mode {
        SslMode::VerifyCa | SslMode::VerifyFull => Some(roots(config)?),
        SslMode::Disable | SslMode::Allow | SslMode::Prefer | SslMode::Require => None,
    };
    let algorithms = provider.signature_verification_algorithms;
    Ok(Arc::new(Verifier { roots, check_name: mode == SslMode::VerifyFull, algorithms }))
}

fn roots(config: &Config) -> Result<Roots> {
    let path = config.ssl_root_cert.as_deref().filter(|path| *path != Path::new("system"));
    if config.ssl_mode != SslMode::VerifyFull && path.is_none() {
        // Anybody gets a certificate from a public authority.
        return Err(Error::invalid("the system's certificate authorities prove nothing without the host's name")
            .hint("use sslmode=verify-full, or name your own authority by sslrootcert"));
    }
    let mut store = RootCertStore::empty();
    let Some(path) = path else {
        store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        return match store.is_empty() {
            true => Err(Error::invalid("this system has no trusted certificates")
                .hint("install ca-certificates, or name a file by sslrootcert in the database URL")),
            false => Ok(Roots { store, named: Vec::new() }),
        };
    };
    let named = tls::certificates(path, "sslrootcert")?;
    for certificate in &named {
        store.add(certificate.clone()).map_err(|error| {
            Error::invalid(format!("sslrootcert {} holds a certificate that can't be used: {error}", path.display()))
        })?;
    }
    Ok(Roots { store, named })
}

impl Verifier {
    fn check_chain(
        &self,
        roots: &Roots,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> std::result::Result<(), rustls::Error> {
        let parsed = ParsedCertificate::try_from(certificate)?;
        let result =
            verify_server_cert_signed_by_trust_anchor(&parsed, &roots.store, intermediates, now, self.algorithms.all);
        match result {
            // A self-signed certificate that the user named is trusted for itself, though it may call itself an authority;
            // only its time counts, and that is looked at first.
            Err(rustls::Error::InvalidCertificate(reason)) if !is_about_time(&reason) => {
                match roots.named.iter().any(|named| named == certificate) {
                    true => Ok(()),
                    false => Err(rustls::Error::InvalidCertificate(reason)),
                }
            }
            result => result,
        }
    }
}

fn is_about_time(reason: &CertificateError) -> bool {
    use CertificateError::*;
    matches!(reason, Expired | ExpiredContext { .. } | NotValidYet | NotValidYetContext { .. })
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        if let Some(roots) = &self.roots {
            self.check_chain(roots, end_entity, intermediates, now)?;
        }
        if self.check_name {
            verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
        }
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, cert, dss, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, cert, dss, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}
