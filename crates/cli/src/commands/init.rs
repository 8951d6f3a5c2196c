//! `tidewire init`: looks at a database and writes a commented pipeline.yaml.

use crate::args::Init;
use crate::catalog;
use crate::exit::Answer;
use crate::terminal::{bytes, thousands};
use std::fmt::Write;
use tidewire_change::{Error, Identity, Key, Result, TableName};
use tidewire_connector::{ServerFacts, TableFacts};

pub async fn init(args: &Init) -> Result<Answer> {
    let is_terminal = args.output.as_os_str() == "-";
    if !is_terminal && !args.force && args.output.exists() {
        return Err(Error::invalid(format!("{} is there already", args.output.display()))
            .hint("--output FILE writes elsewhere, --force writes over it"));
    }
    let facts = catalog::look_at(&args.url).await?;
    let text = page(&facts);
    if is_terminal {
        print!("{text}");
        return Ok(Answer::Yes);
    }
    std::fs::write(&args.output, text).map_err(|e| Error::io(e, args.output.display()))?;
    println!("wrote {}, {} tables", args.output.display(), facts.tables.len());
    println!("next:  export DATABASE_URL='…'  and  tidewire check {}", args.output.display());
    Ok(Answer::Yes)
}

/// The file's text. The address isn't in it: it holds a password.
fn page(facts: &ServerFacts) -> String {
    let mut page = String::from(HEAD);
    let _ = writeln!(page, "# The server: PostgreSQL {}, wal_level={}.", version(facts.version), facts.wal_level);
    page.push_str("source:\n  postgres:\n    url: \"${DATABASE_URL}\"\n    tables:\n");
    let wide = facts.tables.iter().map(|t| pattern(&t.table).len()).max().unwrap_or(0);
    for table in &facts.tables {
        let (entry, note) = (pattern(&table.table), note(table));
        let sign = if table.unlogged { "# - " } else { "- " };
        let _ = writeln!(page, "      {sign}{entry:<wide$}  # {note}");
    }
    if facts.tables.iter().all(|table| table.unlogged) {
        page.push_str("      - \"*.*\"  # no table yet\n");
    }
    page.push_str(TAIL);
    page
}

const HEAD: &str = "\
# Written by `tidewire init`. Every key: docs/configuration.md. Then: tidewire check, tidewire run.

";

const TAIL: &str = "    # slot: tidewire_main          # made when it is missing
    # publication: mine            # one of your own; without it one is made and kept in step with `tables`
    # readers: 2                   # connections that read tables for snapshots
    # heartbeat: 10s

# Where the copies go: any number, each under a name of your own.
sinks:
  lake:
    delta: { path: ./lake }        # Delta tables at ./lake/SCHEMA/TABLE
  # replica:
  #   postgres: { url: \"${REPLICA_URL}\", schema: replica }

data_dir: ./tidewire-data          # the journal
# memory: 128MB                    # bound of what is on its way
# commit_interval: 500ms           # how long changes wait for a commit
http: 127.0.0.1:7878               # status, metrics, health
";

/// As it stands in `tables`: quoted for the pattern where the name needs it, then for YAML.
fn pattern(table: &TableName) -> String {
    let part = |name: &str| match name.contains(['.', '*', '"']) {
        true => format!("\"{}\"", name.replace('"', "\"\"")),
        false => name.to_string(),
    };
    let text = format!("{}.{}", part(&table.schema), part(&table.name));
    let is_plain = text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.');
    match is_plain && text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
        true => text,
        // `${` would be looked up.
        false => format!("'{}'", text.replace('\'', "''").replace("${", "$${")),
    }
}

fn note(table: &TableFacts) -> String {
    let size = match (table.rows_estimated, table.bytes) {
        (0, 0) => "empty or never analyzed".to_string(),
        (rows, size) => format!("about {} rows, {}", thousands(rows), bytes(size)),
    };
    let mut notes = vec![size];
    match (&table.key, table.identity) {
        (_, _) if table.unlogged => notes.push("unlogged: its changes are in no log".into()),
        (Key::Columns(_), Identity::Nothing) => {
            notes.push("REPLICA IDENTITY NOTHING: UPDATE and DELETE will fail".into())
        }
        (Key::Columns(_), _) => {}
        (Key::WholeRow, _) => notes.push("no primary key, full identity: rows are matched whole".into()),
        (Key::Position, _) => notes.push("no primary key: append-only, UPDATE and DELETE will fail".into()),
    }
    if !table.may_select {
        notes.push("this role may not read it".into());
    }
    if !table.generated_columns.is_empty() {
        notes.push(format!("generated columns are left out: {}", table.generated_columns.join(", ")));
    }
    notes.join("; ").replace(['\n', '\r'], " ")
}

fn version(number: u32) -> String {
    format!("{}.{}", number / 10_000, number % 10_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(schema: &str, name: &str) -> TableFacts {
        TableFacts {
            table: TableName::new(schema, name),
            key: Key::Columns(vec![0]),
            identity: Identity::Default,
            rows_estimated: 1200,
            bytes: 5_000_000,
            may_select: true,
            published: false,
            may_publish: true,
            unlogged: false,
            deferrable_key: false,
            generated_columns: Vec::new(),
        }
    }

    #[test]
    fn the_file_names_every_table_in_a_form_that_reads_back() {
        let tables = vec![table("shop", "orders"), table("a.b", "it's \"*\" ${x}"), table("1st", "naïve table")];
        let facts = ServerFacts { version: 150_018, wal_level: "logical".into(), tables, ..ServerFacts::default() };
        let text = page(&facts);
        assert!(text.contains("- shop.orders "), "{text}");
        assert!(text.contains("'\"a.b\".\"it''s \"\"*\"\" $${x}\"'"), "{text}");
        assert!(text.contains("'1st.naïve table'"), "{text}");
        assert!(text.contains("PostgreSQL 15.18"), "{text}");
        assert!(text.contains("\n    # slot: "), "uncommented, the key stands under `postgres`: {text}");
    }

    #[test]
    fn what_will_go_wrong_with_a_table_is_said_beside_it() {
        let mut facts = table("s", "t");
        facts.key = Key::Position;
        facts.may_select = false;
        assert_eq!(
            note(&facts),
            "about 1,200 rows, 5.0 MB; no primary key: append-only, UPDATE and DELETE will fail; this role may not read it"
        );
        (facts.rows_estimated, facts.bytes) = (0, 0);
        assert!(note(&facts).starts_with("empty or never analyzed; "), "no statistics aren't 0 rows");
        facts.unlogged = true;
        assert!(note(&facts).contains("in no log"));
    }
}
