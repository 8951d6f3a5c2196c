//! Debezium's messages as they lie on the bus → a message in our own form, exactly as it was appended.

use crate::coder::{self, Files};
use crate::config::Config;
use crate::format::{self, Numbered, Writing};
use crate::merge::Waiting;
use crate::records::Form;
use crate::whole;
use bytes::{Bytes, BytesMut};
use std::collections::HashMap;
use std::sync::Arc;
use tidewire_change::{topic, Error, ErrorKind, Key, Op, Result, Schema, SchemaId};
use tidewire_connector::FetchedMessage;
use tidewire_envelope::debezium::Decoder;
use tidewire_envelope::native;

/// What is known of the bus is read from it when it is needed first, and again when a message names what came later.
#[derive(Default)]
pub(crate) struct FromDebezium {
    schemas: HashMap<SchemaId, Arc<Schema>>,
    modes: Numbered,
    files: Files,
    decoders: HashMap<Form, Decoder>,
    out: BytesMut,
    key: Vec<u8>,
}

impl FromDebezium {
    /// What was given out by the merge, as it was appended. Blocks when something has to be learnt.
    pub fn all(&mut self, messages: Vec<Waiting>, config: &Config) -> Result<Vec<FetchedMessage>> {
        messages.into_iter().map(|waiting| self.one(waiting, config)).collect()
    }

    fn one(&mut self, waiting: Waiting, config: &Config) -> Result<FetchedMessage> {
        let Waiting { form, mut message, .. } = waiting;
        let Some(form) = form else {
            // JSON, Avro or Protobuf: our own form begins with none of their signs.
            if matches!(message.value.first(), Some(b'{' | 0)) && !topic::is_internal(&message.topic) {
                message.value =
                    native::unread("another program wrote the message: it lacks our header", &message.value);
            }
            return Ok(message);
        };
        // A tombstone says nothing that its delete didn't.
        if message.value.is_empty() {
            return Ok(message);
        }
        let decoder = match self.decoders.get_mut(&form) {
            Some(decoder) => decoder,
            None => {
                let decoder = self.decoder(form, config).map_err(|error| error.context(place(&message)))?;
                self.decoders.entry(form).or_insert(decoder)
            }
        };
        match decoder.decode(Some(&message.value)) {
            Ok(Some(change)) => {
                native::encode(&change, form.schema, &mut self.out);
                self.key.clear();
                if change.op != Op::Truncate && matches!(change.schema.key, Key::Columns(_)) {
                    tidewire_flow::change_key(&change, &mut self.key)?;
                }
                message.key = Bytes::copy_from_slice(&self.key);
                message.value = self.out.split().freeze();
            }
            Ok(None) => message.value = Bytes::new(),
            // Whoever delivers puts it into the dead letters, with the reason.
            Err(error) if matches!(error.kind(), ErrorKind::Malformed | ErrorKind::Schema) => {
                message.value = native::unread(error.message(), &message.value);
            }
            Err(error) => return Err(error.context(place(&message))),
        }
        Ok(message)
    }

    fn decoder(&mut self, form: Form, config: &Config) -> Result<Decoder> {
        if !self.modes.contains_key(&form.number) {
            self.learn(config)?;
        }
        if !self.schemas.contains_key(&form.schema) {
            self.schemas = whole::schemas(config)?;
        }
        let decoder = |this: &FromDebezium| {
            let Writing { modes, coding, is_alone } = this.modes.get(&form.number).ok_or_else(|| {
                Error::invalid(format!(
                    "it was written by properties (number {}) that the bus doesn't tell of",
                    form.number
                ))
                .hint("the topic of formats must not lose messages: was it made anew?")
            })?;
            if *is_alone {
                return Err(Error::invalid("it is a row alone (bus.kafka.unwrap): no sink can be filled from such")
                    .hint("give the pipeline with sinks a topic_prefix of its own"));
            }
            let schema = this.schemas.get(&form.schema).ok_or_else(|| {
                Error::schema(format!("it uses schema {:016x}, which isn't known", form.schema.0))
                    .hint(format!("the topic {} must not lose messages: was it made anew?", topic::SCHEMAS))
            })?;
            coder::decoder(*coding, schema, modes, &config.topic_prefix, &this.files)
        };
        // The numbers of a schema's fields came with it.
        match decoder(self)? {
            Some(decoder) => Ok(decoder),
            None => {
                self.learn(config)?;
                decoder(self)?.ok_or_else(|| {
                    Error::invalid("the bus doesn't tell the numbers that the fields of its messages have")
                        .hint("the topic of formats must not lose messages: was it made anew?")
                })
            }
        }
    }

    fn learn(&mut self, config: &Config) -> Result<()> {
        let known = format::known(config)?;
        (self.modes, self.files) = (known.modes, known.files);
        Ok(())
    }
}

fn place(message: &FetchedMessage) -> String {
    format!("topic {} partition {} offset {}", message.topic, message.partition, message.offset)
}
