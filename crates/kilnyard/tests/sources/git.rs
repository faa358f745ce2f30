//! Git repositories with a `debian` folder: the source packages made from them, their reproducibility, and attacks.

use crate::support::git::git;
use crate::support::tiny::Tiny;
use crate::support::{Yard, archive::hex_of};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const CASES: &[(&str, fn())] = &[
    ("folders_of_a_repository_are_sources", folders_of_a_repository),
    ("a_native_package_is_made_from_a_commit", a_native_package),
    ("a_commit_always_makes_the_same_files", the_same_files),
    ("an_upstream_archive_is_found_as_git_buildpackage_does", upstream_archives),
    ("an_upstream_archive_comes_from_the_yards_archives", upstream_from_an_archive),
    ("branches_tags_and_commits_are_followed", references),
    ("a_repository_that_cannot_be_used_is_left_out", left_out),
    ("a_repository_cannot_run_commands_or_leave_its_folder", attacks),
    ("addresses_that_could_run_a_command_are_rejected", addresses),
];

pub fn write(folder: &Path, name: &str, text: &str) {
    let path = folder.join(name);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

pub fn changelog(name: &str, version: &str) -> String {
    format!(
        "{name} ({version}) unstable; urgency=medium\n\n  * A change.\n\n \
         -- Test <test@example.org>  Tue, 02 Jan 2024 03:04:05 +0000\n"
    )
}

/// A repository of a package, with one commit.
pub fn repository(tiny: &Tiny, name: &str, version: &str, format: &str) -> PathBuf {
    let folder = tiny.yard.folder.parent().unwrap().join(name);
    std::fs::create_dir_all(&folder).unwrap();
    git(&folder, &["init", "--quiet", "--initial-branch=main"]);
    write(&folder, "debian/changelog", &changelog(name, version));
    let control = format!(
        "Source: {name}\nMaintainer: Test <test@example.org>\nBuild-Depends: tool\nStandards-Version: 4.6.2\n\n\
         Package: {name}-bin\nArchitecture: any\nDescription: a test\n A test.\n"
    );
    write(&folder, "debian/control", &control);
    write(&folder, "debian/rules", "#!/usr/bin/make -f\n%:\n\ttrue\n");
    write(&folder, "debian/source/format", &format!("{format}\n"));
    write(&folder, "hello.c", "int main() { return 0; }\n");
    commit(&folder);
    folder
}

pub fn commit(folder: &Path) -> String {
    git(folder, &["add", "--all", "--force"]);
    git(folder, &["commit", "--quiet", "--allow-empty", "--message=change"]);
    git(folder, &["rev-parse", "HEAD"])
}

/// The state and version, or the reason, of each package.
fn planned(yard: &Yard) -> BTreeMap<String, String> {
    let plan = yard.run(&["plan", "--json"]).exits(0).json();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let rows = plan["packages"].as_array().unwrap().iter();
    rows.map(|row| match text(&row["state"]) == "left-out" {
        true => (text(&row["name"]), text(&row["reason"])),
        false => (text(&row["name"]), text(&row["version"])),
    })
    .collect()
}

/// The names and hashes of the source packages that a yard has made.
fn made(yard: &Yard) -> BTreeMap<String, String> {
    let mut files = BTreeMap::new();
    let mut open = vec![yard.path("index/git")];
    while let Some(folder) = open.pop() {
        for entry in std::fs::read_dir(folder).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            if path.is_dir() && !name.ends_with(".git") {
                open.push(path);
            } else if path.is_file() && name != "record.json" {
                files.insert(name, hex_of(&std::fs::read(path).unwrap()));
            }
        }
    }
    files
}

