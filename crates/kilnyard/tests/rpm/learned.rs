//! What packages of the set turn out to provide, and releases in all forms.

use crate::builds::{Yard, pool, real};
use crate::support::trials::{Case, case};
use std::fs;
use std::process::Command;

/// A program for builds, and its texts, which are for all architectures and have a release of their own. Its spec file does not say
/// which files it has.
const TOOL: &str = "%global debug_package %{nil}\nName: tool\nVersion: 1\nRelease: 1%{?dist}\nSummary: x\nLicense: MIT\n%description\nx\n\
    %package doc\nSummary: x\nBuildArch: noarch\nVersion: 2\nRelease: 5\n%description doc\nx\n%prep\n%build\n%install\n\
    mkdir -p %{buildroot}/usr/bin %{buildroot}/usr/share/doc/tool\n\
    printf '#!/bin/sh\\necho tool words\\n' > %{buildroot}/usr/bin/tool-config; chmod 755 %{buildroot}/usr/bin/tool-config\n\
    echo x > %{buildroot}/usr/share/doc/tool/text\n%files\n/usr/bin/tool-config\n%files doc\n/usr/share/doc/tool/text\n";

fn spec(name: &str, head: &str, install: &str) -> String {
    format!(
        "Name: {name}\nVersion: 1\n{head}\nSummary: x\nLicense: MIT\nBuildArch: noarch\n%description\nx\nRelease: 7\n%prep\n%build\n\
         %install\nmkdir -p %{{buildroot}}/usr/share/{name}\n{install}\n%files\n/usr/share/{name}\n"
    )
}

fn sources_wait_for_what_only_builds_show() {
    let yard = Yard::new("rpm-learned");
    yard.write("tool", TOOL);
    let words = "tool-config > %{buildroot}/usr/share/use/words";
    yard.write("use", &spec("use", "Release: 1%{?dist}\nBuildRequires: /usr/bin/tool-config", words));
    let copy = "cp /usr/share/use/words %{buildroot}/usr/share/last/";
    yard.write("last", &spec("last", "Release: 1%{?dist}\nBuildRequires: use", copy));
    yard.write("never", &spec("never", "Release: 1\nBuildRequires: /usr/bin/no-such-program", ""));
    let ended = yard.run(&["build"]);
    ended.exits(1).says(&[
        "use (source) needs /usr/bin/tool-config",
        "another pass: packages of the last one have what 2 more packages require",
        "built use 1-1.kt1.bk1",
        "built last 1-1.kt1.bk1",
    ]);
    let pool = pool(&yard.repository());
    for file in ["tool-1-1.kt1.bk1.x86_64.rpm", "tool-doc-2-5.bk1.noarch.rpm", "last-1-1.kt1.bk1.noarch.rpm"]
    {
        assert!(pool.join(file).is_file(), "{file}: {:?}", fs::read_dir(&pool).unwrap().collect::<Vec<_>>());
    }
    // It is known from now on, and what is missing still is.
    let again = yard.run(&["build"]);
    again.exits(1).says(&["3 up-to-date, 1 left-out"]).lacks(&["another pass"]);
    fs::remove_dir_all(yard.specs().join("never")).unwrap();
    yard.run(&["build"]).exits(0).says(&["3 up-to-date"]);
    // A program that is gone takes what requires it along.
    yard.write("tool", &TOOL.replace("tool-config", "other-config"));
    yard.run(&["build"]).exits(1).says(&["built tool 1-1.kt1.bk2"]);
}

fn only_what_is_asked_for_is_built_in_another_pass() {
    let yard = Yard::new("rpm-asked");
    yard.write("tool", TOOL);
    let head = "Release: 1%{?dist}\nBuildRequires: /usr/bin/tool-config";
    for name in ["one", "two"] {
        yard.write(name, &spec(name, head, &format!("tool-config > %{{buildroot}}/usr/share/{name}/words")));
    }
    yard.run(&["build", "tool"]).says(&["built tool 1-1.kt1.bk1"]).lacks(&["another pass", "built one"]);
    // It is known from then on.
    yard.run(&["build", "one"])
        .exits(0)
        .says(&["built one 1-1.kt1.bk1"])
        .lacks(&["another pass", "built two"]);
}

fn releases_are_those_of_tags_alone() {
    let yard = Yard::new("rpm-releases");
    let text = "cat > %{buildroot}/usr/share/loud/text <<END\nRelease: 12\n  release: 13\nEND";
    yard.write("loud", &spec("loud", "RELEASE : 1", text));
    yard.run(&["build"]).exits(0).says(&["built loud 1-1.bk1"]);
    let file = pool(&yard.repository()).join("loud-1-1.bk1.noarch.rpm");
    let unpacked =
        Command::new("bsdtar").args(["-xOf", file.to_str().unwrap(), "./usr/share/loud/text"]).output();
    assert_eq!(String::from_utf8_lossy(&unpacked.unwrap().stdout), "Release: 12\n  release: 13\n");
    let query = ["-qp", "--nosignature", "--qf", "%{DESCRIPTION}", file.to_str().unwrap()];
    let said = Command::new("rpm").args(query).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "x\nRelease: 7");
}

/// A file with the name of a dependency's would be in its place.
fn files_of_a_source_are_not_those_of_its_dependencies() {
    let yard = Yard::new("rpm-names");
    let bison =
        fs::read_dir(&yard.base).unwrap().flatten().map(|entry| entry.file_name().into_string().unwrap());
    let bison = bison.into_iter().find(|name| name.starts_with("bison-")).unwrap();
    yard.write("taken", &spec("taken", &format!("Release: 1\nSource0: {bison}\nBuildRequires: bison"), ""));
    fs::write(yard.specs().join("taken").join(&bison), "another content").unwrap();
    let why = format!("taken has or requires two files with the name {bison}");
    yard.run(&["build"]).exits(1).says(&[&why]).lacks(&["Traceback", "machine"]);
}

pub fn cases(has_tools: bool) -> Vec<Case> {
    let real = |case: Case| real(case, has_tools);
    vec![
        real(case("sources_wait_for_what_only_builds_show", sources_wait_for_what_only_builds_show)),
        real(case(
            "only_what_is_asked_for_is_built_in_another_pass",
            only_what_is_asked_for_is_built_in_another_pass,
        )),
        real(case("releases_are_those_of_tags_alone", releases_are_those_of_tags_alone)),
        real(case(
            "files_of_a_source_are_not_those_of_its_dependencies",
            files_of_a_source_are_not_those_of_its_dependencies,
        )),
    ]
}
