//! `tidewire cut`: which versions of the lake's tables belong together, and how to read them.

use crate::args;
use crate::catalog::{self, At, CutTable};
use crate::commands::table::lake_sink;
use crate::config::Config;
use crate::exit::Answer;
use tidewire_change::{text, Error, Result, TableName};

pub async fn run(config: &Config, args: &args::Cut) -> Result<Answer> {
    let sink = lake_sink(config, args.sink.as_deref())?;
    let (at, lake) = (at(&args.at)?, catalog::lake(config, sink)?);
    let Some(cut) = lake.cut(at).await? else {
        if at == At::Latest {
            return Err(Error::invalid("the lake has no cuts")
                .hint("the process that writes all of its tables notes them, at its first commit; of a lake that several processes share (bus.kafka.group) there are none"));
        }
        return Err(Error::invalid(format!("no cut is known at {}", args.at))
            .hint("cuts reach back as far as old files are kept (an hour); `--at latest` has the newest"));
    };
    if args.json {
        println!("{}", serde_json::json!(cut));
        return Ok(Answer::Yes);
    }
    let mut through = String::new();
    text::timestamptz_text(cut.boundary.complete_through, &mut through);
    println!("-- all tables as of {} (everything committed until {through})", cut.boundary.position);
    println!("\n-- DuckDB");
    cut.tables.iter().for_each(|table| println!("{}", duckdb(table)));
    println!("\n-- Spark");
    cut.tables.iter().for_each(|table| println!("{}", spark(table)));
    Ok(Answer::Yes)
}

fn duckdb(table: &CutTable) -> String {
    let (name, folder) = (quoted(&table.table, '"'), table.folder.replace('\'', "''"));
    format!(
        "CREATE VIEW {name} AS SELECT * FROM delta_scan('{folder}', version => {}) WHERE NOT _deleted;",
        table.version
    )
}

fn spark(table: &CutTable) -> String {
    let (name, folder) = (quoted(&table.table, '`'), hadoop(&table.folder).replace('`', "``"));
    format!(
        "CREATE TEMPORARY VIEW {name} AS SELECT * FROM delta.`{folder}` VERSION AS OF {} WHERE NOT _deleted;",
        table.version
    )
}

/// Spark has S3 under a name of its own.
fn hadoop(place: &str) -> String {
    place.strip_prefix("s3://").map_or_else(|| place.to_string(), |rest| format!("s3a://{rest}"))
}

/// One name, since a temporary view has no schema.
fn quoted(table: &TableName, quote: char) -> String {
    let twice = format!("{quote}{quote}");
    format!("{quote}{}{quote}", format!("{}_{}", table.schema, table.name).replace(quote, &twice))
}

fn at(words: &str) -> Result<At> {
    let wrong = || {
        Error::invalid(format!("`{words}` is no place of a cut"))
            .hint("say latest, a commit position such as 0/16B3748, or a time such as 2026-01-31T12:00:00Z")
    };
    if words == "latest" {
        return Ok(At::Latest);
    }
    if let Some((high, low)) = words.split_once('/') {
        let part = |digits: &str| u32::from_str_radix(digits, 16).map_err(|_| wrong());
        return Ok(At::Commit(u64::from(part(high)?) << 32 | u64::from(part(low)?)));
    }
    crate::commands::topic::time(words).map(At::Time).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_latest_a_position_or_a_time() {
        assert_eq!(at("latest").unwrap(), At::Latest);
        assert_eq!(at("1/16B3748").unwrap(), At::Commit(0x1_016B_3748));
        assert_eq!(at("1970-01-01T00:00:01Z").unwrap(), At::Time(1_000_000));
        assert!(at("yesterday").is_err() && at("x/1").is_err());
    }

    #[test]
    fn names_and_folders_are_quoted() {
        let table = TableName::new("my", "a\"b`c");
        let table = CutTable { table, folder: "/l/it's".into(), version: 7 };
        assert_eq!(
            duckdb(&table),
            "CREATE VIEW \"my_a\"\"b`c\" AS SELECT * FROM delta_scan('/l/it''s', version => 7) WHERE NOT _deleted;"
        );
        assert!(spark(&table)
            .starts_with("CREATE TEMPORARY VIEW `my_a\"b``c` AS SELECT * FROM delta.`/l/it's` VERSION AS OF 7"));
    }
}
