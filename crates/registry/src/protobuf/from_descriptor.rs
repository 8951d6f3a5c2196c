//! A file from its descriptor, as clients send that have no text: Python's, among others.

use super::options::{self, quoted, read};
use super::wire::{fault, fields, Value};
use super::{Enum, Extend, Field, File, Import, Label, Message, Method, Of, OneOf, Service, Setting};
use crate::bounds::{too_deep, DEEPEST};
use tidewire_change::Result;

const SCALARS: [&str; 19] = [
    "", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "", "", "bytes",
    "uint32", "", "sfixed32", "sfixed64", "sint32", "sint64",
];
/// The numbers of editions; others are for tests.
const EDITIONS: [(i32, &str); 2] = [(1000, "2023"), (1001, "2024")];

pub fn file(bytes: &[u8]) -> Result<File> {
    let mut file = File { syntax: "proto2".to_string(), ..File::default() };
    let all = fields(bytes)?;
    // What a field's label means depends on it.
    for (_, value) in all.iter().filter(|(number, _)| *number == 12) {
        file.syntax = value.text()?;
    }
    let is_proto3 = file.syntax == "proto3";
    let (mut public, mut weak) = (Vec::new(), Vec::new());
    for (number, value) in &all {
        match number {
            // The name, the syntax, and where everything stood in the text.
            1 | 9 | 12 => {}
            2 => file.package = value.text()?,
            3 => file.imports.push(Import { path: value.text()?, kind: String::new() }),
            4 => file.messages.push(message(value, is_proto3, 0)?),
            5 => file.enums.push(symbols(value)?),
            6 => file.services.push(service(value)?),
            7 => extension(value, is_proto3, &mut file.extends)?,
            8 => file.options = read(value.bytes()?, options::FILE)?,
            10 => public.push(value.whole()?),
            11 => weak.push(value.whole()?),
            14 => {
                let edition = value.whole()?;
                let known = EDITIONS.iter().find(|(known, _)| *known == edition).ok_or_else(fault)?;
                (file.syntax, file.is_edition) = (known.1.to_string(), true);
            }
            _ => return Err(fault()),
        }
    }
    for (kind, places) in [("public", public), ("weak", weak)] {
        for place in places {
            let import = usize::try_from(place).ok().and_then(|place| file.imports.get_mut(place));
            import.ok_or_else(fault)?.kind = kind.to_string();
        }
    }
    Ok(file)
}

fn message(value: &Value<'_>, is_proto3: bool, depth: usize) -> Result<Message> {
    if depth > DEEPEST {
        return Err(too_deep());
    }
    let mut message = Message::default();
    let (mut raw, mut nested) = (Vec::new(), Vec::new());
    for (number, value) in fields(value.bytes()?)? {
        match number {
            1 => message.name = value.text()?,
            2 => raw.push(value),
            3 => nested.push(self::message(&value, is_proto3, depth + 1)?),
            4 => message.enums.push(symbols(&value)?),
            5 => extensions(&value, &mut message)?,
            6 => extension(&value, is_proto3, &mut message.extends)?,
            7 => message.options = read(value.bytes()?, options::MESSAGE)?,
            8 => message.oneofs.push(oneof(&value)?),
            9 => message.reserved.push(range(&value, 1)?.0),
            10 => message.reserved.push(format!("\"{}\"", value.text()?)),
            _ => return Err(fault()),
        }
    }
    let is_map = |of: &Message| of.options.iter().any(|option| option.name == "map_entry");
    let (maps, nested): (Vec<_>, Vec<_>) = nested.into_iter().partition(is_map);
    message.messages = nested;
    let mut made_up = vec![false; message.oneofs.len()];
    for value in raw {
        let (mut field, is_optional, _) = field(&value, is_proto3)?;
        if let (Of::Named(of), true) = (&field.of, field.label == Label::Repeated) {
            let entry = maps.iter().find(|map| of.rsplit('.').next() == Some(&map.name));
            if let Some([Field { of: Of::Named(key), .. }, Field { of: Of::Named(value), .. }]) =
                entry.map(|entry| entry.fields.as_slice())
            {
                (field.of, field.label) = (Of::Map(key.clone(), value.clone()), Label::Implicit);
            }
        }
        if is_optional {
            // A oneof that stands for the word `optional` alone.
            let place = field.oneof.take().ok_or_else(fault)?;
            *made_up.get_mut(place).ok_or_else(fault)? = true;
        } else if field.oneof.is_some_and(|place| place >= made_up.len()) {
            return Err(fault());
        }
        message.fields.push(field);
    }
    // Those that are made up stand last: the places of the others stay.
    while made_up.pop_if(|is_made_up| *is_made_up).is_some() {
        message.oneofs.pop();
    }
    let is_there = |field: &Field| field.oneof.is_none_or(|place| place < message.oneofs.len());
    if made_up.contains(&true) || !message.fields.iter().all(is_there) {
        return Err(fault());
    }
    Ok(message)
}

