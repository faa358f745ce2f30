//! The set of a Debian yard: source packages of its index, and local `.dsc` files.

use super::autopkgtest;
use super::git::{self, GitSource};
use super::pins;
use super::publish::indexes_of_binaries;
use super::reuse;
use super::rules::Rule;
use super::scan::Index;
use super::select;
use crate::debian::Debian;
use kilnyard_ecosystem::LeftOut;
use kilnyard_ecosystem::debian::deb822::Stanza;
use kilnyard_ecosystem::debian::relation;
use kilnyard_ecosystem::debian::source::Sources;
use kilnyard_ecosystem::debian::universe::Universe;
use kilnyard_ecosystem::debian::version;
use kilnyard_ecosystem::debian::{Base, Published, Settings, Workshop};
use kilnyard_mirror::FileStore;
use kilnyard_yard::config::ALL;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use kilnyard_yard::yard::Yard;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

/// Reads the index and resolves the set.
pub fn resolve(yard: &Yard, debian: &Debian, base: Base, distfiles: &FileStore) -> Result<Workshop> {
    let (workshop, unread) = resolve_with(yard, debian, base, distfiles)?;
    let remark = match &unread[..] {
        [] => None,
        [first, rest @ ..] => {
            let more = if rest.is_empty() { String::new() } else { format!(" and {} more", rest.len()) };
            Some(format!("the tests of {first}{more} are not known before the next scan"))
        }
    };
    Ok(workshop.remarking(remark))
}

/// See [`resolve`]; also the sources whose tests are asked for and not known yet.
pub fn resolve_with(
    yard: &Yard,
    debian: &Debian,
    base: Base,
    distfiles: &FileStore,
) -> Result<(Workshop, Vec<String>)> {
    let build = &yard.config.build;
    let packages = yard.config.tables.option_rules(&yard.home)?;
    let mut settings =
        Settings { against: build.against, passes: build.passes, packages, ..debian.settings() };
    let mut universe = Universe::new(settings.context());
    let mut sources = Sources::default();
    settings.suites = Index::open(yard)?.read(yard, debian, &mut universe, &mut sources)?;
    let mut left_out = Vec::new();
    let names = match yard.config.package_names(&yard.home)? {
        None => vec![ALL.to_owned()],
        Some(names) => names,
    };
    let rules = select::rules(&yard.home, &names)?;
    let mut locals = HashMap::new();
    for path in select::local_files(&yard.home, &rules) {
        // An unreadable source does not affect the others.
        match add_local(&mut sources, distfiles, &path) {
            Ok(name) => {
                locals.insert(path, name);
            }
            Err(error) => {
                let explanation = std::iter::once(error.message).chain(error.causes);
                let explanation = explanation.collect::<Vec<_>>().join(": ");
                left_out.push(LeftOut { name: presumed(&path.to_string_lossy()), explanation });
            }
        }
    }
    for source in git::sources(yard, &rules) {
        let added = source.dsc.map_err(Error::usage).and_then(|dsc| add_local(&mut sources, distfiles, &dsc));
        match added {
            Ok(name) => drop(locals.insert(source.rule.into(), name)),
            Err(error) => left_out.push(git_left_out(&source.rule, source.found.name, error)),
        }
    }
    let unmet = pins::apply(debian, &rules, &mut universe, &mut sources, &settings.suites);
    let mut selected = select::select(&yard.home, &rules, &settings, &mut universe, &sources, &locals)?;
    let reasons = selected.empty.iter().cloned();
    left_out.extend(reasons.map(|(name, explanation)| LeftOut { name, explanation }));
    selected.names.retain(|name| unmet.iter().all(|left| left.name != *name));
    left_out.extend(unmet);
    let has_own = rules.iter().any(|rule| !rule.is_exclusion && rule.selection.is_own());
    let own = has_own.then(|| locals.into_values().collect());
    let division = reuse::divide(&selected, own.as_ref(), build.reuse, &settings, &mut universe, &sources);
    let published = published(yard, debian)?;
    let tests = autopkgtest::add(yard, debian, &settings, distfiles, &mut sources, &division.built)?;
    let names = [division.built, tests.names].concat();
    left_out.extend(tests.left_out);
    let workshop = Workshop::new(settings, universe, sources, &names, base, published);
    Ok((workshop.without(left_out).reusing(division.reused, division.remark), tests.unread))
}

fn git_left_out(rule: &str, name: String, error: Error) -> LeftOut {
    let causes = std::iter::once(error.message).chain(error.causes).collect::<Vec<_>>();
    LeftOut { name, explanation: format!("{rule}: {}", causes.join(": ")) }
}

