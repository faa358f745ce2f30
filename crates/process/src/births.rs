//! Records the parent of every process: the kernel reports each fork as it happens (the process connector,
//! Documentation/driver-api/connector.rst, linux/cn_proc.h).
//!
//! A daemon forks twice, so its parent is gone by the time anything inspects the process. Only a listener that
//! received both forks can name its ancestors. One socket serves all commands that run at the same time. It
//! requests only fork events, and is read a few times per second. Process ids inside a sandbox are found by counting,
//! since its pid namespace assigns them in order: each process or thread started below process 1 takes the next id.
//!
//! The kernel reports forks in the initial namespaces only, and to ordinary users since Linux 6.6. Elsewhere nothing is
//! reported, and only the samples of the sandbox remain. Lost events, or a fork that failed half-way, would throw off
//! the count, so ancestors are reported only if the counted id of the process is the known one.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::time::Duration;

/// How long events may wait in the socket, whose buffer holds some ten thousand events.
const READ_EVERY: Duration = Duration::from_millis(200);
/// The size of the socket's buffer.
static BUFFER_BYTES: libc::c_int = 8 << 20;
/// How many processes are recorded per sandbox, at four bytes each.
const BIRTHS_MAX: usize = 1 << 20;
/// With more recorded processes than this, those that have ended are removed.
const LIVING_MAX: usize = 1 << 16;

/// How many events one call reads, and the size of the buffer for each. An event has less than a hundred bytes.
const AT_ONCE: usize = 64;
const MESSAGE_BYTES: usize = 128;

// linux/connector.h and linux/cn_proc.h.
const NETLINK_CONNECTOR: libc::c_int = 11;
const CN_IDX_PROC: u32 = 1;
const CN_VAL_PROC: u32 = 1;
const PROC_CN_MCAST_LISTEN: u32 = 1;
const PROC_EVENT_FORK: u32 = 1;
/// The size of `struct nlmsghdr`; and the offset of `struct proc_event`, which follows it and `struct cn_msg`.
const NETLINK_HEAD: usize = 16;
const EVENT_AT: usize = 36;
/// The offset of a fork's numbers, after `what`, `cpu` and the time.
const FORK_AT: usize = EVENT_AT + 16;

/// A recorded process: the outer process of a sandbox, or one below it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Member {
    /// The outer process with this process id.
    Outer(u32),
    /// The `child`-th child of an outer process, or a descendant of it. `number` is its process id inside the
    /// sandbox, if that child is process 1.
    Inner { outer: u32, child: usize, number: u32 },
}

/// All recorded births. Pure: events are passed in.
#[derive(Debug, Default)]
pub(crate) struct Lineage {
    living: HashMap<u32, Member>,
    /// For each outer process, its children in order; for each child, the parents of the processes below it, indexed
    /// by process id inside the sandbox.
    parents: HashMap<u32, Vec<Vec<u32>>>,
}

impl Lineage {
    fn follow(&mut self, outer: u32) {
        self.forget(outer);
        self.living.insert(outer, Member::Outer(outer));
        self.parents.insert(outer, Vec::new());
    }

    fn forget(&mut self, outer: u32) {
        self.parents.remove(&outer);
        self.living.retain(|_, member| match member {
            Member::Outer(other) | Member::Inner { outer: other, .. } => *other != outer,
        });
    }

    /// Records the start of a process or thread. `leader` is its process, which equals `number` unless this is a
    /// thread.
    fn born(&mut self, parent: u32, number: u32, leader: u32) {
        // For a thread, the kernel reports the parent of its process.
        let known = if number == leader { parent } else { leader };
        let Some(member) = self.living.get(&known).copied() else {
            // If this id was recorded, a process outside has reused it.
            self.living.remove(&number);
            return;
        };
        let new = match member {
            Member::Outer(outer) => {
                let children = self.parents.entry(outer).or_default();
                // Process 0 does not exist, and the parent of process 1 is outside.
                children.push(vec![0, 0]);
                Member::Inner { outer, child: children.len() - 1, number: 1 }
            }
            Member::Inner { outer, child, number: parent } => {
                let parents = self.parents.get_mut(&outer).and_then(|children| children.get_mut(child));
                let Some(parents) = parents.filter(|parents| parents.len() < BIRTHS_MAX) else { return };
                parents.push(parent);
                Member::Inner { outer, child, number: (parents.len() - 1) as u32 }
            }
        };
        if number == leader {
            self.living.insert(number, new);
        }
    }

