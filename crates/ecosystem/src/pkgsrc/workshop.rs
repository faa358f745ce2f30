//! A resolved set of pkgsrc packages: what each build is made of.

mod closure;
mod names;
mod rescan;

use super::package_file;
use super::recipe_files::RecipeFiles;
use super::rules::{self, FAMILY, Rules, output_of, split};
use super::scan_file::ScanFile;
use super::settings::Settings;
use super::stages::{self, Commands, Recipe};
use super::{description, distinfo};
use crate::{Admitted, CollectError, Ecosystem, Impossible, LeftOut, hex};
use kilnyard_model::graph::{Cut, Graph, PackageId};
use kilnyard_model::order::{
    BuildOrder, Dependency, FetchFile, FetchOrder, Input, InputText, Key, Output, RootOrder, SharedFolder,
    TestOrder, WorkOrder,
};
use kilnyard_model::text;
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// A first guess of what a build writes for each byte of packed sources: they unpack to some five times, and
/// objects and the staged files come on top.
const WORK_BYTES_OF_SOURCE: u64 = 20;

/// What a scan left.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Stanzas, as a scan file has them.
    pub text: Vec<u8>,
    /// Directories that could not be scanned, and what they said.
    pub failed: Vec<(String, String)>,
}

/// A package of the set.
#[derive(Debug)]
struct Package {
    /// Its name with its version.
    name: String,
    recipe: Recipe,
    /// Why it may not be given away, if it may not.
    restricted: Option<String>,
    /// What its recipe says that it weighs (`PBULK_WEIGHT`).
    weight: u32,
    /// Where its stanza is in the scan's text.
    stanza: std::ops::Range<usize>,
    /// The lines of its key that follow from files, once they were needed.
    files: OnceLock<Vec<String>>,
}

/// The stanza of a package that was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOutStanza<'a> {
    /// It, as the scan has it.
    pub text: &'a [u8],
    /// Whether another package is to blame.
    pub is_indirect: bool,
    /// The reason in the words of pbulk's resolver, where it is a dependency that cannot be had.
    pub fail_reason: Option<&'a str>,
}

/// What is known of a package that was left out.
#[derive(Debug)]
struct LeftOutPackage {
    /// Where its stanza is in the scan's text.
    stanza: std::ops::Range<usize>,
    is_indirect: bool,
    fail_reason: Option<String>,
}

/// An output that is there.
#[derive(Debug)]
struct Stocked {
    output: Output,
    /// The packages that it needs to run, once they were needed: nearly every build needs some of them.
    needed: OnceLock<Result<Vec<PackageId>, Impossible>>,
}

/// See the module.
#[derive(Debug)]
pub struct Workshop {
    settings: Settings,
    /// The layers of every root, as one hash.
    root_digest: String,
    scan: Scan,
    /// The directories that were asked for; none for everything.
    wanted: Option<Vec<String>>,
    packages: Vec<Package>,
    graph: Graph,
    left_out: Vec<LeftOut>,
    remarks: Vec<String>,
    left_out_packages: Vec<LeftOutPackage>,
    files: RecipeFiles,
    /// What may have to be fetched for each package, once it was needed.
    distfiles: Vec<OnceLock<Vec<distinfo::Distfile>>>,
}

impl Workshop {
    /// The name that a package has with its version.
    pub fn package_name(&self, package: PackageId) -> &str {
        &self.packages[package.index()].name
    }

    /// The stanza of a package, as the scan has it.
    pub fn stanza(&self, package: PackageId) -> &[u8] {
        &self.scan.text[self.packages[package.index()].stanza.clone()]
    }

    /// Why a package may not be given away: by its own word, or that of a package that it stands on.
    pub fn restricted(&self, package: PackageId) -> Option<String> {
        let own = |id: PackageId| self.packages[id.index()].restricted.clone();
        own(package).or_else(|| {
            let ancestors = self.graph.ancestors(package);
            let found = ancestors.into_iter().find_map(|id| Some((id, own(id)?)));
            found.map(|(id, reason)| format!("it needs {}: {reason}", self.graph.name(id)))
        })
    }

