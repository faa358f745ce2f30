//! The initial file system of a guest: this program, its libraries, and modules.
//!
//! Its form is "newc" (cpio(5), and the kernel's Documentation/driver-api/early-userspace/buffer-format.rst). It is not
//! compressed: an emulated processor unpacks more slowly than it copies.

use crate::Kernel;
use kilnyard_model::order::Processor;
use object::Endianness;
use object::elf::{FileHeader64, PT_INTERP};
use object::read::elf::{FileHeader, ProgramHeader};
use std::collections::BTreeSet;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The program; the kernel starts the file of this name.
pub(crate) const PROGRAM: &str = "init";
/// The folder of modules, whose names begin with the order in which they are loaded.
pub(crate) const MODULES: &str = "modules";
/// Shows that process 1 is that of such a guest.
pub(crate) const MARK: &str = "kilnyard-guest";
/// The program for machines with another processor, before its name.
const GUEST: &str = "kilnyard-guest";
/// The program of this process, even if its file was replaced.
const OWN: &str = "/proc/self/exe";

/// How long the file of a program that was replaced is kept.
const KEPT: std::time::Duration = std::time::Duration::from_secs(24 * 3600);
const FOLDER: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;

/// The initial file system for this program and a kernel, made once in a folder.
///
/// # Errors
/// The program or a library cannot be read, or the file cannot be written.
pub(crate) fn made(kernel: &Kernel, folder: &Path) -> io::Result<PathBuf> {
    let program = Program::of(kernel.processor, folder);
    let facts = fs_err::metadata(program.path()).map_err(|error| program.lacking(error))?;
    let digest = kernel.digest.get(..16).unwrap_or_default();
    let version =
        format!("{digest}-{:x}-{:x}-{:x}", facts.dev(), facts.ino(), facts.mtime_nsec() ^ facts.mtime());
    let path = folder.join(format!("initial-{version}"));
    if path.is_file() {
        return Ok(path);
    }
    // The emulator, which runs as another user, reads it.
    let readable = std::fs::Permissions::from_mode(0o644);
    let mut file = tempfile::Builder::new().permissions(readable).tempfile_in(folder)?;
    write(kernel, &program, file.as_file_mut())?;
    // Another process may have made the same.
    file.persist(&path).map_err(|error| error.error)?;
    // Those of replaced programs are of no use any more, once no machine begins with them.
    let is_old = |entry: &fs_err::DirEntry| {
        let modified = entry.metadata().and_then(|facts| facts.modified());
        modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > KEPT))
    };
    for entry in fs_err::read_dir(folder)?.flatten() {
        let is_other = entry.path() != path && entry.file_name().to_string_lossy().starts_with("initial-");
        if is_other && is_old(&entry) {
            let _ = fs_err::remove_file(entry.path());
        }
    }
    Ok(path)
}

/// Checks that there is a program for process 1 of machines.
///
/// # Errors
/// It is missing, or is no program for such machines; the message says what to do.
pub fn check_program(processor: Processor, kernels: &Path) -> io::Result<()> {
    let program = Program::of(processor, kernels);
    let content = fs_err::read(program.path()).map_err(|error| program.lacking(error))?;
    loaded(&content).map(drop)
}

/// Process 1 of a machine.
enum Program {
    /// This program.
    Own,
    /// One for another processor.
    Other(PathBuf),
}

impl Program {
    fn of(processor: Processor, folder: &Path) -> Program {
        match Some(processor) == Processor::OWN {
            true => Program::Own,
            false => {
                let name = format!("{GUEST}-{processor}");
                let kept = folder.join(&name);
                // Beside this program is where an installation has it.
                let beside = fs_err::read_link(OWN).ok().map(|own| own.with_file_name(&name));
                Program::Other(beside.filter(|path| !kept.exists() && path.is_file()).unwrap_or(kept))
            }
        }
    }

