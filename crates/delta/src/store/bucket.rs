//! Objects of a store. Requests run on threads of their own; whoever asks waits for the answer, so no async
//! code may call this.

use super::failure::{as_io, may_pass, told, NO_PUT_IF_ABSENT};
use super::reach::{BucketConfig, Protocol};
use super::reader::Spooled;
use super::Listed;
use bytes::Bytes;
use object_store::path::Path;
use object_store::{
    Error as StoreError, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
    WriteMultipart,
};
use std::future::Future;
use std::io;
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tidewire_change::{Error, Result};
use tokio::runtime::Runtime;
use tokio::task::{JoinHandle, JoinSet};

/// Small files that are fetched at once.
pub(super) const AT_ONCE: usize = 16;

/// See `Store` for what each of these does.
#[derive(Clone)]
pub struct Bucket {
    shared: Arc<Shared>,
    prefix: String,
}

struct Shared {
    store: Arc<dyn ObjectStore>,
    config: BucketConfig,
}

/// One for all buckets, for as long as the process lives: whoever drops a store may be async code, which must not end threads.
fn runtime() -> Result<&'static Runtime> {
    static RUNTIME: OnceLock<io::Result<Runtime>> = OnceLock::new();
    let start = || {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        builder.worker_threads(2).thread_name("delta-store").enable_all().build()
    };
    RUNTIME.get_or_init(start).as_ref().map_err(|e| Error::unavailable(format!("threads can't be started: {e}")))
}

impl Bucket {
    /// Asks nothing of the store yet. Fails with `Invalid` when the settings make no sense.
    pub fn new(config: BucketConfig) -> Result<Bucket> {
        let store = config.client().map_err(|e| told(e, &config.url("")))?;
        let prefix = config.prefix.clone();
        Ok(Bucket { shared: Arc::new(Shared { store, config }), prefix })
    }

    pub fn below(&self, folder: &str) -> Bucket {
        Bucket { shared: self.shared.clone(), prefix: joined(&self.prefix, folder) }
    }

    pub fn place(&self, name: &str) -> String {
        self.shared.config.url(&joined(&self.prefix, name))
    }

    /// A local folder of this bucket's own.
    pub fn cache_dir(&self) -> &std::path::Path {
        &self.shared.config.cache_dir
    }

    fn key(&self, name: &str) -> Result<Path> {
        Path::parse(joined(&self.prefix, name))
            .map_err(|e| Error::invalid(format!("{}: no object can have this name", self.place(name))).caused_by(e))
    }

    /// Does it until it is done, or fails for good, or patience ends.
    fn ask<T, F: Future<Output = Result<T, StoreError>>>(&self, name: &str, ask: impl Fn() -> F) -> Result<T> {
        runtime()?.block_on(patiently(self.shared.config.patience, ask)).map_err(|e| told(e, &self.place(name)))
    }

    /// Besides writing one object: does the store refuse to write it a second time?
    pub fn check_writable(&self, name: &str) -> Result<()> {
        let name = format!("{name}.{}", uuid::Uuid::new_v4().simple());
        let first = self.put_if_absent(&name, Bytes::from_static(b"1"))?;
        let second = self.put_if_absent(&name, Bytes::from_static(b"2"));
        self.remove(&name)?;
        match (first, second?) {
            (true, false) => Ok(()),
            _ => Err(Error::invalid(format!(
                "{}: the store lets a second writer replace what a first one wrote: commits would be lost",
                self.place("")
            ))
            .hint(NO_PUT_IF_ABSENT)
            .caused_by(io::Error::from(io::ErrorKind::Unsupported))),
        }
    }

    /// The answer to a put may get lost. So what lies under the name says who wrote it: the same bytes are ours.
    pub fn put_if_absent(&self, name: &str, bytes: Bytes) -> Result<bool> {
        let (key, began) = (self.key(name)?, Instant::now());
        let mut pause = Duration::from_millis(50);
        loop {
            let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
            let put = self.shared.store.put_opts(&key, PutPayload::from(bytes.clone()), options);
            let failure = match runtime()?.block_on(put) {
                Ok(_) => return Ok(true),
                Err(e) if may_pass(&e) || matches!(e, StoreError::AlreadyExists { .. }) => e,
                Err(e) => return Err(told(e, &self.place(name))),
            };
            if let Some(held) = self.read(name)? {
                return Ok(held == bytes);
            }
            // Not there: it failed, or (409) somebody else is just putting it.
            if began.elapsed() >= self.shared.config.patience {
                return Err(match failure {
                    StoreError::AlreadyExists { .. } => {
                        Error::unavailable(format!("{}: somebody else puts it and doesn't end", self.place(name)))
                    }
                    failure => told(failure, &self.place(name)),
                });
            }
            tracing::info!("{}: put again, {}", self.place(name), told(failure, "the store"));
            std::thread::sleep(pause);
            pause = (pause * 2).min(Duration::from_secs(2));
        }
    }

