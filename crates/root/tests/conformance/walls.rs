//! Isolation of a root from the machine, from its layers, and from other roots.

use crate::Test;
use crate::stand::{MEMORY_BYTES, PLAIN, Stand};
use kilnyard_root::User;
use std::fs;

pub const TESTS: &[Test] = &[
    ("only_harmless_devices_exist", only_harmless_devices_exist),
    ("read_only_mounts_stay_read_only", read_only_mounts_stay_read_only),
    ("the_machine_cannot_be_reached", the_machine_cannot_be_reached),
    ("roots_of_one_base_do_not_see_each_other", roots_of_one_base_do_not_see_each_other),
    ("layers_are_never_changed", layers_are_never_changed),
];

fn only_harmless_devices_exist(stand: &Stand) {
    // The mount point of a device is a regular file, so `find` alone cannot recognise devices.
    let devices = r"find / \( -path /proc -o -path /usr -o -path /sys \) -prune -o -print | sort | while read -r path; do
        if [ ! -h $path ] && { [ -b $path ] || [ -c $path ]; }; then echo $path; fi; done";
    let expected = "/dev/full\n/dev/null\n/dev/pts/ptmx\n/dev/random\n/dev/tty\n/dev/urandom\n/dev/zero\n";
    assert_eq!(stand.run(User::Root, devices), expected);
    for node in ["b 7 0", "c 1 1"] {
        assert_ne!(stand.fails(User::Root, &format!("mknod /node {node}")).0, 127);
    }
}

fn read_only_mounts_stay_read_only(stand: &Stand) {
    assert_eq!(stand.run(PLAIN, "cat /inputs/source"), "source\n");
    for script in [
        "echo x > /inputs/source",
        "rm /inputs/source",
        "touch /inputs/new",
        "mount -o remount,rw /inputs",
        "umount /inputs",
        "touch /usr/new",
        "mount --bind /tmp /inputs",
    ] {
        let (code, _) = stand.fails(User::Root, script);
        assert_ne!(code, 127, "{script}: command not found");
    }
    assert_eq!(fs::read_to_string(stand.path("inputs/source")).unwrap(), "source\n");
}

fn the_machine_cannot_be_reached(stand: &Stand) {
    fs::write(stand.path("secret-of-the-machine"), "").unwrap();
    let yard = stand.folder.path().display().to_string();
    // Escape attempts: from a chroot by a folder opened before, and by the root and working folder of every process.
    let script = r#"python3 -c '
import glob, os
found = open("/proc/self/mountinfo").read()
outside = os.open("/", os.O_RDONLY)
os.mkdir("/jail")
os.chroot("/jail")
os.fchdir(outside)
for step in range(64): os.chdir("..")
os.chroot(".")
for place in ["/"] + glob.glob("/proc/*/root/") + glob.glob("/proc/*/cwd/"):
    try: found += "\n".join(os.listdir(place))
    except OSError: pass
print(found, os.path.exists("YARD"))'"#;
    let seen = stand.run(User::Root, &script.replace("YARD", &yard));
    assert!(seen.trim_end().ends_with("False"), "{seen}");
    for word in [yard.as_str(), "secret-of-the-machine", "layers/below"] {
        let is_own_mount = |line: &&str| line.contains("lowerdir=") || line.contains(" - ");
        let line = seen.lines().find(|line| line.contains(word) && !is_own_mount(line));
        assert_eq!(line, None, "{word} is visible");
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&yard), "a mount leaked");
}

fn roots_of_one_base_do_not_see_each_other(stand: &Stand) {
    let (plan, keeper) = stand.another("2");
    stand.run(User::Root, "echo first > file; rm -r opaque; echo first > only-here");
    let look = "cat file; ls opaque; ls only-here 2>/dev/null || echo alone";
    let seen = stand.sandbox_of(&plan, keeper.as_ref(), User::Root, look).run();
    plan.remove(stand.folder.path(), &stand.ids, keeper.as_ref()).unwrap();
    assert_eq!(seen.unwrap(), "below\nshown\nalone\n");
    assert_eq!(stand.run(PLAIN, "cat only-here"), "first\n");
}

fn layers_are_never_changed(stand: &Stand) {
    let listing = || {
        let listing = std::process::Command::new("find")
            .args(["layers", "-printf", "%p %M %U:%G %s %T@ %l\n"])
            .current_dir(stand.folder.path())
            .output()
            .unwrap();
        let mut lines: Vec<String> =
            String::from_utf8(listing.stdout).unwrap().lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let before = listing();
    assert!(before.len() > 30, "{before:?}");
    stand.run(
        User::Root,
        "chmod -R 777 folder opaque tmp; for f in file first gone capable; do echo x > $f; done;
         rm -r folder/deeper; ln -sf x folder/link; touch -d 1999-01-01 etc; setfattr -n user.x -v y first",
    );
    assert_eq!(listing(), before);
}

/// Only for backends with their own limit: a disk cannot be filled in a test.
pub fn a_full_scratch_leaves_other_roots_alone(stand: &Stand) {
    let (plan, keeper) = stand.another("2");
    let fill = format!("head -c {} /dev/zero > /tmp/full", MEMORY_BYTES * 2);
    let (code, output) =
        stand.fails(User::Root, &format!("{fill}; code=$?; echo rest > /tmp/rest; exit $code"));
    assert!(code == 1 && output.contains("No space left on device"), "{code}: {output}");
    let write =
        format!("head -c {} /dev/zero | wc -c; echo fine > /tmp/fine && cat /tmp/fine", MEMORY_BYTES / 2);
    let seen = stand.sandbox_of(&plan, keeper.as_ref(), User::Root, &write).run();
    plan.remove(stand.folder.path(), &stand.ids, keeper.as_ref()).unwrap();
    assert_eq!(seen.unwrap(), format!("{}\nfine\n", MEMORY_BYTES / 2));
    // Space is released.
    assert_eq!(stand.run(User::Root, "rm /tmp/full && echo again > /tmp/again && cat /tmp/again"), "again\n");
}
