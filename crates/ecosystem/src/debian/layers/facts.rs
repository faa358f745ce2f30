//! The facts about a package that decide how it becomes a layer.

use super::preinst;
use crate::Part;
use crate::archive::Kind;
use crate::debian::deb_file::inventory::{self, Inventory};
use crate::debian::deb822::Stanza;
use crate::debian::relation;
use crate::layering::merged_usr;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::path::Path;

/// Version of the text format: texts of other versions are discarded and read from the package again.
const FORMAT: u32 = 1;

/// See the module documentation.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Facts {
    format: u32,
    /// The reason why the package cannot be a layer, if there is one.
    pub(super) reason: Option<String>,
    /// Why its `preinst` script may have an effect, until a trial shows that it has none.
    pub(super) untried: Option<String>,
    pub(super) control: String,
    pub(super) entries: Vec<LayerPath>,
    /// Configuration files, without the leading slash.
    pub(super) conffiles: Vec<String>,
    /// Content of the control member `triggers`.
    pub(super) triggers: String,
}

/// A path in a package.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LayerPath {
    /// Without leading or trailing slash; empty for the root itself.
    pub(super) path: String,
    /// Permissions, user and group, if it is a folder.
    pub(super) folder: Option<(u32, u32, u32)>,
    #[serde(default)]
    pub(super) is_link: bool,
}

impl Facts {
    /// Reads the facts from a package file.
    pub(super) fn of(file: &Path) -> Result<Facts, String> {
        let inventory = inventory::read(file).map_err(|error| {
            let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}"));
            format!("failed to {error}{}", cause.unwrap_or_default())
        })?;
        Ok(match Facts::from(&inventory) {
            Ok(facts) => facts,
            Err(reason) => Facts {
                format: FORMAT,
                reason: Some(reason),
                untried: None,
                control: inventory.control,
                entries: Vec::new(),
                conffiles: Vec::new(),
                triggers: String::new(),
            },
        })
    }

    /// Fails with the reason if the package cannot be a layer.
    fn from(inventory: &Inventory) -> Result<Facts, String> {
        let mut conffiles = Vec::new();
        let mut triggers = String::new();
        let mut untried = None;
        for (name, content) in &inventory.members {
            let text = || {
                std::str::from_utf8(content).map_err(|_| "it has a control file that is not UTF-8".to_owned())
            };
            match name.as_slice() {
                b"preinst" => untried = preinst::check(text()?).err(),
                b"conffiles" => conffiles = conffiles_of(text()?)?,
                b"triggers" => triggers = text()?.to_owned(),
                _ => {}
            }
        }
        let entries = inventory.entries.iter().map(entry).collect::<Result<Vec<_>, _>>()?;
        stays_in_its_folder(inventory, &entries)?;
        let files: HashSet<&str> =
            entries.iter().filter(|entry| entry.folder.is_none()).map(|entry| entry.path.as_str()).collect();
        for conffile in &conffiles {
            if !files.contains(conffile.as_str()) {
                return Err(format!("it does not contain its configuration file /{conffile}"));
            }
        }
        let control = inventory.control.clone();
        let stanza = Stanza::new(&control);
        let field = |name: &str| stanza.get(name).unwrap_or("");
        let is_word = |text: &str| text.chars().all(|c| c.is_ascii_graphic()) && !text.is_empty();
        if !relation::is_name(field("Package"))
            || !is_architecture(field("Architecture"))
            || !is_word(field("Version"))
        {
            return Err("its name, version or architecture is missing or invalid".to_owned());
        }
        if let Some(field) =
            ["Status", "Conffiles", "Config-Version"].into_iter().find(|field| stanza.get(field).is_some())
        {
            return Err(format!("it has the field {field}, which is reserved for dpkg"));
        }
        if stanza.fault().is_some() || control.trim().contains("\n\n") {
            return Err("its control file is not a single stanza".to_owned());
        }
        Ok(Facts { format: FORMAT, reason: None, untried, control, entries, conffiles, triggers })
    }

    /// The facts after a trial showed that the `preinst` script has no effect.
    pub(super) fn harmless(self) -> Facts {
        Facts { untried: None, ..self }
    }

    /// Serializes the facts to be kept.
    pub(super) fn to_text(&self) -> serde_json::Result<String> {
        serde_json::to_string(self)
    }

    /// The facts in a part's description, after checking that they belong to its package.
    pub(super) fn of_part(part: &Part) -> Result<Facts, String> {
        let facts = Facts::parse(part.description)?;
        let (name, version) = (facts.field("Package"), facts.field("Version"));
        match name == part.package.name && version == part.package.version {
            true => Ok(facts),
            false => Err(format!("the package identifies itself as {name} {version}")),
        }
    }

    /// Parses the output of [`Facts::to_text`].
    pub(super) fn parse(text: &str) -> Result<Facts, String> {
        let facts: Facts = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if facts.format == FORMAT {
            Ok(facts)
        } else {
            Err("its description has the format of another version".to_owned())
        }
    }

    /// The current reason why it cannot be a layer.
    pub(super) fn obstacle(&self) -> Option<&String> {
        self.reason.as_ref().or(self.untried.as_ref())
    }

    /// A field of the control file; empty if it is absent.
    pub(super) fn field(&self, name: &str) -> &str {
        Stanza::new(&self.control).get(name).unwrap_or("")
    }

    /// The base name of the package's files in dpkg's database; it includes the architecture if the package can be
    /// installed for several architectures.
    pub(super) fn info_name(&self) -> String {
        match self.field("Multi-Arch") {
            "same" => format!("{}:{}", self.field("Package"), self.field("Architecture")),
            _ => self.field("Package").to_owned(),
        }
    }

    /// The list of its files in dpkg's format.
    pub(super) fn list(&self) -> String {
        let line = |entry: &LayerPath| match entry.path.as_str() {
            "" => "/.\n".to_owned(),
            path => format!("/{path}\n"),
        };
        self.entries.iter().map(line).collect()
    }

    /// Configuration files at their paths in the layer.
    pub(super) fn conffiles_as_new(&self) -> String {
        self.conffiles.iter().map(|path| format!("{}\n", merged_usr(path))).collect()
    }

    /// Its stanza in dpkg's status file after unpacking.
    pub(super) fn status(&self) -> String {
        let mut text = format!("{}\nStatus: install ok unpacked\n", self.control.trim());
        if !self.conffiles.is_empty() {
            text.push_str("Conffiles:\n");
            text.extend(self.conffiles.iter().map(|path| format!(" /{path} newconffile\n")));
        }
        text.push('\n');
        text
    }
}

