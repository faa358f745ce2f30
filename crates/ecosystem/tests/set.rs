//! A set resolved from a small archive: edges, cycles, explanations, keys, build orders.

use kilnyard_ecosystem::debian::dependents::{Reach, dependents};
use kilnyard_ecosystem::debian::source::{Parts, Sources};
use kilnyard_ecosystem::debian::suites::{Suite, Suites};
use kilnyard_ecosystem::debian::universe::{Origin, Universe};
use kilnyard_ecosystem::debian::{Base, Cycles, Published, Settings, Takeovers, Workshop};
use kilnyard_ecosystem::{Ecosystem, Impossible, OutputBounds, Stock, rules};
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_model::cuts::StandIn;
use kilnyard_model::graph::{Against, PackageId};
use kilnyard_model::order::{BuildOrder, Input, Key, Output, Stage, TestOrder};
use std::cell::RefCell;
use std::ops::Deref;
use std::sync::Arc;

const HASH: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn settings() -> Settings {
    Settings {
        release: "bookworm".into(),
        architecture: "amd64".into(),
        build_architecture: None,
        target: "debian/linux/bookworm/amd64".parse().unwrap(),
        mirrors: vec!["http://mirror.example/debian/".into()],
        suites: Suites::default(),
        parts: Parts::Dependent,
        runs_checks: false,
        profiles: Vec::new(),
        version_suffix: "+bk".into(),
        maintainer: "A <a@example>".into(),
        cycles: Cycles::Archive,
        against: Against::Set,
        passes: 1,
        takeovers: Takeovers::new(),
        packages: Default::default(),
    }
}

fn binary(name: &str, version: &str, more: &str) -> String {
    format!(
        "Package: {name}\nVersion: {version}\nArchitecture: amd64\n{more}Filename: pool/{name}.deb\nSize: 1\nSHA256: {HASH}\n\n"
    )
}

fn source(name: &str, binaries: &str, needs: &str) -> String {
    let list: String =
        binaries.split_whitespace().map(|b| format!(" {b} deb libs optional arch=any\n")).collect();
    format!(
        "Package: {name}\nBinary: {binaries}\nVersion: 1-1\nArchitecture: any\nBuild-Depends: {needs}\n\
         Package-List:\n{list}Checksums-Sha256:\n {HASH} 10 {name}_1-1.dsc\nDirectory: pool/{name}\n\n"
    )
}

fn packages() -> String {
    [
        binary("build-essential", "12", "Depends: make\n"),
        binary("make", "4", ""),
        binary("libattr1", "1-1", "Source: attr\n"),
        binary("libattr1-dev", "1-1+b2", "Source: attr (1-1)\nDepends: libattr1 (= 1-1+b2)\n"),
        binary("libacl1", "1-1", "Source: acl\nDepends: libattr1 (>= 1)\n"),
        binary("libacl1-dev", "1-1", "Source: acl\nDepends: libacl1 (= 1-1), libattr1-dev\n"),
        binary("rsync", "1-1", "Depends: libacl1\n"),
        binary("old", "0.5", ""),
    ]
    .concat()
}

fn sources() -> String {
    [
        source("attr", "libattr1 libattr1-dev", "make"),
        source("acl", "libacl1 libacl1-dev", "libattr1-dev"),
        source("rsync", "rsync", "libacl1-dev, old <!nocheck>"),
        source("knot", "knot", "knot2"),
        source("knot2", "knot2", "knot"),
        source("hopeless", "hopeless", "acl-tools | old (>= 2), missing"),
    ]
    .concat()
}

fn workshop_of(packages: &str, sources_text: &str, names: &[&str], settings: Settings) -> Yard {
    workshop_with(packages, sources_text, names, settings, "")
}

/// Like [`workshop_of`], with these packages in the yard's repository.
fn workshop_with(
    packages: &str,
    sources_text: &str,
    names: &[&str],
    settings: Settings,
    offered: &str,
) -> Yard {
    let mut published = Published::default();
    published.add(offered, &settings.version_suffix);
    let mut universe = Universe::new(settings.context());
    universe.add_packages(packages.to_owned().into(), Origin::Archive).unwrap();
    let mut sources = Sources::default();
    sources.add(sources_text.to_owned().into()).unwrap();
    let base = Base {
        tree: Some(Artifact { sha256: HASH.parse().unwrap(), size_bytes: 1, media: Media::Tree }),
        digest: "base".into(),
        packages: vec![("make".into(), "4".into()), ("build-essential".into(), "12".into())],
    };
    let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let set = Arc::new(Workshop::new(settings, universe, sources, &names, base, published));
    Yard { stock: RefCell::new(set.clone().stock()), set }
}

