//! The outer process: starts process 1 in new namespaces, maps its ids, and waits. It stays outside these namespaces.

use super::{Need, Report, Specification, Task, inherit, inner, system};
use crate::{IdMap, Mapper};
use std::ffi::OsStr;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// A description takes some tens of kilobytes, and more for a root of hundreds of layers.
const SPECIFICATION_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug)]
pub(super) struct StepError {
    /// Reads after "failed to".
    step: String,
    error: io::Error,
    need: Need,
}

impl StepError {
    pub(super) fn new(step: impl Into<String>, error: io::Error) -> StepError {
        StepError { step: step.into(), error, need: Need::Other }
    }
}

pub(super) fn at<T>(step: impl Into<String>, result: io::Result<T>) -> Result<T, StepError> {
    at_with(Need::Other, step, result)
}

/// Like [`at`], for a step with a specific requirement.
pub(super) fn at_with<T>(need: Need, step: impl Into<String>, result: io::Result<T>) -> Result<T, StepError> {
    result.map_err(|error| StepError { need, ..StepError::new(step, error) })
}

/// Whether reports go to a user's terminal; then only failures are reported.
static IS_INTERACTIVE: AtomicBool = AtomicBool::new(false);

pub(super) fn say(report: &Report) {
    if IS_INTERACTIVE.load(Ordering::Relaxed) && !matches!(report, Report::Failed { .. }) {
        return;
    }
    if let Ok(mut line) = serde_json::to_vec(report) {
        line.push(b'\n');
        // One write for each line, so that lines of several processes do not mix.
        let _ = io::stderr().write_all(&line);
    }
}

pub(super) fn say_failed(StepError { step, error, need }: StepError) {
    say(&Report::Failed { step, error: error.to_string(), number: error.raw_os_error(), need });
}

/// `parent` is the process that started this one. The current parent may be another: a killed parent's children are
/// adopted.
pub(super) fn run(source: &OsStr, parent: libc::pid_t) -> i32 {
    match enter(source, parent) {
        Ok(code) => code,
        Err(error) => {
            say_failed(error);
            125
        }
    }
}

fn enter(source: &OsStr, parent: libc::pid_t) -> Result<i32, StepError> {
    at("request to be killed when Kilnyard exits", system::die_with_parent(parent))?;
    at("reset the OOM score adjustment", inherit::reset_oom_score())?;
    let (specification, orders) = at("read the sandbox's description", read(source))?;
    let Specification { sandbox, bounds, groups } = specification;
    IS_INTERACTIVE.store(sandbox.is_interactive, Ordering::Relaxed);
    for folder in &groups.version_1 {
        // An error is ignored: the command can run without its CPU weight. A thread that moves itself does not wait for
        // other threads, unlike one that is moved from outside (cgroup_procs_write_start in the kernel).
        let _ = std::fs::write(folder.join("tasks"), "0");
    }
    // Open it while the machine's files are visible.
    let group = groups.version_2.as_ref().map(std::fs::File::open);
    let is_keeper = matches!(sandbox.task, Task::Keep(_));
    if let Some(keeper) = sandbox.keeper {
        join(keeper, &sandbox.ids, parent)?;
    }
    let entered = std::env::set_current_dir(&sandbox.folder);
    at_with(Need::Folder, format!("enter {}", sandbox.folder.display()), entered)?;
    if is_keeper {
        // A keeper ends with its standard input instead: the thread that started it may end long before.
        at("detach from the starting thread", system::survive_parent())?;
    }
    // A keeper started by root may need root, for a device for example, and does not run foreign code.
    let has_user_namespace = sandbox.keeper.is_some() && sandbox.ids.is_ordinary();
    let needs_none = is_keeper && !sandbox.ids.is_ordinary();
    let makes_user_namespace = !has_user_namespace && !needs_none;
    let becomes_root = !needs_none && !sandbox.ids.has_one_id();
    let mut spaces = libc::CLONE_NEWNS | libc::CLONE_NEWPID;
    if makes_user_namespace {
        spaces |= libc::CLONE_NEWUSER;
    }
    if !is_keeper {
        spaces |= libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
        if !sandbox.has_network {
            spaces |= libc::CLONE_NEWNET;
        }
    }
    let (ready, go) = at("create a pipe", pipe())?;
    match at_with(Need::Namespaces, "start process 1 in new namespaces", start(spaces, group))? {
        None => {
            drop(go);
            let outer = Outer { pipe: into_file(ready), orders };
            #[expect(clippy::disallowed_methods, reason = "process 1 exits here")]
            std::process::exit(inner::run(&sandbox, bounds, outer, becomes_root))
        }
        Some(first) => {
            // Only process 1 may hold these: it must notice when the sender of orders is gone.
            drop((orders, ready));
            say(&Report::Process1 { number: first.unsigned_abs() });
            if makes_user_namespace {
                write_maps(&sandbox.ids, first)?;
            }
            let mut go = into_file(go);
            // If process 1 is already gone, its status is reported below.
            let _ = go.write_all(b"g");
            let (_, status, usage) = at("wait for process 1", system::wait(first, 0))?;
            // If a signal ended the command, process 1 still exits normally, with 128 plus the signal.
            let (code, signal) = system::code_of(status);
            if let Some(signal) = signal {
                let error = io::Error::other(format!("killed by signal {signal}"));
                return Err(StepError::new("run process 1 of the sandbox", error));
            }
            let (user_seconds, system_seconds) = system::user_and_system_seconds(&usage);
            // In units of 1024 bytes (getrusage(2)).
            let largest_bytes = usage.ru_maxrss.max(0) as u64 * 1024;
            say(&Report::Ended { code, user_seconds, system_seconds, largest_bytes });
            Ok(code)
        }
    }
}

