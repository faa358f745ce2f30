//! A kernel and its modules, from one of Debian's packages.

use crate::emulator::PROBE;
use crate::image;
use crate::processor::of_packages;
use kilnyard_model::order::Processor;
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
use std::time::Duration;

/// The modules that a guest needs, if they are not built in. Those that they depend on come before them.
const WANTED: [&str; 8] =
    ["virtio_pci", "virtio_console", "fuse", "virtiofs", "overlay", "virtio_net", "virtio_blk", "erofs"];
/// The kind of folders of unpacked kernels; the first had no modules of networks, the second none of disks, the third none that were compressed, and packed images.
const UNPACKED: &str = "-4";
/// The list of what is a module elsewhere.
const BUILT_IN: &str = "built-in";
/// The largest file of a package that is kept.
const FILE_BYTES_MAX: u64 = 256 << 20;
/// How many seconds a download may take.
const DOWNLOADED_WITHIN: &str = "600";
/// The suffix of a folder that is being made, and the prefix of one for a download.
const PART: &str = ".part";
const DOWNLOAD: &str = "download";
/// When a folder of a process that was killed is removed: no kernel takes this long.
const ABANDONED_AFTER: Duration = Duration::from_secs(24 * 3600);

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
    /// The file name of its package.
    pub package: String,
    /// The SHA-256 of its package.
    pub digest: String,
    /// The processor that it is for.
    pub processor: Processor,
}

impl Kernel {
    /// The kernel of this package, unpacked in a folder for kernels, by the package's digest.
    ///
    /// # Errors
    /// The package cannot be read, or has no kernel that works here.
    pub fn of_package(package: &Path, kernels: &Path, processor: Processor) -> Result<Kernel, KernelError> {
        let digest = digest(package)?;
        let folder = kernels.join(format!("{digest}{UNPACKED}"));
        if !folder.is_dir() {
            fs_err::create_dir_all(kernels)?;
            sweep(kernels)?;
            let part = tempfile::Builder::new().prefix(&digest).suffix(PART).tempdir_in(kernels)?;
            unpack(package, part.path())?;
            unpack_image(&part.path().join("image"))?;
            // What has its name is complete, also after a crash.
            rustix::fs::syncfs(File::open(part.path())?).map_err(io::Error::from)?;
            match fs_err::rename(part.path(), &folder) {
                Ok(()) => drop(part.keep()),
                // Another process was faster.
                Err(_) if folder.is_dir() => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (image, modules) = (folder.join("image"), order(&folder.join("modules"))?);
        let name = package.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let kernel = Kernel { image, modules, package: name, digest, processor };
        // Debian 13 has it built in.
        let built_in = fs_err::read_to_string(folder.join(BUILT_IN)).unwrap_or_default();
        let has_virtiofs = kernel.modules.iter().any(|path| path.ends_with("virtiofs.ko"))
            || built_in.lines().any(|line| line.ends_with("/virtiofs.ko"));
        if kernel.image.is_file() && has_virtiofs {
            Ok(kernel)
        } else {
            Err(KernelError::None(package.to_owned()))
        }
    }

    /// The newest of Debian's kernels for virtual machines, which apt downloads into a folder for kernels and verifies, unless
    /// the folder has one.
    ///
    /// # Errors
    /// apt is not there, or cannot download it.
    pub fn downloaded(kernels: &Path, processor: Processor) -> Result<Kernel, KernelError> {
        fs_err::create_dir_all(kernels)?;
        if let Some(package) = newest(kernels, processor)? {
            return Kernel::of_package(&package, kernels, processor);
        }
        sweep(kernels)?;
        let folder = tempfile::Builder::new().prefix(DOWNLOAD).tempdir_in(kernels)?;
        let apt = Apt::of(processor, folder.path())?;
        let suffix = format!("-cloud-{}", of_packages(processor));
        let usual = format!("linux-image{suffix}");
        let all = output(apt.command("apt-cache").args(["depends", &usual]))?;
        let name = all
            .lines()
            .filter_map(|line| line.trim().strip_prefix("Depends: "))
            // For another processor than the machine's, it is named with it.
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
        let package = newest(folder.path(), processor)?
            .ok_or_else(|| KernelError::Program(format!("apt-get downloaded no {name}")))?;
        let kept = kernels.join(package.file_name().unwrap_or_default());
        fs_err::rename(&package, &kept)?;
        Kernel::of_package(&kept, kernels, processor)
    }
}

/// How apt is called for packages for a processor.
struct Apt(Option<PathBuf>);

impl Apt {
    /// As this machine has it; for another processor with its own lists of packages, in a folder, from the same archives.
    fn of(processor: Processor, folder: &Path) -> Result<Apt, KernelError> {
        if Some(processor) == Processor::OWN {
            return Ok(Apt(None));
        }
        let name = of_packages(processor);
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

/// Removes what processes that were killed have left in a folder for kernels.
fn sweep(kernels: &Path) -> io::Result<()> {
    for entry in fs_err::read_dir(kernels)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let is_temporary = name.ends_with(PART) || [DOWNLOAD, PROBE].iter().any(|one| name.starts_with(one));
        let modified = fs_err::metadata(&path).and_then(|facts| facts.modified());
        let is_old =
            modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ABANDONED_AFTER)) && path.is_dir();
        if is_temporary && is_old {
            fs_err::remove_dir_all(&path)?;
        }
    }
    Ok(())
}

/// The package for a processor whose name has the highest numbers.
fn newest(folder: &Path, processor: Processor) -> io::Result<Option<PathBuf>> {
    let suffix = format!("_{}.deb", of_packages(processor));
    let mut packages = Vec::new();
    for entry in fs_err::read_dir(folder)? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(&suffix)) {
            packages.push(path);
        }
    }
    Ok(packages.into_iter().max_by_key(|path| by_numbers(path)))
}

