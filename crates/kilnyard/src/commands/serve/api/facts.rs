//! Answers questions about yards, by the code that commands use.

use super::opened::{Opened, refused_read};
use super::{Yards, follow, shown, unreadable};
use crate::commands::{status, workers};
use crate::run::door;
use crate::yard::store_error;
use kilnyard_api::bodies::OWN_YARD;
use kilnyard_api::feed::Follow;
use kilnyard_api::pages::Wanted;
use kilnyard_api::queries::{At, Facts, FeedEvent, Hold, LogFile, LogOf, Order, PackageFilter, Viewer};
use kilnyard_api::requests::Trouble;
use kilnyard_farm::roster::{Held, Roster};
use kilnyard_model::order::Stage;
use kilnyard_model::result::PackageState;
use kilnyard_schema::Page;
use kilnyard_schema::compare::{Difference, Impact};
use kilnyard_schema::measure::Figures;
use kilnyard_schema::package::{Build, Found, Output, PackageHistory, PackageOfRun, Why};
use kilnyard_schema::run::{Failures, Live, Queued, Run, Status};
use kilnyard_store::{BuildRow, EventKind, Note, WorkerChange};
use kilnyard_yard::facts::edges::Edges;
use kilnyard_yard::facts::{
    compare, failures, impact, live, logs, measure, packages, search, status as facts, why,
};
use std::cmp::Reverse;
use std::io::Read;
use std::sync::Arc;

type Answer<T> = Result<T, Trouble>;

/// The builds of a package that are read to find one of them.
const BUILDS_MAX: usize = 1000;

impl Facts for Yards {
    fn runs(&self, at: &At) -> Answer<Vec<Run>> {
        self.with(at, |opened| facts::runs(&opened.yard, &*opened.store).map_err(refused_read))
    }

    fn status(&self, at: &At, run: Option<u64>) -> Answer<Status> {
        self.with(at, |opened| opened.status(run, &at.yard))
    }

    fn failures(&self, at: &At, run: Option<u64>) -> Answer<Failures> {
        self.with(at, |opened| opened.failures(run))
    }

    fn queue(&self, at: &At) -> Answer<Vec<Queued>> {
        self.with(at, |opened| Ok(opened.outlook()?.queue.clone()))
    }

    fn packages(&self, at: &At, run: Option<u64>, filter: &PackageFilter) -> Answer<Page<PackageOfRun>> {
        self.with(at, |opened| opened.packages(run, filter))
    }

    fn builds(&self, at: &At, run: Option<u64>, after: Option<&str>, count: usize) -> Answer<Page<Build>> {
        self.with(at, |opened| {
            let picture = opened.picture(run)?;
            let mut builds: Vec<&BuildRow> = picture.builds.iter().flatten().collect();
            builds.sort_unstable_by_key(|build| build.number);
            let page = Page::of(builds, |build| build.number.to_string(), after, count).ok_or_else(gone)?;
            Ok(Page { items: page.items.into_iter().map(packages::build).collect(), next: page.next })
        })
    }

    fn builds_of(&self, at: &At, package: &str, count: usize) -> Answer<Vec<Build>> {
        self.with(at, |opened| {
            let builds = packages::builds(&*opened.store, package, count).map_err(unreadable)?;
            match builds.is_empty() && !opened.knows(package)? {
                true => Err(unknown(package)),
                false => Ok(builds),
            }
        })
    }

    fn why(&self, at: &At, package: &str) -> Answer<Why> {
        // It may ask git: others do not wait for it.
        let yard = self.with(at, |opened| Ok(opened.yard.clone()))?;
        let store = yard.store().map_err(unreadable)?;
        let planned = store.planned(package).map_err(|error| unreadable(store_error(error)))?;
        let found = why::why(&yard, &*store, package, planned).map_err(unreadable)?;
        found.ok_or_else(|| unknown(package))
    }

    fn history(&self, at: &At, package: &str, count: usize) -> Answer<PackageHistory> {
        self.with(at, |opened| opened.history(package, count))
    }

