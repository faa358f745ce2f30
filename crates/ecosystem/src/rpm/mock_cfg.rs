//! mock's configuration, as far as it is plain: assignments of texts, `include`, and the repositories of `dnf.conf`.
//!
//! The file is Python with Jinja in its texts (mock's `docs/Templating.md`). Plain are texts, numbers and True or False for
//! `config_opts['NAME']`; `{{ NAME }}` and `{{ not NAME }}`; `{% if NAME %}`, `{% if not NAME %}`, `{% else %}`,
//! `{% endif %}`. Nothing is executed. Every line that is not carried over is listed with its reason.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The most files that include each other.
const FILES_MAX: usize = 32;
/// The most lines that are listed.
const LEFT_MAX: usize = 1000;

/// A line that is not carried over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The file, as it was named.
    pub file: String,
    /// The number of the line, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// Why: a clause that reads after the line.
    pub reason: &'static str,
}

/// What a configuration says, as far as Kilnyard has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MockConfig {
    /// The architecture of packages.
    pub architecture: Option<String>,
    /// The release: `dist`, or `releasever`.
    pub release: Option<String>,
    /// The addresses of repositories, in their order.
    pub repositories: Vec<String>,
    /// Files with keys of repositories whose signatures are checked.
    pub keys: Vec<String>,
    /// Whether a repository's `repomd.xml` has to be signed (`repo_gpgcheck`).
    pub signs_metadata: bool,
    /// Whether a repository's packages have to be signed (`gpgcheck`).
    pub signs_packages: bool,
    /// The packages and groups that `chroot_setup_cmd` installs.
    pub root_packages: Vec<String>,
    /// Everything else.
    pub left: Vec<Left>,
}

/// A file that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MockError(pub String);

/// Reads a configuration. `open` returns the text of a file by the name that the configuration has for it.
///
/// # Errors
/// A file cannot be read, or too many include each other.
pub fn read(
    name: &str,
    open: &mut dyn FnMut(&str) -> Result<String, MockError>,
) -> Result<MockConfig, MockError> {
    let mut reader = Reader::default();
    reader.file(name, open)?;
    Ok(reader.finish())
}

/// A text, or a part that is added to one.
#[derive(Clone, Debug)]
struct Part {
    text: String,
    file: String,
    /// The line on which the text begins.
    line: usize,
}

#[derive(Default)]
struct Reader {
    values: BTreeMap<String, Vec<Part>>,
    left: Vec<Left>,
    files: usize,
    /// The options that other values name.
    used: RefCell<BTreeSet<String>>,
}

/// The options that are carried over.
const KNOWN: [&str; 4] = ["target_arch", "dist", "releasever", "chroot_setup_cmd"];
/// The options with the configuration of the package manager.
const MANAGERS: [&str; 2] = ["dnf.conf", "yum.conf"];
/// Options that Kilnyard decides itself, or that only other options use.
const INTERNAL: [&str; 4] = ["root", "legal_host_arches", "description", "package_manager"];

impl Reader {
    fn leave(&mut self, file: &str, line: usize, text: &str, reason: &'static str) {
        if self.left.len() < LEFT_MAX {
            let text = text.trim().to_owned();
            self.left.push(Left { file: file.to_owned(), line, text, reason });
        }
    }

