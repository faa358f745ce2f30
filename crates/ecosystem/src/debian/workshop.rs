//! A resolved set of Debian packages, and the inputs of each build.

mod form;

use super::admission;
use super::autopkgtest::{self, Test};
use super::deb822::Stanza;
use super::keep;
use super::prior;
use super::published::Published;
use super::rules::{self, FAMILY, Rules};
use super::set::{self, Resolved};
use super::settings::{Base, NO_CHECKS, Settings};
use super::source::{self, OutputKind, Parts, Source, Sources};
use super::stages::{self, BuildOptions, Group, POOL};
use super::suites::SuiteId;
use super::universe::{Origin, Request, Universe, View};
use crate::{Admitted, CollectError, Ecosystem, Impossible, LeftOut, explain, together};
use kilnyard_model::cuts::Cutting;
use kilnyard_model::graph::{Graph, PackageId};
use kilnyard_model::order::{BuildOrder, BuildTerms, Dependency, Input, Key, Output, RootOrder, TestOrder};
use kilnyard_model::solver::{Candidate, Solver};
use kilnyard_model::text;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

/// The longest accepted path of a file in an archive; Debian's have up to 200 bytes.
const PATH_BYTES_MAX: usize = 1024;

/// The expected time of a test that was never run, in seconds on one core. Most of those of Debian take less.
const TEST_SECONDS: f64 = 20.0;

/// Debian's [`Ecosystem`].
#[derive(Clone, Debug)]
pub struct Workshop {
    settings: Settings,
    sources: Sources,
    base: Base,
    in_base: HashMap<String, String>,
    resolved: Arc<Resolved>,
    left_out: Vec<LeftOut>,
    reused: Vec<String>,
    remarks: Vec<String>,
    published: Arc<Published>,
    /// The stock before anything is built.
    stock: Arc<Stock>,
}

/// The universe with the current outputs, and the outputs themselves.
#[derive(Clone, Debug)]
struct Stock {
    universe: Universe,
    outputs: HashMap<Candidate, Output>,
    of_package: Vec<Vec<Candidate>>,
}

impl Workshop {
    /// Resolves the named sources. The universe holds the archive's packages, `published` those in the yard's
    /// repository.
    pub fn new(
        settings: Settings,
        mut universe: Universe,
        sources: Sources,
        names: &[String],
        base: Base,
        published: Published,
    ) -> Workshop {
        let mut resolved = set::resolve(&mut universe, &sources, names, &settings, &published);
        let mut of_package = vec![Vec::new(); resolved.graph.len()];
        for candidate in universe.packages().collect::<Vec<_>>() {
            if let Origin::Set(number) = universe.origin(candidate) {
                of_package[number as usize].push(candidate);
            }
        }
        let in_base = base.packages.iter().cloned().collect();
        let stock = Arc::new(Stock { universe, outputs: HashMap::new(), of_package });
        let left_out = std::mem::take(&mut resolved.left_out);
        let (resolved, published) = (Arc::new(resolved), Arc::new(published));
        let (reused, remarks) = (Vec::new(), resolved.owners.remarks.clone());
        Workshop { settings, sources, base, in_base, resolved, left_out, reused, remarks, published, stock }
    }

    /// Adds the sources of the set whose packages come from the archive, with a remark on them.
    pub fn reusing(mut self, reused: Vec<String>, remark: Option<String>) -> Workshop {
        self.reused = reused;
        self.remarks.extend(remark);
        self
    }

    /// Adds a remark, if there is one.
    pub fn remarking(mut self, remark: Option<String>) -> Workshop {
        self.remarks.extend(remark);
        self
    }

    /// The addresses of a file of a package's source.
    pub fn addresses_of(&self, package: PackageId, file: &str) -> Vec<String> {
        self.urls(self.suite(package), &format!("{}/{file}", self.source(package).directory()))
    }

    /// Adds packages that were requested but are not part of the set, with the reasons.
    pub fn without(mut self, left_out: Vec<LeftOut>) -> Workshop {
        self.left_out.extend(left_out);
        self
    }

