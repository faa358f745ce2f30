//! One event after the other.

use super::*;

struct Pool {
    reconciler: Reconciler,
    now_seconds: f64,
}

impl Pool {
    fn new(least: u32, most: u32) -> Pool {
        Pool::with(Terms::new(least, most, "f"), Memory::Names(Vec::new()))
    }

    fn with(terms: Terms, memory: Memory) -> Pool {
        let names = Names::new("p", "f", "g").unwrap();
        Pool { reconciler: Reconciler::new(terms, names, memory, 0.0).unwrap(), now_seconds: 0.0 }
    }

    fn after(&mut self, seconds: f64, event: Event) -> Vec<Action> {
        self.now_seconds += seconds;
        let mut actions = Vec::new();
        self.reconciler.apply(self.now_seconds, event, &mut actions);
        actions
    }

    fn apply(&mut self, event: Event) -> Vec<Action> {
        self.after(0.0, event)
    }

    /// Lets time pass until a list is requested, and answers it.
    fn list(&mut self, pilots: &[(&PilotName, PilotState)]) -> Vec<Action> {
        let mut actions = Vec::new();
        while self.reconciler.list_asked_seconds.is_none() {
            actions.extend(self.after(1.0, Event::Tick));
        }
        actions.extend(self.apply(Event::Listed(listing(pilots))));
        actions.retain(|action| *action != Action::List);
        actions
    }

    fn want(&mut self, count: u32) -> Vec<Action> {
        self.apply(Event::Wanted { count, reason: "work".to_owned() })
    }

    /// A pool with this number of running pilots, whose workers have joined.
    fn running(least: u32, most: u32, count: u32) -> (Pool, Vec<PilotName>) {
        let mut pool = Pool::new(least, most);
        let mut names = started(&pool.list(&[]));
        names.extend(started(&pool.want(count)));
        for name in &names {
            pool.apply(Event::Started(name.clone()));
            pool.apply(Event::Joined(name.clone()));
        }
        let listed: Vec<_> = names.iter().map(|name| (name, PilotState::Running)).collect();
        assert_eq!(pool.list(&listed), []);
        (pool, names)
    }
}

fn listing(pilots: &[(&PilotName, PilotState)]) -> Listing {
    Listing::of(pilots.iter().map(|(name, state)| Listed {
        name: (*name).clone(),
        state: *state,
        reason: Some("Resources".to_owned()),
        copies: 1,
    }))
}

fn started(actions: &[Action]) -> Vec<PilotName> {
    let name = |action: &Action| match action {
        Action::Start(name) => Some(name.clone()),
        _ => None,
    };
    actions.iter().filter_map(name).collect()
}

fn failed(verb: Verb) -> Event {
    Event::Failed { verb, reason: "no".to_owned() }
}

#[test]
fn pilots_are_started_once_the_manager_has_answered() {
    let mut pool = Pool::new(1, 3);
    assert_eq!(pool.want(9), [Action::List]);
    assert_eq!(started(&pool.list(&[])).len(), 3);
    assert_eq!(pool.apply(Event::Tick), []);
    let figures = pool.reconciler.figures();
    assert_eq!((figures.wanted, figures.starting, figures.all()), (3, 3, 3));
}

#[test]
fn without_records_the_first_start_waits_for_what_another_process_started() {
    let mut pool = Pool::with(Terms::new(0, 2, "f"), Memory::Nothing);
    pool.want(2);
    assert_eq!(pool.list(&[]), []);
    let found = Names::new("p", "f", "old").unwrap().nth(3);
    let actions = pool.list(&[(&found, PilotState::Running)]);
    assert_eq!(started(&actions).len(), 1);
    assert!(pool.now_seconds >= 10.0);
}

#[test]
fn a_manager_that_does_not_answer_changes_nothing() {
    let (mut pool, names) = Pool::running(0, 9, 2);
    let mut actions = pool.want(5);
    // These are requested while the manager answers.
    assert_eq!(started(&actions).len(), 3);
    for name in started(&actions) {
        pool.apply(Event::Started(name));
    }
    for _ in 0..1000 {
        actions = pool.after(1.0, Event::Tick);
        if actions.contains(&Action::List) {
            assert_eq!(pool.apply(failed(Verb::List)), []);
        }
        assert!(started(&actions).is_empty() && actions.len() <= 1, "{actions:?}");
    }
    let figures = pool.reconciler.figures();
    assert_eq!((figures.there(), figures.starting, figures.troubles), (2, 3, vec!["no".to_owned()]));
    assert!(pool.reconciler.pilots().any(|name| *name == names[0]));
}

