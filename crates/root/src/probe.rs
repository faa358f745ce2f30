//! What this machine allows: each need tried for real, with the reason where it is refused.

use crate::sandbox::{RunError, Task};
use crate::{IdMap, Making, Operation, RootPlan, Sandbox, User, View};
use std::path::{Path, PathBuf};

/// Tries a root so made in an empty folder below `folder`, as a build would have it. On failure the step that was refused,
/// and why.
pub fn try_root(folder: &Path, ids: &IdMap, making: &Making) -> Result<(), RunError> {
    let probe = PathBuf::from(format!(".probe-{}", std::process::id()));
    let made = |path: &Path| {
        let made = fs_err::create_dir_all(folder.join(path));
        made.and_then(|()| give_to_root(&folder.join(path), ids)).map_err(RunError::Files)
    };
    let layer = probe.join("layer");
    let plan = RootPlan::new(&probe.join("root"), std::slice::from_ref(&layer), making);
    let outcome = made(&probe).and_then(|()| made(&layer)).and_then(|()| plan.make(folder, ids));
    let outcome = outcome.and_then(|keeper| {
        let mut operations = plan.files.clone();
        operations.extend([
            Operation::Folder { path: plan.root.join("proc") },
            Operation::Proc { target: plan.root.join("proc") },
            Operation::Loopback,
        ]);
        let task = Task::Program(vec!["/bin/true".to_owned()]);
        let sandbox = Sandbox {
            keeper: keeper.as_ref().map(crate::Keeper::process),
            view: View::Root(operations),
            user: User::Root,
            has_network: false,
            ..Sandbox::of_machine(folder, ids, task)
        };
        let outcome = sandbox.run();
        plan.remove(folder, ids, keeper.as_ref()).and(outcome)
    });
    let removed = crate::remove_folder(folder, &probe, ids);
    outcome.and(removed)
}

/// Makes root of the root the owner of a folder. An ordinary user is that already.
pub fn give_to_root(path: &Path, ids: &IdMap) -> std::io::Result<()> {
    if ids.is_ordinary() {
        return Ok(());
    }
    std::os::unix::fs::lchown(path, ids.user_outside(0), ids.group_outside(0))
}
