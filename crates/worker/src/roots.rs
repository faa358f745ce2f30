//! The folders of roots in a yard: `roots/NUMBER` while a build goes on, `roots/failed-PACKAGE` after it
//! failed.

use crate::memory::{self, WorkFolder, used_bytes};
use crate::tools;
use kilnyard_model::order::{Account, CommandOrder, Input, InputText, SharedFolder};
use kilnyard_root::sandbox::Task;
use kilnyard_root::{Access, IdMap, Operation, Sandbox, User, View, base_operations, probe, root_operations};
use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

/// Room on the disk that must be left where the root of a failed build is kept.
const ROOM_BYTES_MIN: u64 = 64 << 20;

/// The file of a root that names its layers, where they are others than those of its order.
const LAYERS: &str = "layers";

/// Where inputs are shown in a root.
const INPUTS_INSIDE: &str = "/kilnyard/inputs";

/// A root's folder in a yard.
#[derive(Clone, Debug)]
pub struct RootFolder {
    yard: PathBuf,
    /// Relative to the yard.
    relative: PathBuf,
    ids: IdMap,
    layers: Vec<PathBuf>,
    /// Folders of the machine that are shown.
    folders: Vec<SharedFolder>,
    /// Folders that commands may write in.
    writable: Vec<SharedFolder>,
    /// Of these the one that is in memory, and goes with the root.
    in_memory: Option<Arc<WorkFolder>>,
    /// The jobserver of its build, relative to the yard.
    jobserver: Option<PathBuf>,
    /// Programs of the root that know jobservers.
    clients: Vec<String>,
}

impl RootFolder {
    /// Makes the folder of a new root.
    pub fn create(yard: &Path, name: &str, ids: &IdMap, layers: &[String]) -> io::Result<RootFolder> {
        let folder = RootFolder::at(yard, name, ids, layers);
        let path = folder.path();
        fs_err::create_dir_all(&path)?;
        probe::give_to_root(&path, ids)?;
        for part in ["upper", "work", "merged"] {
            fs_err::create_dir(path.join(part))?;
            probe::give_to_root(&path.join(part), ids)?;
        }
        fs_err::create_dir(path.join("inputs"))?;
        Ok(folder)
    }

    /// The folder of a root that exists.
    pub fn at(yard: &Path, name: &str, ids: &IdMap, layers: &[String]) -> RootFolder {
        RootFolder {
            yard: yard.to_owned(),
            relative: Path::new("roots").join(name),
            ids: ids.clone(),
            layers: layers.iter().map(PathBuf::from).collect(),
            folders: Vec::new(),
            writable: Vec::new(),
            in_memory: None,
            jobserver: None,
            clients: Vec::new(),
        }
    }

    /// Gives commands that build the jobserver of their build, and these programs that know what to do with it.
    pub(crate) fn with_jobserver(mut self, path: &Path, clients: &[String]) -> RootFolder {
        self.jobserver = path.strip_prefix(&self.yard).ok().map(Path::to_owned);
        self.clients = clients.to_vec();
        self
    }

    /// Shows folders of the machine in the root, for reading.
    pub fn showing(mut self, folders: &[SharedFolder]) -> RootFolder {
        self.folders = folders.to_vec();
        self
    }

    /// Gives the root's own root a folder to write in, at this path inside; [`RootFolder::added`] is the same from
    /// outside.
    pub fn adding_at(self, inside: &str) -> io::Result<RootFolder> {
        let added = self.added();
        fs_err::create_dir(&added)?;
        probe::give_to_root(&added, &self.ids)?;
        Ok(self.writing_to(&SharedFolder { source: added, inside: inside.to_owned() }))
    }

    /// Lets commands of the root write in a folder of the machine that belongs to the root's own root.
    pub fn writing_to(mut self, folder: &SharedFolder) -> RootFolder {
        self.writable.push(folder.clone());
        self
    }

    /// Puts a folder in memory in place of one of the root.
    pub(crate) fn working_in(mut self, folder: Arc<WorkFolder>, inside: &str) -> RootFolder {
        let shared = SharedFolder { source: folder.path.clone(), inside: inside.to_owned() };
        self.in_memory = Some(folder);
        self.writing_to(&shared)
    }

    /// The folder that commands of the root write in, seen from outside.
    pub fn added(&self) -> PathBuf {
        self.path().join("added")
    }