    fn file(
        &mut self,
        name: &str,
        open: &mut dyn FnMut(&str) -> Result<String, MockError>,
    ) -> Result<(), MockError> {
        self.files += 1;
        if self.files > FILES_MAX {
            return Err(MockError(format!("more than {FILES_MAX} files include each other")));
        }
        let text = open(name)?;
        let lines: Vec<&str> = text.lines().collect();
        let mut at = 0;
        while at < lines.len() {
            let (line, number) = (lines[at], at + 1);
            at += 1;
            let plain = line.trim();
            if plain.is_empty() || plain.starts_with('#') {
                continue;
            }
            if let Some(included) = plain.strip_prefix("include(").and_then(|rest| rest.strip_suffix(')')) {
                match quoted(included) {
                    Some(included) => self.file(&included, open)?,
                    None => self.leave(name, number, line, "the name of the file is computed"),
                }
                continue;
            }
            let Some((key, is_added, value)) = assignment(plain) else {
                self.leave(name, number, line, "only assignments of config_opts and include are read");
                continue;
            };
            let text = match long_text(value) {
                Some((mark, begin)) => {
                    let mut parts = vec![begin.to_owned()];
                    while at < lines.len() && !parts.last().is_some_and(|part| part.contains(mark)) {
                        parts.push(lines[at].to_owned());
                        at += 1;
                    }
                    let text = parts.join("\n");
                    Some(text.split(mark).next().unwrap_or_default().to_owned())
                }
                None => quoted(value).or_else(|| word(value)),
            };
            match text {
                Some(text) => {
                    self.assign(&key, is_added, Part { text, file: name.to_owned(), line: number }, line)
                }
                None if INTERNAL.contains(&key.as_str()) => {}
                None => self.leave(name, number, line, "the value is computed"),
            }
        }
        Ok(())
    }

    fn assign(&mut self, key: &str, is_added: bool, part: Part, line: &str) {
        if let Some(known) = self.values.get_mut(key).filter(|_| is_added) {
            known.push(part);
            return;
        }
        let is_read = KNOWN.contains(&key) || MANAGERS.contains(&key) || INTERNAL.contains(&key);
        // Other texts may name it.
        if !is_read && !matches!(part.text.as_str(), "True" | "False") {
            self.leave(&part.file, part.line, line, "Kilnyard has no such setting");
        }
        self.values.insert(key.to_owned(), vec![part]);
    }

    fn value(&self, key: &str) -> Option<String> {
        let parts = self.values.get(key)?;
        Some(parts.iter().map(|part| part.text.as_str()).collect())
    }

    /// What `chroot_setup_cmd` installs: `install NAME...`, or `groupinstall GROUP...`.
    fn root_packages(&mut self) -> Vec<String> {
        let Some(parts) = self.values.get("chroot_setup_cmd").cloned() else { return Vec::new() };
        let text: String = parts.iter().map(|part| part.text.as_str()).collect();
        let mut words = text.split_whitespace();
        let command = words.next();
        let is_group = command == Some("groupinstall");
        if text.contains(['{', '$', '\'', '"']) || !(is_group || command == Some("install")) {
            let part = &parts[0];
            self.leave(&part.file, part.line, &text, "it is not `install` with plain names");
            return Vec::new();
        }
        words.map(|name| if is_group { format!("@{name}") } else { name.to_owned() }).collect()
    }

    fn finish(mut self) -> MockConfig {
        let root_packages = self.root_packages();
        let mut config = MockConfig {
            architecture: self.value("target_arch"),
            release: self.value("dist").or_else(|| self.value("releasever")),
            root_packages,
            ..MockConfig::default()
        };
        let managers: Vec<Vec<Part>> =
            MANAGERS.iter().filter_map(|key| self.values.get(*key).cloned()).collect();
        for parts in managers {
            self.repositories(&parts, &mut config);
        }
        let is_carried =
            |key: &str| KNOWN.contains(&key) || MANAGERS.contains(&key) || INTERNAL.contains(&key);
        let unused = self.values.iter().filter(|(key, parts)| {
            // Other values are listed where they are read.
            let is_flag = matches!(parts[0].text.as_str(), "True" | "False");
            is_flag && !is_carried(key) && !self.used.borrow().contains(*key)
        });
        let unused: Vec<(String, Part)> =
            unused.map(|(key, parts)| (key.clone(), parts[0].clone())).collect();
        for (key, part) in unused {
            let text = format!("config_opts['{key}'] = {}", part.text);
            self.leave(&part.file, part.line, &text, "Kilnyard has no such setting");
        }
        config.left = self.left;
        config
    }

