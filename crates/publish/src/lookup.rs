//! A file format in which a record is found by its key with a few reads, for clients that need one package of
//! thirty thousand without parsing all of them.
//!
//! ```text
//! 0    8   "KILNLOOK"
//! 8    4   version of the format, 2             all numbers are little-endian
//! 12   4   number of records, n
//! 16   4   number of buckets, b
//! 20   4   seed of the hash
//! 24   8   length of the file
//! 32   4b  displacement of each bucket
//! ...  12n slots: offset of a record (8 bytes) and its length (4)
//! ...      records, each with its key, a line feed and its content
//! ```
//!
//! The hash of a key is the 64-bit FNV-1a (Fowler, Noll and Vo; RFC 9923) of the seed's four bytes followed by
//! the key. The hash selects a bucket; the bucket's displacement and the hash select the slot. The
//! displacements are chosen when the file is made, such that no two keys share a slot and no slot is free
//! (minimal perfect hashing by displacement: Belazzougui, Botelho and Dietzfelbinger, "Hash, displace, and
//! compress", 2009). The seed is chosen such that no two keys share a hash. An unknown key leads to the record
//! of another key, which the stored key reveals.
//!
//! Version 1 used SHA-256. Its code for the processor has to be selected when a program starts, which alone
//! took a sixth of the time of a look-up.
//!
//! Invariant: every number is checked against the file when read, so a broken file results in an error and
//! nothing worse. Known downside: a look-up needs four reads. A caller with thousands of look-ups should map
//! the file instead.

use crate::error::{During, PublishError, Result};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const MAGIC: [u8; 8] = *b"KILNLOOK";
const FORMAT: u32 = 2;
const HEADER_BYTES: u64 = 32;
const SLOT_BYTES: u64 = 12;
/// Average number of keys per bucket. More keys per bucket make the file smaller and the search for
/// displacements longer.
const KEYS_A_BUCKET: usize = 4;
/// Maximum length of a record.
const RECORD_BYTES_MAX: u32 = 64 << 20;
/// More tries than any bucket needs. Only duplicate keys would reach it, and they are rejected before.
const DISPLACEMENT_MAX: u32 = 1 << 24;
/// More seeds than needed, unless keys were made to collide: of 30,000 keys, two share a hash in one of forty
/// thousand million files.
const SEED_MAX: u32 = 1 << 8;

/// The hash of a key, from which its bucket and slot follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct KeyHash(u64);

impl KeyHash {
    fn of(key: &str, seed: u32) -> KeyHash {
        KeyHash(fnv(fnv(FNV_OFFSET_BASIS, &seed.to_le_bytes()), key.as_bytes()))
    }

    fn bucket(self, buckets: u32) -> u32 {
        (mixed(self.0) % u64::from(buckets)) as u32
    }

    /// The key's slot, given the displacement of its bucket.
    fn slot(self, displacement: u32, slots: u32) -> u32 {
        // Plus one, so that displacement zero does not reuse the value that selected the bucket.
        let step = (u64::from(displacement) + 1).wrapping_mul(GOLDEN_RATIO);
        (mixed(self.0 ^ step) % u64::from(slots)) as u32
    }
}

const FNV_OFFSET_BASIS: u64 = 0xcbf2_9ce4_8422_2325;
const FNV_PRIME: u64 = 0x0100_0000_01b3;
/// 2^64 divided by the golden ratio: its multiples are far apart.
const GOLDEN_RATIO: u64 = 0x9e37_79b9_7f4a_7c15;

/// 64-bit FNV-1a, continued from an earlier hash.
fn fnv(from: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(from, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(FNV_PRIME))
}

/// Spreads the information in some bits over all of them: the finalizer of MurmurHash3, which is a bijection.
fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ bits >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    let bits = (bits ^ bits >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    bits ^ bits >> 33
}

