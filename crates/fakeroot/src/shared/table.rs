//! The table of a session's inodes.
//!
//! **Finding** takes no lock and never waits. The filter answers for almost all inodes. Otherwise, the stripe's part of
//! the index is searched from the hash's slot to the first empty one; a slot names a node, and the node's key is
//! compared. A reader reads a node's generation, its key, its words, and the generation again; if that changed in
//! between, the search restarts. A dead generation is skipped, not waited for, so a writer that is killed at any point
//! blocks no reader. A miss counts only if the part was not replaced in the meantime.
//!
//! **Changing** takes the lock of the stripe. A change of owner or mode is a store of one word; if another file has
//! reused the inode, the node dies and starts another life. A new entry is written to a dead node, made alive, and
//! then put into a slot. A kill before that leaves a node that cannot be reached, and nothing else. Removal makes
//! the node dead, clears the slot, and puts the node on the stripe's list; after a kill in between, the slot names
//! a dead node, which is equivalent to a cleared slot, and the node is lost.
//!
//! **Growing** builds the next level's part under the lock of the stripe and then stores the level. After a kill
//! before that, the next writer starts over. The old part is released; a reader that is still in it finds zeros,
//! which is a miss, and checks the level again.
//!
//! Known downside: replaced attributes, and nodes lost by a kill, are not reused.

use super::layout::{self, Hash};
use super::memory::{Full, Memory};
use super::ownership::{self, Change as LastChange, View};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// A device and an inode number, which together identify a file at one time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileId {
    /// The device, as `stat` reports it.
    pub device: u64,
    /// The inode number.
    pub inode: u64,
}

/// The recorded state of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Entry {
    /// The user id.
    pub user: u32,
    /// The group id.
    pub group: u32,
    /// The mode, including the file type.
    pub mode: u32,
    /// The device number, as the kernel packs it into 32 bits.
    pub number: u32,
    /// The file's birth time, in nanoseconds since 1970; 0 if unknown.
    pub birth: u64,
    /// The number of hard links, for saved states only.
    pub links: u64,
    /// The inode's last change, if that was long before the entry was written.
    pub change: LastChange,
    /// The position of its attributes, plus one; 0 for none.
    pub attributes: u64,
}

impl Entry {
    fn owner_word(&self) -> u64 {
        u64::from(self.user) | u64::from(self.group) << 32
    }

    fn mode_word(&self) -> u64 {
        u64::from(self.mode) | u64::from(self.number) << 32
    }

    fn links_word(&self) -> u64 {
        self.links & u64::from(u32::MAX) | u64::from(self.change.0) << 32
    }
}

/// A slot that was used and is free again: a search continues after it.
const CLEARED: u64 = u32::MAX as u64;

/// The table in some memory.
#[derive(Debug)]
pub struct Table<M> {
    memory: M,
}

/// Where an inode's entry would be.
#[derive(Clone, Copy, Debug)]
pub struct Trace {
    key: FileId,
    hash: Hash,
}

/// Where an entry was found.
#[derive(Clone, Copy, Debug)]
struct Slot {
    slot: usize,
    node: u64,
}

/// The decision about an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Leave it unchanged.
    Keep,
    /// Store this entry.
    Put(Entry),
    /// Remove the entry.
    Remove,
}

impl<M: Memory> Table<M> {
    /// A table in this memory, which must be zeroed or hold a table already.
    pub const fn new(memory: M) -> Table<M> {
        Table { memory }
    }

    /// The memory that holds the table.
    pub const fn memory(&self) -> &M {
        &self.memory
    }

    /// Whether nothing was ever inserted.
    #[inline]
    pub fn is_untouched(&self) -> bool {
        self.memory.load(layout::HEADER_EVER, Acquire) == 0
    }

    /// Whether an inode may be in the table. `false` is certain.
    #[inline]
    pub fn may_have(&self, key: FileId) -> bool {
        self.trace(key).is_some()
    }

