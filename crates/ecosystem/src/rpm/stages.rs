//! The commands of each stage.

use super::recipe::Recipe;
use super::settings::Settings;
use crate::TEXTS;
use kilnyard_model::order::{Account, CommandOrder, Dependency, InputText, JOBS, Stage, StageOrder};

/// Folder of the inputs inside a root.
pub const INPUTS: &str = "/kilnyard/inputs";
/// Folder in which packages are built: `%_topdir`.
pub(super) const BUILD: &str = "/build";
/// Folder of the finished packages.
pub(super) const OUTPUTS: &str = "/build/outputs";
/// The file with the macros of a build.
const MACROS: &str = "macros";

/// Programs that support jobservers.
pub(super) const CLIENTS: [&str; 3] = ["/usr/bin/make", "/usr/bin/gmake", "/usr/bin/ninja"];

/// The path of the file with macros inside a root.
pub fn macros_path() -> String {
    format!("{TEXTS}/{MACROS}")
}

/// The macros with which spec files are read and built, with this `%dist`. What makes two builds differ is turned off or fixed
/// (rpm's `macros.in`): times are those of the changelog, and the host has one name.
pub fn macros(settings: &Settings, dist: &str) -> InputText {
    let mut text = format!(
        "%_topdir {BUILD}\n%dist {dist}\n%_rpmdir {OUTPUTS}\n%_srcrpmdir {OUTPUTS}\n\
         %_build_name_fmt %%{{NAME}}-%%{{VERSION}}-%%{{RELEASE}}.%%{{ARCH}}.rpm\n%_buildhost kilnyard\n\
         %source_date_epoch_from_changelog 1\n%use_source_date_epoch_as_buildtime 1\n\
         %clamp_mtime_to_source_date_epoch 1\n%_unique_build_ids 0\n"
    );
    for line in &settings.macros {
        text.push_str(&format!("%{line}\n"));
    }
    InputText { name: MACROS.to_owned(), text }
}

fn environment() -> Vec<(String, String)> {
    let variable = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    vec![
        variable("PATH", "/usr/bin:/usr/sbin:/bin:/sbin"),
        variable("LC_ALL", "C.UTF-8"),
        variable("HOME", BUILD),
        // `%_smp_build_ncpus`.
        variable("RPM_BUILD_NCPUS", JOBS),
    ]
}

fn script(account: Account, script: &str, words: Vec<String>) -> CommandOrder {
    let arguments = ["/bin/sh", "-euc", script, "sh"].map(str::to_owned);
    CommandOrder {
        arguments: arguments.into_iter().chain(words).collect(),
        account,
        directory: "/".to_owned(),
        environment: environment(),
    }
}

/// A command as root, such as those of rpm.
fn as_root(program: &[&str], words: Vec<String>) -> CommandOrder {
    CommandOrder {
        arguments: program.iter().map(|word| (*word).to_owned()).chain(words).collect(),
        account: Account::Root,
        directory: "/".to_owned(),
        environment: environment(),
    }
}

/// The command that asks about the spec file in a folder of the root.
pub fn query(folder: &str, spec: &str) -> CommandOrder {
    script(Account::Builder, super::recipe::QUERY, vec![folder.to_owned(), spec.to_owned(), macros_path()])
}

/// Puts the files of a source where rpmbuild expects them. `$1` is the spec file, or empty; then the only input is a source
/// package. The others are its files.
const UNPACK: &str = r#"
spec=$1 rebuild=$2 but=$3; shift 3
mkdir -p /build/SPECS /build/SOURCES /build/outputs
if [ -z "$spec" ]; then
  rpm -i --nodeps --nosignature --define '_topdir /build' --define '_dbpath /build/database' "/kilnyard/inputs/$1"
  spec=$(cd /build/SPECS; echo *.spec)
else
  for file; do cp "/kilnyard/inputs/$file" /build/SOURCES/; done
  mv "/build/SOURCES/$spec" /build/SPECS/
