//! The connectors of `tidewire serve`: from their properties to pipelines.

use crate::args::Serve;
use crate::catalog::{self, Part};
use crate::commands::plan::told;
use crate::config::{self, Config, Lookup, Surroundings};
use crate::connector::{self, encoded, pipeline_name};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use tidewire_change::{Error, Result};
use tidewire_connector::BoxFuture;
use tidewire_pipeline::Running;
use tidewire_server::connect::{Fate, Maker, Plan, Properties, Slot, Verdict};
use tokio::sync::OnceCell;

pub struct Connectors {
    /// One folder in it for each pipeline.
    folder: PathBuf,
    brokers: Option<String>,
    /// Lines of `bus.kafka`.
    kafka: String,
    memory: String,
    cluster: OnceCell<String>,
}

/// How `tidewire plan` writes the bus.
const BUS: &str = "bus:\n  kafka:\n";

impl Connectors {
    /// `Invalid`: an argument can't be understood.
    pub fn new(args: &Serve) -> Result<Connectors> {
        let kafka = match &args.kafka {
            None => String::new(),
            Some(path) => {
                let text = crate::local::text(path)?;
                text.lines().map(|line| format!("    {line}\n")).collect()
            }
        };
        let connectors = Connectors {
            folder: args.dir.join("pipelines"),
            brokers: args.brokers.clone(),
            kafka,
            memory: args.memory.clone(),
            cluster: OnceCell::new(),
        };
        // Arguments are found wrong now, and not by the first connector.
        connectors.config(&an_empty_one()).map_err(|e| e.context("--memory or --kafka"))?;
        Ok(connectors)
    }

    fn translated(&self, config: &Properties) -> Result<connector::Plan> {
        let given = config.iter().map(|(property, value)| (property.clone(), value.clone())).collect();
        connector::plan_of(None, given, self.brokers.as_deref())
    }

    fn config(&self, config: &Properties) -> Result<Config> {
        let plan = self.translated(config)?;
        let kafka = without(&self.kafka, &plan.yaml);
        let text = plan.yaml.replacen(BUS, &format!("{BUS}{kafka}"), 1);
        let text = format!("{text}data_dir: ./data\nmemory: {}\n", self.memory);
        let password = config.get("database.password").map(String::as_str).unwrap_or_default();
        let given: Vec<(String, String)> = config.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let registry = connector::registry_password(&given).unwrap_or_default();
        let lookup = Passwords { database: encoded(password).replace('/', "%2F"), registry };
        config::parse("the connector's configuration", &text, &self.place(config), &lookup)
    }

    fn place(&self, config: &Properties) -> PathBuf {
        self.folder.join(pipeline_of(config))
    }
}

/// What all connectors have in common, but for the keys that this one says itself.
fn without(common: &str, own: &str) -> String {
    let mut says_it_itself = false;
    let mut kept = String::new();
    for line in common.lines() {
        let key =
            line.strip_prefix("    ").filter(|key| !key.starts_with([' ', '#', '-'])).and_then(|l| l.split_once(':'));
        if let Some((key, _)) = key {
            says_it_itself = own.lines().any(|own| own.starts_with(&format!("    {key}:")));
        }
        if !says_it_itself {
            kept += line;
            kept.push('\n');
        }
    }
    kept
}

/// The least that has a configuration.
fn an_empty_one() -> Properties {
    [("connector.class".to_owned(), connector::CLASS.to_owned())].into()
}

fn prefix(config: &Properties) -> String {
    let prefix = config.get("topic.prefix").or_else(|| config.get("name"));
    prefix.cloned().unwrap_or_default()
}

fn pipeline_of(config: &Properties) -> String {
    pipeline_name(&prefix(config))
}

/// The passwords by their variables, all else from the surroundings.
struct Passwords {
    database: String,
    registry: String,
}

