//! The HTTP address of a pipeline that runs here, and the small file that tells other processes where it is.

use crate::config::Config;
use crate::secret::Secret;
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidewire_change::{Error, ErrorKind, Result};
use tidewire_pipeline::Running;
use tidewire_server::{Address, Client, Serving};
use tokio::task::JoinHandle;

/// `run.json` in the data folder, while the pipeline runs.
#[derive(Serialize, Deserialize)]
struct RunFile {
    pid: u32,
    http: SocketAddr,
}

pub struct Served {
    serving: Serving,
    file: PathBuf,
    /// Writes the file as soon as there is room.
    writing: Option<JoinHandle<()>>,
}

/// Between two tries to write the file on a disk that is full.
const AGAIN: Duration = Duration::from_secs(2);

/// Starts to answer. Only whoever owns the data folder may call it.
pub async fn serve(running: Running, config: &Config) -> Result<Served> {
    let at = Address { address: config.http, token: token(config) };
    let serving = tidewire_server::serve(running, at).await?;
    let file = path(&config.data_dir);
    let content = RunFile { pid: std::process::id(), http: serving.address() };
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

/// The pipeline of this configuration that runs now, in another process. `None`: there is none.
pub fn find(config: &Config) -> Option<Client> {
    let text = std::fs::read(path(&config.data_dir)).ok()?;
    let run: RunFile = serde_json::from_slice(&text).ok()?;
    let is_there = Path::new("/proc").join(run.pid.to_string()).exists();
    is_there.then(|| Client::new(run.http, token(config)))
}

fn path(data_dir: &Path) -> PathBuf {
    data_dir.join("run.json")
}

fn token(config: &Config) -> Option<String> {
    config.token.as_ref().map(Secret::reveal).map(str::to_string)
}
