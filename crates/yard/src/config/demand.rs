//! The settings of a pool whose workers are started on demand.

use crate::config::Size;
use serde::Deserialize;
use std::path::PathBuf;

/// What starts the workers of a pool.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum DriverKind {
    /// A program of the site.
    Command,
    /// A list of hosts.
    Ssh,
    /// The systemd of the yard's machine.
    Systemd,
    /// Batch jobs of Slurm.
    Slurm,
    /// Jobs of a Kubernetes cluster.
    Kubernetes,
}

impl DriverKind {
    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            DriverKind::Command => "command",
            DriverKind::Ssh => "ssh",
            DriverKind::Systemd => "systemd",
            DriverKind::Slurm => "slurm",
            DriverKind::Kubernetes => "kubernetes",
        }
    }
}

/// The table `farm.pool.NAME.demand`: workers on demand.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct OnDemand {
    /// What starts them.
    pub driver: DriverKind,
    /// Workers that are kept even if there is nothing to do.
    #[serde(default)]
    pub least: u32,
    /// The most workers at once.
    pub most: u32,
    /// How long a worker is idle before it is given back, in seconds.
    #[serde(default = "idle_seconds")]
    pub idle_seconds: u32,
    /// How long a started worker may take to join, in seconds.
    #[serde(default = "start_seconds_max")]
    pub start_seconds_max: u32,
    /// How many times its start-up time a worker must work to be worth it: 0 for machines that are free, more for those that
    /// are paid.
    #[serde(default)]
    pub cost: f64,
    /// The cores of a worker.
    pub cores: u32,
    /// The memory of a worker.
    pub memory: Size,
    /// `kilnyard`, as the machines of the pool find it, and arguments before its command.
    #[serde(default = "program")]
    pub program: Vec<String>,
    /// Further options of `kilnyard worker`, such as `--keep`.
    #[serde(default)]
    pub options: Vec<String>,
    /// Settings of the driver `command`.
    pub command: Option<CommandTable>,
    /// Settings of the driver `ssh`.
    pub ssh: Option<SshTable>,
    /// Settings of the driver `systemd`.
    #[serde(default)]
    pub systemd: SystemdTable,
    /// Settings of the driver `slurm`.
    pub slurm: Option<SlurmTable>,
    /// Settings of the driver `kubernetes`.
    pub kubernetes: Option<KubernetesTable>,
}

/// A program with the verbs `start`, `list`, `stop` and `describe`.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CommandTable {
    /// The program, and arguments before the verb.
    pub program: Vec<String>,
}

/// Hosts.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SshTable {
    /// As `ssh` takes them: `[user@]host`.
    pub hosts: Vec<String>,
    /// The most workers on each.
    #[serde(default = "one")]
    pub slots: u32,
    /// The folder of workers on each host, absolute.
    pub folder: Option<String>,
    /// Arguments of `ssh` before the host, such as `-i KEY`.
    #[serde(default)]
    pub options: Vec<String>,
    /// Whether workers are units of systemd where there is one.
    #[serde(default = "yes")]
    pub units: bool,
}

/// Transient units of the yard's own machine.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct SystemdTable {
    /// The folder of workers; by default in the yard.
    pub folder: Option<PathBuf>,
}

/// Batch jobs.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SlurmTable {
    /// A folder that this machine and all nodes reach under the same absolute path.
    pub folder: PathBuf,
    /// The time limit of a job, in minutes.
    pub minutes_max: u32,
    /// How long before that a worker is asked to end, in seconds.
    #[serde(default = "notice_seconds")]
    pub notice_seconds: u32,
    /// The partition; by default the site's.
    pub partition: Option<String>,
    /// The account.
    pub account: Option<String>,
    /// Further long options of `sbatch`.
    #[serde(default)]
    pub options: Vec<String>,
}

/// Jobs of a cluster.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct KubernetesTable {
    /// The image of pods, which has the program.
    pub image: String,
    /// The namespace of the jobs; by default that of the access.
    pub namespace: Option<String>,
    /// A file with the access to the cluster, as kubectl's; by default the account of the pod in which the server runs.
    pub kubeconfig: Option<PathBuf>,
    /// The context of that file; by default its current one.
    pub context: Option<String>,
    /// Whether pods get a user namespace of their own.
    #[serde(default = "yes")]
    pub user_namespace: bool,
    /// Whether the system calls of pods are not filtered, which builds need.
    #[serde(default = "yes")]
    pub unconfined: bool,
    /// Further fields of the pod's `spec`, such as `nodeSelector`.
    #[serde(default)]
    pub pod: toml::Table,
}

fn idle_seconds() -> u32 {
    300
}

fn start_seconds_max() -> u32 {
    300
}

fn program() -> Vec<String> {
    vec!["kilnyard".to_owned()]
}

fn one() -> u32 {
    1
}

fn yes() -> bool {
    true
}

fn notice_seconds() -> u32 {
    300
}

impl OnDemand {
    /// What is wrong with it; `pool` is its name.
    pub(super) fn check(&self, pool: &str) -> Result<(), String> {
        let table = match self.driver {
            DriverKind::Command => self.command.is_some(),
            DriverKind::Ssh => self.ssh.is_some(),
            DriverKind::Systemd => true,
            DriverKind::Slurm => self.slurm.is_some(),
            DriverKind::Kubernetes => self.kubernetes.is_some(),
        };
        if !table {
            let driver = self.driver.as_str();
            return Err(format!(
                "farm: pool {pool} has the driver {driver}, and no table [farm.pool.{pool}.demand.{driver}]"
            ));
        }
        if self.least > self.most {
            return Err(format!(
                "farm: pool {pool} has at least {} workers, and at most {}",
                self.least, self.most
            ));
        }
        if self.cores == 0 || self.program.is_empty() || !(self.cost >= 0.0 && self.cost.is_finite()) {
            return Err(format!("farm: pool {pool} needs cores, a program, and a cost of at least 0"));
        }
        Ok(())
    }
}
