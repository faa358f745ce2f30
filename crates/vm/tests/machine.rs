//! Sandboxes in real virtual machines, with Debian's kernel. Roots use the machine's own `/usr`.

use kilnyard_model::order::Processor;
use kilnyard_process::{CommandOutcome, End, Limits, Passed, Watched, Writing};
use kilnyard_root::sandbox::Task;
use kilnyard_root::{
    Access, Flushes, Form, IdMap, Making, Nesting, Operation, Place, RootPlan, SHARED, Sandbox, User, View,
    probe,
};
use kilnyard_vm::{Accelerator, Image, Kernel, Machine, Shape, accelerator, missing_requirement};
use libtest_mimic::{Arguments, Trial};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const BOOTS_WITHIN: Duration = Duration::from_secs(60);
const PLAIN: User = User::Plain { user: 1000, group: 1000 };

/// The folder for kernels of an ordinary user, who cannot write to that of the tests.
const KERNELS_VARIABLE: &str = "KILNYARD_KERNELS";

/// The argument that starts this program as the one to be killed.
const VICTIM: &str = "kilnyard-victim";
/// The number of machines in a row, of which each fourth is killed; the variable overrides it.
const COUNT: usize = 4;
const COUNT_VARIABLE: &str = "KILNYARD_MACHINES";
/// Compiles and runs a program.
const COMPILES: &str = "cd /tmp; echo 'int puts(const char *); int main() { return puts(\"hello\") < 0; }' > a.c; \
                        if command -v gcc > /dev/null; then gcc -o a a.c && ./a; else echo hello; fi";

/// The folder for kernels, which outlives the test: the kernel is downloaded once.
fn kernels() -> PathBuf {
    let own = || Path::new(env!("CARGO_TARGET_TMPDIR")).join("kernels");
    std::env::var_os(KERNELS_VARIABLE).map_or_else(own, PathBuf::from)
}