/// A set with its stock.
struct Yard {
    set: Arc<Workshop>,
    stock: RefCell<Box<dyn Stock>>,
}

impl Deref for Yard {
    type Target = Workshop;

    fn deref(&self) -> &Workshop {
        &self.set
    }
}

impl Yard {
    fn key(&self, package: PackageId) -> Result<Key, Impossible> {
        self.stock.borrow_mut().key(package)
    }

    fn order(&self, package: PackageId, revision: u32) -> Result<BuildOrder, Impossible> {
        self.stock.borrow_mut().order(package, revision)
    }

    fn test(&self, package: PackageId, outputs: &[Output]) -> Result<TestOrder, Impossible> {
        self.stock.borrow_mut().test(package, outputs)
    }

    fn adopt(&self, package: PackageId, outputs: &[Output]) {
        self.stock.borrow_mut().adopt(package, outputs);
    }
}

fn workshop(names: &[&str]) -> Yard {
    workshop_of(&packages(), &sources(), names, settings())
}

fn id(workshop: &Workshop, name: &str) -> PackageId {
    workshop.graph().find(name).unwrap()
}

fn output(name: &str, content: &str, more: &str) -> Output {
    Output {
        name: name.into(),
        version: "1-1+bk1".into(),
        architecture: "amd64".into(),
        file: format!("{name}_1-1+bk1_amd64.deb"),
        sha256: HASH.into(),
        size_bytes: 5,
        content: content.into(),
        description: format!("Package: {name}\nVersion: 1-1+bk1\nArchitecture: amd64\n{more}"),
        digests: Default::default(),
    }
}

fn adopt_attr(workshop: &Yard, content: &str) {
    let dev = output("libattr1-dev", content, "Depends: libattr1 (= 1-1+bk1)\n");
    workshop.adopt(id(workshop, "attr"), &[output("libattr1", "x", ""), dev]);
}

#[test]
fn dependencies_on_the_set_are_edges() {
    let workshop = workshop(&["rsync", "acl", "attr"]);
    let graph = workshop.graph();
    assert!(workshop.left_out().is_empty(), "{:?}", workshop.left_out());
    assert_eq!(graph.dependencies(id(&workshop, "rsync")).len(), 2);
    assert!(graph.dependencies(id(&workshop, "acl")).contains(&id(&workshop, "attr")));
    assert!(graph.dependencies(id(&workshop, "attr")).is_empty());
}

#[test]
fn unresolved_packages_are_explained_and_do_not_block_others() {
    let workshop = workshop(&["attr", "hopeless", "attrr", "libattr1"]);
    let explanation =
        |name: &str| workshop.left_out().iter().find(|left| left.name == name).unwrap().explanation.clone();
    let hopeless = explanation("hopeless");
    assert!(hopeless.contains("hopeless (source) needs"), "{hopeless}");
    assert!(hopeless.contains("old 0.5 is available, but does not satisfy old (>= 2)"), "{hopeless}");
    assert!(hopeless.contains("package acl-tools not found"), "{hopeless}");
    assert!(explanation("attrr").contains("did you mean attr?"), "{}", explanation("attrr"));
    assert!(explanation("libattr1").contains("is made by attr"), "{}", explanation("libattr1"));
    assert!(workshop.key(id(&workshop, "attr")).is_ok());
}

#[test]
fn a_cycle_is_cut_if_the_archive_can_stand_in() {
    let packages = packages() + &binary("knot", "1-1", "");
    let workshop = workshop_of(&packages, &sources(), &["knot", "knot2"], settings());
    let [cut] = &workshop.cutting().cuts[..] else { panic!("{:?}", workshop.cutting()) };
    // Only knot's package is in the archive, so only the edge to it can be cut.
    assert_eq!((cut.package, cut.dependency), (id(&workshop, "knot2"), id(&workshop, "knot")));
    assert_eq!(cut.stand_in, StandIn::Archive);
    assert!(workshop.left_out().is_empty());
}