fn a_native_package() {
    let tiny = Tiny::new("git-native");
    let folder = repository(&tiny, "goodsource", "9.0", "3.0 (native)");
    tiny.configure("\"git:../goodsource\", \"all\"", "");
    let first = git(&folder, &["rev-parse", "HEAD"]);
    tiny.scan().exits(0).says(&[
        "making goodsource 9.0 from commit",
        &first,
        "git:../goodsource: a new index",
    ]);
    // It beats the archive's source of the same name.
    assert_eq!(planned(&tiny.yard)["goodsource"], "9.0");
    tiny.yard
        .run(&["plan"])
        .exits(0)
        .says(&[&format!("source: goodsource: git:../goodsource, commit {first}")]);
    tiny.yard.run(&["why", "goodsource"]).exits(0).says(&[&first]);
    let plan = tiny.yard.run(&["plan", "--json"]).exits(0).json();
    assert!(plan["sources"]["goodsource"].as_str().unwrap().contains(&first));
    tiny.scan().exits(0).says(&["git:../goodsource: nothing new"]);
    tiny.yard.run(&["impact", "--own"]).exits(0).says(&["goodsource"]);
    // Uncommitted changes do not count; a new commit does.
    write(&folder, "debian/changelog", &changelog("goodsource", "9.1"));
    tiny.scan().exits(0);
    assert_eq!(planned(&tiny.yard)["goodsource"], "9.0");
    let second = commit(&folder);
    tiny.scan().exits(0).says(&["making goodsource 9.1", &second]);
    assert_eq!(planned(&tiny.yard)["goodsource"], "9.1");
    let names: Vec<String> = made(&tiny.yard).into_keys().collect();
    assert_eq!(names, ["goodsource_9.1.dsc", "goodsource_9.1.tar.xz"]);
    // The last commit of an unreachable repository is kept; without the rule, its files are removed.
    std::fs::rename(&folder, folder.with_extension("away")).unwrap();
    tiny.scan().exits(0).says(&["warning: ", "using its last commit"]);
    assert_eq!(planned(&tiny.yard)["goodsource"], "9.1");
    tiny.configure("\"all\"", "");
    tiny.scan().exits(0);
    assert_eq!(planned(&tiny.yard)["goodsource"], "1.0-1");
    assert_eq!(tiny.yard.names("index/git"), ["record.json"]);
}

fn the_same_files() {
    let (one, two) = (Tiny::new("git-same-1"), Tiny::new("git-same-2"));
    for tiny in [&one, &two] {
        let folder = repository(tiny, "sample", "1.0-1", "3.0 (quilt)");
        git(&folder, &["tag", "upstream/1.0"]);
        git(&folder, &["rm", "-rqf", "debian"]);
        git(&folder, &["commit", "--quiet", "--amend", "--message=upstream"]);
        git(&folder, &["tag", "--force", "upstream/1.0"]);
        repository(tiny, "sample", "1.0-1", "3.0 (quilt)");
        repository(tiny, "plain", "1.0", "3.0 (native)");
        tiny.configure("\"git:../sample\", \"git:../plain\"", "");
        tiny.scan().exits(0);
    }
    let first = made(&one.yard);
    let names: Vec<&str> = first.keys().map(String::as_str).collect();
    let expected = [
        "plain_1.0.dsc",
        "plain_1.0.tar.xz",
        "sample_1.0-1.debian.tar.xz",
        "sample_1.0-1.dsc",
        "sample_1.0.orig.tar.xz",
    ];
    assert_eq!(names, expected);
    // In another yard, at another time, from another folder.
    assert_eq!(made(&two.yard), first);
    // Made again in the same yard.
    for name in one.yard.names("index/git") {
        if !name.ends_with(".git") && name != "record.json" {
            std::fs::remove_dir_all(one.yard.path(&format!("index/git/{name}"))).unwrap();
        }
    }
    one.scan().exits(0).says(&["making sample", "making plain"]);
    assert_eq!(made(&one.yard), first);
    assert_eq!(one.yard.names("roots"), Vec::<String>::new());
}

