//! The driver `kubernetes` with a fake of the API, and with the real one where `KILNYARD_KUBE_APISERVER` and `KILNYARD_ETCD` name the
//! programs: kube-apiserver can be built from its Go modules. Neither has controllers or nodes: the tests make pods.

mod fake;

use fake::Fake;
use kilnyard_pool::{
    Driver, KubernetesAccess, KubernetesDriver, KubernetesSettings, Launch, PilotName, PilotState,
    Surroundings,
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const TOKEN: &str = "test-token-1";
const JOBS: &str = "/apis/batch/v1/namespaces/default/jobs";
const PODS: &str = "/api/v1/namespaces/default/pods";
const SECRETS: &str = "/api/v1/namespaces/default/secrets";

enum Server {
    Fake(Fake),
    Real { processes: Vec<Child>, port: u16 },
}

struct Cluster {
    server: Server,
    folder: TempDir,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if let Server::Real { processes, .. } = &mut self.server {
            for process in processes {
                let _ = process.kill();
                let _ = process.wait();
            }
        }
    }
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Cluster {
    /// The fake, and the real one if it is there.
    fn all() -> Vec<Cluster> {
        let mut all = vec![Cluster::fake()];
        let program = |name: &str| std::env::var_os(name).map(PathBuf::from);
        match (program("KILNYARD_KUBE_APISERVER"), program("KILNYARD_ETCD")) {
            (Some(apiserver), Some(etcd)) => {
                all.push(Cluster::new(|folder, _, key| real(&apiserver, &etcd, folder, key)))
            }
            _ => println!(
                "not run with kube-apiserver and etcd, which are optional: KILNYARD_KUBE_APISERVER, KILNYARD_ETCD"
            ),
        }
        all
    }

    fn fake() -> Cluster {
        Cluster::new(|_, certificate, key| {
            let key = rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into());
            Server::Fake(Fake::start(certificate.der().clone(), key, TOKEN))
        })
    }

    fn new(start: impl FnOnce(&TempDir, &rcgen::Certificate, &KeyPair) -> Server) -> Cluster {
        let folder = tempfile::tempdir().unwrap();
        let authority_key = KeyPair::generate().unwrap();
        let mut authority = CertificateParams::new(Vec::new()).unwrap();
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        fs::write(folder.path().join("ca.pem"), authority.self_signed(&authority_key).unwrap().pem())
            .unwrap();
        let key = KeyPair::generate().unwrap();
        let parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        let certificate = parameters.signed_by(&key, &Issuer::new(authority, authority_key)).unwrap();
        fs::write(folder.path().join("server.pem"), certificate.pem()).unwrap();
        fs::write(folder.path().join("server.key"), key.serialize_pem()).unwrap();
        fs::write(folder.path().join("server.pub"), key.public_key_pem()).unwrap();
        fs::write(folder.path().join("token"), format!("{TOKEN}\n")).unwrap();
        let server = start(&folder, &certificate, &key);
        Cluster { server, folder }
    }

    fn address(&self) -> String {
        let port = match &self.server {
            Server::Fake(fake) => fake.port,
            Server::Real { port, .. } => *port,
        };
        format!("https://127.0.0.1:{port}")
    }

    fn settings(&self) -> KubernetesSettings {
        let file = |name: &str| self.folder.path().join(name);
        let access = KubernetesAccess::Explicit {
            server: self.address(),
            authority: file("ca.pem"),
            token: file("token"),
        };
        KubernetesSettings {
            prefix: "kilnyard-lab".to_owned(),
            namespace: None,
            access,
            image: "registry.example/kilnyard:1".to_owned(),
            cores: 16,
            memory_bytes: 32 << 30,
            disk_bytes: Some(100 << 30),
            pilot_seconds_max: Some(86_400),
            grace_seconds: 600,
            has_user_namespace: true,
            is_unconfined: true,
            pod: Map::from_iter([
                ("nodeSelector".to_owned(), json!({ "pool": "lab" })),
                ("restartPolicy".to_owned(), json!("Always")),
            ]),
            seconds_max: 5,
            surroundings: Surroundings::default(),
        }
    }

    fn driver(&self) -> KubernetesDriver {
        KubernetesDriver::new(self.settings()).unwrap()
    }

    /// A request of the real API by the test, which plays the controllers.
    fn ask(&self, method: &str, path: &str, kind: &str, body: &Value) -> (u16, Value) {
        let authority = fs::read(self.folder.path().join("ca.pem")).unwrap();
        let mut roots = rustls::RootCertStore::empty();
        use rustls::pki_types::pem::PemObject;
        roots.add(rustls::pki_types::CertificateDer::from_pem_slice(&authority).unwrap()).unwrap();
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let tls = tls.unwrap().with_root_certificates(roots).with_no_client_auth();
        let client = reqwest::blocking::Client::builder().use_preconfigured_tls(tls).build().unwrap();
        let request = client.request(method.parse().unwrap(), format!("{}{path}", self.address()));
        let request = request.header("authorization", format!("Bearer {TOKEN}")).header("content-type", kind);
        let answer = request.body(body.to_string()).send().unwrap();
        let code = answer.status().as_u16();
        (code, serde_json::from_str(&answer.text().unwrap()).unwrap_or(Value::Null))
    }

    fn get(&self, path: &str) -> Value {
        match &self.server {
            Server::Fake(fake) => {
                fake.state.lock().unwrap().objects.get(path).cloned().unwrap_or(Value::Null)
            }
            Server::Real { .. } => match self.ask("GET", path, "application/json", &Value::Null) {
                (200, object) => object,
                (code, _) => {
                    assert_eq!(code, 404);
                    Value::Null
                }
            },
        }
    }

    /// The job's controller and a node: the Job gets a pod with this status.
    fn pod(&self, job: &str, status: &Value) {
        let uid = self.get(&format!("{JOBS}/{job}"))["metadata"]["uid"].clone();
        let template = self.get(&format!("{JOBS}/{job}"))["spec"]["template"].clone();
        let name = format!("{job}-x1");
        let mut labels = template["metadata"]["labels"].clone();
        labels["batch.kubernetes.io/job-name"] = json!(job);
        let owner =
            json!({ "apiVersion": "batch/v1", "kind": "Job", "name": job, "uid": uid, "controller": true });
        let mut pod = json!({ "apiVersion": "v1", "kind": "Pod", "spec": template["spec"],
            "metadata": { "name": name, "labels": labels, "ownerReferences": [owner] } });
        match &self.server {
            Server::Fake(fake) => {
                pod["status"] = status.clone();
                fake.state.lock().unwrap().objects.insert(format!("{PODS}/{name}"), pod);
            }
            Server::Real { .. } => {
                if self.get(&format!("{PODS}/{name}")).is_null() {
                    let (code, answer) =
                        self.ask("POST", &format!("{PODS}?fieldValidation=Strict"), "application/json", &pod);
                    assert_eq!(code, 201, "{answer}");
                }
                let patch = json!({ "status": status });
                let path = format!("{PODS}/{name}/status");
                let (code, answer) = self.ask("PATCH", &path, "application/merge-patch+json", &patch);
                assert_eq!(code, 200, "{answer}");
            }
        }
    }

    /// The garbage collector: what is being deleted is gone.
    fn collect(&self, job: &str) {
        match &self.server {
            Server::Fake(fake) => {
                let objects = &mut fake.state.lock().unwrap().objects;
                objects.remove(&format!("{JOBS}/{job}"));
                objects.remove(&format!("{PODS}/{job}-x1"));
            }
            Server::Real { .. } => {
                let now = json!({ "gracePeriodSeconds": 0 });
                self.ask("DELETE", &format!("{PODS}/{job}-x1"), "application/json", &now);
                let patch = json!({ "metadata": { "finalizers": null } });
                self.ask("PATCH", &format!("{JOBS}/{job}"), "application/merge-patch+json", &patch);
            }
        }
    }
}

