//! `tidewire table describe|maintain|vacuum`: a lake table, and its upkeep by hand.

use crate::args::LakeTable;
use crate::catalog::{self, Description};
use crate::config::{Config, SinkConfig, SinkKind};
use crate::exit::Answer;
use crate::serve;
use crate::terminal::{bytes, thousands, Grid};
use tidewire_change::{Error, Result, TableName};

pub async fn describe(config: &Config, args: &LakeTable) -> Result<Answer> {
    let (sink, table) = choose(config, args).await?;
    let found = catalog::lake(config, sink)?.describe(&table).await?;
    match args.json {
        true => println!("{}", serde_json::json!(found)),
        false => print(&found),
    }
    Ok(Answer::Yes)
}

pub async fn maintain(config: &Config, args: &LakeTable) -> Result<Answer> {
    nobody_writes(config)?;
    let (sink, table) = choose(config, args).await?;
    let done = catalog::lake(config, sink)?.maintain(&table).await?;
    if args.json {
        println!("{}", serde_json::json!(done));
        return Ok(Answer::Yes);
    }
    println!("{} merges: {} files became {}", done.merges, thousands(done.files_before), thousands(done.files_after));
    println!("removed: {} files, {}", thousands(done.removed_files), bytes(done.removed_bytes));
    Ok(Answer::Yes)
}

pub async fn vacuum(config: &Config, args: &LakeTable) -> Result<Answer> {
    nobody_writes(config)?;
    let (sink, table) = choose(config, args).await?;
    let gone = catalog::lake(config, sink)?.vacuum(&table).await?;
    match args.json {
        true => println!("{}", serde_json::json!({"removed_files": gone.files, "removed_bytes": gone.bytes})),
        false => println!("removed: {} files, {}", thousands(gone.files), bytes(gone.bytes)),
    }
    Ok(Answer::Yes)
}

/// Two that write one table stop each other, and files of a transaction that is hours long look as if nobody needed them. A
/// pipeline that runs does all this by itself.
fn nobody_writes(config: &Config) -> Result<()> {
    match serve::find(config)? {
        Some(_) => Err(Error::invalid("the pipeline runs, and keeps its tables small and clean by itself")
            .hint("nothing to do; to have all of it done at once, stop `tidewire run` first")),
        None => Ok(()),
    }
}

async fn choose<'a>(config: &'a Config, args: &LakeTable) -> Result<(&'a SinkConfig, TableName)> {
    let sink = lake_sink(config, args.sink.as_deref())?;
    let schemas = catalog::inspect_sink(config, sink)?.schemas().await?;
    Ok((sink, catalog::choose_table(&schemas, &args.table)?.table.clone()))
}

/// The Delta sink that is named, or the only one.
pub fn lake_sink<'a>(config: &'a Config, name: Option<&str>) -> Result<&'a SinkConfig> {
    let lakes: Vec<&SinkConfig> = config.sinks.iter().filter(|s| matches!(s.kind, SinkKind::Delta { .. })).collect();
    let names = || lakes.iter().map(|sink| sink.name.as_str()).collect::<Vec<_>>().join(", ");
    match (name, &lakes[..]) {
        (_, []) => Err(Error::invalid("the configuration has no Delta sink")),
        (Some(name), _) => lakes.iter().find(|sink| sink.name == name).copied().ok_or_else(|| {
            Error::invalid(format!("there is no Delta sink `{name}`")).hint(format!("the Delta sinks are: {}", names()))
        }),
        (None, [only]) => Ok(only),
        (None, _) => Err(Error::invalid("there are several Delta sinks").hint(format!("say --sink: {}", names()))),
    }
}

fn print(found: &Description) {
    let mut grid = Grid::new(&["", "number", "size"]);
    let mut row = |name: &str, number: u64, size: String| grid.row([name.into(), thousands(number), size]);
    row("rows, deleted ones too", found.rows, String::new());
    row("rows struck by vectors", found.struck_rows, String::new());
    row("data files", found.files, bytes(found.bytes));
    row("of them with vectors", found.files_with_vectors, String::new());
    row("files of older versions", found.unused_files, bytes(found.unused_bytes));
    row("log files", found.log_files, bytes(found.log_bytes));
    row("index", 1, bytes(found.index_bytes));
    if let Some(next) = &found.next {
        row("rows that are read anew so far", next.rows, String::new());
        row("their data files", next.files, bytes(next.bytes));
    }
    println!("{}", found.folder);
    let checkpoint = found.checkpoint.map_or("none".to_string(), |version| version.to_string());
    println!("version {}, newest checkpoint {checkpoint}, needs {}", found.version, found.reader_features.join(", "));
    println!("holds everything up to {}\n", found.boundary.position);
    if found.next.is_some() {
        println!("All its rows are read anew; readers see those of before until all are there.\n");
    }
    grid.print();
}
