//! The package families, a folder each, behind one door: [`FAMILIES`].
//!
//! A folder has all of a family that a yard needs: the keys of its table, its scan, its layers, its set, its repository, what
//! it needs of this machine. What is known of packages without a yard is in the crate `ecosystem`.
//!
//! What must hold: nothing outside of these folders names a family; a new one is a folder here, one in `ecosystem`, and a
//! line in each of the two lists.
//!
//! Known downside: builds of pkgsrc happen in a base root of Debian, so that its folder uses the other one's.

/// Writes a line for people.
macro_rules! say {
    ($program:expr, $($what:tt)*) => { $program.say(&format!($($what)*)) };
}

mod arguments;
pub mod debian;
pub mod pkgsrc;

use kilnyard_yard::family::Entry;

/// The families, in the order in which people meet them.
pub const FAMILIES: &[&dyn Entry] = &[&debian::Entry, &pkgsrc::Entry];
