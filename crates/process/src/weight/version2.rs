//! Control groups of version 2, where the group that Kilnyard was started in has been handed over to it.
//!
//! Two rules of the kernel and one of systemd shape this (Documentation/admin-guide/cgroup-v2.rst;
//! <https://systemd.io/CGROUP_DELEGATION>). A group other than the root has either processes or children with
//! controllers, so that Kilnyard moves itself into a child. A child has a controller only if its parent says so. And
//! groups below those that systemd has not delegated are systemd's alone.

use super::group::{Groups, VERSION_2};
use super::processes::Processes;
use super::{folder, name};
use crate::groups::{Hierarchy, Place};
use std::io;
use std::path::{Path, PathBuf};

/// Kilnyard's own processes, in its own group.
const SUPERVISOR: &str = "supervisor";
/// A process that is moved may have started another one meanwhile, which is moved then.
const MOVES_MAX: u32 = 10;

/// What is seen of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) folder: PathBuf,
    /// The root of all groups of the machine, which may have both processes and children.
    pub(super) is_root: bool,
    /// It was handed over to whoever runs in it.
    pub(super) is_delegated: bool,
    /// It may give its children CPU weights.
    pub(super) has_cpu: bool,
    /// Processes in the group itself.
    pub(super) processes: Vec<u32>,
}

impl Seen {
    /// `is_top`: one sees nothing above it. Reads files alone, so that it is tested on any folder.
    pub(super) fn of(folder: &Path, is_top: bool, has_systemd: bool) -> io::Result<Seen> {
        let controllers = fs_err::read_to_string(folder.join("cgroup.controllers"))?;
        // Only the root of the machine lacks this file (cgroups(7)).
        let is_root = is_top && !folder.join("cgroup.type").exists();
        let marked = ["user.delegate", "trusted.delegate"].iter().any(|mark| {
            let mut value = [0; 8];
            rustix::fs::getxattr(folder, *mark, &mut value).is_ok_and(|count| value[..count] == *b"1")
        });
        Ok(Seen {
            folder: folder.to_owned(),
            is_root,
            // Without systemd there is nobody else who would manage it. The top that is not the machine's root is that
            // of a container, which was made for what runs in it.
            is_delegated: marked || !has_systemd || (is_top && !is_root),
            has_cpu: controllers.split_whitespace().any(|controller| controller == "cpu"),
            processes: folder::processes(folder)?,
        })
    }
}

/// Where Kilnyard's group is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The group that it is made in.
    pub(super) base: PathBuf,
    /// Whether Kilnyard's own processes have to leave that one.
    pub(super) moves_itself: bool,
}

/// Decides, or says why there is no way. `own` is the group that Kilnyard is in, `above` the one around it, and `ours`
/// Kilnyard's own processes.
pub(super) fn decide(own: &Seen, above: Option<&Seen>, ours: &[u32]) -> Result<Plan, String> {
    // systemd puts the processes of a delegated unit into a group in it, if it is told to (DelegateSubgroup).
    let above = above.filter(|above| above.is_delegated && above.processes.is_empty());
    let name = own.folder.display();
    let (base, moves_itself) = if own.is_delegated {
        (own, !own.is_root)
    } else if let Some(above) = above {
        (above, false)
    } else {
        return Err(format!("{name} belongs to systemd, which has not delegated it"));
    };
    if !base.has_cpu {
        return Err(format!("{} has no cpu controller", base.folder.display()));
    }
    if moves_itself && base.processes.iter().any(|process| !ours.contains(process)) {
        return Err(format!("there are processes in {name} that are not Kilnyard's"));
    }
    Ok(Plan { base: base.folder.clone(), moves_itself })
}

/// Makes Kilnyard's own group, and moves Kilnyard if need be.
pub(super) fn find(owner: &str, cpus: usize) -> Result<(Groups, Supervisor), String> {
    let own = Place::own(Hierarchy::Version2).ok_or("it is not mounted here")?;
    // As sd_booted(3) finds out whether systemd runs this machine.
    let has_systemd = Path::new("/run/systemd/system").is_dir();
    let mut seen = own.upward().take(2).map(|folder| Seen::of(folder, folder == own.mount, has_systemd));
    let first = seen.next().ok_or("it is not mounted here")?.map_err(|error| error.to_string())?;
    let above = seen.next().and_then(Result::ok);
    let plan = decide(&first, above.as_ref(), &Processes::look().tree(std::process::id()))?;
    let lingering = folder::sweep(&plan.base, owner);
    let top = plan.base.join(name::new(owner));
    fs_err::create_dir(&top).map_err(|error| error.to_string())?;
    let groups = Groups::new(VERSION_2, top.clone(), Some(top.clone()), lingering);
    let mut supervisor = Supervisor { base: plan.base, top, moved: false, enabled: false };
    supervisor.take_over(plan.moves_itself, cpus).map_err(|error| error.to_string())?;
    Ok((groups, supervisor))
}

