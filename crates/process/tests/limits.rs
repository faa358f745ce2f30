//! Real commands in real sandboxes: limits, floods, cancellation, leftovers and resource use.

mod yard;

use kilnyard_process::{
    CommandOutcome, End, Limits, Log, LogLimits, Passed, Sample, Snapshot, Watched, Writing, read_log, run,
    run_watched,
};
use kilnyard_root::{ProcessStat, Sandbox, User};
use libtest_mimic::{Arguments, Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use yard::{LIMITS, Yard, missing, process_with, processes_with, user};

fn main() {
    kilnyard_root::sandbox::become_sandbox_if_asked();
    kilnyard_process::become_inspector_if_asked();
    let arguments = Arguments::from_args();
    let need = missing();
    let need_root = need.clone().or_else(user::need_root);
    let test = |name: &'static str, run: fn() -> Result<(), Failed>| {
        Trial::test(name, run).with_ignored_flag(need.is_some())
    };
    let tests = vec![
        test("an_exit_code_and_the_output_come_back", an_exit_code_and_the_output_come_back),
        test("a_sleeping_command_hangs_and_its_call_is_named", a_sleeping_command_hangs),
        test("a_busy_silent_command_spins", a_busy_silent_command_spins),
        test("work_between_samples_is_not_a_hang", work_between_samples_is_not_a_hang),
        test("a_command_that_only_starts_processes_is_silent", a_silent_command),
        test("a_printing_command_is_bounded_by_cpu_time", a_printing_command_is_bounded),
        test("a_command_that_takes_too_long_is_ended", a_command_that_takes_too_long_is_ended),
        test("a_command_with_too_many_processes_is_ended", too_many_processes),
        test("a_command_with_too_much_memory_is_ended", too_much_memory),
        test("the_kernel_bounds_memory_between_samples", the_kernel_bounds_memory),
        test("a_command_that_writes_too_much_is_ended", a_command_that_writes_too_much),
        test("deleted_open_files_count_as_written", deleted_open_files_count),
        test("no_process_opens_more_files_than_it_may", no_process_opens_more_files),
        test("network_attempts_are_counted", network_attempts_are_counted),
        test("a_storm_of_processes_is_blamed_on_its_parent", a_storm_is_named),
        test("a_rolling_forker_is_named_before_a_sleeper", a_rolling_forker_is_named),
        test("a_lock_wait_names_waiter_and_holder", a_lock_wait_names_both),
        test("a_hang_as_another_user_is_explained", a_hang_as_another_user),
        test("too_much_memory_as_another_user_is_ended", too_much_memory_as_another_user),
        Trial::test("an_ordinary_user_sees_as_much", an_ordinary_user_sees_as_much)
            .with_ignored_flag(need_root.is_some()),
        test("a_flood_fills_no_disk_and_keeps_its_tail", a_flood_fills_no_disk_and_keeps_its_tail),
        test("a_cancelled_command_is_ended", a_cancelled_command_is_ended),
        test("a_command_that_ignores_sigterm_is_killed", a_command_that_ignores_sigterm_is_killed),
        test("a_stopped_sandbox_is_killed_with_all_below_it", a_stopped_sandbox_is_killed),
        test("leftovers_are_named_with_their_ancestors", leftovers_are_named),
        test("resource_use_is_reported", resource_use_is_reported),
        test("a_log_that_cannot_be_written_is_the_machines_fault", a_log_that_cannot_be_written),
    ];
    let conclusion = libtest_mimic::run(&arguments, tests);
    if let Some(reason) = need {
        eprintln!("skipped: all tests of limits: {reason}");
    } else if let Some(reason) = need_root {
        eprintln!("skipped: an_ordinary_user_sees_as_much: {reason}");
    }
    conclusion.exit();
}

fn perform(
    script: &str,
    limits: Limits,
    log_limits: LogLimits,
    cancel: &AtomicBool,
    observe: &mut dyn FnMut(Sample),
) -> (CommandOutcome, String) {
    let yard = Yard::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stage.log");
    let mut log = Log::create(&path, log_limits).unwrap();
    let outcome = run(&yard.sandbox(script), &mut log, limits, cancel, None, observe);
    log.finish().unwrap();
    (outcome, read_log(&path).unwrap())
}

fn simple(script: &str, limits: Limits) -> (CommandOutcome, String) {
    perform(script, limits, LogLimits::default(), &AtomicBool::new(false), &mut |_| {})
}

