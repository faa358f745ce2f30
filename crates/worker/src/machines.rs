//! Commands in virtual machines.

mod of_root;

pub(crate) use of_root::{REPLACED, RootMachine, check, is_contained};

use kilnyard_model::order::{MachineTerms, Processor};
use kilnyard_process::{CommandOutcome, End, Limits, Sample, Watched, Writing};
use kilnyard_root::{IdMap, Sandbox};
use kilnyard_vm::{
    Accelerator, BOOTS_WITHIN, Console, Kernel, Machine, Shape, accelerator, missing_requirement,
};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The folder for kernels, relative to the yard.
pub const KERNELS: &str = "state/machines";
/// The folder of a machine, relative to the folder of its root.
const FOLDER: &str = "machine";

/// The kernel for machines, and how it runs here.
#[derive(Debug)]
pub(crate) struct Machines {
    kernels: PathBuf,
    found: Mutex<Vec<(Kernel, Accelerator)>>,
    /// Why there was none for a processor, and when. Each build would ask apt again.
    lacking: Mutex<Vec<(Processor, Instant, String)>>,
}

/// When a kernel that could not be found is looked for again.
const LOOKED_AGAIN: Duration = Duration::from_secs(600);

/// Why this machine cannot run virtual machines with a processor, by default its own, and the Debian package that helps. `ids`
/// are those of the yard's roots, if they are known already.
pub fn missing_machine(
    processor: Option<Processor>,
    ids: Option<&IdMap>,
) -> Option<(String, Option<&'static str>)> {
    let lack = missing_requirement(processor, ids)?;
    Some((lack.to_string(), lack.package()))
}

/// What executes the instructions of virtual machines of this yard's machine, whose kernel is downloaded first if there is none.
///
/// # Errors
/// Why it has none.
pub fn accelerator_of(yard: &Path) -> Result<Accelerator, String> {
    Machines::new(yard).kernel(None).map(|(_, accelerator)| accelerator)
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
        let outcome = match Machines::new(self.yard).start(&folder, self.terms, &[sandbox], None) {
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
        Machines { kernels: yard.join(KERNELS), found: Mutex::default(), lacking: Mutex::default() }
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

    /// Whether a machine can be started for roots with these ids.
    pub(crate) fn are_there(&self, ids: &IdMap) -> bool {
        missing_requirement(None, Some(ids)).is_none() && self.kernel(None).is_ok()
    }

    fn start(
        &self,
        folder: &Path,
        terms: MachineTerms,
        sandboxes: &[&Sandbox],
        disk: Option<&kilnyard_vm::Image>,
    ) -> Result<Machine, String> {
        let (kernel, accelerator) = self.kernel(terms.processor)?;
        let shape = Shape { kernel, accelerator, cores: terms.cores, memory_bytes: terms.memory_bytes };
        fs_err::create_dir(folder).map_err(|error| error.to_string())?;
        Machine::start(&shape, &self.kernels, folder, sandboxes, disk, BOOTS_WITHIN)
            .map_err(|error| error.to_string())
    }

    /// Finds the kernel and what executes it, the first time.
    fn kernel(&self, processor: Option<Processor>) -> Result<(Kernel, Accelerator), String> {
        let processor = processor.or(Processor::OWN).ok_or("no virtual machine can have this processor")?;
        if let Some(lack) = missing_requirement(Some(processor), None) {
            return Err(lack.to_string());
        }
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = found.iter().find(|(kernel, _)| kernel.processor == processor) {
            return Ok(found.clone());
        }
        let mut lacking = self.lacking.lock().unwrap_or_else(PoisonError::into_inner);
        lacking.retain(|(_, at, _)| at.elapsed() < LOOKED_AGAIN);
        if let Some((.., why)) = lacking.iter().find(|(other, ..)| *other == processor) {
            return Err(why.clone());
        }
        let boots = Kernel::downloaded(&self.kernels, processor).map_err(|error| error.to_string());
        let boots = boots.and_then(|kernel| {
            let accelerator = accelerator(&kernel, &self.kernels).map_err(|error| error.to_string())?;
            Ok((kernel, accelerator))
        });
        match &boots {
            Ok(kernel) => found.push(kernel.clone()),
            Err(why) => lacking.push((processor, Instant::now(), why.clone())),
        }
        boots
    }
}
