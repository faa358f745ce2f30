//! The commands of each stage.
//!
//! Everything a root needs is in [`INPUTS`], read-only: the source's files and the binary packages of the exact
//! closure. `/kilnyard/texts` has a small `Packages` index of these alone. apt does the installing: it knows the
//! order of unpacking and configuring, and with a few hundred packages in its index it costs next to nothing.

use super::autopkgtest::{Run, Test};
use super::keep;
use super::settings::Settings;
use super::source::{Parts, Source};
use super::version;
use crate::TEXTS;
use kilnyard_model::order::{Account, CommandOrder, InputText, JOBS, RootOrder, Stage, StageOrder};
use std::collections::BTreeSet;

/// Folder of the inputs inside a root.
pub const INPUTS: &str = "/kilnyard/inputs";
/// Folder where sources are unpacked and built; the same in every root.
pub const BUILD: &str = "/build";
/// Programs that support jobservers.
pub(super) const CLIENTS: [&str; 2] = ["/usr/bin/make", "/usr/bin/ninja"];

/// Possible targets of the link `/usr/bin/fakeroot`, which dpkg-buildpackage calls for the targets that
/// `Rules-Requires-Root` lists.
pub(super) const FAKEROOTS: [&str; 2] = ["/usr/bin/fakeroot-sysv", "/usr/bin/fakeroot-tcp"];

/// The folder that apt uses as a repository: its index is among the texts and refers to files of the inputs.
const REPOSITORY: &str = "/kilnyard";
/// The path of the inputs' folder in the index.
pub(super) const POOL: &str = "inputs";
/// File name of the inputs' index, as apt expects it.
pub(super) const PACKAGES: &str = "Packages";
const SOURCES_LIST: &str = "sources.list";
const APT_CONF: &str = "apt.conf";

/// apt's configuration in the root: the index, the sources list and `apt.conf`.
pub(super) fn apt_texts(packages: String) -> Vec<InputText> {
    let text = |name: &str, text: String| InputText { name: name.to_owned(), text };
    vec![
        text(PACKAGES, packages),
        text(SOURCES_LIST, format!("deb [trusted=yes] file:{REPOSITORY} texts/\n")),
        text(
            APT_CONF,
            format!(
                "Dir::Etc::SourceList \"{TEXTS}/{SOURCES_LIST}\";\n\
                 Dir::Etc::SourceParts \"/dev/null\";\n\
                 APT::Sandbox::User \"root\";\n\
                 APT::Install-Recommends \"false\";\n\
                 APT::Get::Assume-Yes \"true\";\n\
                 APT::Get::allow-downgrades \"true\";\n\
                 Acquire::Languages \"none\";\n\
                 Dpkg::Use-Pty \"false\";\n\
                 DPkg::Options {{ \"--force-unsafe-io\"; \"--force-confnew\"; }};\n\
                 quiet \"1\";\n"
            ),
        ),
    ]
}

/// The common part of every root of this family, apart from layers, inputs and installed packages: the folders that
/// the builder may write to, either world-writable or its own.
pub fn shown() -> RootOrder {
    RootOrder { open: [BUILD, "/tmp", "/var/tmp"].map(str::to_owned).to_vec(), ..RootOrder::default() }
}

fn as_root(arguments: &[&str], more: Vec<String>) -> CommandOrder {
    CommandOrder {
        arguments: arguments.iter().map(|a| (*a).to_owned()).chain(more).collect(),
        account: Account::Root,
        directory: "/".to_owned(),
        environment: vec![
            ("DEBIAN_FRONTEND".to_owned(), "noninteractive".to_owned()),
            ("APT_CONFIG".to_owned(), format!("{TEXTS}/{APT_CONF}")),
            ("HOME".to_owned(), "/root".to_owned()),
        ],
    }
}

fn as_builder(script: &str, more: &[&str], environment: Vec<(String, String)>) -> CommandOrder {
    let arguments = ["/bin/sh", "-eu", "-c", script, "sh"].into_iter().chain(more.iter().copied());
    CommandOrder {
        arguments: arguments.map(str::to_owned).collect(),
        account: Account::Builder,
        directory: BUILD.to_owned(),
        environment,
    }
}

/// Unpacks a source and adds the rebuild's entry on top of its changelog. The entry repeats the date of the one
/// below it, so a second rebuild has the same `SOURCE_DATE_EPOCH`.
const UNPACK: &str = r#"
dsc=$1 folder=$2 name=$3 version=$4 maintainer=$5 keys=$6
dpkg-source --no-check -x "$dsc" "$folder"
cd "$folder"
date=$(dpkg-parsechangelog -S Date)
release=$(dpkg-parsechangelog -S Distribution)
{
  printf '%s (%s) %s; %s\n\n' "$name" "$version" "${release%% *}" "$keys"
  printf '  * Rebuilt by Kilnyard, without changes to the source.\n\n'
  printf ' -- %s  %s\n\n' "$maintainer" "$date"
  cat debian/changelog
} > ../changelog.new
cat ../changelog.new > debian/changelog
rm ../changelog.new
"#;

