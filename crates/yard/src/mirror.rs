//! How mirrors are asked, and where what they give is kept.

use crate::environment::Environment;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::Yard;
use kilnyard_mirror::{AttemptError, Client, DistfileStore, FetchError, Limits};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// The largest `InRelease` that is taken; Debian's have 150 kB.
pub const RELEASE_BYTES_MAX: u64 = 16 << 20;

/// How long `init` waits for a mirror: long enough for one that answers, and short for a person without a network.
const ASKED_ONCE: Duration = Duration::from_secs(5);

/// A client with the yard's limits.
pub fn client(yard: &Yard) -> Client {
    client_of(&yard.config.root().mirror.all(), limits(yard), &yard.environment)
}

/// A client with the environment's proxy.
fn client_of(mirrors: &[String], limits: Limits, environment: &Environment) -> Client {
    let uses_http = mirrors.iter().any(|mirror| mirror.starts_with("http:"));
    let names: &[&str] =
        if uses_http { &["http_proxy", "HTTP_PROXY"] } else { &["https_proxy", "HTTPS_PROXY"] };
    let proxy = names.iter().find_map(|name| environment.get(name)).filter(|proxy| !proxy.is_empty());
    proxy
        .and_then(|proxy| Client::with_proxy(limits.clone(), proxy).ok())
        .unwrap_or_else(|| Client::new(limits))
}

fn limits(yard: &Yard) -> Limits {
    Limits { speed_min_bytes_per_second: yard.config.build.mirror_bytes_per_second_min, ..Limits::default() }
}

/// The yard's distfiles.
pub fn open_distfiles(yard: &Yard) -> Result<DistfileStore> {
    DistfileStore::open_with(&yard.path("distfiles"), client(yard))
        .context(Kind::Machine, "open the yard's distfiles")
}

/// Asks the mirror for the release; the address that answered.
pub fn ask(yard: &Yard, cancel: &AtomicBool) -> Result<String> {
    let root = yard.config.root();
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
            failed.hint("kilnyard doctor, which asks the mirror of kilnyard.toml")
        }
    };
    match yard.path("index/index.json").exists() {
        true => failed.hint("kilnyard build --no-scan, which uses the index of the last scan"),
        false => failed,
    }
}

/// Whether each mirror answered that it does not have the file.
pub fn is_absent(error: &FetchError) -> bool {
    match error.root() {
        FetchError::Failed { failed, .. } => {
            failed.iter().all(|attempt| matches!(attempt.error, AttemptError::Status { code: 404 | 410 }))
        }
        _ => false,
    }
}
