//! Questions that change nothing.

use super::{Answer, Reference, Refusal, Registry, Stored, Version};
use crate::contract::{Format, Schema};

/// A version of a subject, as it is answered.
pub struct Found<'a> {
    pub subject: &'a str,
    pub version: u32,
    pub id: u32,
    pub stored: &'a Stored,
}

/// Which of the softly deleted are listed, too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Listing {
    #[default]
    Live,
    WithDeleted,
    DeletedOnly,
}

/// A version as it is asked for: a number, or the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    Latest,
    Number(u32),
}

impl Asked {
    pub fn parse(word: &str) -> Answer<Asked> {
        match word {
            "latest" | "-1" => Ok(Asked::Latest),
            word => match word.parse::<i32>() {
                Ok(number) if number > 0 => Ok(Asked::Number(number.unsigned_abs())),
                _ => Err(Refusal::new(
                    42202,
                    format!(
                        "The specified version '{word}' is not a valid version id. \
                         Allowed values are between [1, 2^31-1] and the string \"latest\""
                    ),
                )),
            },
        }
    }
}

impl Listing {
    fn takes(self, version: &Version) -> bool {
        match self {
            Listing::Live => !version.is_deleted,
            Listing::WithDeleted => true,
            Listing::DeletedOnly => version.is_deleted,
        }
    }
}

impl Registry {
    pub fn subjects(&self, prefix: &str, listing: Listing) -> Vec<&str> {
        let is_listed = |versions: &[Version]| match listing {
            Listing::DeletedOnly => versions.iter().all(|version| version.is_deleted),
            listing => versions.iter().any(|version| listing.takes(version)),
        };
        let with_prefix = self.subjects.iter().filter(|(subject, _)| subject.starts_with(prefix));
        with_prefix.filter(|(_, versions)| is_listed(versions)).map(|(subject, _)| subject.as_str()).collect()
    }

    pub fn version_numbers(&self, subject: &str, listing: Listing) -> Answer<Vec<u32>> {
        let found: Vec<u32> =
            self.versions(subject).iter().filter(|v| listing.takes(v)).map(|version| version.number).collect();
        match found.is_empty() {
            true => Err(Refusal::no_subject(subject)),
            false => Ok(found),
        }
    }

    pub fn version(&self, subject: &str, asked: Asked, with_deleted: bool) -> Answer<Found<'_>> {
        let listing = if with_deleted { Listing::WithDeleted } else { Listing::Live };
        self.version_numbers(subject, listing)?;
        let mut taken = self.versions(subject).iter().filter(|version| listing.takes(version));
        let found = match asked {
            Asked::Latest => taken.next_back().ok_or_else(|| Refusal::no_version("latest"))?,
            Asked::Number(number) => taken.find(|v| v.number == number).ok_or_else(|| Refusal::no_version(number))?,
        };
        self.found(subject, found)
    }

    fn found(&self, subject: &str, version: &Version) -> Answer<Found<'_>> {
        let (subject, _) = self.subjects.get_key_value(subject).ok_or_else(|| Refusal::no_subject(subject))?;
        let stored = self.schemas.get(&version.id).ok_or_else(|| Refusal::no_schema_of(version.id))?;
        Ok(Found { subject, version: version.number, id: version.id, stored })
    }

    /// All versions of all subjects with the prefix; with `latest` the last of each alone.
    pub fn all(&self, prefix: &str, with_deleted: bool, latest: bool) -> Vec<Found<'_>> {
        let listing = if with_deleted { Listing::WithDeleted } else { Listing::Live };
        let mut found = Vec::new();
        for (subject, versions) in self.subjects.iter().filter(|(subject, _)| subject.starts_with(prefix)) {
            let taken = versions.iter().filter(|version| listing.takes(version));
            let mut of_this: Vec<_> = taken.filter_map(|version| self.found(subject, version).ok()).collect();
            if latest {
                of_this = of_this.pop().into_iter().collect();
            }
            found.append(&mut of_this);
        }
        found
    }

    /// The schema of an id; also of one whose versions are softly deleted.
    pub fn schema(&self, id: u32) -> Answer<&Stored> {
        self.schemas.get(&id).ok_or_else(|| Refusal::no_schema_of(id))
    }

    pub fn schema_of_guid(&self, guid: &str) -> Answer<&Stored> {
        let id = self.guids.get(&guid.to_ascii_lowercase());
        let stored = id.and_then(|id| self.schemas.get(id));
        stored.ok_or_else(|| Refusal::new(40403, format!("Schema {guid} not found")))
    }

    pub fn highest_id(&self) -> u32 {
        self.highest
    }

    /// Subject and version of each use.
    pub fn uses(&self, id: u32, with_deleted: bool) -> Answer<Vec<(&str, u32)>> {
        self.schema(id)?;
        let listing = if with_deleted { Listing::WithDeleted } else { Listing::Live };
        let all = self.subjects.iter().flat_map(|(subject, versions)| versions.iter().map(move |held| (subject, held)));
        let taken = all.filter(|(_, held)| held.id == id && listing.takes(held));
        Ok(taken.map(|(subject, held)| (subject.as_str(), held.number)).collect())
    }

    /// The ids of schemas that refer to this version.
    pub fn referrers(&self, subject: &str, version: u32, with_deleted: bool) -> Vec<u32> {
        let refers = |of: &Reference| of.subject == subject && of.version == version;
        let is_live = |id: u32| self.subjects.values().flatten().any(|held| held.id == id && !held.is_deleted);
        let all = self.schemas.iter().filter(|(_, stored)| stored.references.iter().any(refers));
        all.map(|(id, _)| *id).filter(|id| with_deleted || is_live(*id)).collect()
    }
}

impl Stored {
    /// The text in the form that is asked for with `format`.
    pub fn form(&self, form: &str) -> Answer<String> {
        match (form, &*self.schema) {
            ("" | "default" | "ignore_extensions", _) => Ok(self.text.clone()),
            ("serialized", Schema::Protobuf(schema)) => {
                let bytes = crate::protobuf::descriptor(schema).map_err(Refusal::invalid_schema)?;
                Ok(crate::base64::encode(&bytes))
            }
            ("resolved", Schema::Avro(schema)) => Ok(crate::avro::print_whole(schema)),
            (form, schema) => {
                let format = schema.format().word();
                Err(Refusal::new(42201, format!("a schema of the type {format} can't be told in the form {form:?}")))
            }
        }
    }

    pub fn is_avro(&self) -> bool {
        self.format == Format::Avro
    }
}
