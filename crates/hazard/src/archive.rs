//! Packages and folders: what is in them.
//!
//! Archives are hostile: only ELF files are read into memory, up to a size, and archives within archives to a depth.

use crate::{Architecture, Found, scan_file};
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

/// The largest ELF file that is searched.
const FILE_BYTES_MAX: u64 = 2 << 30;
/// How deep archives are opened: a `.deb` has an archive in it.
const DEPTH_MAX: u32 = 2;
/// The first bytes of ELF and of archives.
const MAGIC_BYTES: usize = 265;

/// Why a path was not searched.
#[derive(Debug, thiserror::Error)]
pub enum ScanError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// It is neither an ELF file nor an archive.
    #[error("{} is neither an ELF file for ARM or x86-64 nor a package", .0.display())]
    Unknown(PathBuf),
}

/// Searches a file, a package (`.deb`, `.rpm`, a tar archive, compressed or not) or a folder with all that is below it. `take` gets
/// the name of each ELF file for ARM or x86-64, and what it has. In folders, other files are passed over; links are not
/// followed.
///
/// # Errors
/// The path itself is nothing that can be searched, or something below it cannot be read.
pub fn scan(path: &Path, take: &mut dyn FnMut(&str, Architecture, Found)) -> Result<(), ScanError> {
    if fs_err::metadata(path)?.is_dir() {
        return folder(path, take);
    }
    let name = path.display().to_string();
    match stream(&name, &mut BufReader::new(fs_err::File::open(path)?), DEPTH_MAX, take)? {
        true => Ok(()),
        false => Err(ScanError::Unknown(path.to_owned())),
    }
}

fn folder(path: &Path, take: &mut dyn FnMut(&str, Architecture, Found)) -> Result<(), ScanError> {
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<_> = fs_err::read_dir(&folder)?.collect::<io::Result<_>>()?;
        entries.sort_by_key(fs_err::DirEntry::file_name);
        for entry in entries {
            let kind = entry.file_type()?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                let name = entry.path().display().to_string();
                stream(&name, &mut BufReader::new(fs_err::File::open(entry.path())?), 0, take)?;
            }
        }
    }
    Ok(())
}

/// Searches what is in a stream; false if that is nothing known.
fn stream(
    name: &str,
    content: &mut dyn BufRead,
    depth: u32,
    take: &mut dyn FnMut(&str, Architecture, Found),
) -> io::Result<bool> {
    let mut start = Vec::new();
    (&mut *content).take(MAGIC_BYTES as u64).read_to_end(&mut start)?;
    let mut whole = BufReader::new(io::Cursor::new(start.clone()).chain(content));
    if start.starts_with(b"\x7fELF") {
        let mut bytes = Vec::new();
        whole.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let text = format!("{name} is larger than {} GiB", FILE_BYTES_MAX >> 30);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
        }
        let Some((architecture, found)) = scan_file(&bytes) else { return Ok(false) };
        take(name, architecture, found);
        return Ok(true);
    }
    if depth == 0 {
        return Ok(false);
    }
    if start.starts_with(b"!<arch>\n") {
        return members(name, &mut whole, depth, take);
    }
    if start.starts_with(&LEAD) {
        return with_headers(name, &mut whole, take).map(|()| true);
    }
    let opened: Box<dyn Read + '_> = match decompressed(&start) {
        Some(decompress) => decompress(&mut whole)?,
        None if start.get(257..262) == Some(b"ustar") => Box::new(&mut whole),
        None => return Ok(false),
    };
    let mut archive = tar::Archive::new(opened);
    // Without the extensions for long names, whose size has no bound: a name in an answer may be cut.
    for entry in archive.entries()?.raw(true) {
        let entry = entry?;
        if entry.header().entry_type().is_file() {
            let name = format!("{name}:{}", String::from_utf8_lossy(&entry.path_bytes()));
            stream(&name, &mut BufReader::new(entry), 0, take)?;
        }
    }
    Ok(true)
}

/// Reads what is compressed.
type Decompress = for<'a> fn(&'a mut dyn BufRead) -> io::Result<Box<dyn Read + 'a>>;

/// How a stream with these first bytes is decompressed; `None` if it is not, or in an unknown form.
fn decompressed(start: &[u8]) -> Option<Decompress> {
    Some(match start {
        [0x1f, 0x8b, ..] => |content| Ok(Box::new(flate2::bufread::MultiGzDecoder::new(content))),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            |content| Ok(Box::new(liblzma::bufread::XzDecoder::new_multi_decoder(content)))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => |content| Ok(Box::new(zstd::Decoder::with_buffer(content)?)),
        _ => return None,
    })
}

