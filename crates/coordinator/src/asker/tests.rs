use super::*;
use kilnyard_protocol::{BuildResult, Held};
use kilnyard_schedule::Pressure;

fn task() -> Task {
    Task::Run(Arc::new(BuildOrder::empty("a/b")))
}

fn check() -> Task {
    Task::Check(Arc::new(vec![Sha256Hex::parse(&"a".repeat(64)).unwrap()]))
}

/// An asker with a farm of workers named by their channels.
struct Farm {
    asker: Asker,
    now_seconds: f64,
    /// Of all workers.
    capabilities: Vec<String>,
}

impl Farm {
    fn new(standings: &[(&str, bool, &[Role])]) -> Farm {
        let standing = |(name, is_trusted, roles): &(&str, bool, &[Role])| {
            let (is_trusted, roles) = (*is_trusted, roles.iter().copied().collect());
            ((*name).to_owned(), Standing { is_held: false, pool: "default".to_owned(), is_trusted, roles })
        };
        let asker = Asker::new(Attempts::new([1; Attempts::SECRET_BYTES]), Vec::new());
        let capabilities = vec![CHECKS.to_owned()];
        let mut farm = Farm { asker, now_seconds: 0.0, capabilities };
        farm.apply(AskerEvent::Workers(standings.iter().map(standing).collect()));
        farm
    }

    fn apply(&mut self, event: AskerEvent) -> Vec<AskerAction> {
        let mut actions = Vec::new();
        self.asker.apply(self.now_seconds, event, &mut actions);
        actions
    }

    fn say(&mut self, from: u64, body: ToCoordinator) -> Vec<AskerAction> {
        let capabilities = self.capabilities.clone();
        let message = Box::new(Opened { version: 1, capabilities, body });
        self.apply(AskerEvent::Received { from: Channel(from), message })
    }

    fn hello(&mut self, from: u64, worker: &str, process: &str) -> Session {
        let hello = Hello {
            worker: worker.to_owned(),
            process: process.to_owned(),
            versions: Versions::OURS,
            cores: 1,
            speed: 1.0,
            memory_bytes: None,
            disk_bytes: None,
            host: None,
            warm: Vec::new(),
            kept: Vec::new(),
        };
        let actions = self.say(from, ToCoordinator::Hello(hello));
        let welcome = actions.iter().find_map(|action| match action {
            AskerAction::Send(_, message) => match &**message {
                ToWorker::Welcome(welcome) => Some(welcome.session),
                _ => None,
            },
            _ => None,
        });
        welcome.unwrap()
    }

    fn offer(&mut self, from: u64, session: Session, number: u64, held: &[Attempt]) -> Vec<AskerAction> {
        let held = held.iter().map(|attempt| Held { attempt: *attempt, phase: BuildPhase::Building });
        let pressure = Pressure::Low;
        let (held, takes_more) = (held.collect(), true);
        self.say(
            from,
            ToCoordinator::Offer(Offer {
                session,
                number,
                held,
                slots_free: 1,
                pressure,
                takes_more,
                cores: None,
            }),
        )
    }
}

