//! From records to changes, one after the other.

use super::keys::unknown;
use super::order::{self, Placed, TopicOrder};
use super::reading::{Command, Record};
use super::resume::{Partition, Topic};
use super::source::{Step, TopicsSource, Work};
use super::tables::{may_be_outdated, Refusal, Seen};
use super::truncates::is_in_each_partition;
use super::writers::{Part, Writer};
use std::time::Duration;
use tidewire_change::{Change, Error, Key, Op, Position, TableName};
use tidewire_connector::{ChangeBatch, Rejected};
use tidewire_envelope::debezium::{is_nothing, AvroWriter, Facts, Glance, Place, What};
use tidewire_flow::key_hash128;

/// Between two questions what a table looks like elsewhere.
const ASK_AGAIN: Duration = Duration::from_secs(10);
/// Messages in a row that lie behind what was told: then it is worth a word.
const BEHIND: u32 = 1000;

impl TopicsSource {
    /// Takes the batch's records, one after the other.
    pub(super) fn step(&mut self, work: &mut Work) -> Step {
        if let Some(gone) = work.raw.gone.take() {
            self.gone = gone;
        }
        for (topic, id) in &work.raw.found {
            let now = (self.config.kafka.now)();
            let known = self
                .resume
                .topics
                .entry(topic.to_string())
                .or_insert_with(|| Topic { order: TopicOrder::begin(now), ..Topic::default() });
            // One of its name that is another: its offsets begin anew, the order of its changes goes on.
            if known.id != *id {
                let is_another = known.id.is_some();
                known.life += u32::from(is_another);
                known.partitions.values_mut().for_each(|partition| partition.next = 0);
                known.id = *id;
                if is_another {
                    self.resume.lying.retain(|lies| lies.topic != **topic);
                    self.tables.forget_places(topic);
                }
            }
        }
        for (topic, partition) in work.raw.anew.drain(..) {
            if let Some(known) = self.resume.topics.get_mut(&*topic) {
                known.partitions.entry(partition).or_default().next = 0;
            }
        }
        while let Some(record) = work.raw.records.get(work.at) {
            if !self.parked.contains_key(&record.topic) {
                if let Some(reference) = self.config.registry.as_ref().and_then(|_| self.writers.lacks(record)) {
                    return Step::Fetch(reference);
                }
                match self.record(record, &mut work.out) {
                    Ok(()) => {}
                    Err(Refusal::Untold) => return Step::Ask,
                    Err(refusal) => {
                        let may_ask = self.config.definitions.is_some()
                            && may_be_outdated(&refusal)
                            && self.asked.is_none_or(|at| at.elapsed() >= ASK_AGAIN);
                        if may_ask {
                            return Step::Ask;
                        }
                        self.refuse(record, refusal, &mut work.out);
                    }
                }
            }
            work.at += 1;
        }
        Step::Done
    }

    fn refuse(&mut self, record: &Record, refusal: Refusal, out: &mut ChangeBatch) {
        match self.alone(record, refusal) {
            Refusal::Unknown(table) => self.park(record, unknown(&table)),
            Refusal::Topic(why) => self.park(record, why),
            Refusal::Untold => self.park(record, "nobody was asked what its columns are".to_string()),
            Refusal::Bad(error) => {
                let (topic, partition, offset) = (record.topic.to_string(), record.partition, record.offset);
                let reason = error.to_string();
                tracing::error!(topic, partition, offset, reason, "a message goes to the dead letters");
                let life = self.topic(record).life;
                out.rejected.push(Rejected {
                    topic,
                    life,
                    partition,
                    offset,
                    key: record.key.clone().unwrap_or_default(),
                    value: record.value.clone(),
                    table: error.table().map(str::to_string),
                    reason,
                    timestamp: record.time,
                });
                self.resume.counts.refused += 1;
                self.pass(record, None);
            }
        }
    }

    fn park(&mut self, record: &Record, why: String) {
        let table = self.table_of(record, &Facts::default());
        tracing::error!(topic = &*record.topic, "the topic isn't read: {why}");
        self.parked.insert(record.topic.clone(), (table, why));
        let _ = self.handle.tell(Command::Leave(record.topic.clone()));
    }