    pub fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        let key = self.key(name)?;
        self.ask(name, || self.shared.store.put(&key, PutPayload::from(bytes.clone()))).map(drop)
    }

    /// Starts to put it; under a name that nobody else uses.
    pub(super) fn send(&self, name: &str, bytes: Bytes) -> Sending {
        let (store, name) = (self.clone(), name.to_string());
        Sending::start(async move {
            let key = store.key(&name)?;
            let put = || store.shared.store.put(&key, PutPayload::from(bytes.clone()));
            patiently(store.shared.config.patience, put).await.map(drop).map_err(|e| told(e, &store.place(&name)))
        })
    }

    /// Sends the next part of an object; waits when too many are on their way.
    pub(super) fn send_part(
        &self,
        name: &str,
        parts: &mut Option<WriteMultipart>,
        bytes: Bytes,
        at_once: usize,
    ) -> io::Result<()> {
        let key = as_io(self.key(name))?;
        let parts = match parts {
            Some(parts) => parts,
            None => parts.insert(WriteMultipart::new_with_chunk_size(
                as_io(self.ask(name, || self.shared.store.put_multipart(&key)))?,
                bytes.len(),
            )),
        };
        let sent = as_io(runtime())?.block_on(async {
            parts.wait_for_capacity(at_once).await?;
            parts.put(bytes);
            Ok(())
        });
        as_io(sent.map_err(|e| told(e, &self.place(name))))
    }

    pub fn open(&self, name: &str) -> Result<Option<Spooled>> {
        Spooled::open(self.clone(), name)
    }

    pub fn read(&self, name: &str) -> Result<Option<Bytes>> {
        let key = self.key(name)?;
        self.ask(name, || fetch(&*self.shared.store, &key))
    }

    pub fn read_at_once(&self, names: &[String]) -> Result<Vec<Option<Bytes>>> {
        let keys = names.iter().map(|name| self.key(name)).collect::<Result<Vec<_>>>()?;
        let mut reading = JoinSet::new();
        let runtime = runtime()?;
        for (i, key) in keys.into_iter().enumerate() {
            let shared = self.shared.clone();
            let read = async move { (i, patiently(shared.config.patience, || fetch(&*shared.store, &key)).await) };
            reading.spawn_on(read, runtime.handle());
        }
        let mut read = vec![None; names.len()];
        while let Some(joined) = runtime.block_on(reading.join_next()) {
            let (i, bytes) = joined.map_err(|e| Error::bug("a task that reads an object panicked").caused_by(e))?;
            read[i] = bytes.map_err(|e| told(e, &self.place(&names[i])))?;
        }
        Ok(read)
    }

    pub fn read_range(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>> {
        let invalid = |what: &str| Error::invalid(format!("{} {what}", self.place(name))).hint(super::RESTORE);
        // The range may come from a damaged log; the store gives what there is of it.
        let range = offset..offset.saturating_add(length as u64);
        match self.part(name, &GetRange::Bounded(range.clone())) {
            Ok(Some(part)) if part.range == range => Ok(part.bytes.into()),
            Ok(Some(_)) => Err(invalid("is cut short")),
            Ok(None) => Err(invalid("is gone")),
            Err(e) if e.to_string().contains("InvalidRange") => Err(invalid("is cut short")),
            Err(e) => Err(e),
        }
    }

    /// A part of an object: its place, its bytes, and the size of the whole. None when the object isn't there.
    pub(super) fn part(&self, name: &str, range: &GetRange) -> Result<Option<Part>> {
        let key = self.key(name)?;
        self.ask(name, || part(&*self.shared.store, &key, range.clone()))
    }

    /// The last bytes of an object, like `part`. Azure gives them only to those who know how long it is.
    pub(super) fn tail(&self, name: &str, length: u64) -> Result<Option<Part>> {
        if self.shared.config.protocol != Protocol::Azure {
            return self.part(name, &GetRange::Suffix(length));
        }
        let key = self.key(name)?;
        let size = self.ask(name, || async {
            match self.shared.store.head(&key).await {
                Ok(found) => Ok(Some(found.size)),
                Err(StoreError::NotFound { .. }) => Ok(None),
                Err(e) => Err(e),
            }
        })?;
        match size {
            None => Ok(None),
            Some(0) => Ok(Some(Part { range: 0..0, bytes: Bytes::new(), size: 0 })),
            Some(size) => self.part(name, &GetRange::Bounded(size.saturating_sub(length)..size)),
        }
    }

    /// Several parts, so many at once; `each` gets them as they come. Fails when the object isn't there.
    pub(super) fn parts(
        &self,
        name: &str,
        ranges: Vec<Range<u64>>,
        at_once: usize,
        mut each: impl FnMut(Part) -> Result<()>,
    ) -> Result<()> {
        let (key, runtime, mut reading) = (self.key(name)?, runtime()?, JoinSet::new());
        let mut ranges = ranges.into_iter();
        let gone = || Error::invalid(format!("{} is gone", self.place(name))).hint(super::RESTORE);
        loop {
            while reading.len() < at_once {
                let Some(range) = ranges.next() else { break };
                let (shared, key) = (self.shared.clone(), key.clone());
                let read = async move {
                    patiently(shared.config.patience, || part(&*shared.store, &key, GetRange::Bounded(range.clone())))
                        .await
                };
                reading.spawn_on(read, runtime.handle());
            }
            let Some(joined) = runtime.block_on(reading.join_next()) else { return Ok(()) };
            let read = joined.map_err(|e| Error::bug("a task that reads an object panicked").caused_by(e))?;
            each(read.map_err(|e| told(e, &self.place(name)))?.ok_or_else(gone)?)?;
        }
    }

    /// Files and folders.
    pub fn list(&self, folder: &str) -> Result<(Vec<Listed>, Vec<String>)> {
        let prefix = joined(&self.prefix, folder);
        let prefix = if prefix.is_empty() { None } else { Some(self.key(folder)?) };
        let listed = self.ask(folder, || self.shared.store.list_with_delimiter(prefix.as_ref()))?;
        let file = |object: object_store::ObjectMeta| {
            let (name, modified) = (object.location.filename()?.to_string(), object.last_modified.timestamp_micros());
            Some(Listed { name, size: object.size, modified })
        };
        let mut folders: Vec<String> =
            listed.common_prefixes.iter().filter_map(|p| p.filename().map(String::from)).collect();
        folders.sort_unstable();
        Ok((listed.objects.into_iter().filter_map(file).collect(), folders))
    }

    pub fn remove(&self, name: &str) -> Result<()> {
        let key = self.key(name)?;
        self.ask(name, || async {
            match self.shared.store.delete(&key).await {
                Err(StoreError::NotFound { .. }) => Ok(()),
                done => done,
            }
        })
    }
}

