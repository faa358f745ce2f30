//! Fuzz targets: every parser and decoder of Kilnyard that reads foreign input.
//!
//! A target is a function that takes bytes and panics if a property does not hold. Each target asserts more than
//! the absence of crashes: an order is total, output can be parsed again, a second and simpler parser agrees, a
//! signature is accepted for one text only, no field of an index is forged. The same functions run in two ways:
//!
//! - `cargo test --manifest-path fuzz/Cargo.toml` runs each target on its seeds and some thousands of mutations of
//!   them, and prints the number that repeats the run. It needs nothing but stable Rust.
//! - `fuzz/run TARGET` is a campaign: libFuzzer, guided by coverage, on stable Rust too.
//!
//! Seeds are in `seeds/TARGET/`; inputs that a campaign keeps are in `corpus/TARGET/`, which is not committed. An
//! input that violated a property becomes a named test in the crate with the bug.
//!
//! What must hold: a target leaves no files behind and depends on nothing but its input, so that an input can be
//! run again. Known downside: this package's lock file is separate from the program's, and must be updated with it
//! (`cargo update --manifest-path fuzz/Cargo.toml`).
//!
//! Without a target: parsers inside the program `kilnyard` itself (configuration, lock, `Release`), which no library
//! exposes; and the mirror's parsing of HTTP responses, which is private to it and has tests there.

mod deb;
mod farm;
mod fields;
mod import;
mod index;
mod machines;
#[path = "../../crates/web/tests/markup/mod.rs"]
mod markup;
mod messages;
pub mod mutate;
mod package_file;
mod packaging;
mod page;
mod pkgsrc;
mod processes;
mod publish;
mod rpm;
mod shown;
mod signed;
mod signer;
mod version;

/// A target: its name, which is also its folder of seeds, and the function that runs it on an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, as `fuzz/run` lists them.
pub const TARGETS: &[Target] = &[
    ("deb822", fields::deb822),
    ("relation", fields::relation),
    ("source", fields::source),
    ("rpm_relation", rpm::rpm_relation),
    ("rpm_metadata", rpm::rpm_metadata),
    ("rpm_package", rpm::rpm_package),
    ("declared_tests", fields::declared_tests),
    ("version", version::version),
    ("packaging", packaging::packaging),
    ("universe", index::universe),
    ("deb_file", deb::deb_file),
    ("clear_signed", signed::clear_signed),
    ("detached", signed::detached),
    ("keyring", signed::keyring),
    ("signer_messages", signer::messages),
    ("excerpt", shown::excerpt),
    ("line", shown::line),
    ("log", shown::log),
    ("sandbox", messages::sandbox),
    ("process_stat", processes::process_stat),
    ("protocol", messages::protocol),
    ("farm_bodies", farm::bodies),
    ("farm_join", farm::join),
    ("farm_frames", farm::frames),
    ("hazards", machines::hazards),
    ("nbd", machines::nbd),
    ("requests", machines::requests),
    ("hash", messages::hash),
    ("publish", publish::publish),
    ("page", page::page),
    ("pkgsrc_version", pkgsrc::pkgsrc_version),
    ("pkgsrc_pattern", pkgsrc::pkgsrc_pattern),
    ("scan_file", pkgsrc::scan_file),
    ("kept", pkgsrc::kept),
    ("pkg_summary", pkgsrc::pkg_summary),
    ("pbulk_conf", import::pbulk_conf),
    ("bob_config", import::bob_config),
    ("look_up", pkgsrc::look_up),
    ("distinfo", pkgsrc::distinfo),
    ("package_file", package_file::package_file),
];

/// The input as text, if it is UTF-8: most parsers receive text that was checked before.
fn text(data: &[u8]) -> Option<&str> {
    std::str::from_utf8(data).ok()
}

/// The parts of an input, separated by lines of two per cent signs.
fn parts<const COUNT: usize>(text: &str) -> [&str; COUNT] {
    let mut parts = text.splitn(COUNT, "\n%%\n");
    std::array::from_fn(|_| parts.next().unwrap_or(""))
}
