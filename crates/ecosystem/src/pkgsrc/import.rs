//! Imports the configuration of another bulk builder: which of its settings have an equivalent in `kilnyard.toml`, and
//! which do not.
//!
//! A reader ([`super::pbulk_conf`], [`super::bob_config`]) finds settings by name; its table assigns an [`ImportRule`]
//! to each name. The outcome is [`Imports`], which the code that writes a `kilnyard.toml` fills in. Nothing is dropped
//! silently: every setting is either imported, or reported with the reason why it is not.
//!
//! The names of the keys in `kilnyard.toml` that can be filled in are in one place, [`ConfigKey::path`]. Known
//! downside: the contents of a bootstrap kit's own `mk.conf` (`DISTDIR`, options, compilers) are in none of these
//! configurations, and are not imported.

/// Each slot is a thread; no machine has this many cores.
const SLOTS_MAX: u32 = 4096;

/// A key of `kilnyard.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConfigKey {
    /// The packages to build: a list of locations, or `"all"`.
    Packages,
    /// A file with locations, one per line.
    PackagesFile,
    /// The folder of the tree.
    Tree,
    /// The archive of the bootstrap kit, the base of a root.
    BootstrapKit,
    /// The prefix that packages are installed below.
    Prefix,
    /// The make program that reads the tree.
    Make,
    /// A file that is appended to the kit's `mk.conf`.
    MkConf,
    /// The folder of the distfiles.
    Distfiles,
    /// Number of concurrent builds.
    Slots,
    /// Number of concurrent processes in one build.
    Jobs,
}

impl ConfigKey {
    /// Full name, including that of its table.
    pub fn path(self) -> &'static str {
        match self {
            ConfigKey::Packages => "packages",
            ConfigKey::PackagesFile => "packages-file",
            ConfigKey::Tree => "pkgsrc.tree",
            ConfigKey::BootstrapKit => "pkgsrc.bootstrap-kit",
            ConfigKey::Prefix => "pkgsrc.prefix",
            ConfigKey::Make => "pkgsrc.make",
            ConfigKey::MkConf => "pkgsrc.mk-conf",
            ConfigKey::Distfiles => "pkgsrc.distfiles",
            ConfigKey::Slots => "build.slots",
            ConfigKey::Jobs => "build.jobs",
        }
    }

    /// Name within its table.
    pub fn name(self) -> &'static str {
        self.path().rsplit('.').next().unwrap_or_default()
    }

    /// Whether its value is a number rather than a text.
    pub fn is_number(self) -> bool {
        matches!(self, ConfigKey::Slots | ConfigKey::Jobs)
    }

    /// Whether its value is a path on the machine rather than inside a root. Relative paths are resolved against
    /// the folder in which the other builder is started.
    pub fn is_path(self) -> bool {
        matches!(
            self,
            ConfigKey::PackagesFile
                | ConfigKey::Tree
                | ConfigKey::BootstrapKit
                | ConfigKey::MkConf
                | ConfigKey::Distfiles
        )
    }
}

/// How a setting is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImportRule {
    /// It becomes this key.
    To(ConfigKey),
    /// With one of these values, it requests what Kilnyard does anyway. Other values have no equivalent, for the given
    /// reason.
    Same(&'static [&'static str], &'static str),
    /// It has no equivalent, for the given reason.
    Not(&'static str),
}

/// A setting that is imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// Name in the other configuration.
    pub name: String,
    /// Line number in the other configuration, from 1.
    pub line: usize,
    /// The key that it becomes; `None` if Kilnyard does the same by default.
    pub key: Option<ConfigKey>,
}

/// A setting, or anything else in the file, that is not imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotImported {
    /// Name of the setting, or the first word of the line.
    pub name: String,
    /// Line number, from 1.
    pub line: usize,
    /// The reason why it is not imported.
    pub reason: String,
}

/// The requested packages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Every package of the tree.
    All,
    /// The packages at these locations.
    Some(Vec<String>),
    /// The locations in a file, one per line.
    File(String),
}

/// The outcome of an import.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Imports {
    /// The requested packages; `None` if the file does not specify them in a supported way.
    pub wanted: Option<Wanted>,
    /// Values of keys, numbers in decimal.
    pub values: Vec<(ConfigKey, String)>,
    /// Settings that are imported, in the order of the file.
    pub imported: Vec<Imported>,
    /// Settings that are not imported, in the order of the file.
    pub not_imported: Vec<NotImported>,
}

impl Imports {
    /// Applies a rule to one setting.
    pub(super) fn settle(&mut self, name: &str, line: usize, value: &str, rule: ImportRule) {
        match rule {
            ImportRule::To(key) if value.is_empty() => self.refuse(name, line, &empty(key)),
            ImportRule::To(key) if key.is_number() => match value.parse::<u32>() {
                Ok(number @ 1..=SLOTS_MAX) => self.set(name, line, key, number.to_string()),
                _ => self.refuse(name, line, &format!("`{value}` is not a number from 1 to {SLOTS_MAX}")),
            },
            ImportRule::To(key) => self.set(name, line, key, value.to_owned()),
            ImportRule::Same(values, _) if values.contains(&value) => self.import(name, line, None),
            ImportRule::Same(_, reason) | ImportRule::Not(reason) => self.refuse(name, line, reason),
        }
    }

