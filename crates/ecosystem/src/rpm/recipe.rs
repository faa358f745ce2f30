//! A source package as it is built: what a spec file says of itself, asked in a root by [`QUERY`].

use super::SOURCE;
use super::relation::Relation;
use super::universe::{Entry, Package};
use super::version::{Evr, Range};
use super::{relation::Capability, settings::Settings, stages};
use crate::hash_of;
use kilnyard_model::order::Output;
use serde::{Deserialize, Serialize};

/// The longest answer about a spec file. The kernel's has some hundred kilobytes.
pub const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The most lines of one. Those about the kernel or texlive are some ten thousand.
const LINES_MAX: usize = 200_000;

/// Asks rpmspec about the spec file `$2` in the folder `$1`, with the macros in the file `$3`; a line for each fact. Macros run
/// commands, so it runs in a sandbox of its own. Packages without files are not built, and are left out. A source package is
/// unpacked first.
pub const QUERY: &str = r#"
folder=$1 spec=$2 macros=$3
try() {
  "$@" 2> /tmp/kilnyard-said && return 0
  code=$?
  echo
  cat /tmp/kilnyard-said
  exit $code
}
case $spec in *.src.rpm)
  try rpm -i --nodeps --nosignature --define '_topdir /build' --define '_dbpath /build/database' "$folder/$spec"
  folder=/build/SOURCES
  mv /build/SPECS/*.spec "$folder/"
  spec=$(cd "$folder"; echo *.spec)
esac
ask() { try rpmspec --load "$macros" --define "_sourcedir $folder" "$@" "$folder/$spec"; }
source='N\t%{NAME}\nE\t%|EPOCH?{%{EPOCH}}:{}|\nV\t%{VERSION}\nR\t%{RELEASE}\n[Q\t%{REQUIRENEVRS}\n][C\t%{CONFLICTNEVRS}\n][S\t%{SOURCE}\n][S\t%{PATCH}\n][X\t%{EXCLUSIVEARCH}\n][Y\t%{EXCLUDEARCH}\n][D\t%{CHANGELOGTIME}\n]'
ask -q --srpm --qf "$source"
# Of sources that are downloaded, only the text of the spec file has the addresses.
if grep -qiE '^[[:space:]]*(source|patch)[0-9]*[[:space:]]*:.*(://|%)' "$folder/$spec"; then
  ask -P > /tmp/kilnyard-text
  sed -n 's/^[[:space:]]*\(source\|patch\)[0-9]*[[:space:]]*:[[:space:]]*\(.*:\/\/.*\)/U\t\2/Ip' /tmp/kilnyard-text
fi
packages='B\t%{NAME}\nA\t%{ARCH}\nE\t%|EPOCH?{%{EPOCH}}:{}|\nV\t%{VERSION}\nR\t%{RELEASE}\n[P\t%{PROVIDENEVRS}\n][Q\t%{REQUIRENEVRS}\n]'
ask -q --builtrpms --qf "$packages"
# The same, as it is built to break a cycle. One that fails so is never built so.
with() { ask --define '_with_bootstrap --with-bootstrap' -q "$@"; }
if grep -qE 'bcond.*[[:space:]{]bootstrap|_with_bootstrap' "$folder/$spec" &&
  (with --srpm --qf "$source"; with --builtrpms --qf "$packages") > /tmp/kilnyard-bootstrap; then
  printf 'W\tbootstrap\n'
  cat /tmp/kilnyard-bootstrap
fi
"#;

/// The line before the answer of a source that is built with `bootstrap`.
const WITH_BOOTSTRAP: &str = "W\tbootstrap\n";

/// A file of a source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// Its name.
    pub name: String,
    /// Its SHA-256.
    pub sha256: String,
    /// Its size.
    pub size_bytes: u64,
    /// Where it can be downloaded; empty if it is kept with the yard's files.
    pub urls: Vec<String>,
}

/// A binary package that a source makes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedPackage {
    /// The name.
    pub name: String,
    /// The architecture.
    pub architecture: String,
    /// The version; with the mark of a rebuild in its release.
    pub evr: [String; 3],
    /// What the spec file itself says that it provides.
    pub provides: Vec<String>,
    /// What the spec file itself says that it requires.
    pub requires: Vec<String>,
}

/// A source package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recipe {
    /// The name.
    pub name: String,
    /// The epoch; empty if there is none.
    pub epoch: String,
    /// The version.
    pub version: String,
    /// The release, with [`Settings::mark`] where the spec file has `%dist`.
    pub release: String,
    /// What a build requires.
    pub requires: Vec<String>,
    /// What a build requires in addition, as an earlier one found out (`%generate_buildrequires`).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub generated: Vec<String>,
    /// What must not be installed for a build.
    pub conflicts: Vec<String>,
    /// Names of the files that it lists.
    pub listed: Vec<String>,
    /// The addresses of files that it lists, in its order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// The architectures that it is only for; empty for all.
    pub only_for: Vec<String>,
    /// The architectures that it is not for.
    pub not_for: Vec<String>,
    /// Whether it has a date: that of its last change.
    #[serde(default)]
    pub has_date: bool,
    /// The packages that it makes.
    pub packages: Vec<PlannedPackage>,
    /// The name of the spec file; empty if the source is a package file.
    pub spec: String,
    /// Its files.
    pub files: Vec<SourceFile>,
    /// Whether it is built `--with bootstrap`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_bootstrap: bool,
    /// The same source `--with bootstrap`, if the spec file has that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Box<Recipe>>,
}

/// An answer that is not about a source.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("rpmspec's answer {0}")]
pub struct AnswerError(String);

impl Recipe {
    /// Reads the answer to [`QUERY`]. One whose name, version or release differs with `bootstrap` is never built so.
    ///
    /// # Errors
    /// It is not an answer, or names what no package can have.
    pub fn read(answer: &str) -> Result<Recipe, AnswerError> {
        let Some((plain, with_bootstrap)) = answer.split_once(WITH_BOOTSTRAP) else {
            return Recipe::read_one(answer);
        };
        let mut recipe = Recipe::read_one(plain)?;
        let is_same = |other: &Recipe| {
            let all = |recipe: &Recipe| {
                [&recipe.name, &recipe.epoch, &recipe.version, &recipe.release].map(String::clone)
            };
            all(other) == all(&recipe)
        };
        let other = Recipe::read_one(with_bootstrap).ok().filter(is_same);
        recipe.bootstrap = other.map(|other| Box::new(Recipe { is_bootstrap: true, ..other }));
        Ok(recipe)
    }

    fn read_one(answer: &str) -> Result<Recipe, AnswerError> {
        let mut recipe = Recipe::default();
        if answer.lines().count() > LINES_MAX {
            return Err(AnswerError(format!("has more than {LINES_MAX} lines")));
        }
        for line in answer.lines() {
            let Some((key, value)) = line.split_once('\t') else {
                return Err(AnswerError(format!("has the line {:?}", shortened(line))));
            };
            let value = value.to_owned();
            if key == "B" {
                recipe.packages.push(PlannedPackage { name: value, ..PlannedPackage::default() });
                continue;
            }
            let Recipe { packages, .. } = &mut recipe;
            match (key, packages.last_mut()) {
                ("E", Some(package)) => package.evr[0] = value,
                ("V", Some(package)) => package.evr[1] = value,
                ("R", Some(package)) => package.evr[2] = value,
                ("A", Some(package)) => package.architecture = value,
                ("P", Some(package)) => package.provides.push(value),
                ("Q", Some(package)) => package.requires.push(value),
                ("N", None) => recipe.name = value,
                ("E", None) => recipe.epoch = value,
                ("V", None) => recipe.version = value,
                ("R", None) => recipe.release = value,
                ("Q", None) => recipe.requires.push(value),
                ("C", None) => recipe.conflicts.push(value),
                ("S", None) => recipe.listed.push(value),
                ("U", None) => recipe.addresses.push(value.trim().to_owned()),
                ("X", None) => recipe.only_for.push(value),
                ("Y", None) => recipe.not_for.push(value),
                ("D", None) => recipe.has_date = true,
                _ => return Err(AnswerError(format!("has the line {:?}", shortened(line)))),
            }
        }
        let is_whole = is_name(&recipe.name) && is_version(&recipe.version) && is_version(&recipe.release);
        let names = recipe.packages.iter().all(|package| {
            is_name(&package.name) && is_version(&package.evr[1]) && is_version(&package.evr[2])
        });
        match is_whole && names && recipe.listed.iter().all(|name| is_file_name(name)) {
            true => Ok(recipe),
            false => Err(AnswerError("has no valid name, version, release or source".to_owned())),
        }
    }

    /// Where a file that it lists can be downloaded by its spec file; the last part of the address, or what follows `#/`, is its
    /// name.
    pub fn address_of(&self, file: &str) -> Option<&str> {
        let is_web = |address: &&String| address.starts_with("https://") || address.starts_with("http://");
        let found = self.addresses.iter().filter(is_web).find(|one| one.rsplit('/').next() == Some(file));
        // The part after the number sign is not the server's.
        found.map(|address| address.split('#').next().unwrap_or(address))
    }

    /// The package that it makes under a name; one that only a build with `bootstrap` makes as well.
    pub fn planned(&self, name: &str) -> Option<&PlannedPackage> {
        let others = self.bootstrap.iter().flat_map(|other| &other.packages);
        self.packages.iter().chain(others).find(|package| package.name == name)
    }

    /// Checks that a build has made all that its spec file makes, `--with bootstrap` or without, and its source package, whose version
    /// later ones have to be above.
    ///
    /// # Errors
    /// The name of what is missing.
    pub fn check_complete(&self, outputs: &[Output]) -> Result<(), String> {
        // Of a source that only a repository describes, it is not known: what is made may depend on much.
        if !self.files.iter().any(|file| file.urls.is_empty()) {
            return Ok(());
        }
        let has = |name: &str| outputs.iter().any(|output| output.name == name);
        let source = format!("{}.{SOURCE}", self.name);
        if !has(&source) {
            return Err("the build made no source package".to_owned());
        }
        let missing = |recipe: &Recipe| {
            recipe.packages.iter().map(|package| package.name.clone()).find(|name| !has(name))
        };
        match (missing(self), self.bootstrap.as_deref().map(missing)) {
            (None, _) | (_, Some(None)) => Ok(()),
            (Some(name), _) => Err(format!("the build made no package {name}, which its spec file has")),
        }
    }

    /// Whether it is built for an architecture.
    pub fn builds_on(&self, architecture: &str) -> bool {
        let is_listed = |list: &[String]| list.iter().any(|one| one == architecture || one == "noarch");
        (self.only_for.is_empty() || is_listed(&self.only_for))
            && !self.not_for.iter().any(|one| one == architecture)
    }

    /// The version, without the number of a rebuild.
    pub fn recipe_version(&self, settings: &Settings) -> String {
        format!("{}-{}", self.version_with_epoch(), self.release.replace(&settings.mark(), &settings.dist))
    }

    /// The version of a rebuild.
    pub fn rebuilt_version(&self, settings: &Settings, revision: u32) -> String {
        format!("{}-{}", self.version_with_epoch(), settings.release(&self.release, revision))
    }

    /// Whether `%dist` is a part of the release.
    pub fn has_dist(&self, settings: &Settings) -> bool {
        self.release.contains(&settings.mark())
    }

    /// Whether it is a part of the releases of all its packages, too, which may have their own.
    pub fn all_have_dist(&self, settings: &Settings) -> bool {
        let bootstrap = self.bootstrap.iter().flat_map(|other| &other.packages);
        let mut packages = self.packages.iter().chain(bootstrap);
        self.has_dist(settings) && packages.all(|package| package.evr[2].contains(&settings.mark()))
    }

    fn version_with_epoch(&self) -> String {
        match self.epoch.as_str() {
            "" | "0" => self.version.clone(),
            epoch => format!("{epoch}:{}", self.version),
        }
    }

    /// The total size of its files.
    pub fn source_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size_bytes).sum()
    }

    /// What a build requires, for the solver.
    pub fn request(&self) -> (Vec<Entry>, Vec<Entry>) {
        let parse = |texts: &[String]| -> Vec<Entry> {
            // What rpm itself has is written like a package.
            texts
                .iter()
                .filter(|text| !text.starts_with("rpmlib("))
                .map(|text| Relation::parse(text))
                .collect()
        };
        let mut requires = parse(&self.requires);
        requires.extend(parse(&self.generated));
        (requires, parse(&self.conflicts))
    }

    /// A hash of the files that it is built from, and of the macros.
    pub fn digest(&self, settings: &Settings) -> String {
        let mut text = format!("{}\n{}", self.name, stages::macros(settings, &settings.mark()).text);
        if self.is_bootstrap {
            text.push_str("with bootstrap\n");
        }
        for file in &self.files {
            text.push_str(&format!("{} {}\n", file.sha256, file.name));
        }
        hash_of(&text)
    }
}

impl PlannedPackage {
    /// The package as a repository would describe it, as far as that is known. `known` is the package of this name that a
    /// repository has, which says what the spec file does not: libraries, files.
    pub fn described(&self, settings: &Settings, known: Option<&Package>) -> Package {
        let release = settings.release(&self.evr[2], 1);
        let evr = Evr::new(&self.evr[0], &self.evr[1], &release);
        let mut package = Package {
            name: self.name.as_str().into(),
            evr: evr.clone(),
            architecture: self.architecture.as_str().into(),
            ..Package::default()
        };
        let parse = |text: &String| {
            Relation::parse(
                &text.replace(&settings.mark(), &format!("{}{}1", settings.dist, settings.suffix)),
            )
        };
        let capability = |text: &String| match parse(text) {
            Ok(Relation::Plain(capability)) => Some(capability),
            _ => None,
        };
        package.provides = self.provides.iter().filter_map(capability).collect();
        package.requires = self.requires.iter().map(parse).collect();
        let Some(known) = known else { return package };
        package.files.clone_from(&known.files);
        let own: Vec<Box<str>> = package.provides.iter().map(|one| one.name.clone()).collect();
        let renewed = |one: &Capability| {
            // What has the version of the package has that of the rebuild.
            let is_of_version = one.range.as_ref().is_some_and(|range| range.evr == known.evr);
            let range = if is_of_version { Some(Range::exactly(evr.clone())) } else { one.range.clone() };
            Capability { name: one.name.clone(), range }
        };
        package.provides.extend(known.provides.iter().filter(|one| !own.contains(&one.name)).map(renewed));
        package.conflicts.clone_from(&known.conflicts);
        package.obsoletes.clone_from(&known.obsoletes);
        let of_version = |range: &Range| range.evr == known.evr;
        for entry in &known.requires {
            let is_of_sibling = matches!(entry, Ok(Relation::Plain(Capability { range: Some(range), .. })) if of_version(range));
            if !is_of_sibling && !package.requires.contains(entry) {
                package.requires.push(entry.clone());
            }
        }
        package
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}

/// Whether a text can be the name of a package, and of a file of it.
pub fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() < 200
        && !text.starts_with(['.', '-'])
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte))
}

/// Whether a text can be a version or a release (`rpmCharCheck`).
pub fn is_version(text: &str) -> bool {
    !text.is_empty()
        && text.len() < 200
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+~^".contains(&byte))
}

/// Whether a text is the name of a file, without a folder.
pub fn is_file_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() < 256
        && !matches!(text, "." | "..")
        && !text.contains(|c: char| c == '/' || c.is_control())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "N\thello\nE\t1\nV\t1.0~rc1\nR\t1.kt1.bk0\nQ\tgcc\nQ\t(zlib-devel >= 1 or zlib-ng)\nQ\trpmlib(X) <= 4\nS\thello-1.0.tar.gz\nS\trenamed\nX\tx86_64\nD\t1767614400\n\
                          U\thttps://example.org/hello-1.0.tar.gz\nU\thttps://example.org/get?file=1#/renamed\nU\tfile:///etc/shadow\n\
                          B\thello\nA\tx86_64\nE\t1\nV\t1.0~rc1\nR\t1.kt1.bk0\nP\thello = 1:1.0~rc1-1.kt1.bk0\nQ\thello-data\nB\thello-data\nA\tnoarch\nE\t\nV\t2\nR\t1\n";

    #[test]
    fn an_answer_is_read() {
        let recipe = Recipe::read(ANSWER).unwrap();
        let settings = Settings::trial();
        assert_eq!(recipe.recipe_version(&settings), "1:1.0~rc1-1.kt1");
        assert_eq!(recipe.rebuilt_version(&settings, 3), "1:1.0~rc1-1.kt1.bk3");
        assert!(
            recipe.has_date
                && recipe.has_dist(&settings)
                && recipe.builds_on("x86_64")
                && !recipe.builds_on("riscv64")
        );
        assert_eq!(recipe.request().0.len(), 2);
        assert_eq!(recipe.address_of("hello-1.0.tar.gz"), Some("https://example.org/hello-1.0.tar.gz"));
        assert_eq!(recipe.address_of("renamed"), Some("https://example.org/get?file=1"));
        assert_eq!(recipe.address_of("shadow"), None, "only the web has sources");
        assert_eq!(recipe.packages.len(), 2);
        let described = recipe.packages[0].described(&settings, None);
        assert_eq!(described.evr.to_string(), "1:1.0~rc1-1.kt1.bk1");
        assert_eq!(described.provides[0].name.as_ref(), "hello");
        // Without %dist, the number is a part of its own.
        assert_eq!(recipe.packages[1].described(&settings, None).evr.to_string(), "2-1.bk1");
    }

    #[test]
    fn an_answer_has_a_second_part_with_bootstrap() {
        let other =
            ANSWER.replacen("Q\tgcc\n", "", 1).replace("B\thello-data\nA\tnoarch\nE\t\nV\t2\nR\t1\n", "");
        let recipe = Recipe::read(&format!("{ANSWER}{WITH_BOOTSTRAP}{other}")).unwrap();
        let bootstrap = recipe.bootstrap.as_deref().unwrap();
        assert!(bootstrap.is_bootstrap && !recipe.is_bootstrap);
        assert_eq!((recipe.request().0.len(), bootstrap.request().0.len()), (2, 1));
        assert!(bootstrap.planned("hello-data").is_none() && recipe.planned("hello-data").is_some());
        let settings = Settings::trial();
        assert_ne!(bootstrap.digest(&settings), recipe.digest(&settings));
        let higher = other.replacen("V\t1.0~rc1", "V\t1.0", 1);
        assert_eq!(Recipe::read(&format!("{ANSWER}{WITH_BOOTSTRAP}{higher}")).unwrap().bootstrap, None);
        assert_eq!(Recipe::read(&format!("{ANSWER}{WITH_BOOTSTRAP}")).unwrap().bootstrap, None);
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for (from, to) in [
            ("N\thello", "N\t../hello"),
            ("V\t1.0~rc1", "V\t1-0"),
            ("S\thello-1.0.tar.gz", "S\t../x"),
            ("B\thello\n", "B\t\n"),
            ("X\t", "Z\t"),
            ("Q\tgcc", "gcc"),
        ] {
            assert!(Recipe::read(&ANSWER.replacen(from, to, 1)).is_err(), "{to}");
        }
        assert!(Recipe::read("").is_err());
    }
}
