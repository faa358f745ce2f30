//! Who the requests of people and programs are answered for, and what changes something (`/api/v1`).

use crate::bodies::{Ask, Asked, Hold, Made, OWN_YARD, Of, Refused, Who, Yard};
use crate::entrance::is_cross_site;
use crate::queries::Facts;
use crate::server::Shared;
use crate::{Person, answers, conditional, pages};
use axum::extract::rejection::{JsonRejection, PathRejection, QueryRejection};
use axum::extract::{DefaultBodyLimit, FromRequestParts, Query, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::{Json, Router};
use kilnyard_farm::connections::Place;
use kilnyard_model::scope::Scope;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tower_http::cors::CorsLayer;
use utoipa::openapi::security::{Http, HttpAuthScheme, SecurityScheme};
use utoipa::openapi::{Components, Info, License, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The largest body of a request.
const BODY_BYTES_MAX: usize = 64 << 10;
/// The most packages of one request.
const PACKAGES_MAX: usize = 500;
/// The most requests that are listed at once.
const LISTED_MAX: u32 = 1000;
/// The description of all requests.
const ABOUT: &str = "People and their programs are the clients, with a token (`kilnyard people token`) or through a proxy that \
                     logs them in. A refusal has a JSON body with the reason. What a person may not see is not found.";

/// Answers for the yards of a site. The caller has checked who asks.
pub trait Site: Facts {
    /// The yards, and what they do.
    ///
    /// # Errors
    /// The site's configuration cannot be read.
    fn yards(&self) -> Result<Vec<Yard>, Trouble>;
    /// Leaves a request for the run of a yard, or its next one.
    ///
    /// # Errors
    /// There is no such yard, target or package, or there is nothing to do.
    fn ask(&self, ask: &Ask, author: &str) -> Result<Asked, Trouble>;
    /// The latest requests of a yard, the oldest first.
    ///
    /// # Errors
    /// There is no such yard or target.
    fn made(&self, of: &Of) -> Result<Vec<Made>, Trouble>;
}

/// Why a site cannot answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// What the request names does not exist.
    Absent(String),
    /// It exists, and the request cannot be carried out.
    Refused(String),
    /// The machine, a disk or a database failed.
    Machine(String),
}

/// A request that is refused, with the reason.
#[derive(Debug)]
pub struct Refusal(StatusCode, String);

impl Refusal {
    pub(crate) fn new(status: StatusCode, why: String) -> Refusal {
        Refusal(status, why)
    }

    pub(crate) fn status(&self) -> StatusCode {
        self.0
    }

    pub(crate) fn parts(self) -> (StatusCode, String) {
        (self.0, self.1)
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut answer = (self.0, Json(Refused { error: self.1 })).into_response();
        if self.0 == StatusCode::UNAUTHORIZED {
            answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

impl From<Trouble> for Refusal {
    fn from(trouble: Trouble) -> Refusal {
        match trouble {
            Trouble::Absent(why) => Refusal(StatusCode::NOT_FOUND, why),
            Trouble::Refused(why) => Refusal(StatusCode::CONFLICT, why),
            Trouble::Machine(why) => Refusal(StatusCode::INTERNAL_SERVER_ERROR, why),
        }
    }
}

impl From<JsonRejection> for Refusal {
    fn from(rejection: JsonRejection) -> Refusal {
        Refusal(rejection.status(), rejection.body_text())
    }
}

impl From<QueryRejection> for Refusal {
    fn from(rejection: QueryRejection) -> Refusal {
        Refusal(rejection.status(), rejection.body_text())
    }
}

impl From<PathRejection> for Refusal {
    fn from(rejection: PathRejection) -> Refusal {
        Refusal(rejection.status(), rejection.body_text())
    }
}

impl Person {
    /// The author of requests.
    ///
    /// # Errors
    /// They have no name.
    pub(crate) fn author(&self) -> Result<String, Refusal> {
        self.name
            .clone()
            .ok_or_else(|| Refusal(StatusCode::FORBIDDEN, "a request needs an author".to_owned()))
    }
}

impl FromRequestParts<Arc<Shared>> for Person {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, shared: &Arc<Shared>) -> Result<Person, Refusal> {
        let person = shared.entrance.person(&shared.tokens, &parts.headers, (shared.clock)() as u64);
        let person = person.map_err(|(status, why)| Refusal(status, why))?;
        if let Some(place) = parts.extensions.get::<Arc<Place>>() {
            // Where all may read, the readers at one address share the places of one person.
            match &person.name {
                Some(name) => place.is_of(name),
                None => place.is_of(&format!("the readers at {}", place.address())),
            }
        }
        Ok(person)
    }
}

/// Refuses what a person may not do in a yard. What they may not see does not exist for them.
pub(crate) fn allow(person: &Person, scope: Scope, yard: &str) -> Result<(), Refusal> {
    if !person.may(Scope::Read, yard) {
        return Err(Refusal(StatusCode::NOT_FOUND, format!("there is no yard {yard:?} here")));
    }
    match person.may(scope, yard) {
        true => Ok(()),
        false => Err(Refusal(StatusCode::FORBIDDEN, format!("the scope `{scope}` is needed"))),
    }
}

/// Whether the person of a request that is answered for a long time may still read a yard.
pub(crate) fn may_still_read(shared: &Shared, headers: &HeaderMap, yard: &str) -> bool {
    let person = shared.entrance.person(&shared.tokens, headers, (shared.clock)() as u64);
    person.is_ok_and(|person| person.may(Scope::Read, yard))
}

/// The requests and pages, and their handlers.
pub(crate) fn router(shared: Arc<Shared>) -> Router {
    let (router, _) = described().split_for_parts();
    let origins = shared.entrance.origins.clone();
    let router = router
        .route("/login", axum::routing::get(pages::ask_to_log_in).post(pages::log_in))
        .route("/logout", axum::routing::post(pages::log_out))
        .route("/do", axum::routing::post(pages::press))
        .fallback(pages::page)
        .layer(axum::middleware::map_response(with_headers))
        .layer(axum::middleware::from_fn(conditional::answer))
        .with_state(shared);
    match cross_origin(&origins) {
        Some(layer) => router.layer(layer),
        None => router,
    }
}

/// What pages of other origins may read, with a token of their own: a browser does not send its cookie, or a login at a proxy,
/// for them.
fn cross_origin(origins: &BTreeSet<String>) -> Option<CorsLayer> {
    let origins: Vec<HeaderValue> = origins.iter().filter_map(|origin| origin.parse().ok()).collect();
    (!origins.is_empty()).then(|| {
        CorsLayer::new()
            .allow_origin(origins)
            .allow_methods([Method::GET, Method::POST])
            .allow_headers([
                header::AUTHORIZATION,
                header::CONTENT_TYPE,
                header::IF_NONE_MATCH,
                header::RANGE,
                HeaderName::from_static("last-event-id"),
            ])
            .expose_headers([header::ETAG, header::CONTENT_RANGE])
            .max_age(PREFLIGHT_MAX)
    })
}

/// How long a browser remembers what pages of other origins may do.
const PREFLIGHT_MAX: Duration = Duration::from_secs(600);

/// Answers are for one person, and are not to be taken for anything but what they are. They may be kept if the server is asked
/// each time whether they still hold.
async fn with_headers(mut answer: Response) -> Response {
    let headers = answer.headers_mut();
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("private, no-cache"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// The requests as an OpenAPI 3.1 document in JSON.
///
/// # Errors
/// The document cannot be written as JSON.
pub fn openapi() -> std::io::Result<String> {
    described().into_openapi().to_pretty_json().map_err(std::io::Error::other)
}

/// The requests, their handlers and their descriptions, which are made from the same functions and types.
fn described() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::with_openapi(document())
        .routes(routes!(document_of_requests))
        .routes(routes!(who))
        .routes(routes!(yards))
        .routes(routes!(made, ask))
        .routes(routes!(hold))
        .merge(answers::described())
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
}

/// What is not said of a single request.
fn document() -> OpenApi {
    let info = Info::builder()
        .title("The API of a Kilnyard site")
        .description(Some(ABOUT))
        .version("1")
        .license(Some(License::new("MIT OR Apache-2.0")));
    let token = Http::builder().scheme(HttpAuthScheme::Bearer).description(Some("The token of a person."));
    let schemes = Components::builder().security_scheme("token", SecurityScheme::Http(token.build()));
    OpenApi::builder().info(info.build()).components(Some(schemes.build())).build()
}

/// Describes the requests.
#[utoipa::path(
    get,
    path = "/api/v1/openapi",
    responses((status = 200, description = "This document.", content_type = "application/json")),
)]
async fn document_of_requests() -> Result<Response, Refusal> {
    let text = openapi().map_err(|error| Trouble::Machine(error.to_string()))?;
    Ok(([(header::CONTENT_TYPE, "application/json")], text).into_response())
}

/// Says who makes this request, and what they may do.
#[utoipa::path(
    get,
    path = "/api/v1/who",
    responses(
        (status = 200, description = "The person.", body = Who),
        (status = 401, description = "The token or login does not count.", body = Refused),
    ),
    security(("token" = [])),
)]
async fn who(person: Person) -> Json<Who> {
    let Person { name, scopes, yards } = person;
    Json(Who { name, scopes, yards })
}

