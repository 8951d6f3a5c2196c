//! Debezium's signals: what somebody asks of a running connector, and what it means.

use regex_lite::Regex;
use serde_json::{Map, Value};

/// What a signal asks for.
#[derive(Clone, Debug)]
pub enum Meaning {
    /// `execute-snapshot`
    Read(Wanted),
    /// `stop-snapshot`; none: of all tables.
    Stop(Option<Names>),
    /// `pause-snapshot`
    Pause,
    /// `resume-snapshot`
    Resume,
    /// `log`
    Log(String),
    /// A mark that a connector writes for itself.
    Mark,
}

/// Tables that are to be read again.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub names: Names,
    conditions: Vec<(Names, String)>,
    is_blocking: bool,
}

/// Tables by name or by regular expression, which has to match all of `schema.table`.
#[derive(Clone, Debug)]
pub struct Names(Vec<(String, Option<Regex>)>);

/// `id`, `type` and `data` of a signal that came as JSON. `otherwise`: its id, if it has none.
pub fn parts(json: &[u8], otherwise: &str) -> Result<(String, String, String), String> {
    let parsed: Value = serde_json::from_slice(json).map_err(|error| format!("it can't be read as JSON: {error}"))?;
    let Value::Object(mut fields) = parsed else { return Err("it is no JSON object".into()) };
    let kind = text(&mut fields, "type")?.ok_or("it has no `type`")?;
    let id = match fields.remove("id") {
        None | Some(Value::Null) => otherwise.to_string(),
        Some(Value::String(id)) => id,
        Some(id) => id.to_string(),
    };
    let data = match fields.remove("data") {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(data)) => data,
        Some(data) => data.to_string(),
    };
    match fields.keys().next() {
        None => Ok((id, kind, data)),
        Some(field) => Err(format!("it has `{field}`: a signal has `id`, `type` and `data`")),
    }
}

impl Meaning {
    /// The error says what can't be taken, and what can.
    pub fn of(kind: &str, data: &str) -> Result<Meaning, String> {
        Ok(match kind {
            "execute-snapshot" => Meaning::Read(wanted(fields(data)?)?),
            "stop-snapshot" => {
                let mut fields = fields(data)?;
                is_blocking(&mut fields)?;
                let names = fields.remove("data-collections").map(names).transpose()?;
                nothing_else(&fields)?;
                Meaning::Stop(names)
            }
            "pause-snapshot" | "resume-snapshot" => {
                let mut fields = fields(data)?;
                is_blocking(&mut fields)?;
                nothing_else(&fields)?;
                if kind == "pause-snapshot" {
                    Meaning::Pause
                } else {
                    Meaning::Resume
                }
            }
            "log" => {
                let mut fields = fields(data)?;
                Meaning::Log(text(&mut fields, "message")?.unwrap_or_default())
            }
            "snapshot-window-open" | "snapshot-window-close" => Meaning::Mark,
            "" if data.is_empty() => return Err("it has no type".into()),
            "" => return Err(parts(data.as_bytes(), "").err().unwrap_or_else(|| "it has no type".into())),
            _ => {
                return Err(format!(
                    "the type {kind:?} isn't known: execute-snapshot, stop-snapshot, pause-snapshot, resume-snapshot and log are"
                ))
            }
        })
    }
}

impl Wanted {
    /// The condition on a table's rows, if there is one.
    pub fn condition(&self, schema: &str, table: &str) -> Result<Option<String>, String> {
        let mut found = self.conditions.iter().filter(|(names, _)| names.matches(schema, table));
        let Some((_, filter)) = found.next() else { return Ok(None) };
        if found.next().is_some() {
            return Err(format!("there are two conditions on {schema}.{table}: join them with AND"));
        }
        match self.is_blocking && is_statement(filter) {
            true => condition_of(filter, schema, table).map(Some),
            false => Ok(Some(filter.clone())),
        }
    }

    /// Names in conditions that none of these tables has.
    pub fn idle_conditions<'a>(&'a self, tables: &[(String, String)]) -> Vec<&'a str> {
        self.conditions.iter().flat_map(|(names, _)| names.unmatched(tables)).collect()
    }
}

impl Names {
    pub fn matches(&self, schema: &str, table: &str) -> bool {
        let name = format!("{schema}.{table}");
        self.0.iter().any(|(text, regex)| is_it(text, regex.as_ref(), &name))
    }

    /// Those that none of these tables (schema, name) has.
    pub fn unmatched(&self, tables: &[(String, String)]) -> Vec<&str> {
        let names: Vec<String> = tables.iter().map(|(schema, table)| format!("{schema}.{table}")).collect();
        let is_lone =
            |(text, regex): &&(String, Option<Regex>)| !names.iter().any(|name| is_it(text, regex.as_ref(), name));
        self.0.iter().filter(is_lone).map(|(text, _)| text.as_str()).collect()
    }

