//! What kind of program a file is: whether the dynamic linker will load the preload library into it.
//!
//! From the ELF specification: the identification bytes, the header, and a program header of type PT_INTERP that
//! names the dynamic linker. A script is what its first line names.

use super::kernel::{File, Open};
use core::ffi::CStr;

/// A kind of program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// One with a dynamic linker, of this machine's own kind; or one that cannot be read, or is no program.
    Dynamic,
    /// One without a dynamic linker: no library is loaded into it.
    Static,
    /// One of another word length or machine: this library cannot be loaded into it.
    Foreign,
}

/// Bytes of a file's beginning that are looked at; program headers stand right behind the header.
const BEGINNING_BYTES: usize = 1024;
/// Scripts that name scripts: as many as the kernel follows (BINPRM recursion).
const INTERPRETERS_MAX: usize = 4;

const PT_INTERP: u32 = 3;

/// The machine that this is compiled for, as ELF numbers it.
#[cfg(target_arch = "x86_64")]
const MACHINE: u16 = 62;
/// The machine that this is compiled for, as ELF numbers it.
#[cfg(target_arch = "aarch64")]
const MACHINE: u16 = 183;

/// Looks at a program, and at the one that runs it if it is a script.
pub fn kind(path: &CStr) -> Program {
    let mut bytes = [0; BEGINNING_BYTES];
    let mut length = match read(path, &mut bytes) {
        Some(length) => length,
        None => return Program::Dynamic,
    };
    for _ in 0..INTERPRETERS_MAX {
        let Some(interpreter) = interpreter(&mut bytes[..length]) else { break };
        let mut next = [0; BEGINNING_BYTES];
        length = match read(interpreter, &mut next) {
            Some(length) => length,
            None => return Program::Dynamic,
        };
        bytes = next;
    }
    kind_of(&bytes[..length])
}

fn read(path: &CStr, bytes: &mut [u8]) -> Option<usize> {
    File::open(path, Open::Read).ok()?.read_at(bytes, 0).ok()
}

/// The program that a script names in its first line.
fn interpreter(bytes: &mut [u8]) -> Option<&CStr> {
    let line = bytes.strip_prefix(b"#!")?;
    let begin = 2 + line.iter().position(|letter| *letter != b' ' && *letter != b'\t')?;
    let end = bytes[begin..].iter().position(|letter| matches!(letter, b' ' | b'\t' | b'\n' | 0))? + begin;
    bytes[end] = 0;
    CStr::from_bytes_with_nul(&bytes[begin..=end]).ok()
}

/// The kind of a program with this beginning.
pub fn kind_of(bytes: &[u8]) -> Program {
    let two = |at: usize| Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?));
    let four = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let eight = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if !bytes.starts_with(b"\x7fELF") {
        return Program::Dynamic;
    }
    const CLASS_64: u8 = 2;
    const LITTLE_ENDIAN: u8 = 1;
    if bytes.get(4..6) != Some(&[CLASS_64, LITTLE_ENDIAN]) || two(18) != Some(MACHINE) {
        return Program::Foreign;
    }
    let (Some(headers), Some(bytes_each), Some(count)) = (eight(32), two(54), two(56)) else {
        return Program::Dynamic;
    };
    let mut at = headers as usize;
    for _ in 0..count {
        match four(at) {
            Some(PT_INTERP) => return Program::Dynamic,
            // A header further away than compilers put it: nothing is claimed.
            None => return Program::Dynamic,
            Some(_) => at = at.saturating_add(bytes_each as usize),
        }
    }
    Program::Static
}
