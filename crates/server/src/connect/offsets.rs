//! How far a connector has come, in the form of Debezium's offsets; what may be asked to be otherwise.

use super::json::Node;
use super::store::{Kept, Offset, Target};
use super::Refusal;
use serde_json::{json, Value};

pub(super) fn answer(prefix: &str, offset: Option<Offset>) -> Value {
    let one = |at: Offset| {
        json!({"partition": {"server": prefix},
            "offset": {"lsn": at.lsn, "lsn_commit": at.lsn, "lsn_proc": at.lsn, "ts_usec": at.ts_usec}})
    };
    json!({"offsets": offset.map(one).into_iter().collect::<Vec<_>>()})
}

/// Offsets change under nobody who reads.
pub(super) fn must_rest(kept: &Kept, word: &str) -> Result<(), Refusal> {
    match kept.target {
        Target::Stopped => Ok(()),
        _ => Err(Refusal::bad(format!(
            "Connectors must be in the STOPPED state before their offsets can be {word}. This can be done for the specified \
             connector by issuing a 'PUT' request to the '/connectors/{}/stop' endpoint",
            kept.name
        ))),
    }
}

/// The LSN that the body asks for; none: the offset is to be forgotten.
pub(super) fn wanted(body: Node, prefix: &str) -> Result<Option<u64>, Refusal> {
    let shape = || {
        Refusal::bad(
            "The body must be {\"offsets\": [{\"partition\": {\"server\": topic.prefix}, \"offset\": {\"lsn\": number} or null}]}, \
             with this one partition",
        )
    };
    let mut body = body.object("The request")?;
    let Some(Node::List(mut list)) = body.remove("offsets") else { return Err(shape()) };
    let (Some(entry), true, true) = (list.pop(), list.is_empty(), body.is_empty()) else { return Err(shape()) };
    let mut entry = entry.object("An offset")?;
    let partition = entry.remove("partition").ok_or_else(shape)?.object("partition")?;
    if partition.get("server") != Some(&Node::Text(prefix.to_owned())) || partition.len() != 1 {
        return Err(Refusal::bad(format!("The connector has one partition, {{\"server\": {prefix:?}}}, and no other")));
    }
    match entry.remove("offset").ok_or_else(shape)? {
        Node::Nothing => Ok(None),
        offset => match offset.object("offset")?.remove("lsn") {
            Some(Node::Text(lsn)) => lsn.parse().map(Some).map_err(|_| shape()),
            _ => Err(shape()),
        },
    }
}

/// Nothing is told twice by going back, and nothing is left out by going on: only the place where it stands is taken.
pub(super) fn may_be(lsn: u64, now: Option<Offset>) -> Result<(), Refusal> {
    let Some(now) = now.map(|now| now.lsn) else {
        return Err(Refusal::bad(
            "The connector has come nowhere yet: it reads every table at its first start, and the stream goes on from there. A place \
             that another connector has reached can't be taken over",
        ));
    };
    match lsn.cmp(&now) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Less => Err(Refusal::bad(format!(
            "The connector stands at {now}; what was committed before has been told, and the server may have thrown it away. To have \
             every table read again, reset the offsets (DELETE)"
        ))),
        std::cmp::Ordering::Greater => Err(Refusal::bad(format!(
            "The connector stands at {now}; changes between that and {lsn} would be told to nobody, and nothing is left out here"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connect::json::parse;

    fn asked(body: &str) -> Result<Option<u64>, u16> {
        parse(body.as_bytes()).and_then(|body| wanted(body, "shop")).map_err(|refusal| refusal.status)
    }

    #[test]
    fn a_place_is_taken_from_debeziums_form_and_anything_else_is_refused() {
        let of =
            |partition: &str, offset: &str| format!(r#"{{"offsets":[{{"partition":{partition},"offset":{offset}}}]}}"#);
        let shop = r#"{"server":"shop"}"#;
        assert_eq!(asked(&of(shop, r#"{"lsn": 77, "txId": 5}"#)), Ok(Some(77)));
        assert_eq!(asked(&of(shop, "null")), Ok(None));
        for body in [
            of(r#"{"server":"other"}"#, "null"),
            of(shop, "5"),
            of(shop, r#"{"lsn": "x"}"#),
            of(shop, "{}"),
            r#"{"offsets": []}"#.into(),
            r#"{"offsets": null}"#.into(),
            r#"{"offsets": [1, 2]}"#.into(),
            "[]".into(),
        ] {
            assert_eq!(asked(&body), Err(400), "{body}");
        }
    }

    #[test]
    fn only_the_place_where_it_stands_is_taken() {
        let now = Some(Offset { lsn: 100, ts_usec: 1 });
        assert!(may_be(100, now).is_ok());
        for (lsn, now) in [(99, now), (101, now), (100, None)] {
            assert_eq!(may_be(lsn, now).map_err(|refusal| refusal.status), Err(400));
        }
    }
}
