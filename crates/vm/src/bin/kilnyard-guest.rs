//! Process 1 of virtual machines with another processor than Kilnyard's own: compiled for that processor, it does what
//! Kilnyard does in machines with its own processor.

use std::process::ExitCode;

fn main() -> ExitCode {
    // It starts itself for each sandbox, and to inspect what hangs there.
    kilnyard_root::sandbox::become_sandbox_if_asked();
    kilnyard_process::become_inspector_if_asked();
    kilnyard_vm::become_guest_if_started_as_process_1();
    eprintln!("kilnyard-guest is process 1 of virtual machines of Kilnyard, and does nothing else");
    ExitCode::FAILURE
}
