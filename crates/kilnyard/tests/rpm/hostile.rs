//! Spec files, packages and repositories that are bad, or mean harm. The others are built.

use crate::builds::{Yard, base, init, real};
use crate::check::run;
use crate::support::trials::{Case, case};
use crate::support::{folder, kilnyard};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A package with these lines before its description, and a part of its installation.
fn spec(name: &str, lines: &str, install: &str) -> String {
    format!(
        "Name: {name}\nVersion: 1\nRelease: 1%{{?dist}}\nSummary: x\nLicense: MIT\nBuildArch: noarch\n{lines}\n%description\nx\n\
         %prep\n%build\n%install\nmkdir -p %{{buildroot}}/usr/share/{name}\n{install}\n%files\n/usr/share/{name}\n"
    )
}

fn bad_sources_do_not_stop_the_others() {
    let yard = Yard::new("rpm-hostile");
    let file = |name: &str| format!("echo x > %{{buildroot}}/usr/share/{name}/x");
    yard.write("good", &spec("good", "", &file("good")));
    // A folder may have several.
    fs::write(yard.specs().join("good/second.spec"), spec("second", "", &file("second"))).unwrap();
    // Macros that do not end, in rpm's own Lua, in themselves and in a shell that leaves a process behind; that eat memory or the
    // disk; and that print without end.
    for (name, macros) in [
        ("looping", "%{lua: while true do end}"),
        ("recursive", "%define one %{two}\n%define two %{one}\n%{one}"),
        (
            "greedy",
            "%{lua: local all = {}; while true do all[#all + 1] = string.rep('x', 1000000) .. #all end}",
        ),
        ("filling", "%(cat /dev/zero > /tmp/full; rm /tmp/full)"),
        ("printing", "%{lua: for number = 1, 100000000 do io.stderr:write('xxxxxxxxxxxxxxxxxxxxxxxx') end}"),
        ("leaving", "%(setsid sleep 86399 > /dev/null 2>&1 &)"),
    ] {
        yard.write(name, &spec(name, macros, &file(name)));
    }
    // A file of the user who builds, which a link makes a source, and a spec file elsewhere.
    let secret = Path::new(&yard.at()).join("secret");
    fs::write(&secret, "x").unwrap();
    yard.write("taking", &spec("taking", "Source0: key", "cp %{SOURCE0} %{buildroot}/usr/share/taking"));
    std::os::unix::fs::symlink(&secret, yard.specs().join("taking/key")).unwrap();
    std::os::unix::fs::symlink(&secret, yard.specs().join("taking/elsewhere.spec")).unwrap();
    // The configuration of a repository may have a password. The epoch would be 1.
    let epoch = "Epoch: %(cat %{_sourcedir}/.git/config 2> /dev/null | grep -c hunter2 || true)";
    yard.write("reading", &spec("reading", epoch, &file("reading")));
    fs::create_dir(yard.specs().join("reading/.git")).unwrap();
    fs::write(yard.specs().join("reading/.git/config"), "url = https://x:hunter2@localhost/\n").unwrap();
    // A payload that unpacks to more than is allowed, and one that compresses well.
    yard.write("huge", &spec("huge", "", "truncate -s 64M %{buildroot}/usr/share/huge/x"));
    yard.write(
        "many",
        &spec("many", "", "for x in $(seq 2000); do : > %{buildroot}/usr/share/many/$x; done"),
    );
    let config = Path::new(&yard.at()).join("kilnyard.toml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(
        &config,
        text.replace("\n[limits]", "\n[limits]\nunpacked = \"32M\"\nunpacked-files = 1000\n#"),
    )
    .unwrap();
    yard.run(&["build"]).exits(1).says(&[
        "looping: rpmspec was ended: it used more than",
        "recursive: rpmspec failed",
        "greedy: rpmspec was ended: ",
        "filling: rpmspec was ended: it wrote too much",
        "printing: rpmspec was ended: ",
        "built good 1-1.kt1.bk1",
        "built leaving 1-1.kt1.bk1",
        "taking: key is not read: a link leads out of",
        "elsewhere: elsewhere.spec is not read: a link leads out of",
        "unpacks to more than 33554432 bytes",
        "has more than 1000 files",
        "built second 1-1.kt1.bk1",
        "built reading 1-1.kt1.bk1",
        "4 built, 2 failed, 7 left-out",
    ]);
    let left = Command::new("pgrep").args(["-f", "^sleep 86399$"]).output().unwrap();
    assert!(left.stdout.is_empty(), "a process of a macro is still there");
}

/// A repository whose first list says other things than its packages.
fn a_lying_repository() {
    let (base, set) = base();
    let folder = folder("rpm-lies");
    let path = |name: &str| folder.path().join(name);
    run(Command::new("cp").arg("-r").arg(&base).arg(path("repo")));
    fs::create_dir_all(path("specs/uses")).unwrap();
    fs::write(
        path("specs/uses/uses.spec"),
        spec("uses", "BuildRequires: bison", "echo x > %{buildroot}/usr/share/uses/x"),
    )
    .unwrap();
    let [at, repo, specs] = ["yard", "repo", "specs"].map(|name| path(name).to_str().unwrap().to_owned());
    init(&at, &repo, &specs, &["--root-package", &set]).exits(0);
    let yard = |words: &[&str]| kilnyard(&[&["--yard", &at], words].concat());
    // What is listed as bison is flex, and what is listed has another version.
    for (from, to) in [
        ("<name>flex</name>", "<name>bison</name>"),
        ("ver=\"3.8.2+dfsg\" rel=\"1+b1\"", "ver=\"4\" rel=\"1+b1\""),
    ] {
        let change = format!(
            "import glob, gzip, os, subprocess, sys\nos.chdir(sys.argv[1])\nsubprocess.run(['createrepo_c', '-q', '.'], check=True)\n\
             path, = glob.glob('repodata/*-primary.xml.gz')\ntext = gzip.open(path, 'rt').read()\nfrom_, to = {from:?}, {to:?}\nassert from_ in text\n\
             if 'flex' in from_: text = text.replace('<name>bison<', '<name>other<')\n\
             open('primary.xml', 'w').write(text.replace(from_, to))\n\
             subprocess.run(['modifyrepo_c', '--mdtype=primary', 'primary.xml', 'repodata'], check=True)\n"
        );
        run(Command::new("python3").args(["-c", &change, &repo]));
        yard(&["scan"]).exits(0);
        yard(&["build", "--no-scan"]).exits(1).says(&["1 failed"]);
        yard(&["log", "uses", "depends"]).says(&["a repository lists other packages than it has"]);
    }
    // The last source that is gone is no longer one.
    fs::remove_dir_all(path("specs/uses")).unwrap();
    yard(&["scan"]).exits(0);
    let planned = yard(&["plan"]).stdout;
    assert!(!planned.contains("uses"), "{planned}");
}

/// The trials; `has_tools` as of [`crate::builds::cases`].
pub fn cases(has_tools: bool) -> Vec<Case> {
    vec![
        real(case("bad_sources_do_not_stop_the_others", bad_sources_do_not_stop_the_others), has_tools),
        real(case("a_repository_that_lies_is_found_out", a_lying_repository), has_tools),
    ]
}
