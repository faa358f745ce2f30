//! Evaluates the rules of `packages` on an index.

use super::rules::{DEPTH_MAX, RULES_MAX, Rule, Selection};
use crate::git::shown;
use kilnyard_ecosystem::debian::Settings;
use kilnyard_ecosystem::debian::dependents::{Reach, dependents};
use kilnyard_ecosystem::debian::relation;
use kilnyard_ecosystem::debian::source::{Source, Sources};
use kilnyard_ecosystem::debian::universe::{Origin, Universe};
use kilnyard_ecosystem::git::GitAddress;
use kilnyard_yard::error::{Context, Error, Kind, Result};
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};

/// The maximum size of a file of rules or of a list of installed packages.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The rules of a configuration, with those of the files that they name.
///
/// # Errors
/// A rule is invalid, or a file of rules cannot be read.
pub fn rules(yard: &Path, texts: &[String]) -> Result<Vec<Rule>> {
    let mut rules = Vec::new();
    add_rules(yard, texts, false, 0, &mut rules)?;
    Ok(rules)
}

fn add_rules(
    yard: &Path,
    texts: &[String],
    is_excluded: bool,
    depth: usize,
    rules: &mut Vec<Rule>,
) -> Result<()> {
    for text in texts {
        let mut rule = Rule::parse(text)?;
        rule.is_exclusion ^= is_excluded;
        match &rule.selection {
            Selection::Rules(_) if depth == DEPTH_MAX => {
                return Err(Error::usage(format!(
                    "`{text}`: files of rules are nested more than {DEPTH_MAX} deep"
                )));
            }
            Selection::Rules(file) => {
                let lines = lines_of(&yard.join(file))?;
                add_rules(yard, &lines, rule.is_exclusion, depth + 1, rules)?;
            }
            _ => rules.push(rule),
        }
        if rules.len() > RULES_MAX {
            return Err(Error::usage(format!("packages has more than {RULES_MAX} rules")));
        }
    }
    Ok(())
}

