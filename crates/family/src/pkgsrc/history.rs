//! `kilnyard history --import-bob`: times of another builder.

use super::Pkgsrc;
use super::bob_history::{self, BobBuild};
use kilnyard_store::Store;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::program::Program;
use kilnyard_yard::yard::{Yard, store_error};
use std::path::Path;

/// Imports the times of the last successful build of each package that bob built.
pub fn import_bob(yard: &Yard, file: &Path, program: &dyn Program) -> Result<()> {
    if yard.config.family.of::<Pkgsrc>().is_none() {
        let title = yard.config.family.title();
        return Err(Error::usage(format!("this is a yard of {title}, and bob builds packages of pkgsrc")));
    }
    let _lock = yard.lock()?;
    let builds = bob_history::last_builds(file).context(Kind::Usage, "import times")?;
    yard.store()?.import_durations(&durations(&builds)).map_err(store_error)?;
    say!(program, "imported the times of {} packages from {}", builds.len(), file.display());
    Ok(())
}

/// The times of builds, the oldest first, by the names that packages have in a yard: that of their directory, or with
/// their own behind it where a directory makes several. Which of the two it is only a scan can tell, so both are kept.
fn durations(builds: &[BobBuild]) -> Vec<(String, f64, f64)> {
    let names = |build: &BobBuild| [build.location.clone(), format!("{}:{}", build.location, build.base)];
    let named = |build| names(build).map(|name| (name, build.wall_seconds, build.cpu_seconds));
    builds.iter().flat_map(named).collect()
}
