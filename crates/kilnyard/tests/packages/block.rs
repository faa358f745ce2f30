//! Packages built in roots on block devices.

use crate::fixtures::{Fixture, Packages, Shared, Trial, good, processes, slow};
use std::fs;

pub const CASES: &[Trial] = &[("roots_on_block_devices_build_packages", on_block_devices)];

/// Prints the file system of the root.
const LOOKS: &str = "stat -f -c 'the root is on %T' /";

fn on_block_devices(shared: &Shared) {
    let needs_one = Fixture { build: LOOKS, ..good("two", "one") };
    let broken = slow("broken", "echo kept > kept\necho left > /var/tmp/left\nfalse");
    let yard = shared.yard("block", &[slow("one", LOOKS), needs_one, broken]);
    let config = yard.read("kilnyard.toml");
    let wanted = "[root]\nbackend = \"block\"\nrequests = \"log\"\nroom = \"2G\"";
    fs::write(yard.path("kilnyard.toml"), config.replace("[root]", wanted)).unwrap();
    yard.run(&["doctor"]).says(&["block devices: a root on ext4 was served"]);
    let plan = yard.run(&["root", "plan", "one"]).exits(0).stdout;
    let lines: Vec<&str> = plan.lines().map(str::trim).collect();
    let at = |text: &str| {
        lines.iter().position(|line| line.starts_with(text)).unwrap_or_else(|| panic!("{text}: {plan}"))
    };
    let steps = [
        "format ",
        "copy ",
        "show ",
        "attach the device",
        "mount ext4 of roots/",
        "stamp ",
        "pivot ",
        "unmount ",
    ];
    let steps = steps.map(at);
    assert!(
        steps.is_sorted() && at("unmount ") < at("detach ") && at("detach ") < at("end the device "),
        "{plan}"
    );
    yard.build().exits(1);
    assert_eq!(yard.states(&["one", "two", "broken"]), ["built", "built", "failed"]);
    // A package without dependencies has the file system of the device as its root; with dependencies there is a
    // layer on top.
    yard.run(&["log", "one", "build"]).exits(0).says(&["the root is on ext2/ext3"]);
    yard.run(&["log", "two", "build"]).exits(0).says(&["the root is on overlayfs"]);
    let print = ["cat", "/build/broken-1.0/kept", "/var/tmp/left"];
    let printed = yard.run(&[&["shell", "broken", "--"][..], &print].concat()).exits(0);
    assert_eq!(printed.stdout, "kept\nleft\n");
    let requests: Vec<String> = (yard.names("logs/1/two").into_iter())
        .filter(|name| name.ends_with("-requests.log"))
        .map(|name| yard.read(&format!("logs/1/two/{name}")))
        .collect();
    assert!(requests.len() == 1 && requests[0].contains(" read "), "{requests:?}");
    yard.run(&["root", "requests", "two"]).exits(0).says(&["never on the disk: ", "hottest ranges of 1 MiB"]);
    let log = yard
        .path("logs/1/two")
        .join(yard.names("logs/1/two").into_iter().find(|name| name.ends_with("-requests.log")).unwrap());
    yard.run(&["root", "requests", "--file", log.to_str().unwrap(), "--json"])
        .exits(0)
        .says(&["touched_bytes"]);
    fs::write(&log, "0.1 write\n").unwrap();
    yard.run(&["root", "requests", "two"]).exits(2).says(&["line 1 is no request to a device"]);
    // Without a log there are counters.
    fs::remove_file(&log).unwrap();
    yard.run(&["root", "requests", "two"]).exits(0).says(&["memory: at most ", "never on the disk: "]);
    // There is one image for all of them, and nothing else.
    assert_eq!(yard.names("layers/dependencies/images").len(), 1);
    assert!(yard.is_clean());
    let folder = yard.folder.display().to_string();
    let of_yard: Vec<String> = (fs::read_dir("/sys/block").unwrap().flatten())
        .map(|device| fs::read_to_string(device.path().join("loop/backing_file")).unwrap_or_default())
        .filter(|file| file.contains(&folder) || file.contains(&folder.replace('/', "~")))
        .collect();
    assert!(of_yard.is_empty(), "{of_yard:?}");
    assert!(!processes().iter().any(|(_, line)| line.contains("block-server") && line.contains("roots/")));
}
