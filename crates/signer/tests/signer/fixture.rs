//! A coordinator that says what a test wants.

use kilnyard_farm::proof::WorkerKey;
use kilnyard_model::provenance::Signed;
use kilnyard_sign::YardKey;
use kilnyard_signer::change;
use kilnyard_signer::hash;
use kilnyard_signer::keys::Credentials;
use kilnyard_signer::message::{
    Answer, Ask, Build, Built, Change, Edit, Form, Generation, Question, Refusal, Rule, VERSION,
};
use kilnyard_signer::policy::POLICY;
use kilnyard_signer::service::Service;
use kilnyard_signer::setup;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The signer's time in tests, in seconds since 1970.
pub const NOW: i64 = 1_800_000_000;
pub const SERIES: &str = "stable";

/// A package as a coordinator describes it.
#[derive(Clone, Debug)]
pub struct Deb {
    pub name: String,
    pub version: String,
    pub source: String,
    pub content: String,
    pub files: Vec<String>,
    pub architecture: String,
    /// Further fields of the stanza, each with its line feed.
    pub more: String,
}

pub fn deb(name: &str, version: &str) -> Deb {
    Deb {
        name: name.to_owned(),
        version: version.to_owned(),
        source: name.to_owned(),
        content: format!("{name} {version}"),
        files: vec![format!("usr/share/{name}")],
        architecture: "amd64".to_owned(),
        more: String::new(),
    }
}

impl Deb {
    pub fn from(mut self, source: &str) -> Deb {
        source.clone_into(&mut self.source);
        self
    }

    pub fn digest(&self) -> String {
        hash(self.content.as_bytes())
    }

    pub fn file(&self) -> String {
        let upstream = self.version.rsplit(':').next().unwrap();
        format!("{}_{upstream}_{}.deb", self.name, self.architecture)
    }

    fn stanza(&self) -> String {
        let Deb { name, version, source, more, architecture, .. } = self;
        let (file, digest) = (self.file(), self.digest());
        format!(
            "Package: {name}\nVersion: {version}\nArchitecture: {architecture}\nSource: {source}\n{more}Filename: \
             pool/main/{file}\nSize: 1\nSHA256: {digest}\n\n"
        )
    }
}

/// A text and its indexes.
#[derive(Clone, Debug)]
pub struct Texts {
    pub release: String,
    pub indexes: BTreeMap<String, String>,
}

pub const INDEX: &str = "main/binary-amd64/Packages";

/// The texts of a repository with these packages.
pub fn texts(debs: &[Deb], time: i64) -> Texts {
    let index: String = debs.iter().map(Deb::stanza).collect();
    let indexes =
        BTreeMap::from([(INDEX.to_owned(), index), ("main/source/Sources".to_owned(), String::new())]);
    Texts { release: release(&indexes, time), indexes }
}

pub fn release(indexes: &BTreeMap<String, String>, time: i64) -> String {
    let mut listed = BTreeMap::new();
    for (path, text) in indexes {
        listed.insert(path.clone(), text.clone().into_bytes());
        listed.extend(kilnyard_publish::packed_forms(path, text.as_bytes()).unwrap());
    }
    let date = jiff::Timestamp::from_second(time).unwrap().strftime("%a, %d %b %Y %H:%M:%S UTC").to_string();
    let mut text = format!(
        "Origin: Test\nSuite: {SERIES}\nCodename: {SERIES}\nDate: {date}\nArchitectures: amd64\nComponents: main\nSHA256:\n"
    );
    for (path, bytes) in listed {
        writeln!(text, " {} {:>16} {path}", hash(&bytes), bytes.len()).unwrap();
    }
    text
}

pub fn generation(texts: &Texts) -> Generation {
    let whole = |(path, text): (&String, &String)| Change {
        path: path.clone(),
        base: None,
        edits: vec![Edit::Add(text.clone())],
    };
    Generation {
        series: SERIES.to_owned(),
        form: Form::Release,
        text: texts.release.clone(),
        indexes: texts.indexes.iter().map(whole).collect(),
    }
}

/// The builds of packages, each declared by its source.
pub fn builds(debs: &[Deb]) -> Vec<Build> {
    let mut by_source: BTreeMap<&str, Vec<&Deb>> = BTreeMap::new();
    for deb in debs {
        by_source.entry(&deb.source).or_default().push(deb);
    }
    let build = |(source, debs): (&str, Vec<&Deb>)| Build {
        source: source.to_owned(),
        package: source.to_owned(),
        declared: debs.iter().map(|deb| deb.name.clone()).collect(),
        outputs: debs
            .iter()
            .map(|deb| Built {
                sha256: deb.digest(),
                listed: deb.digest(),
                header: None,
                files: Some(deb.files.clone()),
            })
            .collect(),
        statement: None,
    };
    by_source.into_iter().map(build).collect()
}

