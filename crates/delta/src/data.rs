//! Data files: Parquet, written once, read whole or row by row.

use crate::rows::{Group, Layout, Stats, DELETED};
use crate::store::{Reader, Store, Syncing, Upload, RESTORE};
use arrow_array::cast::AsArray;
use arrow_array::{new_null_array, BooleanArray, RecordBatch};
use arrow_schema::{DataType, Field, Schema};
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::arrow::arrow_writer::ArrowWriterOptions;
use parquet::arrow::{ArrowWriter, ProjectionMask};
use parquet::basic::{Compression, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, KeyValue, PageIndexPolicy, ParquetMetaData, RowGroupMetaData};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::reader::Length;
use parquet::schema::types::ColumnPath;
use roaring::RoaringBitmap;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use tidewire_change::{Error, Result};

/// Rows that are read at once: so many, but no more than about so many bytes.
const ROWS_PER_BATCH: usize = 8192;
const BYTES_PER_BATCH: u64 = 8 << 20;
/// The same of each of several files.
const ROWS_SIDE_BY_SIDE: usize = 1024;
/// Rows of a row group: so many, but no more than about so many bytes, since a writer keeps a group in memory.
const ROWS_PER_GROUP: usize = 128 * 1024;
const BYTES_PER_GROUP: usize = 32 << 20;
/// From so many bytes of a row on, its file is written without what would keep further copies of its values in memory.
pub const BULKY: usize = 1 << 20;
/// Says in a file's footer that it was written so.
const BULKY_MARK: &str = "tidewire.bulky";
/// Who wrote a file, in its footer.
pub const CREATED_BY: &str = concat!("tidewire ", env!("CARGO_PKG_VERSION"));
/// Our files begin so: nobody else's are ever vacuumed.
pub const PREFIX: &str = "tidewire-";

/// The folder of files of the change data feed.
pub const FEED_FOLDER: &str = "_change_data";

/// The bucket that a data file's name tells.
pub fn bucket_of(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.strip_prefix('b')?.split_once('-')?.0.parse().ok()
}

/// A file that was written.
#[derive(Clone, Debug)]
pub struct Written {
    pub path: Arc<str>,
    pub bytes: u64,
    pub rows: u64,
    /// Of them those that are kept as deleted.
    pub deleted: u64,
    pub stats: Arc<str>,
    /// What its rows have in common.
    pub group: Group,
}

/// What a file is written for.
#[derive(Clone, Copy)]
pub struct Shape {
    /// A file of the change data feed, which is read once or never: it has one column more.
    pub feed: bool,
    /// The file is to stay, so it is made smaller at the cost of time. Others are merged soon, and a commit waits for them.
    pub lasting: bool,
    /// It holds rows of `BULKY` bytes: no dictionaries and no statistics of its texts, which hold values whole while they are
    /// made. (The log's statistics of the file stay.)
    pub bulky: bool,
}

pub struct FileWriter {
    path: String,
    place: String,
    writer: ArrowWriter<Upload>,
    stats: Stats,
    group: Group,
    deleted: u64,
}

impl FileWriter {
    /// A file for rows of `group`.
    pub fn create(store: &Store, layout: &Layout, shape: Shape, group: Group) -> Result<FileWriter> {
        let bucket = group.bucket.map_or_else(String::new, |bucket| format!("b{bucket}-"));
        let id = format!("{bucket}{}", uuid::Uuid::new_v4().simple());
        let (path, schema) = match shape.feed {
            true => (format!("{FEED_FOLDER}/{PREFIX}{id}.parquet"), layout.arrow_of_feed()),
            false => (format!("{PREFIX}{id}.parquet"), layout.arrow()),
        };
        let place = store.place(&path);
        let properties = properties(&schema, shape)?;
        let options = ArrowWriterOptions::new().with_properties(properties).with_skip_arrow_metadata(true);
        let writer = ArrowWriter::try_new_with_options(store.create(&path)?, schema, options)
            .map_err(|e| write_error(&place, e))?;
        Ok(FileWriter { path, place, writer, stats: Stats::new(layout), group, deleted: 0 })
    }