fn main() {
    kilnyard_vm::become_guest_if_started_as_process_1();
    kilnyard_root::sandbox::become_sandbox_if_asked();
    kilnyard_process::become_inspector_if_asked();
    kilnyard_block::become_server_if_asked();
    be_killed_if_asked();
    let (ids, _) = IdMap::of_this_user(&std::env::var("USER").unwrap_or_default(), 0);
    let missing = missing_requirement(None, Some(&ids));
    if let Some(missing) = &missing {
        eprintln!("skipped: {missing}");
    }
    let tests: [(&str, fn()); 12] = [
        ("a_command_runs_as_in_a_sandbox_of_this_machine", as_in_a_sandbox),
        ("what_is_written_belongs_to_its_users_and_layers_stay", written),
        ("layers_can_be_an_image_on_a_disk", layers_on_a_disk),
        ("a_command_that_hangs_is_shown_from_inside", hangs),
        ("a_command_is_cancelled", cancelled),
        ("a_guest_that_is_killed_leaves_nothing", killed),
        ("a_machine_that_does_not_boot_is_named", does_not_boot),
        ("a_machine_has_the_network_only_if_its_sandbox_has_it", network),
        ("commands_of_a_machine_share_its_processors_by_a_jobserver", jobserver),
        ("machines_in_a_row_leave_nothing", in_a_row),
        ("a_machine_ends_with_the_process_that_started_it", parent_killed),
        ("an_ordinary_user_has_machines", of_an_ordinary_user),
    ];
    let trials = tests.map(|(name, test)| {
        let trial = Trial::test(name, move || {
            test();
            Ok(())
        });
        trial.with_ignored_flag(missing.is_some())
    });
    let mut trials: Vec<Trial> = trials.into();
    // `soak/foreign` has what it needs.
    if let Some(root) = std::env::var_os(FOREIGN_VARIABLE).map(PathBuf::from) {
        assert_eq!(missing_requirement(Some(Processor::Aarch64), None), None);
        trials.push(Trial::test("32_bit_programs_run_in_a_machine_with_another_processor", move || {
            foreign(&root);
            Ok(())
        }));
    }
    if let Some(root) = std::env::var_os(ROOT_VARIABLE).map(PathBuf::from) {
        trials.push(Trial::test("a_root_is_compiled_in_on_a_disk_and_shared", move || {
            on_a_disk_and_shared(&root);
            Ok(())
        }));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// An unpacked root of this architecture with gcc, to compare disks and shared folders in.
const ROOT_VARIABLE: &str = "KILNYARD_ROOT";
/// The number of such pairs.
const PAIRS: usize = 8;

fn on_a_disk_and_shared(root: &Path) {
    let yard = Yard::new();
    let owner = fs::metadata(yard.folder.path().join("base")).unwrap();
    let owner = format!("{}:{}", owner.uid(), owner.gid());
    assert!(Command::new("chown").arg("-hR").arg(owner).arg(root).status().unwrap().success());
    let making = Making { form: Form::Overlay, place: Place::Shared, flushes: Flushes::Discard };
    let plan = RootPlan::new(Path::new("roots/compiling"), &[root.to_owned()], &making);
    assert!(plan.make(yard.folder.path(), &yard.ids).unwrap().is_none());
    let shared = Sandbox { view: View::Root(plan.entering(&[])), ..yard.sandbox(PLAIN, COMPILES) };
    let (image, on_disk) = yard.on_disk(root, &shared);
    let folder = yard.folder.path().join("roots/compiling/machine");
    let mut seconds = [Vec::new(), Vec::new()];
    for number in 0..2 * PAIRS {
        fs::create_dir(&folder).unwrap();
        let (sandbox, image) = [(&shared, None), (&on_disk, Some(&image))][number % 2];
        let began = Instant::now();
        let mut machine =
            Machine::start(&shape(), &kernels(), &folder, &[sandbox], image, BOOTS_WITHIN).unwrap();
        let started = began.elapsed().as_secs_f64();
        let (outcome, text) = run(&mut machine, sandbox, wall(60.0), &AtomicBool::new(false));
        drop(machine);
        seconds[number % 2].push((began.elapsed().as_secs_f64(), started));
        assert_eq!((outcome.end, text.as_str()), (End::Exit(0), "hello\n"));
        fs::remove_dir_all(&folder).unwrap();
    }
    for (seconds, how) in seconds.iter_mut().zip(["shared", "on a disk"]) {
        seconds.sort_by(|one, other| one.partial_cmp(other).unwrap());
        let (all, started) = seconds[PAIRS / 2];
        eprintln!(
            "layers {how}: started after {started:.2} s, compiled and ended after {all:.2} s (median of {PAIRS})"
        );
    }
}

/// An unpacked root of Debian's armhf with gcc.
const FOREIGN_VARIABLE: &str = "KILNYARD_FOREIGN_ROOT";
/// Compiles six files, and runs what they are linked to.
const COMPILES_SIX: &str = "PATH=/usr/bin:/bin; cd /tmp; echo 'int main() { return 0; }' > 1.c; \
                            for i in 2 3 4 5 6; do echo \"int puts(const char *); int say$i() { return puts(\\\"hello\\\"); }\" > $i.c; done; \
                            for i in 1 2 3 4 5 6; do gcc -c $i.c || exit 1; done";
/// What the kernel and the programs are: 32 bits are class 1 of ELF.
const LINKS: &str = "PATH=/usr/bin:/bin; cd /tmp; gcc -o all *.o && ./all && uname -m; head -c 5 all | tail -c 1 | od -An -tu1 | tr -d ' '; \
                     cat /proc/sys/abi/cp15_barrier";

/// Raspbian's case: 32-bit programs on a 64-bit kernel for ARM.
fn foreign(root: &Path) {
    let kernel = Kernel::downloaded(&kernels(), Processor::Aarch64).unwrap();
    let accelerator = accelerator(&kernel, &kernels()).unwrap();
    let shape = Shape { kernel, accelerator, cores: 1, memory_bytes: Shape::MEMORY_BYTES };
    let yard = Yard::new();
    // The ids of its files are those of the yard's roots.
    let owner = fs::metadata(yard.folder.path().join("base")).unwrap();
    let owner = format!("{}:{}", owner.uid(), owner.gid());
    assert!(Command::new("chown").arg("-hR").arg(owner).arg(root).status().unwrap().success());
    let making = Making { form: Form::Overlay, place: Place::Shared, flushes: Flushes::Discard };
    let plan = RootPlan::new(Path::new("roots/foreign"), &[root.to_owned()], &making);
    assert!(plan.make(yard.folder.path(), &yard.ids).unwrap().is_none());
    let sandbox =
        |script: &str| Sandbox { view: View::Root(plan.entering(&[])), ..yard.sandbox(PLAIN, script) };
    let shared = [COMPILES_SIX, LINKS].map(sandbox);
    let on_disk = shared.each_ref().map(|sandbox| yard.on_disk(root, sandbox));
    let image = &on_disk[0].0;
    let folder = yard.folder.path().join("roots/foreign/machine");
    for round in 0..2 * PAIRS {
        fs::create_dir(&folder).unwrap();
        let began = Instant::now();
        let ([compile, link], image) = match round % 2 {
            0 => (shared.each_ref(), None),
            _ => (on_disk.each_ref().map(|(_, sandbox)| sandbox), Some(image)),
        };
        let mut machine =
            Machine::start(&shape, &kernels(), &folder, &[compile, link], image, BOOTS_WITHIN).unwrap();
        let started = began.elapsed().as_secs_f64();
        let cancel = AtomicBool::new(false);
        let (outcome, text) = run(&mut machine, compile, wall(120.0), &cancel);
        assert_eq!((outcome.end, text.as_str()), (End::Exit(0), ""));
        let compiled = began.elapsed().as_secs_f64();
        let (outcome, text) = run(&mut machine, link, wall(120.0), &cancel);
        assert_eq!((outcome.end, text.as_str()), (End::Exit(0), "aarch64\n1\n1\n"));
        drop(machine);
        let how = if image.is_some() { "on a disk" } else { "shared" };
        eprintln!("layers {how}: started after {started:.2} s, six files compiled after {compiled:.2} s");
        fs::remove_dir_all(&folder).unwrap();
    }
}

fn shape() -> Shape {
    static SHAPE: OnceLock<Shape> = OnceLock::new();
    let make = || {
        let kernel = Kernel::downloaded(&kernels(), Processor::OWN.unwrap()).unwrap();
        let accelerator = accelerator(&kernel, &kernels()).unwrap();
        Shape { kernel, accelerator, cores: 1, memory_bytes: Shape::MEMORY_BYTES }
    };
    SHAPE.get_or_init(make).clone()
}

struct Yard {
    folder: tempfile::TempDir,
    ids: IdMap,
    plan: RootPlan,
}

impl Yard {
    fn new() -> Yard {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let (ids, _) = IdMap::of_this_user(&std::env::var("USER").unwrap_or_default(), 0);
        for part in [
            "base",
            "base/usr",
            "base/proc",
            "base/sys",
            "base/dev",
            "base/run",
            "base/tmp",
            "base/etc",
            "roots",
        ] {
            fs::create_dir_all(folder.path().join(part)).unwrap();
            probe::give_to_root(&folder.path().join(part), &ids).unwrap();
        }
        fs::set_permissions(
            folder.path().join("base/tmp"),
            std::os::unix::fs::PermissionsExt::from_mode(0o1777),
        )
        .unwrap();
        fs::write(folder.path().join("base/etc/known"), "of the base\n").unwrap();
        probe::give_to_root(&folder.path().join("base/etc/known"), &ids).unwrap();
        for link in ["bin", "lib", "lib64", "sbin"] {
            std::os::unix::fs::symlink(format!("usr/{link}"), folder.path().join("base").join(link)).unwrap();
        }
        let making = Making { form: Form::Overlay, place: Place::Shared, flushes: Flushes::Discard };
        let plan = RootPlan::new(Path::new("roots/1"), &["base".into()], &making);
        assert!(plan.make(folder.path(), &ids).unwrap().is_none());
        Yard { folder, ids, plan }
    }

    fn sandbox(&self, user: User, script: &str) -> Sandbox {
        let mut operations = self.plan.entering(&[]);
        let target = self.plan.root.join("usr");
        operations.insert(1, Operation::Bind { source: "/usr".into(), target, access: Access::Read });
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

    fn machine(&self, sandbox: &Sandbox) -> Machine {
        let folder = self.folder.path().join("roots/1/machine");
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir(&folder).unwrap();
        Machine::start(&shape(), &kernels(), &folder, &[sandbox], None, BOOTS_WITHIN).unwrap()
    }

    /// An image of a folder of the yard, for `image` in it, and a sandbox that has it in the place of the folder.
    fn on_disk(&self, folder: &Path, sandbox: &Sandbox) -> (Image, Sandbox) {
        let file = self.folder.path().join("image");
        if !file.exists() {
            let packed = self.folder.path().join("packed");
            fs::create_dir(&packed).unwrap();
            std::os::unix::fs::symlink(folder, packed.join("link")).unwrap();
            let mut command = Command::new("mkfs.erofs");
            assert!(command.arg("--quiet").arg(&file).arg(packed.join("link/")).status().unwrap().success());
        }
        let (at, mut sandbox) = (self.folder.path().join("mounted"), sandbox.clone());
        if let View::Root(operations) = &mut sandbox.view {
            for operation in operations {
                if let Operation::Overlay { lower, .. } = operation {
                    *lower.last_mut().unwrap() = "mounted".into();
                }
            }
        }
        (Image { file, at }, sandbox)
    }

    fn run(&self, user: User, script: &str, limits: Limits) -> (CommandOutcome, String) {
        let sandbox = self.sandbox(user, script);
        let mut machine = self.machine(&sandbox);
        let (outcome, text) = run(&mut machine, &sandbox, limits, &AtomicBool::new(false));
        (outcome, text)
    }

    fn upper(&self, name: &str) -> PathBuf {
        self.folder.path().join("roots/1").join(SHARED).join("upper").join(name)
    }
}

fn run(
    machine: &mut Machine,
    sandbox: &Sandbox,
    limits: Limits,
    cancel: &AtomicBool,
) -> (CommandOutcome, String) {
    let mut output = Vec::new();
    let watched = Watched { limits, writing: &Writing::default(), cancel, membership: None };
    let outcome = machine.run(sandbox, &mut output, watched, &AtomicU64::new(0), &mut |_| ());
    (outcome, String::from_utf8_lossy(&output).into_owned())
}

fn wall(seconds: f64) -> Limits {
    Limits::of_wall(seconds)
}

fn as_in_a_sandbox() {
    let yard = Yard::new();
    let script = "id -u; hostname; nproc; cat /etc/known; ls /sys/class/net /work /home 2>&1 | sort | head -3; \
                  uname -r; seq 100000 | tail -1; exit 3";
    let began = Instant::now();
    let (outcome, text) = yard.run(User::Root, script, wall(60.0));
    eprintln!("{} in {:.1} s", shape().accelerator, began.elapsed().as_secs_f64());
    assert_eq!(outcome.end, End::Exit(3), "{text}");
    let here = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert!(text.starts_with("0\nkilnyard\n1\nof the base\n") && text.contains("100000\n"), "{text}");
    assert!(!text.contains(here.trim()) && text.contains("-cloud-amd64"), "{text}");
    assert!(outcome.created > 2 && outcome.cpu_seconds > 0.0 && outcome.memory_peak_bytes > 0, "{outcome:?}");
    // Namespaces, filters and privileges are those of a sandbox.
    let (outcome, text) = yard.run(
        PLAIN,
        "id -u; mount -t tmpfs x /tmp 2>&1; unshare -r true 2>&1; cat /proc/1/uid_map",
        wall(60.0),
    );
    assert_eq!(outcome.end, End::Exit(0), "{text}");
    assert!(
        text.starts_with("1000\n") && text.contains("must be superuser") && text.contains("unshare failed"),
        "{text}"
    );
}

fn written() {
    let yard = Yard::new();
    let script = "echo own > /tmp/own; mkdir /tmp/d; mv /tmp/own /tmp/d/own; ln /tmp/d/own /tmp/link; echo changed > /etc/known";
    let (outcome, text) = yard.run(User::Root, script, wall(60.0));
    assert_eq!((outcome.end, text.as_str()), (End::Exit(0), ""));
    let (outcome, text) =
        yard.run(PLAIN, "echo mine > /tmp/mine; cat /tmp/d/own /etc/known; chmod 4711 /tmp/mine", wall(60.0));
    assert_eq!((outcome.end, text.as_str()), (End::Exit(0), "own\nchanged\n"));
    let (first, _, _) = yard.ids.users[0];
    assert_eq!(first, 0);
    let outside = |id| yard.ids.user_outside(id).unwrap();
    let owner = |name: &str| fs::metadata(yard.upper(name)).unwrap().uid();
    assert_eq!((owner("tmp/d/own"), owner("tmp/mine")), (outside(0), outside(1000)));
    assert_eq!(fs::metadata(yard.upper("tmp/link")).unwrap().nlink(), 2);
    assert_eq!(fs::metadata(yard.upper("tmp/mine")).unwrap().mode() & 0o7777, 0o4711);
    assert_eq!(fs::read_to_string(yard.folder.path().join("base/etc/known")).unwrap(), "of the base\n");
    // Whatever the guest's kernel does: this machine does not let it write to a layer, or see anything else.
    let sandbox = yard.sandbox(User::Root, "true");
    let machine = yard.machine(&sandbox);
    let share = machine.processes()[1];
    let mounts = fs::read_to_string(format!("/proc/{share}/mountinfo")).unwrap();
    let options = |path: &str| {
        let line = mounts.lines().find(|line| line.split(' ').nth(4).is_some_and(|at| at.ends_with(path)));
        line.unwrap_or_else(|| panic!("{path}: {mounts}")).split(' ').nth(5).unwrap().to_owned()
    };
    assert!(options("/base").starts_with("ro") && options("/usr").starts_with("ro"), "{mounts}");
    assert!(options("/roots/1/shared").starts_with("rw"), "{mounts}");
    let seen = fs::read_dir(format!("/proc/{share}/root/")).unwrap().flatten();
    let mut seen: Vec<String> = seen.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    seen.sort();
    assert_eq!(seen, ["tmp", "usr"]);
}

fn layers_on_a_disk() {
    let yard = Yard::new();
    let base = yard.folder.path().join("base");
    fs::write(base.join("etc/tool"), "#!/bin/sh\necho tool\n").unwrap();
    fs::set_permissions(base.join("etc/tool"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let script = "cat /etc/known; /etc/tool; stat -c '%u %a' /etc/known /tmp; echo changed > /etc/known; rm /etc/tool; \
                  cat /etc/known; ls /etc; ls /dev | grep -c '^vd'";
    let sandbox = yard.sandbox(User::Root, script);
    let (image, sandbox) = yard.on_disk(&base, &sandbox);
    let before = fs::read(&image.file).unwrap();
    let folder = yard.folder.path().join("roots/1/machine");
    fs::create_dir(&folder).unwrap();
    let start = || Machine::start(&shape(), &kernels(), &folder, &[&sandbox], Some(&image), BOOTS_WITHIN);
    let mut machine = start().unwrap();
    let processes = machine.processes();
    let (outcome, text) = run(&mut machine, &sandbox, wall(60.0), &AtomicBool::new(false));
    assert_eq!(text, "of the base\ntool\n0 644\n0 1777\nchanged\nknown\n0\n");
    assert_eq!(outcome.end, End::Exit(1));
    // The folder is not shared with the guest.
    let mounts = fs::read_to_string(format!("/proc/{}/mountinfo", processes[1])).unwrap();
    assert!(mounts.contains("/roots/1/shared") && !mounts.contains("/base"), "{mounts}");
    drop(machine);
    for process in processes {
        assert!(!Path::new(&format!("/proc/{process}")).exists());
    }
    assert_eq!(fs::read_to_string(yard.upper("etc/known")).unwrap(), "changed\n");
    assert!(fs::read(&image.file).unwrap() == before);
    // An image that is no file system is named.
    fs::write(&image.file, vec![7; 1 << 20]).unwrap();
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    let error = start().unwrap_err().to_string();
    assert!(error.contains("cannot begin"), "{error}");
}

/// Becomes a user with subordinate ids. Arguments: the folder with files for /etc, the id, and the command.
const AS_USER: &str = "etc=$1 id=$2; shift 2
for file in passwd subuid subgid; do mount --bind \"$etc/$file\" \"/etc/$file\"; done
exec setpriv --reuid \"$id\" --regid \"$id\" --clear-groups \"$@\"";

/// Runs other tests of this program as an ordinary user with a range of ids.
fn of_an_ordinary_user() {
    const ID: u32 = 0x7600_0000;
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root, which becomes an ordinary user; the other trials run as one already");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let users = fs::read_to_string("/etc/passwd").unwrap();
    let line = format!("kilnyard-trial:x:{ID}:{ID}::/nonexistent:/bin/sh\n");
    fs::write(folder.path().join("passwd"), users + &line).unwrap();
    for file in ["subuid", "subgid"] {
        fs::write(folder.path().join(file), format!("kilnyard-trial:{}:65536\n", ID + 1)).unwrap();
        // It can be mounted over only if it exists.
        fs::OpenOptions::new().append(true).create(true).open(format!("/etc/{file}")).unwrap();
    }
    shape();
    let (own, program) = (folder.path().join("own"), folder.path().join("program"));
    fs::copy("/proc/self/exe", &program).unwrap();
    fs::create_dir(&own).unwrap();
    let copied = Command::new("cp").arg("-r").arg(kernels()).arg(own.join("kernels")).status().unwrap();
    assert!(copied.success());
    let given = Command::new("chown").arg("-R").arg(format!("{ID}:{ID}")).arg(&own).status().unwrap();
    assert!(given.success());
    for test in [
        "a_command_runs_as_in_a_sandbox_of_this_machine",
        "what_is_written_belongs_to_its_users_and_layers_stay",
        "a_machine_has_the_network_only_if_its_sandbox_has_it",
    ] {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-euc", AS_USER, "sh"]);
        command.arg(folder.path()).arg(ID.to_string()).arg(&program).args(["--exact", test]);
        command.env("USER", "kilnyard-trial").env("TMPDIR", &own).env(KERNELS_VARIABLE, own.join("kernels"));
        let output = command.current_dir("/").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("1 passed"), "{test}: {said}");
    }
}

fn hangs() {
    let yard = Yard::new();
    let limits = Limits { hung_seconds_max: 2.0, ..wall(60.0) };
    let (outcome, text) = yard.run(PLAIN, "echo begun; sleep 4711", limits);
    let End::Limit(Passed::Hung, snapshot) = outcome.end else { panic!("{:?}: {text}", outcome.end) };
    assert!(snapshot.processes.iter().any(|process| process.line.contains("sleep 4711")), "{snapshot:?}");
    assert_eq!(snapshot.output, ["begun"]);
}

fn cancelled() {
    let yard = Yard::new();
    let sandbox = yard.sandbox(PLAIN, "echo begun; sleep 4711");
    let mut machine = yard.machine(&sandbox);
    let cancel = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(2));
            cancel.store(true, Ordering::Relaxed);
        });
        let (outcome, text) = run(&mut machine, &sandbox, wall(60.0), &cancel);
        assert_eq!((outcome.end, text.as_str()), (End::Cancelled, "begun\n"));
    });
}

