//! Packages of RPM that are signed by their headers, as a hostile coordinator would have them.

use crate::fixture::*;
use crate::lists::{generation, is_signed};
use kilnyard_ecosystem::hex;
use kilnyard_ecosystem::rpm::{Entry, Lists};
use kilnyard_farm::proof::WorkerKey;
use kilnyard_model::digests::HEADER;
use kilnyard_model::provenance::Signed;
use kilnyard_signer::hash;
use kilnyard_signer::message::{Answer, Ask, Build, BuildTexts, Built, PackageText, Rule};

/// A header with these tags: texts, and numbers of four bytes (rpm's `docs/manual/format_header.md`).
fn header(texts: &[(u32, &str)], numbers: &[(u32, u32)]) -> Vec<u8> {
    let (mut index, mut data) = (Vec::new(), Vec::new());
    for (tag, number) in numbers {
        index.push([*tag, 4, data.len() as u32, 1]);
        data.extend(number.to_be_bytes());
    }
    for (tag, text) in texts {
        index.push([*tag, 6, data.len() as u32, 1]);
        data.extend(text.bytes().chain([0]));
    }
    let mut bytes = vec![0x8e, 0xad, 0xe8, 1, 0, 0, 0, 0];
    bytes.extend((index.len() as u32).to_be_bytes());
    bytes.extend((data.len() as u32).to_be_bytes());
    index.iter().flatten().for_each(|word| bytes.extend(word.to_be_bytes()));
    bytes.extend(data);
    bytes
}

/// The header of the package `hello` in a version, with the digest of a payload.
fn hello(version: &str, payload: &str) -> Vec<u8> {
    let (source, payload) = (format!("hello-{version}-1.src.rpm"), hash(payload.as_bytes()));
    let texts =
        [(1000, "hello"), (1001, version), (1002, "1"), (1022, "noarch"), (1044, &source), (5092, &payload)];
    header(&texts, &[(5093, 8)])
}

/// What is asked about a header; `statement` is what a worker signed.
fn text(header: &[u8], file: &str, statement: Option<Signed>) -> BuildTexts {
    let digest = hash(header);
    let built = Built {
        sha256: hash(format!("file of {digest}").as_bytes()),
        listed: digest.clone(),
        header: Some(digest),
        files: None,
    };
    let build = Build {
        source: "hello".to_owned(),
        package: "hello".to_owned(),
        declared: vec!["hello".to_owned()],
        outputs: vec![built],
        statement,
    };
    BuildTexts { build, texts: vec![PackageText { text: hex(header), file: file.to_owned() }] }
}

fn ask(signer: &mut Signer, text: BuildTexts) -> Answer {
    signer.now += 1;
    signer.ask(Ask::Headers { builds: vec![text] })
}

#[track_caller]
fn gets_a_signature(answer: &Answer) {
    let Answer::Packages { signatures, refusals } = answer else { panic!("{answer:#?}") };
    assert!(refusals.is_empty() && signatures[0].is_some(), "{answer:#?}");
}

#[track_caller]
fn gets_none(answer: &Answer, rule: Rule, why: &str) {
    let Answer::Packages { signatures, refusals } = answer else { panic!("{answer:#?}") };
    let is_so = refusals.iter().any(|refusal| refusal.rule == rule && refusal.reason.contains(why));
    assert!(is_so && signatures.iter().all(Option::is_none), "{answer:#?}");
}

const FILE: &str = "hello-1-1.noarch.rpm";

#[test]
fn only_a_header_of_one_content_is_signed() {
    let mut signer = Signer::new();
    let good = hello("1", "x");
    gets_a_signature(&ask(&mut signer, text(&good, FILE, None)));
    let more = [&good[..], &[0]].concat();
    let without_payload = header(
        &[(1000, "hello"), (1001, "1"), (1002, "1"), (1022, "noarch"), (1044, "hello-1-1.src.rpm")],
        &[],
    );
    for (bytes, why) in [
        (&more[..], "followed by more"),
        (&good[..good.len() - 1], "header"),
        (&without_payload, "no digest of the payload"),
        (b"Origin: Debian\n", "header"),
    ] {
        is_refused(&ask(&mut signer, text(bytes, FILE, None)), Rule::Text, why);
    }
    is_refused(&ask(&mut signer, text(&good, "bash-1-1.noarch.rpm", None)), Rule::Text, "another package");
    let mut other = text(&good, FILE, None);
    other.build.outputs[0].header = Some(hash(b"x"));
    is_refused(&ask(&mut signer, other), Rule::Text, "not that of its build");
    let mut odd = text(&good, FILE, None);
    odd.texts[0].text.push('z');
    is_refused(&ask(&mut signer, odd), Rule::Text, "no hexadecimal");
}

#[test]
fn a_version_has_one_header_and_one_source() {
    let mut signer = Signer::new();
    gets_a_signature(&ask(&mut signer, text(&hello("2", "x"), "hello-2-1.noarch.rpm", None)));
    // The same again may get the signature of another key.
    gets_a_signature(&ask(&mut signer, text(&hello("2", "x"), "hello-2-1.noarch.rpm", None)));
    let answer = ask(&mut signer, text(&hello("2", "evil"), "hello-2-1.noarch.rpm", None));
    gets_none(&answer, Rule::OtherContent, "another content");
    gets_none(&ask(&mut signer, text(&hello("1", "x"), FILE, None)), Rule::VersionBelow, "");
    let mut stolen = text(&hello("3", "x"), "hello-3-1.noarch.rpm", None);
    (stolen.build.source, stolen.build.package) = ("evil".to_owned(), "evil".to_owned());
    gets_none(&ask(&mut signer, stolen), Rule::NoBuild, "the build was of evil");
}

