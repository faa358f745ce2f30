//! Signatures in package files.
//!
//! A package file begins with a lead and a header of signatures (rpm's `docs/manual/format_v4.md`). An OpenPGP signature there is of
//! the main header, which has the digest of the payload. It is added without any other change, so that what was built is got
//! back by taking it out.

use super::header::{BYTES, ENTRY_BYTES, Header, HeaderError, INTRO_BYTES, MAGIC, are_apart, tag, value};
use super::package_file::{LEAD_BYTES, SHA256_KIND};
use crate::archive::Hashing;
use sha2::Sha256;
use std::io::{self, BufReader, Read, Write};
use std::path::Path;

/// `RPMSIGTAG_DSA`, of all algorithms but one, and `RPMSIGTAG_RSA`: signatures of the main header.
const TAG: u32 = 267;
const RSA_TAG: u32 = 268;
/// The algorithms RSA (RFC 4880, 9.1).
const RSA: std::ops::RangeInclusive<u8> = 1..=3;
/// `RPMTAG_HEADERSIGNATURES`: the region that all signatures are in. Its data repeats its entry, with the place of the index.
const REGION: u32 = 62;
/// The longest header of signatures: it has digests, space for signatures, and signatures of files.
const BYTES_MAX: u64 = 16 << 20;

/// A main header for a signer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Described {
    /// The name of the package.
    pub name: String,
    /// Its version, with the epoch if that is not 0.
    pub version: String,
    /// Its architecture; `src` of a source package.
    pub architecture: String,
    /// The file of its source package; empty of one.
    pub source: String,
}

/// Reads all of a main header.
///
/// # Errors
/// It is none, something follows it, or it has no SHA-256 of a payload, without which a signature would be of no content.
pub fn describe(bytes: &[u8]) -> Result<Described, HeaderError> {
    let header = Header::read(&mut { bytes })?;
    let has_digest = header.number(tag::PAYLOAD_DIGEST_KIND) == Some(SHA256_KIND)
        && header.text(tag::PAYLOAD_DIGEST).is_some_and(|digest| digest.len() == 64);
    if header.bytes() != bytes.len() as u64 || !has_digest {
        return Err(HeaderError::Format("is followed by more, or has no digest of the payload".to_owned()));
    }
    let text = |tag| header.text(tag).unwrap_or_default();
    let epoch = header.number(tag::EPOCH).filter(|epoch| *epoch != 0);
    let epoch = epoch.map_or_else(String::new, |epoch| format!("{epoch}:"));
    Ok(Described {
        name: text(tag::NAME),
        version: format!("{epoch}{}-{}", text(tag::VERSION), text(tag::RELEASE)),
        architecture: match header.has(tag::SOURCE_PACKAGE) {
            true => text(tag::ARCHITECTURE),
            false => super::SOURCE.to_owned(),
        },
        source: text(tag::SOURCE_PACKAGE),
    })
}

/// What a file begins with.
struct Begun {
    lead: [u8; LEAD_BYTES as usize],
    signatures: Vec<Entry>,
}

/// A value of the header of signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    tag: u32,
    kind: u32,
    count: u32,
    bytes: Vec<u8>,
}

fn invalid(text: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text.to_owned())
}

fn begin(input: &mut impl Read) -> io::Result<Begun> {
    let mut lead = [0; LEAD_BYTES as usize];
    input.read_exact(&mut lead)?;
    let mut intro = [0; INTRO_BYTES as usize];
    input.read_exact(&mut intro)?;
    let word = |bytes: &[u8], at: usize| u32::from_be_bytes(std::array::from_fn(|byte| bytes[at + byte]));
    let (entries, length) = (u64::from(word(&intro, 8)), u64::from(word(&intro, 12)));
    if intro[..4] != MAGIC || entries * ENTRY_BYTES > BYTES_MAX || length > BYTES_MAX {
        return Err(invalid("it has no header of signatures"));
    }
    let mut index = vec![0; (entries * ENTRY_BYTES) as usize];
    input.read_exact(&mut index)?;
    let mut data = vec![0; length as usize];
    input.read_exact(&mut data)?;
    let whole = INTRO_BYTES + entries * ENTRY_BYTES + length;
    input.read_exact(&mut [0; 8][..(whole.next_multiple_of(8) - whole) as usize])?;
    let (mut signatures, mut values) = (Vec::new(), Vec::new());
    for entry in index.chunks_exact(ENTRY_BYTES as usize) {
        let (tag, kind, start, count) = (word(entry, 0), word(entry, 4), word(entry, 8), word(entry, 12));
        if tag == REGION {
            continue;
        }
        let found = value(&data, kind, start as usize, count as usize);
        let found = found.ok_or_else(|| invalid("its header of signatures is malformed"))?;
        values.push(found);
        signatures.push((tag, kind, count));
    }
    if !are_apart(values.iter()) {
        return Err(invalid("its header of signatures has values that overlap"));
    }
    let bytes = values.iter().map(|found| data[found.start..found.end].to_vec());
    let entry = |((tag, kind, count), bytes)| Entry { tag, kind, count, bytes };
    let signatures = signatures.into_iter().zip(bytes).map(entry).collect();
    Ok(Begun { lead, signatures })
}

