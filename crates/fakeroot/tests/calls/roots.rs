//! A session whose files are bound into a build root, with one id mapped, across several commands.

use crate::sessions::words;
use crate::system::{Folder, ours, program};
use kilnyard_fakeroot::Session;
use kilnyard_fakeroot::shared::ownership::Unknown;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

/// Where programs in the root see the session.
const SEEN_AT: &str = "/mnt";

/// The commands of a build, in order, each in its own namespaces; the last one prints the results.
const COMMANDS: [&str; 4] = [
    // The session is mapped by the dynamic linker only.
    "grep -q ' r-xp .* /mnt/kilnyard-libfakeroot-' /proc/self/maps; if grep ' rw-s .*/mnt/' /proc/self/maps; then exit 1; fi",
    "touch file; chown man:adm file; mkdir -m 2775 folder; chgrp games folder; mknod null c 1 3",
    "if command -v busybox >/dev/null; then busybox chown 5:6 folder; else chown 5:6 folder; fi",
    "stat -c '%n %U:%G %a %t:%T' file folder null",
];
const SHOWN: &str = "file man:adm 644 0:0\nfolder games:disk 2775 0:0\nnull root:root 644 1:3\n";

pub fn a_session_in_a_root_lasts_across_commands() {
    let folder = Folder::new();
    let can = folder.command(&["unshare", "--map-root-user", "--mount", "true"].map(Into::into));
    if !{ can }.status().is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: no user namespace with one id can be made here");
        return;
    }
    let output = folder.command(&[program().into(), "as-worker".into(), "commands".into()]).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && errors.is_empty(), "{}\n{errors}", output.status);
    assert_eq!(shown, SHOWN, "{errors}");
    assert_eq!(
        std::fs::read_dir(folder.path().join("session")).unwrap().count(),
        0,
        "the session leaves files behind"
    );
}

/// Build roots are overlays: the first write to a file of a lower layer copies it, and the copy has a new birth
/// time.
pub fn owners_outlive_the_copy_to_the_upper_layer() {
    const MOUNT: &str = "mkdir lower upper work merged lower/folder; touch lower/file lower/other lower/set lower/capable; \
        mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work,userxattr overlay merged; cd merged; exec \"$@\"";
    const SCRIPT: &str = "chown 5:6 file folder; chmod 2750 other; chown 7:8 other; chmod 4755 set; \
        setfattr -n security.x -v y capable; \
        for file in file other set capable; do echo more >>$file; done; touch folder/new; \
        stat -c '%n %u:%g %a' file folder other set; getfattr --only-values -n security.x capable";
    let folder = Folder::new();
    let inside = ["unshare", "--map-root-user", "--mount", "bash", "-ec", MOUNT, "bash"].map(OsString::from);
    let can = folder.command(&words(&inside, &["true"])).stderr(Stdio::null()).status();
    if !can.is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: no overlay can be mounted in a user namespace here");
        return;
    }
    let busybox = Path::new("/bin/busybox").exists();
    for is_answered in [false, true].into_iter().take(1 + usize::from(busybox)) {
        let removed = Command::new("rm")
            .arg("-rf")
            .args(["lower", "upper", "merged", "work"])
            .current_dir(folder.path())
            .status();
        assert!(removed.unwrap().success());
        let script = if is_answered {
            SCRIPT.replace("chown ", "busybox chown ").replace("chmod ", "busybox chmod ")
        } else {
            SCRIPT.to_owned()
        };
        let mut all = words(&inside, &[]);
        all.extend(words(&ours(), &["bash", "-ec", &script]));
        let output = folder.command(&all).output().unwrap();
        let shown = String::from_utf8_lossy(&output.stdout);
        let expected = "file 5:6 644\nfolder 5:6 755\nother 7:8 750\nset 0:0 4755\ny";
        assert_eq!((&*shown, &*String::from_utf8_lossy(&output.stderr)), (expected, ""), "{is_answered}");
    }
}

/// The launcher's calls for a program stay in the program's root, wherever its links lead.
pub fn links_of_a_root_stay_in_it() {
    let folder = Folder::new();
    let can = folder.command(&["unshare", "--map-root-user", "--mount", "busybox", "true"].map(Into::into));
    if !{ can }.status().is_ok_and(|status| status.success()) {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: there is no busybox, or no user namespace can be made here"
        );
        return;
    }
    let output = folder.command(&[program().into(), "as-worker".into(), "links".into()]).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        (&*shown, output.status.code()),
        ("5 6\n5 6\nrefused\nrefused\nrefused\n0\n", Some(0)),
        "{errors}"
    );
    let outside = folder.path().join("outside");
    assert!(outside.join("inner").is_dir() && !outside.join("made").exists());
    assert_eq!(std::fs::metadata(outside).unwrap().permissions().mode() & 0o777, 0o750);
}

/// Run by busybox, which does not load the library: an absolute link within the root, a link to a folder outside,
/// and `..` above the root.
const LINKS: &str = "/busybox mkdir /link/made; cd /target; /busybox chown 5:6 ../link/made; \
    /busybox stat -c '%u %g' /target/made made; \
    for work in 'chmod 700 /out' 'rmdir /out/inner' 'mkdir ../../../../../../out/made'; do \
        /busybox $work 2>/dev/null || echo refused; \
    done; /busybox stat -c %u ../../../../..";

fn be_worker_with_links() -> ExitCode {
    let folder = std::env::current_dir().unwrap();
    for name in ["root/mnt", "root/target", "outside/inner", "session"] {
        std::fs::create_dir_all(name).unwrap();
    }
    std::fs::set_permissions("outside", std::fs::Permissions::from_mode(0o750)).unwrap();
    symlink("/target", "root/link").unwrap();
    symlink(folder.join("outside"), "root/out").unwrap();
    assert!(Command::new("cp").args(["/bin/busybox", "root/busybox"]).status().unwrap().success());
    let mut session =
        Session::make_for_root(Path::new("session"), Path::new(SEEN_AT), Unknown::Root).unwrap();
    session.answer(|warning| eprintln!("{warning}")).unwrap();
    let (gate, socket) = session.gate_and_socket().unwrap();
    let enter = "mount --bind session root/mnt; exec chroot root \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount", "sh", "-ec", enter, "sh"]).arg(gate).arg(socket);
    let done = command.args(["/busybox", "sh", "-c", LINKS]).status().unwrap();
    if done.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Acts as a worker: holds the session, and starts commands in roots.
pub fn be_worker(what: &str) -> ExitCode {
    if what == "links" {
        return be_worker_with_links();
    }
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
