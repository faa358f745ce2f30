//! A tiny archive, signed with its own key.

use kilnyard_sign::YardKey;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::OnceLock;

/// Seconds in a day.
pub const DAY: i64 = 86_400;

/// Binary packages: those that every build needs, and the dependencies of the sources below.
pub const PACKAGES: &str = "\
Package: build-essential
Version: 12.9
Architecture: amd64
Depends: libc6-dev
Filename: pool/main/b/build-essential/build-essential_12.9_amd64.deb
Size: 4
SHA256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855

Package: libc6-dev
Version: 2.36-9
Architecture: amd64

Package: tool
Version: 1.5-1
Architecture: amd64

Package: left
Version: 1
Architecture: amd64
Conflicts: right

Package: right
Version: 1
Architecture: amd64

Package: round-a-bin
Source: round-a
Version: 1-1
Architecture: amd64

Package: round-b-bin
Source: round-b
Version: 1-1
Architecture: amd64
";

/// Sources: one that can be built, one for each kind of impossible dependency, and two in a cycle.
pub const SOURCES: &str = "\
Package: goodsource
Binary: goodsource-bin
Version: 1.0-1
Architecture: any
Build-Depends: tool (>= 1)
Directory: pool/main/g/goodsource
Checksums-Sha256:
 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 goodsource_1.0-1.dsc

Package: needs-missing
Binary: needs-missing-bin
Version: 1-1
Architecture: any
Build-Depends: nowhere-dev
Directory: pool/main/n/needs-missing
Checksums-Sha256:
 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 needs-missing_1-1.dsc

Package: needs-newer
Binary: needs-newer-bin
Version: 1-1
Architecture: any
Build-Depends: tool (>= 9)
Directory: pool/main/n/needs-newer
Checksums-Sha256:
 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 needs-newer_1-1.dsc

Package: needs-both
Binary: needs-both-bin
Version: 1-1
Architecture: any
Build-Depends: left, right
Directory: pool/main/n/needs-both
Checksums-Sha256:
 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 needs-both_1-1.dsc

Package: round-a
Binary: round-a-bin
Version: 1-1
Architecture: any
Build-Depends: round-b-bin
Directory: pool/main/r/round-a
Checksums-Sha256:
 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 round-a_1-1.dsc

Package: round-b
Binary: round-b-bin
Version: 1-1
Architecture: any
Build-Depends: round-a-bin
Directory: pool/main/r/round-b
Checksums-Sha256:
 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 0 round-b_1-1.dsc
";

/// The data from which an archive's files are made.
#[derive(Clone, Debug)]
pub struct Archive {
    pub codename: String,
    pub date_seconds: i64,
    /// Replaces the date; for invalid dates.
    pub date_text: Option<String>,
    pub valid_until_seconds: Option<i64>,
    pub packages: String,
    pub sources: String,
    /// Architectures in addition to amd64, with the same packages.
    pub more_architectures: Vec<&'static str>,
}

pub fn now_seconds() -> i64 {
    jiff::Timestamp::now().as_second()
}

impl Default for Archive {
    fn default() -> Archive {
        Archive {
            codename: "tiny".to_owned(),
            date_seconds: now_seconds() - DAY,
            date_text: None,
            valid_until_seconds: None,
            packages: PACKAGES.to_owned(),
            sources: SOURCES.to_owned(),
            more_architectures: Vec::new(),
        }
    }
}

/// The key of the archive.
pub fn key() -> &'static YardKey {
    static KEY: OnceLock<YardKey> = OnceLock::new();
    KEY.get_or_init(|| YardKey::generate("Tiny archive <tiny@example.org>").unwrap())
}

pub fn write_keyring(path: &Path) {
    std::fs::write(path, key().public_binary().unwrap()).unwrap();
}

pub fn hex_of(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn xz(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = liblzma::write::XzEncoder::new(Vec::new(), 1);
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn date(seconds: i64) -> String {
    jiff::Timestamp::from_second(seconds).unwrap().strftime("%a, %d %b %Y %H:%M:%S UTC").to_string()
}

impl Archive {
    pub const PACKAGES_PATH: &str = "/dists/tiny/main/binary-amd64/Packages.xz";
    pub const SOURCES_PATH: &str = "/dists/tiny/main/source/Sources.xz";
    pub const RELEASE_PATH: &str = "/dists/tiny/InRelease";

    /// All files by path, signed with this key.
    pub fn files_signed_by(&self, key: &YardKey) -> BTreeMap<String, Vec<u8>> {
        self.files_with(key, self.packages.as_bytes(), true)
    }

    /// All files by path, with these bytes as `Packages`. `lists_plain`: whether the Release file lists the
    /// uncompressed files, too.
    pub fn files_with(&self, key: &YardKey, packages: &[u8], lists_plain: bool) -> BTreeMap<String, Vec<u8>> {
        let mut indexes = vec![
            ("main/binary-amd64/Packages".to_owned(), packages.to_owned()),
            ("main/source/Sources".to_owned(), self.sources.clone().into_bytes()),
        ];
        for architecture in &self.more_architectures {
            let text = self.packages.replace("Architecture: amd64", &format!("Architecture: {architecture}"));
            indexes.push((format!("main/binary-{architecture}/Packages"), text.into_bytes()));
        }
        let mut release = format!(
            "Origin: Tiny\nCodename: {0}\nSuite: {0}\nDate: {1}\n",
            self.codename,
            self.date_text.clone().unwrap_or_else(|| date(self.date_seconds))
        );
        if let Some(until) = self.valid_until_seconds {
            release.push_str(&format!("Valid-Until: {}\n", date(until)));
        }
        let more: String = self.more_architectures.iter().map(|name| format!(" {name}")).collect();
        release.push_str(&format!("Architectures: amd64{more}\nComponents: main\nSHA256:\n"));
        let mut files = BTreeMap::new();
        for (path, plain) in indexes {
            let packed = xz(&plain);
            if lists_plain {
                release.push_str(&format!(" {} {} {path}\n", hex_of(&plain), plain.len()));
            }
            release.push_str(&format!(" {} {} {path}.xz\n", hex_of(&packed), packed.len()));
            files.insert(format!("/dists/tiny/{path}.xz"), packed);
        }
        files.insert(Self::RELEASE_PATH.to_owned(), key.sign_clear(&release).unwrap().into_bytes());
        files
    }

    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        self.files_signed_by(key())
    }
}
