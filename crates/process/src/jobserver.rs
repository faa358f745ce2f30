//! Cores as tokens: a GNU make jobserver for each build, and a broker that hands out tokens and takes them back.
//!
//! A build that is a jobserver client (GNU make, cargo, ninja since 1.13) may run one job, and reads a byte from a pipe
//! for each further one. It writes the byte back when the job is done (GNU make's manual, "POSIX Jobserver
//! Interaction"). Each build has its own pipe, so that the broker can change the cores of a running build, and a killed
//! client loses only tokens of its own build, which come back when the build ends.
//!
//! [`Broker::allot`] sets how many cores each build should have. It takes back tokens that are in a pipe immediately.
//! Tokens that clients hold are owed: [`Broker::settle`], called now and then, takes them as they come back and passes
//! them on. Invariant: the cores of all builds, counting each build's own job and its tokens, never exceed the cores of
//! the broker. There are two exceptions: builds begun beyond that number, and [`Broker::probe`], which finds out
//! whether a build without a token could use one.
//!
//! [`Style::Inherited`] (`--jobserver-auth=R,W`) is the default, because make before 4.4, and gcc's lto-wrapper
//! through it, reject the other one. Only commands passed to [`Broker::hand_to`] inherit the pipe. Upstream ninja
//! 1.13 supports only [`Style::Named`] (`--jobserver-auth=fifo:PATH`).
//!
//! Known downside: a job that runs on a token is not ended to get the token back. A make that wants more jobs than it
//! has tokens puts a token back only to take it again immediately, so it keeps most of its tokens until it wants fewer;
//! meanwhile only its weight (see [`crate::weight`]) holds it back. ninja asks for further tokens only when one of
//! its jobs ends.

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// The byte that stands for a token. make writes back the byte that it read.
const TOKEN: u8 = b'+';

/// Maximum number of tokens in a pipe. With more, the pipe could fill up and the broker would block.
const TOKENS_MAX: u32 = 4096;

/// A build's number, assigned by its owner.
pub type BuildNumber = u64;

/// How a build finds its pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Style {
    /// Its commands inherit both ends.
    Inherited,
    /// A named pipe at this path, which must not exist yet and must be visible to the build. It is removed at the
    /// end.
    Named(PathBuf),
}

/// The pipe of one build.
#[derive(Debug)]
struct Pipe {
    style: Style,
    /// The ends that the build inherits. Those of a named pipe are both open for reading and writing, so that it
    /// always has a reader and a writer.
    read: OwnedFd,
    write: OwnedFd,
    /// A second, non-blocking read end. Blocking is a property of the open file description, and clients of the other
    /// end do block.
    take: OwnedFd,
    /// A second, non-blocking write end: a build may have filled its pipe, and the broker must never block.
    put: OwnedFd,
    /// Tokens put in and not yet taken back.
    tokens: u32,
    /// Tokens that the build should have.
    wanted: u32,
}

impl Pipe {
    fn new(style: Style) -> io::Result<Pipe> {
        let (read, write) = match &style {
            Style::Inherited => rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?,
            Style::Named(path) => {
                rustix::fs::mkfifoat(rustix::fs::CWD, path, Mode::RUSR | Mode::WUSR)?;
                // A build runs as another user, so the umask of this process must not restrict the pipe.
                rustix::fs::chmod(
                    path,
                    Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::WGRP | Mode::ROTH | Mode::WOTH,
                )?;
                let open = || rustix::fs::open(path, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
                (open()?, open()?)
            }
        };
        let path = format!("/proc/self/fd/{}", read.as_raw_fd());
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let take = rustix::fs::open(path, flags, Mode::empty())?;
        let path = format!("/proc/self/fd/{}", write.as_raw_fd());
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let put = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Pipe { style, read, write, take, put, tokens: 0, wanted: 0 })
    }

