use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tidewire_change::{Error, ErrorKind};
use tidewire_pgwire::{sqlstate, Config, Connection, Mode};
use tidewire_testbed::Postgres;

/// A certificate authority.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Authority {
        Authority::with_key(name, KeyPair::generate().unwrap())
    }

    fn with_key(name: &str, key: KeyPair) -> Authority {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Authority { issuer: Issuer::new(params, key), pem }
    }

    fn sign(&self, params: &CertificateParams, key: &KeyPair) -> Certificate {
        params.signed_by(key, &self.issuer).unwrap()
    }
}

fn subject(common_name: &str, alternative_names: &[&str]) -> CertificateParams {
    let names: Vec<String> = alternative_names.iter().map(|name| name.to_string()).collect();
    let mut params = CertificateParams::new(names).unwrap();
    params.distinguished_name.push(DnType::CommonName, common_name);
    params
}

/// A server with TLS, a trusted authority, and a folder for the client's files.
struct Setup {
    server: Postgres,
    authority: Authority,
    folder: TempDir,
}

const HBA: &str = "local all all trust\nhostssl all tls_only all trust\nhostnossl all plain_only all trust\n\
                   hostssl all carol,bob all cert\nhostssl all scram all scram-sha-256\nhost all postgres all trust\n";

impl Setup {
    fn new() -> Setup {
        let server = Postgres::start(&[("wal_level", "logical")]);
        let setup =
            Setup { server, authority: Authority::new("Tidewire test authority"), folder: TempDir::new().unwrap() };
        setup.file("ca.pem", &setup.authority.pem);
        setup.server.write_file("ca.pem", setup.authority.pem.as_bytes(), 0o600);
        setup.server.psql(
            "CREATE ROLE tls_only LOGIN; CREATE ROLE plain_only LOGIN; CREATE ROLE carol LOGIN; CREATE ROLE bob LOGIN;
             CREATE ROLE scram LOGIN PASSWORD 'pw'; ALTER SYSTEM SET ssl_ca_file = 'ca.pem'; ALTER SYSTEM SET ssl = on",
        );
        setup.server.write_file("pg_hba.conf", HBA.as_bytes(), 0o600);
        setup.serve(&subject("server", &["localhost"]));
        setup
    }

    /// Gives the server a certificate of the trusted authority.
    fn serve(&self, params: &CertificateParams) {
        let key = KeyPair::generate().unwrap();
        self.serve_as(&self.authority.sign(params, &key), &key);
    }

    fn serve_as(&self, certificate: &Certificate, key: &KeyPair) {
        self.server.write_file("server.crt", certificate.pem().as_bytes(), 0o600);
        self.server.write_file("server.key", key.serialize_pem().as_bytes(), 0o600);
        self.server.reload();
        assert!(!self.server.log().contains("could not load"), "{}", self.server.log());
    }

    fn file(&self, name: &str, content: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, content).unwrap();
        path
    }

    /// A URL with `sslrootcert=ca.pem` when the mode verifies.
    fn url(&self, user: &str, host: &str, sslmode: &str) -> String {
        let root = match sslmode.starts_with("verify") {
            true => format!("&sslrootcert={}", self.folder.path().join("ca.pem").display()),
            false => String::new(),
        };
        format!("postgres://{user}@{host}:{}/postgres?sslmode={sslmode}{root}", self.server.port())
    }

    fn client_files(&self, name: &str, authority: &Authority) -> String {
        let key = KeyPair::generate().unwrap();
        let certificate = authority.sign(&subject(name, &[]), &key);
        let cert = self.file(&format!("{name}.crt"), &certificate.pem());
        let key = self.file(&format!("{name}.key"), &key.serialize_pem());
        client_parameters(&cert, &key)
    }
}

fn client_parameters(cert: &Path, key: &Path) -> String {
    format!("&sslcert={}&sslkey={}", cert.display(), key.display())
}

/// Is the session encrypted?
async fn is_tls(url: &str) -> bool {
    let mut pg = crate::connect(url).await;
    let rows = pg.query("SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").await.unwrap();
    pg.canceller().cancel().await.unwrap();
    pg.close().await;
    rows.value().unwrap() == "t"
}

async fn refused(url: &str, words: &str) -> Error {
    let error = Connection::connect(&Config::parse(url).unwrap(), Mode::Sql).await.err().expect(url);
    assert_eq!(error.kind(), ErrorKind::Invalid, "{url}: {error}");
    assert!(error.to_string().contains(words), "{url}: {error} lacks {words:?}");
    assert!(error.hint_text().is_some(), "{error}");
    error
}

