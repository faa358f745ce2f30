//! What a command in a root may not do, though it be root there.

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
    const NUMBER: u32 = std::mem::offset_of!(libc::seccomp_data, nr) as u32;
    // The low half of the second argument; the kernel looks at no more of it.
    const REQUEST: u32 = std::mem::offset_of!(libc::seccomp_data, args) as u32
        + 8
        + if cfg!(target_endian = "big") { 4 } else { 0 };
    let load = |offset| libc::sock_filter {
        code: (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16,
        jt: 0,
        jf: 0,
        k: offset,
    };
    let equal = |value, jt, jf| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt,
        jf,
        k: value,
    };
    let end =
        |value| libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: value };
    let mut filter = [
        load(NUMBER),
        equal(libc::SYS_ioctl as u32, 0, 4),
        load(REQUEST),
        equal(libc::TIOCSTI as u32, 1, 0),
        equal(libc::TIOCLINUX as u32, 0, 1),
        end(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        end(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the program and its filter live to the end of the call, which copies them.
    check(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) })?;
    Ok(())
}
