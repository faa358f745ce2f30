//! Signed packages (pkg_admin(1), `gpg-sign-package`): an `ar` archive of the text `+PKG_HASH`, its signature and the package,
//! whose blocks the text names. The text stands for the whole file, so that it is not hashed as a whole.

use crate::state::{hexadecimal, sha256};
use sha2::{Digest, Sha512};
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The size of a header of a member (ar(5)).
const HEADER_BYTES: usize = 60;
/// What an archive begins with.
const MAGIC: &[u8] = b"!<arch>\n";
/// The most bytes before the package: the text of a package of 16 GiB.
const HEAD_BYTES_MAX: usize = 64 << 20;
const BLOCK_BYTES: usize = 64 << 10;

/// Checks a signed package as its bytes pass.
pub(crate) struct SignedPackage {
    /// The bytes before the package, until they are complete.
    head: Vec<u8>,
    begun: Option<Package>,
    is_damaged: bool,
}

struct Package {
    /// The SHA-256 of the text.
    text: String,
    /// The SHA-512 of each block, in order, as the text has them.
    blocks: Vec<String>,
    hash: Sha512,
    /// The bytes of the package so far, and the number of all.
    seen: usize,
    size: usize,
}

impl SignedPackage {
    pub(crate) fn new() -> Self {
        Self { head: Vec::new(), begun: None, is_damaged: false }
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        if let Some(package) = &mut self.begun {
            self.is_damaged |= !package.update(bytes);
            return;
        }
        if self.is_damaged {
            return;
        }
        self.head.extend_from_slice(bytes);
        match parse(&self.head) {
            Ok(None) => self.is_damaged |= self.head.len() > HEAD_BYTES_MAX,
            Err(()) => self.is_damaged = true,
            Ok(Some((mut package, end))) => {
                self.is_damaged |= !package.update(&self.head[end..]);
                self.begun = Some(package);
                self.head = Vec::new();
            }
        }
    }

    /// The SHA-256 of the text, in hexadecimal; something else if the file is not what its text says.
    pub(crate) fn finish(self) -> String {
        let found = self.begun.filter(|package| !self.is_damaged && package.is_whole());
        found.map_or_else(|| "another content".to_owned(), |package| package.text)
    }
}

impl Package {
    /// Returns whether all blocks that are complete now are those of the text.
    fn update(&mut self, bytes: &[u8]) -> bool {
        // After the package, there may be a byte that makes the archive even.
        let own = bytes.len().min(self.size - self.seen);
        let mut rest = &bytes[..own];
        while !rest.is_empty() {
            let left = BLOCK_BYTES - self.seen % BLOCK_BYTES;
            let (now, later) = rest.split_at(rest.len().min(left));
            self.hash.update(now);
            self.seen += now.len();
            rest = later;
            if self.seen.is_multiple_of(BLOCK_BYTES) || self.seen == self.size {
                let found = hexadecimal(&self.hash.finalize_reset());
                if self.blocks.get((self.seen - 1) / BLOCK_BYTES) != Some(&found) {
                    return false;
                }
            }
        }
        true
    }

    fn is_whole(&self) -> bool {
        self.seen == self.size && self.blocks.len() == self.size.div_ceil(BLOCK_BYTES)
    }
}

/// Whether two signed packages have the same text and signature. One that cannot be read has none.
pub(super) fn have_one_signature(one: &Path, other: &Path) -> bool {
    let inode = |path: &Path| fs_err::metadata(path).map(|file| (file.dev(), file.ino())).ok();
    let head = |path: &Path| -> Option<Vec<u8>> {
        let mut file = fs_err::File::open(path).ok()?;
        let mut head = Vec::new();
        while file.by_ref().take(BLOCK_BYTES as u64).read_to_end(&mut head).ok()? > 0 {
            if let Some((_, end)) = parse(&head).ok()? {
                head.truncate(end);
                return Some(head);
            }
        }
        None
    };
    // The repository usually has a link to the yard's file.
    inode(one).is_some_and(|found| inode(other) == Some(found))
        || head(one).is_some_and(|found| head(other) == Some(found))
}

