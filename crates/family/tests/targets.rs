//! `[[target]]` in configurations of yards, parsed with the tables of the real families.

use kilnyard_ecosystem::debian::source::Parts;
use kilnyard_family::FAMILIES;
use kilnyard_family::debian::Debian;
use kilnyard_family::debian::config::root::own_architecture;
use kilnyard_yard::config::Config;
use kilnyard_yard::config::targets::TargetConfig;
use kilnyard_yard::error::Result;
use std::path::Path;

/// The keys that all targets share.
const COMMON: &str = "packages = [\"acl\", \"zlib\"]\n\
    [debian]\nrelease = \"bookworm\"\narchitecture = \"amd64\"\nmirror = \"http://deb.example/debian\"\n\
    checks = true\n[build]\nslots = 2\njobs = 3\n";

/// No machine runs programs of this architecture.
const FOREIGN: &str = "hurd-i386";

fn parse(text: &str) -> Result<Config> {
    Config::parse(text, Path::new("kilnyard.toml"), FAMILIES)
}

/// The targets of the common keys with these tables.
#[track_caller]
fn targets(tables: &str) -> Vec<TargetConfig> {
    parse(&format!("{COMMON}{tables}")).unwrap_or_else(|error| panic!("{tables}: {error}")).targets
}

/// The error of the common keys with these tables.
#[track_caller]
fn refused(tables: &str) -> String {
    match parse(&format!("{COMMON}{tables}")) {
        Ok(config) => panic!("{tables} is accepted: {:?}", names(&config.targets)),
        Err(error) => error.to_string(),
    }
}

fn names(targets: &[TargetConfig]) -> Vec<&str> {
    targets.iter().map(|target| target.name.as_str()).collect()
}

fn debian(target: &TargetConfig) -> &Debian {
    target.config.family.of::<Debian>().unwrap()
}

fn packages(target: &TargetConfig) -> Vec<String> {
    target.config.package_names(Path::new("/")).unwrap().unwrap_or_default()
}

#[test]
fn a_yard_without_targets_has_none() {
    assert!(targets("").is_empty());
    assert_eq!(names(&targets("[[target]]\n")), ["bookworm-amd64"]);
}

#[test]
fn keys_of_a_target_replace_the_common_ones() {
    let both = targets(
        "[[target]]\n[[target]]\nrelease = \"trixie\"\nmirror = [\"http://a.example\", \"http://b.example\"]\n\
         checks = false\npackages = [\"hello\"]\n[target.build]\nslots = 7\nagainst = \"archive\"\n",
    );
    assert_eq!(names(&both), ["bookworm-amd64", "trixie-amd64"]);
    let [first, second] = &both[..] else { unreachable!() };
    assert_eq!((debian(first).release.as_str(), debian(second).release.as_str()), ("bookworm", "trixie"));
    assert_eq!((debian(first).checks, debian(second).checks), (true, false));
    assert_eq!(debian(second).mirror.all(), ["http://a.example", "http://b.example"]);
    assert_eq!(packages(first), ["acl", "zlib"]);
    assert_eq!(packages(second), ["hello"]);
    let build = |target: &TargetConfig| (target.config.build.slots, target.config.build.jobs);
    // Only the given keys of [build] are replaced.
    assert_eq!((build(first), build(second)), ((Some(2), Some(3)), (Some(7), Some(3))));
    assert!(first.config.publishes() && !second.config.publishes());
    // A target's configuration has no targets.
    assert!(both.iter().all(|target| target.config.targets.is_empty()));
}

#[test]
fn inline_tables_mean_the_same() {
    let table = targets("[[target]]\nrelease = \"trixie\"\nbuild = { slots = 9 }\n");
    assert_eq!(table[0].config.build.slots, Some(9));
    let text = format!("target = [{{ release = \"trixie\" }}, {{ architecture = \"i386\" }}]\n{COMMON}");
    let all = parse(&text).unwrap().targets;
    assert_eq!(names(&all), ["trixie-amd64", "bookworm-i386"]);
    let text = format!("{}\nbuild = {{ jobs = 5 }}\n", "packages = []").replace("\n\n", "\n");
    let text = format!(
        "{text}debian = {{ release = \"sid\", architecture = \"amd64\", mirror = \"http://a.example\" }}\n\
         [[target]]\nrelease = \"trixie\"\n[target.build]\nslots = 4\n"
    );
    let [one] = &parse(&text).unwrap().targets[..] else { panic!("{text}") };
    assert_eq!((one.config.build.slots, one.config.build.jobs), (Some(4), Some(5)));
    assert_eq!(one.name, "trixie-amd64");
}