    /// A stray message of a table that nobody tells the columns of, in a topic whose table is known, holds up nothing but itself.
    fn alone(&mut self, record: &Record, refusal: Refusal) -> Refusal {
        let Refusal::Unknown(table) = refusal else { return refusal };
        let own = self.topic(record).table.clone().or_else(|| {
            let named = self.table_of(record, &Facts::default());
            self.tables.get_mut(&named).is_some().then_some(named)
        });
        match own {
            Some(own) if own != table => Refusal::Bad(
                Error::malformed(format!("the topic is of {own}, and the message of {table}: {}", unknown(&table)))
                    .on_table(&table),
            ),
            _ => Refusal::Unknown(table),
        }
    }

    /// Notes that a record was read.
    pub(super) fn pass(&mut self, record: &Record, at: Option<i64>) {
        self.resume.counts.read += 1;
        let partition = self.partition(record);
        partition.next = partition.next.max(record.offset + 1);
        partition.at = partition.at.max(told_time(at, record));
    }

    fn record(&mut self, record: &Record, out: &mut ChangeBatch) -> Result<(), Refusal> {
        let known = self.resume.topics.get(&*record.topic).and_then(|topic| topic.partitions.get(&record.partition));
        if known.is_some_and(|known| record.offset < known.next) {
            return Ok(());
        }
        if self.config.registry.is_some() {
            return self.by_schema(record, out);
        }
        // JSON never begins so. In a topic of which something was read it is one message of somebody else.
        if record.value.first() == Some(&0) && self.topic(record).table.is_none() {
            let why = "its messages begin with a zero byte, as those do whose schemas a registry holds: say where by source.debezium.registry";
            return Err(Refusal::Topic(why.to_string()));
        }
        let key = record.key.as_deref().filter(|key| !key.is_empty() && *key != b"null");
        if is_nothing(&record.value) {
            return self.tombstone(record, key, out);
        }
        let mut glance = self.looks.at(&record.value, self.config.unwrapped)?;
        glance.also(&record.added)?;
        self.looked_at(record, key, glance, None, out)
    }

    /// A message by a registry's schemas: envelopes in Avro are read as they are, anything else and keys as the JSON that they are or would be.
    fn by_schema(&mut self, record: &Record, out: &mut ChangeBatch) -> Result<(), Refusal> {
        let (mut key, passes_over) = (Vec::new(), self.config.ignores_extra);
        if let Some(bytes) = record.key.as_deref().filter(|key| !key.is_empty()) {
            let part = self.writers.part(&record.headers[0], bytes, "key")?;
            if !part.is_position() {
                part.json(passes_over, &mut key)?;
            }
        }
        let key = Some(&key[..]).filter(|key| !key.is_empty());
        if record.value.is_empty() {
            return self.tombstone(record, key, out);
        }
        let part = self.writers.part(&record.headers[1], &record.value, "value")?;
        if let Part { writer: Writer::Avro(writer), body } = &part {
            if writer.is_envelope() && writer.tells_types() && !self.config.unwrapped {
                return self.looked_at(record, key, writer.glance(body)?, Some(writer.as_ref()), out);
            }
        }
        let mut json = Vec::new();
        part.json(passes_over, &mut json)?;
        let mut glance = Glance::of(&json, self.config.unwrapped)?;
        glance.also(&record.added)?;
        glance.schema = match &part.writer {
            Writer::Avro(writer) => self.schema_in_avro(record, writer, &glance)?,
            Writer::Protobuf(writer) => self.schema_in_protobuf(record, writer, &glance)?,
            Writer::Json => glance.schema,
        };
        self.looked_at(record, key, glance, None, out)
    }

