//! Answers calls: the rules of `shared/operations.rs` around the real call, made here for the process.

use super::Shared;
use super::attributes;
use super::call::{Call, Named, other_flags};
use super::identity::{Identities, Identity};
use super::listener::{Answer, Listener};
use super::place::OpenPath;
use super::tracee::{Tracee, last_error};
use crate::shared::abi::{Stat, Statx};
use crate::shared::identity::{GROUPS_MAX, IdChange, Refusal};
use crate::shared::memory::Full;
use crate::shared::ownership::{
    FOLDER, Facts, LINK, REGULAR, TYPE, is_device, mode_of_new_folder, mode_on_disk, narrow_number,
    pack_number, view_of_new,
};
use crate::shared::watched::{ANSWER, ARCHITECTURE, FOREIGN_CALLS_FROM, QUESTION};
use std::ffi::c_int;

/// Answers the processes behind one filter.
pub struct Answerer<'a> {
    pub shared: &'a Shared,
    pub listener: &'a Listener,
    pub identities: Identities,
    /// Whether `chown` is also tried on the disk, where it may succeed for root.
    pub is_tried: bool,
}

fn check(result: c_int) -> Result<(), i32> {
    if result == 0 { Ok(()) } else { Err(last_error()) }
}

fn done(result: Result<(), Full>) -> Result<i64, i32> {
    result.map(|()| 0).map_err(|Full| libc::ENOSPC)
}

