//! Checks of names. Package names and pool paths come from builds, which are not trusted.

use crate::{PublishError, Result};

/// Maximum length of a path component, which is also the limit of file systems.
const COMPONENT_BYTES_MAX: usize = 255;

/// Maximum length of a pool path, well below the kernel's `PATH_MAX` with any repository's path in front.
const POOL_PATH_BYTES_MAX: usize = 1024;

/// Checks a component, architecture or codename: it must be a single plain directory name.
pub(crate) fn check_name(what: &'static str, name: &str) -> Result<()> {
    let bad = |reason| Err(PublishError::Input { what, value: shortened(name), reason });
    if name.is_empty() || name.len() > COMPONENT_BYTES_MAX {
        return bad("it is empty or too long");
    }
    if !name.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return bad("it must start with a letter or a digit");
    }
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'+')) {
        return bad("only letters, digits and - . _ + are allowed");
    }
    Ok(())
}

/// Checks the name of a package file, whose version may have `~` and `^`.
pub(crate) fn check_file_name(name: &str) -> Result<()> {
    let bad = |reason| Err(PublishError::Input { what: "file name", value: shortened(name), reason });
    if name.is_empty() || name.len() > COMPONENT_BYTES_MAX {
        return bad("it is empty or too long");
    }
    if !name.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        return bad("it must start with a letter or a digit");
    }
    match name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._+~^".contains(&byte)) {
        true => Ok(()),
        false => bad("only letters, digits and - . _ + ~ ^ are allowed"),
    }
}

/// Checks a path below `pool/`: plain components, none hidden, and no characters that an index or a URL would
/// misinterpret.
pub(crate) fn check_pool_path(path: &str) -> Result<()> {
    let bad = |reason| Err(PublishError::Input { what: "pool path", value: shortened(path), reason });
    if path.len() > POOL_PATH_BYTES_MAX {
        return bad("it is too long");
    }
    let mut parts = path.split('/');
    if parts.next() != Some("pool") {
        return bad("it must start with pool/");
    }
    let mut count = 0;
    for part in parts {
        count += 1;
        if part.is_empty() || part.starts_with('.') || part.len() > COMPONENT_BYTES_MAX {
            return bad("a component is empty, hidden or too long");
        }
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._+~:%=@,".contains(&byte);
        if !part.bytes().all(is_plain) {
            return bad("it has a character that is not allowed in package file names");
        }
    }
    if count == 0 { bad("it names no file") } else { Ok(()) }
}

/// Whether this is a relative path of an index as listed in a `Release` file.
pub(crate) fn is_index_path(path: &str) -> bool {
    path.len() <= POOL_PATH_BYTES_MAX && path.split('/').all(|part| check_name("index", part).is_ok())
}

/// Whether this is a lower-case hexadecimal SHA-256.
pub(crate) fn is_sha256(text: &str) -> bool {
    is_hexadecimal(text, 64)
}

/// Checks a lower-case hexadecimal SHA-512.
pub(crate) fn check_sha512(text: &str) -> Result<()> {
    if is_hexadecimal(text, 128) {
        return Ok(());
    }
    let reason = "it is not 128 lower-case hexadecimal digits";
    Err(PublishError::Input { what: "SHA-512", value: shortened(text), reason })
}

fn is_hexadecimal(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

pub(crate) fn check_sha256(text: &str) -> Result<()> {
    if is_sha256(text) {
        return Ok(());
    }
    Err(PublishError::Input {
        what: "SHA-256",
        value: shortened(text),
        reason: "it is not 64 lower-case hexadecimal digits",
    })
}

/// Shortens an input to what an error message needs to identify it.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pool_paths_stay_in_the_pool() {
        for good in ["pool/main/z/zlib/zlib1g_1%3a1.2-1_amd64.deb", "pool/x", "pool/m/g++_1~rc1+b2.dsc"] {
            check_pool_path(good).unwrap();
        }
        let long = format!("pool/{}", "x".repeat(256));
        for bad in [
            "",
            "pool",
            "pool/",
            "/pool/x",
            "pool//x",
            "pool/../x",
            "pool/./x",
            "pool/.x",
            "dists/x",
            "pool/a b",
            "pool/a\nb",
            "pool/a\0b",
            "pool/é",
            "pools/x",
            "pool/x/",
            &long,
        ] {
            assert!(check_pool_path(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_are_one_component() {
        for good in ["main", "non-free", "amd64", "bookworm", "1.0_a+b"] {
            check_name("component", good).unwrap();
        }
        for bad in ["", ".", "..", ".x", "a/b", "a b", "-a", "a\n", &"x".repeat(256)] {
            assert!(check_name("component", bad).is_err(), "{bad:?}");
        }
    }
}
