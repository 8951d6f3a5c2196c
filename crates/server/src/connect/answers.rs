//! The forms of Connect's answers.

use super::connector::{Seen, State};
use super::secrets::{is_secret, masked};
use super::store::{Kept, Target};
use super::{Plan, Properties, Verdict};
use serde_json::{json, Map, Value};
use tidewire_change::topic::escape;

const CLASS: &str = "io.debezium.connector.postgresql.PostgresConnector";

/// Clients look at the version for what a worker can do: this is the Connect whose API it is, and who serves it.
const VERSION: &str = concat!("4.0.0-tidewire-", env!("CARGO_PKG_VERSION"));

pub(super) fn root(cluster: Option<String>) -> Value {
    json!({"version": VERSION, "commit": "tidewire", "kafka_cluster_id": cluster})
}

pub(super) fn health() -> Value {
    json!({"status": "healthy", "message": "Worker has completed startup and is ready to handle requests."})
}

pub(super) fn plugins() -> Value {
    json!([{"class": CLASS, "type": "source", "version": env!("CARGO_PKG_VERSION")}])
}

pub(super) fn info(kept: &Kept) -> Value {
    let task = json!({"connector": kept.name, "task": 0});
    let tasks = if kept.target == Target::Stopped { vec![] } else { vec![task] };
    json!({"name": kept.name, "config": masked(&kept.config), "tasks": tasks, "type": "source"})
}

pub(super) fn tasks(kept: &Kept) -> Value {
    let task = json!({"id": {"connector": kept.name, "task": 0}, "config": masked(&kept.config)});
    json!(if kept.target == Target::Stopped { vec![] } else { vec![task] })
}

/// Connector and task are one pipeline here, so they say the same; a stopped connector has no task.
pub(super) fn status(name: &str, seen: &Seen, worker: &str) -> Value {
    let mut one = Map::new();
    one.insert("state".into(), seen.state.word().into());
    one.insert("worker_id".into(), worker.into());
    if let Some(trace) = &seen.trace {
        one.insert("trace".into(), trace.as_str().into());
    }
    let mut task = one.clone();
    task.insert("id".into(), 0.into());
    let tasks = if seen.state == State::Stopped { vec![] } else { vec![task] };
    json!({"name": name, "connector": one, "tasks": tasks, "type": "source"})
}

pub(super) fn plan(plan: &Plan) -> Value {
    let fates = plan.fates.iter().map(|f| json!({"property": f.property, "fate": f.word, "what": f.what}));
    json!({"properties": fates.collect::<Vec<_>>()})
}

/// Properties that nobody here knows, in a header: clients of Connect know no field for them.
pub(super) fn unknown(plan: &Plan) -> Option<(&'static str, String)> {
    let unknown = plan.fates.iter().filter(|fate| fate.verdict == Verdict::Unknown);
    // A header takes no line breaks and no letters beyond ASCII; dots stay readable.
    let names: Vec<_> =
        unknown.map(|fate| fate.property.split('.').map(escape).collect::<Vec<_>>().join(".")).collect();
    (!names.is_empty()).then(|| ("tidewire-unknown-properties", names.join(", ")))
}

const GROUP: &str = "Properties";
/// Properties without which Debezium makes no connector, beside its class.
pub(super) const REQUIRED: &[&str] = &["database.dbname", "database.hostname", "database.user", "topic.prefix"];
pub(super) const MISSING: &str = "Missing required configuration which has no default value.";

/// `config`: masked.
pub(super) fn validated(class: &str, config: &Properties, plan: Option<&Plan>, faults: &[(String, String)]) -> Value {
    let given = config.keys().map(String::as_str);
    let missing = faults.iter().map(|(property, _)| property.as_str());
    let mut names: Vec<&str> = given.chain(missing).chain(["name"]).collect();
    names.sort_unstable();
    names.dedup();
    let one = |(order, name): (usize, &&str)| {
        let fate = plan.and_then(|plan| plan.fates.iter().find(|fate| fate.property == **name));
        let what = fate.map_or(String::new(), |fate| format!("{}: {}", fate.word, fate.what));
        let mut errors: Vec<&str> =
            faults.iter().filter(|(property, _)| property == *name).map(|(_, why)| why.as_str()).collect();
        if *name == "name" && !config.contains_key("name") {
            errors.push(MISSING);
        }
        let is_required = REQUIRED.contains(name) || ["name", "connector.class"].contains(name);
        json!({
            "definition": {
                "name": name, "type": if is_secret(name) { "PASSWORD" } else { "STRING" }, "required": is_required,
                "default_value": null, "importance": if is_required { "HIGH" } else { "MEDIUM" }, "documentation": what,
                "group": GROUP, "width": "MEDIUM", "display_name": name, "dependents": [], "order": order + 1,
            },
            "value": {
                "name": name, "value": config.get(*name), "recommended_values": [], "errors": errors, "visible": true,
            },
        })
    };
    let configs: Vec<Value> = names.iter().enumerate().map(one).collect();
    let wrong = |config: &&Value| config["value"]["errors"].as_array().is_some_and(|errors| !errors.is_empty());
    json!({"name": class, "error_count": configs.iter().filter(wrong).count(), "groups": [GROUP], "configs": configs})
}
