//! `tidewire dlq list|show|replay|drop`: the messages that a sink could not take, or the source not read.

use crate::args::{DlqReplay, DlqShow, OfSinks};
use crate::catalog;
use crate::config::Config;
use crate::exit::Answer;
use crate::serve;
use crate::terminal::{tell, thousands, warn, Grid};
use bytes::Bytes;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::SystemTime;
use tidewire_change::{topic, Error, Message, Result, Schema, SchemaId};
use tidewire_envelope::debezium::{Encoder, Modes, Origin};
use tidewire_envelope::native;
use tidewire_pipeline::{DeadLetter, Repair, DEAD_LETTERS, OF_SOURCE, REPAIRS};

pub async fn list(config: &Config, args: &OfSinks) -> Result<Answer> {
    let letters = of_sinks(config, &args.sink).await?;
    if args.json {
        println!("{}", serde_json::json!({"letters": letters.iter().map(without_values).collect::<Vec<_>>()}));
        return Ok(Answer::Yes);
    }
    if letters.is_empty() {
        println!("there are no dead letters");
        return Ok(Answer::Yes);
    }
    let mut grid = Grid::new(&["letter", "table", "tries", "last", "why"]);
    for letter in &letters {
        let table = letter.table.clone().unwrap_or_default();
        let (tries, last) = (letter.attempts.to_string(), super::status::time(letter.last));
        grid.row([letter.id(), table, tries, last, letter.reason.clone()]);
    }
    grid.print();
    Ok(Answer::Yes)
}

pub async fn show(config: &Config, args: &DlqShow) -> Result<Answer> {
    let letters = of_sinks(config, &[]).await?;
    let letter = letters.into_iter().find(|letter| letter.id() == args.letter).ok_or_else(|| unknown(&args.letter))?;
    let mut json = without_values(&letter);
    if args.values {
        json["message"] = message(config, &letter).await?;
    }
    let text = serde_json::to_string_pretty(&json);
    println!("{}", text.map_err(|error| Error::bug("a dead letter has no JSON form").caused_by(error))?);
    Ok(Answer::Yes)
}

pub async fn replay(config: &Config, args: &DlqReplay) -> Result<Answer> {
    let letters = chosen(config, args).await?;
    let (mut answer, mut outcomes) = (Answer::Yes, Vec::new());
    for sink in &config.sinks {
        let due: Vec<DeadLetter> = letters.iter().filter(|letter| letter.sink == sink.name).cloned().collect();
        if due.is_empty() {
            continue;
        }
        serve::are_free(config, std::slice::from_ref(sink))?;
        let mut opened = catalog::again(config, &sink.name).await?;
        let done = opened.again.redeliver(due).await?;
        // In the sink they are already: one that is still told of is only given once more.
        opened.bus.append(struck_out(&done.taken), None).await?;
        outcomes.push(serde_json::json!({"sink": sink.name, "delivered": done.taken.len(), "applied": done.pass.applied,
            "stale": done.pass.stale, "passed_over": done.passed_over.len(),
            "refused": done.refused.as_ref().map(|(letter, error)| serde_json::json!({"letter": letter.id(), "why": error.to_string()}))}));
        if !args.json {
            println!(
                "{}: {} delivered, {} of them newer than what the sink had",
                sink.name,
                thousands(done.taken.len() as u64),
                thousands(done.pass.applied)
            );
        }
        for letter in &done.passed_over {
            warn(&format!("{} came under an earlier schema, or can't be read: it stays", letter.id()));
            tell(&format!(
                "  fix: tidewire reconcile --sink {} --repair mends its row; then: tidewire dlq drop --letter {}",
                sink.name,
                letter.id()
            ));
        }
        if let Some((letter, error)) = &done.refused {
            warn(&format!("{} is refused again and stays, with all behind it: {error}", letter.id()));
        }
        if !done.passed_over.is_empty() || done.refused.is_some() {
            answer = Answer::No;
        }
    }
    for letter in letters.iter().filter(|letter| letter.sink == OF_SOURCE) {
        answer = Answer::No;
        warn(&format!(
            "{} could not be read from its topic, so there is nothing to give to a sink: it stays",
            letter.id()
        ));
        tell(&format!(
            "  fix: have the connector take a snapshot of the row; then: tidewire dlq drop --letter '{}'",
            letter.id()
        ));
    }
    if args.json {
        println!("{}", serde_json::json!({ "sinks": outcomes }));
    } else if outcomes.is_empty() && letters.is_empty() {
        println!("there are no dead letters");
    }
    Ok(answer)
}

