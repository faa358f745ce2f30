//! The entries of a package in the lists of a repository: `primary.xml`, `filelists.xml` and `other.xml`.
//!
//! They have what createrepo_c (`src/parsehdr.c`, `src/xml_dump*.c`) writes: requirements for `rpmlib(…)` and for own files and
//! provides are left out, of `libc.so.6` only the newest version is named, and the first list has only the files that other
//! packages usually name.

use super::header::{Header, tag};
use super::package_file::{FOLDER, FORMAT, PackageFile, is_of_text};
use super::version::Evr;
use quick_xml::escape::{escape, partial_escape};
use std::collections::HashSet;
use std::fmt::Write;

/// The number of changes in `other.xml`.
const CHANGES_MAX: usize = 10;
/// `RPMFILE_GHOST`: a file that a package owns and does not contain.
const GHOST: u64 = 1 << 6;
/// `RPMSENSE_LESS`, `RPMSENSE_GREATER`, `RPMSENSE_EQUAL`.
const SENSES: u64 = 0b1110;
/// `RPMSENSE_PREREQ`, `RPMSENSE_SCRIPT_PRE`, `RPMSENSE_SCRIPT_POST`.
const BEFORE: u64 = 1 << 6 | 1 << 9 | 1 << 10;
/// The C library, whose versions include all older ones.
const LIBC: &str = "libc.so.6";

/// A package's part of each list.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Entry {
    /// In `primary.xml`.
    pub primary: String,
    /// In `filelists.xml`.
    pub filelists: String,
    /// In `other.xml`.
    pub other: String,
}

impl Entry {
    /// The entry of a package that is at a location in the repository.
    pub fn new(file: &PackageFile, location: &str) -> Entry {
        let own = Own::of(file);
        Entry { primary: primary(file, &own, location), filelists: own.list(file), other: own.changes(file) }
    }
}

/// One file of a package.
struct OwnFile {
    path: String,
    is_folder: bool,
    is_ghost: bool,
}

struct Own {
    name: String,
    architecture: String,
    version: String,
    files: Vec<OwnFile>,
}

impl Own {
    fn of(file: &PackageFile) -> Own {
        let header = &file.header;
        let (modes, flags) = (header.numbers(tag::FILE_MODES), header.numbers(tag::FILE_FLAGS));
        let files = file.paths.iter().enumerate().map(|(number, path)| OwnFile {
            path: path.clone(),
            is_folder: modes.get(number).is_some_and(|mode| mode & FORMAT == FOLDER),
            is_ghost: flags.get(number).is_some_and(|flags| flags & GHOST != 0),
        });
        let text = |tag| header.text(tag).unwrap_or_default();
        let epoch = header.number(tag::EPOCH).unwrap_or(0);
        let version = format!(
            r#"<version epoch="{epoch}" ver="{}" rel="{}"/>"#,
            attribute(&text(tag::VERSION)),
            attribute(&text(tag::RELEASE))
        );
        let architecture = if file.is_source() { "src".to_owned() } else { text(tag::ARCHITECTURE) };
        Own { name: text(tag::NAME), architecture, version, files: files.collect() }
    }

    fn begin(&self, file: &PackageFile) -> String {
        format!(
            "<package pkgid=\"{}\" name=\"{}\" arch=\"{}\">\n  {}\n",
            file.sha256,
            attribute(&self.name),
            attribute(&self.architecture),
            self.version
        )
    }

    fn list(&self, file: &PackageFile) -> String {
        let mut text = self.begin(file);
        self.files.iter().for_each(|one| write_file(&mut text, "  ", one));
        text.push_str("</package>\n");
        text
    }

    fn changes(&self, file: &PackageFile) -> String {
        let header = &file.header;
        let (times, names) = (header.numbers(tag::CHANGE_TIMES), header.texts(tag::CHANGE_NAMES));
        let texts = header.texts(tag::CHANGE_TEXTS);
        let mut text = self.begin(file);
        // The newest is first in the header, and last in the list.
        let times = apart(&times[..times.len().min(CHANGES_MAX)]);
        let changes = times.iter().zip(&names).zip(&texts).collect::<Vec<_>>();
        for ((time, name), change) in changes.into_iter().rev() {
            let (name, change) = (attribute(name.trim_end_matches(' ')), content(change));
            let _ = writeln!(text, "  <changelog author=\"{name}\" date=\"{time}\">{change}</changelog>");
        }
        text.push_str("</package>\n");
        text
    }
}

