//! Repositories: indexes written and switched atomically; and [`LookUp`], a file in which one package is found without
//! parsing the others. What follows is of apt repositories, [`plan`]; a pkgsrc repository, [`plan_packages`], is made of
//! the same steps in the same order.
//!
//! [`plan`] takes what the caller knows about its packages (stanzas, checksums, where the files are), reads the
//! repository's directory, and decides: a [`Publication`], which is an ordered list of [`Operation`]s that prints.
//! [`Publication::execute`] carries it out with a [`Signer`]. Nothing is read from the packages again.
//!
//! # What a repository looks like
//!
//! ```text
//! pool/main/z/zlib/zlib1g_1.3-1_amd64.deb      hard links to the caller's files
//! dists/<codename>                             -> ../.generations/<codename>/<number>
//! .generations/<codename>/<number>/            Release, InRelease, Release.gpg, the public key
//!     <component>/binary-<architecture>/       Packages, Packages.xz, Packages.zst
//!     <component>/debian-installer/binary-<architecture>/  the same of udebs, where there are any
//!     <component>/source/                      Sources, Sources.xz, Sources.zst
//!     .../by-hash/SHA256/<hash>                second names of the above, and of the two generations before
//! .staging/                                    whatever is unfinished
//! .lock                                        held while something is written
//! kilnyard-archive-keyring.asc                 the public key
//! ```
//!
//! # The order of a publication
//!
//! Clear what a broken attempt left; place new files in the pool; write the new generation in `.staging`; flush all of it;
//! rename the generation into place; flush; switch the link in `dists` by a rename; flush; remove generations that are too
//! old (keeping [`GENERATIONS_KEPT`]), each renamed into `.staging` first.
//!
//! # What must hold
//!
//! - Whenever the process or the machine stops, `dists/<codename>` is the old generation or the new one, whole, and all pool
//!   files that it names are there. The next publication ends in the same bytes as if nothing had happened.
//! - A reader who fetched `InRelease` before a switch finds the indexes it names, by hash, for two more switches.
//! - A published pool path never changes its content: [`PublishError::Conflict`]. Only a file that no generation names, as
//!   a broken attempt may leave it, is replaced.
//! - Input is hostile: a package's name, version and file name come from a build. No stanza can end early or add a field of
//!   the index, and no path leads out of `pool`.
//! - Equal indexes are not written again, and nothing is signed.
//! - One writer at a time; a plan that was made for another state of the repository is refused: [`PublishError::Changed`].
//!
//! # What it does not do
//!
//! It does not choose among versions, verify dependencies, or write `Contents` and translation indexes. It does not hash a
//! file that it links (a copied file is hashed): the caller's checksum stands. A kept pool file is known by its size and by
//! what the current index says of it. It makes no other symbolic links in `dists`, such as one for the suite.
//!
//! # Known downsides
//!
//! A hard link shares its bytes with the caller's file: who changes one in place changes the other. Files that are not
//! readable by all are copied instead, and take their space twice. With several codenames in one repository, a new key must
//! be published to each of them in turn; in between the others are signed with the old one. `Release` and `Release.gpg` are
//! two requests: a reader of these (not of `InRelease`) can catch one on each side of a switch, and has to try again.

mod checksum;
mod compress;
mod disk;
mod entry;
mod error;
mod execute;
mod generation;
mod index;
mod layout;
mod lookup;
mod name;
mod operation;
mod packages;
mod plan;
mod pool;
mod prune;
mod release;
mod series;
mod signer;
mod stanza;
mod state;
mod steps;

pub use checksum::Checksum;
pub use entry::{BinaryEntry, BinaryIndex, ReleaseFacts, SourceEntry, SourceFile};
pub use error::{PublishError, Result};
pub use execute::Published;
pub use layout::{GENERATIONS_KEPT, KEYRING_FILE};
pub use lookup::{LookUp, render as render_look_up};
pub use operation::Operation;
pub use packages::{PackageEntry, PublishedPackages, plan as plan_packages};
pub use plan::{Publication, plan};
pub use prune::{Prune, prune};
pub use signer::{Signer, SignerError};
