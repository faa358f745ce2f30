//! Verdicts of random repositories, compared with libsolv's, which decides for dnf and zypper.
//!
//! The number of repositories and the seed are in the environment: `KILNYARD_REPOSITORIES` and `KILNYARD_SEED`.

use kilnyard_ecosystem::rpm::check::check;
use kilnyard_ecosystem::rpm::metadata::{MetadataError, primary};
use kilnyard_ecosystem::rpm::universe::Universe;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

const REPOSITORIES: u64 = 2000;

/// Reads each file of a folder as a repository, and prints its name and what cannot be installed.
const PEER: &str = r"
import glob, solv, sys
for path in sorted(glob.glob(sys.argv[1] + '/*.xml')):
    pool = solv.Pool()
    pool.setdisttype(solv.Pool.DISTTYPE_RPM)
    pool.setarch('x86_64')
    repo = pool.add_repo('r')
    repo.add_rpmmd(solv.xfopen(path), None)
    pool.addfileprovides()
    pool.createwhatprovides()
    bad = []
    for one in repo.solvables:
        solver = pool.Solver()
        solver.set_flag(solv.Solver.SOLVER_FLAG_IGNORE_RECOMMENDED, 1)
        if solver.solve([pool.Job(solv.Job.SOLVER_SOLVABLE | solv.Job.SOLVER_INSTALL, one.id)]):
            bad.append(str(one).rsplit('.', 1)[0])
    print(path.rsplit('/', 1)[1], *sorted(bad))
";

/// Numbers that look random (Steele and others, SplitMix64, 2014).
struct Random(u64);

impl Random {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % count
    }

    fn one_of<'t>(&mut self, all: &[&'t str]) -> &'t str {
        all[self.below(all.len() as u64) as usize]
    }

    fn name(&mut self) -> String {
        let plain = ["a", "b", "c", "d", "e", "f", "g", "h", "v", "w"];
        match self.below(12) {
            0 => format!("/usr/bin/{}", self.one_of(&plain[..3])),
            1 => format!("cap({})", self.one_of(&plain[..4])),
            _ => self.one_of(&plain).to_owned(),
        }
    }

    fn version(&mut self) -> String {
        let version = self.one_of(&["1", "2", "2~rc1", "2^git1", "3"]);
        let epoch = self.one_of(&["", "", "", "1:", "0:"]);
        format!("{epoch}{version}{}", self.one_of(&["", "", "-1", "-2"]))
    }

    fn plain(&mut self) -> String {
        let name = self.name();
        match self.below(2) {
            0 => name,
            _ => format!("{name} {} {}", self.one_of(&["<", "<=", "=", ">=", ">"]), self.version()),
        }
    }

    fn relation(&mut self, depth: u32) -> String {
        if depth == 0 || self.below(3) == 0 {
            return self.plain();
        }
        let mut side = |depth| self.relation(depth);
        let (one, other, third) = (side(depth - 1), side(depth - 1), side(depth - 1));
        match self.below(8) {
            0 => format!("({one} and {other})"),
            1 => format!("({one} or {other} or {third})"),
            2 => format!("({one} if {other})"),
            3 => format!("({one} if {other} else {third})"),
            4 => format!("({one} unless {other})"),
            5 => format!("({one} unless {other} else {third})"),
            6 => format!("({} with {})", self.plain(), self.plain()),
            _ => format!("({} without {})", self.plain(), self.plain()),
        }
    }

    fn entries(&mut self, kind: &str, share: u64, is_rich: bool) -> String {
        let mut text = format!("<rpm:{kind}>");
        for _ in 0..self.below(share) {
            let relation = if is_rich { self.relation(2) } else { self.plain() };
            let _ = write!(text, "{}", entry(&relation));
        }
        text + &format!("</rpm:{kind}>")
    }

    fn repository(&mut self) -> String {
        let mut packages = BTreeSet::new();
        for _ in 0..4 + self.below(12) {
            let name = self.one_of(&["a", "b", "c", "d", "e", "f", "g", "h"]);
            packages.insert((name, self.one_of(&["1", "2", "3"]), self.one_of(&["1", "2"])));
        }
        let mut text = "<metadata xmlns=\"http://linux.duke.edu/metadata/common\" \
                        xmlns:rpm=\"http://linux.duke.edu/metadata/rpm\">"
            .to_owned();
        for (name, version, release) in packages {
            let own = entry(&format!("{name} = {version}-{release}"));
            let provides = self.entries("provides", 3, false).replacen(
                "<rpm:provides>",
                &format!("<rpm:provides>{own}"),
                1,
            );
            let file = match self.below(4) {
                0 => format!("<file>/usr/bin/{name}</file>"),
                _ => String::new(),
            };
            let _ = write!(
                text,
                "<package type=\"rpm\"><name>{name}</name><arch>noarch</arch>\
                 <version epoch=\"0\" ver=\"{version}\" rel=\"{release}\"/><checksum type=\"sha256\" pkgid=\"YES\">00</checksum>\
                 <location href=\"{name}-{version}-{release}.rpm\"/><format>{provides}{}{}{}{file}</format></package>",
                self.entries("requires", 4, true),
                self.entries("conflicts", 3, true),
                self.entries("obsoletes", 2, false),
            );
        }
        text + "</metadata>"
    }
}

