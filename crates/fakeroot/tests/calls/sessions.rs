//! Whole sessions: options, states, signals, leftovers.

use crate::answered::{self, exit_zero};
use crate::mapped;
use crate::started;
use crate::system::{Folder, installed, ours};
use std::ffi::OsString;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A name and a check.
pub type Check = (&'static str, fn());

pub const ALL: &[Check] = &[
    ("exit_statuses_are_the_commands", exit_statuses_are_the_commands),
    ("a_session_leaves_nothing", a_session_leaves_nothing),
    ("a_killed_launchers_session_is_swept", a_killed_launchers_session_is_swept),
    ("other_files_with_a_session_name_do_not_block", other_files_with_a_session_name_do_not_block),
    ("sessions_are_not_nested", sessions_are_not_nested),
    ("a_reading_program_maps_nothing", mapped::a_reading_program_maps_nothing),
    ("a_separate_library_works", mapped::a_separate_library_works),
    ("files_are_changed_after_chroot", mapped::files_are_changed_after_chroot),
    ("changes_after_the_file_is_gone_fail", mapped::changes_after_the_file_is_gone_fail),
    ("states_keep_everything", states_keep_everything),
    ("a_missing_state_is_a_warning", a_missing_state_is_a_warning),
    ("states_go_into_pipes_and_behind_links", states_go_into_pipes_and_behind_links),
    ("a_state_outlives_a_full_disk", mapped::a_state_outlives_a_full_disk),
    ("only_its_user_can_read_a_session", mapped::only_its_user_can_read_a_session),
    ("a_file_size_limit_breaks_no_session", mapped::a_file_size_limit_breaks_no_session),
    ("a_limit_that_is_too_low_is_reported", mapped::a_limit_that_is_too_low_is_reported),
    ("a_low_limit_of_open_files_is_reported", a_low_limit_of_open_files_is_reported),
    ("commands_have_only_the_callers_descriptors", commands_have_only_the_callers_descriptors),
    ("a_state_may_be_a_mount", mapped::a_state_may_be_a_mount),
    ("states_are_read_by_the_installed_one", states_are_read_by_the_installed_one),
    ("states_of_the_installed_one_are_read", states_of_the_installed_one_are_read),
    ("unknown_files_may_be_real", unknown_files_may_be_real),
    ("termination_signals_reach_the_command", termination_signals_reach_the_command),
    ("other_libraries_stay_preloaded", other_libraries_stay_preloaded),
    ("descriptors_are_left_alone_whatever_their_limit", descriptors_are_left_alone_whatever_their_limit),
    ("programs_of_32_bits_are_rejected", programs_of_32_bits_are_rejected),
    ("static_programs_are_answered", answered::static_programs_are_answered),
    ("programs_of_busybox_are_answered", answered::programs_of_busybox_are_answered),
    ("programs_of_32_bits_are_rejected_behind_a_filter", answered::programs_of_32_bits_are_rejected),
    ("static_programs_are_reported_once_when_off", answered::static_programs_are_reported_once_when_off),
    ("static_programs_outlive_a_killed_launcher", answered::static_programs_outlive_a_killed_launcher),
    ("static_programs_are_started_by_every_call", answered::static_programs_are_started_by_every_call),
    (
        "static_programs_are_started_by_lists_and_descriptors",
        started::static_programs_are_started_by_lists_and_descriptors,
    ),
    ("static_shells_are_started_by_libc", started::static_shells_are_started_by_libc),
    ("programs_with_their_own_calls_are_answered", started::programs_with_their_own_calls_are_answered),
    ("programs_of_go_with_libc_are_answered", started::programs_of_go_with_libc_are_answered),
    ("links_of_a_root_stay_in_it", crate::roots::links_of_a_root_stay_in_it),
    ("a_session_in_a_root_lasts_across_commands", crate::roots::a_session_in_a_root_lasts_across_commands),
    ("owners_outlive_the_copy_to_the_upper_layer", crate::roots::owners_outlive_the_copy_to_the_upper_layer),
    ("a_package_equals_one_built_by_root", crate::packages::a_package_equals_one_built_by_root),
];

/// A launcher without enough descriptors cannot answer a static program, and reports the limit.
fn a_low_limit_of_open_files_is_reported() {
    let folder = Folder::new();
    let shell = "ulimit -n $0; exec \"$@\"";
    for (limit, has_enough) in [("10", false), ("63", false), ("64", true)] {
        let begin = ["sh", "-c", shell, limit].map(OsString::from);
        let script = "touch file; chown 5:6 file; busybox stat -c %u file";
        let command = words(&[&begin[..], &ours()].concat(), &["--", "sh", "-c", script]);
        let output = folder.command(&command).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{limit}: {errors}");
        if has_enough {
            assert_eq!((&*errors, &output.stdout[..]), ("", &b"5\n"[..]), "{limit}");
        } else {
            assert!(
                errors.contains(&format!("(ulimit -n) is {limit}, but answering their calls needs 64")),
                "{errors}"
            );
        }
    }
}

/// As with fakeroot, the caller's descriptors stay open: make passes its jobserver to `fakeroot debian/rules` this
/// way. None of the launcher's own descriptors leak to the command.
fn commands_have_only_the_callers_descriptors() {
    let folder = Folder::new();
    let list = "import os
for number in sorted(os.listdir('/proc/self/fd'), key=int):
    try: print(number, os.readlink('/proc/self/fd/' + number))
    except FileNotFoundError: pass";
    let shell = "exec 9</etc; exec \"$@\"";
    let begin = ["sh", "-c", shell, "sh"].map(OsString::from);
    let seen = |before: &[OsString], python: &[&str]| -> Vec<String> {
        let command = words(&[&begin[..], before].concat(), python);
        let output = folder.command(&command).stdin(Stdio::null()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(|line| line.split(':').next().unwrap().to_owned()).collect()
    };
    for python in [&["python3", "-c", list][..], &["sh", "-c", "exec python3 -c \"$0\"", list]] {
        let plain = seen(&[], python);
        assert!(plain.contains(&"9 /etc".to_owned()), "{plain:?}");
        assert_eq!(seen(&ours(), python), plain);
    }
}

pub fn words(program: &[OsString], more: &[&str]) -> Vec<OsString> {
    program.iter().cloned().chain(more.iter().map(OsString::from)).collect()
}

fn exit_statuses_are_the_commands() {
    let folder = Folder::new();
    let code = |more: &[&str]| folder.command(&words(&ours(), more)).status().unwrap().code();
    assert_eq!(code(&["sh", "-c", "exit 7"]), Some(7));
    assert_eq!(code(&["sh", "-c", "kill -9 $$"]), Some(137));
    assert_eq!(code(&["true"]), Some(0));
    assert_eq!(code(&["no-such-program"]), Some(127));
}

/// The session file and the library of a running session, as its programs see them.
fn files(folder: &Folder) -> (String, String) {
    let seen = folder.shell(&[], "echo \"$FAKEROOTKEY $LD_PRELOAD\"");
    let (key, library) = seen.split_once(' ').unwrap();
    assert!(library.contains("fakeroot"));
    (key.to_owned(), library.to_owned())
}

fn a_session_leaves_nothing() {
    let (key, library) = files(&Folder::new());
    assert!(!PathBuf::from(key).exists() && !PathBuf::from(library).exists());
}

fn a_killed_launchers_session_is_swept() {
    let folder = Folder::new();
    let mut command =
        folder.command(&words(&ours(), &["sh", "-c", "echo $FAKEROOTKEY $LD_PRELOAD; exec sleep 60"]));
    let mut launcher = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(launcher.stdout.take().unwrap()), &mut line)
        .unwrap();
    let (key, library) = line.trim().split_once(' ').unwrap();
    let (key, library) = (PathBuf::from(key), PathBuf::from(library));
    // A session whose launcher lives is not swept, however old it is.
    let old = std::time::SystemTime::now() - Duration::from_secs(3600);
    let age = || {
        for path in [&key, &library] {
            std::fs::File::open(path).unwrap().set_modified(old).unwrap();
        }
    };
    age();
    files(&Folder::new());
    assert!(key.exists() && library.exists());
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    // The command may have changed the files since.
    age();
    files(&Folder::new());
    assert!(!key.exists() && !library.exists());
}

/// Another user may create a pipe without a writer, or a link, in a folder for sessions.
fn other_files_with_a_session_name_do_not_block() {
    let folder = Folder::new();
    let script = "for number in 1 2; do echo kilnyard-libfakeroot-000000000000000$number.so; done | { read pipe; mkfifo $pipe; \
        touch -d '1 hour ago' kept $pipe; read link; ln -s kept $link; touch -h -d '1 hour ago' $link; }";
    let made = folder.command(&["sh", "-ec", script].map(OsString::from)).status();
    assert!(made.unwrap().success());
    let mut all: Vec<OsString> = ["timeout", "30"].map(OsString::from).into();
    all.extend(words(&ours(), &["sh", "-c", "ls | wc -l"]));
    let output = folder.command(&all).env("TMPDIR", folder.path()).output().unwrap();
    assert_eq!(
        (output.status.code(), &*String::from_utf8_lossy(&output.stdout)),
        (Some(0), "3\n"),
        "{output:?}"
    );
}

fn sessions_are_not_nested() {
    let folder = Folder::new();
    let mut command = folder.command(&words(&ours(), &["true"]));
    let output = command.env("FAKEROOTKEY", "17").output().unwrap();
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("cannot be nested"));
}