    /// The stanzas of packages that were left out.
    pub fn left_out_stanzas(&self) -> impl Iterator<Item = LeftOutStanza<'_>> {
        self.left_out_packages.iter().map(|package| LeftOutStanza {
            text: &self.scan.text[package.stanza.clone()],
            is_indirect: package.is_indirect,
            fail_reason: package.fail_reason.as_deref(),
        })
    }

    /// Whether something is not known of the tree, since a directory could not be scanned.
    pub fn has_failed_scans(&self) -> bool {
        !self.scan.failed.is_empty()
    }

    /// The packages that one of these files goes into; paths are relative to the tree.
    pub fn concerned(&self, changed: &BTreeSet<String>) -> Vec<String> {
        let is_concerned = |id: &PackageId| {
            let location = &self.packages[id.index()].recipe.location;
            self.files.concern(location, &self.read(*id), changed)
        };
        self.graph.packages().filter(is_concerned).map(|id| self.graph.name(id).to_owned()).collect()
    }

    /// What make read for a package.
    fn read(&self, package: PackageId) -> String {
        let file = ScanFile::parse(self.stanza(package)).unwrap_or_default();
        let stanza = file.stanzas.first();
        stanza.and_then(|stanza| stanza.get("SCAN_DEPENDS")).map_or(String::new(), |read| read.into_owned())
    }

    /// The key of a build for which these are installed.
    fn key_of(&self, package: PackageId, installed: &[PackageId], stock: &[Option<Stocked>]) -> Key {
        let known = &self.packages[package.index()];
        let (recipe, settings) = (&known.recipe, &self.settings);
        let files = known.files.get_or_init(|| {
            let read = self.read(package);
            let mut lines = self.files.lines(&recipe.location, &read);
            let counted = self.files.settings(&settings.mk_conf, &recipe.location, &read);
            lines.push(format!("option mk.conf {}", hex(&Sha256::digest(counted))));
            lines
        });
        let mut lines = vec![
            format!("recipe {} {}", recipe.location, known.name),
            format!("option prefix {}", settings.prefix),
            format!("option make {}", settings.make),
            format!("option selection {}", recipe.selection.join(" ")),
        ];
        lines.extend(files.iter().cloned());
        for id in installed {
            // Every one of them is there: the closure says so.
            let content = stock[id.index()].as_ref().map_or("", |stocked| &stocked.output.content);
            lines.push(format!("depends {} set {content}", self.packages[id.index()].name));
        }
        Key::new(lines, &settings.target, rules::VERSION, &self.root_digest)
    }

    /// A root in which these are installed.
    fn root(&self, packages: &[PackageId], stock: &[Option<Stocked>], texts: Vec<InputText>) -> RootOrder {
        let outputs = || packages.iter().filter_map(|id| Some(&stock[id.index()].as_ref()?.output));
        RootOrder {
            layers: self.settings.layers.clone(),
            inputs: outputs().map(input_of).collect(),
            texts,
            depends: outputs().map(dependency_of).collect(),
            ..shown(&self.settings)
        }
    }

    fn commands(&self, package: PackageId) -> Commands<'_> {
        Commands { settings: &self.settings, recipe: &self.packages[package.index()].recipe }
    }

    /// What has to be fetched by the tree's own means; nothing where every distfile is there. Each is
    /// verified when it is unpacked.
    fn fetch(&self, package: PackageId, depends: &[String]) -> Option<FetchOrder> {
        let distfiles = self.distfiles(package);
        let is_there = |file: &distinfo::Distfile| {
            let metadata = std::fs::metadata(self.settings.distfiles.join(&file.name));
            metadata.is_ok_and(|metadata| file.size_bytes.is_none_or(|size| size == metadata.len()))
        };
        (!distfiles.iter().all(is_there)).then(|| FetchOrder {
            stage: self.commands(package).fetch(depends),
            folder: distfiles_folder(None),
            files: distfiles
                .into_iter()
                .map(|file| FetchFile { name: file.name, size_bytes: file.size_bytes })
                .collect(),
        })
    }

    /// The files that may have to be fetched for a package.
    fn distfiles(&self, package: PackageId) -> Vec<distinfo::Distfile> {
        let known = self.distfiles.get(package.index()).map(|files| {
            files.get_or_init(|| {
                let location = &self.packages[package.index()].recipe.location;
                let read = self.read(package);
                let texts = self.files.distinfos(location, &read).into_iter();
                // One that cannot be read says nothing; make will say what is wrong with it.
                let texts = texts.filter_map(|path| fs_err::read(path).ok());
                let files = texts.flat_map(|text| distinfo::parse(&text).unwrap_or_default());
                files.filter(|file| !file.is_patch).collect()
            })
        });
        known.cloned().unwrap_or_default()
    }

    /// Whether a package file is what its order asked for: of the name and version of the scan, from its directory, and
    /// under its name. A package of another name would be installed in place of another one of the tree.
    fn check_identity(
        &self,
        package: PackageId,
        file: &str,
        name: &str,
        summary: &str,
    ) -> Result<(), CollectError> {
        let expected = self.package_name(package);
        if name != expected {
            return Err(CollectError(format!("{file} is of {name}, and the scan promised {expected}")));
        }
        let location = &self.packages[package.index()].recipe.location;
        let path = summary.lines().find_map(|line| line.strip_prefix("PKGPATH="));
        if let Some(path) = path.filter(|path| path != location) {
            let path = text::line(path);
            return Err(CollectError(format!(
                "{file} says that it is made in {path}, and {expected} is of {location}"
            )));
        }
        // It is installed by this name.
        let ending = file.strip_prefix(expected).and_then(|rest| rest.strip_prefix('.')).unwrap_or("");
        if ending.is_empty() || !ending.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(CollectError(format!("{file} is no name for the file of {expected}")));
        }
        Ok(())
    }

    /// An output that may be published as the package, with what the scan knows of it.
    fn admitted(&self, package: PackageId, mut output: Output) -> Result<Output, CollectError> {
        let name = format!("{}-{}", output.name, output.version);
        self.check_identity(package, &output.file, &name, &output.description)?;
        let described = output.description.lines().find_map(|line| line.strip_prefix("PKGNAME="));
        if described != Some(&name) {
            return Err(CollectError(format!("{} is described as another package", output.file)));
        }
        if let Some(reason) = self.restricted(package) {
            description::restrict(&mut output.description, &reason);
        }
        Ok(output)
    }
}

