//! Pilots as Kubernetes Jobs, by the cluster's API: the name of the pilot is the name of the Job.
//!
//! Six requests of the API are enough, which is why this is not built on the crate `kube`: with the generated types of all objects
//! and an async runtime of its own it would be by far the largest dependency of the program.
//!
//! - *Secrets.* Environment and files are in a Secret with the name of the pilot, which belongs to the Job and is removed with it. Who
//!   may read Secrets or run commands in pods of the namespace can read them.
//! - *Once.* A Job starts one pod, and none again: a pod that ended has used its token.
//! - *Gone.* A stop deletes the Job in the foreground: it is listed as ending until its pod has ended.
//!
//! # What a pod needs to build
//!
//! Kilnyard makes user, mount and pid namespaces for builds, and mounts overlays and `/proc` there. In a pod, this needs:
//!
//! - a kernel and nodes that let pods make user namespaces (`user.max_user_namespaces` above 0, and on Ubuntu no restriction by AppArmor);
//! - no filter of system calls and no AppArmor profile, or ones that allow `unshare`, `mount`, `pivot_root` and `umount2`:
//!   [`KubernetesSettings::is_unconfined`]. The profile `RuntimeDefault` refuses them;
//! - `/proc` without masked files, since the kernel refuses a new mount of it otherwise: `procMount: Unmasked`, which is set with
//!   [`KubernetesSettings::has_user_namespace`] and needs Kubernetes 1.33 or later;
//! - a namespace whose pod security level is `privileged`. No privileged container, and no capability.
//!
//! The image needs the program, and nothing else. With a user namespace of the pod, root in the container is an ordinary user of
//! the node. Without the above, builds fail with the reason that `doctor` prints in the pod.

mod access;
mod manifest;
mod state;

use crate::{Description, Driver, LISTED_MAX, Launch, Listing, PilotName, Place, PoolError, Surroundings};
pub use access::KubernetesAccess;
use access::{Resolved, Token};
use reqwest::blocking::{Client, Response};
use reqwest::{Method, StatusCode};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use state::{Job, Page, Pod};
use std::io::Read;
use std::time::Duration;

/// The most bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 32 << 20;
/// The objects of one page of a list.
const PAGE: usize = 500;
/// How long a connection may take to be made.
const CONNECT_MAX: Duration = Duration::from_secs(10);

/// Where pilots run, and with what.
#[derive(Clone, Debug, PartialEq)]
pub struct KubernetesSettings {
    /// The prefix of the pool's names.
    pub prefix: String,
    /// The namespace; without one, that of the access, or else `default`.
    pub namespace: Option<String>,
    /// The server and who asks.
    pub access: KubernetesAccess,
    /// The image of the container.
    pub image: String,
    /// The cores of a pilot, requested and at most.
    pub cores: u32,
    /// The memory of a pilot in bytes, requested and at most.
    pub memory_bytes: u64,
    /// The disk space of a pilot in bytes, requested and at most; none if it is not limited.
    pub disk_bytes: Option<u64>,
    /// How long a pilot lives at most, in seconds; none if it is not limited.
    pub pilot_seconds_max: Option<u64>,
    /// The time between SIGTERM and SIGKILL, in seconds.
    pub grace_seconds: u32,
    /// Whether pods get a user namespace (`hostUsers: false`).
    pub has_user_namespace: bool,
    /// Whether system calls are neither filtered by seccomp nor by AppArmor.
    pub is_unconfined: bool,
    /// Further fields of the pod's `spec`, such as `nodeSelector`, `tolerations` or `imagePullSecrets`. What this driver sets wins.
    pub pod: Map<String, Value>,
    /// How long a request may take, in seconds.
    pub seconds_max: u64,
    /// What `kubectl` and programs of a kubeconfig are started with.
    pub surroundings: Surroundings,
}

/// A cluster as the manager; see the module documentation. Its calls must not be made in an async runtime.
#[derive(Debug)]
pub struct KubernetesDriver {
    /// With a namespace.
    settings: KubernetesSettings,
    namespace: String,
    server: String,
    token: Token,
    http: Client,
}

