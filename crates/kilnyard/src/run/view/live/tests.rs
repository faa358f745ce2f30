use super::super::BuildSeen;
use super::*;
use kilnyard_model::order::Stage;
use kilnyard_model::result::PackageState;
use ratatui::style::Color;

/// An instant this many seconds ago.
pub fn ago(now: Instant, seconds: u64) -> Instant {
    now.checked_sub(Duration::from_secs(seconds)).unwrap_or(now)
}

/// Seven packages of twelve are done, and one of them failed.
pub fn snapshot(slots: u32, busy: u32) -> Snapshot {
    let now = Instant::now();
    let build = |slot| BuildSeen {
        build: u64::from(slot) + 1,
        package: format!("package{slot}"),
        version: "1.0-1".to_owned(),
        slot,
        stage: Some(Stage::Build),
        started: ago(now, 20),
        stage_started: ago(now, 10),
        cores: 3,
        memory_bytes: 50 << 20,
        processes: (0, 0),
        estimate_seconds: 60.0,
    };
    Snapshot {
        run: 3,
        is_resumed: false,
        started: ago(now, 60),
        cores: 2,
        slots,
        expected_seconds: 200.0,
        counts: vec![(PackageState::Built, 6), (PackageState::Failed, 1), (PackageState::Waiting, 5)],
        builds: (0..busy).map(build).collect(),
        remaining_path_seconds: 80.0,
        bytes_fetched: 12 << 20,
        work_seconds: (0.0, 0.0),
        ready: Vec::new(),
        failed: Vec::new(),
    }
}

fn moment() -> Moment {
    Moment {
        now: Instant::now(),
        clock: jiff::civil::date(2024, 5, 6).at(14, 30, 0, 0),
        machine: machine::Machine::default(),
        worked_before: 0,
        is_stopping: false,
    }
}

fn paragraph(text: &str) -> Paragraph {
    Paragraph { style: Style::new().fg(Color::Red), indent: 0, text: text.to_owned() }
}

fn terminal(width: u16, height: u16, row: u16, rows: u16) -> Terminal<Screen<ratatui::backend::TestBackend>> {
    let screen = Screen::cells(Size { width, height }, Position { x: 0, y: row });
    Terminal::with_options(screen, TerminalOptions { viewport: Viewport::Inline(rows) }).unwrap()
}

#[test]
fn lines_scroll_up_above_the_picture() {
    let mut terminal = terminal(80, 10, 0, 4);
    let run = snapshot(2, 1);
    for number in 0..20 {
        scroll(&mut terminal, &[paragraph(&format!("line {number}"))], true).unwrap();
        draw(&mut terminal, &run, &moment(), &Panes::default(), true).unwrap();
    }
    let rows = terminal.backend().rows();
    assert_eq!(rows[..6], ["line 14", "line 15", "line 16", "line 17", "line 18", "line 19"]);
    assert!(rows[6].starts_with("run 3  ["), "{}", rows[6]);
    assert!(rows[7].starts_with("1  package0 1.0-1  build"), "{}", rows[7]);
    assert_eq!(rows[8], "2  free");
    assert!(rows[9].starts_with("cores"), "{}", rows[9]);
    take_off(&mut terminal).unwrap();
    let rows = terminal.backend().rows();
    assert_eq!(rows[5..], ["line 19", "", "", "", ""]);
    assert_eq!(terminal.backend_mut().get_cursor_position().unwrap(), Position { x: 0, y: 6 });
}

#[test]
fn a_shorter_line_leaves_nothing_of_a_longer_one() {
    let mut terminal = terminal(80, 10, 2, 4);
    let mut run = snapshot(2, 2);
    draw(&mut terminal, &run, &moment(), &Panes::default(), true).unwrap();
    run.builds.clear();
    let extents = draw(&mut terminal, &run, &moment(), &Panes::default(), true).unwrap();
    let rows = terminal.backend().rows();
    assert_eq!(rows[3..5], ["1  free", "2  free"]);
    let widths: Vec<usize> = rows[2..6].iter().map(|row| columns::width(row)).collect();
    assert_eq!(extents, widths);
}

#[test]
fn any_size_can_be_drawn() {
    for width in [1, 9, 20, 40, 200] {
        for height in [1, 2, 3, 4, 12, 24] {
            for slots in [0, 2, 64] {
                let mut terminal = terminal(width, height, height - 1, lines::rows(slots, 0, height));
                let failure = [paragraph("a failure of some length with 漢字 in it"), paragraph("")];
                scroll(&mut terminal, &failure, true).unwrap();
                draw(&mut terminal, &snapshot(slots, slots), &moment(), &Panes::default(), true).unwrap();
                take_off(&mut terminal).unwrap();
            }
        }
    }
}

#[test]
fn no_colour_means_none() {
    let style = shown(Style::new().fg(Color::Red).bold(), false);
    assert_eq!(style, Style::new().bold());
    let style = Style::new().fg(Color::Red);
    assert_eq!(shown(style, true), style);
}

#[test]
fn a_narrower_terminal_wraps_what_it_shows() {
    assert_eq!(rows_above(&[70, 80, 7, 60], 80, 80), 3);
    assert_eq!(rows_above(&[70, 80, 7, 60], 80, 120), 3);
    assert_eq!(rows_above(&[70, 80, 7, 60], 80, 40), 6);
    assert_eq!(rows_above(&[], 80, 40), 0);
    assert_eq!(rows_above(&[0, 0], 80, 40), 1);
}
