//! The `[pkgsrc]` table: packages of a pkgsrc tree.

use crate::debian::DebianRoot;
use crate::git::place::{FORMS, address};
use crate::git::{WORK_TREE, shown};
use kilnyard_ecosystem::git::GitAddress;
use kilnyard_ecosystem::pkgsrc::import::{ConfigKey, Wanted};
use kilnyard_ecosystem::pkgsrc::tree::MINUTES_MAX;
use kilnyard_ecosystem::{NamePattern, Options};
use kilnyard_yard::config::{COMMON_TEMPLATE, check_minutes, list_of, quoted};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The `[pkgsrc]` table of `kilnyard.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pkgsrc {
    /// The tree's folder, or `git:` and the address of its repository; once located, the folder.
    pub tree: PathBuf,
    /// The repository that the tree is a work tree of.
    #[serde(skip)]
    pub git: Option<GitAddress>,
    /// A bootstrap kit: an archive with the prefix, the package database and make. Without one, the tree's own
    /// `bootstrap/bootstrap` makes the kit, once.
    pub bootstrap_kit: Option<PathBuf>,
    /// Environment variables for the tree's `bootstrap/bootstrap`, such as `CFLAGS`.
    #[serde(default)]
    pub bootstrap_environment: BTreeMap<String, String>,
    /// Where packages are installed, inside a root.
    #[serde(default = "prefix")]
    pub prefix: String,
    /// Path of the make program inside a root; the prefix's `bin/bmake` by default.
    pub make: Option<String>,
    /// Settings that make reads after the kit's `mk.conf`.
    pub mk_conf: Option<PathBuf>,
    /// Where the tree's distfiles are kept; a folder of the yard by default.
    #[serde(default = "distfiles")]
    pub distfiles: PathBuf,
    /// Time limit for make in one directory during a scan.
    #[serde(default = "scan_minutes_max")]
    pub scan_minutes_max: f64,
    /// Whether published packages have signatures of their own, which `pkg_add` verifies.
    #[serde(default)]
    pub sign_packages: bool,
    /// The base root of all builds.
    pub root: DebianRoot,
}

fn prefix() -> String {
    "/usr/pkg".to_owned()
}
fn distfiles() -> PathBuf {
    "distfiles/pkgsrc".into()
}
fn scan_minutes_max() -> f64 {
    MINUTES_MAX
}

/// Variables that Kilnyard sets for make and the package tools, in the environment or as arguments.
const VARIABLES: [&str; 9] = [
    "BATCH",
    "DEPENDS_TARGET",
    "DISTDIR",
    "MAKECONF",
    "MAKE_JOBS",
    "PACKAGES",
    "PBULK_CACHE_DIRECTORY",
    "PKG_PATH",
    "WRKOBJDIR",
];

/// Checks the options of single packages and directories.
pub fn check_options(name: &NamePattern, options: &Options) -> Result<(), String> {
    if options.cross.is_some() {
        return Err("cross is for source packages".to_owned());
    }
    for (key, is_set) in [("profiles", options.profiles.is_some()), ("options", options.words.is_some())] {
        if is_set {
            return Err(format!("{key} is for source packages; use mk-conf, such as PKG_OPTIONS.mutt=\tssl"));
        }
    }
    if options.keep.is_some() {
        return Err(
            "keep is for source packages: packages of a tree are always built from scratch".to_owned()
        );
    }
    if let Some(name) = VARIABLES.iter().find(|name| options.environment.contains_key(**name)) {
        return Err(format!("the environment variable {name} is set by Kilnyard"));
    }
    if options.autopkgtest.is_some() {
        return Err("autopkgtest is for source packages of Debian".to_owned());
    }
    let is_of_directory = options.mk_conf.is_some() || options.checks.is_some();
    if let (true, Some((directory, _))) = (is_of_directory, name.as_str().split_once(':')) {
        return Err(format!(
            "mk-conf and checks are for all packages of a directory: write [package.{}]",
            quoted(directory)
        ));
    }
    let is_readable = |c: char| !c.is_control() || matches!(c, '\n' | '\t');
    match options.mk_conf.as_ref().is_some_and(|text| !text.chars().all(is_readable)) {
        true => Err("mk-conf has control characters".to_owned()),
        false => Ok(()),
    }
}

impl Pkgsrc {
    /// Validates the table; the error says what to fix.
    pub fn check_table(&self) -> Result<(), String> {
        self.root.check()?;
        check_minutes("scan-minutes-max", self.scan_minutes_max)?;
        if let Some(Err(reason)) = address(&self.tree) {
            return Err(format!("tree is not a repository of git: {reason}; {FORMS}"));
        }
        let is_path = |path: &str| {
            path.starts_with('/')
                && path.len() > 1
                && path
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || matches!(b, b'/' | b'-' | b'.' | b'_' | b'+'))
                && !path.split('/').any(|part| part == "..")
        };
        for (key, path) in [("prefix", Some(&self.prefix)), ("make", self.make.as_ref())] {
            if let Some(path) = path.filter(|path| !is_path(path)) {
                return Err(format!(
                    "{key} `{path}` must be a path inside a root: absolute, without .., of letters, digits and - . _ +"
                ));
            }
        }
        Ok(())
    }

    /// The tree, as messages name it.
    pub fn shown(&self) -> String {
        self.git.as_ref().map_or_else(|| self.tree.display().to_string(), shown)
    }

    /// Path of the make program inside a root: the configured one or the default.
    pub fn make(&self) -> String {
        self.make.clone().unwrap_or_else(|| format!("{}/bin/bmake", self.prefix))
    }

    /// Resolves relative paths against the yard's folder. A tree from git is in `own`, the folder of the target.
    pub fn locate(&mut self, yard: &Path, own: &Path) {
        if let Some(Ok(address)) = address(&self.tree) {
            self.git = Some(address);
            self.tree = own.join(WORK_TREE);
        }
        let paths = [Some(&mut self.tree), self.bootstrap_kit.as_mut(), self.mk_conf.as_mut()];
        for path in paths.into_iter().flatten().chain([&mut self.distfiles, &mut self.root.keyring]) {
            *path = yard.join(&*path);
        }
    }
}

/// The values that `kilnyard init pkgsrc` fills in.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// Packages of the yard; `None` if unknown.
    pub wanted: Option<Wanted>,
    /// Values of keys, including the tree.
    pub values: Vec<(ConfigKey, String)>,
    /// The Debian release of the root.
    pub release: String,
    /// The archive of the root's packages.
    pub mirror: String,
    /// Notes to the user, added as comments at the end.
    pub remarks: Vec<String>,
}

/// The keys of the table, each with its example or default, and a remark.
const KEYS: [(ConfigKey, &str, &str); 6] = [
    (ConfigKey::Tree, "/usr/pkgsrc", "or git:PATH-OR-URL#BRANCH"),
    (
        ConfigKey::BootstrapKit,
        "bootstrap.tar.gz",
        "without it, the tree's bootstrap/bootstrap makes it, once",
    ),
    (ConfigKey::Prefix, "/usr/pkg", ""),
    (ConfigKey::Make, "/usr/pkg/bin/bmake", "inside a root"),
    (ConfigKey::MkConf, "mk.conf", "read after the kit's mk.conf"),
    (ConfigKey::Distfiles, "distfiles/pkgsrc", ""),
];

/// The configuration that `kilnyard init pkgsrc` writes.
pub fn template(filled: &Template) -> String {
    let (packages, file) = match &filled.wanted {
        Some(Wanted::All) => ("\"all\"".to_owned(), None),
        Some(Wanted::Some(packages)) => (format!("[\n{}]", list_of(packages)), None),
        Some(Wanted::File(file)) => ("[\n]".to_owned(), Some(file)),
        None => ("[\n]".to_owned(), None),
    };
    let file = match file {
        Some(file) => format!("packages-file = {}", quoted(file)),
        None => "# packages-file = \"packages.txt\"".to_owned(),
    };
    let file = remarked(&file, "more packages, one per line");
    let value =
        |key: ConfigKey| filled.values.iter().find(|(other, _)| *other == key).map(|(_, value)| value);
    let lines = KEYS.map(|(key, shown, remark)| match value(key) {
        Some(value) => remarked(&format!("{} = {}", key.name(), quoted(value)), remark),
        None => remarked(&format!("# {} = {}", key.name(), quoted(shown)), remark),
    });
    let common = COMMON_TEMPLATE.lines().map(|line| {
        let (shown, remark) = line.trim_start_matches("# ").split_once('#').unwrap_or((line, ""));
        let is_line_of =
            |key: &ConfigKey| shown.strip_prefix(key.name()).is_some_and(|rest| rest.starts_with(" ="));
        let key = [ConfigKey::Slots, ConfigKey::Jobs].into_iter().find(is_line_of);
        match key.and_then(|key| Some((key, value(key)?))) {
            Some((key, value)) => remarked(&format!("{} = {value}", key.name()), remark.trim()),
            None => format!("{line}\n"),
        }
    });
    let common: String = common.collect();
    let remarks: String = filled.remarks.iter().map(|remark| format!("# {}\n", one_line(remark))).collect();
    let gap = if remarks.is_empty() { "" } else { "\n" };
    format!(
        r#"# A yard of Kilnyard. `kilnyard build` builds it; `kilnyard doctor` checks this machine.

# Directories of the tree, such as "mail/mutt", and categories, such as "mail", with their dependencies; "all" for the
# whole tree.
packages = {packages}
{file}
[pkgsrc]
{lines}# sign-packages = true                # each published package has a signature of its own (docs/signing.md)
# scan-minutes-max = 15               # time limit for make in one directory during a scan
# bootstrap-environment = {{ CFLAGS = "-O2" }} # for the tree's bootstrap/bootstrap, if it makes the kit

# Builds run in a Debian root, so that every build sees the same system.
[pkgsrc.root]
release = {release}
mirror = {mirror}
# packages = ["zlib1g-dev"]        # in addition to the build-essential packages
# keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
# check-valid-until = true         # false for a snapshot or a mirror frozen on purpose

{common}{gap}{remarks}"#,
        lines = lines.concat(),
        release = quoted(&filled.release),
        mirror = quoted(&filled.mirror),
    )
}

/// Appends a remark to a line as a comment.
fn remarked(line: &str, remark: &str) -> String {
    if remark.is_empty() { format!("{line}\n") } else { format!("{line:34} # {remark}\n") }
}

/// Replaces control characters by spaces, so that the text cannot end a comment or control the terminal.
pub fn one_line(text: &str) -> String {
    text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FAMILIES;
    use kilnyard_yard::config::Config;

    const HOSTILE: &str = "/a \"b\"\\ '''\u{1}\r\n\"\"\"\n[build]\nslots = 9 # \u{2028}";

    fn filled(values: Vec<(ConfigKey, String)>) -> Template {
        let (release, mirror) = ("bookworm".to_owned(), "http://deb.example/debian".to_owned());
        Template { values, release, mirror, ..Template::default() }
    }

    fn read(filled: &Template) -> toml::Table {
        template(filled).parse().unwrap()
    }

    #[test]
    fn every_key_is_written_at_its_path() {
        let mut values: Vec<(ConfigKey, String)> = KEYS.map(|(key, _, _)| (key, HOSTILE.to_owned())).into();
        values.extend([(ConfigKey::Slots, "3".to_owned()), (ConfigKey::Jobs, "4".to_owned())]);
        let table = read(&filled(values.clone()));
        for (key, value) in &values {
            let (outer, name) = key.path().split_once('.').unwrap();
            let expected = if key.is_number() {
                toml::Value::Integer(value.parse().unwrap())
            } else {
                toml::Value::from(&value[..])
            };
            assert_eq!(table[outer][name], expected, "{key:?}");
        }
        assert_eq!(table["pkgsrc"].as_table().unwrap().len(), KEYS.len() + 1, "the root is a table in it");
        assert_eq!(table["build"].as_table().unwrap().len(), 2);
    }

    #[test]
    fn packages_are_written_as_given() {
        let wanted = |wanted| read(&Template { wanted, ..filled(Vec::new()) });
        assert_eq!(wanted(Some(Wanted::All))["packages"].as_str(), Some("all"));
        let some = wanted(Some(Wanted::Some(vec!["a/b".into(), HOSTILE.into()])));
        assert_eq!(some["packages"], toml::Value::from(vec!["a/b", HOSTILE]));
        let file = wanted(Some(Wanted::File(HOSTILE.into())));
        assert_eq!(file["packages-file"].as_str(), Some(HOSTILE));
        for empty in [file, wanted(None)] {
            assert_eq!(empty["packages"].as_array().map(Vec::len), Some(0));
        }
    }

    #[test]
    fn the_comments_of_keys_are_their_defaults() {
        let parse = |text: &str| {
            let config = Config::parse(text, Path::new("kilnyard.toml"), FAMILIES).unwrap();
            let table = config.family.of::<Pkgsrc>().unwrap_or_else(|| panic!("{text}"));
            (table.clone(), config.build)
        };
        let text = template(&filled(vec![(ConfigKey::Tree, "/usr/pkgsrc".to_owned())]));
        let uncommented: String = text
            .lines()
            .map(|line| match line.strip_prefix("# ").filter(|rest| rest.contains(" = ")) {
                Some(rest) => format!("{rest}\n"),
                None => format!("{line}\n"),
            })
            .collect();
        let ((default, _), (shown, build)) = (parse(&text), parse(&uncommented));
        assert_eq!((&shown.tree, &shown.prefix), (&default.tree, &default.prefix));
        assert_eq!((shown.make(), &shown.distfiles), (default.make(), &default.distfiles));
        assert_eq!(shown.scan_minutes_max, default.scan_minutes_max);
        assert!(shown.root.check_valid_until && default.root.check_valid_until);
        assert_eq!((default.bootstrap_kit, default.mk_conf), (None, None));
        assert!(shown.bootstrap_kit.is_some() && shown.mk_conf.is_some());
        assert_eq!((build.slots, build.jobs), (Some(2), Some(2)));
    }

    #[test]
    fn a_remark_never_becomes_a_setting() {
        let with = |remarks: &[&str]| {
            let remarks = remarks.iter().map(|remark| (*remark).to_owned()).collect();
            Template { remarks, ..filled(Vec::new()) }
        };
        let hostile = with(&["a\nslots = 9", "b\rpackages = \"all\"\n[x]", HOSTILE]);
        assert_eq!(read(&hostile), read(&with(&[])));
        let text = template(&hostile);
        assert!(text.contains("\n\n# a slots = 9\n# b packages = \"all\" [x]\n# /a"), "{text}");
    }
}