    /// Reads the repositories of a `dnf.conf`.
    fn repositories(&mut self, parts: &[Part], config: &mut MockConfig) {
        let mut conditions: Vec<Option<bool>> = Vec::new();
        let mut section = Section::default();
        // Of `[main]`: whether packages, and whether repomd.xml have signatures.
        let mut main = (false, false);
        let lines = parts.iter().flat_map(|part| {
            part.text.lines().enumerate().map(move |(index, line)| (&part.file, part.line + index, line))
        });
        for (file, number, line) in lines {
            let plain = line.trim();
            if let Some(statement) = plain.strip_prefix("{%").and_then(|rest| rest.strip_suffix("%}")) {
                let statement = statement.trim_matches(['-', ' ']);
                match statement.split_whitespace().collect::<Vec<_>>()[..] {
                    ["if", name] => conditions.push(self.truth(name)),
                    ["if", "not", name] => conditions.push(self.truth(name).map(|is_true| !is_true)),
                    ["else"] if !conditions.is_empty() => {
                        let last = conditions.len() - 1;
                        conditions[last] = conditions[last].map(|is_true| !is_true);
                    }
                    ["endif"] => drop(conditions.pop()),
                    ["if", ..] => {
                        self.leave(file, number, line, "the condition is not one option");
                        conditions.push(None);
                    }
                    _ => self.leave(file, number, line, "the statement of Jinja is not read"),
                }
                continue;
            }
            if plain.is_empty() || plain.starts_with('#') || conditions.contains(&Some(false)) {
                continue;
            }
            if conditions.contains(&None) {
                self.leave(file, number, line, "it depends on a condition that is not read");
                continue;
            }
            let Some(filled) = self.filled(plain) else {
                self.leave(file, number, line, "an expression in it is not the name of an option");
                continue;
            };
            if let Some(name) = filled.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                let is_repository = name != "main";
                // What is set for all is what a repository has without a setting of its own (dnf.conf(5)).
                let defaults = if is_repository { main } else { (false, false) };
                let next = Section {
                    is_repository,
                    signs_packages: defaults.0,
                    signs_metadata: defaults.1,
                    ..Section::default()
                };
                std::mem::replace(&mut section, next).close(config);
                continue;
            }
            let Some((key, text)) = filled.split_once('=') else {
                self.leave(file, number, line, "it is no setting");
                continue;
            };
            match (key.trim(), text.trim()) {
                ("gpgcheck", text) if !section.is_repository => main.0 = !is_false(text),
                ("repo_gpgcheck", text) if !section.is_repository => main.1 = !is_false(text),
                _ if !section.is_repository => self.leave(file, number, line, "Kilnyard has no such setting"),
                ("baseurl", text) => section.address = text.split_whitespace().next().map(str::to_owned),
                ("gpgkey", text) => {
                    for key in text.split_whitespace() {
                        match key.strip_prefix("file://").unwrap_or(key) {
                            path if path.starts_with('/') => section.keys.push(path.to_owned()),
                            _ => self.leave(
                                file,
                                number,
                                line,
                                "keys are files of this machine: give it with --key",
                            ),
                        }
                    }
                }
                ("enabled", text) => section.is_disabled = is_false(text),
                ("repo_gpgcheck", text) => section.signs_metadata = !is_false(text),
                ("gpgcheck", text) => section.signs_packages = !is_false(text),
                ("metalink" | "mirrorlist", _) => {
                    self.leave(
                        file,
                        number,
                        line,
                        "lists of mirrors are not read: give one mirror with --repo",
                    );
                }
                ("name", _) => {}
                _ => self.leave(file, number, line, "repositories have no such setting here"),
            }
        }
        section.close(config);
    }

    fn truth(&self, name: &str) -> Option<bool> {
        self.used.borrow_mut().insert(name.to_owned());
        self.value(name).map(|value| !is_false(&value))
    }

    /// The text with the values of options, and dnf's own variables.
    fn filled(&self, text: &str) -> Option<String> {
        let mut filled = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (expression, after) = after.split_once("}}")?;
            filled.push_str(before);
            match expression.split_whitespace().collect::<Vec<_>>()[..] {
                [name] => {
                    self.used.borrow_mut().insert(name.to_owned());
                    filled.push_str(&self.value(name)?);
                }
                ["not", name] => filled.push_str(if self.truth(name)? { "False" } else { "True" }),
                _ => return None,
            }
            rest = after;
        }
        filled.push_str(rest);
        for (variable, option) in
            [("basearch", "target_arch"), ("arch", "target_arch"), ("releasever", "releasever")]
        {
            if let Some(value) = self.value(option) {
                filled = filled.replace(&format!("${variable}"), &value);
                filled = filled.replace(&format!("${{{variable}}}"), &value);
            }
        }
        Some(filled)
    }
}

