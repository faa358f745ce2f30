//! Fuzz targets: every parser and decoder of Kilnyard that reads foreign input.
//!
//! A target is a function from bytes to nothing that panics where a property does not hold. Each asserts more than
//! that nothing breaks: an order is one, what is printed can be read again, a second and simpler reader agrees, a
//! signature is believed for one text only, no field of an index is forged. The same functions are used twice:
//!
//! - `cargo test --manifest-path fuzz/Cargo.toml` gives each target its seeds and some thousands of mutations of
//!   them, and prints the number that repeats the run. It needs nothing but stable Rust.
//! - `fuzz/run TARGET` is a campaign: libFuzzer, guided by coverage, on stable Rust too.
//!
//! Seeds are in `seeds/TARGET/`; what a campaign finds worth keeping is in `corpus/TARGET/`, which is not committed. An
//! input that broke a property becomes a named test in the crate that was wrong.
//!
//! What must hold: a target leaves nothing behind and depends on nothing but its input, so that an input can be
//! tried again. The known downside: the lock file beside this package is another one than the program's, and has to
//! be brought along (`cargo update --manifest-path fuzz/Cargo.toml`) when a dependency is.
//!
//! What has no target: parsers inside the program `kilnyard` itself (configuration, `Release`), which no library can
//! reach; what the mirror reads of an HTTP answer, which is private to it and has tests there.

mod deb;
mod fields;
mod index;
#[path = "../../crates/web/tests/markup/mod.rs"]
mod markup;
mod messages;
mod moving;
pub mod mutate;
mod package_file;
mod page;
mod pkgsrc;
mod processes;
mod publish;
mod shown;
mod signed;
mod version;

/// A target: its name, which is that of its folder of seeds, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("deb822", fields::deb822),
    ("relation", fields::relation),
    ("source", fields::source),
    ("version", version::version),
    ("universe", index::universe),
    ("deb_file", deb::deb_file),
    ("clear_signed", signed::clear_signed),
    ("detached", signed::detached),
    ("keyring", signed::keyring),
    ("telling", shown::telling),
    ("line", shown::line),
    ("log", shown::log),
    ("sandbox", messages::sandbox),
    ("process_stat", processes::process_stat),
    ("protocol", messages::protocol),
    ("hash", messages::hash),
    ("publish", publish::publish),
    ("page", page::page),
    ("pkgsrc_version", pkgsrc::pkgsrc_version),
    ("pkgsrc_pattern", pkgsrc::pkgsrc_pattern),
    ("scan_file", pkgsrc::scan_file),
    ("kept", pkgsrc::kept),
    ("pkg_summary", pkgsrc::pkg_summary),
    ("pbulk_conf", moving::pbulk_conf),
    ("bob_config", moving::bob_config),
    ("look_up", pkgsrc::look_up),
    ("distinfo", pkgsrc::distinfo),
    ("package_file", package_file::package_file),
];

/// The input as text, where it is text: most parsers are given what was checked to be UTF-8 before.
fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// The parts of an input, which lines of two per cent signs keep apart.
fn parts<const COUNT: usize>(text: &str) -> [&str; COUNT] {
    let mut parts = text.splitn(COUNT, "\n%%\n");
    std::array::from_fn(|_| parts.next().unwrap_or(""))
}
