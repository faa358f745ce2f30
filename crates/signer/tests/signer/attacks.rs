use crate::fixture::*;
use kilnyard_signer::hash;
use kilnyard_signer::message::{
    Answer, Ask, Build, BuildTexts, Built, Change, Edit, Form, Generation, PackageText, Question, Rule,
    VERSION,
};

#[test]
fn a_generation_is_signed_with_all_that_is_new_in_the_account() {
    let mut signer = Signer::new();
    let debs = [deb("libc6", "1.0"), deb("hello", "2.0")];
    let answer = signer.publish(&debs);
    let (clear, detached) = signed(&answer);
    let Answer::Keys { armored, .. } = signer.ask(Ask::Keys) else { panic!() };
    let keyring = kilnyard_sign::Keyring::from_bytes(armored.as_bytes()).unwrap();
    let text = keyring.verify_clearsigned(clear.as_bytes()).unwrap().text;
    keyring.verify_detached(&text, detached.as_bytes()).unwrap();
    let account = signer.account();
    assert_eq!(account.lines().count(), 1);
    assert!(account.contains(&hash(&text)) && account.contains("libc6") && account.contains("hello"));
    // Nothing is new, so no build is wanted.
    signed(&signer.publish_with(&debs, Vec::new()));
    // A change is enough, and what it leaves out leaves the repository.
    let (old, new) = (texts(&debs, signer.now), texts(&debs[..1], signer.now + 1));
    let mut changed = generation(&new);
    for change in &mut changed.indexes {
        change.base = Some(hash(old.indexes[&change.path].as_bytes()));
        change.edits = edits(&old.indexes[&change.path], &new.indexes[&change.path]);
    }
    assert_eq!(changed.indexes[0].edits, [Edit::Keep(1), Edit::Drop(1)]);
    signed(&signer.sign_with(changed, Vec::new()));
}

/// A small source whose build also writes a `libc6`.
#[test]
fn a_trojan_is_refused_by_each_rule_that_it_breaks() {
    let mut signer = Signer::with("core = [\"libc*\"]");
    let libc = deb("libc6", "2.36");
    let trusted = deb("hello", "1.0");
    is_refused(
        &signer.publish(&[libc.clone(), trusted.clone()]),
        Rule::Core,
        "no worker that may build these",
    );
    let mut signer = Signer::new();
    signed(&signer.publish(&[libc.clone(), trusted.clone()]));
    let trojan = deb("libc6", "9.9").from("hello");
    let newer = deb("hello", "1.1");
    let debs = [trojan.clone(), newer.clone()];

    // Its source does not declare it.
    let mut honest = builds(&debs);
    honest[0].declared = vec!["hello".to_owned()];
    let answer = signer.publish_with(&debs, honest);
    is_refused(&answer, Rule::Undeclared, "libc6 9.9 (amd64): hello does not declare it");
    // Another source owns the name, whatever is declared.
    is_refused(&signer.publish(&debs), Rule::OtherOwner, "the name belongs to the source libc6");
    // It says that it is from the owner.
    let posing = deb("libc6", "9.9");
    let mut lying = builds(std::slice::from_ref(&posing));
    (lying[0].source, lying[0].package) = ("hello".to_owned(), "hello".to_owned());
    is_refused(
        &signer.publish_with(&[posing.clone(), newer.clone()], lying),
        Rule::NoBuild,
        "the build was of hello",
    );
    // No build explains it.
    is_refused(
        &signer.publish_with(&[posing, newer.clone()], builds(std::slice::from_ref(&newer))),
        Rule::NoBuild,
        "no build",
    );
    // A version below the published one.
    is_refused(
        &signer.publish(&[deb("libc6", "2.35"), trusted.clone()]),
        Rule::VersionBelow,
        "2.36 was signed before",
    );
    // The same version with another content.
    let mut other = libc.clone();
    other.content = "a trojan".to_owned();
    is_refused(&signer.publish(&[other, trusted.clone()]), Rule::OtherContent, "with another content");
    // Its package takes over a file.
    let mut taking = newer.clone();
    taking.files.push("usr/share/libc6".to_owned());
    let answer = signer.publish(&[libc.clone(), taking.clone()]);
    is_refused(&answer, Rule::FileTakenOver, "it takes over usr/share/libc6 of libc6");
    // What is refused is in the account, by name.
    let account = signer.account();
    for name in ["undeclared", "other-owner", "no-build", "version-below", "other-content", "file-taken-over"]
    {
        assert!(account.contains(&format!("\"rule\":\"{name}\"")), "{name}: {account}");
    }
    // With a word, a file may be taken over; and after all of this, the rest is signed.
    taking.more = "Replaces: libc6 (<< 3)\n".to_owned();
    signed(&signer.publish(&[libc, taking]));
}

