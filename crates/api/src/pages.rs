//! The pages for people: which page an address means, what a form asks for, and logging in with a token.
//!
//! ```text
//! /                               the yards, or the run of the only one
//! /at/YARD/TARGET/runs/12         a page of a yard; `-` is the site's own yard, and its only target
//! /runs/12                        the same for `/at/-/-`
//! ```
//!
//! The site makes the pages; they work without scripts. A browser has no header for a token: a form takes the token, and a
//! cookie keeps it, which other sites' pages cannot use.

use crate::bodies::{Ask, Kind, OWN_YARD};
use crate::entrance::{COOKIE, is_cross_site};
use crate::queries::{At, LogOf, Order, PackageFilter, Viewer, listed};
use crate::requests::{Refusal, Trouble, allow};
use crate::server::Shared;
use crate::{Person, assets};
use axum::Form;
use axum::extract::rejection::FormRejection;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, Uri, header};
use axum::response::{IntoResponse, Redirect, Response};
use kilnyard_model::scope::Scope;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Scripts and styles are the server's own files, and nothing else is loaded, whatever a build gets onto a page. Attributes
/// that place bars are inline.
pub(crate) const POLICY: &str = "default-src 'none'; style-src 'self'; style-src-attr 'unsafe-inline'; script-src 'self'; \
                                 connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// The most rows of a page of packages.
const ROWS_MAX: usize = 200;
/// How long a browser keeps a token, in seconds; the token itself may end earlier.
const COOKIE_SECONDS: u32 = 30 * 86_400;

/// A page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// All yards, or the run of the only one.
    Start,
    /// All runs.
    Runs,
    /// A run; the last one if no number is given.
    Run(Option<u64>),
    /// The part of the page of a run that changes while it runs.
    Now(Option<u64>),
    /// The failures of a run.
    Failures(Option<u64>),
    /// The packages of a run.
    Packages(Option<u64>, PackageFilter),
    /// What waits.
    Queue,
    /// A package.
    Package(String),
    /// A log with numbered lines.
    Log(LogOf),
    /// Two runs.
    Compare(Option<u64>, Option<u64>),
    /// The workers.
    Workers,
    /// Times of the latest runs.
    Figures,
    /// What a search finds.
    Search(String),
}

/// The page that a path and its parameters mean. Absent if there is none.
pub fn wanted(path: &str, parameters: &BTreeMap<String, String>) -> Option<(At, Wanted)> {
    let segments: Option<Vec<String>> = path.trim_matches('/').split('/').map(decoded).collect();
    let segments = segments?;
    let mut words: Vec<&str> = segments.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
    let mut at = At::default();
    let is_named = words.first() == Some(&"at");
    if is_named {
        let (yard, target) = (*words.get(1)?, *words.get(2)?);
        at.yard = if yard == "-" { OWN_YARD.to_owned() } else { yard.to_owned() };
        at.target = (target != "-").then(|| target.to_owned());
        words.drain(..3);
    }
    let run = |word: &str| if word == "last" { Some(None) } else { word.parse().ok().map(Some) };
    let parameter = |name: &str| parameters.get(name).filter(|value| !value.is_empty());
    let number = |name: &str| match parameter(name) {
        None => Some(None),
        Some(value) => value.parse::<u64>().ok().map(Some),
    };
    let page = match words[..] {
        [] if is_named => Wanted::Run(None),
        [] => Wanted::Start,
        ["runs"] => Wanted::Runs,
        ["runs", number] => Wanted::Run(run(number)?),
        ["runs", number, "now"] => Wanted::Now(run(number)?),
        ["runs", number, "failures"] => Wanted::Failures(run(number)?),
        ["runs", number, "packages"] => {
            let order = match parameter("order").map(String::as_str) {
                None | Some("name") => Order::Name,
                Some("wall") => Order::Wall,
                Some("cpu") => Order::Cpu,
                Some("memory") => Order::Memory,
                Some("state") => Order::State,
                Some(_) => return None,
            };
            let filter = PackageFilter {
                states: listed(parameter("state").map(String::as_str)),
                text: parameter("name").cloned(),
                order,
                after: parameter("cursor").cloned(),
                count: ROWS_MAX,
            };
            Wanted::Packages(run(number)?, filter)
        }
        ["queue"] => Wanted::Queue,
        ["workers"] => Wanted::Workers,
        ["figures"] => Wanted::Figures,
        ["compare"] => Wanted::Compare(number("earlier")?, number("later")?),
        ["search"] => Wanted::Search(parameter("text").cloned().unwrap_or_default()),
        ["packages", ref name @ ..] if !name.is_empty() => Wanted::Package(name.join("/")),
        ["log", build, ref name @ ..] if !name.is_empty() => Wanted::Log(LogOf {
            package: name.join("/"),
            build: build.parse().ok()?,
            stage: parameter("stage").cloned(),
        }),
        _ => return None,
    };
    Some((at, page))
}

/// A segment of a path without percent-encoding. Absent if that is invalid.
fn decoded(segment: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(segment.len());
    let mut rest = segment.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digits = [rest.next()?, rest.next()?];
                let digits = std::str::from_utf8(&digits).ok()?;
                bytes.push(u8::from_str_radix(digits, 16).ok()?);
            }
            _ => bytes.push(byte),
        }
    }
    String::from_utf8(bytes).ok()
}

