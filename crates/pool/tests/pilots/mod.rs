//! A pool in real time: the shipped reconciler, a real driver, and sham workers that real managers start.
//!
//! A sham worker is a shell script that holds a lock on `workers/NAME` while it lives; that is how it is connected. It adds its name to
//! `starts` when it begins, and to `drained` at its first SIGTERM, and then ends. Slurm sends SIGTERM to all processes of a job, and
//! the job's script passes it on, so that a worker gets it twice.

use kilnyard_pool::{
    Action, Driver, Event, Figures, Launch, Memory, Names, PilotName, Reconciler, Terms, perform,
};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub struct Pool<'driver> {
    driver: &'driver dyn Driver,
    reconciler: Reconciler,
    began: Instant,
    most: u32,
    pub shared: PathBuf,
    connected: BTreeSet<PilotName>,
    held: BTreeSet<PilotName>,
    /// All starts that the manager acknowledged.
    pub acknowledged: u32,
    /// What failed, for the messages of tests.
    pub failures: Vec<String>,
}

/// Short times, so that a test takes seconds.
pub fn terms(most: u32) -> Terms {
    let mut terms = Terms::new(0, most, "f");
    (terms.idle_seconds, terms.settle_seconds, terms.list_seconds) = (1.0, 2.0, 0.5);
    (terms.backoff_seconds, terms.backoff_seconds_max) = (0.5, 2.0);
    (terms.start_seconds_max, terms.away_seconds_max) = (30.0, 5.0);
    terms
}

impl<'driver> Pool<'driver> {
    /// `shared` is a folder that pilots reach under the same path.
    pub fn new(driver: &'driver dyn Driver, terms: Terms, shared: &Path) -> Pool<'driver> {
        fs::create_dir_all(shared.join("workers")).unwrap();
        let most = terms.most;
        let names = Names::new("kilnyard-lab", &terms.form, "g").unwrap();
        let reconciler = Reconciler::new(terms, names, Memory::Names(Vec::new()), 0.0).unwrap();
        Pool {
            driver,
            reconciler,
            began: Instant::now(),
            most,
            shared: shared.to_owned(),
            connected: BTreeSet::new(),
            held: BTreeSet::new(),
            acknowledged: 0,
            failures: Vec::new(),
        }
    }

    pub fn want(&mut self, count: u32) {
        self.want_with(count, &mut |_| {});
    }

    pub fn want_with(&mut self, count: u32, acknowledged: &mut dyn FnMut(&PilotName)) {
        self.apply(Event::Wanted { count, reason: "of the test".to_owned() }, acknowledged);
    }

    pub fn figures(&self) -> Figures {
        self.reconciler.figures()
    }

    /// The names of living pilots.
    pub fn alive(&self) -> BTreeSet<PilotName> {
        let entries = fs::read_dir(self.shared.join("workers")).unwrap().map(|entry| entry.unwrap().path());
        let lives = |path: &PathBuf| File::open(path).unwrap().try_lock_shared().is_err();
        let name = |path: PathBuf| PilotName::parse(path.file_name().unwrap().to_str().unwrap()).unwrap();
        entries.filter(lives).map(name).collect()
    }

    /// How often each pilot was started.
    pub fn starts(&self) -> BTreeMap<String, u32> {
        let mut starts = BTreeMap::new();
        let text = fs::read_to_string(self.shared.join("starts")).unwrap_or_default();
        text.lines().for_each(|name| *starts.entry(name.to_owned()).or_default() += 1);
        starts
    }

    fn apply(&mut self, event: Event, acknowledged: &mut dyn FnMut(&PilotName)) {
        let mut events = vec![event];
        while let Some(event) = events.pop() {
            match &event {
                Event::Failed { verb, reason } => self.failures.push(format!("{verb:?}: {reason}")),
                Event::Started(_) => self.acknowledged += 1,
                _ => {}
            }
            let mut actions = Vec::new();
            self.reconciler.apply(self.began.elapsed().as_secs_f64(), event, &mut actions);
            for action in actions {
                if let Action::Drain(name, _) = &action {
                    // Sham workers have no builds.
                    self.held.insert(name.clone());
                    events.push(Event::Drained(name.clone()));
                }
                let shared = self.shared.clone();
                let answer = perform(self.driver, &action, |name| Ok(launch(&shared, name)));
                if let Some(Event::Started(name)) = &answer {
                    acknowledged(name);
                }
                events.extend(answer);
            }
        }
    }

    /// One step; `acknowledged` is called right after each start that the manager acknowledged.
    pub fn step_with(&mut self, acknowledged: &mut dyn FnMut(&PilotName)) {
        let alive = self.alive();
        assert!(alive.len() <= self.most as usize, "{} pilots live, more than {}", alive.len(), self.most);
        for name in alive.difference(&self.connected.clone()) {
            self.apply(Event::Joined(name.clone()), acknowledged);
            if self.held.contains(name) {
                self.apply(Event::Drained(name.clone()), acknowledged);
            }
        }
        for name in self.connected.clone().difference(&alive) {
            self.apply(Event::Left(name.clone()), acknowledged);
        }
        self.connected = alive;
        self.apply(Event::Tick, acknowledged);
        let books: BTreeSet<PilotName> = self.reconciler.pilots().cloned().collect();
        let lost: Vec<_> = self.alive().difference(&books).cloned().collect();
        assert!(lost.is_empty(), "lost from sight: {lost:?}");
    }

    /// Steps for this time.
    pub fn steps(&mut self, seconds: u64) {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while Instant::now() < deadline {
            self.step_with(&mut |_| {});
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Steps until the figures are as expected.
    pub fn until(&mut self, what: &str, seconds: u64, is_done: impl Fn(&Figures) -> bool) {
        self.until_with(what, seconds, is_done, &mut |_| {});
    }

    pub fn until_with(
        &mut self,
        what: &str,
        seconds: u64,
        is_done: impl Fn(&Figures) -> bool,
        acknowledged: &mut dyn FnMut(&PilotName),
    ) {
        let deadline = Instant::now() + Duration::from_secs(seconds);
        while !is_done(&self.figures()) {
            assert!(
                Instant::now() < deadline,
                "not within {seconds} s: {what}: {:#?}\n{:#?}",
                self.figures(),
                self.failures
            );
            self.step_with(acknowledged);
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// No pilot was started twice.
    pub fn assert_none_twice(&self) {
        let twice: Vec<_> = self.starts().into_iter().filter(|(_, count)| *count > 1).collect();
        assert!(twice.is_empty(), "started twice: {twice:?}");
    }
}

/// The sham worker.
pub fn launch(shared: &Path, name: &PilotName) -> Launch {
    let script = r#"
exec 9>"$1/workers/$2"
flock -n 9 || exit 9
[ "$(cat files/token)" = "secret of $2" ] || exit 8
[ "${#SECRET}" = 11 ] || exit 7
trap 'trap "" TERM; echo "$2" >> "$1/drained"; exit 0' TERM
echo "$2" >> "$1/starts"
while :; do sleep 0.1 9>&-; done
"#;
    let command = ["sh", "-c", script, "sham", shared.to_str().unwrap(), name.as_str()].map(str::to_owned);
    Launch {
        command: command.to_vec(),
        environment: BTreeMap::from([("SECRET".to_owned(), "it's secret".to_owned())]),
        files: BTreeMap::from([("token".to_owned(), format!("secret of {name}").into_bytes())]),
    }
}
