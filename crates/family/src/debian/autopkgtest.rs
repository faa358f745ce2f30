//! The tests that sources of the set declare (autopkgtest): which there are is in the sources themselves, whose small archives a
//! scan fetches for that. The lists are kept by the hash of the archive.

use super::set;
use crate::debian::Debian;
use kilnyard_ecosystem::debian::autopkgtest::{self, control_in, file_of, parse};
use kilnyard_ecosystem::debian::source::{Source, Sources};
use kilnyard_ecosystem::debian::{Base, Settings};
use kilnyard_ecosystem::{Ecosystem, LeftOut};
use kilnyard_mirror::{FileStore, Sha256Hex, Wanted};
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::mirror::open_files;
use kilnyard_yard::yard::Yard;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// The folder of the lists, in the yard.
const FOLDER: &str = "index/tests";
/// Begins the file of an archive whose list cannot be read, with the reason. No list begins like that.
const UNREADABLE: &str = "!";

/// The tests of a set.
#[derive(Debug, Default)]
pub struct Tests {
    /// The names of their packages.
    pub names: Vec<String>,
    /// Tests, or all tests of a source, that cannot be run.
    pub left_out: Vec<LeftOut>,
    /// Sources whose archive has to be fetched first.
    pub unread: Vec<String>,
}

fn kept(yard: &Yard, sha256: &str) -> PathBuf {
    yard.path(FOLDER).join(sha256)
}

/// The list of tests in an archive of a source, kept or in the archive itself; an empty one if it declares none. Absent if the
/// archive is not here.
fn list(
    yard: &Yard,
    distfiles: &FileStore,
    name: &str,
    sha256: &str,
) -> std::result::Result<Option<String>, String> {
    let path = kept(yard, sha256);
    if let Ok(text) = fs_err::read_to_string(&path) {
        return match text.strip_prefix(UNREADABLE) {
            Some(reason) => Err(reason.to_owned()),
            None => Ok(Some(text)),
        };
    }
    let Some(hash) = Sha256Hex::parse(sha256).ok().filter(|hash| distfiles.contains(hash)) else {
        return Ok(None);
    };
    let mut file = fs_err::File::open(distfiles.path(&hash)).map_err(|error| error.to_string())?;
    let found = control_in(&mut file, name).map_err(|error| format!("{name}: {error}"));
    let text = match &found {
        Ok(text) => text.clone().unwrap_or_default(),
        // It is not unpacked again to find out.
        Err(reason) => format!("{UNREADABLE}{reason}"),
    };
    // Another process may write the same. Who may only read the yard reads the archive again.
    let part = path.with_extension(format!("{}.part", std::process::id()));
    let write = || {
        fs_err::create_dir_all(yard.path(FOLDER))?;
        let mut file = fs_err::File::create(&part)?;
        file.write_all(text.as_bytes())?;
        // An empty list means that there are no tests.
        file.sync_all()?;
        fs_err::rename(&part, &path)
    };
    let _ = write();
    found.map(|text| Some(text.unwrap_or_default()))
}

/// Adds the tests of these sources to the others, as far as they are asked for.
pub fn add(
    yard: &Yard,
    debian: &Debian,
    settings: &Settings,
    distfiles: &FileStore,
    sources: &mut Sources,
    built: &[String],
) -> Result<Tests> {
    let mut tests = Tests::default();
    // Programs of another architecture cannot be run.
    if settings.build_architecture.is_some() {
        return Ok(tests);
    }
    for name in built {
        if !settings.packages.of(name).autopkgtest.unwrap_or(debian.autopkgtest) {
            continue;
        }
        let Some(source) = sources.get(name) else { continue };
        match of_source(yard, settings, distfiles, source) {
            Ok(Some(found)) => {
                for (test, described) in found {
                    let package = autopkgtest::name_of(name, &test);
                    match described {
                        Ok(stanza) => {
                            sources.add_test(stanza.into(), name).context(Kind::Usage, "read the tests")?;
                            tests.names.push(package);
                        }
                        Err(reason) => {
                            let explanation = format!("the test {test} of {name} {reason}");
                            tests.left_out.push(LeftOut { name: package, explanation });
                        }
                    }
                }
            }
            Ok(None) => tests.unread.push(name.clone()),
            Err(reason) => {
                let explanation = format!("the tests of {name} cannot be read: {reason}");
                tests.left_out.push(LeftOut { name: autopkgtest::name_of(name, "tests"), explanation });
            }
        }
    }
    Ok(tests)
}

