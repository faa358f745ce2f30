//! The head of the document: title, content security policy, style sheet.

use super::result;
use super::view::View;
use maud::{Markup, PreEscaped, html};

/// Nothing is loaded and nothing runs, whatever a build manages to get onto the page. The style sheet is
/// inline, so inline styles must be allowed.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

pub(crate) fn head(view: &View<'_>) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(POLICY);
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="robots" content="noindex";
            "\n" title { (result::title(view)) } "\n"
            style { (PreEscaped(include_str!("style.css"))) }
        }
        "\n"
    }
}
