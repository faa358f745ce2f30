//! A resolved set of pkgsrc packages, and the inputs of each build.

mod closure;
mod names;
mod rescan;

use super::awaited::Awaited;
use super::package_file;
use super::recipe_files::RecipeFiles;
use super::rules::{self, FAMILY, Rules, output_of, split};
use super::scan_file::ScanFile;
use super::settings::Settings;
use super::stages::{self, Commands, Recipe};
use super::{description, distinfo, own_settings};
use crate::{Admitted, CollectError, Ecosystem, Impossible, LeftOut, hex};
use kilnyard_model::cuts::Cutting;
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::order::{
    BuildOrder, BuildTerms, Dependency, FetchFile, FetchOrder, Input, InputText, Key, Output, RootOrder,
    SharedFolder, TestOrder, WorkOrder,
};
use kilnyard_model::text;
use sha2::{Digest, Sha256};
use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// `PBULK_WEIGHT` of a recipe that does not set it.
const WEIGHT_USUAL: u32 = 100;

/// An initial estimate of the bytes that a build writes per byte of packed sources: they unpack to about five times
/// their size, and objects and staged files add to that.
const WORK_BYTES_OF_SOURCE: u64 = 20;

/// The result of a scan.
#[derive(Clone, Debug, Default)]
pub struct Scan {
    /// Stanzas, in the format of a scan file.
    pub text: Vec<u8>,
    /// Directories that could not be scanned, with the error.
    pub failed: Vec<(String, String)>,
    /// Directories that lack files which a person has to get, with these files.
    pub awaited: Vec<Awaited>,
}

/// A package of the set.
#[derive(Debug)]
struct Package {
    /// Name and version of the package.
    name: String,
    recipe: Recipe,
    /// The reason why it must not be redistributed, if there is one.
    restricted: Option<String>,
    /// Its build effort according to its recipe (`PBULK_WEIGHT`).
    weight: u32,
    /// Position of its stanza in the scan's text.
    stanza: std::ops::Range<usize>,
    /// The lines of its key that depend on files, computed on first use.
    files: OnceLock<Vec<String>>,
}

/// The stanza of a package that was left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeftOutStanza<'a> {
    /// The stanza as scanned.
    pub text: &'a [u8],
    /// Whether another package is the cause.
    pub is_indirect: bool,
    /// The reason in the words of pbulk's resolver, if the cause is an unmet dependency.
    pub fail_reason: Option<&'a str>,
}

/// The facts about a package that was left out.
#[derive(Debug)]
struct LeftOutPackage {
    /// Position of its stanza in the scan's text.
    stanza: std::ops::Range<usize>,
    is_indirect: bool,
    fail_reason: Option<String>,
}

#[derive(Debug)]
struct Stocked {
    output: Output,
    /// Its run-time dependencies, computed on first use: nearly every build needs some of them.
    needed: OnceLock<Result<Vec<PackageId>, Impossible>>,
}

/// The [`Ecosystem`] of pkgsrc.
#[derive(Debug)]
pub struct Workshop {
    settings: Settings,
    /// One hash of the layers of every root.
    root_digest: String,
    scan: Scan,
    /// The requested directories; `None` for everything.
    wanted: Option<Vec<String>>,
    packages: Vec<Package>,
    graph: Graph,
    left_out: Vec<LeftOut>,
    remarks: Vec<String>,
    left_out_packages: Vec<LeftOutPackage>,
    files: RecipeFiles,
    /// The distfiles of each package, computed on first use.
    distfiles: Vec<OnceLock<Vec<distinfo::Distfile>>>,
}

impl Workshop {
    /// The full name of a package, with its version.
    pub fn package_name(&self, package: PackageId) -> &str {
        &self.packages[package.index()].name
    }

    /// The stanza of a package, unchanged from the scan.
    pub fn stanza(&self, package: PackageId) -> &[u8] {
        &self.scan.text[self.packages[package.index()].stanza.clone()]
    }

