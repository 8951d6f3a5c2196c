use super::Physical;
use std::collections::BTreeMap;
use tidewire_change::{Column, TableName};

/// Types of single columns that the configuration asks for in place of those of the type map.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ColumnTypes {
    by_column: BTreeMap<(TableName, String), Physical>,
}

impl ColumnTypes {
    /// What a type may be.
    pub const NAMES: [&str; 12] = [
        "text",
        "boolean",
        "short",
        "integer",
        "long",
        "float",
        "double",
        "decimal(P,S)",
        "binary",
        "date",
        "timestamp",
        "timestamp_ntz",
    ];

    /// `column`: `schema.table.column`; a part with a dot in it stands in double quotes. `ty`: a primitive type of Delta, or
    /// `text`. Fails with what is wrong about them.
    pub fn set(&mut self, column: &str, ty: &str) -> std::result::Result<(), String> {
        let parts = parts(column, '.').unwrap_or_default();
        let [schema, table, column] = &parts[..] else {
            return Err("is a type of no column: it must be schema.table.column".into());
        };
        let physical = Physical::named(ty).ok_or_else(|| format!("must be {}", Self::NAMES.join(", ")))?;
        self.by_column.insert((TableName::new(schema, table), column.clone()), physical);
        Ok(())
    }

    /// The type of a column, and whether the configuration asks for it.
    pub fn of(&self, table: &TableName, column: &Column) -> (Physical, bool) {
        if !self.by_column.is_empty() {
            if let Some(physical) = self.by_column.get(&(table.clone(), column.name.clone())) {
                return (physical.clone(), true);
            }
        }
        (Physical::of(&column.ty), false)
    }
}

/// `a."b.c".d`, separated by dots, without its quotes; a quote inside of quotes is doubled. None when a part is empty or a quote has no end.
pub(super) fn parts(name: &str, separator: char) -> Option<Vec<String>> {
    let mut parts = vec![String::new()];
    let (mut quoted, mut chars) = (false, name.chars().peekable());
    while let Some(c) = chars.next() {
        let last = parts.last_mut()?;
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                last.push('"');
            }
            '"' => quoted = !quoted,
            c if c == separator && !quoted => parts.push(String::new()),
            c => last.push(c),
        }
    }
    (!quoted && parts.iter().all(|part| !part.is_empty())).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::{Kind, Type};

    #[test]
    fn a_columns_name_may_have_dots_and_quotes_and_anything_else_is_refused() {
        let mut types = ColumnTypes::default();
        types.set("s.\"a.\"\"b\".c", "decimal(4,1)").unwrap();
        let column = Column {
            name: "c".into(),
            ty: Type { kind: Kind::Text, name: "text".into(), builtin: true },
            attribute: 1,
        };
        let decimal = Physical::Decimal { precision: 4, scale: 1 };
        assert_eq!(types.of(&TableName::new("s", "a.\"b"), &column), (decimal, true));
        assert_eq!(types.of(&TableName::new("s", "a"), &column), (Physical::String, false));
        for bad in ["a.b", "a.b.c.d", "a..c", "a.\"b.c", ""] {
            assert!(types.set(bad, "text").is_err(), "{bad}");
        }
        assert!(types.set("a.b.c", "int").unwrap_err().contains("decimal(P,S)"));
    }
}