#[test]
fn an_uncut_cycle_names_its_members() {
    let workshop = workshop(&["knot", "knot2", "attr"]);
    let [one, two] = workshop.left_out() else { panic!("{:?}", workshop.left_out()) };
    for left_out in [one, two] {
        assert!(left_out.explanation.contains("the cycle knot, knot2"), "{}", left_out.explanation);
    }
}

#[test]
fn a_cycle_is_cut_by_a_profile_that_drops_the_dependency() {
    let sources = [source("a", "a", "b <!nodoc>"), source("b", "b", "a")].concat();
    let settings = Settings { cycles: Cycles::Profile, ..settings() };
    let workshop = workshop_of(&packages(), &sources, &["a", "b"], settings);
    let [cut] = &workshop.cutting().cuts[..] else { panic!("{:?}", workshop.cutting()) };
    assert_eq!((cut.package, cut.stand_in), (id(&workshop, "a"), StandIn::Profile));
    let order = workshop.order(id(&workshop, "a"), 1).unwrap();
    let build = order.stages.iter().find(|stage| stage.stage == Stage::Build).unwrap();
    let profiles = build.commands[0].environment.iter().find(|(name, _)| name == "DEB_BUILD_PROFILES");
    // Tests are off by configuration; of the profiles that cut the cycle, the least intrusive one is added.
    assert_eq!(profiles.unwrap().1, "nocheck nodoc");
}

#[test]
fn a_build_only_uses_its_ancestors_outputs_from_the_set() {
    let workshop = workshop(&["rsync", "acl", "attr"]);
    adopt_attr(&workshop, "c1");
    let order = workshop.order(id(&workshop, "acl"), 3).unwrap();
    assert_eq!(order.version, "1-1+bk3");
    let names: Vec<&str> = order.root.inputs.iter().map(|input| input.name.as_str()).collect();
    assert_eq!(names, ["libattr1_1-1+bk1_amd64.deb", "libattr1-dev_1-1+bk1_amd64.deb", "acl_1-1.dsc"]);
    assert!(order.root.inputs[0].urls.is_empty());
    assert_eq!(order.root.inputs[2].urls, ["http://mirror.example/debian/pool/acl/acl_1-1.dsc"]);
    let depends: Vec<_> =
        order.root.depends.iter().map(|one| (&one.name[..], &one.version[..], &one.file[..])).collect();
    let expected = [
        ("libattr1", "1-1+bk1", "libattr1_1-1+bk1_amd64.deb"),
        ("libattr1-dev", "1-1+bk1", "libattr1-dev_1-1+bk1_amd64.deb"),
    ];
    assert_eq!(depends, expected);
    let depends: Vec<_> = order.root.depends.iter().collect();
    let commands = rules(&order.family).unwrap().install(&depends);
    let install = commands.iter().map(|command| command.arguments.join(" "));
    assert!(install.into_iter().any(|line| line == "apt-get install libattr1=1-1+bk1 libattr1-dev=1-1+bk1"));
    // In the other direction, attr does not depend on acl.
    let attr = workshop.order(id(&workshop, "attr"), 1).unwrap();
    assert!(attr.root.depends.is_empty());
}

#[test]
fn a_key_depends_on_content_and_not_on_versions() {
    let key = |content: &str| {
        let workshop = workshop(&["acl", "attr"]);
        adopt_attr(&workshop, content);
        workshop.key(id(&workshop, "acl")).unwrap()
    };
    let words = |now: &Key, before: &Key| -> Vec<String> {
        now.differences(before).iter().map(ToString::to_string).collect()
    };
    assert_eq!(key("c1"), key("c1"));
    assert_eq!(words(&key("c2"), &key("c1")), ["dependency libattr1-dev changed"]);
    let checked = Settings { runs_checks: true, ..settings() };
    let workshop = workshop_of(&packages(), &sources(), &["acl", "attr"], checked);
    adopt_attr(&workshop, "c1");
    let differences = words(&workshop.key(id(&workshop, "acl")).unwrap(), &key("c1"));
    assert!(differences.contains(&"option checks changed from false to true".to_owned()), "{differences:?}");
}

