//! The lines of the picture of a run, from a snapshot and a size: a header, a line for each slot, a footer.

use super::super::{BuildSeen, Snapshot};
use super::machine::Machine;
use super::panes::Panes;
use super::{columns, estimate};
use crate::words;
use jiff::{SignedDuration, civil::DateTime};
use kilnyard_model::result::PackageState;
use kilnyard_model::text;
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use std::time::Instant;

/// The separator of facts on a line.
const GAP: &str = "  ";
/// The longest useful bar, in columns.
const BAR_COLUMNS_MAX: usize = 24;
/// The shortest useful bar, in columns.
const BAR_COLUMNS_MIN: usize = 5;
/// The widest column of names.
const NAME_COLUMNS_MAX: usize = 36;
/// The narrowest column of names.
const NAME_COLUMNS_MIN: usize = 16;

/// The facts on the picture that are not in the snapshot.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    /// The time from which durations are counted.
    pub now: Instant,
    /// The local time.
    pub clock: DateTime,
    /// Load and memory of this machine.
    pub machine: Machine,
    /// The number of builds before this process started or resumed the run.
    pub worked_before: u64,
    /// Whether the user has interrupted the run, which waits for its builds to end.
    pub is_stopping: bool,
}

/// `0:34`, `12:05`, `3:07:59`.
pub fn clock(seconds: f64) -> String {
    let whole = if seconds.is_finite() { seconds.max(0.0) as u64 } else { 0 };
    match whole / 3600 {
        0 => format!("{}:{:02}", whole / 60, whole % 60),
        hours => format!("{hours}:{:02}:{:02}", whole / 60 % 60, whole % 60),
    }
}

/// The height of the picture: a row for each slot, for what is below them, and two more, but at most two thirds of the
/// screen. The rest is left for lines that scroll up.
pub fn rows(slots: u32, panes_rows: u16, screen_rows: u16) -> u16 {
    let wanted = u16::try_from(slots).unwrap_or(u16::MAX).saturating_add(2).saturating_add(panes_rows);
    let room = (u32::from(screen_rows) * 2 / 3) as u16;
    wanted.min(room.max(3)).min(screen_rows)
}

/// The lines of the picture, as many as there are rows, cut to these columns.
pub fn picture(
    snapshot: &Snapshot,
    moment: &Moment,
    panes: &Panes,
    columns: usize,
    rows: usize,
) -> Vec<Line<'static>> {
    let mut picture = vec![header(snapshot, moment, columns)];
    if rows > 2 {
        // Builds come first, but a log that was asked for has some rows.
        let wanted = usize::from(panes.rows(snapshot, u16::MAX)).min(match panes.has_log {
            true => (rows - 2) * 2 / 3,
            false => (rows - 2).saturating_sub(snapshot.slots as usize),
        });
        picture.extend(slots(snapshot, moment, panes, columns, rows - 2 - wanted));
        picture.extend(panes.lines(snapshot, columns, wanted));
        // The last line is the last row.
        picture.resize(rows - 1, Line::default());
    }
    if rows > 1 {
        picture.push(last(snapshot, moment, columns));
    }
    picture
}

fn header(snapshot: &Snapshot, moment: &Moment, columns: usize) -> Line<'static> {
    let (done, total) = snapshot.done();
    let elapsed = moment.now.saturating_duration_since(snapshot.started).as_secs_f64();
    let left = match left(snapshot, moment) {
        _ if moment.is_stopping => Some("stopping".to_owned()),
        Some(left) => Some(format!("about {} left", clock(left))),
        None => None,
    };
    let failed = match snapshot.count(PackageState::Failed) {
        0 => None,
        failed => Some(Span::styled(format!("{failed} failed"), Style::new().fg(Color::Red).bold())),
    };
    let run = Span::from(format!("run {}", snapshot.run)).bold();
    let count = Some(Span::from(format!("{done}/{total}")));
    let time = match &left {
        Some(left) => format!("{} elapsed, {left}", clock(elapsed)),
        None => format!("{} elapsed", clock(elapsed)),
    };
    let wide = [count.clone(), failed.clone(), Some(Span::from(time))];
    let middling = [count.clone(), failed.clone(), left.map(Span::from)];
    let choices = [wide, middling, [count, failed, None]];
    let facts = |choice: &[Option<Span<'static>>; 3]| -> Vec<Span<'static>> {
        choice.iter().flatten().cloned().collect()
    };
    let width =
        |facts: &[Span]| run.width() + facts.iter().map(|fact| GAP.len() + fact.width()).sum::<usize>();
    let chosen = choices.iter().map(facts).find(|facts| width(facts) <= columns);
    let chosen = chosen.unwrap_or_else(|| facts(&choices[2]));
    let room = columns.saturating_sub(width(&chosen) + GAP.len() + 2).min(BAR_COLUMNS_MAX);
    let mut spans = vec![run];
    if room >= BAR_COLUMNS_MIN {
        let filled = (part(snapshot, moment) * room as f64) as usize;
        spans.push(Span::from(format!("{GAP}[{:room$}]", "=".repeat(filled.min(room)))));
    }
    for fact in chosen {
        spans.push(Span::from(GAP));
        spans.push(fact);
    }
    fit(spans, columns)
}

