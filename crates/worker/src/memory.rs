//! Memory for the files that builds write: most are small, read once, and discarded.
//!
//! A build gets its own file system in memory if twice its expected writes fit into half of the memory available at the
//! start, minus what other builds have reserved. The file system is as large as the reservation, so that a wrong
//! estimate takes no memory from other builds: the build runs out of space, and is built again on the disk.

use kilnyard_process::pressure;
use kilnyard_root::{Usage, usage, used_bytes};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A build reserves this multiple of its expected writes, since estimates are rough.
const MARGIN: u64 = 2;
/// The smallest reservation, since even a small package unpacks sources.
const RESERVED_BYTES_MIN: u64 = 64 << 20;
/// Builds get this fraction of the available memory, as a divisor.
const PART_OF_MEMORY: u64 = 2;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct Memory {
    room_bytes: Mutex<u64>,
    /// Sizes of layers, which never change.
    layers: Mutex<HashMap<PathBuf, Usage>>,
}

/// Reserved memory. Dropping this releases the reservation, so the files in it must be gone before.
#[derive(Debug)]
pub(crate) struct Reservation {
    memory: Arc<Memory>,
    pub(crate) bytes: u64,
}

impl Memory {
    pub(crate) fn new(is_wanted: bool) -> Memory {
        let room_bytes =
            if is_wanted { pressure::available_bytes().unwrap_or(0) / PART_OF_MEMORY } else { 0 };
        Memory { room_bytes: Mutex::new(room_bytes), layers: Mutex::default() }
    }

    /// Reserves memory. `None` if there is not enough.
    pub(crate) fn reserve(self: &Arc<Self>, bytes: u64) -> Option<Reservation> {
        let mut room = self.room_bytes.lock().ok()?;
        *room = room.checked_sub(bytes)?;
        Some(Reservation { memory: self.clone(), bytes })
    }

    /// The size of a copy of a layer.
    pub(crate) fn layer(&self, layer: &Path) -> Usage {
        let Ok(mut known) = self.layers.lock() else { return of_copy(layer) };
        *known.entry(layer.to_owned()).or_insert_with(|| of_copy(layer))
    }
}

/// A file with hard links outside the layer is a separate file in the copy, so it counts in full.
fn of_copy(layer: &Path) -> Usage {
    Usage { bytes: used_bytes(layer), ..usage(layer, u64::MAX) }
}

/// The reservation for a build: `expected_bytes` is an estimate of its writes, `known_bytes` an exact size in addition.
pub(crate) fn reserved_bytes(expected_bytes: u64, known_bytes: u64) -> u64 {
    expected_bytes.saturating_mul(MARGIN).max(RESERVED_BYTES_MIN).saturating_add(known_bytes)
}

impl Drop for Reservation {
    fn drop(&mut self) {
        if let Ok(mut room) = self.memory.room_bytes.lock() {
            *room += self.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_with_links_outside_its_layer_counts_in_full() {
        let folder = tempfile::tempdir().unwrap();
        let layer = folder.path().join("layer");
        fs_err::create_dir(&layer).unwrap();
        fs_err::write(layer.join("file"), vec![1; 1 << 20]).unwrap();
        for name in ["one", "two", "three"] {
            fs_err::hard_link(layer.join("file"), folder.path().join(name)).unwrap();
        }
        assert!(of_copy(&layer).bytes >= 1 << 20);
    }

    #[test]
    fn promises_never_exceed_the_available_memory() {
        let room_bytes = Mutex::new(3 * RESERVED_BYTES_MIN);
        let memory = Arc::new(Memory { room_bytes, layers: Mutex::default() });
        let first = memory.reserve(reserved_bytes(1, 0)).unwrap();
        assert_eq!(first.bytes, RESERVED_BYTES_MIN);
        assert!(memory.reserve(reserved_bytes(2 * RESERVED_BYTES_MIN, 0)).is_none());
        assert!(memory.reserve(reserved_bytes(1, 2 * RESERVED_BYTES_MIN)).is_none());
        let second = memory.reserve(reserved_bytes(RESERVED_BYTES_MIN, 0)).unwrap();
        assert!(memory.reserve(reserved_bytes(1, 0)).is_none());
        drop(second);
        assert_eq!(
            memory.reserve(reserved_bytes(1, RESERVED_BYTES_MIN)).unwrap().bytes,
            2 * RESERVED_BYTES_MIN
        );
        assert!(Arc::new(Memory::new(false)).reserve(reserved_bytes(1, 0)).is_none());
    }
}
