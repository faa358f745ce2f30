//! Package patterns, as used in dependencies (pkg_install, `lib/opattern.c`; pkg_info(1), "Package wildcards"):
//! alternatives in braces, version ranges, globs, plain names.

use super::version::Version;
use std::cmp::Ordering;

/// Limit on alternatives, beyond that of any dependency; nested braces multiply them.
const ALTERNATIVES_MAX: usize = 1024;
/// Each pair of braces is one level of recursion and one more copy of the pattern. Dependencies have one or two.
const BRACES_MAX: usize = 64;
/// The longest pattern of a dependency has about 200 bytes; each alternative is a copy.
const PATTERN_BYTES_MAX: usize = 4096;
/// Characters of an overlong pattern that an error shows.
const SHOWN_CHARACTERS_MAX: usize = 80;

/// The name of a package with its version, such as `figlet-2.2.2nb1`.
#[derive(Clone, Debug)]
pub struct PackageName<'a> {
    text: &'a str,
    /// Offset of the last `-`; the length of the name if there is none.
    base_bytes: usize,
    version: Version,
}

impl<'a> PackageName<'a> {
    /// Splits a full name at its last `-`.
    pub fn new(text: &'a str) -> PackageName<'a> {
        let base_bytes = text.rfind('-').unwrap_or(text.len());
        let version = Version::parse(text.get(base_bytes + 1..).unwrap_or(""));
        PackageName { text, base_bytes, version }
    }

    /// The full name, with its version.
    pub fn text(&self) -> &'a str {
        self.text
    }

    /// The part before the last `-`.
    pub fn base(&self) -> &'a str {
        &self.text[..self.base_bytes]
    }

    /// The version after the last `-`; equal to `0` if there is none.
    pub fn version(&self) -> &Version {
        &self.version
    }

    fn has_version(&self) -> bool {
        self.base_bytes < self.text.len()
    }

    /// Orders two matching packages: the better one has the higher version, whatever its name; of equal versions,
    /// the name that sorts last.
    pub fn compare(&self, other: &PackageName) -> Ordering {
        self.version.cmp(&other.version).then_with(|| self.text.cmp(other.text))
    }
}

/// A malformed pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// An unbalanced brace.
    #[error("`{0}` has unbalanced braces")]
    Braces(String),
    /// More alternatives than the limit.
    #[error("`{0}` has more than {ALTERNATIVES_MAX} alternatives")]
    TooMany(String),
    /// More pairs of braces than the limit.
    #[error("`{0}` has more than {BRACES_MAX} pairs of braces")]
    TooDeep(String),
    /// Longer than the limit.
    #[error("`{0}...` has more than {PATTERN_BYTES_MAX} bytes")]
    TooLong(String),
}

/// A parsed pattern.
#[derive(Clone, Debug)]
pub struct Pattern {
    alternatives: Vec<Alternative>,
}

/// One alternative of a pattern.
#[derive(Clone, Debug)]
pub enum Alternative {
    /// A range of versions of one package.
    Range {
        /// Package name without version.
        base: String,
        /// The bounds; all must hold.
        bounds: Vec<(Bound, Version)>,
    },
    /// A glob, which matches either the full name or the name without its version.
    Glob(String),
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// `<`
    Less,
    /// `<=`
    LessOrEqual,
    /// `>`
    Greater,
    /// `>=`
    GreaterOrEqual,
}

impl Bound {
    fn holds(self, order: Ordering) -> bool {
        match self {
            Bound::Less => order.is_lt(),
            Bound::LessOrEqual => order.is_le(),
            Bound::Greater => order.is_gt(),
            Bound::GreaterOrEqual => order.is_ge(),
        }
    }
}

impl Pattern {
    /// Parses a pattern.
    pub fn parse(text: &str) -> Result<Pattern, PatternError> {
        if text.len() > PATTERN_BYTES_MAX {
            return Err(PatternError::TooLong(text.chars().take(SHOWN_CHARACTERS_MAX).collect()));
        }
        if text.bytes().filter(|byte| *byte == b'{').count() > BRACES_MAX {
            return Err(PatternError::TooDeep(text.to_owned()));
        }
        let mut expanded = Vec::new();
        expand(text, text, &mut expanded)?;
        Ok(Pattern { alternatives: expanded.iter().map(|text| Alternative::parse(text)).collect() })
    }

    /// The alternatives, with braces expanded.
    pub fn alternatives(&self) -> &[Alternative] {
        &self.alternatives
    }

    /// Whether a package matches any alternative.
    pub fn matches(&self, name: &PackageName) -> bool {
        self.alternatives.iter().any(|alternative| alternative.matches(name))
    }
}

