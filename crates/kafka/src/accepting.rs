//! Has schemas registered before the first message that uses them, and tells the bus of their numbers. A registry that no longer knows the
//! numbers that messages carry is found out before anything is registered in it, and now and then.

use crate::client::locked;
use crate::coder::Coder;
use crate::config::Config;
use crate::format::{self, Debezium, Format, Known, Lost};
use crate::names::kafka_topic;
use crate::numbers;
use crate::recall::{self, Recalled};
use crate::registry::{hash, new_files, Named, Registry};
use crate::to_debezium::json_of;
use crate::writer::Job;
use std::collections::{BTreeMap, HashMap};
use std::sync::{mpsc, Arc, Mutex as Lock, Weak};
use std::time::{Duration, Instant};
use tidewire_change::{topic, Error, ErrorKind, Message, Result, Schema};
use tidewire_connector::{hurries, BoxFuture, Contract, Refusal, UnreadSchema};
use tokio::sync::{oneshot, Mutex};

/// Behind a registry that didn't answer it isn't asked again for so long: what is known goes on without it.
const PAUSE: Duration = Duration::from_secs(10);
/// Between two looks whether the registry is still the one that it was.
const WATCH: Duration = Duration::from_secs(30);
/// For so long it is taken for the same.
const FRESH: Duration = Duration::from_secs(5);

/// What a bus knows of its registry beside the schemas.
#[derive(Default)]
pub(crate) struct Trust(Lock<Inner>);

#[derive(Default)]
struct Inner {
    /// Which of several `Accepting` counts: the last.
    generation: u64,
    /// Why nothing of a table may be written now, and what to do.
    halted: Option<(String, String)>,
    /// Numbers under which messages lie that nobody can read.
    lost: BTreeMap<u32, Lost>,
}

impl Trust {
    fn begin(&self) -> u64 {
        let mut inner = locked(&self.0);
        (inner.generation, inner.halted) = (inner.generation + 1, None);
        inner.generation
    }

    fn halt(&self, generation: u64, why: (String, String)) {
        let mut inner = locked(&self.0);
        if inner.generation == generation {
            inner.halted = Some(why);
        }
    }

    fn is_halted(&self) -> bool {
        locked(&self.0).halted.is_some()
    }

    /// May these be written?
    pub fn takes(&self, messages: &[Message]) -> Result<()> {
        let inner = locked(&self.0);
        match &inner.halted {
            Some((what, hint)) if messages.iter().any(|message| !topic::is_internal(&message.topic)) => {
                Err(Error::unavailable(what.clone()).hint(hint.clone()))
            }
            _ => Ok(()),
        }
    }

    pub fn unread(&self, now: i64, retention: Duration) -> Vec<UnreadSchema> {
        let has_aged = |since: i64| now.saturating_sub(since) > retention.as_micros() as i64;
        let lost = locked(&self.0).lost.clone();
        let told =
            |(id, Lost { subject, since }): (u32, Lost)| UnreadSchema { id, subject, since, has_aged: has_aged(since) };
        lost.into_iter().map(told).collect()
    }
}

pub(crate) struct Accepting {
    config: Config,
    of: Debezium,
    registry: Registry,
    jobs: mpsc::Sender<Job>,
    trust: Arc<Trust>,
    generation: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// What the bus knows; none: it wasn't looked at yet.
    told: Option<Known>,
    /// What the registry itself said since this process began: subject, schema and number.
    confirmed: HashMap<u128, (String, String, u32)>,
    silent: Option<Instant>,
    /// When it was last seen that the registry is the same.
    same: Option<Instant>,
    /// The registry was told behind which numbers it begins.
    is_behind: bool,
    /// Numbers that are lost, and the bus wasn't told.
    lost: BTreeMap<u32, Lost>,
}