    /// The source that a package of the graph is built from.
    pub fn source(&self, package: PackageId) -> Source<'_> {
        let name = self.resolved.graph.name(package);
        // Only existing sources have a number.
        self.sources.get(name).unwrap_or(Source::new(Stanza::new("")))
    }

    /// The suite that a package's source comes from.
    pub fn suite(&self, package: PackageId) -> SuiteId {
        self.sources.suite(self.resolved.graph.name(package)).unwrap_or_default()
    }

    /// Whether a package's source is the yard's own.
    pub fn is_own(&self, package: PackageId) -> bool {
        self.suite(package) == SuiteId::OWN
    }

    /// The name, in messages, of the suite that a package's source comes from.
    pub fn suite_name(&self, package: PackageId) -> &str {
        self.settings.suites.name(self.suite(package))
    }

    /// Whether a package's source is the user's own, or from an archive other than the main one.
    pub fn is_foreign(&self, package: PackageId) -> bool {
        let suite = self.suite(package);
        suite == SuiteId::OWN
            || self.settings.suites.get(suite).is_some_and(|suite| !suite.archive.is_empty())
    }

    /// Whether a source may publish an output of this name. Debug symbols belong to the owner of their package.
    pub fn is_owner(&self, output: &str, source: &str) -> bool {
        let owners = &self.resolved.owners;
        let name = match owners.of(output) {
            Some(_) => output,
            None => output.strip_suffix(admission::DEBUG_ENDING).unwrap_or(output),
        };
        owners.is_owner(name, source)
    }

    fn profiles(&self, package: PackageId) -> Vec<String> {
        let mut profiles = self.settings.context_of(self.resolved.graph.name(package)).profiles;
        for profile in self.resolved.profiled.get(&package).into_iter().flatten() {
            if !profiles.iter().any(|p| p == profile) {
                profiles.push((*profile).to_owned());
            }
        }
        profiles
    }

    /// Solves a request of a package: outputs of its ancestors come from the set, everything else from the archive.
    /// Candidates in `own` may be chosen as well.
    fn closure(
        &self,
        stock: &mut Stock,
        package: PackageId,
        request: &Request,
        own: &HashSet<Candidate>,
    ) -> Result<Vec<Candidate>, Impossible> {
        let name = self.resolved.graph.name(package);
        let ancestors = self.resolved.graph.ancestors(package);
        let len_before = stock.universe.len();
        let root = stock
            .universe
            .request(request)
            .map_err(|e| Impossible { explanation: format!("{name}: {e}") })?;
        let universe = &stock.universe;
        let earlier = self.of_earlier_pass(stock, package);
        let replaced: HashSet<u32> = ancestors
            .iter()
            .flat_map(|id| &stock.of_package[id.index()])
            .chain(own)
            .chain(&earlier)
            .map(|c| universe.name_number(*c))
            .collect();
        let installed = |name: &str| self.in_base.get(name).map(String::as_str);
        let is_allowed = |candidate: Candidate| match universe.origin(candidate) {
            _ if !universe.fits_beside(candidate, &installed) => false,
            Origin::Set(number) => {
                ancestors.contains(&PackageId(number))
                    || own.contains(&candidate)
                    || earlier.contains(&candidate)
            }
            Origin::Archive => !replaced.contains(&universe.name_number(candidate)),
            Origin::Request => candidate == root,
        };
        let is_there = |candidate: Candidate| {
            self.in_base.get(universe.name(candidate)).is_some_and(|v| v == universe.version(candidate))
        };
        let view = View::new(universe, &is_allowed, &is_there);
        let own_names: HashSet<u32> = own.iter().map(|c| universe.name_number(*c)).collect();
        let lenient = |candidate: Candidate| match universe.origin(candidate) {
            _ if !universe.fits_beside(candidate, &installed) => false,
            // The archive's package of the same name never replaces one that is being tested.
            Origin::Archive => !own_names.contains(&universe.name_number(candidate)),
            _ => is_allowed(candidate),
        };
        let mut solver = Solver::new(&view);
        // If the set's own packages conflict, the archive's may replace them.
        let solved = solver
            .solve(root)
            .or_else(|_| Solver::new(&View::new(universe, &lenient, &is_there)).solve(root));
        let outcome = match solved {
            Ok(mut chosen) => {
                chosen.retain(|candidate| *candidate != root);
                chosen.sort_by(|a, b| universe.name(*a).cmp(universe.name(*b)));
                Ok(chosen)
            }
            Err(_) => {
                Err(Impossible { explanation: explain::text(universe, root, name, &solver.explain(root)) })
            }
        };
        stock.universe.truncate(len_before);
        outcome
    }

    /// Outputs of packages that wait for this one, from an earlier pass: with `passes = 2`, they replace the
    /// archive's packages where a cycle was cut. None of them can change before this package is built, so that the
    /// result does not depend on the order of builds.
    fn of_earlier_pass(&self, stock: &Stock, package: PackageId) -> HashSet<Candidate> {
        if self.settings.passes < 2 {
            return HashSet::new();
        }
        let later = self.resolved.cutting.later(&self.resolved.graph, package);
        let outputs = later.iter().flat_map(|id| &stock.of_package[id.index()]).copied();
        outputs.filter(|candidate| stock.outputs.contains_key(candidate)).collect()
    }

    fn build_closure(&self, stock: &mut Stock, package: PackageId) -> Result<Vec<Candidate>, Impossible> {
        let mut request = self.settings.request_of(&self.source(package));
        request.profiles = Some(self.profiles(package));
        self.closure(stock, package, &request, &HashSet::new())
    }

    fn key_of(&self, stock: &Stock, package: PackageId, closure: &[Candidate]) -> Key {
        let source = self.source(package);
        let settings = &self.settings;
        let own = settings.packages.of(source.name());
        let parts = match settings.parts {
            Parts::Dependent => "dependent",
            Parts::All => "all",
        };
        let mut lines = vec![
            format!("recipe {} {}", source.name(), source.version()),
            format!("option checks {}", settings.runs_checks_of(&own)),
            format!("option maintainer {}", settings.maintainer),
            format!("option parts {parts}"),
            format!("option profiles {}", self.profiles(package).join(",")),
            format!("option suffix {}", settings.version_suffix),
        ];
        if let Some(words) = own.words.as_ref().filter(|words| !words.is_empty()) {
            lines.push(format!("option options {}", words.join(" ")));
        }
        lines.extend(own.key_lines());
        if let Some(build) = &settings.build_architecture {
            lines.push(format!("option cross {build}"));
        }
        for file in source.files().unwrap_or_default() {
            lines.push(format!("source {} {}", file.name, file.sha256));
        }
        let earlier = self.of_earlier_pass(stock, package);
        for candidate in closure {
            let name = stock.universe.name(*candidate);
            match stock.outputs.get(candidate) {
                // Its content depends on this package's content. With its version instead, each is built only once
                // more.
                Some(output) if earlier.contains(candidate) => {
                    let version = &output.version;
                    let version = version
                        .rsplit_once(&settings.version_suffix)
                        .map_or(version.as_str(), |(own, _)| own);
                    lines.push(format!("depends {name} earlier-pass {version}"));
                }
                Some(output) => lines.push(format!("depends {name} set {}", output.content)),
                None => {
                    let hash = stock.universe.stanza(*candidate).get("SHA256").unwrap_or("?");
                    lines.push(format!("depends {name} archive {hash}"));
                }
            }
        }
        let root = self.base.tree.as_ref().map_or("", |tree| tree.sha256.as_str());
        Key::new(lines, &settings.target, rules::VERSION, root)
    }

    /// The addresses of a file of a suite's archive.
    fn urls(&self, suite: SuiteId, path: &str) -> Vec<String> {
        let archive = self.settings.suites.get(suite).map(|suite| &suite.mirrors);
        let mirrors = archive.unwrap_or(&self.settings.mirrors).iter();
        mirrors.map(|mirror| format!("{}/{path}", mirror.trim_end_matches('/'))).collect()
    }

    /// Inputs, index and install list for candidates that the base lacks.
    fn provisions(&self, stock: &Stock, candidates: &[Candidate]) -> Result<Provisions, Impossible> {
        let mut provisions = Provisions::default();
        for candidate in candidates {
            let (name, version) = (stock.universe.name(*candidate), stock.universe.version(*candidate));
            let stanza = stock.universe.stanza(*candidate);
            if self.in_base.get(name).is_some_and(|installed| installed == version) {
                continue;
            }
            let input = match stock.outputs.get(candidate) {
                Some(output) => Input {
                    name: output.file.clone(),
                    sha256: output.sha256.clone(),
                    size_bytes: output.size_bytes,
                    urls: Vec::new(),
                },
                None => self.archive_input(stock.universe.provenance(*candidate).suite, name, stanza)?,
            };
            for (field, value) in stanza.fields() {
                if !matches!(
                    field,
                    "Filename" | "Size" | "SHA256" | "MD5sum" | "SHA1" | "Description-md5" | "Tag"
                ) {
                    provisions.index.push_str(&format!("{field}: {value}\n"));
                }
            }
            provisions.index.push_str(&format!(
                "Filename: {POOL}/{}\nSize: {}\nSHA256: {}\n\n",
                input.name, input.size_bytes, input.sha256
            ));
            provisions.depends.push(Dependency {
                name: name.to_owned(),
                version: version.to_owned(),
                file: input.name.clone(),
                sha256: input.sha256.clone(),
                is_signed: false,
            });
            provisions.inputs.push(input);
        }
        Ok(provisions)
    }

    fn archive_input(&self, suite: SuiteId, name: &str, stanza: Stanza) -> Result<Input, Impossible> {
        let broken = |field| Impossible {
            explanation: format!("the archive's index has no valid {field} for {name}"),
        };
        let path = stanza.get("Filename").filter(|p| is_safe_path(p)).ok_or_else(|| broken("Filename"))?;
        let is_hash = |text: &&str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
        Ok(Input {
            name: path.rsplit('/').next().unwrap_or(path).to_owned(),
            sha256: stanza.get("SHA256").filter(is_hash).ok_or_else(|| broken("SHA256"))?.to_owned(),
            size_bytes: stanza.get("Size").and_then(|s| s.parse().ok()).ok_or_else(|| broken("Size"))?,
            urls: self.urls(suite, path),
        })
    }
}

