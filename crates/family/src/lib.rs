//! The package families, one folder each, behind one door: [`FAMILIES`].
//!
//! A family's folder has everything that a yard needs: the keys of its table, its scan, its layers, its set, its
//! repository, and the checks of this machine. Rules about packages that do not need a yard are in the crate
//! `ecosystem`.
//!
//! Invariant: nothing outside these folders names a family. A new family is a folder here, a folder in `ecosystem`,
//! and a line in each of the two lists. What families share, such as
//! [`git`], has a place here, too.
//!
//! Known downside: pkgsrc builds run in a Debian base root, so the pkgsrc folder uses the Debian one.

/// Prints a line to the user.
macro_rules! say {
    ($program:expr, $($what:tt)*) => { $program.say(&format!($($what)*)) };
}

mod arguments;
mod captured;
pub mod debian;
pub mod git;
pub mod pkgsrc;
pub mod rpm;

use kilnyard_yard::family::FamilyEntry;

/// The families, in the order in which help and messages list them.
pub const FAMILIES: &[&dyn FamilyEntry] = &[&debian::DebianEntry, &pkgsrc::PkgsrcEntry, &rpm::RpmEntry];
