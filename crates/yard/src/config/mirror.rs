//! The table `mirror`: the mirror of the site that files are fetched from first, and the one that `kilnyard serve` has within.

use super::Size;
use serde::Deserialize;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The table `mirror`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct MirrorTable {
    /// The address of the mirror of this site, such as `http://mirror.example:3142`. Default: the one within `kilnyard serve`, if
    /// that has one.
    pub url: Option<String>,
    /// The file with a token for uploads to it, relative to the yard.
    pub token_file: Option<PathBuf>,
    /// The address and port at which `kilnyard serve` has a mirror within, for the archives of this yard and its distfiles.
    pub listen: Option<SocketAddr>,
    /// The size up to which that mirror keeps files. Default: all.
    pub keep: Option<Size>,
    /// Where that mirror fetches distfiles.
    pub distfiles: Vec<String>,
}

impl MirrorTable {
    /// Checks that the settings fit together. The error is a sentence.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(url) = self.url.as_ref().filter(|url| !url.starts_with("http://")) {
            return Err(format!("mirror: {url} is not an address that begins with http://"));
        }
        let is_web = |url: &&String| !url.starts_with("http://") && !url.starts_with("https://");
        if let Some(url) = self.distfiles.iter().find(is_web) {
            return Err(format!("mirror: {url} is not an address that begins with http:// or https://"));
        }
        if self.listen.is_none() && (self.keep.is_some() || !self.distfiles.is_empty()) {
            return Err(
                "mirror: keep and distfiles are for a mirror within `kilnyard serve`, which needs listen"
                    .to_owned(),
            );
        }
        Ok(())
    }

    /// The address at which this yard reaches the mirror of its site.
    pub fn address(&self) -> Option<String> {
        let within = || {
            let listen = self.listen?;
            let host =
                if listen.ip().is_unspecified() { IpAddr::V4(Ipv4Addr::LOCALHOST) } else { listen.ip() };
            Some(format!("http://{}", SocketAddr::new(host, listen.port())))
        };
        self.url.clone().or_else(within)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mirror_is_elsewhere_or_within() {
        let parsed = |text: &str| {
            let table: MirrorTable = toml::from_str(text).map_err(|error| error.to_string())?;
            table.check().map(|()| table)
        };
        assert_eq!(parsed("").unwrap().address(), None);
        assert_eq!(parsed("url = \"http://m:1\"").unwrap().address().unwrap(), "http://m:1");
        assert_eq!(parsed("listen = \"0.0.0.0:3142\"").unwrap().address().unwrap(), "http://127.0.0.1:3142");
        assert_eq!(parsed("listen = \"10.0.0.1:1\"").unwrap().address().unwrap(), "http://10.0.0.1:1");
        for (text, says) in [
            ("url = \"https://m\"", "begins with http://"),
            ("keep = \"1G\"", "needs listen"),
            ("listen = \"0.0.0.0:1\"\ndistfiles = [\"ftp://x\"]", "is not an address"),
            ("uri = \"http://m\"", "unknown field"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
