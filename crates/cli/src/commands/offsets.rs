//! `tidewire offsets import|export`: a running Debezium connector is taken over, and handed back.

use crate::args::{OffsetsExport, OffsetsImport};
use crate::catalog;
use crate::config::Config;
use crate::exit::Answer;
use crate::local;
use crate::offsets::{self, Form, Offset};
use crate::serve;
use crate::terminal::tell;
use tidewire_change::{Error, Result};

pub async fn import(config: &Config, args: &OffsetsImport) -> Result<Answer> {
    config.postgres()?;
    serve::are_free(config, &config.sinks)?;
    let offset = offsets::choose(offsets::read(&local::bytes_or_input(&args.from)?)?, args.server.as_deref())?;
    let told = offset.lsn()?;
    let begins = catalog::take_over(config, told, args.from_slot).await?;
    if args.json {
        println!("{}", serde_json::json!({"server": offset.server, "told": told, "begins": begins}));
        return Ok(Answer::Yes);
    }
    println!("{} has told everything below {}; the pipeline goes on from {}", offset.server, lsn(told), lsn(begins));
    tell("next:  tidewire run; the connector must stay stopped");
    Ok(Answer::Yes)
}

pub async fn export(config: &Config, args: &OffsetsExport) -> Result<Answer> {
    config.postgres()?;
    if let Some(path) = args.to.as_ref().filter(|path| path.exists() && !args.force) {
        return Err(Error::invalid(format!("{} is there already", path.display()))
            .hint("--to FILE writes elsewhere, --force writes over it"));
    }
    serve::are_free(config, &config.sinks)?;
    let (told, at) = catalog::told(config).await?;
    let form = if args.form == "engine" { Form::Engine } else { Form::Connect };
    let bytes = offsets::write(&Offset::at(args.connector.clone(), &args.server, told, at), form);
    match &args.to {
        Some(path) => {
            std::fs::write(path, bytes).map_err(|e| Error::io(e, path.display()))?;
            println!("everything that committed below {} was told; wrote {}", lsn(told), path.display());
        }
        None if form == Form::Engine => {
            return Err(Error::invalid("the engine's file isn't text").hint("name it by --to"));
        }
        None => print!("{}", String::from_utf8_lossy(&bytes)),
    }
    Ok(Answer::Yes)
}

fn lsn(lsn: u64) -> String {
    format!("{:X}/{:X}", lsn >> 32, lsn as u32)
}
