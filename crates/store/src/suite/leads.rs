//! Leads, scopes, and numbers that are used once.

use super::{Open, attempt, build_row, connect, holder, leading, output, package_row, run_row, target};
use crate::{Current, Holder, Plan, Record, RequestKind, RunState, Store, StoreError};
use kilnyard_model::order::Key;
use kilnyard_model::result::PackageState;
use kilnyard_model::target::Target;

pub(super) fn a_lead_fences_earlier_leads(open: Open) {
    let mut never = connect(open);
    let refused = never.begin_run(&run_row(), &[]).unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { own: 0, latest: 0, .. }), "{refused:?}");
    let (mut first, mut second) = (connect(open), connect(open));
    let lead = first.lead(&holder()).unwrap();
    assert_eq!((lead.epoch, lead.next_build), (1, 1));
    let run = first.begin_run(&run_row(), &[package_row("a", PackageState::Ready)]).unwrap();
    first.record(&[Record::BuildBegan(Box::new(build_row(4, run, "a")))]).unwrap();
    let lead = second.lead(&holder()).unwrap();
    assert_eq!((lead.epoch, lead.next_build), (2, 5));
    // Writes of the earlier leader come too late.
    let late = first.record(&[Record::BuildBegan(Box::new(build_row(5, run, "a")))]).unwrap_err();
    assert!(matches!(late, StoreError::Fenced { own: 1, latest: 2, .. }), "{late:?}");
    let late = first.begin_run(&run_row(), &[]).unwrap_err();
    assert!(matches!(late, StoreError::Fenced { own: 1, latest: 2, .. }), "{late:?}");
    assert_eq!((second.builds_in(run).unwrap().len(), second.runs().unwrap().len()), (1, 1));
    let refused = never.record(&[]).unwrap_err();
    assert!(matches!(refused, StoreError::Fenced { own: 0, latest: 2, .. }), "{refused:?}");
    // Requests may come from anywhere.
    never.request(RequestKind::Retry, "a", "ann", 7.0).unwrap();
    second.record(&[Record::BuildBegan(Box::new(build_row(5, run, "a")))]).unwrap();
    // Becoming the leader again gives a new epoch.
    assert_eq!(first.lead(&holder()).unwrap().epoch, 3);
    second.record(&[]).unwrap_err();
    first.record(&[]).unwrap();
}

pub(super) fn a_leader_that_leaves_writes_no_more(open: Open) {
    let (mut first, mut second) = (connect(open), connect(open));
    for store in [&mut first, &mut second] {
        assert!(matches!(store.renew().unwrap_err(), StoreError::Fenced { own: 0, .. }));
        assert!(matches!(store.leave().unwrap_err(), StoreError::Fenced { own: 0, .. }));
    }
    first.lead(&holder()).unwrap();
    first.renew().unwrap();
    first.leave().unwrap();
    assert!(matches!(first.record(&[]).unwrap_err(), StoreError::Fenced { own: 0, latest: 1, .. }));
    assert!(matches!(first.renew().unwrap_err(), StoreError::Fenced { own: 0, latest: 1, .. }));
    // Any other process may lead at once.
    assert_eq!(second.lead(&Holder::named("two")).unwrap().epoch, 2);
    second.renew().unwrap();
    second.record(&[]).unwrap();
}

pub(super) fn numbers_and_attempts_are_used_once(open: Open) {
    let mut store = leading(open);
    let run = store.begin_run(&run_row(), &[]).unwrap();
    store.record(&[Record::BuildBegan(Box::new(build_row(3, run, "a")))]).unwrap();
    assert_eq!(store.next_build().unwrap(), 4);
    let begin = |number, of| {
        let mut row = build_row(number, run, "b");
        row.attempt = Some(attempt(of));
        Record::BuildBegan(Box::new(row))
    };
    for (number, of) in [(3, 9), (2, 9), (4, 3)] {
        let used = store.record(&[begin(number, of)]).unwrap_err();
        assert!(matches!(used, StoreError::Used { .. }), "{number} {of}: {used:?}");
    }
    let used = store.record(&[begin(4, 9), begin(5, 9)]).unwrap_err();
    assert!(used.to_string().contains(&attempt(9).to_string()), "{used}");
    // Refused writes use no numbers.
    assert_eq!((store.next_build().unwrap(), store.builds_in(run).unwrap().len()), (4, 1));
    store.record(&[begin(4, 9)]).unwrap();
    // Another connection knows the used numbers, too.
    let mut other = connect(open);
    assert_eq!(other.lead(&holder()).unwrap().next_build, 5);
    other.record(&[begin(4, 10)]).unwrap_err();
    other.record(&[begin(5, 9)]).unwrap_err();
    other.record(&[begin(5, 10)]).unwrap();
    assert_eq!(other.builds_of("b", 1).unwrap()[0].attempt, Some(attempt(10)));
}

