//! CPU weights with a real kernel and busy processes: how CPU time is shared, and that no groups are left behind.

use kilnyard_process::weight::{Kind, Mechanism, Membership, Weights};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, UnshareFlags, sched_getaffinity, sched_setaffinity, unshare_unsafe};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The unit of CPU time in `/proc`, on all machines that Kilnyard supports (USER_HZ).
const TICKS_PER_SECOND: f64 = 100.0;
/// How long a test waits for something that should happen immediately.
const PATIENCE: Duration = Duration::from_secs(120);
/// How long to wait for levels of sessions: an ordinary user may set only a few per second.
const SETTLING: Duration = Duration::from_secs(3);
/// The CPU time that two builds use together before they are compared.
const COMPARED_CPU_SECONDS: f64 = 1.0;
/// The minimum ratio of CPU time between the first and the second. Expected are four, or three with nice levels.
const RATIO_MIN: f64 = 2.0;
/// The unprivileged user of any Linux, 65534.
const ORDINARY: u32 = 65534;

fn main() {
    let mut words = std::env::args().skip(1);
    match words.next().as_deref() {
        Some("help-as-owner") => return be_an_owner(&words.next().unwrap_or_default()),
        Some("help-as-ordinary-user") => return be_an_ordinary_user(),
        _ => {}
    }
    let arguments = Arguments::from_args();
    let need_groups = match Weights::find("test-of-need") {
        weights if has_groups(&weights) => None,
        weights => Some(format!("no control groups: {}", weights.obstacles().join("; "))),
    };
    let need_root = (!rustix::process::geteuid().is_root()).then(|| "needs root".to_owned());
    let test = |name: &'static str, need: &Option<String>, run: fn() -> Result<(), Failed>| {
        if let Some(reason) = need {
            eprintln!("skipped: {name}: {reason}");
        }
        Trial::test(name, run).with_ignored_flag(need.is_some())
    };
    let tests = vec![
        test("the_first_in_order_has_most_of_the_cpu", &need_groups, the_first_in_order_has_most),
        test("a_build_that_rises_has_the_cpu_at_once", &need_groups, a_build_that_rises_has_the_cpu_at_once),
        test("weights_follow_the_order", &need_groups, weights_follow_the_order),
        test("cpu_time_of_daemons_counts", &need_groups, cpu_time_of_daemons_counts),
        test("groups_go_when_their_last_process_has_ended", &need_groups, groups_go),
        test("a_killed_owners_groups_are_swept", &need_groups, a_killed_owners_groups_are_swept),
        test("a_build_continues_without_its_group", &need_groups, a_build_continues_without_its_group),
        test("nice_levels_follow_rank", &need_root, nice_levels_follow_rank),
        test("an_ordinary_user_has_what_the_kernel_allows", &need_root, an_ordinary_user),
        test("without_any_way_nothing_is_done", &None, without_any_way),
    ];
    libtest_mimic::run(&arguments, tests).exit();
}

/// Any thread may own the weights, and any thread may run builds.
const _: fn() = || {
    fn may_be_handed_over<T: Send>() {}
    may_be_handed_over::<Weights>();
    may_be_handed_over::<Membership>();
};

fn has_groups(weights: &Weights) -> bool {
    folder_of(weights).is_some()
}

fn folder_of(weights: &Weights) -> Option<PathBuf> {
    match weights.mechanism() {
        Mechanism::GroupsVersion1(folder) | Mechanism::GroupsVersion2(folder) => Some(folder.clone()),
        Mechanism::NiceSessions | Mechanism::NiceLevels { .. } | Mechanism::Nothing => None,
    }
}

/// The folders of builds in Kilnyard's group.
fn builds_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_build = |name: &std::ffi::OsStr| name.to_str().is_some_and(|name| name.starts_with("build-"));
    let mut found: Vec<PathBuf> =
        entries.filter(|entry| is_build(&entry.file_name())).map(|entry| entry.path()).collect();
    found.sort();
    found
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A build: an outer process that waits until it has entered the group, and then starts a command in a session of its
/// own, like the outer process of a sandbox.
struct Build {
    outer: Child,
    inner: Pid,
}

impl Build {
    fn start(membership: &Membership, command: &str) -> Build {
        Build::start_by(&mut Command::new("sh"), "setsid", membership, command)
    }

