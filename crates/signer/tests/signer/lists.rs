//! The lists of an RPM repository, as a hostile coordinator would have them.

use crate::fixture::*;
use kilnyard_ecosystem::rpm::{Entry, Lists};
use kilnyard_signer::hash;
use kilnyard_signer::message::{Answer, Build, Built, Change, Edit, Form, Generation, Rule};

/// A package as its worker read it.
#[derive(Clone, Debug)]
struct Rpm {
    name: &'static str,
    version: &'static str,
    files: Vec<&'static str>,
}

fn rpm(name: &'static str, version: &'static str) -> Rpm {
    Rpm { name, version, files: vec!["/usr/bin/one", "/usr/share/two"] }
}

impl Rpm {
    fn digest(&self) -> String {
        hash(format!("{} {}", self.name, self.version).as_bytes())
    }

    fn entry(&self) -> Entry {
        let Rpm { name, version, files } = self;
        let digest = self.digest();
        let number = format!("<version epoch=\"0\" ver=\"{version}\" rel=\"1\"/>");
        let begin = format!("<package pkgid=\"{digest}\" name=\"{name}\" arch=\"noarch\">\n  {number}\n");
        let listed: String = files.iter().map(|path| format!("  <file>{path}</file>\n")).collect();
        Entry {
            primary: format!(
                "<package type=\"rpm\">\n  <name>{name}</name>\n  <arch>noarch</arch>\n  {number}\n  \
                 <checksum type=\"sha256\" pkgid=\"YES\">{digest}</checksum>\n  \
                 <location href=\"Packages/{name}-{version}-1.noarch.rpm\"/>\n  <format>\n    \
                 <rpm:sourcerpm>{name}-{version}-1.src.rpm</rpm:sourcerpm>\n    \
                 <rpm:header-range start=\"1\" end=\"2\"/>\n  </format>\n</package>\n"
            ),
            filelists: format!("{begin}  <file type=\"dir\">/usr/share/folder</file>\n{listed}</package>\n"),
            other: format!("{begin}  <changelog author=\"One\" date=\"1\">x</changelog>\n</package>\n"),
        }
    }

    fn build(&self) -> Build {
        let files = self.files.iter().map(|path| path.trim_start_matches('/').to_owned()).collect();
        Build {
            source: self.name.to_owned(),
            package: self.name.to_owned(),
            declared: vec![self.name.to_owned()],
            outputs: vec![Built {
                sha256: self.digest(),
                listed: self.digest(),
                header: None,
                files: Some(files),
            }],
            statement: None,
        }
    }
}

/// A generation with these texts of lists.
pub fn generation(lists: &Lists) -> Generation {
    let whole = |(kind, text): (&String, &String)| Change {
        path: kind.clone(),
        base: None,
        edits: vec![Edit::Add(text.clone())],
    };
    Generation {
        series: "packages".to_owned(),
        form: Form::Lists,
        text: lists.files().unwrap().1,
        indexes: lists.0.iter().map(whole).collect(),
    }
}

fn lists(entries: &[Entry]) -> Lists {
    Lists::new(entries)
}

/// One list with a text replaced.
fn changed(kind: &str, from: &str, to: &str) -> Lists {
    let mut lists = lists(&[rpm("hello", "1").entry()]);
    let text = lists.0.get_mut(kind).unwrap();
    assert!(text.contains(from), "{text}");
    *text = text.replacen(from, to, 1);
    lists
}

fn ask(signer: &mut Signer, lists: &Lists, builds: Vec<Build>) -> Answer {
    signer.now += 1;
    signer.sign_with(generation(lists), builds)
}

#[track_caller]
pub fn is_signed(answer: &Answer) {
    assert!(matches!(answer, Answer::Signed { .. }), "{answer:#?}");
}

#[test]
fn lists_are_signed_as_the_builds_explain_them() {
    let mut signer = Signer::new();
    let hello = rpm("hello", "1");
    is_signed(&ask(&mut signer, &lists(&[hello.entry()]), vec![hello.build()]));
    // What is known needs no build.
    is_signed(&ask(&mut signer, &lists(&[hello.entry()]), Vec::new()));
}

