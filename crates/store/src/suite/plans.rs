//! Requests and the stored plan.

use super::{Open, connect, package_row};
use crate::{Plan, PlanRow, PlanRowSeen, RequestKind};
use kilnyard_model::result::PackageState;
use std::sync::atomic::{AtomicUsize, Ordering};

pub(super) fn requests_are_taken_once_and_in_order(open: Open) {
    let mut store = connect(open);
    let mut other = connect(open);
    other.request(RequestKind::Retry, "a", "ann", 1.0).unwrap();
    other.request(RequestKind::Bump, "b", "ann", 2.0).unwrap();
    let taken = store.take_requests().unwrap();
    assert_eq!(
        taken.iter().map(|r| (r.kind, r.package.as_str())).collect::<Vec<_>>(),
        [(RequestKind::Retry, "a"), (RequestKind::Bump, "b")]
    );
    assert!(store.take_requests().unwrap().is_empty());
}

pub(super) fn a_plan_replaces_the_previous_one(open: Open) {
    let mut store = connect(open);
    assert_eq!(store.plan().unwrap(), None);
    let mut plan = Plan {
        digest: "d1".into(),
        made_seconds: 1.0,
        expected_seconds: 2.0,
        bound_seconds: 3.0,
        cuts: vec!["a without b".into()],
        remarks: vec!["two claim it".into()],
        path: vec!["a".into(), "b".into()],
        packages: vec![PlanRow {
            package: package_row("a", PackageState::Ready),
            dependencies: vec!["b".into()],
        }],
    };
    store.save_plan(&plan).unwrap();
    plan.digest = "d2".into();
    store.save_plan(&plan).unwrap();
    assert_eq!(store.plan().unwrap(), Some(plan.clone()));
    assert_eq!(store.plan_head().unwrap(), Some(Plan { packages: Vec::new(), ..plan.clone() }));
    assert_eq!(store.planned("a").unwrap(), plan.packages.pop());
}

pub(super) fn reading_a_plan_stops_when_asked(open: Open) {
    let mut store = connect(open);
    let row = |name: &str, dependencies: &[&str]| PlanRow {
        package: package_row(name, PackageState::Ready),
        dependencies: dependencies.iter().map(|name| (*name).to_owned()).collect(),
    };
    let mut plan = Plan {
        digest: "d".into(),
        made_seconds: 1.0,
        expected_seconds: 2.0,
        bound_seconds: 3.0,
        cuts: Vec::new(),
        remarks: Vec::new(),
        path: Vec::new(),
        packages: vec![row("b", &["a", "c"]), row("a", &[]), row("c", &[])],
    };
    store.save_plan(&plan).unwrap();
    plan.packages.clear();
    let mut other = connect(open);
    let seen = store.at_once(|store| {
        let head = store.plan_head().unwrap().unwrap();
        // Concurrent writes are not visible.
        other.save_plan(&plan).unwrap();
        let mut seen = Vec::new();
        let mut each = |row: PlanRowSeen| {
            seen.push((row.name.to_owned(), row.dependencies.to_owned(), row.state));
            seen.len() < 2
        };
        store.each_planned(&mut each).unwrap();
        (head.digest, seen)
    });
    let expected = [("a", ""), ("b", "a c")].map(|(a, b)| (a.to_owned(), b.to_owned(), PackageState::Ready));
    assert_eq!(seen.unwrap(), ("d".to_owned(), expected.to_vec()));
    assert_eq!(store.plan().unwrap(), Some(plan));
}

pub(super) fn each_request_has_one_taker(open: Open) {
    const REQUESTS: usize = 40;
    const TAKERS: usize = 3;
    let mut store = connect(open);
    let count = AtomicUsize::new(0);
    let taken: Vec<Vec<String>> = std::thread::scope(|scope| {
        let take = || {
            let mut store = connect(open);
            let mut own = Vec::new();
            while count.load(Ordering::SeqCst) < REQUESTS {
                let requests = store.take_requests().unwrap();
                count.fetch_add(requests.len(), Ordering::SeqCst);
                own.extend(requests.into_iter().map(|request| request.package));
            }
            own
        };
        let takers: Vec<_> = (0..TAKERS).map(|_| scope.spawn(take)).collect();
        for number in 0..REQUESTS {
            store.request(RequestKind::Skip, &format!("p{number:02}"), "ann", number as f64).unwrap();
        }
        takers.into_iter().map(|taker| taker.join().unwrap()).collect()
    });
    assert!(taken.iter().all(|own| own.is_sorted()), "{taken:?}");
    let mut all: Vec<String> = taken.into_iter().flatten().collect();
    all.sort_unstable();
    assert_eq!(all, (0..REQUESTS).map(|number| format!("p{number:02}")).collect::<Vec<_>>());
}
