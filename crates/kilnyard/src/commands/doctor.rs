//! `kilnyard doctor`: checks what this machine has and allows by trying it, and suggests commands for what is missing.

mod stores;

use super::{print, print_json};
use crate::error::{Kind, Result};
use crate::yard::remedy_for;
use crate::yard::{CONFIG, Yard, own_ids, user_name};
use crate::{signals, words};
use kilnyard_family::FAMILIES;
use kilnyard_hazard::{Emulation, Mode};
use kilnyard_model::order::Processor;
use kilnyard_process::folder_of_groups;
use kilnyard_process::weight::{Mechanism, Weights};
use kilnyard_root::sandbox::{Need, RunError};
use kilnyard_root::{Backend, Form, IdMap, Roots, block, probe, tree};
use kilnyard_vm::{Accelerator, Kernel, accelerator, missing_requirement};
use kilnyard_yard::finding::Finding;
use kilnyard_yard::host;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::signing::{OLD_KEY, Reached, SIGNER, Signing};
use serde_json::json;
use std::path::Path;
use std::process::ExitCode;

/// Space that a yard should have: a base root, a few roots, distfiles.
const DISK_FREE_BYTES_MIN: u64 = 3 << 30;

/// The size of the file system in memory that is mounted as a test.
const PROBED_BYTES: u64 = 1 << 20;

pub fn run(folder: &Path, as_json: bool) -> Result<ExitCode> {
    let findings = examine(folder);
    let is_ok = findings.iter().all(|finding| finding.is_ok);
    if as_json {
        let finding = |finding: &Finding| json!({ "name": finding.name, "ok": finding.is_ok, "text": finding.text, "help": finding.help.as_ref().map(Remedy::to_string) });
        print_json(&json!({ "ok": is_ok, "findings": findings.iter().map(finding).collect::<Vec<_>>() }))?;
    } else {
        print(&text(&findings))?;
    }
    Ok(if is_ok { ExitCode::SUCCESS } else { ExitCode::from(Kind::Machine as u8) })
}

/// The findings as lines.
pub fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    for finding in findings {
        let mark = if finding.is_ok { "ok  " } else { "MISS" };
        text.push_str(&format!("{mark} {}: {}\n", finding.name, finding.text));
        if let Some(help) = &finding.help {
            text.push_str(&format!("     try: {help}\n"));
        }
    }
    text
}

/// Checks everything that a build needs. `folder` is that of the yard, which need not exist yet.
pub fn examine(folder: &Path) -> Vec<Finding> {
    let existing = folder.ancestors().find(|path| path.is_dir() && !path.as_os_str().is_empty());
    // The trials cross mount namespaces, in which a relative path would lead elsewhere.
    let existing = std::path::absolute(existing.unwrap_or(Path::new("."))).unwrap_or_else(|_| ".".into());
    let existing = existing.as_path();
    let opened = folder.join(CONFIG).exists().then(|| super::open(folder)).transpose();
    let yard = opened.as_ref().ok().and_then(Option::as_ref);
    let mut findings = vec![system(), machine(), sharing(), watching()];
    findings.extend(emulation());
    findings.extend(match yard {
        Some(yard) => yard.config.family.machine_findings(),
        None => needed_by_any(),
    });
    findings.push(disk(existing));
    let wanted = yard.map_or(Roots::default(), |yard| yard.config.roots);
    findings.push(roots(existing, wanted));
    if wanted.backend == Backend::Block {
        findings.push(devices(existing, wanted));
    }
    let is_on_device = wanted.backend == Backend::Block && wanted.device.is_in_memory();
    if is_on_device {
        // The device has all of it.
    } else if wanted.is_in_memory() || yard.is_some_and(|yard| yard.config.build.work_in_memory) {
        findings.push(memory(existing, wanted));
    }
    findings.extend(yard.filter(|yard| yard.config.tables.has_machines()).map(virtual_machines));
    findings.extend(yard.map(stores::examine).unwrap_or_default());
    findings.extend(yard.and_then(signer));
    // Folders of targets that cannot be used are reported by the commands that use them.
    let targets = yard.map(|yard| yard.targets().unwrap_or_default()).unwrap_or_default();
    for target in &targets {
        let mut of_target: Vec<Finding> = layers(target).into_iter().collect();
        of_target.extend(target.config.family.yard_findings(target, signals::cancel()));
        if let Some(name) = &target.target_name {
            of_target.iter_mut().for_each(|finding| finding.text = format!("{name}: {}", finding.text));
        }
        findings.extend(of_target);
    }
    findings.extend(opened.as_ref().err().map(|error| {
        let text =
            std::iter::once(&error.message).chain(&error.causes).cloned().collect::<Vec<_>>().join(": ");
        Finding { help: error.hints.first().cloned(), ..Finding::new("yard", false, text) }
    }));
    findings
}