/// The part of the work that is done, from 0 to 1: by estimated time, or by the number of packages if nothing was estimated.
fn part(snapshot: &Snapshot, moment: &Moment) -> f64 {
    let (done, all) = snapshot.work_seconds;
    if !(all > 0.0 && all.is_finite()) {
        let (done, total) = snapshot.done();
        return if total == 0 { 0.0 } else { done as f64 / total as f64 };
    }
    let gone = snapshot.builds.iter().map(|build| {
        let gone = moment.now.saturating_duration_since(build.started).as_secs_f64();
        gone.min(build.estimate_seconds.max(0.0))
    });
    ((done + gone.sum::<f64>()) / all).clamp(0.0, 1.0)
}

fn left(snapshot: &Snapshot, moment: &Moment) -> Option<f64> {
    let left = estimate::left_seconds(snapshot, moment.worked_before, moment.now);
    left.filter(|left| *left > 0.0).map(estimate::rounded)
}

/// A line for each slot if they fit, or the oldest builds and the number of the others.
fn slots(
    snapshot: &Snapshot,
    moment: &Moment,
    panes: &Panes,
    columns: usize,
    rows: usize,
) -> Vec<Line<'static>> {
    let mut builds: Vec<&BuildSeen> = snapshot.builds.iter().collect();
    if snapshot.slots as usize <= rows && builds.len() <= rows {
        builds.sort_by_key(|build| build.slot);
        let mut texts = table(&builds, moment, panes, columns).into_iter();
        let mut fetching = snapshot.count(PackageState::Ready);
        let taken = |slot: u32| builds.iter().any(|build| build.slot == slot);
        let mut lines = Vec::new();
        for slot in 0..snapshot.slots {
            if taken(slot) {
                lines.extend(texts.next());
                continue;
            }
            // A package is ready and a slot is free: its inputs are being fetched.
            let what = match fetching {
                0 => "free".to_owned(),
                _ => format!("fetching ({} so far)", words::size(snapshot.bytes_fetched)),
            };
            fetching = fetching.saturating_sub(1);
            lines.push(fit(vec![Span::from(format!("{}  {what}", slot + 1)).dim()], columns));
        }
        return lines;
    }
    builds.sort_by_key(|build| (build.started, build.slot));
    let shown = builds.len().min(rows.saturating_sub(1));
    let mut lines = table(&builds[..shown], moment, panes, columns);
    let free = u64::from(snapshot.slots).saturating_sub(builds.len() as u64);
    let more = match (builds.len() - shown, free) {
        (0, free) => format!("and {free} free"),
        (more, 0) => format!("and {more} more"),
        (more, free) => format!("and {more} more, {free} free"),
    };
    lines.push(fit(vec![Span::from(more).dim()], columns));
    lines
}

/// A table of builds. Less important columns are left out if they do not fit.
fn table(builds: &[&BuildSeen], moment: &Moment, panes: &Panes, columns: usize) -> Vec<Line<'static>> {
    let cells: Vec<[String; 7]> = builds.iter().map(|build| cells(build, moment)).collect();
    let widest = |column: usize| cells.iter().map(|row| columns::width(&row[column])).max().unwrap_or(0);
    let widths: Vec<usize> = (0..7).map(widest).collect();
    // The second column, the name, takes the remaining width.
    let choices: [&[usize]; 5] = [&[0, 2, 3, 4, 5, 6], &[0, 2, 3, 4, 6], &[0, 2, 3, 4], &[0, 2, 3], &[0, 3]];
    let room = |choice: &[usize]| {
        let taken: usize = choice.iter().map(|column| widths[*column] + GAP.len()).sum();
        columns.saturating_sub(taken)
    };
    let name = widths[1].min(NAME_COLUMNS_MAX);
    let enough = name.min(NAME_COLUMNS_MIN.max(columns / 4));
    let choice = choices.iter().find(|choice| room(choice) >= enough).unwrap_or(&choices[4]);
    let name = name.min(room(choice));
    let line = |(row, build): (&[String; 7], &&BuildSeen)| {
        let elapsed = moment.now.saturating_duration_since(build.started).as_secs_f64();
        let is_late = build.estimate_seconds >= 1.0 && elapsed > build.estimate_seconds;
        let mut spans = vec![Span::from(format!("{:>1$}", row[0], widths[0])), Span::from(GAP)];
        spans.push(Span::from(padded(&columns::cut(&row[1], name), name)));
        for column in &choice[1..] {
            spans.push(Span::from(GAP));
            // Numbers are right-aligned, text is left-aligned.
            let cell = match column {
                3 | 5 | 6 => format!("{:>1$}", row[*column], widths[*column]),
                _ => padded(&row[*column], widths[*column]),
            };
            let span = Span::from(cell);
            // It takes longer than was estimated.
            spans.push(if is_late && matches!(column, 3 | 4) { span.yellow() } else { span });
        }
        let line = fit(spans, columns);
        if panes.chosen.as_ref() == Some(&build.package) { line.reversed() } else { line }
    };
    cells.iter().zip(builds).map(line).collect()
}

