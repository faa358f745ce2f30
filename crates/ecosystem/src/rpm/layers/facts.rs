//! The facts about a package that decide how it becomes a layer.

use crate::Part;
use crate::layering::{OF_PROGRAMS, merged_usr};
use crate::rpm::header::{Header, tag};
use crate::rpm::package_file::{self, FOLDER, FORMAT as FILE_FORMAT};
use crate::rpm::signature;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};
use std::path::Path;

/// Version of the text format: texts of other versions are discarded and read from the package again.
const FORMAT: u32 = 2;
/// What rpm itself runs when it installs a package: the tags of its script and its interpreter.
const SCRIPTLETS: [(&str, u32, u32); 4] = [
    ("%pretrans", tag::BEFORE_TRANSACTION, tag::BEFORE_TRANSACTION_PROGRAM),
    ("%pre", tag::BEFORE, tag::BEFORE_PROGRAM),
    ("%post", tag::AFTER, tag::AFTER_PROGRAM),
    ("%posttrans", tag::AFTER_TRANSACTION, tag::AFTER_TRANSACTION_PROGRAM),
];
/// `RPMFILE_GHOST`: a file that the package owns, but does not have.
const GHOST: u64 = 1 << 6;
/// `RPMSENSE_TRIGGERIN` and `RPMSENSE_TRIGGERPREIN`: triggers for an installation.
const FOR_INSTALLATION: u64 = 1 << 16 | 1 << 25;
/// Kinds of files that layers have: `S_IFREG`, `S_IFDIR`, `S_IFLNK`.
const FILE: u64 = 0o100_000;
const LINK: u64 = 0o120_000;
/// Folders that are not those of a package: what roots have mounted, and rpm's database.
const NOT_OF_PACKAGES: [&str; 6] = ["kilnyard", "proc", "sys", "dev", "var/lib/rpm", "usr/lib/sysimage/rpm"];

/// See the module documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Facts {
    pub format: u32,
    pub name: String,
    pub version: String,
    /// The reason why the package cannot be a layer, if there is one.
    pub reason: Option<String>,
    pub entries: Vec<LayerPath>,
    /// Paths that it owns and does not have, without leading slash: they set off triggers, too.
    pub ghosts: Vec<String>,
    /// Names of what it replaces.
    pub obsoletes: Vec<String>,
    /// Whether it runs ldconfig after its installation.
    pub runs_ldconfig: bool,
    pub triggers: Triggers,
}

/// A path in a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LayerPath {
    /// Without leading slash.
    pub path: String,
    /// Permissions, if it is a folder.
    pub folder: Option<u32>,
}

/// What installations of other packages set off.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::rpm) struct Triggers {
    /// Names of packages.
    pub packages: BTreeSet<String>,
    /// What paths begin with.
    pub files: BTreeSet<FileTrigger>,
}

/// A file trigger.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::rpm) struct FileTrigger {
    pub prefix: String,
    /// Whether it runs ldconfig and nothing else.
    pub is_ldconfig: bool,
    /// The package that has it.
    pub owner: String,
}

/// Reads the main header of a package file; fails with the reason.
pub(in crate::rpm) fn header_of(file: &Path) -> Result<Header, String> {
    let bytes = signature::header_of(file).map_err(|error| error.to_string())?;
    Header::read(&mut &bytes[..]).map_err(|error| error.to_string())
}

impl Triggers {
    /// The triggers of a package.
    pub fn of(header: &Header) -> Triggers {
        let owner = header.text(tag::NAME).unwrap_or_default();
        let names = header.texts(tag::TRIGGER_NAMES);
        let flags = header.numbers(tag::TRIGGER_FLAGS);
        let is_for_installation = |flags: &u64| flags & FOR_INSTALLATION != 0;
        let wanted = names.into_iter().zip(&flags).filter(|(_, flags)| is_for_installation(flags));
        let mut triggers =
            Triggers { packages: wanted.map(|(name, _)| name).collect(), files: BTreeSet::new() };
        for (prefixes, flags, indexes, scripts, programs) in [
            (
                tag::FILE_TRIGGER_NAMES,
                tag::FILE_TRIGGER_FLAGS,
                tag::FILE_TRIGGER_INDEXES,
                tag::FILE_TRIGGER_SCRIPTS,
                tag::FILE_TRIGGER_PROGRAMS,
            ),
            (
                tag::TRANSACTION_TRIGGER_NAMES,
                tag::TRANSACTION_TRIGGER_FLAGS,
                tag::TRANSACTION_TRIGGER_INDEXES,
                tag::TRANSACTION_TRIGGER_SCRIPTS,
                tag::TRANSACTION_TRIGGER_PROGRAMS,
            ),
        ] {
            let (scripts, programs) = (header.texts(scripts), header.texts(programs));
            let of_prefix = header.numbers(flags).into_iter().zip(header.numbers(indexes));
            for (prefix, (flags, index)) in header.texts(prefixes).into_iter().zip(of_prefix) {
                if !is_for_installation(&flags) {
                    continue;
                }
                let text = |texts: &[String]| texts.get(index as usize).map_or("", String::as_str).to_owned();
                let is_ldconfig = is_ldconfig(&text(&programs), &text(&scripts));
                triggers.files.insert(FileTrigger { prefix, is_ldconfig, owner: owner.clone() });
            }
        }
        triggers
    }