fn killed() {
    let yard = Yard::new();
    let sandbox = yard.sandbox(PLAIN, "sleep 4711");
    for victim in 0..2 {
        let mut machine = yard.machine(&sandbox);
        let processes = machine.processes();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(700));
                kill_process(Pid::from_raw(processes[victim] as i32).unwrap(), Signal::KILL).unwrap();
                if victim == 1 {
                    // Without its folders, a guest waits for ever.
                    std::thread::sleep(Duration::from_secs(2));
                    kill_process(Pid::from_raw(processes[0] as i32).unwrap(), Signal::KILL).unwrap();
                }
            });
            let (outcome, _) = run(&mut machine, &sandbox, wall(60.0), &AtomicBool::new(false));
            let End::SandboxFailed(why) = outcome.end else { panic!("{:?}", outcome.end) };
            assert!(why.contains("the virtual machine ended"), "{why}");
        });
        drop(machine);
        let folder = yard.folder.path().display().to_string();
        assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&folder));
        for number in processes {
            assert!(!Path::new(&format!("/proc/{number}")).exists());
        }
    }
    yard.plan.remove(yard.folder.path(), &yard.ids, None).unwrap();
    assert_eq!(fs::read_dir(yard.folder.path().join("roots")).unwrap().count(), 0);
}

