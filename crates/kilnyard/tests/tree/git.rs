//! Trees that are work trees of repositories of git.

use crate::fixtures::{Packages, Shared, Trial, settle};
use crate::support::Yard;
use crate::support::git::git;
use crate::support::tree::MiniTree;
use std::fs;
use std::path::Path;

pub const CASES: &[Trial] = &[
    ("a_tree_from_git_is_at_its_commit", at_its_commit),
    ("commits_between_runs_are_named", named_commits),
    ("a_repository_of_a_tree_that_cannot_be_used_is_named", unusable),
];

/// A tree of three packages, in a repository with one commit.
fn tree() -> MiniTree {
    let tree = MiniTree::new(&[("a/one", ""), ("a/two", ""), ("b/needs", "DEPENDS= one>=0:../../a/one")]);
    git(&tree.path(), &["init", "--quiet", "--initial-branch=main"]);
    commit(&tree, "first");
    tree
}

fn commit(tree: &MiniTree, message: &str) -> String {
    git(&tree.path(), &["add", "--all"]);
    git(&tree.path(), &["commit", "--quiet", "--author=Ada <ada@example.org>", "--message", message]);
    settle();
    git(&tree.path(), &["rev-parse", "HEAD"])
}

/// A yard whose tree is a branch of that repository.
fn yard(shared: &Shared, name: &str, tree: &MiniTree) -> Yard {
    let yard = shared.yard(name, tree, &["a/one", "a/two", "b/needs"]);
    from_git(&yard, tree, "#main");
    yard
}

fn from_git(yard: &Yard, tree: &MiniTree, end: &str) {
    let path = tree.path().display().to_string();
    yard.change(&format!("tree = \"{path}\""), &format!("tree = \"git:{path}{end}\""));
}

fn at_its_commit(shared: &Shared) {
    let tree = tree();
    let first = git(&tree.path(), &["rev-parse", "HEAD"]);
    let yard = yard(shared, "git-at", &tree);
    yard.run(&["doctor"]).says(&["which the first scan fetches"]);
    yard.build().exits(0).says(&[&format!("the tree is at commit {first}"), "3 built"]);
    // What is not committed does not count, and what others write into the work tree is undone.
    tree.package("a/two", "COMMENT= not committed");
    fs::write(yard.path("tree/a/two/Makefile"), "broken").unwrap();
    fs::create_dir(yard.path("tree/a/three")).unwrap();
    fs::write(yard.path("tree/a/three/Makefile"), "NAME= three").unwrap();
    // A killed git leaves its lock.
    fs::write(yard.path("state/tree.index.lock"), "").unwrap();
    yard.build().exits(0).says(&["nothing to do: 3 up-to-date"]);
    assert!(!yard.path("tree/a/three").exists());
    // Only what a commit changes is written again.
    let times = |path: &str| fs::metadata(yard.path(path)).unwrap().modified().unwrap();
    let (one, two) = (times("tree/a/one/Makefile"), times("tree/a/two/Makefile"));
    let second = commit(&tree, "two: a comment");
    yard.run(&["impact", "--commit", "HEAD"]).exits(0);
    yard.build().exits(0).says(&[&format!("the tree is at commit {second}"), "1 built, 2 up-to-date"]);
    assert_eq!(times("tree/a/one/Makefile"), one);
    assert!(times("tree/a/two/Makefile") > two);
    let impact = yard.run(&["impact", "--commit", "HEAD"]).exits(0);
    assert!(impact.stdout.contains("a/two") && !impact.stdout.contains("a/one"), "{impact:?}");
    yard.run(&["impact", "--commit", &format!("{first}..")]).exits(0).says(&["a/two"]);
    // A patch of it is tried, and changes nothing in it.
    let recipe = fs::read_to_string(yard.path("tree/a/one/Makefile")).unwrap();
    let patch = format!(
        "--- a/a/one/Makefile\n+++ b/a/one/Makefile\n@@ -1 +1,2 @@\n {}\n+COMMENT= tried\n",
        recipe.lines().next().unwrap()
    );
    let path = shared.path("git.patch");
    fs::write(&path, patch).unwrap();
    yard.run(&["try", path.to_str().unwrap()]).exits(0).says(&["making the try 1"]);
    assert_eq!(fs::read_to_string(yard.path("tree/a/one/Makefile")).unwrap(), recipe);
    yard.run(&["try", "--remove", "1"]).exits(0);
    // A folder of a repository, and a copy that two yards share.
    let folder = shared.path("git-larger");
    fs::create_dir(&folder).unwrap();
    git(&folder, &["init", "--quiet", "--initial-branch=main"]);
    crate::support::copy("-a", &tree.path(), &folder);
    fs::remove_dir_all(folder.join("tree/.git")).unwrap();
    git(&folder, &["add", "--all"]);
    git(&folder, &["commit", "--quiet", "--message=all"]);
    for name in ["git-folder-1", "git-folder-2"] {
        let within = shared.yard(name, &tree, &["a/one"]);
        within.change(
            &format!("tree = \"{}\"", tree.path().display()),
            &format!("tree = \"git:{}#:tree\"", folder.display()),
        );
        within.change("# copies = \"FOLDER\"", "copies = \"../git-copies\"");
        within.run(&["scan"]).exits(0).says(&["the tree is at commit"]);
        assert!(within.path("tree/mk").is_dir() && !within.path("index/git").exists());
    }
    let copies: Vec<_> = fs::read_dir(shared.path("git-copies")).unwrap().collect();
    assert_eq!(copies.len(), 1);
    yard.is_clean();
}

