//! Tests of roots on block devices only.

use crate::Test;
use crate::leaks::{PATIENCE, processes, traces};
use crate::stand::{PLAIN, Stand};
use kilnyard_root::{Device, Form, ImagePlan, Making, Operation, Requests, RootPlan, Server};
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

pub const TESTS: &[Test] = &[
    ("requests_are_logged_if_configured", requests_are_logged),
    ("servers_and_keepers_that_are_killed_leave_nothing", killed_servers_leave_nothing),
];

/// For writable devices.
pub const WRITTEN: &[Test] = &[("a_device_that_was_used_is_refused", a_device_that_was_used_is_refused)];

pub const ONCE: &[Test] = &[
    ("the_holder_of_a_root_is_named", the_holder_of_a_root_is_named),
    ("what_is_discarded_gives_its_memory_back", discarded),
];

/// `FITRIM` (linux/fs.h).
const TRIM: libc::c_ulong = 0xc018_5879;
/// The argument of the process that serves a device.
const SERVER: &str = "kilnyard-block-server";

fn device(stand: &Stand) -> Device {
    let Form::Image(device) = stand.backend.making.form else { unreachable!() };
    device
}

fn a_device_that_was_used_is_refused(stand: &Stand) {
    // Simulates a device that belongs to another root.
    let (yard, layers) = (stand.folder.path(), ["layers/below".into()]);
    let mut image = ImagePlan::new(yard, Path::new("layers"), "used", &layers, &device(stand));
    image.operations.push(Operation::Stamp { folder: "layers/mounted".into(), name: "roots/0".into() });
    image.make(yard, &stand.ids).unwrap();
    let plan = RootPlan::new(Path::new("roots/used"), &["layers/used".into()], &stand.backend.making);
    let error = plan.make(yard, &stand.ids).unwrap_err().to_string();
    let expected = "failed to stamp roots/used/disk as roots/used: \
                    the device was used before: it has the stamp of roots/0";
    assert_eq!(error, expected);
    assert!(!stand.path("roots/used").exists());
    stand.remove();
    assert_eq!(traces(stand).devices, Vec::<PathBuf>::new());
}

fn requests_are_logged(stand: &Stand) {
    let form = Form::Image(Device { requests: Requests::Log, ..device(stand) });
    let making = Making { form, ..stand.backend.making };
    let plan = RootPlan::new(Path::new("roots/logged"), &["layers/image".into()], &making);
    let keeper = plan.make(stand.folder.path(), &stand.ids).unwrap();
    let kept = stand.path("layers/requests");
    // Moved away while the server writes to it, as at the end of a build.
    fs::rename(stand.path("roots/logged/requests"), &kept).unwrap();
    plan.remove(stand.folder.path(), &stand.ids, keeper.as_ref()).unwrap();
    let log = fs::read_to_string(kept).unwrap();
    let read = if device(stand).server == Server::Nbdkit { " Read " } else { " read 0 " };
    assert!(log.contains(read) && !stand.path("roots/1/requests").exists(), "{log}");
}

fn killed_servers_leave_nothing(stand: &Stand) {
    stand.remove();
    let before = traces(stand);
    let attacher = if Path::new("/dev/nbd0").exists() { "nbd-client" } else { "nbdfuse" };
    let victims = match device(stand).server {
        Server::Kilnyard | Server::Ublk => vec![SERVER, "keeper"],
        Server::Nbdkit => vec!["nbdkit", attacher, "keeper"],
    };
    for victim in victims {
        let (plan, keeper) = stand.another(victim);
        let keeper = keeper.unwrap();
        stand.sandbox_of(&plan, Some(&keeper), PLAIN, "head -c 5000000 /dev/zero > /tmp/x").run().unwrap();
        let number = match victim {
            "keeper" => keeper.process(),
            name => {
                let is_it = |number: &&String| {
                    let line = fs::read_to_string(format!("/proc/{number}/cmdline")).unwrap_or_default();
                    let mut words = line.split('\0');
                    words.next().is_some_and(|program| program.ends_with(name)) || words.next() == Some(name)
                };
                processes(stand.folder.path()).iter().find(is_it).unwrap().parse().unwrap()
            }
        };
        kill_process(Pid::from_raw(number as i32).unwrap(), Signal::KILL).unwrap();
        let removed = plan.remove(stand.folder.path(), &stand.ids, Some(&keeper));
        // A killed keeper does not report success, and its folder is left to the next start of Kilnyard.
        match victim {
            "keeper" => {
                assert!(removed.is_err());
                plan.remove(stand.folder.path(), &stand.ids, None).unwrap();
            }
            _ => removed.unwrap(),
        }
        let deadline = Instant::now() + PATIENCE;
        while traces(stand) != before {
            assert!(Instant::now() < deadline, "{victim}: {:?}", traces(stand));
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }
}

fn discarded(stand: &Stand) {
    let (plan, keeper) = stand.another("discarded");
    let keeper = keeper.unwrap();
    let is_server = |number: &&String| {
        let line = fs::read_to_string(format!("/proc/{number}/cmdline")).unwrap_or_default();
        line.split('\0').nth(1) == Some(SERVER) && line.contains("~discarded~")
    };
    let server = processes(stand.folder.path()).iter().find(is_server).unwrap().clone();
    let resident = || {
        let status = fs::read_to_string(format!("/proc/{server}/status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap().trim();
        line.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    let before = resident();
    let write = "head -c 20000000 /dev/urandom > /tmp/x";
    stand.sandbox_of(&plan, Some(&keeper), PLAIN, write).run().unwrap();
    let disk = keeper.seen_from_outside(&plan.folder.join("disk"));
    rustix::fs::syncfs(fs::File::open(&disk).unwrap()).unwrap();
    assert!(resident() > before + 18_000, "{} of {before} KiB", resident());
    stand.sandbox_of(&plan, Some(&keeper), PLAIN, "rm /tmp/x").run().unwrap();
    // As fstrim(8) does it, which would find the path in its own namespace.
    let mut range = [0, u64::MAX, 0];
    let disk = fs::File::open(&disk).unwrap();
    // SAFETY: the request reads and writes three numbers (linux/fs.h, `fstrim_range`), which live until the end of the call.
    let trimmed = unsafe { libc::ioctl(std::os::fd::AsRawFd::as_raw_fd(&disk), TRIM as _, &mut range) };
    assert_eq!(trimmed, 0, "{}", std::io::Error::last_os_error());
    drop(disk);
    assert!(resident() < before + 4_000, "{} of {before} KiB", resident());
    plan.remove(stand.folder.path(), &stand.ids, Some(&keeper)).unwrap();
}

/// If another process uses the file system of a root's device, removal fails and the error names that process.
fn the_holder_of_a_root_is_named(stand: &Stand) {
    let (plan, keeper) = stand.another("held");
    let keeper = keeper.unwrap();
    let inside = keeper.seen_from_outside(&plan.folder.join("disk"));
    let open = fs::File::open(inside).unwrap();
    let error = plan.remove(stand.folder.path(), &stand.ids, Some(&keeper)).unwrap_err().to_string();
    drop(open);
    let own = format!("{} (", std::process::id());
    assert!(error.contains("roots/held/disk") && error.contains("still in use after"), "{error}");
    assert!(error.contains(&own), "{error}");
    plan.remove(stand.folder.path(), &stand.ids, None).unwrap();
}
