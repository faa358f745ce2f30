//! Options of the commands of a farm.

use crate::config::Size;
use crate::config::farm::Approval;
use clap::{Args, Subcommand, ValueEnum};
use kilnyard_model::role::Role;
use kilnyard_root::{Backend, Roots, Scratch};
use std::net::SocketAddr;
use std::path::PathBuf;

/// `worker`.
#[derive(Debug, Args)]
pub struct Worker {
    /// Join the yard that `kilnyard serve` serves at this address, such as `https://build.example:7878`. Once joined,
    /// neither this nor the token is needed again.
    #[arg(long, value_name = "URL", conflicts_with_all = ["lease", "artifacts"])]
    pub join: Option<String>,
    /// The file with the token that `kilnyard serve` printed.
    #[arg(long, value_name = "FILE", requires = "join")]
    pub token_file: Option<PathBuf>,
    /// The name of this worker, unique in its farm. Default: the name of the machine.
    #[arg(long, value_name = "NAME", requires = "join")]
    pub name: Option<String>,
    /// The number of cores for builds. Default: all that this process may use.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=4096), conflicts_with = "lease")]
    pub cores: Option<u32>,
    /// Perform a single lease instead: the `lease.json` of `kilnyard lease`.
    #[arg(long, value_name = "FILE", requires = "artifacts")]
    pub lease: Option<PathBuf>,
    /// The folder of artifacts of a single lease: inputs are read from it; outputs, logs and the result are written to it.
    #[arg(long, value_name = "FOLDER", requires = "lease")]
    pub artifacts: Option<PathBuf>,
    /// The size up to which the folder keeps base roots, layers, files, kept work and logs for later builds, such as 50G.
    /// The least recently used ones are removed. What running builds and the roots of failed builds need stays.
    #[arg(long, value_name = "SIZE", default_value = "100G", conflicts_with = "lease")]
    pub keep: Size,
    /// After SIGTERM, take no more builds, and let those in progress end for up to this time, in seconds. By default, they are
    /// given to other workers at once.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, conflicts_with = "lease")]
    pub grace: u64,
    /// The mirror of this site, such as `http://mirror.example:3142`, at which files of builds are read, instead of the one that the
    /// farm has for the worker's pool.
    #[arg(long, value_name = "URL", conflicts_with = "lease")]
    pub mirror: Option<String>,
    /// How roots of builds are made; docs/roots.md compares the ways.
    #[arg(long, value_name = "WAY", default_value = "overlay", conflicts_with = "lease")]
    pub roots: RootsOfWorker,
    /// The worker's folder for layers and roots; created if missing.
    #[arg(long, value_name = "FOLDER", default_value = "kilnyard-worker")]
    pub folder: PathBuf,
}

/// How a worker makes roots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RootsOfWorker {
    /// Layers below a writable one on the disk.
    Overlay,
    /// Layers below a writable one in memory.
    Memory,
    /// A copy of the layers in memory.
    Tmpfs,
    /// A copy of the layers on the disk.
    Copy,
    /// An image on a block device, written to memory first.
    Block,
}

impl RootsOfWorker {
    /// As the configuration of a yard has it.
    pub fn roots(self) -> Roots {
        let (backend, scratch) = match self {
            RootsOfWorker::Overlay => (Backend::Overlay, Scratch::Disk),
            RootsOfWorker::Memory => (Backend::Overlay, Scratch::Memory),
            RootsOfWorker::Tmpfs => (Backend::Tmpfs, Scratch::Disk),
            RootsOfWorker::Copy => (Backend::Copy, Scratch::Disk),
            RootsOfWorker::Block => (Backend::Block, Scratch::Disk),
        };
        Roots { backend, scratch, ..Roots::default() }
    }
}

/// `pools`.
#[derive(Clone, Copy, Debug, Args)]
pub struct Pools {
    #[command(flatten)]
    pub json: super::Json,
}

/// `serve`.
#[derive(Debug, Args)]
pub struct Serve {
    /// The address and port to listen at. Port 0 takes any free port.
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from(([0, 0, 0, 0], kilnyard_farm::PORT)))]
    pub listen: SocketAddr,
    /// The address that workers use, for the command that is printed. Default: the name of this machine and the port.
    #[arg(long, value_name = "URL")]
    pub address: Option<String>,
    /// Show figures of the farm at this address and port, for Prometheus: /metrics, by plain HTTP, to anyone who reaches it.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub metrics: Option<SocketAddr>,
    /// Serve pages and the API to people and programs at this address and port (docs/api.md): over TLS if `[people]` in
    /// kilnyard.toml has a certificate, else by plain HTTP, which is possible only at an address of this machine alone, such as
    /// 127.0.0.1:7880.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub api: Option<SocketAddr>,
    /// Serve pages and the API alone, at 127.0.0.1:7880 if `--api` names no other address: no port is open for workers.
    #[arg(long, conflicts_with_all = ["listen", "metrics", "address"])]
    pub only_pages: bool,
    /// Print what workers may ask of the server, as an OpenAPI document, and exit. This needs no yard.
    #[arg(long)]
    pub openapi: bool,
    #[command(flatten)]
    pub admission: Admission,
    #[command(flatten)]
    pub stores: Stores,
}

