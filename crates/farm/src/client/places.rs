//! The servers of a farm, as a worker knows them: it uses one, and turns to another when that fails or refers it there.

use crate::client::ClientError;
use reqwest::Url;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The most servers that a worker knows.
const PLACES_MAX: usize = 16;

/// For how long a server that did not answer is not turned to because another one refers to it. That one has the run itself
/// ten seconds after it has not heard of the first, and until then does not know better.
const SILENT: Duration = Duration::from_secs(12);

/// See the module documentation.
#[derive(Clone, Debug)]
pub(super) struct Places {
    /// Never empty: the first one is in use.
    urls: VecDeque<Url>,
    /// The one that did not answer last, and when.
    silent: Option<(Url, Instant)>,
}

/// The address of a server.
pub(super) fn address(text: &str) -> Result<Url, ClientError> {
    let parsed = Url::parse(text).ok().filter(|url| url.scheme() == "https" && url.host().is_some());
    parsed.ok_or_else(|| ClientError::Address(text.to_owned()))
}

impl Places {
    pub(super) fn new(first: Url) -> Places {
        Places { urls: VecDeque::from([first]), silent: None }
    }

    /// The server in use.
    pub(super) fn current(&self) -> &Url {
        &self.urls[0]
    }

    /// The addresses of all, that in use first.
    pub(super) fn all(&self) -> Vec<String> {
        let text = |url: &Url| url.as_str().trim_end_matches('/').to_owned();
        self.urls.iter().map(text).collect()
    }

    /// Learns addresses. What is not one is left out.
    pub(super) fn learn(&mut self, addresses: &[String]) {
        for url in addresses.iter().filter_map(|text| address(text).ok()) {
            if !self.urls.contains(&url) {
                // The one after that in use is the one that was used longest ago.
                if self.urls.len() >= PLACES_MAX {
                    self.urls.remove(1);
                }
                self.urls.push_back(url);
            }
        }
    }

    /// A server did not answer.
    pub(super) fn note_silent(&mut self, url: &Url) {
        self.silent = Some((url.clone(), Instant::now()));
    }

    /// A server has answered.
    pub(super) fn note_answer(&mut self, url: &Url) {
        self.silent = self.silent.take().filter(|(silent, _)| silent != url);
    }

    fn is_silent(&self, url: &Url) -> bool {
        self.silent.as_ref().is_some_and(|(silent, since)| silent == url && since.elapsed() < SILENT)
    }

    /// Turns from a server to this one, or to the next. Returns whether another one is in use now. If another thread has
    /// turned from it already, nothing changes.
    pub(super) fn turn(&mut self, from: &Url, to: Option<&str>) -> bool {
        if self.current() != from {
            return true;
        }
        if let Some(to) = to.and_then(|to| address(to).ok()) {
            if self.is_silent(&to) {
                return false;
            }
            self.learn(&[to.to_string()]);
            if let Some(at) = self.urls.iter().position(|known| *known == to) {
                self.urls.rotate_left(at);
                return at > 0;
            }
        }
        self.urls.rotate_left(1);
        self.urls.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_turns_to_the_next_server_or_the_one_that_it_is_referred_to() {
        let url = |name: &str| address(&format!("https://{name}:1")).unwrap();
        let mut places = Places::new(url("one"));
        assert!(!places.turn(&url("one"), None), "there is no other");
        places.learn(&["https://two:1".into(), "http://three:1".into(), "https://two:1".into()]);
        assert_eq!(places.all(), ["https://one:1", "https://two:1"]);
        assert!(places.turn(&url("one"), None) && *places.current() == url("two"));
        // Another thread was slower.
        assert!(places.turn(&url("one"), None) && *places.current() == url("two"));
        assert!(places.turn(&url("two"), Some("https://four:1/")) && *places.current() == url("four"));
        assert!(!places.turn(&url("four"), Some("https://four:1")));
        assert!(places.turn(&url("four"), Some("file:///etc")));
        // One that does not answer is not turned to for a while, whatever others say.
        let four = url("four");
        places.note_silent(&four);
        let from = places.current().clone();
        assert!(!places.turn(&from, Some("https://four:1")) && *places.current() == from);
        places.note_answer(&four);
        assert!(places.turn(&from, Some("https://four:1")) && *places.current() == four);
        for number in 0..100 {
            places.learn(&[format!("https://{number}:1")]);
        }
        assert_eq!(places.all().len(), PLACES_MAX);
    }
}
