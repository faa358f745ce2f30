//! A Debian package of about 4 KiB, written without its tools: an ar(5) archive of two tar files (deb(5)).

use std::fmt::Write;

/// The size of the file in the package.
const CONTENT_BYTES: usize = 1500;

/// The bytes of a package with this name and version.
pub fn package(name: &str, version: &str, architecture: &str) -> Vec<u8> {
    let control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: Bench <bench@localhost>\n\
         Installed-Size: 4\nSection: libs\nPriority: optional\nDescription: a package of a benchmark\n"
    );
    let content = format!("{name}\n").repeat(CONTENT_BYTES / (name.len() + 1));
    let control = tar(&[("./", None), ("./control", Some(&control))]);
    let data = tar(&[
        ("./", None),
        ("./usr/", None),
        ("./usr/share/", None),
        ("./usr/share/sham/", None),
        (&format!("./usr/share/sham/{name}"), Some(&content)),
    ]);
    let mut archive = b"!<arch>\n".to_vec();
    for (member, bytes) in [("debian-binary", &b"2.0\n"[..]), ("control.tar", &control), ("data.tar", &data)]
    {
        let header = format!("{member:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, "100644", bytes.len());
        archive.extend(header.as_bytes());
        archive.extend(bytes);
        if bytes.len() % 2 == 1 {
            archive.push(b'\n');
        }
    }
    archive
}

/// A tar file (ustar, tar(5)) of folders and files of root.
fn tar(members: &[(&str, Option<&str>)]) -> Vec<u8> {
    let mut archive = Vec::new();
    for (name, content) in members {
        let mut header = [0u8; 512];
        let mut put = |at: usize, text: &str| header[at..at + text.len()].copy_from_slice(text.as_bytes());
        let bytes = content.unwrap_or_default().as_bytes();
        put(0, name);
        put(100, if content.is_some() { "0000644" } else { "0000755" });
        put(108, "0000000");
        put(116, "0000000");
        let mut number = String::new();
        let _ = write!(number, "{:011o}", bytes.len());
        put(124, &number);
        put(136, "00000000000");
        put(148, "        ");
        put(156, if content.is_some() { "0" } else { "5" });
        put(257, "ustar\u{0}00");
        put(265, "root");
        put(297, "root");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        let text = format!("{sum:06o}\u{0} ");
        header[148..156].copy_from_slice(text.as_bytes());
        archive.extend(header);
        archive.extend(bytes);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

#[cfg(test)]
mod tests {
    use super::*;
    use kilnyard_ecosystem::OutputBounds;
    use kilnyard_model::order::FamilyOrder;

    #[test]
    fn it_is_a_package() {
        let folder = tempfile::tempdir().unwrap();
        let bytes = package("sham-0001", "1+bk1", "amd64");
        assert!((3000..8000).contains(&bytes.len()), "{}", bytes.len());
        std::fs::write(folder.path().join("sham-0001_1+bk1_amd64.deb"), bytes).unwrap();
        let facts = [("suffix".to_owned(), "+bk".to_owned())].into_iter().collect();
        let rules = kilnyard_ecosystem::rules(&FamilyOrder { name: "debian".to_owned(), facts }).unwrap();
        let outputs = rules.read_outputs(folder.path(), OutputBounds::WIDEST).unwrap();
        assert_eq!((outputs.len(), &*outputs[0].name, &*outputs[0].version), (1, "sham-0001", "1+bk1"));
    }
}
