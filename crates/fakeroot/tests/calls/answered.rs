//! Programs without the library: static ones, and everything they start.

use crate::sessions::words;
use crate::system::{Folder, is_root, ours};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The action of a static program of a few instructions.
#[derive(Clone, Copy)]
enum Code {
    /// Exits with status 0.
    Exit,
    /// Executes the program that its arguments name.
    Start,
}

impl Code {
    fn bytes(self) -> &'static [u8] {
        match self {
            #[cfg(target_arch = "x86_64")]
            Code::Exit => b"\x31\xff\xb8\x3c\0\0\0\x0f\x05",
            #[cfg(target_arch = "aarch64")]
            Code::Exit => b"\x00\x00\x80\xd2\xa8\x0b\x80\xd2\x01\x00\x00\xd4",
            // execve of the second word on the stack; exit with 126 if that fails.
            #[cfg(target_arch = "x86_64")]
            Code::Start => {
                b"\x48\x8b\x7c\x24\x10\x48\x8d\x74\x24\x10\x48\x8b\x04\x24\x48\x8d\x54\xc4\x10\
                \xb8\x3b\0\0\0\x0f\x05\xbf\x7e\0\0\0\xb8\x3c\0\0\0\x0f\x05"
            }
            #[cfg(target_arch = "aarch64")]
            Code::Start => {
                b"\xe0\x0b\x40\xf9\xe1\x43\x00\x91\xe2\x03\x40\xf9\x22\x0c\x02\x8b\xa8\x1b\x80\xd2\
                \x01\0\0\xd4\xc0\x0f\x80\xd2\xa8\x0b\x80\xd2\x01\0\0\xd4"
            }
        }
    }
}

/// A program of the machine's own kind without a dynamic linker: an ELF header, one program header, the code.
fn program(code: Code) -> Vec<u8> {
    const HEADERS_BYTES: u64 = 64 + 56;
    const BASE: u64 = 0x40_0000;
    let machine: u16 = if cfg!(target_arch = "x86_64") { 62 } else { 183 };
    let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let half = |file: &mut Vec<u8>, value: u16| file.extend(value.to_le_bytes());
    let word = |file: &mut Vec<u8>, value: u32| file.extend(value.to_le_bytes());
    let long = |file: &mut Vec<u8>, value: u64| file.extend(value.to_le_bytes());
    half(&mut file, 2);
    half(&mut file, machine);
    word(&mut file, 1);
    long(&mut file, BASE + HEADERS_BYTES);
    long(&mut file, 64);
    long(&mut file, 0);
    word(&mut file, 0);
    for value in [64, 56, 1, 0, 0, 0] {
        half(&mut file, value);
    }
    word(&mut file, 1);
    word(&mut file, 5);
    let length = HEADERS_BYTES + code.bytes().len() as u64;
    for value in [0, BASE, BASE, length, length, 0x1000] {
        long(&mut file, value);
    }
    file.extend(code.bytes());
    file
}

fn write(folder: &Folder, name: &str, bytes: &[u8]) -> PathBuf {
    let (path, source) = (folder.path().join(name), folder.path().join(format!("{name}.bytes")));
    std::fs::write(&source, bytes).unwrap();
    // A child that another test has just forked may still have the file open that this process wrote, and such a
    // file cannot be executed.
    assert!(Command::new("cp").args([&source, &path]).status().unwrap().success());
    std::fs::remove_file(source).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    path
}

/// A static program that exits with status 0.
pub fn exit_zero(folder: &Folder, name: &str) -> PathBuf {
    write(folder, name, &program(Code::Exit))
}

/// A static program that executes the program that its arguments name.
pub fn starter(folder: &Folder) -> PathBuf {
    write(folder, "starter", &program(Code::Start))
}

/// A program of another word size.
fn foreign(folder: &Folder, name: &str) -> PathBuf {
    // i386: `mov eax, 20 (getpid); int 0x80; mov eax, 1 (exit); xor ebx, ebx; int 0x80`.
    const CODE: &[u8] = b"\xb8\x14\0\0\0\xcd\x80\xb8\x01\0\0\0\x31\xdb\xcd\x80";
    const HEADERS_BYTES: u32 = 52 + 32;
    const BASE: u32 = 0x0804_8000;
    let mut file = b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0\x03\0".to_vec();
    for value in [1, BASE + HEADERS_BYTES, 52, 0, 0] {
        file.extend(u32::to_le_bytes(value));
    }
    for value in [52u16, 32, 1, 0, 0, 0] {
        file.extend(value.to_le_bytes());
    }
    let length = HEADERS_BYTES + CODE.len() as u32;
    for value in [1, 0, BASE, BASE, length, length, 5, 0x1000] {
        file.extend(u32::to_le_bytes(value));
    }
    file.extend(CODE);
    write(folder, name, &file)
}