const CHANGE: &str = "umask 022; touch file plain; mkdir folder; chown 5:6 file; chmod 4711 file; \
    mknod device c 259 70000; chown 1:2 folder; ln -s file link; chown -h 3:4 link";
const LOOK: &str = "stat -c '%n %u %g %a %F %t %T' file plain folder device link";
const LOOKS: &str = "file 5 6 4711 regular empty file 0 0\nplain 0 0 644 regular empty file 0 0\n\
    folder 1 2 755 directory 0 0\ndevice 0 0 644 character special file 103 11170\nlink 3 4 777 symbolic link 0 0";

fn states_keep_everything() {
    let folder = Folder::new();
    let capable = "setfattr -n security.capability -v 0x0100000200200000000000000000000000000000 plain";
    folder.shell(&["-s", "state"], &format!("{CHANGE}; {capable}"));
    assert_eq!(folder.shell(&["-i", "state", "-s", "state"], LOOK), LOOKS);
    let shown = folder.shell(&["-i", "state"], "getcap plain");
    assert_eq!(shown, "plain cap_net_raw=ep");
}

fn a_missing_state_is_a_warning() {
    let folder = Folder::new();
    let output = folder.command(&words(&ours(), &["-i", "none", "true"])).output().unwrap();
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("does not exist"));
}

