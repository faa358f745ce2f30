//! Pilots as transient units of this machine's systemd: the pilot `NAME` is `NAME.service`.
//!
//! The unit runs one shell with a folder of mode 0700, below [`SystemdSettings::folder`], that has the command, environment and
//! files: all users can read the properties of a unit. Its output goes to the journal. With [`Limits`], the kernel bounds its
//! memory and cores.
//!
//! A unit that failed is reported once as ended, with systemd's reason, and then reset.

use crate::call::Call;
use crate::folder::{Sweeper, path_text};
use crate::name::begins_with;
use crate::{
    Description, Driver, LISTED_MAX, Launch, Limits, Listed, Listing, PilotName, PilotState, Place,
    PoolError, Surroundings, folder,
};
use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

/// The most output of a program, in bytes.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
/// The exit code of `systemctl stop` for a unit that is not there.
const NOT_LOADED: i32 = 5;

/// Which systemd runs the units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Units {
    /// The system's; for root.
    System,
    /// The user's, which must linger, or its pilots end with the last session.
    User,
}

/// How pilots are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemdSettings {
    /// The prefix of the pool's names.
    pub prefix: String,
    /// The folder of pilots, such as `/run/kilnyard/pilots`.
    pub folder: PathBuf,
    /// Which systemd.
    pub units: Units,
    /// The limits of a pilot.
    pub limits: Limits,
    /// How long each program may take, in seconds.
    pub seconds_max: u64,
    /// What the programs are started with. The user's systemd needs `XDG_RUNTIME_DIR`.
    pub surroundings: Surroundings,
}

/// This machine's systemd as the manager; see the module documentation.
#[derive(Debug)]
pub struct SystemdDriver {
    settings: SystemdSettings,
    sweeper: Sweeper,
}

impl SystemdDriver {
    /// Checks the settings; asks nothing.
    pub fn new(settings: SystemdSettings) -> Result<SystemdDriver, PoolError> {
        PilotName::parse(&settings.prefix)?;
        path_text("folder", &settings.folder)?;
        Ok(SystemdDriver { settings, sweeper: Sweeper::default() })
    }

    fn units(&self) -> &'static str {
        match self.settings.units {
            Units::System => "--system",
            Units::User => "--user",
        }
    }

    fn call<'call>(&'call self, program: &'call str, arguments: &'call [&'call str]) -> Call<'call> {
        let SystemdSettings { surroundings, seconds_max, .. } = &self.settings;
        let (seconds_max, output_bytes_max) = (*seconds_max, OUTPUT_BYTES_MAX);
        Call { program, arguments, input: b"", surroundings, seconds_max, output_bytes_max }
    }
}

impl Driver for SystemdDriver {
    fn start(&self, name: &PilotName, launch: &Launch) -> Result<(), PoolError> {
        launch.check()?;
        let folder = folder::make(&self.settings.folder, name, launch)?;
        let keeper = folder.join("keeper");
        fs::write(&keeper, folder::keeper(&folder)?)
            .map_err(|source| PoolError::File { path: keeper.clone(), source })?;
        let Limits { memory_bytes, cores, grace_seconds } = self.settings.limits;
        let mut arguments = vec![
            self.units().to_owned(),
            "--quiet".to_owned(),
            format!("--unit={name}"),
            "--description=a worker of Kilnyard".to_owned(),
            // SIGTERM to the keeper alone, which passes it on; SIGKILL to all.
            "--property=KillMode=mixed".to_owned(),
            format!("--property=TimeoutStopSec={grace_seconds}"),
        ];
        arguments.extend(memory_bytes.map(|bytes| format!("--property=MemoryMax={bytes}")));
        arguments.extend(cores.map(|cores| format!("--property=CPUQuota={}%", u64::from(cores) * 100)));
        arguments.extend(["/bin/sh".to_owned(), path_text("folder", &keeper)?.to_owned()]);
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        self.call("systemd-run", &arguments).run().map(drop)
    }

    fn list(&self) -> Result<Listing, PoolError> {
        let pattern = format!("{}-*.service", self.settings.prefix);
        let properties = "--property=Id,LoadState,ActiveState,Result,ExecMainStatus";
        let arguments = [self.units(), "show", properties, "--", &pattern];
        let call = self.call("systemctl", &arguments);
        let listed =
            read_units(&call.text()?, &self.settings.prefix).map_err(|reason| call.unreadable(&reason))?;
        let ended = listed.iter().filter(|one| one.state == PilotState::Ended);
        let ended: Vec<String> = ended.map(|one| format!("{}.service", one.name)).collect();
        if !ended.is_empty() {
            let mut arguments = vec![self.units(), "reset-failed", "--"];
            arguments.extend(ended.iter().map(String::as_str));
            // One that is gone in the meantime is an error of the call, and none of ours.
            let _ = self.call("systemctl", &arguments).run_to_its_exit();
        }
        let listing = Listing::of(listed);
        self.sweeper.sweep(&self.settings.folder, &self.settings.prefix, &listing);
        Ok(listing)
    }

