//! A Debezium connector's JSON as a configuration of ours: a translation of text, nothing is connected to.

mod converters;
mod format;
mod messages;
mod properties;
mod signals;
mod tables;
mod text;
mod topics;
mod transforms;

use converters::Converters;
pub use converters::PASSWORD as REGISTRY_PASSWORD;
use format::{format_of, snapshot_mode};
use properties::{known, Kind};
use std::collections::BTreeMap;
use std::fmt::Write;
use tables::{entries, is_of_schema, patterns, schemas};
pub use text::{encoded, pipeline_name};
use text::{quoted, text};
use tidewire_change::{Error, Result};
use tidewire_envelope::debezium::Modes;
use transforms::Transforms;

/// What becomes of a property.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Stands in the configuration, as this.
    Becomes(String),
    /// It is so here without being asked for.
    Same(String),
    /// Nothing is lost without it.
    NoMeaning(String),
    /// Without it other data is written.
    Refused(String),
    /// Not a property that this version knows.
    Unknown,
}

pub struct Plan {
    /// By property, in their order in the JSON.
    pub fates: Vec<(String, Fate)>,
    /// The configuration's text.
    pub yaml: String,
}

impl Plan {
    /// The properties that can't be honoured, and without which other data is written.
    pub fn refused(&self) -> usize {
        self.fates.iter().filter(|(_, fate)| matches!(fate, Fate::Refused(_))).count()
    }
}

pub const CLASS: &str = "io.debezium.connector.postgresql.PostgresConnector";

/// Reads the JSON in the form of POST (`name` and `config`) or of PUT (the properties alone). `brokers`: addresses of the Kafka that topics are
/// to be written to. `Invalid`: it is no JSON of a PostgreSQL connector.
pub fn plan(json: &str, brokers: Option<&str>) -> Result<Plan> {
    let (name, given) = properties_of(json)?;
    plan_of(name, given, brokers)
}

/// What the variable `REGISTRY_PASSWORD` stands for in a connector's configuration.
pub fn registry_password(given: &[(String, String)]) -> Option<String> {
    Converters::password(given)
}

/// The same of properties that were read already.
pub fn plan_of(name: Option<String>, given: Vec<(String, String)>, brokers: Option<&str>) -> Result<Plan> {
    let converters = Converters::of(&given);
    let brokers = brokers.map(str::to_owned);
    let mut plan = Translation { given, name, brokers, converters, ..Translation::default() };
    let class = plan.given.iter().find(|(property, _)| property == "connector.class").map(|(_, value)| value.as_str());
    if class != Some(CLASS) {
        let class = class.unwrap_or("none");
        return Err(Error::invalid(format!("connector.class is {class}, not {CLASS}"))
            .hint("only PostgreSQL connectors can be taken over"));
    }
    for (property, value) in plan.given.clone() {
        let fate = plan.fate(&property, &value)?;
        plan.fates.push((property, fate));
    }
    plan.tables()?;
    let yaml = plan.yaml();
    Ok(Plan { fates: plan.fates, yaml })
}

/// A connector's name, if the JSON has one, and its properties.
type Given = (Option<String>, Vec<(String, String)>);

fn properties_of(json: &str) -> Result<Given> {
    let wrong = |what: &str| Error::invalid(format!("the connector's JSON {what}"));
    let parsed: serde_json::Value = serde_json::from_str(json).map_err(|e| wrong(&format!("can't be read: {e}")))?;
    let mut object = match parsed {
        serde_json::Value::Object(object) => object,
        _ => return Err(wrong("is no object")),
    };
    let name = object.get("name").and_then(|name| name.as_str()).map(str::to_owned);
    if let Some(config) = object.remove("config") {
        object = match config {
            serde_json::Value::Object(config) => config,
            _ => return Err(wrong("has a config that is no object")),
        };
    }
    let text = |(property, value): (String, serde_json::Value)| match value {
        serde_json::Value::String(text) => Ok((property, text)),
        serde_json::Value::Bool(_) | serde_json::Value::Number(_) => Ok((property, value.to_string())),
        _ => Err(wrong(&format!("has a property that is neither text nor number: {property}"))),
    };
    Ok((name, object.into_iter().map(text).collect::<Result<_>>()?))
}