    fn path(&self) -> &Path {
        match self {
            Program::Own => Path::new(OWN),
            Program::Other(path) => path,
        }
    }

    fn lacking(&self, error: io::Error) -> io::Error {
        match self {
            Program::Other(path) if error.kind() == io::ErrorKind::NotFound => {
                let (name, path) = (path.file_name().unwrap_or_default().display(), path.display());
                io::Error::new(
                    error.kind(),
                    format!(
                        "{path} is missing: {name} is process 1 of such machines (docs/machines.md says how it is compiled)"
                    ),
                )
            }
            _ => error,
        }
    }
}

fn write(kernel: &Kernel, program: &Program, to: &mut impl Write) -> io::Result<()> {
    let mut archive = Archive { to: io::BufWriter::new(to), number: 0, folders: BTreeSet::new() };
    let (content, interpreter) = loaded(&fs_err::read(program.path())?)?;
    archive.file(Path::new(PROGRAM), &content)?;
    archive.file(Path::new(MARK), b"")?;
    match (program, interpreter) {
        (Program::Own, interpreter) => {
            for library in libraries()?.into_iter().chain(interpreter) {
                archive.file(&library, &fs_err::read(&library)?)?;
            }
        }
        (Program::Other(_), None) => {}
        (Program::Other(path), Some(_)) => {
            return Err(io::Error::other(format!("{} is not linked statically", path.display())));
        }
    }
    for (number, module) in kernel.modules.iter().enumerate() {
        let name = module.file_name().unwrap_or_default().to_string_lossy().into_owned();
        archive.file(&Path::new(MODULES).join(format!("{number:02}-{name}")), &fs_err::read(module)?)?;
    }
    for folder in ["dev", "proc", "sys", "root"] {
        archive.folder(Path::new(folder))?;
    }
    archive.finish()
}

/// What of a program is loaded, without sections and what describes them to debuggers, and the path of its interpreter.
fn loaded(program: &[u8]) -> io::Result<(Vec<u8>, Option<PathBuf>)> {
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "process 1 is no ELF file of 64 bits");
    let header = FileHeader64::<Endianness>::parse(program).map_err(|_| unreadable())?;
    let endian = header.endian().map_err(|_| unreadable())?;
    let segments = header.program_headers(endian, program).map_err(|_| unreadable())?;
    let end = segments.iter().map(|segment| segment.p_offset(endian) + segment.p_filesz(endian)).max();
    let end = end.and_then(|end| usize::try_from(end).ok()).ok_or_else(unreadable)?;
    let interpreter = segments.iter().find(|segment| segment.p_type(endian) == PT_INTERP);
    let interpreter = interpreter
        .and_then(|segment| segment.data(endian, program).ok())
        .map(|path| PathBuf::from(String::from_utf8_lossy(path).trim_end_matches('\0')));
    let mut kept = program.get(..end).ok_or_else(unreadable)?.to_vec();
    // `e_shoff`, and `e_shnum` and `e_shstrndx` (ELF-64 Object File Format).
    for field in [0x28..0x30, 0x3c..0x40] {
        kept.get_mut(field).ok_or_else(unreadable)?.fill(0);
    }
    Ok((kept, interpreter))
}

/// The libraries that this process uses.
fn libraries() -> io::Result<BTreeSet<PathBuf>> {
    let own = fs_err::read_link(OWN)?;
    let maps = fs_err::read_to_string("/proc/self/maps")?;
    Ok(libraries_in(&maps).filter(|path| *path != own).collect())
}

/// The libraries that a list of mappings (proc_pid_maps(5)) names. Other mapped files, such as tables and databases, are not executable,
/// whatever their folders are called.
fn libraries_in(maps: &str) -> impl Iterator<Item = PathBuf> {
    maps.lines().filter_map(|line| {
        // Address, mode, offset, device, inode, and the path.
        let mut fields = line.split_whitespace();
        let is_executable = fields.nth(1)?.contains('x');
        let path = Path::new(fields.nth(3)?);
        let name = path.file_name()?.to_str()?;
        let is_library = path.is_absolute() && (name.ends_with(".so") || name.contains(".so."));
        (is_executable && is_library).then(|| path.to_owned())
    })
}

