//! Signals that come by a channel of their own are given to the source, which keeps them in its checkpoint. A channel is told that it may
//! forget them when that checkpoint is durable.

use crate::context::Stop;
use crate::shared::{locked, Shared};
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{Error, Result};
use tidewire_connector::SignalChannel;

/// Before another try.
const AGAIN: Duration = Duration::from_secs(2);
/// Between two looks whether the source is open.
const SOON: Duration = Duration::from_millis(200);

/// Listens until the stop. What goes wrong is told and tried again.
pub(crate) async fn hear(mut channel: Box<dyn SignalChannel>, shared: Arc<Shared>, stop: Stop) -> Result<()> {
    loop {
        let turn = async {
            let name = channel.name();
            match take(&mut *channel, &shared).await {
                Ok(()) => drop(locked(&shared.capture.deaf).remove(name)),
                Err(error) => {
                    let why = error.to_string();
                    let before = locked(&shared.capture.deaf).insert(name, why.clone());
                    if before.as_ref() != Some(&why) {
                        tracing::warn!(channel = name, %error, "signals can't be read; it is tried again");
                    }
                    tokio::time::sleep(AGAIN).await;
                }
            }
        };
        if stop.unless(turn).await.is_none() {
            return Ok(());
        }
    }
}

/// Takes what comes next, and returns when it is durable, or when the source began anew meanwhile: then it comes again.
async fn take(channel: &mut dyn SignalChannel, shared: &Shared) -> Result<()> {
    while !is_open(shared) {
        tokio::time::sleep(SOON).await;
    }
    let name = channel.name();
    let behind = place(shared, name);
    let heard = channel.next(behind.as_deref()).await?;
    let new = heard.place.clone();
    shared.source.signals(name, heard).await?;
    let mark = shared.source.mark().await?;
    let mut appended = shared.capture.appended.subscribe();
    let gone = |_| Error::unavailable("the pipeline has ended");
    appended.wait_for(|checkpoint| checkpoint.position >= mark).await.map_err(gone)?;
    match place(shared, name).as_ref() == Some(&new) {
        true => channel.done(&new).await,
        false => Ok(()),
    }
}

fn is_open(shared: &Shared) -> bool {
    shared.capture.pulse.is_open() && shared.source.status().connected
}

fn place(shared: &Shared, channel: &str) -> Option<String> {
    shared.source.status().signals.and_then(|signals| signals.heard.get(channel).cloned())
}
