//! `.proto` files, as a registry has them, as the types of messages.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use tidewire_change::{Error, Result};
use tidewire_envelope::debezium::protobuf::message::{Field, Label, Message, Of};
use tidewire_registry::protobuf::{self as file, within, Named, Names};

/// Fields of all messages of a file, and how deep these lie in one another.
const LARGEST: usize = 50_000;
const DEEPEST: usize = 32;

/// A file's messages, each by its place: where it stands in the file, and in those around it. Of one that can't be read: why.
pub(crate) type Messages = BTreeMap<Vec<u32>, Result<Arc<Message>, String>>;

/// `imported`: files by the paths that they are imported by. `Invalid`: it is no file.
pub(crate) fn messages(text: &str, imported: &[(&str, &str)]) -> Result<Messages> {
    // What every library brings is known, whatever a registry has under its name.
    let imported: Vec<_> = imported.iter().filter(|(path, _)| !file::is_common(path)).copied().collect();
    let schema = file::parse(text, &imported)?;
    let mut building = Building {
        names: Names::of(&schema)?,
        syntaxes: HashMap::new(),
        built: HashMap::new(),
        open: HashSet::new(),
        left: LARGEST,
    };
    let mut found = Messages::new();
    for of in std::iter::once(&schema.file).chain(schema.imported.iter().map(|(_, file)| file)) {
        building.note(&of.messages, &of.package, Syntax::of(of));
    }
    building.all(&schema.file.messages, &schema.file.package, &mut Vec::new(), &mut found);
    Ok(found)
}

/// The first message of a file.
pub(crate) fn first_message(text: &str) -> Result<Arc<Message>> {
    let first = messages(text, &[])?.remove(&vec![0]).unwrap_or_else(|| Err("it has no message".to_string()));
    first.map_err(|why| Error::invalid(format!("the schema can't be read: {why}")))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Syntax {
    Proto2,
    Proto3,
    Edition,
}

impl Syntax {
    fn of(file: &file::File) -> Syntax {
        match (file.is_edition, file.syntax.as_str()) {
            (true, _) => Syntax::Edition,
            (false, "proto3") => Syntax::Proto3,
            (false, _) => Syntax::Proto2,
        }
    }
}

struct Building<'a> {
    names: Names<'a>,
    /// Of each message, by its full name: files of several may import one another.
    syntaxes: HashMap<String, Syntax>,
    built: HashMap<String, Arc<Message>>,
    /// Those that are being built.
    open: HashSet<String>,
    left: usize,
}

impl<'a> Building<'a> {
    fn note(&mut self, messages: &[file::Message], scope: &str, syntax: Syntax) {
        for message in messages {
            let full = within(scope, &message.name);
            self.note(&message.messages, &full, syntax);
            self.syntaxes.insert(full, syntax);
        }
    }

    fn all(&mut self, messages: &'a [file::Message], scope: &str, path: &mut Vec<u32>, found: &mut Messages) {
        for (at, message) in messages.iter().enumerate() {
            path.push(at as u32);
            let full = within(scope, &message.name);
            found.insert(path.clone(), self.message(message, &full));
            // The entries of maps are messages, too, of which a file's text doesn't tell the places.
            if !message.fields.iter().any(|field| matches!(field.of, file::Of::Map(..))) {
                self.all(&message.messages, &full, path, found);
            }
            path.pop();
        }
    }

    fn message(&mut self, message: &'a file::Message, full: &str) -> Result<Arc<Message>, String> {
        if let Some(built) = self.built.get(full) {
            return Ok(built.clone());
        }
        let syntax = self.syntaxes.get(full).copied().unwrap_or(Syntax::Proto2);
        if syntax == Syntax::Edition {
            return Err("editions aren't read: proto2 and proto3 are".to_string());
        }
        if self.open.len() >= DEEPEST || !self.open.insert(full.to_string()) {
            return Err(format!("the message `{full}` needs itself, or lies too deep"));
        }
        let fields = message.fields.iter().map(|field| self.field(field, full, syntax)).collect::<Result<_, _>>();
        self.open.remove(full);
        let reserved = message.reserved.iter().filter_map(|range| range_of(range)).collect();
        let built = Arc::new(Message { name: message.name.clone(), fields: fields?, reserved });
        self.built.insert(full.to_string(), built.clone());
        Ok(built)
    }

    fn field(&mut self, field: &'a file::Field, scope: &str, syntax: Syntax) -> Result<Field, String> {
        self.left = self.left.checked_sub(1).ok_or("the file has too many fields")?;
        let params = file::params(&field.options);
        let label = match field.label {
            file::Label::Repeated => Label::Repeated,
            file::Label::Optional | file::Label::Required => Label::Optional,
            file::Label::Implicit if matches!(field.of, file::Of::Map(..)) => Label::Repeated,
            file::Label::Implicit if field.oneof.is_some() || syntax == Syntax::Proto2 => Label::Optional,
            file::Label::Implicit => Label::Plain,
        };
        let of = match &field.of {
            file::Of::Named(name) => self.named(name, scope, &params)?,
            file::Of::Map(key, value) => {
                Of::Map(Box::new(self.named(key, scope, &[])?), Box::new(self.named(value, scope, &[])?))
            }
            file::Of::Group(name) => return Err(format!("the group `{name}` isn't read")),
        };
        Ok(Field { name: field.name.clone(), number: field.number.unsigned_abs(), label, of, params })
    }

