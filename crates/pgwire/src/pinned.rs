//! Settings that change the text of values, or that end what we do half-way. The server's own, the database's and the
//! role's settings (`ALTER DATABASE … SET`) all rank below what a connection asks for in its startup message
//! (guc.h: PGC_S_CLIENT above PGC_S_DATABASE_USER), and a walsender goes by the same rules.

/// What the startup message asks for; the values are written as the server prints them.
pub(crate) const AT_STARTUP: &[(&str, &str)] = &[
    ("client_encoding", "UTF8"),
    // Dates, times, intervals.
    ("DateStyle", "ISO, MDY"),
    ("IntervalStyle", "postgres"),
    ("TimeZone", "UTC"),
    // float4, float8 and the geometric types: 1 or more is the shortest text that reads back exactly.
    ("extra_float_digits", "1"),
    ("bytea_output", "hex"),
    // money
    ("lc_monetary", "C"),
    // regclass, regproc, regtype and the like print names that aren't in pg_catalog with their schema.
    ("search_path", ""),
    ("quote_all_identifiers", "off"),
    // What is read back in.
    ("xmloption", "content"),
    ("array_nulls", "on"),
    ("standard_conforming_strings", "on"),
    // A read that row security would thin out is an error, never fewer rows.
    ("row_security", "off"),
    // A default that somebody set for people's sessions; ours say themselves what they are.
    ("default_transaction_read_only", "off"),
    ("default_transaction_isolation", "read committed"),
    ("default_transaction_deferrable", "off"),
    ("statement_timeout", "0"),
    ("lock_timeout", "0"),
    ("idle_in_transaction_session_timeout", "0"),
];

/// Settings that not every version has: an unknown one in the startup message is refused, so these are set afterwards.
const BY_VERSION: &[(u32, &str, &str)] =
    &[(140_000, "idle_session_timeout", "0"), (170_000, "transaction_timeout", "0")];

/// The encoding of a database whose text has none. From such a database the server sends nothing as UTF8 that isn't, and
/// ends the log's stream at the first such value; so it is asked for plain bytes, and whoever takes them in looks.
const PLAIN: &str = "SQL_ASCII";

/// What is known of the server once it has let us in.
pub(crate) struct Server<'a> {
    pub version: u32,
    /// The database's encoding.
    pub encoding: &'a str,
}

/// The settings that this server has, each with its value.
pub(crate) fn settings(server: &Server<'_>) -> impl Iterator<Item = (&'static str, &'static str)> {
    let (version, is_plain) = (server.version, server.encoding == PLAIN);
    let newer = BY_VERSION.iter().filter(move |(since, ..)| version >= *since).map(|(_, name, value)| (*name, *value));
    AT_STARTUP.iter().copied().chain(newer).map(move |(name, value)| match name {
        "client_encoding" if is_plain => (name, PLAIN),
        _ => (name, value),
    })
}

/// One statement that sets them all and returns what they are then. Normally it changes only those of `BY_VERSION`; a
/// pooler that dropped our startup parameters, or a login trigger, may have made it necessary for the others. Its own text is
/// ASCII, whatever the encoding is by then.
pub(crate) fn statement(server: &Server<'_>) -> String {
    let calls: Vec<String> =
        settings(server).map(|(name, value)| format!("pg_catalog.set_config('{name}', '{value}', false)")).collect();
    format!("SELECT {}", calls.join(", "))
}
