//! Process 1 of a guest.

mod console;
mod network;

use crate::frame::{self, Frame, Interaction, Mounts, Shared, Task, ToGuest, ToHost};
use crate::initial::{MARK, MODULES};
use console::Input;
use kilnyard_process::{Watched, run_watched};
use kilnyard_root::{Operation, Sandbox, View};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change, mount_move};
use rustix::process::{Resource, Rlimit, setrlimit};
use rustix::system::{RebootCommand, reboot};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Where the shared folders are mounted first.
const SHARE: &str = "/share";
/// The new root, before it is one.
const ROOT: &str = "/root";
/// The only disk. The folder of devices is moved before it is mounted.
const DISK: &str = "/root/dev/vda";
/// The name of the serial port.
const PORT: &str = "kilnyard";
/// The most files that a process may open: the kernel's `fs.nr_open`.
const OPEN_FILES_MAX: u64 = 1 << 20;
/// How long devices may take to appear after their modules are loaded.
const APPEARS_WITHIN: Duration = Duration::from_secs(20);

/// Becomes process 1 of a guest, if this is it. It never returns then.
#[expect(clippy::disallowed_methods, reason = "process 1 has nothing to return to")]
pub fn become_guest_if_started_as_process_1() {
    if std::process::id() != 1 || !Path::new("/").join(MARK).exists() {
        return;
    }
    if let Err(error) = live() {
        let _ = writeln!(io::stderr(), "kilnyard: {error}");
    }
    // The host ends the machine; without it, nothing is left to do.
    let _ = reboot(RebootCommand::PowerOff);
    std::process::exit(1)
}

fn live() -> io::Result<()> {
    let none = MountFlags::empty();
    mount("proc", "/proc", "proc", none, None)?;
    mount("sys", "/sys", "sysfs", none, None)?;
    // Without it, emulated instructions are counted, but not named.
    let _ = mount("tracing", "/sys/kernel/tracing", "tracefs", none, None);
    // The kernel may have mounted it.
    let _ = mount("dev", "/dev", "devtmpfs", none, None);
    raise_limits();
    load_modules()?;
    let port = Arc::new(Mutex::new(port()?));
    let mut from = port.lock().unwrap_or_else(PoisonError::into_inner).try_clone()?;
    let Frame::Message(ToGuest::Mount(mounts)) = frame::read(&mut from, frame::TO_GUEST_BYTES_MAX)? else {
        return Err(io::Error::other("the host begins with another message"));
    };
    if let Err(error) = network::set_up().and_then(|()| mount_all(&mounts)) {
        return frame::send(&mut *lock(&port), &ToHost::Failed(error.to_string()));
    }
    frame::send(&mut *lock(&port), &ToHost::Ready)?;
    let (sender, jobs) = channel();
    let cancel = Arc::new(AtomicBool::new(false));
    let to_cancel = cancel.clone();
    std::thread::spawn(move || pass_on(&mut from, &sender, &to_cancel));
    work(&jobs, &port, &cancel)
}

/// What the host asks for.
enum Job {
    Run(Box<Task>),
    /// With what is typed from then on, which may be there before the command begins.
    Interact(Box<Interaction>, Receiver<Input>),
}

/// Passes on the host's messages until it sends no more.
fn pass_on(from: &mut impl Read, jobs: &Sender<Job>, cancel: &AtomicBool) {
    let (mut to_command, _) = channel();
    while let Ok(Frame::Message(message)) = frame::read(from, frame::TO_GUEST_BYTES_MAX) {
        match message {
            ToGuest::Run(task) => {
                cancel.store(false, Ordering::Relaxed);
                if jobs.send(Job::Run(task)).is_err() {
                    break;
                }
            }
            ToGuest::Interact(interaction) => {
                let inputs;
                (to_command, inputs) = channel();
                if jobs.send(Job::Interact(interaction, inputs)).is_err() {
                    break;
                }
            }
            ToGuest::Cancel => cancel.store(true, Ordering::Relaxed),
            // What comes too late for a command is for none.
            ToGuest::Typed(bytes) => drop(to_command.send(Input::Typed(bytes))),
            ToGuest::Resize(screen) => drop(to_command.send(Input::Resize(screen))),
            ToGuest::Mount(_) => break,
        }
    }
}

