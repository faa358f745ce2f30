//! Packages with a single fault, and the resulting errors.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use kilnyard_ecosystem::ArchiveProblem;
use kilnyard_ecosystem::pkgsrc::package_file::{self, PackageProblem};
use tar::EntryType as Type;

use crate::support::{PACKERS, Package, TOOLS, lacks, read, run, small_package, tar_of};

const BLOCK_BYTES: usize = 512;

fn problem(bytes: &[u8]) -> PackageProblem {
    read(bytes).expect_err("refused")
}

#[test]
fn every_truncated_file_is_refused() {
    if lacks("every_truncated_file_is_refused", &TOOLS) {
        return;
    }
    let mut package = Package::new();
    // Small enough to take less than a minute, but large enough that compression leaves something to cut.
    let noise: Vec<u8> =
        (0..6000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_be_bytes()).collect();
    package.add("bin/kiln", &noise, 0o755);
    for packer in PACKERS {
        let good = fs::read(package.build(packer, &[])).unwrap();
        read(&good).unwrap();
        let near_the_end = good.len() - 20..good.len();
        let mut refused = 0;
        for length in (0..good.len()).step_by(BLOCK_BYTES).chain(near_the_end) {
            match read(&good[..length]) {
                Err(_) => refused += 1,
                // The padding after the end marker is not part of an archive.
                Ok(_) => {
                    assert_eq!(packer, "none", "cut at {length} of {}", good.len());
                    assert!(good[length..].iter().all(|byte| *byte == 0));
                    assert!(good[..length].ends_with(&[0; 2 * BLOCK_BYTES]), "cut at {length}");
                }
            }
        }
        assert!(refused > 15, "{packer}: {refused}");
        let mut longer = good.clone();
        longer.extend_from_slice(b"something else");
        assert!(read(&longer).is_err(), "{packer} with bytes after its end");
    }
    // Zeros at the end of a file do not count as an end marker.
    let zeros = small_package(&[(Type::Regular, "zeros", &[0; 4096])]);
    assert!(matches!(problem(&zeros[..zeros.len() - 2 * BLOCK_BYTES]), PackageProblem::CutOff));
    assert!(matches!(problem(&zeros[..zeros.len() - BLOCK_BYTES]), PackageProblem::CutOff));
    read(&zeros).unwrap();
}

#[test]
fn a_corrupt_byte_in_a_compressed_file_is_found() {
    if lacks("a_corrupt_byte_in_a_compressed_file_is_found", &TOOLS) {
        return;
    }
    let package = Package::new();
    for packer in ["gzip", "xz", "zstd"] {
        let good = fs::read(package.build(packer, &[])).unwrap();
        for step in 1..8 {
            let mut corrupt = good.clone();
            corrupt[good.len() * step / 8] ^= 0x40;
            let found = problem(&corrupt);
            assert!(matches!(found, PackageProblem::Archive(_)), "{packer}: {found}");
        }
    }
}

#[test]
fn files_that_are_not_packages_are_identified() {
    let said = |bytes: &[u8]| {
        let problem = problem(bytes);
        let source = std::error::Error::source(&problem).map(|source| format!(": {source}"));
        format!("{problem}{}", source.unwrap_or_default())
    };
    assert_eq!(said(b""), "it is empty");
    assert!(said(b"!<arch>\n+PKG_HASH").contains("signed package"));
    assert!(said(b"BZh91AY&SY").contains("compressed with bzip2"));
    assert!(said(b"<html>404 not found</html>").contains("its archive is damaged"));
    assert!(said(&[b'x'; 4096]).contains("its archive is damaged"));
    assert!(said(&[0; 10_240]).contains("no +CONTENTS"), "an archive of nothing");
    for magic in [&b"\x1f\x8b"[..], b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"] {
        assert!(said(magic).contains("its archive is damaged"));
        assert!(
            said(&[magic, b"and something else that is longer"].concat()).contains("its archive is damaged")
        );
    }
    let error = package_file::read(Path::new("/nonexistent/x.tgz")).unwrap_err();
    assert_eq!(error.to_string(), "open the package file /nonexistent/x.tgz");
}

