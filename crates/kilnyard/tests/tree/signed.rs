//! Packages with signatures of their own, as programs of other people verify them.

use crate::changes::tree;
use crate::fixtures::{ALL, Packages, Shared, Trial, add_line, serve};
use crate::support::Yard;
use crate::support::committer::Committer;
use crate::support::tree::MiniTree;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const CASES: &[Trial] = &[
    ("packages_have_signatures_of_their_own", signed_packages),
    ("a_signed_commit_vouches_for_packages_of_its_tree", signed_commit),
];

/// The signer signs packages of folders that a signed commit has, under the names that their makefiles give.
fn signed_commit(shared: &Shared) {
    let tree = MiniTree::new(&[("a/good", "DISTNAME= good-1.0"), ("a/odd", "DISTNAME= ${NAME}-${VERSION}")]);
    let yard = shared.yard("signed-commit", &tree, &[]);
    let text = yard.read("kilnyard.toml").replacen("[pkgsrc]\n", "[pkgsrc]\nsign-packages = true\n", 1);
    yard.configure(&text);
    let scratch = tempfile::tempdir().unwrap();
    let committer = Committer::new(scratch.path());
    committer.trusted_by(&yard);
    let git = |arguments: &[&str]| {
        let ended = Command::new("git").arg("-C").arg(tree.path()).args(arguments).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    };
    git(&["init", "--quiet"]);
    git(&["add", "--all"]);
    committer.commit(&tree.path(), &["--no-gpg-sign", "--message=first"]);
    yard.build().exits(1).says(&["no archive or tree of the policy has the source a/good"]);
    assert!(yard.published().is_empty());
    committer.commit(&tree.path(), &["--amend", "--no-edit", "--gpg-sign=committer@example.org"]);
    // A name that depends on other variables is for a person.
    yard.run(&["publish"]).exits(1).says(&["odd-1.0: a/odd does not declare it"]);
    assert_eq!(yard.published(), ["good-1.0"]);
    yard.approve_all();
    yard.run(&["publish"]).exits(1);
    yard.approve_all();
    yard.run(&["publish"]).exits(0);
    assert_eq!(yard.published(), ["good-1.0", "odd-1.0"]);
    yard.run(&["keys", "audit"]).exits(0).says(&["0 findings"]);
}

/// A member of a signed package.
fn member(file: &Path, name: &str) -> Vec<u8> {
    let ended = Command::new("ar").arg("p").args([file, Path::new(name)]).output().unwrap();
    assert!(ended.status.success(), "{ended:?}");
    ended.stdout
}

fn signed_packages(shared: &Shared) {
    let tree = tree();
    let _server = serve(&tree);
    let yard = shared.yard("signed", &tree, &[]);
    let text = yard.read("kilnyard.toml").replacen("[pkgsrc]\n", "[pkgsrc]\nsign-packages = true\n", 1);
    yard.configure(&text);
    yard.build().exits(0).says(&["5 built", "repository (published, 5 packages)"]);
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    let ring = yard.path("repository/kilnyard-archive-keyring.asc");
    let dearmored = Command::new("gpg")
        .args(["--batch", "--dearmor", "--output"])
        .args([&path("ring.gpg"), &ring])
        .output();
    assert!(dearmored.unwrap().status.success());
    for name in yard.published() {
        let file = yard.path(ALL).join(format!("{name}.tgz"));
        let listed = Command::new("ar").arg("t").arg(&file).output().unwrap().stdout;
        assert_eq!(
            String::from_utf8(listed).unwrap(),
            format!("+PKG_HASH\n+PKG_GPG_SIGNATURE\n{name}.tgz\n")
        );
        let (hash, package) = (member(&file, "+PKG_HASH"), member(&file, &format!("{name}.tgz")));
        fs::write(path("text"), &hash).unwrap();
        fs::write(path("signature"), member(&file, "+PKG_GPG_SIGNATURE")).unwrap();
        let mut gpgv = Command::new("gpgv");
        gpgv.arg("--keyring").args([path("ring.gpg"), path("signature"), path("text")]);
        let verified = gpgv.output().unwrap();
        assert!(verified.status.success(), "{verified:?}");
        // What pkg_add checks: the name, the size, and each block.
        let hash = String::from_utf8(hash).unwrap();
        assert!(
            hash.starts_with(&format!(
                "pkgsrc signature\n\nversion: 1\npkgname: {name}\nalgorithm: SHA512\n"
            ))
        );
        assert!(
            hash.contains(&format!("file size: {}\n", package.len()))
                && hash.ends_with("end pkgsrc signature\n")
        );
        fs::write(path("package"), &package[..package.len().min(65_536)]).unwrap();
        let block = Command::new("sha512sum").arg(path("package")).output().unwrap().stdout;
        assert!(hash.contains(std::str::from_utf8(&block[..128]).unwrap()), "{hash}");
    }
    let sums =
        Command::new("sha512sum").args(["--check", "--quiet", "SHA512"]).current_dir(yard.path(ALL)).output();
    assert!(sums.unwrap().status.success());
    // Unchanged packages are not signed again; a changed one is.
    let signed = || yard.read("state/signer/account").matches("\"packages\":{\"repository\"").count();
    assert_eq!(signed(), 1);
    yard.run(&["publish"]).exits(0).says(&["unchanged: 5 packages"]);
    assert_eq!(signed(), 1);
    add_line(&tree, "lone/alone/Makefile", "COMMENT= Changed");
    yard.build().exits(0).says(&["1 built"]);
    assert_eq!(signed(), 2);
    // Removed or damaged ones are made again.
    fs::remove_dir_all(yard.path("signed")).unwrap();
    yard.run(&["publish"]).exits(0);
    assert_eq!(yard.published().len(), 5);
    yard.run(&["keys", "audit"]).exits(0).says(&["0 findings"]);
    // A yard without its database and its distfiles takes them from the repository.
    fs::remove_file(yard.path("state/kilnyard.db")).unwrap();
    fs::remove_dir_all(yard.path("distfiles")).unwrap();
    yard.run(&["scan"]).exits(0);
    let restored = yard.run(&["restore", "--without-backup"]).exits(0);
    assert!(!restored.stderr.contains("is lost"), "{}", restored.stderr);
    let published = yard.run(&["publish"]).exits(0).says(&["5 packages"]);
    assert!(!published.stderr.contains("missing or damaged"), "{}", published.stderr);
    yard.run(&["keys", "audit"]).exits(0).says(&["0 findings"]);
    installs(&yard, &format!("GPG=gpg\nGPG_KEYRING_VERIFY={}\n", path("ring.gpg").display()));
    certified(&yard, scratch.path());
}