    /// The folder of the last failed build of a package, whether it exists or not.
    pub fn of_failed(yard: &Path, package: &str, ids: &IdMap, layers: &[String]) -> RootFolder {
        let mut root = RootFolder::at(yard, &failed_name(package), ids, layers);
        if let Some(layers) = read_layers(&root.path()) {
            root.layers = layers;
        }
        root
    }

    /// Gives it other layers, relative to the yard, the uppermost first.
    pub(crate) fn stand_on(&mut self, layers: Vec<PathBuf>) -> io::Result<()> {
        let lines: String = layers.iter().map(|layer| format!("{}\n", layer.display())).collect();
        fs_err::write(self.path().join(LAYERS), lines)?;
        self.layers = layers;
        Ok(())
    }

    /// The folders of its layers, the uppermost first.
    pub(crate) fn stacked(&self) -> Vec<PathBuf> {
        self.layers.iter().map(|layer| self.yard.join(layer)).collect()
    }

    /// The folder of what was written.
    pub(crate) fn upper(&self) -> PathBuf {
        self.path().join("upper")
    }

    /// Whether something was written, but below these folders.
    pub(crate) fn has_written(&self, but_below: &[&str]) -> bool {
        let upper = self.upper();
        let mut open = vec![PathBuf::new()];
        while let Some(folder) = open.pop() {
            let Ok(entries) = fs_err::read_dir(upper.join(&folder)) else { return true };
            for entry in entries {
                let Ok(entry) = entry else { return true };
                let path = folder.join(entry.file_name());
                if but_below.iter().any(|folder| path == Path::new(folder)) {
                    continue;
                }
                // A folder on the way to one of them is there for its sake.
                if !but_below.iter().any(|folder| Path::new(folder).starts_with(&path)) {
                    return true;
                }
                open.push(path);
            }
        }
        false
    }

    /// Forgets what was written.
    pub(crate) fn start_over(&self) -> io::Result<()> {
        for part in ["upper", "work"] {
            remove(&self.yard, &self.relative.join(part), &self.ids)?;
            fs_err::create_dir(self.path().join(part))?;
            probe::give_to_root(&self.path().join(part), &self.ids)?;
        }
        Ok(())
    }

    /// Where the root of the last failed build of a package is, if it is kept.
    pub fn failed_path(yard: &Path, package: &str) -> PathBuf {
        yard.join("roots").join(failed_name(package))
    }

    /// Where it is.
    pub fn path(&self) -> PathBuf {
        self.yard.join(&self.relative)
    }

    /// A folder of the root as it was written, seen from outside. A build may have put links in its way, which lead
    /// elsewhere outside than they do inside: there must be none. To be asked when nothing of the root runs any more.
    pub fn written_without_links(&self, inside: &str) -> io::Result<PathBuf> {
        let path = self.written(inside);
        let bound = self.writable.iter().find(|folder| path.starts_with(&folder.source));
        let base = bound.map_or_else(|| self.written("/"), |folder| folder.source.clone());
        let below = path.strip_prefix(&base).unwrap_or(&path);
        without_links(&base, below)
    }

    /// A path of the root as it was written, seen from outside.
    pub fn written(&self, inside: &str) -> PathBuf {
        let bound = self.writable.iter().find_map(|folder| {
            let below = Path::new(inside).strip_prefix(&folder.inside).ok()?;
            Some(folder.source.join(below))
        });
        bound.unwrap_or_else(|| self.path().join("upper").join(inside.trim_start_matches('/')))
    }

