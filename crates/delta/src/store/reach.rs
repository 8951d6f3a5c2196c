//! Which store a bucket is in, and how it is reached.

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::{BackoffConfig, ClientOptions, Error as StoreError, ObjectStore, RetryConfig};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Behind the account of an Azure place.
const AZURE_HOST: &str = ".dfs.core.windows.net";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Amazon's, and what speaks its protocol.
    S3,
    Google,
    Azure,
}

/// Which bucket, and how it is reached. What isn't said comes from the environment, by the names that each provider's own
/// tools use (`AWS_ACCESS_KEY_ID`, `AWS_REGION`, `GOOGLE_APPLICATION_CREDENTIALS`, `AZURE_CLIENT_ID`, …), or from the machine's
/// role.
#[derive(Clone)]
pub struct BucketConfig {
    pub protocol: Protocol,
    /// Of Azure the container.
    pub bucket: String,
    /// Of Azure alone; else empty.
    pub account: String,
    /// Names of all objects begin so; may be empty.
    pub prefix: String,
    /// Of a store that isn't the provider's own: `https://minio.example:9000`.
    pub endpoint: Option<String>,
    /// Of S3 alone.
    pub region: Option<String>,
    /// Of S3: access key and its secret.
    pub keys: Option<(String, String)>,
    /// Of Azure: the account's key.
    pub account_key: Option<String>,
    /// Of Google: the file with a service account's key.
    pub service_account: Option<PathBuf>,
    /// A local folder for indexes, and for parts of files while they are read.
    pub cache_dir: PathBuf,
    /// How long an answer may take.
    pub timeout: Duration,
    /// How long a request that fails is tried again.
    pub patience: Duration,
}

impl BucketConfig {
    /// `url`: `s3://bucket/prefix`, `gs://bucket/prefix` or `abfss://container@account.dfs.core.windows.net/prefix`. None when
    /// it isn't that.
    pub fn parse(url: &str, cache_dir: impl Into<PathBuf>) -> Option<BucketConfig> {
        let (scheme, rest) = url.split_once("://")?;
        let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let (protocol, bucket, account) = match scheme {
            "s3" => (Protocol::S3, host, ""),
            "gs" => (Protocol::Google, host, ""),
            "abfss" => {
                let (container, account) = host.strip_suffix(AZURE_HOST)?.split_once('@')?;
                let is_account = !account.is_empty() && account.chars().all(|c| c.is_ascii_alphanumeric());
                (Protocol::Azure, container, is_account.then_some(account)?)
            }
            _ => return None,
        };
        let legal = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        let prefix = prefix.trim_matches('/');
        let is_whole = prefix.is_empty() || prefix.split('/').all(|part| !matches!(part, "" | "." | ".."));
        (!bucket.is_empty() && bucket.chars().all(legal) && is_whole).then(|| BucketConfig {
            protocol,
            bucket: bucket.into(),
            account: account.into(),
            prefix: prefix.into(),
            endpoint: None,
            region: None,
            keys: None,
            account_key: None,
            service_account: None,
            cache_dir: cache_dir.into(),
            timeout: Duration::from_secs(30),
            patience: Duration::from_secs(30),
        })
    }

    /// The URL of what lies below a name, as other engines take it.
    pub(super) fn url(&self, name: &str) -> String {
        let BucketConfig { bucket, account, .. } = self;
        match self.protocol {
            Protocol::S3 => format!("s3://{bucket}/{name}"),
            Protocol::Google => format!("gs://{bucket}/{name}"),
            Protocol::Azure => format!("abfss://{bucket}@{account}{AZURE_HOST}/{name}"),
        }
    }

