//! A store with mirrors of every kind.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use kilnyard_mirror::{AttemptError, FetchError, FileStore, Limits, Progress, Wanted};
use support::{Act, Server, content, impatient, limits, wanted};
use tempfile::TempDir;

const SIZE: usize = 200_000;

struct Fixture {
    server: Server,
    content: Vec<u8>,
    folder: TempDir,
    store: FileStore,
}

impl Fixture {
    fn start() -> Fixture {
        Fixture::with(limits())
    }

    fn with(limits: Limits) -> Fixture {
        let folder = tempfile::tempdir().unwrap();
        Fixture {
            server: Server::start(),
            content: content(SIZE),
            store: FileStore::open(folder.path(), limits).unwrap(),
            folder,
        }
    }

    fn page(&self, path: &str, acts: impl Into<Vec<Act>>) -> String {
        self.server.page(path, &self.content, acts)
    }

    fn fetch(&self, urls: impl Into<Vec<String>>) -> Result<PathBuf, FetchError> {
        self.ensure(&wanted(&self.content, urls))
    }

    fn ensure(&self, wanted: &Wanted) -> Result<PathBuf, FetchError> {
        self.store.ensure(wanted, &|_| {}, &AtomicBool::new(false))
    }

    fn part(&self) -> PathBuf {
        let mut path = self.path().into_os_string();
        path.push(".part");
        path.into()
    }

    fn path(&self) -> PathBuf {
        self.store.path(&kilnyard_mirror::Sha256Hex::of(&self.content))
    }

    /// Asserts that the file is stored with the right content, and that no other file is.
    #[track_caller]
    fn assert_stored(&self, path: &Path) {
        assert_eq!(path, self.path());
        assert!(fs::read(path).unwrap() == self.content, "the content differs");
        assert_eq!(files(self.folder.path()), [path]);
    }

    fn leave_part(&self, bytes: &[u8]) {
        fs::create_dir_all(self.path().parent().unwrap()).unwrap();
        fs::write(self.part(), bytes).unwrap();
    }
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path);
        }
    }
    found
}

/// The failure of the only url.
#[track_caller]
fn only(error: &FetchError) -> &AttemptError {
    match error.root() {
        FetchError::Failed { failed, .. } if failed.len() == 1 => &failed[0].error,
        other => panic!("not one failed url: {other}"),
    }
}

#[test]
fn a_file_is_fetched_once() {
    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::Serve]);
    let path = fixture.fetch([url.clone()]).unwrap();
    fixture.assert_stored(&path);
    let digits = path.file_name().unwrap().to_str().unwrap();
    assert!(path.ends_with(format!("{}/{digits}", &digits[..2])));
    fixture.fetch([url]).unwrap();
    assert_eq!(fixture.server.ranges(), [None]);
    // With the file stored, no server is asked, and no url is needed.
    fixture.fetch([]).unwrap();
}

#[test]
fn an_empty_file_needs_no_server() {
    let fixture = Fixture::start();
    let path = fixture.ensure(&wanted(b"", ["http://127.0.0.1:1/a".to_owned()])).unwrap();
    assert_eq!(fs::read(path).unwrap(), b"");
}

#[test]
fn a_truncated_body_is_resumed() {
    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::Truncate(50_000), Act::Truncate(60_000), Act::Serve]);
    fixture.assert_stored(&fixture.fetch([url]).unwrap());
    let ranges = [None, Some("bytes=50000-".to_owned()), Some("bytes=110000-".to_owned())];
    assert_eq!(fixture.server.ranges(), ranges);
}

#[test]
fn another_mirror_continues() {
    let fixture = Fixture::start();
    let first = fixture.page("/a", [Act::Truncate(70_000)]);
    let second = fixture.page("/b", [Act::Serve]);
    fixture.assert_stored(&fixture.fetch([first, second]).unwrap());
    assert_eq!(fixture.server.ranges()[1].as_deref(), Some("bytes=70000-"));
}

#[test]
fn a_body_without_a_length_that_ends_early_is_resumed() {
    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::TruncateWithoutLength(50_000), Act::Serve]);
    fixture.assert_stored(&fixture.fetch([url]).unwrap());
    assert_eq!(fixture.server.ranges()[1].as_deref(), Some("bytes=50000-"));
}

#[test]
fn a_server_without_ranges_starts_over() {
    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::Truncate(50_000), Act::IgnoreRange]);
    fixture.assert_stored(&fixture.fetch([url]).unwrap());
    assert_eq!(fixture.server.requests().len(), 2);
}

#[test]
fn a_wrong_range_starts_over() {
    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::Truncate(50_000), Act::WrongRange, Act::Serve]);
    fixture.assert_stored(&fixture.fetch([url]).unwrap());
    assert_eq!(fixture.server.ranges(), [None, Some("bytes=50000-".to_owned()), None]);
}

