//! Source packages: the stanzas of `Sources`, and the requirements of a build.

use super::architecture;
use super::autopkgtest;
use super::deb822::{self, Stanza};
use super::relation;
use super::suites::{Provenance, SuiteId};
use super::universe::{Request, TooLarge};
use super::version;
use kilnyard_model::text;
use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

/// The longest file name that Linux file systems accept.
const NAME_BYTES_MAX: usize = 255;

/// Limit on source packages in an index. Each takes about 100 bytes of memory but as little as 24 bytes of the
/// index; all of Debian's suites have 200,000.
const SOURCES_MAX: usize = 2 << 20;

/// A file of a source package, as `Sources` lists it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct SourceFile {
    /// File name, without a folder.
    pub name: String,
    /// SHA-256 of the file, in lower-case hexadecimal.
    pub sha256: String,
    /// Size as listed, which a download must match.
    pub size_bytes: u64,
}

/// A stanza of `Sources` that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// A required field is missing or malformed.
    #[error("the source {package} has no valid field {field}")]
    Field {
        /// Name of the source package.
        package: String,
        /// Name of the field.
        field: &'static str,
    },
    /// A file name could lead out of its folder, could mislead a reader, or occurs twice.
    #[error("the source {package} lists a file with the invalid or duplicate name `{name}`")]
    FileName {
        /// Name of the source package.
        package: String,
        /// The name as listed.
        name: String,
    },
}

/// The binary packages of a source that are built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Parts {
    /// Architecture-dependent packages only (`dpkg-buildpackage -B`).
    Dependent,
    /// All binary packages (`-b`).
    All,
}

/// A source package, as a view of its stanza.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    stanza: Stanza<'a>,
}

impl<'a> Source<'a> {
    /// Takes a stanza of `Sources` as a source package.
    pub fn new(stanza: Stanza<'a>) -> Source<'a> {
        Source { stanza }
    }

    /// The underlying stanza of `Sources`.
    pub fn stanza(&self) -> Stanza<'a> {
        self.stanza
    }

