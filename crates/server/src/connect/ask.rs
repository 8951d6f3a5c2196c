//! What a request asks for: method, path, query and body, understood or refused. Nothing is done here.

use super::json::{parse, Node};
use super::snapshot::Snapshot;
use super::store::Target;
use super::{Properties, Refusal};
use crate::address::{decoded, segments};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ask {
    Root,
    Health,
    List { expand: Vec<String> },
    Create { name: String, config: Properties, target: Target },
    Of(String, Of),
    Plugins,
    Validate { plugin: String, config: Properties },
}

/// Of one connector.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Of {
    Info,
    Delete,
    Config,
    Put(Properties),
    Patch(BTreeMap<String, Option<String>>),
    Status,
    Tasks,
    TaskStatus(String),
    RestartTask(String),
    Aim(Target),
    Restart { told: bool, only_failed: bool },
    Offsets,
    Alter(Node),
    Reset,
    Topics,
    ResetTopics,
    Snapshot(Snapshot),
    Plan,
    Findings,
    Metrics,
}

pub(super) struct Request<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub content_type: &'a str,
    pub body: &'a [u8],
}

/// The methods that a path takes; none: there is no such path.
fn methods(path: &[&str]) -> &'static [&'static str] {
    match path {
        [] | ["health"] | ["connector-plugins"] => &["GET"],
        ["connectors"] => &["GET", "POST"],
        ["connectors", _] => &["GET", "DELETE"],
        ["connectors", _, "config"] => &["GET", "PUT", "PATCH"],
        ["connectors", _, "status" | "tasks" | "topics" | "plan" | "findings" | "metrics"] => &["GET"],
        ["connectors", _, "pause" | "resume" | "stop"] | ["connectors", _, "topics", "reset"] => &["PUT"],
        ["connectors", _, "restart" | "snapshot"] | ["connectors", _, "tasks", _, "restart"] => &["POST"],
        ["connectors", _, "tasks", _, "status"] => &["GET"],
        ["connectors", _, "offsets"] => &["GET", "PATCH", "DELETE"],
        ["connector-plugins", _, "config", "validate"] => &["PUT"],
        _ => &[],
    }
}

impl Request<'_> {
    pub fn understand(&self) -> Result<Ask, Refusal> {
        let path = segments(self.path).map_err(Refusal::bad)?;
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let method = if self.method == "HEAD" { "GET" } else { self.method };
        let allowed = methods(&path);
        if allowed.is_empty() {
            return Err(Refusal::new(404, "HTTP 404 Not Found"));
        }
        if !allowed.contains(&method) {
            return Err(Refusal { allowed: allowed.join(", "), ..Refusal::new(405, "HTTP 405 Method Not Allowed") });
        }
        Ok(match (method, path.as_slice()) {
            ("GET", []) => Ask::Root,
            ("GET", ["health"]) => Ask::Health,
            ("GET", ["connector-plugins"]) => Ask::Plugins,
            (_, ["connector-plugins", plugin, ..]) => {
                Ask::Validate { plugin: (*plugin).to_owned(), config: self.body()?.properties()? }
            }
            ("GET", ["connectors"]) => Ask::List { expand: self.queried("expand")? },
            ("POST", ["connectors"]) => create(self.body()?)?,
            (_, ["connectors", name, rest @ ..]) => Ask::Of((*name).to_owned(), self.of(method, rest)?),
            _ => return Err(Refusal::new(404, "HTTP 404 Not Found")),
        })
    }

    fn of(&self, method: &str, rest: &[&str]) -> Result<Of, Refusal> {
        Ok(match (method, rest) {
            ("GET", []) => Of::Info,
            ("DELETE", []) => Of::Delete,
            ("GET", ["config"]) => Of::Config,
            ("PUT", ["config"]) => Of::Put(self.body()?.properties()?),
            ("PATCH", ["config"]) => Of::Patch(self.body()?.patch()?),
            ("GET", ["status"]) => Of::Status,
            ("GET", ["tasks"]) => Of::Tasks,
            ("GET", ["tasks", id, "status"]) => Of::TaskStatus((*id).to_owned()),
            ("POST", ["tasks", id, "restart"]) => Of::RestartTask((*id).to_owned()),
            ("PUT", ["pause"]) => Of::Aim(Target::Paused),
            ("PUT", ["resume"]) => Of::Aim(Target::Running),
            ("PUT", ["stop"]) => Of::Aim(Target::Stopped),
            ("POST", ["restart"]) => {
                let (tasks, only_failed) = (self.flag("includeTasks")?, self.flag("onlyFailed")?);
                Of::Restart { told: tasks || only_failed, only_failed }
            }
            ("GET", ["offsets"]) => Of::Offsets,
            ("PATCH", ["offsets"]) => Of::Alter(self.body()?),
            ("DELETE", ["offsets"]) => Of::Reset,
            ("GET", ["topics"]) => Of::Topics,
            ("PUT", ["topics", "reset"]) => Of::ResetTopics,
            ("POST", ["snapshot"]) => Of::Snapshot(Snapshot::understand(self.body()?)?),
            ("GET", ["plan"]) => Of::Plan,
            ("GET", ["findings"]) => Of::Findings,
            ("GET", ["metrics"]) => Of::Metrics,
            _ => return Err(Refusal::new(404, "HTTP 404 Not Found")),
        })
    }

    /// A body that says that it is JSON: a browser doesn't send that to another origin unasked.
    fn body(&self) -> Result<Node, Refusal> {
        if !self.content_type.to_ascii_lowercase().starts_with("application/json") {
            return Err(Refusal::new(415, "HTTP 415 Unsupported Media Type: the body must be application/json"));
        }
        parse(self.body)
    }

    /// All values of a parameter of the query.
    fn queried(&self, name: &str) -> Result<Vec<String>, Refusal> {
        let pairs = self.query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| decoded(value).map_err(Refusal::bad)).collect()
    }

    fn flag(&self, name: &str) -> Result<bool, Refusal> {
        match self.queried(name)?.first().map(|value| value.to_ascii_lowercase()).as_deref() {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Refusal::bad(format!("The parameter {name} must be true or false"))),
        }
    }
}