#[test]
fn a_forgotten_pilot_is_started_again_under_a_new_name() {
    let mut pool = Pool::new(0, 1);
    pool.list(&[]);
    let first = started(&pool.want(1)).remove(0);
    pool.apply(Event::Started(first.clone()));
    let actions = pool.list(&[]);
    assert_eq!(actions, [], "the list may be older than the start");
    let mut actions = pool.list(&[]);
    while actions.is_empty() {
        actions = pool.after(1.0, Event::Tick);
        actions.retain(|action| *action != Action::List);
    }
    let second = started(&actions).remove(0);
    assert_ne!(first, second);
    assert_eq!(pool.reconciler.figures().lost_total, 1);
}

#[test]
fn a_refused_start_may_have_happened() {
    let mut pool = Pool::new(0, 1);
    pool.list(&[]);
    let name = started(&pool.want(1)).remove(0);
    pool.apply(failed(Verb::Start(name.clone())));
    assert_eq!(pool.reconciler.figures().troubles, ["cannot start: no; next try in 10 s"]);
    assert_eq!(pool.list(&[(&name, PilotState::Queued)]), []);
    pool.apply(Event::Joined(name));
    let figures = pool.reconciler.figures();
    assert_eq!((figures.idle, figures.failed_total, figures.troubles.len()), (1, 1, 0));
}

#[test]
fn failed_starts_wait_longer_each_time() {
    let mut pool = Pool::new(0, 40);
    pool.list(&[]);
    let mut actions = pool.want(40);
    let mut starts = Vec::new();
    for _ in 0..400 {
        if actions.contains(&Action::List) {
            actions.extend(pool.apply(Event::Listed(Listing::default())));
        }
        let names = started(&actions);
        if !names.is_empty() {
            starts.push((pool.now_seconds, names.len()));
        }
        for name in names {
            pool.apply(failed(Verb::Start(name)));
        }
        actions = pool.after(1.0, Event::Tick);
    }
    let counts: Vec<usize> = starts.iter().map(|(_, count)| *count).collect();
    assert_eq!(counts, [16, 8, 4, 2, 1, 1], "{starts:?}");
    let waits: Vec<f64> = starts.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert_eq!(waits, [10.0, 20.0, 40.0, 80.0, 160.0]);
}

#[test]
fn idle_pilots_are_drained_and_then_stopped() {
    let (mut pool, names) = Pool::running(1, 9, 3);
    pool.apply(Event::Busy(names[2].clone()));
    pool.want(0);
    assert!(!pool.after(200.0, Event::Tick).iter().any(|action| matches!(action, Action::Drain(..))));
    let actions = pool.after(100.0, Event::Tick);
    let drains: Vec<_> = names[..2].iter().map(|name| Action::Drain(name.clone(), Why::Surplus)).collect();
    assert_eq!(actions.into_iter().filter(|action| *action != Action::List).collect::<Vec<_>>(), drains);
    // A build that began in the meantime ends first.
    assert_eq!(pool.apply(Event::Busy(names[0].clone())), []);
    assert_eq!(pool.apply(Event::Drained(names[1].clone())), [Action::Stop(names[1].clone())]);
    assert_eq!(pool.apply(Event::Drained(names[1].clone())), []);
    assert_eq!(pool.apply(Event::Drained(names[0].clone())), [Action::Stop(names[0].clone())]);
    assert_eq!(pool.reconciler.figures().all(), 3);
    names.iter().take(2).for_each(|name| drop(pool.apply(Event::Left(name.clone()))));
    assert_eq!(pool.list(&[(&names[2], PilotState::Running)]), []);
    assert_eq!(pool.list(&[(&names[2], PilotState::Running)]), []);
    assert_eq!(pool.reconciler.figures().all(), 1);
}

#[test]
fn a_stop_is_repeated_until_the_pilot_is_gone() {
    let (mut pool, names) = Pool::running(0, 1, 1);
    let name = names[0].clone();
    pool.apply(Event::Reclaimed(name.clone()));
    assert_eq!(pool.apply(Event::Drained(name.clone())), [Action::Stop(name.clone())]);
    pool.apply(failed(Verb::Stop(name.clone())));
    let mut stops = 0;
    for _ in 0..100 {
        let actions = pool.after(1.0, Event::Tick);
        if actions.contains(&Action::List) {
            pool.apply(Event::Listed(listing(&[(&name, PilotState::Running)])));
        }
        if actions.contains(&Action::Stop(name.clone())) {
            stops += 1;
            pool.apply(Event::Stopped(name.clone()));
        }
    }
    assert_eq!(stops, 2);
}