    /// The field `Package`; empty if it is absent.
    pub fn name(&self) -> &'a str {
        self.stanza.get("Package").unwrap_or("")
    }

    /// The field `Version`; empty if it is absent.
    pub fn version(&self) -> &'a str {
        self.stanza.get("Version").unwrap_or("")
    }

    /// Whether the source is only kept for the sake of another package (`Extra-Source-Only: yes`).
    pub fn is_extra(&self) -> bool {
        self.stanza.get("Extra-Source-Only") == Some("yes")
    }

    /// Whether a build of these parts produces anything on this architecture.
    pub fn builds_on(&self, architecture: &str, parts: Parts) -> bool {
        let field = self.stanza.get("Architecture").unwrap_or("any");
        match parts {
            Parts::Dependent => architecture::source_has_dependent_outputs(field, architecture),
            Parts::All => architecture::source_builds_on(field, architecture),
        }
    }

    /// The packages that a build requires, and those that it excludes. `build-essential` is always required.
    pub fn request(&self, parts: Parts) -> Request {
        let get =
            |fields: &[&str]| fields.iter().filter_map(|f| self.stanza.get(f)).map(str::to_owned).collect();
        let mut request = match parts {
            Parts::Dependent => Request {
                needs: get(&["Build-Depends", "Build-Depends-Arch"]),
                excludes: get(&["Build-Conflicts", "Build-Conflicts-Arch"]),
                profiles: None,
            },
            Parts::All => Request {
                needs: get(&["Build-Depends", "Build-Depends-Arch", "Build-Depends-Indep"]),
                excludes: get(&["Build-Conflicts", "Build-Conflicts-Arch", "Build-Conflicts-Indep"]),
                profiles: None,
            },
        };
        request.needs.push("build-essential:native".to_owned());
        request
    }

    /// The names of the binary packages that these parts produce on this architecture, from `Package-List` (without
    /// packages for the installer, or those excluded by build profiles), otherwise from `Binary`.
    pub fn outputs(&self, context: &relation::Context, parts: Parts) -> Vec<&'a str> {
        if self.stanza.get("Package-List").is_none() {
            return self.binaries().collect();
        }
        let made = self.declared().into_iter().filter(|one| one.kind == OutputKind::Deb);
        made.filter(|one| one.is_made(context, parts)).map(|one| one.name).collect()
    }

    /// Every binary package that the source declares, on any architecture and with any profile. They come from
    /// `Package-List`, otherwise from `Binary`, whose packages share the architectures of the source.
    pub fn declared(&self) -> Vec<Declared<'a>> {
        match self.stanza.get("Package-List") {
            Some(list) => list.lines().filter_map(Declared::parse).collect(),
            None => {
                let architectures = self.stanza.get("Architecture").unwrap_or("any all");
                let declared = |name| Declared { name, kind: OutputKind::Deb, architectures, profiles: None };
                self.binaries().map(declared).collect()
            }
        }
    }

    fn binaries(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let all = self.stanza.get("Binary").unwrap_or("").split(',');
        all.map(str::trim).filter(|name| relation::is_name(name))
    }

    /// The folder of the source's files in the archive; empty if it is absent.
    pub fn directory(&self) -> &'a str {
        self.stanza.get("Directory").unwrap_or("")
    }

    /// The files, from `Checksums-Sha256`; exactly one of them is a `.dsc`.
    pub fn files(&self) -> Result<Vec<SourceFile>, SourceError> {
        let field_error =
            || SourceError::Field { package: self.name().to_owned(), field: "Checksums-Sha256" };
        let list = self.stanza.get("Checksums-Sha256").ok_or_else(field_error)?;
        let mut files = Vec::new();
        for line in list.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let parts: Vec<&str> = line.split_whitespace().collect();
            let [sha256, size, name] = parts[..] else { return Err(field_error()) };
            let is_hash = sha256.len() == 64 && sha256.bytes().all(|b| b.is_ascii_hexdigit());
            let size_bytes = size.parse().map_err(|_| field_error())?;
            if !is_hash {
                return Err(field_error());
            }
            // A duplicate name would be one file with two contents.
            let is_listed = files.iter().any(|other: &SourceFile| other.name == name);
            if !is_file_name(name) || is_listed {
                return Err(SourceError::FileName {
                    package: self.name().to_owned(),
                    name: text::line(name),
                });
            }
            files.push(SourceFile { name: name.to_owned(), sha256: sha256.to_ascii_lowercase(), size_bytes });
        }
        if files.iter().filter(|file| file.name.ends_with(".dsc")).count() != 1 {
            return Err(field_error());
        }
        Ok(files)
    }
}

/// Whether a name stays in its folder, cannot be taken for a command option, and prints unambiguously.
pub(super) fn is_file_name(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.starts_with(['.', '-'])
        && name.bytes().all(|b| b.is_ascii_graphic() && b != b'/')
}

/// The kind of a binary package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OutputKind {
    /// For installed systems.
    Deb,
    /// For the Debian installer only.
    Udeb,
}

impl OutputKind {
    /// The kind of a file, from its name.
    pub fn of_file(name: &str) -> OutputKind {
        if name.ends_with(".udeb") { OutputKind::Udeb } else { OutputKind::Deb }
    }
}

impl std::fmt::Display for OutputKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            OutputKind::Deb => "deb",
            OutputKind::Udeb => "udeb",
        })
    }
}

/// A binary package that a source declares: a line of `Package-List` with name, type, section and priority, then
/// `arch=`, `profile=`, `essential=`.
#[derive(Clone, Copy, Debug)]
pub struct Declared<'a> {
    /// Name of the binary package.
    pub name: &'a str,
    /// Whether it is for installed systems or for the installer.
    pub kind: OutputKind,
    /// The architectures, separated by commas or blanks.
    pub architectures: &'a str,
    profiles: Option<&'a str>,
}

