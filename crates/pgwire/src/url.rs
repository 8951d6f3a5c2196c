use crate::config::Config;
use std::time::Duration;
use tidewire_change::{Error, Result};

const DEFAULT_PORT: u16 = 5432;

/// No message here repeats a part of the URL that could be a piece of a password with a character that should have been
/// escaped.
pub(crate) fn parse(url: &str) -> Result<Config> {
    let rest = url.strip_prefix("postgres://").or_else(|| url.strip_prefix("postgresql://"));
    let rest = rest.ok_or_else(|| {
        Error::invalid("the database URL doesn't start with postgres:// or postgresql://").hint(SHAPE)
    })?;
    let (rest, parameters) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    if database.contains(['@', '/']) {
        return Err(Error::invalid("the database URL has a '/' or '@' too many").hint(SHAPE));
    }
    let (user_info, place) = authority.rsplit_once('@').unwrap_or(("", authority));
    let (user, password) = user_info.split_once(':').map_or((user_info, None), |(user, pw)| (user, Some(pw)));
    let (host, port) = split_place(place)?;

    let mut config = Config::new(decode(host)?, DEFAULT_PORT, decode(user)?, decode(database)?);
    if let Some(port) = port.filter(|port| !port.is_empty()) {
        config.port = parse_port(port)?;
    }
    if let Some(password) = password {
        config.set_password(decode(password)?);
    }
    for parameter in parameters.unwrap_or("").split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        apply(&mut config, &decode(name)?, decode(value)?)?;
    }
    check(config)
}

const SHAPE: &str =
    "write postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=…, with every character outside letters, \
                     digits, '-', '_', '.' and '~' of user, password and database written as %XX";

/// Splits `host:port`, `[v6]:port`.
fn split_place(place: &str) -> Result<(&str, Option<&str>)> {
    if let Some(rest) = place.strip_prefix('[') {
        let (host, rest) = rest
            .split_once(']')
            .ok_or_else(|| Error::invalid("the database URL has a '[' without its ']' in the host").hint(SHAPE))?;
        return match rest.strip_prefix(':') {
            None if !rest.is_empty() => Err(Error::invalid("the database URL has text between ']' and the port")),
            port => Ok((host, port)),
        };
    }
    Ok(place.split_once(':').map_or((place, None), |(host, port)| (host, Some(port))))
}

fn parse_port(text: &str) -> Result<u16> {
    if text.contains(',') {
        return Err(one_host());
    }
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| Error::invalid("the port in the database URL isn't a number from 1 to 65535").hint(SHAPE))
}

fn one_host() -> Error {
    Error::invalid("the database URL names several hosts").hint("name the one host to connect to")
}

fn apply(config: &mut Config, name: &str, value: String) -> Result<()> {
    match name {
        "host" => config.host = value,
        "port" => config.port = parse_port(&value)?,
        "user" => config.user = value,
        "password" => config.set_password(value),
        "dbname" => config.database = value,
        "sslmode" => config.ssl_mode = value.parse()?,
        "sslrootcert" => config.ssl_root_cert = Some(value.into()),
        "sslcert" => config.ssl_cert = Some(value.into()),
        "sslkey" => config.ssl_key = Some(value.into()),
        "channel_binding" => config.channel_binding = value.parse()?,
        "application_name" => config.application_name = value,
        "connect_timeout" => {
            let seconds = value.parse().ok().filter(|seconds| (1..=3600).contains(seconds)).ok_or_else(|| {
                Error::invalid("connect_timeout in the database URL isn't a number of seconds from 1 to 3600")
            })?;
            config.connect_timeout = Duration::from_secs(seconds);
        }
        _ => return Err(unknown(name)),
    }
    Ok(())
}

fn unknown(name: &str) -> Error {
    let is_word = !name.is_empty() && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let message = match is_word {
        true => format!("the database URL has the unknown parameter {name:?}"),
        false => "the database URL has a parameter whose name isn't a word (is a '?' or '&' unescaped?)".into(),
    };
    Error::invalid(message).hint(
        "known are host, port, user, password, dbname, sslmode, sslrootcert, sslcert, sslkey, channel_binding, \
         connect_timeout and application_name",
    )
}

fn check(mut config: Config) -> Result<Config> {
    if config.host.contains(',') {
        return Err(one_host());
    }
    if config.host.is_empty() {
        return Err(Error::invalid("the database URL names no host").hint(SHAPE));
    }
    if config.user.is_empty() {
        return Err(Error::invalid("the database URL names no user").hint(SHAPE));
    }
    if config.database.is_empty() {
        config.database = config.user.clone();
    }
    let texts = [&config.host, &config.user, &config.database, &config.application_name];
    if texts.iter().any(|text| text.contains('\0')) || config.password.as_ref().is_some_and(|pw| pw.0.contains('\0')) {
        return Err(Error::invalid("the database URL holds a NUL character (%00)"));
    }
    if config.ssl_cert.is_some() != config.ssl_key.is_some() {
        return Err(Error::invalid("a client certificate needs both sslcert and sslkey"));
    }
    Ok(config)
}

