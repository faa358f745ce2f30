//! `check PACKAGES SOURCES`: which sources cannot be built from these two files of an archive.
use kilnyard_ecosystem::debian::{
    check,
    relation::Context,
    source::{Parts, Sources},
    universe::{Origin, Universe},
};
fn main() {
    let mut arguments = std::env::args().skip(1);
    let start = std::time::Instant::now();
    let packages = String::from_utf8_lossy(&std::fs::read(arguments.next().unwrap()).unwrap()).into_owned();
    let text = String::from_utf8_lossy(&std::fs::read(arguments.next().unwrap()).unwrap()).into_owned();
    let mut universe = Universe::new(Context::new("amd64"));
    universe.add_packages(packages.into(), Origin::Archive);
    eprintln!("{:?} packages {}", start.elapsed(), universe.len());
    let mut sources = Sources::default();
    sources.add(text.into());
    eprintln!("{:?} sources {}", start.elapsed(), sources.len());
    let verdicts = check::check(&mut universe, &sources, Parts::All);
    eprintln!(
        "{:?} checked {} unbuildable {}",
        start.elapsed(),
        verdicts.checked,
        verdicts.unbuildable.len()
    );
    for one in &verdicts.unbuildable {
        println!("{} {}\n{}\n", one.package, one.version, one.explanation);
    }
}