/// What a worker signs when it built these packages of a source.
pub fn statement(worker: &WorkerKey, source: &str, version: &str, debs: &[Deb]) -> Signed {
    let subject: Vec<_> = debs
        .iter()
        .map(|deb| {
            let files = hash(kilnyard_model::digests::text_of_files(&deb.files).as_bytes());
            let stanza = deb.stanza();
            let entry = hash(stanza.split("\nFilename: ").next().unwrap().as_bytes());
            serde_json::json!({
                "name": deb.file(), "digest": {"sha256": deb.digest()},
                "annotations": {"files": files, "entry": entry, "name": deb.name, "version": deb.version}
            })
        })
        .collect();
    let statement = serde_json::json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subject,
        "predicate": {
            "buildDefinition": {"externalParameters": {"family": "debian", "package": source, "version": version}},
            "runDetails": {"metadata": {"invocationId": "attempt-1"}}
        }
    });
    worker.sign(&statement.to_string())
}

/// A signer in a folder of its own.
pub struct Signer {
    pub folder: tempfile::TempDir,
    pub service: Service,
    pub now: i64,
}

impl Signer {
    pub fn new() -> Signer {
        Signer::with("")
    }

    /// A signer whose policy has these further lines for its repository.
    pub fn with(rules: &str) -> Signer {
        Signer::with_policy(|text| text.replace("keys = [\"main\"]", &format!("keys = [\"main\"]\n{rules}")))
    }

    pub fn with_policy(change: impl Fn(String) -> String) -> Signer {
        let folder = tempfile::tempdir().unwrap();
        setup::make(folder.path(), || YardKey::generate("Test <test@example.org>")).unwrap();
        let path = folder.path().join(POLICY);
        std::fs::write(&path, change(std::fs::read_to_string(&path).unwrap())).unwrap();
        let service = open(folder.path());
        Signer { folder, service, now: NOW }
    }

    /// The signer after its process was killed.
    pub fn again(&mut self) {
        // The account belongs to one process.
        let spare = tempfile::tempdir().unwrap();
        setup::make(spare.path(), || YardKey::generate("Test <test@example.org>")).unwrap();
        drop(std::mem::replace(&mut self.service, open(spare.path())));
        self.service = open(self.folder.path());
    }

    pub fn ask(&mut self, ask: Ask) -> Answer {
        let question = Question { version: VERSION, repository: "yard".to_owned(), ask };
        self.service.answer(&question, self.now)
    }

    /// Asks for a generation with these builds.
    pub fn sign_with(&mut self, generation: Generation, builds: Vec<Build>) -> Answer {
        match self.ask(Ask::Generation(generation)) {
            Answer::Wanted { .. } => self.ask(Ask::Builds { builds }),
            answer => answer,
        }
    }

    /// Publishes packages, a second after the last time.
    pub fn publish(&mut self, debs: &[Deb]) -> Answer {
        self.publish_with(debs, builds(debs))
    }

    pub fn publish_with(&mut self, debs: &[Deb], builds: Vec<Build>) -> Answer {
        self.now += 1;
        let texts = texts(debs, self.now);
        self.sign_with(generation(&texts), builds)
    }

    pub fn account(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("account")).unwrap()
    }
}

fn open(folder: &Path) -> Service {
    Service::open(folder, &Credentials::new()).unwrap()
}

pub fn worker() -> (tempfile::TempDir, WorkerKey) {
    let folder = tempfile::tempdir().unwrap();
    let key = WorkerKey::open(&folder.path().join("key")).unwrap();
    (folder, key)
}

#[track_caller]
pub fn signed(answer: &Answer) -> (&str, &str) {
    match answer {
        Answer::Signed { clear: Some(clear), detached } => (clear, detached),
        other => panic!("not signed: {other:#?}"),
    }
}

#[track_caller]
pub fn refused(answer: &Answer) -> &[Refusal] {
    match answer {
        Answer::Refused { refusals } => refusals,
        other => panic!("not refused: {other:#?}"),
    }
}

/// Asserts that the answer is one refusal, by this rule and for this reason.
#[track_caller]
pub fn is_refused(answer: &Answer, rule: Rule, says: &str) {
    let refusals = refused(answer);
    assert!(
        refusals.iter().any(|refusal| refusal.rule == rule && refusal.reason.contains(says)),
        "{rule:?} {says}: {refusals:#?}"
    );
}

pub fn edits(base: &str, new: &str) -> Vec<Edit> {
    change::between(base, new)
}