    fn difference(&self, at: &At, earlier: Option<u64>, later: Option<u64>) -> Answer<Difference> {
        let yard = self.with(at, |opened| Ok(opened.yard.clone()))?;
        // It reads two whole runs, and asks git: others do not wait for it.
        let store = yard.store().map_err(unreadable)?;
        compare::difference(&yard, &*store, earlier, later).map_err(refused_read)
    }

    fn impact(&self, at: &At, packages: &[String]) -> Answer<Impact> {
        self.with(at, |opened| {
            let edges = opened.edges()?;
            let find = |name: &String| edges.find(name).ok_or_else(|| unknown(name));
            let changed = packages.iter().map(find).collect::<Answer<Vec<u32>>>()?;
            impact::impact(&opened.yard, &mut Edges::clone(&edges), &changed).map_err(unreadable)
        })
    }

    fn workers(&self, at: &At) -> Answer<serde_json::Value> {
        let mut workers = self.with(at, |opened| workers::as_json(&opened.yard).map_err(unreadable))?;
        // Other yards of the site are not the business of those who ask for this one.
        let own = if at.yard == OWN_YARD { "" } else { at.yard.as_str() };
        if let Some(yards) = workers["yards"].as_array_mut() {
            yards.retain(|yard| yard["name"] == own);
        }
        Ok(workers)
    }

    fn outputs(&self, at: &At) -> Answer<Vec<Output>> {
        self.with(at, |opened| {
            let outputs = opened.store.outputs().map_err(|error| unreadable(store_error(error)))?;
            Ok(outputs.into_iter().map(packages::output).collect())
        })
    }

    fn figures(&self, at: &At, runs: usize, package: Option<&str>) -> Answer<Figures> {
        let yard = self.with(at, |opened| Ok(opened.yard.clone()))?;
        // It reads many runs: others do not wait for it.
        let store = yard.store().map_err(unreadable)?;
        measure::figures(&yard, &*store, runs, package).map_err(unreadable)
    }

    fn search(&self, at: &At, text: &str, count: usize) -> Answer<Vec<Found>> {
        self.with(at, |opened| Ok(search::search(opened.picture(None)?, text, count)))
    }

    fn live(&self, at: &At) -> Answer<Live> {
        self.with(at, |opened| {
            let run = opened.last_run()?.unwrap_or_default();
            Ok(live::read(&opened.yard, run, crate::words::now_seconds()))
        })
    }

    fn log(&self, at: &At, log: &LogOf) -> Answer<LogFile> {
        let (_, found, file) = self.log_file(at, log)?;
        let stage = found.stage.to_string();
        Ok(LogFile { stage, compressed: file.compressed(), is_open: found.is_open })
    }

    fn log_reader(&self, at: &At, log: &LogOf, offset: u64) -> Answer<Box<dyn Read + Send>> {
        let (_, _, file) = self.log_file(at, log)?;
        file.reader(offset).map_err(refused_read)
    }

    fn events(&self, at: &At, after: u64, count: usize) -> Answer<Vec<FeedEvent>> {
        self.with(at, |opened| {
            let events =
                opened.store.events_since(after, count).map_err(|error| unreadable(store_error(error)))?;
            Ok(events.iter().map(follow::feed_event).collect())
        })
    }

    fn follow(&self, at: &At) -> Answer<Box<dyn Follow>> {
        let yard = self.with(at, |opened| Ok(opened.yard.clone()))?;
        Ok(Box::new(follow::Reader::new(yard)))
    }

    fn last_event(&self, at: &At) -> Answer<u64> {
        self.with(at, |opened| opened.store.last_event().map_err(|error| unreadable(store_error(error))))
    }

