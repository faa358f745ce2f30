//! `kilnyard.toml`: what a person says of a yard.

use crate::error::{Error, Result};
use kilnyard_ecosystem::debian::{Cycles, Settings, relation, source::Parts};
use kilnyard_process::{Limits, LogLimits};
use serde::Deserialize;
use std::path::{Path, PathBuf};

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Config {
    /// The sources to build.
    #[serde(default)]
    pub packages: Packages,
    /// A file with more of them, one a line.
    pub packages_file: Option<PathBuf>,
    /// What is Debian's own.
    pub debian: Debian,
    /// How builds are done.
    #[serde(default)]
    pub build: Build,
    /// What the repository says of itself.
    #[serde(default)]
    pub repository: Repository,
}

/// Which sources.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(untagged)]
pub enum Packages {
    /// These, by name or as paths of `.dsc` files.
    Some(Vec<String>),
    /// `"all"`: every source of the release.
    All(All),
}

/// The word `all`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub enum All {
    /// Every source of the release.
    #[serde(rename = "all")]
    All,
}

impl Default for Packages {
    fn default() -> Self {
        Packages::Some(Vec::new())
    }
}

/// The table `debian`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Debian {
    /// The release's codename.
    pub release: String,
    /// The architecture; this machine's by default.
    pub architecture: Option<String>,
    /// The base address of the archive, or several with the same content.
    pub mirror: Mirrors,
    /// Further suites of the same archive whose packages count, such as `bookworm-updates`.
    #[serde(default)]
    pub suites: Vec<String>,
    /// Components.
    #[serde(default = "main_component")]
    pub components: Vec<String>,
    /// Who may sign the archive.
    #[serde(default = "debian_keyring")]
    pub keyring: PathBuf,
    /// `dependent` (`dpkg-buildpackage -B`) or `all` (`-b`).
    #[serde(default = "dependent")]
    pub parts: Parts,
    /// Whether the sources' own tests run.
    #[serde(default)]
    pub checks: bool,
    /// Further build profiles.
    #[serde(default)]
    pub profiles: Vec<String>,
    /// What is put behind versions.
    #[serde(default = "suffix")]
    pub version_suffix: String,
    /// Who stands in changelog entries.
    #[serde(default = "maintainer")]
    pub maintainer: String,
    /// How cycles are cut: `archive` or `profile`.
    #[serde(default)]
    pub cycles: CyclesWord,
}

/// One address or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum Mirrors {
    /// One.
    One(String),
    /// Several, tried in order.
    Several(Vec<String>),
}

impl Mirrors {
    /// All addresses, without a slash at the end.
    pub fn all(&self) -> Vec<String> {
        let all = match self {
            Mirrors::One(mirror) => std::slice::from_ref(mirror),
            Mirrors::Several(mirrors) => mirrors,
        };
        all.iter().map(|mirror| mirror.trim_end_matches('/').to_owned()).collect()
    }
}

/// See [`Cycles`].
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CyclesWord {
    /// The archive's binary packages stand in.
    #[default]
    Archive,
    /// Only build profiles cut.
    Profile,
}

fn main_component() -> Vec<String> {
    vec!["main".to_owned()]
}
fn debian_keyring() -> PathBuf {
    "/usr/share/keyrings/debian-archive-keyring.gpg".into()
}
fn dependent() -> Parts {
    Parts::Dependent
}
fn suffix() -> String {
    "+bk".to_owned()
}
fn maintainer() -> String {
    "Kilnyard <kilnyard@localhost>".to_owned()
}

/// The table `build`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Build {
    /// Builds at once; by the machine where it is absent.
    pub slots: Option<u32>,
    /// Processes of one build at once; all cores where it is absent.
    pub jobs: Option<u32>,
    /// Whether outputs are installed and removed in a clean root.
    pub test: bool,
    /// The longest that one command of a stage may run.
    pub wall_minutes_max: u64,
    /// The longest that it may print nothing.
    pub idle_minutes_max: u64,
    /// How much of a log is kept.
    pub log_mebibytes_max: u64,
    /// How many roots of failed builds are kept for `kilnyard shell`.
    pub failed_roots_max: usize,
    /// The slowest download that is put up with.
    pub mirror_bytes_per_second_min: u64,
}

impl Default for Build {
    fn default() -> Self {
        Build {
            slots: None,
            jobs: None,
            test: true,
            wall_minutes_max: 12 * 60,
            idle_minutes_max: 60,
            log_mebibytes_max: 32,
            failed_roots_max: 10,
            mirror_bytes_per_second_min: 10_000,
        }
    }
}

/// The table `repository`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Repository {
    /// `Origin` and `Label` of the `Release` file.
    pub origin: String,
}

impl Default for Repository {
    fn default() -> Self {
        Repository { origin: "Kilnyard".to_owned() }
    }
}

