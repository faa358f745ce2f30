//! What a command in a root may not do, though it be root there.

use super::filter::{self, NUMBER, allow, answer, argument, equal, load};
use super::system::check;
use std::io;

/// The capabilities that installing packages needs (capabilities(7)): owners and modes of files, other users'
/// identities, chroot, low ports of its own network, file capabilities. All others go, above all mounting
/// (what is shown for reading stays so), devices, tracing, and file handles.
const KEPT: [u32; 13] = [
    0,  // CAP_CHOWN
    1,  // CAP_DAC_OVERRIDE
    3,  // CAP_FOWNER
    4,  // CAP_FSETID
    5,  // CAP_KILL
    6,  // CAP_SETGID
    7,  // CAP_SETUID
    8,  // CAP_SETPCAP
    10, // CAP_NET_BIND_SERVICE
    18, // CAP_SYS_CHROOT
    27, // CAP_MKNOD
    29, // CAP_AUDIT_WRITE
    31, // CAP_SETFCAP
];

/// The largest number that a kernel may know.
const NUMBER_MAX: u32 = 63;

/// Takes all but [`KEPT`] out of the bounding set: no program can get them back.
pub(super) fn drop_capabilities() -> io::Result<()> {
    for number in (0..=NUMBER_MAX).filter(|number| !KEPT.contains(number)) {
        // SAFETY: numbers alone.
        let dropped =
            check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) });
        match dropped {
            // The kernel knows no capability of this number, nor of any larger one.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            other => other?,
        };
    }
    Ok(())
}

/// Refuses the requests that put text into a terminal as if somebody had typed it (TIOCSTI, and the console's
/// TIOCLINUX): a person's own shell would obey it after the sandbox is left.
pub(super) fn refuse_typing_for_others() -> io::Result<()> {
    filter::install(&mut [
        load(NUMBER),
        equal(libc::SYS_ioctl as u32, 0, 4),
        load(argument(1)),
        equal(libc::TIOCSTI as u32, 1, 0),
        equal(libc::TIOCLINUX as u32, 0, 1),
        answer(libc::EPERM),
        allow(),
    ])
}
