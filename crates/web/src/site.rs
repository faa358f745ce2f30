//! The pages of a server. They work without scripts; a script keeps what changes up to date.
//!
//! Each page is a function from build data to text. [`Shell`] is what they share: the yard, the navigation, the addresses.

mod compare;
mod failures;
mod figures;
mod forms;
mod log;
mod now;
mod package;
mod packages;
mod run;
mod runs;
mod search;
mod workers;

pub use compare::compare;
pub use failures::failures;
pub use figures::figures;
pub use forms::{YardEntry, login, problem, yards};
pub use log::{LOG_LINES_MAX, LogText, log};
pub use now::{Now, now};
pub use package::{Button, package};
pub use packages::{Chosen, packages, queue};
pub use run::run;
pub use runs::runs;
pub use search::search;
pub use workers::workers;

use crate::address::relative;
use crate::clean;
use crate::page::NAME_CHARACTERS_MAX;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// A file that pages refer to.
#[derive(Clone, Copy, Debug)]
pub struct Asset {
    /// Its name, with a hash of its content.
    pub name: &'static str,
    /// Its type.
    pub content_type: &'static str,
    /// Its content.
    pub text: &'static str,
}

const STYLE: &str = concat!(include_str!("page/style.css"), include_str!("site/site.css"));
const SCRIPT: &str = include_str!("site/live.js");

/// The files that pages refer to.
pub fn assets() -> [Asset; 2] {
    use std::sync::OnceLock;
    static NAMES: OnceLock<[String; 2]> = OnceLock::new();
    let [style, script] = NAMES.get_or_init(|| {
        let named = |text: &str, name: &str, suffix: &str| {
            let mut hasher = DefaultHasher::new();
            text.hash(&mut hasher);
            format!("{name}-{:016x}.{suffix}", hasher.finish())
        };
        [named(STYLE, "style", "css"), named(SCRIPT, "live", "js")]
    });
    [
        Asset { name: style, content_type: "text/css; charset=utf-8", text: STYLE },
        Asset { name: script, content_type: "text/javascript; charset=utf-8", text: SCRIPT },
    ]
}

/// What the pages of a yard share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shell {
    /// Where they are.
    pub place: Place,
    /// What the yard is called: a name, and its target.
    pub title: String,
    /// The run that the page is about; absent for pages of the whole yard.
    pub run: Option<u64>,
    /// Whom it is for; absent without a token or login.
    pub viewer: Option<String>,
}

/// Where pages are, which decides what their links lead to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On a server.
    Server {
        /// The beginning of the addresses of the yard's pages: empty, or `/at/YARD/TARGET`.
        base: String,
        /// The parameters that name the yard to the API: `yard=lab&target=trixie`.
        parameters: String,
    },
    /// In the folder of a run's report, which may be copied elsewhere: every link leads to a file in it.
    Folder(Folder),
}

impl Default for Place {
    fn default() -> Self {
        Place::Server { base: String::new(), parameters: String::new() }
    }
}

/// The files in the folder of a report.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folder {
    /// What leads to the folder: empty for pages in it, `../` for those of packages.
    pub up: &'static str,
    /// The packages with a page, and its file.
    pub packages: Arc<HashMap<String, String>>,
    /// The files of logs, by build and stage.
    pub logs: Arc<HashMap<(u64, String), String>>,
    /// Whether there is a page of failures.
    pub has_failures: bool,
    /// Whether there is a page of packages.
    pub has_packages: bool,
    /// Whether there is a page that compares the run with the one before.
    pub has_comparison: bool,
    /// Whether it is the folder of all reports, which has a folder for each run.
    pub is_list: bool,
    /// The file with the data.
    pub data: &'static str,
}

/// The pages in the navigation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tab {
    Run,
    Failures,
    Packages,
    Queue,
    Workers,
    Runs,
    Figures,
    None,
}

/// The most names in a fold.
const FOLDED_MAX: usize = 2000;

