//! The side of a process that delivers: its source is in another process.

use super::{say, Answer, Ask, Said, Standing, CONTROL};
use crate::context::{Clock, Stop};
use crate::repairs::Repairs;
use crate::shared::{locked, Shared};
use crate::wire::ReadRequest;
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use tidewire_change::{Checkpoint, Error, Position, Result};
use tidewire_connector::{BoxFuture, Selection, ServerFacts, SourceHandle, SourceStatus};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Whoever captures and wasn't heard for so long isn't there.
const SILENT: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_secs(1);
/// An ask is repeated after this, and given up after so many times.
const AGAIN: Duration = Duration::from_secs(2);
const TIMES: u32 = 10;
/// Whoever captures may take so long to open its source: another one may still hold it.
const OPENING: Duration = Duration::from_secs(60);

/// The source of another process.
pub(crate) struct Far {
    /// Looks at the source's server from here.
    near: Arc<dyn SourceHandle>,
    /// Set right after it was made; weak, since it holds us.
    shared: OnceLock<Weak<Shared>>,
    heard: Mutex<Option<(Standing, Instant)>>,
    waiting: Mutex<Waiting>,
}

struct Waiting {
    /// Tells our asks from those of others.
    name: String,
    asked: u64,
    answers: HashMap<String, oneshot::Sender<Answer>>,
}

impl Far {
    pub fn new(near: Arc<dyn SourceHandle>, clock: &dyn Clock) -> Far {
        let name = format!("{:x}-{:x}", clock.now(), (clock.random() * (1u64 << 48) as f64) as u64);
        let waiting = Waiting { name, asked: 0, answers: HashMap::new() };
        Far { near, shared: OnceLock::new(), heard: Mutex::default(), waiting: Mutex::new(waiting) }
    }

    pub fn belongs_to(&self, shared: &Arc<Shared>) {
        let _ = self.shared.set(Arc::downgrade(shared));
    }

    /// What was heard last; none: nobody captures.
    fn standing(&self) -> Option<Standing> {
        let heard = locked(&self.heard);
        heard.as_ref().filter(|(_, at)| at.elapsed() < SILENT).map(|(standing, _)| standing.clone())
    }

    async fn ask(&self, what: Ask) -> Result<Answer> {
        let shared = self.shared.get().and_then(Weak::upgrade).ok_or_else(|| Error::bug("nobody can be asked yet"))?;
        let id = {
            let mut waiting = locked(&self.waiting);
            waiting.asked += 1;
            format!("{}-{}", waiting.name, waiting.asked)
        };
        let (began, mut unheard) = (Instant::now(), 0);
        let error = loop {
            let (answered, answer) = oneshot::channel();
            locked(&self.waiting).answers.insert(id.clone(), answered);
            say(&shared, &Said::Ask { id: id.clone(), what: what.clone() }).await?;
            match tokio::time::timeout(AGAIN, answer).await {
                Ok(Ok(Answer::NotYet)) if began.elapsed() > OPENING => break self.not_open(),
                Ok(Ok(Answer::NotYet)) => {
                    unheard = 0;
                    tokio::time::sleep(LOOK).await;
                }
                Ok(Ok(Answer::Failed(error))) => return Err(error.into()),
                Ok(Ok(answer)) => return Ok(answer),
                // Nobody has heard it, or the answer is lost.
                Ok(Err(_)) | Err(_) if unheard + 1 < TIMES => unheard += 1,
                Ok(Err(_)) | Err(_) => break nobody(),
            }
        };
        locked(&self.waiting).answers.remove(&id);
        Err(error)
    }

    fn not_open(&self) -> Error {
        let waiting = self.standing().and_then(|standing| standing.source.waiting);
        let why = waiting.map(|why| format!(": {why}")).unwrap_or_default();
        Error::unavailable(format!("the process that captures is heard on the bus, but its source isn't open{why}"))
            .hint("see what that process says: `tidewire status` beside it, or its log")
    }
}

fn nobody() -> Error {
    Error::unavailable("no process that captures is heard on the bus").hint("is `tidewire capture` running?")
}

impl SourceHandle for Far {
    fn read(&self, selection: Selection) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.ask(Ask::Read(ReadRequest::from(&selection))).await.map(drop) })
    }

    fn mark(&self) -> BoxFuture<'_, Result<Position>> {
        Box::pin(async {
            match self.ask(Ask::Mark).await? {
                Answer::Marked(position) => Ok(position),
                _ => Err(Error::bug("a mark was asked for, and something else was answered")),
            }
        })
    }

    fn status(&self) -> SourceStatus {
        match self.standing() {
            Some(standing) => standing.source,
            None => {
                let last = locked(&self.heard).as_ref().map(|(standing, _)| standing.source.clone());
                let waiting = Some("no process that captures is heard on the bus".to_string());
                SourceStatus { connected: false, is_settled: false, waiting, ..last.unwrap_or_default() }
            }
        }
    }

    fn has_rows(&self) -> bool {
        self.near.has_rows()
    }

    fn facts(&self) -> BoxFuture<'_, Result<ServerFacts>> {
        self.near.facts()
    }
}

/// Takes in what the process that captures says, until the stop. What fails is tried again.
pub(crate) async fn listen(far: Arc<Far>, shared: Arc<Shared>, repairs: Arc<Repairs>, stop: Stop) -> Result<()> {
    while let Some(Err(error)) = stop.unless(hear(&far, &shared, &repairs)).await {
        shared.words.failed(&error, shared.clock.now());
        tracing::warn!(%error, "the process that captures isn't heard just now");
        shared.capture.pulse.set_open(false);
        let _ = stop.unless(tokio::time::sleep(LOOK)).await;
    }
    Ok(())
}

async fn hear(far: &Far, shared: &Shared, repairs: &Repairs) -> Result<()> {
    let mut words = shared.bus.follow(CONTROL).await?;
    // A repair may be due that was told of while we did not listen: what we knew of the source is older than it.
    shared.words.mended();
    *locked(&far.heard) = None;
    shared.capture.pulse.set_open(false);
    repairs.refresh(&*shared.bus, &|sink| shared.writes_alone(sink)).await?;
    loop {
        shared.capture.pulse.beat(shared.clock.now());
        shared.capture.pulse.set_open(far.standing().is_some_and(|standing| standing.open));
        let said = tokio::select! {
            biased;
            said = words.next() => said?,
            _ = tokio::time::sleep(LOOK) => continue,
        };
        match serde_json::from_slice(&said.value) {
            Ok(Said::Standing(standing)) => {
                let durable = standing.durable;
                shared.capture.life.store(standing.life, Relaxed);
                shared.capture.appended.send_replace(Checkpoint {
                    position: durable.position,
                    complete_through: durable.complete_through,
                    ..Checkpoint::default()
                });
                *locked(&far.heard) = Some((*standing, Instant::now()));
            }
            Ok(Said::Answer { id, answer }) => {
                if let Some(waits) = locked(&far.waiting).answers.remove(&id) {
                    let _ = waits.send(answer);
                }
            }
            Ok(Said::Repairs) => {
                repairs.refresh(&*shared.bus, &|sink| shared.writes_alone(sink)).await?;
            }
            // Of others, or of a later version.
            Ok(Said::Ask { .. }) | Err(_) => {}
        }
    }
}