/// Whether the yard's signer can sign, and for how long; `None` if the yard has none yet.
fn signer(yard: &Yard) -> Option<Finding> {
    const NAME: &str = "signer";
    let has_one = [SIGNER, OLD_KEY].iter().any(|path| yard.home.join(path).exists());
    if !has_one && yard.config.signer.is_none() {
        return None;
    }
    Some(match Signing::reach(yard) {
        Err(error) => {
            Finding { help: error.hints.first().cloned(), ..Finding::new(NAME, false, error.one_line()) }
        }
        Ok(Reached::Away(reason)) => Finding::new(NAME, false, format!("it is away: {reason}")),
        Ok(Reached::Here(signing)) => {
            let troubles = signing
                .keys()
                .iter()
                .filter_map(|key| Some(format!("{}: {}", key.name, key.trouble.as_ref()?)));
            let faults: Vec<String> = troubles.chain(signing.warnings()).collect();
            match faults.is_empty() {
                true => Finding::new(NAME, true, format!("signs with {}", signing.fingerprint())),
                false => Finding::new(NAME, false, faults.join("; ")),
            }
        }
    })
}

/// The requirements of all families, each once.
fn needed_by_any() -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for finding in FAMILIES.iter().flat_map(|entry| entry.findings()) {
        if !findings.iter().any(|other| other.name == finding.name) {
            findings.push(finding);
        }
    }
    findings
}

/// Whether the layers that builds start with are intact; `None` if there are no layers yet.
fn layers(yard: &Yard) -> Option<Finding> {
    const NAME: &str = "layers";
    let entries = tree::entries_beneath(&yard.folder, Path::new("layers")).unwrap_or_default();
    let names: Vec<String> = entries
        .iter()
        .filter_map(|(name, _)| Some(format!("layers/{}", name.to_str()?.strip_suffix(".manifest")?)))
        .filter(|layer| yard.path(layer).is_dir())
        .collect();
    if names.is_empty() {
        return None;
    }
    let damaged = names.iter().find_map(|layer| {
        Some(format!("{layer} is damaged: {}", kilnyard_worker::find_damage(&yard.folder, layer)?))
    });
    Some(match damaged {
        None => Finding::new(NAME, true, format!("{} intact", words::count(names.len() as u64, "layer"))),
        Some(text) => Finding {
            help: Some(Remedy::command("build").then(", which makes it again")),
            ..Finding::new(NAME, false, text)
        },
    })
}

fn system() -> Finding {
    let release = fs_err::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim_matches(['=', '"']).to_owned())
    };
    let kernel = fs_err::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let name = value("PRETTY_NAME").unwrap_or_else(|| "an unknown system".to_owned());
    Finding::new("system", true, format!("{name}, Linux {}", kernel.trim()))
}

fn machine() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = fs_err::read_to_string("/proc/meminfo").unwrap_or_default();
    let bytes = memory.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 1024;
    Finding::new(
        "machine",
        true,
        format!("{}, {} of memory", words::count(cores as u64, "core"), words::size(bytes)),
    )
}