/// The lines of a file, without comments and empty lines.
fn lines_of(path: &Path) -> Result<Vec<String>> {
    let text = text_of(path)?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    Ok(lines.filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

fn text_of(path: &Path) -> Result<String> {
    let failed = format!("read {}, which packages names", path.display());
    let metadata = fs_err::metadata(path).context(Kind::Usage, &failed)?;
    // A pipe or a device may never end.
    if !metadata.is_file() {
        return Err(Error::usage(format!("failed to {failed}: it is not a regular file")));
    }
    if metadata.len() > FILE_BYTES_MAX {
        let size = metadata.len();
        return Err(Error::usage(format!(
            "failed to {failed}: it has {size} bytes, but at most {FILE_BYTES_MAX} are read"
        )));
    }
    fs_err::read_to_string(path).context(Kind::Usage, failed)
}

/// The files of the yard or the machine that a pattern matches, sorted. A path without a pattern is itself, whether
/// it exists or not.
pub fn files(yard: &Path, pattern: &str) -> Vec<PathBuf> {
    if !pattern.contains(['*', '?', '[']) {
        return vec![yard.join(pattern)];
    }
    let whole = format!("{}/{pattern}", glob::Pattern::escape(&yard.display().to_string()));
    let whole = if pattern.starts_with('/') { pattern.to_owned() } else { whole };
    let mut found: Vec<PathBuf> =
        glob::glob(&whole).into_iter().flatten().flatten().filter(|path| path.is_file()).collect();
    found.sort();
    found
}

/// The sources of this machine that the rules name, each once.
pub fn local_files(yard: &Path, rules: &[Rule]) -> Vec<PathBuf> {
    let mut seen = HashSet::new();
    let mut all = Vec::new();
    for rule in rules {
        if let Selection::Local(pattern) = &rule.selection {
            all.extend(files(yard, pattern).into_iter().filter(|path| seen.insert(path.clone())));
        }
    }
    all
}

/// A text that differs whenever a file that the rules name does, without the sources of this machine.
pub fn inputs(yard: &Path, texts: &[String], rules: &[Rule]) -> Result<String> {
    let mut text = String::new();
    for rule in rules {
        text.push_str(&format!("{rule:?}\n"));
        if let Selection::Installed(pattern) = &rule.selection {
            for path in files(yard, pattern) {
                text.push_str(&format!("{}\n{}\n", path.display(), text_of(&path)?));
            }
        }
    }
    text.push_str(&texts.join("\n"));
    Ok(text)
}

/// The result of the rules.
#[derive(Debug, Default)]
pub struct Selected {
    /// Names of sources, in the order in which rules added them. They may not exist.
    pub names: Vec<String>,
    /// Those that a rule names one by one, and own sources.
    pub explicit: HashSet<String>,
    /// Rules that select nothing, each with the reason.
    pub empty: Vec<(String, String)>,
}

/// Evaluates rules. `locals` has the names of the sources of this machine, by their files or git rules; files that
/// could not be read are absent.
pub fn select(
    yard: &Path,
    rules: &[Rule],
    settings: &Settings,
    universe: &mut Universe,
    sources: &Sources,
    locals: &HashMap<PathBuf, String>,
) -> Result<Selected> {
    let mut selected = Selected::default();
    let mut chosen: HashMap<String, bool> = HashMap::new();
    let mut order: Vec<String> = Vec::new();
    for rule in rules {
        let found = names(yard, &rule.selection, settings, universe, sources, locals)?;
        if let (true, Some(reason)) = (found.is_empty() && !rule.is_exclusion, lack(yard, &rule.selection)) {
            selected.empty.push(reason);
        }
        for name in found {
            match (rule.is_exclusion, rule.selection.is_explicit()) {
                (true, _) => drop(selected.explicit.remove(&name)),
                (false, true) => drop(selected.explicit.insert(name.clone())),
                (false, false) => {}
            }
            match chosen.get_mut(&name) {
                Some(is_in) => *is_in = !rule.is_exclusion,
                None => {
                    chosen.insert(name.clone(), !rule.is_exclusion);
                    order.push(name);
                }
            }
        }
    }
    order.retain(|name| chosen[name]);
    selected.names = order;
    Ok(selected)
}

/// How to name a rule that selected nothing, and why it did not. A file that cannot be read has its own reason.
fn lack(yard: &Path, selection: &Selection) -> Option<(String, String)> {
    let (rule, reason) = match selection {
        Selection::Pattern(pattern) => {
            (pattern.clone(), "no source of the release has a name like this".to_owned())
        }
        Selection::Local(pattern) if files(yard, pattern).is_empty() => {
            (pattern.clone(), "no file has a name like this".to_owned())
        }
        Selection::BuildDepends(name) => {
            (format!("build-depends:{name}"), format!("no source has {name} in its build dependencies"))
        }
        Selection::DependsOn(name) => {
            (format!("depends-on:{name}"), format!("no source needs {name} to be built"))
        }
        Selection::Installed(pattern) => {
            (format!("installed:{pattern}"), "no list has a package of the release".to_owned())
        }
        Selection::Section(name) => (format!("section:{name}"), "no source is in this section".to_owned()),
        Selection::Priority(name) => (format!("priority:{name}"), "no source has this priority".to_owned()),
        Selection::All
        | Selection::Name(_)
        | Selection::Pinned(_)
        | Selection::Local(_)
        | Selection::Git(_)
        | Selection::Rules(_) => return None,
    };
    Some((rule, reason))
}

/// The sources that a git rule stands for.
fn of_repository(rule: &GitAddress, locals: &HashMap<PathBuf, String>) -> Vec<String> {
    let shown = shown(rule);
    match shown.strip_suffix('*') {
        None => locals.get(Path::new(&shown)).cloned().into_iter().collect(),
        Some(beginning) => {
            let is_of = |path: &&PathBuf| path.to_str().is_some_and(|path| path.starts_with(beginning));
            let found: BTreeMap<&PathBuf, &String> = locals.iter().filter(|(path, _)| is_of(path)).collect();
            found.into_values().cloned().collect()
        }
    }
}

fn names(
    yard: &Path,
    selection: &Selection,
    settings: &Settings,
    universe: &mut Universe,
    sources: &Sources,
    locals: &HashMap<PathBuf, String>,
) -> Result<Vec<String>> {
    let built = |is: &dyn Fn(&Source) -> bool| -> Vec<String> {
        let all = sources.all().into_iter();
        let here =
            all.filter(|source| source.builds_on(&settings.architecture, settings.parts) && is(source));
        here.map(|source| source.name().to_owned()).collect()
    };
    Ok(match selection {
        Selection::All => built(&|_| true),
        Selection::Name(name) => vec![name.clone()],
        Selection::Pinned(pin) => vec![pin.name.clone()],
        Selection::Pattern(pattern) => {
            let pattern = glob::Pattern::new(pattern).map_err(|error| Error::usage(error.to_string()))?;
            built(&|source| pattern.matches(source.name()))
        }
        Selection::Local(pattern) => {
            files(yard, pattern).iter().filter_map(|path| locals.get(path).cloned()).collect()
        }
        Selection::Git(rule) => of_repository(rule, locals),
        Selection::BuildDepends(name) => built(&|source| build_depends(source, settings, name)),
        Selection::DependsOn(name) => {
            let (targets, all) = (std::slice::from_ref(name), built(&|_| true));
            dependents(targets, &all, Reach::Installs, settings, universe, sources)
        }
        Selection::Installed(pattern) => {
            let mut found = BTreeSet::new();
            for path in files(yard, pattern) {
                let text = text_of(&path)?;
                found.extend(installed(&text).filter_map(|binary| source_of(binary, universe, sources)));
            }
            found.into_iter().collect()
        }
        Selection::Section(section) => built(&|source| {
            let own = source.stanza().get("Section").unwrap_or("");
            own == section || own.rsplit('/').next() == Some(section)
        }),
        Selection::Priority(priority) => built(&|source| source.stanza().get("Priority") == Some(priority)),
        // `rules` has replaced them by their lines.
        Selection::Rules(_) => Vec::new(),
    })
}

fn build_depends(source: &Source, settings: &Settings, name: &str) -> bool {
    let context = settings.context_of(source.name());
    let needs = source.request(settings.parts).needs;
    needs
        .iter()
        .any(|field| relation::clauses(field, &context).flatten().flatten().any(|atom| atom.name == name))
}

/// The binary packages that a list names: `dpkg -l` (only installed ones), `dpkg-query -W`, or one name in each line.
fn installed(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let first = words.next()?;
        // Desired action, state and error of dpkg -l, such as `ii` or `hi`.
        let is_state =
            first.len() <= 3 && first.len() >= 2 && "uihrp".contains(&first[..1]) && first.is_ascii();
        let name = match words.next() {
            Some(second) if is_state && words.next().is_some() => {
                if first.as_bytes()[1] != b'i' {
                    return None;
                }
                second
            }
            _ => first,
        };
        // `libc6:amd64` has an architecture.
        let name = name.split(':').next().unwrap_or(name);
        relation::is_name(name).then_some(name)
    })
}