impl<'a> Declared<'a> {
    fn parse(line: &'a str) -> Option<Declared<'a>> {
        let mut words = line.split_whitespace();
        let name = words.next()?;
        let kind = match words.next()? {
            "deb" => OutputKind::Deb,
            "udeb" => OutputKind::Udeb,
            _ => return None,
        };
        let mut declared = Declared { name, kind, architectures: "any", profiles: None };
        for word in words {
            if let Some(value) = word.strip_prefix("arch=") {
                declared.architectures = value;
            } else if let Some(value) = word.strip_prefix("profile=") {
                declared.profiles = Some(value);
            }
        }
        relation::is_name(name).then_some(declared)
    }

    fn architectures(&self) -> impl Iterator<Item = &'a str> {
        self.architectures.split([',', ' ', '\n']).filter(|one| !one.is_empty())
    }

    /// Whether this declaration covers a package of the architecture `found` in a build for `architecture`.
    pub fn is_for(&self, found: &str, architecture: &str) -> bool {
        match found {
            "all" => self.architectures().any(|one| one == "all"),
            _ => {
                found == architecture
                    && self
                        .architectures()
                        .any(|one| one != "all" && architecture::matches(one, architecture))
            }
        }
    }

    /// Whether a build of these parts produces this package.
    pub fn is_made(&self, context: &relation::Context, parts: Parts) -> bool {
        let has_profile = |term: &str| match term.strip_prefix('!') {
            Some(profile) => !context.profiles.iter().any(|p| p == profile),
            None => context.profiles.iter().any(|p| p == term),
        };
        // `profile=!a+b,c`: commas separate alternatives of terms joined by `+`.
        let profiles_hold =
            self.profiles.is_none_or(|list| list.split(',').any(|terms| terms.split('+').all(has_profile)));
        let is_part = self.is_for(&context.architecture, &context.architecture)
            || (parts == Parts::All && self.is_for("all", &context.architecture));
        is_part && profiles_hold
    }
}

/// The source packages of archives. For each name, one version counts: the latest of those with the highest pin; see
/// [`super::suites`].
#[derive(Clone, Debug, Default)]
pub struct Sources {
    texts: Vec<(Arc<str>, Provenance)>,
    chosen: HashMap<String, TextRange>,
    /// The versions that do not count, of names with several versions.
    others: HashMap<String, Vec<TextRange>>,
    /// Number of versions that do not count.
    other_count: usize,
}

#[derive(Clone, Copy, Debug)]
struct TextRange {
    text: usize,
    start: usize,
    len: usize,
}

impl Sources {
    /// Adds the stanzas of a `Sources` text of the main archive; see [`Sources::add_from`].
    pub fn add(&mut self, text: Arc<str>) -> Result<(), TooLarge> {
        self.add_from(text, Provenance::default())
    }

    /// Adds the stanzas of a `Sources` text. Sources that are only kept for the sake of another package, and those
    /// without a valid name and version, are skipped. A negative pin counts only if [`Sources::choose`] chooses it.
    /// After an error, part of the text has been added.
    pub fn add_from(&mut self, text: Arc<str>, from: Provenance) -> Result<(), TooLarge> {
        self.add_named(text, from, &relation::is_name)
    }

    /// Adds the test of a source, which has files of it; see [`super::autopkgtest`].
    pub fn add_test(&mut self, text: Arc<str>, source: &str) -> Result<(), TooLarge> {
        let of = self.chosen.get(source).map_or_else(Provenance::default, |of| self.texts[of.text].1);
        self.add_named(text, of, &autopkgtest::is_test)
    }

