//! Process 1 of virtual machines of another architecture than Kilnyard's own: compiled for that architecture, it does what
//! Kilnyard does in machines of its own architecture.

fn main() -> std::process::ExitCode {
    kilnyard_vm::become_guest_if_started_as_process_1();
    eprintln!("kilnyard-guest is process 1 of virtual machines of Kilnyard, and does nothing else");
    std::process::ExitCode::FAILURE
}
