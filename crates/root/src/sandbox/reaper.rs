//! Process 1 while the command runs: it reaps, counts, takes orders, and ends what is to end.
//!
//! It waits for three things at once: the end of a child, an order, and the time of the next look. When the command has
//! ended, or everything is to end, it ends all other processes of its pid namespace, which are this sandbox's alone, and
//! leaves when none is left; the kernel would kill who is left then.

use super::census::{self, Census};
use super::outer::say;
use super::refused::Refused;
use super::{GRACE, Order, Report, network, system};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// How long processes may take to end by themselves after their command, before they count as left behind: the last ones
/// of a pipe, and those that were told to end.
const SETTLE: Duration = Duration::from_millis(50);
/// How long it is waited for that those who are left behind were looked at from outside.
const LOOKED_AT_WITHIN: Duration = Duration::from_secs(1);
/// How long killed processes may take until they are gone; who waits for a device cannot die before that one answers.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// No process has this number.
const NOBODY: libc::pid_t = 0;

/// See the module.
pub(super) struct Reaper {
    /// Can be read when a child has ended.
    children: OwnedFd,
    orders: Option<OwnedFd>,
    refused: Refused,
}

/// Why waiting ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Woken {
    Child,
    Order(Order),
    Time,
}

impl Reaper {
    /// To be made before the command is started: from now on the end of children is not missed.
    pub(super) fn new(orders: Option<OwnedFd>, refused: Refused) -> io::Result<Reaper> {
        block_child_signal(libc::SIG_BLOCK);
        let set = child_signal();
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set lives to the end of the call, which makes a new descriptor.
        let children = system::check(unsafe { libc::signalfd(-1, &set, flags) })?;
        // SAFETY: it was just made and has no other owner.
        Ok(Reaper { children: unsafe { OwnedFd::from_raw_fd(children) }, orders, refused })
    }

    /// Keeps the command until no process is left; its exit code. Where `/proc` shows other processes than those of the
    /// sandbox, nothing is counted.
    pub(super) fn watch(mut self, command: libc::pid_t, has_own_processes: bool) -> i32 {
        let mut census = Census::new();
        let mut code = None;
        let mut order = None;
        let mut looked = Instant::now();
        while code.is_none() && order.is_none() {
            let until_look = census.interval().saturating_sub(looked.elapsed());
            match self.wait(until_look) {
                Woken::Order(Order::Looked) | Woken::Time => {}
                Woken::Order(other) => order = Some(other),
                Woken::Child => code = reap(command),
            }
            if has_own_processes && looked.elapsed() >= census.interval() {
                looked = Instant::now();
                say(&census.look());
            }
        }
        if order.is_none() && has_own_processes {
            order = self.name_who_is_left(&mut census);
            let things = census::things_left();
            if !things.is_empty() {
                say(&Report::LeftInMemory { things });
            }
        }
        self.end(order.unwrap_or(Order::End), command, &mut code);
        let (read_bytes, written_bytes) = census::bytes_read_and_written();
        let own_seconds = census::own_seconds();
        let calls = self.refused.into_counts();
        if !calls.is_empty() {
            say(&Report::Refused { calls });
        }
        let (created, unreachable) = (census.created(), network::unreachable());
        say(&Report::Used { read_bytes, written_bytes, created, unreachable, own_seconds });
        code.unwrap_or(128 + libc::SIGKILL)
    }

