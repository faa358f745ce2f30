//! The server over real connections: who may see and ask what.

use kilnyard_api::bodies::{Ask, Asked, Made, Of, Target, Yard};
use kilnyard_api::entrance::Entrance;
use kilnyard_api::feed::Follow;
use kilnyard_api::pages::Wanted;
use kilnyard_api::queries::{At, Facts, FeedEvent, Hold, LogFile, LogOf, PackageFilter, Viewer};
use kilnyard_api::requests::{Site, Trouble};
use kilnyard_api::server::{Certificate, Server};
use kilnyard_api::tokens::{Terms, Tokens};
use kilnyard_model::scope::Scope;
use kilnyard_schema::Page;
use kilnyard_schema::compare::{Difference, Impact};
use kilnyard_schema::measure::Figures;
use kilnyard_schema::package::{Build, Found, Output, PackageHistory, PackageOfRun, Why};
use kilnyard_schema::run::{Failures, Live, Queued, Run, Status};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// An origin whose pages may ask.
const WELCOME: &str = "https://dashboard.example";

/// Records what it is asked, and has events up to a number.
#[derive(Debug, Default)]
struct Recorder(Mutex<Vec<(String, String, Vec<String>)>>, Arc<Mutex<u64>>);

fn absent<T>() -> Result<T, Trouble> {
    Err(Trouble::Absent("there is no such thing".to_owned()))
}

/// Events 1 to 10, of which every third is of run 3.
fn feed_event(seq: u64) -> FeedEvent {
    let run = seq.is_multiple_of(3).then_some(3);
    let json = json!({ "seq": seq, "type": "package" }).to_string().into();
    FeedEvent { seq, kind: "package".to_owned(), run, package: Some(format!("p{seq}")), json }
}

/// Hands out events that a test has made.
struct Following(Arc<Mutex<u64>>);

impl Follow for Following {
    fn next(&mut self, after: u64, _at_most: Duration) -> Result<Vec<FeedEvent>, Trouble> {
        std::thread::sleep(Duration::from_millis(5));
        let last = *self.0.lock().unwrap();
        Ok((after + 1..=last).take(1000).map(feed_event).collect())
    }

    fn live(&mut self) -> bytes::Bytes {
        bytes::Bytes::from_static(b"{\"builds\":[]}")
    }
}

