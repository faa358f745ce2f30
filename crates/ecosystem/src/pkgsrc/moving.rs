//! Moving over from another bulk builder: what of its configuration has a place in `kilnyard.toml`, and what has none.
//!
//! A reader ([`super::pbulk_conf`], [`super::bob_config`]) finds settings by name; its table says of each name what
//! becomes of it ([`Fate`]). [`Moved`] is the outcome; who writes a `kilnyard.toml` fills it in. Nothing is left out
//! silently: every setting is either carried over or told with the reason why not.
//!
//! The names of the keys of `kilnyard.toml` that can be filled in are in one place, [`Key::path`]. Known downside: what
//! stands in a bootstrap kit's own `mk.conf` (`DISTDIR`, options, compilers) is in none of these configurations, and is
//! not moved.

/// Each slot is a thread; no machine has as many cores.
const SLOTS_MAX: u32 = 4096;

/// A key of `kilnyard.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Key {
    /// Which packages: a list of locations, or `"all"`.
    Packages,
    /// A file with locations, one a line.
    PackagesFile,
    /// The folder of the tree.
    Tree,
    /// The archive that a root begins with.
    BootstrapKit,
    /// Where packages are installed.
    Prefix,
    /// The make that reads the tree.
    Make,
    /// A file that is added to the kit's `mk.conf`.
    MkConf,
    /// The folder of the sources.
    Distfiles,
    /// Builds at once.
    Slots,
    /// Processes of one build at once.
    Jobs,
}

impl Key {
    /// Its name, with that of its table before it where it is in one.
    pub fn path(self) -> &'static str {
        match self {
            Key::Packages => "packages",
            Key::PackagesFile => "packages-file",
            Key::Tree => "pkgsrc.tree",
            Key::BootstrapKit => "pkgsrc.bootstrap-kit",
            Key::Prefix => "pkgsrc.prefix",
            Key::Make => "pkgsrc.make",
            Key::MkConf => "pkgsrc.mk-conf",
            Key::Distfiles => "pkgsrc.distfiles",
            Key::Slots => "build.slots",
            Key::Jobs => "build.jobs",
        }
    }

    /// Its name within its table.
    pub fn name(self) -> &'static str {
        self.path().rsplit('.').next().unwrap_or_default()
    }

    /// Whether its value is a number; else it is a text.
    pub fn is_number(self) -> bool {
        matches!(self, Key::Slots | Key::Jobs)
    }

    /// Whether its value is a path of the machine, and not of a root; a relative one is taken from where the other
    /// builder is started.
    pub fn is_path(self) -> bool {
        matches!(self, Key::PackagesFile | Key::Tree | Key::BootstrapKit | Key::MkConf | Key::Distfiles)
    }
}

/// What becomes of a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It has a key.
    To(Key),
    /// With one of these values it asks for what Kilnyard does anyway; with others there is no place for it, and why.
    Same(&'static [&'static str], &'static str),
    /// There is no place for it, and why.
    Not(&'static str),
}

/// A setting that is carried over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carried {
    /// Its name in the other configuration.
    pub name: String,
    /// The line that it stands in, from 1.
    pub line: usize,
    /// The key that it becomes; none where Kilnyard does the same without being told.
    pub key: Option<Key>,
}

/// A setting, or anything else in the file, that is not carried over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotCarried {
    /// Its name, or the word that the line begins with.
    pub name: String,
    /// The line that it stands in, from 1.
    pub line: usize,
    /// Why not.
    pub reason: String,
}

/// Which packages are asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// Every package of the tree.
    All,
    /// These locations.
    Some(Vec<String>),
    /// Those in a file, one a line.
    File(String),
}

/// What becomes of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Which packages; none where the file says it in a way that is not understood.
    pub wanted: Option<Wanted>,
    /// Texts and numbers of keys.
    pub values: Vec<(Key, String)>,
    /// What is carried over, in the order of the file.
    pub carried: Vec<Carried>,
    /// What is not, in the order of the file.
    pub not_carried: Vec<NotCarried>,
}

impl Moved {
    /// Gives a setting its fate.
    pub(super) fn settle(&mut self, name: &str, line: usize, value: &str, fate: Fate) {
        match fate {
            Fate::To(key) if value.is_empty() => self.refuse(name, line, &empty(key)),
            Fate::To(key) if key.is_number() => match value.parse::<u32>() {
                Ok(number @ 1..=SLOTS_MAX) => self.set(name, line, key, number.to_string()),
                _ => self.refuse(name, line, &format!("`{value}` is no number from 1 to {SLOTS_MAX}")),
            },
            Fate::To(key) => self.set(name, line, key, value.to_owned()),
            Fate::Same(values, _) if values.contains(&value) => self.carry(name, line, None),
            Fate::Same(_, reason) | Fate::Not(reason) => self.refuse(name, line, reason),
        }
    }

