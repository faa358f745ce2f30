//! Process 1 of the sandbox: makes the root and starts the command, which [`reaper`] then watches.

use super::outer::{Outer, StepError, at, at_with, say, say_failed};
use super::refused::{self, Refused};
use super::{
    Bounds, Need, Report, Sandbox, Task, User, View, confine, copy, execute, flushes, inherit, keep, reaper,
    system,
};
use crate::{Flushes, Operation, archive, tree};
use std::ffi::CString;
use std::io::{self, BufWriter, Write};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

/// `becomes_root` says whether the id map allows to become root inside.
pub(super) fn run(sandbox: &Sandbox, bounds: Bounds, outer: Outer, becomes_root: bool) -> i32 {
    match start(sandbox, bounds, outer, becomes_root) {
        Ok(code) => code,
        Err(error) => {
            say_failed(error);
            125
        }
    }
}

fn start(sandbox: &Sandbox, bounds: Bounds, mut outer: Outer, becomes_root: bool) -> Result<i32, StepError> {
    if outer.wait().is_err() {
        // The outer process reports its own error.
        return Ok(125);
    }
    if becomes_root {
        at_with(Need::Namespaces, "become root in the user namespace", system::become_user(0, 0))?;
    }
    at("request to be killed when the outer process exits", outer.follow())?;
    at("leave the caller's keyrings", inherit::leave_keyrings())?;
    if !matches!(sandbox.task, Task::Keep(_)) {
        // Only now that it is in its control group, which becomes the root of the namespace.
        at("create a cgroup namespace", system::unshare(libc::CLONE_NEWCGROUP))?;
    }
    let private = libc::MS_PRIVATE | libc::MS_REC;
    at("make mounts private", system::mount("none", "/".as_ref(), "", private, ""))?;
    if let View::Root(operations) = &sandbox.view {
        // With the machine's network, loopback is already up, and is not the sandbox's to change.
        let is_needed = |operation: &&Operation| **operation != Operation::Loopback || !sandbox.has_network;
        for operation in operations.iter().filter(is_needed) {
            at_with(operation.need(), operation.to_string(), execute::execute(operation))?;
        }
    }
    match &sandbox.task {
        Task::Remove(folders) => remove(folders),
        Task::Copy { lower, target, content } => {
            let copied = copy::copy_layers(lower, target, *content);
            at(format!("copy layers to {}", target.display()), copied).map(|()| 0)
        }
        Task::Measure(folders) => at("print the size of files", measure(folders)).map(|()| 0),
        Task::Pack { folder, made_since_seconds } => {
            let packed = archive::pack(folder, *made_since_seconds, BufWriter::new(io::stdout().lock()));
            at(format!("pack {}", folder.display()), packed).map(|()| 0)
        }
        Task::Unpack { archive, target } => {
            let unpacked = archive::unpack_file(archive, target, sandbox.ids.has_one_id());
            at(format!("unpack {}", archive.display()), unpacked).map(|()| 0)
        }
        Task::Keep(operations) => keep::keep(operations, &sandbox.ids).map(|()| 0),
        Task::Program(arguments) => {
            let arguments = prepare(arguments)?;
            let environment: Vec<String> =
                sandbox.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
            let environment = prepare(&environment)?;
            let (refused, refusing) = at("create a pair of sockets", refused::pair())?;
            let reaper = reaper::Reaper::new(outer.orders, Refused::new(refused));
            let reaper = at("watch for the end of the command", reaper)?;
            match at("start the command", system::fork())? {
                None => {
                    reaper::unblock_child_signal();
                    let error = become_command(sandbox, bounds, &refusing, &arguments, &environment);
                    say_failed(error);
                    // SAFETY: ends this process immediately.
                    unsafe { libc::_exit(125) }
                }
                Some(command) => {
                    drop(refusing);
                    say(&Report::Started);
                    Ok(reaper.watch(command, matches!(sandbox.view, View::Root(_))))
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
        // Only the content: the owner of the parent folder may not be mapped here.
        match tree::empty_folder(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            emptied => at("remove files of a root", emptied)?,
        }
    }
    Ok(0)
}

fn measure(folders: &[PathBuf]) -> io::Result<()> {
    let charged: u64 = folders.iter().map(|folder| tree::usage(folder, u64::MAX).charged_bytes()).sum();
    writeln!(io::stdout(), "{charged}")
}

fn become_command(
    sandbox: &Sandbox,
    bounds: Bounds,
    refusing: &OwnedFd,
    arguments: &[CString],
    environment: &[CString],
) -> StepError {
    let error = |step: &str, error: io::Error| StepError::new(step, error);
    if !sandbox.is_interactive {
        // SAFETY: the call takes no arguments. The new session has no controlling terminal.
        unsafe { libc::setsid() };
    }
    if let Err(e) = confine::drop_capabilities() {
        return error("drop capabilities", e);
    }
    if sandbox.has_network
        && matches!(sandbox.view, View::Root(_))
        && let Err(e) = confine::keep_from_abstract_sockets()
    {
        return error("deny access to abstract sockets of the machine", e);
    }
    if sandbox.is_interactive
        && let Err(e) = confine::refuse_typing_for_others()
    {
        return error("block TIOCSTI, the insertion of terminal input", e);
    }
    // Installed while privileged: otherwise it would require no_new_privs, under which set-id programs gain no ids.
    if sandbox.flushes == Flushes::Discard
        && let Err(e) = flushes::discard()
    {
        return error("discard flushes", e);
    }
    if let Err(e) = inherit::reset() {
        return error("reset inherited process state", e);
    }
    if let Some(count) = bounds.processes_max
        && let Err(e) = system::limit_processes(count)
    {
        return error("limit the number of processes", e);
    }
    if let Some(count) = bounds.open_files_max
        && let Err(e) = system::limit_open_files(count)
    {
        return error("limit the number of open files", e);
    }
    if let User::Plain { user, group } = sandbox.user {
        let became = match sandbox.ids.has_one_id() {
            // The new user namespace grants all capabilities until the command is executed.
            true => system::appear_as(user, group).and_then(|()| confine::drop_capabilities()),
            false => system::become_user(user, group),
        };
        if let Err(e) = became {
            return error("switch to the user of the build", e);
        }
    }
    // SAFETY: the call takes only integers. From now on a program does not gain ids or capabilities from its file.
    // Root inside does not need that: it can change to any user of the root itself.
    if let Err(e) = system::check(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }) {
        return error("disable new privileges", e);
    }
    if matches!(sandbox.view, View::Root(_))
        && let Err(e) = refused::install(sandbox.nesting, refusing)
    {
        return error("block system calls that builds do not need", e);
    }
    if let Some((_, path)) = sandbox.environment.iter().find(|(name, _)| name == "PATH") {
        // The program is searched for in the PATH of the command, not of this process.
        #[expect(
            clippy::disallowed_methods,
            reason = "execvpe(3) searches for the command with this variable"
        )]
        // SAFETY: this process has one thread.
        unsafe {
            std::env::set_var("PATH", path)
        };
    }
    if let Err(e) = std::env::set_current_dir(&sandbox.directory) {
        return StepError::new(format!("enter {}", sandbox.directory.display()), e);
    }
    if !sandbox.is_interactive {
        // SAFETY: 1 and 2 are open; this process sends no further report, except if exec fails.
        let copy = unsafe { libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 10) };
        // SAFETY: as above.
        if let Err(e) = system::check(unsafe { libc::dup2(1, 2) }) {
            return error("redirect standard error to the log", e);
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
        return StepError::new("run the command", io::Error::from(io::ErrorKind::InvalidInput));
    };
    // SAFETY: both lists end with a null pointer and their strings outlive the call.
    unsafe { libc::execvpe(program.as_ptr(), arguments_list.as_ptr(), environment_list.as_ptr()) };
    StepError::new(format!("run {}", program.to_string_lossy()), io::Error::last_os_error())
}
