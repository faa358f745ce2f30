//! Architecture names and wildcards (Policy 11.1, dpkg-architecture(1)).

/// Whether an architecture restriction such as `amd64`, `any`, `linux-any` or `any-arm64` covers an architecture.
/// Only the names of Debian's Linux ports omit the kernel; others include theirs (`hurd-i386`, `kfreebsd-amd64`),
/// and `musl-linux-amd64` also its C library.
pub fn matches(restriction: &str, architecture: &str) -> bool {
    if restriction == architecture || restriction == "any" {
        return true;
    }
    if !restriction.contains("any") {
        return false;
    }
    let wanted = tuple(restriction, "any");
    let have = tuple(architecture, "base");
    wanted.iter().zip(have).all(|(wanted, have)| *wanted == "any" || *wanted == have)
}

/// C library, kernel, processor. Bare names stand for GNU/Linux.
fn tuple<'a>(name: &'a str, library: &'a str) -> [&'a str; 3] {
    let parts: Vec<&str> = name.split('-').collect();
    match parts[..] {
        [cpu] => [library, "linux", cpu],
        [kernel, cpu] => [library, kernel, cpu],
        [library, kernel, cpu] => [if library == "gnu" { "base" } else { library }, kernel, cpu],
        _ => ["", "", name],
    }
}

/// Whether a source with this `Architecture` field produces anything on this architecture.
pub fn source_builds_on(field: &str, architecture: &str) -> bool {
    field.split_whitespace().any(|entry| entry == "all" || matches(entry, architecture))
}

/// Whether a source with this `Architecture` field produces architecture-dependent outputs here.
pub fn source_has_dependent_outputs(field: &str, architecture: &str) -> bool {
    field.split_whitespace().any(|entry| entry != "all" && matches(entry, architecture))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards() {
        for yes in ["any", "amd64", "linux-any", "any-amd64", "gnu-linux-any", "gnu-any-any", "any-any-amd64"]
        {
            assert!(matches(yes, "amd64"), "{yes}");
        }
        for no in ["i386", "any-i386", "hurd-any", "kfreebsd-amd64", "musl-linux-any", "all", ""] {
            assert!(!matches(no, "amd64"), "{no}");
        }
        assert!(matches("hurd-any", "hurd-i386"));
        assert!(!matches("any-i386", "amd64"));
    }

    #[test]
    fn sources() {
        assert!(source_builds_on("any all", "amd64"));
        assert!(source_builds_on("all", "amd64"));
        assert!(!source_has_dependent_outputs("all", "amd64"));
        assert!(!source_builds_on("i386 hurd-any", "amd64"));
    }
}
