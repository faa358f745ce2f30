//! Small sources and packages for builds that only wait, written without dpkg: a package of about 4 KiB is an ar(5)
//! archive of two tar files (deb(5)).

use kilnyard_model::sha256::Sha256Hex;
use std::fmt::Write;
use std::io;
use std::path::Path;

/// The rule of a yard's packages that selects the sources in its folder `own`.
pub const RULE: &str = "own/*.dsc";
/// The architecture of the packages.
const ARCHITECTURE: &str = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };

/// The size of the file in the package.
const CONTENT_BYTES: usize = 1500;

/// Writes a source package of one package, which needs these to build.
pub fn write_source(folder: &Path, name: &str, needs: &[String]) -> io::Result<()> {
    let (file, content) = (format!("{name}_1.tar.xz"), format!("the source of {name}\n"));
    fs_err::write(folder.join(&file), &content)?;
    let mut text = format!(
        "Format: 3.0 (native)\nSource: {name}\nBinary: {name}\nArchitecture: any\nVersion: 1\n\
         Maintainer: Bench <bench@localhost>\nStandards-Version: 4.6.2\n"
    );
    if !needs.is_empty() {
        let _ = writeln!(text, "Build-Depends: {}", needs.join(", "));
    }
    let _ = write!(
        text,
        "Package-List:\n {name} deb libs optional arch=any\nChecksums-Sha256:\n {} {} {file}\n",
        Sha256Hex::of(content.as_bytes()),
        content.len()
    );
    fs_err::write(folder.join(format!("{name}_1.dsc")), text)
}

/// Writes the package of a build.
pub fn write_package(folder: &Path, name: &str, version: &str) -> io::Result<()> {
    fs_err::write(folder.join(format!("{name}_{version}_{ARCHITECTURE}.deb")), package(name, version))
}

/// The bytes of a package with this name and version.
fn package(name: &str, version: &str) -> Vec<u8> {
    let control = format!(
        "Package: {name}\nVersion: {version}\nArchitecture: {ARCHITECTURE}\nMaintainer: Bench <bench@localhost>\n\
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
        write_package(folder.path(), "sham-0001", "1+bk1").unwrap();
        let bytes = package("sham-0001", "1+bk1").len();
        assert!((3000..8000).contains(&bytes), "{bytes}");
        let facts = [("suffix".to_owned(), "+bk".to_owned())].into_iter().collect();
        let rules = kilnyard_ecosystem::rules(&FamilyOrder { name: "debian".to_owned(), facts }).unwrap();
        let outputs = rules.read_outputs(folder.path(), OutputBounds::WIDEST).unwrap();
        assert_eq!((outputs.len(), &*outputs[0].name, &*outputs[0].version), (1, "sham-0001", "1+bk1"));
    }
}