/// A name in parts: texts, and numbers by their values.
fn by_numbers(path: &Path) -> Vec<(String, u64)> {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut parts = vec![(String::new(), 0u64)];
    let mut is_in_number = false;
    for character in name.chars() {
        let digit = character.to_digit(10);
        if digit.is_none() && is_in_number {
            parts.push((String::new(), 0));
        }
        is_in_number = digit.is_some();
        if let Some((text, number)) = parts.last_mut() {
            match digit {
                Some(digit) => *number = number.saturating_mul(10).saturating_add(digit.into()),
                None => text.push(character),
            }
        }
    }
    parts
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
            let content = entry.take(FILE_BYTES_MAX);
            let (to, mut content): (PathBuf, Box<dyn Read>) = match name.split_once(".ko") {
                Some((module, ending)) if is_of_guests(&path) => {
                    let to = modules.join(format!("{module}.ko"));
                    // Debian 13 has them compressed. The guest's process 1 loads them as they are.
                    match ending {
                        "" => (to, Box::new(content)),
                        ".xz" => (to, Box::new(liblzma::read::XzDecoder::new(content))),
                        ".zst" => (to, Box::new(zstd::stream::read::Decoder::new(content)?)),
                        _ => continue,
                    }
                }
                None if name == "modules.builtin" => (folder.join(BUILT_IN), Box::new(content)),
                None if name.starts_with("vmlinuz-") => (folder.join("image"), Box::new(content)),
                _ => continue,
            };
            let size = io::copy(&mut (&mut content).take(FILE_BYTES_MAX + 1), &mut File::create(&to)?)?;
            if size > FILE_BYTES_MAX {
                return Err(KernelError::Program(format!(
                    "{name} unpacks to more than {FILE_BYTES_MAX} bytes"
                )));
            }
        }
    }
    match unpacking.wait()?.success() {
        true => Ok(()),
        false => Err(KernelError::Program(format!("dpkg-deb failed to read {}", package.display()))),
    }
}

