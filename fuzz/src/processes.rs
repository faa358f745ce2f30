//! The kernel's lines about processes, whose names any user may choose.

use kilnyard_root::ProcessStat;

/// A line is parsed or rejected; the content of a name does not affect the other fields.
pub fn process_stat(data: &[u8]) {
    let Some(stat) = ProcessStat::parse(data) else { return };
    let first = data.iter().position(|byte| *byte == b'(').unwrap();
    let last = data.iter().rposition(|byte| *byte == b')').unwrap();
    let renamed = [&data[..=first], b") R 1 2 (", &data[last..]].concat();
    let again = ProcessStat::parse(&renamed).unwrap();
    assert_eq!(ProcessStat { name: stat.name.clone(), ..again }, stat);
}
