//! What is said of messages that can't be read.

use super::decoder::Decoder;
use super::read::Unread;
use tidewire_change::Error;

impl Decoder {
    pub(super) fn missing(&self, index: usize) -> Error {
        let (name, table) = (&self.schema.columns[index].name, &self.schema.table);
        let error = Error::schema(format!("a message of {table} lacks the column `{name}`")).on_table(table);
        match self.is_written(index) {
            true => error.hint("the message is of another version of the table"),
            false => error.hint("Debezium leaves out what it doesn't know: include.unknown.datatypes=false"),
        }
    }

    pub(super) fn unread(&self, index: usize, why: Unread) -> Error {
        let (name, table) = (&self.schema.columns[index].name, &self.schema.table);
        match why {
            Unread::Wrong => {
                let ty = &self.schema.columns[index].ty.name;
                Error::malformed(format!("column `{name}` of a message of {table} isn't what {ty} is written as"))
                    .hint("compare the modes with those of the connector that wrote the topic")
            }
            Unread::Lost(property) => {
                Error::malformed(format!("column `{name}` of a message of {table} may have lost digits: {property}"))
                    .hint("have the connector write it with another mode")
            }
        }
        .on_table(table)
    }
}
