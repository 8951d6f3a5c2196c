use crate::redact;
use std::fmt;
use tidewire_change::{Error, ErrorKind};

/// An error that the server sent, without anything that could hold a row's value: no DETAIL, no CONTEXT, and the message
/// itself cut where its class quotes values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PgError {
    /// ERROR, FATAL or PANIC, not translated.
    pub severity: String,
    pub sqlstate: String,
    pub message: String,
    pub hint: Option<String>,
    pub table: Option<String>,
    pub column: Option<String>,
    pub constraint: Option<String>,
}

impl fmt::Display for PgError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.severity, self.sqlstate, self.message)?;
        let places = [("table", &self.table), ("column", &self.column), ("constraint", &self.constraint)];
        for (what, name) in places.iter().filter_map(|(what, name)| Some((what, name.as_ref()?))) {
            write!(f, ", {what} {name}")?;
        }
        Ok(())
    }
}

impl std::error::Error for PgError {}

impl PgError {
    /// Reads an ErrorResponse's fields ("Error and Notice Message Fields"). Missing fields stay empty.
    pub(crate) fn parse(mut body: &[u8]) -> PgError {
        let mut error = PgError {
            severity: String::new(),
            sqlstate: String::new(),
            message: String::new(),
            hint: None,
            table: None,
            column: None,
            constraint: None,
        };
        let mut schema = None;
        while let Some((&field, rest)) = body.split_first().filter(|(field, _)| **field != 0) {
            let end = memchr::memchr(0, rest).unwrap_or(rest.len());
            let text = String::from_utf8_lossy(&rest[..end]).into_owned();
            body = rest.get(end + 1..).unwrap_or_default();
            match field {
                b'S' if error.severity.is_empty() => error.severity = text,
                b'V' => error.severity = text,
                b'C' => error.sqlstate = text,
                b'M' => error.message = text,
                b'H' => error.hint = Some(text),
                b's' => schema = Some(text),
                b't' => error.table = Some(text),
                b'c' => error.column = Some(text),
                b'n' => error.constraint = Some(text),
                _ => {}
            }
        }
        if let (Some(schema), Some(table)) = (schema, error.table.take()) {
            error.table = Some(format!("{schema}.{table}"));
        }
        redact::clean(&mut error);
        error
    }

    /// The server closes the connection after this.
    pub(crate) fn is_fatal(&self) -> bool {
        self.severity != "ERROR"
    }

    /// `place`: the server as a person knows it.
    pub(crate) fn into_error(self, place: &str) -> Error {
        let hint = self.hint.clone().or_else(|| own_hint(&self).map(str::to_owned));
        let error = Error::new(kind(&self), format!("PostgreSQL at {place} says {self}"));
        match hint {
            Some(hint) => error.hint(hint).caused_by(self),
            None => error.caused_by(self),
        }
    }
}

/// The SQLSTATE of an error that came from the server.
pub fn sqlstate(error: &Error) -> Option<&str> {
    server_error(error).map(|error| error.sqlstate.as_str())
}

/// The server's error behind `error`, if it came from the server.
pub fn server_error(error: &Error) -> Option<&PgError> {
    std::error::Error::source(error)?.downcast_ref()
}

/// What to do about it (DESIGN §8), by SQLSTATE (PostgreSQL documentation, appendix A). What only the caller can judge
/// (a slot that is gone is `Lost`) the caller tells by `sqlstate`.
fn kind(error: &PgError) -> ErrorKind {
    let code = error.sqlstate.as_str();
    match code {
        // A pooler that doesn't take our settings.
        "08P01" if error.message.contains("startup parameter") => ErrorKind::Invalid,
        // All slots in use, temporary files at their limit: waiting doesn't change a setting.
        "53400" => ErrorKind::Invalid,
        // A standby: it may be promoted, or the name may move.
        "25006" => ErrorKind::Unavailable,
        // Ended by a timeout while in a transaction.
        "25P03" | "25P04" => ErrorKind::Unavailable,
        // The server's data or index is damaged: trying again reads the same.
        "XX001" | "XX002" => ErrorKind::Invalid,
        // Something else holds it just now.
        "55006" | "55P03" => ErrorKind::Unavailable,
        _ => match code.get(..2).unwrap_or("") {
            // Names, rights, values, limits, wrong state of the server, what a function raised.
            "28" | "3D" | "3F" | "42" | "44" | "22" | "23" | "21" | "0A" | "54" | "55" | "P0" | "2B" | "38" | "39" => {
                ErrorKind::Invalid
            }
            // Transactions in a state that only a fault of ours brings about.
            "25" | "2D" | "0B" | "3B" | "34" | "24" | "26" | "03" => ErrorKind::Bug,
            // Connection, resources, serialization and deadlock, operator intervention, files, internal, foreign servers.
            _ => ErrorKind::Unavailable,
        },
    }
}

