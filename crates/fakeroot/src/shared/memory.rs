//! The words of a session as the table sees them.

use super::layout;
use core::sync::atomic::Ordering;

/// No memory is left for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Words of 64 bits that many processes share, and a lock for each stripe.
///
/// A trait, to keep the table's rules separate from how its words are mapped.
pub trait Memory {
    /// Reads a word. An unreachable word reads as 0.
    fn load(&self, word: usize, order: Ordering) -> u64;
    /// Reads the fields of a node.
    #[inline]
    fn load_node(&self, node: u64) -> impl Fn(usize, Ordering) -> u64 {
        move |field, order| self.load(layout::node(node, field), order)
    }
    /// Writes a word, which is in the first window or for which [`Memory::reserve`] was called.
    fn store(&self, word: usize, value: u64, order: Ordering);
    /// Adds to a word and returns its previous value.
    fn add(&self, word: usize, value: u64) -> u64;
    /// Sets bits in a word.
    fn set_bits(&self, word: usize, bits: u64, order: Ordering);
    /// Raises a word to at least this value.
    fn raise(&self, word: usize, value: u64);
    /// A memory fence of this order.
    fn fence(&self, order: Ordering);
    /// Allocates memory for words; [`Full`] if none is left.
    fn reserve(&self, word: usize, words: usize) -> Result<(), Full>;
    /// Releases the memory of words, which then read as 0.
    fn release(&self, word: usize, words: usize);
    /// Runs `work` while holding a stripe's lock; the lock of a dead holder is free. Returns `None`, without
    /// running it, if the lock cannot be reached.
    fn locked<R>(&self, stripe: usize, work: impl FnOnce() -> R) -> Option<R>;
}
