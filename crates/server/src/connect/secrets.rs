//! Passwords of connectors: kept in the connector's file, shown nowhere.

use super::{Properties, Refusal};

/// Stands in answers in a secret's place, as Kafka prints a password. A client that reads a configuration, changes it and puts it
/// back sends this; it then means what was kept.
pub(super) const HIDDEN: &str = "[hidden]";

/// Parts of names of properties whose values are secrets.
const SECRET: &[&str] =
    &["password", "passwd", "passphrase", "secret", "jaas", "token", "credential", "user.info", "private.key"];

/// Who gets the secrets: for another one they have to be given anew.
const SERVER: &[&str] = &[
    "database.hostname",
    "database.port",
    "database.sslmode",
    "database.sslrootcert",
    "key.converter.schema.registry.url",
    "value.converter.schema.registry.url",
];

pub(super) fn is_secret(property: &str) -> bool {
    let property = property.to_ascii_lowercase();
    SECRET.iter().any(|part| property.contains(part)) && !property.ends_with("credentials.source")
}

/// As it may be shown.
pub(super) fn masked(config: &Properties) -> Properties {
    let shown = |(property, value): (&String, &String)| {
        let hides = is_secret(property) && !value.is_empty();
        (property.clone(), if hides { HIDDEN.to_owned() } else { value.clone() })
    };
    config.iter().map(shown).collect()
}

/// With what was kept in the place of masks.
pub(super) fn unmasked(mut config: Properties, before: Option<&Properties>) -> Result<Properties, Refusal> {
    let same_server =
        |before: &Properties| SERVER.iter().all(|property| before.get(*property) == config.get(*property));
    let before = before.filter(|before| same_server(before));
    for (property, value) in config.iter_mut().filter(|(property, value)| is_secret(property) && *value == HIDDEN) {
        let kept = before.and_then(|before| before.get(property)).ok_or_else(|| {
            Refusal::bad(format!(
                "{property} is {HIDDEN}, which stands for what is kept, and nothing is kept for this server: give it anew"
            ))
        })?;
        value.clone_from(kept);
    }
    Ok(config)
}

/// `${provider:…}`: nobody here looks such things up.
pub(super) fn is_looked_up(value: &str) -> bool {
    let mut parts = value.split("${").skip(1);
    parts.any(|part| {
        let name = part.split_once(':').map_or("", |(name, _)| name);
        part.contains('}')
            && !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(pairs: &[(&str, &str)]) -> Properties {
        pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn a_masked_secret_that_comes_back_is_the_kept_one_for_the_same_server_alone() {
        let kept = config(&[("database.hostname", "a"), ("database.password", "s3cret"), ("database.user", "me")]);
        let shown = masked(&kept);
        assert_eq!(shown["database.password"], HIDDEN);
        assert_eq!(shown["database.user"], "me");
        assert_eq!(unmasked(shown.clone(), Some(&kept)).unwrap(), kept);
        assert_eq!(unmasked(shown.clone(), None).unwrap_err().status, 400);
        let elsewhere = Properties::from_iter(shown.into_iter().chain([("database.hostname".into(), "b".into())]));
        assert_eq!(unmasked(elsewhere, Some(&kept)).unwrap_err().status, 400);
        // Nor is a registry's login sent to another one.
        let (url, login) = ("value.converter.schema.registry.url", "value.converter.basic.auth.user.info");
        let kept = config(&[("database.hostname", "a"), (url, "https://r"), (login, "me:s3cret")]);
        let elsewhere = config(&[("database.hostname", "a"), (url, "https://other"), (login, HIDDEN)]);
        assert_eq!(unmasked(masked(&kept), Some(&kept)).unwrap(), kept);
        assert_eq!(unmasked(elsewhere, Some(&kept)).unwrap_err().status, 400);
    }

    #[test]
    fn what_is_a_secret_is_told_by_the_name() {
        for name in
            ["database.password", "producer.override.sasl.jaas.config", "x.basic.auth.user.info", "a.Client-Secret"]
        {
            assert!(is_secret(name), "{name}");
        }
        for name in [
            "database.user",
            "slot.name",
            "column.exclude.list",
            "message.key.columns",
            "key.converter.basic.auth.credentials.source",
        ] {
            assert!(!is_secret(name), "{name}");
        }
    }

    #[test]
    fn references_to_providers_are_seen() {
        for value in ["${file:/etc/x:password}", "a${env:PW}b", "${vault-2:x}"] {
            assert!(is_looked_up(value), "{value}");
        }
        for value in ["", "${PW}", "$5", "p${", "${a b:c}", "${:x}"] {
            assert!(!is_looked_up(value), "{value}");
        }
    }
}
