//! `tidewire registry`: a schema registry, and what is done with one.

use crate::args::{
    Registry, RegistryCheck, RegistryCommand, RegistryExport, RegistryImport, RegistryKafka, RegistryServe,
};
use crate::catalog::RegistryTopic;
use crate::exit::Answer;
use crate::{local, signals, terminal};
use serde_json::{json, Value};
use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, ErrorKind, Result};
use tidewire_registry::state::{read_line, write_line, Event};
use tidewire_registry::{Level, Profile};
use tidewire_server::registry::{refused, serve, Client, Keeper};
use tidewire_server::Address;
use tokio::runtime::Handle;

/// The token that requests must carry; not an argument, which every user of the machine could see.
const TOKEN: &str = "TIDEWIRE_TOKEN";
/// Between two looks at whether another process has taken over.
const LOOK: Duration = Duration::from_secs(1);

pub async fn run(args: &Registry) -> Result<Answer> {
    match &args.command {
        None => answer_requests(&args.serve).await,
        Some(RegistryCommand::Export(args)) => export(args).await,
        Some(RegistryCommand::Import(args)) => import(args).await,
        Some(RegistryCommand::Check(args)) => check(args).await,
    }
}

fn token() -> Option<String> {
    std::env::var(TOKEN).ok().filter(|token| !token.is_empty())
}

async fn answer_requests(args: &RegistryServe) -> Result<Answer> {
    let level = Level::parse(&args.level).ok_or_else(|| {
        let all: Vec<_> = Level::ALL.iter().map(|level| level.word()).collect();
        Error::invalid(format!("--level {:?} isn't known", args.level)).hint(format!("say one of {}", all.join(", ")))
    })?;
    let keeper = open(&args.data_dir, &args.kafka, level, Profile::parse(&args.profile).unwrap_or_default()).await?;
    let keeper = Arc::new(keeper);
    let serving = serve(keeper.clone(), Address { address: args.listen, token: token() }).await;
    let serving = serving.map_err(|error| match args.listen.ip().is_loopback() {
        true => error,
        false => error.hint(format!("set the variable {TOKEN}, or listen on 127.0.0.1 (--listen)")),
    })?;
    terminal::tell(&format!(
        "schemas are taken at http://{} and kept in {}",
        serving.address(),
        place(&args.data_dir, &args.kafka)
    ));
    let ended = tokio::select! {
        signal = signals::first() => signal,
        error = overtaken(keeper) => Err(error),
    };
    serving.stop().await;
    ended.map(|()| Answer::Yes)
}

/// Where schemas are kept, for people.
fn place(folder: &Path, kafka: &RegistryKafka) -> String {
    match &kafka.kafka {
        Some(brokers) => format!("the topic {} of {brokers}", kafka.kafka_topic),
        None => folder.display().to_string(),
    }
}

async fn open(folder: &Path, kafka: &RegistryKafka, level: Level, profile: Profile) -> Result<Keeper> {
    let Some(brokers) = &kafka.kafka else { return Keeper::open(folder, level, profile) };
    let place = place(folder, kafka);
    tokio::task::block_in_place(|| {
        let (topic, events) = RegistryTopic::open(kafka, brokers, Handle::current())?;
        Keeper::new(Box::new(topic), &events, level, profile).map_err(|e| e.context(format!("while reading {place}")))
    })
}

/// Comes back when another process keeps the schemas: from then on what this one answers may be old.
async fn overtaken(keeper: Arc<Keeper>) -> Error {
    loop {
        tokio::time::sleep(LOOK).await;
        let keeper = keeper.clone();
        match tokio::task::spawn_blocking(move || keeper.look()).await {
            Ok(Err(error)) if error.kind() == ErrorKind::Invalid => return error,
            Ok(Err(error)) => tracing::debug!(%error, "the registry's topic could not be looked at"),
            Ok(Ok(())) => {}
            Err(error) => return Error::bug("the look at the registry's topic was stopped").caused_by(error),
        }
    }
}

