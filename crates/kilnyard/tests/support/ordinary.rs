//! Unprivileged users that do not exist in the machine's `/etc/passwd`.

use super::{Ended, Yard, program, quiet};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Becomes the user, in a mount namespace whose /etc has the user. Arguments: the folder of files for /etc, the
/// user's id, the command.
const AS_USER: &str = "etc=$1 id=$2; shift 2
for file in passwd subuid subgid; do mount --bind \"$etc/$file\" \"/etc/$file\"; done
exec setpriv --reuid \"$id\" --regid \"$id\" --clear-groups \"$@\"";

pub struct User {
    id: u32,
    folder: PathBuf,
}

impl User {
    /// A user with this id and a range of subordinate ids after it; `folder` is for the user's files.
    pub fn with_range(folder: &Path, id: u32) -> User {
        User::new(folder, id, &format!("kilnyard-trial:{}:65536\n", id + 1))
    }

    /// A user with this id and no subordinate ids.
    pub fn alone(folder: &Path, id: u32) -> User {
        User::new(folder, id, "")
    }

    fn new(folder: &Path, id: u32, range: &str) -> User {
        fs::create_dir(folder).unwrap();
        let users = fs::read_to_string("/etc/passwd").unwrap();
        let line = format!("kilnyard-trial:x:{id}:{id}::/nonexistent:/bin/sh\n");
        fs::write(folder.join("passwd"), users + &line).unwrap();
        for file in ["subuid", "subgid"] {
            fs::write(folder.join(file), range).unwrap();
            // The file must exist to be mounted over.
            fs::OpenOptions::new().append(true).create(true).open(format!("/etc/{file}")).unwrap();
        }
        // The user may have no access to the folder of the program under test.
        fs::copy(program(), folder.join("kilnyard")).unwrap();
        User { id, folder: folder.to_owned() }
    }

    /// Gives a yard to the user, except folders whose path begins with `but_below`.
    pub fn own(&self, yard: &Yard, but_below: &str) {
        let mut open: Vec<String> = vec![String::new()];
        while let Some(name) = open.pop() {
            let path = yard.path(&name);
            if name.starts_with(but_below) && path.is_dir() {
                continue;
            }
            chown(&path, Some(self.id), Some(self.id)).unwrap();
            if path.is_dir() {
                let below = yard.names(&name).into_iter();
                open.extend(below.map(|below| format!("{name}/{below}").trim_start_matches('/').to_owned()));
            }
        }
    }

    pub fn run(&self, yard: &Yard, arguments: &[&str]) -> Ended {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-euc", AS_USER, "sh"]).arg(&self.folder);
        command.arg(self.id.to_string()).arg(self.folder.join("kilnyard"));
        command.arg("--yard").arg(&yard.folder).args(arguments);
        quiet(&mut command);
        command.current_dir("/").output().unwrap().into()
    }
}
