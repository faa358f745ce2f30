//! A kernel's image without the program that unpacks it.
//!
//! An image for x86 unpacks itself when it starts (Linux's `Documentation/arch/x86/boot.rst`), which an emulated processor takes a
//! third of a second for. QEMU starts what is in it, an ELF file, if that has a note with the entry of the PVH boot ABI (Xen's
//! `docs/misc/pvh.pandoc`), as Debian's kernels do.

use object::Endianness;
use object::elf::{FileHeader64, NoteType, PT_NOTE};
use object::read::elf::{FileHeader, ProgramHeader};
use std::io::Read;

/// The largest kernel.
const BYTES_MAX: u64 = 256 << 20;
/// The number of sectors before the part in protected mode, less one; a sector has 512 bytes.
const SECTORS: usize = 0x1f1;
const SECTOR_BYTES: usize = 512;
/// What identifies the header, and its version.
const MAGIC: (usize, &[u8]) = (0x202, b"HdrS");
const VERSION: usize = 0x206;
/// The first version with the two fields below: the place of the packed kernel in that part, and its length.
const VERSION_MIN: u16 = 0x208;
const PAYLOAD: usize = 0x248;
const PAYLOAD_BYTES: usize = 0x24c;
/// The packed kernel ends with its unpacked size, in four bytes.
const SIZE_BYTES: usize = 4;
/// LZ4's legacy frame: this, and then blocks of 8 MiB, each after its packed size (lz4's `doc/lz4_Frame_format.md`).
const LZ4: &[u8] = &[0x02, 0x21, 0x4c, 0x18];
const LZ4_BLOCK_BYTES: usize = 8 << 20;
const XZ: &[u8] = b"\xfd7zXZ\0";
const ZSTD: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// The owner and the type of the note with the entry (`XEN_ELFNOTE_PHYS32_ENTRY`).
const NOTE: (&[u8], NoteType) = (b"Xen", NoteType(18));

/// The kernel in an image for x86, if QEMU can start it; `None` leaves the image as it is.
pub(crate) fn unpacked(image: &[u8]) -> Option<Vec<u8>> {
    let word = |at: usize| Some(u32::from_le_bytes(image.get(at..at + 4)?.try_into().ok()?) as usize);
    let version = u16::from_le_bytes(image.get(VERSION..VERSION + 2)?.try_into().ok()?);
    if image.get(MAGIC.0..)?.strip_prefix(MAGIC.1).is_none() || version < VERSION_MIN {
        return None;
    }
    let begins = (usize::from(image[SECTORS]) + 1) * SECTOR_BYTES;
    let packed = image.get(begins..)?.get(word(PAYLOAD)?..)?.get(..word(PAYLOAD_BYTES)?)?;
    let (packed, size) = packed.split_at_checked(packed.len().checked_sub(SIZE_BYTES)?)?;
    let size = u32::from_le_bytes(size.try_into().ok()?);
    let mut kernel = Vec::new();
    let mut read = |from: &mut dyn Read| from.take(BYTES_MAX).read_to_end(&mut kernel).ok().map(|_| ());
    match packed {
        _ if packed.starts_with(LZ4) => kernel = of_lz4(&packed[LZ4.len()..])?,
        _ if packed.starts_with(XZ) => read(&mut liblzma::read::XzDecoder::new(packed))?,
        _ if packed.starts_with(ZSTD) => {
            read(&mut zstd::stream::read::Decoder::new(packed).ok()?.single_frame())?;
        }
        _ => return None,
    }
    (kernel.len() == size as usize && has_entry(&kernel)).then_some(kernel)
}

fn of_lz4(mut blocks: &[u8]) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    while let Some((length, rest)) = blocks.split_first_chunk::<4>() {
        let (block, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        all.extend(lz4_flex::block::decompress(block, LZ4_BLOCK_BYTES).ok()?);
        if all.len() as u64 > BYTES_MAX {
            return None;
        }
        blocks = rest;
    }
    Some(all)
}

