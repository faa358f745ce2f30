//! The drivers of pools, from the configuration.

use crate::environment_of_process;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::Yard;
use kilnyard_pool::{
    CommandDriver, Driver, KubernetesAccess, KubernetesDriver, KubernetesSettings, Limits, Manner,
    SlurmDriver, SlurmSettings, SshDriver, SshHost, SshSettings, Surroundings, SystemdDriver,
    SystemdSettings, Units,
};
use kilnyard_yard::config::demand::{DriverKind, OnDemand};
use std::path::Path;
use std::sync::Arc;

/// How long a program of a manager may take, in seconds.
const CALL_SECONDS_MAX: u64 = 60;
/// How long a worker may take to end, in seconds. It has no builds then, unless its manager ends it by itself.
const GRACE_SECONDS: u32 = 30;
/// How much of that is for its clean-up.
const CLEAN_UP_SECONDS: u32 = 10;
/// The variables that programs of managers get, if they are set.
const PASSED: [&str; 8] = [
    "PATH",
    "HOME",
    "USER",
    "SLURM_CONF",
    "SSH_AUTH_SOCK",
    "XDG_RUNTIME_DIR",
    "DBUS_SESSION_BUS_ADDRESS",
    "KUBECONFIG",
];

/// How long a worker may use after its manager has asked it to end, in seconds: for what is in progress. The rest is for its
/// clean-up.
pub fn grace_seconds(demand: &OnDemand) -> u32 {
    let notice_seconds = match (demand.driver, &demand.slurm) {
        (DriverKind::Slurm, Some(table)) => table.notice_seconds,
        _ => GRACE_SECONDS,
    };
    notice_seconds.saturating_sub(CLEAN_UP_SECONDS)
}

/// The driver of a pool whose pilots have names with this prefix.
///
/// # Errors
/// A setting is not valid.
pub fn driver(yard: &Yard, prefix: &str, demand: &OnDemand) -> Result<Arc<dyn Driver>> {
    let (surroundings, seconds_max) = (surroundings(yard), CALL_SECONDS_MAX);
    let prefix = prefix.to_owned();
    let memory_bytes = demand.memory.0;
    let limits =
        Limits { memory_bytes: Some(memory_bytes), cores: Some(demand.cores), grace_seconds: GRACE_SECONDS };
    let failed = "use the settings of a pool";
    let missing = |what: &str| Error::usage(format!("a pool has no table {what}"));
    Ok(match demand.driver {
        DriverKind::Command => {
            let table = demand.command.as_ref().ok_or_else(|| missing("command"))?;
            let program = table.program.iter().enumerate().map(|(at, word)| match at {
                // As a user would expect of a path in a file of the yard.
                0 if word.contains('/') => yard.home.join(word).display().to_string(),
                _ => word.clone(),
            });
            Arc::new(CommandDriver { program: program.collect(), prefix, seconds_max, surroundings })
        }
        DriverKind::Ssh => {
            let table = demand.ssh.as_ref().ok_or_else(|| missing("ssh"))?;
            let host =
                |address: &String| SshHost { address: address.clone(), port: None, slots: table.slots };
            Arc::new(
                SshDriver::new(SshSettings {
                    prefix,
                    hosts: table.hosts.iter().map(host).collect(),
                    folder: table.folder.clone(),
                    manner: if table.units { Manner::Automatic } else { Manner::Detached },
                    limits,
                    options: table.options.clone(),
                    seconds_max,
                    surroundings,
                })
                .context(Kind::Usage, failed)?,
            )
        }
        DriverKind::Systemd => {
            let folder =
                demand.systemd.folder.clone().unwrap_or_else(|| Path::new("state/pilots").to_owned());
            let units = if rustix::process::geteuid().is_root() { Units::System } else { Units::User };
            Arc::new(
                SystemdDriver::new(SystemdSettings {
                    prefix,
                    folder: yard.home.join(folder),
                    units,
                    limits,
                    seconds_max,
                    surroundings,
                })
                .context(Kind::Usage, failed)?,
            )
        }
        DriverKind::Slurm => {
            let table = demand.slurm.as_ref().ok_or_else(|| missing("slurm"))?;
            Arc::new(
                SlurmDriver::new(SlurmSettings {
                    prefix,
                    folder: yard.home.join(&table.folder),
                    cores: demand.cores,
                    memory_bytes,
                    minutes_max: table.minutes_max,
                    notice_seconds: table.notice_seconds,
                    partition: table.partition.clone(),
                    account: table.account.clone(),
                    options: table.options.clone(),
                    seconds_max,
                    surroundings,
                })
                .context(Kind::Usage, failed)?,
            )
        }
        DriverKind::Kubernetes => {
            let table = demand.kubernetes.as_ref().ok_or_else(|| missing("kubernetes"))?;
            let pod = serde_json::to_value(&table.pod).or_internal(failed)?;
            let access = match &table.kubeconfig {
                Some(file) => KubernetesAccess::Configuration {
                    path: Some(yard.home.join(file)),
                    context: table.context.clone(),
                },
                None => KubernetesAccess::InCluster,
            };
            Arc::new(
                KubernetesDriver::new(KubernetesSettings {
                    prefix,
                    namespace: table.namespace.clone(),
                    access,
                    image: table.image.clone(),
                    cores: demand.cores,
                    memory_bytes,
                    disk_bytes: None,
                    pilot_seconds_max: None,
                    grace_seconds: GRACE_SECONDS,
                    has_user_namespace: table.user_namespace,
                    is_unconfined: table.unconfined,
                    pod: pod.as_object().cloned().unwrap_or_default(),
                    seconds_max,
                    surroundings,
                })
                .context(Kind::Usage, failed)?,
            )
        }
    })
}

/// What programs of managers are started with.
fn surroundings(yard: &Yard) -> Surroundings {
    let environment = environment_of_process();
    let mut surroundings = Surroundings { folder: yard.home.clone(), ..Surroundings::default() };
    for name in PASSED {
        if let Some(value) = environment.get(name) {
            surroundings.environment.insert(name.to_owned(), value.to_owned());
        }
    }
    surroundings
}
