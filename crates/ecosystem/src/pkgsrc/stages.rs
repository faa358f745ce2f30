//! The commands of each stage, with the semantics of pbulk's `pkg-build`.
//!
//! The tree is mounted read-only, always at the same place; the kit is a layer below the root, so a build begins
//! with an untouched prefix and needs no clean-up. All writes go below `/build`.

use super::own_settings;
use super::settings::Settings;
use crate::{RESOLV_CONF, TEXTS};
use kilnyard_model::order::{Account, CommandOrder, InputText, JOBS, Stage, StageOrder};
use std::path::Path;

/// Folder of the tree inside a root.
pub const TREE: &str = "/usr/pkgsrc";
/// Folder of the distfiles inside a root.
pub const DISTFILES: &str = "/kilnyard/distfiles";
/// Folder of the inputs inside a root.
pub const INPUTS: &str = "/kilnyard/inputs";
/// Folder in which packages are built.
pub(super) const BUILD: &str = "/build";
/// Folder of the packages' work folders (`WRKOBJDIR`).
const WORK: &str = "/build/work";
/// Folder of the finished binary packages.
pub const PACKAGES: &str = "/build/packages/All";
/// Folder inside a root in which make caches build options while a tree is scanned.
pub const OPTION_CACHE: &str = "/kilnyard/options";

/// The variables with which a tree's make restarts itself once the distfiles and the dependencies are there
/// (`mk/bsd.pkg.barrier.mk`). Passing them saves a run of make that only finds that out. A tree without a barrier
/// ignores them.
const BEHIND_BARRIER: [&str; 2] = ["_PKGSRC_BARRIER=yes", "ALLOW_VULNERABLE_PACKAGES="];

/// A makefile that is read after that of a package, and its target: everything before the barrier, and the marker
/// that the barrier was passed; in a tree without a barrier, the check of the distfiles.
const UNPACK_MK: &str = "unpack.mk";
const UNPACK_TEXT: &str = "kilnyard-unpack: .PHONY ${_BARRIER_PRE_TARGETS:Uchecksum} ${_COOKIE.barrier:U}\n";
const UNPACK: &str = "kilnyard-unpack";

/// Folders with the system's programs, headers and libraries.
const SYSTEM: [&str; 7] =
    ["/usr/bin", "/usr/include", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/sbin", "/usr/share"];

/// Lists the files of the prefix, except for the package database.
const LIST: &str = r#"find "$1" -path "$1/pkgdb*" -prune -o ! -type d -print | sort > /tmp/kilnyard-before"#;
/// Fails if there are new files that no installed package owns: dependencies may have come with the package, and
/// stay. Scripts of a package create such files, and `pkg_delete` only knows its packing list.
const COMPARE: &str = r#"find "$1" -path "$1/pkgdb*" -prune -o ! -type d -print | sort > /tmp/kilnyard-after
for package in $(pkg_info | cut -d" " -f1); do pkg_info -qL "$package"; done | sort -u > /tmp/kilnyard-owned
left=$(comm -13 /tmp/kilnyard-before /tmp/kilnyard-after | comm -23 - /tmp/kilnyard-owned)
if [ -n "$left" ]; then
  echo "$left" | sed 's/^/ERROR: left behind by pkg_delete: /'
  exit 1
fi"#;

const MK_CONF: &str = "mk.conf";

/// The properties of a package that its commands depend on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recipe {
    /// Directory of the package in the tree.
    pub location: String,
    /// Assignments that select one of several packages in a directory.
    pub selection: Vec<String>,
    /// The stage before which the package's users and groups are created, as a pattern of make targets; empty if it
    /// has none.
    pub usergroup_phase: String,
    /// Whether root has to install and package it (`USE_DESTDIR=destdir`).
    pub installs_as_root: bool,
    /// Whether it is part of the bootstrap kit.
    pub is_bootstrap: bool,
}

