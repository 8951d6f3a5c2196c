//! Threads whose work may take its time: commits go first.

use std::thread::JoinHandle;
use tidewire_change::{Error, Result};

/// How much such a thread gives way to others (`nice`): beside one that is busy it gets a quarter of a core. Not less, since
/// commits wait for merges when these fall behind.
#[cfg(target_os = "linux")]
const NICE: i32 = 5;

/// Starts a thread that gets what the others leave of the processors.
pub fn start<T: Send + 'static>(name: &str, work: impl FnOnce() -> T + Send + 'static) -> Result<JoinHandle<T>> {
    let lowered = move || {
        give_way();
        work()
    };
    start_at_once(name, lowered)
}

/// Starts a thread that gives way to nobody: others wait for what it does.
pub fn start_at_once<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>> {
    std::thread::Builder::new().name(name.into()).spawn(work).map_err(|e| Error::io(e, "a thread can't be started"))
}

/// Linux gives each thread a priority of its own. Where that is not so, or not allowed, the work is done all the same.
fn give_way() {
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{getpriority_process, setpriority_process};
        let thread = Some(rustix::thread::gettid());
        let _ = getpriority_process(thread).and_then(|nice| setpriority_process(thread, nice + NICE));
    }
}
