//! Spec files become a signed repository, which dnf installs from. The base root is made of Debian's packages, as RPM
//! packages (`base.sh`).

use crate::check::run;
use crate::support::trials::{Case, case};
use crate::support::{Ended, folder, kilnyard};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};

/// The tools that convert packages, beside the clone.
const TOOLS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/tools/rpm/deb2rpm.py");

/// A library, and a program that is linked to it and compiled with its header.
const LIBRARY: &str = "Name: libgreet
Version: 2.1
Release: 3%{?dist}
Summary: A library
License: MIT
Source0: greet.c
BuildRequires: gcc
%description
A library.
%package devel
Summary: Headers
Requires: %{name}%{?_isa} = %{version}-%{release}
%description devel
Headers.
%prep
%build
gcc %{optflags} -shared -fPIC -Wl,-soname,libgreet.so.2 -o libgreet.so.2 %{SOURCE0}
%install
install -D -m755 libgreet.so.2 %{buildroot}%{_libdir}/libgreet.so.2
ln -s libgreet.so.2 %{buildroot}%{_libdir}/libgreet.so
mkdir -p %{buildroot}%{_includedir}; echo 'const char *greet(void);' > %{buildroot}%{_includedir}/greet.h
%post -p /usr/sbin/ldconfig
%files
%{_libdir}/libgreet.so.2
%files devel
%{_libdir}/libgreet.so
%{_includedir}/greet.h
%changelog
* Mon Jan 05 2026 One <one@localhost> - 2.1-3
- Built
";
const PROGRAM: &str = "Name: usegreet
Epoch: 1
Version: 1.0~rc1^git2
Release: 1%{?dist}
Summary: A program
License: MIT
BuildRequires: gcc, (libgreet-devel >= 2 with libgreet-devel < 3), /usr/bin/patch
%description
A program.
%prep
%build
printf '#include <greet.h>\\n#include <stdio.h>\\nint main(void) { return puts(greet()) < 0; }\\n' > use.c
gcc %{optflags} -o usegreet use.c -lgreet -L%{_libdir} -Wl,-rpath,%{_libdir}
%install
install -D -m755 usegreet %{buildroot}%{_bindir}/usegreet
%check
./usegreet | grep greetings
%files
%{_bindir}/usegreet
";
/// A package without architecture, of which a build leaves nothing to the machine: what its macros and scriptlets do.
const DATA: &str = "Name: traps
Version: %(id -u)
Release: 1
Summary: Macros that run commands, scriptlets, a user
License: MIT
BuildArch: noarch
Requires(pre): shadow-utils
%description
%(touch /usr/made-by-a-macro /kilnyard/recipe/made-by-a-macro 2>&1 | grep -c . ; cat /etc/shadow 2>&1 | tail -c 20)
%prep
%build
test ! -e /usr/made-by-a-macro
%install
mkdir -p %{buildroot}/usr/share/traps; echo x > %{buildroot}/usr/share/traps/owned; echo y > %{buildroot}/usr/share/traps/free
%pre
getent group traps > /dev/null || groupadd -r traps
getent passwd traps > /dev/null || useradd -r -g traps -d / -s /bin/sh traps
%post -p <lua>
local file = io.open(\"/usr/share/traps-by-lua\", \"w\"); file:write(\"lua\\n\"); file:close()
%postun -p <lua>
if arg[2] == 0 then os.remove(\"/usr/share/traps-by-lua\") end
%transfiletriggerin -- /usr/share/traps
cat > /usr/share/traps-triggered
%files
%dir /usr/share/traps
%attr(640, traps, traps) /usr/share/traps/owned
/usr/share/traps/free
%ghost /usr/share/traps-by-lua
%ghost /usr/share/traps-triggered
";

fn chained(number: u32) -> String {
    let needs = if number > 1 { format!("BuildRequires: chain{} >= 1\n", number - 1) } else { String::new() };
    format!(
        "Name: chain{number}\nVersion: 1\nRelease: 1%{{?dist}}\nSummary: One of a chain\nLicense: MIT\nBuildArch: noarch\n{needs}\
         %description\nOne.\n%prep\n%build\n%install\nmkdir -p %{{buildroot}}/usr/share/chain; echo x > %{{buildroot}}/usr/share/chain/{number}\n\
         %files\n/usr/share/chain/{number}\n"
    )
}

/// A repository for base roots, and the packages of one, separated by commas. It outlives the test.
pub fn base() -> (PathBuf, String) {
    let at = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rpm-base");
    run(Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rpm/base.sh")).arg(&at));
    let set = fs::read_to_string(at.join("set")).unwrap();
    (at.join("repo"), set.split_whitespace().collect::<Vec<_>>().join(","))
}

/// The folder with the package files of a repository: it has the name of the key that signed them.
pub fn pool(repository: &Path) -> PathBuf {
    let mut folders = fs::read_dir(repository.join("Packages")).unwrap().flatten();
    folders.next().unwrap().path()
}

/// Makes a yard of the spec files of a folder.
pub fn init(yard: &str, repository: &str, specs: &str, more: &[&str]) -> Ended {
    let usual = ["--yard", yard, "init", "rpm", "--release", "kt1", "--repo", repository, "--specs", specs];
    kilnyard(&[&usual, more].concat())
}

/// A yard of spec files.
pub struct Yard {
    pub folder: tempfile::TempDir,
    pub base: PathBuf,
}

/// The layers of a yard that has its base root, which takes 20 s to make, and the range of its ids; its folder is removed with the
/// last trial.
static MADE: Mutex<Option<tempfile::TempDir>> = Mutex::new(None);

/// Removes what yards had in common.
pub fn remove() {
    *MADE.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

impl Yard {
    /// A yard whose base root is made.
    pub fn new(name: &str) -> Yard {
        let yard = Yard::without_base(name);
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        let made = made.get_or_insert_with(|| {
            let first = Yard::without_base("rpm-first");
            first.write(
                "first",
                "Name: first\nVersion: 1\nRelease: 1\nSummary: x\nLicense: MIT\n%description\nx\n",
            );
            first.run(&["scan"]).exits(0).says(&["making the base root"]);
            first.folder
        });
        for part in ["layers", "state/range"] {
            let (from, to) = (made.path().join("yard").join(part), Path::new(&yard.at()).join(part));
            if to.exists() {
                fs::remove_dir_all(&to).or_else(|_| fs::remove_file(&to)).unwrap();
            }
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            // Nothing changes the files of layers, which may be links.
            run(Command::new("cp").arg("-al").args([&from, &to]));
        }
        yard
    }

    pub fn without_base(name: &str) -> Yard {
        let (base, set) = base();
        let yard = Yard { folder: folder(name), base };
        fs::create_dir(yard.specs()).unwrap();
        let at =
            [yard.at(), yard.specs().to_str().unwrap().to_owned(), yard.base.to_str().unwrap().to_owned()];
        let [at, specs, repo] = at.each_ref().map(String::as_str);
        init(at, repo, specs, &["--dist", ".kt1", "--root-package", &set]).exits(0).says(&["build"]);
        yard
    }

    pub fn at(&self) -> String {
        self.folder.path().join("yard").to_str().unwrap().to_owned()
    }

    pub fn specs(&self) -> PathBuf {
        self.folder.path().join("specs")
    }

    pub fn repository(&self) -> PathBuf {
        self.folder.path().join("yard/repository/packages")
    }

    pub fn write(&self, name: &str, spec: &str) {
        let folder = self.specs().join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(format!("{name}.spec")), spec).unwrap();
    }

    pub fn run(&self, words: &[&str]) -> Ended {
        kilnyard(&[&["--yard", &self.at()], words].concat())
    }

    pub fn files(&self) -> Vec<String> {
        let listed = fs::read_dir(pool(&self.repository())).unwrap().flatten();
        let mut names: Vec<String> =
            listed.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The file that sets up dnf.
    pub fn client(&self) -> String {
        fs::read_to_string(self.folder.path().join("yard/repository/kilnyard.repo")).unwrap()
    }

    /// Installs packages of the base and of the yard's repository into a root.
    pub fn dnf(&self, root: &str, packages: &[&str]) -> Output {
        let (home, root) = (self.folder.path().join("home"), self.folder.path().join(root));
        fs::create_dir_all(&home).unwrap();
        // Debian's rpm has its database in the home folder otherwise.
        fs::write(home.join(".rpmmacros"), "%_dbpath /usr/lib/sysimage/rpm\n").unwrap();
        let configuration = self.folder.path().join("yard/repository");
        let mut dnf = Command::new("dnf");
        dnf.env("HOME", &home).args([
            "-y",
            "-q",
            "--refresh",
            "--releasever=12",
            "--repo=base",
            "--repo=kilnyard",
        ]);
        dnf.arg(format!("--installroot={}", root.display()));
        dnf.arg(format!("--repofrompath=base,file://{}", self.base.display()));
        for setting in [
            "base.gpgcheck=0",
            "install_weak_deps=False",
            // `kilnyard.repo` is there.
            &format!("reposdir={}", configuration.display()),
            &format!("cachedir={}", home.join("cache").display()),
            &format!("logdir={}", home.display()),
        ] {
            dnf.arg(format!("--setopt={setting}"));
        }
        dnf.arg("install").args(packages).output().unwrap()
    }
}

/// What a list has of each package, in the same form by any program. The time of a file is that of its build here, and of
/// the file itself there.
const COMPARES: &str = r#"
import glob, gzip, sys, xml.etree.ElementTree as tree
def entries(folder, kind):
    path, = glob.glob(folder + '/repodata/*-' + kind + '.xml.gz')
    found = {}
    for package in tree.fromstring(gzip.open(path).read()):
        for node in package.iter():
            node.text = (node.text or '').strip(); node.tail = ''
            if node.tag.endswith('}time'): node.attrib.pop('file')
            if node.tag.endswith('}location'): node.set('href', node.get('href').split('/')[-1])
            if node.tag.endswith('}requires') or node.tag.endswith('}provides'):
                node[:] = sorted(node, key=lambda entry: tree.tostring(entry))
            if node.tag.endswith('}package'):
                node[:] = [one for one in node]
        found[tree.tostring(package).decode()] = None
    return set(found)
for kind in 'primary', 'filelists', 'other':
    ours, theirs = entries(sys.argv[1], kind), entries(sys.argv[2], kind)
    assert ours and ours == theirs, kind + ''.join('\n-' + one for one in ours - theirs) + ''.join('\n+' + one for one in theirs - ours)
"#;

fn specs_become_a_repository() {
    let yard = Yard::new("rpm-builds");
    yard.write("libgreet", LIBRARY);
    fs::write(yard.specs().join("libgreet/greet.c"), "const char *greet(void) { return \"greetings\"; }\n")
        .unwrap();
    yard.write("usegreet", PROGRAM);
    yard.write("traps", DATA);
    for number in 1..=6 {
        yard.write(&format!("chain{number}"), &chained(number));
    }
    // One bad spec file does not stop the others.
    yard.write("broken", "Name: broken\n%if\n");
    yard.write("missing", &LIBRARY.replace("libgreet", "missing").replace("greet.c", "gone.c"));
    yard.write(
        "twice",
        &chained(1).replace("Name: chain1", "Name: twice\nProvides: x").replace(
            "%files\n",
            "%package -n chain2\nSummary: x\n%description -n chain2\nx\n%files -n chain2\n%files\n",
        ),
    );
    let planned = yard.run(&["plan"]).exits(0);
    planned.says(&[
        "rpmspec failed: error",
        "gone.c is not next to missing.spec",
        "twice makes chain2, which chain2 makes, too",
        "9 packages to build",
    ]);
    yard.run(&["build"]).says(&["9 built", "published, 19 packages", "kilnyard.repo /etc/yum.repos.d/"]);
    assert!(yard.client().contains("\nbaseurl=file:///"));
    assert_eq!(
        yard.files()
            .iter()
            .filter(|name| name.starts_with("usegreet") || name.starts_with("traps"))
            .collect::<Vec<_>>(),
        [
            "traps-1000-1.bk1.noarch.rpm",
            "traps-1000-1.bk1.src.rpm",
            "usegreet-1.0~rc1^git2-1.kt1.bk1.src.rpm",
            "usegreet-1.0~rc1^git2-1.kt1.bk1.x86_64.rpm",
        ]
    );
    assert!(!yard.specs().join("traps/made-by-a-macro").exists());
    // The lists are those of createrepo_c.
    let copy = yard.folder.path().join("copy");
    run(Command::new("cp").arg("-r").arg(pool(&yard.repository())).arg(&copy));
    run(Command::new("createrepo_c").args(["-q", "--general-compress-type=gz"]).arg(&copy));
    run(Command::new("python3").args(["-c", COMPARES]).arg(yard.repository()).arg(&copy));
    // dnf verifies all signatures, and installs.
    let output = yard.dnf("root", &["usegreet", "traps", "chain6"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let root = yard.folder.path().join("root");
    let said = Command::new("chroot").arg(&root).arg("/usr/bin/usegreet").output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "greetings\n");
    assert!(root.join("usr/share/traps-by-lua").exists() && root.join("usr/share/traps-triggered").exists());
    // A list, a package or a signature that was changed on the way is refused.
    let pool = pool(&yard.repository());
    let package = pool.join("chain6-1-1.kt1.bk1.noarch.rpm");
    let top = yard.repository().join("repodata/repomd.xml");
    // dnf continues without a repository whose signature is wrong.
    for (number, (path, why)) in
        [(&top, "Unable to find a match: chain6"), (&package, "chain6-1")].into_iter().enumerate()
    {
        let before = fs::read(path).unwrap();
        let mut bytes = before.clone();
        let last = bytes.len() - 20;
        bytes[last] ^= 1;
        fs::remove_file(path).unwrap();
        fs::write(path, bytes).unwrap();
        let output = yard.dnf(&format!("root-{number}"), &["chain6"]);
        let said =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        assert!(!output.status.success() && said.contains(why), "{said}");
        fs::remove_file(path).unwrap();
        fs::write(path, before).unwrap();
    }
    // What has changed is built again, with what depends on it, under a higher release; nothing else is.
    yard.run(&["build"]).says(&["9 up-to-date", "unchanged"]);
    yard.run(&["build", "--force", "traps"]).says(&["1 unchanged", "rebuilt with the same content"]);
    fs::write(
        yard.specs().join("libgreet/greet.c"),
        "const char *greet(void) { return \"greetings, all\"; }\n",
    )
    .unwrap();
    yard.run(&["scan"]).exits(0).says(&["libgreet: a new index", "chain1: nothing new"]);
    yard.run(&["build"]).says(&[
        "libgreet 2.1-3.kt1.bk2",
        "source file greet.c changed",
        "1 built, 1 unchanged, 7 up-to-date",
    ]);
    // A source that is gone takes its packages with it.
    fs::remove_dir_all(yard.specs().join("chain6")).unwrap();
    yard.run(&["scan"]).exits(0);
    yard.run(&["publish"]).exits(0).says(&["17 packages"]);
    // What was published is recovered when the store is lost, and what is built again is above it.
    let state = Path::new(&yard.at()).join("state");
    let databases = fs::read_dir(&state).unwrap().flatten().map(|entry| entry.path());
    for path in databases.filter(|path| path.to_string_lossy().contains(".db")) {
        fs::remove_file(path).unwrap();
    }
    yard.run(&["restore"]).exits(0);
    yard.run(&["build"]).says(&["8 unchanged", "(unchanged, 17 packages)"]);
}

fn source_packages_are_built_again() {
    let yard = Yard::new("rpm-sources");
    yard.write("libgreet", LIBRARY);
    fs::write(yard.specs().join("libgreet/greet.c"), "const char *greet(void) { return \"greetings\"; }\n")
        .unwrap();
    yard.run(&["build"]).says(&["1 built", "published, 3 packages"]);
    let (base, set) = base();
    let pool = pool(&yard.repository());
    let source = pool.join("libgreet-2.1-3.kt1.bk1.src.rpm");
    let at = |name: &str| yard.folder.path().join(name).to_str().unwrap().to_owned();
    let init = |name: &str, more: &[&str]| {
        let (at, base) = (at(name), base.to_str().unwrap());
        let usual =
            ["--yard", &at, "init", "rpm", "--release", "kt1", "--repo", base, "--root-package", &set];
        kilnyard(&[&usual, more].concat()).exits(0);
        kilnyard(&["--yard", &at, "build"]).says(&["1 built", "published, 3 packages"]);
    };
    // As a file, for another distribution.
    init("packed", &["--dist", ".kt2", source.to_str().unwrap()]);
    let packed = self::pool(Path::new(&at("packed/repository/packages")));
    assert!(packed.join("libgreet-devel-2.1-3.kt2.bk1.x86_64.rpm").exists());
    // By its name in a repository, whose release has a number already.
    run(Command::new("createrepo_c").arg("-q").arg(&pool));
    init("named", &["--dist", ".kt1", "--repo", pool.to_str().unwrap(), "libgreet"]);
    let named = self::pool(Path::new(&at("named/repository/packages")));
    let made = named.join("libgreet-2.1-3.kt1.bk1.src.rpm");
    let said = Command::new("rpm").args(["-qpl", "--nosignature"]).arg(&made).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "greet.c\nlibgreet.spec\n");
}

/// A trial that needs a base root.
pub fn real(case: Case, has_tools: bool) -> Case {
    case.needs(
        has_tools,
        "rpmbuild, createrepo_c, dnf, bsdtar or debugedit is not installed, or the user is not root",
    )
    .needs(Path::new(TOOLS).exists(), "there is no ../shared/tools/rpm beside the clone")
}

/// A base root has the time of each installation, and no build depends on that. The spec files are in a folder that only its
/// owner may enter.
fn a_base_that_is_made_again_changes_no_build() {
    let yard = Yard::new("rpm-base-again");
    let spec = |file: &str| {
        format!(
            "%{{load:%{{_sourcedir}}/{file}}}\nName: closed\nVersion: 1\nRelease: 1%{{?dist}}\nSummary: %words\nLicense: MIT\n\
             BuildArch: noarch\nSource0: {file}\n%description\nx\n%prep\n%build\n%install\n\
             install -D -m644 %{{SOURCE0}} %{{buildroot}}/usr/share/closed/words\n%files\n/usr/share/closed\n"
        )
    };
    yard.write("closed", &spec("macros"));
    let folder = yard.specs().join("closed");
    fs::write(folder.join("macros"), "%words closed to others\n").unwrap();
    fs::set_permissions(folder.join("macros"), fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(yard.specs(), fs::Permissions::from_mode(0o700)).unwrap();
    yard.run(&["build"]).exits(0).says(&["1 built"]);
    let said = Command::new("rpm")
        .args(["-qp", "--nosignature", "--qf", "%{SUMMARY}"])
        .arg(pool(&yard.repository()).join("closed-1-1.kt1.bk1.noarch.rpm"))
        .output()
        .unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "closed to others");
    yard.run(&["clean", "--base"]).exits(0);
    yard.run(&["plan"]).exits(0).says(&["0 packages to build, 1 up to date"]);
    yard.run(&["build"]).exits(0).says(&["making the base root", "nothing to do"]);
    yard.run(&["build"]).exits(0).says(&["nothing to do"]);
    // What is wrong has the names that the user knows.
    yard.write("absent", &spec("gone").replace("closed", "absent"));
    let path = format!("{}/absent/gone", yard.specs().display());
    yard.run(&["scan"]).exits(0);
    yard.run(&["plan"]).exits(0).says(&[&path]);
}

/// The trials; `has_tools` says whether rpmbuild, dnf and what converts packages are there, for root.
pub fn cases(has_tools: bool) -> Vec<Case> {
    let real = |case: Case| real(case, has_tools);
    vec![
        real(case("spec_files_become_a_repository_that_dnf_installs_from", specs_become_a_repository)),
        real(case("source_packages_are_built_again", source_packages_are_built_again)),
        real(case("a_base_that_is_made_again_changes_no_build", a_base_that_is_made_again_changes_no_build)),
    ]
}
