//! Whether a program with a dynamic linker makes its own system calls, bypassing libc's functions.
//!
//! Two kinds are recognized. Go programs make all system calls themselves, even if they are linked with libc; a
//! note in the file identifies them. The other kind contains the kernel's instruction in its code, as programs that
//! use Rust's rustix do: the program's text is searched for the instruction, with the number of a call that matters
//! here loaded shortly before it, or passed in by a caller. Among some 750 programs of a distribution with
//! compilers, these rules find exactly the ones that do it; for a program that is classified wrongly, the launcher
//! answers the calls, which is slower but correct.
//!
//! What it does not find: such code in a library, in a packed program, or generated at run time, and a number that
//! is loaded further away.

use super::kernel::{self, File};
#[cfg(target_arch = "x86_64")]
use super::watched::matters;

/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 16;
/// How far before the instruction the search extends.
const BEFORE_BYTES: usize = 32;
/// Maximum length of text that is searched: more than any program has.
const TEXT_BYTES_MAX: usize = 1 << 30;
/// Maximum length of notes that are read.
const NOTES_BYTES_MAX: usize = 4096;

const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const EXECUTABLE: u32 = 1;

/// An ELF program header.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    /// The segment type, `p_type`.
    pub kind: u32,
    /// The permissions to read, write and execute, `p_flags`.
    pub flags: u32,
    /// Where the segment starts in the file.
    pub offset: usize,
    /// The segment's length in the file, in bytes.
    pub bytes: usize,
}

/// Whether a program with these headers makes its own system calls. False if the file cannot be inspected.
pub fn is_direct(file: &File, segments: impl Iterator<Item = Segment>) -> bool {
    let Ok(address) = kernel::map_memory(PIECE_BYTES) else { return false };
    // SAFETY: fresh memory of this length, to which no other pointer exists.
    let piece = unsafe { core::slice::from_raw_parts_mut(address as *mut u8, PIECE_BYTES) };
    let mut found = false;
    for segment in segments {
        found = found
            || match segment.kind {
                PT_NOTE => is_go(file, segment, &mut piece[..NOTES_BYTES_MAX]),
                PT_LOAD if segment.flags & EXECUTABLE != 0 => has_calls(file, segment, piece),
                _ => false,
            };
    }
    kernel::unmap(address, PIECE_BYTES);
    found
}

/// Whether one of the notes is Go's.
fn is_go(file: &File, segment: Segment, room: &mut [u8]) -> bool {
    let length = segment.bytes.min(room.len());
    let length = file.read_at(&mut room[..length], segment.offset).unwrap_or(0);
    is_note_of_go(&room[..length])
}

/// Whether any of these notes is Go's. A note has the length of its name, the length of its content, a type, the
/// name, and the content.
pub fn is_note_of_go(notes: &[u8]) -> bool {
    const HEAD_BYTES: usize = 12;
    let round = |bytes: u32| (bytes as usize).saturating_add(3) & !3;
    let mut rest = notes;
    while let Some((head, body)) = rest.split_first_chunk::<HEAD_BYTES>() {
        let length = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        if body.starts_with(b"Go\0\0") {
            return true;
        }
        let next = round(length(0)).saturating_add(round(length(4)));
        rest = body.get(next..).unwrap_or_default();
    }
    false
}

fn has_calls(file: &File, segment: Segment, piece: &mut [u8]) -> bool {
    let end = segment.offset.saturating_add(segment.bytes.min(TEXT_BYTES_MAX));
    let mut at = segment.offset;
    while at < end {
        // The number may be loaded at the end of the previous piece.
        let from = at.saturating_sub(BEFORE_BYTES * 2).max(segment.offset);
        let length = piece.len().min(end - from);
        let Ok(length) = file.read_at(&mut piece[..length], from) else { return false };
        if from + length <= at {
            return false;
        }
        if has_call(&piece[..length]) {
            return true;
        }
        at = from + length;
    }
    false
}

/// Whether this text contains a system call that matters here.
#[cfg(target_arch = "x86_64")]
pub fn has_call(text: &[u8]) -> bool {
    let mut at = 0;
    while let Some(call) = next_call(text, at) {
        if is_call_that_matters(&text[call.saturating_sub(BEFORE_BYTES)..call]) {
            return true;
        }
        at = call + 1;
    }
    false
}

/// Where the next `syscall` instruction may be.
#[cfg(target_arch = "x86_64")]
fn next_call(text: &[u8], mut at: usize) -> Option<usize> {
    use core::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cmpeq_epi8, _mm_loadu_si128, _mm_movemask_epi8, _mm_set1_epi8,
    };
    const CALL: [u8; 2] = [0x0f, 0x05];
    const WIDTH: usize = size_of::<__m128i>();
    while at + WIDTH < text.len() {
        // SAFETY: every machine of this kind has these instructions, and at least WIDTH + 1 bytes follow
        // `at`.
        let found = unsafe {
            let load = |at: usize| _mm_loadu_si128(text.as_ptr().add(at).cast());
            let is = |at, byte: u8| _mm_cmpeq_epi8(load(at), _mm_set1_epi8(byte.cast_signed()));
            _mm_movemask_epi8(_mm_and_si128(is(at, CALL[0]), is(at + 1, CALL[1])))
        };
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize);
        }
        at += WIDTH;
    }
    text.get(at..)?.windows(CALL.len()).position(|bytes| bytes == CALL).map(|offset| at + offset)
}

