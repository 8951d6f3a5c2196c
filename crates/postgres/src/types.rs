//! The type map: PostgreSQL's catalog of types -> `tidewire_change::Type`. One map for source and sink.

use serde::Deserialize;
use std::collections::HashMap;
use tidewire_change::{Column, Error, Kind, Result, Type};

/// First oid that a server gives to objects made by users; all below come with the server.
const FIRST_USER_OID: u32 = 16384;

/// One row of `TYPES_SQL`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub(crate) struct TypeEntry {
    pub oid: u32,
    /// `format_type(oid, NULL)` with only pg_catalog on the search path.
    pub name: String,
    pub schema: String,
    /// Without its schema.
    pub bare: String,
    /// pg_type.typtype: b, c, d, e, m, p, r.
    pub typtype: char,
    /// Element type of a true array, else 0.
    pub element: u32,
    /// Base type of a domain, else 0.
    pub base: u32,
    pub base_typmod: i32,
    /// Labels of an enum by the oid of their rows: a rename keeps the oid. With the version of the row: a label may have been
    /// renamed and renamed back.
    #[serde(default)]
    pub labels: Option<Vec<(u32, String, i64)>>,
    /// attnum, type, modifier and name of a composite's attributes.
    #[serde(default)]
    pub attributes: Option<Vec<(i16, u32, i32, String)>>,
}

/// All types of one database but the row types of its tables, as one JSON array.
pub(crate) const TYPES_SQL: &str = "SELECT coalesce(json_agg(json_build_object(
  'oid', t.oid::int8, 'name', format_type(t.oid, NULL), 'schema', n.nspname, 'bare', t.typname, 'typtype', t.typtype,
  'element', CASE WHEN t.typsubscript = 'pg_catalog.array_subscript_handler'::regproc AND t.typstorage <> 'p'
             THEN t.typelem::int8 ELSE 0 END,
  'base', t.typbasetype::int8, 'base_typmod', t.typtypmod,
  'labels', CASE WHEN t.typtype = 'e' THEN (SELECT json_agg(json_build_array(e.oid::int8, e.enumlabel, e.xmin::text::int8)
             ORDER BY e.oid) FROM pg_catalog.pg_enum e WHERE e.enumtypid = t.oid) END,
  'attributes', CASE WHEN t.typtype = 'c' THEN (SELECT json_agg(json_build_array(a.attnum, a.atttypid::int8,
             a.atttypmod, a.attname) ORDER BY a.attnum) FROM pg_catalog.pg_attribute a
             WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped) END)), '[]')
FROM pg_catalog.pg_type t
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
LEFT JOIN pg_catalog.pg_type el ON el.oid = t.typelem AND el.typarray = t.oid
LEFT JOIN pg_catalog.pg_class c ON c.oid = t.typrelid
LEFT JOIN pg_catalog.pg_class ec ON ec.oid = el.typrelid
WHERE coalesce(c.relkind, 'c') = 'c' AND coalesce(ec.relkind, 'c') = 'c'";

/// Types by oid.
#[derive(Clone, Debug, Default)]
pub(crate) struct TypeMap {
    by_oid: HashMap<u32, TypeEntry>,
}

impl TypeMap {
    /// `json`: the one value that `TYPES_SQL` returns.
    pub fn from_json(json: &str) -> Result<TypeMap> {
        let entries: Vec<TypeEntry> = serde_json::from_str(json)
            .map_err(|e| Error::bug("the list of types has an unexpected form").caused_by(e))?;
        Ok(TypeMap { by_oid: entries.into_iter().map(|e| (e.oid, e)).collect() })
    }

    pub fn knows(&self, oid: u32) -> bool {
        self.by_oid.contains_key(&oid)
    }

