//! `kilnyard doctor`: what this machine allows and has, each thing tried, with the command that helps.

use super::{print, print_json};
use crate::config::{Family, Pkgsrc};
use crate::error::{Kind, Result};
use crate::yard::{CONFIG, Yard, own_ids, user_name};
use crate::{mirror as mirrors, signals, words};
use kilnyard_process::folder_of_groups;
use kilnyard_process::weight::{Way, Weights};
use kilnyard_root::{Backend, Form, IdMap, Roots, block, probe, tree};
use serde_json::json;
use std::path::Path;
use std::process::{Command, ExitCode};

/// Who may sign Debian's archive.
const DEBIAN_KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Space that a yard should have: a base root, a few roots, distfiles.
const DISK_FREE_BYTES_MIN: u64 = 3 << 30;

/// What a file system in memory is tried with.
const PROBED_BYTES: u64 = 1 << 20;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What.
    pub name: &'static str,
    /// Whether it is as it should be.
    pub is_ok: bool,
    /// What was found.
    pub text: String,
    /// The command that helps.
    pub help: Option<String>,
    /// Debian packages that would help.
    pub packages: Vec<&'static str>,
}

pub fn run(folder: &Path, as_json: bool) -> Result<ExitCode> {
    let findings = examine(folder);
    let is_ok = findings.iter().all(|finding| finding.is_ok);
    if as_json {
        let finding = |finding: &Finding| json!({ "name": finding.name, "ok": finding.is_ok, "text": finding.text, "help": finding.help });
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

/// Looks at everything that a build needs. The folder is where the yard is or will be.
pub fn examine(folder: &Path) -> Vec<Finding> {
    let existing = folder.ancestors().find(|path| path.is_dir() && !path.as_os_str().is_empty());
    // What is tried goes from one mount namespace to another, where a relative path leads elsewhere.
    let existing = std::path::absolute(existing.unwrap_or(Path::new("."))).unwrap_or_else(|_| ".".into());
    let existing = existing.as_path();
    let opened = folder.join(CONFIG).exists().then(|| super::open(folder)).transpose();
    let yard = opened.as_ref().ok().and_then(Option::as_ref);
    let ring = yard.map_or(DEBIAN_KEYRING.into(), |yard| yard.config.root().keyring);
    let mut findings =
        vec![system(), machine(), sharing(), watching(), mmdebstrap(), keyring(&ring), disk(existing)];
    let wanted = yard.map_or(Roots::default(), |yard| yard.config.roots);
    findings.push(roots(existing, wanted));
    if wanted.backend == Backend::Block {
        findings.push(devices(existing, wanted));
    }
    if wanted.is_in_memory() || yard.is_some_and(|yard| yard.config.build.work_in_memory) {
        findings.push(memory(existing, wanted));
    }
    findings.extend(yard.and_then(layers));
    findings.extend(yard.map(mirror));
    if let Some(Family::Pkgsrc(pkgsrc)) = yard.map(|yard| &yard.config.family) {
        findings.extend([tree(pkgsrc), kit(pkgsrc), make_program(pkgsrc)]);
    }
    findings.extend(opened.as_ref().err().map(|error| {
        let text =
            std::iter::once(&error.message).chain(&error.causes).cloned().collect::<Vec<_>>().join(": ");
        Finding { help: error.hints.first().cloned(), ..finding("yard", false, text) }
    }));
    findings
}

/// Whether the layers that builds begin with are as they were made; none before they are.
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
        None => finding(NAME, true, format!("{} whole", words::count(names.len() as u64, "layer"))),
        Some(text) => Finding {
            help: Some("kilnyard build, which makes it anew".to_owned()),
            ..finding(NAME, false, text)
        },
    })
}

fn mirror(yard: &Yard) -> Finding {
    match mirrors::ask(yard, signals::cancel()) {
        Ok(url) => finding("mirror", true, format!("{url} answers")),
        Err(error) => Finding {
            help: Some("mirror in kilnyard.toml; the proxy in http_proxy or https_proxy".to_owned()),
            ..finding("mirror", false, error.causes.first().cloned().unwrap_or(error.message))
        },
    }
}

fn finding(name: &'static str, is_ok: bool, text: impl Into<String>) -> Finding {
    Finding { name, is_ok, text: text.into(), help: None, packages: Vec::new() }
}

fn system() -> Finding {
    let release = fs_err::read_to_string("/etc/os-release").unwrap_or_default();
    let value = |key: &str| {
        let line = release.lines().find_map(|line| line.strip_prefix(key))?;
        Some(line.trim_matches(['=', '"']).to_owned())
    };
    let kernel = fs_err::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let name = value("PRETTY_NAME").unwrap_or_else(|| "an unknown system".to_owned());
    finding("system", true, format!("{name}, Linux {}", kernel.trim()))
}

fn machine() -> Finding {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let memory = fs_err::read_to_string("/proc/meminfo").unwrap_or_default();
    let bytes = memory.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0) * 1024;
    finding(
        "machine",
        true,
        format!("{}, {} of memory", words::count(cores as u64, "core"), words::size(bytes)),
    )
}

