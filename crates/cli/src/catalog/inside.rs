//! The schema registry inside of the process that captures, where `bus.kafka.registry` names none elsewhere.

use super::bus::kafka_config;
use super::registry_topic::INSIDE;
use super::RegistryTopic;
use crate::config::{Bus, Config, RegistryConfig};
use crate::terminal;
use std::sync::Arc;
use std::time::Duration;
use tidewire_change::{ErrorKind, Result};
use tidewire_registry::{Level, Profile};
use tidewire_server::registry::{serve, Keeper};
use tidewire_server::{bind, Address, Bound};
use tokio::runtime::Handle;

/// Between two looks at whether another process has taken over.
const LOOK: Duration = Duration::from_secs(1);

/// Its address, taken, and its topic, read: first of all, so that a process that can't serve it takes nothing over.
pub(super) struct Inside {
    bound: Bound,
    topic: RegistryTopic,
    name: String,
}

const LEVEL: Level = Level::Backward;
const PROFILE: Profile = Profile::Confluent;

fn registry_of(config: &Config) -> Option<&RegistryConfig> {
    let Bus::Kafka(settings) = &config.bus else { return None };
    settings.debezium.as_ref()?.registry.as_ref()
}

/// None: the configuration has none inside.
pub(super) async fn prepare(config: &Config) -> Result<Option<Inside>> {
    let (Some(registry), Bus::Kafka(settings)) = (registry_of(config), &config.bus) else { return Ok(None) };
    let Some(address) = registry.inside else { return Ok(None) };
    let token = registry.address.user.as_ref().map(|(_, password)| password.reveal().to_string());
    let bound = bind(Address { address, token }).await.map_err(|error| {
        error.context("bus.kafka.registry.listen").hint(
            "where a registry answers already, name it as bus.kafka.registry.url; else give another address as `listen`",
        )
    })?;
    let (bus, name) = (kafka_config(config, settings)?, format!("{}{INSIDE}", settings.topic_prefix));
    let topic = tokio::task::block_in_place(|| {
        let mut topic = RegistryTopic::inside(bus, &name, Handle::current());
        Keeper::try_out(&topic.there()?, &[], LEVEL, PROFILE).map(|()| topic)
    });
    let topic = topic.map_err(|error| error.context(format!("while reading the topic {name}")))?;
    Ok(Some(Inside { bound, topic, name }))
}

impl Inside {
    /// Answers from now on, as long as this process lives.
    pub fn begin(self) -> Result<()> {
        let Inside { bound, mut topic, name } = self;
        let keeper = tokio::task::block_in_place(|| {
            let events = topic.take()?;
            Keeper::new(Box::new(topic), &events, LEVEL, PROFILE)
        });
        let keeper = Arc::new(keeper.map_err(|error| error.context(format!("while reading the topic {name}")))?);
        let serving = serve(keeper.clone(), bound);
        terminal::tell(&format!("schemas are taken at http://{} and kept in the topic {}", serving.address(), name));
        tokio::spawn(async move {
            watch(keeper).await;
            serving.stop().await;
        });
        Ok(())
    }
}

/// Comes back when another process keeps the schemas: it captures now, and what this one answers may be old.
async fn watch(keeper: Arc<Keeper>) {
    loop {
        tokio::time::sleep(LOOK).await;
        let keeper = keeper.clone();
        match tokio::task::spawn_blocking(move || keeper.look()).await {
            Ok(Err(error)) if error.kind() == ErrorKind::Invalid => {
                tracing::error!(%error, "the registry inside answers no more");
                return;
            }
            Ok(Err(error)) => tracing::debug!(%error, "the registry's topic could not be looked at"),
            Ok(Ok(())) => {}
            Err(_) => return,
        }
    }
}