    fn named(&mut self, name: &str, scope: &str, params: &[(String, String)]) -> Result<Of, String> {
        if let Some(of) = Of::scalar(name) {
            return Ok(of);
        }
        match self.names.resolve(name, scope) {
            Some((full, Named::Message(message))) => self.message(message, &full).map(Of::Message),
            Some((_, Named::Enum(of))) => {
                self.left = self.left.checked_sub(of.values.len()).ok_or("the file has too many fields")?;
                Ok(Of::Enum(Arc::new(of.values.iter().map(|(word, number, _)| (*number, word.clone())).collect())))
            }
            Some((full, Named::Common { .. })) => {
                Of::common(&full, params).ok_or_else(|| format!("the type `{full}` isn't read"))
            }
            None => Err(format!("the type `{name}` isn't known")),
        }
    }
}

/// None: it is a name.
fn range_of(range: &str) -> Option<(u32, u32)> {
    let (from, to) = range.split_once(" to ").unwrap_or((range, range));
    let to = if to == "max" { 536_870_911 } else { to.parse().ok()? };
    Some((from.parse().ok()?, to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::{Column, Identity, Key, Kind, Schema, TableName, Type};
    use tidewire_envelope::debezium::{protobuf::Layout, Modes};

    #[test]
    fn a_tables_own_files_are_read_back_as_they_were_made() {
        let column = |name: &str, kind: Kind, ty: &str| Column {
            name: name.into(),
            ty: Type { kind, name: ty.into(), builtin: true },
            attribute: 0,
        };
        let schema = Schema {
            table: TableName::new("public", "t"),
            columns: vec![
                column("id", Kind::Int32, "integer"),
                column("total", Kind::Numeric { precision_scale: Some((12, 2)) }, "numeric(12,2)"),
                column("free", Kind::Numeric { precision_scale: None }, "numeric"),
                column("at", Kind::Timestamp, "timestamp without time zone"),
                column("place", Kind::Other, "point"),
                column("many", Kind::Array(Box::new(Kind::Int32)), "integer[]"),
            ],
            key: Key::Columns(vec![0]),
            identity: Identity::Default,
            source_id: 1,
        };
        for time in ["adaptive", "connect"] {
            let mut modes = Modes::default();
            modes.set("time.precision.mode", time).unwrap();
            let layout = Layout::of(&schema, &modes, "p").unwrap();
            let contracts = layout.contracts();
            assert_eq!(*first_message(&contracts.value.schema).unwrap(), layout.value);
            assert_eq!(first_message(&contracts.key.unwrap().schema).unwrap().as_ref(), layout.key.as_ref().unwrap());
            // Numbers that were left out come back, too.
            let mut fewer = schema.clone();
            fewer.columns.remove(3);
            let next = Layout::of(&fewer, &modes, "p").unwrap().following(None, Some(&layout.value)).unwrap();
            assert_eq!(*first_message(&next.contracts().value.schema).unwrap(), next.value);
        }
    }

    #[test]
    fn messages_lie_where_a_serializer_says_and_what_cant_be_read_is_named() {
        let found = messages(
            "syntax = \"proto3\"; import \"google/protobuf/wrappers.proto\"; import \"google/protobuf/any.proto\";
             message A { message B { B again = 1; } message C { oneof o { int32 x = 1; } google.protobuf.StringValue s = 2; E e = 3; } }
             message D { map<string, A> many = 1; message Hidden { int32 x = 1; } google.protobuf.Any any = 2; } enum E { ZERO = 0; ONE = 1; }",
            &[],
        )
        .unwrap();
        assert_eq!(found.keys().cloned().collect::<Vec<_>>(), [vec![0], vec![0, 0], vec![0, 1], vec![1]]);
        let why = |path: &[u32]| found[path].as_ref().err().cloned().unwrap_or_default();
        assert!(why(&[0, 0]).contains("`A.B` needs itself") && why(&[1]).contains("google.protobuf.Any"), "{found:?}");
        let message = found[&vec![0, 1]].as_ref().unwrap();
        assert_eq!(message.fields[0].label, Label::Optional);
        assert_eq!(message.fields[1].of, Of::Wrapped(Box::new(Of::String)));
        assert!(matches!(&message.fields[2].of, Of::Enum(of) if of.len() == 2));
        assert!(messages("syntax", &[]).is_err() && first_message("syntax = \"proto3\";").is_err());
    }

    #[test]
    fn types_of_imported_files_are_read_by_the_rules_of_their_own_file() {
        let old = "syntax = \"proto2\"; package old; message A { optional int32 x = 1; } message Same { optional int32 y = 1; }";
        let file = "syntax = \"proto3\"; package new; import \"old.proto\"; import \"google/protobuf/timestamp.proto\";
             message M { old.A a = 1; int32 x = 2; google.protobuf.Timestamp at = 3; }";
        // Serializers register what every library brings, too.
        let timestamp =
            "syntax = \"proto3\"; package google.protobuf; message Timestamp { int64 seconds = 1; int32 nanos = 2; }";
        let found = messages(file, &[("old.proto", old), ("google/protobuf/timestamp.proto", timestamp)]).unwrap();
        assert_eq!(found.keys().cloned().collect::<Vec<_>>(), [vec![0]], "those of the file alone");
        let message = found[&vec![0]].as_ref().unwrap();
        let Of::Message(inner) = &message.fields[0].of else { panic!("{message:?}") };
        assert_eq!((inner.fields[0].label, message.fields[1].label), (Label::Optional, Label::Plain));
        assert_eq!(message.fields[2].of, Of::Timestamp);
        let edition = "edition = \"2023\"; package old; message A { int32 x = 1; }";
        let found = messages(file, &[("old.proto", edition)]).unwrap();
        assert!(found[&vec![0]].as_ref().unwrap_err().contains("editions"));
        assert!(messages(file, &[]).is_err());
    }
}
