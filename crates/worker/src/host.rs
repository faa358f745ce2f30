//! Identifies this machine's kernel and CPU.

use kilnyard_model::host::Host;
use kilnyard_model::text;

/// Reads the kernel's name from uname(2) and the CPU's model from proc_cpuinfo(5).
pub fn host() -> Host {
    let uname = rustix::system::uname();
    let kernel = format!("{} {}", uname.sysname().to_string_lossy(), uname.release().to_string_lossy());
    let table = fs_err::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let cpu = model_of(&table).unwrap_or_else(|| uname.machine().to_string_lossy().into_owned());
    Host { kernel: bounded(&kernel), cpu: bounded(&cpu) }
}

/// The model in `/proc/cpuinfo`: x86 and PowerPC name it for each CPU, Arm for the machine.
fn model_of(table: &str) -> Option<String> {
    let fields = || table.lines().filter_map(|line| line.split_once(':'));
    let value = |name: &str| fields().find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim());
    ["model name", "cpu", "Hardware", "uarch"].into_iter().find_map(value).map(str::to_owned)
}

/// Removes control characters, and cuts the text at the maximum length.
fn bounded(text: &str) -> String {
    let mut text = text::line(text).to_string();
    while text.len() > Host::BYTES_MAX {
        text.pop();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_found_in_tables_of_several_architectures() {
        let x86 = "processor\t: 0\nmodel\t\t: 1\nmodel name\t: AMD EPYC 7B13\n\nprocessor\t: 1\nmodel name\t: other\n";
        assert_eq!(model_of(x86).as_deref(), Some("AMD EPYC 7B13"));
        let power = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n";
        assert_eq!(model_of(power).as_deref(), Some("POWER9, altivec supported"));
        assert_eq!(model_of("processor\t: 0\nBogoMIPS\t: 50.00\n"), None);
    }

    #[test]
    fn this_machine_has_a_kernel_and_a_cpu() {
        let host = host();
        assert!(host.kernel.starts_with("Linux ") && !host.cpu.is_empty(), "{host:?}");
    }

    #[test]
    fn a_hostile_name_is_one_short_line() {
        let text = bounded(&format!("\u{1b}[2Jx\ny{}", "漢".repeat(200)));
        assert!(text.len() <= Host::BYTES_MAX && !text.chars().any(char::is_control), "{text:?}");
    }
}
