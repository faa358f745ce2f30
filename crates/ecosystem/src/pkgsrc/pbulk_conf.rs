//! `pbulk.conf`: the configuration of pbulk, read for users who migrate (pkgsrc,
//! `pkgtools/pbulk/files/pbulk/pbulk.conf`, versions 1.16 to 1.29).
//!
//! The file is a shell script, which pbulk's own scripts source. It is not run here: only assignments are read,
//! with quotes and references to earlier ones. Anything that only a shell could evaluate (a command's output, a
//! condition, another file) is reported with its line. The last assignment of a name counts. An assignment under a
//! condition makes the value of the name unknown, and with it everything that refers to the name.
//!
//! Known downside: references to environment variables are not supported, and `+=` is taken for a command.

mod shell;

use super::import::{ConfigKey, ImportRule, Imports, NotImported, Wanted};
use shell::{Piece, RUNS_A_COMMAND, Token, is_name};
use std::collections::BTreeMap;

/// No real configuration is longer; the one that comes with pbulk has 6 kB.
const TEXT_BYTES_MAX: usize = 1 << 20;

/// Limit on one value. References could double a value with every line.
const VALUE_BYTES_MAX: usize = 1 << 16;

/// Limit on all values together.
const VALUES_BYTES_MAX: usize = 1 << 24;

/// A file that cannot be parsed as a shell script.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PbulkConfError {
    /// An unclosed quote or bracket.
    #[error("line {line}: `{what}` is not closed")]
    Open {
        /// Line of the opening quote or bracket, from 1.
        line: usize,
        /// The opening quote or bracket.
        what: &'static str,
    },
    /// The file is too long.
    #[error("it has {bytes} bytes, above the limit of {TEXT_BYTES_MAX}")]
    TooLong {
        /// Length of the file.
        bytes: usize,
    },
}

/// The state of a name after the whole file.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Setting {
    line: usize,
    /// The value, or the reason why it is unknown.
    value: Result<String, String>,
}

/// A parsed `pbulk.conf`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PbulkConf {
    settings: BTreeMap<String, Setting>,
    /// Commands other than assignments.
    others: Vec<NotImported>,
}

const OTHER_MACHINES: &str = "other machines are not started; builds run in the slots of this one";
const UPLOADS: &str = "builds upload nothing; copy the published repository instead";
const MAIL: &str = "no mail is sent; pass report.txt to your mail program";
const PROGRAM: &str =
    "one of pbulk's own programs, which Kilnyard does not run; port your changes to it yourself";
const TOOL: &str = "not needed, or part of the bootstrap kit";
const IN_THE_YARD: &str = "it is in a folder of the yard";
const CROSS: &str = "packages are built for the machine that builds them";
const FAILED_ROOTS: &str = "the roots of the last failed builds are kept whole";
const OWN_ROOTS: &str = "roots are made without scripts";
const BY_THE_KIT: &str = "the bootstrap kit sets it";
const AGE: &str = "the content of its inputs, not its age, decides whether a package is up to date";

