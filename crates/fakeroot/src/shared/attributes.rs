//! The extended attributes of an inode: one immutable list that its entry points to.
//!
//! To set one, a new list is written, and one store points the entry to it, so a reader sees either the old list or
//! the new one. The list contains, in order:
//!
//! ```text
//! word 0             number of bytes that follow
//! per attribute      u32 length of the name, u32 length of the value or ABSENT, name, value
//! ```
//!
//! [`ABSENT`] means that the file appears without this attribute, even if the disk has it.

use super::layout::{ATTRIBUTES_AT, ATTRIBUTES_MAX, ATTRIBUTES_STEP, WORD_BYTES};
use super::layout::{HEADER_ATTRIBUTES, HEADER_ATTRIBUTES_READY};
use super::memory::{Full, Memory};
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// In place of a length: the attribute is absent.
pub const ABSENT: u32 = u32::MAX;
/// Maximum length of a value, as in the kernel (XATTR_SIZE_MAX).
pub const VALUE_BYTES_MAX: usize = 65_536;
/// Maximum length of a name, as in the kernel (XATTR_NAME_MAX).
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum length of an inode's list.
pub const LIST_BYTES_MAX: u64 = 1 << 20;

/// Where an attribute is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keeper {
    /// In the table: the disk would refuse it.
    Table,
    /// On the disk, or in the table where the file system does not support it.
    Disk,
    /// Nowhere: access lists are refused as by a file system without support, so that `cp -a` and `install`
    /// fall back to `chmod`, which is intercepted.
    Nowhere,
}

/// Where an attribute of this name is kept.
pub fn keeper(name: &[u8]) -> Keeper {
    if name.starts_with(b"security.") || name.starts_with(b"trusted.") {
        Keeper::Table
    } else if name.starts_with(b"system.posix_acl_") {
        Keeper::Nowhere
    } else {
        Keeper::Disk
    }
}

/// Whether the table keeps an attribute that the file system does not support.
pub fn is_kept_for_disk(name: &[u8]) -> bool {
    name.starts_with(b"user.")
}

const HEAD_BYTES: u64 = 8;

/// An attribute in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribute {
    name_at: u64,
    /// Length of the name in bytes.
    pub name_bytes: u32,
    /// Length of the value in bytes, or [`ABSENT`].
    pub value_bytes: u32,
}

impl Attribute {
    fn end(&self) -> u64 {
        let value = if self.value_bytes == ABSENT { 0 } else { u64::from(self.value_bytes) };
        self.name_at + u64::from(self.name_bytes) + value
    }
}

/// A byte of the attribute area.
fn byte<M: Memory>(memory: &M, at: u64) -> u8 {
    let word = memory.load(ATTRIBUTES_AT + at as usize / WORD_BYTES, Relaxed);
    word.to_le_bytes()[at as usize % WORD_BYTES]
}

fn half_word<M: Memory>(memory: &M, at: u64) -> u32 {
    u32::from_le_bytes([0, 1, 2, 3].map(|offset| byte(memory, at + offset)))
}

/// The attributes of a list, given as entries point to it: its word number plus one, 0 for none.
pub fn all<M: Memory>(memory: &M, list: u64) -> impl Iterator<Item = Attribute> {
    let begin = list.saturating_sub(1) * WORD_BYTES as u64;
    let bytes = if list == 0 { 0 } else { memory.load(ATTRIBUTES_AT + list as usize - 1, Acquire) };
    let end = begin + HEAD_BYTES + bytes.min(LIST_BYTES_MAX);
    let mut at = begin + HEAD_BYTES;
    core::iter::from_fn(move || {
        if at + HEAD_BYTES > end {
            return None;
        }
        let attribute = Attribute {
            name_at: at + HEAD_BYTES,
            name_bytes: half_word(memory, at),
            value_bytes: half_word(memory, at + 4),
        };
        at = attribute.end();
        (at <= end).then_some(attribute)
    })
}

/// The attribute of this name; `None` if the list does not mention it, which differs from [`ABSENT`].
pub fn find<M: Memory>(memory: &M, list: u64, name: &[u8]) -> Option<Attribute> {
    all(memory, list).find(|attribute| is_named(memory, attribute, name))
}

fn is_named<M: Memory>(memory: &M, attribute: &Attribute, name: &[u8]) -> bool {
    attribute.name_bytes as usize == name.len()
        && name.iter().zip(attribute.name_at..).all(|(letter, at)| *letter == byte(memory, at))
}

