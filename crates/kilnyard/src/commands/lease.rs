//! `kilnyard lease`: exports the lease of one build, with everything it needs, for a worker without a yard.

use crate::cli;
use crate::error::{Context, Error, Kind, Result};
use crate::plan::{self, Forced};
use crate::yard::{Yard, store_error};
use crate::{lease, mirror, signals};
use kilnyard_artifacts::Folder;
use kilnyard_mirror::{Sha256Hex, Wanted};
use kilnyard_model::attempt::Attempt;
use kilnyard_model::result::StageSeen;
use kilnyard_protocol::{Lease, encode};
use kilnyard_schedule::Files;
use kilnyard_yard::remedy::Remedy;
use std::process::ExitCode;

/// The file name of the lease in its folder.
pub const FILE: &str = "lease.json";

/// The number of earlier builds used to estimate the stages.
const BUILDS_SEEN: usize = 5;

pub fn run(yard: &Yard, options: &cli::Lease) -> Result<ExitCode> {
    signals::install();
    let _lock = yard.lock()?;
    let say = |text: &str| say!("{text}");
    yard.config.family.ensure_layers(yard, &yard.ids(), signals::cancel(), &say)?;
    let distfiles = mirror::open_files(yard)?;
    let mut store = yard.store()?;
    let mut planned = plan::make(yard, &distfiles, &mut *store, &Forced::Nothing)?;
    let (set, package) = (&planned.workshop, &options.package);
    let Some(id) = set.graph().find(package) else {
        let known: Vec<String> = set.graph().packages().map(|id| set.graph().name(id).to_owned()).collect();
        return Err(plan::reused(&**set, package).unwrap_or_else(|| super::unknown_package(package, &known)));
    };
    for needed in set.graph().ancestors(id) {
        let name = set.graph().name(needed);
        if store.current(name).map_err(store_error)?.is_none() {
            return Err(Error::usage(format!("{package} needs {name}, which is not built"))
                .hint(Remedy::command(format!("build {package}")).then(", which builds that first")));
        }
    }
    let kept = store.current(package).map_err(store_error)?;
    let kept = kept.filter(|kept| kept.recipe_version == set.version(id)).map_or(0, |kept| kept.revision);
    let order = planned.stock.order(id, kept.max(set.published_revision(id)) + 1);
    let mut order = order.map_err(|impossible| Error::usage(impossible.explanation))?;
    yard.config.tables.complete(&mut order, &planned.traps);
    // The worker that performs it belongs to no pool, whose kept work it could share.
    order.keep = None;
    for input in order.root.inputs.iter().filter(|input| !input.urls.is_empty()) {
        let sha256 =
            Sha256Hex::parse(&input.sha256).context(Kind::Machine, format!("find {}", input.name))?;
        let (urls, size_bytes, name) = (input.urls.clone(), input.size_bytes, input.name.clone());
        let wanted = Wanted { urls, sha256, size_bytes, name };
        distfiles.ensure(&wanted, &|_| {}, signals::cancel()).context(Kind::Machine, "fetch its inputs")?;
    }
    let failed = format!("write the lease into {}", options.to.display());
    let to = Folder::open(&options.to).context(Kind::Usage, &failed)?;
    let builds = store.builds_of(package, BUILDS_SEEN).map_err(store_error)?;
    let lease = Lease {
        build: store.next_build().map_err(store_error)?,
        attempt: Attempt::from_bytes(rand::random()),
        rank_seconds: 0.0,
        run: 0,
        slot: 0,
        files: Files::Disk,
        written_bytes: planned.written_bytes(id),
        order: lease::complete(yard, &distfiles, order, &to)?,
        seen: StageSeen::of(builds.iter().flat_map(|build| &build.stages)),
        checks_reproducible: false,
        to_test: None,
        is_captured: false,
        to_check: Vec::new(),
    };
    let path = options.to.join(FILE);
    fs_err::write(&path, encode(&lease).or_internal(&failed)?).context(Kind::Machine, &failed)?;
    let folder = options.to.display();
    say!(
        "{package} {}: kilnyard worker --lease {} --artifacts {folder}",
        lease.order.version,
        path.display()
    );
    Ok(ExitCode::SUCCESS)
}
