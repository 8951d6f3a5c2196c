//! Which type a name means.

use super::{Enum, Extend, Field, File, Message, Of, Schema, SCALARS};
use std::collections::HashMap;
use tidewire_change::{Error, Result};

#[derive(Clone, Copy)]
pub enum Named<'a> {
    Message(&'a Message),
    Enum(&'a Enum),
    /// A type that every Protobuf library brings: a message, or an enum.
    Common {
        is_enum: bool,
    },
}

/// All types of a schema and of those that it imports, by their full names.
pub struct Names<'a> {
    known: HashMap<String, Named<'a>>,
}

/// What needs no reference to be imported.
const COMMON: [&str; 4] = ["google/protobuf/", "google/type/", "google/api/", "confluent/"];
const COMMON_PACKAGES: [&str; 4] = ["google.protobuf.", "google.type.", "google.api.", "confluent."];
const COMMON_ENUMS: [&str; 6] = [
    "google.protobuf.NullValue",
    "google.protobuf.Syntax",
    "google.protobuf.Edition",
    "google.type.DayOfWeek",
    "google.type.Month",
    "google.type.CalendarPeriod",
];

impl<'a> Names<'a> {
    /// `Invalid`: a name stands for two types.
    pub fn of(schema: &'a Schema) -> Result<Names<'a>> {
        let mut names = Names { known: HashMap::new() };
        for file in schema.files() {
            file.messages.iter().try_for_each(|message| names.message(&file.package, message))?;
            file.enums.iter().try_for_each(|of| names.add(within(&file.package, &of.name), Named::Enum(of)))?;
            let groups = file.extends.iter().flat_map(|extend| &extend.message.messages);
            groups.into_iter().try_for_each(|message| names.message(&file.package, message))?;
        }
        Ok(names)
    }

    fn message(&mut self, scope: &str, message: &'a Message) -> Result<()> {
        let full = within(scope, &message.name);
        self.add(full.clone(), Named::Message(message))?;
        message.messages.iter().try_for_each(|nested| self.message(&full, nested))?;
        let groups = message.extends.iter().flat_map(|extend| &extend.message.messages);
        groups.into_iter().try_for_each(|nested| self.message(&full, nested))?;
        message.enums.iter().try_for_each(|of| self.add(within(&full, &of.name), Named::Enum(of)))
    }

    fn add(&mut self, full: String, named: Named<'a>) -> Result<()> {
        match self.known.insert(full.clone(), named) {
            None => Ok(()),
            Some(_) => Err(Error::invalid(format!("the type `{full}` is defined twice"))),
        }
    }

    /// The full name and the type. `scope`: the full name of where the name stands; the innermost that fits is meant.
    pub fn resolve(&self, name: &str, scope: &str) -> Option<(String, Named<'a>)> {
        if let Some(absolute) = name.strip_prefix('.') {
            return self.get(absolute);
        }
        let mut scope = scope;
        loop {
            if let Some(found) = self.get(&within(scope, name)) {
                return Some(found);
            }
            if scope.is_empty() {
                return None;
            }
            scope = scope.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
    }

    fn get(&self, full: &str) -> Option<(String, Named<'a>)> {
        let common = || {
            let is_common = COMMON_PACKAGES.iter().any(|package| full.starts_with(package));
            is_common.then_some(Named::Common { is_enum: COMMON_ENUMS.contains(&full) })
        };
        self.known.get(full).copied().or_else(common).map(|named| (full.to_string(), named))
    }
}

pub fn within(scope: &str, name: &str) -> String {
    match scope.is_empty() {
        true => name.to_string(),
        false => format!("{scope}.{name}"),
    }
}

/// A file that every Protobuf library brings, by its path.
pub fn is_common(path: &str) -> bool {
    COMMON.iter().any(|folder| path.starts_with(folder))
}

/// Every import is there, and every type that is named.
pub fn check(schema: &Schema) -> Result<()> {
    let names = Names::of(schema)?;
    for file in schema.files() {
        for import in &file.imports {
            if !is_common(&import.path) && schema.imported.iter().all(|(path, _)| *path != import.path) {
                return Err(Error::invalid(format!("the file {:?} is imported and not known", import.path))
                    .hint("name it in `references`, with the subject and version that it is registered under"));
            }
        }
        check_file(file, &names)?;
    }
    Ok(())
}

fn check_file(file: &File, names: &Names<'_>) -> Result<()> {
    file.messages.iter().try_for_each(|message| check_message(message, &file.package, names))?;
    check_extends(&file.extends, &file.package, names)?;
    for method in file.services.iter().flat_map(|service| &service.methods) {
        wanted(&method.input, &file.package, names)?;
        wanted(&method.output, &file.package, names)?;
    }
    Ok(())
}

fn check_extends(extends: &[Extend], scope: &str, names: &Names<'_>) -> Result<()> {
    for extend in extends {
        wanted(&extend.of, scope, names)?;
        extend.message.fields.iter().try_for_each(|field| check_field(field, scope, names))?;
        extend.message.messages.iter().try_for_each(|group| check_message(group, scope, names))?;
    }
    Ok(())
}

fn check_message(message: &Message, scope: &str, names: &Names<'_>) -> Result<()> {
    let full = within(scope, &message.name);
    for field in &message.fields {
        check_field(field, &full, names).map_err(|e| e.context(format!("in the message `{full}`")))?;
    }
    check_extends(&message.extends, &full, names)?;
    message.messages.iter().try_for_each(|nested| check_message(nested, &full, names))
}

fn check_field(field: &Field, scope: &str, names: &Names<'_>) -> Result<()> {
    match &field.of {
        Of::Named(of) | Of::Group(of) => wanted(of, scope, names),
        Of::Map(key, value) => {
            let may_be_key = SCALARS.contains(&key.as_str()) && !["double", "float", "bytes"].contains(&key.as_str());
            if !may_be_key {
                return Err(Error::invalid(format!("`{key}` can't be the key of the map `{}`", field.name)));
            }
            wanted(value, scope, names)
        }
    }
}

fn wanted(of: &str, scope: &str, names: &Names<'_>) -> Result<()> {
    let is_known = SCALARS.contains(&of) || names.resolve(of, scope).is_some();
    is_known.then_some(()).ok_or_else(|| Error::invalid(format!("the type `{of}` isn't known")))
}
