//! What a request asks for, and its answer.

use super::keeper::Keeper;
use super::{answers, body};
use crate::address::{decoded, segments};
use serde_json::{json, Value};
use tidewire_registry::state::{write_line, Answer, Asked, Found, Listing, Refusal, Registered};
use tidewire_registry::Format;

pub struct Request<'a> {
    pub method: &'a str,
    pub path: &'a str,
    pub query: &'a str,
    pub body: &'a [u8],
}

/// The methods that a path takes; none: there is no such path.
fn methods(path: &[&str]) -> &'static [&'static str] {
    match path {
        ["tidewire", "export"] => &["GET"],
        [] | ["contexts"] | ["subjects"] | ["schemas"] | ["schemas", "types"] | ["schemas", "ids", _] => &["GET"],
        ["schemas", "guids", _] => &["GET"],
        ["schemas", "ids", _, "schema" | "subjects" | "versions"] => &["GET"],
        ["subjects", _] => &["POST", "DELETE"],
        ["subjects", _, "versions"] => &["GET", "POST"],
        ["subjects", _, "versions", _] => &["GET", "DELETE"],
        ["subjects", _, "versions", _, "schema" | "referencedby"] => &["GET"],
        ["compatibility", "subjects", _, "versions"] | ["compatibility", "subjects", _, "versions", _] => &["POST"],
        ["config"] | ["mode"] | ["config", _] | ["mode", _] => &["GET", "PUT", "DELETE"],
        _ => &[],
    }
}

