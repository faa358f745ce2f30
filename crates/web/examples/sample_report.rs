//! Writes sample reports, to inspect the page and to show how a [`Report`] is filled in.
//!
//!     cargo run -p kilnyard-web --example sample_report -- FOLDER
//!
//! creates `FOLDER/small` (a realistic run of a Debian tree with failures), `FOLDER/large` (30,000 packages),
//! `FOLDER/running` and `FOLDER/empty`. Open `index.html` in any of them. The times come from a small
//! simulation: each package that is ready starts on the first free slot, as in a real run.

use std::collections::BTreeMap;
use std::path::Path;

use kilnyard_web::{
    Counts, CycleCut, LeftOut, PackageState, PathStep, Report, ReportFailure, ReportOutput, ReportPackage,
    ReportStage, RepositoryFacts, RunState, SCHEMA, write,
};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args_os().nth(1).ok_or("usage: sample_report FOLDER")?;
    let folder = Path::new(&folder);
    for (name, report) in
        [("small", small()), ("large", large(30_000)), ("running", running()), ("empty", empty())]
    {
        let folder = folder.join(name);
        write(&report, &kilnyard_web::Pages::default(), &folder)?;
        write_logs(&report, &folder)?;
        println!("{}", folder.join("index.html").display());
    }
    Ok(())
}

/// A package of the small sample: name, version, build time in seconds, cores used, dependencies.
type Recipe = (&'static str, &'static str, f64, f64, &'static [&'static str]);

const RECIPES: [Recipe; 21] = [
    ("zlib", "1:1.3.1-3", 9.0, 0.8, &[]),
    ("xz-utils", "5.6.3-1", 24.0, 0.9, &[]),
    ("zstd", "1.5.6+dfsg-2", 31.0, 1.2, &["xz-utils", "zlib"]),
    ("ncurses", "6.5-2", 58.0, 0.7, &[]),
    ("readline", "8.2-6", 13.0, 0.7, &["ncurses"]),
    ("sqlite3", "3.46.1-1", 66.0, 0.7, &["readline", "zlib"]),
    ("openssl", "3.3.2-2", 96.0, 1.3, &["zlib"]),
    ("libffi", "3.4.6-1", 8.0, 0.7, &[]),
    ("expat", "2.6.4-1", 12.0, 0.9, &[]),
    (
        "python3.12",
        "3.12.7-3",
        118.0,
        1.2,
        &["openssl", "sqlite3", "libffi", "expat", "readline", "xz-utils"],
    ),
    ("libxml2", "2.12.7+dfsg-3", 27.0, 1.0, &["python3.12", "xz-utils"]),
    ("libxslt", "1.1.42-1", 15.0, 0.8, &["libxml2"]),
    ("curl", "8.11.0-1", 41.0, 0.9, &["openssl", "zstd"]),
    ("git", "1:2.45.2-1", 37.0, 1.1, &["curl", "expat", "zlib"]),
    ("krb5", "1.21.3-3", 34.0, 1.1, &["openssl"]),
    ("postgresql-17", "17.2-1", 74.0, 1.3, &["krb5", "libxslt", "readline"]),
    ("psycopg2", "2.9.10-1", 11.0, 0.7, &["postgresql-17", "python3.12"]),
    ("nginx", "1.26.2-3", 22.0, 1.1, &["openssl", "zlib"]),
    ("internal-agent", "4.12.0", 19.0, 0.9, &["curl", "sqlite3"]),
    ("internal-metrics-exporter-for-batch-jobs", "0.9.3", 8.0, 0.7, &["internal-agent"]),
    ("internal-web", "2.1.0", 16.0, 0.7, &["nginx", "python3.12"]),
];