    fn stop(&self, name: &PilotName) -> Result<(), PoolError> {
        let unit = format!("{name}.service");
        let arguments = [self.units(), "stop", "--no-block", "--", &unit];
        let call = self.call("systemctl", &arguments);
        let said = call.run_to_its_exit()?;
        match said.code {
            0 | NOT_LOADED => Ok(()),
            code => Err(PoolError::Failed {
                program: "systemctl stop".to_owned(),
                end: format!("exit code {code}"),
                stderr: said.stderr,
            }),
        }
    }

    fn describe(&self) -> Result<Description, PoolError> {
        let version = self.call("systemctl", &["--version"]).text()?;
        let version = version.lines().next().unwrap_or("");
        let arguments = [self.units(), "is-system-running"];
        // It fails unless the answer is `running`.
        let state = self.call("systemctl", &arguments).run_to_its_exit()?;
        let state_words = crate::text::excerpt(&state.stdout, 40);
        let is_usable = matches!(&*state_words, "running" | "degraded" | "starting");
        let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").unwrap_or_default();
        let has = |name: &str| controllers.split_whitespace().any(|one| one == name);
        let mut notes = Vec::new();
        if !has("memory") || !has("cpu") {
            notes.push(
                "this machine may not enforce limits: no unified control groups with memory and cpu"
                    .to_owned(),
            );
        }
        let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
        let kib = memory
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.trim().split(' ').next()?.parse::<u64>().ok());
        let cores = std::thread::available_parallelism().ok();
        let place = Place {
            name: "this machine".to_owned(),
            count: None,
            cores: cores.and_then(|cores| u32::try_from(cores.get()).ok()),
            memory_bytes: kib.map(|kib| kib.saturating_mul(1024)),
            trouble: (!is_usable).then(|| match state.stderr.is_empty() {
                true => state_words.clone(),
                false => state.stderr.clone(),
            }),
        };
        let version = crate::text::excerpt(version.as_bytes(), 80);
        Ok(Description { manager: "systemd".to_owned(), version, places: vec![place], notes })
    }
}

/// Reads the output of `systemctl show`: blocks of `NAME=VALUE`, one for each unit, with an empty line in between.
fn read_units(text: &str, prefix: &str) -> Result<Vec<Listed>, String> {
    let mut all = Vec::new();
    for block in text.split("\n\n").filter(|block| !block.trim().is_empty()) {
        let mut unit: BTreeMap<&str, &str> = BTreeMap::new();
        for line in block.lines().filter(|line| !line.is_empty()) {
            let (name, value) = line
                .split_once('=')
                .ok_or_else(|| format!("`{}` is no property", crate::text::reason(line)))?;
            unit.insert(name, value);
        }
        let get = |name: &str| unit.get(name).copied().ok_or_else(|| format!("a unit has no {name}"));
        let id = get("Id")?;
        let name = id.strip_suffix(".service").filter(|name| begins_with(prefix, name));
        let name = name.ok_or_else(|| format!("`{}` was not asked for", crate::text::reason(id)))?;
        let name = PilotName::parse(name).map_err(|error| error.to_string())?;
        let (state, result) = (get("ActiveState")?, get("Result")?);
        let state = match state {
            "active" | "activating" | "reloading" | "refreshing" | "maintenance" => PilotState::Running,
            "deactivating" => PilotState::Ending,
            "failed" | "inactive" => PilotState::Ended,
            other => return Err(format!("`{}` is no state", crate::text::reason(other))),
        };
        let is_failure = state == PilotState::Ended && result != "success";
        let status = unit.get("ExecMainStatus").copied().unwrap_or("");
        let reason = is_failure.then(|| crate::text::reason(&format!("{result}, status {status}")));
        all.push(Listed { name, state, reason, copies: 1 });
        if all.len() > LISTED_MAX {
            return Err(format!("more than {LISTED_MAX} units"));
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_strictly() {
        let unit = |id: &str, state: &str, result: &str| {
            format!("Result={result}\nExecMainStatus=3\nId={id}\nLoadState=loaded\nActiveState={state}\n")
        };
        let text = format!(
            "{}\n{}\n{}",
            unit("p-f-g-1.service", "active", "success"),
            unit("p-f-g-2.service", "failed", "exit-code"),
            unit("p-f-g-3.service", "deactivating", "success")
        );
        let listed = read_units(&text, "p").unwrap();
        let states: Vec<_> = listed.iter().map(|one| (one.state, one.reason.as_deref())).collect();
        let reason = Some("exit-code, status 3");
        assert_eq!(
            states,
            [(PilotState::Running, None), (PilotState::Ended, reason), (PilotState::Ending, None)]
        );
        assert_eq!(read_units("", "p"), Ok(Vec::new()));
        for text in [
            unit("q-1.service", "active", "success"),
            unit("p-f-g-1.scope", "active", "success"),
            unit("p-A.service", "active", "success"),
            unit("p-1.service", "other", "success"),
            "Id=p-1.service\n".to_owned(),
            "no property\n".to_owned(),
        ] {
            assert!(read_units(&text, "p").is_err(), "{text}");
        }
    }
}
