//! `policy.toml`: which keys the signer has, and what it may sign with them.

use crate::message::Rule;
use glob::Pattern;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// The name of the file, in the signer's folder.
pub const POLICY: &str = "policy.toml";

/// The policy that a new signer has.
pub const FIRST: &str = r#"# What this signer signs, and with which keys. All options: docs/signing.md.

[repository.yard]
keys = ["main"]

[key.main]
file = "keys/main.asc"
"#;

/// A policy.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Policy {
    /// The repositories, by name.
    pub repository: BTreeMap<String, Repository>,
    /// The keys, by name.
    pub key: BTreeMap<String, Key>,
    /// X.509 keys for the packages of pkgsrc trees, by name.
    #[serde(default)]
    pub x509: BTreeMap<String, X509Key>,
    /// Archives whose sources may be built, by name.
    #[serde(default)]
    pub archive: BTreeMap<String, Voucher>,
    /// Trees in git whose signed commits vouch for sources, by name.
    #[serde(default)]
    pub tree: BTreeMap<String, Voucher>,
    /// Workers whose results count, by name.
    #[serde(default)]
    pub worker: BTreeMap<String, Worker>,
    /// The file with the keys of people who approve, armored or binary. Without one, every user who can
    /// write to the signer's folder approves.
    pub approvers: Option<PathBuf>,
}

/// What may be signed for a repository.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Repository {
    /// The keys that sign, each with a signature of its own.
    pub keys: Vec<String>,
    /// Keys that were revoked: their certificates are published, so that readers learn it.
    #[serde(default)]
    pub revoked: Vec<String>,
    /// The X.509 key that signs packages of a pkgsrc tree one by one. Without it, the keys of the repository do.
    pub package_key: Option<String>,
    /// Codenames, as patterns; all by default. A pkgsrc repository has the one series `packages`.
    #[serde(default = "all")]
    pub series: Vec<Patterned>,
    /// Names of binary packages, as patterns; all by default.
    #[serde(default = "all")]
    pub names: Vec<Patterned>,
    /// The archives that have the sources of its packages, and say what each declares. Without any, the yard says so.
    #[serde(default)]
    pub archives: Vec<String>,
    /// The trees whose signed commits have sources of its packages, and say what each declares.
    #[serde(default)]
    pub trees: Vec<String>,
    /// Sources that are in no archive or tree, as patterns: the yard says what they declare.
    #[serde(default)]
    pub own_sources: Vec<Patterned>,
    /// Names that only workers with `core = true` may build, as patterns.
    #[serde(default)]
    pub core: Vec<Patterned>,
    /// Names whose new versions a person approves, as patterns.
    #[serde(default)]
    pub approve: Vec<Patterned>,
    /// Whether `.dsc` and `.changes` files are signed.
    #[serde(default)]
    pub documents: bool,
    /// Whether names that the repository never had need an approval.
    #[serde(default)]
    pub approve_new_names: bool,
    /// Whether each package must be signed by a worker of this policy.
    #[serde(default)]
    pub workers_only: bool,
    /// The most signatures of one hour.
    pub per_hour_max: Option<u64>,
    /// The hours of the day when it signs, in UTC, such as `6-22`.
    pub hours: Option<Hours>,
    /// How far the date of a text may be from the signer's clock, in seconds.
    #[serde(default = "clock")]
    pub clock_seconds_max: i64,
}

/// A key.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Key {
    /// The file with the private key, relative to the signer's folder.
    pub file: Option<PathBuf>,
    /// The name of the credential with the passphrase of the file, or the PIN of the token.
    pub credential: Option<String>,
    /// A PKCS#11 token that has the private key.
    pub pkcs11: Option<Pkcs11>,
    /// The private key is in a `gpg-agent`: the path of its socket.
    pub gpg_agent: Option<PathBuf>,
    /// The file with the certificate of a key that is in a token or an agent, relative to the signer's folder.
    pub certificate: Option<PathBuf>,
}

/// An X.509 key.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct X509Key {
    /// The file with the private key in PEM, relative to the signer's folder.
    pub file: Option<PathBuf>,
    /// A PKCS#11 token that has the private key.
    pub pkcs11: Option<Pkcs11>,
    /// The file with its certificate in PEM, and those that lead to one that readers trust.
    pub certificate: PathBuf,
    /// The name of the credential with the passphrase of the file, or the PIN of the token.
    pub credential: Option<String>,
}

