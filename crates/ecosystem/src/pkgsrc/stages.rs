//! The commands of each stage, in the meaning of pbulk's `pkg-build`.
//!
//! The tree is shown for reading, always at the same place; the kit is a layer below the root, so that a build
//! begins with an untouched prefix and nothing has to be torn down. What is written goes below `/build`.

use super::settings::Settings;
use crate::RESOLV_CONF;
use kilnyard_model::order::{Account, CommandOrder, InputText, JOBS, Stage, StageOrder};
use std::path::Path;

/// Where the tree is seen in a root.
pub const TREE: &str = "/usr/pkgsrc";
/// Where distfiles are seen in a root.
pub const DISTFILES: &str = "/kilnyard/distfiles";
/// Where inputs are seen in a root.
pub const INPUTS: &str = "/kilnyard/inputs";
/// Where Kilnyard's own small files are seen in a root: apart from inputs, whose names the tree decides.
const TEXTS: &str = "/kilnyard/texts";
/// Where packages are built.
pub(super) const BUILD: &str = "/build";
/// Where work folders are.
const WORK: &str = "/build/work";
/// Where binary packages are put.
pub const PACKAGES: &str = "/build/packages/All";
/// Where make keeps what it works out of build options while a tree is scanned, in a root.
pub const OPTION_CACHE: &str = "/kilnyard/options";

/// What a tree's make starts itself with once the distfiles and the dependencies are there (`mk/bsd.pkg.barrier.mk`):
/// passing it saves a round of make that only finds that out. A tree without a barrier ignores it.
const BEHIND_BARRIER: [&str; 2] = ["_PKGSRC_BARRIER=yes", "ALLOW_VULNERABLE_PACKAGES="];

/// A makefile that is read behind that of a package, and its target: all that comes before the barrier, and the note
/// that it was passed; of a tree without one the check of the distfiles.
const UNPACK_MK: &str = "unpack.mk";
const UNPACK_TEXT: &str = "kilnyard-unpack: .PHONY ${_BARRIER_PRE_TARGETS:Uchecksum} ${_COOKIE.barrier:U}\n";
const UNPACK: &str = "kilnyard-unpack";

/// Folders with what the system brings to be run and to be compiled with.
const SYSTEM: [&str; 7] =
    ["/usr/bin", "/usr/include", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/sbin", "/usr/share"];

/// Lists the files of the prefix, but for the database of packages.
const LIST: &str = r#"find "$1" -path "$1/pkgdb*" -prune -o ! -type d -print | sort > /tmp/kilnyard-before"#;
/// Fails if files are there that were not, and that no installed package has: dependencies may have come with the package, and
/// stay. Scripts of a package make such files, and `pkg_delete` knows only its list.
const COMPARE: &str = r#"find "$1" -path "$1/pkgdb*" -prune -o ! -type d -print | sort > /tmp/kilnyard-after
for package in $(pkg_info | cut -d" " -f1); do pkg_info -qL "$package"; done | sort -u > /tmp/kilnyard-owned
left=$(comm -13 /tmp/kilnyard-before /tmp/kilnyard-after | comm -23 - /tmp/kilnyard-owned)
if [ -n "$left" ]; then
  echo "$left" | sed 's/^/ERROR: left behind by pkg_delete: /'
  exit 1
fi"#;

const MK_CONF: &str = "mk.conf";

/// What commands of one package need to know of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Recipe {
    /// Its directory.
    pub location: String,
    /// Assignments that select one of several packages of a directory.
    pub selection: Vec<String>,
    /// The stage before which its users and groups are made, if it has any: a pattern of make's targets.
    pub usergroup_phase: String,
    /// Whether installing and packaging has to be done by root (`USE_DESTDIR=destdir`).
    pub installs_as_root: bool,
    /// Whether it is a part of the bootstrap kit.
    pub is_bootstrap: bool,
}

/// A shell pattern that finds the folder in which a package's distfiles were unpacked, by the name of the package.
pub fn source_pattern(package: &str) -> String {
    // One of several packages of a directory has its own name behind that of the directory.
    let location = package.split(':').next().unwrap_or(package);
    format!("{WORK}/{location}/work/*/")
}

