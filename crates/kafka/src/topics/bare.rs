//! Messages whose schema doesn't tell what their types mean.

use super::reading::Record;
use super::source::TopicsSource;
use super::tables::Refusal;
use tidewire_change::TableName;
use tidewire_envelope::debezium::protobuf::ProtobufWriter;
use tidewire_envelope::debezium::{AvroWriter, Glance, What};

const HIDDEN: &str =
    "its messages in Protobuf don't tell NULL from 0, false or an empty text: have the connector's converter write \
                      optional.for.nullables=true";
const BARE: &str = "its columns are of the types that Protobuf tells, so a time may be a number: source.debezium.tables or tables_from says what \
                    they are. An array without elements is NULL";

const BARE_AVRO: &str = "its columns are of the types that Avro tells, without what Connect says of them (connect.meta.data=false), so a time may be a number: \
                         source.debezium.tables or tables_from says what they are";

impl TopicsSource {
    /// Protobuf tells no time from a number, unless we wrote it.
    pub(super) fn schema_in_protobuf<'w>(
        &mut self,
        record: &Record,
        writer: &'w ProtobufWriter,
        glance: &Glance<'_>,
    ) -> Result<Option<&'w [u8]>, Refusal> {
        let What::Change(_) = glance.what else { return Ok(Some(writer.connect())) };
        let table = self.table_of(record, &glance.facts);
        if writer.hides_nulls() {
            self.note(&table, HIDDEN);
        }
        if writer.tells_types() {
            return Ok(Some(writer.connect()));
        }
        self.bare(table, writer.connect(), BARE)
    }

    /// Nor does Avro where Connect's converter was to leave it out.
    pub(super) fn schema_in_avro<'w>(
        &mut self,
        record: &Record,
        writer: &'w AvroWriter,
        glance: &Glance<'_>,
    ) -> Result<Option<&'w [u8]>, Refusal> {
        let What::Change(_) = glance.what else { return Ok(Some(writer.connect())) };
        if writer.tells_types() {
            return Ok(Some(writer.connect()));
        }
        self.bare(self.table_of(record, &glance.facts), writer.connect(), BARE_AVRO)
    }

    /// Where a table's columns were given, these say what its types are.
    fn bare<'w>(&mut self, table: TableName, connect: &'w [u8], note: &str) -> Result<Option<&'w [u8]>, Refusal> {
        if self.tables.is_given(&table) {
            return Ok(None);
        }
        // Nothing would be refused that makes somebody ask. A question may be under way.
        if self.config.definitions.is_some() && (self.is_owed || self.asked_for.insert(table.clone())) {
            return Err(Refusal::Untold);
        }
        self.note(&table, note);
        Ok(Some(connect))
    }
}
