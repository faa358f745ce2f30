//! Requests to Debian archives, and the errors and hints when they fail.

use super::config::DebianRoot;
use kilnyard_mirror::{Client, FetchError, Fetched, Limits};
use kilnyard_yard::environment::Environment;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::mirror::{client, client_of, is_absent};
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::yard::Yard;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The largest accepted `InRelease`; Debian's have 150 kB.
pub const RELEASE_BYTES_MAX: u64 = 16 << 20;

/// How long `init` waits for a mirror: long enough for one that responds, short enough for a user without a network.
pub const ASKED_ONCE: Duration = Duration::from_secs(5);

/// Fetches the release's `InRelease` and returns the mirrors, without passwords.
pub fn ask(yard: &Yard, root: &DebianRoot, cancel: &AtomicBool) -> Result<String> {
    let urls: Vec<String> =
        root.mirror.all().iter().map(|m| format!("{m}/dists/{}/InRelease", root.release)).collect();
    let name = format!("the Release file of {}", root.release);
    let asked = client(yard).fetch_bytes(&name, &urls, RELEASE_BYTES_MAX, None, cancel);
    asked.map_err(|error| unreachable_mirror(error, yard, Asked::Suite(&root.release)))?;
    Ok(root.mirror.shown())
}

/// A client that gives up at the first failure, and on a server that sends nothing for this long.
pub fn quick_client(mirrors: &[String], patience: Duration, environment: &Environment) -> Client {
    let limits = Limits { connect_max: patience, patience, attempts_max: 1, ..Limits::default() };
    client_of(mirrors, limits, environment)
}

/// Fetches a release's `InRelease` from one mirror, without retries; an error if that fails.
pub fn find_release(
    mirror: &str,
    release: &str,
    environment: &Environment,
    cancel: &AtomicBool,
) -> std::result::Result<Fetched, FetchError> {
    let urls = [format!("{}/dists/{release}/InRelease", mirror.trim_end_matches('/'))];
    let client = quick_client(&[mirror.to_owned()], ASKED_ONCE, environment);
    let name = format!("the Release file of {release}");
    client.fetch_bytes(&name, &urls, RELEASE_BYTES_MAX, None, cancel)
}

/// The file that was requested from a mirror.
#[derive(Clone, Copy, Debug)]
pub enum Asked<'a> {
    /// The `Release` file of this suite.
    Suite(&'a str),
    /// A file that the `Release` file of this suite lists.
    File(&'a str),
}

/// The error if a mirror does not deliver a requested file.
pub fn unreachable_mirror(error: FetchError, yard: &Yard, asked: Asked<'_>) -> Error {
    if matches!(error, FetchError::Cancelled { .. }) {
        return Error::new(Kind::Interrupted, "interrupted; the files fetched so far are kept");
    }
    let is_absent = is_absent(&error);
    let (Asked::Suite(suite) | Asked::File(suite)) = asked;
    let failed =
        Err::<(), _>(error).context(Kind::Machine, format!("read {suite} from the mirror")).unwrap_err();
    if !failed.hints.is_empty() {
        // The cause is on this machine, and the hint addresses it.
        return failed;
    }
    let failed = match asked {
        Asked::Suite(suite) if is_absent => failed.hint(format!(
            "release, suites and mirror in kilnyard.toml: the mirror has no {suite}; use the codename of a release, such as \
             bookworm"
        )),
        Asked::File(_) if is_absent => failed.hint(
            "the same command in a few minutes, or another mirror: a mirror that is being updated lists files that it does \
             not have yet",
        ),
        Asked::Suite(_) | Asked::File(_) => {
            failed.hint(Remedy::command("doctor").then(", which checks the mirror of kilnyard.toml"))
        }
    };
    match yard.path("index/index.json").exists() {
        true => {
            failed.hint(Remedy::command("build --no-scan").then(", which uses the index of the last scan"))
        }
        false => failed,
    }
}
