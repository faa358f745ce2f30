//! Two architectures in one universe, for cross-building: the packages of the build machine, which can run, and those
//! of the host, for which packages are built.
//!
//! A package of the host has the name `NAME:ARCHITECTURE`, as in dpkg's commands, so that the solver can choose both.
//! The rules are those of <https://wiki.debian.org/Multiarch/HOWTO> and
//! <https://wiki.debian.org/CrossBuildPackagingGuidelines>: a relation without a qualifier refers to the architecture
//! of the package that has it, and to the host's in a source; `Multi-Arch: foreign` satisfies the relations of both.
//! Packages for all architectures belong to the build machine. Versions of one package for both architectures exclude
//! each other, unless they are `Multi-Arch: same` and equal versions.

use super::{MultiArch, Universe};
use crate::debian::relation::{Atom, Context, Qualifier};
use kilnyard_model::solver::Candidate;

impl Universe {
    /// The architecture of the machine that builds.
    pub(super) fn build_architecture(&self) -> &str {
        self.context.build.as_deref().unwrap_or(&self.context.architecture)
    }

    /// Whether a package of this architecture belongs to the host of a cross build; absent if it belongs to neither
    /// side.
    pub(super) fn side(&self, architecture: Option<&str>) -> Option<bool> {
        match architecture {
            None | Some("all") => Some(false),
            Some(one) if one == self.build_architecture() => Some(false),
            Some(one) => (one == self.context.architecture).then_some(true),
        }
    }

    /// The name under which a package is known.
    pub(super) fn known_as(&self, name: &str, is_host: bool) -> String {
        if is_host { format!("{name}:{}", self.context.architecture) } else { name.to_owned() }
    }

    /// Whether a candidate is for the architecture that packages are built for.
    pub fn is_of_host(&self, candidate: Candidate) -> bool {
        self.context.build.is_none() || self.binaries[candidate.index()].is_host
    }

    /// The packages of this name that a source may make: those of the host.
    pub fn named_as_output(&self, name: &str) -> &[Candidate] {
        if self.context.build.is_none() {
            return self.named(name);
        }
        match self.named(&self.known_as(name, true)) {
            [] => self.named(name),
            of_host => of_host,
        }
    }

