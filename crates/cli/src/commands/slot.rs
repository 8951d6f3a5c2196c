//! `tidewire slot list|drop`.

use crate::args::{Plain, SlotDrop};
use crate::catalog;
use crate::config::Config;
use crate::exit::Answer;
use crate::terminal::{bytes, Grid};
use tidewire_change::{Error, Result};

pub async fn list(config: &Config, args: &Plain) -> Result<Answer> {
    let slots = catalog::slots(config).await?;
    if args.json {
        let slots = slots.iter().map(|s| {
            serde_json::json!({"name": s.facts.name, "own": s.is_own, "active": s.facts.active, "database": s.database,
                "wal_status": s.facts.wal_status, "safe_wal_bytes": s.facts.safe_wal_bytes,
                "retained_bytes": s.facts.retained_bytes})
        });
        println!("{}", serde_json::json!({"slots": slots.collect::<Vec<_>>()}));
        return Ok(Answer::Yes);
    }
    let mut grid = Grid::new(&["slot", "", "database", "state", "log", "holds back", "may grow by"]);
    for slot in &slots {
        grid.row([
            slot.facts.name.clone(),
            if slot.is_own { "this pipeline".into() } else { String::new() },
            slot.database.clone(),
            if slot.facts.active { "active".into() } else { "idle".into() },
            slot.facts.wal_status.clone(),
            bytes(slot.facts.retained_bytes),
            slot.facts.safe_wal_bytes.map(|b| bytes(b.max(0) as u64)).unwrap_or("no limit".into()),
        ]);
    }
    grid.print();
    Ok(Answer::Yes)
}

pub async fn drop_slot(config: &Config, args: &SlotDrop) -> Result<Answer> {
    if !args.yes {
        return Err(Error::invalid("dropping the slot loses the place in the source's log")
            .hint("say --yes if the pipeline is to be given up, or is to find its differences by reconcile"));
    }
    let slots = catalog::slots(config).await?;
    if let Some(own) = slots.iter().find(|slot| slot.is_own && slot.facts.active) {
        return Err(Error::invalid(format!("the slot {} is active: something reads it", own.facts.name))
            .hint("stop `tidewire run` first"));
    }
    match &catalog::give_up_source(config).await?[..] {
        [] => println!("there is no such slot, and no publication of ours"),
        dropped => println!("dropped {}", dropped.join(" and ")),
    }
    Ok(Answer::Yes)
}
