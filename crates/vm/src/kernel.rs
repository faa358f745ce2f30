//! A kernel and its modules, from one of Debian's packages.

use crate::Architecture;
use object::Endianness;
use object::elf::FileHeader64;
use object::read::elf::{FileHeader, SectionHeader};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The modules that a guest needs, if they are not built in. Those that they depend on come before them.
const WANTED: [&str; 8] =
    ["virtio_pci", "virtio_console", "fuse", "virtiofs", "overlay", "virtio_net", "virtio_blk", "erofs"];
/// The kind of folders of unpacked kernels; the first had no modules of networks, the second none of disks.
const UNPACKED: &str = "-3";
/// The largest file of a package that is kept.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// How many seconds a download may take.
const DOWNLOADED_WITHIN: &str = "600";
/// The suffix of a folder that is being made.
const PART: &str = ".part";

/// Why there is no kernel.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// It cannot be read or kept.
    #[error(transparent)]
    Files(#[from] io::Error),
    /// A program failed.
    #[error("{0}")]
    Program(String),
    /// The package has none.
    #[error("{} has no kernel, or none with the modules of virtual machines", .0.display())]
    None(PathBuf),
}

/// An unpacked kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kernel {
    /// The kernel's image.
    pub image: PathBuf,
    /// Modules in the order in which they are loaded.
    pub modules: Vec<PathBuf>,
    /// The SHA-256 of its package.
    pub digest: String,
    /// The processor that it is for.
    pub architecture: Architecture,
}

impl Kernel {
    /// The kernel of this package, unpacked in a folder for kernels, by the package's digest.
    ///
    /// # Errors
    /// The package cannot be read, or has no kernel that works here.
    pub fn of_package(
        package: &Path,
        kernels: &Path,
        architecture: Architecture,
    ) -> Result<Kernel, KernelError> {
        let digest = digest(package)?;
        let folder = kernels.join(format!("{digest}{UNPACKED}"));
        if !folder.is_dir() {
            let part = kernels.join(format!("{digest}{PART}{}", std::process::id()));
            fs_err::create_dir_all(&part)?;
            unpack(package, &part)?;
            match fs_err::rename(&part, &folder) {
                // Another process was faster.
                Err(_) if folder.is_dir() => fs_err::remove_dir_all(&part)?,
                renamed => renamed?,
            }
        }
        let (image, modules) = (folder.join("image"), order(&folder.join("modules"))?);
        let kernel = Kernel { image, modules, digest, architecture };
        let is_there =
            kernel.image.is_file() && kernel.modules.iter().any(|path| path.ends_with("virtiofs.ko"));
        if is_there { Ok(kernel) } else { Err(KernelError::None(package.to_owned())) }
    }

    /// The newest of Debian's kernels for virtual machines, which apt downloads into a folder for kernels and verifies, unless
    /// the folder has one.
    ///
    /// # Errors
    /// apt is not there, or cannot download it.
    pub fn downloaded(kernels: &Path, architecture: Architecture) -> Result<Kernel, KernelError> {
        fs_err::create_dir_all(kernels)?;
        if let Some(package) = newest(kernels, architecture)? {
            return Kernel::of_package(&package, kernels, architecture);
        }
        let folder = tempfile::Builder::new().prefix("download").tempdir_in(kernels)?;
        let apt = Apt::of(architecture, folder.path())?;
        let suffix = format!("-cloud-{}", architecture.of_packages());
        let usual = format!("linux-image{suffix}");
        let all = output(apt.command("apt-cache").args(["depends", &usual]))?;
        let name = all
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            // Of another architecture than the machine's, it is named with it.
            .map(|name| name.split(':').next().unwrap_or(name))
            .find(|name| name.starts_with("linux-image-") && name.ends_with(&suffix));
        let name = name.ok_or_else(|| {
            KernelError::Program(format!("apt knows no package {usual}: run apt-get update"))
        })?;
        // apt's own user downloads where it may write, and root elsewhere.
        output(
            apt.command("timeout")
                .args([DOWNLOADED_WITHIN, "apt-get", "-q", "download", name])
                .current_dir(folder.path()),
        )?;
        let package = newest(folder.path(), architecture)?
            .ok_or_else(|| KernelError::Program(format!("apt-get downloaded no {name}")))?;
        let kept = kernels.join(package.file_name().unwrap_or_default());
        fs_err::rename(&package, &kept)?;
        Kernel::of_package(&kept, kernels, architecture)
    }
}

/// How apt is called for packages of an architecture.
struct Apt(Option<PathBuf>);

impl Apt {
    /// As this machine has it; for another architecture with its own lists of packages, in a folder, from the same archives.
    fn of(architecture: Architecture, folder: &Path) -> Result<Apt, KernelError> {
        if Some(architecture) == Architecture::OWN {
            return Ok(Apt(None));
        }
        let name = architecture.of_packages();
        let state = folder.join("apt");
        fs_err::create_dir_all(state.join("lists/partial"))?;
        fs_err::create_dir_all(state.join("cache/archives/partial"))?;
        fs_err::write(state.join("status"), "")?;
        let path = state.join("apt.conf");
        let at = state.display();
        let text = format!(
            "Dir::State::Lists \"{at}/lists\";\nDir::State::status \"{at}/status\";\nDir::Cache \"{at}/cache\";\n\
             APT::Architecture \"{name}\";\nAPT::Architectures {{ \"{name}\"; }};\n"
        );
        fs_err::write(&path, text)?;
        let apt = Apt(Some(path));
        output(apt.command("timeout").args([DOWNLOADED_WITHIN, "apt-get", "-q", "update"]))?;
        Ok(apt)
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        if let Some(path) = &self.0 {
            command.env("APT_CONFIG", path);
        }
        command
    }
}

