//! The user namespace in which the programs of an ordinary user's machine run.
//!
//! It has the ids of the user's roots, so that virtiofsd can make files of all of them, and QEMU can run as another user
//! than this one, without any right.

use crate::MissingRequirement;
use kilnyard_root::{IdMap, Keeper, Sandbox};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::path::Path;

/// A user namespace with the ids of roots.
#[derive(Debug)]
pub(crate) struct Users {
    /// Its process holds the namespace until the machine's own programs are in it.
    _keeper: Keeper,
    space: File,
    ids: IdMap,
}

impl Users {
    /// The namespace for a machine that runs these sandboxes; `None` if root makes their files.
    ///
    /// # Errors
    /// The user has only one id, or the namespace cannot be made.
    pub(crate) fn for_sandboxes(folder: &Path, sandboxes: &[&Sandbox]) -> io::Result<Option<Users>> {
        let Some(ids) = sandboxes.first().map(|sandbox| &sandbox.ids).filter(|ids| ids.is_ordinary()) else {
            return Ok(None);
        };
        if ids.has_one_id() {
            return Err(io::Error::other(MissingRequirement::Ids));
        }
        let ids = ids.in_order();
        let keeper = Keeper::start(folder, &ids, Vec::new()).map_err(io::Error::other)?;
        let space = fs_err::File::open(format!("/proc/{}/ns/user", keeper.process()))?.into_parts().0;
        Ok(Some(Users { _keeper: keeper, space, ids }))
    }

    /// The descriptor by which a new process enters it.
    pub(crate) fn space(&self) -> RawFd {
        self.space.as_raw_fd()
    }

    /// A sandbox as a guest runs it, whose users are those of this namespace.
    pub(crate) fn seen_by_guest(&self, sandbox: &Sandbox) -> io::Result<Sandbox> {
        let ids = sandbox.ids.within(&self.ids);
        let ids = ids.ok_or_else(|| io::Error::other("the sandboxes of a machine have different ids"))?;
        Ok(Sandbox { ids, ..sandbox.clone() })
    }
}

/// Has a new process, which has one thread, enter a user namespace by its descriptor. It makes only system calls.
pub(crate) fn enter(space: RawFd) -> io::Result<()> {
    // SAFETY: the descriptor is open in the parent until the child runs its program.
    let space = unsafe { BorrowedFd::borrow_raw(space) };
    rustix::thread::move_into_link_name_space(space, Some(rustix::thread::LinkNameSpaceType::User))?;
    Ok(())
}