#[test]
fn each_list_says_what_the_package_has() {
    let mut signer = Signer::new();
    let builds = || vec![rpm("hello", "1").build()];
    for (kind, from, to, rule, why) in [
        ("filelists", "/usr/bin/one", "/usr/bin/sudo", Rule::Worker, "the list of all files has others"),
        ("filelists", "  <file>/usr/bin/one</file>\n", "", Rule::Worker, "the list of all files has others"),
        ("filelists", "name=\"hello\"", "name=\"bash\"", Rule::Text, "names another package"),
        ("filelists", "ver=\"1\"", "ver=\"9\"", Rule::Text, "names another package"),
        ("filelists", "<file>/usr/bin", "<link>/etc</link>\n  <file>/usr/bin", Rule::Text, "element link"),
        ("filelists", "\n<package ", "\n<file>/etc/x</file>\n<package ", Rule::Text, "more than packages"),
        ("other", "</otherdata>", "<package/></otherdata>", Rule::Text, "more than packages"),
        ("primary", "</metadata>", "<!-- x --></metadata>", Rule::Text, "more than packages"),
        ("primary", "packages=\"1\"", "packages=\"2\"", Rule::Text, "more than packages"),
        ("primary", "href=\"Packages/", "href=\"../", Rule::Text, "no entry"),
        ("primary", "href=\"Packages/", "href=\"Packages/other/", Rule::Text, "at another place"),
        ("primary", "href=\"Packages/", "href=\"Other/", Rule::Text, "at another place"),
        ("primary", "<name>hello<", "<name>bash<", Rule::Text, "file of another package"),
        ("primary", ">hello-1-1.src.rpm<", ">bash-1-1.src.rpm<", Rule::NoBuild, "the build was of hello"),
    ] {
        is_refused(&ask(&mut signer, &changed(kind, from, to), builds()), rule, why);
    }
    // Two entries for one package hide nothing.
    let mut twice = lists(&[rpm("hello", "1").entry()]);
    let again = rpm("hello", "1").entry().filelists;
    let text = twice.0.get_mut("filelists").unwrap();
    *text = text.replacen("\n</filelists>", &format!("\n{again}\n</filelists>"), 1);
    is_refused(&ask(&mut signer, &twice, builds()), Rule::Text, "");
    // None of these left a trace.
    is_signed(&ask(&mut signer, &lists(&[rpm("hello", "1").entry()]), builds()));
    // What was signed before has to be explained again when only a list of it changes.
    // Elements in the place of what a signature changes are a change of it, too.
    let obsoletes = "end=\"2\"></rpm:header-range><rpm:obsoletes><rpm:entry name=\"bash\"></rpm:entry></rpm:obsoletes>\
                     <rpm:header-range start=\"1\" end=\"2\"/>";
    for (kind, from, to) in [
        ("filelists", "/usr/bin/one", "/usr/bin/sudo"),
        ("other", ">x<", ">y<"),
        ("primary", "end=\"2\"/>", obsoletes),
    ] {
        is_refused(&ask(&mut signer, &changed(kind, from, to), Vec::new()), Rule::NoBuild, "no build");
    }
}

#[test]
fn versions_and_owners_of_packages_are_kept() {
    let mut signer = Signer::new();
    let (old, new) = (rpm("hello", "1"), rpm("hello", "2"));
    is_signed(&ask(&mut signer, &lists(&[new.entry()]), vec![new.build()]));
    let answer = ask(&mut signer, &lists(&[old.entry()]), vec![old.build()]);
    is_refused(&answer, Rule::VersionBelow, "");
    let mut stolen = rpm("hello", "3");
    stolen.files.push("/usr/bin/three");
    let entry = stolen.entry();
    let entry = Entry { primary: entry.primary.replace("hello-3-1.src", "evil-3-1.src"), ..entry };
    let build = Build { source: "evil".to_owned(), package: "evil".to_owned(), ..stolen.build() };
    is_refused(
        &ask(&mut signer, &lists(&[entry]), vec![build]),
        Rule::OtherOwner,
        "belongs to the source hello",
    );
}