/// The package whose content begins at the second value; `None` if there is more to read before it.
fn parse(bytes: &[u8]) -> Result<Option<(Package, usize)>, ()> {
    if bytes.len() < MAGIC.len() {
        return Ok(None);
    }
    if !bytes.starts_with(MAGIC) {
        return Err(());
    }
    let (mut at, mut text) = (MAGIC.len(), None);
    for number in 0..3 {
        let Some(header) = bytes.get(at..at + HEADER_BYTES) else { return Ok(None) };
        let field = |range: std::ops::Range<usize>| std::str::from_utf8(&header[range]).map(str::trim_end);
        let (name, size) = (field(0..16).map_err(drop)?, field(48..58).map_err(drop)?);
        let whole: usize = size.parse().map_err(drop)?;
        at += HEADER_BYTES;
        // In BSD's form, a long name precedes the content.
        let named = match name.strip_prefix("#1/") {
            Some(length) => length.parse().map_err(drop)?,
            None => 0,
        };
        let size = whole.checked_sub(named).ok_or(())?;
        at += named;
        if number == 2 {
            let text: &str = text.ok_or(())?;
            if bytes.len() < at {
                return Ok(None);
            }
            let is_block = |line: &&str| line.len() == 128;
            let blocks = text.lines().filter(is_block).map(str::to_owned).collect();
            let text = sha256(text.as_bytes());
            return Ok(Some((Package { text, blocks, hash: Sha512::new(), seen: 0, size }, at)));
        }
        let Some(content) = bytes.get(at..at.checked_add(size).ok_or(())?) else { return Ok(None) };
        if number == 0 {
            text = Some(std::str::from_utf8(content).map_err(drop)?);
        }
        at += size + whole % 2;
    }
    Err(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "a-package-with-a-name-1.0.tgz";

    fn member(name: &str, content: &[u8]) -> Vec<u8> {
        let (short, long) = match name.len() > 16 {
            true => (format!("#1/{}", name.len()), name),
            false => (name.to_owned(), ""),
        };
        let size = long.len() + content.len();
        let mut bytes =
            format!("{short:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n{long}", 0, 0, 0, 100_644).into_bytes();
        bytes.extend_from_slice(content);
        bytes.extend(std::iter::repeat_n(b'\n', size % 2));
        bytes
    }

    fn archive(package: &[u8], blocks_of: &[u8]) -> (Vec<u8>, String) {
        let blocks = blocks_of.chunks(BLOCK_BYTES).map(|block| hexadecimal(&Sha512::digest(block)) + "\n");
        let text = format!("pkgsrc signature\n\n{}end pkgsrc signature\n", blocks.collect::<String>());
        let parts = [
            MAGIC.to_vec(),
            member("+PKG_HASH", text.as_bytes()),
            member("+PKG_GPG_SIGNATURE", b"signature"),
            member(NAME, package),
        ];
        (parts.concat(), sha256(text.as_bytes()))
    }

    fn found(bytes: &[u8], step: usize) -> String {
        let mut signed = SignedPackage::new();
        bytes.chunks(step).for_each(|part| signed.update(part));
        signed.finish()
    }

    #[test]
    fn a_signed_package_is_what_its_text_says() {
        let package: Vec<u8> = (0..150_001_u32).map(|number| number as u8).collect();
        for size in [1, BLOCK_BYTES, BLOCK_BYTES + 1, package.len()] {
            let (bytes, text) = archive(&package[..size], &package[..size]);
            for step in [1 << 20, 4096, 7] {
                assert_eq!(found(&bytes, step), text, "{size} {step}");
            }
            let mut changed = bytes.clone();
            // The archive ends with a line feed where the name and the package have an odd number of bytes together.
            let end = bytes.len() - (NAME.len() + size) % 2;
            changed[end - 1] ^= 1;
            assert_ne!(found(&changed, 4096), text, "a changed byte of {size}");
            assert_ne!(found(&bytes[..end - 1], 4096), text, "cut off");
        }
        let (bytes, _) = archive(&package, &package);
        let scratch = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            let path = scratch.path().join(name);
            fs_err::write(&path, bytes).unwrap();
            path
        };
        let (one, same) = (write("one", &bytes), write("same", &bytes));
        // After the words of the text.
        let at = bytes.windows(9).rposition(|part| part == b"signature").unwrap();
        let other = write("other", &[&bytes[..at], b"Signature", &bytes[at + 9..]].concat());
        assert!(have_one_signature(&one, &one) && have_one_signature(&one, &same));
        assert!(
            !have_one_signature(&one, &other) && !have_one_signature(&one, &scratch.path().join("absent"))
        );
        let (bytes, text) = archive(&package[..BLOCK_BYTES], &package);
        assert_ne!(found(&bytes, 4096), text, "blocks are missing");
        let (bytes, text) = archive(&package, &package[..BLOCK_BYTES]);
        assert_ne!(found(&bytes, 4096), text, "more blocks than the text has");
        for other in [&b""[..], b"!<arch>\n", b"!<arch>\nshort", b"another content altogether"] {
            assert_eq!(found(other, 4), "another content");
        }
    }
}