#[derive(Default)]
struct Provisions {
    inputs: Vec<Input>,
    index: String,
    depends: Vec<Dependency>,
}

/// Whether the output is for installed systems: udebs are for the installer only, and no other package depends on
/// them.
fn is_for_machines(output: &Output) -> bool {
    OutputKind::of_file(&output.file) == OutputKind::Deb
}

/// Whether an output cannot normally be removed again: apt does not remove such packages unless forced to
/// (deb-control(5)).
fn stays_installed(output: &Output) -> bool {
    let stanza = Stanza::new(&output.description);
    ["Essential", "Protected", "Important"].into_iter().any(|field| stanza.get(field) == Some("yes"))
}

/// Whether a path of the archive stays within it, is short enough for a file system, and prints unambiguously: it
/// becomes part of URLs, file names and messages.
fn is_safe_path(path: &str) -> bool {
    path.len() <= PATH_BYTES_MAX && path.split('/').all(source::is_file_name)
}

impl Ecosystem for Workshop {
    fn name(&self) -> &'static str {
        FAMILY
    }

    fn graph(&self) -> &Graph {
        &self.resolved.graph
    }

    fn cutting(&self) -> &Cutting {
        &self.resolved.cutting
    }

    fn left_out(&self) -> &[LeftOut] {
        &self.left_out
    }

    fn remarks(&self) -> &[String] {
        &self.remarks
    }

    fn reused(&self) -> &[String] {
        &self.reused
    }

    fn named(&self, name: &str) -> Vec<PackageId> {
        let graph = &self.resolved.graph;
        let Some(id) = graph.find(name) else { return Vec::new() };
        // Its tests are with it. They are among its dependents.
        let is_its_test =
            |other: &PackageId| Test::of(&self.source(*other)).is_some_and(|test| test.source == name);
        let tests = graph.packages().filter(is_its_test);
        std::iter::once(id).chain(tests).collect()
    }

    fn is_test(&self, package: PackageId) -> bool {
        autopkgtest::is_test(self.resolved.graph.name(package))
    }

    fn version(&self, package: PackageId) -> String {
        self.source(package).version().to_owned()
    }

    fn former_root(&self) -> &str {
        &self.base.digest
    }

    fn published_revision(&self, package: PackageId) -> u32 {
        let source = self.source(package);
        self.published.revision(source.name(), source.version(), &self.settings.version_suffix)
    }

    fn source_bytes(&self, package: PackageId) -> u64 {
        self.source(package).files().unwrap_or_default().iter().map(|file| file.size_bytes).sum()
    }

    fn source_places(&self, package: PackageId) -> Vec<String> {
        if self.is_test(package) || self.is_own(package) {
            return Vec::new();
        }
        let files = self.source(package).files().unwrap_or_default().into_iter();
        files.filter_map(|file| self.addresses_of(package, &file.name).into_iter().next()).collect()
    }

    fn can_run_outputs(&self) -> bool {
        self.settings.build_architecture.is_none()
    }

    fn prior_seconds(&self, package: PackageId) -> f64 {
        match self.is_test(package) {
            true => TEST_SECONDS,
            false => prior::seconds(&self.source(package), &self.stock.universe, &self.settings),
        }
    }

    fn admit(&self, package: PackageId, version: &str, outputs: &[Output]) -> Result<Admitted, CollectError> {
        if self.is_test(package) {
            // Whatever a worker says of it.
            return Ok(Admitted::default());
        }
        if outputs.is_empty() {
            return Err(CollectError("the build succeeded but produced no package".to_owned()));
        }
        for (place, output) in outputs.iter().enumerate() {
            let (file, control) = (&output.file, Stanza::new(&output.description));
            self.check_output(package, &control, file)?;
            let fields = ["Package", "Version", "Architecture"].map(|field| control.get(field).unwrap_or(""));
            if fields != [&output.name, &output.version, &output.architecture] {
                return Err(CollectError(format!("{file} does not match its own control file")));
            }
            if outputs[..place].iter().any(|other| other.name == output.name) {
                let name = &output.name;
                return Err(CollectError(format!("{file} is the second package with the name {name}")));
            }
        }
        let order = admission::Order {
            source: self.source(package),
            version,
            suffix: &self.settings.version_suffix,
            architecture: &self.settings.architecture,
            owners: &self.resolved.owners,
            published: &self.published,
        };
        let admitted = admission::admit(&order, outputs.to_vec());
        let admitted = admitted.map_err(|refusal| CollectError(refusal.to_string()))?;
        let note =
            |(name, owner)| format!("{name} is not kept: takeover in kilnyard.toml gives it to {owner}");
        let notes = admitted.taken_over.into_iter().map(note).collect();
        Ok(Admitted { outputs: admitted.outputs, notes, ..Admitted::default() })
    }

    fn stock(self: Arc<Self>) -> Box<dyn crate::Stock> {
        let stock = Stock::clone(&self.stock);
        Box::new(Stocked { set: self, stock })
    }
}

