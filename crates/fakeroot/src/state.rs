//! Saved sessions, in fakeroot's own text format, so that each program can load the other's states.
//!
//! The file has a line for each changed file, in fakeroot's format; after all of them come additional lines for
//! facts that fakeroot does not keep (birth times, attributes). fakeroot stops reading at the first of these, which
//! does no harm.
//!
//! ```text
//! dev=fe01,ino=1234,mode=100644,uid=0,gid=0,nlink=1,rdev=0
//! # born dev=fe01,ino=1234,nanoseconds=1700000000000000000
//! # attribute dev=fe01,ino=1234,name=7365...,value=0102...      (both in hexadecimal; value=- for none)
//! ```

use crate::shared::attributes::{self, ABSENT};
use crate::shared::mapping::Mapping;
use crate::shared::ownership::{narrow_number, pack_number, unpack_number, wide_number};
use crate::shared::table::{Entry, FileId, Table};
use std::collections::BTreeMap;
use std::fmt::Write;

/// A line that is not part of a saved state.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid line {line} in a saved fakeroot state: {text}")]
pub struct StateError {
    /// The line number, from 1.
    pub line: usize,
    /// The start of the line.
    pub text: String,
}

/// A file of a saved session.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Saved {
    /// The entry, without its attributes.
    pub entry: Entry,
    /// The attributes by name; `None` for one that appears absent.
    pub attributes: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
}

/// A saved session, in the order of devices and inodes.
pub type State = BTreeMap<FileId, Saved>;

/// Parses a saved session.
pub fn parse(text: &str) -> Result<State, StateError> {
    let mut state = State::new();
    for (number, line) in text.lines().enumerate() {
        if !line.is_empty() {
            let error = || StateError { line: number + 1, text: line.chars().take(80).collect() };
            parse_line(line, &mut state).ok_or_else(error)?;
        }
    }
    Ok(state)
}

fn parse_line(line: &str, state: &mut State) -> Option<()> {
    const DECIMAL: u32 = 10;
    const HEXADECIMAL: u32 = 16;
    const OCTAL: u32 = 8;
    let mut rest =
        line.strip_prefix("# born ").or(line.strip_prefix("# attribute ")).unwrap_or(line).split(',');
    let mut field = |name: &str| rest.next()?.strip_prefix(name)?.strip_prefix('=');
    let mut number = |name: &str, radix: u32| u64::from_str_radix(field(name)?, radix).ok();
    let key = FileId { device: number("dev", HEXADECIMAL)?, inode: number("ino", DECIMAL)? };
    if line.starts_with("# born ") {
        state.get_mut(&key)?.entry.birth = number("nanoseconds", DECIMAL)?;
    } else if line.starts_with("# attribute ") {
        let name = unhex(field("name")?)?;
        let value = match field("value")? {
            "-" => None,
            value => Some(unhex(value)?),
        };
        state.get_mut(&key)?.attributes.insert(name, value);
    } else {
        let mode = number("mode", OCTAL)?;
        let (user, group) = (number("uid", DECIMAL)?, number("gid", DECIMAL)?);
        let links = number("nlink", DECIMAL)?;
        let (major, minor) = narrow_number(number("rdev", DECIMAL)?);
        let entry = Entry {
            user: user.try_into().ok()?,
            group: group.try_into().ok()?,
            mode: mode.try_into().ok()?,
            number: pack_number(major, minor),
            links,
            ..Entry::default()
        };
        state.insert(key, Saved { entry, attributes: BTreeMap::new() });
    }
    rest.next().is_none().then_some(())
}

/// Formats a session for saving.
pub fn format(state: &State) -> String {
    let mut text = String::new();
    for (FileId { device, inode }, Saved { entry, .. }) in state {
        let (major, minor) = unpack_number(entry.number);
        let (Entry { mode, user, group, links, .. }, number) = (entry, wide_number(major, minor));
        let _ = writeln!(
            text,
            "dev={device:x},ino={inode},mode={mode:o},uid={user},gid={group},nlink={links},rdev={number}"
        );
    }
    for (FileId { device, inode }, Saved { entry, attributes }) in state {
        if entry.birth != 0 {
            let _ = writeln!(text, "# born dev={device:x},ino={inode},nanoseconds={}", entry.birth);
        }
        for (name, value) in attributes {
            let value = value.as_ref().map_or("-".to_owned(), |value| hex(value));
            let _ = writeln!(text, "# attribute dev={device:x},ino={inode},name={},value={value}", hex(name));
        }
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digit = |letter: &u8| char::from(*letter).to_digit(16);
    let pairs = text.as_bytes().chunks(2);
    pairs.map(|pair| Some((digit(pair.first()?)? << 4 | digit(pair.get(1)?)?) as u8)).collect()
}

/// The state that a table holds.
pub fn of(table: &Table<Mapping>) -> State {
    let mut state = State::new();
    table.visit(|key, entry| {
        let memory = table.memory();
        let list = attributes::all(memory, entry.attributes);
        let attributes = list.map(|attribute| {
            let mut name = vec![0; attribute.name_bytes as usize];
            attributes::copy_name(memory, &attribute, &mut name);
            let value = (attribute.value_bytes != ABSENT).then(|| {
                let mut value = vec![0; attribute.value_bytes as usize];
                attributes::copy_value(memory, &attribute, &mut value);
                value
            });
            (name, value)
        });
        state.insert(key, Saved { entry, attributes: attributes.collect() });
    });
    state
}

/// Adds a saved session to a table.
pub fn restore(state: &State, table: &Table<Mapping>) -> Result<(), crate::shared::memory::Full> {
    for (key, saved) in state {
        let mut list = 0;
        for (name, value) in &saved.attributes {
            list = attributes::with(table.memory(), list, name, value.as_deref())?;
        }
        table.restore(*key, Entry { attributes: list, ..saved.entry })?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_of_fakeroot_round_trips() {
        let text = "dev=fe01,ino=12,mode=100755,uid=5,gid=6,nlink=2,rdev=0\n\
                    dev=fe01,ino=13,mode=20644,uid=0,gid=0,nlink=1,rdev=259\n";
        let state = parse(text).unwrap();
        let device = &state[&FileId { device: 0xfe01, inode: 13 }].entry;
        assert_eq!(unpack_number(device.number), (1, 3));
        assert_eq!(format(&state), text);
    }

    #[test]
    fn birth_times_and_attributes_round_trip() {
        let mut state = State::new();
        let entry = Entry { user: 1, mode: 0o100_644, birth: 1_700_000_000_123_456_789, ..Entry::default() };
        let attributes = [(b"security.x".to_vec(), Some(vec![0, 255])), (b"trusted.y".to_vec(), None)];
        state.insert(FileId { device: 1, inode: 2 }, Saved { entry, attributes: attributes.into() });
        assert_eq!(parse(&format(&state)), Ok(state));
    }

    #[test]
    fn other_lines_are_rejected_with_their_number() {
        let good = "dev=1,ino=2,mode=100644,uid=0,gid=0,nlink=1,rdev=0";
        for bad in [
            "x",
            "dev=1",
            "dev=1,ino=2,mode=9,uid=0,gid=0,nlink=1,rdev=0",
            "# born dev=7,ino=7,nanoseconds=1",
        ] {
            let error = parse(&format!("{good}\n{bad}\n")).unwrap_err();
            assert_eq!((error.line, error.text.as_str()), (2, bad));
        }
        assert!(parse(&format!("{good},more=1")).is_err());
    }
}
