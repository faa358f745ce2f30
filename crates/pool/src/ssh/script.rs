//! The shell scripts that hosts run. Each is complete: the host's shell gets it on standard input, so that nothing of it is on a
//! command line, and it needs no quoting for the user's login shell.
//!
//! A script writes a line `kilnyard-begin`, its answer, and `kilnyard-end`: what a login shell writes before does not count, and
//! an answer that was cut off is noticed.

use super::{Limits, Manner};
use crate::text::quoted;
use crate::{Launch, PilotName};
use base64::prelude::{BASE64_STANDARD, Engine};

pub(super) const BEGIN: &str = "kilnyard-begin";
pub(super) const END: &str = "kilnyard-end";

/// What all scripts begin with: the folder of pilots, one script at a time there, whether a pilot lives, how its unit is reached.
fn head(folder: Option<&str>) -> String {
    let base = folder.map_or_else(|| "\"${HOME:?}/.kilnyard-pilots\"".to_owned(), quoted);
    format!(
        r#"set -u
LC_ALL=C
export LC_ALL
umask 077
echo {BEGIN}
base={base}
mkdir -p -- "$base" && cd -- "$base" || exit 71
command -v flock >/dev/null || {{ echo 'flock is missing: install util-linux' >&2; exit 72; }}
exec 8>.lock
flock -w 20 8 || {{ echo 'another command does not end' >&2; exit 73; }}
XDG_RUNTIME_DIR=${{XDG_RUNTIME_DIR:-/run/user/$(id -u)}}
export XDG_RUNTIME_DIR
lives() {{ [ -e "$1/lock" ] && ! flock -n "$1/lock" true; }}
end() {{ echo "$1"; echo {END}; exit 0; }}
"#
    )
}

/// Starts a pilot, unless the host has no free slot. Answers `started`, `exists` or `full`.
pub(super) fn start(
    folder: Option<&str>,
    prefix: &str,
    slots: u32,
    name: &PilotName,
    launch: &Launch,
    manner: Manner,
    limits: &Limits,
) -> String {
    let mut script = head(folder);
    script.push_str(&format!(
        r#"name={name}
[ ! -e "$name" ] && [ ! -e "$name.ended" ] || end exists
count=0
for one in {prefix}-*/; do
  if lives "${{one%/}}"; then count=$((count + 1)); fi
done
[ "$count" -lt {slots} ] || end full
mkdir -- "$name" "$name/files" || exit 74
"#
    ));
    let run = launch.script().into_bytes();
    let files = launch.files.iter().map(|(file, content)| (format!("files/{file}"), content));
    for (path, content) in files.chain([("run".to_owned(), &run)]) {
        // Names of files have no characters that a shell takes for something else.
        script.push_str(&format!("base64 -d > \"$name/{path}\" <<'.' || exit 74\n"));
        let text = BASE64_STANDARD.encode(content);
        for line in text.as_bytes().chunks(76) {
            script.push_str(&String::from_utf8_lossy(line));
            script.push('\n');
        }
        script.push_str(".\n");
    }
    script.push_str(&keeper());
    script.push_str(&manner_words(manner));
    let Limits { memory_bytes, cores, grace_seconds } = limits;
    let mut properties = format!("--property=KillMode=mixed --property=TimeoutStopSec={grace_seconds}");
    if let Some(bytes) = memory_bytes {
        properties.push_str(&format!(" --property=MemoryMax={bytes}"));
    }
    if let Some(cores) = cores {
        properties.push_str(&format!(" --property=CPUQuota={}%", u64::from(*cores) * 100));
    }
    script.push_str(&format!(
        r#"echo "$manner" > "$name/manner"
case $manner in
  detached) setsid /bin/sh "$base/$name/keeper" "$base" "$name" </dev/null >"$name.log" 2>&1 8>&- & ;;
  *) systemd-run "--$manner" --quiet --collect --unit="$name" {properties} \
       /bin/sh -c 'exec /bin/sh "$1/$2/keeper" "$1" "$2" >"$1/$2.log" 2>&1' keeper "$base" "$name" \
       </dev/null 8>&- || exit 75 ;;
esac
tries=0
until [ -e "$name/pid" ] || [ -e "$name.ended" ]; do
  tries=$((tries + 1))
  [ "$tries" -lt 100 ] || exit 76
  sleep 0.1
done
end started
"#
    ));
    script
}