    /// Puts inputs into the root's folder of inputs, by hard link where that is possible.
    pub fn provide(
        &self,
        inputs: &[Input],
        texts: &[InputText],
        file_of: &dyn Fn(&Input) -> PathBuf,
    ) -> io::Result<()> {
        let folder = self.path().join("inputs");
        for input in inputs {
            let target = folder.join(safe_name(&input.name)?);
            let source = file_of(input);
            match fs_err::hard_link(&source, &target) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(error),
                Err(_) => fs_err::copy(&source, &target).map(|_| ())?,
                Ok(()) => {}
            }
        }
        for text in texts {
            fs_err::write(folder.join(safe_name(&text.name)?), &text.text)?;
        }
        Ok(())
    }

    /// The sandbox of a command that builds: it has the jobserver, if there is one.
    pub(crate) fn building_sandbox(&self, command: &CommandOrder) -> Sandbox {
        let mut sandbox = self.sandbox(command);
        if let (Some(jobserver), View::Root(operations)) = (&self.jobserver, &mut sandbox.view) {
            let last = operations.len() - 1;
            let more = tools::operations(&self.relative.join("merged"), jobserver, &self.clients);
            operations.splice(last..last, more);
            sandbox.environment.push(tools::environment());
        }
        sandbox
    }

    /// The sandbox of one command in this root.
    pub fn sandbox(&self, command: &CommandOrder) -> Sandbox {
        let mut binds = vec![(self.relative.join("inputs"), PathBuf::from(INPUTS_INSIDE))];
        // Folders above the yard may be closed to the root's ids, so that its own are reached from it.
        let reached = |path: &Path| path.strip_prefix(&self.yard).unwrap_or(path).to_owned();
        binds.extend(self.folders.iter().map(|shown| (reached(&shown.source), PathBuf::from(&shown.inside))));
        let mut operations = root_operations(&self.layers, &self.relative, &binds);
        for SharedFolder { source, inside } in &self.writable {
            let target = self.relative.join("merged").join(inside.trim_start_matches('/'));
            let source = reached(source);
            let bind = Operation::Bind { source, target: target.clone(), access: Access::Write };
            // It has to stand before the root is entered, which is the last operation.
            let last = operations.len() - 1;
            operations.splice(last..last, [Operation::Folder { path: target }, bind]);
        }
        Sandbox {
            folder: self.yard.clone(),
            ids: self.ids.clone(),
            view: View::Root(operations),
            user: user_of(command.account),
            task: Task::Program(command.arguments.clone()),
            directory: PathBuf::from(&command.directory),
            environment: environment_of(command),
            is_interactive: false,
            has_network: false,
        }
    }

    /// Removes the root with all that is in it.
    pub fn remove(&self) -> io::Result<()> {
        if let Some(folder) = &self.in_memory {
            folder.remove()?;
        }
        remove(&self.yard, &self.relative, &self.ids)
    }

    /// Whether the build works in a folder that is no part of the root.
    pub(crate) fn is_work_apart(&self) -> bool {
        self.in_memory.is_some()
    }

    /// What was written to the disk, without folders of the machine that were written in.
    pub(crate) fn disk_bytes(&self) -> u64 {
        used_bytes(&self.path().join("upper"))
    }

    /// Whether the disk has room for more while this root stays. A build that filled the disk must not fail all
    /// others for the sake of its root.
    pub fn has_room_beside_it(&self) -> bool {
        let in_memory = self.in_memory.as_ref().map_or(0, |folder| used_bytes(&folder.path));
        let needed = ROOM_BYTES_MIN + in_memory;
        rustix::fs::statvfs(self.path()).is_ok_and(|facts| facts.f_bavail * facts.f_frsize >= needed)
    }

    /// Keeps the root of a failed build in place of the one kept before.
    pub fn keep_as_failed(&self, package: &str, kept_max: usize) -> io::Result<()> {
        let mut kept = RootFolder { relative: Path::new("roots").join(failed_name(package)), ..self.clone() };
        kept.in_memory = None;
        kept.remove()?;
        if kept_max == 0 {
            return self.remove();
        }
        if let Some(folder) = &self.in_memory {
            // A person looks into it later, and memory is for builds.
            let bound = self.writable.iter().find(|bound| bound.source == folder.path);
            let inside = bound.map_or("", |bound| bound.inside.trim_start_matches('/'));
            let target = self.relative.join("upper").join(inside);
            memory::copy(&folder.path, &self.yard, &target, &self.ids)?;
            folder.remove()?;
        }
        fs_err::rename(self.path(), kept.path())?;
        let mut all: Vec<(SystemTime, PathBuf)> = failed(&self.yard)?;
        all.sort();
        for (_, relative) in all.iter().take(all.len().saturating_sub(kept_max)) {
            remove(&self.yard, relative, &self.ids)?;
        }
        Ok(())
    }
}

/// The name of the folder of a failed build's root. A package of a tree is known by its folder in it. The name must
/// not have what ends an option of an overlay: a comma.
fn failed_name(package: &str) -> String {
    format!("failed-{}", package.replace('/', "~"))
}

