//! The servers of a farm whose stores several machines share: one has the run, and the others take over when it is gone.
//!
//! The server in whose yard the last leader worked sends the image of the yard; the others receive it, and refer workers to
//! that server. When the leader of a run is silent, or has left, one of them continues the run in its own yard: by a process
//! that it has kept ready for that ([`super::successor`]). If the run had ended, and that machine was lost before it published
//! the result, one of them starts `kilnyard publish`. Which of several may do so is decided by the store.

use super::mover::{Direction, Mover};
use super::successor::{Continued, Successor};
use crate::error::{Context, Kind, Result};
use crate::servers::{self, SHOW_STEP, Server, Servers, noted_build};
use crate::yard::{Documents, Yard, store_error};
use crate::{mirror, signals};
use kilnyard_farm::door::{Control, Elsewhere};
use kilnyard_store::{Leader, Number, RunState, Store};
use kilnyard_yard::image::Admitted;
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How often a server reads the row of the leader.
const STEP: Duration = Duration::from_millis(100);
/// How often a server checks for changes of the list of workers.
const SHARE_STEP: Duration = Duration::from_secs(1);
/// How often a server checks whether the process that it keeps ready is the right one.
const READY_STEP: Duration = Duration::from_secs(1);
/// A leader whose database was away gets this long to show itself again.
const GRACE: Duration = Duration::from_secs(4);
/// For how long a server without the database assumes that the run is here: another server takes over after that.
const CUT_OFF_MAX: Duration = Duration::from_secs(10);

/// The pause before another attempt to continue a run, and the longest one.
const PAUSE_MIN: Duration = Duration::from_secs(2);
const PAUSE_MAX: Duration = Duration::from_secs(120);
/// The document with the id of the server that has the yard before its first run.
const KEEPER: &str = "keeper";
/// Begins the names of documents with the id of the server that publishes what a leader left; its epoch follows.
const PUBLICATION: &str = "publication/";
/// Shares the list of workers, for the thread that coordinates and for those that admit workers.
#[derive(Clone)]
pub struct Sharing(Arc<Mutex<(Documents, Admitted, PathBuf)>>);

impl Sharing {
    /// Prepares it; none if no other machine can have this yard.
    ///
    /// # Errors
    /// The database cannot be used.
    pub fn new(yard: &Yard) -> Result<Option<Sharing>> {
        let documents = yard.documents()?;
        let sharing = |documents| (documents, Admitted::default(), yard.home.clone());
        Ok(documents.map(|documents| Sharing(Arc::new(Mutex::new(sharing(documents))))))
    }

    /// Makes the list the same here and in the store.
    ///
    /// # Errors
    /// The database or a file cannot be used.
    pub fn share(&self) -> Result<()> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (documents, admitted, home) = &mut *shared;
        admitted.share(home, documents)
    }
}

/// See the module documentation.
pub struct Coordinating {
    control: Control,
    own: String,
    server: Server,
    documents: Documents,
    sharing: Sharing,
    /// Those of the targets.
    stores: Vec<Box<dyn Store>>,
    servers: Servers,
    mover: Mover,
    /// The run that this server continues.
    build: Option<Child>,
    /// The process that would continue the run of another machine.
    successor: Option<Successor>,
    /// When that is checked next.
    ready_at: Instant,
    /// The options of the run of which only the publication is left.
    unpublished: Option<Vec<String>>,
    /// When it may be started again, and after how long the next time.
    pause: (Option<Instant>, Duration),
    /// When the database was first read after it was away.
    reached: Option<Instant>,
    /// When the database was read last, and whether there was another server then.
    reading: Arc<Reading>,
    shown: Option<Instant>,
    shared: Option<Instant>,
    /// What was said last about the database.
    said: String,
}

/// What a server knows of the others, for the thread that notices that it knows nothing any more.
struct Reading {
    read: Mutex<Instant>,
    has_others: AtomicBool,
}

