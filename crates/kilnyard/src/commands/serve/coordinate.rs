//! The servers of a farm whose stores several machines share: one has the run, and the others take over when it is gone.
//!
//! The server in whose yard the last leader worked sends the image of the yard; the others receive it, and refer workers to
//! that server. When the leader of a run is silent, or has left, one of them continues the run: it starts `kilnyard build`
//! in its own yard, with the options of the earlier one. Which of several may do so is decided by the store.

use crate::error::{Context, Error, Kind, Result};
use crate::servers::{self, SHOW_STEP, Server, Servers};
use crate::yard::{Documents, Lock, Yard, store_error};
use crate::{mirror, signals};
use kilnyard_artifacts::Depot;
use kilnyard_family::FAMILIES;
use kilnyard_farm::door::{Control, Elsewhere};
use kilnyard_mirror::FileStore;
use kilnyard_store::{Leader, RunState, Store};
use kilnyard_yard::image::{Admitted, Received, Sent};
use rustix::process::{Pid, Signal, kill_process};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How often a server looks at the row of the leader.
const STEP: Duration = Duration::from_millis(250);
/// How often a server sends or receives the image.
const IMAGE_STEP: Duration = Duration::from_secs(2);
/// How often a server looks for changes of the list of workers.
const SHARE_STEP: Duration = Duration::from_secs(1);
/// A leader whose database was away gets this long to show itself again.
const GRACE: Duration = Duration::from_secs(4);
/// For how long a server without the database assumes that the run is here.
const CUT_OFF_MAX: Duration = Duration::from_secs(10);

/// The document with the id of the server that has the yard before its first run.
const KEEPER: &str = "keeper";
/// The document with the options of the last `kilnyard build`.
const BUILD: &str = "build";