impl Shell {
    /// The address of a package's page. Absent if it has none.
    pub(crate) fn package(&self, name: &str) -> Option<String> {
        match &self.place {
            Place::Server { base, .. } => Some(format!("{base}/packages/{}", relative(name)?)),
            Place::Folder(Folder { up, packages, .. }) => {
                Some(format!("{up}{}", relative(packages.get(name)?)?))
            }
        }
    }

    /// A link to a package's page, or plain text if it has none.
    pub(crate) fn package_link(&self, name: &str) -> Markup {
        let shown = clean::name(name, NAME_CHARACTERS_MAX);
        html! {
            @match self.package(name) {
                Some(address) => a href=(address) { (shown) },
                None => (shown),
            }
        }
    }

    /// Links to packages, with the number of further ones beyond `names_max`.
    pub(crate) fn package_links<S: AsRef<str>>(&self, names: &[S], names_max: usize) -> Markup {
        html! {
            @for (position, name) in names.iter().take(names_max).enumerate() {
                @if position > 0 { ", " }
                (self.package_link(name.as_ref()))
            }
            @if names.len() > names_max {
                " and " (crate::words::count((names.len() - names_max) as u64)) " more"
            }
        }
    }

    /// The same, with the further ones in a fold.
    pub(crate) fn unfolding_package_links(&self, names: &[String], names_max: usize) -> Markup {
        let shown = names.len().min(names_max);
        let rest = &names[shown..];
        html! {
            (self.package_links(&names[..shown], shown))
            @if !rest.is_empty() {
                details.rest {
                    summary { "and " (crate::words::count(rest.len() as u64)) " more" }
                    (self.package_links(rest, FOLDED_MAX))
                }
            }
        }
    }

    /// The address of a page of a run. Absent for runs that a folder is not about.
    pub(crate) fn of_run(&self, run: u64, page: &str) -> Option<String> {
        match &self.place {
            Place::Server { base, .. } if page.is_empty() => Some(format!("{base}/runs/{run}")),
            Place::Server { base, .. } => Some(format!("{base}/runs/{run}/{page}")),
            Place::Folder(Folder { is_list: true, .. }) => {
                page.is_empty().then(|| format!("{run}/index.html"))
            }
            Place::Folder(Folder { up, has_failures, has_packages, .. }) => {
                let file = match page {
                    "" => "index.html",
                    "failures" if *has_failures => "failures.html",
                    "packages" if *has_packages => "packages.html",
                    _ => return None,
                };
                (self.run == Some(run)).then(|| format!("{up}{file}"))
            }
        }
    }

    /// A link to a page of a run, or plain text.
    pub(crate) fn run_link(&self, run: u64, page: &str, text: Markup) -> Markup {
        html! {
            @match self.of_run(run, page) {
                Some(address) => a href=(address) { (text) },
                None => (text),
            }
        }
    }

    /// The address of a page of the whole yard, which only a server has.
    pub(crate) fn of_yard(&self, page: &str) -> Option<String> {
        match &self.place {
            Place::Server { base, .. } => Some(format!("{base}/{page}")),
            Place::Folder(_) => None,
        }
    }

    /// The address of a page that compares a run with the one before.
    pub(crate) fn comparison(&self, run: u64) -> Option<String> {
        match &self.place {
            Place::Server { base, .. } => (run > 1).then(|| format!("{base}/compare?later={run}")),
            Place::Folder(Folder { up, has_comparison, .. }) => {
                (*has_comparison && self.run == Some(run)).then(|| format!("{up}compare.html"))
            }
        }
    }

    /// The address of a log. Absent if it is not there.
    pub(crate) fn log(&self, package: &str, build: u64, stage: &str, line: Option<u64>) -> Option<String> {
        match &self.place {
            Place::Server { base, .. } => {
                let line = line.map(|line| format!("#L{line}")).unwrap_or_default();
                Some(format!("{base}/log/{build}/{}?stage={}{line}", relative(package)?, relative(stage)?))
            }
            Place::Folder(Folder { up, logs, .. }) => {
                Some(format!("{up}{}", relative(logs.get(&(build, stage.to_owned()))?)?))
            }
        }
    }

