//! Pilots as Slurm's batch jobs: the name of the pilot is the name of the job.
//!
//! Each call is one or two of Slurm's programs, of version 20.11 or later. Slurm's job numbers are never kept: a controller that is
//! killed forgets jobs that it acknowledged seconds before, and gives their numbers to others. A pilot is found by name and user; a
//! stop gives `scancel` the numbers found a moment ago together with name and user, and Slurm checks them.
//!
//! - *Secrets.* Slurm shows a job's script to its user and to operators, and some sites store it with the accounts. The script that is
//!   submitted is the same for all pilots. Command, environment and files are in a folder of mode 0700 on a file system that the
//!   nodes share, and are removed when the pilot ends.
//! - *No requeue.* A job that Slurm starts again would have a used token. The pool starts another pilot instead.
//! - *Time limit.* Slurm sends SIGTERM `notice_seconds` before it (up to a minute earlier), so that the worker ends its builds in
//!   time and the pool replaces it.
//! - *Limits.* Cores and memory are requested; whether they are enforced depends on the site's cgroups, which
//!   [`describe`](Driver::describe) reports. The limits of the submitting process are not passed on.
//!
//! Known downside: the folder must be shared between this machine and the nodes.

mod rows;

use crate::call::Call;
use crate::folder::{Sweeper, path_text};
use crate::{Description, Driver, Launch, Listing, PilotName, PilotState, PoolError, Surroundings, folder};
use rows::Job;
use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::path::PathBuf;

/// The most output of a program, in bytes: a listing of all jobs of a user.
const OUTPUT_BYTES_MAX: usize = 16 << 20;
/// What of a log is shown, in bytes.
const LOG_BYTES_SHOWN: u64 = 300;
/// Options that this driver sets, or that would make something else than one job.
const RESERVED: [&str; 25] = [
    "array",
    "begin",
    "clusters",
    "comment",
    "cpus-per-task",
    "dependency",
    "error",
    "export",
    "export-file",
    "hold",
    "input",
    "job-name",
    "mem",
    "no-requeue",
    "nodes",
    "ntasks",
    "output",
    "parsable",
    "propagate",
    "requeue",
    "signal",
    "test-only",
    "time",
    "wait",
    "wrap",
];

/// What a pilot's job requests, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct SlurmSettings {
    /// The prefix of the pool's names.
    pub prefix: String,
    /// A folder that this machine and all nodes reach under the same absolute path.
    pub folder: PathBuf,
    /// The cores of a pilot.
    pub cores: u32,
    /// The memory of a pilot in bytes; rounded up to MiB.
    pub memory_bytes: u64,
    /// The time limit of a pilot, in minutes.
    pub minutes_max: u32,
    /// How long before that it gets SIGTERM, in seconds.
    pub notice_seconds: u32,
    /// The partition; without one, the site's default.
    pub partition: Option<String>,
    /// The account.
    pub account: Option<String>,
    /// Further options of `sbatch`, such as `--qos=low` or `--exclusive`: long ones, with their values after `=`.
    pub options: Vec<String>,
    /// How long each program may take, in seconds.
    pub seconds_max: u64,
    /// What the programs are started with; jobs get this environment, too.
    pub surroundings: Surroundings,
}

/// Slurm as the manager; see the module documentation.
#[derive(Debug)]
pub struct SlurmDriver {
    settings: SlurmSettings,
    /// The user whose jobs are listed.
    uid: u32,
    sweeper: Sweeper,
}

impl SlurmDriver {
    /// Checks the settings; asks nothing.
    pub fn new(settings: SlurmSettings) -> Result<SlurmDriver, PoolError> {
        path_text("folder", &settings.folder)?;
        let word = |what, text: &Option<String>| match text {
            Some(text)
                if text.is_empty()
                    || text.len() > 200
                    || text.chars().any(|one| one.is_control() || one == ' ') =>
            {
                Err(PoolError::invalid(what, text, "a name of Slurm"))
            }
            _ => Ok(()),
        };
        word("partition", &settings.partition)?;
        word("account", &settings.account)?;
        for option in &settings.options {
            let name = option.strip_prefix("--").unwrap_or("").split('=').next().unwrap_or("");
            let is_name =
                name.len() > 1 && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-');
            // Slurm accepts abbreviations of options.
            let is_reserved = RESERVED.iter().any(|reserved| reserved.starts_with(name));
            if !is_name || is_reserved || option.len() > 1000 || option.chars().any(char::is_control) {
                let expected =
                    "a long option of sbatch that does not change what is run, with its value after =";
                return Err(PoolError::invalid("option", option, expected));
            }
        }
        let SlurmSettings { cores, memory_bytes, minutes_max, notice_seconds, .. } = settings;
        if cores == 0 || memory_bytes == 0 || minutes_max == 0 {
            let value = format!("{cores} cores, {memory_bytes} bytes, {minutes_max} minutes");
            return Err(PoolError::invalid("size", &value, "at least one of each"));
        }
        if u64::from(notice_seconds) >= u64::from(minutes_max) * 60 || notice_seconds > 65_535 {
            let value = notice_seconds.to_string();
            return Err(PoolError::invalid(
                "notice-seconds",
                &value,
                "less than the time limit, at most 65535",
            ));
        }
        let uid = rustix::process::getuid().as_raw();
        Ok(SlurmDriver { settings, uid, sweeper: Sweeper::default() })
    }

