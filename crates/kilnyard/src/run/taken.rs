//! Builds of a killed run that workers on other machines still have: the resumed run takes them over.
//!
//! A build is taken over only if its package would be built the same way now. The order is therefore made again, and its
//! key compared with the recorded one. All other open builds are lost.

use super::door::roster_folder;
use super::host_name;
use crate::plan::Planned;
use crate::signals;
use crate::yard::Yard;
use kilnyard_coordinator::{Open, Start, next_revision};
use kilnyard_farm::roster::Roster;
use kilnyard_mirror::{FileStore, Sha256Hex, Wanted};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::order::{BuildOrder, Input};
use kilnyard_model::result::{BuildOutcome, PackageState};
use kilnyard_store::{BuildRow, PackageRow};
use std::sync::Arc;

/// See the module documentation.
pub struct TakenOver {
    /// The build.
    pub open: Open,
    /// Its order, as the killed run sent it.
    pub order: BuildOrder,
    /// As the killed run recorded it.
    pub row: BuildRow,
}

/// Fetches what builds that were taken over read, in a thread of its own: another machine's run fetched it there. The door
/// asks workers to try again until it is here.
pub fn fetch_inputs(taken: &[TakenOver], distfiles: &Arc<FileStore>) {
    let inputs = taken.iter().flat_map(|taken| taken.order.root.inputs.clone());
    let inputs: Vec<Input> = inputs.filter(|input| !input.urls.is_empty()).collect();
    if inputs.is_empty() {
        return;
    }
    let distfiles = distfiles.clone();
    std::thread::spawn(move || {
        for Input { name, sha256, size_bytes, urls } in inputs {
            let Ok(sha256) = Sha256Hex::parse(&sha256) else { continue };
            let wanted = Wanted { urls, sha256, size_bytes, name };
            // The build fails with a reason if it stays missing.
            let _ = distfiles.ensure(&wanted, &|_| {}, signals::cancel());
        }
    });
}

/// The open builds of a run that can be taken over, from its builds and packages in the store.
pub fn take_over(
    yard: &Yard,
    planned: &mut Planned,
    (builds, decided): (&[BuildRow], &[PackageRow]),
    starts: &[Start],
) -> Vec<TakenOver> {
    let own = host_name();
    // The machine of an earlier leader builds for that one alone, and is no worker of this one.
    let members = Roster::open(&roster_folder(yard)).and_then(|roster| roster.members()).unwrap_or_default();
    let is_member = |worker: &str| worker != own && members.iter().any(|member| member.name == worker);
    let is_elsewhere =
        |build: &&BuildRow| build.ended_seconds.is_none() && build.worker.as_deref().is_some_and(is_member);
    let take = |build: &BuildRow| {
        let package = planned.workshop.graph().find(&build.package)?;
        let start = starts.get(package.index())?;
        if !start.is_in_run || start.state != PackageState::Waiting {
            return None;
        }
        let (version, published) =
            (planned.workshop.version(package), planned.workshop.published_revision(package));
        let revision = next_revision(start.kept.as_ref(), &version, published);
        let mut order = planned.stock.order(package, revision).ok()?;
        yard.config.tables.complete(&mut order, &planned.traps);
        let is_same = order.key.digest == build.key && order.version == build.version;
        let open = Open {
            build: build.number,
            attempt: build.attempt?,
            worker: build.worker.clone()?,
            slot: build.slot,
            package,
            reason: decided.iter().find(|row| row.name == build.package)?.reason.clone(),
            version: build.version.clone(),
            key: order.key.clone(),
            stages: build.stages.clone(),
            began_seconds: build.started_seconds,
        };
        is_same.then_some(TakenOver { open, order, row: build.clone() })
    };
    builds.iter().filter(is_elsewhere).filter_map(take).collect()
}

/// The attempts whose results were recorded, with their workers: a worker that missed the acknowledgement repeats its
/// result.
pub fn recorded(builds: &[BuildRow]) -> Vec<(Attempt, String)> {
    let has_result = |build: &&BuildRow| {
        build.ended_seconds.is_some() && !matches!(build.outcome, BuildOutcome::Lost | BuildOutcome::Building)
    };
    let named = |build: &BuildRow| Some((build.attempt?, build.worker.clone()?));
    builds.iter().filter(has_result).filter_map(named).collect()
}