/// Whether the code before the instruction loads the number of a call that matters, or a number that was passed in.
#[cfg(target_arch = "x86_64")]
fn is_call_that_matters(before: &[u8]) -> bool {
    /// Small numbers occur in all code, so these must be close to the instruction.
    const SMALL: u32 = 16;
    const CLOSE_BYTES: usize = 8;
    let mut number = None;
    for at in 0..before.len() {
        let load = match before[at..] {
            // push NUMBER; pop rax
            [0x6a, low, 0x58, ..] => Some((u32::from(low), 3)),
            // mov eax, NUMBER: with a REX.B prefix it is another register.
            [0xb8, low, high, 0, 0, ..] if at == 0 || before[at - 1] & 0xf1 != 0x41 => {
                Some((u32::from_le_bytes([low, high, 0, 0]), 5))
            }
            // mov rax, NUMBER
            [0x48, 0xc7, 0xc0, low, high, 0, 0, ..] => Some((u32::from_le_bytes([low, high, 0, 0]), 7)),
            _ => None,
        };
        if let Some((value, bytes)) = load {
            let is_close = before.len() - at - bytes <= CLOSE_BYTES;
            number = (value >= SMALL || is_close).then_some(value);
        }
    }
    if number.is_some_and(matters) {
        return true;
    }
    // Functions that receive the number as an argument: the last thing they do is to load it, or their last
    // argument, from the stack.
    let ends = |places: usize, load: &[u8]| {
        before.len().checked_sub(places + load.len()).is_some_and(|at| before[at..].starts_with(load))
    };
    ends(1, b"\x48\x8b\x44\x24")
        || ends(1, b"\x48\x8b\x45")
        || ends(4, b"\x48\x8b\x84\x24")
        || ends(4, b"\x48\x8b\x85")
        || ends(0, b"\x4d\x89\xc8\x4c\x8b\x4c\x24\x08")
}

/// Whether this text contains a system call that matters here: `svc #0`, with a number loaded into x8 before it.
#[cfg(target_arch = "aarch64")]
pub fn has_call(text: &[u8]) -> bool {
    use super::watched::matters;
    const CALL: u32 = 0xd400_0001;
    let word = |at: usize| u32::from_le_bytes([text[at], text[at + 1], text[at + 2], text[at + 3]]);
    let instructions = text.len() / 4;
    (0..instructions).filter(|at| word(at * 4) == CALL).any(|call| {
        (call.saturating_sub(BEFORE_BYTES / 4)..call).rev().any(|at| {
            let before = word(at * 4);
            let is_constant = before & 0x7fe0_001f == 0x5280_0008;
            let is_handed_in = before & 0x7fe0_ffff == 0x2a00_03e8;
            is_handed_in || (is_constant && matters(before >> 5 & 0xffff))
        })
    })
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    fn text(before: &[u8], call: &[u8]) -> Vec<u8> {
        [&[0x90; 100][..], before, call, &[0x90; 100]].concat()
    }

    #[test]
    fn calls_are_found_by_their_numbers() {
        const CALL: &[u8] = b"\x0f\x05";
        // newfstatat with an argument in between, geteuid by push and pop, fstat close by, chown in a long
        // form.
        for before in [
            &b"\xb8\x06\x01\0\0\xbf\x9c\xff\xff\xff"[..],
            b"\x6a\x6b\x58",
            b"\xb8\x05\0\0\0",
            b"\x48\xc7\xc0\x5c\0\0\0\x4c\x89\xd6",
            b"\x48\x8b\x44\x24\x48",
            b"\x48\x8b\x85\xf0\xfe\xff\xff",
        ] {
            assert!(has_call(&text(before, CALL)), "{before:x?}");
            assert!(!has_call(&text(before, b"\x0f\x06")), "{before:x?}");
        }
        // write; fstat's number far away; another register; read after fstat's.
        for before in [
            &b"\xb8\x01\0\0\0"[..],
            b"\xb8\x05\0\0\0\x48\x89\xc7\x48\x89\xc7\x48\x89\xc7",
            b"\x41\xb8\x05\0\0\0",
            b"\xb8\x06\x01\0\0\xb8\0\0\0\0",
        ] {
            assert!(!has_call(&text(before, CALL)), "{before:x?}");
        }
        for length in 0..200 {
            let text = text(b"\xb8\x06\x01\0\0", CALL);
            assert_eq!(has_call(&text[..length]), length >= 107, "{length}");
        }
    }

    #[test]
    fn go_notes_are_recognized_by_their_name() {
        let note = |name: &[u8], says: &[u8]| {
            let mut bytes = Vec::new();
            for value in [name.len() as u32, says.len() as u32, 4] {
                bytes.extend(value.to_le_bytes());
            }
            for part in [name, says] {
                bytes.extend(part);
                bytes.resize(bytes.len().next_multiple_of(4), 0);
            }
            bytes
        };
        let (gnu, go) = (note(b"GNU\0", b"Go\0\0."), note(b"Go\0\0", b"an id"));
        assert!(is_note_of_go(&go) && is_note_of_go(&[gnu.clone(), go.clone()].concat()));
        assert!(!is_note_of_go(&gnu) && !is_note_of_go(b"") && !is_note_of_go(&[0xff; 64]));
    }
}
