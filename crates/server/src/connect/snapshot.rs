//! Reading tables again, asked for as Debezium's signal `execute-snapshot` does: the signal's `data` is the request's body.

use super::json::Node;
use super::Refusal;
use std::collections::BTreeMap;

/// Tables, each with a condition on its rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Snapshot {
    pub tables: BTreeMap<String, Option<String>>,
}

impl Snapshot {
    pub fn understand(body: Node) -> Result<Snapshot, Refusal> {
        let (mut tables, mut conditions) = (BTreeMap::new(), Vec::new());
        for (field, node) in body.object("The request")? {
            match field.as_str() {
                "data-collections" => {
                    for table in list(node, "data-collections")? {
                        tables.insert(table.text("data-collections")?, None);
                    }
                }
                "additional-conditions" => conditions = list(node, "additional-conditions")?,
                "type" => {
                    if !node.text("type")?.eq_ignore_ascii_case("incremental") {
                        return Err(Refusal::bad(
                            "type must be incremental: every read is placed in the stream, which goes on",
                        ));
                    }
                }
                _ => return Err(Refusal::bad(format!("{field:?} can't be honoured in a snapshot"))),
            }
        }
        for condition in conditions {
            let mut condition = condition.object("An additional condition")?;
            let text = |node: Option<Node>, what: &str| node.unwrap_or(Node::Nothing).text(what);
            let table = text(condition.remove("data-collection"), "data-collection")?;
            let filter = text(condition.remove("filter"), "filter")?;
            let (Some(slot), true) = (tables.get_mut(&table), condition.is_empty()) else {
                return Err(Refusal::bad(format!(
                    "The condition on {table:?} must have data-collection, one of data-collections, and filter, and nothing else"
                )));
            };
            if slot.replace(filter).is_some() {
                return Err(Refusal::bad(format!("There are two conditions on {table:?}: join them with AND")));
            }
        }
        match tables.is_empty() {
            true => Err(Refusal::bad("data-collections must name the tables, as schema.table")),
            false => Ok(Snapshot { tables }),
        }
    }
}

fn list(node: Node, what: &str) -> Result<Vec<Node>, Refusal> {
    match node {
        Node::List(nodes) => Ok(nodes),
        _ => Err(Refusal::bad(format!("{what} must be a list"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::json::parse;

    fn understood(body: &str) -> Result<Vec<(String, Option<String>)>, u16> {
        let snapshot = parse(body.as_bytes()).and_then(Snapshot::understand).map_err(|refusal| refusal.status)?;
        Ok(snapshot.tables.into_iter().collect())
    }

    #[test]
    fn a_signals_data_names_tables_and_conditions_and_anything_else_is_refused() {
        let body = r#"{"type": "incremental", "data-collections": ["s.a", "s.b"],
            "additional-conditions": [{"data-collection": "s.b", "filter": "id > 5"}]}"#;
        assert_eq!(understood(body), Ok(vec![("s.a".into(), None), ("s.b".into(), Some("id > 5".into()))]));
        for body in [
            "{}",
            r#"{"data-collections": []}"#,
            r#"{"data-collections": "s.a"}"#,
            r#"{"data-collections": ["s.a"], "type": "blocking"}"#,
            r#"{"data-collections": ["s.a"], "surrogate-key": "x"}"#,
            r#"{"data-collections": ["s.a"], "additional-conditions": [{"data-collection": "s.b", "filter": "x"}]}"#,
            r#"{"data-collections": ["s.a"], "additional-conditions": [{"data-collection": "s.a"}]}"#,
            r#"{"data-collections": ["s.a"], "additional-conditions": [{"data-collection": "s.a", "filter": "x"},
                {"data-collection": "s.a", "filter": "y"}]}"#,
        ] {
            assert_eq!(understood(body), Err(400), "{body}");
        }
    }
}
