use crate::fixture::*;
use kilnyard_sign::YardKey;
use kilnyard_signer::hash;
use kilnyard_signer::message::{
    Answer, Ask, Build, BuildTexts, Built, Evidence, PackageText, Rule, SourceCommit,
};
use kilnyard_signer::sources::commit_key;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A repository whose commits git signs with gpg.
struct Tree {
    folder: tempfile::TempDir,
    form: &'static str,
}

impl Tree {
    fn new(form: &'static str) -> Tree {
        let folder = tempfile::tempdir().unwrap();
        let tree = Tree { folder, form };
        std::fs::create_dir(tree.home()).unwrap();
        Command::new("chmod").arg("700").arg(tree.home()).status().unwrap();
        let key = YardKey::generate("Committer <committer@example.org>").unwrap();
        std::fs::write(tree.path("key.asc"), key.to_armored().unwrap().as_bytes()).unwrap();
        std::fs::write(tree.path("public.asc"), key.public_armored().unwrap()).unwrap();
        tree.run("gpg", &["--batch", "--quiet", "--import", "key.asc"]);
        tree.run("git", &["init", "--quiet", &format!("--object-format={form}"), "tree"]);
        tree
    }

    fn home(&self) -> PathBuf {
        self.path("home")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Vec<u8> {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(self.folder.path()).env("GNUPGHOME", self.home());
        for (name, value) in [("NAME", "Committer"), ("EMAIL", "committer@example.org")] {
            command.env(format!("GIT_AUTHOR_{name}"), value).env(format!("GIT_COMMITTER_{name}"), value);
        }
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("HOME", self.home());
        let output = command.output().unwrap();
        assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
        output.stdout
    }

    fn git(&self, arguments: &[&str]) -> Vec<u8> {
        self.run("git", &[&["-C", "tree"], arguments].concat())
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.path("tree").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    fn commit(&self, sign: &str) -> String {
        self.git(&["add", "--all"]);
        self.git(&["commit", "--quiet", "--allow-empty", sign, "--message", "A change\n\nwith a body"]);
        String::from_utf8(self.git(&["rev-parse", "HEAD"])).unwrap().trim().to_owned()
    }

    /// What a coordinator shows of a folder.
    fn evidence(&self, commit: &str, path: &str, files: &[&str]) -> SourceCommit {
        let text = String::from_utf8(self.git(&["cat-file", "commit", commit])).unwrap();
        let mut folder = PathBuf::new();
        let mut named = vec![(format!("{commit}^{{tree}}"), "tree")];
        for part in Path::new(path).components() {
            folder.push(part);
            named.push((format!("{commit}:{}", folder.display()), "tree"));
        }
        for file in files {
            let kind = if file.ends_with('/') { "tree" } else { "blob" };
            named.push((format!("{commit}:{}", folder.join(file.trim_end_matches('/')).display()), kind));
        }
        let object = |(name, kind): (String, &str)| {
            self.git(&["cat-file", kind, &name]).iter().map(|byte| format!("{byte:02x}")).collect()
        };
        SourceCommit { commit: text, path: path.to_owned(), objects: named.into_iter().map(object).collect() }
    }

    fn signer(&self) -> Signer {
        let mut signer = Signer::with_policy(|text| {
            text.replace("keys = [\"main\"]", "keys = [\"main\"]\ntrees = [\"own\"]")
                + "\n[tree.own]\nkeyring = \"own.asc\"\n"
        });
        std::fs::copy(self.path("public.asc"), signer.folder.path().join("own.asc")).unwrap();
        signer.again();
        signer
    }
}

const DEBIAN: &[&str] = &["debian/", "debian/control", "debian/changelog"];

fn show(signer: &mut Signer, commit: SourceCommit) {
    assert!(matches!(signer.ask(Ask::Sources(Evidence::Commit(commit))), Answer::Evidence { .. }));
}

fn is_wanted(signer: &mut Signer, key: &str) -> bool {
    match signer.ask(Ask::Evidence { keys: vec![key.to_owned()] }) {
        Answer::Evidence { wanted } => !wanted.is_empty(),
        other => panic!("{other:?}"),
    }
}

fn changelog(version: &str) -> String {
    format!(
        "hello ({version}) unstable; urgency=low\n\n  * New.\n\n -- A <a@example.org>  Fri, 27 Nov 2026 12:00:00 +0000\n"
    )
}

#[test]
fn a_signed_commit_says_what_its_source_declares() {
    for form in ["sha1", "sha256"] {
        let tree = Tree::new(form);
        tree.write(
            "debian/control",
            "Source: hello\n\nPackage: hello\nArchitecture: any\n\nPackage: hello-doc\nArchitecture: all\n",
        );
        tree.write("debian/changelog", &changelog("1.0"));
        tree.write("src/main.c", "int main(void) { return 0; }\n");
        let unsigned = tree.commit("--no-gpg-sign");
        let commit = tree.commit("--gpg-sign=committer@example.org");
        let mut signer = tree.signer();
        let debs = [deb("hello", "1.0"), deb("hello-doc", "1.0").from("hello")];
        let publish = |signer: &mut Signer| signer.publish(&debs);
        is_refused(
            &publish(&mut signer),
            Rule::Source,
            "no archive or tree of the policy has the source hello 1.0",
        );
        // A commit without a signature, one of another key, one whose text was changed, and other files.
        show(&mut signer, tree.evidence(&unsigned, "", DEBIAN));
        is_refused(&publish(&mut signer), Rule::Source, "the commit is not signed");
        let mut other = Tree::new(tree.form).signer();
        show(&mut other, tree.evidence(&commit, "", DEBIAN));
        is_refused(&publish(&mut other), Rule::Source, "it is not signed for [tree.own]");
        let mut changed = tree.evidence(&commit, "", DEBIAN);
        changed.commit = changed.commit.replace("A change", "Another change");
        show(&mut signer, changed);
        is_refused(&publish(&mut signer), Rule::Source, "it is not signed for [tree.own]");
        for (from, to) in [("hello-doc", "hello-dac"), ("(1.0)", "(1.1)")] {
            let hexadecimal = |text: &str| text.bytes().map(|byte| format!("{byte:02x}")).collect::<String>();
            let mut changed = tree.evidence(&commit, "", DEBIAN);
            changed.objects.iter_mut().for_each(|object| {
                *object = object.replace(&hexadecimal(from), &hexadecimal(to));
            });
            show(&mut signer, changed);
            is_refused(&publish(&mut signer), Rule::Source, "of the commit is missing");
        }
        let key = commit_key(&commit, "");
        assert!(is_wanted(&mut signer, &key));
        show(&mut signer, tree.evidence(&commit, "", DEBIAN));
        assert!(!is_wanted(&mut signer, &key), "it is shown once");
        assert!(signer.account().contains(&format!("\"archive\":\"tree own\",\"text\":\"{commit}\"")));
        signed(&publish(&mut signer));
        let trojan = deb("libc6", "9").from("hello (1.0)");
        let mut lying = builds(std::slice::from_ref(&trojan));
        (lying[0].source, lying[0].package) = ("hello".to_owned(), "hello".to_owned());
        let answer = signer.publish_with(&[&debs[..], &[trojan]].concat(), lying);
        is_refused(&answer, Rule::Undeclared, "hello does not declare it");
        // What is no folder of a source.
        show(&mut signer, tree.evidence(&commit, "src", &["main.c"]));
        show(
            &mut signer,
            SourceCommit { commit: "tree x\n\nx".to_owned(), path: String::new(), objects: vec![] },
        );
        show(
            &mut signer,
            SourceCommit { objects: vec!["zz".to_owned()], ..tree.evidence(&commit, "", DEBIAN) },
        );
        show(
            &mut signer,
            SourceCommit { objects: vec!["00".to_owned(); 65], ..tree.evidence(&commit, "", &[]) },
        );
    }
}

/// The rule by which a package of a tree is refused.
fn ask(signer: &mut Signer, path: &str, name: &str) -> Option<Rule> {
    let text = kilnyard_ecosystem::pkgsrc::signed::text(name, 1, &["01".repeat(64)]);
    let built =
        Built { sha256: hash(name.as_bytes()), listed: hash(text.as_bytes()), header: None, files: None };
    let build = Build {
        source: path.to_owned(),
        package: path.to_owned(),
        declared: vec![name.rsplit_once('-').unwrap().0.to_owned()],
        outputs: vec![built],
        statement: None,
    };
    let builds = vec![BuildTexts { build, texts: vec![PackageText { text, file: format!("{name}.tgz") }] }];
    match signer.ask(Ask::Packages { builds }) {
        Answer::Packages { refusals, .. } => refusals.first().map(|refusal| refusal.rule),
        other => panic!("{other:?}"),
    }
}

#[test]
fn folders_of_a_pkgsrc_tree_name_their_packages() {
    let tree = Tree::new("sha1");
    tree.write("www/good/Makefile", "DISTNAME=\tgood-1\n");
    tree.write("lang/py-tool/Makefile", "DISTNAME= tool-2.0\nPKGNAME= ${PYPKGPREFIX}-tool-2.0\n");
    let commit = tree.commit("--gpg-sign=committer@example.org");
    let mut signer = tree.signer();
    assert_eq!(ask(&mut signer, "www/good", "good-1"), Some(Rule::Source));
    for path in ["www/good", "lang/py-tool"] {
        show(&mut signer, tree.evidence(&commit, path, &["Makefile"]));
    }
    assert_eq!(ask(&mut signer, "www/good", "good-1"), None);
    assert_eq!(ask(&mut signer, "lang/py-tool", "py312-tool-2.0"), None);
    assert_eq!(ask(&mut signer, "lang/py-tool", "pyevil-tool-2.0"), Some(Rule::Undeclared));
    assert_eq!(ask(&mut signer, "www/good", "openssl-9"), Some(Rule::Undeclared));
    assert_eq!(ask(&mut signer, "www/absent", "absent-1"), Some(Rule::Source));
}
