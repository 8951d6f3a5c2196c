//! What happens when a loop fails: the error's kind decides (DESIGN §8). Adapters never retry; this is the one place.

use crate::capture::Capture;
use crate::collect::{origin, Limit};
use crate::config::PipelineConfig;
use crate::context::{Backoff, Stop};
use crate::dead_letter::DeadLetter;
use crate::deliver::{Deliver, Fault};
use crate::repairs::Repairs;
use crate::shared::{locked, Parked};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use tidewire_change::{Error, ErrorKind, Result};

pub(crate) struct Supervisor {
    pub backoff: Backoff,
    /// How often something malformed is tried.
    pub attempts: u32,
    pub repairs: Arc<Repairs>,
}

impl Supervisor {
    pub fn new(config: &PipelineConfig, repairs: Arc<Repairs>) -> Self {
        Supervisor { backoff: config.backoff, attempts: config.attempts.max(1), repairs }
    }

    /// Keeps capture running until the stop. An error is one that ends the whole pipeline.
    pub async fn capture(&self, mut capture: Capture, stop: Stop) -> Result<()> {
        let shared = capture.shared.clone();
        loop {
            let Err(error) = capture.run(&stop).await else { return Ok(()) };
            shared.capture.pulse.set_open(false);
            let in_a_row = shared.capture.pulse.failed(&error, shared.clock.now());
            match error.kind() {
                ErrorKind::Invalid | ErrorKind::Bug => return Err(error.context("capture")),
                // The source can't step over what it can't understand, and trying again shows the same.
                ErrorKind::Malformed if in_a_row >= self.attempts => return Err(error.context("capture")),
                ErrorKind::Lost if !capture.lost => {
                    let next = if shared.source.has_rows() {
                        "a new one is started, then all is compared"
                    } else {
                        "it goes on with what is there"
                    };
                    tracing::error!(error = %error, "the source's log is gone: {next}");
                    capture.lost = self.written_down(self.repairs.ask_all(&shared, error.message()).await);
                    shared.capture.recoveries.fetch_add(u64::from(capture.lost), Relaxed);
                }
                ErrorKind::Schema if shared.unwritable.has(&error) => {
                    let table = error.table().unwrap_or_default();
                    tracing::error!(error = %error, "the bus can't hold what was met in {table}: it is parked, the others go on");
                }
                _ => tracing::warn!(error = %error, in_a_row, "capture failed and is started again"),
            }
            if stop.is_requested() {
                return Ok(());
            }
            self.pause(&stop, in_a_row, shared.clock.random()).await;
        }
    }

    /// Keeps one sink's loop running until the stop. An error is one that ends the whole pipeline: a fault of ours, or a
    /// sink that can't be used from the start.
    pub async fn sink(&self, mut deliver: Deliver, stop: Stop) -> Result<()> {
        let (shared, state) = (deliver.shared.clone(), deliver.state.clone());
        let mut has_been_open = false;
        loop {
            let Err(error) = deliver.run(&stop).await else { return Ok(()) };
            has_been_open |= state.pulse.is_open();
            state.pulse.set_open(false);
            let in_a_row = state.pulse.failed(&error, shared.clock.now());
            let name = || format!("sink {}", state.name);
            let fault = deliver.fault.take();
            let again_at_once = match (error.kind(), error.table(), fault) {
                (ErrorKind::Bug, _, _) => return Err(error.context(name())),
                // It was right once: a password or a right that was changed holds back no other sink.
                (ErrorKind::Invalid, _, _) if has_been_open => {
                    tracing::error!(sink = state.name, error = %error, in_a_row, "the sink refuses us; it is tried again");
                    false
                }
                (ErrorKind::Invalid, _, _) => return Err(error.context(name())),
                (ErrorKind::Schema, Some(table), _) => {
                    let table = table.to_string();
                    let parked = self.park(&mut deliver, &error, table).await;
                    self.written_down(parked)
                }
                (ErrorKind::Malformed, _, Some(fault)) => match self.isolate(&mut deliver, &error, fault).await {
                    Ok(again_at_once) => again_at_once,
                    Err(error) => self.written_down(Err(error)),
                },
                (ErrorKind::Malformed, _, None) if in_a_row >= self.attempts => return Err(error.context(name())),
                (ErrorKind::Lost, _, _) => {
                    let next =
                        if shared.source.has_rows() { "all is compared" } else { "it goes on with what is there" };
                    tracing::error!(sink = state.name, error = %error, "the bus lacks what comes next: {next}");
                    let asked = self.ask_all(&mut deliver, error.message()).await;
                    deliver.from_earliest = self.written_down(asked);
                    false
                }
                _ => {
                    tracing::warn!(sink = state.name, error = %error, in_a_row, "the sink failed and is started again");
                    false
                }
            };
            if stop.is_requested() {
                return Ok(());
            }
            if !again_at_once {
                self.pause(&stop, in_a_row, shared.clock.random()).await;
            }
        }
    }

