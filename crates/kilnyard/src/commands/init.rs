//! `kilnyard init`: makes a yard.

mod other;

use super::print;
use crate::cli::{Init, InitPkgsrc};
use crate::config;
use crate::environment_of_process;
use crate::error::{Context, Error, Kind, Result};
use crate::files::write_whole_by;
use crate::yard::{CONFIG, Yard};
use crate::{mirror, signals};
use kilnyard_ecosystem::pkgsrc::moving::{Key, Moved, Wanted};
use kilnyard_family::FAMILIES;
use kilnyard_family::debian;
use kilnyard_family::pkgsrc::{self, asking::check_categories};
use kilnyard_mirror::without_password;
use kilnyard_sign::YardKey;
use other::Other;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::ExitCode;

/// Where a pkgsrc tree is if nobody says otherwise.
const TREE: &str = "/usr/pkgsrc";
/// The mirror of last resort.
const DEBIAN_MIRROR: &str = "http://deb.debian.org/debian";

pub fn run(folder: &Path, options: &Init) -> Result<ExitCode> {
    signals::install();
    if folder.join(CONFIG).exists() {
        return Err(Error::usage(format!("there is a yard in {} already", folder.display()))
            .hint(format!("an editor on {}", folder.join(CONFIG).display())));
    }
    match options {
        Init::Debian { release, mirror, packages } => {
            let mirror = mirror.clone().unwrap_or_else(|| mirror_for(release));
            check_packages(packages)?;
            let packages: Vec<String> = packages.iter().map(|name| absolute(name)).collect();
            let text = debian::template(release, &mirror, &packages);
            check(folder, &text)?;
            check_release(release, &mirror)?;
            write(folder, &text)?;
            tell!("made the yard {} for {release} from {}", folder.display(), without_password(&mirror));
        }
        Init::Pkgsrc(options) => make_pkgsrc(folder, options)?,
    }
    tell!("next: kilnyard --yard {} build", folder.display());
    print("")
}

/// An error for names that can be seen to lead nowhere without an index.
fn check_packages(packages: &[String]) -> Result<()> {
    if packages.len() > 1 && packages.iter().any(|name| name == config::ALL) {
        return Err(Error::usage(
            "`all` is every source of the release, and leaves nothing for other names to add",
        )
        .hint("`all` alone, or names without it"));
    }
    match packages.iter().find(|name| name.ends_with(".dsc") && !Path::new(name).is_file()) {
        Some(missing) => Err(Error::usage(format!("{missing} is not there"))
            .hint("the path of a .dsc file, or the name of a source package of the release")),
        None => Ok(()),
    }
}

/// Asks the mirror whether it has the release. Without a network a yard can be made all the same.
fn check_release(release: &str, mirror: &str) -> Result<()> {
    let shown = without_password(mirror);
    match debian::mirror::find_release(mirror, release, &environment_of_process(), signals::cancel()) {
        Ok(()) => Ok(()),
        Err(error) if mirror::is_absent(&error) => {
            Err(Error::usage(format!("the mirror {shown} has no release {release}"))
                .hint("--release with a codename, such as bookworm; --mirror with another address"))
        }
        Err(error) if error.is_cancelled() => {
            Err(Error::new(Kind::Interrupted, "interrupted; nothing was made"))
        }
        Err(error) => {
            tell!("note: whether {shown} has {release} is not known: failed to {error}");
            Ok(())
        }
    }
}

/// Makes a yard of pkgsrc, from another builder's configuration if one is named.
fn make_pkgsrc(folder: &Path, options: &InitPkgsrc) -> Result<()> {
    let (other, moved) = Other::named(options)?.unzip();
    let mut moved = moved.unwrap_or(Moved { wanted: Some(Wanted::All), ..Moved::default() });
    overrule(&mut moved, options)?;
    let tree = moved.values.iter().find(|(key, _)| *key == Key::Tree);
    let tree = tree.map_or(TREE.to_owned(), |(_, tree)| tree.clone());
    if !Path::new(&tree).join("mk").is_dir() {
        return Err(Error::usage(format!("{tree} is no pkgsrc tree: it has no mk"))
            .hint("--tree with the folder that mk and the categories are in"));
    }
    check_categories(Path::new(&tree), &options.locations)?;
    let report = other.as_ref().map(|other| other.report(&moved)).unwrap_or_default();
    let release = options.release.clone();
    let mirror = options.mirror.clone().unwrap_or_else(|| mirror_for(&release));
    let text = pkgsrc::template(&pkgsrc::Template {
        wanted: moved.wanted.clone(),
        values: moved.values,
        mirror: mirror.clone(),
        release: release.clone(),
        remarks: report.clone(),
    });
    check(folder, &text).map_err(|error| match &other {
        Some(other) => error.hint(format!("its option beside {}, which wins over the file", other.option)),
        None => error,
    })?;
    check_release(&release, &mirror)?;
    write(folder, &text)?;
    tell!("made the yard {} for the tree {tree}", folder.display());
    report.iter().for_each(|line| tell!("{}", pkgsrc::one_line(line)));
    if moved.wanted.is_none() {
        tell!("it could not be told which packages: name them in {}", folder.join(CONFIG).display());
    }
    other.map_or(Ok(()), |other| other.import_history(folder))
}

