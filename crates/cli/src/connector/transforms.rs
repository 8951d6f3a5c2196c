//! A connector's transforms: the one that is run here, Debezium's ExtractNewRecordState, as `bus.kafka.unwrap`.

use super::{becomes, refused, same, text, Fate};
use tidewire_envelope::debezium::Unwrap;

pub(super) const UNWRAP: &str = "io.debezium.transforms.ExtractNewRecordState";
const HEADERS: &str = "org.apache.kafka.connect.storage.SimpleHeaderConverter";
const MODE: &str = "delete.tombstone.handling.mode";

/// What a connector's JSON says of its transforms.
pub(super) struct Transforms<'a> {
    given: &'a [(String, String)],
    /// Without them there are no topics.
    has_topics: bool,
}

impl<'a> Transforms<'a> {
    pub fn of(given: &'a [(String, String)], has_topics: bool) -> Transforms<'a> {
        Transforms { given, has_topics }
    }

    fn get(&self, name: &str) -> Option<&'a str> {
        self.given.iter().find(|(property, _)| property == name).map(|(_, value)| value.as_str())
    }

    fn names(&self) -> Vec<&'a str> {
        self.get("transforms").unwrap_or("").split(',').map(str::trim).filter(|name| !name.is_empty()).collect()
    }

    /// The name of the one transform, if it is the one that is run here.
    fn unwrap(&self) -> Option<&'a str> {
        match self.names()[..] {
            [name] if self.get(&format!("transforms.{name}.type")) == Some(UNWRAP) => Some(name),
            _ => None,
        }
    }

    fn option(&self, name: &str) -> Option<&'a str> {
        self.get(&format!("transforms.{}.{name}", self.unwrap()?)).map(str::trim)
    }

    /// Rows are written alone.
    pub fn is_unwrapped(&self) -> bool {
        self.has_topics && self.unwrap().is_some()
    }

    /// Lines of `bus.kafka`.
    pub fn yaml(&self) -> String {
        if !self.is_unwrapped() {
            return String::new();
        }
        let options = self.options();
        if options.is_empty() {
            return "    unwrap: {}\n".to_string();
        }
        let lines = options.iter().map(|(name, value)| format!("      {name}: {}\n", text(value)));
        format!("    unwrap:\n{}", lines.collect::<String>())
    }

    /// What the configuration says of copies.
    pub fn sinks(&self) -> &'static str {
        match self.is_unwrapped() {
            true => "# Copies aren't filled from rows alone: `tidewire capture` writes the topics, and that is all.\n",
            false => {
                "# A connector names no copies; this is one to begin with.\nsinks:\n  lake:\n    delta: { path: ./lake }\n"
            }
        }
    }

    /// By the names of today, without what no message has.
    fn options(&self) -> Vec<(&'static str, String)> {
        let mut options = Vec::new();
        options.extend(self.option(MODE).or(self.old_mode()).map(|mode| (MODE, mode.to_string())));
        for list in ["add.fields", "add.headers"] {
            let known = self.option(list).map(|words| {
                let unknown = Unwrap::unknown(words);
                let words = words.split(',').map(str::trim).filter(|word| !word.is_empty() && !unknown.contains(word));
                words.collect::<Vec<_>>().join(",")
            });
            options.extend(known.filter(|known| !known.is_empty()).map(|known| (list, known)));
        }
        for prefix in ["add.fields.prefix", "add.headers.prefix"] {
            options.extend(self.option(prefix).map(|value| (prefix, value.to_string())));
        }
        options
    }

    /// What `drop.tombstones` and `delete.handling.mode` said before Debezium 2.5.
    fn old_mode(&self) -> Option<&'static str> {
        let (tombstones, deletes) = (self.option("drop.tombstones"), self.option("delete.handling.mode"));
        if tombstones.is_none() && deletes.is_none() {
            return None;
        }
        let keeps = tombstones.is_some_and(|value| value.eq_ignore_ascii_case("false"));
        Some(match (deletes.unwrap_or("drop").to_ascii_lowercase().as_str(), keeps) {
            ("drop", false) => "drop",
            ("none", false) => "tombstone",
            ("rewrite", false) => "rewrite",
            ("rewrite", true) => "rewrite-with-tombstone",
            // The tombstone stays, and says all.
            ("drop" | "none", true) => "delete-to-tombstone",
            _ => return None,
        })
    }

    /// None: no property of these.
    pub fn fate(&self, property: &str, value: &str) -> Option<Fate> {
        if property == "header.converter"
            && self.is_unwrapped()
            && self.option("add.headers").is_some_and(|of| !of.is_empty())
        {
            return Some(match value == HEADERS {
                true => same("what is added to headers is text"),
                false => refused("what is added to headers is text, as Connect's SimpleHeaderConverter writes it"),
            });
        }
        if property == "transforms" {
            return Some(self.all());
        }
        let rest = property.strip_prefix("transforms.")?;
        let Some(unwrap) = self.unwrap() else {
            return Some(refused("transforms aren't run but ExtractNewRecordState alone"));
        };
        let Some(option) = rest.strip_prefix(unwrap).and_then(|rest| rest.strip_prefix('.')) else {
            return Some(Fate::NoMeaning("no transform has this name".into()));
        };
        if option == "predicate" && !value.is_empty() {
            return Some(refused("predicates aren't asked: every row is written alone"));
        }
        if !self.has_topics {
            return Some(Fate::NoMeaning(ROWS.into()));
        }
        Some(self.of_option(option, value))
    }

    fn all(&self) -> Fate {
        match self.names()[..] {
            [] => same("none"),
            [_] if self.unwrap().is_some() && !self.has_topics => Fate::NoMeaning(ROWS.into()),
            [_] if self.unwrap().is_some() => becomes("bus.kafka.unwrap: rows are written alone"),
            [_] => refused("of transforms only ExtractNewRecordState is run, as bus.kafka.unwrap"),
            _ => refused("several transforms aren't run: ExtractNewRecordState alone is, as bus.kafka.unwrap"),
        }
    }

    fn of_option(&self, option: &str, value: &str) -> Fate {
        let becomes_mode = |mode: &str| becomes(format!("bus.kafka.unwrap: {MODE}: {mode}"));
        match option {
            "type" => becomes("bus.kafka.unwrap"),
            "predicate" | "negate" => same("without a predicate every row is written alone"),
            "drop.tombstones" | "delete.handling.mode" if self.option(MODE).is_some() => {
                Fate::NoMeaning(format!("{MODE} says it"))
            }
            "drop.tombstones" | "delete.handling.mode" => match self.old_mode() {
                Some(mode) => becomes_mode(mode),
                None => refused("its values are drop, rewrite and none"),
            },
            "replace.null.with.default" if value.eq_ignore_ascii_case("false") => same("NULL stays NULL"),
            "replace.null.with.default" => {
                Fate::NoMeaning("schemas tell no defaults here: NULL stays NULL (docs/debezium.md)".into())
            }
            "drop.fields.header.name" if self.bears(value) => {
                refused(format!("the header {value} is no list of fields: the transform itself stops at it"))
            }
            "drop.fields.header.name" | "drop.fields.from.key" | "drop.fields.keep.schema.compatible" => {
                Fate::NoMeaning(Unwrap::NOTHING_TO_DROP.into())
            }
            "route.by.field" if value.is_empty() => same("a row goes to its table's topic"),
            "route.by.field" => refused(format!("{}: {}", Unwrap::NO_ROUTES, Unwrap::ROUTE)),
            MODE | "add.fields" | "add.headers" | "add.fields.prefix" | "add.headers.prefix" => {
                self.taken(option, value)
            }
            _ => refused(format!("no option of ExtractNewRecordState; there are {}", Unwrap::OPTIONS.join(", "))),
        }
    }

    /// Do messages have a header of this name?
    fn bears(&self, header: &str) -> bool {
        let options = self.options();
        let unwrap = Unwrap::of(options.iter().map(|(name, value)| (*name, value.as_str())));
        let is_added = unwrap.is_ok_and(|unwrap| unwrap.headers.iter().any(|of| of.name == header));
        is_added || matches!(header, "__debezium.newkey" | "__debezium.oldkey")
    }

    fn taken(&self, option: &str, value: &str) -> Fate {
        let options = self.options();
        let own = options.iter().find(|(name, _)| *name == option);
        let alone = own.map(|(name, value)| (*name, value.as_str()));
        let all = options.iter().map(|(name, value)| (*name, value.as_str()));
        // What is wrong with one is told there, what doesn't fit together at the lists.
        let judged = match option {
            "add.fields" | "add.headers" => Unwrap::of(alone).and_then(|_| Unwrap::of(all)),
            _ => Unwrap::of(alone),
        };
        if let Err(error) = judged {
            return refused(error.to_string());
        }
        let unknown =
            if option == "add.fields" || option == "add.headers" { Unwrap::unknown(value) } else { Vec::new() };
        let taken = own.map_or("none", |(_, value)| value.as_str());
        match unknown.is_empty() {
            true => becomes(format!("bus.kafka.unwrap: {option}: {taken}")),
            false => becomes(format!(
                "bus.kafka.unwrap: {option}: {taken} (no message has {}: the transform passes over it)",
                unknown.join(", ")
            )),
        }
    }
}

const ROWS: &str = "a copy has rows, not envelopes";
