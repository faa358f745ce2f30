//! Who makes a request.
//!
//! - A token, in `Authorization: Bearer`, or in the cookie of a browser that has logged in with it.
//! - The user's name in a header of a proxy that has logged them in. What reaches the server without the proxy could name
//!   anyone, from any account of this machine too; so the header counts only with a secret that the proxy adds.
//! - An anonymous client, which may do what the site allows to all.
//!
//! A header or token that does not count is an error, and not the same as none: a client that believes to be logged in does
//! not get the answers of an anonymous one.

use crate::tokens::Tokens;
use crate::{Person, is_person_name};
use axum::http::{HeaderMap, HeaderName, StatusCode, header};
use kilnyard_model::scope::Scope;
use std::collections::{BTreeMap, BTreeSet};
use subtle::ConstantTimeEq;

/// The header with the secret of the proxy.
pub const SECRET_HEADER: &str = "kilnyard-proxy-secret";
/// The cookie in which a browser keeps a token.
pub const COOKIE: &str = "kilnyard-token";
/// The least length of that secret, in bytes.
pub const SECRET_BYTES_MIN: usize = 32;

/// Whom a site lets in, apart from those with tokens.
#[derive(Clone, Debug, Default)]
pub struct Entrance {
    /// What everyone may do.
    pub anonymous: BTreeSet<Scope>,
    /// The proxy that says who makes a request.
    pub proxy: Option<Proxy>,
    /// Origins whose pages may ask, with a token of their own: `https://dashboard.example`.
    pub origins: BTreeSet<String>,
}

/// A proxy that logs people in.
#[derive(Clone)]
pub struct Proxy {
    /// The header with the user's name.
    pub header: HeaderName,
    /// What shows that a request came through the proxy.
    pub secret: String,
    /// What users may do that have no entry of their own.
    pub scopes: BTreeSet<Scope>,
    /// Users with entries of their own: what they may do, and where.
    pub users: BTreeMap<String, (BTreeSet<Scope>, Option<BTreeSet<String>>)>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Proxy").field("header", &self.header).finish_non_exhaustive()
    }
}

/// Why a request has no person.
pub type Refused = (StatusCode, String);

impl Entrance {
    /// The person of a request with these headers.
    ///
    /// # Errors
    /// What they say of a person does not count, or they say nothing and strangers may do nothing.
    pub fn person(&self, tokens: &Tokens, headers: &HeaderMap, now_seconds: u64) -> Result<Person, Refused> {
        let refused = |reason: &str| Err((StatusCode::UNAUTHORIZED, reason.to_owned()));
        let user = self.proxy.as_ref().and_then(|proxy| Some((proxy, headers.get(&proxy.header)?)));
        let secret = headers.get(SECRET_HEADER);
        match (headers.get(header::AUTHORIZATION), user) {
            // A program of a user behind a login has a token, too: it is the narrower of the two.
            (Some(value), _) => {
                let token = value.to_str().ok().and_then(|value| value.strip_prefix("Bearer "));
                let Some(token) = token else { return refused("the authorization is not `Bearer TOKEN`") };
                let person = tokens.person(token.trim(), now_seconds);
                let person = person
                    .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("the token: {error}")))?;
                person.map_or_else(|| refused("the token is unknown, was removed, or is over"), Ok)
            }
            (None, Some((proxy, user))) => {
                let is_proxy = secret.is_some_and(|secret| {
                    // Both lengths are no secret.
                    bool::from(secret.as_bytes().ct_eq(proxy.secret.as_bytes()))
                });
                if !is_proxy {
                    let reason =
                        format!("the header {} counts only with the proxy's {SECRET_HEADER}", proxy.header);
                    return refused(&reason);
                }
                if headers.get_all(&proxy.header).iter().nth(1).is_some() {
                    return refused("the proxy names two users: it has to replace the header of the client");
                }
                let name = user.to_str().ok().filter(|name| is_person_name(name));
                let Some(name) = name else { return refused("the proxy's name of the user cannot be one") };
                let own = proxy.users.get(name).cloned();
                let (scopes, yards) = own.unwrap_or_else(|| (proxy.scopes.clone(), None));
                Ok(Person { name: Some(name.to_owned()), scopes, yards })
            }
            (None, None) if secret.is_some() => refused("the proxy has named no user"),
            (None, None) if cookie(headers).is_some() => {
                let person = tokens.person(cookie(headers).unwrap_or_default(), now_seconds);
                let person = person
                    .map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, format!("the token: {error}")))?;
                match person {
                    Some(person) => Ok(person),
                    None if self.anonymous.is_empty() => {
                        refused("the token of this browser was removed, or is over")
                    }
                    // A browser sends it by itself, also long after it is over.
                    None => Ok(Person { name: None, scopes: self.anonymous.clone(), yards: None }),
                }
            }
            (None, None) if self.anonymous.is_empty() => {
                refused("a token is needed: Authorization: Bearer TOKEN")
            }
            (None, None) => Ok(Person { name: None, scopes: self.anonymous.clone(), yards: None }),
        }
    }
}

/// The token that a browser keeps.
fn cookie(headers: &HeaderMap) -> Option<&str> {
    let pairs = headers.get_all(header::COOKIE).into_iter().filter_map(|value| value.to_str().ok());
    let mut pairs = pairs.flat_map(|value| value.split(';')).filter_map(|pair| pair.trim().split_once('='));
    pairs.find(|(name, value)| *name == COOKIE && !value.is_empty()).map(|(_, value)| value)
}

