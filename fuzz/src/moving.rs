//! The configurations of other builders.

use crate::text;
use kilnyard_ecosystem::pkgsrc::bob_config::BobConfig;
use kilnyard_ecosystem::pkgsrc::moving::{Moved, Wanted};
use kilnyard_ecosystem::pkgsrc::pbulk_conf::PbulkConf;

/// A `pbulk.conf`: what is written can be read, and no setting is forged. What stands in a line of its own in front of
/// all else is set, if it is all that is said of its name.
pub fn pbulk_conf(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(conf) = PbulkConf::parse(text) else { return };
    check(&conf.moved(), &conf.configuration(), text);
    if !text.contains("frist") {
        let longer = PbulkConf::parse(&format!("frist='a b'\n{text}")).unwrap();
        assert_eq!(longer.get("frist"), Some("a b"));
    }
}

/// A `config.lua`: the same.
pub fn bob_config(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(config) = BobConfig::parse(text) else { return };
    check(&config.moved(), &config.configuration(), text);
    if !text.contains("frist") && !text.starts_with('#') {
        let longer = BobConfig::parse(&format!("frist = 'a' .. \" b\"\n{text}")).unwrap();
        assert_eq!(longer.get("frist").as_deref(), Some("a b"));
    }
}

fn check(moved: &Moved, configuration: &str, text: &str) {
    let table: toml::Table = configuration.parse().unwrap();
    for (key, value) in &moved.values {
        let (outer, name) = key.path().split_once('.').unwrap();
        let found = match &table[outer][name] {
            toml::Value::String(found) => found.clone(),
            other => other.to_string(),
        };
        assert_eq!(&found, value, "{key:?}");
    }
    let count: usize = ["pkgsrc", "build"].iter().map(|outer| table[*outer].as_table().unwrap().len()).sum();
    assert_eq!(count, moved.values.len(), "{configuration}");
    match &moved.wanted {
        None => assert_eq!(table["packages"].as_array().map(Vec::len), Some(0)),
        Some(Wanted::All) => assert_eq!(table["packages"].as_str(), Some("all")),
        Some(Wanted::File(file)) => assert_eq!(table["packages-file"].as_str(), Some(&file[..])),
        Some(Wanted::Some(locations)) => {
            let found: Vec<&str> =
                table["packages"].as_array().unwrap().iter().flat_map(|value| value.as_str()).collect();
            assert_eq!(&found, locations);
        }
    }
    let lines = text.lines().count().max(1) + 1;
    let told = moved.carried.iter().map(|carried| carried.line);
    assert!(
        told.chain(moved.not_carried.iter().map(|refused| refused.line))
            .all(|line| (1..=lines).contains(&line))
    );
}
