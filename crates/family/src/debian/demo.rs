//! The set of `kilnyard demo`.

use super::config::template;
use super::init::mirror_for;
use kilnyard_mirror::without_password;
use kilnyard_yard::family::Demo;

const RELEASE: &str = "bookworm";

/// Twelve sources with real edges among them.
const SET: &[&str] =
    &["zlib", "lz4", "xxhash", "popt", "attr", "libmd", "acl", "libbsd", "minizip", "jq", "rsync", "libonig"];
/// What `--large` adds.
const MORE: &[&str] =
    &["bzip2", "lzo2", "libpng1.6", "libdeflate", "file", "readline", "lua5.4", "squashfs-tools"];

/// The yard of the demo.
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
