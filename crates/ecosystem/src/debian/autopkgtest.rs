//! The tests of installed packages that sources declare in `debian/tests/control` (autopkgtest, DEP 8).
//!
//! Each test is a package of the graph of its own, `SOURCE~TEST`: it depends on the packages of the set that it installs, no
//! package depends on it, and it makes no outputs. So tests are scheduled, retried, recorded and kept up to date like builds, in
//! parallel with them. A test is described as a source: a stanza with the files and version of its source, and the dependencies
//! of the test as those of a build. No name in an archive contains `~`.
//!
//! Source of the rules: `README.package-tests.rst` of autopkgtest 5.28,
//! <https://salsa.debian.org/ci-team/autopkgtest/-/blob/master/doc/README.package-tests.rst>.

use super::deb822::stanzas;
use super::relation::Context;
use super::source::{OutputKind, Parts, Source};
use crate::archive::{ArchiveProblem, Compression, Kind, decompress, for_each_entry, read_bytes};
use std::collections::BTreeSet;
use std::io::{self, Read};

/// Between the name of a source and that of its test.
pub const MARK: char = '~';
/// The file that lists the tests, in the folder of a source.
const CONTROL: &str = "debian/tests/control";
/// The largest such file, in bytes.
const CONTROL_BYTES_MAX: u64 = 64 << 10;
/// The largest unpacked archive, in bytes.
const UNPACKED_BYTES_MAX: u64 = 2 << 30;
/// The most tests of a source.
const TESTS_MAX: usize = 200;
/// The longest name of a test, in bytes.
const NAME_BYTES_MAX: usize = 60;

/// Restrictions that a root of Kilnyard meets, or that only say how a result counts.
const MET: [&str; 9] = [
    "allow-stderr",
    "breaks-testbed",
    "build-needed",
    "flaky",
    "needs-root",
    "rw-build-tree",
    "skip-foreign-architecture",
    "skippable",
    "superficial",
];
/// It lists further packages that make a test worth repeating, and is no test.
const HINT: &str = "hint-testsuite-triggers";
/// It needs the network of the machine, which `network = true` gives.
const NEEDS_INTERNET: &str = "needs-internet";

/// The fields that describe a test.
const SOURCE_FIELD: &str = "Kilnyard-Test-Of";
const COMMAND_FIELD: &str = "Kilnyard-Test-Command";
const FILE_FIELD: &str = "Kilnyard-Test-File";
const RESTRICTIONS_FIELD: &str = "Kilnyard-Test-Restrictions";

/// A test that a source declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its name among the tests of the source.
    pub name: String,
    /// What is run.
    run: Run,
    depends: String,
    restrictions: BTreeSet<String>,
    architectures: Option<String>,
}

/// What a test runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// A file of the source, relative to its folder.
    File(String),
    /// A command for `bash -ec`.
    Command(String),
}

/// A test, as the stanza of its package says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Test {
    /// The name of the source.
    pub source: String,
    pub run: Run,
    pub restrictions: BTreeSet<String>,
}

impl Test {
    /// The test that a package of the graph is; absent if it is a source.
    pub fn of(source: &Source) -> Option<Test> {
        if !is_test(source.name()) {
            return None;
        }
        let field = |name: &str| source.stanza().get(name).map(str::to_owned);
        let run = match field(FILE_FIELD) {
            Some(file) => Run::File(file),
            None => Run::Command(field(COMMAND_FIELD)?),
        };
        let restrictions = field(RESTRICTIONS_FIELD).unwrap_or_default();
        let restrictions = restrictions.split_whitespace().map(str::to_owned).collect();
        Some(Test { source: field(SOURCE_FIELD)?, run, restrictions })
    }

    /// Whether it has this restriction.
    pub fn is(&self, restriction: &str) -> bool {
        self.restrictions.contains(restriction)
    }
}

/// Whether a name is that of a test.
pub fn is_test(name: &str) -> bool {
    name.contains(MARK)
}

