//! What kind of program a file is: whether the dynamic linker will load the preload library into it, and whether
//! that is enough.
//!
//! The rules follow the ELF specification: the identification bytes, the header, and a program header of type
//! PT_INTERP that names the dynamic linker. A script counts as the program that its first line names. A program's
//! text is searched once in a session, which records the result.

use super::abi::Stat;
use super::direct::{self, Segment};
use super::kernel::{self, File, Open};
use super::layout;
use super::memory::Memory;
use core::ffi::CStr;
use core::sync::atomic::Ordering::Relaxed;

/// A kind of program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Has a dynamic linker of this machine's own kind; also used for files that cannot be read or are not
    /// programs.
    Dynamic,
    /// Has a dynamic linker, but still makes its own system calls.
    Direct,
    /// Has no dynamic linker, so no library is loaded into it.
    Static,
    /// Has another word size or machine, so this library cannot be loaded into it.
    Foreign,
}

/// How much of a file's beginning is read; program headers directly follow the header.
const BEGINNING_BYTES: usize = 1024;
/// Maximum depth of scripts that name scripts: the kernel's own limit (BINPRM recursion).
const INTERPRETERS_MAX: usize = 4;

const PT_INTERP: u32 = 3;

/// The machine that this is compiled for, as ELF numbers it.
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
/// The machine that this is compiled for, as ELF numbers it.
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// Programs that only start others, which must not be answered on their account.
const STARTERS: [&[u8]; 5] = [b"env", b"nice", b"nohup", b"stdbuf", b"timeout"];

/// The kind of a program, or of its interpreter if it is a script. `memory` is that of a session.
pub fn kind(path: &CStr, memory: &impl Memory) -> Program {
    let is_starter = is_starter(path);
    if !is_starter
        && let Some(stat) = kernel::stat(path)
        && let Some(is_direct) = Remembered::of(&stat, memory).is_direct()
    {
        return if is_direct { Program::Direct } else { Program::Dynamic };
    }
    read_kind(path, is_starter, memory)
}

/// Reads the kind from the file. Separate, because of its stack usage.
#[cold]
#[inline(never)]
fn read_kind(path: &CStr, mut is_starter: bool, memory: &impl Memory) -> Program {
    let mut bytes = [0; BEGINNING_BYTES];
    let Some((mut file, mut length)) = read(path, &mut bytes) else { return Program::Dynamic };
    for _ in 0..INTERPRETERS_MAX {
        let Some(interpreter) = interpreter(&mut bytes[..length]) else { break };
        let mut next = [0; BEGINNING_BYTES];
        is_starter = self::is_starter(interpreter);
        match read(interpreter, &mut next) {
            Some(found) => (file, length) = found,
            None => return Program::Dynamic,
        }
        bytes = next;
    }
    let beginning = &bytes[..length];
    match kind_of(beginning) {
        Program::Dynamic if !is_starter && is_elf(beginning) && is_direct(&file, beginning, memory) => {
            Program::Direct
        }
        kind => kind,
    }
}

fn read(path: &CStr, bytes: &mut [u8]) -> Option<(File, usize)> {
    let file = File::open(path, Open::Read).ok()?;
    let length = file.read_at(bytes, 0).ok()?;
    Some((file, length))
}

fn is_starter(path: &CStr) -> bool {
    let name = path.to_bytes().rsplit(|letter| *letter == b'/').next().unwrap_or_default();
    STARTERS.contains(&name)
}

/// Whether a program with a dynamic linker makes its own system calls, according to the session's record or else
/// the file.
fn is_direct(file: &File, beginning: &[u8], memory: &impl Memory) -> bool {
    let Some(stat) = file.stat() else { return false };
    let remembered = Remembered::of(&stat, memory);
    remembered.is_direct().unwrap_or_else(|| {
        let is_direct = direct::is_direct(file, segments(beginning));
        remembered.remember(is_direct, memory);
        is_direct
    })
}