fn own_hint(error: &PgError) -> Option<&'static str> {
    Some(match error.sqlstate.as_str() {
        "28P01" => "check user and password in the database URL",
        "28000" => {
            "the role must exist with LOGIN, and pg_hba.conf must let it in from here, to this database, with this encryption"
        }
        "3D000" => "check the database's name in the URL",
        "42501" => "grant the right to the user of the database URL, or use another user",
        "53300" => "all connections are taken: raise max_connections (or max_wal_senders), or close some",
        "53100" => "the server's disk is full",
        "53200" => "the server is out of memory",
        "53400" => "raise the limit on the server, or free what uses it",
        "57P03" => "the server is starting up, shutting down or recovering",
        "57P01" | "57P02" => "the server is going down or ended this session",
        "57014" => "the statement was cancelled on the server",
        "55006" => "another session uses it: end that one, or wait until the server notices that it is gone",
        "25006" => {
            "this server is a read-only standby (or default_transaction_read_only is on): connect to the primary"
        }
        "40001" | "40P01" => "it ran into another transaction",
        "08P01" => "connect to PostgreSQL itself, not through a connection pooler",
        "XX001" | "XX002" => "the server's data is damaged: see its log",
        code if code.starts_with("P0") => "a function or trigger raised it: the server's log has its text",
        "22021" | "22P05" => {
            "a text has no form in UTF-8: mend the row at the source, or make the column bytea"
        }
        code if code.starts_with("22") || code.starts_with("23") => "the server's log has the values",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(fields: &[(u8, &str)]) -> Vec<u8> {
        let mut body = Vec::new();
        for (field, text) in fields {
            body.push(*field);
            body.extend_from_slice(text.as_bytes());
            body.push(0);
        }
        body.push(0);
        body
    }

    fn error(code: &str, message: &str) -> Error {
        PgError::parse(&response(&[(b'S', "FEHLER"), (b'V', "ERROR"), (b'C', code), (b'M', message)]))
            .into_error("h:1/d")
    }

    #[test]
    fn the_kind_follows_from_the_sqlstate() {
        use ErrorKind::*;
        for (code, kind) in [
            ("28P01", Invalid),
            ("28000", Invalid),
            ("3D000", Invalid),
            ("42P01", Invalid),
            ("42501", Invalid),
            ("22P02", Invalid),
            ("23505", Invalid),
            ("53300", Unavailable),
            ("53100", Unavailable),
            ("57P01", Unavailable),
            ("57P03", Unavailable),
            ("57014", Unavailable),
            ("08006", Unavailable),
            ("40001", Unavailable),
            ("55006", Unavailable),
            ("55000", Invalid),
            ("25006", Unavailable),
            ("25P02", Bug),
            ("58030", Unavailable),
            ("XX000", Unavailable),
            ("XX001", Invalid),
            ("", Unavailable),
            ("é", Unavailable),
        ] {
            let error = error(code, "m");
            assert_eq!(error.kind(), kind, "{code}");
            assert_eq!(sqlstate(&error), Some(code));
        }
        assert_eq!(error("08P01", "unsupported startup parameter: x").kind(), Invalid);
    }

    #[test]
    fn detail_and_context_are_dropped_and_places_are_kept() {
        let body = response(&[
            (b'V', "ERROR"),
            (b'C', "23505"),
            (b'M', "duplicate key value violates unique constraint \"t_pkey\""),
            (b'D', "Key (id)=(4711) already exists."),
            (b'W', "COPY t, line 1: \"4711\""),
            (b's', "shop"),
            (b't', "t"),
            (b'n', "t_pkey"),
        ]);
        let error = PgError::parse(&body).into_error("h:1/d");
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains("4711"), "{shown}");
        assert!(error.to_string().contains("table shop.t, constraint t_pkey"), "{error}");
    }

    #[test]
    fn cut_fields_are_no_panic() {
        let body = response(&[(b'V', "ERROR"), (b'C', "42P01"), (b'M', "x")]);
        for cut in 0..body.len() {
            PgError::parse(&body[..cut]);
        }
    }
}