    pub fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        self.stats.add(batch);
        let deleted = batch.column_by_name(DELETED).and_then(|column| column.as_boolean_opt());
        self.deleted += deleted.map_or(0, |deleted| deleted.true_count() as u64);
        self.writer.write(batch).map_err(|e| write_error(&self.place, e))
    }

    pub fn rows(&self) -> u64 {
        self.stats.rows()
    }

    /// Ends the file. Its contents are durable after the wait, its name when its folder is synced.
    pub fn finish(self) -> Result<(Written, Syncing)> {
        let upload = self.writer.into_inner().map_err(|e| write_error(&self.place, e))?;
        let (bytes, syncing) = upload.finish_later()?;
        let (rows, stats) = (self.stats.rows(), self.stats.json().into());
        let (path, deleted, group) = (self.path.into(), self.deleted, self.group);
        Ok((Written { path, bytes, rows, deleted, stats, group }, syncing))
    }
}

fn properties(schema: &Schema, Shape { lasting, bulky, .. }: Shape) -> Result<WriterProperties> {
    let level = ZstdLevel::try_new(1).map_err(|e| Error::bug("zstd has no level 1").caused_by(e))?;
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(level))
        .set_max_row_group_row_count(Some(ROWS_PER_GROUP))
        .set_max_row_group_bytes(Some(BYTES_PER_GROUP))
        .set_created_by(CREATED_BY.into());
    if bulky {
        properties = properties
            .set_dictionary_enabled(false)
            .set_statistics_enabled(EnabledStatistics::None)
            .set_key_value_metadata(Some(vec![KeyValue::new(BULKY_MARK.into(), "true".to_string())]));
    }
    for field in schema.fields() {
        let column = ColumnPath::from(field.name().clone());
        if bulky && field.data_type().is_primitive() {
            properties = properties
                .set_column_dictionary_enabled(column.clone(), true)
                .set_column_statistics_enabled(column.clone(), EnabledStatistics::Page);
        }
        if !lasting && !matches!(field.data_type(), DataType::Utf8 | DataType::Map(..)) {
            // Few numbers repeat within a small file: looking for those that do takes longer than it saves.
            properties = properties.set_column_dictionary_enabled(column, false);
        }
    }
    Ok(properties.build())
}

/// Was the file written as one with large rows?
pub fn is_bulky(store: &Store, path: &str) -> Result<bool> {
    let metadata = load(store, path, PageIndexPolicy::Skip)?.1;
    let marks = metadata.metadata().file_metadata().key_value_metadata();
    Ok(marks.is_some_and(|marks| marks.iter().any(|mark| mark.key == BULKY_MARK)))
}

/// What goes wrong while writing is the disk, not the data.
fn write_error(place: &str, error: ParquetError) -> Error {
    let other = |error: &dyn std::fmt::Display| Error::unavailable(format!("{place} can't be written: {error}"));
    match error {
        // What the disk says, as everywhere else: what to do follows from it.
        ParquetError::External(cause) => match cause.downcast::<io::Error>() {
            Ok(error) => Error::io(*error, place),
            Err(cause) => other(&cause),
        },
        error => other(&error).caused_by(error),
    }
}