    /// Where an inode's entry would be; `None` if the inode is certainly not in the table.
    #[inline]
    pub fn trace(&self, key: FileId) -> Option<Trace> {
        if self.is_untouched() {
            return None;
        }
        let hash = Hash::of(key.device, key.inode);
        let (word, bit) = hash.filter();
        (self.memory.load(word, Acquire) & bit != 0).then_some(Trace { key, hash })
    }

    /// The entry of an inode.
    #[inline]
    pub fn find(&self, key: FileId) -> Option<Entry> {
        self.search(self.trace(key)?)
    }

    /// How the file with this inode, mode and last change appears, if its entry is certainly about it
    /// ([`ownership::is_certainly_of`]); `None` if deciding takes more facts. This is the most frequent query for
    /// files with an entry, so it does not read the rest of the entry.
    pub fn certain_view(&self, trace: Trace, mode: u32, change: LastChange) -> Option<View> {
        let stripe = trace.hash.stripe();
        let level = self.level(stripe, Acquire);
        let found = self.search_part_for(trace, stripe, level, |node| {
            let entry = Entry {
                mode: node(layout::NODE_MODE) as u32,
                change: change_of(node(layout::NODE_LINKS)),
                ..Entry::default()
            };
            let (owner, number) = (node(layout::NODE_OWNER), (node(layout::NODE_MODE) >> 32) as u32);
            let look = View { user: owner as u32, group: (owner >> 32) as u32, mode: entry.mode, number };
            ownership::is_certainly_about(&entry, mode, change).then_some(look)
        });
        found.ok()??.1
    }

    #[cold]
    fn search(&self, trace: Trace) -> Option<Entry> {
        let Trace { key, hash } = trace;
        let stripe = hash.stripe();
        loop {
            let level = self.level(stripe, Acquire);
            match self.search_part(key, hash, stripe, level) {
                Ok(Some((_, entry))) => return Some(entry),
                // The entry was found, but its node started another life during the read.
                Err(Changed) => {}
                Ok(None) => {
                    self.memory.fence(Acquire);
                    if self.level(stripe, Relaxed) == level {
                        return None;
                    }
                }
            }
        }
    }

    fn level(&self, stripe: usize, order: core::sync::atomic::Ordering) -> usize {
        let level = self.memory.load(layout::stripe(stripe, layout::STRIPE_LEVEL), order);
        (level as usize).min(layout::LEVELS - 1)
    }

    /// Searches one part; `Changed` if the node with this key started another life during the read.
    fn search_part(
        &self,
        key: FileId,
        hash: Hash,
        stripe: usize,
        level: usize,
    ) -> Result<Option<(Slot, Entry)>, Changed> {
        self.search_part_for(Trace { key, hash }, stripe, level, |node| {
            let (owner, mode, links) =
                (node(layout::NODE_OWNER), node(layout::NODE_MODE), node(layout::NODE_LINKS));
            Entry {
                user: owner as u32,
                group: (owner >> 32) as u32,
                mode: mode as u32,
                number: (mode >> 32) as u32,
                birth: node(layout::NODE_BIRTH),
                links: links & u64::from(u32::MAX),
                change: change_of(links),
                attributes: node(layout::NODE_ATTRIBUTES),
            }
        })
    }

    /// The same, with `take` choosing what to read from the node's fields.
    #[inline]
    fn search_part_for<T>(
        &self,
        Trace { key, hash }: Trace,
        stripe: usize,
        level: usize,
        take: impl Fn(&dyn Fn(usize) -> u64) -> T,
    ) -> Result<Option<(Slot, T)>, Changed> {
        let slots = layout::part_slots(level);
        let part = layout::part_at(level, stripe);
        for step in 0..slots {
            let slot = part + ((hash.slot(slots) + step) & (slots - 1));
            let value = self.memory.load(slot, Acquire);
            if value == 0 {
                break;
            }
            if value == CLEARED || value & !u64::from(u32::MAX) != hash.tag() {
                continue;
            }
            let node = (value & u64::from(u32::MAX)) - 1;
            if let Some(taken) = self.read(node, key, &take)? {
                return Ok(Some((Slot { slot, node }, taken)));
            }
        }
        Ok(None)
    }