/// The set with its current outputs.
#[derive(Debug)]
struct Stocked {
    set: Arc<Workshop>,
    stock: Stock,
}

impl crate::Stock for Stocked {
    fn set(&self) -> Arc<dyn Ecosystem> {
        self.set.clone()
    }

    fn key(&mut self, package: PackageId) -> Result<Key, Impossible> {
        self.set.key(&mut self.stock, package)
    }

    fn order(&mut self, package: PackageId, revision: u32) -> Result<BuildOrder, Impossible> {
        self.set.order(&mut self.stock, package, revision)
    }

    fn test(&mut self, package: PackageId, outputs: &[Output]) -> Result<TestOrder, Impossible> {
        self.set.test(&mut self.stock, package, outputs)
    }

    fn adopt(&mut self, package: PackageId, outputs: &[Output]) {
        self.stock.adopt(package, outputs);
    }

    fn rescan(&mut self, package: PackageId, said: &[u8]) -> Result<(), Impossible> {
        self.set = Arc::new(self.set.rescanned(package, said)?);
        Ok(())
    }
}

impl Stock {
    fn adopt(&mut self, package: PackageId, outputs: &[Output]) {
        for candidate in std::mem::take(&mut self.of_package[package.index()]) {
            self.universe.remove(candidate);
            self.outputs.remove(&candidate);
        }
        for output in outputs.iter().filter(|output| is_for_machines(output)) {
            if let Some(candidate) = self.universe.add_package(&output.description, Origin::Set(package.0)) {
                self.outputs.insert(candidate, output.clone());
                self.of_package[package.index()].push(candidate);
            }
        }
    }
}