/// Copies the attribute's name.
pub fn copy_name<M: Memory>(memory: &M, attribute: &Attribute, to: &mut [u8]) {
    for (place, at) in to.iter_mut().zip(attribute.name_at..) {
        *place = byte(memory, at);
    }
}

/// Copies the attribute's value, which must not be absent.
pub fn copy_value<M: Memory>(memory: &M, attribute: &Attribute, to: &mut [u8]) {
    let at = attribute.name_at + u64::from(attribute.name_bytes);
    for (place, at) in to.iter_mut().zip(at..) {
        *place = byte(memory, at);
    }
}

/// Writes bytes in order into newly allocated words.
struct Writer<'a, M: Memory> {
    memory: &'a M,
    at: usize,
    word: [u8; WORD_BYTES],
    filled: usize,
}

impl<M: Memory> Writer<'_, M> {
    fn put(&mut self, byte: u8) {
        self.word[self.filled] = byte;
        self.filled += 1;
        if self.filled == WORD_BYTES {
            self.flush();
        }
    }

    fn put_all(&mut self, bytes: impl IntoIterator<Item = u8>) {
        bytes.into_iter().for_each(|byte| self.put(byte));
    }

    fn flush(&mut self) {
        self.memory.store(self.at, u64::from_le_bytes(self.word), Relaxed);
        self.at += 1;
        self.filled = 0;
        self.word = [0; WORD_BYTES];
    }
}

/// Copies a list with a new value for this name; `None` makes it absent. The copy is invisible until an entry
/// points to it.
pub fn with<M: Memory>(memory: &M, list: u64, name: &[u8], value: Option<&[u8]>) -> Result<u64, Full> {
    without(memory, list, |memory, attribute| is_named(memory, attribute, name), Some((name, value)))
}

/// Copies a list without the attributes that `goes` selects, and appends `more`.
pub fn without<M: Memory>(
    memory: &M,
    list: u64,
    goes: impl Fn(&M, &Attribute) -> bool,
    more: Option<(&[u8], Option<&[u8]>)>,
) -> Result<u64, Full> {
    let kept = || all(memory, list).filter(|attribute| !goes(memory, attribute));
    let added =
        more.map_or(0, |(name, value)| HEAD_BYTES + (name.len() + value.map_or(0, <[u8]>::len)) as u64);
    let bytes = kept().map(|attribute| attribute.end() - attribute.name_at + HEAD_BYTES).sum::<u64>() + added;
    if bytes > LIST_BYTES_MAX {
        return Err(Full);
    }
    let words = 1 + bytes.div_ceil(WORD_BYTES as u64);
    let first = take_words(memory, words)?;
    memory.store(ATTRIBUTES_AT + first as usize, bytes, Relaxed);
    let mut writer =
        Writer { memory, at: ATTRIBUTES_AT + first as usize + 1, word: [0; WORD_BYTES], filled: 0 };
    for attribute in kept() {
        writer.put_all((attribute.name_at - HEAD_BYTES..attribute.end()).map(|at| byte(memory, at)));
    }
    if let Some((name, value)) = more {
        writer.put_all((name.len() as u32).to_le_bytes());
        writer.put_all(value.map_or(ABSENT, |value| value.len() as u32).to_le_bytes());
        writer.put_all(name.iter().copied());
        writer.put_all(value.unwrap_or_default().iter().copied());
    }
    if writer.filled != 0 {
        writer.flush();
    }
    Ok(first + 1)
}

fn take_words<M: Memory>(memory: &M, words: u64) -> Result<u64, Full> {
    let first = memory.add(HEADER_ATTRIBUTES, words);
    let end = first.saturating_add(words);
    if end > ATTRIBUTES_MAX {
        return Err(Full);
    }
    let ready = memory.load(HEADER_ATTRIBUTES_READY, Acquire);
    if end > ready {
        // Start at the step of our own words: earlier steps are reserved by the processes that took words
        // in them.
        let begin = first / ATTRIBUTES_STEP * ATTRIBUTES_STEP;
        let end = end.div_ceil(ATTRIBUTES_STEP) * ATTRIBUTES_STEP;
        memory.reserve(ATTRIBUTES_AT + begin as usize, (end - begin) as usize)?;
        if begin <= ready {
            memory.raise(HEADER_ATTRIBUTES_READY, end);
        }
    }
    Ok(first)
}
