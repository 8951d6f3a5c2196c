//! A schema registry at work, and a plain client of it.

use super::connect::http;
use super::{free_port, Ended, Running};
use serde_json::{json, Value};
use std::sync::LazyLock;
use tidewire_testbed::Kafka;

/// For registries that keep their schemas in topics.
pub static BROKER: LazyLock<Kafka> = LazyLock::new(Kafka::start);

pub struct Registry {
    pub folder: tempfile::TempDir,
    pub port: u16,
    pub running: Option<Running>,
    /// Brokers and topic; none: a file in the folder.
    pub topic: Option<(String, String)>,
}

impl Registry {
    pub fn start() -> Registry {
        Registry::start_with(&[], &[])
    }

    pub fn start_with(more: &[&str], variables: &[(&str, &str)]) -> Registry {
        let mut registry = Registry::new();
        registry.begin(more, variables);
        registry
    }

    pub fn new() -> Registry {
        Registry { folder: tempfile::tempdir().unwrap(), port: free_port(), running: None, topic: None }
    }

    /// Not started yet.
    pub fn by(brokers: &str, topic: &str) -> Registry {
        Registry { topic: Some((brokers.to_string(), topic.to_string())), ..Registry::new() }
    }

    /// It keeps its schemas in a topic.
    pub fn start_by(brokers: &str, topic: &str) -> Registry {
        let mut registry = Registry::by(brokers, topic);
        registry.begin(&[], &[]);
        registry
    }

    /// Where schemas are kept, as the command's words.
    pub fn place(&self) -> Vec<String> {
        let words: Vec<&str> = match &self.topic {
            Some((brokers, topic)) => vec!["--kafka", brokers, "--kafka-topic", topic],
            None => return vec!["--data-dir".to_string(), self.dir()],
        };
        words.into_iter().map(str::to_string).collect()
    }

    pub fn dir(&self) -> String {
        self.folder.path().join("registry").display().to_string()
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub fn begin(&mut self, more: &[&str], variables: &[(&str, &str)]) {
        let mut running = self.launch(more, variables);
        running.until("it answers", |running| running.errors().contains("schemas are taken at"));
        self.running = Some(running);
    }

    /// Without waiting until it answers.
    pub fn launch(&self, more: &[&str], variables: &[(&str, &str)]) -> Running {
        let words = ["registry".to_string()].into_iter().chain(self.place());
        let words = words.chain(["--listen".to_string(), format!("127.0.0.1:{}", self.port)]);
        Running::start_with(words.chain(more.iter().map(|word| word.to_string())), variables)
    }

    pub fn kill(&mut self) {
        self.running.take().unwrap().signal("KILL");
    }

    pub fn ask(&self, method: &str, path: &str, body: Option<Value>) -> (u16, Value) {
        let answer = http(self.port, method, path, body.map(|body| body.to_string()).as_deref(), &[]);
        (answer.status, answer.body)
    }

    #[track_caller]
    pub fn yes(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, body) = self.ask(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {body}");
        body
    }

    /// Without the schema's guid, which is a hash.
    #[track_caller]
    pub fn plain(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let mut answer = self.yes(method, path, body);
        let guid = answer.as_object_mut().unwrap().remove("guid").unwrap();
        let same = self.yes("GET", &format!("/schemas/guids/{}", guid.as_str().unwrap()), None);
        assert_eq!((&same["guid"], &same["schema"]), (&guid, &answer["schema"]));
        answer
    }

    #[track_caller]
    pub fn no(&self, method: &str, path: &str, body: Option<Value>, code: u32) -> String {
        let (status, body) = self.ask(method, path, body);
        let expected = if code > 999 { code / 100 } else { code };
        assert_eq!((u32::from(status), &body["error_code"]), (expected, &json!(code)), "{method} {path}: {body}");
        body["message"].as_str().unwrap().to_string()
    }

    #[track_caller]
    pub fn register(&self, subject: &str, schema: &str) -> u64 {
        self.yes("POST", &format!("/subjects/{subject}/versions"), Some(json!({"schema": schema})))["id"]
            .as_u64()
            .unwrap()
    }

    /// The command with this registry's address.
    pub fn command(&self, words: &[&str]) -> Ended {
        Running::start(["registry"].iter().chain(words).map(|word| word.to_string())).end()
    }
}

pub fn record(fields: &[&str]) -> String {
    let fields: Vec<String> = fields.iter().map(|field| format!(r#"{{"name":"{field}","type":"int"}}"#)).collect();
    format!(r#"{{"type":"record","name":"R","fields":[{}]}}"#, fields.join(","))
}

/// The record with one more field that has a default.
pub fn with_default(fields: &[&str], more: &str) -> String {
    let more = format!(r#",{{"name":"{more}","type":"int","default":0}}]}}"#);
    record(fields).replace("]}", &more)
}

/// Tests of one binary that hold whatever keeps the schemas: each over a file and over a topic of its own.
#[macro_export]
macro_rules! over_both {
    ($($name:ident)*) => {
        mod in_a_file {
            $(#[test] fn $name() { super::$name($crate::support::registry::Registry::start()) })*
        }
        mod in_a_topic {
            use $crate::support::registry::{Registry, BROKER};
            $(#[test] fn $name() { super::$name(Registry::start_by(BROKER.address(), stringify!($name))) })*
        }
    };
}