/// Which rows of a file.
#[derive(Clone, Copy)]
pub enum Rows<'a> {
    /// All but these.
    But(Option<&'a RoaringBitmap>),
    Only(&'a RoaringBitmap),
}

/// Reads columns of rows; a column that the file lacks is left out. `each` gets the rows' numbers in the file and the rows.
pub fn read(
    store: &Store,
    path: &str,
    columns: &[&str],
    rows: Rows<'_>,
    mut each: impl FnMut(&[u32], &RecordBatch) -> Result<()>,
) -> Result<()> {
    // Pages without a wanted row are passed over.
    let pages = if matches!(rows, Rows::Only(_)) { PageIndexPolicy::Optional } else { PageIndexPolicy::Skip };
    let (file, metadata) = load(store, path, pages)?;
    let failed = |e: &dyn std::fmt::Display| file.take_failure().unwrap_or_else(|| unreadable(store, path, e));
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata);
    let schema = builder.schema().clone();
    let roots = (0..schema.fields().len()).filter(|i| columns.contains(&schema.field(*i).name().as_str()));
    let mask = ProjectionMask::roots(builder.parquet_schema(), roots);
    let at_once = rows_at_once(builder.metadata(), &mask);
    file.fetch(parts(builder.metadata(), &mask, rows))?;
    let mut builder = builder.with_projection(mask).with_batch_size(at_once);
    if let Rows::Only(wanted) = rows {
        builder = builder.with_row_selection(selection(wanted));
    }
    let mut wanted = match rows {
        Rows::Only(wanted) => Some(wanted.iter()),
        Rows::But(_) => None,
    };
    let mut first = 0u32;
    let mut numbers = Vec::with_capacity(at_once);
    for batch in builder.build().map_err(|e| failed(&e))? {
        let mut batch = batch.map_err(|e| failed(&e))?;
        numbers.clear();
        let next = first + batch.num_rows() as u32;
        match (&mut wanted, rows) {
            (Some(wanted), _) => numbers.extend(wanted.take(batch.num_rows())),
            (None, Rows::But(Some(struck))) if struck.range_cardinality(first..next) > 0 => {
                numbers.extend((first..next).filter(|row| !struck.contains(*row)));
                let mask = BooleanArray::from_iter((first..next).map(|row| Some(!struck.contains(row))));
                batch = arrow_select::filter::filter_record_batch(&batch, &mask).map_err(|e| failed(&e))?;
            }
            _ => numbers.extend(first..next),
        }
        first = next;
        if !numbers.is_empty() {
            each(&numbers, &batch)?;
        }
    }
    Ok(())
}

/// The batch with the columns of `schema`, in its order; those that it lacks are NULL.
pub fn conform(batch: &RecordBatch, schema: &Arc<Schema>) -> Result<RecordBatch> {
    let column = |field: &Arc<Field>| match batch.column_by_name(field.name()) {
        Some(array) => array.clone(),
        None => new_null_array(field.data_type(), batch.num_rows()),
    };
    RecordBatch::try_new(schema.clone(), schema.fields().iter().map(column).collect())
        .map_err(|e| Error::invalid(format!("a file of the table doesn't fit its columns: {e}")).caused_by(e))
}

/// The rows of a file but for those that are struck, some at a time, for those who read several files side by side.
pub fn rows_of(
    store: &Store,
    path: &str,
    struck: Option<Arc<RoaringBitmap>>,
) -> Result<impl Iterator<Item = Result<RecordBatch>>> {
    let (store, path) = (store.clone(), path.to_string());
    let (file, metadata) = load(&store, &path, PageIndexPolicy::Skip)?;
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file.clone(), metadata);
    let at_once = rows_at_once(builder.metadata(), &ProjectionMask::all()).min(ROWS_SIDE_BY_SIDE);
    file.fetch(std::iter::once(0..file.len()))?;
    let reader = builder.with_batch_size(at_once).build().map_err(|e| unreadable(&store, &path, &e))?;
    let mut first = 0u32;
    Ok(reader.map(move |batch| {
        let failed = |e: &dyn std::fmt::Display| file.take_failure().unwrap_or_else(|| unreadable(&store, &path, e));
        let batch = batch.map_err(|e| failed(&e))?;
        let rows = first..first + batch.num_rows() as u32;
        first = rows.end;
        match &struck {
            Some(struck) if struck.range_cardinality(rows.clone()) > 0 => {
                let mask = BooleanArray::from_iter(rows.map(|row| Some(!struck.contains(row))));
                arrow_select::filter::filter_record_batch(&batch, &mask).map_err(|e| failed(&e))
            }
            _ => Ok(batch),
        }
    }))
}

fn unreadable(store: &Store, path: &str, error: &dyn std::fmt::Display) -> Error {
    Error::invalid(format!("{} can't be read: {error}", store.place(path))).hint(RESTORE)
}

