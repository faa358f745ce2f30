//! Admits a gate. The protocol is described in `gate/main.rs`.

use super::Shared;
use super::answer::Answerer;
use super::identity::{Identities, Identity};
use super::listener::Listener;
use super::tracee::read_memory;
use crate::shared::kernel;
use crate::shared::layout::MAGIC;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A gate sends its messages immediately; one that does not was killed, or is not a gate.
const PATIENCE: Duration = Duration::from_secs(10);
const YES: u8 = 1;
const NO: u8 = 0;

/// Admits a gate, and answers the processes behind its filter.
pub fn admit(mut stream: &UnixStream, shared: &Shared) {
    let is_room = shared.listeners.fetch_add(1, Ordering::AcqRel) < shared.listeners_max;
    let admitted = talk(&mut stream, shared, is_room);
    if let Ok(Some((listener, environment))) = admitted {
        clear_own_umask();
        let listener = Listener(listener);
        let is_tried = kernel::real_effective_user() == 0 && !says_not_to_try(&environment);
        let identities = Identities::new(Identity::of_environment(&environment));
        Answerer { shared, listener: &listener, identities, is_tried }.run();
    }
    shared.listeners.fetch_sub(1, Ordering::AcqRel);
}

/// The filter's descriptor and the program's environment; `None` if the program runs unanswered.
fn talk(stream: &mut &UnixStream, shared: &Shared, is_room: bool) -> io::Result<Option<(OwnedFd, Vec<u8>)>> {
    stream.set_read_timeout(Some(PATIENCE))?;
    let process = peer(stream)?;
    let mut address = [0; 8];
    stream.read_exact(&mut address)?;
    let words = std::fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
    let program = match words.split(|byte| *byte == 0).nth(2) {
        Some(program) if !program.is_empty() => String::from_utf8_lossy(program).into_owned(),
        _ => format!("process {process}"),
    };
    let alone = |why: &str| {
        let what = format!("makes its own system calls and sees real owners, because {why}");
        shared.report(&program, &what);
    };
    let mut probe = [0; 8];
    let seen = read_memory(process, u64::from_ne_bytes(address), &mut probe);
    let environment = std::fs::read(format!("/proc/{process}/environ"));
    let seen = seen.map_err(io::Error::from_raw_os_error).and(environment);
    let environment = match seen {
        Ok(environment) if u64::from_ne_bytes(probe) == MAGIC => environment,
        seen => {
            let cause = seen.map_or_else(|error| error.to_string(), |_| "unexpected content".to_owned());
            alone(&format!("the launcher cannot read the program's memory: {cause}"));
            stream.write_all(&[NO])?;
            return Ok(None);
        }
    };
    if !is_room {
        alone(&format!("{} other programs are already answered", shared.listeners_max));
        stream.write_all(&[NO])?;
        return Ok(None);
    }
    stream.write_all(&[YES])?;
    let (number, descriptor) = receive(stream)?;
    if descriptor.is_none() {
        let error = io::Error::from_raw_os_error(number as i32);
        alone(&format!("its system calls cannot be handed over: {error}"));
    }
    stream.write_all(&[YES])?;
    Ok(descriptor.map(|descriptor| (descriptor, environment)))
}

/// The process id of the other end of a connection.
fn peer(stream: &UnixStream) -> io::Result<u32> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: the pointers are to a structure and its length.
    let result =
        unsafe { libc::getsockopt(stream.as_raw_fd(), level, name, (&raw mut who).cast(), &raw mut bytes) };
    if result == 0 { Ok(who.pid as u32) } else { Err(io::Error::last_os_error()) }
}

/// Receives a number, with a descriptor if one was sent.
fn receive(stream: &UnixStream) -> io::Result<(u64, Option<OwnedFd>)> {
    let mut number = [0u8; 8];
    // Aligned, and large enough for one descriptor.
    let mut control = [0u64; 4];
    let mut part = libc::iovec { iov_base: number.as_mut_ptr().cast(), iov_len: number.len() };
    // SAFETY: plain numbers and addresses, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = size_of_val(&control) as _;
    // SAFETY: everything that the message points to outlives the call.
    let length = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC) };
    if length < 0 {
        return Err(io::Error::last_os_error());
    }
    if length as usize != number.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    // SAFETY: the kernel has filled the message; a descriptor in it belongs to us from now on.
    let descriptor = unsafe {
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (!head.is_null() && (*head).cmsg_type == libc::SCM_RIGHTS)
            .then(|| OwnedFd::from_raw_fd(libc::CMSG_DATA(head).cast::<RawFd>().read_unaligned()))
    };
    Ok((u64::from_ne_bytes(number), descriptor))
}

/// Gives this thread a separate umask, which clears no bits.
fn clear_own_umask() {
    // SAFETY: only this thread is affected.
    unsafe {
        if libc::unshare(libc::CLONE_FS) == 0 {
            libc::umask(0);
        }
    }
}

fn says_not_to_try(environment: &[u8]) -> bool {
    let lines = environment.split(|byte| *byte == 0);
    lines.filter_map(|line| line.strip_prefix(b"FAKEROOTDONTTRYCHOWN=")).any(|value| !value.is_empty())
}