/// The beginning of the addresses of a yard's pages.
pub fn base(at: &At) -> String {
    match (at.yard.as_str(), &at.target) {
        (OWN_YARD, None) => String::new(),
        (yard, target) => {
            let yard = if yard == OWN_YARD { "-" } else { yard };
            // Names of yards and targets need no encoding.
            format!("/at/{yard}/{}", target.as_deref().unwrap_or("-"))
        }
    }
}

/// An HTML page.
fn html(status: StatusCode, text: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "same-origin"),
    ];
    (status, headers, text).into_response()
}

/// Answers with a page, or with the form to log in.
pub(crate) async fn page(
    State(shared): State<Arc<Shared>>,
    person: Result<Person, Refusal>,
    uri: Uri,
    parameters: Query<BTreeMap<String, String>>,
) -> Response {
    if uri.path().starts_with("/api/") {
        let why = "there is nothing here: see /api/v1/openapi".to_owned();
        return Refusal::new(StatusCode::NOT_FOUND, why).into_response();
    }
    if let Some(asset) = assets::find(uri.path()) {
        return asset;
    }
    let person = match person {
        Ok(person) => person,
        Err(refusal) if refusal.status() == StatusCode::UNAUTHORIZED => {
            let next = uri.path_and_query().map_or("/", |next| next.as_str());
            return html(StatusCode::UNAUTHORIZED, kilnyard_web::login(next, None));
        }
        Err(refusal) => return problem(refusal),
    };
    let Some((at, page)) = wanted(uri.path(), &parameters.0) else {
        return problem(Refusal::new(StatusCode::NOT_FOUND, "there is no such page".to_owned()));
    };
    let made = async {
        if page == Wanted::Start {
            let mut yards = shared.ask(|site| site.yards()).await?;
            yards.retain(|yard| person.may(Scope::Read, &yard.name));
            if let [yard] = &yards[..]
                && let [target] = &yard.targets[..]
            {
                let at = At { yard: yard.name.clone(), target: target.name.clone() };
                let viewer = viewer(&person, &at);
                return shared.ask(move |site| site.page(&at, &Wanted::Run(None), &viewer)).await;
            }
            let shown: Vec<kilnyard_web::YardEntry> = yards.iter().flat_map(entries).collect();
            return Ok(kilnyard_web::yards(&shown));
        }
        allow(&person, Scope::Read, &at.yard)?;
        let viewer = viewer(&person, &at);
        shared.ask(move |site| site.page(&at, &page, &viewer)).await
    };
    match made.await {
        Ok(text) => html(StatusCode::OK, text),
        Err(refusal) => problem(refusal),
    }
}

/// Whom a page of a yard is for.
fn viewer(person: &Person, at: &At) -> Viewer {
    Viewer {
        name: person.name.clone(),
        may_ask: person.name.is_some() && person.may(Scope::Request, &at.yard),
    }
}

/// Shows the form to log in.
pub(crate) async fn ask_to_log_in() -> Response {
    html(StatusCode::OK, kilnyard_web::login("/", None))
}

fn entries(yard: &crate::bodies::Yard) -> Vec<kilnyard_web::YardEntry> {
    let entry = |target: &crate::bodies::Target| kilnyard_web::YardEntry {
        name: yard.name.clone(),
        target: target.name.clone(),
        address: format!("{}/", base(&At { yard: yard.name.clone(), target: target.name.clone() })),
        run: target.run,
        state: target.state.clone(),
        trouble: None,
    };
    match &yard.trouble {
        None => yard.targets.iter().map(entry).collect(),
        Some(trouble) => vec![kilnyard_web::YardEntry {
            name: yard.name.clone(),
            trouble: Some(trouble.clone()),
            ..kilnyard_web::YardEntry::default()
        }],
    }
}

fn problem(refusal: Refusal) -> Response {
    let (status, why) = refusal.parts();
    html(status, kilnyard_web::problem(status.as_u16(), &why))
}

/// The form to log in.
#[derive(Deserialize)]
pub(crate) struct Login {
    token: String,
    #[serde(default)]
    next: String,
}

/// An address of this server, for a redirection: anything else leads to the start.
fn own_address(next: &str) -> &str {
    let is_plain = next.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    let is_own = next.starts_with('/') && !next.starts_with("//") && !next.starts_with("/login");
    if is_own && is_plain { next } else { "/" }
}

