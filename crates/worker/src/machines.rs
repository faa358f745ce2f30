//! Commands of builds in virtual machines.
//!
//! Each command has a machine of its own, which ends before this machine reads what the command wrote: a guest that was
//! taken over can write anything to its folder, but not while that is being read.

use crate::RootFolder;
use crate::layers::Image;
use kilnyard_model::order::{MachineTerms, Processor};
use kilnyard_process::{CommandOutcome, End, Limits, Sample, Watched, Writing};
use kilnyard_root::tree::remove_beneath;
use kilnyard_root::{IdMap, SHARED, Sandbox, usage};
use kilnyard_vm::{
    Accelerator, Architecture, Console, Kernel, Machine, Shape, accelerator, missing_requirement,
};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;

/// The folder for kernels, relative to the yard.
pub const KERNELS: &str = "state/machines";
/// The folder of a machine, relative to the folder of its root.
const FOLDER: &str = "machine";
/// How long a machine may take to boot on a busy machine.
const BOOTS_WITHIN: Duration = Duration::from_secs(120);

/// The kernel for machines, and how it runs here.
#[derive(Debug)]
pub(crate) struct Machines {
    kernels: PathBuf,
    found: Mutex<Vec<(Kernel, Accelerator)>>,
}

/// Why this machine cannot run virtual machines with a processor, by default its own, and the Debian package that helps. `ids`
/// are those of the yard's roots, if they are known already.
pub fn missing_machine(
    processor: Option<Processor>,
    ids: Option<&IdMap>,
) -> Option<(String, Option<&'static str>)> {
    let lack = missing_requirement(processor.map(architecture_of), ids)?;
    Some((lack.to_string(), lack.package()))
}

/// The architecture of machines with a processor.
pub fn architecture_of(processor: Processor) -> Architecture {
    match processor {
        Processor::X86_64 => Architecture::X86_64,
        Processor::Aarch64 => Architecture::Aarch64,
    }
}

/// A virtual machine for a sandbox that is not a build's.
#[derive(Clone, Copy, Debug)]
pub struct InMachine<'a> {
    /// The yard's folder.
    pub yard: &'a Path,
    /// A folder for the machine's own files, relative to the yard.
    pub beside: &'a Path,
    /// What the machine is like.
    pub terms: MachineTerms,
}

impl InMachine<'_> {
    /// Runs a sandbox to its end.
    pub fn run(
        &self,
        sandbox: &Sandbox,
        output: &mut (dyn Write + Send),
        limits: Limits,
        cancel: &AtomicBool,
        observe: &mut dyn FnMut(Sample),
    ) -> CommandOutcome {
        let folder = self.yard.join(self.beside).join(FOLDER);
        let watched = Watched { limits, writing: &Writing::default(), cancel, membership: None };
        let outcome = match Machines::new(self.yard).start(&folder, self.terms, sandbox, None) {
            Ok(mut machine) => machine.run(sandbox, output, watched, &AtomicU64::new(0), observe),
            Err(error) => CommandOutcome::of(End::SandboxFailed(error)),
        };
        match fs_err::remove_dir_all(&folder) {
            Err(error) if outcome.end == End::Exit(0) => {
                CommandOutcome { end: End::SandboxFailed(error.to_string()), ..outcome }
            }
            _ => outcome,
        }
    }
}

impl Machines {
    pub(crate) fn new(yard: &Path) -> Machines {
        Machines { kernels: yard.join(KERNELS), found: Mutex::default() }
    }

    /// What a command on a terminal in a new machine needs.
    pub(crate) fn console(
        &self,
        folder: PathBuf,
        terms: MachineTerms,
        sandbox: Sandbox,
    ) -> Result<Console, String> {
        let (kernel, accelerator) = self.kernel(terms.processor)?;
        let shape = Shape { kernel, accelerator, cores: terms.cores, memory_bytes: terms.memory_bytes };
        Ok(Console { shape, made: self.kernels.clone(), folder, sandbox, boots_within: BOOTS_WITHIN })
    }

    /// Whether a machine can be started.
    pub(crate) fn are_there(&self) -> bool {
        self.kernel(None).is_ok()
    }