impl Workshop {
    /// The set with a new stanza for one source. Its requirements are solved when the build is prepared, from the
    /// archive and the outputs of the ancestors that it had when the run was planned.
    fn rescanned(&self, package: PackageId, said: &[u8]) -> Result<Workshop, Impossible> {
        let name = self.resolved.graph.name(package);
        let impossible = |explanation: String| Err(Impossible { explanation });
        let Ok(text) = std::str::from_utf8(said) else {
            return impossible(format!("the source of {name} is not UTF-8"));
        };
        let source = Source::new(Stanza::new(text));
        if source.name() != name {
            return impossible(format!("it is now the source of {}", text::line(source.name())));
        }
        if !source.builds_on(&self.settings.architecture, self.settings.parts) {
            return impossible(format!("it no longer makes packages for {}", self.settings.architecture));
        }
        let mut now = self.clone();
        match now.sources.put(text.into()) {
            Ok(()) => Ok(now),
            Err(error) => impossible(error.to_string()),
        }
    }

    fn key(&self, stock: &mut Stock, package: PackageId) -> Result<Key, Impossible> {
        let closure = self.build_closure(stock, package)?;
        Ok(self.key_of(stock, package, &closure))
    }

    fn order(&self, stock: &mut Stock, package: PackageId, revision: u32) -> Result<BuildOrder, Impossible> {
        let source = self.source(package);
        let closure = self.build_closure(stock, package)?;
        let provisions = self.provisions(stock, &closure)?;
        let key = self.key_of(stock, package, &closure);
        let files = source.files().map_err(|error| Impossible { explanation: error.to_string() })?;
        let directory = source.directory();
        if !directory.is_empty() && !is_safe_path(directory) {
            let explanation = format!("the archive's index has no valid Directory for {}", source.name());
            return Err(Impossible { explanation });
        }
        let mut inputs = provisions.inputs;
        let mut dsc = String::new();
        for file in files {
            if file.name.ends_with(".dsc") {
                dsc.clone_from(&file.name);
            }
            let urls = self.addresses_of(package, &file.name);
            inputs.push(Input { name: file.name, sha256: file.sha256, size_bytes: file.size_bytes, urls });
        }
        let version = format!("{}{}{revision}", source.version(), self.settings.version_suffix);
        let own = self.settings.packages.of(source.name());
        let test = Test::of(&source);
        let profiles = self.profiles(package);
        let options = BuildOptions {
            all_parts: self.settings.parts == Parts::All,
            runs_checks: self.settings.runs_checks_of(&own)
                && !profiles.iter().any(|profile| profile == NO_CHECKS),
            profiles: &profiles,
            words: own.words.as_deref().unwrap_or_default(),
            host: self.settings.build_architecture.as_ref().map(|_| self.settings.architecture.as_str()),
            kept_folders: if test.is_some() { &[] } else { own.kept_folders() },
        };
        // The folder is named after the source in either case.
        let name = test.as_ref().map_or(source.name(), |test| &test.source);
        let folder = stages::source_folder(name, &source, options.kept_folders);
        let stages = match &test {
            Some(test) => stages::autopkgtest(test, &folder, &dsc, &options),
            None => vec![
                stages::unpack(&source, &folder, &dsc, &version, &self.settings),
                stages::build(&folder, &options),
            ],
        };
        let mut texts = stages::apt_texts(provisions.index);
        let keep = (!options.kept_folders.is_empty()).then(|| {
            texts.push(keep::text());
            keep::order(source.name(), &key, &folder, options.kept_folders)
        });
        let mut order = BuildOrder {
            package: source.name().to_owned(),
            family: Rules::order(&self.settings),
            key,
            root: RootOrder {
                layers: self.base.tree.iter().cloned().collect(),
                inputs,
                texts,
                depends: provisions.depends,
                ..stages::shown()
            },
            work: None,
            fetch: None,
            stages,
            clients: stages::CLIENTS.map(str::to_owned).to_vec(),
            fakeroots: stages::FAKEROOTS.map(str::to_owned).to_vec(),
            output_folder: if test.is_some() { String::new() } else { stages::BUILD.to_owned() },
            terms: BuildTerms::default(),
            keep,
            version,
        };
        own.apply_to(&mut order);
        Ok(order)
    }

