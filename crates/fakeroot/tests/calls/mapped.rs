//! How a session is mapped in the memory of programs.

use crate::sessions::words;
use crate::system::{Folder, ours};
use std::ffi::OsString;
use std::io::Write;
use std::process::{Command, Stdio};

/// Shared by the test programs: how each mapping of a file may be used (the mappings must be adjacent), and a
/// file's owner.
const MAPPED: &str = "
import os
def mapped(file):
    lines = [line.split() for line in open('/proc/self/maps') if line.split()[5:] == [file]]
    places = [[int(place, 16) for place in line[0].split('-')] for line in lines]
    assert all(one[1] == other[0] for one, other in zip(places, places[1:])), lines
    return ' '.join(line[1] for line in lines)
def in_a_child(work):
    if os.fork() == 0:
        work()
        os._exit(0)
    os.wait()
def owner(): return '%d %d' % (os.stat('file').st_uid, os.stat('file').st_gid)
library, key = os.environ['LD_PRELOAD'], os.environ['FAKEROOTKEY']
";

/// Prepares a Python program in a session, with these words before the launcher's.
fn python(folder: &Folder, before: &[OsString], script: &str) -> Command {
    let mut all = before.to_vec();
    all.extend(words(&ours(), &["--static=off", "--", "python3", "-c", &format!("{MAPPED}{script}")]));
    std::fs::write(folder.path().join("file"), "").unwrap();
    folder.command(&all)
}

fn shown(mut command: Command) -> String {
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && errors.is_empty(), "{}\n{errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// The dynamic linker's mapping is enough for reading, and shows what other processes write. A writer maps it again at
/// the same address.
pub fn a_reading_program_maps_nothing() {
    const SCRIPT: &str = "
assert library == key
print(owner(), mapped(key))
in_a_child(lambda: os.chown('file', 5, 6))
print(owner(), mapped(key))
os.chown('file', 7, 8)
print(owner(), mapped(key))
in_a_child(lambda: os.chown('file', 9, 10))
print(owner())
";
    let folder = Folder::new();
    let Some(before) = among_mounts(&folder, "a_reading_program_maps_nothing", SHARED_MEMORY) else { return };
    let looks = "rw-p r-xp";
    let expected = format!("0 0 {looks}\n5 6 {looks}\n7 8 {looks} rw-s\n9 10\n");
    assert_eq!(shown(python(&folder, &before, SCRIPT)), expected);
}

/// Mounts shared memory from which programs may be mapped, even if the machine's does not allow it.
const SHARED_MEMORY: &str = "mount -t tmpfs -o mode=1777 none /dev/shm";

/// A command that enters a mount namespace where the script made its mounts. If mounting is not possible, prints so
/// and returns `None`.
fn among_mounts(folder: &Folder, name: &str, script: &str) -> Option<Vec<OsString>> {
    let script = format!("{script}; exec \"$@\"");
    let inside = ["unshare", "--map-root-user", "--mount", "sh", "-ec", &script, "sh"].map(OsString::from);
    let can = folder.command(&words(&inside, &["true"])).stderr(Stdio::null()).status();
    if can.is_ok_and(|status| status.success()) {
        return Some(inside.to_vec());
    }
    let _ = writeln!(
        std::io::stderr(),
        "skipped: {name}: no file system can be mounted in a user namespace here"
    );
    None
}

/// Saving a state over the one that was loaded must not lose it, because no other copy exists.
pub fn a_state_outlives_a_full_disk() {
    const SCRIPT: &str = "
        \"$@\" -s small/state sh -c '>file; chown 5:6 file'; cp small/state before
        if \"$@\" -i small/state -s small/state sh -ec 'mkdir many; cd many; touch $(seq 2000); chown 5:6 *'; then exit 9; fi
        cmp before small/state; ls -A small";
    // The first limit has no room for the larger state; the second has no inode left for another file.
    for limits in ["size=16k", "size=16k,nr_inodes=2"] {
        let folder = Folder::new();
        let mounts = format!("mkdir -p small; mount -t tmpfs -o {limits} none small; >small/state");
        let Some(before) = among_mounts(&folder, "a_state_outlives_a_full_disk", &mounts) else { return };
        let command = words(&before, &["sh", "-ec", SCRIPT, "sh"]);
        let output = folder.command(&[command, ours()].concat()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{limits}: {said}");
        assert!(said.contains("save the state small/state"), "{limits}: {said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "state\n", "{limits}");
    }
}

/// Containers mount files of the host this way; a mounted file cannot be replaced.
pub fn a_state_may_be_a_mount() {
    const SCRIPT: &str = "\"$@\" -s state sh -c '>file; chown 5:6 file'; cmp state host; \"$@\" -i state stat -c %u:%g file; ls -A";
    let folder = Folder::new();
    let mounts = "echo >host; touch state; mount --bind host state";
    let Some(before) = among_mounts(&folder, "a_state_may_be_a_mount", mounts) else { return };
    let command = words(&before, &["sh", "-ec", SCRIPT, "sh"]);
    let output = folder.command(&[command, ours()].concat()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stderr), "");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "5:6\nfile\nhost\nstate\n");
}

/// Some containers do not allow mapping programs from shared memory.
pub fn a_separate_library_works() {
    const SCRIPT: &str = "
assert key.startswith('/dev/shm/') and library.startswith('/tmp/')
print(owner(), '|', mapped(library), '|', mapped(key))
os.system('chown 5:6 file')
os.chown('.', 7, 8)
print(owner(), os.stat('.').st_uid)
";
    let folder = Folder::new();
    let mounts = SHARED_MEMORY.replace("-o ", "-o noexec,");
    let Some(before) = among_mounts(&folder, "a_separate_library_works", &mounts) else { return };
    let shown = shown(python(&folder, &before, SCRIPT));
    assert_eq!(shown, "0 0 | rw-p r-xp | rw-s\n5 6 7\n");
}

/// After chroot, the session's file is no longer reachable by name.
pub fn files_are_changed_after_chroot() {
    const SCRIPT: &str = "
owner()
def change():
    os.chown('file', 5, 6)
    print(owner(), flush=True)
def by_number(number):
    import ctypes
    assert ctypes.CDLL(None).syscall(number, b'.') == 0
in_a_child(lambda: (os.chroot('.'), change()))
in_a_child(lambda: (by_number({'x86_64': 161, 'aarch64': 51}[os.uname().machine]), change()))
";
    let folder = Folder::new();
    let Some(before) = among_mounts(&folder, "files_are_changed_after_chroot", SHARED_MEMORY) else {
        return;
    };
    assert_eq!(shown(python(&folder, &before, SCRIPT)), "5 6\n5 6\n");
}

/// After a launcher is killed, programs that had its session can still read it, but cannot change it once its file
/// is gone.
pub fn changes_after_the_file_is_gone_fail() {
    const SCRIPT: &str = "
in_a_child(lambda: os.chown('file', 5, 6))
print(owner())
os.unlink(key)
for attempt in 1, 2:
    try: os.chown('file', 7, 8)
    except OSError as error: print(error.strerror)
print(owner())
";
    let folder = Folder::new();
    let Some(before) = among_mounts(&folder, "changes_after_the_file_is_gone_fail", SHARED_MEMORY) else {
        return;
    };
    let output = python(&folder, &before, SCRIPT).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let full = "No space left on device";
    assert_eq!(text, format!("5 6\n{full}\n{full}\n5 6\n"));
    let warning = "fakeroot: the session cannot be changed: its file can no longer be opened\n";
    assert_eq!(String::from_utf8_lossy(&output.stderr), warning);
}

/// The table contains facts about files in private folders.
pub fn only_its_user_can_read_a_session() {
    let folder = Folder::new();
    let script = "stat -Lc %a $FAKEROOTKEY; mkdir -m 700 closed; touch closed/file; chown 5:6 closed/file";
    let output = folder.command(&words(&ours(), &["--", "sh", "-ec", script])).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "600\n");
    if !crate::system::is_root() {
        return;
    }
    // In a session of root, a program that becomes another user starts programs, which load the library.
    let script = "import os; os.setresuid(4242, 4242, 4242); os.execvp('sh', ['sh', '-c', 'id -u; stat -Lc %a $FAKEROOTKEY'])";
    let own = std::env::current_exe().unwrap();
    let output = Command::new(own).args(["as-fakeroot", "--", "python3", "-c", script]).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((&*text, &*errors), ("4242\n600\n", ""));
}