/// Takes a token, and has the browser keep it.
pub(crate) async fn log_in(
    State(shared): State<Arc<Shared>>,
    uri: Uri,
    headers: HeaderMap,
    form: Result<Form<Login>, FormRejection>,
) -> Response {
    let Ok(Form(Login { token, next })) = form else {
        return html(StatusCode::BAD_REQUEST, kilnyard_web::login("/", Some("the form has no token")));
    };
    let (token, next) = (token.trim().to_owned(), own_address(&next).to_owned());
    if is_cross_site(&headers, uri.authority().map(|authority| authority.as_str())) {
        return problem(Refusal::new(
            StatusCode::FORBIDDEN,
            "a page of another site makes this request".to_owned(),
        ));
    }
    match shared.tokens.person(&token, (shared.clock)() as u64) {
        Ok(Some(_)) => {
            let secure = if shared.is_secure { "; Secure" } else { "" };
            let cookie = format!(
                "{COOKIE}={token}; Path=/; HttpOnly; SameSite=Strict; Max-Age={COOKIE_SECONDS}{secure}"
            );
            let mut answer = Redirect::to(&next).into_response();
            // A token that the site knows is plain ASCII.
            if let Ok(cookie) = HeaderValue::from_str(&cookie) {
                answer.headers_mut().insert(header::SET_COOKIE, cookie);
            }
            answer
        }
        Ok(None) => {
            let why = "the token is unknown, was removed, or is over";
            html(StatusCode::UNAUTHORIZED, kilnyard_web::login(&next, Some(why)))
        }
        Err(error) => problem(Trouble::Machine(format!("the token: {error}")).into()),
    }
}

/// Has the browser forget its token.
pub(crate) async fn log_out(State(shared): State<Arc<Shared>>) -> Response {
    let secure = if shared.is_secure { "; Secure" } else { "" };
    let cookie = format!("{COOKIE}=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0{secure}");
    let mut answer = Redirect::to("/").into_response();
    if let Ok(cookie) = HeaderValue::from_str(&cookie) {
        answer.headers_mut().insert(header::SET_COOKIE, cookie);
    }
    answer
}

/// A button of a page.
#[derive(Deserialize)]
pub(crate) struct Button {
    yard: String,
    #[serde(default)]
    target: String,
    request: Kind,
    package: String,
    #[serde(default)]
    next: String,
}

/// Leaves the request of a button, and shows the page again.
pub(crate) async fn press(
    State(shared): State<Arc<Shared>>,
    person: Result<Person, Refusal>,
    uri: Uri,
    headers: HeaderMap,
    form: Result<Form<Button>, FormRejection>,
) -> Response {
    let asked = async {
        let person = person?;
        if is_cross_site(&headers, uri.authority().map(|authority| authority.as_str())) {
            let why = "a page of another site makes this request".to_owned();
            return Err(Refusal::new(StatusCode::FORBIDDEN, why));
        }
        let Ok(Form(button)) = form else {
            return Err(Refusal::new(StatusCode::BAD_REQUEST, "the form is incomplete".to_owned()));
        };
        allow(&person, Scope::Request, &button.yard)?;
        let author = person.author()?;
        let target = Some(button.target).filter(|target| !target.is_empty());
        let ask = Ask { yard: button.yard, target, request: button.request, packages: vec![button.package] };
        shared.ask(move |site| site.ask(&ask, &author)).await?;
        Ok(button.next)
    };
    match asked.await {
        Ok(next) => Redirect::to(own_address(&next)).into_response(),
        Err(refusal) => problem(refusal),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(path: &str) -> Option<(At, Wanted)> {
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        wanted(path, &pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    #[test]
    fn an_address_means_one_page() {
        let own = |page: Wanted| Some((At::default(), page));
        assert_eq!(of("/"), own(Wanted::Start));
        assert_eq!(of("/runs/12"), own(Wanted::Run(Some(12))));
        assert_eq!(of("/runs/last/failures"), own(Wanted::Failures(None)));
        assert_eq!(of("/packages/devel/zlib"), own(Wanted::Package("devel/zlib".to_owned())));
        assert_eq!(of("/packages/devel%2Fzlib"), own(Wanted::Package("devel/zlib".to_owned())));
        let log = LogOf { package: "a/b".to_owned(), build: 7, stage: Some("test".to_owned()) };
        assert_eq!(of("/log/7/a/b?stage=test"), own(Wanted::Log(log)));
        assert_eq!(of("/compare?later=3"), own(Wanted::Compare(None, Some(3))));
        let lab = At { yard: "lab".to_owned(), target: None };
        assert_eq!(of("/at/lab/-/queue"), Some((lab.clone(), Wanted::Queue)));
        let trixie = At { yard: OWN_YARD.to_owned(), target: Some("trixie".to_owned()) };
        assert_eq!(of("/at/-/trixie"), Some((trixie.clone(), Wanted::Run(None))));
        for at in [At::default(), lab, trixie] {
            assert_eq!(of(&format!("{}/workers", base(&at))), Some((at, Wanted::Workers)));
        }
        for absent in [
            "/runs/x",
            "/at/lab",
            "/packages",
            "/log/x/a",
            "/compare?later=x",
            "/a%zz",
            "/runs/1/packages?order=x",
        ] {
            assert_eq!(of(absent), None, "{absent}");
        }
    }

    #[test]
    fn a_redirection_stays_on_the_server() {
        assert_eq!(own_address("/runs/12?x=1"), "/runs/12?x=1");
        for foreign in
            ["//evil.example", "https://evil.example", "/\\evil.example", "", "/a\nb", "javascript:x"]
        {
            assert_eq!(own_address(foreign), "/", "{foreign:?}");
        }
    }
}