#[derive(Default)]
struct Translation {
    given: Vec<(String, String)>,
    name: Option<String>,
    brokers: Option<String>,
    fates: Vec<(String, Fate)>,
    database: BTreeMap<&'static str, String>,
    schemas: Vec<String>,
    patterns: Vec<String>,
    prefix: Option<String>,
    slot: Option<String>,
    publication: Option<String>,
    uses_publication: bool,
    failover: bool,
    readers: Option<u32>,
    heartbeat_ms: Option<u64>,
    /// How values are written, where it isn't the default.
    format: Vec<(String, String)>,
    converters: Converters,
    /// Keys of `bus.kafka`.
    kafka: Vec<(&'static str, String)>,
}

fn becomes(text: impl Into<String>) -> Fate {
    Fate::Becomes(text.into())
}

fn same(text: &str) -> Fate {
    Fate::Same(text.into())
}

fn refused(text: impl Into<String>) -> Fate {
    Fate::Refused(text.into())
}

impl Translation {
    fn fate(&mut self, property: &str, value: &str) -> Result<Fate> {
        if let Some(fate) = self.database(property, value) {
            return Ok(fate);
        }
        if let Some(fate) = self.capture(property, value)? {
            return Ok(fate);
        }
        if let Some(fate) = self.signals().fate(property) {
            return Ok(fate);
        }
        if let Some(fate) = self.transforms().fate(property, value) {
            return Ok(fate);
        }
        if property == "topic.transaction" {
            return Ok(topics::transaction(value, &self.given));
        }
        let converters = &self.converters;
        let of_converters =
            converters.fate(property, value, &self.given).or_else(|| converters.adjusted(property, value));
        if let Some(fate) = of_converters {
            return Ok(fate);
        }
        if let Some(fate) = messages::fate(property, value, &self.given, self.brokers.is_some()) {
            return Ok(fate);
        }
        // Without Kafka there are no topics to be made.
        if let Some((fate, key)) = self.brokers.as_ref().and_then(|_| topics::creation(property, value)) {
            self.kafka.extend(key);
            return Ok(fate);
        }
        if let Some(fate) = format_of(property, value)? {
            if Modes::PROPERTIES.contains(&property) && matches!(fate, Fate::Becomes(_)) {
                self.format.push((property.to_owned(), value.to_owned()));
            }
            return Ok(fate);
        }
        Ok(match known(property) {
            Some((Kind::NoMeaning, why)) => Fate::NoMeaning(why.into()),
            Some((Kind::ChangesData, why)) if is_default(value) => Fate::NoMeaning(format!("the default; {why}")),
            Some((Kind::ChangesData, why)) => Fate::Refused(why.into()),
            None => Fate::Unknown,
        })
    }

    fn transforms(&self) -> Transforms<'_> {
        Transforms::of(&self.given, self.brokers.is_some())
    }

