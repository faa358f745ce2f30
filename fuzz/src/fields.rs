//! Stanzas, relations and source packages.

use crate::text;
use kilnyard_ecosystem::debian::architecture;
use kilnyard_ecosystem::debian::autopkgtest::{name_of, parse, stanza};
use kilnyard_ecosystem::debian::deb822::{Stanza, stanzas, unfold};
use kilnyard_ecosystem::debian::relation::{self, Context};
use kilnyard_ecosystem::debian::source::{Parts, Source};

/// A slower line-by-line parser of the same format agrees, and no line is lost between stanzas.
pub fn deb822(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let lines = |text: &str| -> Vec<String> {
        let lines = text.split('\n').map(|line| line.trim_matches('\r').to_owned());
        lines.filter(|line| !line.is_empty()).collect()
    };
    let mut found = Vec::new();
    for stanza in stanzas(text) {
        assert!(!stanza.text().is_empty() && !stanza.text().contains("\n\n"));
        found.extend(lines(stanza.text()));
        let fields: Vec<(&str, &str)> = stanza.fields().collect();
        assert_eq!(fields, slow_fields(stanza.text()));
        for (name, value) in &fields {
            assert!(!name.contains('\n'), "{name:?}");
            let first = fields.iter().find(|(other, _)| other.eq_ignore_ascii_case(name));
            assert_eq!(stanza.get(&name.to_ascii_uppercase()), first.map(|(_, value)| *value));
            let unfolded = unfold(value);
            assert!(!unfolded.contains('\n') && !unfolded.contains("  "));
            assert_eq!(unfold(&unfolded), unfolded);
        }
    }
    assert_eq!(found, lines(text));
}

fn slow_fields(text: &str) -> Vec<(&str, &str)> {
    let mut starts = Vec::new();
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        if offset == 0 || !line.starts_with([' ', '\t']) {
            starts.push(offset);
        }
        offset += line.len();
    }
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let fields = starts.iter().zip(ends).map(|(start, end)| &text[*start..end]);
    let fields = fields.filter(|field| !field.starts_with('#')).filter_map(|field| field.split_once(':'));
    let fields = fields.filter(|(name, _)| !name.contains('\n'));
    fields.map(|(name, value)| (name.trim(), value.trim_matches([' ', '\t', '\n', '\r']))).collect()
}

/// A parsed relation prints to text that parses to the same relation; an error quotes the text that does not parse.
pub fn relation(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let context = Context { profiles: vec!["nocheck".to_owned()], ..Context::new("amd64") };
    let mut count = 0;
    for clause in relation::clauses(text, &context) {
        count += 1;
        match clause {
            Err(error) => assert!(text.contains(&error.relation), "{error}"),
            Ok(alternatives) => {
                assert!(!alternatives.is_empty());
                for atom in alternatives {
                    assert!(relation::is_name(atom.name));
                    let printed = atom.to_string();
                    assert!(!printed.contains([',', '|', '\n']), "{printed:?}");
                    assert_eq!(relation::atom(&printed, &context), Ok(Some(atom)), "{printed:?}");
                }
            }
        }
    }
    assert!(count <= text.split(',').count());
    for name in text.split_whitespace() {
        assert!(architecture::matches(name, name), "{name}");
        assert_eq!(
            architecture::source_builds_on(name, "amd64"),
            name == "all" || architecture::source_has_dependent_outputs(name, "amd64")
        );
    }
}

/// Files of a source stay in its folder, and its outputs have valid package names.
pub fn source(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let context = Context::new("amd64");
    for stanza in stanzas(text) {
        let source = Source::new(stanza);
        let all = source.outputs(&context, Parts::All);
        assert!(all.iter().all(|name| relation::is_name(name)), "{all:?}");
        let dependent = source.outputs(&context, Parts::Dependent);
        assert!(dependent.iter().all(|name| all.contains(name)));
        assert!(source.builds_on("amd64", Parts::All) || !source.builds_on("amd64", Parts::Dependent));
        assert!(source.request(Parts::All).needs.iter().any(|need| need == "build-essential:native"));
        let Ok(files) = source.files() else { continue };
        assert_eq!(files.iter().filter(|file| file.name.ends_with(".dsc")).count(), 1);
        for (index, file) in files.iter().enumerate() {
            let is_plain = |c: char| c.is_ascii_graphic() && c != '/';
            assert!(file.name.chars().all(is_plain) && !file.name.starts_with(['.', '-']), "{:?}", file.name);
            assert!(file.sha256.len() == 64 && file.sha256.bytes().all(|b| b"0123456789abcdef".contains(&b)));
            assert!(files[..index].iter().all(|other| other.name != file.name), "{:?} twice", file.name);
        }
    }
}

/// The package of a declared test is one stanza with its own name, whatever the list contains.
pub fn declared_tests(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(tests) = parse(text) else { return };
    let source = Source::new(Stanza::new("Package: src\nVersion: 1\nBuild-Depends: make\n"));
    for test in tests {
        assert!(!test.name.contains(['/', '~', '\n']) && !test.name.starts_with(['.', '-']));
        let Ok(made) = stanza(&source, &test, &Context::new("amd64"), true) else { continue };
        assert_eq!(stanzas(&made).count(), 1, "{made:?}");
        assert!(!made.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\r' | '\t')), "{made:?}");
        let made = Source::new(Stanza::new(&made));
        assert_eq!((made.name(), made.version()), (&*name_of("src", &test.name), "1"));
        let mut names: Vec<&str> = made.stanza().fields().map(|(name, _)| name).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count, "a field is there twice");
    }
}
