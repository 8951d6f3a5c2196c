use crate::table::{Committed, Owned};
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use tidewire_change::{Error, Progress, Result};

/// Commits tables, so many at once, until one fails.
pub fn commit(
    tables: &mut BTreeMap<String, Owned>,
    progress: &Progress,
    at_once: usize,
) -> Vec<(String, Result<Option<Committed>>)> {
    let waiting = Mutex::new(tables.iter_mut());
    let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        let mut done = Vec::new();
        while let Some((topic, table)) = next() {
            let committed = table.commit(progress);
            let failed = committed.is_err();
            done.push((topic.clone(), committed));
            if failed {
                break;
            }
        }
        done
    };
    if at_once == 1 {
        return work();
    }
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        let panicked = |_| vec![(String::new(), Err(Error::bug("a thread that commits a table panicked")))];
        threads.into_iter().flat_map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    })
}