/// The process that waits for the pilot: it holds the lock, passes SIGTERM on, and leaves the exit code.
fn keeper() -> String {
    r#"cat > "$name/keeper" <<'kilnyard-keeper'
umask 077
cd -- "$1" || exit 71
exec 9>"$2/lock"
flock -n 9 || exit 72
pilot=
is_stopped=
trap 'if [ -n "$pilot" ]; then kill -TERM "$pilot" 2>/dev/null; else is_stopped=1; fi' TERM
/bin/sh "$1/$2/run" &
pilot=$!
# The signal may come before the number of the pilot is known.
if [ -n "$is_stopped" ]; then kill -TERM "$pilot" 2>/dev/null; fi
echo "$$" > "$2/pid.new" && mv -- "$2/pid.new" "$2/pid"
wait "$pilot"
code=$?
while kill -0 "$pilot" 2>/dev/null; do
  wait "$pilot"
  code=$?
done
echo "$code" > "$2.ended"
rm -rf -- "$2"
exit "$code"
kilnyard-keeper
"#
    .to_owned()
}

/// Sets `manner` to `system`, `user` or `detached`.
fn manner_words(manner: Manner) -> String {
    match manner {
        Manner::System => "manner=system\n".to_owned(),
        Manner::User => "manner=user\n".to_owned(),
        Manner::Detached => "manner=detached\n".to_owned(),
        // Without lingering, a user's manager ends with the last session, and all pilots with it.
        Manner::Automatic => r#"manner=detached
if [ -d /run/systemd/system ] && command -v systemd-run >/dev/null; then
  if [ "$(id -u)" = 0 ]; then
    manner=system
  elif [ "$(loginctl show-user --property=Linger --value "$(id -u)" 2>/dev/null)" = yes ] &&
    systemctl --user show-environment >/dev/null 2>&1; then
    manner=user
  fi
fi
"#
        .to_owned(),
    }
}

/// Lists the pilots: `running NAME`, or once `ended NAME CODE LOG`, where the code is `-` for one that was killed and the log is the
/// end of it in base64, or `-`.
pub(super) fn list(folder: Option<&str>, prefix: &str) -> String {
    let mut script = head(folder);
    script.push_str(&format!(
        r#"ended() {{
  log=$(tail -c 300 -- "$1.log" 2>/dev/null | base64 | tr -d '\n')
  echo "ended $1 $2 ${{log:--}}"
  rm -rf -- "$1" "$1.ended" "$1.log"
}}
for one in {prefix}-*; do
  [ -e "$one" ] || continue
  case $one in
    *.ended) ended "${{one%.ended}}" "$(cat -- "$one" 2>/dev/null || echo -)" ;;
    *.log) ;;
    *) if lives "$one"; then echo "running $one"; elif [ -d "$one" ] && [ ! -e "$one.ended" ]; then ended "$one" -; fi ;;
  esac
done
echo {END}
"#
    ));
    script
}

/// Stops a pilot: its keeper gets SIGTERM, and all of its processes SIGKILL later. Answers `stopped`, or `none`.
pub(super) fn stop(folder: Option<&str>, name: &PilotName, grace_seconds: u32) -> String {
    let mut script = head(folder);
    script.push_str(&format!(
        r#"name={name}
lives "$name" || end none
manner=$(cat -- "$name/manner")
case $manner in
  system | user) systemctl "--$manner" stop --no-block "$name.service" || exit 75 ;;
  *)
    pid=$(cat -- "$name/pid")
    # The lock says that it is this process: it holds it.
    kill -TERM "$pid" || exit 75
    setsid /bin/sh -c 'sleep {grace_seconds}; [ ! -e "$1/lock" ] || flock -n "$1/lock" true || kill -s KILL -- "-$2"' \
      end "$base/$name" "$pid" </dev/null >/dev/null 2>&1 8>&- &
    ;;
esac
end stopped
"#
    ));
    script
}

/// Describes the host: lines of `NAME VALUE`.
pub(super) fn describe(folder: Option<&str>, manner: Manner) -> String {
    let mut script = head(folder);
    script.push_str(&manner_words(manner));
    script.push_str(&format!(
        r#"echo "cores $(nproc 2>/dev/null || getconf _NPROCESSORS_ONLN)"
echo "memory-kib $(awk '$1 == "MemTotal:" {{ print $2 }}' /proc/meminfo)"
echo "manner $manner"
echo "kernel $(uname -r)"
for program in base64 setsid; do
  command -v "$program" >/dev/null || echo "missing $program"
done
echo {END}
"#
    ));
    script
}

/// The lines between the markers. Fails if the answer is not complete.
pub(super) fn answer(stdout: &str) -> Result<Vec<&str>, String> {
    let mut lines = stdout.lines().skip_while(|line| *line != BEGIN);
    if lines.next().is_none() {
        return Err(match stdout.trim() {
            "" => "it is empty".to_owned(),
            text => format!("it does not begin as it should: {}", crate::text::reason(text)),
        });
    }
    let lines: Vec<&str> = lines.collect();
    match lines.iter().position(|line| *line == END) {
        Some(at) => Ok(lines[..at].to_vec()),
        None => Err("it was cut off".to_owned()),
    }
}
