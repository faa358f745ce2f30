//! The address of a bucket.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The default of [`Options::patience`].
const PATIENCE: Duration = Duration::from_secs(30);
/// The least patience: connecting has a share of it.
const PATIENCE_MIN: Duration = Duration::from_secs(1);
/// The default of [`Options::part_bytes`].
const PART_BYTES: usize = 16 << 20;
/// S3 rejects smaller parts, other than the last.
const PART_BYTES_MIN: usize = 5 << 20;
/// Parts are sent from memory.
const PART_BYTES_MAX: usize = 1 << 30;
/// The longest name of a bucket and the longest prefix: an object's name has at most 1024 bytes.
const NAME_BYTES_MAX: usize = 255;

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It is not the address of a bucket.
    #[error(
        "`{address}` is not an address of the form s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://ACCOUNT/CONTAINER/PREFIX: {reason}"
    )]
    Malformed {
        /// The address, without a user or password before its host.
        address: String,
        /// The problem, as a clause.
        reason: String,
    },
    /// An option cannot be used.
    #[error("the {option} of {address} cannot be used: {reason}")]
    Option {
        /// The address.
        address: String,
        /// The name of the option, in words.
        option: &'static str,
        /// The problem, as a clause.
        reason: String,
    },
    /// The certificates cannot be read.
    #[error("failed to read the certificates in {path}: {reason}")]
    Certificates {
        /// The file.
        path: PathBuf,
        /// The problem, as a clause.
        reason: String,
    },
}

/// The key to a bucket. It is never printed.
#[derive(Clone)]
pub struct Credentials {
    /// S3: the access key id. Azure: unused, as the account is in the address. Google: unused.
    pub key_id: String,
    /// S3: the secret access key. Azure: an access key of the account. Google: the text of a service account's key file.
    pub secret: String,
    /// S3: the session token of temporary credentials.
    pub token: Option<String>,
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credentials({})", self.key_id)
    }
}

/// What an address does not say.
#[derive(Clone, Debug)]
pub struct Options {
    /// The URL of the server, without the bucket. The default is the provider's own.
    pub endpoint: Option<String>,
    /// The region of the bucket (S3 only). The default is `us-east-1`, which other servers accept, too.
    pub region: Option<String>,
    /// Without, those are used that a cloud gives to its own machines; in Google's, those that `gcloud` left in the home
    /// folder come first.
    pub credentials: Option<Credentials>,
    /// A file with the certificates of the authorities that may sign the server's, in PEM. The default is the public
    /// authorities.
    pub certificates: Option<PathBuf>,
    /// Allows an endpoint without TLS: everyone on the way can read the content and use presigned URLs.
    pub allows_http: bool,
    /// How long a call tries to reach a server that does not answer. Calls that move content may take longer in all,
    /// as long as it moves. The default is 30 seconds.
    pub patience: Duration,
    /// Content of this size in bytes or more is sent in parts of this size: between 5 MiB, which S3 requires, and 1 GiB.
    /// A part that is being sent is in memory, up to three at a time. The default is 16 MiB.
    pub part_bytes: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            endpoint: None,
            region: None,
            credentials: None,
            certificates: None,
            allows_http: false,
            patience: PATIENCE,
            part_bytes: PART_BYTES,
        }
    }
}

/// The provider that an address names, with the name of its bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    S3 { bucket: String },
    Google { bucket: String },
    Azure { account: String, container: String },
}

/// The address of a bucket and how to get in: parsed and checked, nothing was sent. Displays as its URL.
#[derive(Clone)]
pub struct Address {
    url: String,
    pub(crate) place: Place,
    /// Without a slash at its ends; empty for none.
    pub(crate) prefix: String,
    pub(crate) options: Options,
    pub(crate) tls: Arc<ClientConfig>,
}