    fn hold(&self, worker: &str, hold: Hold, author: &str) -> Answer<()> {
        let site = self.yard(OWN_YARD)?;
        let machine = |error: std::io::Error| Trouble::Machine(format!("the list of workers: {error}"));
        let absent = || Trouble::Absent(format!("there is no worker {worker:?}"));
        if !door::folder(&site).exists() {
            return Err(absent());
        }
        let roster = Roster::open(&door::roster_folder(&site)).map_err(machine)?;
        let member = roster.member(worker).map_err(machine)?.ok_or_else(absent)?;
        if hold == Hold::Resume && member.held == Some(Held::Unapproved) {
            return Err(Trouble::Refused(format!("{worker} was never approved")));
        }
        let held = (hold == Hold::Drain).then_some(Held::Drained);
        roster.hold(worker, held).map_err(machine)?;
        let (change, done) = match hold {
            Hold::Drain => (WorkerChange::Drained, "drained"),
            Hold::Approve | Hold::Resume => (WorkerChange::Approved, "approved"),
        };
        say!("{author} has {done} {worker}");
        let kind =
            EventKind::Worker { name: worker.to_owned(), change, why: None, author: Some(author.to_owned()) };
        let note = Note { run: None, build: None, at_seconds: crate::words::now_seconds(), kind };
        let mut store =
            site.targets().and_then(|mut targets| targets.remove(0).store()).map_err(unreadable)?;
        store.note(&note).map_err(|error| unreadable(store_error(error)))
    }

    fn page(&self, at: &At, page: &Wanted, viewer: &Viewer) -> Answer<String> {
        shown::page(self, at, page, viewer)
    }
}

fn gone() -> Trouble {
    Trouble::Absent(
        "the list has changed, and has no such cursor any more: begin again without one".to_owned(),
    )
}

pub(super) fn unknown(package: &str) -> Trouble {
    Trouble::Absent(format!("there is no package {package:?} here"))
}

impl Yards {
    /// A build, its log, and the file of that, which may have to be brought here.
    pub(super) fn log_file(&self, at: &At, log: &LogOf) -> Answer<(BuildRow, logs::Found, logs::Log)> {
        let (build, found, yard) = self.with(at, |opened| {
            let (build, found) = opened.log(log)?;
            Ok((build, found, opened.yard.clone()))
        })?;
        // That another machine's file cannot be brought is no reason to open the yard anew.
        let file = logs::Log::open(&yard, &found).map_err(|error| match refused_read(error) {
            Trouble::Machine(why) => Trouble::Absent(why),
            other => other,
        })?;
        Ok((build, found, file))
    }
}

impl Opened {
    /// Whether the plan or the last run has a package.
    pub fn knows(&mut self, package: &str) -> Answer<bool> {
        let planned = self.store.planned(package).map_err(|error| unreadable(store_error(error)))?;
        Ok(planned.is_some() || self.picture(None).is_ok_and(|picture| picture.place(package).is_some()))
    }

    /// `yard` is the name by which it was asked for.
    pub fn status(&mut self, run: Option<u64>, yard: &str) -> Answer<Status> {
        let Some(last) = self.last_run()? else {
            return facts::status(&self.yard, &*self.store, Vec::new()).map_err(unreadable);
        };
        let is_last = run.is_none_or(|run| run == last);
        let outlook = if is_last { self.outlook()? } else { Arc::default() };
        let obstacles = if is_last { status::obstacles_of(&self.yard, Some(yard)) } else { Vec::new() };
        self.load(run)?;
        let mut status = facts::status_of(&self.yard, &*self.store, self.loaded()?, &outlook, obstacles)
            .map_err(unreadable)?;
        if !is_last {
            // What the yard waits for now is no fact of an earlier run.
            status.obstacles.clear();
        }
        Ok(status)
    }

    pub fn failures(&mut self, run: Option<u64>) -> Answer<Failures> {
        self.load(run)?;
        failures::failures(&self.yard, &*self.store, self.loaded()?).map_err(unreadable)
    }

    pub fn history(&mut self, package: &str, count: usize) -> Answer<PackageHistory> {
        let edges = match self.edges() {
            Ok(edges) => edges,
            // Without a plan, nothing is known to need it.
            Err(Trouble::Absent(_)) => Arc::default(),
            Err(trouble) => return Err(trouble),
        };
        let blocks = match self.picture(None) {
            Ok(picture) => packages::blocked_by(picture, package),
            Err(Trouble::Absent(_)) => Vec::new(),
            Err(trouble) => return Err(trouble),
        };
        let history = packages::history(&*self.store, blocks, &edges, package, count).map_err(unreadable)?;
        match history.builds.is_empty() && !self.knows(package)? {
            true => Err(unknown(package)),
            false => Ok(history),
        }
    }