    /// Says which packages are asked for, by a setting.
    pub(super) fn want(&mut self, name: &str, line: usize, wanted: Wanted) {
        let key = if matches!(wanted, Wanted::File(_)) { Key::PackagesFile } else { Key::Packages };
        self.wanted = Some(wanted);
        self.carry(name, line, Some(key));
    }

    /// Says that something is not carried over.
    pub(super) fn refuse(&mut self, name: &str, line: usize, reason: &str) {
        self.not_carried.push(NotCarried { name: name.to_owned(), line, reason: reason.to_owned() });
    }

    /// Takes a key from elsewhere: what the file says of it is not carried over, and this is why.
    pub fn overrule(&mut self, key: Key, reason: &str) {
        self.values.retain(|(other, _)| *other != key);
        let (gone, carried): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.carried).into_iter().partition(|carried| carried.key == Some(key));
        self.carried = carried;
        gone.iter().for_each(|carried| self.refuse(&carried.name, carried.line, reason));
        self.sort();
    }

    fn set(&mut self, name: &str, line: usize, key: Key, value: String) {
        self.values.retain(|(other, _)| *other != key);
        self.values.push((key, value));
        self.carry(name, line, Some(key));
    }

    fn carry(&mut self, name: &str, line: usize, key: Option<Key>) {
        self.carried.push(Carried { name: name.to_owned(), line, key });
    }

    /// Brings both lists into the order of the file.
    pub(super) fn sort(&mut self) {
        self.carried.sort_by_key(|carried| carried.line);
        self.not_carried.sort_by_key(|refused| refused.line);
    }
}

fn empty(key: Key) -> String {
    format!("it is empty, and `{}` cannot be", key.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_of_a_key_counts_and_each_setting_is_told() {
        let mut moved = Moved::default();
        moved.settle("slots", 2, "7", Fate::To(Key::Slots));
        moved.settle("threads", 1, "07", Fate::To(Key::Slots));
        moved.want("list", 3, Wanted::File("/list".to_owned()));
        moved.settle("mode", 4, "no", Fate::Same(&["no"], "it is always so"));
        moved.settle("mode", 5, "yes", Fate::Same(&["no"], "it is always so"));
        moved.sort();
        assert_eq!(moved.values, [(Key::Slots, "7".to_owned())]);
        let carried: Vec<_> = moved.carried.iter().map(|carried| (carried.line, carried.key)).collect();
        assert_eq!(
            carried,
            [(1, Some(Key::Slots)), (2, Some(Key::Slots)), (3, Some(Key::PackagesFile)), (4, None)]
        );
        let refused = NotCarried { name: "mode".to_owned(), line: 5, reason: "it is always so".to_owned() };
        assert_eq!(moved.not_carried, [refused]);
    }

    #[test]
    fn what_is_overruled_is_not_carried_over() {
        let mut moved = Moved::default();
        moved.settle("tree", 1, "/a", Fate::To(Key::Tree));
        moved.settle("make", 2, "/m", Fate::To(Key::Make));
        moved.settle("home", 3, "/h", Fate::Not("it is not needed"));
        moved.overrule(Key::Tree, "--tree says it");
        moved.overrule(Key::Prefix, "--prefix says it");
        assert_eq!(moved.values, [(Key::Make, "/m".to_owned())]);
        assert_eq!(moved.carried.iter().map(|carried| carried.line).collect::<Vec<_>>(), [2]);
        let told: Vec<_> =
            moved.not_carried.iter().map(|refused| (refused.line, &refused.reason[..])).collect();
        assert_eq!(told, [(1, "--tree says it"), (3, "it is not needed")]);
    }

    #[test]
    fn a_number_that_is_none_and_an_empty_path_are_told() {
        let mut moved = Moved::default();
        for value in ["0", "x", "5000", "-1", ""] {
            moved.settle("chroots", 4, value, Fate::To(Key::Slots));
        }
        moved.settle("tree", 5, "", Fate::To(Key::Tree));
        assert_eq!((moved.values.len(), moved.not_carried.len()), (0, 6));
        assert_eq!(moved.not_carried[1].reason, "`x` is no number from 1 to 4096");
        assert_eq!(moved.not_carried[5].reason, "it is empty, and `pkgsrc.tree` cannot be");
    }
}