/// Takes a kernel out of the image that would unpack it in the guest.
fn unpack_image(path: &Path) -> io::Result<()> {
    match fs_err::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        image => image::unpacked(&image?).map_or(Ok(()), |kernel| fs_err::write(path, kernel)),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_has_the_highest_numbers() {
        let folder = tempfile::tempdir().unwrap();
        for version in ["6.1.0-9", "6.1.0-44", "6.1.0-43", "5.10.0-100"] {
            let name = format!("linux-image-{version}-cloud-amd64_{version}_amd64.deb");
            fs_err::write(folder.path().join(name), "").unwrap();
        }
        let newest = newest(folder.path(), Processor::X86_64).unwrap().unwrap();
        assert!(newest.ends_with("linux-image-6.1.0-44-cloud-amd64_6.1.0-44_amd64.deb"), "{newest:?}");
    }

    #[test]
    fn what_killed_processes_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH;
        for (name, age) in
            [("a.part", Some(old)), ("probeX", Some(old)), ("b.part", None), ("kernel-4", Some(old))]
        {
            fs_err::create_dir(folder.path().join(name)).unwrap();
            if let Some(old) = age {
                File::open(folder.path().join(name)).unwrap().set_modified(old).unwrap();
            }
        }
        sweep(folder.path()).unwrap();
        let names = ["a.part", "probeX", "b.part", "kernel-4"];
        assert_eq!(names.map(|name| folder.path().join(name).exists()), [false, false, true, true]);
    }

    #[test]
    fn compressed_modules_are_unpacked() {
        if Command::new("dpkg-deb").arg("--version").output().is_err() {
            println!("skipped: dpkg-deb is not installed");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &[u8]| {
            let path = folder.path().join("package").join(path);
            fs_err::create_dir_all(path.parent().unwrap()).unwrap();
            fs_err::write(path, content).unwrap();
        };
        let mut by_xz = Vec::new();
        liblzma::read::XzEncoder::new(&b"by xz"[..], 6).read_to_end(&mut by_xz).unwrap();
        let by_zstd = zstd::encode_all(&b"by zstd"[..], 3).unwrap();
        write(
            "DEBIAN/control",
            b"Package: linux-image-1-cloud-amd64\nVersion: 1\nArchitecture: amd64\nMaintainer: x <x@localhost>\nDescription: x\n",
        );
        write("boot/vmlinuz-1", b"image");
        for (path, content) in [
            ("usr/lib/modules/1/kernel/fs/fuse/virtiofs.ko.xz", &by_xz[..]),
            ("usr/lib/modules/1/kernel/fs/fuse/fuse.ko.zst", &by_zstd),
            ("usr/lib/modules/1/kernel/fs/overlayfs/overlay.ko", b"plain"),
            ("usr/lib/modules/1/kernel/fs/erofs/erofs.ko.lz4", b"by something else"),
        ] {
            write(path, content);
        }
        let package = folder.path().join("linux-image-1-cloud-amd64_1_amd64.deb");
        output(Command::new("dpkg-deb").arg("--build").arg(folder.path().join("package")).arg(&package))
            .unwrap();
        let kernel = Kernel::of_package(&package, &folder.path().join("kernels"), Processor::X86_64).unwrap();
        assert_eq!(fs_err::read(&kernel.image).unwrap(), b"image");
        let content = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, String::from_utf8(fs_err::read(path).unwrap()).unwrap())
        };
        let mut modules: Vec<_> = kernel.modules.iter().map(content).collect();
        modules.sort();
        let expected = [("fuse.ko", "by zstd"), ("overlay.ko", "plain"), ("virtiofs.ko", "by xz")];
        assert_eq!(modules, expected.map(|(name, content)| (name.to_owned(), content.to_owned())));
        // virtiofs may be built in.
        fs_err::remove_file(folder.path().join("package/usr/lib/modules/1/kernel/fs/fuse/virtiofs.ko.xz"))
            .unwrap();
        let build = || {
            output(Command::new("dpkg-deb").arg("--build").arg(folder.path().join("package")).arg(&package))
                .unwrap();
            Kernel::of_package(&package, &folder.path().join("kernels"), Processor::X86_64)
        };
        assert!(matches!(build(), Err(KernelError::None(_))));
        write("usr/lib/modules/1/modules.builtin", b"kernel/fs/fuse/virtiofs.ko\n");
        assert_eq!(build().unwrap().modules.len(), 2);
        // One that is cut off is an error, not a module.
        write("usr/lib/modules/1/kernel/fs/fuse/virtiofs.ko.xz", &by_xz[..by_xz.len() / 2]);
        assert!(build().is_err());
    }
}
