//! The SQL of a replica table, written so that a person can read it. Pure.
//!
//! A batch is copied into a temporary staging table and applied by one statement. We use INSERT … ON CONFLICT and not
//! MERGE: it exists in every version, the guard stands in the place where the row is locked, and it needs no join (which
//! the planner might answer with a scan of the whole table). Only a batch with rows that lack columns is joined with the
//! table: `excluded` has no place for the marks that say which columns those are.

use super::names::{COPY, DELETED, LSN, OP, ROW, SEQ, TS, TURN, UNCHANGED};
use super::shape::{Shape, TargetColumn};
use tidewire_change::{Key, Result, Schema};
use tidewire_pgwire::quote_ident;

/// The columns that go with every row, in the order in which they stand behind the source's.
pub(super) const POSITION_COLUMNS: [&str; 5] = [LSN, SEQ, OP, TS, DELETED];

/// Everything that Tidewire runs for one table, for people: its DDL, the view, and the statements of a batch.
pub fn table_sql(schema: &Schema, target_schema: Option<&str>) -> Result<String> {
    let shape = Shape::of(schema, target_schema)?;
    let names: Vec<String> = shape.columns.iter().map(|c| quote_ident(&c.name)).collect();
    let upsert = Upsert::new(&shape, names, "pg_temp.stage".into());
    let mut text = String::from("-- The table. A type that this database doesn't know becomes text.\n");
    text += &format!("{};\n\n-- What readers look at: live rows.\n", create_table(&shape));
    text += &format!("{};\n\n-- A batch is copied into a staging table …\n", create_view(&shape, false));
    text += &format!("{};\n{};\n\n", upsert.create_stage(), upsert.copy_stage());
    text += "-- … and applied by one statement. Rows that are not newer than what is there change nothing.\n";
    text += &format!("{};\n", upsert.apply_whole());
    if matches!(shape.key, Key::Columns(_)) {
        text +=
            "\n-- When rows lack columns (the log doesn't carry unchanged large values; a delete has its key alone):\n";
        text += &format!("{};\n", upsert.apply_partial(1));
    }
    Ok(text)
}

/// DDL of the table: the source's columns, all of them nullable but the key, then where each row comes from.
pub(super) fn create_table(shape: &Shape) -> String {
    format!("CREATE TABLE {} (\n{}\n)", shape.target(), column_list(shape, true))
}

/// The same columns as a temporary table, to compare a table with.
pub(super) fn create_wanted(shape: &Shape, name: &str) -> String {
    format!("CREATE TEMP TABLE {name} (\n{}\n)", column_list(shape, false))
}

fn column_list(shape: &Shape, with_key: bool) -> String {
    let mut lines = Vec::with_capacity(shape.columns.len() + 8);
    for (index, column) in shape.columns.iter().enumerate() {
        let not_null = if shape.is_key(index) { " NOT NULL" } else { "" };
        lines.push(format!("    {} {}{not_null}", quote_ident(&column.name), column.ty));
    }
    for (name, ty) in own_columns(&shape.key) {
        lines.push(format!("    {} {ty}", quote_ident(name)));
    }
    if with_key {
        lines.push(format!("    PRIMARY KEY ({})", shape.quoted_key().join(", ")));
    }
    lines.join(",\n")
}

/// Names and types of the columns that are ours.
pub(super) fn own_columns(key: &Key) -> Vec<(&'static str, &'static str)> {
    let mut columns = vec![
        (LSN, "bigint NOT NULL"),
        (SEQ, "bigint NOT NULL"),
        (OP, "text NOT NULL"),
        (TS, "timestamp with time zone NOT NULL"),
        (DELETED, "boolean NOT NULL"),
    ];
    if *key == Key::WholeRow {
        columns.push((ROW, "uuid NOT NULL"));
        columns.push((COPY, "integer NOT NULL"));
    }
    columns
}

/// `replace`: keep the view that is there, as PostgreSQL can when columns were only added at the end.
pub(super) fn create_view(shape: &Shape, replace: bool) -> String {
    let name = |c: &TargetColumn| match c.name == c.source {
        true => quote_ident(&c.name),
        false => format!("{} AS {}", quote_ident(&c.name), quote_ident(&c.source)),
    };
    let names: Vec<String> = shape.columns.iter().map(name).collect();
    let replace = if replace { "OR REPLACE " } else { "" };
    format!(
        "CREATE {replace}VIEW {} AS\nSELECT {}\n  FROM {}\n WHERE NOT {}",
        shape.current_view(),
        names.join(", "),
        shape.target(),
        quote_ident(DELETED),
    )
}

/// The statements of a batch. `columns` are the source columns that the batch writes, quoted.
#[derive(Clone, Debug)]
pub(super) struct Upsert {
    pub target: String,
    pub stage: String,
    pub key: Vec<String>,
    /// Per key column the operator that tells equal keys: `=`, or with its schema for a type of an extension.
    pub equals: Vec<String>,
    /// Source columns first, then ours.
    pub columns: Vec<String>,
    appends: bool,
}

impl Upsert {
    pub fn new(shape: &Shape, source_columns: Vec<String>, stage: String) -> Upsert {
        let mut columns = source_columns;
        columns.extend(POSITION_COLUMNS.map(quote_ident));
        if shape.key == Key::WholeRow {
            columns.extend([ROW, COPY].map(quote_ident));
        }
        let appends = shape.key == Key::Position;
        let key = shape.quoted_key();
        let equals = vec!["=".to_owned(); key.len()];
        Upsert { target: shape.target(), stage, key, equals, columns, appends }
    }