impl Facts for Recorder {
    fn runs(&self, at: &At) -> Result<Vec<Run>, Trouble> {
        let run = |run| Run { run, state: "finished".to_owned(), ..Run::default() };
        match at.yard.as_str() {
            "." => Ok((1..=5).rev().map(run).collect()),
            _ => Ok(Vec::new()),
        }
    }
    fn status(&self, _: &At, run: Option<u64>) -> Result<Status, Trouble> {
        Ok(Status { run: run.or(Some(5)), ..Status::default() })
    }
    fn failures(&self, _: &At, _: Option<u64>) -> Result<Failures, Trouble> {
        absent()
    }
    fn queue(&self, _: &At) -> Result<Vec<Queued>, Trouble> {
        absent()
    }
    fn packages(
        &self,
        _: &At,
        _: Option<u64>,
        filter: &PackageFilter,
    ) -> Result<Page<PackageOfRun>, Trouble> {
        let package = filter.text.clone().unwrap_or_default();
        Ok(Page { items: vec![PackageOfRun { package, ..PackageOfRun::default() }], next: None })
    }
    fn builds(&self, _: &At, _: Option<u64>, _: Option<&str>, _: usize) -> Result<Page<Build>, Trouble> {
        absent()
    }
    fn builds_of(&self, _: &At, _: &str, _: usize) -> Result<Vec<Build>, Trouble> {
        absent()
    }
    fn why(&self, _: &At, package: &str) -> Result<Why, Trouble> {
        Ok(Why { package: package.to_owned(), ..Why::default() })
    }
    fn history(&self, _: &At, _: &str, _: usize) -> Result<PackageHistory, Trouble> {
        absent()
    }
    fn difference(&self, _: &At, _: Option<u64>, _: Option<u64>) -> Result<Difference, Trouble> {
        absent()
    }
    fn impact(&self, _: &At, packages: &[String]) -> Result<Impact, Trouble> {
        Ok(Impact { changed: packages.to_vec(), ..Impact::default() })
    }
    fn workers(&self, _: &At) -> Result<Value, Trouble> {
        absent()
    }
    fn outputs(&self, _: &At) -> Result<Vec<Output>, Trouble> {
        absent()
    }
    fn figures(&self, _: &At, _: usize, _: Option<&str>) -> Result<Figures, Trouble> {
        absent()
    }
    fn search(&self, _: &At, _: &str, _: usize) -> Result<Vec<Found>, Trouble> {
        absent()
    }
    fn live(&self, _: &At) -> Result<Live, Trouble> {
        absent()
    }
    fn log(&self, _: &At, _: &LogOf) -> Result<LogFile, Trouble> {
        Ok(LogFile { stage: "build".to_owned(), compressed: None, is_open: false })
    }
    fn log_reader(&self, _: &At, _: &LogOf, offset: u64) -> Result<Box<dyn Read + Send>, Trouble> {
        let text = b"<script>alert(1)</script>
second line
";
        Ok(Box::new(&text[(offset as usize).min(text.len())..]))
    }
    fn events(&self, _: &At, after: u64, count: usize) -> Result<Vec<FeedEvent>, Trouble> {
        let last = *self.1.lock().unwrap();
        Ok((after + 1..=last).take(count).map(feed_event).collect())
    }
    fn follow(&self, _: &At) -> Result<Box<dyn Follow>, Trouble> {
        Ok(Box::new(Following(self.1.clone())))
    }
    fn last_event(&self, _: &At) -> Result<u64, Trouble> {
        Ok(*self.1.lock().unwrap())
    }
    fn hold(&self, worker: &str, hold: Hold, author: &str) -> Result<(), Trouble> {
        let asked = (author.to_owned(), format!("{hold:?}"), vec![worker.to_owned()]);
        self.0.lock().unwrap().push(asked);
        Ok(())
    }
    fn page(&self, at: &At, page: &Wanted, viewer: &Viewer) -> Result<String, Trouble> {
        Ok(format!("<p>{} {page:?} {}", at.yard, viewer.may_ask))
    }
}

impl Site for Recorder {
    fn yards(&self) -> Result<Vec<Yard>, Trouble> {
        let yard = |name: &str| Yard {
            name: name.to_owned(),
            targets: vec![Target { run: Some(3), ..Target::default() }],
            trouble: None,
        };
        Ok(vec![yard("."), yard("lab")])
    }

    fn ask(&self, ask: &Ask, author: &str) -> Result<Asked, Trouble> {
        match ask.packages[0].as_str() {
            "absent" => return Err(Trouble::Absent("no such package".to_owned())),
            "good" => return Err(Trouble::Refused("good is built".to_owned())),
            "broken-disk" => return Err(Trouble::Machine("the disk is gone".to_owned())),
            "panic" => panic!("a defect"),
            _ => {}
        }
        let asked = (author.to_owned(), ask.yard.clone(), ask.packages.clone());
        self.0.lock().unwrap().push(asked);
        Ok(Asked { run: Some(3) })
    }

    fn made(&self, of: &Of) -> Result<Vec<Made>, Trouble> {
        let all = self.0.lock().unwrap();
        let made = all.iter().filter(|(_, yard, _)| *yard == of.yard).map(|(author, _, packages)| Made {
            seq: 1,
            at_seconds: 1.0,
            request: "retry".to_owned(),
            package: packages.first().cloned(),
            author: Some(author.clone()),
        });
        Ok(made.take(of.count as usize).collect())
    }
}

struct Bench {
    folder: TempDir,
    server: Server,
    site: Arc<Recorder>,
    client: reqwest::blocking::Client,
}

impl Bench {
    fn start(anonymous: &[Scope]) -> Bench {
        Bench::start_with(anonymous, None)
    }

