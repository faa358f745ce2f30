//! Commands of builds in virtual machines.
//!
//! Each command has a machine of its own, which ends before this machine looks at what the command wrote: a guest that was
//! taken over can write anything to its folder, but not while somebody reads it.

use crate::RootFolder;
use kilnyard_model::order::MachineTerms;
use kilnyard_process::{CommandOutcome, End, Sample, Watched};
use kilnyard_root::{SHARED, Sandbox};
use kilnyard_vm::{Accelerator, Kernel, Machine, Shape, accelerator, missing_requirement};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
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
    found: Mutex<Option<(Kernel, Accelerator)>>,
}

impl Machines {
    pub(crate) fn new(yard: &Path) -> Machines {
        Machines { kernels: yard.join(KERNELS), found: Mutex::default() }
    }

    /// Runs a sandbox of a root in a new machine.
    pub(crate) fn run(
        &self,
        root: &RootFolder,
        terms: MachineTerms,
        (sandbox, watched): (&Sandbox, Watched<'_>),
        output: &mut (dyn Write + Send),
        observe: &mut dyn FnMut(Sample),
    ) -> CommandOutcome {
        let membership = watched.membership;
        let folder = root.path().join(FOLDER);
        let outcome = match self.start(&folder, terms, sandbox) {
            Ok(mut machine) => {
                for process in machine.processes() {
                    // Without its weight, the build still works.
                    let _ = membership.map(|membership| membership.enter(process));
                }
                machine.run(sandbox, output, watched, observe)
            }
            Err(error) => CommandOutcome::of(End::SandboxFailed(error)),
        };
        let checked = fs_err::remove_dir_all(&folder).and_then(|()| check(&root.path().join(SHARED)));
        match checked {
            Ok(()) => outcome,
            Err(error) => CommandOutcome { end: End::SandboxFailed(error.to_string()), ..outcome },
        }
    }

    fn start(&self, folder: &Path, terms: MachineTerms, sandbox: &Sandbox) -> Result<Machine, String> {
        let (kernel, accelerator) = self.kernel()?;
        let shape = Shape { kernel, accelerator, cores: terms.cores, memory_bytes: terms.memory_bytes };
        fs_err::create_dir(folder).map_err(|error| error.to_string())?;
        Machine::start(&shape, &self.kernels, folder, &[sandbox], BOOTS_WITHIN)
            .map_err(|error| error.to_string())
    }

    /// Finds the kernel and what executes it, the first time.
    fn kernel(&self) -> Result<(Kernel, Accelerator), String> {
        if let Some(lack) = missing_requirement() {
            return Err(lack.to_string());
        }
        let mut found = self.found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(found) = &*found {
            return Ok(found.clone());
        }
        let kernel = Kernel::of_debian(&self.kernels).map_err(|error| error.to_string())?;
        let accelerator = accelerator(&kernel, &self.kernels).map_err(|error| error.to_string())?;
        Ok(found.insert((kernel, accelerator)).clone())
    }
}

/// What a guest may have put in the place of the folders that this machine reads next would lead it elsewhere.
fn check(shared: &Path) -> io::Result<()> {
    for name in ["upper", "work"] {
        if !fs_err::symlink_metadata(shared.join(name))?.is_dir() {
            return Err(io::Error::other(format!(
                "the virtual machine replaced the folder {name} of its root"
            )));
        }
    }
    Ok(())
}
