//! `${VAR}` and `${file:/path}` in string values; `$${` stands for a plain `${`.

use super::yaml::{Node, Value};
use tidewire_change::{Error, Result};

/// Where values come from; tests bring their own.
pub trait Lookup {
    fn variable(&self, name: &str) -> Option<String>;
    fn file(&self, path: &str) -> std::io::Result<String>;
}

/// The process's environment and the file system.
pub struct Surroundings;

impl Lookup for Surroundings {
    fn variable(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
    fn file(&self, path: &str) -> std::io::Result<String> {
        std::fs::read_to_string(path)
    }
}

/// Replaces references in all string values below `node`. What is put in is not looked at again.
pub fn substitute(file: &str, node: &mut Node, lookup: &dyn Lookup) -> Result<()> {
    match &mut node.value {
        Value::Text(text) => {
            if let Some((replaced, secret)) = expand(text, lookup).map_err(|e| {
                Error::invalid(format!("{file}:{}:{}: {}", node.place.line, node.place.column, e.0)).hint(e.1)
            })? {
                *text = replaced;
                node.secret = secret;
            }
        }
        Value::List(nodes) => nodes.iter_mut().try_for_each(|node| substitute(file, node, lookup))?,
        Value::Map(entries) => entries.iter_mut().try_for_each(|entry| substitute(file, &mut entry.node, lookup))?,
        Value::Nothing | Value::Bool(_) | Value::Integer(_) | Value::Float(_) => {}
    }
    Ok(())
}

/// What is wrong, and what to do.
struct Fault(String, String);

/// The expanded text and whether anything was looked up; `None` when there is nothing to expand.
fn expand(text: &str, lookup: &dyn Lookup) -> Result<Option<(String, bool)>, Fault> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut looked_up) = (text, false);
    while let Some(at) = rest.find("${") {
        if rest[..at].ends_with('$') {
            out.push_str(&rest[..at - 1]);
            out.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        out.push_str(&rest[..at]);
        let end = rest[at..]
            .find('}')
            .ok_or_else(|| Fault("`${` without its `}`".into(), "close it, or write `$${` for a plain `${`".into()))?;
        out.push_str(&one(&rest[at + 2..at + end], lookup)?);
        looked_up = true;
        rest = &rest[at + end + 1..];
    }
    out.push_str(rest);
    Ok(Some((out, looked_up)))
}

fn one(reference: &str, lookup: &dyn Lookup) -> Result<String, Fault> {
    if let Some(path) = reference.strip_prefix("file:") {
        let text = lookup
            .file(path)
            .map_err(|e| Fault(format!("can't read the file {path}: {e}"), "check the path and its rights".into()))?;
        return Ok(text.strip_suffix('\n').map(|t| t.strip_suffix('\r').unwrap_or(t)).unwrap_or(&text).to_string());
    }
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if reference.is_empty() || !reference.chars().all(legal) {
        return Err(Fault(
            format!("`${{{reference}}}` is not the name of an environment variable"),
            "write `${NAME}`, `${file:/path}`, or `$${` for a plain `${`".into(),
        ));
    }
    lookup.variable(reference).ok_or_else(|| {
        Fault(format!("the environment variable {reference} is not set"), format!("export {reference}=…"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;
    impl Lookup for Fixed {
        fn variable(&self, name: &str) -> Option<String> {
            (name == "PW").then(|| "s3${PW}cret".to_string())
        }
        fn file(&self, path: &str) -> std::io::Result<String> {
            match path {
                "/pw" => Ok("from file\n".into()),
                _ => Err(std::io::ErrorKind::NotFound.into()),
            }
        }
    }

    fn done(text: &str) -> String {
        expand(text, &Fixed).map(|o| o.map(|x| x.0).unwrap_or(text.into())).unwrap_or_else(|f| format!("! {}", f.0))
    }

    #[test]
    fn references_are_replaced_once_and_escapes_stay() {
        assert_eq!(done("a${PW}b"), "as3${PW}cretb", "what is put in isn't expanded again");
        assert_eq!(done("${file:/pw}!"), "from file!");
        assert_eq!(done("$${PW} costs $5"), "${PW} costs $5");
        assert_eq!(done("plain $ {x}"), "plain $ {x}");
    }

    #[test]
    fn a_missing_reference_is_named() {
        assert_eq!(done("${NOPE}"), "! the environment variable NOPE is not set");
        assert!(done("${file:/gone}").starts_with("! can't read the file /gone"));
        assert_eq!(done("x${PW"), "! `${` without its `}`");
        assert!(done("${a${PW}}").starts_with("! `${a${PW}` is not"), "no nested expansion");
    }
}
