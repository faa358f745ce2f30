//! The descriptor of a filter: receives the calls that the kernel hands over, and answers them
//! (seccomp_unotify(2)).

use std::os::fd::{AsRawFd, OwnedFd};

/// The descriptor of a filter.
pub struct Listener(pub OwnedFd);

/// The answer to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The call returns this value.
    Value(i64),
    /// The call fails with this error.
    Error(i32),
    /// The kernel executes the call unchanged.
    AsItIs,
}

impl From<Result<i64, i32>> for Answer {
    fn from(result: Result<i64, i32>) -> Answer {
        result.map_or_else(Answer::Error, Answer::Value)
    }
}

impl Listener {
    /// The next call; `None` if there will be no more, because no process is left behind the filter.
    pub fn next(&self) -> Option<libc::seccomp_notif> {
        loop {
            let mut poll = libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            // SAFETY: the pointer is to one structure of ours.
            let ready = unsafe { libc::poll(&raw mut poll, 1, -1) };
            if ready < 0 {
                continue;
            }
            if poll.revents & libc::POLLIN == 0 {
                return None;
            }
            // SAFETY: plain numbers, for which zeros are valid; the kernel requires zeros.
            let mut call: libc::seccomp_notif = unsafe { std::mem::zeroed() };
            // SAFETY: the pointer is to the structure that this request fills.
            let result = unsafe {
                libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_RECV as _, &raw mut call)
            };
            if result == 0 {
                return Some(call);
            }
            // Otherwise the caller was killed in the meantime.
        }
    }

    /// Whether the process still waits for the answer: until then its process id cannot be reused.
    pub fn is_waiting(&self, id: u64) -> bool {
        // SAFETY: the pointer is to the number that this request reads.
        unsafe {
            libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_ID_VALID as _, &raw const id) == 0
        }
    }

    /// Answers a call. It does not matter if the caller was killed in the meantime.
    pub fn answer(&self, id: u64, answer: Answer) {
        let (val, error, flags) = match answer {
            Answer::Value(value) => (value, 0, 0),
            Answer::Error(error) => (0, -error, 0),
            Answer::AsItIs => (0, 0, libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE as u32),
        };
        let mut answer = libc::seccomp_notif_resp { id, val, error, flags };
        // SAFETY: the pointer is to the structure that this request reads.
        unsafe { libc::ioctl(self.0.as_raw_fd(), libc::SECCOMP_IOCTL_NOTIF_SEND as _, &raw mut answer) };
    }
}
