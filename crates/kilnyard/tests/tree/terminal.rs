//! The output of a run on a terminal, and of `status` in another terminal at the same time.

use crate::fixtures::{Packages, Shared, Trial};
use crate::support::farm::{Far, Served};
use crate::support::tree::MiniTree;
use crate::support::{Yard, until};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex};

pub const CASES: &[Trial] = &[
    ("typed_keys_do_not_spoil_a_run_on_a_terminal", typed_keys),
    ("keys_on_a_terminal_choose_skip_and_end", keys_of_a_run),
    ("status_shows_the_activity_before_the_first_run", before_the_first_run),
    ("a_shell_on_another_machine_has_a_terminal", shell_elsewhere),
];

/// The program on its own terminal, and everything that the terminal shows.
struct OnTerminal {
    child: Child,
    keyboard: File,
    screen: File,
    shown: Arc<Mutex<Vec<u8>>>,
}

impl OnTerminal {
    fn start(yard: &Yard, arguments: &[&str]) -> OnTerminal {
        let (mut main, mut side) = (-1, -1);
        let size = libc::winsize { ws_row: 24, ws_col: 80, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the numbers and the size live until the end of the call; the other pointers may be null.
        let opened =
            unsafe { libc::openpty(&mut main, &mut side, std::ptr::null_mut(), std::ptr::null(), &size) };
        assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
        // SAFETY: both were just opened, and nothing else owns them.
        let (main, screen) =
            unsafe { (File::from(OwnedFd::from_raw_fd(main)), File::from(OwnedFd::from_raw_fd(side))) };
        let mut command = yard.command(arguments);
        let own = || Stdio::from(screen.try_clone().unwrap());
        command.env("TERM", "xterm").stdin(own()).stdout(own()).stderr(own());
        // SAFETY: both calls may be made between fork and exec; the terminal is standard input by then.
        unsafe {
            command.pre_exec(|| match libc::setsid() == -1 || libc::ioctl(0, libc::TIOCSCTTY, 0) == -1 {
                true => Err(std::io::Error::last_os_error()),
                false => Ok(()),
            })
        };
        let child = command.spawn().unwrap();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let (mut reader, kept) = (main.try_clone().unwrap(), shown.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                kept.lock().unwrap().extend_from_slice(&bytes[..count]);
            }
        });
        OnTerminal { child, keyboard: main, screen, shown }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.shown.lock().unwrap()).into_owned()
    }

    /// Changes its size, in characters.
    fn resize(&self, columns: u16, rows: u16) {
        let size = libc::winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: the size lives until the end of the call.
        assert_eq!(unsafe { libc::ioctl(self.screen.as_raw_fd(), libc::TIOCSWINSZ, &size) }, 0);
    }

    /// Types a line, and waits until the terminal shows this.
    fn type_line(&mut self, line: &str, shows: &str) {
        self.keyboard.write_all(format!("{line}\r").as_bytes()).unwrap();
        until(&format!("{line} shows {shows}"), || self.shown().contains(shows));
    }

    /// Whether the terminal shows what is typed.
    fn echoes(&self) -> bool {
        // SAFETY: an all-zero termios is valid, and it lives until the end of the call.
        unsafe {
            let mut modes: libc::termios = std::mem::zeroed();
            assert_eq!(libc::tcgetattr(self.screen.as_raw_fd(), &mut modes), 0);
            modes.c_lflag & libc::ECHO != 0
        }
    }
}

