//! `tidewire topic list|read`: looks into the journal, also while the pipeline runs.

use crate::args::{Plain, TopicRead};
use crate::catalog::{self, Read, Start, View};
use crate::config::Config;
use crate::exit::Answer;
use crate::terminal::{bytes, tell, thousands, Grid};
use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tidewire_change::{text::parse_timestamp, topic, Change, Error, Result, Schema, SchemaId};
use tidewire_connector::FetchedMessage;
use tidewire_envelope::debezium::{is_key_change, Encoder, Modes, Naming, Origin, RowEncoder, Told, Unwrap};
use tidewire_envelope::native;

const LOOK_AGAIN: Duration = Duration::from_millis(200);
/// Lines are written together from so many bytes on.
const FULL: usize = 64 * 1024;

pub fn list(config: &Config, args: &Plain) -> Result<Answer> {
    let topics = catalog::journal_view(config)?.topics();
    if args.json {
        let topics = topics.iter().flat_map(|topic| topic.partitions.iter().map(move |p| (topic, p))).map(|(topic, p)| {
            serde_json::json!({"topic": topic.topic, "partition": p.partition, "earliest": p.earliest, "next": p.next,
                "messages": p.messages, "bytes": p.bytes})
        });
        println!("{}", serde_json::json!({"topics": topics.collect::<Vec<_>>()}));
        return Ok(Answer::Yes);
    }
    let mut grid = Grid::new(&["topic", "partition", "earliest", "next", "messages", "size"]);
    for topic in &topics {
        for p in &topic.partitions {
            let (name, size) = (topic.topic.clone(), bytes(p.bytes));
            grid.row([
                name,
                p.partition.to_string(),
                p.earliest.to_string(),
                p.next.to_string(),
                thousands(p.messages),
                size,
            ]);
        }
    }
    grid.print();
    Ok(Answer::Yes)
}

pub fn read(config: &Config, args: &TopicRead) -> Result<Answer> {
    let mut view = catalog::journal_view(config)?;
    let names: Vec<String> = view.topics().into_iter().map(|topic| topic.topic).collect();
    // A table's name will do as well.
    let is_meant = |name: &&String| topic::table_of(name).is_some_and(|table| catalog::is_named(&table, &args.topic));
    let found = names.iter().find(|name| **name == args.topic).or_else(|| names.iter().find(is_meant));
    let topic = match found {
        Some(name) => name.clone(),
        None if args.follow => args.topic.clone(),
        // Topics of ours are made with their first message.
        None if topic::is_internal(&args.topic) => {
            tell(&format!("nothing in {}", args.topic));
            return Ok(Answer::Yes);
        }
        None => {
            return Err(Error::invalid(format!("the journal has no topic `{}`", args.topic))
                .hint(format!("the topics are: {}", names.join(", "))));
        }
    };
    if let Some(partition) = args.partition.filter(|wanted| *wanted >= view.partitions()) {
        let last = view.partitions() - 1;
        return Err(Error::invalid(format!("topic {topic} has no partition {partition}")).hint(if last == 0 {
            "the only one is 0".to_string()
        } else {
            format!("they are 0 to {last}")
        }));
    }
    let mut printer = Printer::new(config, &topic, args)?;
    let read = Read { topic, partition: args.partition, start: start(&args.from)? };
    let printed = print_all(&mut view, read, args, &mut printer);
    // What came before an error is printed, too.
    let flushed = printer.flush();
    printed.and(flushed).map(|_| Answer::Yes)
}

/// To the end of the topic, or on and on.
fn print_all(view: &mut View, mut read: Read, args: &TopicRead, printer: &mut Printer) -> Result<()> {
    let mut left = args.max.unwrap_or(u64::MAX);
    loop {
        let mut messages = view.read(read.clone());
        while left > 0 {
            let Some(message) = messages.next() else { break };
            if !printer.print(view, &message?)? {
                return Ok(());
            }
            left -= 1;
        }
        if !printer.print_held(None)? || left == 0 || !args.follow || !printer.flush()? {
            return Ok(());
        }
        read.start = Start::Next(messages.next_offsets().clone());
        std::thread::sleep(LOOK_AGAIN);
        view.refresh()?;
    }
}

fn start(text: &str) -> Result<Start> {
    let wrong = || {
        Error::invalid(format!("`{text}` is no place to read from"))
            .hint("say earliest, latest, an offset, or a time such as 2026-01-31T12:00:00Z")
    };
    Ok(match text {
        "earliest" => Start::Earliest,
        "latest" => Start::Latest,
        _ if text.bytes().all(|b| b.is_ascii_digit()) => Start::Offset(text.parse().map_err(|_| wrong())?),
        _ => Start::Time(time(text).ok_or_else(wrong)?),
    })
}