fn states_go_into_pipes_and_behind_links() {
    const SCRIPT: &str = "
        mkfifo pipe; timeout 10 cat pipe >copy & \"$@\" -s pipe sh -c '>file; chown 5:6 file'; wait; test -p pipe; grep uid=5 copy >/dev/null
        >state; chmod 600 state; ln -s state link; \"$@\" -i copy -s link true; test -L link; cmp copy state
        ln -s later other; \"$@\" -i copy -s other true; test -L other; cmp copy later
        \"$@\" -i copy -s /dev/stdout true | cmp copy -
        >open; exec 3<open; \"$@\" -i copy -s open true; cmp copy /dev/fd/3; rm open
        ln state second; echo >>state; \"$@\" -i copy -s state true; cmp copy second; rm second
        stat -c %a state; ls -A";
    let folder = Folder::new();
    let command = words(&["bash", "-ec", SCRIPT, "bash"].map(OsString::from), &[]);
    let output = folder.command(&[command, ours()].concat()).output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(shown, "600\ncopy\nfile\nlater\nlink\nother\npipe\nstate\n");
}

fn states_are_read_by_the_installed_one() {
    let Some(installed) = installed() else { return };
    let folder = Folder::new();
    let capable = "setfattr -n security.x -v 0x01 plain";
    folder.shell(&["-s", "state"], &format!("{CHANGE}; {capable}"));
    let output = folder.command(&words(&installed, &["-i", "state", "sh", "-c", LOOK])).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim_end(), LOOKS);
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
}

