//! Delivers a notification: by mail, a webhook, or a command. A text from a build is only ever data.

use super::decide::Occurred;
use crate::config::notify::Notify;
use crate::report::name_of;
use crate::yard::Yard;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a receiver's answer may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// How long a program may take.
const PROGRAM_MAX: Duration = Duration::from_secs(30);
/// How often a program that takes a notification is checked.
const STEP: Duration = Duration::from_millis(50);
/// The least length of a secret, in bytes.
const SECRET_BYTES_MIN: usize = 16;
/// The longest line of a message (RFC 5322 allows 998).
const LINE_CHARACTERS_MAX: usize = 900;
/// The header with the signature of a call.
pub const SIGNATURE_HEADER: &str = "Kilnyard-Signature";

/// Delivers. `previous` is the last event that the receiver got.
///
/// # Errors
/// It was not taken: the reason.
pub fn deliver(
    yard: &Yard,
    table: &Notify,
    occurred: &Occurred,
    previous: Option<u64>,
    end: &AtomicBool,
) -> Result<(), String> {
    let body = body(yard, occurred, previous);
    if let Some(url) = &table.webhook {
        return call(yard, table, url, &body, crate::words::now_seconds());
    }
    let text = format!("{}\n\n{}", occurred.title, occurred.text);
    if !table.mail.is_empty() {
        let usual = ["/usr/sbin/sendmail".to_owned(), "-t".to_owned(), "-oi".to_owned()];
        let program = table.sendmail.clone().unwrap_or_else(|| usual.to_vec());
        return hand_over(yard, &program, &[], message(yard, table, occurred, &text).as_bytes(), end);
    }
    let own = [
        ("KILNYARD_OCCASION", occurred.occasion.to_string()),
        ("KILNYARD_EVENT", occurred.seq.to_string()),
        ("KILNYARD_RUN", occurred.run.map(|run| run.to_string()).unwrap_or_default()),
        ("KILNYARD_PACKAGE", plain(occurred.package.as_deref().unwrap_or_default())),
        ("KILNYARD_TITLE", plain(&occurred.title)),
        ("KILNYARD_YARD", yard.home.display().to_string()),
    ];
    hand_over(yard, &table.command, &own, &body, end)
}

/// A text on one line without characters that a terminal, a header or an environment interprets.
fn plain(text: &str) -> String {
    kilnyard_model::text::line(text).chars().take(LINE_CHARACTERS_MAX).collect()
}

/// What a webhook and a command get.
fn body(yard: &Yard, occurred: &Occurred, previous: Option<u64>) -> Vec<u8> {
    let value = json!({
        "occasion": occurred.occasion,
        "yard": name_of(yard),
        "event_number": occurred.seq,
        "previous_event_number": previous,
        "run": occurred.run,
        "package": occurred.package,
        "at_seconds": occurred.at_seconds,
        "title": occurred.title,
        "text": occurred.text,
        "event": occurred.event,
    });
    serde_json::to_vec(&value).unwrap_or_default()
}

/// The value of the signature header: when it was signed, and the HMAC-SHA256 of that time, a dot and the body (RFC 2104).
pub fn signature(secret: &[u8], at_seconds: u64, body: &[u8]) -> String {
    // HMAC takes keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret) else { return String::new() };
    mac.update(format!("{at_seconds}.").as_bytes());
    mac.update(body);
    let digest: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    format!("t={at_seconds},v1={digest}")
}

fn call(yard: &Yard, table: &Notify, url: &str, body: &[u8], now_seconds: f64) -> Result<(), String> {
    let agent: ureq::Agent = ureq::Agent::config_builder()
        .timeout_global(Some(ANSWER_MAX))
        // What was configured is called, and nothing else.
        .max_redirects(0)
        .http_status_as_error(false)
        .build()
        .into();
    let mut request = agent
        .post(url)
        .header("content-type", "application/json")
        .header("user-agent", concat!("kilnyard/", env!("CARGO_PKG_VERSION")));
    if let Some(file) = &table.secret_file {
        let path = yard.home.join(file);
        let secret = fs_err::read(&path).map_err(|error| error.to_string())?;
        let secret = secret.trim_ascii();
        if secret.len() < SECRET_BYTES_MIN {
            return Err(format!("{} has no secret of {SECRET_BYTES_MIN} or more characters", path.display()));
        }
        request = request.header(SIGNATURE_HEADER, signature(secret, now_seconds as u64, body));
    }
    let answer = request.send(body).map_err(|error| error.to_string())?;
    match answer.status().as_u16() {
        200..=299 => Ok(()),
        status => Err(format!("it answered with status {status}")),
    }
}