    /// The reason why a package must not be redistributed, stated by itself or by a package that it depends on.
    pub fn restricted(&self, package: PackageId) -> Option<String> {
        let own = |id: PackageId| self.packages[id.index()].restricted.clone();
        own(package).or_else(|| {
            let ancestors = self.graph.ancestors(package);
            let found = ancestors.into_iter().find_map(|id| Some((id, own(id)?)));
            found.map(|(id, reason)| format!("it needs {}: {reason}", self.graph.name(id)))
        })
    }

    /// The stanzas of all packages that were left out.
    pub fn left_out_stanzas(&self) -> impl Iterator<Item = LeftOutStanza<'_>> {
        self.left_out_packages.iter().map(|package| LeftOutStanza {
            text: &self.scan.text[package.stanza.clone()],
            is_indirect: package.is_indirect,
            fail_reason: package.fail_reason.as_deref(),
        })
    }

    /// Whether facts about the tree are missing because a directory could not be scanned.
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

    /// The files and folders of the tree that go into a package, relative to the tree.
    pub fn places(&self, package: PackageId) -> Vec<String> {
        self.files.places(&self.packages[package.index()].recipe.location, &self.read(package))
    }

    /// The files that make read for a package.
    fn read(&self, package: PackageId) -> String {
        let file = ScanFile::parse(self.stanza(package)).unwrap_or_default();
        let stanza = file.stanzas.first();
        stanza.and_then(|stanza| stanza.get("SCAN_DEPENDS")).map_or(String::new(), |read| read.into_owned())
    }

    /// The key of a build with these packages installed.
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
        // make knows only the directory, not which of its packages it builds.
        lines.extend(own_settings::key_lines(&settings.packages.of(&recipe.location)));
        lines.extend(settings.packages.of(self.graph.name(package)).key_lines());
        lines.extend(files.iter().cloned());
        for id in installed {
            // All of them have an output: the closure guarantees it.
            let content = stock[id.index()].as_ref().map_or("", |stocked| &stocked.output.content);
            lines.push(format!("depends {} set {content}", self.packages[id.index()].name));
        }
        Key::new(lines, &settings.target, rules::VERSION, &self.root_digest)
    }

    /// A root with these packages installed.
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

    /// The order to fetch distfiles by the tree's own means; `None` if all are present. Each file is verified when
    /// it is unpacked.
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

    /// The distfiles of a package, which may have to be fetched.
    fn distfiles(&self, package: PackageId) -> Vec<distinfo::Distfile> {
        let known = self.distfiles.get(package.index()).map(|files| {
            files.get_or_init(|| {
                let location = &self.packages[package.index()].recipe.location;
                let read = self.read(package);
                let texts = self.files.distinfos(location, &read).into_iter();
                // An unreadable distinfo counts as empty; make will report its fault.
                let texts = texts.filter_map(|path| fs_err::read(path).ok());
                let files = texts.flat_map(|text| distinfo::parse(&text).unwrap_or_default());
                files.filter(|file| !file.is_patch).collect()
            })
        });
        known.cloned().unwrap_or_default()
    }

    /// Checks that a package file matches its order: it has the name and version of the scan, comes from its
    /// directory, and is named after it. A package of another name would be installed in place of a different one
    /// of the tree.
    fn check_identity(
        &self,
        package: PackageId,
        file: &str,
        name: &str,
        summary: &str,
    ) -> Result<(), CollectError> {
        let expected = self.package_name(package);
        if name != expected {
            return Err(CollectError(format!("{file} is the package {name}, but the scan lists {expected}")));
        }
        let location = &self.packages[package.index()].recipe.location;
        let path = summary.lines().find_map(|line| line.strip_prefix("PKGPATH="));
        if let Some(path) = path.filter(|path| path != location) {
            let path = text::line(path);
            return Err(CollectError(format!(
                "{file} claims to be made in {path}, but {expected} belongs to {location}"
            )));
        }
        // It is installed under this name.
        let ending = file.strip_prefix(expected).and_then(|rest| rest.strip_prefix('.')).unwrap_or("");
        if ending.is_empty() || !ending.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err(CollectError(format!("{file} is not a valid file name for {expected}")));
        }
        Ok(())
    }

    /// Checks that an output may be published as the package, and adds the facts from the scan.
    fn admitted(&self, package: PackageId, mut output: Output) -> Result<Output, CollectError> {
        let name = format!("{}-{}", output.name, output.version);
        self.check_identity(package, &output.file, &name, &output.description)?;
        let described = output.description.lines().find_map(|line| line.strip_prefix("PKGNAME="));
        if described != Some(&name) {
            return Err(CollectError(format!("{} does not match its own description", output.file)));
        }
        if let Some(reason) = self.restricted(package) {
            description::restrict(&mut output.description, &reason);
        }
        Ok(output)
    }
}