fn real(apiserver: &PathBuf, etcd: &PathBuf, folder: &TempDir, _: &KeyPair) -> Server {
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (client, peer, port) = (free_port(), free_port(), free_port());
    let run = |program: &PathBuf, arguments: Vec<String>| {
        let log = fs::File::create(path(program.file_name().unwrap().to_str().unwrap())).unwrap();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn()
            .unwrap()
    };
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let etcd = run(
        etcd,
        vec![
            format!("--data-dir={}", path("data")),
            format!("--listen-client-urls={}", url(client)),
            format!("--advertise-client-urls={}", url(client)),
            format!("--listen-peer-urls={}", url(peer)),
            format!("--initial-advertise-peer-urls={}", url(peer)),
            format!("--initial-cluster=default={}", url(peer)),
        ],
    );
    fs::write(path("tokens"), format!("{TOKEN},tester,1,\"system:masters\"\nweak,other,2\n")).unwrap();
    let server = run(
        apiserver,
        vec![
            format!("--etcd-servers={}", url(client)),
            format!("--secure-port={port}"),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--tls-cert-file={}", path("server.pem")),
            format!("--tls-private-key-file={}", path("server.key")),
            format!("--token-auth-file={}", path("tokens")),
            "--authorization-mode=RBAC".to_owned(),
            "--service-account-issuer=https://127.0.0.1".to_owned(),
            format!("--service-account-key-file={}", path("server.pub")),
            format!("--service-account-signing-key-file={}", path("server.key")),
            "--service-cluster-ip-range=10.96.0.0/16".to_owned(),
            // Without controllers, there is no service account for pods.
            "--disable-admission-plugins=ServiceAccount".to_owned(),
        ],
    );
    let cluster = Cluster {
        server: Server::Real { processes: vec![etcd, server], port },
        folder: tempfile::tempdir().unwrap(),
    };
    fs::copy(path("ca.pem"), cluster.folder.path().join("ca.pem")).unwrap();
    fs::copy(path("token"), cluster.folder.path().join("token")).unwrap();
    let deadline = Instant::now() + Duration::from_secs(90);
    while cluster.driver().describe().is_err() || cluster.driver().list().is_err() {
        assert!(Instant::now() < deadline, "{}", fs::read_to_string(path("kube-apiserver")).unwrap());
        std::thread::sleep(Duration::from_millis(300));
    }
    // The namespace `default` is made a moment later.
    while cluster.ask("GET", "/api/v1/namespaces/default", "application/json", &Value::Null).0 != 200 {
        assert!(Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(300));
    }
    let mut cluster = std::mem::ManuallyDrop::new(cluster);
    std::mem::replace(&mut cluster.server, Server::Real { processes: Vec::new(), port: 0 })
}

