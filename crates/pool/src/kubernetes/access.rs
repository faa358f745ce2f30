//! How the server of the API is reached, and who asks.

use crate::call::Call;
use crate::folder::path_text;
use crate::{PoolError, Surroundings};
use base64::prelude::{BASE64_STANDARD, Engine};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Where the files of a service account are in a pod.
const ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// The most bytes of a configuration, a token or a certificate.
const BYTES_MAX: usize = 1 << 20;

/// Who asks which server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KubernetesAccess {
    /// The service account of the pod that this process runs in.
    InCluster,
    /// A kubeconfig. It is read by `kubectl config view`, which must be installed: it knows how files are merged, and where
    /// relative paths begin.
    Configuration {
        /// The file; without one, that of the environment of the surroundings (`KUBECONFIG`, or `~/.kube/config` with `HOME`).
        path: Option<PathBuf>,
        /// The context; without one, the current one.
        context: Option<String>,
    },
    /// Given here.
    Explicit {
        /// `https://HOST:PORT`.
        server: String,
        /// The certificates of the authority that certifies the server, in PEM.
        authority: PathBuf,
        /// A file with the token; it is read again for each call.
        token: PathBuf,
    },
}

/// Access that was resolved.
#[derive(Debug)]
pub(super) struct Resolved {
    /// Without a `/` at its end.
    pub server: String,
    pub namespace: Option<String>,
    pub tls: ClientConfig,
    pub token: Token,
}

/// What a request authenticates with, in addition to the certificate of the connection.
#[derive(Clone, Debug)]
pub(super) enum Token {
    None,
    /// Not shown by [`Resolved`]'s users: it is only put into headers.
    Text(Secret),
    File(PathBuf),
    /// A program that prints one.
    Program(Program),
}

/// A text that is not shown.
#[derive(Clone, Deserialize)]
pub(super) struct Secret(pub String);

impl std::fmt::Debug for Secret {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("…")
    }
}

#[derive(Deserialize)]
struct Configuration {
    #[serde(default)]
    clusters: Vec<NamedCluster>,
    #[serde(default)]
    contexts: Vec<NamedContext>,
    #[serde(default)]
    users: Vec<NamedUser>,
}

#[derive(Deserialize)]
struct NamedCluster {
    cluster: Cluster,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    #[serde(default)]
    certificate_authority_data: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
}

#[derive(Deserialize)]
struct NamedContext {
    context: Context,
}

#[derive(Deserialize)]
struct Context {
    #[serde(default)]
    namespace: Option<String>,
}

#[derive(Deserialize)]
struct NamedUser {
    user: User,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct User {
    #[serde(default)]
    token: Option<Secret>,
    #[serde(default, rename = "tokenFile")]
    token_file: Option<PathBuf>,
    #[serde(default)]
    client_certificate_data: Option<String>,
    #[serde(default)]
    client_key_data: Option<Secret>,
    #[serde(default)]
    exec: Option<Program>,
}

/// A program of a kubeconfig, such as a cloud's.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Program {
    command: String,
    #[serde(default)]
    args: Option<Vec<String>>,
    #[serde(default)]
    env: Option<Vec<Variable>>,
    #[serde(default, rename = "apiVersion")]
    version: String,
}

#[derive(Clone, Debug, Deserialize)]
struct Variable {
    name: String,
    value: Secret,
}

#[derive(Deserialize)]
struct Credential {
    status: CredentialStatus,
}

#[derive(Deserialize)]
struct CredentialStatus {
    token: Secret,
}

impl Token {
    /// The value of the header `Authorization`, read or made anew.
    pub fn header(&self, surroundings: &Surroundings, seconds_max: u64) -> Result<Option<String>, PoolError> {
        let text = match self {
            Token::None => return Ok(None),
            Token::Text(Secret(text)) => text.clone(),
            Token::File(path) => read(path)?,
            Token::Program(program) => program.token(surroundings, seconds_max)?,
        };
        let text = text.trim();
        match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
            true => Ok(Some(format!("Bearer {text}"))),
            false => Err(PoolError::invalid("token", "…", "printable characters")),
        }
    }
}

impl Program {
    fn token(&self, surroundings: &Surroundings, seconds_max: u64) -> Result<String, PoolError> {
        let mut surroundings = surroundings.clone();
        for Variable { name, value } in self.env.iter().flatten() {
            surroundings.environment.insert(name.clone(), value.0.clone());
        }
        let asked = serde_json::json!({
            "apiVersion": self.version, "kind": "ExecCredential", "spec": { "interactive": false },
        });
        surroundings.environment.insert("KUBERNETES_EXEC_INFO".to_owned(), asked.to_string());
        let arguments: Vec<&str> = self.args.iter().flatten().map(String::as_str).collect();
        let call = Call {
            program: &self.command,
            arguments: &arguments,
            input: b"",
            surroundings: &surroundings,
            seconds_max,
            output_bytes_max: BYTES_MAX,
        };
        let said = call.run()?;
        // The text of the error could have a part of the token.
        let credential: Result<Credential, _> = serde_json::from_slice(&said.stdout);
        credential.map(|credential| credential.status.token.0).map_err(|_| call.unreadable("it has no token"))
    }
}

