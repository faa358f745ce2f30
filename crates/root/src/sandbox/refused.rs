//! Counts refused system calls: the command's filter notifies process 1, which makes each call fail
//! (seccomp_unotify(2)).
//!
//! The command installs the filter just before it starts and passes the listening descriptor to process 1. A process
//! can have only one such descriptor: a program in the root that wants its own gets `EBUSY`, and if Kilnyard itself
//! runs under one, the filter makes calls fail without a notification.

use super::filter;
use super::refusals::{self, Nesting, Verdict};
use super::system::check;
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::path::Path;

/// The socket pair by which the descriptor is passed: the end of process 1, and the end of the command.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
    // SAFETY: the array has room for the two new descriptors, which have no other owner.
    unsafe {
        check(libc::socketpair(libc::AF_UNIX, kind, 0, ends.as_mut_ptr()))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Installs the filter for this process and passes its descriptor to process 1. This process must have set
/// no_new_privs.
pub(super) fn install(nesting: Nesting, to: &OwnedFd) -> io::Result<()> {
    let has_socketcall = is_32_bit_root();
    let fail = || filter::install(&mut refusals::program(nesting, Verdict::Fail, has_socketcall));
    if nesting == Nesting::Allowed {
        return fail();
    }
    match filter::install_listening(&mut refusals::program(nesting, Verdict::Ask, has_socketcall)) {
        Ok(listener) => send(to, &listener),
        // A listener exists already, or this kernel does not support them (before 5.0).
        Err(error) if [Some(libc::EBUSY), Some(libc::EINVAL)].contains(&error.raw_os_error()) => fail(),
        Err(error) => Err(error),
    }
}

/// Whether the root's own programs are 32-bit, judged by its shell.
fn is_32_bit_root() -> bool {
    const CLASS_32: u8 = 1;
    let mut head = [0; 5];
    let read = std::fs::File::open(Path::new("/bin/sh"))
        .and_then(|mut file| io::Read::read_exact(&mut file, &mut head));
    read.is_ok() && head == [0x7f, b'E', b'L', b'F', CLASS_32]
}

/// Buffer for the control message of one descriptor, aligned as cmsg(3) requires.
#[repr(C, align(8))]
struct Control([u8; 64]);

fn message(byte: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: an all-zero message is an empty one.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = byte;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    // SAFETY: the macro only computes a size.
    message.msg_controllen = unsafe { libc::CMSG_SPACE(size_of::<RawFd>() as u32) } as _;
    message
}

fn send(to: &OwnedFd, listener: &OwnedFd) -> io::Result<()> {
    let (mut byte, mut control) = (1_u8, Control([0; 64]));
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let message = message(&mut part, &mut control);
    // SAFETY: the buffer has room for the one control message, and all parts outlive the call.
    unsafe {
        let head = libc::CMSG_FIRSTHDR(&message);
        (*head).cmsg_level = libc::SOL_SOCKET;
        (*head).cmsg_type = libc::SCM_RIGHTS;
        (*head).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as u32) as _;
        libc::CMSG_DATA(head).cast::<RawFd>().write_unaligned(listener.as_raw_fd());
        check(libc::sendmsg(to.as_raw_fd(), &message, libc::MSG_NOSIGNAL) as libc::c_int).map(drop)
    }
}

fn receive(from: &OwnedFd) -> Option<OwnedFd> {
    let (mut byte, mut control) = (0_u8, Control([0; 64]));
    let mut part = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    let mut message = message(&mut part, &mut control);
    // SAFETY: the buffers outlive the call; a received control message is read in the kernel's layout.
    unsafe {
        if libc::recvmsg(from.as_raw_fd(), &mut message, libc::MSG_CMSG_CLOEXEC) <= 0 {
            return None;
        }
        let head = libc::CMSG_FIRSTHDR(&message);
        if head.is_null() || (*head).cmsg_type != libc::SCM_RIGHTS {
            return None;
        }
        Some(OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned()))
    }
}

/// Process 1's connection to the filter.
#[derive(Debug)]
enum Source {
    /// The command has not passed the descriptor yet.
    Awaited(OwnedFd),
    Listener(OwnedFd),
    /// No descriptor came, or no process uses the filter any more.
    Gone,
}

/// Makes refused calls fail and counts them.
#[derive(Debug)]
pub(super) struct Refused {
    source: Source,
    /// By call name; bounded by the list in [`refusals`].
    counts: BTreeMap<&'static str, u64>,
}

impl Refused {
    /// `from` is process 1's end of [`pair`].
    pub(super) fn new(from: OwnedFd) -> Refused {
        Refused { source: Source::Awaited(from), counts: BTreeMap::new() }
    }

    /// The descriptor to poll for input; negative if there is nothing to wait for.
    pub(super) fn descriptor(&self) -> RawFd {
        match &self.source {
            Source::Awaited(descriptor) | Source::Listener(descriptor) => descriptor.as_raw_fd(),
            Source::Gone => -1,
        }
    }

    /// Handles one event after the descriptor was polled.
    pub(super) fn take(&mut self, events: libc::c_short) {
        match &self.source {
            Source::Awaited(from) => {
                self.source = receive(from).map_or(Source::Gone, Source::Listener);
            }
            Source::Listener(listener) if events & libc::POLLIN != 0 => {
                if let Some(name) = fail_one(listener.as_raw_fd()) {
                    *self.counts.entry(name).or_default() += 1;
                }
            }
            Source::Listener(_) => self.source = Source::Gone,
            Source::Gone => {}
        }
    }

    /// The number of refusals of each call, by name.
    pub(super) fn into_counts(self) -> Vec<(String, u64)> {
        self.counts.into_iter().map(|(name, count)| (name.to_owned(), count)).collect()
    }
}

/// Makes the next pending call fail. Returns its name, or `None` if the caller was killed in the meantime.
fn fail_one(listener: RawFd) -> Option<&'static str> {
    // SAFETY: the kernel requires a zeroed structure and fills it.
    let call = unsafe {
        let mut call: libc::seccomp_notif = std::mem::zeroed();
        check(libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut call)).ok()?;
        call
    };
    let (name, error) = refusals::refused(call.data.arch, call.data.nr as u32);
    let mut answer = libc::seccomp_notif_resp { id: call.id, val: 0, error: -error, flags: 0 };
    // SAFETY: the structure outlives the call.
    unsafe { libc::ioctl(listener, libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw mut answer) };
    Some(name)
}
