//! The questions about yards (`GET /api/v1/…`), and their answers.

use crate::Person;
use crate::bodies::Refused;
use crate::queries::*;
use crate::requests::{Refusal, Site, Trouble, allow, may_still_read};
use crate::server::Shared;
use axum::Json;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use kilnyard_model::scope::Scope;
use kilnyard_schema::Page;
use kilnyard_schema::compare::{Difference, Impact};
use kilnyard_schema::measure::Figures;
use kilnyard_schema::package::{Build, Found, Output, PackageHistory, PackageOfRun, Why};
use kilnyard_schema::run::{Failures, Live, Queued, Run, Status};
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::io::ReaderStream;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The most packages whose impact is asked for at once.
const CHANGED_MAX: usize = 100;
/// The bytes of a log that are read at once.
const LOG_CHUNK: usize = 256 << 10;
/// How often a log that is followed is checked for new lines.
const LOG_STEP: Duration = Duration::from_millis(300);

/// The questions and their handlers.
pub(crate) fn described() -> OpenApiRouter<Arc<Shared>> {
    OpenApiRouter::new()
        .routes(routes!(runs))
        .routes(routes!(status))
        .routes(routes!(failures))
        .routes(routes!(packages))
        .routes(routes!(builds))
        .routes(routes!(queue))
        .routes(routes!(live))
        .routes(routes!(package))
        .routes(routes!(why))
        .routes(routes!(builds_of))
        .routes(routes!(log))
        .routes(routes!(difference))
        .routes(routes!(impact))
        .routes(routes!(workers))
        .routes(routes!(repository))
        .routes(routes!(figures))
        .routes(routes!(search))
        .routes(routes!(crate::feed::events))
}

type Asked<T> = Result<Query<T>, QueryRejection>;
type Named<T> = Result<Path<T>, PathRejection>;

/// Asks a yard that the person may read.
async fn read<T: Send + 'static>(
    shared: &Shared,
    person: &Person,
    at: At,
    ask: impl FnOnce(&dyn Site, &At) -> Result<T, Trouble> + Send + 'static,
) -> Result<T, Refusal> {
    allow(person, Scope::Read, &at.yard)?;
    shared.ask(move |site| ask(site, &at)).await
}

/// A part of a list.
fn part_of<T>(page: Option<Page<T>>) -> Result<Json<Page<T>>, Refusal> {
    page.map(Json).ok_or_else(gone)
}

/// The entry of a cursor is not in its list any more.
fn gone() -> Refusal {
    Refusal::new(
        StatusCode::GONE,
        "the list has changed, and has no such cursor any more: begin again without one".to_owned(),
    )
}

/// The number of a run, or `last`.
fn run_of(word: &str) -> Result<Option<u64>, Refusal> {
    match word {
        "last" => Ok(None),
        number => number.parse().map(Some).map_err(|_| {
            Refusal::new(StatusCode::NOT_FOUND, format!("a run is a number, or `last`: {word:?}"))
        }),
    }
}

