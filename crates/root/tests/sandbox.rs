//! Sandboxes with real namespaces, mounts and processes. Roots use the machine's own `/usr`, so that nothing
//! has to be fetched.

use kilnyard_root::sandbox::{Bounds, Groups, Order, RunError, Task};
use kilnyard_root::{
    Access, Flushes, IdMap, Making, Nesting, Operation, Report, RootPlan, Sandbox, User, View, probe,
};
use libtest_mimic::{Arguments, Failed, Trial};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

fn main() {
    kilnyard_root::sandbox::become_sandbox_if_asked();
    let arguments = Arguments::from_args();
    let need = missing();
    let test = |name: &'static str, run: fn(&Yard) -> Result<(), Failed>| {
        let is_ignored = need.is_some();
        Trial::test(name, move || run(&Yard::new())).with_ignored_flag(is_ignored)
    };
    let tests = vec![
        test("builders_of_two_builds_are_two_users_outside", builders_of_two_builds_are_two_users_outside),
        test("a_command_is_unprivileged_outside", a_command_is_unprivileged_outside),
        test("an_ordinary_user_has_no_way_to_privileges", an_ordinary_user_has_no_way_to_privileges),
        test("root_inside_may_install_but_not_mount", root_inside_may_install_but_not_mount),
        test("a_program_starts_with_default_signals", a_program_starts_with_default_signals),
        test("a_shell_cannot_insert_terminal_input", a_shell_cannot_insert_terminal_input),
        test("calls_that_builds_do_not_need_are_refused", calls_that_builds_do_not_need_are_refused),
        test("refused_calls_of_other_architectures_fail_too", refused_calls_of_other_architectures_fail_too),
        test("packages_that_may_nest_make_namespaces", packages_that_may_nest_make_namespaces),
        test(
            "a_flood_of_refused_calls_ends_with_its_command",
            a_flood_of_refused_calls_ends_with_its_command,
        ),
        test("the_machine_is_out_of_sight", the_machine_is_out_of_sight),
        test("there_is_no_network_but_loopback", there_is_no_network_but_loopback),
        test("writes_go_to_the_upper_layer", writes_go_to_the_upper_layer),
        test("hundreds_of_layers_can_be_stacked", hundreds_of_layers_can_be_stacked),
        test("flushes_are_discarded_unless_kept", flushes_are_discarded_unless_kept),
        test("flushes_of_other_architectures_are_discarded", flushes_of_other_architectures_are_discarded),
        test("processes_left_behind_are_named_and_ended", processes_left_behind_are_named_and_ended),
        test(
            "the_starter_of_a_daemon_is_reported_after_its_end",
            the_starter_of_a_daemon_is_reported_after_its_end,
        ),
        test("resource_usage_is_reported_last", resource_usage_is_reported_last),
        test("the_limit_of_processes_holds", the_limit_of_processes_holds),
        test("a_process_that_ignores_sigterm_is_killed", a_process_that_ignores_sigterm_is_killed),
        test("killing_the_outer_process_ends_all", killing_the_outer_process_ends_all),
        test("memory_is_sampled_and_time_is_counted", memory_is_sampled_and_time_is_counted),
        test("a_refused_step_is_named", a_refused_step_is_named),
        test("sockets_of_the_machine_are_out_of_reach", sockets_of_the_machine_are_out_of_reach),
        test("one_id_is_enough", one_id_is_enough),
        test("a_sealed_root_is_writable_only_where_open", |_| a_sealed_root_is_writable_only_where_open()),
        test("a_missing_command_is_named", a_missing_command_is_named),
        test("exit_codes_and_signals_come_through", exit_codes_and_signals_come_through),
    ];
    let conclusion = libtest_mimic::run(&arguments, tests);
    if let Some(reason) = need {
        eprintln!("skipped: all tests of roots: {reason}");
    }
    conclusion.exit();
}

/// Why these tests cannot run on this machine; `None` if they can.
fn missing() -> Option<String> {
    let folder = tempfile::tempdir().ok()?;
    let (ids, lack) = IdMap::of_this_user(&std::env::var("USER").unwrap_or_default(), 0);
    if let Some(lack) = lack {
        return Some(lack.to_string());
    }
    open(folder.path());
    probe::try_root(folder.path(), &ids, &Making::default()).err().map(|error| error.to_string())
}

