//! A tree built by an ordinary user.

use crate::fixtures::{ALL, Packages, Shared, Trial, serve};
use crate::support::tree::{MiniTree, source};
use crate::support::{self, Ended, Yard};
use std::fs;
use std::os::unix::fs::{MetadataExt, chown};
use std::process::Command;

pub const CASES: &[Trial] = &[("an_ordinary_user_builds_a_tree", an_ordinary_user)];

/// Becomes a user whom the machine does not know, in a namespace where it does: its folder of files for /etc, its
/// number, the command.
const AS_USER: &str = "etc=$1 id=$2; shift 2
for file in passwd subuid subgid; do mount --bind \"$etc/$file\" \"/etc/$file\"; done
exec setpriv --reuid \"$id\" --regid \"$id\" --clear-groups \"$@\"";

struct User {
    id: u32,
    etc: std::path::PathBuf,
    program: std::path::PathBuf,
}

impl User {
    /// A user of this number, with the ids after it.
    fn new(shared: &Shared, id: u32) -> User {
        let (etc, program) = (shared.path("etc"), shared.path("kilnyard"));
        fs::create_dir(&etc).unwrap();
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let line = format!("kilnyard-trial:x:{id}:{id}::/nonexistent:/bin/sh\n");
        fs::write(etc.join("passwd"), users + &line).unwrap();
        for file in ["subuid", "subgid"] {
            fs::write(etc.join(file), format!("kilnyard-trial:{}:65536\n", id + 1)).unwrap();
        }
        // Where the one under test lies not everybody may be.
        fs::copy(support::program(), &program).unwrap();
        User { id, etc, program }
    }

    fn run(&self, yard: &Yard, arguments: &[&str]) -> Ended {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-euc", AS_USER, "sh"]).arg(&self.etc);
        command.arg(self.id.to_string()).arg(&self.program).arg("--yard").arg(&yard.folder).args(arguments);
        support::quiet(&mut command);
        command.current_dir("/").output().unwrap().into()
    }
}

fn an_ordinary_user(shared: &Shared) {
    let tree = MiniTree::new(&[
        ("a/one", "DISTFILES= one-1.0.tar.gz\ndo-build:\n\t@cat ${WRKSRC}/content"),
        ("a/two", "DEPENDS= one-[0-9]*:../../a/one\ndo-build:\n\t@id -u"),
        (
            "a/as-root",
            "USE_DESTDIR= destdir\ndo-install:\n\t@test $$(id -u) = 0\n\t@install -o 1 -m 600 /dev/null ${DESTDIR}${PREFIX}/of-another",
        ),
    ]);
    tree.distfile("a/one", "one-1.0.tar.gz", &source("one-1.0", "a source\n"));
    let _server = serve(&tree);
    let yard = shared.yard("ordinary", &tree, &[]);
    // Root's builds have ids of their own. Who has just these can use the layers that are there.
    let base = yard.names("layers").into_iter().find(|name| name.starts_with("base-")).unwrap();
    let user = User::new(shared, fs::metadata(yard.path("layers").join(base)).unwrap().uid());
    let is_layer = |name: &str| name.starts_with("layers/") && yard.path(name).is_dir();
    let mut open: Vec<String> = vec![String::new()];
    while let Some(name) = open.pop() {
        let path = yard.path(&name);
        if is_layer(&name) {
            continue;
        }
        chown(&path, Some(user.id), Some(user.id)).unwrap();
        if path.is_dir() {
            open.extend(
                yard.names(&name)
                    .into_iter()
                    .map(|below| format!("{name}/{below}").trim_start_matches('/').to_owned()),
            );
        }
    }
    user.run(&yard, &["build"]).exits(0).says(&["3 directories: 3 asked, 0 as before, 0 failed", "3 built"]);
    user.run(&yard, &["log", "a/one", "build"]).exits(0).says(&["a source"]);
    user.run(&yard, &["log", "a/two", "build"]).exits(0).says(&["\n1000\n"]);
    let mut tar = Command::new("tar");
    tar.args(["--numeric-owner", "-tvzf"]).arg(yard.path(ALL).join("as-root-1.0.tgz"));
    Ended::from(tar.output().unwrap()).exits(0).says(&["-rw------- 1/"]);
    assert_eq!(yard.published(), ["as-root-1.0", "one-1.0", "two-1.0"]);
    user.run(&yard, &["build"]).exits(0).says(&["nothing to do: 3 up-to-date"]);
    yard.is_clean();
    user.run(&yard, &["clean"]).exits(0);
}