impl Workshop {
    /// A package of the set from a file that the yard published, with its name; none where it is of no package of the set.
    pub fn published_output(&self, path: &Path) -> Result<Option<(String, Output)>, CollectError> {
        let read = package_file::read(path).map_err(|error| CollectError(error.to_string()))?;
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(id) = self.graph.packages().find(|id| self.package_name(*id) == read.name) else {
            return Ok(None);
        };
        let output = output_of(&self.settings.architecture, &file, &read);
        Ok(Some((self.graph.name(id).to_owned(), self.admitted(id, output)?)))
    }
}

/// The name of the folder with the tree.
pub const TREE_FOLDER: &str = "tree";
/// The name of the folder with the distfiles.
pub const DISTFILES_FOLDER: &str = "distfiles";

/// The folder of distfiles, with the names of those that are needed; all where none are given.
fn distfiles_folder(names: Option<Vec<String>>) -> SharedFolder {
    SharedFolder {
        name: DISTFILES_FOLDER.to_owned(),
        inside: stages::DISTFILES.to_owned(),
        names,
        content: None,
    }
}

fn tree_folder() -> SharedFolder {
    SharedFolder { name: TREE_FOLDER.to_owned(), inside: stages::TREE.to_owned(), names: None, content: None }
}

/// What every root of this family shows besides its layers and inputs.
pub fn shown(settings: &Settings) -> RootOrder {
    RootOrder {
        folders: vec![tree_folder(), distfiles_folder(None)],
        sealed: stages::sealed(settings),
        ..RootOrder::default()
    }
}

fn input_of(output: &Output) -> Input {
    Input {
        name: output.file.clone(),
        sha256: output.sha256.clone(),
        size_bytes: output.size_bytes,
        urls: Vec::new(),
    }
}

fn dependency_of(output: &Output) -> Dependency {
    Dependency {
        name: output.name.clone(),
        version: output.version.clone(),
        file: output.file.clone(),
        sha256: output.sha256.clone(),
    }
}

impl Ecosystem for Workshop {
    fn name(&self) -> &'static str {
        FAMILY
    }

    fn graph(&self) -> &Graph {
        &self.graph
    }

    fn named(&self, name: &str) -> Vec<PackageId> {
        if let Some(id) = self.graph.find(name) {
            return vec![id];
        }
        let category = |id: &PackageId| self.graph.name(*id).split_once('/').map(|(category, _)| category);
        self.graph.packages().filter(|id| category(id) == Some(name)).collect()
    }

    fn cuts(&self) -> &[Cut] {
        // A cycle leaves out its members: nothing could stand in.
        &[]
    }

    fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    fn remarks(&self) -> &[String] {
        &self.remarks
    }

    fn version(&self, package: PackageId) -> String {
        split(self.package_name(package)).1.to_owned()
    }

    fn source_bytes(&self, package: PackageId) -> u64 {
        self.distfiles(package).iter().filter_map(|file| file.size_bytes).sum()
    }

    fn weight(&self, package: PackageId) -> u32 {
        self.packages[package.index()].weight
    }

    fn former_root(&self) -> &str {
        &self.settings.layers_digest
    }

    fn admit(
        &self,
        package: PackageId,
        _version: &str,
        outputs: &[Output],
    ) -> Result<Admitted, CollectError> {
        let output = match outputs {
            [] => return Err(CollectError("the build ended well but made no package".to_owned())),
            [output] => output,
            [one, other, ..] => {
                return Err(CollectError(format!("{} and {} are of one package", one.file, other.file)));
            }
        };
        let output = self.admitted(package, output.clone())?;
        Ok(Admitted { outputs: vec![output], notes: Vec::new() })
    }

    fn stock(self: Arc<Self>) -> Box<dyn crate::Stock> {
        let outputs = self.packages.iter().map(|_| None).collect();
        Box::new(Stock { set: self, outputs })
    }
}