fn upstream_archives() {
    let tiny = Tiny::new("git-upstream");
    let folder = repository(&tiny, "sample", "1:2.0~rc1-3", "3.0 (quilt)");
    tiny.configure("\"git:../sample\", \"goodsource\"", "");
    tiny.scan().exits(0).says(&["no tag upstream/2.0_rc1", "no sample_2.0~rc1.orig.tar.* is next to it"]);
    // The package is left out, and the rest is built.
    let rows = planned(&tiny.yard);
    assert!(
        rows["sample"].contains("there is no upstream archive") && rows["goodsource"] == "1.0-1",
        "{rows:?}"
    );
    // Next to the repository.
    let pack = |target: &Path| {
        let status = Command::new("tar")
            .args([
                "--create",
                "--gzip",
                "--transform=s,^,sample-2/,",
                "--exclude=debian",
                "hello.c",
                "--file",
            ])
            .arg(target)
            .current_dir(&folder)
            .status();
        assert!(status.unwrap().success());
    };
    let beside = folder.with_file_name("sample_2.0~rc1.orig.tar.gz");
    pack(&beside);
    tiny.scan().exits(0).says(&["making sample 1:2.0~rc1-3"]);
    assert_eq!(planned(&tiny.yard)["sample"], "1:2.0~rc1-3");
    std::fs::remove_file(&beside).unwrap();
    // From the tag that debian/gbp.conf names, with a patch that applies to it.
    write(&folder, "debian/gbp.conf", "[DEFAULT]\nupstream-tag = v%(version)s\n");
    write(&folder, "debian/patches/series", "fix.patch\n");
    let patch =
        "--- a/hello.c\n+++ b/hello.c\n@@ -1 +1 @@\n-int main() { return 0; }\n+int main() { return 1; }\n";
    write(&folder, "debian/patches/fix.patch", patch);
    let packaging = commit(&folder);
    git(&folder, &["checkout", "--quiet", "--orphan", "upstream"]);
    git(&folder, &["rm", "-rqf", "debian"]);
    commit(&folder);
    git(&folder, &["tag", "v2.0_rc1"]);
    git(&folder, &["checkout", "--quiet", "main"]);
    tiny.scan().exits(0).says(&["making sample", &packaging]);
    assert_eq!(planned(&tiny.yard)["sample"], "1:2.0~rc1-3");
    assert!(made(&tiny.yard).contains_key("sample_2.0~rc1.orig.tar.xz"));
    // A tree that differs from the upstream archive without a patch is reported as dpkg-source does.
    write(&folder, "hello.c", "int main() { return 2; }\n");
    commit(&folder);
    tiny.scan().exits(0).says(&["failed to make the source package", "hello.c"]);
    assert!(planned(&tiny.yard)["sample"].contains("failed to make the source package"));
}

/// Packs the sources of a repository as its upstream does.
fn pack(folder: &Path, target: &Path) {
    let status = Command::new("tar")
        .args(["--create", "--gzip", "--transform=s,^,sample-2/,", "hello.c", "--file"])
        .arg(target)
        .current_dir(folder)
        .status();
    assert!(status.unwrap().success());
}

fn upstream_from_an_archive() {
    let tiny = Tiny::new("git-original");
    let folder = repository(&tiny, "sample", "1:2.0-7", "3.0 (quilt)");
    let name = "sample_2.0.orig.tar.gz";
    pack(&folder, &tiny.yard.folder.with_file_name("packed.tar.gz"));
    let bytes = std::fs::read(tiny.yard.folder.with_file_name("packed.tar.gz")).unwrap();
    let mut archive = tiny.archive.clone();
    archive.sources.push_str(&format!(
        "\nPackage: sample\nVersion: 1:2.0-1\nArchitecture: any\nDirectory: pool/s/sample\nChecksums-Sha256:\n \
         {} 0 sample_2.0-1.dsc\n {} {} {name}\n",
        "e".repeat(64),
        hex_of(&bytes),
        bytes.len()
    ));
    let mut files = archive.files();
    tiny.configure("\"git:../sample\"", "");
    tiny.server.serve(files.clone());
    tiny.scan().exits(0).says(&["status 404", name]);
    // Another file than the index lists is rejected.
    files.insert(format!("/pool/s/sample/{name}"), vec![0; bytes.len()]);
    tiny.server.serve(files.clone());
    tiny.scan().exits(0).says(&["git:../sample: failed to", name]);
    files.insert(format!("/pool/s/sample/{name}"), bytes.clone());
    tiny.server.serve(files);
    tiny.scan().exits(0).says(&["making sample 1:2.0-7"]);
    assert_eq!(planned(&tiny.yard)["sample"], "1:2.0-7");
    assert_eq!(made(&tiny.yard)[name], hex_of(&bytes));
}

