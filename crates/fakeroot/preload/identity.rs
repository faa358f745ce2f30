//! The ids that the process appears to have, by the rules of `shared/identity.rs`; exec preserves them in the
//! environment.

use crate::environment::{self, Digits};
use crate::next::{EACCES, EINVAL, EPERM, fail, next};
use crate::session;
use crate::shared::identity::{
    GROUP_VARIABLES, GROUPS_MAX, GROUPS_VARIABLE, IdChange, Ids, Refusal, UNCHANGED, USER_VARIABLES,
};
use core::ffi::{CStr, c_char, c_int, c_uint};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// User ids or group ids, in the order real, effective, saved, for files.
struct Own {
    names: [&'static CStr; 4],
    ids: [AtomicU32; 4],
    is_read: AtomicU8,
}

static USERS: Own = Own::new(USER_VARIABLES);
static GROUPS: Own = Own::new(GROUP_VARIABLES);

impl Own {
    const fn new(names: [&'static CStr; 4]) -> Own {
        Own { names, ids: [const { AtomicU32::new(0) }; 4], is_read: AtomicU8::new(0) }
    }

    fn ids(&self) -> Ids {
        if self.is_read.load(Relaxed) == 0 {
            for (name, id) in self.names.iter().zip(&self.ids) {
                id.store(environment::number(name.to_bytes()).unwrap_or(0), Relaxed);
            }
            self.is_read.store(1, Relaxed);
        }
        let [real, effective, saved, files] = [0, 1, 2, 3].map(|which: usize| self.ids[which].load(Relaxed));
        Ids { real, effective, saved, files }
    }

    fn become_(&self, asked: IdChange) -> Result<(), Refusal> {
        let before = self.ids();
        let after = before.after(asked, is_privileged())?;
        let values = |ids: Ids| [ids.real, ids.effective, ids.saved, ids.files];
        for (which, (old, new)) in values(before).into_iter().zip(values(after)).enumerate() {
            if old != new {
                self.ids[which].store(new, Relaxed);
                environment::set(self.names[which], environment::digits(new, &mut Digits::default()));
            }
        }
        Ok(())
    }

    fn change(&self, asked: IdChange) -> c_int {
        match self.become_(asked) {
            Ok(()) => 0,
            Err(Refusal::NotValid) => fail(EINVAL),
            Err(Refusal::NotPermitted) => fail(EPERM),
        }
    }

    /// Returns the previous id, whether or not it changed.
    fn change_for_files(&self, asked: IdChange) -> c_int {
        let before = self.ids().files;
        let _ = self.become_(asked);
        before as c_int
    }
}

/// Whether the process may assume any id.
fn is_privileged() -> bool {
    USERS.ids().effective == 0
}

/// Whether new files belong to root.
pub fn makes_as_root() -> bool {
    new_file_owner() == (0, 0)
}

/// The owner of new files.
pub fn new_file_owner() -> (u32, u32) {
    (USERS.ids().files, GROUPS.ids().files)
}

macro_rules! getters {
    ($($name:ident $ids:ident $which:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name() -> c_uint {
            match session::table() {
                Some(_) => $ids.ids().$which,
                None => next!($name() -> c_uint, or 0),
            }
        }
    )*};
}
getters! {
    getuid USERS real;
    geteuid USERS effective;
    getgid GROUPS real;
    getegid GROUPS effective;
}

macro_rules! setters {
    ($($name:ident($($id:ident),*) $ids:ident.$change:ident($asked:expr);)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($id: c_uint),*) -> c_int {
            match session::table() {
                Some(_) => $ids.$change($asked),
                None => next!($name($($id => c_uint),*)),
            }
        }
    )*};
}
setters! {
    setuid(id) USERS.change(IdChange::One(id));
    setgid(id) GROUPS.change(IdChange::One(id));
    seteuid(id) USERS.change(IdChange::Three(UNCHANGED, id, UNCHANGED));
    setegid(id) GROUPS.change(IdChange::Three(UNCHANGED, id, UNCHANGED));
    setreuid(real, effective) USERS.change(IdChange::Two(real, effective));
    setregid(real, effective) GROUPS.change(IdChange::Two(real, effective));
    setresuid(real, effective, saved) USERS.change(IdChange::Three(real, effective, saved));
    setresgid(real, effective, saved) GROUPS.change(IdChange::Three(real, effective, saved));
    setfsuid(id) USERS.change_for_files(IdChange::ForFiles(id));
    setfsgid(id) GROUPS.change_for_files(IdChange::ForFiles(id));
}

