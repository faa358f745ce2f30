//! Conformance tests for root backends. Every test runs with every backend, with real mounts and processes, and with
//! a base of two layers that contain every kind of file.

mod devices;
mod files;
mod leaks;
mod stand;
mod walls;

use kilnyard_root::{IdMap, Making, probe};
use libtest_mimic::{Arguments, Trial};
use stand::{BACKENDS, Stand, own_ids};

/// The name of a test and its function.
type Test = (&'static str, fn(&Stand));

fn main() {
    kilnyard_root::sandbox::become_sandbox_if_asked();
    kilnyard_block::become_server_if_asked();
    leaks::be_killed_if_asked();
    let arguments = Arguments::from_args();
    let tests: Vec<Test> = [files::TESTS, walls::TESTS, leaks::TESTS].concat();
    let mut trials = Vec::new();
    for backend in BACKENDS.into_iter().filter(|backend| is_root() || !backend.is_on_device()) {
        let refused = own_ids().and_then(|ids| refused(&ids, &backend.making));
        if let Err(reason) = &refused {
            eprintln!("skipped: roots by {}: {reason}", backend.name);
        }
        for (name, test) in &tests {
            let test = *test;
            let trial = Trial::test(format!("{}::{name}", backend.name), move || {
                test(&Stand::new(backend));
                Ok(())
            });
            trials.push(trial.with_ignored_flag(refused.is_err()));
        }
        let of_devices = devices::TESTS.iter().filter(|_| backend.is_on_device());
        let of_written = devices::WRITTEN.iter().filter(|_| backend.is_written_device());
        // Only with one backend, since it waits for a timeout.
        let once = devices::ONCE.iter().filter(|_| backend.name == "block");
        for (name, test) in of_devices.chain(of_written).chain(once) {
            let trial = Trial::test(format!("{}::{name}", backend.name), move || {
                test(&Stand::new(backend));
                Ok(())
            });
            trials.push(trial.with_ignored_flag(refused.is_err()));
        }
        if backend.is_bounded {
            let test = move || {
                walls::a_full_scratch_leaves_other_roots_alone(&Stand::new(backend));
                Ok(())
            };
            let name = format!("{}::a_full_scratch_leaves_other_roots_alone", backend.name);
            trials.push(Trial::test(name, test).with_ignored_flag(refused.is_err()));
        }
    }
    if is_root() && std::env::var_os(AS_USER_VARIABLE).is_none() {
        trials.push(Trial::test("all_tests_as_an_ordinary_user", || {
            all_tests_as_an_ordinary_user();
            Ok(())
        }));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// Set in the process that runs all tests again as an ordinary user.
const AS_USER_VARIABLE: &str = "KILNYARD_AS_USER";
/// A user that does not exist on the machine; the ids of the user's roots follow this one.
const USER: u32 = 0x7700_0000;
/// Becomes that user in a mount namespace whose `/etc` lists it. Arguments: the folder of files for `/etc`, the user
/// id, the program.
const AS_USER: &str = "etc=$1 id=$2; shift 2
for file in passwd subuid subgid; do mount --bind \"$etc/$file\" \"/etc/$file\"; done
exec setpriv --reuid \"$id\" --regid \"$id\" --clear-groups \"$@\"";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs all tests again as an ordinary user with a range of ids.
fn all_tests_as_an_ordinary_user() {
    let folder = stand::open_folder();
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let line = format!("kilnyard-trial:x:{USER}:{USER}::/nonexistent:/bin/sh\n");
    std::fs::write(folder.path().join("passwd"), users + &line).unwrap();
    for file in ["subuid", "subgid"] {
        let range = format!("kilnyard-trial:{}:65536\n", USER + 1);
        std::fs::write(folder.path().join(file), range).unwrap();
        // A file must exist to be mounted over.
        std::fs::OpenOptions::new().append(true).create(true).open(format!("/etc/{file}")).unwrap();
    }
    // The user may not have access to this program's folder.
    let program = folder.path().join("conformance");
    std::fs::copy("/proc/self/exe", &program).unwrap();
    let mut command = std::process::Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-euc", AS_USER, "sh"]);
    command.arg(folder.path()).arg(USER.to_string()).arg(&program).arg("--test-threads=2");
    command.env(AS_USER_VARIABLE, "1").env("USER", "kilnyard-trial").env_remove("TMPDIR").current_dir("/");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("0 ignored"), "{said}");
}

fn refused(ids: &IdMap, making: &Making) -> Result<(), String> {
    let folder = stand::open_folder();
    probe::try_root(folder.path(), ids, making).map_err(|error| error.to_string())
}
