//! Cycles that spec files break `--with bootstrap`.

use crate::builds::{Yard, pool, real};
use crate::support::trials::{Case, case};
use std::process::Command;

/// A package without architecture. `requires` has lines; `words` is what it installs, as a shell prints it.
fn spec(name: &str, requires: &str, words: &str, more: &str) -> String {
    format!(
        "%bcond_with bootstrap\nName: {name}\nVersion: 1\nRelease: 1%{{?dist}}\nSummary: x\nLicense: MIT\nBuildArch: noarch\n{requires}\n\
         %description\nx\n{more}%prep\n%build\n%install\nmkdir -p %{{buildroot}}/usr/share/{name}\n\
         echo {words} > %{{buildroot}}/usr/share/{name}/words\n%files\n/usr/share/{name}\n"
    )
}

/// A requirement without which the source is built `--with bootstrap`.
fn unless_bootstrap(package: &str) -> String {
    format!("%if %{{without bootstrap}}\nBuildRequires: {package}\n%endif")
}

const KIND: &str = "%{?with_bootstrap:bootstrap}%{!?with_bootstrap:plain}";

/// A file of the newest published package of a name.
fn published(yard: &Yard, package: &str, path: &str) -> String {
    let files = yard.files();
    // Those of the generation before are still there.
    let newest = files
        .iter()
        .rfind(|file| {
            let rest = file.strip_prefix(&format!("{package}-"));
            rest.is_some_and(|rest| {
                rest.starts_with(|c: char| c.is_ascii_digit()) && !file.ends_with(".src.rpm")
            })
        })
        .unwrap();
    let file = pool(&yard.repository()).join(newest);
    let ended = Command::new("bsdtar").args(["-xOf"]).arg(file).arg(format!("./{path}")).output().unwrap();
    String::from_utf8(ended.stdout).unwrap()
}

fn a_cycle_is_built_with_bootstrap_and_then_plainly() {
    let yard = Yard::new("rpm-bootstrap");
    // egg and hen need each other, and a part that only a plain egg has; later needs that part.
    let part =
        "%if %{without bootstrap}\n%package part\nSummary: x\n%description part\nx\n%files part\n%endif\n";
    yard.write("egg", &spec("egg", &unless_bootstrap("hen"), KIND, part));
    yard.write("hen", &spec("hen", "BuildRequires: egg", "$(cat /usr/share/egg/words)-egg", ""));
    yard.write("later", &spec("later", "BuildRequires: egg-part", "x", ""));
    // It needs itself.
    yard.write("phoenix", &spec("phoenix", &unless_bootstrap("phoenix"), KIND, ""));
    // No spec file breaks this one.
    yard.write("one", &spec("one", "BuildRequires: other", "x", ""));
    yard.write("other", &spec("other", "BuildRequires: one", "x", ""));
    yard.run(&["plan"]).exits(0).says(&[
        "egg is built before hen, without it",
        "one is in the cycle one, other; no repository has packages to break it",
    ]);
    yard.run(&["build"]).says(&[
        "built egg 1-1.kt1.bk1",
        "built hen 1-1.kt1.bk1",
        "built phoenix 1-1.kt1.bk1",
        "needs egg-part",
        "second pass: 4 packages",
        "built egg 1-1.kt1.bk2",
        "built hen 1-1.kt1.bk2",
        "built later 1-1.kt1.bk1",
    ]);
    let why = yard.run(&["why", "egg"]).exits(0).stdout;
    assert!(why.contains("bootstrap"), "{why}");
    // What is left is plain, and was built with what is plain.
    for (package, words) in [("egg", "plain"), ("phoenix", "plain"), ("hen", "plain-egg")] {
        assert_eq!(published(&yard, package, &format!("usr/share/{package}/words")), format!("{words}\n"));
    }
    yard.run(&["build", "egg", "hen", "later", "phoenix"]).exits(0).says(&["4 up-to-date"]);
    // A new version is built plainly at once.
    let newer = spec("egg", &unless_bootstrap("hen"), KIND, part).replace("Version: 1", "Version: 2");
    yard.write("egg", &newer);
    let ended = yard.run(&["build", "egg", "hen", "later", "phoenix"]).exits(0);
    let ended = ended.says(&["built egg 2-1.kt1.bk1"]);
    assert!(!ended.stderr.contains("second pass"), "{}", ended.stderr);
    assert_eq!(published(&yard, "egg", "usr/share/egg/words"), "plain\n");
}

fn a_cycle_that_a_build_finds_out_is_broken_by_the_next_run() {
    let yard = Yard::new("rpm-bootstrap-generated");
    let generates = "%generate_buildrequires\n%if %{without bootstrap}\necho asked\n%endif\n";
    let asker = spec("asker", "", KIND, "").replace("%build\n", &format!("{generates}%build\n"));
    yard.write("asker", &asker);
    yard.write("asked", &spec("asked", "BuildRequires: asker", "$(cat /usr/share/asker/words)-asked", ""));
    yard.run(&["build"]).says(&["asked 1-1.kt1.bk1 is not available to this build"]);
    yard.run(&["build"]).exits(0).says(&[
        "built asker 1-1.kt1.bk1",
        "built asked 1-1.kt1.bk1",
        "second pass: 2 packages",
        "built asker 1-1.kt1.bk2",
        "built asked 1-1.kt1.bk2",
    ]);
    assert_eq!(published(&yard, "asked", "usr/share/asked/words"), "plain-asked\n");
    yard.run(&["build"]).exits(0).says(&["2 up-to-date"]);
}

/// The trials; `has_tools` as of [`crate::builds::cases`].
pub fn cases(has_tools: bool) -> Vec<Case> {
    let real = |case: Case| real(case, has_tools);
    vec![
        real(case(
            "a_cycle_is_built_with_bootstrap_and_then_plainly",
            a_cycle_is_built_with_bootstrap_and_then_plainly,
        )),
        real(case(
            "a_cycle_that_a_build_finds_out_is_broken_by_the_next_run",
            a_cycle_that_a_build_finds_out_is_broken_by_the_next_run,
        )),
    ]
}
