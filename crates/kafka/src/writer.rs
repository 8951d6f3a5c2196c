//! The writer's thread: it alone speaks with the producer.

use crate::admin::{self, Admin, Made, Wanted};
use crate::config::Config;
use crate::format::{self, Format, Note};
use crate::letters::DEAD_LETTERS;
use crate::lives;
use crate::names::kafka_topic;
use crate::producer::Producer;
use crate::records::{Named, State, CHECKPOINT, CONTROL, FORMATS, PROGRESS, TOPICS};
use crate::sending::{Sending, Slots};
use crate::takeover::SUCCESSOR;
use crate::to_debezium::ToDebezium;
use crate::transaction::{self, Books, Broken, Group, Target};
use crate::whole;
use std::collections::{BTreeMap, HashMap};
use std::sync::{mpsc, Arc};
use std::time::{Duration, Instant};
use tidewire_change::{topic, Checkpoint, Error, Message, Result, Schema};
use tidewire_envelope::debezium::transactions::Transactions;
use tidewire_envelope::native;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

pub(crate) enum Job {
    Append { messages: Vec<Message>, checkpoint: Option<Checkpoint>, done: oneshot::Sender<Result<()>> },
    Last { done: oneshot::Sender<Result<Option<Checkpoint>>> },
}

/// What a writer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Captures: checkpoints and messages become durable together; one process at a time.
    Capture,
    /// Appends notes (dead letters, repairs); any number of processes.
    Notes,
}

/// More isn't put into one transaction: readers wait for all of it.
const GROUP_BYTES: usize = 8 << 20;

/// Between two looks at whether all topics are still those that they were.
pub(crate) const LOOK: Duration = Duration::from_secs(3);
/// A look is awaited so often while nothing is appended.
const SOON: Duration = Duration::from_millis(50);

pub(crate) struct Writer {
    pub(crate) config: Config,
    pub(crate) role: Role,
    pub(crate) admin: Admin,
    pub(crate) session: Option<Session>,
    /// We have been the one that captures.
    pub(crate) has_claimed: bool,
    pub(crate) was_fenced: bool,
    /// Another process captures: without transactions nobody else refuses us.
    pub(crate) overtaken: Option<Error>,
    /// The latest schema of each table's topic, as far as it passed by.
    pub(crate) schemas: HashMap<String, Schema>,
    /// When the topics were last looked at.
    pub(crate) looked: Instant,
    /// A look at who captures, by a thread of its own: an append doesn't wait for it.
    pub(crate) looking: Option<mpsc::Receiver<Result<Option<State>>>>,
    /// The source's transaction that is being told.
    transactions: Transactions,
}

/// A producer and what belongs to it.
pub(crate) struct Session {
    pub producer: Producer,
    pub targets: HashMap<Arc<str>, Target>,
    pub made: HashMap<String, Made>,
    /// By Kafka's names.
    pub named: BTreeMap<String, Named>,
    pub books: Books,
    /// None: messages stay in our own form.
    pub debezium: Option<ToDebezium>,
    /// The bus isn't told yet of how the messages are written then.
    pub untold: Option<Message>,
}

impl Writer {
    pub fn open(config: Config, role: Role, runtime: Handle) -> Result<Writer> {
        let admin = Admin::new(&config, runtime)?;
        let (session, schemas) = (None, HashMap::new());
        let (has_claimed, was_fenced, overtaken, looked, looking) = (false, false, None, Instant::now(), None);
        let transactions = Transactions::default();
        let mut writer = Writer {
            config,
            role,
            admin,
            session,
            has_claimed,
            was_fenced,
            overtaken,
            schemas,
            looked,
            looking,
            transactions,
        };
        writer.session = Some(writer.connect()?);
        Ok(writer)
    }

