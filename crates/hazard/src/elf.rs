//! The code of an ELF file, with what its symbols say about it.

use crate::{Found, Hazard, arm, x86};
use object::Endianness;
use object::elf::{
    EM_ARM, EM_X86_64, FileHeader32, FileHeader64, PF_X, PT_GNU_PROPERTY, PT_LOAD, SHF_EXECINSTR, SHT_DYNSYM,
    SHT_NOBITS, SHT_SYMTAB, STT_GNU_IFUNC,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym, SymbolTable};
use std::collections::HashMap;
use std::ops::Range;

/// The processors whose code is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// 32-bit ARM, little-endian.
    Arm,
    /// 64-bit x86.
    X86,
}

/// What mapping symbols say about the code from a place on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mapped {
    /// `$a`
    Arm,
    /// `$t`
    Thumb,
    /// `$d`
    Data,
}

/// Code that lies together.
pub(crate) struct Code<'a> {
    pub(crate) bytes: &'a [u8],
    /// The start of each mapped part within it, in order. Empty if there are no mapping symbols.
    pub(crate) map: Vec<(usize, Mapped)>,
}

impl Code<'_> {
    /// The parts, each with what is known of it.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (Range<usize>, Option<Mapped>)> + '_ {
        let first = self.map.first().map_or(self.bytes.len(), |(start, _)| *start);
        let mapped = self.map.iter().enumerate().map(|(number, (start, mapped))| {
            let end = self.map.get(number + 1).map_or(self.bytes.len(), |(next, _)| *next);
            (*start..end, Some(*mapped))
        });
        std::iter::once((0..first, None)).chain(mapped).filter(|(range, _)| !range.is_empty())
    }
}

/// `GNU_PROPERTY_X86_ISA_1_NEEDED` (x86-64 psABI).
const ISA_NEEDED: u32 = 0xc000_8002;
/// Names that a program asks for what a processor can do.
const ASKING: [&[u8]; 5] = [
    b"__cpu_model",
    b"__cpu_indicator_init",
    b"__get_cpuid",
    b"__get_cpuid_max",
    b"__x86_get_cpuid_feature_leaf",
];

/// Searches the content of an ELF file. `None` if it is none, is damaged, or is for another processor.
pub fn scan_file(content: &[u8]) -> Option<(Architecture, Found)> {
    // The class of the file (ELF specification, `EI_CLASS`).
    match content.get(..6)? {
        [0x7f, b'E', b'L', b'F', 1, _] => of_class::<FileHeader32<Endianness>>(content),
        [0x7f, b'E', b'L', b'F', 2, _] => of_class::<FileHeader64<Endianness>>(content),
        _ => None,
    }
}

fn of_class<H: FileHeader<Endian = Endianness>>(content: &[u8]) -> Option<(Architecture, Found)> {
    let header = H::parse(content).ok()?;
    let endian = header.endian().ok()?;
    let architecture = match (header.e_machine(endian), endian, header.is_class_64()) {
        (EM_ARM, Endianness::Little, false) => Architecture::Arm,
        (EM_X86_64, Endianness::Little, _) => Architecture::X86,
        _ => return None,
    };
    let mut found = Found::default();
    for code in code::<H>(header, endian, content) {
        found.code_bytes += code.bytes.len() as u64;
        // A file whose sections overlap would be searched again and again.
        if found.code_bytes > content.len() as u64 {
            return None;
        }
        match architecture {
            Architecture::Arm => arm::search(&code, &mut found),
            Architecture::X86 => x86::search(code.bytes, &mut found),
        }
    }
    if architecture == Architecture::X86 {
        found.needed = needed::<H>(header, endian, content);
        found.asks_processor |= asks::<H>(header, endian, content);
    }
    Some((architecture, found))
}

/// The sections with code; in a file without sections, the segments with code.
fn code<'a, H: FileHeader<Endian = Endianness>>(
    header: &H,
    endian: Endianness,
    content: &'a [u8],
) -> Vec<Code<'a>> {
    let mut all = Vec::new();
    let sections = header.sections(endian, content).ok();
    if let Some(sections) = sections.filter(|sections| sections.len() > 1) {
        let mut maps = maps(&sections, endian, content);
        for (index, section) in sections.enumerate() {
            if !section.sh_flags(endian).contains(SHF_EXECINSTR) || section.sh_type(endian) == SHT_NOBITS {
                continue;
            }
            let Ok(bytes) = section.data(endian, content) else { continue };
            let start: u64 = section.sh_addr(endian).into();
            // In an object file, symbols have places within their section, whose address is zero.
            let within = |(value, mapped): (u64, Mapped)| {
                let at = usize::try_from(value.checked_sub(start)?).ok()?;
                (at < bytes.len()).then_some((at, mapped))
            };
            let own = maps.remove(&index.0).unwrap_or_default();
            let mut map: Vec<(usize, Mapped)> = own.into_iter().filter_map(within).collect();
            map.sort_by_key(|(at, _)| *at);
            all.push(Code { bytes, map });
        }
        return all;
    }
    for segment in header.program_headers(endian, content).unwrap_or_default() {
        if segment.p_type(endian) == PT_LOAD
            && segment.p_flags(endian).contains(PF_X)
            && let Ok(bytes) = segment.data(endian, content)
        {
            all.push(Code { bytes, map: Vec::new() });
        }
    }
    all
}