/// A session's file has holes of gigabytes, but a file size limit applies to its length.
pub fn a_file_size_limit_breaks_no_session() {
    const SCRIPT: &str = "
import os, resource
os.mkdir('many')
for number in range(6000): open(f'many/{number}', 'w').close()
for number in range(6000): os.chown(f'many/{number}', number, 7)
assert all(os.stat(f'many/{number}').st_uid == number for number in range(6000))
print(resource.getrlimit(resource.RLIMIT_FSIZE)[0] >> 10)
";
    let python = ["--static=off", "--", "python3", "-c", SCRIPT];
    let show = |shell: &str| {
        let folder = Folder::new();
        let begin = ["sh", "-c", shell, "sh"].map(OsString::from);
        shown(folder.command(&words(&[&begin[..], &ours()].concat(), &python)))
    };
    // In units of 512 bytes (POSIX's ulimit): 100 MiB and 16 MiB for the launcher and its commands.
    assert_eq!(show("ulimit -f 204800; exec \"$@\""), "102400\n");
    assert_eq!(show("ulimit -f 32768; exec \"$@\""), "16384\n");
    // A limit for the command only.
    let folder = Folder::new();
    let shell = ["--static=off", "--", "sh", "-c", "ulimit -f 64; exec python3 -c \"$0\"", SCRIPT];
    assert_eq!(shown(folder.command(&words(&ours(), &shell))), "32\n");
}

pub fn a_limit_that_is_too_low_is_reported() {
    let folder = Folder::new();
    let begin = ["sh", "-c", "ulimit -f 2048; exec \"$@\"", "sh"].map(OsString::from);
    let output = folder.command(&words(&[&begin[..], &ours()].concat(), &["--", "true"])).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{errors}");
    assert!(errors.contains("(ulimit -f) is 1048576 bytes"), "{errors}");
}