fi
if [ -n "$rebuild" ]; then
  # Without %dist, the number of the rebuild follows the release. Lines within sections are no such tags.
  sections='description\|prep\|generate_buildrequires\|conf\|build\|install\|check\|clean\|files\|changelog\|sourcelist\|patchlist'
  sections="$sections\|pre\|post\|preun\|postun\|pretrans\|posttrans\|preuntrans\|postuntrans\|verifyscript"
  sections="$sections\|trigger[a-z]*\|filetrigger[a-z]*\|transfiletrigger[a-z]*"
  sed -i -e "/^%\($sections\)\([[:space:]]\|\$\)/,/^%package\([[:space:]]\|\$\)/b" -e "/$but/b" \
    -e "s/^\([Rr][Ee][Ll][Ee][Aa][Ss][Ee][[:space:]]*:[[:space:]]*[^[:space:]#]*\)/\1$rebuild/" "/build/SPECS/$spec"
fi
"#;

/// What no line of a spec file has.
const NOTHING: &str = "a^";

/// Unpacks a source; `rebuild` is what releases get that have no `%dist`; if the source's own has, those of some packages. A package of a repository has to be signed by one of
/// the keys.
pub(super) fn unpack(recipe: &Recipe, rebuild: &str, has_dist: bool, keys: Option<&str>) -> StageOrder {
    let is_of_repository = recipe.spec.is_empty() && recipe.files.iter().any(|file| !file.urls.is_empty());
    let signed = recipe.files.iter().filter(|_| is_of_repository).map(|file| &file.name);
    let verify = keys.and_then(|keys| verify(keys, signed));
    let but = if has_dist { "dist" } else { NOTHING };
    let mut words = vec![recipe.spec.clone(), rebuild.to_owned(), but.to_owned()];
    words.extend(recipe.files.iter().map(|file| file.name.clone()));
    let unpack = script(Account::Builder, UNPACK, words);
    StageOrder { stage: Stage::Unpack, commands: verify.into_iter().chain([unpack]).collect() }
}

/// `SOURCE_DATE_EPOCH` of a source without changes, in seconds since 1970: 1980 begins, before which ZIP files have no dates. With
/// changes, rpmbuild sets it, unless it is there already.
const NO_DATE: &str = "315532800";