/// The exceeded limit, and what the processes were doing then.
fn passed(outcome: &CommandOutcome) -> Result<(Passed, &Snapshot), Failed> {
    match &outcome.end {
        End::Limit(passed, snapshot) => Ok((*passed, snapshot)),
        other => Err(format!("{other:?}").into()),
    }
}

fn an_exit_code_and_the_output_come_back() -> Result<(), Failed> {
    let (outcome, log) = simple("echo out; echo err >&2; exit 3", LIMITS);
    assert_eq!(outcome.end, End::Exit(3));
    assert_eq!(log, "out\nerr\n");
    Ok(())
}

fn a_sleeping_command_hangs() -> Result<(), Failed> {
    let limits = Limits { hung_seconds_max: 1.0, ..LIMITS };
    let script = "echo begun; mkfifo /fifo; sleep 5151 & cat < /fifo 9<&0; true";
    let (outcome, log) = simple(script, limits);
    let (passed, snapshot) = passed(&outcome)?;
    assert_eq!(passed, Passed::Hung);
    let sleeper = snapshot.processes.iter().find(|process| process.line == "sleep 5151").unwrap();
    assert_eq!(sleeper.state, "waits");
    assert!(sleeper.waits.as_deref().is_some_and(|waits| waits.contains("nanosleep")), "{sleeper:?}");
    assert!(sleeper.depth == 1 && !sleeper.is_parent, "{snapshot:?}");
    // The shell waits for a writer.
    let reader = snapshot.processes.iter().find(|process| process.waits.as_deref() == Some("openat"));
    assert!(reader.is_some(), "{snapshot:?}");
    assert_eq!(snapshot.output, ["begun"]);
    let summary = snapshot.summary(passed);
    assert!(summary.starts_with("sleep 5151 (") && summary.contains("nanosleep"), "{summary}");
    assert_eq!(log, "begun\n");
    assert_eq!(processes_with("5151"), 0);
    Ok(())
}

fn a_busy_silent_command_spins() -> Result<(), Failed> {
    let limits = Limits { hung_seconds_max: 2.0, silent_seconds_max: 4.0, ..LIMITS };
    let (outcome, _) = simple("echo begun; while :; do :; done", limits);
    let (passed, snapshot) = passed(&outcome)?;
    assert_eq!(passed, Passed::Spinning, "{snapshot:?}");
    assert!(outcome.still_seconds_max < 2.0 && outcome.silent_seconds_max >= 4.0, "{outcome:?}");
    assert!(outcome.cpu_seconds > 0.5, "{outcome:?}");
    Ok(())
}

/// Simulates a machine that gives process 1 no core for a while.
fn work_between_samples_is_not_a_hang() -> Result<(), Failed> {
    let mut held = None;
    let mut hold = |_| {
        if let (None, Some(sleeper)) = (&held, process_with("6161")) {
            let shell = fs::read(format!("/proc/{}/stat", sleeper.parent)).unwrap();
            let first = Pid::from_raw(ProcessStat::parse(&shell).unwrap().parent).unwrap();
            kill_process(first, Signal::STOP).unwrap();
            held = Some(std::thread::spawn(move || {
                std::thread::sleep(Duration::from_secs(3));
                kill_process(first, Signal::CONT).unwrap();
            }));
        }
    };
    let limits = Limits { hung_seconds_max: 1.0, wall_seconds_max: 5.0, ..LIMITS };
    let script = "sleep 6161 & while :; do :; done";
    let (outcome, _) = perform(script, limits, LogLimits::default(), &AtomicBool::new(false), &mut hold);
    assert_eq!(passed(&outcome)?.0, Passed::Wall);
    held.unwrap().join().unwrap();
    Ok(())
}

fn a_silent_command() -> Result<(), Failed> {
    let limits = Limits { hung_seconds_max: 2.0, silent_seconds_max: 4.0, ..LIMITS };
    let (outcome, _) = simple("while :; do sleep 0.1; done", limits);
    assert_eq!(passed(&outcome)?.0, Passed::Silent);
    Ok(())
}

fn a_printing_command_is_bounded() -> Result<(), Failed> {
    let limits = Limits { cpu_seconds_max: Some(0.5), ..LIMITS };
    let (outcome, _) = simple("while :; do echo busy; done", limits);
    assert_eq!(passed(&outcome)?.0, Passed::Cpu);
    Ok(())
}