/// Microseconds since 1970 of `YYYY-MM-DD[THH:MM[:SS[.ffffff]]][Z]`, in UTC.
pub fn time(text: &str) -> Option<i64> {
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (date, clock) = text.split_once(['T', ' ']).unwrap_or((text, "00:00:00"));
    let seconds = if clock.len() == "12:00".len() { ":00" } else { "" };
    parse_timestamp(format!("{date} {clock}{seconds}").as_bytes())
}

/// How the lines are to be written.
fn modes(args: &TopicRead) -> Result<Modes> {
    if args.format == "text" {
        return match args.property.first() {
            None => Ok(Modes::for_people()),
            Some(_) => {
                Err(Error::invalid("--property says how Debezium's format is written").hint("add --format debezium"))
            }
        };
    }
    let mut modes = Modes::default();
    for property in &args.property {
        let known = match property.split_once('=') {
            Some((name, value)) => modes.set(name, value)?,
            None => false,
        };
        if !known {
            return Err(Error::invalid(format!("`{property}` is no property of the format, with a value"))
                .hint(format!("they are: {}", Modes::PROPERTIES.join(", "))));
        }
    }
    match modes.transactions {
        true => Err(Error::invalid("one topic doesn't tell where a change stands in its transaction")
            .hint("leave provide.transaction.metadata out: it is for bus.kafka.properties")),
        false => Ok(modes),
    }
}

/// How rows are told alone, if they are.
fn unwrap(args: &TopicRead) -> Result<Option<Unwrap>> {
    if args.unwrap.is_empty() {
        return Ok(None);
    }
    if args.format == "text" {
        return Err(Error::invalid("--unwrap says how Debezium's format is written").hint("add --format debezium"));
    }
    let given = args.unwrap.iter().filter(|option| !option.is_empty());
    Unwrap::of(given.map(|option| option.split_once('=').unwrap_or((option, "")))).map(Some)
}

/// How a table's changes are written.
enum Writer {
    Envelope(Box<Encoder>),
    Rows(Box<RowEncoder>),
}

impl Writer {
    fn envelope(&self) -> &Encoder {
        match self {
            Writer::Envelope(encoder) => encoder,
            Writer::Rows(rows) => rows.envelope(),
        }
    }
}

/// Turns messages into JSON lines.
struct Printer {
    database: String,
    name: String,
    is_internal: bool,
    /// Debezium's format: a change is held back until the one behind it is known, which may be the other half of a key change.
    is_debezium: bool,
    modes: Modes,
    unwrap: Option<Unwrap>,
    schemas: HashMap<SchemaId, Arc<Schema>>,
    writers: HashMap<SchemaId, Writer>,
    held: Option<Held>,
    before_held: Option<Change>,
    /// Lines that aren't written yet.
    lines: Vec<u8>,
}

struct Held {
    partition: u32,
    offset: u64,
    schema: SchemaId,
    change: Change,
}

impl Printer {
    fn new(config: &Config, topic: &str, args: &TopicRead) -> Result<Printer> {
        Ok(Printer {
            database: catalog::database(config),
            name: config.name.clone(),
            is_internal: topic::is_internal(topic),
            is_debezium: args.format == "debezium",
            modes: modes(args)?,
            unwrap: unwrap(args)?,
            schemas: HashMap::new(),
            writers: HashMap::new(),
            held: None,
            before_held: None,
            lines: Vec::new(),
        })
    }

    /// False: nobody reads what is printed any more.
    fn print(&mut self, view: &View, message: &FetchedMessage) -> Result<bool> {
        if self.is_internal || message.value.is_empty() {
            let key = match &*message.topic {
                topic::SCHEMAS => message.key.iter().map(|byte| format!("{byte:02x}")).collect(),
                _ => String::from_utf8_lossy(&message.key).into_owned(),
            };
            let value: serde_json::Value = serde_json::from_slice(&message.value).unwrap_or_default();
            let json = serde_json::json!({"offset": message.offset, "partition": message.partition,
                "key": key, "value": value});
            if !self.print_held(None)? {
                return Ok(false);
            }
            self.lines.extend_from_slice(json.to_string().as_bytes());
            self.lines.push(b'\n');
            return self.flush_full();
        }
        let header = native::header(&message.value)?;
        if !self.schemas.contains_key(&header.schema) {
            self.schemas = schemas(view)?;
        }
        let change = native::decode(message.value.clone(), &|id| self.schemas.get(&id).cloned())?;
        let goes_on = self.print_held(Some(&change))?;
        self.held = Some(Held { partition: message.partition, offset: message.offset, schema: header.schema, change });
        Ok(goes_on && (self.is_debezium || self.print_held(None)?))
    }