#[test]
fn mutually_exclusive_outputs_are_tested_separately() {
    let workshop = workshop(&["attr"]);
    let one = output("libattr1", "x", "Conflicts: libattr1-dev\n");
    let two = output("libattr1-dev", "y", "");
    let order = workshop.test(id(&workshop, "attr"), &[one, two]).unwrap();
    let installs: Vec<String> = order
        .stage
        .commands
        .iter()
        .filter(|command| command.arguments[1] == "install")
        .map(|command| command.arguments[2..].join(" "))
        .collect();
    assert_eq!(installs, ["libattr1=1-1+bk1", "libattr1-dev=1-1+bk1"]);
    let broken = output("libattr1", "x", "Depends: nothing-like-this\n");
    let impossible = workshop.test(id(&workshop, "attr"), &[broken]).unwrap_err();
    assert!(impossible.explanation.contains("package nothing-like-this not found"), "{impossible}");
}

#[test]
fn packages_that_a_system_must_keep_are_not_removed() {
    let workshop = workshop(&["attr"]);
    for field in ["Essential", "Protected", "Important"] {
        let outputs = [output("libattr1", "x", &format!("{field}: yes\n")), output("libattr1-dev", "y", "")];
        let order = workshop.test(id(&workshop, "attr"), &outputs).unwrap();
        let purge = order.stage.commands.iter().find(|command| command.arguments[1] == "purge").unwrap();
        assert_eq!(purge.arguments.last().unwrap(), "libattr1-dev", "{field}");
        assert!(!purge.arguments.contains(&"libattr1".to_owned()), "{field}");
    }
}

#[test]
fn dependencies_that_need_no_output_are_installed_first() {
    let workshop = workshop(&["attr"]);
    let of_test = |needs: &str| {
        let outputs = [output("libattr1", "x", ""), output("libattr1-dev", "y", needs)];
        let order = workshop.test(id(&workshop, "attr"), &outputs).unwrap();
        let names = |inputs: &[Input]| inputs.iter().map(|input| input.name.clone()).collect::<Vec<_>>();
        let depends: Vec<String> = order.root.depends.iter().map(|one| one.name.clone()).collect();
        (depends, names(&order.root.inputs), names(&order.inputs))
    };
    let own = ["libattr1_1-1+bk1_amd64.deb".to_owned(), "libattr1-dev_1-1+bk1_amd64.deb".to_owned()];
    let (depends, before, all) = of_test("Depends: old\n");
    assert_eq!((depends, before), (vec!["old".to_owned()], vec!["old.deb".to_owned()]));
    assert!(own.iter().all(|file| all.contains(file)) && all.contains(&"old.deb".to_owned()), "{all:?}");
    // rsync needs libacl1, which needs libattr1, which is being tested.
    let (depends, before, all) = of_test("Depends: rsync\n");
    assert!(depends.is_empty() && before.is_empty(), "{depends:?} {before:?}");
    assert!(all.contains(&"rsync.deb".to_owned()), "{all:?}");
}

/// A package file with only this control file, assembled by hand: no tool writes a bad one.
fn deb(control: &str) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(control.len() as u64);
    header.set_mode(0o644);
    header.set_uid(0);
    header.set_gid(0);
    tar.append_data(&mut header, "./control", control.as_bytes()).unwrap();
    let mut bytes = b"!<arch>\n".to_vec();
    let members = [
        ("debian-binary", b"2.0\n".to_vec()),
        ("control.tar", tar.into_inner().unwrap()),
        ("data.tar", vec![0; 1024]),
    ];
    for (name, content) in members {
        let header = format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 100644, content.len());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(&content);
    }
    bytes
}

#[test]
fn an_ambiguous_control_file_fails_its_own_build() {
    let workshop = workshop(&["attr"]);
    let collected = |control: &str| {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("attr_1_amd64.deb"), deb(control)).unwrap();
        let attr = id(&workshop, "attr");
        let order = workshop.order(attr, 1).unwrap();
        let outputs = rules(&order.family).unwrap().read_outputs(folder.path(), OutputBounds::WIDEST);
        outputs
            .and_then(|outputs| workshop.admit(attr, "1-1+bk1", &outputs))
            .map_err(|error| error.to_string())
    };
    let good = "Package: libattr1\nSource: attr\nVersion: 1-1+bk1\nArchitecture: amd64\n";
    assert_eq!(collected(good).unwrap().outputs[0].description, good);
    for (more, reason) in [
        ("Package: libc6\n", "the field Package twice"),
        ("\nPackage: libc6\nVersion: 9\n", "an empty line"),
        ("Filename\u{b}: ../x\n", "not a field"),
    ] {
        let error = collected(&format!("{good}{more}")).unwrap_err();
        assert!(error.contains(reason), "{error}");
    }
    let error = collected("Package: libattr1\nSource: attr\n").unwrap_err();
    assert!(error.contains("its control file has no version"), "{error}");
    let error = collected(&good.replace("Version: ", "Version:\n ")).unwrap_err();
    assert!(error.contains("the value of Version on a different line"), "{error}");
}

