//! The table `people`: who may ask for what over the network, apart from those with tokens.

use kilnyard_model::scope::Scope;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// The table `people`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct People {
    /// What everyone may do who reaches the server.
    pub anonymous: BTreeSet<Scope>,
    /// Origins whose pages may ask, with tokens of their own: `https://dashboard.example`.
    pub origins: BTreeSet<String>,
    /// A file with the server's certificate and intermediate ones (PEM), relative to the yard.
    pub certificate: Option<PathBuf>,
    /// A file with the certificate's private key (PEM), relative to the yard.
    pub key: Option<PathBuf>,
    /// The proxy that logs people in.
    pub proxy: Option<Proxy>,
    /// The people that the proxy names, by name: what they may do.
    pub user: BTreeMap<String, User>,
}

/// A proxy that logs people in, and names them in a header.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Proxy {
    /// The header with the user's name.
    pub header: String,
    /// A file with the secret that the proxy adds, relative to the yard.
    pub secret_file: PathBuf,
    /// What users may do that have no table of their own.
    #[serde(default)]
    pub scopes: BTreeSet<Scope>,
}

/// What a user may do.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct User {
    /// What for.
    pub scopes: BTreeSet<Scope>,
    /// Names of the yards; absent for all.
    pub yards: Option<BTreeSet<String>>,
}

impl People {
    /// Checks that the settings fit together, with the names of the further yards. The error is a sentence.
    pub(super) fn check(&self, yards: &BTreeSet<&str>) -> Result<(), String> {
        if let Some(scope) = self.anonymous.iter().find(|scope| **scope != Scope::Read) {
            return Err(format!("people: anonymous cannot have the scope `{scope}`: requests have authors"));
        }
        let is_origin = |origin: &&String| {
            let rest = origin.strip_prefix("https://").or_else(|| origin.strip_prefix("http://"));
            rest.is_some_and(|host| {
                !host.is_empty()
                    && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".:-[]".contains(&byte))
            })
        };
        if let Some(origin) = self.origins.iter().find(|origin| !is_origin(origin)) {
            return Err(format!("people: {origin:?} is not an origin, such as https://dashboard.example"));
        }
        if self.certificate.is_some() != self.key.is_some() {
            return Err("people: a certificate needs its key, and a key its certificate".to_owned());
        }
        if self.proxy.is_none() && !self.user.is_empty() {
            return Err("people: [people.user.NAME] is for users that a proxy names: [people.proxy]; others get a token"
                .to_owned());
        }
        for (name, user) in &self.user {
            let unknown = user.yards.iter().flatten().find(|yard| *yard != "." && !yards.contains(&***yard));
            if let Some(unknown) = unknown {
                return Err(format!(
                    "people: there is no yard `{unknown}` for {name}: one of [farm.yards], or \".\" for this one"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_do_not_fit_are_rejected() {
        let checked = |text: &str| {
            toml::from_str::<People>(text)
                .map_err(|error| error.to_string())
                .and_then(|people| people.check(&["lab"].into()))
        };
        checked("anonymous = [\"read\"]").unwrap();
        let proxy = "[proxy]\nheader = \"x-user\"\nsecret-file = \"s\"\n";
        checked(&format!("{proxy}[user.anna]\nscopes = [\"request\"]\nyards = [\"lab\", \".\"]")).unwrap();
        for (text, reason) in [
            ("anonymous = [\"request\"]", "requests have authors"),
            ("anonymous = [\"write\"]", "unknown variant"),
            ("certificate = \"c\"", "needs its key"),
            ("origins = [\"*\"]", "is not an origin"),
            ("origins = [\"https://a/b\"]", "is not an origin"),
            ("[user.anna]", "a proxy names"),
            (&format!("{proxy}[user.anna]\nyards = [\"lb\"]"), "no yard `lb`"),
        ] {
            let error = checked(text).unwrap_err();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }
}