    pub fn packages(&mut self, run: Option<u64>, filter: &PackageFilter) -> Answer<Page<PackageOfRun>> {
        let states: Vec<PackageState> = filter
            .states
            .iter()
            .map(|state| {
                PackageState::parse(state).ok_or_else(|| {
                    let known = PackageState::ALL.map(PackageState::as_str).join(", ");
                    Trouble::Refused(format!("{state:?} is not a state: {known}"))
                })
            })
            .collect::<Answer<_>>()?;
        let text = filter.text.as_ref().map(|text| text.to_lowercase());
        let picture = self.picture(run)?;
        let chosen = picture.rows.iter().enumerate().filter(|(_, row)| {
            (states.is_empty() || states.contains(&row.state))
                && text.as_ref().is_none_or(|text| row.name.to_lowercase().contains(text))
        });
        let mut places: Vec<usize> = chosen.map(|(place, _)| place).collect();
        let key = |place: &usize, value: fn(&BuildRow) -> f64| {
            // In thousandths, so that times are ordered as numbers.
            Reverse(picture.last_build(*place).map_or(0, |build| (value(build) * 1000.0) as u64))
        };
        match filter.order {
            Order::Name => {}
            Order::Wall => places.sort_by_key(|place| {
                key(place, |build| build.ended_seconds.map_or(0.0, |ended| ended - build.started_seconds))
            }),
            Order::Cpu => places.sort_by_key(|place| {
                key(place, |build| build.stages.iter().map(|stage| stage.cpu_seconds).sum())
            }),
            Order::Memory => places.sort_by_key(|place| {
                key(place, |build| {
                    build.stages.iter().map(|stage| stage.memory_peak_bytes).max().unwrap_or(0) as f64
                })
            }),
            Order::State => places.sort_by_key(|place| rank(picture.rows[*place].state)),
        }
        let name = |place: &usize| picture.rows[*place].name.clone();
        let page = Page::of(places, name, filter.after.as_deref(), filter.count).ok_or_else(gone)?;
        let items = page.items.into_iter().map(|place| packages::of_run(picture, place)).collect();
        Ok(Page { items, next: page.next })
    }

    /// A build of the last run, if that is in memory.
    fn known_build(&mut self, package: &str, number: u64) -> Option<&BuildRow> {
        let picture = self.picture(None).ok()?;
        let place = picture.place(package)?;
        picture.builds[place].iter().find(|build| build.number == number)
    }

    /// A build and its log.
    pub fn log(&mut self, log: &LogOf) -> Answer<(BuildRow, logs::Found)> {
        let stage = match &log.stage {
            None => None,
            Some(name) => {
                Some(Stage::parse(name).ok_or_else(|| Trouble::Absent(format!("{name:?} is not a stage")))?)
            }
        };
        let build = match self.known_build(&log.package, log.build) {
            Some(build) => Some(build.clone()),
            None => {
                let builds = self.store.builds_of(&log.package, BUILDS_MAX);
                let mut builds = builds.map_err(|error| unreadable(store_error(error)))?.into_iter();
                builds.find(|build| build.number == log.build)
            }
        };
        let absent = || Trouble::Absent(format!("there is no build {} of {:?}", log.build, log.package));
        let build = build.ok_or_else(absent)?;
        let found = logs::log_of(&self.yard, &build, stage);
        let found = found.ok_or_else(|| Trouble::Absent(format!("build {} has no such log", log.build)))?;
        Ok((build, found))
    }
}

/// What needs attention comes first.
fn rank(state: PackageState) -> u8 {
    match state {
        PackageState::Failed => 0,
        PackageState::Building => 1,
        PackageState::Blocked => 2,
        PackageState::Built => 3,
        PackageState::Unchanged => 4,
        PackageState::Ready => 5,
        PackageState::Waiting => 6,
        PackageState::LeftOut => 7,
        PackageState::Skipped => 8,
        PackageState::UpToDate => 9,
    }
}
