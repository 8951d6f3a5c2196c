//! A file's descriptor, for clients that read no text.

use super::from_descriptor::json_name;
use super::names::{within, Named, Names};
use super::options::{self, unquoted, write, Table};
use super::wire::Writer;
use super::{Enum, Field, Label, Message, Of, Schema, Setting};
use tidewire_change::{Error, Result};

const SCALARS: [(&str, i32); 15] = [
    ("double", 1),
    ("float", 2),
    ("int64", 3),
    ("uint64", 4),
    ("int32", 5),
    ("fixed64", 6),
    ("fixed32", 7),
    ("bool", 8),
    ("string", 9),
    ("bytes", 12),
    ("uint32", 13),
    ("sfixed32", 15),
    ("sfixed64", 16),
    ("sint32", 17),
    ("sint64", 18),
];

struct Maker<'a> {
    names: Names<'a>,
    is_proto3: bool,
}

/// `Invalid`: it holds what has no place in a descriptor without its definition, as options of somebody's own.
pub fn descriptor(schema: &Schema) -> Result<Vec<u8>> {
    let file = &schema.file;
    if file.is_edition {
        return Err(no_place("an edition"));
    }
    let maker = Maker { names: Names::of(schema)?, is_proto3: file.syntax == "proto3" };
    let mut out = Writer::default();
    if !file.package.is_empty() {
        out.text(2, &file.package);
    }
    file.imports.iter().for_each(|import| out.text(3, &import.path));
    for message in &file.messages {
        out.bytes(4, &maker.message(message, &file.package)?);
    }
    for of in &file.enums {
        out.bytes(5, &symbols(of)?);
    }
    for service in &file.services {
        let mut inner = Writer::default();
        inner.text(1, &service.name);
        for method in &service.methods {
            inner.bytes(2, &maker.method(method, &file.package)?);
        }
        put_options(&mut inner, 3, &service.options, options::SERVICE)?;
        out.bytes(6, &inner.out);
    }
    if !file.extends.is_empty() {
        return Err(no_place("an extension"));
    }
    put_options(&mut out, 8, &file.options, options::FILE)?;
    for (place, import) in file.imports.iter().enumerate() {
        let place = i32::try_from(place).map_err(|_| no_place("so many imports"))?;
        match import.kind.as_str() {
            "public" => out.number(10, place),
            "weak" => out.number(11, place),
            _ => {}
        }
    }
    out.text(12, &file.syntax);
    Ok(out.out)
}

fn no_place(what: &str) -> Error {
    Error::invalid(format!("{what} can't be told in a descriptor here"))
        .hint("ask for the schema's text, without `format`")
}

fn put_options(out: &mut Writer, field: u32, options: &[Setting], table: Table) -> Result<()> {
    if let Some(bytes) = write(options, table)? {
        out.bytes(field, &bytes);
    }
    Ok(())
}

