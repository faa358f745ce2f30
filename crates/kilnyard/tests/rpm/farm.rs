//! Workers that build RPM packages, and spec files from git.

use crate::builds::{Yard, pool, real};
use crate::support::farm::{Far, Served};
use crate::support::git::git;
use crate::support::trials::{Case, case};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A program that has the time of its build in it, and one that was built with it.
const SPEC: &str = "Name: clock\nVersion: 1\nRelease: 1%{?dist}\nSummary: x\nLicense: MIT\n%description\nx\n%prep\n%build\n\
    echo '#include <stdio.h>\nint main(void) { puts(__DATE__ __TIME__ __FILE__); return 0; }' > clock.c\n\
    gcc -g -O2 -o clock clock.c\n%install\ninstall -D -m755 clock %{buildroot}/usr/bin/clock\n%files\n/usr/bin/clock\n";
const USER: &str = "Name: shown\nVersion: 1\nRelease: 1%{?dist}\nSummary: x\nLicense: MIT\nBuildArch: noarch\n\
    BuildRequires: clock\n%description\nx\n%prep\n%build\nclock > time\n%install\ninstall -D -m644 time %{buildroot}/usr/share/shown/time\n\
    %files\n/usr/share/shown/time\n";

/// The published files, whose bytes are those of the builds.
fn plain_yard(name: &str) -> Yard {
    let yard = Yard::new(name);
    let path = Path::new(&yard.at()).join("kilnyard.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("\n# sign-packages = false"));
    fs::write(&path, text.replace("\n# sign-packages = false", "\nsign-packages = false")).unwrap();
    yard.write("clock", SPEC);
    yard.write("shown", USER);
    yard
}

fn published(yard: &Yard) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(yard.repository().join("Packages")).unwrap().flatten();
    files
        .map(|file| (file.file_name().to_str().unwrap().to_owned(), fs::read(file.path()).unwrap()))
        .collect()
}

fn a_worker_builds_the_same_bytes() {
    let here = plain_yard("rpm-here");
    here.run(&["build"]).exits(0).says(&["2 built"]);
    assert!(here.client().contains("\ngpgcheck=0\n"));
    let far = plain_yard("rpm-far");
    let yard = crate::support::Yard { folder: far.at().into() };
    far.run(&["scan"]).exits(0);
    let served = Served::start(&yard);
    let workers = far.folder.path().join("workers");
    fs::create_dir(&workers).unwrap();
    let worker = Far::join(&workers, &yard, &served, "far");
    yard.run(&["build", "--elsewhere"]).exits(0).says(&["2 built"]);
    yard.run(&["provenance", "clock"]).exits(0).says(&["far"]);
    let (ours, theirs) = (published(&here), published(&far));
    assert!(ours.len() >= 4 && ours.keys().eq(theirs.keys()), "{:?} {:?}", ours.keys(), theirs.keys());
    for (name, bytes) in &ours {
        assert!(*bytes == theirs[name], "{name} differs");
    }
    drop(worker);
    drop(served);
}

fn spec_files_come_from_a_repository_of_git() {
    let yard = Yard::new("rpm-git");
    let repository = yard.folder.path().join("repository");
    fs::create_dir_all(repository.join("specs/shown")).unwrap();
    git(&repository, &["init", "-q", "-b", "main"]);
    let spec = USER.replace("BuildRequires: clock\n", "").replace("clock > time", "echo one > time");
    let commit = |text: &str, subject: &str| {
        fs::write(repository.join("specs/shown/shown.spec"), text).unwrap();
        git(&repository, &["add", "-A"]);
        git(&repository, &["commit", "-qm", subject]);
    };
    commit(&spec, "Show one");
    let path = Path::new(&yard.at()).join("kilnyard.toml");
    let before = fs::read_to_string(&path).unwrap();
    let (own, other) =
        (yard.specs().display().to_string(), format!("git:{}#main:specs", repository.display()));
    assert!(before.contains(&own));
    fs::write(&path, before.replace(&own, &other)).unwrap();
    yard.run(&["build"]).exits(0).says(&["1 built", "built shown 1-1.kt1.bk1"]);
    // Nothing of the user's folder is changed, and what was changed in the copy counts for nothing.
    fs::write(Path::new(&yard.at()).join("tree/shown/shown.spec"), "Name: other\n").unwrap();
    yard.run(&["build"]).exits(0).says(&["1 up-to-date"]);
    commit(&spec.replace("one", "two"), "Show two, as all of us do");
    yard.run(&["build"]).exits(0).says(&["built shown 1-1.kt1.bk2"]);
    yard.run(&["why", "shown"]).exits(0).says(&["Show two, as all of us do"]);
    assert!(pool(&yard.repository()).join("shown-1-1.kt1.bk2.noarch.rpm").exists());
    // An address that is none is an error with the forms that are.
    fs::write(&path, before.replace(&own, "git:ext::sh")).unwrap();
    yard.run(&["plan"]).exits(2).says(&["specs is not a repository of git", "git:https://HOST/PATH"]);
}

/// The trials; `has_tools` as of [`crate::builds::cases`].
pub fn cases(has_tools: bool) -> Vec<Case> {
    let real = |case: Case| real(case, has_tools);
    vec![
        real(case("a_worker_builds_the_same_bytes", a_worker_builds_the_same_bytes)),
        real(case("spec_files_come_from_a_repository_of_git", spec_files_come_from_a_repository_of_git)),
    ]
}