/// A shell pattern that matches the folder in which a package's distfiles were unpacked, given the package's name.
pub fn source_pattern(package: &str) -> String {
    // The name of one of several packages in a directory follows the directory's name.
    let location = package.split(':').next().unwrap_or(package);
    format!("{WORK}/{location}/work/*/")
}

/// The small files of a root: `mk.conf`, if the user has settings, and those that it includes.
pub fn texts(settings: &Settings) -> Vec<InputText> {
    let (own, mut texts) = own_settings::texts(&settings.packages);
    if settings.mk_conf.is_empty() && own.is_empty() {
        return Vec::new();
    }
    // The kit's own settings come first, so that the user's can override them, and those of single packages last.
    let mut text = format!(".-include \"{}/etc/mk.conf\"\n{}", settings.prefix, settings.mk_conf);
    if !own.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(&own);
    texts.insert(0, InputText { name: MK_CONF.to_owned(), text });
    texts
}

/// The system folders that no package writes to: all packages install below the prefix, `/etc` and `/var`.
pub fn sealed(settings: &Settings) -> Vec<String> {
    let prefix = Path::new(&settings.prefix);
    let is_apart = |folder: &&&str| !prefix.starts_with(folder) && !Path::new(folder).starts_with(prefix);
    SYSTEM.iter().filter(is_apart).map(|folder| (*folder).to_owned()).collect()
}

/// The environment of every command in a root.
pub fn environment(settings: &Settings) -> Vec<(String, String)> {
    let prefix = &settings.prefix;
    let variable = |name: &str, value: String| (name.to_owned(), value);
    let mut environment = vec![
        variable("PATH", format!("{prefix}/sbin:{prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin")),
        variable("LC_ALL", "C".to_owned()),
        variable("BATCH", "1".to_owned()),
    ];
    if !texts(settings).is_empty() {
        // Without user settings, make finds those of its kit by itself.
        environment.push(variable("MAKECONF", format!("{TEXTS}/{MK_CONF}")));
    }
    environment
}

/// Programs that support jobservers: those of the tree itself, and those of the machine that it uses instead.
pub(super) fn clients(prefix: &str) -> Vec<String> {
    let of_the_tree = ["gmake", "ninja"].map(|name| format!("{prefix}/bin/{name}"));
    let of_the_machine = ["/usr/bin/make", "/usr/bin/gmake", "/usr/bin/ninja"].map(str::to_owned);
    of_the_tree.into_iter().chain(of_the_machine).collect()
}

/// A command of the package tools, run as root; `environment` comes from [`environment`].
fn as_root(
    mut environment: Vec<(String, String)>,
    program: &str,
    arguments: impl IntoIterator<Item = String>,
) -> CommandOrder {
    environment.push(("PKG_PATH".to_owned(), INPUTS.to_owned()));
    CommandOrder {
        arguments: std::iter::once(program.to_owned()).chain(arguments).collect(),
        account: Account::Root,
        directory: "/".to_owned(),
        environment,
    }
}

/// Installs binary packages, given by the file names of inputs, with their dependencies from the inputs.
pub(super) fn install<'a>(
    environment: Vec<(String, String)>,
    files: impl IntoIterator<Item = &'a String>,
) -> Option<CommandOrder> {
    let files: Vec<String> = files.into_iter().map(|file| format!("{INPUTS}/{file}")).collect();
    (!files.is_empty()).then(|| as_root(environment, "pkg_add", files))
}

/// Makes the commands of one package.
pub(super) struct Commands<'a> {
    pub settings: &'a Settings,
    pub recipe: &'a Recipe,
}

