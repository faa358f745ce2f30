//! Decides which URL to try next, and when to give up.
//!
//! The URLs are tried in order, in rounds, with a pause between rounds: while another mirror works, one that is down
//! costs no pause. Transient failures are retried, permanent ones are not.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::error::{AttemptError, FailedAttempt, FetchError, Outlook, without_password};
use crate::limits::Limits;

/// An attempt that brings less than this does not count as progress: a connection that breaks every few megabytes still
/// fetches a large file in the end, but one that breaks after every byte does not continue forever.
const PROGRESS_BYTES_MIN: u64 = 1 << 20;

/// How often the cancel flag is checked while waiting.
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Why an attempt ended without the file.
#[derive(Debug)]
pub(crate) enum Stop {
    /// This url failed; the part now has this many bytes.
    Url { error: AttemptError, part_bytes: u64 },
    /// No other url would help.
    Whole(FetchError),
}

struct Candidate<'a> {
    url: &'a str,
    failures: u32,
    wrong_contents: u32,
    given_up: bool,
    last: Option<AttemptError>,
}

/// Tries the URLs until one succeeds or all have failed for good.
pub(crate) fn run<T>(
    name: &str,
    urls: &[String],
    limits: &Limits,
    cancel: &AtomicBool,
    failed: &dyn Fn(&str, &AttemptError),
    mut attempt: impl FnMut(&str) -> Result<T, Stop>,
) -> Result<T, FetchError> {
    if urls.is_empty() {
        return Err(FetchError::NoUrl { name: name.to_owned() });
    }
    let mut candidates: Vec<Candidate<'_>> = urls
        .iter()
        .map(|url| Candidate { url, failures: 0, wrong_contents: 0, given_up: false, last: None })
        .collect();
    let mut part_bytes_best = 0;
    let mut idle_rounds = 0;
    loop {
        let mut progress = false;
        for candidate in candidates.iter_mut().filter(|candidate| !candidate.given_up) {
            let (error, part_bytes) = match attempt(candidate.url) {
                Ok(thing) => return Ok(thing),
                Err(Stop::Whole(error)) => return Err(error),
                Err(Stop::Url { error, part_bytes }) => (error, part_bytes),
            };
            let progressed = part_bytes >= part_bytes_best + PROGRESS_BYTES_MIN;
            if progressed {
                part_bytes_best = part_bytes;
                progress = true;
            }
            candidate.note(&error, progressed, limits);
            failed(candidate.url, &error);
            candidate.last = Some(error);
        }
        if candidates.iter().all(|candidate| candidate.given_up) {
            return Err(FetchError::Failed {
                name: name.to_owned(),
                failed: candidates.into_iter().filter_map(Candidate::into_failed).collect(),
            });
        }
        idle_rounds = if progress { 1 } else { idle_rounds + 1 };
        pause(limits.pause_after(idle_rounds), cancel);
        check(name, cancel)?;
    }
}

impl Candidate<'_> {
    fn note(&mut self, error: &AttemptError, progressed: bool, limits: &Limits) {
        match error.outlook() {
            Outlook::Final => self.given_up = true,
            Outlook::OnceMore => {
                self.wrong_contents += 1;
                self.given_up = self.wrong_contents > 1;
            }
            Outlook::Transient if progressed => {}
            Outlook::Transient => {
                self.failures += 1;
                self.given_up = self.failures >= limits.attempts_max;
            }
        }
    }

    fn into_failed(self) -> Option<FailedAttempt> {
        Some(FailedAttempt { url: without_password(self.url), error: self.last? })
    }
}

/// Fails if the cancel flag is set.
pub(crate) fn check(name: &str, cancel: &AtomicBool) -> Result<(), FetchError> {
    if cancel.load(Ordering::Relaxed) {
        return Err(FetchError::Cancelled { name: name.to_owned() });
    }
    Ok(())
}

