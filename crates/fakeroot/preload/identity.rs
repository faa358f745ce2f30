//! Who the process believes to be. The rules are those of credentials(7) and setresuid(2) for a process that has
//! begun as root; exec keeps them in the environment, under the names that fakeroot gave them.

use crate::environment::{self, Digits};
use crate::next::{EACCES, EINVAL, EPERM, fail, next};
use crate::session;
use core::ffi::{CStr, c_char, c_int, c_uint};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// Users, or groups.
struct Ids {
    names: [&'static CStr; 4],
    ids: [AtomicU32; 4],
    is_read: AtomicU8,
}

const REAL: usize = 0;
const EFFECTIVE: usize = 1;
const SAVED: usize = 2;
const FILES: usize = 3;
const UNCHANGED: u32 = u32::MAX;

static USERS: Ids = Ids::new([c"FAKEROOTUID", c"FAKEROOTEUID", c"FAKEROOTSUID", c"FAKEROOTFUID"]);
static GROUPS: Ids = Ids::new([c"FAKEROOTGID", c"FAKEROOTEGID", c"FAKEROOTSGID", c"FAKEROOTFGID"]);

impl Ids {
    const fn new(names: [&'static CStr; 4]) -> Ids {
        Ids { names, ids: [const { AtomicU32::new(0) }; 4], is_read: AtomicU8::new(0) }
    }

    fn get(&self, which: usize) -> u32 {
        if self.is_read.load(Relaxed) == 0 {
            for (name, id) in self.names.iter().zip(&self.ids) {
                id.store(environment::number(name.to_bytes()).unwrap_or(0), Relaxed);
            }
            self.is_read.store(1, Relaxed);
        }
        self.ids[which].load(Relaxed)
    }

    fn set(&self, which: usize, id: u32) {
        if id == UNCHANGED || self.get(which) == id {
            return;
        }
        self.ids[which].store(id, Relaxed);
        environment::set(self.names[which], environment::digits(id, &mut Digits::default()));
    }

    fn has(&self, id: u32, among: &[usize]) -> bool {
        id == UNCHANGED || is_privileged() || among.iter().any(|which| self.get(*which) == id)
    }

    /// setuid(2), setgid(2).
    fn become_one(&self, id: u32) -> c_int {
        if id == UNCHANGED {
            return fail(EINVAL);
        }
        if !self.has(id, &[REAL, SAVED]) {
            return fail(EPERM);
        }
        let all = is_privileged();
        for which in [FILES, EFFECTIVE, SAVED, REAL] {
            if all || which == FILES || which == EFFECTIVE {
                self.set(which, id);
            }
        }
        0
    }

    /// setreuid(2), setregid(2).
    fn become_two(&self, real: u32, effective: u32) -> c_int {
        if !self.has(real, &[REAL, EFFECTIVE]) || !self.has(effective, &[REAL, EFFECTIVE, SAVED]) {
            return fail(EPERM);
        }
        let takes_over = real != UNCHANGED || (effective != UNCHANGED && effective != self.get(REAL));
        self.set(REAL, real);
        self.set(EFFECTIVE, effective);
        if takes_over {
            self.set(SAVED, self.get(EFFECTIVE));
        }
        self.set(FILES, self.get(EFFECTIVE));
        0
    }

    /// setresuid(2), setresgid(2).
    fn become_three(&self, real: u32, effective: u32, saved: u32) -> c_int {
        let any = [REAL, EFFECTIVE, SAVED];
        if [real, effective, saved].iter().any(|id| !self.has(*id, &any)) {
            return fail(EPERM);
        }
        self.set(REAL, real);
        self.set(EFFECTIVE, effective);
        self.set(SAVED, saved);
        self.set(FILES, self.get(EFFECTIVE));
        0
    }

    /// setfsuid(2), setfsgid(2): the one before.
    fn become_for_files(&self, id: u32) -> c_int {
        let before = self.get(FILES);
        if id != UNCHANGED && self.has(id, &[REAL, EFFECTIVE, SAVED, FILES]) {
            self.set(FILES, id);
        }
        before as c_int
    }
}

/// Whether it may become whom it wants.
fn is_privileged() -> bool {
    USERS.get(EFFECTIVE) == 0
}

/// Whether what it makes is root's.
pub fn makes_as_root() -> bool {
    makes_as() == (0, 0)
}

/// Whose what it makes is.
pub fn makes_as() -> (u32, u32) {
    (USERS.get(FILES), GROUPS.get(FILES))
}

/// User, effective user, group, effective group.
pub fn by_position(which: usize) -> u32 {
    [USERS.get(REAL), USERS.get(EFFECTIVE), GROUPS.get(REAL), GROUPS.get(EFFECTIVE)][which]
}

macro_rules! getters {
    ($($name:ident $ids:ident $which:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() -> c_uint {
            match session::table() {
                Some(_) => $ids.get($which),
                None => next!($name() -> c_uint, or 0),
            }
        }
    )*};
}
getters! {
    getuid USERS REAL;
    geteuid USERS EFFECTIVE;
    getgid GROUPS REAL;
    getegid GROUPS EFFECTIVE;
}

macro_rules! setters {
    ($($name:ident($($id:ident),*) $ids:ident.$become:ident($($argument:expr),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($id: c_uint),*) -> c_int {
            match session::table() {
                Some(_) => $ids.$become($($argument),*),
                None => next!($name($($id => c_uint),*)),
            }
        }
    )*};
}
setters! {
    setuid(id) USERS.become_one(id);
    setgid(id) GROUPS.become_one(id);
    seteuid(id) USERS.become_three(UNCHANGED, id, UNCHANGED);
    setegid(id) GROUPS.become_three(UNCHANGED, id, UNCHANGED);
    setreuid(real, effective) USERS.become_two(real, effective);
    setregid(real, effective) GROUPS.become_two(real, effective);
    setresuid(real, effective, saved) USERS.become_three(real, effective, saved);
    setresgid(real, effective, saved) GROUPS.become_three(real, effective, saved);
    setfsuid(id) USERS.become_for_files(id);
    setfsgid(id) GROUPS.become_for_files(id);
}

macro_rules! triple_getters {
    ($($name:ident $ids:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(real: *mut c_uint, effective: *mut c_uint, saved: *mut c_uint) -> c_int {
            if session::table().is_none() {
                return next!($name(real => *mut c_uint, effective => *mut c_uint, saved => *mut c_uint));
            }
            // SAFETY: the caller's three places.
            unsafe {
                *real = $ids.get(REAL);
                *effective = $ids.get(EFFECTIVE);
                *saved = $ids.get(SAVED);
            }
            0
        }
    )*};
}
triple_getters! {
    getresuid USERS;
    getresgid GROUPS;
}

/// Groups beside the first one, kept over exec as numbers with commas between them.
const MORE_GROUPS: &CStr = c"FAKEROOTGROUPS";
/// How many a process may have: what fits into a variable of a page.
const MORE_GROUPS_MAX: usize = 256;

/// The groups that were set, or the process's own one.
fn groups(mut visit: impl FnMut(u32)) {
    match environment::get(MORE_GROUPS.to_bytes()) {
        Some(text) => text
            .to_bytes()
            .split(|letter| *letter == b',')
            .filter_map(|number| core::str::from_utf8(number).ok()?.parse().ok())
            .for_each(visit),
        None => visit(GROUPS.get(REAL)),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn getgroups(room: c_int, to: *mut c_uint) -> c_int {
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
    if list.len() > MORE_GROUPS_MAX {
        return fail(EINVAL);
    }
    let mut text = [0; MORE_GROUPS_MAX * size_of::<Digits>()];
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
    environment::set(MORE_GROUPS, CStr::from_bytes_until_nul(&text).unwrap_or(c""));
    0
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setgroups(count: usize, list: *const c_uint) -> c_int {
    if session::table().is_none() {
        return next!(setgroups(count => usize, list => *const c_uint));
    }
    // SAFETY: the caller's list has so many; an empty one may be null.
    set_groups(if count == 0 { &[] } else { unsafe { core::slice::from_raw_parts(list, count) } })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn initgroups(user: *const c_char, group: c_uint) -> c_int {
    if session::table().is_none() {
        return next!(initgroups(user => *const c_char, group => c_uint));
    }
    let mut list = [0; MORE_GROUPS_MAX];
    let mut count = MORE_GROUPS_MAX as c_int;
    let found = next!(getgrouplist(user => *const c_char, group => c_uint, list.as_mut_ptr() => *mut c_uint,
        &raw mut count => *mut c_int));
    if found < 0 {
        return fail(EINVAL);
    }
    set_groups(&list[..count as usize])
}

/// What root may and we may not, and what nobody sees afterwards: it is as if it were done.
fn granted(result: c_int) -> c_int {
    let is_refusal = || matches!(crate::next::errno(), EPERM | EACCES);
    if result != 0 && session::table().is_some() && is_refusal() { 0 } else { result }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn setpriority(which: c_int, who: c_uint, priority: c_int) -> c_int {
    granted(next!(setpriority(which => c_int, who => c_uint, priority => c_int)))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn capset(header: *mut u8, data: *const u8) -> c_int {
    granted(next!(capset(header => *mut u8, data => *const u8)))
}
