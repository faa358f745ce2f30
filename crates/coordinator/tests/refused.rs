//! Workers that are refused, with the reason. The farm simulation covers the messages of admitted workers.

use kilnyard_coordinator::{Action, Attempts, Channel, Coordinator, Event};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::graph::Graph;
use kilnyard_model::host::Host;
use kilnyard_protocol::{Hello, Offer, Opened, Session, ToCoordinator, ToWorker, VERSION, Versions};
use kilnyard_schedule::{Limits, Pressure, Scheduler};
use std::sync::Arc;

fn coordinator() -> Coordinator {
    let scheduler =
        Scheduler::without_machines(Arc::new(Graph::new()), Vec::new(), Limits::default()).unwrap();
    Coordinator::new(1, Vec::new(), scheduler, 1, Attempts::new([1; Attempts::SECRET_BYTES]))
        .with_required(vec!["family:made-up".to_owned()])
}

fn hello() -> Hello {
    Hello {
        worker: "one".to_owned(),
        process: "first".to_owned(),
        versions: Versions::OURS,
        cores: 2,
        speed: 1.0,
        memory_bytes: None,
        disk_bytes: None,
        host: None,
        warm: Vec::new(),
        kept: Vec::new(),
    }
}

/// The answers on channel 5.
fn answers(coordinator: &mut Coordinator, body: ToCoordinator, capabilities: &[&str]) -> Vec<ToWorker> {
    let capabilities = capabilities.iter().map(|text| (*text).to_owned()).collect();
    let message = Box::new(Opened { version: VERSION, capabilities, body });
    let mut actions = Vec::new();
    coordinator.apply(1.0, Event::Received { from: Channel(5), message }, &mut actions);
    let answer = |action| match action {
        Action::Send { to: Channel(5), message } => Some(message),
        _ => None,
    };
    actions.into_iter().filter_map(answer).collect()
}

fn reason(hello: Hello, capabilities: &[&str]) -> String {
    let answers = answers(&mut coordinator(), ToCoordinator::Hello(hello), capabilities);
    match &answers[..] {
        [ToWorker::Refused { reason, .. }] => reason.clone(),
        other => panic!("{other:?}"),
    }
}

const ALL: &[&str] = &["of a later program", "family:made-up"];

#[test]
fn workers_that_cannot_take_part_are_refused_with_a_reason() {
    let later = Versions { oldest: VERSION + 1, newest: VERSION + 2 };
    assert!(reason(Hello { versions: later, ..hello() }, ALL).contains("install the same release"));
    assert!(reason(hello(), &["family:other"]).contains("family:made-up"));
    for bad in [
        Hello { cores: 0, ..hello() },
        Hello { cores: u32::MAX, ..hello() },
        Hello { speed: f64::NAN, ..hello() },
        Hello { speed: 0.0, ..hello() },
    ] {
        assert!(reason(bad, ALL).contains("cannot build"));
    }
    for bad in [Hello { worker: String::new(), ..hello() }, Hello { process: "p".repeat(256), ..hello() }] {
        assert!(reason(bad, ALL).contains("1 to 255 bytes"));
    }
    let host = Some(Host { kernel: "x".repeat(256), cpu: String::new() });
    assert!(reason(Hello { host, ..hello() }, ALL).contains("at most 255 bytes"));
}

#[test]
fn a_newer_program_uses_this_version() {
    let next = Hello { versions: Versions { oldest: VERSION, newest: VERSION + 1 }, ..hello() };
    let answers = answers(&mut coordinator(), ToCoordinator::Hello(next), ALL);
    assert!(
        matches!(&answers[..], [ToWorker::Welcome(welcome)] if welcome.version == VERSION),
        "{answers:?}"
    );
}

#[test]
fn a_worker_is_seated_by_its_first_message_and_replaced_by_a_new_process() {
    let coordinator = &mut coordinator();
    let session = |answers: Vec<ToWorker>| match &answers[..] {
        [ToWorker::Welcome(welcome)] => welcome.session,
        other => panic!("{other:?}"),
    };
    let offer = |session, number| {
        let (held, pressure, slots_free, takes_more) = (Vec::new(), Pressure::Low, 1, true);
        ToCoordinator::Offer(Offer { session, number, held, slots_free, pressure, takes_more, cores: None })
    };
    let process = |name: &str| ToCoordinator::Hello(Hello { process: name.to_owned(), ..hello() });
    let first = session(answers(coordinator, process("first"), ALL));
    assert_eq!(session(answers(coordinator, process("first"), ALL)), first, "a repeat");
    assert_eq!(coordinator.slots(), 0);
    assert!(matches!(answers(coordinator, offer(first, 1), ALL)[..], [ToWorker::Ranks { offer: 1, .. }]));
    assert_eq!(coordinator.slots(), 3);
    assert!(answers(coordinator, offer(first, 1), ALL).is_empty(), "a repeat gets no answer");
    // A late hello of an exited process changes nothing, since no further message follows.
    let late = session(answers(coordinator, process("zeroth"), ALL));
    assert!(matches!(answers(coordinator, offer(first, 2), ALL)[..], [ToWorker::Ranks { .. }]));
    let second = session(answers(coordinator, process("second"), ALL));
    assert!(matches!(answers(coordinator, offer(second, 1), ALL)[..], [ToWorker::Ranks { .. }]));
    for over in [first, late, Session::from(Attempt::from_bytes([0; 16]))] {
        assert_eq!(answers(coordinator, offer(over, 9), ALL), [ToWorker::Rejoin { session: over }]);
    }
    let refused = answers(coordinator, process("first"), ALL);
    assert!(
        matches!(&refused[..], [ToWorker::Refused { reason, .. }] if reason.contains("needs its own name"))
    );
    assert_eq!(answers(coordinator, ToCoordinator::Leave { session: second }, ALL), []);
    assert_eq!(coordinator.slots(), 0);
}