#[test]
fn only_the_owner_may_publish_a_name_and_its_number_increases() {
    let both = sources() + &source("fork", "libattr1", "make");
    let offered = "Package: libattr1\nSource: attr (1-1)\nVersion: 1-1+bk4\n";
    let workshop = workshop_with(&packages(), &both, &["fork", "attr", "acl"], settings(), offered);
    let [remark] = workshop.remarks() else { panic!("{:?}", workshop.remarks()) };
    assert!(remark.contains("libattr1 belongs to attr; fork also declares it"), "{remark}");
    assert_eq!(workshop.published_revision(id(&workshop, "attr")), 4);
    assert_eq!(workshop.published_revision(id(&workshop, "acl")), 0);
    let judge = |package: &str, version: &str| {
        let made = Output {
            version: version.into(),
            description: format!(
                "Package: libattr1\nSource: {package}\nVersion: {version}\nArchitecture: amd64\n"
            ),
            ..output("libattr1", "x", "")
        };
        workshop.admit(id(&workshop, package), version, &[made]).map_err(|error| error.to_string())
    };
    assert!(judge("fork", "1-1+bk5").unwrap_err().contains("belongs to the source attr"));
    assert!(judge("attr", "1-1+bk4").unwrap_err().contains("not above the published version 1-1+bk4"));
    // Admitted outputs are admitted again unchanged.
    let admitted = judge("attr", "1-1+bk5").unwrap();
    assert_eq!(workshop.admit(id(&workshop, "attr"), "1-1+bk5", &admitted.outputs).unwrap(), admitted);
    let twice = [admitted.outputs[0].clone(), admitted.outputs[0].clone()];
    let error = workshop.admit(id(&workshop, "attr"), "1-1+bk5", &twice).unwrap_err();
    assert!(error.to_string().contains("second package with the name libattr1"), "{error}");
    assert!(workshop.admit(id(&workshop, "attr"), "1-1+bk5", &[]).is_err());
    // A worker's description of an output must match its control file.
    let mut lie = output("libattr1-dev", "x", "Source: attr\n");
    lie.name = "libattr1".into();
    let error = workshop.admit(id(&workshop, "attr"), "1-1+bk1", &[lie]).unwrap_err();
    assert!(error.to_string().contains("does not match its own control file"), "{error}");
}

/// Sources with an indirect dependency on the set: `rsync` installs `libattr1` only because of `libacl1-dev`.
fn edges(against: Against) -> Vec<(String, String)> {
    let names = ["rsync", "acl", "attr", "build-essential"];
    let sources = sources() + &source("build-essential", "build-essential", "make");
    let workshop = workshop_of(&packages(), &sources, &names, Settings { against, ..settings() });
    let graph = workshop.graph();
    let name = |id: PackageId| graph.name(id).to_owned();
    graph
        .packages()
        .flat_map(|id| graph.dependencies(id).iter().map(move |to| (name(id), name(*to))))
        .collect()
}

/// The packages of an archive that can be installed without the set's.
fn whole() -> String {
    packages().replace("Package: libattr1\nVersion: 1-1\n", "Package: libattr1\nVersion: 1-1+b2\n")
}

#[test]
fn what_packages_are_built_against_decides_the_edges() {
    let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    // The base root has build-essential, whose own package nothing waits for.
    let set = [pair("rsync", "acl"), pair("rsync", "attr"), pair("acl", "attr")];
    assert_eq!(edges(Against::Set), set);
    let direct = edges(Against::Ancestors);
    assert!(!direct.contains(&pair("rsync", "attr")) && direct.contains(&pair("rsync", "acl")), "{direct:?}");
    assert!(direct.contains(&pair("rsync", "build-essential")), "{direct:?}");
    assert_eq!(edges(Against::Archive), []);
}

