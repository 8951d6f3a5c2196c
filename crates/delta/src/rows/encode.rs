use super::builder::{map_builder, ColumnBuilder};
use super::nested::exact;
use super::Layout;
use arrow_array::builder::*;
use arrow_array::{ArrayRef, RecordBatch};
use std::sync::Arc;
use tidewire_change::{Change, Datum, Error, Op, Position, Result, Row};

/// What stands beside a row's values.
#[derive(Clone, Copy, Debug)]
pub struct Stamp {
    pub position: Position,
    pub op: Op,
    /// Microseconds since 1970 UTC.
    pub committed_at: i64,
}

impl Stamp {
    pub fn of(change: &Change) -> Stamp {
        Stamp { position: change.position, op: change.op, committed_at: change.committed_at }
    }
}

/// Turns rows into one record batch of the table's columns.
pub struct Encoder {
    layout: Arc<Layout>,
    order: Vec<usize>,
    /// Places of partition columns of text: readers take an empty one for NULL.
    never_empty: Vec<usize>,
    columns: Vec<ColumnBuilder>,
    lsn: Int64Builder,
    seq: Int64Builder,
    op: StringBuilder,
    ts: TimestampMicrosecondBuilder,
    deleted: BooleanBuilder,
    special: MapBuilder<StringBuilder, StringBuilder>,
}

impl Encoder {
    pub fn new(layout: Arc<Layout>, rows: usize) -> Encoder {
        let columns = layout.columns.iter().map(|c| ColumnBuilder::new(&c.physical, rows)).collect();
        Encoder {
            order: layout.write_order(),
            never_empty: layout.text_partitions(),
            columns,
            lsn: Int64Builder::with_capacity(rows),
            seq: Int64Builder::with_capacity(rows),
            op: StringBuilder::with_capacity(rows, rows),
            ts: TimestampMicrosecondBuilder::with_capacity(rows).with_data_type(super::Physical::Timestamp.arrow()),
            deleted: BooleanBuilder::with_capacity(rows),
            special: map_builder(),
            layout,
        }
    }

    /// `row` has its values in `Layout::write_order`; those missing at its end are NULL, and so are unchanged ones (only
    /// deleted rows have any).
    pub fn push(&mut self, row: &Row, stamp: Stamp) -> Result<()> {
        let mut specials = false;
        let mut values = row.columns();
        for place in &self.order {
            let (column, lake) = (&mut self.columns[*place], &self.layout.columns[*place]);
            match values.next() {
                Some(Datum::Text(text)) => {
                    let fits = !lake.configured || exact(&lake.physical, text);
                    let fits = fits && !(text.is_empty() && self.never_empty.contains(place));
                    if !(fits && column.append(text)) {
                        column.append_null();
                        // Text that isn't UTF-8 was refused before; any other value is kept as it is written.
                        let text = std::str::from_utf8(text)
                            .map_err(|_| Error::malformed(format!("a value at {} isn't UTF-8", stamp.position)))?;
                        self.special.keys().append_value(&lake.name);
                        self.special.values().append_value(text);
                        specials = true;
                    }
                }
                _ => column.append_null(),
            }
        }
        self.special.append(specials).map_err(|e| Error::bug("the map of special values is uneven").caused_by(e))?;
        self.lsn.append_value(stamp.position.commit as i64);
        self.seq.append_value(i64::from(stamp.position.ordinal));
        self.op.append_value(stamp.op.letter().encode_utf8(&mut [0; 4]));
        self.ts.append_value(stamp.committed_at);
        self.deleted.append_value(stamp.op == Op::Delete);
        Ok(())
    }

    pub fn finish(mut self) -> Result<RecordBatch> {
        let mut arrays: Vec<ArrayRef> = self.columns.iter_mut().map(ColumnBuilder::finish).collect();
        arrays.push(Arc::new(self.lsn.finish()));
        arrays.push(Arc::new(self.seq.finish()));
        arrays.push(Arc::new(self.op.finish()));
        arrays.push(Arc::new(self.ts.finish()));
        arrays.push(Arc::new(self.deleted.finish()));
        arrays.push(Arc::new(self.special.finish()));
        RecordBatch::try_new(self.layout.arrow(), arrays).map_err(|e| {
            Error::bug(format!("rows of {} don't fit their columns: {e}", self.layout.schema.table)).caused_by(e)
        })
    }
}
