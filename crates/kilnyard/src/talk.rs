//! Messages for people, on standard error.

/// Writes a line to standard error. Control sequences are escaped, since lines may contain text of archives and
/// packages. A closed standard error is ignored, so that the work continues.
macro_rules! say {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let text = format!($($what)*);
        let _ = writeln!(std::io::stderr(), "{}", kilnyard_model::foreign::text(&text));
    }};
}