macro_rules! triple_getters {
    ($($name:ident $ids:ident;)*) => {$(
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(real: *mut c_uint, effective: *mut c_uint, saved: *mut c_uint) -> c_int {
            if session::table().is_none() {
                return next!($name(real => *mut c_uint, effective => *mut c_uint, saved => *mut c_uint));
            }
            // SAFETY: the caller's three buffers.
            unsafe {
                *real = $ids.ids().real;
                *effective = $ids.ids().effective;
                *saved = $ids.ids().saved;
            }
            0
        }
    )*};
}
triple_getters! {
    getresuid USERS;
    getresgid GROUPS;
}

/// Visits the groups that were set, or the process's own group.
fn groups(mut visit: impl FnMut(u32)) {
    match environment::get(GROUPS_VARIABLE.to_bytes()) {
        Some(text) => text
            .to_bytes()
            .split(|letter| *letter == b',')
            .filter_map(|number| core::str::from_utf8(number).ok()?.parse().ok())
            .for_each(visit),
        None => visit(GROUPS.ids().real),
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn getgroups(room: c_int, to: *mut c_uint) -> c_int {
    if session::table().is_none() {
        return next!(getgroups(room => c_int, to => *mut c_uint));
    }
    let mut count = 0;
    groups(|group| {
        if count < room {
            // SAFETY: the caller's list has this much room.
            unsafe { *to.add(count as usize) = group };
        }
        count += 1;
    });
    if room < 0 || (room != 0 && room < count) { fail(EINVAL) } else { count }
}

fn set_groups(list: &[c_uint]) -> c_int {
    if !is_privileged() {
        return fail(EPERM);
    }
    if list.len() > GROUPS_MAX {
        return fail(EINVAL);
    }
    let mut text = [0; GROUPS_MAX * size_of::<Digits>()];
    let mut at = 0;
    for group in list {
        if at != 0 {
            text[at] = b',';
            at += 1;
        }
        let mut room = Digits::default();
        let digits = environment::digits(*group, &mut room).to_bytes();
        text[at..at + digits.len()].copy_from_slice(digits);
        at += digits.len();
    }
    environment::set(GROUPS_VARIABLE, CStr::from_bytes_until_nul(&text).unwrap_or(c""));
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setgroups(count: usize, list: *const c_uint) -> c_int {
    if session::table().is_none() {
        return next!(setgroups(count => usize, list => *const c_uint));
    }
    // SAFETY: the caller's list has this many groups; an empty one may be null.
    set_groups(if count == 0 { &[] } else { unsafe { core::slice::from_raw_parts(list, count) } })
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn initgroups(user: *const c_char, group: c_uint) -> c_int {
    if session::table().is_none() {
        return next!(initgroups(user => *const c_char, group => c_uint));
    }
    let mut list = [0; GROUPS_MAX];
    let mut count = GROUPS_MAX as c_int;
    let found = next!(getgrouplist(user => *const c_char, group => c_uint, list.as_mut_ptr() => *mut c_uint,
        &raw mut count => *mut c_int));
    if found < 0 {
        return fail(EINVAL);
    }
    set_groups(&list[..count as usize])
}

/// Reports success if a call was refused that only root may make and that has no visible effect.
fn granted(result: c_int) -> c_int {
    let is_refusal = || matches!(crate::next::errno(), EPERM | EACCES);
    if result != 0 && session::table().is_some() && is_refusal() { 0 } else { result }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn setpriority(which: c_int, who: c_uint, priority: c_int) -> c_int {
    granted(next!(setpriority(which => c_int, who => c_uint, priority => c_int)))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn capset(header: *mut u8, data: *const u8) -> c_int {
    granted(next!(capset(header => *mut u8, data => *const u8)))
}
