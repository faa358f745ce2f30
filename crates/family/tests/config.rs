//! Configurations of yards, parsed with the tables of the real families.

use kilnyard_family::FAMILIES;
use kilnyard_family::debian::{Debian, template as debian_template};
use kilnyard_process::LimitRules;
use kilnyard_yard::config::{Config, OutputTests, edit};
use kilnyard_yard::error::Result;
use std::path::Path;

fn parse(text: &str) -> Result<Config> {
    Config::parse(text, Path::new("kilnyard.toml"), FAMILIES)
}

#[test]
fn the_template_of_init_parses_and_its_comments_are_the_defaults() {
    let text = debian_template("bookworm", "http://deb.example/debian", &["zlib".into(), "acl".into()]);
    let config = parse(&text).unwrap();
    assert_eq!(config.package_names(Path::new("/")).unwrap(), Some(vec!["zlib".into(), "acl".into()]));
    let mut is_example = false;
    let uncommented: String = text
        .lines()
        .map(|line| match line.strip_prefix("# ") {
            // The keys of these tables have no defaults.
            Some(rest) if rest.starts_with("[[") => {
                is_example = true;
                String::new()
            }
            Some(_) if is_example => String::new(),
            None => {
                is_example = false;
                format!("{line}\n")
            }
            Some(rest)
                if rest.contains(" = ")
                    && !rest.starts_with("packages-file")
                    && !rest.starts_with("suites")
                    // The default is the machine's memory.
                    && !rest.starts_with("memory") =>
            {
                format!("{rest}\n")
            }
            _ => format!("{line}\n"),
        })
        .collect();
    let all = parse(&uncommented).unwrap();
    let settings = |config: &Config| config.family.of::<Debian>().unwrap().settings();
    assert_eq!(settings(&all), settings(&config));
    // A configured value sets the same limit, and also that of a first build.
    let unset = LimitRules { cpu_seconds_unknown_max: None, ..all.limits() };
    assert_eq!(all.limits().cpu_seconds_unknown_max, Some(all.limits().cpu_seconds_min));
    assert_eq!((unset, all.log_limits()), (config.limits(), config.log_limits()));
    assert_eq!((all.build.slots, all.build.test), (Some(2), OutputTests::WithBuild));
}

#[test]
fn outputs_are_tested_with_their_build_apart_or_not_at_all() {
    let template = debian_template("bookworm", "http://deb.example/debian", &["hello".to_owned()]);
    let with = |value: &str| parse(&template.replace("# test = true ", &format!("test = {value} #")));
    for (value, expected) in
        [("true", OutputTests::WithBuild), ("false", OutputTests::Never), ("\"apart\"", OutputTests::Apart)]
    {
        assert_eq!(with(value).unwrap().build.test, expected);
    }
    let error = with("\"later\"").unwrap_err();
    assert!(format!("{error}").contains("\"apart\""), "{error}");
}

#[test]
fn all_may_be_one_of_several_rules() {
    let all = debian_template("bookworm", "http://deb.example/debian", &["all".into()]);
    assert_eq!(parse(&all).unwrap().package_names(Path::new("/")).unwrap(), None);
    let with_file = all.replace("# packages-file", "packages-file");
    assert!(parse(&with_file).unwrap_err().to_string().contains("packages-file"));
    let listed = parse(&all.replace("\"all\"\n", "[\"acl\", \"all\"]\n")).unwrap();
    assert_eq!(listed.package_names(Path::new("/")).unwrap(), Some(vec!["acl".into(), "all".into()]));
    let wrong = parse(&all.replace("\"all\"\n", "[\"acl\", \"colour:red\"]\n")).unwrap();
    let error = wrong.package_names(Path::new("/")).unwrap_err().to_string();
    assert!(error.contains("neither the name of a source package nor a rule"), "{error}");
    let none = parse(&debian_template("bookworm", "http://deb.example/debian", &[])).unwrap();
    assert!(none.no_packages_note(Path::new("/")).unwrap().is_some());
}

#[test]
fn a_misspelled_key_is_rejected_with_its_line() {
    let text =
        debian_template("bookworm", "http://deb.example/debian", &[]).replace("# slots = 2 ", "slotz = 2 #");
    let error = parse(&text).unwrap_err().to_string();
    assert!(error.contains("slotz") && error.contains("slots"), "{error}");
    let line = text.lines().position(|line| line.starts_with("slotz")).unwrap() + 1;
    assert!(error.contains(&format!("line {line}")), "{error}");
}

#[test]
fn invalid_values_are_rejected() {
    let good = debian_template("bookworm", "http://deb.example/debian", &[]);
    for (from, to) in [
        ("\"bookworm\"", "\"../x\""),
        ("http://deb.example/debian", "ftp://x"),
        ("# version-suffix = \"+bk\"", "version-suffix = \"+b1\""),
        ("# slots = 2", "slots = 0"),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good);
        assert!(parse(&text).is_err(), "{to} is accepted");
    }
    assert_eq!(
        parse(&good.replace("packages = [\n]", "packages = \"all\""))
            .unwrap()
            .package_names(Path::new("/"))
            .unwrap(),
        None
    );
}

#[test]
fn keys_that_edit_adds_to_a_table_are_read() {
    let text = debian_template("bookworm", "http://deb.example/debian", &["zlib".into()]);
    let lines = [("backend", "overlay"), ("scratch", "memory")];
    let edited = edit::set(&text, "root", &lines, edit::OnConflict::Refuse).unwrap();
    assert!(parse(&edited.text).unwrap().roots.is_in_memory());
}

#[test]
fn a_yard_has_one_family_and_no_misspelled_table() {
    let text = debian_template("bookworm", "http://deb.example/debian", &[]);
    let refused = |text: &str| parse(text).unwrap_err().to_string();
    let tables: Vec<String> = FAMILIES.iter().map(|entry| format!("[{}]", entry.name())).collect();
    assert!(refused("packages = []").contains(&tables.join(" or ")));
    let both: String = tables.iter().map(|table| format!("{table}\n")).collect();
    assert!(refused(&both).contains(&tables.join(" and ")));
    let misspelled = refused(&text.replace("[build]", "[bild]"));
    let line = text.lines().position(|line| line == "[build]").unwrap() + 1;
    assert!(misspelled.contains(&format!("line {line}: unknown key `bild`")), "{misspelled}");
    let in_table = refused(&text.replace("release =", "relaese ="));
    let line = text.lines().position(|line| line.starts_with("release =")).unwrap() + 1;
    assert!(in_table.contains(&format!("line {line}")) && in_table.contains("relaese"), "{in_table}");
}
