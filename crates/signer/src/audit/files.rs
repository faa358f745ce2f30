//! The files of a repository, compared with what its signed texts say of them.

use super::Published;
use crate::hash;
use crate::judge::checksums::{self, SUMMARY};
use crate::judge::{lists, release};
use crate::message::{Form, Generation};
use kilnyard_ecosystem::debian::deb822;
use kilnyard_publish::Checksum;
use kilnyard_sign::Keyring;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;

/// The files of a series.
pub(super) struct Files<'a> {
    /// The folder of the repository.
    pub root: &'a Path,
    /// The folder with the signed text.
    pub folder: &'a Path,
    pub keyring: Option<&'a Keyring>,
    /// Whether files of packages are read.
    pub reads_all: bool,
    pub findings: &'a mut Vec<String>,
}

impl Files<'_> {
    /// A series of an apt repository.
    pub fn of_release(&mut self) -> io::Result<Published> {
        let series = self.folder.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let text = fs_err::read_to_string(self.folder.join("Release"))?;
        let signature = fs_err::read_to_string(self.folder.join("Release.gpg")).unwrap_or_default();
        let mut find = |finding: String| self.findings.push(format!("{series}: {finding}"));
        // What most readers take.
        match fs_err::read(self.folder.join("InRelease")) {
            Err(_) => find("there is no InRelease".to_owned()),
            Ok(clear) => match self.keyring.map(|keyring| keyring.verify_clearsigned(&clear)) {
                Some(Err(error)) => find(format!("the signature of InRelease is none: {error}")),
                Some(Ok(verified)) if verified.text.trim_ascii_end() != text.trim_end().as_bytes() => {
                    find("InRelease is not the same text as Release".to_owned());
                }
                Some(Ok(_)) | None => {}
            },
        }
        let listed = release::listed_files(&text).unwrap_or_else(|reason| {
            find(reason);
            BTreeMap::new()
        });
        for (path, (sha256, size)) in listed {
            match fs_err::read(self.folder.join(&path)) {
                Err(_) => find(format!("{path} is missing")),
                Ok(bytes) if bytes.len() != size || hash(&bytes) != sha256 => {
                    find(format!("{path} is not the one that Release names"));
                }
                Ok(_) => {}
            }
        }
        let (mut packages, mut files) = (Vec::new(), BTreeMap::new());
        for path in release::indexes_of(&text) {
            let Ok(index) = fs_err::read_to_string(self.folder.join(path)) else { continue };
            if let Err(reason) = release::packages(path, &index, &mut packages) {
                find(reason);
                continue;
            }
            for stanza in deb822::stanzas(&index) {
                files.extend(release::files_of(&stanza));
            }
        }
        // An architecture-independent package is in the index of each architecture.
        let mut seen = HashSet::new();
        packages.retain(|package| seen.insert((package.name.clone(), package.listed.clone())));
        for (path, (sha256, size)) in files {
            self.compare(&series, &path, &self.root.join(&path), size, &Checksum::Sha256(sha256));
        }
        Ok(Published { series, text, signature, packages })
    }

    /// The repository of a pkgsrc tree.
    pub fn of_checksums(&mut self) -> io::Result<Published> {
        let series = checksums::SERIES.to_owned();
        let text = fs_err::read_to_string(self.folder.join("SHA512"))?;
        let signature = fs_err::read_to_string(self.folder.join("SHA512.asc")).unwrap_or_default();
        let mut published = Published { series: series.clone(), text, signature, packages: Vec::new() };
        let mut listed = match checksums::listing(&published.text) {
            Ok(listed) => listed,
            Err(reason) => {
                self.findings.push(format!("{series}: {reason}"));
                return Ok(published);
            }
        };
        let path = self.folder.join(format!("{SUMMARY}.zst"));
        let summary = fs_err::File::open(path).and_then(zstd::decode_all);
        let summary = summary.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
        let sizes: BTreeMap<String, u64> = match &summary {
            Ok(summary) => checksums::sizes(summary).collect(),
            Err(_) => BTreeMap::new(),
        };
        for (name, digits) in &listed {
            let checksum = match digits.len() {
                64 => Checksum::PkgHash(digits.clone()),
                _ => Checksum::Sha512(digits.clone()),
            };
            let path = self.folder.join(name);
            match sizes.get(name) {
                Some(size) => self.compare(&series, name, &path, *size, &checksum),
                None if !checksum.is_of_file(&path) => self
                    .findings
                    .push(format!("{series}: {name} is missing, or not the one that SHA512 names")),
                None => {}
            }
        }
        match summary.map(|summary| checksums::packages(&summary, &mut listed)) {
            Ok(Ok(packages)) => published.packages = packages,
            Ok(Err(reason)) => self.findings.push(format!("{series}: {reason}")),
            Err(error) => self.findings.push(format!("{series}: {SUMMARY} cannot be read: {error}")),
        }
        Ok(published)
    }

    /// A repository with lists.
    pub fn of_lists(&mut self) -> io::Result<Published> {
        let series = lists::SERIES.to_owned();
        let folder = self.folder.join(lists::FOLDER);
        let text = fs_err::read_to_string(folder.join(lists::FILES[0]))?;
        let signature = fs_err::read_to_string(folder.join(lists::FILES[1])).unwrap_or_default();
        let mut published = Published { series: series.clone(), text, signature, packages: Vec::new() };
        let indexes = match lists::texts(&published.text, &folder) {
            Ok(indexes) => indexes,
            Err(error) => {
                self.findings.push(format!("{series}: a list cannot be read: {error}"));
                return Ok(published);
            }
        };
        for (location, size, sha256) in lists::files(&indexes) {
            self.compare(&series, &location, &self.folder.join(&location), size, &Checksum::Sha256(sha256));
        }
        let generation = Generation {
            series: series.clone(),
            form: Form::Lists,
            text: published.text.clone(),
            indexes: Vec::new(),
        };
        match lists::read(&generation, &indexes, 0) {
            Ok(read) => published.packages = read.packages,
            Err(reason) => self.findings.push(format!("{series}: {reason}")),
        }
        Ok(published)
    }

    fn compare(&mut self, series: &str, name: &str, path: &Path, size: u64, checksum: &Checksum) {
        let finding = match fs_err::metadata(path) {
            Err(_) => "is missing",
            Ok(found) if found.len() != size => "has another size than its index says",
            Ok(_) if self.reads_all && !checksum.is_of_file(path) => {
                "has another content than its index says"
            }
            Ok(_) => return,
        };
        self.findings.push(format!("{series}: {name} {finding}"));
    }
}