/// Strikes letters out without giving them to their sinks: their rows were mended in another way.
pub async fn drop(config: &Config, args: &DlqReplay) -> Result<Answer> {
    let letters = chosen(config, args).await?;
    let mut dropped = serde_json::Map::new();
    for sink in &config.sinks {
        let due: Vec<DeadLetter> = letters.iter().filter(|letter| letter.sink == sink.name).cloned().collect();
        if due.is_empty() {
            continue;
        }
        serve::are_free(config, std::slice::from_ref(sink))?;
        catalog::again(config, &sink.name).await?.bus.append(struck_out(&due), None).await?;
        dropped.insert(sink.name.clone(), due.len().into());
    }
    let unread: Vec<DeadLetter> = letters.into_iter().filter(|letter| letter.sink == OF_SOURCE).collect();
    if !unread.is_empty() {
        serve::are_free(config, &config.sinks)?;
        catalog::note(config, struck_out(&unread)).await?;
        dropped.insert(OF_SOURCE.to_string(), unread.len().into());
    }
    if config.postgres().is_err() && args.letter.is_empty() {
        drop_repairs(config, args, &mut dropped).await?;
    }
    match args.json {
        true => println!("{}", serde_json::json!({ "dropped": dropped })),
        false if dropped.is_empty() => println!("there are no dead letters"),
        false => dropped.iter().for_each(|(sink, count)| println!("{sink}: {count} dropped")),
    }
    Ok(Answer::Yes)
}

/// Topics have no rows that a copy could be compared with: who has had them told again says so.
async fn drop_repairs(
    config: &Config,
    args: &DlqReplay,
    dropped: &mut serde_json::Map<String, serde_json::Value>,
) -> Result<()> {
    let mut due: BTreeMap<Bytes, Repair> = BTreeMap::new();
    for message in catalog::messages(config, REPAIRS).await? {
        let _ = match serde_json::from_slice::<Repair>(&message.value) {
            Ok(repair) => due.insert(message.key, repair),
            Err(_) => due.remove(&message.key),
        };
    }
    due.retain(|_, repair| args.sink.is_empty() || args.sink.contains(&repair.sink));
    if due.is_empty() {
        return Ok(());
    }
    serve::are_free(config, &config.sinks)?;
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as i64);
    catalog::note(config, due.values().map(|repair| repair.struck_out(now)).collect()).await?;
    dropped.insert("tables to be compared".to_string(), due.len().into());
    Ok(())
}

fn struck_out(letters: &[DeadLetter]) -> Vec<Message> {
    let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as i64);
    letters.iter().map(|letter| letter.done(now)).collect()
}

/// Those that are named; all, if none is.
async fn chosen(config: &Config, args: &DlqReplay) -> Result<Vec<DeadLetter>> {
    let mut letters = of_sinks(config, &args.sink).await?;
    if let Some(id) = args.letter.iter().find(|id| letters.iter().all(|letter| letter.id() != **id)) {
        return Err(unknown(id));
    }
    letters.retain(|letter| args.letter.is_empty() || args.letter.contains(&letter.id()));
    Ok(letters)
}

async fn of_sinks(config: &Config, names: &[String]) -> Result<Vec<DeadLetter>> {
    let sinks = super::reconcile::choose_sinks(config, names)?;
    let mut letters = DeadLetter::of_topic(&catalog::messages(config, DEAD_LETTERS).await?);
    // Without a name: also those of sinks that the configuration no longer has.
    letters.retain(|letter| names.is_empty() || sinks.iter().any(|sink| sink.name == letter.sink));
    Ok(letters)
}

fn unknown(id: &str) -> Error {
    Error::invalid(format!("there is no dead letter `{id}`")).hint("tidewire dlq list names them")
}

/// Key and value are rows of the user's.
fn without_values(letter: &DeadLetter) -> serde_json::Value {
    serde_json::json!({"letter": letter.id(), "sink": letter.sink, "topic": letter.topic, "life": letter.life, "partition": letter.partition,
        "offset": letter.offset, "table": letter.table, "why": letter.reason, "attempts": letter.attempts,
        "first": super::status::time(letter.first), "last": super::status::time(letter.last)})
}

/// The change, with values as the source prints them; of what isn't one, the message as it is.
async fn message(config: &Config, letter: &DeadLetter) -> Result<serde_json::Value> {
    let value = letter.fetched()?.value;
    if letter.sink == OF_SOURCE {
        return Ok(String::from_utf8_lossy(&value).into());
    }
    if let Some((_, as_it_was)) = native::of_unread(&value) {
        return Ok(String::from_utf8_lossy(as_it_was).into());
    }
    let schemas = catalog::messages(config, topic::SCHEMAS).await?;
    let schema = |message: &tidewire_connector::FetchedMessage| {
        let (id, schema) = native::decode_schema(&message.key, &message.value)?;
        Ok((id, Arc::new(schema)))
    };
    let known: HashMap<SchemaId, Arc<Schema>> = schemas.iter().map(schema).collect::<Result<_>>()?;
    let Ok(change) = native::decode(value, &|id| known.get(&id).cloned()) else {
        return Ok(serde_json::json!({"key_base64": letter.key, "value_base64": letter.value}));
    };
    let database = catalog::database(config);
    let origin = Origin { name: &config.name, database: &database, version: env!("CARGO_PKG_VERSION") };
    let mut text = Vec::new();
    Encoder::new(&change.schema, &Modes::for_people(), &origin).value(&change, letter.last, &mut text);
    serde_json::from_slice(&text).map_err(|error| Error::bug("a message isn't JSON").caused_by(error))
}