#[test]
fn metadata_must_come_once_and_first() {
    let file = |name: &'static str, text: &'static [u8]| (Type::Regular, name, text);
    let all = [file("+CONTENTS", b"@name a-1\n"), file("+COMMENT", b"a\n"), file("+DESC", b"a\n")];
    read(&tar_of(&all)).unwrap();
    for (number, (_, missing, _)) in all.iter().enumerate() {
        let mut others = all.to_vec();
        others.remove(number);
        assert!(matches!(problem(&tar_of(&others)), PackageProblem::Missing { name } if name == *missing));
        let mut late = others.clone();
        late.extend([file("bin/a", b"a"), all[number]]);
        assert!(matches!(problem(&tar_of(&late)), PackageProblem::Late { name } if name == *missing));
        let twice = [&all[..], &[all[number]]].concat();
        assert!(matches!(problem(&tar_of(&twice)), PackageProblem::Twice { name } if name == *missing));
        let mut cut_by_zero = others.clone();
        cut_by_zero.push(file(missing, b"@name a-1\n\0\n"));
        assert!(
            matches!(problem(&tar_of(&cut_by_zero)), PackageProblem::NotText { name } if name == *missing)
        );
        others.push((Type::Directory, missing, b""));
        assert!(matches!(problem(&tar_of(&others)), PackageProblem::NotText { name } if name == *missing));
    }
    let named = |list: &'static [u8]| problem(&tar_of(&[file("+CONTENTS", list), all[1], all[2]]));
    assert!(matches!(named(b"bin/a\n"), PackageProblem::NameCount { count: 0 }));
    assert!(matches!(named(b"@name a-1\n@name b-1\n"), PackageProblem::NameCount { count: 2 }));
    assert!(matches!(named(b"@name ../../a-1\n"), PackageProblem::Name { .. }));
}

#[test]
fn paths_that_lead_out_are_refused() {
    let refused = |bytes: &[u8]| match problem(bytes) {
        PackageProblem::Archive(ArchiveProblem::Entry { path, .. }) => path,
        other => panic!("{other}"),
    };
    for path in ["../etc/passwd", "bin/../../etc/passwd", "/etc/passwd", "bin/.."] {
        assert_eq!(refused(&small_package(&[(Type::Regular, path, b"x")])), path);
    }
    assert_eq!(refused(&small_package(&[(Type::Regular, "./../etc", b"x")])), "../etc");
    let link = |kind: Type, target: &str| {
        let mut bytes = small_package(&[(kind, "bin/link", b"")]);
        let at = bytes.windows(8).position(|eight| eight == b"bin/link").unwrap();
        bytes[at + 157..at + 157 + target.len()].copy_from_slice(target.as_bytes());
        let header: &mut [u8] = &mut bytes[at..at + BLOCK_BYTES];
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        bytes
    };
    assert_eq!(refused(&link(Type::Link, "/etc/passwd")), "bin/link");
    assert_eq!(refused(&link(Type::Link, "../../etc/passwd")), "bin/link");
    read(&link(Type::Symlink, "../../etc/passwd")).unwrap();
}

#[test]
fn absurd_sizes_are_refused_before_anything_is_stored() {
    let sized = |path: &str, size_bytes: u64| {
        let mut header = tar::Header::new_gnu();
        header.set_path(path).unwrap();
        header.set_size(size_bytes);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();
        problem(&[header.as_bytes(), &b"a few bytes"[..]].concat())
    };
    for size_bytes in [65 << 20, 1 << 40, u64::MAX >> 1, u64::MAX] {
        for path in ["+CONTENTS", "bin/a"] {
            let found = sized(path, size_bytes);
            assert!(matches!(found, PackageProblem::Archive(_)), "{path}, {size_bytes}: {found}");
        }
    }
    let found = sized("+CONTENTS", 65 << 20);
    assert!(matches!(found, PackageProblem::Archive(ArchiveProblem::TooLarge { .. })), "{found}");
    let found = problem(&tar_of(&[(Type::XHeader, "a", &vec![b'x'; 1 << 20])]));
    assert!(matches!(found, PackageProblem::Archive(ArchiveProblem::TooLarge { .. })), "{found}");
    let found = problem(&small_package(&[(Type::GNUSparse, "a", b"")]));
    assert!(matches!(found, PackageProblem::Archive(ArchiveProblem::Entry { .. })), "{found}");
}

#[test]
fn a_gigabyte_of_zeros_is_stopped_early() {
    let test = "a_gigabyte_of_zeros_is_stopped_early";
    if lacks(test, &TOOLS) {
        return;
    }
    let mut package = Package::new();
    package.add("share/zeros", b"", 0o644);
    fs::File::options().write(true).open(package.path("share/zeros")).unwrap().set_len(1 << 30).unwrap();
    let tar = package.directory.path().join("tar");
    run(Command::new("tar")
        .args(["--create", "--file"])
        .arg(&tar)
        .arg("--directory")
        .arg(package.path(""))
        .args(&package.names));
    for packer in ["gzip", "zstd"] {
        let bomb = run(Command::new(packer).args(["-1", "--stdout"]).arg(&tar));
        assert!(bomb.len() < 10 << 20, "{packer}: {} bytes", bomb.len());
        match problem(&bomb) {
            PackageProblem::Archive(ArchiveProblem::Content { source, .. }) => {
                assert!(source.to_string().contains("unpacks to more than the limit"), "{packer}: {source}");
            }
            other => panic!("{packer}: {other}"),
        }
    }
    // A few megabytes of zeros are harmless.
    let zeros = small_package(&[(Type::Regular, "zeros", &vec![0; 8 << 20])]);
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&zeros).unwrap();
    read(&encoder.finish().unwrap()).unwrap();
}
