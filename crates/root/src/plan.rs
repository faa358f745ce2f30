//! The plan of one root: the operations done once, those held from one command to the next, those each command begins
//! with, and those that remove the root.

use crate::block::{self, COUNTERS, DEVICE, DISK, Device, REQUESTS, Requests, SOCKET, Server, TREE};
use crate::operation::{Access, Content, Flushes, Operation, Source, system_operations};
use crate::sandbox::{RunError, Task};
use crate::{IdMap, Keeper, Sandbox, probe, tree};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};

/// Mount point of the file system in memory, relative to the root's folder.
pub const MEMORY: &str = "memory";

/// The folder that a virtual machine may write to, relative to the root's folder.
pub const SHARED: &str = "shared";

/// How the files of a root come together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Form {
    /// Read-only layers below a writable one.
    #[default]
    Overlay,
    /// A copy of the layers.
    Copy,
    /// An image on the root's own device, written copy-on-write. It takes the place of the lowest layer; the other
    /// layers lie above it as in an overlay.
    Image(Device),
}

/// Where a root's own files are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Place {
    /// In its folder.
    #[default]
    Disk,
    /// In a folder of its own within its folder, which a virtual machine may write to, and nothing else.
    Shared,
    /// In its own file system in memory.
    Memory {
        /// The size limit of that file system.
        size_bytes_max: u64,
    },
    /// In its folder, except for a work folder in memory, which every user of the root may write to.
    WorkInMemory {
        /// The size limit of the work folder.
        size_bytes_max: u64,
    },
}

/// The choices that a root is planned from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Making {
    /// How the files come together.
    pub form: Form,
    /// Where they are stored.
    pub place: Place,
    /// Whether requests to flush reach the disk.
    pub flushes: Flushes,
}

impl Making {
    /// How a root whose folder exists was made, by what is in it. The folder is relative to the yard.
    pub fn found(yard: &Path, folder: &Path) -> Making {
        let has = |name: &str| yard.join(folder).join(name).is_dir();
        let form = if has("tree") { Form::Copy } else { Form::Overlay };
        let place = if has(SHARED) { Place::Shared } else { Place::Disk };
        Making { form, place, ..Making::default() }
    }
}

/// The operations of one root. All paths are relative to the yard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RootPlan {
    /// The root's folder.
    pub folder: PathBuf,
    /// Done once, by Kilnyard itself.
    pub make: Vec<Operation>,
    /// Done once and held by a [`Keeper`].
    pub hold: Vec<Operation>,
    /// Done at the start of each command, before devices and processes are mounted.
    pub files: Vec<Operation>,
    /// Where the complete tree of the root appears after these.
    pub root: PathBuf,
    /// Where the files that commands wrote are found afterwards.
    pub written: PathBuf,
}

impl RootPlan {
    /// Plans a root of these layers, uppermost first.
    pub fn new(folder: &Path, layers: &[PathBuf], making: &Making) -> RootPlan {
        let at = |name: &str| folder.join(name);
        let made = |name: &str| Operation::Folder { path: at(name) };
        let mut make = vec![Operation::Folder { path: folder.to_owned() }];
        let mut hold = Vec::new();
        let memory = |mode, size_bytes_max| Operation::Tmpfs { target: at(MEMORY), mode, size_bytes_max };
        // The root's own folders are made on the file system that holds its files.
        let (base, is_held) = match making.place {
            Place::Disk => (folder.to_owned(), false),
            Place::Shared => {
                make.push(made(SHARED));
                (at(SHARED), false)
            }
            Place::WorkInMemory { size_bytes_max } => {
                make.push(made(MEMORY));
                hold.push(memory(0o1777, size_bytes_max));
                (folder.to_owned(), false)
            }
            Place::Memory { size_bytes_max } => {
                make.push(made(MEMORY));
                hold.push(memory(0o755, size_bytes_max));
                (at(MEMORY), true)
            }
        };
        if let (Form::Image(device), Some((image, above))) = (making.form, layers.split_last()) {
            return RootPlan::on_device(folder, image, above, device, making.flushes, (make, hold));
        }
        let own = if is_held { &mut hold } else { &mut make };
        let own_folder = |name: &str| Operation::Folder { path: base.join(name) };
        let (files, root, written) = match making.form {
            Form::Overlay => {
                own.extend([own_folder("upper"), own_folder("work")]);
                make.push(made("merged"));
                let overlay = Operation::Overlay {
                    lower: layers.to_vec(),
                    upper: base.join("upper"),
                    work: base.join("work"),
                    target: at("merged"),
                    flushes: making.flushes,
                };
                (vec![overlay], at("merged"), base.join("upper"))
            }
            Form::Copy | Form::Image(_) => {
                let tree = base.join("tree");
                own.extend([
                    own_folder("tree"),
                    Operation::Copy { lower: layers.to_vec(), target: tree.clone(), content: Content::Own },
                ]);
                let (source, target) = (tree.clone(), tree.clone());
                (vec![Operation::Bind { source, target, access: Access::Write }], tree.clone(), tree)
            }
        };
        RootPlan { folder: folder.to_owned(), make, hold, files, root, written }
    }