    /// Starts the build with this shell, and with some words before the command.
    fn start_by(shell: &mut Command, words: &str, membership: &Membership, command: &str) -> Build {
        let script = format!("read go; {words} sh -c 'echo $$; {command}' & wait");
        let mut outer =
            shell.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        pin(outer.id());
        membership.enter(outer.id()).unwrap();
        outer.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let mut line = String::new();
        BufReader::new(outer.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Build { outer, inner: Pid::from_raw(line.trim().parse().unwrap()).unwrap() }
    }

    fn busy(membership: &Membership) -> Build {
        Build::start(membership, "while :; do :; done")
    }

    /// Runs in a user namespace created by an ordinary user, as another user of the namespace, so the processes do
    /// not belong to the creator.
    fn busy_in_namespace(membership: &Membership) -> Build {
        let descriptor = |fd: BorrowedFd<'_>| rustix::io::fcntl_dupfd_cloexec(fd, 3).unwrap();
        let (ask, hear) = (descriptor(std::io::stdout().as_fd()), descriptor(std::io::stdin().as_fd()));
        let enter = move || {
            // SAFETY: no file descriptors are unshared.
            unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
            // The ids have to be mapped before the shell starts, or it has no privileges in the namespace.
            let pid = rustix::process::getpid().as_raw_nonzero();
            rustix::io::write(&ask, format!("map {pid}\n").as_bytes())?;
            rustix::io::read(&hear, &mut [0; 1])?;
            Ok(())
        };
        let mut shell = Command::new("sh");
        // SAFETY: this process is single-threaded, so the child of its fork may do anything.
        unsafe { shell.pre_exec(enter) };
        let words = "setpriv --reuid 5 --regid 5 --clear-groups setsid";
        Build::start_by(&mut shell, words, membership, "while :; do :; done")
    }

    fn idle(membership: &Membership) -> Build {
        Build::start(membership, "exec sleep 600")
    }

    /// User and system time of the command (proc_pid_stat(5)).
    fn cpu_seconds(&self) -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.inner.as_raw_nonzero())).unwrap();
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
        ticks / TICKS_PER_SECOND
    }
}

impl Drop for Build {
    fn drop(&mut self) {
        // The outer process still waits for the inner one, so the number has not been reused.
        let _ = kill_process(self.inner, Signal::KILL);
        let _ = self.outer.kill();
        let _ = self.outer.wait();
    }
}

/// A membership that can be entered, but has no group.
fn nothing() -> Membership {
    Weights::find_among("test-of-nothing", &[]).begin(0)
}

