//! Probes what this machine allows: each need is tried for real, and a refusal is reported with its reason.

use crate::sandbox::{RunError, Task};
use crate::{Device, Form, IdMap, ImagePlan, Making, Operation, RootPlan, Sandbox, User, View, block};
use std::path::{Path, PathBuf};

/// Free space on a probed device.
const ROOM_BYTES: u64 = 1 << 20;

/// Makes a root in a new folder below `folder`, as a build would, and removes it. The error names the step that was
/// refused, and why.
pub fn try_root(folder: &Path, ids: &IdMap, making: &Making) -> Result<(), RunError> {
    let probe = PathBuf::from(format!(".probe-{}", std::process::id()));
    let made = |path: &Path| {
        let made = fs_err::create_dir_all(folder.join(path));
        made.and_then(|()| give_to_root(&folder.join(path), ids)).map_err(RunError::Files)
    };
    let layer = probe.join("layer");
    let layers = match making.form {
        Form::Image(_) => vec![probe.join("image")],
        Form::Overlay | Form::Copy => vec![layer.clone()],
    };
    let plan = RootPlan::new(&probe.join("root"), &layers, making);
    let imaged = || match making.form {
        Form::Image(device) => make_image(folder, ids, &probe, &layer, device),
        Form::Overlay | Form::Copy => Ok(()),
    };
    let made = made(&probe).and_then(|()| made(&layer)).and_then(|()| imaged());
    let outcome = made.and_then(|()| plan.make(folder, ids));
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

/// Makes a small image from a layer.
fn make_image(
    folder: &Path,
    ids: &IdMap,
    probe: &Path,
    layer: &Path,
    device: Device,
) -> Result<(), RunError> {
    if let Some(lack) = block::missing_requirement(device.server, device.file_system) {
        return Err(lack.into());
    }
    let device = Device { room_bytes: ROOM_BYTES, ..device };
    ImagePlan::new(folder, probe, "image", &[layer.to_owned()], &device).make(folder, ids)
}

/// Gives a folder to the root user inside the root. For an ordinary user it already belongs to that user.
pub fn give_to_root(path: &Path, ids: &IdMap) -> std::io::Result<()> {
    if ids.is_ordinary() {
        return Ok(());
    }
    std::os::unix::fs::lchown(path, ids.user_outside(0), ids.group_outside(0))
}
