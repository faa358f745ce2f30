//! Every way of starting a program that makes its own system calls, and how such programs are recognized.

use crate::answered::{shell, starter};
use crate::sessions::words;
use crate::system::{Folder, ours};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Starts a program by each of libc's functions that `answered.rs` does not use. The program executes `id -u`.
const STARTS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
extern char **environ;
static char *words[] = { "starter", "/usr/bin/id", "-u", NULL };
#define CHILD(call) do { fflush(stdout); pid_t child = fork(); if (child == 0) { call; perror(#call); _exit(1); } \
    int status; waitpid(child, &status, 0); if (status != 0) printf("%s: %d\n", #call, status); } while (0)
int main(int count, char **arguments) {
    char *own[] = { "X=1", NULL, NULL, NULL, NULL };
    int at = 1;
    for (char **variable = environ; *variable; variable++)
        if (!strncmp(*variable, "LD_PRELOAD=", 11) || !strncmp(*variable, "FAKEROOTKEY=", 12)) own[at++] = *variable;
    if (count > 1) {
        char line[16] = "";
        FILE *pipe = popen("exec id -u 2>/dev/null; echo \"it's\"", "r");
        if (!pipe || !fgets(line, sizeof line, pipe)) return 1;
        int status = pclose(pipe);
        printf("%s%d\n", line, status);
        fflush(stdout);
        printf("%d\n", system("stat -c '%u' . ; exit 3") >> 8);
        return 0;
    }
    CHILD(execl("./starter", "starter", "/usr/bin/id", "-u", (char *) 0));
    CHILD(execl("./starter", "starter", "/usr/bin/test", "1", "-eq", "1", "-a", "2", "-eq", "2", "-a", "3", "-ne", "4", (char *) 0));
    CHILD(execlp("starter", "starter", "/usr/bin/id", "-u", (char *) 0));
    CHILD(execle("./starter", "starter", "/usr/bin/id", "-u", (char *) 0, own));
    CHILD(execle("./starter", "starter", "/usr/bin/env", "sh", "-c", "echo $X", (char *) 0, own));
    CHILD(fexecve(open("starter", O_RDONLY | O_CLOEXEC), words, environ));
    CHILD(execveat(open(".", O_RDONLY | O_CLOEXEC), "starter", words, environ, 0));
    CHILD(execveat(AT_FDCWD, "starter", words, environ, 0));
    CHILD(execveat(open("starter", O_PATH), "", words, environ, AT_EMPTY_PATH));
    CHILD(syscall(SYS_execve, "./starter", words, environ));
    CHILD(syscall(SYS_execveat, AT_FDCWD, "./starter", words, environ, 0));
    CHILD(if (execl("./missing", "missing", (char *) 0) == -1) _exit(0));
    return 0;
}
"#;

/// Compiles a C source. Without a compiler, prints that the test is skipped and returns `None`.
fn compile(folder: &Folder, name: &str, source: &str, test: &str) -> Option<PathBuf> {
    let (path, program) = (folder.path().join(format!("{name}.c")), folder.path().join(name));
    std::fs::write(&path, source).unwrap();
    let done = Command::new("cc").args(["-O2", "-o"]).arg(&program).arg(&path).status();
    if done.is_ok_and(|status| status.success()) {
        return Some(program);
    }
    let _ = writeln!(std::io::stderr(), "skipped: {test}: there is no C compiler");
    None
}

pub fn static_programs_are_started_by_lists_and_descriptors() {
    let folder = Folder::new();
    starter(&folder);
    let test = "static_programs_are_started_by_lists_and_descriptors";
    let Some(_) = compile(&folder, "starts", STARTS, test) else { return };
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let output = folder.command(&words(&ours(), &["./starts"])).env("PATH", path).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!((&*text, &*String::from_utf8_lossy(&output.stderr)), ("0\n0\n0\n1\n0\n0\n0\n0\n0\n0\n", ""));
}

/// `system` and `popen` start a static shell.
pub fn static_shells_are_started_by_libc() {
    let folder = Folder::new();
    let mount = "mount --bind /bin/busybox /bin/sh && exec \"$@\"";
    let inside = ["unshare", "--map-root-user", "--mount", "bash", "-c", mount, "bash"];
    let can = folder.command(&words(&inside.map(Into::into), &["sh", "-c", "busybox true"]));
    if !{ can }.status().is_ok_and(|status| status.success()) {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: static_shells_are_started_by_libc: there is no busybox, or no user namespace"
        );
        return;
    }
    let Some(_) = compile(&folder, "starts", STARTS, "static_shells_are_started_by_libc") else { return };
    let mut all = words(&inside.map(Into::into), &[]);
    all.extend(words(&ours(), &["bash", "-c", "chown 5 .; exec ./starts shells"]));
    let output = folder.command(&all).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!((&*text, &*String::from_utf8_lossy(&output.stderr)), ("0\n0\n5\n3\n", ""));
}