    /// `writer`: whose rows are Avro.
    fn looked_at(
        &mut self,
        record: &Record,
        key: Option<&[u8]>,
        glance: Glance<'_>,
        writer: Option<&AvroWriter>,
        out: &mut ChangeBatch,
    ) -> Result<(), Refusal> {
        let What::Change(op) = glance.what else {
            self.resume.counts.aside += 1;
            self.pass(record, glance.facts.at);
            return Ok(());
        };
        let table = self.table_of(record, &glance.facts);
        let lacks_its_schema = glance.schema.is_none() && self.topic(record).has_schemas;
        let is_moved = record.is_moved;
        let seen = Seen { table: table.clone(), op, glance, writer, key, lacks_its_schema, is_moved };
        let time = told_time(seen.glance.facts.at, record);
        if op == Op::Truncate && self.is_early(&seen) {
            return self.keep_early(record, &seen, time);
        }
        let changes = self.tables.read(&seen, &self.config, Place { position: Position::ZERO, time })?;
        let placed = self.place(record, &seen.glance.facts, op)?;
        self.told(&table, &placed);
        if op != Op::Truncate {
            self.tell_early(&table, &changes, out);
        }
        match matches!(changes.first().map(|change| &change.schema.key), Some(Key::Columns(_))) {
            true => self.give_keyed(&placed, changes, out),
            false => self.give_keyless(record, &placed, &seen.glance.facts, op, changes, out)?,
        }
        self.pass(record, Some(time));
        self.partition(record).deleted = if op == Op::Delete { key.map_or(0, hash) } else { 0 };
        let topic = self.topic(record);
        topic.has_schemas |= seen.glance.schema.is_some();
        topic.table.get_or_insert(table);
        Ok(())
    }

    fn give_keyed(&mut self, placed: &Placed, mut changes: Vec<Change>, out: &mut ChangeBatch) {
        if let Some((below, change)) = placed.renewed.zip(changes.first()) {
            self.renewed(below, change, out);
        }
        for change in &mut changes {
            change.position = placed.position;
        }
        self.give(changes, out);
    }

    /// Rows without a key are known by their position, or whole: each takes one of its own, in the order in which they came, and what
    /// is told again counts once.
    fn give_keyless(
        &mut self,
        record: &Record,
        placed: &Placed,
        facts: &Facts<'_>,
        op: Op,
        mut changes: Vec<Change>,
        out: &mut ChangeBatch,
    ) -> Result<(), Refusal> {
        let Some(name) = changes.first().map(|change| change.schema.table.clone()) else { return Ok(()) };
        if placed.is_again {
            self.resume.counts.aside += 1;
            return Ok(());
        }
        let place = (record.topic.clone(), record.partition);
        let table = self.tables.get_mut(&name).ok_or_else(|| Error::bug("a change of no table"))?;
        table.recall_place(&self.resume.lying);
        let is_elsewhere = table.place.as_ref().is_some_and(|of| *of != place);
        let is_one_of_many = op == Op::Truncate && is_in_each_partition(facts);
        // The one beside the rows counts. Where there are none yet, they will lie in the first partition.
        let counts = if table.place.is_some() { !is_elsewhere } else { record.partition == 0 };
        if is_one_of_many && !table.is_scattered && !counts {
            self.resume.counts.aside += 1;
            return Ok(());
        }
        if !matches!(op, Op::Create | Op::Read) && (table.is_scattered || is_elsewhere) {
            let what = format!(
                "rows of {name}, which has no key, lie in several partitions: in which order they changed isn't told"
            );
            let error = Error::malformed(what).hint("name the columns that make a row one: source.debezium.tables");
            return Err(error.on_table(&name).into());
        }
        if !is_one_of_many && table.lies_at(place) {
            table.note_place(&mut self.resume.lying);
        }
        if placed.begins {
            self.topic(record).order.keyless_below();
        }
        if let Some((below, change)) = placed.renewed.zip(changes.first()) {
            self.renewed(below, change, out);
        }
        for change in &mut changes {
            change.position = self.topic(record).order.arrive();
        }
        self.give(changes, out);
        Ok(())
    }

