//! `tidewire snapshot`: reads a table, or some of its rows, again while the pipeline runs.

use crate::args::Snapshot;
use crate::catalog;
use crate::config::Config;
use crate::exit::Answer;
use crate::serve;
use std::time::{Duration, Instant};
use tidewire_change::{Error, Result};
use tidewire_connector::{Placed, Selection, What};
use tidewire_pipeline::reconcile::Live;

pub async fn run(config: &Config, args: &Snapshot) -> Result<Answer> {
    let client = serve::find(config)?.ok_or_else(|| {
        let word = if config.sinks.is_empty() { "capture" } else { "run" };
        Error::unavailable("the pipeline is not running").hint(format!("tidewire {word} {}", args.config.display()))
    })?;
    let table = catalog::table(config, &args.table).await?.table.clone();
    let name = table.to_string();
    let what = args.condition.clone().map(What::Where).unwrap_or(What::Table);
    // Ahead: rows of a copy that was damaged by hand have the newest positions already.
    client.read(Selection { table, what, placed: Placed::Ahead }).await?;
    let began = Instant::now();
    while client.pending_reads().await? > 0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let seconds = began.elapsed().as_secs_f64();
    let status = client.status().await?;
    if let Some(why) = status.tables.iter().find(|t| t.table == name).and_then(|t| t.parked.as_ref()) {
        return Err(Error::invalid(format!("{name} could not be read: {why}"))
            .hint("the table is parked until that is mended; tidewire status tells more"));
    }
    match args.json {
        true => println!("{}", serde_json::json!({"table": args.table, "seconds": seconds})),
        false => println!("{} was read again and is on its way, {seconds:.1} s", args.table),
    }
    Ok(Answer::Yes)
}
