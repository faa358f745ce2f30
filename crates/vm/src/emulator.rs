//! QEMU: what it needs, and how it is started.

use crate::machine::{Machine, Shape};
use crate::{Kernel, MachineError, processor};
use kilnyard_model::order::Processor;
use kilnyard_root::IdMap;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

/// Where programs are searched for.
const FOLDERS: [&str; 6] =
    ["/usr/local/bin", "/usr/bin", "/bin", "/usr/libexec", "/usr/lib/qemu", "/usr/lib"];
/// How long a kernel may take to boot with KVM. Where KVM works it takes less than a second.
const KVM_BOOTS_WITHIN: Duration = Duration::from_secs(10);
/// When KVM is tried again with a kernel that did not boot.
const KVM_TRIED_AGAIN: Duration = Duration::from_secs(3600);
/// How long it may take by emulation, on a busy machine.
pub const BOOTS_WITHIN: Duration = Duration::from_secs(120);
/// The file that says what works with a kernel, and its words.
const FOUND: &str = "accelerator-";
/// What the folder of a machine that is tried begins with.
pub(crate) const PROBE: &str = "probe";
const KVM: &str = "kvm";
const EMULATION: &str = "emulation";

/// How a guest's instructions are executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    #[error(
        "virtual machines need newuidmap, and a range of ids for this user in /etc/subuid and /etc/subgid"
    )]
    Ids,
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
    /// Machines cannot have the processor of this one.
    #[error("virtual machines are for x86-64 and 64-bit ARM only")]
    Processor,
}

impl MissingRequirement {
    /// The package to install, if that helps.
    pub fn package(&self) -> Option<&'static str> {
        match self {
            MissingRequirement::Program { package, .. } => Some(package),
            MissingRequirement::Ids => Some("uidmap"),
            MissingRequirement::Processor => None,
        }
    }
}

/// The first requirement for virtual machines that this machine does not meet; `None` if it meets all. Without a processor,
/// they have that of this machine. `ids` are those of roots, if they are known already.
pub fn missing_requirement(processor: Option<Processor>, ids: Option<&IdMap>) -> Option<MissingRequirement> {
    let Some(processor) = processor.or(Processor::OWN) else {
        return Some(MissingRequirement::Processor);
    };
    if ids.is_some_and(IdMap::has_one_id) {
        return Some(MissingRequirement::Ids);
    }
    let (emulator, package) = processor::emulator(processor);
    // Debian 12 has virtiofsd in QEMU's package, later releases in one of its own.
    let programs = [
        (emulator, "runs virtual machines", package),
        ("virtiofsd", "shares folders with virtual machines", "qemu-system-common"),
        ("dpkg-deb", "unpacks kernels", "dpkg"),
    ];
    let missing = programs.into_iter().find(|(name, ..)| program(name).is_none());
    missing.map(|(program, purpose, package)| MissingRequirement::Program { program, purpose, package })
}

pub(crate) fn program(name: &str) -> Option<PathBuf> {
    FOLDERS.iter().map(|folder| Path::new(folder).join(name)).find(|path| path.is_file())
}

/// The accelerator that boots this kernel, tried once a boot of this machine and kept in a folder for kernels. `/dev/kvm` may open
/// although no kernel boots with it.
///
/// # Errors
/// The kernel does not boot, or what was found cannot be kept.
pub fn accelerator(kernel: &Kernel, kernels: &Path) -> Result<Accelerator, MachineError> {
    let own = Path::new("/proc/sys/kernel/random/boot_id");
    let boot = fs_err::read_to_string(own).unwrap_or_default();
    let path = kernels.join(format!("{FOUND}{}", kernel.digest.get(..16).unwrap_or_default()));
    let may_have_kvm = Some(kernel.processor) == Processor::OWN && has_kvm();
    if let Some((known, word)) = fs_err::read_to_string(&path).unwrap_or_default().split_once(' ')
        && known == boot.trim()
    {
        match word.trim() {
            KVM if may_have_kvm => return Ok(Accelerator::Kvm),
            // A machine that was too busy then may not be now.
            EMULATION if !may_have_kvm || is_younger(&path, KVM_TRIED_AGAIN) => {
                return Ok(Accelerator::Emulation);
            }
            _ => {}
        }
    }
    let boots = |accelerator, within| -> Result<(), MachineError> {
        let folder = tempfile::Builder::new().prefix(PROBE).tempdir_in(kernels)?;
        let shape =
            Shape { kernel: kernel.clone(), accelerator, cores: 1, memory_bytes: Shape::MEMORY_BYTES };
        Machine::start(&shape, kernels, folder.path(), &[], None, within).map(drop)
    };
    let (accelerator, word) = match may_have_kvm && boots(Accelerator::Kvm, KVM_BOOTS_WITHIN).is_ok() {
        true => (Accelerator::Kvm, KVM),
        false => {
            boots(Accelerator::Emulation, BOOTS_WITHIN)?;
            (Accelerator::Emulation, EMULATION)
        }
    };
    fs_err::write(&path, format!("{} {word}\n", boot.trim()))?;
    Ok(accelerator)
}

