//! Builds of own sources from git, with dependencies from a second archive, repeated from a lock.

use crate::fixtures::{Fixture, Packages, Shared, Trial, deb, good, run, unpacked};
use crate::support::archive::Archive;
use crate::support::committer::Committer;
use crate::support::server::Server;
use kilnyard_sign::YardKey;
use std::collections::BTreeMap;
use std::fs;

pub const CASES: &[Trial] = &[
    ("a_locked_git_source_is_built_with_a_second_archive", git_vendor_and_lock),
    ("a_signed_commit_vouches_for_its_source", signed_commit),
];

/// The signer believes a commit whose signature it knows, and what that says of its source.
fn signed_commit(shared: &Shared) {
    let yard = shared.yard("own-signed", &[]);
    let scratch = shared.path("own-signed-scratch");
    fs::create_dir(&scratch).unwrap();
    let dsc = good("from-tree", "").write(&scratch);
    run(&scratch, "dpkg-source", &["--extract", &dsc, "repository"]);
    let repository = scratch.join("repository");
    let committer = Committer::new(&scratch);
    run(&repository, "git", &["init", "--quiet", "--initial-branch=main"]).exits(0);
    run(&repository, "git", &["add", "--all"]).exits(0);
    committer.commit(&repository, &["--no-gpg-sign", "--message=first"]);
    let config = yard.read("kilnyard.toml");
    let rule = format!("packages = [\n  \"git:{}\",\n]", repository.display());
    yard.configure(&config.replace("packages = [\n]", &rule));
    committer.trusted_by(&yard);
    yard.run(&["scan"]).exits(0);
    let refused = "no archive or tree of the policy has the source from-tree 1.0";
    yard.build().exits(1).says(&[refused]);
    // The same files, in a commit that is signed.
    committer.commit(&repository, &["--amend", "--no-edit", "--gpg-sign=committer@example.org"]);
    yard.run(&["scan"]).exits(0);
    yard.build().exits(0);
    assert!(yard.published().iter().any(|line| line.contains("from-tree")), "{:?}", yard.published());
    assert!(yard.read("state/signer/account").contains("\"archive\":\"tree own\""));
    yard.run(&["keys", "audit"]).exits(0).says(&["0 findings"]);
}

fn git_vendor_and_lock(shared: &Shared) {
    let yard = shared.yard("own", &[]);
    let scratch = shared.path("own-scratch");
    fs::create_dir(&scratch).unwrap();
    let fixture = Fixture {
        binary: "cp /usr/share/vendor-tool/version debian/tmp/usr/share/from-git/tool",
        ..good("from-git", "vendor-tool")
    };
    let dsc = fixture.write(&scratch);
    run(&scratch, "dpkg-source", &["--extract", &dsc, "repository"]);
    let repository = scratch.join("repository");
    run(&repository, "git", &["init", "--quiet", "--initial-branch=main"]);
    run(&repository, "git", &["add", "--all"]);
    let identity = ["-c", "user.name=A", "-c", "user.email=a@b.c"];
    run(&repository, "git", &[&identity[..], &["commit", "--quiet", "--message=first"]].concat());

    let key = YardKey::generate("Vendor <vendor@example.org>").unwrap();
    fs::write(yard.path("vendor.gpg"), key.public_binary().unwrap()).unwrap();
    let (first, second) = (deb(&scratch, "vendor-tool", "1.0"), deb(&scratch, "vendor-tool", "2.0"));
    let files = |packages: &str, date_seconds: i64| -> BTreeMap<String, Vec<u8>> {
        let archive = Archive {
            codename: "vendor".to_owned(),
            packages: packages.to_owned(),
            sources: String::new(),
            date_seconds,
            ..Archive::default()
        };
        let signed = archive.files_signed_by(&key).into_iter();
        let mut files: BTreeMap<String, Vec<u8>> =
            signed.map(|(path, bytes)| (path.replace("/tiny/", "/vendor/"), bytes)).collect();
        files.insert("/pool/vendor-tool_1.0_all.deb".to_owned(), first.1.clone());
        files.insert("/pool/vendor-tool_2.0_all.deb".to_owned(), second.1.clone());
        files
    };
    let date = Archive::default().date_seconds;
    let server = Server::start(files(&first.0, date));
    let config = yard.read("kilnyard.toml");
    let rule = format!("packages = [\n  \"git:{}\",\n]", repository.display());
    yard.configure(&format!(
        "{}\n[[archive]]\nmirror = \"{}\"\nsuite = \"vendor\"\nkey = \"vendor.gpg\"\n",
        config.replace("packages = [\n]", &rule),
        server.url()
    ));
    yard.run(&["lock"]).exits(0).says(&["1 source, 2 indexes"]);
    // The archive changes; the locked build does not.
    server.serve(files(&second.0, date + 60));
    yard.run(&["build", "--locked"]).exits(0).says(&["1 built"]);
    assert_eq!(yard.state("from-git"), "built");
    assert_eq!(unpacked(shared, &yard, "from-git", "usr/share/from-git/tool"), "1.0");
    yard.run(&["build", "--locked"]).exits(0).says(&["nothing to do"]);
    let sources = yard.read("repository/dists/bookworm/main/source/Sources");
    assert!(sources.contains("Package: from-git"), "{sources}");
    yard.run(&["lock", "--update"]).exits(0).says(&["index vendor of vendor: "]);
    yard.run(&["build", "--locked"]).exits(0).says(&["1 built"]);
    assert_eq!(unpacked(shared, &yard, "from-git", "usr/share/from-git/tool"), "2.0");
    assert!(yard.is_clean());
}
