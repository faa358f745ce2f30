//! The table `farm`: workers on other machines.

use super::demand::OnDemand;
use super::site::{self, Share, SiteYard};
use kilnyard_coordinator::OWN_POOL;
use kilnyard_model::role::Role;
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

/// The pool that always exists.
pub const DEFAULT_POOL: &str = "default";

/// More are a mistake: the scheduler distinguishes few classes.
const POOLS_MAX: usize = 16;
/// The longest name of a pool, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The table `farm`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Farm {
    /// Whether workers that join get builds at once, unless their pool says otherwise.
    pub approve: Approval,
    /// The share of packages, from 0 to 1, that a worker of another pool builds again, to compare.
    pub verify: f64,
    /// The address of the mirror at which workers read files of builds, unless their pool has another one.
    pub mirror: Option<String>,
    /// Whether the TLS connections of workers must show the key that they joined with.
    pub client_certificates: bool,
    /// Pools of workers by name.
    pub pool: BTreeMap<String, Pool>,
    /// What this yard is entitled to of the workers, if there are further yards.
    pub share: Share,
    /// Further yards that `kilnyard serve` serves, by name.
    pub yards: BTreeMap<String, SiteYard>,
}

/// How a worker that joins is approved.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Approval {
    /// Its token is enough.
    #[default]
    Automatically,
    /// By `kilnyard workers approve`.
    ByHand,
}

impl std::str::FromStr for Approval {
    type Err = String;

    fn from_str(text: &str) -> Result<Approval, String> {
        match text {
            "automatically" => Ok(Approval::Automatically),
            "by-hand" => Ok(Approval::ByHand),
            _ => Err(format!("`{text}` is neither `automatically` nor `by-hand`")),
        }
    }
}

/// Workers that are trusted alike.
#[derive(Clone, Debug, Deserialize, PartialEq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Pool {
    /// Overrides [`Farm::approve`].
    pub approve: Option<Approval>,
    /// Whether other packages may be built with what its workers make.
    pub trusted: bool,
    /// What its workers take part in, unless their token says otherwise.
    pub roles: BTreeSet<Role>,
    /// Overrides [`Farm::mirror`].
    pub mirror: Option<String>,
    /// How its workers are started; absent if they join by themselves.
    pub demand: Option<OnDemand>,
}

impl Default for Pool {
    fn default() -> Pool {
        Pool { approve: None, trusted: true, roles: Role::all(), mirror: None, demand: None }
    }
}