    /// The ancestors of a process in a sandbox, nearest first, by their process ids inside; `None` unless they are
    /// certain. `outside` is its process id on this machine, which proves the count.
    fn ancestors(&self, outer: u32, number: u32, outside: u32) -> Option<Vec<u32>> {
        let children = self.parents.get(&outer)?;
        let last = children.len().checked_sub(1)?;
        // The last child of the outer process is process 1; earlier children only write id maps.
        if self.living.get(&outside) != Some(&Member::Inner { outer, child: last, number }) {
            return None;
        }
        let parents = &children[last];
        let mut ancestors = Vec::new();
        let mut next = *parents.get(number as usize)?;
        // A parent has a smaller id than its child.
        while next > 1 {
            ancestors.push(next);
            next = *parents.get(next as usize)?;
        }
        Some(ancestors)
    }
}

/// One listener for all sandboxes of this process.
struct Births {
    socket: OwnedFd,
    lineage: Mutex<Lineage>,
}

/// The listener of this process; `None` if the kernel does not permit it.
fn births() -> Option<&'static Births> {
    static BIRTHS: OnceLock<Option<Births>> = OnceLock::new();
    let births =
        BIRTHS.get_or_init(|| listen().ok().map(|socket| Births { socket, lineage: Mutex::default() }));
    static READER: OnceLock<()> = OnceLock::new();
    births.as_ref().inspect(|births| {
        READER.get_or_init(|| {
            let read = || {
                loop {
                    std::thread::sleep(READ_EVERY);
                    let mut lineage = births.lineage();
                    births.read(&mut lineage);
                }
            };
            // Without the thread, the socket overflows and nothing is reported.
            let _ = std::thread::Builder::new().name("births".to_owned()).spawn(read);
        });
    })
}

impl Births {
    fn lineage(&self) -> MutexGuard<'_, Lineage> {
        self.lineage.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Reads all pending events in batches.
    fn read(&self, lineage: &mut Lineage) {
        let mut room = [[0_u8; MESSAGE_BYTES]; AT_ONCE];
        loop {
            let mut places = room
                .each_mut()
                .map(|place| libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() });
            let mut messages = places.each_mut().map(|place| {
                // SAFETY: an all-zero header is valid.
                let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
                message.msg_hdr.msg_iov = place;
                message.msg_hdr.msg_iovlen = 1;
                message
            });
            // SAFETY: the headers, the places and their buffers outlive the call.
            let count = unsafe {
                let length = messages.len() as libc::c_uint;
                let (fd, now) = (self.socket.as_raw_fd(), std::ptr::null_mut());
                libc::recvmmsg(fd, messages.as_mut_ptr(), length, libc::MSG_DONTWAIT as _, now)
            };
            match usize::try_from(count) {
                Ok(count) => {
                    let lengths = messages.map(|message| message.msg_len as usize);
                    for (place, length) in room.iter().zip(lengths).take(count) {
                        if let Some((parent, number, leader)) = parse(&place[..length.min(MESSAGE_BYTES)]) {
                            lineage.born(parent, number, leader);
                        }
                    }
                    if count < AT_ONCE {
                        break;
                    }
                }
                // Events were lost, so all further counts would be wrong.
                Err(_) if io::Error::last_os_error().raw_os_error() == Some(libc::ENOBUFS) => {
                    *lineage = Lineage::default();
                }
                Err(_) => break,
            }
        }
        if lineage.living.len() > LIVING_MAX {
            lineage.living.retain(|number, _| std::path::Path::new(&format!("/proc/{number}")).exists());
        }
    }
}

/// Records the births of a sandbox until dropped.
#[derive(Debug)]
pub(crate) struct Followed {
    outer: u32,
}

/// Records what a sandbox's outer process starts from now on.
pub(crate) fn follow(outer: u32) -> Followed {
    if let Some(births) = births() {
        let mut lineage = births.lineage();
        // Earlier events concern an earlier process with the same id.
        births.read(&mut lineage);
        lineage.follow(outer);
    }
    Followed { outer }
}

impl Followed {
    /// See [`Lineage::ancestors`].
    pub(crate) fn ancestors(&self, number: u32, outside: u32) -> Option<Vec<u32>> {
        let births = births()?;
        let mut lineage = births.lineage();
        births.read(&mut lineage);
        lineage.ancestors(self.outer, number, outside)
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        if let Some(births) = births() {
            births.lineage().forget(self.outer);
        }
    }
}

/// Whether the kernel reports forks to this process.
pub fn has_birth_events() -> bool {
    births().is_some()
}

/// The parent, process id and thread group in a fork event; `None` for any other event.
fn parse(message: &[u8]) -> Option<(u32, u32, u32)> {
    let word = |at: usize| Some(u32::from_ne_bytes(message.get(at..at + 4)?.try_into().ok()?));
    if word(NETLINK_HEAD)? != CN_IDX_PROC || word(EVENT_AT)? != PROC_EVENT_FORK {
        return None;
    }
    // parent_pid, parent_tgid, child_pid, child_tgid.
    Some((word(FORK_AT + 4)?, word(FORK_AT + 8)?, word(FORK_AT + 12)?))
}

