//! A connector's converters of keys and values: the form of the messages, and the registry that has their schemas.

use super::{becomes, quoted, refused, same, text, Fate};

const JSON: &str = "org.apache.kafka.connect.json.JsonConverter";
const AVRO: &str = "io.confluent.connect.avro.AvroConverter";
const PROTOBUF: &str = "io.confluent.connect.protobuf.ProtobufConverter";

/// What the converters say in one.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Converters {
    pub form: Form,
    url: Option<String>,
    /// Name and password.
    user: Option<(String, String)>,
    naming: Option<&'static str>,
    is_registered_by_others: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Json,
    Avro,
    Protobuf,
}

const SIDES: [&str; 2] = ["key.converter", "value.converter"];

/// The variable that has the registry's password.
pub const PASSWORD: &str = "SCHEMA_REGISTRY_PASSWORD";

impl Converters {
    pub fn of(given: &[(String, String)]) -> Converters {
        let get = |name: &str| given.iter().find(|(property, _)| property == name).map(|(_, value)| value.as_str());
        let form = match get("value.converter").or(get("key.converter")) {
            Some(AVRO) => Form::Avro,
            Some(PROTOBUF) => Form::Protobuf,
            _ => Form::Json,
        };
        let of_either = |name: &str| SIDES.iter().find_map(|side| get(&format!("{side}.{name}")));
        let user = of_either(USER).or(of_either(OLD_USER));
        Converters {
            form,
            url: of_either("schema.registry.url").and_then(first).map(str::to_string),
            user: user.and_then(|user| user.split_once(':')).map(|(name, word)| (name.into(), word.into())),
            naming: SIDES.iter().find_map(|side| naming(get(&format!("{side}.{}", strategy(side)))?)),
            is_registered_by_others: of_either("auto.register.schemas").is_some_and(|value| is(value, "false")),
        }
    }

    /// What the registry wants to be told, from a connector that runs here.
    pub fn password(given: &[(String, String)]) -> Option<String> {
        Converters::of(given).user.map(|(_, password)| password)
    }

    pub fn is_json(&self) -> bool {
        self.form == Form::Json
    }

