//! Nice levels of builds, for machines without usable control groups. Where the kernel shares CPU time by session,
//! sessions get the levels; otherwise all processes do (sched(7), "The autogroup feature" and "The nice value and
//! group scheduling").

use super::{BuildNumber, namespace, scale};
use crate::groups::{GroupPath, Hierarchy};
use crate::processes::{Process, Processes, threads};
use rustix::process::{Pid, getpriority_process, setpriority_process};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

/// How often to look for new sessions, which reads a file for each process of the machine.
const SAMPLE_INTERVAL: Duration = Duration::from_secs(1);

/// What the levels apply to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Sessions. The kernel shares among sessions first, and levels of processes matter only within a session. Any
    /// user may raise and lower them, between 0 and 19.
    Sessions,
    /// Single processes.
    Processes {
        /// Without the privilege (CAP_SYS_NICE or RLIMIT_NICE), a level can only be raised.
        can_lower: bool,
    },
}

#[derive(Debug)]
struct Build {
    /// The level that its processes have or are about to get.
    level: Arc<AtomicI32>,
    /// The outer processes of its sandboxes: number and start time.
    outers: Vec<(u32, u64)>,
}

/// See the module documentation.
#[derive(Debug)]
pub(super) struct Nice {
    scope: Scope,
    /// Kilnyard's own level, with which processes of builds start.
    base: i32,
    builds: BTreeMap<BuildNumber, Build>,
    order: Vec<BuildNumber>,
    sender: Sender<(BuildNumber, u32)>,
    entered: Receiver<(BuildNumber, u32)>,
    sampled_at: Option<Instant>,
    /// Some processes have not been seen yet, or could not be set.
    is_due: bool,
}

/// How the thread that runs a build reports its processes.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    build: BuildNumber,
    scope: Scope,
    level: Arc<AtomicI32>,
    sender: Sender<(BuildNumber, u32)>,
}

impl Entry {
    pub(super) fn enter(&self, pid: u32) -> io::Result<()> {
        // After the end of the run, nothing receives it.
        let _ = self.sender.send((self.build, pid));
        match self.scope {
            // The command's session does not exist yet.
            Scope::Sessions => Ok(()),
            Scope::Processes { can_lower } => {
                set_level(pid, self.level.load(Ordering::Relaxed), can_lower).map(|_| ())
            }
        }
    }
}

impl Nice {
    /// Finds out what this process may do, by trying.
    pub(super) fn find() -> Result<Nice, String> {
        let scope = if shares_by_session() {
            try_own_session()
                .map_err(|error| format!("failed to set the nice level of a session: {error}"))?;
            Scope::Sessions
        } else {
            let tried = std::thread::Builder::new().spawn(try_own_thread).map(std::thread::JoinHandle::join);
            let can_lower = match tried {
                Ok(Ok(tried)) => tried.map_err(|error| format!("failed to set a nice level: {error}"))?,
                _ => return Err("failed to start a thread to try it".to_owned()),
            };
            Scope::Processes { can_lower }
        };
        let base = match scope {
            Scope::Sessions => 0,
            Scope::Processes { .. } => getpriority_process(None).unwrap_or(0),
        };
        let (sender, entered) = mpsc::channel();
        let builds = BTreeMap::new();
        Ok(Nice { scope, base, builds, order: Vec::new(), sender, entered, sampled_at: None, is_due: false })
    }

    pub(super) fn scope(&self) -> Scope {
        self.scope
    }

    pub(super) fn begin(&mut self, build: BuildNumber) -> Entry {
        let level = Arc::new(AtomicI32::new(self.base));
        self.builds.insert(build, Build { level: Arc::clone(&level), outers: Vec::new() });
        self.rank();
        Entry { build, scope: self.scope, level, sender: self.sender.clone() }
    }

    pub(super) fn end(&mut self, build: BuildNumber) {
        self.builds.remove(&build);
    }

    /// Sets the levels, highest rank first; builds that are not named come after all others. Continues after an error
    /// and returns the first.
    pub(super) fn order(&mut self, builds: &[BuildNumber]) -> io::Result<()> {
        self.order = builds.to_vec();
        self.receive();
        if self.rank() || self.is_due { self.apply() } else { Ok(()) }
    }

    /// Sets the levels of new processes and sessions, at most once per [`SAMPLE_INTERVAL`].
    pub(super) fn settle(&mut self) -> io::Result<()> {
        self.receive();
        let is_long_ago = self.sampled_at.is_none_or(|sampled_at| sampled_at.elapsed() >= SAMPLE_INTERVAL);
        let has_any = self.builds.values().any(|build| !build.outers.is_empty());
        // A session may appear at any time; a process inherits the level of its parent.
        let is_due = self.is_due || self.scope == Scope::Sessions;
        if is_long_ago && has_any && is_due { self.apply() } else { Ok(()) }
    }

    fn receive(&mut self) {
        while let Ok((build, pid)) = self.entered.try_recv() {
            let process = Process::of(pid).filter(|process| !process.is_dead);
            if let (Some(build), Some(process)) = (self.builds.get_mut(&build), process) {
                build.outers.push((pid, process.started));
                self.is_due = true;
            }
        }
    }

    /// Computes the levels, and returns whether any changed.
    fn rank(&mut self) -> bool {
        let mut ranked: Vec<BuildNumber> = Vec::new();
        for build in self.order.iter().chain(self.builds.keys()) {
            if self.builds.contains_key(build) && !ranked.contains(build) {
                ranked.push(*build);
            }
        }
        let can_lower = self.scope != Scope::Processes { can_lower: false };
        let floors: Vec<i32> = ranked.iter().map(|build| self.floor(*build, can_lower)).collect();
        let mut is_changed = false;
        for (build, level) in ranked.iter().zip(scale::levels(self.base, &floors)) {
            if let Some(build) = self.builds.get(build) {
                is_changed |= build.level.swap(level, Ordering::Relaxed) != level;
            }
        }
        is_changed
    }

