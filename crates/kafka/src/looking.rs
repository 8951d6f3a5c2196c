//! What the writer looks at beside its appends: who captures, and whether all topics are still those that they were.

use crate::lives;
use crate::whole;
use crate::writer::{Role, Writer, LOOK};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tidewire_change::Error;

/// Appends wait meanwhile.
const BRIEFLY: Duration = Duration::from_secs(1);

impl Writer {
    /// A topic that somebody deleted is noticed also while nothing is appended to it.
    pub(crate) fn look(&mut self) {
        match self.looking.as_ref().map(mpsc::Receiver::try_recv) {
            None | Some(Err(mpsc::TryRecvError::Empty)) => {}
            Some(seen) => {
                self.looking = None;
                match seen.unwrap_or_else(|_| Err(Error::bug("the thread that looks has stopped"))) {
                    Ok(found) => self.hold_against(found.as_ref()),
                    Err(error) => tracing::debug!(error = %error, "it isn't known whether another process captures"),
                }
            }
        }
        if self.role == Role::Notes || self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        if !self.config.exactly_once && self.looking.is_none() {
            let (config, (seen, looking)) = (self.config.clone(), mpsc::channel());
            let look = move || drop(seen.send(whole::state(&config)));
            let started = std::thread::Builder::new().name("kafka-look".to_string()).spawn(look);
            self.looking = started.ok().map(|_| looking);
        }
        let Some(session) = &self.session else { return };
        let names: Vec<&str> = session.named.keys().map(String::as_str).collect();
        match lives::ids(&self.admin, &names, &session.named, BRIEFLY) {
            Ok(ids) => {
                if session.named.iter().any(|(name, named)| named.is_gone(&ids, name)) {
                    // The next append begins with a look at all of it.
                    self.session = None;
                    if let Err(error) = self.session() {
                        tracing::warn!(error = %error, "a topic was deleted; it is tried again with what is captured next");
                    }
                }
            }
            Err(error) => tracing::debug!(error = %error, "the topics could not be looked at"),
        }
        self.looked = Instant::now();
    }
}