fn open(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

struct Yard {
    folder: tempfile::TempDir,
    ids: IdMap,
}

impl Yard {
    fn new() -> Yard {
        Yard::with(IdMap::of_this_user(&std::env::var("USER").unwrap_or_default(), 0).0)
    }

    fn with(ids: IdMap) -> Yard {
        let folder = tempfile::tempdir().unwrap();
        open(folder.path());
        let yard = Yard { folder, ids };
        for part in ["base", "base/usr", "base/proc", "base/sys", "base/dev", "base/run", "base/tmp"] {
            yard.make(part);
        }
        for part in ["root", "root/upper", "root/work", "root/merged"] {
            yard.make(part);
        }
        for link in ["bin", "lib", "lib64", "sbin"] {
            std::os::unix::fs::symlink(format!("usr/{link}"), yard.path(&format!("base/{link}"))).unwrap();
        }
        yard
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    fn make(&self, relative: &str) {
        fs::create_dir_all(self.path(relative)).unwrap();
        probe::give_to_root(&self.path(relative), &self.ids).unwrap();
    }

    fn sandbox(&self, user: User, script: &str) -> Sandbox {
        let plan = RootPlan::new(Path::new("root"), &["base".into()], &Making::default());
        let mut operations = plan.entering(&[]);
        let usr =
            Operation::Bind { source: "/usr".into(), target: "root/merged/usr".into(), access: Access::Read };
        operations.insert(1, usr);
        Sandbox {
            folder: self.folder.path().into(),
            ids: self.ids.clone(),
            keeper: None,
            view: View::Root(operations),
            user,
            task: Task::Program(["/bin/sh", "-c", script].map(str::to_owned).into()),
            directory: "/".into(),
            environment: vec![("PATH".into(), "/usr/sbin:/usr/bin".into())],
            is_interactive: false,
            has_network: false,
            flushes: Flushes::Discard,
            nesting: Nesting::Refused,
        }
    }

    fn run(&self, user: User, script: &str) -> Result<String, RunError> {
        self.sandbox(user, script).run()
    }
}

const PLAIN: User = User::Plain { user: 1000, group: 1000 };

fn a_command_is_unprivileged_outside(yard: &Yard) -> Result<(), Failed> {
    assert_eq!(yard.run(User::Root, "id -u; hostname")?, "0\nkilnyard\n");
    let outside = yard.run(User::Root, "cat /proc/1/uid_map")?;
    let numbers: Vec<u32> = outside.split_whitespace().map(|n| n.parse().unwrap()).collect();
    assert_ne!(numbers[1], 0, "root inside is root outside: {outside}");
    Ok(())
}

fn builders_of_two_builds_are_two_users_outside(yard: &Yard) -> Result<(), Failed> {
    use std::os::unix::fs::MetadataExt;
    if yard.ids.is_ordinary() {
        eprintln!("skipped: only root can make a layer with a folder of the builder");
        return Ok(());
    }
    yard.make("base/build");
    let (builder, group) = (yard.ids.user_outside(1000), yard.ids.group_outside(1000));
    std::os::unix::fs::lchown(yard.path("base/build"), builder, group)?;
    let mut writers = Vec::new();
    for number in [61_200, 61_201] {
        let mut sandbox = yard.sandbox(PLAIN, "echo mine >/build/file; stat -c '%u %g' /build /build/file");
        sandbox.ids = yard.ids.with_swapped(1000, number).ok_or("no such ids")?;
        let View::Root(operations) = &mut sandbox.view else { return Err("no root".into()) };
        operations.push(Operation::HandOver { folder: "/build".into(), from: number, to: 1000 });
        assert_eq!(sandbox.run()?, "1000 1000\n1000 1000\n");
        writers.push(fs::symlink_metadata(yard.path("root/upper/build/file"))?.uid());
        kilnyard_root::tree::remove_tree(&yard.path("root/upper/build"))?;
    }
    assert!(writers[0] != writers[1] && !writers.contains(&builder.unwrap()), "{writers:?}");
    Ok(())
}

fn an_ordinary_user_has_no_way_to_privileges(yard: &Yard) -> Result<(), Failed> {
    let status = yard.run(PLAIN, "id -u; grep -E '^(CapEff|CapPrm|NoNewPrivs|Groups)' /proc/self/status")?;
    let words: Vec<&str> = status.split_whitespace().collect();
    assert_eq!(words[0], "1000");
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(status.contains("CapEff:\t0000000000000000"), "{status}");
    assert!(status.contains("CapPrm:\t0000000000000000"), "{status}");
    Ok(())
}

fn root_inside_may_install_but_not_mount(yard: &Yard) -> Result<(), Failed> {
    let script = "mkdir /x && touch /x/f && chown 7:7 /x/f && chmod 4755 /x/f && stat -c '%u %a' /x/f";
    assert_eq!(yard.run(User::Root, script)?, "7 4755\n");
    root_inside_may_not_mount(yard)
}

fn root_inside_may_not_mount(yard: &Yard) -> Result<(), Failed> {
    // Read-only mounts stay read-only, and new file systems cannot be mounted.
    for script in
        ["mount -t tmpfs none /tmp", "mount -o remount,rw /sys", "unshare --mount true", "mknod /x b 7 0"]
    {
        let Err(RunError::Command { code, .. }) = yard.run(User::Root, script) else {
            return Err(format!("{script} was allowed").into());
        };
        assert_ne!(code, 127, "{script}: command not found");
    }
    Ok(())
}

fn sockets_of_the_machine_are_out_of_reach(yard: &Yard) -> Result<(), Failed> {
    use std::os::linux::net::SocketAddrExt;
    let name = format!("kilnyard-trial-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name)?;
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address)?;
    let python = format!(
        "import socket, sys\ns = socket.socket(socket.AF_UNIX)\ntry: s.connect('\\0{name}')\nexcept OSError as e: sys.exit(e.errno)"
    );
    let mut sandbox = yard.sandbox(User::Root, &format!("exec python3 -c \"{python}\""));
    let mut errno = |has_network| {
        sandbox.has_network = has_network;
        match sandbox.run() {
            Ok(_) => Ok(0),
            Err(RunError::Command { code, .. }) => Ok(code),
            Err(error) => Err(error),
        }
    };
    // Without the machine's network the name does not exist; with it, the name exists and access is refused.
    assert_eq!(errno(false)?, libc::ECONNREFUSED);
    // SAFETY: this call returns the ABI version and accesses no memory.
    let version = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<u8>(), 0, 1) };
    match version >= 6 {
        true => assert_eq!(errno(true)?, libc::EPERM),
        false => eprintln!("skipped: this kernel cannot deny access to abstract sockets"),
    }
    Ok(())
}