fn does_not_boot() {
    let yard = Yard::new();
    let sandbox = yard.sandbox(User::Root, "true");
    let folder = yard.folder.path().join("machine");
    fs::create_dir(&folder).unwrap();
    let image = yard.folder.path().join("image");
    fs::write(&image, "no kernel").unwrap();
    let shape =
        Shape { kernel: Kernel { image, ..shape().kernel }, accelerator: Accelerator::Emulation, ..shape() };
    let error = Machine::start(&shape, &kernels(), &folder, &[&sandbox], None, Duration::from_secs(5))
        .unwrap_err()
        .to_string();
    assert!(error.starts_with("the virtual machine "), "{error}");
}

fn network() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = std::io::Write::write_all(&mut stream.unwrap(), b"reached\n");
        }
    });
    let yard = Yard::new();
    // The name that this machine has in a guest.
    let script =
        format!("bash -c 'exec 3<>/dev/tcp/10.0.2.2/{port} && cat <&3' 2>&1; ls /sys/class/net | wc -l");
    for has_network in [true, false] {
        let sandbox = Sandbox { has_network, ..yard.sandbox(PLAIN, &script) };
        let mut machine = yard.machine(&sandbox);
        let other = Sandbox { has_network: !has_network, ..sandbox.clone() };
        assert!(machine.shows(&sandbox) && !machine.shows(&other));
        let (outcome, text) = run(&mut machine, &sandbox, wall(60.0), &AtomicBool::new(false));
        assert_eq!(outcome.end, End::Exit(0), "{text}");
        assert_eq!(text.starts_with("reached\n"), has_network, "{text}");
        assert_eq!(text.contains("Network is unreachable"), !has_network, "{text}");
    }
}

