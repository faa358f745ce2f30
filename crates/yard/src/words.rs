//! Numbers, times and commands as users read and type them.

use kilnyard_model::foreign;
pub use kilnyard_web::encoded;

/// Formats JSON with every character that a terminal interprets escaped. serde_json escapes only the control
/// characters below U+0020.
pub fn json_text(json: &impl std::fmt::Display) -> String {
    let json = json.to_string();
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        match foreign::is_executed(character) && character != '\n' {
            // These occur only within JSON strings.
            true => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    shown.push_str(&format!("\\u{unit:04x}"));
                }
            }
            false => shown.push(character),
        }
    }
    shown
}

pub use kilnyard_process::now_seconds;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The yard of this command, if later commands have to name it too. Set once, before anything is printed.
static YARD: OnceLock<PathBuf> = OnceLock::new();

/// Makes [`command`] include this yard.
pub fn name_yard(yard: PathBuf) {
    // A process works on one yard.
    let _ = YARD.set(yard);
}

/// The target that this command works on, in a yard with several. A command that is for all works on one after another.
static TARGET: Mutex<Option<String>> = Mutex::new(None);

/// Makes [`command`] include this target.
pub fn name_target(target: Option<&str>) {
    *TARGET.lock().unwrap_or_else(PoisonError::into_inner) = target.map(str::to_owned);
}

/// The command line that runs this Kilnyard command in the same yard, for the same target.
pub fn command(arguments: &str) -> String {
    let yard = YARD.get().map(PathBuf::as_path);
    match &*TARGET.lock().unwrap_or_else(PoisonError::into_inner) {
        Some(target) => command_in(yard, &format!("--target {} {arguments}", quoted(target))),
        None => command_in(yard, arguments),
    }
}

/// Like [`command`], for the given yard, or for the one that Kilnyard finds by itself.
pub fn command_in(yard: Option<&Path>, arguments: &str) -> String {
    match yard {
        Some(yard) => format!("kilnyard --yard {} {arguments}", quoted(&yard.display().to_string())),
        None => format!("kilnyard {arguments}"),
    }
}

/// Quotes a word for the shell, if needed.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:,@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// `6 min 12 s`, `3 h 05 min`, `4.2 s`.
pub fn duration(seconds: f64) -> String {
    let seconds = if seconds.is_finite() { seconds.max(0.0) } else { 0.0 };
    let whole = seconds.round() as u64;
    match whole {
        0..10 => format!("{seconds:.1} s"),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        _ => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
    }
}

/// Formats the two minimum times of a run: the estimate before it and, once available, the figure from its
/// measured builds.
pub fn minimums(estimated_seconds: f64, measured_seconds: Option<f64>) -> String {
    let mut parts = Vec::new();
    if estimated_seconds > 0.0 {
        parts.push(format!("{} (estimated)", duration(estimated_seconds)));
    }
    if let Some(seconds) = measured_seconds {
        parts.push(format!("{} (measured)", duration(seconds)));
    }
    if parts.is_empty() { "unknown".to_owned() } else { parts.join(", ") }
}

/// `1.2 MiB`.
pub fn size(bytes: u64) -> String {
    let mut value = bytes as f64;
    let mut unit = "B";
    for larger in ["KiB", "MiB", "GiB", "TiB"] {
        if value < 1024.0 {
            break;
        }
        value /= 1024.0;
        unit = larger;
    }
    if unit == "B" { format!("{bytes} B") } else { format!("{value:.1} {unit}") }
}

/// Formats a Unix time in UTC, to the second.
pub fn time(seconds: f64) -> String {
    jiff::Timestamp::from_second(seconds as i64).map_or_else(|_| "?".to_owned(), |t| t.to_string())
}

/// Formats the day of a Unix time in UTC.
pub fn date(seconds: i64) -> String {
    let time = jiff::Timestamp::from_second(seconds);
    time.map_or_else(|_| "?".to_owned(), |time| time.strftime("%Y-%m-%d").to_string())
}

/// `1 package`, `2 packages`, `2 processes`.
pub fn count(number: u64, one: &str) -> String {
    let ending = match number {
        1 => "",
        _ if one.ends_with('s') => "es",
        _ => "s",
    };
    format!("{number} {one}{ending}")
}

/// Whether one name may be a misspelling of the other: at most two letters inserted, removed or replaced.
pub fn is_near(left: &str, right: &str) -> bool {
    const MISTAKES_MAX: usize = 2;
    if left.len().abs_diff(right.len()) > MISTAKES_MAX || left.len() <= MISTAKES_MAX {
        return false;
    }
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (i, a) in left.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in right.bytes().enumerate() {
            let least = row[j].min(row[j + 1]).min(diagonal) + 1;
            let cost = if a == b { diagonal } else { least };
            diagonal = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[right.len()] <= MISTAKES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(duration(4.23), "4.2 s");
        assert_eq!(duration(372.0), "6 min 12 s");
        assert_eq!(duration(11_100.0), "3 h 05 min");
        assert_eq!(duration(f64::NAN), "0.0 s");
        assert_eq!(size(900), "900 B");
        assert_eq!(size(1_300_000), "1.2 MiB");
        assert_eq!(time(0.0), "1970-01-01T00:00:00Z");
        assert_eq!((count(1, "package"), count(2, "package")), ("1 package".into(), "2 packages".into()));
        assert_eq!((count(1, "process"), count(0, "process")), ("1 process".into(), "0 processes".into()));
    }

    #[test]
    fn json_has_no_terminal_controls_and_keeps_its_value() {
        let value = serde_json::json!({ "a\u{1b}[2J": "\u{9b}31m\u{202e}\u{e0041}\u{7f}ä\n" });
        let shown = json_text(&format_args!("{value:#}"));
        assert!(shown.contains("\\u009b31m\\u202e\\udb40\\udc41\\u007fä\\n"), "{shown}");
        assert_eq!(serde_json::from_str::<serde_json::Value>(&shown).unwrap(), value);
    }

    #[test]
    fn misspelled_names_are_near() {
        assert!(
            is_near("godsource", "goodsource") && is_near("zlbi", "zlib") && is_near("xz-utils", "xzutils")
        );
        assert!(!is_near("acl", "attr") && !is_near("jq", "lz") && !is_near("", "a"));
    }
}