impl Farm {
    pub(super) fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.verify) {
            return Err(format!("farm: verify is {}, but must be from 0 to 1", self.verify));
        }
        site::check(&self.share, &self.yards)?;
        if self.pool.len() > POOLS_MAX {
            return Err(format!("farm: there are {} pools; the maximum is {POOLS_MAX}", self.pool.len()));
        }
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        let is_name =
            |name: &String| !name.is_empty() && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_allowed);
        if let Some(name) = self.pool.keys().find(|name| !is_name(name)) {
            return Err(format!(
                "farm: `{name}` cannot name a pool: letters, digits, dots, dashes and underscores, at most {NAME_BYTES_MAX}"
            ));
        }
        if let Some(name) = self.yards.keys().find(|name| !is_name(name) || name.starts_with('.')) {
            return Err(format!(
                "farm: `{name}` cannot name a yard: letters, digits, dots, dashes and underscores, at most {NAME_BYTES_MAX}"
            ));
        }
        if self.pool.contains_key(OWN_POOL) {
            return Err(format!("farm: the pool {OWN_POOL} is this machine itself, and has no table"));
        }
        let mirrors = self.pool.values().filter_map(|pool| pool.mirror.as_ref()).chain(&self.mirror);
        if let Some(other) = mirrors.into_iter().find(|url| !url.starts_with("http://")) {
            return Err(format!("farm: the mirror {other} is not an address that begins with http://"));
        }
        for (name, pool) in &self.pool {
            let Some(demand) = &pool.demand else { continue };
            demand.check(name)?;
            // Each of them would wait for the user, and be given back as idle.
            if self.approval(name) == Approval::ByHand {
                return Err(format!(
                    "farm: the workers of pool {name} are started on demand, so they cannot be approved by hand: approve = \"automatically\" in [farm.pool.{name}]"
                ));
            }
        }
        match self.pool.iter().find(|(_, pool)| pool.roles.is_empty()) {
            Some((name, _)) => Err(format!("farm: pool {name} has no roles: scan, check, build or test")),
            None => Ok(()),
        }
    }

    /// The mirror of each pool that has one.
    pub fn mirrors(&self) -> BTreeMap<String, String> {
        let of =
            |name: &&str| self.pool.get(*name).and_then(|pool| pool.mirror.clone()).or(self.mirror.clone());
        self.pools().iter().filter_map(|name| Some(((*name).to_owned(), of(name)?))).collect()
    }

    /// The settings of a pool; none if it is not configured.
    pub fn pool(&self, name: &str) -> Option<Pool> {
        let configured = self.pool.get(name).cloned();
        configured.or_else(|| (name == DEFAULT_POOL).then(Pool::default))
    }

    /// Whether the workers of a pool are started on demand.
    pub fn has_demand(&self) -> bool {
        self.pool.values().any(|pool| pool.demand.is_some())
    }

    /// The names of all pools.
    pub fn pools(&self) -> Vec<&str> {
        let mut names: BTreeSet<&str> = self.pool.keys().map(String::as_str).collect();
        names.insert(DEFAULT_POOL);
        names.into_iter().collect()
    }

    /// Whether other packages may be built with what workers of this pool make. A pool that is no longer configured is
    /// not trusted.
    pub fn trusts(&self, pool: &str) -> bool {
        self.pool(pool).is_some_and(|pool| pool.trusted)
    }

    /// How workers of this pool are approved.
    pub fn approval(&self, pool: &str) -> Approval {
        self.pool(pool).and_then(|pool| pool.approve).unwrap_or(self.approve)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEMAND: &str = "[pool.a.demand]\ndriver = \"command\"\nmost = 2\ncores = 1\nmemory = \"1G\"\n[pool.a.demand.command]\nprogram = [\"m\"]";

    fn parsed(text: &str) -> Result<Farm, String> {
        let farm: Farm = toml::from_str(text).map_err(|error| error.to_string())?;
        farm.check().map(|()| farm)
    }

    #[test]
    fn pools_are_trusted_unless_they_say_otherwise() {
        let text = "approve = \"by-hand\"\nverify = 0.05\n[pool.lab]\ntrusted = false\napprove = \"automatically\"\n[pool.ci]\nroles = [\"build\"]";
        let farm = parsed(text).unwrap();
        assert!(
            farm.trusts(DEFAULT_POOL) && farm.trusts("ci") && !farm.trusts("lab") && !farm.trusts("gone")
        );
        assert_eq!(farm.pools(), ["ci", "default", "lab"]);
        assert_eq!(farm.approval("lab"), Approval::Automatically);
        assert_eq!(farm.approval("ci"), Approval::ByHand);
        assert_eq!(farm.pool("ci").unwrap().roles, [Role::Build].into());
        assert!(farm.pool("gone").is_none());
        assert!(
            !farm.client_certificates && parsed("client-certificates = true").unwrap().client_certificates
        );
    }

    #[test]
    fn wrong_tables_are_explained() {
        for (text, expected) in [
            ("verify = 1.5", "from 0 to 1"),
            ("verify = nan", "from 0 to 1"),
            ("[pool.\"a b\"]", "cannot name a pool"),
            ("[pool.yard]", "is this machine itself"),
            ("[pool.a]\nroles = []", "has no roles"),
            ("[pool.a]\nroles = [\"cook\"]", "unknown variant"),
            ("[pool.a]\ntrust = true", "unknown field"),
            ("approve = \"yes\"", "unknown variant"),
            ("[yards.\"a b\"]\npath = \"x\"", "cannot name a yard"),
            ("[yards.\"..\"]\npath = \"x\"", "cannot name a yard"),
            ("[yards.a]", "missing field `path`"),
            ("[yards.a]\npath = \"\"", "needs the path"),
            ("[yards.a]\npath = \"x\"\nweight = 0.0", "must be from 0.001 to 1000"),
            ("[yards.a]\npath = \"x\"\nweight = nan", "must be from 0.001 to 1000"),
            ("[yards.a]\npath = \"x\"\nclass = \"urgent\"", "unknown variant"),
            ("[yards.a]\npath = \"x\"\nwight = 1", "unknown field"),
            ("[share]\nweight = -1.0", "in [farm.share] must be"),
            (&format!("approve = \"by-hand\"\n{DEMAND}"), "cannot be approved by hand"),
            (&DEMAND.replace("most = 2", "most = 2\nleast = 3"), "at least 3 workers, and at most 2"),
            (&DEMAND.replace("command\"", "slurm\""), "no table [farm.pool.a.demand.slurm]"),
            (&DEMAND.replace("cores = 1", "cores = 0"), "needs cores"),
            (&DEMAND.replace("cores = 1", "cores = 1\ncost = -1.0"), "a cost of at least 0"),
            (&DEMAND.replace("most = 2", "mots = 2"), "unknown field"),
        ] {
            let error = parsed(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