    fn signals(&self) -> signals::Given<'_> {
        signals::Given { properties: &self.given, brokers: self.brokers.as_deref(), prefix: self.prefix.as_deref() }
    }

    fn database(&mut self, property: &str, value: &str) -> Option<Fate> {
        let key = match property {
            "database.hostname" => "host",
            "database.port" => "port",
            "database.user" => "user",
            "database.dbname" => "dbname",
            "database.sslmode" => "sslmode",
            "database.sslrootcert" => "sslrootcert",
            "database.sslcert" => "sslcert",
            "database.sslkey" => "sslkey",
            "database.password" => {
                return Some(becomes(
                    "source.postgres.url: ${DATABASE_PASSWORD}, from the environment (percent-encoded)",
                ));
            }
            _ => return None,
        };
        self.database.insert(key, value.to_owned());
        Some(becomes(format!("source.postgres.url: {key}")))
    }

    fn capture(&mut self, property: &str, value: &str) -> Result<Option<Fate>> {
        let is_true = value.eq_ignore_ascii_case("true");
        Ok(Some(match property {
            "connector.class" => becomes("source.postgres"),
            "name" => {
                self.name = Some(value.to_owned());
                Fate::NoMeaning("the pipeline is called as topic.prefix says, else so".into())
            }
            "topic.prefix" | "database.server.name" => {
                self.prefix = Some(value.to_owned());
                becomes(format!("name: {}, and bus.kafka.topic_prefix", pipeline_name(value)))
            }
            "table.include.list" | "table.whitelist" => match self.list(value, patterns) {
                Some(found) => {
                    self.patterns = found;
                    becomes(format!("source.postgres.tables: {}", self.patterns.join(", ")))
                }
                None => refused("an expression can't be said with `*`: name the tables in source.postgres.tables"),
            },
            "schema.include.list" | "schema.whitelist" => match self.list(value, schemas) {
                Some(found) => {
                    self.schemas = found;
                    becomes(format!("source.postgres.tables, of the schemas {}", self.schemas.join(", ")))
                }
                None => refused("an expression can't be said with `*`: name the tables in source.postgres.tables"),
            },
            "table.exclude.list" | "schema.exclude.list" | "table.blacklist" | "schema.blacklist"
                if !value.is_empty() =>
            {
                refused("tables are listed, not left out: name those that are wanted in source.postgres.tables")
            }
            "slot.name" => {
                self.slot = Some(value.to_owned());
                becomes("source.postgres.slot")
            }
            "slot.failover" => {
                self.failover = is_true;
                becomes("source.postgres.failover")
            }
            "publication.name" => {
                self.publication = Some(value.to_owned());
                becomes("source.postgres.publication, if publication.autocreate.mode is disabled")
            }
            "publication.autocreate.mode" if value.eq_ignore_ascii_case("disabled") => {
                self.uses_publication = true;
                becomes("source.postgres.publication: used as it is")
            }
            "publication.autocreate.mode" => same("a publication is made, and kept in step with the tables"),
            "publish.via.partition.root" if is_true => same("a partitioned table is one table"),
            "publish.via.partition.root" => {
                Fate::NoMeaning("a partitioned table is one table, never one for each partition".into())
            }
            "plugin.name" if value == "pgoutput" => same("pgoutput is what is used"),
            "plugin.name" => Fate::NoMeaning("pgoutput is used: it is in every PostgreSQL".into()),
            "heartbeat.interval.ms" => match value.parse() {
                Ok(0) => same("heartbeats are written in any case"),
                Ok(ms) => {
                    self.heartbeat_ms = Some(ms);
                    becomes(format!("source.postgres.heartbeat: {ms}ms"))
                }
                Err(_) => return Err(no_number(property)),
            },
            "snapshot.max.threads" => match value.parse::<u32>() {
                Ok(readers) => {
                    self.readers = Some(readers.clamp(1, 32));
                    becomes("source.postgres.readers")
                }
                Err(_) => return Err(no_number(property)),
            },
            "snapshot.mode" => snapshot_mode(value),
            _ => return Ok(None),
        }))
    }

    fn list(&self, value: &str, translate: impl Fn(&str) -> Option<Vec<String>>) -> Option<Vec<String>> {
        let found: Option<Vec<Vec<String>>> = entries(value).into_iter().map(translate).collect();
        found.map(|found| found.concat()).filter(|found| !found.is_empty())
    }

    /// Both lists hold at once.
    fn tables(&mut self) -> Result<()> {
        if self.patterns.is_empty() {
            self.patterns = self.schemas.iter().map(|schema| format!("{schema}.*")).collect();
        } else if !self.schemas.is_empty() {
            let schemas = std::mem::take(&mut self.schemas);
            self.patterns.retain(|pattern| schemas.iter().any(|schema| is_of_schema(pattern, schema)));
            if self.patterns.is_empty() {
                return Err(Error::invalid("no table is in both schema.include.list and table.include.list"));
            }
        }
        Ok(())
    }

    fn yaml(&self) -> String {
        let mut out =
            String::from("# Written by `tidewire plan` from a Debezium connector. Every key: docs/configuration.md.\n");
        // Writing to a String can't fail.
        let _ = writeln!(
            out,
            "name: {}",
            text(&pipeline_name(self.prefix.as_deref().or(self.name.as_deref()).unwrap_or("main")))
        );
        out.push_str("source:\n  postgres:\n");
        let _ = writeln!(out, "    url: {}", self.url());
        if !self.patterns.is_empty() {
            out.push_str("    tables:\n");
            for pattern in &self.patterns {
                let _ = writeln!(out, "      - {}", text(pattern));
            }
        }
        let _ = writeln!(out, "    slot: {}", text(self.slot.as_deref().unwrap_or("debezium")));
        if self.uses_publication {
            let _ =
                writeln!(out, "    publication: {}", text(self.publication.as_deref().unwrap_or("dbz_publication")));
        }
        if self.failover {
            out.push_str("    failover: true\n");
        }
        if let Some(readers) = self.readers {
            let _ = writeln!(out, "    readers: {readers}");
        }
        if let Some(ms) = self.heartbeat_ms {
            let _ = writeln!(out, "    heartbeat: {ms}ms");
        }
        let prefixes = messages::prefixes(&self.given)
            .filter(|_| self.brokers.is_some() && self.converters.is_json())
            .unwrap_or_default();
        if !prefixes.is_empty() {
            let prefixes: Vec<String> = prefixes.iter().map(|prefix| text(prefix)).collect();
            let _ = writeln!(out, "    messages: [{}]", prefixes.join(", "));
        }
        out.push_str(&self.signals().yaml());
        match (&self.brokers, &self.prefix) {
            (Some(brokers), prefix) => {
                let prefix =
                    prefix.as_deref().map_or(String::new(), |prefix| format!("\n    topic_prefix: {}", text(prefix)));
                let format = self.converters.format();
                let _ = writeln!(out, "bus:\n  kafka:\n    brokers: {}{prefix}\n    format: {format}", text(brokers));
                out.push_str(&self.converters.yaml());
                out.push_str(&self.transforms().yaml());
                for (key, value) in &self.kafka {
                    let _ = writeln!(out, "    {key}: {value}");
                }
                if !self.format.is_empty() {
                    out.push_str("    properties:\n");
                }
                for (property, value) in &self.format {
                    let _ = writeln!(out, "      {property}: {}", text(value));
                }
            }
            (None, Some(prefix)) => {
                let _ = writeln!(
                    out,
                    "# bus: {{ kafka: {{ brokers: \"…\", topic_prefix: {} }} }}   # --brokers writes this",
                    text(prefix)
                );
            }
            (None, None) => {}
        }
        out.push_str(self.transforms().sinks());
        out
    }

    fn url(&self) -> String {
        let get = |key: &str| self.database.get(key).map(String::as_str);
        let (host, port) = (get("host").unwrap_or("localhost"), get("port").unwrap_or("5432"));
        let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
        let user = encoded(get("user").unwrap_or("postgres"));
        let has_password =
            self.given.iter().any(|(property, value)| property == "database.password" && !value.is_empty());
        let password = if has_password { ":${DATABASE_PASSWORD}" } else { "" };
        let parameters: Vec<String> = ["sslmode", "sslrootcert", "sslcert", "sslkey"]
            .iter()
            .filter_map(|key| get(key).map(|value| format!("{key}={}", encoded(value))))
            .collect();
        let parameters = if parameters.is_empty() { String::new() } else { format!("?{}", parameters.join("&")) };
        let name = encoded(get("dbname").unwrap_or("postgres"));
        // The one place where `${` is meant.
        quoted(&format!("postgres://{user}{password}@{host}:{port}/{name}{parameters}"))
    }
}

fn no_number(property: &str) -> Error {
    Error::invalid(format!("{property} is no number"))
}

fn is_default(value: &str) -> bool {
    matches!(value.to_ascii_lowercase().as_str(), "" | "none" | "false" | "select_all")
}

#[cfg(test)]
mod tests;
