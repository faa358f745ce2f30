//! Finds the packages of repositories that cannot be installed, and the sources that cannot be built.

use super::universe::{Package, Universe};
use crate::explain;
use kilnyard_model::solver::{Candidate, Solver};

/// A package or a source whose requirements cannot be met.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Broken {
    /// The name.
    pub package: String,
    /// The version.
    pub version: String,
    /// The architecture; `src` for a source.
    pub architecture: String,
    /// The number of its repository, in the order of the configuration.
    pub repository: u32,
    /// The file, relative to the repository.
    pub location: String,
    /// The chain of requirements, down to the one that cannot be met; one line per step.
    pub explanation: String,
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Verdicts {
    /// Number of packages and sources.
    pub checked: usize,
    /// Those that cannot be installed or built, in the order of the repositories.
    pub broken: Vec<Broken>,
}

/// Checks whether each package of a finished universe can be installed, and whether what each source requires can.
pub fn check(universe: &mut Universe, sources: &[Package]) -> Verdicts {
    let mut verdicts = Verdicts::default();
    let requests: Vec<Result<Candidate, String>> = sources
        .iter()
        .map(|source| {
            universe.request(&source.requires, &source.conflicts).map_err(|error| error.to_string())
        })
        .collect();
    let mut solver = Solver::new(universe);
    let mut judge = |package: &Package, request: Result<Candidate, String>| {
        verdicts.checked += 1;
        let explanation = match request {
            Ok(root) if solver.is_satisfiable(root) => return,
            Ok(root) => explain::text(universe, root, &package.name, &solver.explain(root)),
            Err(error) => error,
        };
        verdicts.broken.push(Broken {
            package: package.name.to_string(),
            version: package.evr.to_string(),
            architecture: package.architecture.to_string(),
            repository: package.repository,
            location: package.location.to_string(),
            explanation,
        });
    };
    for (candidate, package) in universe.packages() {
        judge(package, Ok(candidate));
    }
    for (source, request) in sources.iter().zip(requests) {
        judge(source, request);
    }
    verdicts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpm::metadata::{MetadataError, primary};

    /// An entry of a list, with this in its format.
    fn package(name: &str, version: &str, format: &str) -> String {
        let digest = "a".repeat(64);
        format!(
            "<package type=\"rpm\"><name>{name}</name><arch>noarch</arch><version epoch=\"0\" ver=\"{version}\" rel=\"1\"/>\
             <checksum type=\"sha256\" pkgid=\"YES\">{digest}</checksum><size package=\"1\"/><location href=\"{name}-{version}.rpm\"/>\
             <format><rpm:provides><rpm:entry name=\"{name}\" flags=\"EQ\" epoch=\"0\" ver=\"{version}\" rel=\"1\"/></rpm:provides>\
             {format}</format></package>"
        )
    }

    #[test]
    fn an_explanation_has_the_kind_of_an_exclusion() {
        let entry = |name: &str| format!("<rpm:entry name=\"{name}\"/>");
        let requires = |names: &[&str]| {
            format!(
                "<rpm:requires>{}</rpm:requires>",
                names.iter().map(|name| entry(name)).collect::<String>()
            )
        };
        let list = [
            package("a", "1", ""),
            package("b", "1", ""),
            package("two", "1", ""),
            package("two", "2", ""),
            package(
                "all",
                "1",
                &format!("{}<rpm:conflicts>{}</rpm:conflicts>", requires(&["a", "b"]), entry("(a and b)")),
            ),
            package(
                "new",
                "1",
                &format!("{}<rpm:obsoletes>{}</rpm:obsoletes>", requires(&["a"]), entry("a")),
            ),
            package(
                "late",
                "1",
                "<rpm:requires><rpm:entry name=\"two\" flags=\"GT\" epoch=\"0\" ver=\"2\" rel=\"1\"/></rpm:requires>",
            ),
        ];
        let list = format!("<metadata>{}</metadata>", list.concat());
        let mut universe = Universe::new();
        primary(&mut list.as_bytes(), &mut |package| {
            universe.add(package).map(drop).map_err(|error| MetadataError(error.to_string()))
        })
        .unwrap();
        universe.finish();
        let broken = check(&mut universe, &[]).broken;
        for (name, words) in [
            ("all", &["the absence of (a and b)", "is needed, and would have to be left out"][..]),
            ("new", &["new 1-1 obsoletes a 1-1"]),
            ("late", &["two 2-1 is available, but does not satisfy two > 2-1"]),
        ] {
            let found = broken.iter().find(|one| one.package == name).unwrap();
            for word in words {
                assert!(found.explanation.contains(word), "{}", found.explanation);
            }
            assert!(!found.explanation.contains("leaving out") && !found.explanation.ends_with(':'));
        }
        assert_eq!(broken.len(), 3, "{broken:?}");
    }
}
