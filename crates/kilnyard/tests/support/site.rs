//! A mirror of a site: `kilnyard mirror serve`.

use super::{Ended, until};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// A mirror that serves.
pub struct SiteMirror {
    pub folder: PathBuf,
    pub url: String,
    process: Child,
}

impl SiteMirror {
    /// Serves with this configuration, in this folder.
    pub fn start(folder: PathBuf, configuration: &str) -> SiteMirror {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("mirror.toml"), format!("listen = \"127.0.0.1:0\"\n{configuration}")).unwrap();
        let (process, url) = SiteMirror::serve(&folder, &[]);
        SiteMirror { folder, url, process }
    }

    fn serve(folder: &std::path::Path, options: &[&str]) -> (Child, String) {
        let log = folder.join("log");
        let mut command = super::command();
        command.args(["mirror", "serve"]).args(options).current_dir(folder);
        super::quiet(&mut command);
        command.stdout(Stdio::null()).stderr(fs::File::create(&log).unwrap());
        let process = command.spawn().unwrap();
        let said = || fs::read_to_string(&log).unwrap();
        until("the mirror listens", || said().contains("Ctrl-C"));
        let said = said();
        let url = said.split("listens at ").nth(1).and_then(|rest| rest.split("/;").next()).unwrap();
        (process, url.to_owned())
    }

    /// Serves again at the same address.
    pub fn start_again(&mut self) {
        let address = self.url.trim_start_matches("http://").to_owned();
        self.process = SiteMirror::serve(&self.folder, &["--listen", &address]).0;
    }

    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    /// `kilnyard mirror` with these arguments, next to it.
    pub fn run(&self, arguments: &[&str]) -> Ended {
        let mut command = super::command();
        command.arg("mirror").args(arguments).current_dir(&self.folder);
        super::quiet(&mut command);
        command.output().unwrap().into()
    }

    /// The paths of its files.
    pub fn paths(&self) -> Vec<String> {
        let listed = self.run(&["list", "--json"]).exits(0).json();
        listed.as_array().unwrap().iter().map(|file| file["path"].as_str().unwrap().to_owned()).collect()
    }
}

impl Drop for SiteMirror {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