/// Opens a file and reads its footer. Types are those of Parquet, however another writer had them in memory.
fn load(store: &Store, path: &str, pages: PageIndexPolicy) -> Result<(Reader, ArrowReaderMetadata)> {
    let file = store.open_named(path)?;
    let options = ArrowReaderOptions::new().with_page_index_policy(pages).with_skip_arrow_metadata(true);
    let failed = |e| file.take_failure().unwrap_or_else(|| unreadable(store, path, &e));
    let metadata = ArrowReaderMetadata::load(&file, options).map_err(failed)?;
    Ok((file, metadata))
}

/// Rows of a batch, by the average row of the row group that has the largest ones.
fn rows_at_once(metadata: &ParquetMetaData, mask: &ProjectionMask) -> usize {
    let average = |group: &RowGroupMetaData| {
        let wanted = group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf));
        // A dictionary holds what repeats once; in memory it is there as often as it repeats.
        let bytes =
            |c: &ColumnChunkMetaData| c.uncompressed_size().max(c.unencoded_byte_array_data_bytes().unwrap_or(0));
        let all: i64 = wanted.map(|(_, column)| bytes(column)).fold(0, i64::saturating_add);
        (all / group.num_rows().max(1)).max(1) as u64
    };
    let average = metadata.row_groups().iter().map(average).max().unwrap_or(1);
    (BYTES_PER_BATCH / average).clamp(1, ROWS_PER_BATCH as u64) as usize
}

/// Where the wanted columns of the wanted rows lie in the file.
fn parts(metadata: &ParquetMetaData, mask: &ProjectionMask, rows: Rows<'_>) -> Vec<Range<u64>> {
    let (mut parts, mut first) = (Vec::new(), 0u32);
    for (number, group) in metadata.row_groups().iter().enumerate() {
        let end = first + group.num_rows() as u32;
        let is_wanted = |rows: &RoaringBitmap, range: Range<u32>| rows.range_cardinality(range) > 0;
        for (leaf, column) in group.columns().iter().enumerate().filter(|(leaf, _)| mask.leaf_included(*leaf)) {
            let (start, length) = column.byte_range();
            let pages = metadata.offset_index().and_then(|index| index.get(number)?.get(leaf));
            let (Rows::Only(wanted), Some(pages)) = (rows, pages) else {
                parts.push(start..start + length);
                continue;
            };
            let pages = pages.page_locations();
            // Before the first page there may be a dictionary.
            let before = pages.first().map_or(start + length, |page| page.offset as u64);
            if is_wanted(wanted, first..end) {
                parts.push(start..before);
            }
            for (page, next) in
                pages.iter().zip(pages.iter().skip(1).map(|next| next.first_row_index as u32).chain([end - first]))
            {
                if is_wanted(wanted, first + page.first_row_index as u32..first + next) {
                    parts.push(page.offset as u64..page.offset as u64 + page.compressed_page_size.max(0) as u64);
                }
            }
        }
        first = end;
    }
    parts
}

fn selection(rows: &RoaringBitmap) -> RowSelection {
    let mut selectors: Vec<RowSelector> = Vec::new();
    let mut next = 0u32;
    for row in rows {
        match selectors.last_mut() {
            Some(last) if row == next && !last.skip => last.row_count += 1,
            _ => {
                if row > next {
                    selectors.push(RowSelector::skip((row - next) as usize));
                }
                selectors.push(RowSelector::select(1));
            }
        }
        next = row + 1;
    }
    RowSelection::from(selectors)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidewire_change::ErrorKind;

    #[test]
    fn a_data_file_that_is_gone_is_named_with_the_way_out() {
        let folder = tempfile::tempdir().unwrap();
        let error = read(&Store::new(folder.path()), "gone.parquet", &[], Rows::But(None), |_, _| Ok(())).unwrap_err();
        assert!(error.to_string().contains("gone.parquet") && error.to_string().contains("copied again"), "{error}");
    }

    #[test]
    fn a_full_disk_below_the_parquet_writer_is_told_as_one() {
        let full = io::Error::from(io::ErrorKind::StorageFull);
        let error = write_error("/lake/t/a.parquet", ParquetError::External(Box::new(full)));
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains("/lake/t/a.parquet") && error.to_string().contains("make room"), "{error}");
    }
}
