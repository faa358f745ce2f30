//! Control groups of commands in the real kernel: their members, their counters, and that none are left behind.

mod yard;

use kilnyard_process::weight::{Mechanism, Weights};
use kilnyard_process::{CommandOutcome, End, Sample, folder_of_groups, run};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::fs::{XattrFlags, setxattr};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io;
use std::os::unix::fs::chown;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use yard::{LIMITS, Yard, missing, process_with, processes_with, user};

/// How long a test waits for something that should happen immediately.
const PATIENCE: Duration = Duration::from_secs(60);

fn main() {
    kilnyard_root::sandbox::become_sandbox_if_asked();
    kilnyard_process::become_inspector_if_asked();
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some("run-command") => return perform_a_command(&words.next().unwrap_or_default()),
        Some("print-groups") => return print_groups(),
        _ => {}
    }
    let arguments = Arguments::from_args();
    let groups = folder_of_groups().err().map(|reason| format!("no groups for commands: {reason}"));
    let need = missing().or(groups);
    let need_root = need.clone().or_else(user::need_root);
    let test = |name: &'static str, need: &Option<String>, run: fn() -> Result<(), Failed>| {
        if let Some(reason) = need {
            eprintln!("skipped: {name}: {reason}");
        }
        Trial::test(name, run).with_ignored_flag(need.is_some())
    };
    let tests = vec![
        test("a_command_has_a_group_of_its_own", &need, a_command_has_a_group_of_its_own),
        test("a_process_outside_the_sandbox_is_named_and_ended", &need, a_process_outside_the_sandbox),
        test("a_stopped_sandbox_is_killed_with_its_group", &need, a_stopped_sandbox_is_killed),
        test("stalls_are_those_of_the_command", &need, stalls_are_those_of_the_command),
        test("a_child_that_is_never_waited_for_counts", &need, a_child_that_is_never_waited_for),
        test("a_group_and_a_weight_go_together", &need, a_group_and_a_weight_go_together),
        test("a_killed_kilnyards_groups_are_swept", &need, a_killed_kilnyards_groups_are_swept),
        test("an_ordinary_user_works_without_groups", &need_root, an_ordinary_user_without_groups),
        test(
            "everything_works_for_an_ordinary_user_with_a_group",
            &need_root,
            everything_as_an_ordinary_user,
        ),
    ];
    libtest_mimic::run(&arguments, tests).exit();
}

fn perform(script: &str, cancel: &AtomicBool, observe: &mut dyn FnMut(Sample)) -> CommandOutcome {
    run(&Yard::new().sandbox(script), &mut io::sink(), LIMITS, cancel, None, observe)
}

fn simple(script: &str, observe: &mut dyn FnMut(Sample)) -> CommandOutcome {
    perform(script, &AtomicBool::new(false), observe)
}

/// The cgroup v2 folder of the `sleep` process with this argument.
fn group_with(argument: &str) -> Option<PathBuf> {
    let groups = fs::read_to_string(format!("/proc/{}/cgroup", process_with(argument)?.number)).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mounts = fs::read_to_string("/proc/mounts").unwrap();
    let mount =
        mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|line| line[2] == "cgroup2");
    Some(Path::new(mount?[1]).join(group))
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A process outside any sandbox.
struct Stranger(Child);

impl Stranger {
    fn new(argument: &str) -> Stranger {
        Stranger(Command::new("sleep").arg(argument).spawn().unwrap())
    }

    fn enter(&self, group: &Path) {
        fs::write(group.join("cgroup.procs"), self.0.id().to_string()).unwrap();
    }

    fn was_killed(mut self) -> bool {
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        self.0.wait().unwrap().signal() == Some(Signal::KILL.as_raw())
    }
}

fn a_command_has_a_group_of_its_own() -> Result<(), Failed> {
    let mut group = None;
    let outcome = simple("sleep 1.6101", &mut |_| {
        group = group.take().or_else(|| group_with("1.6101"));
    });
    assert_eq!((outcome.end, &outcome.left_behind[..]), (End::Exit(0), &[][..]));
    let group = group.ok_or("its group was not seen")?;
    let name = group.file_name().unwrap().to_str().unwrap();
    let maker = format!("-{}-", std::process::id());
    assert!(name.starts_with("kilnyard-command-") && name.contains(&maker), "{name}");
    assert!(!group.exists(), "{}", group.display());
    Ok(())
}