/// The file of a source that has its folder `debian`; an error if that is none that can be read, as the end of a sentence.
///
/// # Errors
/// The source is of format 1.0 with a patch, or its files are invalid.
pub fn file_of(source: &Source) -> Result<super::source::SourceFile, String> {
    let files = source.files().map_err(|error| error.to_string())?;
    let is_tar = |name: &str| name.contains(".tar.") && !name.ends_with(".asc");
    let downloaded = files.iter().find(|file| file.name.contains(".debian.tar."));
    let mut tars = files.iter().filter(|file| is_tar(&file.name));
    match (downloaded, tars.next(), tars.next()) {
        (Some(file), ..) => Ok(file.clone()),
        (None, Some(native), None) if !files.iter().any(|file| file.name.ends_with(".diff.gz")) => {
            Ok(native.clone())
        }
        _ => Err("its folder debian is a patch (source format 1.0)".to_owned()),
    }
}

/// The text of `debian/tests/control` in an archive of a source; absent if it has none. `name` is that of the file.
///
/// # Errors
/// The archive is damaged, too large, or compressed in another way.
pub fn control_in(archive: &mut dyn Read, name: &str) -> Result<Option<String>, ArchiveProblem> {
    let damaged = |source| ArchiveProblem::Content { member: "source", source };
    let suffix = name.rsplit_once(".tar").map_or("", |(_, suffix)| suffix);
    let unknown = || damaged(io::Error::other(format!("files that end in {suffix} are not read")));
    let compression = Compression::of_suffix(suffix).ok_or_else(unknown)?;
    let mut bytes = decompress(archive, compression, UNPACKED_BYTES_MAX).map_err(damaged)?;
    let mut found = None;
    for_each_entry::<ArchiveProblem>(&mut bytes, "source", |entry, bytes| {
        let path = String::from_utf8_lossy(&entry.path);
        // In a native archive, it is below the folder of the source.
        let is_it = path == CONTROL || path.split_once('/').is_some_and(|(_, rest)| rest == CONTROL);
        if is_it && entry.kind == Kind::File && found.is_none() {
            let content = read_bytes(&entry, bytes, "source", CONTROL, CONTROL_BYTES_MAX)?;
            found = Some(String::from_utf8_lossy(&content).into_owned());
        }
        Ok(())
    })?;
    Ok(found)
}

/// The tests that a text of `debian/tests/control` declares.
///
/// # Errors
/// It has too many tests, or one that cannot be named or run; a sentence.
pub fn parse(control: &str) -> Result<Vec<Declared>, String> {
    // A NUL could not be passed to a command, and that would look like a fault of the machine.
    if control.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')) {
        return Err(format!("{CONTROL} has control characters"));
    }
    let without_comments: String =
        control.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let mut declared: Vec<Declared> = Vec::new();
    let mut commands = 0;
    for stanza in stanzas(&without_comments) {
        let field =
            |name: &str| stanza.get(name).map(|value| value.split_whitespace().collect::<Vec<_>>().join(" "));
        let words = |name: &str| -> Vec<String> {
            let value = field(name).unwrap_or_default();
            value.split([' ', ',']).filter(|word| !word.is_empty()).map(str::to_owned).collect()
        };
        let restrictions: BTreeSet<String> = words("Restrictions").into_iter().collect();
        if restrictions.contains(HINT) {
            continue;
        }
        let (depends, architectures) =
            (field("Depends").unwrap_or_else(|| "@".to_owned()), field("Architecture"));
        let mut add = |name: String, run: Run| {
            let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"+-._".contains(&byte);
            let is_name = (1..=NAME_BYTES_MAX).contains(&name.len())
                && name.bytes().all(is_allowed)
                && !name.starts_with(['.', '-']);
            if !is_name || declared.iter().any(|other| other.name == name) {
                return Err(format!(
                    "{CONTROL} has a test with the name {:?}, which is invalid or used twice",
                    name
                ));
            }
            if declared.len() >= TESTS_MAX {
                return Err(format!("{CONTROL} has more than {TESTS_MAX} tests"));
            }
            let (depends, restrictions) = (depends.clone(), restrictions.clone());
            declared.push(Declared {
                name,
                run,
                depends,
                restrictions,
                architectures: architectures.clone(),
            });
            Ok(())
        };
        let folder = field("Tests-Directory").unwrap_or_else(|| "debian/tests".to_owned());
        if folder.starts_with('/') || folder.split('/').any(|part| part == "..") {
            return Err(format!("{CONTROL} has the folder {folder:?}, which is outside the source"));
        }
        for name in words("Tests") {
            add(name.clone(), Run::File(format!("{folder}/{name}")))?;
        }
        if let Some(command) = field("Test-Command") {
            commands += 1;
            let features = words("Features");
            let named = features.iter().find_map(|feature| feature.strip_prefix("test-name="));
            add(named.map_or_else(|| format!("command{commands}"), str::to_owned), Run::Command(command))?;
        }
    }
    Ok(declared)
}