/// What a worker signs of the file of a header.
fn statement(worker: &WorkerKey, header: &[u8], header_digest: &str) -> Signed {
    let text = serde_json::json!({
        "subject": [{
            "name": FILE,
            "digest": { "sha256": hash(format!("file of {}", hash(header)).as_bytes()) },
            "annotations": { HEADER: header_digest, "name": "hello", "version": "1-1" },
        }],
        "predicate": { "buildDefinition": { "externalParameters": { "package": "hello", "version": "1-1" } } },
    });
    worker.sign(&text.to_string())
}

#[test]
fn a_worker_vouches_for_a_header() {
    let (_folder, worker) = worker();
    let mut signer = Signer::new();
    let good = hello("1", "x");
    let lying = statement(&worker, &good, &hash(b"another header"));
    let answer = ask(&mut signer, text(&good, FILE, Some(lying)));
    gets_none(&answer, Rule::Worker, "did not sign this content");
    let honest = statement(&worker, &good, &hash(&good));
    gets_a_signature(&ask(&mut signer, text(&good, FILE, Some(honest))));
}

/// Packages of one build share what its worker signed, and nothing else.
#[test]
fn each_package_of_a_build_needs_its_own_place_in_the_statement() {
    let (_folder, worker) = worker();
    let mut signer = Signer::new();
    let good = hello("1", "x");
    let honest = statement(&worker, &good, &hash(&good));
    let payload = hash(b"x");
    let texts = [
        (1000, "evil"),
        (1001, "1"),
        (1002, "1"),
        (1022, "noarch"),
        (1044, "hello-1-1.src.rpm"),
        (5092, &payload),
    ];
    let evil = header(&texts, &[(5093, 8)]);
    // With another content, with that of the other package, and with its place alone.
    let (named, digest) = (hash(format!("file of {}", hash(&good)).as_bytes()), hash(&evil));
    for sha256 in [hash(b"another file"), named] {
        let mut asked = text(&good, FILE, Some(honest.clone()));
        asked.build.declared.push("evil".to_owned());
        let built = Built { sha256, listed: digest.clone(), header: Some(digest.clone()), files: None };
        asked.build.outputs.push(built);
        asked.texts.push(PackageText { text: hex(&evil), file: "evil-1-1.noarch.rpm".to_owned() });
        let answer = ask(&mut signer, asked);
        let Answer::Packages { signatures, refusals } = &answer else { panic!("{answer:#?}") };
        assert!(signatures[0].is_some() && signatures[1].is_none(), "{answer:#?}");
        assert_eq!(refusals.iter().map(|refusal| refusal.rule).collect::<Vec<_>>(), [Rule::Worker]);
    }
    let mut more = text(&good, FILE, Some(honest.clone()));
    more.texts.push(more.texts[0].clone());
    is_refused(&ask(&mut signer, more), Rule::Text, "another number of packages");
    let mut fewer = text(&good, FILE, Some(honest));
    fewer.texts.clear();
    is_refused(&ask(&mut signer, fewer), Rule::Text, "another number of packages");
    let mut swapped = text(&good, FILE, None);
    let other = text(&hello("2", "x"), "hello-2-1.noarch.rpm", None);
    swapped.build.outputs.insert(0, other.build.outputs[0].clone());
    swapped.texts.push(other.texts[0].clone());
    is_refused(&ask(&mut signer, swapped), Rule::Text, "not that of its build");
}

/// The entry of a signed file.
fn lists(listed: &str, size: u64) -> Lists {
    let number = "<version epoch=\"0\" ver=\"1\" rel=\"1\"/>";
    let begin = format!("<package pkgid=\"{listed}\" name=\"hello\" arch=\"noarch\">\n  {number}\n");
    Lists::new(&[Entry {
        primary: format!(
            "<package type=\"rpm\">\n  <name>hello</name>\n  <arch>noarch</arch>\n  {number}\n  \
             <checksum type=\"sha256\" pkgid=\"YES\">{listed}</checksum>\n  <size package=\"{size}\" installed=\"1\" archive=\"1\"/>\n  \
             <location href=\"Packages/0a1b/{FILE}\"/>\n  <format>\n    <rpm:sourcerpm>hello-1-1.src.rpm</rpm:sourcerpm>\n  \
             </format>\n</package>\n"
        ),
        filelists: format!("{begin}</package>\n"),
        other: format!("{begin}</package>\n"),
    }])
}

#[test]
fn only_what_was_signed_here_is_listed_as_signed() {
    let mut signer = Signer::new();
    let good = hello("1", "x");
    let with = |listed: &str, header: Option<String>| {
        let mut build = text(&good, FILE, None).build;
        build.outputs[0] =
            Built { listed: listed.to_owned(), header, files: Some(Vec::new()), ..build.outputs[0].clone() };
        build
    };
    let (first, second) = (hash(b"first key"), hash(b"second key"));
    let mut publish = |listed: &str, header: Option<&[u8]>, signs: bool| {
        if signs {
            gets_a_signature(&ask(&mut signer, text(&good, FILE, None)));
        }
        signer.now += 1;
        signer.sign_with(generation(&lists(listed, 7)), vec![with(listed, header.map(hash))])
    };
    let is_no = |answer: &Answer, why: &str| is_refused(answer, Rule::Worker, why);
    is_no(&publish(&first, None, false), "its digests differ");
    is_no(&publish(&first, Some(&good), false), "was not made here");
    is_no(&publish(&first, Some(b"another header"), true), "was not made here");
    is_signed(&publish(&first, Some(&good), false));
    // The signature of another key makes another file of the same header.
    is_signed(&publish(&second, Some(&good), false));
    // What was replaced does not come back.
    is_refused(&publish(&first, Some(&good), false), Rule::Replayed, "");
}
