//! Checks that this machine can make a Debian base root.

use super::config::Debian;
use super::config::DebianRoot;
use super::config::root::{EMULATION_COST, debian_keyring, own_architecture, runs};
use super::mirror::ask;
use kilnyard_yard::family::Family;
use kilnyard_yard::finding::Finding;
use kilnyard_yard::remedy::Remedy;
use kilnyard_yard::yard::Yard;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;

/// Whether mmdebstrap and this keyring are installed.
pub fn base_findings(ring: &Path) -> Vec<Finding> {
    vec![mmdebstrap(), keyring(ring)]
}

/// Whether the archive's mirror responds.
pub fn mirror_finding(yard: &Yard, root: &DebianRoot, cancel: &AtomicBool) -> Finding {
    match ask(yard, root, cancel) {
        Ok(url) => Finding::new("mirror", true, format!("{url} answers")),
        Err(error) => Finding {
            help: Some(Remedy::from("mirror in kilnyard.toml; the proxy in http_proxy or https_proxy")),
            ..Finding::new("mirror", false, error.causes.first().cloned().unwrap_or(error.message))
        },
    }
}

impl Debian {
    /// How this machine builds for an architecture other than its own.
    pub(super) fn architecture_finding(&self) -> Option<Finding> {
        let (own, architecture) = (own_architecture(), self.architecture());
        let finding = |is_ok, text| Some(Finding::new("architecture", is_ok, text));
        match (self.foreign(), &self.build_architecture) {
            _ if architecture == own => None,
            (_, Some(build)) => finding(true, format!("{architecture} is cross-built on {build}")),
            (None, None) if runs(&own, &architecture) => {
                finding(true, format!("this machine ({own}) runs {architecture}"))
            }
            (None, None) => {
                let how = if self.processor.is_some() { " in virtual machines" } else { "" };
                finding(
                    true,
                    format!("{architecture} is emulated{how} on {own}: builds take {EMULATION_COST} as long"),
                )
            }
            (Some((reason, remedy)), None) => {
                finding(false, reason).map(|finding| Finding { help: Some(remedy), ..finding })
            }
        }
    }
}

fn mmdebstrap() -> Finding {
    match Command::new("mmdebstrap").arg("--version").output() {
        Ok(output) if output.status.success() => {
            Finding::new("mmdebstrap", true, String::from_utf8_lossy(&output.stdout).trim().to_owned())
        }
        _ => Finding {
            help: Some(Remedy::packages(&["mmdebstrap"])),
            packages: vec!["mmdebstrap"],
            ..Finding::new("mmdebstrap", false, "not installed; it is needed to make the base root")
        },
    }
}

fn keyring(path: &Path) -> Finding {
    let shown = path.display();
    if path.exists() {
        return Finding::new("keyring", true, shown.to_string());
    }
    let missing = Finding::new(
        "keyring",
        false,
        format!("{shown} does not exist; it has the keys that may sign the archive"),
    );
    if path != debian_keyring() {
        return Finding { help: Some(Remedy::from("keyring in kilnyard.toml")), ..missing };
    }
    Finding {
        help: Some(Remedy::packages(&["debian-archive-keyring"])),
        packages: vec!["debian-archive-keyring"],
        ..missing
    }
}