/// Whether these bytes start like a look-up file of this version.
pub(crate) fn is_of_this_version(bytes: &[u8]) -> bool {
    bytes.strip_prefix(&MAGIC).is_some_and(|rest| rest.starts_with(&FORMAT.to_le_bytes()))
}

/// Renders a look-up file of these records. Keys must be unique and a single line each.
pub fn render(records: &[(&str, &[u8])]) -> Result<Vec<u8>> {
    let refuse = |key: &str, reason| {
        Err(PublishError::Input { what: "key", value: crate::name::shortened(key), reason })
    };
    let mut known = HashSet::new();
    for (key, content) in records {
        if key.is_empty() || key.contains('\n') {
            return refuse(key, "it is not a single line");
        }
        if !known.insert(*key) {
            return refuse(key, "it is a duplicate");
        }
        if (key.len() + 1 + content.len()) as u64 > u64::from(RECORD_BYTES_MAX) {
            return refuse(key, "its record is too long");
        }
    }
    let slots = u32::try_from(records.len())
        .map_err(|_| PublishError::TooLarge { what: "number of records", limit: u64::from(u32::MAX) })?;
    let buckets = (records.len() / KEYS_A_BUCKET).max(1) as u32;
    let (seed, hashes) = hashes(records)?;
    let (displacements, places) = place(&hashes, buckets, slots)?;

    let mut bytes = Vec::new();
    bytes.extend(MAGIC);
    for number in [FORMAT, slots, buckets, seed] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend([0; 8]);
    displacements.iter().for_each(|displacement| bytes.extend(displacement.to_le_bytes()));
    let mut begin = bytes.len() as u64 + SLOT_BYTES * u64::from(slots);
    let ordered: Vec<(&str, &[u8])> = places.iter().map(|number| records[*number as usize]).collect();
    for (key, content) in &ordered {
        let length = (key.len() + 1 + content.len()) as u32;
        bytes.extend(begin.to_le_bytes());
        bytes.extend(length.to_le_bytes());
        begin += u64::from(length);
    }
    for (key, content) in ordered {
        bytes.extend(key.as_bytes());
        bytes.push(b'\n');
        bytes.extend(content);
    }
    let length = (bytes.len() as u64).to_le_bytes();
    bytes[24..32].copy_from_slice(&length);
    Ok(bytes)
}

/// Finds the first seed with which no two keys share a hash. Returns it with the hashes.
fn hashes(records: &[(&str, &[u8])]) -> Result<(u32, Vec<KeyHash>)> {
    let with = |seed| records.iter().map(|(key, _)| KeyHash::of(key, seed)).collect::<Vec<_>>();
    let is_good = |hashes: &Vec<KeyHash>| hashes.iter().collect::<HashSet<_>>().len() == hashes.len();
    let mut found = (0..SEED_MAX).map(|seed| (seed, with(seed)));
    found
        .find(|(_, hashes)| is_good(hashes))
        .ok_or(PublishError::TooLarge { what: "search for a seed", limit: u64::from(SEED_MAX) })
}

/// Finds the displacement of each bucket. Returns them with the number of the record in each slot.
fn place(hashes: &[KeyHash], buckets: u32, slots: u32) -> Result<(Vec<u32>, Vec<u32>)> {
    const FREE: u32 = u32::MAX;
    let mut members: Vec<Vec<(u32, KeyHash)>> = vec![Vec::new(); buckets as usize];
    for (number, hash) in hashes.iter().enumerate() {
        members[hash.bucket(buckets) as usize].push((number as u32, *hash));
    }
    // Place the largest buckets first, while there is room for them.
    let mut order: Vec<usize> = (0..members.len()).collect();
    order.sort_by_key(|bucket| std::cmp::Reverse(members[*bucket].len()));
    let mut displacements = vec![0; buckets as usize];
    let mut places = vec![FREE; slots as usize];
    let mut taken = Vec::new();
    for bucket in order {
        let fits = |displacement: &u32| {
            taken.clear();
            members[bucket].iter().all(|(_, hash)| {
                let slot = hash.slot(*displacement, slots);
                let is_free = places[slot as usize] == FREE && !taken.contains(&slot);
                taken.push(slot);
                is_free
            })
        };
        let Some(displacement) = (0..DISPLACEMENT_MAX).find(fits) else {
            return Err(PublishError::TooLarge {
                what: "search for a displacement",
                limit: u64::from(DISPLACEMENT_MAX),
            });
        };
        displacements[bucket] = displacement;
        for (number, hash) in &members[bucket] {
            places[hash.slot(displacement, slots) as usize] = *number;
        }
    }
    Ok((displacements, places))
}