impl Commands<'_> {
    fn make(&self, account: Account, targets: &[&str]) -> CommandOrder {
        let mut arguments = vec![self.settings.make.clone()];
        arguments.extend([
            "BATCH=1".to_owned(),
            "DEPENDS_TARGET=/nonexistent".to_owned(),
            format!("WRKOBJDIR={WORK}"),
            format!("PACKAGES={BUILD}/packages"),
            format!("DISTDIR={DISTFILES}"),
            format!("MAKE_JOBS={JOBS}"),
        ]);
        arguments.extend(self.recipe.selection.iter().cloned());
        if targets == [UNPACK] {
            arguments.extend(["-f", "Makefile", "-f"].map(str::to_owned));
            arguments.push(format!("{TEXTS}/{UNPACK_MK}"));
        }
        arguments.extend(targets.iter().map(|target| (*target).to_owned()));
        CommandOrder {
            arguments,
            account,
            directory: format!("{TREE}/{}", self.recipe.location),
            environment: environment(self.settings),
        }
    }

    fn as_root(&self, program: &str, arguments: impl IntoIterator<Item = String>) -> CommandOrder {
        as_root(environment(self.settings), program, arguments)
    }

    /// Fetches the distfiles and checks them, with network access. The package's dependencies are installed too,
    /// since they may provide the programs that check. `depends` are file names of inputs.
    pub fn fetch(&self, depends: &[String]) -> StageOrder {
        let copy = [format!("{TEXTS}/{RESOLV_CONF}"), "/etc/resolv.conf".to_owned()];
        let checksum = self.make(Account::Root, &["checksum"]);
        let mut commands = vec![self.as_root("cp", copy)];
        commands.extend(install(environment(self.settings), depends));
        commands.push(checksum);
        StageOrder { stage: Stage::Fetch, commands }
    }

    /// All stages of a build, in order.
    pub fn build(&self) -> Vec<StageOrder> {
        let installer = if self.recipe.installs_as_root { Account::Root } else { Account::Builder };
        let mut stages = Vec::new();
        for (stage, account, targets, phase) in [
            // The next stage extracts the archives; a separate target for that would cost another run of make.
            (Stage::Unpack, Account::Builder, &[UNPACK][..], ""),
            (Stage::Configure, Account::Builder, &["configure"], "configure"),
            (Stage::Build, Account::Builder, &["all"], "build"),
            (Stage::Install, installer, &["stage-install"], "install"),
            (Stage::Package, installer, &["package"], ""),
        ] {
            let is_behind_barrier = stage != Stage::Unpack;
            let variables = BEHIND_BARRIER.into_iter().filter(|_| is_behind_barrier);
            let arguments: Vec<&str> = variables.chain(targets.iter().copied()).collect();
            let mut commands = Vec::new();
            if !phase.is_empty() && self.recipe.usergroup_phase.ends_with(phase) {
                commands.push(self.make(Account::Root, &["create-usergroup"]));
                // The builder continues with the files that root created in the work folder.
                commands.push(self.as_root("chown", ["-R", "1000:1000", BUILD].map(str::to_owned)));
            }
            commands.push(self.make(account, &arguments));
            stages.push(StageOrder { stage, commands });
        }
        stages
    }

    /// Installs a binary package in a clean root, and removes it again.
    pub fn test(&self, file: &str, name: &str) -> StageOrder {
        let file = format!("{INPUTS}/{file}");
        let commands = match self.recipe.is_bootstrap {
            // The kit already has it, and everything depends on it.
            true => vec![self.as_root("pkg_add", ["-u".to_owned(), file])],
            false => vec![
                self.prefix_script(LIST),
                self.as_root("pkg_add", [file]),
                self.as_root("pkg_info", ["-qe".to_owned(), name.to_owned()]),
                self.as_root("pkg_delete", [name.to_owned()]),
                self.prefix_script(COMPARE),
            ],
        };
        StageOrder { stage: Stage::Test, commands }
    }

    /// A shell script that gets the prefix as `$1`.
    fn prefix_script(&self, script: &str) -> CommandOrder {
        let arguments = ["-euc", script, "sh", &self.settings.prefix].map(str::to_owned);
        self.as_root("/bin/sh", arguments)
    }
}

/// The small file that a build needs in addition to those of every root.
pub(super) fn unpack_mk() -> InputText {
    InputText { name: UNPACK_MK.to_owned(), text: UNPACK_TEXT.to_owned() }
}
