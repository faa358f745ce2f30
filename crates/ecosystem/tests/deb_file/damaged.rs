//! Packages with a single fault, and the resulting errors.

use std::io::Write as _;
use std::path::Path;

use kilnyard_ecosystem::debian::deb_file::{self, DebProblem};
use kilnyard_ecosystem::{ArchiveProblem, OutputBounds};

use crate::support::{CONTROL, Scratch, archive, control_tar, gzip, problem, tar_of};

#[test]
fn damaged_archives_are_reported() {
    let scratch = Scratch::new();
    let control = control_tar();
    let data = tar_of(&[(tar::EntryType::Regular, "./a", b"a")]);
    let good = archive(&[
        ("debian-binary", b"2.0\n"),
        ("control.tar", &control),
        ("data.tar/", &data),
        ("_sign", b"x"),
    ]);
    deb_file::read(&scratch.deb(&good)).unwrap();

    assert!(matches!(problem(&scratch.deb(b"")), DebProblem::NotAnArchive));
    assert!(matches!(problem(&scratch.deb(b"!<arch>X rest")), DebProblem::NotAnArchive));
    assert!(matches!(
        problem(&scratch.deb(b"!<arch>\n")),
        DebProblem::MissingMember { member: "debian-binary" }
    ));

    // Every truncated file is rejected, unless only the ignored member or padding is missing.
    let essential =
        archive(&[("debian-binary", b"2.0\n"), ("control.tar", &control), ("data.tar", &data)]).len();
    for length in 0..good.len() {
        let result = deb_file::read(&scratch.deb(&good[..length]));
        assert_eq!(
            result.is_ok(),
            length == essential || length == good.len() - 1,
            "cut at {length}: {result:?}"
        );
    }

    let mut huge = good.clone();
    huge[8 + 60 + 4 + 48..][..10].copy_from_slice(b"9999999999");
    match problem(&scratch.deb(&huge)) {
        DebProblem::MemberTooLong { member, claimed_bytes, .. } => {
            assert_eq!((member.as_str(), claimed_bytes), ("control.tar", 9_999_999_999));
        }
        other => panic!("{other}"),
    }
    let mut negative = good.clone();
    negative[8 + 60 + 4 + 48..][..10].copy_from_slice(b"-1        ");
    assert!(matches!(problem(&scratch.deb(&negative)), DebProblem::MemberHeader { offset: 72, .. }));

    let members = |members: &[(&str, &[u8])]| problem(&scratch.deb(&archive(members)));
    assert!(
        matches!(members(&[("debian-binary", b"3.0\n")]), DebProblem::FormatVersion { found } if found == "3.0")
    );
    assert!(matches!(
        members(&[("debian-binary", b"2.0\n"), ("data.tar", &data)]),
        DebProblem::UnexpectedMember { expected: "control.tar", .. }
    ));
    assert!(matches!(
        members(&[("debian-binary", b"2.0\n"), ("control.tar", &control), ("data.tar.bz2", b"BZh9")]),
        DebProblem::UnsupportedCompression { .. }
    ));
    for suffix in ["gz", "xz", "zst"] {
        for content in [b"".as_slice(), b"not compressed"] {
            assert!(matches!(
                members(&[("debian-binary", b"2.0\n"), (&format!("control.tar.{suffix}"), content)]),
                DebProblem::Archive(ArchiveProblem::Content { member: "control archive", .. })
            ));
        }
    }
    let many: Vec<(&str, &[u8])> = (0..40).map(|_| ("_x", b"".as_slice())).collect();
    assert!(matches!(members(&many), DebProblem::TooManyMembers { .. }));
}

#[test]
fn a_truncated_or_corrupt_compressed_member_is_damaged() {
    let scratch = Scratch::new();
    let data = tar_of(&[(
        tar::EntryType::Regular,
        "./a",
        &(0..200_000_u32).flat_map(u32::to_le_bytes).collect::<Vec<_>>(),
    )]);
    let compressed = [
        ("data.tar.gz", gzip(&data)),
        ("data.tar.xz", {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut liblzma::read::XzEncoder::new(data.as_slice(), 1), &mut bytes)
                .unwrap();
            bytes
        }),
        // The reference tool adds a checksum by default, and so must this encoder.
        ("data.tar.zst", {
            let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
            encoder.include_checksum(true).unwrap();
            encoder.write_all(&data).unwrap();
            encoder.finish().unwrap()
        }),
    ];
    for (name, good) in compressed {
        let read = |bytes: &[u8]| {
            deb_file::read(&scratch.deb(&archive(&[
                ("debian-binary", b"2.0\n"),
                ("control.tar", &control_tar()),
                (name, bytes),
            ])))
        };
        read(&good).unwrap();
        for length in [good.len() - 1, good.len() - 8, good.len() / 2, 20, 1] {
            assert!(read(&good[..length]).is_err(), "{name} cut at {length}");
        }
        let mut corrupt = good.clone();
        let middle = good.len() / 2;
        corrupt[middle] ^= 0x40;
        assert!(read(&corrupt).is_err(), "{name} corrupt");
        let mut longer = good.clone();
        longer.extend_from_slice(b"something else");
        assert!(read(&longer).is_err(), "{name} with bytes after its end");
    }
}