    /// Reads a node, if it is alive and has this key.
    #[inline]
    fn read<T>(
        &self,
        node: u64,
        key: FileId,
        take: impl Fn(&dyn Fn(usize) -> u64) -> T,
    ) -> Result<Option<T>, Changed> {
        let load = self.memory.load_node(node);
        // The attributes were written before the field that points to them.
        let field = |field| load(field, if field == layout::NODE_ATTRIBUTES { Acquire } else { Relaxed });
        let generation = load(layout::NODE_GENERATION, Acquire);
        if generation.is_multiple_of(2) {
            return Ok(None);
        }
        let is_it = field(layout::NODE_DEVICE) == key.device && field(layout::NODE_INODE) == key.inode;
        let taken = take(&field);
        self.memory.fence(Acquire);
        if field(layout::NODE_GENERATION) != generation {
            return Err(Changed);
        }
        Ok(is_it.then_some(taken))
    }

    /// Changes the entry of an inode, excluding other writers of its stripe: `decide` receives the current entry
    /// and returns the change.
    pub fn change(&self, key: FileId, decide: impl FnOnce(Option<Entry>) -> Change) -> Result<(), Full> {
        let hash = Hash::of(key.device, key.inode);
        let stripe = hash.stripe();
        self.memory.locked(stripe, || self.change_locked(key, hash, stripe, decide)).unwrap_or(Err(Full))
    }

    fn change_locked(
        &self,
        key: FileId,
        hash: Hash,
        stripe: usize,
        decide: impl FnOnce(Option<Entry>) -> Change,
    ) -> Result<(), Full> {
        let level = self.level(stripe, Acquire);
        // Under the lock, no other writer can start a node's new life.
        let found = self.search_part(key, hash, stripe, level).unwrap_or_default();
        match (found, decide(found.map(|(_, entry)| entry))) {
            (_, Change::Keep) | (None, Change::Remove) => Ok(()),
            (None, Change::Put(entry)) => self.insert(key, hash, stripe, entry),
            (Some((place, old)), Change::Put(entry)) if is_other_file(&old, &entry) => {
                self.begin_anew(place.node, &entry);
                Ok(())
            }
            (Some((place, old)), Change::Put(entry)) => {
                self.update(place.node, &old, &entry);
                Ok(())
            }
            (Some((place, _)), Change::Remove) => {
                self.remove(place, stripe, level);
                Ok(())
            }
        }
    }

    /// Stores the words that differ, the owner last: a reader must not see a new owner with the old set-id bits,
    /// which `chown` removes.
    fn update(&self, node: u64, old: &Entry, new: &Entry) {
        let store = |field, old: u64, new: u64| {
            if old != new {
                self.memory.store(layout::node(node, field), new, Release);
            }
        };
        store(layout::NODE_ATTRIBUTES, old.attributes, new.attributes);
        store(layout::NODE_LINKS, old.links_word(), new.links_word());
        store(layout::NODE_BIRTH, old.birth, new.birth);
        store(layout::NODE_MODE, old.mode_word(), new.mode_word());
        store(layout::NODE_OWNER, old.owner_word(), new.owner_word());
    }

    /// Gives the node to another file with the same inode: no reader may see words of both. A kill in between
    /// leaves a dead node.
    fn begin_anew(&self, node: u64, entry: &Entry) {
        let memory = &self.memory;
        let word = layout::node(node, layout::NODE_GENERATION);
        let generation = memory.load(word, Relaxed);
        memory.store(word, generation + 1, Release);
        memory.fence(Release);
        self.write(node, entry);
        memory.store(word, generation + 2, Release);
    }

    /// Writes the words of a dead node.
    fn write(&self, node: u64, entry: &Entry) {
        let store = |field, value| self.memory.store(layout::node(node, field), value, Relaxed);
        store(layout::NODE_OWNER, entry.owner_word());
        store(layout::NODE_MODE, entry.mode_word());
        store(layout::NODE_BIRTH, entry.birth);
        store(layout::NODE_ATTRIBUTES, entry.attributes);
        store(layout::NODE_LINKS, entry.links_word());
    }

