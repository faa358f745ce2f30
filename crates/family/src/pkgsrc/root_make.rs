//! Runs make in a root, so that its output depends only on the tree and the layers.

use crate::pkgsrc::Pkgsrc;
use kilnyard_ecosystem::pkgsrc::Settings;
use kilnyard_ecosystem::pkgsrc::scan_file::is_location;
use kilnyard_ecosystem::pkgsrc::stages::{OPTION_CACHE, TREE, environment, sealed, texts};
use kilnyard_ecosystem::pkgsrc::tree::{Make, OPTION_CACHE_VARIABLE, OUTPUT_BYTES_MAX, TimeLimit};
use kilnyard_model::order::{Account, CommandOrder};
use kilnyard_process::{CaptureEnd, Captured, End, Limits};
use kilnyard_root::IdMap;
use kilnyard_worker::{RootFolder, ShownFolder};
use kilnyard_yard::config::seconds_of;
use kilnyard_yard::error::{Context, Kind, Result};
use kilnyard_yard::yard::Yard;
use std::io;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

/// Runs make and prints its standard error only if it fails: the output and the errors share one pipe.
pub(super) const SCRIPT: &str = r#"
"$@" 2> /tmp/kilnyard-said && exit 0
code=$?
echo
cat /tmp/kilnyard-said
exit $code
"#;

/// A pool of roots for make; each root runs one make at a time.
pub struct RootMake {
    settings: Settings,
    time_limit: TimeLimit,
    roots: Mutex<Vec<RootFolder>>,
}

impl RootMake {
    /// Makes `count` roots, and removes those that an earlier process left.
    pub fn new(
        yard: &Yard,
        pkgsrc: &Pkgsrc,
        settings: &Settings,
        ids: &IdMap,
        count: u32,
    ) -> Result<RootMake> {
        let failed = "make the roots that the tree is scanned in";
        let cache = ShownFolder { source: yard.path("roots/scan-options"), inside: OPTION_CACHE.to_owned() };
        let tree = ShownFolder { source: pkgsrc.tree.clone(), inside: TREE.to_owned() };
        let options = RootFolder::at(&yard.folder, "scan-options", ids, &[]);
        options.remove_or_set_aside();
        fs_err::create_dir_all(&cache.source).context(Kind::Machine, failed)?;
        kilnyard_root::probe::give_to_root(&cache.source, ids).context(Kind::Machine, failed)?;
        let making = yard.config.roots.on_disk();
        let layers = yard.trees().ensure(&settings.layers).context(Kind::Machine, failed)?;
        let mut roots = vec![];
        for number in 0..count {
            let name = format!("scan-{number}");
            RootFolder::at(&yard.folder, &name, ids, &[]).remove_or_set_aside();
            let root = RootFolder::create(&yard.folder, &name, ids, &layers, &making);
            let root = root.context(Kind::Machine, failed)?.showing(std::slice::from_ref(&tree));
            let root = root.sealing(&sealed(settings)).writing_to(&cache);
            root.provide(&[], &texts(settings), &|_| Default::default()).context(Kind::Machine, failed)?;
            roots.push(root);
        }
        let time_limit = TimeLimit {
            seconds_max: seconds_of(pkgsrc.scan_minutes_max),
            setting: "scan-minutes-max in kilnyard.toml",
        };
        Ok(RootMake { settings: settings.clone(), time_limit, roots: Mutex::new(roots) })
    }

    /// Removes the roots.
    pub fn remove(self, yard: &Yard, ids: &IdMap) {
        let roots = self.roots.into_inner().unwrap_or_default();
        let options = RootFolder::at(&yard.folder, "scan-options", ids, &[]);
        for root in roots.iter().chain([&options]) {
            root.remove_or_set_aside();
        }
    }

    fn run_in(
        &self,
        root: &RootFolder,
        directory: &str,
        arguments: &[&str],
        cancel: &AtomicBool,
    ) -> io::Result<Captured> {
        let script = ["/bin/sh", "-c", SCRIPT, "sh", &self.settings.make];
        let mut environment = environment(&self.settings);
        environment.push((OPTION_CACHE_VARIABLE.to_owned(), OPTION_CACHE.to_owned()));
        // Categories are listed without the settings of any package.
        if is_location(directory) {
            self.settings.packages.of(directory).add_environment(&mut environment);
        }
        let order = CommandOrder {
            arguments: script.iter().chain(arguments).map(|word| (*word).to_owned()).collect(),
            account: Account::Root,
            directory: format!("{TREE}/{directory}"),
            environment,
        };
        let limits = Limits::of_wall(self.time_limit.seconds_max as f64);
        let mut output = crate::captured::Captured::new(OUTPUT_BYTES_MAX as usize);
        let sandbox = root.sandbox(&order);
        let outcome = kilnyard_process::run(&sandbox, &mut output, limits, cancel, None, &mut |_| {});
        let end = match outcome.end {
            End::Exit(code) => CaptureEnd::Exit(code),
            End::Limit(..) => CaptureEnd::WallLimit,
            End::Cancelled => CaptureEnd::Cancelled,
            End::LogFailed(_) if output.is_over => CaptureEnd::OutputLimit,
            End::LogFailed(error) | End::SandboxFailed(error) => return Err(io::Error::other(error)),
        };
        Ok(Captured { end, output: output.bytes, errors: Vec::new() })
    }
}

impl Make for RootMake {
    fn run(&self, directory: &str, arguments: &[&str], cancel: &AtomicBool) -> io::Result<Captured> {
        let root = self.roots.lock().ok().and_then(|mut roots| roots.pop());
        let root = root.ok_or_else(|| io::Error::other("all roots are in use"))?;
        let captured = self.run_in(&root, directory, arguments, cancel);
        if let Ok(mut roots) = self.roots.lock() {
            roots.push(root);
        }
        captured
    }

    fn time_limit(&self) -> TimeLimit {
        self.time_limit
    }

    fn name(&self) -> String {
        self.settings.make.clone()
    }
}
