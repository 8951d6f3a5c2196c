//! What a table looks like at the target: names, columns and types, made from the source's schema.

use super::names;
use tidewire_change::{Error, Key, Result, Schema, Type};
use tidewire_pgwire::quote_ident;

/// One target table. All names are as PostgreSQL stores them; `quoted` forms are made where SQL is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub schema: String,
    pub table: String,
    pub view: String,
    /// The source's columns in the source's order.
    pub columns: Vec<TargetColumn>,
    pub key: Key,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TargetColumn {
    pub name: String,
    /// Its name at the source, and in the view.
    pub source: String,
    /// As it stands in DDL.
    pub ty: String,
    /// It comes with the server; else another database may lack it.
    pub builtin: bool,
}

/// Source columns that fit into a table beside ours, in staging, too: 1600 less seven of ours, less one.
const MAX_COLUMNS: usize = 1592;

impl Shape {
    /// `schema`: where the table goes; none: to the schema that it has at the source.
    pub fn of(source: &Schema, schema: Option<&str>) -> Result<Shape> {
        let columns = source.columns.iter();
        let columns = columns.map(|c| TargetColumn {
            name: names::column(&c.name, &source.key),
            source: c.name.clone(),
            ty: type_name(&c.ty),
            builtin: c.ty.builtin,
        });
        let shape = Shape {
            schema: schema.unwrap_or(&source.table.schema).to_owned(),
            table: source.table.name.clone(),
            view: names::view(&source.table.name),
            columns: columns.collect(),
            key: source.key.clone(),
        };
        if shape.columns.len() > MAX_COLUMNS {
            return Err(Error::schema(format!(
                "{} has {} columns, and a replica table holds at most {MAX_COLUMNS}: PostgreSQL allows 1600, and position and \
                 staging take theirs",
                source.table,
                shape.columns.len()
            ))
            .hint("leave the table out of `tables`, or keep its copy in a lake only")
            .on_table(&source.table));
        }
        if shape.key == Key::Columns(Vec::new())
            || source.key_columns().iter().any(|i| *i as usize >= shape.columns.len())
        {
            return Err(Error::bug(format!("the schema of {} names key columns that it hasn't", source.table))
                .on_table(&source.table));
        }
        Ok(shape)
    }

    /// Quoted and with its schema.
    pub fn target(&self) -> String {
        qualified(&self.schema, &self.table)
    }

    pub fn current_view(&self) -> String {
        qualified(&self.schema, &self.view)
    }

    /// Columns of the primary key.
    pub fn key_names(&self) -> Vec<&str> {
        match &self.key {
            Key::Columns(columns) => columns.iter().map(|i| self.columns[*i as usize].name.as_str()).collect(),
            Key::Position => vec![names::LSN, names::SEQ],
            Key::WholeRow => vec![names::ROW, names::COPY],
        }
    }

    /// The same, quoted.
    pub fn quoted_key(&self) -> Vec<String> {
        self.key_names().into_iter().map(quote_ident).collect()
    }

    pub fn is_key(&self, index: usize) -> bool {
        matches!(&self.key, Key::Columns(columns) if columns.contains(&(index as u16)))
    }
}

pub(super) fn qualified(schema: &str, name: &str) -> String {
    format!("{}.{}", quote_ident(schema), quote_ident(name))
}

/// Types whose text another database can't take back, or would take for something else of its own: names of its
/// objects and roles, and what has no input function.
const ONLY_TEXT: [&str; 18] = [
    "aclitem",
    "pg_brin_bloom_summary",
    "pg_brin_minmax_multi_summary",
    "pg_ddl_command",
    "pg_dependencies",
    "pg_mcv_list",
    "pg_ndistinct",
    "pg_node_tree",
    "regclass",
    "regcollation",
    "regconfig",
    "regdictionary",
    "regnamespace",
    "regoper",
    "regoperator",
    "regproc",
    "regprocedure",
    "regrole",
];

/// The target's type: the source's own by name. `regtype` and what stands above is text.
fn type_name(ty: &Type) -> String {
    let element = ty.name.trim_end_matches("[]");
    if ty.builtin && (element == "regtype" || ONLY_TEXT.contains(&element)) {
        return format!("text{}", &ty.name[element.len()..]);
    }
    ty.name.clone()
}