    fn insert(&self, key: FileId, hash: Hash, stripe: usize, entry: Entry) -> Result<(), Full> {
        let memory = &self.memory;
        let used = layout::stripe(stripe, layout::STRIPE_USED);
        let mut level = self.level(stripe, Relaxed);
        // Consecutive inodes fill eight consecutive slots: with fewer empty slots, searches would become long.
        if memory.load(used, Relaxed) as usize >= layout::part_slots(level) / 2 {
            level = self.grow(stripe, level)?;
        }
        let node = self.take_node(stripe)?;
        let store = |field, value| memory.store(layout::node(node, field), value, Relaxed);
        let generation = memory.load(layout::node(node, layout::NODE_GENERATION), Relaxed);
        // If the node ever lived, it was made dead before the following stores: a reader that is still in it sees
        // that.
        memory.fence(Release);
        store(layout::NODE_DEVICE, key.device);
        store(layout::NODE_INODE, key.inode);
        self.write(node, &entry);
        memory.store(layout::node(node, layout::NODE_GENERATION), generation | 1, Release);
        // The filter must have the bit before the index has the entry.
        let (word, bit) = hash.filter();
        if memory.load(word, Relaxed) & bit == 0 {
            memory.set_bits(word, bit, Release);
        }
        if memory.load(layout::HEADER_EVER, Relaxed) == 0 {
            memory.store(layout::HEADER_EVER, 1, Release);
        }
        // Counted before use: a kill in between must not make the count too small.
        memory.store(used, memory.load(used, Relaxed) + 1, Relaxed);
        if !self.put(hash, stripe, level, hash.tag() | (node + 1)) {
            memory.store(used, memory.load(used, Relaxed) - 1, Relaxed);
        }
        Ok(())
    }

    /// Puts a value into the first free slot of its search; returns whether that slot was empty. A free slot always
    /// exists, because half of the slots are never used.
    fn put(&self, hash: Hash, stripe: usize, level: usize, value: u64) -> bool {
        let memory = &self.memory;
        let slots = layout::part_slots(level);
        let part = layout::part_at(level, stripe);
        for step in 0..slots {
            let slot = part + ((hash.slot(slots) + step) & (slots - 1));
            let there = memory.load(slot, Relaxed);
            if there == 0 || there == CLEARED {
                memory.store(slot, value, Release);
                return there == 0;
            }
        }
        false
    }

    /// Takes a dead node: a freed one, or one that was never used.
    fn take_node(&self, stripe: usize) -> Result<u64, Full> {
        let memory = &self.memory;
        let head = layout::stripe(stripe, layout::STRIPE_FREE);
        let first = memory.load(head, Relaxed);
        if first != 0 {
            memory.store(head, memory.load(layout::node(first - 1, layout::NODE_LINKS), Relaxed), Relaxed);
            return Ok(first - 1);
        }
        let node = memory.add(layout::HEADER_NODES, 1);
        if node >= layout::NODES_MAX {
            return Err(Full);
        }
        let ready = memory.load(layout::HEADER_NODES_READY, Acquire);
        if node >= ready {
            let end = (node / layout::NODES_STEP + 1) * layout::NODES_STEP;
            let begin = end - layout::NODES_STEP;
            memory.reserve(layout::node(begin, 0), (layout::NODES_STEP as usize) * layout::NODE_WORDS)?;
            memory.raise(layout::HEADER_NODES_READY, end);
        }
        Ok(node)
    }