#[derive(Default)]
struct Section {
    is_repository: bool,
    address: Option<String>,
    keys: Vec<String>,
    is_disabled: bool,
    signs_metadata: bool,
    signs_packages: bool,
}

impl Section {
    fn close(self, config: &mut MockConfig) {
        if let (true, false, Some(address)) = (self.is_repository, self.is_disabled, self.address) {
            config.repositories.push(address);
            if self.signs_metadata || self.signs_packages {
                config.keys.extend(self.keys);
            }
            config.signs_metadata |= self.signs_metadata;
            config.signs_packages |= self.signs_packages;
        }
    }
}

fn is_false(text: &str) -> bool {
    matches!(text, "0" | "False" | "false" | "no" | "")
}

/// The option, whether the value is added to it, and the value.
fn assignment(line: &str) -> Option<(String, bool, &str)> {
    let rest = line.strip_prefix("config_opts[")?;
    let (key, rest) = rest.split_once(']')?;
    let rest = rest.trim_start();
    let (is_added, value) = match rest.strip_prefix("+=") {
        Some(value) => (true, value),
        // Options within options are computed by plugins.
        None => (false, rest.strip_prefix('=')?),
    };
    Some((quoted(key)?, is_added, value.trim()))
}

/// A text in quotes, without escapes.
fn quoted(text: &str) -> Option<String> {
    let text = text.trim();
    let mark = text.chars().next().filter(|mark| matches!(mark, '\'' | '"'))?;
    let inner = text.strip_prefix(mark)?.strip_suffix(mark)?;
    (!inner.contains([mark, '\\'])).then(|| inner.to_owned())
}

/// A number, or True or False.
fn word(text: &str) -> Option<String> {
    let is_word =
        matches!(text, "True" | "False") || (!text.is_empty() && text.bytes().all(|b| b.is_ascii_digit()));
    is_word.then(|| text.to_owned())
}