fn jobserver() {
    let yard = Yard::new();
    let pipe = yard.folder.path().join("jobserver");
    assert!(Command::new("mkfifo").args(["-m", "666"]).arg(&pipe).status().unwrap().success());
    let script = "exec 3<> /etc/jobserver; echo $(timeout 5 head -c 1 <&3); timeout 2 head -c 1 <&3; echo $?; echo -n + >&3";
    let plain = yard.sandbox(PLAIN, "echo plain");
    let mut sandbox = yard.sandbox(PLAIN, script);
    let View::Root(operations) = &mut sandbox.view else { unreachable!() };
    fs::write(yard.folder.path().join("base/etc/jobserver"), "").unwrap();
    let target = yard.plan.root.join("etc/jobserver");
    let place = operations.len() - 1;
    operations.insert(place, Operation::Bind { source: "jobserver".into(), target, access: Access::Write });
    let folder = yard.folder.path().join("roots/1/machine");
    fs::create_dir(&folder).unwrap();
    let shape = Shape { cores: 2, ..shape() };
    let start = |sandboxes: &[&Sandbox]| {
        Machine::start(&shape, &kernels(), &folder, sandboxes, None, BOOTS_WITHIN).unwrap()
    };
    assert!(!start(&[&plain]).shows(&sandbox));
    fs::remove_dir_all(&folder).unwrap();
    fs::create_dir(&folder).unwrap();
    let mut machine = start(&[&plain, &sandbox]).with_jobserver(Some(pipe));
    // Commands follow each other: each finds one token, as the first job needs none.
    for (sandbox, said) in [(&plain, "plain\n"), (&sandbox, "+\n124\n"), (&sandbox, "+\n124\n")] {
        assert!(machine.shows(sandbox));
        let (outcome, text) = run(&mut machine, sandbox, wall(60.0), &AtomicBool::new(false));
        assert_eq!((outcome.end, text.as_str()), (End::Exit(0), said));
    }
}

