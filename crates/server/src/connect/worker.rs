//! All connectors of this process, and what may be asked of them.

use super::ask::{Ask, Of};
use super::connector::{Connector, State};
use super::secrets::masked;
use super::store::{Kept, Store, Target};
use super::{answers, offsets, Maker, Plan, Properties, Refusal};
use serde_json::{json, Value};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};
use tidewire_change::Result;
use tidewire_pipeline::Running;
use tokio::task::JoinHandle;

pub struct Worker {
    pub(super) maker: Arc<dyn Maker>,
    store: Arc<Store>,
    /// Where it answers: Connect's name of a worker.
    id: RwLock<String>,
    connectors: RwLock<BTreeMap<String, Entry>>,
    /// One change at a time.
    changes: tokio::sync::Mutex<()>,
}

pub(super) struct Entry {
    pub(super) connector: Arc<Connector>,
    task: JoinHandle<()>,
}

/// What is answered.
#[derive(Debug)]
pub(super) struct Reply {
    pub status: u16,
    pub body: Body,
    pub headers: Vec<(&'static str, String)>,
}

#[derive(Debug)]
pub(super) enum Body {
    Nothing,
    Json(Value),
    Text(String),
}

impl Reply {
    fn empty(status: u16) -> Reply {
        Reply { status, body: Body::Nothing, headers: Vec::new() }
    }

    fn json(status: u16, body: Value) -> Reply {
        Reply { status, body: Body::Json(body), headers: Vec::new() }
    }
}

type Answer = Result<Reply, Refusal>;

impl Worker {
    /// Starts the connectors that the folder knows. `Invalid`: another process owns it.
    pub fn start(folder: &Path, maker: Arc<dyn Maker>) -> Result<Arc<Worker>> {
        let store = Arc::new(Store::open(folder)?);
        let known = store.load()?;
        let worker = Worker {
            maker,
            store,
            id: RwLock::default(),
            connectors: RwLock::default(),
            changes: tokio::sync::Mutex::default(),
        };
        known.into_values().for_each(|kept| worker.add(kept));
        Ok(Arc::new(worker))
    }

    /// Ends all pipelines; the connectors go on at the next start.
    pub async fn end(&self) {
        let _change = self.changes.lock().await;
        let entries = std::mem::take(&mut *self.connectors.write().unwrap_or_else(PoisonError::into_inner));
        entries.values().for_each(|entry| entry.connector.end());
        for entry in entries.into_values() {
            if let Err(error) = entry.task.await {
                tracing::warn!(%error, "a connector's task ended in an unexpected way");
            }
        }
    }

    pub(super) fn called(&self, id: String) {
        *self.id.write().unwrap_or_else(PoisonError::into_inner) = id;
    }

    pub(super) async fn answer(&self, ask: Ask) -> Answer {
        Ok(match ask {
            Ask::Root => Reply::json(200, answers::root(self.maker.cluster().await)),
            Ask::Health => Reply::json(200, answers::health()),
            Ask::Plugins => Reply::json(200, answers::plugins()),
            Ask::List { expand } => Reply::json(200, self.list(&expand)),
            Ask::Create { name, config, target } => return self.create(&name, config, target).await,
            Ask::Validate { plugin, config } => Reply::json(200, self.validate(&plugin, config)?),
            Ask::Of(name, of) => return self.of(&name, of).await,
        })
    }

