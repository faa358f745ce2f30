//! The header of a package file: tags with values.
//!
//! Format: rpm's `docs/manual/format_v4.md` and `format_header.md`. A header comes from a build, so every length in it is
//! checked before it is used, and a tag that is there twice is refused: readers disagree about which one counts.

use std::collections::BTreeMap;
use std::io::{self, Read};

/// What a header begins with, with its version.
pub(super) const MAGIC: [u8; 4] = [0x8e, 0xad, 0xe8, 0x01];
/// The bytes before the index: the magic, four reserved ones, the number of tags, and the length of the data.
pub(super) const INTRO_BYTES: u64 = 16;
/// The bytes of an entry of the index.
pub(super) const ENTRY_BYTES: u64 = 16;
/// The most tags; rpm has some two hundred.
const TAGS_MAX: u32 = 1 << 12;
/// The most numbers or texts of a tag.
const COUNT_MAX: usize = 4 << 20;
/// The longest data. A package with a million files has some hundred mebibytes.
const DATA_BYTES_MAX: u32 = 256 << 20;

/// Tags, by rpm's names (`include/rpm/rpmtag.h`).
pub(super) mod tag {
    pub const NAME: u32 = 1000;
    pub const VERSION: u32 = 1001;
    pub const RELEASE: u32 = 1002;
    pub const EPOCH: u32 = 1003;
    pub const SUMMARY: u32 = 1004;
    pub const DESCRIPTION: u32 = 1005;
    pub const BUILD_TIME: u32 = 1006;
    pub const BUILD_HOST: u32 = 1007;
    pub const SIZE: u32 = 1009;
    pub const VENDOR: u32 = 1011;
    pub const LICENSE: u32 = 1014;
    pub const PACKAGER: u32 = 1015;
    pub const GROUP: u32 = 1016;
    pub const URL: u32 = 1020;
    pub const ARCHITECTURE: u32 = 1022;
    pub const OLD_FILE_NAMES: u32 = 1027;
    pub const BEFORE: u32 = 1023;
    pub const AFTER: u32 = 1024;
    pub const FILE_SIZES: u32 = 1028;
    pub const FILE_MODES: u32 = 1030;
    pub const FILE_TIMES: u32 = 1034;
    pub const FILE_DIGESTS: u32 = 1035;
    pub const FILE_FLAGS: u32 = 1037;
    pub const FILE_USERS: u32 = 1039;
    pub const FILE_GROUPS: u32 = 1040;
    pub const SOURCE_PACKAGE: u32 = 1044;
    pub const PROVIDE_NAMES: u32 = 1047;
    pub const REQUIRE_FLAGS: u32 = 1048;
    pub const REQUIRE_NAMES: u32 = 1049;
    pub const REQUIRE_VERSIONS: u32 = 1050;
    pub const CONFLICT_FLAGS: u32 = 1053;
    pub const CONFLICT_NAMES: u32 = 1054;
    pub const CONFLICT_VERSIONS: u32 = 1055;
    pub const TRIGGER_NAMES: u32 = 1066;
    pub const TRIGGER_FLAGS: u32 = 1068;
    pub const CHANGE_TIMES: u32 = 1080;
    pub const CHANGE_NAMES: u32 = 1081;
    pub const CHANGE_TEXTS: u32 = 1082;
    pub const BEFORE_PROGRAM: u32 = 1085;
    pub const AFTER_PROGRAM: u32 = 1086;
    pub const OBSOLETE_NAMES: u32 = 1090;
    pub const COOKIE: u32 = 1094;
    pub const FILE_DEVICES: u32 = 1095;
    pub const FILE_INODES: u32 = 1096;
    pub const PROVIDE_FLAGS: u32 = 1112;
    pub const PROVIDE_VERSIONS: u32 = 1113;
    pub const OBSOLETE_FLAGS: u32 = 1114;
    pub const OBSOLETE_VERSIONS: u32 = 1115;
    pub const FOLDER_INDEXES: u32 = 1116;
    pub const BASE_NAMES: u32 = 1117;
    pub const FOLDER_NAMES: u32 = 1118;
    pub const SOURCE_PACKAGE_ID: u32 = 1146;
    pub const BEFORE_TRANSACTION: u32 = 1151;
    pub const AFTER_TRANSACTION: u32 = 1152;
    pub const BEFORE_TRANSACTION_PROGRAM: u32 = 1153;
    pub const AFTER_TRANSACTION_PROGRAM: u32 = 1154;
    pub const LONG_FILE_SIZES: u32 = 5008;
    pub const LONG_SIZE: u32 = 5009;
    pub const FILE_CAPABILITIES: u32 = 5010;
    pub const RECOMMEND_NAMES: u32 = 5046;
    pub const RECOMMEND_VERSIONS: u32 = 5047;
    pub const RECOMMEND_FLAGS: u32 = 5048;
    pub const SUGGEST_NAMES: u32 = 5049;
    pub const SUGGEST_VERSIONS: u32 = 5050;
    pub const SUGGEST_FLAGS: u32 = 5051;
    pub const SUPPLEMENT_NAMES: u32 = 5052;
    pub const SUPPLEMENT_VERSIONS: u32 = 5053;
    pub const SUPPLEMENT_FLAGS: u32 = 5054;
    pub const ENHANCE_NAMES: u32 = 5055;
    pub const ENHANCE_VERSIONS: u32 = 5056;
    pub const ENHANCE_FLAGS: u32 = 5057;
    pub const FILE_TRIGGER_SCRIPTS: u32 = 5066;
    pub const FILE_TRIGGER_PROGRAMS: u32 = 5067;
    pub const FILE_TRIGGER_NAMES: u32 = 5069;
    pub const FILE_TRIGGER_INDEXES: u32 = 5070;
    pub const FILE_TRIGGER_FLAGS: u32 = 5072;
    pub const TRANSACTION_TRIGGER_SCRIPTS: u32 = 5076;
    pub const TRANSACTION_TRIGGER_PROGRAMS: u32 = 5077;
    pub const TRANSACTION_TRIGGER_NAMES: u32 = 5079;
    pub const TRANSACTION_TRIGGER_INDEXES: u32 = 5080;
    pub const TRANSACTION_TRIGGER_FLAGS: u32 = 5082;
    pub const PAYLOAD_DIGEST: u32 = 5092;
    pub const PAYLOAD_DIGEST_KIND: u32 = 5093;
    pub const UNPACKED_DIGEST: u32 = 5097;
}