/// What a review of this signer found.
#[test]
fn names_of_series_and_entries_have_one_meaning() {
    let mut signer = Signer::new();
    let debs = [deb("hello", "1.0")];
    let good = texts(&debs, NOW);
    for series in ["stable\u{b}", "stable\u{c}", "+PKG_HASH", "packages", "", "a b", "../x"] {
        let mut asked = generation(&good);
        series.clone_into(&mut asked.series);
        asked.text = asked.text.replace("Codename: stable", &format!("Codename: {series}"));
        is_refused(&signer.sign_with(asked, builds(&debs)), Rule::Text, "");
    }
    let mut asked = generation(&good);
    asked.text = asked.text.replace("Suite: stable", "Suite: oldstable");
    is_refused(
        &signer.sign_with(asked, builds(&debs)),
        Rule::Text,
        "the suite in Release is not its codename",
    );
    // Fields after those that the index adds, and a package of the installer among others.
    for (from, to, says) in [
        ("Size: 1\n", "Size: 1\nConflicts: bash\n", "other fields after its file"),
        ("_amd64.deb", "_amd64.udeb", "has a file of another package"),
    ] {
        let mut texts = good.clone();
        let index = texts.indexes.get_mut(INDEX).unwrap();
        *index = index.replacen(from, to, 1);
        texts.release = release(&texts.indexes, NOW);
        is_refused(&signer.sign_with(generation(&texts), builds(&debs)), Rule::Text, says);
    }
    // The same version for all machines, and for one.
    signed(&signer.publish(&[deb("hello", "2.0")]));
    let mut all = deb("hello", "1.0");
    all.architecture = "all".to_owned();
    is_refused(&signer.publish(&[all]), Rule::VersionBelow, "2.0 was signed before");
}

#[test]
fn a_worker_vouches_for_versions_and_entries() {
    let (_kept, worker) = worker();
    let policy =
        format!("keys = [\"main\"]\nworkers-only = true\n[worker.far]\nkey = \"{}\"", worker.public());
    let mut signer = Signer::with_policy(|text| text.replace("keys = [\"main\"]", &policy));
    let with = |debs: &[Deb], statement| {
        let mut builds = builds(debs);
        builds[0].statement = Some(statement);
        builds
    };
    let honest = [deb("hello", "0.9-1")];
    let signed_by = |debs: &[Deb]| statement(&worker, "hello", "0.9-1", debs);
    // An epoch, which no file name has.
    let mut epoch = honest.clone();
    (epoch[0].version, epoch[0].content) = ("99:0.9-1".to_owned(), honest[0].content.clone());
    epoch[0].source = "hello (0.9-1)".to_owned();
    let mut lying = with(&epoch, signed_by(&honest));
    (lying[0].source, lying[0].package) = ("hello".to_owned(), "hello".to_owned());
    is_refused(&signer.publish_with(&epoch, lying), Rule::Worker, "with the version");
    // Another dependency than the worker's package has, at once and later.
    let mut changed = honest.clone();
    changed[0].more = "Conflicts: bash\n".to_owned();
    let answer = signer.publish_with(&changed, with(&changed, signed_by(&honest)));
    is_refused(&answer, Rule::Worker, "did not sign this entry");
    signed(&signer.publish_with(&honest, with(&honest, signed_by(&honest))));
    let answer = signer.publish_with(&changed, with(&changed, signed_by(&honest)));
    is_refused(&answer, Rule::Worker, "did not sign this entry");
    // Without its build there is no worker; an approval of that does not help.
    let answer = signer.publish_with(&[deb("other", "1")], Vec::new());
    is_refused(&answer, Rule::Worker, "no worker signed it");
    // Two files under one name.
    let mut joined = deb("hello", "0.9-2");
    joined.files = vec!["usr/bin/bash".to_owned(), "usr/bin/evil".to_owned()];
    let statement = statement(&worker, "hello", "0.9-2", std::slice::from_ref(&joined));
    let mut lying = with(std::slice::from_ref(&joined), statement);
    lying[0].outputs[0].files = Some(vec!["usr/bin/bash\nusr/bin/evil".to_owned()]);
    is_refused(&signer.publish_with(&[joined], lying), Rule::Worker, "this list of files");
}