fn create(body: Node) -> Result<Ask, Refusal> {
    let (mut name, mut config, mut target) = (String::new(), Properties::new(), Target::Running);
    for (field, node) in body.object("The request")? {
        match field.as_str() {
            "name" if node == Node::Nothing => {}
            "name" => name = node.text("name")?.trim().to_owned(),
            "config" => config = node.properties()?,
            "initial_state" if node == Node::Nothing => {}
            "initial_state" => {
                target = Target::parse(&node.text("initial_state")?)
                    .ok_or_else(|| Refusal::bad("initial_state must be RUNNING, PAUSED or STOPPED"))?;
            }
            _ => {
                let why = "the request takes name, config and initial_state; properties belong into config";
                return Err(Refusal::bad(format!("Unrecognized field {field:?}: {why}")));
            }
        }
    }
    Ok(Ask::Create { name, config, target })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(method: &str, path: &str, body: &str) -> Result<Ask, Refusal> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let content_type = "application/json; charset=utf-8";
        Request { method, path, query, content_type, body: body.as_bytes() }.understand()
    }

    #[test]
    fn paths_are_understood_with_escapes_and_a_slash_at_the_end() {
        let of = |name: &str, of: Of| Ok(Ask::Of(name.into(), of));
        assert_eq!(ask("GET", "/", ""), Ok(Ask::Root));
        assert_eq!(ask("HEAD", "/connectors/", ""), Ok(Ask::List { expand: vec![] }));
        let expand = vec!["status".to_string(), "info".to_string()];
        assert_eq!(ask("GET", "/connectors?expand=status&expand=info&x", ""), Ok(Ask::List { expand }));
        assert_eq!(ask("GET", "/connectors/a%2Fb%20c/status", ""), of("a/b c", Of::Status));
        assert_eq!(ask("PUT", "/connectors/x/stop", ""), of("x", Of::Aim(Target::Stopped)));
        let told = Of::Restart { told: true, only_failed: true };
        assert_eq!(ask("POST", "/connectors/x/restart?includeTasks=true&onlyFailed=True", ""), of("x", told));
        let plain = Of::Restart { told: false, only_failed: false };
        assert_eq!(ask("POST", "/connectors/x/restart", ""), of("x", plain));
        assert_eq!(ask("POST", "/connectors/x/tasks/0/restart", ""), of("x", Of::RestartTask("0".into())));
    }

    #[test]
    fn what_isnt_there_isnt_allowed_or_isnt_json_has_its_status() {
        for (method, path, body, status) in [
            ("GET", "/nothing", "", 404),
            ("GET", "/connectors/x/y", "", 404),
            ("GET", "/connectors//status/x", "", 404),
            ("DELETE", "/connectors", "", 405),
            ("POST", "/connectors/x/pause", "", 405),
            ("GET", "/connectors/%zz", "", 400),
            ("GET", "/connectors/%ff", "", 400),
            ("POST", "/connectors/x/restart?onlyFailed=perhaps", "", 400),
            ("POST", "/connectors", "{", 400),
            ("POST", "/connectors", "[]", 400),
            ("POST", "/connectors", r#"{"name": "x", "database.user": "y"}"#, 400),
            ("POST", "/connectors", r#"{"name": "x", "config": {"a": "1", "a": "2"}}"#, 400),
            ("POST", "/connectors", r#"{"name": "x", "config": {"a": ["1"]}}"#, 400),
            ("POST", "/connectors", r#"{"name": "x", "initial_state": "ASLEEP"}"#, 400),
            ("PUT", "/connectors/x/config", r#"{"a": null}"#, 400),
        ] {
            let refused = ask(method, path, body).expect_err(path);
            assert_eq!(refused.status, status, "{method} {path} {body}: {}", refused.message);
        }
        let plain = Request { method: "POST", path: "/connectors", query: "", content_type: "text/plain", body: b"{}" };
        assert_eq!(plain.understand().expect_err("a form of a browser").status, 415);
        let refused = ask("PUT", "/connectors", "").expect_err("PUT");
        assert_eq!(refused.allowed, "GET, POST");
    }

    #[test]
    fn numbers_and_flags_are_text_as_connect_reads_them_and_a_refusal_repeats_no_value() {
        let body = r#"{"name": " x ", "config": {"a": 5, "b": true, "c": "t", "d": 1.5}, "initial_state": "stopped"}"#;
        let config: Properties =
            [("a", "5"), ("b", "true"), ("c", "t"), ("d", "1.5")].map(|(k, v)| (k.into(), v.into())).into();
        assert_eq!(
            ask("POST", "/connectors", body),
            Ok(Ask::Create { name: "x".into(), config, target: Target::Stopped })
        );
        for body in [
            r#"{"name": "x", "config": {"database.password": ["s3cret"]}}"#,
            r#"{"name": "x", "config": "s3cret"}"#,
            r#"{"name": "x", "config": {"database.password": "s3cret" "#,
            r#"{"name": "x", "config": {"p": "s3cret", "p": "s3cret"}}"#,
        ] {
            let refused = ask("POST", "/connectors", body).expect_err(body);
            assert!(!refused.message.contains("s3cret"), "{}", refused.message);
        }
    }
}