/// What a registry says of a schema that is to be used.
enum Answer {
    Id(u32),
    Refused(String),
    /// Under this number messages of the subject lie, and it doesn't know it.
    Lost(u32),
    /// Under this number messages lie that another schema wrote.
    Taken(u32),
}

impl Accepting {
    /// None: what lies on this bus takes every schema.
    pub fn of(config: &Config, jobs: mpsc::Sender<Job>, trust: Arc<Trust>) -> Option<Arc<dyn Contract>> {
        let Format::Debezium(of) = &config.format else { return None };
        let Some(registry) = of.codec.registry().cloned() else {
            let names = Names { of: (**of).clone(), prefix: config.topic_prefix.clone() };
            return of.unwrap.is_some().then(|| Arc::new(names) as Arc<dyn Contract>);
        };
        let (config, of, generation) = (config.clone(), (**of).clone(), trust.begin());
        let accepting = Arc::new(Accepting { config, of, registry, jobs, trust, generation, state: Mutex::default() });
        tokio::spawn(watch(Arc::downgrade(&accepting)));
        Some(accepting)
    }

    /// Some: the registry doesn't take it, and why.
    async fn accept(&self, schema: &Arc<Schema>) -> Result<Option<String>> {
        let topic = kafka_topic(&self.config.topic_prefix, &topic::topic_of(&schema.table));
        let mut state = self.state.lock().await;
        self.look(&mut state).await?;
        let mut files = state.told.as_ref().map(|told| told.files.clone()).unwrap_or_default();
        let found = new_files(&self.registry, &self.of, &self.config.topic_prefix, schema, &topic, &files).await;
        let new_files = match found {
            Ok(files) => files,
            Err(error) if matches!(error.kind(), ErrorKind::Schema) => return Ok(Some(error.to_string())),
            Err(error) => return Err(error),
        };
        files.extend(new_files.iter().map(|(hash, text)| (*hash, text.clone())));
        let coder = match Coder::new(&self.of, &self.config.topic_prefix, schema, &files) {
            Ok(coder) => coder,
            Err(error) if error.kind() == ErrorKind::Schema => return Ok(Some(error.to_string())),
            Err(error) => return Err(error),
        };
        let named = Named::of(&self.registry, &topic, &coder);
        let mut notes = Vec::new();
        for (subject, text) in [Some(named.value), named.key, Some(named.position)].into_iter().flatten() {
            let hash = hash(&subject, &text);
            if state.confirmed.contains_key(&hash) {
                continue;
            }
            let known = state.told.as_ref().and_then(|told| told.ids.get(&hash)).copied();
            match self.ask(&mut state, &subject, &text, known).await? {
                Ok(id) if known != Some(id) => notes.push((hash, id)),
                Ok(_) => {}
                Err(why) => return Ok(Some(why)),
            }
        }
        let of_files = new_files.iter().map(|(hash, text)| format::file_note(*hash, text));
        let lost = std::mem::take(&mut state.lost);
        let of_lost = lost.iter().map(|(id, lost)| format::lost_note(*id, Some(lost)));
        let of_ids = notes.iter().map(|(hash, id)| format::id_note(*hash, *id));
        self.tell(of_files.chain(of_lost).chain(of_ids).collect()).await?;
        if let Some(told) = &mut state.told {
            told.ids.extend(notes);
            told.files.extend(new_files);
        }
        locked(&self.trust.0).lost.extend(lost);
        Ok(None)
    }

