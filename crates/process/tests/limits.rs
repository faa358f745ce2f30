//! Real commands in real sandboxes: limits, floods, cancellation, who is left, what was used.

mod yard;

use kilnyard_process::{
    End, Limits, Log, LogLimits, Outcome, Passed, Portrait, Sample, Watched, Writing, read_log, run,
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
    kilnyard_process::become_onlooker_if_asked();
    let arguments = Arguments::from_args();
    let need = missing();
    let need_root = need.clone().or_else(user::need_root);
    let test = |name: &'static str, run: fn() -> Result<(), Failed>| {
        Trial::test(name, run).with_ignored_flag(need.is_some())
    };
    let tests = vec![
        test("an_exit_code_and_the_output_come_back", an_exit_code_and_the_output_come_back),
        test("who_sleeps_hangs_and_it_is_told_on_what", who_sleeps_hangs_and_it_is_told_on_what),
        test("who_works_alone_at_one_thing_spins", who_works_alone_at_one_thing_spins),
        test("who_works_while_nobody_looks_does_not_hang", who_works_while_nobody_looks),
        test("who_begins_processes_and_prints_nothing_is_silent", who_is_silent),
        test("who_prints_is_bounded_by_cpu_time", who_prints_is_bounded_by_cpu_time),
        test("a_command_that_takes_too_long_is_ended", a_command_that_takes_too_long_is_ended),
        test("who_begins_too_many_processes_is_ended", who_begins_too_many_processes_is_ended),
        test("who_eats_memory_is_ended", who_eats_memory_is_ended),
        test("the_kernel_bounds_memory_between_two_looks", the_kernel_bounds_memory),
        test("who_writes_too_much_is_ended", who_writes_too_much_is_ended),
        test("what_is_deleted_and_open_counts_as_written", what_is_deleted_counts),
        test("no_process_opens_more_files_than_it_may", no_process_opens_more_files),
        test("what_asks_for_the_network_is_counted", what_asks_for_the_network),
        test("a_storm_of_processes_is_named_by_who_began_them", a_storm_is_named),
        test("a_rolling_forker_is_named_before_a_sleeper", a_rolling_forker_is_named),
        test("who_waits_for_a_lock_and_who_has_it_are_told", who_waits_for_a_lock),
        test("who_hangs_as_another_user_is_told_on_what", who_hangs_as_another_user),
        test("who_eats_memory_as_another_user_is_ended", who_eats_memory_as_another_user),
        Trial::test("an_ordinary_user_sees_as_much", an_ordinary_user_sees_as_much)
            .with_ignored_flag(need_root.is_some()),
        test("a_flood_fills_no_disk_and_keeps_its_tail", a_flood_fills_no_disk_and_keeps_its_tail),
        test("a_cancelled_command_is_ended", a_cancelled_command_is_ended),
        test("who_ignores_being_asked_ends_all_the_same", who_ignores_being_asked_ends_all_the_same),
        test("a_stopped_sandbox_is_killed_with_all_below_it", a_stopped_sandbox_is_killed),
        test("who_is_left_behind_is_named_with_who_started_it", who_is_left_behind_is_named),
        test("what_was_used_is_told", what_was_used_is_told),
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
) -> (Outcome, String) {
    let yard = Yard::new();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stage.log");
    let mut log = Log::create(&path, log_limits).unwrap();
    let outcome = run(&yard.sandbox(script), &mut log, limits, cancel, None, observe);
    log.finish().unwrap();
    (outcome, read_log(&path).unwrap())
}

fn simple(script: &str, limits: Limits) -> (Outcome, String) {
    perform(script, limits, LogLimits::default(), &AtomicBool::new(false), &mut |_| {})
}

/// Which limit was passed, and what was going on then.
fn passed(outcome: &Outcome) -> Result<(Passed, &Portrait), Failed> {
    match &outcome.end {
        End::Limit(passed, portrait) => Ok((*passed, portrait)),
        other => Err(format!("{other:?}").into()),
    }
}

fn an_exit_code_and_the_output_come_back() -> Result<(), Failed> {
    let (outcome, log) = simple("echo out; echo err >&2; exit 3", LIMITS);
    assert_eq!(outcome.end, End::Exit(3));
    assert_eq!(log, "out\nerr\n");
    Ok(())
}

fn who_sleeps_hangs_and_it_is_told_on_what() -> Result<(), Failed> {
    let limits = Limits { hung_seconds_max: 1.0, ..LIMITS };
    let script = "echo begun; mkfifo /fifo; sleep 5151 & cat < /fifo 9<&0; true";
    let (outcome, log) = simple(script, limits);
    let (passed, portrait) = passed(&outcome)?;
    assert_eq!(passed, Passed::Hung);
    let sleeper = portrait.processes.iter().find(|process| process.line == "sleep 5151").unwrap();
    assert_eq!(sleeper.state, "waits");
    assert!(sleeper.waits.as_deref().is_some_and(|waits| waits.contains("nanosleep")), "{sleeper:?}");
    assert!(sleeper.depth == 1 && !sleeper.is_parent, "{portrait:?}");
    // The shell waits until somebody writes.
    let reader = portrait.processes.iter().find(|process| process.waits.as_deref() == Some("openat"));
    assert!(reader.is_some(), "{portrait:?}");
    assert_eq!(portrait.output, ["begun"]);
    let summary = portrait.summary(passed);
    assert!(summary.starts_with("sleep 5151 (") && summary.contains("nanosleep"), "{summary}");
    assert_eq!(log, "begun\n");
    assert_eq!(processes_with("5151"), 0);
    Ok(())
}

