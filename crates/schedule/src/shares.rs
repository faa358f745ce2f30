//! How the yards of a farm share a machine.
//!
//! Each yard has a weight and a class. Cores that are free go to the yard with work that comes first: the one of the higher
//! class, and among those of one class the one that had the least core time for its weight, over a window. Nothing that is
//! running is taken away, so that shares are right over time, and not at each moment. So that no class starves those below
//! it, a yard with less than [`LEAST_SHARE`] of the core time comes first.
//!
//! Within a yard, ranks decide.

use kilnyard_model::entitlement::Entitlement;

/// The share of the core time that a yard with work gets whatever the classes of others are.
pub const LEAST_SHARE: f64 = 0.05;
/// The half-life of used core time, in seconds: what was used ten minutes ago hardly counts.
const HALF_LIFE_SECONDS: f64 = 300.0;
/// With this share of the machine's memory in use, nothing further starts.
const MEMORY_SHARE_MAX: f64 = 0.9;
/// How long a core that is given is expected to be used, in seconds: with equal use, cores are given by weight.
const HORIZON_SECONDS: f64 = 10.0;
/// A yard that leaves its cores unused for this long, in seconds, has no use for them on this machine now.
const UNUSED_SECONDS_MAX: f64 = 5.0;
/// It gets cores again after this time, in seconds.
const REST_SECONDS: f64 = 20.0;

/// What a yard does on a machine, and could do.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// Its running builds.
    pub building: u32,
    /// The builds that it has begun so far.
    pub begun: u64,
    /// The cores that these can use.
    pub wanted: u32,
    /// The cores that these have.
    pub used: u32,
    /// The memory that its running builds are expected to need, in bytes.
    pub memory_bytes: u64,
    /// Whether it has packages that could start.
    pub has_ready: bool,
}

/// A yard that takes part.
#[derive(Clone, Debug)]
struct Member {
    entitlement: Entitlement,
    usage: Usage,
    /// The core-seconds of the window, and what a new yard is taken to have used.
    used: f64,
    /// The core-seconds of the window.
    received: f64,
    /// Its part of the machine.
    cores: u32,
    /// Since when it has left cores unused, and how many builds it had begun then.
    unused_since: Option<(f64, u64)>,
    /// Until when it gets none beyond those that it uses.
    rests_until: f64,
    /// Whether it starts nothing further: what it may use in a day is spent.
    is_spent: bool,
}

impl Member {
    /// The cores that it could use at most.
    fn could_use(&self, now_seconds: f64, all: u32) -> u32 {
        // With more cores than builds, it would begin further ones.
        if self.is_spent {
            return self.usage.building;
        }
        let own = self.usage.wanted.max(self.usage.building);
        match self.usage.has_ready && now_seconds >= self.rests_until {
            true => own.max(all),
            false => own,
        }
    }
}

/// Divides the cores of a machine among yards, which are identified by numbers. The caller has the clock.
#[derive(Clone, Debug)]
pub struct Shares {
    cores: u32,
    memory_bytes: Option<u64>,
    members: Vec<Option<Member>>,
    now_seconds: f64,
}

impl Shares {
    /// The shares of a machine with this many cores, and this much memory for builds, in bytes.
    pub fn new(cores: u32, memory_bytes: Option<u64>) -> Shares {
        Shares { cores: cores.max(1), memory_bytes, members: Vec::new(), now_seconds: 0.0 }
    }

    /// Adds a yard, or changes what it is entitled to. A new one begins with the least use for its weight of the others,
    /// so that it gets no more than they do for what it did not use before.
    pub fn set(&mut self, yard: usize, entitlement: Entitlement) {
        if self.members.len() <= yard {
            self.members.resize(yard + 1, None);
        }
        let least = self.members.iter().flatten().map(|member| member.used / member.entitlement.weight);
        let least = least.reduce(f64::min).unwrap_or(0.0);
        match &mut self.members[yard] {
            Some(member) => member.entitlement = entitlement,
            place => {
                let used = least * entitlement.weight;
                *place = Some(Member {
                    entitlement,
                    usage: Usage::default(),
                    used,
                    received: 0.0,
                    cores: 0,
                    unused_since: None,
                    rests_until: 0.0,
                    is_spent: false,
                });
            }
        }
    }

    /// Says whether a yard starts nothing further for now. What it runs stays.
    pub fn set_spent(&mut self, yard: usize, is_spent: bool) {
        if let Some(Some(member)) = self.members.get_mut(yard) {
            member.is_spent = is_spent;
        }
    }

    /// Removes a yard.
    pub fn remove(&mut self, yard: usize) {
        if let Some(member) = self.members.get_mut(yard) {
            *member = None;
        }
    }