impl Address {
    /// Parses `s3://BUCKET/PREFIX`, `gs://BUCKET/PREFIX` or `az://ACCOUNT/CONTAINER/PREFIX`. The prefix may be missing.
    /// Reads the file of [`Options::certificates`].
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn parse(url: &str, options: Options) -> Result<Address, AddressError> {
        let malformed =
            |reason: &str| AddressError::Malformed { address: without_user(url), reason: reason.to_owned() };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| malformed("it has no scheme like s3://"))?;
        if rest.contains(['@', '?', '#']) {
            return Err(malformed("credentials and parameters are options, and not part of it"));
        }
        let (first, rest) = split(rest);
        let (place, prefix) = match scheme {
            "s3" => (Place::S3 { bucket: first.to_owned() }, rest),
            "gs" => (Place::Google { bucket: first.to_owned() }, rest),
            "az" => {
                let (container, rest) = split(rest);
                if !is_name(container) {
                    return Err(malformed(
                        "it names no container, or one with other characters than A-Z a-z 0-9 . _ -",
                    ));
                }
                (Place::Azure { account: first.to_owned(), container: container.to_owned() }, rest)
            }
            _ => return Err(malformed("its scheme is none of s3, gs and az")),
        };
        if !is_name(first) {
            return Err(malformed("it names no bucket, or one with other characters than A-Z a-z 0-9 . _ -"));
        }
        let prefix = prefix.trim_end_matches('/');
        if !prefix.is_empty() && !prefix.split('/').all(is_name) {
            return Err(malformed(
                "a part of its prefix is empty, or has other characters than A-Z a-z 0-9 . _ -",
            ));
        }
        if prefix.len() > NAME_BYTES_MAX {
            return Err(malformed("its prefix is too long"));
        }
        let url = url.trim_end_matches('/').to_owned();
        check(&url, &place, &options)?;
        let tls = tls(options.certificates.as_deref())?;
        Ok(Address { url, place, prefix: prefix.to_owned(), options, tls: Arc::new(tls) })
    }

    /// What must never be in a message.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let credentials = self.options.credentials.iter();
        let secrets = credentials.flat_map(|it| [Some(it.secret.clone()), it.token.clone()]);
        secrets.flatten().filter(|secret| !secret.is_empty()).collect()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.url)
    }
}

fn split(text: &str) -> (&str, &str) {
    text.split_once('/').unwrap_or((text, ""))
}

/// Whether a text can be a segment of a path, and needs no escapes in a URL.
fn is_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !text.is_empty()
        && text.len() <= NAME_BYTES_MAX
        && text.bytes().all(is_plain)
        && text.bytes().any(|byte| byte != b'.')
}

fn without_user(url: &str) -> String {
    match (url.split_once("://"), url.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, host))) => format!("{scheme}://…@{host}"),
        _ => url.to_owned(),
    }
}

fn check(url: &str, place: &Place, options: &Options) -> Result<(), AddressError> {
    let unusable = |option: &'static str, reason: &str| {
        Err(AddressError::Option { address: url.to_owned(), option, reason: reason.to_owned() })
    };
    if let Some(endpoint) = &options.endpoint {
        let Ok(parsed) = reqwest::Url::parse(endpoint) else {
            return unusable("endpoint", "it is not a URL");
        };
        if !parsed.username().is_empty() || parsed.password().is_some() || parsed.query().is_some() {
            return unusable("endpoint", "a user, a password or parameters have no place in it");
        }
        match parsed.scheme() {
            "https" => {}
            "http" if options.allows_http => {}
            "http" => return unusable("endpoint", "it has no TLS, which must be allowed explicitly"),
            _ => return unusable("endpoint", "its scheme is neither https nor http"),
        }
    }
    if let Some(region) = &options.region
        && !is_name(region)
    {
        return unusable("region", "it is empty, or has other characters than A-Z a-z 0-9 . _ -");
    }
    if let Some(credentials) = &options.credentials {
        if credentials.secret.is_empty() {
            return unusable("secret", "it is empty");
        }
        if matches!(place, Place::S3 { .. }) {
            let mut texts = [&credentials.key_id, &credentials.secret].into_iter().chain(&credentials.token);
            if credentials.key_id.is_empty()
                || !texts.all(|text| text.bytes().all(|byte| byte.is_ascii_graphic()))
            {
                return unusable(
                    "credentials",
                    "the key id is empty, or one has spaces or unprintable characters",
                );
            }
        }
    }
    if options.patience < PATIENCE_MIN {
        return unusable("patience", "it is less than a second");
    }
    if !(PART_BYTES_MIN..=PART_BYTES_MAX).contains(&options.part_bytes) {
        return unusable("size of parts", "it is not between 5 MiB and 1 GiB");
    }
    Ok(())
}