/// Lists the yards that the person may see.
#[utoipa::path(
    get,
    path = "/api/v1/yards",
    responses(
        (status = 200, description = "The yards.", body = Vec<Yard>),
        (status = "default", description = "A refusal.", body = Refused),
    ),
    security(("token" = [])),
)]
async fn yards(State(shared): State<Arc<Shared>>, person: Person) -> Result<Json<Vec<Yard>>, Refusal> {
    let mut yards = shared.ask(|site| site.yards()).await?;
    yards.retain(|yard| person.may(Scope::Read, &yard.name));
    Ok(Json(yards))
}

/// Lists the latest requests of a yard with their authors, the oldest first.
#[utoipa::path(
    get,
    path = "/api/v1/requests",
    params(Of),
    responses(
        (status = 200, description = "The requests.", body = Vec<Made>),
        (status = "default", description = "A refusal.", body = Refused),
    ),
    security(("token" = [])),
)]
async fn made(
    State(shared): State<Arc<Shared>>,
    person: Person,
    of: Result<Query<Of>, QueryRejection>,
) -> Result<Json<Vec<Made>>, Refusal> {
    let Query(mut of) = of?;
    allow(&person, Scope::Read, &of.yard)?;
    of.count = of.count.min(LISTED_MAX);
    Ok(Json(shared.ask(move |site| site.made(&of)).await?))
}