impl Answerer<'_> {
    /// Answers until no process is left.
    pub fn run(mut self) {
        while let Some(call) = self.listener.next() {
            let answer = self.answer(&call);
            self.listener.answer(call.id, answer);
        }
    }

    fn answer(&mut self, call: &libc::seccomp_notif) -> Answer {
        let number = call.data.nr as u32;
        if call.data.arch != ARCHITECTURE || number >= FOREIGN_CALLS_FROM {
            return self.refuse(call.id, call.pid);
        }
        let tracee = Tracee { listener: self.listener, id: call.id, thread: call.pid };
        match Call::of(number.into(), call.data.args) {
            None => Answer::AsItIs,
            Some(asked) => self.call(&tracee, asked).unwrap_or_else(Answer::Error),
        }
    }

    /// Kills a program of another word size, which this session cannot serve.
    fn refuse(&self, id: u64, thread: u32) -> Answer {
        let program = std::fs::read_link(format!("/proc/{thread}/exe")).unwrap_or_default();
        if self.listener.is_waiting(id) {
            let what = "is a program for another machine or word size, which this session cannot serve";
            self.shared.report(&program.display().to_string(), what);
            // SAFETY: the thread waits for our answer, so its id cannot be reused.
            unsafe { libc::kill(thread as i32, libc::SIGKILL) };
        }
        Answer::Error(libc::ENOSYS)
    }

    fn call(&mut self, tracee: &Tracee, asked: Call) -> Result<Answer, i32> {
        let value = match asked {
            Call::Stat(file, to) => self.stat(tracee, file, to)?,
            Call::Statx(file, flags, mask, to) => self.statx(tracee, file, flags, mask, to)?,
            Call::ChangeOwner(file, user, group) => self.change_owner(tracee, file, user, group)?,
            Call::ChangeMode(file, mode) => self.change_mode(tracee, file, mode)?,
            Call::MakeFolder(file, mode) => self.make_folder(tracee, file, mode)?,
            Call::MakeNode(file, mode, number) => self.make_node(tracee, file, mode, number)?,
            Call::Remove(file, flags) => return self.remove(tracee, file, flags),
            Call::Rename(old, new, flags) => return self.rename(tracee, old, new, flags),
            Call::Id { is_user, is_effective } => {
                let identity = self.identities.of(tracee.thread);
                let ids = if is_user { identity.users } else { identity.groups };
                i64::from(if is_effective { ids.effective } else { ids.real })
            }
            Call::Ids { is_user, to } => {
                if to == [QUESTION as u64; 3] {
                    return Ok(Answer::Value(ANSWER as i64));
                }
                let identity = self.identities.of(tracee.thread);
                let ids = if is_user { identity.users } else { identity.groups };
                for (to, id) in to.into_iter().zip([ids.real, ids.effective, ids.saved]) {
                    tracee.write_numbers(to, &[id])?;
                }
                0
            }
            Call::IdChange { is_user, asked } => self.change_ids(tracee, is_user, asked)?,
            Call::Groups { room, to } => self.groups(tracee, room, to)?,
            Call::SetGroups { count, from } => self.set_groups(tracee, count, from)?,
            Call::Grant => 0,
            Call::SetPriority(which, who, priority) => set_priority(tracee, which, who, priority)?,
            Call::Attribute(file, name, to, room) => {
                attributes::get(&self.shared.table, tracee, file, name, to, room)?
            }
            Call::Attributes(file, to, room) => attributes::list(&self.shared.table, tracee, file, to, room)?,
            Call::SetAttribute(file, place, flags) => {
                attributes::set(&self.shared.table, tracee, file, place, flags)?
            }
            Call::RemoveAttribute(file, name) => attributes::remove(&self.shared.table, tracee, file, name)?,
        };
        Ok(Answer::Value(value))
    }

    fn look(&self, tracee: &Tracee, file: Named, flags: c_int, mask: u32) -> Result<Statx, i32> {
        let mut statx = OpenPath::of(tracee, file)?.statx(flags, mask)?;
        statx.show(self.shared.table.view(&statx.facts()));
        Ok(statx)
    }

    fn stat(&self, tracee: &Tracee, file: Named, to: u64) -> Result<i64, i32> {
        let mut stat = Stat::default();
        stat.fill(&self.look(tracee, file, libc::AT_NO_AUTOMOUNT, 0)?);
        tracee.write(to, bytes_of(&stat))?;
        Ok(0)
    }

    fn statx(&self, tracee: &Tracee, file: Named, flags: c_int, mask: u32, to: u64) -> Result<i64, i32> {
        let statx = self.look(tracee, file, other_flags(flags), mask)?;
        tracee.write(to, bytes_of(&statx))?;
        Ok(0)
    }

    fn change_owner(&self, tracee: &Tracee, file: Named, user: u32, group: u32) -> Result<i64, i32> {
        let found = OpenPath::of(tracee, file)?.open()?;
        if self.is_tried {
            // SAFETY: a path of ours.
            let result = unsafe { libc::chown(found.place.path(), user, group) };
            match check(result) {
                // A user namespace that does not map these ids reports them as not valid.
                Ok(()) | Err(libc::EPERM | libc::EINVAL) => {}
                Err(error) => return Err(error),
            }
        }
        done(self.shared.table.chown(&found.place.facts_to_keep(&self.shared.table)?, user, group))
    }

    fn change_mode(&self, tracee: &Tracee, file: Named, mode: u32) -> Result<i64, i32> {
        const SET_GROUP: u32 = 0o2000;
        let found = OpenPath::of(tracee, file)?.open()?;
        let mut facts = found.place.facts()?;
        if facts.mode & TYPE == LINK {
            return Err(libc::EOPNOTSUPP);
        }
        let given = mode_on_disk(mode, facts.mode & TYPE == FOLDER) & 0o7777;
        // SAFETY: a path of ours.
        match check(unsafe { libc::chmod(found.place.path(), given) }) {
            // In an overlay the chmod may have replaced the inode.
            Ok(()) if given & SET_GROUP != 0 || found.place.is_layered(&self.shared.table, facts.key) => {
                facts = found.place.facts()?;
            }
            Ok(()) => facts.mode = facts.mode & TYPE | given,
            Err(libc::EPERM) => facts = found.place.facts_to_keep(&self.shared.table)?,
            Err(error) => return Err(error),
        }
        done(self.shared.table.chmod(&facts, mode))
    }

    fn make_folder(&self, tracee: &Tracee, file: Named, mode: u32) -> Result<i64, i32> {
        let place = OpenPath::of(tracee, file)?;
        let mask = mask(tracee)?;
        // SAFETY: a path of ours; this thread has its own umask, which is 0.
        check(unsafe { libc::mkdirat(place.folder(), place.path(), mode_on_disk(mode, true) & !mask) })?;
        let facts = place.facts()?;
        let made_as = self.identities.of(tracee.thread).new_file_owner();
        let unknown = self.shared.table.unknown().view(&facts);
        let mode = mode_of_new_folder(facts.mode, mode, mask);
        done(self.shared.table.made(&facts, view_of_new(unknown, made_as, mode, facts.number)))
    }

    fn make_node(&self, tracee: &Tracee, file: Named, mode: u32, number: u64) -> Result<i64, i32> {
        let place = OpenPath::of(tracee, file)?;
        let mask = mask(tracee)?;
        let kind = if mode & TYPE == 0 { REGULAR } else { mode & TYPE };
        let on_disk = mode_on_disk(mode & 0o777, false) & !mask;
        // On the disk, a device is an empty regular file.
        let (real, real_number) = if is_device(kind) { (REGULAR, 0) } else { (kind, number) };
        // SAFETY: a path of ours.
        check(unsafe { libc::mknodat(place.folder(), place.path(), real | on_disk, real_number) })?;
        let facts = place.facts()?;
        // The kernel packs a device number into 32 bits here.
        let (major, minor) = narrow_number(number);
        let packed = if is_device(kind) { pack_number(major, minor) } else { facts.number };
        let made_as = self.identities.of(tracee.thread).new_file_owner();
        let unknown = self.shared.table.unknown().view(&facts);
        let mode = kind | mode & 0o7777 & !mask;
        done(self.shared.table.made(&facts, view_of_new(unknown, made_as, mode, packed)))
    }

    /// The place and facts of a file that will lose a name, if it may have an entry.
    fn known(&self, tracee: &Tracee, file: Named) -> Option<(OpenPath, Facts)> {
        let table = &self.shared.table;
        if table.is_untouched() {
            return None;
        }
        let place = OpenPath::of(tracee, file).ok()?;
        let facts = place.facts().ok()?;
        table.may_have(facts.key).then_some((place, facts))
    }

    fn remove(&self, tracee: &Tracee, file: Named, flags: c_int) -> Result<Answer, i32> {
        let Some((place, facts)) = self.known(tracee, file) else { return Ok(Answer::AsItIs) };
        // SAFETY: a path of ours.
        check(unsafe { libc::unlinkat(place.folder(), place.path(), flags) })?;
        self.shared.table.name_removed(&facts);
        Ok(Answer::Value(0))
    }

    fn rename(&self, tracee: &Tracee, old: Named, new: Named, flags: u32) -> Result<Answer, i32> {
        if flags & libc::RENAME_EXCHANGE != 0 {
            return Ok(Answer::AsItIs);
        }
        let Some((to, facts)) = self.known(tracee, new) else { return Ok(Answer::AsItIs) };
        let from = OpenPath::of(tracee, old)?;
        // The kernel does nothing if both names belong to one file.
        let is_other = from.facts().is_ok_and(|moved| moved.key != facts.key);
        // SAFETY: paths of ours.
        check(unsafe {
            libc::syscall(libc::SYS_renameat2, from.folder(), from.path(), to.folder(), to.path(), flags)
        } as c_int)?;
        if is_other {
            self.shared.table.name_removed(&facts);
        }
        Ok(Answer::Value(0))
    }

    fn change_ids(&mut self, tracee: &Tracee, is_user: bool, asked: IdChange) -> Result<i64, i32> {
        let before = self.identities.of(tracee.thread);
        let files = if is_user { before.users.files } else { before.groups.files };
        let after = before.clone().after(is_user, asked);
        if let Ok(after) = &after
            && *after != before
        {
            self.identities.set(tracee.thread, after.clone());
        }
        match (asked, after) {
            // The previous id, whether or not it changed.
            (IdChange::ForFiles(_), _) => Ok(files.into()),
            (_, Ok(_)) => Ok(0),
            (_, Err(Refusal::NotValid)) => Err(libc::EINVAL),
            (_, Err(Refusal::NotPermitted)) => Err(libc::EPERM),
        }
    }

    fn groups(&self, tracee: &Tracee, room: c_int, to: u64) -> Result<i64, i32> {
        let identity = self.identities.of(tracee.thread);
        let groups = identity.more.unwrap_or_else(|| vec![identity.groups.real]);
        if room != 0 {
            if usize::try_from(room).is_ok_and(|room| room >= groups.len()) {
                tracee.write_numbers(to, &groups)?;
            } else {
                return Err(libc::EINVAL);
            }
        }
        Ok(groups.len() as i64)
    }

    fn set_groups(&mut self, tracee: &Tracee, count: u64, from: u64) -> Result<i64, i32> {
        let identity = self.identities.of(tracee.thread);
        if !identity.is_privileged() {
            return Err(libc::EPERM);
        }
        let count = usize::try_from(count).ok().filter(|count| *count <= GROUPS_MAX).ok_or(libc::EINVAL)?;
        let bytes = tracee.read(from, count * size_of::<u32>())?;
        let more = bytes.chunks_exact(4).map(|four| u32::from_ne_bytes([four[0], four[1], four[2], four[3]]));
        self.identities.set(tracee.thread, Identity { more: Some(more.collect()), ..identity });
        Ok(0)
    }
}

/// The process's umask, which clears permission bits of new files.
fn mask(tracee: &Tracee) -> Result<u32, i32> {
    const OCTAL: u32 = 8;
    tracee.status("Umask", OCTAL).ok_or(libc::EINTR)
}

fn set_priority(tracee: &Tracee, which: c_int, who: u32, priority: c_int) -> Result<i64, i32> {
    let is_own = who == 0 && which == libc::PRIO_PROCESS as c_int;
    let who = if is_own { tracee.thread } else { who };
    // SAFETY: the call has no preconditions.
    match check(unsafe { libc::setpriority(which as _, who, priority) }) {
        Ok(()) | Err(libc::EPERM | libc::EACCES) => Ok(0),
        Err(error) => Err(error),
    }
}

/// The bytes of a kernel structure.
fn bytes_of<T: NoPadding>(value: &T) -> &[u8] {
    // SAFETY: these structures have no padding other than explicit fields.
    unsafe { std::slice::from_raw_parts(std::ptr::from_ref(value).cast(), size_of::<T>()) }
}

/// Structures without implicit padding.
trait NoPadding {}
impl NoPadding for Stat {}
impl NoPadding for Statx {}