/// A key in a token.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Pkcs11 {
    /// The module: a shared library.
    pub module: PathBuf,
    /// The token's label.
    pub token: String,
    /// The key's label.
    pub label: String,
    /// Paths that the module uses: its configuration, and where it keeps tokens.
    #[serde(default)]
    pub paths: Vec<PathBuf>,
    /// Environment variables of the module.
    #[serde(default)]
    pub environment: BTreeMap<String, String>,
    /// Whether the module needs the machine's network.
    #[serde(default)]
    pub network: bool,
}

/// Where modules of tokens and what they load are: the shared libraries of the machine.
const LIBRARIES: [&str; 8] = [
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/etc/ssl",
    "/usr/share/p11-kit",
];

/// An archive or a tree of sources.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Voucher {
    /// The file with the keys that sign its `InRelease` or its commits, armored or binary, relative to the signer's folder.
    pub keyring: PathBuf,
}

/// A worker.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Worker {
    /// The public part of its key, in hexadecimal, as `kilnyard workers` shows it.
    pub key: String,
    /// Whether it may build core packages.
    #[serde(default)]
    pub core: bool,
}

/// A pattern of names, with `*`, `?` and `[...]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "String")]
pub struct Patterned(Pattern);

/// A span of hours of the day.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Hours {
    from: u32,
    to: u32,
}

pub(crate) fn all() -> Vec<Patterned> {
    Patterned::try_from("*".to_owned()).into_iter().collect()
}

fn clock() -> i64 {
    600
}

impl TryFrom<String> for Patterned {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        Pattern::new(&text).map(Patterned).map_err(|error| format!("{text:?} is not a pattern: {error}"))
    }
}

impl TryFrom<String> for Hours {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let hours = text.split_once('-').and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
        match hours {
            Some((from, to)) if from < 24 && to <= 24 && from != to => Ok(Hours { from, to }),
            _ => Err(format!("{text:?} is not two hours of the day, such as \"6-22\"")),
        }
    }
}

impl Hours {
    /// Whether a time is in the span, in seconds since 1970. A span may pass midnight.
    pub fn has(self, time: i64) -> bool {
        let hour = time.rem_euclid(86_400) as u32 / 3600;
        match self.from < self.to {
            true => (self.from..self.to).contains(&hour),
            false => hour >= self.from || hour < self.to,
        }
    }
}

impl std::fmt::Display for Hours {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:00 to {}:00 UTC", self.from, self.to)
    }
}

/// Whether one of the patterns is that of a name.
pub fn matches(patterns: &[Patterned], name: &str) -> bool {
    patterns.iter().any(|pattern| pattern.0.matches(name))
}

impl Policy {
    /// Reads the text of a policy.
    ///
    /// # Errors
    /// A clause whose subject is the policy.
    pub fn parse(text: &str) -> Result<Policy, String> {
        let policy: Policy = toml::from_str(text).map_err(|error| error.to_string().trim_end().to_owned())?;
        for (name, repository) in &policy.repository {
            if repository.keys.is_empty() {
                return Err(format!("[repository.{name}] has no keys"));
            }
            let mut named = repository.keys.iter().chain(&repository.revoked);
            let unknown = named.find(|key| !policy.key.contains_key(*key));
            if let Some(key) = unknown {
                return Err(format!(
                    "[repository.{name}] names the key {key:?}, and there is no [key.{key}]"
                ));
            }
        }
        for (name, repository) in &policy.repository {
            if let Some(tree) = repository.trees.iter().find(|one| !policy.tree.contains_key(*one)) {
                return Err(format!(
                    "[repository.{name}] names the tree {tree:?}, and there is no [tree.{tree}]"
                ));
            }
            if let Some(archive) = repository.archives.iter().find(|one| !policy.archive.contains_key(*one)) {
                return Err(format!(
                    "[repository.{name}] names the archive {archive:?}, and there is no [archive.{archive}]"
                ));
            }
        }
        for (name, key) in &policy.key {
            let kinds = [key.file.is_some(), key.pkcs11.is_some(), key.gpg_agent.is_some()];
            if kinds.iter().filter(|is_set| **is_set).count() != 1 {
                return Err(format!("[key.{name}] needs one of file, pkcs11 and gpg-agent"));
            }
            if key.file.is_none() && key.certificate.is_none() {
                return Err(format!("[key.{name}] needs the certificate of the key"));
            }
        }
        for (name, key) in &policy.x509 {
            if key.file.is_some() == key.pkcs11.is_some() {
                return Err(format!("[x509.{name}] needs one of file and pkcs11"));
            }
        }
        for (name, repository) in &policy.repository {
            if let Some(key) = repository.package_key.as_ref().filter(|key| !policy.x509.contains_key(*key)) {
                return Err(format!(
                    "[repository.{name}] names the X.509 key {key:?}, and there is no [x509.{key}]"
                ));
            }
        }
        for (name, worker) in &policy.worker {
            let is_key = worker.key.len() == 64 && worker.key.bytes().all(|byte| byte.is_ascii_hexdigit());
            if !is_key {
                return Err(format!("[worker.{name}] has a key that is not 64 hexadecimal digits"));
            }
        }
        Ok(policy)
    }

