//! The address of a database.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres_rustls::MakeRustlsConnect;

/// The schema of a store, unless another one is chosen.
pub const SCHEMA: &str = "kilnyard";

/// How long one try to connect may take.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// A connection without an answer for this long is broken.
const SILENT_MAX: Duration = Duration::from_secs(15);

/// Why an address cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// It is not an address of PostgreSQL.
    #[error("`{address}` is not an address of the form postgres://USER@HOST:PORT/DATABASE: {reason}")]
    Malformed {
        /// The address, without its password.
        address: String,
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

/// The address of a database: as libpq's URL, with the certificates that its server may have.
#[derive(Clone)]
pub struct Address {
    config: Config,
    tls: Arc<ClientConfig>,
    /// The name of the schema.
    schema: String,
}

impl Address {
    /// Parses a URL of the form `postgres://USER:PASSWORD@HOST:PORT/DATABASE?sslmode=require`, or with the folder of a
    /// socket, `postgres://%2Frun%2Fpostgresql/DATABASE`. `password` replaces that of the URL. With TLS, the server's
    /// certificate must be signed by one in the file `authorities`, or without it by a public authority.
    ///
    /// # Errors
    /// See [`AddressError`].
    pub fn parse(
        url: &str,
        password: Option<&str>,
        authorities: Option<&Path>,
    ) -> Result<Address, AddressError> {
        let malformed = |reason: String| AddressError::Malformed { address: without_password(url), reason };
        let is_url = url.starts_with("postgres://") || url.starts_with("postgresql://");
        if !is_url {
            return Err(malformed("it does not begin with postgres://".to_owned()));
        }
        let mut config = Config::from_str(url).map_err(|error| malformed(error.to_string()))?;
        if config.get_hosts().is_empty() {
            return Err(malformed("it names no host".to_owned()));
        }
        if config.get_dbname().is_none_or(str::is_empty) {
            return Err(malformed("it names no database".to_owned()));
        }
        if let Some(password) = password {
            config.password(password);
        }
        // Of several hosts, the one that may write: a replica that was promoted is found at once.
        config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        config.application_name("kilnyard").connect_timeout(CONNECT_MAX).tcp_user_timeout(SILENT_MAX);
        config.keepalives(true).keepalives_idle(SILENT_MAX);
        let is_over_network = config.get_hosts().iter().any(|host| matches!(host, Host::Tcp(_)));
        let is_chosen = url.contains("sslmode=");
        if !is_over_network {
            config.ssl_mode(SslMode::Disable);
        } else if !is_chosen && authorities.is_some() {
            config.ssl_mode(SslMode::Require);
        }
        let mut roots = RootCertStore::empty();
        match authorities {
            None => roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned()),
            Some(path) => {
                let failed = |reason: String| AddressError::Certificates { path: path.to_owned(), reason };
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
        let tls = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let tls = tls.map_err(|error| malformed(error.to_string()))?;
        let tls = Arc::new(tls.with_root_certificates(roots).with_no_client_auth());
        Ok(Address { config, tls, schema: SCHEMA.to_owned() })
    }

    /// The same database, where the store is in the schema of this name.
    #[must_use]
    pub fn with_schema(self, schema: &str) -> Address {
        Address { schema: schema.replace('\0', ""), ..self }
    }

    /// The name of the schema.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// The schema, as statements name it, unless it is the default.
    pub(crate) fn other_schema(&self) -> Option<String> {
        (self.schema != SCHEMA).then(|| format!("\"{}\"", self.schema.replace('"', "\"\"")))
    }

    /// What connects to it.
    pub(crate) fn config(&self) -> &Config {
        &self.config
    }

    pub(crate) fn tls(&self) -> MakeRustlsConnect {
        MakeRustlsConnect::new((*self.tls).clone())
    }
}

/// The address without its password, for messages.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = &self.config;
        write!(f, "postgres://")?;
        if let Some(user) = config.get_user() {
            write!(f, "{user}@")?;
        }
        for (number, host) in config.get_hosts().iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            match host {
                Host::Tcp(host) => write!(f, "{comma}{host}")?,
                Host::Unix(folder) => write!(f, "{comma}{}", folder.display())?,
            }
            let ports = config.get_ports();
            if let Some(port) = ports.get(number).or(ports.first()) {
                write!(f, ":{port}")?;
            }
        }
        write!(f, "/{}", config.get_dbname().unwrap_or_default())?;
        if self.schema == SCHEMA { Ok(()) } else { write!(f, " (schema {})", self.schema) }
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A text that should be a URL, without what may be its password.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    match rest.rsplit_once('@') {
        Some((account, place)) => {
            let user = account.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}@{place}")
        }
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_shown_without_its_password() {
        let shown = |url: &str| match Address::parse(url, None, None) {
            Ok(address) => format!("{address} {address:?}"),
            Err(error) => error.to_string(),
        };
        for url in [
            "postgres://kiln:secret@db.example:5433/farm",
            "postgres://kiln:secret@db.example:x/farm",
            "postgres://kiln:secret@db.example",
            "postgres://kiln:se@cret@db.example/farm?sslmode=nonsense",
            "mysql://kiln:secret@db.example/farm",
        ] {
            let shown = shown(url);
            assert!(!shown.contains("cret") && shown.contains("db.example"), "{shown}");
        }
        assert_eq!(
            shown("postgres://kiln:secret@one,two:5433/farm"),
            "postgres://kiln@one:5432,two:5433/farm postgres://kiln@one:5432,two:5433/farm"
        );
    }

    #[test]
    fn a_bad_address_is_refused_with_a_reason() {
        let refused = |url: &str| Address::parse(url, None, None).unwrap_err().to_string();
        assert!(refused("db.example").contains("begin with postgres://"));
        assert!(refused("postgres://db.example").contains("names no database"));
        assert!(refused("postgres:///farm").contains("names no host"));
        assert!(refused("postgres://a/farm?nonsense=1").contains("nonsense"));
        let missing = Address::parse("postgres://a/farm", None, Some(Path::new("/absent"))).unwrap_err();
        assert!(missing.to_string().contains("/absent"));
    }

    #[test]
    fn sockets_use_no_tls_and_own_authorities_require_it() {
        let mode = |url: &str, authorities: Option<&Path>| {
            Address::parse(url, None, authorities).unwrap().config.get_ssl_mode()
        };
        assert_eq!(mode("postgres://%2Frun%2Fpostgresql/farm", None), SslMode::Disable);
        assert_eq!(mode("postgres://a/farm", None), SslMode::Prefer);
        assert_eq!(mode("postgres://a/farm?sslmode=require", None), SslMode::Require);
    }
}