    /// Adds the stanzas whose names are accepted.
    fn add_named(
        &mut self,
        text: Arc<str>,
        from: Provenance,
        is_name: &dyn Fn(&str) -> bool,
    ) -> Result<(), TooLarge> {
        let number = self.texts.len();
        self.texts.push((text.clone(), from));
        for stanza in deb822::stanzas(&text) {
            let source = Source::new(stanza);
            let name = source.name();
            if !is_name(name) || !version::is_valid(source.version()) || source.is_extra() {
                continue;
            }
            let start = stanza.text().as_ptr() as usize - text.as_ptr() as usize;
            let place = TextRange { text: number, start, len: stanza.text().len() };
            let known = self.chosen.get(name).copied();
            let counts =
                from.pin >= 0 && known.is_none_or(|known| self.compare(known, place) == Ordering::Less);
            if counts {
                self.chosen.insert(name.to_owned(), place);
            }
            if let Some(other) = if counts { known } else { Some(place) } {
                self.others.entry(name.to_owned()).or_default().push(other);
                self.other_count += 1;
            }
            if self.chosen.len() + self.other_count > SOURCES_MAX {
                return Err(TooLarge::Sources { max: SOURCES_MAX });
            }
        }
        Ok(())
    }

    /// Adds one of the user's own sources, which replaces any source of the same name, whatever its version and pin.
    pub fn put(&mut self, text: Arc<str>) -> Result<(), TooLarge> {
        if let Some(stanza) = deb822::stanzas(&text).next() {
            let name = Source::new(stanza).name();
            self.chosen.remove(name);
            self.other_count -= self.others.remove(name).map_or(0, |others| others.len());
        }
        self.add_from(text, Provenance::OWN)
    }

    /// Selects the version of a source that counts: the latest of those with the highest pin that `accepts` accepts.
    /// If there is none, it returns false and changes nothing.
    pub fn choose(&mut self, name: &str, accepts: &dyn Fn(&str, SuiteId) -> bool) -> bool {
        let mut places = self.places(name);
        places.sort_by(|a, b| self.compare(*b, *a));
        let is_meant = |place: &TextRange| accepts(self.at(*place).version(), self.texts[place.text].1.suite);
        let Some(at) = places.iter().position(is_meant) else { return false };
        self.chosen.insert(name.to_owned(), places.remove(at));
        let before = self.others.insert(name.to_owned(), places);
        let after = self.others.get(name).map_or(0, Vec::len);
        self.other_count = self.other_count + after - before.map_or(0, |before| before.len());
        true
    }

    /// All versions of a source with their suites, in the order in which they would be chosen.
    pub fn versions(&self, name: &str) -> Vec<(&str, SuiteId)> {
        let mut places = self.places(name);
        places.sort_by(|a, b| self.compare(*b, *a));
        places.into_iter().map(|place| (self.at(place).version(), self.texts[place.text].1.suite)).collect()
    }

    /// All versions of a source, as [`Sources::versions`] has them.
    pub fn stanzas(&self, name: &str) -> Vec<(Source<'_>, SuiteId)> {
        let places = self.places(name).into_iter();
        places.map(|place| (self.at(place), self.texts[place.text].1.suite)).collect()
    }

    fn places(&self, name: &str) -> Vec<TextRange> {
        let others = self.others.get(name).into_iter().flatten();
        self.chosen.get(name).into_iter().chain(others).copied().collect()
    }

    /// Compares two versions by pin, then by version.
    fn compare(&self, left: TextRange, right: TextRange) -> Ordering {
        let pin = |place: TextRange| self.texts[place.text].1.pin;
        let by_version = || version::compare(self.at(left).version(), self.at(right).version());
        pin(left).cmp(&pin(right)).then_with(by_version)
    }

