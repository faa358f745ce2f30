//! The configuration of another builder, as `kilnyard init pkgsrc` takes it over.
//!
//! Relative paths in it are taken from the current folder: pbulk's scripts and bob do not leave the folder that they
//! are started in before they open what these paths name. Only bob's own database is beside bob's configuration.

use super::Init;
use crate::pkgsrc::history::import_bob;
use kilnyard_ecosystem::pkgsrc::bob_config::BobConfig;
use kilnyard_ecosystem::pkgsrc::moving::{Moved, Wanted};
use kilnyard_ecosystem::pkgsrc::pbulk_conf::PbulkConf;
use kilnyard_yard::environment::Environment;
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::init::path_text;
use kilnyard_yard::program::Program;
use std::path::{Path, PathBuf};

/// Where pkgsrc's package of bob keeps its databases.
const BOB_DATA: &str = "/var/db/bob";

/// A configuration of another builder.
pub struct Other {
    /// The option that names it.
    pub option: &'static str,
    /// Where it is.
    path: PathBuf,
    /// Where a history may be that bob kept; the first that is there is it.
    histories: Vec<PathBuf>,
}

impl Other {
    /// The one that the command line names, if it names one, and what becomes of it, with absolute paths.
    pub fn named(options: &Init, environment: &Environment) -> Result<Option<(Other, Moved)>> {
        Ok(match (&options.from_pbulk, &options.from_bob) {
            (Some(path), _) => {
                let conf = PbulkConf::parse(&read(path)?).context(Kind::Usage, tried(path))?;
                let other = Other { option: "--from-pbulk", path: path.clone(), histories: Vec::new() };
                Some((other, absolute(conf.moved())?))
            }
            (None, Some(path)) => {
                let config = BobConfig::parse(&read(path)?).context(Kind::Usage, tried(path))?;
                let database = config.get("options.dbdir").map(PathBuf::from);
                let histories = histories(Path::new(&path_text(path)?), database, environment);
                let other = Other { option: "--from-bob", path: path.clone(), histories };
                Some((other, absolute(config.moved())?))
            }
            (None, None) => None,
        })
    }

    /// What a person should know of what was carried over, in lines.
    pub fn report(&self, moved: &Moved) -> Vec<String> {
        let (carried, refused) = (moved.carried.len(), moved.not_carried.len());
        let path = self.path.display();
        let end = if refused == 0 { "." } else { ":" };
        let head = format!("{carried} settings of {path} are carried over, and {refused} are not{end}");
        let line = |line: usize, name: &str, reason: &str| format!("line {line}, {name}: {reason}");
        let refused =
            moved.not_carried.iter().map(|refused| line(refused.line, &refused.name, &refused.reason));
        std::iter::once(head).chain(refused).collect()
    }

    /// Imports the times that bob kept, if it kept any. The yard is valid without them, so that a history that cannot
    /// be read is only told.
    pub fn import_history(&self, folder: &Path, program: &dyn Program) -> Result<()> {
        let Some(first) = self.histories.first() else { return Ok(()) };
        let Some(history) = self.histories.iter().find(|path| path.exists()) else {
            say!(program, "there is no history of bob at {}, so no times are imported", first.display());
            return Ok(());
        };
        if let Err(error) = import_bob(&program.yard_in(folder)?, history, program) {
            let said: Vec<String> = std::iter::once(error.message).chain(error.causes).collect();
            say!(program, "warning: {}", said.join(": "));
        }
        Ok(())
    }
}

fn tried(path: &Path) -> String {
    format!("read {}", path.display())
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).context(Kind::Usage, tried(path))
}

fn absolute(mut moved: Moved) -> Result<Moved> {
    for (_, value) in moved.values.iter_mut().filter(|(key, _)| key.is_path()) {
        *value = path_text(Path::new(value))?;
    }
    if let Some(Wanted::File(file)) = &mut moved.wanted {
        *file = path_text(Path::new(file))?;
    }
    Ok(moved)
}

/// Where bob's history may be: in the folder that the configuration names, relative to its own; else in the one of
/// bob's documentation, of bob 1.0, or of its package in pkgsrc.
fn histories(config: &Path, database: Option<PathBuf>, environment: &Environment) -> Vec<PathBuf> {
    let beside = config.parent().unwrap_or(Path::new("/"));
    let mut folders = match database {
        Some(database) => vec![beside.join(database)],
        None => {
            let home = || Some(Path::new(environment.get("HOME")?).join(".local/share"));
            let data = environment.get("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
            let data = data.map(|data| data.join("bob"));
            [beside.join("db")].into_iter().chain(data).chain([PathBuf::from(BOB_DATA)]).collect()
        }
    };
    folders.iter_mut().for_each(|folder| folder.push("history.db"));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_where_the_configuration_says() {
        let environment = Environment::new([("HOME".to_owned(), "/home/a".to_owned())]);
        let of = |database: Option<&str>| {
            histories(Path::new("/etc/bob/config.lua"), database.map(PathBuf::from), &environment)
        };
        assert_eq!(of(Some("state")), [Path::new("/etc/bob/state/history.db")]);
        assert_eq!(of(Some("/state")), [Path::new("/state/history.db")]);
        let searched = of(None);
        assert_eq!(searched[1], Path::new("/home/a/.local/share/bob/history.db"));
        assert_eq!(searched.first().map(PathBuf::as_path), Some(Path::new("/etc/bob/db/history.db")));
        assert_eq!(searched.last().map(PathBuf::as_path), Some(Path::new("/var/db/bob/history.db")));
    }
}