/// An open look-up file.
#[derive(Debug)]
pub struct LookUp {
    path: PathBuf,
    file: File,
    length: u64,
    slots: u32,
    buckets: u32,
    seed: u32,
}

impl LookUp {
    /// Opens a file and checks its header.
    pub fn open(path: &Path) -> Result<LookUp> {
        let file = File::open(path).during("open", path)?;
        let mut header = [0; HEADER_BYTES as usize];
        read(&file, &mut header, 0, path)?;
        let number =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let length = u64::from(number(24)) | u64::from(number(28)) << 32;
        let (slots, buckets, seed) = (number(12), number(16), number(20));
        let look_up = LookUp { path: path.to_owned(), file, length, slots, buckets, seed };
        if header[..8] != MAGIC {
            return Err(look_up.broken("it is not a look-up file"));
        }
        match number(8) {
            FORMAT => {}
            ..FORMAT => return Err(look_up.broken("it has an older format; publish again to update it")),
            _ => return Err(look_up.broken("it has a newer format than this program supports")),
        }
        let actual = look_up.file.metadata().during("inspect", path)?.len();
        if actual != length || look_up.records_begin() > length {
            return Err(look_up.broken("its length does not match its header"));
        }
        if look_up.buckets == 0 {
            return Err(look_up.broken("it has no buckets"));
        }
        Ok(look_up)
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.slots as usize
    }

    /// Whether the file has no records.
    pub fn is_empty(&self) -> bool {
        self.slots == 0
    }

    /// Returns the content of the record with this key. Absent if there is none.
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>> {
        if self.slots == 0 {
            return Ok(None);
        }
        let hash = KeyHash::of(key, self.seed);
        let mut displacement = [0; 4];
        let at = HEADER_BYTES + 4 * u64::from(hash.bucket(self.buckets));
        read(&self.file, &mut displacement, at, &self.path)?;
        let slot = hash.slot(u32::from_le_bytes(displacement), self.slots);
        let mut place = [0; SLOT_BYTES as usize];
        let at = HEADER_BYTES + 4 * u64::from(self.buckets) + SLOT_BYTES * u64::from(slot);
        read(&self.file, &mut place, at, &self.path)?;
        let [a, b, c, d, e, f, g, h, i, j, k, l] = place;
        let begin = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let length = u32::from_le_bytes([i, j, k, l]);
        let end = begin.checked_add(u64::from(length));
        if begin < self.records_begin()
            || end.is_none_or(|end| end > self.length)
            || length > RECORD_BYTES_MAX
        {
            return Err(self.broken("a record is outside the file"));
        }
        let mut record = vec![0; length as usize];
        read(&self.file, &mut record, begin, &self.path)?;
        let is_it = record.strip_prefix(key.as_bytes()).is_some_and(|rest| rest.first() == Some(&b'\n'));
        Ok(is_it.then(|| record.split_off(key.len() + 1)))
    }

    fn records_begin(&self) -> u64 {
        HEADER_BYTES + 4 * u64::from(self.buckets) + SLOT_BYTES * u64::from(self.slots)
    }

    fn broken(&self, reason: &'static str) -> PublishError {
        PublishError::Broken { path: self.path.clone(), reason }
    }
}

