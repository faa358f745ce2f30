//! Runs make in the directories of a tree on other machines.

use super::root_make::SCRIPT;
use kilnyard_ecosystem::pkgsrc::scan_file::is_location;
use kilnyard_ecosystem::pkgsrc::stages::{TREE, environment, texts};
use kilnyard_ecosystem::pkgsrc::tree::{Make, OPTION_CACHE_VARIABLE, TimeLimit};
use kilnyard_ecosystem::pkgsrc::{Rules, Settings, TREE_FOLDER, shown};
use kilnyard_model::order::{
    Account, BuildOrder, BuildTerms, CommandOrder, Key, RootOrder, Stage, StageOrder,
};
use kilnyard_process::Captured;
use kilnyard_yard::helpers::Helpers;
use std::io;
use std::sync::atomic::AtomicBool;

/// Makes the folder of make's option cache, then runs make as [`SCRIPT`] does. Each root has a cache of its own.
const CACHE: &str = "/tmp/kilnyard-options";

/// See the module documentation.
pub struct HelpedMake<'a> {
    helpers: &'a dyn Helpers,
    settings: Settings,
    time_limit: TimeLimit,
    root: RootOrder,
}

impl<'a> HelpedMake<'a> {
    /// The same make as on this machine.
    pub fn new(helpers: &'a dyn Helpers, settings: &Settings, time_limit: TimeLimit) -> HelpedMake<'a> {
        let mut root = shown(settings);
        root.folders.retain(|folder| folder.name == TREE_FOLDER);
        root.layers.clone_from(&settings.layers);
        root.texts = texts(settings);
        HelpedMake { helpers, settings: settings.clone(), time_limit, root }
    }
}

impl Make for HelpedMake<'_> {
    fn run(&self, directory: &str, arguments: &[&str], cancel: &AtomicBool) -> io::Result<Captured> {
        let script = format!("mkdir -p {CACHE}\n{SCRIPT}");
        let words = ["/bin/sh", "-c", &script, "sh", &self.settings.make];
        let mut environment = environment(&self.settings);
        environment.push((OPTION_CACHE_VARIABLE.to_owned(), CACHE.to_owned()));
        if is_location(directory) {
            self.settings.packages.of(directory).add_environment(&mut environment);
        }
        let command = CommandOrder {
            arguments: words.iter().chain(arguments).map(|word| (*word).to_owned()).collect(),
            account: Account::Root,
            directory: format!("{TREE}/{directory}"),
            environment,
        };
        let order = BuildOrder {
            package: directory.to_owned(),
            version: String::new(),
            family: Rules::order(&self.settings),
            key: Key { digest: String::new(), lines: Vec::new() },
            root: self.root.clone(),
            work: None,
            fetch: None,
            stages: vec![StageOrder { stage: Stage::Unpack, commands: vec![command] }],
            clients: Vec::new(),
            fakeroots: Vec::new(),
            output_folder: String::new(),
            keep: None,
            terms: BuildTerms {
                wall_seconds_max: Some(self.time_limit.seconds_max),
                ..BuildTerms::default()
            },
        };
        self.helpers.run(order, cancel)
    }

    fn time_limit(&self) -> TimeLimit {
        self.time_limit
    }

    fn name(&self) -> String {
        self.settings.make.clone()
    }
}
