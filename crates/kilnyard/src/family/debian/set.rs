//! The set of a Debian yard: sources of its index, and sources of this machine.

use super::publish::indexes_of_binaries;
use super::scan::Index;
use crate::config::Debian;
use crate::error::{Context, Error, Kind, Result};
use crate::yard::Yard;
use kilnyard_ecosystem::debian::deb822::Stanza;
use kilnyard_ecosystem::debian::relation;
use kilnyard_ecosystem::debian::source::Sources;
use kilnyard_ecosystem::debian::universe::Universe;
use kilnyard_ecosystem::debian::{Base, Published, Workshop};
use kilnyard_mirror::DistfileStore;
use std::path::Path;

/// Reads the index and resolves the set.
pub fn resolve(yard: &Yard, debian: &Debian, base: Base, distfiles: &DistfileStore) -> Result<Workshop> {
    let settings = debian.settings();
    let mut universe = Universe::new(settings.context());
    let mut sources = Sources::default();
    Index::open(yard)?.read(yard, &mut universe, &mut sources)?;
    let names = match yard.config.package_names(&yard.folder)? {
        None => {
            let all = sources.all().into_iter();
            let built = all.filter(|source| source.builds_on(&settings.architecture, settings.parts));
            built.map(|source| source.name().to_owned()).collect()
        }
        Some(names) => {
            let names = names.into_iter().map(|name| match name.ends_with(".dsc") {
                true => add_local(&mut sources, distfiles, &yard.path(&name)),
                false => Ok(name),
            });
            names.collect::<Result<Vec<_>>>()?
        }
    };
    let published = published(yard, debian)?;
    Ok(Workshop::new(settings, universe, sources, &names, base, published))
}

/// What the yard's repository offers now; nothing before the first publication. An index that cannot be read is an
/// error: without it a lower version could be published, or a name of another source.
fn published(yard: &Yard, debian: &Debian) -> Result<Published> {
    let mut published = Published::default();
    for index in indexes_of_binaries(yard, debian) {
        match fs_err::read_to_string(&index) {
            Ok(text) => published.add(&text, &debian.version_suffix),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).context(Kind::Machine, "read what the repository offers");
            }
        }
    }
    Ok(published)
}

/// See [`crate::family::inputs`].
pub fn inputs(yard: &Yard, base: Option<&Base>, names: Option<&[String]>) -> Result<String> {
    let mut text = format!("{}\n{}\n", Index::open(yard)?.identity, base.map_or("", |base| &base.digest));
    for name in names.into_iter().flatten().filter(|name| name.ends_with(".dsc")) {
        text.push_str(&fs_err::read_to_string(yard.path(name)).unwrap_or_default());
    }
    Ok(text)
}

/// Adds a source that lies on this machine, its `.dsc` and the files beside it; its name.
fn add_local(sources: &mut Sources, distfiles: &DistfileStore, path: &Path) -> Result<String> {
    let failed = format!("read {}", path.display());
    let bytes = fs_err::read(path).context(Kind::Usage, &failed)?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line =
            error.as_bytes()[..error.utf8_error().valid_up_to()].iter().filter(|b| **b == b'\n').count() + 1;
        Error::usage(format!("{} is not UTF-8 in line {line}", path.display()))
    })?;
    // A signed .dsc has its stanza between the first empty line and the signature.
    let body = match text.strip_prefix("-----BEGIN PGP SIGNED MESSAGE-----") {
        Some(rest) => rest.split_once("\n\n").map_or(rest, |(_, body)| body),
        None => &text,
    };
    let body = body.split("-----BEGIN PGP SIGNATURE-----").next().unwrap_or(body).trim_end();
    let stanza = Stanza::new(body);
    let missing = |field: &str| Error::usage(format!("{} has no usable field {field}", path.display()));
    let name = stanza.get("Source").ok_or_else(|| missing("Source"))?;
    if !relation::is_name(name) {
        return Err(Error::usage(format!("{} is of `{name}`, which cannot be a source", path.display())));
    }
    let listed = stanza.get("Checksums-Sha256").ok_or_else(|| missing("Checksums-Sha256"))?;
    let folder = path.parent().unwrap_or(Path::new("."));
    for line in listed.lines().filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [hash, _, file] = words[..] else { return Err(missing("Checksums-Sha256")) };
        if file.contains('/') {
            return Err(Error::usage(format!(
                "{} lists `{file}`, which is in another folder",
                path.display()
            )));
        }
        let (sha256, _) =
            distfiles.insert(&folder.join(file)).context(Kind::Usage, format!("read {file}"))?;
        if sha256.as_str() != hash {
            return Err(Error::usage(format!(
                "{file} is not what {} says: its SHA-256 is {sha256}",
                path.display()
            )));
        }
    }
    let (sha256, size) = distfiles.insert(path).context(Kind::Usage, &failed)?;
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    let mut source = String::new();
    for (field, value) in stanza.fields() {
        match field {
            "Source" => source.push_str(&format!("Package: {value}\n")),
            "Checksums-Sha256" => source
                .push_str(&format!("Checksums-Sha256:\n {sha256} {size} {file}\n {}\n", value.trim_start())),
            _ => source.push_str(&format!("{field}: {value}\n")),
        }
    }
    sources.put(source.into());
    Ok(name.to_owned())
}