    fn test(
        &self,
        stock: &mut Stock,
        package: PackageId,
        outputs: &[Output],
    ) -> Result<TestOrder, Impossible> {
        let outputs: Vec<Output> = outputs.iter().filter(|output| is_for_machines(output)).cloned().collect();
        let own: HashMap<Candidate, &Output> = outputs
            .iter()
            .filter_map(|output| {
                let candidate = stock.universe.add_package(&output.description, Origin::Set(package.0))?;
                stock.outputs.insert(candidate, output.clone());
                Some((candidate, output))
            })
            .collect();
        let order = self.test_order(stock, package, &outputs, &own);
        for candidate in own.keys() {
            stock.universe.remove(*candidate);
            stock.outputs.remove(candidate);
        }
        order
    }

    fn test_order(
        &self,
        stock: &mut Stock,
        package: PackageId,
        outputs: &[Output],
        own: &HashMap<Candidate, &Output>,
    ) -> Result<TestOrder, Impossible> {
        let own_set: HashSet<Candidate> = own.keys().copied().collect();
        let request = |members: &[&Output]| Request {
            needs: members.iter().map(|o| format!("{} (= {})", o.name, o.version)).collect(),
            ..Request::default()
        };
        let solve = |members: &[&Output]| self.closure(stock, package, &request(members), &own_set);
        let found = together::groups(outputs.iter().collect(), solve)?;
        let (mut groups, mut before) = (Vec::new(), Provisions::default());
        let mut needed: BTreeSet<Candidate> = BTreeSet::new();
        for together::Group { members, closure } in found {
            let all = self.provisions(stock, &closure)?.depends;
            let install = all.into_iter().map(|one| format!("{}={}", one.name, one.version)).collect();
            if groups.is_empty() {
                let others = closure.iter().copied().filter(|candidate| !own.contains_key(candidate));
                let others: Vec<Candidate> = others.collect();
                if self.is_self_contained(stock, package, &others) {
                    before = self.provisions(stock, &others)?;
                }
            }
            needed.extend(closure);
            let is_extra =
                |output: &&Output| !self.in_base.contains_key(&output.name) && !stays_installed(output);
            let remove = members.iter().copied().filter(is_extra).map(|o| o.name.clone()).collect();
            groups.push(Group { install, remove });
        }
        let needed: Vec<Candidate> = needed.into_iter().collect();
        let provisions = self.provisions(stock, &needed)?;
        Ok(TestOrder {
            // No other packages are available there: any extra package that apt installed would end up in a layer
            // that other roots are based on.
            root: RootOrder {
                layers: self.base.tree.iter().cloned().collect(),
                inputs: before.inputs,
                texts: stages::apt_texts(before.index),
                depends: before.depends,
                ..stages::shown()
            },
            inputs: provisions.inputs,
            texts: stages::apt_texts(provisions.index),
            stage: stages::test(groups),
        })
    }

    /// Whether the closure without the tested outputs can be installed before them: none of it needs them.
    fn is_self_contained(&self, stock: &mut Stock, package: PackageId, others: &[Candidate]) -> bool {
        let exact = |candidate: &Candidate| {
            format!("{} (= {})", stock.universe.name(*candidate), stock.universe.version(*candidate))
        };
        let request = Request { needs: others.iter().map(exact).collect(), ..Request::default() };
        let alone = self.closure(stock, package, &request, &HashSet::new());
        alone.is_ok_and(|alone| alone.iter().all(|candidate| others.contains(candidate)))
    }
}
