//! Memory for what builds write: much of it is small, read once, and thrown away.
//!
//! A build gets a file system of its own in memory if twice what it is expected to write fits into half of the memory
//! that was there at the start, less what other builds were promised. It is as large as the promise, so that a build that
//! was guessed wrongly takes nothing from others: it finds no space, and is built again on the disk.

use kilnyard_process::pressure;
use kilnyard_root::{Usage, usage, used_bytes};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// A build is promised so many times of what it is expected to write: guesses are rough.
const MARGIN: u64 = 2;
/// Less than this is promised to nobody, since even a small package unpacks sources.
const PROMISED_BYTES_MIN: u64 = 64 << 20;
/// A part of the machine's memory, as a divisor.
const PART_OF_MEMORY: u64 = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct Memory {
    room_bytes: Mutex<u64>,
    /// What layers hold, which do not change.
    layers: Mutex<HashMap<PathBuf, Usage>>,
}

/// Room in memory. Dropping it gives it back: what it was used for has to be gone before.
#[derive(Debug)]
pub(crate) struct Promise {
    memory: Arc<Memory>,
    /// How much it is.
    pub(crate) bytes: u64,
}

impl Memory {
    pub(crate) fn new(is_wanted: bool) -> Memory {
        let room_bytes =
            if is_wanted { pressure::available_bytes().unwrap_or(0) / PART_OF_MEMORY } else { 0 };
        Memory { room_bytes: Mutex::new(room_bytes), layers: Mutex::default() }
    }

    /// So much room; none where there is less.
    pub(crate) fn promise(self: &Arc<Self>, bytes: u64) -> Option<Promise> {
        let mut room = self.room_bytes.lock().ok()?;
        *room = room.checked_sub(bytes)?;
        Some(Promise { memory: self.clone(), bytes })
    }

    /// What a copy of a layer takes.
    pub(crate) fn layer(&self, layer: &Path) -> Usage {
        let Ok(mut known) = self.layers.lock() else { return of_copy(layer) };
        *known.entry(layer.to_owned()).or_insert_with(|| of_copy(layer))
    }
}

/// A file that has names outside of the layer too is a whole file in the copy.
fn of_copy(layer: &Path) -> Usage {
    Usage { bytes: used_bytes(layer), ..usage(layer, u64::MAX) }
}

/// What is promised to a build that is expected to write so much, besides so much that is known.
pub(crate) fn promised_bytes(expected_bytes: u64, known_bytes: u64) -> u64 {
    expected_bytes.saturating_mul(MARGIN).max(PROMISED_BYTES_MIN).saturating_add(known_bytes)
}

impl Drop for Promise {
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
    fn a_layer_whose_files_have_names_elsewhere_counts_whole() {
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
    fn no_more_is_promised_than_there_is() {
        let room_bytes = Mutex::new(3 * PROMISED_BYTES_MIN);
        let memory = Arc::new(Memory { room_bytes, layers: Mutex::default() });
        let first = memory.promise(promised_bytes(1, 0)).unwrap();
        assert_eq!(first.bytes, PROMISED_BYTES_MIN);
        assert!(memory.promise(promised_bytes(2 * PROMISED_BYTES_MIN, 0)).is_none());
        assert!(memory.promise(promised_bytes(1, 2 * PROMISED_BYTES_MIN)).is_none());
        let second = memory.promise(promised_bytes(PROMISED_BYTES_MIN, 0)).unwrap();
        assert!(memory.promise(promised_bytes(1, 0)).is_none());
        drop(second);
        assert_eq!(
            memory.promise(promised_bytes(1, PROMISED_BYTES_MIN)).unwrap().bytes,
            2 * PROMISED_BYTES_MIN
        );
        assert!(Arc::new(Memory::new(false)).promise(promised_bytes(1, 0)).is_none());
    }
}