    /// The address of a question to the API. Absent in a folder.
    pub(crate) fn api(&self, path: &str, more: &str) -> Option<String> {
        let Place::Server { parameters, .. } = &self.place else { return None };
        let all: Vec<&str> =
            [parameters.as_str(), more].into_iter().filter(|text| !text.is_empty()).collect();
        let mark = if all.is_empty() { "" } else { "?" };
        Some(format!("/api/v1/{path}{mark}{}", all.join("&")))
    }

    /// Where programs find what a page leaves out: an address, and its name.
    pub(crate) fn data(&self, run: u64) -> (String, &'static str) {
        match &self.place {
            Place::Server { .. } => {
                (self.api(&format!("runs/{run}/packages"), "").unwrap_or_default(), "the API")
            }
            Place::Folder(Folder { up, data, .. }) => (format!("{up}{data}"), data),
        }
    }

    fn navigation(&self, tab: Tab) -> Markup {
        let of = |page: &str| match (&self.place, self.run) {
            (Place::Server { base, .. }, None) => {
                Some(format!("{base}/runs/last/{page}").trim_end_matches('/').to_owned())
            }
            (_, Some(run)) => self.of_run(run, page),
            (Place::Folder(_), None) => None,
        };
        let links = [
            (Tab::Run, of(""), "Run"),
            (Tab::Failures, of("failures"), "Failures"),
            (Tab::Packages, of("packages"), "Packages"),
            (Tab::Queue, self.of_yard("queue"), "Queue"),
            (Tab::Workers, self.of_yard("workers"), "Workers"),
            (Tab::Runs, self.of_yard("runs"), "All runs"),
            (Tab::Figures, self.of_yard("figures"), "Figures"),
        ];
        let links: Vec<_> =
            links.into_iter().filter_map(|(own, address, text)| Some((own, address?, text))).collect();
        if links.len() < 2 {
            return Markup::default();
        }
        html! {
            nav.tabs aria-label="Pages" {
                ul {
                    @for (own, address, text) in links {
                        @if !address.is_empty() {
                            li { a href=(address) aria-current=[(own == tab).then_some("page")] { (text) } }
                        }
                    }
                }
                @if let Some(search) = self.of_yard("search") {
                    form.search method="get" action=(search) role="search" {
                        label.heard for="search" { "Search packages and failures" }
                        input #search type="search" name="text" placeholder="Search" autocomplete="off" maxlength="200";
                    }
                }
            }
        }
    }

    /// A whole page.
    pub(crate) fn page(&self, title: &str, tab: Tab, header: Markup, content: Markup) -> String {
        let name = clean::name(&self.title, NAME_CHARACTERS_MAX);
        let body = html! {
            header {
                div.top {
                    p.kind {
                        @match self.place {
                            Place::Server { .. } => a href="/" { "Kilnyard" },
                            Place::Folder(_) => "Kilnyard",
                        }
                        " · " (name)
                    }
                    (self.navigation(tab))
                }
                (header)
            }
            main #content { (content) }
            footer {
                p {
                    "Times are UTC. The same data for programs: "
                    @match self.place {
                        Place::Server { .. } => {
                            a href="/api/v1/openapi" { "the API" } ". "
                            @match &self.viewer {
                                Some(viewer) => {
                                    form.inline method="post" action="/logout" {
                                        button type="submit" { "Log out " (clean::name(viewer, NAME_CHARACTERS_MAX)) }
                                    }
                                },
                                None => a href="/login" { "Log in" },
                            }
                        },
                        Place::Folder(Folder { is_list: true, .. }) => { code { "kilnyard history --json" } "." },
                        Place::Folder(_) => {
                            @let (address, file) = self.data(0);
                            a href=(address) { (file) } " (schema " (crate::SCHEMA) "). Made by Kilnyard "
                            (env!("CARGO_PKG_VERSION")) "."
                        },
                    }
                }
            }
        };
        let title = format!("{title} – Kilnyard");
        match &self.place {
            Place::Server { .. } => document(&title, body),
            Place::Folder(folder) => file(&title, folder, body),
        }
    }
}