    /// Runs a sandbox of a root in a new machine, which has the lowest layers on a disk if there is an image of them.
    pub(crate) fn run(
        &self,
        root: &RootFolder,
        (terms, image): (MachineTerms, Option<&Image>),
        (sandbox, watched): (&Sandbox, Watched<'_>),
        output: &mut (dyn Write + Send),
        observe: &mut dyn FnMut(Sample),
    ) -> CommandOutcome {
        let membership = watched.membership;
        let folder = root.path().join(FOLDER);
        let (disk, on_disk) = match image.map(|image| image.on_disk(sandbox)) {
            Some((sandbox, disk)) => (Some(disk), Some(sandbox)),
            None => (None, None),
        };
        let sandbox = on_disk.as_ref().unwrap_or(sandbox);
        let outcome = match self.start(&folder, terms, sandbox, disk.as_ref()) {
            Ok(machine) => {
                // A pipe of this machine is out of reach of another one, whose cores the build has for itself.
                let mut machine = machine.with_jobserver(root.jobserver());
                for process in machine.processes() {
                    // Without its weight, the build still works.
                    let _ = membership.map(|membership| membership.enter(process));
                }
                measured(&root.path().join(SHARED), &mut |written| {
                    machine.run(sandbox, output, watched, written, observe)
                })
            }
            Err(error) => CommandOutcome::of(End::SandboxFailed(error)),
        };
        let folder = root.plan().folder.join(FOLDER);
        let removed = remove_beneath(root.yard(), &folder);
        match removed.and_then(|()| check(&root.path().join(SHARED))) {
            Ok(()) => outcome,
            // What went wrong first says more.
            Err(_) if matches!(outcome.end, End::SandboxFailed(_)) => outcome,
            Err(error) => CommandOutcome { end: End::SandboxFailed(error.to_string()), ..outcome },
        }
    }

    fn start(
        &self,
        folder: &Path,
        terms: MachineTerms,
        sandbox: &Sandbox,
        disk: Option<&kilnyard_vm::Image>,
    ) -> Result<Machine, String> {
        let (kernel, accelerator) = self.kernel(terms.processor)?;
        let shape = Shape { kernel, accelerator, cores: terms.cores, memory_bytes: terms.memory_bytes };
        fs_err::create_dir(folder).map_err(|error| error.to_string())?;
        Machine::start(&shape, &self.kernels, folder, &[sandbox], disk, BOOTS_WITHIN)
            .map_err(|error| error.to_string())
    }

    /// Finds the kernel and what executes it, the first time.
    fn kernel(&self, processor: Option<Processor>) -> Result<(Kernel, Accelerator), String> {
        let own = Architecture::OWN.ok_or("no virtual machine can have this processor");
        let architecture = processor.map_or(own, |processor| Ok(architecture_of(processor)))?;
        if let Some(lack) = missing_requirement(Some(architecture), None) {
            return Err(lack.to_string());
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = found.iter().find(|(kernel, _)| kernel.architecture == architecture) {
            return Ok(found.clone());
        }
        let kernel = Kernel::downloaded(&self.kernels, architecture).map_err(|error| error.to_string())?;
        let accelerator = accelerator(&kernel, &self.kernels).map_err(|error| error.to_string())?;
        found.push((kernel.clone(), accelerator));
        Ok((kernel, accelerator))
    }
}

/// How often what a command has written is measured, which takes a walk over all files.
const MEASURED: Duration = Duration::from_secs(5);

/// Does something while what is in a folder is measured.
fn measured<T>(folder: &Path, action: &mut dyn FnMut(&AtomicU64) -> T) -> T {
    let (written, is_over) = (AtomicU64::new(0), (Mutex::new(false), Condvar::new()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (is_over, changed) = &is_over;
            let mut over = is_over.lock().unwrap_or_else(PoisonError::into_inner);
            while !*over {
                drop(over);
                written.store(usage(folder, u64::MAX).charged_bytes(), Ordering::Relaxed);
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

/// What a guest may have put in the place of the folders that this machine reads next would lead it elsewhere.
pub(crate) fn check(shared: &Path) -> io::Result<()> {
    for name in ["upper", "work"] {
        if !fs_err::symlink_metadata(shared.join(name))?.is_dir() {
            return Err(io::Error::other(format!(
                "the virtual machine replaced the folder {name} of its root"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

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