    pub fn format(&self) -> &'static str {
        match self.form {
            Form::Json => "debezium-json",
            Form::Avro => "debezium-avro",
            Form::Protobuf => "debezium-protobuf",
        }
    }

    /// Lines of `bus.kafka`.
    pub fn yaml(&self) -> String {
        let (Some(url), false) = (&self.url, self.is_json()) else { return String::new() };
        let mut out = format!("    registry:\n      url: {}\n      level: keep\n", text(url));
        if let Some((user, _)) = &self.user {
            out += &format!("      user: {}\n      password: {}\n", text(user), quoted(&format!("${{{PASSWORD}}}")));
        }
        if let Some(naming) = self.naming {
            out += &format!("      naming: {naming}\n");
        }
        if self.is_registered_by_others {
            out += "      auto_register: false\n";
        }
        out
    }

    /// None: no property of converters.
    pub fn fate(&self, property: &str, value: &str, given: &[(String, String)]) -> Option<Fate> {
        if SIDES.contains(&property) {
            return Some(self.converter(property, value, given));
        }
        let (side, name) =
            SIDES.iter().find_map(|side| Some((*side, property.strip_prefix(side)?.strip_prefix('.')?)))?;
        if self.is_json() {
            // How JSON is written is one of the format's properties.
            let fate = Fate::NoMeaning("a setting of a converter; JSON is written".into());
            return (name != "schemas.enable").then_some(fate);
        }
        Some(self.of_registered(side, name, value, given))
    }

    /// Names as the converter's own adjustment has them: Avro and Protobuf take no others.
    pub fn adjusted(&self, property: &str, value: &str) -> Option<Fate> {
        let is_so = match property {
            "schema.name.adjustment.mode" | "field.name.adjustment.mode" => is(value, "avro"),
            "sanitize.field.names" => is(value, "true"),
            "provide.transaction.metadata" if is(value, "true") && !self.is_json() => {
                return Some(refused("transactions are told in JSON only"));
            }
            "message.prefix.include.list" if !value.is_empty() && !self.is_json() => {
                return Some(refused("messages of the log are told in JSON only"));
            }
            _ => return None,
        };
        (is_so && !self.is_json()).then(|| same(NAMES))
    }

    fn converter(&self, side: &str, value: &str, given: &[(String, String)]) -> Fate {
        let of = |name: &str| given.iter().find(|(property, _)| property == name).map(|(_, value)| value.as_str());
        let other = SIDES.iter().find(|of| **of != side).copied().unwrap_or_default();
        let has_others = of(other).unwrap_or(if self.is_json() { JSON } else { "" }) != value;
        match value {
            JSON | AVRO | PROTOBUF if has_others => refused(format!(
                "keys and values are in one form: set {other}, too, to the same (a worker's default isn't known here)"
            )),
            JSON => same("JSON"),
            AVRO | PROTOBUF if self.url.is_none() => refused(format!("{side}.schema.registry.url is needed")),
            AVRO | PROTOBUF => becomes(format!(
                "bus.kafka.format: {} (messages of the log, pg_logical_emit_message, are told in JSON only: not at all)",
                self.format()
            )),
            _ => refused(format!("{value}: only JSON and Confluent's Avro and Protobuf are written")),
        }
    }

    fn of_registered(&self, side: &str, name: &str, value: &str, given: &[(String, String)]) -> Fate {
        let other = SIDES.iter().find(|of| **of != side).copied().unwrap_or_default();
        let twin = given.iter().find(|(property, _)| *property == format!("{other}.{name}"));
        let differs = twin.is_some_and(|(_, of_other)| of_other != value);
        match name {
            "schema.registry.url" | USER | OLD_USER | "auto.register.schemas" if differs => {
                refused("keys and values have one registry: the other converter says something else")
            }
            "schema.registry.url" => address(value),
            USER | OLD_USER
                if value.split_once(':').is_none_or(|(user, password)| user.is_empty() || password.is_empty()) =>
            {
                refused("isn't `name:password`")
            }
            USER | OLD_USER => {
                becomes(format!("bus.kafka.registry: user, and password: ${{{PASSWORD}}}, from the environment"))
            }
            "basic.auth.credentials.source" if value == "USER_INFO" => same("name and password are `registry`'s"),
            "basic.auth.credentials.source" => refused("only USER_INFO is known: give basic.auth.user.info"),
            "auto.register.schemas" if is(value, "true") => same("schemas are registered"),
            "auto.register.schemas" => becomes("bus.kafka.registry.auto_register: false"),
            _ if name.ends_with("subject.name.strategy") => self.subjects(side, other, name, value, given),
            "schemas.enable" => Fate::NoMeaning("JSON's: the schemas are in the registry".into()),
            "scrub.invalid.names" => same(NAMES),
            "optional.for.nullables" if self.form == Form::Protobuf && is(value, "true") => {
                same("what may be NULL is `optional`")
            }
            "optional.for.nullables" if self.form == Form::Protobuf => {
                becomes("what may be NULL is `optional`: on the wire it is the same, and NULL isn't 0")
            }
            "wrapper.for.nullables" if self.form == Form::Protobuf && is(value, "true") => {
                refused("what may be NULL is `optional`, not a message of its own")
            }
            "wrapper.for.nullables" | "wrapper.for.raw.primitives" | "int.for.enums" | "optional.for.proto2" => {
                Fate::NoMeaning("a table's schema has nothing that it changes".into())
            }
            "connect.meta.data" if is(value, "true") => same("schemas tell Connect's types"),
            "connect.meta.data" => refused("schemas tell Connect's types: others would be registered without"),
            "use.latest.version" | "use.schema.id" if is(value, "false") || value.is_empty() => same("the default"),
            "use.latest.version" | "use.schema.id" => refused("messages are written by the table's own schema"),
            "normalize.schemas" | "latest.compatibility.strict" => {
                Fate::NoMeaning("what is registered is compared by what it means".into())
            }
            "enhanced.avro.schema.support" | "enhanced.protobuf.schema.support" => {
                Fate::NoMeaning("a table's schema has nothing that it changes".into())
            }
            "flatten.unions"
            | "generalized.sum.type.support"
            | "allow.optional.map.keys"
            | "discard.type.doc.default" => Fate::NoMeaning("a table's schema has nothing that it changes".into()),
            _ if name.contains("cache") => Fate::NoMeaning("ids are kept".into()),
            _ if name.starts_with("schema.registry.ssl.") || name.starts_with("ssl.") => {
                refused("say the authority of the registry's certificate in bus.kafka.registry.ca, as PEM")
            }
            _ if name.starts_with("bearer.auth.") => refused("give name and password: basic.auth.user.info"),
            _ => Fate::Unknown,
        }
    }

    fn subjects(&self, side: &str, other: &str, name: &str, value: &str, given: &[(String, String)]) -> Fate {
        if name != strategy(side) {
            return Fate::NoMeaning("of the other part of the message".into());
        }
        let twin = format!("{other}.{}", strategy(other));
        let of_other = given.iter().find(|(property, _)| *property == twin).map(|(_, value)| value.as_str());
        match naming(value) {
            None => refused("TopicNameStrategy, RecordNameStrategy and TopicRecordNameStrategy are known"),
            Some(of) if naming(of_other.unwrap_or(BY_TOPIC)) != Some(of) => {
                refused(format!("subjects of keys and values are called alike: set {twin} to the same"))
            }
            Some("topic") => same("subjects are called by topic"),
            Some(of) => becomes(format!("bus.kafka.registry.naming: {of}")),
        }
    }
}