    /// The source of this name that counts; `None` if the indexes do not list it.
    pub fn get(&self, name: &str) -> Option<Source<'_>> {
        self.chosen.get(name).map(|place| self.at(*place))
    }

    /// The suite of the source that counts; `None` if the indexes do not list it.
    pub fn suite(&self, name: &str) -> Option<SuiteId> {
        self.chosen.get(name).map(|place| self.texts[place.text].1.suite)
    }

    /// All sources, ordered by name.
    pub fn all(&self) -> Vec<Source<'_>> {
        let mut all: Vec<_> = self.chosen.iter().collect();
        all.sort_unstable_by_key(|(name, _)| *name);
        all.into_iter().map(|(_, place)| self.at(*place)).collect()
    }

    /// Number of sources, each name counted once.
    pub fn len(&self) -> usize {
        self.chosen.len()
    }

    /// Whether no source was added.
    pub fn is_empty(&self) -> bool {
        self.chosen.is_empty()
    }

    fn at(&self, place: TextRange) -> Source<'_> {
        Source::new(Stanza::new(&self.texts[place.text].0[place.start..place.start + place.len]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZLIB: &str = "Package: zlib\nBinary: zlib1g, zlib1g-dev\nVersion: 1:1.2.13.dfsg-1\n\
Architecture: any\nBuild-Depends: debhelper-compat (= 13), gcc-multilib [i386]\n\
Package-List:\n lib64z1 deb libs optional arch=sparc,s390,i386,powerpc,mips,mipsel\n \
zlib1g deb libs optional arch=any\n zlib1g-dev deb libdevel optional arch=any profile=!stage1\n \
zlib-doc deb doc optional arch=all\n zlib1g-udeb udeb debian-installer optional arch=any\n\
Checksums-Sha256:\n aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa 12 zlib_1.dsc\n\
Directory: pool/main/z/zlib\n";

    #[test]
    fn outputs_depend_on_architecture_and_profiles() {
        let source = Source::new(Stanza::new(ZLIB));
        let mut context = relation::Context::new("amd64");
        assert_eq!(source.outputs(&context, Parts::Dependent), ["zlib1g", "zlib1g-dev"]);
        assert_eq!(source.outputs(&context, Parts::All), ["zlib1g", "zlib1g-dev", "zlib-doc"]);
        context.profiles.push("stage1".to_owned());
        assert_eq!(source.outputs(&context, Parts::Dependent), ["zlib1g"]);
    }

    #[test]
    fn file_names_stay_in_their_folder() {
        for (bad, expected) in [("../a.dsc", "`../a.dsc`"), (".dsc", "`.dsc`"), ("a/b.dsc", "`a/b.dsc`")] {
            let text = ZLIB.replace("zlib_1.dsc", bad);
            let error = Source::new(Stanza::new(&text)).files().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(Source::new(Stanza::new(ZLIB)).files().unwrap()[0].size_bytes, 12);
    }

    #[test]
    fn file_names_are_plain_and_unique() {
        for (bad, expected) in
            [("zlib\u{1b}[1m_1.dsc", "`zlib_1.dsc`"), ("-x.dsc", "`-x.dsc`"), ("é.dsc", "`é.dsc`")]
        {
            let text = ZLIB.replace("zlib_1.dsc", bad);
            let error = Source::new(Stanza::new(&text)).files().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let hash = "a".repeat(64);
        let twice = ZLIB.replace("zlib_1.dsc\n", &format!("zlib_1.dsc\n {hash} 1 x.tar\n {hash} 2 x.tar\n"));
        let error = Source::new(Stanza::new(&twice)).files().unwrap_err().to_string();
        assert!(error.contains("`x.tar`"), "{error}");
    }

    #[test]
    fn the_latest_version_is_kept() {
        let mut sources = Sources::default();
        for version in ["1:1.2.13.dfsg-1", "9", "1:1.2.13.dfsg-1+deb12u1"] {
            sources.add(ZLIB.replace("1:1.2.13.dfsg-1", version).into()).unwrap();
        }
        assert_eq!(sources.get("zlib").unwrap().version(), "1:1.2.13.dfsg-1+deb12u1");
        assert_eq!(sources.len(), 1);
    }
}
