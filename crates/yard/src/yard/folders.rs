//! The folders of a yard. They are opened beneath it without following symbolic links: another user, or an
//! archive that was unpacked as a yard, may have put one where Kilnyard writes and removes.

use super::{user_name, user_of};
use crate::error::{Context, Error, Kind, Result};
use kilnyard_root::{IdMap, tree};
use kilnyard_worker::KEPT_WORK;
use rand::Rng;
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fchmod, fchown, fstat, mkdirat, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

/// Mode of folders with Kilnyard's own files, which web servers and the users of roots read.
const OPEN: u32 = 0o755;
/// Mode of folders with secrets, or with files that builds and packages made: set-id programs among them may
/// give their owner's rights to any user who can reach them.
const CLOSED: u32 = 0o700;

/// The lock file, in `state`.
const LOCK: &str = "lock";

/// The file in `state` with the number of the yard's id range.
const RANGE: &str = "range";
const RANGE_BYTES_MAX: u64 = 16;

/// In the order of creation: the first one holds the id range that the roots need.
const FOLDERS: [(&str, u32); 9] = [
    ("state", CLOSED),
    ("index", OPEN),
    ("distfiles", OPEN),
    (LAYERS, CLOSED),
    (ROOTS, CLOSED),
    (KEPT_WORK, CLOSED),
    ("logs", OPEN),
    ("report", OPEN),
    ("repository", OPEN),
];

/// Folders owned by the root user of roots, who has no other rights in the yard.
const OF_ROOTS: [&str; 2] = [LAYERS, ROOTS];
const LAYERS: &str = "layers";
const ROOTS: &str = "roots";

/// Rejects a yard that belongs to another user: its owner could make this process write anywhere.
pub fn check_owner(folder: &Path) -> Result<()> {
    let Ok(metadata) = fs_err::metadata(folder) else { return Ok(()) };
    let (owner, own) = (std::os::unix::fs::MetadataExt::uid(&metadata), rustix::process::geteuid().as_raw());
    if owner == own {
        return Ok(());
    }
    let (owner, own) = (user_of(owner), user_of(own));
    let message = format!("the yard {} belongs to the user {owner}, not to {own}", folder.display());
    Err(Error::usage(message).hint(format!(
        "runuser -u {owner} -- kilnyard ...; or --foreign-yard, if you trust {owner} with all rights of {own}"
    )))
}

/// Creates the folders of a yard and closes those that must be closed, whatever the umask is and whatever an
/// earlier Kilnyard did. If it has no layers yet, its roots get the ids of those in `like`, or ids of their own.
pub fn make(folder: &Path, like: Option<&Path>) -> Result<()> {
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
                "a folder in place of the link; or mount --bind, if {name} has to be on another disk"
            ))
        })?;
        if is_new && name == LAYERS {
            choose_range(folder, like).context(Kind::Machine, failed())?;
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

/// The ids of a yard's roots when this user runs it.
pub fn ids(folder: &Path) -> IdMap {
    IdMap::of_this_user(&user_name(), range_of(folder)).0
}

/// The number of a yard's id range.
fn range_of(folder: &Path) -> u32 {
    let text = open(folder, "state").and_then(|state| {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut text = String::new();
        File::from(openat(&state, RANGE, flags, Mode::empty())?)
            .take(RANGE_BYTES_MAX)
            .read_to_string(&mut text)?;
        Ok(text)
    });
    text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}

/// Picks one of the user's id ranges for a yard that has no layers yet: that of `like`, or any, so that roots of two yards
/// run as different users.
fn choose_range(folder: &Path, like: Option<&Path>) -> std::io::Result<()> {
    let range = match like {
        Some(like) => range_of(like),
        None => rand::rngs::OsRng.gen_range(0..IdMap::ranges_of_this_user(&user_name())),
    };
    let state = open(folder, "state")?;
    let flags = OFlags::CREATE | OFlags::TRUNC | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = openat(&state, RANGE, flags, Mode::from_raw_mode(0o644))?;
    File::from(file).write_all(format!("{range}\n").as_bytes())
}

fn open(folder: &Path, name: &str) -> std::io::Result<OwnedFd> {
    tree::open_beneath(folder, Path::new(name))
}

/// Sets a folder's owner and mode. Fails if the folder belongs to an unexpected user.
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
    // Before it belongs to the roots' user: an ordinary user cannot do so after that.
    if name == ROOTS {
        tree::spread(opened);
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

/// Whether a folder of roots has the ids that roots had before `/etc/subuid` changed. Only root can have given
/// it to them.
fn is_of_other_roots(name: &str, facts: &Stat, own: u32) -> bool {
    own == 0 && OF_ROOTS.contains(&name) && facts.st_mode & 0o077 == 0
}

/// Opens the lock file, and creates it if `makes` is set. It must be a regular file with a single link.
pub fn lock_file(folder: &Path, makes: bool) -> std::io::Result<File> {
    let state = open(folder, "state")?;
    let making = if makes { OFlags::CREATE | OFlags::RDWR } else { OFlags::RDONLY };
    // `NONBLOCK`: opening a fifo, for example, returns immediately instead of waiting for the other end. It is
    // rejected below.
    let flags = making | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = openat(&state, LOCK, flags, Mode::from_raw_mode(0o644)).map_err(|error| match error {
        Errno::LOOP => std::io::Error::other("it is a symbolic link; remove it"),
        other => other.into(),
    })?;
    let facts = fstat(&file)?;
    if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile || facts.st_nlink != 1 {
        return Err(std::io::Error::other("it is not a regular file with a single link; remove it"));
    }
    Ok(file.into())
}

/// Rejects a symbolic link in `state`, which an open would follow.
pub fn check_no_link(folder: &Path, name: &str) -> std::io::Result<()> {
    let state = open(folder, "state")?;
    match rustix::fs::statat(&state, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(facts) if FileType::from_raw_mode(facts.st_mode) != FileType::RegularFile => {
            Err(std::io::Error::other(format!("state/{name} is not a regular file; remove it")))
        }
        Ok(_) | Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
