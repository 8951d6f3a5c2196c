//! What others were promised of the tables' messages: before anything under a schema goes out, the bus is asked whether it may. A table whose
//! schema it doesn't take is parked, and its topics stand where they did before the batch that brought it.

use super::order::TopicOrder;
use super::reading::Command;
use super::resume::Topic;
use super::source::{TopicsSource, Work};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{ErrorKind, Result, Schema, TableName};
use tidewire_connector::{hurries, Contract, Refusal};
use tokio::time::Instant;

#[derive(Default)]
pub(super) struct Promise {
    /// None: nothing was promised.
    pub contract: Option<Arc<dyn Contract>>,
    /// What was answered, by the schemas' addresses, which stay taken.
    answered: HashMap<usize, (Arc<Schema>, Option<Refusal>)>,
    /// The topics of the batch under way, as they stood before it.
    before: BTreeMap<String, Topic>,
    /// When what was refused is asked again; none: nothing was.
    again: Option<Instant>,
}

/// Schemas that are remembered; a source has one a table and version.
const REMEMBERED: usize = 4096;
/// Between two questions whether a refused table may go out by now, and how long the answer may take: the topics wait for it.
const AGAIN: Duration = Duration::from_secs(30);
const PATIENCE: Duration = Duration::from_secs(5);

fn address(schema: &Arc<Schema>) -> usize {
    Arc::as_ptr(schema) as usize
}

impl Promise {
    pub fn of(contract: Arc<dyn Contract>) -> Promise {
        Promise { contract: Some(contract), ..Promise::default() }
    }

    /// Notes where the topics stand.
    pub fn begin(&mut self, topics: &BTreeMap<String, Topic>, work: &Work) {
        if self.contract.is_none() {
            return;
        }
        let names = work.raw.records.iter().map(|record| &*record.topic);
        self.before = names.filter_map(|name| Some((name.to_string(), topics.get(name)?.clone()))).collect();
    }

    /// Until what was refused is to be asked again. Cancel-safe.
    pub async fn is_due(again: Option<Instant>) {
        match again {
            Some(at) => tokio::time::sleep_until(at).await,
            None => std::future::pending().await,
        }
    }

    pub fn again(&self) -> Option<Instant> {
        self.again
    }

    /// What was refused is asked again.
    pub fn forget_refusals(&mut self) {
        self.again = None;
        self.answered.retain(|_, (_, why)| why.is_none());
    }

    fn unasked(&self, work: &Work) -> Option<Arc<Schema>> {
        let schemas = work.out.changes.chunk_by(|a, b| Arc::ptr_eq(&a.schema, &b.schema)).map(|same| &same[0].schema);
        schemas.into_iter().find(|schema| !self.answered.contains_key(&address(schema))).cloned()
    }

    fn refusal(&self, schema: &Arc<Schema>) -> Option<&Refusal> {
        self.answered.get(&address(schema))?.1.as_ref()
    }
}

fn pause() -> Duration {
    if hurries() {
        AGAIN / 30
    } else {
        AGAIN
    }
}

impl TopicsSource {
    /// Somebody may have mended what tables were refused for: their topics are read on then, from where they were left.
    pub(super) async fn ask_again(&mut self) -> Result<()> {
        self.promise.again = Some(Instant::now() + pause());
        let Some(contract) = self.promise.contract.clone() else { return Ok(()) };
        let refused = self.promise.answered.values().filter(|(_, why)| why.is_some()).map(|(schema, _)| schema.clone());
        for schema in refused.collect::<Vec<_>>() {
            match tokio::time::timeout(PATIENCE, contract.takes(schema.clone())).await {
                Ok(Ok(None)) => {
                    tracing::info!(table = %schema.table, "the table's schema is taken now: its topics are read on");
                    let here = self.resume.checkpoint(0)?;
                    return self.begin(Some(here), false).await;
                }
                Ok(Ok(Some(_))) => {}
                Ok(Err(error)) if error.kind() != ErrorKind::Unavailable => return Err(error),
                // Nobody answers: nothing waits for it.
                Ok(Err(_)) | Err(_) => break,
            }
        }
        Ok(())
    }

    /// Asks for schemas that come up for the first time; the batch stands in `work` meanwhile.
    pub(super) async fn ask_for_schemas(&mut self) -> Result<()> {
        let Some(contract) = self.promise.contract.clone() else { return Ok(()) };
        while let Some(schema) = self.work.as_ref().and_then(|work| self.promise.unasked(work)) {
            let answer = contract.takes(schema.clone()).await?;
            if self.promise.answered.len() >= REMEMBERED {
                self.promise.answered.retain(|_, (_, why)| why.is_some());
            }
            self.promise.answered.insert(address(&schema), (schema, answer));
        }
        Ok(())
    }

    /// Takes what can't go out from the batch.
    pub(super) fn hold_back(&mut self, work: &mut Work) {
        let mut refused: BTreeMap<TableName, Refusal> = BTreeMap::new();
        for change in &work.out.changes {
            if let Some(refusal) = self.promise.refusal(&change.schema) {
                refused.entry(change.schema.table.clone()).or_insert_with(|| refusal.clone());
            }
        }
        if refused.is_empty() {
            return;
        }
        work.out.changes.retain(|change| !refused.contains_key(&change.schema.table));
        let of_refused = |topic: &Topic| topic.table.as_ref().and_then(|table| refused.get_key_value(table));
        let topics: Vec<(String, TableName, Refusal)> = self
            .resume
            .topics
            .iter()
            .filter_map(|(name, topic)| {
                of_refused(topic).map(|(table, refusal)| (name.clone(), table.clone(), refusal.clone()))
            })
            .collect();
        for (name, table, Refusal { why, passes }) in topics {
            tracing::error!(topic = name, table = %table, why, "the topic isn't read, the others go on");
            work.out.rejected.retain(|letter| letter.topic != name);
            let before = self.promise.before.remove(&name);
            let known = self.resume.topics.entry(name.clone()).or_default();
            // One that came up in this batch stands at its beginning.
            let order = TopicOrder::begin((self.config.kafka.now)());
            *known = before.unwrap_or_else(|| Topic { id: known.id, life: known.life, order, ..Topic::default() });
            let topic: Arc<str> = name.into();
            let then = if passes { "when it is taken, which is asked by itself" } else { "by the next start" };
            let why = format!("{why}. Its topics are read again from here {then}");
            self.promise.again.get_or_insert_with(|| Instant::now() + pause());
            self.parked.insert(topic.clone(), (table, why));
            let _ = self.handle.tell(Command::Leave(topic));
        }
    }
}
