//! A command in a root inherits from the process that started Kilnyard only what `docs/security.md` lists.
//!
//! A process that has changed everything it can (descriptors, keyrings, signals, limits, personality, scheduling)
//! starts a sandbox, whose command prints its own state.

use kilnyard_root::sandbox::Task;
use kilnyard_root::{
    Access, Flushes, IdMap, Making, Nesting, Operation, RootPlan, Sandbox, User, View, probe,
};
use libtest_mimic::{Arguments, Failed, Trial};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The argument that starts this program as the caller to inherit from.
const CALLER: &str = "kilnyard-trial-caller";

fn main() {
    kilnyard_root::sandbox::become_sandbox_if_asked();
    let mut words = std::env::args().skip(1);
    if words.next().as_deref() == Some(CALLER) {
        let user = if words.next().as_deref() == Some("root") { User::Root } else { PLAIN };
        print!("{}", run_as_caller(user));
        return;
    }
    let arguments = Arguments::from_args();
    let lack = missing();
    let mut trials = Vec::new();
    for user in ["root", "builder"] {
        let test = |name: &str, check: fn(&Inherited) -> Result<(), Failed>| {
            let name = format!("{name}_{user}");
            Trial::test(name, move || check(&Inherited::by(user))).with_ignored_flag(lack.is_some())
        };
        trials.extend([
            test("a_build_has_no_descriptor_of_the_caller", descriptors),
            test("keyrings_of_the_caller_are_out_of_reach", keyrings),
            test("only_listed_state_is_inherited", attributes),
        ]);
    }
    let conclusion = libtest_mimic::run(&arguments, trials);
    if let Some(reason) = lack {
        eprintln!("skipped: all tests of inherited state: {reason}");
    }
    conclusion.exit();
}

const PLAIN: User = User::Plain { user: 1000, group: 1000 };

fn missing() -> Option<String> {
    let folder = tempfile::tempdir().ok()?;
    open(folder.path());
    let (ids, lack) = IdMap::of_this_user(&std::env::var("USER").unwrap_or_default(), 0);
    if let Some(lack) = lack {
        return Some(lack.to_string());
    }
    if !Path::new("/usr/bin/python3").exists() {
        return Some("python3 is not installed".to_owned());
    }
    probe::try_root(folder.path(), &ids, &Making::default()).err().map(|error| error.to_string())
}

