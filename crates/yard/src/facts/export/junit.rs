//! JUnit's XML, as Jenkins and GitLab read it: a test case for each package
//! (<https://github.com/testmoapp/junitxml>).

use super::failed;
use crate::config::Config;
use crate::facts::picture::Picture;
use crate::report::name_of;
use crate::yard::Yard;
use kilnyard_model::result::PackageState;
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};
use std::collections::HashMap;
use std::io;

/// The results of a run.
///
/// # Errors
/// None: it is written into memory.
pub fn junit(yard: &Yard, picture: &Picture) -> io::Result<Vec<u8>> {
    write(&yard.config, &name_of(yard), picture)
}

fn write(config: &Config, yard: &str, picture: &Picture) -> io::Result<Vec<u8>> {
    let failures: HashMap<&str, _> =
        failed(config, picture).map(|failed| (failed.row.name.as_str(), failed)).collect();
    let is_skipped = |state| {
        matches!(
            state,
            PackageState::Blocked
                | PackageState::Skipped
                | PackageState::LeftOut
                | PackageState::Waiting
                | PackageState::Ready
                | PackageState::Building
        )
    };
    let skipped = picture.rows.iter().filter(|row| {
        is_skipped(row.state)
            || (row.state == PackageState::Failed && !failures.contains_key(row.name.as_str()))
    });
    let ended = picture.run.ended_seconds.unwrap_or(picture.run.started_seconds);
    let time = seconds(ended - picture.run.started_seconds);
    let mut out = Writer::new_with_indent(Vec::new(), b' ', 2);
    out.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let counts = [
        ("tests", picture.rows.len().to_string()),
        ("failures", failures.len().to_string()),
        ("skipped", skipped.count().to_string()),
        ("errors", "0".to_owned()),
        ("time", time),
    ];
    let mut suites = BytesStart::new("testsuites");
    let mut suite = BytesStart::new("testsuite");
    let name = format!("run {} of {yard}", picture.run.number);
    for element in [&mut suites, &mut suite] {
        element.push_attribute(("name", text(&name).as_str()));
        counts.iter().for_each(|(name, value)| element.push_attribute((*name, value.as_str())));
    }
    out.write_event(Event::Start(suites))?;
    out.write_event(Event::Start(suite))?;
    for (place, row) in picture.rows.iter().enumerate() {
        let build = picture.last_build(place);
        let wall = build.and_then(|build| Some(build.ended_seconds? - build.started_seconds));
        let mut case = BytesStart::new("testcase");
        case.push_attribute(("classname", text(yard).as_str()));
        case.push_attribute(("name", text(&row.name).as_str()));
        case.push_attribute(("time", seconds(wall.unwrap_or(0.0)).as_str()));
        let failure = failures.get(row.name.as_str());
        let skipped = failure.is_none() && (is_skipped(row.state) || row.state == PackageState::Failed);
        if failure.is_none() && !skipped {
            out.write_event(Event::Empty(case))?;
            continue;
        }
        out.write_event(Event::Start(case))?;
        if let Some(failure) = failure {
            let mut element = BytesStart::new("failure");
            element.push_attribute(("type", failure.kind()));
            element.push_attribute(("message", text(&failure.message()).as_str()));
            out.write_event(Event::Start(element))?;
            let lines = failure.lines().join("\n");
            out.write_event(Event::Text(BytesText::new(&text(&lines))))?;
            out.write_event(Event::End(BytesEnd::new("failure")))?;
        } else {
            let mut element = BytesStart::new("skipped");
            let expected = if row.state == PackageState::Failed { "failed as expected: " } else { "" };
            let message = format!("{}: {expected}{}", row.state, row.reason.first_line());
            element.push_attribute(("message", text(&message).as_str()));
            out.write_event(Event::Empty(element))?;
        }
        out.write_event(Event::End(BytesEnd::new("testcase")))?;
    }
    out.write_event(Event::End(BytesEnd::new("testsuite")))?;
    out.write_event(Event::End(BytesEnd::new("testsuites")))?;
    let mut bytes = out.into_inner();
    bytes.push(b'\n');
    Ok(bytes)
}

/// A text that XML 1.0 allows: it has no control characters but tabs and line feeds.
fn text(text: &str) -> String {
    let stripped = kilnyard_model::text::strip(text);
    stripped.chars().filter(|character| !matches!(character, '\u{fffe}' | '\u{ffff}')).collect()
}

/// Seconds with a point, whatever a clock did.
fn seconds(seconds: f64) -> String {
    format!("{:.3}", if seconds.is_finite() { seconds.clamp(0.0, 1e9) } else { 0.0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_what_xml_allows() {
        assert_eq!(text("a\u{1b}[31m<b>\0\u{fffe}\u{202e}\tc\n"), "a<b>\tc\n");
        assert_eq!(
            (seconds(f64::NAN), seconds(-1.0), seconds(1.23456)),
            ("0.000".to_owned(), "0.000".to_owned(), "1.235".to_owned())
        );
    }
}