    async fn of(&self, name: &str, of: Of) -> Answer {
        Ok(match of {
            Of::Put(config) => return self.put(name, config).await,
            Of::Patch(patch) => return self.patch(name, patch).await,
            Of::Delete => return self.delete(name).await,
            Of::Aim(target) => return self.aim(name, target).await,
            Of::Restart { told, only_failed } => return self.restart(name, told, only_failed).await,
            Of::RestartTask(id) => {
                self.task(name, &id)?;
                self.restart(name, false, false).await?
            }
            Of::Alter(body) => return self.alter(name, body).await,
            Of::Reset => return self.reset(name).await,
            Of::Snapshot(snapshot) => {
                // A clone for a moment: a pipeline that is to end waits for it.
                let running = self.get(name)?.0.look(Running::clone).ok_or_else(|| rests(name))?;
                for (table, condition) in snapshot.tables {
                    running.read_table(&table, condition).await?;
                }
                Reply::empty(202)
            }
            Of::Info => Reply::json(200, answers::info(&self.get(name)?.1)),
            Of::Config => Reply::json(200, json!(masked(&self.get(name)?.1.config))),
            Of::Status => Reply::json(200, self.status(name)?),
            Of::Tasks => Reply::json(200, answers::tasks(&self.get(name)?.1)),
            Of::TaskStatus(id) => {
                self.task(name, &id)?;
                Reply::json(200, self.status(name)?["tasks"][0].take())
            }
            Of::Offsets => {
                let (connector, kept) = self.get(name)?;
                Reply::json(200, offsets::answer(&self.plan(&kept)?.prefix, connector.offset()))
            }
            Of::Topics | Of::ResetTopics => return Err(Refusal::new(403, "Topic tracking is disabled.")),
            Of::Plan => Reply::json(200, answers::plan(&self.plan(&self.get(name)?.1)?)),
            Of::Findings => {
                let found = self.get(name)?.0.look(|running| tidewire_pipeline::diagnose(&running.status()));
                Reply::json(200, json!(found.ok_or_else(|| rests(name))?))
            }
            Of::Metrics => {
                let text = self.get(name)?.0.look(Running::metrics).ok_or_else(|| rests(name))?;
                let headers = vec![("content-type", "text/plain; version=0.0.4".to_owned())];
                Reply { status: 200, body: Body::Text(text), headers }
            }
        })
    }

    fn list(&self, expand: &[String]) -> Value {
        let names: Vec<String> = self.read(|connectors| connectors.keys().cloned().collect());
        if expand.is_empty() {
            return json!(names);
        }
        let one = |name: String| {
            let (_, kept) = self.get(&name).ok()?;
            let mut shown = serde_json::Map::new();
            for what in expand {
                match what.as_str() {
                    "status" => shown.insert("status".into(), self.status(&name).ok()?),
                    "info" => shown.insert("info".into(), answers::info(&kept)),
                    _ => None,
                };
            }
            Some((name, Value::Object(shown)))
        };
        Value::Object(names.into_iter().filter_map(one).collect())
    }

    async fn create(&self, name: &str, config: Properties, target: Target) -> Answer {
        let _change = self.changes.lock().await;
        if self.get(name).is_ok() {
            return Err(Refusal::new(409, format!("Connector {name} already exists")));
        }
        let (config, plan) = self.prepared(name, config, None)?;
        let kept = Kept { name: name.to_owned(), config, target, read_again: false, losses_seen: 0, offset: None };
        self.store.write(&kept)?;
        let body = answers::info(&kept);
        self.add(kept);
        let location = format!("/connectors/{}", tidewire_change::topic::escape(name));
        let headers = answers::unknown(&plan).into_iter().chain([("location", location)]).collect();
        Ok(Reply { status: 201, body: Body::Json(body), headers })
    }

    async fn put(&self, name: &str, config: Properties) -> Answer {
        if self.get(name).is_err() {
            match self.create(name, config.clone(), Target::Running).await {
                // Somebody else was first.
                Err(refusal) if refusal.status == 409 => {}
                created => return created,
            }
        }
        let _change = self.changes.lock().await;
        self.replace(name, config)
    }

    async fn patch(&self, name: &str, patch: BTreeMap<String, Option<String>>) -> Answer {
        let _change = self.changes.lock().await;
        let mut config = masked(&self.get(name)?.1.config);
        for (property, value) in patch {
            match value {
                Some(value) => config.insert(property, value),
                None => config.remove(&property),
            };
        }
        self.replace(name, config)
    }

    fn replace(&self, name: &str, config: Properties) -> Answer {
        let (connector, before) = self.get(name)?;
        let (config, plan) = self.prepared(name, config, Some(&before.config))?;
        if config != before.config {
            connector.change(|kept| kept.config = config)?;
            connector.again();
        }
        let headers = answers::unknown(&plan).into_iter().collect();
        Ok(Reply { status: 200, body: Body::Json(answers::info(&self.get(name)?.1)), headers })
    }

