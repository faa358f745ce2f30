use super::super::tests::{ago, snapshot};
use super::*;
use kilnyard_model::order::Stage;

fn moment(now: Instant) -> Moment {
    Moment {
        now,
        clock: jiff::civil::date(2024, 5, 6).at(14, 30, 0, 0),
        machine: Machine { cores: Some((1.75, 2)), memory_bytes: Some((3 << 30, 8 << 30)) },
        worked_before: 0,
        is_stopping: false,
    }
}

fn texts(snapshot: &Snapshot, moment: &Moment, columns: usize, rows: usize) -> Vec<String> {
    picture(snapshot, moment, &Panes::default(), columns, rows).iter().map(ToString::to_string).collect()
}

fn demo(now: Instant) -> Snapshot {
    let mut run = snapshot(2, 1);
    run.started = ago(now, 130);
    run.expected_seconds = 225.0;
    run.remaining_path_seconds = 50.0;
    let build = &mut run.builds[0];
    build.package = "rsync".to_owned();
    build.version = "3.2.7-1+deb12u6+bk1".to_owned();
    build.stage = Some(Stage::Build);
    build.started = ago(now, 34);
    build.estimate_seconds = 70.0;
    build.cores = 3;
    build.memory_bytes = 180 << 20;
    run
}

#[test]
fn eighty_columns_show_everything() {
    let now = Instant::now();
    let expected = [
        "run 3  [=========      ]  7/12  1 failed  2:10 elapsed, about 1:35 left",
        "1  rsync 3.2.7-1+deb12u6+bk1  build  0:34  (of about 1:10)  3 cores  180 MiB",
        "2  free",
        "cores 1.8 of 2  memory 3.0 of 8.0 GiB  fetched 12.0 MiB  end about 14:31",
    ];
    let texts = texts(&demo(now), &moment(now), 80, 4);
    assert_eq!(texts[1..], expected[1..]);
    assert!(texts[0].starts_with("run 3  [====="), "{}", texts[0]);
    assert!(texts[0].ends_with("]  7/12  1 failed  2:10 elapsed, about 1:35 left"), "{}", texts[0]);
}

#[test]
fn forty_columns_leave_out_the_less_important() {
    let now = Instant::now();
    let expected = [
        "run 3  7/12  1 failed  about 1:35 left",
        "1  rsync 3.2.7-1+deb12u6+b…  build  0:34",
        "2  free",
        "cores 1.8 of 2  end about 14:31",
    ];
    assert_eq!(texts(&demo(now), &moment(now), 40, 4), expected);
}

#[test]
fn nothing_is_ever_too_wide_or_too_high() {
    let now = Instant::now();
    for slots in [0, 1, 2, 7, 64] {
        for busy in [0, slots / 2, slots] {
            let mut run = snapshot(slots, busy);
            for build in &mut run.builds {
                build.package = format!("\u{1b}[2J漢字{}\n\u{9b}31m", "x".repeat(90));
                build.version = "1\u{202e}\r\u{7}".repeat(40);
                build.memory_bytes = u64::MAX;
                build.cores = u32::MAX;
                build.estimate_seconds = 1e12;
            }
            for columns in [1, 5, 20, 40, 80, 300] {
                for height in 1..30 {
                    let lines = picture(&run, &moment(now), &Panes::default(), columns, height);
                    assert_eq!(lines.len(), height);
                    for line in &lines {
                        assert!(line.width() <= columns, "{columns}: {line}");
                        assert!(!line.to_string().contains(char::is_control), "{line:?}");
                        assert!(!line.to_string().contains('\u{202e}'));
                    }
                }
            }
        }
    }
}

#[test]
fn the_longest_running_are_shown_where_not_all_fit() {
    let now = Instant::now();
    let mut run = snapshot(64, 60);
    for (index, build) in run.builds.iter_mut().enumerate() {
        build.package = format!("p{index}");
        build.started = ago(now, 100 + index as u64);
    }
    let texts = texts(&run, &moment(now), 80, 8);
    assert_eq!(texts.len(), 8);
    let slots: Vec<&str> = texts[1..6].iter().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!(slots, ["60", "59", "58", "57", "56"]);
    assert_eq!(texts[6], "and 55 more, 4 free");
}

#[test]
fn free_slots_fetch_what_is_ready() {
    let now = Instant::now();
    let mut run = demo(now);
    run.slots = 3;
    run.counts.push((PackageState::Ready, 1));
    let texts = texts(&run, &moment(now), 80, 5);
    assert_eq!(texts[2..4], ["2  fetching (12.0 MiB so far)", "3  free"]);
}

#[test]
fn a_run_of_which_nothing_is_known_and_one_that_stops() {
    let now = Instant::now();
    let mut run = demo(now);
    run.started = now;
    run.counts = vec![(PackageState::Waiting, 3)];
    run.expected_seconds = f64::NAN;
    run.remaining_path_seconds = f64::INFINITY;
    run.builds.clear();
    let blank = Moment { machine: Machine::default(), ..moment(now) };
    let texts = texts(&run, &blank, 60, 4);
    assert!(texts[0].ends_with("0/3  0:00 elapsed"), "{}", texts[0]);
    assert!(texts[3].starts_with("cores ? of "), "{}", texts[3]);
    assert!(!texts.concat().contains("about"));
    let stopping = Moment { is_stopping: true, ..moment(now) };
    let lines = picture(&demo(now), &stopping, &Panes::default(), 80, 4);
    let header = lines[0].to_string();
    assert!(header.ends_with("2:10 elapsed, stopping"), "{header}");
}

#[test]
fn times_read_well() {
    assert_eq!(
        (clock(34.9), clock(725.0), clock(11_279.0)),
        ("0:34".into(), "12:05".into(), "3:07:59".into())
    );
    assert_eq!(clock(f64::NAN), "0:00");
    let evening = jiff::civil::date(2024, 5, 6).at(23, 50, 0, 0);
    assert_eq!(end(1200.0, evening).as_deref(), Some("end about Tue 07 May 00:10"));
    assert_eq!(
        (rows(2, 0, 24), rows(64, 0, 24), rows(64, 0, 3), rows(0, 0, 24), rows(2, 3, 24)),
        (4, 16, 3, 2, 7)
    );
}