/// A session's record of a program with a dynamic linker.
struct Remembered {
    /// The file's hash, without the bits of the verdict.
    name: u64,
    /// The word of the record, which may hold that of another file.
    word: usize,
    known: u64,
}

impl Remembered {
    const VERDICT: u64 = 3;
    const NO: u64 = 1;
    const YES: u64 = 2;

    fn of(stat: &Stat, memory: &impl Memory) -> Remembered {
        let name = name_of(stat);
        let word = layout::HEADER_PROGRAMS + (name >> 32) as usize % layout::PROGRAMS;
        Remembered { name: name & !Remembered::VERDICT, word, known: memory.load(word, Relaxed) }
    }

    fn is_direct(&self) -> Option<bool> {
        match self.known & Remembered::VERDICT {
            _ if self.known & !Remembered::VERDICT != self.name => None,
            Remembered::NO => Some(false),
            Remembered::YES => Some(true),
            _ => None,
        }
    }

    fn remember(&self, is_direct: bool, memory: &impl Memory) {
        let verdict = if is_direct { Remembered::YES } else { Remembered::NO };
        memory.store(self.word, self.name | verdict, Relaxed);
    }
}

/// A hash of a file and its content: a write changes it.
fn name_of(stat: &Stat) -> u64 {
    let facts = [
        stat.device,
        stat.inode,
        stat.size as u64,
        stat.modified.seconds as u64,
        stat.modified.nanoseconds as u64,
        stat.changed.seconds as u64,
        stat.changed.nanoseconds as u64,
    ];
    // 2^64 divided by the golden ratio, as in Knuth's multiplicative hash.
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
    facts.iter().fold(0, |hash: u64, fact| (hash ^ fact).wrapping_mul(FACTOR).rotate_left(29))
}

/// The program that a script names in its first line.
fn interpreter(bytes: &mut [u8]) -> Option<&CStr> {
    let line = bytes.strip_prefix(b"#!")?;
    let begin = 2 + line.iter().position(|letter| *letter != b' ' && *letter != b'\t')?;
    let end = bytes[begin..].iter().position(|letter| matches!(letter, b' ' | b'\t' | b'\n' | 0))? + begin;
    bytes[end] = 0;
    CStr::from_bytes_with_nul(&bytes[begin..=end]).ok()
}

/// The kind of a program that starts with these bytes.
pub fn kind_of(bytes: &[u8]) -> Program {
    let two = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    if !is_elf(bytes) {
        return Program::Dynamic;
    }
    const CLASS_64: u8 = 2;
    const LITTLE_ENDIAN: u8 = 1;
    if bytes.get(4..6) != Some(&[CLASS_64, LITTLE_ENDIAN]) || two(18) != Some(MACHINE) {
        return Program::Foreign;
    }
    let mut has_headers = false;
    for segment in segments(bytes) {
        has_headers = true;
        if segment.kind == PT_INTERP {
            return Program::Dynamic;
        }
    }
    // A header further away than compilers put it: treated as dynamic, to claim nothing.
    if has_headers && segments(bytes).count() == usize::from(two(PROGRAM_HEADERS_AT).unwrap_or(0)) {
        Program::Static
    } else {
        Program::Dynamic
    }
}

/// Where the ELF header has the number of program headers, `e_phnum`.
const PROGRAM_HEADERS_AT: usize = 56;

fn is_elf(bytes: &[u8]) -> bool {
    bytes.starts_with(b"\x7fELF")
}

/// The program headers, as far as they lie within these bytes.
fn segments(bytes: &[u8]) -> impl Iterator<Item = Segment> + '_ {
    let two = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let four = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let eight = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?) as usize);
    let header = move |number: u16| {
        let at = eight(32)?.checked_add(usize::from(number) * usize::from(two(54)?))?;
        bytes.get(at..at.checked_add(56)?)?;
        Some(Segment {
            kind: four(at)?,
            flags: four(at + 4)?,
            offset: eight(at + 8)?,
            bytes: eight(at + 32)?,
        })
    };
    (0..two(PROGRAM_HEADERS_AT).unwrap_or(0)).map_while(header)
}
