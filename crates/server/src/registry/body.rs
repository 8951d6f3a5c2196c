//! What a request's body says.

use tidewire_registry::json::{self, Json};
use tidewire_registry::state::{Answer, Draft, Reference, Refusal};
use tidewire_registry::Format;

/// Parts of a schema's request that ask for what isn't kept here: they must not seem to be.
const NOT_KEPT: &str = "metadata and rules of data contracts aren't kept here";

pub fn parse(body: &[u8]) -> Answer<Json> {
    let text = std::str::from_utf8(body).map_err(|_| Refusal::new(400, "The body is no UTF-8"))?;
    let json = json::parse_any(text).map_err(|e| Refusal::new(400, e.message()))?;
    match json {
        Json::Object(_) => Ok(json),
        _ => Err(Refusal::new(400, "The body must be a JSON object")),
    }
}

pub fn draft(body: &[u8]) -> Answer<Draft> {
    let json = parse(body)?;
    let mut draft =
        Draft { format: Format::Avro, text: String::new(), references: Vec::new(), id: None, version: None };
    let mut has_text = false;
    for (key, value) in json.members().unwrap_or_default() {
        match (key.as_str(), value) {
            // As if it weren't there.
            (_, Json::Null) => {}
            ("schema", Json::Text(text)) => {
                draft.text.clone_from(text);
                has_text = true;
            }
            ("schemaType", Json::Text(word)) => {
                let wrong = || Refusal::invalid_schema(format!("the type of schema {word:?} isn't known"));
                draft.format = Format::parse(&word.to_ascii_uppercase()).ok_or_else(wrong)?;
            }
            ("references", Json::List(all)) => draft.references = all.iter().map(reference).collect::<Answer<_>>()?,
            ("id", Json::Number(_)) => draft.id = positive(value, "id")?,
            ("version", Json::Number(_)) => draft.version = positive(value, "version")?,
            ("metadata" | "ruleSet", _) => return Err(Refusal::invalid_schema(NOT_KEPT)),
            // What a client got with another answer and sends back.
            (
                "subject"
                | "guid"
                | "ts"
                | "deleted"
                | "schemaTagsToAdd"
                | "schemaTagsToRemove"
                | "propagateSchemaTags",
                _,
            ) => {}
            (key, value) => {
                let told = format!("the request's field {key:?} is unknown, or can't be {}", value.kind());
                return Err(Refusal::new(422, told));
            }
        }
    }
    match has_text {
        true => Ok(draft),
        false => Err(Refusal::invalid_schema("the request has no `schema`")),
    }
}

fn positive(value: &Json, what: &str) -> Answer<Option<u32>> {
    match value {
        Json::Number(digits) => match digits.parse::<i32>() {
            // Clients send 0 and -1 for none.
            Ok(number) => Ok(u32::try_from(number).ok().filter(|number| *number > 0)),
            Err(_) => Err(Refusal::new(422, format!("`{what}` is no number of 32 bits"))),
        },
        _ => Err(Refusal::new(422, format!("`{what}` is no number"))),
    }
}

fn reference(json: &Json) -> Answer<Reference> {
    let text = |key: &str| {
        let text = json.get(key).and_then(Json::text).map(str::to_string);
        text.ok_or_else(|| Refusal::invalid_schema(format!("a reference has no `{key}`")))
    };
    let version = json.get("version").ok_or_else(|| Refusal::invalid_schema("a reference has no `version`"))?;
    Ok(Reference {
        name: text("name")?,
        subject: text("subject")?,
        version: positive(version, "version")?.unwrap_or(0),
    })
}

/// Level and `normalize` of a configuration.
pub fn config(body: &[u8]) -> Answer<(Option<String>, Option<bool>)> {
    let json = parse(body)?;
    let (mut level, mut normalize) = (None, None);
    for (key, value) in json.members().unwrap_or_default() {
        match (key.as_str(), value) {
            (_, Json::Null) => {}
            ("compatibility" | "compatibilityLevel", Json::Text(word)) => level = Some(word.clone()),
            ("normalize", Json::Bool(is)) => normalize = Some(*is),
            (key, _) => {
                return Err(Refusal::new(
                    422,
                    format!("the setting {key:?} isn't kept here: compatibility and normalize are"),
                ))
            }
        }
    }
    Ok((level, normalize))
}

pub fn mode(body: &[u8]) -> Answer<String> {
    let json = parse(body)?;
    let mode = json.get("mode").and_then(Json::text).map(str::to_string);
    mode.ok_or_else(|| Refusal::new(42204, "Invalid mode: the request has no `mode`"))
}
