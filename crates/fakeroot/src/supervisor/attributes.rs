//! Extended attributes for programs without the library, by the same rules as in the library.

use super::call::Named;
use super::place::OpenPath;
use super::tracee::{Tracee, last_error};
use crate::shared::attributes::{Keeper, NAME_BYTES_MAX, VALUE_BYTES_MAX, is_kept_for_disk, keeper};
use crate::shared::mapping::Mapping;
use crate::shared::operations::{Known, Refused, SetWhen};
use crate::shared::table::Table;
use std::ffi::{CStr, CString, c_int};

/// Maximum length of a list of names, as in the kernel (XATTR_LIST_MAX).
const NAMES_BYTES_MAX: u64 = 65_536;

fn name_of(tracee: &Tracee, at: u64) -> Result<CString, i32> {
    let name = tracee.read_text(at, NAME_BYTES_MAX + 1, libc::ERANGE)?;
    let length = name.to_bytes().len();
    if (1..=NAME_BYTES_MAX).contains(&length) { Ok(name) } else { Err(libc::ERANGE) }
}

/// The real `getxattr` on a file that is held open. Its path leads to this file and no other, even to a link
/// itself.
fn real_get(place: &OpenPath, name: &CStr, to: &mut [u8]) -> Result<usize, i32> {
    // SAFETY: NUL-terminated strings, and a buffer with its own length.
    let result = unsafe { libc::getxattr(place.path(), name.as_ptr(), to.as_mut_ptr().cast(), to.len()) };
    usize::try_from(result).map_err(|_| last_error())
}

fn is_on_disk(place: &OpenPath, name: &CStr) -> bool {
    real_get(place, name, &mut []).is_ok()
}

pub fn get(
    table: &Table<Mapping>,
    tracee: &Tracee,
    file: Named,
    name: u64,
    to: u64,
    room: u64,
) -> Result<i64, i32> {
    let name = name_of(tracee, name)?;
    if keeper(name.to_bytes()) == Keeper::Nowhere {
        return Err(libc::EOPNOTSUPP);
    }
    let found = OpenPath::of(tracee, file)?.open()?;
    let mut value = vec![0; room.min(VALUE_BYTES_MAX as u64) as usize];
    let length = match table.attribute(&found.place.facts()?, name.to_bytes(), &mut value) {
        Known::Absent => return Err(libc::ENODATA),
        Known::Bytes(length) if room != 0 && length > value.len() => return Err(libc::ERANGE),
        Known::Bytes(length) => length,
        Known::Nothing => real_get(&found.place, &name, &mut value)?,
    };
    if room != 0 {
        tracee.write(to, &value[..length])?;
    }
    Ok(length as i64)
}

pub fn list(table: &Table<Mapping>, tracee: &Tracee, file: Named, to: u64, room: u64) -> Result<i64, i32> {
    let found = OpenPath::of(tracee, file)?.open()?;
    let mut names = vec![0u8; room.min(NAMES_BYTES_MAX) as usize];
    // SAFETY: a path, and a buffer with its own length.
    let result = unsafe { libc::listxattr(found.place.path(), names.as_mut_ptr().cast(), names.len()) };
    let on_disk = match usize::try_from(result) {
        Ok(bytes) => bytes,
        Err(_) if last_error() == libc::EOPNOTSUPP => 0,
        Err(_) => return Err(last_error()),
    };
    let facts = found.place.facts()?;
    if room == 0 {
        // Names in both lists count twice: the result only has to be large enough.
        let mut bytes = on_disk;
        table.attribute_names(&facts, |name, is_there| bytes += usize::from(is_there) * (name.len() + 1));
        return Ok(bytes as i64);
    }
    let end = table.merge_names(&facts, &mut names, on_disk).ok_or(libc::ERANGE)?;
    tracee.write(to, &names[..end])?;
    Ok(end as i64)
}

fn error_of(why: Refused) -> i32 {
    match why {
        Refused::Missing => libc::ENODATA,
        Refused::Exists => libc::EEXIST,
        Refused::Full => libc::ENOSPC,
    }
}

pub fn set(
    table: &Table<Mapping>,
    tracee: &Tracee,
    file: Named,
    [name, from, bytes]: [u64; 3],
    flags: c_int,
) -> Result<i64, i32> {
    let name = name_of(tracee, name)?;
    if bytes > VALUE_BYTES_MAX as u64 {
        return Err(libc::E2BIG);
    }
    let when = match flags {
        0 => SetWhen::Any,
        libc::XATTR_CREATE => SetWhen::Create,
        libc::XATTR_REPLACE => SetWhen::Replace,
        _ => return Err(libc::EINVAL),
    };
    let value = tracee.read(from, bytes as usize)?;
    let keeper = keeper(name.to_bytes());
    if keeper == Keeper::Nowhere {
        return Err(libc::EOPNOTSUPP);
    }
    let found = OpenPath::of(tracee, file)?.open()?;
    if keeper == Keeper::Disk {
        let (value, length) = (value.as_ptr().cast(), value.len());
        // SAFETY: NUL-terminated strings, and a value with its own length.
        let result = unsafe { libc::setxattr(found.place.path(), name.as_ptr(), value, length, flags) };
        if let Some(answer) = answer_of_disk(result, &name) {
            return answer;
        }
    }
    let is_on_disk = is_on_disk(&found.place, &name);
    let set = table.set_attribute(
        &found.place.facts_to_keep(table)?,
        name.to_bytes(),
        Some(&value),
        when,
        is_on_disk,
    );
    set.map(|()| 0).map_err(error_of)
}

pub fn remove(table: &Table<Mapping>, tracee: &Tracee, file: Named, name: u64) -> Result<i64, i32> {
    let name = name_of(tracee, name)?;
    let keeper = keeper(name.to_bytes());
    if keeper == Keeper::Nowhere {
        return Err(libc::EOPNOTSUPP);
    }
    let found = OpenPath::of(tracee, file)?.open()?;
    if keeper == Keeper::Disk {
        // SAFETY: NUL-terminated strings.
        let result = unsafe { libc::removexattr(found.place.path(), name.as_ptr()) };
        if let Some(answer) = answer_of_disk(result, &name) {
            return answer;
        }
    }
    let is_on_disk = is_on_disk(&found.place, &name);
    let removed = table.set_attribute(
        &found.place.facts_to_keep(table)?,
        name.to_bytes(),
        None,
        SetWhen::Replace,
        is_on_disk,
    );
    removed.map(|()| 0).map_err(error_of)
}

/// The answer of the disk; `None` if the file system does not support such attributes and the table keeps them.
fn answer_of_disk(result: c_int, name: &CStr) -> Option<Result<i64, i32>> {
    if result == 0 {
        return Some(Ok(0));
    }
    let error = last_error();
    let is_kept = error == libc::EOPNOTSUPP && is_kept_for_disk(name.to_bytes());
    (!is_kept).then_some(Err(error))
}
