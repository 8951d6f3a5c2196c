//! The options that Protobuf itself knows, by their numbers in descriptors, and the forms of their values.

use super::meta;
use super::wire::{fields, Value, Writer};
use super::Setting;
use tidewire_change::{Error, Result};

pub enum Form {
    Is,
    Text,
    OneOf(&'static [&'static str]),
    /// What Confluent's converters say.
    Meta,
}

pub type Table = &'static [(u32, &'static str, Form)];

pub const FILE: Table = &[
    (1, "java_package", Form::Text),
    (8, "java_outer_classname", Form::Text),
    (9, "optimize_for", Form::OneOf(&["", "SPEED", "CODE_SIZE", "LITE_RUNTIME"])),
    (10, "java_multiple_files", Form::Is),
    (11, "go_package", Form::Text),
    (16, "cc_generic_services", Form::Is),
    (17, "java_generic_services", Form::Is),
    (18, "py_generic_services", Form::Is),
    (20, "java_generate_equals_and_hash", Form::Is),
    (23, "deprecated", Form::Is),
    (27, "java_string_check_utf8", Form::Is),
    (31, "cc_enable_arenas", Form::Is),
    (36, "objc_class_prefix", Form::Text),
    (37, "csharp_namespace", Form::Text),
    (39, "swift_prefix", Form::Text),
    (40, "php_class_prefix", Form::Text),
    (41, "php_namespace", Form::Text),
    (44, "php_metadata_namespace", Form::Text),
    (45, "ruby_package", Form::Text),
];
pub const MESSAGE: Table = &[
    (1, "message_set_wire_format", Form::Is),
    (2, "no_standard_descriptor_accessor", Form::Is),
    (3, "deprecated", Form::Is),
    (7, "map_entry", Form::Is),
    (11, "deprecated_legacy_json_field_conflicts", Form::Is),
];
pub const FIELD: Table = &[
    (1, "ctype", Form::OneOf(&["STRING", "CORD", "STRING_PIECE"])),
    (2, "packed", Form::Is),
    (3, "deprecated", Form::Is),
    (5, "lazy", Form::Is),
    (6, "jstype", Form::OneOf(&["JS_NORMAL", "JS_STRING", "JS_NUMBER"])),
    (10, "weak", Form::Is),
    (15, "unverified_lazy", Form::Is),
    (16, "debug_redact", Form::Is),
    (meta::NUMBER, meta::NAME, Form::Meta),
];
pub const ENUM: Table = &[
    (2, "allow_alias", Form::Is),
    (3, "deprecated", Form::Is),
    (6, "deprecated_legacy_json_field_conflicts", Form::Is),
];
pub const ENUM_VALUE: Table = &[(1, "deprecated", Form::Is), (3, "debug_redact", Form::Is)];
pub const SERVICE: Table = &[(33, "deprecated", Form::Is)];
pub const METHOD: Table = &[
    (33, "deprecated", Form::Is),
    (34, "idempotency_level", Form::OneOf(&["IDEMPOTENCY_UNKNOWN", "NO_SIDE_EFFECTS", "IDEMPOTENT"])),
];
pub const NONE: Table = &[];

/// `Invalid`: an option that isn't Protobuf's own, which has no name in a descriptor.
pub fn read(bytes: &[u8], table: Table) -> Result<Vec<Setting>> {
    let one = |(number, value): (u32, Value<'_>)| {
        let unknown = || {
            Error::invalid(format!(
                "the descriptor has an option with the number {number}, which can't be written as text"
            ))
            .hint("register the .proto file itself")
        };
        let (_, name, form) = table.iter().find(|(known, ..)| *known == number).ok_or_else(unknown)?;
        let value = match form {
            Form::Is => value.is().to_string(),
            Form::Text => quoted(value.bytes()?),
            Form::Meta => meta::read(value.bytes()?)?.ok_or_else(unknown)?,
            Form::OneOf(words) => {
                let place = usize::try_from(value.whole()?).ok();
                let word = place.and_then(|place| words.get(place)).filter(|word| !word.is_empty());
                word.ok_or_else(unknown)?.to_string()
            }
        };
        Ok(Setting { name: name.to_string(), value })
    };
    fields(bytes)?.into_iter().map(one).collect()
}

/// None: there are no options.
pub fn write(options: &[Setting], table: Table) -> Result<Option<Vec<u8>>> {
    let mut writer = Writer::default();
    for option in options {
        let wrong = || Error::invalid(format!("the option `{}` can't be told in a descriptor", option.name));
        let (number, _, form) = table.iter().find(|(_, name, _)| *name == option.name).ok_or_else(wrong)?;
        match (form, option.value.as_str()) {
            (Form::Is, "true") => writer.number(*number, 1),
            (Form::Is, "false") => writer.number(*number, 0),
            (Form::Meta, text) => writer.bytes(*number, &meta::write(text).ok_or_else(wrong)?),
            (Form::Text, text) => writer.bytes(*number, &unquoted(text).ok_or_else(wrong)?),
            (Form::OneOf(words), word) => {
                let place = words.iter().position(|known| *known == word).ok_or_else(wrong)?;
                writer.number(*number, i32::try_from(place).map_err(|_| wrong())?);
            }
            _ => return Err(wrong()),
        }
    }
    Ok((!options.is_empty()).then_some(writer.out))
}

/// As a text of a .proto file.
pub fn quoted(bytes: &[u8]) -> String {
    let mut out = "\"".to_string();
    match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().for_each(|c| match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            c if c.is_ascii_control() => out.push_str(&format!("\\{:03o}", u32::from(c))),
            c => out.push(c),
        }),
        Err(_) => bytes.iter().for_each(|byte| out.push_str(&format!("\\{byte:03o}"))),
    }
    out + "\""
}

/// The bytes of one text, or of several in a row.
pub fn unquoted(text: &str) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut rest = text.trim_start().as_bytes();
    while let Some((&quote, inside)) = rest.split_first() {
        let mut at = 0;
        while *inside.get(at)? != quote {
            if inside[at] != b'\\' {
                out.push(inside[at]);
                at += 1;
                continue;
            }
            let digits = |from: usize, most: usize, radix: u32| {
                let end = (from..inside.len().min(from + most)).find(|i| !char::from(inside[*i]).is_digit(radix));
                end.unwrap_or(inside.len().min(from + most))
            };
            let number = |from: usize, to: usize, radix: u32| {
                u32::from_str_radix(std::str::from_utf8(inside.get(from..to)?).ok()?, radix).ok()
            };
            let escaped = *inside.get(at + 1)?;
            at += 2;
            match escaped {
                b'n' => out.push(b'\n'),
                b't' => out.push(b'\t'),
                b'r' => out.push(b'\r'),
                b'a' => out.push(7),
                b'b' => out.push(8),
                b'f' => out.push(12),
                b'v' => out.push(11),
                b'0'..=b'7' => {
                    let end = digits(at - 1, 3, 8);
                    out.push(u8::try_from(number(at - 1, end, 8)?).ok()?);
                    at = end;
                }
                b'x' | b'X' => {
                    let end = digits(at, 2, 16);
                    out.push(u8::try_from(number(at, end, 16)?).ok()?);
                    at = end;
                }
                b'u' | b'U' => {
                    let end = at + if escaped == b'u' { 4 } else { 8 };
                    let c = char::from_u32(number(at, end, 16)?)?;
                    out.extend_from_slice(c.to_string().as_bytes());
                    at = end;
                }
                other => out.push(other),
            }
        }
        rest = inside[at + 1..].trim_ascii_start();
    }
    Some(out)
}