    /// Behind a delete it says nothing new. Where the delete was compacted away, or the topic is unwrapped, it is the delete.
    fn tombstone(&mut self, record: &Record, key: Option<&[u8]>, out: &mut ChangeBatch) -> Result<(), Refusal> {
        let is_told = match key {
            Some(key) => self.partition(record).deleted == hash(key),
            None => true,
        };
        let place = Place { position: order::behind(&self.partition(record).order), time: record.time };
        // The table of which rows came from this topic.
        let known = self.topic(record).table.clone();
        if let (false, Some(key), Some(table)) = (is_told, key, known) {
            let mut change = self.tables.delete(&table, key, &self.config, place)?;
            if self.config.unwrapped {
                change.position = self.place(record, &Facts::of_headers(&record.added)?, Op::Delete)?.position;
            }
            self.give(vec![change], out);
            self.partition(record).deleted = hash(key);
        } else {
            self.resume.counts.aside += 1;
        }
        self.pass(record, None);
        Ok(())
    }

    pub(super) fn place(&mut self, record: &Record, facts: &Facts<'_>, op: Op) -> Result<Placed, Refusal> {
        let topic = self.resume.topics.entry(record.topic.to_string()).or_default();
        let partition = topic.partitions.entry(record.partition).or_default();
        order::place(&mut topic.order, &mut partition.order, facts, op)
            .map_err(|what| Refusal::Bad(Error::malformed(what)))
    }

    pub(super) fn topic(&mut self, record: &Record) -> &mut Topic {
        self.resume.topics.entry(record.topic.to_string()).or_default()
    }

    pub(super) fn partition(&mut self, record: &Record) -> &mut Partition {
        self.topic(record).partitions.entry(record.partition).or_default()
    }

    fn give(&mut self, changes: Vec<Change>, out: &mut ChangeBatch) {
        self.resume.counts.changes += 1;
        for change in changes {
            self.resume.reached = self.resume.reached.max(change.position);
            if let Some(table) = self.tables.get_mut(&change.schema.table) {
                table.rows[usize::from(change.op != Op::Read)] += 1;
            }
            out.changes.push(change);
        }
    }

    /// A later snapshot has told its last row: rows below it are in it, or gone.
    fn renewed(&mut self, below: Position, change: &Change, out: &mut ChangeBatch) {
        if !self.config.replaces {
            return;
        }
        out.changes.push(Change { op: Op::Truncate, position: below, before: None, after: None, ..change.clone() });
        self.resume.reached = self.resume.reached.max(below);
    }

    /// What should be known of how the table's changes are placed.
    pub(super) fn told(&mut self, table: &TableName, placed: &Placed) {
        if placed.by_arrival {
            self.note(table, "messages don't tell their place (source.lsn, source.sequence): changes count in the order of their topic, \
                              and one that is delivered again counts again");
        }
        let behind = self.behind.entry(table.clone()).or_default();
        *behind = if placed.is_again { behind.saturating_add(1) } else { 0 };
        if *behind == BEHIND {
            self.note(table, "a thousand messages in a row are older than what was told before, and change nothing: if the database's log \
                              began anew, have the connector take a snapshot");
        }
    }

    pub(super) fn note(&mut self, table: &TableName, what: &str) {
        if self.notes.entry(table.clone()).or_default().insert(what.to_string()) {
            tracing::warn!(table = %table, "{what}");
        }
    }

    /// The table that a message is of: as `source` names it, else as the topic's name ends.
    pub(super) fn table_of(&self, record: &Record, facts: &Facts<'_>) -> TableName {
        let mut words = record.topic.rsplit('.');
        let last = words.next().unwrap_or_default();
        let before = words.next();
        let text = |inside: Option<&[u8]>| inside.and_then(|name| facts.name(name)).filter(|name| !name.is_empty());
        let (schema, table) = (text(facts.schema), text(facts.table));
        // MySQL has no schemas: its databases stand for them.
        let database = text(facts.database).filter(|_| facts.is_of_binlog());
        let schema = schema.or(database).or(before.map(str::to_string)).unwrap_or_else(|| "public".to_string());
        TableName::new(schema, table.unwrap_or_else(|| last.to_string()))
    }
}

/// When it was committed. Some connectors write 0 for rows of snapshots: then when the message was written.
fn told_time(at: Option<i64>, record: &Record) -> i64 {
    at.filter(|at| *at > 0).unwrap_or(record.time)
}

fn hash(key: &[u8]) -> u64 {
    (key_hash128(key) as u64).max(1)
}