fn read(file: &File, bytes: &mut [u8], at: u64, path: &Path) -> Result<()> {
    let ended = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), "unexpected end of file"),
        _ => error,
    };
    file.read_exact_at(bytes, at).map_err(ended).during("read", path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn open(bytes: &[u8]) -> (tempfile::TempDir, Result<LookUp>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("look-up");
        std::fs::write(&path, bytes).unwrap();
        let opened = LookUp::open(&path);
        (folder, opened)
    }

    fn content(look_up: &LookUp, key: &str) -> Option<String> {
        look_up.get(key).unwrap().map(|bytes| String::from_utf8(bytes).unwrap())
    }

    #[test]
    fn every_key_of_many_is_found_and_no_other() {
        let keys: Vec<String> =
            (0..30_000).map(|number| format!("package-{number}.{}", number % 7)).collect();
        let records: Vec<(&str, &[u8])> = keys.iter().map(|key| (key.as_str(), key.as_bytes())).collect();
        let bytes = render(&records).unwrap();
        assert_eq!(bytes, render(&records).unwrap(), "equal records make equal files");
        let (_folder, look_up) = open(&bytes);
        let look_up = look_up.unwrap();
        assert_eq!(look_up.len(), 30_000);
        for key in &keys {
            assert_eq!(content(&look_up, key).as_ref(), Some(key));
        }
        for other in ["", "package-1", "package-30000.5", "package-1.1\n"] {
            assert_eq!(content(&look_up, other), None, "{other}");
        }
    }

    #[test]
    fn a_file_without_records_has_none() {
        let (_folder, look_up) = open(&render(&[]).unwrap());
        assert_eq!(content(&look_up.unwrap(), "a"), None);
    }

    #[test]
    fn invalid_keys_are_rejected() {
        let refused = |records: &[(&str, &[u8])]| render(records).unwrap_err().to_string();
        assert!(refused(&[("a", b""), ("a", b"")]).contains("duplicate"));
        assert!(refused(&[("a\nb", b"")]).contains("single line"));
        assert!(refused(&[("", b"")]).contains("single line"));
    }

    #[test]
    fn a_broken_file_is_an_error() {
        let bytes = render(&[("a-1", b"one"), ("b-1", b"two")]).unwrap();
        let error = |bytes: &[u8]| open(bytes).1.unwrap_err().to_string();
        assert!(error(b"").contains("read"));
        assert!(error(&bytes[..bytes.len() - 1]).contains("length"));
        assert!(error(&[b"X", &bytes[1..]].concat()).contains("not a look-up file"));
        for (version, said) in [(1, "an older format"), (3, "a newer format")] {
            let mut other = bytes.clone();
            other[8] = version;
            assert!(error(&other).contains(said));
            assert!(is_of_this_version(&bytes) && !is_of_this_version(&other));
        }
    }

    #[test]
    fn hashes_match_the_published_test_vectors() {
        // The test vectors of RFC 9923. A key is preceded by the four bytes of the seed.
        let plain = |text: &str| fnv(FNV_OFFSET_BASIS, text.as_bytes());
        assert_eq!(plain("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(plain("foobar"), 0x8594_4171_f739_67e8);
        assert_eq!(KeyHash::of("foobar", 0).0, plain("\0\0\0\0foobar"));
        assert_ne!(KeyHash::of("foobar", 0), KeyHash::of("foobar", 1));
    }

    proptest! {
        #[test]
        fn a_changed_byte_is_an_error_or_does_not_matter(at in 0_usize..120, byte in any::<u8>()) {
            let mut bytes = render(&[("a-1", b"one"), ("b-1", b"two"), ("c-1", b"three")]).unwrap();
            let at = at % bytes.len();
            bytes[at] = byte;
            let (_folder, look_up) = open(&bytes);
            if let Ok(look_up) = look_up {
                let _ = look_up.get("a-1");
                let _ = look_up.get("nothing");
            }
        }
    }
}