/// The folder of a source in its root. Kept work contains this path, so it has no version then.
pub(super) fn source_folder(name: &str, source: &Source, kept_folders: &[String]) -> String {
    match kept_folders {
        [] => format!("{BUILD}/{name}-{}", version::without_epoch(source.version())),
        _ => format!("{BUILD}/{name}"),
    }
}

/// A shell pattern that matches the one folder below [`BUILD`] that holds a source.
pub fn source_pattern() -> String {
    format!("{BUILD}/*/debian/..")
}

pub(super) fn unpack(
    source: &Source,
    folder: &str,
    dsc: &str,
    rebuilt: &str,
    settings: &Settings,
) -> StageOrder {
    let dsc = format!("{INPUTS}/{dsc}");
    // A binary-only entry keeps the version of the source separate (`${source:Version}`), and the archive's
    // architecture-independent packages have that version. Where these are built too, all packages get the new one.
    let keys = match settings.parts {
        Parts::Dependent => "urgency=low, binary-only=yes",
        Parts::All => "urgency=low",
    };
    let more = [dsc.as_str(), folder, source.name(), rebuilt, &settings.maintainer, keys];
    StageOrder { stage: Stage::Unpack, commands: vec![as_builder(UNPACK, &more, Vec::new())] }
}

/// Removes apt's cached data about this repository: the next build has a different one.
const FORGET: &str = "rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin";

/// Installs packages, given as `name=version` or `name:architecture=version`, with apt.
pub(super) fn install(wanted: Vec<String>) -> Vec<CommandOrder> {
    let architectures: BTreeSet<String> =
        wanted.iter().filter_map(|one| Some(one.split_once('=')?.0.split_once(':')?.1.to_owned())).collect();
    let add = |one: String| as_root(&["dpkg", "--add-architecture"], vec![one]);
    let mut commands: Vec<CommandOrder> = architectures.into_iter().map(add).collect();
    commands.extend([
        as_root(&["apt-get", "update"], Vec::new()),
        as_root(&["apt-get", "install"], wanted),
        as_root(&["/bin/sh", "-eu", "-c", FORGET], Vec::new()),
    ]);
    commands
}

/// Options for building a source.
pub(super) struct BuildOptions<'a> {
    pub all_parts: bool,
    pub runs_checks: bool,
    pub profiles: &'a [String],
    /// Additional words of `DEB_BUILD_OPTIONS`.
    pub words: &'a [String],
    /// The architecture to cross-build for, if any.
    pub host: Option<&'a str>,
    /// Folders of the source that the machine keeps for the next build.
    pub kept_folders: &'a [String],
}

/// Builds the source in a folder.
pub(super) fn build(folder: &str, options: &BuildOptions) -> StageOrder {
    let mut build_options = format!("parallel={JOBS}");
    if !options.runs_checks {
        build_options.push_str(" nocheck");
    }
    for word in options.words {
        build_options.push(' ');
        build_options.push_str(word);
    }
    let mut environment = vec![("DEB_BUILD_OPTIONS".to_owned(), build_options)];
    if !options.profiles.is_empty() {
        environment.push(("DEB_BUILD_PROFILES".to_owned(), options.profiles.join(" ")));
    }
    let parts = if options.all_parts { "-b" } else { "-B" };
    let script = r#"cd "$1"; shift; exec dpkg-buildpackage --no-sign "$@""#;
    let mut words = vec![folder, parts];
    let hook = (!options.kept_folders.is_empty()).then(|| keep::hook(folder, options.kept_folders));
    words.extend(hook.as_deref());
    let host = options.host.map(|host| format!("-a{host}"));
    if let (Some(option), Some(host)) = (&host, options.host) {
        words.push(option);
        // Answers to configure tests that would have to run a program of the host, from the package dpkg-cross.
        environment.push(("CONFIG_SITE".to_owned(), format!("/etc/dpkg-cross/cross-config.{host}")));
    }
    StageOrder { stage: Stage::Build, commands: vec![as_builder(script, &words, environment)] }
}

