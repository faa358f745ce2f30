//! Options of single packages: their effect on keys, orders and graphs.

use kilnyard_ecosystem::debian::source::{Parts, Sources};
use kilnyard_ecosystem::debian::universe::{Origin, Universe};
use kilnyard_ecosystem::debian::{self, Base, Cycles, Published, Takeovers};
use kilnyard_ecosystem::{Ecosystem, NamePattern, OptionRules, Options, Stock, pkgsrc};
use kilnyard_model::artifact::{Artifact, Media};
use kilnyard_model::order::{Account, BuildOrder, Key};
use std::collections::BTreeMap;
use std::sync::Arc;

const HASH: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

fn tree() -> Artifact {
    Artifact { sha256: HASH.parse().unwrap(), size_bytes: 1, media: Media::Tree }
}

/// Two sources, of which the second needs the first unless it is built without checks.
const SOURCES: [(&str, &str); 2] = [("one", "make"), ("two", "make, one <!nocheck>")];

fn debian_settings() -> debian::Settings {
    debian::Settings {
        release: "bookworm".into(),
        architecture: "amd64".into(),
        build_architecture: None,
        target: "debian/linux/bookworm/amd64".parse().unwrap(),
        mirrors: vec!["http://mirror.example/debian/".into()],
        parts: Parts::Dependent,
        runs_checks: false,
        profiles: Vec::new(),
        version_suffix: "+bk".into(),
        maintainer: "A <a@example>".into(),
        cycles: Cycles::Archive,
        takeovers: Takeovers::new(),
        packages: Default::default(),
        against: Default::default(),
        suites: Default::default(),
        passes: 1,
    }
}

fn debian_set(settings: debian::Settings) -> Box<dyn Stock> {
    let mut universe = Universe::new(settings.context());
    let binary = |name: &str| {
        format!(
            "Package: {name}\nVersion: 1-1\nArchitecture: amd64\nFilename: pool/{name}.deb\nSize: 1\nSHA256: {HASH}\n\n"
        )
    };
    let packages: String = ["build-essential", "make", "one", "two"].map(binary).concat();
    universe.add_packages(packages.into(), Origin::Archive).unwrap();
    let source = |(name, needs): (&str, &str)| {
        format!(
            "Package: {name}\nBinary: {name}\nVersion: 1-1\nArchitecture: any\nBuild-Depends: {needs}\n\
             Package-List:\n {name} deb libs optional arch=any\nChecksums-Sha256:\n {HASH} 10 {name}_1-1.dsc\n\
             Directory: pool/{name}\n\n"
        )
    };
    let mut sources = Sources::default();
    sources.add(SOURCES.map(source).concat().into()).unwrap();
    let base = Base { tree: Some(tree()), digest: "base".into(), packages: Vec::new() };
    let names = SOURCES.map(|(name, _)| name.to_owned());
    let set = debian::Workshop::new(settings, universe, sources, &names, base, Published::default());
    Arc::new(set).stock()
}

fn pkgsrc_settings(folder: &std::path::Path) -> pkgsrc::Settings {
    pkgsrc::Settings {
        tree: folder.to_owned(),
        distfiles: folder.to_owned(),
        layers: vec![tree()],
        layers_digest: "layers".into(),
        prefix: "/usr/pkg".into(),
        make: "/usr/pkg/bin/bmake".into(),
        mk_conf: "CFLAGS= -O2\n".into(),
        architecture: "x86_64".into(),
        target: "pkgsrc/linux/bookworm/amd64".parse().unwrap(),
        packages: Default::default(),
    }
}

fn pkgsrc_set(settings: pkgsrc::Settings) -> Box<dyn Stock> {
    let stanza = |location: &str, name: &str, more: &str| {
        format!("PKGNAME={name}-1.0\nPKG_LOCATION={location}\nSCAN_DEPENDS=Makefile\n{more}")
    };
    let text = stanza("mail/mutt", "mutt", "")
        + &stanza("lang/one", "py1-one", "MULTI_VERSION= VERSION_REQD=1\n")
        + &stanza("lang/one", "py2-one", "MULTI_VERSION= VERSION_REQD=2\n");
    let scan = pkgsrc::Scan { text: text.into_bytes(), ..pkgsrc::Scan::default() };
    Arc::new(pkgsrc::Workshop::new(settings, scan, None).unwrap()).stock()
}