fn one_id_is_enough(_: &Yard) -> Result<(), Failed> {
    // SAFETY: the calls have no preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let yard = Yard::with(IdMap::alone(user, group));
    // For an ordinary user the machine's files belong to an unmapped user, which appears as 65534.
    let owner = if user == 0 { "0:0" } else { "65534:65534" };
    assert_eq!(
        yard.run(User::Root, "id -u; stat -c %u:%g /usr/bin; test -e /dev/pts/ptmx; echo $?")?,
        format!("0\n{owner}\n0\n")
    );
    let Err(RunError::Command { .. }) = yard.run(User::Root, "touch /x && chown 7 /x") else {
        return Err("chown to an unmapped id succeeded".into());
    };
    an_ordinary_user_has_no_way_to_privileges(&yard)?;
    assert_eq!(yard.run(PLAIN, "id -g; touch /tmp/mine && stat -c %u:%g /tmp/mine")?, "1000\n1000:1000\n");
    let outside = std::os::unix::fs::MetadataExt::uid(&fs::metadata(yard.path("root/upper/tmp/mine"))?);
    assert_eq!(outside, user);
    root_inside_may_not_mount(&yard)
}

fn a_sealed_root_is_writable_only_where_open() -> Result<(), Failed> {
    // SAFETY: the calls have no preconditions.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let yard = Yard::with(IdMap::alone(user, group));
    for part in ["base/etc", "base/work"] {
        yard.make(part);
    }
    fs::write(yard.path("base/etc/motd"), "kept")?;
    std::os::unix::fs::symlink("etc", yard.path("base/link"))?;
    let script = "for x in /x /etc/motd /link/motd; do echo y > $x && echo wrote $x; done 2>&1
touch /work/a /tmp/b /dev/shm/c && cat /etc/motd";
    let mut sandbox = yard.sandbox(PLAIN, script);
    let View::Root(operations) = &mut sandbox.view else { return Err("no root".into()) };
    operations.push(Operation::Seal { open: ["/work", "/tmp", "/link", "/none"].map(PathBuf::from).into() });
    let said = sandbox.run()?;
    assert_eq!(said.matches("Read-only file system").count(), 3, "{said}");
    assert!(!said.contains("wrote") && said.ends_with("\nkept"), "{said}");
    assert_eq!(
        (yard.path("root/upper/work/a").exists(), yard.path("root/upper/tmp/b").exists()),
        (true, true)
    );
    Ok(())
}