/// Runs a test of a source, and judges it by autopkgtest's rules.
const RUN_TEST: &str = r#"
folder=$1 restrictions=" $2 "
shift 2
cd "$folder"
has() { case $restrictions in *" $1 "*) return 0 ;; *) return 1 ;; esac }
work=$(mktemp -d)
AUTOPKGTEST_TMP=$work/tmp AUTOPKGTEST_ARTIFACTS=$work/artifacts
ADTTMP=$AUTOPKGTEST_TMP ADT_ARTIFACTS=$AUTOPKGTEST_ARTIFACTS
export AUTOPKGTEST_TMP AUTOPKGTEST_ARTIFACTS ADTTMP ADT_ARTIFACTS
mkdir "$AUTOPKGTEST_TMP" "$AUTOPKGTEST_ARTIFACTS"
# Archives need not keep the mode of a test.
if [ -f "$1" ]; then chmod +x "$1"; fi
status=0
if has allow-stderr; then
  "$@" || status=$?
else
  "$@" 2> "$work/stderr" || status=$?
  cat "$work/stderr" >&2
fi
if [ "$status" = 77 ] && has skippable; then echo "I: the test skipped itself"; exit 0; fi
if [ "$status" = 0 ] && [ -s "$work/stderr" ]; then
  echo "E: the test wrote to standard error, and does not have the restriction allow-stderr"
  status=1
elif [ "$status" != 0 ]; then
  echo "E: the test exited with status $status"
fi
if [ "$status" != 0 ] && has flaky; then echo "I: it is flaky: its failure does not count"; exit 0; fi
exit "$status"
"#;

/// The stages of a test: its source is unpacked, built if the test needs that, and the test is run.
pub(super) fn autopkgtest(test: &Test, folder: &str, dsc: &str, options: &BuildOptions) -> Vec<StageOrder> {
    let dsc = format!("{INPUTS}/{dsc}");
    let unpack = as_builder(r#"exec dpkg-source --no-check -x "$1" "$2""#, &[&dsc, folder], Vec::new());
    let mut stages = vec![StageOrder { stage: Stage::Unpack, commands: vec![unpack] }];
    if test.is("build-needed") {
        let environment = vec![("DEB_BUILD_OPTIONS".to_owned(), format!("parallel={JOBS} nocheck"))];
        let build = as_builder(r#"cd "$1"; exec debian/rules build"#, &[folder], environment);
        stages.push(StageOrder { stage: Stage::Build, commands: vec![build] });
    }
    let restrictions: Vec<&str> = test.restrictions.iter().map(String::as_str).collect();
    let restrictions = restrictions.join(" ");
    let file;
    let run: Vec<&str> = match &test.run {
        Run::File(path) => {
            file = format!("./{path}");
            vec![&file]
        }
        Run::Command(command) => vec!["bash", "-ec", command],
    };
    let mut words = vec![folder, &restrictions];
    words.extend(run);
    let command = match test.is("needs-root") {
        true => {
            let words = words.into_iter().map(str::to_owned).collect();
            as_root(&["/bin/sh", "-eu", "-c", RUN_TEST, "sh"], words)
        }
        false => as_builder(RUN_TEST, &words, Vec::new()),
    };
    let mut command = command;
    // As on a machine of users: none of Kilnyard's settings, and those of the source's own table.
    command.environment.retain(|(name, _)| name != "APT_CONFIG");
    if !options.profiles.is_empty() {
        command.environment.push(("DEB_BUILD_PROFILES".to_owned(), options.profiles.join(" ")));
    }
    stages.push(StageOrder { stage: Stage::Test, commands: vec![command] });
    stages
}

/// Checks that the packages of a group are gone or have only configuration files left, and that nothing is broken.
const CHECK_REMOVED: &str = r#"
for name in "$@"; do
  status=$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null || true)
  case "$status" in ''|not-installed|config-files) ;; *) echo "E: $name is still $status"; exit 1 ;; esac
done
audit=$(dpkg --audit)
if [ -n "$audit" ]; then echo "E: dpkg finds faults:"; echo "$audit"; exit 1; fi
"#;

/// A group of outputs that are installed, checked and removed together.
pub(super) struct Group {
    /// `name=version` of every package to install for the group.
    pub install: Vec<String>,
    /// Names of the outputs that can be removed again: those that the base does not need.
    pub remove: Vec<String>,
}

pub(super) fn test(groups: Vec<Group>) -> StageOrder {
    let mut commands = vec![as_root(&["apt-get", "update"], Vec::new())];
    for group in groups {
        commands.push(as_root(&["apt-get", "install"], group.install));
        commands.push(as_root(&["apt-get", "check"], Vec::new()));
        if !group.remove.is_empty() {
            commands.push(as_root(&["apt-get", "purge"], group.remove.clone()));
        }
        commands.push(as_root(&["/bin/sh", "-eu", "-c", CHECK_REMOVED, "sh"], group.remove));
    }
    StageOrder { stage: Stage::Test, commands }
}