    /// Plans a root on a device. Layers above the image form an overlay over its tree, with the writable layer on the
    /// same device; without layers above, the tree itself is written. If the device is read-only, the writable layer is
    /// in the root's folder. `make` and `hold` are the operations that come before.
    fn on_device(
        folder: &Path,
        image: &Path,
        above: &[PathBuf],
        device: Device,
        flushes: Flushes,
        (mut make, mut hold): (Vec<Operation>, Vec<Operation>),
    ) -> RootPlan {
        let at = |name: &str| folder.join(name);
        let folders = |paths: &[PathBuf]| -> Vec<Operation> {
            paths.iter().map(|path| Operation::Folder { path: path.clone() }).collect()
        };
        let disk = at(DISK);
        make.extend(folders(&[at(DEVICE), disk.clone()]));
        let (image, written) = (image.to_owned(), folder.to_owned());
        let requests = (device.requests == Requests::Log).then(|| at(REQUESTS));
        let (serve, source) = match device.server {
            server @ (Server::Kilnyard | Server::Ublk) => {
                let (folder, memory_bytes_max) = (at(DEVICE), device.memory_bytes_max);
                let counters = at(COUNTERS);
                let show = Operation::Show {
                    server,
                    image,
                    folder,
                    written,
                    memory_bytes_max,
                    flushes,
                    requests,
                    counters,
                };
                (show, Source::Shown(at(DEVICE)))
            }
            Server::Nbdkit => {
                let socket = at(SOCKET);
                (Operation::Serve { image, socket, written, flushes, requests }, Source::Served(at(SOCKET)))
            }
        };
        hold.extend([
            serve,
            Operation::Attach { source, device: at(DEVICE) },
            Operation::Mount {
                device: at(DEVICE),
                target: disk.clone(),
                file_system: device.file_system,
                flushes,
            },
        ]);
        let is_written = device.file_system.is_written();
        if is_written {
            hold.push(Operation::Stamp { folder: disk.clone(), name: folder.display().to_string() });
        }
        let tree = disk.join(TREE);
        let (files, root, written) = if above.is_empty() && is_written {
            let bind = Operation::Bind { source: tree.clone(), target: tree.clone(), access: Access::Write };
            (bind, tree.clone(), tree)
        } else {
            let scratch = if is_written { &disk } else { folder };
            let (upper, work) = (scratch.join("upper"), scratch.join("work"));
            make.extend(folders(&[at("merged")]));
            let own = if is_written { &mut hold } else { &mut make };
            own.extend(folders(&[upper.clone(), work.clone()]));
            let lower = above.iter().cloned().chain([tree]).collect();
            let target = at("merged");
            (Operation::Overlay { lower, upper: upper.clone(), work, target, flushes }, at("merged"), upper)
        };
        RootPlan { folder: folder.to_owned(), make, hold, files: vec![files], root, written }
    }