/// Runs a shell script in a session; returns its output and errors.
pub fn shell(folder: &Folder, options: &[&str], script: &str) -> (String, String) {
    let mut all = ours();
    all.extend(options.iter().map(Into::into));
    let output = folder.command(&words(&all, &["sh", "-ec", script])).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{script}: {}\n{errors}", output.status);
    (String::from_utf8(output.stdout).unwrap(), errors)
}

/// A program that makes calls without the library, through glibc's static code.
const CALLS: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>
#define CHECK(condition) do { if (!(condition)) { printf("line %d: %s: %s\n", __LINE__, #condition, strerror(errno)); exit(1); } } while (0)
static struct stat look(const char *name) {
    struct stat first, second;
    struct statx more;
    CHECK(lstat(name, &first) == 0);
    CHECK(statx(AT_FDCWD, name, AT_SYMLINK_NOFOLLOW, STATX_MODE, &more) == 0);
    CHECK(first.st_uid == more.stx_uid && first.st_gid == more.stx_gid && first.st_mode == more.stx_mode);
    int descriptor = open(name, O_PATH | O_NOFOLLOW);
    CHECK(descriptor >= 0 && fstat(descriptor, &second) == 0);
    CHECK(first.st_uid == second.st_uid && first.st_ino == second.st_ino && first.st_mode == second.st_mode);
    close(descriptor);
    return first;
}
static void child(void (*work)(void)) {
    int status, process = fork();
    if (process == 0) { work(); exit(0); }
    CHECK(waitpid(process, &status, 0) == process && status == 0);
}
static void other_user(void) {
    CHECK(getuid() == 0 && setgid(7) == 0 && setresuid(4, 5, 6) == 0);
    CHECK(getuid() == 4 && geteuid() == 5 && getegid() == 7 && setuid(0) == -1 && errno == EPERM);
    CHECK(mkdir("theirs", 0755) == 0 && look("theirs").st_uid == 5 && look("theirs").st_gid == 7);
    /* A shell drops privileges that it only has through its effective ids. */
    CHECK(system("test $(id -u) = 4 -a $(id -g) = 7") == 0);
}
int main(int count, char **words) {
    struct stat found;
    char value[8], name[4096];
    umask(022);
    CHECK(count == 3 && strcmp(words[0], "own name") == 0 && strcmp(words[2], "") == 0);
    CHECK(getuid() == 0 && getegid() == 0 && look(".").st_uid == 0);
    int file = open("file", O_CREAT | O_WRONLY, 0644);
    CHECK(look("file").st_uid == 0 && look("file").st_gid == 0);
    CHECK(chown("file", 5, 6) == 0 && look("file").st_uid == 5 && look("file").st_gid == 6);
    CHECK(fchmod(file, 04711) == 0 && look("file").st_mode == (S_IFREG | 04711));
    CHECK(fchown(file, -1, 8) == 0 && look("file").st_gid == 8 && look("file").st_mode == (S_IFREG | 0711));
    CHECK(chmod("file", 0) == 0 && look("file").st_mode == S_IFREG);
    CHECK(symlink("file", "link") == 0 && lchown("link", 3, 4) == 0 && look("link").st_uid == 3);
    CHECK(stat("link", &found) == 0 && found.st_uid == 5);
    CHECK(mkdir("folder", 0070) == 0 && look("folder").st_mode == (S_IFDIR | 0050));
    CHECK(mknod("device", S_IFCHR | 0660, makedev(259, 70000)) == 0);
    CHECK(look("device").st_mode == (S_IFCHR | 0640) && look("device").st_rdev == makedev(259, 70000));
    CHECK(chown("device", 1, 2) == 0 && S_ISCHR(look("device").st_mode));
    CHECK(mknod("file", S_IFCHR, 1) == -1 && errno == EEXIST);
    CHECK(setxattr("file", "security.x", "value", 5, 0) == 0 && getxattr("file", "security.x", value, 8) == 5);
    CHECK(listxattr("file", name, sizeof name) >= 11 && removexattr("file", "security.x") == 0);
    CHECK(setxattr("file", "system.posix_acl_access", "", 0, 0) == -1 && errno == EOPNOTSUPP);
    CHECK(rename("file", "moved") == 0 && look("moved").st_uid == 5);
    CHECK(rename("device", "moved") == 0 && look("moved").st_uid == 1);
    CHECK(unlink("moved") == 0 && rmdir("folder") == 0 && unlink("link") == 0);
    CHECK(lstat("moved", &found) == -1 && errno == ENOENT);
    CHECK(fstat(99, &found) == -1 && errno == EBADF);
    CHECK(fstatat(99, "x", &found, 0) == -1 && errno == EBADF);
    CHECK(stat((char *) 8, &found) == -1 && errno == EFAULT);
    CHECK(stat(".", (struct stat *) 8) == -1 && errno == EFAULT);
    CHECK(stat("", &found) == -1 && errno == ENOENT);
    CHECK(stat("/proc/self/exe", &found) == 0 && found.st_ino == look(words[1]).st_ino);
    CHECK(stat("/dev/stdin", &found) == 0 && stat("//", &found) == 0);
    child(other_user);
    CHECK(getuid() == 0 && system("test $(id -u) = 0 && chown 8:9 theirs") == 0 && look("theirs").st_uid == 8);
    printf("all is well\n");
    return 0;
}
"#;

