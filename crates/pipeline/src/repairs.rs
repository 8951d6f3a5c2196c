use crate::far::{say, standing, Said};
use crate::shared::{locked, Shared};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use tidewire_change::{Error, Message, Result, TableName};
use tidewire_connector::BusWriter;

/// The topic of what must be compared and mended; a tombstone says that it was. Key: sink, `/`, table (or nothing).
pub const REPAIRS: &str = "__repairs";

/// A copy that may differ from its source because something was skipped: it is compared and mended, also after a restart.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Repair {
    pub sink: String,
    /// None: every table.
    pub table: Option<String>,
    pub why: String,
    /// Microseconds since 1970 UTC.
    pub since: i64,
    /// The tables are read anew before they are compared: most rows are missing.
    #[serde(default)]
    pub reread: bool,
    /// How often it was asked for again while it was due: a comparison that began before the last time doesn't settle it.
    #[serde(default)]
    pub again: u32,
    /// Asked for by a process that doesn't write the sink: it has a key of its own, so that whoever mends doesn't strike out
    /// one that was asked for meanwhile.
    #[serde(default, skip_serializing_if = "is_false")]
    pub apart: bool,
}

fn is_false(value: &bool) -> bool {
    !value
}

impl Repair {
    /// Says that it is none any more: who knows that the copy is right may strike it out.
    pub fn struck_out(&self, now: i64) -> Message {
        message(self, Vec::new(), now)
    }

    fn key(&self) -> String {
        let table = self.table.as_deref().unwrap_or_default();
        match self.apart {
            true => format!("{}/{table}/{}", self.sink, self.since),
            false => format!("{}/{table}", self.sink),
        }
    }
}

/// The repairs that are due; kept on the bus.
#[derive(Default)]
pub(crate) struct Repairs {
    due: Mutex<BTreeMap<String, Repair>>,
    /// Keys of those that did not work out when they were last tried.
    failed: Mutex<BTreeSet<String>>,
    changed: tokio::sync::Notify,
}

impl Repairs {
    pub async fn load(bus: &dyn BusWriter) -> Result<Self> {
        let repairs = Repairs::default();
        for message in bus.read_topic(REPAIRS).await? {
            let key = String::from_utf8_lossy(&message.key).into_owned();
            if message.value.is_empty() {
                locked(&repairs.due).remove(&key);
                continue;
            }
            let repair = serde_json::from_slice(&message.value)
                .map_err(|e| Error::malformed(format!("a message of the topic {REPAIRS} can't be read: {e}")))?;
            locked(&repairs.due).insert(key, repair);
        }
        Ok(repairs)
    }

    /// Takes in what other processes have asked for or mended. `own`: sinks whose repairs we alone write.
    pub async fn refresh(&self, bus: &dyn BusWriter, own: &(dyn Fn(&str) -> bool + Sync)) -> Result<()> {
        let (there, mut due) = (Repairs::load(bus).await?, locked(&self.due));
        let there = locked(&there.due);
        due.retain(|key, repair| there.contains_key(key) || (own(&repair.sink) && !repair.apart));
        let is_news = there.keys().any(|key| !due.contains_key(key));
        for (key, repair) in &*there {
            due.entry(key.clone()).or_insert_with(|| repair.clone());
        }
        if is_news {
            self.changed.notify_one();
        }
        Ok(())
    }

    pub fn due(&self) -> Vec<Repair> {
        locked(&self.due).values().cloned().collect()
    }

    /// Is due and has not been tried in vain: it is worth waiting for.
    pub fn is_hopeful(&self, repair: &Repair) -> bool {
        !locked(&self.failed).contains(&repair.key())
    }

    pub fn failed(&self, repair: &Repair) {
        locked(&self.failed).insert(repair.key());
    }

    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Asks for a repair; durable when it returns. The first reason of several is kept.
    pub async fn ask(&self, shared: &Shared, sink: &str, table: Option<&str>, why: &str) -> Result<()> {
        let (table, since) = (table.map(str::to_string), shared.clock.now());
        self.add(
            shared,
            Repair { sink: sink.into(), table, why: why.into(), since, reread: false, again: 0, apart: false },
        )
        .await
    }

    /// One that is due says enough. False: there is one.
    pub async fn ask_unless_due(&self, shared: &Shared, sink: &str, table: &str, why: &str) -> Result<bool> {
        let is_same = |due: &Repair| due.sink == sink && due.table.as_deref().is_none_or(|of| of == table);
        let is_due = self.due().iter().any(is_same);
        if !is_due {
            self.ask(shared, sink, Some(table), why).await?;
        }
        Ok(!is_due)
    }

