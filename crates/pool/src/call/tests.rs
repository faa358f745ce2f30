//! Real programs that misbehave.

use super::*;

fn call(script: &str, input: &[u8]) -> Result<Said, PoolError> {
    let surroundings = Surroundings::default();
    let arguments = ["-c", script];
    let call = Call {
        program: "sh",
        arguments: &arguments,
        input,
        surroundings: &surroundings,
        seconds_max: 2,
        output_bytes_max: 100_000,
    };
    call.run()
}

#[test]
fn a_program_gets_its_input_and_nothing_else() {
    let said = call("cat; env | sort; pwd", &b"x\n".repeat(40_000)).unwrap();
    let text = String::from_utf8(said.stdout).unwrap();
    let rest = text.trim_start_matches("x\n");
    assert!(rest.starts_with("LC_ALL=C\nPATH=") && rest.ends_with("\n/\n"), "{rest}");
    assert!(!rest.contains("CARGO"), "{rest}");
}

#[test]
fn input_that_is_not_read_is_no_error() {
    assert_eq!(call("exec true", &[0; 1 << 20]).unwrap().stdout, b"");
}

#[test]
fn a_failure_says_why() {
    let error = call("echo 'no\x1b such partition' >&2; exit 3", b"").unwrap_err();
    assert_eq!(error.to_string(), "sh failed (exit code 3): no such partition");
    let error = call("kill -9 $$", b"").unwrap_err();
    assert_eq!(error.to_string(), "sh failed (signal 9)");
    let mut surroundings = Surroundings::default();
    surroundings.environment.insert("PATH".to_owned(), "/nonexistent".to_owned());
    let call = Call {
        program: "sh",
        arguments: &[],
        input: b"",
        surroundings: &surroundings,
        seconds_max: 2,
        output_bytes_max: 10,
    };
    assert!(matches!(call.run(), Err(PoolError::Spawn { .. })));
}

#[test]
fn a_program_that_hangs_is_killed_with_its_children() {
    let marker = format!("31{}", std::process::id());
    let error =
        call(&format!("echo started >&2; trap '' TERM; sleep {marker} & wait; sleep 100"), b"").unwrap_err();
    assert_eq!(error.to_string(), "sh did not end within 2 s: started");
    let listing = Command::new("ps").args(["-eo", "args"]).output().unwrap();
    assert!(!String::from_utf8_lossy(&listing.stdout).contains(&format!("sleep {marker}")));
}

#[test]
fn output_without_end_is_cut_off() {
    assert!(matches!(call("yes", b""), Err(PoolError::Flood { bytes_max: 100_000, .. })));
    let error = call("yes error >&2", b"").unwrap_err();
    assert!(matches!(&error, PoolError::Timeout { stderr, .. } if stderr.len() < 1100), "{error}");
}

#[test]
fn what_a_program_leaves_behind_is_not_waited_for() {
    let began = Instant::now();
    let said = call("sleep 1.5 & echo started", b"").unwrap();
    assert_eq!(said.stdout, b"started\n");
    assert!(began.elapsed() < Duration::from_millis(1400));
}
