//! The layout of the session file. All positions are in words of 64 bits, the same for every process.
//!
//! The file starts with the preload library, so that the dynamic linker maps the first window (header, stripes,
//! filter, the first index and the first nodes) for every program. The parts that grow are at fixed places far
//! behind it: the file is sparse, and a place takes memory only once it is used. The file has its full length from
//! the start, so that no program of the session extends it, which the program's own file size limit could forbid.
//! If the launcher's limit is smaller than that length, the places are closer together; see [`place`].
//!
//! ```text
//! library
//! header     one page: magic, whether anything was ever inserted, how far nodes and attributes reach, what is
//!            recorded of devices and programs
//! stripes    64 lines of 64 bytes: lock, level of the index, slots in use, free nodes
//! filter     2^19 bits: clear means that no inode of this hash was ever inserted
//! index      level 0: 64 parts of 64 slots
//! nodes      the first 2,048
//! ... hole ...
//! index      level k at INDEX_FAR + its size; a part doubles when half of it is used
//! nodes      number n at NODES_FAR + n
//! attributes
//! ```

/// Marks a file as a session of this layout. Change it with the layout.
pub const MAGIC: u64 = 0x6b69_6c6e_6661_6b35;

/// Bytes of a word.
pub const WORD_BYTES: usize = 8;
/// Words of a page of 4,096 bytes.
pub const PAGE_WORDS: usize = 512;

/// Where word 0 is in the file, in bytes. `preload/layout.ld` contains the same number.
pub const FILE_AT: usize = 256 << 10;

/// The word that holds [`MAGIC`].
pub const HEADER_MAGIC: usize = 0;
/// Not 0 once anything was inserted, even if it was removed again.
pub const HEADER_EVER: usize = 1;
/// The number of nodes ever taken.
pub const HEADER_NODES: usize = 2;
/// Nodes below this number have memory allocated.
pub const HEADER_NODES_READY: usize = 3;
/// The number of attribute words ever taken.
pub const HEADER_ATTRIBUTES: usize = 4;
/// Attribute words below this number have memory allocated.
pub const HEADER_ATTRIBUTES_READY: usize = 5;
/// How a file without an entry appears: 0 as root's, 1 with its real owner.
pub const HEADER_UNKNOWN: usize = 6;

/// Which programs a warning was printed for: a bit for each, chosen by its path.
pub const HEADER_WARNED: usize = 7;

/// Not 0 if the launcher answers the system calls of programs without the library.
pub const HEADER_ANSWERED: usize = 8;
/// By how many bits places are [closer together](place).
pub const HEADER_NEARER: usize = 9;
/// The path of the gate, which starts such programs; NUL-terminated.
pub const HEADER_GATE: usize = 64;
/// Maximum length of that path, including the NUL.
pub const GATE_BYTES_MAX: usize = 512;

/// Which devices are overlays: a word for each, chosen by its number.
pub const HEADER_DEVICES: usize = 128;
/// How many devices are recorded at a time.
pub const DEVICES: usize = 32;

/// The path of the file as programs see it, if they may read the first window where the dynamic linker has mapped
/// it; NUL-terminated.
pub const HEADER_PATH: usize = 160;
/// Maximum length of that path, including the NUL.
pub const PATH_BYTES_MAX: usize = 512;

/// The results of program checks: a word for each, chosen by a hash of what identifies the file.
pub const HEADER_PROGRAMS: usize = 256;
/// How many programs are recorded at a time.
pub const PROGRAMS: usize = 256;

/// The number of locks, of index parts and of free-node lists.
pub const STRIPES: usize = 64;
/// Words of a stripe: one cache line, so that writers of different stripes do not share one.
pub const STRIPE_WORDS: usize = 8;
/// The first stripe.
pub const STRIPES_AT: usize = PAGE_WORDS;
/// In a stripe: the lock, in the lower half.
pub const STRIPE_LOCK: usize = 0;
/// In a stripe: the level of its part of the index.
pub const STRIPE_LEVEL: usize = 1;
/// In a stripe: slots that are not empty.
pub const STRIPE_USED: usize = 2;
/// In a stripe: the first free node, plus one.
pub const STRIPE_FREE: usize = 3;

