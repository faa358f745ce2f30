//! Cores as tokens: a GNU make jobserver for each build, and a broker that hands tokens out and takes them back.
//!
//! A build that is a client of a jobserver (GNU make, cargo, ninja from 1.13 on) has one job for itself and reads
//! a byte from a pipe for each further one; it writes the byte back when the job is done (GNU make's manual,
//! "POSIX Jobserver Interaction"). Each build has a pipe of its own. So a build may be given more or fewer cores
//! while it goes on, and a client that is killed loses only tokens of its own build, which come back when the
//! build ends.
//!
//! [`Broker::allot`] is told how many cores each build should have. Tokens that lie in a pipe are taken back at
//! once; those that clients hold are owed, and [`Broker::settle`], called now and then, takes them as they come back
//! and passes them on. What must hold: the cores of all builds, a build's own job and its tokens, are never more
//! than the broker has, with two exceptions: builds that are begun beyond that number, and [`Broker::probe`], which tells
//! whether a build without a token could use one.
//!
//! [`Style::Inherited`] (`--jobserver-auth=R,W`) is the usual one, since make before 4.4, and gcc's lto-wrapper through
//! it, refuse the other one; only a command that [`Broker::hand_to`] was called for inherits the pipe. ninja 1.13 as
//! its authors release it knows [`Style::Named`] (`--jobserver-auth=fifo:PATH`) alone.
//!
//! Known downside: a job that was begun with a token is not ended to get it back. A make that wants more jobs than it has
//! tokens puts one back only to take it again at once, so that it mostly keeps what it has until it wants less; its
//! weight (see [`crate::weight`]) is what holds it back meanwhile. ninja looks for further tokens only when one of its jobs ends.

use rustix::fd::{AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, FdFlags};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// What a token is: make writes the byte back that it read.
const TOKEN: u8 = b'+';

/// More tokens than this are not put into a pipe: it would be full, and the broker would wait.
const TOKENS_MAX: u32 = 4096;

/// A build, by the number that its owner gives it.
pub type BuildNumber = u64;

/// How a build finds its pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Style {
    /// Its commands inherit both ends.
    Inherited,
    /// It has this path, where nothing is yet and which the build must see as well. It is removed in the end.
    Named(PathBuf),
}

/// The pipe of one build.
#[derive(Debug)]
struct Pipe {
    style: Style,
    /// The ends that the build inherits; of a named one, both are open for reading and writing, so that it is never
    /// without a reader or a writer.
    read: OwnedFd,
    write: OwnedFd,
    /// A way of its own to the same pipe that does not wait: whether one waits is a property of the opened file, and
    /// clients of the other one do wait.
    take: OwnedFd,
    /// The same for writing: a build may have filled its pipe by itself, and the broker waits for nobody.
    put: OwnedFd,
    /// Tokens that were put in and not taken back.
    tokens: u32,
    /// Tokens that it should have.
    wanted: u32,
}

impl Pipe {
    fn new(style: Style) -> io::Result<Pipe> {
        let (read, write) = match &style {
            Style::Inherited => rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?,
            Style::Named(path) => {
                rustix::fs::mkfifoat(rustix::fs::CWD, path, Mode::RUSR | Mode::WUSR)?;
                // A build runs as a user of its own, and the mask of this process is not for it.
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

    /// Takes back what it has too much and nobody holds.
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

    /// Gives it what it lacks, as far as there is any; how much that was.
    fn give(&mut self, free: u32) -> io::Result<u32> {
        let given = self.wanted.saturating_sub(self.tokens).min(free);
        let bytes = vec![TOKEN; given as usize];
        let mut written = 0;
        while written < bytes.len() {
            match rustix::io::write(&self.put, &bytes[written..]) {
                Ok(count) => written += count,
                Err(Errno::INTR) => {}
                // The build has filled it with bytes of its own, and needs none of ours.
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
            // Who else removed it has done what was to be done.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// See the module.
#[derive(Debug)]
pub struct Broker {
    cores: u32,
    pipes: BTreeMap<BuildNumber, Pipe>,
    /// The builds in the order in which they are served.
    order: Vec<BuildNumber>,
}

impl Broker {
    /// A broker of this many cores.
    pub fn new(cores: u32) -> Broker {
        Broker { cores, pipes: BTreeMap::new(), order: Vec::new() }
    }

    /// Makes the pipe of a build, which has its own job and no token yet. Fails where the kernel has no pipe left, or
    /// where something is at its path.
    pub fn begin(&mut self, build: BuildNumber, style: Style) -> io::Result<()> {
        self.pipes.insert(build, Pipe::new(style)?);
        self.order.push(build);
        Ok(())
    }

    /// Closes the pipe of a build. All its tokens are free again, also those that a killed client held.
    pub fn end(&mut self, build: BuildNumber) -> io::Result<()> {
        self.pipes.remove(&build);
        self.order.retain(|other| *other != build);
        self.settle()
    }

    /// Lets a command, which must be of this build, inherit the build's pipe, and says so in its MAKEFLAGS. A build
    /// that is not known is handed nothing.
    pub fn hand_to(&self, build: BuildNumber, command: &mut Command) {
        let Some(pipe) = self.pipes.get(&build) else { return };
        // Where Kilnyard itself was started by a client of another jobserver, that one is not the build's.
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

    /// Says how many cores each build should have, the highest rank first. Builds that are not named keep their own
    /// job and lose their tokens.
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

    /// Lets a build have a token beyond what it should have, to see whether it takes one. The next [`Broker::settle`] takes
    /// it back if it lies in the pipe; if not, the build could use more cores, and owes this one until it may have it.
    pub fn probe(&mut self, build: BuildNumber) -> io::Result<()> {
        let Some(pipe) = self.pipes.get_mut(&build) else { return Ok(()) };
        let wanted = std::mem::replace(&mut pipe.wanted, pipe.tokens + 1);
        let given = pipe.give(1);
        pipe.wanted = wanted;
        given.map(|_| ())
    }

    /// Takes back what is owed and has come back, and passes it on.
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

    /// The cores that are out: each build's own job, and all tokens that were not taken back.
    pub fn cores_out(&self) -> u32 {
        self.pipes.values().map(|pipe| 1 + pipe.tokens).sum()
    }

    /// The cores of one build; none if it is not known.
    pub fn cores_of(&self, build: BuildNumber) -> u32 {
        self.pipes.get(&build).map_or(0, |pipe| 1 + pipe.tokens)
    }

    /// How many tokens were put into the pipe of a build and not taken back.
    pub fn tokens(&self, build: BuildNumber) -> u32 {
        self.pipes.get(&build).map_or(0, |pipe| pipe.tokens)
    }

    /// How many cores are not out.
    pub fn cores_free(&self) -> u32 {
        self.cores.saturating_sub(self.cores_out())
    }

    /// How many tokens the clients of a build hold now: where that is all it has, it could use more.
    pub fn held(&self, build: BuildNumber) -> io::Result<u32> {
        self.pipes.get(&build).map_or(Ok(0), Pipe::held)
    }
}
