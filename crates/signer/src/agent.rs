//! Keys behind a `gpg-agent`: on smart cards, or with passphrases that its user enters.
//!
//! The agent speaks lines over a Unix socket (the Assuan protocol; GnuPG's manual, "Agent Protocol"). It is asked which keys it has
//! (KEYINFO, READKEY) and to sign a digest (SIGKEY, SETHASH, PKSIGN); it asks its user for a PIN itself.

use kilnyard_sign::{Material, Token, TokenSignature, YardKey, keys_of};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The number of SHA-512 in OpenPGP and in the agent.
const SHA512: u8 = 10;
/// The longest answer, in bytes.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// The longest line (Assuan allows 1000 bytes).
const LINE_BYTES_MAX: u64 = 4096;
/// The most keys that are asked for.
const KEYS_MAX: usize = 1000;
/// How long an answer may take: its user may have to find the card.
const ANSWER_MAX: Duration = Duration::from_secs(120);

/// A private key behind an agent.
#[derive(Debug)]
pub struct AgentKey {
    socket: PathBuf,
    fingerprint: String,
    /// The agent's name for it, in hexadecimal digits.
    grip: String,
    material: Material,
}

/// Opens the key of an agent that a certificate is for: the last of its keys that the agent has.
///
/// # Errors
/// A clause: no agent, or none of the certificate's keys.
pub fn open(socket: &Path, certificate: &[u8]) -> Result<YardKey, String> {
    let wanted = keys_of(certificate).map_err(|error| error.to_string())?;
    let mut agent = Agent::connect(socket)?;
    let mut found: Option<(usize, String, Material)> = None;
    for grip in agent.grips()? {
        // A key that was removed meanwhile, or of an algorithm without a place here, is another one.
        let Ok(Some(material)) = agent.material(&grip) else { continue };
        let place = wanted.iter().rposition(|(_, wanted)| wanted.as_ref() == Some(&material));
        if let Some(place) = place
            && found.as_ref().is_none_or(|(best, ..)| *best < place)
        {
            found = Some((place, grip, material));
        }
    }
    let (place, grip, material) =
        found.ok_or("the agent has none of the certificate's keys; is the card there?")?;
    let token = AgentKey { socket: socket.to_owned(), fingerprint: wanted[place].0.clone(), grip, material };
    YardKey::with_token(certificate, Box::new(token)).map_err(|error| error.to_string())
}

impl Token for AgentKey {
    fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    fn sign(&self, sha512: &[u8]) -> Result<TokenSignature, String> {
        let mut agent = Agent::connect(&self.socket)?;
        agent.ask(&format!("SIGKEY {}", self.grip))?;
        let digest: String = sha512.iter().map(|byte| format!("{byte:02X}")).collect();
        agent.ask(&format!("SETHASH {SHA512} {digest}"))?;
        let answer = agent.ask("PKSIGN")?;
        let unreadable = || "the agent's signature cannot be read".to_owned();
        let list = List::parse(&answer).ok_or_else(unreadable)?;
        let (r, s) = (list.value(b"r"), list.value(b"s"));
        match (&self.material, r, s) {
            (Material::Rsa { .. }, None, Some(s)) => Ok(TokenSignature::Rsa(s.to_vec())),
            (Material::Rsa { .. }, ..) | (_, None, _) | (_, _, None) => Err(unreadable()),
            (material, Some(r), Some(s)) => {
                let half = if matches!(material, Material::P384(_)) { 48 } else { 32 };
                let (r, s) =
                    (padded(r, half).ok_or_else(unreadable)?, padded(s, half).ok_or_else(unreadable)?);
                Ok(TokenSignature::Pair([r, s].concat()))
            }
        }
    }
}

/// A number with this many bytes.
fn padded(number: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let number = &number[number.iter().take_while(|byte| **byte == 0).count()..];
    let zeros = bytes.checked_sub(number.len())?;
    Some([&vec![0; zeros][..], number].concat())
}

/// A connection to an agent.
struct Agent {
    from: BufReader<UnixStream>,
    to: UnixStream,
}

impl Agent {
    fn connect(socket: &Path) -> Result<Agent, String> {
        let connect = || -> io::Result<Agent> {
            let to = UnixStream::connect(socket)?;
            to.set_read_timeout(Some(ANSWER_MAX))?;
            Ok(Agent { from: BufReader::new(to.try_clone()?), to })
        };
        let mut agent =
            connect().map_err(|error| format!("no agent answers at {}: {error}", socket.display()))?;
        agent.answer()?;
        Ok(agent)
    }

    fn ask(&mut self, line: &str) -> Result<Vec<u8>, String> {
        let written = self.to.write_all(format!("{line}\n").as_bytes());
        written.map_err(|error| format!("the agent is gone: {error}"))?;
        self.answer()
    }