    /// The type of a column. Domains are their base type at any nesting. An unknown oid is known by its text only:
    /// `announced` is the name that the log gave it, if any.
    pub fn resolve(&self, oid: u32, typmod: i32, announced: Option<&str>) -> Type {
        let Some(entry) = self.by_oid.get(&oid) else {
            let name = announced.map_or_else(|| format!("oid {oid}"), str::to_owned);
            return Type { kind: Kind::Other, name, builtin: false };
        };
        if entry.typtype == 'd' && entry.base != 0 {
            return self.resolve(entry.base, entry.base_typmod, None);
        }
        if entry.element != 0 {
            let element = self.resolve(entry.element, typmod, None);
            let name = match element.name.strip_suffix("[]") {
                // An array of a domain over an array: PostgreSQL has no name for it without the domain's.
                Some(_) => return Type { kind: Kind::Other, name: entry.name.clone(), builtin: false },
                None => format!("{}[]", element.name),
            };
            return Type { kind: Kind::Array(Box::new(element.kind)), name, builtin: element.builtin };
        }
        let kind = match &entry.attributes {
            Some(attributes) if entry.typtype == 'c' => Kind::Composite(self.columns(attributes)),
            _ => kind(entry, typmod),
        };
        Type { kind, name: with_typmod(entry, typmod), builtin: oid < FIRST_USER_OID }
    }

    /// A composite can't contain itself, so this ends.
    fn columns(&self, attributes: &[(i16, u32, i32, String)]) -> Vec<Column> {
        let column = |(attnum, oid, typmod, name): &(i16, u32, i32, String)| Column {
            name: name.clone(),
            ty: self.resolve(*oid, *typmod, None),
            attribute: i32::from(*attnum),
        };
        attributes.iter().map(column).collect()
    }

    /// The schema of a base type that an extension brought; its operators live there, too. None for all other types: their
    /// operators are the server's own.
    pub fn extension_schema(&self, oid: u32) -> Option<&str> {
        let entry = self.by_oid.get(&oid)?;
        match entry.typtype {
            'd' if entry.base != 0 => self.extension_schema(entry.base),
            'b' if oid >= FIRST_USER_OID && entry.element == 0 => Some(&entry.schema),
            _ => None,
        }
    }

    /// Types with one answer print a value alike: a domain as its base type, `varchar` as `text`. Not so `cidr` and `inet`, or
    /// times with and without zone, although none of them is written anew when it becomes the other.
    pub fn printed_as(&self, oid: u32) -> String {
        let ty = self.resolve(oid, -1, None);
        if ty.kind == Kind::Text {
            return "text".into();
        }
        ty.name
    }

    /// Whether values of this type, as they lie in tables, may be printed otherwise than at the time of `before`: a label of
    /// an enum was renamed, or a composite has other attributes; at any depth. A new label changes no value.
    pub fn prints_otherwise(&self, before: &TypeMap, oid: u32) -> bool {
        let (Some(old), Some(new)) = (before.by_oid.get(&oid), self.by_oid.get(&oid)) else { return false };
        let renamed = |label: &(u32, String, i64)| {
            new.labels.iter().flatten().any(|n| n.0 == label.0 && (&n.1, n.2) != (&label.1, label.2))
        };
        if old.labels.iter().flatten().any(renamed) || old.attributes != new.attributes {
            return true;
        }
        self.parts(new).any(|part| self.prints_otherwise(before, part))
    }

    /// All that `prints_otherwise` depends on, as text; empty for types that can't change.
    pub fn print_shape(&self, oid: u32) -> String {
        let Some(entry) = self.by_oid.get(&oid) else { return String::new() };
        let own = match (&entry.labels, &entry.attributes) {
            (None, None) => String::new(),
            own => format!("{own:?}"),
        };
        self.parts(entry).fold(own, |shape, part| shape + &self.print_shape(part))
    }

    /// The types that values of a type are made of: its base type, elements, attributes.
    fn parts<'a>(&'a self, entry: &'a TypeEntry) -> impl Iterator<Item = u32> + 'a {
        let attributes = entry.attributes.iter().flatten().map(|(_, oid, ..)| *oid);
        [entry.base, entry.element].into_iter().filter(|oid| *oid != 0).chain(attributes)
    }
}

