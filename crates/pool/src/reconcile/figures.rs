//! The figures of a pool, for `kilnyard pools` and `/metrics`.

/// The state of a pool in numbers. Every pilot that may exist is in exactly one of `starting`, `queued`, `coming`, `idle`,
/// `busy`, `away`, `draining` and `ending`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// The least of the rules.
    pub least: u32,
    /// The most of the rules.
    pub most: u32,
    /// How many are wanted, between least and most.
    pub wanted: u32,
    /// Why, as the caller gave it.
    pub wanted_why: String,
    /// Requested, and not in a list yet.
    pub starting: u32,
    /// Queued by the manager.
    pub queued: u32,
    /// Running, and their workers have not joined yet.
    pub coming: u32,
    /// With a connected worker without builds.
    pub idle: u32,
    /// With a connected worker that builds.
    pub busy: u32,
    /// Their workers have joined, and are not connected.
    pub away: u32,
    /// Get no builds any more, and may have some.
    pub draining: u32,
    /// Being ended.
    pub ending: u32,
    /// Starts that were requested, since the process began.
    pub started_total: u64,
    /// Starts that failed.
    pub failed_total: u64,
    /// Pilots that were acknowledged, and were gone or silent before their workers joined.
    pub lost_total: u64,
    /// Pilots that ended after their workers had joined.
    pub ended_total: u64,
    /// Why there are fewer pilots than wanted, if there are: what the manager says, or does not say. The most important first.
    pub troubles: Vec<String>,
}

impl Figures {
    /// With connected workers that take builds.
    pub fn there(&self) -> u32 {
        self.idle + self.busy
    }

    /// All that exist or may exist. Never more than the most of the rules, unless that was lowered or the manager starts more
    /// than it was asked for.
    pub fn all(&self) -> u32 {
        let Figures { starting, queued, coming, idle, busy, away, draining, ending, .. } = self;
        starting + queued + coming + idle + busy + away + draining + ending
    }
}
