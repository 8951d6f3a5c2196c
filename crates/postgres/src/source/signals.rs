//! Signals: what somebody asks of the placed reads while the source runs. They stand in line in the checkpoint's plan, from the same
//! checkpoint on that holds the place behind their row (or behind their channel's message), and leave it with the one that holds what
//! they asked for. So each is carried out once, whatever dies meanwhile.

use super::admin::{Ask, Checked};
use super::engine::Engine;
use super::placed::ledger::TableRead;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, SystemTime};
use tidewire_change::text::timestamp_text;
use tidewire_change::{Datum, Error, Row, TableName};
use tidewire_connector::{Heard, Signal, SignalFacts};
use tidewire_envelope::debezium::signal::{Meaning, Names, Wanted};
use tokio::time::Instant;

/// Signals that may stand in line, and the size of one.
const MOST: usize = 1000;
const MOST_BYTES: usize = 64 << 10;
/// Refused ones that are told of.
const TOLD: usize = 5;
/// For so long, unless another of its kind is carried out.
const TOLD_FOR: Duration = Duration::from_secs(24 * 3600);
/// The kind that asks for reads.
const READ: &str = "execute-snapshot";
/// The channel that is the log.
const SOURCE: &str = "source";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Signals {
    #[serde(default, skip_serializing_if = "VecDeque::is_empty")]
    waiting: VecDeque<Waiting>,
    /// By channel: the place behind what was taken in.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    heard: BTreeMap<String, String>,
    /// Reads that signals asked for wait.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_paused: bool,
    /// In memory only: the table (oid) whose new rows are signals.
    #[serde(skip)]
    pub table: Option<u32>,
    #[serde(skip)]
    carried_out: u64,
    #[serde(skip)]
    refused: VecDeque<Refused>,
}

/// What was not carried out.
#[derive(Clone, Debug, PartialEq)]
struct Refused {
    at: SystemTime,
    kind: String,
    /// Which, and why.
    what: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Waiting {
    channel: String,
    signal: Signal,
    /// In memory only: the catalog was looked at for the tables that it names.
    #[serde(skip)]
    has_looked: bool,
}

/// What is to be read for a signal: tables (oids), each with a condition perhaps.
type Reading = Vec<(u32, Option<String>)>;

/// How far one got.
enum Step {
    Done,
    /// A question is on its way.
    Waits,
}

impl Signals {
    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.heard.is_empty() && !self.is_paused
    }

    /// A row that was inserted into the table for signals: its first three columns, whatever they are called.
    pub fn row(&mut self, row: &Row) {
        let text = |at: usize| match row.get(at) {
            Some(Datum::Text(text)) => String::from_utf8_lossy(text).into_owned(),
            _ => String::new(),
        };
        let signal = Signal { id: text(0), kind: text(1), data: text(2) };
        if row.len() < 3 {
            let why = "its table must have three columns: id, type and data";
            return self.refuse(SOURCE, &signal, why);
        }
        self.line_up(SOURCE, signal);
    }

    /// What a channel tells; nothing, if it was told before. True: it is new.
    fn take(&mut self, channel: &str, heard: Heard) -> bool {
        if self.heard.get(channel) == Some(&heard.place) {
            return false;
        }
        self.heard.insert(channel.to_string(), heard.place);
        heard.signals.into_iter().for_each(|signal| self.line_up(channel, signal));
        true
    }

    fn line_up(&mut self, channel: &str, signal: Signal) {
        let bytes = signal.id.len() + signal.kind.len() + signal.data.len();
        match () {
            () if bytes > MOST_BYTES => self.refuse(channel, &signal, "it is larger than 64 kB"),
            () if self.waiting.len() >= MOST => self.refuse(channel, &signal, "a thousand others wait before it"),
            () => self.waiting.push_back(Waiting { channel: channel.to_string(), signal, has_looked: false }),
        }
    }

    fn refuse(&mut self, channel: &str, signal: &Signal, why: &str) {
        let short = |text: &str| text.chars().take(100).collect::<String>();
        let (id, kind) = (short(&signal.id), short(&signal.kind));
        tracing::error!(channel, id, kind, why, "a signal is not carried out");
        let what = format!("{kind} {id:?} (channel {channel}): {why}");
        self.note_refused(signal.kind.clone(), what);
    }

    fn note_refused(&mut self, kind: String, what: String) {
        if self.refused.len() == TOLD {
            self.refused.pop_front();
        }
        self.refused.push_back(Refused { at: SystemTime::now(), kind, what });
    }

    /// A read that a signal had asked for was given up.
    pub fn gave_up(&mut self, table: &TableName, condition: &str, error: &Error) {
        let what =
            format!("{READ} of {table} where {condition}: its rows could not be read, and it was given up: {error}");
        self.note_refused(READ.to_string(), what);
    }

    /// What was amiss with earlier ones of a kind is mended.
    fn succeeded(&mut self, kind: &str) {
        self.carried_out += 1;
        self.refused.retain(|refused| refused.kind != kind);
    }