#[test]
fn a_body_that_always_breaks_is_given_up_and_its_part_kept() {
    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::Truncate(1000)]);
    let error = fixture.fetch([url]).unwrap_err();
    assert!(
        matches!(only(&error), AttemptError::Truncated { received_bytes: 3000, size_bytes: Some(200_000) }),
        "{error}"
    );
    assert_eq!(files(fixture.folder.path()), [fixture.part()]);
}

#[test]
fn the_part_of_an_earlier_process_is_resumed() {
    let fixture = Fixture::start();
    fixture.leave_part(&fixture.content[..123_456]);
    let url = fixture.page("/a", [Act::Serve]);
    fixture.assert_stored(&fixture.fetch([url]).unwrap());
    assert_eq!(fixture.server.ranges(), [Some("bytes=123456-".to_owned())]);
}

#[test]
fn a_complete_part_is_only_checked() {
    let fixture = Fixture::start();
    fixture.leave_part(&fixture.content);
    fixture.assert_stored(&fixture.fetch([]).unwrap_or_else(|error| panic!("{error}")));
}

#[test]
fn a_wrong_part_costs_one_more_fetch() {
    for length in [1000, SIZE, SIZE + 1] {
        let fixture = Fixture::start();
        fixture.leave_part(&vec![b'?'; length]);
        let url = fixture.page("/a", [Act::Serve]);
        fixture.assert_stored(&fixture.fetch([url]).unwrap());
        let requests = fixture.server.ranges();
        assert_eq!(requests.last().unwrap(), &None, "{requests:?}");
        assert_eq!(requests.len(), if length == 1000 { 2 } else { 1 });
    }
}

#[test]
fn wrong_content_is_refused_after_one_more_try() {
    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::Lie]);
    let error = fixture.fetch([url.clone()]).unwrap_err();
    assert!(matches!(only(&error), AttemptError::HashDiffers { .. }), "{error}");
    let text = error.to_string();
    let got = kilnyard_mirror::Sha256Hex::of(&vec![b'?'; SIZE]);
    let expected = kilnyard_mirror::Sha256Hex::of(&fixture.content);
    for words in [&url, got.as_str(), expected.as_str(), "thing-1.0.tar.xz"] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
    assert_eq!(fixture.server.requests().len(), 2);
    assert_eq!(files(fixture.folder.path()), [] as [PathBuf; 0]);
}

#[test]
fn an_honest_mirror_follows_a_lying_one() {
    let fixture = Fixture::start();
    let liar = fixture.page("/a", [Act::Lie]);
    let honest = fixture.page("/b", [Act::Serve]);
    fixture.assert_stored(&fixture.fetch([liar, honest]).unwrap());
}

#[test]
fn a_stalled_mirror_is_ended() {
    let fixture = Fixture::with(impatient());
    let url = fixture.page("/a", [Act::Trickle(0)]);
    let error = fixture.fetch([url.clone()]).unwrap_err();
    assert!(
        matches!(
            only(&error),
            AttemptError::TooSlow { speed_min_bytes_per_second: 10_000, speed_bytes_per_second, .. }
                if *speed_bytes_per_second < 10_000
        ),
        "{error}"
    );
    let text = error.to_string();
    for words in [&url, "stalled after", "bytes per second", "below the minimum of 10000"] {
        assert!(text.contains(words), "{words} is not in {text}");
    }
}

#[test]
fn a_mirror_that_stalls_late_is_ended_and_resumed_elsewhere() {
    let fixture = Fixture::with(impatient());
    let slow = fixture.page("/a", [Act::Trickle(150_000)]);
    let fast = fixture.page("/b", [Act::Serve]);
    fixture.assert_stored(&fixture.fetch([slow, fast]).unwrap());
    let range = fixture.server.ranges()[1].clone().unwrap();
    let first: usize = range.strip_prefix("bytes=").unwrap().trim_end_matches('-').parse().unwrap();
    assert!((150_000..SIZE).contains(&first), "{first}");
}

#[test]
fn a_silent_server_is_given_up() {
    let fixture = Fixture::with(impatient());
    let silent = fixture.page("/a", [Act::Silence]);
    let error = fixture.fetch([silent.clone()]).unwrap_err();
    assert!(matches!(only(&error), AttemptError::NoAnswer { .. }), "{error}");
    let good = fixture.page("/b", [Act::Serve]);
    fixture.assert_stored(&fixture.fetch([silent, good]).unwrap());
}

#[test]
fn a_missing_file_is_not_asked_for_again() {
    let fixture = Fixture::start();
    for code in [404, 410] {
        let gone = fixture.page("/gone", [Act::Status(code)]);
        let error = fixture.fetch([gone]).unwrap_err();
        assert!(matches!(only(&error), AttemptError::Status { code: got } if *got == code), "{error}");
    }
    assert_eq!(fixture.server.requests().len(), 2);
    let gone = fixture.page("/gone", [Act::Status(404)]);
    let good = fixture.page("/b", [Act::Serve]);
    fixture.assert_stored(&fixture.fetch([gone, good]).unwrap());
}