/// The packages that the yard's repository offers; none before the first publication. An unreadable index is an error:
/// without it a lower version could be published, or a name that belongs to another source.
fn published(yard: &Yard, debian: &Debian) -> Result<Published> {
    let mut published = Published::default();
    for index in indexes_of_binaries(yard, debian) {
        match fs_err::read_to_string(&index) {
            Ok(text) => published.add(&text, &debian.version_suffix),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).context(Kind::Machine, "read the repository's index");
            }
        }
    }
    Ok(published)
}

/// See [`kilnyard_yard::family::Family::inputs`].
pub fn inputs(yard: &Yard, debian: &Debian, base: Option<&Base>, names: Option<&[String]>) -> Result<String> {
    let mut text = format!("{}\n{}\n", Index::open(yard)?.identity, base.map_or("", |base| &base.digest));
    text.push_str(&autopkgtest::inputs(yard, debian));
    let names = names.unwrap_or_default();
    let rules = select::rules(&yard.home, names)?;
    text.push_str(&select::inputs(&yard.home, names, &rules)?);
    for path in select::local_files(&yard.home, &rules) {
        text.push_str(&local_inputs(&path));
    }
    for source in git::sources(yard, &rules) {
        text.push_str(&format!("{} {:?}\n", source.rule, source.found));
        text.push_str(&source.dsc.map_or_else(|problem| problem, |dsc| local_inputs(&dsc)));
    }
    Ok(text)
}

/// The package of an unreadable `.dsc`, from its file name (Policy 5.4: `NAME_VERSION.dsc`), so that its earlier build
/// stays published.
fn presumed(path: &str) -> String {
    let file = path.rsplit('/').next().unwrap_or(path);
    let name = file.split('_').next().unwrap_or(file).trim_end_matches(".dsc");
    if relation::is_name(name) { name.to_owned() } else { path.to_owned() }
}

/// The inputs from a `.dsc` and the files it may list: its text, and the size and time of each file in its folder whose
/// name occurs in it as a word.
fn local_inputs(path: &Path) -> String {
    let bytes = fs_err::read(path).ok();
    let mut text = format!("{} ", bytes.is_some());
    text.push_str(&String::from_utf8_lossy(&bytes.unwrap_or_default()));
    let folder = path.parent().unwrap_or(Path::new("."));
    let words: BTreeSet<String> =
        text.split_whitespace().filter(|word| !word.contains('/')).map(str::to_owned).collect();
    for word in words {
        if let Some(metadata) = std::fs::metadata(folder.join(&word)).ok().filter(std::fs::Metadata::is_file)
        {
            text.push_str(&format!("\n{word} {} {:?}", metadata.len(), metadata.modified().ok()));
        }
    }
    text
}

/// The rules of a yard, with those of the files that they name.
pub fn rules(yard: &Yard) -> Result<Vec<Rule>> {
    select::rules(&yard.home, &yard.config.package_names(&yard.home)?.unwrap_or_default())
}

/// The `.dsc` files of this machine that the set names, and those of its git repositories.
fn local_files(yard: &Yard) -> Result<Vec<PathBuf>> {
    let rules = rules(yard)?;
    let of_git = git::sources(yard, &rules).into_iter().filter_map(|source| source.dsc.ok());
    Ok(select::local_files(&yard.home, &rules).into_iter().chain(of_git).collect())
}

/// The packages whose source is not from an archive, by the names of their files and repositories.
pub fn own_packages(yard: &Yard) -> Result<Vec<String>> {
    let rules = rules(yard)?;
    let files = select::local_files(&yard.home, &rules).into_iter();
    let of_git = git::sources(yard, &rules).into_iter().map(|source| source.found.name);
    Ok(files.map(|path| presumed(&path.to_string_lossy())).chain(of_git).collect())
}

/// The packages of git repositories that these rules name.
pub fn names_of_git(yard: &Yard, named: &[String]) -> Result<Vec<String>> {
    let of_git = git::sources(yard, &rules(yard)?).into_iter();
    Ok(of_git.filter(|source| named.contains(&source.rule)).map(|source| source.found.name).collect())
}

/// The commits that packages come from, for people, by package.
pub fn provenances(yard: &Yard) -> Result<BTreeMap<String, String>> {
    let of_git = git::sources(yard, &rules(yard)?).into_iter();
    let of_git = of_git.map(|GitSource { rule, found, .. }| match found.commit.as_str() {
        "" => (found.name, rule),
        commit => (found.name, format!("{rule}, commit {commit}")),
    });
    Ok(of_git.collect())
}