fn references() {
    let tiny = Tiny::new("git-references");
    let folder = repository(&tiny, "sample", "1", "3.0 (native)");
    let first = git(&folder, &["rev-parse", "HEAD"]);
    git(&folder, &["tag", "--annotate", "--message=x", "debian/1%1"]);
    git(&folder, &["checkout", "--quiet", "-b", "debian/next"]);
    write(&folder, "debian/changelog", &changelog("sample", "2"));
    commit(&folder);
    git(&folder, &["checkout", "--quiet", "main"]);
    for (rule, version) in [
        ("git:../sample".to_owned(), "1"),
        ("git:../sample#HEAD".to_owned(), "1"),
        ("git:../sample#debian/next".to_owned(), "2"),
        ("git:../sample#debian/1%1".to_owned(), "1"),
        (format!("git:../sample#{first}"), "1"),
        (format!("git:../sample#{}", &first[..9]), "1"),
        (format!("git:{}#debian/next", folder.display()), "2"),
    ] {
        tiny.configure(&format!("\"{rule}\""), "");
        tiny.scan().exits(0);
        assert_eq!(planned(&tiny.yard)["sample"], version, "{rule}");
    }
    tiny.configure("\"git:../sample#absent\"", "");
    tiny.scan().exits(0).says(&["it has no branch, tag or commit absent"]);
    tiny.configure("\"git:../sample#0123456\"", "");
    tiny.scan().exits(0).says(&["it has no branch, tag or commit 0123456"]);
}

fn left_out() {
    let tiny = Tiny::new("git-left-out");
    let reasons = |change: &dyn Fn(&Path), words: &[&str]| {
        let folder = repository(&tiny, "sample", "1", "3.0 (native)");
        change(&folder);
        tiny.configure("\"git:../sample\", \"goodsource\"", "");
        tiny.scan().exits(0).says(words);
        let rows = planned(&tiny.yard);
        assert!(words.iter().all(|word| rows["sample"].contains(word)), "{rows:?}");
        assert_eq!(rows["goodsource"], "1.0-1");
        std::fs::remove_dir_all(folder).unwrap();
        tiny.yard.run(&["clean", "--index"]).exits(0);
    };
    let change = |name: &'static str, text: &'static str| {
        move |folder: &Path| {
            write(folder, name, text);
            commit(folder);
        }
    };
    reasons(&change("debian/changelog", "nonsense\n"), &["debian/changelog does not begin with"]);
    reasons(&change("debian/changelog", "../../up (1) x\n"), &["invalid name or version"]);
    reasons(&change("debian/source/format", "3.0 (git)\n"), &["`3.0 (git)`, but only 3.0 (native)"]);
    reasons(&change("debian/source/format", "1.0\n"), &["`1.0`"]);
    reasons(&change("debian/control", "Source: other\n"), &["failed to make the source package"]);
    let no_folder = |folder: &Path| {
        git(folder, &["rm", "-rqf", "debian"]);
        commit(folder);
    };
    reasons(&no_folder, &["it has no debian/changelog"]);
    reasons(&|folder: &Path| std::fs::remove_dir_all(folder.join(".git")).unwrap(), &["git failed to fetch"]);
    // Not scanned yet.
    tiny.configure("\"goodsource\"", "");
    tiny.scan().exits(0);
    tiny.configure("\"goodsource\", \"git:../sample\"", "");
    tiny.yard.run(&["plan"]).exits(0).says(&["has not been fetched yet", "1 left out"]);
}

