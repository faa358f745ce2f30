//! The workers of a run: the machine, session and last offer of each.

use crate::Channel;
use kilnyard_model::host::Host;
use kilnyard_protocol::{Hello, Ranked, Session};
use kilnyard_schedule::{Class, Machine, MachineId, Pressure};
use std::collections::{BTreeSet, HashMap, VecDeque};

/// The maximum number of workers of one run, including those that left.
pub(crate) const WORKERS_MAX: usize = 4096;
/// The number of earlier processes of a worker to remember, so that their late hellos are refused.
const PAST_MAX: usize = 64;
/// The longest name of a worker or process, in bytes: every record of a build has it.
const NAME_BYTES_MAX: usize = 255;
/// The speeds that a worker may declare. The scheduler measures the rest.
pub(crate) const SPEEDS: std::ops::RangeInclusive<f64> = 1.0 / 16.0..=16.0;
/// More cores than any machine has.
const CORES_MAX: u32 = 1 << 16;

/// A machine of the scheduler, with the worker that sits at it.
#[derive(Clone, Debug)]
pub(crate) struct Seat {
    /// The worker's name.
    pub worker: String,
    /// The cores of its machine.
    pub cores: u32,
    /// The kernel and CPU of its machine, if it reported them.
    pub host: Option<Host>,
    /// Its current or last process.
    pub process: String,
    /// Its session; none once it left or was silent for too long.
    pub session: Option<Session>,
    /// Its connection.
    pub channel: Channel,
    /// The time of its last message.
    pub heard_seconds: f64,
    /// The number of its last offer.
    pub offer: Option<u64>,
    /// The last ranks sent to it, if that was after its last offer.
    pub ranks: Option<Vec<Ranked>>,
    pub pressure: Pressure,
    /// Whether the worker takes builds, by its last offer.
    pub takes_more: bool,
    /// The cores of the machine for builds, as it joined, and those that the scheduler may use now.
    pub cores_all: u32,
    /// See [`Seat::cores_all`].
    pub cores_now: u32,
    /// Whether the worker prepares announced builds.
    pub prepares_announced: bool,
    /// Its class for the scheduler.
    pub class: Class,
    /// Whether the scheduler may use the machine, as it was last said to it.
    pub is_open: bool,
    pub slots_free: BTreeSet<u32>,
    /// Its earlier processes, the latest first.
    past: VecDeque<String>,
}

impl Seat {
    /// The destination of messages to it; none once it left.
    pub fn way(&self) -> Option<(Channel, Session)> {
        self.session.map(|session| (self.channel, session))
    }

    /// Retires the current process: late messages of it are refused.
    pub fn retire(&mut self) {
        self.past.truncate(PAST_MAX - 1);
        self.past.push_front(std::mem::take(&mut self.process));
    }

    /// Whether a process is an earlier one.
    pub fn is_earlier_process(&self, process: &str) -> bool {
        self.past.iter().any(|past| past == process)
    }
}

/// All seats, by machine.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seats {
    seats: Vec<Seat>,
    names: HashMap<String, MachineId>,
    sessions: HashMap<Session, MachineId>,
    /// Workers that were welcomed and have not sent a message since, one process of each.
    expected: HashMap<String, (Session, Hello)>,
}

impl Seats {
    pub fn get(&self, machine: MachineId) -> &Seat {
        &self.seats[machine.index()]
    }

    pub fn get_mut(&mut self, machine: MachineId) -> &mut Seat {
        &mut self.seats[machine.index()]
    }

    /// The machines whose workers have been silent since this time.
    pub fn silent_since(&self, seconds: f64) -> Vec<MachineId> {
        let machines = (0..).map(MachineId).zip(&self.seats);
        let silent = machines.filter(|(_, seat)| seat.session.is_some() && seat.heard_seconds < seconds);
        silent.map(|(machine, _)| machine).collect()
    }

    /// The machines with a session.
    pub fn in_session(&self) -> Vec<MachineId> {
        let machines = (0..).map(MachineId).zip(&self.seats);
        machines.filter(|(_, seat)| seat.session.is_some()).map(|(machine, _)| machine).collect()
    }

    /// Extends the deadlines of all workers by this many seconds.
    pub fn forgive(&mut self, seconds: f64) {
        for seat in &mut self.seats {
            seat.heard_seconds += seconds;
        }
    }

