//! An ordinary user with a range of subordinate ids, for tests started as root.

use super::open_folder;
use libtest_mimic::Failed;
use std::fs;
use std::path::Path;
use std::process::Command;

/// A user id unknown to this machine. The subordinate ids follow it.
pub const ID: u32 = 0x7600_0000;
/// Marks the instance of this program that runs as that user.
const VARIABLE: &str = "KILNYARD_AS_USER";
/// Becomes that user, in a mount namespace where the machine knows the user, and in a control group if one is given.
/// Arguments: the folder with the files for /etc, the user id, the group, and the program.
const SCRIPT: &str = "etc=$1 id=$2 group=$3; shift 3
if [ -n \"$group\" ]; then echo $$ > \"$group/cgroup.procs\"; fi
for file in passwd subuid subgid; do mount --bind \"$etc/$file\" \"/etc/$file\"; done
exec setpriv --reuid \"$id\" --regid \"$id\" --clear-groups \"$@\"";

/// Why this program cannot become that user, if it cannot.
pub fn need_root() -> Option<String> {
    let is_root = rustix::process::geteuid().is_root() && std::env::var_os(VARIABLE).is_none();
    (!is_root).then(|| "needs root".to_owned())
}

/// Runs this program as that user with these arguments, in a given group or in that of this process. Returns the
/// output.
pub fn run_as(group: Option<&Path>, words: &[&str]) -> Result<String, Failed> {
    let folder = open_folder();
    let line = format!("kilnyard-trial:x:{ID}:{ID}::/nonexistent:/bin/sh\n");
    fs::write(folder.path().join("passwd"), fs::read_to_string("/etc/passwd")? + &line)?;
    for file in ["subuid", "subgid"] {
        fs::write(folder.path().join(file), format!("kilnyard-trial:{}:65536\n", ID + 1))?;
        // It can be mounted over only if it exists.
        fs::OpenOptions::new().append(true).create(true).open(format!("/etc/{file}"))?;
    }
    // The user may not have access to the folder of this program.
    let program = folder.path().join("program");
    fs::copy("/proc/self/exe", &program)?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-euc", SCRIPT, "sh"]);
    command.arg(folder.path()).arg(ID.to_string()).arg(group.unwrap_or(Path::new(""))).arg(&program);
    command.args(words).env(VARIABLE, "1").env("USER", "kilnyard-trial").env_remove("TMPDIR");
    let output = command.current_dir("/").output()?;
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    Ok(said.into_owned())
}
