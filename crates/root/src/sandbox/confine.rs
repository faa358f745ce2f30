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

/// Keeps who uses the machine's network from the sockets of its services that have a name in that network and no file
/// (unix(7), "abstract"), such as a desktop's bus: they were not bound into the root, and file permissions do not guard them.
/// Kernels before 6.12 do not know how (landlock(7)).
pub(super) fn keep_from_abstract_sockets() -> io::Result<()> {
    /// `struct landlock_ruleset_attr`: what is refused but where a rule allows it, and what is refused at all.
    #[repr(C)]
    struct Rules {
        files: u64,
        network: u64,
        scoped: u64,
    }
    const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
    let rules = Rules { files: 0, network: 0, scoped: SCOPE_ABSTRACT_UNIX_SOCKET };
    // SAFETY: the rules live to the end of the call, and are as long as is said.
    let made =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const rules, size_of::<Rules>(), 0) };
    let descriptor = match check(made as libc::c_int) {
        Ok(descriptor) => descriptor,
        // Not there, turned off, or without this part.
        Err(error)
            if [libc::ENOSYS, libc::EOPNOTSUPP, libc::E2BIG, libc::EINVAL]
                .contains(&error.raw_os_error().unwrap_or(0)) =>
        {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    // SAFETY: numbers alone; the descriptor is open and has no other owner.
    unsafe {
        let restricted = check(libc::syscall(libc::SYS_landlock_restrict_self, descriptor, 0) as libc::c_int);
        libc::close(descriptor);
        restricted.map(|_| ())
    }
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
