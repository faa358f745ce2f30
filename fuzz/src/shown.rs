//! Output of builds: logs, the excerpt lines selected from them, and displayed text.

use kilnyard_ecosystem::find_excerpt;
use kilnyard_model::text;
use kilnyard_process::{Log, LogLimits, read_log};

/// No character remains that controls a terminal or changes the order of displayed text.
fn assert_plain(shown: &str) {
    let bad = |c: char| {
        c.is_control()
            || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    assert_eq!(shown.chars().find(|c| bad(*c)), None, "{shown:?}");
}

/// One line, and several: plain, bounded, and unchanged if processed again; plain text stays as it is.
pub fn line(data: &[u8]) {
    let given = String::from_utf8_lossy(data);
    let line = text::line(&given);
    assert_plain(&line);
    assert_eq!(text::line(&line), line);
    assert!(line.chars().count() <= given.chars().count());
    if given.len() < 100 && given.chars().all(|c| c.is_ascii_graphic() || c == ' ') {
        assert_eq!(line, given.trim_end());
    }
    let lines = text::lines(&given);
    lines.split('\n').for_each(assert_plain);
    assert!(lines.lines().count() <= given.lines().count());
}

/// The selected lines surround the relevant line in the log.
pub fn excerpt(data: &[u8]) {
    let log = String::from_utf8_lossy(data);
    let lines: Vec<&str> = log.lines().collect();
    let Some(excerpt) = find_excerpt(&log) else {
        assert!(lines.iter().all(|line| line.trim().is_empty()));
        return;
    };
    assert!(excerpt.lines.len() <= 10 && excerpt.index < excerpt.lines.len());
    let first = excerpt.line_number as usize - 1 - excerpt.index;
    for (shown, line) in excerpt.lines.iter().zip(&lines[first..]) {
        assert_plain(shown);
        assert!(text::line(line).starts_with(shown.as_str()));
    }
}

/// A log of any bytes is read or rejected; a log that was written reads back the same.
pub fn log(data: &[u8]) {
    let Ok(folder) = tempfile::tempdir_in(crate::deb::SCRATCH) else { return };
    let path = folder.path().join("foreign.log");
    std::fs::write(path.with_extension("log.zst"), data).unwrap();
    if let (Ok(text), Ok(bytes)) = (read_log(&path), zstd::decode_all(data)) {
        assert_eq!(text, String::from_utf8_lossy(&bytes));
    }

    let path = folder.path().join("own.log");
    let limits = LogLimits { head_bytes_max: 40, tail_bytes_max: 20 };
    let mut log = Log::create(&path, limits).unwrap();
    for piece in data.chunks(1 + data.first().map_or(0, |byte| usize::from(*byte))) {
        log.write(piece).unwrap();
    }
    let facts = log.finish().unwrap();
    assert_eq!(facts.bytes_total, data.len() as u64);
    assert_eq!(facts.bytes_dropped, data.len().saturating_sub(60) as u64);
    let text = read_log(&path).unwrap();
    if facts.bytes_dropped == 0 {
        assert_eq!(text, String::from_utf8_lossy(data));
    } else {
        let note = format!("[kilnyard: {} bytes after the first 40 omitted]", facts.bytes_dropped);
        assert!(text.contains(&note));
        assert!(text.starts_with(&*String::from_utf8_lossy(&data[..40])));
        assert!(text.ends_with(&*String::from_utf8_lossy(&data[data.len() - 20..])));
    }
}
