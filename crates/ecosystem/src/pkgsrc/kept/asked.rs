//! The files that make reads in other directories without reporting them: for the options of linked packages, it
//! runs a separate make in their directories (`mk/pkg-build-options.mk`, which a `buildlink3.mk` includes).
//!
//! That make returns no list of files. The list is reconstructed from the makefiles of the directory: every
//! included file whose name can be determined without make. A name composed of variables is missed. Included files
//! of `mk` count but are not followed: the package that asks also read nearly all of them.

use super::fact::Places;
use super::normal;
use std::collections::BTreeSet;

/// The file through which a directory is asked.
const ASKED_BY: &str = "/buildlink3.mk";
/// The text in such a file that causes the query.
const ASKS: &str = "pkg-build-options.mk";
/// The files that determine options; either may be created later.
const BEGINNINGS: [&str; 2] = ["Makefile", "options.mk"];
/// Files that describe how to depend on a package; the files that they include do not affect options.
const ABOUT: [&str; 2] = ["buildlink3.mk", "builtin.mk"];
/// More files than the makefiles of any directory include.
const FILES_MAX: usize = 1000;

/// The directory that make may ask when it reads this file.
pub(super) fn folder<'a>(places: &Places, path: &'a str) -> Option<&'a str> {
    let folder = places.of_tree(path)?.strip_suffix(ASKED_BY)?;
    (folder.matches('/').count() == 1).then_some(folder)
}

/// The files that make reads when a directory is asked, relative to the tree, including missing ones; empty if the
/// directory is not asked.
pub(super) fn files(places: &Places, folder: &str) -> Vec<String> {
    let text = |path: &str| {
        let bytes = places.find(path).and_then(|path| std::fs::read(path).ok()).unwrap_or_default();
        // Comments in old trees are not all UTF-8.
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
            // make searches the folder of the including file, and then the folder in which it was started.
            for from in [beside, folder] {
                open.extend(places.of_tree(&normal(from, included)).map(str::to_owned));
            }
        }
    }
    found.into_iter().collect()
}

/// The file that a line includes, if its name can be determined without make.
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
    fn includes_with_a_plain_name_are_found() {
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
    fn files_of_an_asked_directory_are_found_through_plain_includes() {
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