struct Archive<W: Write> {
    to: io::BufWriter<W>,
    number: u32,
    folders: BTreeSet<PathBuf>,
}

impl<W: Write> Archive<W> {
    fn file(&mut self, path: &Path, content: &[u8]) -> io::Result<()> {
        let path = path.strip_prefix("/").unwrap_or(path);
        if let Some(folder) = path.parent() {
            self.folder(folder)?;
        }
        self.entry(path, EXECUTABLE, content)
    }

    fn folder(&mut self, path: &Path) -> io::Result<()> {
        let mut missing: Vec<&Path> = path.ancestors().filter(|path| !path.as_os_str().is_empty()).collect();
        missing.reverse();
        for path in missing {
            if self.folders.insert(path.to_owned()) {
                self.entry(path, FOLDER, b"")?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) -> io::Result<()> {
        let name = path.to_string_lossy();
        self.number += 1;
        let size = u32::try_from(content.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        // Number, mode, user, group, names, time, size, four numbers of devices, length of the name, check sum.
        let fields = [self.number, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name.len() as u32 + 1, 0];
        self.to.write_all(b"070701")?;
        for field in fields {
            write!(self.to, "{field:08x}")?;
        }
        self.to.write_all(name.as_bytes())?;
        // The header has 110 bytes; both parts end at multiples of four.
        self.pad(1 + (4 - (110 + name.len() + 1) % 4) % 4)?;
        self.to.write_all(content)?;
        self.pad((4 - content.len() % 4) % 4)
    }

    fn pad(&mut self, bytes: usize) -> io::Result<()> {
        self.to.write_all(&[0; 4][..bytes])
    }

    fn finish(mut self) -> io::Result<()> {
        self.entry(Path::new("TRAILER!!!"), 0, b"")?;
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_libraries_are_copied() {
        let maps = "\
            7f00-7f10 r--p 00000000 fe:00 1 /usr/lib/libc.so.6\n\
            7f10-7f20 r-xp 00001000 fe:00 1 /usr/lib/libc.so.6\n\
            7f20-7f30 r-xp 00000000 fe:00 2 /usr/lib/ld.so\n\
            7f30-7f40 rw-s 00000000 fe:00 3 /srv/y.so.d/state/kilnyard.db-shm\n\
            7f40-7f50 rw-s 00000000 fe:00 4 /srv/y/roots/1.socket/table.so\n\
            7f50-7f60 r-xp 00000000 fe:00 5 /srv/y.so.d/kilnyard\n\
            7f60-7f70 rw-p 00000000 00:00 0 \n\
            7f70-7f80 r-xp 00000000 00:00 0 [vdso]\n";
        let found: Vec<PathBuf> = libraries_in(maps).collect();
        assert_eq!(found, ["/usr/lib/libc.so.6", "/usr/lib/ld.so"].map(PathBuf::from));
    }

    #[test]
    fn what_is_loaded_of_this_program_runs() {
        let (program, interpreter) = loaded(&fs_err::read(OWN).unwrap()).unwrap();
        assert!(
            interpreter.unwrap().exists() && program.len() < fs_err::metadata(OWN).unwrap().len() as usize
        );
        let path = tempfile::NamedTempFile::new().unwrap().into_temp_path();
        fs_err::write(&path, program).unwrap();
        rustix::fs::chmod(&*path, rustix::fs::Mode::RWXU).unwrap();
        let output = std::process::Command::new(&path).arg("--list").output().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).contains("what_is_loaded"), "{output:?}");
        assert!(libraries().unwrap().iter().any(|path| path.to_string_lossy().contains("libc.so")));
    }
}
