//! The whole table of packages, with links to all logs.

use super::Section;
use super::view::{self, NAME_CHARACTERS_MAX, View, state_class, state_word};
use crate::markup::Markup;
use crate::words::{self, sane_seconds};
use crate::{PackageState, ReportPackage, clean};

/// Characters of a reason.
const REASON_CHARACTERS_MAX: usize = 240;

/// Stages, outputs and dependencies listed for one package.
const STAGES_MAX: usize = 16;
const OUTPUTS_MAX: usize = 30;
const NAMES_MAX: usize = 30;

const HEADINGS: [&str; 8] = ["Package", "Result", "Why", "#Wall", "#CPU", "#Peak memory", "Outputs", "Logs"];

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    let packages = view.report.packages.len();
    (packages > 0).then_some(Section {
        id: "packages",
        heading: "All packages",
        count: Some(packages as u64),
        write,
    })
}

fn write(view: &View<'_>, out: &mut Markup) {
    view::cut_note(view.rows.len(), view.report.packages.len(), "packages", out);
    view::scrolling("All packages", out, |out| {
        out.element("table", &[("class", "packages")], |out| {
            view::table_head(&HEADINGS, out);
            // Rows come in groups of one state.
            for rows in view.rows.chunk_by(|a, b| view.package(*a).state == view.package(*b).state) {
                out.element("tbody", &[], |out| {
                    for index in rows {
                        let id = format!("p{index}");
                        out.element("tr", &[("id", &id)], |out| write_row(view, *index, out));
                    }
                });
            }
        });
    });
}

fn write_row(view: &View<'_>, index: usize, out: &mut Markup) {
    let package = view.package(index);
    out.element("th", &[("scope", "row")], |out| {
        out.text(&clean::name(&package.name, NAME_CHARACTERS_MAX));
        out.text(" ");
        out.leaf("span", &[("class", "version")], &clean::name(&package.version, NAME_CHARACTERS_MAX));
    });
    out.element("td", &[], |out| write_result(view, index, out));
    out.element("td", &[("class", "prose")], |out| write_why(view, package, out));
    let ran = sane_seconds(package.wall_seconds) > 0.0;
    let number = |known: bool, text: String| if known { text } else { "–".to_owned() };
    let numbers = [
        number(ran, words::duration(package.wall_seconds)),
        number(ran, words::duration(package.cpu_seconds)),
        number(package.memory_peak_bytes > 0, words::size(package.memory_peak_bytes)),
    ];
    for text in &numbers {
        out.leaf("td", &[("class", "number")], text);
    }
    out.element("td", &[], |out| write_outputs(package, out));
    out.element("td", &[("class", "logs")], |out| write_logs(package, out));
}

fn write_result(view: &View<'_>, index: usize, out: &mut Markup) {
    let package = view.package(index);
    let (class, word) = (state_class(package.state), state_word(package.state));
    if view.has_failure(index) {
        out.leaf("a", &[("class", class), ("href", &format!("#f{index}"))], word);
    } else {
        out.leaf("span", &[("class", class)], word);
    }
    let mut remark = |text: &str| {
        out.text(" ");
        out.leaf("span", &[("class", "remark")], text);
    };
    if package.attempts > 1 {
        remark(&format!("{} attempts", words::count(u64::from(package.attempts))));
    }
    match package.reproducible {
        Some(true) => remark("reproducible"),
        Some(false) => remark("not reproducible"),
        None => {}
    }
}

fn write_why(view: &View<'_>, package: &ReportPackage, out: &mut Markup) {
    out.text(&clean::line(&package.reason, REASON_CHARACTERS_MAX));
    if package.state == PackageState::Blocked && !package.blocked_by.is_empty() {
        out.text(" ");
        out.element("span", &[("class", "remark")], |out| {
            out.text("waits for ");
            view.links(&package.blocked_by, NAMES_MAX, out);
        });
    }
    if !package.depends.is_empty() {
        out.element("details", &[], |out| {
            let needs = words::counted(package.depends.len() as u64, "package", "packages");
            out.leaf("summary", &[], &format!("needs {needs}"));
            view.links(&package.depends, NAMES_MAX, out);
        });
    }
}

fn write_outputs(package: &ReportPackage, out: &mut Markup) {
    let outputs = &package.outputs;
    if outputs.is_empty() {
        out.text("–");
        return;
    }
    let all = outputs.iter().fold(0u64, |sum, output| sum.saturating_add(output.size_bytes));
    out.element("details", &[], |out| {
        out.leaf("summary", &[], &format!("{}, {}", words::count(outputs.len() as u64), words::size(all)));
        out.element("ul", &[], |out| {
            for output in outputs.iter().take(OUTPUTS_MAX) {
                out.element("li", &[], |out| {
                    out.text(&clean::name(&output.name, NAME_CHARACTERS_MAX));
                    let version = clean::name(&output.version, NAME_CHARACTERS_MAX);
                    let architecture = clean::name(&output.architecture, NAME_CHARACTERS_MAX);
                    let rest = format!("{version} {architecture}, {}", words::size(output.size_bytes));
                    out.text(" ");
                    out.leaf("span", &[("class", "remark")], &rest);
                });
            }
            if outputs.len() > OUTPUTS_MAX {
                let more = words::count((outputs.len() - OUTPUTS_MAX) as u64);
                out.leaf("li", &[("class", "cut")], &format!("and {more} more"));
            }
        });
    });
}

fn write_logs(package: &ReportPackage, out: &mut Markup) {
    let logged = || package.stages.iter().filter(|stage| stage.log.is_some());
    if logged().next().is_none() {
        out.text("–");
        return;
    }
    for (position, stage) in logged().take(STAGES_MAX).enumerate() {
        if position > 0 {
            out.text(" ");
        }
        let name = clean::name(&stage.name, NAME_CHARACTERS_MAX);
        let (text, class) =
            if stage.failed() { (format!("{name} (failed)"), "bad-log") } else { (name, "log-link") };
        view::log_link(stage.log.as_deref(), &text, class, out);
    }
    let all = logged().count();
    if all > STAGES_MAX {
        out.text(&format!(" and {} more", words::count((all - STAGES_MAX) as u64)));
    }
}
