//! The `Release` file: renders it, and reads back the parts that the next publication needs.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::name::{is_index_path, is_sha256, shortened};
use crate::stanza;
use crate::{PublishError, ReleaseFacts, Result};

const DATE_FORMAT: &str = "%a, %d %b %Y %H:%M:%S UTC";

/// Size and SHA-256 of one index file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) sha256: String,
    pub(crate) size_bytes: u64,
}

/// Index files by their path below the generation.
pub(crate) type Listing = BTreeMap<String, Listed>;

/// Renders the text of `Release`.
pub(crate) fn render(facts: &ReleaseFacts, listing: &Listing) -> Result<String> {
    let mut text = String::new();
    let mut field = |name: &'static str, value: &str| {
        if value.contains(|character: char| character.is_control()) {
            return Err(PublishError::Input {
                what: name,
                value: shortened(value),
                reason: "it is not a single line",
            });
        }
        if !value.is_empty() {
            // Writing to a String cannot fail; the same holds below.
            let _ = writeln!(text, "{name}: {value}");
        }
        Ok(())
    };
    field("Origin", &facts.origin)?;
    field("Label", &facts.label)?;
    field("Suite", &facts.suite)?;
    field("Codename", &facts.codename)?;
    field("Date", &date(facts.date_seconds)?)?;
    if let Some(seconds) = facts.valid_until_seconds {
        field("Valid-Until", &date(seconds)?)?;
    }
    field("Acquire-By-Hash", "yes")?;
    field("Architectures", &facts.architectures.join(" "))?;
    field("Components", &facts.components.join(" "))?;
    field("Description", &facts.description)?;
    text.push_str("SHA256:\n");
    for (path, listed) in listing {
        let _ = writeln!(text, " {} {:>16} {path}", listed.sha256, listed.size_bytes);
    }
    Ok(text)
}

/// The index files listed in a `Release` text. Lines that this crate would not write are ignored.
pub(crate) fn listing(release: &str) -> Listing {
    let mut listing = Listing::new();
    for line in stanza::field(release, "SHA256").unwrap_or_default().lines() {
        let mut words = line.split_whitespace();
        let (Some(sha256), Some(size), Some(path), None) =
            (words.next(), words.next(), words.next(), words.next())
        else {
            continue;
        };
        if let (true, Ok(size_bytes), true) = (is_sha256(sha256), size.parse(), is_index_path(path)) {
            listing.insert(path.to_owned(), Listed { sha256: sha256.to_owned(), size_bytes });
        }
    }
    listing
}

/// Whether `current` differs from `new` only in its times, and is valid for long enough.
pub(crate) fn is_still_valid(current: &str, new: &str, facts: &ReleaseFacts) -> bool {
    let timeless = |text: &str| -> Vec<String> {
        let is_time = |line: &&str| line.starts_with("Date:") || line.starts_with("Valid-Until:");
        text.lines().filter(|line| !is_time(line)).map(str::to_owned).collect()
    };
    let valid_until = stanza::field(current, "Valid-Until").map(parse_date);
    let is_valid_long_enough = match (valid_until, facts.valid_until_seconds) {
        (None, None) => true,
        (Some(Some(current)), Some(new)) => {
            let left = current.saturating_sub(facts.date_seconds);
            left >= new.saturating_sub(facts.date_seconds) / 2
        }
        _ => false,
    };
    timeless(current) == timeless(new) && is_valid_long_enough
}

fn date(seconds: i64) -> Result<String> {
    let timestamp = jiff::Timestamp::from_second(seconds).map_err(|_| PublishError::Input {
        what: "date",
        value: seconds.to_string(),
        reason: "it is out of range",
    })?;
    Ok(timestamp.strftime(DATE_FORMAT).to_string())
}

fn parse_date(text: &str) -> Option<i64> {
    let text = text.strip_suffix(" UTC")?;
    let time = jiff::civil::DateTime::strptime("%a, %d %b %Y %H:%M:%S", text).ok()?;
    Some(time.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp().as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(date_seconds: i64, valid_until_seconds: Option<i64>) -> ReleaseFacts {
        ReleaseFacts {
            origin: "Yard".into(),
            label: "Yard".into(),
            suite: "stable".into(),
            codename: "kiln".into(),
            description: "Packages of the yard".into(),
            architectures: vec!["amd64".into(), "arm64".into()],
            components: vec!["main".into()],
            date_seconds,
            valid_until_seconds,
        }
    }

    fn one_index() -> Listing {
        let listed = Listed { sha256: "ab".repeat(32), size_bytes: 12 };
        Listing::from([("main/binary-amd64/Packages".to_owned(), listed)])
    }

    #[test]
    fn the_text_is_as_documented() {
        let text = render(&facts(1_700_000_000, Some(1_700_086_400)), &one_index()).unwrap();
        assert_eq!(
            text,
            format!(
                "Origin: Yard\nLabel: Yard\nSuite: stable\nCodename: kiln\nDate: Tue, 14 Nov 2023 22:13:20 UTC\n\
                 Valid-Until: Wed, 15 Nov 2023 22:13:20 UTC\nAcquire-By-Hash: yes\nArchitectures: amd64 arm64\n\
                 Components: main\nDescription: Packages of the yard\nSHA256:\n {}               12 \
                 main/binary-amd64/Packages\n",
                "ab".repeat(32)
            )
        );
        assert_eq!(listing(&text), one_index());
        assert_eq!(parse_date("Tue, 14 Nov 2023 22:13:20 UTC"), Some(1_700_000_000));
    }

    #[test]
    fn a_field_cannot_inject_a_second_line() {
        let mut facts = facts(0, None);
        facts.label = "a\nSHA256:".into();
        assert!(render(&facts, &one_index()).is_err());
        facts.label.clear();
        facts.date_seconds = i64::MAX;
        assert!(render(&facts, &one_index()).is_err());
    }

    #[test]
    fn listed_paths_cannot_lead_out() {
        let hash = "0".repeat(64);
        assert!(
            listing(&format!("SHA256:\n {hash} 1 ../../etc/passwd\n {hash} x a\n {hash} 1\n")).is_empty()
        );
    }

    #[test]
    fn an_unchanged_release_is_renewed_after_half_its_validity() {
        let still_good = |old: ReleaseFacts, new: ReleaseFacts| {
            let listing = one_index();
            is_still_valid(&render(&old, &listing).unwrap(), &render(&new, &listing).unwrap(), &new)
        };
        assert!(still_good(facts(0, None), facts(9, None)));
        assert!(!still_good(facts(0, None), facts(9, Some(100))));
        assert!(!still_good(facts(0, Some(100)), facts(9, None)));
        assert!(still_good(facts(0, Some(100)), facts(40, Some(140))));
        assert!(!still_good(facts(0, Some(100)), facts(60, Some(160))));
        let mut other = facts(9, None);
        other.label = "Other".into();
        assert!(!still_good(facts(0, None), other));
    }
}