fn who_works_alone_at_one_thing_spins() -> Result<(), Failed> {
    let limits = Limits { hung_seconds_max: 2.0, silent_seconds_max: 4.0, ..LIMITS };
    let (outcome, _) = simple("echo begun; while :; do :; done", limits);
    let (passed, portrait) = passed(&outcome)?;
    assert_eq!(passed, Passed::Spinning, "{portrait:?}");
    assert!(outcome.still_seconds_max < 2.0 && outcome.silent_seconds_max >= 4.0, "{outcome:?}");
    assert!(outcome.cpu_seconds > 0.5, "{outcome:?}");
    Ok(())
}

/// As on a machine that gives process 1 no core for a while.
fn who_works_while_nobody_looks() -> Result<(), Failed> {
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

fn who_is_silent() -> Result<(), Failed> {
    let limits = Limits { hung_seconds_max: 2.0, silent_seconds_max: 4.0, ..LIMITS };
    let (outcome, _) = simple("while :; do sleep 0.1; done", limits);
    assert_eq!(passed(&outcome)?.0, Passed::Silent);
    Ok(())
}

fn who_prints_is_bounded_by_cpu_time() -> Result<(), Failed> {
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

fn who_begins_too_many_processes_is_ended() -> Result<(), Failed> {
    let script = "for i in $(seq 95); do sleep 5353 & done; wait";
    let (outcome, _) = simple(script, Limits { processes_max: Some(100), ..LIMITS });
    let (passed, portrait) = passed(&outcome)?;
    assert_eq!(passed, Passed::Processes);
    assert!(portrait.processes.len() + portrait.processes_more > 50, "{portrait:?}");
    assert_eq!(processes_with("5353"), 0);
    Ok(())
}

fn who_eats_memory_is_ended() -> Result<(), Failed> {
    let script = "head -c 400M /dev/zero | tail -c 300M | sleep 5454";
    let (outcome, _) = simple(script, Limits { memory_bytes_max: Some(100 << 20), ..LIMITS });
    assert_eq!(passed(&outcome)?.0, Passed::Memory);
    assert!(outcome.memory_peak_bytes > 100 << 20, "{outcome:?}");
    Ok(())
}

fn the_kernel_bounds_memory() -> Result<(), Failed> {
    let folder = fs::read_to_string("/proc/self/cgroup")?;
    let is_writable = folder.lines().any(|line| line.contains(":memory:"));
    // It takes all of it at once, and has ended before a sample shows it.
    let script = "head -c 3000M /dev/zero | tail -c 2900M > /dev/null";
    let (outcome, _) = simple(script, Limits { memory_bytes_max: Some(64 << 20), ..LIMITS });
    assert_eq!(passed(&outcome)?.0, Passed::Memory, "{outcome:?}");
    if is_writable {
        assert!(outcome.memory_peak_bytes <= 96 << 20, "{outcome:?}");
    }
    Ok(())
}

/// Runs a command whose root is watched for what is written to it.
fn writing(script: &str, written_bytes_max: u64) -> Outcome {
    let yard = Yard::new();
    let sandbox = yard.sandbox(script);
    let upper = sandbox.folder.join("root/upper");
    let writing = Writing { folders: vec![upper], ..Writing::default() };
    let limits = Limits { written_bytes_max: Some(written_bytes_max), wall_seconds_max: 60.0, ..LIMITS };
    let cancel = AtomicBool::new(false);
    let watched = Watched { limits, writing: &writing, cancel: &cancel, membership: None };
    run_watched(&sandbox, &mut std::io::sink(), watched, &mut |_| {})
}

fn who_writes_too_much_is_ended() -> Result<(), Failed> {
    let script = "head -c 10M /dev/zero > /small; head -c 200M /dev/zero > /large; sleep 6363";
    let outcome = writing(script, 100 << 20);
    let (passed, _) = passed(&outcome)?;
    let Passed::Written { bytes } = passed else { return Err(format!("{passed:?}").into()) };
    assert!(bytes > 100 << 20, "{bytes}");
    assert_eq!(processes_with("6363"), 0);
    assert_eq!(writing("head -c 50M /dev/zero > /small; sleep 2.5", 100 << 20).end, End::Exit(0));
    Ok(())
}

fn what_is_deleted_counts() -> Result<(), Failed> {
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

fn what_asks_for_the_network() -> Result<(), Failed> {
    let (outcome, log) = simple("bash -c 'exec 3<>/dev/tcp/192.0.2.1/80'; true", LIMITS);
    assert!(log.contains("Network is unreachable") && outcome.unreachable > 0, "{log} {outcome:?}");
    let (outcome, _) = simple("echo Network is unreachable; exit 1", LIMITS);
    assert_eq!(outcome.unreachable, 0);
    Ok(())
}

fn a_storm_is_named() -> Result<(), Failed> {
    // perl waits for none of them.
    let script = "perl -e 'while (1) { my $p = fork; exit if defined $p && !$p }' storm";
    let (outcome, _) = simple(script, Limits { processes_max: Some(200), ..LIMITS });
    let (passed, portrait) = passed(&outcome)?;
    let summary = portrait.summary(passed);
    assert!(
        summary.starts_with("perl -e while (1) { my $p = fork; exit if defined $p && !$p } storm ("),
        "{summary}"
    );
    assert!(summary.contains("of them ended and not waited for"), "{summary}");
    Ok(())
}

fn a_rolling_forker_is_named() -> Result<(), Failed> {
    let script = "sleep 6565 & bash -c 'while :; do sleep 0.3; done' rolling; :";
    let limits = Limits { hung_seconds_max: 3.0, silent_seconds_max: 4.0, ..LIMITS };
    let (outcome, _) = simple(script, limits);
    let (passed, portrait) = passed(&outcome)?;
    assert_eq!(passed, Passed::Silent);
    let summary = portrait.summary(passed);
    assert!(summary.starts_with("bash -c while :; do sleep 0.3; done rolling ("), "{summary}");
    assert!(summary.contains("sleep 6565 ("), "{summary}");
    Ok(())
}

fn who_waits_for_a_lock() -> Result<(), Failed> {
    let script = "flock /lock sleep 5555 & sleep 0.3; flock /lock true";
    let (outcome, _) = simple(script, Limits { hung_seconds_max: 1.0, ..LIMITS });
    let (_, portrait) = passed(&outcome)?;
    let waits = portrait.processes.iter().find(|process| process.line == "flock /lock true").unwrap();
    let waits = waits.waits.clone().unwrap_or_default();
    assert!(waits.starts_with("flock of /lock, for a lock that flock /lock sleep 5555 ("), "{waits}");
    Ok(())
}

/// Runs a command as the builder of a root, who has other ids than its root.
fn as_another_user(script: &str, limits: Limits) -> Outcome {
    let yard = Yard::new();
    let sandbox = Sandbox { user: User::Plain { user: 1000, group: 1000 }, ..yard.sandbox(script) };
    run(&sandbox, &mut std::io::sink(), limits, &AtomicBool::new(false), None, &mut |_| {})
}

fn who_hangs_as_another_user() -> Result<(), Failed> {
    let outcome = as_another_user("sleep 5757 | cat; true", Limits { hung_seconds_max: 1.0, ..LIMITS });
    let (passed, portrait) = passed(&outcome)?;
    assert_eq!(passed, Passed::Hung);
    let of = |line: &str| portrait.processes.iter().find(|process| process.line == line).unwrap();
    let (sleeper, reader) = (of("sleep 5757"), of("cat"));
    assert!(sleeper.waits.as_deref().is_some_and(|waits| waits.contains("nanosleep")), "{portrait:?}");
    let waits = reader.waits.clone().unwrap_or_default();
    assert!(waits.starts_with("read of pipe:["), "{portrait:?}");
    assert!(waits.ends_with(&format!("], which {} has too", sleeper.number)), "{portrait:?}");
    Ok(())
}

fn who_eats_memory_as_another_user() -> Result<(), Failed> {
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

/// Cancels a command as soon as it has so many processes.
fn cancelled_with(processes: u32, script: &str) -> (Outcome, String) {
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

fn who_ignores_being_asked_ends_all_the_same() -> Result<(), Failed> {
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
            // Process 1 of the sandbox hears of nothing while it is stopped.
            kill_process(Pid::from_raw(command.parent).unwrap(), Signal::STOP).unwrap();
            cancel.store(true, Ordering::Relaxed);
        }
    };
    let (outcome, _) = perform("exec sleep 5757", LIMITS, LogLimits::default(), &cancel, &mut stop);
    assert_eq!(outcome.end, End::Cancelled);
    assert_eq!(processes_with("5757"), 0);
    Ok(())
}

fn who_is_left_behind_is_named() -> Result<(), Failed> {
    let (outcome, _) = simple("cd /tmp; setsid sleep 5858 > /dev/null 2>&1 & sleep 0.5; echo done", LIMITS);
    assert_eq!(outcome.end, End::Exit(0));
    let [left] = &outcome.left_behind[..] else { return Err(format!("{:?}", outcome.left_behind).into()) };
    assert!(left.starts_with("sleep 5858 (") && left.contains(" in /tmp"), "{left}");
    assert!(left.contains("started by "), "{left}");
    assert_eq!(processes_with("5858"), 0);
    Ok(())
}

fn what_was_used_is_told() -> Result<(), Failed> {
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