/// Expands the first pair of braces into its alternatives, and recurses into the results.
fn expand(text: &str, whole: &str, expanded: &mut Vec<String>) -> Result<(), PatternError> {
    let Some(open) = text.find('{') else {
        if text.contains('}') {
            return Err(PatternError::Braces(whole.to_owned()));
        }
        if expanded.len() == ALTERNATIVES_MAX {
            return Err(PatternError::TooMany(whole.to_owned()));
        }
        expanded.push(text.to_owned());
        return Ok(());
    };
    let (mut depth, mut commas, mut close) = (0, vec![open], None);
    for (index, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b',' if depth == 1 => commas.push(index),
            _ => {}
        }
        if depth == 0 {
            close = Some(index);
            break;
        }
    }
    let close = close.ok_or_else(|| PatternError::Braces(whole.to_owned()))?;
    commas.push(close);
    for pair in commas.windows(2) {
        let (before, alternative, after) = (&text[..open], &text[pair[0] + 1..pair[1]], &text[close + 1..]);
        expand(&format!("{before}{alternative}{after}"), whole, expanded)?;
    }
    Ok(())
}

impl Alternative {
    fn parse(text: &str) -> Alternative {
        let Some(at) = text.find(['<', '>']) else { return Alternative::Glob(text.to_owned()) };
        let (base, mut rest) = text.split_at(at);
        let mut bounds = Vec::new();
        // Either one bound, or a lower and an upper one; everything after a leading upper bound is its version.
        while let Some((bound, version)) = bound(rest) {
            let end = match bound {
                Bound::Greater | Bound::GreaterOrEqual => version.find('<').unwrap_or(version.len()),
                Bound::Less | Bound::LessOrEqual => version.len(),
            };
            bounds.push((bound, Version::parse(&version[..end])));
            rest = &version[end..];
        }
        Alternative::Range { base: base.to_owned(), bounds }
    }

    /// Whether a package matches this alternative.
    pub fn matches(&self, name: &PackageName) -> bool {
        match self {
            Alternative::Range { base, bounds } => {
                name.has_version()
                    && name.base() == base
                    && bounds.iter().all(|(bound, version)| bound.holds(name.version.cmp(version)))
            }
            Alternative::Glob(glob) => {
                let (glob, name) = (glob.as_bytes(), name.text.as_bytes());
                matches_glob(&[glob], name) || matches_glob(&[glob, b"-[0-9]*"], name)
            }
        }
    }

    /// The literal prefix that all matching names share.
    pub fn prefix(&self) -> &str {
        match self {
            Alternative::Range { base, .. } => base,
            Alternative::Glob(glob) => &glob[..glob.find(['*', '?', '[', '\\']).unwrap_or(glob.len())],
        }
    }
}

fn bound(text: &str) -> Option<(Bound, &str)> {
    let signs = [
        ("<=", Bound::LessOrEqual),
        (">=", Bound::GreaterOrEqual),
        ("<", Bound::Less),
        (">", Bound::Greater),
    ];
    signs.into_iter().find_map(|(sign, bound)| Some((bound, text.strip_prefix(sign)?)))
}

/// Whether a name matches a glob (fnmatch(3) with `FNM_PERIOD`), given as pieces that are read as one.
fn matches_glob(pieces: &[&[u8]], name: &[u8]) -> bool {
    let glob: Vec<u8> = pieces.concat();
    if name.first() == Some(&b'.') && glob.first() != Some(&b'.') {
        return false;
    }
    let (mut at, mut place) = (0, 0);
    // After a star: where the glob continues, and how much of the name the star has consumed.
    let mut star: Option<(usize, usize)> = None;
    while place < name.len() {
        let step = match glob.get(at) {
            Some(b'*') => {
                star = Some((at + 1, place));
                at += 1;
                continue;
            }
            Some(b'?') => Some(at + 1),
            Some(b'[') => {
                class(&glob[at..], name[place]).and_then(|(bytes, is_in)| is_in.then_some(at + bytes))
            }
            Some(b'\\') if at + 1 < glob.len() => (glob[at + 1] == name[place]).then_some(at + 2),
            Some(byte) => (*byte == name[place]).then_some(at + 1),
            None => None,
        };
        match (step, star) {
            (Some(next), _) => (at, place) = (next, place + 1),
            (None, Some((after, taken))) => {
                star = Some((after, taken + 1));
                (at, place) = (after, taken + 1);
            }
            (None, None) => return false,
        }
    }
    glob[at..].iter().all(|byte| *byte == b'*')
}

