//! The page: which sections there are, in which order, and what they have in common.
//!
//! A section that has nothing to say is not there at all, and neither is its link at the top.

mod blocked;
mod expected;
mod failures;
mod head;
mod left_behind;
mod packages;
mod remains;
mod repository;
mod result;
mod slowest;
mod timeline;
mod view;

use crate::Report;
use crate::markup::Markup;
use view::View;

pub(crate) use view::{NAME_CHARACTERS_MAX, state_word};

/// A part of the page: the name for links to it, its heading, and what writes it.
struct Section {
    id: &'static str,
    heading: &'static str,
    /// How many things it is about, where that says something.
    count: Option<u64>,
    write: fn(&View<'_>, &mut Markup),
}

/// The text of `index.html` for a report. Pure: the same report gives the same text.
pub fn page(report: &Report) -> String {
    let view = View::new(report);
    let sections = sections(&view);
    let mut out = Markup::default();
    out.literal("<!DOCTYPE html>\n");
    out.element("html", &[("lang", "en")], |out| {
        head::write(&view, out);
        out.element("body", &[], |out| {
            out.leaf("a", &[("class", "skip"), ("href", "#content")], "Skip to the content");
            out.element("header", &[], |out| {
                result::write(&view, out);
                write_links(&sections, out);
            });
            out.element("main", &[("id", "content")], |out| {
                for section in &sections {
                    write_section(section, &view, out);
                }
                if sections.is_empty() {
                    out.leaf(
                        "p",
                        &[("class", "empty")],
                        "Nothing was built, so there is nothing more to show.",
                    );
                }
            });
            out.element("footer", &[], |out| write_footer(report, out));
        });
    });
    out.finish()
}

/// The sections that have something to say.
fn sections(view: &View<'_>) -> Vec<Section> {
    let all = [
        failures::section(view),
        blocked::section(view),
        timeline::section(view),
        expected::section(view),
        slowest::section(view),
        left_behind::section(view),
        remains::cycles(view),
        remains::left_out(view),
        packages::section(view),
        repository::section(view),
    ];
    all.into_iter().flatten().collect()
}

fn write_links(sections: &[Section], out: &mut Markup) {
    if sections.len() < 2 {
        return;
    }
    out.element("nav", &[("aria-label", "On this page")], |out| {
        out.element("ul", &[], |out| {
            for section in sections {
                let target = format!("#{}", section.id);
                out.element("li", &[], |out| out.leaf("a", &[("href", &target)], section.heading));
            }
        });
    });
}

fn write_section(section: &Section, view: &View<'_>, out: &mut Markup) {
    let heading_id = format!("{}-heading", section.id);
    out.element("section", &[("id", section.id), ("aria-labelledby", &heading_id)], |out| {
        out.element("h2", &[("id", &heading_id)], |out| {
            out.text(section.heading);
            if let Some(count) = section.count {
                out.text(" ");
                out.leaf("span", &[("class", "count")], &crate::words::count(count));
            }
        });
        (section.write)(view, out);
    });
}

fn write_footer(report: &Report, out: &mut Markup) {
    out.element("p", &[], |out| {
        let version = crate::clean::name(&report.kilnyard, NAME_CHARACTERS_MAX);
        out.text(&format!("Made by Kilnyard {version}. "));
        out.text("The same data for programs: ");
        out.leaf("a", &[("href", crate::REPORT_FILE)], crate::REPORT_FILE);
        out.text(&format!(" (schema {}). Times are UTC.", report.schema));
    });
}