/// Lists the runs, the latest first.
#[utoipa::path(
    get, path = "/api/v1/runs", params(Part),
    responses((status = 200, description = "The runs.", body = Page<Run>),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn runs(
    State(shared): State<Arc<Shared>>,
    person: Person,
    part: Asked<Part>,
) -> Result<Json<Page<Run>>, Refusal> {
    let Query(part) = part?;
    let runs = read(&shared, &person, part.at(), |site, at| site.runs(at)).await?;
    let count = part.count.min(COUNT_MAX);
    part_of(Page::of(runs, |run| run.run.to_string(), part.cursor.as_deref(), count))
}

/// Describes a run now: progress by work, expected end, builds in progress.
#[utoipa::path(
    get, path = "/api/v1/runs/{run}",
    params(("run" = String, Path, description = "The number of a run, or `last`."), Here),
    responses((status = 200, description = "The run.", body = Status),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn status(
    State(shared): State<Arc<Shared>>,
    person: Person,
    run: Named<String>,
    here: Asked<Here>,
) -> Result<Json<Status>, Refusal> {
    let (Path(run), Query(here)) = (run?, here?);
    let run = run_of(&run)?;
    read(&shared, &person, here.at(), move |site, at| site.status(at, run)).await.map(Json)
}

/// Groups the failures of a run by cause, and compares them with the run before.
#[utoipa::path(
    get, path = "/api/v1/runs/{run}/failures",
    params(("run" = String, Path, description = "The number of a run, or `last`."), Here),
    responses((status = 200, description = "The failures.", body = Failures),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn failures(
    State(shared): State<Arc<Shared>>,
    person: Person,
    run: Named<String>,
    here: Asked<Here>,
) -> Result<Json<Failures>, Refusal> {
    let (Path(run), Query(here)) = (run?, here?);
    let run = run_of(&run)?;
    read(&shared, &person, here.at(), move |site, at| site.failures(at, run)).await.map(Json)
}

/// Lists the packages of a run.
#[utoipa::path(
    get, path = "/api/v1/runs/{run}/packages",
    params(("run" = String, Path, description = "The number of a run, or `last`."), Packages),
    responses((status = 200, description = "The packages.", body = Page<PackageOfRun>),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn packages(
    State(shared): State<Arc<Shared>>,
    person: Person,
    run: Named<String>,
    of: Asked<Packages>,
) -> Result<Json<Page<PackageOfRun>>, Refusal> {
    let (Path(run), Query(of)) = (run?, of?);
    let (run, filter) = (run_of(&run)?, PackageFilter::of(&of));
    read(&shared, &person, of.at(), move |site, at| site.packages(at, run, &filter)).await.map(Json)
}

/// Lists the builds of a run with their stages, by number.
#[utoipa::path(
    get, path = "/api/v1/runs/{run}/builds",
    params(("run" = String, Path, description = "The number of a run, or `last`."), Part),
    responses((status = 200, description = "The builds.", body = Page<Build>),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn builds(
    State(shared): State<Arc<Shared>>,
    person: Person,
    run: Named<String>,
    part: Asked<Part>,
) -> Result<Json<Page<Build>>, Refusal> {
    let (Path(run), Query(part)) = (run?, part?);
    let (run, count) = (run_of(&run)?, part.count.min(COUNT_MAX));
    let after = part.cursor.clone();
    let asked =
        read(&shared, &person, part.at(), move |site, at| site.builds(at, run, after.as_deref(), count));
    asked.await.map(Json)
}

/// Lists what waits in the current run, in the order of the expected starts: for what, and why it is built.
#[utoipa::path(
    get, path = "/api/v1/queue", params(Part),
    responses((status = 200, description = "The queue.", body = Page<Queued>),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn queue(
    State(shared): State<Arc<Shared>>,
    person: Person,
    part: Asked<Part>,
) -> Result<Json<Page<Queued>>, Refusal> {
    let Query(part) = part?;
    let queue = read(&shared, &person, part.at(), |site, at| site.queue(at)).await?;
    let count = part.count.min(COUNT_MAX);
    part_of(Page::of(queue, |queued| queued.package.clone(), part.cursor.as_deref(), count))
}

/// Describes the processes of the builds in progress, as far as they are on the machine of the run: the latest samples.
#[utoipa::path(
    get, path = "/api/v1/live", params(Here),
    responses((status = 200, description = "The samples.", body = Live),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn live(
    State(shared): State<Arc<Shared>>,
    person: Person,
    here: Asked<Here>,
) -> Result<Json<Live>, Refusal> {
    let Query(here) = here?;
    read(&shared, &person, here.at(), |site, at| site.live(at)).await.map(Json)
}

/// Describes a package: its builds over all runs, its outputs, and its place in the set.
#[utoipa::path(
    get, path = "/api/v1/packages/{package}",
    params(("package" = String, Path, description = "Its name; a slash in it as %2F."), Part),
    responses((status = 200, description = "The package.", body = PackageHistory),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn package(
    State(shared): State<Arc<Shared>>,
    person: Person,
    package: Named<String>,
    part: Asked<Part>,
) -> Result<Json<PackageHistory>, Refusal> {
    let (Path(package), Query(part)) = (package?, part?);
    let count = part.count.min(COUNT_MAX);
    read(&shared, &person, part.at(), move |site, at| site.history(at, &package, count)).await.map(Json)
}

/// Explains the state of a package, down to the package to blame.
#[utoipa::path(
    get, path = "/api/v1/packages/{package}/why",
    params(("package" = String, Path, description = "Its name; a slash in it as %2F."), Here),
    responses((status = 200, description = "The explanation.", body = Why),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn why(
    State(shared): State<Arc<Shared>>,
    person: Person,
    package: Named<String>,
    here: Asked<Here>,
) -> Result<Json<Why>, Refusal> {
    let (Path(package), Query(here)) = (package?, here?);
    read(&shared, &person, here.at(), move |site, at| site.why(at, &package)).await.map(Json)
}

/// Lists the builds of a package, the latest first.
#[utoipa::path(
    get, path = "/api/v1/packages/{package}/builds",
    params(("package" = String, Path, description = "Its name; a slash in it as %2F."), Part),
    responses((status = 200, description = "The builds.", body = Page<Build>),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn builds_of(
    State(shared): State<Arc<Shared>>,
    person: Person,
    package: Named<String>,
    part: Asked<Part>,
) -> Result<Json<Page<Build>>, Refusal> {
    let (Path(package), Query(part)) = (package?, part?);
    let builds =
        read(&shared, &person, part.at(), move |site, at| site.builds_of(at, &package, usize::MAX >> 1))
            .await?;
    let count = part.count.min(COUNT_MAX);
    part_of(Page::of(builds, |build| build.build.to_string(), part.cursor.as_deref(), count))
}

/// Compares two runs.
#[utoipa::path(
    get, path = "/api/v1/diff", params(Compared),
    responses((status = 200, description = "The difference.", body = Difference),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn difference(
    State(shared): State<Arc<Shared>>,
    person: Person,
    of: Asked<Compared>,
) -> Result<Json<Difference>, Refusal> {
    let Query(of) = of?;
    let (earlier, later) = (of.earlier, of.later);
    let at = of.at();
    allow(&person, Scope::Read, &at.yard)?;
    shared.ask_much(move |site| site.difference(&at, earlier, later)).await.map(Json)
}

/// Lists what a change of packages would rebuild, at most.
#[utoipa::path(
    get, path = "/api/v1/impact", params(Changed),
    responses((status = 200, description = "What would be rebuilt.", body = Impact),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn impact(
    State(shared): State<Arc<Shared>>,
    person: Person,
    of: Asked<Changed>,
) -> Result<Json<Impact>, Refusal> {
    let Query(of) = of?;
    let packages = listed(Some(&of.packages));
    if packages.is_empty() || packages.len() > CHANGED_MAX {
        let why = format!("`packages` names 1 to {CHANGED_MAX} packages");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, why));
    }
    read(&shared, &person, of.at(), move |site, at| site.impact(at, &packages)).await.map(Json)
}

/// Describes the workers of the site, as `kilnyard workers --json` prints them.
#[utoipa::path(
    get, path = "/api/v1/workers", params(Here),
    responses((status = 200, description = "The workers.", body = Object),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn workers(
    State(shared): State<Arc<Shared>>,
    person: Person,
    here: Asked<Here>,
) -> Result<Json<serde_json::Value>, Refusal> {
    let Query(here) = here?;
    read(&shared, &person, here.at(), |site, at| site.workers(at)).await.map(Json)
}

/// Lists the files of the repository, ordered by name.
#[utoipa::path(
    get, path = "/api/v1/repository", params(Part),
    responses((status = 200, description = "The files.", body = Page<Output>),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn repository(
    State(shared): State<Arc<Shared>>,
    person: Person,
    part: Asked<Part>,
) -> Result<Json<Page<Output>>, Refusal> {
    let Query(part) = part?;
    let outputs = read(&shared, &person, part.at(), |site, at| site.outputs(at)).await?;
    let count = part.count.min(COUNT_MAX);
    part_of(Page::of(outputs, |output| output.file.clone(), part.cursor.as_deref(), count))
}

/// Measures the latest runs: waits, builds, publications, and how long a change takes until it is published, as percentiles.
#[utoipa::path(
    get, path = "/api/v1/figures", params(Measured),
    responses((status = 200, description = "The figures.", body = Figures),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn figures(
    State(shared): State<Arc<Shared>>,
    person: Person,
    of: Asked<Measured>,
) -> Result<Json<Figures>, Refusal> {
    let Query(of) = of?;
    let (runs, package) = (of.runs.clamp(1, COUNT_MAX), of.package.clone());
    read(&shared, &person, of.at(), move |site, at| site.figures(at, runs, package.as_deref()))
        .await
        .map(Json)
}

/// Finds packages of the last run by their names, their reasons, and the telling lines of their logs.
#[utoipa::path(
    get, path = "/api/v1/search", params(Searched),
    responses((status = 200, description = "What was found.", body = Vec<Found>),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn search(
    State(shared): State<Arc<Shared>>,
    person: Person,
    of: Asked<Searched>,
) -> Result<Json<Vec<Found>>, Refusal> {
    let Query(of) = of?;
    let (text, count) = (of.text.clone(), of.count.min(COUNT_MAX));
    read(&shared, &person, of.at(), move |site, at| site.search(at, &text, count)).await.map(Json)
}

/// Sends the log of a build as text: whole, a range of it, or as it grows.
#[utoipa::path(
    get, path = "/api/v1/packages/{package}/builds/{build}/log",
    params(("package" = String, Path, description = "Its name; a slash in it as %2F."),
           ("build" = u64, Path, description = "The number of a build of it."), LogPart),
    responses((status = 200, description = "The log. What a build prints can be anything.", content_type = "text/plain"),
              (status = 206, description = "The range.", content_type = "text/plain"),
              (status = 416, description = "The log has no such range.", body = Refused),
              (status = "default", description = "A refusal.", body = Refused)),
    security(("token" = [])),
)]
async fn log(
    State(shared): State<Arc<Shared>>,
    person: Person,
    of: Named<(String, u64)>,
    headers: HeaderMap,
    part: Asked<LogPart>,
) -> Result<Response, Refusal> {
    let (Path((package, build)), Query(part)) = (of?, part?);
    let (at, log) = (part.at(), LogOf { package, build, stage: part.stage.clone() });
    let wanted = log.clone();
    let file = read(&shared, &person, at.clone(), move |site, at| site.log(at, &wanted)).await?;
    // The telling stage may be another one later.
    let log = LogOf { stage: Some(file.stage.clone()), ..log };
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let range = text(header::RANGE);
    let takes_zstd = text(header::ACCEPT_ENCODING).is_some_and(|accepted| {
        accepted.split(',').any(|one| one.split(';').next().map(str::trim) == Some("zstd"))
    });
    if let (Some(compressed), true, None, 0, false) =
        (&file.compressed, takes_zstd, range, part.from, part.follow)
    {
        // As it is on the disk: nothing is unpacked and packed again.
        let file = tokio::fs::File::open(compressed).await;
        let file = file.map_err(|error| Trouble::Machine(format!("read a log: {error}")))?;
        let mut answer = plain(Body::from_stream(ReaderStream::with_capacity(file, LOG_CHUNK)));
        answer.headers_mut().insert(header::CONTENT_ENCODING, HeaderValue::from_static("zstd"));
        answer.headers_mut().insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        return Ok(answer);
    }
    // Only ranges, and places from the end, need the size of the whole text.
    let size = match range.is_some() || part.from < 0 {
        true => {
            let (at, log) = (at.clone(), log.clone());
            let counted = move |site: &dyn Site| {
                let mut reader = site.log_reader(&at, &log, 0)?;
                io::copy(&mut reader, &mut io::sink())
                    .map_err(|error| Trouble::Machine(format!("read a log: {error}")))
            };
            shared.ask_much(counted).await?
        }
        false => 0,
    };
    let from = if part.from < 0 { size.saturating_sub(part.from.unsigned_abs()) } else { part.from as u64 };
    if part.follow {
        return Ok(plain(followed(Followed { shared, headers, at, log, offset: from })));
    }
    let (first, length) = match range.map(|range| byte_range(range, size)) {
        None | Some(Ok(None)) => (from, None),
        Some(Ok(Some((first, last)))) => (first, Some(last - first + 1)),
        Some(Err(())) => {
            let why = "the log has no such range".to_owned();
            let mut refusal = Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, why).into_response();
            if let Ok(value) = HeaderValue::from_str(&format!("bytes */{size}")) {
                refusal.headers_mut().insert(header::CONTENT_RANGE, value);
            }
            return Ok(refusal);
        }
    };
    let reader = shared.ask(move |site| site.log_reader(&at, &log, first)).await?;
    let mut answer = plain(sent(Box::new(reader.take(length.unwrap_or(u64::MAX)))));
    match length {
        None => {
            answer.headers_mut().insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
        }
        Some(length) => {
            *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
            let range = format!("bytes {first}-{}/{size}", first + length - 1);
            if let Ok(value) = HeaderValue::from_str(&range) {
                answer.headers_mut().insert(header::CONTENT_RANGE, value);
            }
        }
    }
    Ok(answer)
}

/// Sends a text as its client takes it: neither a thread nor much memory waits for a slow one.
fn sent(reader: Box<dyn Read + Send>) -> Body {
    Body::from_stream(stream::unfold(Some(reader), async |reader| {
        let mut reader = reader?;
        let read = tokio::task::spawn_blocking(move || {
            let bytes = chunk(&mut *reader);
            (bytes, reader)
        });
        match read.await {
            Ok((Ok(bytes), _)) if bytes.is_empty() => None,
            Ok((Ok(bytes), reader)) => Some((Ok(bytes), Some(reader))),
            // The connection breaks, so that the client does not take a part for the whole.
            Ok((Err(error), _)) => Some((Err(error), None)),
            Err(error) => Some((Err(io::Error::other(error)), None)),
        }
    }))
}

/// The next bytes of a text; none at its end.
fn chunk(reader: &mut dyn Read) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    reader.take(LOG_CHUNK as u64).read_to_end(&mut bytes)?;
    Ok(bytes.into())
}

/// Plain text: nothing of it is ever taken for a page.
fn plain(body: Body) -> Response {
    let policy = "default-src 'none'; sandbox";
    let headers =
        [(header::CONTENT_TYPE, "text/plain; charset=utf-8"), (header::CONTENT_SECURITY_POLICY, policy)];
    (headers, body).into_response()
}

/// The first and last byte of a `Range` header with one range (RFC 9110, 14.1.2). None if the header is to be ignored.
fn byte_range(range: &str, whole: u64) -> Result<Option<(u64, u64)>, ()> {
    let Some(range) = range.strip_prefix("bytes=").filter(|range| !range.contains(',')) else {
        return Ok(None);
    };
    let Some((first, last)) = range.trim().split_once('-') else { return Ok(None) };
    let number = |text: &str| text.parse::<u64>();
    let (first, last) = match (first, last) {
        ("", suffix) => match number(suffix) {
            Ok(0) => return Err(()),
            Ok(suffix) => (whole.saturating_sub(suffix), whole.saturating_sub(1)),
            Err(_) => return Ok(None),
        },
        (first, "") => match number(first) {
            Ok(first) => (first, whole.saturating_sub(1)),
            Err(_) => return Ok(None),
        },
        (first, last) => match (number(first), number(last)) {
            (Ok(first), Ok(last)) if first <= last => (first, last.min(whole.saturating_sub(1))),
            _ => return Ok(None),
        },
    };
    if first >= whole { Err(()) } else { Ok(Some((first, last))) }
}

/// A reader of a log as it grows.
struct Followed {
    shared: Arc<Shared>,
    headers: HeaderMap,
    at: At,
    log: LogOf,
    /// The byte that is read next.
    offset: u64,
}

/// A log from a byte on, as it grows, until its stage has ended, or the person may not read it any more.
fn followed(followed: Followed) -> Body {
    let state = (followed, None::<Box<dyn Read + Send>>, false);
    Body::from_stream(stream::unfold(state, async |(mut followed, mut reader, mut is_last)| {
        loop {
            if let Some(mut open) = reader.take() {
                let read = tokio::task::spawn_blocking(move || {
                    let bytes = chunk(&mut *open);
                    (bytes, open)
                });
                match read.await {
                    Ok((Ok(bytes), _)) if bytes.is_empty() => {}
                    Ok((Ok(bytes), open)) => {
                        followed.offset += bytes.len() as u64;
                        return Some((Ok::<_, io::Error>(bytes), (followed, Some(open), is_last)));
                    }
                    _ => return None,
                }
                if is_last {
                    return None;
                }
                tokio::time::sleep(LOG_STEP).await;
            }
            if !may_still_read(&followed.shared, &followed.headers, &followed.at.yard) {
                return None;
            }
            let (at, log, offset) = (followed.at.clone(), followed.log.clone(), followed.offset);
            // Before it is read: what was written until its stage ended is read then.
            let asked = followed.shared.ask(move |site| {
                let is_open = site.log(&at, &log)?.is_open;
                Ok((is_open, site.log_reader(&at, &log, offset)?))
            });
            let Ok((is_open, open)) = asked.await else { return None };
            (reader, is_last) = (Some(open), !is_open);
        }
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_those_of_http() {
        assert_eq!(byte_range("bytes=0-3", 10), Ok(Some((0, 3))));
        assert_eq!(byte_range("bytes=4-", 10), Ok(Some((4, 9))));
        assert_eq!(byte_range("bytes=-4", 10), Ok(Some((6, 9))));
        assert_eq!(byte_range("bytes=-40", 10), Ok(Some((0, 9))));
        assert_eq!(byte_range("bytes=8-100", 10), Ok(Some((8, 9))));
        for unsatisfiable in ["bytes=10-", "bytes=10-12", "bytes=-0"] {
            assert_eq!(byte_range(unsatisfiable, 10), Err(()), "{unsatisfiable}");
        }
        assert_eq!(byte_range("bytes=0-0", 0), Err(()));
        for ignored in
            ["lines=0-3", "bytes=0-1,3-4", "bytes=3-1", "bytes=a-b", "bytes=-", "bytes=18446744073709551616-"]
        {
            assert_eq!(byte_range(ignored, 10), Ok(None), "{ignored}");
        }
    }
}