fn kind(entry: &TypeEntry, typmod: i32) -> Kind {
    match entry.typtype {
        'e' => return Kind::Enum,
        'r' | 'm' => return Kind::Range,
        'c' => return Kind::Composite(Vec::new()),
        _ => {}
    }
    match entry.oid {
        16 => Kind::Bool,
        17 => Kind::Bytes,
        18 | 19 | 25 | 142 | 1043 => Kind::Text,
        20 => Kind::Int64,
        21 => Kind::Int16,
        23 => Kind::Int32,
        // oid and xid are unsigned 32-bit numbers.
        26 | 28 => Kind::Int64,
        114 => Kind::Json,
        700 => Kind::Float32,
        701 => Kind::Float64,
        1042 => Kind::Char,
        1082 => Kind::Date,
        1083 => Kind::Time,
        1114 => Kind::Timestamp,
        1184 => Kind::TimestampTz,
        1186 => Kind::Interval,
        1266 => Kind::TimeTz,
        1560 | 1562 => Kind::Bits,
        1700 => Kind::Numeric { precision_scale: precision_scale(typmod) },
        2950 => Kind::Uuid,
        3802 => Kind::Jsonb,
        oid if oid >= FIRST_USER_OID && entry.bare == "citext" => Kind::CaseInsensitiveText,
        oid if oid >= FIRST_USER_OID && entry.bare == "hstore" => Kind::Map,
        _ => Kind::Other,
    }
}

/// numeric's modifier: 16 bits of precision above 11 bits of signed scale, plus 4 (numeric.c, `make_numeric_typmod`).
fn precision_scale(typmod: i32) -> Option<(u16, i16)> {
    let packed = typmod.checked_sub(4).filter(|packed| *packed >= 0)?;
    let scale = ((packed & 0x7ff) ^ 1024) - 1024;
    Some((((packed >> 16) & 0xffff) as u16, scale as i16))
}

/// What `format_type(oid, typmod)` says, for the types that come with the server.
fn with_typmod(entry: &TypeEntry, typmod: i32) -> String {
    let name = &entry.name;
    if typmod < 0 {
        return if entry.oid == 1042 { "bpchar".to_owned() } else { name.clone() };
    }
    match entry.oid {
        1042 | 1043 => format!("{name}({})", typmod - 4),
        1560 | 1562 => format!("{name}({typmod})"),
        1700 => match precision_scale(typmod) {
            Some((precision, scale)) => format!("numeric({precision},{scale})"),
            None => name.clone(),
        },
        1083 | 1114 | 1184 | 1266 => match name.split_once(' ') {
            Some((first, rest)) => format!("{first}({typmod}) {rest}"),
            None => format!("{name}({typmod})"),
        },
        1186 => interval_name(typmod),
        _ => name.clone(),
    }
}

