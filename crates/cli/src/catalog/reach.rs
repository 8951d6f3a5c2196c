//! Can it be used, and who uses it? Looks alone.

use super::bus::{client, instance_of, kafka_config};
use super::{replica, SinkWriter};
use crate::config::{Bus, Config, RegistryAddress, SinkConfig, SinkKind};
use tidewire_change::{Error, ErrorKind, Result};
use tidewire_kafka::KafkaBus;
use tidewire_postgres::sink as postgres_sink;

/// Can the bus be used? Changes nothing there. (The journal's folder is among `folders`.)
pub async fn reach_bus(config: &Config) -> Result<()> {
    match &config.bus {
        Bus::Journal(_) => Ok(()),
        Bus::Kafka(settings) => {
            KafkaBus::look(kafka_config(config, settings)?).await?;
            match settings.debezium.as_ref().and_then(|of| of.registry.as_ref()) {
                Some(registry) => match reach_registry(&registry.address, "bus.kafka.registry").await {
                    // It is there when the process that captures is.
                    Err(error) if registry.inside.is_some() && error.kind() == ErrorKind::Unavailable => Ok(()),
                    answered => answered,
                },
                None => Ok(()),
            }
        }
    }
}

/// Is a schema registry there, and does it let us in? `section`: which keys say where.
pub(super) async fn reach_registry(address: &RegistryAddress, section: &str) -> Result<()> {
    let (status, answer) = client(address)?.ask("GET", "/subjects", None).await?;
    let lacks_login = address.user.is_none();
    match status {
        200..=299 if answer.is_array() => Ok(()),
        401 | 403 if lacks_login => {
            Err(Error::invalid("the schema registry lets nobody in without a login").hint(format!(
            "set {section}.user and {section}.password; of tidewire registry the token is the password, of any user"
        )))
        }
        401 | 403 => Err(Error::invalid("the schema registry doesn't take the login")
            .hint(format!("correct {section}.user and {section}.password"))),
        200..=299 | 404 | 405 => Err(Error::invalid(format!(
            "what answers at {} is no schema registry: it has no list of subjects there",
            address.url
        ))
        .hint(format!("correct {section}.url, its path above all"))),
        status => Err(tidewire_server::registry::refused(status, &answer)),
    }
}

/// Who writes a sink that has one writer at a time, wherever that runs. Changes nothing.
pub async fn writer(config: &Config, sink: &SinkConfig) -> Result<Option<SinkWriter>> {
    let SinkKind::Postgres { url, schema } = &sink.kind else { return Ok(None) };
    let mut settings = replica(config, sink, url, schema)?;
    if let Some(instance) = instance_of(config).await? {
        settings.instance = Some(instance);
    }
    postgres_sink::writer(&settings).await
}
