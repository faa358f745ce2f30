//! The age of a `Release` file, and whether to accept it.
//!
//! A mirror, or an attacker in between, can withhold updates (freeze) or serve an older state (rollback); both states
//! are signed and were valid once. Therefore the date must be present, must not be in the future, and must not be
//! before the latest date seen. An index past its `Valid-Until` is rejected, even if the mirror says that nothing has
//! changed.

use jiff::{SignedDuration, Timestamp};
use kilnyard_ecosystem::debian::deb822::Stanza;
use kilnyard_model::foreign::Foreign;

/// How far the archive's clock may be ahead of this machine's: a machine whose clock runs on local time is off by up
/// to 14 hours.
const AHEAD_MAX: SignedDuration = SignedDuration::from_hours(24);

/// The parsed dates of a `Release` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dates {
    /// When the file was made.
    pub date: Timestamp,
    /// When the file expires; absent if the archive sets no limit.
    pub valid_until: Option<Timestamp>,
}

/// Why a `Release` file is rejected. The text reads after the name of the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Without a date, a rollback cannot be detected.
    #[error("has no Date")]
    NoDate,
    /// A date that cannot be parsed.
    #[error("has a {field} that is not a date: `{}`", Foreign(text))]
    NotADate {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        text: String,
    },
    /// The date is more than a day in the future.
    #[error("is dated {date}, which is in the future: this machine's clock says {now}")]
    Ahead {
        /// `Date` of the file.
        date: Timestamp,
        /// This machine's clock.
        now: Timestamp,
    },
    /// A newer file of this suite was accepted before.
    #[error("is dated {date}, but a newer one of {seen} was seen before")]
    Older {
        /// `Date` of the file.
        date: Timestamp,
        /// The latest date seen.
        seen: Timestamp,
    },
    /// The file has expired.
    #[error("was valid until {until}; this machine's clock says {now}")]
    Expired {
        /// `Valid-Until` of the file.
        until: Timestamp,
        /// This machine's clock.
        now: Timestamp,
    },
}

impl Dates {
    /// Parses the dates of a `Release` file.
    pub fn of(release: Stanza) -> Result<Dates, Refused> {
        let field = |field: &'static str| {
            let parsed =
                |text: &str| parse(text).ok_or_else(|| Refused::NotADate { field, text: text.to_owned() });
            release.get(field).map(parsed).transpose()
        };
        Ok(Dates { date: field("Date")?.ok_or(Refused::NoDate)?, valid_until: field("Valid-Until")? })
    }

    /// Checks that an index with these dates is acceptable now. `seen` is the latest date of this suite so far.
    pub fn check(&self, seen: Option<Timestamp>, now: Timestamp) -> Result<(), Refused> {
        if self.date.duration_since(now) > AHEAD_MAX {
            return Err(Refused::Ahead { date: self.date, now });
        }
        match seen {
            Some(seen) if self.date < seen => Err(Refused::Older { date: self.date, seen }),
            _ => self.check_expiry(now),
        }
    }

    /// Checks that an index that was accepted before has not expired.
    pub fn check_expiry(&self, now: Timestamp) -> Result<(), Refused> {
        match self.valid_until {
            Some(until) if until < now => Err(Refused::Expired { until, now }),
            _ => Ok(()),
        }
    }
}

/// Parses a date of a `Release` file (RFC 2822, in UTC).
pub fn parse(text: &str) -> Option<Timestamp> {
    let text = text.trim().replace("UTC", "+0000");
    jiff::fmt::rfc2822::parse(&text).ok().map(|date| date.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOON: &str = "Sat, 10 Jun 2023 12:00:00 UTC";

    fn dates(text: &str) -> Result<Dates, Refused> {
        Dates::of(Stanza::new(text))
    }

    fn hours(count: i64) -> Timestamp {
        parse(NOON).unwrap() + SignedDuration::from_hours(count)
    }

    #[test]
    fn the_date_must_be_present_and_valid() {
        assert_eq!(dates("Suite: x"), Err(Refused::NoDate));
        for (text, field) in [
            ("Date: yesterday", "Date"),
            ("Date:", "Date"),
            ("Date: Sat, 10 Jun 2023 12:00:00 UTC\nValid-Until: never", "Valid-Until"),
        ] {
            assert!(
                matches!(dates(text), Err(Refused::NotADate { field: found, .. }) if found == field),
                "{text}"
            );
        }
        let shown = dates("Date: \u{1b}[2J").unwrap_err().to_string();
        assert_eq!(shown, "has a Date that is not a date: `\\u{1b}[2J`");
        for zone in ["UTC", "GMT", "+0000"] {
            let text = format!("Date: {}", NOON.replace("UTC", zone));
            assert_eq!(dates(&text).unwrap().date, hours(0), "{zone}");
        }
    }

    #[test]
    fn future_dates_and_rollbacks_are_rejected() {
        let made = dates(&format!("Date: {NOON}")).unwrap();
        assert_eq!(made.check(None, hours(0)), Ok(()));
        assert_eq!(made.check(None, hours(-23)), Ok(()));
        assert!(matches!(made.check(None, hours(-25)), Err(Refused::Ahead { .. })));
        assert_eq!(made.check(Some(hours(0)), hours(5)), Ok(()));
        assert!(matches!(made.check(Some(hours(1)), hours(5)), Err(Refused::Older { .. })));
        assert_eq!(made.check(None, hours(100_000)), Ok(()));
    }

    #[test]
    fn an_expired_file_is_rejected() {
        let until = "Valid-Until: Sat, 17 Jun 2023 12:00:00 UTC";
        let made = dates(&format!("Date: {NOON}\n{until}")).unwrap();
        assert_eq!(made.check(None, hours(7 * 24)), Ok(()));
        assert!(matches!(made.check(None, hours(7 * 24 + 1)), Err(Refused::Expired { .. })));
        assert_eq!(made.check_expiry(hours(-100)), Ok(()));
    }
}