    /// This root, with its overlay mounted once and held: files keep their device number from one command to the
    /// next, by which a fakeroot identifies them.
    pub fn held(mut self) -> RootPlan {
        let is_overlay = |operation: &Operation| matches!(operation, Operation::Overlay { .. });
        let (overlays, others) = self.files.into_iter().partition(is_overlay);
        self.files = others;
        self.hold.extend::<Vec<_>>(overlays);
        self
    }

    /// The work folder in memory, if the plan has one.
    pub fn work_folder(&self) -> Option<&Path> {
        self.hold.iter().find_map(|operation| match operation {
            Operation::Tmpfs { target, mode: 0o1777, .. } => Some(target.as_path()),
            _ => None,
        })
    }

    /// The operations by which a command enters the root. Each bind is a source, its path inside the root, and the
    /// access.
    pub fn entering(&self, binds: &[(PathBuf, PathBuf, Access)]) -> Vec<Operation> {
        let mut operations = self.files.clone();
        operations.extend(system_operations(&self.root));
        for (source, inside, access) in binds {
            let target = self.root.join(inside.strip_prefix("/").unwrap_or(inside));
            operations.push(Operation::Folder { path: target.clone() });
            operations.push(Operation::Bind { source: source.clone(), target, access: *access });
        }
        operations.push(Operation::Pivot { target: self.root.clone() });
        operations
    }

    /// The operations that remove the root once none of its processes runs: they undo the held ones in reverse, then
    /// remove the folder.
    pub fn removing(&self) -> Vec<Operation> {
        let held = self.hold.iter().rev().filter_map(Operation::undone);
        held.chain([Operation::Remove { path: self.folder.clone() }]).collect()
    }

    /// The server and the file system of the root's device; `None` for a root without a device.
    fn device(&self) -> Option<(Server, block::FileSystem)> {
        let shown = self.hold.iter().find_map(|operation| match operation {
            Operation::Show { server, .. } => Some(*server),
            _ => None,
        });
        Some((shown.unwrap_or(Server::Nbdkit), self.file_system()?))
    }

    /// The file system of the root's device; `None` for a root without a device.
    fn file_system(&self) -> Option<block::FileSystem> {
        self.hold.iter().find_map(|operation| match operation {
            Operation::Mount { file_system, .. } => Some(*file_system),
            _ => None,
        })
    }

    /// The lower layers of an overlay made only of folders, relative to the yard, uppermost first; empty for any other
    /// root.
    pub fn lower(&self) -> &[PathBuf] {
        let lower = self.hold.iter().chain(&self.files).find_map(|operation| match operation {
            Operation::Overlay { lower, .. } => Some(&lower[..]),
            _ => None,
        });
        lower.filter(|_| !self.has_device()).unwrap_or_default()
    }

    /// The upper and work folders of an overlay that writes to the machine's disk, relative to the yard; `None` for any
    /// other root.
    pub fn scratch(&self) -> Option<[&Path; 2]> {
        let is_made = |path: &Path| self.make.contains(&Operation::Folder { path: path.to_owned() });
        self.hold.iter().chain(&self.files).find_map(|operation| match operation {
            Operation::Overlay { upper, work, .. } if is_made(upper) => Some([upper.as_path(), work]),
            _ => None,
        })
    }

    /// Whether the root is on its own block device.
    pub fn has_device(&self) -> bool {
        self.file_system().is_some()
    }

    /// Whether the root's writes go to that device too.
    pub fn writes_on_device(&self) -> bool {
        self.file_system().is_some_and(block::FileSystem::is_written)
    }

