//! `kilnyard service`: prints units of systemd for a yard.

use super::print;
use crate::cli::{Service, ServiceOf};
use crate::error::{Context, Kind, Result};
use crate::yard::Yard;
use std::path::Path;
use std::process::ExitCode;

pub fn run(yard: &Yard, options: &Service) -> Result<ExitCode> {
    let name = match options.what {
        ServiceOf::Serve => "serve",
        ServiceOf::Watch => "watch",
        ServiceOf::Build => "build",
    };
    if options.timer {
        return print(&timer(yard, name, &options.at));
    }
    let program = std::env::current_exe().context(Kind::Machine, "find this program")?;
    print(&service(&program, yard, (options.what, name), options.user))
}

/// A word of a command line in a unit (systemd.service(5)).
fn word(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{escaped}\"")
}

fn service(program: &Path, yard: &Yard, (what, name): (ServiceOf, &str), is_of_user: bool) -> String {
    let (folder, program) = (yard.home.display().to_string(), program.display().to_string());
    let target =
        yard.target_name.as_ref().map(|target| format!(" --target {}", word(target))).unwrap_or_default();
    let arguments = match what {
        ServiceOf::Serve => "serve --api 127.0.0.1:7880",
        ServiceOf::Watch => "watch",
        ServiceOf::Build => "build",
    };
    let kind = match what {
        // A run takes as long as it takes, and its failures are those of packages.
        ServiceOf::Build => "Type=oneshot\nSuccessExitStatus=1\nTimeoutStartSec=infinity",
        ServiceOf::Serve | ServiceOf::Watch => "Restart=on-failure\nRestartSec=10",
    };
    let user = match is_of_user {
        true => String::new(),
        false => format!("User={}\n", crate::yard::user_name()),
    };
    let wanted_by = if is_of_user { "default.target" } else { "multi-user.target" };
    let install = match what {
        ServiceOf::Build => String::new(),
        ServiceOf::Serve | ServiceOf::Watch => format!("\n[Install]\nWantedBy={wanted_by}\n"),
    };
    format!(
        "# {place}/kilnyard-{name}.service\n\
         [Unit]\nDescription=Kilnyard: {name} of {folder}\nWants=network-online.target\nAfter=network-online.target\n\n\
         [Service]\nExecStart={} --yard {}{target} {arguments}\n{user}{kind}\n\
         # Ctrl-C: builds are cancelled, and the run can be resumed.\nKillSignal=SIGINT\nTimeoutStopSec=120\n\
         # Builds have control groups of their own.\nDelegate=yes\n{install}",
        word(&program),
        word(&folder),
        place = if is_of_user { "~/.config/systemd/user" } else { "/etc/systemd/system" },
        folder = folder.replace('%', "%%"),
    )
}

fn timer(yard: &Yard, name: &str, at: &str) -> String {
    // A line break would begin another setting.
    let at = kilnyard_model::text::line(at).replace('%', "%%");
    format!(
        "# kilnyard-{name}.timer\n[Unit]\nDescription=Kilnyard: regular runs of {}\n\n\
         [Timer]\nOnCalendar={at}\n# A run that was missed while the machine was off starts at once.\nPersistent=true\n\n\
         [Install]\nWantedBy=timers.target\n",
        yard.home.display().to_string().replace('%', "%%"),
    )
}
