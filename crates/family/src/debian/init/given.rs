//! Checks the packages given to `init`: files and repositories must exist and be readable, and the release should
//! have sources of these names.

use crate::debian::archives::WantedSuite;
use crate::debian::mirror::{ASKED_ONCE, quick_client};
use crate::debian::rules::{Rule, Selection};
use crate::debian::set::check_local;
use kilnyard_ecosystem::debian::deb822::{self, Stanza};
use kilnyard_ecosystem::debian::source::Sources;
use kilnyard_ecosystem::git::{GitAddress, Repository};
use kilnyard_ecosystem::{Compression, decompress};
use kilnyard_mirror::Fetched;
use kilnyard_yard::error::{Error, Result};
use kilnyard_yard::interrupt;
use kilnyard_yard::program::Program;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The largest `Sources` that is fetched to check names, compressed: that of a release has 10 MB.
const SOURCES_BYTES_MAX: u64 = 16 << 20;
/// The largest `Sources` uncompressed.
const UNPACKED_BYTES_MAX: u64 = 256 << 20;
/// The longest time to fetch it.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often that is checked.
const TICK: Duration = Duration::from_millis(50);
/// The maximum number of names that notes list.
const NAMES_SHOWN: usize = 10;

/// Rejects rules that are invalid whatever the index contains.
pub fn check(packages: &[String]) -> Result<()> {
    for text in packages {
        match Rule::parse(text)?.selection {
            Selection::Local(path) if !path.contains(['*', '?', '[']) => {
                if !Path::new(&path).is_file() {
                    return Err(Error::usage(format!("{path} does not exist"))
                        .hint("the path of a .dsc file, or the name of a source package of the release"));
                }
                check_local(Path::new(&path))?;
            }
            Selection::Git(GitAddress { repository: Repository::Folder(path), .. }) => {
                let folder = Path::new(&path);
                let is_repository = folder.join(".git").exists() || folder.join("objects").is_dir();
                if !is_repository {
                    return Err(Error::usage(format!("{path} is not a git repository"))
                        .hint("git:PATH with a package's folder, which contains a folder debian"));
                }
            }
            Selection::Rules(path) if !Path::new(&path).is_file() => {
                return Err(Error::usage(format!("{path}, a file of rules, does not exist")));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Names that the release does not have, as notes. If the index cannot be fetched quickly, there are none: `init`
/// does not wait.
pub fn note_unknown(packages: &[String], suite: &WantedSuite, release: &[u8], program: &dyn Program) {
    let is_named = |text: &&String| {
        matches!(Rule::parse(text).map(|rule| rule.selection), Ok(Selection::Name(_) | Selection::Pinned(_)))
    };
    if !packages.iter().any(|text| is_named(&text)) {
        return;
    }
    let Some(sources) = sources(suite, release, program) else { return };
    let mut shown = 0;
    for text in packages {
        let (name, version) = match Rule::parse(text).map(|rule| rule.selection) {
            Ok(Selection::Name(name)) => (name, None),
            Ok(Selection::Pinned(pin)) => (pin.name.clone(), Some(pin.to_string())),
            _ => continue,
        };
        let versions = sources.versions(&name);
        let is_known = match &version {
            None => !versions.is_empty(),
            // A suite of another archive may be meant.
            Some(pin) if pin.contains('/') => true,
            Some(pin) => versions.iter().any(|(version, _)| pin.ends_with(&format!("={version}"))),
        };
        if is_known {
            continue;
        }
        shown += 1;
        if shown > NAMES_SHOWN {
            say!(program, "note: and more, which `kilnyard plan` lists");
            return;
        }
        let there = match versions.first() {
            Some((version, _)) => format!("{name} in version {version} only"),
            None => format!("no source package {name}"),
        };
        say!(program, "note: {} has {there}: {text} will be left out", suite.suite);
    }
}

/// The sources of a suite's first component; absent if they cannot be fetched quickly. They are not verified, and are
/// used for notes only.
fn sources(suite: &WantedSuite, release: &[u8], program: &dyn Program) -> Option<Sources> {
    let text = String::from_utf8_lossy(release);
    let body = text.split_once("\n\n").map_or(&*text, |(_, body)| body);
    let path = format!("{}/source/Sources.xz", suite.components.first()?);
    let list = Stanza::new(body).get("SHA256")?;
    let size = list.lines().find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (words.get(2) == Some(&path.as_str())).then(|| words[1].parse::<u64>().ok()).flatten()
    })?;
    if size > SOURCES_BYTES_MAX {
        return None;
    }
    let urls: Vec<String> =
        suite.mirror.all().iter().map(|mirror| format!("{mirror}/dists/{}/{path}", suite.suite)).collect();
    let client = quick_client(&suite.mirror.all(), ASKED_ONCE, program.environment());
    let (late, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let fetched = std::thread::scope(|scope| {
        scope.spawn(|| {
            let started = Instant::now();
            while !ended.load(Ordering::Relaxed)
                && started.elapsed() < PATIENCE
                && !interrupt::cancel().load(Ordering::Relaxed)
            {
                std::thread::sleep(TICK);
            }
            late.store(true, Ordering::Relaxed);
        });
        let fetched = client.fetch_bytes(&path, &urls, SOURCES_BYTES_MAX, None, &late);
        ended.store(true, Ordering::Relaxed);
        fetched
    });
    let Ok(Fetched::Body { bytes, .. }) = fetched else { return None };
    let mut unpacked = Vec::new();
    let mut packed = &bytes[..];
    decompress(&mut packed, Compression::of_suffix(".xz")?, UNPACKED_BYTES_MAX)
        .ok()?
        .read_to_end(&mut unpacked)
        .ok()?;
    let mut sources = Sources::default();
    sources.add(deb822::text_of(unpacked).into()).ok()?;
    Some(sources)
}
