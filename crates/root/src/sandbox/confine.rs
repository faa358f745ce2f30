//! Restrictions of a command in a root, even if it runs as root there.

use super::filter::{self, NUMBER, allow, answer, argument, equal, load};
use super::system::check;
use std::io;

/// The capabilities needed to install packages (capabilities(7)): owners and modes of files, identities of other
/// users, chroot, low ports of its own network, file capabilities. All others are dropped, above all those for mounting
/// (so read-only mounts stay read-only), devices, tracing, and file handles.
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

/// The largest possible capability number.
const NUMBER_MAX: u32 = 63;

/// Drops all capabilities but [`KEPT`] from the bounding set: a program cannot get them back.
pub(super) fn drop_capabilities() -> io::Result<()> {
    for number in (0..=NUMBER_MAX).filter(|number| !KEPT.contains(number)) {
        // SAFETY: the call takes only integers.
        let dropped =
            check(unsafe { libc::prctl(libc::PR_CAPBSET_DROP, libc::c_ulong::from(number), 0, 0, 0) });
        match dropped {
            // The kernel has no capability with this number or a larger one.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => return Ok(()),
            other => other?,
        };
    }
    Ok(())
}

/// Denies a command with the machine's network access to abstract Unix sockets of the machine (unix(7)), such as a
/// desktop's D-Bus: they belong to the network namespace, so they are visible without a bind mount, and file
/// permissions do not protect them. Kernels before 6.12 do not support this (landlock(7)).
pub(super) fn keep_from_abstract_sockets() -> io::Result<()> {
    /// `struct landlock_ruleset_attr`: accesses denied unless a rule allows them, and scopes denied without exception.
    #[repr(C)]
    struct Rules {
        files: u64,
        network: u64,
        scoped: u64,
    }
    const SCOPE_ABSTRACT_UNIX_SOCKET: u64 = 1;
    let rules = Rules { files: 0, network: 0, scoped: SCOPE_ABSTRACT_UNIX_SOCKET };
    // SAFETY: the rules outlive the call, and the size is theirs.
    let made =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const rules, size_of::<Rules>(), 0) };
    let descriptor = match check(made as libc::c_int) {
        Ok(descriptor) => descriptor,
        // Landlock is missing, disabled, or without scopes.
        Err(error)
            if [libc::ENOSYS, libc::EOPNOTSUPP, libc::E2BIG, libc::EINVAL]
                .contains(&error.raw_os_error().unwrap_or(0)) =>
        {
            return Ok(());
        }
        Err(error) => return Err(error),
    };
    // SAFETY: the calls take only integers; the descriptor is open and has no other owner.
    unsafe {
        let restricted = check(libc::syscall(libc::SYS_landlock_restrict_self, descriptor, 0) as libc::c_int);
        libc::close(descriptor);
        restricted.map(|_| ())
    }
}

/// Refuses the requests that insert text into a terminal as if the user had typed it (TIOCSTI, and TIOCLINUX of the
/// console): the user's shell would execute it after the sandbox ends.
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
