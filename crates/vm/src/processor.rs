//! What differs between the processors that machines can have.

use kilnyard_model::order::Processor;

/// The name that Debian's packages have for it.
pub(crate) fn of_packages(processor: Processor) -> &'static str {
    match processor {
        Processor::X86_64 => "amd64",
        Processor::Aarch64 => "arm64",
    }
}

/// The program that runs its machines, and the Debian package that contains it.
pub(crate) fn emulator(processor: Processor) -> (&'static str, &'static str) {
    match processor {
        Processor::X86_64 => ("qemu-system-x86_64", "qemu-system-x86"),
        Processor::Aarch64 => ("qemu-system-aarch64", "qemu-system-arm"),
    }
}
