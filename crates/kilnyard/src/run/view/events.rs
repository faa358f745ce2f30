//! Events for programs: a JSON object for each line of standard output.
//!
//! Decisions are the store's events, so that readers of lines and of the store see the same: a line has the whole
//! envelope, and the keys that lines had before envelopes were introduced. Lines without a sequence number contain data
//! that only this process has, such as a request that was refused.

use super::{Snapshot, View, ViewEvent};
use crate::words::{json_text, now_seconds};
use kilnyard_store::{Event, EventKind};
use serde_json::{Map, Value, json};
use std::io::Write;

/// See the module documentation.
pub struct Events {
    out: Box<dyn Write + Send>,
}

impl Events {
    /// Events on this output.
    pub fn new(out: Box<dyn Write + Send>) -> Events {
        Events { out }
    }

    fn print(&mut self, line: &Value) {
        // Without a reader the run continues.
        let _ = writeln!(self.out, "{}", json_text(line));
    }
}

/// An event with the keys that lines had before envelopes were introduced.
fn line(event: &Event, snapshot: &Snapshot) -> Value {
    let ids = &event.ids;
    let earlier = match &event.kind {
        EventKind::RunBegan { is_resumed, cores, expected_seconds, .. } => json!({
            "resumed": is_resumed,
            "cores": cores,
            "slots": snapshot.slots,
            "expected_seconds": expected_seconds,
        }),
        EventKind::RunEnded { state } => json!({ "state": state }),
        EventKind::Package { state, reason, .. } => {
            json!({ "package": ids.package, "state": state, "reason": reason.to_string() })
        }
        EventKind::StageEnded { slot, result } => {
            json!({ "package": ids.package, "build": ids.build, "slot": slot, "result": result })
        }
        EventKind::BuildEnded { version, slot, outcome, failure, is_reproducible } => json!({
            "package": ids.package,
            "build": ids.build,
            "slot": slot,
            "version": version,
            "ok": outcome.is_good(),
            "failure": failure,
            "reproducible": is_reproducible,
        }),
        EventKind::StageBegan { stage } => {
            let slot =
                snapshot.builds.iter().find(|seen| Some(seen.build) == ids.build).map(|seen| seen.slot);
            json!({ "package": ids.package, "build": ids.build, "slot": slot, "stage": stage })
        }
        EventKind::BuildBegan { .. }
        | EventKind::Requested { .. }
        | EventKind::Published { .. }
        | EventKind::Worker { .. }
        | EventKind::Unknown => json!({}),
    };
    let mut fields = fields(serde_json::to_value(event).unwrap_or_default());
    let kind = fields.get("type").cloned().unwrap_or_default();
    fields.insert("event".to_owned(), kind);
    fields.insert("run".to_owned(), snapshot.run.into());
    fields.insert("at_seconds".to_owned(), event.at.into());
    for (key, value) in self::fields(earlier) {
        fields.insert(key, value);
    }
    Value::Object(fields)
}

