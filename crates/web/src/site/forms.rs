//! The pages around the yards: their list, the form to log in, and what went wrong.

use super::{document, state};
use crate::clean;
use crate::page::NAME_CHARACTERS_MAX;
use maud::html;

/// The longest reason that is shown.
const TEXT_CHARACTERS_MAX: usize = 600;

/// A yard, or a target of one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct YardEntry {
    /// Its name; `.` is the site's own.
    pub name: String,
    /// Its target, if it has several.
    pub target: Option<String>,
    /// The address of its pages.
    pub address: String,
    /// Its last run.
    pub run: Option<u64>,
    /// The state of that run.
    pub state: Option<String>,
    /// Why it cannot be read, if so.
    pub trouble: Option<String>,
}

/// All yards of a site.
pub fn yards(entries: &[YardEntry]) -> String {
    document(
        "Kilnyard",
        html! {
            header { h1 { "Yards" } }
            main #content {
                @if entries.is_empty() { p.empty { "There is no yard that you may see." } }
                ul.yards {
                    @for entry in entries {
                        @let name = if entry.name == "." { "This site’s own yard" } else { entry.name.as_str() };
                        li {
                            @match &entry.trouble {
                                Some(trouble) => { b { (clean::name(name, NAME_CHARACTERS_MAX)) } " " (clean::line(trouble, TEXT_CHARACTERS_MAX)) },
                                None => {
                                    a href=(entry.address) {
                                        (clean::name(name, NAME_CHARACTERS_MAX))
                                        @if let Some(target) = &entry.target { ", " (clean::name(target, NAME_CHARACTERS_MAX)) }
                                    }
                                    " "
                                    @match (entry.run, &entry.state) {
                                        (Some(run), Some(word)) => { span.remark { "run " (run) } " " (state(word)) },
                                        _ => span.remark { "no run yet" },
                                    }
                                }
                            }
                        }
                    }
                }
            }
        },
    )
}

/// The form to log in with a token; `next` is the address that it leads to.
pub fn login(next: &str, problem: Option<&str>) -> String {
    document(
        "Log in – Kilnyard",
        html! {
            header { h1 { "Log in" } }
            main #content {
                @if let Some(problem) = problem { p.message role="alert" { (clean::line(problem, TEXT_CHARACTERS_MAX)) } }
                p { "These pages need a token, which the owner of the yard makes: " code { "kilnyard people token NAME" } }
                form.login method="post" action="/login" {
                    input type="hidden" name="next" value=(clean::line(next, TEXT_CHARACTERS_MAX));
                    label for="token" { "Token" }
                    input #token type="password" name="token" required autocomplete="current-password" maxlength="200";
                    button type="submit" { "Log in" }
                }
            }
        },
    )
}

/// What went wrong, for a person.
pub fn problem(status: u16, why: &str) -> String {
    let title = match status {
        404 => "Not found",
        403 => "Not allowed",
        409 => "Nothing to do",
        _ => "That did not work",
    };
    document(
        &format!("{title} – Kilnyard"),
        html! {
            header { h1 { (title) } }
            main #content {
                p { (clean::line(why, TEXT_CHARACTERS_MAX)) "." }
                p { a href="/" { "To the start" } }
            }
        },
    )
}
