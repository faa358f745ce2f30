//! A session whose files are bound into a build root: where one id is mapped, over several commands.

use crate::system::{Folder, program};
use kilnyard_fakeroot::Session;
use kilnyard_fakeroot::shared::ownership::Unknown;
use std::io::Write;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Where the root's programs see the session.
const SEEN_AT: &str = "/mnt";

/// The commands of a build, one after the other, each in namespaces of its own; the last one shows what came of it.
const COMMANDS: [&str; 3] = [
    "touch file; chown man:adm file; mkdir -m 2775 folder; chgrp games folder; mknod null c 1 3",
    "if command -v busybox >/dev/null; then busybox chown 5:6 folder; else chown 5:6 folder; fi",
    "stat -c '%n %U:%G %a %t:%T' file folder null",
];
const SHOWN: &str = "file man:adm 644 0:0\nfolder games:disk 2775 0:0\nnull root:root 644 1:3\n";

pub fn a_session_in_a_root_lasts_over_commands() {
    let folder = Folder::new();
    let can = folder.command(&["unshare", "--map-root-user", "--mount", "true"].map(Into::into));
    if !{ can }.status().is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: no user namespace with one id can be made here");
        return;
    }
    let output = folder.command(&[program().into(), "as-worker".into()]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && errors.is_empty(), "{}\n{errors}", output.status);
    assert_eq!(shown, SHOWN, "{errors}");
    assert_eq!(std::fs::read_dir(folder.path().join("session")).unwrap().count(), 0, "it leaves nothing");
}

/// What a worker does: it holds the session, and starts commands in roots.
pub fn be_worker() -> ExitCode {
    std::fs::create_dir("session").unwrap();
    let mut session =
        Session::make_for_root(Path::new("session"), Path::new(SEEN_AT), Unknown::Root).unwrap();
    session.answer(|warning| eprintln!("{warning}")).unwrap();
    for script in COMMANDS {
        let bind = format!("mount --bind session {SEEN_AT}; exec env \"$@\" sh -ec \"$SCRIPT\"");
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--mount", "sh", "-ec", &bind, "sh"]).env("SCRIPT", script);
        for (name, value) in session.environment(None) {
            command.arg(format!("{name}={}", value.to_str().unwrap()));
        }
        if !command.status().unwrap().success() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
