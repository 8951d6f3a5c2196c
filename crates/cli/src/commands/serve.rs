//! `tidewire serve`: Kafka Connect's REST API.

use crate::args::Serve as Args;
use crate::connectors::Connectors;
use crate::exit::Answer;
use crate::{signals, terminal};
use std::sync::Arc;
use tidewire_change::Result;
use tidewire_server::connect::{self, Worker};
use tidewire_server::Address;

/// The token that requests must carry; not an argument, which every user of the machine could see.
const TOKEN: &str = "TIDEWIRE_TOKEN";

pub async fn run(args: &Args) -> Result<Answer> {
    let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
    let connectors = Connectors::new(args)?;
    let worker = Worker::start(&args.dir, Arc::new(connectors))?;
    let served = connect::serve(worker.clone(), Address { address: args.http, token }).await;
    let outcome = match served {
        Ok(serving) => {
            let (address, folder) = (serving.address(), args.dir.display());
            terminal::tell(&format!("connectors are taken at http://{address}/connectors and kept in {folder}"));
            let signal = signals::first().await;
            serving.stop().await;
            signal
        }
        Err(error) => Err(match args.http.ip().is_loopback() {
            true => error,
            false => error.hint(format!("set the variable {TOKEN}, or listen on 127.0.0.1 (--http)")),
        }),
    };
    worker.end().await;
    outcome.map(|()| Answer::Yes)
}
