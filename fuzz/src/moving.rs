//! The configuration files of other builders.

use crate::text;
use kilnyard_ecosystem::pkgsrc::bob_config::BobConfig;
use kilnyard_ecosystem::pkgsrc::moving::{ConfigKey, Moved, Wanted};
use kilnyard_ecosystem::pkgsrc::pbulk_conf::PbulkConf;
use std::collections::HashSet;

/// A `pbulk.conf`: each setting is carried over or reported as not carried, once. A setting on its own line before
/// everything else takes effect if its name does not occur again, and is reported with its line.
pub fn pbulk_conf(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(conf) = PbulkConf::parse(text) else { return };
    let moved = conf.moved();
    check(&moved, text);
    for carried in moved.carried.iter().filter(|carried| carried.key.is_none_or(|key| !key.is_number())) {
        let value = conf.get(&carried.name).expect("only a setting in the file is carried");
        if let Some((_, kept)) = moved.values.iter().find(|(key, _)| Some(*key) == carried.key) {
            assert_eq!(kept, value, "{}", carried.name);
        }
    }
    if !text.contains("frist") {
        let longer = PbulkConf::parse(&format!("frist='a b'\n{text}")).unwrap();
        assert_eq!(longer.get("frist"), Some("a b"));
        check_first(&moved, &longer.moved());
    }
}

/// A `config.lua`, with the same properties.
pub fn bob_config(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(config) = BobConfig::parse(text) else { return };
    let moved = config.moved();
    check(&moved, text);
    if !text.contains("frist") && !text.starts_with('#') {
        let longer = BobConfig::parse(&format!("frist = 'a' .. \" b\"\n{text}")).unwrap();
        assert_eq!(longer.get("frist").as_deref(), Some("a b"));
        check_first(&moved, &longer.moved());
    }
}

fn check(moved: &Moved, text: &str) {
    let keys: HashSet<ConfigKey> = moved.values.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys.len(), moved.values.len(), "a key has two values");
    for (key, value) in &moved.values {
        assert!(!value.is_empty(), "{key:?}");
        assert!(
            !key.is_number() || value.parse().is_ok_and(|number| (1..=4096).contains(&number)),
            "{value}"
        );
    }
    let names: HashSet<&str> = moved.carried.iter().map(|carried| &carried.name[..]).collect();
    assert_eq!(names.len(), moved.carried.len(), "a setting is carried twice");
    let is_which = |key: ConfigKey| matches!(key, ConfigKey::Packages | ConfigKey::PackagesFile);
    let (which, others): (Vec<ConfigKey>, Vec<ConfigKey>) =
        moved.carried.iter().filter_map(|carried| carried.key).partition(|key| is_which(*key));
    assert_eq!(
        others.iter().copied().collect::<HashSet<_>>(),
        keys,
        "the carried settings differ from the kept values"
    );
    match (&moved.wanted, &which[..]) {
        (None | Some(Wanted::All), []) | (Some(Wanted::All | Wanted::Some(_)), [ConfigKey::Packages]) => {}
        (Some(Wanted::File(_)), [ConfigKey::PackagesFile]) => {}
        other => panic!("{other:?}"),
    }
    let lines = text.lines().count().max(1) + 1;
    let carried = moved.carried.iter().map(|carried| carried.line);
    let refused = moved.not_carried.iter().map(|refused| refused.line);
    assert!(carried.clone().is_sorted() && refused.clone().is_sorted());
    assert!(carried.chain(refused).all(|line| (1..=lines).contains(&line)));
    assert!(moved.not_carried.iter().all(|refused| !refused.reason.is_empty()));
}

/// A first line that sets an unknown variable is reported first, and shifts the other lines.
fn check_first(moved: &Moved, longer: &Moved) {
    assert_eq!((&longer.not_carried[0].name[..], longer.not_carried[0].line), ("frist", 1));
    assert_eq!((&longer.wanted, &longer.values), (&moved.wanted, &moved.values));
    assert_eq!(longer.not_carried.len(), moved.not_carried.len() + 1);
    let lines = |moved: &Moved| moved.carried.iter().map(|carried| carried.line).collect::<Vec<_>>();
    let expected: Vec<usize> = lines(moved).iter().map(|line| line + 1).collect();
    assert_eq!(lines(longer), expected);
}
