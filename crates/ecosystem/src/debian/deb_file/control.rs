//! The control member: the control file, and the scripts and tables next to it.

use std::io::{self, Read};

use super::DebProblem;
use super::masking::Masking;
use crate::archive::{ArchiveProblem, Compression, Kind, decompress, for_each_entry, read_bytes, refused};
use crate::debian::deb822::Stanza;

const MEMBER: &str = "control archive";

/// Limit on the whole unpacked control archive. Checksum and symbol tables of the largest packages are a few MiB.
const UNPACKED_BYTES_MAX: u64 = 64 << 20;

/// Limit on the control file alone. The longest real ones, with thousands of `Provides`, are a few hundred KiB.
const CONTROL_FILE_BYTES_MAX: u64 = 4 << 20;

/// Real control archives have about a dozen files.
const ENTRY_COUNT_MAX: usize = 1024;

/// The contents of the control member.
pub(super) struct Control {
    pub(super) text: String,
    /// Name, mode and bytes, sorted by name.
    others: Vec<(Vec<u8>, u32, Vec<u8>)>,
}

/// A control file: its name and its bytes.
pub(in crate::debian) type ControlMember = (Vec<u8>, Vec<u8>);

/// Checks the `debian-binary` member: a line `2.<minor>`.
pub(super) fn check_format_version(member: &mut dyn Read) -> Result<(), DebProblem> {
    let mut text = Vec::new();
    member
        .take(16)
        .read_to_end(&mut text)
        .map_err(|source| ArchiveProblem::Content { member: "debian-binary", source })?;
    if text.starts_with(b"2.") && text.contains(&b'\n') {
        return Ok(());
    }
    Err(DebProblem::FormatVersion { found: String::from_utf8_lossy(&text).trim_end().to_owned() })
}

impl Control {
    pub(super) fn read(
        member: &mut io::Take<impl Read>,
        compression: Compression,
    ) -> Result<Self, DebProblem> {
        let mut text = None;
        let mut others = Vec::new();
        let mut control_count = 0;
        {
            let mut unpacked = decompress(member, compression, UNPACKED_BYTES_MAX)
                .map_err(|source| ArchiveProblem::Content { member: MEMBER, source })?;
            for_each_entry::<DebProblem>(&mut unpacked, MEMBER, |entry, bytes| {
                match (entry.path.as_slice(), entry.kind) {
                    (_, Kind::Directory) | (b"md5sums", Kind::File) => {}
                    (b"control", Kind::File) => {
                        control_count += 1;
                        let content =
                            read_bytes(&entry, bytes, MEMBER, "control file", CONTROL_FILE_BYTES_MAX)?;
                        text = Some(String::from_utf8(content).map_err(|_| DebProblem::ControlNotText)?);
                    }
                    (_, Kind::File) => {
                        if others.len() == ENTRY_COUNT_MAX {
                            return Err(ArchiveProblem::TooLarge {
                                what: "number of control files",
                                limit: ENTRY_COUNT_MAX as u64,
                            }
                            .into());
                        }
                        // The sum is bounded by the unpacked size of the whole archive.
                        let content =
                            read_bytes(&entry, bytes, MEMBER, "control archive", UNPACKED_BYTES_MAX)?;
                        others.push((entry.path, entry.mode, content));
                    }
                    (path, _) => {
                        return Err(refused(MEMBER, path, "it is neither a file nor a directory").into());
                    }
                }
                Ok(())
            })?;
        }
        if member.limit() > 0 {
            return Err(ArchiveProblem::TrailingBytes { member: MEMBER, count_bytes: member.limit() }.into());
        }
        others.sort();
        match (text, control_count) {
            (Some(text), 1) => Ok(Self { text, others }),
            (_, count) => Err(DebProblem::ControlFileCount { count }),
        }
    }

    /// The control file, and the other control files except `md5sums`, without their modes.
    pub(super) fn into_parts(self) -> (String, Vec<ControlMember>) {
        (self.text, self.others.into_iter().map(|(name, _, content)| (name, content)).collect())
    }

    pub(super) fn version(&self) -> Result<String, DebProblem> {
        let version = Stanza::new(&self.text).get("Version").filter(|version| !version.is_empty());
        version.map(str::to_owned).ok_or(DebProblem::NoVersion)
    }

    pub(super) fn write_canonical(&self, masking: &mut Masking) {
        masking.canonical.literal(b"control");
        let mut field = Field::Other;
        for line in self.text.split_inclusive('\n') {
            if !line.starts_with([' ', '\t']) {
                field = Field::of(line);
            }
            match field {
                Field::LeftOut(name) => {
                    masking.canonical.literal(name.as_bytes());
                    masking.canonical.placeholder();
                }
                Field::Source => masking.unnumbered(line.as_bytes()),
                Field::Other => masking.masked(line.as_bytes()),
            }
        }
        masking.canonical.literal(b"members");
        for (name, mode, content) in &self.others {
            masking.canonical.literal(name);
            masking.canonical.literal(&mode.to_be_bytes());
            masking.masked(content);
        }
    }
}

/// How a control field enters the canonical form.
#[derive(Clone, Copy)]
enum Field {
    LeftOut(&'static str),
    Source,
    Other,
}

impl Field {
    fn of(line: &str) -> Self {
        let name = line.split(':').next().unwrap_or_default().trim();
        if name.eq_ignore_ascii_case("version") {
            Self::LeftOut("version")
        } else if name.eq_ignore_ascii_case("installed-size") {
            Self::LeftOut("installed-size")
        } else if name.eq_ignore_ascii_case("source") {
            Self::Source
        } else {
            Self::Other
        }
    }
}