    /// Makes the root, and its keeper if operations have to be held. On failure, everything made so far is removed.
    pub fn make(&self, yard: &Path, ids: &IdMap) -> Result<Option<Keeper>, RunError> {
        if let Some(lack) =
            self.device().and_then(|(server, file_system)| block::missing_requirement(server, file_system))
        {
            return Err(RunError::Lack(lack));
        }
        let made = self.make.iter().try_for_each(|operation| match operation {
            Operation::Folder { path } => make_folder(&yard.join(path), ids).map_err(RunError::Files),
            Operation::Copy { lower, target, content } => {
                let (lower, target) = (lower.clone(), target.clone());
                let task = Task::Copy { lower, target, content: *content };
                Sandbox::of_machine(yard, ids, task).run().map(|_| ())
            }
            other => unreachable!("{other} is held"),
        });
        let held = made.and_then(|()| match &self.hold[..] {
            [] => Ok(None),
            hold => Keeper::start(yard, ids, hold.to_vec()).map(Some),
        });
        if held.is_err() {
            let _ = remove_folder(yard, &self.folder, ids);
        }
        held
    }

    /// Ends the root's keeper, then removes its folder.
    pub fn remove(&self, yard: &Path, ids: &IdMap, keeper: Option<&Keeper>) -> Result<(), RunError> {
        keeper.map_or(Ok(()), Keeper::end)?;
        remove_folder(yard, &self.folder, ids)
    }
}

fn make_folder(path: &Path, ids: &IdMap) -> io::Result<()> {
    fs_err::create_dir(path)?;
    probe::give_to_root(path, ids)
}