/// The package of a test, as the stanza of a source.
///
/// # Errors
/// It cannot be run in a root; the reason reads after the name of the test.
pub fn stanza(
    source: &Source,
    test: &Declared,
    context: &Context,
    has_network: bool,
) -> Result<String, String> {
    let is_met = |restriction: &&String| {
        MET.contains(&restriction.as_str()) || (has_network && *restriction == NEEDS_INTERNET)
    };
    if let Some(unmet) = test.restrictions.iter().find(|restriction| !is_met(restriction)) {
        return Err(match unmet.as_str() {
            NEEDS_INTERNET => "needs the network: network = true in its table [package.NAME]".to_owned(),
            unmet => format!("has the restriction {}, which a root does not meet", unmet.escape_debug()),
        });
    }
    if let Some(list) = &test.architectures
        && !context.architectures_hold(list)
    {
        return Err(format!("is for other architectures: {}", list.escape_debug()));
    }
    let mut depends = depends_of(source, &test.depends, context)?;
    if test.restrictions.contains("build-needed") {
        depends.extend(build_depends(source));
    }
    let run = match &test.run {
        Run::File(file) => format!("{FILE_FIELD}: {file}\n"),
        Run::Command(command) => format!("{COMMAND_FIELD}: {command}\n"),
    };
    let mut text = format!(
        "Package: {name}{MARK}{test}\nVersion: {version}\nArchitecture: any\n{SOURCE_FIELD}: {name}\n{run}",
        name = source.name(),
        test = test.name,
        version = source.version(),
    );
    let restrictions: Vec<&str> = test.restrictions.iter().map(String::as_str).collect();
    text += &format!("{RESTRICTIONS_FIELD}: {}\n", restrictions.join(" "));
    text += &format!("Build-Depends: {}\n", depends.join(", "));
    for field in ["Directory", "Checksums-Sha256", "Format"] {
        if let Some(value) = source.stanza().get(field) {
            text += &format!("{field}: {value}\n");
        }
    }
    Ok(text)
}

/// The dependencies of a test, in which `@` stands for the packages of its source.
fn depends_of(source: &Source, field: &str, context: &Context) -> Result<Vec<String>, String> {
    let mut depends = Vec::new();
    for clause in field.split(',').map(str::trim).filter(|clause| !clause.is_empty()) {
        match clause {
            "@" => {
                // Those for all architectures come from the archive if the set does not make them.
                let made = source
                    .declared()
                    .into_iter()
                    .filter(|one| one.kind == OutputKind::Deb && one.is_made(context, Parts::All));
                depends.extend(made.map(|one| one.name.to_owned()));
            }
            "@builddeps@" => depends.extend(build_depends(source)),
            clause if clause.contains('@') => {
                return Err(format!("depends on {}, which is not supported", clause.escape_debug()));
            }
            clause => depends.push(clause.to_owned()),
        }
    }
    Ok(depends)
}