#[test]
fn a_build_against_the_archive_uses_nothing_of_the_set() {
    let settings = Settings { against: Against::Archive, ..settings() };
    let workshop = workshop_of(&whole(), &sources(), &["rsync", "acl", "attr"], settings);
    let before = workshop.key(id(&workshop, "acl")).unwrap();
    adopt_attr(&workshop, "c1");
    assert_eq!(workshop.key(id(&workshop, "acl")).unwrap(), before);
    let order = workshop.order(id(&workshop, "acl"), 1).unwrap();
    let versions: Vec<&str> = order.root.depends.iter().map(|one| one.version.as_str()).collect();
    assert_eq!(versions, ["1-1+b2", "1-1+b2"]);
}

#[test]
fn dependents_follow_installed_packages_and_rebuilds() {
    let packages = whole() + &binary("tool", "1-1", "") + &binary("user", "1-1", "");
    // `tool` is built with acl, and `user` with tool: it installs nothing of acl or attr.
    let sources = sources()
        + &source("tool", "tool", "libacl1-dev")
        + &source("user", "user", "tool")
        + &source("build-essential", "build-essential", "make");
    let names: Vec<String> =
        ["attr", "acl", "rsync", "tool", "user", "hopeless", "knot"].map(str::to_owned).into();
    let mut universe = Universe::new(settings().context());
    universe.add_packages(packages.into(), Origin::Archive).unwrap();
    let mut read = Sources::default();
    read.add(sources.into()).unwrap();
    let mut found = |target: &str, reach| {
        let mut found = dependents(&[target.to_owned()], &names, reach, &settings(), &mut universe, &read);
        found.sort();
        found
    };
    assert_eq!(found("attr", Reach::Installs), ["acl", "rsync", "tool"]);
    assert_eq!(found("attr", Reach::Rebuilds), ["acl", "rsync", "tool", "user"]);
    assert_eq!(found("build-essential", Reach::Rebuilds), Vec::<String>::new());
    assert_eq!(found("user", Reach::Rebuilds), Vec::<String>::new());
}

#[test]
fn files_come_from_the_archive_of_their_suite() {
    let mut settings = settings();
    let suite = |archive: &str, suite: &str, pin, mirror: &str| Suite {
        archive: archive.into(),
        suite: suite.into(),
        pin,
        mirrors: vec![mirror.into()],
    };
    let main = settings.suites.add(suite("", "bookworm", 500, "http://main.example"));
    let vendor = settings.suites.add(suite("vendor", "stable", 600, "http://vendor.example/"));
    let mut universe = Universe::new(settings.context());
    let mut sources = Sources::default();
    universe.add_packages_from(packages().into(), main).unwrap();
    universe.add_packages_from(binary("tool", "1", "").into(), vendor).unwrap();
    sources.add_from(source("attr", "libattr1", "tool, old").into(), main).unwrap();
    sources.add_from(source("attr", "libattr1", "tool, old").into(), vendor).unwrap();
    let base = Base { packages: vec![("make".into(), "4".into())], ..Base::default() };
    let names = ["attr".to_owned()];
    let urls_of = |settings: &Settings, sources: &Sources| {
        let set = Workshop::new(
            settings.clone(),
            universe.clone(),
            sources.clone(),
            &names,
            base.clone(),
            Published::default(),
        );
        let set = Arc::new(set);
        let package = set.graph().packages().next().unwrap();
        let mut stock = set.clone().stock();
        let order = stock.order(package, 1).unwrap();
        let urls: Vec<String> = order.root.inputs.iter().flat_map(|input| input.urls.clone()).collect();
        (urls, order.key)
    };
    let (urls, key) = urls_of(&settings, &sources);
    for url in [
        "http://vendor.example/pool/attr/attr_1-1.dsc",
        "http://vendor.example/pool/tool.deb",
        "http://main.example/pool/old.deb",
    ] {
        assert!(urls.iter().any(|found| found == url), "{url}: {urls:?}");
    }
    assert!(!urls.iter().any(|url| url.contains("main.example/pool/tool")), "{urls:?}");
    // A key names content, not its origin.
    assert!(sources.choose("attr", &|_, suite| suite == main.suite));
    let (urls, same) = urls_of(&settings, &sources);
    assert!(urls.iter().any(|url| url == "http://main.example/pool/attr/attr_1-1.dsc"), "{urls:?}");
    assert_eq!(key, same);
}