impl Workshop {
    fn key(&self, stock: &[Option<Stocked>], package: PackageId) -> Result<Key, Impossible> {
        Ok(self.key_of(package, &self.installed_for(package, stock)?, stock))
    }

    fn order(&self, stock: &[Option<Stocked>], package: PackageId) -> Result<BuildOrder, Impossible> {
        let known = &self.packages[package.index()];
        let installed = self.installed_for(package, stock)?;
        let key = self.key_of(package, &installed, stock);
        let direct: Vec<String> = self
            .graph
            .dependencies(package)
            .iter()
            .filter_map(|id| Some(stock[id.index()].as_ref()?.output.file.clone()))
            .collect();
        let fetch = self.fetch(package, &direct);
        let distfiles = self.distfiles(package).into_iter().map(|file| file.name).collect();
        let mut texts = stages::texts(&self.settings);
        texts.push(stages::unpack_mk());
        Ok(BuildOrder {
            package: self.graph.name(package).to_owned(),
            version: split(&known.name).1.to_owned(),
            family: Rules::order(&self.settings),
            key,
            root: RootOrder {
                folders: vec![tree_folder(), distfiles_folder(Some(distfiles))],
                ..self.root(&installed, stock, texts)
            },
            work: Some(WorkOrder {
                inside: stages::BUILD.to_owned(),
                expected_bytes: self.source_bytes(package).saturating_mul(WORK_BYTES_OF_SOURCE),
            }),
            fetch,
            stages: self.commands(package).build(),
            clients: stages::clients(&self.settings.prefix),
            // What root installs is packed by root.
            fakeroots: Vec::new(),
            output_folder: stages::PACKAGES.to_owned(),
        })
    }

    fn test(
        &self,
        stock: &[Option<Stocked>],
        package: PackageId,
        outputs: &[Output],
    ) -> Result<TestOrder, Impossible> {
        let [output] = outputs else {
            return Err(Impossible { explanation: "there is no one package to install".to_owned() });
        };
        let needed = self.runtime_of(package, output, stock)?;
        Ok(TestOrder {
            root: self.root(&needed, stock, stages::texts(&self.settings)),
            inputs: vec![input_of(output)],
            texts: Vec::new(),
            stage: self.commands(package).test(&output.file, self.package_name(package)),
        })
    }
}

/// The set with the outputs that are there.
#[derive(Debug)]
struct Stock {
    set: Arc<Workshop>,
    /// The output of each package, by its number.
    outputs: Vec<Option<Stocked>>,
}

impl crate::Stock for Stock {
    fn set(&self) -> Arc<dyn Ecosystem> {
        self.set.clone()
    }

    fn key(&mut self, package: PackageId) -> Result<Key, Impossible> {
        self.set.key(&self.outputs, package)
    }

    fn order(&mut self, package: PackageId, _revision: u32) -> Result<BuildOrder, Impossible> {
        self.set.order(&self.outputs, package)
    }

    fn test(&mut self, package: PackageId, outputs: &[Output]) -> Result<TestOrder, Impossible> {
        self.set.test(&self.outputs, package, outputs)
    }

    fn rescan(&mut self, package: PackageId, said: &[u8]) -> Result<(), Impossible> {
        let set = self.set.rescanned(package, said)?;
        set.first_missing(package, |id| self.outputs[id.index()].is_some())?;
        self.set = Arc::new(set);
        for stocked in self.outputs.iter_mut().flatten() {
            // What an output needs is chosen by the names that packages have now.
            stocked.needed = OnceLock::new();
        }
        Ok(())
    }

    fn adopt(&mut self, package: PackageId, outputs: &[Output]) {
        let stocked = outputs.first().cloned().map(|output| Stocked { output, needed: OnceLock::new() });
        self.outputs[package.index()] = stocked;
    }
}

/// Outputs of packages, by what they are of.
type ByName<'a> = HashMap<&'a str, PackageId>;
