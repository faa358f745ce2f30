//! The ids of the builds of one coordinator.
//!
//! The coordinator is pure and has no randomness: each id is a hash of a secret and a counter. The same secret yields
//! the same ids, so a simulation can be repeated; without the secret, known ids do not reveal others.

use kilnyard_model::attempt::Attempt;
use sha2::{Digest, Sha256};

/// Makes unique ids from a secret.
#[derive(Clone)]
pub struct Attempts {
    secret: [u8; Attempts::SECRET_BYTES],
    count: u64,
}

impl Attempts {
    /// Length of a secret in bytes.
    pub const SECRET_BYTES: usize = 32;

    /// The ids of this secret. It must be random and new for each coordinator, or ids repeat.
    pub const fn new(secret: [u8; Attempts::SECRET_BYTES]) -> Attempts {
        Attempts { secret, count: 0 }
    }

    /// A number from 0 to 1 that cannot be known before without the secret.
    pub(crate) fn draw(&mut self) -> f64 {
        let hash = self.hash();
        let mut bytes = [0; 4];
        bytes.copy_from_slice(&hash[..4]);
        f64::from(u32::from_be_bytes(bytes)) / f64::from(u32::MAX)
    }

    pub(crate) fn next(&mut self) -> Attempt {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&self.hash()[..16]);
        Attempt::from_bytes(bytes)
    }

    fn hash(&mut self) -> [u8; 32] {
        let hash = Sha256::new().chain_update(self.secret).chain_update(self.count.to_be_bytes()).finalize();
        self.count += 1;
        hash.into()
    }
}

// Keeps the secret out of logs.
impl std::fmt::Debug for Attempts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempts").field("count", &self.count).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn each_id_is_given_once_and_follows_from_the_secret() {
        let of = |secret| {
            let mut attempts = Attempts::new([secret; 32]);
            (0..1000).map(move |_| attempts.next()).collect::<Vec<_>>()
        };
        let all: HashSet<Attempt> = of(1).into_iter().chain(of(2)).collect();
        assert_eq!(all.len(), 2000);
        assert_eq!(of(1), of(1));
        assert!(!format!("{:?}", Attempts::new([7; 32])).contains('7'));
    }
}