    fn start_with(anonymous: &[Scope], certificate: Option<&Certificate>) -> Bench {
        let folder = tempfile::tempdir().unwrap();
        let site = Arc::new(Recorder::default());
        let origins = [WELCOME.to_owned()].into();
        let entrance = Entrance { anonymous: anonymous.iter().copied().collect(), proxy: None, origins };
        let address = "127.0.0.1:0".parse().unwrap();
        let tokens = Tokens::open(folder.path());
        let server = Server::start(address, certificate, entrance, tokens, site.clone(), || 1.0).unwrap();
        let provider = rustls::crypto::ring::default_provider();
        let mut roots = rustls::RootCertStore::empty();
        if let Some(certificate) = certificate {
            use rustls::pki_types::pem::PemObject;
            let chain = rustls::pki_types::CertificateDer::from_pem_slice(&certificate.chain).unwrap();
            roots.add(chain).unwrap();
        }
        let tls = rustls::ClientConfig::builder_with_provider(Arc::new(provider));
        let tls = tls.with_safe_default_protocol_versions().unwrap().with_root_certificates(roots);
        let client = reqwest::blocking::Client::builder().use_preconfigured_tls(tls.with_no_client_auth());
        let client = client.no_proxy().redirect(reqwest::redirect::Policy::none());
        Bench { folder, server, site, client: client.build().unwrap() }
    }

    fn token(&self, name: &str, scopes: &[Scope], yards: Option<&[&str]>) -> String {
        let scopes = scopes.iter().copied().collect();
        let yards = yards.map(|yards| yards.iter().map(|yard| (*yard).to_owned()).collect::<BTreeSet<_>>());
        let terms = Terms { name: name.to_owned(), scopes, yards, ends_seconds: 9 };
        Tokens::open(self.folder.path()).issue(terms, 1).unwrap().1
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}/api/v1/{path}", self.server.address())
    }

    fn get(&self, path: &str, token: &str) -> (u16, Value) {
        let request = self.client.get(self.url(path));
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        answered(request)
    }

    fn post(&self, token: &str, body: &Value) -> (u16, Value) {
        let request = self.client.post(self.url("requests")).json(body);
        let request = if token.is_empty() { request } else { request.bearer_auth(token) };
        answered(request)
    }
}

fn answered(request: reqwest::blocking::RequestBuilder) -> (u16, Value) {
    let answer = request.send().unwrap();
    assert_eq!(answer.headers()["cache-control"], "private, no-cache");
    assert_eq!(answer.headers()["content-type"], "application/json");
    (answer.status().as_u16(), answer.json().unwrap())
}

fn names(yards: &Value) -> Vec<&str> {
    yards.as_array().unwrap().iter().map(|yard| yard["name"].as_str().unwrap()).collect()
}

fn retry(yard: &str, package: &str) -> Value {
    json!({ "yard": yard, "request": "retry", "packages": [package] })
}

#[test]
fn a_token_does_what_its_scopes_say_in_its_yards() {
    let bench = Bench::start(&[]);
    let reader = bench.token("reader", &[Scope::Read], None);
    let anna = bench.token("anna", &[Scope::Request], Some(&["lab"]));
    assert_eq!(bench.get("yards", "").0, 401);
    let (status, answer) = bench.get("who", "kilnyard-person-1.00.00");
    assert!(status == 401 && answer["error"].as_str().unwrap().contains("is unknown"), "{answer}");
    assert_eq!(
        bench.get("who", &anna),
        (200, json!({ "name": "anna", "scopes": ["request"], "yards": ["lab"] }))
    );
    assert_eq!(names(&bench.get("yards", &reader).1), [".", "lab"]);
    assert_eq!(names(&bench.get("yards", &anna).1), ["lab"]);

    assert_eq!(bench.post("", &retry("lab", "zlib")).0, 401);
    let (status, answer) = bench.post(&reader, &retry("lab", "zlib"));
    assert_eq!((status, &answer["error"]), (403, &json!("the scope `request` is needed")));
    // What she may not see is what does not exist.
    for yard in [".", "nowhere"] {
        let (status, answer) = bench.post(&anna, &retry(yard, "zlib"));
        assert_eq!((status, &answer["error"]), (404, &json!(format!("there is no yard \"{yard}\" here"))));
        assert_eq!(bench.get(&format!("requests?yard={yard}"), &anna).0, 404);
    }
    assert_eq!(bench.site.0.lock().unwrap().len(), 0, "none of them did anything");
    assert_eq!(bench.post(&anna, &retry("lab", "zlib")), (202, json!({ "run": 3 })));
    let (status, made) = bench.get("requests?yard=lab", &reader);
    assert_eq!((status, &made[0]["author"], &made[0]["package"]), (200, &json!("anna"), &json!("zlib")));
    assert_eq!(bench.get("requests", &reader).1, json!([]));
    // A token counts no more from the next request on.
    Tokens::open(bench.folder.path()).remove("anna").unwrap();
    assert_eq!(bench.post(&anna, &retry("lab", "zlib")).0, 401);
}