fn lock(port: &Mutex<File>) -> std::sync::MutexGuard<'_, File> {
    port.lock().unwrap_or_else(PoisonError::into_inner)
}

fn work(jobs: &Receiver<Job>, port: &Arc<Mutex<File>>, cancel: &AtomicBool) -> io::Result<()> {
    while let Ok(job) = jobs.recv() {
        let task = match job {
            Job::Run(task) => task,
            Job::Interact(interaction, inputs) => {
                make_mount_points(&interaction.sandbox)?;
                let left = console::interact(&interaction, &Output(port.clone()), &inputs);
                rustix::fs::sync();
                let message = left.map_or_else(|error| ToHost::Failed(error.to_string()), ToHost::Left);
                frame::send(&mut *lock(port), &message)?;
                continue;
            }
        };
        let Task { sandbox, limits, writing, jobserver } = *task;
        make_mount_points(&sandbox)?;
        // Open as long as the command runs, so that its tokens stay.
        let _tokens = jobserver.and_then(|path| filled(&path).ok());
        let watched = Watched { limits, writing: &writing, cancel, membership: None };
        let mut output = Output(port.clone());
        let mut observe = |sample| {
            // A host that is gone is noticed below.
            let _ = frame::send(&mut *lock(port), &ToHost::Sample(sample));
        };
        let outcome = run_watched(&sandbox, &mut output, watched, &mut observe);
        // Data in the guest's memory reaches the host's files, whose attributes the host reads next.
        rustix::fs::sync();
        frame::send(&mut *lock(port), &ToHost::Ended(Box::new(outcome)))?;
    }
    Ok(())
}

/// The folders in which a root appears, which the host does not share: nothing is written to them.
fn make_mount_points(sandbox: &Sandbox) -> io::Result<()> {
    let View::Root(operations) = &sandbox.view else { return Ok(()) };
    operations.iter().try_for_each(|operation| match operation {
        Operation::Overlay { target, .. } => fs_err::create_dir_all(sandbox.folder.join(target)),
        _ => Ok(()),
    })
}

/// The named pipe of a jobserver, with a token for each processor but the first, which needs none (GNU make's manual, "POSIX
/// Jobserver Interaction"). The pipe is this kernel's: the host sees its name alone.
fn filled(path: &Path) -> io::Result<File> {
    let mut pipe = File::options().read(true).write(true).open(path)?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    pipe.write_all(&vec![b'+'; cores - 1])?;
    Ok(pipe)
}

/// The output of a command, which goes to the host.
#[derive(Clone)]
struct Output(Arc<Mutex<File>>);

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        frame::send_output(&mut *lock(&self.0), bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A kernel limits processes by its memory, and files by an old default: a sandbox sets its own limits, and cannot raise them.
fn raise_limits() {
    for (resource, value) in [(Resource::Nproc, None), (Resource::Nofile, Some(OPEN_FILES_MAX))] {
        // Without it, a command with a higher limit says what it lacks.
        let _ = setrlimit(resource, Rlimit { current: value, maximum: value });
    }
}

/// Loads the modules in the order of their names.
fn load_modules() -> io::Result<()> {
    let mut paths: Vec<_> = fs_err::read_dir(Path::new("/").join(MODULES))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<io::Result<_>>()?;
    paths.sort();
    for path in paths {
        let module = fs_err::File::open(&path)?;
        match rustix::system::finit_module(&module, c"", 0) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => {
                return Err(io::Error::other(format!("failed to load {}: {error}", path.display())));
            }
        }
    }
    Ok(())
}