fn tls(authorities: Option<&Path>) -> Result<ClientConfig, AddressError> {
    let failed = |reason: String| AddressError::Certificates {
        path: authorities.unwrap_or(Path::new("")).to_owned(),
        reason,
    };
    let mut roots = RootCertStore::empty();
    match authorities {
        None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
        Some(path) => {
            let certificates =
                CertificateDer::pem_file_iter(path).map_err(|error| failed(error.to_string()))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| failed(error.to_string()))?;
                roots.add(certificate).map_err(|error| failed(error.to_string()))?;
            }
            if roots.is_empty() {
                return Err(failed("it has none".to_owned()));
            }
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.map_err(|error| failed(error.to_string()))?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret() -> Credentials {
        Credentials { key_id: "key".to_owned(), secret: "hush".to_owned(), token: Some("sesame".to_owned()) }
    }

    #[test]
    fn addresses_name_a_bucket_and_a_prefix() {
        let parsed = |url: &str| {
            let address = Address::parse(url, Options::default()).unwrap();
            (address.place, address.prefix)
        };
        let s3 = |bucket: &str| Place::S3 { bucket: bucket.to_owned() };
        assert_eq!(parsed("s3://one"), (s3("one"), String::new()));
        assert_eq!(parsed("s3://one/"), (s3("one"), String::new()));
        assert_eq!(parsed("s3://one/a/b/"), (s3("one"), "a/b".to_owned()));
        assert_eq!(parsed("gs://one/a"), (Place::Google { bucket: "one".to_owned() }, "a".to_owned()));
        let azure = Place::Azure { account: "acc".to_owned(), container: "con".to_owned() };
        assert_eq!(parsed("az://acc/con/a"), (azure, "a".to_owned()));
    }

    #[test]
    fn other_addresses_are_rejected_with_a_reason() {
        let rejected = |url: &str| Address::parse(url, Options::default()).unwrap_err().to_string();
        for (url, reason) in [
            ("one/two", "no scheme"),
            ("ftp://one", "none of"),
            ("s3://", "names no bucket"),
            ("s3://..", "names no bucket"),
            ("az://account", "names no container"),
            ("s3://one/a//b", "prefix"),
            ("s3://one/a/../b", "prefix"),
            ("s3://one/a b", "prefix"),
            ("s3://one?key=1", "are options"),
        ] {
            assert!(rejected(url).contains(reason), "{}", rejected(url));
        }
        let said = rejected("s3://key:hush@one");
        assert!(said.contains("are options") && !said.contains("hush"), "{said}");
    }

    #[test]
    fn other_options_are_rejected_with_a_reason() {
        let rejected = |options: Options| Address::parse("s3://one", options).unwrap_err().to_string();
        let endpoint = |text: &str| Options { endpoint: Some(text.to_owned()), ..Options::default() };
        assert!(rejected(endpoint("http://one")).contains("explicitly"));
        assert!(rejected(endpoint("one")).contains("not a URL"));
        assert!(rejected(endpoint("ftp://one")).contains("neither"));
        let said = rejected(endpoint("https://key:hush@one"));
        assert!(said.contains("password") && !said.contains("hush"), "{said}");
        assert!(rejected(Options { part_bytes: 1, ..Options::default() }).contains("5 MiB"));
        assert!(rejected(Options { patience: Duration::ZERO, ..Options::default() }).contains("second"));
        let missing = Options { certificates: Some("/absent".into()), ..Options::default() };
        assert!(rejected(missing).contains("/absent"));
        let credentials = Credentials { secret: "hu sh".to_owned(), ..secret() };
        let said = rejected(Options { credentials: Some(credentials), ..Options::default() });
        assert!(said.contains("spaces") && !said.contains("hu sh"), "{said}");
    }

    #[test]
    fn secrets_are_not_printed() {
        let options = Options { credentials: Some(secret()), ..Options::default() };
        let address = Address::parse("s3://one", options.clone()).unwrap();
        let said = format!("{options:?} {address:?} {address} {:?}", secret());
        assert!(said.contains("key") && !said.contains("hush") && !said.contains("sesame"), "{said}");
        assert_eq!(address.secrets(), ["hush", "sesame"]);
    }
}