    fn wait(&mut self, patience: Duration) -> Woken {
        let orders = self.orders.as_ref().map_or(-1, AsRawFd::as_raw_fd);
        // A descriptor below zero is passed over (poll(2)).
        let refused = self.refused.descriptor();
        let mut polled = [self.children.as_raw_fd(), orders, refused].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        // A part of a millisecond is rounded up, so that nobody turns round in it.
        let milliseconds = patience.as_micros().div_ceil(1000).try_into().unwrap_or(libc::c_int::MAX);
        // SAFETY: the list lives to the end of the call.
        unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, milliseconds) };
        if polled[1].revents != 0
            && let Some(order) = self.next_order()
        {
            return Woken::Order(order);
        }
        if polled[2].revents != 0 {
            self.refused.take(polled[2].revents);
        }
        if polled[0].revents == 0 {
            return Woken::Time;
        }
        let mut seen = [0_u8; size_of::<libc::signalfd_siginfo>()];
        // SAFETY: the buffer is as long as is said. What is read is of no interest: several ends may be one signal.
        unsafe { libc::read(self.children.as_raw_fd(), seen.as_mut_ptr().cast(), seen.len()) };
        Woken::Child
    }

    /// What was ordered; none, now and for ever, if nobody is there to give orders.
    fn next_order(&mut self) -> Option<Order> {
        let orders = self.orders.as_ref()?.as_raw_fd();
        let mut byte = 0_u8;
        // SAFETY: there is room for the one byte.
        match unsafe { libc::read(orders, (&raw mut byte).cast(), 1) } {
            1 => Order::parse(byte),
            _ => {
                self.orders = None;
                None
            }
        }
    }

    /// Says who is left, and waits until that was looked at. What was ordered meanwhile.
    fn name_who_is_left(&mut self, census: &mut Census) -> Option<Order> {
        let began = Instant::now();
        while is_anybody_left() && began.elapsed() < SETTLE {
            self.wait(SETTLE.saturating_sub(began.elapsed()));
            reap(NOBODY);
        }
        if !is_anybody_left() {
            return None;
        }
        let processes = census.leftovers();
        if processes.is_empty() {
            return None;
        }
        say(&Report::LeftBehind { processes, ended: census.ended_lines() });
        let began = Instant::now();
        while self.orders.is_some() && is_anybody_left() {
            let patience = LOOKED_AT_WITHIN.saturating_sub(began.elapsed());
            match self.wait(patience) {
                Woken::Order(Order::Looked) => return None,
                Woken::Order(other) => return Some(other),
                Woken::Time if began.elapsed() >= LOOKED_AT_WITHIN => return None,
                Woken::Time => {}
                Woken::Child => _ = reap(NOBODY),
            }
        }
        None
    }

    /// Ends all processes of this pid namespace but this one, and waits until they are gone.
    fn end(&mut self, order: Order, command: libc::pid_t, code: &mut Option<i32>) {
        let mut is_to_be_killed = order == Order::Kill;
        if !is_to_be_killed {
            signal_all(libc::SIGTERM);
            // Who is stopped hears of it when it goes on.
            signal_all(libc::SIGCONT);
        }
        let mut deadline = Instant::now() + GRACE;
        loop {
            if is_to_be_killed {
                signal_all(libc::SIGKILL);
                deadline = Instant::now() + KILLED_WITHIN;
            }
            while Instant::now() < deadline {
                if let Some(ended) = reap(command) {
                    code.get_or_insert(ended);
                }
                if !is_anybody_left() {
                    return;
                }
                let patience = deadline.saturating_duration_since(Instant::now());
                if !is_to_be_killed && self.wait(patience) == Woken::Order(Order::Kill) {
                    break;
                }
                if is_to_be_killed {
                    self.wait(patience.min(SETTLE));
                }
            }
            if is_to_be_killed {
                // The kernel goes on with it when this process has ended.
                return;
            }
            is_to_be_killed = true;
        }
    }
}

/// Waits for all children that have ended; the exit code of the command, if that is among them.
fn reap(command: libc::pid_t) -> Option<i32> {
    let mut code = None;
    while let Ok((pid, status, _)) = system::wait(-1, libc::WNOHANG) {
        if pid == 0 {
            break;
        }
        if pid == command {
            code = Some(system::code_of(status).0);
        }
    }
    code
}

/// Whether there is a process besides this one: each has this one as its parent, or as one further up.
fn is_anybody_left() -> bool {
    // SAFETY: an all-zero value is a valid one, and lives to the end of the call, which only looks.
    let looked = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)
    };
    looked == 0
}

/// Sends a signal to every process of this pid namespace but this one (kill(2)).
fn signal_all(signal: libc::c_int) {
    // SAFETY: numbers alone. Who is the first process of a namespace reaches nobody outside of it.
    if unsafe { libc::getpid() } == 1 {
        // SAFETY: as above.
        unsafe { libc::kill(-1, signal) };
    }
}

fn child_signal() -> libc::sigset_t {
    // SAFETY: an all-zero set is valid to be made empty and added to.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        set
    }
}

fn block_child_signal(how: libc::c_int) {
    let set = child_signal();
    // SAFETY: the set is valid; the old one is not asked for.
    unsafe { libc::sigprocmask(how, &set, std::ptr::null_mut()) };
}

/// What the command has to do before it is one.
pub(super) fn unblock_child_signal() {
    block_child_signal(libc::SIG_UNBLOCK);
}
