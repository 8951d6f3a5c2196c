use crate::url;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;
use tidewire_change::{Error, Result};

/// How the connection is encrypted and how far the server's certificate is checked; libpq's names and meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SslMode {
    Disable,
    /// Plain first; TLS if the server refuses that.
    Allow,
    /// TLS if the server has it; plain if it refuses that.
    #[default]
    Prefer,
    /// TLS, any certificate; with a root certificate given, as `VerifyCa`.
    Require,
    /// The certificate must come from a trusted authority.
    VerifyCa,
    /// And it must name the host.
    VerifyFull,
}

impl FromStr for SslMode {
    type Err = Error;

    fn from_str(text: &str) -> Result<SslMode> {
        Ok(match text {
            "disable" => SslMode::Disable,
            "allow" => SslMode::Allow,
            "prefer" => SslMode::Prefer,
            "require" => SslMode::Require,
            "verify-ca" => SslMode::VerifyCa,
            "verify-full" => SslMode::VerifyFull,
            _ => {
                return Err(Error::invalid(format!("sslmode={text:?} doesn't exist"))
                    .hint("use disable, allow, prefer, require, verify-ca or verify-full"))
            }
        })
    }
}

/// Whether SCRAM is bound to the server's certificate; libpq's names and meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChannelBinding {
    Disable,
    #[default]
    Prefer,
    Require,
}

impl FromStr for ChannelBinding {
    type Err = Error;

    fn from_str(text: &str) -> Result<ChannelBinding> {
        Ok(match text {
            "disable" => ChannelBinding::Disable,
            "prefer" => ChannelBinding::Prefer,
            "require" => ChannelBinding::Require,
            _ => {
                return Err(Error::invalid(format!("channel_binding={text:?} doesn't exist"))
                    .hint("use disable, prefer or require"))
            }
        })
    }
}

/// Text that is never printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Secret(pub(crate) String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// Where and how to connect. Neither `Debug` nor `Display` shows the password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// A name, an address, or the folder of a Unix socket (starts with `/`).
    pub host: String,
    pub port: u16,
    pub user: String,
    pub(crate) password: Option<Secret>,
    pub database: String,
    pub ssl_mode: SslMode,
    /// A PEM file of trusted certificates, or `system`; none: the system's.
    pub ssl_root_cert: Option<PathBuf>,
    /// Our own certificate (PEM, with its chain) and key (PEM, not encrypted).
    pub ssl_cert: Option<PathBuf>,
    pub ssl_key: Option<PathBuf>,
    pub channel_binding: ChannelBinding,
    /// For all of connecting: name lookup, TCP, TLS, authentication.
    pub connect_timeout: Duration,
    pub application_name: String,
}

impl Config {
    pub fn new(host: impl Into<String>, port: u16, user: impl Into<String>, database: impl Into<String>) -> Config {
        Config {
            host: host.into(),
            port,
            user: user.into(),
            password: None,
            database: database.into(),
            ssl_mode: SslMode::default(),
            ssl_root_cert: None,
            ssl_cert: None,
            ssl_key: None,
            channel_binding: ChannelBinding::default(),
            connect_timeout: Duration::from_secs(10),
            application_name: "tidewire".into(),
        }
    }

    /// Reads a `postgres://` or `postgresql://` URL as PostgreSQL's documentation describes it ("Connection URIs"), for one
    /// host. Parameters: `host`, `port`, `user`, `password`, `dbname`, `sslmode`, `sslrootcert`, `sslcert`, `sslkey`,
    /// `channel_binding`, `connect_timeout` (seconds), `application_name`. Fails with `Invalid`.
    pub fn parse(url: &str) -> Result<Config> {
        url::parse(url)
    }

    pub fn set_password(&mut self, password: impl Into<String>) {
        self.password = Some(Secret(password.into()));
    }

    pub(crate) fn is_unix(&self) -> bool {
        self.host.starts_with('/')
    }
}

/// `postgres://user@host:port/database`
impl fmt::Display for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Config { host, port, user, database, .. } = self;
        match host.contains(':') {
            true => write!(f, "postgres://{user}@[{host}]:{port}/{database}"),
            false => write!(f, "postgres://{user}@{host}:{port}/{database}"),
        }
    }
}