    /// Prints the change that was held back, `next` being the one behind it.
    fn print_held(&mut self, next: Option<&Change>) -> Result<bool> {
        let Some(held) = self.held.take() else { return Ok(true) };
        if !self.writers.contains_key(&held.schema) {
            let writer = self.writer(&held.change.schema)?;
            self.writers.insert(held.schema, writer);
        }
        let Some(writer) = self.writers.get_mut(&held.schema) else {
            return Err(Error::bug("a table's writer is gone"));
        };
        let next = next.filter(|next| is_key_change(&held.change, next));
        let before = self.before_held.take().filter(|before| is_key_change(before, &held.change));
        let (mut headers, mut key) = (Vec::new(), Vec::new());
        if let Some(other) = next.or(before.as_ref()).filter(|_| self.is_debezium) {
            let mut header = Vec::new();
            if let Some(name) = writer.envelope().header(&held.change, other, &mut header) {
                headers.push((name.to_string(), header));
            }
        }
        if !writer.envelope().key(&held.change, &mut key) {
            key = b"null".to_vec();
        }
        let start = format!("{{\"partition\":{},\"offset\":{},\"key\":", held.partition, held.offset).into_bytes();
        let start = [start, key, b",\"value\":".to_vec()].concat();
        let now = SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as i64);
        let (mut value, mut of_tombstone) = (Vec::new(), headers.clone());
        let (is_told, has_tombstone) = match writer {
            Writer::Envelope(encoder) => {
                encoder.value(&held.change, now, &mut value);
                (true, self.is_debezium && encoder.has_tombstone(&held.change))
            }
            Writer::Rows(rows) => {
                let mut added = Vec::new();
                let told = rows.value_in(&held.change, None, now, &mut value, &mut added)?;
                let names = self.unwrap.iter().flat_map(|unwrap| &unwrap.headers);
                for (at, (of, text)) in names.zip(added).enumerate() {
                    let json = serde_json::json!(text.as_deref().map(String::from_utf8_lossy)).to_string();
                    headers.push((of.name.clone(), json.into_bytes()));
                    of_tombstone.extend(rows.is_of_tombstone(at).then(|| headers[headers.len() - 1].clone()));
                }
                if told == Told::Null {
                    value = b"null".to_vec();
                }
                (told != Told::Nothing, rows.has_tombstone(&held.change))
            }
        };
        if is_told {
            self.line(&start, &value, &headers);
        }
        if has_tombstone {
            self.line(&start, b"null", &of_tombstone);
        }
        self.before_held = Some(held.change);
        self.flush_full()
    }

    fn writer(&self, schema: &Arc<Schema>) -> Result<Writer> {
        let origin = Origin { name: &self.name, database: &self.database, version: env!("CARGO_PKG_VERSION") };
        Ok(match &self.unwrap {
            None => Writer::Envelope(Box::new(Encoder::new(schema, &self.modes, &origin))),
            Some(unwrap) => {
                Writer::Rows(Box::new(RowEncoder::new(schema, &self.modes, &origin, unwrap, Naming::AsTheyAre)?))
            }
        })
    }

    fn line(&mut self, start: &[u8], value: &[u8], headers: &[(String, Vec<u8>)]) {
        self.lines.extend_from_slice(start);
        self.lines.extend_from_slice(value);
        for (at, (name, json)) in headers.iter().enumerate() {
            self.lines.extend_from_slice(if at == 0 { b",\"headers\":{" } else { b"," });
            self.lines.extend_from_slice(serde_json::json!(name).to_string().as_bytes());
            self.lines.push(b':');
            self.lines.extend_from_slice(json);
        }
        self.lines.extend_from_slice(if headers.is_empty() { b"}\n" } else { b"}}\n" });
    }

    fn flush_full(&mut self) -> Result<bool> {
        match self.lines.len() >= FULL {
            true => self.flush(),
            false => Ok(true),
        }
    }

    fn flush(&mut self) -> Result<bool> {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(&self.lines).and_then(|()| out.flush());
        self.lines.clear();
        match written {
            Ok(()) => Ok(true),
            // Somebody who reads no further (`| head`) isn't a fault.
            Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(Error::io(error, "standard output")),
        }
    }
}

fn schemas(view: &View) -> Result<HashMap<SchemaId, Arc<Schema>>> {
    let read = Read { topic: topic::SCHEMAS.into(), partition: None, start: Start::Earliest };
    let decode = |message: Result<FetchedMessage>| {
        let message = message?;
        let (id, schema) = native::decode_schema(&message.key, &message.value)?;
        Ok((id, Arc::new(schema)))
    };
    view.read(read).map(decode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_to_read_from_are_understood() {
        assert_eq!(start("earliest").unwrap(), Start::Earliest);
        assert_eq!(start("17").unwrap(), Start::Offset(17));
        assert_eq!(start("1970-01-01").unwrap(), Start::Time(0));
        assert_eq!(start("2000-02-29T00:00:00.5Z").unwrap(), Start::Time(951_782_400_500_000));
        assert_eq!(start("2027-01-01 00:00").unwrap(), Start::Time(1_798_761_600_000_000));
        for wrong in ["", "yesterday", "2026-13-01", "2026-02-30", "2026-01-01T", "2026-01-01T25:00", "12:00"] {
            assert!(start(wrong).is_err(), "{wrong}");
        }
    }
}