fn a_program_starts_with_default_signals(yard: &Yard) -> Result<(), Failed> {
    // Rust test programs ignore SIGPIPE, and inherit the user's umask. The C library reserves signals 32 and 33 for
    // itself, and posix_spawn(3) leaves them ignored.
    let seen = yard
        .run(PLAIN, "umask; sed -n 's/^SigIgn:.*\\(.\\{8\\}\\)$/\\1/p' /proc/self/status; yes | head -n 1")?;
    assert!(["0022\n00000000\ny\n", "0022\n80000000\ny\n"].contains(&seen.as_str()), "{seen}");
    Ok(())
}

fn a_shell_cannot_insert_terminal_input(yard: &Yard) -> Result<(), Failed> {
    // Without the filter, the request would fail with ENOTTY (25), not with EPERM (1).
    let python =
        "import fcntl, sys\ntry: fcntl.ioctl(0, 0x5412, b'x')\nexcept OSError as e: sys.exit(e.errno)";
    let mut sandbox = yard.sandbox(PLAIN, &format!("exec python3 -c \"{python}\" < /dev/null"));
    sandbox.is_interactive = true;
    let code = |mut command: Command| Ok(command.status()?.code().unwrap());
    assert_eq!(sandbox.run_interactively(&yard.path("specification"), code)?, 1);
    sandbox.task = Task::Program(["/bin/sh", "-c", "exit 5"].map(str::to_owned).into());
    assert_eq!(sandbox.run_interactively(&yard.path("specification"), code)?, 5);
    Ok(())
}

fn the_machine_is_out_of_sight(yard: &Yard) -> Result<(), Failed> {
    fs::write(yard.path("secret"), "secret")?;
    let seen =
        yard.run(User::Root, "ls /; ls /proc | grep -c '^[0-9]'; cut -d' ' -f5 /proc/self/mountinfo")?;
    assert!(!seen.contains("secret") && !seen.contains("root\n"), "{seen}");
    assert!(!seen.contains(&yard.folder.path().display().to_string()), "{seen}");
    let mounts_here = fs::read_to_string("/proc/self/mountinfo")?;
    assert!(!mounts_here.contains(&yard.folder.path().display().to_string()), "a mount leaked");
    let denied = yard.run(
        User::Root,
        "echo 1 > /proc/sys/kernel/panic && echo written; mount -t proc p /proc 2>&1; true",
    )?;
    assert!(!denied.contains("written"), "{denied}");
    Ok(())
}

fn there_is_no_network_but_loopback(yard: &Yard) -> Result<(), Failed> {
    let devices = yard.run(User::Root, "cat /proc/net/dev | tail -n +3; cat /proc/net/route | tail -n +2")?;
    assert_eq!(devices.lines().count(), 1, "{devices}");
    assert!(devices.trim_start().starts_with("lo:"), "{devices}");
    let up = yard.run(User::Root, "cat /proc/net/fib_trie")?;
    assert!(up.contains("127.0.0.1"), "loopback is down: {up}");
    Ok(())
}

fn writes_go_to_the_upper_layer(yard: &Yard) -> Result<(), Failed> {
    yard.run(User::Root, "mkdir /made && echo text > /made/file && chown 1000:1000 /made/file")?;
    assert_eq!(fs::read_to_string(yard.path("root/upper/made/file"))?, "text\n");
    assert!(!yard.path("base/made").exists());
    // The next stage of the same build sees the file.
    assert_eq!(yard.run(PLAIN, "cat /made/file; stat -c %u /made/file")?, "text\n1000\n");
    let mut sandbox = yard.sandbox(User::Root, "");
    sandbox.view = View::Machine;
    sandbox.task = Task::Remove(vec!["root".into()]);
    sandbox.run()?;
    assert_eq!(fs::read_dir(yard.path("root"))?.count(), 0);
    Ok(())
}