#[test]
fn hostile_tar_entries_are_refused() {
    use tar::EntryType as Type;
    let scratch = Scratch::new();
    let data = |entries: &[(Type, &str, &[u8])]| problem(&scratch.with_data(&tar_of(entries)));
    let control = |entries: &[(Type, &str, &[u8])]| {
        problem(&scratch.deb(&archive(&[("debian-binary", b"2.0\n"), ("control.tar", &tar_of(entries))])))
    };
    assert!(matches!(
        data(&[(Type::GNUSparse, "a", b"")]),
        DebProblem::Archive(ArchiveProblem::Entry { .. })
    ));
    assert!(matches!(
        data(&[(Type::XGlobalHeader, "a", b"")]),
        DebProblem::Archive(ArchiveProblem::Entry { .. })
    ));
    assert!(matches!(
        data(&[(Type::GNULongName, "a", b"name\0")]),
        DebProblem::Archive(ArchiveProblem::Entry { .. })
    ));
    assert!(matches!(
        data(&[(Type::GNULongName, "a", &[b'x'; 10_000])]),
        DebProblem::Archive(ArchiveProblem::TooLarge { .. })
    ));
    assert!(matches!(
        data(&[(Type::XHeader, "a", &vec![b'x'; 1 << 20])]),
        DebProblem::Archive(ArchiveProblem::TooLarge { .. })
    ));
    assert!(matches!(
        data(&[(Type::GNULongName, "a", b"./x/../../etc/passwd\0"), (Type::Regular, "a", b"")]),
        DebProblem::Archive(ArchiveProblem::Entry { .. })
    ));
    assert!(matches!(
        data(&[(Type::XHeader, "a", b"11 size=99\n"), (Type::Regular, "a", b"x")]),
        DebProblem::Archive(ArchiveProblem::Entry { .. })
    ));

    assert!(matches!(control(&[]), DebProblem::ControlFileCount { count: 0 }));
    assert!(matches!(
        control(&[(Type::Regular, "./control", CONTROL), (Type::Regular, "control", CONTROL)]),
        DebProblem::ControlFileCount { count: 2 }
    ));
    assert!(matches!(control(&[(Type::Regular, "control", b"Version: \xff\n")]), DebProblem::ControlNotText));
    assert!(matches!(control(&[(Type::Regular, "control", b"Package: a\n")]), DebProblem::NoVersion));
    assert!(matches!(
        control(&[(Type::Symlink, "control", b"")]),
        DebProblem::Archive(ArchiveProblem::Entry { .. })
    ));
    assert!(matches!(
        control(&[(Type::Regular, "control", &vec![b'a'; 5 << 20])]),
        DebProblem::Archive(ArchiveProblem::TooLarge { what: "control file", .. })
    ));
}

#[test]
fn an_endless_control_archive_is_stopped() {
    let scratch = Scratch::new();
    let mut header = tar::Header::new_gnu();
    header.set_path("templates").unwrap();
    header.set_size(1 << 40);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    header.set_cksum();
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(header.as_bytes()).unwrap();
    let zeros = vec![0; 1 << 20];
    for _ in 0..200 {
        encoder.write_all(&zeros).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 100_000);
    let found = problem(&scratch.deb(&archive(&[("debian-binary", b"2.0\n"), ("control.tar.zst", &bomb)])));
    assert!(
        matches!(found, DebProblem::Archive(ArchiveProblem::TooLarge { what: "control archive", .. })),
        "{found}"
    );

    // The same for a file whose bytes are skipped, where only the unpacked length can reveal it.
    header.set_path("md5sums").unwrap();
    header.set_cksum();
    let mut encoder = zstd::Encoder::new(Vec::new(), 1).unwrap();
    encoder.write_all(header.as_bytes()).unwrap();
    for _ in 0..200 {
        encoder.write_all(&zeros).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    let found = problem(&scratch.deb(&archive(&[("debian-binary", b"2.0\n"), ("control.tar.zst", &bomb)])));
    assert!(
        matches!(found, DebProblem::Archive(ArchiveProblem::Content { member: "control archive", .. })),
        "{found}"
    );
}

#[test]
fn a_missing_file_is_named() {
    let error = deb_file::read(Path::new("/nonexistent/x.deb")).unwrap_err();
    assert_eq!(error.to_string(), "open the package file /nonexistent/x.deb");
}

#[test]
fn a_package_unpacks_only_within_its_bounds() {
    let scratch = Scratch::new();
    let file = scratch.with_data(&tar_of(&[
        (tar::EntryType::Regular, "./a", &[1; 5000]),
        (tar::EntryType::Regular, "./b", b"b"),
    ]));
    let within = |unpacked_bytes_max, files_max| {
        let bounds = OutputBounds { unpacked_bytes_max, files_max };
        deb_file::read_rebuilt(&file, "+bk", bounds).map_err(|error| {
            let causes =
                std::iter::successors(Some(&error as &dyn std::error::Error), |error| error.source());
            causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
        })
    };
    within(1 << 20, 2).unwrap();
    let large = within(4096, 2).unwrap_err();
    assert!(large.contains("it unpacks to more than the limit of 4096 bytes"), "{large}");
    let many = within(1 << 20, 1).unwrap_err();
    assert!(many.contains("number of files is over the limit of 1"), "{many}");
}