    /// All that the loop writes is to be compared.
    async fn ask_all(&self, deliver: &mut Deliver, why: &str) -> Result<()> {
        let (shared, name) = (&deliver.shared, &deliver.state.name);
        let Some(tables) = deliver.own_tables() else { return self.repairs.ask(shared, name, None, why).await };
        for table in tables {
            self.repairs.ask(shared, name, Some(&table.to_string()), why).await?;
        }
        Ok(())
    }

    /// A note about a fault must be durable before anything is skipped for it. If the bus doesn't take it just now, the
    /// fault comes again at the next turn and so does the note.
    fn written_down(&self, note: Result<()>) -> bool {
        if let Err(error) = &note {
            tracing::warn!(error = %error, "the bus did not take a note; it is tried again");
        }
        note.is_ok()
    }

    async fn pause(&self, stop: &Stop, in_a_row: u32, random: f64) {
        let pause = self.backoff.pause(in_a_row, random);
        let _ = stop.unless(tokio::time::sleep(pause)).await;
    }

    /// The table can't be followed: its changes are skipped in this sink from now on. That it has to be compared
    /// afterwards is written down before the first change is skipped.
    async fn park(&self, deliver: &mut Deliver, error: &Error, table: String) -> Result<()> {
        let (shared, state) = (&deliver.shared, &deliver.state);
        tracing::error!(sink = state.name, table, error = %error, "the table is parked, the others go on");
        self.repairs.ask(shared, &state.name, Some(&table), error.message()).await?;
        let parked = Parked {
            why: error.message().to_string(),
            hint: error.hint_text().map(str::to_string),
            since: shared.clock.now(),
        };
        locked(&state.parked).insert(table.clone(), parked);
        state.pulse.mended();
        deliver.rules.parked.insert(table);
        Ok(())
    }

    /// Closes in on the message that is malformed: the table is written in ever smaller parts until one message fails
    /// alone, as often as it may; then it goes to the dead letters. True: try again at once.
    async fn isolate(&self, deliver: &mut Deliver, error: &Error, fault: Fault) -> Result<bool> {
        let (shared, state) = (deliver.shared.clone(), deliver.state.clone());
        let message = match fault {
            Fault::Among { table, changes, until } => {
                deliver.rules.limits.insert(table, Limit { changes: (changes / 2).max(1), until });
                return Ok(true);
            }
            Fault::One(message) => message,
        };
        let now = shared.clock.now();
        let attempts = deliver.rules.attempts.entry(origin(&message)).or_default();
        if attempts.count == 0 {
            attempts.first = now;
        }
        attempts.count += 1;
        attempts.last = now;
        // Behind another of its table that nobody could read or take, one attempt tells enough: they hold up all others.
        let is_alone = !deliver.rules.skip.iter().any(|(place, _)| place.topic == message.topic);
        if is_alone && attempts.count < self.attempts {
            return Ok(false);
        }
        let letter = DeadLetter::of(&message, &state.name, error, *attempts);
        shared.bus.append(vec![letter.message(now)?], None).await?;
        tracing::error!(
            sink = state.name,
            topic = letter.topic,
            partition = letter.partition,
            offset = letter.offset,
            reason = letter.reason,
            "a message went to the dead letters"
        );
        state.dead_letters.fetch_add(1, Relaxed);
        deliver.rules.skip.insert(origin(&message));
        state.pulse.mended();
        Ok(true)
    }
}
