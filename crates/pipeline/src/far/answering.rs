//! The side of the process that captures.

use super::{Answer, Ask, Standing, CONTROL};
use crate::context::Stop;
use crate::shared::Shared;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Boundary, Error, Message, Result};
use tidewire_connector::TableState;
use tokio::time::Instant;

/// How the source stands is told at least this often, and sooner when it changed in what others wait for.
const TELL: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(100);
/// Answers that are kept for asks that are repeated.
const KEPT: usize = 1000;

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Said {
    Standing(Box<Standing>),
    Ask {
        id: String,
        what: Ask,
    },
    Answer {
        id: String,
        answer: Answer,
    },
    /// There is news in the topic of repairs.
    Repairs,
}

/// Durable when it returns.
pub(crate) async fn say(shared: &Shared, said: &Said) -> Result<()> {
    let value = serde_json::to_vec(said).map_err(|e| Error::bug("a word has no JSON form").caused_by(e))?;
    let key = match said {
        Said::Standing(_) => "standing",
        Said::Ask { id, .. } | Said::Answer { id, .. } => id,
        Said::Repairs => "repairs",
    };
    let key = key.to_string().into();
    let message =
        Message { topic: CONTROL.into(), partition: 0, key, value: value.into(), timestamp: shared.clock.now() };
    shared.bus.append(vec![message], None).await
}

pub(crate) fn standing(shared: &Shared) -> Standing {
    let durable = shared.capture.appended.borrow();
    Standing {
        open: shared.capture.pulse.is_open(),
        source: shared.source.status(),
        life: shared.capture.life.load(Relaxed),
        durable: Boundary { position: durable.position, complete_through: durable.complete_through },
    }
}

/// Tells how the source stands and does what is asked, until the stop. What fails is tried again.
pub(crate) async fn answer_all(shared: Arc<Shared>, stop: Stop) -> Result<()> {
    while let Some(Err(error)) = stop.unless(answer(&shared)).await {
        shared.words.failed(&error, shared.clock.now());
        tracing::warn!(%error, "processes that deliver aren't heard just now");
        let _ = stop.unless(tokio::time::sleep(TELL)).await;
    }
    Ok(())
}

async fn answer(shared: &Shared) -> Result<()> {
    let mut asks = shared.bus.follow(CONTROL).await?;
    let mut answers: HashMap<String, Answer> = HashMap::new();
    let (mut told, mut told_at) = (None::<Standing>, Instant::now());
    loop {
        let now = standing(shared);
        if told.as_ref().is_none_or(|told| told_at.elapsed() >= TELL || is_news(told, &now)) {
            say(shared, &Said::Standing(Box::new(now.clone()))).await?;
            shared.words.mended();
            (told, told_at) = (Some(now), Instant::now());
        }
        let said = tokio::select! {
            biased;
            said = asks.next() => said?,
            _ = tokio::time::sleep(LOOK) => continue,
        };
        let Ok(Said::Ask { id, what }) = serde_json::from_slice(&said.value) else { continue };
        let answer = match answers.get(&id) {
            Some(known) => known.clone(),
            None => {
                let answer = do_it(shared, what).await;
                // Whoever hears that a read is listed must know of it before.
                let now = standing(shared);
                say(shared, &Said::Standing(Box::new(now.clone()))).await?;
                (told, told_at) = (Some(now), Instant::now());
                answer
            }
        };
        say(shared, &Said::Answer { id: id.clone(), answer: answer.clone() }).await?;
        if matches!(answer, Answer::NotYet) {
            continue;
        }
        if answers.len() >= KEPT {
            answers.clear();
        }
        answers.insert(id, answer);
    }
}

/// Others wait for it: it is told at once.
fn is_news(told: &Standing, now: &Standing) -> bool {
    let states = |standing: &Standing| {
        let kind = |state: &TableState| std::mem::discriminant(state);
        standing.source.tables.iter().map(|t| (t.table.clone(), kind(&t.state))).collect::<Vec<_>>()
    };
    let ended = told.source.pending_reads > 0 && now.source.pending_reads == 0;
    told.open != now.open || told.source.is_settled != now.source.is_settled || ended || states(told) != states(now)
}

async fn do_it(shared: &Shared, what: Ask) -> Answer {
    // While the source isn't open a mark might be one of a log that is gone.
    let done = async {
        if !shared.capture.pulse.is_open() {
            return Ok(Answer::NotYet);
        }
        match what {
            Ask::Read(request) => {
                shared.source.read(request.selection()?).await?;
                Ok(Answer::Listed)
            }
            Ask::Mark => Ok(Answer::Marked(shared.source.mark().await?)),
        }
    };
    done.await.unwrap_or_else(|error: Error| Answer::Failed((&error).into()))
}
