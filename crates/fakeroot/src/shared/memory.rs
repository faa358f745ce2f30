//! The words of a session as the table sees them.

use super::layout;
use core::sync::atomic::Ordering;

/// There is no memory left for an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Words of 64 bits that many processes share, and a lock for each stripe.
///
/// A trait, so that the table's rules stand apart from how its words are mapped.
pub trait Memory {
    /// Reads a word. One that cannot be reached reads as 0.
    fn load(&self, word: usize, order: Ordering) -> u64;
    /// Reads the fields of a node.
    #[inline]
    fn load_node(&self, node: u64) -> impl Fn(usize, Ordering) -> u64 {
        move |field, order| self.load(layout::node(node, field), order)
    }
    /// Writes a word, for which [`Memory::reserve`] was called or which stands in the first window.
    fn store(&self, word: usize, value: u64, order: Ordering);
    /// Adds to a word; what it was before.
    fn add(&self, word: usize, value: u64) -> u64;
    /// Sets bits of a word.
    fn set_bits(&self, word: usize, bits: u64, order: Ordering);
    /// Makes a word at least so large.
    fn raise(&self, word: usize, value: u64);
    /// A fence.
    fn fence(&self, order: Ordering);
    /// Gives memory to words, or says that there is none.
    fn reserve(&self, word: usize, words: usize) -> Result<(), Full>;
    /// Takes the memory of words away, which then read as 0.
    fn release(&self, word: usize, words: usize);
    /// Does something while holding a stripe's lock; a holder that died has given it up. Nothing, if the lock
    /// cannot be reached.
    fn locked<R>(&self, stripe: usize, work: impl FnOnce() -> R) -> Option<R>;
}
