//! The actions of the Delta log, as PROTOCOL.md names them ("Actions").

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use tidewire_change::{Error, Result};

/// One line of a commit: exactly one of the fields is there. Kinds that we don't know are skipped when read.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Action {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<Protocol>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub meta_data: Option<Metadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub txn: Option<Txn>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub domain_metadata: Option<DomainMetadata>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remove: Option<Remove>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub add: Option<Add>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cdc: Option<Cdc>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commit_info: Option<serde_json::Value>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Protocol {
    pub min_reader_version: u32,
    pub min_writer_version: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reader_features: Option<Vec<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writer_features: Option<Vec<String>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Metadata {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub format: Format,
    pub schema_string: String,
    #[serde(default)]
    pub partition_columns: Vec<String>,
    #[serde(default)]
    pub configuration: BTreeMap<String, Option<String>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created_time: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Format {
    pub provider: String,
    #[serde(default)]
    pub options: BTreeMap<String, Option<String>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Txn {
    pub app_id: String,
    pub version: i64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_updated: Option<i64>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DomainMetadata {
    pub domain: String,
    pub configuration: String,
    pub removed: bool,
}

/// A deletion vector's place: PROTOCOL.md, "Deletion Vectors".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct VectorRef {
    pub storage_type: String,
    pub path_or_inline_dv: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<i32>,
    pub size_in_bytes: i32,
    pub cardinality: i64,
}

impl VectorRef {
    /// What tells one vector of a file from another.
    pub fn unique_id(&self) -> String {
        match self.offset {
            Some(offset) => format!("{}{}@{offset}", self.storage_type, self.path_or_inline_dv),
            None => format!("{}{}", self.storage_type, self.path_or_inline_dv),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Add {
    pub path: Arc<str>,
    #[serde(default)]
    pub partition_values: BTreeMap<String, Option<String>>,
    pub size: i64,
    /// Milliseconds since 1970.
    pub modification_time: i64,
    pub data_change: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stats: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_vector: Option<VectorRef>,
    /// Of our own: see `with_deleted` and `with_bucket`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, Option<String>>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Remove {
    pub path: Arc<str>,
    /// Milliseconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<i64>,
    pub data_change: bool,
    #[serde(default)]
    pub extended_file_metadata: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition_values: Option<BTreeMap<String, Option<String>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_vector: Option<VectorRef>,
}

/// A file of the change data feed: what the commit changed, for those who ask for changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cdc {
    pub path: Arc<str>,
    #[serde(default)]
    pub partition_values: BTreeMap<String, Option<String>>,
    pub size: i64,
    pub data_change: bool,
}

impl Action {
    /// Is it anything at all?
    pub fn says_something(&self) -> bool {
        self.protocol.is_some()
            || self.meta_data.is_some()
            || self.txn.is_some()
            || self.domain_metadata.is_some()
            || self.remove.is_some()
            || self.add.is_some()
            || self.cdc.is_some()
            || self.commit_info.is_some()
    }

    /// A file's name comes from whoever can write the log: it must lie in the table's folder.
    pub fn check_paths(&self, place: &str) -> Result<()> {
        let files = [
            self.add.as_ref().map(|a| (&a.path, &a.deletion_vector)),
            self.remove.as_ref().map(|r| (&r.path, &r.deletion_vector)),
        ];
        for (path, vector) in files.into_iter().flatten() {
            let vector = vector.as_ref().filter(|v| v.storage_type != "i").map(|v| v.path_or_inline_dv.as_str());
            // The last 20 characters of a vector's name are Z85, which has slashes and colons of its own.
            let before_name = |v: &str| v.char_indices().rev().nth(19).map(|(at, _)| v[..at].to_string());
            if leaves_the_folder(path) || vector.and_then(before_name).is_some_and(|v| leaves_the_folder(&v)) {
                return Err(Error::invalid(format!("{place} names a file outside of the table's folder"))
                    .hint("tables that share files with others (shallow clones) can't be followed; point the sink at a path of its own"));
            }
        }
        Ok(())
    }
}

/// Absolute, with a scheme, or upwards; also when it is decoded as a URL.
fn leaves_the_folder(path: &str) -> bool {
    let mut decoded = path.to_ascii_lowercase();
    for (code, sign) in [("%2e", "."), ("%2f", "/"), ("%5c", "\\"), ("%3a", ":")] {
        decoded = decoded.replace(code, sign);
    }
    let scheme = |text: &str| text.chars().all(|c| c.is_ascii_alphanumeric() || "+-.".contains(c));
    let has_scheme = decoded.split('/').next().and_then(|first| first.split_once(':')).is_some_and(|(s, _)| scheme(s));
    has_scheme || decoded.starts_with('/') || decoded.contains('\\') || decoded.split('/').any(|part| part == "..")
}

/// How many rows of a file are kept as deleted ones.
const DELETED: &str = "tidewire.deleted";
/// The bucket of all its rows' keys.
const BUCKET: &str = "tidewire.bucket";

impl Add {
    pub fn with_deleted(mut self, rows: u64) -> Add {
        if rows > 0 {
            self.tags.get_or_insert_default().insert(DELETED.into(), Some(rows.to_string()));
        }
        self
    }

    /// Tables of one bucket say nothing of it.
    pub fn with_bucket(mut self, bucket: Option<u32>) -> Add {
        if let Some(bucket) = bucket {
            self.tags.get_or_insert_default().insert(BUCKET.into(), Some(bucket.to_string()));
        }
        self
    }

    pub fn bucket(&self) -> Option<u32> {
        self.tags.as_ref()?.get(BUCKET)?.as_deref()?.parse().ok()
    }

    /// Rows that are kept as deleted ones; struck ones may be among them.
    pub fn deleted(&self) -> u64 {
        let tag = self.tags.as_ref().and_then(|tags| tags.get(DELETED)?.as_deref());
        tag.and_then(|rows| rows.parse().ok()).unwrap_or(0)
    }

    /// Rows that aren't struck; none when the log doesn't say.
    pub fn live_rows(&self) -> Option<u64> {
        let stats: serde_json::Value = serde_json::from_str(self.stats.as_deref()?).ok()?;
        let struck = self.deletion_vector.as_ref().map_or(0, |v| v.cardinality.max(0) as u64);
        stats.get("numRecords")?.as_u64()?.checked_sub(struck)
    }

    pub fn remove(&self, deletion_timestamp: i64, data_change: bool) -> Remove {
        Remove {
            path: self.path.clone(),
            deletion_timestamp: Some(deletion_timestamp),
            data_change,
            extended_file_metadata: true,
            partition_values: Some(self.partition_values.clone()),
            size: Some(self.size),
            deletion_vector: self.deletion_vector.clone(),
        }
    }
}

macro_rules! from {
    ($field:ident, $kind:ty) => {
        impl From<$kind> for Action {
            fn from(value: $kind) -> Action {
                Action { $field: Some(value), ..Action::default() }
            }
        }
    };
}
from!(protocol, Protocol);
from!(meta_data, Metadata);
from!(txn, Txn);
from!(domain_metadata, DomainMetadata);
from!(remove, Remove);
from!(add, Add);
from!(cdc, Cdc);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_leaves_the_tables_folder_is_refused() {
        let bad = [
            "/etc/passwd",
            "../x.parquet",
            "a/../../x",
            "s3://b/x",
            "file:/x",
            "%2e%2e/x",
            "a/%2E./x",
            "..\\x",
            "%2Fetc/x",
            "C:/x",
        ];
        for path in bad {
            assert!(leaves_the_folder(path), "{path}");
            for kind in ["add", "remove"] {
                let line = format!(
                    "{{\"{kind}\":{{\"path\":{},\"size\":1,\"modificationTime\":1,\"dataChange\":true}}}}",
                    serde_json::Value::from(path)
                );
                let action: Action = serde_json::from_str(&line).unwrap();
                assert!(action.check_paths("0.json").is_err(), "{line}");
            }
        }
        for path in ["tidewire-1.parquet", "part=a:b/x", "day=2026-01-01/a..b.parquet", "a%20b/x"] {
            assert!(!leaves_the_folder(path), "{path}");
        }
        let vector = |text: &str| {
            let line = serde_json::json!({"remove": {"path": "x", "dataChange": true,
                "deletionVector": {"storageType": "u", "pathOrInlineDv": text, "sizeInBytes": 1, "cardinality": 1}}});
            serde_json::from_value::<Action>(line).unwrap().check_paths("0.json")
        };
        assert!(vector("/b:/aqEH.-t@S}K{vb[*").is_ok());
        assert!(vector("ab/b:/aqEH.-t@S}K{vb[*").is_ok());
        assert!(vector("../b:/aqEH.-t@S}K{vb[*").is_err());
    }
}
