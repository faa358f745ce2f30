//! Signatures in packages, made by the signer and verified by rpm and dnf.

use crate::builds::{Yard, base, init, pool, real};
use crate::check::run;
use crate::support::trials::{Case, case};
use crate::support::{folder, kilnyard};
use std::fs;
use std::path::Path;
use std::process::Command;

const SPEC: &str = "Name: signed\nEpoch: 2\nVersion: 1\nRelease: 1%{?dist}\nSummary: x\nLicense: MIT\nBuildArch: noarch\n\
    %description\nx\n%package more\nSummary: x\n%description more\nx\n%prep\n%build\n%install\nmkdir -p %{buildroot}/usr/share/signed\n\
    echo one > %{buildroot}/usr/share/signed/one; echo two > %{buildroot}/usr/share/signed/two\n\
    %files\n/usr/share/signed/one\n%files more\n/usr/share/signed/two\n";

/// What rpmkeys says of a file, by the published keys alone.
fn check(yard: &Yard, file: &Path) -> String {
    let database = tempfile::tempdir().unwrap();
    let keys = yard.folder.path().join("yard/repository/kilnyard-archive-keyring.asc");
    let define = format!("_dbpath {}", database.path().display());
    run(Command::new("rpmkeys").args(["--define", &define, "--import"]).arg(&keys));
    let checked = Command::new("rpmkeys").args(["--define", &define, "-Kv"]).arg(file).output().unwrap();
    String::from_utf8_lossy(&checked.stdout).into_owned() + &String::from_utf8_lossy(&checked.stderr)
}

fn is_signed(yard: &Yard, file: &Path) -> bool {
    let said = check(yard, file);
    said.contains("Header V4 EdDSA/SHA512 Signature") && !said.contains("NOKEY") && !said.contains("BAD")
}

fn packages_have_signatures_of_the_repositorys_key() {
    let yard = Yard::new("rpm-signatures");
    yard.write("signed", SPEC);
    yard.run(&["build"]).exits(0).says(&["1 built", "published, 3 packages"]);
    assert!(yard.client().contains("\ngpgcheck=1\n"));
    let first = pool(&yard.repository());
    let files: Vec<_> = fs::read_dir(&first).unwrap().flatten().map(|entry| entry.path()).collect();
    assert_eq!(files.len(), 3);
    for file in &files {
        assert!(is_signed(&yard, file), "{}", check(&yard, file));
        // The signature is of the header alone, which has the digest of the rest.
        let (mut bytes, changed) = (fs::read(file).unwrap(), yard.folder.path().join("changed.rpm"));
        let at = bytes
            .windows(7)
            .position(|part| part == b"MIT\0\0\0\0")
            .or_else(|| bytes.windows(4).position(|part| part == b"MIT\0"));
        bytes[at.unwrap()] = b'm';
        fs::write(&changed, bytes).unwrap();
        assert!(!is_signed(&yard, &changed));
    }
    // Nothing is signed twice, and a signed file that is lost is taken from the repository.
    let inode = |path: &Path| std::os::unix::fs::MetadataExt::ino(&fs::metadata(path).unwrap());
    let before = inode(&files[0]);
    yard.run(&["publish"]).exits(0).says(&["unchanged: 3 packages"]);
    fs::remove_dir_all(yard.folder.path().join("yard/signed")).unwrap();
    yard.run(&["publish"]).exits(0).says(&["unchanged: 3 packages"]);
    assert_eq!(inode(&files[0]), before);
    yard.run(&["keys", "audit"]).exits(0);
    // Another key signs them again, at another place; readers of the lists before still find theirs.
    yard.run(&["keys", "make", "next"]).exits(0);
    yard.run(&["keys", "rotate", "next"]).exits(0);
    yard.run(&["publish"]).exits(0);
    assert_eq!(fs::read_dir(yard.repository().join("Packages")).unwrap().count(), 1);
    yard.run(&["keys", "rotate", "next", "--finish"]).exits(0);
    yard.run(&["publish"]).exits(0).says(&["published: 3 packages"]);
    assert!(files.iter().all(|file| file.is_file()), "a reader of the lists before finds nothing");
    let folders =
        fs::read_dir(yard.repository().join("Packages")).unwrap().flatten().map(|entry| entry.path());
    let second = folders
        .into_iter()
        .find(|folder| *folder != first && folder.file_name() != first.file_name())
        .unwrap();
    for file in fs::read_dir(&second).unwrap().flatten() {
        assert!(is_signed(&yard, &file.path()), "{}", check(&yard, &file.path()));
    }
    yard.run(&["keys", "audit"]).exits(0);
    // A file that is not the published one is found.
    let published = second.join("signed-1-1.kt1.bk1.noarch.rpm");
    let whole = fs::read(&published).unwrap();
    fs::remove_file(&published).unwrap();
    fs::write(&published, &whole[..whole.len() - 1]).unwrap();
    yard.run(&["keys", "audit"]).exits(1).says(&["has another size than its index says"]);
    fs::write(&published, whole).unwrap();
    // What was built is found again without its signature.
    let state = Path::new(&yard.at()).join("state");
    for entry in fs::read_dir(&state)
        .unwrap()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().contains(".db"))
    {
        fs::remove_file(entry.path()).unwrap();
    }
    yard.run(&["restore"]).exits(0);
    yard.run(&["build"]).exits(0).says(&["1 unchanged", "(unchanged, 3 packages)"]);
}