    async fn ask(
        &self,
        state: &mut State,
        subject: &str,
        text: &str,
        known: Option<u32>,
    ) -> Result<Result<u32, String>> {
        let is_silent = state.silent.is_some_and(|at| at.elapsed() < PAUSE);
        if let Some(id) = known.filter(|_| is_silent) {
            return Ok(Ok(id));
        }
        match self.number(state, subject, text, known).await {
            Ok(answer) => {
                state.silent = None;
                match answer {
                    Answer::Id(id) => {
                        state.confirmed.insert(hash(subject, text), (subject.to_string(), text.to_string(), id));
                        Ok(Ok(id))
                    }
                    Answer::Refused(why) => Ok(Err(why)),
                    Answer::Lost(id) => Err(recall::lost(subject, id)),
                    Answer::Taken(id) => Err(numbers::taken(subject, id)),
                }
            }
            Err(error) if error.kind() == ErrorKind::Unavailable => {
                state.silent = Some(Instant::now());
                let Some(id) = known else { return Err(error.context(format!("registering {subject}"))) };
                tracing::warn!(%error, subject, "the schema registry doesn't answer: schemas that are known go on");
                Ok(Ok(id))
            }
            Err(error) => Err(error.context(format!("registering {subject}"))),
        }
    }

    /// Registers nothing in a registry that isn't the one that gave the numbers, unless that is meant: they would be taken when what was
    /// exported of the other comes.
    async fn number(&self, state: &mut State, subject: &str, text: &str, known: Option<u32>) -> Result<Answer> {
        let coding = self.of.codec.coding();
        match known {
            Some(id) => match self.registry.recall(subject, text, coding, id).await? {
                Recalled::Kept => {}
                Recalled::Lost if !self.registry.accepts_emptied => return Ok(Answer::Lost(id)),
                Recalled::Lost | Recalled::Renumbered(_) => self.lose(state, subject, id).await?,
            },
            None => {
                if let Some(id) = self.is_another(state).await? {
                    return Ok(Answer::Lost(id));
                }
            }
        }
        self.begin_behind(state).await?;
        Ok(match self.registry.id(subject, text, coding).await? {
            Ok(id) if self.is_taken(state, id, subject, text).await? => Answer::Taken(id),
            Ok(id) => {
                // It may have been given the same number once more.
                state.lost.remove(&id);
                Answer::Id(id)
            }
            Err(why) => Answer::Refused(why),
        })
    }

    /// A registry that no longer knows our numbers is to give none of them a second time.
    async fn begin_behind(&self, state: &mut State) -> Result<()> {
        let Some(told) = state.told.as_ref().filter(|_| self.registry.accepts_emptied && !state.is_behind) else {
            return Ok(());
        };
        let prefix = &self.config.topic_prefix;
        let lost: Vec<u32> = locked(&self.trust.0).lost.keys().chain(state.lost.keys()).copied().collect();
        let is_whole = lost.is_empty();
        let Some(highest) = told.ids.values().copied().chain(lost).max() else { return Ok(()) };
        // One of which an old copy was put back knows others.
        if is_whole && self.registry.is_ours(highest, &told.ids, prefix).await? {
            return Ok(());
        }
        self.registry.begin_behind(highest, prefix).await?;
        state.is_behind = true;
        Ok(())
    }

    async fn is_taken(&self, state: &State, id: u32, subject: &str, text: &str) -> Result<bool> {
        let Some(told) = &state.told else { return Ok(false) };
        let is_lost = state.lost.contains_key(&id) || locked(&self.trust.0).lost.contains_key(&id);
        self.registry.is_taken(id, (subject, text), &told.ids, is_lost).await
    }

    /// Some: a number that the bus has, and none of those that it has means anything of it in the registry.
    async fn is_another(&self, state: &mut State) -> Result<Option<u32>> {
        let is_fresh = state.same.is_some_and(|at| at.elapsed() < FRESH);
        let Some(told) = state.told.as_ref().filter(|_| !is_fresh && !self.registry.accepts_emptied) else {
            return Ok(None);
        };
        if self.registry.knows_any(&told.ids, &self.config.topic_prefix).await? {
            state.same = Some(Instant::now());
            return Ok(None);
        }
        Ok(told.ids.values().max().copied())
    }