/// A run of about twenty packages on two cores. Two packages fail, which blocks three others.
pub fn small() -> Report {
    let mut packages: Vec<ReportPackage> = RECIPES
        .iter()
        .map(|(name, version, seconds, cores, needs)| planned(name, version, *seconds, *cores, needs))
        .collect();
    fail(&mut packages, "krb5", "build", 21.0, ReportFailure {
        stage: "build".into(),
        kind: "exit".into(),
        message: "kdc/do_tgs_req.c:412:17: error: implicit declaration of function ‘krb5_db_get_context’".into(),
        line_number: Some(1873),
        lines: vec![
            "gcc -DHAVE_CONFIG_H -I../include -I../include -fPIC -g -O2 -Werror=implicit-function-declaration -c do_tgs_req.c".into(),
            "kdc/do_tgs_req.c: In function ‘process_tgs_req’:".into(),
            "\u{1b}[1mkdc/do_tgs_req.c:412:17: \u{1b}[31merror:\u{1b}[0m implicit declaration of function ‘krb5_db_get_context’".into(),
            "  412 |         ret = krb5_db_get_context(context, &dal_handle);".into(),
            "      |               ^~~~~~~~~~~~~~~~~~~".into(),
            "cc1: some warnings being treated as errors".into(),
            "make[2]: *** [Makefile:893: do_tgs_req.o] Error 1".into(),
        ],
    });
    fail(
        &mut packages,
        "internal-agent",
        "test",
        14.0,
        ReportFailure {
            stage: "test".into(),
            kind: "timeout".into(),
            message:
                "the stage ran past its limit of 10 s; process 4121 (agentd --foreground) waited for a socket"
                    .into(),
            line_number: None,
            lines: vec![
                "ok 14 - spool survives a restart".into(),
                "ok 15 - two agents do not share a spool".into(),
                "# starting agentd --foreground --listen /run/agent.sock".into(),
            ],
        },
    );
    for (name, state, reason) in [
        ("libffi", PackageState::UpToDate, "no input has changed"),
        ("expat", PackageState::Unchanged, "zlib was rebuilt; the outputs are the same"),
    ] {
        change(&mut packages, name, |package| {
            package.state = state;
            package.reason = reason.into();
        });
    }
    change(&mut packages, "openssl", |package| package.reproducible = Some(true));
    change(&mut packages, "git", |package| package.reproducible = Some(false));
    change(&mut packages, "nginx", |package| package.attempts = 2);
    simulate(&mut packages, 2);

    let mut report = described(packages, 2, 2);
    report.path = path(&report, &["ncurses", "readline", "sqlite3", "python3.12", "libxml2", "libxslt"]);
    let bound = report.path.iter().map(|step| step.seconds).sum::<f64>();
    report.bound_seconds = Some(bound.max(report.cpu_seconds / 2.0));
    report.expected_wall_seconds = Some(report.wall_seconds * 0.94);
    report.cycles_cut = vec![CycleCut {
        package: "libxml2".into(),
        dependency: "libxslt".into(),
        members: vec!["libxml2".into(), "libxslt".into(), "docbook-xsl".into()],
        how: "built without its manual pages (build profile nodoc)".into(),
    }];
    report.left_out = vec![
        LeftOut {
            package: "linux".into(),
            reason: "needs gcc-14 (>= 14.2)\n  the tree has gcc-13 13.3.0-6\n  asked for by: linux (Build-Depends)".into(),
        },
        LeftOut {
            package: "openjdk-21".into(),
            reason: "needs openjdk-20 or openjdk-21 to build itself\n  neither is in the tree nor among the given repositories\n  remedy: name a repository that has one with `bootstrap`".into(),
        },
    ];
    report.counts.left_out = 2;
    report.repository = Some(RepositoryFacts {
        path: "/srv/yard/internal/repository".into(),
        sources_line:
            "deb [signed-by=/etc/apt/keyrings/internal.asc] file:/srv/yard/internal/repository bookworm main"
                .into(),
        fingerprint: "3F1C 9A70 52E4 88D1 0B6E  6C5D 7A19 E2F4 41B8 90CD".into(),
        packages: 61,
    });
    report.notes =
        vec!["4 packages had no history: their times were taken from the size of their sources.".into()];
    report
}

/// The small sample while its run is in progress.
pub fn running() -> Report {
    let mut report = small();
    let now = report.wall_seconds * 0.87;
    for package in &mut report.packages {
        let Some(started) = package.started_seconds else {
            continue;
        };
        if started >= now {
            *package = ReportPackage {
                name: package.name.clone(),
                version: package.version.clone(),
                depends: package.depends.clone(),
                reason: package.reason.clone(),
                state: PackageState::Waiting,
                ..ReportPackage::default()
            };
        } else if started + package.wall_seconds > now {
            package.state = PackageState::Building;
            package.outputs.clear();
            package.failure = None;
            package.wall_seconds = now - started;
            package.stages.retain(|stage| stage.started_seconds < now);
            if let Some(stage) = package.stages.last_mut() {
                stage.outcome = "running".into();
                stage.cpu_seconds *= (now - stage.started_seconds) / stage.wall_seconds;
                stage.wall_seconds = now - stage.started_seconds;
            }
        }
    }
    // A package that has not failed yet blocks nothing.
    let failed: Vec<String> =
        report.packages.iter().filter(|p| p.state == PackageState::Failed).map(|p| p.name.clone()).collect();
    for package in &mut report.packages {
        package.blocked_by.retain(|culprit| failed.contains(culprit));
        if package.state == PackageState::Blocked && package.blocked_by.is_empty() {
            package.state = PackageState::Waiting;
            package.reason = "a dependency is not built yet".into();
        }
        if package.state != PackageState::Failed {
            package.blocks.clear();
        }
        package.cpu_seconds = package.stages.iter().map(|stage| stage.cpu_seconds).sum();
    }
    report.state = RunState::Running;
    report.wall_seconds = now;
    report.cpu_seconds = report.packages.iter().map(|package| package.cpu_seconds).sum();
    report.repository = None;
    let left_out = report.counts.left_out;
    report.counts = Counts { left_out, ..count(&report.packages) };
    report
}

