//! Runs one target under libFuzzer. Use the script `fuzz/run`, which builds it and passes the target.
#![no_main]

use kilnyard_fuzz::{TARGETS, Target};
use std::sync::LazyLock;

/// libFuzzer parses the command line itself, so the target's name is in a variable.
static TARGET: LazyLock<Target> = LazyLock::new(|| {
    let name = std::env::var("KILNYARD_FUZZ_TARGET").unwrap_or_default();
    *TARGETS.iter().find(|(known, _)| *known == name).expect("KILNYARD_FUZZ_TARGET must name a target")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET.1(data));