#[test]
fn a_targets_set_replaces_the_common_one_whichever_way_it_is_given() {
    let file = "[[target]]\npackages-file = \"names.txt\"\n";
    let [one] = &targets(file)[..] else { panic!("{file}") };
    assert_eq!(one.config.packages_file.as_deref(), Some(Path::new("names.txt")));
    assert!(matches!(&one.config.packages, kilnyard_yard::config::Packages::Some(all) if all.is_empty()));
    // Both may be given, in either order.
    for keys in
        ["packages = [\"a1\"]\npackages-file = \"f\"\n", "packages-file = \"f\"\npackages = [\"a1\"]\n"]
    {
        let [one] = &targets(&format!("[[target]]\n{keys}"))[..] else { panic!("{keys}") };
        assert_eq!(one.config.packages_file.as_deref(), Some(Path::new("f")), "{keys}");
        let all = one.config.packages.clone();
        assert_eq!(all, kilnyard_yard::config::Packages::Some(vec!["a1".to_owned()]), "{keys}");
    }
    let all = targets("[[target]]\npackages = \"all\"\n");
    assert_eq!(all[0].config.package_names(Path::new("/")).unwrap(), None);
}

#[test]
fn archives_of_a_target_replace_the_common_ones() {
    let archive = |head: &str, name: &str| {
        format!(
            "[[{head}]]\nname = \"{name}\"\nmirror = \"http://{name}.example\"\nsuite = \"s\"\nkey = \"k\"\n"
        )
    };
    let text = [
        archive("archive", "first"),
        archive("archive", "second"),
        "[[target]]\n[[target]]\nrelease = \"trixie\"\n".to_owned(),
        archive("target.archive", "third"),
        "[[target]]\nrelease = \"sid\"\narchive = []\n".to_owned(),
    ];
    let all = targets(&text.concat());
    let names = |target: &TargetConfig| {
        let archives = debian(target).archives.iter();
        archives.map(|archive| archive.name().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(names(&all[0]), ["first", "second"]);
    assert_eq!(names(&all[1]), ["third"]);
    assert!(names(&all[2]).is_empty());
}

#[test]
fn names_are_given_or_made_of_release_and_architecture() {
    let all = targets(
        "[[target]]\nname = \"stable\"\n[[target]]\nrelease = \"trixie\"\narchitecture = \"i386\"\n\
         [[target]]\nname = \"3.14+x_y~z\"\nrelease = \"sid\"\n",
    );
    assert_eq!(names(&all), ["stable", "trixie-i386", "3.14+x_y~z"]);
    let long = "n".repeat(100);
    assert_eq!(names(&targets(&format!("[[target]]\nname = \"{long}\"\n"))), [long]);
}

#[test]
fn names_that_are_not_folder_names_are_refused() {
    let long = "n".repeat(101);
    for name in [
        "",
        ".",
        "..",
        ".hidden",
        "a/b",
        "/etc",
        "../up",
        "-x",
        "--yard",
        "a b",
        "a\\u0000b",
        "a\\u001b[2Jb",
        "a\\nb",
        "a\\u202eb",
        "é",
        "a\\\\b",
        "*",
        "a:b",
        &long,
    ] {
        let error = refused(&format!("[[target]]\nname = \"{name}\"\n"));
        assert!(error.contains("is not a valid target name") && error.contains("kilnyard.toml"), "{error}");
        assert!(!error.contains(['\0', '\u{1b}', '\u{202e}']), "{error:?}");
    }
    for name in ["5", "true", "[\"a\"]", "{ a = 1 }"] {
        let error = refused(&format!("[[target]]\n[[target]]\nname = {name}\n"));
        assert!(error.contains("target 2: name must be a string"), "{error}");
    }
    // Nor does a release or an architecture lead to another folder.
    for key in ["release", "architecture"] {
        for value in ["../x", "a/b", "a/../b", ".."] {
            let Ok(config) = parse(&format!("{COMMON}[[target]]\n{key} = \"{value}\"\n")) else { continue };
            panic!("{key} = {value}: {:?}", names(&config.targets));
        }
    }
}

#[test]
fn two_targets_differ_in_name_and_in_what_they_are() {
    let error = refused("[[target]]\nname = \"x\"\n[[target]]\nname = \"x\"\nrelease = \"trixie\"\n");
    assert!(error.contains("two targets are named x"), "{error}");
    let error = refused("[[target]]\n[[target]]\nname = \"other\"\narchitecture = \"amd64\"\n");
    assert!(
        error.contains("the targets bookworm-amd64 and other are both debian/linux/bookworm/amd64"),
        "{error}"
    );
    // A name may not be another one's default name either.
    let error = refused("[[target]]\nname = \"trixie-amd64\"\n[[target]]\nrelease = \"trixie\"\n");
    assert!(error.contains("two targets are named trixie-amd64"), "{error}");
}

#[test]
fn a_table_that_is_not_an_array_is_reported() {
    for text in ["[target]\nrelease = \"trixie\"\n", "[target.trixie]\n"] {
        let error = refused(text);
        assert!(error.contains("write [[target]]"), "{error}");
    }
    for value in ["5", "\"trixie\"", "[1, 2]", "[\"trixie\"]", "{ release = \"trixie\" }"] {
        let error = parse(&format!("target = {value}\n{COMMON}")).unwrap_err().to_string();
        assert!(error.contains("write [[target]]"), "{value}: {error}");
    }
}

#[test]
fn mistakes_name_the_target_and_the_line_of_the_file() {
    let line_of = |tables: &str, word: &str| {
        let text = format!("{COMMON}{tables}");
        text.lines().position(|line| line.contains(word)).unwrap() + 1
    };
    let first = "[[target]]\n";
    for (key, which, words) in [
        ("colour = 1", "target 2", "unknown field `colour`"),
        ("name = \"new\"\ncolour = 1", "target new", "unknown field `colour`"),
        ("[target.build]\nslotz = 1", "target 2", "slotz"),
        ("release = 5", "target 2", "release"),
        ("parts = \"some\"", "target 2", "parts"),
        ("[[target.archive]]\ncolour = 1", "target 2", "colour"),
    ] {
        let tables = format!("{first}# a comment\n[[target]]\n{key}\n");
        let error = refused(&tables);
        assert!(error.contains(which) && error.contains(words), "{error}");
        // The error names no line, since the user has no such file.
        let word = key.lines().last().unwrap();
        let line = line_of(&tables, word);
        for (place, _) in error.match_indices("line ") {
            let named: String = error[place + 5..].chars().take_while(char::is_ascii_digit).collect();
            assert_eq!(named, line.to_string(), "{error}");
        }
    }
    for value in
        ["release = \"../x\"", "mirror = \"ftp://x\"", "build.slots = 0", "build = 5", "packages = 5"]
    {
        let error = refused(&format!("{first}[[target]]\nname = \"new\"\n{value}\n"));
        assert!(error.contains("target new"), "{value}: {error}");
    }
}

#[test]
fn tables_that_all_targets_share_are_not_taken_for_keys_of_the_family() {
    for table in ["limits", "retry", "repository", "package.acl", "root", "debian", "pkgsrc"] {
        let error = refused(&format!("[[target]]\n[target.{table}]\n"));
        let name = table.split('.').next().unwrap();
        assert!(
            error.contains(&format!("a target cannot set {name}")) && error.contains("target 1"),
            "{error}"
        );
    }
    let error = refused("[[target]]\n[[target.target]]\n");
    assert!(error.contains("a target cannot set target"), "{error}");
}

#[test]
fn the_number_of_targets_is_limited() {
    let many = |count: usize| -> String {
        (0..count).map(|number| format!("[[target]]\nrelease = \"r{number}\"\n")).collect()
    };
    assert_eq!(targets(&many(256)).len(), 256);
    let error = refused(&many(257));
    assert!(error.contains("there are 257 targets; the maximum is 256"), "{error}");
}

#[test]
fn a_family_with_one_repository_for_all_has_a_single_target() {
    let text = "packages = [\"mail/mutt\"]\n[pkgsrc]\ntree = \"tree\"\n[pkgsrc.root]\nrelease = \"bookworm\"\n\
        architecture = \"amd64\"\nmirror = \"http://deb.example/debian\"\n";
    assert!(parse(text).is_ok());
    let error = parse(&format!("{text}[[target]]\nprefix = \"/opt/pkg\"\n")).unwrap_err().to_string();
    assert!(error.contains("a yard of [pkgsrc] has a single target"), "{error}");
}

#[test]
fn targets_of_one_release_share_its_suite_and_others_do_not() {
    let own = own_architecture();
    let all = targets(&format!(
        "[[target]]\narchitecture = \"{own}\"\nparts = \"all\"\n\
         [[target]]\narchitecture = \"{FOREIGN}\"\nparts = \"all\"\n\
         [[target]]\nrelease = \"trixie\"\nparts = \"all\"\n",
    ));
    let seen = |target: &TargetConfig| {
        let debian = debian(target);
        let parts = debian.settings().parts;
        (debian.other_architectures.join(" "), parts == Parts::All, debian.has_other_releases)
    };
    // Architecture-independent packages are made once in each release.
    assert_eq!(seen(&all[0]), (FOREIGN.to_owned(), true, true));
    assert_eq!(seen(&all[1]), (own, false, true));
    assert_eq!(seen(&all[2]), (String::new(), true, true));
}

#[test]
fn an_earlier_target_that_makes_no_independent_packages_leaves_them_to_a_later_one() {
    let own = own_architecture();
    let parts = |targets_of: [(&str, &str); 2]| {
        let tables = targets_of.map(|(architecture, parts)| {
            format!("[[target]]\narchitecture = \"{architecture}\"\nparts = \"{parts}\"\n")
        });
        let all = targets(&tables.concat());
        all.iter().map(|target| debian(target).settings().parts == Parts::All).collect::<Vec<_>>()
    };
    assert_eq!(parts([(&own, "dependent"), (FOREIGN, "all")]), [false, true]);
    assert_eq!(parts([(&own, "all"), (FOREIGN, "all")]), [true, false]);
    assert_eq!(parts([(FOREIGN, "all"), (&own, "all")]), [true, true]);
    // Cross builds make none.
    let tables = format!(
        "[package.\"*\"]\ncross = true\n[[target]]\narchitecture = \"{FOREIGN}\"\nparts = \"all\"\n\
         [[target]]\narchitecture = \"{own}\"\nparts = \"all\"\n"
    );
    let all = targets(&tables);
    assert_eq!(debian(&all[0]).build_architecture.as_ref(), Some(&own));
    assert_eq!(
        all.iter().map(|t| debian(t).settings().parts == Parts::All).collect::<Vec<_>>(),
        [false, true]
    );
}

#[test]
fn a_target_is_selected_by_its_name_release_or_architecture() {
    let all = targets("[[target]]\nname = \"trixie\"\n[[target]]\nrelease = \"trixie\"\n");
    let meant = |word: &str| {
        let all = all.iter().filter(|target| target.is_meant(word));
        all.map(|target| target.name.clone()).collect::<Vec<_>>()
    };
    assert_eq!(meant("trixie-amd64"), ["trixie-amd64"]);
    assert_eq!(meant("amd64"), ["trixie", "trixie-amd64"]);
    assert_eq!(meant("bookworm"), ["trixie"]);
    for word in ["", "trix", "TRIXIE", "*", "../trixie", "linux", "debian"] {
        assert!(meant(word).is_empty(), "{word}");
    }
}
