//! The HTTP address of a pipeline that runs here, and the small file that tells other processes where it is.

use crate::catalog::Part;
use crate::config::{Config, SinkConfig};
use crate::secret::Secret;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind as ErrorKindOfFile;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidewire_change::{Error, ErrorKind, Result};
use tidewire_pipeline::Running;
use tidewire_server::{Address, Bound, Client, Serving};
use tokio::task::JoinHandle;

/// `run.json` in the data folder while the pipeline runs; `capture-PID.json` and `deliver-PID.json` for its halves.
#[derive(Serialize, Deserialize)]
struct RunFile {
    pid: u32,
    http: SocketAddr,
    #[serde(default)]
    captures: bool,
    /// Those that it writes.
    #[serde(default)]
    sinks: Vec<String>,
}

pub struct Served {
    serving: Serving,
    file: PathBuf,
    /// Writes the file as soon as there is room.
    writing: Option<JoinHandle<()>>,
}

/// Between two tries to write the file on a disk that is full.
const AGAIN: Duration = Duration::from_secs(2);

/// Takes the configuration's address, before anything else is begun that would disturb a pipeline at work.
pub async fn bind(config: &Config) -> Result<Bound> {
    tidewire_server::bind(Address { address: config.http, token: token(config) }).await
}

/// Starts to answer. Only whoever owns the data folder may call it.
pub fn serve(running: Running, bound: Bound, config: &Config, part: Part) -> Result<Served> {
    let serving = tidewire_server::serve(running, bound);
    let pid = std::process::id();
    let file = config.data_dir.join(match part {
        Part::Whole => "run.json".to_string(),
        Part::Capture => format!("capture-{pid}.json"),
        Part::Deliver => format!("deliver-{pid}.json"),
    });
    let sinks = match part {
        Part::Capture => Vec::new(),
        Part::Whole | Part::Deliver => config.sinks.iter().map(|sink| sink.name.clone()).collect(),
    };
    let content = RunFile { pid, http: serving.address(), captures: part != Part::Deliver, sinks };
    let json = serde_json::to_vec(&content).map_err(|e| Error::bug("run.json has no JSON form").caused_by(e))?;
    let write = move |file: &Path| std::fs::write(file, &json).map_err(|e| Error::io(e, file.display()));
    let writing = match write(&file) {
        Ok(()) => None,
        // The disk is full: what the pipeline does about that it does without other processes knowing of it.
        Err(error) if error.kind() == ErrorKind::Unavailable => {
            tracing::warn!(%error, "other commands don't find this process yet");
            let file = file.clone();
            Some(tokio::spawn(async move {
                while write(&file).is_err() {
                    tokio::time::sleep(AGAIN).await;
                }
            }))
        }
        Err(error) => return Err(error),
    };
    Ok(Served { serving, file, writing })
}

impl Served {
    pub async fn stop(self) {
        if let Some(writing) = self.writing {
            writing.abort();
        }
        // A file that stays behind is found out by its process, which is gone.
        let _ = std::fs::remove_file(&self.file);
        self.serving.stop().await;
    }
}

/// The pipeline of this configuration that runs now, in another process. Of several, each with a part: one that delivers, since it
/// knows of the source, too. `None`: there is none.
pub fn find(config: &Config) -> Result<Option<Client>> {
    let runs = runs(config)?;
    let best = runs.iter().max_by_key(|run| (run.sinks.len(), run.captures));
    Ok(best.map(|run| Client::new(run.http, token(config))))
}

/// The processes here that write these sinks. None: nothing of the pipeline runs here. `Unavailable`: some of it does, but not all
/// that is needed.
pub fn writers(config: &Config, sinks: &[&SinkConfig]) -> Result<Option<Vec<(String, Client)>>> {
    let runs = runs(config)?;
    if runs.is_empty() {
        return Ok(None);
    }
    let one = |sink: &&SinkConfig| {
        let run = runs.iter().find(|run| run.sinks.contains(&sink.name)).ok_or_else(|| {
            Error::unavailable(format!("no process that delivers to the sink `{}` runs here", sink.name))
                .hint("ask with the configuration of the process that does (its data_dir), or start `tidewire deliver` for it")
        })?;
        Ok((sink.name.clone(), Client::new(run.http, token(config))))
    };
    sinks.iter().map(one).collect::<Result<_>>().map(Some)
}

/// The sinks that processes here write.
pub fn written(config: &Config) -> Result<Vec<String>> {
    Ok(runs(config)?.into_iter().flat_map(|run| run.sinks).collect())
}

/// Refuses to touch sinks that a process here writes.
pub fn are_free(config: &Config, sinks: &[SinkConfig]) -> Result<()> {
    for run in runs(config)? {
        if let Some(sink) = sinks.iter().find(|sink| run.sinks.contains(&sink.name)) {
            let message = format!("process {} writes the sink `{}` just now", run.pid, sink.name);
            return Err(Error::unavailable(message).hint("stop it for as long as this takes"));
        }
    }
    Ok(())
}

/// None: nothing runs here. An error: whether something does can't be seen (the folder is another user's).
fn runs(config: &Config) -> Result<Vec<RunFile>> {
    let seen = |error: std::io::Error, path: &Path| match error.kind() {
        ErrorKindOfFile::NotFound => Ok(Vec::new()),
        _ => Err(Error::io(error, path.display())),
    };
    let entries = match std::fs::read_dir(&config.data_dir) {
        Ok(entries) => entries,
        Err(error) => return seen(error, &config.data_dir).map(|_: Vec<u8>| Vec::new()),
    };
    let is_one = |name: &str| name == "run.json" || name.starts_with("capture-") || name.starts_with("deliver-");
    let files = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_one));
    let mut runs = Vec::new();
    for path in files.map(|entry| entry.path()) {
        // It may have ended a moment ago, or its file isn't whole yet.
        let json = std::fs::read(&path).or_else(|error| seen(error, &path))?;
        runs.extend(serde_json::from_slice::<RunFile>(&json).ok().filter(|run| is_alive(run.pid)));
    }
    Ok(runs)
}

/// A process that has ended and that nobody has asked about yet is still listed, as `Z`.
fn is_alive(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('Z')))
}

fn token(config: &Config) -> Option<String> {
    config.token.as_ref().map(Secret::reveal).map(str::to_string)
}
