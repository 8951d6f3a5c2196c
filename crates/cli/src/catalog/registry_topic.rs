//! A schema registry's changes in Kafka's topic `_schemas`, in the form of Confluent's registry: one of theirs is read, and theirs read ours.

use crate::args::RegistryKafka;
use std::collections::HashMap;
use std::time::SystemTime;
use tidewire_change::{Error, Result};
use tidewire_kafka::{self as kafka, Entry, KeyedTopic, NotAppended};
use tidewire_registry::state::{folded, Event};
use tidewire_server::registry::{Log, NotKept};
use tokio::runtime::Handle;

/// The password of `--kafka-user`; not an argument, which every user of the machine could see.
const PASSWORD: &str = "TIDEWIRE_KAFKA_PASSWORD";
/// A schema of the largest size that is taken, as a JSON text, and what stands around it.
const LARGEST: usize = 8 << 20;

/// Behind the prefix of a bus: the topic of its registry.
pub const INSIDE: &str = ".__registry";

pub struct RegistryTopic {
    topic: KeyedTopic,
    name: String,
    /// Keys of the topic that another registry has written otherwise than we would: they go on as they are, since Kafka compacts by them.
    keys: HashMap<String, Vec<u8>>,
    /// The bus whose registry this is: numbers that messages there carry are never given again, whatever became of the topic.
    bus: Option<kafka::Config>,
    /// Errors in the words of whoever asks: keys of a pipeline's configuration, or a command's arguments.
    told: fn(Error) -> Error,
}

impl RegistryTopic {
    /// Becomes the one that writes; blocks. `fits`: whether this process can go on with what is there; the one that writes until now isn't
    /// stopped by one that can't. `replication`: of a topic that has to be made.
    pub fn open(
        args: &RegistryKafka,
        brokers: &str,
        replication: Option<u16>,
        runtime: Handle,
        fits: impl Fn(&[Event]) -> Result<()>,
    ) -> Result<(RegistryTopic, Vec<Event>)> {
        let mut config = config(args, brokers)?;
        config.replication = replication;
        RegistryTopic::new(config, runtime, told).opened(fits)
    }

    /// The topic of a pipeline's registry inside; asks nobody yet. `bus`: where the brokers are and how to log in.
    pub fn inside(bus: kafka::Config, name: &str, runtime: Handle) -> RegistryTopic {
        // By the same id as the command's: Kafka lets one of them write.
        let own = of_registry(kafka::Config::new(&bus.brokers, name, "registry"));
        let config = kafka::Config { tls: bus.tls, sasl: bus.sasl, replication: bus.replication, ..own };
        RegistryTopic::new(config, runtime, |error| error)
    }

    fn opened(mut self, fits: impl Fn(&[Event]) -> Result<()>) -> Result<(RegistryTopic, Vec<Event>)> {
        fits(&self.there()?)?;
        let events = self.take()?;
        Ok((self, events))
    }

    /// What is there, without becoming the one that writes; blocks.
    pub fn there(&mut self) -> Result<Vec<Event>> {
        let there = self.topic.read().map_err(self.told)?.unwrap_or_default();
        self.events(there)
    }

    /// What is there, without becoming the one that writes; blocks.
    pub fn read(args: &RegistryKafka, brokers: &str, runtime: Handle) -> Result<Vec<Event>> {
        let mut topic = RegistryTopic::new(config(args, brokers)?, runtime, told);
        match topic.topic.read().map_err(topic.told)? {
            Some(entries) => topic.events(entries),
            None => {
                Err(Error::invalid(format!("there is no topic {}", topic.name)).hint("say which with --kafka-topic"))
            }
        }
    }

    fn new(config: kafka::Config, runtime: Handle, told: fn(Error) -> Error) -> RegistryTopic {
        let name = config.topic_prefix.clone();
        let bus =
            name.strip_suffix(INSIDE).map(|prefix| kafka::Config { topic_prefix: prefix.into(), ..config.clone() });
        RegistryTopic { topic: KeyedTopic::new(config, runtime), name, keys: HashMap::new(), bus, told }
    }

    /// Becomes the one that writes; blocks.
    pub fn take(&mut self) -> Result<Vec<Event>> {
        let entries = self.topic.take().map_err(self.told)?;
        let mut events = self.events(entries)?;
        events.extend(self.given()?);
        // Tells whoever wrote before that it doesn't any more.
        let highest: Vec<_> = events.iter().filter(|event| matches!(event, Event::Highest(_))).cloned().collect();
        self.append(&highest).map_err(|failed| failed.error)?;
        Ok(events)
    }

    /// What the bus says of numbers that were given.
    fn given(&self) -> Result<Option<Event>> {
        let Some(bus) = &self.bus else { return Ok(None) };
        let asking = || format!("looking for the numbers of schemas that messages of {}.* carry", bus.topic_prefix);
        let highest = kafka::highest_number(bus).map_err(|error| (self.told)(error.context(asking())))?;
        Ok((highest > 0).then_some(Event::Highest(highest)))
    }

