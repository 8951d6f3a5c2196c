//! Reading of files piece by piece, as Parquet wants it.

use super::bucket::Bucket;
use bytes::Bytes;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};
use roaring::RoaringBitmap;
use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};
use tidewire_change::{Error, Result};

/// What is fetched at least.
const BLOCK: u64 = 64 << 10;
/// A file's end is fetched when it is opened: its footer is there, of small files all of it.
const TAIL: u64 = 256 << 10;
/// What is fetched by one request at most, and how many of them at once: so much is in memory.
const PIECE: u64 = 4 << 20;
const PIECES_AT_ONCE: usize = 4;

/// A file that is open for reading.
#[derive(Clone)]
pub enum Reader {
    File(Arc<File>, u64),
    Object(Spooled),
}

impl Reader {
    pub(super) fn of_file(file: File) -> Result<Reader> {
        let size = file.metadata().map_err(|e| Error::io(e, "an open file"))?.len();
        Ok(Reader::File(Arc::new(file), size))
    }

    pub(super) fn of_object(object: Spooled) -> Reader {
        Reader::Object(object)
    }

    /// These parts are about to be read: those of an object are fetched at once.
    pub fn fetch(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> Result<()> {
        match self {
            Reader::File(..) => Ok(()),
            Reader::Object(object) => object.fetch(ranges),
        }
    }

    /// Why the store didn't give what was read last, if it didn't: readers of Parquet pass on the text of an error only.
    pub fn take_failure(&self) -> Option<Error> {
        match self {
            Reader::File(..) => None,
            Reader::Object(object) => object.failure.lock().unwrap_or_else(PoisonError::into_inner).take(),
        }
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        match self {
            Reader::File(file, _) => file.read_at(buffer, at),
            Reader::Object(object) => object.read_at(buffer, at),
        }
    }
}

impl Length for Reader {
    fn len(&self) -> u64 {
        match self {
            Reader::File(_, size) => *size,
            Reader::Object(object) => object.size,
        }
    }
}

impl ChunkReader for Reader {
    type T = io::BufReader<From>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        Ok(io::BufReader::new(From { reader: self.clone(), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        // Before the memory is taken: the length may come from a damaged file.
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(ParquetError::EOF(format!("{length} bytes at {start} are beyond the file's end")));
        }
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            match self.read_at(&mut bytes[filled..], start + filled as u64)? {
                0 => return Err(ParquetError::EOF("the file has become shorter".into())),
                read => filled += read,
            }
        }
        Ok(bytes.into())
    }
}

/// Reads on from a place.
pub struct From {
    reader: Reader,
    at: u64,
}

impl Read for From {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.reader.read_at(buffer, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

/// An object of a bucket. What was fetched of it lies in a local file, which has no name and ends with the last reader.
#[derive(Clone)]
pub struct Spooled {
    store: Bucket,
    name: Arc<str>,
    size: u64,
    file: Arc<File>,
    /// Blocks that are there.
    fetched: Arc<Mutex<RoaringBitmap>>,
    failure: Arc<Mutex<Option<Error>>>,
}

impl Spooled {
    /// None when there is no such object.
    pub(super) fn open(store: Bucket, name: &str) -> Result<Option<Spooled>> {
        let Some(tail) = store.tail(name, TAIL)? else { return Ok(None) };
        let file = unnamed_file(&store)?;
        let (name, size) = (name.into(), tail.size);
        let spooled =
            Spooled { store, name, size, file: Arc::new(file), fetched: Arc::default(), failure: Arc::default() };
        spooled.keep(tail.range, &tail.bytes)?;
        Ok(Some(spooled))
    }

    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let length = (buffer.len() as u64).min(self.size.saturating_sub(at));
        if let Err(error) = self.fetch(std::iter::once(at..at + length)) {
            let text = error.to_string();
            *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            return Err(io::Error::other(text));
        }
        self.file.read_at(&mut buffer[..length as usize], at)
    }

    fn fetch(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> Result<()> {
        let mut missing = RoaringBitmap::new();
        for range in ranges.into_iter().filter(|range| !range.is_empty()) {
            missing.insert_range((range.start / BLOCK) as u32..=((range.end.min(self.size) - 1) / BLOCK) as u32);
        }
        missing -= &*self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        if missing.is_empty() {
            return Ok(());
        }
        let mut pieces: Vec<Range<u64>> = Vec::new();
        for block in missing {
            let start = u64::from(block) * BLOCK;
            let end = (start + BLOCK).min(self.size);
            match pieces.last_mut() {
                Some(last) if last.end == start && end - last.start <= PIECE => last.end = end,
                _ => pieces.push(start..end),
            }
        }
        self.store.parts(&self.name, pieces, PIECES_AT_ONCE, |part| self.keep(part.range, &part.bytes))
    }

    fn keep(&self, range: Range<u64>, bytes: &[u8]) -> Result<()> {
        let place = || self.store.place(&self.name);
        if range.end - range.start != bytes.len() as u64 {
            return Err(Error::unavailable(format!("{}: the store gave less than it said", place())));
        }
        self.file.write_all_at(bytes, range.start).map_err(|e| Error::io(e, self.store.cache_dir().display()))?;
        // Blocks that are whole.
        let first = range.start.div_ceil(BLOCK) as u32;
        let end = if range.end == self.size { self.size.div_ceil(BLOCK) } else { range.end / BLOCK } as u32;
        let mut fetched = self.fetched.lock().unwrap_or_else(PoisonError::into_inner);
        fetched.insert_range(first..end.max(first));
        Ok(())
    }
}

fn unnamed_file(store: &Bucket) -> Result<File> {
    let folder = store.cache_dir();
    let path = folder.join(format!(".part.{}.tmp", uuid::Uuid::new_v4().simple()));
    let make = || {
        std::fs::create_dir_all(folder)?;
        let file = File::options().read(true).write(true).create_new(true).open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(file)
    };
    make().map_err(|e| Error::io(e, path.display()))
}