/// An answer of the API that is no object.
#[derive(Deserialize)]
struct Status {
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Version {
    git_version: String,
}

#[derive(Deserialize)]
struct Review {
    #[serde(default)]
    status: ReviewStatus,
}

#[derive(Default, Deserialize)]
struct ReviewStatus {
    #[serde(default)]
    allowed: bool,
}

#[derive(Deserialize)]
struct Created {
    metadata: state::Metadata,
}

impl KubernetesDriver {
    /// Checks the settings and reads the access; asks no server.
    pub fn new(mut settings: KubernetesSettings) -> Result<KubernetesDriver, PoolError> {
        PilotName::parse(&settings.prefix)?;
        if settings.image.is_empty() || settings.image.bytes().any(|byte| !byte.is_ascii_graphic()) {
            return Err(PoolError::invalid("image", &settings.image, "the reference of an image"));
        }
        let Resolved { server, tls, token, namespace } =
            access::resolve(&settings.access, &settings.surroundings, settings.seconds_max)?;
        let namespace = settings.namespace.take().or(namespace).unwrap_or_else(|| "default".to_owned());
        if namespace.len() > 63 || !is_label(&namespace) {
            let expected = "lower-case letters, digits and -, at most 63";
            return Err(PoolError::invalid("namespace", &namespace, expected));
        }
        settings.namespace = Some(namespace.clone());
        let http = Client::builder()
            .use_preconfigured_tls(tls)
            .https_only(true)
            // A redirect would be followed with the token.
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_MAX)
            .timeout(Duration::from_secs(settings.seconds_max))
            .user_agent(concat!("kilnyard/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| PoolError::Away {
                server: server.clone(),
                reason: crate::text::reason(&error.to_string()),
            })?;
        Ok(KubernetesDriver { settings, namespace, server, token, http })
    }

    /// The namespace of the pool's objects, of a kind whose group has this path.
    fn path(&self, group: &str, kind: &str) -> String {
        format!("/{group}/namespaces/{}/{kind}", self.namespace)
    }

    fn send(
        &self,
        what: &str,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Vec<u8>, PoolError> {
        let mut request = self.http.request(method, format!("{}{path}", self.server));
        if let Some(token) = self.token.header(&self.settings.surroundings, self.settings.seconds_max)? {
            request = request.header("authorization", token);
        }
        request = match body {
            Some(body) => request.header("content-type", "application/json").body(body.to_string()),
            None => request,
        };
        let away = |error: &dyn std::error::Error| {
            let mut reason = error.to_string();
            let mut cause = error.source();
            while let Some(error) = cause {
                reason = format!("{reason}: {error}");
                cause = error.source();
            }
            PoolError::Away { server: self.server.clone(), reason: crate::text::reason(&reason) }
        };
        let response = request
            .header("accept", "application/json")
            .send()
            .map_err(|error| away(&error.without_url()))?;
        let status = response.status();
        let bytes = read(response).map_err(|error| away(&error))?;
        if bytes.len() as u64 > ANSWER_BYTES_MAX {
            return Err(self.unreadable("it is too large"));
        }
        match status.is_success() {
            true => Ok(bytes),
            false => Err(self.refused(what, status, &bytes)),
        }
    }

    fn refused(&self, what: &str, status: StatusCode, bytes: &[u8]) -> PoolError {
        let message =
            serde_json::from_slice::<Status>(bytes).map(|status| status.message).unwrap_or_default();
        let reason = crate::text::reason(&format!("{} {message}", status.as_u16()));
        PoolError::Refused { server: self.server.clone(), what: what.to_owned(), reason }
    }

    fn unreadable(&self, reason: &str) -> PoolError {
        PoolError::Answer { program: self.server.clone(), reason: crate::text::reason(reason) }
    }

    fn read<T: DeserializeOwned>(&self, bytes: &[u8]) -> Result<T, PoolError> {
        serde_json::from_slice(bytes).map_err(|error| self.unreadable(&error.to_string()))
    }

    /// All objects of the pool of one kind.
    fn all<T: DeserializeOwned>(&self, group: &str, kind: &str) -> Result<Vec<T>, PoolError> {
        let path =
            format!("{}?labelSelector={}%3D{}", self.path(group, kind), manifest::POOL, self.settings.prefix);
        let (mut all, mut next) = (Vec::new(), String::new());
        loop {
            let page = format!("{path}&limit={PAGE}{next}");
            let page: Page<T> =
                self.read(&self.send(&format!("list {kind}"), Method::GET, &page, None)?)?;
            if !page.kind.ends_with("List") {
                return Err(self.unreadable(&format!("`{}` is no list", page.kind)));
            }
            all.extend(page.items);
            if all.len() > LISTED_MAX {
                return Err(self.unreadable(&format!("more than {LISTED_MAX} {kind}")));
            }
            match page.metadata.next.filter(|next| !next.is_empty()) {
                Some(token) => next = format!("&continue={}", escaped(&token)),
                None => return Ok(all),
            }
        }
    }

    fn may(&self, verb: &str, group: &str, resource: &str) -> Result<bool, PoolError> {
        let attributes =
            json!({ "namespace": self.namespace, "verb": verb, "group": group, "resource": resource });
        let review = json!({ "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": attributes } });
        let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let review: Review = self.read(&self.send("review access", Method::POST, path, Some(&review))?)?;
        Ok(review.status.allowed)
    }
}

