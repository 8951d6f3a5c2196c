//! Threads whose work may take its time: commits go first.

use std::thread::JoinHandle;
use tidewire_change::{Error, Result};

/// How much such a thread gives way to others (`nice`): with both cores busy about a tenth of one is left to it.
#[cfg(target_os = "linux")]
const NICE: i32 = 10;

/// Starts a thread that gets what the others leave of the processors.
pub fn start<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    let lowered = move || {
        give_way();
        work()
    };
    std::thread::Builder::new().name(name.into()).spawn(lowered).map_err(|e| Error::io(e, "a thread can't be started"))
}

/// Linux gives each thread a priority of its own. Where that is not so, or not allowed, the work is done all the same.
fn give_way() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE);
}
