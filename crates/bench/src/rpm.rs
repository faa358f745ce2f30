//! The lists of an RPM repository of 2,000 packages after one has changed, compared with `createrepo_c --update`.

use crate::Trial;
use crate::child::all_cpu_seconds;
use crate::error::{Context, Error, Kind, Result};
use crate::figures::{Report, Series, Unit, ratios};
use crate::scratch::Scratch;
use kilnyard_ecosystem::OutputBounds;
use kilnyard_ecosystem::rpm::{Entry, Lists, POOL, PackageFile};
use serde_json::{Map, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Number of packages.
const PACKAGES: u32 = 2000;
/// The most of the other program's CPU time.
const SHARE_MAX: f64 = 1.0 / 3.0;
const FAILED: &str = "make packages for a benchmark";
/// The package that changes.
const CHANGED: &str = "changed-1-1.noarch.rpm";

/// Runs the benchmark with packages that rpmbuild makes.
pub fn measure(trial: &Trial<'_>) -> Result<Report> {
    let scratch = Scratch::within(trial.temporary, None)?;
    let (packages, kept) = (scratch.path("packages"), scratch.path("kept"));
    trial.say(format_args!("making {PACKAGES} packages"));
    fs_err::create_dir(&packages).context(Kind::Machine, FAILED)?;
    fs_err::create_dir(&kept).context(Kind::Machine, FAILED)?;
    build(&scratch, &packages, "many", &subpackages(PACKAGES - 1))?;
    build(&scratch, &packages, "changed", &package("changed", "0"))?;
    other(&packages, &[])?;
    for path in files(&packages)? {
        keep(&path, &kept)?;
    }
    let (mut own_seconds, mut other_seconds) = (Vec::new(), Vec::new());
    for pair in 1..=trial.pairs {
        crate::check_interrupt()?;
        build(&scratch, &packages, "changed", &package("changed", &pair.to_string()))?;
        let before = all_cpu_seconds();
        own(&packages, &kept, &scratch.path("lists"))?;
        own_seconds.push(all_cpu_seconds() - before);
        let before = all_cpu_seconds();
        other(&packages, &["--update"])?;
        other_seconds.push(all_cpu_seconds() - before);
    }
    let share =
        Series::new("ratio", "CPU, own / createrepo_c's", Unit::Ratio, ratios(&own_seconds, &other_seconds));
    let is_met = share.median() <= SHARE_MAX;
    let mut facts = Map::new();
    facts.insert("packages".to_owned(), json!(PACKAGES));
    Ok(Report {
        name: "metadata",
        series: vec![
            Series::new("own_cpu_seconds", "lists after one change, CPU", Unit::Seconds, own_seconds),
            Series::new("other_cpu_seconds", "createrepo_c --update, CPU", Unit::Seconds, other_seconds),
            share,
        ],
        facts,
        notes: vec![format!("{PACKAGES} packages, with one file each")],
        target: "at most a third of the CPU time of createrepo_c --update".to_owned(),
        is_met: Some(is_met),
    })
}

/// A spec file of one package, whose file has these words.
fn package(name: &str, words: &str) -> String {
    format!(
        "Name: {name}\nVersion: 1\nRelease: 1\nSummary: A package\nLicense: MIT\nBuildArch: noarch\n%description\nA package.\n\
         %install\nmkdir -p %{{buildroot}}/usr/share/{name}\necho '{words}' > %{{buildroot}}/usr/share/{name}/words\n\
         %files\n/usr/share/{name}\n"
    )
}

/// A spec file of this many packages.
fn subpackages(count: u32) -> String {
    let all = |text: &dyn Fn(u32) -> String| (0..count).map(text).collect::<String>();
    let described = all(&|number| {
        format!(
            "%package p{number}\nSummary: Package {number}\nRequires: changed\n%description p{number}\nPackage {number}.\n"
        )
    });
    let listed = all(&|number| format!("%files p{number}\n/usr/share/many/{number}\n"));
    format!(
        "Name: many\nVersion: 1\nRelease: 1\nSummary: Packages\nLicense: MIT\nBuildArch: noarch\n%description\nPackages.\n{described}\
         %install\nmkdir -p %{{buildroot}}/usr/share/many; cd %{{buildroot}}/usr/share/many\n\
         for number in $(seq 0 {}); do echo $number > $number; done\n{listed}",
        count - 1
    )
}

/// Builds a spec file, and moves its packages to a folder.
fn build(scratch: &Scratch, packages: &Path, name: &str, spec: &str) -> Result<()> {
    let (top, path) = (scratch.path("rpm"), scratch.path(&format!("{name}.spec")));
    fs_err::write(&path, spec).context(Kind::Machine, FAILED)?;
    let define = format!("_topdir {}", top.display());
    run(Command::new("rpmbuild").args(["-bb", "--quiet", "--define", &define]).arg(&path), "rpm")?;
    for built in files(&top.join("RPMS/noarch"))? {
        let to = packages.join(built.file_name().unwrap_or_default());
        fs_err::rename(built, to).context(Kind::Machine, FAILED)?;
    }
    Ok(())
}

fn run(command: &mut Command, package: &'static str) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::new(Kind::Machine, format!("{name} failed: {status}"))),
        Err(error) => {
            let error = Error::new(Kind::Machine, format!("failed to run {name}: {error}"));
            Err(error.hint(kilnyard_yard::remedy::Remedy::packages(&[package])))
        }
    }
}

/// The package files of a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs_err::read_dir(folder).context(Kind::Machine, FAILED)?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| path.extension().is_some_and(|ending| ending == "rpm"));
    files.sort();
    Ok(files)
}

fn other(packages: &Path, options: &[&str]) -> Result<()> {
    run(
        Command::new("createrepo_c").args(["--quiet", "--workers=1"]).args(options).arg(packages),
        "createrepo-c",
    )
}

/// Reads a package, and keeps its entry, as publications do.
fn keep(path: &Path, kept: &Path) -> Result<Entry> {
    let failed = "read a package";
    let file = PackageFile::read(path, OutputBounds::WIDEST).context(Kind::Machine, failed)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let entry = Entry::new(&file, &format!("{POOL}/{name}"));
    let text = serde_json::to_vec(&entry).context(Kind::Machine, failed)?;
    fs_err::write(kept.join(&name), text).context(Kind::Machine, failed)?;
    Ok(entry)
}

/// The lists of all packages, of which one is read again.
fn own(packages: &Path, kept: &Path, to: &Path) -> Result<()> {
    let failed = "write the lists of a repository";
    let changed = packages.join(CHANGED);
    let mut entries = Vec::new();
    for path in files(packages)? {
        entries.push(match path == changed {
            true => keep(&path, kept)?,
            false => {
                let text = fs_err::read(kept.join(path.file_name().unwrap_or_default()));
                serde_json::from_slice(&text.context(Kind::Machine, failed)?)
                    .context(Kind::Machine, failed)?
            }
        });
    }
    let (lists, top) = Lists::new(&entries).files().context(Kind::Machine, failed)?;
    fs_err::create_dir_all(to).context(Kind::Machine, failed)?;
    for list in lists {
        fs_err::write(to.join(&list.name), list.content).context(Kind::Machine, failed)?;
    }
    fs_err::write(to.join("repomd.xml"), top).context(Kind::Machine, failed)
}
