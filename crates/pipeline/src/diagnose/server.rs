use super::{bytes_text, sorted, span_text, Finding, Severity};
use tidewire_change::{Identity, Key, TableName};
use tidewire_connector::{FolderFacts, ServerFacts, SlotFacts, TableFacts};

/// The oldest version that pgoutput is spoken with.
const OLDEST: u32 = 140_000;
/// A transaction open for longer than this is worth a word: a new slot waits for its end.
const LONG_SECONDS: f64 = 30.0;

const DISK_CRITICAL_BYTES: u64 = 256 << 20;
const DISK_WARNING_BYTES: u64 = 2 << 30;

/// Can the folder be used? Empty: yes.
pub fn check_folder(facts: &FolderFacts) -> Vec<Finding> {
    let (subject, path) = (facts.subject.as_str(), &facts.path);
    let mut findings = Vec::new();
    if let Some(owner) = facts.owner {
        let owner = owner.map_or("another process".to_string(), |pid| format!("process {pid}"));
        findings.push(
            Finding::new(Severity::Note, subject, format!("{path} is in use by {owner}"))
                .why("a folder has one owner at a time: this may be Tidewire itself, running")
                .next("tidewire status tells whether it is; if not, stop that process or set another data_dir"),
        );
    }
    let why = format!(
        "{path} lies there; when the disk is full writing waits, loses nothing, and goes on when there is room"
    );
    findings.extend(room(subject, facts.free_bytes, why, "make room"));
    findings
}

/// A finding when little of a disk is free.
pub(super) fn room(subject: &str, free: Option<u64>, why: String, next: &str) -> Option<Finding> {
    let free = free.filter(|free| *free < DISK_WARNING_BYTES)?;
    let severity = if free < DISK_CRITICAL_BYTES { Severity::Critical } else { Severity::Warning };
    Some(Finding::new(severity, subject, format!("{} are free on its disk", bytes_text(free))).why(why).next(next))
}

/// Is everything there that capture needs? Empty: yes.
pub fn check(facts: &ServerFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    settings(facts, &mut findings);
    if let Some(slot) = &facts.slot {
        slot_state(slot, &mut findings);
    }
    for table in &facts.tables {
        table_state(table, &sql_part(&facts.user), &mut findings);
    }
    for pattern in &facts.unmatched {
        findings.push(unmatched(pattern, &facts.tables));
    }
    findings.extend(facts.lacks_signals.as_deref().map(super::signals::lacks_table));
    if let Some(open) = facts.oldest_transaction.filter(|t| t.as_secs_f64() > LONG_SECONDS && facts.slot.is_none()) {
        findings.push(
            Finding::new(
                Severity::Warning,
                "source",
                format!("a transaction is open for {}", span_text(open.as_secs_f64())),
            )
            .why("a new replication slot is made only when every transaction that is open now has ended")
            .next("SELECT pid, xact_start, state, query FROM pg_stat_activity ORDER BY xact_start LIMIT 5;"),
        );
    }
    sorted(findings)
}

fn settings(facts: &ServerFacts, findings: &mut Vec<Finding>) {
    let critical = |what: String| Finding::new(Severity::Critical, "source", what);
    if facts.version < OLDEST {
        findings.push(
            critical(format!("the server is PostgreSQL {}", facts.version / 10_000))
                .why("versions before 14 lack parts of the replication protocol that are relied on")
                .next("upgrade the server to PostgreSQL 14 or later"),
        );
    }
    if facts.wal_level != "logical" {
        findings.push(
            critical(format!("wal_level is {}", facts.wal_level))
                .why("the log holds row changes only at wal_level logical")
                .next("ALTER SYSTEM SET wal_level = 'logical'; then restart the server"),
        );
    }
    if facts.encoding == "SQL_ASCII" {
        findings.push(
            Finding::new(Severity::Warning, "source", "the database's encoding is SQL_ASCII")
                .why("the server doesn't check that its texts are UTF-8; a table with one that isn't is parked")
                .next("move to a database with ENCODING 'UTF8'; or look for such texts first, and make their columns bytea"),
        );
    }
    if !facts.may_replicate {
        findings.push(
            critical("the user may not replicate".into())
                .why("reading the log needs the REPLICATION attribute (on hosted servers: membership in the provider's role)")
                .next(format!("as a superuser: ALTER ROLE {} REPLICATION;", sql_part(&facts.user))),
        );
    }
    if !facts.may_publish {
        let user = sql_part(&facts.user);
        findings.push(
            critical("the user may not make the publication".into())
                .why("it needs CREATE on the database")
                .next(format!("GRANT CREATE ON DATABASE … TO {user}; or make the publication yourself and name it in source.postgres.publication")),
        );
    }
    if facts.slot.is_none() && facts.slots_used >= facts.slots_max {
        findings.push(
            critical(format!("all {} replication slots are taken", facts.slots_max))
                .why("a slot of its own keeps the log that is still needed")
                .next("drop one that is not used (tidewire slot list), or raise max_replication_slots and restart"),
        );
    }
    if facts.senders_used >= facts.senders_max {
        findings.push(
            critical(format!("all {} WAL senders are busy", facts.senders_max))
                .why("each reader of the log takes one")
                .next("raise max_wal_senders and restart the server"),
        );
    }
    if facts.tables.is_empty() {
        findings.push(
            critical("no table matches".into())
                .why("none of the patterns under source.postgres.tables names a table that the user can see")
                .next("correct source.postgres.tables; `tidewire init` lists what there is"),
        );
    }
}

