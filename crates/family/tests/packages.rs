//! The tables `[package.NAME]` of `kilnyard.toml`, parsed with the real families.

use kilnyard_ecosystem::Options;
use kilnyard_family::FAMILIES;
use kilnyard_family::debian::template as debian_template;
use kilnyard_family::pkgsrc::{Template, template as pkgsrc_template};
use kilnyard_model::order::BuildTerms;
use kilnyard_model::result::FailureKind;
use kilnyard_yard::config::Config;
use kilnyard_yard::config::packages::{ExpectedFailure, PackageSettings};
use kilnyard_yard::error::Result;
use std::collections::BTreeMap;
use std::path::Path;

fn parse(text: &str) -> Result<Config> {
    Config::parse(text, Path::new("kilnyard.toml"), FAMILIES)
}

fn debian(tables: &str) -> String {
    format!("{}\n{tables}", debian_template("bookworm", "http://deb.example/debian", &["zlib".into()]))
}

fn pkgsrc(tables: &str) -> String {
    let filled = Template {
        values: vec![(kilnyard_ecosystem::pkgsrc::import::ConfigKey::Tree, "/usr/pkgsrc".to_owned())],
        release: "bookworm".to_owned(),
        mirror: "http://deb.example/debian".to_owned(),
        ..Template::default()
    };
    format!("{}\n{tables}", pkgsrc_template(&filled))
}

fn settings(text: &str, package: &str) -> PackageSettings {
    parse(text).unwrap().settings_of(package)
}

fn options(text: &str, package: &str) -> Options {
    parse(text).unwrap().tables.option_rules(Path::new("/nonexistent")).unwrap().of(package)
}

#[track_caller]
fn refused(text: &str, words: &[&str]) {
    let error = parse(text).map(|_| ()).expect_err(text).to_string();
    for word in words {
        assert!(error.contains(word), "`{word}` is not in: {error}");
    }
}

fn words(words: &[&str]) -> Option<Vec<String>> {
    Some(words.iter().map(|word| (*word).to_owned()).collect())
}

