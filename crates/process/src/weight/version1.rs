//! Cgroup v1: a group below that of this process.

use super::group::{Groups, VERSION_1};
use crate::groups::{GroupPath, Hierarchy, folder, name};
use std::io;
use std::path::{Path, PathBuf};

/// Creates Kilnyard's own group, and tries whether it accepts a weight and a process.
pub(super) fn find(owner: &str, cpus: usize) -> Result<Groups, String> {
    let cpu = GroupPath::own(Hierarchy::Version1("cpu")).ok_or("its cpu controller is not mounted")?;
    let name = name::new(owner);
    let mut lingering = folder::sweep(&cpu.folder, owner);
    let weighing = cpu.folder.join(&name);
    fs_err::create_dir(&weighing).map_err(|error| error.to_string())?;
    // The counting hierarchy may be a separate one. If groups cannot be made there, CPU time is what the processes
    // report.
    let counting = GroupPath::own(Hierarchy::Version1("cpuacct")).and_then(|place| {
        if place.folder == cpu.folder {
            return Some(weighing.clone());
        }
        lingering.extend(folder::sweep(&place.folder, owner));
        let counting = place.folder.join(&name);
        create_and_try(&counting).then_some(counting)
    });
    // From here on, dropping this value removes what was created.
    let groups = Groups::new(VERSION_1, weighing.clone(), counting, lingering);
    let weight = VERSION_1.scale.of_all(cpus);
    folder::write(&weighing.join(VERSION_1.weight), weight).map_err(|error| error.to_string())?;
    try_to_enter(&weighing).map_err(|error| error.to_string())?;
    Ok(groups)
}

fn create_and_try(folder: &PathBuf) -> bool {
    if fs_err::create_dir(folder).is_err() {
        return false;
    }
    let takes = try_to_enter(folder).is_ok();
    if !takes {
        let _ = folder::remove(folder);
    }
    takes
}

/// Moves a short-lived thread into the group; cgroup v1 supports moving single threads.
fn try_to_enter(folder: &Path) -> io::Result<()> {
    let tasks = folder.join("tasks");
    let thread = std::thread::Builder::new().spawn(move || folder::write(&tasks, 0))?;
    thread.join().unwrap_or_else(|_| Err(io::Error::other("the trial thread panicked")))
}
