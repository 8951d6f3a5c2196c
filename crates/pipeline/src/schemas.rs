use crate::shared::locked;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tidewire_change::{topic, Result, Schema, SchemaId};
use tidewire_connector::{BusWriter, FetchedMessage};
use tidewire_envelope::native;

/// The schemas of the bus by id; one instance each, so that the loops compare them by pointer.
#[derive(Default)]
pub(crate) struct SchemaBook(Mutex<HashMap<SchemaId, Arc<Schema>>>);

impl SchemaBook {
    pub fn get(&self, id: SchemaId) -> Option<Arc<Schema>> {
        locked(&self.0).get(&id).cloned()
    }

    pub fn add(&self, id: SchemaId, schema: &Arc<Schema>) -> Arc<Schema> {
        locked(&self.0).entry(id).or_insert_with(|| schema.clone()).clone()
    }

    /// Adds what a message of the topic of schemas says.
    pub fn learn(&self, message: &FetchedMessage) -> Result<(SchemaId, Arc<Schema>)> {
        let (id, schema) = native::decode_schema(&message.key, &message.value)?;
        Ok((id, self.add(id, &Arc::new(schema))))
    }

    /// Reads the whole topic; returns the ids that are on the bus.
    pub async fn load(&self, bus: &dyn BusWriter) -> Result<Vec<SchemaId>> {
        let messages = bus.read_topic(topic::SCHEMAS).await?;
        messages.iter().filter(|m| !m.value.is_empty()).map(|m| Ok(self.learn(m)?.0)).collect()
    }
}