/// Whether a browser says that a page of another site makes this request: a login at the proxy would count for it.
/// `authority` is that of the request's address, which HTTP/2 has instead of a header.
pub fn is_cross_site(headers: &HeaderMap, authority: Option<&str>) -> bool {
    let text = |name: &str| headers.get(name).map(|value| value.to_str().unwrap_or("invalid"));
    let is_foreign = text("sec-fetch-site").is_some_and(|site| !matches!(site, "same-origin" | "none"));
    let host = text("host").or(authority).unwrap_or("");
    let is_other = text("origin").is_some_and(|origin| {
        origin.split_once("://").is_none_or(|(_, origin)| !origin.eq_ignore_ascii_case(host))
    });
    is_foreign || is_other
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokens::Terms;

    const SECRET: &str = "0123456789abcdef0123456789abcdef";

    fn entrance() -> Entrance {
        let of_anna = ([Scope::Request].into(), Some(["lab".to_owned()].into()));
        let proxy = Proxy {
            header: HeaderName::from_static("x-remote-user"),
            secret: SECRET.to_owned(),
            scopes: [Scope::Read].into(),
            users: [("anna".to_owned(), of_anna)].into(),
        };
        Entrance { proxy: Some(proxy), ..Entrance::default() }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn the_proxys_user_counts_with_its_secret_alone() {
        let (folder, entrance) = (tempfile::tempdir().unwrap(), entrance());
        let tokens = Tokens::open(folder.path());
        let person = |pairs: &[(&'static str, &str)]| entrance.person(&tokens, &headers(pairs), 1);
        let anna = person(&[("x-remote-user", "anna"), (SECRET_HEADER, SECRET)]).unwrap();
        assert!(anna.may(Scope::Request, "lab") && anna.may(Scope::Read, "lab"));
        assert!(!anna.may(Scope::Request, "") && !anna.may(Scope::Read, "other"));
        let bob = person(&[("x-remote-user", "bob"), (SECRET_HEADER, SECRET)]).unwrap();
        assert!(bob.may(Scope::Read, "lab") && !bob.may(Scope::Request, "lab"));
        let shorter = &SECRET[..31];
        for (pairs, reason) in [
            (&[("x-remote-user", "anna")][..], "counts only with"),
            (&[("x-remote-user", "anna"), (SECRET_HEADER, shorter)], "counts only with"),
            (&[("x-remote-user", "anna"), (SECRET_HEADER, "")], "counts only with"),
            (
                &[("x-remote-user", "anna"), ("x-remote-user", "bob"), (SECRET_HEADER, SECRET)],
                "names two users",
            ),
            (&[("x-remote-user", "anna smith"), (SECRET_HEADER, SECRET)], "cannot be one"),
            (&[("x-remote-user", ""), (SECRET_HEADER, SECRET)], "cannot be one"),
            (&[(SECRET_HEADER, SECRET)], "named no user"),
            (&[("x-forwarded-user", "anna")], "a token is needed"),
            (&[("authorization", "Basic YTpi")], "not `Bearer"),
            (
                &[("authorization", "Bearer x"), ("x-remote-user", "anna"), (SECRET_HEADER, SECRET)],
                "is unknown",
            ),
        ] {
            let (status, why) = person(pairs).unwrap_err();
            assert!(status == StatusCode::UNAUTHORIZED && why.contains(reason), "{pairs:?}: {why}");
        }
        // Without a proxy, its header is nothing, and what all may do is not more for it.
        let open = Entrance { anonymous: [Scope::Read].into(), ..Entrance::default() };
        let anonymous = open.person(&tokens, &headers(&[("x-remote-user", "anna")]), 1).unwrap();
        assert_eq!((anonymous.name.as_deref(), anonymous.may(Scope::Request, "")), (None, false));
    }

    #[test]
    fn a_token_is_for_its_yards_alone() {
        let (folder, entrance) = (tempfile::tempdir().unwrap(), entrance());
        let tokens = Tokens::open(folder.path());
        let yards = Some(["lab".to_owned()].into());
        let terms = Terms { name: "bot".to_owned(), scopes: [Scope::Read].into(), yards, ends_seconds: 9 };
        let (_, text) = tokens.issue(terms, 1).unwrap();
        let with =
            |now| entrance.person(&tokens, &headers(&[("authorization", &format!("Bearer {text}"))]), now);
        let bot = with(1).unwrap();
        assert!(bot.may(Scope::Read, "lab") && !bot.may(Scope::Read, ""));
        assert!(!bot.may(Scope::Request, "lab"));
        assert!(with(9).unwrap_err().1.contains("is over"));
    }

    #[test]
    fn requests_of_other_sites_pages_are_recognized() {
        for (pairs, expected) in [
            (&[("host", "kiln.example")][..], false),
            (&[("host", "kiln.example"), ("origin", "https://kiln.example")], false),
            (&[("host", "kiln.example"), ("origin", "https://evil.example")], true),
            (&[("host", "kiln.example"), ("origin", "null")], true),
            (&[("host", "kiln.example"), ("sec-fetch-site", "cross-site")], true),
            (&[("host", "kiln.example"), ("sec-fetch-site", "same-site")], true),
            (&[("host", "kiln.example"), ("sec-fetch-site", "same-origin")], false),
        ] {
            assert_eq!(is_cross_site(&headers(pairs), None), expected, "{pairs:?}");
        }
        let own = headers(&[("origin", "https://kiln.example")]);
        assert!(!is_cross_site(&own, Some("kiln.example")) && is_cross_site(&own, Some("other.example")));
    }
}
