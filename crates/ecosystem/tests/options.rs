//! Options of single packages: what they change in keys, orders and graphs, and what they leave alone.

use kilnyard_ecosystem::debian::source::{Parts, Sources};
use kilnyard_ecosystem::debian::universe::{Origin, Universe};
use kilnyard_ecosystem::debian::{self, Base, Cycles, Published, Takeovers};
use kilnyard_ecosystem::{Ecosystem, Stock, pkgsrc};
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_model::order::Key;
use std::sync::Arc;

const HASH: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn tree() -> Artifact {
    Artifact { sha256: HASH.parse().unwrap(), size_bytes: 1, media: Media::Tree }
}

/// Two sources, of which the second needs the first unless it is built without checks.
const SOURCES: [(&str, &str); 2] = [("one", "make"), ("two", "make, one <!nocheck>")];

fn debian_settings() -> debian::Settings {
    debian::Settings {
        release: "bookworm".into(),
        architecture: "amd64".into(),
        target: "debian/linux/bookworm/amd64".parse().unwrap(),
        mirrors: vec!["http://mirror.example/debian/".into()],
        parts: Parts::Dependent,
        runs_checks: false,
        profiles: Vec::new(),
        version_suffix: "+bk".into(),
        maintainer: "A <a@example>".into(),
        cycles: Cycles::Archive,
        takeovers: Takeovers::new(),
    }
}

fn debian_set(settings: debian::Settings) -> Box<dyn Stock> {
    let mut universe = Universe::new(settings.context());
    let binary = |name: &str| {
        format!(
            "Package: {name}\nVersion: 1-1\nArchitecture: amd64\nFilename: pool/{name}.deb\nSize: 1\nSHA256: {HASH}\n\n"
        )
    };
    let packages: String = ["build-essential", "make", "one", "two"].map(binary).concat();
    universe.add_packages(packages.into(), Origin::Archive).unwrap();
    let source = |(name, needs): (&str, &str)| {
        format!(
            "Package: {name}\nBinary: {name}\nVersion: 1-1\nArchitecture: any\nBuild-Depends: {needs}\n\
             Package-List:\n {name} deb libs optional arch=any\nChecksums-Sha256:\n {HASH} 10 {name}_1-1.dsc\n\
             Directory: pool/{name}\n\n"
        )
    };
    let mut sources = Sources::default();
    sources.add(SOURCES.map(source).concat().into()).unwrap();
    let base = Base { tree: Some(tree()), digest: "base".into(), packages: Vec::new() };
    let names = SOURCES.map(|(name, _)| name.to_owned());
    let set = debian::Workshop::new(settings, universe, sources, &names, base, Published::default());
    Arc::new(set).stock()
}

fn pkgsrc_settings(folder: &std::path::Path) -> pkgsrc::Settings {
    pkgsrc::Settings {
        tree: folder.to_owned(),
        distfiles: folder.to_owned(),
        layers: vec![tree()],
        layers_digest: "layers".into(),
        prefix: "/usr/pkg".into(),
        make: "/usr/pkg/bin/bmake".into(),
        mk_conf: "CFLAGS= -O2\n".into(),
        architecture: "x86_64".into(),
        target: "pkgsrc/linux/bookworm/amd64".parse().unwrap(),
    }
}

fn pkgsrc_set(settings: pkgsrc::Settings) -> Box<dyn Stock> {
    let stanza = |location: &str, name: &str, more: &str| {
        format!("PKGNAME={name}-1.0\nPKG_LOCATION={location}\nSCAN_DEPENDS=Makefile\n{more}")
    };
    let text = stanza("mail/mutt", "mutt", "")
        + &stanza("lang/one", "py1-one", "MULTI_VERSION= VERSION_REQD=1\n")
        + &stanza("lang/one", "py2-one", "MULTI_VERSION= VERSION_REQD=2\n");
    let scan = pkgsrc::Scan { text: text.into_bytes(), failed: Vec::new() };
    Arc::new(pkgsrc::Workshop::new(settings, scan, None).unwrap()).stock()
}

fn key(stock: &mut dyn Stock, name: &str) -> Key {
    let set = stock.set();
    let id = set.graph().find(name).unwrap_or_else(|| panic!("{name}"));
    stock.key(id).unwrap()
}

/// The digests are those of the version before there were options of single packages: with these keys, nothing in an
/// existing yard is built again.
#[test]
fn keys_of_packages_without_options_stay_as_they_were() {
    let mut debian = debian_set(debian_settings());
    for (name, digest) in [
        ("one", "43a9480037662410d3583cb2b73a80702b922063be9252608884cc4b5f2c11df"),
        ("two", "23d3b388958ed5e157475d2e04f2c625f659d938c45be471febd896c58ba0a7e"),
    ] {
        assert_eq!(key(&mut *debian, name).digest, digest, "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut pkgsrc = pkgsrc_set(pkgsrc_settings(folder.path()));
    for (name, digest) in [
        ("mail/mutt", "b9aa2d373a7e98e81b1d7d7fc04457b52182048c07256e128d63c3dc1edcb9ed"),
        ("lang/one:py1-one", "219be9f3f6cf7311f4e0abb91ad68c656c22135cbe61cf77b88adea174906cd2"),
    ] {
        assert_eq!(key(&mut *pkgsrc, name).digest, digest, "{name}");
    }
}