/// A run without packages.
pub fn empty() -> Report {
    Report { state: RunState::Finished, ..described(Vec::new(), 2, 2) }
}

/// A run of a whole distribution on 64 cores, with one failure in a hundred.
pub fn large(size: usize) -> Report {
    let mut seed = 7u64;
    // A linear congruential generator: the sample must be the same every time, and this is random enough.
    let mut random = move || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 33) as f64) / f64::from(1u32 << 31)
    };
    let name = |index: usize| format!("package-{index:05}");
    let mut packages = Vec::with_capacity(size);
    for index in 0..size {
        // As in every tree, most builds are short and a few are very long.
        let seconds = 6.0 + 40.0 * random() + 5000.0 * random().powi(24);
        let needs: Vec<String> = match index {
            0..200 => Vec::new(),
            _ => (0..3).map(|_| name((random().powi(2) * index as f64) as usize)).collect(),
        };
        let needs: Vec<&str> = needs.iter().map(String::as_str).collect();
        let mut package = planned(&name(index), "1.0-1", seconds, 1.0 + random(), &needs);
        if random() < 0.01 && index > 2000 {
            let message = format!("{}.c:1: error: sample failure", package.name);
            let lines =
                vec![format!("cc -c {}.c", package.name), message.clone(), "make: *** Error 1".into()];
            package.state = PackageState::Failed;
            package.failure = Some(ReportFailure {
                stage: "build".into(),
                kind: "exit".into(),
                message,
                line_number: Some(2),
                lines,
            });
            if let Some(stage) = package.stages.iter_mut().find(|stage| stage.name == "build") {
                stage.outcome = "failed".into();
            }
        }
        packages.push(package);
    }
    simulate(&mut packages, 32);
    let mut report = described(packages, 64, 32);
    let work = report.cpu_seconds / 64.0;
    report.bound_seconds = Some(work);
    report.expected_wall_seconds = Some(report.wall_seconds * 1.03);
    report.yard = "whole-tree".into();
    report
}

/// A package whose stages have durations but no start times yet.
fn planned(name: &str, version: &str, seconds: f64, cores: f64, needs: &[&str]) -> ReportPackage {
    let stages =
        [("fetch", 0.02, 0.2), ("depends", 0.05, 0.6), ("configure", 0.14, 0.9), ("build", 0.57, cores)]
            .into_iter()
            .chain([("test", 0.15, cores), ("package", 0.05, 1.0)])
            .map(|(stage, share, cores)| ReportStage {
                name: stage.into(),
                wall_seconds: seconds * share,
                cpu_seconds: seconds * share * cores,
                memory_peak_bytes: (seconds * 6e6 * cores) as u64 + 40_000_000,
                outcome: "ok".into(),
                log: Some(format!("logs/{name}/{stage}.log")),
                ..ReportStage::default()
            })
            .collect();
    ReportPackage {
        name: name.into(),
        version: version.into(),
        state: PackageState::Built,
        reason: if needs.is_empty() {
            "the version is new".into()
        } else {
            format!("{} was rebuilt", needs[0])
        },
        attempts: 1,
        stages,
        outputs: vec![
            ReportOutput {
                name: name.into(),
                version: version.into(),
                architecture: "amd64".into(),
                size_bytes: (seconds * 21_000.0) as u64,
            },
            ReportOutput {
                name: format!("{name}-doc"),
                version: version.into(),
                architecture: "all".into(),
                size_bytes: (seconds * 4_000.0) as u64,
            },
        ],
        depends: needs.iter().map(|need| (*need).to_owned()).collect(),
        ..ReportPackage::default()
    }
}

fn change(packages: &mut [ReportPackage], name: &str, how: impl FnOnce(&mut ReportPackage)) {
    if let Some(package) = packages.iter_mut().find(|package| package.name == name) {
        how(package);
    }
}

/// Makes a package fail after this many seconds of a stage.
fn fail(packages: &mut [ReportPackage], name: &str, stage: &str, seconds: f64, failure: ReportFailure) {
    change(packages, name, |package| {
        package.state = PackageState::Failed;
        package.failure = Some(failure);
        package.outputs.clear();
        if let Some(last) = package.stages.iter().position(|one| one.name == stage) {
            package.stages.truncate(last + 1);
            package.stages[last].outcome = "failed".into();
            package.stages[last].wall_seconds = seconds;
        }
    });
}