/// Runs rpmbuild, given by the arguments. It exits with 11 if what `%generate_buildrequires` printed is not all installed; then a
/// source package without sources has the list (rpm's `dynamic-build-dependencies.md`), which is the output.
const RPMBUILD: &str = r#"
lists=/build/outputs/*.buildreqs.nosrc.rpm
code=0
# Of a source package, the name of the spec file is known only now. There is one.
"$@" /build/SPECS/*.spec || code=$?
if [ $code = 11 ]; then
  for list in $lists; do [ -f "$list" ] && exit 0; done
fi
rm -f $lists
exit $code
"#;

/// What the file with the list of requirements is named, after the name and the version.
pub(super) const REQUIREMENTS: &str = ".buildreqs.nosrc.rpm";

/// Builds an unpacked source, and a source package of it.
pub(super) fn build(recipe: &Recipe, runs_checks: bool, words: &[String]) -> StageOrder {
    let mut arguments: Vec<String> = ["/bin/sh", "-euc", RPMBUILD, "sh"].map(str::to_owned).into();
    arguments.extend(["rpmbuild", "-ba", "--noclean", "--load", &macros_path()].map(str::to_owned));
    if !runs_checks {
        arguments.push("--nocheck".to_owned());
    }
    if recipe.is_bootstrap {
        arguments.extend(["--with", "bootstrap"].map(str::to_owned));
    }
    arguments.extend(words.iter().cloned());
    let mut environment = environment();
    if !recipe.has_date {
        environment.push(("SOURCE_DATE_EPOCH".to_owned(), NO_DATE.to_owned()));
    }
    let command =
        CommandOrder { arguments, account: Account::Builder, directory: BUILD.to_owned(), environment };
    StageOrder { stage: Stage::Build, commands: vec![command] }
}

/// What a root has mounted, which a package may own: rpm leaves it as it is.
const MOUNTED: &str = "_netsharedpath /proc:/sys:/dev";

/// Verifies packages, with keys that no database has yet. rpmkeys demands digests and a signature of each.
const VERIFY: &str = r#"
keys=$1; shift
database=$(mktemp -d)
printf '%s\n' "$keys" > "$database/keys"
rpmkeys --define "_dbpath $database" --import "$database/keys"
code=0
said=$(rpmkeys --define "_dbpath $database" --define '_pkgverify_level all' --checksig --verbose -- "$@" 2>&1) || code=$?
rm -r "$database"
if [ $code != 0 ]; then
  printf '%s\n' "$said"
  echo "E: a package of a repository has no signature by one of the keys"
  exit 1
fi
"#;

/// Verifies packages, given by the names of inputs; `None` if there are none.
pub(super) fn verify<'a>(keys: &str, files: impl Iterator<Item = &'a String>) -> Option<CommandOrder> {
    let files: Vec<String> = files.map(|file| format!("{INPUTS}/{file}")).collect();
    let words = || std::iter::once(keys.to_owned()).chain(files.clone()).collect();
    (!files.is_empty()).then(|| script(Account::Root, VERIFY, words()))
}

/// Installs packages, given by the names of inputs. rpm sorts them, and fails if one requires what is not there.
pub(super) fn install<'a>(files: impl Iterator<Item = &'a String>) -> Option<CommandOrder> {
    let files: Vec<String> = files.map(|file| format!("{INPUTS}/{file}")).collect();
    // Those that need a signature are verified before (`verify`); all have the digests of the lists.
    (!files.is_empty())
        .then(|| as_root(&["rpm", "-U", "--oldpackage", "--nosignature", "--define", MOUNTED, "--"], files))
}

/// Checks that packages are installed in the versions that the lists of their repositories give them. `$1` has a line for each.
const CHECK_INSTALLED: &str = r#"
wanted=$1; shift
installed=$(rpm -q --qf '%{NAME} %{EPOCHNUM}:%{VERSION}-%{RELEASE}\n' -- "$@" | sort)
if [ "$installed" != "$wanted" ]; then
  printf '%s\n' "E: a repository lists other packages than it has. These were to be installed:" "$wanted" "These are:" "$installed"
  exit 1
fi
"#;

/// Checks that packages are installed; `None` if there are none.
pub(super) fn check_installed(packages: &[&Dependency]) -> Option<CommandOrder> {
    let mut lines: Vec<String> = packages
        .iter()
        .map(|package| match package.version.contains(':') {
            true => format!("{} {}", package.name, package.version),
            false => format!("{} 0:{}", package.name, package.version),
        })
        .collect();
    lines.sort();
    let names = packages.iter().map(|package| package.name.clone());
    let words = || std::iter::once(lines.join("\n")).chain(names).collect();
    (!packages.is_empty()).then(|| script(Account::Root, CHECK_INSTALLED, words()))
}

/// Checks that all packages of a root have what they require.
pub(super) fn check_consistent() -> CommandOrder {
    let words = ["-Va", "--nofiles", "--noscripts", "--nodigest", "--nosignature"];
    as_root(&["rpm"], words.map(str::to_owned).into())
}

/// Checks that packages are gone.
const CHECK_REMOVED: &str = r#"
for name; do
  if rpm -q "$name" > /dev/null; then echo "E: $name is still installed"; exit 1; fi
done
"#;

/// Installs outputs, verifies their files, and removes them again. `remove` has those that the base does not need.
pub(super) fn test<'a>(
    files: impl Iterator<Item = &'a String>,
    names: Vec<String>,
    remove: Vec<String>,
) -> StageOrder {
    let mut commands: Vec<CommandOrder> = install(files).into_iter().collect();
    if !names.is_empty() {
        // In a sandbox, some attributes of the mount differ, such as the capabilities of files; content and modes do not.
        commands.push(as_root(&["rpm", "-V", "--nomtime", "--nocaps", "--noghost", "--"], names));
    }
    if !remove.is_empty() {
        commands.push(as_root(&["rpm", "-e", "--"], remove.clone()));
        commands.push(script(Account::Root, CHECK_REMOVED, remove));
    }
    StageOrder { stage: Stage::Test, commands }
}
