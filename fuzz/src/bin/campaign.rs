//! Runs one target under libFuzzer; `run` beside the manifest builds it and says how.
#![no_main]

use kilnyard_fuzz::{TARGETS, Target};
use std::sync::LazyLock;

/// libFuzzer owns the command line, so the target's name comes another way.
static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("KILNYARD_FUZZ_TARGET").unwrap_or_default();
    *TARGETS.iter().find(|(known, _)| *known == name).expect("KILNYARD_FUZZ_TARGET is the name of a target")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET.1(data));
