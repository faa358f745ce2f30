//! Two runs side by side.

use super::{Shell, Tab};
use crate::page::NAME_CHARACTERS_MAX;
use crate::{clean, words};
use kilnyard_schema::compare::{Change, Difference};
use kilnyard_schema::run::Run;
use maud::{Markup, html};

/// The most rows of a table.
const ROWS_MAX: usize = 300;
/// The longest text that is shown.
const TEXT_CHARACTERS_MAX: usize = 300;
/// The characters of a commit's id that are shown.
const ID_SHOWN: usize = 12;

/// The difference of two runs, with a form to choose others.
pub fn compare(shell: &Shell, difference: &Difference, runs: &[Run]) -> String {
    let Difference { earlier, later, .. } = *difference;
    let header = html! {
        h1 { "Run " (later) " compared with run " (earlier) }
        @if let Some(action) = shell.of_yard("compare") { form.filter method="get" action=(action) {
            @for (name, text, chosen) in [("earlier", "Earlier", earlier), ("later", "Later", later)] {
                div.field {
                    label for=(name) { (text) }
                    select id=(name) name=(name) {
                        @for run in runs.iter().take(ROWS_MAX) { option value=(run.run) selected[run.run == chosen] { "run " (run.run) } }
                    }
                }
            }
            button type="submit" { "Compare" }
        } }
    };
    let names = |heading: &str, names: &[String]| {
        html! {
            @if !names.is_empty() {
                section {
                    h2 { (heading) " " span.count { (words::count(names.len() as u64)) } }
                    div.names { (shell.unfolding_package_links(names, ROWS_MAX)) }
                }
            }
        }
    };
    let content = html! {
        @if is_same(difference) { p.empty { "Both runs had the same results." } }
        (table(shell, "Newly failing", &["Why"], &difference.newly_failing, |(name, why)| (name, vec![first(why)])))
        (names("Fixed", &difference.newly_fixed))
        (table(shell, "Failing otherwise", &["Was", "Is", "Why"], &difference.otherwise_failing, |row| {
            (&row.package, vec![row.earlier_state.clone(), row.later_state.clone(), first(&row.reason)])
        }))
        (table(shell, "New versions", &["Was", "Is"], &difference.new_versions, |row| {
            (&row.package, vec![row.earlier_version.clone(), row.later_version.clone()])
        }))
        (table(shell, "Slower", &["CPU time was", "Is"], &difference.slower, |row| {
            (&row.package, vec![words::duration(row.earlier_cpu_seconds), words::duration(row.later_cpu_seconds)])
        }))
        (table(shell, "More memory", &["Was", "Is"], &difference.larger, |row| {
            (&row.package, vec![words::size(row.earlier_memory_peak_bytes), words::size(row.later_memory_peak_bytes)])
        }))
        (names(&format!("Only in run {earlier}"), &difference.only_earlier))
        (names(&format!("Only in run {later}"), &difference.only_later))
        @if !difference.changes.is_empty() {
            section {
                h2 { "Commits" " " span.count { (words::count(difference.changes.len() as u64)) } }
                (changes(&difference.changes, ROWS_MAX))
            }
        }
    };
    shell.page(
        &format!("Run {later} of {} compared with run {earlier}", shell.title),
        Tab::Runs,
        header,
        content,
    )
}

fn is_same(difference: &Difference) -> bool {
    let Difference { newly_failing, otherwise_failing, newly_fixed, new_versions, slower, larger, .. } =
        difference;
    newly_failing.is_empty()
        && otherwise_failing.is_empty()
        && newly_fixed.is_empty()
        && new_versions.is_empty()
        && slower.is_empty()
        && larger.is_empty()
        && difference.only_earlier.is_empty()
        && difference.only_later.is_empty()
}

fn first(text: &str) -> String {
    text.lines().next().unwrap_or("").to_owned()
}

fn table<'a, T>(
    shell: &Shell,
    heading: &str,
    columns: &[&str],
    rows: &'a [T],
    cells: impl Fn(&'a T) -> (&'a String, Vec<String>),
) -> Markup {
    html! {
        @if !rows.is_empty() {
            section {
                h2 { (heading) " " span.count { (words::count(rows.len() as u64)) } }
                div.scroll role="region" aria-label={ (heading) ", scrollable" } tabindex="0" {
                    table.dense {
                        thead { tr { th scope="col" { "Package" } @for column in columns { th scope="col" { (column) } } } }
                        tbody {
                            @for row in rows.iter().take(ROWS_MAX) {
                                @let (name, values) = cells(row);
                                tr {
                                    th scope="row" { (shell.package_link(name)) }
                                    @for value in values { td { (clean::line(&value, TEXT_CHARACTERS_MAX)) } }
                                }
                            }
                        }
                    }
                }
                @if rows.len() > ROWS_MAX { p.cut { "and " (words::count((rows.len() - ROWS_MAX) as u64)) " more" } }
            }
        }
    }
}

/// Commits, of which `most` are shown.
pub(super) fn changes(changes: &[Change], most: usize) -> Markup {
    html! {
        ul.commits {
            @for change in changes.iter().take(most) {
                @let id: String = change.commit.chars().take(ID_SHOWN).collect();
                li {
                    code { (clean::name(&id, NAME_CHARACTERS_MAX)) } " "
                    (clean::line(change.lines.first().map_or("", String::as_str), TEXT_CHARACTERS_MAX)) " "
                    span.remark { (clean::name(&change.author, NAME_CHARACTERS_MAX)) }
                }
            }
            @if changes.len() > most { li.cut { "and " (words::count((changes.len() - most) as u64)) " more" } }
        }
    }
}