/// Whether the kernel emulates instructions of builds, each of which stalls all cores; `None` for processors without such
/// instructions.
fn emulation() -> Option<Finding> {
    const NAME: &str = "emulated instructions";
    let known = Emulation::of(Path::new("/proc/sys"));
    if known.is_empty() {
        return None;
    }
    let emulated: Vec<&Emulation> = known.iter().filter(|one| one.mode == Mode::Emulated).collect();
    let remedies: Vec<String> = emulated.iter().filter_map(|one| one.remedy()).collect();
    let names: Vec<&str> = emulated.iter().map(|one| one.hazard.name()).collect();
    Some(match names.is_empty() {
        true => Finding::new(NAME, true, "the kernel emulates none".to_owned()),
        false => Finding {
            help: Some(match remedies.is_empty() {
                true => Remedy::from("machine = \"vm\" for packages that use them: docs/machines.md"),
                false => Remedy::from(remedies.join("; ")),
            }),
            ..Finding::new(
                NAME,
                remedies.is_empty(),
                format!(
                    "the kernel emulates {}: each trap stalls other cores, and within a loop of exclusive loads it never ends",
                    names.join(", ")
                ),
            )
        },
    })
}

/// Whether builds can run in virtual machines.
fn virtual_machines(yard: &Yard) -> Finding {
    const NAME: &str = "virtual machines";
    let foreign = yard.config.family.processor();
    let processor = foreign.or(Processor::OWN);
    if let Some(lack) = missing_requirement(processor, Some(&yard.ids())) {
        return Finding {
            packages: lack.package().into_iter().collect(),
            ..Finding::new(NAME, false, lack.to_string())
        };
    }
    let kernels = yard.path(kilnyard_worker::KERNELS);
    let found = processor
        .ok_or_else(|| "no virtual machine can have this processor".to_owned())
        .and_then(|processor| {
            kilnyard_vm::check_program(processor, &kernels).map_err(|error| error.to_string())?;
            Kernel::downloaded(&kernels, processor).map_err(|error| error.to_string())
        })
        .and_then(|kernel| {
            let accelerator = accelerator(&kernel, &kernels).map_err(|error| error.to_string())?;
            Ok((kernel, accelerator))
        });
    match found {
        Ok((kernel, accelerator)) => {
            let cost = match accelerator {
                Accelerator::Kvm => "",
                Accelerator::Emulation => ", ten to twenty times slower than this machine",
            };
            let processor = foreign.map_or(String::new(), |one| format!(" for {one}"));
            let text = format!("{} boots{processor} by {accelerator}{cost}", kernel.package);
            Finding::new(NAME, true, text)
        }
        Err(error) => Finding::new(NAME, false, error),
    }
}

/// How CPU weights by rank are set. This is never missing: builds work with any method.
fn sharing() -> Finding {
    let weights = Weights::find("doctor");
    let is_best =
        !matches!(weights.mechanism(), Mechanism::NiceLevels { can_lower: false } | Mechanism::Nothing);
    Finding {
        help: delegated().filter(|_| !is_best),
        ..Finding::new("cores by rank", true, weights.mechanism().to_string())
    }
}

/// Whether each command gets a control group. This is never missing: the sandbox also ends processes without one.
fn watching() -> Finding {
    match folder_of_groups() {
        Ok(folder) => {
            let text = format!("one for each command, in {}", folder.display());
            Finding::new("control groups", true, text)
        }
        Err(reason) => {
            let text = format!("none for commands ({reason}): stalls are those of the whole machine");
            Finding { help: delegated(), ..Finding::new("control groups", true, text) }
        }
    }
}

/// How to get a delegated group from systemd; none where systemd is not running.
fn delegated() -> Option<Remedy> {
    let user = if rustix::process::geteuid().is_root() { "" } else { " --user" };
    let has_systemd = Path::new("/run/systemd/system").exists();
    has_systemd
        .then(|| Remedy::from(format!("systemd-run{user} --scope -p Delegate=yes ")).then_command("build"))
}