/// A path below a folder that belongs to a build, if no part of it is a link.
pub(crate) fn without_links(base: &Path, below: &Path) -> io::Result<PathBuf> {
    let mut path = base.to_owned();
    for part in below.components() {
        path.push(part);
        if fs_err::symlink_metadata(&path)?.is_symlink() {
            return Err(io::Error::other(format!("{} is a link", path.display())));
        }
    }
    Ok(path)
}

fn safe_name(name: &str) -> io::Result<&str> {
    let is_safe = !name.is_empty() && name != "." && name != ".." && !name.contains('/');
    is_safe.then_some(name).ok_or_else(|| io::Error::other(format!("`{name}` is no name of a file")))
}

fn user_of(account: Account) -> User {
    match account {
        Account::Root => User::Root,
        Account::Builder => User::Plain { user: crate::BUILDER_ID, group: crate::BUILDER_ID },
    }
}

/// The same few variables for every command, then its own.
fn environment_of(command: &CommandOrder) -> Vec<(String, String)> {
    let name = match command.account {
        Account::Root => "root",
        Account::Builder => "builder",
    };
    let common = [
        ("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
        ("HOME", "/nonexistent"),
        ("LC_ALL", "C.UTF-8"),
        ("LOGNAME", name),
        ("SHELL", "/bin/sh"),
        ("TERM", "dumb"),
        ("TZ", "UTC"),
        ("USER", name),
    ];
    let is_own = |variable: &str| command.environment.iter().any(|(own, _)| own == variable);
    let common = common.into_iter().filter(|(variable, _)| !is_own(variable));
    common.map(|(a, b)| (a.to_owned(), b.to_owned())).chain(command.environment.clone()).collect()
}

fn failed(yard: &Path) -> io::Result<Vec<(SystemTime, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs_err::read_dir(yard.join("roots"))? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("failed-") {
            found.push((entry.metadata()?.modified()?, Path::new("roots").join(entry.file_name())));
        }
    }
    Ok(found)
}

/// The layers that roots of failed builds stand on, relative to the yard.
pub(crate) fn layers_of_failed(yard: &Path) -> BTreeSet<PathBuf> {
    let folders = failed(yard).unwrap_or_default();
    folders.iter().flat_map(|(_, relative)| read_layers(&yard.join(relative)).unwrap_or_default()).collect()
}

/// The layers of a root that exists, if it says so.
fn read_layers(folder: &Path) -> Option<Vec<PathBuf>> {
    let text = fs_err::read_to_string(folder.join(LAYERS)).ok()?;
    Some(text.lines().map(PathBuf::from).collect())
}

/// Removes a folder whose files may belong to users of the root.
pub(crate) fn remove(yard: &Path, relative: &Path, ids: &IdMap) -> io::Result<()> {
    let path = yard.join(relative);
    if fs_err::symlink_metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(());
    }
    if ids.by_helper {
        let sandbox = Sandbox {
            folder: yard.to_owned(),
            ids: ids.clone(),
            view: View::Machine,
            user: User::Root,
            task: Task::Remove(vec![relative.to_owned()]),
            directory: PathBuf::from("/"),
            environment: Vec::new(),
            is_interactive: false,
            has_network: false,
        };
        sandbox.run().map_err(io::Error::other)?;
    }
    fs_err::remove_dir_all(&path)
}

pub(crate) fn sweep(yard: &Path, ids: &IdMap) -> io::Result<()> {
    fs_err::create_dir_all(yard.join("roots"))?;
    for entry in fs_err::read_dir(yard.join("roots"))? {
        let name = entry?.file_name();
        if !name.to_string_lossy().starts_with("failed-") {
            remove(yard, &Path::new("roots").join(name), ids)?;
        }
    }
    Ok(())
}

/// The sandbox of a command that changes a base layer itself, with folders of the machine shown to it.
pub fn base_sandbox(
    yard: &Path,
    layer: &Path,
    ids: &IdMap,
    command: &CommandOrder,
    binds: &[(PathBuf, PathBuf)],
) -> Sandbox {
    Sandbox {
        folder: yard.to_owned(),
        ids: ids.clone(),
        view: View::Root(base_operations(layer, binds)),
        user: user_of(command.account),
        task: Task::Program(command.arguments.clone()),
        directory: PathBuf::from(&command.directory),
        environment: environment_of(command),
        is_interactive: false,
        has_network: false,
    }
}