/// What an RPM package begins with (rpm's `docs/manual/format_lead.md`), and the length of that.
const LEAD: [u8; 4] = [0xed, 0xab, 0xee, 0xdb];
const LEAD_BYTES: usize = 96;
/// What a header begins with (`docs/manual/format_header.md`).
const HEADER: [u8; 4] = [0x8e, 0xad, 0xe8, 0x01];

fn damaged(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{name} is a damaged package"))
}

/// The files of a package of RPM: a lead, a header of signatures, the main header, and a compressed cpio archive.
fn with_headers(
    name: &str,
    content: &mut dyn BufRead,
    take: &mut dyn FnMut(&str, Architecture, Found),
) -> io::Result<()> {
    content.read_exact(&mut [0; LEAD_BYTES])?;
    for padding in [8, 1] {
        let mut intro = [0; 16];
        content.read_exact(&mut intro)?;
        let word = |at: usize| u64::from(u32::from_be_bytes(std::array::from_fn(|byte| intro[at + byte])));
        if intro[..4] != HEADER {
            return Err(damaged(name));
        }
        let length = word(8) * 16 + word(12);
        let rest = length.next_multiple_of(padding);
        if io::copy(&mut (&mut *content).take(rest), &mut io::sink())? != rest {
            return Err(damaged(name));
        }
    }
    let mut start = Vec::new();
    (&mut *content).take(6).read_to_end(&mut start)?;
    let mut whole = BufReader::new(io::Cursor::new(start.clone()).chain(content));
    let unknown =
        || io::Error::new(io::ErrorKind::InvalidData, format!("{name} is compressed in an unknown form"));
    let decompress = decompressed(&start).ok_or_else(unknown)?;
    cpio(name, &mut BufReader::new(decompress(&mut whole)?), take)
}

/// The files of a cpio archive in its new form (cpio(5), "New ASCII Format").
fn cpio(
    name: &str,
    content: &mut dyn BufRead,
    take: &mut dyn FnMut(&str, Architecture, Found),
) -> io::Result<()> {
    const END: &str = "TRAILER!!!";
    const PATH_BYTES_MAX: u64 = 4096;
    loop {
        let mut header = [0; 110];
        content.read_exact(&mut header)?;
        let number = |field: usize| {
            let text = std::str::from_utf8(&header[6 + field * 8..14 + field * 8]).ok()?;
            u64::from_str_radix(text, 16).ok()
        };
        let fields = (number(1), number(6), number(11));
        let (true, (Some(mode), Some(size), Some(path_bytes))) =
            (matches!(&header[..6], b"070701" | b"070702"), fields)
        else {
            return Err(damaged(name));
        };
        if path_bytes > PATH_BYTES_MAX {
            return Err(damaged(name));
        }
        let mut path = vec![0; ((110 + path_bytes).next_multiple_of(4) - 110) as usize];
        content.read_exact(&mut path)?;
        let path =
            String::from_utf8_lossy(path.split(|byte| *byte == 0).next().unwrap_or_default()).into_owned();
        if path == END {
            return Ok(());
        }
        let mut own = (&mut *content).take(size.next_multiple_of(4));
        if mode & 0o170_000 == 0o100_000 {
            let member = format!("{name}:{}", path.trim_start_matches("./"));
            stream(&member, &mut BufReader::new((&mut own).take(size)), 0, take)?;
        }
        io::copy(&mut own, &mut io::sink())?;
    }
}

/// The members of an ar archive: a Debian package, or a library of objects.
fn members(
    name: &str,
    content: &mut dyn BufRead,
    depth: u32,
    take: &mut dyn FnMut(&str, Architecture, Found),
) -> io::Result<bool> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("{name} is a damaged ar archive"));
    content.read_exact(&mut [0; 8])?;
    loop {
        let mut header = Vec::new();
        (&mut *content).take(60).read_to_end(&mut header)?;
        if header.is_empty() {
            return Ok(true);
        }
        // ar(5): a name of 16 bytes, …, the size as decimal digits at 48, and an end mark at 58.
        if header.get(58..60) != Some(b"`\n") {
            return Err(damaged());
        }
        let text = |range: std::ops::Range<usize>| String::from_utf8_lossy(&header[range]).trim().to_owned();
        let size: u64 = text(48..58).parse().map_err(|_| damaged())?;
        let member = format!("{name}:{}", text(0..16).trim_end_matches('/'));
        let mut own = (&mut *content).take(size);
        let is_known = stream(&member, &mut BufReader::new(&mut own), depth - 1, take)?;
        if !is_known && text(0..16).starts_with("data.tar") {
            let text = format!("{member} is compressed in an unknown form");
            return Err(io::Error::new(io::ErrorKind::InvalidData, text));
        }
        io::copy(&mut own, &mut io::sink())?;
        if size % 2 == 1 {
            (&mut *content).take(1).read_to_end(&mut Vec::new())?;
        }
    }
}
