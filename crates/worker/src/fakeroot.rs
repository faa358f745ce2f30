//! Owners that there are not: where a root has one id alone, all of it belongs to one user, and the fakeroot makes up the
//! rest.
//!
//! One session lasts as long as the root. Commands that root runs have it from the beginning, since installing packages
//! gives files away. Commands of the builder do not: they call `fakeroot` where their package needs it, and the session
//! stands in for that program.
//!
//! Programs that make system calls of their own are not answered: they see that all belongs to root, as it does, or to the
//! builder; the session says so in the log.

use kilnyard_fakeroot::shared::ownership::Unknown;
use kilnyard_fakeroot::{Session, SessionError};
use kilnyard_root::{Access, Operation};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The folder of a root's folder that holds the session.
const FOLDER: &str = "fakeroot";
/// Where it is seen in the root.
const INSIDE: &str = "/kilnyard/fakeroot";
/// What stands in for fakeroot, and where the program itself is seen then.
const PROGRAM: &str = "program";
const REAL: &str = "real";

const SCRIPT: &str = include_str!("tools/fakeroot.sh");

/// Begins the session of a root; it ends when this is dropped. `root` is the root's folder.
pub(crate) fn begin(root: &Path) -> io::Result<Session> {
    let folder = root.join(FOLDER);
    fs_err::create_dir_all(&folder)?;
    let made = Session::make_for_root(&folder, INSIDE.as_ref(), Unknown::Root);
    let session = made.map_err(|error: SessionError| {
        let cause = std::error::Error::source(&error).map_or(String::new(), |cause| format!(": {cause}"));
        io::Error::other(format!("failed to {error}{cause}"))
    })?;
    // Libraries that are there already stay; what calls it from within the session has all of it.
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

/// What programs of the session have in their environment.
pub(crate) fn environment(session: &Session) -> Vec<(String, String)> {
    let text = |value: std::ffi::OsString| value.to_string_lossy().into_owned();
    session.environment(None).into_iter().map(|(name, value)| (name.to_owned(), text(value))).collect()
}

/// Where the session of a root is, and where it is shown.
pub(crate) fn shown(root: &Path) -> (PathBuf, PathBuf, Access) {
    (root.join(FOLDER), PathBuf::from(INSIDE), Access::Write)
}

/// What makes the session stand in for programs, by their paths inside, in a root at `merged` that shows it. `root` is the
/// root's folder; both are relative to the yard.
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
