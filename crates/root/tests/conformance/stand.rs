//! The test fixture: a yard with two layers and a root made from them.

use kilnyard_root::sandbox::{RunError, Task};
use kilnyard_root::{
    Access, Device, FileSystem, Flushes, Form, IdMap, ImagePlan, Keeper, Making, Nesting, Operation, Place,
    RootPlan, Sandbox, Server, User, View, probe,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A root backend with its settings.
#[derive(Clone, Copy)]
pub struct Backend {
    pub name: &'static str,
    pub making: Making,
    /// Whether each root has its own limit on writes.
    pub is_bounded: bool,
    /// The number of layers above an image, if the backend has one.
    above: usize,
}

impl Backend {
    /// Whether roots are on block devices, which requires root.
    pub fn is_on_device(&self) -> bool {
        matches!(self.making.form, Form::Image(_))
    }

    /// Whether the writes of roots go to these devices too.
    pub fn is_written_device(&self) -> bool {
        matches!(self.making.form, Form::Image(device) if device.file_system.is_written())
    }
}

/// The size limit of a root in memory.
pub const MEMORY_BYTES: u64 = 48 << 20;

const fn backend(name: &'static str, form: Form, place: Place) -> Backend {
    let is_bounded = matches!(place, Place::Memory { .. });
    Backend { name, making: Making { form, place, flushes: Flushes::Discard }, is_bounded, above: 0 }
}

/// A block backend with as much room, in addition to the layers.
const fn block(name: &'static str, server: Server, file_system: FileSystem, is_bounded: bool) -> Backend {
    let device = Device { file_system, room_bytes: MEMORY_BYTES, server, ..Device::STANDARD };
    let making = Making { form: Form::Image(device), place: Place::Disk, flushes: Flushes::Discard };
    Backend { name, making, is_bounded, above: 0 }
}

pub const BACKENDS: [Backend; 12] = [
    backend("overlay", Form::Overlay, Place::Disk),
    backend("overlay_in_memory", Form::Overlay, Place::Memory { size_bytes_max: MEMORY_BYTES }),
    backend("tmpfs", Form::Copy, Place::Memory { size_bytes_max: MEMORY_BYTES }),
    backend("copy", Form::Copy, Place::Disk),
    block("block", Server::Kilnyard, FileSystem::Ext4, true),
    Backend { above: 1, ..block("block_below_a_layer", Server::Kilnyard, FileSystem::Ext4, true) },
    // The minimum size of xfs is larger, so the limit does not hold.
    block("block_of_xfs", Server::Kilnyard, FileSystem::Xfs, false),
    // Writes go to the yard's disk.
    block("block_of_erofs", Server::Kilnyard, FileSystem::Erofs, false),
    block("block_by_ublk", Server::Ublk, FileSystem::Ext4, true),
    block("block_by_nbdkit", Server::Nbdkit, FileSystem::Ext4, true),
    Backend { above: 1, ..block("block_by_nbdkit_below_a_layer", Server::Nbdkit, FileSystem::Ext4, true) },
    Backend { above: 1, ..block("block_of_erofs_by_nbdkit", Server::Nbdkit, FileSystem::Erofs, false) },
];

/// The layers, uppermost first.
const LAYER_NAMES: [&str; 2] = ["layers/above", "layers/below"];

pub const PLAIN: User = User::Plain { user: 1000, group: 1000 };

/// Makes the layers as root inside: below, then above.
const LAYERS: &str = r#"
set -e
umask 022
cd below
mkdir -p usr proc sys dev run tmp etc folder/deeper opaque
ln -s usr/bin bin; ln -s usr/lib lib; ln -s usr/lib64 lib64; ln -s usr/sbin sbin
echo below > file; chown 7:8 file; chmod 4750 file
echo shared > first; ln first folder/second
echo gone > gone; echo hidden > opaque/hidden
echo deep > folder/deeper/text; chown -R 1000:1000 folder; chmod 1777 tmp
ln -s ../file folder/link
mkfifo pipe
python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind("socket")'
cp /usr/bin/true capable; setcap cap_chown=ep capable
cp /usr/bin/id setuid-id; chown 4242 setuid-id; chmod 4755 setuid-id
setfattr -n user.colour -v blue file
setfacl -m u:1234:r file
touch -d '2001-02-03 04:05:06.789' file
echo replaced > becomes-folder; mkdir becomes-file; echo x > becomes-file/x
cd ../above
mkdir -p folder opaque becomes-folder
chown 5:6 folder; chmod 2775 folder
echo above > folder/above
mknod gone c 0 0
setfattr -n user.overlay.opaque -v y opaque
echo shown > opaque/shown
echo file > becomes-file
"#;

pub struct Stand {
    pub folder: tempfile::TempDir,
    pub ids: IdMap,
    pub backend: Backend,
    pub plan: RootPlan,
    pub keeper: Option<Keeper>,
}

pub fn own_ids() -> Result<IdMap, String> {
    let (ids, lack) = IdMap::of_this_user(&std::env::var("USER").unwrap_or_default(), 0);
    lack.map_or(Ok(ids), |lack| Err(lack.to_string()))
}

/// A folder that users of roots may enter.
pub fn open_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

impl Stand {
    pub fn new(backend: Backend) -> Stand {
        let (folder, ids) = (open_folder(), own_ids().unwrap());
        for part in ["layers", "layers/below", "layers/above", "roots", "inputs"] {
            fs::create_dir(folder.path().join(part)).unwrap();
            probe::give_to_root(&folder.path().join(part), &ids).unwrap();
        }
        fs::write(folder.path().join("inputs/source"), "source\n").unwrap();
        let task = Task::Program(["/bin/sh", "-c", LAYERS].map(str::to_owned).into());
        let mut sandbox = Sandbox::of_machine(folder.path(), &ids, task);
        sandbox.directory = "layers".into();
        sandbox.environment = environment();
        sandbox.run().unwrap();
        if let Form::Image(device) = backend.making.form {
            let layers: Vec<PathBuf> = LAYER_NAMES[backend.above..].iter().map(PathBuf::from).collect();
            let plan = ImagePlan::new(folder.path(), Path::new("layers"), "image", &layers, &device);
            plan.make(folder.path(), &ids).unwrap();
        }
        let plan = plan("1", &backend);
        let keeper = plan.make(folder.path(), &ids).unwrap();
        Stand { folder, ids, backend, plan, keeper }
    }

    pub fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    /// Another root of the same layers.
    pub fn another(&self, name: &str) -> (RootPlan, Option<Keeper>) {
        let plan = plan(name, &self.backend);
        let keeper = plan.make(self.folder.path(), &self.ids).unwrap();
        (plan, keeper)
    }

    pub fn sandbox(&self, user: User, script: &str) -> Sandbox {
        self.sandbox_of(&self.plan, self.keeper.as_ref(), user, script)
    }

    pub fn sandbox_of(&self, plan: &RootPlan, keeper: Option<&Keeper>, user: User, script: &str) -> Sandbox {
        sandbox_of(self.folder.path(), &self.ids, plan, keeper, user, script)
    }

    /// Runs a script that must succeed. Returns its output.
    pub fn run(&self, user: User, script: &str) -> String {
        self.sandbox(user, script).run().unwrap_or_else(|error| panic!("{script}: {error}"))
    }

    /// Runs a script that must fail. Returns its exit code and output.
    pub fn fails(&self, user: User, script: &str) -> (i32, String) {
        match self.sandbox(user, script).run() {
            Err(RunError::Command { code, output }) => (code, output),
            other => panic!("{script}: {other:?}"),
        }
    }

    /// The path, outside the root, of a file that the root wrote.
    pub fn written(&self, inside: &str) -> PathBuf {
        let path = self.plan.written.join(inside);
        self.keeper
            .as_ref()
            .map_or_else(|| self.folder.path().join(&path), |keeper| keeper.seen_from_outside(&path))
    }

    pub fn remove(&self) {
        self.plan.remove(self.folder.path(), &self.ids, self.keeper.as_ref()).unwrap();
    }
}

impl Drop for Stand {
    fn drop(&mut self) {
        let removed = self.plan.remove(self.folder.path(), &self.ids, self.keeper.as_ref());
        let layers = kilnyard_root::remove_folder(self.folder.path(), Path::new("layers"), &self.ids);
        if !std::thread::panicking() {
            removed.and(layers).unwrap();
        }
    }
}

pub fn plan(name: &str, backend: &Backend) -> RootPlan {
    let mut layers: Vec<PathBuf> = LAYER_NAMES.iter().map(PathBuf::from).collect();
    if backend.is_on_device() {
        layers.truncate(backend.above);
        layers.push("layers/image".into());
    }
    RootPlan::new(&Path::new("roots").join(name), &layers, &backend.making)
}

fn environment() -> Vec<(String, String)> {
    vec![
        ("PATH".into(), "/usr/sbin:/usr/bin".into()),
        ("LC_ALL".into(), "C".into()),
        ("TZ".into(), "UTC".into()),
    ]
}

pub fn sandbox_of(
    yard: &Path,
    ids: &IdMap,
    plan: &RootPlan,
    keeper: Option<&Keeper>,
    user: User,
    script: &str,
) -> Sandbox {
    let binds = [(PathBuf::from("inputs"), PathBuf::from("/inputs"), Access::Read)];
    let mut operations = plan.entering(&binds);
    let usr = Operation::Bind { source: "/usr".into(), target: plan.root.join("usr"), access: Access::Read };
    operations.insert(plan.files.len(), usr);
    Sandbox {
        folder: yard.to_owned(),
        ids: ids.clone(),
        keeper: keeper.map(Keeper::process),
        view: View::Root(operations),
        user,
        task: Task::Program(["/bin/sh", "-c", script].map(str::to_owned).into()),
        directory: "/".into(),
        environment: environment(),
        is_interactive: false,
        has_network: false,
        flushes: Flushes::Discard,
        nesting: Nesting::Refused,
    }
}