    pub fn facts(&self, wanted: Option<&TableName>) -> SignalFacts {
        SignalFacts {
            heard: self.heard.clone(),
            is_paused: self.is_paused,
            waiting: self.waiting.len() as u64,
            carried_out: self.carried_out,
            refused: self.refused.iter().filter_map(Refused::told).collect(),
            lacks_table: wanted.filter(|_| self.table.is_none()).map(TableName::to_string),
        }
    }
}

impl Refused {
    /// None: it was long ago.
    fn told(&self) -> Option<String> {
        let is_old = self.at.elapsed().is_ok_and(|age| age > TOLD_FOR);
        let seconds = SystemTime::UNIX_EPOCH.elapsed().ok().zip(self.at.elapsed().ok());
        let at = seconds.map_or(0, |(now, age)| now.saturating_sub(age).as_secs() as i64);
        let mut text = String::new();
        timestamp_text(at * 1_000_000, &mut text);
        (!is_old).then(|| format!("{text}Z {}", self.what))
    }
}

impl Engine {
    /// Which of the tables is the one for signals.
    pub(super) fn find_signals(&mut self) {
        let wanted = self.shared.config.signals.as_ref();
        let mut tables = self.tables.by_oid.values();
        self.reads.signals.table =
            wanted.and_then(|name| tables.find(|table| table.def.table() == *name)).map(|table| table.def.root.oid);
    }

    pub(super) fn hear(&mut self, channel: &str, heard: Heard) {
        if self.reads.signals.take(channel, heard) {
            self.reads.dirty = true;
            self.batch.is_due = true;
        }
    }

    /// Carries out what stands in line, one after the other.
    pub(super) fn carry_out(&mut self, now: Instant) {
        while let Some(first) = self.reads.signals.waiting.front().cloned() {
            // Whoever waits until all is read must see that something is still to be asked for.
            self.timers.status = now;
            if self.is_asked(|ask| matches!(ask, Ask::Check(_)))
                || (first.has_looked && self.is_asked(|ask| *ask == Ask::Catalog))
            {
                return;
            }
            match self.begin(&first) {
                Ok(Step::Waits) => return,
                Ok(Step::Done) => self.leave_line(None),
                Err(why) => self.leave_line(Some(why)),
            }
        }
    }

    fn begin(&mut self, first: &Waiting) -> Result<Step, String> {
        let Waiting { channel, signal, .. } = first;
        match Meaning::of(&signal.kind, &signal.data)? {
            Meaning::Log(message) => tracing::info!(channel, id = signal.id, message, "a signal says"),
            Meaning::Mark => {}
            Meaning::Pause => self.reads.signals.is_paused = true,
            Meaning::Resume => self.reads.signals.is_paused = false,
            Meaning::Stop(names) => {
                let count = self.reads.stop_asked(&self.meant(names.as_ref()));
                tracing::info!(channel, id = signal.id, count, "reads that signals had asked for are given up");
            }
            Meaning::Read(wanted) => return self.begin_reading(first, &wanted),
        }
        Ok(Step::Done)
    }

    fn begin_reading(&mut self, first: &Waiting, wanted: &Wanted) -> Result<Step, String> {
        let names: Vec<(String, String)> = self.tables.by_oid.values().map(|table| parts(&table.def.table())).collect();
        let mut lone = wanted.names.unmatched(&names);
        lone.extend(wanted.idle_conditions(&names));
        if !lone.is_empty() && !first.has_looked {
            // A table that was made a moment ago.
            if let Some(waiting) = self.reads.signals.waiting.front_mut() {
                waiting.has_looked = true;
            }
            self.ask(Ask::Catalog);
            return Ok(Step::Waits);
        }
        if !lone.is_empty() {
            return Err(format!("no table that is followed is called {}", lone.join(", ")));
        }
        let reading = self.reading(wanted)?;
        let conditions: Vec<(TableName, String)> = reading
            .iter()
            .filter_map(|(oid, condition)| Some((self.tables.by_oid.get(oid)?.def.table(), condition.clone()?)))
            .collect();
        match conditions.is_empty() {
            true => {
                self.read_for_signal(reading);
                Ok(Step::Done)
            }
            false => {
                self.ask(Ask::Check(conditions));
                Ok(Step::Waits)
            }
        }
    }

    fn reading(&self, wanted: &Wanted) -> Result<Reading, String> {
        let mut reading = Vec::new();
        for (oid, table) in &self.tables.by_oid {
            let name = table.def.table();
            let (schema, table_name) = parts(&name);
            if !wanted.names.matches(&schema, &table_name) {
                continue;
            }
            let condition = wanted.condition(&schema, &table_name)?;
            if condition.is_some() && !table.has_key() {
                return Err(format!("{name} has no key, so single rows of it can't be placed: read the whole table"));
            }
            if condition.is_some() && table.is_skipped() {
                return Err(format!("{name} is parked: mend what it is parked for, then read the whole table"));
            }
            reading.push((*oid, condition));
        }
        Ok(reading)
    }