/// Compiles the program. Without a compiler or a static libc, prints so and returns `None`.
fn compile(folder: &Folder) -> Option<PathBuf> {
    let (source, program) = (folder.path().join("calls.c"), folder.path().join("calls"));
    std::fs::write(&source, CALLS).unwrap();
    let output = Command::new("cc").args(["-static", "-o"]).arg(&program).arg(&source).output();
    match output {
        Ok(output) if output.status.success() => Some(program),
        _ => {
            let _ = writeln!(
                std::io::stderr(),
                "skipped: static_programs_are_answered: cc -static does not work"
            );
            None
        }
    }
}

pub fn static_programs_are_answered() {
    let folder = Folder::new();
    let Some(program) = compile(&folder) else { return };
    let start = format!("exec -a 'own name' {} {0} ''", program.display());
    let output = folder.command(&words(&ours(), &["bash", "-ec", &start])).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!((&*text, &*errors), ("all is well\n", ""));
    // Other processes see its changes, and a static program that the launcher itself starts is answered too.
    let (text, _) = shell(&folder, &["-s", "state"], "touch file; chown 3:4 file");
    assert_eq!(text, "");
    let output = folder.command(&words(&ours(), &["-i", "state", "./calls"])).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("count == 3") && output.status.code() == Some(1), "{text}");
}

/// Applets of Debian's busybox-static: an answered shell, the programs it starts, and files that both kinds of
/// program see.
pub fn programs_of_busybox_are_answered() {
    let busybox = PathBuf::from("/bin/busybox");
    let bytes = std::fs::read(&busybox).unwrap_or_default();
    use kilnyard_fakeroot::shared::program::{Program, kind_of};
    if bytes.is_empty() || kind_of(&bytes[..1024]) != Program::Static {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: programs_of_busybox_are_answered: busybox-static is not installed"
        );
        return;
    }
    let folder = Folder::new();
    let script = "busybox mkdir -p a/b; busybox touch a/b/c; busybox chown -R 5:6 a; busybox chmod 4755 a/b/c; \
        busybox mknod a/d c 1 3; chown 1:2 a/b; \
        stat -c '%n %u %g %a %F' a a/b a/b/c a/d; \
        busybox sh -ec 'id -u; chown 7:8 a; busybox tar cf archive a; stat -c \"%u %g\" a; /usr/bin/id -u; \
            /usr/bin/stat -c \"%u %g\" a; /usr/bin/cp -a a copy; busybox stat -c \"%u %a\" copy/b/c; rm -r a'; \
        tar tvf archive --numeric-owner | sed 's/ 20.*:[0-9][0-9]//'; stat -c '%u %g %t %T' copy/d";
    let expected = "a 5 6 755 directory\na/b 1 2 755 directory\na/b/c 5 6 4755 regular empty file\n\
        a/d 0 0 644 character special file\n0\n7 8\n0\n7 8\n5 4755\n\
        drwxr-xr-x 7/8               0 a/\ndrwxr-xr-x 1/2               0 a/b/\n-rwsr-xr-x 5/6               0 a/b/c\n\
        crw-r--r-- 0/0             1,3 a/d\n0 0 1 3\n";
    let (text, errors) = shell(&folder, &[], script);
    assert_eq!((text.as_str(), errors.as_str()), (expected, ""));
}

