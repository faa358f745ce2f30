//! Process 1 of the sandbox: the root, the command, the orphans, the samples.

use super::outer::{StepError, at, say, say_failed};
use super::{Report, Sandbox, Task, User, View, confine, copy, execute, flushes, keep, system};
use crate::{Flushes, Operation};
use std::ffi::CString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often memory is sampled: a peak shorter than this can be missed.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(200);
/// How many processes left behind are named.
const LEFT_BEHIND_NAMED_MAX: usize = 20;
/// How many bytes of a command line are told.
const COMMAND_LINE_BYTES_MAX: usize = 200;

/// `parent` is a pipe that ends with the outer process.
pub(super) fn run(sandbox: &Sandbox, parent: &OwnedFd) -> i32 {
    match start(sandbox, parent) {
        Ok(code) => code,
        Err(error) => {
            say_failed(error);
            125
        }
    }
}

fn start(sandbox: &Sandbox, parent: &OwnedFd) -> Result<i32, StepError> {
    // Seen from the new pid namespace the parent has no number, and whoever takes over its children has none either.
    at("follow the outer process", system::die_with_parent(0))?;
    at("follow the outer process", system::is_open(parent))?;
    if let View::Root(operations) = &sandbox.view {
        // The machine's own devices are up, and not this sandbox's to change.
        let is_needed = |operation: &&Operation| **operation != Operation::Loopback || !sandbox.has_network;
        for operation in operations.iter().filter(is_needed) {
            at(operation.to_string(), execute::execute(operation))?;
        }
    }
    match &sandbox.task {
        Task::Remove(folders) => remove(folders),
        Task::Copy { lower, target } => {
            at(format!("copy layers to {}", target.display()), copy::copy_layers(lower, target)).map(|()| 0)
        }
        Task::Keep(operations) => keep::keep(operations, &sandbox.ids).map(|()| 0),
        Task::Program(arguments) => {
            let arguments = prepare(arguments)?;
            let environment: Vec<String> =
                sandbox.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let environment = prepare(&environment)?;
            // The signal is waited for with a time limit, so it must not be delivered otherwise.
            block_child_signal(libc::SIG_BLOCK);
            match at("start the command", system::fork())? {
                None => {
                    block_child_signal(libc::SIG_UNBLOCK);
                    let error = become_command(sandbox, &arguments, &environment);
                    say_failed(error);
                    // SAFETY: ends this process at once.
                    unsafe { libc::_exit(125) }
                }
                Some(command) => {
                    say(&Report::Started);
                    Ok(watch(command, matches!(sandbox.view, View::Root(_))))
                }
            }
        }
    }
}

fn prepare(texts: &[String]) -> Result<Vec<CString>, StepError> {
    texts.iter().map(|text| at("read the command", system::c_string(text.as_bytes()))).collect()
}

fn remove(folders: &[PathBuf]) -> Result<i32, StepError> {
    for folder in folders {
        // Only what is inside: the folder itself may stand in one that belongs to nobody here.
        let entries = match std::fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err((format!("read {}", folder.display()), error)),
        };
        for entry in entries {
            let entry = at(format!("read {}", folder.display()), entry)?;
            let path = entry.path();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let removed =
                if is_folder { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
            at(format!("remove {}", path.display()), removed)?;
        }
    }
    Ok(0)
}

fn become_command(sandbox: &Sandbox, arguments: &[CString], environment: &[CString]) -> StepError {
    let error = |step: &str, error: io::Error| (step.to_owned(), error);
    if !sandbox.is_interactive {
        // SAFETY: numbers alone. A session of its own, so that no terminal can be reached.
        unsafe { libc::setsid() };
    }
    if let Err(e) = confine::drop_capabilities() {
        return error("give up capabilities", e);
    }
    if sandbox.is_interactive
        && let Err(e) = confine::refuse_typing_for_others()
    {
        return error("keep the terminal from being typed into", e);
    }
    // While there is the privilege for it: without, a program that gains ids would have to be kept from it.
    if sandbox.flushes == Flushes::Discard
        && let Err(e) = flushes::discard()
    {
        return error("discard flushes", e);
    }
    // What programs are begun with, whatever Kilnyard itself has.
    // SAFETY: numbers alone; the default action has no handler.
    unsafe {
        libc::umask(0o022);
        for signal in 1..libc::SIGSYS + 1 {
            // Two of them cannot be ignored in the first place, and say so.
            libc::signal(signal, libc::SIG_DFL);
        }
    }
    if let User::Plain { user, group } = sandbox.user {
        if let Err(e) = system::become_user(user, group) {
            return error("become the build's user", e);
        }
        // SAFETY: numbers alone.
        if let Err(e) = system::check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }) {
            return error("give up new privileges", e);
        }
    }
    if let Some((_, path)) = sandbox.environment.iter().find(|(name, _)| name == "PATH") {
        // The program is looked for where its own environment says, not in that of this process.
        // SAFETY: this process has one thread.
        unsafe { std::env::set_var("PATH", path) };
    }
    if let Err(e) = std::env::set_current_dir(&sandbox.directory) {
        return (format!("enter {}", sandbox.directory.display()), e);
    }
    if !sandbox.is_interactive {
        // SAFETY: 1 and 2 are open; the reports of this process end here, but for one if exec fails.
        let copy = unsafe { libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 10) };
        // SAFETY: as above.
        if let Err(e) = system::check(unsafe { libc::dup2(1, 2) }) {
            return error("join standard error with the log", e);
        }
        let failed = execute_program(arguments, environment);
        // SAFETY: `copy` is the descriptor of the reports.
        unsafe { libc::dup2(copy, 2) };
        return failed;
    }
    execute_program(arguments, environment)
}

