//! Reads OpenPGP packets, binary or armored.
//!
//! rPGP's own readers tolerate truncated blocks and text around a block. For keys and signatures that is unsafe, so
//! blocks are located here, line by line, and every unreadable packet is an error unless its version or algorithm
//! is unknown.

use std::io::Read;

use pgp::armor::Dearmor;
use pgp::errors::Error as PgpError;
use pgp::packet::{Packet, PacketParser};

/// The maximum number of packets in one input; Debian's largest keyring of developers has about 100,000.
const PACKETS_MAX: usize = 1_000_000;

/// The content of an armored block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block {
    PublicKey,
    SecretKey,
    Signature,
}

impl Block {
    fn label(self) -> &'static str {
        match self {
            Block::PublicKey => "PGP PUBLIC KEY BLOCK",
            Block::SecretKey => "PGP PRIVATE KEY BLOCK",
            Block::Signature => "PGP SIGNATURE",
        }
    }
}

/// Reads the packets of an input that is binary, or armored in one or more blocks of one kind.
pub(crate) fn packets(bytes: &[u8], block: Block) -> Result<Vec<Packet>, String> {
    match bytes.first() {
        None => Err("it is empty".to_owned()),
        // The first byte of every OpenPGP packet has its highest bit set; that of armored text does not.
        Some(first) if first & 0x80 != 0 => parse(bytes),
        Some(_) if bytes.get(8..12) == Some(b"KBXf") => {
            Err("it is a GnuPG keybox; export its keys with 'gpg --export'".to_owned())
        }
        Some(_) => {
            let mut all = Vec::new();
            for armored in blocks(bytes, block)? {
                all.extend(parse(&decode(armored)?)?);
            }
            Ok(all)
        }
    }
}

/// The armored blocks of one kind, each from its BEGIN line to its END line. Text between the blocks is
/// allowed (certificates are published with comments around them); another kind of block is not.
fn blocks(bytes: &[u8], block: Block) -> Result<Vec<&[u8]>, String> {
    let begin = format!("-----BEGIN {}-----", block.label());
    let end = format!("-----END {}-----", block.label());
    let mut found = Vec::new();
    let mut open: Option<usize> = None;
    let mut offset = 0;
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        let start = offset;
        offset += line.len();
        let line = line.trim_ascii_end();
        if !line.starts_with(b"-----") {
            continue;
        }
        match open {
            None if line == begin.as_bytes() => open = Some(start),
            Some(from) if line == end.as_bytes() => {
                found.push(&bytes[from..offset]);
                open = None;
            }
            None | Some(_) => {
                return Err(format!(
                    "it has the line {:?} instead of a {}",
                    String::from_utf8_lossy(&line[..line.len().min(80)]),
                    block.label()
                ));
            }
        }
    }
    if open.is_some() {
        return Err(format!("it is truncated: the line {end:?} is missing"));
    }
    if found.is_empty() {
        return Err(format!("it has no {}", block.label()));
    }
    Ok(found)
}

fn decode(armored: &[u8]) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    // Read to the end with one call: after an error the reader must not be called again.
    match Dearmor::new(armored).read_to_end(&mut bytes) {
        Ok(_) => Ok(bytes),
        Err(error) => Err(format!("its armor is damaged: {error}")),
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<Packet>, String> {
    let mut packets = Vec::new();
    for (index, item) in PacketParser::new(bytes).enumerate() {
        if index >= PACKETS_MAX {
            return Err(format!("it has more than {PACKETS_MAX} packets"));
        }
        match item {
            // GnuPG's keyrings have trust packets between the others; rPGP would stop reading at these.
            Ok(Packet::Trust(_) | Packet::Marker(_) | Packet::Padding(_)) => {}
            Ok(packet) => packets.push(packet),
            Err(error) if is_merely_unknown(&error) => {}
            Err(error) => return Err(format!("packet {} is damaged: {error}", index + 1)),
        }
    }
    Ok(packets)
}

/// Whether the packet has an unknown version or algorithm. Skipping such a packet can only lose a key or a
/// signature, never add one, since everything kept must verify.
fn is_merely_unknown(error: &PgpError) -> bool {
    match error {
        PgpError::Unsupported { .. } => true,
        PgpError::InvalidPacketContent { source } => {
            matches!(**source, PgpError::Unsupported { .. } | PgpError::EllipticCurve { .. })
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_name_the_reason() {
        let reason = |bytes: &[u8]| packets(bytes, Block::PublicKey).unwrap_err();
        assert_eq!(reason(b""), "it is empty");
        assert_eq!(reason(b"hello\n"), "it has no PGP PUBLIC KEY BLOCK");
        assert!(reason(b"\0\0\0\0\x01\x01\0\x02KBXf\0\0").contains("gpg --export"));
        assert!(reason(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmQ==\n").contains("truncated"));
        assert!(
            reason(b"-----BEGIN PGP PRIVATE KEY BLOCK-----\n").contains("instead of a PGP PUBLIC KEY BLOCK")
        );
        assert!(
            reason(b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\n!!!!\n-----END PGP PUBLIC KEY BLOCK-----\n")
                .contains("damaged")
        );
    }

    #[test]
    fn text_between_blocks_is_ignored() {
        let text = b"one\n-----BEGIN PGP SIGNATURE-----\na\n-----END PGP SIGNATURE-----\ntwo\r\n\
            -----BEGIN PGP SIGNATURE-----\r\nb\r\n-----END PGP SIGNATURE-----";
        let found = blocks(text, Block::Signature).unwrap();
        assert_eq!(found.len(), 2);
        assert!(found[0].starts_with(b"-----BEGIN") && found[0].ends_with(b"-----\n"));
        assert!(found[1].ends_with(b"SIGNATURE-----"));
    }
}
