//! Relations between packages: `a (>= 1) [amd64] <!nocheck> | b:any, c` (deb-control(5), Policy 7).
//!
//! [`clauses`] walks a field without copying and drops the parts that the architecture or the build profiles
//! exclude. The result has only relations that apply to this build.

use super::architecture;
use std::cmp::Ordering;
use std::fmt;

/// A version comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operator {
    /// `<<`
    Earlier,
    /// `<=`, and the historic `<`
    EarlierOrEqual,
    /// `=`
    Equal,
    /// `>=`, and the historic `>`
    LaterOrEqual,
    /// `>>`
    Later,
}

impl Operator {
    fn parse(text: &str) -> Option<Operator> {
        Some(match text {
            "<<" => Operator::Earlier,
            "<=" | "<" => Operator::EarlierOrEqual,
            "=" | "==" => Operator::Equal,
            ">=" | ">" => Operator::LaterOrEqual,
            ">>" => Operator::Later,
            _ => return None,
        })
    }

    /// Whether a version is accepted, given how it compares with the wanted one.
    pub fn accepts(self, order: Ordering) -> bool {
        match self {
            Operator::Earlier => order == Ordering::Less,
            Operator::EarlierOrEqual => order != Ordering::Greater,
            Operator::Equal => order == Ordering::Equal,
            Operator::LaterOrEqual => order != Ordering::Less,
            Operator::Later => order == Ordering::Greater,
        }
    }

    /// The operator in its current spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Operator::Earlier => "<<",
            Operator::EarlierOrEqual => "<=",
            Operator::Equal => "=",
            Operator::LaterOrEqual => ">=",
            Operator::Later => ">>",
        }
    }
}

/// The part after the colon of `name:qualifier`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Qualifier<'a> {
    /// No qualifier: the architecture of the depending package, or `all`.
    None,
    /// `:any`: any architecture, if the package allows that (`Multi-Arch: allowed`).
    Any,
    /// `:native`: the architecture of the build machine.
    Native,
    /// A named architecture.
    Architecture(&'a str),
}

/// One alternative of a clause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Atom<'a> {
    /// The name of a package or virtual package.
    pub name: &'a str,
    /// Its architecture qualifier.
    pub qualifier: Qualifier<'a>,
    /// The accepted versions; `None` accepts all.
    pub version: Option<(Operator, &'a str)>,
}

impl fmt::Display for Atom<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        match self.qualifier {
            Qualifier::None => {}
            Qualifier::Any => f.write_str(":any")?,
            Qualifier::Native => f.write_str(":native")?,
            Qualifier::Architecture(architecture) => write!(f, ":{architecture}")?,
        }
        if let Some((operator, version)) = self.version {
            write!(f, " ({} {version})", operator.as_str())?;
        }
        Ok(())
    }
}

/// A malformed relation, kept for the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the relation `{relation}` is not of the form `name[:arch] [(op version)] [[arch...]] [<profile...>]`"
)]
pub struct RelationError {
    /// The text of the relation in the field.
    pub relation: String,
}

/// The architecture and the profiles, which decide which restrictions hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// The architecture of the packages, such as `amd64`.
    pub architecture: String,
    /// The architecture of the machine that cross-builds them; absent if it is the same.
    pub build: Option<String>,
    /// Active build profiles, such as `nocheck`.
    pub profiles: Vec<String>,
}

impl Context {
    /// A context without build profiles.
    pub fn new(architecture: &str) -> Context {
        Context { architecture: architecture.to_owned(), build: None, profiles: Vec::new() }
    }

    /// Whether the relation applies under the restriction `[...]`. A negative list names the excluded architectures
    /// (Policy 7.1).
    pub(super) fn architectures_hold(&self, list: &str) -> bool {
        let mut negative = false;
        for entry in list.split_whitespace() {
            let (wanted, name) = match entry.strip_prefix('!') {
                Some(name) => (false, name),
                None => (true, entry),
            };
            negative |= !wanted;
            if architecture::matches(name, &self.architecture) {
                return wanted;
            }
        }
        negative
    }

    /// Whether one restriction `<a !b>` holds, which requires all of its terms.
    fn profiles_hold(&self, terms: &str) -> bool {
        terms.split_whitespace().all(|term| match term.strip_prefix('!') {
            Some(profile) => !self.profiles.iter().any(|p| p == profile),
            None => self.profiles.iter().any(|p| p == term),
        })
    }
}

/// Parses a field into its clauses, each a list of alternatives in their order. Alternatives that the context
/// excludes are dropped; so is a clause with no remaining alternative.
pub fn clauses<'a>(
    field: &'a str,
    context: &'a Context,
) -> impl Iterator<Item = Result<Vec<Atom<'a>>, RelationError>> + 'a {
    field.split(',').map(str::trim).filter(|clause| !clause.is_empty()).filter_map(move |clause| {
        let mut alternatives = Vec::with_capacity(1);
        for text in clause.split('|') {
            match atom(text.trim(), context) {
                Ok(Some(atom)) => alternatives.push(atom),
                Ok(None) => {}
                Err(error) => return Some(Err(error)),
            }
        }
        (!alternatives.is_empty()).then_some(Ok(alternatives))
    })
}

