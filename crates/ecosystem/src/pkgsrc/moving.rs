//! Moving over from another bulk builder: what of its configuration has a place in `kilnyard.toml`, and what has none.
//!
//! A reader ([`super::pbulk_conf`], [`super::bob_config`]) finds settings by name; its table says of each name what
//! becomes of it ([`Fate`]). [`Moved`] is the outcome, and [`Moved::configuration`] writes it. Nothing is left out
//! silently: every setting is either carried over or told with the reason why not.
//!
//! The names of `kilnyard.toml`'s keys are in one place, [`Key::path`]. Known downside: what stands in a bootstrap
//! kit's own `mk.conf` (`DISTDIR`, options, compilers) is in none of these configurations, and is not moved.

use std::fmt::Write;

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

/// The keys of a table, in the order in which they are written; of each the comment that stands where it is absent.
const TABLES: [(&str, &[(Key, &str)]); 2] = [
    (
        "pkgsrc",
        &[
            (Key::Tree, "\"/usr/pkgsrc\""),
            (Key::BootstrapKit, "\"bootstrap.tar.gz\"   # the archive that a root begins with"),
            (Key::Prefix, "\"/usr/pkg\""),
            (Key::Make, "\"/usr/pkg/bin/bmake\""),
            (Key::MkConf, "\"mk.conf\"   # a file that is added to the kit's mk.conf"),
            (Key::Distfiles, "\"distfiles\"   # the folder of the sources"),
        ],
    ),
    (
        "build",
        &[
            (Key::Slots, "2   # builds at once; by cores and memory"),
            (Key::Jobs, "2   # processes of one build; all cores"),
        ],
    ),
];

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

    fn name(self) -> &'static str {
        self.path().rsplit('.').next().unwrap_or_default()
    }

    fn is_number(self) -> bool {
        matches!(self, Key::Slots | Key::Jobs)
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

    /// The text of a `kilnyard.toml`: what is carried over as settings, the rest as comments. `source` is the name of
    /// the other configuration, as it is shown.
    pub fn configuration(&self, source: &str) -> String {
        let mut text = format!("# A yard of Kilnyard, moved over from {}.\n\n", comment(source));
        match &self.wanted {
            Some(Wanted::All) => {
                line(&mut text, format_args!("# Every package of the tree."));
                line(&mut text, format_args!("{} = \"all\"", Key::Packages.name()));
            }
            Some(Wanted::File(file)) => {
                line(&mut text, format_args!("{} = {}", Key::PackagesFile.name(), quoted(file)));
            }
            Some(Wanted::Some(locations)) => list(&mut text, locations),
            None => {
                line(
                    &mut text,
                    format_args!("# It could not be told which ones; \"all\" for all of the tree."),
                );
                list(&mut text, &[]);
            }
        }
        for (table, keys) in TABLES {
            line(&mut text, format_args!("\n[{table}]"));
            for (key, absent) in keys {
                let value = self.values.iter().find(|(other, _)| other == key).map(|(_, value)| value);
                match value {
                    Some(value) if key.is_number() => {
                        line(&mut text, format_args!("{} = {value}", key.name()))
                    }
                    Some(value) => line(&mut text, format_args!("{} = {}", key.name(), quoted(value))),
                    None => line(&mut text, format_args!("# {} = {absent}", key.name())),
                }
            }
        }
        if !self.not_carried.is_empty() {
            line(&mut text, format_args!("\n# What is not carried over:"));
        }
        for refused in &self.not_carried {
            let (name, reason) = (comment(&refused.name), comment(&refused.reason));
            line(&mut text, format_args!("# line {}, {name}: {reason}", refused.line));
        }
        text
    }
}

fn empty(key: Key) -> String {
    format!("it is empty, and `{}` cannot be", key.path())
}

fn line(text: &mut String, content: std::fmt::Arguments) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{content}");
}

fn list(text: &mut String, locations: &[String]) {
    line(text, format_args!("{} = [", Key::Packages.name()));
    for location in locations {
        line(text, format_args!("  {},", quoted(location)));
    }
    line(text, format_args!("]"));
}

/// A text as TOML's basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            _ if character.is_control() => {
                // Writing to a string cannot fail.
                let _ = write!(quoted, "\\u{:04X}", u32::from(character));
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// A text that cannot end a comment.
fn comment(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(moved: &Moved) -> toml::Table {
        moved.configuration("a test").parse().unwrap()
    }

    #[test]
    fn every_key_is_written_where_its_path_says() {
        let mut moved = Moved::default();
        for key in [Key::Tree, Key::BootstrapKit, Key::Prefix, Key::Make, Key::MkConf, Key::Distfiles] {
            moved.settle("text", 1, "/a \"b\"\\\u{1}\n", Fate::To(key));
        }
        for key in [Key::Slots, Key::Jobs] {
            moved.settle("number", 2, "3", Fate::To(key));
        }
        let table = read(&moved);
        for (key, _) in &moved.values {
            let (outer, name) = key.path().split_once('.').unwrap();
            let found = &table[outer][name];
            let expected = if key.is_number() { toml::Value::Integer(3) } else { "/a \"b\"\\\u{1}\n".into() };
            assert_eq!(found, &expected, "{key:?}");
        }
        assert_eq!(moved.carried.len(), 8);
    }

    #[test]
    fn the_comments_of_absent_keys_are_settings() {
        let text = Moved { wanted: Some(Wanted::All), ..Moved::default() }.configuration("a test");
        let uncommented: String = text
            .lines()
            .map(|line| match line.strip_prefix("# ").filter(|rest| rest.contains(" = ")) {
                Some(rest) => format!("{rest}\n"),
                None => format!("{line}\n"),
            })
            .collect();
        let table: toml::Table = uncommented.parse().unwrap();
        assert_eq!(
            (table["pkgsrc"].as_table().unwrap().len(), table["build"].as_table().unwrap().len()),
            (6, 2)
        );
        assert_eq!(table["packages"].as_str(), Some("all"));
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

    #[test]
    fn nothing_of_a_reason_becomes_a_setting() {
        let mut moved = Moved::default();
        moved.refuse("a\nslots = 9", 1, "b\rpackages = \"all\"\n[x]");
        let table = moved.configuration("c\n[y]").parse::<toml::Table>().unwrap();
        assert_eq!(table.keys().collect::<Vec<_>>(), ["build", "packages", "pkgsrc"]);
        assert_eq!(table["packages"].as_array().map(Vec::len), Some(0));
        assert!(table["build"].as_table().unwrap().is_empty());
    }
}
