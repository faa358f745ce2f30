//! What people and programs ask of a site over HTTP: who they are, what they may do, build data, events, pages, and their
//! requests.
//!
//! ```text
//! person --HTTPS, token--> server (`kilnyard serve --api`) --> store of a yard
//! person --> proxy of the site, which knows who that is --HTTP, user's name and secret--> server
//! ```
//!
//! - [`tokens`]: the tokens of people, with scopes and yards, and when they expire.
//! - [`entrance`]: who makes a request: a token, a proxy that is trusted, or an anonymous client.
//! - [`server`]: the listener, TLS, bounded connections.
//! - [`requests`]: what changes something, and the [site](requests::Site) that answers. [`bodies`]: what that consists of.
//! - [`queries`]: what can be asked, and the [`Facts`](queries::Facts) that answer; `answers` are the handlers.
//! - [`feed`]: events as they happen, to any number of readers.
//! - [`pages`]: which page an address means; `web` renders them. `assets`: their style sheet and script.
//! - `conditional`: answers that a client has already are not sent again.
//!
//! Invariants: nothing is done before the person and its scope are known; every request that changes something is recorded
//! with its author; a yard that a person may not use looks like one that does not exist.

mod answers;
mod assets;
pub mod bodies;
mod conditional;
pub mod entrance;
pub mod feed;
pub mod pages;
pub mod queries;
pub mod requests;
pub mod server;
pub mod tokens;

use kilnyard_model::scope::Scope;
use std::collections::BTreeSet;

/// The longest name of a person, in bytes.
pub const NAME_BYTES_MAX: usize = 64;

/// Who makes a request, and what they may do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// The author of their requests; absent for readers without a name.
    pub name: Option<String>,
    /// What they may do.
    pub scopes: BTreeSet<Scope>,
    /// Names of the yards that this is for; absent for all. See [`bodies::OWN_YARD`].
    pub yards: Option<BTreeSet<String>>,
}

impl Person {
    /// Whether they may do this in a yard.
    pub fn may(&self, scope: Scope, yard: &str) -> bool {
        let is_allowed = self.scopes.contains(&scope)
            // To ask for something, one has to see it.
            || (scope == Scope::Read && !self.scopes.is_empty());
        is_allowed && self.yards.as_ref().is_none_or(|yards| yards.contains(yard))
    }
}

/// Whether this can name a person, in records and on a terminal: letters and digits of ASCII, and `._@+-`.
pub fn is_person_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._@+-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.bytes().all(is_allowed)
        && name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric())
}