/// Waits for a duration, or until the cancel flag is set.
fn pause(duration: Duration, cancel: &AtomicBool) {
    let began = Instant::now();
    while !cancel.load(Ordering::Relaxed) {
        let left = duration.saturating_sub(began.elapsed());
        if left.is_zero() {
            return;
        }
        std::thread::sleep(left.min(POLL));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> Limits {
        Limits {
            pause_first: Duration::ZERO,
            pause_max: Duration::ZERO,
            attempts_max: 3,
            ..Limits::default()
        }
    }

    /// Runs with two urls, each with scripted answers, and returns the calls in order.
    fn calls(
        mut answer: impl FnMut(&str, usize) -> Result<(), Stop>,
    ) -> (Vec<String>, Result<(), FetchError>) {
        let urls = ["a".to_owned(), "b".to_owned()];
        let mut calls: Vec<String> = Vec::new();
        let result = run("x", &urls, &limits(), &AtomicBool::new(false), &|_, _| {}, |url| {
            let count = calls.iter().filter(|call| *call == url).count();
            calls.push(url.to_owned());
            answer(url, count)
        });
        (calls, result)
    }

    fn status(code: u16) -> Result<(), Stop> {
        Err(Stop::Url { error: AttemptError::Status { code }, part_bytes: 0 })
    }

    fn cut(part_bytes: u64) -> Result<(), Stop> {
        Err(Stop::Url {
            error: AttemptError::Truncated { received_bytes: part_bytes, size_bytes: None },
            part_bytes,
        })
    }

    #[test]
    fn rounds_alternate_and_end() {
        let (calls, result) = calls(|_, _| status(503));
        assert_eq!(calls.concat(), "ababab");
        assert!(matches!(result, Err(FetchError::Failed { failed, .. }) if failed.len() == 2));
    }

    #[test]
    fn permanent_failures_are_not_retried() {
        let (calls, result) = calls(|url, _| status(if url == "a" { 404 } else { 503 }));
        assert_eq!(calls.concat(), "abbb");
        assert_eq!(
            result.unwrap_err().to_string(),
            "fetch x: a: the server returned status 404; b: the server returned status 503"
        );
    }

    #[test]
    fn wrong_content_has_one_more_chance() {
        let (calls, result) = calls(|_, _| {
            Err(Stop::Url {
                error: AttemptError::HashDiffers {
                    expected: crate::Sha256Hex::of(b"a"),
                    got: crate::Sha256Hex::of(b"b"),
                },
                part_bytes: 0,
            })
        });
        assert_eq!(calls.concat(), "abab");
        assert!(result.is_err());
    }

    #[test]
    fn progress_does_not_count_as_a_failure() {
        let mut part_bytes = 0;
        let (calls, result) = calls(|url, count| match (url, count) {
            ("a", _) => status(404),
            (_, 20) => Ok(()),
            (_, _) => {
                part_bytes += PROGRESS_BYTES_MIN;
                cut(part_bytes)
            }
        });
        assert_eq!(calls.len(), 22);
        assert!(result.is_ok());
    }

    #[test]
    fn repeating_the_same_progress_does_not_count() {
        // A server without ranges, whose connection always breaks at the same offset.
        let (calls, result) = calls(|_, _| cut(5 << 20));
        assert_eq!(calls.concat(), "abababa");
        assert!(result.is_err());
    }

    #[test]
    fn nothing_helps_a_full_disk() {
        let (calls, result) = calls(|_, _| Err(Stop::Whole(FetchError::NoUrl { name: "x".to_owned() })));
        assert_eq!(calls.concat(), "a");
        assert!(result.is_err());
    }

    #[test]
    fn a_raised_flag_ends_a_long_pause() {
        let limits = Limits {
            pause_first: Duration::from_secs(3600),
            pause_max: Duration::from_secs(3600),
            ..limits()
        };
        let cancel = AtomicBool::new(false);
        let result = run("x", &["a".to_owned()], &limits, &cancel, &|_, _| {}, |_| {
            cancel.store(true, Ordering::Relaxed);
            status(503)
        });
        assert!(result.unwrap_err().is_cancelled());
    }
}
