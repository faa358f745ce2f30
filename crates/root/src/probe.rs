//! What this machine allows: each need tried for real, with the reason where it is refused.

use crate::sandbox::{RunError, Task};
use crate::{IdMap, Operation, Sandbox, User, View};
use std::path::Path;

/// Tries a sandbox with an overlay root in an empty folder below `folder`, as a build would have it.
/// On failure the step that was refused, and why.
pub fn try_root(folder: &Path, ids: &IdMap) -> Result<(), RunError> {
    let name = format!(".probe-{}", std::process::id());
    let probe = folder.join(&name);
    let inner = std::path::PathBuf::from(&name);
    for part in ["", "lower", "upper", "work", "merged"] {
        fs_err::create_dir_all(probe.join(part)).map_err(RunError::Spawn)?;
        give_to_root(&probe.join(part), ids).map_err(RunError::Spawn)?;
    }
    let operations = vec![
        Operation::Overlay {
            lower: vec![inner.join("lower")],
            upper: inner.join("upper"),
            work: inner.join("work"),
            target: inner.join("merged"),
        },
        Operation::Folder { path: inner.join("merged/proc") },
        Operation::Proc { target: inner.join("merged/proc") },
        Operation::Loopback,
    ];
    let sandbox = |view, task| Sandbox {
        folder: folder.into(),
        ids: ids.clone(),
        view,
        user: User::Root,
        task,
        directory: "/".into(),
        environment: Vec::new(),
        is_interactive: false,
        has_network: false,
    };
    let outcome = sandbox(View::Root(operations), Task::Program(vec!["/bin/true".to_owned()])).run();
    let removed = sandbox(View::Machine, Task::Remove(vec![inner])).run();
    let _ = fs_err::remove_dir_all(&probe);
    outcome.and(removed).map(|_| ())
}

/// Makes root of the root the owner of a folder. An ordinary user is that already.
pub fn give_to_root(path: &Path, ids: &IdMap) -> std::io::Result<()> {
    if ids.by_helper {
        return Ok(());
    }
    std::os::unix::fs::lchown(path, ids.user_outside(0), ids.group_outside(0))
}
