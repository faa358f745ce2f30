//! The head of the document: title, policy, style.

use super::result;
use super::view::View;
use crate::markup::Markup;

/// Nothing is loaded and nothing is run, whatever a build manages to get onto the page. The style is inline, so it
/// must be allowed.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";

pub(crate) fn write(view: &View<'_>, out: &mut Markup) {
    out.element("head", &[], |out| {
        out.void("meta", &[("charset", "utf-8")]);
        out.void("meta", &[("http-equiv", "Content-Security-Policy"), ("content", POLICY)]);
        out.void("meta", &[("name", "viewport"), ("content", "width=device-width, initial-scale=1")]);
        out.void("meta", &[("name", "color-scheme"), ("content", "light dark")]);
        out.void("meta", &[("name", "robots"), ("content", "noindex")]);
        out.literal("\n");
        out.leaf("title", &[], &result::title(view));
        out.element("style", &[], |out| out.literal(include_str!("style.css")));
    });
}
