//! interim
use crate::error::Result;
use crate::family::Published;
use crate::yard::Yard;
use kilnyard_ecosystem::pkgsrc::Workshop;
use kilnyard_mirror::DistfileStore;
use kilnyard_store::Store;

pub fn plan(_: &Yard, _: &impl Store, _: &Workshop, _: &DistfileStore) -> Result<String> {
    Ok(String::new())
}
pub fn publish(_: &Yard, _: &impl Store, _: &Workshop, _: &DistfileStore) -> Result<Published> {
    Ok(Published {
        is_changed: false,
        packages: 0,
        line_for: "pkg_add",
        line: String::new(),
        fingerprint: String::new(),
    })
}