/// The field, whether proto3's `optional` is written, and what it extends.
fn field(value: &Value<'_>, is_proto3: bool) -> Result<(Field, bool, String)> {
    let mut field = Field {
        name: String::new(),
        number: 0,
        label: Label::Implicit,
        of: Of::Named(String::new()),
        options: Vec::new(),
        oneof: None,
    };
    let (mut kind, mut type_name, mut default, mut json, mut is_optional, mut of) =
        (0, String::new(), None, None, false, String::new());
    for (number, value) in fields(value.bytes()?)? {
        match number {
            1 => field.name = value.text()?,
            2 => of = value.text()?,
            3 => field.number = value.whole()?,
            4 => {
                field.label = match value.whole()? {
                    1 => Label::Optional,
                    2 => Label::Required,
                    3 => Label::Repeated,
                    _ => return Err(fault()),
                }
            }
            5 => kind = value.whole()?,
            6 => type_name = value.text()?,
            7 => default = Some(value.text()?),
            8 => field.options = read(value.bytes()?, options::FIELD)?,
            9 => field.oneof = Some(usize::try_from(value.whole()?).map_err(|_| fault())?),
            10 => json = Some(value.text()?),
            17 => is_optional = value.is(),
            _ => return Err(fault()),
        }
    }
    if field.label == Label::Optional && !is_optional && (is_proto3 || field.oneof.is_some()) {
        field.label = Label::Implicit;
    }
    field.of = match kind {
        10 => Of::Group(type_name.rsplit('.').next().unwrap_or_default().to_string()),
        11 | 14 => Of::Named(type_name),
        kind => {
            let scalar = usize::try_from(kind).ok().and_then(|kind| SCALARS.get(kind)).filter(|word| !word.is_empty());
            Of::Named(scalar.ok_or_else(fault)?.to_string())
        }
    };
    if let Some(default) = default {
        let value = match kind {
            9 => quoted(default.as_bytes()),
            // Bytes are escaped already.
            12 => format!("\"{default}\""),
            _ => default,
        };
        field.options.insert(0, Setting { name: "default".into(), value });
    }
    if let Some(json) = json.filter(|json| *json != json_name(&field.name)) {
        field.options.push(Setting { name: "json_name".into(), value: quoted(json.as_bytes()) });
    }
    Ok((field, is_optional, of))
}

/// What a field is called in JSON when nothing else is said.
pub fn json_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    let mut is_next_large = false;
    for c in name.chars() {
        match c {
            '_' => is_next_large = true,
            c if is_next_large => {
                out.push(c.to_ascii_uppercase());
                is_next_large = false;
            }
            c => out.push(c),
        }
    }
    out
}