/// Parses one alternative; `None` if a restriction excludes it.
pub fn atom<'a>(text: &'a str, context: &Context) -> Result<Option<Atom<'a>>, RelationError> {
    let error = || RelationError { relation: text.to_owned() };
    let name_end =
        text.find(|c: char| c.is_whitespace() || matches!(c, '(' | '[' | '<')).unwrap_or(text.len());
    let (name, mut rest) = text.split_at(name_end);
    let (name, qualifier) = match name.split_once(':') {
        None => (name, Qualifier::None),
        Some((name, "any")) => (name, Qualifier::Any),
        Some((name, "native")) => (name, Qualifier::Native),
        Some((name, architecture)) if is_name(architecture) => (name, Qualifier::Architecture(architecture)),
        Some(_) => return Err(error()),
    };
    if !is_name(name) {
        return Err(error());
    }
    let mut version = None;
    let mut architectures_hold = true;
    let mut profiles: Option<bool> = None;
    loop {
        rest = rest.trim_start();
        let Some(open) = rest.chars().next() else { break };
        let close = match open {
            '(' => ')',
            '[' => ']',
            '<' => '>',
            _ => return Err(error()),
        };
        let end = rest.find(close).ok_or_else(error)?;
        let inner = rest[1..end].trim();
        rest = &rest[end + 1..];
        match open {
            '(' => {
                let digits = inner.find(|c: char| !matches!(c, '<' | '>' | '=')).ok_or_else(error)?;
                let operator = Operator::parse(&inner[..digits]).ok_or_else(error)?;
                let wanted = inner[digits..].trim();
                // Two versions in one relation would be two relations; which one counts is undefined.
                if !is_version_text(wanted) || version.replace((operator, wanted)).is_some() {
                    return Err(error());
                }
            }
            '[' => architectures_hold &= context.architectures_hold(inner),
            _ => profiles = Some(profiles.unwrap_or(false) || context.profiles_hold(inner)),
        }
    }
    let stands = architectures_hold && profiles.unwrap_or(true);
    Ok(stands.then_some(Atom { name, qualifier, version }))
}

/// Whether a text can be a package name. This accepts more than Policy allows, but nothing that could be taken for
/// another part of a relation or of a path.
pub fn is_name(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphanumeric())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.' | b'_'))
}

/// Accepts more than valid versions, but no blanks and no character that starts or ends another part of a relation.
fn is_version_text(version: &str) -> bool {
    version.bytes().all(|b| b.is_ascii_graphic() && !b"()[]<>".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(field: &str, profiles: &[&str]) -> Vec<String> {
        let context = Context {
            build: None,
            architecture: "amd64".to_owned(),
            profiles: profiles.iter().map(|p| (*p).to_owned()).collect(),
        };
        clauses(field, &context)
            .map(|clause| clause.unwrap().iter().map(ToString::to_string).collect::<Vec<_>>().join(" | "))
            .collect()
    }

    #[test]
    fn all_parts_are_read() {
        assert_eq!(
            read("debhelper-compat (= 13), a:any (>= 1:2~) | b , c:native(<<3),\n d:i386", &[]),
            ["debhelper-compat (= 13)", "a:any (>= 1:2~) | b", "c:native (<< 3)", "d:i386"]
        );
    }

    #[test]
    fn architectures_exclude_relations() {
        assert_eq!(
            read(
                "a [amd64], b [i386], c [!amd64], d [!i386 !arm64], e [linux-any], f [any-i386] | g, h [kfreebsd-any]",
                &[]
            ),
            ["a", "d", "e", "g"]
        );
    }

    #[test]
    fn profiles_exclude_relations() {
        let field = "a <!nocheck>, b <!nodoc !nocheck>, c <stage1> <!nodoc>, d <cross>";
        assert_eq!(read(field, &[]), ["a", "b", "c"]);
        assert_eq!(read(field, &["nocheck"]), ["c"]);
        assert_eq!(read(field, &["nodoc", "stage1"]), ["a", "c"]);
    }

    #[test]
    fn malformed_relations_are_errors_with_their_text() {
        let context = Context::new("amd64");
        for bad in ["(>= 1)", "a (1)", "a (>= 1", "a b", "../a", "${misc:Depends}", "é", "a:", "a:b:c"] {
            let error = clauses(bad, &context).next().unwrap().unwrap_err();
            assert!(error.to_string().contains(bad), "{error}");
        }
    }

    #[test]
    fn a_relation_has_at_most_one_version_of_one_word() {
        let context = Context::new("amd64");
        for bad in ["a (>= 1 2)", "a (>> 1s\nany]<no)", "a (>= 1) (<< 2)", "a (= 1()"] {
            assert!(clauses(bad, &context).next().unwrap().is_err(), "{bad:?}");
        }
        assert_eq!(read("a ( >=\n 1:2~+x )", &[]), ["a (>= 1:2~+x)"]);
    }
}
