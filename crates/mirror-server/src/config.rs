//! `mirror.toml`.

use crate::checksums::Checksums;
use crate::manifest;
use crate::route::Manifests;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

/// What a mirror serves.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Config {
    /// The address and port to listen at.
    #[serde(default = "address")]
    pub listen: SocketAddr,
    /// The folder with the files, relative to that of the configuration.
    #[serde(default = "folder")]
    pub folder: PathBuf,
    /// The size of the folder up to which files are kept, in bytes. The least recently used ones are removed.
    pub keep_bytes: Option<u64>,
    /// The proxy through which origins are reached: an address that begins with http://.
    pub proxy: Option<String>,
    /// Hosts that are reached without it, as in the variable `no_proxy`.
    pub no_proxy: Option<String>,
    /// Archives, by the name that begins their paths.
    #[serde(default)]
    pub archive: BTreeMap<String, Archive>,
    /// Distfiles, below `/distfiles/`.
    pub distfiles: Option<Distfiles>,
    /// Registries of packages of programming languages, by the name that begins their paths.
    #[serde(default)]
    pub registry: BTreeMap<String, Registry>,
    /// Files that manifests list by digest, below `/tooltool/`.
    pub tooltool: Option<Tooltool>,
    /// Other mirrors of the same site: they are asked for files that never change before an origin is.
    #[serde(default)]
    pub peers: Vec<String>,
    /// Farms whose files by digest their workers read here, by name.
    #[serde(default)]
    pub farm: BTreeMap<String, Farm>,
    /// Object storage behind the folder: what the folder has no room for stays there.
    pub bucket: Option<Bucket>,
    /// Other mirrors or coordinators that have files by digest, below `/blobs/sha256/`.
    #[serde(default)]
    pub blobs: Vec<String>,
}

/// An archive: its files in `pool` and by hash never change, its indexes do.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Archive {
    /// The addresses of its mirrors, the best one first.
    pub urls: Vec<String>,
    /// The file with the keys that must have signed its `InRelease`; without one, signatures are left to clients.
    pub keyring: Option<PathBuf>,
}

/// Distfiles.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Distfiles {
    /// The addresses where they are, the best one first.
    #[serde(default)]
    pub urls: Vec<String>,
    /// The file with tokens that may upload distfiles, one a line. Without one, none are taken.
    pub tokens: Option<PathBuf>,
    /// Files with checksums (`SHA512 (NAME) = …`, as in distinfo), or trees with a distinfo in each folder of the second level.
    #[serde(default)]
    pub checksums: Vec<PathBuf>,
}

/// What the clients of a registry speak.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub enum RegistryKind {
    /// `pip` and others: the simple repository API.
    Pypi,
    /// `npm` and others.
    Npm,
    /// `cargo`: a sparse index.
    Crates,
    /// `go`: a module proxy.
    Go,
}

/// A registry: releases never change, lists of them do.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Registry {
    /// What its clients speak.
    pub kind: RegistryKind,
    /// The addresses of its index, the best one first.
    pub urls: Vec<String>,
    /// The addresses of its files, if they are elsewhere (`pypi`, `crates`).
    #[serde(default)]
    pub files: Vec<String>,
}

/// Files by digest, such as toolchains, of manifests in tooltool's format.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Tooltool {
    /// The manifests.
    pub manifests: Vec<PathBuf>,
    /// Addresses that have the files below `sha512/DIGEST`, the best one first.
    #[serde(default)]
    pub urls: Vec<String>,
}

/// A farm: what `kilnyard workers mirror` prints in its yard.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Farm {
    /// The address of `kilnyard serve`.
    pub url: String,
    /// Its key.
    pub key: String,
}

/// Object storage.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Bucket {
    /// `s3://BUCKET/PREFIX`, `gs://…`, `az://…`, or `file:///FOLDER`.
    pub url: String,
    /// The address of the server, if it is not the one of the URL's provider.
    pub endpoint: Option<String>,
    /// The region of the bucket.
    pub region: Option<String>,
    /// A file with `key-id` and `secret`, relative to that of the configuration.
    pub credentials_file: Option<PathBuf>,
    /// A file with the certificates of which one must have signed the server's.
    pub certificates: Option<PathBuf>,
}

/// A configuration that cannot be used: a sentence without its full stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

/// Names that begin paths of the mirror itself.
const RESERVED: [&str; 4] = ["distfiles", "blobs", "tooltool", "pins"];

fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 3142))
}

fn folder() -> PathBuf {
    PathBuf::from("files")
}

impl Default for Config {
    fn default() -> Config {
        Config {
            listen: address(),
            folder: folder(),
            keep_bytes: None,
            proxy: None,
            no_proxy: None,
            archive: BTreeMap::new(),
            distfiles: None,
            registry: BTreeMap::new(),
            tooltool: None,
            peers: Vec::new(),
            farm: BTreeMap::new(),
            bucket: None,
            blobs: Vec::new(),
        }
    }
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// It is not valid.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let config: Config =
            toml::from_str(text).map_err(|error| ConfigError(error.to_string().trim_end().to_owned()))?;
        let archives = config.archive.iter().map(|(name, archive)| ("archive", name, &archive.urls));
        let registries = config.registry.iter().map(|(name, registry)| ("registry", name, &registry.urls));
        for (table, name, urls) in archives.chain(registries) {
            let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
            if !is_name || name.is_empty() || RESERVED.contains(&name.as_str()) {
                return Err(ConfigError(format!("[{table}.{name}] has a name that cannot begin a path")));
            }
            if urls.is_empty() {
                return Err(ConfigError(format!("[{table}.{name}] has no urls")));
            }
        }
        if let Some(name) = config.registry.keys().find(|name| config.archive.contains_key(*name)) {
            return Err(ConfigError(format!("[registry.{name}] and [archive.{name}] begin the same paths")));
        }
        if let Some((name, farm)) = config.farm.iter().find(|(_, farm)| !farm.url.starts_with("https://")) {
            let url = &farm.url;
            return Err(ConfigError(format!(
                "[farm.{name}] has the url {url}, which does not begin with https://"
            )));
        }
        let archives = config.archive.values().flat_map(|archive| &archive.urls);
        let registries =
            config.registry.values().flat_map(|registry| registry.urls.iter().chain(&registry.files));
        let distfiles = config.distfiles.iter().flat_map(|distfiles| &distfiles.urls);
        let tooltool = config.tooltool.iter().flat_map(|tooltool| &tooltool.urls);
        let others = config.blobs.iter().chain(&config.peers).chain(&config.proxy);
        for url in archives.chain(registries).chain(distfiles).chain(tooltool).chain(others) {
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return Err(ConfigError(format!(
                    "{url} is not an address that begins with http:// or https://"
                )));
            }
        }
        Ok(config)
    }
}

impl Config {
    /// The checksums of distfiles. `base` is the folder of the configuration.
    pub fn checksums(&self, base: &Path) -> Checksums {
        let sources = self.distfiles.iter().flat_map(|distfiles| &distfiles.checksums);
        Checksums::new(sources.map(|source| base.join(source)).collect())
    }

    /// The files that its manifests list.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn manifests(&self, base: &Path) -> io::Result<Manifests> {
        let mut manifests = Manifests::new();
        for path in self.tooltool.iter().flat_map(|tooltool| &tooltool.manifests) {
            manifest::add(&mut manifests, &base.join(path))?;
        }
        Ok(manifests)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistakes_are_named() {
        for (text, says) in [
            ("[archive.debian]\nurl = []", "unknown field `url`"),
            ("[archive.debian]\nurls = []", "[archive.debian] has no urls"),
            ("[archive.blobs]\nurls = [\"http://a\"]", "cannot begin a path"),
            ("[archive.\"../x\"]\nurls = [\"http://a\"]", "cannot begin a path"),
            ("[registry.a]\nkind = \"cpan\"\nurls = [\"http://a\"]", "unknown variant `cpan`"),
            ("[registry.pins]\nkind = \"go\"\nurls = [\"http://a\"]", "cannot begin a path"),
            (
                "[registry.a]\nkind = \"go\"\nurls = [\"http://a\"]\n[archive.a]\nurls = [\"http://a\"]",
                "begin the same paths",
            ),
            ("[farm.main]\nurl = \"http://a\"\nkey = \"x\"", "does not begin with https://"),
            ("peers = [\"other:3142\"]", "is not an address"),
            ("[distfiles]\nurls = [\"file:///etc\"]", "is not an address"),
            ("listen = \"here\"", "listen"),
        ] {
            let error = Config::parse(text).unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
        let config = Config::parse("[archive.debian]\nurls = [\"http://deb.example/debian\"]").unwrap();
        assert_eq!(config.listen.port(), 3142);
    }
}