fn attacks() {
    let tiny = Tiny::new("git-attacks");
    let proof = tiny.yard.folder.parent().unwrap().join("proof");
    let command = format!("touch {}; cat", proof.display());
    let folder = repository(&tiny, "sample", "1", "3.0 (native)");
    let tree = |name: &str, text: &str| write(&folder, name, text);
    tree(
        ".gitattributes",
        "* filter=evil diff=evil merge=evil\n*.txt export-ignore\n*.c export-subst ident text eol=crlf\n",
    );
    tree("kept.txt", "kept\n");
    tree("ident.c", "$Id$ $Format:%H$\n");
    tree(".gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = ext::sh -c touch% proof\n");
    // Names with which a shell or an option parser could be fooled, and links out of the tree.
    tree("$(touch proof)", "x");
    tree("--to-command=touch proof", "x");
    tree("debian/source/options", "compression = \"xz\"\n");
    tree("debian/source/local-options", "extend-diff-ignore = \"(?{ system('touch /tmp/proof') })\"\n");
    std::os::unix::fs::symlink("/", folder.join("out")).unwrap();
    std::os::unix::fs::symlink("../../..", folder.join("up")).unwrap();
    let head = commit(&folder);
    for (key, value) in [
        ("core.fsmonitor", command.as_str()),
        ("core.sshCommand", &command),
        ("core.hooksPath", "hooks"),
        ("core.pager", &command),
        ("core.attributesFile", "/dev/null"),
        ("filter.evil.smudge", &command),
        ("filter.evil.clean", &command),
        ("filter.evil.process", &command),
        ("filter.evil.required", "true"),
        ("diff.evil.textconv", &command),
        ("diff.external", &command),
        ("uploadpack.packObjectsHook", &command),
        ("tar.tar.command", &command),
        ("protocol.ext.allow", "always"),
        ("alias.upload-pack", &format!("!{command}")),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.url", folder.to_str().unwrap()),
        ("remote.origin.uploadpack", &command),
    ] {
        git(&folder, &["config", key, value]);
    }
    for hook in ["pre-receive", "post-checkout", "reference-transaction", "post-update", "upload-pack"] {
        for place in ["hooks", ".git/hooks"] {
            let path = folder.join(place).join(hook);
            write(&folder, &format!("{place}/{hook}"), &format!("#!/bin/sh\n{command}\n"));
            use std::os::unix::fs::PermissionsExt;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
    }
    // git alone would run these commands.
    let output =
        Command::new("git").arg("-C").arg(&folder).args(["archive", "--format=tar", "HEAD"]).output();
    assert!(output.is_ok() && proof.exists(), "the trial proves nothing");
    std::fs::remove_file(&proof).unwrap();
    // A name of a branch that is a command.
    std::fs::write(folder.join(".git/refs/heads/$(touch${IFS}proof)"), format!("{head}\n")).unwrap();
    tiny.configure("\"git:../sample\"", "");
    tiny.scan().exits(0).says(&["making sample 1"]);
    assert_eq!(planned(&tiny.yard)["sample"], "1");
    tiny.scan().exits(0);
    let is_away = |name: &str| !Path::new(name).exists();
    assert!(!proof.exists() && is_away("proof") && is_away("/tmp/proof"));
    assert!(!tiny.yard.names("").iter().any(|name| name == "proof"));
    // The tree is what was committed, byte for byte.
    let git_folder = tiny.yard.names("index/git").into_iter().find(|name| name.len() == 16).unwrap();
    let tar = tiny.yard.path(&format!("index/git/{git_folder}/{head}/sample_1.tar.xz"));
    let read = |member: &str| {
        let output =
            Command::new("tar").args(["--extract", "--to-stdout", "--file"]).arg(&tar).arg(member).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert_eq!((&*read("sample-1/ident.c"), &*read("sample-1/kept.txt")), ("$Id$ $Format:%H$\n", "kept\n"));
    // The copy has no hooks, and a configuration of our own.
    let copy = format!("index/git/{git_folder}.git");
    assert!(!tiny.yard.path(&copy).join("hooks").exists());
    assert!(!tiny.yard.read(&format!("{copy}/config")).contains("evil"));
    // A changelog that is a link to a file of this machine is not followed.
    std::fs::remove_file(folder.join("debian/changelog")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.join("debian/changelog")).unwrap();
    let clean = [
        "filter.evil.smudge",
        "filter.evil.clean",
        "filter.evil.process",
        "filter.evil.required",
        "core.fsmonitor",
    ];
    clean.iter().for_each(|key| drop(git(&folder, &["config", "--unset", key])));
    git(&folder, &["-c", "core.hooksPath=/dev/null", "add", "debian"]);
    git(&folder, &["-c", "core.hooksPath=/dev/null", "commit", "--quiet", "--message=link"]);
    let _ = std::fs::remove_file(&proof);
    let ended = tiny.scan().exits(0).says(&["debian/changelog does not begin with"]);
    assert!(!ended.stderr.contains("root:"), "{}", ended.stderr);
    assert!(!proof.exists());
}

fn addresses() {
    let tiny = Tiny::new("git-addresses");
    for (rule, words) in [
        ("git:ext::sh -c touch% proof", "it names no repository"),
        ("git:ext::sh", "remote helpers of git are not accepted"),
        ("git:file:///etc", "only https:// and ssh:// addresses and paths"),
        ("git:ssh://-oProxyCommand=touch/x", "no host"),
        ("git:--upload-pack=touch", "it names no repository"),
        ("git:repo#--output=x", "not the name of a branch"),
        ("git:repo#a..b", "not the name of a branch"),
        ("git:http://me:s3cr3t@example.org/x", "***"),
    ] {
        tiny.configure(&format!("\"{rule}\""), "");
        let ended = tiny.scan().exits(2).says(&["is not a git repository", words]);
        assert!(!ended.stderr.contains("s3cr3t"), "{}", ended.stderr);
    }
    // The password of an address is in no file that others can read, nor in a message.
    tiny.configure("\"git:https://me:s3cr3t@127.0.0.1:1/x\", \"goodsource\"", "");
    let ended = tiny.scan().exits(0).says(&["git:https://***@127.0.0.1:1/x", "git failed to fetch"]);
    let plan = tiny.yard.run(&["plan"]).exits(0).says(&["1 left out"]);
    let record = tiny.yard.read("index/git/record.json");
    for text in [ended.stderr, ended.stdout, plan.stdout, plan.stderr, record] {
        assert!(!text.contains("s3cr3t"), "{text}");
    }
}

/// A package in a folder of a repository.
fn package(folder: &Path, place: &str, name: &str, version: &str) {
    write(folder, &format!("{place}/debian/changelog"), &changelog(name, version));
    let control = format!(
        "Source: {name}\nMaintainer: Test <test@example.org>\nBuild-Depends: tool\nStandards-Version: 4.6.2\n\n\
         Package: {name}-bin\nArchitecture: any\nDescription: a test\n A test.\n"
    );
    write(folder, &format!("{place}/debian/control"), &control);
    write(folder, &format!("{place}/debian/rules"), "#!/usr/bin/make -f\n%:\n\ttrue\n");
    write(folder, &format!("{place}/debian/source/format"), "3.0 (native)\n");
}

fn folders_of_a_repository() {
    let tiny = Tiny::new("git-folders");
    let folder = tiny.yard.folder.parent().unwrap().join("all");
    std::fs::create_dir_all(&folder).unwrap();
    git(&folder, &["init", "--quiet", "--initial-branch=main"]);
    package(&folder, "packages/first", "first", "1.0");
    package(&folder, "packages/second", "second", "1.0");
    package(&folder, "other/third", "third", "1.0");
    write(&folder, "packages/README", "none");
    write(&folder, "packages/empty/file", "no package");
    let one = commit(&folder);
    tiny.configure("\"git:../all#main:packages/*\"", "");
    tiny.scan().exits(0).says(&["git:../all#main:packages/first: making first 1.0 from commit", &one]);
    let all = planned(&tiny.yard);
    assert_eq!((&*all["first"], &*all["second"], all.len()), ("1.0", "1.0", 2), "{all:?}");
    // A commit makes only the source of the folder that it changes again; others keep theirs.
    let before = made(&tiny.yard);
    package(&folder, "packages/first", "first", "1.1");
    let two = commit(&folder);
    tiny.scan().exits(0).says(&[
        "making first 1.1 from commit",
        &two,
        "git:../all#main:packages/second: nothing new",
    ]);
    let after = made(&tiny.yard);
    assert_eq!(after.get("second_1.0.dsc"), before.get("second_1.0.dsc"));
    assert!(after.contains_key("first_1.1.dsc") && !after.contains_key("first_1.0.dsc"), "{after:?}");
    tiny.yard.run(&["why", "second"]).exits(0).says(&["git:../all#main:packages/second, commit", &one]);
    // The same source from a repository of its own: the folder's path is not in it.
    let tar = after.keys().find(|name| name.starts_with("second_1.0.tar")).unwrap().clone();
    let listed = Command::new("find").arg(tiny.yard.path("index/git")).args(["-name", &tar]).output();
    let path = String::from_utf8(listed.unwrap().stdout).unwrap();
    let listed = Command::new("tar").args(["-tf", path.trim()]).output().unwrap().stdout;
    let listed = String::from_utf8(listed).unwrap();
    assert!(listed.contains("/debian/control") && !listed.contains("packages"), "{listed}");
    // A new folder is a new source; one that cannot be used does not affect the others.
    package(&folder, "packages/broken", "broken", "1.0");
    write(&folder, "packages/broken/debian/source/format", "3.0 (git)\n");
    package(&folder, "packages/fourth", "fourth", "4.0");
    commit(&folder);
    tiny.scan().exits(0);
    let planned_now = planned(&tiny.yard);
    assert_eq!((&*planned_now["fourth"], &*planned_now["second"]), ("4.0", "1.0"));
    assert!(planned_now["broken"].contains("but only 3.0 (native)"), "{planned_now:?}");
    // If the branch is gone, all of them are known still, so that their packages stay.
    let published = planned_now.len();
    git(&folder, &["branch", "--quiet", "--move", "main", "other"]);
    tiny.scan().exits(0);
    let gone = planned(&tiny.yard);
    assert_eq!(gone.len(), published);
    assert!(gone["second"].contains("it has no branch, tag or commit main"), "{gone:?}");
    git(&folder, &["branch", "--quiet", "--move", "other", "main"]);
    tiny.scan().exits(0);
    assert_eq!(planned(&tiny.yard)["second"], "1.0");
    // One folder, and a lock.
    tiny.configure("\"git:../all#:other/third\"", "");
    tiny.scan().exits(0);
    assert_eq!(planned(&tiny.yard).into_keys().collect::<Vec<_>>(), ["third"]);
    tiny.configure("\"git:../all#main:packages/*\"", "");
    git(&folder, &["rm", "-r", "--quiet", "packages/broken"]);
    commit(&folder);
    tiny.yard.run(&["lock"]).exits(0);
    package(&folder, "packages/first", "first", "1.2");
    package(&folder, "packages/fifth", "fifth", "5.0");
    commit(&folder);
    tiny.scan().exits(0);
    let locked = planned(&tiny.yard);
    assert_eq!(locked["first"], "1.1");
    assert!(!locked.contains_key("fifth"), "{locked:?}");
    tiny.yard.run(&["lock", "--update"]).exits(0);
    assert_eq!(planned(&tiny.yard)["fifth"], "5.0");
}