fn name(count: u32) -> PilotName {
    PilotName::parse(&format!("kilnyard-lab-f-g-{count}")).unwrap()
}

fn launch() -> Launch {
    Launch {
        command: ["kilnyard", "worker", "--name", "$(SECRET) $HOME"].map(str::to_owned).to_vec(),
        environment: BTreeMap::from([("SECRET".to_owned(), "of the environment".to_owned())]),
        files: BTreeMap::from([("token".to_owned(), b"of the file\0".to_vec())]),
    }
}

#[test]
fn pilots_start_are_listed_and_stop() {
    for cluster in Cluster::all() {
        let driver = cluster.driver();
        let described = driver.describe().unwrap();
        println!("{} {}", described.manager, described.version);
        assert!(
            described.version.starts_with("v1.") && described.places[0].trouble.is_none(),
            "{described:?}"
        );
        assert_eq!(driver.list().unwrap().pilots, []);
        for count in 0..5 {
            driver.start(&name(count), &launch()).unwrap();
        }
        let again = driver.start(&name(0), &launch()).unwrap_err();
        assert!(again.line().contains("409") && again.line().contains("already exists"), "{}", again.line());

        // What was made, as the server has it.
        let job = cluster.get(&format!("{JOBS}/kilnyard-lab-f-g-0"));
        let secret = cluster.get(&format!("{SECRETS}/kilnyard-lab-f-g-0"));
        assert_eq!(secret["metadata"]["ownerReferences"][0]["uid"], job["metadata"]["uid"]);
        assert_eq!(secret["data"]["file.token"], "b2YgdGhlIGZpbGUA");
        let text = job.to_string();
        assert!(!text.contains("of the environment") && !text.contains("b2YgdGhlI"), "{text}");
        let pod = &job["spec"]["template"]["spec"];
        assert_eq!((&pod["hostUsers"], &pod["restartPolicy"]), (&json!(false), &json!("Never")));
        assert_eq!(pod["nodeSelector"]["pool"], "lab");
        let container = &pod["containers"][0];
        assert_eq!(container["command"][3], "$$(SECRET) $$HOME");
        assert_eq!(container["securityContext"]["procMount"], "Unmasked");
        assert_eq!(job["spec"]["podReplacementPolicy"], "Failed");

        let states = || {
            let listing = driver.list().unwrap();
            listing.pilots.into_iter().map(|one| (one.state, one.reason)).collect::<Vec<_>>()
        };
        let none_yet = (PilotState::Queued, Some("it has no pod yet".to_owned()));
        assert_eq!(states(), vec![none_yet.clone(); 5]);
        cluster.pod("kilnyard-lab-f-g-1", &json!({ "phase": "Running" }));
        cluster.pod(
            "kilnyard-lab-f-g-2",
            &json!({ "phase": "Pending", "conditions": [{ "type": "PodScheduled",
            "status": "False", "reason": "Unschedulable", "message": "no node is large enough" }] }),
        );
        let states_now = states();
        assert_eq!(states_now[1], (PilotState::Running, None));
        let reason = "Unschedulable: no node is large enough".to_owned();
        assert_eq!(states_now[2], (PilotState::Queued, Some(reason)));

        driver.stop(&name(1)).unwrap();
        assert_eq!(states()[1].0, PilotState::Ending);
        cluster.collect("kilnyard-lab-f-g-1");
        assert_eq!(states().len(), 4);
        driver.stop(&name(1)).unwrap();
    }
}