/// A repository whose packages have signatures, and its key.
struct SignedRepository {
    folder: tempfile::TempDir,
    base: std::path::PathBuf,
    set: String,
}

impl SignedRepository {
    fn new() -> SignedRepository {
        let (base, set) = base();
        let folder = folder("rpm-signed-repository");
        let repository = SignedRepository { folder, base, set };
        run(Command::new("cp").arg("-r").arg(&repository.base).arg(repository.path("repo")));
        for name in ["one", "other"] {
            let home = repository.path(name);
            fs::create_dir(&home).unwrap();
            fs::set_permissions(&home, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
            let user = format!("{name}@localhost");
            let make = [
                "--batch",
                "--quiet",
                "--passphrase",
                "",
                "--quick-gen-key",
                &user,
                "rsa2048",
                "sign",
                "never",
            ];
            run(Command::new("gpg").env("GNUPGHOME", &home).args(make));
            let export = ["--batch", "--armor", "--output", "key.asc", "--export"];
            run(Command::new("gpg").env("GNUPGHOME", &home).current_dir(&home).args(export));
        }
        let files = fs::read_dir(repository.path("repo")).unwrap().flatten().map(|entry| entry.path());
        let files: Vec<_> =
            files.filter(|path| path.extension().is_some_and(|ending| ending == "rpm")).collect();
        repository.sign("one", &files);
        repository.list();
        repository
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn sign(&self, key: &str, files: &[std::path::PathBuf]) {
        let name = format!("_gpg_name {key}@localhost");
        let define = ["--define", &name, "--define", "__gpg /usr/bin/gpg", "--addsign"];
        run(Command::new("rpmsign").env("GNUPGHOME", self.path(key)).args(define).args(files));
    }

    fn list(&self) {
        // The base root is the usual group. Groups have names of packages alone.
        let named = |name: &str| match name {
            "rpm-build" => "rpm".to_owned(),
            "shadow-utils" => "passwd".to_owned(),
            other => other.to_owned(),
        };
        let member = |name: &str| format!("<packagereq type=\"mandatory\">{}</packagereq>", named(name));
        let members: String = self.set.split(',').map(member).collect();
        let groups = format!(
            "<?xml version=\"1.0\"?>\n<comps><group><id>buildsys-build</id><name>x</name><packagelist>{members}</packagelist></group></comps>\n"
        );
        fs::write(self.path("comps.xml"), groups).unwrap();
        let mut list = Command::new("createrepo_c");
        run(list.args(["-q", "-g"]).arg(self.path("comps.xml")).arg(self.path("repo")));
    }

    /// The file of a package, and what it is before its signature.
    fn file(&self, name: &str) -> (std::path::PathBuf, Vec<u8>) {
        let begins = |path: &Path| {
            let file = path.file_name().unwrap().to_string_lossy().into_owned();
            file.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with('-') && rest.as_bytes()[1].is_ascii_digit())
        };
        let mut files = fs::read_dir(self.path("repo")).unwrap().flatten().map(|entry| entry.path());
        let file = files.find(|path| begins(path)).unwrap();
        let plain = fs::read(self.base.join(file.file_name().unwrap())).unwrap();
        (file, plain)
    }
}

fn packages_of_repositories_need_signatures() {
    let repository = SignedRepository::new();
    let [at, repo, key, specs] = ["yard", "repo", "one/key.asc", "specs"]
        .map(|name| repository.path(name).to_str().unwrap().to_owned());
    fs::create_dir_all(repository.path("specs/signed")).unwrap();
    fs::write(
        repository.path("specs/signed/signed.spec"),
        SPEC.replace("BuildArch: noarch\n", "BuildArch: noarch\nBuildRequires: bison\n"),
    )
    .unwrap();
    init(&at, &repo, &specs, &["--key", &key, "--signed", "packages"]).exits(0);
    let yard = |words: &[&str]| kilnyard(&[&["--yard", &at], words].concat());
    yard(&["build"]).exits(0).says(&["1 built"]);
    yard(&["log", "signed", "depends"]).says(&["stacked and configured"]);
    let (bison, plain) = repository.file("bison");
    let signed = fs::read(&bison).unwrap();
    let mut changed = signed.clone();
    let last = changed.len() - 9;
    changed[last] ^= 1;
    fs::write(&bison, &plain).unwrap();
    repository.sign("other", std::slice::from_ref(&bison));
    let by_other = fs::read(&bison).unwrap();
    // Without a signature, with one of another key, and with a payload that is not that of the signed header: the lists of the
    // repository agree with each.
    for bytes in [&plain, &by_other, &changed] {
        fs::remove_file(&bison).unwrap();
        fs::write(&bison, bytes).unwrap();
        repository.list();
        yard(&["scan"]).exits(0);
        yard(&["build", "--no-scan"]).exits(1).says(&["1 failed"]);
        yard(&["log", "signed", "depends"])
            .says(&["a package of a repository has no signature by one of the keys"]);
    }
    fs::write(&bison, &signed).unwrap();
    repository.list();
    yard(&["scan"]).exits(0);
    yard(&["build", "--no-scan", "--force", "signed"]).exits(0);
    // The base root is not made of such packages, either.
    let (unzip, plain) = repository.file("unzip");
    let mut changed = fs::read(&unzip).unwrap();
    let last = changed.len() - 9;
    changed[last] ^= 1;
    for (bytes, why) in
        [(plain, "it has no signature"), (changed, "has another payload than its header says")]
    {
        fs::remove_file(&unzip).unwrap();
        fs::write(&unzip, bytes).unwrap();
        repository.list();
        yard(&["scan"]).exits(3).says(&["verify unzip", why]);
    }
    // Keys that sign the metadata, as is usual, refuse metadata without a signature.
    let other = repository.path("other-yard").to_str().unwrap().to_owned();
    init(&other, &repo, &specs, &["--key", &key]).exits(0);
    kilnyard(&["--yard", &other, "scan"]).exits(3).says(&["repomd.xml"]);
}

/// The trials; `has_tools` as of [`crate::builds::cases`].
pub fn cases(has_tools: bool) -> Vec<Case> {
    let trial = case(
        "packages_have_signatures_of_the_repositorys_key",
        packages_have_signatures_of_the_repositorys_key,
    );
    let of_repositories =
        case("packages_of_repositories_need_signatures", packages_of_repositories_need_signatures);
    vec![real(trial, has_tools), real(of_repositories, has_tools)]
}
