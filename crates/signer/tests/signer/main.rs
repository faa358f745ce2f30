//! A signer under attack by its coordinator: each case is what a coordinator could ask, and what comes of it.

mod account;
mod archives;
mod attacks;
mod commits;
mod fixture;
mod headers;
mod keys;
mod lists;
mod tokens;