fn listen() -> io::Result<OwnedFd> {
    // SAFETY: creates a new descriptor.
    let socket =
        unsafe { libc::socket(libc::PF_NETLINK, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, NETLINK_CONNECTOR) };
    let socket = check(socket)?;
    // SAFETY: the descriptor was just created and has no other owner.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let fd = socket.as_raw_fd();
    for option in [libc::SO_RCVBUF, libc::SO_RCVBUFFORCE] {
        // An unprivileged user gets as much as the machine permits.
        // SAFETY: the value outlives the call.
        unsafe {
            let length = size_of_val(&BUFFER_BYTES) as libc::socklen_t;
            libc::setsockopt(fd, libc::SOL_SOCKET, option, (&raw const BUFFER_BYTES).cast(), length);
        }
    }
    // SAFETY: an all-zero address is valid, and the address outlives the call.
    check(unsafe {
        let mut address: libc::sockaddr_nl = std::mem::zeroed();
        address.nl_family = libc::AF_NETLINK as libc::sa_family_t;
        address.nl_groups = CN_IDX_PROC;
        libc::bind(fd, (&raw const address).cast(), size_of_val(&address) as libc::socklen_t)
    })?;
    // The longer request selects the events; kernels before 6.6 accept only the shorter one.
    let wanted = [PROC_CN_MCAST_LISTEN, PROC_EVENT_FORK];
    ask(fd, &wanted).or_else(|_| ask(fd, &wanted[..1]))?;
    Ok(socket)
}

fn ask(fd: libc::c_int, words: &[u32]) -> io::Result<()> {
    let data: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let mut message = Vec::new();
    let length = (EVENT_AT + data.len()) as u32;
    // struct nlmsghdr: length, type (NLMSG_DONE) with no flags, sequence, port.
    let kind = libc::NLMSG_DONE as u16;
    message.extend(length.to_ne_bytes());
    message.extend([kind.to_ne_bytes(), 0_u16.to_ne_bytes()].concat());
    message.extend([0_u8; 8]);
    // struct cn_msg: id, sequence, acknowledgement, length, flags.
    message.extend([CN_IDX_PROC.to_ne_bytes(), CN_VAL_PROC.to_ne_bytes()].concat());
    message.extend([0_u8; 8]);
    message.extend([(data.len() as u16).to_ne_bytes(), 0_u16.to_ne_bytes()].concat());
    message.extend(data);
    // SAFETY: the length passed is that of the message.
    let sent = unsafe { libc::send(fd, message.as_ptr().cast(), message.len(), 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The outer process 100 starts a helper, 101, which starts 102. Then it starts 103, which is process 1.
    fn lineage() -> Lineage {
        let mut lineage = Lineage::default();
        lineage.follow(100);
        for (parent, number) in [(100, 101), (101, 102), (100, 103)] {
            lineage.born(parent, number, number);
        }
        lineage
    }

    #[test]
    fn ids_inside_are_counted_and_ancestors_stay_recorded() {
        let mut lineage = lineage();
        lineage.born(103, 104, 104); // 2, the command
        lineage.born(104, 105, 105); // 3
        lineage.born(103, 106, 104); // 4, a thread of the command
        lineage.born(105, 107, 107); // 5, which ends immediately
        lineage.born(107, 108, 108); // 6, the daemon
        lineage.born(1, 9, 9);
        assert_eq!(lineage.ancestors(100, 6, 108), Some(vec![5, 3, 2]));
        assert_eq!(lineage.ancestors(100, 2, 104), Some(vec![]));
        assert_eq!(lineage.ancestors(100, 7, 108), None, "an event is missing");
        assert_eq!(lineage.ancestors(100, 6, 105), None);
        assert_eq!(lineage.ancestors(7, 6, 108), None);
        // A process outside reuses the id of an ended one.
        lineage.born(1, 108, 108);
        assert_eq!(lineage.ancestors(100, 6, 108), None);
        lineage.forget(100);
        assert!(lineage.living.is_empty() && lineage.parents.is_empty());
    }

    #[test]
    fn events_other_than_forks_are_ignored() {
        let mut message = vec![0; EVENT_AT];
        message[NETLINK_HEAD..NETLINK_HEAD + 4].copy_from_slice(&CN_IDX_PROC.to_ne_bytes());
        for word in [PROC_EVENT_FORK, 0, 0, 0, 10, 11, 12, 13] {
            message.extend(u32::to_ne_bytes(word));
        }
        assert_eq!(parse(&message), Some((11, 12, 13)));
        for cut in 0..message.len() {
            assert_eq!(parse(&message[..cut]), None);
        }
        message[EVENT_AT] = 2;
        assert_eq!(parse(&message), None);
    }
}
