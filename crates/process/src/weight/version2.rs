//! Cgroup v2, where the group that Kilnyard was started in is delegated to it.
//!
//! Two rules of the kernel shape this (Documentation/admin-guide/cgroup-v2.rst), in addition to those in
//! `groups::base`. A group other than the root has either processes or children with controllers, so Kilnyard moves
//! itself into a child. And a child has a controller only if its parent enables it.

use super::group::{Groups, VERSION_2};
use crate::groups::base::{self, GroupFacts};
use crate::groups::folder;
use crate::groups::name::{self, SUPERVISOR};
use crate::processes::{Process, Processes};
use std::io;
use std::path::{Path, PathBuf};

/// Rounds of moving processes: a process may start another one while it is being moved.
const MOVES_MAX: u32 = 10;

/// Where to create Kilnyard's group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The parent group.
    pub(super) base: PathBuf,
    /// Whether Kilnyard's own processes have to leave the parent group.
    pub(super) moves_itself: bool,
}

/// Decides where to create the group, or why it is not possible. `own` is Kilnyard's group, `above` its parent, and
/// `ours` lists Kilnyard's own processes.
pub(super) fn decide(own: &GroupFacts, above: Option<&GroupFacts>, ours: &[u32]) -> Result<Plan, String> {
    let base = base::choose(own, above)?;
    let moves_itself = base.folder == own.folder && !own.is_root;
    if !base.has_cpu {
        return Err(format!("{} has no cpu controller", base.folder.display()));
    }
    if moves_itself && base.processes.iter().any(|process| !ours.contains(process)) {
        let name = own.folder.display();
        return Err(format!("{name} has processes that are not Kilnyard's"));
    }
    Ok(Plan { base: base.folder.clone(), moves_itself })
}

/// Creates Kilnyard's own group, and moves Kilnyard into a child of it if necessary.
pub(super) fn find(owner: &str, cpus: usize) -> Result<(Groups, Supervisor), String> {
    let (own, above) = base::look()?;
    let plan = decide(&own, above.as_ref(), &Processes::read().tree(std::process::id()))?;
    let lingering = folder::sweep(&plan.base, owner);
    let top = plan.base.join(name::new(owner));
    fs_err::create_dir(&top).map_err(|error| error.to_string())?;
    let groups = Groups::new(VERSION_2, top.clone(), Some(top.clone()), lingering);
    let mut supervisor = Supervisor { base: plan.base, top, moved: false, enabled: Vec::new() };
    supervisor.take_over(plan.moves_itself, cpus).map_err(|error| error.to_string())?;
    Ok((groups, supervisor))
}

/// Restores the previous state when the groups of builds have been removed.
#[derive(Debug)]
pub(super) struct Supervisor {
    base: PathBuf,
    top: PathBuf,
    /// Whether Kilnyard's processes were moved.
    moved: bool,
    /// Controllers that this enabled for the children of the base.
    enabled: Vec<&'static str>,
}

impl Supervisor {
    fn take_over(&mut self, moves_itself: bool, cpus: usize) -> io::Result<()> {
        let leaf = self.top.join(SUPERVISOR);
        if moves_itself {
            fs_err::create_dir(&leaf)?;
            self.moved = true;
            move_all(&self.base, &leaf)?;
        }
        self.enable("cpu")?;
        // Without the memory controller, builds still have weights.
        let _ = self.enable("memory");
        folder::write(&self.top.join(VERSION_2.weight), VERSION_2.scale.of_all(cpus))?;
        if moves_itself {
            // The process that hands out cores must not wait for one behind the builds.
            folder::write(&leaf.join(VERSION_2.weight), VERSION_2.scale.of_rank(0))?;
        }
        Ok(())
    }

    fn enable(&mut self, controller: &'static str) -> io::Result<()> {
        if enable(&self.base, controller)? {
            self.enabled.push(controller);
        }
        enable(&self.top, controller).map(|_| ())
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        let disable = |folder: &Path, controller: &str| {
            folder::write(&folder.join("cgroup.subtree_control"), format!("-{controller}"))
        };
        // Any of these fails if a build's process still exists. Then the groups stay, which does no harm.
        for controller in ["cpu", "memory"] {
            let _ = disable(&self.top, controller);
        }
        for controller in &self.enabled {
            let _ = disable(&self.base, controller);
        }
        if self.moved {
            let leaf = self.top.join(SUPERVISOR);
            let _ = move_all(&leaf, &self.base);
            let _ = folder::remove(&leaf);
        }
        let _ = folder::remove(&self.top);
    }
}

/// Enables a controller for the children of a group; returns whether it was disabled before.
fn enable(folder: &Path, controller: &str) -> io::Result<bool> {
    let control = folder.join("cgroup.subtree_control");
    let has_it = fs_err::read_to_string(&control)?.split_whitespace().any(|has| has == controller);
    if !has_it {
        folder::write(&control, format!("+{controller}"))?;
    }
    Ok(!has_it)
}

fn move_all(from: &Path, to: &Path) -> io::Result<()> {
    for _ in 0..MOVES_MAX {
        let processes = folder::processes(from)?;
        if processes.is_empty() {
            return Ok(());
        }
        for process in processes {
            let moved = folder::enter(to, process);
            // It may have ended in the meantime.
            if Process::of(process).is_some_and(|process| !process.is_dead) {
                moved?;
            }
        }
    }
    Err(io::Error::other(format!("new processes keep appearing in {}", from.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(folder: &str) -> GroupFacts {
        GroupFacts {
            folder: folder.into(),
            has_cpu: true,
            is_delegated: true,
            processes: vec![7],
            ..GroupFacts::default()
        }
    }

    fn reason(own: &GroupFacts, above: Option<&GroupFacts>) -> String {
        decide(own, above, &[7, 8]).unwrap_err()
    }

    #[test]
    fn a_delegated_group_is_taken_if_all_its_processes_are_ours() {
        let own = seen("/c/a.scope");
        let plan = Plan { base: "/c/a.scope".into(), moves_itself: true };
        assert_eq!(decide(&own, None, &[7, 8]), Ok(plan));
        let shared = GroupFacts { processes: vec![7, 9], ..own.clone() };
        assert_eq!(reason(&shared, None), "/c/a.scope has processes that are not Kilnyard's");
        // A process that only another pid namespace can see.
        let foreign = GroupFacts { processes: vec![0, 7], ..own.clone() };
        assert!(decide(&foreign, None, &[7, 8]).is_err());
        let without = GroupFacts { has_cpu: false, ..own };
        assert_eq!(reason(&without, None), "/c/a.scope has no cpu controller");
    }

    #[test]
    fn processes_below_the_delegated_group_do_not_move() {
        let own = GroupFacts { is_delegated: false, ..seen("/c/a.service/inner") };
        let above = GroupFacts { processes: vec![], ..seen("/c/a.service") };
        let plan = Plan { base: "/c/a.service".into(), moves_itself: false };
        assert_eq!(decide(&own, Some(&above), &[7]), Ok(plan));
        assert!(decide(&own, None, &[7]).is_err());
    }

    #[test]
    fn processes_in_the_root_group_do_not_move() {
        let root = GroupFacts { is_root: true, processes: vec![1, 2, 7], ..seen("/c") };
        assert_eq!(decide(&root, None, &[7]), Ok(Plan { base: "/c".into(), moves_itself: false }));
    }
}
