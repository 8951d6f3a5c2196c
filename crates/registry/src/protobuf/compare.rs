//! Whether a reader with one file reads what was written with another: on the wire there are numbers and kinds only.

use super::names::{within, Named, Names};
use super::{Field, Label, Message, Of, Schema};
use crate::contract::Profile;
use crate::walk::{Judged, Verdict, Walk};
use std::collections::HashMap;
use tidewire_change::Result;

/// Every difference goes to the walk.
pub fn compare(reader: &Schema, writer: &Schema, profile: Profile, walk: &mut Walk<'_>) -> Result<()> {
    let r = Side { names: Names::of(reader)?, package: &reader.file.package };
    let w = Side { names: Names::of(writer)?, package: &writer.file.package };
    if profile == Profile::Confluent && r.package != w.package {
        walk.push("package");
        walk.differ("PACKAGE_CHANGED", || format!("`{}` was `{}`", r.package, w.package));
        walk.pop();
    }
    let mut comparison = Comparison { r, w, profile, walk, judged: Judged::default() };
    let (r_scope, w_scope) = (reader.file.package.as_str(), writer.file.package.as_str());
    comparison.messages((&reader.file.messages, r_scope), (&writer.file.messages, w_scope)).map(|_| ())
}

struct Side<'a> {
    names: Names<'a>,
    package: &'a str,
}

struct Comparison<'a, 'w, 'b> {
    r: Side<'a>,
    w: Side<'a>,
    profile: Profile,
    walk: &'w mut Walk<'b>,
    judged: Judged,
}

const TEXTS: &str = "string and bytes";
const VARINTS: &str = "int32, int64, uint32, uint64, bool and enums";

/// How values of a field lie on the wire.
#[derive(PartialEq)]
enum Kind {
    /// Scalars of one group are read as each other.
    Scalar(&'static str),
    Message,
}

/// A message, and the full name of what it stands in.
type Placed<'a, 's> = (&'a Message, &'s str);

impl<'a> Comparison<'a, '_, '_> {
    fn messages(&mut self, (r, r_scope): (&'a [Message], &str), (w, w_scope): (&'a [Message], &str)) -> Result<bool> {
        let readers: HashMap<&str, &'a Message> = r.iter().map(|message| (message.name.as_str(), message)).collect();
        let mut same = true;
        for writer in w {
            self.walk.step()?;
            self.walk.push_name(&writer.name);
            same &= match readers.get(writer.name.as_str()) {
                Some(reader) => self.message((reader, r_scope), (writer, w_scope))?,
                None => {
                    let said = || format!("the message `{}` was written and is no longer known", writer.name);
                    self.walk.differ("MESSAGE_REMOVED", said)
                }
            };
            self.walk.pop();
        }
        Ok(same)
    }

    fn message(&mut self, (r, r_scope): Placed<'a, '_>, (w, w_scope): Placed<'a, '_>) -> Result<bool> {
        self.walk.down()?;
        let pair = (std::ptr::from_ref(r).addr(), std::ptr::from_ref(w).addr());
        let same = match self.judged.begin(pair, self.walk) {
            Verdict::Known(same) => same,
            Verdict::Open(start) => {
                let (r_full, w_full) = (within(r_scope, &r.name), within(w_scope, &w.name));
                let mut same = self.fields((r, &r_full), (w, &w_full))?;
                same &= self.oneofs(r, w);
                same &= self.messages((&r.messages, &r_full), (&w.messages, &w_full))?;
                self.judged.end(start, pair, same);
                same
            }
        };
        self.walk.up();
        Ok(same)
    }