impl Reading {
    fn note(&self, now: Instant) {
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// Refers workers away while the database is not read: this server does not know where the run is then, and one that is here
    /// may have been taken over. Until the process ends.
    fn watch(&self, control: &Control) {
        while signals::count() == 0 {
            let silent = self.read.lock().unwrap_or_else(PoisonError::into_inner).elapsed();
            if silent > CUT_OFF_MAX && (self.has_others.load(Ordering::Relaxed) || !control.has_run()) {
                control.set_elsewhere(Some(Elsewhere { leader: None }));
            }
            std::thread::sleep(STEP);
        }
    }
}

impl Coordinating {
    /// Prepares it; none if no other machine can have this yard. Workers reach this server at `url`.
    ///
    /// # Errors
    /// A store cannot be used.
    pub fn new(
        yard: &Yard,
        control: Control,
        url: &str,
        sharing: Option<Sharing>,
    ) -> Result<Option<Coordinating>> {
        let (Some(documents), Some(depot), Some(sharing)) = (yard.documents()?, yard.depot()?, sharing)
        else {
            return Ok(None);
        };
        let Some(of_mover) = yard.documents()? else { return Ok(None) };
        let holder = yard.as_holder()?;
        let server = Server { name: holder.name, url: url.to_owned(), beat: 0 };
        Ok(Some(Coordinating {
            control,
            own: holder.id,
            server,
            documents,
            sharing,
            stores: yard.targets()?.iter().map(Yard::store).collect::<Result<_>>()?,
            servers: Servers::default(),
            mover: Mover::start(yard, of_mover, depot, mirror::open_files(yard)?),
            build: None,
            successor: None,
            ready_at: Instant::now(),
            unpublished: None,
            pause: (None, PAUSE_MIN),
            reached: None,
            reading: Arc::new(Reading {
                read: Mutex::new(Instant::now()),
                has_others: AtomicBool::new(false),
            }),
            shown: None,
            shared: None,
            said: String::new(),
        }))
    }

    /// Takes part until the process ends.
    pub fn run(mut self) {
        // A step may wait for a database that does not answer.
        let (reading, control) = (self.reading.clone(), self.control.clone());
        std::thread::spawn(move || reading.watch(&control));
        while signals::count() == 0 {
            if let Err(error) = self.step() {
                self.say(format!("warning: {}", error.one_line()));
            }
            std::thread::sleep(STEP);
        }
        drop(self.successor.take());
        // Others see its silence otherwise.
        let _ = servers::leave(&self.documents, &self.own);
        if let Some(mut build) = self.build.take() {
            // After Ctrl-C in a terminal it has that signal already.
            if signals::is_handover()
                && let Some(pid) = i32::try_from(build.id()).ok().and_then(Pid::from_raw)
            {
                let _ = kill_process(pid, Signal::TERM);
            }
            let _ = build.wait();
        }
    }

    fn say(&mut self, text: String) {
        if self.said != text {
            say!("{text}");
            self.said = text;
        }
    }

