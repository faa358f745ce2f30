//! Writes repositories whose indexes are switched atomically, and [`LookUp`] files, in which one package is
//! found without parsing the others. The text below describes apt repositories, made by [`plan`]. A pkgsrc
//! repository, made by [`plan_packages`], and one of packages with lists ([`plan_lists`]) consist of the same steps in the
//! same order.
//!
//! [`plan`] takes the caller's facts about its packages (stanzas, checksums, paths of files), reads the
//! repository's directory and makes a [`Publication`]: an ordered list of [`Operation`]s that can be printed.
//! [`Publication::execute`] carries it out with a [`Signer`]. The packages themselves are not read again.
//!
//! # Layout of a repository
//!
//! ```text
//! pool/main/z/zlib/zlib1g_1.3-1_amd64.deb      hard links to the caller's files
//! dists/<codename>                             -> ../.generations/<codename>/<number>
//! .generations/<codename>/<number>/            Release, InRelease, Release.gpg, the public key
//!     <component>/binary-<architecture>/       Packages, Packages.xz, Packages.zst
//!     <component>/debian-installer/binary-<architecture>/  the same for udebs, if there are any
//!     <component>/source/                      Sources, Sources.xz, Sources.zst
//!     .../by-hash/SHA256/<hash>                second names of these, and of those of the two previous generations
//! .staging/                                    everything unfinished
//! .lock                                        held during writes
//! kilnyard-archive-keyring.asc                 the public key
//! ```
//!
//! # Order of a publication
//!
//! Clear the leftovers of an interrupted attempt; place new files in the pool; write the new generation in
//! `.staging`; flush all of it; rename the generation into place; flush; switch the link in `dists` by a
//! rename; flush; remove generations that are too old (keeping [`GENERATIONS_KEPT`]), each renamed into
//! `.staging` first.
//!
//! # Invariants
//!
//! - Whenever the process or the machine stops, `dists/<codename>` is the complete old or the complete new
//!   generation, and all pool files that it names exist. The next publication ends with the same bytes as if
//!   nothing had happened.
//! - A reader who fetched `InRelease` before a switch can fetch the indexes that it names, by hash, for two
//!   more switches.
//! - The content of a published pool path never changes: [`PublishError::Conflict`]. Only a file that no
//!   generation names, such as one from an interrupted attempt, is replaced.
//! - Input is hostile: a package's name, version and file name come from a build. A stanza cannot end early or add a
//!   field that the index writes, and no path points outside `pool`.
//! - Equal indexes are not written again, and nothing is signed again.
//! - There is one writer at a time. A plan made for another state of the repository is rejected:
//!   [`PublishError::Changed`].
//!
//! # Out of scope
//!
//! This crate does not choose among versions, verify dependencies, or write `Contents` and translation indexes.
//! It does not hash files that it links, only those that it copies: the caller's checksum is trusted. It
//! recognizes a kept pool file by its size and the current index's entry. It makes no other symbolic links in
//! `dists`, such as one for the suite.
//!
//! # Known downsides
//!
//! A hard link shares its bytes with the caller's file: changing one in place changes the other. Files that are
//! not world-readable are copied instead, which doubles their disk space. With several codenames in one
//! repository, a new key must be published to each of them in turn; until then, the others are signed with the
//! old one. `Release` and `Release.gpg` are two requests: a reader of these (not of `InRelease`) may get one
//! from each side of a switch, and has to retry.

mod checksum;
mod compress;
mod disk;
mod entry;
mod error;
mod execute;
mod generation;
mod index;
mod layout;
mod lists;
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
pub use generation::{packed_forms, packed_paths};
pub use layout::{GENERATIONS_KEPT, KEYRING_FILE};
pub use lists::{ListFiles, ListedFile, plan as plan_lists};
pub use lookup::{LookUp, render as render_look_up};
pub use operation::Operation;
pub use packages::{
    INDEXES_OF_SUMMARY, PackageEntry, PublishedPackages, indexes_of_summary, plan as plan_packages,
};
pub use plan::{Publication, plan};
pub use prune::{Prune, prune};
pub use signer::{Signatures, SignedText, Signer, SignerError, ToSign};