/// Notes how a run is continued, for other machines.
pub fn note_build(yard: &Yard, arguments: &[String]) -> Result<()> {
    let Some(documents) = yard.documents()? else { return Ok(()) };
    let text = serde_json::to_vec(arguments).or_internal("note the options of the run")?;
    documents.save_document(BUILD, &text).map_err(store_error).map(drop)
}

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
    yard: Yard,
    control: Control,
    own: String,
    server: Server,
    documents: Documents,
    sharing: Sharing,
    store: Box<dyn Store>,
    depot: Arc<dyn Depot>,
    distfiles: FileStore,
    servers: Servers,
    sent: Sent,
    received: Received,
    /// The run that this server continues.
    build: Option<Child>,
    /// Makes the base root of the received yard.
    warming: Option<JoinHandle<()>>,
    /// When the database was first read after it was away.
    reached: Option<Instant>,
    /// When the database was read last.
    read: Instant,
    shown: Option<Instant>,
    shared: Option<Instant>,
    moved: Option<Instant>,
    /// What was said last about the leader.
    said: String,
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
        if !yard.config.targets.is_empty() {
            say!("note: no other server takes over yet in a yard with several targets");
            return Ok(None);
        }
        let holder = yard.as_holder()?;
        let server = Server { name: holder.name, url: url.to_owned(), beat: 0 };
        Ok(Some(Coordinating {
            yard: yard.clone(),
            control,
            own: holder.id,
            server,
            documents,
            sharing,
            store: yard.store()?,
            depot,
            distfiles: mirror::open_files(yard)?,
            servers: Servers::default(),
            sent: Sent::default(),
            received: Received::default(),
            build: None,
            warming: None,
            reached: None,
            read: Instant::now(),
            shown: None,
            shared: None,
            moved: None,
            said: String::new(),
        }))
    }

    /// Takes part until the process ends.
    pub fn run(mut self) {
        while signals::count() == 0 {
            match self.step() {
                Ok(()) => {
                    self.read = Instant::now();
                    self.reached.get_or_insert(self.read);
                }
                Err(error) => {
                    self.reached = None;
                    self.say(format!("warning: {}", error.one_line()));
                    // The run may be elsewhere by now.
                    if self.read.elapsed() > CUT_OFF_MAX {
                        self.control.set_elsewhere(Some(Elsewhere { leader: None }));
                    }
                }
            }
            std::thread::sleep(STEP);
        }
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
        let leader = self.store.leader().map_err(store_error)?;
        if self.shown.is_none_or(|at| at.elapsed() >= SHOW_STEP) {
            self.shown = Some(Instant::now());
            self.server.beat += 1;
            servers::show(&self.documents, &self.own, &self.server)?;
            self.servers.read(&self.documents)?;
            self.control.set_addresses(self.servers.addresses());
        }
        if self.shared.is_none_or(|at| at.elapsed() >= SHARE_STEP) {
            self.shared = Some(Instant::now());
            self.sharing.share()?;
        }
        if let Some(build) = &mut self.build
            && let Ok(Some(status)) = build.try_wait()
        {
            say!("the run that was continued here has ended: {status}");
            self.build = None;
        }
        // Before the first run, the yard is where it was served first.
        let keeper = match &leader {
            Some(leader) => leader.holder.id.clone(),
            None => {
                let first =
                    self.documents.claim_document(KEEPER, self.own.as_bytes()).map_err(store_error)?;
                String::from_utf8_lossy(&first).into_owned()
            }
        };
        let is_here = keeper == self.own || self.build.is_some();
        let address = self.servers.address(&keeper).map(str::to_owned);
        self.control.set_elsewhere((!is_here).then_some(Elsewhere { leader: address }));
        let moves = self.moved.is_none_or(|at| at.elapsed() >= IMAGE_STEP);
        match keeper == self.own {
            true if moves => {
                self.moved = Some(Instant::now());
                if self.sent.send(&self.yard, &self.documents, &*self.depot)? {
                    self.say("this server has the yard; others can take over".to_owned());
                }
            }
            false if self.build.is_none() => self.follow(leader.as_ref(), moves)?,
            _ => {}
        }
        Ok(())
    }

    /// Keeps this yard as that of the leader, and continues its run if it is gone.
    fn follow(&mut self, leader: Option<&Leader>, moves: bool) -> Result<()> {
        if self.warming.as_ref().is_some_and(|warming| !warming.is_finished()) {
            return Ok(());
        }
        // A command of the user works here: it becomes the leader if it may.
        if self.yard.is_locked() {
            return Ok(());
        }
        if moves {
            self.moved = Some(Instant::now());
            let lock = self.yard.lock()?;
            let received = self.received.receive(
                &self.yard.home,
                &self.documents,
                &self.distfiles,
                signals::cancel(),
            )?;
            if received {
                self.say("standby: the yard is here as it is where it is built".to_owned());
                self.warm(lock)?;
            }
        }
        let is_settled = self.reached.is_some_and(|at| at.elapsed() > GRACE);
        let Some(leader) = leader else { return Ok(()) };
        if !leader.is_gone() || !(leader.has_left || is_settled) {
            return Ok(());
        }
        let run = self.store.last_run().map_err(store_error)?;
        let Some(run) = run.filter(|run| run.state == RunState::Running) else { return Ok(()) };
        let why = match leader.has_left {
            true => "has handed it over",
            false => "is gone",
        };
        self.sharing.share()?;
        say!("run {} continues here: {} {why}", run.number, leader.holder);
        self.build = Some(self.start()?);
        Ok(())
    }

    /// Makes what a run needs first, with the configuration that has arrived.
    fn warm(&mut self, lock: Lock) -> Result<()> {
        self.yard = Yard::open(&self.yard.home, FAMILIES, &self.yard.environment)?;
        let yard = self.yard.clone();
        self.warming = Some(std::thread::spawn(move || {
            let say = |text: &str| say!("{text}");
            let family = &yard.config.family;
            if let Err(error) = family.ensure_layers(&yard, &yard.ids(), signals::cancel(), &say) {
                say!("warning: the base root is made when a run continues here: {}", error.one_line());
            }
            drop(lock);
        }));
        Ok(())
    }

    /// Starts the program that continues the run.
    fn start(&self) -> Result<Child> {
        let document = self.documents.document(BUILD).map_err(store_error)?;
        let arguments: Vec<String> =
            document.and_then(|document| serde_json::from_slice(&document.content).ok()).unwrap_or_default();
        let failed = "continue the run";
        let program = std::env::current_exe().context(Kind::Machine, failed)?;
        let mut command = Command::new(program);
        command.arg("--yard").arg(&self.yard.home).args(["build", "--no-scan"]).args(arguments);
        command.stdin(Stdio::null()).spawn().map_err(|error| {
            let mut made = Error::new(Kind::Machine, format!("failed to {failed}"));
            made.causes.push(error.to_string());
            made
        })
    }
}
