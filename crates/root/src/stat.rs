//! The status of one process, from `/proc/PID/stat` (proc_pid_stat(5)).
//!
//! The process name is in parentheses there and may itself contain parentheses, blanks, newlines and invalid UTF-8, so
//! parsing resumes after the last closing parenthesis.

/// The fields of `/proc/PID/stat` that Kilnyard uses. Times are in clock ticks (`sysconf(_SC_CLK_TCK)`), memory in
/// pages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProcessStat {
    /// The process id.
    pub number: i32,
    /// The name of the program, cut by the kernel to 15 bytes; invalid UTF-8 is replaced.
    pub name: String,
    /// The letter of its state, such as `R` or `Z`.
    pub state: u8,
    /// The process id of its parent.
    pub parent: i32,
    /// User time of all its threads.
    pub user_ticks: u64,
    /// System time of all its threads.
    pub system_ticks: u64,
    /// User and system time of the children that it has waited for, including their own waited-for children.
    pub children_ticks: u64,
    /// The number of its threads.
    pub threads: u32,
    /// When it started, counted from the boot of the machine.
    pub started_ticks: u64,
    /// Its resident memory, including pages shared with other processes.
    pub resident_pages: u64,
}

impl ProcessStat {
    /// Parses the content of the file; `None` if it is malformed.
    pub fn parse(text: &[u8]) -> Option<ProcessStat> {
        let (open, close) =
            (text.iter().position(|byte| *byte == b'(')?, text.iter().rposition(|byte| *byte == b')')?);
        let name = text.get(open + 1..close)?;
        let number = std::str::from_utf8(&text[..open]).ok()?.trim().parse().ok()?;
        let rest = std::str::from_utf8(&text[close + 1..]).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let parent = fields.next()?.parse().ok()?;
        // Fields are numbered as in the manual, where utime is the 14th. Four are read by now.
        let mut number_at = {
            let mut at = 4;
            move |field: usize| -> Option<u64> {
                let found = fields.nth(field - at - 1)?;
                at = field;
                // Some fields may be negative; none of those is requested.
                found.parse().ok()
            }
        };
        let (user_ticks, system_ticks) = (number_at(14)?, number_at(15)?);
        // The kernel may report these as negative for a moment.
        let children_ticks = number_at(16).unwrap_or(0).saturating_add(number_at(17).unwrap_or(0));
        Some(ProcessStat {
            number,
            name: String::from_utf8_lossy(name).into_owned(),
            state,
            parent,
            user_ticks,
            system_ticks,
            children_ticks,
            threads: number_at(20)?.try_into().ok()?,
            started_ticks: number_at(22)?,
            resident_pages: number_at(24)?,
        })
    }

    /// Whether it has ended and its parent has not waited for it yet.
    pub fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x')
    }

    /// Whether it runs, or could run if it had a core.
    pub fn is_runnable(&self) -> bool {
        self.state == b'R'
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "4711 (cc1) R 4700 12 13 34816 12 4194304 100 200 1 2 310 42 7 -3 20 0 5 0 9876543 \
                        123456789 2048 18446744073709551615 1 1 0 0 0 0 0 4096 0 0 0 0 17 1 0 0 0 0 0 0";

    #[test]
    fn fields_are_where_the_manual_says() {
        let stat = ProcessStat::parse(LINE.as_bytes()).unwrap();
        let expected = ProcessStat {
            number: 4711,
            name: "cc1".into(),
            state: b'R',
            parent: 4700,
            user_ticks: 310,
            system_ticks: 42,
            children_ticks: 7,
            threads: 5,
            started_ticks: 9_876_543,
            resident_pages: 2048,
        };
        assert_eq!(stat, expected);
        assert!(stat.is_runnable() && !stat.has_ended());
    }

    #[test]
    fn a_name_may_be_anything() {
        for name in [&b"a) R 1 (b"[..], b"\xff\xfe", b") (", b"", b"sh -c\n(x)"] {
            let line = [b"4711 (", name, &LINE.as_bytes()[LINE.find(") ").unwrap()..]].concat();
            let stat = ProcessStat::parse(&line).unwrap();
            assert_eq!((stat.parent, stat.threads, stat.resident_pages), (4700, 5, 2048));
            assert_eq!(stat.name, String::from_utf8_lossy(name));
        }
    }

    #[test]
    fn a_truncated_or_malformed_line_is_rejected() {
        for cut in 0..LINE.find(" 2048 ").unwrap() + 1 {
            assert_eq!(ProcessStat::parse(&LINE.as_bytes()[..cut]), None, "{}", &LINE[..cut]);
        }
        for text in ["", ")", "(", ")(", "1 (x) R", "x (y) R 1 2", "1 (a) R 99999999999 1"] {
            assert_eq!(ProcessStat::parse(text.as_bytes()), None, "{text}");
        }
        let own = ProcessStat::parse(&std::fs::read("/proc/self/stat").unwrap()).unwrap();
        assert_eq!(own.number, std::process::id() as i32);
    }
}