/// Tests by name, each with its package or the reason why it has none.
type Found = Vec<(String, std::result::Result<String, String>)>;

/// The tests of a source; none if its archive is not here.
fn of_source(
    yard: &Yard,
    settings: &Settings,
    distfiles: &FileStore,
    source: Source,
) -> std::result::Result<Option<Found>, String> {
    // Sources without that field, of an index, have no tests.
    let declares = source.stanza().get("Testsuite").is_some_and(|value| value.contains("autopkgtest"));
    if !declares && source.stanza().get("Directory").is_some() {
        return Ok(Some(Found::new()));
    }
    let file = file_of(&source)?;
    let Some(text) = list(yard, distfiles, &file.name, &file.sha256)? else { return Ok(None) };
    let context = settings.context_of(source.name());
    let described = |test: autopkgtest::Declared| {
        let package = autopkgtest::name_of(source.name(), &test.name);
        let has_network = settings.packages.of(&package).has_network();
        let stanza = autopkgtest::stanza(&source, &test, &context, has_network);
        (test.name, stanza)
    };
    Ok(Some(parse(&text)?.into_iter().map(described).collect()))
}

/// Fetches the archives of sources whose tests are not known yet.
///
/// # Errors
/// It is cancelled.
pub fn fetch(yard: &Yard, debian: &Debian, cancel: &AtomicBool, say: &dyn Fn(&str)) -> Result<()> {
    if !is_asked(yard, debian) {
        return Ok(());
    }
    let distfiles = open_files(yard)?;
    let resolved = set::resolve_with(yard, debian, Base::default(), &distfiles);
    // The index is there, and the command that needs the set reports what is wrong with it.
    let Ok((workshop, unread)) = resolved else { return Ok(()) };
    let count = unread.len();
    for (place, name) in unread.iter().enumerate() {
        let Some(id) = workshop.graph().find(name) else { continue };
        let source = workshop.source(id);
        let Ok(file) = file_of(&source) else { continue };
        let Ok(sha256) = Sha256Hex::parse(&file.sha256) else { continue };
        say(&format!("tests of {name} ({} of {count})", place + 1));
        let urls = workshop.addresses_of(id, &file.name);
        let wanted = Wanted { name: file.name.clone(), urls, sha256, size_bytes: file.size_bytes };
        match distfiles.ensure(&wanted, &|_| {}, cancel) {
            Ok(_) => {}
            // The others are not to blame, and the next scan tries it again.
            Err(error) if !error.is_cancelled() => {
                say(&format!("warning: the tests of {name} are not known: {error}"));
                continue;
            }
            cancelled => drop(cancelled.context(Kind::Interrupted, "fetch the tests")?),
        }
        // It is kept now, so that the set is another one.
        let _ = list(yard, &distfiles, &file.name, &file.sha256);
    }
    Ok(())
}

/// Whether tests of any source are asked for.
fn is_asked(yard: &Yard, debian: &Debian) -> bool {
    debian.autopkgtest || yard.config.tables.has_autopkgtest()
}

/// The lists that are known, for the inputs of a set.
pub fn inputs(yard: &Yard, debian: &Debian) -> String {
    if !is_asked(yard, debian) {
        return String::new();
    }
    let entries = fs_err::read_dir(yard.path(FOLDER)).into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    let mut names: Vec<String> = names.filter(|name| !name.contains('.')).collect();
    names.sort_unstable();
    format!("tests {}\n", names.join(" "))
}