/// Packages with signatures of X.509, verified by openssl.
fn certified(yard: &Yard, scratch: &Path) {
    let path = |name: &str| scratch.join(name);
    let text = "[req]\ndistinguished_name=dn\nx509_extensions=v3\n[dn]\n[v3]\nbasicConstraints=CA:FALSE\n";
    fs::write(path("good.cnf"), format!("{text}extendedKeyUsage=codeSigning,emailProtection\n")).unwrap();
    fs::write(path("bad.cnf"), text).unwrap();
    let openssl = |arguments: &[&str]| {
        let ended = Command::new("openssl").args(arguments).current_dir(scratch).output().unwrap();
        assert!(ended.status.success(), "{ended:?}");
    };
    openssl(&["genpkey", "-algorithm", "RSA", "-out", "key.pem"]);
    for kind in ["good", "bad"] {
        let (config, certificate) = (format!("{kind}.cnf"), format!("{kind}.pem"));
        openssl(&[
            "req",
            "-x509",
            "-config",
            &config,
            "-key",
            "key.pem",
            "-subj",
            "/CN=Packages",
            "-out",
            &certificate,
        ]);
    }
    let [key, good, bad] = ["key.pem", "good.pem", "bad.pem"].map(|name| path(name).display().to_string());
    yard.run(&["keys", "import", &key, "--name", "release", "--x509", &bad])
        .exits(2)
        .says(&["pkg_add accepts a certificate whose extended key usage is codeSigning and emailProtection"]);
    yard.run(&["keys", "import", &key, "--name", "release", "--x509", &good])
        .exits(0)
        .says(&["keys rotate release"]);
    yard.run(&["publish"]).exits(0).says(&["unchanged"]);
    yard.run(&["keys", "rotate", "release"]).exits(0).says(&["release signs packages"]);
    yard.run(&["publish"]).exits(0).says(&["published: 5 packages"]);
    // openssl's default of 30 days is warned of.
    yard.run(&["keys"]).exits(0).says(&["release", "x509-file"]);
    for name in yard.published() {
        let file = yard.path(ALL).join(format!("{name}.tgz"));
        fs::write(path("text"), member(&file, "+PKG_HASH")).unwrap();
        fs::write(path("signature"), member(&file, "+PKG_SIGNATURE")).unwrap();
        let verify =
            ["smime", "-verify", "-binary", "-inform", "PEM", "-in", "signature", "-content", "text"];
        openssl(&[&verify[..], &["-CAfile", "good.pem", "-purpose", "any"]].concat());
    }
    yard.run(&["publish"]).exits(0).says(&["unchanged: 5 packages"]);
    yard.run(&["keys", "audit"]).exits(0).says(&["0 findings"]);
    installs(yard, &format!("CERTIFICATE_ANCHOR_PKGS={good}\n"));
}

/// Whether pkg_add installs the packages that are signed, and no others. `soak/pkg_add` makes it; Debian has none.
fn installs(yard: &Yard, settings: &str) {
    let Some(tools) = std::env::var_os("KILNYARD_PKG_TOOLS").map(PathBuf::from) else {
        println!("pkg_add is not run: KILNYARD_PKG_TOOLS does not name its folder (soak/pkg_add)");
        return;
    };
    let scratch = tempfile::tempdir().unwrap();
    let path = |name: &str| scratch.path().join(name);
    fs::create_dir(path("home")).unwrap();
    fs::write(path("pkg_install.conf"), format!("VERIFIED_INSTALLATION=always\n{settings}")).unwrap();
    let run = |program: &str, arguments: &[&str], file: &Path| {
        let mut command = Command::new(tools.join(program));
        command.arg("-C").arg(path("pkg_install.conf")).args(arguments).arg(file);
        command.env("GNUPGHOME", path("home")).current_dir(scratch.path()).output().unwrap()
    };
    let (database, prefix) = (path("db").display().to_string(), path("prefix").display().to_string());
    let add = ["-f", "-K", &database, "-p", &prefix];
    for name in yard.published() {
        let file = yard.path(ALL).join(format!("{name}.tgz"));
        let verified = run("pkg_admin", &["check-signature"], &file);
        assert!(verified.status.success(), "{name}: {verified:?}");
        let mut bytes = fs::read(&file).unwrap();
        let end = bytes.len() - 8;
        bytes[end] ^= 1;
        fs::write(path("changed.tgz"), bytes).unwrap();
        let refused = run("pkg_add", &add, &path("changed.tgz"));
        assert!(!refused.status.success(), "{name}: {refused:?}");
        fs::write(path("plain.tgz"), member(&file, &format!("{name}.tgz"))).unwrap();
        let refused = run("pkg_add", &add, &path("plain.tgz"));
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("No valid signature"), "{name}: {said}");
        let added = run("pkg_add", &add, &file);
        assert!(added.status.success(), "{name}: {added:?}");
    }
}