fn a_process_outside_the_sandbox() -> Result<(), Failed> {
    let stranger = Stranger::new("6201");
    let mut group = None;
    let outcome = simple("sleep 1.6202", &mut |_| {
        if group.is_none() {
            group = group_with("1.6202").inspect(|group| stranger.enter(group));
        }
    });
    assert_eq!(outcome.end, End::Exit(0));
    assert_eq!(outcome.left_behind, [format!("sleep 6201 ({}), outside the sandbox", stranger.0.id())]);
    assert!(stranger.was_killed());
    assert!(!group.ok_or("its group was not seen")?.exists());
    Ok(())
}

fn a_stopped_sandbox_is_killed() -> Result<(), Failed> {
    let (stranger, cancel) = (Stranger::new("6301"), AtomicBool::new(false));
    let mut group = None;
    let outcome = perform("exec sleep 6302", &cancel, &mut |_| {
        if let (None, Some(command)) = (&group, process_with("6302")) {
            group = group_with("6302").inspect(|group| stranger.enter(group));
            // A stopped process 1 of the sandbox receives nothing.
            kill_process(Pid::from_raw(command.parent).unwrap(), Signal::STOP).unwrap();
            cancel.store(true, Ordering::Relaxed);
        }
    });
    // All were killed together, so no search for leftovers was needed.
    assert_eq!((outcome.end, &outcome.left_behind[..]), (End::Cancelled, &[][..]));
    assert_eq!(processes_with("6302"), 0);
    assert!(stranger.was_killed());
    assert!(!group.ok_or("its group was not seen")?.exists());
    Ok(())
}

fn stalls_are_those_of_the_command() -> Result<(), Failed> {
    if !Path::new("/proc/pressure/cpu").exists() {
        eprintln!("skipped: stalls_are_those_of_the_command: this kernel does not count stalls");
        return Ok(());
    }
    let cores = std::thread::available_parallelism()?.get();
    let busy = |seconds: u32| format!("timeout {seconds} sh -c 'while :; do :; done'");
    let mut others: Vec<Child> = (0..cores * 2)
        .map(|_| Command::new("sh").args(["-c", &format!("exec {}", busy(60))]).spawn())
        .collect::<io::Result<_>>()?;
    let before = machine_waited_seconds();
    let idle = simple("sleep 5", &mut |_| {}).stalls;
    let machine = machine_waited_seconds() - before;
    for other in &mut others {
        kill_process(Pid::from_child(other), Signal::TERM)?;
        other.wait()?;
    }
    let waiting =
        simple(&format!("for i in $(seq {}); do {} & done; wait", cores * 2, busy(3)), &mut |_| {}).stalls;
    assert!(!idle.is_of_machine && !waiting.is_of_machine);
    let [idle, waiting] = [idle, waiting].map(|stalls| stalls.cpu_seconds.unwrap());
    assert!(
        waiting > 1.0 && idle < 0.7 * machine,
        "{waiting} s alone, {idle} s of {machine} s next to busy processes"
    );
    Ok(())
}

/// How long all processes of the machine have waited for a core.
fn machine_waited_seconds() -> f64 {
    let text = fs::read_to_string("/proc/pressure/cpu").unwrap();
    let total = text.lines().next().unwrap().rsplit_once("total=").unwrap().1;
    total.parse::<f64>().unwrap() / 1e6
}

fn a_child_that_is_never_waited_for() -> Result<(), Failed> {
    let script = "perl -e '$SIG{CHLD} = \"IGNORE\"; if (fork) { wait } else { 1 while times < 1 }'";
    let outcome = simple(script, &mut |_| {});
    assert_eq!(outcome.end, End::Exit(0));
    assert!(outcome.user_seconds + outcome.system_seconds >= 0.9, "{outcome:?}");
    Ok(())
}

fn a_group_and_a_weight_go_together() -> Result<(), Failed> {
    let mut weights = Weights::find("test-of-both");
    let membership = weights.begin(1);
    let script = "x=$(head -c 60M /dev/zero | tr '\\0' x); for i in 1 2 3 4 5 6; do (sleep 5; :) & done; sleep 5.6401; wait";
    let (mut group, mut has_peak, mut sampled_bytes) = (None, false, 0);
    for _ in 0..2 {
        let (yard, cancel) = (Yard::new(), AtomicBool::new(false));
        let mut observe = |sample: Sample| {
            sampled_bytes = sampled_bytes.max(sample.memory_bytes);
            group = group.take().or_else(|| group_with("5.6401"));
            has_peak |= group.as_ref().is_some_and(|group| group.join("memory.peak").exists());
        };
        let sandbox = yard.sandbox(script);
        let outcome = run(&sandbox, &mut io::sink(), LIMITS, &cancel, Some(&membership), &mut observe);
        assert_eq!(outcome.end, End::Exit(0));
        // Each of the shells holds the same 60 MB.
        assert!(sampled_bytes > 300_000_000, "{sampled_bytes}");
        assert_eq!(outcome.memory_peak_bytes < 300_000_000, has_peak, "{}", outcome.memory_peak_bytes);
        assert!(!group.take().ok_or("its group was not seen")?.exists());
    }
    if matches!(weights.mechanism(), Mechanism::GroupsVersion1(_) | Mechanism::GroupsVersion2(_)) {
        let counted = weights.cpu_seconds(1).unwrap_or_default();
        assert!(counted > 0.05, "{counted} s in the group of the build, {}", weights.mechanism());
    }
    let (way, error) = (weights.mechanism().to_string(), weights.first_error().map(str::to_owned));
    weights.end(1);
    drop(weights);
    println!("{way}; the kernel counts memory: {has_peak}");
    assert_eq!(error, None);
    Ok(())
}