fn a_command_that_takes_too_long_is_ended() -> Result<(), Failed> {
    let script = "while :; do echo busy; sleep 0.1; done";
    let (outcome, log) = simple(script, Limits { wall_seconds_max: 1.0, ..LIMITS });
    assert_eq!(passed(&outcome)?.0, Passed::Wall);
    assert!(log.starts_with("busy\n"), "{log}");
    Ok(())
}

fn too_many_processes() -> Result<(), Failed> {
    let script = "for i in $(seq 95); do sleep 5353 & done; wait";
    let (outcome, _) = simple(script, Limits { processes_max: Some(100), ..LIMITS });
    let (passed, snapshot) = passed(&outcome)?;
    assert_eq!(passed, Passed::Processes);
    assert!(snapshot.processes.len() + snapshot.processes_more > 50, "{snapshot:?}");
    assert_eq!(processes_with("5353"), 0);
    Ok(())
}

fn too_much_memory() -> Result<(), Failed> {
    let script = "head -c 400M /dev/zero | tail -c 300M | sleep 5454";
    let (outcome, _) = simple(script, Limits { memory_bytes_max: Some(100 << 20), ..LIMITS });
    assert_eq!(passed(&outcome)?.0, Passed::Memory);
    assert!(outcome.memory_peak_bytes > 100 << 20, "{outcome:?}");
    Ok(())
}

fn the_kernel_bounds_memory() -> Result<(), Failed> {
    let folder = fs::read_to_string("/proc/self/cgroup")?;
    let is_writable = folder.lines().any(|line| line.contains(":memory:"));
    // It takes all memory at once, and has ended before a sample shows it.
    let script = "head -c 3000M /dev/zero | tail -c 2900M > /dev/null";
    let (outcome, _) = simple(script, Limits { memory_bytes_max: Some(64 << 20), ..LIMITS });
    assert_eq!(passed(&outcome)?.0, Passed::Memory, "{outcome:?}");
    if is_writable {
        assert!(outcome.memory_peak_bytes <= 96 << 20, "{outcome:?}");
    }
    Ok(())
}

/// Runs a command and watches what it writes to its root.
fn writing(script: &str, written_bytes_max: u64) -> CommandOutcome {
    let yard = Yard::new();
    let sandbox = yard.sandbox(script);
    let upper = sandbox.folder.join("root/upper");
    let writing = Writing { folders: vec![upper], ..Writing::default() };
    let limits = Limits { written_bytes_max: Some(written_bytes_max), wall_seconds_max: 60.0, ..LIMITS };
    let cancel = AtomicBool::new(false);
    let watched = Watched { limits, writing: &writing, cancel: &cancel, membership: None };
    run_watched(&sandbox, &mut std::io::sink(), watched, &mut |_| {})
}

fn a_command_that_writes_too_much() -> Result<(), Failed> {
    let script = "head -c 10M /dev/zero > /small; head -c 200M /dev/zero > /large; sleep 6363";
    let outcome = writing(script, 100 << 20);
    let (passed, _) = passed(&outcome)?;
    let Passed::Written { bytes } = passed else { return Err(format!("{passed:?}").into()) };
    assert!(bytes > 100 << 20, "{bytes}");
    assert_eq!(processes_with("6363"), 0);
    assert_eq!(writing("head -c 50M /dev/zero > /small; sleep 2.5", 100 << 20).end, End::Exit(0));
    Ok(())
}

fn deleted_open_files_count() -> Result<(), Failed> {
    let script = "exec 9> /hidden; rm /hidden; head -c 200M /dev/zero >&9; sleep 6464";
    let outcome = writing(script, 100 << 20);
    assert!(matches!(passed(&outcome)?.0, Passed::Written { .. }), "{outcome:?}");
    Ok(())
}

fn no_process_opens_more_files() -> Result<(), Failed> {
    let limits = Limits { open_files_max: Some(64), ..LIMITS };
    let (outcome, log) = simple("ulimit -n; ulimit -Hn; ulimit -n 65 || echo refused", limits);
    assert_eq!(outcome.end, End::Exit(0));
    assert!(log.starts_with("64\n64\n") && log.ends_with("refused\n"), "{log}");
    Ok(())
}