#[test]
fn a_package_that_returns_is_judged_again() {
    let mut signer = Signer::new();
    let (mut base, mut evil) = (deb("base", "1"), deb("evil", "1"));
    base.files = vec!["bin/sh".to_owned()];
    evil.files = vec!["usr/bin/sh".to_owned()];
    signed(&signer.publish(std::slice::from_ref(&base)));
    // Where /bin is a link to /usr/bin.
    let answer = signer.publish(&[base.clone(), evil.clone()]);
    is_refused(&answer, Rule::FileTakenOver, "it takes over usr/bin/sh of base");
    signed(&signer.publish(std::slice::from_ref(&evil)));
    is_refused(&signer.publish(&[base, evil]), Rule::FileTakenOver, "it takes over bin/sh of evil");
}

/// More packages than an answer names, and texts of blocks that reuse what was signed.
#[test]
fn no_signed_package_slips_through() {
    let mut signer = Signer::new();
    let text = tree_package;
    let mut many: Vec<BuildTexts> = (0..250).map(|number| text(&format!("junk{number}-1"), 1)).collect();
    many.iter_mut().for_each(|asked| asked.build.declared.clear());
    many.push(text("good-1", 1));
    let Answer::Packages { signatures, refusals } = signer.ask(Ask::Packages { builds: many }) else {
        panic!()
    };
    assert_eq!((refusals.len(), signatures.iter().flatten().count()), (200, 1));
    assert!(signatures[250].is_some());
    // Texts that are not quite what they must be.
    let good = text("a-1", 1);
    for (from, to) in [
        ("version: 1", "version: 2"),
        ("SHA512", "SHA1"),
        ("file size: 1", "file size: 65537"),
        ("end pkgsrc", "End pkgsrc"),
        ("\n\n", "\n \n"),
        ("pkgname: a-1", "pkgname: b-1"),
    ] {
        let mut bad = good.clone();
        bad.texts[0].text = bad.texts[0].text.replacen(from, to, 1);
        is_refused(&signer.ask(Ask::Packages { builds: vec![bad] }), Rule::Text, "is not +PKG_HASH");
    }
    is_refused(&signer.ask(Ask::Packages { builds: vec![good.clone(), good] }), Rule::Text, "occurs twice");
}

/// The text of a package of one block, and the package as the list of checksums and the summary have it.
fn tree_package(name: &str, block: u8) -> BuildTexts {
    let text = kilnyard_ecosystem::pkgsrc::signed::text(name, 1, &[format!("{block:02x}").repeat(64)]);
    let (base, _) = name.rsplit_once('-').unwrap();
    let built =
        Built { sha256: hash(name.as_bytes()), listed: hash(text.as_bytes()), header: None, files: None };
    let (source, package) = (format!("cat/{base}"), format!("cat/{base}"));
    let build =
        Build { source, package, declared: vec![base.to_owned()], outputs: vec![built], statement: None };
    BuildTexts { build, texts: vec![PackageText { file: format!("{name}.tgz"), text }] }
}

