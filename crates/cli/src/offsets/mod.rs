//! Debezium's offsets: where a connector stands, as Connect and the embedded engine keep it.

mod engine_file;

use serde_json::{json, Map, Value};
use tidewire_change::{Error, Result};

/// One connector's offset.
#[derive(Clone, Debug, PartialEq)]
pub struct Offset {
    /// The connector's name, where it stands there.
    pub connector: Option<String>,
    /// `topic.prefix`
    pub server: String,
    pub place: Map<String, Value>,
}

/// How offsets are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// What Connect's `PATCH /connectors/NAME/offsets` takes.
    Connect,
    /// The embedded engine's file.
    Engine,
}

impl Offset {
    /// A connector that has told everything that committed below `lsn`. `at`: when that was, microseconds since 1970 UTC.
    pub fn at(connector: Option<String>, server: &str, lsn: u64, at: i64) -> Offset {
        let place =
            json!({"lsn": lsn, "lsn_proc": lsn, "lsn_commit": lsn, "txId": null, "ts_usec": at, "messageType": null});
        let Value::Object(mut place) = place else { unreachable!("it is an object") };
        place.retain(|_, value| !value.is_null());
        Offset { connector, server: server.to_string(), place }
    }

    /// Everything that committed below was told; of what commits later some may have been told, too.
    pub fn lsn(&self) -> Result<u64> {
        let lsn = |name: &str| self.place.get(name).and_then(Value::as_u64);
        if self.place.get("snapshot").is_some_and(|snapshot| *snapshot != Value::Bool(false) && !snapshot.is_null())
            && self.place.get("snapshot_completed") != Some(&Value::Bool(true))
        {
            return Err(Error::invalid("the connector stands in the middle of its first snapshot")
                .hint("let it come to its end, or begin anew: a new slot, with a copy of the tables"));
        }
        lsn("lsn_commit")
            .or(lsn("lsn_proc"))
            .or(lsn("lsn"))
            .ok_or_else(|| Error::invalid("the offset has no LSN: it isn't one of a PostgreSQL connector"))
    }
}

/// All offsets of a file: the engine's, what Connect's REST API answers, or lines of its offsets topic (key, tab or blank, value).
pub fn read(bytes: &[u8]) -> Result<Vec<Offset>> {
    if engine_file::is_one(bytes) {
        let entries = engine_file::read(bytes)?;
        return entries
            .into_iter()
            .filter_map(|(key, value)| Some((key, value?)))
            .map(|(key, value)| entry(&key, &value))
            .collect();
    }
    let text = std::str::from_utf8(bytes).map_err(|_| unknown())?;
    if let Ok(answer) = serde_json::from_str::<Value>(text) {
        if let Some(offsets) = answer["offsets"].as_array() {
            return offsets.iter().map(|one| of(None, &one["partition"], &one["offset"])).collect();
        }
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let mut found: Vec<Offset> = Vec::new();
    for line in lines {
        let mut values = serde_json::Deserializer::from_str(line).into_iter::<Value>();
        let (Some(Ok(key)), Some(Ok(value))) = (values.next(), values.next()) else { return Err(unknown()) };
        // Of one partition the last counts; one without a value is none any more.
        let key_text = key.to_string();
        let partition = key[1].clone();
        found.retain(|known| known.server != partition["server"].as_str().unwrap_or_default());
        if !value.is_null() {
            found.push(entry(key_text.as_bytes(), value.to_string().as_bytes())?);
        }
    }
    Ok(found)
}

/// The one that is meant.
pub fn choose(mut offsets: Vec<Offset>, server: Option<&str>) -> Result<Offset> {
    let names = offsets.iter().map(|offset| offset.server.clone()).collect::<Vec<_>>().join(", ");
    if let Some(server) = server {
        offsets.retain(|offset| offset.server == server);
    }
    match offsets.len() {
        1 => Ok(offsets.remove(0)),
        0 if names.is_empty() => Err(Error::invalid("there is no offset")
            .hint("has the connector told anything yet? Connect answers with none then")),
        0 => Err(Error::invalid("the connector's offset isn't among them").hint(format!("there are: {names}"))),
        _ => {
            Err(Error::invalid(format!("there are offsets of several connectors: {names}"))
                .hint("choose one by --server"))
        }
    }
}

pub fn write(offset: &Offset, form: Form) -> Vec<u8> {
    let partition = json!({"server": offset.server});
    match form {
        Form::Connect => {
            let body = json!({"offsets": [{"partition": partition, "offset": offset.place}]});
            format!("{body}\n").into_bytes()
        }
        Form::Engine => {
            let key = json!([offset.connector.as_deref().unwrap_or(&offset.server), partition]).to_string();
            engine_file::write(&vec![(
                key.into_bytes(),
                Some(Value::Object(offset.place.clone()).to_string().into_bytes()),
            )])
        }
    }
}

fn entry(key: &[u8], value: &[u8]) -> Result<Offset> {
    let key: Value = serde_json::from_slice(key).map_err(|_| unknown())?;
    let value: Value = serde_json::from_slice(value).map_err(|_| unknown())?;
    // With schemas.enable both stand beside their schema.
    let (key, value) = (key.get("payload").unwrap_or(&key), value.get("payload").unwrap_or(&value));
    of(key[0].as_str().map(str::to_string), &key[1], value)
}

fn of(connector: Option<String>, partition: &Value, place: &Value) -> Result<Offset> {
    match (partition["server"].as_str(), place) {
        (Some(server), Value::Object(place)) => {
            Ok(Offset { connector, server: server.to_string(), place: place.clone() })
        }
        _ => Err(unknown()),
    }
}

fn unknown() -> Error {
    Error::invalid("these aren't offsets of a Debezium connector").hint(
        "give the embedded engine's file, what GET /connectors/NAME/offsets answers, or lines of the offsets topic with their keys",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_read_from_every_place_in_which_debezium_keeps_them() {
        let place = r#"{"lsn_proc":27413624,"messageType":"INSERT","lsn_commit":27413568,"lsn":27413624,"txId":742,"ts_usec":1700000000000000}"#;
        let rest = format!(r#"{{"offsets":[{{"partition":{{"server":"shop"}},"offset":{place}}}]}}"#);
        let topic = format!("[\"inventory\",{{\"server\":\"other\"}}]\t{{\"lsn\":5}}\n[\"inventory\",{{\"server\":\"shop\"}}]\t{{\"lsn\":7}}\n[\"inventory\",{{\"server\":\"shop\"}}]\t{place}\n");
        let engine = write(&choose(read(rest.as_bytes()).unwrap(), None).unwrap(), Form::Engine);
        for bytes in [rest.as_bytes(), topic.as_bytes(), &engine] {
            let offset = choose(read(bytes).unwrap(), Some("shop")).unwrap();
            assert_eq!((offset.lsn().unwrap(), offset.place["txId"].clone()), (27413568, 742.into()));
        }
        assert!(choose(read(topic.as_bytes()).unwrap(), None).is_err(), "there are two");
        for bad in [&b"{}"[..], b"x", b"[1]", b"\xac\xed\x00"] {
            assert!(read(bad).is_err());
        }
        let snapshotting =
            read(br#"{"offsets":[{"partition":{"server":"s"},"offset":{"lsn":1,"snapshot":"INITIAL"}}]}"#).unwrap();
        assert!(snapshotting[0].lsn().is_err());
        let back = Offset::at(None, "s", 9, 1);
        assert_eq!(read(&write(&back, Form::Connect)).unwrap(), [back]);
    }
}