/// interval's modifier: fields above 16 bits of precision, 0xffff and 0x7fff being "all" (timestamp.h, datetime.h).
fn interval_name(typmod: i32) -> String {
    const YEAR: i32 = 1 << 2;
    const MONTH: i32 = 1 << 1;
    const DAY: i32 = 1 << 3;
    const HOUR: i32 = 1 << 10;
    const MINUTE: i32 = 1 << 11;
    const SECOND: i32 = 1 << 12;
    let fields = match (typmod >> 16) & 0x7fff {
        f if f == YEAR => " year",
        f if f == MONTH => " month",
        f if f == DAY => " day",
        f if f == HOUR => " hour",
        f if f == MINUTE => " minute",
        f if f == SECOND => " second",
        f if f == YEAR | MONTH => " year to month",
        f if f == DAY | HOUR => " day to hour",
        f if f == DAY | HOUR | MINUTE => " day to minute",
        f if f == DAY | HOUR | MINUTE | SECOND => " day to second",
        f if f == HOUR | MINUTE => " hour to minute",
        f if f == HOUR | MINUTE | SECOND => " hour to second",
        f if f == MINUTE | SECOND => " minute to second",
        _ => "",
    };
    match typmod & 0xffff {
        0xffff => format!("interval{fields}"),
        precision => format!("interval{fields}({precision})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(oid: u32, name: &str, typtype: char) -> TypeEntry {
        let bare = name.rsplit('.').next().unwrap_or(name).to_owned();
        TypeEntry {
            oid,
            name: name.into(),
            schema: "s".into(),
            bare,
            typtype,
            element: 0,
            base: 0,
            base_typmod: -1,
            labels: None,
            attributes: None,
        }
    }

    fn map() -> TypeMap {
        let numeric_array = TypeEntry { element: 1700, ..entry(1231, "numeric[]", 'b') };
        let pct = TypeEntry { base: 1700, base_typmod: (5 << 16 | 2) + 4, ..entry(20000, "shop.pct", 'd') };
        let strict = TypeEntry { base: 20000, ..entry(20001, "shop.strict_pct", 'd') };
        let many = TypeEntry { element: 20000, ..entry(20002, "shop.pct[]", 'b') };
        let state = TypeEntry { labels: Some(vec![(1, "new".into(), 5)]), ..entry(20003, "shop.state", 'e') };
        let states = TypeEntry { element: 20003, ..entry(20004, "shop.state[]", 'b') };
        let entries = [
            entry(1700, "numeric", 'b'),
            entry(1042, "character", 'b'),
            entry(1114, "timestamp without time zone", 'b'),
            entry(1186, "interval", 'b'),
            entry(20005, "public.citext", 'b'),
            numeric_array,
            pct,
            strict,
            many,
            state,
            states,
        ];
        TypeMap { by_oid: entries.into_iter().map(|e| (e.oid, e)).collect() }
    }

    #[test]
    fn a_negative_scale_and_a_scale_above_the_precision_are_read_from_eleven_bits() {
        let typmod = |precision: i32, scale: i32| ((precision << 16) | (scale & 0x7ff)) + 4;
        for (precision, scale) in [(6, -2), (3, 5), (38, 0), (1000, -1000), (1000, 1000)] {
            let ty = map().resolve(1700, typmod(precision, scale), None);
            let expected = Kind::Numeric { precision_scale: Some((precision as u16, scale as i16)) };
            assert_eq!((ty.kind, ty.name), (expected, format!("numeric({precision},{scale})")));
        }
        assert_eq!(map().resolve(1700, -1, None).kind, Kind::Numeric { precision_scale: None });
    }

    #[test]
    fn a_domain_is_its_base_type_at_any_nesting() {
        let base = Kind::Numeric { precision_scale: Some((5, 2)) };
        let strict = map().resolve(20001, -1, None);
        assert_eq!((strict.kind, strict.name.as_str(), strict.builtin), (base.clone(), "numeric(5,2)", true));
        let many = map().resolve(20002, -1, None);
        assert_eq!((many.kind, many.name.as_str()), (Kind::Array(Box::new(base)), "numeric(5,2)[]"));
    }

    #[test]
    fn what_prints_alike_is_told_from_what_only_is_stored_alike() {
        let [varchar, text, cidr, inet] = [(1043, "character varying"), (25, "text"), (650, "cidr"), (869, "inet")]
            .map(|(oid, name)| entry(oid, name, 'b'));
        let map = TypeMap { by_oid: [varchar, text, cidr, inet].into_iter().map(|e| (e.oid, e)).collect() };
        assert_eq!(map.printed_as(1043), map.printed_as(25));
        assert_ne!(map.printed_as(650), map.printed_as(869));
    }

    #[test]
    fn names_carry_their_modifiers_as_the_server_writes_them() {
        let name = |oid, typmod| map().resolve(oid, typmod, None).name;
        assert_eq!(name(1042, 7), "character(3)");
        assert_eq!(name(1042, -1), "bpchar");
        assert_eq!(name(1114, 3), "timestamp(3) without time zone");
        assert_eq!(name(1186, (6 << 16) | 0xffff), "interval year to month");
        assert_eq!(name(1186, (0x7fff << 16) | 2), "interval(2)");
        assert_eq!(name(1231, (12 << 16 | 2) + 4), "numeric(12,2)[]");
    }

    #[test]
    fn an_unknown_type_is_text_under_the_name_that_the_log_gave_it() {
        let ty = map().resolve(99999, -1, Some("ext.thing"));
        assert_eq!(ty, Type { kind: Kind::Other, name: "ext.thing".into(), builtin: false });
        assert_eq!(map().resolve(20005, -1, None).kind, Kind::CaseInsensitiveText);
    }

    #[test]
    fn the_enum_inside_an_array_is_found() {
        assert!(!map().print_shape(20004).is_empty());
        assert!(map().print_shape(1231).is_empty());
    }
}
