//! Debian versions as Python's packaging tools write them.

/// Converts a version to the form of PEP 440 (`1.5+deb12u1+bk2` becomes `1.5+deb12u1.bk2`, `2022.09~rc1+bk2`
/// becomes `2022.9+rc1.bk2`).
///
/// PEP 440 allows one `+`; the parts after it are joined by dots. Native packages convert their version this way
/// before they give it to setuptools, and setuptools drops leading zeros.
pub(super) fn of_python(version: &str) -> String {
    let is_public = |character: char| character.is_ascii_alphanumeric() || character == '.';
    let end = version.find(|character| !is_public(character)).unwrap_or(version.len());
    let (public, local) = version.split_at(end);
    let joined = |text: &str| -> String {
        let parts = text.split(|character: char| !character.is_ascii_alphanumeric());
        parts.filter(|part| !part.is_empty()).map(without_zeros).collect::<Vec<_>>().join(".")
    };
    let local = joined(local);
    let plus = if local.is_empty() { "" } else { "+" };
    format!("{}{plus}{local}", joined(public)).to_ascii_lowercase()
}

fn without_zeros(part: &str) -> &str {
    if !part.bytes().all(|byte| byte.is_ascii_digit()) {
        return part;
    }
    match part.trim_start_matches('0') {
        "" => "0",
        kept => kept,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_has_one_plus_in_python() {
        assert_eq!(of_python("1.0+bk2"), "1.0+bk2");
        assert_eq!(of_python("1.5+deb12u1+bk12"), "1.5+deb12u1.bk12");
        assert_eq!(of_python("2022.09~rc1-3+BK2"), "2022.9+rc1.3.bk2");
        assert_eq!(of_python("0.00.1"), "0.0.1");
        assert_eq!(of_python("~~"), "");
    }
}