fn hundreds_of_layers_can_be_stacked(yard: &Yard) -> Result<(), Failed> {
    const COUNT: usize = 400;
    // Special characters of mount(2), and a name longer than the kernel's limit for a value.
    let odd =
        ["layers/a,b:c\\d \"e\" =f".to_owned(), format!("layers/{}/{}", "n".repeat(150), "n".repeat(150))];
    let names: Vec<String> =
        (odd.into_iter().chain((2..COUNT).map(|number| format!("layers/{number}")))).collect();
    for (number, name) in names.iter().enumerate() {
        fs::create_dir_all(yard.path(name).join("of-layers"))?;
        fs::write(yard.path(name).join(format!("of-layers/{number}")), "")?;
        fs::write(yard.path(name).join("of-layers/top"), number.to_string())?;
    }
    let sandbox = |names: &[String]| {
        let mut sandbox = yard.sandbox(PLAIN, "ls /of-layers | wc -l; cat /of-layers/top");
        let View::Root(operations) = &mut sandbox.view else { unreachable!() };
        let Some(Operation::Overlay { lower, .. }) = operations.first_mut() else { unreachable!() };
        lower.splice(0..0, names.iter().map(PathBuf::from));
        sandbox
    };
    assert_eq!(sandbox(&names).run()?, format!("{}\n0", COUNT + 1));
    let many = vec!["layers/2".to_owned(); 500];
    let error = sandbox(&many).run().unwrap_err().to_string();
    assert!(error.ends_with("501 layers are too many: an overlay has at most 500"), "{error}");
    Ok(())
}

/// Prints the results of flushing calls on invalid arguments; the last call does not wait, so it never flushes.
const FLUSH: &str = "import ctypes
libc = ctypes.CDLL(None)
page = ctypes.c_void_p(4096)
print(libc.fsync(-1), libc.fdatasync(-1), libc.syncfs(-1), libc.sync_file_range(-1, 0, 0, 0),
      libc.msync(page, 4096, 4), libc.msync(page, 4096, 1))";

fn flushes_are_discarded_unless_kept(yard: &Yard) -> Result<(), Failed> {
    for user in [User::Root, PLAIN] {
        let script = format!("sync && exec python3 -c '{FLUSH}'");
        let mut sandbox = yard.sandbox(user, &script);
        assert_eq!(sandbox.run()?, "0 0 0 0 0 -1\n");
        sandbox.flushes = Flushes::Keep;
        assert_eq!(sandbox.run()?, "-1 -1 -1 -1 -1 -1\n");
    }
    // The filter does not affect the process that made the roots.
    let outside = Command::new("python3").args(["-c", FLUSH]).output()?;
    assert_eq!(String::from_utf8_lossy(&outside.stdout), "-1 -1 -1 -1 -1 -1\n");
    Ok(())
}

/// A 64-bit program can also use 32-bit system calls: fsync(-1) by `int 0x80`.
fn flushes_of_other_architectures_are_discarded(yard: &Yard) -> Result<(), Failed> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(());
    }
    let script = "exec python3 -c 'import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex(\"53b876000000bbffffffffcd805bc3\"))
at = ctypes.addressof(ctypes.c_char.from_buffer(code))
print(ctypes.CFUNCTYPE(ctypes.c_int)(at)())'";
    let mut sandbox = yard.sandbox(PLAIN, script);
    sandbox.flushes = Flushes::Keep;
    match sandbox.run() {
        Ok(text) => assert_eq!(text, "-9\n"),
        // A kernel without 32-bit system calls kills the program.
        Err(RunError::Command { code: 139, .. }) => return Ok(()),
        Err(error) => return Err(error.into()),
    }
    sandbox.flushes = Flushes::Discard;
    assert_eq!(sandbox.run()?, "0\n");
    Ok(())
}

