//! Users without any privilege whom the machine does not know.

use super::{Ended, Yard, program, quiet};
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Becomes the user, in a namespace where the machine does know it: its folder of files for /etc, its number, the command.
const AS_USER: &str = "etc=$1 id=$2; shift 2
for file in passwd subuid subgid; do mount --bind \"$etc/$file\" \"/etc/$file\"; done
exec setpriv --reuid \"$id\" --regid \"$id\" --clear-groups \"$@\"";

pub struct User {
    id: u32,
    folder: PathBuf,
}

impl User {
    /// A user of this number, with the ids after it; the folder is for what the user needs.
    pub fn with_range(folder: &Path, id: u32) -> User {
        User::new(folder, id, &format!("kilnyard-trial:{}:65536\n", id + 1))
    }

    /// A user of this number, and no other id.
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
            // To be mounted over, it has to be there.
            fs::OpenOptions::new().append(true).create(true).open(format!("/etc/{file}")).unwrap();
        }
        // Where the one under test lies not everybody may be.
        fs::copy(program(), folder.join("kilnyard")).unwrap();
        User { id, folder: folder.to_owned() }
    }

    /// Gives a yard to the user, but for folders below one.
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