    /// Reads the lines up to OK. Returns their data.
    fn answer(&mut self) -> Result<Vec<u8>, String> {
        let mut data = Vec::new();
        loop {
            let mut line = Vec::new();
            let read = io::Read::take(&mut self.from, LINE_BYTES_MAX).read_until(b'\n', &mut line);
            match read {
                Ok(0) => return Err("the agent is gone".to_owned()),
                Ok(_) => {}
                Err(error) => return Err(format!("the agent does not answer: {error}")),
            }
            let line = line.strip_suffix(b"\n").ok_or("the agent's line is too long")?;
            match line {
                _ if line == b"OK" || line.starts_with(b"OK ") => return Ok(data),
                _ if line.starts_with(b"ERR ") => {
                    let text = String::from_utf8_lossy(&line[4..]);
                    let text = text.split_once(' ').map_or(&*text, |(_, text)| text);
                    return Err(format!("the agent says: {text}"));
                }
                [b'D', b' ', rest @ ..] => {
                    unescape(rest, &mut data).ok_or("the agent's data cannot be read")?
                }
                [b'S', b' ', rest @ ..] => {
                    data.extend_from_slice(rest);
                    data.push(b'\n');
                }
                // The agent tells that it asks its user for a PIN, or wants data that it needs not here.
                _ if line.starts_with(b"INQUIRE ") => {
                    self.to.write_all(b"END\n").map_err(|error| format!("the agent is gone: {error}"))?;
                }
                _ => {}
            }
            if data.len() > ANSWER_BYTES_MAX {
                return Err("the agent's answer is too long".to_owned());
            }
        }
    }

    /// The names of all keys.
    fn grips(&mut self) -> Result<Vec<String>, String> {
        let answer = self.ask("KEYINFO --list")?;
        let text = String::from_utf8_lossy(&answer).into_owned();
        let grip = |line: &str| Some(line.strip_prefix("KEYINFO ")?.split(' ').next()?.to_owned());
        let is_grip = |grip: &String| grip.len() == 40 && grip.bytes().all(|byte| byte.is_ascii_hexdigit());
        Ok(text.lines().filter_map(grip).filter(is_grip).take(KEYS_MAX).collect())
    }

    fn material(&mut self, grip: &str) -> Result<Option<Material>, String> {
        let answer = self.ask(&format!("READKEY {grip}"))?;
        let Some(list) = List::parse(&answer) else { return Ok(None) };
        Ok(match (list.value(b"curve"), list.value(b"q"), list.value(b"n"), list.value(b"e")) {
            (_, _, Some(modulus), Some(exponent)) => {
                let bare =
                    |bytes: &[u8]| bytes[bytes.iter().take_while(|byte| **byte == 0).count()..].to_vec();
                Some(Material::Rsa { modulus: bare(modulus), exponent: bare(exponent) })
            }
            (Some(b"Ed25519"), Some(point), ..) => {
                let point = point.strip_prefix(&[0x40]).unwrap_or(point);
                (point.len() == 32).then(|| Material::Ed25519(point.to_vec()))
            }
            (Some(b"NIST P-256"), Some(point), ..) if point.len() == 65 => {
                Some(Material::P256(point.to_vec()))
            }
            (Some(b"NIST P-384"), Some(point), ..) if point.len() == 97 => {
                Some(Material::P384(point.to_vec()))
            }
            _ => None,
        })
    }
}

/// Data of Assuan: `%XX` stands for a byte.
fn unescape(line: &[u8], data: &mut Vec<u8>) -> Option<()> {
    let mut rest = line;
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) => {
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                data.push((digit(high)? * 16 + digit(low)?) as u8);
                after
            }
            (b'%', _) => return None,
            (byte, after) => {
                data.push(*byte);
                after
            }
        };
    }
    Some(())
}

/// An S-expression in canonical form: only its innermost lists of a name and a value are of interest.
struct List<'a>(Vec<(&'a [u8], &'a [u8])>);

impl<'a> List<'a> {
    fn parse(bytes: &'a [u8]) -> Option<List<'a>> {
        let (mut rest, mut pairs, mut atoms) = (bytes, Vec::new(), Vec::new());
        while let [first, after @ ..] = rest {
            rest = match first {
                b'(' => {
                    atoms.clear();
                    after
                }
                b')' => {
                    if let [name, value] = atoms[..] {
                        pairs.push((name, value));
                    }
                    atoms.clear();
                    after
                }
                b'0'..=b'9' => {
                    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
                    let length: usize = std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()?;
                    let after = rest[digits..].strip_prefix(b":")?;
                    atoms.push(after.get(..length)?);
                    &after[length..]
                }
                _ => return None,
            };
        }
        Some(List(pairs))
    }

    fn value(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.0.iter().find(|(found, _)| *found == name).map(|(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_or_refused() {
        let list = List::parse(b"(7:sig-val(5:eddsa(1:r2:ab)(1:s3:)x()))").unwrap();
        assert_eq!(
            (list.value(b"r"), list.value(b"s"), list.value(b"t")),
            (Some(&b"ab"[..]), Some(&b")x("[..]), None)
        );
        for text in ["(1:", "(9:a)", "(x)", "(99999999999999999999:a)", "1a"] {
            assert!(List::parse(text.as_bytes()).is_none(), "{text}");
        }
        let mut data = Vec::new();
        assert_eq!((unescape(b"a%25%0Ab", &mut data), &data[..]), (Some(()), &b"a%\nb"[..]));
        assert!(unescape(b"%2", &mut data).is_none() && unescape(b"%zz", &mut data).is_none());
        assert_eq!(padded(&[0, 0, 1], 2), Some(vec![0, 1]));
        assert_eq!(padded(&[1, 2, 3], 2), None);
    }
}