    fn fields(&mut self, (r, r_full): (&'a Message, &str), (w, w_full): (&'a Message, &str)) -> Result<bool> {
        let readers: HashMap<i32, &Field> = r.fields.iter().map(|field| (field.number, field)).collect();
        let writers: HashMap<i32, &Field> = w.fields.iter().map(|field| (field.number, field)).collect();
        let by_name: HashMap<&str, i32> = w.fields.iter().map(|field| (field.name.as_str(), field.number)).collect();
        let of_confluent = self.profile == Profile::Confluent;
        let mut same = true;
        for field in &r.fields {
            self.walk.step()?;
            self.walk.push(field.number.to_string());
            let name = &field.name;
            same &= match writers.get(&field.number) {
                Some(writer) => self.field((field, r_full), (writer, w_full))?,
                None if field.label == Label::Required && of_confluent => self
                    .walk
                    .differ("REQUIRED_FIELD_ADDED", || format!("the reader requires `{name}`, which was not written")),
                None => true,
            };
            let before = by_name.get(name.as_str()).filter(|before| **before != field.number && !of_confluent);
            if let Some(before) = before {
                same = self.walk.differ("FIELD_TAG_CHANGED", || format!("`{name}` had the number {before}"));
            }
            self.walk.pop();
        }
        for field in w.fields.iter().filter(|field| !readers.contains_key(&field.number)) {
            if field.label == Label::Required && of_confluent {
                self.walk.push(field.number.to_string());
                same = self.walk.differ("REQUIRED_FIELD_REMOVED", || format!("`{}` was required", field.name));
                self.walk.pop();
            }
        }
        Ok(same)
    }

    fn oneofs(&mut self, r: &Message, w: &Message) -> bool {
        let mut same = true;
        let place_of = |message: &Message, name: &str| message.oneofs.iter().position(|oneof| oneof.name == name);
        let written: HashMap<i32, &Field> = w.fields.iter().map(|field| (field.number, field)).collect();
        for (place, oneof) in r.oneofs.iter().enumerate() {
            let before = place_of(w, &oneof.name);
            let own = |field: &&Field| field.oneof == Some(place);
            let was_alone = |field: &&Field| written.get(&field.number).is_some_and(|written| written.oneof.is_none());
            let moved: Vec<&str> = r.fields.iter().filter(own).filter(was_alone).map(|f| f.name.as_str()).collect();
            self.walk.push_name(&oneof.name);
            if before.is_some() && !moved.is_empty() && self.profile == Profile::Confluent {
                let said = || format!("moved into a oneof that was there already: {}", moved.join(", "));
                same = self.walk.differ("FIELD_MOVED_TO_EXISTING_ONEOF", said);
            } else if moved.len() > 1 {
                let said = || format!("several at once could be set, now one only: {}", moved.join(", "));
                same = self.walk.differ("MULTIPLE_FIELDS_MOVED_TO_ONEOF", said);
            }
            let kept: std::collections::HashSet<i32> = r.fields.iter().filter(own).map(|field| field.number).collect();
            for field in w.fields.iter().filter(|field| before.is_some() && field.oneof == before) {
                if !kept.contains(&field.number) {
                    self.walk.push(field.number.to_string());
                    same = self.walk.differ("ONEOF_FIELD_REMOVED", || format!("`{}` was one of them", field.name));
                    self.walk.pop();
                }
            }
            self.walk.pop();
        }
        same
    }

    fn field(&mut self, (r, r_scope): (&Field, &str), (w, w_scope): (&Field, &str)) -> Result<bool> {
        let same = match (&r.of, &w.of) {
            (Of::Map(r_key, r_value), Of::Map(w_key, w_value)) => {
                self.types((r_key, r_scope), (w_key, w_scope))? & self.types((r_value, r_scope), (w_value, w_scope))?
            }
            (Of::Named(a), Of::Named(b)) => self.types((a, r_scope), (b, w_scope))?,
            (Of::Group(a), Of::Group(b)) => self.types((a, r_scope), (b, w_scope))?,
            (a, b) => {
                let said = || format!("a {} can't be read as a {}", shown(b), shown(a));
                self.walk.differ("FIELD_KIND_CHANGED", said)
            }
        };
        Ok(self.label((r, r_scope), w) & same)
    }