impl Request<'_> {
    /// JSON, or for the bare text of a schema that text.
    pub fn answer(&self, keeper: &Keeper) -> Answer<Value> {
        let path = segments(self.path).map_err(|e| Refusal::new(400, e))?;
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let method = if self.method == "HEAD" { "GET" } else { self.method };
        let allowed = methods(&path);
        if allowed.is_empty() {
            return Err(Refusal::new(404, "HTTP 404 Not Found"));
        }
        if !allowed.contains(&method) {
            return Err(Refusal::new(405, format!("HTTP 405 Method Not Allowed: {}", allowed.join(", "))));
        }
        match path.as_slice() {
            ["subjects", subject] => self.of_subject(keeper, method, subject),
            ["subjects", subject, "versions", rest @ ..] => self.of_versions(keeper, method, subject, rest),
            ["schemas", "ids", id, rest @ ..] => self.of_id(keeper, id, rest),
            ["tidewire", "export"] => Ok(Value::String(write_line(&keeper.registry().export()))),
            ["schemas", "guids", guid] => {
                let registry = keeper.registry();
                let stored = registry.schema_of_guid(guid)?;
                Ok(answers::schema(stored, &stored.form(&self.text("format")?)?).into())
            }
            ["schemas", ..] => self.schemas(keeper, &path),
            ["subjects"] => page(self, keeper.registry().subjects(&self.prefix()?, self.listing()?)),
            ["contexts"] => page(self, vec!["."]),
            ["compatibility", "subjects", subject, "versions", rest @ ..] => self.compatible(keeper, subject, rest),
            ["config", rest @ ..] => self.config(keeper, method, rest.first().copied()),
            ["mode", rest @ ..] => self.mode(keeper, method, rest.first().copied()),
            _ => Ok(json!({})),
        }
    }

    fn of_subject(&self, keeper: &Keeper, method: &str, subject: &str) -> Answer<Value> {
        if method == "POST" {
            let draft = body::draft(self.body)?;
            let (normalize, deleted) = (self.flag("normalize")?, self.flag("deleted")?);
            let registry = keeper.registry();
            let found = registry.look_up(subject, &draft, normalize, deleted)?;
            return Ok(answers::version(&found, &found.stored.text));
        }
        let permanent = self.flag("permanent")?;
        keeper.change(|registry| registry.delete_subject(subject, permanent)).map(|versions| json!(versions))
    }

    fn of_versions(&self, keeper: &Keeper, method: &str, subject: &str, rest: &[&str]) -> Answer<Value> {
        let registry = || keeper.registry();
        match (method, rest) {
            ("GET", []) => page(self, registry().version_numbers(subject, self.listing()?)?),
            ("POST", []) => self.register(keeper, subject),
            ("DELETE", [version]) => {
                let (asked, permanent) = (Asked::parse(version)?, self.flag("permanent")?);
                let deleted = keeper.change(|registry| registry.delete_version(subject, asked, permanent));
                deleted.map(|version| json!(version))
            }
            (_, [version, rest @ ..]) => {
                let (registry, asked) = (registry(), Asked::parse(version)?);
                let found = registry.version(subject, asked, self.flag("deleted")?)?;
                let text = self.form(&found)?;
                Ok(match rest {
                    ["schema"] => Value::String(text),
                    ["referencedby"] => page(self, registry.referrers(subject, found.version, false))?,
                    _ => answers::version(&found, &text),
                })
            }
            _ => Ok(json!({})),
        }
    }

    fn register(&self, keeper: &Keeper, subject: &str) -> Answer<Value> {
        let draft = body::draft(self.body)?;
        let normalize = self.flag("normalize")?;
        // Who asks for what is there already waits for no other's change.
        let known = keeper.registry().registered(subject, &draft, normalize);
        let register = |registry: &tidewire_registry::state::Registry| {
            let Registered { id, version, event } = registry.register(subject, &draft, normalize)?;
            Ok(((id, version), event.into_iter().collect()))
        };
        let (id, version) = match known {
            Some(known) => (known.id, known.version),
            None => keeper.change(register)?,
        };
        // Clients take a text that stands here for the one that they sent, in whatever form that was.
        let registry = keeper.registry();
        let guid = registry.schema(id).ok().map(|stored| &stored.guid);
        Ok(json!({"id": id, "version": version, "guid": guid}))
    }

    fn of_id(&self, keeper: &Keeper, id: &str, rest: &[&str]) -> Answer<Value> {
        let registry = keeper.registry();
        let id: u32 = id.parse().map_err(|_| Refusal::new(404, "HTTP 404 Not Found"))?;
        let (deleted, of) = (self.flag("deleted")?, self.text("subject")?);
        Ok(match rest {
            ["subjects"] => {
                let mut subjects: Vec<&str> =
                    registry.uses(id, deleted)?.into_iter().map(|(subject, _)| subject).collect();
                subjects.dedup();
                subjects.retain(|subject| of.is_empty() || *subject == of);
                page(self, subjects)?
            }
            ["versions"] => {
                let uses =
                    registry.uses(id, deleted)?.into_iter().filter(|(subject, _)| of.is_empty() || *subject == of);
                page(self, uses.map(|(subject, version)| json!({"subject": subject, "version": version})).collect())?
            }
            rest => {
                let stored = registry.schema(id)?;
                let text = stored.form(&self.text("format")?)?;
                if rest == ["schema"] {
                    return Ok(Value::String(text));
                }
                let mut answer = answers::schema(stored, &text);
                if self.flag("fetchMaxId")? {
                    answer.insert("maxId".into(), registry.highest_id().into());
                }
                answer.into()
            }
        })
    }

    fn schemas(&self, keeper: &Keeper, path: &[&str]) -> Answer<Value> {
        if path == ["schemas", "types"] {
            return Ok(json!(Format::ALL.map(Format::word)));
        }
        let registry = keeper.registry();
        let all = registry.all(&self.prefix()?, self.flag("deleted")?, self.flag("latestOnly")?);
        page(self, all.iter().map(|found| answers::version(found, &found.stored.text)).collect())
    }

    fn form(&self, found: &Found<'_>) -> Answer<String> {
        found.stored.form(&self.text("format")?)
    }

    fn compatible(&self, keeper: &Keeper, subject: &str, rest: &[&str]) -> Answer<Value> {
        let asked = rest.first().map(|version| Asked::parse(version)).transpose()?;
        let draft = body::draft(self.body)?;
        let found = keeper.registry().check(subject, &draft, asked, self.flag("normalize")?)?;
        let mut answer = json!({"is_compatible": found.is_empty()});
        if self.flag("verbose")? {
            answer["messages"] = found.iter().map(|against| against.told()).collect();
            answer["differences"] = answers::differences(&found);
        }
        Ok(answer)
    }

    fn config(&self, keeper: &Keeper, method: &str, subject: Option<&str>) -> Answer<Value> {
        match method {
            "PUT" => {
                let (level, normalize) = body::config(self.body)?;
                keeper.change(|registry| {
                    let event = registry.set_config(subject, level.as_deref(), normalize)?;
                    Ok(((), vec![event]))
                })?;
                let mut answer = json!({});
                if let Some(level) = level {
                    answer["compatibility"] = level.to_ascii_uppercase().into();
                }
                if let Some(normalize) = normalize {
                    answer["normalize"] = normalize.into();
                }
                Ok(answer)
            }
            "DELETE" => {
                let level = keeper.change(|registry| {
                    let (level, event) = registry.delete_config(subject)?;
                    Ok((level, vec![event]))
                })?;
                Ok(json!({"compatibilityLevel": level.word()}))
            }
            _ => {
                let (level, normalize) = keeper.registry().config(subject, self.flag("defaultToGlobal")?)?;
                let mut answer = json!({"compatibilityLevel": level.word()});
                if let Some(normalize) = normalize {
                    answer["normalize"] = normalize.into();
                }
                Ok(answer)
            }
        }
    }

    fn mode(&self, keeper: &Keeper, method: &str, subject: Option<&str>) -> Answer<Value> {
        let mode = match method {
            "PUT" => {
                let (word, force) = (body::mode(self.body)?, self.flag("force")?);
                keeper.change(|registry| {
                    let event = registry.set_mode(subject, &word, force)?;
                    Ok(((), vec![event]))
                })?;
                return Ok(json!({"mode": word.to_ascii_uppercase()}));
            }
            "DELETE" => keeper.change(|registry| {
                let (mode, event) = registry.delete_mode(subject)?;
                Ok((mode, vec![event]))
            })?,
            _ => keeper.registry().mode_of(subject, self.flag("defaultToGlobal")?)?,
        };
        Ok(json!({"mode": mode.word()}))
    }

    /// Subjects may be asked for as those of all contexts, or of the one that there is.
    fn prefix(&self) -> Answer<String> {
        let prefix = self.text("subjectPrefix")?;
        let bare = prefix.strip_prefix(":*:").or(prefix.strip_prefix(":.:"));
        Ok(bare.map_or_else(|| prefix.clone(), str::to_string))
    }

    fn listing(&self) -> Answer<Listing> {
        Ok(match (self.flag("deletedOnly")?, self.flag("deleted")?) {
            (true, _) => Listing::DeletedOnly,
            (_, true) => Listing::WithDeleted,
            _ => Listing::Live,
        })
    }

    /// The value of a parameter of the query; nothing where there is none.
    fn text(&self, name: &str) -> Answer<String> {
        let mut pairs = self.query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let value = pairs.find(|(key, _)| *key == name).map_or("", |(_, value)| value);
        decoded(&value.replace('+', "%20")).map_err(|e| Refusal::new(400, e))
    }

    fn flag(&self, name: &str) -> Answer<bool> {
        match self.text(name)?.to_ascii_lowercase().as_str() {
            "" | "false" => Ok(false),
            "true" => Ok(true),
            _ => Err(Refusal::new(400, format!("the parameter {name} must be true or false"))),
        }
    }

    fn number(&self, name: &str) -> Answer<Option<usize>> {
        match self.text(name)?.as_str() {
            // -1 stands for all.
            "" | "-1" => Ok(None),
            text => {
                text.parse().map(Some).map_err(|_| Refusal::new(400, format!("the parameter {name} must be a number")))
            }
        }
    }
}

/// What `offset` and `limit` leave of a list.
fn page<T: serde::Serialize>(request: &Request<'_>, all: Vec<T>) -> Answer<Value> {
    let (offset, limit) = (request.number("offset")?.unwrap_or(0), request.number("limit")?.unwrap_or(usize::MAX));
    let part: Vec<T> = all.into_iter().skip(offset).take(limit).collect();
    Ok(json!(part))
}
