//! QEMU: what it needs, and how it is started.

use crate::machine::{Machine, Shape};
use crate::{Kernel, MachineError};
use std::fmt;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where programs are searched for.
const FOLDERS: [&str; 6] =
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/libexec", "/usr/lib/qemu", "/usr/lib"];
/// How long a kernel may take to boot with KVM. Where KVM works it takes less than a second.
const KVM_BOOTS_WITHIN: Duration = Duration::from_secs(10);
/// The file that says what works with a kernel.
const FOUND: &str = "accelerator-";

/// How a guest's instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accelerator {
    /// By the processor.
    Kvm,
    /// By emulation, ten times more slowly.
    Emulation,
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Accelerator::Kvm => "KVM",
            Accelerator::Emulation => "emulation",
        })
    }
}

/// Why this machine has no virtual machines.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MissingRequirement {
    /// Files of a root belong to many users.
    #[error("virtual machines need root: files of a root belong to users that only root can act for")]
    Root,
    /// A program is not installed.
    #[error("{program} is not installed; it {purpose}")]
    Program {
        /// The name of the program.
        program: &'static str,
        /// A clause that reads after "it".
        purpose: &'static str,
        /// The Debian package that contains it.
        package: &'static str,
    },
    /// Guests have the processor of this machine.
    #[error("virtual machines are for x86-64 only")]
    Processor,
}

impl MissingRequirement {
    /// The package to install, if that helps.
    pub fn package(&self) -> Option<&'static str> {
        match self {
            MissingRequirement::Program { package, .. } => Some(package),
            MissingRequirement::Root | MissingRequirement::Processor => None,
        }
    }
}

/// The first requirement that this machine does not meet; `None` if it meets all.
pub fn missing_requirement() -> Option<MissingRequirement> {
    if !rustix::process::geteuid().is_root() {
        return Some(MissingRequirement::Root);
    }
    if !cfg!(target_arch = "x86_64") {
        return Some(MissingRequirement::Processor);
    }
    // Debian 12 has virtiofsd in QEMU's package, later releases in one of its own.
    let programs = [
        ("qemu-system-x86_64", "runs virtual machines", "qemu-system-x86"),
        ("virtiofsd", "shares folders with virtual machines", "qemu-system-common"),
        ("dpkg-deb", "unpacks kernels", "dpkg"),
    ];
    let missing = programs.into_iter().find(|(name, ..)| program(name).is_none());
    missing.map(|(program, purpose, package)| MissingRequirement::Program { program, purpose, package })
}

pub(crate) fn program(name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// The accelerator that boots this kernel, tried once and kept in a folder for kernels. `/dev/kvm` may open although no
/// kernel boots with it.
///
/// # Errors
/// What was found cannot be kept.
pub fn accelerator(kernel: &Kernel, kernels: &Path) -> io::Result<Accelerator> {
    let own = Path::new("/proc/sys/kernel/random/boot_id");
    let boot = fs_err::read_to_string(own).unwrap_or_default();
    let path = kernels.join(format!("{FOUND}{}", kernel.digest.get(..16).unwrap_or_default()));
    if let Some((known, word)) = fs_err::read_to_string(&path).unwrap_or_default().split_once(' ')
        && known == boot.trim()
    {
        return Ok(if word.trim() == "kvm" { Accelerator::Kvm } else { Accelerator::Emulation });
    }
    let boots = || -> Result<(), MachineError> {
        let folder = tempfile::Builder::new().prefix("probe").tempdir_in(kernels)?;
        let shape = Shape {
            kernel: kernel.clone(),
            accelerator: Accelerator::Kvm,
            cores: 1,
            memory_bytes: Shape::MEMORY_BYTES,
        };
        Machine::start(&shape, kernels, folder.path(), &[], KVM_BOOTS_WITHIN).map(drop)
    };
    let works = Path::new("/dev/kvm").exists() && boots().is_ok();
    let (accelerator, word) =
        if works { (Accelerator::Kvm, "kvm") } else { (Accelerator::Emulation, "none") };
    fs_err::write(&path, format!("{} {word}\n", boot.trim()))?;
    Ok(accelerator)
}

/// The files that a machine begins with, as numbers of descriptors that the emulator inherits.
pub(crate) struct Descriptors {
    pub(crate) image: i32,
    pub(crate) initial: i32,
    pub(crate) port: i32,
    pub(crate) share: Option<i32>,
}

/// The user for processes without any right, who runs the emulator.
const NO_USER: u32 = 65_534;

/// The command that runs a machine, as a user without any right, if the device for KVM allows that.
pub(crate) fn command(shape: &Shape, files: &Descriptors) -> Option<Command> {
    let mebibytes = shape.memory_bytes.div_ceil(1 << 20);
    let mut command = Command::new(program("qemu-system-x86_64")?);
    let (accelerator, cpu) = match shape.accelerator {
        Accelerator::Kvm => ("kvm", "host"),
        Accelerator::Emulation => ("tcg", "max"),
    };
    // What is measured at boot would take a while on an emulated processor.
    let known = match shape.accelerator {
        Accelerator::Kvm => "",
        Accelerator::Emulation => " tsc_early_khz=2000000 lpj=8000000 no_timer_check",
    };
    if let Some(group) = group(shape.accelerator) {
        command.uid(NO_USER).gid(group);
    }
    command
        .args(["-machine", "microvm,acpi=on,pcie=on,rtc=on,memory-backend=memory"])
        .args(["-accel", accelerator, "-cpu", cpu, "-smp", &shape.cores.to_string()])
        .args(["-m", &format!("{mebibytes}M")])
        .args(["-object", &format!("memory-backend-memfd,id=memory,size={mebibytes}M,share=on")])
        .args(["-nodefaults", "-no-user-config", "-display", "none", "-monitor", "none", "-no-reboot"])
        .args(["-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny"])
        .args(["-serial", "stdio"])
        .args([
            "-kernel",
            &format!("/dev/fd/{}", files.image),
            "-initrd",
            &format!("/dev/fd/{}", files.initial),
        ])
        .args(["-append", &format!("console=ttyS0 quiet panic=-1 mitigations=off{known}")])
        .args(["-device", "virtio-serial-pci", "-chardev", &format!("socket,id=port,fd={}", files.port)])
        .args(["-device", "virtserialport,chardev=port,name=kilnyard"]);
    if let Some(share) = files.share {
        command
            .args(["-chardev", &format!("socket,id=share,fd={share}")])
            .args(["-device", "vhost-user-fs-pci,chardev=share,tag=kilnyard,queue-size=1024"]);
    }
    Some(command)
}

/// The group of the emulator; `None` if only this user can use the device.
fn group(accelerator: Accelerator) -> Option<u32> {
    if accelerator == Accelerator::Emulation {
        return Some(NO_USER);
    }
    let facts = fs_err::metadata("/dev/kvm").ok()?;
    match facts.mode() & 0o066 {
        mode if mode & 0o006 == 0o006 => Some(NO_USER),
        mode if mode & 0o060 == 0o060 => Some(facts.gid()),
        _ => None,
    }
}
