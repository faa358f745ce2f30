//! Making the base with one id alone: mmdebstrap as root of a namespace in which nobody else exists, in a session of the
//! fakeroot.
//!
//! mmdebstrap's own mode for ordinary users wants a range of ids. In its mode for root it mounts devices in ways that such
//! a namespace refuses, so hooks show the machine's devices, and the session to what runs in the new root. A fakeroot's
//! device nodes are no devices, so `mknod` fails. Folders of programs are merged before packages are unpacked: afterwards
//! it is done by following libraries, the session's among them.

use crate::error::{Context, Error, Kind, Result};
use kilnyard_fakeroot::Session;
use kilnyard_fakeroot::shared::ownership::Unknown;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// mmdebstrap's own hooks that merge folders of programs where the release has them merged.
const MERGED: &str = "/usr/share/mmdebstrap/hooks/maybe-merged-usr";

/// `$1` is the new root, `$session` the folder of the session.
const SHOW: &str = r#"
mkdir -p "$1$session" "$1/dev"
mount --bind "$session" "$1$session"
for device in null zero full random urandom tty; do
  : > "$1/dev/$device"
  mount --bind "/dev/$device" "$1/dev/$device"
done
"#;
const HIDE: &str = r#"
umount "$1$session"
rmdir -p --ignore-fail-on-non-empty "$1$session"
for device in null zero full random urandom tty; do
  umount "$1/dev/$device"
  rm "$1/dev/$device"
done
"#;

/// What mmdebstrap needs around it; gone when dropped.
#[derive(Debug)]
pub struct Surroundings {
    session: Session,
    programs: PathBuf,
    hooks: [String; 2],
}

impl Surroundings {
    /// Makes them in a folder.
    pub fn make(work: &Path) -> Result<Surroundings> {
        let folder = work.join("fakeroot");
        let programs = work.join("programs");
        for folder in [&folder, &programs] {
            fs_err::create_dir_all(folder).context(Kind::Machine, "make the base root")?;
        }
        let no_devices = programs.join("mknod");
        let made = fs_err::write(&no_devices, "#!/bin/sh\nexit 1\n")
            .and_then(|()| fs_err::set_permissions(&no_devices, std::fs::Permissions::from_mode(0o755)));
        made.context(Kind::Machine, "make the base root")?;
        let folders = [folder.clone()];
        let session = Session::make(&folders, &folders, Unknown::Root);
        let session = session.context(Kind::Machine, "make a session of the fakeroot")?;
        let shown = folder.to_str().filter(|path| !path.contains('\''));
        let shown = shown.ok_or_else(|| {
            Error::new(Kind::Usage, format!("the path {} cannot be a word of a shell", folder.display()))
        })?;
        let hook = |script: &str| format!("set -eu; session='{shown}'{script}");
        Ok(Surroundings { session, programs, hooks: [hook(SHOW), hook(HIDE)] })
    }

    /// Lets a command that makes the namespaces begin mmdebstrap in them.
    pub fn surround(&self, command: &mut Command) {
        let path = format!("PATH={}:/usr/sbin:/usr/bin:/sbin:/bin", self.programs.display());
        // What makes the namespaces has to know who it really is.
        command.arg("env").arg(path);
        for (name, value) in self.session.environment(None) {
            let mut variable = OsString::from(name);
            variable.push("=");
            variable.push(value);
            command.arg(variable);
        }
        command.arg("mmdebstrap");
        command.args(["--skip=chroot/mount/sys", "--skip=chroot/mount/dev"]);
        command.arg(format!("--hook-dir={MERGED}"));
        command.arg(format!("--setup-hook={}", self.hooks[0]));
        command.arg(format!("--customize-hook={}", self.hooks[1]));
    }
}