    /// Types come from the target itself, so what fits here fits there.
    pub fn create_stage(&self) -> String {
        format!(
            "CREATE TEMP TABLE {} ON COMMIT DELETE ROWS AS\nSELECT {},\n       NULL::bit varying AS {}\n  FROM {}\n  WITH NO DATA",
            self.stage,
            self.columns.join(", "),
            quote_ident(UNCHANGED),
            self.target
        )
    }

    pub fn copy_stage(&self) -> String {
        format!("COPY {} ({}, {}) FROM STDIN", self.stage, self.columns.join(", "), quote_ident(UNCHANGED))
    }

    /// Applies staged rows none of which lacks a column. Of several with one key (equal, but written differently) the
    /// latest wins.
    pub fn apply_whole(&self) -> String {
        let columns = self.columns.join(", ");
        let key = self.key.join(", ");
        if self.appends {
            let (target, stage) = (&self.target, &self.stage);
            return format!(
                "INSERT INTO {target} AS kept\n       ({columns})\nSELECT {columns}\n  FROM {stage}\n    ON CONFLICT ({key}) DO NOTHING"
            );
        }
        format!(
            "INSERT INTO {} AS kept\n       ({columns})\nSELECT DISTINCT ON ({key})\n       {columns}\n  FROM {}\n ORDER BY {key}, {} DESC, {} DESC\n{}",
            self.target,
            self.stage,
            quote_ident(LSN),
            quote_ident(SEQ),
            self.on_conflict()
        )
    }

    /// Applies staged rows that may lack columns: those come from the row that is there, by the rule of `flow::applied`: an
    /// update takes them from a live row, a delete keeps what the row last was, a new row takes nothing. `turn`: of several staged rows with one key, the how-manieth.
    pub fn apply_partial(&self, turn: u64) -> String {
        let source_columns = self.columns.len() - POSITION_COLUMNS.len();
        let value = |(index, column): (usize, &String)| {
            if index >= source_columns || self.key.contains(column) {
                return format!("new.{column}");
            }
            let bit = format!("get_bit(new.{}, {index})", quote_ident(UNCHANGED));
            format!("CASE WHEN {bit} = 1 THEN old.{column} ELSE new.{column} END")
        };
        let values: Vec<String> = self.columns.iter().enumerate().map(value).collect();
        let (unchanged, deleted, op) = (quote_ident(UNCHANGED), quote_ident(DELETED), quote_ident(OP));
        format!(
            "INSERT INTO {} AS kept\n       ({})\nSELECT {}\n  FROM {}\n WHERE new.{TURN} = {turn}\n   AND (new.{unchanged} IS NULL OR new.{deleted} OR new.{op} = 'u' AND NOT old.{deleted})\n   AND {}\n{}",
            self.target,
            self.columns.join(", "),
            values.join(",\n       "),
            self.staged_beside_kept(),
            self.is_newer(),
            self.on_conflict()
        )
    }

    /// How many staged rows lack columns and have no live row to take them from.
    pub fn count_incomplete(&self, turn: u64) -> String {
        let (unchanged, deleted, op) = (quote_ident(UNCHANGED), quote_ident(DELETED), quote_ident(OP));
        format!(
            "SELECT count(*)\n  FROM {}\n WHERE new.{TURN} = {turn}\n   AND new.{unchanged} IS NOT NULL AND NOT new.{deleted}\n   AND (new.{op} <> 'u' OR old.{deleted} IS NOT FALSE)\n   AND {}",
            self.staged_beside_kept(),
            self.is_newer()
        )
    }

    /// The largest number of staged rows that have one key.
    pub fn count_turns(&self) -> String {
        let key = self.key.join(", ");
        format!("SELECT max(n)\n  FROM (SELECT count(*) AS n FROM {} GROUP BY {key}) AS keys", self.stage)
    }

    fn staged_beside_kept(&self) -> String {
        let key = self.key.join(", ");
        let pairs = self.key.iter().zip(&self.equals);
        let matches: Vec<String> = pairs.map(|(k, equals)| format!("old.{k} {equals} new.{k}")).collect();
        format!(
            "(SELECT *, row_number() OVER (PARTITION BY {key} ORDER BY {}, {}) AS {TURN}\n          FROM {}) AS new\n  LEFT JOIN {} AS old ON {}",
            quote_ident(LSN),
            quote_ident(SEQ),
            self.stage,
            self.target,
            matches.join(" AND ")
        )
    }

    fn is_newer(&self) -> String {
        let (lsn, seq) = (quote_ident(LSN), quote_ident(SEQ));
        format!("(old.{lsn} IS NULL OR (new.{lsn}, new.{seq}) > (old.{lsn}, old.{seq}))")
    }

    fn on_conflict(&self) -> String {
        let (lsn, seq) = (quote_ident(LSN), quote_ident(SEQ));
        let sets: Vec<String> = self.columns.iter().map(|c| format!("{c} = excluded.{c}")).collect();
        format!(
            "    ON CONFLICT ({}) DO UPDATE\n   SET {}\n WHERE (excluded.{lsn}, excluded.{seq}) > (kept.{lsn}, kept.{seq})",
            self.key.join(", "),
            sets.join(",\n       ")
        )
    }
}