fn execute_program(arguments: &[CString], environment: &[CString]) -> StepError {
    let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
        texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (arguments_list, environment_list) = (pointers(arguments), pointers(environment));
    let Some(program) = arguments.first() else {
        return ("run the command".to_owned(), io::Error::from(io::ErrorKind::InvalidInput));
    };
    // SAFETY: both lists end with a null pointer and their strings outlive the call.
    unsafe { libc::execvpe(program.as_ptr(), arguments_list.as_ptr(), environment_list.as_ptr()) };
    (format!("run {}", program.to_string_lossy()), io::Error::last_os_error())
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

/// Reaps children and samples until the command has ended; its exit code.
fn watch(command: libc::pid_t, has_own_processes: bool) -> i32 {
    let set = child_signal();
    let mut sampled_at = Instant::now();
    loop {
        let timeout = libc::timespec { tv_sec: 0, tv_nsec: SAMPLE_INTERVAL.subsec_nanos().into() };
        // SAFETY: the set and the timeout live to the end of the call; no information is asked for.
        unsafe { libc::sigtimedwait(&set, std::ptr::null_mut(), &timeout) };
        while let Ok((pid, status, _)) = system::wait(-1, libc::WNOHANG) {
            if pid == 0 {
                break;
            }
            if pid == command {
                let (code, _) = system::code_of(status);
                if has_own_processes {
                    name_who_is_left();
                }
                return code;
            }
        }
        if has_own_processes && sampled_at.elapsed() >= SAMPLE_INTERVAL {
            sampled_at = Instant::now();
            sample();
        }
    }
}

/// The processes of the sandbox besides this one: `/proc` shows no others.
fn processes() -> impl Iterator<Item = (i32, PathBuf)> {
    std::fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let number: i32 = entry.file_name().to_str()?.parse().ok()?;
        (number != 1).then(|| (number, entry.path()))
    })
}

fn sample() {
    // SAFETY: no preconditions.
    let (page, ticks) = unsafe { (libc::sysconf(libc::_SC_PAGESIZE), libc::sysconf(libc::_SC_CLK_TCK)) };
    let (mut count, mut runnable, mut pages, mut time) = (0, 0, 0, 0);
    for (_, folder) in processes() {
        // Fields after the name: state is the first, utime the 12th, stime the 13th, rss the 22nd (proc(5)).
        let Some(fields) = stat_fields(&folder) else { continue };
        let field = |index: usize| fields.get(index).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        count += 1;
        runnable += u32::from(fields.first().is_some_and(|state| state == "R"));
        pages += field(21);
        time += field(11) + field(12);
    }
    say(&Report::Sample {
        processes: count,
        runnable,
        memory_bytes: pages * page as u64,
        cpu_seconds: time as f64 / ticks as f64,
    });
}

fn stat_fields(folder: &Path) -> Option<Vec<String>> {
    let text = std::fs::read(folder.join("stat")).ok()?;
    let text = String::from_utf8_lossy(&text);
    let (_, rest) = text.rsplit_once(')')?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

fn name_who_is_left() {
    let mut left = Vec::new();
    for (number, folder) in processes() {
        let is_gone = stat_fields(&folder).is_none_or(|fields| fields.first().is_some_and(|s| s == "Z"));
        if is_gone || left.len() == LEFT_BEHIND_NAMED_MAX {
            continue;
        }
        let read = |name: &str| {
            let line = std::fs::read(folder.join(name)).unwrap_or_default();
            let line = &line[..line.len().min(COMMAND_LINE_BYTES_MAX)];
            String::from_utf8_lossy(line).replace('\0', " ").trim().to_owned()
        };
        // In the moment in which it becomes another program it has no command line.
        let line = Some(read("cmdline")).filter(|line| !line.is_empty());
        left.push((number, line.unwrap_or_else(|| read("comm"))));
    }
    if !left.is_empty() {
        say(&Report::LeftBehind { processes: left });
    }
}