fn network_attempts_are_counted() -> Result<(), Failed> {
    let (outcome, log) = simple("bash -c 'exec 3<>/dev/tcp/192.0.2.1/80'; true", LIMITS);
    assert!(log.contains("Network is unreachable") && outcome.unreachable > 0, "{log} {outcome:?}");
    let (outcome, _) = simple("echo Network is unreachable; exit 1", LIMITS);
    assert_eq!(outcome.unreachable, 0);
    Ok(())
}

fn a_storm_is_named() -> Result<(), Failed> {
    // perl never waits for its children.
    let script = "perl -e 'while (1) { my $p = fork; exit if defined $p && !$p }' storm";
    let (outcome, _) = simple(script, Limits { processes_max: Some(200), ..LIMITS });
    let (passed, snapshot) = passed(&outcome)?;
    let summary = snapshot.summary(passed);
    assert!(
        summary.starts_with("perl -e while (1) { my $p = fork; exit if defined $p && !$p } storm ("),
        "{summary}"
    );
    assert!(summary.contains("of them zombies"), "{summary}");
    Ok(())
}

fn a_rolling_forker_is_named() -> Result<(), Failed> {
    let script = "sleep 6565 & bash -c 'while :; do sleep 0.3; done' rolling; :";
    let limits = Limits { hung_seconds_max: 3.0, silent_seconds_max: 4.0, ..LIMITS };
    let (outcome, _) = simple(script, limits);
    let (passed, snapshot) = passed(&outcome)?;
    assert_eq!(passed, Passed::Silent);
    let summary = snapshot.summary(passed);
    assert!(summary.starts_with("bash -c while :; do sleep 0.3; done rolling ("), "{summary}");
    assert!(summary.contains("sleep 6565 ("), "{summary}");
    Ok(())
}

fn a_lock_wait_names_both() -> Result<(), Failed> {
    let script = "flock /lock sleep 5555 & sleep 0.3; flock /lock true";
    let (outcome, _) = simple(script, Limits { hung_seconds_max: 1.0, ..LIMITS });
    let (_, snapshot) = passed(&outcome)?;
    let waits = snapshot.processes.iter().find(|process| process.line == "flock /lock true").unwrap();
    let waits = waits.waits.clone().unwrap_or_default();
    assert!(waits.starts_with("flock of /lock, for a lock held by flock /lock sleep 5555 ("), "{waits}");
    Ok(())
}

/// Runs a command as the builder of a root, with ids other than those of its root user.
fn as_another_user(script: &str, limits: Limits) -> CommandOutcome {
    let yard = Yard::new();
    let sandbox = Sandbox { user: User::Plain { user: 1000, group: 1000 }, ..yard.sandbox(script) };
    run(&sandbox, &mut std::io::sink(), limits, &AtomicBool::new(false), None, &mut |_| {})
}

fn a_hang_as_another_user() -> Result<(), Failed> {
    let outcome = as_another_user("sleep 5757 | cat; true", Limits { hung_seconds_max: 1.0, ..LIMITS });
    let (passed, snapshot) = passed(&outcome)?;
    assert_eq!(passed, Passed::Hung);
    let of = |line: &str| snapshot.processes.iter().find(|process| process.line == line).unwrap();
    let (sleeper, reader) = (of("sleep 5757"), of("cat"));
    assert!(sleeper.waits.as_deref().is_some_and(|waits| waits.contains("nanosleep")), "{snapshot:?}");
    let waits = reader.waits.clone().unwrap_or_default();
    assert!(waits.starts_with("read of pipe:["), "{snapshot:?}");
    assert!(waits.ends_with(&format!("], also open in {}", sleeper.number)), "{snapshot:?}");
    Ok(())
}

fn too_much_memory_as_another_user() -> Result<(), Failed> {
    let script = "head -c 400M /dev/zero | tail -c 300M | sleep 5858";
    let outcome = as_another_user(script, Limits { memory_bytes_max: Some(100 << 20), ..LIMITS });
    assert_eq!(passed(&outcome)?.0, Passed::Memory);
    Ok(())
}

fn an_ordinary_user_sees_as_much() -> Result<(), Failed> {
    let said = user::run_as(None, &["as_another_user"])?;
    assert!(said.contains("2 passed; 0 failed"), "{said}");
    Ok(())
}

