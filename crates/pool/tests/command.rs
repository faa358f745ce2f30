//! The driver `command` with a real program: the example of the documentation, and ones that misbehave.

use kilnyard_pool::{
    Action, CommandDriver, Driver, Event, Launch, Memory, Names, PilotName, PilotState, PoolError,
    Reconciler, Surroundings, Terms, perform,
};
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// The example of a program, with its folder of pilots.
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/local-pilots");

fn driver(program: &str, folder: &Path) -> CommandDriver {
    let mut surroundings = Surroundings::default();
    surroundings.environment.insert("PILOTS".to_owned(), folder.to_str().unwrap().to_owned());
    let program = vec![program.to_owned()];
    CommandDriver { program, prefix: "kilnyard-lab".to_owned(), seconds_max: 5, surroundings }
}

fn name(text: &str) -> PilotName {
    PilotName::parse(text).unwrap()
}

fn launch(script: &str) -> Launch {
    Launch {
        command: ["sh", "-c", script].map(str::to_owned).to_vec(),
        environment: BTreeMap::from([("SECRET".to_owned(), "it's 1".to_owned())]),
        files: BTreeMap::from([("token".to_owned(), b"\0\xffsecret".to_vec())]),
    }
}

fn wait(what: &str, mut is_done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !is_done() {
        assert!(Instant::now() < deadline, "not within 20 s: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn the_example_starts_lists_and_stops() {
    let folder = tempfile::tempdir().unwrap();
    let driver = driver(EXAMPLE, folder.path());
    let described = driver.describe().unwrap();
    assert_eq!(described.manager, "processes of this machine");
    assert_eq!(driver.list().unwrap().pilots, []);
    let (one, out) = (name("kilnyard-lab-f-g-1"), folder.path().join("out"));
    let script =
        format!("cat files/token > '{0}'; printf %s \"$SECRET\" >> '{0}'; sleep 1000", out.display());
    driver.start(&one, &launch(&script)).unwrap();
    driver.start(&name("other-1"), &launch("sleep 1000")).unwrap();
    wait("the pilot runs", || std::fs::read(&out).is_ok_and(|read| read == b"\0\xffsecretit's 1"));
    let token = folder.path().join("kilnyard-lab-f-g-1/files/token");
    assert_eq!(token.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let listing = driver.list().unwrap();
    let listed: Vec<_> =
        listing.pilots.iter().map(|one| (one.name.as_str(), one.state, one.copies)).collect();
    assert_eq!(listed, [("kilnyard-lab-f-g-1", PilotState::Running, 1)]);
    let shown = std::process::Command::new("ps").args(["-eo", "args"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&shown.stdout).contains("it's 1"));
    driver.stop(&one).unwrap();
    wait("the pilot is gone", || driver.list().unwrap().pilots.is_empty());
    driver.stop(&one).unwrap();
    driver.stop(&name("other-1")).unwrap();
}

#[test]
fn the_reconciler_drives_it() {
    let folder = tempfile::tempdir().unwrap();
    let driver = driver(EXAMPLE, folder.path());
    let mut terms = Terms::new(0, 3, "f");
    (terms.settle_seconds, terms.list_seconds, terms.idle_seconds) = (0.5, 0.5, 0.5);
    let names = Names::new("kilnyard-lab", "f", "g").unwrap();
    let mut reconciler = Reconciler::new(terms, names, Memory::Nothing, 0.0).unwrap();
    let began = Instant::now();
    let mut step = |event: Event| {
        let mut events = vec![event];
        let mut starts = 0;
        while let Some(event) = events.pop() {
            let mut actions = Vec::new();
            reconciler.apply(began.elapsed().as_secs_f64(), event, &mut actions);
            for action in actions {
                match &action {
                    Action::Drain(name, _) => events.push(Event::Drained(name.clone())),
                    Action::Start(_) => starts += 1,
                    Action::Stop(_) | Action::List => {}
                }
                events.extend(perform(&driver, &action, |_| Ok(launch("sleep 1000"))));
            }
        }
        (starts, reconciler.figures())
    };
    step(Event::Wanted { count: 5, reason: "of the test".to_owned() });
    let mut starts = 0;
    wait("three run", || {
        let (more, figures) = step(Event::Tick);
        starts += more;
        figures.coming == 3
    });
    assert_eq!(starts, 3);
    step(Event::Wanted { count: 0, reason: "of the test".to_owned() });
    wait("all are gone", || step(Event::Tick).1.all() == 0);
    assert_eq!(driver.list().unwrap().pilots, []);
}

/// A program with this text.
fn program(folder: &Path, text: &str) -> String {
    let path = folder.join("program");
    std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn wrong_answers_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let list = |text: &str| driver(&program(folder.path(), text), folder.path()).list();
    let one = r#"{"name":"kilnyard-lab-1","state":"queued","reason":"a\u001b\nb"}"#;
    let good = list(&format!(
        "cat <<'E'\n{{\"pilots\":[{one}, {one}, {{\"name\":\"x\\n\",\"state\":\"ended\"}}]}}\nE"
    ))
    .unwrap();
    assert_eq!((good.pilots.len(), good.pilots[0].copies), (1, 2));
    assert_eq!(good.pilots[0].reason.as_deref(), Some("a b"));
    for (text, words) in [
        ("true", "EOF"),
        ("echo '{\"pilots\":[]} x'", "trailing"),
        ("echo '{\"pilots\":[],\"more\":1}'", "unknown field"),
        ("echo '{\"pilots\":[{\"name\":\"kilnyard-lab-1\",\"state\":\"gone\"}]}'", "unknown variant"),
        ("echo '{\"pilots\":[{\"name\":\"kilnyard-lab-A\",\"state\":\"ended\"}]}'", "cannot be the name"),
        ("printf '\\377'", "expected value"),
        ("cat /dev/zero", "wrote more than"),
        ("echo '{\"pilots\":[]}'; echo 'half of it is missing' >&2; exit 1", "exit code 1): half of it"),
        ("sleep 100", "did not end within 5 s"),
    ] {
        let error = list(text).unwrap_err();
        assert!(error.line().contains(words), "{text}: {}", error.line());
    }
    let nested = format!("printf '{{\"pilots\":%s' '{}'", "[".repeat(100_000));
    assert!(matches!(list(&nested), Err(PoolError::Answer { .. })));
}

#[test]
fn a_launch_that_cannot_be_passed_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let driver = driver("false", folder.path());
    let mut launch = launch("true");
    launch.command.clear();
    assert!(matches!(driver.start(&name("a"), &launch), Err(PoolError::Invalid { .. })));
    launch.command = vec!["true".to_owned()];
    let error = driver.start(&name("a"), &launch).unwrap_err();
    assert_eq!(error.line(), "false failed (exit code 1)");
}