/// The package for an architecture that comes last by its name.
fn newest(folder: &Path, architecture: Architecture) -> io::Result<Option<PathBuf>> {
    let suffix = format!("_{}.deb", architecture.of_packages());
    let mut packages = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(&suffix)) {
            packages.push(path);
        }
    }
    Ok(packages.into_iter().max())
}

fn digest(path: &Path) -> io::Result<String> {
    let (mut hash, mut file) = (Sha256::new(), fs_err::File::open(path)?);
    let mut bytes = vec![0; 1 << 16];
    loop {
        match file.read(&mut bytes)? {
            0 => break,
            count => hash.update(&bytes[..count]),
        }
    }
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn output(command: &mut Command) -> Result<String, KernelError> {
    let name = command.get_program().to_string_lossy().into_owned();
    let run = command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null()).output();
    let run = run.map_err(|error| KernelError::Program(format!("failed to run {name}: {error}")))?;
    if run.status.success() {
        return Ok(String::from_utf8_lossy(&run.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&run.stderr);
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
    Err(KernelError::Program(format!("{name}: {last}")))
}

/// Keeps the image and all modules that a guest may need.
fn unpack(package: &Path, folder: &Path) -> Result<(), KernelError> {
    let mut unpacking = Command::new("dpkg-deb")
        .arg("--fsys-tarfile")
        .arg(package)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|error| KernelError::Program(format!("failed to run dpkg-deb: {error}")))?;
    let modules = folder.join("modules");
    fs_err::create_dir_all(&modules)?;
    if let Some(content) = unpacking.stdout.take() {
        for entry in tar::Archive::new(content).entries()? {
            let entry = entry?;
            if !entry.header().entry_type().is_file() || entry.size() > FILE_BYTES_MAX {
                continue;
            }
            let path = entry.path()?.into_owned();
            let Some(name) = path.file_name().map(|name| name.to_string_lossy().into_owned()) else {
                continue;
            };
            let to = match name.strip_suffix(".ko") {
                Some(_) if is_of_guests(&path) => modules.join(&name),
                None if name.starts_with("vmlinuz-") => folder.join("image"),
                _ => continue,
            };
            let mut file = File::create(&to)?;
            io::copy(&mut entry.take(FILE_BYTES_MAX), &mut file)?;
        }
    }
    match unpacking.wait()?.success() {
        true => Ok(()),
        false => Err(KernelError::Program(format!("dpkg-deb failed to read {}", package.display()))),
    }
}

/// Whether a module is of a part of the kernel that guests use.
fn is_of_guests(path: &Path) -> bool {
    let path = path.to_string_lossy();
    let parts = [
        "/virtio/",
        "/fs/fuse/",
        "/fs/overlayfs/",
        "/fs/erofs/",
        "/fs/netfs/",
        "/kernel/lib/",
        "virtio_",
        "failover",
    ];
    parts.iter().any(|part| path.contains(part))
}

/// A module: its file, and the names of those that it depends on.
type Module = (PathBuf, Vec<String>);

/// The modules of a folder that a guest needs, each after those that it depends on.
fn order(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut known: HashMap<String, Module> = HashMap::new();
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        if let Some(name) = path.file_stem().map(|name| name.to_string_lossy().replace('-', "_")) {
            let mut content = Vec::new();
            File::open(&path)?.read_to_end(&mut content)?;
            known.insert(name, (path, depends_of(&content)));
        }
    }
    let mut ordered = Vec::new();
    for name in WANTED {
        add(name, &known, &mut ordered);
    }
    Ok(ordered)
}

/// Adds a module that is not built in. The depth is bounded, since what a package says could be a cycle.
fn add(name: &str, known: &HashMap<String, Module>, ordered: &mut Vec<PathBuf>) {
    fn below(name: &str, known: &HashMap<String, Module>, depth: u32, ordered: &mut Vec<PathBuf>) {
        let Some((path, depends)) = known.get(name) else { return };
        if depth > 0 && !ordered.contains(path) {
            depends.iter().for_each(|needed| below(needed, known, depth - 1, ordered));
            ordered.push(path.clone());
        }
    }
    below(name, known, 10, ordered);
}

/// The names in the entry `depends` of a module's section `.modinfo`, which has entries that end with a zero byte.
fn depends_of(module: &[u8]) -> Vec<String> {
    let info = || {
        let header = FileHeader64::<Endianness>::parse(module).ok()?;
        let endian = header.endian().ok()?;
        let (_, section) = header.sections(endian, module).ok()?.section_by_name(endian, b".modinfo")?;
        section.data(endian, module).ok()
    };
    let entries = info().unwrap_or_default().split(|byte| *byte == 0);
    let depends = entries.filter_map(|entry| entry.strip_prefix(b"depends="));
    let names = depends.flat_map(|names| names.split(|byte| *byte == b','));
    names
        .filter(|name| !name.is_empty())
        .map(|name| String::from_utf8_lossy(name).replace('-', "_"))
        .collect()
}