fn key(stock: &mut dyn Stock, name: &str) -> Key {
    let set = stock.set();
    let id = set.graph().find(name).unwrap_or_else(|| panic!("{name}"));
    stock.key(id).unwrap()
}

/// The digests are those of the version before there were options of single packages: with these keys, nothing in an
/// existing yard is built again.
#[test]
fn keys_of_packages_without_options_stay_as_they_were() {
    let mut debian = debian_set(debian_settings());
    for (name, digest) in [
        ("one", "43a9480037662410d3583cb2b73a80702b922063be9252608884cc4b5f2c11df"),
        ("two", "23d3b388958ed5e157475d2e04f2c625f659d938c45be471febd896c58ba0a7e"),
    ] {
        assert_eq!(key(&mut *debian, name).digest, digest, "{name}");
    }
    let folder = tempfile::tempdir().unwrap();
    let mut pkgsrc = pkgsrc_set(pkgsrc_settings(folder.path()));
    for (name, digest) in [
        ("mail/mutt", "b9aa2d373a7e98e81b1d7d7fc04457b52182048c07256e128d63c3dc1edcb9ed"),
        ("lang/one:py1-one", "219be9f3f6cf7311f4e0abb91ad68c656c22135cbe61cf77b88adea174906cd2"),
    ] {
        assert_eq!(key(&mut *pkgsrc, name).digest, digest, "{name}");
    }
}

fn rules(rules: &[(&str, Options)]) -> OptionRules {
    let parsed = |(name, options): &(&str, Options)| (NamePattern::parse(name).unwrap(), options.clone());
    OptionRules::new(rules.iter().map(parsed).collect())
}

fn words(words: &[&str]) -> Option<Vec<String>> {
    Some(words.iter().map(|word| (*word).to_owned()).collect())
}

