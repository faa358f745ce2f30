//! What make reads in other directories without a word of it: the options of what a package is linked with are asked
//! from a make of their own there (`mk/pkg-build-options.mk`, which a `buildlink3.mk` includes).
//!
//! Of that make no list of files comes back. It is made up from what the makefiles of the directory include by names
//! that can be read without make; a name that is made up of variables is not seen. What they include of `mk` counts, but is
//! not read further: the one who asked read these files too, nearly all of them.

use super::fact::Places;
use super::normal;
use std::collections::BTreeSet;

/// The file by which a directory is asked.
const ASKED_BY: &str = "/buildlink3.mk";
/// What such a file says where its directory is asked.
const ASKS: &str = "pkg-build-options.mk";
/// What options follow from; either may come to be.
const BEGINNINGS: [&str; 2] = ["Makefile", "options.mk"];
/// Files that say how to depend on something; no options follow from what they include.
const ABOUT: [&str; 2] = ["buildlink3.mk", "builtin.mk"];
/// More files than the makefiles of any directory include.
const FILES_MAX: usize = 1000;

/// The directory that may be asked where this file is read.
pub(super) fn folder<'a>(places: &Places, path: &'a str) -> Option<&'a str> {
    let folder = places.of_tree(path)?.strip_suffix(ASKED_BY)?;
    (folder.matches('/').count() == 1).then_some(folder)
}

/// The files that a make which is asked in a directory reads there and from there, relative to the tree, whether
/// they are there or not; none if none was asked.
pub(super) fn files(places: &Places, folder: &str) -> Vec<String> {
    let text = |path: &str| {
        let bytes = places.find(path).and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
        // Comments of old trees are not all UTF-8.
        String::from_utf8_lossy(&bytes).into_owned()
    };
    if !text(&format!("{folder}{ASKED_BY}")).contains(ASKS) {
        return Vec::new();
    }
    let mut found = BTreeSet::new();
    let mut open: Vec<String> = BEGINNINGS.iter().map(|name| format!("{folder}/{name}")).collect();
    while let Some(path) = open.pop() {
        if found.len() >= FILES_MAX || path.contains(char::is_whitespace) || !found.insert(path.clone()) {
            continue;
        }
        let (beside, name) = path.rsplit_once('/').unwrap_or(("", &path));
        if path.starts_with("mk/") || ABOUT.contains(&name) {
            continue;
        }
        for included in text(&path).lines().filter_map(included) {
            // make looks beside the file that includes it, and then where it was started.
            for from in [beside, folder] {
                open.extend(places.of_tree(&normal(from, included)).map(str::to_owned));
            }
        }
    }
    found.into_iter().collect()
}

/// The file that a line includes, if its name can be read without make.
fn included(line: &str) -> Option<&str> {
    let line = line.strip_prefix('.')?.trim_start();
    let line = line.trim_start_matches(['-', 's', 'd']).strip_prefix("include")?.trim_start();
    let name = line.strip_prefix('"')?.split_once('"')?.0;
    let name =
        ["${.CURDIR}/", "${.PARSEDIR}/"].iter().find_map(|here| name.strip_prefix(here)).unwrap_or(name);
    (!name.is_empty() && !name.contains('$')).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_includes_by_a_plain_name_is_read() {
        for (line, expected) in [
            (".include \"options.mk\"", Some("options.mk")),
            (".  include \"../../mk/bsd.pkg.mk\" # last", Some("../../mk/bsd.pkg.mk")),
            (".-include \"a\"", Some("a")),
            (".sinclude \"${.CURDIR}/Makefile.common\"", Some("Makefile.common")),
            (".dinclude \"b\"", Some("b")),
            (".include \"${X}/b\"", None),
            (".include <sys.mk>", None),
            ("#.include \"b\"", None),
            ("include b", None),
            (".include \"b", None),
        ] {
            assert_eq!(included(line), expected, "{line}");
        }
    }

    #[test]
    fn files_of_a_directory_that_is_asked_are_found_as_far_as_their_texts_say() {
        let tree = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("x/gtk/buildlink3.mk", "pkgbase := gtk\n.include \"../../mk/pkg-build-options.mk\"\n"),
            ("x/gtk/Makefile", ".include \"../other/Makefile.common\"\n.include \"../../mk/bsd.pkg.mk\"\n"),
            ("x/other/Makefile.common", ".include \"more.mk\"\n.include \"../../x/gtk/buildlink3.mk\"\n"),
            ("x/other/buildlink3.mk", "pkgbase := other\n"),
            ("mk/bsd.pkg.mk", ".include \"deep.mk\"\n"),
        ] {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let places = Places { tree: tree.path().to_owned(), inside: Some("/usr/pkgsrc") };
        let expected = [
            "mk/bsd.pkg.mk",
            "x/gtk/Makefile",
            "x/gtk/buildlink3.mk",
            "x/gtk/more.mk",
            "x/gtk/options.mk",
            "x/other/Makefile.common",
            "x/other/more.mk",
        ];
        assert_eq!(files(&places, "x/gtk"), expected);
        assert_eq!(files(&places, "x/other"), [""; 0]);
        assert_eq!(folder(&places, "/usr/pkgsrc/x/gtk/buildlink3.mk"), Some("x/gtk"));
        assert_eq!(folder(&places, "x/gtk/buildlink3.mk"), Some("x/gtk"));
        for path in [
            "mk/jpeg.buildlink3.mk",
            "x/gtk/builtin.mk",
            "/usr/x/gtk/buildlink3.mk",
            "../x/gtk/buildlink3.mk",
        ] {
            assert_eq!(folder(&places, path), None, "{path}");
        }
    }
}
