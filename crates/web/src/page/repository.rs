//! How to use what was built.

use super::Section;
use super::view::View;
use crate::markup::Markup;
use crate::{clean, words};

/// Characters of a path, a line or a fingerprint.
const FACT_CHARACTERS_MAX: usize = 1000;

pub(super) fn section(view: &View<'_>) -> Option<Section> {
    view.report.repository.is_some().then_some(Section {
        id: "repository",
        heading: "Repository",
        count: None,
        write,
    })
}

fn write(view: &View<'_>, out: &mut Markup) {
    let Some(repository) = &view.report.repository else {
        return;
    };
    let text = |text: &str| clean::line(text, FACT_CHARACTERS_MAX);
    if !repository.sources_line.is_empty() {
        out.leaf("p", &[], "This line makes a machine use it; one click selects all of it.");
        out.element("pre", &[("class", "copy")], |out| {
            out.leaf("code", &[], &text(&repository.sources_line))
        });
    }
    out.element("dl", &[("class", "pairs")], |out| {
        let holds = words::counted(repository.packages, "package", "packages");
        for (name, value) in [
            ("Key fingerprint", text(&repository.fingerprint)),
            ("Folder", text(&repository.path)),
            ("Holds", holds),
        ] {
            if !value.is_empty() {
                out.leaf("dt", &[], name);
                out.leaf("dd", &[], &value);
            }
        }
    });
}