    /// The lowest level that a build can have: if levels cannot be lowered, the current one while it has processes.
    fn floor(&self, build: BuildNumber, can_lower: bool) -> i32 {
        let held = self.builds.get(&build).filter(|build| !can_lower && !build.outers.is_empty());
        held.map_or(self.base, |build| build.level.load(Ordering::Relaxed))
    }

    fn apply(&mut self) -> io::Result<()> {
        let seen = Processes::read();
        self.sampled_at = Some(Instant::now());
        self.is_due = false;
        let mut outcome = Ok(());
        let own_session = session("/proc/self/autogroup".as_ref()).map(|(session, _)| session);
        for build in self.builds.values_mut() {
            build.outers.retain(|(pid, started)| seen.has(*pid, *started));
            let level = build.level.load(Ordering::Relaxed);
            // The outer process is in Kilnyard's own session, which does not belong to the build.
            let mut sessions: BTreeSet<String> = own_session.iter().cloned().collect();
            for process in build.outers.iter().flat_map(|(pid, _)| seen.tree(*pid)) {
                let set = match self.scope {
                    Scope::Sessions => set_session_of(process, level, &mut sessions),
                    Scope::Processes { can_lower } => set_process(process, level, can_lower),
                };
                match set {
                    // Unprivileged users together may set ten sessions per second.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.is_due = true,
                    set => outcome = outcome.and(set),
                }
            }
        }
        outcome
    }
}

/// Whether the kernel shares CPU time by session. If enabled, it does so for processes that are not in a control
/// group with a CPU controller.
fn shares_by_session() -> bool {
    let is_enabled = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled")
        .is_ok_and(|text| text.trim() == "1");
    let is_in_group = match GroupPath::own(Hierarchy::Version1("cpu")) {
        // Only the machine's root group has this file; a container may see its own group as the root.
        Some(place) => place.folder != place.mount || !place.folder.join("release_agent").exists(),
        None => GroupPath::own(Hierarchy::Version2)
            .is_some_and(|place| place.upward().any(|folder| folder.join("cpu.weight").exists())),
    };
    is_enabled && !is_in_group
}

/// Sets the level of this process's session to its current value.
fn try_own_session() -> io::Result<()> {
    let file = Path::new("/proc/self/autogroup");
    match session(file).map(|(_, level)| set_session(file, level)) {
        // What init started without a session of its own is in the default autogroup, which has no level. The sessions
        // of builds have one.
        None => Ok(()),
        // Another session was set a moment ago, so setting is permitted.
        Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        Some(set) => set,
    }
}

/// Raises the level of the calling thread and lowers it again; returns whether lowering was permitted.
fn try_own_thread() -> io::Result<bool> {
    let level = getpriority_process(None)?;
    if level >= scale::LEVEL_MAX {
        return Err(io::Error::other("Kilnyard itself already has the highest level"));
    }
    setpriority_process(None, level + 1)?;
    Ok(setpriority_process(None, level).is_ok())
}

/// Sets the level of one thread, if it differs. A thread that is gone is not an error.
fn set_level(thread: u32, level: i32, can_lower: bool) -> io::Result<()> {
    let pid = i32::try_from(thread).ok().and_then(Pid::from_raw);
    let Some(pid) = pid else { return Ok(()) };
    let set = getpriority_process(Some(pid)).and_then(|now| {
        if level > now || (level < now && can_lower) { setpriority_process(Some(pid), level) } else { Ok(()) }
    });
    match set {
        Err(rustix::io::Errno::SRCH) => Ok(()),
        set => Ok(set?),
    }
}

fn set_process(process: u32, level: i32, can_lower: bool) -> io::Result<()> {
    let set = threads(process).into_iter().map(|thread| set_level(thread, level, can_lower));
    set.fold(Ok(()), io::Result::and)
}

/// The scheduler's name for a process's session, and its nice level: `/autogroup-25 nice 0`.
fn session(file: &Path) -> Option<(String, i32)> {
    let text = std::fs::read_to_string(file).ok()?;
    let (name, level) = text.trim().split_once(" nice ")?;
    Some((name.to_owned(), level.parse().ok()?))
}

/// Sets the level of a process's session, unless it has that level or was already handled.
fn set_session_of(process: u32, level: i32, known: &mut BTreeSet<String>) -> io::Result<()> {
    let file = format!("/proc/{process}/autogroup");
    let Some((name, now)) = session(file.as_ref()) else { return Ok(()) };
    if known.contains(&name) {
        return Ok(());
    }
    let set = if now == level { Ok(()) } else { set_session(file.as_ref(), level) };
    let set = match set {
        // The process belongs to another user of the build's user namespace, which Kilnyard may enter.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            namespace::write_inside(process, &file, &level.to_string())
        }
        set => set,
    };
    match set {
        // The process is gone.
        Err(_) if Process::of(process).is_none_or(|process| process.is_dead) => Ok(()),
        Err(error) => Err(error),
        Ok(()) => {
            known.insert(name);
            Ok(())
        }
    }
}

fn set_session(file: &Path, level: i32) -> io::Result<()> {
    // Not fs_err: callers check the kind of the kernel's error to decide whether to retry.
    let mut file = std::fs::OpenOptions::new().write(true).open(file)?;
    io::Write::write_all(&mut file, level.to_string().as_bytes())
}
