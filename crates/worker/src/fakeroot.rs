//! Simulated file owners: if a root has only one id, all its files belong to one user, and fakeroot simulates other
//! owners.
//!
//! One session lasts as long as the root. Commands of root run in it from the start, since installing packages
//! changes owners. Commands of the builder do not: they call `fakeroot` if their package needs it, and the session
//! replaces that program.
//!
//! Programs that make system calls directly bypass the session: they see the real owner of all files, root or the
//! builder. The session reports this in the log.

use kilnyard_fakeroot::shared::ownership::Unknown;
use kilnyard_fakeroot::{Session, SessionError};
use kilnyard_root::{Access, Operation};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The folder of a root's folder that holds the session.
const FOLDER: &str = "fakeroot";
/// Its mount point in the root.
const INSIDE: &str = "/kilnyard/fakeroot";
/// The replacement of fakeroot, and where the original program is mounted then.
const PROGRAM: &str = "program";
const REAL: &str = "real";

const SCRIPT: &str = include_str!("tools/fakeroot.sh");

/// Begins the session of a root; it ends when the result is dropped. `root` is the root's folder.
pub(crate) fn begin(root: &Path) -> io::Result<Session> {
    let folder = root.join(FOLDER);
    fs_err::create_dir_all(&folder)?;
    let made = Session::make_for_root(&folder, INSIDE.as_ref(), Unknown::Root);
    let session = made.map_err(|error: SessionError| {
        let cause = std::error::Error::source(&error).map_or(String::new(), |cause| format!(": {cause}"));
        io::Error::other(format!("failed to {error}{cause}"))
    })?;
    // Keeps libraries that are preloaded already. A caller within the session has all variables.
    let variables: String = environment(&session)
        .iter()
        .map(|(name, value)| match name.as_str() {
            "LD_PRELOAD" => format!("  export {name}={value}${{{name}:+:${name}}}\n"),
            _ => format!("  export {name}={value}\n"),
        })
        .collect();
    let script = format!("{SCRIPT}if [ -z \"$FAKEROOTKEY\" ]; then\n{variables}fi\nexec \"$@\"\n");
    fs_err::write(folder.join(PROGRAM), script)?;
    fs_err::set_permissions(folder.join(PROGRAM), std::fs::Permissions::from_mode(0o755))?;
    fs_err::write(folder.join(REAL), "")?;
    Ok(session)
}

/// Environment variables of programs in the session.
pub(crate) fn environment(session: &Session) -> Vec<(String, String)> {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    session.environment(None).into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect()
}

/// The bind mount of a root's session: source, target and access.
pub(crate) fn shown(root: &Path) -> (PathBuf, PathBuf, Access) {
    (root.join(FOLDER), PathBuf::from(INSIDE), Access::Write)
}

/// Replaces programs by the session in the root at `merged`, where the session is mounted. `programs` are paths
/// inside; `root` is the root's folder; `merged` and `root` are relative to the yard.
pub(crate) fn operations(merged: &Path, root: &Path, programs: &[String]) -> Vec<Operation> {
    let below = |path: &str| PathBuf::from(path.trim_start_matches('/'));
    let stand_in = |program: &String| Operation::StandIn {
        root: merged.to_owned(),
        program: below(program),
        with: root.join(FOLDER).join(PROGRAM),
        real: merged.join(below(INSIDE)).join(REAL),
    };
    programs.iter().map(stand_in).collect()
}