#[test]
fn everyone_sees_what_the_site_allows_and_asks_nothing() {
    let bench = Bench::start(&[Scope::Read]);
    assert_eq!(names(&bench.get("yards", "").1), [".", "lab"]);
    assert_eq!(bench.get("who", "").1["name"], Value::Null);
    assert_eq!(bench.post("", &retry("lab", "zlib")).0, 403);
    // A token that does not count is not the same as none.
    assert_eq!(bench.get("yards", "kilnyard-person-1.00.00").0, 401);
    assert_eq!(bench.site.0.lock().unwrap().len(), 0);
}

#[test]
fn wrong_requests_are_explained_and_do_nothing() {
    let bench = Bench::start(&[]);
    let anna = bench.token("anna", &[Scope::Request], None);
    for (body, expected, reason) in [
        (json!({}), 422, "missing field"),
        (json!({ "request": "remove", "packages": ["a"] }), 422, "unknown variant"),
        (json!({ "request": "retry", "packages": [] }), 422, "1 to 500"),
        (json!({ "request": "retry", "packages": vec!["a"; 501] }), 422, "1 to 500"),
        (json!({ "request": "retry", "packages": ["a"], "yrad": "lab" }), 422, "unknown field"),
        (retry("lab", "absent"), 404, "no such package"),
        (retry("lab", "good"), 409, "is built"),
        (retry("lab", "broken-disk"), 500, "the disk"),
        (retry("lab", "panic"), 500, "the server panicked, and says why"),
        (json!({ "request": "retry", "packages": ["a".repeat(1 << 17)] }), 413, "length limit"),
    ] {
        let (status, answer) = bench.post(&anna, &body);
        let error = answer["error"].as_str().unwrap();
        assert!(status == expected && error.contains(reason), "{status} {error}");
    }
    let plain = bench.client.post(bench.url("requests")).bearer_auth(&anna);
    // What a form of any page can send.
    let plain = plain.header("content-type", "text/plain").body(retry("lab", "zlib").to_string());
    assert_eq!(answered(plain).0, 415);
    for (name, value) in [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")] {
        let foreign = bench.client.post(bench.url("requests")).bearer_auth(&anna).json(&retry("lab", "zlib"));
        assert_eq!(answered(foreign.header(name, value)).0, 403, "{name}");
    }
    assert_eq!(bench.get("nothing", &anna).0, 404);
    assert_eq!(bench.get("requests?count=x", &anna).0, 400);
    assert_eq!(bench.get("requests?count=4000000000", &anna).0, 200);
    assert_eq!(bench.site.0.lock().unwrap().len(), 0);
}

#[test]
fn clients_that_do_not_speak_hold_up_no_other() {
    let bench = Bench::start(&[Scope::Read]);
    let address = bench.server.address();
    let mut silent: Vec<TcpStream> = (0..300).map(|_| TcpStream::connect(address).unwrap()).collect();
    for stream in &mut silent {
        stream.write_all(b"POST /api/v1/requests HTTP/1.1\r\nhost: x\r\ncontent-length: 1000\r\n").unwrap();
    }
    assert_eq!(bench.get("yards", "").0, 200);
    // A head of unlimited length ends its connection.
    let mut long = TcpStream::connect(address).unwrap();
    long.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let began = Instant::now();
    while long.write_all(&[b'a'; 4096]).is_ok() {
        assert!(began.elapsed() < Duration::from_secs(30), "it takes all");
    }
    let mut rest = Vec::new();
    let _ = long.read_to_end(&mut rest);
    assert!(rest.len() < 4096);
}

