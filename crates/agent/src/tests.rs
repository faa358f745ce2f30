//! Scripted messages and events. The coordinator's farm simulation covers a network that loses and repeats them.

use super::*;
use kilnyard_model::order::{BuildOrder, FamilyOrder, Key, RootOrder, Stage};
use kilnyard_model::result::{Failure, FailureKind};
use kilnyard_protocol::{Ranked, Versions};
use kilnyard_schedule::Files;

fn attempt(number: u8) -> Attempt {
    Attempt::from_bytes([number; 16])
}

fn session(number: u8) -> Session {
    Session::from(Attempt::from_bytes([number + 100; 16]))
}

fn ranked(number: u8) -> Ranked {
    Ranked { attempt: attempt(number), memory_bytes: 0, memory_per_core_bytes: 0 }
}

fn lease(number: u8, rank_seconds: f64) -> Box<Lease> {
    let root = RootOrder {
        layers: Vec::new(),
        inputs: Vec::new(),
        texts: Vec::new(),
        folders: Vec::new(),
        sealed: Vec::new(),
        open: Vec::new(),
        depends: Vec::new(),
        patches: Vec::new(),
    };
    let order = BuildOrder {
        package: format!("p{number}"),
        version: "1".to_owned(),
        family: FamilyOrder { name: "made up".to_owned(), facts: [].into() },
        key: Key { digest: String::new(), lines: Vec::new() },
        root,
        work: None,
        fetch: None,
        stages: Vec::new(),
        clients: Vec::new(),
        fakeroots: Vec::new(),
        output_folder: String::new(),
        terms: Default::default(),
        keep: None,
    };
    Box::new(Lease {
        build: u64::from(number),
        attempt: attempt(number),
        rank_seconds,
        run: 1,
        slot: 0,
        files: Files::Disk,
        written_bytes: 0,
        order,
        seen: Vec::new(),
        checks_reproducible: false,
        to_test: None,
        is_captured: false,
        to_check: Vec::new(),
    })
}

fn result(number: u8) -> Box<BuildResult> {
    let failure = Failure {
        stage: Stage::Build,
        kind: FailureKind::Command,
        message: String::new(),
        line_number: None,
        lines: Vec::new(),
    };
    Box::new(BuildResult {
        build: u64::from(number),
        outcome: Err(failure),
        is_reproducible: None,
        provenance: None,
    })
}

/// An agent, and the time.
struct Worker {
    agent: Agent,
    now_seconds: f64,
}

impl Worker {
    /// An agent that was welcomed with this number of slots.
    fn joined(slots: u32) -> Worker {
        let mut worker = Worker::new();
        worker.after(0.0, Event::Tick);
        worker.receive(welcome(1, slots));
        worker
    }

    fn new() -> Worker {
        let hello = Hello {
            worker: "one".to_owned(),
            process: "p".to_owned(),
            versions: Versions::OURS,
            cores: 2,
            speed: 1.0,
            memory_bytes: None,
            disk_bytes: None,
            host: None,
            warm: Vec::new(),
            kept: Vec::new(),
        };
        Worker { agent: Agent::new(hello), now_seconds: 0.0 }
    }

    fn after(&mut self, seconds: f64, event: Event) -> Vec<Action> {
        self.now_seconds += seconds;
        let mut actions = Vec::new();
        self.agent.apply(self.now_seconds, event, &mut actions);
        actions
    }

    fn receive(&mut self, message: ToWorker) -> Vec<Action> {
        self.after(0.0, Event::Received(Box::new(message)))
    }

    fn grant(&mut self, number: u8, rank_seconds: f64) -> Vec<Action> {
        self.receive(ToWorker::Grant { session: session(1), lease: lease(number, rank_seconds) })
    }

    fn end(&mut self, number: u8) -> Vec<Action> {
        self.after(0.0, Event::Ended { attempt: attempt(number), result: result(number) })
    }