impl Begun {
    /// The lead and the header, up to the main header.
    fn bytes(&self) -> Vec<u8> {
        let mut entries: Vec<&Entry> = self.signatures.iter().collect();
        entries.sort_by_key(|entry| entry.tag);
        let (mut index, mut data) = (Vec::new(), Vec::new());
        for entry in entries {
            let alignment = match entry.kind {
                3 => 2,
                4 => 4,
                5 => 8,
                _ => 1,
            };
            data.resize(data.len().next_multiple_of(alignment), 0);
            for word in [entry.tag, entry.kind, data.len() as u32, entry.count] {
                index.extend(word.to_be_bytes());
            }
            data.extend(&entry.bytes);
        }
        let region = |place: i32| {
            let words = [REGION, BYTES, place.cast_unsigned(), ENTRY_BYTES as u32];
            words.map(u32::to_be_bytes).concat()
        };
        let index = [region(data.len() as i32), index].concat();
        data.extend(region(-(index.len() as i32)));
        let count = (index.len() / ENTRY_BYTES as usize) as u32;
        let mut bytes = self.lead.to_vec();
        bytes.extend(MAGIC);
        bytes.extend([0; 4]);
        bytes.extend(count.to_be_bytes());
        bytes.extend((data.len() as u32).to_be_bytes());
        bytes.extend(index);
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(8), 0);
        bytes
    }

    fn is_signed(&self) -> bool {
        self.signatures.iter().any(|entry| [TAG, RSA_TAG].contains(&entry.tag))
    }

    fn without_signature(&self) -> Begun {
        let mut signatures = self.signatures.clone();
        signatures.retain(|entry| ![TAG, RSA_TAG].contains(&entry.tag));
        Begun { lead: self.lead, signatures }
    }
}

/// The bytes of the main header of a package file.
///
/// # Errors
/// It cannot be read, or is no package file.
pub fn header_of(path: &Path) -> io::Result<Vec<u8>> {
    let mut input = BufReader::new(fs_err::File::open(path)?);
    begin(&mut input)?;
    let mut kept = Kept { input: &mut input, bytes: Vec::new() };
    Header::read(&mut kept).map_err(io::Error::other)?;
    Ok(kept.bytes)
}

/// The main header of a package file, and the OpenPGP signatures of it.
///
/// # Errors
/// It cannot be read, or is no package file.
pub fn signatures_of(path: &Path) -> io::Result<(Vec<u8>, Vec<Vec<u8>>)> {
    let begun = begin(&mut BufReader::new(fs_err::File::open(path)?))?;
    let signatures = begun.signatures.into_iter().filter(|entry| [TAG, RSA_TAG].contains(&entry.tag));
    Ok((header_of(path)?, signatures.map(|entry| entry.bytes).collect()))
}

/// Keeps what is read.
struct Kept<'r, R> {
    input: &'r mut R,
    bytes: Vec<u8>,
}

impl<R: Read> Read for Kept<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.bytes.extend(&buffer[..count]);
        Ok(count)
    }
}

/// Writes a package file with a signature of its main header: an OpenPGP packet. Returns the new file's SHA-256 and size.
///
/// # Errors
/// A file cannot be read or written, the package has a signature, or is in a form from which it could not be got back.
pub fn sign(from: &Path, to: &Path, signature: &[u8]) -> io::Result<(String, u64)> {
    let mut input = fs_err::File::open(from)?;
    let begun = begin(&mut input)?;
    if begun.is_signed() {
        return Err(invalid("it has a signature already"));
    }
    let own = begun.bytes();
    let mut first = vec![0; own.len()];
    fs_err::File::open(from)?.read_exact(&mut first)?;
    if first != own {
        return Err(invalid("its header of signatures is not in the form that rpmbuild writes"));
    }
    let algorithm = algorithm(signature).ok_or_else(|| invalid("the signature is no OpenPGP packet"))?;
    let entry = Entry {
        tag: if RSA.contains(&algorithm) { RSA_TAG } else { TAG },
        kind: BYTES,
        count: signature.len() as u32,
        bytes: signature.to_vec(),
    };
    let signed = Begun { lead: begun.lead, signatures: [begun.signatures, vec![entry]].concat() };
    write(&signed, input, to)
}

/// Writes a package file without the signature of its main header, as it was before [`sign`]; `None` if it has none. Returns the
/// SHA-256 and the size.
///
/// # Errors
/// A file cannot be read or written, or is no package.
pub fn unsign(from: &Path, to: &Path) -> io::Result<Option<(String, u64)>> {
    let mut input = fs_err::File::open(from)?;
    let begun = begin(&mut input)?;
    if !begun.is_signed() {
        return Ok(None);
    }
    write(&begun.without_signature(), input, to).map(Some)
}

fn write(begun: &Begun, mut rest: fs_err::File, to: &Path) -> io::Result<(String, u64)> {
    let bytes = begun.bytes();
    let mut out = fs_err::File::create(to)?;
    out.write_all(&bytes)?;
    let size = bytes.len() as u64 + io::copy(&mut rest, &mut out)?;
    let mut hashing = Hashing::<_, Sha256>::new(fs_err::File::open(to)?);
    io::copy(&mut hashing, &mut io::sink())?;
    Ok((hashing.finish().0, size))
}