/// A message of mail. Headers have no text that could end them.
fn message(yard: &Yard, table: &Notify, occurred: &Occurred, text: &str) -> String {
    let subject = plain(&format!("[{}] {}", name_of(yard), occurred.title));
    let subject: String = subject.chars().take(200).collect();
    let subject = match subject.is_ascii() {
        true => subject,
        // RFC 2047, in words of at most 75 characters.
        false => encoded_words(&subject),
    };
    let from = table.from.as_ref().map(|from| format!("From: {from}\n")).unwrap_or_default();
    let mut message = format!(
        "{from}To: {}\nSubject: {subject}\nMIME-Version: 1.0\nContent-Type: text/plain; charset=utf-8\n\
         Content-Transfer-Encoding: 8bit\nAuto-Submitted: auto-generated\nX-Kilnyard-Event: {}\n\n",
        table.mail.join(", "),
        occurred.seq,
    );
    for line in kilnyard_model::foreign::log(text).lines() {
        message.extend(line.chars().take(LINE_CHARACTERS_MAX));
        message.push('\n');
    }
    message
}

fn encoded_words(text: &str) -> String {
    use base64::Engine;
    let engine = base64::engine::general_purpose::STANDARD;
    let characters: Vec<char> = text.chars().collect();
    // At most four bytes each: 10 characters are 56 characters of Base64.
    let words = characters
        .chunks(10)
        .map(|part| format!("=?utf-8?B?{}?=", engine.encode(part.iter().collect::<String>())));
    words.collect::<Vec<String>>().join("\n ")
}

/// Runs a program with something on its standard input, in a session of its own, with nothing inherited but a path and a home.
fn hand_over(
    yard: &Yard,
    program: &[String],
    variables: &[(&str, String)],
    input: &[u8],
    end: &AtomicBool,
) -> Result<(), String> {
    let Some((first, arguments)) = program.split_first() else {
        return Err("there is no program".to_owned());
    };
    let mut command = Command::new(first);
    command.args(arguments).current_dir(&yard.home).env_clear();
    command
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .env("LANG", "C.UTF-8");
    if let Some(home) = yard.environment.get("HOME") {
        command.env("HOME", home);
    }
    command.envs(variables.iter().map(|(name, value)| (*name, value)));
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let failed = |error: std::io::Error| format!("{first}: {error}");
    let mut child = command.spawn().map_err(failed)?;
    let stdin = child.stdin.take();
    let input = input.to_vec();
    // A program that reads nothing must not hold up its own end.
    let writer = std::thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(&input)));
    let began = Instant::now();
    let outcome = loop {
        match child.try_wait().map_err(failed)? {
            Some(status) if status.success() => break Ok(()),
            Some(status) => break Err(format!("{first} ended with {status}")),
            None if began.elapsed() > PROGRAM_MAX
                || end.load(Ordering::Relaxed) && began.elapsed() > STEP * 40 =>
            {
                // The group has the program and what it started.
                let group = rustix::process::Pid::from_child(&child);
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                let _ = child.wait();
                break Err(format!("{first} did not end within {} s", PROGRAM_MAX.as_secs()));
            }
            None => std::thread::sleep(STEP),
        }
    };
    let _ = writer.join();
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_signed_as_documented() {
        // From `printf '7.body' | openssl dgst -sha256 -hmac 0123456789abcdef`.
        assert_eq!(
            signature(b"0123456789abcdef", 7, b"body"),
            "t=7,v1=1a511fc8b028c8ae1c7be35cc4c79328090a343a0c387b90a712a9f06e68a02c"
        );
    }

    #[test]
    fn words_of_a_subject_are_short() {
        let words = encoded_words(&"ä😀".repeat(20));
        assert!(words.lines().all(|line| line.trim().len() <= 75), "{words}");
        assert!(words.is_ascii() && !words.contains("\n\n"));
    }
}
