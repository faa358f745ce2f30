use crate::fixture::*;
use kilnyard_sign::{YardKey, sign_clear};
use kilnyard_signer::hash;
use kilnyard_signer::message::{Answer, Ask, Evidence, Rule, SourceIndex};
use std::fmt::Write;

/// An archive with a key of its own.
struct Archive {
    key: YardKey,
}

impl Archive {
    fn new() -> Archive {
        Archive { key: YardKey::generate("Archive <archive@example.org>").unwrap() }
    }

    /// An index of sources, and what vouches for it.
    fn index(&self, text: &str) -> SourceIndex {
        let path = "main/source/Sources";
        let release = format!(
            "Codename: sid\nMD5Sum:\n 0 {0} {path}\nSHA256:\n {1} {0} {path}.x\n {2} {0} {path}\n",
            text.len(),
            "0".repeat(64),
            hash(text.as_bytes())
        );
        let release = sign_clear(&[&self.key], &release).unwrap();
        SourceIndex { release, path: path.to_owned(), text: text.to_owned() }
    }

    /// A signer that knows this archive.
    fn signer(&self, rules: &str) -> Signer {
        let keyring = self.key.public_armored().unwrap();
        let signer = Signer::with_policy(|text| {
            let rules = format!("keys = [\"main\"]\narchives = [\"debian\"]\n{rules}");
            text.replace("keys = [\"main\"]", &rules) + "\n[archive.debian]\nkeyring = \"debian.asc\"\n"
        });
        std::fs::write(signer.folder.path().join("debian.asc"), keyring).unwrap();
        // It reads its keyrings when it starts.
        let mut signer = signer;
        signer.again();
        signer
    }
}

fn dsc(name: &str, version: &str) -> String {
    hash(format!("{name} {version} dsc").as_bytes())
}

fn source(name: &str, version: &str, binaries: &str) -> String {
    format!(
        "Package: {name}\nBinary: {binaries}\nVersion: {version}\nDirectory: pool/{name}\nChecksums-Sha256:\n {} 7 \
         {name}_{version}.dsc\n\n",
        dsc(name, version)
    )
}

fn show(signer: &mut Signer, index: SourceIndex) {
    assert!(matches!(signer.ask(Ask::Sources(Evidence::Index(index))), Answer::Evidence { .. }));
}

fn wanted(signer: &mut Signer, text: &str) -> usize {
    match signer.ask(Ask::Evidence { keys: vec![hash(text.as_bytes())] }) {
        Answer::Evidence { wanted } => wanted.len(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_archive_says_which_sources_there_are_and_what_they_declare() {
    let archive = Archive::new();
    let mut signer = archive.signer("own-sources = [\"own-*\"]");
    let hello = deb("hello", "1.0");
    let sources = source("hello", "1.0", "hello, hello-doc") + &source("base", "2", "base");
    // No index was shown to it.
    let answer = signer.publish(std::slice::from_ref(&hello));
    is_refused(&answer, Rule::Source, "no archive or tree of the policy has the source hello 1.0");
    // One that another key vouches for, one whose text is another one, and one that no Release names.
    show(&mut signer, Archive::new().index(&sources));
    let answer = signer.publish(std::slice::from_ref(&hello));
    is_refused(&answer, Rule::Source, "it is not signed for [archive.debian]");
    let mut other = archive.index(&sources);
    other.text = sources.replace("hello-doc", "libc6");
    show(&mut signer, other);
    other = archive.index(&sources);
    other.path = "contrib/source/Sources".to_owned();
    show(&mut signer, other);
    is_refused(
        &signer.publish(std::slice::from_ref(&hello)),
        Rule::Source,
        "no archive or tree of the policy",
    );
    assert_eq!(wanted(&mut signer, &sources), 1);
    show(&mut signer, archive.index(&sources));
    assert_eq!(wanted(&mut signer, &sources), 0, "it is shown once");
    let lines = signer.account().lines().count();
    show(&mut signer, archive.index(&sources));
    assert_eq!(signer.account().lines().count(), lines, "showing it again fills the account");
    assert!(signer.account().contains("{\"sources\":{\"archive\":\"debian\""));
    signed(&signer.publish(std::slice::from_ref(&hello)));
    // What the coordinator says of a source does not count.
    let trojan = deb("libevil", "1.0").from("hello");
    let answer = signer.publish(&[hello.clone(), trojan]);
    is_refused(&answer, Rule::Undeclared, "libevil 1.0 (amd64): hello does not declare it");
    let answer = signer.publish(&[hello.clone(), deb("hello-doc", "1.1").from("hello (1.1)")]);
    assert_eq!(refused(&answer)[0].rule, Rule::NoBuild, "the build is of hello (1.1)");
    // A rebuild has a number of its own, and debugging symbols are declared by no source.
    let debs = [
        deb("hello", "1.0+bk2"),
        deb("hello-doc", "1.0+bk2").from("hello"),
        deb("base-dbgsym", "2").from("base"),
    ];
    signed(&signer.publish(&debs));
    // A source of the yard itself.
    signed(&signer.publish(&[&debs[..], &[deb("own-tool", "3")]].concat()));
}

#[test]
fn a_worker_builds_what_the_archive_has() {
    let (archive, (_folder, worker)) = (Archive::new(), worker());
    let mut signer = archive.signer("");
    show(&mut signer, archive.index(&source("hello", "1.0", "hello")));
    let hello = [deb("hello", "1.0")];
    let with = |dsc: &str| {
        let mut builds = builds(&hello);
        let signed = statement(&worker, "hello", "1.0", &hello);
        let mut text: serde_json::Value = serde_json::from_str(&signed.statement).unwrap();
        text["predicate"]["buildDefinition"]["resolvedDependencies"] =
            serde_json::json!([{"name": "hello_1.0.dsc", "digest": {"sha256": dsc}}]);
        builds[0].statement = Some(worker.sign(&text.to_string()));
        builds
    };
    let answer = signer.publish_with(&hello, with(&dsc("hello", "1.0 changed")));
    is_refused(&answer, Rule::Source, "its worker did not build the source hello that the archive has");
    signed(&signer.publish_with(&hello, with(&dsc("hello", "1.0"))));
}

#[test]
fn sources_are_published_as_the_archive_has_them() {
    let archive = Archive::new();
    let mut signer = archive.signer("own-sources = [\"own-*\"]");
    let sources = source("hello", "1.0", "hello");
    show(&mut signer, archive.index(&sources));
    let mut publish = |of_repository: &str| {
        signer.now += 1;
        let mut texts = texts(&[], signer.now);
        texts.indexes.insert("main/source/Sources".to_owned(), of_repository.to_owned());
        texts.release = release(&texts.indexes, signer.now);
        signer.sign_with(generation(&texts), Vec::new())
    };
    let mut changed = sources.clone();
    write!(changed, "{}", source("own-tool", "1", "tool")).unwrap();
    signed(&publish(&changed.replace("pool/hello", "pool/main/h/hello")));
    for (from, to) in [(&*dsc("hello", "1.0"), &*dsc("hello", "evil")), ("Version: 1.0", "Version: 1.1")] {
        let answer = publish(&changed.replace(from, to));
        is_refused(&answer, Rule::Source, "no archive or tree of the policy has the source hello");
    }
    is_refused(&publish(&changed.replace("Version: 1.0\n", "")), Rule::Source, "hello has no version");
}
