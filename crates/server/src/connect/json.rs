//! Bodies of requests as a tree: no name may stand twice in an object, and no message repeats a value.

use super::{Properties, Refusal};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Nothing,
    /// Text, a number or a flag, as text.
    Text(String),
    List(Vec<Node>),
    Object(BTreeMap<String, Node>),
}

pub(super) fn parse(body: &[u8]) -> Result<Node, Refusal> {
    // The reader's own words hold no text of the body.
    serde_json::from_slice(body).map_err(|e| Refusal::bad(format!("The body can't be read as JSON: {e}")))
}

impl Node {
    pub fn object(self, what: &str) -> Result<BTreeMap<String, Node>, Refusal> {
        match self {
            Node::Object(object) => Ok(object),
            _ => Err(Refusal::bad(format!("{what} must be a JSON object"))),
        }
    }

    pub fn text(self, what: &str) -> Result<String, Refusal> {
        match self {
            Node::Text(text) => Ok(text),
            _ => Err(Refusal::bad(format!("{what} must be text"))),
        }
    }

    /// Properties, all with a value.
    pub fn properties(self) -> Result<Properties, Refusal> {
        let object = self.object("The connector's configuration")?;
        object.into_iter().map(|(name, node)| Ok((name.clone(), node.text(&name)?))).collect()
    }

    /// Properties, null for those that are to go.
    pub fn patch(self) -> Result<BTreeMap<String, Option<String>>, Refusal> {
        let object = self.object("The patch")?;
        let one = |(name, node): (String, Node)| match node {
            Node::Nothing => Ok((name, None)),
            node => Ok((name.clone(), Some(node.text(&name)?))),
        };
        object.into_iter().map(one).collect()
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value of JSON")
    }
    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Nothing)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }
    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }
    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Text(value.to_string()))
    }
    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = list.next_element()? {
            nodes.push(node);
        }
        Ok(Node::List(nodes))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut object = BTreeMap::new();
        while let Some((name, node)) = map.next_entry::<String, Node>()? {
            if object.contains_key(&name) {
                return Err(de::Error::custom(format!("{name:?} stands twice in one object")));
            }
            object.insert(name, node);
        }
        Ok(Node::Object(object))
    }
}