    /// Works until the bus is dropped.
    pub fn run(mut self, jobs: mpsc::Receiver<Job>) {
        let mut held_back = None;
        loop {
            let job = match held_back.take() {
                Some(job) => Ok(job),
                None => jobs.recv_timeout(if self.looking.is_some() { SOON } else { LOOK }),
            };
            self.look();
            let job = match job {
                Ok(job) => job,
                Err(mpsc::RecvTimeoutError::Timeout) => continue,
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            };
            match job {
                Job::Last { done } => {
                    // Nobody waits for it any more, perhaps.
                    let _ = done.send(self.last());
                }
                Job::Append { messages, checkpoint, done } => {
                    let mut group = Group::default();
                    group.take(messages, checkpoint);
                    let mut waiting = vec![done];
                    while group.bytes < GROUP_BYTES {
                        match jobs.try_recv() {
                            Ok(Job::Append { messages, checkpoint, done })
                                if group.may_take(&messages, &checkpoint) =>
                            {
                                group.take(messages, checkpoint);
                                waiting.push(done);
                            }
                            Ok(other) => {
                                held_back = Some(other);
                                break;
                            }
                            Err(_) => break,
                        }
                    }
                    let outcome = self.append(&mut group);
                    if outcome.is_err() {
                        // It comes again, from its first change on.
                        self.transactions.forget();
                    }
                    for done in waiting {
                        let _ = done.send(match &outcome {
                            Ok(()) => Ok(()),
                            Err(error) => Err(error.again()),
                        });
                    }
                }
            }
        }
    }

    fn last(&mut self) -> Result<Option<Checkpoint>> {
        if let Some(error) = &self.overtaken {
            return Err(error.again());
        }
        match self.role {
            Role::Capture => Ok(self.session()?.books.state.checkpoint.clone()),
            Role::Notes => Ok(whole::newest_state(&self.config)?.and_then(|state| state.checkpoint)),
        }
    }

    /// Everything of the group, or nothing; when it fails it may also have happened (the next `last` tells).
    fn append(&mut self, group: &mut Group) -> Result<()> {
        if group.messages.is_empty() && group.checkpoint.is_none() {
            return Ok(());
        }
        if let Some(error) = &self.overtaken {
            return Err(error.again());
        }
        self.learn_schemas(group)?;
        self.session()?;
        self.check(group)?;
        self.make_topics(group)?;
        let Some(session) = &mut self.session else { return Err(Error::bug("the producer is gone")) };
        let Session { producer, targets, books, debezium, .. } = session;
        let now = (self.config.now)();
        let sending = Sending {
            producer,
            targets,
            debezium: debezium.as_mut().map(|debezium| (debezium, now)),
            transactions: &mut self.transactions,
            partitions: self.config.partitions,
            max_message_bytes: self.config.max_message_bytes,
            topic_prefix: &self.config.topic_prefix,
            instance: books.state.instance,
            slots: Slots::default(),
        };
        if self.role == Role::Notes {
            let outcome = transaction::send_alone(sending, group);
            return outcome.map_err(|stopped| {
                self.session = None;
                stopped.error("append")
            });
        }
        match transaction::commit(sending, group, books) {
            Ok(()) => Ok(()),
            Err(broken) => Err(self.give_up(broken)),
        }
    }

    fn give_up(&mut self, broken: Broken) -> Error {
        self.was_fenced |= broken.is_fenced;
        self.session = None;
        match broken.is_fenced {
            true => self.successor().unwrap_or_else(|| Error::unavailable(broken.error.message()).context("append")),
            false => broken.error,
        }
    }

    fn check(&self, group: &Group) -> Result<()> {
        if self.role == Role::Notes && group.checkpoint.is_some() {
            return Err(Error::bug("a checkpoint was given to a writer of notes"));
        }
        for message in &group.messages {
            let bytes = message.key.len() + message.value.len();
            let limit = match &*message.topic {
                DEAD_LETTERS => self.config.largest_letter(),
                _ => self.config.max_message_bytes,
            };
            if bytes > limit {
                let table = topic::table_of(&message.topic);
                let error =
                    Error::invalid(format!("a message of {bytes} bytes is more than max_message ({limit} bytes)"))
                        .context(format!("topic {}", self.name(&message.topic)))
                        .hint("raise bus.kafka.max_message and the topic's max.message.bytes, or leave the table out");
                return Err(match table {
                    Some(table) => error.on_table(table),
                    None => error,
                });
            }
            if topic::is_internal(&message.topic) && message.key.is_empty() {
                return Err(Error::bug(format!("a message without a key for the compacted topic {}", message.topic)));
            }
        }
        Ok(())
    }

    fn name(&self, topic: &str) -> String {
        kafka_topic(&self.config.topic_prefix, topic)
    }