/// What a slot's state means, for `check` and at run time.
pub(super) fn slot_state(slot: &SlotFacts, findings: &mut Vec<Finding>) {
    let subject = format!("slot {}", slot.name);
    match slot.wal_status.as_str() {
        "lost" => findings.push(
            Finding::new(Severity::Critical, subject.clone(), "its log is gone")
                .why("the server removed log that was still needed, since max_slot_wal_keep_size was exceeded")
                .next("nothing: a new slot is made and every table is compared and mended; raise max_slot_wal_keep_size"),
        ),
        "unreserved" => findings.push(
            Finding::new(Severity::Critical, subject.clone(), "its log may be removed at the next checkpoint")
                .why(format!("it holds back {}, more than max_slot_wal_keep_size", bytes_text(slot.retained_bytes)))
                .next("raise max_slot_wal_keep_size now: ALTER SYSTEM SET max_slot_wal_keep_size = '…'; SELECT pg_reload_conf();"),
        ),
        _ => {}
    }
    if slot.active {
        findings.push(
            Finding::new(Severity::Note, subject, "it is in use")
                .why("a slot has one reader at a time: this may be Tidewire itself, running")
                .next("if it is another process: SELECT pid, application_name, client_addr FROM pg_stat_replication;"),
        );
    }
}

fn table_state(table: &TableFacts, user: &str, findings: &mut Vec<Finding>) {
    let name = sql_name(&table.table);
    let mut find = |severity, what: &str, why: &str, next: String| {
        findings.push(Finding::new(severity, format!("table {}", table.table), what).why(why).next(next));
    };
    if !table.may_select {
        let why = "the first copy, repairs and comparisons read the table itself";
        find(Severity::Critical, "the user may not read it", why, {
            let schema = sql_part(&table.table.schema);
            format!("GRANT USAGE ON SCHEMA {schema} TO {user}; GRANT SELECT ON {name} TO {user};")
        });
    }
    if !table.may_publish {
        let why = "only its owner may put it into a publication";
        find(Severity::Critical, "the user may not publish it", why, {
            format!("GRANT the owner's role TO {user}; or make the publication as the owner and name it in source.postgres.publication")
        });
    }
    if table.unlogged {
        let why = "an unlogged table leaves nothing in the log, so its changes can't be followed";
        find(Severity::Critical, "it is unlogged", why, format!("ALTER TABLE {name} SET LOGGED;"));
    }
    match (table.identity, &table.key) {
        (Identity::Nothing, _) => {
            let why = "with REPLICA IDENTITY NOTHING the server refuses every UPDATE and DELETE once it is published";
            find(
                Severity::Critical,
                "updates and deletes will fail",
                why,
                format!("ALTER TABLE {name} REPLICA IDENTITY DEFAULT;"),
            );
        }
        (Identity::Default | Identity::Index, Key::Position) => {
            let why = "it has no primary key, and without one the server refuses every UPDATE and DELETE once it is published";
            let next = format!("ALTER TABLE {name} ADD PRIMARY KEY (…); or ALTER TABLE {name} REPLICA IDENTITY FULL;");
            find(Severity::Warning, "updates and deletes will fail", why, next);
        }
        (Identity::Full, Key::Position) => {
            let why = "without a key rows are only added to the copy; updates and deletes are not applied";
            find(Severity::Warning, "its copy is append-only", why, format!("ALTER TABLE {name} ADD PRIMARY KEY (…);"));
        }
        _ => {}
    }
    if table.deferrable_key && table.identity != Identity::Full {
        let why = "one UPDATE may shift keys under a deferrable key; only old rows in the log tell which row is meant";
        find(Severity::Critical, "its key is deferrable", why, format!("ALTER TABLE {name} REPLICA IDENTITY FULL;"));
    }
    if !table.generated_columns.is_empty() {
        let what = format!("generated columns are left out: {}", table.generated_columns.join(", "));
        find(Severity::Note, &what, "the log does not carry them", String::new());
    }
}

fn unmatched(pattern: &str, tables: &[TableFacts]) -> Finding {
    let names = tables.iter().map(|t| t.table.to_string());
    let nearest = names.map(|n| (distance(pattern, &n), n)).min();
    let next = match nearest {
        Some((distance, name)) if distance <= 3 => format!("did you mean {name}? Correct source.postgres.tables"),
        _ => "correct source.postgres.tables; `tidewire init` lists what there is".to_string(),
    };
    Finding::new(Severity::Warning, "source", format!("the pattern {pattern} matches no table"))
        .why("no table that the user can see has such a name")
        .next(next)
}

/// Letters to insert, remove or exchange to make one text of the other.
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let exchange = diagonal + usize::from(x != *y);
            diagonal = row[j + 1];
            row[j + 1] = exchange.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// The name as SQL takes it, quoted where it must be.
fn sql_name(table: &TableName) -> String {
    format!("{}.{}", sql_part(&table.schema), sql_part(&table.name))
}

/// One name, quoted where SQL needs it.
fn sql_part(name: &str) -> String {
    let is_plain = name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_' || b.is_ascii_digit())
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.is_empty();
    match is_plain {
        true => name.to_string(),
        false => format!("\"{}\"", name.replace('"', "\"\"")),
    }
}