    /// Takes back surplus tokens that no client holds.
    fn take_back(&mut self) -> io::Result<()> {
        while self.tokens > self.wanted {
            let mut bytes = [0; 64];
            let most = bytes.len().min((self.tokens - self.wanted) as usize);
            match rustix::io::read(&self.take, &mut bytes[..most]) {
                Ok(0) | Err(Errno::AGAIN) => break,
                Ok(count) => self.tokens -= (count as u32).min(self.tokens),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// Adds missing tokens, at most `free`, and returns how many.
    fn give(&mut self, free: u32) -> io::Result<u32> {
        let given = self.wanted.saturating_sub(self.tokens).min(free);
        let bytes = vec![TOKEN; given as usize];
        let mut written = 0;
        while written < bytes.len() {
            match rustix::io::write(&self.put, &bytes[written..]) {
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                // The build has filled the pipe with bytes of its own, and needs none of ours.
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.tokens += written as u32;
        Ok(written as u32)
    }

    fn held(&self) -> io::Result<u32> {
        let there = rustix::io::ioctl_fionread(&self.take)? as u32;
        Ok(self.tokens.saturating_sub(there))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        if let Style::Named(path) = &self.style {
            // If it is gone already, there is nothing to do.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// See the module documentation.
#[derive(Debug)]
pub struct Broker {
    cores: u32,
    pipes: BTreeMap<BuildNumber, Pipe>,
    /// The builds in the order in which they receive tokens.
    order: Vec<BuildNumber>,
}

impl Broker {
    /// Creates a broker of this many cores and no builds.
    pub fn new(cores: u32) -> Broker {
        Broker { cores, pipes: BTreeMap::new(), order: Vec::new() }
    }

    /// Creates the pipe of a build, which starts with its own job and no token. Fails if no pipe can be made, or if
    /// its path already exists.
    pub fn begin(&mut self, build: BuildNumber, style: Style) -> io::Result<()> {
        self.pipes.insert(build, Pipe::new(style)?);
        self.order.push(build);
        Ok(())
    }

    /// Closes the pipe of a build. All its tokens become free, including those held by killed clients.
    pub fn end(&mut self, build: BuildNumber) -> io::Result<()> {
        self.pipes.remove(&build);
        self.order.retain(|other| *other != build);
        self.settle()
    }

    /// Makes a command of this build inherit the build's pipe, and sets its MAKEFLAGS. Does nothing for an unknown
    /// build.
    pub fn hand_to(&self, build: BuildNumber, command: &mut Command) {
        let Some(pipe) = self.pipes.get(&build) else { return };
        // If Kilnyard itself runs under another jobserver, builds must not use that one.
        command.env_remove("CARGO_MAKEFLAGS").env_remove("MFLAGS");
        let (read, write) = (pipe.read.as_raw_fd(), pipe.write.as_raw_fd());
        if let Style::Named(path) = &pipe.style {
            let mut flags = OsString::from(" -j --jobserver-auth=fifo:");
            flags.push(path);
            command.env("MAKEFLAGS", flags);
            return;
        }
        command.env("MAKEFLAGS", format!(" -j --jobserver-auth={read},{write}"));
        let keep = move || {
            for fd in [read, write] {
                // SAFETY: the broker holds both ends open until the build ends, and this runs in the child of a
                // fork, whose table of files is a copy. Setting a flag is safe between fork and exec.
                let fd = unsafe { BorrowedFd::borrow_raw(fd) };
                rustix::io::fcntl_setfd(fd, FdFlags::empty())?;
            }
            Ok(())
        };
        // SAFETY: the closure neither allocates nor locks; it makes two system calls.
        unsafe { command.pre_exec(keep) };
    }

    /// Sets how many cores each build should have, highest rank first. Builds that are not named keep their own job
    /// and lose their tokens.
    pub fn allot(&mut self, cores: &[(BuildNumber, u32)]) -> io::Result<()> {
        for pipe in self.pipes.values_mut() {
            pipe.wanted = 0;
        }
        let named = cores.iter().filter(|(build, _)| self.pipes.contains_key(build));
        let mut order: Vec<BuildNumber> = named.map(|(build, _)| *build).collect();
        order.extend(self.order.iter().filter(|build| !cores.iter().any(|(named, _)| named == *build)));
        self.order = order;
        for (build, cores) in cores {
            if let Some(pipe) = self.pipes.get_mut(build) {
                pipe.wanted = cores.saturating_sub(1).min(TOKENS_MAX);
            }
        }
        self.settle()
    }

    /// Gives a build one token more than it should have, to see whether it takes it. The next [`Broker::settle`] takes
    /// the token back if it is still in the pipe. If it does not, the build could use more cores, and owes this token
    /// until it is entitled to it.
    pub fn probe(&mut self, build: BuildNumber) -> io::Result<()> {
        let Some(pipe) = self.pipes.get_mut(&build) else { return Ok(()) };
        let wanted = std::mem::replace(&mut pipe.wanted, pipe.tokens + 1);
        let given = pipe.give(1);
        pipe.wanted = wanted;
        given.map(|_| ())
    }

    /// Takes back owed tokens that have returned, and passes them on.
    pub fn settle(&mut self) -> io::Result<()> {
        for pipe in self.pipes.values_mut() {
            pipe.take_back()?;
        }
        let mut free = self.cores_free();
        for build in &self.order {
            if let Some(pipe) = self.pipes.get_mut(build) {
                free -= pipe.give(free)?;
            }
        }
        Ok(())
    }

    /// Cores handed out: each build's own job, and all tokens not taken back.
    pub fn cores_out(&self) -> u32 {
        self.pipes.values().map(|pipe| 1 + pipe.tokens).sum()
    }

    /// The cores of one build; zero if the build is unknown.
    pub fn cores_of(&self, build: BuildNumber) -> u32 {
        self.pipes.get(&build).map_or(0, |pipe| 1 + pipe.tokens)
    }

    /// Tokens put into a build's pipe and not taken back; zero if the build is unknown.
    pub fn tokens(&self, build: BuildNumber) -> u32 {
        self.pipes.get(&build).map_or(0, |pipe| pipe.tokens)
    }

    /// Cores not handed out.
    pub fn cores_free(&self) -> u32 {
        self.cores.saturating_sub(self.cores_out())
    }

    /// Tokens that the clients of a build hold now. If they hold all its tokens, the build could use more.
    pub fn held(&self, build: BuildNumber) -> io::Result<u32> {
        self.pipes.get(&build).map_or(Ok(0), Pipe::held)
    }
}