#[test]
fn over_tls_with_the_sites_own_certificate() {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem().into_bytes(), made.signing_key.serialize_pem().into_bytes());
    let certificate = Certificate { chain, key };
    let bench = Bench::start_with(&[Scope::Read], Some(&certificate));
    let port = bench.server.address().port();
    let (status, _) = answered(bench.client.get(format!("https://localhost:{port}/api/v1/yards")));
    assert_eq!(status, 200);
    assert!(bench.client.get(bench.url("yards")).send().is_err(), "nothing is answered in the clear");
    for (chain, key) in [(b"".to_vec(), certificate.key.clone()), (certificate.chain.clone(), b"x".to_vec())]
    {
        let tokens = Tokens::open(bench.folder.path());
        let certificate = Certificate { chain, key };
        let address = "127.0.0.1:0".parse().unwrap();
        let site = Arc::new(Recorder::default());
        let entrance = Entrance::default();
        assert!(Server::start(address, Some(&certificate), entrance, tokens, site, || 1.0).is_err());
    }
}

#[test]
fn the_document_describes_each_request() {
    let bench = Bench::start(&[Scope::Read]);
    let (status, document) = bench.get("openapi", "");
    assert_eq!(status, 200);
    let paths: Vec<&String> = document["paths"].as_object().unwrap().keys().collect();
    for path in [
        "openapi",
        "requests",
        "who",
        "yards",
        "runs/{run}",
        "events",
        "packages/{package}/builds/{build}/log",
    ] {
        assert!(paths.iter().any(|one| **one == format!("/api/v1/{path}")), "{path}: {paths:?}");
    }
    // What is described is what is answered, and names of parameters are real ones.
    for (path, methods) in document["paths"].as_object().unwrap() {
        let Some(get) = methods.get("get") else { continue };
        let path = path
            .trim_start_matches("/api/v1/")
            .replace("{run}", "5")
            .replace("{build}", "7")
            .replace("{package}", "p");
        let required = |one: &&Value| one["in"] == "query" && one["required"] == true;
        let parameters = get["parameters"].as_array().into_iter().flatten();
        let given: Vec<String> =
            parameters.filter(required).map(|one| format!("{}=x", one["name"].as_str().unwrap())).collect();
        let answer = bench.client.get(bench.url(&format!("{path}?{}", given.join("&")))).send().unwrap();
        let text = answer.text().unwrap();
        assert!(
            !text.contains("there is nothing here") && !text.contains("Failed to deserialize"),
            "{path}: {text}"
        );
    }
    assert!(document["paths"]["/api/v1/requests"]["post"]["responses"]["409"].is_object());
}

#[test]
fn what_a_client_has_is_not_sent_again() {
    let bench = Bench::start(&[Scope::Read]);
    let first = bench.client.get(bench.url("runs")).send().unwrap();
    let tag = first.headers()["etag"].clone();
    let again = bench.client.get(bench.url("runs")).header("if-none-match", tag.clone()).send().unwrap();
    assert_eq!((again.status().as_u16(), again.headers()["etag"].clone()), (304, tag.clone()));
    assert!(again.bytes().unwrap().is_empty());
    let other = bench.client.get(bench.url("runs/last")).header("if-none-match", tag).send().unwrap();
    assert_eq!(other.status(), 200);
}