/// Where pages are served by default.
pub const API_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 7880);

/// Where a server on another machine finds everything.
#[derive(Debug, Args)]
#[command(next_help_heading = "Another machine for the same yard")]
pub struct Stores {
    /// Serve the yard of these stores, and continue its runs if the machine that has them is gone. The first time, the folder
    /// of the yard is empty; after that, `kilnyard serve` alone does the same.
    #[arg(long, requires_all = ["store", "artifacts"])]
    pub standby: bool,
    /// The database of the yard: `url` in its table `store`.
    #[arg(long, value_name = "URL", requires = "standby")]
    pub store: Option<String>,
    /// A file with the password of the database.
    #[arg(long, value_name = "FILE", requires = "store")]
    pub password_file: Option<PathBuf>,
    /// A file with the certificates of which one must have signed the database's.
    #[arg(long, value_name = "FILE", requires = "store")]
    pub certificates: Option<PathBuf>,
    /// The schema of the yard's tables.
    #[arg(long, value_name = "NAME", requires = "store")]
    pub schema: Option<String>,
    /// The store of artifacts of the yard: `url` in its table `artifacts`.
    #[arg(long, value_name = "URL", requires = "standby")]
    pub artifacts: Option<String>,
    /// The address of the server of artifacts.
    #[arg(long, value_name = "URL", requires = "artifacts")]
    pub endpoint: Option<String>,
    /// The region of the bucket.
    #[arg(long, value_name = "NAME", requires = "artifacts")]
    pub region: Option<String>,
    /// A file with the credentials for the store of artifacts.
    #[arg(long, value_name = "FILE", requires = "artifacts")]
    pub credentials_file: Option<PathBuf>,
}

/// `workers`.
#[derive(Debug, Args)]
pub struct Workers {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(subcommand)]
    pub action: Option<WorkersAction>,
}

/// To what a token admits a worker.
#[derive(Debug, Args)]
pub struct Admission {
    /// The worker's pool, of those in kilnyard.toml.
    #[arg(long, default_value = kilnyard_farm::roster::DEFAULT_POOL)]
    pub pool: String,
    /// What the worker takes part in: scan, check, build, test. Default: the roles of its pool.
    #[arg(long, value_name = "ROLE", value_delimiter = ',')]
    pub roles: Vec<Role>,
    /// Whether the worker gets builds at once: automatically or by-hand. Default: as kilnyard.toml says.
    #[arg(long, value_name = "HOW")]
    pub approve: Option<Approval>,
    /// The certificate (PEM) of the proxy through which the worker connects, instead of the server's own. Its key counts,
    /// which may have other certificates later.
    #[arg(long, value_name = "FILE")]
    pub certificate: Option<PathBuf>,
}

/// What to do with the workers of a farm.
#[derive(Debug, Subcommand)]
pub enum WorkersAction {
    /// Print a new token, which admits one worker.
    Token(Admission),
    /// Print what a mirror at another site is configured with, so that workers there read files of builds at it.
    Mirror {
        /// The address of `kilnyard serve`, as that machine reaches it. Default: the name of this machine.
        #[arg(long, value_name = "URL")]
        address: Option<String>,
    },
    /// Let a worker have builds that joined a pool with approval by hand.
    Approve {
        /// The worker's name.
        worker: String,
    },
    /// Give a worker no more builds. Running builds continue.
    Drain {
        /// The worker's name.
        worker: String,
    },
    /// Give builds again to a worker that was drained or quarantined.
    Resume {
        /// The worker's name.
        worker: String,
    },
    /// Give a worker no more builds, and say why. Kilnyard does this itself to workers that fail what others build.
    Quarantine {
        /// The worker's name.
        worker: String,
        /// The reason that `kilnyard workers` shows.
        #[arg(long, default_value = "on request")]
        reason: String,
    },
    /// Remove a worker that is not trusted any more, and print how many packages it built.
    Revoke {
        /// The worker's name.
        worker: String,
        /// Let the next build of the yard rebuild all that it made, and all that was built with it.
        #[arg(long)]
        rebuild: bool,
    },
    /// Remove a worker. Its builds are given to others, and it cannot connect any more.
    Remove {
        /// The worker's name.
        worker: String,
    },
}
