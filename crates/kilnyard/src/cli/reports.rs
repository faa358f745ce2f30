//! The arguments of the commands around reports, notifications and regular runs.

use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;

/// The report of a run, for people and for programs.
#[derive(Debug, Args)]
pub struct Report {
    /// The number of the run. Default: the last one.
    pub run: Option<u64>,
    /// Write the results as JUnit XML to this file; `-` is standard output.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["sarif", "github"])]
    pub junit: Option<PathBuf>,
    /// Write the failures as SARIF 2.1.0 to this file; `-` is standard output.
    #[arg(long, value_name = "FILE", conflicts_with = "github")]
    pub sarif: Option<PathBuf>,
    /// Print the failures as annotations of a workflow of GitHub Actions.
    #[arg(long)]
    pub github: bool,
}

/// What is sent when something happens.
#[derive(Debug, Args)]
pub struct Notify {
    /// Send each receiver a message, to see whether it arrives.
    #[arg(long)]
    pub test: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// Starts runs when there is something new.
#[derive(Debug, Args)]
pub struct Watch {
    /// How often to look: 30s, 15m, 6h, 1d.
    #[arg(long, value_name = "TIME", default_value = "15m", value_parser = period)]
    pub every: Duration,
    /// Look once, build if there is something new, and exit.
    #[arg(long)]
    pub once: bool,
}

/// Prints a unit of systemd.
#[derive(Debug, Args)]
pub struct Service {
    /// What it runs.
    pub what: ServiceOf,
    /// Print the unit of a user, for `systemctl --user`.
    #[arg(long)]
    pub user: bool,
    /// Print the timer that starts `build`, in place of its service.
    #[arg(long)]
    pub timer: bool,
    /// When the timer starts it, as systemd.time(7) has it.
    #[arg(long, value_name = "WHEN", default_value = "daily", requires = "timer")]
    pub at: String,
}

/// What a service runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ServiceOf {
    /// The server: workers, pages, API.
    Serve,
    /// Runs when there is something new.
    Watch,
    /// One run, started by a timer.
    Build,
}

/// The shortest period: an archive changes a few times a day.
const PERIOD_SECONDS_MIN: u64 = 10;
/// The longest period.
const PERIOD_SECONDS_MAX: u64 = 30 * 86_400;

/// A period with a unit.
fn period(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|character: char| character.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "s" => 1,
        "m" | "min" => 60,
        "h" => 3600,
        "d" => 86_400,
        _ => return Err("a time has a unit: 30s, 15m, 6h, 1d".to_owned()),
    };
    let seconds = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    let seconds = seconds.ok_or_else(|| "a time is a whole number with a unit: 15m".to_owned())?;
    match (PERIOD_SECONDS_MIN..=PERIOD_SECONDS_MAX).contains(&seconds) {
        true => Ok(Duration::from_secs(seconds)),
        false => Err(format!("from {PERIOD_SECONDS_MIN}s to {}d", PERIOD_SECONDS_MAX / 86_400)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn periods_have_units_and_bounds() {
        assert_eq!(period("15m"), Ok(Duration::from_secs(900)));
        assert_eq!(period("1d"), Ok(Duration::from_secs(86_400)));
        for wrong in ["15", "m", "1s", "99d", "1.5h", "-1m", "18446744073709551615h", "5w", ""] {
            assert!(period(wrong).is_err(), "{wrong}");
        }
    }
}
