//! The files of the repository, and the tokens of source files.

use proc_macro2::{Delimiter, TokenStream, TokenTree};
use std::fs;
use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the crate is in crates/guards").to_owned()
}

/// A file of the repository.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// Relative to the root of the repository, with `/`.
    pub path: String,
    pub text: String,
}

/// Reads files of the repository: those below `places` whose name ends with one of `endings`, and `places` that are
/// files themselves. Sorted by path.
pub fn files(places: &[&str], endings: &[&str]) -> Vec<SourceFile> {
    let repository = repository();
    let mut found = Vec::new();
    for place in places {
        collect(&repository.join(place), endings, &mut found);
    }
    let mut files: Vec<SourceFile> = found.iter().map(|path| read(&repository, path)).collect();
    files.sort_by(|left, right| left.path.cmp(&right.path));
    // Without files, a guard would pass.
    assert!(!files.is_empty(), "no files in {places:?}");
    files
}

fn read(repository: &Path, path: &Path) -> SourceFile {
    let relative = path.strip_prefix(repository).expect("a path below the repository");
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    SourceFile { path: relative.to_str().expect("a path in UTF-8").to_owned(), text }
}

fn collect(at: &Path, endings: &[&str], found: &mut Vec<PathBuf>) {
    if at.is_file() {
        found.push(at.to_owned());
        return;
    }
    for entry in fs::read_dir(at).unwrap_or_else(|error| panic!("{}: {error}", at.display())) {
        let path = entry.expect("an entry of a folder").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or("");
        if path.is_dir() {
            // Skip the outputs of cargo, and the files of editors and version control.
            if name != "target" && !name.starts_with('.') {
                collect(&path, endings, found);
            }
        } else if endings.iter().any(|ending| name.ends_with(ending)) {
            found.push(path);
        }
    }
}

/// The Rust files of the program, without tests, examples and build scripts.
pub fn program() -> Vec<SourceFile> {
    let mut files = files(&["crates"], &[".rs"]);
    files.retain(|file| is_of_program(&file.path));
    files
}

fn is_of_program(path: &str) -> bool {
    let mut parts = path.split('/').skip(2);
    let is_target = matches!(parts.next(), Some("src" | "preload" | "gate"));
    // By convention, a module of unit tests is `tests.rs` or `tests/`.
    is_target && parts.all(|part| part != "tests" && part != "tests.rs")
}

/// The crate of a file: the name of its folder in `crates`.
pub fn crate_of(path: &str) -> &str {
    path.split('/').nth(1).unwrap_or("")
}

/// The kind of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An identifier, a keyword, or one character of punctuation or a delimiter.
    Code,
    /// A literal in source form.
    Literal,
}

/// A token of a file, with the line in which it begins.
#[derive(Clone, Debug)]
pub struct Token {
    pub kind: Kind,
    pub text: String,
    pub line: usize,
}

/// The tokens of a Rust file, without comments, documentation, and items that are compiled only for tests.
pub fn tokens(text: &str) -> Vec<Token> {
    let stream: TokenStream = text.parse().unwrap_or_else(|error| panic!("not valid Rust tokens: {error}"));
    let mut tokens = Vec::new();
    flatten(stream, &mut tokens);
    tokens
}

fn flatten(stream: TokenStream, into: &mut Vec<Token>) {
    let mut trees = stream.into_iter().peekable();
    let mut is_of_tests = false;
    while let Some(tree) = trees.next() {
        let is_hash = matches!(&tree, TokenTree::Punct(punct) if punct.as_char() == '#');
        if is_hash {
            let inner =
                trees.next_if(|tree| matches!(tree, TokenTree::Punct(punct) if punct.as_char() == '!'));
            let is_attribute = |tree: &TokenTree| matches!(tree, TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket);
            if let Some(TokenTree::Group(attribute)) = trees.next_if(is_attribute) {
                let words: Vec<String> = words_of(attribute.stream());
                let has = |word: &str| words.iter().any(|one| one == word);
                match words.first().map(String::as_str) {
                    Some("doc") => {}
                    Some("cfg") if has("test") && !has("not") && inner.is_none() => is_of_tests = true,
                    _ if !is_of_tests => flatten(attribute.stream(), into),
                    _ => {}
                }
                continue;
            }
        }
        if is_of_tests {
            // The item ends with its body, or with a semicolon.
            is_of_tests = match &tree {
                TokenTree::Group(group) => group.delimiter() != Delimiter::Brace,
                TokenTree::Punct(punct) => punct.as_char() != ';',
                _ => true,
            };
            continue;
        }
        let line = tree.span().start().line;
        let mut add = |kind, text: &str| into.push(Token { kind, text: text.to_owned(), line });
        match tree {
            TokenTree::Ident(ident) => add(Kind::Code, ident.to_string().trim_start_matches("r#")),
            TokenTree::Punct(punct) => add(Kind::Code, &punct.as_char().to_string()),
            TokenTree::Literal(literal) => add(Kind::Literal, &literal.to_string()),
            TokenTree::Group(group) => {
                let (open, close) = match group.delimiter() {
                    Delimiter::Parenthesis => ("(", ")"),
                    Delimiter::Brace => ("{", "}"),
                    Delimiter::Bracket => ("[", "]"),
                    Delimiter::None => ("", ""),
                };
                add(Kind::Code, open);
                flatten(group.stream(), into);
                into.push(Token { kind: Kind::Code, text: close.to_owned(), line });
            }
        }
    }
}

fn words_of(stream: TokenStream) -> Vec<String> {
    let mut words = Vec::new();
    for tree in stream {
        match tree {
            TokenTree::Ident(ident) => words.push(ident.to_string()),
            TokenTree::Group(group) => words.extend(words_of(group.stream())),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
    words
}

/// Fails with the complaints, if there are any.
pub fn expect_none(complaints: Vec<String>) {
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
}

#[test]
fn tokens_exclude_comments_and_tests() {
    let text = "//! debian\n/// debian\n#[doc = \"debian\"]\nfn a() {\n    // debian\n    b(\"text\", r#raw)\n}\n\
        #[cfg(test)]\n#[allow(dead_code)]\nmod tests { fn debian() {} }\n#[cfg(test)]\nuse debian;\n\
        #[cfg(all(test, unix))]\nfn debian() -> [u8; 2] { [1, 2] }\n#[cfg(not(test))]\nfn last() {}\n";
    let tokens = tokens(text);
    let words: Vec<&str> = tokens.iter().map(|token| token.text.as_str()).collect();
    assert!(!words.contains(&"debian"), "{words:?}");
    assert!(["a", "raw", "\"text\"", "last"].iter().all(|word| words.contains(word)), "{words:?}");
    assert_eq!(tokens.iter().find(|token| token.text == "\"text\"").map(|token| token.line), Some(6));
}

#[test]
fn the_program_excludes_tests_and_examples() {
    assert!(is_of_program("crates/worker/src/build.rs") && is_of_program("crates/fakeroot/gate/main.rs"));
    for path in
        ["crates/a/tests/b.rs", "crates/a/src/c/tests.rs", "crates/a/examples/d.rs", "crates/a/build.rs"]
    {
        assert!(!is_of_program(path), "{path}");
    }
}