/// Another instance of this program, which runs a command.
struct Helper {
    child: Child,
    group: PathBuf,
    _folder: tempfile::TempDir,
}

impl Helper {
    fn new(argument: &str) -> Helper {
        let folder = yard::open_folder();
        let mut command = Command::new("/proc/self/exe");
        command.args(["run-command", argument]).env("TMPDIR", folder.path());
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap();
        let mut group = None;
        wait_until("the command of a helper runs", || {
            group = group_with(argument);
            group.is_some()
        });
        Helper { child, group: group.unwrap(), _folder: folder }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

fn perform_a_command(argument: &str) {
    simple(&format!("sleep {argument}"), &mut |_| {});
}

fn a_killed_kilnyards_groups_are_swept() -> Result<(), Failed> {
    let (mut victim, mut other) = (Helper::new("6501"), Helper::new("6502"));
    let stranger = Stranger::new("6503");
    stranger.enter(&victim.group);
    let foreign = victim.group.with_file_name(format!("kilnyard-command-test-{}", std::process::id()));
    fs::create_dir(&foreign)?;
    assert!(folder_of_groups().is_ok() && victim.group.exists(), "its creator lives");
    victim.kill();
    wait_until("its sandbox is gone", || processes_with("6501") == 0);
    wait_until("its group is gone", || folder_of_groups().is_ok() && !victim.group.exists());
    assert!(stranger.was_killed());
    assert!(foreign.exists() && other.group.exists() && processes_with("6502") > 0);
    fs::remove_dir(foreign)?;
    other.kill();
    // The next command also sweeps.
    wait_until("the other's group is gone", || {
        simple("true", &mut |_| {});
        !other.group.exists()
    });
    Ok(())
}

fn print_groups() {
    println!(
        "groups: {}",
        folder_of_groups().map_or_else(|reason| reason, |folder| folder.display().to_string())
    );
    let mut was_in = None;
    let outcome = simple("sleep 1.6601", &mut |_| was_in = group_with("1.6601"));
    println!("{:?}, stalls of the machine: {}", outcome.end, outcome.stalls.is_of_machine);
    println!(
        "had a group: {}",
        was_in.is_some_and(|group| group.to_string_lossy().contains("kilnyard-command"))
    );
}

fn an_ordinary_user_without_groups() -> Result<(), Failed> {
    let said = user::run_as(None, &["print-groups"])?;
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines[0].contains("Permission denied") || lines[0].contains("belongs to systemd"), "{said}");
    assert_eq!(lines[1..], ["Exit(0), stalls of the machine: true", "had a group: false"]);
    Ok(())
}

fn everything_as_an_ordinary_user() -> Result<(), Failed> {
    let group = folder_of_groups()?.join(format!("kilnyard-trial-{}", std::process::id()));
    fs::create_dir(&group)?;
    // Delegated in the same way as by systemd (cgroups(7), cgroup delegation).
    for part in ["", "cgroup.procs", "cgroup.threads", "cgroup.subtree_control"] {
        chown(group.join(part), Some(user::ID), Some(user::ID))?;
    }
    let marked = setxattr(&group, "user.delegate", b"1", XattrFlags::empty());
    marked.or_else(|_| setxattr(&group, "trusted.delegate", b"1", XattrFlags::empty()))?;
    let said = user::run_as(Some(&group), &["--test-threads=2"]);
    let left: Vec<PathBuf> =
        fs::read_dir(&group)?.flatten().map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    wait_until("the group is empty", || fs::remove_dir(&group).is_ok());
    let said = said?;
    assert!(said.contains("7 passed; 0 failed; 2 ignored"), "{said}");
    assert!(left.is_empty(), "{left:?}");
    Ok(())
}