/// See [`kilnyard_yard::family::Family::rescan`]: of the set's sources, only local ones can have changed.
pub fn rescan(yard: &Yard, distfiles: &FileStore, package: &str) -> Result<Option<Vec<u8>>> {
    let mut failed = None;
    for path in local_files(yard)? {
        match read_local(distfiles, &path) {
            Ok((source, text)) if source == package => return Ok(Some(text.into_bytes())),
            Ok(_) => {}
            // An unreadable file may be the source of this package.
            Err(error) if presumed(&path.to_string_lossy()) == package => failed = Some(error),
            Err(_) => {}
        }
    }
    failed.map_or(Ok(None), Err)
}

/// Adds a local source: its `.dsc` and the files that it lists. Returns the name of the package.
fn add_local(sources: &mut Sources, distfiles: &FileStore, path: &Path) -> Result<String> {
    let (name, text) = read_local(distfiles, path)?;
    sources.put(text.into()).context(Kind::Usage, format!("read {}", path.display()))?;
    Ok(name)
}

/// The text of a `.dsc`, without a signature around it.
struct Dsc {
    name: String,
    body: String,
    /// Hash and name of each listed file.
    files: Vec<(String, String)>,
}

fn read_dsc(path: &Path) -> Result<Dsc> {
    let bytes = fs_err::read(path).context(Kind::Usage, format!("read {}", path.display()))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line =
            error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        Error::usage(format!("{} is not UTF-8 in line {line}", path.display()))
    })?;
    // In a signed .dsc, the stanza is between the first empty line and the signature.
    let body = match text.strip_prefix("-----BEGIN PGP SIGNED MESSAGE-----") {
        Some(rest) => rest.split_once("\n\n").map_or(rest, |(_, body)| body),
        None => &text,
    };
    let body = body.split("-----BEGIN PGP SIGNATURE-----").next().unwrap_or(body).trim_end();
    let stanza = Stanza::new(body);
    let missing = |field: &str| Error::usage(format!("{} has no usable field {field}", path.display()));
    let name = stanza.get("Source").ok_or_else(|| missing("Source"))?;
    if !relation::is_name(name) {
        return Err(Error::usage(format!("{} has an invalid source name `{name}`", path.display())));
    }
    let _ = stanza.get("Version").filter(|text| version::is_valid(text)).ok_or_else(|| missing("Version"))?;
    let listed = stanza.get("Checksums-Sha256").ok_or_else(|| missing("Checksums-Sha256"))?;
    let mut files = Vec::new();
    for line in listed.lines().filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [hash, _, file] = words[..] else { return Err(missing("Checksums-Sha256")) };
        if file.contains('/') {
            return Err(Error::usage(format!(
                "{} lists `{file}`, which is outside its folder",
                path.display()
            )));
        }
        files.push((hash.to_owned(), file.to_owned()));
    }
    Ok(Dsc { name: name.to_owned(), body: body.to_owned(), files })
}

/// Checks that a `.dsc` can be read, and that the files that it lists are next to it.
pub fn check_local(path: &Path) -> Result<()> {
    let dsc = read_dsc(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    match dsc.files.iter().find(|(_, file)| !folder.join(file).is_file()) {
        Some((_, file)) => {
            Err(Error::usage(format!("{} lists {file}, which is not next to it", path.display())))
        }
        None => Ok(()),
    }
}

/// Copies a local source (its `.dsc` and the files that it lists) into the distfiles. Returns the name of the package
/// and its stanza in the form of an index.
fn read_local(distfiles: &FileStore, path: &Path) -> Result<(String, String)> {
    let dsc = read_dsc(path)?;
    let folder = path.parent().unwrap_or(Path::new("."));
    for (hash, file) in &dsc.files {
        let (sha256, _) =
            distfiles.insert(&folder.join(file)).context(Kind::Usage, format!("read {file}"))?;
        if sha256.as_str() != hash {
            return Err(Error::usage(format!(
                "{file} does not match {}: its SHA-256 is {sha256}",
                path.display()
            )));
        }
    }
    let (sha256, size) = distfiles.insert(path).context(Kind::Usage, format!("read {}", path.display()))?;
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let mut source = String::new();
    for (field, value) in Stanza::new(&dsc.body).fields() {
        match field {
            "Source" => source.push_str(&format!("Package: {value}\n")),
            "Checksums-Sha256" => source
                .push_str(&format!("Checksums-Sha256:\n {sha256} {size} {file}\n {}\n", value.trim_start())),
            _ => source.push_str(&format!("{field}: {value}\n")),
        }
    }
    Ok((dsc.name, source))
}
