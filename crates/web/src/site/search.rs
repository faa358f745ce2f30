//! What a search finds.

use super::{Shell, Tab, state};
use crate::page::NAME_CHARACTERS_MAX;
use crate::{clean, words};
use kilnyard_schema::package::Found;
use maud::html;

/// The packages of the last run whose names or failures contain a text.
pub fn search(shell: &Shell, text: &str, found: &[Found]) -> String {
    let shown = clean::name(text, NAME_CHARACTERS_MAX);
    let header = html! {
        h1 { "Search" " " span.version { "“" (shown) "”" } }
        p.result { (words::counted(found.len() as u64, "result", "results")) }
    };
    let content = html! {
        ul.found {
            @for one in found {
                li {
                    (shell.package_link(&one.package)) " " (state(&one.state))
                    @if let Some(line) = &one.line { pre.log tabindex="0" role="group" aria-label={ "Log line of " (clean::name(&one.package, NAME_CHARACTERS_MAX)) } { (clean::line(line, 300)) } }
                }
            }
        }
    };
    shell.page(&format!("Search for {shown} in {}", shell.title), Tab::None, header, content)
}