#[test]
fn an_overloaded_server_is_asked_again() {
    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::Status(503), Act::Close, Act::Serve]);
    fixture.assert_stored(&fixture.fetch([url]).unwrap());
    assert_eq!(fixture.server.requests().len(), 3);

    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::Status(503)]);
    let error = fixture.fetch([url]).unwrap_err();
    assert!(matches!(only(&error), AttemptError::Status { code: 503 }), "{error}");
    assert_eq!(fixture.server.requests().len(), 3);
}

#[test]
fn a_refused_connection_is_reported() {
    let fixture = Fixture::start();
    let error = fixture.fetch(["http://127.0.0.1:1/a".to_owned()]).unwrap_err();
    assert!(matches!(only(&error), AttemptError::Transport { .. }), "{error}");
    assert!(error.to_string().contains("refused"), "{error}");
}

#[test]
fn a_file_of_another_size_is_not_read() {
    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::Longer]);
    let error = fixture.fetch([url]).unwrap_err();
    assert!(
        matches!(only(&error), AttemptError::SizeDiffers { size_bytes: 200_000, got_bytes: 200_004 }),
        "{error}"
    );
    assert_eq!(fixture.server.requests().len(), 1);
}

#[test]
fn nothing_beyond_the_size_is_read() {
    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::TooMuch]);
    // The beginning is the requested file; the endless rest is not read.
    fixture.assert_stored(&fixture.fetch([url.clone()]).unwrap());

    let longer = [&fixture.content[..], b"!"].concat();
    let other = Fixture::start();
    let error = other.ensure(&wanted(&longer, [url])).unwrap_err();
    assert!(matches!(only(&error), AttemptError::HashDiffers { .. }), "{error}");
}

#[test]
fn redirects_are_followed_up_to_a_limit() {
    let fixture = Fixture::start();
    let good = fixture.page("/b", [Act::Serve]);
    let url = fixture.page("/a", [Act::Redirect(good)]);
    fixture.assert_stored(&fixture.fetch([url]).unwrap());

    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::Redirect("/a".to_owned())]);
    let error = fixture.fetch([url]).unwrap_err();
    assert!(matches!(only(&error), AttemptError::BadUrl { .. }), "{error}");
    // The first request and four redirects, without a second attempt.
    assert_eq!(fixture.server.requests().len(), 5);
}

#[test]
fn unsupported_urls_are_reported_without_passwords() {
    let fixture = Fixture::start();
    for url in ["ftp://me:secret@mirror.example/a", "nonsense", "http://", "file:relative"] {
        let error = fixture.fetch([url.to_owned()]).unwrap_err();
        assert!(matches!(only(&error), AttemptError::BadUrl { .. }), "{url}: {error}");
        assert!(!error.to_string().contains("secret"), "{error}");
    }
    let error = fixture.fetch([]).unwrap_err();
    assert!(matches!(error.root(), FetchError::NoUrl { .. }), "{error}");
}

#[test]
fn a_local_mirror_is_copied_and_checked() {
    let fixture = Fixture::start();
    let mirror = tempfile::tempdir().unwrap();
    let file = mirror.path().join("a file");
    let url = format!("file://{}/a%20file", mirror.path().display());

    let error = fixture.fetch([url.clone()]).unwrap_err();
    assert!(matches!(only(&error), AttemptError::LocalFile { .. }), "{error}");
    fs::write(&file, vec![b'?'; SIZE]).unwrap();
    let error = fixture.fetch([url.clone()]).unwrap_err();
    assert!(matches!(only(&error), AttemptError::HashDiffers { .. }), "{error}");
    fs::write(&file, b"short").unwrap();
    let error = fixture.fetch([url.clone()]).unwrap_err();
    assert!(matches!(only(&error), AttemptError::SizeDiffers { .. }), "{error}");
    let error = fixture.fetch([format!("file://{}", mirror.path().display())]).unwrap_err();
    assert!(matches!(only(&error), AttemptError::LocalFile { .. }), "{error}");

    fs::write(&file, &fixture.content).unwrap();
    let path = fixture.fetch([url]).unwrap();
    fs::write(&file, b"changed afterwards").unwrap();
    fixture.assert_stored(&path);
}

#[test]
fn many_threads_make_one_request() {
    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::Serve]);
    std::thread::scope(|scope| {
        for _ in 0..16 {
            let url = url.clone();
            scope.spawn(|| fixture.assert_stored(&fixture.fetch([url]).unwrap()));
        }
    });
    assert_eq!(fixture.server.requests().len(), 1);
}