fn joined(folder: &str, name: &str) -> String {
    match (folder, name) {
        ("", name) => name.to_string(),
        (folder, "") => folder.to_string(),
        (folder, name) => format!("{folder}/{name}"),
    }
}

/// Bytes of an object.
pub(super) struct Part {
    pub range: Range<u64>,
    pub bytes: Bytes,
    /// Of the whole object.
    pub size: u64,
}

async fn part(store: &dyn ObjectStore, key: &Path, range: GetRange) -> Result<Option<Part>, StoreError> {
    match store.get_opts(key, GetOptions { range: Some(range), ..GetOptions::default() }).await {
        Ok(got) => {
            let (range, size) = (got.range.clone(), got.meta.size);
            Ok(Some(Part { range, bytes: got.bytes().await?, size }))
        }
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

async fn fetch(store: &dyn ObjectStore, key: &Path) -> Result<Option<Bytes>, StoreError> {
    match store.get(key).await {
        Ok(got) => got.bytes().await.map(Some),
        Err(StoreError::NotFound { .. }) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The client tries again by itself what can't have been done; here that is everything, since every request but a
/// put-if-absent may be done twice.
async fn patiently<T, F>(patience: Duration, ask: impl Fn() -> F) -> Result<T, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let (began, mut pause) = (Instant::now(), Duration::from_millis(50));
    loop {
        match ask().await {
            Err(e) if may_pass(&e) && began.elapsed() < patience => {
                tracing::debug!("asked again: {e}");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(Duration::from_secs(2));
            }
            done => return done,
        }
    }
}

/// An object on its way to the store.
pub struct Sending(Result<JoinHandle<Result<()>>>);

impl Sending {
    fn start(work: impl Future<Output = Result<()>> + Send + 'static) -> Sending {
        Sending(runtime().map(|runtime| runtime.spawn(work)))
    }

    pub(super) fn last_part(store: Bucket, name: String, mut parts: WriteMultipart, last: Bytes, size: u64) -> Sending {
        Sending::start(async move {
            if !last.is_empty() {
                parts.put(last);
            }
            let Err(error) = parts.finish().await else { return Ok(()) };
            // The answer may be lost and the object whole. Its name is its own.
            let key = store.key(&name)?;
            match store.shared.store.head(&key).await {
                Ok(there) if there.size == size => Ok(()),
                _ => Err(told(error, &store.place(&name))),
            }
        })
    }

    pub fn wait(self) -> Result<()> {
        let panicked = |e| Error::bug("a task that sends an object panicked").caused_by(e);
        runtime()?.block_on(self.0?).unwrap_or_else(|e| Err(panicked(e)))
    }
}