/// The source of a binary package of the release; a source of this name otherwise.
fn source_of(binary: &str, universe: &Universe, sources: &Sources) -> Option<String> {
    let archived = universe.named(binary).iter().find(|one| universe.origin(**one) == Origin::Archive);
    let source = archived.map(|one| {
        let stanza = universe.stanza(*one);
        stanza.get("Source").and_then(|text| text.split([' ', '(']).next()).unwrap_or(binary).to_owned()
    });
    source.filter(|name| sources.get(name).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_ecosystem::debian::suites::Pin;

    #[test]
    fn lists_of_machines_are_read() {
        let text = "Desired=Unknown/Install/Remove/Purge/Hold\n||/ Name  Version\n+++-====-====\n\
                    ii  bash 5.2 amd64 GNU shell\nrc  gone 1.0 amd64 removed\nhi  libc6:amd64 2.36 amd64 C library\n\
                    zlib1g\t1.2\nhello\n_x\n";
        let found: Vec<&str> = installed(text).collect();
        assert_eq!(found, ["bash", "libc6", "zlib1g", "hello"]);
    }

    #[test]
    fn rules_are_parsed_and_others_rejected() {
        let parse = |text: &str| Rule::parse(text).map(|rule| (rule.is_exclusion, rule.selection));
        for (text, is_exclusion, selection) in [
            ("all", false, Selection::All),
            ("zlib", false, Selection::Name("zlib".into())),
            (
                "linux/bookworm-backports",
                false,
                Selection::Pinned(Pin::parse("linux/bookworm-backports").unwrap()),
            ),
            ("hello=2.10-3", false, Selection::Pinned(Pin::parse("hello=2.10-3").unwrap())),
            ("-gcc-12", true, Selection::Name("gcc-12".into())),
            ("lib*", false, Selection::Pattern("lib*".into())),
            ("own/*.dsc", false, Selection::Local("own/*.dsc".into())),
            ("@names.txt", false, Selection::Rules("names.txt".into())),
            ("build-depends:zlib1g-dev", false, Selection::BuildDepends("zlib1g-dev".into())),
            ("-depends-on:perl", true, Selection::DependsOn("perl".into())),
            ("installed:machines/*.list", false, Selection::Installed("machines/*.list".into())),
            ("section:libs", false, Selection::Section("libs".into())),
            ("priority:required", false, Selection::Priority("required".into())),
        ] {
            assert_eq!(parse(text).unwrap(), (is_exclusion, selection), "{text}");
        }
        for text in [
            "",
            "-",
            "--all",
            "@",
            "section:",
            "depends-on:_x",
            "_y",
            "a b",
            "mail/../mutt",
            "colour:red",
            "[a",
            "a=",
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains("neither the name of a source package nor a rule"), "{text}: {error}");
        }
    }

    #[test]
    fn files_of_rules_are_followed_and_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        write("a.txt", "zlib # compression\n\n-hello\n@b.txt\n");
        write("b.txt", "lib*\n");
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let found = rules(folder.path(), &texts(&["all", "-@a.txt"])).unwrap();
        let shown: Vec<(bool, Selection)> =
            found.into_iter().map(|rule| (rule.is_exclusion, rule.selection)).collect();
        assert_eq!(
            shown,
            [
                (false, Selection::All),
                (true, Selection::Name("zlib".into())),
                (false, Selection::Name("hello".into())),
                (true, Selection::Pattern("lib*".into())),
            ]
        );
        write("b.txt", "@b.txt\n");
        let error = rules(folder.path(), &texts(&["@b.txt"])).unwrap_err().to_string();
        assert!(error.contains("nested more than 8 deep"), "{error}");
        assert!(rules(folder.path(), &texts(&["@absent.txt"])).is_err());
        let error = rules(folder.path(), &texts(&["@/dev/zero"])).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
        for name in ["x.dsc", "y.dsc", "z.txt"] {
            write(name, "");
        }
        let names = |pattern: &str| {
            let names = files(folder.path(), pattern).into_iter();
            names.map(|path| path.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("*.dsc"), ["x.dsc", "y.dsc"]);
        assert_eq!(names("no.dsc"), ["no.dsc"]);
        assert_eq!(names("*.deb"), Vec::<String>::new());
    }
}
