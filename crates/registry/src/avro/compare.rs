//! Whether a reader with one schema reads what was written with another: the specification's schema resolution.

use super::{Enum, Field, Kind, Name, Record, Schema, TypeId};
use crate::walk::{Judged, Pair, Verdict, Walk};
use std::collections::{HashMap, HashSet};
use tidewire_change::Result;

/// Every difference goes to the walk. Logical types are passed over, as Avro's own resolution does.
pub fn compare(reader: &Schema, writer: &Schema, walk: &mut Walk<'_>) -> Result<()> {
    Comparison { reader, writer, walk, judged: Judged::default() }.types(reader.root, writer.root).map(|_| ())
}

struct Comparison<'a, 'w, 'b> {
    reader: &'a Schema,
    writer: &'a Schema,
    walk: &'w mut Walk<'b>,
    judged: Judged,
}

impl Comparison<'_, '_, '_> {
    fn types(&mut self, r: TypeId, w: TypeId) -> Result<bool> {
        self.walk.down()?;
        let same = self.kinds(r, w)?;
        self.walk.up();
        Ok(same)
    }

    fn at(&mut self, step: impl Into<std::borrow::Cow<'static, str>>, r: TypeId, w: TypeId) -> Result<bool> {
        self.walk.push(step);
        let same = self.types(r, w)?;
        self.walk.pop();
        Ok(same)
    }

    fn kinds(&mut self, r: TypeId, w: TypeId) -> Result<bool> {
        let (reader, writer) = (self.reader, self.writer);
        Ok(match (reader.kind(r), writer.kind(w)) {
            (_, Kind::Union(branches)) => self.written_union(r, branches)?,
            (Kind::Union(branches), _) => self.read_union(branches, w)?,
            (Kind::Record(a), Kind::Record(b)) => self.records((r, w), a, b)?,
            (Kind::Enum(a), Kind::Enum(b)) => self.names(&a.name, &b.name) & self.symbols(a, b),
            (Kind::Fixed(a), Kind::Fixed(b)) => {
                let mut same = self.names(&a.name, &b.name);
                if a.size != b.size {
                    self.walk.push("size");
                    let said = || format!("the reader takes {} bytes, {} were written", a.size, b.size);
                    same = self.walk.differ("FIXED_SIZE_MISMATCH", said);
                    self.walk.pop();
                }
                same
            }
            (Kind::Array(a), Kind::Array(b)) => self.at("items", *a, *b)?,
            (Kind::Map(a), Kind::Map(b)) => self.at("values", *a, *b)?,
            (a, b) if is_read_as(a, b) => true,
            (a, b) => {
                let said = || format!("a {} can't be read as {}", b.shown(), a.shown());
                self.walk.differ("TYPE_MISMATCH", said)
            }
        })
    }

    /// Whatever was written of a union, one of its branches was.
    fn written_union(&mut self, r: TypeId, branches: &[TypeId]) -> Result<bool> {
        let mut same = true;
        for (at, branch) in branches.iter().enumerate() {
            let fine = match self.reader.kind(r) {
                Kind::Union(readers) => self.branch(readers, *branch, Some(at))?,
                _ => self.at(at.to_string(), r, *branch)?,
            };
            same &= fine;
        }
        Ok(same)
    }

    fn read_union(&mut self, branches: &[TypeId], w: TypeId) -> Result<bool> {
        self.branch(branches, w, None)
    }

    /// `at`: the place of what was written in a union of its own.
    fn branch(&mut self, readers: &[TypeId], w: TypeId, at: Option<usize>) -> Result<bool> {
        self.walk.hush();
        for reader in readers {
            if self.types(*reader, w)? {
                self.walk.speak();
                return Ok(true);
            }
        }
        self.walk.speak();
        if self.walk.is_silent() {
            return Ok(false);
        }
        if let Some(at) = at {
            self.walk.push(at.to_string());
        }
        let shown = self.writer.kind(w).shown();
        self.walk.differ("MISSING_UNION_BRANCH", || format!("no branch of the reader's union reads a {shown}"));
        if at.is_some() {
            self.walk.pop();
        }
        // Why not, if there is one that was clearly meant.
        if let Some((place, meant)) = self.meant(readers, w) {
            self.at(place.to_string(), meant, w)?;
        }
        Ok(false)
    }

    fn meant(&self, readers: &[TypeId], w: TypeId) -> Option<(usize, TypeId)> {
        let written = self.writer.kind(w);
        let like = |r: &TypeId| std::mem::discriminant(self.reader.kind(*r)) == std::mem::discriminant(written);
        let named = |r: &TypeId| match (self.reader.kind(*r).name(), written.name()) {
            (Some(a), Some(b)) => meets(a, b),
            _ => true,
        };
        let mut places = readers.iter().copied().enumerate().filter(|(_, r)| like(r));
        let by_name = places.clone().find(|(_, r)| named(r));
        by_name.or_else(|| places.next().filter(|_| places.next().is_none()))
    }

    fn names(&mut self, reader: &Name, writer: &Name) -> bool {
        if meets(reader, writer) {
            return true;
        }
        self.walk.push("name");
        let said = || format!("{} was written, the reader names {} and has no alias for it", writer.full, reader.full);
        self.walk.differ("NAME_MISMATCH", said);
        self.walk.pop();
        false
    }

    fn symbols(&mut self, reader: &Enum, writer: &Enum) -> bool {
        let known: HashSet<&String> = reader.symbols.iter().collect();
        let missing: Vec<&str> = writer.symbols.iter().filter(|s| !known.contains(s)).map(String::as_str).collect();
        if missing.is_empty() || reader.default.is_some() {
            return true;
        }
        self.walk.push("symbols");
        let said = || format!("the reader knows neither the symbols {} nor a default for them", missing.join(", "));
        self.walk.differ("MISSING_ENUM_SYMBOLS", said);
        self.walk.pop();
        false
    }

    fn records(&mut self, pair: Pair, reader: &Record, writer: &Record) -> Result<bool> {
        if self.walk.is_silent() && !meets(&reader.name, &writer.name) {
            return Ok(false);
        }
        let start = match self.judged.begin(pair, self.walk) {
            Verdict::Known(same) => return Ok(same),
            Verdict::Open(start) => start,
        };
        let mut same = self.names(&reader.name, &writer.name);
        let by_name: HashMap<&str, &Field> = writer.fields.iter().map(|f| (f.name.as_str(), f)).collect();
        for (at, field) in reader.fields.iter().enumerate() {
            same &= self.field(at, field, &by_name)?;
            if !same && self.walk.is_silent() {
                break;
            }
        }
        self.judged.end(start, pair, same);
        Ok(same)
    }

    fn field(&mut self, at: usize, field: &Field, writer: &HashMap<&str, &Field>) -> Result<bool> {
        self.walk.step()?;
        self.walk.push(format!("fields/{at}"));
        let mut written: Vec<&Field> = writer.get(field.name.as_str()).copied().into_iter().collect();
        if written.is_empty() {
            written = field.aliases.iter().filter_map(|alias| writer.get(alias.as_str()).copied()).collect();
            written.dedup_by(|a, b| std::ptr::eq(*a, *b));
        }
        let same = match (written.as_slice(), &field.default) {
            ([one], _) => self.at("type", field.of, one.of)?,
            ([], Some(_)) => true,
            ([], None) => {
                let said =
                    || format!("the field `{}` was not written, and the reader has no default for it", field.name);
                self.walk.differ("READER_FIELD_MISSING_DEFAULT_VALUE", said)
            }
            _ => {
                let said = || format!("the field `{}` has aliases for several fields that were written", field.name);
                self.walk.differ("READER_FIELD_AMBIGUOUS_ALIAS", said)
            }
        };
        self.walk.pop();
        Ok(same)
    }
}

/// As Avro for Java: the names without their namespaces, or an alias that is the writer's full name.
fn meets(reader: &Name, writer: &Name) -> bool {
    reader.simple() == writer.simple() || reader.aliases.contains(&writer.full)
}

/// Same primitives, and the promotions of the specification.
fn is_read_as(reader: &Kind, writer: &Kind) -> bool {
    use Kind::*;
    matches!(
        (reader, writer),
        (Long, Int)
            | (Float, Int | Long)
            | (Double, Int | Long | Float)
            | (Bytes, String)
            | (String, Bytes)
            | (Null, Null)
            | (Boolean, Boolean)
            | (Int, Int)
            | (Long, Long)
            | (Float, Float)
            | (Double, Double)
            | (Bytes, Bytes)
            | (String, String)
    )
}
