//! The `ar` layer: a magic line, then members, each with a 60-byte text header, padded to an even length.

use std::io::{self, Read, Take};

use super::DebProblem;
use crate::archive::{ArchiveProblem, Compression};

const MAGIC: &[u8; 8] = b"!<arch>\n";
const HEADER_BYTES: usize = 60;

/// A package has three members; signatures (`_gpgorigin` and the like) may add a few. A file with more is not a
/// package.
const MEMBER_COUNT_MAX: usize = 16;

/// Iterates over the members. The unread rest of one member is read (and thus hashed) before the next.
pub(super) struct Members<R> {
    source: Take<R>,
    offset: u64,
    size_bytes: u64,
    /// The padding byte of the current member, beyond `source`'s limit.
    padding: u64,
    count: usize,
}

impl<R: Read> Members<R> {
    pub(super) fn open(source: R, size_bytes: u64) -> Result<Self, DebProblem> {
        let mut source = source.take(MAGIC.len() as u64);
        let mut magic = [0; MAGIC.len()];
        match source.read_exact(&mut magic) {
            Ok(()) if &magic == MAGIC => {}
            Ok(()) => return Err(DebProblem::NotAnArchive),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                return Err(DebProblem::NotAnArchive);
            }
            Err(source) => {
                return Err(ArchiveProblem::Content { member: "archive", source }.into());
            }
        }
        Ok(Self { source, offset: MAGIC.len() as u64, size_bytes, padding: 0, count: 0 })
    }

    /// The content of the current member.
    pub(super) fn content(&mut self) -> &mut Take<R> {
        &mut self.source
    }

    pub(super) fn into_source(self) -> R {
        self.source.into_inner()
    }

    /// The next member that is not ignored; by the format's rule, names that begin with `_` are.
    pub(super) fn next_significant(&mut self) -> Result<Option<String>, DebProblem> {
        loop {
            match self.next()? {
                Some(name) if name.starts_with('_') => self.finish_member()?,
                other => return Ok(other),
            }
        }
    }

    /// Reads the rest of the current member.
    pub(super) fn finish_member(&mut self) -> Result<(), DebProblem> {
        let damaged = |source| ArchiveProblem::Content { member: "archive", source }.into();
        // The file may end in place of the last member's padding.
        let left = self.source.limit();
        if io::copy(&mut self.source, &mut io::sink()).map_err(damaged)? < left {
            return Err(damaged(io::ErrorKind::UnexpectedEof.into()));
        }
        self.source.set_limit(self.padding);
        self.padding = 0;
        io::copy(&mut self.source, &mut io::sink()).map_err(damaged)?;
        Ok(())
    }

    fn next(&mut self) -> Result<Option<String>, DebProblem> {
        if self.offset >= self.size_bytes {
            return Ok(None);
        }
        self.count += 1;
        if self.count > MEMBER_COUNT_MAX {
            return Err(DebProblem::TooManyMembers { limit: MEMBER_COUNT_MAX });
        }
        let offset = self.offset;
        let bad = |reason| DebProblem::MemberHeader { offset, reason };
        let mut header = [0; HEADER_BYTES];
        self.source.set_limit(HEADER_BYTES as u64);
        self.source.read_exact(&mut header).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => bad("it is truncated"),
            _ => ArchiveProblem::Content { member: "archive", source: error }.into(),
        })?;
        if &header[58..] != b"`\n" {
            return Err(bad("it has no end marker"));
        }
        let name = text(&header[..16]).ok_or_else(|| bad("its name is not printable"))?;
        let name = name.strip_suffix('/').unwrap_or(name).to_owned();
        if name.is_empty() {
            return Err(bad("its name is empty"));
        }
        let digits = text(&header[48..58]).ok_or_else(|| bad("its size is not a number"))?;
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(bad("its size is not a number"));
        }
        // Ten digits always fit.
        let claimed_bytes: u64 = digits.parse().map_err(|_| bad("its size is not a number"))?;
        let begin = offset + HEADER_BYTES as u64;
        let left_bytes = self.size_bytes.saturating_sub(begin);
        if claimed_bytes > left_bytes {
            return Err(DebProblem::MemberTooLong { member: name, claimed_bytes, left_bytes });
        }
        self.padding = claimed_bytes % 2;
        self.offset = begin + claimed_bytes + self.padding;
        self.source.set_limit(claimed_bytes);
        Ok(Some(name))
    }
}

/// A header field: printable, padded with spaces at the end.
fn text(field: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(field).ok()?.trim_end_matches(' ');
    text.bytes().all(|byte| byte.is_ascii_graphic()).then_some(text)
}

/// The compression of the member `name`, which must be `stem` plus a known suffix.
pub(super) fn compression(name: &str, stem: &'static str) -> Result<Compression, DebProblem> {
    let suffix = name
        .strip_prefix(stem)
        .ok_or_else(|| DebProblem::UnexpectedMember { found: name.to_owned(), expected: stem })?;
    Compression::of_suffix(suffix)
        .ok_or_else(|| DebProblem::UnsupportedCompression { member: name.to_owned() })
}