    /// The names of the credentials that its keys need.
    pub fn credentials(&self) -> impl Iterator<Item = &str> {
        let of_packages = self.x509.values().filter_map(|key| key.credential.as_deref());
        self.key.values().filter_map(|key| key.credential.as_deref()).chain(of_packages)
    }

    fn tokens(&self) -> impl Iterator<Item = &Pkcs11> {
        let of_packages = self.x509.values().filter_map(|key| key.pkcs11.as_ref());
        self.key.values().filter_map(|key| key.pkcs11.as_ref()).chain(of_packages)
    }

    /// Files and folders outside of the signer's folder that its keys need to read.
    pub fn readable(&self) -> Vec<PathBuf> {
        let libraries = self.tokens().next().map(|_| LIBRARIES.iter().map(PathBuf::from));
        libraries.into_iter().flatten().chain(self.tokens().map(|token| token.module.clone())).collect()
    }

    /// Files and folders outside of the signer's folder that its keys need to write to, such as sockets.
    pub fn writable(&self) -> Vec<PathBuf> {
        let agents = self.key.values().filter_map(|key| key.gpg_agent.clone());
        self.tokens().flat_map(|token| token.paths.clone()).chain(agents).collect()
    }

    /// Environment variables of its tokens' modules.
    pub fn environment(&self) -> impl Iterator<Item = (&String, &String)> {
        self.tokens().flat_map(|token| &token.environment)
    }

    /// Whether a token's module needs the machine's network.
    pub fn has_network(&self) -> bool {
        self.tokens().any(|token| token.network)
    }

    /// The worker with a key.
    pub fn worker_of(&self, key: &str) -> Option<(&str, &Worker)> {
        let is_it = |(_, worker): &(&String, &Worker)| worker.key.eq_ignore_ascii_case(key);
        self.worker.iter().find(is_it).map(|(name, worker)| (name.as_str(), worker))
    }
}

impl Repository {
    /// Why nothing is signed at this time, after this many signatures in the last hour; none if it is.
    pub fn refuses(&self, series: &str, time: i64, in_last_hour: u64) -> Option<(Rule, String)> {
        let refusal = if !matches(&self.series, series) {
            format!("the policy does not allow the series {series}")
        } else if let Some(hours) = self.hours.filter(|hours| !hours.has(time)) {
            format!("the policy allows signatures from {hours} only")
        } else if let Some(most) = self.per_hour_max.filter(|most| in_last_hour >= *most) {
            format!("the policy allows {most} signatures an hour, and there were {in_last_hour}")
        } else {
            return None;
        };
        Some((Rule::Policy, refusal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_policy_is_one() {
        let policy = Policy::parse(FIRST).unwrap();
        let yard = &policy.repository["yard"];
        assert!(matches(&yard.names, "anything") && matches(&yard.series, "bookworm"));
        assert_eq!(yard.refuses("bookworm", 0, 1_000_000), None);
    }

    #[test]
    fn a_misspelt_key_is_an_error_with_its_place() {
        let wrong = FIRST.replace("keys =", "key =");
        let error = Policy::parse(&wrong).unwrap_err();
        assert!(error.contains("unknown field `key`") && error.contains("line 4"), "{error}");
        for (from, to, says) in [
            ("\"main\"", "\"man\"", "names the key \"man\", and there is no [key.man]"),
            ("file =", "certificate =", "needs one of file, pkcs11 and gpg-agent"),
            ("keys = [\"main\"]", "keys = []", "has no keys"),
            ("keys = [\"main\"]", "keys = [\"main\"]\narchives = [\"x\"]", "there is no [archive.x]"),
            ("keys = [\"main\"]", "keys = [\"main\"]\npackage-key = \"x\"", "there is no [x509.x]"),
            ("keys = [\"main\"]", "keys = [\"main\"]\nhours = \"6\"", "is not two hours of the day"),
            ("keys = [\"main\"]", "keys = [\"main\"]\nnames = [\"[\"]", "is not a pattern"),
        ] {
            let error = Policy::parse(&FIRST.replace(from, to)).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn hours_may_pass_midnight() {
        let hours = Hours::try_from("22-6".to_owned()).unwrap();
        let at = |hour: i64| hours.has(86_400 * 20_000 + hour * 3600);
        assert_eq!([21, 22, 23, 0, 5, 6].map(at), [false, true, true, true, true, false]);
    }
}
