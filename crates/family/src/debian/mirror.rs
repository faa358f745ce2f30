//! How archives are asked.

use super::config::DebianRoot;
use kilnyard_mirror::{FetchError, Limits};
use kilnyard_yard::environment::Environment;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::mirror::{client, client_of, is_absent};
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::yard::Yard;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The largest `InRelease` that is taken; Debian's have 150 kB.
pub const RELEASE_BYTES_MAX: u64 = 16 << 20;

/// How long `init` waits for a mirror: long enough for one that answers, and short for a person without a network.
const ASKED_ONCE: Duration = Duration::from_secs(5);

/// Asks the mirror for the release; the address that answered.
pub fn ask(yard: &Yard, root: &DebianRoot, cancel: &AtomicBool) -> Result<String> {
    let urls: Vec<String> =
        root.mirror.all().iter().map(|m| format!("{m}/dists/{}/InRelease", root.release)).collect();
    let name = format!("the Release file of {}", root.release);
    let asked = client(yard).fetch_bytes(&name, &urls, RELEASE_BYTES_MAX, None, cancel);
    asked.map_err(|error| unreachable_mirror(error, yard, Asked::Suite(&root.release)))?;
    Ok(root.mirror.shown())
}

/// Asks a mirror once for a release; an error where it is not had.
pub fn find_release(
    mirror: &str,
    release: &str,
    environment: &Environment,
    cancel: &AtomicBool,
) -> std::result::Result<(), FetchError> {
    let limits =
        Limits { connect_max: ASKED_ONCE, patience: ASKED_ONCE, attempts_max: 1, ..Limits::default() };
    let urls = [format!("{}/dists/{release}/InRelease", mirror.trim_end_matches('/'))];
    let client = client_of(&[mirror.to_owned()], limits, environment);
    let name = format!("the Release file of {release}");
    client.fetch_bytes(&name, &urls, RELEASE_BYTES_MAX, None, cancel).map(drop)
}

/// What a mirror was asked for.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// The `Release` file of this suite.
    Suite(&'a str),
    /// A file that the `Release` file of this suite lists.
    File(&'a str),
}

/// The error for a mirror that does not give what it was asked for.
pub fn unreachable_mirror(error: FetchError, yard: &Yard, asked: Asked<'_>) -> Error {
    if matches!(error, FetchError::Cancelled { .. }) {
        return Error::new(Kind::Interrupted, "interrupted; what was fetched so far is kept");
    }
    let is_absent = is_absent(&error);
    let (Asked::Suite(suite) | Asked::File(suite)) = asked;
    let failed =
        Err::<(), _>(error).context(Kind::Machine, format!("read {suite} from the mirror")).unwrap_err();
    if !failed.hints.is_empty() {
        // The cause is on this machine, and the hint is for that.
        return failed;
    }
    let failed = match asked {
        Asked::Suite(suite) if is_absent => failed.hint(format!(
            "release, suites and mirror in kilnyard.toml: the mirror has no {suite}; a release goes by its codename, such as \
             bookworm"
        )),
        Asked::File(_) if is_absent => failed.hint(
            "the same again in some minutes, or another mirror: one that is being updated lists files that it does not have",
        ),
        Asked::Suite(_) | Asked::File(_) => {
            failed.hint(Remedy::command("doctor").then(", which asks the mirror of kilnyard.toml"))
        }
    };
    match yard.path("index/index.json").exists() {
        true => {
            failed.hint(Remedy::command("build --no-scan").then(", which uses the index of the last scan"))
        }
        false => failed,
    }
}
