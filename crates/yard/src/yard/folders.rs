//! The folders of a yard, opened beneath it without following links: another user may have laid one where Kilnyard writes and
//! removes, and so may an archive that was unpacked as a yard.

use super::{user_name, user_of};
use crate::error::{Context, Error, Kind, Result};
use kilnyard_root::{IdMap, tree};
use rand::Rng;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, mkdirat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

/// For files that are Kilnyard's own, and read by web servers and by the users of roots.
const OPEN: u32 = 0o755;
/// For secrets, and for files that builds and packages made: programs among them may give their owner's rights to any user of
/// the machine who can reach them.
const CLOSED: u32 = 0o700;

/// The lock's file, in `state`.
const LOCK: &str = "lock";

/// The number of the yard's range of ids, in `state`.
const RANGE: &str = "range";
const RANGE_BYTES_MAX: u64 = 16;

/// In the order in which they are made: the range of ids that roots have lies in the first.
const FOLDERS: [(&str, u32); 8] = [
    ("state", CLOSED),
    ("index", OPEN),
    ("distfiles", OPEN),
    (LAYERS, CLOSED),
    ("roots", CLOSED),
    ("logs", OPEN),
    ("report", OPEN),
    ("repository", OPEN),
];

/// Folders whose owner is the root of roots, who has no other right in the yard.
const OF_ROOTS: [&str; 2] = [LAYERS, "roots"];
const LAYERS: &str = "layers";

/// Refuses a yard of another user: its owner could lead this process anywhere.
pub fn check_owner(folder: &Path) -> Result<()> {
    let Ok(metadata) = fs_err::metadata(folder) else { return Ok(()) };
    let (owner, own) = (std::os::unix::fs::MetadataExt::uid(&metadata), rustix::process::geteuid().as_raw());
    if owner == own {
        return Ok(());
    }
    let (owner, own) = (user_of(owner), user_of(own));
    let message = format!("the yard {} belongs to the user {owner}, not to {own}", folder.display());
    Err(Error::usage(message).hint(format!(
        "runuser -u {owner} -- kilnyard ...; or --foreign-yard, if you trust {owner} with all that {own} may do"
    )))
}

/// Makes the folders that a yard has, and closes those that have to be closed, whatever the umask is and whatever an earlier
/// Kilnyard did.
pub fn make(folder: &Path) -> Result<()> {
    let failed = || format!("make the folders of the yard {}", folder.display());
    if !folder.is_dir() {
        fs_err::create_dir_all(folder).context(Kind::Machine, failed())?;
        let made = open(folder, "").and_then(|folder| Ok(fchmod(folder, Mode::from_raw_mode(OPEN))?));
        made.context(Kind::Machine, failed())?;
    }
    let yard = open(folder, "").context(Kind::Machine, failed())?;
    let owner = fstat(&yard).context(Kind::Machine, failed())?.st_uid;
    let mut roots = None;
    for (name, mode) in FOLDERS {
        let is_new = match mkdirat(&yard, name, Mode::from_raw_mode(CLOSED)) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(error) => return Err(error).context(Kind::Machine, failed()),
        };
        let opened = open(folder, name).context(Kind::Machine, failed()).map_err(|error| {
            error.hint(format!(
                "a folder in place of the link; mount --bind, if {name} has to lie on another disk"
            ))
        })?;
        if is_new && name == LAYERS {
            choose_range(folder).context(Kind::Machine, failed())?;
        }
        let ids = OF_ROOTS.contains(&name).then(|| &*roots.get_or_insert_with(|| ids(folder)));
        settle(&opened, name, mode, is_new, (owner, ids)).map_err(|reason| {
            let mut error = Error::new(Kind::Machine, format!("failed to {}", failed()));
            error.causes.push(format!("{}: {reason}", folder.join(name).display()));
            error
        })?;
    }
    Ok(())
}

/// The ids of a yard's roots, for the user who runs this.
pub fn ids(folder: &Path) -> IdMap {
    let text = open(folder, "state").and_then(|state| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut text = String::new();
        File::from(openat(&state, RANGE, flags, Mode::empty())?)
            .take(RANGE_BYTES_MAX)
            .read_to_string(&mut text)?;
        Ok(text)
    });
    let range = text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    IdMap::of_this_user(&user_name(), range).0
}

/// Gives a yard that has no layers yet a range of ids, one of those that the user has: roots of two yards are different users then.
fn choose_range(folder: &Path) -> std::io::Result<()> {
    let range = rand::rngs::OsRng.gen_range(0..IdMap::ranges_of_this_user(&user_name()));
    let state = open(folder, "state")?;
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&state, RANGE, flags, Mode::from_raw_mode(0o644))?;
    File::from(file).write_all(format!("{range}\n").as_bytes())
}

fn open(folder: &Path, name: &str) -> std::io::Result<OwnedFd> {
    tree::open_beneath(folder, Path::new(name))
}

/// Gives a folder its owner and its mode.
fn settle(
    opened: &OwnedFd,
    name: &str,
    mode: u32,
    is_new: bool,
    (owner, ids): (u32, Option<&IdMap>),
) -> std::result::Result<(), String> {
    let facts = fstat(opened).map_err(|error| error.to_string())?;
    let own = rustix::process::geteuid().as_raw();
    let root = ids.and_then(|ids| ids.user_outside(0));
    if ![Some(own), Some(owner), root].contains(&Some(facts.st_uid)) && !is_of_other_roots(name, &facts, own)
    {
        return Err(format!("it belongs to the user {}", user_of(facts.st_uid)));
    }
    if let Some(root) = root.filter(|root| *root != facts.st_uid) {
        let group = ids.and_then(|ids| ids.group_outside(0)).map(Gid::from_raw);
        fchown(opened, Some(Uid::from_raw(root)), group).map_err(|error| error.to_string())?;
    }
    let is_to_be_closed = mode == CLOSED && facts.st_mode & 0o7777 != CLOSED;
    if is_new || is_to_be_closed {
        fchmod(opened, Mode::from_raw_mode(mode)).map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Whether a folder of roots has ids that roots had before `/etc/subuid` was changed. Only root could give it to them.
fn is_of_other_roots(name: &str, facts: &Stat, own: u32) -> bool {
    own == 0 && OF_ROOTS.contains(&name) && facts.st_mode & 0o077 == 0
}

/// Opens the file of the lock, made if `makes`. It must be a file of the yard alone.
pub fn lock_file(folder: &Path, makes: bool) -> std::io::Result<File> {
    let state = open(folder, "state")?;
    let making = if makes { OFlags::CREATE | OFlags::RDWR } else { OFlags::RDONLY };
    // Something that waits for another end, such as a fifo, is opened at once, and refused.
    let flags = making | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(&state, LOCK, flags, Mode::from_raw_mode(0o644)).map_err(|error| match error {
        Errno::LOOP => std::io::Error::other("it is a link; remove it"),
        other => other.into(),
    })?;
    let facts = fstat(&file)?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile || facts.st_nlink != 1 {
        return Err(std::io::Error::other("it is no file of this yard alone; remove it"));
    }
    Ok(file.into())
}

/// Refuses a file of `state` that is a link: what opens it would follow it.
pub fn check_no_link(folder: &Path, name: &str) -> std::io::Result<()> {
    let state = open(folder, "state")?;
    match rustix::fs::statat(&state, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(facts) if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile => {
            Err(std::io::Error::other(format!("state/{name} is no file; remove it")))
        }
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
