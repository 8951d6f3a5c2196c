//! Owns: keys, guard, reduce, multiset, hashes and digests of rows: pure functions (floor 1).
//! May import: change.
//! Never imports: I/O, clocks, tokio, any other crate of the workspace.

mod digest;
mod guard;
mod hash;
mod key;
mod merge;
mod multiset;
mod reduce;

pub use digest::{bucket, row_hash, Digest, RowHasher};
pub use guard::passes;
pub use hash::{key_hash128, murmur2, partition};
pub use key::{change_key, key_of};
pub use merge::{applied, merge_row, Applied};
pub use multiset::{resolve, Copied, Event, Resolved};
pub use reduce::{reduce, Reduced};
pub use tidewire_change::text;
