//! Where a Delta sink's tables lie.

use super::beside;
use super::section::Section;
use crate::catalog;
use crate::secret::Secret;
use std::path::{Path, PathBuf};
use tidewire_change::Result;

#[derive(Clone, Debug, PartialEq)]
pub enum Lake {
    Folder(PathBuf),
    Bucket(Box<Bucket>),
}

/// A bucket of an object store. What is `None` comes from the environment or the machine's role.
#[derive(Clone, Debug, PartialEq)]
pub struct Bucket {
    /// `s3://bucket/prefix`, `gs://bucket/prefix` or `abfss://container@account.dfs.core.windows.net/prefix`, checked.
    pub url: String,
    /// `None`: the provider's own, or the environment's.
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// Access key and its secret.
    pub keys: Option<(Secret, Secret)>,
    pub account_key: Option<Secret>,
    pub service_account: Option<PathBuf>,
}

/// Settings of buckets: for which paths each is.
const SETTINGS: [(&str, &[&str]); 6] = [
    ("endpoint", &["s3://", "gs://", "abfss://"]),
    ("region", &["s3://"]),
    ("access_key_id", &["s3://"]),
    ("secret_access_key", &["s3://"]),
    ("account_key", &["abfss://"]),
    ("service_account", &["gs://"]),
];

pub fn place(section: &Section, folder: &Path) -> Result<Lake> {
    let path = section.given_text("path")?;
    for (setting, schemes) in SETTINGS {
        if section.text(setting)?.is_some() && !schemes.iter().any(|scheme| path.starts_with(scheme)) {
            let what = format!("is only for a `path` that begins with {}", schemes.join(", "));
            return Err(section.bad(setting, &what));
        }
    }
    if !path.contains("://") {
        return Ok(Lake::Folder(beside(folder, &path)));
    }
    if !catalog::is_bucket(&path) {
        let places = "s3://bucket/prefix, gs://bucket/prefix or abfss://container@account.dfs.core.windows.net/prefix";
        return Err(section.bad("path", &format!("must be a folder, {places}")));
    }
    let endpoint = section.text("endpoint")?;
    if endpoint.as_ref().is_some_and(|e| !e.starts_with("http://") && !e.starts_with("https://")) {
        return Err(section.bad("endpoint", "must begin with https:// or http://"));
    }
    let keys = match (section.text("access_key_id")?, section.text("secret_access_key")?) {
        (Some(id), Some(secret)) => Some((Secret::new(id), Secret::new(secret))),
        (None, None) => None,
        (Some(_), None) => return Err(section.bad("access_key_id", "needs `secret_access_key`, too")),
        (None, Some(_)) => return Err(section.bad("secret_access_key", "needs `access_key_id`, too")),
    };
    Ok(Lake::Bucket(Box::new(Bucket {
        url: path,
        endpoint,
        region: section.text("region")?,
        keys,
        account_key: section.text("account_key")?.map(Secret::new),
        service_account: section.text("service_account")?.map(|file| beside(folder, &file)),
    })))
}
