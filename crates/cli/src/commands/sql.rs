//! `tidewire sql`: what the PostgreSQL sink runs for a table.

use crate::args::Sql;
use crate::catalog;
use crate::config::{Config, SinkKind};
use crate::exit::Answer;
use tidewire_change::{Error, Result};

pub async fn run(config: &Config, args: &Sql) -> Result<Answer> {
    let mut sinks = config.sinks.iter().filter(|sink| matches!(sink.kind, SinkKind::Postgres { .. }));
    let sink = match &args.sink {
        Some(name) => sinks.find(|sink| sink.name == *name),
        None => sinks.next(),
    };
    let Some(sink) = sink else {
        let message = match &args.sink {
            Some(name) => format!("there is no PostgreSQL sink `{name}`"),
            None => "the configuration has no PostgreSQL sink".to_string(),
        };
        return Err(Error::invalid(message).hint("Delta tables are written without SQL"));
    };
    let schema = catalog::table(config, &args.table).await?;
    println!("{}", catalog::sql(&schema, sink)?);
    Ok(Answer::Yes)
}
