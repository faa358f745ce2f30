//! Packages built in virtual machines.

use crate::fixtures::{Packages, Shared, Trial, good, processes, slow};

pub const CASES: &[Trial] = &[("a_package_from_a_virtual_machine_has_the_same_bytes", same_bytes)];

fn same_bytes(shared: &Shared) {
    let yard =
        shared.yard("machines", &[good("one", ""), slow("broken", "uname -r\necho left > left\nfalse")]);
    yard.build().exits(1);
    assert_eq!(yard.states(&["one", "broken"]), ["built", "failed"]);
    let here = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    yard.run(&["log", "broken", "build"]).exits(0).says(&[here.trim()]);
    let config = yard.read("kilnyard.toml");
    std::fs::write(yard.path("kilnyard.toml"), config.replace("[root]", "[root]\nmachine = \"vm\"")).unwrap();
    yard.run(&["doctor"]).says(&["virtual machines: a kernel boots by "]);
    let plan = yard.run(&["root", "plan", "one"]).exits(0).stdout;
    assert!(
        plan.starts_with("the root of one 1.0")
            && plan.contains("in a virtual machine of 1 core and 2.0 GiB"),
        "{plan}"
    );
    yard.run(&["build", "--force", "one"]).exits(0).says(&["1 unchanged"]);
    // A failed root is entered on this machine.
    yard.run(&["build", "--force", "broken"]).exits(1);
    yard.run(&["log", "broken", "build"]).exits(0).says(&["-cloud-amd64"]);
    let print = ["shell", "broken", "--", "cat", "/build/broken-1.0/left"];
    assert_eq!(yard.run(&print).exits(0).stdout, "left\n");
    assert!(yard.is_clean());
    let folder = yard.folder.display().to_string();
    assert!(!processes().iter().any(|(_, line)| line.contains("qemu") && line.contains(&folder)));
}