fn named_commits(shared: &Shared) {
    let tree = tree();
    let yard = yard(shared, "git-named", &tree);
    yard.build().exits(0);
    tree.package("a/one", "COMMENT= better");
    let message = "one: say what it is\n\nThe <b>old</b> text said nothing.\n\nChange-Id: I123\n";
    let one = commit(&tree, message);
    tree.package("a/two", "COMMENT= better");
    let two = commit(&tree, "two: \u{1b}[31mred");
    yard.build().exits(0).says(&["2 built"]);
    let line = |id: &str, text: &str| format!("{} {text} (Ada, ", &id[..12]);
    let why = yard.run(&["why", "a/one"]).exits(0);
    assert!(!why.stdout.contains("two: red"), "{why:?}");
    why.says(&["commits since the build before:", &line(&one, "one: say what it is")]);
    let json = yard.why("a/one");
    assert_eq!(json["changes"][0]["lines"][2], "The <b>old</b> text said nothing.");
    assert_eq!(json["changes"][0]["lines"].as_array().unwrap().len(), 3);
    assert_eq!(json["changes"].as_array().unwrap().len(), 1);
    yard.run(&["diff"]).exits(0).says(&[
        "2 commits:",
        &line(&two, "two: red"),
        &line(&one, "one: say what it is"),
    ]);
    let diff = yard.run(&["diff", "--json"]).exits(0).json();
    assert_eq!(diff["later_commits"][0]["commit"], two.as_str());
    assert_eq!(diff["changes"][1]["author"], "Ada");
    let report: serde_json::Value = serde_json::from_str(&yard.read("report/latest/report.json")).unwrap();
    assert_eq!(report["compared_run"], 1);
    assert_eq!(report["changes"][0]["commit"], two.as_str());
    let page = yard.read("report/latest/index.html");
    assert!(page.contains("one: say what it is") && page.contains("&lt;b&gt;old&lt;/b&gt;"), "{page}");
    assert!(!page.contains("Change-Id"));
    // What is new starts a run, and nothing else does.
    yard.run(&["watch", "--once"]).exits(0).says(&["nothing new since run 2"]);
    tree.package("a/two", "COMMENT= best");
    commit(&tree, "two: best");
    yard.run(&["watch", "--once"]).exits(0).says(&["1 built"]);
    yard.run(&["watch", "--every", "1s"]).exits(2).says(&["from 10s to 30d"]);
    // A tree that is a clone of the user's own has the same.
    let own = shared.yard("git-own", &tree, &["a/one"]);
    own.build().exits(0);
    tree.package("a/one", "COMMENT= best");
    commit(&tree, "one: best");
    own.build().exits(0);
    own.run(&["why", "a/one"]).exits(0).says(&["one: best (Ada, "]);
    own.is_clean();
}

fn unusable(shared: &Shared) {
    let tree = tree();
    let yard = yard(shared, "git-unusable", &tree);
    yard.change("#main", "#none");
    yard.run(&["scan"]).exits(3).says(&["it has no branch, tag or commit none"]);
    yard.change("#none", "#main:nowhere");
    yard.run(&["scan"]).exits(3).says(&["has no folder nowhere"]);
    yard.change("#main:nowhere", "#main:a");
    yard.run(&["scan"]).exits(2).says(&["is not a pkgsrc tree: it has no mk"]);
    yard.change("#main:a", "#main:a/*");
    yard.run(&["scan"]).exits(2).says(&["a tree is one folder"]);
    yard.change("#main:a/*", "#main");
    yard.change("tree = \"git:", "tree = \"git:ext::sh -c touch% proof ");
    yard.run(&["scan"]).exits(2).says(&["tree is not a repository of git"]);
    yard.change("tree = \"git:ext::sh -c touch% proof ", "tree = \"git:");
    yard.build().exits(0);
    // A link in the tree leads nowhere outside of it.
    std::os::unix::fs::symlink("/etc", tree.path().join("a/outside")).unwrap();
    commit(&tree, "a link");
    yard.run(&["scan"]).exits(0);
    git(&tree.path(), &["rm", "--quiet", "a/outside"]);
    fs::create_dir(tree.path().join("a/outside")).unwrap();
    fs::write(tree.path().join("a/outside/kilnyard-proof"), "").unwrap();
    commit(&tree, "a folder in place of the link");
    yard.run(&["scan"]).exits(0);
    assert!(
        !Path::new("/etc/kilnyard-proof").exists() && yard.path("tree/a/outside/kilnyard-proof").is_file()
    );
    // While the repository is away, the last commit counts.
    let away = tree.path().with_extension("away");
    fs::rename(tree.path(), &away).unwrap();
    yard.build().exits(0).says(&["git failed to fetch", "using its last commit"]);
    fs::rename(&away, tree.path()).unwrap();
    yard.is_clean();
}
