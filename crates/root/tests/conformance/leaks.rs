//! A root leaves no traces, whether it is removed or killed.

use crate::Test;
use crate::stand::{BACKENDS, PLAIN, Stand, own_ids, plan, sandbox_of};
use kilnyard_root::remove_folder;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub const TESTS: &[Test] = &[
    ("a_removed_root_leaves_nothing", a_removed_root_leaves_nothing),
    ("roots_made_and_removed_or_killed_in_a_row_leave_nothing", roots_in_a_row_leave_nothing),
];

/// The number of roots made in a row; each fifth is killed. The variable overrides it.
const COUNT: usize = 20;
const COUNT_VARIABLE: &str = "KILNYARD_ROOTS";
/// The argument that starts this program as the one to be killed; the yard, the name of a root and a backend follow.
const VICTIM: &str = "kilnyard-victim";
/// A process is certainly gone by then.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Traces that the roots of a yard could leave.
#[derive(Debug, PartialEq)]
pub struct Traces {
    mounts: usize,
    pub devices: Vec<PathBuf>,
    processes: Vec<String>,
    files: Vec<PathBuf>,
}

fn a_removed_root_leaves_nothing(stand: &Stand) {
    let before = traces(stand);
    assert_ne!(before.files, Vec::<PathBuf>::new());
    stand.run(PLAIN, "mkdir -p /tmp/a/b && echo x > /tmp/a/b/c && chmod 0 /tmp/a/b");
    stand.remove();
    let expected =
        Traces { mounts: before.mounts, devices: Vec::new(), processes: Vec::new(), files: Vec::new() };
    assert_eq!(traces(stand), expected);
}

fn roots_in_a_row_leave_nothing(stand: &Stand) {
    let count = std::env::var(COUNT_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(COUNT);
    stand.remove();
    let before = traces(stand);
    for number in 0..count {
        let name = format!("row-{number}");
        if number % 5 == 4 {
            // At moments spread over the whole life of a root.
            let span_milliseconds = if stand.backend.is_on_device() { 360 } else { 60 };
            kill_at(stand, &name, Duration::from_millis((number * 7 % span_milliseconds) as u64));
        } else {
            let (plan, keeper) = stand.another(&name);
            let seen = stand.sandbox_of(&plan, keeper.as_ref(), PLAIN, "echo x > /tmp/x && cat /tmp/x").run();
            plan.remove(stand.folder.path(), &stand.ids, keeper.as_ref()).unwrap();
            assert_eq!(seen.unwrap(), "x\n");
        }
    }
    assert_eq!(traces(stand), before);
}

/// Starts this program again to make a root and run a command in it, kills it, and cleans up as the next start of
/// Kilnyard does.
fn kill_at(stand: &Stand, name: &str, moment: Duration) {
    let yard = stand.folder.path().to_str().unwrap();
    let mut victim = Command::new("/proc/self/exe")
        .args([VICTIM, yard, name, stand.backend.name])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    std::thread::sleep(moment);
    victim.kill().unwrap();
    victim.wait().unwrap();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let left = processes(stand.folder.path());
        if left.is_empty() {
            break;
        }
        assert!(Instant::now() < deadline, "{left:?} outlive Kilnyard");
        std::thread::sleep(Duration::from_millis(2));
    }
    remove_folder(stand.folder.path(), &Path::new("roots").join(name), &stand.ids).unwrap();
}

/// Becomes the program to be killed if this one was started as that. Must be called first in `main`.
pub fn be_killed_if_asked() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, word, yard, name, backend] = &arguments[..] else { return };
    if word != VICTIM {
        return;
    }
    let backend = BACKENDS.into_iter().find(|known| known.name == backend).unwrap();
    let (yard, ids, plan) = (Path::new(yard), own_ids().unwrap(), plan(name, &backend));
    let keeper = plan.make(yard, &ids).unwrap();
    let sandbox =
        sandbox_of(yard, &ids, &plan, keeper.as_ref(), PLAIN, &format!("sleep 4711; : {}", yard.display()));
    let _ = sandbox.run();
    std::process::exit(1);
}

/// Processes of the yard's roots: Kilnyard's have it as their working directory or in their command line, and no other
/// command of this test mentions it.
pub fn processes(yard: &Path) -> Vec<String> {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let numbers = names.filter(|name| name.bytes().all(|b| b.is_ascii_digit()) && *name != own);
    let is_of_yard = |number: &String| {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let is_named = String::from_utf8_lossy(&line).contains(&*yard.to_string_lossy());
        is_named || fs::read_link(format!("/proc/{number}/cwd")).is_ok_and(|folder| folder == yard)
    };
    numbers.filter(is_of_yard).collect()
}

pub fn traces(stand: &Stand) -> Traces {
    let yard = stand.folder.path();
    let list = |path: &Path| {
        let mut paths: Vec<PathBuf> =
            fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()).collect();
        paths.sort();
        paths
    };
    // A served image has a name in which `~` replaces `/`.
    let names = [yard.to_string_lossy().into_owned(), yard.to_string_lossy().replace('/', "~")];
    let is_of_yard = |device: &PathBuf| {
        let file = fs::read_to_string(device.join("loop/backing_file")).unwrap_or_default();
        names.iter().any(|name| file.contains(name))
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    Traces {
        mounts: mounts.lines().filter(|line| line.contains(&*yard.to_string_lossy())).count(),
        devices: list(Path::new("/sys/block")).into_iter().filter(is_of_yard).collect(),
        processes: if list(&yard.join("roots")).is_empty() { processes(yard) } else { Vec::new() },
        files: list(&yard.join("roots")),
    }
}