/// The algorithm of a signature of version 4 (RFC 4880, 4.2 and 5.2.3).
fn algorithm(packet: &[u8]) -> Option<u8> {
    let (first, length) = (*packet.first()?, *packet.get(1)?);
    let begins = match (first & 0xc0, first & 0x3c) {
        // The tag 2 in the new form, and its length in one, two or five octets.
        (0xc0, _) if first & 0x3f == 2 => match length {
            ..192 => 2,
            192..224 => 3,
            255 => 6,
            _ => return None,
        },
        // In the old form.
        (0x80, 0x08) => match first & 3 {
            0 => 2,
            1 => 3,
            2 => 5,
            _ => return None,
        },
        _ => return None,
    };
    (*packet.get(begins)? == 4).then(|| packet.get(begins + 2).copied())?
}

/// A value of an entry: the texts around it, and whether it has the form that it has in every entry.
type OfFile = (&'static str, &'static str, fn(&str) -> bool);

/// What differs in an entry of the first list between a file and the same one with a signature: its digest, its size, the place of
/// its header, and its path. A value of another form is not left out: it could be elements of its own, which no worker signed.
const OF_FILE: [OfFile; 4] = [
    ("<checksum type=\"sha256\" pkgid=\"YES\">", "</checksum>", |value| {
        !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_hexdigit())
    }),
    ("<size package=\"", "\"", is_number),
    ("<rpm:header-range start=\"", "/>", |value| {
        let numbers = value.strip_suffix('"').and_then(|rest| rest.split_once("\" end=\""));
        numbers.is_some_and(|(start, end)| is_number(start) && is_number(end))
    }),
    ("<location href=\"", "\"", |value| !value.contains(['<', '>'])),
];

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

fn part((before, after, has_form): OfFile, entry: &str) -> Option<std::ops::Range<usize>> {
    // Texts of packages have no such mark: they are escaped.
    let start = entry.find(before)? + before.len();
    let range = start..start + entry[start..].find(after)?;
    has_form(&entry[range.clone()]).then_some(range)
}

/// An entry of the first list without what differs between a file and the same one with a signature.
pub fn masked(entry: &str) -> String {
    described_as(entry, "")
}

/// An entry of the first list with what another one, of the same package with a signature, says of its file.
pub fn described_as(entry: &str, other: &str) -> String {
    let mut text = entry.to_owned();
    for around in OF_FILE {
        if let Some(range) = part(around, &text) {
            text.replace_range(range, part(around, other).map_or("", |range| &other[range]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn algorithms_of_packets_are_found() {
        assert_eq!(algorithm(&[0xc2, 5, 4, 0, 22]), Some(22));
        assert_eq!(algorithm(&[0xc2, 200, 1, 4, 0, 1]), Some(1));
        assert_eq!(algorithm(&[0x88, 5, 4, 0, 22]), Some(22));
        assert_eq!(algorithm(&[0x89, 1, 0, 4, 0, 1]), Some(1));
        for packet in [&[][..], &[0xc2], &[0xc2, 5, 3, 0, 22], &[0xc6, 5, 4, 0, 22], &[0xc2, 5, 4]] {
            assert_eq!(algorithm(packet), None);
        }
    }

    #[test]
    fn only_what_a_signature_changes_is_masked() {
        let entry = |digest: &str, size: &str, name: &str| {
            format!(
                "<package type=\"rpm\">\n  <name>{name}</name>\n  <checksum type=\"sha256\" pkgid=\"YES\">{digest}</checksum>\n  \
                 <size package=\"{size}\" installed=\"7\" archive=\"7\"/>\n  <location href=\"{digest}/x.rpm\"/>\n  \
                 <rpm:header-range start=\"{size}\" end=\"{size}9\"/>\n</package>\n"
            )
        };
        assert_eq!(masked(&entry("ab", "12", "x")), masked(&entry("cd", "345", "x")));
        assert_ne!(masked(&entry("ab", "12", "x")), masked(&entry("ab", "12", "y")));
        // Elements in the place of a value are of no file.
        let plain = entry("ab", "12", "x");
        let obsoletes = "<rpm:obsoletes><rpm:entry name=\"y\"/></rpm:obsoletes>";
        for (from, to) in [
            (
                "end=\"129\"/>",
                format!("end=\"129\"></rpm:header-range>{obsoletes}<rpm:header-range start=\"1\"/>"),
            ),
            ("end=\"129\"/>", "end=\"129\" end=\"x\"/>".to_owned()),
            (">ab</checksum>", format!(">ab{obsoletes}</checksum>")),
            ("package=\"12\"", "package=\"-12\"".to_owned()),
            ("href=\"ab/", "href=\"<ab/".to_owned()),
        ] {
            let changed = plain.replacen(from, &to, 1);
            assert_ne!(changed, plain);
            assert_ne!(masked(&changed), masked(&plain), "{changed}");
        }
    }
}