#[test]
fn lists_are_sent_in_parts() {
    let bench = Bench::start(&[Scope::Read]);
    let (mut cursor, mut seen) = (String::new(), Vec::new());
    loop {
        let (status, part) = bench.get(&format!("runs?count=2{cursor}"), "");
        assert_eq!(status, 200, "{part}");
        seen.extend(part["items"].as_array().unwrap().iter().map(|run| run["run"].as_u64().unwrap()));
        let Some(next) = part["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(seen, [5, 4, 3, 2, 1]);
    for wrong in
        ["runs?cout=2", "runs?count=x", "runs?count=-1", "runs/last/packages?order=size", "events?wait=1e9"]
    {
        let (status, answer) = bench.get(wrong, "");
        assert!(status == 400 && answer["error"].is_string(), "{wrong}: {status} {answer}");
    }
    // A cursor that is gone is no end of the list.
    assert_eq!(bench.get("runs?cursor=99", "").0, 410);
    assert_eq!(bench.get("runs/first", "").0, 404);
    assert_eq!(bench.get("packages/devel%2Fzlib/why", "").1["package"], "devel/zlib");
    assert_eq!(bench.get("impact?packages=a,%20b", "").1["changed"], json!(["a", "b"]));
    assert_eq!(bench.get("impact?packages=,", "").0, 400);
}

#[test]
fn a_log_is_text_whatever_it_contains() {
    let bench = Bench::start(&[Scope::Read]);
    let url = bench.url("packages/p/builds/7/log");
    let whole = bench.client.get(&url).send().unwrap();
    assert_eq!(whole.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(whole.headers()["content-security-policy"], "default-src 'none'; sandbox");
    assert_eq!(whole.headers()["x-content-type-options"], "nosniff");
    let text = whole.text().unwrap();
    assert!(text.starts_with("<script>") && text.len() == 38);
    let part = bench.client.get(&url).header("range", "bytes=26-31").send().unwrap();
    assert_eq!(
        (part.status().as_u16(), part.headers()["content-range"].to_str().unwrap()),
        (206, "bytes 26-31/38")
    );
    assert_eq!(part.text().unwrap(), "second");
    let beyond = bench.client.get(&url).header("range", "bytes=38-").send().unwrap();
    assert_eq!(
        (beyond.status().as_u16(), beyond.headers()["content-range"].to_str().unwrap()),
        (416, "bytes */38")
    );
    assert_eq!(bench.client.get(format!("{url}?from=-5")).send().unwrap().text().unwrap(), "line\n");
    assert_eq!(
        bench.client.get(format!("{url}?from=-5&follow=true")).send().unwrap().text().unwrap(),
        "line\n"
    );
    // A log whose stage has ended ends.
    assert_eq!(bench.client.get(format!("{url}?follow=true")).send().unwrap().text().unwrap(), text);
}

/// Reads server-sent events until there are this many, and returns their numbers.
fn numbers(reader: &mut impl std::io::BufRead, count: usize) -> Vec<u64> {
    let mut numbers = Vec::new();
    let mut line = String::new();
    while numbers.len() < count {
        line.clear();
        assert!(reader.read_line(&mut line).unwrap() > 0, "the feed ended after {numbers:?}");
        numbers.extend(line.strip_prefix("id: ").map(|id| id.trim().parse::<u64>().unwrap()));
    }
    numbers
}

#[test]
fn a_reader_of_the_feed_misses_nothing_and_gets_nothing_twice() {
    let bench = Bench::start(&[Scope::Read]);
    let set = |last| *bench.site.1.lock().unwrap() = last;
    set(10);
    let connect = |query: &str, last: Option<&str>| {
        let request =
            bench.client.get(bench.url(&format!("events{query}"))).header("accept", "text/event-stream");
        let request = last.iter().fold(request, |request, last| request.header("last-event-id", *last));
        let answer = request.timeout(Duration::from_secs(60)).send().unwrap();
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        std::io::BufReader::new(answer)
    };
    // What happens from now on.
    let mut now = connect("", None);
    // What has happened since a number, and then what happens.
    let mut since = connect("", Some("7"));
    assert_eq!(numbers(&mut since, 3), [8, 9, 10]);
    set(12);
    assert_eq!(numbers(&mut now, 2), [11, 12]);
    assert_eq!(numbers(&mut since, 2), [11, 12]);
    // More than the server keeps in memory.
    set(9000);
    assert_eq!(numbers(&mut connect("?after=10", None), 8990), (11..=9000).collect::<Vec<_>>());
    // A number of another store, and no number.
    let mut other = connect("", Some("99999999"));
    let mut none = connect("", Some("x"));
    set(9001);
    assert_eq!((numbers(&mut other, 1), numbers(&mut none, 1)), (vec![9001], vec![9001]));
    assert_eq!(numbers(&mut connect("?after=0&package=p6", None), 1), [6]);
    let mut live = connect("?live=true", None);
    let mut line = String::new();
    while !line.starts_with("event: live") {
        line.clear();
        std::io::BufRead::read_line(&mut live, &mut line).unwrap();
    }
    // As lines, which wait for the next one.
    let lines = |query: &str| {
        let answer =
            bench.client.get(bench.url(&format!("events{query}"))).timeout(Duration::from_secs(60)).send();
        let answer = answer.unwrap();
        assert_eq!(answer.headers()["content-type"], "application/jsonl");
        let text = answer.text().unwrap();
        text.lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].as_u64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(lines("?after=8999"), [9000, 9001]);
    assert_eq!(lines("?after=2&count=2"), [3, 4]);
    assert_eq!(lines("?after=9001"), [0u64; 0]);
    let site = bench.site.clone();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300));
        *site.1.lock().unwrap() = 9002;
    });
    assert_eq!(lines("?after=9001&wait=30"), [9002]);
    later.join().unwrap();
}