/// How pbulk's settings are imported. `limited_list` is handled separately, because it selects the packages.
const RULES: &[(&str, ImportRule)] = &[
    ("base_url", ImportRule::Not("kilnyard.toml has no report URL")),
    ("bootstrapkit", ImportRule::To(ConfigKey::BootstrapKit)),
    ("build_chroots", ImportRule::To(ConfigKey::Slots)),
    ("build_clients", ImportRule::Same(&[""], OTHER_MACHINES)),
    ("bulklog", ImportRule::Not(IN_THE_YARD)),
    ("bzip2", ImportRule::Not(TOOL)),
    ("chroot_create", ImportRule::Not(OWN_ROOTS)),
    ("chroot_delete", ImportRule::Not(OWN_ROOTS)),
    ("chroot_dir", ImportRule::Not(IN_THE_YARD)),
    ("chroot_script", ImportRule::Not(PROGRAM)),
    ("client_clean_local", ImportRule::Not(PROGRAM)),
    ("client_prepare", ImportRule::Not(PROGRAM)),
    ("client_prepare_action", ImportRule::Not(PROGRAM)),
    ("client_prepare_chroot", ImportRule::Not(PROGRAM)),
    ("config_version", ImportRule::Not("it is the version of pbulk's own file format")),
    ("cross_compile", ImportRule::Same(&["no", ""], CROSS)),
    ("digest", ImportRule::Not(TOOL)),
    ("gzip", ImportRule::Not(TOOL)),
    ("has_nfs", ImportRule::Not(OTHER_MACHINES)),
    (
        "ignore_missing_dependencies",
        ImportRule::Same(&["yes"], "packages with missing dependencies are left out, and the rest is built"),
    ),
    ("keep_prefix", ImportRule::Same(&["yes", "no", ""], FAILED_ROOTS)),
    ("keep_wrkdir", ImportRule::Same(&["yes", "no", ""], FAILED_ROOTS)),
    ("loc", ImportRule::Not(IN_THE_YARD)),
    ("mail", ImportRule::Same(&[":", ""], MAIL)),
    ("make", ImportRule::To(ConfigKey::Make)),
    ("master_ip", ImportRule::Not(OTHER_MACHINES)),
    ("master_mode", ImportRule::Same(&["no"], OTHER_MACHINES)),
    ("master_port_build", ImportRule::Not(OTHER_MACHINES)),
    ("master_port_scan", ImportRule::Not(OTHER_MACHINES)),
    ("neato", ImportRule::Not(TOOL)),
    ("packages", ImportRule::Not(IN_THE_YARD)),
    ("packages_script", ImportRule::Not(PROGRAM)),
    ("pbuild", ImportRule::Not(PROGRAM)),
    ("pbuild_script", ImportRule::Not(PROGRAM)),
    ("pbuild_start_script", ImportRule::Not(PROGRAM)),
    ("pkg_add", ImportRule::Not(TOOL)),
    ("pkg_admin", ImportRule::Not(TOOL)),
    ("pkg_delete", ImportRule::Not(TOOL)),
    ("pkg_info", ImportRule::Not(TOOL)),
    ("pkg_rsync_args", ImportRule::Not(UPLOADS)),
    ("pkg_rsync_args_no_del", ImportRule::Not(UPLOADS)),
    ("pkg_rsync_target", ImportRule::Not(UPLOADS)),
    ("pkg_sufx", ImportRule::Not(BY_THE_KIT)),
    ("pkg_up_to_date_script", ImportRule::Not(PROGRAM)),
    ("pkgdb", ImportRule::Not(BY_THE_KIT)),
    ("pkgsrc", ImportRule::To(ConfigKey::Tree)),
    ("prefix", ImportRule::To(ConfigKey::Prefix)),
    ("presolve", ImportRule::Not(PROGRAM)),
    ("pscan", ImportRule::Not(PROGRAM)),
    ("pscan_prepare", ImportRule::Not(PROGRAM)),
    ("pscan_start_script", ImportRule::Not(PROGRAM)),
    ("report_graph_script", ImportRule::Not(PROGRAM)),
    ("report_graph_script_limit", ImportRule::Not(PROGRAM)),
    ("report_html_script", ImportRule::Not(PROGRAM)),
    ("report_recipients", ImportRule::Same(&[""], MAIL)),
    ("report_rsync_args", ImportRule::Not(UPLOADS)),
    ("report_rsync_target", ImportRule::Not(UPLOADS)),
    ("report_script", ImportRule::Not(PROGRAM)),
    ("report_subject_prefix", ImportRule::Not(MAIL)),
    ("report_txt_script", ImportRule::Not(PROGRAM)),
    (
        "reuse_scan_results",
        ImportRule::Same(&["yes"], "a scan only queries directories whose files have changed"),
    ),
    ("rsync", ImportRule::Same(&[":", ""], UPLOADS)),
    ("scan_clients", ImportRule::Same(&[""], OTHER_MACHINES)),
    ("scan_procs", ImportRule::Not("kilnyard.toml has no number of scan processes")),
    ("script_phase_build", ImportRule::Not(PROGRAM)),
    ("script_phase_pre_build", ImportRule::Not(PROGRAM)),
    ("script_phase_report", ImportRule::Not(PROGRAM)),
    ("script_phase_scan", ImportRule::Not(PROGRAM)),
    ("script_phase_upload", ImportRule::Not(PROGRAM)),
    ("sed", ImportRule::Not(TOOL)),
    ("skip_age_check", ImportRule::Not(AGE)),
    (
        "strict_mode",
        ImportRule::Same(&["no"], "packages with missing dependencies are left out, and the rest is built"),
    ),
    ("sync_buildlog", ImportRule::Same(&[":", ""], PROGRAM)),
    ("sync_package", ImportRule::Same(&["default_sync_package", ""], PROGRAM)),
    ("tar", ImportRule::Not(TOOL)),
    ("target_arch", ImportRule::Not(CROSS)),
    ("target_destdir", ImportRule::Not(CROSS)),
    ("unprivileged_user", ImportRule::Not("every root has its own build user")),
    ("use_unprivileged_checksum", ImportRule::Not("sources are fetched and checked outside builds")),
    ("varbase", ImportRule::Not(BY_THE_KIT)),
    ("xz", ImportRule::Not(TOOL)),
];

