//! The inventory of a package: its control files, and the names, kinds and owners of its files.

use super::control::ControlMember;
use super::{DebFileError, DebProblem};
use crate::archive::{ArchiveProblem, Entry, decompress, for_each_entry};
use std::io::Read;
use std::path::Path;

const MEMBER: &str = "data archive";
/// The largest real packages unpack to under 10 GiB.
const UNPACKED_BYTES_MAX: u64 = 64 << 30;
/// The packages with the most files have about 200,000.
const ENTRY_COUNT_MAX: usize = 1_000_000;
/// Limit on the names and attributes of all entries, which are kept in memory.
const NAMES_BYTES_MAX: usize = 256 << 20;

/// See the module documentation.
#[derive(Debug)]
pub(in crate::debian) struct Inventory {
    pub(in crate::debian) control: String,
    /// The other control members: name and bytes.
    pub(in crate::debian) members: Vec<ControlMember>,
    /// The data entries, in the archive's order.
    pub(in crate::debian) entries: Vec<Entry>,
}

pub(in crate::debian) fn read(path: &Path) -> Result<Inventory, DebFileError> {
    let read_error = |source| DebFileError::Read { path: path.to_owned(), source };
    let file = fs_err::File::open(path).map_err(read_error)?;
    let size_bytes = file.metadata().map_err(read_error)?.len();
    read_members(file, size_bytes).map_err(|problem| DebFileError::Format { path: path.to_owned(), problem })
}

fn read_members(file: impl Read, size_bytes: u64) -> Result<Inventory, DebProblem> {
    let (mut members, control) = super::read_control(file, size_bytes)?;
    let compression = super::begin_data(&mut members)?;
    let mut entries = Vec::new();
    let mut names_bytes = 0;
    let mut unpacked = decompress(members.content(), compression, UNPACKED_BYTES_MAX)
        .map_err(|source| ArchiveProblem::Content { member: MEMBER, source })?;
    for_each_entry::<DebProblem>(&mut unpacked, MEMBER, |entry, _| {
        let extended: usize = entry.extended.iter().map(|(name, value)| name.len() + value.len()).sum();
        let names = [&entry.path, &entry.link_target, &entry.owner.1, &entry.group.1];
        names_bytes += names.map(Vec::len).iter().sum::<usize>() + extended;
        if names_bytes > NAMES_BYTES_MAX {
            let limit = NAMES_BYTES_MAX as u64;
            return Err(ArchiveProblem::TooLarge { what: "list of paths", limit }.into());
        }
        if entries.len() == ENTRY_COUNT_MAX {
            let limit = ENTRY_COUNT_MAX as u64;
            return Err(ArchiveProblem::TooLarge { what: "number of files", limit }.into());
        }
        entries.push(entry);
        Ok(())
    })?;
    let (control, members) = control.into_parts();
    Ok(Inventory { control, members, entries })
}