#[test]
fn a_slow_reader_delays_no_other_and_misses_nothing() {
    let bench = Bench::start(&[Scope::Read]);
    *bench.site.1.lock().unwrap() = 60_000;
    let address = bench.server.address();
    let ask = |after: u64| {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "GET /api/v1/events?after={after} HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).unwrap();
        stream
    };
    // These do not read what is more than their connections hold.
    let slow: Vec<TcpStream> = (0..20).map(|_| ask(0)).collect();
    std::thread::sleep(Duration::from_millis(300));
    let mut quick = std::io::BufReader::new(ask(60_000));
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    *bench.site.1.lock().unwrap() = 60_010;
    assert_eq!(numbers(&mut quick, 10), (60_001..=60_010).collect::<Vec<_>>());
    assert!(began.elapsed() < Duration::from_secs(10));
    // Later, they get all of it.
    let mut one = std::io::BufReader::new(slow.into_iter().next().unwrap());
    assert_eq!(numbers(&mut one, 60_010), (1..=60_010).collect::<Vec<_>>());
}

#[test]
fn readers_without_a_name_are_more_than_strangers() {
    let bench = Bench::start(&[Scope::Read]);
    let address = bench.server.address();
    let ask = || {
        let mut stream = TcpStream::connect(address).unwrap();
        let head = "GET /api/v1/events?after=5 HTTP/1.1\r\nHost: x\r\nAccept: text/event-stream\r\n\r\n";
        stream.write_all(head.as_bytes()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        std::io::BufReader::new(stream)
    };
    // The server takes a quarter of the files, with two for each connection, and strangers get a quarter of that.
    let files_max = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let strangers_max = (files_max / 32).min(1024) as usize;
    *bench.site.1.lock().unwrap() = 6;
    // Each is let in before the next: until then, it is a stranger.
    let mut readers: Vec<_> = (0..strangers_max + 20)
        .map(|_| {
            let mut reader = ask();
            assert_eq!(numbers(&mut reader, 1), [6]);
            reader
        })
        .collect();
    *bench.site.1.lock().unwrap() = 7;
    for reader in &mut readers {
        assert_eq!(numbers(reader, 1), [7]);
    }
}

#[test]
fn a_reader_without_a_token_any_more_gets_no_pages() {
    let bench = Bench::start(&[]);
    let anna = bench.token("anna", &[Scope::Request], None);
    let base = format!("http://{}", bench.server.address());
    let client = &bench.client;
    let login = client.get(format!("{base}/runs/3?x=1")).send().unwrap();
    assert_eq!(login.status(), 401);
    let text = login.text().unwrap();
    assert!(text.contains("action=\"/login\"") && text.contains("value=\"/runs/3?x=1\""), "{text}");
    let form = |token: &str, next: &str| {
        let request =
            client.post(format!("{base}/login")).header("content-type", "application/x-www-form-urlencoded");
        request.body(format!("token={token}&next={next}")).send().unwrap()
    };
    assert_eq!(form("kilnyard-person-1.0.0", "/").status(), 401);
    let entered = form(&anna, "/runs/3");
    let cookie = entered.headers()["set-cookie"].to_str().unwrap().to_owned();
    assert_eq!(
        (entered.status().as_u16(), entered.headers()["location"].to_str().unwrap()),
        (303, "/runs/3")
    );
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    assert_eq!(form(&anna, "//evil.example").headers()["location"], "/");
    assert_eq!(form(&anna, "/login").headers()["location"], "/");
    assert_eq!(client.get(format!("{base}/login")).send().unwrap().status(), 200);
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let page = client.get(format!("{base}/runs/3")).header("cookie", &cookie).send().unwrap();
    assert_eq!(page.status(), 200);
    let policy = page.headers()["content-security-policy"].to_str().unwrap().to_owned();
    assert!(
        policy.contains("default-src 'none'")
            && policy.contains("script-src 'self'")
            && !policy.contains("script-src 'self' "),
        "{policy}"
    );
    assert!(page.text().unwrap().contains("Run(Some(3)) true"));
    // A cookie is not enough for a page of another site.
    let press = |origin: &str| {
        let request = client.post(format!("{base}/do")).header("cookie", &cookie).header("origin", origin);
        let request = request.header("content-type", "application/x-www-form-urlencoded");
        request.body("yard=.&request=retry&package=one&next=/packages/one").send().unwrap()
    };
    assert_eq!(press("https://evil.example").status(), 403);
    assert_eq!(press(WELCOME).status(), 403);
    let pressed = press(&base);
    assert_eq!(
        (pressed.status().as_u16(), pressed.headers()["location"].to_str().unwrap()),
        (303, "/packages/one")
    );
    assert_eq!(*bench.site.0.lock().unwrap(), [("anna".to_owned(), ".".to_owned(), vec!["one".to_owned()])]);
    // Neither is it for the API of another origin, which has a token of its own.
    let ask = |origin: &str, token: Option<&str>| {
        let request = client.post(bench.url("requests")).header("origin", origin).header("cookie", &cookie);
        let request = token.iter().fold(request, |request, token| request.bearer_auth(token));
        request.json(&retry(".", "two")).send().unwrap().status().as_u16()
    };
    assert_eq!(
        (ask(WELCOME, None), ask("https://evil.example", Some(&anna)), ask(WELCOME, Some(&anna))),
        (403, 403, 202)
    );
    let preflight = |origin: &str| {
        let request =
            client.request(reqwest::Method::OPTIONS, bench.url("requests")).header("origin", origin);
        let request = request.header("access-control-request-method", "POST");
        request.header("access-control-request-headers", "authorization").send().unwrap()
    };
    assert_eq!(preflight(WELCOME).headers()["access-control-allow-origin"], WELCOME);
    assert!(preflight("https://evil.example").headers().get("access-control-allow-origin").is_none());
    // The token ends, and so does what the browser keeps.
    Tokens::open(bench.folder.path()).remove("anna").unwrap();
    assert_eq!(client.get(format!("{base}/runs/3")).header("cookie", &cookie).send().unwrap().status(), 401);
}

#[test]
fn workers_are_held_by_those_who_may() {
    let bench = Bench::start(&[Scope::Read]);
    let anna = bench.token("anna", &[Scope::Request], None);
    let otto = bench.token("otto", &[Scope::Manage], None);
    let lab = bench.token("lab", &[Scope::Manage], Some(&["lab"]));
    let hold = |token: &str| {
        let body = json!({ "worker": "w1", "change": "drain" });
        answered(bench.client.post(bench.url("workers")).bearer_auth(token).json(&body)).0
    };
    assert_eq!((hold(&anna), hold(&lab), hold(&otto)), (403, 404, 202));
    assert_eq!(
        *bench.site.0.lock().unwrap(),
        [("otto".to_owned(), "Drain".to_owned(), vec!["w1".to_owned()])]
    );
}