/// Removes a folder of the yard whose files may belong to a root's users. A missing folder is not an error.
pub fn remove_folder(yard: &Path, folder: &Path, ids: &IdMap) -> Result<(), RunError> {
    let path = yard.join(folder);
    let found = match fs_err::symlink_metadata(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        found => found?,
    };
    if ids.is_ordinary() && found.is_dir() {
        Sandbox::of_machine(yard, ids, Task::Remove(vec![folder.to_owned()])).run()?;
    }
    tree::remove_beneath(yard, folder).map_err(RunError::Files)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(form: Form, place: Place) -> RootPlan {
        let making = Making { form, place, flushes: Flushes::Discard };
        RootPlan::new(Path::new("roots/1"), &["layers/kit".into(), "layers/base".into()], &making)
    }

    fn lines(operations: &[Operation]) -> Vec<String> {
        operations.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_overlay_is_mounted_by_each_command_and_leaves_a_folder() {
        let plan = plan(Form::Overlay, Place::Disk);
        let made = ["roots/1", "roots/1/upper", "roots/1/work", "roots/1/merged"];
        assert_eq!(lines(&plan.make), made.map(|path| format!("folder {path}")));
        assert_eq!(plan.hold, []);
        let binds = [(PathBuf::from("roots/1/inputs"), PathBuf::from("/kilnyard/inputs"), Access::Read)];
        let text = lines(&plan.entering(&binds));
        assert_eq!(text[0], "overlay roots/1/upper over layers/kit:layers/base at roots/1/merged");
        let bind = "bind roots/1/inputs at roots/1/merged/kilnyard/inputs for reading".to_owned();
        assert!(text.contains(&bind));
        assert_eq!(text.last().unwrap(), "pivot to roots/1/merged");
        assert_eq!(lines(&plan.removing()), ["remove roots/1"]);
        let json = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<RootPlan>(&json).unwrap(), plan);
    }

    #[test]
    fn a_root_in_memory_is_held_and_undone_in_reverse() {
        let plan = plan(Form::Copy, Place::Memory { size_bytes_max: 1 << 20 });
        assert_eq!(lines(&plan.make), ["folder roots/1", "folder roots/1/memory"]);
        let held = [
            "tmpfs of at most 1048576 bytes at roots/1/memory",
            "folder roots/1/memory/tree",
            "copy layers/kit:layers/base to roots/1/memory/tree",
        ];
        assert_eq!(lines(&plan.hold), held);
        assert_eq!(lines(&plan.removing()), ["unmount roots/1/memory", "remove roots/1"]);
    }

    #[test]
    fn an_image_is_served_attached_mounted_and_stamped() {
        let device = Device { requests: Requests::Log, server: Server::Nbdkit, ..Device::default() };
        let making = Making { form: Form::Image(device), ..Making::default() };
        let plan = RootPlan::new(Path::new("roots/1"), &["images/base".into()], &making);
        assert_eq!(lines(&plan.make), ["folder roots/1", "folder roots/1/device", "folder roots/1/disk"]);
        let held = [
            "serve images/base at roots/1/socket, copy-on-write in roots/1, requests in roots/1/requests",
            "attach the export at roots/1/socket as roots/1/device",
            "mount ext4 of roots/1/device at roots/1/disk",
            "stamp roots/1/disk as roots/1",
        ];
        assert_eq!(lines(&plan.hold), held);
        assert_eq!(lines(&plan.files), ["bind roots/1/disk/tree at roots/1/disk/tree for writing"]);
        assert_eq!(plan.written, Path::new("roots/1/disk/tree"));
        let removing = [
            "unmount roots/1/disk, dropping unwritten data",
            "detach roots/1/device",
            "stop serving at roots/1/socket",
            "remove roots/1",
        ];
        assert_eq!(lines(&plan.removing()), removing);
    }

    #[test]
    fn an_image_is_shown_by_a_server_of_ours() {
        let device = Device { memory_bytes_max: 7 << 20, ..Device::default() };
        let making = Making { form: Form::Image(device), ..Making::default() };
        let plan = RootPlan::new(Path::new("roots/1"), &["images/base".into()], &making);
        let held = [
            "show images/base in roots/1/device, copy-on-write in 7340032 bytes of memory and roots/1",
            "attach the device in roots/1/device",
            "mount ext4 of roots/1/device at roots/1/disk",
            "stamp roots/1/disk as roots/1",
        ];
        assert_eq!(lines(&plan.hold), held);
        assert_eq!(
            lines(&plan.removing())[1..3],
            ["detach roots/1/device", "end the device in roots/1/device"]
        );
    }

    #[test]
    fn a_read_only_image_is_the_lowest_layer_of_an_overlay() {
        let device = Device { file_system: block::FileSystem::Erofs, ..Device::default() };
        let making = Making { form: Form::Image(device), ..Making::default() };
        let plan = RootPlan::new(Path::new("roots/1"), &["images/base".into()], &making);
        let made = ["", "/device", "/disk", "/merged", "/upper", "/work"];
        assert_eq!(lines(&plan.make), made.map(|name| format!("folder roots/1{name}")));
        assert_eq!(lines(&plan.hold)[2..], ["mount erofs of roots/1/device at roots/1/disk"]);
        let files = "overlay roots/1/upper over roots/1/disk/tree at roots/1/merged";
        assert_eq!(lines(&plan.files), [files]);
        assert_eq!(plan.written, Path::new("roots/1/upper"));
        assert_eq!(lines(&plan.removing())[0], "unmount roots/1/disk");
    }

    #[test]
    fn layers_above_an_image_lie_over_it() {
        let place = Place::WorkInMemory { size_bytes_max: 7 };
        let making = Making { form: Form::Image(Device::default()), place, flushes: Flushes::Keep };
        let layers = ["layers/kit".into(), "images/base".into()];
        let plan = RootPlan::new(Path::new("roots/1"), &layers, &making);
        let files = "overlay roots/1/disk/upper over layers/kit:roots/1/disk/tree at roots/1/merged, flushed";
        assert_eq!(lines(&plan.files), [files]);
        assert_eq!(plan.work_folder(), Some(Path::new("roots/1/memory")));
        let held = lines(&plan.hold);
        assert!(held[0].starts_with("tmpfs ") && held[1].ends_with(", flushed"), "{held:?}");
        assert_eq!(held[5..], ["folder roots/1/disk/upper", "folder roots/1/disk/work"]);
        assert_eq!(plan.written, Path::new("roots/1/disk/upper"));
    }

    #[test]
    fn a_work_folder_in_memory_leaves_the_rest_on_the_disk() {
        let plan = plan(Form::Overlay, Place::WorkInMemory { size_bytes_max: 7 });
        assert_eq!(plan.work_folder(), Some(Path::new("roots/1/memory")));
        assert_eq!(plan.written, Path::new("roots/1/upper"));
        assert_eq!(lines(&plan.hold), ["tmpfs of at most 7 bytes at roots/1/memory"]);
    }
}