fn entry(entry: &crate::archive::Entry) -> Result<LayerPath, String> {
    let path = std::str::from_utf8(&entry.path).ok().filter(|path| !path.contains('\n'));
    let path = path.ok_or("a file name is not UTF-8 or has a line break")?;
    if path.split('/').any(|part| part == "..") || path.starts_with("var/lib/dpkg/") {
        return Err(format!("it contains the file {path}"));
    }
    if !entry.extended.is_empty() {
        return Err(format!("/{path} has extended attributes"));
    }
    let small = |id: u64| u32::try_from(id).map_err(|_| format!("/{path} has the owner {id}"));
    let folder = match entry.kind {
        Kind::Directory => Some((entry.mode & 0o7777, small(entry.owner.0)?, small(entry.group.0)?)),
        Kind::File | Kind::HardLink | Kind::SymbolicLink => None,
        Kind::CharacterDevice | Kind::BlockDevice | Kind::Fifo => {
            return Err(format!("/{path} is neither a file, a folder nor a link"));
        }
    };
    Ok(LayerPath { path: path.to_owned(), folder, is_link: entry.kind == Kind::SymbolicLink })
}

/// Unpacking a package, and the later work on its layer, must not follow a link out of the layer.
fn stays_in_its_folder(inventory: &Inventory, entries: &[LayerPath]) -> Result<(), String> {
    const FOLDERS: [&str; 4] = ["usr", "var", "var/lib", "var/lib/dpkg"];
    let others: HashSet<&str> =
        entries.iter().filter(|entry| entry.folder.is_none()).map(|entry| entry.path.as_str()).collect();
    for LayerPath { path, folder, .. } in entries {
        let is_of_programs =
            path.strip_prefix("usr/").is_some_and(|top| !top.contains('/') && merged_usr(top) == *path);
        if folder.is_none() && (is_of_programs || FOLDERS.contains(&path.as_str())) {
            return Err(format!("its /{path} is not a folder"));
        }
        if path == "DEBIAN" || path.starts_with("DEBIAN/") {
            return Err("it contains a folder DEBIAN".to_owned());
        }
        let mut above = path.as_str();
        while let Some((folder, _)) = above.rsplit_once('/') {
            if others.contains(folder) {
                return Err(format!("it has files below /{folder}, which is not a folder"));
            }
            above = folder;
        }
    }
    for entry in inventory.entries.iter().filter(|entry| entry.kind == Kind::HardLink) {
        let target = String::from_utf8_lossy(&entry.link_target);
        let target = target.trim_start_matches("./").trim_start_matches('/');
        if !others.contains(target) {
            return Err(format!("it has a hard link to /{target}, which it does not contain"));
        }
    }
    Ok(())
}