/// Lets what the command line says win.
fn overrule(moved: &mut Moved, options: &InitPkgsrc) -> Result<()> {
    let paths = [
        (Key::Tree, "--tree", &options.tree),
        (Key::BootstrapKit, "--bootstrap-kit", &options.bootstrap_kit),
        (Key::MkConf, "--mk-conf", &options.mk_conf),
        (Key::Distfiles, "--distfiles", &options.distfiles),
    ];
    let texts = [(Key::Prefix, "--prefix", &options.prefix), (Key::Make, "--make", &options.make)];
    let mut given = Vec::new();
    for (key, option, path) in paths {
        if let Some(path) = path {
            given.push((key, option, path_text(path)?));
        }
    }
    for (key, option, text) in texts {
        given.extend(text.clone().map(|text| (key, option, text)));
    }
    for (key, option, value) in given {
        moved.overrule(key, &format!("{option} says it"));
        moved.values.push((key, value));
    }
    if !options.locations.is_empty() {
        for key in [Key::Packages, Key::PackagesFile] {
            moved.overrule(key, "the command line says it");
        }
        moved.wanted = Some(Wanted::Some(options.locations.clone()));
    }
    if !moved.values.iter().any(|(key, _)| *key == Key::Tree) {
        moved.values.push((Key::Tree, TREE.to_owned()));
    }
    Ok(())
}

/// A path as it is for somebody who stands elsewhere.
fn path_text(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path).context(Kind::Usage, format!("find {}", path.display()))?;
    let text = absolute.to_str().map(str::to_owned);
    text.ok_or_else(|| Error::usage(format!("{} is not UTF-8", path.display())))
}

/// The path of a `.dsc` as it is for somebody who stands elsewhere; a name as it is.
fn absolute(name: &str) -> String {
    let path = name.ends_with(".dsc").then(|| std::path::absolute(name).ok()).flatten();
    path.and_then(|path| Some(path.to_str()?.to_owned())).unwrap_or_else(|| name.to_owned())
}

/// Makes a yard with its configuration and its key.
pub fn make(folder: &Path, release: &str, mirror: &str, packages: &[String]) -> Result<()> {
    let text = debian::template(release, mirror, packages);
    check(folder, &text)?;
    write(folder, &text)
}

/// An error for a configuration that a yard in this folder cannot have.
fn check(folder: &Path, text: &str) -> Result<()> {
    let config = config::Config::parse(text, Path::new(CONFIG), FAMILIES)?;
    config.package_names(folder).map(drop)
}

/// Makes a yard of this configuration, which was checked.
fn write(folder: &Path, text: &str) -> Result<()> {
    fs_err::create_dir_all(folder).context(Kind::Machine, format!("make {}", folder.display()))?;
    Yard::make_folders(folder)?;
    make_key(folder)?;
    write_whole_by(&folder.join(CONFIG), |out| {
        // An address may have a password, which is its owner's alone.
        if without_password(text) != text {
            out.get_ref().set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        out.write_all(text.as_bytes())
    })
}

/// Makes the key that signs the yard's repository, if there is none.
pub fn make_key(folder: &Path) -> Result<()> {
    let path = folder.join("state/key.asc");
    if path.exists() {
        return Ok(());
    }
    let key =
        YardKey::generate("Kilnyard repository <kilnyard@localhost>").or_internal("make the yard's key")?;
    key.write(&path).context(Kind::Machine, "keep the yard's key")
}

/// The mirror that a yard of this release begins with: this machine's own, else Debian's.
pub fn mirror_for(release: &str) -> String {
    mirror_of_this_machine(release).unwrap_or_else(|| DEBIAN_MIRROR.to_owned())
}

/// The archive that this machine's apt has this release from: one-line and deb822 sources
/// (sources.list(5)).
fn mirror_of_this_machine(release: &str) -> Option<String> {
    let mut files = vec![std::path::PathBuf::from("/etc/apt/sources.list")];
    let parts = fs_err::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    files.extend(parts.map(|entry| entry.path()));
    files.sort();
    files
        .iter()
        .filter_map(|path| fs_err::read_to_string(path).ok())
        .find_map(|text| mirror_in(&text, release))
}

fn mirror_in(text: &str, release: &str) -> Option<String> {
    let is_mirror = |url: &str| url.starts_with("http://") || url.starts_with("https://");
    let one_line = text.lines().find_map(|line| {
        let line = line.split('#').next()?;
        let line = line.split_once(']').map_or(line.trim().strip_prefix("deb ")?, |(_, rest)| rest);
        let mut words = line.split_whitespace();
        let (url, suite) = (words.next()?, words.next()?);
        (suite == release && is_mirror(url)).then(|| url.trim_end_matches('/').to_owned())
    });
    one_line.or_else(|| {
        kilnyard_ecosystem::debian::deb822::stanzas(text).find_map(|stanza| {
            let has_release = stanza.get("Suites")?.split_whitespace().any(|suite| suite == release);
            let is_binary = stanza.get("Types")?.split_whitespace().any(|kind| kind == "deb");
            let url = stanza.get("URIs")?.split_whitespace().find(|url| is_mirror(url))?;
            let is_enabled =
                !stanza.get("Enabled").is_some_and(|word| word.trim().eq_ignore_ascii_case("no"));
            (has_release && is_binary && is_enabled).then(|| url.trim_end_matches('/').to_owned())
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_of_apt_is_found_in_both_formats() {
        let line =
            "# deb http://old x main\ndeb [arch=amd64 signed-by=/k] http://mirror/debian/ bookworm main\n";
        assert_eq!(mirror_in(line, "bookworm").as_deref(), Some("http://mirror/debian"));
        assert_eq!(mirror_in(line, "trixie"), None);
        let deb822 = "Types: deb\n# comment\nURIs: http://m/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\n\
                      Types: deb\nURIs: http://m/debian-security\nSuites: bookworm-security\n";
        assert_eq!(mirror_in(deb822, "bookworm").as_deref(), Some("http://m/debian"));
        assert_eq!(mirror_in(&format!("Enabled: no\n{deb822}"), "bookworm"), None);
    }
}
