//! Types by the names that people write: `varchar(20)`, `numeric(10,2)[]`.

use tidewire_change::{Error, Kind, Result, Type};

/// The type of this name, as the server would call it. Types of the user's own have none here: values of an enum are `text`.
pub fn type_named(text: &str) -> Result<Type> {
    let folded = text.trim().to_ascii_lowercase();
    let name = folded.split_whitespace().collect::<Vec<_>>().join(" ");
    let (name, is_array) = match name.strip_suffix("[]") {
        Some(element) => (element.trim().to_string(), true),
        None => (name, false),
    };
    let unknown = || {
        Error::invalid(format!("`{text}` is no type that is known here")).hint(
            "types look like integer, bigint, text, varchar(20), numeric(10,2), timestamp(3), timestamptz, uuid, jsonb, bytea, \
             integer[]; an enum is text",
        )
    };
    let ty = scalar(&name).ok_or_else(unknown)?;
    Ok(match is_array {
        false => ty,
        true => Type { kind: Kind::Array(Box::new(ty.kind)), name: format!("{}[]", ty.name), builtin: ty.builtin },
    })
}

fn scalar(text: &str) -> Option<Type> {
    let (word, numbers, rest) = modified(text)?;
    let plain = |kind: Kind, name: &str| {
        (numbers.is_empty() && rest.is_empty()).then(|| Type { kind, name: name.to_string(), builtin: true })
    };
    let sized = |kind: Kind, name: &str| match (numbers.as_slice(), rest.is_empty()) {
        ([], true) => Some(Type { kind, name: name.to_string(), builtin: true }),
        ([length], true) => Some(Type { kind, name: format!("{name}({length})"), builtin: true }),
        _ => None,
    };
    let clock = |kind: Kind, zone: &str| match numbers.as_slice() {
        [] => Some(Type { kind, name: format!("{word} {zone} time zone"), builtin: true }),
        [digits @ 0..=6] => Some(Type { kind, name: format!("{word}({digits}) {zone} time zone"), builtin: true }),
        _ => None,
    };
    match word.as_str() {
        "boolean" | "bool" => plain(Kind::Bool, "boolean"),
        "smallint" | "int2" | "smallserial" => plain(Kind::Int16, "smallint"),
        "integer" | "int" | "int4" | "serial" => plain(Kind::Int32, "integer"),
        "bigint" | "int8" | "bigserial" => plain(Kind::Int64, "bigint"),
        "oid" => plain(Kind::Int64, "oid"),
        "real" | "float4" => plain(Kind::Float32, "real"),
        "double precision" | "float8" => plain(Kind::Float64, "double precision"),
        "numeric" | "decimal" => numeric(&numbers, &rest),
        "text" | "name" | "xml" => plain(Kind::Text, &word),
        "varchar" | "character varying" => sized(Kind::Text, "character varying"),
        "char" | "character" if numbers.is_empty() => plain(Kind::Char, "character(1)"),
        "char" | "character" => sized(Kind::Char, "character"),
        "bpchar" => plain(Kind::Char, "bpchar"),
        "citext" => Some(Type { kind: Kind::CaseInsensitiveText, name: "public.citext".into(), builtin: false }),
        "hstore" => Some(Type { kind: Kind::Map, name: "public.hstore".into(), builtin: false }),
        "bytea" => plain(Kind::Bytes, "bytea"),
        "date" => plain(Kind::Date, "date"),
        "time" if matches!(rest.as_str(), "" | "without time zone") => clock(Kind::Time, "without"),
        "time" if rest == "with time zone" => clock(Kind::TimeTz, "with"),
        "timestamp" if matches!(rest.as_str(), "" | "without time zone") => clock(Kind::Timestamp, "without"),
        "timestamp" if rest == "with time zone" => clock(Kind::TimestampTz, "with"),
        "interval" => plain(Kind::Interval, "interval"),
        "uuid" => plain(Kind::Uuid, "uuid"),
        "json" => plain(Kind::Json, "json"),
        "jsonb" => plain(Kind::Jsonb, "jsonb"),
        "bit" if numbers.is_empty() => plain(Kind::Bits, "bit(1)"),
        "bit" => sized(Kind::Bits, "bit"),
        "varbit" | "bit varying" => sized(Kind::Bits, "bit varying"),
        "int4range" | "int8range" | "numrange" | "tsrange" | "tstzrange" | "daterange" => plain(Kind::Range, &word),
        "money" | "inet" | "cidr" | "macaddr" | "macaddr8" | "tsvector" | "point" => plain(Kind::Other, &word),
        _ => None,
    }
}

/// `timestamp(3) with time zone` as its word, its numbers and what follows; short names in full.
fn modified(text: &str) -> Option<(String, Vec<u32>, String)> {
    let (before, numbers, rest) = match text.split_once('(') {
        None => match ["with time zone", "without time zone"]
            .iter()
            .find_map(|zone| text.strip_suffix(zone).map(|w| (w, *zone)))
        {
            Some((word, zone)) => (word, Vec::new(), zone),
            None => (text, Vec::new(), ""),
        },
        Some((word, rest)) => {
            let (inside, rest) = rest.split_once(')')?;
            let numbers: Option<Vec<u32>> = inside.split(',').map(|number| number.trim().parse().ok()).collect();
            (word, numbers?, rest)
        }
    };
    let (word, zone) = match before.trim() {
        "timestamptz" => ("timestamp", "with time zone"),
        "timetz" => ("time", "with time zone"),
        word => (word, rest.trim()),
    };
    Some((word.to_string(), numbers, zone.to_string()))
}

fn numeric(numbers: &[u32], rest: &str) -> Option<Type> {
    let (precision, scale) = match numbers {
        [] => (None, 0),
        [precision] => (Some(*precision), 0),
        [precision, scale] => (Some(*precision), *scale),
        _ => return None,
    };
    let Some(precision) = precision else {
        let kind = Kind::Numeric { precision_scale: None };
        return rest.is_empty().then(|| Type { kind, name: "numeric".into(), builtin: true });
    };
    let precision_scale = Some((u16::try_from(precision).ok()?, i16::try_from(scale).ok()?));
    let fits = (1..=1000).contains(&precision) && scale <= 1000 && rest.is_empty();
    let name = format!("numeric({precision},{scale})");
    fits.then_some(Type { kind: Kind::Numeric { precision_scale }, name, builtin: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_the_servers_own_names() {
        for (written, name) in [
            ("INT", "integer"),
            ("bigserial", "bigint"),
            ("varchar(20)", "character varying(20)"),
            ("character  varying", "character varying"),
            ("decimal(10, 2)", "numeric(10,2)"),
            ("numeric(5)", "numeric(5,0)"),
            ("numeric", "numeric"),
            ("timestamptz", "timestamp with time zone"),
            ("timestamptz(3)", "timestamp(3) with time zone"),
            ("timestamp(3) without time zone", "timestamp(3) without time zone"),
            ("timestamp with time zone", "timestamp with time zone"),
            ("time", "time without time zone"),
            ("double precision", "double precision"),
            ("char", "character(1)"),
            ("bit(4)", "bit(4)"),
            ("text[]", "text[]"),
            ("numeric(12,2)[]", "numeric(12,2)[]"),
        ] {
            assert_eq!(type_named(written).unwrap().name, name, "{written}");
        }
        for bad in [
            "",
            "order_state",
            "numeric(0)",
            "numeric(1,2,3)",
            "timestamp(9)",
            "integer(4)",
            "varchar(x)",
            "text with time zone",
        ] {
            assert!(type_named(bad).is_err(), "{bad}");
        }
    }
}
