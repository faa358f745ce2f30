//! Where cgroup v2 groups may be created: inside one that was delegated to its processes.
//!
//! Groups that systemd has not delegated belong to systemd alone (<https://systemd.io/CGROUP_DELEGATION>). Without
//! systemd, nothing else manages them.

use super::{GroupPath, Hierarchy, folder, name};
use std::io;
use std::path::{Path, PathBuf};

/// The facts about one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GroupFacts {
    pub(crate) folder: PathBuf,
    /// The root group of the machine, which may have both processes and children.
    pub(crate) is_root: bool,
    /// Whether the group was delegated to its processes.
    pub(crate) is_delegated: bool,
    /// Whether it can give its children CPU weights.
    pub(crate) has_cpu: bool,
    /// Processes directly in the group.
    pub(crate) processes: Vec<u32>,
}

impl GroupFacts {
    /// Reads a group. `is_top` means that nothing above it is visible. Only reads files, so tests can use any folder.
    pub(crate) fn of(folder: &Path, is_top: bool, has_systemd: bool) -> io::Result<GroupFacts> {
        let controllers = fs_err::read_to_string(folder.join("cgroup.controllers"))?;
        // Only the root group of the machine lacks this file (cgroups(7)).
        let is_root = is_top && !folder.join("cgroup.type").exists();
        let marked = ["user.delegate", "trusted.delegate"].iter().any(|mark| {
            let mut value = [0; 8];
            rustix::fs::getxattr(folder, *mark, &mut value).is_ok_and(|count| value[..count] == *b"1")
        });
        Ok(GroupFacts {
            folder: folder.to_owned(),
            is_root,
            // A topmost group other than the machine's root is that of a container, created for the container's
            // processes.
            is_delegated: marked || !has_systemd || (is_top && !is_root) || name::is_supervisor(folder),
            has_cpu: controllers.split_whitespace().any(|controller| controller == "cpu"),
            processes: folder::processes(folder)?,
        })
    }
}

/// This process's own group, and its parent if that is visible.
pub(crate) fn look() -> Result<(GroupFacts, Option<GroupFacts>), String> {
    let own = GroupPath::own(Hierarchy::Version2).ok_or("it is not mounted")?;
    // The same check as sd_booted(3): whether systemd runs this machine.
    let has_systemd = Path::new("/run/systemd/system").is_dir();
    let mut seen =
        own.upward().take(2).map(|folder| GroupFacts::of(folder, folder == own.mount, has_systemd));
    let first = seen.next().ok_or("it is not mounted")?.map_err(|error| error.to_string())?;
    Ok((first, seen.next().and_then(Result::ok)))
}

/// Which of the two allows new groups, or why neither does.
pub(crate) fn choose<'a>(
    own: &'a GroupFacts,
    above: Option<&'a GroupFacts>,
) -> Result<&'a GroupFacts, String> {
    if own.is_delegated {
        return Ok(own);
    }
    // systemd can put the processes of a delegated unit into a subgroup (DelegateSubgroup).
    let above = above.filter(|above| above.is_delegated && above.processes.is_empty());
    above.ok_or_else(|| format!("{} belongs to systemd, which has not delegated it", own.folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_systemd_are_left_alone_unless_the_parent_was_delegated() {
        let seen = |folder: &str, is_delegated| GroupFacts {
            folder: folder.into(),
            is_delegated,
            ..GroupFacts::default()
        };
        let own = seen("/c/a.service/inner", false);
        let reason = "/c/a.service/inner belongs to systemd, which has not delegated it";
        assert_eq!(choose(&own, None).unwrap_err(), reason);
        let above = seen("/c/a.service", true);
        assert_eq!(choose(&own, Some(&above)), Ok(&above));
        assert!(choose(&own, Some(&seen("/c/a.service", false))).is_err());
        let busy = GroupFacts { processes: vec![9], ..above.clone() };
        assert!(choose(&own, Some(&busy)).is_err());
        let delegated = GroupFacts { is_delegated: true, processes: vec![7, 9], ..own };
        assert_eq!(choose(&delegated, Some(&above)), Ok(&delegated));
    }

    #[test]
    fn the_facts_about_a_group_come_from_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert!(GroupFacts::of(folder.path(), true, true).is_err());
        write("cgroup.controllers", "cpuset cpu io\n");
        write("cgroup.procs", "12\n0\n");
        let look = |is_top, has_systemd| GroupFacts::of(folder.path(), is_top, has_systemd).unwrap();
        let root = look(true, true);
        assert_eq!((root.is_root, root.is_delegated, root.has_cpu), (true, false, true));
        assert_eq!(root.processes, [12, 0]);
        assert!(look(true, false).is_delegated, "without systemd");
        write("cgroup.type", "domain\n");
        write("cgroup.controllers", "cpuset io\n");
        let container = look(true, true);
        assert_eq!((container.is_root, container.is_delegated, container.has_cpu), (false, true, false));
        assert!(!look(false, true).is_delegated);
        let marked =
            rustix::fs::setxattr(folder.path(), "user.delegate", b"1", rustix::fs::XattrFlags::empty());
        if marked.is_ok() {
            assert!(look(false, true).is_delegated);
        }
    }
}