/// Asks the run of a yard, or its next one, to retry, skip or bump packages.
///
/// All of them, or none if one is unknown or there is nothing to do for it.
#[utoipa::path(
    post,
    path = "/api/v1/requests",
    request_body = Ask,
    responses(
        (status = 202, description = "The request is recorded, with its author.", body = Asked),
        (status = 403, description = "The scope `request` is missing.", body = Refused),
        (status = 404, description = "There is no such yard, target or package.", body = Refused),
        (status = 409, description = "There is nothing to do, such as a retry of what did not fail.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("token" = [])),
)]
async fn ask(
    State(shared): State<Arc<Shared>>,
    person: Person,
    uri: Uri,
    headers: HeaderMap,
    ask: Result<Json<Ask>, JsonRejection>,
) -> Result<(StatusCode, Json<Asked>), Refusal> {
    refuse_cross_site(&shared, &headers, &uri)?;
    let Json(ask) = ask?;
    allow(&person, Scope::Request, &ask.yard)?;
    let author = person.author()?;
    if ask.packages.is_empty() || ask.packages.len() > PACKAGES_MAX {
        let why = format!("a request is for 1 to {PACKAGES_MAX} packages");
        return Err(Refusal(StatusCode::UNPROCESSABLE_ENTITY, why));
    }
    let asked = shared.ask(move |site| site.ask(&ask, &author)).await?;
    Ok((StatusCode::ACCEPTED, Json(asked)))
}

/// Refuses a request that a page of another site makes, unless its origin may ask and it brings a token of its own.
fn refuse_cross_site(shared: &Shared, headers: &HeaderMap, uri: &Uri) -> Result<(), Refusal> {
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let is_welcome = origin.is_some_and(|origin| shared.entrance.origins.contains(origin))
        && headers.contains_key(header::AUTHORIZATION);
    if !is_welcome && is_cross_site(headers, uri.authority().map(Authority::as_str)) {
        return Err(Refusal(StatusCode::FORBIDDEN, "a page of another site makes this request".to_owned()));
    }
    Ok(())
}

/// Decides whether a worker of the site gets builds: drains, approves or resumes it.
#[utoipa::path(
    post,
    path = "/api/v1/workers",
    request_body = Hold,
    responses(
        (status = 202, description = "It is so, and recorded with its author.", body = Hold),
        (status = 403, description = "The scope `manage` is missing.", body = Refused),
        (status = 404, description = "There is no such worker.", body = Refused),
        (status = "default", description = "Any other refusal.", body = Refused),
    ),
    security(("token" = [])),
)]
async fn hold(
    State(shared): State<Arc<Shared>>,
    person: Person,
    uri: Uri,
    headers: HeaderMap,
    hold: Result<Json<Hold>, JsonRejection>,
) -> Result<(StatusCode, Json<Hold>), Refusal> {
    refuse_cross_site(&shared, &headers, &uri)?;
    let Json(hold) = hold?;
    // Workers are the site's, whatever yards they build for.
    allow(&person, Scope::Manage, OWN_YARD)?;
    let author = person.author()?;
    let asked = hold.clone();
    shared.ask(move |site| site.hold(&asked.worker, asked.change, &author)).await?;
    Ok((StatusCode::ACCEPTED, Json(hold)))
}