    /// Notes that messages under this number can't be read; at the first, which others there are.
    async fn lose(&self, state: &mut State, subject: &str, id: u32) -> Result<()> {
        let since = (self.config.now)();
        tracing::error!(
            subject,
            id,
            "the schema registry no longer knows this number: messages under it can't be read"
        );
        let is_first = state.lost.is_empty() && locked(&self.trust.0).lost.is_empty();
        if let Some(told) = state.told.as_ref().filter(|_| is_first) {
            for other in self.registry.unknown(&told.ids, &self.config.topic_prefix).await? {
                state.lost.entry(other).or_insert(Lost { subject: String::new(), since });
            }
        }
        state.lost.insert(id, Lost { subject: subject.to_string(), since });
        Ok(())
    }

    async fn look(&self, state: &mut State) -> Result<()> {
        if state.told.is_none() {
            let config = self.config.clone();
            let known = tokio::task::spawn_blocking(move || format::known(&config)).await;
            let known = known.map_err(|error| Error::bug("a look into Kafka was stopped").caused_by(error))??;
            locked(&self.trust.0).lost.clone_from(&known.lost);
            state.told = Some(known);
        }
        Ok(())
    }

    /// Does the registry still know what is written under now, and perhaps what it didn't?
    async fn look_again(&self) -> Result<()> {
        let (confirmed, ids) = {
            let state = self.state.lock().await;
            let ids = state.told.as_ref().map(|told| told.ids.clone()).unwrap_or_default();
            (state.confirmed.values().cloned().collect::<Vec<_>>(), ids)
        };
        for (subject, text, id) in confirmed {
            if self.registry.recall(&subject, &text, self.of.codec.coding(), id).await? != Recalled::Kept {
                let why = recall::loss(&subject, id);
                tracing::error!("{}", why.0);
                self.trust.halt(self.generation, why);
                return Ok(());
            }
        }
        let lost = locked(&self.trust.0).lost.clone();
        for (id, Lost { subject, .. }) in lost {
            if self.registry.is_back(id, &subject, &ids).await? {
                self.tell(vec![format::lost_note(id, None)]).await?;
                locked(&self.trust.0).lost.remove(&id);
            }
        }
        Ok(())
    }

    async fn tell(&self, messages: Vec<Message>) -> Result<()> {
        if messages.is_empty() {
            return Ok(());
        }
        let stopped = || Error::bug("the thread that writes to Kafka has stopped");
        let (done, outcome) = oneshot::channel();
        self.jobs.send(Job::Append { messages, checkpoint: None, done }).map_err(|_| stopped())?;
        outcome.await.map_err(|_| stopped())?
    }
}

impl Contract for Accepting {
    fn takes(&self, schema: Arc<Schema>) -> BoxFuture<'_, Result<Option<Refusal>>> {
        Box::pin(async move { Ok(self.accept(&schema).await?.map(Refusal::passing)) })
    }
}

/// Rows alone without a registry: a table has no column that is called as something that is added.
struct Names {
    of: Debezium,
    prefix: String,
}

impl Contract for Names {
    fn takes(&self, schema: Arc<Schema>) -> BoxFuture<'_, Result<Option<Refusal>>> {
        let refusal = match json_of(&self.of, &self.prefix, &schema) {
            Ok(_) => Ok(None),
            Err(error) if error.kind() == ErrorKind::Schema => Ok(Some(Refusal::passing(error.to_string()))),
            Err(error) => Err(error),
        };
        Box::pin(std::future::ready(refusal))
    }
}

/// As long as schemas are asked for. Whoever finds out that nothing may be written is asked anew, by another.
async fn watch(accepting: Weak<Accepting>) {
    loop {
        tokio::time::sleep(if hurries() { WATCH / 30 } else { WATCH }).await;
        let Some(accepting) = accepting.upgrade() else { return };
        if let Err(error) = accepting.look_again().await {
            tracing::debug!(%error, "it isn't known whether the schema registry is the same");
        }
        if accepting.trust.is_halted() {
            return;
        }
    }
}
