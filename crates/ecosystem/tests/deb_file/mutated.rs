//! Small packages with arbitrary changes: they are either read or rejected, but never cause a panic.

use kilnyard_ecosystem::debian::deb_file;
use proptest::prelude::*;

use crate::support::{Scratch, archive, control_tar, gzip};

/// A change to a file's bytes.
#[derive(Debug, Clone)]
enum Mutation {
    Set(prop::sample::Index, u8),
    Cut(prop::sample::Index),
    Insert(prop::sample::Index, Vec<u8>),
    Remove(prop::sample::Index, usize),
    Copy(prop::sample::Index, prop::sample::Index, usize),
}

impl Mutation {
    fn apply(&self, bytes: &mut Vec<u8>) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len();
        match self {
            Self::Set(at, value) => bytes[at.index(length)] = *value,
            Self::Cut(at) => bytes.truncate(at.index(length)),
            Self::Insert(at, new) => {
                let at = at.index(length);
                bytes.splice(at..at, new.iter().copied());
            }
            Self::Remove(at, count) => {
                let at = at.index(length);
                bytes.drain(at..(at + count).min(length));
            }
            Self::Copy(from, to, count) => {
                let (from, to) = (from.index(length), to.index(length));
                let count = (*count).min(length - from).min(length - to);
                bytes.copy_within(from..from + count, to);
            }
        }
    }
}

fn mutation() -> impl Strategy<Value = Mutation> {
    let at = any::<prop::sample::Index>;
    prop_oneof![
        4 => (at(), any::<u8>()).prop_map(|(at, value)| Mutation::Set(at, value)),
        1 => at().prop_map(Mutation::Cut),
        1 => (at(), prop::collection::vec(any::<u8>(), 1..600)).prop_map(|(at, new)| Mutation::Insert(at, new)),
        1 => (at(), 1..600_usize).prop_map(|(at, count)| Mutation::Remove(at, count)),
        2 => (at(), at(), 1..600_usize).prop_map(|(from, to, count)| Mutation::Copy(from, to, count)),
    ]
}

/// The package in each compression, small enough that changes often hit headers.
fn small_packages() -> Vec<Vec<u8>> {
    let data = {
        let mut builder = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(3);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        builder.append_data(&mut header, "n".repeat(150), b"abc".as_slice()).unwrap();
        builder.append_pax_extensions([("path", b"pax".as_slice()), ("comment", b"x")]).unwrap();
        builder.append_data(&mut header, "short", b"def".as_slice()).unwrap();
        header.set_entry_type(tar::EntryType::Link);
        header.set_size(0);
        builder.append_link(&mut header, "linked", "short").unwrap();
        builder.into_inner().unwrap()
    };
    let control = control_tar();
    let xz = |bytes: &[u8]| {
        let mut packed = Vec::new();
        std::io::Read::read_to_end(&mut liblzma::read::XzEncoder::new(bytes, 0), &mut packed).unwrap();
        packed
    };
    let zstd = |bytes: &[u8]| zstd::encode_all(bytes, 1).unwrap();
    vec![
        archive(&[("debian-binary", b"2.0\n"), ("control.tar", &control), ("data.tar", &data)]),
        archive(&[
            ("debian-binary", b"2.0\n"),
            ("control.tar.gz", &gzip(&control)),
            ("data.tar.gz", &gzip(&data)),
        ]),
        archive(&[
            ("debian-binary", b"2.0\n"),
            ("control.tar.xz", &xz(&control)),
            ("data.tar.xz", &xz(&data)),
        ]),
        archive(&[
            ("debian-binary", b"2.0\n"),
            ("control.tar.zst", &zstd(&control)),
            ("data.tar.zst", &zstd(&data)),
        ]),
    ]
}

#[test]
fn the_small_packages_are_intact() {
    let scratch = Scratch::new();
    let contents: Vec<String> =
        small_packages().iter().map(|bytes| deb_file::read(&scratch.deb(bytes)).unwrap().content).collect();
    assert!(contents.windows(2).all(|pair| pair[0] == pair[1]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn changed_packages_are_read_or_refused(
        which in 0..4_usize,
        mutations in prop::collection::vec(mutation(), 1..6),
    ) {
        let mut bytes = small_packages().swap_remove(which);
        for mutation in &mutations {
            mutation.apply(&mut bytes);
        }
        let scratch = Scratch::new();
        let path = scratch.deb(&bytes);
        if let Ok(deb) = deb_file::read(&path) {
            prop_assert_eq!(deb.size_bytes, bytes.len() as u64);
            prop_assert_eq!(&deb, &deb_file::read(&path).unwrap());
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let scratch = Scratch::new();
        prop_assert!(deb_file::read(&scratch.deb(&bytes)).is_err());
        let mut after_magic = b"!<arch>\n".to_vec();
        after_magic.extend(bytes);
        prop_assert!(deb_file::read(&scratch.deb(&after_magic)).is_err());
    }
}
