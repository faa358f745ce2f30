//! How builds end.

use super::*;

#[test]
fn a_finished_build_frees_its_core_before_its_outputs_are_available() {
    for (outcome, started) in [
        (Outcome::Built { core_seconds: 1.0 }, vec![NEXT]),
        (Outcome::Lost, vec![LONG]),
        (Outcome::Failed, vec![]),
    ] {
        let mut scheduler = scheduler(1);
        apply(&mut scheduler, 0.0, Event::Begin);
        let freed = Event::Freed { package: LONG, core_seconds: 1.0 };
        assert_eq!(apply(&mut scheduler, 1.0, freed.clone()), [start(SMALL)], "not `next`");
        assert_eq!(apply(&mut scheduler, 2.0, freed), [], "a repeat changes nothing");
        apply(&mut scheduler, 3.0, built(SMALL));
        apply(&mut scheduler, 4.0, built(OTHER));
        let starts = started.into_iter().map(start).collect::<Vec<_>>();
        assert_eq!(apply(&mut scheduler, 5.0, ended(LONG, outcome)), starts, "{outcome:?}");
    }
}
