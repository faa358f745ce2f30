//! Control groups: finds those of this process, as cgroups(7) and proc_pid_mountinfo(5) describe, decides where
//! others may be created, and names them.

pub(crate) mod base;
pub(crate) mod folder;
pub(crate) mod name;

use std::path::{Path, PathBuf};

/// One of the kernel's control group hierarchies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hierarchy {
    /// The cgroup v1 hierarchy with this controller.
    Version1(&'static str),
    /// The unified hierarchy of cgroup v2.
    Version2,
}

/// A process's group in a hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct GroupPath {
    /// The mount point of the hierarchy.
    pub(crate) mount: PathBuf,
    /// The folder of the group: `mount` itself or below it.
    pub(crate) folder: PathBuf,
}

impl GroupPath {
    /// The group of this process, according to the kernel; absent if the hierarchy is not visible.
    pub(crate) fn own(hierarchy: Hierarchy) -> Option<GroupPath> {
        GroupPath::of(hierarchy, std::process::id())
    }

    /// The group of another process.
    pub(crate) fn of(hierarchy: Hierarchy, process: u32) -> Option<GroupPath> {
        let read = |path: &str| Some(String::from_utf8_lossy(&std::fs::read(path).ok()?).into_owned());
        let group = read(&format!("/proc/{process}/cgroup"))?;
        GroupPath::from(&read("/proc/self/mountinfo")?, &group, hierarchy)
    }

    /// Parses the text of `/proc/PID/mountinfo` and of `/proc/PID/cgroup`.
    pub(crate) fn from(mountinfo: &str, own: &str, hierarchy: Hierarchy) -> Option<GroupPath> {
        let own = own.lines().find_map(|line| path_in(line, hierarchy))?;
        mountinfo.lines().find_map(|line| {
            let (root, mount) = mount_of(line, hierarchy)?;
            // A group above the mounted one is not visible.
            let below = own.strip_prefix(root.as_str()).filter(|rest| is_whole(&root, rest))?;
            let below = below.trim_start_matches('/');
            if below.split('/').any(|part| part == "..") {
                return None;
            }
            let folder = if below.is_empty() { mount.clone() } else { mount.join(below) };
            Some(GroupPath { mount, folder })
        })
    }

    /// The group and its visible ancestors, from the group upward.
    pub(crate) fn upward(&self) -> impl Iterator<Item = &Path> {
        self.folder.ancestors().take_while(|folder| folder.starts_with(&self.mount))
    }
}

/// Whether the prefix ends at a path component.
fn is_whole(prefix: &str, rest: &str) -> bool {
    prefix.ends_with('/') || rest.is_empty() || rest.starts_with('/')
}

/// The path in a line `NUMBER:CONTROLLERS:PATH`.
fn path_in(line: &str, hierarchy: Hierarchy) -> Option<&str> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let fits = match hierarchy {
        Hierarchy::Version1(controller) => controllers.split(',').any(|name| name == controller),
        Hierarchy::Version2 => number == "0" && controllers.is_empty(),
    };
    (fits && path.starts_with('/')).then_some(path)
}

/// The mounted root and the mount point, if this line is about the hierarchy.
fn mount_of(line: &str, hierarchy: Hierarchy) -> Option<(String, PathBuf)> {
    let (mount, kind) = line.split_once(" - ")?;
    let mut mount = mount.split(' ').skip(3);
    let (root, point) = (unescape(mount.next()?), unescape(mount.next()?));
    let mut kind = kind.split(' ');
    let (kind, options) = (kind.next()?, kind.nth(1).unwrap_or_default());
    let fits = match hierarchy {
        Hierarchy::Version1(controller) => {
            kind == "cgroup" && options.split(',').any(|option| option == controller)
        }
        Hierarchy::Version2 => kind == "cgroup2",
    };
    fits.then(|| (root, PathBuf::from(point)))
}

/// Decodes a path, in which blanks, tabs, newlines and backslashes appear as a backslash and three octal digits.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) if *first == b'\\' => {
                bytes.push(byte);
                rest = &after[3..];
            }
            _ => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HYBRID_MOUNTS: &str = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 master:2 - cgroup cgroup rw,cpu,cpuacct
33 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
34 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate";
    const HYBRID_OWN: &str =
        "9:name=systemd:/a\n5:cpuset:/\n2:cpu,cpuacct:/user.slice/a:b c\n0::/user.slice\n";

    fn place(mountinfo: &str, own: &str, hierarchy: Hierarchy) -> Option<String> {
        GroupPath::from(mountinfo, own, hierarchy).map(|place| place.folder.display().to_string())
    }

    #[test]
    fn each_hierarchy_is_found_where_it_is_mounted() {
        let find = |hierarchy| place(HYBRID_MOUNTS, HYBRID_OWN, hierarchy);
        let cpu = Some("/sys/fs/cgroup/cpu,cpuacct/user.slice/a:b c".to_owned());
        assert_eq!(find(Hierarchy::Version1("cpu")), cpu);
        assert_eq!(find(Hierarchy::Version1("cpuacct")), cpu);
        assert_eq!(find(Hierarchy::Version1("cpuset")).as_deref(), Some("/sys/fs/cgroup/cpuset"));
        assert_eq!(find(Hierarchy::Version1("memory")), None);
        assert_eq!(find(Hierarchy::Version2).as_deref(), Some("/sys/fs/cgroup/unified/user.slice"));
    }

    #[test]
    fn the_mounted_root_is_stripped_and_groups_above_it_are_invisible() {
        let mounts = "32 31 0:29 /docker/1f /sys/fs/cgroup/with\\040blank rw - cgroup cgroup rw,cpu";
        let find = |own: &str| place(mounts, own, Hierarchy::Version1("cpu"));
        let inside = find("2:cpu:/docker/1f/inner").unwrap();
        assert_eq!(inside, "/sys/fs/cgroup/with blank/inner");
        assert_eq!(find("2:cpu:/docker/1f").unwrap(), "/sys/fs/cgroup/with blank");
        assert_eq!(find("2:cpu:/docker/1f2"), None);
        assert_eq!(find("2:cpu:/"), None);
        assert_eq!(find("2:cpu:/docker/1f/../2e"), None);
        assert_eq!(find("2:cpu:"), None);
    }

    #[test]
    fn upward_stops_at_the_mount_point() {
        let place = GroupPath { mount: "/c".into(), folder: "/c/a/b".into() };
        let upward: Vec<&Path> = place.upward().collect();
        assert_eq!(upward, [Path::new("/c/a/b"), Path::new("/c/a"), Path::new("/c")]);
    }

    proptest! {
        #[test]
        fn a_place_is_below_its_mount(
            mountinfo in "([0-9 ]{0,6}[/.a\\\\]{0,6} /[a-z\\\\0-9]{0,6} rw (- cgroup2? c rw,cpu)?\n?){0,3}|\\PC{0,60}",
            own in "(0::|1:cpu:)?[/.a]{0,9}\n?|\\PC{0,30}",
        ) {
            for hierarchy in [Hierarchy::Version1("cpu"), Hierarchy::Version2] {
                if let Some(place) = GroupPath::from(&mountinfo, &own, hierarchy) {
                    prop_assert!(place.folder.starts_with(&place.mount));
                    prop_assert!(!place.folder.strip_prefix(&place.mount).unwrap().iter().any(|part| part == ".."));
                    prop_assert!(place.upward().count() >= 1);
                }
            }
        }
    }
}