/// The small files of a root.
pub fn texts(settings: &Settings) -> Vec<InputText> {
    if settings.mk_conf.is_empty() {
        return Vec::new();
    }
    // The kit's own settings come first, so that a person's come after.
    let include = format!(".-include \"{}/etc/mk.conf\"\n", settings.prefix);
    vec![InputText { name: MK_CONF.to_owned(), text: include + &settings.mk_conf }]
}

/// The folders of the system that no package writes to: all of them go below the prefix, `/etc` and `/var`.
pub fn sealed(settings: &Settings) -> Vec<String> {
    let prefix = Path::new(&settings.prefix);
    let is_apart = |folder: &&&str| !prefix.starts_with(folder) && !Path::new(folder).starts_with(prefix);
    SYSTEM.iter().filter(is_apart).map(|folder| (*folder).to_owned()).collect()
}

/// The environment of every command.
pub fn environment(settings: &Settings) -> Vec<(String, String)> {
    let prefix = &settings.prefix;
    let variable = |name: &str, value: String| (name.to_owned(), value);
    let mut environment = vec![
        variable("PATH", format!("{prefix}/sbin:{prefix}/bin:/usr/sbin:/usr/bin:/sbin:/bin")),
        variable("LC_ALL", "C".to_owned()),
        variable("BATCH", "1".to_owned()),
    ];
    if !settings.mk_conf.is_empty() {
        // Without settings of a person make finds those of its kit by itself.
        environment.push(variable("MAKECONF", format!("{TEXTS}/{MK_CONF}")));
    }
    environment
}

/// Programs that know jobservers: those of the tree itself, and those of the machine that it takes instead.
pub(super) fn clients(prefix: &str) -> Vec<String> {
    let of_the_tree = ["gmake", "ninja"].map(|name| format!("{prefix}/bin/{name}"));
    let of_the_machine = ["/usr/bin/make", "/usr/bin/gmake", "/usr/bin/ninja"].map(str::to_owned);
    of_the_tree.into_iter().chain(of_the_machine).collect()
}

/// A command of the package tools, with the environment that [`environment`] gives.
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

/// Installs binary packages by the file names of inputs, with what they need of the inputs.
pub(super) fn install<'a>(
    environment: Vec<(String, String)>,
    files: impl IntoIterator<Item = &'a String>,
) -> Option<CommandOrder> {
    let files: Vec<String> = files.into_iter().map(|file| format!("{INPUTS}/{file}")).collect();
    (!files.is_empty()).then(|| as_root(environment, "pkg_add", files))
}

/// Commands of one package.
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

    /// Brings the distfiles and checks them, with the network. What the package needs is there too: the programs that
    /// check may be of it. `depends` are file names of inputs.
    pub fn fetch(&self, depends: &[String]) -> StageOrder {
        let copy = [format!("{TEXTS}/{RESOLV_CONF}"), "/etc/resolv.conf".to_owned()];
        let checksum = self.make(Account::Root, &["checksum"]);
        let mut commands = vec![self.as_root("cp", copy)];
        commands.extend(install(environment(self.settings), depends));
        commands.push(checksum);
        StageOrder { stage: Stage::Fetch, commands }
    }

    /// All stages, in order.
    pub fn build(&self) -> Vec<StageOrder> {
        let installer = if self.recipe.installs_as_root { Account::Root } else { Account::Builder };
        let mut stages = Vec::new();
        for (stage, account, targets, phase) in [
            // The archives themselves are unpacked by the next one: asked for by itself that is a round of make more.
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
                // What root made in the work folder is the builder's to go on with.
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
            // The kit has it already, and everything stands on it.
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

    /// A script of the shell that knows the prefix as `$1`.
    fn prefix_script(&self, script: &str) -> CommandOrder {
        let arguments = ["-euc", script, "sh", &self.settings.prefix].map(str::to_owned);
        self.as_root("/bin/sh", arguments)
    }
}

/// The small file that building needs besides those of every root.
pub(super) fn unpack_mk() -> InputText {
    InputText { name: UNPACK_MK.to_owned(), text: UNPACK_TEXT.to_owned() }
}