fn typed_keys(shared: &Shared) {
    let tree = MiniTree::new(&[("slow/one", "do-build:\n\t@sleep 6.125")]);
    let yard = shared.yard("terminal", &tree, &[]);
    let mut build = OnTerminal::start(&yard, &["build"]);
    assert!(build.echoes());
    until("the package is built", || yard.building() == ["slow/one"]);
    until("the terminal shows no keys", || !build.echoes());
    build.keyboard.write_all(b"typed keys\n").unwrap();
    until("the program ends", || build.child.try_wait().unwrap().is_some());
    assert!(build.child.wait().unwrap().success(), "{}", build.shown());
    until("all is shown", || build.shown().contains("1 built"));
    assert!(!build.shown().contains("typed"), "{}", build.shown());
    assert!(build.echoes(), "the terminal is left as it was");
    // Repeated interrupts restore the terminal, too.
    let mut build = OnTerminal::start(&yard, &["build", "--force", "slow/one"]);
    until("the package is built", || yard.building() == ["slow/one"]);
    until("the terminal shows no keys", || !build.echoes());
    for _ in 0..3 {
        build.keyboard.write_all(b"\x03").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    until("the program ends", || build.child.try_wait().unwrap().is_some());
    assert_eq!(build.child.wait().unwrap().code(), Some(130), "{}", build.shown());
    assert!(build.echoes(), "the terminal is left as it was");
}

/// This terminal never says where its cursor is, so that each key that changes the height of the picture is followed by a
/// query of half a second: keys that come meanwhile count.
fn keys_of_a_run(shared: &Shared) {
    // A text without blanks, since only cells that change are written.
    let tree = MiniTree::new(&[
        ("slow/one", "do-build:\n\t@echo 0918273645; sleep 605"),
        ("slow/two", "do-build:\n\t@echo 0918273645; sleep 606"),
    ]);
    let yard = shared.yard("terminal-keys", &tree, &[]);
    let mut build = OnTerminal::start(&yard, &["build"]);
    until("both are built", || yard.building().len() == 2);
    until("the terminal shows no keys", || !build.echoes());
    // Nothing is chosen, and one q is not enough.
    build.keyboard.write_all(b"sq").unwrap();
    until("it asks for another q", || build.shown().contains("again"));
    build.keyboard.write_all(b"\x1b[Bl").unwrap();
    until("the log is shown", || build.shown().contains("0918273645"));
    build.keyboard.write_all(b"ls").unwrap();
    until("one of them is skipped", || yard.building().len() == 1);
    build.keyboard.write_all(b"qq").unwrap();
    until("the program ends", || build.child.try_wait().unwrap().is_some());
    assert_eq!(build.child.wait().unwrap().code(), Some(130), "{}", build.shown());
    assert!(build.echoes(), "the terminal is left as it was");
}

fn before_the_first_run(shared: &Shared) {
    let tree = MiniTree::new(&[("some/one", "")]);
    let yard = shared.yard("before-the-first", &tree, &[]);
    yard.run(&["status"]).exits(2).says(&["nothing has been built"]);
    // The tree's make waits for this file, so that the scan lasts as long as the trial needs.
    let pipe = tree.path().join("some/one/gate.mk");
    let path = std::ffi::CString::new(pipe.to_str().unwrap()).unwrap();
    // SAFETY: the path is NUL-terminated and lives until the end of the call.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o666) }, 0);
    crate::fixtures::add_line(&tree, "some/one/Makefile", ".include \"gate.mk\"");
    let mut build = yard.start(&["build"]);
    let process = build.child.id().to_string();
    until("it scans", || yard.run(&["status"]).stdout.contains("is scanning"));
    yard.run(&["status"]).exits(0).says(&[&format!("process {process} is scanning; there is no run yet")]);
    let status = yard.run(&["status", "--json"]).exits(0).json();
    assert_eq!((&status["run"], &status["state"]), (&serde_json::Value::Null, &"preparing".into()));
    std::fs::remove_file(&pipe).unwrap();
    build.signal(libc::SIGINT);
    build.end();
    let hint = format!("kilnyard --yard {} build", yard.folder.display());
    yard.run(&["status"]).exits(2).says(&["nothing has been built", &hint]);
}

fn shell_elsewhere(shared: &Shared) {
    let tree = MiniTree::new(&[("some/fails", "do-build:\n\t@echo some > ${WRKSRC}/made; false")]);
    let yard = shared.yard("terminal-elsewhere", &tree, &[]);
    let mut served = Served::start(&yard);
    let far = Far::join_without(&shared.path("workers"), &yard, &served, "far", &[&tree.path()]);
    yard.run(&["build", "--elsewhere"]).exits(1).says(&["1 failed"]);
    let mut shell = OnTerminal::start(&yard, &["shell", "some/fails"]);
    until("it is entered", || shell.shown().contains("the root of some/fails on far, as it failed"));
    until("the terminal shows no keys itself", || !shell.echoes());
    // The shell's own terminal shows them.
    shell.type_line("echo $((40 + 2))th", "42th");
    shell.type_line("test -t 0 -a -t 1 && echo $(cat made) terminal", "some terminal");
    shell.type_line("stty size", "24 80");
    shell.resize(100, 30);
    until("the size reaches the shell", || {
        shell.type_line("stty size; echo asked$((1))", "asked1");
        shell.shown().contains("30 100")
    });
    // Ctrl-C is for the command, not for this program.
    shell.type_line("sleep 6181.5; echo interrupted $?", "interrupted $?");
    std::thread::sleep(std::time::Duration::from_millis(300));
    shell.keyboard.write_all(b"\x03").unwrap();
    shell.type_line("head -n 1 /usr/pkgsrc/some/fails/Makefile; echo read$((1))", "read1");
    shell.type_line("exit 5", "exit 5");
    until("the program ends", || shell.child.try_wait().unwrap().is_some());
    assert_eq!(shell.child.wait().unwrap().code(), Some(5), "{} {}", shell.shown(), far.said());
    assert!(shell.echoes(), "the terminal is left as it was");
    // So is it if the door ends.
    let mut shell = OnTerminal::start(&yard, &["shell", "some/fails"]);
    until("it is entered", || !shell.echoes());
    served.signal(libc::SIGKILL);
    until("the program ends", || shell.child.try_wait().unwrap().is_some());
    assert_eq!(shell.child.wait().unwrap().code(), Some(2), "{}", shell.shown());
    assert!(shell.echoes() && shell.shown().contains("ended the connection"), "{}", shell.shown());
    drop(far);
    yard.is_clean();
}