    fn read_for_signal(&mut self, reading: Reading) {
        for (oid, condition) in reading {
            let Some(table) = self.tables.by_oid.get(&oid) else { continue };
            tracing::info!(table = %table.def.table(), condition, "a signal asks for the table's rows");
            match condition {
                None if table.is_skipped() => self.unpark(oid),
                None => {
                    self.tables.unpark(oid);
                    self.read_table(oid, |read| (read.ahead, read.asked) = (true, true));
                }
                Some(condition) => {
                    let mut read = TableRead::new(0, oid);
                    (read.condition, read.ahead, read.asked) = (Some(condition), true, true);
                    self.reads.request(read);
                }
            }
        }
    }

    /// The server has looked at the conditions of the first in line.
    pub(super) fn checked(&mut self, checked: Checked) {
        let Some(first) = self.reads.signals.waiting.front().cloned() else { return };
        match checked {
            Checked::Later => {}
            Checked::Refused(why) => self.leave_line(Some(why)),
            Checked::Fine => {
                let reading = match Meaning::of(&first.signal.kind, &first.signal.data) {
                    Ok(Meaning::Read(wanted)) => self.reading(&wanted),
                    Ok(_) => Ok(Vec::new()),
                    Err(why) => Err(why),
                };
                match reading {
                    Ok(reading) => {
                        self.read_for_signal(reading);
                        self.leave_line(None);
                    }
                    Err(why) => self.leave_line(Some(why)),
                }
            }
        }
    }

    fn leave_line(&mut self, refused: Option<String>) {
        let signals = &mut self.reads.signals;
        let Some(first) = signals.waiting.pop_front() else { return };
        match refused {
            Some(why) => signals.refuse(&first.channel, &first.signal, &why),
            None => signals.succeeded(&first.signal.kind),
        }
        self.reads.dirty = true;
        self.batch.is_due = true;
        self.show();
    }

    /// Tables (oids) of these names; none: all.
    fn meant(&self, names: Option<&Names>) -> Vec<u32> {
        let is_meant = |name: &TableName| names.is_none_or(|names| names.matches(&name.schema, &name.name));
        self.tables.by_oid.iter().filter(|(_, table)| is_meant(&table.def.table())).map(|(oid, _)| *oid).collect()
    }
}

fn parts(name: &TableName) -> (String, String) {
    (name.schema.to_string(), name.name.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heard(place: &str, ids: &[&str]) -> Heard {
        let signal = |id: &&str| Signal { id: id.to_string(), kind: "log".into(), data: String::new() };
        Heard { place: place.into(), signals: ids.iter().map(signal).collect() }
    }

    #[test]
    fn what_a_channel_tells_again_is_taken_in_once_also_after_a_restart() {
        let mut signals = Signals::default();
        assert!(signals.take("kafka", heard("2", &["a", "b"])));
        let text = serde_json::to_string(&signals).unwrap();
        let mut signals: Signals = serde_json::from_str(&text).unwrap();
        assert!(!signals.take("kafka", heard("2", &["a", "b"])));
        assert!(signals.take("kafka", heard("3", &["c"])));
        let ids: Vec<&str> = signals.waiting.iter().map(|waiting| waiting.signal.id.as_str()).collect();
        assert_eq!(ids, ["a", "b", "c"]);
    }

    #[test]
    fn a_refusal_is_told_with_its_time_until_one_of_its_kind_is_carried_out_or_a_day_has_passed() {
        let signal = |kind: &str| Signal { id: "1".into(), kind: kind.into(), data: String::new() };
        let mut signals = Signals::default();
        signals.refuse(SOURCE, &signal(READ), "no table is called so");
        signals.gave_up(&TableName::new("public", "t"), "1 / n > 0", &Error::invalid("division by zero"));
        signals.refuse(SOURCE, &signal("log"), "it is odd");
        let told = signals.facts(None).refused;
        assert!(
            told.len() == 3 && told[1].contains("public.t where 1 / n > 0") && told[1].starts_with("20"),
            "{told:?}"
        );
        signals.succeeded(READ);
        let told = signals.facts(None).refused;
        assert!(told.len() == 1 && told[0].contains("it is odd"), "{told:?}");
        signals.refused[0].at -= TOLD_FOR + Duration::from_secs(1);
        assert!(signals.facts(None).refused.is_empty());
    }

    #[test]
    fn rows_that_are_no_signals_and_signals_without_bound_are_refused_and_told() {
        let mut signals = Signals::default();
        signals.row(&Row::from_datums([Datum::Text(b"1"), Datum::Text(b"log")]));
        let large = vec![b'x'; MOST_BYTES];
        signals.row(&Row::from_datums([Datum::Text(b"2"), Datum::Text(b"log"), Datum::Text(&large)]));
        assert!(signals.waiting.is_empty());
        for n in 0..=MOST {
            let id = n.to_string();
            signals.row(&Row::from_datums([Datum::Text(id.as_bytes()), Datum::Text(b"log"), Datum::Null]));
        }
        let facts = signals.facts(None);
        assert_eq!((facts.waiting, facts.refused.len()), (MOST as u64, 3));
        for (told, word) in facts.refused.iter().zip(["three columns", "64 kB", "a thousand"]) {
            assert!(told.contains(word), "{told}");
        }
    }
}