fn granted(actions: &[AskerAction]) -> Vec<(u64, Attempt)> {
    let of = |action: &AskerAction| match action {
        AskerAction::Grant(to, message) => match &**message {
            ToWorker::Grant { lease, .. } => Some((to.0, lease.attempt)),
            _ => None,
        },
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

fn result(session: Session, attempt: Attempt) -> ToCoordinator {
    let result = BuildResult { build: 1, outcome: Ok(Vec::new()), is_reproducible: None, provenance: None };
    ToCoordinator::Result { session, attempt, result: Box::new(result) }
}

#[test]
fn only_trusted_workers_with_the_role_are_asked() {
    let mut farm = Farm::new(&[
        ("scanner", true, &[Role::Scan]),
        ("builder", true, &[Role::Build]),
        ("stranger", false, &Role::ALL),
    ]);
    for (channel, worker) in [(1, "builder"), (2, "stranger"), (3, "unknown")] {
        farm.hello(channel, worker, "p");
    }
    assert_eq!(farm.asker.slots(Role::Scan), 0);
    assert_eq!(farm.apply(AskerEvent::Ask(1, task())), [AskerAction::Unanswered(1)]);
    farm.hello(4, "scanner", "p");
    assert_eq!(farm.asker.slots(Role::Scan), 1);
    let grants = granted(&farm.apply(AskerEvent::Ask(2, task())));
    assert_eq!(grants.len(), 1);
    assert!(granted(&farm.apply(AskerEvent::Ask(3, task()))).is_empty(), "it has one slot");
    // It never answers.
    farm.now_seconds = WALL_SECONDS_MAX as f64 + FURTHER_SECONDS + 1.0;
    farm.asker.seats.forgive(farm.now_seconds);
    let late = farm.apply(AskerEvent::Tick);
    assert!(late.contains(&AskerAction::Unanswered(2)) && granted(&late).len() == 1, "{late:?}");
}

#[test]
fn what_a_worker_loses_is_asked_again_and_answered_once() {
    let mut farm = Farm::new(&[("one", true, &[Role::Scan]), ("two", true, &[Role::Scan])]);
    let first = farm.hello(1, "one", "p");
    let grants = granted(&farm.apply(AskerEvent::Ask(7, task())));
    assert_eq!((grants.len(), grants[0].0), (1, 1));
    // Another worker cannot answer for it.
    let second = farm.hello(2, "two", "p");
    let lie = farm.say(2, result(second, grants[0].1));
    assert!(!lie.iter().any(|action| matches!(action, AskerAction::Answered(..))));
    // A lost lease is repeated, with another id.
    farm.now_seconds = REGRANT_SECONDS;
    let again = granted(&farm.offer(1, first, 1, &[]));
    assert_eq!(again.len(), 1);
    assert_ne!(again[0].1, grants[0].1);
    // Its worker is silent: the other gets it.
    farm.now_seconds += LEASE_SECONDS + 1.0;
    farm.offer(2, second, 1, &[]);
    let moved = granted(&farm.apply(AskerEvent::Tick));
    let attempt = match &moved[..] {
        [(2, attempt)] => *attempt,
        _ => farm.asker.asked.keys().next().copied().unwrap(),
    };
    let answered = |actions: &[AskerAction]| {
        actions.iter().filter(|action| matches!(action, AskerAction::Answered(7, _, Ok(_)))).count()
    };
    assert_eq!(answered(&farm.say(2, result(second, attempt))), 1);
    assert_eq!(answered(&farm.say(2, result(second, attempt))), 0);
    // The last one leaves, with what it has.
    farm.apply(AskerEvent::Ask(8, task()));
    let left = farm.say(2, ToCoordinator::Leave { session: second });
    assert!(left.contains(&AskerAction::Unanswered(8)), "{left:?}");
    // The first comes back: its session is over.
    let late = farm.say(1, result(first, again[0].1));
    let is_rejoin = |action: &AskerAction| matches!(action, AskerAction::Send(_, message) if matches!(**message, ToWorker::Rejoin { .. }));
    assert!(late.iter().all(is_rejoin) && late.len() == 1, "{late:?}");
}

#[test]
fn a_new_process_and_builds_of_a_run_are_handled() {
    let mut farm = Farm::new(&[("one", true, &[Role::Scan])]);
    let session = farm.hello(1, "one", "p");
    let grants = granted(&farm.apply(AskerEvent::Ask(7, task())));
    assert_eq!(grants.len(), 1);
    let of_run = Attempt::from_bytes([9; 16]);
    let actions = farm.offer(1, session, 1, &[grants[0].1, of_run]);
    let ended = |action: &AskerAction| match action {
        AskerAction::Send(_, message) => match &**message {
            ToWorker::Superseded { attempt, .. } => Some(*attempt),
            _ => None,
        },
        _ => None,
    };
    assert_eq!(actions.iter().filter_map(ended).collect::<Vec<_>>(), [of_run]);
    assert_ne!(farm.hello(1, "one", "q"), session);
    assert_eq!(farm.asker.asked.len(), 1, "the new process gets it");
}

/// The artifacts that grants name.
fn to_check(actions: &[AskerAction]) -> Vec<(u64, usize)> {
    let of = |action: &AskerAction| match action {
        AskerAction::Grant(to, message) => match &**message {
            ToWorker::Grant { lease, .. } => Some((to.0, lease.to_check.len())),
            _ => None,
        },
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

#[test]
fn artifacts_are_checked_by_trusted_workers_with_the_role() {
    let mut farm = Farm::new(&[
        ("scanner", true, &[Role::Scan]),
        ("stranger", false, &Role::ALL),
        ("checker", true, &[Role::Check]),
    ]);
    farm.hello(1, "scanner", "p");
    farm.hello(2, "stranger", "p");
    assert_eq!(farm.asker.slots(Role::Check), 0);
    assert_eq!(farm.apply(AskerEvent::Ask(1, check())), [AskerAction::Unanswered(1)]);
    farm.hello(3, "checker", "p");
    assert_eq!(to_check(&farm.apply(AskerEvent::Ask(2, check()))), [(3, 1)]);
    // One role waits for no other.
    assert!(to_check(&farm.apply(AskerEvent::Ask(3, check()))).is_empty());
    assert_eq!(to_check(&farm.apply(AskerEvent::Ask(4, task()))), [(1, 0)]);
}

#[test]
fn a_program_that_cannot_check_artifacts_gets_commands_only() {
    let mut farm = Farm::new(&[("old", true, &Role::ALL)]);
    farm.capabilities = Vec::new();
    farm.hello(1, "old", "p");
    assert_eq!((farm.asker.slots(Role::Scan), farm.asker.slots(Role::Check)), (1, 0));
    assert_eq!(farm.apply(AskerEvent::Ask(1, check())), [AskerAction::Unanswered(1)]);
    // The same machine, with a newer program.
    farm.capabilities = vec![CHECKS.to_owned()];
    farm.hello(1, "old", "q");
    assert_eq!(to_check(&farm.apply(AskerEvent::Ask(2, check()))), [(1, 1)]);
}