    fn label(&mut self, (r, r_scope): (&Field, &str), w: &Field) -> bool {
        let plain = |label: Label| match (label, self.profile) {
            (Label::Implicit, Profile::Confluent) => Label::Optional,
            (label, _) => label,
        };
        let (new, old) = (plain(r.label), plain(w.label));
        let is_number = match &r.of {
            Of::Named(of) => !matches!(self.kind(&self.r, of, r_scope).0, Kind::Message | Kind::Scalar(TEXTS)),
            _ => false,
        };
        match (new, old) {
            (new, old) if new == old => true,
            (new, old) if is_number => {
                self.walk.differ("FIELD_NUMERIC_LABEL_CHANGED", || format!("`{}` was {old:?} and is {new:?}", r.name))
            }
            (Label::Required, _) if self.profile == Profile::Confluent => self
                .walk
                .differ("REQUIRED_FIELD_ADDED", || format!("the reader requires `{}`, which may be missing", r.name)),
            _ => true,
        }
    }

    fn kind<'n>(&self, side: &Side<'n>, of: &str, scope: &str) -> (Kind, String, Option<(&'n Message, String)>) {
        let group = match of {
            "int32" | "int64" | "uint32" | "uint64" | "bool" => VARINTS,
            "sint32" | "sint64" => "sint32 and sint64",
            "fixed32" | "sfixed32" => "fixed32 and sfixed32",
            "fixed64" | "sfixed64" => "fixed64 and sfixed64",
            "float" => "float",
            "double" => "double",
            "string" | "bytes" => TEXTS,
            of => {
                return match side.names.resolve(of, scope) {
                    Some((full, Named::Message(message))) => {
                        let outer = full.rsplit_once('.').map_or("", |(outer, _)| outer).to_string();
                        (Kind::Message, full, Some((message, outer)))
                    }
                    Some((full, Named::Common { is_enum: false })) => (Kind::Message, full, None),
                    Some((full, _)) => (Kind::Scalar(VARINTS), full, None),
                    None => (Kind::Message, of.to_string(), None),
                }
            }
        };
        (Kind::Scalar(group), of.to_string(), None)
    }

    fn types(&mut self, (r, r_scope): (&str, &str), (w, w_scope): (&str, &str)) -> Result<bool> {
        let (r_kind, r_name, r_message) = self.kind(&self.r, r, r_scope);
        let (w_kind, w_name, w_message) = self.kind(&self.w, w, w_scope);
        Ok(match (r_kind, w_kind) {
            (Kind::Scalar(a), Kind::Scalar(b)) if a == b => true,
            (Kind::Scalar(a), Kind::Scalar(_)) => self.walk.differ("FIELD_SCALAR_KIND_CHANGED", || {
                format!("`{w}` can't be read as `{r}`, which goes together with {a} only")
            }),
            (Kind::Message, Kind::Message) => {
                let local = |name: &str, package: &str| {
                    name.strip_prefix(package).and_then(|rest| rest.strip_prefix('.')).unwrap_or(name).to_string()
                };
                if local(&r_name, self.r.package) != local(&w_name, self.w.package) {
                    // Karapace looks at the last name only, and then at nothing else.
                    return Ok(self.profile == Profile::Karapace
                        || self.walk.differ("FIELD_NAMED_TYPE_CHANGED", || format!("`{r_name}` was `{w_name}`")));
                }
                match (r_message, w_message) {
                    (Some((r, r_outer)), Some((w, w_outer))) => self.nested((r, r_outer), (w, w_outer))?,
                    _ => true,
                }
            }
            _ => self.walk.differ("FIELD_KIND_CHANGED", || format!("`{w}` can't be read as `{r}`")),
        })
    }

    fn nested(&mut self, (r, r_outer): (&'a Message, String), (w, w_outer): (&'a Message, String)) -> Result<bool> {
        self.message((r, &r_outer), (w, &w_outer))
    }
}

fn shown(of: &Of) -> String {
    match of {
        Of::Named(name) => format!("`{name}`"),
        Of::Map(key, value) => format!("`map<{key}, {value}>`"),
        Of::Group(name) => format!("group `{name}`"),
    }
}