impl Lookup for Passwords {
    fn variable(&self, name: &str) -> Option<String> {
        match name {
            "DATABASE_PASSWORD" => Some(self.database.clone()),
            connector::REGISTRY_PASSWORD => Some(self.registry.clone()),
            _ => Surroundings.variable(name),
        }
    }
    fn file(&self, path: &str) -> std::io::Result<String> {
        Surroundings.file(path)
    }
}

impl Maker for Connectors {
    fn plan(&self, config: &Properties) -> Result<Plan> {
        let plan = self.translated(config)?;
        if plan.refused() == 0 {
            self.config(config)?;
        }
        let fate = |(property, fate): &(String, connector::Fate)| {
            let (word, what) = told(fate);
            let verdict = match fate {
                connector::Fate::Refused(_) => Verdict::Refused,
                connector::Fate::Unknown => Verdict::Unknown,
                _ => Verdict::Taken,
            };
            let what = if property == "database.password" { PASSWORD } else { what };
            Fate { property: property.clone(), word, what: what.to_owned(), verdict }
        };
        let get = |property: &str, default: &str| config.get(property).map_or(default, String::as_str).to_owned();
        Ok(Plan {
            fates: plan.fates.iter().map(fate).collect(),
            pipeline: pipeline_of(config),
            prefix: prefix(config),
            slot: Slot {
                host: get("database.hostname", "localhost").to_ascii_lowercase(),
                port: get("database.port", "5432"),
                name: get("slot.name", "debezium"),
            },
        })
    }

    fn start<'a>(&'a self, config: &'a Properties) -> BoxFuture<'a, Result<Running>> {
        Box::pin(async move {
            // It was honoured when it was made; an older or newer version may have been it.
            if self.translated(config)?.refused() > 0 {
                return Err(Error::invalid("this version can't honour all of the connector's properties")
                    .hint("GET /connectors/NAME/plan names them"));
            }
            make_folder(&self.place(config))?;
            let config = self.config(config)?;
            slot_is_free(&config).await?;
            // Topics are what a connector is for; without a broker its changes go through a journal to a lake.
            let part = if self.brokers.is_some() { Part::Capture } else { Part::Whole };
            catalog::start_part(&config, part).await
        })
    }

    fn cluster(&self) -> BoxFuture<'_, Option<String>> {
        let ask = || async {
            let config = self.config(&an_empty_one()).map_err(drop)?;
            catalog::cluster(&config).await.ok().flatten().ok_or(())
        };
        Box::pin(async move {
            self.brokers.as_ref()?;
            self.cluster.get_or_try_init(ask).await.ok().cloned()
        })
    }
}

/// A slot that this pipeline hasn't made is made anew; not one that somebody reads: as soon as that one rested for a moment, it
/// would be gone under him.
async fn slot_is_free(config: &Config) -> Result<()> {
    if config.data_dir.exists() {
        return Ok(());
    }
    match catalog::facts(config).await?.slot {
        Some(slot) if slot.active => {
            Err(Error::invalid(format!("somebody else reads the replication slot {}: Debezium, perhaps", slot.name))
                .hint("stop that connector and restart this one, or take another slot.name"))
        }
        _ => Ok(()),
    }
}

const PASSWORD: &str = "source.postgres.url; kept in the connector's file, shown nowhere";

/// What is in it is the owner's alone.
fn make_folder(path: &Path) -> Result<()> {
    let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.map_err(|e| Error::io(e, path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_connector_says_itself_goes_before_what_all_have() {
        let common = "    partitions: 3\n    tls:\n      ca: x\n    # ours\n    sasl: {}\n";
        assert_eq!(without(common, "bus:\n  kafka:\n    tls: {}\n"), "    partitions: 3\n    sasl: {}\n");
        assert_eq!(
            without(common, "bus:\n  kafka:\n    partitions: 9\n"),
            common.replacen("    partitions: 3\n", "", 1)
        );
        assert_eq!(without(common, ""), common);
    }
}