    /// What a table's rows are like decides how its topic is made.
    fn learn_schemas(&mut self, group: &Group) -> Result<()> {
        for message in group.messages.iter().filter(|m| &*m.topic == topic::SCHEMAS && !m.value.is_empty()) {
            let (_, schema) = native::decode_schema(&message.key, &message.value)?;
            if let Some(debezium) = self.session()?.debezium.as_mut() {
                debezium.learn(&schema);
            }
            self.schemas.insert(topic::topic_of(&schema.table), schema);
        }
        for message in group.messages.iter().filter(|m| &*m.topic == FORMATS) {
            if let (Some(debezium), Some(note)) = (self.session()?.debezium.as_mut(), format::note_of(message)) {
                debezium.learn_note(note);
            }
        }
        Ok(())
    }

    pub(crate) fn session(&mut self) -> Result<&mut Session> {
        if self.session.is_none() {
            self.session = Some(self.connect()?);
        }
        self.session.as_mut().ok_or_else(|| Error::bug("the producer is gone"))
    }

    fn connect(&mut self) -> Result<Session> {
        if self.was_fenced {
            std::thread::sleep(SUCCESSOR);
        }
        let prefix = self.config.topic_prefix.clone();
        let mut there = self.admin.partitions(&prefix)?;
        let found = whole::state(&self.config)?;
        if found.is_some() {
            lives::is_whole(&self.config, &self.admin, &mut there)?;
        }
        for wanted in self.own_topics() {
            if !there.contains_key(&wanted.name) {
                self.admin.ensure(&wanted, self.config.replication)?;
            }
        }
        let mut producer = Producer::new(&self.config.producer(self.role == Role::Capture), self.config.queue_bytes)?;
        let checkpoint = producer.topic(&self.name(CHECKPOINT))?;
        let progress = producer.topic(&self.name(PROGRESS))?;
        let mut books = Books::new(checkpoint, progress);
        self.is_ours(found.as_ref(), self.was_fenced)?;
        if self.role == Role::Capture {
            // Before anybody is fenced.
            let tables = whole::tables(&self.config)?;
            format::fits(&self.config, &format::known(&self.config)?.modes, !tables.is_empty())?;
            self.become_the_one(&producer, &mut books, &there)?;
            if !self.config.exactly_once {
                books.schemas_end = whole::end(&self.config, topic::SCHEMAS)?;
            }
        }
        let (debezium, untold) = self.to_debezium()?;
        let mut named = whole::topics(&self.config)?;
        if self.role == Role::Capture {
            lives::look(&self.config, &self.admin, &mut producer, &mut named)?;
            self.schemas.extend(whole::latest_schemas(&self.config)?);
        }
        let (targets, made) = (HashMap::new(), HashMap::new());
        let mut session = Session { producer, targets, made, named, books, debezium, untold };
        let names: Vec<&str> = there.keys().map(String::as_str).collect();
        let settings = self.admin.settings(&names)?;
        if self.role == Role::Capture {
            let internal = |name: &str| name.strip_prefix(&prefix).is_some_and(|rest| rest.starts_with(".__"));
            self.admin.take_larger(&self.config, &settings, |name| internal(name) || session.named.contains_key(name));
        }
        for (name, partitions) in &there {
            let policy = settings.get(name).and_then(|of| of.get("cleanup.policy"));
            let is_compacted = policy.is_some_and(|policy| policy.contains("compact"));
            session.made.insert(name.clone(), Made { partitions: *partitions, is_compacted });
        }
        Ok(session)
    }

    fn to_debezium(&self) -> Result<(Option<ToDebezium>, Option<Message>)> {
        let (Format::Debezium(of), Role::Capture) = (&self.config.format, self.role) else { return Ok((None, None)) };
        let known = format::known(&self.config)?;
        let (number, untold) = format::number(&known.modes, &of.writing())?;
        let mut debezium =
            ToDebezium::new((**of).clone(), &self.config.topic_prefix, number, whole::schemas(&self.config)?)?;
        known.ids.into_iter().for_each(|(hash, id)| debezium.learn_note(Note::Id(hash, id)));
        known.files.into_iter().for_each(|(hash, text)| debezium.learn_note(Note::File(hash, text)));
        Ok((Some(debezium), untold))
    }

    fn own_topics(&self) -> Vec<Wanted> {
        let compacted =
            [CHECKPOINT, TOPICS, topic::SCHEMAS].map(|topic| admin::internal(self.name(topic), &self.config));
        let progress = admin::aging(self.name(PROGRESS), 1, &self.config);
        compacted.into_iter().chain([progress, admin::passing(self.name(CONTROL), &self.config)]).collect()
    }
}
