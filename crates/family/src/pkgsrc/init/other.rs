//! Imports the configuration of another builder for `kilnyard init pkgsrc`.
//!
//! Relative paths in it are relative to the current folder: pbulk's scripts and bob open these paths before they
//! leave the folder in which they were started. Only bob's own database is relative to bob's configuration file.

use super::Init;
use crate::pkgsrc::history::import_bob;
use kilnyard_ecosystem::pkgsrc::bob_config::BobConfig;
use kilnyard_ecosystem::pkgsrc::import::{Imports, Wanted};
use kilnyard_ecosystem::pkgsrc::pbulk_conf::PbulkConf;
use kilnyard_yard::environment::Environment;
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::init::path_text;
use kilnyard_yard::program::Program;
use kilnyard_yard::words;
use std::path::{Path, PathBuf};

/// Database folder of bob's package in pkgsrc.
const BOB_DATA: &str = "/var/db/bob";

/// A configuration file of another builder.
pub struct Other {
    /// The option that names the file.
    pub option: &'static str,
    path: PathBuf,
    /// Where bob's history may be; the first path that exists is used.
    histories: Vec<PathBuf>,
}

impl Other {
    /// Reads the configuration that the command line names, if any, and converts it, with absolute paths.
    pub fn named(options: &Init, environment: &Environment) -> Result<Option<(Other, Imports)>> {
        Ok(match (&options.from_pbulk, &options.from_bob) {
            (Some(path), _) => {
                let conf = PbulkConf::parse(&read(path)?).context(Kind::Usage, tried(path))?;
                let other = Other { option: "--from-pbulk", path: path.clone(), histories: Vec::new() };
                Some((other, absolute(conf.imports())?))
            }
            (None, Some(path)) => {
                let config = BobConfig::parse(&read(path)?).context(Kind::Usage, tried(path))?;
                let database = config.get("options.dbdir").map(PathBuf::from);
                let histories = histories(Path::new(&path_text(path)?), database, environment);
                let other = Other { option: "--from-bob", path: path.clone(), histories };
                Some((other, absolute(config.imports())?))
            }
            (None, None) => None,
        })
    }

    /// Lines for the user: how many settings were imported, and why others were not.
    pub fn report(&self, imports: &Imports) -> Vec<String> {
        let imported = words::count(imports.imported.len() as u64, "setting");
        let refused = imports.not_imported.len();
        let path = self.path.display();
        let head = match refused {
            0 => format!("imported {imported} from {path}"),
            _ => format!("imported {imported} from {path}; {refused} not imported:"),
        };
        let line = |line: usize, name: &str, reason: &str| format!("line {line}, {name}: {reason}");
        let refused =
            imports.not_imported.iter().map(|refused| line(refused.line, &refused.name, &refused.reason));
        std::iter::once(head).chain(refused).collect()
    }

    /// Imports bob's build times, if there are any. The yard is valid without them, so an unreadable history is only a
    /// warning.
    pub fn import_history(&self, folder: &Path, program: &dyn Program) -> Result<()> {
        let Some(first) = self.histories.first() else { return Ok(()) };
        let Some(history) = self.histories.iter().find(|path| path.exists()) else {
            say!(program, "no history of bob found at {}; no times were imported", first.display());
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

fn absolute(mut imports: Imports) -> Result<Imports> {
    for (_, value) in imports.values.iter_mut().filter(|(key, _)| key.is_path()) {
        *value = path_text(Path::new(value))?;
    }
    if let Some(Wanted::File(file)) = &mut imports.wanted {
        *file = path_text(Path::new(file))?;
    }
    Ok(imports)
}

/// Possible paths of bob's history: in the folder that the configuration names, relative to the configuration's own
/// folder; else in the folder of bob's documentation, the default of bob 1.0, or that of its package in pkgsrc.
fn histories(config: &Path, database: Option<PathBuf>, environment: &Environment) -> Vec<PathBuf> {
    let config_folder = config.parent().unwrap_or(Path::new("/"));
    let mut folders = match database {
        Some(database) => vec![config_folder.join(database)],
        None => {
            let home = || Some(Path::new(environment.get("HOME")?).join(".local/share"));
            let data = environment.get("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
            let data = data.map(|data| data.join("bob"));
            [config_folder.join("db")].into_iter().chain(data).chain([PathBuf::from(BOB_DATA)]).collect()
        }
    };
    folders.iter_mut().for_each(|folder| folder.push("history.db"));
    folders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_history_is_in_the_configured_folder_or_a_default() {
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