/// Prints the results of system calls by their x86_64 numbers.
const CALLS: &str = "import ctypes, errno, socket
libc = ctypes.CDLL(None, use_errno=True)
def call(*arguments):
    ctypes.set_errno(0)
    value = libc.syscall(*(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    return errno.errorcode.get(ctypes.get_errno(), str(value))
def made(*family):
    try: socket.socket(*family); return True
    except OSError as e: return errno.errorcode[e.errno]
print(call(272, 0x10000000), call(56, 0x10000011, 0, 0, 0, 0), call(435, 0, 88))
print(call(425, 1, 0), call(323, 0), call(321, 0, 0, 0), call(298, 0, 0, -1, -1, 0), call(250, 0, -3, 0))
print(call(175, 0, 0, 0), call(165, b'none', b'/tmp', b'tmpfs', 0, 0), call(304, -1, 0, 0), call(103, 2, 0, 0))
print(made(38, socket.SOCK_SEQPACKET), made(16, socket.SOCK_RAW, 9), made(40, socket.SOCK_STREAM))
print(made(socket.AF_UNIX), made(socket.AF_INET), made(socket.AF_INET6), made(16, socket.SOCK_RAW, 0))";

fn has_known_numbers() -> bool {
    let is_known = cfg!(target_arch = "x86_64");
    if !is_known {
        eprintln!("skipped: the test has system call numbers only for x86_64");
    }
    is_known
}

fn calls_that_builds_do_not_need_are_refused(yard: &Yard) -> Result<(), Failed> {
    if !has_known_numbers() {
        return Ok(());
    }
    for user in [User::Root, PLAIN] {
        let script = format!("exec python3 - <<'END'\n{CALLS}\nEND");
        let mut child = yard.sandbox(user, &script).spawn()?;
        let mut text = String::new();
        child.stdout.take().unwrap().read_to_string(&mut text)?;
        let expected = "EPERM EPERM ENOSYS
ENOSYS ENOSYS EPERM EPERM ENOSYS
EPERM EPERM EPERM EPERM
EAFNOSUPPORT EAFNOSUPPORT EAFNOSUPPORT
True True True True
";
        assert_eq!(text, expected, "{user:?}");
        let reports = reports(child);
        let counted = reports.iter().find_map(|report| match report {
            Report::Refused { calls } => Some(calls.clone()),
            _ => None,
        });
        let counted = counted.ok_or("no refused call was reported")?;
        let count = |name: &str| counted.iter().find(|(call, _)| call == name).map_or(0, |(_, count)| *count);
        assert_eq!((count("socket"), count("unshare"), count("clone"), count("mount")), (3, 1, 1, 1));
        assert_eq!((count("keyctl"), count("bpf"), count("clone3")), (1, 1, 0), "{counted:?}");
    }
    Ok(())
}

/// keyctl(2) by `int 0x80`, the system call instruction of 32-bit programs.
fn refused_calls_of_other_architectures_fail_too(yard: &Yard) -> Result<(), Failed> {
    if !has_known_numbers() {
        return Ok(());
    }
    let script = "exec python3 -c 'import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex(\"53b820010000bb00000000cd805bc3\"))
at = ctypes.addressof(ctypes.c_char.from_buffer(code))
print(ctypes.CFUNCTYPE(ctypes.c_int)(at)())'";
    match yard.run(PLAIN, script) {
        Ok(text) => assert_eq!(text, format!("-{}\n", libc::ENOSYS)),
        // A kernel without 32-bit system calls kills the program.
        Err(RunError::Command { code: 139, .. }) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(())
}

fn packages_that_may_nest_make_namespaces(yard: &Yard) -> Result<(), Failed> {
    let script = "unshare --user --map-root-user --mount sh -c 'mount -t tmpfs none /tmp && echo mounted'";
    for user in [User::Root, PLAIN] {
        let mut sandbox = yard.sandbox(user, script);
        assert!(matches!(sandbox.run(), Err(RunError::Command { code: 1, .. })));
        sandbox.nesting = Nesting::Allowed;
        assert_eq!(sandbox.run()?, "mounted\n", "{user:?}");
    }
    Ok(())
}

/// Each refused call notifies process 1, which must still be able to end the command.
fn a_flood_of_refused_calls_ends_with_its_command(yard: &Yard) -> Result<(), Failed> {
    if !has_known_numbers() {
        return Ok(());
    }
    let flood = "import ctypes\nlibc = ctypes.CDLL(None)\nwhile True: libc.syscall(321, 0, 0, 0)";
    let script = format!("python3 -c '{flood}' & python3 -c '{flood}' & sleep 1");
    let began = Instant::now();
    let reports = reports(yard.sandbox(PLAIN, &script).spawn()?);
    assert!(began.elapsed() < Duration::from_secs(60), "it took {:?}", began.elapsed());
    let is_counted = |report: &Report| match report {
        Report::Refused { calls } => calls.iter().any(|(name, count)| name == "bpf" && *count > 100),
        _ => false,
    };
    assert!(reports.iter().any(is_counted), "{reports:?}");
    assert!(reports.iter().any(|report| matches!(report, Report::Ended { code: 0, .. })), "{reports:?}");
    Ok(())
}

fn reports(mut child: std::process::Child) -> Vec<Report> {
    let mut log = String::new();
    if let Some(mut stdout) = child.stdout.take() {
        stdout.read_to_string(&mut log).unwrap();
    }
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let reports = lines.map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    child.wait().unwrap();
    reports
}

fn processes_left_behind_are_named_and_ended(yard: &Yard) -> Result<(), Failed> {
    let child = yard.sandbox(User::Root, "setsid sleep 4242 >/dev/null 2>&1 & sleep 0.3").spawn()?;
    let reports = reports(child);
    let named = reports.iter().find_map(|report| match report {
        Report::LeftBehind { processes, .. } => Some(processes.clone()),
        _ => None,
    });
    let named = named.ok_or("no leftover process was reported")?;
    assert_eq!(named.len(), 1, "{named:?}");
    assert_eq!(named[0].line, "sleep 4242");
    assert_eq!(named[0].directory.as_deref(), Some("/"));
    assert_eq!(processes_with("4242"), 0);
    Ok(())
}

fn the_starter_of_a_daemon_is_reported_after_its_end(yard: &Yard) -> Result<(), Failed> {
    // A daemon in its own session, whose parent ended a second ago, and which ignores SIGTERM.
    let script = "sh -c 'sh -c \"trap : TERM; sleep 0.6; (setsid sh -c \\\"trap : TERM; sleep 4949; :\\\" &)\" & sleep 1.5; exit 0'; exit 0";
    let reports = reports(yard.sandbox(User::Root, script).spawn()?);
    let named = reports.iter().find_map(|report| match report {
        Report::LeftBehind { processes, .. } => Some(processes.clone()),
        _ => None,
    });
    let named = named.ok_or("no leftover process was reported")?;
    let daemon = named.iter().find(|left| left.line.starts_with("sh -c trap")).ok_or(format!("{named:?}"))?;
    let sleeper = named.iter().find(|left| left.line == "sleep 4949").ok_or(format!("{named:?}"))?;
    assert!(sleeper.started_by[0].starts_with(&format!("{} ({})", daemon.line, daemon.number)), "{named:?}");
    assert_eq!(processes_with("4949"), 0);
    Ok(())
}

fn resource_usage_is_reported_last(yard: &Yard) -> Result<(), Failed> {
    let script = "for i in 1 2 3 4 5; do true | true; done; head -c 3000000 /dev/zero > /f; \
                  echo x > /dev/shm/left; ipcmk -Q > /dev/null; :";
    let reports = reports(yard.sandbox(User::Root, script).spawn()?);
    let [
        ..,
        Report::LeftInMemory { things },
        Report::Used { created, written_bytes, .. },
        Report::Ended { code: 0, .. },
    ] = &reports[..]
    else {
        return Err(format!("{reports:?}").into());
    };
    // The command itself, two for each of five pipes, head, ipcmk.
    assert_eq!(*created, 13, "{reports:?}");
    // Without I/O accounting the value is absent, not 0.
    let is_counted = fs::read_to_string("/proc/self/io").is_ok_and(|text| text.contains("write_bytes: "));
    assert_eq!(written_bytes.is_some(), is_counted, "{written_bytes:?}");
    // A root in memory does not write to a disk.
    assert!(written_bytes.is_none_or(|bytes| bytes == 0 || bytes >= 3_000_000), "{written_bytes:?}");
    assert_eq!(things[0], "/dev/shm/left of 2 bytes");
    assert!(things[1].starts_with("System V message queue "), "{things:?}");
    Ok(())
}

fn the_limit_of_processes_holds(yard: &Yard) -> Result<(), Failed> {
    let bounds = Bounds { processes_max: Some(20), ..Bounds::default() };
    // Process 1 counts for root. Each sandbox is counted separately.
    for (user, expected) in [(User::Root, 17), (PLAIN, 18), (User::Root, 17)] {
        let script = "(for i in $(seq 40); do sleep 4545 & echo begun; done) 2> /dev/null; exit 0";
        let mut child = yard.sandbox(user, script).spawn_within(bounds, &Groups::default(), &|_| {})?;
        let mut log = String::new();
        child.stdout.take().unwrap().read_to_string(&mut log)?;
        child.wait()?;
        assert_eq!(log.lines().count(), expected, "{user:?}");
    }
    assert_eq!(processes_with("4545"), 0);
    Ok(())
}

fn a_process_that_ignores_sigterm_is_killed(yard: &Yard) -> Result<(), Failed> {
    // The shell would report that its child was terminated too.
    let script = "exec 2> /dev/null; trap 'echo asked' TERM; echo ready; while :; do sleep 0.1; done";
    let mut child =
        yard.sandbox(PLAIN, script).spawn_within(Bounds::default(), &Groups::default(), &|_| {})?;
    let mut log = BufReader::new(child.stdout.take().unwrap());
    let mut said = String::new();
    log.read_line(&mut said)?;
    child.stdin.take().unwrap().write_all(&[Order::End.byte()])?;
    log.read_to_string(&mut said)?;
    assert_eq!(said, "ready\nasked\n", "SIGTERM came once, then the process was killed");
    assert_eq!(child.wait()?.code(), Some(137));
    Ok(())
}

fn processes_with(argument: &str) -> usize {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries
        .filter_map(|entry| fs::read(entry.path().join("cmdline")).ok())
        .filter(|line| line.split(|b| *b == 0).any(|part| part == argument.as_bytes()))
        .count()
}

fn killing_the_outer_process_ends_all(yard: &Yard) -> Result<(), Failed> {
    let mut child = yard.sandbox(PLAIN, "echo ready; setsid sleep 4343 & sleep 4343").spawn()?;
    let mut line = String::new();
    let mut log = BufReader::new(child.stdout.take().unwrap());
    log.read_line(&mut line)?;
    assert_eq!(line, "ready\n");
    let deadline = Instant::now() + Duration::from_secs(20);
    while processes_with("4343") < 2 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill()?;
    child.wait()?;
    while processes_with("4343") > 0 {
        assert!(Instant::now() < deadline, "processes outlive their sandbox");
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn memory_is_sampled_and_time_is_counted(yard: &Yard) -> Result<(), Failed> {
    let script = "head -c 200000000 /dev/zero | tail -c 150000000 | sleep 1";
    let reports = reports(yard.sandbox(PLAIN, script).spawn()?);
    let peak = reports.iter().filter_map(|report| match report {
        Report::Sample { memory_bytes, .. } => Some(*memory_bytes),
        _ => None,
    });
    assert!(peak.max().unwrap_or(0) > 100_000_000, "{reports:?}");
    let Some(Report::Ended { user_seconds, system_seconds, code, largest_bytes }) = reports.last() else {
        return Err("no end".into());
    };
    assert_eq!(*code, 0);
    assert!(user_seconds + system_seconds > 0.0 && *largest_bytes > 100_000_000, "{reports:?}");
    Ok(())
}

fn a_refused_step_is_named(yard: &Yard) -> Result<(), Failed> {
    let mut sandbox = yard.sandbox(User::Root, "true");
    let View::Root(operations) = &mut sandbox.view else { unreachable!() };
    operations
        .insert(0, Operation::Bind { source: "nowhere".into(), target: "base".into(), access: Access::Read });
    let error = sandbox.run().unwrap_err().to_string();
    assert!(error.starts_with("failed to bind nowhere at base"), "{error}");
    Ok(())
}

fn a_missing_command_is_named(yard: &Yard) -> Result<(), Failed> {
    let mut sandbox = yard.sandbox(PLAIN, "");
    sandbox.task = Task::Program(vec!["/no/such".into()]);
    let error = sandbox.run().unwrap_err().to_string();
    assert!(error.contains("failed to run /no/such"), "{error}");
    Ok(())
}

fn exit_codes_and_signals_come_through(yard: &Yard) -> Result<(), Failed> {
    for (script, expected) in [("exit 7", 7), ("kill -9 $$", 137)] {
        match yard.run(PLAIN, script) {
            Err(RunError::Command { code, .. }) => assert_eq!(code, expected),
            other => return Err(format!("{script}: {other:?}").into()),
        }
    }
    Ok(())
}