/// The length of a class such as `[0-9]`, and whether a byte is in it; a `[` without a `]` is literal.
fn class(glob: &[u8], byte: u8) -> Option<(usize, bool)> {
    let is_negated = matches!(glob.get(1), Some(b'!' | b'^'));
    let first = if is_negated { 2 } else { 1 };
    let mut at = first;
    let mut is_in = false;
    loop {
        match glob.get(at) {
            None => return Some((1, byte == b'[')),
            Some(b']') if at > first => return Some((at + 1, is_in != is_negated)),
            Some(low) => {
                let (low, high, bytes) = match (glob.get(at + 1), glob.get(at + 2)) {
                    (Some(b'-'), Some(high)) if *high != b']' => (*low, *high, 3),
                    _ => (*low, *low, 1),
                };
                is_in |= (low..=high).contains(&byte);
                at += bytes;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, matching: &[&str], others: &[&str]) {
        let parsed = Pattern::parse(pattern).unwrap();
        for name in matching {
            assert!(parsed.matches(&PackageName::new(name)), "{pattern} {name}");
        }
        for name in others {
            assert!(!parsed.matches(&PackageName::new(name)), "{pattern} {name}");
        }
    }

    #[test]
    fn ranges_cover_one_name() {
        check("foo>=1.0", &["foo-1.0", "foo-1.0nb1", "foo-2"], &["foo-0.9", "foobar-2", "foo-bar-2", "foo"]);
        check("foo>=1<2", &["foo-1", "foo-1.9.9"], &["foo-2", "foo-0.9"]);
        check("foo>1<=2", &["foo-1.1", "foo-2"], &["foo-1", "foo-2.0.1"]);
        check("foo<2", &["foo-1"], &["foo-2"]);
        check("foo-bar>=1", &["foo-bar-1"], &["foo-1"]);
        check("foo>=1.0rc1", &["foo-1.0rc1", "foo-1.0"], &["foo-1.0beta1"]);
    }

    #[test]
    fn globs_match_the_full_name_or_its_base() {
        check("foo-[0-9]*", &["foo-1.0"], &["foo-bar-1.0", "fo-1"]);
        check("foo", &["foo-1.0"], &["foo-bar-1", "fool-1"]);
        check("foo-1.0", &["foo-1.0"], &["foo-1.0.1", "foo-1.0nb1"]);
        check("p5-*", &["p5-Foo-1.0"], &["p6-Foo-1"]);
        check("foo-1.[0-4]*", &["foo-1.3.2"], &["foo-1.5"]);
        check("foo-[!0]*", &["foo-1"], &["foo-0"]);
        check("f?o-[0-9]*", &["fxo-1"], &["fo-1"]);
        check("*-1.0", &["a-1.0", "b-c-1.0"], &[".a-1.0", "a-1.1"]);
        check("foo-[0", &["foo-[0"], &["foo"]);
        check("a*b*c-1", &["aXbXbXc-1"], &["aXbXbX-1"]);
    }

    #[test]
    fn braces_are_alternatives() {
        check("{foo,bar}>=1", &["foo-1", "bar-2"], &["baz-1"]);
        check("foo{,-devel}-[0-9]*", &["foo-1", "foo-devel-1"], &["foo-doc-1"]);
        check("a{b,c{d,e}}-[0-9]*", &["ab-1", "acd-1", "ace-1"], &["ac-1"]);
        assert_eq!(Pattern::parse("a{b").unwrap_err(), PatternError::Braces("a{b".to_owned()));
        assert_eq!(Pattern::parse("a}b").unwrap_err(), PatternError::Braces("a}b".to_owned()));
        let many = "{a,b,c,d,e,f,g,h}".repeat(12);
        assert!(matches!(Pattern::parse(&many), Err(PatternError::TooMany(_))));
    }

    #[test]
    fn braces_and_length_are_limited() {
        let nested = |pairs: usize| "{".repeat(pairs) + "a" + &"}".repeat(pairs);
        assert!(Pattern::parse(&nested(BRACES_MAX)).is_ok());
        assert!(matches!(Pattern::parse(&nested(BRACES_MAX + 1)), Err(PatternError::TooDeep(_))));
        let beside = "{a}".repeat(BRACES_MAX + 1);
        assert!(matches!(Pattern::parse(&beside), Err(PatternError::TooDeep(_))));
        // Both would overflow the stack.
        for text in [nested(50_000), "{a}".repeat(50_000)] {
            let error = Pattern::parse(&text).unwrap_err();
            assert!(matches!(error, PatternError::TooLong(_)));
            assert!(error.to_string().len() < 200, "{error}");
        }
    }

    #[test]
    fn the_better_match_has_the_higher_version() {
        let better = |one, two| PackageName::new(one).compare(&PackageName::new(two));
        assert_eq!(better("mysql-8.0", "mariadb-11.2"), Ordering::Less);
        assert_eq!(better("aaa-1.0", "bbb-1.0"), Ordering::Less);
        assert_eq!(better("foo-1.0nb2", "foo-1.0nb1"), Ordering::Greater);
    }

    #[test]
    fn every_match_begins_with_the_prefix() {
        for (pattern, prefix) in [("foo>=1", "foo"), ("foo-[0-9]*", "foo-"), ("*", ""), ("foo-1", "foo-1")] {
            assert_eq!(Pattern::parse(pattern).unwrap().alternatives()[0].prefix(), prefix);
        }
    }
}