#[test]
fn waiting_threads_share_the_failure() {
    let fixture = Fixture::with(impatient());
    let url = fixture.page("/a", [Act::Silence]);
    let barrier = std::sync::Barrier::new(4);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let urls = [url.clone()];
            scope.spawn(|| {
                barrier.wait();
                let error = fixture.fetch(urls).unwrap_err();
                assert!(matches!(error.root(), FetchError::Failed { .. }), "{error}");
            });
        }
    });
    // One request for each of the three attempts.
    assert_eq!(fixture.server.requests().len(), 3);
}

#[test]
fn a_cancelled_fetch_ends_and_keeps_its_part() {
    let fixture = Fixture::start();
    let patient = Limits { patience: Duration::from_secs(3600), ..limits() };
    let store = FileStore::open(fixture.folder.path(), patient).unwrap();
    let url = fixture.page("/a", [Act::Trickle(150_000)]);
    let cancel = AtomicBool::new(false);
    let progress = |progress: Progress<'_>| {
        if let Progress::Received { part_bytes, size_bytes } = progress {
            assert_eq!(size_bytes, SIZE as u64);
            if part_bytes >= 150_000 {
                cancel.store(true, Ordering::SeqCst);
            }
        }
    };
    let error = store.ensure(&wanted(&fixture.content, [url]), &progress, &cancel).unwrap_err();
    assert!(error.is_cancelled(), "{error}");
    assert!(fs::metadata(fixture.part()).unwrap().len() >= 150_000);
}

#[test]
fn cancelling_ends_the_wait_for_a_silent_server() {
    let fixture = Fixture::start();
    let patient = Limits { patience: Duration::from_secs(3600), ..limits() };
    let store = FileStore::open(fixture.folder.path(), patient).unwrap();
    let url = fixture.page("/a", [Act::Silence]);
    let (store, cancel) = (&store, &AtomicBool::new(false));
    std::thread::scope(|scope| {
        let fetches = scope.spawn(|| store.ensure(&wanted(&fixture.content, [url]), &|_| {}, cancel));
        while fixture.server.requests().is_empty() {
            std::thread::yield_now();
        }
        // A thread that only waits for the first can be cancelled as well.
        let waits = scope.spawn(|| store.ensure(&wanted(&fixture.content, []), &|_| {}, cancel));
        cancel.store(true, Ordering::SeqCst);
        assert!(fetches.join().unwrap().unwrap_err().is_cancelled());
        assert!(waits.join().unwrap().unwrap_err().is_cancelled());
    });
    assert_eq!(files(fixture.folder.path()), [] as [PathBuf; 0]);
}

#[test]
fn another_continues_when_the_first_is_cancelled() {
    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::Silence, Act::Serve]);
    let patient = Limits { patience: Duration::from_secs(3600), ..limits() };
    let store = FileStore::open(fixture.folder.path(), patient).unwrap();
    let (store, first) = (&store, &AtomicBool::new(false));
    let (url_first, url_second) = (url.clone(), url);
    std::thread::scope(|scope| {
        let cancelled = scope.spawn(|| store.ensure(&wanted(&fixture.content, [url_first]), &|_| {}, first));
        while fixture.server.requests().is_empty() {
            std::thread::yield_now();
        }
        let continuing = scope.spawn(|| {
            store.ensure(&wanted(&fixture.content, [url_second]), &|_| {}, &AtomicBool::new(false))
        });
        first.store(true, Ordering::SeqCst);
        assert!(cancelled.join().unwrap().unwrap_err().is_cancelled());
        fixture.assert_stored(&continuing.join().unwrap().unwrap());
    });
    assert_eq!(fixture.server.requests().len(), 2);
}

#[test]
fn progress_reports_each_event() {
    let fixture = Fixture::start();
    let url = fixture.page("/a", [Act::Truncate(50_000), Act::Serve]);
    let (received, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    let asked = std::sync::Mutex::new(Vec::new());
    let progress = |progress: Progress<'_>| match progress {
        Progress::Asking { part_bytes, .. } => asked.lock().unwrap().push(part_bytes),
        Progress::Received { part_bytes, .. } => {
            let before = received.swap(part_bytes, Ordering::SeqCst);
            assert!(before < part_bytes);
        }
        Progress::Failed { error, .. } => {
            assert!(matches!(error, AttemptError::Truncated { .. }));
            failed.fetch_add(1, Ordering::SeqCst);
        }
        _ => {}
    };
    let wanted = wanted(&fixture.content, [url]);
    fixture.store.ensure(&wanted, &progress, &AtomicBool::new(false)).unwrap();
    assert_eq!(*asked.lock().unwrap(), [0, 50_000]);
    assert_eq!(received.into_inner(), SIZE as u64);
    assert_eq!(failed.into_inner(), 1);
}
