//! `kilnyard history --import-bob`: imports build times of another builder.

use super::Pkgsrc;
use super::bob_history::{self, BobBuild};
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::program::Program;
use kilnyard_yard::words;
use kilnyard_yard::yard::{Yard, store_error};
use std::path::Path;

/// Imports the times of the last successful build of each package that bob built.
pub fn import_bob(yard: &Yard, file: &Path, program: &dyn Program) -> Result<()> {
    if yard.config.family.of::<Pkgsrc>().is_none() {
        let title = yard.config.family.title();
        return Err(Error::usage(format!("this is a yard of {title}, but bob builds packages of pkgsrc")));
    }
    let _lock = yard.lock()?;
    let builds = bob_history::last_builds(file).context(Kind::Usage, "import times")?;
    yard.store()?.import_durations(&durations(&builds)).map_err(store_error)?;
    let count = words::count(builds.len() as u64, "package");
    say!(program, "imported the times of {count} from {}", file.display());
    Ok(())
}

/// The times of builds, oldest first, by the name of the package in a yard: its directory, or directory and package
/// name if a directory makes several packages. Only a scan shows which of the two applies, so both are kept.
fn durations(builds: &[BobBuild]) -> Vec<(String, f64, f64)> {
    let names = |build: &BobBuild| [build.location.clone(), format!("{}:{}", build.location, build.base)];
    let named = |build| names(build).map(|name| (name, build.wall_seconds, build.cpu_seconds));
    builds.iter().flat_map(named).collect()
}