/// What is put back in the end, when the groups of builds are removed.
#[derive(Debug)]
pub(super) struct Supervisor {
    base: PathBuf,
    top: PathBuf,
    /// Kilnyard's processes were moved.
    moved: bool,
    /// The base was told to give its children CPU weights.
    enabled: bool,
}

impl Supervisor {
    fn take_over(&mut self, moves_itself: bool, cpus: usize) -> io::Result<()> {
        let leaf = self.top.join(SUPERVISOR);
        if moves_itself {
            fs_err::create_dir(&leaf)?;
            self.moved = true;
            move_all(&self.base, &leaf)?;
        }
        self.enabled = enable(&self.base)?;
        enable(&self.top)?;
        folder::write(&self.top.join(VERSION_2.weight), VERSION_2.scale.of_all(cpus))?;
        if moves_itself {
            // Who hands out cores must not wait for one behind the builds.
            folder::write(&leaf.join(VERSION_2.weight), VERSION_2.scale.of_rank(0))?;
        }
        Ok(())
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let control = |folder: &Path| folder.join("cgroup.subtree_control");
        // Each of these may fail when a build's process is still there; then all of it stays, which does no harm.
        let _ = folder::write(&control(&self.top), "-cpu");
        if self.enabled {
            let _ = folder::write(&control(&self.base), "-cpu");
        }
        if self.moved {
            let leaf = self.top.join(SUPERVISOR);
            let _ = move_all(&leaf, &self.base);
            let _ = folder::remove(&leaf);
        }
        let _ = folder::remove(&self.top);
    }
}

/// Whether it had to be told.
fn enable(folder: &Path) -> io::Result<bool> {
    let control = folder.join("cgroup.subtree_control");
    let has_it = fs_err::read_to_string(&control)?.split_whitespace().any(|controller| controller == "cpu");
    if !has_it {
        folder::write(&control, "+cpu")?;
    }
    Ok(!has_it)
}

fn move_all(from: &Path, to: &Path) -> io::Result<()> {
    let file = to.join("cgroup.procs");
    for _ in 0..MOVES_MAX {
        let processes = folder::processes(from)?;
        if processes.is_empty() {
            return Ok(());
        }
        for process in processes {
            let moved = folder::write(&file, process);
            // It may have ended meanwhile.
            if super::processes::Process::of(process).is_some_and(|process| !process.is_dead) {
                moved?;
            }
        }
    }
    Err(io::Error::other(format!("processes keep coming in {}", from.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(folder: &str) -> Seen {
        Seen {
            folder: folder.into(),
            has_cpu: true,
            is_delegated: true,
            processes: vec![7],
            ..Seen::default()
        }
    }

    fn reason(own: &Seen, above: Option<&Seen>) -> String {
        decide(own, above, &[7, 8]).unwrap_err()
    }

    #[test]
    fn a_delegated_group_is_taken_if_nobody_else_is_in_it() {
        let own = seen("/c/a.scope");
        let plan = Plan { base: "/c/a.scope".into(), moves_itself: true };
        assert_eq!(decide(&own, None, &[7, 8]), Ok(plan));
        let shared = Seen { processes: vec![7, 9], ..own.clone() };
        assert_eq!(reason(&shared, None), "there are processes in /c/a.scope that are not Kilnyard's");
        // One that is seen from another namespace alone.
        let foreign = Seen { processes: vec![0, 7], ..own.clone() };
        assert!(decide(&foreign, None, &[7, 8]).is_err());
        let without = Seen { has_cpu: false, ..own };
        assert_eq!(reason(&without, None), "/c/a.scope has no cpu controller");
    }

    #[test]
    fn what_is_systemds_is_left_alone_unless_the_group_around_it_was_delegated() {
        let own = Seen { is_delegated: false, ..seen("/c/a.service/inner") };
        assert_eq!(reason(&own, None), "/c/a.service/inner belongs to systemd, which has not delegated it");
        let above = Seen { processes: vec![], ..seen("/c/a.service") };
        let plan = Plan { base: "/c/a.service".into(), moves_itself: false };
        assert_eq!(decide(&own, Some(&above), &[7]), Ok(plan));
        let systemds = Seen { is_delegated: false, ..above.clone() };
        assert!(decide(&own, Some(&systemds), &[7]).is_err());
        let busy = Seen { processes: vec![9], ..above };
        assert!(decide(&own, Some(&busy), &[7]).is_err());
    }

    #[test]
    fn nobody_leaves_the_root_of_the_machine() {
        let root = Seen { is_root: true, processes: vec![1, 2, 7], ..seen("/c") };
        assert_eq!(decide(&root, None, &[7]), Ok(Plan { base: "/c".into(), moves_itself: false }));
    }

    #[test]
    fn what_a_group_is_stands_in_its_files() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
        assert!(Seen::of(folder.path(), true, true).is_err());
        write("cgroup.controllers", "cpuset cpu io\n");
        write("cgroup.procs", "12\n0\n");
        let look = |is_top, has_systemd| Seen::of(folder.path(), is_top, has_systemd).unwrap();
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