/// Regions, whose data is the index again.
const REGIONS: std::ops::RangeInclusive<u32> = 61..=63;

/// A header that is malformed or too large.
#[derive(Debug, thiserror::Error)]
pub enum HeaderError {
    /// It cannot be read, or is cut off.
    #[error(transparent)]
    Read(#[from] io::Error),
    /// It breaks the format.
    #[error("its header {0}")]
    Format(String),
}

fn broken(what: impl Into<String>) -> HeaderError {
    HeaderError::Format(what.into())
}

/// The type of a value (`rpmTagType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Number(usize),
    Text,
    Texts,
    Bytes,
}

/// `RPM_BIN_TYPE`.
pub(super) const BYTES: u32 = 7;

#[derive(Clone, Copy, Debug)]
pub(super) struct Value {
    kind: Kind,
    count: usize,
    /// Where its bytes begin in the data, and where they end.
    pub start: usize,
    pub end: usize,
}

/// A header.
#[derive(Clone, Debug, Default)]
pub struct Header {
    values: BTreeMap<u32, Value>,
    data: Vec<u8>,
    /// Its length in the file.
    bytes: u64,
}

impl Header {
    /// Reads a header from its first byte to its last.
    ///
    /// # Errors
    /// It is malformed, cut off, or larger than any real one.
    pub fn read(input: &mut dyn Read) -> Result<Header, HeaderError> {
        let mut intro = [0; INTRO_BYTES as usize];
        input.read_exact(&mut intro)?;
        if intro[..4] != MAGIC {
            return Err(broken("does not begin as one"));
        }
        let word = |bytes: &[u8], at: usize| u32::from_be_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let (tags, length) = (word(&intro, 8), word(&intro, 12));
        if tags > TAGS_MAX || length > DATA_BYTES_MAX {
            return Err(broken(format!("has {tags} tags and {length} bytes, which is too much")));
        }
        let mut index = Vec::new();
        let index_bytes = u64::from(tags) * ENTRY_BYTES;
        input.take(index_bytes).read_to_end(&mut index)?;
        let mut data = Vec::new();
        input.take(length.into()).read_to_end(&mut data)?;
        if index.len() as u64 != index_bytes || data.len() as u64 != u64::from(length) {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
        let mut values = BTreeMap::new();
        for entry in index.chunks_exact(ENTRY_BYTES as usize) {
            let (tag, kind, start, count) =
                (word(entry, 0), word(entry, 4), word(entry, 8) as usize, word(entry, 12) as usize);
            if REGIONS.contains(&tag) {
                continue;
            }
            let value = value(&data, kind, start, count)
                .ok_or_else(|| broken(format!("has no value at the place of its tag {tag}")))?;
            if values.insert(tag, value).is_some() {
                return Err(broken(format!("has the tag {tag} twice")));
            }
        }
        if !are_apart(values.values()) {
            return Err(broken("has values that overlap"));
        }
        Ok(Header { values, data, bytes: INTRO_BYTES + index_bytes + u64::from(length) })
    }

    /// Its length in the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The text of a tag, or the first of several; invalid UTF-8 is replaced.
    pub fn text(&self, tag: u32) -> Option<String> {
        self.raw_texts(tag).next().map(|text| String::from_utf8_lossy(text).into_owned())
    }

    /// All texts of a tag; none if it is absent.
    pub fn texts(&self, tag: u32) -> Vec<String> {
        self.raw_texts(tag).map(|text| String::from_utf8_lossy(text).into_owned()).collect()
    }

    /// The numbers of a tag; none if it is absent.
    pub fn numbers(&self, tag: u32) -> Vec<u64> {
        match self.values.get(&tag) {
            Some(Value { kind: Kind::Number(width), start, end, .. }) => {
                let number = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
                self.data[*start..*end].chunks_exact(*width).map(number).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The first number of a tag.
    pub fn number(&self, tag: u32) -> Option<u64> {
        self.numbers(tag).first().copied()
    }

    /// Whether it has a tag.
    pub fn has(&self, tag: u32) -> bool {
        self.values.contains_key(&tag)
    }

    /// All tags with their values as bytes, in the order of the tags. Texts end with a zero byte each.
    pub(super) fn values(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.values.iter().map(|(tag, value)| (*tag, &self.data[value.start..value.end]))
    }

    fn raw_texts(&self, tag: u32) -> impl Iterator<Item = &[u8]> {
        let value = self.values.get(&tag).filter(|value| matches!(value.kind, Kind::Text | Kind::Texts));
        let (bytes, count) =
            value.map_or((&[][..], 0), |value| (&self.data[value.start..value.end], value.count));
        bytes.split(|byte| *byte == 0).take(count)
    }
}

/// Whether no values share bytes (rpm's `hdrblobVerifyInfo`): else a short header could have values without an end.
pub(super) fn are_apart<'v>(values: impl Iterator<Item = &'v Value>) -> bool {
    let mut ranges: Vec<(usize, usize)> = values.map(|value| (value.start, value.end)).collect();
    ranges.sort_unstable();
    ranges.windows(2).all(|two| two[0].1 <= two[1].0)
}

/// A value whose bytes are all there; `None` if they are not, or if it has more parts than any real one.
pub(super) fn value(data: &[u8], kind: u32, start: usize, count: usize) -> Option<Value> {
    let rest = data.get(start..)?;
    if kind != BYTES && count > COUNT_MAX {
        return None;
    }
    let texts_end = |count: usize| {
        let mut end = 0;
        for _ in 0..count {
            end += rest.get(end..)?.iter().position(|byte| *byte == 0)? + 1;
        }
        Some(end)
    };
    let (kind, length) = match kind {
        0 => (Kind::Bytes, 0),
        1 | 2 => (Kind::Number(1), count),
        3 => (Kind::Number(2), count.checked_mul(2)?),
        4 => (Kind::Number(4), count.checked_mul(4)?),
        5 => (Kind::Number(8), count.checked_mul(8)?),
        6 => (Kind::Text, texts_end(1).filter(|_| count == 1)?),
        BYTES => (Kind::Bytes, count),
        8 | 9 => (Kind::Texts, texts_end(count)?),
        _ => return None,
    };
    (length <= rest.len()).then_some(Value { kind, count, start, end: start + length })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with these entries (tag, type, place, count), and this data.
    fn header(entries: &[[u32; 4]], data: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([0; 4]);
        bytes.extend((entries.len() as u32).to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        entries.iter().flatten().for_each(|word| bytes.extend(word.to_be_bytes()));
        bytes.extend(data);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Header, HeaderError> {
        Header::read(&mut { bytes })
    }

    #[test]
    fn values_are_read() {
        let data = b"hello\0one\0two\0\x01\x02\0\0\0\x07";
        let entries = [
            [tag::NAME, 6, 0, 1],
            [tag::BASE_NAMES, 8, 6, 2],
            [tag::FILE_MODES, 3, 14, 1],
            [tag::EPOCH, 4, 16, 1],
        ];
        let header = read(&header(&entries, data)).unwrap();
        assert_eq!(header.text(tag::NAME).as_deref(), Some("hello"));
        assert_eq!(header.texts(tag::BASE_NAMES), ["one", "two"]);
        assert_eq!((header.number(tag::FILE_MODES), header.number(tag::EPOCH)), (Some(0x102), Some(7)));
        assert_eq!(header.bytes(), 16 + 4 * 16 + 20);
        // A number is no text, and a text no number.
        assert!(header.text(tag::EPOCH).is_none() && header.numbers(tag::NAME).is_empty());
    }

    #[test]
    fn lengths_that_lie_are_refused() {
        let good = header(&[[tag::NAME, 6, 0, 1]], b"hello\0");
        assert!(read(&good).is_ok());
        for bytes in [
            header(&[[tag::NAME, 6, 6, 1]], b"hello\0"),
            header(&[[tag::NAME, 6, u32::MAX, 1]], b"hello\0"),
            header(&[[tag::NAME, 6, 0, 1]], b"hello"),
            header(&[[tag::BASE_NAMES, 8, 0, u32::MAX]], b"hello\0"),
            header(&[[tag::EPOCH, 4, 0, u32::MAX]], b"1234"),
            header(&[[tag::LONG_SIZE, 5, 0, u32::MAX]], b"12345678"),
            header(&[[tag::EPOCH, 7, 3, 2]], b"1234"),
            header(&[[tag::EPOCH, 77, 0, 1]], b"1234"),
            header(&[[tag::NAME, 6, 0, 1], [tag::NAME, 6, 0, 1]], b"hello\0"),
            header(&[[tag::NAME, 6, 0, 1], [tag::VERSION, 6, 2, 1]], b"hello\0"),
            header(&[[tag::BASE_NAMES, 8, 0, COUNT_MAX as u32 + 1]], &vec![0; COUNT_MAX + 1]),
            good[..good.len() - 1].to_vec(),
            good[..20].to_vec(),
            [&b"\0\0\0\0"[..], &good[4..]].concat(),
            // Nothing is reserved for what it says that it has.
            [&good[..8], &u32::MAX.to_be_bytes(), &good[12..]].concat(),
            [&good[..12], &u32::MAX.to_be_bytes(), &good[16..]].concat(),
            [&good[..8], &TAGS_MAX.to_be_bytes(), &DATA_BYTES_MAX.to_be_bytes()].concat(),
        ] {
            assert!(read(&bytes).is_err(), "{bytes:?}");
        }
    }
}
