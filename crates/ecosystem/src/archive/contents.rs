//! The contents of an archive, each entry reduced to a digest.

use std::collections::BTreeMap;
use std::io::Read;

use sha2::{Digest, Sha256};

use super::ArchiveProblem;
use super::canonical::Canonical;
use super::entry::{Entry, Kind, hash_bytes, read_bytes, trimmed};
use super::numbers::Numbers;
use super::packed;

/// The counted quantity, as it appears in error messages.
pub(super) const FILES: &str = "number of files";

/// Limit on all paths and hard link targets together, which are kept in memory.
const NAMES_BYTES_MAX: u64 = 256 << 20;

/// The entries of an archive, in the archive's order.
pub(crate) struct Contents {
    files_max: usize,
    /// Rebuild numbers, which are ignored in both names and file contents.
    numbers: Numbers,
    records: Vec<Record>,
    names_bytes: u64,
    /// How much more packed files may unpack to.
    unpacked_left_bytes: u64,
}

/// One entry, with everything but its name reduced to digests.
struct Record {
    path: Vec<u8>,
    /// Digest of mode, owner, group and extended attributes from the entry's own header.
    attributes: [u8; 32],
    body: Body,
}

enum Body {
    /// Digest of kind, link target, device numbers and the hash of the bytes.
    Own([u8; 32]),
    /// Another name of the file at this path.
    HardLinkTo(Vec<u8>),
}

impl Contents {
    /// The contents of an archive with at most `files_max` entries, ignoring these rebuild numbers.
    pub(crate) fn within(files_max: usize, numbers: Numbers) -> Contents {
        let unpacked_left_bytes = packed::ALL_UNPACKED_BYTES_MAX;
        Contents { files_max, numbers, records: Vec::new(), names_bytes: 0, unpacked_left_bytes }
    }

    /// Adds an entry, with its bytes, if it has any, as a digest.
    pub(crate) fn add(
        &mut self,
        mut entry: Entry,
        bytes: &mut dyn Read,
        member: &'static str,
    ) -> Result<(), ArchiveProblem> {
        self.names_bytes += (entry.path.len() + entry.link_target.len()) as u64;
        if self.records.len() >= self.files_max {
            return Err(ArchiveProblem::TooLarge { what: FILES, limit: self.files_max as u64 });
        }
        if self.names_bytes > NAMES_BYTES_MAX {
            return Err(ArchiveProblem::TooLarge { what: "list of paths", limit: NAMES_BYTES_MAX });
        }
        for name in [&mut entry.path, &mut entry.link_target] {
            *name = self.numbers.without(name).into_owned();
        }
        let attributes = attributes_digest(&entry);
        let body = match entry.kind {
            Kind::HardLink => Body::HardLinkTo(trimmed(&entry.link_target).to_owned()),
            Kind::File => Body::Own(body_digest(&entry, &self.hash_file(&entry, bytes, member)?)),
            _ => Body::Own(body_digest(&entry, &[])),
        };
        self.records.push(Record { path: entry.path, attributes, body });
        Ok(())
    }

    fn hash_file(
        &mut self,
        entry: &Entry,
        bytes: &mut dyn Read,
        member: &'static str,
    ) -> Result<[u8; 32], ArchiveProblem> {
        let is_short = entry.size_bytes <= packed::PACKED_BYTES_MAX;
        if self.numbers.is_empty() || !is_short || !entry.path.ends_with(b".gz") {
            return hash_bytes(entry, bytes, member, &self.numbers);
        }
        let content = read_bytes(entry, bytes, member, "packed file", packed::PACKED_BYTES_MAX)?;
        match packed::hash(&content, &self.numbers, &mut self.unpacked_left_bytes) {
            Some(hash) => Ok(hash),
            None => hash_bytes(entry, &mut content.as_slice(), member, &self.numbers),
        }
    }

    /// Writes the entries in the order of their paths.
    ///
    /// Which of several linked names carries the bytes depends on the order in the archive. To be independent of it,
    /// all names of a group are written alike: each with the digest of the bytes and the group's first path.
    pub(crate) fn write_canonical(&self, canonical: &mut Canonical) {
        let groups = Groups::of(&self.records);
        let mut order: Vec<usize> = (0..self.records.len()).collect();
        // A stable sort: if a path occurs twice, the later entry is the one that gets installed.
        order.sort_by(|left, right| self.records[*left].path.cmp(&self.records[*right].path));
        canonical.literal(b"data");
        for index in order {
            let record = &self.records[index];
            canonical.literal(&record.path);
            canonical.literal(&record.attributes);
            let carrier = groups.carrier[index];
            match &self.records[carrier].body {
                Body::Own(digest) => canonical.literal(digest),
                // A link to a file outside the package.
                Body::HardLinkTo(target) => {
                    canonical.literal(b"hard link to");
                    canonical.literal(target);
                }
            }
            if let Some(first) = groups.first_path.get(&carrier) {
                canonical.literal(b"linked with");
                canonical.literal(&self.records[*first].path);
            }
        }
    }
}

/// Hard link groups: entries that are names of one file.
struct Groups {
    /// For each entry, the entry that carries its bytes; the entry itself if it is not a link.
    carrier: Vec<usize>,
    /// For each carrier with links, the member of its group with the first path in order.
    first_path: BTreeMap<usize, usize>,
}

impl Groups {
    fn of(records: &[Record]) -> Self {
        let mut by_path: BTreeMap<&[u8], usize> = BTreeMap::new();
        let mut carrier = Vec::with_capacity(records.len());
        let mut first_path = BTreeMap::new();
        for (index, record) in records.iter().enumerate() {
            // A link's target must precede it in the archive, so its carrier is already in the list.
            let target = match &record.body {
                Body::HardLinkTo(target) => by_path.get(target.as_slice()).copied(),
                Body::Own(_) => None,
            };
            let own = target.map_or(index, |target| carrier[target]);
            carrier.push(own);
            if target.is_some() {
                let first = first_path.entry(own).or_insert(own);
                if record.path < records[*first].path {
                    *first = index;
                }
            }
            by_path.insert(&record.path, index);
        }
        Self { carrier, first_path }
    }
}

fn attributes_digest(entry: &Entry) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(entry.mode.to_be_bytes());
    for (number, name) in [&entry.owner, &entry.group] {
        hash.update(number.to_be_bytes());
        update_with_length(&mut hash, name);
    }
    for (key, value) in &entry.extended {
        update_with_length(&mut hash, key.as_bytes());
        update_with_length(&mut hash, value);
    }
    hash.finalize().into()
}

fn body_digest(entry: &Entry, content_hash: &[u8]) -> [u8; 32] {
    let kind: u8 = match entry.kind {
        Kind::File => b'f',
        Kind::HardLink => b'h',
        Kind::SymbolicLink => b'l',
        Kind::CharacterDevice => b'c',
        Kind::BlockDevice => b'b',
        Kind::Directory => b'd',
        Kind::Fifo => b'p',
    };
    let mut hash = Sha256::new();
    hash.update([kind]);
    hash.update(entry.device.0.to_be_bytes());
    hash.update(entry.device.1.to_be_bytes());
    update_with_length(&mut hash, &entry.link_target);
    update_with_length(&mut hash, content_hash);
    hash.finalize().into()
}

fn update_with_length(hash: &mut Sha256, bytes: &[u8]) {
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}