fn entry(relation: &str) -> String {
    let escaped = relation.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let words: Vec<&str> = relation.split(' ').collect();
    match (relation.starts_with('('), &words[..]) {
        (false, [name, operator, evr]) => {
            let flags = ["<", "<=", "=", ">=", ">"].iter().position(|one| one == operator).unwrap();
            let (epoch, rest) = evr.split_once(':').unwrap_or(("0", evr));
            let (version, release) = rest.split_once('-').unwrap_or((rest, ""));
            let release = if release.is_empty() { String::new() } else { format!(" rel=\"{release}\"") };
            format!(
                "<rpm:entry name=\"{name}\" flags=\"{}\" epoch=\"{epoch}\" ver=\"{version}\"{release}/>",
                ["LT", "LE", "EQ", "GE", "GT"][flags]
            )
        }
        _ => format!("<rpm:entry name=\"{escaped}\"/>"),
    }
}

fn verdicts(input: &mut dyn Read) -> BTreeSet<String> {
    let mut universe = Universe::new();
    let add =
        &mut |package| universe.add(package).map(drop).map_err(|error| MetadataError(error.to_string()));
    primary(input, add).unwrap();
    universe.finish();
    let broken = check(&mut universe, &[]).broken;
    broken.into_iter().map(|one| format!("{}-{}", one.package, one.version)).collect()
}

#[test]
fn verdicts_are_those_of_libsolv() {
    let python = Path::new("/usr/bin/python3");
    let has_peer =
        Command::new(python).args(["-c", "import solv"]).output().is_ok_and(|ran| ran.status.success());
    if !has_peer {
        eprintln!("skipped: python3-solv is not installed");
        return;
    }
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let count = number("KILNYARD_REPOSITORIES").unwrap_or(REPOSITORIES);
    let seed = number("KILNYARD_SEED").unwrap_or(1);
    let mut random = Random(seed);
    let folder = tempfile::tempdir().unwrap();
    for index in 0..count {
        std::fs::write(folder.path().join(format!("{index:06}.xml")), random.repository()).unwrap();
    }
    let ran = Command::new(python).args(["-c", PEER]).arg(folder.path()).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let (mut asked, mut broken, mut seconds) = (0, 0, 0.0);
    for line in String::from_utf8(ran.stdout).unwrap().lines() {
        let mut words = line.split(' ');
        let path = folder.path().join(words.next().unwrap());
        let theirs: BTreeSet<String> = words.map(str::to_owned).collect();
        let text = std::fs::read_to_string(&path).unwrap();
        let began = Instant::now();
        let ours = verdicts(&mut text.as_bytes());
        seconds += began.elapsed().as_secs_f64();
        assert_eq!(ours, theirs, "seed {seed}: {text}");
        asked += text.matches("<package ").count();
        broken += ours.len();
    }
    assert!(asked as u64 > count * 3 && broken * 4 > asked && broken * 4 < asked * 3, "{broken} of {asked}");
    eprintln!("{count} repositories, {asked} verdicts in {seconds:.2} s, {broken} cannot be installed");
}