const LIMITED_LIST: &str = "limited_list";
const CONDITION: &str = "it is set in conditional code, which is not run";
const NO_SETTING: &str = "it is not a setting of pbulk; where other settings refer to it, its value is used";

impl PbulkConf {
    /// Parses a configuration.
    pub fn parse(text: &str) -> Result<PbulkConf, PbulkConfError> {
        if text.len() > TEXT_BYTES_MAX {
            return Err(PbulkConfError::TooLong { bytes: text.len() });
        }
        let mut reader = Reader::default();
        for (line, token) in shell::tokens(text)? {
            reader.take(line, token);
        }
        Ok(reader.conf)
    }

    /// The value of a setting; `None` if it is unset or unknown.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.settings.get(name)?.value.as_deref().ok()
    }

    /// Migrates every setting.
    pub fn imports(&self) -> Imports {
        let mut imports = Imports { not_imported: self.others.clone(), ..Imports::default() };
        if !self.settings.contains_key(LIMITED_LIST) {
            imports.wanted = Some(Wanted::All);
        }
        for (name, Setting { line, value }) in &self.settings {
            let rule = RULES.iter().find(|(known, _)| known == name).map(|(_, rule)| *rule);
            match (value, rule) {
                (Err(reason), _) => imports.refuse(name, *line, reason),
                (Ok(value), _) if name == LIMITED_LIST => {
                    let wanted = if value.is_empty() { Wanted::All } else { Wanted::File(value.clone()) };
                    imports.want(name, *line, wanted);
                }
                (Ok(value), Some(rule)) => imports.settle(name, *line, value, rule),
                (Ok(_), None) => imports.refuse(name, *line, NO_SETTING),
            }
        }
        imports.sort();
        imports
    }

    fn assign(&mut self, name: &str, line: usize, value: Result<String, String>) {
        self.settings.insert(name.to_owned(), Setting { line, value });
    }

    fn value(&self, pieces: &[Piece]) -> Result<String, String> {
        let mut value = String::new();
        if matches!(pieces.first(), Some(Piece::Plain(text)) if text.starts_with('~')) {
            return Err("`~` is a home folder, which is unknown".to_owned());
        }
        for piece in pieces {
            match piece {
                Piece::Plain(text) | Piece::Quoted(text) => value.push_str(text),
                Piece::Unknown(reason) => return Err((*reason).to_owned()),
                Piece::Reference(name) => match self.settings.get(name).map(|setting| &setting.value) {
                    Some(Ok(text)) => value.push_str(text),
                    Some(Err(_)) => {
                        return Err(format!("it refers to `{name}`, which is not imported either"));
                    }
                    None => return Err(format!("it refers to `{name}`, which is not set earlier")),
                },
            }
            if value.len() > VALUE_BYTES_MAX {
                return Err(format!("it is longer than {VALUE_BYTES_MAX} bytes"));
            }
        }
        match placeholder(&value) {
            Some(found) => Err(format!("`@{found}@` is replaced when pbulk is installed")),
            None => Ok(value),
        }
    }
}

/// The name in an `@NAME@`, which the file has in the source tree.
fn placeholder(value: &str) -> Option<&str> {
    let mut parts = value.split('@');
    let (_before, _behind) = (parts.next(), parts.next_back());
    let is_letter = |byte: u8| byte == b'_' || byte.is_ascii_uppercase() || byte.is_ascii_digit();
    parts.find(|part| !part.is_empty() && part.bytes().all(is_letter))
}

/// An open compound command.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    /// `if`, `case`, a loop, or braces.
    Compound,
    /// Parentheses.
    Parentheses,
}

type Word = Vec<Piece>;

#[derive(Default)]
struct Reader {
    conf: PbulkConf,
    command: Vec<(usize, Word)>,
    blocks: Vec<Block>,
    /// Whether the command only runs depending on another one.
    depends: bool,
    /// Whether the next word is the file of a redirection.
    is_redirected: bool,
    /// Total length of all values so far.
    bytes: usize,
}

impl Reader {
    fn take(&mut self, line: usize, token: Token) {
        let operator = match token {
            Token::Word(_) if std::mem::take(&mut self.is_redirected) => return,
            Token::Word(word) => return self.command.push((line, word)),
            Token::Operator(operator) => operator,
        };
        match operator {
            "&&" | "||" => {
                self.finish(false);
                self.depends = true;
            }
            "|" | "&" => {
                self.finish(true);
                self.depends = operator == "|";
            }
            "(" => {
                // After a word, it begins a function, whose commands run elsewhere or never.
                self.finish(true);
                self.blocks.push(Block::Parentheses);
            }
            ")" if self.blocks.last() == Some(&Block::Parentheses) => {
                self.finish(false);
                self.blocks.pop();
            }
            ")" => {
                let is_start = self.command.first().is_some_and(|(_, word)| keyword(word) == Some("case"));
                if is_start { self.finish(false) } else { self.command.clear() }
            }
            // A line may end after an operator that requires another command.
            "\n" if self.command.is_empty() && self.depends => {}
            "\n" | ";" | ";;" | ";&" => {
                self.finish(false);
                self.depends = false;
            }
            _ => self.is_redirected = true,
        }
    }