    /// For a sink, or one table of it, that begins empty behind a bus that may no longer hold everything.
    pub async fn ask_to_fill(&self, shared: &Shared, sink: &str, table: Option<&TableName>) -> Result<()> {
        // What the bus holds is read in any case; a comparison then finds what may lack all the same.
        let reread = table.is_some() || !shared.bus.holds_all().await?;
        if !reread && !shared.source.has_rows() {
            return Ok(());
        }
        let why = match table {
            None if !reread => "the sink is new",
            None => "the sink is new and the bus may no longer hold the oldest rows",
            Some(_) => "it was missing in the sink, and the bus may no longer hold all of its rows",
        };
        let (table, since) = (table.map(TableName::to_string), shared.clock.now());
        self.add(shared, Repair { sink: sink.into(), table, why: why.into(), since, reread, again: 0, apart: false })
            .await
    }

    /// For tables of a sink that this process is to write and that hold nothing yet, behind a bus that may have a history.
    pub async fn ask_to_begin(&self, shared: &Shared, sink: &str, tables: &[TableName]) -> Result<()> {
        let (reread, since) = (!shared.bus.holds_all().await?, shared.clock.now());
        let why = match reread {
            false => "it is new in the sink",
            true => "it is new in the sink, and the bus may no longer hold the oldest rows",
        };
        for table in tables {
            let table = Some(table.to_string());
            let repair = Repair { sink: sink.into(), table, why: why.into(), since, reread, again: 0, apart: false };
            self.add(shared, repair).await?;
        }
        Ok(())
    }

    /// Of a sink that several processes write each mends its own tables: what is due for all of them becomes due for each.
    pub async fn divide(&self, shared: &Shared, repair: &Repair, tables: &[String]) -> Result<()> {
        for table in tables {
            self.add(shared, Repair { table: Some(table.clone()), again: 0, apart: false, ..repair.clone() }).await?;
        }
        self.done(shared, repair).await
    }

    /// The other processes of a shared sink hear of it.
    async fn tell(&self, shared: &Shared, sink: &str) -> Result<()> {
        match shared.sinks.iter().any(|state| state.name == sink && state.shares.is_some()) {
            true => say(shared, &Said::Repairs).await,
            false => Ok(()),
        }
    }

    async fn add(&self, shared: &Shared, mut repair: Repair) -> Result<()> {
        if let Some(due) = locked(&self.due).get(&repair.key()).cloned() {
            repair = Repair { again: due.again.saturating_add(1), reread: due.reread || repair.reread, ..due };
        }
        let json = serde_json::to_vec(&repair).map_err(|e| Error::bug("a repair has no JSON form").caused_by(e))?;
        shared.bus.append(vec![message(&repair, json, repair.since)], None).await?;
        let sink = repair.sink.clone();
        locked(&self.due).insert(repair.key(), repair);
        self.changed.notify_one();
        self.tell(shared, &sink).await
    }

    /// Every table of every sink.
    pub async fn ask_all(&self, shared: &Shared, why: &str) -> Result<()> {
        for sink in &shared.sinks {
            self.ask(shared, &sink.name, None, why).await?;
        }
        for sink in &shared.elsewhere {
            let (sink, since) = (sink.clone(), shared.clock.now());
            let why = why.to_string();
            self.add(shared, Repair { sink, table: None, why, since, reread: false, again: 0, apart: true }).await?;
        }
        if !shared.elsewhere.is_empty() {
            // Those who mend must not take the source for open, as it was.
            say(shared, &Said::Standing(Box::new(standing(shared)))).await?;
            say(shared, &Said::Repairs).await?;
        }
        Ok(())
    }

    /// Unless it was asked for again meanwhile.
    pub async fn done(&self, shared: &Shared, repair: &Repair) -> Result<()> {
        if locked(&self.due).get(&repair.key()) != Some(repair) {
            return Ok(());
        }
        shared.bus.append(vec![message(repair, Vec::new(), shared.clock.now())], None).await?;
        locked(&self.due).remove(&repair.key());
        locked(&self.failed).remove(&repair.key());
        self.tell(shared, &repair.sink).await
    }
}

fn message(repair: &Repair, value: Vec<u8>, timestamp: i64) -> Message {
    Message { topic: REPAIRS.into(), partition: 0, key: repair.key().into(), value: value.into(), timestamp }
}
