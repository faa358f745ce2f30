//! The mirror of a site: files are asked for there first, and at their origins if it does not have them or does not answer.
//!
//! The mirror says which archives it serves and where these are from ([`Site::urls`]). What a package's own commands have fetched
//! elsewhere is offered to it ([`Site::offer`]); if that fails, nothing else does.

use crate::error::without_password;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long the mirror may take to connect and to answer: it is near.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// How long a list of pins may take: a run does not end before.
const PIN_MAX: Duration = Duration::from_secs(20);
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long an upload may take.
const UPLOAD_MAX: Duration = Duration::from_secs(30 * 60);
/// After how long a mirror that did not answer is asked again.
const AWAY: Duration = Duration::from_secs(60);
/// The largest description, in bytes.
const DESCRIPTION_BYTES_MAX: u64 = 1 << 20;
/// The header of a request for what the mirror has itself.
const ONLY_HERE: &str = "kilnyard-only-here";

/// See the module documentation.
#[derive(Debug)]
pub struct Site {
    url: String,
    token: Option<String>,
    agent: ureq::Agent,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    serves: Option<Serves>,
    away: Option<Instant>,
}

/// What a mirror says of itself.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Serves {
    archives: BTreeMap<String, Vec<String>>,
    distfiles: bool,
}

impl Serves {
    /// The path at the mirror of the file with this address.
    fn path_of(&self, url: &str) -> Option<String> {
        self.archives.iter().find_map(|(name, origins)| {
            let rest = origins.iter().find_map(|origin| below(url, origin))?;
            Some(format!("{name}/{rest}"))
        })
    }
}

/// The result of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offered {
    /// The mirror has it now.
    Taken,
    /// It had it, or does not want it.
    Unneeded,
}

impl Site {
    /// The mirror at this address; with a token for uploads, it gets distfiles.
    pub fn new(url: &str, token: Option<String>) -> Site {
        let agent = ureq::Agent::config_builder()
            .proxy(None)
            .http_status_as_error(false)
            .max_redirects(0)
            .timeout_connect(Some(CONNECT_MAX))
            .timeout_recv_response(Some(ANSWER_MAX))
            .build()
            .new_agent();
        Site { url: url.trim_end_matches('/').to_owned(), token, agent, state: Mutex::default() }
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What it serves; none while it does not answer.
    fn serves(&self) -> Option<Serves> {
        let mut state = self.state();
        if state.away.is_some_and(|since| since.elapsed() < AWAY) {
            return None;
        }
        if state.serves.is_none() {
            // Under the lock, so that others do not ask, too.
            match self.describe() {
                Some(serves) => (state.serves, state.away) = (Some(serves), None),
                None => state.away = Some(Instant::now()),
            }
        }
        state.serves.clone()
    }

    fn describe(&self) -> Option<Serves> {
        let answer = self.agent.get(format!("{}/", self.url)).call().ok()?;
        let body = answer.into_body().into_with_config().limit(DESCRIPTION_BYTES_MAX).read_to_vec().ok()?;
        serde_json::from_slice(&body).ok()
    }

    /// Whether it answers.
    pub fn answers(&self) -> bool {
        self.serves().is_some()
    }

    /// Whether this is an address of the mirror.
    pub(crate) fn is_at(&self, url: &str) -> bool {
        url.strip_prefix(&self.url).is_some_and(|rest| rest.starts_with('/'))
    }

    /// Notes that it did not answer: it is not asked for a while.
    pub(crate) fn note_away(&self) {
        self.state().away = Some(Instant::now());
    }

    /// These addresses, after those of the same files at the mirror.
    pub fn urls(&self, urls: &[String]) -> Vec<String> {
        let Some(serves) = self.serves() else { return urls.to_vec() };
        let at_mirror = urls.iter().find_map(|url| serves.path_of(url));
        let at_mirror = at_mirror.map(|path| format!("{}/{path}", self.url));
        at_mirror.into_iter().chain(urls.iter().cloned()).collect()
    }

    /// Has the mirror keep files for a day, whatever their age, in place of those that the name had: of these addresses, and of these paths
    /// below its distfiles. Nothing is done without a token.
    ///
    /// # Errors
    /// A sentence without its full stop.
    pub fn pin(&self, name: &str, places: &[String]) -> Result<(), String> {
        let (Some(serves), Some(token)) = (self.serves(), &self.token) else { return Ok(()) };
        let path = |place: &String| match place.contains("://") {
            true => serves.path_of(place),
            false => serves.distfiles.then(|| format!("distfiles/{place}")),
        };
        let list: String = places.iter().filter_map(path).map(|path| path + "\n").collect();
        let request = self.agent.put(format!("{}/pins/{name}", self.url));
        let request = request.config().timeout_global(Some(PIN_MAX)).build();
        self.said(request.header("Authorization", format!("Bearer {token}")).send(list))
    }

    /// Ends what [`Site::pin`] began.
    ///
    /// # Errors
    /// A sentence without its full stop.
    pub fn unpin(&self, name: &str) -> Result<(), String> {
        let (Some(_), Some(token)) = (self.serves(), &self.token) else { return Ok(()) };
        let request = self.agent.delete(format!("{}/pins/{name}", self.url));
        let request = request.config().timeout_global(Some(PIN_MAX)).build();
        self.said(request.header("Authorization", format!("Bearer {token}")).call())
    }

    fn said(&self, answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<(), String> {
        match answer.map_err(|error| without_password(&error.to_string()))?.status().as_u16() {
            200 => Ok(()),
            status => Err(format!("the mirror answers {status}")),
        }
    }

    /// The address of its distfiles, with a slash at its end; none if it has none, or does not answer.
    pub fn distfiles(&self) -> Option<String> {
        self.serves().filter(|serves| serves.distfiles).map(|_| format!("{}/distfiles/", self.url))
    }

    /// Writes a distfile that the mirror has to a file; false if it has none of this name. Nothing is fetched from elsewhere for it, and
    /// nothing is verified.
    ///
    /// # Errors
    /// A sentence without its full stop.
    pub fn take(&self, name: &str, size_bytes_max: u64, to: &Path) -> Result<bool, String> {
        let Some(distfiles) = self.distfiles() else { return Ok(false) };
        let url = format!("{distfiles}{}", escaped(name));
        let said = |error: ureq::Error| without_password(&error.to_string());
        let request = self.agent.get(&url).header(ONLY_HERE, "1");
        let request = request.config().timeout_global(Some(UPLOAD_MAX)).build();
        let mut answer = request.call().map_err(said)?;
        match answer.status().as_u16() {
            200 => {}
            404 => return Ok(false),
            status => return Err(format!("the mirror answers {status}")),
        }
        let mut file = std::fs::File::create(to).map_err(|error| error.to_string())?;
        let mut content = std::io::Read::take(answer.body_mut().as_reader(), size_bytes_max);
        std::io::copy(&mut content, &mut file).map_err(|error| error.to_string())?;
        Ok(true)
    }

    /// Uploads a distfile, unless the mirror has one of this name. Without a token, nothing is uploaded.
    ///
    /// # Errors
    /// A sentence without its full stop.
    pub fn offer(&self, name: &str, path: &Path) -> Result<Offered, String> {
        let (Some(distfiles), Some(token)) = (self.distfiles(), &self.token) else {
            return Ok(Offered::Unneeded);
        };
        let url = format!("{distfiles}{}", escaped(name));
        let said = |error: ureq::Error| without_password(&error.to_string());
        let known = self.agent.head(&url).header(ONLY_HERE, "1").call().map_err(said)?;
        if known.status().as_u16() != 404 {
            return Ok(Offered::Unneeded);
        }
        let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
        let request = self.agent.put(&url).header("Authorization", format!("Bearer {token}"));
        let request = request.config().timeout_global(Some(UPLOAD_MAX)).timeout_recv_response(None).build();
        let mut answer = request.send(file).map_err(said)?;
        match answer.status().as_u16() {
            200 | 201 => Ok(Offered::Taken),
            // A list of checksums does not have it, or another worker uploads it.
            403 | 409 => Ok(Offered::Unneeded),
            status => {
                let reason = answer.body_mut().read_to_string().unwrap_or_default();
                Err(format!("the mirror answers {status}: {}", reason.trim_end()))
            }
        }
    }
}

/// The path of an address below an origin, if it is. Schemes, users and passwords do not count.
fn below<'a>(url: &'a str, origin: &str) -> Option<&'a str> {
    let place = |url: &str| -> Option<usize> {
        let start = url.find("://")? + 3;
        let end = url[start..].find('/').map_or(url.len(), |at| start + at);
        Some(url[start..end].rfind('@').map_or(start, |at| start + at + 1))
    };
    let origin = origin.trim_end_matches('/');
    let (url, origin) = (&url[place(url)?..], &origin[place(origin)?..]);
    let (host, path) = origin.split_at(origin.find('/').unwrap_or(origin.len()));
    let rest = url.get(..host.len()).filter(|start| start.eq_ignore_ascii_case(host))?;
    url[rest.len()..].strip_prefix(path)?.strip_prefix('/')
}