/// Each slot is a thread; no machine has as many cores.
const SLOTS_MAX: u64 = 4096;
/// The largest number of processes that build systems take without wrapping.
const JOBS_MAX: u64 = 4096;
/// A year: what is more is as good as no limit, and its seconds stay far from overflowing.
const MINUTES_MAX: u64 = 366 * 24 * 60;
/// A tebibyte: no disk should be filled by one log.
const LOG_MEBIBYTES_MAX: u64 = 1 << 20;

impl Config {
    /// Reads a configuration; errors say where they are.
    pub fn parse(text: &str, path: &Path) -> Result<Config> {
        let config: Config = toml::from_str(text).map_err(|error| {
            let mut wrong = Error::usage(format!("{} is not right", path.display()));
            wrong.causes = error.to_string().lines().map(str::to_owned).collect();
            wrong
        })?;
        config.check().map_err(|reason| Error::usage(format!("{}: {reason}", path.display())))?;
        Ok(config)
    }

    fn check(&self) -> std::result::Result<(), String> {
        let word = |name: &str, value: &str| {
            let is_word = !value.is_empty()
                && value.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'/'))
                && !value.contains("..")
                && !value.starts_with('/');
            is_word.then_some(()).ok_or_else(|| format!("`{value}` cannot be a {name}"))
        };
        word("release", &self.debian.release)?;
        self.debian.suites.iter().try_for_each(|suite| word("suite", suite))?;
        self.debian.components.iter().try_for_each(|component| word("component", component))?;
        if self.debian.components.is_empty() {
            return Err("components is empty".to_owned());
        }
        if self.debian.mirror.all().is_empty() {
            return Err("mirror is empty".to_owned());
        }
        for mirror in self.debian.mirror.all() {
            if !["http://", "https://", "file:///"].iter().any(|scheme| mirror.starts_with(scheme)) {
                return Err(format!(
                    "the mirror `{mirror}` does not begin with http://, https:// or file:///"
                ));
            }
        }
        let suffix = &self.debian.version_suffix;
        let is_suffix = suffix.starts_with(['+', '~'])
            && suffix.len() > 1
            && suffix[1..].bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
            && !suffix.ends_with(|c: char| c.is_ascii_digit());
        if !is_suffix {
            return Err(format!(
                "version-suffix `{suffix}` must begin with + or ~ and end with a letter: a number follows it"
            ));
        }
        if self.debian.maintainer.contains(['\n', '\r']) || !self.debian.maintainer.contains('<') {
            return Err("maintainer must be of the form `Name <address>`".to_owned());
        }
        if self.build.slots == Some(0) || self.build.jobs == Some(0) {
            return Err("slots and jobs must be at least 1".to_owned());
        }
        if self.build.wall_minutes_max == 0 || self.build.idle_minutes_max == 0 {
            return Err("limits must be at least 1 minute".to_owned());
        }
        let build = &self.build;
        let bounded = [
            ("slots", build.slots.unwrap_or(1).into(), SLOTS_MAX),
            ("jobs", build.jobs.unwrap_or(1).into(), JOBS_MAX),
            ("wall-minutes-max", build.wall_minutes_max, MINUTES_MAX),
            ("idle-minutes-max", build.idle_minutes_max, MINUTES_MAX),
            ("log-mebibytes-max", build.log_mebibytes_max, LOG_MEBIBYTES_MAX),
        ];
        match bounded.into_iter().find(|(_, value, max)| value > max) {
            Some((key, value, max)) => Err(format!("{key} is {value}, and {max} is the most")),
            None => Ok(()),
        }
    }

    /// The settings of the Debian module, for this machine's architecture unless it is said.
    pub fn debian_settings(&self) -> Settings {
        Settings {
            release: self.debian.release.clone(),
            architecture: self.architecture(),
            mirrors: self.debian.mirror.all(),
            parts: self.debian.parts,
            runs_checks: self.debian.checks,
            profiles: self.debian.profiles.clone(),
            version_suffix: self.debian.version_suffix.clone(),
            maintainer: self.debian.maintainer.clone(),
            cycles: match self.debian.cycles {
                CyclesWord::Archive => Cycles::Archive,
                CyclesWord::Profile => Cycles::Profile,
            },
        }
    }

    /// The architecture, by Debian's name.
    pub fn architecture(&self) -> String {
        self.debian.architecture.clone().unwrap_or_else(|| {
            let name = match std::env::consts::ARCH {
                "x86_64" => "amd64",
                "x86" => "i386",
                "aarch64" => "arm64",
                "arm" => "armhf",
                "powerpc64" => "ppc64el",
                other => other,
            };
            name.to_owned()
        })
    }

    /// Limits of each command.
    pub fn limits(&self) -> Limits {
        Limits {
            wall_seconds_max: self.build.wall_minutes_max * 60,
            idle_seconds_max: self.build.idle_minutes_max * 60,
        }
    }

    /// Limits of each log.
    pub fn log_limits(&self) -> LogLimits {
        LogLimits { head_bytes_max: self.build.log_mebibytes_max << 20, ..LogLimits::default() }
    }

    /// The names and `.dsc` files that are asked for, from the configuration and its file; none for all.
    pub fn package_names(&self, yard: &Path) -> Result<Option<Vec<String>>> {
        let mut names = match &self.packages {
            Packages::All(All::All) => return Ok(None),
            Packages::Some(names) => names.clone(),
        };
        if let Some(file) = &self.packages_file {
            let path = yard.join(file);
            let text = fs_err::read_to_string(&path)
                .map_err(|error| Error::usage(format!("packages-file: {error}")))?;
            let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
            names.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
        }
        for name in &names {
            if !name.ends_with(".dsc") && !relation::is_name(name) {
                return Err(Error::usage(format!("`{name}` cannot be the name of a source package")));
            }
        }
        let mut seen = std::collections::HashSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Ok(Some(names))
    }
}