async fn export(args: &RegistryExport) -> Result<Answer> {
    let lines = match &args.url {
        Some(url) => exported(&Client::new(url, token())?.trusting(args.ca.as_deref())?).await?,
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

/// Schemas and settings of a running registry. Those that others refer to have smaller ids, and come first.
async fn exported(client: &Client) -> Result<Vec<String>> {
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
    for mut value in all {
        let is_live = live.contains(&place(&value));
        let key = json!({"keytype": "SCHEMA", "subject": value["subject"], "version": value["version"], "magic": 1});
        value["deleted"] = json!(!is_live);
        lines.push(json!({"key": key, "value": value}).to_string());
    }
    Ok(lines)
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

async fn import(args: &RegistryImport) -> Result<Answer> {
    let text = local::text_or_input(&args.file)?;
    let mut events = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
        let of_line = |e: Error| e.context(format!("in line {} of {}", at + 1, args.file.display()));
        events.extend(read_line(line).map_err(of_line)?);
    }
    let keeper = open(&args.data_dir, &args.kafka, Level::Backward, Profile::Confluent).await?;
    let count = tokio::task::block_in_place(|| keeper.import(&events))?;
    terminal::tell(&format!("{count} records are in {}", place(&args.data_dir, &args.kafka)));
    Ok(Answer::Yes)
}

async fn check(args: &RegistryCheck) -> Result<Answer> {
    let format = format_of(args)?;
    let references: Vec<Value> = args.reference.iter().map(|text| reference(text)).collect::<Result<_>>()?;
    let body = json!({"schema": local::text_or_input(&args.file)?, "schemaType": format, "references": references});
    let path = format!("/compatibility/subjects/{}/versions?verbose=true", Client::part(&args.subject));
    let client = Client::new(&args.url, token())?.trusting(args.ca.as_deref())?;
    let (status, answer) = client.ask("POST", &path, Some(&body)).await?;
    let is_compatible = match (status, answer["is_compatible"].as_bool()) {
        (200, Some(is)) => is,
        // Whatever comes is the first: Confluent's registry answers 200.
        (404, _) if answer["error_code"] == 40401 => true,
        _ => return Err(refused(status, &answer).context(format!("while checking {}", args.file.display()))),
    };
    if args.json {
        println!("{answer}");
    } else if is_compatible {
        println!("{} may follow what {} has", args.file.display(), args.subject);
    } else {
        println!("{} may not follow what {} has:", args.file.display(), args.subject);
        differences(&answer).iter().for_each(|line| println!("  {line}"));
    }
    if is_compatible && is_unknown(&client, args).await? {
        terminal::tell(&format!("the registry has no versions of {}: is its name right?", args.subject));
    }
    Ok(if is_compatible { Answer::Yes } else { Answer::No })
}

/// The registry has no versions of the subject.
async fn is_unknown(client: &Client, args: &RegistryCheck) -> Result<bool> {
    let path = format!("/subjects/{}/versions", Client::part(&args.subject));
    let (status, answer) = client.ask("GET", &path, None).await?;
    Ok(status == 404 && answer["error_code"] == 40401)
}

/// Ours are told one by one; of other registries, what they say.
fn differences(answer: &Value) -> Vec<String> {
    let text = |of: &Value| of.as_str().map_or_else(|| of.to_string(), str::to_string);
    match answer["differences"].as_array() {
        Some(all) => all
            .iter()
            .map(|one| {
                let path = one["path"].as_str().filter(|path| !path.is_empty()).unwrap_or("/");
                let (version, rule, message) = (&one["version"], text(&one["rule"]), text(&one["message"]));
                let reads = if one["reader"] == "new" { "the new schema reads version" } else { "is read by version" };
                format!("{path}: {message} ({rule}; {reads} {version})")
            })
            .collect(),
        None => answer["messages"].as_array().into_iter().flatten().map(text).collect(),
    }
}

fn format_of(args: &RegistryCheck) -> Result<String> {
    if let Some(format) = &args.format {
        return Ok(format.to_ascii_uppercase());
    }
    match args.file.extension().and_then(|extension| extension.to_str()) {
        Some("avsc" | "avro") => Ok("AVRO".into()),
        Some("json") => Ok("JSON".into()),
        Some("proto") => Ok("PROTOBUF".into()),
        _ => Err(Error::invalid(format!("the name of {} doesn't tell the type of schema", args.file.display()))
            .hint("say --type AVRO, JSON or PROTOBUF")),
    }
}

fn reference(text: &str) -> Result<Value> {
    let parts = text.split_once('=').and_then(|(name, rest)| {
        let (subject, version) = rest.rsplit_once(':')?;
        Some(json!({"name": name, "subject": subject, "version": version.parse::<u32>().ok()?}))
    });
    parts.ok_or_else(|| Error::invalid(format!("--reference {text:?} isn't NAME=SUBJECT:VERSION")))
}