/// Process 1's connection to the outer process.
pub(super) struct Outer {
    /// Delivers a byte as soon as the ids are mapped, and ends with the outer process.
    pipe: std::fs::File,
    /// The source of orders from Kilnyard, if it sends any.
    pub(super) orders: Option<OwnedFd>,
}

impl Outer {
    /// Waits until the ids are mapped.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        self.pipe.read_exact(&mut [0])
    }

    /// Asks to be killed when the outer process dies. Fails if it is already gone.
    pub(super) fn follow(&self) -> io::Result<()> {
        // In the new pid namespace the parent appears as 0, and so does a process that would adopt its children.
        system::die_with_parent(0)?;
        system::is_open(self.pipe.as_fd())
    }
}

/// Starts process 1, in the given control group if that works. Returns `None` in the new process.
fn start(spaces: libc::c_int, group: Option<io::Result<std::fs::File>>) -> io::Result<Option<libc::pid_t>> {
    let Some(group) = group else { return system::clone(spaces, None) };
    let started = group.and_then(|group| system::clone(spaces, Some(group.as_fd())));
    started.or_else(|error| {
        say(&Report::NoGroup { error: error.to_string() });
        system::clone(spaces, None)
    })
}

/// Reads the description, and returns it with the source of orders. On standard input the description follows its
/// length in eight bytes, so that no byte after it is consumed. A keeper keeps its standard input and waits for its
/// end.
fn read(source: &OsStr) -> io::Result<(Specification, Option<OwnedFd>)> {
    if source != "-" {
        return Ok((serde_json::from_slice(&fs_err::read(source)?).map_err(io::Error::other)?, None));
    }
    // SAFETY: descriptor 0 is open; the copy has no other owner. Commands do not inherit it.
    let orders = unsafe {
        let copy = system::check(libc::fcntl(0, libc::F_DUPFD_CLOEXEC, 10))?;
        OwnedFd::from_raw_fd(copy)
    };
    let mut input = std::fs::File::from(orders);
    let mut length = [0; 8];
    input.read_exact(&mut length)?;
    let length = u64::from_le_bytes(length);
    if length > SPECIFICATION_BYTES_MAX {
        return Err(io::Error::other(format!("{length} bytes are more than {SPECIFICATION_BYTES_MAX}")));
    }
    let mut text = vec![0; length as usize];
    input.read_exact(&mut text)?;
    let specification: Specification = serde_json::from_slice(&text).map_err(io::Error::other)?;
    if matches!(specification.sandbox.task, Task::Keep(_)) {
        return Ok((specification, None));
    }
    let null = fs_err::File::open("/dev/null")?;
    // SAFETY: both descriptors are open; 0 is standard input, which nothing else uses here.
    system::check(unsafe { libc::dup2(null.as_raw_fd(), 0) })?;
    Ok((specification, Some(input.into())))
}

/// Enters the namespaces of a keeper: its mount namespace, and its user namespace if it has one.
fn join(keeper: u32, ids: &IdMap, parent: libc::pid_t) -> Result<(), StepError> {
    let open = |kind: &str| {
        let path = format!("/proc/{keeper}/ns/{kind}");
        at(format!("open {path}"), std::fs::File::open(path))
    };
    let mounts = open("mnt")?;
    if ids.is_ordinary() {
        at("enter the user namespace of the root", enter_users(keeper, parent))?;
    }
    let entered = system::enter(&mounts, libc::CLONE_NEWNS);
    at("enter the mount namespace of the root", entered)?;
    at("request to be killed when Kilnyard exits", system::die_with_parent(parent))
}

/// Enters the user namespace of a process, which must have been made by this user, and follows `parent` as before. The
/// calling process must have one thread.
pub fn enter_users(process: u32, parent: libc::pid_t) -> io::Result<()> {
    system::enter(&std::fs::File::open(format!("/proc/{process}/ns/user"))?, libc::CLONE_NEWUSER)?;
    // Entering a user namespace clears the parent-death signal, so it is set again.
    system::die_with_parent(parent)
}

fn into_file(descriptor: OwnedFd) -> std::fs::File {
    std::fs::File::from(descriptor)
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for the two descriptors.
    system::check(unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) })?;
    // SAFETY: both descriptors were just opened and have no other owner.
    Ok(unsafe { (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])) })
}

/// Maps the ids of a process's new user namespace, which must be done from outside that namespace.
fn write_maps(ids: &IdMap, process: libc::pid_t) -> Result<(), StepError> {
    let maps = [("uid_map", "newuidmap", &ids.users), ("gid_map", "newgidmap", &ids.groups)];
    if ids.mapper == Mapper::Helper {
        for (_, program, lines) in maps {
            let numbers = lines.iter().flat_map(|(a, b, c)| [a, b, c].map(ToString::to_string));
            let program = format!("/usr/bin/{program}");
            let output = Command::new(&program).arg(process.to_string()).args(numbers).output();
            let output = at(format!("run {program}"), output)?;
            if !output.status.success() {
                let text = String::from_utf8_lossy(&output.stderr).trim().to_owned();
                return Err(StepError {
                    need: Need::Namespaces,
                    ..StepError::new(format!("map ids with {program}"), io::Error::other(text))
                });
            }
        }
        return Ok(());
    }
    let folder = PathBuf::from(format!("/proc/{process}"));
    if ids.has_one_id() {
        at("keep the user's groups", system::keep_groups(&folder))?;
    }
    for (file, _, lines) in maps {
        let text: String = lines.iter().map(|(a, b, c)| format!("{a} {b} {c}\n")).collect();
        let path = folder.join(file);
        at_with(Need::Namespaces, format!("write {}", path.display()), std::fs::write(&path, text))?;
    }
    Ok(())
}
