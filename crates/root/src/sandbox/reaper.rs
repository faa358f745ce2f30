//! Process 1 while the command runs: it reaps and counts processes, takes orders, and ends processes.
//!
//! It waits for three events at once: the end of a child, an order, and the time of the next sample. When the command
//! has ended, or on an order, it ends all other processes of its pid namespace, which belong to this sandbox only,
//! and exits when they are gone. The kernel kills any process that is still left then.

use super::census::{self, Census};
use super::outer::say;
use super::refused::Refused;
use super::{GRACE, Order, Report, network, system};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Time for processes to end by themselves after their command before they count as left behind: the last ones of a
/// pipe, and those that were asked to end.
const SETTLE: Duration = Duration::from_millis(50);
/// Time to wait until the leftover processes were inspected from outside.
const INSPECTED_WITHIN: Duration = Duration::from_secs(1);
/// Time for killed processes to disappear; one that waits for a device cannot die before the device answers.
const KILLED_WITHIN: Duration = Duration::from_secs(5);

/// Never the id of a child.
const NO_PROCESS: libc::pid_t = 0;

/// The state of process 1 while the command runs.
pub(super) struct Reaper {
    /// Readable when a child has ended.
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
    /// Must be called before the command starts, so that the end of a child is never missed.
    pub(super) fn new(orders: Option<OwnedFd>, refused: Refused) -> io::Result<Reaper> {
        block_child_signal(libc::SIG_BLOCK);
        let set = child_signal();
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set outlives the call, which makes a new descriptor.
        let children = system::check(unsafe { libc::signalfd(-1, &set, flags) })?;
        // SAFETY: the descriptor was just made and has no other owner.
        Ok(Reaper { children: unsafe { OwnedFd::from_raw_fd(children) }, orders, refused })
    }

    /// Watches the command until all processes are gone, and returns its exit code. `has_own_processes` is false if
    /// `/proc` also shows processes outside the sandbox; then nothing is counted.
    pub(super) fn watch(mut self, command: libc::pid_t, has_own_processes: bool) -> i32 {
        let mut census = Census::new();
        let mut code = None;
        let mut order = None;
        let mut sampled = Instant::now();
        while code.is_none() && order.is_none() {
            let until_sample = census.interval().saturating_sub(sampled.elapsed());
            match self.wait(until_sample) {
                Woken::Order(Order::Inspected) | Woken::Time => {}
                Woken::Order(other) => order = Some(other),
                Woken::Child => code = reap(command),
            }
            if has_own_processes && sampled.elapsed() >= census.interval() {
                sampled = Instant::now();
                say(&census.sample());
            }
        }
        if order.is_none() && has_own_processes {
            order = self.report_leftovers(&mut census);
            let things = census::shared_memory_left();
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
        // A negative descriptor is ignored (poll(2)).
        let refused = self.refused.descriptor();
        let mut polled = [self.children.as_raw_fd(), orders, refused].map(|fd| libc::pollfd {
            fd,
            events: libc::POLLIN,
            revents: 0,
        });
        // Round up, so that a fraction of a millisecond does not become a busy loop.
        let milliseconds = patience.as_micros().div_ceil(1000).try_into().unwrap_or(libc::c_int::MAX);
        // SAFETY: the list outlives the call.
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
        // SAFETY: the length is that of the buffer. The content is not used: one signal may stand for several children.
        unsafe { libc::read(self.children.as_raw_fd(), seen.as_mut_ptr().cast(), seen.len()) };
        Woken::Child
    }

    /// The next order. At the end of input there is none, and orders are no longer polled.
    fn next_order(&mut self) -> Option<Order> {
        let orders = self.orders.as_ref()?.as_raw_fd();
        let mut byte = 0_u8;
        // SAFETY: the buffer has room for the one byte.
        match unsafe { libc::read(orders, (&raw mut byte).cast(), 1) } {
            1 => Order::parse(byte),
            _ => {
                self.orders = None;
                None
            }
        }
    }

    /// Reports leftover processes and waits until they were inspected. Returns an order that came in the meantime.
    fn report_leftovers(&mut self, census: &mut Census) -> Option<Order> {
        let began = Instant::now();
        while has_processes_left() && began.elapsed() < SETTLE {
            self.wait(SETTLE.saturating_sub(began.elapsed()));
            reap(NO_PROCESS);
        }
        if !has_processes_left() {
            return None;
        }
        let processes = census.leftovers();
        if processes.is_empty() {
            return None;
        }
        say(&Report::LeftBehind { processes, ended: census.ended_lines() });
        let began = Instant::now();
        while self.orders.is_some() && has_processes_left() {
            let patience = INSPECTED_WITHIN.saturating_sub(began.elapsed());
            match self.wait(patience) {
                Woken::Order(Order::Inspected) => return None,
                Woken::Order(other) => return Some(other),
                Woken::Time if began.elapsed() >= INSPECTED_WITHIN => return None,
                Woken::Time => {}
                Woken::Child => _ = reap(NO_PROCESS),
            }
        }
        None
    }

    /// Ends all other processes of this pid namespace and waits until they are gone.
    fn end(&mut self, order: Order, command: libc::pid_t, code: &mut Option<i32>) {
        let mut is_to_be_killed = order == Order::Kill;
        if !is_to_be_killed {
            signal_all(libc::SIGTERM);
            // A stopped process handles the signal only when it continues.
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
                if !has_processes_left() {
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
                // The kernel kills the rest when this process exits.
                return;
            }
            is_to_be_killed = true;
        }
    }
}

/// Reaps all children that have ended. Returns the exit code of the command if it is among them.
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

/// Whether another process is left: each is a child of this one or a descendant of a child.
fn has_processes_left() -> bool {
    // SAFETY: an all-zero value is valid and outlives the call, which reaps no child.
    let found = unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::waitid(libc::P_ALL, 0, &mut info, libc::WEXITED | libc::WNOHANG | libc::WNOWAIT)
    };
    found == 0
}

/// Sends a signal to every other process of this pid namespace (kill(2)).
fn signal_all(signal: libc::c_int) {
    // SAFETY: the calls take only integers. Process 1 of a namespace cannot signal a process outside.
    if unsafe { libc::getpid() } == 1 {
        // SAFETY: as above.
        unsafe { libc::kill(-1, signal) };
    }
}

fn child_signal() -> libc::sigset_t {
    // SAFETY: an all-zero set is valid memory for sigemptyset(3) to initialise.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGCHLD);
        set
    }
}

fn block_child_signal(how: libc::c_int) {
    let set = child_signal();
    // SAFETY: the set is valid; the old set is not requested.
    unsafe { libc::sigprocmask(how, &set, std::ptr::null_mut()) };
}

/// Restores the signal mask in the child that becomes the command.
pub(super) fn unblock_child_signal() {
    block_child_signal(libc::SIG_UNBLOCK);
}