    /// Adds those of another package.
    pub fn add(&mut self, other: Triggers) {
        self.packages.extend(other.packages);
        self.files.extend(other.files);
    }

    fn is_empty(&self) -> bool {
        self.packages.is_empty() && self.files.is_empty()
    }
}

/// Whether a script runs ldconfig and nothing else.
fn is_ldconfig(program: &str, script: &str) -> bool {
    const PROGRAMS: [&str; 3] = ["/sbin/ldconfig", "/usr/sbin/ldconfig", "ldconfig"];
    let mut lines = script.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    match program {
        "/bin/sh" => {
            let mut lines = lines.peekable();
            lines.peek().is_some() && lines.all(|line| PROGRAMS.contains(&line))
        }
        _ => PROGRAMS.contains(&program) && lines.next().is_none(),
    }
}

impl Facts {
    /// Reads the facts from a package file.
    pub fn of(file: &Path) -> Result<Facts, String> {
        header_of(file).map(|header| Facts::of_header(&header))
    }

    fn of_header(header: &Header) -> Facts {
        let text = |tag| header.text(tag).unwrap_or_default();
        let epoch = header.number(tag::EPOCH).filter(|epoch| *epoch != 0);
        let epoch = epoch.map_or_else(String::new, |epoch| format!("{epoch}:"));
        let mut facts = Facts {
            format: FORMAT,
            name: text(tag::NAME),
            version: format!("{epoch}{}-{}", text(tag::VERSION), text(tag::RELEASE)),
            obsoletes: header.texts(tag::OBSOLETE_NAMES),
            triggers: Triggers::of(header),
            ..Facts::default()
        };
        match facts.find(header) {
            Ok(()) => facts,
            Err(reason) => Facts { reason: Some(reason), ..facts },
        }
    }

