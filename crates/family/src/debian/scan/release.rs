//! What a `Release` file says of its own age, and whether that can be accepted.
//!
//! A mirror, or an attacker between, can hold back updates (freeze) or give an older state (rollback); both are signed
//! and were valid once. So the date must be there, must not be of the future, and must not be before the latest one
//! seen; and an index past its `Valid-Until` is refused, also where the mirror says that nothing has changed.

use jiff::{SignedDuration, Timestamp};
use kilnyard_ecosystem::debian::deb822::Stanza;
use kilnyard_model::foreign::Foreign;

/// How far the clocks of the archive and of this machine may differ: a machine whose clock runs on local time is off by
/// up to 14 hours.
const AHEAD_MAX: SignedDuration = SignedDuration::from_hours(24);

/// The dates of a `Release` file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dates {
    /// When it was made.
    pub date: Timestamp,
    /// Until when it may be used; absent where the archive sets no limit.
    pub valid_until: Option<Timestamp>,
}

/// Why a `Release` file is not accepted. The text reads after its name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// There is no date, and without one a rollback cannot be seen.
    #[error("has no Date")]
    NoDate,
    /// A date that cannot be read.
    #[error("has a {field} that is no date: `{}`", Foreign(text))]
    NotADate {
        /// The field.
        field: &'static str,
        /// Its value.
        text: String,
    },
    /// It was made later than now.
    #[error("is dated {date}, and now is {now}")]
    Ahead {
        /// The date.
        date: Timestamp,
        /// The clock of this machine.
        now: Timestamp,
    },
    /// An earlier one was newer.
    #[error("is dated {date}, and one of {seen} was seen before")]
    Older {
        /// The date.
        date: Timestamp,
        /// The latest date that was seen.
        seen: Timestamp,
    },
    /// It may not be used any more.
    #[error("was valid until {until}, and now is {now}")]
    Expired {
        /// The last moment.
        until: Timestamp,
        /// The clock of this machine.
        now: Timestamp,
    },
}

impl Dates {
    /// The dates of a `Release` file.
    pub fn of(release: Stanza) -> Result<Dates, Refused> {
        let field = |field: &'static str| {
            let parsed =
                |text: &str| parse(text).ok_or_else(|| Refused::NotADate { field, text: text.to_owned() });
            release.get(field).map(parsed).transpose()
        };
        Ok(Dates { date: field("Date")?.ok_or(Refused::NoDate)?, valid_until: field("Valid-Until")? })
    }

    /// Whether an index of these dates is accepted now. `seen` is the latest date of this suite so far.
    pub fn check(&self, seen: Option<Timestamp>, now: Timestamp) -> Result<(), Refused> {
        if self.date.duration_since(now) > AHEAD_MAX {
            return Err(Refused::Ahead { date: self.date, now });
        }
        match seen {
            Some(seen) if self.date < seen => Err(Refused::Older { date: self.date, seen }),
            _ => self.check_expiry(now),
        }
    }

    /// Whether an index that was accepted before may still be used.
    pub fn check_expiry(&self, now: Timestamp) -> Result<(), Refused> {
        match self.valid_until {
            Some(until) if until < now => Err(Refused::Expired { until, now }),
            _ => Ok(()),
        }
    }
}

/// A date of a `Release` file (RFC 2822, in UTC).
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
    fn a_date_must_be_there_and_be_one() {
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
        assert_eq!(shown, "has a Date that is no date: `\\u{1b}[2J`");
        for zone in ["UTC", "GMT", "+0000"] {
            let text = format!("Date: {}", NOON.replace("UTC", zone));
            assert_eq!(dates(&text).unwrap().date, hours(0), "{zone}");
        }
    }

    #[test]
    fn neither_the_future_nor_the_past_is_accepted() {
        let made = dates(&format!("Date: {NOON}")).unwrap();
        assert_eq!(made.check(None, hours(0)), Ok(()));
        assert_eq!(made.check(None, hours(-23)), Ok(()));
        assert!(matches!(made.check(None, hours(-25)), Err(Refused::Ahead { .. })));
        assert_eq!(made.check(Some(hours(0)), hours(5)), Ok(()));
        assert!(matches!(made.check(Some(hours(1)), hours(5)), Err(Refused::Older { .. })));
        assert_eq!(made.check(None, hours(100_000)), Ok(()));
    }

    #[test]
    fn after_its_time_it_is_refused() {
        let until = "Valid-Until: Sat, 17 Jun 2023 12:00:00 UTC";
        let made = dates(&format!("Date: {NOON}\n{until}")).unwrap();
        assert_eq!(made.check(None, hours(7 * 24)), Ok(()));
        assert!(matches!(made.check(None, hours(7 * 24 + 1)), Err(Refused::Expired { .. })));
        assert_eq!(made.check_expiry(hours(-100)), Ok(()));
    }
}
