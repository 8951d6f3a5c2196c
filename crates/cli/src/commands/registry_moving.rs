//! `tidewire registry export` and `import`: all that a registry holds, as lines of JSON.

use super::registry::{client, Place};
use crate::args::{RegistryExport, RegistryImport};
use crate::catalog::RegistryTopic;
use crate::exit::Answer;
use crate::{local, terminal};
use serde_json::{json, Value};
use std::collections::HashSet;
use tidewire_change::{Error, Result};
use tidewire_registry::state::{read_line, write_line, Event};
use tidewire_registry::{Level, Profile};
use tidewire_server::registry::{Client, Keeper};
use tokio::runtime::Handle;

pub async fn export(args: &RegistryExport) -> Result<Answer> {
    let lines = match &args.url {
        Some(url) => exported(&client(url, &args.login)?).await?,
        None if args.login.ca.is_some() || args.login.user.is_some() => {
            return Err(Error::invalid("--ca and --user are for a registry that runs").hint("say which with --url"));
        }
        None if args.kafka.kafka.is_some() => {
            let brokers = args.kafka.kafka.as_deref().unwrap_or_default();
            let read = || RegistryTopic::read(&args.kafka, brokers, Handle::current());
            lines(&tokio::task::block_in_place(read)?)
        }
        None => {
            if !args.data_dir.join("schemas.log").exists() {
                let folder = args.data_dir.display();
                return Err(Error::invalid(format!("there is no registry in {folder}"))
                    .hint("say where it is with --data-dir or --url"));
            }
            let keeper = Keeper::open(&args.data_dir, Level::Backward, Profile::Confluent)?;
            let events = keeper.registry().export();
            lines(&events)
        }
    };
    lines.iter().for_each(|line| println!("{line}"));
    Ok(Answer::Yes)
}

/// One event a line, without the list's brackets.
fn lines(events: &[Event]) -> Vec<String> {
    let line = |event| {
        let line = write_line(std::slice::from_ref(event));
        line[1..line.len() - 1].to_string()
    };
    events.iter().map(line).collect()
}

/// Schemas and settings of a running registry: ours tells all, others what Confluent's API has.
async fn exported(client: &Client) -> Result<Vec<String>> {
    if let (200, Value::Array(all)) = client.ask("GET", "/tidewire/export", None).await? {
        return Ok(all.iter().map(Value::to_string).collect());
    }
    let lacking = |path: &str| Error::invalid(format!("the schema registry doesn't know {path}"));
    let wanted = |found: Option<Value>, path: &str| found.ok_or_else(|| lacking(path));
    let mut lines = Vec::new();
    settings(client, None, &mut lines).await?;
    let all = wanted(client.get("/schemas?deleted=true").await?, "/schemas")?;
    let live = wanted(client.get("/schemas").await?, "/schemas")?;
    let place =
        |schema: &Value| (schema["subject"].as_str().unwrap_or_default().to_string(), schema["version"].as_u64());
    let live: HashSet<_> = live.as_array().into_iter().flatten().map(place).collect();
    let mut all: Vec<Value> = all.as_array().cloned().unwrap_or_default();
    all.sort_by_key(|schema| (schema["id"].as_u64(), place(schema)));
    let mut subjects: Vec<String> = all.iter().map(|schema| place(schema).0).collect();
    subjects.sort();
    subjects.dedup();
    for subject in &subjects {
        settings(client, Some(subject), &mut lines).await?;
    }
    for value in &all {
        let (is_live, mut value) = (live.contains(&place(value)), value.clone());
        let key = json!({"keytype": "SCHEMA", "subject": value["subject"], "version": value["version"], "magic": 1});
        value["deleted"] = json!(!is_live);
        lines.push(json!({"key": key, "value": value}).to_string());
    }
    lines.extend(highest(client, &all).await?);
    Ok(lines)
}

/// Ids that were given and are gone stay known.
async fn highest(client: &Client, all: &[Value]) -> Result<Option<String>> {
    let Some(id) = all.last().and_then(|schema| schema["id"].as_u64()) else { return Ok(None) };
    let found = client.get(&format!("/schemas/ids/{id}?fetchMaxId=true")).await?.unwrap_or_default();
    let highest = found["maxId"].as_u64().filter(|highest| *highest > id);
    Ok(highest.map(|id| json!({"key": {"keytype": "NOOP", "magic": 0}, "value": {"highestId": id}}).to_string()))
}

async fn settings(client: &Client, subject: Option<&str>, lines: &mut Vec<String>) -> Result<()> {
    for (kind, path) in [("CONFIG", "/config"), ("MODE", "/mode")] {
        let path = subject.map_or(path.to_string(), |subject| format!("{path}/{}", Client::part(subject)));
        if let Some(value) = client.get(&path).await? {
            let key = json!({"keytype": kind, "subject": subject, "magic": 0});
            lines.push(json!({"key": key, "value": value}).to_string());
        }
    }
    Ok(())
}

pub async fn import(args: &RegistryImport) -> Result<Answer> {
    let text = local::text_or_input(&args.file)?;
    let mut events = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let of_line = |e: Error| e.context(format!("in line {} of {}", at + 1, args.file.display()));
        events.extend(read_line(line).map_err(of_line)?);
    }
    let place = Place { folder: &args.data_dir, kafka: &args.kafka, replication: args.making.kafka_replication };
    let keeper = place.open(Level::Backward, Profile::Confluent, &events)?;
    let count = tokio::task::block_in_place(|| keeper.import(&events))
        .map_err(|e| e.context(format!("while taking {}", args.file.display())))?;
    terminal::tell(&format!("{count} records are in {}", place.told()));
    Ok(Answer::Yes)
}
