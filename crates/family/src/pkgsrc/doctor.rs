//! Checks of a pkgsrc yard beyond those of the base root.

use super::Pkgsrc;
use kilnyard_yard::files::closed_folder;
use kilnyard_yard::finding::Finding;
use kilnyard_yard::remedy::Remedy;
use std::path::Path;

/// Whether the folder is a pkgsrc tree that the users of roots can reach.
pub fn tree(pkgsrc: &Pkgsrc) -> Finding {
    let shown = pkgsrc.shown();
    if pkgsrc.git.is_some() && !pkgsrc.tree.exists() {
        return Finding::new("tree", true, format!("{shown}, which the first scan fetches"));
    }
    if !pkgsrc.tree.join("mk").is_dir() {
        let help =
            Some(Remedy::from("tree in kilnyard.toml: the folder that contains mk and the categories"));
        return Finding {
            help,
            ..Finding::new("tree", false, format!("{shown} is not a pkgsrc tree: it has no mk"))
        };
    }
    match closed_folder(&pkgsrc.tree) {
        Some(closed) => Finding {
            help: Some(Remedy::from(format!("chmod o+x {}; or a tree elsewhere", closed.display()))),
            ..Finding::new(
                "tree",
                false,
                format!("the users of roots cannot reach {shown}: they cannot enter {}", closed.display()),
            )
        },
        None => Finding::new("tree", true, shown),
    }
}

/// Whether the archive of the kit, or the script that makes it, exists.
pub fn kit(pkgsrc: &Pkgsrc) -> Finding {
    let Some(archive) = &pkgsrc.bootstrap_kit else {
        if pkgsrc.git.is_some() && !pkgsrc.tree.exists() {
            return Finding::new("kit", true, "the tree's bootstrap/bootstrap makes it, once");
        }
        let script = pkgsrc.tree.join("bootstrap/bootstrap");
        let help = Remedy::from("bootstrap-kit in kilnyard.toml, with an archive of a bootstrapped prefix");
        return match script.is_file() {
            true => Finding::new("kit", true, format!("{} makes the kit, once", script.display())),
            false => Finding {
                help: Some(help),
                ..Finding::new("kit", false, format!("{} does not exist", script.display()))
            },
        };
    };
    let help = Some(Remedy::from("bootstrap-kit in kilnyard.toml"));
    match fs_err::File::open(archive) {
        Ok(_) => Finding::new("kit", true, archive.display().to_string()),
        Err(error) => Finding { help, ..Finding::new("kit", false, error.to_string()) },
    }
}

/// The folders where Debian packages install programs.
const SYSTEM_PROGRAMS: [&str; 6] =
    ["/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/", "/usr/local/bin/", "/usr/local/sbin/"];

/// Whether the path of make belongs to the kit or the base root. Whether it exists, only the first build finds out.
pub fn make_program(pkgsrc: &Pkgsrc) -> Finding {
    let (make, prefix) = (pkgsrc.make(), &pkgsrc.prefix);
    let is_of_kit = Path::new(&make).starts_with(prefix);
    if is_of_kit || SYSTEM_PROGRAMS.iter().any(|folder| make.starts_with(folder)) {
        return Finding::new("make", true, make);
    }
    Finding {
        help: Some(Remedy::from(format!(
            "make in kilnyard.toml: {prefix}/bin/bmake, or prefix, set to the prefix of the kit"
        ))),
        ..Finding::new(
            "make",
            false,
            format!("{make} is neither in the prefix {prefix} nor a program of the base root"),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn make_is_in_the_prefix_or_the_base_root() {
        let found = |settings: &str| {
            let table =
                format!("tree = \"/t\"\n{settings}\n[root]\nrelease = \"r\"\nmirror = \"http://m\"\n");
            make_program(&toml::from_str(&table).unwrap())
        };
        for (settings, make) in [
            ("", "/usr/pkg/bin/bmake"),
            ("prefix = \"/opt/pkg\"", "/opt/pkg/bin/bmake"),
            ("prefix = \"/opt/pkg\"\nmake = \"/opt/pkg/sbin/make\"", "/opt/pkg/sbin/make"),
            ("make = \"/usr/bin/bmake\"", "/usr/bin/bmake"),
        ] {
            assert_eq!(found(settings), Finding::new("make", true, make));
        }
        for (settings, make, prefix) in [
            ("make = \"/opt/pkg/bin/bmake\"", "/opt/pkg/bin/bmake", "/usr/pkg"),
            ("prefix = \"/opt/pkg\"\nmake = \"/usr/pkg/bin/bmake\"", "/usr/pkg/bin/bmake", "/opt/pkg"),
            // A folder whose name only begins like the prefix is not the prefix.
            ("make = \"/usr/pkgsrc/bmake\"", "/usr/pkgsrc/bmake", "/usr/pkg"),
            ("make = \"/usr/binary/bmake\"", "/usr/binary/bmake", "/usr/pkg"),
        ] {
            let found = found(settings);
            assert!(!found.is_ok, "{settings}");
            assert_eq!(
                found.text,
                format!("{make} is neither in the prefix {prefix} nor a program of the base root")
            );
            assert!(found.help.unwrap().to_string().contains(&format!("{prefix}/bin/bmake, or prefix")));
        }
    }
}