#[test]
fn a_pilot_without_its_secret_is_taken_back() {
    let cluster = Cluster::fake();
    let Server::Fake(fake) = &cluster.server else { unreachable!() };
    fake.state.lock().unwrap().refuses_secrets = true;
    let error = cluster.driver().start(&name(0), &launch()).unwrap_err();
    assert!(error.line().contains("403 secrets is forbidden: exceeded quota"), "{}", error.line());
    assert_eq!(cluster.driver().list().unwrap().pilots[0].state, PilotState::Ending);
}

#[test]
fn errors_say_why() {
    for cluster in Cluster::all() {
        let list = |change: &dyn Fn(&mut KubernetesSettings)| {
            let mut settings = cluster.settings();
            change(&mut settings);
            KubernetesDriver::new(settings).and_then(|driver| driver.list()).unwrap_err().line()
        };
        let other = cluster.folder.path().join("other");
        fs::write(&other, "unknown-token").unwrap();
        let access = |server: String, authority: &str, token: &str| KubernetesAccess::Explicit {
            server,
            authority: cluster.folder.path().join(authority),
            token: cluster.folder.path().join(token),
        };
        let unknown = list(&|settings| settings.access = access(cluster.address(), "ca.pem", "other"));
        assert!(unknown.contains("401"), "{unknown}");
        let away = list(&|settings| {
            settings.access = access(format!("https://127.0.0.1:{}", free_port()), "ca.pem", "token")
        });
        assert!(away.contains("refused"), "{away}");
        let mut foreign = CertificateParams::new(Vec::new()).unwrap();
        foreign.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let foreign = foreign.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        fs::write(cluster.folder.path().join("foreign.pem"), foreign).unwrap();
        let untrusted = list(&|settings| settings.access = access(cluster.address(), "foreign.pem", "token"));
        assert!(untrusted.contains("certificate"), "{untrusted}");
        let missing = list(&|settings| settings.access = access(cluster.address(), "missing.pem", "token"));
        assert!(missing.contains("missing.pem"), "{missing}");
        if let Server::Fake(fake) = &cluster.server {
            for (garbage, words) in [
                ("{", "EOF"),
                ("[]", "invalid length"),
                ("{}", "missing field"),
                ("{\"kind\":\"JobList\"}", "missing field `items`"),
                ("{\"kind\":\"Status\",\"items\":[]}", "is no list"),
                ("{\"kind\":\"JobList\",\"items\":7}", "invalid type"),
                ("\u{0}", "expected"),
            ] {
                fake.state.lock().unwrap().garbage = Some(garbage.as_bytes().to_vec());
                let error = list(&|_| {});
                assert!(error.contains(words), "{garbage}: {error}");
            }
        }
    }
}

#[test]
fn a_kubeconfig_is_read_by_kubectl() {
    if Command::new("kubectl").arg("version").arg("--client").output().is_err() {
        println!("not run with kubectl, which is optional: it is not installed");
        return;
    }
    let cluster = Cluster::fake();
    let script = cluster.folder.path().join("credential");
    let credential = json!({ "apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": { "token": TOKEN } });
    fs::write(&script, format!("echo '{credential}'\n")).unwrap();
    let with = |user: String| {
        let path = cluster.folder.path().join("config");
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: one\nclusters:\n- name: c\n  cluster:\n    server: {}\n    \
             certificate-authority: ca.pem\ncontexts:\n- name: one\n  context: {{cluster: c, user: u, namespace: default}}\n\
             users:\n- name: u\n  user:\n{user}",
            cluster.address()
        );
        fs::write(&path, text).unwrap();
        let access = KubernetesAccess::Configuration { path: Some(path), context: None };
        let driver = KubernetesDriver::new(KubernetesSettings { access, ..cluster.settings() }).unwrap();
        driver.list().map(|listing| listing.pilots.len()).map_err(|error| error.line())
    };
    assert_eq!(with(format!("    token: {TOKEN}\n")), Ok(0));
    assert_eq!(with(format!("    tokenFile: {}\n", cluster.folder.path().join("token").display())), Ok(0));
    let exec = format!(
        "    exec:\n      apiVersion: client.authentication.k8s.io/v1\n      command: sh\n      args: [{}]\n      interactiveMode: Never\n",
        script.display()
    );
    assert_eq!(with(exec), Ok(0));
    assert!(with("    token: wrong\n".to_owned()).unwrap_err().contains("401"));
}