    /// Adds the files and ldconfig; fails with the reason if the package cannot be a layer.
    fn find(&mut self, header: &Header) -> Result<(), String> {
        // Others are compared with the files of those that rpm installs, too.
        let paths = package_file::paths(header).map_err(|error| error.to_string())?;
        let (modes, flags) = (header.numbers(tag::FILE_MODES), header.numbers(tag::FILE_FLAGS));
        if modes.len() != paths.len() || flags.len() != paths.len() {
            return Err("it has another number of files than of their modes".to_owned());
        }
        for ((path, mode), flags) in paths.iter().zip(modes).zip(flags) {
            let Some(path) = path.strip_prefix('/') else {
                return Err(format!("its {path} is no path of a root"));
            };
            let is_below = |folder: &&str| {
                path.strip_prefix(*folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            if NOT_OF_PACKAGES.iter().any(is_below) {
                return Err(format!("it has /{path}"));
            }
            let folder = match mode & FILE_FORMAT {
                FOLDER => Some((mode & 0o7777) as u32),
                FILE | LINK => None,
                _ => return Err(format!("/{path} is neither a file, a folder nor a link")),
            };
            match flags & GHOST == 0 {
                true => self.entries.push(LayerPath { path: path.to_owned(), folder }),
                false => self.ghosts.push(path.to_owned()),
            }
        }
        for (name, script, program) in SCRIPTLETS {
            if !header.has(script) && !header.has(program) {
                continue;
            }
            let text = |tag| header.text(tag).unwrap_or_default();
            match name == "%post" && is_ldconfig(&text(program), &text(script)) {
                true => self.runs_ldconfig = true,
                false => return Err(format!("it has the scriptlet {name}")),
            }
        }
        if !self.triggers.is_empty() {
            return Err("it has triggers for installations".to_owned());
        }
        let owners = header.texts(tag::FILE_USERS).into_iter().chain(header.texts(tag::FILE_GROUPS));
        if let Some(owner) = owners.into_iter().find(|owner| owner != "root") {
            return Err(format!("it has files of {owner}"));
        }
        if header.texts(tag::FILE_CAPABILITIES).iter().any(|text| !text.is_empty()) {
            return Err("it has files with capabilities".to_owned());
        }
        self.stays_in_its_folder()
    }

    /// The work on a layer must not follow a link out of it.
    fn stays_in_its_folder(&self) -> Result<(), String> {
        let others: HashSet<&str> = self
            .entries
            .iter()
            .filter(|entry| entry.folder.is_none())
            .map(|entry| entry.path.as_str())
            .collect();
        for entry in &self.entries {
            if let Some(folder) = above(&entry.path).find(|folder| others.contains(folder)) {
                return Err(format!("it has files below /{folder}, which is not a folder"));
            }
            // The files of /lib are moved below /usr/lib: a link there could lead to the layer of another package.
            let is_of_programs = |path: &str| OF_PROGRAMS.iter().any(|top| path == merged_usr(top));
            if entry.folder.is_none() && (!entry.path.contains('/') || is_of_programs(&entry.path)) {
                return Err(format!("its /{} is not a folder", entry.path));
            }
        }
        Ok(())
    }

    /// A package of these paths, without anything else.
    #[cfg(test)]
    pub fn plain(name: &str, entries: Vec<LayerPath>) -> Facts {
        let (name, version) = (name.to_owned(), "1-1".to_owned());
        Facts { format: FORMAT, name, version, entries, ..Facts::default() }
    }

    /// The facts in a part's description, after checking that they belong to its package.
    pub fn of_part(part: &Part) -> Result<Facts, String> {
        let facts = Facts::parse(part.description)?;
        match facts.name == part.package.name && facts.version == part.package.version {
            true => Ok(facts),
            false => Err(format!("the package identifies itself as {} {}", facts.name, facts.version)),
        }
    }

    /// Parses a description.
    pub fn parse(text: &str) -> Result<Facts, String> {
        let facts: Facts = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match facts.format == FORMAT {
            true => Ok(facts),
            false => Err("its description has the format of another version".to_owned()),
        }
    }
}

/// The folders above a path, the nearest first.
pub(super) fn above(path: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(path.rsplit_once('/').map(|(folder, _)| folder), |folder| {
        folder.rsplit_once('/').map(|(folder, _)| folder)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_stay_in_their_folder() {
        let file = |path: &str| LayerPath { path: path.to_owned(), folder: None };
        let folder = |path: &str| LayerPath { path: path.to_owned(), folder: Some(0o755) };
        let stays = |entries: &[LayerPath]| Facts::plain("x", entries.to_vec()).stays_in_its_folder();
        assert_eq!(stays(&[folder("lib"), file("lib/x"), folder("usr/lib"), file("usr/lib/y")]), Ok(()));
        for (entries, why) in [
            (vec![file("usr/lib"), file("lib/x")], "/usr/lib is not a folder"),
            (vec![file("usr/sbin")], "/usr/sbin is not a folder"),
            (vec![file("usr")], "/usr is not a folder"),
            (vec![file("opt/x"), file("opt/x/y")], "below /opt/x, which is not a folder"),
        ] {
            let said = stays(&entries).unwrap_err();
            assert!(said.contains(why), "{said}");
        }
    }

    #[test]
    fn only_ldconfig_itself_is_ldconfig() {
        for (program, script) in [
            ("/sbin/ldconfig", ""),
            ("/bin/sh", "/sbin/ldconfig"),
            ("/bin/sh", "# all of it\n/usr/sbin/ldconfig\n\n"),
        ] {
            assert!(is_ldconfig(program, script), "{program} {script}");
        }
        for (program, script) in [
            ("/bin/sh", ""),
            ("/bin/sh", "# ldconfig"),
            ("/bin/sh", "ldconfig; rm -rf /opt"),
            ("/bin/sh", "ldconfig\nuseradd x"),
            ("/sbin/ldconfig", "x"),
            ("<lua>", "ldconfig"),
            ("", ""),
        ] {
            assert!(!is_ldconfig(program, script), "{program} {script}");
        }
    }
}