    /// Appends the candidates that satisfy an atom of a package or source of one side.
    pub(super) fn matching_from(&self, is_host: bool, atom: &Atom, candidates: &mut Vec<Candidate>) {
        let Context { architecture, build: Some(build), .. } = &self.context else {
            return self.matching(atom, candidates);
        };
        let plain = Atom { qualifier: Qualifier::None, ..*atom };
        let of_host = self.known_as(atom.name, true);
        let of_host = Atom { name: &of_host, ..plain };
        let is_one_of = |kinds: &'static [MultiArch]| {
            move |one: Candidate| kinds.contains(&self.binaries[one.index()].multi_arch)
        };
        match atom.qualifier {
            Qualifier::None if is_host => {
                self.accepted(&plain, &is_one_of(&[MultiArch::Foreign]), candidates);
                self.accepted(&of_host, &|_| true, candidates);
            }
            Qualifier::Any => {
                self.accepted(&plain, &is_one_of(&[MultiArch::Allowed]), candidates);
                self.accepted(&of_host, &is_one_of(&[MultiArch::Allowed]), candidates);
            }
            Qualifier::Architecture(one) if one == architecture => {
                self.accepted(&of_host, &|_| true, candidates);
            }
            Qualifier::Architecture(one) if one != build => {}
            Qualifier::None | Qualifier::Native | Qualifier::Architecture(_) => {
                self.accepted(&plain, &|_| true, candidates);
            }
        }
    }

    /// Appends the candidates that a conflict excludes: without a qualifier, those of both sides.
    pub(super) fn excluded_by(&self, atom: &Atom, candidates: &mut Vec<Candidate>) {
        match (&self.context.build, atom.qualifier) {
            (Some(_), Qualifier::None) => {
                self.matching(atom, candidates);
                let of_host = self.known_as(atom.name, true);
                self.matching(&Atom { name: &of_host, ..*atom }, candidates);
            }
            _ => self.matching_from(false, atom, candidates),
        }
    }

    /// Whether a candidate can be installed in a root that has these packages of the build machine, by name and
    /// version.
    pub(in crate::debian) fn fits_beside<'a>(
        &self,
        candidate: Candidate,
        installed: &dyn Fn(&str) -> Option<&'a str>,
    ) -> bool {
        let binary = &self.binaries[candidate.index()];
        let is_equal = |version| binary.multi_arch == MultiArch::Same && version == self.version(candidate);
        !binary.is_host || installed(self.package(candidate)).is_none_or(is_equal)
    }

    /// The candidates of the other side with the same name that cannot be installed together with this one.
    pub(super) fn apart_from(&self, candidate: Candidate) -> Vec<Candidate> {
        if self.context.build.is_none() {
            return Vec::new();
        }
        let own = &self.binaries[candidate.index()];
        let name = self.stanza(candidate).get("Package").unwrap_or("");
        let others = self.named(&self.known_as(name, !own.is_host));
        let may_coexist = |other: Candidate| {
            let both = [own.multi_arch, self.binaries[other.index()].multi_arch];
            both == [MultiArch::Same; 2] && self.version(candidate) == self.version(other)
        };
        others.iter().copied().filter(|other| !may_coexist(*other)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Origin, Request, View};
    use super::*;
    use kilnyard_model::solver::Solver;

    fn universe() -> Universe {
        let context = Context { build: Some("amd64".into()), ..Context::new("arm64") };
        let mut universe = Universe::new(context);
        let mut add = |name: &str, version: &str, architecture: &str, more: &str| {
            let text = format!("Package: {name}\nVersion: {version}\nArchitecture: {architecture}\n{more}\n");
            universe.add_package(&text, Origin::Archive)
        };
        for architecture in ["amd64", "arm64"] {
            add("libc6", "1", architecture, "Multi-Arch: same\n");
            add(
                "libold",
                if architecture == "amd64" { "1" } else { "2" },
                architecture,
                "Multi-Arch: same\n",
            );
            add("libz-dev", "1", architecture, "Multi-Arch: same\nDepends: libc6\nProvides: z-dev\n");
            add("make", "1", architecture, "Multi-Arch: foreign\nDepends: libc6\nProvides: maker\n");
            add("perl", "1", architecture, "Multi-Arch: allowed\nDepends: libc6\n");
            add("tool", "1", architecture, "Depends: libc6, perl:any\n");
            add("rival", "1", architecture, "Conflicts: tool\n");
        }
        add("helper", "1", "all", "Multi-Arch: foreign\nDepends: make\n");
        add("data", "1", "all", "");
        assert_eq!(add("libc6", "1", "riscv64", ""), None);
        universe
    }

    /// The names that a request installs; empty if it has no solution.
    fn chosen(needs: &str) -> Vec<String> {
        let mut universe = universe();
        let root =
            universe.request(&Request { needs: vec![needs.to_owned()], ..Request::default() }).unwrap();
        let chosen = Solver::new(&View::whole(&universe)).solve(root).unwrap_or_default();
        let mut names: Vec<String> =
            chosen.iter().filter(|one| **one != root).map(|one| universe.name(*one).to_owned()).collect();
        names.sort_unstable();
        names
    }

    #[test]
    fn a_source_needs_libraries_of_the_host_and_tools_of_the_build_machine() {
        assert_eq!(chosen("libz-dev"), ["libc6:arm64", "libz-dev:arm64"]);
        assert_eq!(chosen("z-dev"), ["libc6:arm64", "libz-dev:arm64"]);
        assert_eq!(chosen("make"), ["libc6", "make"]);
        assert_eq!(chosen("maker"), ["libc6", "make"]);
        assert_eq!(chosen("helper"), ["helper", "libc6", "make"]);
        assert_eq!(
            chosen("libz-dev, libz-dev:native"),
            ["libc6", "libc6:arm64", "libz-dev", "libz-dev:arm64"]
        );
    }

    #[test]
    fn qualifiers_choose_the_side() {
        assert_eq!(chosen("tool"), ["libc6", "libc6:arm64", "perl", "tool:arm64"]);
        assert_eq!(chosen("tool:native"), ["libc6", "perl", "tool"]);
        assert_eq!(chosen("tool:amd64"), ["libc6", "perl", "tool"]);
        assert_eq!(chosen("libc6:arm64"), ["libc6:arm64"]);
        assert_eq!(chosen("perl:any"), ["libc6", "perl"]);
        assert!(chosen("tool:any").is_empty() && chosen("libc6:riscv64").is_empty());
        // A package for all architectures satisfies no relation of the host, unless it says so.
        assert!(chosen("data").is_empty() && !chosen("data:native").is_empty());
    }

    #[test]
    fn both_sides_of_a_package_need_equal_versions_and_permission() {
        assert!(chosen("libold, libold:native").is_empty());
        assert!(chosen("tool, tool:native").is_empty());
        assert!(chosen("rival:native, tool").is_empty());
        assert_eq!(chosen("libc6, libc6:native"), ["libc6", "libc6:arm64"]);
        let universe = universe();
        let fits = |name: &str, installed: &'static str| {
            universe.fits_beside(universe.named(name)[0], &|name| (name == installed).then_some("1"))
        };
        assert!(fits("libc6:arm64", "libc6") && fits("libold:arm64", "libc6") && fits("tool", "tool"));
        assert!(!fits("libold:arm64", "libold") && !fits("tool:arm64", "tool"));
    }
}