pub fn programs_of_32_bits_are_rejected() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let folder = Folder::new();
    foreign(&folder, "old");
    starter(&folder);
    if folder.command(&["./old".into()]).status().is_err() {
        let _ =
            writeln!(std::io::stderr(), "skipped: programs_of_32_bits_are_rejected: the kernel has no i386");
        return;
    }
    let output = folder.command(&words(&ours(), &["./starter", "./old"])).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(128 + libc::SIGKILL), "{errors}");
    assert!(errors.contains("/old is a program for another machine or word size"), "{errors}");
}

pub fn static_programs_are_reported_once_when_off() {
    let folder = Folder::new();
    exit_zero(&folder, "tiny");
    let script = "./tiny; ./tiny; env ./tiny; LD_PRELOAD= ./tiny";
    let (_, errors) = shell(&folder, &["--static=off"], script);
    let warnings: Vec<&str> =
        errors.lines().filter(|line| line.contains("without a dynamic linker")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("./tiny"), "{errors}");
    let output = folder.command(&words(&ours(), &["--static=off", "./tiny"])).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains("./tiny is a program without a dynamic linker"), "{errors}");
    let (_, errors) = shell(&folder, &[], script);
    assert_eq!(errors, "");
}

/// No process hangs: the answered calls of such a program fail from then on, and the rest continues to work.
pub fn static_programs_outlive_a_killed_launcher() {
    let folder = Folder::new();
    starter(&folder);
    let script =
        "echo $FAKEROOTKEY; echo $LD_PRELOAD; read line; stat -c %u . 2>&1 || echo refused; echo end";
    let mut command = folder.command(&words(&ours(), &["./starter", "/bin/sh", "-c", script]));
    let mut launcher = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(launcher.stdout.take().unwrap()).lines();
    let [key, library] = [(); 2].map(|()| PathBuf::from(lines.next().unwrap().unwrap()));
    launcher.kill().unwrap();
    let mut input = launcher.stdin.take().unwrap();
    launcher.wait().unwrap();
    input.write_all(b"\n").unwrap();
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert_eq!(rest[rest.len() - 2..], ["refused", "end"], "{rest:?}");
    assert!(rest[0].contains("Function not implemented"), "{rest:?}");
    // The next session would remove them, but only once they are old.
    for left in [key.with_extension("socket"), library.with_extension("gate"), key.clone()] {
        std::fs::remove_file(left).unwrap();
    }
    assert!(library == key || std::fs::remove_file(library).is_ok());
}

pub fn static_programs_are_started_by_every_call() {
    let folder = Folder::new();
    starter(&folder);
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let arguments: Vec<String> = (0..3000).map(|number| number.to_string()).collect();
    let script = format!(
        "import os\n\
        def child(work):\n    process = os.fork()\n    if process == 0:\n        work()\n    os.waitpid(process, 0)\n\
        words = ['starter', '/usr/bin/id', '-u']\n\
        child(lambda: os.execv('./starter', words))\n\
        child(lambda: os.execve('./starter', words, dict(os.environ, X='1')))\n\
        child(lambda: os.execvp('starter', words))\n\
        child(lambda: os.execvpe('starter', words, os.environ))\n\
        os.waitpid(os.posix_spawn('./starter', words, os.environ), 0)\n\
        os.waitpid(os.posix_spawnp('starter', words, os.environ), 0)\n\
        many = ['starter', '/bin/sh', '-c', 'id -u; echo $#'] + {arguments:?}\n\
        child(lambda: os.execv('./starter', many))\n\
        os.waitpid(os.posix_spawn('./starter', many, os.environ), 0)\n\
        bare = {{'PATH': '/usr/bin'}}\n\
        os.waitpid(os.posix_spawn('./starter', words, bare), 0)\n"
    );
    std::fs::write(folder.path().join("script"), script).unwrap();
    let mut command = folder.command(&words(&ours(), &["python3", "script"]));
    let output = command.env("PATH", path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    // SAFETY: geteuid has no preconditions.
    let real = if is_root() { crate::system::USER } else { unsafe { libc::geteuid() } };
    let expected = format!("{}0\n2999\n0\n2999\n{real}\n", "0\n".repeat(6));
    assert_eq!((&*text, &*String::from_utf8_lossy(&output.stderr)), (expected.as_str(), ""));
}