/// A list of checksums names packages by what their own signatures sign: only what was signed here may be listed.
#[test]
fn a_signed_package_is_listed_as_it_was_signed() {
    let mut signer = Signer::new();
    let good = tree_package("good-1", 1);
    let mut publish = |listed: &str, before: &[BuildTexts]| {
        signer.now += 1;
        for text in before {
            let answer = signer.ask(Ask::Packages { builds: vec![text.clone()] });
            assert!(matches!(answer, Answer::Packages { signatures, .. } if signatures[0].is_some()));
        }
        let summary = "PKGNAME=good-1\nPKGPATH=cat/good\nFILE_NAME=good-1.tgz\nFILE_SIZE=1\n\n".to_owned();
        let mut text = String::new();
        for (name, bytes) in kilnyard_publish::indexes_of_summary(&summary).unwrap() {
            text.push_str(&format!("SHA512 ({name}) = {}\n", sha512(&bytes)));
        }
        text.push_str(&format!("PKG_HASH (good-1.tgz) = {listed}\n"));
        let indexes =
            vec![Change { path: "pkg_summary".to_owned(), base: None, edits: vec![Edit::Add(summary)] }];
        let generation = Generation { series: "packages".to_owned(), form: Form::Checksums, text, indexes };
        let mut build = good.build.clone();
        listed.clone_into(&mut build.outputs[0].listed);
        signer.sign_with(generation, vec![build])
    };
    let digest = hash(good.texts[0].text.as_bytes());
    is_refused(&publish(&digest, &[]), Rule::Worker, "its own signature was not made here");
    let other = hash(tree_package("good-1", 2).texts[0].text.as_bytes());
    is_refused(&publish(&other, std::slice::from_ref(&good)), Rule::Worker, "was not made here");
    let answer = publish(&digest, &[]);
    assert!(matches!(answer, Answer::Signed { .. }), "{answer:?}");
    is_refused(&publish(&digest[..63], &[]), Rule::Text, "a line of the checksums is none");
}