#[test]
fn a_reclaimed_pilot_is_replaced_at_once() {
    let (mut pool, names) = Pool::running(0, 2, 1);
    let actions = pool.apply(Event::Reclaimed(names[0].clone()));
    assert_eq!(actions[0], Action::Drain(names[0].clone(), Why::Reclaimed));
    assert_eq!(started(&actions).len(), 1);
}

#[test]
fn a_pilot_that_does_not_join_is_lost() {
    let mut pool = Pool::new(0, 1);
    pool.list(&[]);
    let name = started(&pool.want(1)).remove(0);
    pool.apply(Event::Started(name.clone()));
    // The queue does not count.
    for _ in 0..100 {
        assert_eq!(pool.list(&[(&name, PilotState::Queued)]), []);
    }
    assert_eq!(pool.reconciler.figures().troubles, ["queued: Resources"]);
    let mut actions = Vec::new();
    while actions.is_empty() {
        actions = pool.list(&[(&name, PilotState::Running)]);
    }
    assert_eq!(actions, [Action::Drain(name.clone(), Why::Lost)]);
    // It joins in the last moment, and gets nothing.
    pool.apply(Event::Joined(name.clone()));
    assert_eq!(pool.apply(Event::Drained(name.clone())), [Action::Stop(name)]);
}

#[test]
fn drifted_pilots_are_replaced_a_quarter_at_a_time() {
    let (mut pool, names) = Pool::running(0, 8, 8);
    let actions = pool.apply(Event::Terms(Terms::new(0, 8, "f2")));
    let drained: Vec<&Action> =
        actions.iter().filter(|action| matches!(action, Action::Drain(_, Why::Drifted))).collect();
    assert_eq!(drained.len(), 2);
    assert_eq!(pool.apply(Event::Tick), []);
    pool.apply(Event::Drained(names[0].clone()));
    pool.apply(Event::Stopped(names[0].clone()));
    pool.apply(Event::Left(names[0].clone()));
    let rest: Vec<_> = names[1..].iter().map(|name| (name, PilotState::Running)).collect();
    let actions = pool.list(&rest);
    let new = started(&actions);
    assert!(new.len() == 1 && new[0].as_str().starts_with("p-f2-g-"), "{actions:?}");
}

#[test]
fn a_pilot_that_exists_twice_is_replaced() {
    let (mut pool, names) = Pool::running(0, 3, 1);
    let mut twice = listing(&[(&names[0], PilotState::Running)]);
    twice.pilots[0].copies = 2;
    let actions = pool.apply(Event::Listed(twice));
    assert_eq!(actions[0], Action::Drain(names[0].clone(), Why::Duplicate));
    // Both count: there is room for one more.
    pool.want(3);
    assert_eq!(pool.reconciler.figures().starting, 1);
}

#[test]
fn a_host_that_is_away_hides_only_its_pilots() {
    let (mut pool, names) = Pool::running(0, 4, 2);
    pool.apply(Event::Left(names[0].clone()));
    pool.apply(Event::Left(names[1].clone()));
    let mut partial = listing(&[(&names[1], PilotState::Unknown)]);
    partial.away = vec!["b does not answer".to_owned()];
    let mut actions = Vec::new();
    for _ in 0..40 {
        actions.extend(pool.after(1.0, Event::Tick));
        if actions.contains(&Action::List) {
            actions.retain(|action| *action != Action::List);
            actions.extend(pool.apply(Event::Listed(partial.clone())));
        }
    }
    // The first is gone, the second may come back; both are replaced.
    assert_eq!(started(&actions).len(), 2);
    assert!(!pool.reconciler.pilots().any(|name| *name == names[0]));
    assert!(pool.reconciler.pilots().any(|name| *name == names[1]));
    assert_eq!(pool.reconciler.figures().troubles[0], "b does not answer");
}

#[test]
fn foreign_names_are_left_alone() {
    let mut pool = Pool::new(0, 1);
    let foreign = PilotName::parse("p-2-f-g-1").unwrap();
    assert_eq!(pool.list(&[(&foreign, PilotState::Running)]), []);
    pool.apply(Event::Joined(foreign.clone()));
    pool.apply(Event::Drained(foreign));
    assert_eq!(pool.reconciler.figures().all(), 0);
}