    /// Asks nothing of the store yet.
    pub(super) fn client(&self) -> Result<Arc<dyn ObjectStore>, StoreError> {
        // Whoever was first has chosen: it is always this one.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let retry = RetryConfig {
            backoff: BackoffConfig {
                init_backoff: Duration::from_millis(100),
                max_backoff: Duration::from_secs(5),
                base: 2.0,
            },
            max_retries: 10,
            retry_timeout: self.patience,
        };
        let options = ClientOptions::new()
            .with_timeout(self.timeout)
            .with_connect_timeout(self.timeout.min(Duration::from_secs(5)))
            .with_allow_http(true);
        Ok(match self.protocol {
            Protocol::S3 => {
                let mut builder = AmazonS3Builder::from_env().with_bucket_name(&self.bucket);
                builder = given(builder, &self.endpoint, AmazonS3Builder::with_endpoint);
                builder = given(builder, &self.region, AmazonS3Builder::with_region);
                if let Some((id, secret)) = &self.keys {
                    builder = builder.with_access_key_id(id).with_secret_access_key(secret);
                }
                Arc::new(builder.with_retry(retry).with_client_options(options).build()?)
            }
            Protocol::Google => {
                let mut builder = GoogleCloudStorageBuilder::from_env().with_bucket_name(&self.bucket);
                builder = given(builder, &self.endpoint, |b, endpoint| b.with_base_url(&endpoint));
                if let Some(file) = &self.service_account {
                    builder = builder.with_service_account_path(file.display().to_string());
                }
                Arc::new(builder.with_retry(retry).with_client_options(options).build()?)
            }
            Protocol::Azure => {
                let mut builder =
                    MicrosoftAzureBuilder::from_env().with_account(&self.account).with_container_name(&self.bucket);
                builder = given(builder, &self.endpoint, MicrosoftAzureBuilder::with_endpoint);
                builder = given(builder, &self.account_key, MicrosoftAzureBuilder::with_access_key);
                Arc::new(builder.with_retry(retry).with_client_options(options).build()?)
            }
        })
    }
}

fn given<B>(builder: B, value: &Option<String>, set: impl FnOnce(B, String) -> B) -> B {
    match value {
        Some(value) => set(builder, value.clone()),
        None => builder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_in_each_store_are_told_apart_and_their_urls_are_what_was_given() {
        let places = [
            ("s3://b.x/some/where", Protocol::S3, "b.x", ""),
            ("gs://b_x/some/where", Protocol::Google, "b_x", ""),
            ("abfss://c@acc.dfs.core.windows.net/some/where", Protocol::Azure, "c", "acc"),
        ];
        for (url, protocol, bucket, account) in places {
            let at = BucketConfig::parse(url, "").unwrap();
            assert_eq!((at.protocol, at.bucket.as_str(), at.account.as_str()), (protocol, bucket, account));
            assert_eq!((at.prefix.as_str(), at.url(&at.prefix).as_str()), ("some/where", url));
        }
        let wrong = [
            "s3://",
            "s3:///a",
            "s3://b/../a",
            "s3://b/a//c",
            "http://b/a",
            "/a/b",
            "abfss://c@a.example/x",
            "abfss://c/x",
            "abfss://c@.dfs.core.windows.net",
            "abfss://c@x@acc.dfs.core.windows.net",
            "gs://b b/a",
            "S3://b",
        ];
        for url in wrong {
            assert!(BucketConfig::parse(url, "").is_none(), "{url}");
        }
    }

    #[test]
    fn settings_of_each_store_make_a_client_and_senseless_ones_are_refused() {
        let mut s3 = BucketConfig::parse("s3://b/a", "").unwrap();
        (s3.endpoint, s3.region) = (Some("http://127.0.0.1:1".into()), Some("eu".into()));
        s3.keys = Some(("id".into(), "secret".into()));
        assert!(s3.client().is_ok());
        let mut azure = BucketConfig::parse("abfss://c@acc.dfs.core.windows.net/a", "").unwrap();
        azure.account_key = Some("a2V5".into());
        assert!(azure.client().is_ok());
        azure.account_key = Some("no base64!".into());
        assert!(azure.client().is_err());
        let mut google = BucketConfig::parse("gs://b/a", "").unwrap();
        google.service_account = Some("/nowhere/key.json".into());
        assert!(google.client().is_err());
    }
}
