//! Converts a release for libsolv's `installcheck`: each source becomes a package that depends on what its
//! build needs, as a script would do it. Also parses the verdicts.

use kilnyard_ecosystem::debian::deb822::unfold;
use kilnyard_ecosystem::debian::relation::{self, Atom, Context, Qualifier};
use kilnyard_ecosystem::debian::source::{Parts, Source, Sources};
use std::collections::{BTreeSet, HashMap};
use std::fmt::Write;

/// Prefix of source names, to distinguish them from binary packages.
const PREFIX: &str = "src-";

/// Sources as a `Packages` text, and the sources by the names that `installcheck` prints.
pub struct Converted {
    pub text: String,
    sources: HashMap<String, String>,
}

/// Converts every source that builds a package for this architecture.
pub fn convert(sources: &Sources, context: &Context, parts: Parts) -> Converted {
    let mut converted = Converted { text: String::new(), sources: HashMap::new() };
    for source in sources.all() {
        if source.builds_on(&context.architecture, parts) {
            converted.text.push_str(&stanza(&source, context, parts));
            let shown = format!("{PREFIX}{}-{}.{}", source.name(), source.version(), context.architecture);
            converted.sources.insert(shown, source.name().to_owned());
        }
    }
    converted
}

fn stanza(source: &Source, context: &Context, parts: Parts) -> String {
    let request = source.request(parts);
    let mut text = format!(
        "Package: {PREFIX}{}\nVersion: {}\nArchitecture: {}\n",
        source.name(),
        source.version(),
        context.architecture
    );
    for (field, values) in [("Depends", &request.needs), ("Conflicts", &request.excludes)] {
        let clauses: Vec<String> =
            values.iter().flat_map(|value| relation::clauses(value, context)).map(clause).collect();
        if !clauses.is_empty() {
            let _ = writeln!(text, "{field}: {}", clauses.join(", "));
        }
    }
    text.push('\n');
    text
}

fn clause(clause: Result<Vec<Atom>, relation::RelationError>) -> String {
    match clause {
        Ok(atoms) => atoms.into_iter().map(native).collect::<Vec<_>>().join(" | "),
        // A package with unparsable relations cannot be installed.
        Err(error) => format!("unreadable-relation (= {})", unfold(&error.relation).len()),
    }
}

fn native(mut atom: Atom) -> String {
    if atom.qualifier == Qualifier::Native {
        atom.qualifier = Qualifier::None;
    }
    atom.to_string()
}

impl Converted {
    /// The sources that `installcheck` rejects. An unknown name is kept as printed, so that it shows up as a
    /// difference.
    pub fn unbuildable(&self, output: &str) -> BTreeSet<String> {
        let verdict = |line: &str| {
            let shown = line.strip_prefix("can't install ")?.trim_end().trim_end_matches(':');
            let unknown = || shown.starts_with(PREFIX).then(|| shown.to_owned());
            self.sources.get(shown).cloned().or_else(unknown)
        };
        output.lines().filter_map(verdict).collect()
    }

    /// Number of sources.
    pub fn len(&self) -> usize {
        self.sources.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCES: &str = "\
Package: good\nVersion: 1:2-3\nArchitecture: any\n\
Build-Depends: a (>= 1) [amd64] | b:native, c:any <!nocheck>, d [i386]\n\
Build-Depends-Indep: e\nBuild-Conflicts: f [amd64], g [arm64]\n\n\
Package: elsewhere\nVersion: 1\nArchitecture: arm64\nBuild-Depends: a\n\n\
Package: extra\nVersion: 1\nArchitecture: any\nExtra-Source-Only: yes\n\n\
Package: broken\nVersion: 1\nArchitecture: any\nBuild-Depends: a (1)\n";

    #[test]
    fn sources_become_packages_with_their_build_dependencies() {
        let mut sources = Sources::default();
        sources.add(SOURCES.into()).unwrap();
        let context = Context { profiles: vec!["nocheck".into()], ..Context::new("amd64") };
        let converted = convert(&sources, &context, Parts::Dependent);
        let expected = "Package: src-broken\nVersion: 1\nArchitecture: amd64\n\
Depends: unreadable-relation (= 5), build-essential\n\n\
Package: src-good\nVersion: 1:2-3\nArchitecture: amd64\n\
Depends: a (>= 1) | b, build-essential\nConflicts: f\n\n";
        assert_eq!(converted.text, expected);
        assert_eq!(converted.len(), 2);
        let with_indep = convert(&sources, &context, Parts::All).text;
        assert!(with_indep.contains("a (>= 1) | b, e, build-essential"), "{with_indep}");
    }

    #[test]
    fn verdicts_on_other_packages_are_ignored() {
        let mut sources = Sources::default();
        sources.add(SOURCES.into()).unwrap();
        let converted = convert(&sources, &Context::new("amd64"), Parts::Dependent);
        let output = "can't install src-good-1:2-3.amd64:\n  nothing provides a\n\
can't install other-1.amd64:\ncan't install src-odd:\nchecked 3\n";
        assert_eq!(converted.unbuildable(output), BTreeSet::from(["good".to_owned(), "src-odd".to_owned()]));
    }
}