/// How builds share the CPUs by rank. Whatever the way is, nothing is missing: they build in any.
fn sharing() -> Finding {
    let weights = Weights::find("doctor");
    let is_best = !matches!(weights.way(), Way::NiceLevels { can_lower: false } | Way::Nothing);
    Finding {
        help: delegated().filter(|_| !is_best),
        ..finding("cores by rank", true, weights.way().to_string())
    }
}

/// Whether each command has a control group. Nothing is missing without: the sandbox ends all by itself.
fn watching() -> Finding {
    match folder_of_groups() {
        Ok(folder) => {
            let text = format!("one for each command, in {}", folder.display());
            finding("control groups", true, text)
        }
        Err(reason) => {
            let text = format!("none for commands ({reason}): stalls are those of the whole machine");
            Finding { help: delegated(), ..finding("control groups", true, text) }
        }
    }
}

/// How systemd hands a group over, where it runs.
fn delegated() -> Option<String> {
    let user = if rustix::process::geteuid().is_root() { "" } else { " --user" };
    let has_systemd = Path::new("/run/systemd/system").exists();
    has_systemd.then(|| format!("systemd-run{user} --scope -p Delegate=yes kilnyard build"))
}

fn mmdebstrap() -> Finding {
    match Command::new("mmdebstrap").arg("--version").output() {
        Ok(output) if output.status.success() => {
            finding("mmdebstrap", true, String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        _ => Finding {
            help: Some("as root: apt-get install mmdebstrap".to_owned()),
            packages: vec!["mmdebstrap"],
            ..finding("mmdebstrap", false, "it is not installed, and makes the base root")
        },
    }
}

fn keyring(path: &Path) -> Finding {
    let shown = path.display();
    if path.exists() {
        return finding("keyring", true, shown.to_string());
    }
    let missing =
        finding("keyring", false, format!("{shown} is not there, and says who may sign the archive"));
    if path != Path::new(DEBIAN_KEYRING) {
        return Finding { help: Some("keyring in kilnyard.toml".to_owned()), ..missing };
    }
    Finding {
        help: Some("as root: apt-get install debian-archive-keyring".to_owned()),
        packages: vec!["debian-archive-keyring"],
        ..missing
    }
}

/// Whether the tree is one, and the ids of roots can reach it.
fn tree(pkgsrc: &Pkgsrc) -> Finding {
    use std::os::unix::fs::PermissionsExt;
    let shown = pkgsrc.tree.display();
    if !pkgsrc.tree.join("mk").is_dir() {
        let help = Some("tree in kilnyard.toml: the folder that mk and the categories are in".to_owned());
        return Finding {
            help,
            ..finding("tree", false, format!("{shown} is no pkgsrc tree: it has no mk"))
        };
    }
    let is_closed = |path: &&Path| {
        fs_err::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 == 0)
    };
    match pkgsrc.tree.ancestors().find(is_closed) {
        Some(closed) => Finding {
            help: Some(format!("chmod o+x {}; or a tree elsewhere", closed.display())),
            ..finding(
                "tree",
                false,
                format!("{shown} cannot be reached by the users of roots: {} is closed", closed.display()),
            )
        },
        None => finding("tree", true, shown.to_string()),
    }
}

fn kit(pkgsrc: &Pkgsrc) -> Finding {
    let Some(archive) = &pkgsrc.bootstrap_kit else {
        let script = pkgsrc.tree.join("bootstrap/bootstrap");
        let help = "bootstrap-kit in kilnyard.toml, with an archive of a bootstrapped prefix".to_owned();
        return match script.is_file() {
            true => finding("kit", true, format!("{} makes it, once", script.display())),
            false => Finding {
                help: Some(help),
                ..finding("kit", false, format!("there is no {}", script.display()))
            },
        };
    };
    let help = Some("bootstrap-kit in kilnyard.toml".to_owned());
    match fs_err::File::open(archive) {
        Ok(_) => finding("kit", true, archive.display().to_string()),
        Err(error) => Finding { help, ..finding("kit", false, error.to_string()) },
    }
}

/// Where the programs of Debian's packages are.
const SYSTEM_PROGRAMS: [&str; 6] =
    ["/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/"];

/// Whether make is one of the kit or of the base root; whether it is there, the first build sees.
fn make_program(pkgsrc: &Pkgsrc) -> Finding {
    let (make, prefix) = (pkgsrc.make(), &pkgsrc.prefix);
    let is_of_kit = Path::new(&make).starts_with(prefix);
    if is_of_kit || SYSTEM_PROGRAMS.iter().any(|folder| make.starts_with(folder)) {
        return finding("make", true, make);
    }
    Finding {
        help: Some(format!(
            "make in kilnyard.toml: {prefix}/bin/bmake, or prefix, as the kit was bootstrapped with"
        )),
        ..finding(
            "make",
            false,
            format!("{make} is neither in the prefix {prefix} nor a program of the base root"),
        )
    }
}

fn disk(folder: &Path) -> Finding {
    match rustix::fs::statvfs(folder) {
        Ok(facts) => {
            let free = facts.f_bavail * facts.f_frsize;
            let text = format!("{} free in {}", words::size(free), folder.display());
            let is_ok = free >= DISK_FREE_BYTES_MIN;
            let help = format!("a yard where {} are free", words::size(DISK_FREE_BYTES_MIN));
            Finding { help: (!is_ok).then_some(help), ..finding("disk", is_ok, text) }
        }
        Err(error) => finding("disk", false, format!("{}: {error}", folder.display())),
    }
}

/// Whether files of roots can be in memory. Where not, nothing is missing: they are on the disk.
fn memory(folder: &Path, wanted: Roots) -> Finding {
    const NAME: &str = "files in memory";
    match probe::try_root(folder, &own_ids(), &wanted.in_memory(PROBED_BYTES)) {
        Ok(()) => finding(NAME, true, "a file system in memory lasts from one stage to the next"),
        Err(error) => finding(NAME, !wanted.is_in_memory(), format!("on the disk instead: {error}")),
    }
}

/// Whether roots of builds can be on block devices.
fn devices(folder: &Path, wanted: Roots) -> Finding {
    const NAME: &str = "block devices";
    if let Some(lack) = block::lack(wanted.device.file_system) {
        return Finding {
            help: Some(lack.help()),
            packages: lack.package().into_iter().collect(),
            ..finding(NAME, false, lack.to_string())
        };
    }
    match probe::try_root(folder, &own_ids(), &wanted.of_build()) {
        Ok(()) => finding(
            NAME,
            true,
            format!("a root of {} was served, mounted and gone", wanted.device.file_system),
        ),
        Err(error) => Finding {
            help: Some("outside of a container, or in a privileged one; or backend = \"overlay\"".to_owned()),
            ..finding(NAME, false, error.to_string())
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
            None => finding("roots", true, format!("{wanted}: {works} for this user")),
            // It builds all the same.
            Some(lack) => Finding {
                help: Some(format!(
                    "as root, for true owners: apt-get install uidmap && usermod --add-subuids 100000-165535 \
                     --add-subgids 100000-165535 {}",
                    user_name()
                )),
                ..finding(
                    "roots",
                    true,
                    format!(
                        "{wanted}: {works} with one id; Kilnyard's fakeroot makes up other owners, since {lack}"
                    ),
                )
            },
        },
        Err(error) => {
            let text = error.to_string();
            let help = if text.contains("user namespace") {
                "as root: sysctl kernel.unprivileged_userns_clone=1 user.max_user_namespaces=65536"
            } else if text.contains("overlay") {
                "a kernel of 5.11 or later, and a yard on ext4, xfs or btrfs (not on an overlay itself); or \
                 backend = \"copy\" under [root] in kilnyard.toml"
            } else if text.contains("proc") {
                "in a container: run it with all of /proc visible (docker run --security-opt systempaths=unconfined \
                 --security-opt seccomp=unconfined, or --privileged), or run outside of it"
            } else if text.contains("enter") {
                "a yard in a folder that others may enter (chmod o+x on the folders above it)"
            } else {
                "outside of a container, or in one that may mount: docker run --privileged"
            };
            Finding { help: Some(help.to_owned()), ..finding("roots", false, text) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn make_is_of_the_prefix_or_of_the_system() {
        let found = |settings: &str| {
            let table =
                format!("tree = \"/t\"\n{settings}\n[root]\nrelease = \"r\"\nmirror = \"http://m\"\n");
            make_program(&toml::from_str(&table).unwrap())
        };
        for (settings, make) in [
            ("", "/usr/pkg/bin/bmake"),
            ("prefix = \"/opt/pkg\"", "/opt/pkg/bin/bmake"),
            ("prefix = \"/opt/pkg\"\nmake = \"/opt/pkg/sbin/make\"", "/opt/pkg/sbin/make"),
            ("make = \"/usr/bin/bmake\"", "/usr/bin/bmake"),
        ] {
            assert_eq!(found(settings), finding("make", true, make));
        }
        for (settings, make, prefix) in [
            ("make = \"/opt/pkg/bin/bmake\"", "/opt/pkg/bin/bmake", "/usr/pkg"),
            ("prefix = \"/opt/pkg\"\nmake = \"/usr/pkg/bin/bmake\"", "/usr/pkg/bin/bmake", "/opt/pkg"),
            // A folder whose name only begins as the prefix does is another one.
            ("make = \"/usr/pkgsrc/bmake\"", "/usr/pkgsrc/bmake", "/usr/pkg"),
            ("make = \"/usr/binary/bmake\"", "/usr/binary/bmake", "/usr/pkg"),
        ] {
            let found = found(settings);
            assert!(!found.is_ok, "{settings}");
            assert_eq!(
                found.text,
                format!("{make} is neither in the prefix {prefix} nor a program of the base root")
            );
            assert!(found.help.unwrap().contains(&format!("{prefix}/bin/bmake, or prefix")));
        }
    }
}