/// Whether KVM can be tried. Root's emulator is another user, who needs access of its own: it never runs as root.
fn has_kvm() -> bool {
    Path::new("/dev/kvm").exists()
        && (!rustix::process::geteuid().is_root() || group(Accelerator::Kvm).is_some())
}

fn is_younger(path: &Path, than: Duration) -> bool {
    let modified = fs_err::metadata(path).and_then(|facts| facts.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < than))
}

/// What a machine begins with: files, as numbers of descriptors that the emulator inherits, and a network.
pub(crate) struct Descriptors {
    pub(crate) image: i32,
    pub(crate) initial: i32,
    pub(crate) port: i32,
    pub(crate) share: Option<i32>,
    /// The connection to an NBD server.
    pub(crate) disk: Option<i32>,
    /// Whether the machine reaches the network of this one.
    pub(crate) has_network: bool,
}

/// The user for processes without any right, who runs the emulator.
const NO_USER: u32 = 65_534;

/// The command that runs a machine.
pub(crate) fn command(shape: &Shape, files: &Descriptors) -> Option<Command> {
    let mebibytes = shape.memory_bytes.div_ceil(1 << 20);
    let processor = shape.kernel.processor;
    let mut command = Command::new(program(processor::emulator(processor).0)?);
    let (machine, console) = match (processor, shape.accelerator) {
        (Processor::X86_64, _) => match has_microvm() {
            true => ("microvm,acpi=on,pcie=on,rtc=on", "ttyS0"),
            false => ("q35", "ttyS0"),
        },
        (Processor::Aarch64, Accelerator::Emulation) => ("virt,gic-version=3", "ttyAMA0"),
        // Only what the machine's own interrupt controller can do.
        (Processor::Aarch64, Accelerator::Kvm) => ("virt,gic-version=host", "ttyAMA0"),
    };
    let (accelerator, cpu) = match (shape.accelerator, processor) {
        (Accelerator::Kvm, _) => ("kvm", "host"),
        (Accelerator::Emulation, Processor::X86_64) => ("tcg", "max"),
        // It runs 32-bit programs, unlike newer ones.
        (Accelerator::Emulation, Processor::Aarch64) => ("tcg", "cortex-a57"),
    };
    // What is measured or tested at boot would take a while on an emulated processor.
    let known = match (shape.accelerator, processor) {
        (Accelerator::Emulation, Processor::X86_64) => " tsc_early_khz=2000000 lpj=8000000 no_timer_check",
        _ => "",
    };
    command
        .args(["-machine", &format!("{machine},memory-backend=memory")])
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
        .args([
            "-append",
            &format!("console={console} quiet panic=-1 mitigations=off cryptomgr.notests{known}"),
        ])
        .args(["-device", "virtio-serial-pci", "-chardev", &format!("socket,id=port,fd={}", files.port)])
        .args(["-device", "virtserialport,chardev=port,name=kilnyard"]);
    if let Some(share) = files.share {
        command
            .args(["-chardev", &format!("socket,id=share,fd={share}")])
            .args(["-device", "vhost-user-fs-pci,chardev=share,tag=kilnyard,queue-size=1024"]);
    }
    if let Some(disk) = files.disk {
        let node = format!(
            r#"{{"driver":"nbd","node-name":"disk","read-only":true,"server":{{"type":"fd","str":"{disk}"}}}}"#
        );
        command.args(["-blockdev", &node, "-device", "virtio-blk-pci,drive=disk"]);
    }
    if files.has_network {
        command
            .args(["-netdev", "user,id=network,ipv6=off"])
            .args(["-device", "virtio-net-pci,netdev=network,romfile="]);
    }
    Some(command)
}

/// Whether QEMU has its smallest machine, which boots fastest; some distributions leave it out.
fn has_microvm() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let program = program(processor::emulator(Processor::X86_64).0);
        let listed =
            program.and_then(|program| Command::new(program).args(["-machine", "help"]).output().ok());
        // Without an answer, the machine itself says what is wrong.
        listed.is_none_or(|listed| lists_microvm(&String::from_utf8_lossy(&listed.stdout)))
    })
}

fn lists_microvm(machines: &str) -> bool {
    machines.lines().any(|line| line.split_whitespace().next() == Some("microvm"))
}

/// The user and the group that the emulator runs as, in a user namespace or outside of all; `None` if that can only be this
/// user.
pub(crate) fn unprivileged(accelerator: Accelerator, is_in_namespace: bool) -> Option<(u32, u32)> {
    let group = group(accelerator)?;
    match is_in_namespace {
        // Another group is not one of the namespace.
        true if group != NO_USER => None,
        false if !rustix::process::geteuid().is_root() => None,
        _ => Some((NO_USER, group)),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_machine_is_taken_where_there_is_one() {
        let list = "Supported machines are:\nmicrovm              microvm (i386)\nq35                  Standard PC\n";
        assert!(lists_microvm(list));
        assert!(!lists_microvm(&list.replace("microvm  ", "other  ")));
    }
}
