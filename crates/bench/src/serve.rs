//! The pages and the feed of a run of 30,000 packages, as `kilnyard serve` sends them.
//!
//! The server is this program in a process of its own. Events are written into the store as a run writes them, and each reader
//! is a connection; the time from the event's decision to its arrival is by one clock.
//!
//! Known downside: readers share the machine with the server, so that their own work adds to the times.

pub mod replay;

use super::figures::{Report, Series, Unit};
use super::queries::{build_records, package_row, run_row};
use super::scratch::Scratch;
use super::{BenchOptions, child, empty_yard, synthetic};
use crate::Trial;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::{Yard, store_error};
use kilnyard_model::cuts::Cutting;
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::result::PackageState;
use kilnyard_process::now_seconds;
use kilnyard_store::{Holder, PackageRow, Plan, PlanRow, Record, RunState, Store};
use kilnyard_yard::report::{self, ResolvedSet};
use serde_json::{Map, json};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::process::{Child, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Number of packages, about as many as in the largest trees.
const PACKAGES: usize = 30_000;
/// The packages of the run that are still to be built.
const LEFT: usize = 3000;
/// Events in a second.
const EVENTS_EACH_SECOND: u32 = 5;
/// How often each page is asked for.
const ASKED: usize = 20;
/// The stack of a reader, which only reads lines.
const STACK_BYTES: usize = 128 << 10;
/// How long the readers may take to get what was sent last.
const SETTLE: Duration = Duration::from_secs(30);

/// What has to be reached.
const DELAY_SECONDS_P99_MAX: f64 = 0.2;
const CORE_OF_100_MAX: f64 = 0.05;
const RUN_PAGE_SECONDS_MAX: f64 = 0.05;
const RUN_PAGE_BYTES_MAX: usize = 150 << 10;
const PACKAGE_PAGE_SECONDS_MAX: f64 = 0.02;
const REPORT_SECONDS_MAX: f64 = 5.0;
const REPORT_OF_ONE_SECONDS_MAX: f64 = 0.2;
const REPORT_BYTES_MAX: u64 = 20 << 20;

/// Runs the benchmark in a yard of its own.
pub fn measure(options: &BenchOptions, trial: &Trial<'_>) -> Result<Report> {
    let scratch = Scratch::within(trial.temporary, None)?;
    let yard = open_yard(&scratch, trial)?;
    let mut store = yard.store()?;
    let mut notes = Vec::new();
    let mut facts = Map::new();
    let mut series = Vec::new();
    let mut is_met = true;
    let mut check = |is_good: bool, what: String, notes: &mut Vec<String>| {
        if !is_good {
            is_met = false;
            notes.push(format!("missed: {what}"));
        }
    };

    // The static report: of a run that built all, and of the next one, which built one package.
    trial.say(format_args!(
        "writing reports of a run of {PACKAGES} packages, and of one that built one of them"
    ));
    let graph = graph();
    let set = ResolvedSet { graph: &graph, cutting: &Cutting::default() };
    store.lead(&Holder::named("benchmark")).map_err(store_error)?;
    for (key, title, built) in [
        ("report", "the static report", 0..PACKAGES),
        ("report_of_one", "the same, one package built", 77..78),
    ] {
        let run = begin_run(&mut *store, built, PACKAGES)?;
        let end = Record::Run { run, state: RunState::Finished, at_seconds: now_seconds() };
        store.record(&[end]).map_err(store_error)?;
        let mut seconds = Vec::new();
        let mut folder = String::new();
        for _ in 0..trial.pairs {
            super::check_interrupt()?;
            let began = Instant::now();
            folder = report::write(&yard, &*store, set, None)?;
            seconds.push(began.elapsed().as_secs_f64());
        }
        let bytes = size_of(&yard.path(&folder));
        facts.insert(format!("{key}_bytes"), json!(bytes));
        check(bytes <= REPORT_BYTES_MAX, format!("a report of {}", crate::words::size(bytes)), &mut notes);
        series.push(Series::new(format!("{key}_seconds"), title, Unit::Seconds, seconds));
    }
    // A run whose process holds no lock was killed.
    let _lock = yard.lock()?;
    let run = begin_run(&mut *store, 0..PACKAGES - LEFT, PACKAGES - LEFT)?;
    save_plan(&mut *store)?;

    // The pages.
    let server = Server::start(&yard)?;
    let failed = synthetic::name(100);
    let built = synthetic::name(101);
    let pages = [
        ("run_page", format!("/runs/{run}")),
        ("package_page", format!("/packages/{built}")),
        ("failed_package_page", format!("/packages/{failed}")),
        ("packages_page", format!("/runs/{run}/packages?order=wall")),
        ("search", format!("/search?text={}", &built[built.len().saturating_sub(4)..])),
        ("run_json", format!("/api/v1/runs/{run}")),
    ];
    for (name, path) in &pages {
        super::check_interrupt()?;
        let first = ask(server.address, path)?;
        facts.insert(format!("{name}_bytes"), json!(first.bytes));
        facts.insert(format!("{name}_cold_seconds"), json!(first.whole_seconds));
        let answers = (0..ASKED).map(|_| ask(server.address, path)).collect::<Result<Vec<_>>>()?;
        let whole = answers.iter().map(|answer| answer.whole_seconds).collect();
        let begun = answers.iter().map(|answer| answer.first_seconds).collect();
        series.push(Series::new(
            format!("{name}_first_byte_seconds"),
            format!("{path}, first byte"),
            Unit::Seconds,
            begun,
        ));
        series.push(Series::new(format!("{name}_seconds"), format!("{path}, whole"), Unit::Seconds, whole));
        if *name == "run_page" {
            check(
                first.bytes <= RUN_PAGE_BYTES_MAX,
                format!("the page of the run has {} bytes", first.bytes),
                &mut notes,
            );
        }
    }

    // The feed.
    let (readers, seconds) = (options.workers as usize, options.seconds);
    trial.say(format_args!("{readers} readers for {seconds} s"));
    let load = Load::start();
    let feed = Feed::start(server.address, readers, store.last_event().map_err(store_error)?)?;
    let (cpu, began) = (server.cpu_seconds()?, Instant::now());
    let mut sent = 0;
    let names: Vec<String> = (0..PACKAGES).map(synthetic::name).collect();
    while began.elapsed() < Duration::from_secs(u64::from(seconds)) {
        super::check_interrupt()?;
        let at_seconds = now_seconds();
        let PackageRow { name, reason, .. } = package_row(sent % PACKAGES, PackageState::UpToDate);
        debug_assert_eq!(name, names[sent % PACKAGES]);
        let state = PackageState::UpToDate;
        store
            .record(&[Record::Package { run, name, state, reason, blamed: None, at_seconds }])
            .map_err(store_error)?;
        sent += 1;
        let next = Duration::from_secs(1) * sent as u32 / EVENTS_EACH_SECOND;
        std::thread::sleep(next.saturating_sub(began.elapsed()));
    }
    let last = store.last_event().map_err(store_error)?;
    let busy = server.cpu_seconds()? - cpu;
    let elapsed = began.elapsed().as_secs_f64();
    drop(load);
    let (delays, wrong) = feed.end(last)?;
    let core_of_100 = busy / elapsed * 100.0 / readers as f64;
    facts.insert("readers".to_owned(), json!(readers));
    facts.insert("events".to_owned(), json!(sent));
    facts.insert("readers_with_wrong_events".to_owned(), json!(wrong));
    facts.insert("core_of_100_readers".to_owned(), json!(core_of_100));
    facts.insert("server_memory_bytes".to_owned(), json!(server.memory_bytes()?));
    let p99 = percentile(&delays, 0.99);
    facts.insert("delay_p50_seconds".to_owned(), json!(percentile(&delays, 0.5)));
    facts.insert("delay_p99_seconds".to_owned(), json!(p99));
    notes.push(format!(
        "{sent} events to {readers} readers, two threads busy beside them: median {:.0} ms, 99 % within {:.0} ms, longest {:.0} ms; {wrong} readers missed one or got one twice; \
         {:.2} % of a core for each 100 readers",
        percentile(&delays, 0.5) * 1e3,
        p99 * 1e3,
        percentile(&delays, 1.0) * 1e3,
        core_of_100 * 100.0
    ));
    check(wrong == 0, format!("{wrong} readers missed an event or got one twice"), &mut notes);
    check(p99 <= DELAY_SECONDS_P99_MAX, format!("p99 of {:.0} ms", p99 * 1e3), &mut notes);
    check(
        core_of_100 <= CORE_OF_100_MAX,
        format!("{:.1} % of a core for 100 readers", core_of_100 * 100.0),
        &mut notes,
    );
    for (key, most) in [
        ("run_page_seconds", RUN_PAGE_SECONDS_MAX),
        ("package_page_seconds", PACKAGE_PAGE_SECONDS_MAX),
        ("search_seconds", RUN_PAGE_SECONDS_MAX),
        ("report_seconds", REPORT_SECONDS_MAX),
        ("report_of_one_seconds", REPORT_OF_ONE_SECONDS_MAX),
    ] {
        let found = series.iter().find(|series| series.key == key).map_or(0.0, Series::median);
        check(found <= most, format!("{key}: {:.0} ms", found * 1e3), &mut notes);
    }
    Ok(Report {
        name: "serve",
        series,
        facts,
        notes,
        target: "events to 1,000 readers within 200 ms (p99), none lost or twice, under 5 % of a core for each 100; the page of a run in 50 ms and 150 KB, of a package in 20 ms, \
                 a search in 50 ms; a static report in 5 s and 20 MB, and in 0.2 s if one package was built"
            .to_owned(),
        is_met: Some(is_met),
    })
}

/// A yard of its own whose pages anyone may read.
fn open_yard(scratch: &Scratch, trial: &Trial<'_>) -> Result<Yard> {
    let yard = empty_yard(scratch, trial)?;
    let path = yard.home.join(crate::yard::CONFIG);
    let config = fs_err::read_to_string(&path).or_internal("read a configuration")?;
    let config = config.replace("# anonymous = []", "anonymous = [\"read\"] #");
    fs_err::write(path, config).or_internal("write a configuration")?;
    Ok(yard)
}

/// Begins a run that has built these packages; the others are up to date, or wait from number `waiting_from`. Returns its number.
fn begin_run(store: &mut dyn Store, built: Range<usize>, waiting_from: usize) -> Result<u64> {
    let state = |number: usize| match number {
        number if built.contains(&number) && number.is_multiple_of(100) => PackageState::Failed,
        number if built.contains(&number) => PackageState::Built,
        number if number >= waiting_from => PackageState::Waiting,
        _ => PackageState::UpToDate,
    };
    let rows: Vec<PackageRow> = (0..PACKAGES).map(|number| package_row(number, state(number))).collect();
    let began = now_seconds() - built.len() as f64;
    let run = store.begin_run(&run_row(began), &rows).map_err(store_error)?;
    let mut records = Vec::new();
    for (place, number) in built.clone().enumerate() {
        let build = run * PACKAGES as u64 + place as u64;
        records.extend(build_records(run, build, number, began + place as f64, state(number)));
    }
    store.record(&records).map_err(store_error)?;
    Ok(run)
}

/// The packages that one depends on.
fn dependencies(number: usize) -> impl Iterator<Item = usize> {
    (1..=5).map(move |divisor| number / (divisor + 1)).filter(move |other| *other != number)
}

fn graph() -> Graph {
    let mut graph = Graph::new();
    let ids: Vec<PackageId> = (0..PACKAGES).map(|number| graph.add(&synthetic::name(number))).collect();
    for number in 0..PACKAGES {
        for other in dependencies(number) {
            graph.depend(ids[number], ids[other]);
        }
    }
    graph
}

fn save_plan(store: &mut dyn Store) -> Result<()> {
    let packages = (0..PACKAGES).map(|number| PlanRow {
        package: package_row(number, PackageState::Waiting),
        dependencies: dependencies(number).map(synthetic::name).collect(),
    });
    let plan = Plan {
        digest: "synthetic".to_owned(),
        made_seconds: now_seconds(),
        expected_seconds: 3000.0,
        bound_seconds: 2000.0,
        cuts: Vec::new(),
        remarks: Vec::new(),
        path: Vec::new(),
        packages: packages.collect(),
    };
    store.save_plan(&plan).map_err(store_error)
}

/// A server in a process of its own.
struct Server {
    process: Child,
    address: SocketAddr,
}

impl Server {
    fn start(yard: &Yard) -> Result<Server> {
        let failed = "start the server";
        let free = TcpListener::bind("127.0.0.1:0").context(Kind::Machine, failed)?;
        let address = free.local_addr().context(Kind::Machine, failed)?;
        drop(free);
        let api = address.to_string();
        let mut command = child::this_program(&yard.folder, &["serve", "--only-pages", "--api", &api]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        let process = command.spawn().context(Kind::Machine, failed)?;
        let server = Server { process, address };
        let began = Instant::now();
        while TcpStream::connect(address).is_err() {
            if began.elapsed() > SETTLE {
                return Err(Error::new(Kind::Machine, "the server did not start"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(server)
    }

    /// User and system time until now (proc_pid_stat(5)).
    fn cpu_seconds(&self) -> Result<f64> {
        let text = fs_err::read_to_string(format!("/proc/{}/stat", self.process.id()));
        let text = text.context(Kind::Machine, "measure the server")?;
        let fields: Vec<&str> = text.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks =
            |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
        Ok((ticks(11) + ticks(12)) / rustix::param::clock_ticks_per_second() as f64)
    }

    fn memory_bytes(&self) -> Result<u64> {
        let text = fs_err::read_to_string(format!("/proc/{}/status", self.process.id()));
        let text = text.context(Kind::Machine, "measure the server")?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("");
        Ok(line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0) * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

struct Answered {
    first_seconds: f64,
    whole_seconds: f64,
    bytes: usize,
}

/// Asks for a page over a new connection.
fn ask(address: SocketAddr, path: &str) -> Result<Answered> {
    let failed = || format!("ask for {path}");
    let began = Instant::now();
    let mut stream = TcpStream::connect(address).context(Kind::Machine, failed())?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")
        .context(Kind::Machine, failed())?;
    let mut first = [0];
    stream.read_exact(&mut first).context(Kind::Machine, failed())?;
    let first_seconds = began.elapsed().as_secs_f64();
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).context(Kind::Machine, failed())?;
    let whole_seconds = began.elapsed().as_secs_f64();
    if !rest.starts_with(b"TTP/1.1 200") {
        let status = String::from_utf8_lossy(&rest[..rest.len().min(60)]).into_owned();
        return Err(Error::new(Kind::Internal, format!("{path} was answered with H{status}")));
    }
    let head = rest.windows(4).position(|four| four == b"\r\n\r\n").unwrap_or(0);
    Ok(Answered { first_seconds, whole_seconds, bytes: rest.len() - head })
}

/// Two threads that are busy, as builds are: they have a lower priority than the server.
struct Load(Arc<AtomicBool>, Vec<JoinHandle<()>>);

impl Load {
    fn start() -> Load {
        let end = Arc::new(AtomicBool::new(false));
        let busy = || {
            let end = end.clone();
            std::thread::spawn(move || {
                // SAFETY: these calls only change the priority of this thread.
                unsafe {
                    libc::setpriority(libc::PRIO_PROCESS, libc::syscall(libc::SYS_gettid) as libc::id_t, 10)
                };
                while !end.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = vec![busy(), busy()];
        Load(end, threads)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
        for thread in self.1.drain(..) {
            let _ = thread.join();
        }
    }
}

/// What a reader got: the numbers of events, and how late each was, in seconds.
type Got = (Vec<u64>, Vec<f64>);

/// Readers of the feed.
struct Feed {
    first: u64,
    last: Arc<AtomicU64>,
    threads: Vec<JoinHandle<std::io::Result<Got>>>,
}

impl Feed {
    fn start(address: SocketAddr, readers: usize, after: u64) -> Result<Feed> {
        let last = Arc::new(AtomicU64::new(u64::MAX));
        let mut threads = Vec::new();
        for _ in 0..readers {
            let mut stream = TcpStream::connect(address).context(Kind::Machine, "connect a reader")?;
            let asked = write!(
                stream,
                "GET /api/v1/events HTTP/1.1\r\nHost: {address}\r\nAccept: text/event-stream\r\nLast-Event-ID: {after}\r\n\r\n"
            );
            asked.context(Kind::Machine, "connect a reader")?;
            stream
                .set_read_timeout(Some(Duration::from_secs(1)))
                .context(Kind::Machine, "connect a reader")?;
            let last = last.clone();
            let thread = std::thread::Builder::new().stack_size(STACK_BYTES);
            threads.push(thread.spawn(move || read(stream, &last)).context(Kind::Machine, "start a reader")?);
        }
        // All are connected before the first event.
        std::thread::sleep(Duration::from_secs(2));
        Ok(Feed { first: after, last, threads })
    }

    /// How late events were, in order, and the number of readers that did not get each event once.
    fn end(self, last: u64) -> Result<(Vec<f64>, usize)> {
        self.last.store(last, Ordering::Relaxed);
        let expected: Vec<u64> = (self.first + 1..=last).collect();
        let (mut delays, mut wrong) = (Vec::new(), 0);
        for thread in self.threads {
            match thread.join() {
                Ok(Ok((numbers, own))) => {
                    wrong += usize::from(numbers != expected);
                    delays.extend(own);
                }
                _ => wrong += 1,
            }
        }
        delays.sort_by(f64::total_cmp);
        Ok((delays, wrong))
    }
}

/// Reads events until the last one, or until nothing comes any more.
fn read(stream: TcpStream, last: &AtomicU64) -> std::io::Result<Got> {
    let mut reader = BufReader::with_capacity(4096, stream);
    let (mut numbers, mut delays) = (Vec::new(), Vec::new());
    let mut line = Vec::new();
    let mut idle: Option<Instant> = None;
    loop {
        match reader.read_until(b'\n', &mut line) {
            Ok(0) => return Ok((numbers, delays)),
            Ok(_) if line.ends_with(b"\n") => {}
            Ok(_) => continue,
            Err(error)
                if matches!(error.kind(), std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut) =>
            {
                let is_done = numbers.last().is_some_and(|seq| *seq >= last.load(Ordering::Relaxed));
                let is_over = last.load(Ordering::Relaxed) != u64::MAX
                    && idle.get_or_insert_with(Instant::now).elapsed() > SETTLE;
                if is_done || is_over {
                    return Ok((numbers, delays));
                }
                continue;
            }
            Err(error) => return Err(error),
        }
        let text = String::from_utf8_lossy(&line);
        if let Some(id) = text.strip_prefix("id: ") {
            numbers.extend(id.trim().parse::<u64>());
        } else if let Some(at) = text.strip_prefix("data: ").and_then(|data| data.split("\"at\":").nth(1)) {
            let at = at.split([',', '}']).next().and_then(|at| at.parse::<f64>().ok());
            delays.extend(at.map(|at| now_seconds() - at));
        }
        line.clear();
        if numbers.last().is_some_and(|seq| *seq >= last.load(Ordering::Relaxed)) {
            return Ok((numbers, delays));
        }
    }
}

/// A percentile of ordered values, by the nearest rank.
fn percentile(ordered: &[f64], part: f64) -> f64 {
    let place = (part * ordered.len() as f64).ceil() as usize;
    ordered.get(place.saturating_sub(1)).copied().unwrap_or(0.0)
}

fn size_of(folder: &std::path::Path) -> u64 {
    let entries = fs_err::read_dir(folder).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => size_of(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    });
    sizes.sum()
}
