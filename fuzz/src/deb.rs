//! Debian's package files. The first byte of an input selects the part of the file that is the input: the whole file,
//! its two archives, or only the text of the control file. Mutations thus also reach the code after sizes and
//! checksums.

use kilnyard_ecosystem::debian::deb822::Stanza;
use kilnyard_ecosystem::debian::{Layers, deb_file};
use kilnyard_ecosystem::{Layering, OutputBounds, Part, Stack};
use kilnyard_model::order::Dependency;
use sha2::{Digest, Sha256};
use std::path::Path;

/// A folder in memory, because a campaign writes thousands of files per second.
pub(crate) const SCRATCH: &str = "/dev/shm";

/// The facts read are those of the file. The content digest does not depend on the version that a rebuild gives it.
pub fn deb_file(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    match kind {
        b'r' => drop(read(data)),
        b't' => {
            let half = data.windows(4).position(|four| four == b"\n%%\n").unwrap_or(data.len());
            let (control, data) = data.split_at(half);
            read(&archive(&with_checksums(control), &with_checksums(data.get(4..).unwrap_or_default())));
        }
        _ => of_control(data),
    }
}

/// Reads the file; `None` if it is rejected.
fn read(bytes: &[u8]) -> Option<deb_file::DebFile> {
    let file = tempfile::NamedTempFile::new_in(SCRATCH).unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    be_a_layer(file.path());
    let deb = deb_file::read(file.path()).ok()?;
    let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((deb.sha256.as_str(), deb.size_bytes), (hash.as_str(), bytes.len() as u64));
    assert_eq!(deb.content.len(), 64);
    let version = Stanza::new(&deb.control).get("Version").expect("a version");
    assert_eq!(deb_file::content_digest(file.path(), version).ok().as_ref(), Some(&deb.content));
    // Reading it as a rebuild works too, and only the rebuild's number may be ignored.
    let rebuilt =
        deb_file::read_rebuilt(file.path(), "+bk", OutputBounds::WIDEST).expect("it was read before");
    assert_eq!((&rebuilt.sha256, &rebuilt.control), (&deb.sha256, &deb.control));
    assert!(rebuilt == deb || deb.control.contains("+bk"));
    Some(deb)
}

/// A package that can be a layer yields one paragraph of dpkg's database, and paths that stay in the layer.
fn be_a_layer(file: &Path) {
    let Ok(description) = Layers.describe(file) else { return };
    let package = Dependency {
        name: "x".into(),
        version: "1".into(),
        file: "x.deb".into(),
        sha256: "0".into(),
        is_signed: false,
    };
    let part = Part { package: &package, description: &description };
    let below = Stack { layers: &[], user_inside: &|_| None, group_inside: &|_| None };
    let composition = Layers
        .compose(&below, &|| Ok(Vec::new()), &[part])
        .expect("composing must not read the layers below");
    assert_eq!(composition.layered.len() + composition.by_manager.len(), 1);
    if !composition.layered.is_empty() {
        let status = &composition.texts[0].text;
        assert_eq!(status.matches("\n\n").count(), 1, "{status:?}");
        assert_eq!(status.matches("\nStatus: ").count(), 1, "{status:?}");
        let (places, unpacking) = Layers.unpack(&[part]);
        assert_eq!(places, [0]);
        let list = &unpacking.texts[0].text;
        assert!(list.lines().all(|path| path.starts_with('/') && !path.contains("/../")), "{list:?}");
    }
}

/// A package whose control file is the input: the text is returned unchanged, and a new version alone does not
/// change the content digest.
fn of_control(control: &[u8]) {
    let package = |control: &[u8]| archive(&tar("./control", control), &tar("./usr/bin/x", b"x"));
    let Some(deb) = read(&package(control)) else { return };
    assert_eq!(deb.control.as_bytes(), control);
    let lines = deb.control.lines().filter(|line| line.to_ascii_lowercase().starts_with("version:"));
    let Ok([line]) = <[&str; 1]>::try_from(lines.collect::<Vec<_>>()) else { return };
    // Only for a control file that contains nothing but a version: elsewhere the version may be part of a name.
    if deb.control.matches(line).count() == 1 && deb.control.len() == line.len() + 1 {
        let bumped = deb.control.replace(line, "Version: 77.8-9");
        let bumped = read(&package(bumped.as_bytes())).expect("a package with a new version");
        assert_eq!(bumped.content, deb.content, "{:?}", deb.control);
    }
}

fn archive(control: &[u8], data: &[u8]) -> Vec<u8> {
    let mut archive = b"!<arch>\n".to_vec();
    for (name, content) in [("debian-binary", &b"2.0\n"[..]), ("control.tar", control), ("data.tar", data)] {
        let header = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 100644, content.len());
        archive.extend_from_slice(header.as_bytes());
        archive.extend_from_slice(content);
        archive.extend((content.len() % 2 == 1).then_some(b'\n'));
    }
    archive
}

pub(crate) const BLOCK_BYTES: usize = 512;

/// An archive with one file and an end mark.
pub(crate) fn tar(name: &str, content: &[u8]) -> Vec<u8> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, name);
    put(100, "0000644\0");
    put(108, "0000000\0");
    put(116, "0000000\0");
    put(124, &format!("{:011o}\0", content.len()));
    put(136, "00000000000\0");
    put(156, "0");
    put(257, "ustar\x0000");
    block.extend_from_slice(content);
    block.resize(block.len().next_multiple_of(BLOCK_BYTES) + 2 * BLOCK_BYTES, 0);
    with_checksums(&block)
}

/// The archive with correct checksums in its headers, as far as its sizes lead to them.
pub(crate) fn with_checksums(archive: &[u8]) -> Vec<u8> {
    let mut archive = archive.to_vec();
    let mut at = 0;
    while let Some(block) = archive.get_mut(at..at + BLOCK_BYTES) {
        if block.iter().all(|byte| *byte == 0) {
            break;
        }
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        let digits = block[124..136].iter().take_while(|byte| matches!(byte, b'0'..=b'7'));
        let size = digits.fold(0usize, |size, digit| size.saturating_mul(8) + usize::from(digit - b'0'));
        at = at.saturating_add(BLOCK_BYTES).saturating_add(size.min(1 << 32).next_multiple_of(BLOCK_BYTES));
    }
    archive
}