impl Maker<'_> {
    fn message(&self, message: &Message, scope: &str) -> Result<Vec<u8>> {
        let full = within(scope, &message.name);
        let mut out = Writer::default();
        out.text(1, &message.name);
        let mut made_up: Vec<&str> = Vec::new();
        for field in &message.fields {
            // Proto3's `optional` stands as a oneof of its own, behind the others.
            let is_optional = self.is_proto3 && field.label == Label::Optional;
            let place = match field.oneof {
                None if is_optional => {
                    made_up.push(&field.name);
                    Some(message.oneofs.len() + made_up.len() - 1)
                }
                place => place,
            };
            out.bytes(2, &self.field(field, &full, place)?);
        }
        for nested in &message.messages {
            out.bytes(3, &self.message(nested, &full)?);
        }
        for field in &message.fields {
            if let Of::Map(key, value) = &field.of {
                out.bytes(3, &self.entry(&field.name, key, value, &full)?);
            }
        }
        for of in &message.enums {
            out.bytes(4, &symbols(of)?);
        }
        if !message.extends.is_empty() {
            return Err(no_place("an extension"));
        }
        for (ranges, options) in &message.extensions {
            if !options.is_empty() {
                return Err(no_place("an option of an extension's range"));
            }
            ranges.split(", ").try_for_each(|range| put_range(&mut out, 5, range, 1))?;
        }
        put_options(&mut out, 7, &message.options, options::MESSAGE)?;
        for oneof in &message.oneofs {
            let mut inner = Writer::default();
            inner.text(1, &oneof.name);
            put_options(&mut inner, 2, &oneof.options, options::NONE)?;
            out.bytes(8, &inner.out);
        }
        for name in made_up {
            let mut inner = Writer::default();
            inner.text(1, &format!("_{name}"));
            out.bytes(8, &inner.out);
        }
        put_reserved(&mut out, &message.reserved, (9, 10), 1)?;
        Ok(out.out)
    }

    fn field(&self, field: &Field, scope: &str, oneof: Option<usize>) -> Result<Vec<u8>> {
        let mut out = Writer::default();
        out.text(1, &field.name);
        out.number(3, field.number);
        out.number(
            4,
            match (&field.of, field.label) {
                (Of::Map(..), _) | (_, Label::Repeated) => 3,
                (_, Label::Required) => 2,
                _ => 1,
            },
        );
        let entry;
        let (kind, name) = match &field.of {
            Of::Named(of) => self.kind(of, scope)?,
            Of::Group(of) => (10, self.kind(of, scope)?.1),
            Of::Map(..) => {
                entry = format!(".{scope}.{}", entry_name(&field.name));
                (11, entry)
            }
        };
        out.number(5, kind);
        if !name.is_empty() {
            out.text(6, &name);
        }
        let mut options = field.options.clone();
        let mut taken = |name: &str| {
            let at = options.iter().position(|option| option.name == name);
            at.map(|at| options.remove(at).value)
        };
        let text_of = |text: String| {
            let text = unquoted(&text).and_then(|bytes| String::from_utf8(bytes).ok());
            text.ok_or_else(|| no_place("a default that is no text"))
        };
        if let Some(default) = taken("default") {
            match kind {
                9 => out.text(7, &text_of(default)?),
                12 => return Err(no_place("a default of bytes")),
                _ => out.text(7, &default),
            }
        }
        let json = taken("json_name").map(text_of).transpose()?;
        put_options(&mut out, 8, &options, options::FIELD)?;
        if let Some(place) = oneof {
            out.number(9, i32::try_from(place).map_err(|_| no_place("so many oneofs"))?);
        }
        out.text(10, &json.unwrap_or_else(|| json_name(&field.name)));
        if self.is_proto3 && field.label == Label::Optional {
            out.number(17, 1);
        }
        Ok(out.out)
    }

    fn kind(&self, of: &str, scope: &str) -> Result<(i32, String)> {
        if let Some((_, kind)) = SCALARS.iter().find(|(scalar, _)| *scalar == of) {
            return Ok((*kind, String::new()));
        }
        let unknown = || Error::invalid(format!("the type `{of}` isn't known"));
        let (full, named) = self.names.resolve(of, scope).ok_or_else(unknown)?;
        let is_enum = matches!(named, Named::Enum(_) | Named::Common { is_enum: true });
        Ok((if is_enum { 14 } else { 11 }, format!(".{full}")))
    }

    fn entry(&self, field: &str, key: &str, value: &str, scope: &str) -> Result<Vec<u8>> {
        let mut out = Writer::default();
        out.text(1, &entry_name(field));
        for (number, name, of) in [(1, "key", key), (2, "value", value)] {
            let of = Of::Named(of.to_string());
            let field =
                Field { name: name.into(), number, label: Label::Implicit, of, options: Vec::new(), oneof: None };
            out.bytes(2, &self.field(&field, scope, None)?);
        }
        let is_map = Setting { name: "map_entry".into(), value: "true".into() };
        put_options(&mut out, 7, &[is_map], options::MESSAGE)?;
        Ok(out.out)
    }

    fn method(&self, method: &super::Method, scope: &str) -> Result<Vec<u8>> {
        let mut out = Writer::default();
        out.text(1, &method.name);
        out.text(2, &self.kind(&method.input, scope)?.1);
        out.text(3, &self.kind(&method.output, scope)?.1);
        put_options(&mut out, 4, &method.options, options::METHOD)?;
        for (field, streams) in [(5, method.input_streams), (6, method.output_streams)] {
            if streams {
                out.number(field, 1);
            }
        }
        Ok(out.out)
    }
}

/// `line_items` has entries called `LineItemsEntry`.
fn entry_name(field: &str) -> String {
    let mut name = json_name(field);
    if let Some(first) = name.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    name + "Entry"
}

fn symbols(of: &Enum) -> Result<Vec<u8>> {
    let mut out = Writer::default();
    out.text(1, &of.name);
    for (name, number, options) in &of.values {
        let mut inner = Writer::default();
        inner.text(1, name);
        inner.number(2, *number);
        put_options(&mut inner, 3, options, options::ENUM_VALUE)?;
        out.bytes(2, &inner.out);
    }
    put_options(&mut out, 3, &of.options, options::ENUM)?;
    put_reserved(&mut out, &of.reserved, (4, 5), 0)?;
    Ok(out.out)
}

fn put_reserved(out: &mut Writer, reserved: &[String], (numbers, names): (u32, u32), behind: i32) -> Result<()> {
    for one in reserved {
        match one.strip_prefix('"') {
            Some(name) => out.text(names, name.trim_end_matches('"')),
            None => put_range(out, numbers, one, behind)?,
        }
    }
    Ok(())
}

fn put_range(out: &mut Writer, field: u32, range: &str, behind: i32) -> Result<()> {
    let (from, to) = range.split_once(" to ").unwrap_or((range, range));
    let number = |text: &str| match text {
        "max" => Ok(if behind == 1 { 536_870_911 } else { i32::MAX }),
        text => text.parse::<i32>().map_err(|_| no_place("this range")),
    };
    let mut inner = Writer::default();
    inner.number(1, number(from)?);
    inner.number(2, number(to)? + behind);
    out.bytes(field, &inner.out);
    Ok(())
}
