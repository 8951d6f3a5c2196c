//! A schema of any format, and the levels of compatibility between its versions.

use crate::bounds::Budget;
use crate::difference::Difference;
use crate::walk::Walk;
use crate::{avro, json_schema, protobuf};
use std::fmt;
use tidewire_change::Result;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    Avro,
    Json,
    Protobuf,
}

impl Format {
    pub const ALL: [Format; 3] = [Format::Json, Format::Protobuf, Format::Avro];

    pub fn word(self) -> &'static str {
        match self {
            Format::Avro => "AVRO",
            Format::Json => "JSON",
            Format::Protobuf => "PROTOBUF",
        }
    }

    pub fn parse(word: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.word() == word)
    }
}

/// Whose rules are followed where registries disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Profile {
    #[default]
    Confluent,
    Karapace,
}

impl Profile {
    pub fn parse(word: &str) -> Option<Profile> {
        match word {
            "confluent" => Some(Profile::Confluent),
            "karapace" => Some(Profile::Karapace),
            _ => None,
        }
    }
}

/// Who must be able to read what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Level {
    None,
    Backward,
    BackwardTransitive,
    Forward,
    ForwardTransitive,
    Full,
    FullTransitive,
}

impl Level {
    pub const ALL: [Level; 7] = [
        Level::None,
        Level::Backward,
        Level::BackwardTransitive,
        Level::Forward,
        Level::ForwardTransitive,
        Level::Full,
        Level::FullTransitive,
    ];

    pub fn word(self) -> &'static str {
        match self {
            Level::None => "NONE",
            Level::Backward => "BACKWARD",
            Level::BackwardTransitive => "BACKWARD_TRANSITIVE",
            Level::Forward => "FORWARD",
            Level::ForwardTransitive => "FORWARD_TRANSITIVE",
            Level::Full => "FULL",
            Level::FullTransitive => "FULL_TRANSITIVE",
        }
    }

    pub fn parse(word: &str) -> Option<Level> {
        let word = word.to_ascii_uppercase();
        Level::ALL.into_iter().find(|level| level.word() == word)
    }

    /// With all versions, not the latest alone.
    pub fn is_transitive(self) -> bool {
        matches!(self, Level::BackwardTransitive | Level::ForwardTransitive | Level::FullTransitive)
    }

    /// The new schema reads what an old one wrote.
    pub fn reads_old(self) -> bool {
        matches!(self, Level::Backward | Level::BackwardTransitive | Level::Full | Level::FullTransitive)
    }

    /// An old schema reads what the new one writes.
    pub fn read_by_old(self) -> bool {
        matches!(self, Level::Forward | Level::ForwardTransitive | Level::Full | Level::FullTransitive)
    }

    /// What keeps `new` from following `old`: with each difference, whether the new schema is the reader.
    pub fn differences(
        self,
        new: &Schema,
        old: &Schema,
        profile: Profile,
        budget: &mut Budget,
    ) -> Result<Vec<(bool, Difference)>> {
        let mut found = Vec::new();
        if self.reads_old() {
            found.extend(compare(new, old, profile, budget)?.into_iter().map(|difference| (true, difference)));
        }
        if self.read_by_old() {
            found.extend(compare(old, new, profile, budget)?.into_iter().map(|difference| (false, difference)));
        }
        Ok(found)
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A schema that was understood.
pub enum Schema {
    Avro(avro::Schema),
    Json(json_schema::Schema),
    Protobuf(protobuf::Schema),
}

impl Schema {
    /// `references`: names by which the schema calls others, with their texts, each behind those that it needs itself.
    pub fn parse(format: Format, text: &str, references: &[(&str, &str)]) -> Result<Schema> {
        Ok(match format {
            Format::Avro => {
                let texts: Vec<&str> = references.iter().map(|(_, text)| *text).collect();
                Schema::Avro(avro::parse(text, &texts)?)
            }
            Format::Json => Schema::Json(json_schema::parse(text, references)?),
            Format::Protobuf => Schema::Protobuf(protobuf::parse(text, references)?),
        })
    }

    pub fn format(&self) -> Format {
        match self {
            Schema::Avro(_) => Format::Avro,
            Schema::Json(_) => Format::Json,
            Schema::Protobuf(_) => Format::Protobuf,
        }
    }

    /// One text for all spellings of one schema: two texts with the same are the same schema.
    pub fn canonical(&self) -> String {
        match self {
            Schema::Avro(schema) => avro::print(schema, false),
            Schema::Json(schema) => schema.print(false),
            Schema::Protobuf(schema) => protobuf::print(schema, false),
        }
    }

    /// The canonical text with everything in order whose order means nothing.
    pub fn normal(&self) -> String {
        match self {
            Schema::Avro(schema) => avro::print(schema, true),
            Schema::Json(schema) => schema.print(true),
            Schema::Protobuf(schema) => protobuf::print(schema, true),
        }
    }

    /// The schema's text, where it came in another form.
    pub fn own_text(&self) -> Option<&str> {
        match self {
            Schema::Protobuf(schema) => schema.text.as_deref(),
            Schema::Avro(_) | Schema::Json(_) => None,
        }
    }

    /// Refuses what no reader could use: defaults of another type, and schemas that stand for themselves alone.
    pub fn check_use(&self, budget: &mut Budget) -> Result<()> {
        match self {
            Schema::Avro(schema) => avro::check_defaults(schema, budget),
            Schema::Json(schema) => json_schema::check_ends(schema, budget),
            Schema::Protobuf(_) => Ok(()),
        }
    }
}

/// What keeps the reader from reading all that the writer may write; nothing: they go together.
pub fn compare(reader: &Schema, writer: &Schema, profile: Profile, budget: &mut Budget) -> Result<Vec<Difference>> {
    let mut walk = Walk::new(budget);
    match (reader, writer) {
        (Schema::Avro(reader), Schema::Avro(writer)) => avro::compare(reader, writer, &mut walk)?,
        (Schema::Json(reader), Schema::Json(writer)) => json_schema::compare(reader, writer, profile, &mut walk)?,
        (Schema::Protobuf(reader), Schema::Protobuf(writer)) => protobuf::compare(reader, writer, profile, &mut walk)?,
        (reader, writer) => {
            let said = || format!("{} can't be read as {}", writer.format().word(), reader.format().word());
            walk.differ("SCHEMA_TYPE_MISMATCH", said);
        }
    }
    Ok(walk.found())
}
