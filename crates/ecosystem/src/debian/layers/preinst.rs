//! Decides whether a package's `preinst` script has an effect at its first installation.

/// Programs that do nothing at a first installation, with any arguments: they only handle an earlier version.
const IDLE: [&str; 1] = ["dpkg-maintscript-helper"];

/// Fails with the reason unless the script does nothing at a first installation: only comments, `set`, `exit 0`,
/// and calls of [`IDLE`] programs.
pub(super) fn check(script: &str) -> Result<(), String> {
    for line in script.lines().map(str::trim) {
        let mut words = line.split_whitespace();
        let is_idle = match words.next() {
            None => true,
            Some(word) if word.starts_with('#') => true,
            Some("set") => matches!(words.next(), Some("-e" | "-u" | "-eu")) && words.next().is_none(),
            Some("exit") => matches!((words.next(), words.next()), (Some("0"), None)),
            Some(word) if IDLE.contains(&word) => {
                !line.contains(['`', '$', ';', '|', '&', '<', '>']) || is_plain_call(line)
            }
            _ => false,
        };
        if !is_idle {
            return Err(format!("its preinst script has the line `{line}`"));
        }
    }
    Ok(())
}

/// Whether the only expansion in a line is the script's own arguments at the end.
fn is_plain_call(line: &str) -> bool {
    line.strip_suffix("-- \"$@\"").is_some_and(|call| !call.contains(['`', '$', ';', '|', '&', '<', '>']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts_that_only_handle_earlier_versions_have_no_effect() {
        let helper = "#!/bin/sh\nset -e\n# Automatically added by dh_installdeb/13\n\
                      dpkg-maintscript-helper rm_conffile /etc/a 1.0\\~ -- \"$@\"\n# End\nexit 0\n";
        assert_eq!(check(helper), Ok(()));
        assert_eq!(check(""), Ok(()));
    }

    #[test]
    fn unknown_commands_may_have_an_effect() {
        for script in [
            "#!/bin/sh\ndpkg-divert --add /bin/x\n",
            "set -e; adduser x",
            "dpkg-maintscript-helper rm_conffile $(adduser x) -- \"$@\"",
            "dpkg-maintscript-helper x -- \"$@\" && y",
            "exit 1",
            "set +e",
        ] {
            assert!(check(script).is_err(), "{script}");
        }
    }
}
