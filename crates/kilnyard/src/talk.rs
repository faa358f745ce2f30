//! Lines for people.

/// Writes a line to standard error, with all that a terminal would obey escaped: much of it has words of archives and
/// packages. A closed standard error is ignored, so that the work continues without a reader.
macro_rules! tell {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let text = format!($($what)*);
        let _ = writeln!(std::io::stderr(), "{}", kilnyard_model::foreign::text(&text));
    }};
}