fn variables(all: &[(&str, &str)]) -> BTreeMap<String, String> {
    all.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

const EVERYTHING: &str = r#"
[package.zlib]
checks = true
autopkgtest = true
profiles = ["nodoc", "pkg.zlib.small"]
options = ["nostrip", "hardening=+all"]
environment = { DEB_CFLAGS_APPEND = "-O3", GREETING = "good morning" }
network = true
wall-minutes-max = 0.5
cpu-minutes-min = 2
hung-minutes-min = 3
silent-minutes-min = 4
memory = "512M"
disk = "1G"
open-files = 128
processes-max = 256
jobs = 3
priority = -7
retries = { memory = 2, network = 0 }
expected = "failure"
because = "gcc 14"
note = "ask <upstream> & wait"
"#;

#[test]
fn what_stalls_all_cores_gets_one_unless_the_owner_decided() {
    let text = debian("[package.zlib]\nmemory = \"4G\"\n[package.zsh]\nmachine = \"none\"\n");
    let confined = settings(&text, "zlib").confined(1e6);
    assert!(confined.is_confined() && confined.terms.jobs_max == Some(1));
    assert_eq!(
        confined.terms.machine.map(|machine| (machine.cores, machine.memory_bytes)),
        Some((1, 4 << 30))
    );
    assert_eq!(settings(&text, "zlib").confined(10.0), settings(&text, "zlib"));
    assert_eq!(settings(&text, "zsh").confined(1e6), settings(&text, "zsh"));
}

#[test]
fn every_key_has_its_effect_on_its_package_alone() {
    let text = debian(EVERYTHING);
    let expected = PackageSettings {
        terms: BuildTerms {
            has_network: false,
            jobs_max: Some(3),
            wall_seconds_max: Some(30),
            cpu_seconds_min: Some(120),
            hung_seconds_min: Some(180),
            silent_seconds_min: Some(240),
            memory_bytes_min: Some(512 << 20),
            written_bytes_min: Some(1 << 30),
            open_files_max: Some(128),
            processes_max: Some(256),
            machine: None,
        },
        priority: -7,
        retries: [(FailureKind::Memory, 2), (FailureKind::Network, 0)].into(),
        expected_failure: Some(ExpectedFailure { because: Some("gcc 14".to_owned()) }),
        note: Some("ask <upstream> & wait".to_owned()),
        has_network: true,
        is_machine_set: false,
    };
    assert_eq!(settings(&text, "zlib"), expected);
    assert_eq!(settings(&text, "zlib2"), PackageSettings::default());
    let expected = Options {
        checks: Some(true),
        autopkgtest: Some(true),
        profiles: words(&["nodoc", "pkg.zlib.small"]),
        words: words(&["nostrip", "hardening=+all"]),
        environment: variables(&[("DEB_CFLAGS_APPEND", "-O3"), ("GREETING", "good morning")]),
        network: Some(true),
        cross: None,
        mk_conf: None,
        keep: None,
    };
    assert_eq!(options(&text, "zlib"), expected);
    assert_eq!(options(&text, "zlib2"), Options::default());
}

#[test]
fn tables_apply_in_the_order_of_the_file_and_not_of_their_names() {
    // In the order of names, `*` would come first.
    let text = debian(
        "[package.zlib]\nnote = \"one\"\njobs = 1\nenvironment = { A = \"1\", B = \"1\" }\n\
         retries = { memory = 1, disk = 1 }\nexpected = \"failure\"\n\
         [build]\n[package.\"*\"]\nnote = \"all\"\nenvironment.B = \"2\"\nretries = { memory = 2 }\n\
         [package.\"z*\"]\nexpected = \"success\"\nnote = \"\"\n",
    )
    .replace("[build]\n# slots", "# slots");
    let all = settings(&text, "other");
    assert_eq!((all.note.as_deref(), all.terms.jobs_max), (Some("all"), None));
    let zlib = settings(&text, "zlib");
    assert_eq!((zlib.note, zlib.terms.jobs_max, zlib.expected_failure), (None, Some(1), None));
    assert_eq!(zlib.retries, [(FailureKind::Memory, 2), (FailureKind::Disk, 1)].into());
    assert_eq!(options(&text, "zlib").environment, variables(&[("A", "1"), ("B", "2")]));
    // A plain name after a pattern.
    let text =
        debian("[package.\"python3-*\"]\njobs = 2\npriority = 5\n[package.python3-yaml]\npriority = 9\n");
    let yaml = settings(&text, "python3-yaml");
    assert_eq!((yaml.terms.jobs_max, yaml.priority), (Some(2), 9));
    assert_eq!(settings(&text, "python3-six").priority, 5);
}

#[test]
fn the_former_limits_of_packages_still_apply_and_a_table_overrides_them() {
    let former = "[limits.packages.zlib]\ndisk = \"2G\"\nopen-files = 99\n\
                  [limits.packages.\"www/nginx\"]\nmemory = \"3G\"\n";
    let terms = |text: &str, package: &str| settings(text, package).terms;
    let text = debian(former);
    assert_eq!(terms(&text, "zlib").written_bytes_min, Some(2 << 30));
    assert_eq!(terms(&text, "zlib").open_files_max, Some(99));
    assert_eq!(terms(&text, "www/nginx").memory_bytes_min, Some(3 << 30));
    let both = debian(&format!("[package.\"z*\"]\ndisk = \"5G\"\n{former}"));
    assert_eq!(terms(&both, "zlib").written_bytes_min, Some(5 << 30));
    assert_eq!(terms(&both, "zlib").open_files_max, Some(99));
    refused(&debian("[limits.packages.zlib]\nopen-files = 3\n"), &["limits: open-files of zlib is 3"]);
    // Only the tables are reported if they match nothing.
    let config = parse(&both).unwrap();
    let notes = config.tables.unused(["other"].into_iter());
    assert_eq!(notes, ["[package.\"z*\"] in kilnyard.toml matches no package of the set"]);
    assert!(config.tables.unused(["other", "zip"].into_iter()).is_empty());
}

/// The line of a text that begins with this, from 1.
fn line_of(text: &str, beginning: &str) -> String {
    format!("line {}", text.lines().position(|line| line.starts_with(beginning)).unwrap() + 1)
}

#[test]
fn unknown_keys_and_wrong_types_are_rejected_with_their_line() {
    for (line, word) in [
        ("cheks = true", "cheks"),
        ("checks = \"yes\"", "boolean"),
        ("profiles = \"nodoc\"", "sequence"),
        ("environment = [\"A=1\"]", "map"),
        ("environment = { A = 1 }", "string"),
        ("network = 1", "boolean"),
        ("wall-minutes-max = \"5\"", "f64"),
        ("memory = 5", "string"),
        ("memory = \"5X\"", "not a size"),
        ("open-files = -1", "u32"),
        ("jobs = 1.5", "u32"),
        ("priority = \"high\"", "i32"),
        ("retries = { memry = 1 }", "memry"),
        ("retries = { memory = -1 }", "u32"),
        ("expected = \"fail\"", "failure"),
        ("note = 5", "string"),
        ("mk-conf = 5", "string"),
    ] {
        let text = debian(&format!("[package.zlib]\njobs = 1\n{line}\n"));
        let text = if line.starts_with("jobs") { text.replace("jobs = 1\njobs", "jobs") } else { text };
        refused(&text, &[word, &line_of(&text, line)]);
    }
    let text = debian("[package]\nzlib = 5\n");
    refused(&text, &[&line_of(&text, "zlib = 5")]);
    refused(&debian("package = 5\n"), &["package"]);
    refused(&debian("[package.zlib]\n[package.zlib]\n"), &["duplicate"]);
}

#[test]
fn values_out_of_bounds_are_rejected_with_the_line_of_their_table() {
    for (line, word) in [
        ("wall-minutes-max = 0", "wall-minutes-max is 0"),
        ("cpu-minutes-min = nan", "cpu-minutes-min is NaN"),
        ("hung-minutes-min = 1e9", "hung-minutes-min"),
        ("silent-minutes-min = -1", "silent-minutes-min is -1"),
        ("open-files = 3", "open-files is 3"),
        ("processes-max = 3", "processes-max is 3"),
        ("jobs = 0", "jobs is 0"),
        ("jobs = 100000", "jobs is 100000"),
        ("priority = 101", "priority is 101"),
        ("priority = -101", "priority is -101"),
        ("retries = { memory = 11 }", "memory is 11"),
        ("retries = { cancelled = 1 }", "cannot be retried"),
        ("because = \"x\"", "because needs expected"),
        ("mk-conf = \"\"\nmk-conf-file = \"x\"", "exclude each other"),
        ("mk-conf = \"X=1\"", "mk-conf is for packages of a tree"),
        ("mk-conf-file = \"x.mk\"", "mk-conf is for packages of a tree"),
        ("options = [\"parallel=9\"]", "options cannot contain parallel; use jobs"),
        ("options = [\"nocheck\"]", "use checks = false"),
        ("checks = true\nprofiles = [\"nocheck\"]", "exclude each other"),
        ("profiles = [\"Nodoc\"]", "not a build profile"),
        ("environment = { DEB_BUILD_OPTIONS = \"nocheck\" }", "use options, checks and jobs"),
        ("environment = { DEB_BUILD_PROFILES = \"nocheck\" }", "use profiles"),
        ("environment = { DPKG_ROOT = \"/\" }", "set by Kilnyard"),
    ] {
        let text = debian(&format!("[package.acl]\n[package.\"z*\"]\n{line}\n"));
        refused(&text, &[word, "[package.\"z*\"]", &line_of(&text, "[package.\"z*\"]")]);
    }
    for (line, word) in [
        ("profiles = [\"nodoc\"]", "profiles is for source packages"),
        ("options = [\"nostrip\"]", "options is for source packages"),
        ("environment = { MAKECONF = \"/etc/mk.conf\" }", "MAKECONF is set by Kilnyard"),
        ("mk-conf = \"X=\\u0007\"", "control characters"),
    ] {
        refused(&pkgsrc(&format!("[package.\"lang/*\"]\n{line}\n")), &[word, "[package.\"lang/*\"]"]);
    }
    let of_one = pkgsrc("[package.\"lang/one:py1-one\"]\nmk-conf = \"X=1\"\n");
    refused(&of_one, &["write [package.\"lang/one\"]"]);
    // Settings that make does not see can be for a single package.
    parse(&pkgsrc("[package.\"lang/one:py1-one\"]\nnetwork = true\njobs = 1\n")).unwrap();
    for name in ["", "a b", "a**", "lib[", "${HOME}", "a\\nb"] {
        refused(&debian(&format!("[package.\"{name}\"]\njobs = 1\n")), &["the name is"]);
    }
    let many: String = (0..1001).map(|number| format!("[package.p{number}]\n")).collect();
    refused(&debian(&many), &["the maximum is 1000"]);
}

#[test]
fn variables_that_belong_to_kilnyard_or_subvert_its_commands_are_rejected() {
    for name in [
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "TERM",
        "TZ",
        "LC_ALL",
        "MAKEFLAGS",
        "MFLAGS",
        "GNUMAKEFLAGS",
        "MAKELEVEL",
        "MAKEFILES",
        "CARGO_MAKEFLAGS",
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "FAKEROOTKEY",
        "FAKEROOTUID",
        "KILNYARD_YARD",
        "BASH_ENV",
        "ENV",
        "SHELLOPTS",
        "BASHOPTS",
        "IFS",
        "PS4",
        "CDPATH",
        "GLIBC_TUNABLES",
        "GCONV_PATH",
        "http_proxy",
        "HTTPS_PROXY",
        "no_proxy",
        "BASH_FUNC_cd",
    ] {
        let text = debian(&format!("[package.zlib]\nenvironment.{name} = \"x\"\n"));
        refused(&text, &[name, &line_of(&text, "environment.")]);
    }
    for name in ["", "1A", "A-B", "A B", "A=B", "\\u00c4", "A\\u001b[2J", "BASH_FUNC_cd%%", &"A".repeat(129)]
    {
        let text = debian(&format!("[package.zlib]\nenvironment = {{ \"{name}\" = \"x\" }}\n"));
        refused(&text, &["not the name of an environment variable"]);
    }
    for value in ["a\\nb", "a\\u0000", "\\u001b]0;x\\u0007", "\\u202egnp", &"x".repeat(20_000)] {
        let text = debian(&format!("[package.zlib]\nenvironment = {{ A = \"{value}\" }}\n"));
        refused(&text, &["the value of a variable"]);
    }
    // Names that only look like them.
    let fine = "environment = { LDFLAGS = \"-s\", PATHS = \"\", _A1 = \"é = $x\", LC_CTYPE = \"C\" }";
    assert_eq!(options(&debian(&format!("[package.zlib]\n{fine}\n")), "zlib").environment.len(), 4);
}

#[test]
fn notes_and_words_cannot_control_a_terminal_or_add_lines() {
    let too_long = "x".repeat(501);
    for text in ["a\\nb", "a\\u001b[2Jb", "a\\u0000", "\\u009b31m", "\\u202egnp.exe", "\\t", &too_long] {
        for key in ["note", "expected = \"failure\"\nbecause"] {
            let text = debian(&format!("[package.zlib]\n{key} = \"{text}\"\n"));
            refused(&text, &["a note must"]);
        }
    }
    for word in ["", "a b", "a\\nb", "a;b", "$(x)", "a'b", "\\u001b[2J"] {
        for key in ["profiles", "options"] {
            refused(&debian(&format!("[package.zlib]\n{key} = [\"{word}\"]\n")), &["not one word"]);
        }
    }
    // A note may be in any language, and may contain characters that HTML escapes.
    let note = "größer als <b>zuvor</b> & 中文";
    assert_eq!(
        settings(&debian(&format!("[package.zlib]\nnote = \"{note}\"\n")), "zlib").note.as_deref(),
        Some(note)
    );
}

#[test]
fn settings_of_make_may_be_in_a_file_of_the_yard() {
    let yard = tempfile::tempdir().unwrap();
    let text = pkgsrc(
        "[package.\"mail/*\"]\nmk-conf = \"A=\\t1\"\nchecks = true\n\
         [package.\"mail/mutt\"]\nmk-conf-file = \"fragments/mutt.mk\"\n[package.\"mail/pine\"]\nmk-conf = \"\"\n",
    );
    let tables = parse(&text).unwrap().tables;
    let error = tables.option_rules(yard.path()).unwrap_err().one_line();
    assert!(
        error.contains("mk-conf-file of [package.\"mail/mutt\"]") && error.contains("mutt.mk"),
        "{error}"
    );
    std::fs::create_dir(yard.path().join("fragments")).unwrap();
    let file = yard.path().join("fragments/mutt.mk");
    std::fs::write(&file, "B=2\n").unwrap();
    let rules = tables.option_rules(yard.path()).unwrap();
    let of = |package: &str| rules.of(package);
    assert_eq!((of("mail/elm").mk_conf.as_deref(), of("mail/elm").checks), (Some("A=\t1"), Some(true)));
    assert_eq!((of("mail/mutt").mk_conf.as_deref(), of("mail/mutt").checks), (Some("B=2\n"), Some(true)));
    assert_eq!(of("mail/pine").mk_conf.as_deref(), Some(""), "nothing, in place of what the pattern has");
    assert_eq!(of("www/nginx"), Options::default());
    for bad in [vec![0xff], vec![b'#'; 70_000]] {
        std::fs::write(&file, bad).unwrap();
        let error = tables.option_rules(yard.path()).unwrap_err();
        assert!(error.message.contains("mk-conf-file of [package.\"mail/mutt\"]"), "{error}");
    }
}