/// Assigns slots and times to all packages and finds the blocked ones. Each package follows its dependencies.
fn simulate(packages: &mut [ReportPackage], slots: usize) {
    let mut free_seconds = vec![0.0f64; slots];
    let mut done_seconds: BTreeMap<String, f64> = BTreeMap::new();
    let mut culprits: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut blocks: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for package in packages.iter_mut() {
        let mut blocked_by: Vec<String> =
            package.depends.iter().filter_map(|need| culprits.get(need)).flatten().cloned().collect();
        blocked_by.sort();
        blocked_by.dedup();
        if !blocked_by.is_empty() {
            for culprit in &blocked_by {
                blocks.entry(culprit.clone()).or_default().push(package.name.clone());
            }
            culprits.insert(package.name.clone(), blocked_by.clone());
            *package = ReportPackage {
                name: package.name.clone(),
                version: package.version.clone(),
                state: PackageState::Blocked,
                reason: "a dependency failed".into(),
                depends: package.depends.clone(),
                blocked_by,
                ..ReportPackage::default()
            };
            continue;
        }
        if package.state == PackageState::UpToDate {
            package.attempts = 0;
            package.stages.clear();
            continue;
        }
        let ready =
            package.depends.iter().filter_map(|need| done_seconds.get(need)).fold(0.0, |a: f64, b| a.max(*b));
        let start_on = |free: &f64| free.max(ready);
        let slot = (0..slots)
            .min_by(|a, b| start_on(&free_seconds[*a]).total_cmp(&start_on(&free_seconds[*b])))
            .unwrap_or_default();
        let start = start_on(&free_seconds[slot]);
        let mut now = start + 0.2;
        for stage in &mut package.stages {
            stage.started_seconds = now;
            now += stage.wall_seconds;
        }
        package.slot = Some(slot as u32);
        package.started_seconds = Some(start);
        package.wall_seconds = now - start;
        package.cpu_seconds = package.stages.iter().map(|stage| stage.cpu_seconds).sum();
        package.memory_peak_bytes =
            package.stages.iter().map(|stage| stage.memory_peak_bytes).max().unwrap_or(0);
        free_seconds[slot] = now;
        done_seconds.insert(package.name.clone(), now);
        if package.state == PackageState::Failed {
            culprits.insert(package.name.clone(), vec![package.name.clone()]);
        }
    }
    for package in packages {
        package.blocks = blocks.remove(&package.name).unwrap_or_default();
    }
}

/// The report of packages that have their times.
fn described(packages: Vec<ReportPackage>, cores: u32, slots: u32) -> Report {
    let end = |package: &ReportPackage| package.started_seconds.unwrap_or(0.0) + package.wall_seconds;
    Report {
        schema: SCHEMA,
        kilnyard: "0.1.0".into(),
        yard: "internal".into(),
        ecosystem: "debian".into(),
        release: "bookworm".into(),
        architecture: "amd64".into(),
        run: 42,
        state: RunState::Finished,
        started_seconds: 1_795_248_320,
        wall_seconds: packages.iter().map(end).fold(0.0, f64::max),
        cpu_seconds: packages.iter().map(|package| package.cpu_seconds).sum(),
        cores,
        slots,
        counts: count(&packages),
        packages,
        ..Report::default()
    }
}

fn count(packages: &[ReportPackage]) -> Counts {
    let number = |state| packages.iter().filter(|package| package.state == state).count() as u64;
    Counts {
        total: packages.len() as u64,
        built: number(PackageState::Built),
        unchanged: number(PackageState::Unchanged),
        up_to_date: number(PackageState::UpToDate),
        failed: number(PackageState::Failed),
        failed_as_expected: 0,
        blocked: number(PackageState::Blocked),
        skipped: number(PackageState::Skipped),
        left_out: 0,
        waiting: number(PackageState::Waiting) + number(PackageState::Building),
    }
}

fn path(report: &Report, names: &[&str]) -> Vec<PathStep> {
    let seconds =
        |name: &str| report.packages.iter().find(|p| p.name == name).map_or(0.0, |p| p.wall_seconds);
    names.iter().map(|name| PathStep { package: (*name).to_owned(), seconds: seconds(name) }).collect()
}

/// Writes the logs that a report links to, so that the links work. Limited to small reports: the logs of thirty
/// thousand sample packages would be useless.
pub fn write_logs(report: &Report, folder: &Path) -> std::io::Result<()> {
    const LOGS_MAX: usize = 1000;
    let logs =
        report.packages.iter().flat_map(|package| &package.stages).filter_map(|stage| stage.log.as_ref());
    // A report of a hostile yard may name any path on the machine.
    let is_below = |log: &&String| {
        Path::new(log).components().all(|part| matches!(part, std::path::Component::Normal(_)))
    };
    for log in logs.filter(is_below).take(LOGS_MAX) {
        let path = folder.join(log);
        std::fs::create_dir_all(path.parent().unwrap_or(folder))?;
        std::fs::write(path, "a log\n")?;
    }
    Ok(())
}
