//! 32-bit ARM (Arm Architecture Reference Manual, DDI 0406C, A8.8).

use crate::elf::{Code, Mapped};
use crate::{Found, Hazard};

/// `MCR p15, 0, Rt, c7, c5, 4`; `… c7, c10, 4`; `… c7, c10, 5`, without condition and register.
const BARRIERS: [u32; 3] = [0x0e07_0f95, 0x0e07_0f9a, 0x0e07_0fba];
const WITHOUT_CONDITION_AND_REGISTER: u32 = 0x0fff_0fff;
/// The condition of an instruction that is always executed.
const ALWAYS: u32 = 0xe;
/// `SETEND`, without the byte order.
const SETEND: u32 = 0xf101_0000;
const SETEND_MASK: u32 = 0xffff_fdff;
const SETEND_THUMB: u16 = 0xb650;
const SETEND_THUMB_MASK: u16 = 0xfff7;
/// `SWP` and `SWPB`, always executed, without registers.
const SWP: u32 = 0xe100_0090;
const SWP_MASK: u32 = 0xffb0_0ff0;
/// The words around an instruction that have to look like code, and how many of them.
const NEIGHBOURS: usize = 8;
const LIKE_CODE_MIN: usize = 5;

pub(crate) fn search(code: &Code<'_>, found: &mut Found) {
    for (range, mapped) in code.parts() {
        if mapped == Some(Mapped::Data) {
            continue;
        }
        if mapped != Some(Mapped::Thumb) {
            // Instructions have addresses that are multiples of four, as sections have.
            let start = range.start.next_multiple_of(4).min(range.end);
            words(&code.bytes[start..range.end], mapped == Some(Mapped::Arm), found);
        }
        if mapped != Some(Mapped::Arm) {
            let start = range.start.next_multiple_of(2).min(range.end);
            halves(&code.bytes[start..range.end], mapped == Some(Mapped::Thumb), found);
        }
    }
}

/// A32. `is_known` if mapping symbols say that it is.
fn words(bytes: &[u8], is_known: bool, found: &mut Found) {
    let (words, _) = bytes.as_chunks::<4>();
    let word = |at: usize| u32::from_le_bytes(words[at]);
    let (mut barriers, mut setends, mut swaps) = (0, 0, 0);
    for at in 0..words.len() {
        let one = word(at);
        if is_barrier(one) {
            barriers += 1;
        } else if is_known && one & SETEND_MASK == SETEND {
            setends += 1;
        } else if one & SWP_MASK == SWP && (is_known || is_amid_code(words, at)) {
            swaps += 1;
        }
    }
    found.count(Hazard::Cp15Barrier, barriers);
    found.count(Hazard::Setend, setends);
    found.count(Hazard::Swp, swaps);
}

fn is_barrier(instruction: u32) -> bool {
    BARRIERS.contains(&(instruction & WITHOUT_CONDITION_AND_REGISTER)) && instruction >> 28 == ALWAYS
}

/// Whether most words around a place are always executed, as most instructions are.
fn is_amid_code(words: &[[u8; 4]], at: usize) -> bool {
    let around = words[at.saturating_sub(NEIGHBOURS / 2)..words.len().min(at + NEIGHBOURS / 2 + 1)].iter();
    around.filter(|word| u32::from_le_bytes(**word) >> 28 == ALWAYS).count() > LIKE_CODE_MIN
}

/// T32. `is_known` if mapping symbols say that it is.
fn halves(bytes: &[u8], is_known: bool, found: &mut Found) {
    let (halves, _) = bytes.as_chunks::<2>();
    let half = |at: usize| u16::from_le_bytes(halves[at]);
    let (mut barriers, mut setends) = (0, 0);
    let mut at = 0;
    while at < halves.len() {
        let first = half(at);
        if at + 1 < halves.len() {
            let pair = u32::from(first) << 16 | u32::from(half(at + 1));
            // Two barriers of A32 in a row have one of T32 across their border.
            let is_across = at > 0 && is_barrier(u32::from(first) << 16 | u32::from(half(at - 1)));
            if is_barrier(pair) && (is_known || !is_across) {
                barriers += 1;
                at += 2;
                continue;
            }
        }
        if is_known && first & SETEND_THUMB_MASK == SETEND_THUMB {
            setends += 1;
        }
        // In known code, the second half of a long instruction (A6.1) is not an instruction.
        at += if is_known && first >> 11 >= 0b11101 { 2 } else { 1 };
    }
    found.count(Hazard::Cp15Barrier, barriers);
    found.count(Hazard::Setend, setends);
}