fn sha512(bytes: &[u8]) -> String {
    use sha2::{Digest, Sha512};
    Sha512::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_removed_package_does_not_return_in_an_old_version() {
    let mut signer = Signer::new();
    let (old, new, other) = (deb("hello", "1.0"), deb("hello", "1.1"), deb("zlib", "1.0"));
    signed(&signer.publish(&[old.clone(), other.clone()]));
    signed(&signer.publish(&[new.clone(), other.clone()]));
    signed(&signer.publish(std::slice::from_ref(&other)));
    let answer = signer.publish(&[old.clone(), other.clone()]);
    is_refused(&answer, Rule::Replayed, "this content was signed before, and replaced");
    // The memory is not the process's.
    signer.again();
    is_refused(&signer.publish(&[old, other.clone()]), Rule::Replayed, "replaced");
    signed(&signer.publish(&[new, other]));
}

#[test]
fn results_count_with_the_signature_of_an_approved_worker() {
    let ((_kept, worker), (_other, stranger)) = (worker(), worker());
    let policy = format!(
        "keys = [\"main\"]\nworkers-only = true\ncore = [\"libc*\"]\n[worker.far]\nkey = \"{}\"",
        worker.public()
    );
    let mut signer = Signer::with_policy(|text| text.replace("keys = [\"main\"]", &policy));
    let hello = deb("hello", "1.0-1");
    let with = |statement| {
        let mut builds = builds(std::slice::from_ref(&hello));
        builds[0].statement = statement;
        builds
    };
    let debs = [hello.clone()];
    is_refused(&signer.publish_with(&debs, with(None)), Rule::Worker, "no worker signed it");
    let by = |key, source: &str, version: &str, debs: &[Deb]| Some(statement(key, source, version, debs));
    let answer = signer.publish_with(&debs, with(by(&stranger, "hello", "1.0-1", &debs)));
    is_refused(&answer, Rule::Worker, "is not approved here");
    // The coordinator changes what was signed.
    let mut changed = statement(&worker, "hello", "1.0-1", &[deb("hello", "0.9")]);
    changed.statement = changed.statement.replace(&deb("hello", "0.9").digest(), &hello.digest());
    is_refused(
        &signer.publish_with(&debs, with(Some(changed))),
        Rule::Worker,
        "the signature of its worker is wrong",
    );
    // It shows an order for another source, another version, or another result.
    let answer = signer.publish_with(&debs, with(by(&worker, "zlib", "1.0-1", &debs)));
    is_refused(&answer, Rule::Worker, "signed for the package");
    let answer = signer.publish_with(&debs, with(by(&worker, "hello", "0.9-1", &debs)));
    is_refused(&answer, Rule::Worker, "signed for the version");
    let answer = signer.publish_with(&debs, with(by(&worker, "hello", "1.0-1", &[deb("hello", "1.0-2")])));
    is_refused(&answer, Rule::Worker, "did not sign this content");
    // It hides a file.
    let mut hiding = with(by(&worker, "hello", "1.0-1", &debs));
    hiding[0].outputs[0].files = Some(Vec::new());
    is_refused(&signer.publish_with(&debs, hiding), Rule::Worker, "did not sign this list of files");
    hiding = with(by(&worker, "hello", "1.0-1", &debs));
    hiding[0].outputs[0].files = None;
    is_refused(&signer.publish_with(&debs, hiding), Rule::Worker, "the list of its files");
    // It lies about what a digest is called.
    let mut called = deb("libhello", "1.0-1").from("hello");
    called.content = hello.content.clone();
    let mut lying = with(by(&worker, "hello", "1.0-1", &debs));
    lying[0].declared = vec!["libhello".to_owned()];
    is_refused(&signer.publish_with(&[called], lying), Rule::Worker, "built this content as");
    // The true account is signed, with its worker and attempt in the account; also with the number of a rebuild.
    signed(&signer.publish_with(&debs, with(by(&worker, "hello", "1.0-1", &debs))));
    assert!(signer.account().contains("attempt-1") && signer.account().contains(&worker.public()));
    let mut rebuilt = deb("hello", "1.0-1+bk1").from("hello (1.0-1)");
    let mut with_number = builds(std::slice::from_ref(&rebuilt));
    (with_number[0].source, with_number[0].package) = ("hello".to_owned(), "hello".to_owned());
    with_number[0].statement = by(&worker, "hello", "1.0-1+bk1", std::slice::from_ref(&rebuilt));
    signed(&signer.publish_with(std::slice::from_ref(&rebuilt), with_number));
    // A core package needs a worker that may build these.
    rebuilt = deb("libc6", "1.0");
    let mut core = builds(std::slice::from_ref(&rebuilt));
    core[0].statement = by(&worker, "libc6", "1.0", std::slice::from_ref(&rebuilt));
    let answer = signer.publish_with(std::slice::from_ref(&rebuilt), core);
    is_refused(&answer, Rule::Core, "it is a core package, and far may not build these");
}

#[test]
fn a_text_is_what_it_says_or_is_not_signed() {
    let mut signer = Signer::new();
    let debs = [deb("hello", "1.0")];
    let good = texts(&debs, NOW);
    let mut ask = |change: &dyn Fn(&mut Texts), rule, says: &str| {
        let mut texts = good.clone();
        change(&mut texts);
        is_refused(&signer.sign_with(generation(&texts), builds(&debs)), rule, says);
    };
    let replace = |from: &'static str, to: &'static str| {
        move |texts: &mut Texts| texts.release = texts.release.replacen(from, to, 1)
    };
    ask(&replace("Codename: stable", "Codename: other"), Rule::Text, "Release is of other, not of stable");
    ask(&replace("Origin: Test", "Origin: Test\nPackages: a"), Rule::Text, "which this signer does not know");
    ask(&replace("Origin: Test", "Origin: Test\nOrigin: Test"), Rule::Text, "twice");
    ask(&replace("Origin: Test\n", "Origin: Test\n\n"), Rule::Text, "not one stanza");
    ask(&replace("SHA256:", "MD5Sum:"), Rule::Text, "does not know");
    ask(
        &replace("Components: main\n", "Components: main\nValid-Until: Tue, 14 Nov 2034 22:13:20 UTC\n"),
        Rule::Text,
        "400 days",
    );
    // A certification of a key, and other things that are no text.
    for text in ["", "\0", "a seal\n", "kilnyard account 1\n1\nabc\n", &"x".repeat(100_000)] {
        let other = |texts: &mut Texts| text.clone_into(&mut texts.release);
        ask(&other, Rule::Text, "Release");
    }
    // An index is not what Release says, in one of its forms; Release names what was not shown.
    ask(&|texts| *texts.indexes.get_mut(INDEX).unwrap() += "\n", Rule::Text, "not that of its text");
    ask(&|texts| drop(texts.indexes.remove(INDEX)), Rule::Text, "which the signer was not shown");
    let forge = |texts: &mut Texts| {
        let line = texts.release.lines().find(|line| line.ends_with("Packages.xz")).unwrap().to_owned();
        let digest = line.split_whitespace().next().unwrap();
        texts.release = texts.release.replace(digest, &"0".repeat(64));
    };
    ask(&forge, Rule::Text, "Packages.xz in Release is not that of its text");
    // Stanzas that are none.
    for (from, to, says) in [
        ("Package: hello", "Package: hello\nPackage: libc6", "twice"),
        ("Package: hello", "Package: libc6", "has a file of another package"),
        ("pool/main/", "pool/../", "outside of the pool"),
        ("pool/main/", "/etc/", "outside of the pool"),
        ("SHA256: ", "SHA256: x", "has a checksum that is none"),
        ("Version: 1.0\n", "", "has no field Version"),
    ] {
        let change = |texts: &mut Texts| {
            let index = texts.indexes.get_mut(INDEX).unwrap();
            *index = index.replacen(from, to, 1);
            texts.release = release(&texts.indexes, NOW);
        };
        ask(&change, Rule::Text, says);
    }
    // Two contents under one name.
    let change = |texts: &mut Texts| {
        let mut other = debs[0].clone();
        other.content = "other".to_owned();
        *texts = crate::fixture::texts(&[debs[0].clone(), other], NOW);
    };
    ask(&change, Rule::Text, "is there twice, and differs");
}

#[test]
fn clocks_hours_and_rates_are_kept() {
    let mut signer = Signer::with("per-hour-max = 2\nhours = \"6-22\"");
    let debs = [deb("hello", "1.0")];
    // At eight in the morning.
    signer.now = NOW;
    let ask =
        |signer: &mut Signer, time: i64| signer.sign_with(generation(&texts(&debs, time)), builds(&debs));
    is_refused(&ask(&mut signer, NOW - 3600), Rule::Text, "3600 s behind the signer's clock");
    is_refused(&ask(&mut signer, NOW + 3600), Rule::Text, "3600 s ahead of the signer's clock");
    signed(&ask(&mut signer, NOW));
    is_refused(&ask(&mut signer, NOW - 9), Rule::Text, "9 s before that of the last one");
    signed(&ask(&mut signer, NOW + 1));
    is_refused(&ask(&mut signer, NOW + 2), Rule::Policy, "2 signatures an hour, and there were 2");
    signer.now += 3601;
    let now = signer.now;
    signed(&ask(&mut signer, now));
    signer.now += 16 * 3600;
    let now = signer.now;
    is_refused(&ask(&mut signer, now), Rule::Policy, "from 6:00 to 22:00 UTC only");
}

#[test]
fn other_repositories_series_and_names_are_refused() {
    let mut signer = Signer::with("series = [\"old*\"]");
    is_refused(&signer.publish(&[deb("hello", "1.0")]), Rule::Policy, "the series stable");
    let mut signer = Signer::with("names = [\"lib*\"]");
    let answer = signer.publish(&[deb("hello", "1.0"), deb("libz", "1.0")]);
    is_refused(&answer, Rule::Policy, "hello 1.0 (amd64): the policy does not allow the name");
    assert_eq!(refused(&answer).len(), 1);
    let question = Question { version: VERSION, repository: "theirs".to_owned(), ask: Ask::Keys };
    is_refused(&signer.service.answer(&question, NOW), Rule::Policy, "no repository \"theirs\"");
    let question = Question { version: VERSION + 1, ..question };
    assert!(
        matches!(signer.service.answer(&question, NOW), Answer::Failed { reason } if reason.contains("version"))
    );
}

#[test]
fn a_change_is_of_what_was_signed_last() {
    let mut signer = Signer::new();
    let debs = [deb("hello", "1.0")];
    signed(&signer.publish(&debs));
    let texts = texts(&debs, signer.now);
    let mut ask = |base: Option<String>, edits: Vec<Edit>, says: &str| {
        let mut changed = generation(&texts);
        changed.indexes[0] = Change { path: INDEX.to_owned(), base, edits };
        is_refused(&signer.sign_with(changed, Vec::new()), Rule::Text, says);
    };
    let base = hash(texts.indexes[INDEX].as_bytes());
    ask(Some("0".repeat(64)), vec![Edit::Keep(1)], "changes a text that was not signed last");
    ask(Some(base.clone()), vec![Edit::Keep(2)], "keeps stanzas that the base lacks");
    ask(Some(base.clone()), vec![Edit::Drop(u32::MAX)], "leaves out stanzas that the base lacks");
    ask(Some(base), vec![], "does not say what becomes of the last stanzas");
    ask(None, vec![Edit::Keep(1)], "keeps stanzas that the base lacks");
    // Builds for what was not asked.
    let answer = signer.ask(Ask::Builds { builds: builds(&debs) });
    assert!(matches!(answer, Answer::Failed { reason } if reason == "no builds were asked for"));
}

#[test]
fn people_approve_what_the_policy_leaves_to_them() {
    let mut signer = Signer::with("approve = [\"linux-*\"]\napprove-new-names = true");
    let debs = [deb("linux-image", "6.1")];
    let answer = signer.publish(&debs);
    is_refused(&answer, Rule::Approval, "an approval of each new version");
    let id = refused(&answer)[0].id.clone().unwrap();
    // Asking again adds nothing to the account.
    let lines = signer.account().lines().count();
    assert_eq!(refused(&signer.publish(&debs))[0].id.as_ref(), Some(&id));
    assert_eq!(signer.account().lines().count(), lines);
    assert!(!signer.service.memory().approve(NOW, "none", "anna").unwrap());
    assert!(signer.service.memory().approve(NOW, &id, "anna").unwrap());
    signed(&signer.publish(&debs));
    // The approval is of this content, not of the next one.
    let next = [deb("linux-image", "6.2"), deb("hello", "1.0")];
    let answer = signer.publish(&next);
    is_refused(&answer, Rule::Approval, "linux-image 6.2");
    is_refused(&answer, Rule::Approval, "an approval of new names");
    // No person approves what only the policy can allow.
    let text = refused(&signer.sign_with(generation(&texts(&debs, 0)), Vec::new())).to_vec();
    assert_eq!((text[0].rule, &text[0].id), (Rule::Text, &None));
}

#[test]
fn documents_are_signed_as_what_they_are() {
    let mut signer = Signer::with("documents = true");
    let dsc = "Format: 3.0 (quilt)\nSource: hello\nVersion: 1.0\nFiles:\n 0 1 a\nChecksums-Sha256:\n 0 1 a\n";
    let answer = signer.ask(Ask::Document { text: dsc.to_owned() });
    signed(&answer);
    assert!(signer.account().contains("\"document\""));
    for text in [
        "",
        "a: b\n",
        "Format: 1\n\nSource: hello\n",
        &dsc.replace("Source", "Sauce"),
        &dsc.replace('\n', "\r\n"),
    ] {
        let answer = signer.ask(Ask::Document { text: text.to_owned() });
        is_refused(&answer, Rule::Text, "the text");
    }
    // A text that is a Release file, too.
    for more in [
        "Codename: stable\n",
        "SHA256:\n 0 1 main/binary-amd64/Packages\n",
        "valid-until: a\n",
        "SHA512: a\n",
    ] {
        let answer = signer.ask(Ask::Document { text: format!("{dsc}{more}") });
        is_refused(&answer, Rule::Text, "which no .dsc or .changes file has");
    }
    let answer = Signer::new().ask(Ask::Document { text: dsc.to_owned() });
    is_refused(&answer, Rule::Policy, "documents = true");
}