/// Machines that are started, and killed at moments spread over their lives.
fn in_a_row() {
    let count = std::env::var(COUNT_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(COUNT);
    let yard = Yard::new();
    let folder = yard.folder.path().join("roots/1/machine");
    let mut seconds = Vec::new();
    for number in 0..count {
        let sandbox = yard.sandbox(PLAIN, COMPILES);
        let began = Instant::now();
        let mut machine = yard.machine(&sandbox);
        let processes = machine.processes();
        if number % 4 == 3 {
            let victim = processes[number / 4 % 2];
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis((number * 37 % 1500) as u64));
                    let _ = kill_process(Pid::from_raw(victim as i32).unwrap(), Signal::KILL);
                    std::thread::sleep(Duration::from_secs(2));
                    let _ = kill_process(Pid::from_raw(processes[0] as i32).unwrap(), Signal::KILL);
                });
                // It ends, with whatever it had done.
                run(&mut machine, &sandbox, wall(60.0), &AtomicBool::new(false));
            });
            drop(machine);
        } else {
            let (outcome, text) = run(&mut machine, &sandbox, wall(60.0), &AtomicBool::new(false));
            drop(machine);
            seconds.push(began.elapsed().as_secs_f64());
            assert_eq!((outcome.end, text.as_str()), (End::Exit(0), "hello\n"));
        }
        for process in processes {
            assert!(!Path::new(&format!("/proc/{process}")).exists(), "machine {number}");
        }
        assert!(!fs::read_to_string("/proc/self/mountinfo").unwrap().contains(folder.to_str().unwrap()));
        fs::remove_dir_all(&folder).unwrap();
    }
    seconds.sort_by(f64::total_cmp);
    eprintln!(
        "{count} machines by {}: start, compile, end in {:.1} s (median)",
        shape().accelerator,
        seconds[seconds.len() / 2]
    );
}

