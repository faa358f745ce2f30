//! The configuration files of other builders.

use crate::text;
use kilnyard_ecosystem::pkgsrc::bob_config::BobConfig;
use kilnyard_ecosystem::pkgsrc::import::{ConfigKey, Imports, Wanted};
use kilnyard_ecosystem::pkgsrc::pbulk_conf::PbulkConf;
use std::collections::HashSet;

/// A `pbulk.conf`: each setting is imported or reported as not imported, once. A setting on its own line before
/// everything else takes effect if its name does not occur again, and is reported with its line.
pub fn pbulk_conf(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(conf) = PbulkConf::parse(text) else { return };
    let imports = conf.imports();
    check(&imports, text);
    for imported in imports.imported.iter().filter(|imported| imported.key.is_none_or(|key| !key.is_number()))
    {
        let value = conf.get(&imported.name).expect("only a setting in the file is imported");
        if let Some((_, kept)) = imports.values.iter().find(|(key, _)| Some(*key) == imported.key) {
            assert_eq!(kept, value, "{}", imported.name);
        }
    }
    if !text.contains("frist") {
        let longer = PbulkConf::parse(&format!("frist='a b'\n{text}")).unwrap();
        assert_eq!(longer.get("frist"), Some("a b"));
        check_first(&imports, &longer.imports());
    }
}

/// A `config.lua`, with the same properties.
pub fn bob_config(data: &[u8]) {
    let Some(text) = text(data) else { return };
    let Ok(config) = BobConfig::parse(text) else { return };
    let imports = config.imports();
    check(&imports, text);
    if !text.contains("frist") && !text.starts_with('#') {
        let longer = BobConfig::parse(&format!("frist = 'a' .. \" b\"\n{text}")).unwrap();
        assert_eq!(longer.get("frist").as_deref(), Some("a b"));
        check_first(&imports, &longer.imports());
    }
}

fn check(imports: &Imports, text: &str) {
    let keys: HashSet<ConfigKey> = imports.values.iter().map(|(key, _)| *key).collect();
    assert_eq!(keys.len(), imports.values.len(), "a key has two values");
    for (key, value) in &imports.values {
        assert!(!value.is_empty(), "{key:?}");
        assert!(
            !key.is_number() || value.parse().is_ok_and(|number| (1..=4096).contains(&number)),
            "{value}"
        );
    }
    let names: HashSet<&str> = imports.imported.iter().map(|imported| &imported.name[..]).collect();
    assert_eq!(names.len(), imports.imported.len(), "a setting is imported twice");
    let is_which = |key: ConfigKey| matches!(key, ConfigKey::Packages | ConfigKey::PackagesFile);
    let (which, others): (Vec<ConfigKey>, Vec<ConfigKey>) =
        imports.imported.iter().filter_map(|imported| imported.key).partition(|key| is_which(*key));
    assert_eq!(
        others.iter().copied().collect::<HashSet<_>>(),
        keys,
        "the imported settings differ from the kept values"
    );
    match (&imports.wanted, &which[..]) {
        (None | Some(Wanted::All), []) | (Some(Wanted::All | Wanted::Some(_)), [ConfigKey::Packages]) => {}
        (Some(Wanted::File(_)), [ConfigKey::PackagesFile]) => {}
        other => panic!("{other:?}"),
    }
    let lines = text.lines().count().max(1) + 1;
    let imported = imports.imported.iter().map(|imported| imported.line);
    let refused = imports.not_imported.iter().map(|refused| refused.line);
    assert!(imported.clone().is_sorted() && refused.clone().is_sorted());
    assert!(imported.chain(refused).all(|line| (1..=lines).contains(&line)));
    assert!(imports.not_imported.iter().all(|refused| !refused.reason.is_empty()));
}

/// A first line that sets an unknown variable is reported first, and shifts the other lines.
fn check_first(imports: &Imports, longer: &Imports) {
    assert_eq!((&longer.not_imported[0].name[..], longer.not_imported[0].line), ("frist", 1));
    assert_eq!((&longer.wanted, &longer.values), (&imports.wanted, &imports.values));
    assert_eq!(longer.not_imported.len(), imports.not_imported.len() + 1);
    let lines = |imports: &Imports| imports.imported.iter().map(|imported| imported.line).collect::<Vec<_>>();
    let expected: Vec<usize> = lines(imports).iter().map(|line| line + 1).collect();
    assert_eq!(lines(longer), expected);
}
