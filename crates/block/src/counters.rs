//! What a device did, in numbers: in place of a log.

use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$meta:meta])* $name:ident,)*) => {
        /// What a device did since it began.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct Counters {
            $($(#[$meta])* pub $name: u64,)*
        }

        /// Counters that several threads add to.
        #[derive(Debug, Default)]
        pub(crate) struct Counting {
            $(pub(crate) $name: AtomicU64,)*
        }

        impl Counting {
            pub(crate) fn read(&self) -> Counters {
                Counters { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Requests to read.
    reads,
    /// Bytes that were read.
    read_bytes,
    /// Requests to write.
    writes,
    /// Bytes that were written.
    written_bytes,
    /// Bytes of blocks that were written although they had been written before.
    rewritten_bytes,
    /// Requests to flush. Unless flushes are kept, they cost nothing else.
    flushes,
    /// Bytes that were discarded or replaced by zeros without being sent.
    discarded_bytes,
    /// Bytes that moved from memory to the file.
    spilled_bytes,
    /// Bytes that were read from the file.
    restored_bytes,
    /// The most bytes of blocks in memory at one time.
    memory_bytes_max,
}

impl Counters {
    /// Bytes that were written and never left memory, at least.
    pub fn kept_in_memory_bytes(&self) -> u64 {
        self.written_bytes.saturating_sub(self.spilled_bytes)
    }
}

pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}
