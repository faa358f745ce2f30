//! The virtual machine of a root.
//!
//! It runs the commands of the root one after the other, and ends before this machine reads what they wrote: a guest that was
//! taken over can write anything to its folder, but not while that is being read.

use super::{FOLDER, Machines};
use crate::RootFolder;
use crate::layers::Image;
use kilnyard_model::order::MachineTerms;
use kilnyard_process::{CommandOutcome, End, Sample, Watched};
use kilnyard_root::tree::remove_beneath;
use kilnyard_root::{Operation, SHARED, Sandbox, View, usage};
use kilnyard_vm::Machine;
use std::cell::RefCell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// See the module documentation.
#[derive(Debug)]
pub(crate) struct RootMachine {
    machines: Arc<Machines>,
    terms: MachineTerms,
    /// The layers that it has on a disk, if there is an image of them.
    disk: Option<Arc<Image>>,
    guest: RefCell<Guest>,
}

/// What may write to the root.
#[derive(Debug)]
enum Guest {
    None,
    Running(Box<Machine>),
    /// It left something that cannot be used.
    Refused(String),
}

impl RootMachine {
    pub(crate) fn new(machines: Arc<Machines>, terms: MachineTerms, disk: Option<Arc<Image>>) -> RootMachine {
        RootMachine { machines, terms, disk, guest: RefCell::new(Guest::None) }
    }

    /// Runs a sandbox of the root. A machine that is started for it also shows what the other sandbox needs.
    pub(crate) fn run(
        &self,
        root: &RootFolder,
        [sandbox, other]: [&Sandbox; 2],
        watched: Watched<'_>,
        output: &mut (dyn Write + Send),
        observe: &mut dyn FnMut(Sample),
    ) -> CommandOutcome {
        let outcome = match self.guest_for(root, [sandbox, other]) {
            Ok((sandbox, mut machine)) => {
                for process in machine.processes() {
                    // Without its weight, the build still works.
                    let _ = watched.membership.map(|membership| membership.enter(process));
                }
                // A guest can write to all of its folder, not only where the sandbox does.
                let shared = root.path().join(SHARED);
                let others = root.written_outside().into_iter().filter(|folder| !folder.starts_with(&shared));
                let folders: Vec<PathBuf> = std::iter::once(shared.clone()).chain(others).collect();
                let outcome = measured(&folders, &mut |written| {
                    machine.run(&sandbox, output, watched, written, observe)
                });
                *self.guest.borrow_mut() = Guest::Running(machine);
                outcome
            }
            Err(error) => CommandOutcome::of(End::SandboxFailed(error)),
        };
        if outcome.end == End::Exit(0) {
            return outcome;
        }
        // It may be in any state.
        match self.end(root) {
            // What went wrong first says more.
            Err(error) if !matches!(outcome.end, End::SandboxFailed(_)) => {
                CommandOutcome { end: End::SandboxFailed(error.to_string()), ..outcome }
            }
            _ => outcome,
        }
    }

    /// The sandbox as a machine sees it, and that machine: the running one, or another one if that does not show all that the sandbox
    /// needs.
    fn guest_for(
        &self,
        root: &RootFolder,
        sandboxes: [&Sandbox; 2],
    ) -> Result<(Sandbox, Box<Machine>), String> {
        let mut image = None;
        let [sandbox, other] = sandboxes.map(|sandbox| match &self.disk {
            None => sandbox.clone(),
            Some(disk) => {
                let (sandbox, found) = disk.on_disk(sandbox);
                image = Some(found);
                sandbox
            }
        });
        match self.guest.replace(Guest::None) {
            Guest::Running(machine) if machine.shows(&sandbox) => return Ok((sandbox, machine)),
            guest => *self.guest.borrow_mut() = guest,
        }
        self.end(root).map_err(|error| error.to_string())?;
        if [&sandbox, &other].iter().any(|sandbox| !is_contained(sandbox, &root.plan().folder)) {
            return Err("the root has no folder of its own for a virtual machine".to_owned());
        }
        let folder = root.path().join(FOLDER);
        let started = self.machines.start(&folder, self.terms, &[&sandbox, &other], image.as_ref());
        let machine = started.inspect_err(|_| {
            // The first error says more.
            let _ = self.clear(root);
        })?;
        // A pipe of this machine is out of reach of another one, whose cores the build has for itself.
        Ok((sandbox, Box::new(machine.with_jobserver(root.jobserver()))))
    }

