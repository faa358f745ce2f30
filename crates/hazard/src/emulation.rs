//! What the kernel of this machine emulates, and how to end that.

use crate::Hazard;
use std::path::Path;

/// How a kernel treats a deprecated instruction (Documentation/arch/arm64/legacy_instructions.rst).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The program is ended by SIGILL.
    Undefined,
    /// Each trap is emulated, and stalls other cores.
    Emulated,
    /// The processor executes it.
    Executed,
}

/// An instruction, its setting of sysctl(8), and the current mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Emulation {
    /// The instruction.
    pub hazard: Hazard,
    /// The name of the setting.
    pub setting: &'static str,
    /// What the kernel does.
    pub mode: Mode,
}

/// The settings; processors execute the first two if the kernel lets them, and SWP never.
const SETTINGS: [(Hazard, &str, &str); 3] = [
    (Hazard::Cp15Barrier, "abi.cp15_barrier", "abi/cp15_barrier"),
    (Hazard::Setend, "abi.setend", "abi/setend"),
    (Hazard::Swp, "abi.swp", "abi/swp"),
];

impl Emulation {
    /// What the kernel with these settings does, which are the files of `/proc/sys`. Empty for other processors.
    pub fn of(settings: &Path) -> Vec<Emulation> {
        let read = |(hazard, setting, file): (Hazard, &'static str, &str)| {
            let mode = match fs_err::read_to_string(settings.join(file)).ok()?.trim() {
                "0" => Mode::Undefined,
                "1" => Mode::Emulated,
                "2" => Mode::Executed,
                _ => return None,
            };
            Some(Emulation { hazard, setting, mode })
        };
        SETTINGS.into_iter().filter_map(read).collect()
    }

    /// The command that ends the emulation, if the processor can execute the instruction.
    pub fn remedy(&self) -> Option<String> {
        let is_possible = self.mode == Mode::Emulated && self.hazard != Hazard::Swp;
        is_possible.then(|| format!("sysctl {}=2", self.setting))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_settings_are_understood() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(Emulation::of(folder.path()), []);
        // As Debian's kernel for arm64 has them.
        fs_err::create_dir(folder.path().join("abi")).unwrap();
        for (file, value) in
            [("cp15_barrier", "1\n"), ("setend", "2\n"), ("swp", "1\n"), ("vsyscall32", "1\n")]
        {
            fs_err::write(folder.path().join("abi").join(file), value).unwrap();
        }
        let found = Emulation::of(folder.path());
        let modes: Vec<Mode> = found.iter().map(|one| one.mode).collect();
        assert_eq!(modes, [Mode::Emulated, Mode::Executed, Mode::Emulated]);
        let remedies: Vec<Option<String>> = found.iter().map(Emulation::remedy).collect();
        assert_eq!(remedies, [Some("sysctl abi.cp15_barrier=2".to_owned()), None, None]);
    }
}