const NAMES: &str = "names are made what the form takes";
const USER: &str = "basic.auth.user.info";
const OLD_USER: &str = "schema.registry.basic.auth.user.info";
const BY_TOPIC: &str = "io.confluent.kafka.serializers.subject.TopicNameStrategy";

fn is(value: &str, word: &str) -> bool {
    value.eq_ignore_ascii_case(word)
}

/// Each converter asks for the strategy of its own part.
fn strategy(side: &str) -> &'static str {
    match side {
        "key.converter" => "key.subject.name.strategy",
        _ => "value.subject.name.strategy",
    }
}

fn naming(strategy: &str) -> Option<&'static str> {
    match strategy.strip_prefix("io.confluent.kafka.serializers.subject.")? {
        "TopicNameStrategy" => Some("topic"),
        "RecordNameStrategy" => Some("record"),
        "TopicRecordNameStrategy" => Some("topic-record"),
        _ => None,
    }
}

/// The first of several addresses.
fn first(urls: &str) -> Option<&str> {
    urls.split(',').map(str::trim).find(|url| !url.is_empty())
}

fn address(urls: &str) -> Fate {
    match first(urls) {
        Some(url) if url.contains('@') => refused("has a password in it: give basic.auth.user.info"),
        Some(url) if !url.starts_with("http://") && !url.starts_with("https://") => {
            refused("isn't http:// or https://")
        }
        Some(url) if url != urls.trim() => becomes(format!("bus.kafka.registry.url: {url}, the first one alone")),
        Some(url) => becomes(format!("bus.kafka.registry.url: {url}")),
        None => refused("names no address"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{plan, CLASS};
    use super::*;

    /// Properties of both converters, each once.
    fn planned(of_both: &[(&str, &str)], more: &[(&str, &str)]) -> super::super::Plan {
        let mut given = serde_json::json!({"connector.class": CLASS, "topic.prefix": "shop"});
        for (name, value) in of_both {
            SIDES.iter().for_each(|side| given[format!("{side}{name}")] = (*value).into());
        }
        more.iter().for_each(|(name, value)| given[*name] = (*value).into());
        plan(&given.to_string(), Some("k:1")).unwrap()
    }

    const URL: (&str, &str) = (".schema.registry.url", "http://registry:8081");

    #[test]
    fn avros_converter_becomes_the_format_with_its_registry() {
        let plan = planned(&[("", AVRO), URL], &[]);
        assert_eq!(plan.refused(), 0, "{:?}", plan.fates);
        let wanted =
            "    format: debezium-avro\n    registry:\n      url: \"http://registry:8081\"\n      level: keep\n#";
        assert!(plan.yaml.contains(wanted) && !plan.yaml.contains("messages"), "{}", plan.yaml);
        assert!(!planned(&[("", JSON)], &[]).yaml.contains("registry"));

        let strategy = "io.confluent.kafka.serializers.subject.TopicRecordNameStrategy";
        let plan = planned(
            &[
                ("", AVRO),
                (URL.0, "http://a:1, http://b:2"),
                (".basic.auth.credentials.source", "USER_INFO"),
                (".basic.auth.user.info", "me:s3c:ret${X}"),
                (".schemas.enable", "true"),
                (".auto.register.schemas", "false"),
            ],
            &[
                ("key.converter.key.subject.name.strategy", strategy),
                ("value.converter.value.subject.name.strategy", strategy),
                ("value.converter.key.subject.name.strategy", "any"),
                ("schema.name.adjustment.mode", "avro"),
                ("decimal.handling.mode", "string"),
            ],
        );
        assert_eq!(plan.refused(), 0, "{:?}", plan.fates);
        let wanted = "    registry:\n      url: \"http://a:1\"\n      level: keep\n      user: \"me\"\n      password: \"${SCHEMA_REGISTRY_PASSWORD}\"\n\
                      \x20     naming: topic-record\n      auto_register: false\n    properties:\n      decimal.handling.mode: \"string\"\n#";
        assert!(plan.yaml.contains(wanted) && !plan.yaml.contains("s3c"), "{}", plan.yaml);
        let given = [("value.converter.basic.auth.user.info".to_string(), "me:s3c:ret${X}".to_string())];
        assert_eq!(Converters::password(&given).as_deref(), Some("s3c:ret${X}"));
        struct Password;
        impl crate::config::Lookup for Password {
            fn variable(&self, _: &str) -> Option<String> {
                Some("word".to_owned())
            }
            fn file(&self, _: &str) -> std::io::Result<String> {
                panic!("no file is named")
            }
        }
        crate::config::parse("p.yaml", &plan.yaml, std::path::Path::new("."), &Password).unwrap();
    }

    #[test]
    fn protobufs_converter_becomes_the_format_with_its_registry() {
        let plan =
            planned(&[("", PROTOBUF), URL, (".optional.for.nullables", "true"), (".scrub.invalid.names", "true")], &[]);
        assert_eq!(plan.refused(), 0, "{:?}", plan.fates);
        assert!(plan.yaml.contains("    format: debezium-protobuf\n    registry:\n"), "{}", plan.yaml);
        assert!(planned(&[("", PROTOBUF), URL, (".wrapper.for.nullables", "true")], &[]).refused() > 0);
        assert!(planned(&[("", PROTOBUF), URL], &[("key.converter", AVRO)]).refused() > 0);
    }

    #[test]
    fn what_a_registry_cant_be_asked_for_is_refused() {
        for (of_both, more) in [
            (vec![("", AVRO)], vec![]),
            (vec![("", AVRO), (".schema.registry.url", "ftp://r")], vec![]),
            (vec![("", AVRO), (".schema.registry.url", "http://me:word@r")], vec![]),
            (vec![("", AVRO), URL, (".bearer.auth.token", "x")], vec![]),
            (vec![("", AVRO), URL, (".basic.auth.user.info", "me")], vec![]),
            (vec![("", AVRO), URL, (".use.latest.version", "true")], vec![]),
            (vec![("", AVRO), URL], vec![("provide.transaction.metadata", "true")]),
            (vec![("", AVRO), URL], vec![("message.prefix.include.list", "app")]),
            (vec![("", AVRO), URL], vec![("schema.name.adjustment.mode", "avro_unicode")]),
            (vec![("", AVRO), URL], vec![("key.converter", JSON)]),
            (vec![("", AVRO), URL], vec![("key.converter.schema.registry.url", "http://other:1")]),
            (
                vec![("", AVRO), URL],
                vec![(
                    "key.converter.key.subject.name.strategy",
                    "io.confluent.kafka.serializers.subject.RecordNameStrategy",
                )],
            ),
            (vec![("", "io.apicurio.registry.utils.converter.AvroConverter")], vec![]),
            (vec![], vec![("value.converter", AVRO), ("value.converter.schema.registry.url", "http://r:1")]),
        ] {
            let plan = planned(&of_both, &more);
            assert!(plan.refused() > 0, "{of_both:?} {more:?}: {:?}", plan.fates);
        }
    }
}