    /// Ends the machine, if one runs. What its commands wrote can be read after that.
    ///
    /// # Errors
    /// Its folder cannot be removed, or it replaced folders of the root, now or at an earlier call.
    pub(crate) fn end(&self, root: &RootFolder) -> io::Result<()> {
        match self.guest.replace(Guest::None) {
            Guest::None => Ok(()),
            Guest::Running(machine) => {
                drop(machine);
                self.clear(root)
            }
            Guest::Refused(why) => {
                *self.guest.borrow_mut() = Guest::Refused(why.clone());
                Err(io::Error::other(why))
            }
        }
    }

    fn clear(&self, root: &RootFolder) -> io::Result<()> {
        let removed = remove_beneath(root.yard(), &root.plan().folder.join(FOLDER));
        removed.and_then(|()| check(&root.path().join(SHARED))).inspect_err(|error| {
            *self.guest.borrow_mut() = Guest::Refused(error.to_string());
        })
    }
}

/// How often what a command has written is measured, which takes a walk over all files.
const MEASURED: Duration = Duration::from_secs(5);

/// Does something while what is in folders is measured.
fn measured<T>(folders: &[PathBuf], action: &mut dyn FnMut(&AtomicU64) -> T) -> T {
    let (written, is_over) = (AtomicU64::new(0), (Mutex::new(false), Condvar::new()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (is_over, changed) = &is_over;
            let mut over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
            while !*over {
                drop(over);
                let bytes = folders.iter().map(|folder| usage(folder, u64::MAX).charged_bytes());
                written.store(bytes.sum(), Ordering::Relaxed);
                over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
                if !*over {
                    over = changed.wait_timeout(over, MEASURED).unwrap_or_else(PoisonError::into_inner).0;
                }
            }
        });
        let done = action(&written);
        *is_over.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        is_over.1.notify_all();
        done
    })
}

/// What an error begins with if a guest replaced a folder.
pub(crate) const REPLACED: &str = "the virtual machine replaced";

/// What a guest may have put in the place of the folders that this machine reads next would lead it elsewhere.
pub(crate) fn check(shared: &Path) -> io::Result<()> {
    for name in ["upper", "work"] {
        if !fs_err::symlink_metadata(shared.join(name))?.is_dir() {
            return Err(io::Error::other(format!("{REPLACED} the folder {name} of its root")));
        }
    }
    Ok(())
}

/// Whether the files that a sandbox writes over its layers are in the folder of its root that machines may write to. Next to that
/// are links to inputs, and files that this machine writes.
pub(crate) fn is_contained(sandbox: &Sandbox, root: &Path) -> bool {
    let shared = root.join(SHARED);
    let View::Root(operations) = &sandbox.view else { return false };
    operations.iter().all(|operation| match operation {
        Operation::Overlay { upper, work, .. } => {
            [upper, work].iter().all(|path| path.parent() == Some(&*shared))
        }
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_root::sandbox::Task;
    use kilnyard_root::{IdMap, Making, Place, RootPlan};

    #[test]
    fn only_roots_with_a_folder_for_machines_are_shared() {
        let (ids, _) = IdMap::of_this_user("root", 0);
        let root = Path::new("roots/1");
        let is_contained = |place| {
            let making = Making { place, ..Making::default() };
            let plan = RootPlan::new(root, &["layers/base".into()], &making);
            let sandbox = Sandbox::of_machine(Path::new("/yard"), &ids, Task::Remove(Vec::new()));
            is_contained(&Sandbox { view: View::Root(plan.entering(&[])), ..sandbox }, root)
        };
        assert!(is_contained(Place::Shared));
        assert!(!is_contained(Place::Disk));
    }

    #[test]
    fn folders_that_a_machine_replaced_are_not_used() {
        let shared = tempfile::tempdir().unwrap();
        for name in ["upper", "work", "elsewhere"] {
            fs_err::create_dir(shared.path().join(name)).unwrap();
        }
        check(shared.path()).unwrap();
        fs_err::remove_dir(shared.path().join("upper")).unwrap();
        assert!(check(shared.path()).is_err());
        fs_err::os::unix::fs::symlink("elsewhere", shared.path().join("upper")).unwrap();
        let error = check(shared.path()).unwrap_err().to_string();
        assert!(error.contains("replaced the folder upper"), "{error}");
    }
}