/// What `kilnyard init debian` writes.
pub fn template(release: &str, mirror: &str, packages: &[String]) -> String {
    let quoted = |text: &str| toml::Value::from(text).to_string();
    let mut list = String::new();
    for package in packages {
        list.push_str(&format!("  {},\n", quoted(package)));
    }
    format!(
        r#"# A yard of Kilnyard. `kilnyard build` builds it; `kilnyard doctor` checks this machine.

# Source packages by name, or paths of .dsc files; "all" for every source of the release.
packages = [
{list}]
# packages-file = "packages.txt"   # more of them, one a line

[debian]
release = {release}
mirror = {mirror}
# suites = ["bookworm-updates"]    # more suites of the same mirror
# components = ["main"]
# keyring = "/usr/share/keyrings/debian-archive-keyring.gpg"
# parts = "dependent"              # as dpkg-buildpackage -B; "all" as -b
# checks = false                   # run the sources' own tests
# profiles = []                    # build profiles
# version-suffix = "+bk"           # a rebuilt 1.2-3 is 1.2-3+bk1
# cycles = "archive"               # who stands in: "archive" binaries, or a build "profile"

[build]
# slots = 2                        # builds at once; by cores and memory
# jobs = 2                         # processes of one build; all cores
# test = true                      # install and remove outputs in a clean root
# wall-minutes-max = 720
# idle-minutes-max = 60
# log-mebibytes-max = 32
# failed-roots-max = 10            # kept for `kilnyard shell`
# mirror-bytes-per-second-min = 10000

[repository]
# origin = "Kilnyard"
"#,
        release = quoted(release),
        mirror = quoted(mirror),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config> {
        Config::parse(text, Path::new("kilnyard.toml"))
    }

    #[test]
    fn what_init_writes_is_read_and_its_comments_are_the_defaults() {
        let text = template("bookworm", "http://deb.example/debian", &["zlib".into(), "acl".into()]);
        let config = parse(&text).unwrap();
        assert_eq!(config.package_names(Path::new("/")).unwrap(), Some(vec!["zlib".into(), "acl".into()]));
        let uncommented: String = text
            .lines()
            .map(|line| match line.strip_prefix("# ") {
                Some(rest)
                    if rest.contains(" = ")
                        && !rest.starts_with("packages-file")
                        && !rest.starts_with("suites") =>
                {
                    format!("{rest}\n")
                }
                _ => format!("{line}\n"),
            })
            .collect();
        let all = parse(&uncommented).unwrap();
        assert_eq!(all.debian_settings(), config.debian_settings());
        assert_eq!((all.limits(), all.log_limits()), (config.limits(), config.log_limits()));
        assert_eq!((all.build.slots, all.build.test), (Some(2), true));
    }

    #[test]
    fn a_misspelt_key_is_refused_with_its_line() {
        let text =
            template("bookworm", "http://deb.example/debian", &[]).replace("# slots = 2 ", "slotz = 2 #");
        let error = parse(&text).unwrap_err().to_string();
        assert!(error.contains("slotz") && error.contains("slots"), "{error}");
        let line = text.lines().position(|line| line.starts_with("slotz")).unwrap() + 1;
        assert!(error.contains(&format!("line {line}")), "{error}");
    }

    #[test]
    fn values_that_cannot_be_are_refused() {
        let good = template("bookworm", "http://deb.example/debian", &[]);
        for (from, to) in [
            ("\"bookworm\"", "\"../x\""),
            ("http://deb.example/debian", "ftp://x"),
            ("# version-suffix = \"+bk\"", "version-suffix = \"+b1\""),
            ("# slots = 2", "slots = 0"),
        ] {
            let text = good.replacen(from, to, 1);
            assert_ne!(text, good);
            assert!(parse(&text).is_err(), "{to} is let pass");
        }
        assert_eq!(
            parse(&good.replace("packages = [\n]", "packages = \"all\""))
                .unwrap()
                .package_names(Path::new("/"))
                .unwrap(),
            None
        );
    }
}
