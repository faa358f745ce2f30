//! `mirror.toml`.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

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
}

/// A configuration that cannot be used: a sentence without its full stop.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub String);

fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 3142))
}

fn folder() -> PathBuf {
    PathBuf::from("files")
}

impl Config {
    /// Reads a configuration.
    ///
    /// # Errors
    /// It is not valid.
    pub fn parse(text: &str) -> Result<Config, ConfigError> {
        let config: Config =
            toml::from_str(text).map_err(|error| ConfigError(error.to_string().trim_end().to_owned()))?;
        for (name, archive) in &config.archive {
            let is_name = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
            if !is_name || name.is_empty() || ["distfiles", "blobs"].contains(&name.as_str()) {
                return Err(ConfigError(format!("[archive.{name}] has a name that cannot begin a path")));
            }
            if archive.urls.is_empty() {
                return Err(ConfigError(format!("[archive.{name}] has no urls")));
            }
        }
        let archives = config.archive.values().flat_map(|archive| &archive.urls);
        let distfiles = config.distfiles.iter().flat_map(|distfiles| &distfiles.urls);
        for url in archives.chain(distfiles).chain(&config.blobs).chain(&config.proxy) {
            if !url.starts_with("http://") && !url.starts_with("https://") {
                return Err(ConfigError(format!(
                    "{url} is not an address that begins with http:// or https://"
                )));
            }
        }
        Ok(config)
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