#[tokio::test]
async fn each_sslmode_encrypts_when_it_says_and_falls_back_when_it_may() {
    let setup = Setup::new();
    for (user, sslmode, encrypted) in [
        ("postgres", "disable", false),
        ("plain_only", "disable", false),
        ("postgres", "allow", false),
        ("tls_only", "allow", true),
        ("plain_only", "allow", false),
        ("postgres", "prefer", true),
        ("tls_only", "prefer", true),
        ("plain_only", "prefer", false),
        ("tls_only", "require", true),
        ("tls_only", "verify-ca", true),
        ("tls_only", "verify-full", true),
    ] {
        assert_eq!(is_tls(&setup.url(user, "localhost", sslmode)).await, encrypted, "{user} {sslmode}");
    }
    for (user, sslmode) in
        [("tls_only", "disable"), ("plain_only", "require"), ("nobody", "prefer"), ("nobody", "allow")]
    {
        let error = refused(&setup.url(user, "localhost", sslmode), "pg_hba.conf").await;
        assert_eq!(sqlstate(&error), Some("28000"), "{user} {sslmode}");
    }
    let plain = crate::server().url();
    for sslmode in ["disable", "allow", "prefer"] {
        assert!(!is_tls(&format!("{plain}?sslmode={sslmode}")).await);
    }
    for sslmode in ["require", "verify-full"] {
        refused(&format!("{plain}?sslmode={sslmode}"), "has no TLS").await;
    }
}

#[tokio::test]
async fn a_certificate_that_does_not_fit_is_refused_with_the_reason() {
    let setup = Setup::new();
    let full = |host: &str| setup.url("tls_only", host, "verify-full");
    refused(&full("127.0.0.1"), "is for localhost, not for 127.0.0.1").await;
    assert!(is_tls(&setup.url("tls_only", "127.0.0.1", "verify-ca")).await);
    setup.serve(&subject("localhost", &[]));
    refused(&full("localhost"), "names no host").await;
    setup.serve(&subject("server", &["127.0.0.1"]));
    assert!(is_tls(&full("127.0.0.1")).await);

    let other = Authority::new("another authority");
    let other_root = setup.file("other.pem", &other.pem);
    let require = setup.url("tls_only", "localhost", "require");
    for sslmode in ["require", "verify-ca", "verify-full"] {
        let url = setup.url("tls_only", "127.0.0.1", sslmode).replace("ca.pem", "other.pem");
        let root = format!("&sslrootcert={}", other_root.display());
        refused(&(if sslmode == "require" { url + &root } else { url }), "authority that isn't trusted").await;
    }
    refused(&(require.replace("require", "verify-full") + "&sslrootcert=system"), "trusted").await;
    refused(&(require.clone() + "&sslrootcert=system"), "verify-full").await;
    refused(&require.replace("require", "verify-ca"), "sslrootcert").await;
    refused(&(require.clone() + "&sslrootcert=/nowhere.pem"), "/nowhere.pem").await;
    let empty = setup.file("empty.pem", "nothing here\n");
    refused(&format!("{require}&sslrootcert={}", empty.display()), "holds no certificate").await;
}

#[tokio::test]
async fn an_expired_certificate_is_named_as_such() {
    let setup = Setup::new();
    let mut params = subject("server", &["localhost"]);
    params.not_after = rcgen::date_time_ymd(2020, 1, 1);
    setup.serve(&params);
    for sslmode in ["verify-ca", "verify-full"] {
        refused(&setup.url("tls_only", "localhost", sslmode), "has expired").await;
    }
    params.not_after = rcgen::date_time_ymd(4000, 1, 1);
    params.not_before = rcgen::date_time_ymd(3999, 1, 1);
    setup.serve(&params);
    refused(&setup.url("tls_only", "localhost", "verify-full"), "isn't valid yet").await;
    // Asked for encryption only, nobody looks at the certificate.
    assert!(is_tls(&setup.url("tls_only", "localhost", "require")).await);
}

#[tokio::test]
async fn a_self_signed_certificate_is_trusted_when_it_is_named_itself() {
    let setup = Setup::new();
    let mut params = subject("server", &["localhost"]);
    let key = KeyPair::generate().unwrap();
    for (is_ca, not_after, works) in [
        (IsCa::NoCa, 4000, true),
        (IsCa::Ca(BasicConstraints::Unconstrained), 4000, true),
        (IsCa::Ca(BasicConstraints::Unconstrained), 2020, false),
    ] {
        params.is_ca = is_ca;
        params.not_after = rcgen::date_time_ymd(not_after, 1, 1);
        let certificate = params.self_signed(&key).unwrap();
        setup.serve_as(&certificate, &key);
        setup.file("ca.pem", &setup.authority.pem);
        let url = setup.url("tls_only", "localhost", "verify-full");
        if works {
            refused(&url, "trusted here").await;
        }
        setup.file("ca.pem", &certificate.pem());
        match works {
            true => assert!(is_tls(&url).await),
            false => drop(refused(&url, "has expired").await),
        }
        if works {
            refused(&setup.url("tls_only", "127.0.0.1", "verify-full"), "not for 127.0.0.1").await;
        }
    }
}

