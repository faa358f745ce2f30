//! Compressed files of a rebuild whose text may contain its version, such as the manual pages of native packages.

use std::borrow::Cow;
use std::io::Read;

use sha2::{Digest, Sha256};

use super::compression::{Compression, decompress};
use super::numbers::Numbers;

/// Limit for a packed file that is held in memory. Texts are shorter: the longest changelogs and manual pages have
/// about 1 MiB.
pub(super) const PACKED_BYTES_MAX: u64 = 4 << 20;

/// Limit on the unpacked size of one file. Texts shrink to a third or a tenth; only a bomb unpacks to more.
const UNPACKED_BYTES_MAX: u64 = 32 << 20;

/// Limit on the unpacked size of all such files of one package: a few seconds of work. Files beyond it are hashed
/// in packed form.
pub(super) const ALL_UNPACKED_BYTES_MAX: u64 = 1 << 30;

/// The fixed part of a gzip header: the method, flags, a time, the level and the system.
const HEADER_BYTES: usize = 10;

/// SHA-256 of the unpacked content of a gzip file, without rebuild numbers, and of its header. `None` if the file
/// is damaged, unpacks to more than `left_bytes`, or does not contain such a version: then its bytes are hashed as
/// they are.
pub(super) fn hash(packed: &[u8], numbers: &Numbers, left_bytes: &mut u64) -> Option<[u8; 32]> {
    let header = packed.get(..HEADER_BYTES)?;
    let mut text = Vec::new();
    let mut source = packed;
    let limit_bytes = UNPACKED_BYTES_MAX.min(*left_bytes);
    let end = decompress(&mut source, Compression::Gzip, limit_bytes)
        .and_then(|mut bytes| bytes.read_to_end(&mut text));
    *left_bytes -= limit_bytes.min(text.len() as u64);
    end.ok()?;
    let Cow::Owned(text) = numbers.without(&text) else { return None };
    let mut hash = Sha256::new();
    hash.update(b"packed text");
    hash.update(header);
    hash.update(&text);
    Some(hash.finalize().into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn packed(text: &str, level: u32) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
        encoder.write_all(text.as_bytes()).unwrap();
        encoder.finish().unwrap()
    }

    fn of(packed: &[u8], number: u32) -> Option<[u8; 32]> {
        let version = format!("1.0+bk{number}");
        hash(packed, &Numbers::new([(version, 1)]), &mut ALL_UNPACKED_BYTES_MAX.clone())
    }

    #[test]
    fn a_packed_text_is_compared_without_its_number() {
        let first = of(&packed("tool 1.0+bk1 manual", 9), 1);
        assert!(first.is_some());
        assert_eq!(of(&packed("tool 1.0+bk2 manual", 9), 2), first);
        assert_ne!(of(&packed("tool 1.0+bk2 Manual", 9), 2), first);
        assert_ne!(of(&packed("tool 1.0+bk2 manual", 1), 2), first, "its header has the level");
        assert_ne!(of(&packed("tool 1.1+bk2 manual", 9), 2), first);
    }

    #[test]
    fn damaged_files_and_files_without_a_version_are_hashed_unchanged() {
        let whole = packed("tool 1.0+bk1 manual", 9);
        let with_more = [&whole[..], b"more"].concat();
        for bytes in
            [&packed("tool", 9)[..], &whole[..whole.len() - 1], &with_more, b"1.0+bk1 is not gzip", b""]
        {
            assert_eq!(of(bytes, 1), None);
        }
        let bomb = packed(&format!("1.0+bk1{}", "0".repeat(UNPACKED_BYTES_MAX as usize)), 9);
        assert!((bomb.len() as u64) < PACKED_BYTES_MAX);
        assert_eq!(of(&bomb, 1), None);
    }

    #[test]
    fn a_package_unpacks_at_most_its_share() {
        let text = packed("tool 1.0+bk1 manual", 9);
        let numbers = Numbers::new([("1.0+bk1".to_owned(), 1)]);
        let mut left_bytes = 30;
        assert!(hash(&text, &numbers, &mut left_bytes).is_some());
        assert_eq!(hash(&text, &numbers, &mut left_bytes), None);
        assert!(left_bytes < 30 - 19 + 1);
    }
}