    /// Records the requested packages, which come from a setting.
    pub(super) fn want(&mut self, name: &str, line: usize, wanted: Wanted) {
        let key =
            if matches!(wanted, Wanted::File(_)) { ConfigKey::PackagesFile } else { ConfigKey::Packages };
        self.wanted = Some(wanted);
        self.import(name, line, Some(key));
    }

    /// Records that something is not imported.
    pub(super) fn refuse(&mut self, name: &str, line: usize, reason: &str) {
        self.not_imported.push(NotImported { name: name.to_owned(), line, reason: reason.to_owned() });
    }

    /// Discards the file's value of a key, because it is set elsewhere: its settings count as not imported, for
    /// this reason.
    pub fn discard(&mut self, key: ConfigKey, reason: &str) {
        self.values.retain(|(other, _)| *other != key);
        let (gone, imported): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.imported).into_iter().partition(|imported| imported.key == Some(key));
        self.imported = imported;
        gone.iter().for_each(|imported| self.refuse(&imported.name, imported.line, reason));
        self.sort();
    }

    fn set(&mut self, name: &str, line: usize, key: ConfigKey, value: String) {
        self.values.retain(|(other, _)| *other != key);
        self.values.push((key, value));
        self.import(name, line, Some(key));
    }

    fn import(&mut self, name: &str, line: usize, key: Option<ConfigKey>) {
        self.imported.push(Imported { name: name.to_owned(), line, key });
    }

    /// Sorts both lists by line.
    pub(super) fn sort(&mut self) {
        self.imported.sort_by_key(|imported| imported.line);
        self.not_imported.sort_by_key(|refused| refused.line);
    }
}

fn empty(key: ConfigKey) -> String {
    format!("it is empty, but `{}` must not be", key.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_key_counts_and_each_setting_is_reported() {
        let mut imports = Imports::default();
        imports.settle("slots", 2, "7", ImportRule::To(ConfigKey::Slots));
        imports.settle("threads", 1, "07", ImportRule::To(ConfigKey::Slots));
        imports.want("list", 3, Wanted::File("/list".to_owned()));
        imports.settle("mode", 4, "no", ImportRule::Same(&["no"], "it is always so"));
        imports.settle("mode", 5, "yes", ImportRule::Same(&["no"], "it is always so"));
        imports.sort();
        assert_eq!(imports.values, [(ConfigKey::Slots, "7".to_owned())]);
        let imported: Vec<_> =
            imports.imported.iter().map(|imported| (imported.line, imported.key)).collect();
        assert_eq!(
            imported,
            [
                (1, Some(ConfigKey::Slots)),
                (2, Some(ConfigKey::Slots)),
                (3, Some(ConfigKey::PackagesFile)),
                (4, None)
            ]
        );
        let refused = NotImported { name: "mode".to_owned(), line: 5, reason: "it is always so".to_owned() };
        assert_eq!(imports.not_imported, [refused]);
    }

    #[test]
    fn overruled_settings_are_not_carried_over() {
        let mut imports = Imports::default();
        imports.settle("tree", 1, "/a", ImportRule::To(ConfigKey::Tree));
        imports.settle("make", 2, "/m", ImportRule::To(ConfigKey::Make));
        imports.settle("home", 3, "/h", ImportRule::Not("it is not needed"));
        imports.discard(ConfigKey::Tree, "--tree sets it");
        imports.discard(ConfigKey::Prefix, "--prefix sets it");
        assert_eq!(imports.values, [(ConfigKey::Make, "/m".to_owned())]);
        assert_eq!(imports.imported.iter().map(|imported| imported.line).collect::<Vec<_>>(), [2]);
        let reported: Vec<_> =
            imports.not_imported.iter().map(|refused| (refused.line, &refused.reason[..])).collect();
        assert_eq!(reported, [(1, "--tree sets it"), (3, "it is not needed")]);
    }

    #[test]
    fn invalid_numbers_and_empty_paths_are_reported() {
        let mut imports = Imports::default();
        for value in ["0", "x", "5000", "-1", ""] {
            imports.settle("chroots", 4, value, ImportRule::To(ConfigKey::Slots));
        }
        imports.settle("tree", 5, "", ImportRule::To(ConfigKey::Tree));
        assert_eq!((imports.values.len(), imports.not_imported.len()), (0, 6));
        assert_eq!(imports.not_imported[1].reason, "`x` is not a number from 1 to 4096");
        assert_eq!(imports.not_imported[5].reason, "it is empty, but `pkgsrc.tree` must not be");
    }
}