fn disk(folder: &Path) -> Finding {
    match rustix::fs::statvfs(folder) {
        Ok(facts) => {
            let free = facts.f_bavail * facts.f_frsize;
            let text = format!("{} free in {}", words::size(free), folder.display());
            let is_ok = free >= DISK_FREE_BYTES_MIN;
            let help = format!("a yard on a disk with {} free", words::size(DISK_FREE_BYTES_MIN));
            Finding { help: (!is_ok).then(|| help.into()), ..Finding::new("disk", is_ok, text) }
        }
        Err(error) => Finding::new("disk", false, format!("{}: {error}", folder.display())),
    }
}

/// Whether files of roots can be in memory. Otherwise they are on the disk, which is only a failure if the
/// configuration wants memory.
fn memory(folder: &Path, wanted: Roots) -> Finding {
    const NAME: &str = "files in memory";
    match probe::try_root(folder, &own_ids(), &wanted.in_memory(PROBED_BYTES)) {
        Ok(()) => Finding::new(NAME, true, "a file system in memory persists between stages"),
        Err(error) => Finding::new(NAME, !wanted.is_in_memory(), format!("on the disk instead: {error}")),
    }
}

/// Whether roots of builds can be on block devices.
fn devices(folder: &Path, wanted: Roots) -> Finding {
    const NAME: &str = "block devices";
    if let Some(lack) = block::missing_requirement(wanted.device.server, wanted.device.file_system) {
        return Finding {
            help: Some(remedy_for(&lack)),
            packages: lack.package().into_iter().collect(),
            ..Finding::new(NAME, false, lack.to_string())
        };
    }
    match probe::try_root(folder, &own_ids(), &wanted.of_build()) {
        Ok(()) => Finding::new(
            NAME,
            true,
            format!("a root on {} was served, mounted and removed", wanted.device.file_system),
        ),
        Err(error) => Finding {
            help: Some(Remedy::from(
                "run outside a container, or in a privileged one; or use backend = \"overlay\"",
            )),
            ..Finding::new(NAME, false, error.to_string())
        },
    }
}

/// Whether roots can be made as the configuration wants them.
fn roots(folder: &Path, wanted: Roots) -> Finding {
    let (ids, lack) = IdMap::of_this_user(&user_name(), 0);
    let is_overlay = wanted.on_disk().form == Form::Overlay;
    let works = if is_overlay { "namespaces and overlays work" } else { "namespaces work" };
    match probe::try_root(folder, &ids, &wanted.on_disk()) {
        Ok(()) => match lack {
            None => Finding::new("roots", true, format!("{wanted}: {works} for this user")),
            // Builds work without it.
            Some(lack) => Finding {
                help: Some(Remedy::from(format!(
                    "as root, for true owners: {} && usermod --add-subuids 100000-165535 \
                     --add-subgids 100000-165535 {}",
                    host::installing(&["uidmap"]),
                    user_name()
                ))),
                ..Finding::new(
                    "roots",
                    true,
                    format!(
                        "{wanted}: {works} with one id; Kilnyard's fakeroot emulates other owners, since {lack}"
                    ),
                )
            },
        },
        Err(error) => {
            let need = match &error {
                RunError::Sandbox { need, .. } => *need,
                _ => Need::Other,
            };
            let help = match need {
                Need::Namespaces => {
                    "as root: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=65536"
                }
                Need::Overlay => {
                    "Linux 5.11 or later, and a yard on ext4, xfs or btrfs (not on an overlay itself); or \
                     backend = \"copy\" under [root] in kilnyard.toml"
                }
                Need::Proc => {
                    "in a container: run it with all of /proc visible (docker run --security-opt systempaths=unconfined \
                     --security-opt seccomp=unconfined, or --privileged), or run outside it"
                }
                Need::Folder => {
                    "a yard in a folder that others may enter (chmod o+x on the folders above it)"
                }
                Need::Other => "run outside a container, or in one that may mount: docker run --privileged",
            };
            Finding { help: Some(help.into()), ..Finding::new("roots", false, error.to_string()) }
        }
    }
}