/// Makes the calls under test with its own instructions, and everything else through libc.
const DIRECT: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static inline long direct(long number, long a, long b, long c, long d, long e) {
    long result;
#ifdef __x86_64__
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8)
        : "rcx", "r11", "memory");
#else
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4) : "memory");
    result = x0;
#endif
    return result;
}
int main(int count, char **words) {
    struct stat direct_stat, stat_by_libc;
    long changed = count > 2 ? 0 : direct(SYS_fchownat, AT_FDCWD, (long) words[1], 5, 6, 0);
    long looked = direct(SYS_newfstatat, AT_FDCWD, (long) words[1], (long) &direct_stat, 0, 0);
    long user = direct(SYS_geteuid, 0, 0, 0, 0, 0);
    stat(words[1], &stat_by_libc);
    printf("%ld %ld %u:%u %u:%u %ld\n", changed, looked, direct_stat.st_uid, direct_stat.st_gid, stat_by_libc.st_uid,
        stat_by_libc.st_gid, user);
    return 0;
}
"#;

pub fn programs_with_their_own_calls_are_answered() {
    let folder = Folder::new();
    let test = "programs_with_their_own_calls_are_answered";
    let Some(program) = compile(&folder, "direct", DIRECT, test) else { return };
    let (text, errors) =
        shell(&folder, &[], "touch file; ./direct file; stat -c %u:%g file; ./direct file again");
    assert_eq!((text.as_str(), errors.as_str()), ("0 0 5:6 5:6 0\n5:6\n0 0 5:6 5:6 0\n", ""));
    // Also as the launcher's own command, and as the interpreter of a script.
    let script = format!("echo '#!{}' >script; chmod 755 script; ./script", program.display());
    assert_eq!(shell(&folder, &[], &script).0, "0 0 5:6 5:6 0\n");
    let output = folder.command(&words(&ours(), &["./direct", "file"])).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "0 0 5:6 5:6 0\n");
    // A program that only starts others is not answered, even if it contains such calls. An overwritten file is
    // checked again.
    let script =
        "cp direct env; ./env file >/dev/null; cp /bin/true again; ./again; cp direct again; ./again file";
    let (text, _) = shell(&folder, &[], &format!("rm -f file; touch file; {script}"));
    assert_eq!(text, "0 0 5:6 5:6 0\n");
    let (_, errors) = shell(&folder, &["--static=off"], "./direct file; ./direct file");
    let warnings: Vec<&str> = errors.lines().filter(|line| line.contains("its own system calls")).collect();
    assert!(warnings.len() == 1 && warnings[0].contains("./direct"), "{errors}");
}

const GO: &str = "package main\n// #include <stdlib.h>\nimport \"C\"\nimport (\"fmt\"; \"os\"; \"syscall\")\n\
    func main() {\n_ = C.abs(-1)\nfmt.Println(os.Chown(os.Args[1], 5, 6))\nfound, _ := os.Stat(os.Args[1])\n\
    real := found.Sys().(*syscall.Stat_t)\nfmt.Println(real.Uid, real.Gid, os.Geteuid())\n}\n";

pub fn programs_of_go_with_libc_are_answered() {
    let folder = Folder::new();
    let source = folder.path().join("main.go");
    std::fs::write(&source, GO).unwrap();
    let cache = |name: &str| folder.path().join(name);
    let built = Command::new("go")
        .args(["build", "-o", "program", "main.go"])
        .current_dir(folder.path())
        .envs([("GOCACHE", cache("cache")), ("GOPATH", cache("path")), ("GOTMPDIR", folder.path().into())])
        .envs([("GO111MODULE", "off"), ("CGO_ENABLED", "1"), ("GOFLAGS", ""), ("GOTOOLCHAIN", "local")])
        .output();
    if !built.is_ok_and(|output| output.status.success()) || !is_dynamic(&folder.path().join("program")) {
        let _ = writeln!(
            std::io::stderr(),
            "skipped: programs_of_go_with_libc_are_answered: there is no Go with a C compiler"
        );
        return;
    }
    let (text, errors) = shell(&folder, &[], "touch file; ./program file; stat -c %u:%g file");
    assert_eq!((text.as_str(), errors.as_str()), ("<nil>\n5 6 0\n5:6\n", ""));
}

fn is_dynamic(program: &Path) -> bool {
    use kilnyard_fakeroot::shared::program::{Program, kind_of};
    let bytes = std::fs::read(program).unwrap();
    kind_of(&bytes[..1024]) == Program::Dynamic
}