/// Nothing is loaded from elsewhere and nothing runs, whatever a build manages to get onto the page.
const FILE_POLICY: &str =
    "default-src 'none'; style-src 'self' file: 'unsafe-inline'; base-uri 'none'; form-action 'none'";

/// A whole document in a folder. Pages in the folder itself have the style sheet in them, so that each can be sent alone.
fn file(title: &str, folder: &Folder, body: Markup) -> String {
    let page = html! {
        (DOCTYPE) "\n"
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(FILE_POLICY);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                title { (clean::line(title, TITLE_CHARACTERS_MAX)) }
                @if folder.up.is_empty() {
                    style { (PreEscaped(STYLE)) }
                } @else {
                    link rel="stylesheet" href={ (folder.up) (STYLE_FILE) };
                }
            }
            body {
                a.skip href="#content" { "Skip to content" }
                (body)
            }
        }
    };
    clean::only_shown(page.into_string())
}

/// The style sheet in the folder of a report.
pub(crate) const STYLE_FILE: &str = "style.css";
/// The longest title.
const TITLE_CHARACTERS_MAX: usize = 200;

/// The style sheet.
pub(crate) fn style() -> &'static str {
    STYLE
}

/// A whole document of a server.
pub(crate) fn document(title: &str, body: Markup) -> String {
    let [style, script] = assets();
    let page = html! {
        (DOCTYPE) "\n"
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="robots" content="noindex";
                title { (clean::line(title, TITLE_CHARACTERS_MAX)) }
                link rel="stylesheet" href={ "/assets/" (style.name) };
                script src={ "/assets/" (script.name) } defer {}
            }
            body {
                a.skip href="#content" { "Skip to content" }
                (body)
            }
        }
    };
    clean::only_shown(page.into_string())
}

/// A time of day in UTC, with the date if it is another one than that of `now_seconds`.
pub(crate) fn time_of_day(seconds: f64, now_seconds: f64) -> String {
    let Some(text) = crate::words::moment(seconds as i64) else { return "unknown".to_owned() };
    let today = crate::words::moment(now_seconds as i64).unwrap_or_default();
    // 2026-11-21T08:05:20Z
    let (date, time) = text.split_once('T').unwrap_or((&text, ""));
    let time = time.get(..5).unwrap_or(time);
    if today.starts_with(date) { time.to_owned() } else { format!("{date} {time}") }
}

/// The class of a state in the style sheet, and its word.
pub(crate) fn state(state: &str) -> Markup {
    let (class, word) = match state {
        "built" => ("state built", "built"),
        "unchanged" => ("state same", "unchanged"),
        "up-to-date" => ("state same", "up to date"),
        "failed" => ("state failed", "failed"),
        "blocked" => ("state blocked", "blocked"),
        "skipped" => ("state waiting", "skipped"),
        "left-out" => ("state waiting", "left out"),
        "waiting" => ("state waiting", "waiting"),
        "ready" => ("state waiting", "ready"),
        "building" => ("state building", "being built"),
        "running" => ("state building", "running"),
        "finished" => ("state built", "finished"),
        "interrupted" => ("state blocked", "interrupted"),
        "killed" => ("state failed", "killed"),
        "lost" => ("state waiting", "lost"),
        _ => ("state waiting", ""),
    };
    let word = if word.is_empty() { clean::name(state, NAME_CHARACTERS_MAX) } else { word.to_owned() };
    html! { span class=(class) { (word) } }
}