fn extension(value: &Value<'_>, is_proto3: bool, extends: &mut Vec<Extend>) -> Result<()> {
    let (field, _, of) = field(value, is_proto3)?;
    if matches!(field.of, Of::Group(_)) || field.oneof.is_some() {
        return Err(fault());
    }
    match extends.last_mut().filter(|last| last.of == of) {
        Some(last) => last.message.fields.push(field),
        None => extends.push(Extend { of, message: Message { fields: vec![field], ..Message::default() } }),
    }
    Ok(())
}

fn extensions(value: &Value<'_>, message: &mut Message) -> Result<()> {
    let (range, bytes) = range(value, 1)?;
    message.extensions.push((range, read(bytes, options::NONE)?));
    Ok(())
}

/// Numbers from and to, and options. `behind`: how far the end that is told lies behind the last number.
fn range<'a>(value: &Value<'a>, behind: i32) -> Result<(String, &'a [u8])> {
    let (mut from, mut to, mut options) = (0, 0, &[][..]);
    for (number, value) in fields(value.bytes()?)? {
        match number {
            1 => from = value.whole()?,
            2 => to = value.whole()?,
            3 => options = value.bytes()?,
            _ => return Err(fault()),
        }
    }
    let last = to.checked_sub(behind).ok_or_else(fault)?;
    let is_all = last == if behind == 1 { 536_870_911 } else { i32::MAX };
    let text = match last {
        last if last == from => from.to_string(),
        _ if is_all => format!("{from} to max"),
        last => format!("{from} to {last}"),
    };
    Ok((text, options))
}

fn oneof(value: &Value<'_>) -> Result<OneOf> {
    let mut oneof = OneOf { name: String::new(), options: Vec::new() };
    for (number, value) in fields(value.bytes()?)? {
        match number {
            1 => oneof.name = value.text()?,
            2 => oneof.options = read(value.bytes()?, options::NONE)?,
            _ => return Err(fault()),
        }
    }
    Ok(oneof)
}

fn symbols(value: &Value<'_>) -> Result<Enum> {
    let mut of = Enum::default();
    for (number, value) in fields(value.bytes()?)? {
        match number {
            1 => of.name = value.text()?,
            2 => of.values.push(symbol(&value)?),
            3 => of.options = read(value.bytes()?, options::ENUM)?,
            4 => of.reserved.push(range(&value, 0)?.0),
            5 => of.reserved.push(format!("\"{}\"", value.text()?)),
            _ => return Err(fault()),
        }
    }
    Ok(of)
}

fn symbol(value: &Value<'_>) -> Result<(String, i32, Vec<Setting>)> {
    let mut symbol = (String::new(), 0, Vec::new());
    for (number, value) in fields(value.bytes()?)? {
        match number {
            1 => symbol.0 = value.text()?,
            2 => symbol.1 = value.whole()?,
            3 => symbol.2 = read(value.bytes()?, options::ENUM_VALUE)?,
            _ => return Err(fault()),
        }
    }
    Ok(symbol)
}

fn service(value: &Value<'_>) -> Result<Service> {
    let mut service = Service { name: String::new(), methods: Vec::new(), options: Vec::new() };
    for (number, value) in fields(value.bytes()?)? {
        match number {
            1 => service.name = value.text()?,
            2 => service.methods.push(method(&value)?),
            3 => service.options = read(value.bytes()?, options::SERVICE)?,
            _ => return Err(fault()),
        }
    }
    Ok(service)
}

fn method(value: &Value<'_>) -> Result<Method> {
    let (name, input, output) = (String::new(), String::new(), String::new());
    let mut method = Method { name, input, input_streams: false, output, output_streams: false, options: Vec::new() };
    for (number, value) in fields(value.bytes()?)? {
        match number {
            1 => method.name = value.text()?,
            2 => method.input = value.text()?,
            3 => method.output = value.text()?,
            4 => method.options = read(value.bytes()?, options::METHOD)?,
            5 => method.input_streams = value.is(),
            6 => method.output_streams = value.is(),
            _ => return Err(fault()),
        }
    }
    Ok(method)
}