pub(super) fn each_target_has_its_own_rows(open: Open) {
    let other_target: Target = "any/linux/two/arm64".parse().unwrap();
    let plan = |digest: &str| Plan {
        digest: digest.into(),
        made_seconds: 1.0,
        expected_seconds: 2.0,
        bound_seconds: 3.0,
        cuts: Vec::new(),
        remarks: Vec::new(),
        path: Vec::new(),
        packages: Vec::new(),
    };
    let fill = |store: &mut dyn Store, name: &str| {
        let build = store.lead(&holder()).unwrap().next_build;
        let run = store.begin_run(&run_row(), &[package_row("p", PackageState::Ready)]).unwrap();
        let current = Current {
            package: "p".into(),
            build,
            recipe_version: name.into(),
            revision: 1,
            key: Key { digest: name.into(), lines: Vec::new() },
            outputs: vec![output(name)],
        };
        store
            .record(&[Record::BuildBegan(Box::new(build_row(build, run, "p"))), Record::Outputs(current)])
            .unwrap();
        store.import_durations(&[("q".to_owned(), build as f64, 1.0)]).unwrap();
        store.save_plan(&plan(name)).unwrap();
        store.request(RequestKind::Skip, name, "ann", 1.0).unwrap();
        (run, build)
    };
    let (mut one, mut two) = (open(&target()), open(&other_target));
    let (first, second) = (fill(&mut *one, "one"), fill(&mut *two, "two"));
    for (store, name, (run, build)) in [(&mut one, "one", first), (&mut two, "two", second)] {
        assert_eq!(store.runs().unwrap().iter().map(|row| row.number).collect::<Vec<_>>(), [run]);
        assert_eq!(store.last_run().unwrap().unwrap().number, run);
        let builds: Vec<_> = store.builds_of("p", 9).unwrap().iter().map(|row| row.number).collect();
        assert_eq!(builds, [build]);
        assert_eq!(store.last_builds().unwrap().len(), 1);
        assert_eq!(store.current("p").unwrap().unwrap().recipe_version, name);
        let outputs = store.outputs().unwrap();
        assert_eq!(outputs.iter().map(|row| row.output.name.as_str()).collect::<Vec<_>>(), [name]);
        assert_eq!(store.durations().unwrap(), [("q".to_owned(), build as f64, 1.0)]);
        assert_eq!(store.plan_head().unwrap().unwrap().digest, name);
        let requests = store.take_requests().unwrap();
        assert_eq!(requests.iter().map(|request| request.package.as_str()).collect::<Vec<_>>(), [name]);
    }
    // Numbers are unique in the whole store.
    assert!(second.1 > first.1 && second.0 > first.0);
    assert_eq!((one.scope().yard, one.scope().farm), (two.scope().yard, two.scope().farm));
    assert_eq!(two.scope().target, other_target);
}

pub(super) fn a_yard_keeps_its_ids(open: Open) {
    let scope = connect(open).scope().clone();
    assert_eq!(scope.target, target());
    assert_ne!(scope.farm.to_string(), scope.yard.to_string());
    let mut store = leading(open);
    let run = store.begin_run(&run_row(), &[]).unwrap();
    store.record(&[Record::Run { run, state: RunState::Finished, at_seconds: 200.0 }]).unwrap();
    assert_eq!((store.scope(), connect(open).scope()), (&scope, &scope));
}