/// Competing processes must run on the same CPU.
fn pin(process: u32) {
    let allowed = sched_getaffinity(None).unwrap();
    let first = (0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap();
    let mut one = CpuSet::new();
    one.set(first);
    sched_setaffinity(Pid::from_raw(process as i32), &one).unwrap();
}

/// The CPU time that each of two builds uses from now on.
fn compare(weights: &mut Weights, builds: &[Build; 2]) -> [f64; 2] {
    let begun = builds.each_ref().map(Build::cpu_seconds);
    let mut used = [0.0; 2];
    wait_until("both have used some CPU time", || {
        weights.settle();
        let now = builds.each_ref().map(Build::cpu_seconds);
        used = [now[0] - begun[0], now[1] - begun[1]];
        used[0] + used[1] >= COMPARED_CPU_SECONDS
    });
    used
}

fn settle(weights: &mut Weights) {
    let begun = Instant::now();
    while begun.elapsed() < SETTLING {
        weights.settle();
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Two busy builds: the first in order gets clearly more, and if the order can be reversed, so does the other one
/// afterwards.
fn check_that_cpu_follows_order(weights: &mut Weights, can_reverse: bool, busy: fn(&Membership) -> Build) {
    let (one, other) = (weights.begin(11), weights.begin(12));
    let builds = [busy(&one), busy(&other)];
    weights.order(&[11, 12]);
    settle(weights);
    let used = compare(weights, &builds);
    assert!(used[0] >= RATIO_MIN * used[1], "{used:?} by {}", weights.mechanism());
    if can_reverse {
        weights.order(&[12, 11]);
        settle(weights);
        let used = compare(weights, &builds);
        assert!(used[1] >= RATIO_MIN * used[0], "reversed: {used:?} by {}", weights.mechanism());
    }
    assert_eq!(weights.first_error(), None);
}

fn the_first_in_order_has_most() -> Result<(), Failed> {
    check_that_cpu_follows_order(&mut Weights::find("test-of-rank"), true, Build::busy);
    Ok(())
}

fn a_build_that_rises_has_the_cpu_at_once() -> Result<(), Failed> {
    let mut weights = Weights::find("test-of-rises");
    // For a build that has just begun at the end of the scale, a kernel may make it wait for a turn under its old
    // weight. With a longer scale, this would take seconds.
    for round in 0..5 {
        let (one, other) = (weights.begin(11), weights.begin(12));
        let builds = [Build::busy(&one), Build::busy(&other)];
        weights.order(&[11, 12]);
        let used = compare(&mut weights, &builds);
        assert!(used[0] >= RATIO_MIN * used[1], "round {round}: {used:?}");
    }
    Ok(())
}

fn nice_levels_follow_rank() -> Result<(), Failed> {
    let mut weights = Weights::find_among("test-of-nice", &[Kind::Nice]);
    assert!(
        matches!(weights.mechanism(), Mechanism::NiceSessions | Mechanism::NiceLevels { can_lower: true }),
        "{weights:?}"
    );
    assert_eq!(weights.obstacles().len(), 0);
    check_that_cpu_follows_order(&mut weights, true, Build::busy);
    assert_eq!(weights.cpu_seconds(11), None);
    Ok(())
}

fn an_ordinary_user() -> Result<(), Failed> {
    // This program may be in a folder that the other user cannot enter.
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("program");
    std::fs::copy("/proc/self/exe", &program)?;
    use std::os::unix::fs::PermissionsExt;
    for path in [folder.path(), &program] {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    }
    let mut command = Command::new(&program);
    command.arg("help-as-ordinary-user").current_dir("/").uid(ORDINARY).gid(ORDINARY);
    let mut helper = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut answer = helper.stdin.take().unwrap();
    let mut said = String::new();
    for line in BufReader::new(helper.stdout.take().unwrap()).lines() {
        let line = line?;
        if let Some(pid) = line.strip_prefix("map ") {
            // As newuidmap and newgidmap do for a user with subordinate ids.
            for file in ["uid_map", "gid_map"] {
                std::fs::write(format!("/proc/{pid}/{file}"), format!("0 {ORDINARY} 1\n1 100000 1000\n"))?;
            }
            answer.write_all(b"\n")?;
        } else {
            said += &line;
            said.push('\n');
        }
    }
    assert!(helper.wait()?.success(), "{said}");
    assert!(said.starts_with("way: nice levels of "), "{said}");
    Ok(())
}

fn be_an_ordinary_user() {
    // The session in which it was started belongs to root.
    rustix::process::setsid().unwrap();
    let mut weights = Weights::find("test-of-ordinary");
    println!("way: {}", weights.mechanism());
    for reason in weights.obstacles() {
        println!("not: {reason}");
    }
    assert_eq!(weights.obstacles().len(), 2, "both cgroup versions give a reason: {weights:?}");
    let can_reverse = *weights.mechanism() == Mechanism::NiceSessions;
    check_that_cpu_follows_order(&mut weights, can_reverse, Build::busy);
    check_that_cpu_follows_order(&mut weights, can_reverse, Build::busy_in_namespace);
}

fn weights_follow_the_order() -> Result<(), Failed> {
    let mut weights = Weights::find("test-of-weights");
    let folder = folder_of(&weights).unwrap();
    for build in [1, 2, 3] {
        let _ = weights.begin(build);
    }
    let file =
        if matches!(weights.mechanism(), Mechanism::GroupsVersion1(_)) { "cpu.shares" } else { "cpu.weight" };
    let read = || -> Vec<u64> {
        let read = |build: &PathBuf| std::fs::read_to_string(build.join(file)).unwrap();
        builds_in(&folder).iter().map(|build| read(build).trim().parse().unwrap()).collect()
    };
    let begun = read();
    assert!(begun.len() == 3 && begun.iter().all(|weight| *weight <= 100), "{begun:?}");
    // A build named twice and an unknown build have no effect.
    weights.order(&[9, 3, 1, 3]);
    let [first, second, third] = read()[..] else { return Err("three builds".into()) };
    assert_eq!((first, second), (third / 4, begun[0]));
    weights.order(&[1, 2, 3]);
    let reversed = read();
    assert_eq!(reversed, [third, third / 4, third / 16]);
    weights.order(&[]);
    assert_eq!(read(), begun);
    assert_eq!(weights.first_error(), None);
    Ok(())
}

fn cpu_time_of_daemons_counts() -> Result<(), Failed> {
    let mut weights = Weights::find("test-of-daemons");
    let membership = weights.begin(5);
    assert!(weights.cpu_seconds(5).is_some_and(|seconds| seconds < 0.1), "{:?}", weights.cpu_seconds(5));
    weights.order(&[5]);
    // The daemon has no parent in the build, and nothing here ever waits for it.
    let daemon = "( (i=0; while [ $i -lt 500000 ]; do i=$((i+1)); done) & ); exec sleep 600";
    let build = Build::start(&membership, daemon);
    wait_until("the daemon's CPU time is reported", || {
        weights.cpu_seconds(5).is_some_and(|seconds| seconds >= build.cpu_seconds() + 0.1)
    });
    assert_eq!(weights.cpu_seconds(6), None);
    drop(build);
    weights.end(5);
    assert_eq!(weights.cpu_seconds(5), None);
    let folder = folder_of(&weights).unwrap();
    wait_until("the daemon has ended, and its group is gone", || {
        weights.settle();
        builds_in(&folder).is_empty()
    });
    Ok(())
}

fn groups_go() -> Result<(), Failed> {
    let mut weights = Weights::find("test-of-ends");
    let folder = folder_of(&weights).unwrap();
    let (one, other) = (weights.begin(1), weights.begin(2));
    let (first, second) = (Build::idle(&one), Build::busy(&other));
    assert_eq!(builds_in(&folder).len(), 2);
    weights.end(1);
    assert_eq!(builds_in(&folder).len(), 2, "a process is still in it");
    // The same number again means another build.
    let again = weights.begin(1);
    assert_eq!(builds_in(&folder).len(), 3);
    drop(first);
    wait_until("the group of a build that was killed is gone", || {
        weights.settle();
        builds_in(&folder).len() == 2
    });
    assert!(one.enter(second.outer.id()).is_err(), "its group is gone");
    again.enter(second.outer.id())?;
    // The processes are killed at the same moment in which the weights are dropped.
    drop(second);
    drop(weights);
    assert!(!folder.exists(), "{}", folder.display());
    assert!(again.enter(Build::idle(&nothing()).outer.id()).is_err());
    Ok(())
}

fn be_an_owner(owner: &str) {
    let mut weights = Weights::find(owner);
    let membership = weights.begin(1);
    let build = Build::idle(&membership);
    let Some(folder) = folder_of(&weights) else { return };
    println!("{}\n{}", folder.display(), build.inner.as_raw_nonzero());
    let _ = std::io::stdin().read(&mut [0]);
}

fn a_killed_owners_groups_are_swept() -> Result<(), Failed> {
    let owner = "test-of-owners";
    let mut helper = Command::new("/proc/self/exe")
        .args(["help-as-owner", owner])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut lines = BufReader::new(helper.stdout.take().unwrap()).lines();
    let Some(folder) = lines.next() else {
        eprintln!("skipped: a_killed_owners_groups_are_swept: two owners cannot share this group");
        helper.wait()?;
        return Ok(());
    };
    let folder = PathBuf::from(folder?);
    let inner = Pid::from_raw(lines.next().unwrap()?.parse()?).unwrap();
    assert_eq!(builds_in(&folder).len(), 1);
    drop(Weights::find(owner));
    assert_eq!(builds_in(&folder).len(), 1, "its owner lives");
    helper.kill()?;
    helper.wait()?;
    drop(Weights::find("test-of-others"));
    let mut weights = Weights::find(owner);
    if matches!(weights.mechanism(), Mechanism::GroupsVersion1(_)) {
        assert!(folder.exists(), "a process is still in it");
        kill_process(inner, Signal::KILL)?;
    }
    wait_until("the group of a killed owner is gone", || {
        weights.settle();
        !folder.exists()
    });
    drop(weights);
    Ok(())
}

fn a_build_continues_without_its_group() -> Result<(), Failed> {
    let mut weights = Weights::find("test-of-loss");
    let folder = folder_of(&weights).unwrap();
    let membership = weights.begin(1);
    for build in builds_in(&folder) {
        std::fs::remove_dir(build)?;
    }
    weights.order(&[1]);
    let error = weights.first_error().unwrap_or_default().to_owned();
    assert!(error.starts_with("failed to set the CPU weight of a build: "), "{error}");
    let bystander = Build::idle(&nothing());
    assert!(membership.enter(bystander.outer.id()).is_err());
    // It may still have entered the group that counts.
    drop(bystander);
    weights.end(1);
    if std::fs::remove_dir(&folder).is_err() {
        // Kilnyard itself is in a subgroup, so the group cannot be removed.
        return Ok(());
    }
    // There is nothing to enter, and nothing fails.
    drop(Build::idle(&weights.begin(2)));
    weights.order(&[2]);
    assert_eq!((weights.cpu_seconds(2), weights.first_error()), (None, Some(error.as_str())));
    Ok(())
}

fn without_any_way() -> Result<(), Failed> {
    let mut weights = Weights::find_among("test-of-nothing", &[]);
    assert_eq!(*weights.mechanism(), Mechanism::Nothing);
    drop(Build::idle(&weights.begin(1)));
    weights.order(&[1]);
    weights.settle();
    weights.end(1);
    assert_eq!(weights.first_error(), None);
    Ok(())
}
