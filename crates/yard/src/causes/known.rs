//! The cause in a message of a failed build, without what differs from package to package: paths, lines, numbers.
//!
//! After a change of a compiler or a library, hundreds of packages fail in a few ways. The texts are those of the
//! tools: GCC and Clang, GNU ld, Python, autoconf, pkg-config and shells; a family adds those of its packaging tools.

/// The longest cause; the rest of a message is cut off.
const CHARACTERS_MAX: usize = 160;

/// A cause that a tool reports in its own words.
#[derive(Clone, Copy, Debug)]
pub struct KnownCause {
    /// Texts in the message, any of which shows the cause.
    pub texts: &'static [&'static str],
    /// How the cause is named in summaries and reports.
    pub title: &'static str,
}

/// The cause in the first line of a message. `known` are those of the family's tools.
pub fn cause(message: &str, known: &[KnownCause]) -> String {
    let line = message.lines().next().unwrap_or("").trim();
    if let Some(cause) = well_known(line) {
        return shortened(&cause);
    }
    if let Some(known) = known.iter().find(|known| known.texts.iter().any(|text| line.contains(text))) {
        return known.title.to_owned();
    }
    let essence = after_place(line);
    let words: Vec<String> = essence.split_whitespace().map(neutral).collect();
    shortened(&words.join(" "))
}

/// Causes that many tools report in their own words.
fn well_known(line: &str) -> Option<String> {
    let between = |begin: &str, end: &str| {
        let rest = line.split_once(begin)?.1;
        Some(rest.split_once(end).map_or(rest, |(inner, _)| inner).trim())
    };
    if let Some(header) = between("fatal error: ", ": No such file") {
        return Some(format!("a header is missing: {header}"));
    }
    if let Some(header) = between("fatal error: '", "' file not found") {
        return Some(format!("a header is missing: {header}"));
    }
    if let Some(module) = between("No module named ", " ") {
        return Some(format!("a Python module is missing: {}", module.trim_matches(['\'', '"', ';'])));
    }
    if let Some(library) = between("cannot find -l", ":") {
        return Some(format!("a library is missing: {library}"));
    }
    if let Some(option) = between("[-Werror=", "]") {
        return Some(format!("a warning is an error: -Werror={option}"));
    }
    if line.contains("undefined reference to ") {
        return Some("undefined references when linking".to_owned());
    }
    if let Some(module) =
        between("Package '", "', required by").or_else(|| between("No package '", "' found"))
    {
        return Some(format!("pkg-config does not find {module}"));
    }
    if let Some(command) =
        line.strip_suffix(": command not found").or_else(|| line.strip_suffix(": not found"))
    {
        let command = command.rsplit(": ").next().unwrap_or(command);
        return Some(format!("a command is missing: {command}"));
    }
    if line.starts_with("FAIL: ") || line.contains(" tests failed") {
        return Some("tests fail".to_owned());
    }
    None
}

/// A line without a leading location, such as `src/main.c:12:3: `.
fn after_place(line: &str) -> &str {
    let is_place = |part: &str| {
        let place = part.split(':').next().unwrap_or("");
        !place.contains(' ') && (place.contains('/') || place.contains('.'))
    };
    match line.split_once(": ") {
        Some((place, rest)) if is_place(place) => rest,
        _ => line,
    }
}

/// A word without its specifics: numbers, and the folders of a path.
fn neutral(word: &str) -> String {
    let file = match word.rsplit_once('/') {
        Some((folder, file)) if !file.is_empty() && !folder.ends_with(':') => file,
        _ => word,
    };
    let mut neutral = String::new();
    for character in file.chars() {
        match character.is_ascii_digit() {
            true if neutral.ends_with('N') => {}
            true => neutral.push('N'),
            false => neutral.push(character),
        }
    }
    neutral
}

fn shortened(text: &str) -> String {
    text.chars().take(CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_cause_in_different_packages_is_one() {
        for (one, other, expected) in [
            (
                "src/a.c:1:10: fatal error: zlib.h: No such file or directory",
                "../lib/other.cpp:77:2: fatal error: zlib.h: No such file or directory",
                "a header is missing: zlib.h",
            ),
            (
                "x.c:3:1: error: implicit declaration of function 'f' [-Werror=implicit-function-declaration]",
                "y/z.c:9:9: error: implicit declaration of function 'g' [-Werror=implicit-function-declaration]",
                "a warning is an error: -Werror=implicit-function-declaration",
            ),
            (
                "/usr/bin/ld: main.o: undefined reference to `a'",
                "main.c:(.text+0x1): undefined reference to `b'",
                "undefined references when linking",
            ),
            (
                "ModuleNotFoundError: No module named 'imp'",
                "E: ModuleNotFoundError: No module named 'imp'",
                "a Python module is missing: imp",
            ),
            (
                "/bin/sh: 1: gtkdocize: not found",
                "./autogen.sh: line 3: gtkdocize: command not found",
                "a command is missing: gtkdocize",
            ),
            (
                "it did not finish within 600 s",
                "it did not finish within 7200 s",
                "it did not finish within N s",
            ),
            (
                "a.c:1:2: error: expected ';' before '}' token",
                "deep/b.c:300:44: error: expected ';' before '}' token",
                "error: expected ';' before '}' token",
            ),
        ] {
            assert_eq!((cause(one, &[]).as_str(), cause(other, &[]).as_str()), (expected, expected));
        }
    }

    #[test]
    fn different_causes_stay_apart() {
        let header =
            |name: &str| cause(&format!("a.c:1:1: fatal error: {name}: No such file or directory"), &[]);
        assert_ne!(header("a.h"), header("b.h"));
        assert_ne!(cause("a.c:1:2: error: one", &[]), cause("a.c:1:2: error: two", &[]));
        assert_eq!(cause("", &[]), "");
        assert_eq!(cause(&"é".repeat(1000), &[]).chars().count(), CHARACTERS_MAX);
    }

    #[test]
    fn a_family_names_the_causes_of_its_tools() {
        let known = [KnownCause { texts: &["pack: ", "wrap: "], title: "the files differ" }];
        assert_eq!(cause("pack: 3 files of /a are missing", &known), "the files differ");
        assert_eq!(cause("wrap: error", &known), "the files differ");
        assert_eq!(cause("a.c:1:1: error: pack", &known), "error: pack");
    }
}
