//! Requirements that builds find out, by `%generate_buildrequires`.

use crate::builds::{Yard, real};
use crate::support::trials::{Case, case};
use std::fs;

/// A package without architecture that has one file with these words.
fn spec(name: &str, requires: &str, generates: &str, build: &str, words: &str) -> String {
    let requires = if requires.is_empty() { String::new() } else { format!("BuildRequires: {requires}\n") };
    let generates = match generates {
        "" => String::new(),
        script => format!("%generate_buildrequires\n{script}\n"),
    };
    format!(
        "Name: {name}\nVersion: 1\nRelease: 1%{{?dist}}\nSummary: x\nLicense: MIT\nBuildArch: noarch\n{requires}%description\nx\n\
         %prep\n{generates}%build\n{build}\n%install\nmkdir -p %{{buildroot}}/usr/share/{name}\n\
         echo '{words}' > %{{buildroot}}/usr/share/{name}/words\n%files\n/usr/share/{name}\n"
    )
}

fn builds_are_repeated_with_what_they_find_out() {
    let yard = Yard::new("rpm-generated");
    let put = |name: &str, requires, generates, build, words| {
        yard.write(name, &spec(name, requires, generates, build, words));
    };
    // A package of the set that is still being built, one of a repository, and one that depends on the first.
    put("slow", "", "", "sleep 4", "slow words");
    put("asker", "", "echo slow", "grep slow /usr/share/slow/words", "x");
    put("after", "asker", "", "test -e /usr/share/asker/words", "x");
    // The second list depends on what the first one installed.
    put(
        "rounds",
        "",
        "echo flex; if command -v flex > /dev/null; then echo bison; fi",
        "flex --version; bison --version",
        "x",
    );
    // Each list makes the other one.
    put("endless", "", "if command -v flex > /dev/null; then echo bison; else echo flex; fi", "", "x");
    put("unmet", "", "echo '(no-such-thing or nor-this)'", "", "x");
    put("needs-unmet", "unmet", "", "", "x");
    // The second one of these to ask cannot have the first one.
    put("circle1", "", "echo circle2", "", "x");
    put("circle2", "", "sleep 2; echo circle1", "", "x");
    let ended = yard.run(&["build"]);
    ended.says(&[
        "built after 1-1.kt1.bk1",
        "built rounds 1-1.kt1.bk1",
        "its build requires slow, too",
        "its build requires bison, flex, too",
        "its requirements were not complete after 10 builds",
        "no-such-thing is provided by no package",
        "built asker 1-1.kt1.bk1 in",
        "needs circle",
        "s: first build",
        "4 built, 3 failed, 2 blocked",
    ]);
    yard.run(&["why", "asker"]).exits(0).says(&["built"]);
    // The next run knows all of it: nothing that was built is built again, and what is in a circle is left out.
    yard.run(&["plan"]).exits(0).says(&["circle1 is in the cycle circle1, circle2"]);
    let again = yard.run(&["build"]);
    let again = again.says(&["it needs unmet (left-out)", "4 up-to-date, 1 failed, 1 blocked, 3 left-out"]);
    assert!(!again.stdout.contains("asker") && !again.stdout.contains("rounds"), "{}", again.stdout);
    // Lost lists cost a build that finds them out, and no other.
    fs::remove_dir_all(yard.folder.path().join("yard/index/requirements")).unwrap();
    let words = ["asker", "rounds", "after"];
    yard.run(&[&["build"][..], &words].concat()).exits(0).says(&["4 up-to-date"]);
}

fn a_requirement_that_is_gone_is_not_installed() {
    let yard = Yard::new("rpm-generated-less");
    // A run of one package takes in what its build asks for.
    yard.write("part", &spec("part", "", "", "", "x"));
    yard.write("whole", &spec("whole", "", "echo part", "", "x"));
    yard.run(&["build", "whole"]).exits(0).says(&["built part", "built whole", "2 built"]);
    for gone in ["part", "whole"] {
        fs::remove_dir_all(yard.specs().join(gone)).unwrap();
    }
    let generates = "if grep -q more /usr/share/words/words; then echo flex; fi";
    let build = "if grep -q more /usr/share/words/words; then flex --version; else ! command -v flex; fi";
    yard.write("words", &spec("words", "", "", "", "more words"));
    yard.write("asker", &spec("asker", "words", generates, build, "x"));
    yard.run(&["scan"]).exits(0);
    yard.run(&["build"]).exits(0).says(&["its build requires flex, too", "2 built"]);
    // The first build has flex, which `%build` may notice or not; the last one has not.
    let quiet = spec("asker", "words", generates, "command -v flex || :", "x");
    yard.write("asker", &quiet);
    yard.run(&["scan"]).exits(0);
    yard.run(&["build"]).exits(0).says(&["its build requires flex, too", "1 built, 1 up-to-date"]);
    yard.write("words", &spec("words", "", "", "", "words"));
    yard.run(&["scan"]).exits(0);
    yard.run(&["build"]).exits(0).says(&[
        "its build requires less than an earlier one",
        "words 1-1.kt1.bk2",
        "2 built",
    ]);
    let log = yard.run(&["log", "asker"]).exits(0).stdout;
    assert!(!log.contains("/usr/bin/flex"), "{log}");
    yard.run(&["build"]).exits(0).says(&["2 up-to-date"]);
}

/// The trials; `has_tools` as of [`crate::builds::cases`].
pub fn cases(has_tools: bool) -> Vec<Case> {
    let real = |case: Case| real(case, has_tools);
    vec![
        real(case(
            "builds_are_repeated_with_what_they_find_out",
            builds_are_repeated_with_what_they_find_out,
        )),
        real(case(
            "a_requirement_that_is_gone_is_not_installed",
            a_requirement_that_is_gone_is_not_installed,
        )),
    ]
}
