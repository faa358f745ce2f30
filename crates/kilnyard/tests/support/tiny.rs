//! A yard of the tiny archive, and the server of that archive.

use super::archive::{Archive, DAY, write_keyring};
use super::server::Server;
use super::{Ended, Yard, folder};

/// A yard, its archive and the server.
pub struct Tiny {
    _folder: tempfile::TempDir,
    pub yard: Yard,
    pub server: Server,
    pub archive: Archive,
}

impl Tiny {
    pub fn new(name: &str) -> Tiny {
        let folder = folder(name);
        let archive = Archive::default();
        let server = Server::start(archive.files());
        let yard = Yard { folder: folder.path().join("yard") };
        write_keyring(&folder.path().join("keyring.gpg"));
        let tiny = Tiny { _folder: folder, yard, server, archive };
        tiny.configure("\"goodsource\"", "");
        tiny
    }

    pub fn configure(&self, packages: &str, build: &str) {
        self.configure_for(packages, &self.server.url(), build);
    }

    pub fn configure_for(&self, packages: &str, mirror: &str, build: &str) {
        let keyring = self.yard.folder.parent().unwrap().join("keyring.gpg");
        self.yard.configure(&format!(
            "packages = [{packages}]\n[debian]\nrelease = \"tiny\"\narchitecture = \"amd64\"\n\
             mirror = \"{mirror}\"\nkeyring = \"{}\"\n[build]\n{build}\n",
            keyring.display()
        ));
    }

    pub fn scan(&self) -> Ended {
        self.yard.run(&["scan"])
    }

    /// The names of the yard's index files, and the content of `index.json`.
    pub fn index(&self) -> (Vec<String>, String) {
        (self.yard.names("index"), self.yard.read("index/index.json"))
    }

    /// Scans once, breaks the mirror, and asserts that the next scan reports this and harms nothing.
    pub fn survives(&self, spoil: impl FnOnce(&Tiny), words: &[&str]) {
        self.scan().exits(0);
        let before = self.index();
        spoil(self);
        self.scan().exits(3).says(words);
        assert_eq!(self.index().1, before.1);
        self.yard.run(&["plan"]).exits(0).says(&["goodsource"]);
        let mut archive = self.archive.clone();
        archive.date_seconds += DAY / 2;
        archive.packages.push_str("\nPackage: newcomer\nVersion: 1\nArchitecture: amd64\n");
        for path in [Archive::RELEASE_PATH, Archive::PACKAGES_PATH, Archive::SOURCES_PATH] {
            self.server.behave(path, None);
        }
        self.server.serve(archive.files());
        self.configure("\"goodsource\"", "");
        self.scan().exits(0).says(&["tiny: a new index"]);
        assert_eq!(self.index().0.len(), 4, "{:?}", self.index().0);
        self.yard.run(&["plan"]).exits(0).says(&["goodsource"]);
    }
}