fn a_flood_fills_no_disk_and_keeps_its_tail() -> Result<(), Failed> {
    let limits = LogLimits { head_bytes_max: 1 << 20, tail_bytes_max: 4096 };
    let script = "echo first; head -c 10G /dev/zero | tr '\\0' x; echo; echo last";
    let (outcome, log) = perform(script, LIMITS, limits, &AtomicBool::new(false), &mut |_| {});
    assert_eq!(outcome.end, End::Exit(0));
    assert!(log.len() < (1 << 20) + 8192, "{} bytes", log.len());
    assert!(log.starts_with("first\n") && log.ends_with("x\nlast\n"));
    Ok(())
}

/// Cancels a command as soon as it has this many processes.
fn cancelled_with(processes: u32, script: &str) -> (CommandOutcome, String) {
    let cancel = AtomicBool::new(false);
    let mut observe = |sample: Sample| {
        if sample.processes >= processes {
            cancel.store(true, Ordering::Relaxed);
        }
    };
    perform(script, LIMITS, LogLimits::default(), &cancel, &mut observe)
}

fn a_cancelled_command_is_ended() -> Result<(), Failed> {
    let (outcome, _) = cancelled_with(1, "sleep 5252");
    assert_eq!(outcome.end, End::Cancelled);
    assert_eq!(processes_with("5252"), 0);
    Ok(())
}

fn a_command_that_ignores_sigterm_is_killed() -> Result<(), Failed> {
    let script = "trap 'echo asked' TERM; setsid sh -c 'trap : TERM INT HUP; kill -STOP $$; sleep 5656' & \
                  while :; do sleep 0.1; done";
    let (outcome, log) = cancelled_with(3, script);
    assert_eq!(outcome.end, End::Cancelled);
    assert!(log.ends_with("asked\n"), "{log}");
    assert_eq!(processes_with("5656"), 0);
    Ok(())
}

fn a_stopped_sandbox_is_killed() -> Result<(), Failed> {
    let cancel = AtomicBool::new(false);
    let mut stop = |_| {
        if let Some(command) = process_with("5757") {
            // A stopped process 1 of the sandbox receives nothing.
            kill_process(Pid::from_raw(command.parent).unwrap(), Signal::STOP).unwrap();
            cancel.store(true, Ordering::Relaxed);
        }
    };
    let (outcome, _) = perform("exec sleep 5757", LIMITS, LogLimits::default(), &cancel, &mut stop);
    assert_eq!(outcome.end, End::Cancelled);
    assert_eq!(processes_with("5757"), 0);
    Ok(())
}

fn leftovers_are_named() -> Result<(), Failed> {
    let (outcome, _) = simple("cd /tmp; setsid sleep 5858 > /dev/null 2>&1 & sleep 0.5; echo done", LIMITS);
    assert_eq!(outcome.end, End::Exit(0));
    let [left] = &outcome.left_behind[..] else { return Err(format!("{:?}", outcome.left_behind).into()) };
    assert!(left.starts_with("sleep 5858 (") && left.contains(" in /tmp"), "{left}");
    assert!(left.contains("started by "), "{left}");
    assert_eq!(processes_with("5858"), 0);
    Ok(())
}

fn resource_use_is_reported() -> Result<(), Failed> {
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; true & true & wait; sleep 0.5; :";
    let (outcome, _) = simple(script, LIMITS);
    assert_eq!((outcome.end.clone(), outcome.created), (End::Exit(0), 4), "{outcome:?}");
    assert!(outcome.user_seconds > 0.0 && outcome.cpu_seconds >= outcome.user_seconds, "{outcome:?}");
    assert!(outcome.memory_peak_bytes > 0, "{outcome:?}");
    let has_stalls = Path::new("/proc/pressure/cpu").exists();
    assert_eq!(outcome.stalls.cpu_seconds.is_some(), has_stalls, "{outcome:?}");
    assert!(outcome.still_seconds_max > 0.2 && outcome.silent_seconds_max >= outcome.still_seconds_max);
    Ok(())
}

fn a_log_that_cannot_be_written() -> Result<(), Failed> {
    let mut log = Log::create(Path::new("/dev/full"), LogLimits::default())?;
    let cancel = AtomicBool::new(false);
    let yard = Yard::new();
    let outcome = run(&yard.sandbox("echo text"), &mut log, LIMITS, &cancel, None, &mut |_| {});
    let End::LogFailed(error) = outcome.end else { return Err(format!("{:?}", outcome.end).into()) };
    assert!(error.contains("No space left"), "{error}");
    Ok(())
}