/// Whether an ELF file has the entry that QEMU starts.
fn has_entry(kernel: &[u8]) -> bool {
    let notes = || {
        let header = FileHeader64::<Endianness>::parse(kernel).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, kernel).ok()?;
        let mut found = false;
        for segment in segments.iter().filter(|segment| segment.p_type(endian) == PT_NOTE) {
            let mut notes = segment.notes(endian, kernel).ok()??;
            while let Ok(Some(note)) = notes.next() {
                found |= (note.name(), note.n_type(endian)) == NOTE;
            }
        }
        Some(found)
    };
    notes().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An image with this payload, which gives this size of what it unpacks to.
    fn image(payload: &[u8], size: u32) -> Vec<u8> {
        let mut image = vec![0; 2 * SECTOR_BYTES];
        image[SECTORS] = 1;
        image[MAGIC.0..MAGIC.0 + 4].copy_from_slice(MAGIC.1);
        image[VERSION..VERSION + 2].copy_from_slice(&VERSION_MIN.to_le_bytes());
        image[PAYLOAD..PAYLOAD + 4].copy_from_slice(&3u32.to_le_bytes());
        let length = (payload.len() + SIZE_BYTES) as u32;
        image[PAYLOAD_BYTES..PAYLOAD_BYTES + 4].copy_from_slice(&length.to_le_bytes());
        [&image, &b"..."[..], payload, &size.to_le_bytes()].concat()
    }

    /// An ELF file with one note.
    fn kernel(owner: &[u8; 4], kind: u32) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
        file.extend(2u16.to_le_bytes());
        file.extend(62u16.to_le_bytes());
        file.extend(1u32.to_le_bytes());
        for field in [0u64, 64, 0] {
            file.extend(field.to_le_bytes());
        }
        file.extend(0u32.to_le_bytes());
        for field in [64u16, 56, 1, 64, 0, 0] {
            file.extend(field.to_le_bytes());
        }
        file.extend(PT_NOTE.0.to_le_bytes());
        file.extend(4u32.to_le_bytes());
        for field in [120u64, 0, 0, 20, 20, 4] {
            file.extend(field.to_le_bytes());
        }
        for word in [4u32, 4, kind] {
            file.extend(word.to_le_bytes());
        }
        file.extend(owner);
        file.extend(0u32.to_le_bytes());
        file
    }

    #[test]
    fn a_kernel_with_an_entry_is_unpacked() {
        let plain = kernel(b"Xen\0", 18);
        let size = plain.len() as u32;
        let mut by_xz = Vec::new();
        liblzma::read::XzEncoder::new(&plain[..], 6).read_to_end(&mut by_xz).unwrap();
        let block = lz4_flex::block::compress(&plain);
        let by_lz4 = [LZ4, &(block.len() as u32).to_le_bytes(), &block].concat();
        let by_zstd = zstd::encode_all(&plain[..], 3).unwrap();
        for payload in [&by_xz, &by_lz4, &by_zstd] {
            assert_eq!(unpacked(&image(payload, size)).as_ref(), Some(&plain));
            // One that is cut off, or has another size than it says, or no size at all.
            assert_eq!(unpacked(&image(&payload[..payload.len() - 9], size)), None);
            assert_eq!(unpacked(&image(payload, size + 1)), None);
            let whole = image(payload, size);
            for length in [0, 0x210, 0x24a, whole.len() - 1] {
                assert_eq!(unpacked(&whole[..length]), None);
            }
        }
        // A length that lies takes no memory.
        let lie = [LZ4, &u32::MAX.to_le_bytes(), &block].concat();
        assert_eq!(unpacked(&image(&lie, size)), None);
        for other in [kernel(b"Xen\0", 17), kernel(b"GNU\0", 18), b"no ELF file at all".to_vec()] {
            let payload = zstd::encode_all(&other[..], 3).unwrap();
            assert_eq!(unpacked(&image(&payload, other.len() as u32)), None);
        }
    }
}