    /// Notes what a yard does from this time on, in seconds of a monotonic clock.
    pub fn note(&mut self, yard: usize, now_seconds: f64, usage: Usage) {
        self.pass(now_seconds);
        if let Some(Some(member)) = self.members.get_mut(yard) {
            member.usage = usage;
        }
    }

    /// Counts what was used until now.
    fn pass(&mut self, now_seconds: f64) {
        let passed = (now_seconds - self.now_seconds).max(0.0);
        self.now_seconds = now_seconds;
        let left = 0.5_f64.powf(passed / HALF_LIFE_SECONDS);
        for member in self.members.iter_mut().flatten() {
            let more = f64::from(member.usage.used) * passed;
            member.used = member.used * left + more;
            member.received = member.received * left + more;
        }
    }

    /// The cores that a yard may use now; 0 if it may start nothing.
    pub fn cores_of(&self, yard: usize) -> u32 {
        self.members.get(yard).and_then(Option::as_ref).map_or(0, |member| member.cores)
    }

    /// Divides the cores anew at this time, in seconds of a monotonic clock. Returns whether anything changed.
    pub fn divide(&mut self, now_seconds: f64) -> bool {
        self.pass(now_seconds);
        self.members.iter_mut().flatten().for_each(|member| member.note_unused(now_seconds));
        let before: Vec<u32> = self.members.iter().flatten().map(|member| member.cores).collect();
        // Each yard's coordinator sees the memory of its own builds alone.
        let memory = self.members.iter().flatten().map(|member| member.usage.memory_bytes);
        let memory = memory.fold(0, u64::saturating_add);
        let is_full = self.memory_bytes.is_some_and(|all| memory as f64 > MEMORY_SHARE_MAX * all as f64);
        let all = if is_full { 0 } else { self.cores };
        let mut members: Vec<&mut Member> = self.members.iter_mut().flatten().collect();
        // What runs keeps at least a core for each build.
        members.iter_mut().for_each(|member| member.cores = member.usage.building);
        let has_work = |member: &&&mut Member| member.usage.has_ready || member.usage.building > 0;
        let count = members.iter().filter(has_work).count();
        let mut free = self.cores.saturating_sub(members.iter().map(|member| member.cores).sum());
        while free > 0 {
            let received = members.iter().map(|member| member.to_receive()).sum();
            let next = members
                .iter_mut()
                .filter(|member| member.cores < member.could_use(now_seconds, all))
                .min_by(|a, b| a.comes_before(b, received, count));
            let Some(next) = next else { break };
            next.cores += 1;
            free -= 1;
        }
        // What is not used now is for the first that has work, without waiting for this machine to hear of it.
        while free > 0 && !is_full {
            let others =
                members.iter_mut().filter(|member| !member.is_spent && now_seconds >= member.rests_until);
            let Some(next) = others.min_by_key(|member| member.cores) else { break };
            next.cores += 1;
            free -= 1;
        }
        // On a full machine, one that has had next to nothing does not wait for the end of others' builds.
        let received = members.iter().map(|member| member.to_receive()).sum();
        let starved = members.iter_mut().find(|member| {
            member.cores == 0 && member.could_use(now_seconds, all) > 0 && member.is_starved(received, count)
        });
        if let Some(starved) = starved {
            starved.cores = 1;
        }
        members.iter().map(|member| member.cores).ne(before)
    }
}

impl Member {
    /// Notes whether it uses what it was given, by beginning builds or in those that run.
    fn note_unused(&mut self, now_seconds: f64) {
        let begun = self.usage.begun;
        let uses = self.cores <= self.usage.building.max(self.usage.used) || !self.usage.has_ready;
        let since = self.unused_since.filter(|(_, before)| !uses && *before == begun);
        let (since, _) = *self.unused_since.insert(since.unwrap_or((now_seconds, begun)));
        if now_seconds - since > UNUSED_SECONDS_MAX {
            self.unused_since = None;
            self.rests_until = now_seconds + REST_SECONDS;
        }
    }

    /// What it received, with what it will by the cores that it has been given.
    fn to_receive(&self) -> f64 {
        self.received + f64::from(self.cores) * HORIZON_SECONDS
    }

    fn is_starved(&self, received_by_all: f64, count: usize) -> bool {
        // With many yards, an equal share is less than that.
        let least = LEAST_SHARE.min(0.5 / count.max(1) as f64);
        self.to_receive() < least * received_by_all
    }

    fn comes_before(&self, other: &Member, received_by_all: f64, count: usize) -> std::cmp::Ordering {
        let class = |member: &Member| match member.is_starved(received_by_all, count) {
            true => None,
            false => Some(member.entitlement.class),
        };
        let used = |member: &Member| member.used + f64::from(member.cores) * HORIZON_SECONDS;
        let share = |member: &Member| used(member) / member.entitlement.weight;
        class(self).cmp(&class(other)).then(share(self).total_cmp(&share(other)))
    }
}

#[cfg(test)]
mod tests;