fn cells(build: &BuildSeen, moment: &Moment) -> [String; 7] {
    let elapsed = |since| moment.now.saturating_duration_since(since).as_secs_f64();
    let of = match build.estimate_seconds {
        seconds if seconds.is_finite() && seconds >= 1.0 => {
            format!("(of about {})", clock(estimate::rounded(seconds)))
        }
        _ => String::new(),
    };
    [
        (u64::from(build.slot) + 1).to_string(),
        format!("{} {}", text::line(&build.package), text::line(&build.version)),
        build.stage.map_or("starting", |stage| stage.as_str()).to_owned(),
        clock(elapsed(build.started)),
        of,
        match build.cores {
            1 => "1 core ".to_owned(),
            more => format!("{more} cores"),
        },
        format!("{:.0} MiB", build.memory_bytes as f64 / 1_048_576.0),
    ]
}

fn last(snapshot: &Snapshot, moment: &Moment, columns: usize) -> Line<'static> {
    let gibibytes = |bytes: u64| bytes as f64 / 1_073_741_824.0;
    let cores = moment.machine.cores.map(|(busy, cores)| format!("cores {busy:.1} of {cores}"));
    let cores = cores.unwrap_or_else(|| format!("cores ? of {}", snapshot.cores));
    let memory = moment
        .machine
        .memory_bytes
        .map(|(used, total)| format!("memory {:.1} of {:.1} GiB", gibibytes(used), gibibytes(total)));
    let fetched = Some(format!("fetched {}", words::size(snapshot.bytes_fetched)));
    let end = left(snapshot, moment).filter(|_| !moment.is_stopping).and_then(|left| end(left, moment.clock));
    let choices = [
        vec![Some(cores.clone()), memory.clone(), fetched, end.clone()],
        vec![Some(cores.clone()), memory, end.clone()],
        vec![Some(cores.clone()), end],
        vec![Some(cores)],
    ];
    let joined = |facts: &Vec<Option<String>>| facts.iter().flatten().cloned().collect::<Vec<_>>().join(GAP);
    let texts: Vec<String> = choices.iter().map(joined).collect();
    let text = texts.iter().find(|text| columns::width(text) <= columns).unwrap_or(&texts[3]);
    fit(vec![Span::from(text.clone()).dim()], columns)
}

/// `end about 14:35`, with the day if it is not today.
fn end(left_seconds: f64, clock: DateTime) -> Option<String> {
    let end = clock.checked_add(SignedDuration::from_secs(left_seconds as i64)).ok()?;
    let form = if end.date() == clock.date() { "%H:%M" } else { "%a %d %b %H:%M" };
    Some(format!("end about {}", end.strftime(form)))
}

fn padded(text: &str, columns: usize) -> String {
    format!("{text}{:1$}", "", columns.saturating_sub(columns::width(text)))
}

/// Cuts the spans to the width.
fn fit(spans: Vec<Span<'static>>, columns: usize) -> Line<'static> {
    let mut room = columns;
    let mut kept = Vec::new();
    for span in spans {
        let width = span.width();
        if width > room {
            kept.push(Span::styled(columns::cut(&span.content, room), span.style));
            break;
        }
        room -= width;
        kept.push(span);
    }
    // Trailing blanks would be wrapped when the terminal gets narrower.
    while let Some(last) = kept.last_mut() {
        let text = last.content.trim_end().to_owned();
        if text.is_empty() {
            kept.pop();
            continue;
        }
        last.content = text.into();
        break;
    }
    Line::from(kept)
}

#[cfg(test)]
mod tests;