    async fn delete(&self, name: &str) -> Answer {
        let _change = self.changes.lock().await;
        self.get(name)?.0.delete()?;
        let entry = self.connectors.write().unwrap_or_else(PoisonError::into_inner).remove(name);
        if let Some(entry) = entry {
            entry.connector.end();
            // Whoever makes it anew finds nothing of it at work.
            let _ = entry.task.await;
        }
        Ok(Reply::empty(204))
    }

    /// Pauses, resumes or stops it: when this is answered a pipeline that is to rest has ended.
    async fn aim(&self, name: &str, target: Target) -> Answer {
        let _change = self.changes.lock().await;
        let (connector, kept) = self.get(name)?;
        if kept.target != target {
            connector.change(|kept| kept.target = target)?;
            connector.again();
        }
        if target != Target::Running && !connector.settled().await {
            return Err(Refusal::new(500, "Request timed out: the connector is still at its last work"));
        }
        Ok(Reply::empty(if target == Target::Stopped { 204 } else { 202 }))
    }

    /// `told`: the status is answered, too.
    async fn restart(&self, name: &str, told: bool, only_failed: bool) -> Answer {
        let _change = self.changes.lock().await;
        let (connector, kept) = self.get(name)?;
        if kept.target == Target::Running && (!only_failed || connector.seen().state == State::Failed) {
            connector.again();
            connector.settled().await;
        }
        match told {
            true => Ok(Reply::json(202, self.status(name)?)),
            false => Ok(Reply::empty(204)),
        }
    }

    async fn alter(&self, name: &str, body: super::json::Node) -> Answer {
        let _change = self.changes.lock().await;
        let (connector, kept) = self.get(name)?;
        let wanted = offsets::wanted(body, &self.plan(&kept)?.prefix)?;
        offsets::must_rest(&kept, "altered")?;
        match wanted {
            None => connector.change(|kept| kept.read_again = true)?,
            Some(lsn) => offsets::may_be(lsn, connector.offset())?,
        }
        Ok(Reply::json(200, json!({"message": "The offsets for this connector have been altered successfully"})))
    }

    async fn reset(&self, name: &str) -> Answer {
        let _change = self.changes.lock().await;
        let (connector, kept) = self.get(name)?;
        offsets::must_rest(&kept, "reset")?;
        connector.change(|kept| kept.read_again = true)?;
        Ok(Reply::json(200, json!({"message": "The offsets for this connector have been reset successfully"})))
    }

    fn status(&self, name: &str) -> Result<Value, Refusal> {
        let (connector, kept) = self.get(name)?;
        let id = self.id.read().unwrap_or_else(PoisonError::into_inner).clone();
        Ok(answers::status(&kept.name, &connector.seen(), &id))
    }

    fn task(&self, name: &str, id: &str) -> Result<(), Refusal> {
        let (connector, _) = self.get(name)?;
        match connector.seen().state {
            State::Stopped => Err(Refusal::new(404, format!("No status found for task {name}-{id}"))),
            _ if id != "0" => Err(Refusal::new(404, format!("No status found for task {name}-{id}"))),
            _ => Ok(()),
        }
    }

    fn plan(&self, kept: &Kept) -> Result<Plan, Refusal> {
        Ok(self.maker.plan(&kept.config)?)
    }

    pub(super) fn get(&self, name: &str) -> Result<(Arc<Connector>, Kept), Refusal> {
        let connector = self.read(|connectors| connectors.get(name).map(|entry| entry.connector.clone()));
        let found = connector.and_then(|connector| connector.kept().map(|kept| (connector, kept)));
        found.ok_or_else(|| Refusal::new(404, format!("Connector {name} not found")))
    }

    pub(super) fn read<T>(&self, what: impl FnOnce(&BTreeMap<String, Entry>) -> T) -> T {
        what(&self.connectors.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, kept: Kept) {
        let name = kept.name.clone();
        let connector = Connector::new(kept, self.store.clone(), self.maker.clone());
        let task = tokio::spawn(connector.clone().follow());
        self.connectors.write().unwrap_or_else(PoisonError::into_inner).insert(name, Entry { connector, task });
    }
}

fn rests(name: &str) -> Refusal {
    Refusal::new(503, format!("Connector {name} doesn't run"))
}