fn build_depends(source: &Source) -> impl Iterator<Item = String> {
    let fields = ["Build-Depends", "Build-Depends-Arch", "Build-Depends-Indep"];
    let stanza = source.stanza();
    let all: Vec<String> =
        fields.iter().filter_map(|field| stanza.get(field)).map(|value| value.trim().to_owned()).collect();
    all.into_iter().filter(|value| !value.is_empty())
}

/// The names of the tests' packages, for a source and one of its tests.
pub fn name_of(source: &str, test: &str) -> String {
    format!("{source}{MARK}{test}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::debian::deb822::Stanza;

    const SOURCE: &str = "Package: hello\nVersion: 2.10-3\nArchitecture: any\nDirectory: pool/hello\n\
        Build-Depends: debhelper (>= 9), gettext\nPackage-List:\n hello deb devel optional arch=any\n \
        hello-udeb udeb devel optional arch=any\n hello-doc deb doc optional arch=all\n";

    fn tests(control: &str) -> Vec<Declared> {
        parse(control).unwrap()
    }

    fn stanza_of(control: &str, has_network: bool) -> Result<String, String> {
        let source = Source::new(Stanza::new(SOURCE));
        stanza(&source, &tests(control)[0], &Context::new("amd64"), has_network)
    }

    #[test]
    fn tests_are_read_with_their_names_commands_and_dependencies() {
        let control = "# A comment\nTests: smoke, install\nDepends: @, python3:any (>= 3.9),\n python3-yaml\n\
            Restrictions: allow-stderr\n\nTest-Command: hello --greeting=x\n | grep x\nFeatures: test-name=greets\n\n\
            Test-Command: true\nDepends:\n\nTests: other\nTests-Directory: t\n\n\
            Test-Command: false\nRestrictions: hint-testsuite-triggers\n";
        let all = tests(control);
        let names: Vec<&str> = all.iter().map(|test| test.name.as_str()).collect();
        assert_eq!(names, ["smoke", "install", "greets", "command2", "other"]);
        assert_eq!(all[0].run, Run::File("debian/tests/smoke".to_owned()));
        assert_eq!(all[0].depends, "@, python3:any (>= 3.9), python3-yaml");
        assert_eq!(
            (&all[2].run, &*all[2].depends),
            (&Run::Command("hello --greeting=x | grep x".to_owned()), "@")
        );
        assert_eq!((&*all[3].depends, &all[4].run), ("", &Run::File("t/other".to_owned())));
    }

    #[test]
    fn the_package_of_a_test_depends_on_what_it_installs() {
        let text = stanza_of("Tests: smoke\nDepends: @, make\nRestrictions: needs-root\n", false).unwrap();
        let source = Source::new(Stanza::new(&text));
        assert_eq!(source.name(), "hello~smoke");
        assert_eq!(source.stanza().get("Build-Depends"), Some("hello, hello-doc, make"));
        let test = Test::of(&source).unwrap();
        assert!(test.source == "hello" && test.is("needs-root") && !test.is("flaky"));
        assert!(source.outputs(&Context::new("amd64"), Parts::All).is_empty());
        assert_eq!(Test::of(&Source::new(Stanza::new(SOURCE))), None);
        let text = stanza_of("Tests: t\nDepends: make\nRestrictions: build-needed\n", false).unwrap();
        assert!(text.contains("Build-Depends: make, debhelper (>= 9), gettext\n"), "{text}");
    }

    #[test]
    fn what_a_root_cannot_run_is_left_out_with_the_reason() {
        for (control, reason) in [
            ("Tests: t\nRestrictions: isolation-machine\n", "restriction isolation-machine"),
            ("Tests: t\nRestrictions: needs-internet\n", "network = true"),
            ("Tests: t\nRestrictions: unheard-of\n", "restriction unheard-of"),
            ("Tests: t\nArchitecture: arm64\n", "other architectures"),
            ("Tests: t\nArchitecture: !amd64\n", "other architectures"),
            ("Tests: t\nDepends: @recommends@\n", "@recommends@"),
        ] {
            let error = stanza_of(control, false).unwrap_err();
            assert!(error.contains(reason), "{error}");
        }
        stanza_of("Tests: t\nRestrictions: needs-internet\n", true).unwrap();
        stanza_of("Tests: t\nArchitecture: amd64 arm64\n", false).unwrap();
    }

    #[test]
    fn hostile_lists_are_errors() {
        let many: String = (0..=TESTS_MAX).map(|number| format!("Tests: t{number}\n\n")).collect();
        for control in [
            "Tests: ../../bin/sh\n",
            "Tests: a/b\n",
            "Tests: -x\n",
            "Tests: t~t\n",
            "Tests: t t\n",
            "Tests: t\nTests-Directory: ../x\n",
            "Tests: t\nTests-Directory: /bin\n",
            "Test-Command: true\nFeatures: test-name=$(id)\n",
            "Test-Command: true\0\n",
            "Tests: t\nTests-Directory: x\u{1b}[2J\n",
            &many,
            &format!("Tests: {}\n", "t".repeat(NAME_BYTES_MAX + 1)),
        ] {
            assert!(parse(control).is_err(), "{control}");
        }
        // A command cannot add fields.
        let text = stanza_of("Test-Command: true\n Kilnyard-Test-Of: libc6\n", false).unwrap();
        let source = Source::new(Stanza::new(&text));
        assert_eq!(Test::of(&source).unwrap().source, "hello");
    }

    #[test]
    fn the_list_is_found_in_both_forms_of_archives() {
        let archive = |path: &str| {
            let mut builder = tar::Builder::new(Vec::new());
            for (path, text) in [("other", "x"), (path, "Tests: a\n")] {
                let mut header = tar::Header::new_gnu();
                header.set_size(text.len() as u64);
                header.set_mode(0o644);
                header.set_uid(0);
                header.set_gid(0);
                header.set_mtime(0);
                header.set_cksum();
                builder.append_data(&mut header, path, text.as_bytes()).unwrap();
            }
            builder.into_inner().unwrap()
        };
        for path in ["debian/tests/control", "hello-2.10/debian/tests/control"] {
            let found = control_in(&mut archive(path).as_slice(), "hello_2.10.tar");
            assert_eq!(found.unwrap().as_deref(), Some("Tests: a\n"), "{path}");
        }
        let found = control_in(&mut archive("a/b/debian/tests/control").as_slice(), "hello.tar");
        assert_eq!(found.unwrap(), None);
        assert!(control_in(&mut archive("x").as_slice(), "hello.tar.bz2").is_err());
        assert!(control_in(&mut &b"damaged"[..], "hello.debian.tar.xz").is_err());
    }

    #[test]
    fn files_with_the_folder_debian_are_found() {
        let file = |names: &[&str]| {
            let zeros = "0".repeat(64);
            let lines: String = names.iter().map(|name| format!("\n {zeros} 1 {name}")).collect();
            let text = format!("Package: a\nVersion: 1\nChecksums-Sha256:{lines}\n");
            file_of(&Source::new(Stanza::new(&text))).map(|file| file.name)
        };
        assert_eq!(
            file(&["a_1.dsc", "a_1.orig.tar.xz", "a_1-1.debian.tar.xz"]).as_deref(),
            Ok("a_1-1.debian.tar.xz")
        );
        assert_eq!(file(&["a_1.dsc", "a_1.tar.xz"]).as_deref(), Ok("a_1.tar.xz"));
        assert!(file(&["a_1.dsc", "a_1.orig.tar.gz", "a_1-1.diff.gz"]).is_err());
    }
}