    fn events(&mut self, entries: Vec<Entry>) -> Result<Vec<Event>> {
        let mut events = Vec::with_capacity(entries.len());
        // In a topic that has nothing of a registry no record is passed over.
        let is_ours = entries.iter().any(|entry| Event::is_key(&entry.key));
        for entry in entries {
            if is_ours && !Event::is_key(&entry.key) {
                let (topic, offset) = (&self.name, entry.offset);
                tracing::warn!(
                    topic,
                    offset,
                    "no registry wrote this record (its key has no keytype): it is passed over"
                );
                continue;
            }
            let place = || format!("in the message at offset {} of the topic {}", entry.offset, self.name);
            let text = |bytes| String::from_utf8(bytes).map_err(|_| Error::invalid("it is no text").context(place()));
            let (key, value) = (text(entry.key)?, entry.value.map(text).transpose()?);
            let event = Event::read(&key, value.as_deref()).map_err(|e| e.context(place()))?;
            let Some(event) = event else { continue };
            let ours = event.write().0;
            if ours != key {
                self.keys.insert(ours, key.into_bytes());
            }
            events.push(event);
        }
        Ok(folded(events))
    }
}

impl Log for RegistryTopic {
    fn append(&mut self, events: &[Event]) -> Result<(), NotKept> {
        let entries: Vec<_> = events
            .iter()
            .map(|event| {
                let (key, value) = event.write();
                let key = self.keys.get(&key).cloned().unwrap_or_else(|| key.into_bytes());
                (key, value.map(String::into_bytes))
            })
            .collect();
        let not_kept = |failed: NotAppended| NotKept { error: (self.told)(failed.error), may_be_kept: failed.is_open };
        self.topic.append(&entries).map_err(not_kept)
    }

    fn again(&mut self) -> Result<Option<Vec<Event>>> {
        self.take().map(Some)
    }

    fn look(&mut self) -> Result<()> {
        self.topic.look().map_err(self.told)
    }
}

fn of_registry(config: kafka::Config) -> kafka::Config {
    kafka::Config {
        max_message_bytes: LARGEST,
        compression: kafka::Compression::None,
        instance: SystemTime::UNIX_EPOCH.elapsed().map_or(0, |time| time.as_micros() as u64),
        ..config
    }
}

fn config(args: &RegistryKafka, brokers: &str) -> Result<kafka::Config> {
    let mut config = of_registry(kafka::Config::new(brokers, &args.kafka_topic, "registry"));
    for (name, file) in [("ca", &args.kafka_ca), ("cert", &args.kafka_cert), ("key", &args.kafka_key)] {
        let Some(file) = file else { continue };
        std::fs::File::open(file)
            .map_err(|e| Error::invalid(format!("--kafka-{name} {}: {e}", file.display())).hint("name a PEM file"))?;
    }
    config.tls = args.encrypts().then(|| kafka::Tls {
        authority: args.kafka_ca.clone(),
        certificate: args.kafka_cert.clone(),
        key: args.kafka_key.clone(),
        key_password: None,
    });
    let password = std::env::var(PASSWORD).ok().filter(|password| !password.is_empty());
    config.sasl = match (&args.kafka_user, password) {
        (Some(user), Some(password)) => Some(kafka::Sasl {
            mechanism: match args.kafka_mechanism.as_str() {
                "PLAIN" => kafka::Mechanism::Plain,
                "SCRAM-SHA-256" => kafka::Mechanism::ScramSha256,
                _ => kafka::Mechanism::ScramSha512,
            },
            user: user.clone(),
            password,
        }),
        (Some(_), None) => {
            return Err(Error::invalid(format!("--kafka-user has no password: set the variable {PASSWORD}")));
        }
        (None, _) => None,
    };
    Ok(config)
}

/// Words of a pipeline's configuration as this command's.
fn told(error: Error) -> Error {
    let said = [
        (
            "sasl.mechanism, sasl.user and sasl.password in bus.kafka",
            "--kafka-mechanism, --kafka-user and TIDEWIRE_KAFKA_PASSWORD",
        ),
        ("bus.kafka.brokers", "--kafka"),
        ("check bus.kafka.tls", "check --kafka-ca, --kafka-cert and --kafka-key"),
        ("bus.kafka.tls", "--kafka-tls or --kafka-ca"),
        ("bus.kafka.replication", "--kafka-replication"),
        ("`brokers`", "--kafka"),
        ("bus.kafka", "--kafka"),
    ];
    let in_our_words =
        |text: &str| said.iter().fold(text.to_string(), |text, (theirs, ours)| text.replace(theirs, ours));
    let mut same = Error::new(error.kind(), in_our_words(error.message()));
    for context in error.contexts() {
        same = same.context(in_our_words(context));
    }
    match error.hint_text() {
        Some(hint) => same.hint(in_our_words(hint)),
        None => same,
    }
}