/// Times of changes, the newest first. Those of one day get a second each.
fn apart(times: &[u64]) -> Vec<u64> {
    let mut apart: Vec<u64> = Vec::new();
    let mut last = 0;
    for time in times {
        if *time == last {
            for (next, before) in (*time..).zip(apart.iter_mut().rev()) {
                if *before != next {
                    break;
                }
                *before += 1;
            }
        }
        last = *time;
        apart.push(*time);
    }
    apart
}

fn write_file(text: &mut String, indent: &str, file: &OwnFile) {
    let kind = match (file.is_folder, file.is_ghost) {
        (true, _) => " type=\"dir\"",
        (_, true) => " type=\"ghost\"",
        _ => "",
    };
    let _ = writeln!(text, "{indent}<file{kind}>{}</file>", content(&file.path));
}

/// Whether the first list has a file (`cr_is_primary`).
fn is_primary(path: &str) -> bool {
    path.starts_with("/etc/") || path == "/usr/lib/sendmail" || path.contains("bin/")
}

fn primary(file: &PackageFile, own: &Own, location: &str) -> String {
    let header = &file.header;
    let text = |tag| content(&header.text(tag).unwrap_or_default());
    let built = header.number(tag::BUILD_TIME).unwrap_or(0);
    let installed = header.number(tag::LONG_SIZE).or_else(|| header.number(tag::SIZE)).unwrap_or(0);
    let mut out = format!(
        "<package type=\"rpm\">\n  <name>{}</name>\n  <arch>{}</arch>\n  {}\n  <checksum type=\"sha256\" pkgid=\"YES\">{}</checksum>\n",
        content(&own.name),
        content(&own.architecture),
        own.version,
        file.sha256
    );
    for (element, tag) in [
        ("summary", tag::SUMMARY),
        ("description", tag::DESCRIPTION),
        ("packager", tag::PACKAGER),
        ("url", tag::URL),
    ] {
        let _ = writeln!(out, "  <{element}>{}</{element}>", text(tag));
    }
    let (start, end) = file.header_range;
    let _ = write!(
        out,
        "  <time file=\"{built}\" build=\"{built}\"/>\n  <size package=\"{}\" installed=\"{installed}\" archive=\"{}\"/>\n  \
         <location href=\"{}\"/>\n  <format>\n    <rpm:license>{}</rpm:license>\n    <rpm:vendor>{}</rpm:vendor>\n    \
         <rpm:group>{}</rpm:group>\n    <rpm:buildhost>{}</rpm:buildhost>\n    <rpm:sourcerpm>{}</rpm:sourcerpm>\n    \
         <rpm:header-range start=\"{start}\" end=\"{end}\"/>\n",
        file.size_bytes,
        file.archive_bytes,
        attribute(location),
        text(tag::LICENSE),
        text(tag::VENDOR),
        text(tag::GROUP),
        text(tag::BUILD_HOST),
        text(tag::SOURCE_PACKAGE),
    );
    let provides = relations(header, tag::PROVIDE_NAMES, tag::PROVIDE_FLAGS, tag::PROVIDE_VERSIONS);
    let requires = required(header, own, &provides);
    write_relations(&mut out, "provides", &provides);
    write_relations(&mut out, "requires", &requires);
    for (element, names, flags, versions) in [
        ("conflicts", tag::CONFLICT_NAMES, tag::CONFLICT_FLAGS, tag::CONFLICT_VERSIONS),
        ("obsoletes", tag::OBSOLETE_NAMES, tag::OBSOLETE_FLAGS, tag::OBSOLETE_VERSIONS),
        ("suggests", tag::SUGGEST_NAMES, tag::SUGGEST_FLAGS, tag::SUGGEST_VERSIONS),
        ("enhances", tag::ENHANCE_NAMES, tag::ENHANCE_FLAGS, tag::ENHANCE_VERSIONS),
        ("recommends", tag::RECOMMEND_NAMES, tag::RECOMMEND_FLAGS, tag::RECOMMEND_VERSIONS),
        ("supplements", tag::SUPPLEMENT_NAMES, tag::SUPPLEMENT_FLAGS, tag::SUPPLEMENT_VERSIONS),
    ] {
        write_relations(&mut out, element, &relations(header, names, flags, versions));
    }
    own.files.iter().filter(|one| is_primary(&one.path)).for_each(|one| write_file(&mut out, "    ", one));
    out.push_str("  </format>\n</package>\n");
    out
}