/// A name as part of an address.
fn escaped(name: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    name.bytes().fold(String::new(), |text, byte| match is_plain(byte) {
        true => text + &char::from(byte).to_string(),
        false => text + &format!("%{byte:02X}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_an_archive_are_at_the_mirror_first() {
        let site = Site::new("http://mirror:3142/", None);
        let archives =
            BTreeMap::from([("debian".to_owned(), vec!["https://u:p@Deb.example/debian/".to_owned()])]);
        site.state().serves = Some(Serves { archives, distfiles: true });
        let urls = |urls: &[&str]| site.urls(&urls.iter().map(|url| (*url).to_owned()).collect::<Vec<_>>());
        assert_eq!(
            urls(&["http://deb.example/debian/pool/a.deb", "http://other.example/debian/pool/a.deb"]),
            [
                "http://mirror:3142/debian/pool/a.deb",
                "http://deb.example/debian/pool/a.deb",
                "http://other.example/debian/pool/a.deb"
            ]
        );
        for other in [
            "http://deb.example/debianx/a",
            "http://deb.example.evil/debian/a",
            "http://deb.example/debian",
            "file:///debian/a",
            "http://x@deb.example:81/debian/a",
        ] {
            assert_eq!(urls(&[other]), [other]);
        }
        assert_eq!(site.distfiles().as_deref(), Some("http://mirror:3142/distfiles/"));
        assert!(site.is_at("http://mirror:3142/debian/a") && !site.is_at("http://mirror:31420/debian/a"));
        site.note_away();
        assert_eq!(urls(&["http://deb.example/debian/pool/a.deb"]).len(), 1);
        assert_eq!(escaped("sub/a+b (1).tgz"), "sub/a%2Bb%20%281%29.tgz");
    }

    #[test]
    fn a_mirror_that_is_away_costs_nothing_but_itself() {
        let site = Site::new("http://127.0.0.1:1", Some("t".to_owned()));
        let url = "http://deb.example/debian/a".to_owned();
        assert_eq!(site.urls(std::slice::from_ref(&url)), [url]);
        assert_eq!((site.distfiles(), site.answers()), (None, false));
        assert_eq!(site.offer("a", Path::new("/nonexistent")), Ok(Offered::Unneeded));
    }
}
