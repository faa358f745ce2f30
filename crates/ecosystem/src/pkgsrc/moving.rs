//! Migration from another bulk builder: which parts of its configuration have an equivalent in `kilnyard.toml`, and
//! which do not.
//!
//! A reader ([`super::pbulk_conf`], [`super::bob_config`]) finds settings by name; its table assigns each name a
//! [`Migration`]. The outcome is [`Moved`], and the code that writes a `kilnyard.toml` fills it in. Nothing is dropped
//! silently: every setting is either carried over or reported with the reason why not.
//!
//! The names of the keys in `kilnyard.toml` that can be filled in are in one place, [`ConfigKey::path`]. Known
//! downside: the contents of a bootstrap kit's own `mk.conf` (`DISTDIR`, options, compilers) are in none of these
//! configurations, and are not migrated.

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

/// How a setting is migrated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Migration {
    /// It becomes this key.
    To(ConfigKey),
    /// With one of these values, it asks for Kilnyard's normal behaviour. Other values have no equivalent, for the
    /// given reason.
    Same(&'static [&'static str], &'static str),
    /// It has no equivalent, for the given reason.
    Not(&'static str),
}

/// A setting that is carried over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Name in the other configuration.
    pub name: String,
    /// Line number in the other configuration, from 1.
    pub line: usize,
    /// The key that it becomes; `None` if Kilnyard does the same by default.
    pub key: Option<ConfigKey>,
}

/// A setting, or anything else in the file, that is not carried over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotCarried {
    /// Name of the setting, or the first word of the line.
    pub name: String,
    /// Line number, from 1.
    pub line: usize,
    /// The reason why it is not carried over.
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

/// A migrated configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// The requested packages; `None` if the file does not specify them in a supported way.
    pub wanted: Option<Wanted>,
    /// Values of keys, numbers in decimal.
    pub values: Vec<(ConfigKey, String)>,
    /// Settings that are carried over, in the order of the file.
    pub carried: Vec<Carried>,
    /// Settings that are not carried over, in the order of the file.
    pub not_carried: Vec<NotCarried>,
}

impl Moved {
    /// Applies a migration to one setting.
    pub(super) fn settle(&mut self, name: &str, line: usize, value: &str, migration: Migration) {
        match migration {
            Migration::To(key) if value.is_empty() => self.refuse(name, line, &empty(key)),
            Migration::To(key) if key.is_number() => match value.parse::<u32>() {
                Ok(number @ 1..=SLOTS_MAX) => self.set(name, line, key, number.to_string()),
                _ => self.refuse(name, line, &format!("`{value}` is not a number from 1 to {SLOTS_MAX}")),
            },
            Migration::To(key) => self.set(name, line, key, value.to_owned()),
            Migration::Same(values, _) if values.contains(&value) => self.carry(name, line, None),
            Migration::Same(_, reason) | Migration::Not(reason) => self.refuse(name, line, reason),
        }
    }

    /// Records the requested packages, which come from a setting.
    pub(super) fn want(&mut self, name: &str, line: usize, wanted: Wanted) {
        let key =
            if matches!(wanted, Wanted::File(_)) { ConfigKey::PackagesFile } else { ConfigKey::Packages };
        self.wanted = Some(wanted);
        self.carry(name, line, Some(key));
    }

    /// Records that something is not carried over.
    pub(super) fn refuse(&mut self, name: &str, line: usize, reason: &str) {
        self.not_carried.push(NotCarried { name: name.to_owned(), line, reason: reason.to_owned() });
    }

    /// Discards the file's value of a key, because it is set elsewhere: its settings count as not carried over, for
    /// this reason.
    pub fn discard(&mut self, key: ConfigKey, reason: &str) {
        self.values.retain(|(other, _)| *other != key);
        let (gone, carried): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.carried).into_iter().partition(|carried| carried.key == Some(key));
        self.carried = carried;
        gone.iter().for_each(|carried| self.refuse(&carried.name, carried.line, reason));
        self.sort();
    }

    fn set(&mut self, name: &str, line: usize, key: ConfigKey, value: String) {
        self.values.retain(|(other, _)| *other != key);
        self.values.push((key, value));
        self.carry(name, line, Some(key));
    }

    fn carry(&mut self, name: &str, line: usize, key: Option<ConfigKey>) {
        self.carried.push(Carried { name: name.to_owned(), line, key });
    }

    /// Sorts both lists by line.
    pub(super) fn sort(&mut self) {
        self.carried.sort_by_key(|carried| carried.line);
        self.not_carried.sort_by_key(|refused| refused.line);
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
        let mut moved = Moved::default();
        moved.settle("slots", 2, "7", Migration::To(ConfigKey::Slots));
        moved.settle("threads", 1, "07", Migration::To(ConfigKey::Slots));
        moved.want("list", 3, Wanted::File("/list".to_owned()));
        moved.settle("mode", 4, "no", Migration::Same(&["no"], "it is always so"));
        moved.settle("mode", 5, "yes", Migration::Same(&["no"], "it is always so"));
        moved.sort();
        assert_eq!(moved.values, [(ConfigKey::Slots, "7".to_owned())]);
        let carried: Vec<_> = moved.carried.iter().map(|carried| (carried.line, carried.key)).collect();
        assert_eq!(
            carried,
            [
                (1, Some(ConfigKey::Slots)),
                (2, Some(ConfigKey::Slots)),
                (3, Some(ConfigKey::PackagesFile)),
                (4, None)
            ]
        );
        let refused = NotCarried { name: "mode".to_owned(), line: 5, reason: "it is always so".to_owned() };
        assert_eq!(moved.not_carried, [refused]);
    }

    #[test]
    fn overruled_settings_are_not_carried_over() {
        let mut moved = Moved::default();
        moved.settle("tree", 1, "/a", Migration::To(ConfigKey::Tree));
        moved.settle("make", 2, "/m", Migration::To(ConfigKey::Make));
        moved.settle("home", 3, "/h", Migration::Not("it is not needed"));
        moved.discard(ConfigKey::Tree, "--tree sets it");
        moved.discard(ConfigKey::Prefix, "--prefix sets it");
        assert_eq!(moved.values, [(ConfigKey::Make, "/m".to_owned())]);
        assert_eq!(moved.carried.iter().map(|carried| carried.line).collect::<Vec<_>>(), [2]);
        let reported: Vec<_> =
            moved.not_carried.iter().map(|refused| (refused.line, &refused.reason[..])).collect();
        assert_eq!(reported, [(1, "--tree sets it"), (3, "it is not needed")]);
    }

    #[test]
    fn invalid_numbers_and_empty_paths_are_reported() {
        let mut moved = Moved::default();
        for value in ["0", "x", "5000", "-1", ""] {
            moved.settle("chroots", 4, value, Migration::To(ConfigKey::Slots));
        }
        moved.settle("tree", 5, "", Migration::To(ConfigKey::Tree));
        assert_eq!((moved.values.len(), moved.not_carried.len()), (0, 6));
        assert_eq!(moved.not_carried[1].reason, "`x` is not a number from 1 to 4096");
        assert_eq!(moved.not_carried[5].reason, "it is empty, but `pkgsrc.tree` must not be");
    }
}