/// A relation as a header has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Related {
    name: String,
    sense: Option<&'static str>,
    version: String,
    is_before: bool,
}

fn relations(header: &Header, names: u32, flags: u32, versions: u32) -> Vec<Related> {
    let (flags, versions) = (header.numbers(flags), header.texts(versions));
    let related = header.texts(names).into_iter().enumerate().map(|(number, name)| {
        let flags = flags.get(number).copied().unwrap_or(0);
        let sense = match flags & SENSES {
            0b0010 => Some("LT"),
            0b0100 => Some("GT"),
            0b1000 => Some("EQ"),
            0b1010 => Some("LE"),
            0b1100 => Some("GE"),
            _ => None,
        };
        let version = versions.get(number).cloned().unwrap_or_default();
        Related { name, sense, version, is_before: flags & BEFORE != 0 }
    });
    // Each once, in its order.
    let mut seen = HashSet::new();
    related.filter(|one| !one.name.is_empty() && seen.insert(one.clone())).collect()
}

/// The requirements that a repository names.
fn required(header: &Header, own: &Own, provides: &[Related]) -> Vec<Related> {
    let all = relations(header, tag::REQUIRE_NAMES, tag::REQUIRE_FLAGS, tag::REQUIRE_VERSIONS);
    let files: HashSet<&str> =
        own.files.iter().map(|file| &*file.path).filter(|path| is_primary(path)).collect();
    let provided: HashSet<(&str, Option<&str>, &str)> =
        provides.iter().map(|one| (&*one.name, one.sense, &*one.version)).collect();
    let mut newest: Option<Related> = None;
    let mut needed = Vec::new();
    for one in all {
        let is_own = files.contains(&*one.name) || provided.contains(&(&one.name, one.sense, &one.version));
        if one.name.starts_with("rpmlib(") || is_own {
            continue;
        }
        if !one.name.starts_with(LIBC) {
            needed.push(one);
        } else if newest.as_ref().is_none_or(|newest| is_newer(&one.name, &newest.name)) {
            newest = Some(one);
        }
    }
    needed.extend(newest);
    needed
}

/// Whether a name such as `libc.so.6(GLIBC_2.34)(64bit)` is of a newer version than another one.
fn is_newer(one: &str, other: &str) -> bool {
    let version = |name: &str| {
        let inner = name.split('(').nth(1).unwrap_or_default().trim_end_matches(')').to_owned();
        inner.split_once('_').map_or(String::new(), |(_, version)| version.to_owned())
    };
    Evr::new("", &version(one), "").compare(&Evr::new("", &version(other), "")).is_gt()
}

fn write_relations(out: &mut String, element: &str, relations: &[Related]) {
    if relations.is_empty() {
        return;
    }
    let _ = writeln!(out, "    <rpm:{element}>");
    for Related { name, sense, version, is_before } in relations {
        let _ = write!(out, "      <rpm:entry name=\"{}\"", attribute(name));
        if let Some(sense) = sense.filter(|_| !version.is_empty()) {
            let (epoch, rest) = version.split_once(':').unwrap_or(("0", version));
            let (version, release) = rest.split_once('-').map_or((rest, None), |(v, r)| (v, Some(r)));
            let _ = write!(
                out,
                " flags=\"{sense}\" epoch=\"{}\" ver=\"{}\"",
                attribute(epoch),
                attribute(version)
            );
            if let Some(release) = release {
                let _ = write!(out, " rel=\"{}\"", attribute(release));
            }
        }
        out.push_str(if *is_before && element == "requires" { " pre=\"1\"/>\n" } else { "/>\n" });
    }
    let _ = writeln!(out, "    </rpm:{element}>");
}

/// Characters that XML cannot have at all.
fn printable(text: &str) -> String {
    text.chars().filter(|c| is_of_text(*c) || matches!(c, '\n' | '\t')).collect()
}

fn content(text: &str) -> String {
    partial_escape(printable(text)).into_owned()
}

fn attribute(text: &str) -> String {
    escape(printable(text)).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_one_day_get_a_second_each() {
        assert_eq!(apart(&[9, 5, 5, 5, 4]), [9, 7, 6, 5, 4]);
        assert_eq!(apart(&[5, 3, 5]), [5, 3, 5]);
    }

    #[test]
    fn texts_have_no_character_that_xml_cannot_have() {
        assert_eq!(content("a\u{0}\u{fffe}\u{ffff}\u{1f600}\n<b>"), "a\u{1f600}\n&lt;b&gt;");
    }
}