    /// Moves a stripe's entries to a part twice as large; returns the new level.
    fn grow(&self, stripe: usize, level: usize) -> Result<usize, Full> {
        let memory = &self.memory;
        let larger = level + 1;
        if larger == layout::LEVELS {
            return Err(Full);
        }
        let (part, slots) = (layout::part_at(larger, stripe), layout::part_slots(larger));
        memory.reserve(part, slots)?;
        // A writer may have been killed here before.
        for slot in part..part + slots {
            if memory.load(slot, Relaxed) != 0 {
                memory.store(slot, 0, Relaxed);
            }
        }
        let mut used = 0;
        let (old_part, old_slots) = (layout::part_at(level, stripe), layout::part_slots(level));
        for slot in old_part..old_part + old_slots {
            let value = memory.load(slot, Relaxed);
            if value == 0 || value == CLEARED {
                continue;
            }
            let node = (value & u64::from(u32::MAX)) - 1;
            let field = |field| memory.load(layout::node(node, field), Relaxed);
            if field(layout::NODE_GENERATION) % 2 == 1 {
                let hash = Hash::of(field(layout::NODE_DEVICE), field(layout::NODE_INODE));
                used += u64::from(self.put(hash, stripe, larger, value));
            }
        }
        memory.store(layout::stripe(stripe, layout::STRIPE_LEVEL), larger as u64, Release);
        // After the level, so that a kill in between leaves a count that is too large.
        memory.store(layout::stripe(stripe, layout::STRIPE_USED), used, Relaxed);
        if old_slots >= layout::PAGE_WORDS {
            // A reader that finds zeros there must see the new level.
            memory.fence(Release);
            memory.release(old_part, old_slots);
        }
        Ok(larger)
    }

    fn remove(&self, place: Slot, stripe: usize, level: usize) {
        let memory = &self.memory;
        let word = layout::node(place.node, layout::NODE_GENERATION);
        memory.store(word, memory.load(word, Relaxed) + 1, Release);
        self.clear_slot(place.slot, stripe, level);
        let head = layout::stripe(stripe, layout::STRIPE_FREE);
        // The list uses a field that readers of a dead node ignore.
        memory.fence(Release);
        memory.store(layout::node(place.node, layout::NODE_LINKS), memory.load(head, Relaxed), Relaxed);
        memory.store(head, place.node + 1, Relaxed);
    }

    /// Clears a slot. If the next slot is empty, this slot and the cleared slots before it become empty: every
    /// search ends there anyway.
    fn clear_slot(&self, slot: usize, stripe: usize, level: usize) {
        let memory = &self.memory;
        let slots = layout::part_slots(level);
        let part = layout::part_at(level, stripe);
        memory.store(slot, CLEARED, Release);
        let at = |offset: usize| part + (offset & (slots - 1));
        let offset = slot - part;
        if memory.load(at(offset + 1), Relaxed) != 0 {
            return;
        }
        let used = layout::stripe(stripe, layout::STRIPE_USED);
        for back in 0..slots {
            let slot = at(offset + slots - back);
            if memory.load(slot, Relaxed) != CLEARED {
                break;
            }
            memory.store(slot, 0, Release);
            memory.store(used, memory.load(used, Relaxed).saturating_sub(1), Relaxed);
        }
    }

    /// Visits every entry that can be found. The table must not change in the meantime.
    pub fn visit(&self, mut visit: impl FnMut(FileId, Entry)) {
        let ready = self.memory.load(layout::HEADER_NODES_READY, Acquire);
        let nodes = self.memory.load(layout::HEADER_NODES, Acquire).min(ready);
        for node in 0..nodes {
            let field = |field| self.memory.load(layout::node(node, field), Acquire);
            if field(layout::NODE_GENERATION).is_multiple_of(2) {
                continue;
            }
            let key = FileId { device: field(layout::NODE_DEVICE), inode: field(layout::NODE_INODE) };
            let hash = Hash::of(key.device, key.inode);
            let level = self.level(hash.stripe(), Acquire);
            // Skips a node whose writer was killed before it put the node into the index.
            if let Ok(Some((place, entry))) = self.search_part(key, hash, hash.stripe(), level)
                && place.node == node
            {
                visit(key, entry);
            }
        }
    }
}

fn change_of(links_word: u64) -> LastChange {
    LastChange((links_word >> 32) as u32)
}

/// Whether two entries of an inode are about two different files, one after the other.
fn is_other_file(old: &Entry, new: &Entry) -> bool {
    old.birth != 0 && new.birth != 0 && old.birth != new.birth
}

/// A node started another life while it was read.
#[derive(Clone, Copy, Debug)]
struct Changed;
