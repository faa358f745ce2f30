//! Real commands in real sandboxes: limits, floods, cancellation.

use kilnyard_process::{End, Limits, Log, LogLimits, Outcome, read_log, run};
use kilnyard_root::sandbox::Task;
use kilnyard_root::{Flushes, IdMap, Making, Sandbox, User, View, probe};
use libtest_mimic::{Arguments, Failed, Trial};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn main() {
    kilnyard_root::sandbox::become_sandbox_if_asked();
    let arguments = Arguments::from_args();
    let need = missing();
    let test = |name: &'static str, run: fn() -> Result<(), Failed>| {
        Trial::test(name, run).with_ignored_flag(need.is_some())
    };
    let tests = vec![
        test("an_exit_code_and_the_output_come_back", an_exit_code_and_the_output_come_back),
        test("a_silent_command_is_ended_and_named", a_silent_command_is_ended_and_named),
        test("a_command_that_takes_too_long_is_ended", a_command_that_takes_too_long_is_ended),
        test("a_flood_fills_no_disk_and_keeps_its_tail", a_flood_fills_no_disk_and_keeps_its_tail),
        test("a_cancelled_command_is_ended", a_cancelled_command_is_ended),
        test("a_log_that_cannot_be_written_is_the_machines_fault", a_log_that_cannot_be_written),
    ];
    let conclusion = libtest_mimic::run(&arguments, tests);
    if let Some(reason) = need {
        eprintln!("skipped: all tests of limits: {reason}");
    }
    conclusion.exit();
}

fn ids() -> Result<IdMap, String> {
    IdMap::of_this_user(&std::env::var("USER").unwrap_or_default()).map_err(|error| error.to_string())
}

/// Why these tests cannot run here.
fn missing() -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().ok()?;
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).ok()?;
    let tried = ids().and_then(|ids| {
        probe::try_root(folder.path(), &ids, &Making::default()).map_err(|error| error.to_string())
    });
    tried.err()
}

const LIMITS: Limits = Limits { wall_seconds_max: 60, idle_seconds_max: 60, memory_bytes_max: None };

fn sandbox(script: &str) -> Sandbox {
    Sandbox {
        folder: "/".into(),
        ids: ids().unwrap(),
        keeper: None,
        view: View::Machine,
        user: User::Root,
        task: Task::Program(["/bin/sh", "-c", script].map(str::to_owned).into()),
        directory: "/".into(),
        environment: vec![("PATH".into(), "/usr/bin:/bin".into())],
        is_interactive: false,
        has_network: false,
        flushes: Flushes::Discard,
    }
}

fn perform(script: &str, limits: Limits, log_limits: LogLimits, cancel: &AtomicBool) -> (Outcome, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("stage.log");
    let mut log = Log::create(&path, log_limits).unwrap();
    let outcome = run(&sandbox(script), &mut log, limits, cancel, &|_| {}, &mut |_| {});
    log.finish().unwrap();
    (outcome, read_log(&path).unwrap())
}

fn simple(script: &str, limits: Limits) -> (Outcome, String) {
    perform(script, limits, LogLimits::default(), &AtomicBool::new(false))
}

fn an_exit_code_and_the_output_come_back() -> Result<(), Failed> {
    let (outcome, log) = simple("echo out; echo err >&2; exit 3", LIMITS);
    assert_eq!(outcome.end, End::Exit(3));
    assert_eq!(log, "out\nerr\n");
    Ok(())
}

fn a_silent_command_is_ended_and_named() -> Result<(), Failed> {
    let (outcome, log) = simple("echo begun; sleep 5151; true", Limits { idle_seconds_max: 1, ..LIMITS });
    let End::IdleLimit(processes) = outcome.end else { return Err(format!("{:?}", outcome.end).into()) };
    assert!(processes.iter().any(|line| line == "sleep 5151 [waiting]"), "{processes:?}");
    assert_eq!(log, "begun\n");
    Ok(())
}

fn a_command_that_takes_too_long_is_ended() -> Result<(), Failed> {
    let script = "while :; do echo busy; sleep 0.1; done";
    let (outcome, log) = simple(script, Limits { wall_seconds_max: 1, ..LIMITS });
    assert!(matches!(outcome.end, End::WallLimit(_)), "{:?}", outcome.end);
    assert!(log.starts_with("busy\n"), "{log}");
    Ok(())
}

fn a_flood_fills_no_disk_and_keeps_its_tail() -> Result<(), Failed> {
    let limits = LogLimits { head_bytes_max: 1 << 20, tail_bytes_max: 4096 };
    let script = "echo first; head -c 10G /dev/zero | tr '\\0' x; echo; echo last";
    let (outcome, log) = perform(script, LIMITS, limits, &AtomicBool::new(false));
    assert_eq!(outcome.end, End::Exit(0));
    assert!(log.len() < (1 << 20) + 8192, "{} bytes", log.len());
    assert!(log.starts_with("first\n") && log.ends_with("x\nlast\n"));
    Ok(())
}

fn a_cancelled_command_is_ended() -> Result<(), Failed> {
    static CANCEL: AtomicBool = AtomicBool::new(false);
    std::thread::spawn(|| {
        std::thread::sleep(Duration::from_millis(300));
        CANCEL.store(true, Ordering::Relaxed);
    });
    let (outcome, _) = perform("sleep 5252", LIMITS, LogLimits::default(), &CANCEL);
    assert_eq!(outcome.end, End::Cancelled);
    Ok(())
}

fn a_log_that_cannot_be_written() -> Result<(), Failed> {
    let mut log = Log::create(Path::new("/dev/full"), LogLimits::default())?;
    let cancel = AtomicBool::new(false);
    let outcome = run(&sandbox("echo text"), &mut log, LIMITS, &cancel, &|_| {}, &mut |_| {});
    let End::LogFailed(error) = outcome.end else { return Err(format!("{:?}", outcome.end).into()) };
    assert!(error.contains("No space left"), "{error}");
    Ok(())
}