    fn call<'call>(
        &'call self,
        program: &'call str,
        arguments: &'call [&'call str],
        input: &'call [u8],
    ) -> Call<'call> {
        let SlurmSettings { surroundings, seconds_max, .. } = &self.settings;
        let (seconds_max, output_bytes_max) = (*seconds_max, OUTPUT_BYTES_MAX);
        Call { program, arguments, input, surroundings, seconds_max, output_bytes_max }
    }

    fn jobs(&self) -> Result<Vec<Job>, PoolError> {
        let user = format!("--user={}", self.uid);
        let arguments = ["--noheader", "--states=all", &user, rows::JOBS];
        let call = self.call("squeue", &arguments, b"");
        rows::jobs(&call.text()?, &self.settings.prefix, self.uid).map_err(|reason| call.unreadable(&reason))
    }

    fn log(&self, name: &PilotName) -> PathBuf {
        self.settings.folder.join(format!("{name}.log"))
    }

    /// The end of a pilot's log.
    fn last_words(&self, name: &PilotName) -> Option<String> {
        let mut file = fs::File::open(self.log(name)).ok()?;
        let size = file.metadata().ok().filter(fs::Metadata::is_file)?.len();
        file.seek(SeekFrom::Start(size.saturating_sub(LOG_BYTES_SHOWN))).ok()?;
        let mut bytes = Vec::new();
        file.take(LOG_BYTES_SHOWN).read_to_end(&mut bytes).ok()?;
        let words = crate::text::excerpt(&bytes, LOG_BYTES_SHOWN as usize);
        (!words.is_empty()).then_some(words)
    }
}

impl Driver for SlurmDriver {
    fn start(&self, name: &PilotName, launch: &Launch) -> Result<(), PoolError> {
        launch.check()?;
        let settings = &self.settings;
        let folder = folder::make(&settings.folder, name, launch)?;
        let script = folder::keeper(&folder)?;
        let log = self.log(name);
        let mut arguments = vec![
            "--parsable".to_owned(),
            format!("--job-name={name}"),
            format!("--comment=a worker of Kilnyard, pool {}", settings.prefix),
            "--no-requeue".to_owned(),
            "--nodes=1".to_owned(),
            "--ntasks=1".to_owned(),
            format!("--cpus-per-task={}", settings.cores),
            format!("--mem={}M", settings.memory_bytes.div_ceil(1 << 20)),
            format!("--time={}", settings.minutes_max),
            // To the script, which passes it on; without `B`, only steps get it, and there are none.
            format!("--signal=B:TERM@{}", settings.notice_seconds),
            // The environment that sbatch was started with. Anything else would run the user's login shell on the node.
            "--export=ALL".to_owned(),
            "--propagate=NONE".to_owned(),
            "--input=/dev/null".to_owned(),
            // Slurm replaces `%j` and others in it.
            format!("--output={}", path_text("folder", &log)?.replace('\\', r"\\").replace('%', "%%")),
            format!("--chdir={}", path_text("folder", &settings.folder)?),
        ];
        arguments.extend(settings.partition.iter().map(|partition| format!("--partition={partition}")));
        arguments.extend(settings.account.iter().map(|account| format!("--account={account}")));
        arguments.extend(settings.options.iter().cloned());
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        // The number of the job is not read. The folder stays after a failure, since the job may exist.
        self.call("sbatch", &arguments, script.as_bytes()).run().map(drop)
    }

