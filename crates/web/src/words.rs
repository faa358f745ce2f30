//! Formats durations, sizes, counts, shares and times in the same way all over the page.

/// Longer durations (beyond about 31 years) come from a broken clock. They are clamped to this, so that sums
/// and drawings stay finite.
pub(crate) const SECONDS_MAX: f64 = 1e9;

/// Clamps a duration for calculations: not negative, not NaN, at most [`SECONDS_MAX`].
pub(crate) fn sane_seconds(seconds: f64) -> f64 {
    if seconds.is_nan() { 0.0 } else { seconds.clamp(0.0, SECONDS_MAX) }
}

/// Formats a duration: `0 s`, `0.4 s`, `42 s`, `6 min 12 s`, `2 h 5 min`, `3 d 4 h`.
pub(crate) fn duration(seconds: f64) -> String {
    let seconds = sane_seconds(seconds);
    if seconds == 0.0 {
        return "0 s".to_owned();
    }
    if seconds < 0.05 {
        return "<0.1 s".to_owned();
    }
    if seconds < 9.95 {
        return format!("{seconds:.1} s");
    }
    let whole = seconds.round() as u64;
    let two = |large: u64, large_unit: &str, small: u64, small_unit: &str| match small {
        0 => format!("{large} {large_unit}"),
        _ => format!("{large} {large_unit} {small} {small_unit}"),
    };
    match whole {
        0..60 => format!("{whole} s"),
        60..3600 => two(whole / 60, "min", whole % 60, "s"),
        _ => {
            let minutes = (seconds / 60.0).round() as u64;
            if minutes < 24 * 60 {
                return two(minutes / 60, "h", minutes % 60, "min");
            }
            let hours = (seconds / 3600.0).round() as u64;
            two(hours / 24, "d", hours % 24, "h")
        }
    }
}

/// Formats a size: `512 B`, `1.2 MiB`, `345 MiB`.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // From 1023.5 on, the rounded text would show 1024 although there is a larger unit.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if value < 99.95 { format!("{value:.1} {}", UNITS[unit]) } else { format!("{value:.0} {}", UNITS[unit]) }
}

/// Formats a count with thousands separators: `30,000`.
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with a noun: `1 package`, `2 packages`.
pub(crate) fn counted(number: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(number), if number == 1 { one } else { many })
}

/// Spells out a small number; formats a larger one as digits.
pub(crate) fn number_word(number: u64) -> String {
    const WORDS: [&str; 13] = [
        "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
        "twelve",
    ];
    match usize::try_from(number).ok().and_then(|index| WORDS.get(index)) {
        Some(word) => (*word).to_owned(),
        None => count(number),
    }
}

/// The ratio of `part` to `whole`. Absent if it is undefined or negative.
pub(crate) fn share(part: f64, whole: f64) -> Option<f64> {
    let share = part / whole;
    (whole > 0.0 && share.is_finite() && share >= 0.0).then_some(share)
}

/// Formats a share in percent: `96 %`.
pub(crate) fn percent(share: f64) -> String {
    let percent = if share.is_nan() { 0.0 } else { (share * 100.0).clamp(0.0, 9999.0) };
    match percent {
        // A tiny share must not read as zero, nor an incomplete one as 100 %.
        _ if percent > 0.0 && percent < 1.0 => "under 1 %".to_owned(),
        _ if percent < 100.0 => format!("{:.0} %", percent.min(99.4)),
        _ => format!("{percent:.0} %"),
    }
}

/// Formats a time in UTC: `2026-11-21T08:05:20Z`. Absent if the year is out of range.
pub(crate) fn moment(unix_seconds: i64) -> Option<String> {
    jiff::Timestamp::from_second(unix_seconds).ok().map(|moment| moment.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (seconds, text) in [
            (0.0, "0 s"),
            (0.01, "<0.1 s"),
            (0.44, "0.4 s"),
            (9.94, "9.9 s"),
            (9.96, "10 s"),
            (59.4, "59 s"),
            (59.6, "1 min"),
            (372.0, "6 min 12 s"),
            (3599.7, "1 h"),
            (3600.0 * 2.0 + 300.0, "2 h 5 min"),
            (86399.0, "1 d"),
            (86400.0 * 3.0 + 3600.0 * 4.0, "3 d 4 h"),
        ] {
            assert_eq!(duration(seconds), text, "{seconds}");
        }
    }

    #[test]
    fn odd_clocks() {
        assert_eq!(duration(f64::NAN), "0 s");
        assert_eq!(duration(-5.0), "0 s");
        assert_eq!(duration(f64::NEG_INFINITY), "0 s");
        assert_eq!(duration(f64::INFINITY), duration(SECONDS_MAX));
        assert_eq!(moment(i64::MAX), None);
        assert_eq!(moment(i64::MIN), None);
        assert_eq!(moment(0).unwrap(), "1970-01-01T00:00:00Z");
        assert_eq!(moment(1_795_248_320).unwrap(), "2026-11-21T08:05:20Z");
    }

    #[test]
    fn sizes() {
        for (bytes, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.0 KiB"),
            (1_258_291, "1.2 MiB"),
            (361_758_720, "345 MiB"),
            (1024 * 1024 - 1, "1.0 MiB"),
            (u64::MAX, "16.0 EiB"),
        ] {
            assert_eq!(size(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn counts_and_shares() {
        assert_eq!(count(7), "7");
        assert_eq!(count(1815), "1,815");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
        assert_eq!(counted(1, "package", "packages"), "1 package");
        assert_eq!(counted(0, "package", "packages"), "0 packages");
        assert_eq!(number_word(2), "two");
        assert_eq!(number_word(64), "64");
        assert_eq!(share(1.0, 2.0), Some(0.5));
        assert_eq!(share(1.0, 0.0), None);
        assert_eq!(share(f64::NAN, 1.0), None);
        assert_eq!(percent(0.96), "96 %");
        assert_eq!(percent(0.999), "99 %");
        assert_eq!(percent(0.001), "under 1 %");
        assert_eq!(percent(1.0), "100 %");
        assert_eq!(percent(f64::NAN), "0 %");
    }
}
