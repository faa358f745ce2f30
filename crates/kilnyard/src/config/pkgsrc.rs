//! The table `pkgsrc`: packages of a pkgsrc tree.

use super::root::DebianRoot;
use super::{COMMON_TEMPLATE, list_of, quoted};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The table `pkgsrc`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Pkgsrc {
    /// The tree's folder.
    pub tree: PathBuf,
    /// A bootstrap kit: an archive with the prefix, the database of packages and make. Without one, the tree's own
    /// `bootstrap/bootstrap` makes it, once.
    pub bootstrap_kit: Option<PathBuf>,
    /// Variables for the tree's `bootstrap/bootstrap`, such as `CFLAGS`.
    #[serde(default)]
    pub bootstrap_environment: BTreeMap<String, String>,
    /// Where packages are installed.
    #[serde(default = "prefix")]
    pub prefix: String,
    /// The make program, inside a root; that of the prefix by default.
    pub make: Option<String>,
    /// Settings that make reads after those of the kit.
    pub mk_conf: Option<PathBuf>,
    /// Where the tree's distfiles are kept; a folder of the yard by default.
    #[serde(default = "distfiles")]
    pub distfiles: PathBuf,
    /// What builds happen in.
    pub root: DebianRoot,
}

fn prefix() -> String {
    "/usr/pkg".to_owned()
}
fn distfiles() -> PathBuf {
    "distfiles/pkgsrc".into()
}

impl Pkgsrc {
    /// What is wrong with it, if anything.
    pub fn check(&self) -> Result<(), String> {
        self.root.check()?;
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
                    "{key} `{path}` must be a path inside a root, from / on, of plain characters"
                ));
            }
        }
        Ok(())
    }

    /// The make program, inside a root.
    pub fn make(&self) -> String {
        self.make.clone().unwrap_or_else(|| format!("{}/bin/bmake", self.prefix))
    }

    /// Makes relative paths ones of the yard.
    pub fn locate(&mut self, yard: &Path) {
        let paths = [Some(&mut self.tree), self.bootstrap_kit.as_mut(), self.mk_conf.as_mut()];
        for path in paths.into_iter().flatten().chain([&mut self.distfiles, &mut self.root.keyring]) {
            *path = yard.join(&*path);
        }
    }
}

/// What `kilnyard init pkgsrc` fills in.
#[derive(Clone, Debug, Default)]
pub struct Template {
    /// The packages' directories; none for all.
    pub packages: Option<Vec<String>>,
    /// The tree's folder.
    pub tree: String,
    /// Other values of the table, each as a line.
    pub lines: Vec<(&'static str, String)>,
    /// Values of the table `build`.
    pub build: Vec<(&'static str, u32)>,
    /// The release of the root.
    pub release: String,
    /// The archive that the root comes from.
    pub mirror: String,
}

/// The optional lines of the table, with what they say if they stay away.
const OPTIONAL: [(&str, &str, &str); 5] = [
    ("bootstrap-kit", "bootstrap.tar.gz", "else the tree's bootstrap/bootstrap makes it, once"),
    ("prefix", "/usr/pkg", ""),
    ("make", "/usr/pkg/bin/bmake", "inside a root"),
    ("mk-conf", "mk.conf", "read after that of the kit"),
    ("distfiles", "distfiles/pkgsrc", ""),
];

/// What `kilnyard init pkgsrc` writes.
pub fn template(filled: &Template) -> String {
    let packages = match &filled.packages {
        None => "packages = \"all\"".to_owned(),
        Some(packages) => format!("packages = [\n{}]", list_of(packages)),
    };
    let mut lines = String::new();
    for (key, default, remark) in OPTIONAL {
        let given = filled.lines.iter().find(|(name, _)| *name == key);
        let line = match given {
            Some((_, value)) => format!("{key} = {}", quoted(value)),
            None => format!("# {key} = {}", quoted(default)),
        };
        let remark = if remark.is_empty() { String::new() } else { format!("# {remark}") };
        let _ = writeln!(lines, "{}", format!("{line:34} {remark}").trim_end());
    }
    let mut common = COMMON_TEMPLATE.to_owned();
    for (key, value) in &filled.build {
        let given =
            common.lines().find(|line| line.starts_with(&format!("# {key} = "))).unwrap_or("").to_owned();
        common = common.replacen(&given, &format!("{key} = {value}"), 1);
    }
    format!(
        r#"# A yard of Kilnyard. `kilnyard build` builds it; `kilnyard doctor` checks this machine.

# Directories of the tree, such as "mail/mutt", with all that they need; "all" for the whole tree.
{packages}
# packages-file = "packages.txt"   # more of them, one a line

[pkgsrc]
tree = {tree}
{lines}
# Builds happen in a root of Debian, so that what the system has is the same in every build.
[pkgsrc.root]
release = {release}
mirror = {mirror}
# packages = ["zlib1g-dev"]        # besides the build-essential ones
# keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"

{common}"#,
        tree = quoted(&filled.tree),
        release = quoted(&filled.release),
        mirror = quoted(&filled.mirror),
    )
}