fn is_architecture(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
}

fn conffiles_of(text: &str) -> Result<Vec<String>, String> {
    let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
    lines
        .map(|line| match line.strip_prefix('/') {
            Some(path) if !path.contains(char::is_whitespace) => Ok(path.to_owned()),
            _ => Err(format!("its list of configuration files has the line `{line}`")),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_folders_are_below_usr() {
        for (path, beside) in
            [("bin/ls", "usr/bin/ls"), ("lib", "usr/lib"), ("library/x", "library/x"), ("etc/a", "etc/a")]
        {
            assert_eq!(merged_usr(path), beside);
        }
    }

    #[test]
    fn nothing_leads_out_of_a_layer() {
        let entry = |path: &str, kind: Kind, target: &str| crate::archive::Entry {
            path: path.into(),
            kind,
            mode: 0o755,
            owner: (0, Vec::new()),
            group: (0, Vec::new()),
            link_target: target.into(),
            device: (0, 0),
            extended: Vec::new(),
            size_bytes: 0,
        };
        let of = |control: &str, entries: Vec<crate::archive::Entry>| {
            let inventory = Inventory { control: control.to_owned(), members: Vec::new(), entries };
            Facts::from(&inventory).map(|_| ())
        };
        let control = "Package: x\nVersion: 1\nArchitecture: all\n";
        let good = || {
            vec![
                entry("", Kind::Directory, ""),
                entry("bin", Kind::Directory, ""),
                entry("bin/x", Kind::File, ""),
                entry("bin/y", Kind::HardLink, "./bin/x"),
                entry("usr/lib/x", Kind::SymbolicLink, "/etc"),
            ]
        };
        assert_eq!(of(control, good()), Ok(()));
        for (path, kind, target) in [
            ("usr", Kind::SymbolicLink, "../other/usr"),
            ("usr/bin", Kind::SymbolicLink, "/bin"),
            ("var/lib", Kind::SymbolicLink, "/"),
            ("var/lib/dpkg", Kind::SymbolicLink, "/"),
            ("var/lib/dpkg/info/y.postinst", Kind::File, ""),
            ("usr/lib/x/y", Kind::File, ""),
            ("bin/x/y", Kind::Directory, ""),
            ("DEBIAN/control", Kind::File, ""),
            ("z", Kind::HardLink, "../other/z"),
            ("a/../../b", Kind::File, ""),
        ] {
            let mut entries = good();
            entries.push(entry(path, kind, target));
            assert!(of(control, entries).is_err(), "{path}");
        }
        for control in [
            "Package: ../x\nVersion: 1\nArchitecture: all\n",
            "Package: x\nVersion: 1 2\nArchitecture: all\n",
            "Package: x\nVersion: 1\nArchitecture: ../all\n",
        ] {
            assert!(of(control, good()).is_err(), "{control}");
        }
    }

    #[test]
    fn flags_of_configuration_files_are_rejected() {
        assert_eq!(conffiles_of("/etc/a\n\n/etc/b\n").unwrap(), ["etc/a", "etc/b"]);
        assert!(conffiles_of("remove-on-upgrade /etc/a\n").is_err());
    }
}