#[tokio::test]
async fn a_client_certificate_lets_its_own_user_in_and_no_other() {
    let setup = Setup::new();
    let url = setup.url("carol", "localhost", "verify-full");
    let carol = setup.client_files("carol", &setup.authority);
    assert!(is_tls(&(url.clone() + &carol)).await);
    let error = refused(&(setup.url("bob", "localhost", "require") + &carol), "28000").await;
    assert_eq!(sqlstate(&error), Some("28000"));
    refused(&url, "28000").await;
    let forged = setup.client_files("carol", &Authority::new("another authority"));
    refused(&(url.clone() + &forged), "alert").await;

    let missing = client_parameters(&setup.folder.path().join("carol.crt"), &setup.folder.path().join("none.key"));
    refused(&(url.clone() + &missing), "none.key").await;
    setup.client_files("bob", &setup.authority);
    let mixed = client_parameters(&setup.folder.path().join("carol.crt"), &setup.folder.path().join("bob.key"));
    refused(&(url + &mixed), "don't go together").await;
}

#[tokio::test]
async fn scram_is_bound_to_the_servers_certificate_when_it_can_be() {
    let setup = Setup::new();
    let url = |binding: &str| setup.url("scram:pw", "localhost", "verify-full") + "&channel_binding=" + binding;
    for (algorithm, can_bind) in
        [(&rcgen::PKCS_ECDSA_P256_SHA256, true), (&rcgen::PKCS_ECDSA_P384_SHA384, true), (&rcgen::PKCS_ED25519, false)]
    {
        // The hash goes by the signature on the certificate, so by its issuer's key.
        let authority = Authority::with_key("an authority", KeyPair::generate_for(algorithm).unwrap());
        let key = KeyPair::generate().unwrap();
        setup.serve_as(&authority.sign(&subject("server", &["localhost"]), &key), &key);
        setup.file("ca.pem", &authority.pem);
        for binding in ["disable", "prefer"] {
            assert!(is_tls(&url(binding)).await, "{algorithm:?} {binding}");
        }
        match can_bind {
            true => assert!(is_tls(&url("require")).await, "{algorithm:?}"),
            false => drop(refused(&url("require"), "channel_binding").await),
        }
    }
    refused(&(setup.url("scram:pw", "localhost", "disable") + "&channel_binding=require"), "pg_hba.conf").await;
    refused(&(setup.url("tls_only", "localhost", "require") + "&channel_binding=require"), "channel_binding").await;
    let wrong = refused(&url("prefer").replace("scram:pw", "scram:hunter2"), "28P01").await;
    assert!(!format!("{wrong:?}").contains("hunter2"));
}

#[tokio::test]
async fn copy_and_replication_pass_through_tls() {
    let setup = Setup::new();
    let url = setup.url("postgres", "localhost", "verify-full");
    let mut pg = crate::connect(&url).await;
    pg.execute("CREATE TABLE public.t (a int, b text); CREATE PUBLICATION p FOR TABLE public.t").await.unwrap();
    pg.query("SELECT pg_create_logical_replication_slot('s', 'pgoutput')").await.unwrap();
    let mut copy = pg.copy_in("COPY public.t FROM STDIN").await.unwrap();
    for _ in 0..20_000 {
        copy.send(b"1\tsome text of some length, so that many records are needed\n").await.unwrap();
    }
    copy.send(&[b"2\t", &b"x".repeat(20_000_000)[..], b"\n"].concat()).await.unwrap();
    assert_eq!(copy.finish().await.unwrap(), 20_001);
    let mut copy = pg.copy_out("COPY public.t TO STDOUT").await.unwrap();
    let (mut rows, mut bytes) = (0, 0);
    while let Some(chunk) = copy.next().await.unwrap() {
        rows += chunk.rows().count();
        bytes += chunk.rows().map(<[u8]>::len).sum::<usize>();
    }
    assert_eq!((rows, bytes), (20_001, 20_000 * 60 + 20_000_003));

    let pg = Connection::connect(&Config::parse(&url).unwrap(), Mode::Replication).await.unwrap();
    let start = "START_REPLICATION SLOT s LOGICAL 0/0 (proto_version '1', publication_names 'p')";
    let mut stream = pg.start_replication(start).await.unwrap();
    let mut payload_bytes = 0;
    while payload_bytes < bytes {
        for message in stream.next().await.unwrap().messages() {
            if let tidewire_pgwire::ReplicationMessage::XLogData { payload, .. } = message {
                payload_bytes += payload.len();
            }
        }
        stream.send_status(0, 0, 0, 0, false).await.unwrap();
    }
    stream.stop().await.unwrap();
}