impl Workshop {
    /// Reads a file that the yard published, and returns the name of its package with the output; `None` if it does
    /// not belong to the set.
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

/// Name of the shared folder with the tree.
pub const TREE_FOLDER: &str = "tree";
/// Name of the shared folder with the distfiles.
pub const DISTFILES_FOLDER: &str = "distfiles";

/// The folder of distfiles, with the names of those that are needed; `None` for all.
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

/// The common part of every root of this family, apart from its layers and inputs.
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
        is_signed: false,
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

    fn cutting(&self) -> &Cutting {
        // A cycle leaves out its members: no other packages can replace them.
        static NONE: Cutting = Cutting::NONE;
        &NONE
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

    fn source_places(&self, package: PackageId) -> Vec<String> {
        self.distfiles(package).into_iter().map(|file| file.name).collect()
    }

    fn prior_seconds(&self, package: PackageId) -> f64 {
        // PBULK_WEIGHT is the recipe's estimate of the effort, in hundredths of a usual build of that size.
        let heavier = f64::from(self.packages[package.index()].weight) / f64::from(WEIGHT_USUAL);
        crate::prior::seconds_by_size(self.source_bytes(package)) * heavier
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
            [] => return Err(CollectError("the build succeeded but produced no package".to_owned())),
            [output] => output,
            [one, other, ..] => {
                return Err(CollectError(format!(
                    "{} and {} are both outputs of one package",
                    one.file, other.file
                )));
            }
        };
        let output = self.admitted(package, output.clone())?;
        Ok(Admitted { outputs: vec![output], ..Admitted::default() })
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
        let mut order = BuildOrder {
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
            // Root also packages the files that it installs.
            fakeroots: Vec::new(),
            output_folder: stages::PACKAGES.to_owned(),
            terms: BuildTerms::default(),
            keep: None,
        };
        self.settings.packages.of(&order.package).apply_to(&mut order);
        Ok(order)
    }

    fn test(
        &self,
        stock: &[Option<Stocked>],
        package: PackageId,
        outputs: &[Output],
    ) -> Result<TestOrder, Impossible> {
        let [output] = outputs else {
            return Err(Impossible { explanation: "a test needs exactly one package".to_owned() });
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

/// The set with its current outputs.
#[derive(Debug)]
struct Stock {
    set: Arc<Workshop>,
    /// The output of each package, indexed by package number.
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
            // Run-time dependencies are chosen by the packages' current names.
            stocked.needed = OnceLock::new();
        }
        Ok(())
    }

    fn adopt(&mut self, package: PackageId, outputs: &[Output]) {
        let stocked = outputs.first().cloned().map(|output| Stocked { output, needed: OnceLock::new() });
        self.outputs[package.index()] = stocked;
    }
}

/// Packages by full name.
type ByName<'a> = HashMap<&'a str, PackageId>;
