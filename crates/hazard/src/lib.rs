//! Instructions that stall the machine, or end the program, on the machines that packages run on.
//!
//! ARMv8 has deprecated CP15 barriers, SETEND and SWP: the kernel emulates them for 32-bit programs, with a trap for
//! each, and a trap stalls other cores too. On x86, an instruction beyond the level that a distribution promises ends
//! the program on older processors (x86-64 psABI, "Micro-Architecture Levels").
//!
//! [`scan_file`] finds them in an ELF file, [`scan`] in packages and folders. Only code is searched, without following its
//! flow. Three rules keep data in code from being taken for instructions:
//!
//! - CP15 barriers have 28 fixed bits and are believed wherever code lies.
//! - SETEND has 15 fixed bits in Thumb code, where data has that pattern often: it is believed only where mapping symbols
//!   (ELF for the Arm Architecture, 5.5.5) say that the place is code of that kind.
//! - SWP and x86's instructions are believed if what surrounds them looks like code.
//!
//! Out of scope: code that is made at run time, as by V8 and Mono; it is known by the traps that it causes.

mod archive;
mod arm;
mod elf;
mod emulation;
pub mod split_lock;
pub mod symptom;
mod x86;

pub use archive::{ScanError, scan};
pub use elf::{Architecture, scan_file};
pub use emulation::{Emulation, Mode};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// A kind of instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hazard {
    /// A barrier by coprocessor 15 (`mcr p15, 0, Rt, c7, …`), which ARMv8 emulates.
    Cp15Barrier,
    /// A change of the byte order of data, which ARMv8 emulates.
    Setend,
    /// An atomic swap, which ARMv8 emulates.
    Swp,
    /// x86-64-v2: SSE3 to SSE4.2, POPCNT, CMPXCHG16B.
    X86V2,
    /// x86-64-v3: AVX, AVX2, BMI1, BMI2, F16C, FMA, LZCNT, MOVBE.
    X86V3,
    /// x86-64-v4: AVX-512 F, BW, CD, DQ and VL.
    X86V4,
    /// An extension that is in no level: AES, SHA, RDRAND and others.
    X86Extension,
}

impl Hazard {
    /// All of them.
    pub const ALL: [Hazard; 7] = [
        Hazard::Cp15Barrier,
        Hazard::Setend,
        Hazard::Swp,
        Hazard::X86V2,
        Hazard::X86V3,
        Hazard::X86V4,
        Hazard::X86Extension,
    ];

    /// Whether the kernel of an ARMv8 machine emulates it.
    pub fn is_emulated(self) -> bool {
        matches!(self, Hazard::Cp15Barrier | Hazard::Setend | Hazard::Swp)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Hazard::Cp15Barrier => "CP15 barrier",
            Hazard::Setend => "SETEND",
            Hazard::Swp => "SWP",
            Hazard::X86V2 => "x86-64-v2",
            Hazard::X86V3 => "x86-64-v3",
            Hazard::X86V4 => "x86-64-v4",
            Hazard::X86Extension => "x86 extension",
        }
    }
}

impl fmt::Display for Hazard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// What an ELF file has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// The bytes of code that were searched.
    pub code_bytes: u64,
    /// How many instructions of each kind it has.
    pub counts: BTreeMap<Hazard, u64>,
    /// The x86 extensions that are in no level, by name.
    pub extensions: BTreeMap<String, u64>,
    /// Whether it asks the processor what it can do (CPUID, indirect functions): then it may never execute what the
    /// processor lacks.
    pub asks_processor: bool,
    /// The level without which the loader refuses the file, by its own note (`GNU_PROPERTY_X86_ISA_1_NEEDED`).
    pub needed: Option<Hazard>,
}

impl Found {
    /// Whether it has any.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty() && self.needed.is_none()
    }

    fn count(&mut self, hazard: Hazard, number: u64) {
        if number > 0 {
            *self.counts.entry(hazard).or_default() += number;
        }
    }
}
