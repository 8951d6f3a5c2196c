//! Rows put in the order that the configuration asks for.

use crate::rows::SortKeys;
use arrow_array::RecordBatch;
use arrow_select::interleave::interleave_record_batch;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use tidewire_change::{Error, Result};

/// Sorts rows in memory; each has a number of its own beside it.
pub struct Sorter {
    sort: SortKeys,
    batches: Vec<RecordBatch>,
    rows: Vec<Sorted>,
}

struct Sorted {
    order: Box<[u8]>,
    key: u128,
    /// The batch, and the row there.
    place: (usize, usize),
}

impl Sorter {
    pub fn new(sort: SortKeys) -> Sorter {
        Sorter { sort, batches: Vec::new(), rows: Vec::new() }
    }

    pub fn push(&mut self, batch: RecordBatch, keys: Vec<u128>) {
        let (at, sorted) = (self.batches.len(), self.sort.of(&batch));
        let rows = sorted.into_iter().zip(keys).enumerate();
        self.rows.extend(rows.map(|(row, (order, key))| Sorted { order, key, place: (at, row) }));
        self.batches.push(batch);
    }

    /// Calls `each` with so many rows in order, and their numbers.
    pub fn pieces(mut self, rows: usize, mut each: impl FnMut(RecordBatch, Vec<u128>) -> Result<()>) -> Result<()> {
        // Of equal rows the order in which they came stays.
        self.rows.sort_by(|a, b| a.order.cmp(&b.order));
        for piece in self.rows.chunks(rows.max(1)) {
            let places: Vec<(usize, usize)> = piece.iter().map(|row| row.place).collect();
            each(gather(&self.batches, &places)?, piece.iter().map(|row| row.key).collect())?;
        }
        Ok(())
    }
}

/// Takes the rows of sorted inputs in the order of all of them. An input that isn't sorted does no harm but to the order.
pub struct SortedMerge<I> {
    sort: SortKeys,
    inputs: Vec<I>,
    heap: BinaryHeap<Reverse<(Box<[u8]>, usize)>>,
    /// Per input its batch among `batches`, the sort keys of its rows, and its next row.
    heads: Vec<Option<Head>>,
    batches: Vec<RecordBatch>,
    taken: Vec<(usize, usize)>,
    /// The input of each row that was taken.
    origins: Vec<usize>,
}

struct Head {
    batch: usize,
    keys: Vec<Box<[u8]>>,
    next: usize,
}

impl<I: Iterator<Item = Result<RecordBatch>>> SortedMerge<I> {
    pub fn new(sort: SortKeys, inputs: Vec<I>) -> Result<SortedMerge<I>> {
        let heads = inputs.iter().map(|_| None).collect();
        let (heap, batches, taken, origins) = Default::default();
        let mut merge = SortedMerge { sort, inputs, heap, heads, batches, taken, origins };
        (0..merge.inputs.len()).try_for_each(|input| merge.refill(input))?;
        Ok(merge)
    }

    /// The next rows, and the input that each comes from; none at the end.
    pub fn next(&mut self, rows: usize) -> Result<Option<(RecordBatch, Vec<usize>)>> {
        while self.taken.len() < rows {
            let Some(Reverse((_, input))) = self.heap.pop() else { break };
            let Some(head) = &mut self.heads[input] else { continue };
            self.taken.push((head.batch, head.next));
            self.origins.push(input);
            head.next += 1;
            match head.keys.get_mut(head.next) {
                Some(key) => self.heap.push(Reverse((std::mem::take(key), input))),
                None => self.refill(input)?,
            }
        }
        if self.taken.is_empty() {
            return Ok(None);
        }
        let batch = gather(&self.batches, &std::mem::take(&mut self.taken))?;
        self.let_go();
        Ok(Some((batch, std::mem::take(&mut self.origins))))
    }

    fn refill(&mut self, input: usize) -> Result<()> {
        self.heads[input] = None;
        for batch in self.inputs[input].by_ref() {
            let batch = batch?;
            let mut keys = self.sort.of(&batch);
            if let Some(first) = keys.first_mut() {
                self.heap.push(Reverse((std::mem::take(first), input)));
                self.heads[input] = Some(Head { batch: self.batches.len(), keys, next: 0 });
                self.batches.push(batch);
                break;
            }
        }
        Ok(())
    }

    /// Keeps only the batches that have rows left.
    fn let_go(&mut self) {
        let mut kept = Vec::with_capacity(self.heads.len());
        for head in self.heads.iter_mut().flatten() {
            kept.push(self.batches[head.batch].clone());
            head.batch = kept.len() - 1;
        }
        self.batches = kept;
    }
}

fn gather(batches: &[RecordBatch], rows: &[(usize, usize)]) -> Result<RecordBatch> {
    let batches: Vec<&RecordBatch> = batches.iter().collect();
    interleave_record_batch(&batches, rows)
        .map_err(|e| Error::bug(format!("rows can't be put in order: {e}")).caused_by(e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::Physical;
    use arrow_array::cast::AsArray;
    use arrow_array::types::Int32Type;
    use arrow_array::{ArrayRef, Int32Array};
    use std::sync::Arc;

    fn batch(values: &[i32]) -> RecordBatch {
        RecordBatch::try_from_iter([("n", Arc::new(Int32Array::from(values.to_vec())) as ArrayRef)]).unwrap()
    }

    fn sort() -> SortKeys {
        SortKeys::new(vec![("n".into(), Physical::Integer)])
    }

    fn values(batch: &RecordBatch) -> Vec<i32> {
        batch.column(0).as_primitive::<Int32Type>().values().to_vec()
    }

    #[test]
    fn rows_come_in_order_with_what_stands_beside_them() {
        let mut sorter = Sorter::new(sort());
        sorter.push(batch(&[3, 1]), vec![30, 10]);
        sorter.push(batch(&[2, 1]), vec![20, 11]);
        let (mut rows, mut keys) = (Vec::new(), Vec::new());
        let each = |batch: RecordBatch, of: Vec<u128>| {
            rows.push(values(&batch));
            keys.extend(of);
            Ok(())
        };
        sorter.pieces(3, each).unwrap();
        assert_eq!((rows, keys), (vec![vec![1, 1, 2], vec![3]], vec![10, 11, 20, 30]));
    }

    #[test]
    fn sorted_inputs_become_one_and_each_row_says_where_it_came_from() {
        let inputs = [vec![batch(&[1, 4]), batch(&[]), batch(&[6])], vec![batch(&[2, 3, 5, 7])], vec![]];
        let inputs = inputs.map(|batches| batches.into_iter().map(Ok)).into_iter().collect();
        let mut merge = SortedMerge::new(sort(), inputs).unwrap();
        let (mut rows, mut origins) = (Vec::new(), Vec::new());
        while let Some((batch, from)) = merge.next(2).unwrap() {
            rows.extend(values(&batch));
            origins.extend(from);
            assert!(merge.batches.len() <= 2, "batches without a row are let go of");
        }
        assert_eq!((rows, origins), (vec![1, 2, 3, 4, 5, 6, 7], vec![0, 1, 1, 0, 1, 0, 1]));
    }
}