/// Starts a machine, says which processes it has, and waits to be killed.
fn be_killed_if_asked() {
    if std::env::args().nth(1).as_deref() != Some(VICTIM) {
        return;
    }
    let yard = Yard::new();
    let sandbox = yard.sandbox(PLAIN, "sleep 4711");
    let mut machine = yard.machine(&sandbox);
    println!("{:?}", machine.processes());
    run(&mut machine, &sandbox, wall(60.0), &AtomicBool::new(false));
}

/// Nothing of it can end the machine then but the kernel.
fn parent_killed() {
    shape();
    let mut victim = Command::new("/proc/self/exe").arg(VICTIM).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(victim.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let processes: Vec<u32> =
        line.trim().trim_matches(['[', ']']).split(", ").map(|text| text.parse().unwrap()).collect();
    assert_eq!(processes.len(), 2, "{line}");
    let status = fs::read_to_string(format!("/proc/{}/status", processes[0])).unwrap();
    let user = status.lines().find_map(|line| line.strip_prefix("Uid:")).unwrap();
    assert!(
        shape().accelerator == Accelerator::Kvm || user.split_whitespace().all(|id| id == "65534"),
        "{user}"
    );
    victim.kill().unwrap();
    victim.wait().unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    for process in processes {
        // One that has ended waits for process 1 to take note of it.
        let lives = || {
            let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
        };
        while lives() {
            assert!(Instant::now() < until, "{process}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
