//! Process 1 of virtual machines of another architecture than Kilnyard's own: compiled for that architecture, it does what
//! Kilnyard does in machines of its own architecture.

use std::process::ExitCode;

fn main() -> ExitCode {
    // It starts itself for each sandbox, and to inspect what hangs there.
    kilnyard_root::sandbox::become_sandbox_if_asked();
    kilnyard_process::become_inspector_if_asked();
    kilnyard_vm::become_guest_if_started_as_process_1();
    eprintln!("kilnyard-guest is process 1 of virtual machines of Kilnyard, and does nothing else");
    ExitCode::FAILURE
}