/// Resolves the access. Fails if something is missing; asks no server.
pub(super) fn resolve(
    access: &KubernetesAccess,
    surroundings: &Surroundings,
    seconds_max: u64,
) -> Result<Resolved, PoolError> {
    match access {
        KubernetesAccess::InCluster => {
            let file = |name: &str| Path::new(ACCOUNT).join(name);
            Ok(Resolved {
                server: "https://kubernetes.default.svc".to_owned(),
                namespace: Some(read(&file("namespace"))?.trim().to_owned()),
                tls: tls(read(&file("ca.crt"))?.as_bytes(), None)?,
                token: Token::File(file("token")),
            })
        }
        KubernetesAccess::Explicit { server, authority, token } => Ok(Resolved {
            server: address(server)?,
            namespace: None,
            tls: tls(read(authority)?.as_bytes(), None)?,
            token: Token::File(token.clone()),
        }),
        KubernetesAccess::Configuration { path, context } => {
            let mut arguments = vec!["config", "view", "--raw", "--minify", "--flatten", "--output=json"];
            let path = match path {
                Some(path) => Some(format!("--kubeconfig={}", path_text("kubeconfig", path)?)),
                None => None,
            };
            let context = context.as_ref().map(|context| format!("--context={context}"));
            arguments.extend(path.as_deref());
            arguments.extend(context.as_deref());
            let call = Call {
                program: "kubectl",
                arguments: &arguments,
                input: b"",
                surroundings,
                seconds_max,
                output_bytes_max: BYTES_MAX,
            };
            let said = call.run()?;
            let read: Result<Configuration, _> = serde_json::from_slice(&said.stdout);
            let configuration = read.map_err(|_| call.unreadable("it is no configuration"))?;
            of_configuration(configuration)
        }
    }
}

fn of_configuration(configuration: Configuration) -> Result<Resolved, PoolError> {
    let missing = |what: &'static str| PoolError::invalid("kubeconfig", "", what);
    let cluster =
        configuration.clusters.into_iter().next().ok_or_else(|| missing("a context with a cluster"))?.cluster;
    if cluster.insecure_skip_tls_verify {
        return Err(missing("a verified server: insecure-skip-tls-verify would give the token to anyone"));
    }
    let decode =
        |text: &str| BASE64_STANDARD.decode(text).map_err(|_| missing("certificates and keys in base64"));
    let authority =
        cluster.certificate_authority_data.ok_or_else(|| missing("the server's certificate-authority"))?;
    let user = configuration.users.into_iter().next().ok_or_else(|| missing("a context with a user"))?.user;
    let identity = match (&user.client_certificate_data, &user.client_key_data) {
        (Some(certificate), Some(key)) => Some((decode(certificate)?, decode(&key.0)?)),
        _ => None,
    };
    let token = match (user.token, user.token_file, user.exec) {
        (_, Some(path), _) => Token::File(path),
        (Some(token), None, _) => Token::Text(token),
        (None, None, Some(program)) => Token::Program(program),
        (None, None, None) => Token::None,
    };
    let namespace = configuration.contexts.into_iter().next().and_then(|context| context.context.namespace);
    Ok(Resolved {
        server: address(&cluster.server)?,
        namespace,
        tls: tls(&decode(&authority)?, identity)?,
        token,
    })
}

fn address(server: &str) -> Result<String, PoolError> {
    let is_valid = server.starts_with("https://") && server.bytes().all(|byte| byte.is_ascii_graphic());
    match is_valid && !server.contains(['?', '#', '@']) {
        true => Ok(server.trim_end_matches('/').to_owned()),
        false => Err(PoolError::invalid("server", server, "an address that begins with https://")),
    }
}

fn read(path: &Path) -> Result<String, PoolError> {
    let failed = |source| PoolError::File { path: path.to_owned(), source };
    if fs::metadata(path).map_err(failed)?.len() > BYTES_MAX as u64 {
        return Err(PoolError::invalid("file", &path.to_string_lossy(), "at most 1 MiB"));
    }
    fs::read_to_string(path).map_err(failed)
}

/// TLS with these authorities, and optionally a certificate and key of the client, all in PEM.
fn tls(authorities: &[u8], identity: Option<(Vec<u8>, Vec<u8>)>) -> Result<ClientConfig, PoolError> {
    let wrong = |what: &'static str| PoolError::invalid(what, "", "valid PEM");
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authorities) {
        let certificate = certificate.map_err(|_| wrong("certificate authority"))?;
        roots.add(certificate).map_err(|_| wrong("certificate authority"))?;
    }
    if roots.is_empty() {
        return Err(wrong("certificate authority"));
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|_| wrong("versions of TLS"))?.with_root_certificates(roots);
    match identity {
        None => Ok(builder.with_no_client_auth()),
        Some((certificates, key)) => {
            let certificates: Result<Vec<CertificateDer<'static>>, _> =
                CertificateDer::pem_slice_iter(&certificates).collect();
            let key = PrivateKeyDer::from_pem_slice(&key).map_err(|_| wrong("client key"))?;
            let certificates = certificates.map_err(|_| wrong("client certificate"))?;
            builder.with_client_auth_cert(certificates, key).map_err(|_| wrong("client certificate"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_of_tls() {
        assert_eq!(address("https://a:6443/").unwrap(), "https://a:6443");
        for server in ["http://a", "https://a b", "https://u:p@a", "https://a?x"] {
            assert!(address(server).is_err(), "{server}");
        }
    }

    #[test]
    fn a_configuration_must_verify_its_server() {
        let of = |text: &str| of_configuration(serde_json::from_str(text).unwrap()).unwrap_err().to_string();
        let insecure = r#"{"clusters":[{"cluster":{"server":"https://a","insecure-skip-tls-verify":true}}]}"#;
        assert!(of(insecure).contains("would give the token to anyone"));
        assert!(of(r#"{"clusters":[{"cluster":{"server":"https://a"}}]}"#).contains("certificate-authority"));
        assert!(of("{}").contains("a cluster"));
    }

    #[test]
    fn tokens_are_not_shown() {
        let secret = Token::Text(Secret("abc".to_owned()));
        assert!(!format!("{secret:?}").contains("abc"));
        let odd = Token::Text(Secret("a\nb".to_owned()));
        assert!(odd.header(&Surroundings::default(), 1).is_err());
    }
}