    fn list(&self) -> Result<Listing, PoolError> {
        let jobs = self.jobs()?;
        let listed = jobs.iter().map(|job| {
            let mut listed = job.listed();
            let is_failure =
                job.state == PilotState::Ended && !matches!(&*job.word, "COMPLETED" | "CANCELLED");
            if is_failure && let Some(words) = self.last_words(&job.name) {
                listed.reason =
                    Some(format!("{}; its log ends with: {words}", listed.reason.unwrap_or_default()));
            }
            listed
        });
        let listing = Listing::of(listed);
        self.sweeper.sweep(&self.settings.folder, &self.settings.prefix, &listing);
        Ok(listing)
    }

    fn stop(&self, name: &PilotName) -> Result<(), PoolError> {
        let ids = || -> Result<Vec<String>, PoolError> {
            let jobs = self.jobs()?.into_iter();
            Ok(jobs
                .filter(|job| job.name == *name && job.state != PilotState::Ended)
                .map(|job| job.id)
                .collect())
        };
        let found = ids()?;
        if found.is_empty() {
            return Ok(());
        }
        let (user, job_name) = (format!("--user={}", self.uid), format!("--name={name}"));
        let mut arguments = vec![user.as_str(), &job_name];
        arguments.extend(found.iter().map(String::as_str));
        match self.call("scancel", &arguments, b"").run() {
            Ok(_) => Ok(()),
            // It ended in the meantime.
            Err(PoolError::Failed { .. }) if ids()?.is_empty() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn describe(&self) -> Result<Description, PoolError> {
        let version = self.call("sbatch", &["--version"], b"").text()?;
        let partition = self.settings.partition.iter().map(|name| format!("--partition={name}"));
        let partition: Vec<String> = partition.collect();
        let mut arguments = vec!["--noheader", rows::PLACES];
        arguments.extend(partition.iter().map(String::as_str));
        let call = self.call("sinfo", &arguments, b"");
        let places = rows::places(&call.text()?).map_err(|reason| call.unreadable(&reason))?;
        let configuration = self.call("scontrol", &["show", "config"], b"").text()?;
        let setting = |name: &str| {
            let value =
                |line: &str| Some(line.strip_prefix(name)?.trim_start().strip_prefix('=')?.trim().to_owned());
            configuration.lines().find_map(value).unwrap_or_default()
        };
        let mut notes = Vec::new();
        if !setting("TaskPlugin").contains("cgroup") {
            notes.push("Slurm does not confine jobs to their cores (TaskPlugin without cgroup)".to_owned());
        }
        if !setting("ProctrackType").contains("cgroup") {
            notes.push(
                "Slurm may not find all processes of a job that ends (ProctrackType without cgroup)"
                    .to_owned(),
            );
        }
        let kill_wait = crate::text::excerpt(setting("KillWait").as_bytes(), 40);
        notes.push(format!("a pilot that is stopped has {kill_wait} to end (KillWait)"));
        let version = crate::text::excerpt(version.as_bytes(), 80);
        Ok(Description { manager: "Slurm".to_owned(), version, places, notes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> SlurmSettings {
        SlurmSettings {
            prefix: "p".to_owned(),
            folder: PathBuf::from("/shared"),
            cores: 1,
            memory_bytes: 1 << 30,
            minutes_max: 60,
            notice_seconds: 600,
            partition: None,
            account: None,
            options: Vec::new(),
            seconds_max: 10,
            surroundings: Surroundings::default(),
        }
    }

    #[test]
    fn settings_are_checked() {
        let good = SlurmSettings {
            options: vec!["--qos=low".to_owned(), "--exclusive".to_owned(), "--constraint=a&b".to_owned()],
            partition: Some("lab".to_owned()),
            ..settings()
        };
        SlurmDriver::new(good).unwrap();
        let wrong: [fn(&mut SlurmSettings); 11] = [
            |settings| settings.folder = PathBuf::from("shared"),
            |settings| settings.folder = PathBuf::from("/a\nb"),
            |settings| settings.cores = 0,
            |settings| settings.notice_seconds = 3600,
            |settings| settings.partition = Some("a b".to_owned()),
            |settings| settings.account = Some(String::new()),
            |settings| settings.options = vec!["-J".to_owned()],
            |settings| settings.options = vec!["--wra=rm".to_owned()],
            |settings| settings.options = vec!["--job-name=x".to_owned()],
            |settings| settings.options = vec!["script".to_owned()],
            |settings| settings.options = vec!["--qos=a\nb".to_owned()],
        ];
        for (at, change) in wrong.iter().enumerate() {
            let mut settings = settings();
            change(&mut settings);
            assert!(SlurmDriver::new(settings).is_err(), "{at}");
        }
    }
}