/// Percent-decoding; a `+` stays a `+`.
fn decode(text: &str) -> Result<String> {
    let wrong = || {
        Error::invalid("the database URL has a '%' that isn't followed by two hex digits, or that makes no UTF-8")
            .hint("write a '%' itself as %25")
    };
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digits = bytes.get(at + 1..at + 3).ok_or_else(wrong)?;
            let digit = |b: u8| (b as char).to_digit(16).ok_or_else(wrong);
            out.push((digit(digits[0])? * 16 + digit(digits[1])?) as u8);
            at += 3;
        } else {
            out.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(out).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SslMode;
    use std::path::Path;
    use tidewire_change::ErrorKind;

    #[test]
    fn a_full_url_is_read_with_its_escapes_and_parameters() {
        let config = parse(
            "postgresql://us%65r:p%40s%2Fs%3A%25+w@db.example:6543/sh%C3%B6p?sslmode=verify-full&sslrootcert=/etc/ca.pem\
             &sslcert=c.pem&sslkey=k.pem&connect_timeout=3&application_name=a%20b&channel_binding=require",
        )
        .unwrap();
        assert_eq!((config.host.as_str(), config.port, config.user.as_str()), ("db.example", 6543, "user"));
        assert_eq!(config.database, "shöp");
        assert_eq!(config.password.as_ref().unwrap().0, "p@s/s:%+w");
        assert_eq!((config.ssl_mode, config.connect_timeout), (SslMode::VerifyFull, Duration::from_secs(3)));
        assert_eq!(config.ssl_root_cert.as_deref(), Some(Path::new("/etc/ca.pem")));
        assert_eq!(config.application_name, "a b");
        assert_eq!(config.to_string(), "postgres://user@db.example:6543/shöp");
    }

    #[test]
    fn hosts_may_be_addresses_and_socket_folders() {
        let config = parse("postgres://u@[::1]:99/d").unwrap();
        assert_eq!((config.host.as_str(), config.port), ("::1", 99));
        assert_eq!(config.to_string(), "postgres://u@[::1]:99/d");
        assert_eq!(parse("postgres://u@[fe80::1]").unwrap().host, "fe80::1");
        for url in ["postgres://u@%2Frun%2Fpg/d", "postgres://u@/d?host=/run/pg", "postgres:///d?host=/run/pg&user=u"] {
            let config = parse(url).unwrap();
            assert!(config.is_unix(), "{url}");
            assert_eq!((config.host.as_str(), config.database.as_str(), config.port), ("/run/pg", "d", 5432), "{url}");
        }
    }

    #[test]
    fn the_database_is_named_like_the_user_unless_said_otherwise() {
        assert_eq!(parse("postgres://u@h").unwrap().database, "u");
        assert_eq!(parse("postgres://u@h/?dbname=x").unwrap().database, "x");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (url, word) in [
            ("mysql://u@h/d", "postgres://"),
            ("postgres://u@h/d?target_session_attrs=any", "target_session_attrs"),
            ("postgres://u@h/d?sslmode=on", "\"on\""),
            ("postgres://u@h/d?connect_timeout=0", "connect_timeout"),
            ("postgres://u@h:0/d", "port"),
            ("postgres://u@h1,h2/d", "several hosts"),
            ("postgres://u@h1:1,h2:2/d", "several hosts"),
            ("postgres://h/d", "no user"),
            ("postgres://u@/d", "no host"),
            ("postgres://u@h/d%2", "'%'"),
            ("postgres://u@h/d%FF", "'%'"),
            ("postgres://u@h/d%00", "NUL"),
            ("postgres://u@[::1/d", "']'"),
            ("postgres://u@h/d?sslcert=x", "sslkey"),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid, "{url}");
            assert!(error.to_string().contains(word), "{url}: {error}");
        }
    }

    #[test]
    fn the_password_is_never_shown_not_even_when_the_url_is_wrong() {
        let secret = "hunter2";
        let mut config = parse("postgres://u:hunter2@h/d").unwrap();
        for _ in 0..2 {
            let shown = format!("{config} {config:?} {config:#?}");
            assert!(!shown.contains(secret), "{shown}");
            config.set_password(secret);
        }
        for url in [
            "postgres://u:hunter2@h/d?nonsense=1",
            "postgres://u:hunter2/x@h/d",
            "postgres://u:1?hunter2@h/d",
            "postgres://u:1?hunter2=@h/d",
            "postgres://u:1#hunter2@h:x/d",
            "postgres://u:hunter2%@h/d",
            "postgres://u@h/d?password=hunter2&sslmode=bad",
            "postgres://u@h/d?password=hunter2%",
            "postgres://u:x&hunter2@h/d?x",
            "u:hunter2@h/d",
        ] {
            let error = parse(url).unwrap_err();
            assert!(!format!("{error} {error:?}").contains(secret), "{url}: {error:?}");
        }
    }

    #[test]
    fn a_password_with_unescaped_signs_is_refused_and_no_part_of_it_is_told() {
        for url in
            ["postgres://u:se/cret@host/db", "postgres://u:s@ec/ret@host:5432/db", "postgres://u:se/cr@et@host/d/b"]
        {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            let told = format!("{error} {:?}", error.hint_text());
            assert!(!told.contains("ret") && !told.contains("ec"), "{told}");
        }
    }
}