    fn finish(&mut self, is_elsewhere: bool) {
        let words = std::mem::take(&mut self.command);
        let mut words = &words[..];
        while let Some((line, word)) = words.first() {
            let Some(keyword) = keyword(word) else { break };
            if self.blocks.is_empty()
                && matches!(keyword, "if" | "case" | "while" | "until" | "for" | "function")
            {
                self.report(keyword, *line, "it is conditional code, which is not run");
            }
            match keyword {
                "if" | "while" | "until" | "{" => self.blocks.push(Block::Compound),
                "case" | "for" => return self.blocks.push(Block::Compound),
                "fi" | "done" | "esac" | "}" => {
                    if self.blocks.last() == Some(&Block::Compound) {
                        self.blocks.pop();
                    }
                    return;
                }
                "function" => return,
                _ => {}
            }
            words = &words[1..];
        }
        let is_sure = self.blocks.is_empty() && !self.depends && !is_elsewhere;
        let assignments = words.iter().take_while(|(_, word)| assignment(word).is_some()).count();
        let Some((line, word)) = words.get(assignments) else {
            return words.iter().for_each(|(line, word)| self.assign(*line, word, is_sure));
        };
        let name = shown(word);
        match &name[..] {
            "export" | "readonly" => {
                words[assignments + 1..].iter().for_each(|(line, word)| self.assign(*line, word, is_sure));
            }
            "unset" => {
                words[assignments + 1..].iter().for_each(|(line, word)| self.unset(*line, word, is_sure))
            }
            _ if !self.blocks.is_empty() => {}
            "." | "source" => self.report(&name, *line, "it reads another file, which is not evaluated"),
            _ => self.report(&name, *line, RUNS_A_COMMAND),
        }
    }

    fn assign(&mut self, line: usize, word: &[Piece], is_sure: bool) {
        let Some((name, first)) = assignment(word) else { return };
        let value = if is_sure {
            let pieces: Word =
                [Piece::Plain(first.to_owned())].into_iter().chain(word[1..].iter().cloned()).collect();
            let value = self.conf.value(&pieces);
            self.bytes += value.as_ref().map_or(0, String::len);
            if self.bytes > VALUES_BYTES_MAX { Err("the values are too long".to_owned()) } else { value }
        } else {
            Err(CONDITION.to_owned())
        };
        self.conf.assign(name, line, value);
    }

    fn unset(&mut self, line: usize, word: &[Piece], is_sure: bool) {
        let name = shown(word);
        if is_sure {
            self.conf.settings.remove(&name);
        } else if is_name(&name) {
            self.conf.assign(&name, line, Err(CONDITION.to_owned()));
        }
    }

    fn report(&mut self, name: &str, line: usize, reason: &str) {
        self.conf.others.push(NotImported { name: name.to_owned(), line, reason: reason.to_owned() });
    }
}

/// A reserved word at the beginning of a command.
fn keyword(word: &[Piece]) -> Option<&str> {
    const KEYWORDS: [&str; 17] = [
        "if", "then", "elif", "else", "fi", "case", "esac", "for", "while", "until", "do", "done", "{", "}",
        "!", "function", "time",
    ];
    match word {
        [Piece::Plain(text)] => Some(&text[..]).filter(|text| KEYWORDS.contains(text)),
        _ => None,
    }
}

/// The name of an assignment, and the beginning of its value.
fn assignment(word: &[Piece]) -> Option<(&str, &str)> {
    match word.first()? {
        Piece::Plain(text) => text.split_once('=').filter(|(name, _)| is_name(name)),
        _ => None,
    }
}

/// Characters of a word that are shown.
const SHOWN_CHARACTERS_MAX: usize = 40;

fn shown(word: &[Piece]) -> String {
    let text = word.iter().map(|piece| match piece {
        Piece::Plain(text) | Piece::Quoted(text) => text.clone(),
        Piece::Reference(name) => format!("${name}"),
        Piece::Unknown(_) => "...".to_owned(),
    });
    text.collect::<String>().chars().take(SHOWN_CHARACTERS_MAX).collect()
}

#[cfg(test)]
mod tests;