    fn held(&self) -> Vec<(Attempt, BuildPhase)> {
        self.agent.held().collect()
    }
}

fn welcome(number: u8, slots: u32) -> ToWorker {
    let (process, version) = ("p".to_owned(), 1);
    let (cores, jobs_max) = (3, Some(2));
    let session = session(number);
    ToWorker::Welcome(Welcome { process, session, version, slots, cores, jobs_max, lease_seconds: 120.0 })
}

fn begun(actions: &[Action]) -> Vec<u64> {
    let of = |action: &Action| match action {
        Action::Begin(lease) => Some(lease.build),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

fn offers(actions: &[Action]) -> Vec<&Offer> {
    let of = |action| match action {
        &Action::Send(ToCoordinator::Offer(ref offer)) => Some(offer),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

fn results(actions: &[Action]) -> Vec<(Session, Attempt)> {
    let of = |action: &Action| match action {
        Action::Send(ToCoordinator::Result { session, attempt, .. }) => Some((*session, *attempt)),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

#[test]
fn a_worker_greets_until_it_is_welcomed_and_then_offers() {
    let mut worker = Worker::new();
    let greets = |actions: &[Action]| matches!(actions, [Action::Send(ToCoordinator::Hello(_))]);
    assert!(greets(&worker.after(0.0, Event::Tick)));
    assert!(worker.after(REPEAT_SECONDS / 2.0, Event::Tick).is_empty());
    assert!(greets(&worker.after(REPEAT_SECONDS, Event::Tick)));
    let other = ToWorker::Welcome(Welcome {
        process: "another".to_owned(),
        session: session(2),
        version: 1,
        slots: 9,
        cores: 9,
        jobs_max: None,
        lease_seconds: 120.0,
    });
    assert!(worker.receive(other).is_empty(), "that was for another process");
    let actions = worker.receive(welcome(1, 2));
    let offer = offers(&actions)[0];
    assert_eq!((offer.session, offer.slots_free, offer.takes_more), (session(1), 2, true));
    let number = offer.number;
    assert_eq!(offers(&worker.after(REPEAT_SECONDS, Event::Tick)).len(), 1, "it was not answered");
    worker.receive(ToWorker::Ranks { session: session(1), offer: number + 1, builds: vec![] });
    assert!(worker.after(REPEAT_SECONDS, Event::Tick).is_empty());
    assert_eq!(offers(&worker.after(OFFER_SECONDS, Event::Tick)).len(), 1, "its leases are renewed");
}

#[test]
fn builds_begin_by_rank_when_a_slot_is_free_and_once() {
    let mut worker = Worker::joined(1);
    assert_eq!(begun(&worker.grant(1, 5.0)), [1]);
    assert!(begun(&worker.grant(1, 5.0)).is_empty(), "a repeat");
    for (number, rank_seconds) in [(2, 7.0), (3, 9.0), (4, 8.0)] {
        assert!(begun(&worker.grant(number, rank_seconds)).is_empty());
    }
    assert_eq!(begun(&worker.end(1)), [3]);
    let offer = offers(&worker.after(OFFER_SECONDS, Event::Tick))[0].number;
    let builds = [3, 2, 4].map(ranked).into();
    worker.receive(ToWorker::Ranks { session: session(1), offer, builds });
    assert_eq!(begun(&worker.end(3)), [2], "the ranks have changed");
    worker.receive(ToWorker::Acknowledged { session: session(1), attempt: attempt(1) });
    assert!(begun(&worker.grant(1, 99.0)).is_empty(), "a late grant of a finished build");
    assert_eq!(begun(&worker.end(2)), [4]);
}

#[test]
fn a_result_is_repeated_until_acknowledged() {
    let mut worker = Worker::joined(1);
    worker.grant(1, 5.0);
    let actions = worker.end(1);
    assert_eq!(results(&actions), [(session(1), attempt(1))]);
    assert_eq!(worker.held(), [(attempt(1), BuildPhase::Ended)]);
    assert!(results(&worker.after(1.0, Event::Tick)).is_empty());
    assert_eq!(results(&worker.after(REPEAT_SECONDS, Event::Tick)).len(), 1);
    // The coordinator was restarted.
    assert!(matches!(
        worker.receive(ToWorker::Rejoin { session: session(1) })[..],
        [Action::Send(ToCoordinator::Hello(_))]
    ));
    assert_eq!(results(&worker.receive(welcome(2, 1))), [(session(2), attempt(1))]);
    worker.receive(ToWorker::Acknowledged { session: session(1), attempt: attempt(1) });
    assert_eq!(worker.held().len(), 1, "a message of an ended session");
    worker.receive(ToWorker::Acknowledged { session: session(2), attempt: attempt(1) });
    assert!(worker.held().is_empty());
}

#[test]
fn reports_are_numbered_and_come_before_the_result() {
    let mut worker = Worker::joined(1);
    worker.grant(1, 5.0);
    let attempt = attempt(1);
    let report = |progress| Event::Reported { attempt, progress };
    let said = |actions: &[Action]| match actions {
        [Action::Send(ToCoordinator::Progress(said)), ..] => (said.first, said.reports.clone()),
        other => panic!("{other:?}"),
    };
    let began = Progress::StageBegan(Stage::Build);
    assert_eq!(said(&worker.after(0.0, report(began.clone()))), (0, vec![began.clone()]));
    let actions = worker.after(0.0, report(Progress::Wants(2)));
    assert!(!actions.iter().any(|action| matches!(action, Action::Send(_))), "it waits for the answer");
    worker.after(0.0, report(Progress::Wants(3)));
    let all = vec![began, Progress::Wants(3)];
    assert_eq!(said(&worker.after(REPEAT_SECONDS, Event::Tick)), (0, all), "none is acknowledged");
    worker.receive(ToWorker::Received { session: session(1), attempt, next: 1 });
    let actions = worker.end(1);
    assert!(results(&actions).is_empty(), "a report is missing");
    assert_eq!(said(&worker.after(REPEAT_SECONDS, Event::Tick)), (1, vec![Progress::Wants(3)]));
    assert_eq!(
        results(&worker.receive(ToWorker::Received { session: session(1), attempt, next: 2 })).len(),
        1
    );
}

#[test]
fn an_answer_is_given_once() {
    let mut worker = Worker::joined(1);
    worker.grant(1, 5.0);
    let (session, attempt) = (session(1), attempt(1));
    let is_asked = |actions: &[Action]| {
        actions.iter().any(|action| matches!(action, Action::Send(ToCoordinator::Built { .. })))
    };
    let answer = Answer::keep(vec![]);
    let answer =
        |is_repeated| ToWorker::Answer { session, attempt, is_repeated, answer: Box::new(answer.clone()) };
    assert!(worker.receive(answer(false)).is_empty(), "there was no question");
    let built = Built { build: 1, outputs: vec![], is_repeated: true };
    assert!(is_asked(&worker.after(0.0, Event::Built { attempt, built })));
    assert!(is_asked(&worker.after(REPEAT_SECONDS, Event::Tick)));
    assert!(worker.receive(answer(false)).is_empty(), "that was another question");
    assert!(matches!(worker.receive(answer(true))[..], [Action::Answer { .. }]));
    assert!(worker.receive(answer(true)).is_empty());
}

#[test]
fn waiting_builds_can_be_revoked_and_running_ones_cancelled() {
    let mut worker = Worker::joined(1);
    for number in 1..=3 {
        worker.grant(number, 9.0 - f64::from(number));
    }
    let session = session(1);
    assert!(begun(&worker.receive(ToWorker::Revoke { session, attempt: attempt(1) })).is_empty());
    assert_eq!(worker.held().len(), 3, "it has begun");
    worker.receive(ToWorker::Revoke { session, attempt: attempt(2) });
    worker.receive(ToWorker::Cancel { session, attempt: attempt(3) });
    assert_eq!(worker.held(), [(attempt(1), BuildPhase::Building)]);
    assert_eq!(
        worker.receive(ToWorker::Cancel { session, attempt: attempt(1) }),
        [Action::Cancel(attempt(1))]
    );
    assert!(worker.receive(ToWorker::Cancel { session, attempt: attempt(1) }).is_empty());
    // A revocation that overtakes its grant holds.
    worker.receive(ToWorker::Revoke { session, attempt: attempt(4) });
    worker.grant(4, 1.0);
    assert_eq!(worker.held(), [(attempt(1), BuildPhase::Building)]);
}

#[test]
fn a_superseded_build_ends_and_its_result_is_not_sent() {
    let mut worker = Worker::joined(1);
    worker.grant(1, 5.0);
    let superseded = ToWorker::Superseded { session: session(1), attempt: attempt(1), reason: String::new() };
    assert_eq!(worker.receive(superseded)[..1], [Action::Cancel(attempt(1))]);
    assert!(begun(&worker.grant(2, 5.0)).is_empty(), "its slot is taken until it has ended");
    let actions = worker.end(1);
    assert_eq!((results(&actions), begun(&actions)), (vec![], vec![2]));
}

#[test]
fn a_draining_worker_gives_back_waiting_builds_and_leaves() {
    let mut worker = Worker::joined(1);
    worker.grant(1, 5.0);
    worker.grant(2, 5.0);
    assert!(!offers(&worker.after(0.0, Event::Drain))[0].takes_more);
    worker.receive(ToWorker::Revoke { session: session(1), attempt: attempt(2) });
    assert!(begun(&worker.end(1)).is_empty());
    let actions = worker.receive(ToWorker::Acknowledged { session: session(1), attempt: attempt(1) });
    let leave = [Action::Send(ToCoordinator::Leave { session: session(1) }), Action::Leave(None)];
    assert_eq!(actions, leave);
    assert!(worker.after(1e6, Event::Tick).is_empty());
}

#[test]
fn a_worker_that_quits_leaves_at_once_and_says_nothing_more() {
    let mut worker = Worker::joined(1);
    worker.grant(1, 5.0);
    let leave = [Action::Send(ToCoordinator::Leave { session: session(1) }), Action::Leave(None)];
    let actions = worker.after(0.0, Event::Quit);
    assert!(leave.iter().all(|action| actions.contains(action)), "{actions:?}");
    assert!(worker.after(1e6, Event::Tick).is_empty() && worker.after(0.0, Event::Quit).is_empty());
    // Without a session, there is no one to say it to.
    assert_eq!(Worker::new().after(0.0, Event::Quit), [Action::Leave(None)]);
}

#[test]
fn a_worker_without_room_takes_no_more_until_it_has_some() {
    let mut worker = Worker::joined(1);
    worker.grant(1, 5.0);
    assert!(offers(&worker.after(0.0, Event::Room(true))).is_empty(), "nothing has changed");
    assert!(!offers(&worker.after(0.0, Event::Room(false)))[0].takes_more);
    assert!(offers(&worker.after(0.0, Event::Room(true)))[0].takes_more);
}

#[test]
fn a_worker_speaks_at_once_to_another_coordinator() {
    let mut worker = Worker::new();
    let said_hello = |actions: &[Action]| matches!(actions, [Action::Send(ToCoordinator::Hello(_))]);
    assert!(said_hello(&worker.after(0.0, Event::Tick)));
    assert!(worker.after(0.1, Event::Tick).is_empty(), "it waits before it repeats a hello");
    assert!(said_hello(&worker.after(0.0, Event::Reconnected)));
    worker.receive(welcome(1, 1));
    worker.grant(1, 5.0);
    let built = Built { build: 1, outputs: vec![], is_repeated: false };
    worker.after(0.0, Event::Built { attempt: attempt(1), built: built.clone() });
    let actions = worker.after(0.1, Event::Reconnected);
    assert!(matches!(actions[0], Action::Deliver(again) if again == attempt(1)), "{actions:?}");
    let asks = |actions: &[Action]| {
        actions.iter().any(|action| matches!(action, Action::Send(ToCoordinator::Built { .. })))
    };
    assert!(
        !asks(&worker.after(REPEAT_SECONDS, Event::Tick)),
        "the other coordinator does not have them yet"
    );
    assert!(asks(&worker.after(0.0, Event::Built { attempt: attempt(1), built })));
    let offered = offers(&actions);
    assert_eq!(
        (offered.len(), offered[0].held.len()),
        (1, 1),
        "the coordinator answers that it must join again"
    );
}

#[test]
fn a_refused_worker_leaves_with_the_reason() {
    let mut worker = Worker::new();
    worker.after(0.0, Event::Tick);
    let refused = |process: &str| ToWorker::Refused { process: process.to_owned(), reason: "no".to_owned() };
    assert!(worker.receive(refused("another")).is_empty());
    assert_eq!(worker.receive(refused("p")), [Action::Leave(Some("no".to_owned()))]);
    assert!(worker.after(1e6, Event::Tick).is_empty());
}

#[test]
fn the_backlog_for_an_absent_coordinator_is_bounded() {
    let mut worker = Worker::joined(1);
    worker.grant(1, 5.0);
    for count in 0..10_000 {
        let progress = Progress::Sample { processes: count, runnable: 1, memory_bytes: 1 };
        let actions = worker.after(1.0, Event::Reported { attempt: attempt(1), progress });
        for action in actions {
            if let Action::Send(ToCoordinator::Progress(said)) = action {
                assert!(said.reports.len() <= 1024, "{}", said.reports.len());
            }
        }
    }
}

#[test]
fn cores_follow_rank_and_demand() {
    let mut worker = Worker::joined(2);
    let allotted = |actions: &[Action]| {
        let of = |action: &Action| match action {
            Action::Allot(cores) => Some(cores.clone()),
            _ => None,
        };
        actions.iter().find_map(of)
    };
    assert_eq!(allotted(&worker.grant(1, 5.0)), Some(vec![(1, 1)]));
    assert_eq!(allotted(&worker.grant(2, 7.0)), Some(vec![(2, 1), (1, 1)]));
    let wants =
        |number, cores| Event::Reported { attempt: attempt(number), progress: Progress::Wants(cores) };
    assert_eq!(allotted(&worker.after(0.0, wants(1, 9))), Some(vec![(2, 1), (1, 2)]), "two at most");
    assert_eq!(allotted(&worker.after(0.0, wants(2, 9))), Some(vec![(2, 2), (1, 1)]));
    // The coordinator is unreachable, and returns with other ranks.
    worker.receive(ToWorker::Rejoin { session: session(1) });
    assert_eq!(allotted(&worker.after(60.0, wants(2, 1))), Some(vec![(2, 1), (1, 2)]));
    let offer = offers(&worker.receive(welcome(2, 2)))[0].number;
    let builds = [1, 2].map(ranked).into();
    let ranks = ToWorker::Ranks { session: session(2), offer, builds };
    assert_eq!(allotted(&worker.receive(ranks)), Some(vec![(1, 2), (2, 1)]));
    assert_eq!(allotted(&worker.end(1)), Some(vec![(2, 1)]));
}

#[test]
fn an_order_may_limit_the_cores_of_its_build() {
    let mut worker = Worker::joined(2);
    let mut limited = lease(1, 5.0);
    limited.order.terms.jobs_max = Some(1);
    worker.receive(ToWorker::Grant { session: session(1), lease: limited });
    worker.grant(2, 3.0);
    let wants =
        |number, cores| Event::Reported { attempt: attempt(number), progress: Progress::Wants(cores) };
    let allots = |actions: &[Action]| actions.iter().any(|action| matches!(action, Action::Allot(_)));
    assert!(!allots(&worker.after(0.0, wants(1, 9))), "it keeps its one core");
    assert!(worker.after(0.0, wants(2, 9)).contains(&Action::Allot(vec![(1, 1), (2, 2)])));
}

#[test]
fn announced_builds_are_prepared_until_they_follow_or_not() {
    let announce = |number| ToWorker::Announce { session: session(1), lease: lease(number, 1.0) };
    let prepared = |actions: &[Action]| {
        let prepared = actions.iter().filter_map(|action| match action {
            Action::Prepare(lease) => Some(lease.attempt),
            _ => None,
        });
        prepared.collect::<Vec<_>>()
    };
    let abandons = |number| move |actions: Vec<Action>| actions.contains(&Action::Abandon(attempt(number)));
    let mut worker = Worker::joined(1);
    worker.grant(1, 1.0);
    assert_eq!(prepared(&worker.receive(announce(2))), [attempt(2)]);
    assert_eq!(prepared(&worker.receive(announce(2))), [], "a repeat");
    assert_eq!(prepared(&worker.receive(announce(1))), [], "it began");
    assert_eq!(worker.held().len(), 1, "it is not a build of this worker");
    // Its build follows, or does not, or another session begins.
    worker.grant(2, 1.0);
    assert!(!abandons(2)(worker.receive(ToWorker::Revoke { session: session(1), attempt: attempt(2) })));
    assert_eq!(prepared(&worker.receive(announce(3))), [attempt(3)]);
    assert!(abandons(3)(worker.receive(ToWorker::Revoke { session: session(1), attempt: attempt(3) })));
    assert_eq!(prepared(&worker.receive(announce(4))), [attempt(4)]);
    worker.after(1.0, Event::Prepared(attempt(4)));
    assert_eq!(prepared(&worker.receive(announce(5))), [attempt(5)]);
    let actions = worker.receive(ToWorker::Rejoin { session: session(1) });
    assert!(abandons(5)(actions.clone()) && !abandons(4)(actions));
    worker.receive(welcome(2, 1));
    assert_eq!(prepared(&worker.receive(announce(6))), [], "of an earlier session");
    worker.after(1.0, Event::Drain);
    let announce = ToWorker::Announce { session: session(2), lease: lease(7, 1.0) };
    assert_eq!(prepared(&worker.receive(announce)), [], "it takes no more");
}

#[test]
fn a_share_of_the_machine_bounds_builds_and_cores() {
    let mut worker = Worker::joined(4);
    worker.grant(1, 5.0);
    worker.grant(2, 5.0);
    assert_eq!(worker.agent.usage().building, 2);
    let offer = offers(&worker.after(0.0, Event::Share(2)))[0].clone();
    assert_eq!((offer.cores, offer.takes_more), (Some(2), true));
    assert!(offers(&worker.after(0.0, Event::Share(2))).is_empty(), "nothing has changed");
    // A build that was granted before the coordinator knew it.
    worker.grant(3, 5.0);
    assert_eq!((worker.agent.usage().building, worker.agent.usage().begun), (2, 2), "it waits");
    let offer = offers(&worker.after(0.0, Event::Share(0)))[0].clone();
    assert_eq!((offer.cores, offer.takes_more), (Some(1), false));
    worker.after(0.0, Event::Share(3));
    assert_eq!(worker.agent.usage().building, 3);
    // The core of a build that has ended may be another yard's: the next one waits for the new share.
    worker.grant(4, 5.0);
    worker.end(1);
    assert_eq!(worker.agent.usage().building, 2);
    worker.after(0.0, Event::Share(2));
    assert_eq!(worker.agent.usage().building, 2);
    worker.after(0.0, Event::Share(3));
    assert_eq!(worker.agent.usage().building, 3);
}