/// Bits of the filter: 64 KiB, which gives one false positive in ten with 50,000 entries.
pub const FILTER_BITS: u64 = 1 << 19;
/// The first word of the filter.
pub const FILTER_AT: usize = STRIPES_AT + STRIPES * STRIPE_WORDS;

/// Slots of a stripe's part at level 0.
pub const PART_SLOTS: usize = 64;
/// Slots of a whole level 0.
pub const INDEX_SLOTS: usize = STRIPES * PART_SLOTS;
/// The first slot of level 0.
pub const INDEX_AT: usize = FILTER_AT + (FILTER_BITS / 64) as usize;
/// Levels of the index; the last has 2^26 slots.
pub const LEVELS: usize = 15;
/// From here on, level k starts at an offset equal to its own length in words.
const INDEX_FAR: usize = (4 << 30) / WORD_BYTES;

/// Words of a node.
pub const NODE_WORDS: usize = 8;
/// In a node: the device that the file is on.
pub const NODE_DEVICE: usize = 0;
/// In a node: the inode number.
pub const NODE_INODE: usize = 1;
/// In a node: odd while it is alive; incremented at each birth and each death.
pub const NODE_GENERATION: usize = 2;
/// In a node: user id in the lower half, group id in the upper.
pub const NODE_OWNER: usize = 3;
/// In a node: mode in the lower half, device number in the upper.
pub const NODE_MODE: usize = 4;
/// In a node: the file's birth time, in nanoseconds since 1970; 0 if unknown.
pub const NODE_BIRTH: usize = 5;
/// In a node: the position of its attributes (words from the first one), plus one; 0 for none.
pub const NODE_ATTRIBUTES: usize = 6;
/// In a node: in the lower half, the number of links when it was last written; in the upper half, the time of the
/// inode's last change. In a free node: the next free node, plus one.
pub const NODE_LINKS: usize = 7;
/// Nodes of the first window.
pub const NODES_NEAR: usize = 2048;
/// The first node.
pub const NODES_AT: usize = INDEX_AT + INDEX_SLOTS;
/// Maximum number of nodes: more than the index has slots for.
pub const NODES_MAX: u64 = 1 << 26;
/// How many nodes have their memory allocated together.
pub const NODES_STEP: u64 = 1024;
const NODES_FAR: usize = (16 << 30) / WORD_BYTES;

/// The end of the first window.
pub const WINDOW_WORDS: usize = NODES_AT + NODES_NEAR * NODE_WORDS;
/// The length of the first window in bytes.
pub const WINDOW_BYTES: usize = WINDOW_WORDS * WORD_BYTES;

/// The first word of attributes.
pub const ATTRIBUTES_AT: usize = (64 << 30) / WORD_BYTES;
/// Maximum number of attribute words: 8 GiB.
pub const ATTRIBUTES_MAX: u64 = 1 << 30;
/// How many attribute words have their memory allocated together: 32 KiB.
pub const ATTRIBUTES_STEP: u64 = 4096;

/// The word of a stripe's field.
pub const fn stripe(number: usize, field: usize) -> usize {
    STRIPES_AT + number * STRIPE_WORDS + field
}

/// The number of slots of a stripe's part at a level.
pub const fn part_slots(level: usize) -> usize {
    PART_SLOTS << level
}

/// The first slot of a level.
pub const fn level_at(level: usize) -> usize {
    if level == 0 { INDEX_AT } else { INDEX_FAR + (INDEX_SLOTS << level) }
}

/// The first slot of a stripe's part at a level.
pub const fn part_at(level: usize, stripe: usize) -> usize {
    level_at(level) + stripe * part_slots(level)
}

/// The word of a node's field.
pub const fn node(number: u64, field: usize) -> usize {
    let number = number as usize;
    let at = if number < NODES_NEAR { NODES_AT } else { NODES_FAR };
    at + number * NODE_WORDS + field
}

/// The region that is mapped for a word: its first word, its length in words, and its number, which is below
/// [`REGIONS`]. Regions consist of whole pages, each is twice as large as the previous one, and a process never
/// maps one twice.
pub const fn region(word: usize) -> (usize, usize, usize) {
    if word < WINDOW_WORDS {
        (0, WINDOW_WORDS, 0)
    } else if word < NODES_FAR {
        doubling(INDEX_FAR, word, INDEX_SLOTS, 1)
    } else if word < ATTRIBUTES_AT {
        doubling(NODES_FAR, word, NODES_NEAR * NODE_WORDS, 1 + 32)
    } else {
        doubling(ATTRIBUTES_AT, word, ATTRIBUTES_STEP as usize, 1 + 64)
    }
}

