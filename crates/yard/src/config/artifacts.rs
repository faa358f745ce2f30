//! The table `artifacts`: where outputs are kept for other machines.

use serde::Deserialize;
use std::path::PathBuf;

/// For how many days unneeded artifacts are kept, unless the configuration says otherwise.
pub const KEEP_DAYS: u32 = 90;
/// Less would remove what a build stores while its result is not recorded yet.
const KEEP_DAYS_MIN: u32 = 2;

/// The table `artifacts`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ArtifactsTable {
    /// The URL of a store that the machines of a farm share: `file:///FOLDER`, `s3://BUCKET/PREFIX`, `gs://…` or `az://…`.
    /// Without it, outputs are in the yard alone.
    pub url: Option<String>,
    /// The address of the server, if it is not the one of the URL's provider.
    pub endpoint: Option<String>,
    /// The region of the bucket.
    pub region: Option<String>,
    /// A file with `key-id` and `secret`, and `token` if there is one, as TOML, relative to the yard.
    pub credentials_file: Option<PathBuf>,
    /// Whether workers reach the store too: they then read and write it themselves, by URLs that are valid for a while.
    pub direct: bool,
    /// For how many days an artifact is kept that nothing names any more, at least 2. Longer than backups of the store are kept:
    /// a restored store names what was current then.
    pub keep_days: Option<u32>,
    /// A file with the certificates of which one must have signed the server's, relative to the yard. Without it, a public
    /// authority must have.
    pub certificates: Option<PathBuf>,
}

impl ArtifactsTable {
    /// Checks that the settings fit together. The error is a sentence.
    pub fn check(&self) -> Result<(), String> {
        let others = [
            ("endpoint", self.endpoint.is_some()),
            ("region", self.region.is_some()),
            ("credentials-file", self.credentials_file.is_some()),
            ("certificates", self.certificates.is_some()),
            ("direct", self.direct),
        ];
        if let Some(days) = self.keep_days.filter(|days| *days < KEEP_DAYS_MIN) {
            return Err(format!("artifacts: keep-days is {days}, and must be {KEEP_DAYS_MIN} or more"));
        }
        let other = others.into_iter().find(|(_, is_set)| *is_set).map(|(name, _)| name);
        match (&self.url, other) {
            (None, Some(name)) => Err(format!("artifacts: {name} is for a store, but there is no url")),
            (Some(url), Some(name)) if url.starts_with("file:") => {
                Err(format!("artifacts: a folder has no {name}"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_a_store_need_one() {
        let check =
            |text: &str| toml::from_str::<ArtifactsTable>(text).map_err(|error| error.to_string())?.check();
        check("").unwrap();
        check("url = \"s3://bucket\"\nregion = \"x\"\ncredentials-file = \"y\"").unwrap();
        check("url = \"file:///srv/artifacts\"").unwrap();
        assert!(check("region = \"x\"").unwrap_err().contains("there is no url"));
        assert!(check("url = \"file:///a\"\nregion = \"x\"").unwrap_err().contains("a folder has no region"));
        assert!(check("url = \"s3://a\"\nkeep-days = 1").unwrap_err().contains("2 or more"));
        assert!(check("uri = \"s3://bucket\"").unwrap_err().contains("unknown field"));
    }
}