/// The mark that ends a text of several lines, and its first line.
fn long_text(value: &str) -> Option<(&'static str, &str)> {
    ["\"\"\"", "'''"].into_iter().find_map(|mark| Some((mark, value.strip_prefix(mark)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FEDORA: &str = r#"
# A comment
config_opts['root'] = 'fedora-42-{{ target_arch }}'
config_opts['target_arch'] = "x86_64"
config_opts['legal_host_arches'] = ('x86_64',)
include('templates/fedora.tpl')
config_opts['macros']['%_x'] = 'y'
if True:
"#;
    const TEMPLATE: &str = r#"config_opts['dist'] = 'fc42'
config_opts['releasever'] = '42'
config_opts['mirrored'] = True
config_opts['chroot_setup_cmd'] = 'install @{% if mirrored %}buildsys-build{% endif %}'
config_opts['bootstrap_image'] = 'registry/' + 'fedora'
config_opts['dnf.conf'] = """
[main]
keepcache=1
[local]
name=local
baseurl=https://koji.example.org/repos/f{{ releasever }}-build/latest/$basearch/
enabled={{ not mirrored }}

{% if mirrored %}
[fedora]
baseurl=https://mirror.example.org/{{ releasever }}/$basearch/os/
gpgkey=file:///keys/fedora
gpgcheck=1
[updates]
metalink=https://mirrors.example.org/metalink?repo=updates
{% else %}
[other]
baseurl=https://other.example.org/
{% endif %}
{% if a == b %}
[odd]
baseurl=https://odd.example.org/
{% endif %}
[source]
baseurl=https://mirror.example.org/{{ releasever }}/source/tree/ https://second.example.org/
[strange]
baseurl=https://{{ a + b }}.example.org/
"""
config_opts['dnf.conf'] += """
[more]
baseurl=https://more.example.org/${releasever}/
best=1
"""
"#;

    fn open(name: &str) -> Result<String, MockError> {
        match name {
            "fedora.cfg" => Ok(FEDORA.to_owned()),
            "templates/fedora.tpl" => Ok(TEMPLATE.to_owned()),
            "loop.cfg" => Ok("include('loop.cfg')".to_owned()),
            other => Err(MockError(format!("no {other}"))),
        }
    }

    #[test]
    fn what_is_plain_is_carried_over() {
        let config = read("fedora.cfg", &mut open).unwrap();
        assert_eq!(
            (config.architecture.as_deref(), config.release.as_deref()),
            (Some("x86_64"), Some("fc42"))
        );
        assert_eq!(
            config.repositories,
            [
                "https://mirror.example.org/42/x86_64/os/",
                "https://mirror.example.org/42/source/tree/",
                "https://more.example.org/42/",
            ]
        );
        assert_eq!(config.keys, ["/keys/fedora"]);
        assert!(config.signs_packages && !config.signs_metadata);
        let plain = |_: &str| Ok("config_opts['chroot_setup_cmd'] = 'install bash @core'\n".to_owned());
        assert_eq!(read("x", &mut { plain }).unwrap().root_packages, ["bash", "@core"]);
    }

    #[test]
    fn what_is_left_has_its_line_and_reason() {
        let left = read("fedora.cfg", &mut open).unwrap().left;
        let lines: Vec<String> = left.iter().map(|left| format!("{}:{}", left.file, left.line)).collect();
        assert_eq!(
            lines,
            [
                "templates/fedora.tpl:5",
                "fedora.cfg:7",
                "fedora.cfg:8",
                "templates/fedora.tpl:4",
                "templates/fedora.tpl:8",
                "templates/fedora.tpl:20",
                "templates/fedora.tpl:25",
                "templates/fedora.tpl:26",
                "templates/fedora.tpl:27",
                "templates/fedora.tpl:32",
                "templates/fedora.tpl:37",
            ]
        );
        assert!(left[5].text.starts_with("metalink=") && left[5].reason.contains("--repo"), "{left:?}");
        for (line, text) in [(20, "metalink"), (32, "{{ a + b }}"), (37, "best=1")] {
            assert!(TEMPLATE.lines().nth(line - 1).unwrap().contains(text), "{line}");
        }
    }

    #[test]
    fn settings_of_main_are_those_of_all_repositories() {
        let text = "config_opts['use_nspawn'] = True\nconfig_opts['dnf.conf'] = \"\"\"\n[main]\ngpgcheck=1\n\
                    excludepkgs=a\n[one]\nbaseurl=https://one.example.org/\ngpgkey=file:///keys/one\ncost=10\n[two]\n\
                    baseurl=https://two.example.org/\ngpgcheck=0\ngpgkey=file:///keys/two\n\"\"\"\n";
        let config = read("x", &mut |_: &str| Ok(text.to_owned())).unwrap();
        assert!(config.signs_packages && !config.signs_metadata);
        assert_eq!(config.keys, ["/keys/one"]);
        let left: Vec<&str> = config.left.iter().map(|left| left.text.as_str()).collect();
        assert_eq!(left, ["excludepkgs=a", "cost=10", "config_opts['use_nspawn'] = True"]);
    }

    #[test]
    fn files_that_include_each_other_end() {
        assert!(read("loop.cfg", &mut open).unwrap_err().to_string().contains("include each other"));
        assert_eq!(read("gone.cfg", &mut open).unwrap_err().to_string(), "no gone.cfg");
    }
}
