//! Tests of roots on block devices only.

use crate::Test;
use crate::leaks::{PATIENCE, processes, traces};
use crate::stand::{PLAIN, Stand};
use kilnyard_root::{Device, Form, ImagePlan, Making, Operation, Requests, RootPlan};
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

pub const ONCE: &[Test] = &[("the_holder_of_a_root_is_named", the_holder_of_a_root_is_named)];

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
    let log = fs::read_to_string(stand.path("roots/logged/requests")).unwrap();
    plan.remove(stand.folder.path(), &stand.ids, keeper.as_ref()).unwrap();
    assert!(log.contains(" Read ") && !stand.path("roots/1/requests").exists(), "{log}");
}

fn killed_servers_leave_nothing(stand: &Stand) {
    stand.remove();
    let before = traces(stand);
    let attacher = if Path::new("/dev/nbd0").exists() { "nbd-client" } else { "nbdfuse" };
    for victim in ["nbdkit", attacher, "keeper"] {
        let (plan, keeper) = stand.another(victim);
        let keeper = keeper.unwrap();
        stand.sandbox_of(&plan, Some(&keeper), PLAIN, "head -c 5000000 /dev/zero > /tmp/x").run().unwrap();
        let number = match victim {
            "keeper" => keeper.process(),
            name => {
                let is_it = |number: &&String| {
                    fs::read_to_string(format!("/proc/{number}/comm")).is_ok_and(|comm| comm.trim() == name)
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
