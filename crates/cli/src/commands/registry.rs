//! `tidewire registry`: a schema registry, and what is done with one.

use super::registry_moving::{export, import};
use crate::args::{Registry, RegistryCheck, RegistryCommand, RegistryKafka, RegistryLogin, RegistryServe};
use crate::catalog::RegistryTopic;
use crate::exit::Answer;
use crate::{local, signals, terminal};
use serde_json::{json, Value};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, ErrorKind, Result};
use tidewire_registry::state::Event;
use tidewire_registry::{Level, Profile};
use tidewire_server::registry::{refused, serve, Client, Keeper};
use tidewire_server::{bind, Address};
use tokio::runtime::Handle;

/// The token that requests must carry; not an argument, which every user of the machine could see.
const TOKEN: &str = "TIDEWIRE_TOKEN";
/// The password of `--user`.
const PASSWORD: &str = "TIDEWIRE_REGISTRY_PASSWORD";
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

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// One that asks a running registry.
pub(super) fn client(url: &str, login: &RegistryLogin) -> Result<Client> {
    let client = match (&login.user, variable(PASSWORD)) {
        (Some(user), Some(password)) => Client::with_user(url, Some((user.clone(), password))),
        (Some(_), None) => {
            return Err(Error::invalid(format!("--user has no password: set the variable {PASSWORD}")));
        }
        (None, _) => Client::new(url, variable(TOKEN)),
    };
    client?.trusting(login.ca.as_deref())
}

async fn answer_requests(args: &RegistryServe) -> Result<Answer> {
    let level = Level::parse(&args.level).ok_or_else(|| {
        let all: Vec<_> = Level::ALL.iter().map(|level| level.word()).collect();
        Error::invalid(format!("--level {:?} isn't known", args.level)).hint(format!("say one of {}", all.join(", ")))
    })?;
    let profile = Profile::parse(&args.profile).unwrap_or_default();
    let token = variable(TOKEN);
    if !args.listen.ip().is_loopback() && token.is_none() {
        return Err(Error::invalid(format!("the HTTP address {} can be reached from other machines", args.listen))
            .hint(format!("set the variable {TOKEN}, or listen on 127.0.0.1 (--listen)")));
    }
    // First of all: one that can't answer takes nothing over.
    let bound = bind(Address { address: args.listen, token }).await?;
    let place = Place { folder: &args.data_dir, kafka: &args.kafka, replication: args.making.kafka_replication };
    let keeper = Arc::new(place.open(level, profile, &[])?);
    let serving = serve(keeper.clone(), bound);
    terminal::tell(&format!("schemas are taken at http://{} and kept in {}", serving.address(), place.told()));
    let ended = tokio::select! {
        signal = signals::first() => signal,
        error = overtaken(keeper) => Err(error),
    };
    serving.stop().await;
    ended.map(|()| Answer::Yes)
}

/// Where schemas are kept.
pub(super) struct Place<'a> {
    pub folder: &'a Path,
    pub kafka: &'a RegistryKafka,
    pub replication: Option<u16>,
}

impl Place<'_> {
    /// For people.
    pub fn told(&self) -> String {
        match &self.kafka.kafka {
            Some(brokers) => format!("the topic {} of {brokers}", self.kafka.kafka_topic),
            None => self.folder.display().to_string(),
        }
    }

    /// For who will import `new`: a registry that runs on the topic ends only when it can be.
    pub fn open(&self, level: Level, profile: Profile, new: &[Event]) -> Result<Keeper> {
        let Some(brokers) = &self.kafka.kafka else { return Keeper::open(self.folder, level, profile) };
        let reading = |e: Error| e.context(format!("while reading {}", self.told()));
        tokio::task::block_in_place(|| {
            let fits = |there: &[Event]| Keeper::try_out(there, new, level, profile).map_err(reading);
            let (topic, events) = RegistryTopic::open(self.kafka, brokers, self.replication, Handle::current(), fits)?;
            Keeper::new(Box::new(topic), &events, level, profile).map_err(reading)
        })
    }
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

async fn check(args: &RegistryCheck) -> Result<Answer> {
    let format = format_of(args)?;
    let references: Vec<Value> = args.reference.iter().map(|text| reference(text)).collect::<Result<_>>()?;
    let body = json!({"schema": local::text_or_input(&args.file)?, "schemaType": format, "references": references});
    let path = format!("/compatibility/subjects/{}/versions?verbose=true", Client::part(&args.subject));
    let client = client(&args.url, &args.login)?;
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