fn variables(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// Every option that applies to Debian sources.
fn everything() -> Options {
    Options {
        checks: Some(true),
        autopkgtest: None,
        profiles: words(&["nodoc"]),
        words: words(&["nostrip", "hardening=+all"]),
        environment: variables(&[("GREETING", "good morning"), ("DEB_BUILD_OPTIONS", "lost")]),
        network: Some(true),
        cross: None,
        mk_conf: None,
        keep: None,
    }
}

fn order(stock: &mut dyn Stock, name: &str) -> BuildOrder {
    let id = stock.set().graph().find(name).unwrap();
    stock.order(id, 1).unwrap()
}

fn differences(now: &Key, before: &Key) -> Vec<String> {
    now.differences(before).iter().map(ToString::to_string).collect()
}

#[test]
fn options_of_a_source_are_in_its_key_and_its_commands_alone() {
    let mut before = debian_set(debian_settings());
    let packages = rules(&[("one", everything())]);
    let mut after = debian_set(debian::Settings { packages, ..debian_settings() });
    let [one, two] = ["one", "two"].map(|name| (key(&mut *before, name), key(&mut *after, name)));
    assert_eq!(two.0, two.1);
    let expected = [
        "option checks changed from false to true",
        "option environment.DEB_BUILD_OPTIONS was set to lost",
        "option environment.GREETING was set to good morning",
        "option network was set to true",
        "option options was set to nostrip hardening=+all",
        "option profiles changed from nocheck to nodoc",
    ];
    assert_eq!(differences(&one.1, &one.0), expected);
    let gone = differences(&one.0, &one.1);
    assert!(gone.contains(&"option network was unset; it was true".to_owned()), "{gone:?}");

    assert_eq!(order(&mut *before, "two"), order(&mut *after, "two"));
    let order = order(&mut *after, "one");
    assert!(order.terms.has_network);
    let [unpack, build] = &order.stages[..] else { panic!("{:?}", order.stages) };
    // Root gets the DNS configuration first.
    let first = &unpack.commands[0];
    assert_eq!((first.account, first.arguments[0].as_str()), (Account::Root, "cp"));
    let [command] = &build.commands[..] else { panic!("{build:?}") };
    let of_it = |name: &str| {
        let all: Vec<&str> =
            command.environment.iter().filter(|(own, _)| own == name).map(|(_, value)| &value[..]).collect();
        all.join("; ")
    };
    assert_eq!(of_it("GREETING"), "good morning");
    assert_eq!(of_it("DEB_BUILD_PROFILES"), "nodoc");
    // A variable of Kilnyard's own is never replaced.
    assert_eq!(of_it("DEB_BUILD_OPTIONS"), "parallel=%{jobs} nostrip hardening=+all");
    assert!(
        unpack.commands.iter().all(|command| command.environment.iter().any(|(own, _)| own == "GREETING")
            || command.account == Account::Root)
    );
}

#[test]
fn checks_and_profiles_of_a_source_change_its_dependencies() {
    let needs = |packages: OptionRules, checks: bool| {
        let settings = debian::Settings { packages, runs_checks: checks, ..debian_settings() };
        let set = debian_set(settings).set();
        let two = set.graph().find("two").unwrap();
        set.graph().dependencies(two).len()
    };
    let own = |options: Options| rules(&[("t*", options)]);
    let checks = |checks| own(Options { checks: Some(checks), ..Options::default() });
    assert_eq!((needs(OptionRules::default(), false), needs(OptionRules::default(), true)), (0, 1));
    assert_eq!((needs(checks(true), false), needs(checks(false), true)), (1, 0));
    let profiles = own(Options { profiles: words(&["nocheck"]), ..Options::default() });
    assert_eq!(needs(profiles, true), 0);
    // The solver installs it as well.
    let settings = debian::Settings { packages: checks(true), ..debian_settings() };
    let mut stock = debian_set(settings);
    let lines = key(&mut *stock, "two").lines;
    assert!(lines.iter().any(|line| line.starts_with("depends one ")), "{lines:?}");
    // The yard's profiles that disable tests do not apply to a source with tests.
    let settings = debian::Settings {
        packages: checks(true),
        runs_checks: true,
        profiles: vec!["nocheck".into()],
        ..debian_settings()
    };
    assert_eq!(settings.context_of("two").profiles, [""; 0]);
    assert_eq!(settings.context_of("one").profiles, ["nocheck"]);
}

#[test]
fn settings_of_a_directory_are_in_its_keys_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mut before = pkgsrc_set(pkgsrc_settings(folder.path()));
    let of_one = Options { mk_conf: Some("X=1".into()), checks: Some(true), ..Options::default() };
    let of_py1 = Options { environment: variables(&[("A", "1")]), network: Some(true), ..Options::default() };
    let packages = rules(&[("lang/*", of_one), ("lang/one:py1-one", of_py1)]);
    let mut after = pkgsrc_set(pkgsrc::Settings { packages, ..pkgsrc_settings(folder.path()) });
    let mut changes = |name: &str| differences(&key(&mut *after, name), &key(&mut *before, name));
    assert_eq!(changes("mail/mutt"), [""; 0]);
    let of_directory = changes("lang/one:py2-one");
    assert_eq!(of_directory.len(), 2, "{of_directory:?}");
    assert_eq!(of_directory[0], "option checks was set to true");
    assert!(of_directory[1].starts_with("option mk-conf was set to "), "{of_directory:?}");
    let of_package = changes("lang/one:py1-one");
    let expected = ["option environment.A was set to 1", "option network was set to true"];
    assert!(expected.iter().all(|line| of_package.contains(&(*line).to_owned())), "{of_package:?}");
    // Every root has the settings of all directories, since make also runs in other directories.
    let [mutt, one] = ["mail/mutt", "lang/one:py1-one"].map(|name| order(&mut *after, name));
    assert_eq!(mutt.root.texts, one.root.texts);
    assert!(mutt.root.texts.iter().any(|text| text.name == "package-1.mk" && text.text == "X=1\n"));
    assert_eq!((mutt.terms.has_network, one.terms.has_network), (false, true));
    let has_variable = |order: &BuildOrder| {
        let commands = order.stages.iter().flat_map(|stage| &stage.commands);
        commands.filter(|command| command.environment.contains(&("A".to_owned(), "1".to_owned()))).count()
    };
    assert_eq!(has_variable(&mutt), 0);
    assert!(has_variable(&one) >= 5, "{one:?}");
}