/// The mapping symbols of each section, by their addresses.
fn maps<H: FileHeader<Endian = Endianness>>(
    sections: &SectionTable<'_, H>,
    endian: Endianness,
    content: &[u8],
) -> HashMap<usize, Vec<(u64, Mapped)>> {
    let mut maps: HashMap<usize, Vec<(u64, Mapped)>> = HashMap::new();
    let Ok(symbols) = sections.symbols(endian, content, SHT_SYMTAB) else { return maps };
    let names = names(sections, endian, content, &symbols);
    for symbol in symbols.iter() {
        if let Some(mapped) = mapped(name(names, symbol.st_name(endian))) {
            let value: u64 = symbol.st_value(endian).into();
            maps.entry(symbol.st_shndx(endian).0.into()).or_default().push((value, mapped));
        }
    }
    maps
}

/// The names of symbols.
fn names<'a, H: FileHeader<Endian = Endianness>>(
    sections: &SectionTable<'a, H>,
    endian: Endianness,
    content: &'a [u8],
    symbols: &SymbolTable<'a, H>,
) -> &'a [u8] {
    let section = sections.section(symbols.string_section()).ok();
    section.and_then(|section| section.data(endian, content).ok()).unwrap_or_default()
}

/// The longest name that matters. A file may have millions of symbols with one name of as many bytes.
const NAME_BYTES_MAX: usize = 32;

/// The name of a symbol, cut.
fn name(names: &[u8], at: u32) -> &[u8] {
    let rest = names.get(at as usize..).unwrap_or_default();
    let rest = &rest[..rest.len().min(NAME_BYTES_MAX)];
    rest.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn mapped(name: &[u8]) -> Option<Mapped> {
    let kind = match name.get(..2)? {
        b"$a" => Mapped::Arm,
        b"$t" => Mapped::Thumb,
        b"$d" => Mapped::Data,
        _ => return None,
    };
    matches!(name.get(2), None | Some(b'.')).then_some(kind)
}

/// The level that the file's note says it needs.
fn needed<H: FileHeader<Endian = Endianness>>(
    header: &H,
    endian: Endianness,
    content: &[u8],
) -> Option<Hazard> {
    let segments = header.program_headers(endian, content).ok()?;
    let note = segments.iter().find(|segment| segment.p_type(endian) == PT_GNU_PROPERTY)?;
    let notes = note.data(endian, content).ok()?;
    // A note: lengths of name and content, its type, "GNU\0", then properties: type, length, content, padding.
    let properties = notes.get(16..)?;
    let align = if header.is_class_64() { 8 } else { 4 };
    let mut at = 0;
    let word = |at: usize| properties.get(at..)?.first_chunk().map(|word| u32::from_le_bytes(*word));
    while let (Some(kind), Some(bytes)) = (word(at), word(at + 4)) {
        if kind == ISA_NEEDED {
            return match word(at + 8)? {
                levels if levels & 8 != 0 => Some(Hazard::X86V4),
                levels if levels & 4 != 0 => Some(Hazard::X86V3),
                levels if levels & 2 != 0 => Some(Hazard::X86V2),
                _ => None,
            };
        }
        at = at.checked_add(8 + (bytes as usize).next_multiple_of(align))?;
    }
    None
}

/// Whether a symbol shows that the file asks for what the processor can do.
fn asks<H: FileHeader<Endian = Endianness>>(header: &H, endian: Endianness, content: &[u8]) -> bool {
    let Ok(sections) = header.sections(endian, content) else { return false };
    [SHT_DYNSYM, SHT_SYMTAB].into_iter().any(|kind| {
        let Ok(symbols) = sections.symbols(endian, content, kind) else { return false };
        let names = names(&sections, endian, content, &symbols);
        symbols.iter().any(|symbol| {
            symbol.st_type() == STT_GNU_IFUNC || ASKING.contains(&name(names, symbol.st_name(endian)))
        })
    })
}