    fn step(&mut self) -> Result<()> {
        let leaders =
            self.stores.iter().map(|store| store.leader()).collect::<std::result::Result<Vec<_>, _>>();
        let leaders = match leaders {
            Ok(leaders) => leaders,
            Err(error) => {
                self.reached = None;
                return Err(store_error(error));
            }
        };
        // Of several targets, the one that was built last says where the yard is.
        let last =
            leaders.iter().flatten().min_by(|a, b| a.silent_seconds.total_cmp(&b.silent_seconds)).cloned();
        let now = Instant::now();
        self.reading.note(now);
        self.reached.get_or_insert(now);
        if self.shown.is_none_or(|at| at.elapsed() >= SHOW_STEP) {
            self.shown = Some(Instant::now());
            self.server.beat += 1;
            servers::show(&self.documents, &self.own, &self.server)?;
            self.servers.read(&self.documents)?;
            self.control.set_addresses(self.servers.addresses());
            let has_others = self.servers.has_other(&self.own);
            self.reading.has_others.store(has_others, Ordering::Relaxed);
        }
        if self.shared.is_none_or(|at| at.elapsed() >= SHARE_STEP) {
            self.shared = Some(Instant::now());
            self.sharing.share()?;
        }
        if let Some(build) = &mut self.build
            && let Ok(Some(status)) = build.try_wait()
        {
            let what = if self.unpublished.is_some() { "publication" } else { "run" };
            say!("the {what} that was continued here has ended: {status}");
            self.build = None;
            if self.unpublished.is_some() && status.success() {
                self.unpublished = None;
                // Another machine may have begun a run since.
                if last.as_ref().is_some_and(|leader| leader.holder.id == self.own) {
                    servers::forget_build(&self.documents)?;
                }
                for (name, _) in self.documents.documents().map_err(store_error)? {
                    if name.starts_with(PUBLICATION) {
                        self.documents.remove_document(&name).map_err(store_error)?;
                    }
                }
            }
        }
        // Before the first run, the yard is where it was served first.
        let keeper = match &last {
            Some(leader) => leader.holder.id.clone(),
            None => {
                let first =
                    self.documents.claim_document(KEEPER, self.own.as_bytes()).map_err(store_error)?;
                String::from_utf8_lossy(&first).into_owned()
            }
        };
        let is_keeper = keeper == self.own;
        let is_here = is_keeper || self.build.is_some();
        let address = self.servers.address(&keeper).map(str::to_owned);
        self.control.set_elsewhere((!is_here).then_some(Elsewhere { leader: address }));
        self.mover.set(match (is_keeper, &self.build) {
            (true, _) => Direction::Send,
            (false, None) => Direction::Receive,
            (false, Some(_)) => Direction::Neither,
        });
        match (last, self.unpublished.clone()) {
            // It has failed, and this server has the yard already.
            (Some(_), Some(arguments)) if self.build.is_none() && is_keeper && self.may_begin()? => {
                self.begin(&arguments)
            }
            (Some(leader), _) if !is_here => self.follow(&leader),
            _ => {
                self.successor = None;
                Ok(())
            }
        }
    }

    /// The run that was not ended, if there is one.
    fn unended(&self) -> Result<Option<Number>> {
        for store in &self.stores {
            let run = store.last_run().map_err(store_error)?;
            if let Some(run) = run.filter(|run| run.state == RunState::Running) {
                return Ok(Some(run.number));
            }
        }
        Ok(None)
    }

    /// Continues the run of a leader that is gone.
    fn follow(&mut self, leader: &Leader) -> Result<()> {
        let is_settled = self.reached.is_some_and(|at| at.elapsed() > GRACE);
        if !leader.is_gone() || !(leader.has_left || is_settled) {
            // The next one has its tries.
            self.pause = (None, PAUSE_MIN);
            return self.keep_ready();
        }
        if !self.may_begin()? {
            return Ok(());
        }
        let yard = self.mover.yard();
        let noted = noted_build(&self.documents)?;
        let run = self.unended()?;
        if noted.is_none() || run.is_none() {
            self.successor = None;
        }
        let Some(arguments) = noted else { return Ok(()) };
        // The machine of a leader that left publishes the result, as long as it is there.
        if run.is_none()
            && (!is_settled || self.servers.is_alive(&leader.holder.id) || !publishes(&yard, &arguments))
        {
            return Ok(());
        }
        self.sharing.share()?;
        match run {
            Some(run) => {
                let why = if leader.has_left { "has handed it over" } else { "is gone" };
                say!("run {run} continues here: {} {why}", leader.holder);
                self.unpublished = None;
            }
            None if self.is_first_to_publish(leader)? => {
                say!("the last run is published here: {} is gone", leader.holder);
                self.unpublished = Some(arguments.clone());
            }
            None => return Ok(()),
        }
        self.begin(&arguments)
    }