/// The largest value of `nearer`: with a larger one, the index would overlap the first window.
pub const NEARER_MAX: u32 = 13;

/// The length in bytes of a session file with this value of `nearer`.
pub const fn file_bytes(nearer: u32) -> usize {
    FILE_AT + (((ATTRIBUTES_AT + ATTRIBUTES_MAX as usize) * WORD_BYTES) >> nearer)
}

/// The position in the file of the `words` words that start at `word`, in words from [`FILE_AT`]; `None` if the
/// file has no room for them.
///
/// The index, the nodes and the attributes start at their positions in the layout divided by 2 to the power of
/// `nearer`, so a larger value leaves less room for each.
pub const fn place(word: usize, words: usize, nearer: u32) -> Option<usize> {
    if word < WINDOW_WORDS {
        return Some(word);
    }
    let (first, next) = if word < NODES_FAR {
        (INDEX_FAR, NODES_FAR)
    } else if word < ATTRIBUTES_AT {
        (NODES_FAR, ATTRIBUTES_AT)
    } else {
        (ATTRIBUTES_AT, ATTRIBUTES_AT + ATTRIBUTES_MAX as usize)
    };
    let place = (first >> nearer) + (word - first);
    if place + words <= next >> nearer { Some(place) } else { None }
}

/// The maximum number of regions.
pub const REGIONS: usize = 1 + 3 * 32;

/// The region of a word in a place whose regions double in length, from the second one on; the first two have
/// `first` words each.
const fn doubling(place: usize, word: usize, first: usize, number: usize) -> (usize, usize, usize) {
    let offset = word - place;
    if offset < first {
        return (place, first, number);
    }
    let power = (offset / first).ilog2() as usize;
    (place + (first << power), first << power, number + 1 + power)
}

/// The hash of an inode, which determines its stripe, filter bit and slot.
///
/// File systems give consecutive numbers to files that are created together, and these are usually read together. Eight
/// consecutive inodes therefore share a stripe, a word of the filter, and a cache line of the index; the three lowest
/// bits are the place among the eight, and the other bits are their common hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hash(pub u64);

/// Bits of a hash that are the place among the eight.
const PLACE_BITS: u32 = 3;
const PLACE: u64 = (1 << PLACE_BITS) - 1;
/// The next bits, which are the stripe.
const STRIPE_BITS: u32 = STRIPES.ilog2();

impl Hash {
    /// Hashes an inode with a finalizer in which every bit of the eight's common number affects every bit of
    /// the hash (multiply, shift and exclusive or, with two odd constants from the digits of the golden ratio).
    #[inline]
    pub const fn of(device: u64, inode: u64) -> Hash {
        let mut hash = (inode >> PLACE_BITS) ^ device.rotate_left(40);
        hash = (hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        Hash((hash ^ (hash >> 32)) << PLACE_BITS | inode & PLACE)
    }

    /// The number of the stripe.
    #[inline]
    pub const fn stripe(self) -> usize {
        (self.0 >> PLACE_BITS) as usize % STRIPES
    }

    /// The hash without the bits of the stripe, which still includes the place.
    const fn behind_stripe(self) -> u64 {
        self.0 >> STRIPE_BITS & !PLACE | self.0 & PLACE
    }

    /// The word of the filter, and the bit in it.
    #[inline]
    pub const fn filter(self) -> (usize, u64) {
        let bit = self.behind_stripe() % FILTER_BITS;
        (FILTER_AT + (bit / 64) as usize, 1 << (bit % 64))
    }

    /// Where the search in a part with this number of slots starts.
    #[inline]
    pub const fn slot(self, slots: usize) -> usize {
        self.behind_stripe() as usize & (slots - 1)
    }

    /// The bits of the hash that a slot stores, so that a search can skip most other inodes.
    #[inline]
    pub const fn tag(self) -> u64 {
        (self.0 >> 32 & !PLACE | self.0 & PLACE) << 32
    }
}
