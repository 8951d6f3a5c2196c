//! TLS before a plain server, as a proxy speaks it: each connection carries one request and its answer.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::Arc;

pub struct Front {
    pub port: u16,
    /// PEM.
    pub authority: PathBuf,
    _folder: tempfile::TempDir,
}

impl Front {
    /// In front of this port; its certificate is for `localhost`.
    pub fn start(to: u16) -> Front {
        let (authority, own) = (KeyPair::generate().unwrap(), KeyPair::generate().unwrap());
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, "an authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let signed = params.self_signed(&authority).unwrap();
        let issuer = Issuer::new(params, authority);
        let own_params = CertificateParams::new(vec!["localhost".to_string()]).unwrap();
        let certificate = own_params.signed_by(&own, &issuer).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ca.pem");
        std::fs::write(&path, signed.pem()).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(own.serialize_der()));
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.der().clone()], key)
            .unwrap();
        let config = Arc::new(config);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let config = config.clone();
                // Who doesn't trust the certificate goes away: that is no fault of the front.
                std::thread::spawn(move || stream.and_then(|stream| pass(stream, config, to)));
            }
        });
        Front { port, authority: path, _folder: folder }
    }
}

fn pass(stream: TcpStream, config: Arc<ServerConfig>, to: u16) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut outer = StreamOwned::new(connection, stream);
    let (mut request, mut part) = (Vec::new(), [0; 16 << 10]);
    while !is_whole(&request) {
        match outer.read(&mut part)? {
            0 => return Ok(()),
            read => request.extend_from_slice(&part[..read]),
        }
    }
    let mut inner = TcpStream::connect(("127.0.0.1", to))?;
    inner.write_all(&request)?;
    let mut answer = Vec::new();
    inner.read_to_end(&mut answer)?;
    outer.write_all(&answer)?;
    // Without a goodbye, as many servers do it.
    outer.flush()
}

fn is_whole(request: &[u8]) -> bool {
    let Some(split) = request.windows(4).position(|part| part == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&request[..split]).to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    request.len() >= split + 4 + length.unwrap_or(0)
}
