//! One text for one file, however it was written; comments are no part of it.

use super::names::{within, Names};
use super::{Enum, Extend, Field, File, Label, Message, Of, Schema, Service, Setting, SCALARS};

/// `sorted`: fields stand in order of their numbers, imports and options in order of their names, and types by their full names.
pub fn print(schema: &Schema, sorted: bool) -> String {
    let names = if sorted { Names::of(schema).ok() } else { None };
    let mut printer = Printer { out: String::new(), depth: 0, names, scope: schema.file.package.clone() };
    printer.file(&schema.file);
    printer.out
}

/// A file by itself.
pub fn file(file: &File) -> String {
    let mut printer = Printer { out: String::new(), depth: 0, names: None, scope: String::new() };
    printer.file(file);
    printer.out
}

struct Printer<'a> {
    out: String,
    depth: usize,
    /// To find full names by: everything stands in order then.
    names: Option<Names<'a>>,
    /// The full name of what is being printed.
    scope: String,
}

impl Printer<'_> {
    fn line(&mut self, text: &str) {
        self.out.extend(std::iter::repeat_n("  ", self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn block(&mut self, head: &str, inside: impl FnOnce(&mut Self)) {
        self.line(&format!("{head} {{"));
        self.depth += 1;
        inside(self);
        self.depth -= 1;
        self.line("}");
    }

    fn file(&mut self, file: &File) {
        let word = if file.is_edition { "edition" } else { "syntax" };
        self.line(&format!("{word} = \"{}\";", file.syntax));
        if !file.package.is_empty() {
            self.line(&format!("package {};", file.package));
        }
        let mut imports: Vec<_> = file.imports.iter().collect();
        if self.names.is_some() {
            imports.sort();
        }
        for import in imports {
            let kind = if import.kind.is_empty() { String::new() } else { format!("{} ", import.kind) };
            self.line(&format!("import {kind}\"{}\";", import.path));
        }
        self.options(&file.options);
        file.messages.iter().for_each(|message| self.message(message));
        file.enums.iter().for_each(|of| self.symbols(of));
        file.extends.iter().for_each(|extend| self.extend(extend));
        file.services.iter().for_each(|service| self.service(service));
    }

    fn in_order(&self, options: &[Setting]) -> Vec<Setting> {
        let mut options = options.to_vec();
        if self.names.is_some() {
            options.sort();
        }
        options
    }

    fn options(&mut self, options: &[Setting]) {
        for option in self.in_order(options) {
            self.line(&format!("option {} = {};", option.name, option.value));
        }
    }

    fn bracketed(&self, options: &[Setting]) -> String {
        let all: Vec<_> = self.in_order(options).iter().map(|o| format!("{} = {}", o.name, o.value)).collect();
        if all.is_empty() {
            String::new()
        } else {
            format!(" [{}]", all.join(", "))
        }
    }

    fn message(&mut self, message: &Message) {
        self.block(&format!("message {}", message.name), |p| p.inside(message));
    }

    fn inside(&mut self, message: &Message) {
        let inner = within(&self.scope, &message.name);
        let outer = std::mem::replace(&mut self.scope, inner);
        self.body(message);
        self.scope = outer;
    }

    /// A type as it is named here, or by its full name.
    fn named(&self, of: &str) -> String {
        let full =
            self.names.as_ref().filter(|_| !SCALARS.contains(&of)).and_then(|names| names.resolve(of, &self.scope));
        full.map_or_else(|| of.to_string(), |(full, _)| format!(".{full}"))
    }

    fn body(&mut self, message: &Message) {
        self.options(&message.options);
        self.reserved(&message.reserved);
        for (ranges, options) in &message.extensions {
            let options = self.bracketed(options);
            self.line(&format!("extensions {ranges}{options};"));
        }
        let mut fields: Vec<&Field> = message.fields.iter().collect();
        if self.names.is_some() {
            fields.sort_by_key(|field| field.number);
        }
        let mut printed = vec![false; message.oneofs.len()];
        for field in &fields {
            let Some(place) = field.oneof else {
                self.field(field, message);
                continue;
            };
            // A oneof stands where the first of its fields does.
            if !std::mem::replace(&mut printed[place], true) {
                self.oneof(message, place, &fields);
            }
        }
        for place in (0..printed.len()).filter(|place| !printed[*place]) {
            self.oneof(message, place, &[]);
        }
        let is_group = |name: &str| message.fields.iter().any(|field| field.of == Of::Group(name.to_string()));
        message.messages.iter().filter(|nested| !is_group(&nested.name)).for_each(|nested| self.message(nested));
        message.enums.iter().for_each(|of| self.symbols(of));
        message.extends.iter().for_each(|extend| self.extend(extend));
    }

    fn oneof(&mut self, message: &Message, place: usize, fields: &[&Field]) {
        let oneof = &message.oneofs[place];
        self.block(&format!("oneof {}", oneof.name), |p| {
            p.options(&oneof.options);
            fields.iter().filter(|field| field.oneof == Some(place)).for_each(|field| p.field(field, message));
        });
    }

    fn field(&mut self, field: &Field, message: &Message) {
        let label = match field.label {
            Label::Implicit => "",
            Label::Optional => "optional ",
            Label::Required => "required ",
            Label::Repeated => "repeated ",
        };
        let options = self.bracketed(&field.options);
        match &field.of {
            Of::Named(of) => {
                let of = self.named(of);
                self.line(&format!("{label}{of} {} = {}{options};", field.name, field.number));
            }
            Of::Map(key, value) => {
                let value = self.named(value);
                self.line(&format!("map<{key}, {value}> {} = {}{options};", field.name, field.number));
            }
            Of::Group(name) => {
                let head = format!("{label}group {name} = {}{options}", field.number);
                match message.messages.iter().find(|nested| nested.name == *name) {
                    Some(group) => self.block(&head, |p| p.inside(group)),
                    None => self.line(&format!("{head} {{}}")),
                }
            }
        }
    }

    fn reserved(&mut self, reserved: &[String]) {
        let mut reserved = reserved.to_vec();
        if self.names.is_some() {
            reserved.sort();
        }
        // Names and numbers can't share a line.
        let (names, numbers): (Vec<String>, Vec<String>) = reserved.into_iter().partition(|r| r.starts_with('"'));
        for all in [numbers, names].iter().filter(|all| !all.is_empty()) {
            self.line(&format!("reserved {};", all.join(", ")));
        }
    }

    fn symbols(&mut self, of: &Enum) {
        self.block(&format!("enum {}", of.name), |p| {
            p.options(&of.options);
            p.reserved(&of.reserved);
            for (name, number, options) in &of.values {
                let options = p.bracketed(options);
                p.line(&format!("{name} = {number}{options};"));
            }
        });
    }

    fn extend(&mut self, extend: &Extend) {
        let of = self.named(&extend.of);
        self.block(&format!("extend {of}"), |p| p.body(&extend.message));
    }

    fn service(&mut self, service: &Service) {
        self.block(&format!("service {}", service.name), |p| {
            p.options(&service.options);
            for method in &service.methods {
                let streams = |is: bool| if is { "stream " } else { "" };
                let (input, output) = (streams(method.input_streams), streams(method.output_streams));
                let (taken, given) = (p.named(&method.input), p.named(&method.output));
                let head = format!("rpc {} ({input}{taken}) returns ({output}{given})", method.name);
                match method.options.is_empty() {
                    true => p.line(&format!("{head};")),
                    false => p.block(&head, |p| p.options(&method.options)),
                }
            }
        });
    }
}