fn fields(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

impl View for Events {
    fn see(&mut self, seen: &ViewEvent, snapshot: &Snapshot) {
        let mut line = match seen {
            ViewEvent::Decided(event) => return self.print(&line(event, snapshot)),
            ViewEvent::Asked(request) => {
                json!({ "event": "asked", "request": request.kind.as_str(), "package": request.package })
            }
            ViewEvent::Refused { request, reason } => json!({
                "event": "refused",
                "request": request.kind.as_str(),
                "package": request.package,
                "reason": reason,
            }),
            ViewEvent::Quarantined { worker, reason } => {
                json!({ "event": "quarantined", "worker": worker, "reason": reason })
            }
            ViewEvent::Differs { package, message } => {
                json!({ "event": "differs", "package": package, "message": message })
            }
            ViewEvent::DiskFull => json!({ "event": "disk-full" }),
            ViewEvent::Reloading => json!({ "event": "reloading" }),
            ViewEvent::Stopping => json!({ "event": "stopping" }),
            // The store's events report these.
            ViewEvent::Began | ViewEvent::State { .. } | ViewEvent::BuildEnded(..) | ViewEvent::Ended(_) => {
                return;
            }
        };
        if let Value::Object(fields) = &mut line {
            fields.insert("run".to_owned(), snapshot.run.into());
            fields.insert("at_seconds".to_owned(), now_seconds().into());
        }
        self.print(&line);
    }

    fn tick(&mut self, _snapshot: &Snapshot) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::follow::Follower;
    use kilnyard_model::reason::Reason;
    use kilnyard_model::result::PackageState;
    use kilnyard_store::{Holder, PackageRow, Record, RequestKind, RunRow, RunState, Store};
    use kilnyard_store_sqlite::Sqlite;
    use std::sync::{Arc, Mutex};
    use std::time::Instant;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn run_row() -> RunRow {
        RunRow {
            number: 0,
            started_seconds: 100.0,
            ended_seconds: None,
            state: RunState::Running,
            plan_digest: String::new(),
            cores: 8,
            slots: 3,
            expected_seconds: 60.0,
            bound_seconds: 50.0,
            forced: None,
            commits: Vec::new(),
        }
    }

    #[test]
    fn lines_are_the_events_of_the_store_with_the_keys_of_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kilnyard.db");
        let target = "any/linux/one/amd64".parse().unwrap();
        let open = || Sqlite::open(&path, &target).unwrap();
        let mut store = open();
        store.lead(&Holder::named("test")).unwrap();
        let before = store.begin_run(&run_row(), &[]).unwrap();
        let lines = Lines::default();
        let mut view = Events::new(Box::new(lines.clone()));
        let mut follower = Follower::new(Box::new(open())).unwrap();
        // An earlier run was killed.
        store
            .record(&[Record::Run { run: before, state: RunState::Interrupted, at_seconds: 101.0 }])
            .unwrap();
        let row = PackageRow {
            name: "a".to_owned(),
            version: "1".to_owned(),
            state: PackageState::Waiting,
            reason: Reason::Undecided,
            blamed: None,
            estimate_seconds: 1.0,
            rank_seconds: 1.0,
        };
        let run = store.begin_run(&run_row(), &[row]).unwrap();
        let snapshot = Snapshot {
            run,
            is_resumed: false,
            started: Instant::now(),
            cores: 8,
            slots: 4,
            expected_seconds: 60.0,
            counts: Vec::new(),
            builds: Vec::new(),
            remaining_path_seconds: 0.0,
            bytes_fetched: 0,
            work_seconds: (0.0, 0.0),
            ready: Vec::new(),
            failed: Vec::new(),
        };
        let mut follow = |view: &mut Events| {
            let next = || Some(follower.next(run)).filter(|events| !events.is_empty());
            for event in std::iter::from_fn(next).flatten() {
                view.see(&ViewEvent::Decided(&event), &snapshot);
            }
        };
        view.see(&ViewEvent::Began, &snapshot);
        follow(&mut view);
        view.see(&ViewEvent::DiskFull, &snapshot);
        store.request(RequestKind::Skip, "a", "ann", 102.0).unwrap();
        for at in 0..600 {
            let change = Record::Package {
                run,
                name: "a".to_owned(),
                state: PackageState::Waiting,
                reason: Reason::FirstBuild,
                blamed: None,
                at_seconds: 103.0 + f64::from(at),
            };
            store.record(&[change]).unwrap();
        }
        follow(&mut view);
        store.record(&[Record::Run { run, state: RunState::Finished, at_seconds: 999.0 }]).unwrap();
        follow(&mut view);
        view.see(&ViewEvent::Ended(RunState::Finished), &snapshot);
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let kinds: Vec<_> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
        assert_eq!(kinds[..4], ["run-began", "disk-full", "requested", "package"]);
        assert_eq!((kinds.len(), kinds.last()), (604, Some(&"run-ended")));
        assert!(lines.iter().all(|line| line["run"] == run && line["at_seconds"].is_f64()));
        assert!(lines[1].get("seq").is_none(), "not a decision");
        let seqs: Vec<_> = lines.iter().filter_map(|line| line["seq"].as_u64()).collect();
        assert!(seqs.len() == 603 && seqs.is_sorted_by(|one, next| one < next));
        let package = &lines[3];
        assert_eq!((&package["package"], &package["state"]), (&"a".into(), &"waiting".into()));
        assert_eq!((&package["reason"], &package["at"]), (&"first build".into(), &103.0.into()));
        assert_eq!(package["body"]["reason"]["kind"], "first-build");
        assert_eq!((&lines[0]["slots"], &lines[0]["resumed"]), (&4.into(), &false.into()));
        assert_eq!(lines[603]["state"], "finished");
        // A line can be read as an event.
        let event: Event = serde_json::from_value(package.clone()).unwrap();
        assert_eq!(event.ids.package.as_deref(), Some("a"));
    }
}