    /// The seat of a worker, which may have left it.
    pub fn of_worker(&self, worker: &str) -> Option<&Seat> {
        self.names.get(worker).map(|machine| self.get(*machine))
    }

    /// Whether there is room for a worker.
    pub fn has_place(&self, worker: &str) -> bool {
        let is_known = self.names.contains_key(worker) || self.expected.contains_key(worker);
        is_known || self.seats.len() + self.expected.len() < WORKERS_MAX
    }

    /// The machine of a worker; the next free number for a new one.
    pub fn place(&self, worker: &str) -> MachineId {
        self.names.get(worker).copied().unwrap_or(MachineId(self.seats.len() as u32))
    }

    /// The session of a process that was welcomed and has not sent a message since.
    pub fn expected(&self, hello: &Hello) -> Option<Session> {
        let expected = self.expected.get(&hello.worker);
        expected.filter(|(_, other)| other.process == hello.process).map(|(session, _)| *session)
    }

    /// Records that a process was welcomed. It takes its seat with its next message.
    pub fn expect(&mut self, session: Session, hello: &Hello) {
        self.expected.insert(hello.worker.clone(), (session, hello.clone()));
    }

    /// The hello of the process that was welcomed in this session, which is no longer expected.
    pub fn confirm(&mut self, session: Session) -> Option<Hello> {
        let worker = self.expected.iter().find(|(_, (expected, _))| *expected == session)?.0.clone();
        self.expected.remove(&worker).map(|(_, hello)| hello)
    }

    /// The machine of a session.
    pub fn of_session(&self, session: Session) -> Option<MachineId> {
        self.sessions.get(&session).copied()
    }

    /// Seats a process at a machine with this number of slots and no builds.
    pub fn join(
        &mut self,
        machine: MachineId,
        hello: &Hello,
        session: Session,
        channel: Channel,
        slots: u32,
        now_seconds: f64,
    ) {
        let is_new = machine.index() == self.seats.len();
        let seat = Seat {
            worker: hello.worker.clone(),
            cores: hello.cores,
            host: hello.host.clone(),
            process: hello.process.clone(),
            session: Some(session),
            channel,
            heard_seconds: now_seconds,
            offer: None,
            ranks: None,
            pressure: Pressure::Low,
            takes_more: true,
            cores_all: hello.cores,
            cores_now: hello.cores,
            prepares_announced: false,
            class: Class(0),
            is_open: true,
            slots_free: (0..slots).collect(),
            past: if is_new { VecDeque::new() } else { std::mem::take(&mut self.get_mut(machine).past) },
        };
        self.sessions.insert(session, machine);
        if is_new {
            self.names.insert(hello.worker.clone(), machine);
            self.seats.push(seat);
        } else {
            *self.get_mut(machine) = seat;
        }
    }

    /// Ends the session of a machine. Returns whether there was one.
    pub fn end_session(&mut self, machine: MachineId) -> bool {
        let session = self.seats[machine.index()].session.take();
        session.is_some_and(|session| self.sessions.remove(&session).is_some())
    }
}

/// The machine that a hello describes. The error is the reason for a refusal.
pub(crate) fn machine_of(hello: &Hello) -> Result<Machine, String> {
    let is_name = |text: &str| !text.is_empty() && text.len() <= NAME_BYTES_MAX;
    if !is_name(&hello.worker) || !is_name(&hello.process) {
        return Err(format!("the names of a worker and its process have 1 to {NAME_BYTES_MAX} bytes"));
    }
    let is_short = |host: &Host| host.kernel.len().max(host.cpu.len()) <= Host::BYTES_MAX;
    if !hello.host.as_ref().is_none_or(is_short) {
        return Err(format!("the kernel and CPU of a worker have at most {} bytes", Host::BYTES_MAX));
    }
    let is_speed = SPEEDS.contains(&hello.speed);
    if !(1..=CORES_MAX).contains(&hello.cores) || !is_speed {
        let (cores, speed) = (hello.cores, hello.speed);
        return Err(format!("a machine with {cores} cores of speed {speed} cannot build"));
    }
    Ok(Machine {
        speed: hello.speed,
        memory_bytes: hello.memory_bytes,
        disk_bytes: hello.disk_bytes,
        ..Machine::of_cores(hello.cores)
    })
}