fn states_of_the_installed_one_are_read() {
    let Some(installed) = installed() else { return };
    let folder = Folder::new();
    let status = folder.command(&words(&installed, &["-s", "state", "sh", "-ec", CHANGE])).status().unwrap();
    assert!(status.success());
    // Its daemon ends after the client.
    let deadline = Instant::now() + Duration::from_secs(20);
    while std::fs::read(folder.path().join("state")).unwrap_or_default().is_empty() {
        assert!(Instant::now() < deadline, "the installed fakeroot saves no state");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(folder.shell(&["-i", "state"], LOOK), LOOKS);
}

fn unknown_files_may_be_real() {
    let folder = Folder::new();
    let me = folder.command(&["id".into(), "-u".into()]).output().unwrap();
    let me = String::from_utf8(me.stdout).unwrap().trim_end().to_owned();
    let script = "touch file other; chmod 600 file; chmod 4755 other; mkdir folder; mkdir -m 500 closed; chmod 750 folder; \
        stat -c %u . file other folder closed; chown 0 file; stat -c '%u' file; echo $FAKED_MODE";
    let shown = folder.shell(&["-u"], script);
    let unchanged = format!("{me}\n").repeat(5);
    assert_eq!(shown, format!("{unchanged}0\nunknown-is-real"));
}

fn termination_signals_reach_the_command() {
    let folder = Folder::new();
    let script = "trap 'echo asked; exit 3' TERM; echo ready; while :; do sleep 0.05; done";
    let mut launcher =
        folder.command(&words(&ours(), &["sh", "-c", script])).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = std::io::BufReader::new(launcher.stdout.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
    // SAFETY: our own child.
    unsafe { libc::kill(launcher.id() as i32, libc::SIGTERM) };
    std::io::BufRead::read_line(&mut lines, &mut line).unwrap();
    assert_eq!((line.as_str(), launcher.wait().unwrap().code()), ("ready\nasked\n", Some(3)));
}

/// fakeroot's daemon closes descriptors one by one up to the limit, which takes minutes if that is a billion. Here
/// none is closed: the session keeps the highest descriptor that the limit allows.
fn descriptors_are_left_alone_whatever_their_limit() {
    let folder = Folder::new();
    let file = std::fs::File::create(folder.path().join("kept")).unwrap();
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the limit outlives the call.
    assert_eq!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) }, 0);
    let highest = limit.rlim_max.min(1 << 20) as libc::c_int - 1;
    limit.rlim_cur = limit.rlim_max;
    let descriptor = file.as_raw_fd();
    let mut command = folder.command(&words(&ours(), &["readlink", &format!("/proc/self/fd/{highest}")]));
    // SAFETY: both are system calls, which are allowed in a child of fork.
    unsafe {
        command.pre_exec(move || {
            let is_done = libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) == 0
                && libc::dup2(descriptor, highest) == highest;
            if is_done { Ok(()) } else { Err(std::io::Error::last_os_error()) }
        });
    }
    let output = command.output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).trim_end().ends_with("/kept"), "{output:?}");
}

fn other_libraries_stay_preloaded() {
    let folder = Folder::new();
    let mut command = folder.command(&words(&ours(), &["sh", "-c", "echo $LD_PRELOAD"]));
    let output = command.env("LD_PRELOAD", "libc.so.6").output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).trim_end().ends_with(".so:libc.so.6"));
}

fn programs_of_32_bits_are_rejected() {
    let folder = Folder::new();
    let path = exit_zero(&folder, "old");
    let mut bytes = std::fs::read(&path).unwrap();
    const CLASS_32: u8 = 1;
    bytes[4] = CLASS_32;
    std::fs::write(&path, bytes).unwrap();
    let output = folder.command(&words(&ours(), &["env", "./old"])).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success());
    assert!(errors.contains("./old is a program for another machine or word size"), "{errors}");
}
