//! The bound on the folder of a worker on another machine.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, slow};
use crate::support::farm::{Far, Served};
use crate::support::{Yard, until};
use serde_json::Value;
use std::fs;
use std::path::PathBuf;

pub const CASES: &[Trial] = &[("a_worker_keeps_no_more_than_its_bound_and_what_is_needed", bounded)];

/// The worker, as `workers --json` describes it.
fn worker(yard: &Yard) -> Value {
    yard.run(&["workers", "--json"]).exits(0).json()["workers"][0].clone()
}

fn number(worker: &Value, name: &str) -> u64 {
    worker["holdings"][name].as_u64().unwrap_or_default()
}

fn bounded(shared: &Shared) {
    let broken = Fixture { needs: "lib", ..slow("broken", "false") };
    let yard = shared.yard("farm-bound", &[good("lib", ""), good("app", "lib"), broken]);
    let served = Served::start(&yard);
    let mut far = Far::join(&shared.path("workers"), &yard, &served, "far");
    yard.run(&["build", "--no-scan", "--elsewhere"]).exits(1).says(&["2 built", "1 failed"]);
    assert!(!yard.path("state/shared").exists());
    until("the worker says what it keeps", || number(&worker(&yard), "layers") > 0);
    let kept = worker(&yard);
    assert!(number(&kept, "files") > 0 && number(&kept, "bytes") > number(&kept, "layers_bytes"), "{kept}");
    // It is on this machine.
    assert_eq!(kept["differences"], serde_json::json!([]), "{kept}");
    yard.run(&["workers"]).exits(0).says(&["keeps: all of the yard's base roots, ", " in all"]);
    // With hardly any room, only what the root of the failed build needs stays.
    far.signal(libc::SIGINT);
    far.start(&yard, &["--keep", "1"]);
    let mut less = Value::Null;
    until("the worker keeps less", || {
        less = worker(&yard);
        number(&less, "layers") > 0 && number(&less, "files") == 0
    });
    assert!(number(&less, "bytes") < number(&kept, "bytes"), "{less}: {}", far.said());
    assert!(far.said().contains("the least recently used"), "{}", far.said());
    let folder = far.folder.join("worker");
    let layers = fs::read_to_string(folder.join("roots/failed-broken/layers")).unwrap();
    let layers: Vec<PathBuf> = layers.lines().map(|layer| folder.join(layer)).collect();
    assert!(layers.len() > 1 && layers.iter().all(|layer| layer.is_dir()), "{layers:?}");
    yard.run(&["shell", "broken", "--", "test", "-e", "/usr/bin/dpkg"]).exits(0);
    // No build fits.
    let mut build = yard.start(&["build", "--no-scan", "--elsewhere", "--force", "app"]);
    until("the build fails", || far.said().contains("start that with a larger --keep"));
    build.signal(libc::SIGINT);
    build.end();
    // With room, what is missing is sent again.
    far.signal(libc::SIGINT);
    far.start(&yard, &["--keep", "50G"]);
    yard.run(&["build", "--no-scan", "--elsewhere", "--force", "app"]).exits(0);
    drop(served);
    assert!(yard.is_clean());
}