fn open(folder: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Prints `name value` lines, one for each property that fork or exec passes on.
const SCRIPT: &str = r#"
import ctypes, os, resource, sys
libc = ctypes.CDLL(None, use_errno=True)
for number in sorted(os.listdir("/proc/self/fd"), key=int):
    try:
        print("descriptor", number, os.readlink(f"/proc/self/fd/{number}").split(":")[0])
    except FileNotFoundError:
        pass # The descriptor that listed the folder.
for line in open("/proc/self/status"):
    name, value = line.split(":", 1)
    if name in ("SigBlk", "SigIgn", "CapInh", "CapAmb", "NoNewPrivs", "Groups"):
        print(name, value.strip())
print("personality", open("/proc/self/personality").read().strip())
print("oom_score_adj", open("/proc/self/oom_score_adj").read().strip())
print("timerslack", libc.prctl(30, 0, 0, 0, 0))
print("thp_disable", libc.prctl(42, 0, 0, 0, 0))
print("policy", os.sched_getscheduler(0))
print("nice", os.nice(0))
print("umask", oct(os.umask(0)))
for name in ("CORE", "NOFILE", "STACK", "FSIZE", "RTPRIO", "NICE"):
    soft, hard = resource.getrlimit(getattr(resource, "RLIMIT_" + name))
    print("limit", name, soft, hard)
print("environment", *sorted(name for name in os.environ if name not in ("PWD", "SHLVL", "_", "OLDPWD", "LC_CTYPE")))
SEARCH, DESCRIBE, KEYCTL = 10, 6, 250
libc.syscall.restype = ctypes.c_long
found = libc.syscall(ctypes.c_long(KEYCTL), ctypes.c_long(SEARCH), ctypes.c_long(-3), b"user", b"kilnyard-trial", ctypes.c_long(0))
print("key", "found" if found > 0 else os.strerror(ctypes.get_errno()))
"#;

/// Changes everything in this process that fork and exec could pass on, then runs the sandbox.
fn run_as_caller(user: User) -> String {
    const KEYRING: libc::c_int = -3;
    // SAFETY: the arguments are integers, constant strings and live structures; this process has one thread.
    unsafe {
        let secret = libc::open(c"/etc".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY);
        assert!(secret >= 0);
        for number in [4, 17, 900] {
            assert_eq!(libc::dup2(secret, number), number);
        }
        let no_name = std::ptr::null::<libc::c_char>();
        libc::syscall(libc::SYS_keyctl, 1, no_name);
        let key = libc::syscall(
            libc::SYS_add_key,
            c"user".as_ptr(),
            c"kilnyard-trial".as_ptr(),
            c"secret".as_ptr(),
            6_usize,
            KEYRING,
        );
        if key < 0 {
            eprintln!("note: this kernel refuses a key to the caller: {}", std::io::Error::last_os_error());
        }
        for signal in [libc::SIGINT, libc::SIGUSR1, libc::SIGCHLD + 1, 40, 64] {
            libc::signal(signal, libc::SIG_IGN);
        }
        libc::umask(0o077);
        libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong);
        libc::prctl(libc::PR_SET_TIMERSLACK, 7_000_000, 0, 0, 0);
        libc::prctl(libc::PR_SET_THP_DISABLE, 1, 0, 0, 0);
        libc::nice(3);
        let mut parameter: libc::sched_param = std::mem::zeroed();
        parameter.sched_priority = 1;
        // Some containers refuse it even to root.
        libc::sched_setscheduler(0, libc::SCHED_RR, &parameter);
        let core = libc::rlimit { rlim_cur: 1 << 20, rlim_max: libc::RLIM_INFINITY };
        libc::setrlimit(libc::RLIMIT_CORE, &core);
        let files = libc::rlimit { rlim_cur: 1 << 30, rlim_max: libc::RLIM_INFINITY };
        libc::setrlimit(libc::RLIMIT_FSIZE, &files);
        let mut open: libc::rlimit = std::mem::zeroed();
        libc::getrlimit(libc::RLIMIT_NOFILE, &mut open);
        open.rlim_cur = open.rlim_max.min(4000);
        libc::setrlimit(libc::RLIMIT_NOFILE, &open);
    }
    let _ = fs::write("/proc/self/oom_score_adj", "-500");
    // SAFETY: as above.
    unsafe { std::env::set_var("KILNYARD_TRIAL", "secret") };
    let folder = tempfile::tempdir().unwrap();
    open(folder.path());
    let ids = IdMap::of_this_user(&std::env::var("USER").unwrap_or_default(), 0).0;
    let make = |relative: &str| {
        let path = folder.path().join(relative);
        fs::create_dir_all(&path).unwrap();
        probe::give_to_root(&path, &ids).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    for part in ["base", "base/usr", "base/proc", "base/sys", "base/dev", "base/run", "base/tmp", "base/etc"]
    {
        make(part);
    }
    for part in ["root", "root/upper", "root/work", "root/merged"] {
        make(part);
    }
    for link in ["bin", "lib", "lib64", "sbin"] {
        std::os::unix::fs::symlink(format!("usr/{link}"), folder.path().join("base").join(link)).unwrap();
    }
    let plan = RootPlan::new(Path::new("root"), &["base".into()], &Making::default());
    let mut operations = plan.entering(&[]);
    let usr =
        Operation::Bind { source: "/usr".into(), target: "root/merged/usr".into(), access: Access::Read };
    operations.insert(1, usr);
    let sandbox = Sandbox {
        folder: folder.path().into(),
        ids,
        keeper: None,
        view: View::Root(operations),
        user,
        task: Task::Program(["/usr/bin/python3", "-Ic", SCRIPT].map(str::to_owned).into()),
        directory: "/".into(),
        environment: vec![("PATH".into(), "/usr/bin".into())],
        is_interactive: false,
        has_network: false,
        flushes: Flushes::Discard,
        nesting: Nesting::Refused,
    };
    sandbox.run().expect("the caller's sandbox runs")
}

/// The output of the command, by name.
struct Inherited(BTreeMap<String, Vec<String>>);

impl Inherited {
    fn by(user: &str) -> Inherited {
        let output = Command::new("/proc/self/exe").args([CALLER, user]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (name, value) in text.lines().filter_map(|line| line.split_once(' ')) {
            lines.entry(name.to_owned()).or_default().push(value.to_owned());
        }
        Inherited(lines)
    }

    fn one(&self, name: &str) -> &str {
        self.0.get(name).and_then(|values| values.first()).map_or("", String::as_str)
    }
}

fn descriptors(seen: &Inherited) -> Result<(), Failed> {
    assert_eq!(seen.0["descriptor"], ["0 /dev/null", "1 pipe", "2 pipe"]);
    Ok(())
}

fn keyrings(seen: &Inherited) -> Result<(), Failed> {
    assert_ne!(seen.one("key"), "found");
    assert_ne!(seen.one("key"), "");
    Ok(())
}

fn attributes(seen: &Inherited) -> Result<(), Failed> {
    let fixed = [
        ("SigBlk", "0000000000000000"),
        // Python ignores SIGPIPE and SIGXFSZ itself.
        ("SigIgn", "0000000001001000"),
        ("CapInh", "0000000000000000"),
        ("CapAmb", "0000000000000000"),
        ("NoNewPrivs", "1"),
        ("Groups", ""),
        ("personality", "00000000"),
        ("oom_score_adj", "0"),
        ("timerslack", "50000"),
        ("thp_disable", "0"),
        ("policy", "0"),
        ("umask", "0o22"),
        ("environment", "PATH"),
    ];
    for (name, value) in fixed {
        assert_eq!(seen.one(name), value, "{name}");
    }
    // A user who runs `nice kilnyard build` wants nice builds. The tests may run under nice, too.
    // SAFETY: it only reads the priority of this process.
    let own = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    assert_eq!(seen.one("nice"), (own + 3).min(19).to_string());
    let limits = &seen.0["limit"];
    for limit in ["CORE 1 1", "FSIZE -1 -1", "RTPRIO 0 0", "NICE 0 0"] {
        assert!(limits.iter().any(|line| line == limit), "{limit}: {limits:?}");
    }
    assert!(limits.iter().any(|line| line.starts_with("NOFILE 1024 ")), "{limits:?}");
    assert!(limits.iter().any(|line| line.starts_with("STACK 8388608 ")), "{limits:?}");
    Ok(())
}
