//! The yard that `kilnyard demo` builds.

use super::config::template;
use super::init::mirror_for;
use kilnyard_mirror::without_password;
use kilnyard_yard::family::Demo;

const RELEASE: &str = "bookworm";

/// Twelve sources that really depend on each other.
const SET: &[&str] =
    &["zlib", "lz4", "xxhash", "popt", "attr", "libmd", "acl", "libbsd", "minizip", "jq", "rsync", "libonig"];
/// Sources that `--large` adds.
const MORE: &[&str] =
    &["bzip2", "lzo2", "libpng1.6", "libdeflate", "file", "readline", "lua5.4", "squashfs-tools"];

/// The demo's configuration and packages.
pub fn demo(is_large: bool) -> Demo {
    let more = if is_large { MORE } else { &[] };
    let packages: Vec<String> = SET.iter().chain(more).map(|name| (*name).to_owned()).collect();
    let mirror = mirror_for(RELEASE);
    Demo {
        configuration: template(RELEASE, &mirror, &packages),
        packages,
        index: format!("Debian {RELEASE}'s index from {}", without_password(&mirror)),
        repository: "a signed apt repository",
    }
}