impl Driver for KubernetesDriver {
    fn start(&self, name: &PilotName, launch: &Launch) -> Result<(), PoolError> {
        launch.check()?;
        let job = manifest::job(&self.settings, name, launch);
        let created =
            self.send("create a Job", Method::POST, &self.path("apis/batch/v1", "jobs"), Some(&job))?;
        let created: Created = self.read(&created)?;
        // After the Job, whose uid it names; the pod waits for it.
        let secret = manifest::secret(&self.settings, name, launch, &created.metadata.uid);
        let sent = self.send("create a Secret", Method::POST, &self.path("api/v1", "secrets"), Some(&secret));
        sent.map(drop).inspect_err(|_| {
            // Its pod would wait for ever. If this fails, too, the pool stops it after its start-up time.
            let _ = self.stop(name);
        })
    }

    fn list(&self) -> Result<Listing, PoolError> {
        // Jobs first: a pod whose Job is newer is not looked up, and the Job appears in the next list.
        let jobs: Vec<Job> = self.all("apis/batch/v1", "jobs")?;
        let pods: Vec<Pod> = self.all("api/v1", "pods")?;
        state::listed(&jobs, &pods).map(Listing::of).map_err(|reason| self.unreadable(&reason))
    }

    fn stop(&self, name: &PilotName) -> Result<(), PoolError> {
        let path = format!("{}/{name}", self.path("apis/batch/v1", "jobs"));
        let options =
            json!({ "apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Foreground" });
        match self.send("delete a Job", Method::DELETE, &path, Some(&options)) {
            Err(PoolError::Refused { reason, .. }) if reason.starts_with("404 ") => Ok(()),
            other => other.map(drop),
        }
    }

    fn describe(&self) -> Result<Description, PoolError> {
        let version: Version = self.read(&self.send("show its version", Method::GET, "/version", None)?)?;
        let mut missing = Vec::new();
        for (verb, group, resource) in [
            ("create", "batch", "jobs"),
            ("list", "batch", "jobs"),
            ("delete", "batch", "jobs"),
            ("create", "", "secrets"),
            ("list", "", "pods"),
        ] {
            if !self.may(verb, group, resource)? {
                missing.push(format!("{verb} {resource}"));
            }
        }
        let namespace = &self.namespace;
        let place = Place {
            name: format!("namespace {namespace}"),
            count: None,
            cores: None,
            memory_bytes: None,
            trouble: (!missing.is_empty()).then(|| format!("may not {}", missing.join(", "))),
        };
        let mut notes = Vec::new();
        if !self.settings.is_unconfined {
            notes.push(
                "pods have the profiles of the cluster, which usually refuse the namespaces of builds"
                    .to_owned(),
            );
        }
        let version = crate::text::excerpt(version.git_version.as_bytes(), 80);
        Ok(Description { manager: "Kubernetes".to_owned(), version, places: vec![place], notes })
    }
}

fn is_label(text: &str) -> bool {
    let is_end = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.bytes().next().is_some_and(is_end)
        && text.bytes().last().is_some_and(is_end)
        && text.bytes().all(|byte| is_end(byte) || byte == b'-')
}

/// Up to one byte more than allowed.
fn read(response: Response) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    response.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// A value of a query.
fn escaped(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => char::from(byte).to_string(),
        byte => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}
