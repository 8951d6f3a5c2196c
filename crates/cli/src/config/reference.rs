//! docs/configuration.md, made from the table of keys.

use super::keys::{Key, Kind, ROOT};
use std::fmt::Write;

/// The whole page in Markdown.
pub fn reference() -> String {
    let mut page = String::from(INTRODUCTION);
    section(&mut page, "", ROOT);
    page
}

const INTRODUCTION: &str = "# Configuration

This page is made from the code by `make docs`; change `crates/cli/src/config/keys.rs`, not this file.

One YAML file, usually `pipeline.yaml`:

```yaml
source: { postgres: { url: \"${DATABASE_URL}\", tables: [public.orders, \"shop.*\"] } }
sinks:
  lake:    { delta: { path: ./lake } }
  replica: { postgres: { url: \"${REPLICA_URL}\", schema: replica } }
```

* In text values `${NAME}` stands for an environment variable and `${file:/path}` for what a file holds (without its last
  line end); `$${` is a plain `${`. What is put in isn't looked at again, and is never shown in a log, in `status` or in an
  error.
* Sizes: `128MB`, `64KiB`; kB, MB, GB and TB are powers of 1000, KiB, MiB, GiB and TiB of 1024. Durations: `250ms`, `10s`,
  `5m`, `2h`, `7d`.
* Relative paths start at the folder of the configuration file.
* Unknown keys are errors.
";

fn section(page: &mut String, path: &str, keys: &'static [Key]) {
    let title = if path.is_empty() { "Top level".to_string() } else { format!("`{path}`") };
    let _ = write!(page, "\n## {title}\n\n| key | value | default | |\n|---|---|---|---|\n");
    for key in keys {
        let default = match (key.default, key.required) {
            (Some(text), _) => format!("`{text}`"),
            (None, true) => "required".to_string(),
            (None, false) => "none".to_string(),
        };
        let _ = writeln!(page, "| `{}` | {} | {default} | {} |", key.name, noun(&key.kind), key.doc);
    }
    for key in keys {
        let below = |name: &str| if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
        match key.kind {
            Kind::Section(keys) => section(page, &below(key.name), keys),
            Kind::Named(keys) => section(page, &format!("{}.NAME", below(key.name)), keys),
            _ => {}
        }
    }
}

fn noun(kind: &Kind) -> String {
    match kind {
        Kind::Text => "text".into(),
        Kind::Secret => "text, secret".into(),
        Kind::Path => "path".into(),
        Kind::Size => "size".into(),
        Kind::Duration => "duration".into(),
        Kind::Count { min, max } => format!("number, {min} to {max}"),
        Kind::Flag => "true or false".into(),
        Kind::Choice(choices) => choices.join(" or "),
        Kind::Texts => "list of texts".into(),
        Kind::Pairs => "texts by name".into(),
        Kind::Section(_) => "section".into(),
        Kind::Named(_) => "sections by name".into(),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_page_in_docs_is_what_the_code_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
        let stored = std::fs::read_to_string(path).expect("docs/configuration.md is there");
        assert!(stored == super::reference(), "docs/configuration.md is out of date: run `make docs`");
    }
}