/// The serial port to the host, as soon as it is there.
fn port() -> io::Result<File> {
    let until = Instant::now() + APPEARS_WITHIN;
    loop {
        for entry in fs_err::read_dir("/sys/class/virtio-ports").into_iter().flatten().flatten() {
            let name = fs_err::read_to_string(entry.path().join("name")).unwrap_or_default();
            if name.trim() == PORT {
                let device = Path::new("/dev").join(entry.file_name());
                return File::options().read(true).write(true).open(device);
            }
        }
        if Instant::now() > until {
            return Err(io::Error::other("there is no port to the host"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits for the only disk.
fn wait_for_disk() -> io::Result<()> {
    let until = Instant::now() + APPEARS_WITHIN;
    while !Path::new(DISK).exists() {
        if Instant::now() > until {
            return Err(io::Error::other("there is no disk"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Makes a root of its own, with the shared paths where the host has them. The initial file system cannot be the root of
/// a sandbox's parent: pivot_root(2) refuses it.
fn mount_all(Mounts { shared, disk }: &Mounts) -> io::Result<()> {
    let none = MountFlags::empty();
    mount("root", ROOT, "tmpfs", none, Some(c"mode=0755"))?;
    if !shared.is_empty() {
        fs_err::create_dir(SHARE)?;
        mount(PORT, SHARE, "virtiofs", none, None)?;
    }
    // The program and its libraries stay where they are.
    for entry in fs_err::read_dir("/")? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        let is_of_system = ["proc", "sys", "dev"].iter().any(|system| name == *system);
        if entry.file_type()?.is_dir() && path != Path::new(ROOT) && path != Path::new(SHARE) {
            let target = Path::new(ROOT).join(&name);
            fs_err::create_dir_all(&target)?;
            if is_of_system { mount_move(&path, &target)? } else { mount_bind(&path, &target)? }
        }
    }
    let run = Path::new(ROOT).join("tmp");
    fs_err::create_dir_all(&run)?;
    mount("tmp", &run, "tmpfs", none, Some(c"mode=1777"))?;
    for Shared { path, is_folder, .. } in shared {
        let below = path.strip_prefix("/").unwrap_or(path);
        let (source, target) = (Path::new(SHARE).join(below), Path::new(ROOT).join(below));
        match is_folder {
            true => fs_err::create_dir_all(&target)?,
            false if target.exists() => {}
            false => {
                fs_err::create_dir_all(target.parent().unwrap_or(Path::new(ROOT)))?;
                fs_err::write(&target, "")?;
            }
        }
        mount_bind(&source, &target)?;
    }
    if let Some(path) = disk {
        let target = Path::new(ROOT).join(path.strip_prefix("/").unwrap_or(path));
        fs_err::create_dir_all(&target)?;
        wait_for_disk()?;
        let flags = MountFlags::RDONLY | MountFlags::NODEV | MountFlags::NOATIME;
        mount(DISK, &target, "erofs", flags, None)?;
    }
    std::env::set_current_dir(ROOT)?;
    mount_move(ROOT, "/")?;
    rustix::process::chroot(".")?;
    std::env::set_current_dir("/")?;
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
    let pts = mount("devpts", "/dev/pts", "devpts", none, Some(c"ptmxmode=0666"));
    if pts.is_err() {
        fs_err::create_dir_all("/dev/pts")?;
        mount("devpts", "/dev/pts", "devpts", none, Some(c"ptmxmode=0666"))?;
    }
    // Without control groups, figures come from processes.
    let _ = mount("cgroup", "/sys/fs/cgroup", "cgroup2", none, None);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_root::IdMap;

    #[test]
    fn what_is_typed_before_a_command_begins_reaches_it() {
        let (ids, _) = IdMap::of_this_user("root", 0);
        let nothing = kilnyard_root::sandbox::Task::Remove(Vec::new());
        let sandbox = Sandbox::of_machine(Path::new("/"), &ids, nothing);
        let interact = || ToGuest::Interact(Box::new(Interaction { sandbox: sandbox.clone(), screen: None }));
        let typed = |text: &str| ToGuest::Typed(text.as_bytes().to_vec());
        let mut frames = Vec::new();
        // Too early; for a command that ends without it, and for the next one, with the end of its input.
        for message in [typed("early"), interact(), typed("one"), interact(), typed("two"), typed("")] {
            frame::send(&mut frames, &message).unwrap();
        }
        let (sender, jobs) = channel();
        pass_on(&mut &frames[..], &sender, &AtomicBool::new(false));
        drop(sender);
        let inputs = jobs.iter().map(|job| match job {
            Job::Interact(_, inputs) => inputs
                .iter()
                .map(|input| match input {
                    Input::Typed(bytes) => String::from_utf8(bytes).unwrap(),
                    Input::Resize(_) => panic!("nothing was resized"),
                })
                .collect(),
            Job::Run(_) => panic!("nothing was to run"),
        });
        let inputs: Vec<Vec<String>> = inputs.collect();
        assert_eq!(inputs, [vec!["one".to_owned()], vec!["two".to_owned(), String::new()]]);
    }
}
