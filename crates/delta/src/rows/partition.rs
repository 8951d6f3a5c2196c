//! What stands in the log for the rows of a partition.

use super::decode::print;
use super::{Layout, Physical};
use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use std::collections::BTreeMap;
use tidewire_change::{Error, Result};

/// Values of the partition columns by their names in the lake.
pub type Partition = BTreeMap<String, Option<String>>;

/// What the rows of a file have in common. Rows of two groups never share a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    /// Of their keys; none in a table of one bucket.
    pub bucket: Option<u32>,
    pub partition: Partition,
}

/// The values of a row, as PROTOCOL.md ("Partition Value Serialization") writes them.
pub fn partition_of(layout: &Layout, batch: &RecordBatch, row: usize) -> Result<Partition> {
    let value = |name: &String| {
        let column = layout.columns.iter().find(|c| c.name == *name).zip(batch.column_by_name(name));
        let (column, array) = column.ok_or_else(|| Error::bug(format!("the partition column {name} isn't written")))?;
        let mut text = String::new();
        match &column.physical {
            _ if array.is_null(row) => return Ok((name.clone(), None)),
            Physical::Boolean => text.push_str(if array.as_boolean().value(row) { "true" } else { "false" }),
            physical => print(physical, array, row, &mut text),
        }
        Ok((name.clone(), Some(text)))
    };
    layout.partition.iter().map(value).collect()
}

/// Can values of the type stand in the log, the same for every reader?
pub fn is_partitionable(physical: &Physical) -> bool {
    use Physical::{Boolean, Date, Integer, Long, Short, String};
    matches!(physical, Boolean | Short | Integer | Long | Date | String)
}
