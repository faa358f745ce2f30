//! `syscall`: calls by their numbers, for what libc has no function for yet, or had none when the program was
//! written. Those that matter here are led to the functions; all others go on as they are.

use crate::facts::Named;
use crate::next::next;
use crate::owner::{change_mode, change_owner};
use crate::shared::abi::{Stat, Statx};
use crate::{make, name, session, stat};
use core::ffi::{c_char, c_int, c_long};

/// Numbers that are the same on all machines since they were given out.
const FCHMODAT2: c_long = 452;

#[cfg(target_arch = "x86_64")]
mod number {
    use core::ffi::c_long;
    pub const FSTATAT: c_long = 262;
    pub const STATX: c_long = 332;
    pub const FCHOWNAT: c_long = 260;
    pub const FCHOWN: c_long = 93;
    pub const FCHMODAT: c_long = 268;
    pub const FCHMOD: c_long = 91;
    pub const MKDIRAT: c_long = 258;
    pub const MKNODAT: c_long = 259;
    pub const UNLINKAT: c_long = 263;
    pub const RENAMEAT2: c_long = 316;
    pub const IDENTITIES: [c_long; 4] = [102, 107, 104, 108];
}

#[cfg(target_arch = "aarch64")]
mod number {
    use core::ffi::c_long;
    pub const FSTATAT: c_long = 79;
    pub const STATX: c_long = 291;
    pub const FCHOWNAT: c_long = 54;
    pub const FCHOWN: c_long = 55;
    pub const FCHMODAT: c_long = 53;
    pub const FCHMOD: c_long = 52;
    pub const MKDIRAT: c_long = 34;
    pub const MKNODAT: c_long = 33;
    pub const UNLINKAT: c_long = 35;
    pub const RENAMEAT2: c_long = 276;
    pub const IDENTITIES: [c_long; 4] = [174, 175, 176, 177];
}

type Arguments = [c_long; 6];

/// The call as it is; -1 with `errno`, as libc's `syscall` has it.
fn real(number: c_long, arguments: Arguments) -> c_long {
    let [a, b, c, d, e, f] = arguments;
    next!(syscall(number => c_long, a => c_long, b => c_long, c => c_long, d => c_long, e => c_long, f => c_long)
        -> c_long, or -1)
}

/// It takes as many arguments as the call has; the others are whatever stands in their registers.
#[unsafe(no_mangle)]
unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    let arguments = [a, b, c, d, e, f];
    let as_it_is = || real(number, arguments) as c_int;
    if session::table().is_none() {
        return real(number, arguments);
    }
    let path = |at: usize| arguments[at] as *const c_char;
    let file = |flags: c_long| Named { folder: a as c_int, path: path(1), flags: flags as c_int };
    let open = || Named::open(a as c_int);
    let result = match number {
        number::FSTATAT => stat::look(file(d), c as *mut Stat, as_it_is),
        // SAFETY: the arguments are those of statx.
        number::STATX => unsafe { stat::statx(a as c_int, path(1), c as c_int, d as u32, e as *mut Statx) },
        number::FCHOWNAT => change_owner(file(e), c as u32, d as u32, as_it_is),
        number::FCHOWN => change_owner(open(), b as u32, c as u32, as_it_is),
        FCHMODAT2 => {
            change_mode(file(d), c as u32, |mode| real(number, [a, b, mode.into(), d, e, f]) as c_int)
        }
        number::FCHMODAT => {
            change_mode(file(0), c as u32, |mode| real(number, [a, b, mode.into(), d, e, f]) as c_int)
        }
        number::FCHMOD => {
            change_mode(open(), b as u32, |mode| real(number, [a, mode.into(), c, d, e, f]) as c_int)
        }
        number::MKDIRAT => {
            make::make_folder(file(crate::shared::abi::AT_SYMLINK_NOFOLLOW.into()), c as u32, |mode| {
                real(number, [a, b, mode.into(), d, e, f]) as c_int
            })
        }
        number::MKNODAT => make::make_node_at(a as c_int, path(1), c as u32, d as u64),
        number::UNLINKAT => name::remove_name(a as c_int, path(1), as_it_is),
        number::RENAMEAT2 => {
            name::replace_name((a as c_int, path(1)), (c as c_int, path(3)), e as u32, as_it_is)
        }
        _ => match number::IDENTITIES.iter().position(|identity| *identity == number) {
            Some(which) => return crate::identity::by_position(which).into(),
            None => return real(number, arguments),
        },
    };
    result.into()
}
