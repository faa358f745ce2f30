//! The servers of a farm, as a worker knows them: it uses one, and turns to another when that fails or refers it there.

use crate::client::ClientError;
use reqwest::Url;
use std::collections::VecDeque;

/// The most servers that a worker knows.
const PLACES_MAX: usize = 16;

/// See the module documentation. Never empty: the first one is in use.
#[derive(Clone, Debug)]
pub(super) struct Places(VecDeque<Url>);

/// The address of a server.
pub(super) fn address(text: &str) -> Result<Url, ClientError> {
    let parsed = Url::parse(text).ok().filter(|url| url.scheme() == "https" && url.host().is_some());
    parsed.ok_or_else(|| ClientError::Address(text.to_owned()))
}

impl Places {
    pub(super) fn new(first: Url) -> Places {
        Places(VecDeque::from([first]))
    }

    /// The server in use.
    pub(super) fn current(&self) -> &Url {
        &self.0[0]
    }

    /// The addresses of all, that in use first.
    pub(super) fn all(&self) -> Vec<String> {
        let text = |url: &Url| url.as_str().trim_end_matches('/').to_owned();
        self.0.iter().map(text).collect()
    }

    /// Learns addresses. What is not one is left out.
    pub(super) fn learn(&mut self, addresses: &[String]) {
        for url in addresses.iter().filter_map(|text| address(text).ok()) {
            if !self.0.contains(&url) {
                // The one after that in use is the one that was used longest ago.
                if self.0.len() >= PLACES_MAX {
                    self.0.remove(1);
                }
                self.0.push_back(url);
            }
        }
    }

    /// Turns from a server to this one, or to the next. Returns whether another one is in use now. If another thread has
    /// turned from it already, nothing changes.
    pub(super) fn turn(&mut self, from: &Url, to: Option<&str>) -> bool {
        if self.current() != from {
            return true;
        }
        if let Some(to) = to.and_then(|to| address(to).ok()) {
            self.learn(&[to.to_string()]);
            if let Some(at) = self.0.iter().position(|known| *known == to) {
                self.0.rotate_left(at);
                return at > 0;
            }
        }
        self.0.rotate_left(1);
        self.0.len() > 1
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
        for number in 0..100 {
            places.learn(&[format!("https://{number}:1")]);
        }
        assert_eq!(places.all().len(), PLACES_MAX);
    }
}