    /// Whether this server publishes what that leader left: one of several does.
    fn is_first_to_publish(&self, leader: &Leader) -> Result<bool> {
        let claim = format!("{PUBLICATION}{}", leader.epoch);
        let first = self.documents.claim_document(&claim, self.own.as_bytes()).map_err(store_error)?;
        let first = String::from_utf8_lossy(&first).into_owned();
        if first != self.own && !self.servers.is_alive(&first) {
            // The next attempt may get it.
            self.documents.remove_document(&claim).map_err(store_error)?;
        }
        Ok(first == self.own)
    }

    /// Keeps a process ready for the run of a leader that is there.
    fn keep_ready(&mut self) -> Result<()> {
        if Instant::now() < self.ready_at {
            return Ok(());
        }
        self.ready_at = Instant::now() + READY_STEP;
        let wanted = match (self.unended()?, noted_build(&self.documents)?, self.mover.inputs()) {
            (None, ..) | (_, None, _) | (.., 0) => None,
            (Some(run), Some(arguments), inputs) => Some(Continued { run, arguments, inputs }),
        };
        let is_current = match (&self.successor, &wanted) {
            (Some(successor), Some(wanted)) => successor.is_for(wanted),
            (successor, wanted) => successor.is_none() && wanted.is_none(),
        };
        let has_ended = self.successor.as_mut().is_some_and(Successor::has_ended);
        if is_current && !has_ended {
            return Ok(());
        }
        self.successor = None;
        if has_ended {
            // It has said why.
            self.ready_at = Instant::now() + PAUSE_MAX;
            return Ok(());
        }
        // While the image arrives, or a command of the user works here, there is none.
        if let Some(of) = wanted
            && self.may_begin()?
        {
            self.successor = Some(Successor::start(&self.mover.yard(), of)?);
        }
        Ok(())
    }

    /// Starts the program for the run that continues here, or for its publication.
    fn begin(&mut self, arguments: &[String]) -> Result<()> {
        let yard = self.mover.yard();
        let ready = self.successor.take().filter(|ready| ready.of.arguments == arguments);
        self.build = Some(match (self.unpublished.is_some(), ready) {
            (true, _) => publish(&yard, arguments)?,
            (false, Some(ready)) => ready.begin()?,
            (false, None) => {
                Successor::start(&yard, Continued { run: 0, arguments: arguments.to_vec(), inputs: 0 })?
                    .begin()?
            }
        });
        self.pause = (Some(Instant::now() + self.pause.1), (self.pause.1 * 2).min(PAUSE_MAX));
        Ok(())
    }

    /// Whether the yard is free, and a failed attempt is long enough ago.
    fn may_begin(&self) -> Result<bool> {
        let is_paused = self.pause.0.is_some_and(|until| Instant::now() < until);
        // The process that is ready works in the yard until it has a plan.
        Ok(!is_paused && (self.successor.is_some() || !self.is_locked()?))
    }

    fn is_locked(&self) -> Result<bool> {
        Ok(self.mover.yard().targets()?.iter().any(Yard::is_locked))
    }
}

/// Whether a build with these options publishes its result.
fn publishes(yard: &Yard, arguments: &[String]) -> bool {
    let has = |option: &str| arguments.iter().any(|argument| argument == option);
    !has("--no-publish") && (has("--publish") || yard.config.publishes())
}

/// Starts the program that publishes what the run with these options has built.
fn publish(yard: &Yard, arguments: &[String]) -> Result<Child> {
    let target = arguments.iter().skip_while(|argument| *argument != "--target").take(2);
    let mut command = own_program(yard);
    command.args(["publish", "--continued"]).args(target).stdin(Stdio::null());
    command.spawn().context(Kind::Machine, "publish the run")
}

/// This program, even if a newer one has its path now.
pub fn own_program(yard: &Yard) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.arg("--yard").arg(&yard.home);
    command
}