    fn one(text: String) -> Result<(String, Option<Regex>), String> {
        let text = text.trim().to_string();
        // A plain name is an expression, too; one with `$` in it is none that would match it.
        match Regex::new(&format!("^(?:{text})$")) {
            Ok(regex) => Ok((text, Some(regex))),
            Err(error) => Err(format!("{text:?} is no regular expression that can be read: {error}")),
        }
    }
}

fn is_it(text: &str, regex: Option<&Regex>, name: &str) -> bool {
    text == name || regex.is_some_and(|regex| regex.is_match(name))
}

fn wanted(mut fields: Map<String, Value>) -> Result<Wanted, String> {
    let is_blocking = is_blocking(&mut fields)?;
    let names = match fields.remove("data-collections") {
        Some(list) => names(list)?,
        None => return Err("it names no tables: `data-collections` is a list of them".into()),
    };
    // In which order chunks are read changes nothing: they are placed by transactions, not by keys.
    fields.remove("surrogate-key");
    let mut conditions = Vec::new();
    match fields.remove("additional-conditions") {
        None | Some(Value::Null) => {}
        Some(Value::Array(list)) => {
            for one in list {
                conditions.push(condition(one)?);
            }
        }
        Some(_) => return Err("`additional-conditions` must be a list".into()),
    }
    nothing_else(&fields)?;
    Ok(Wanted { names, conditions, is_blocking })
}

fn condition(node: Value) -> Result<(Names, String), String> {
    let whole = "an additional condition has `data-collection` and `filter`, and nothing else";
    let Value::Object(mut fields) = node else { return Err(whole.into()) };
    let table = text(&mut fields, "data-collection")?.ok_or(whole)?;
    let filter = text(&mut fields, "filter")?.filter(|filter| !filter.trim().is_empty()).ok_or(whole)?;
    match fields.is_empty() {
        true => Ok((Names(vec![Names::one(table)?]), filter)),
        false => Err(whole.into()),
    }
}

fn names(list: Value) -> Result<Names, String> {
    let wrong = "`data-collections` must be a list of tables, as schema.table or as regular expressions";
    let Value::Array(list) = list else { return Err(wrong.into()) };
    let one = |node: Value| match node {
        Value::String(text) if !text.trim().is_empty() => Names::one(text),
        _ => Err(wrong.into()),
    };
    let names: Vec<_> = list.into_iter().map(one).collect::<Result<_, String>>()?;
    match names.is_empty() {
        true => Err("it names no tables: `data-collections` is empty".into()),
        false => Ok(Names(names)),
    }
}

/// The two types do the same here.
fn is_blocking(fields: &mut Map<String, Value>) -> Result<bool, String> {
    match text(fields, "type")?.map(|kind| kind.to_ascii_lowercase()).as_deref() {
        None | Some("incremental") => Ok(false),
        Some("blocking") => Ok(true),
        Some(other) => Err(format!("a snapshot of the type {other:?} isn't known: incremental and blocking are")),
    }
}

fn fields(data: &str) -> Result<Map<String, Value>, String> {
    if data.trim().is_empty() {
        return Ok(Map::new());
    }
    match serde_json::from_str(data) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(Value::Null) => Ok(Map::new()),
        Ok(_) => Err("its data is no JSON object".into()),
        Err(error) => Err(format!("its data can't be read as JSON: {error}")),
    }
}

fn text(fields: &mut Map<String, Value>, name: &str) -> Result<Option<String>, String> {
    match fields.remove(name) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(format!("`{name}` must be text")),
    }
}

fn nothing_else(fields: &Map<String, Value>) -> Result<(), String> {
    match fields.keys().next() {
        None => Ok(()),
        Some(field) => Err(format!("`{field}` in its data isn't known, so it isn't known what is asked for")),
    }
}

fn is_statement(filter: &str) -> bool {
    let word = filter.trim_start().split(|c: char| !c.is_ascii_alphabetic()).next();
    word.is_some_and(|word| word.eq_ignore_ascii_case("select"))
}

/// For blocking snapshots a filter is a whole statement: its condition, if it says nothing else.
fn condition_of(statement: &str, schema: &str, table: &str) -> Result<String, String> {
    let cannot = || {
        format!(
            "the filter for {schema}.{table} is a statement of which only a condition can be taken: \
             SELECT * FROM {schema}.{table} WHERE …, or the condition alone"
        )
    };
    let form = Regex::new(r#"(?is)^\s*select\s+\*\s+from\s+(\S+)\s+where\s+(.*\S)\s*$"#).map_err(|_| cannot())?;
    let found = form.captures(statement).ok_or_else(cannot)?;
    let plain = |name: &str| name.replace('"', "");
    match plain(&found[1]) == plain(&format!("{schema}.{table}")) {
        true => Ok(found[2].trim_end_matches(';').to_string()),
        false => Err(cannot()),
    }
}

#[cfg(test)]
mod tests;
