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

use super::moving::{ConfigKey, Migration, Moved, NotCarried, Wanted};
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
    others: Vec<NotCarried>,
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

/// How pbulk's settings are migrated. `limited_list` is handled separately, because it selects the packages.
const MIGRATIONS: &[(&str, Migration)] = &[
    ("base_url", Migration::Not("kilnyard.toml has no report URL")),
    ("bootstrapkit", Migration::To(ConfigKey::BootstrapKit)),
    ("build_chroots", Migration::To(ConfigKey::Slots)),
    ("build_clients", Migration::Same(&[""], OTHER_MACHINES)),
    ("bulklog", Migration::Not(IN_THE_YARD)),
    ("bzip2", Migration::Not(TOOL)),
    ("chroot_create", Migration::Not(OWN_ROOTS)),
    ("chroot_delete", Migration::Not(OWN_ROOTS)),
    ("chroot_dir", Migration::Not(IN_THE_YARD)),
    ("chroot_script", Migration::Not(PROGRAM)),
    ("client_clean_local", Migration::Not(PROGRAM)),
    ("client_prepare", Migration::Not(PROGRAM)),
    ("client_prepare_action", Migration::Not(PROGRAM)),
    ("client_prepare_chroot", Migration::Not(PROGRAM)),
    ("config_version", Migration::Not("it is the version of pbulk's own file format")),
    ("cross_compile", Migration::Same(&["no", ""], CROSS)),
    ("digest", Migration::Not(TOOL)),
    ("gzip", Migration::Not(TOOL)),
    ("has_nfs", Migration::Not(OTHER_MACHINES)),
    (
        "ignore_missing_dependencies",
        Migration::Same(&["yes"], "packages with missing dependencies are left out, and the rest is built"),
    ),
    ("keep_prefix", Migration::Same(&["yes", "no", ""], FAILED_ROOTS)),
    ("keep_wrkdir", Migration::Same(&["yes", "no", ""], FAILED_ROOTS)),
    ("loc", Migration::Not(IN_THE_YARD)),
    ("mail", Migration::Same(&[":", ""], MAIL)),
    ("make", Migration::To(ConfigKey::Make)),
    ("master_ip", Migration::Not(OTHER_MACHINES)),
    ("master_mode", Migration::Same(&["no"], OTHER_MACHINES)),
    ("master_port_build", Migration::Not(OTHER_MACHINES)),
    ("master_port_scan", Migration::Not(OTHER_MACHINES)),
    ("neato", Migration::Not(TOOL)),
    ("packages", Migration::Not(IN_THE_YARD)),
    ("packages_script", Migration::Not(PROGRAM)),
    ("pbuild", Migration::Not(PROGRAM)),
    ("pbuild_script", Migration::Not(PROGRAM)),
    ("pbuild_start_script", Migration::Not(PROGRAM)),
    ("pkg_add", Migration::Not(TOOL)),
    ("pkg_admin", Migration::Not(TOOL)),
    ("pkg_delete", Migration::Not(TOOL)),
    ("pkg_info", Migration::Not(TOOL)),
    ("pkg_rsync_args", Migration::Not(UPLOADS)),
    ("pkg_rsync_args_no_del", Migration::Not(UPLOADS)),
    ("pkg_rsync_target", Migration::Not(UPLOADS)),
    ("pkg_sufx", Migration::Not(BY_THE_KIT)),
    ("pkg_up_to_date_script", Migration::Not(PROGRAM)),
    ("pkgdb", Migration::Not(BY_THE_KIT)),
    ("pkgsrc", Migration::To(ConfigKey::Tree)),
    ("prefix", Migration::To(ConfigKey::Prefix)),
    ("presolve", Migration::Not(PROGRAM)),
    ("pscan", Migration::Not(PROGRAM)),
    ("pscan_prepare", Migration::Not(PROGRAM)),
    ("pscan_start_script", Migration::Not(PROGRAM)),
    ("report_graph_script", Migration::Not(PROGRAM)),
    ("report_graph_script_limit", Migration::Not(PROGRAM)),
    ("report_html_script", Migration::Not(PROGRAM)),
    ("report_recipients", Migration::Same(&[""], MAIL)),
    ("report_rsync_args", Migration::Not(UPLOADS)),
    ("report_rsync_target", Migration::Not(UPLOADS)),
    ("report_script", Migration::Not(PROGRAM)),
    ("report_subject_prefix", Migration::Not(MAIL)),
    ("report_txt_script", Migration::Not(PROGRAM)),
    (
        "reuse_scan_results",
        Migration::Same(&["yes"], "a scan only queries directories whose files have changed"),
    ),
    ("rsync", Migration::Same(&[":", ""], UPLOADS)),
    ("scan_clients", Migration::Same(&[""], OTHER_MACHINES)),
    ("scan_procs", Migration::Not("kilnyard.toml has no number of scan processes")),
    ("script_phase_build", Migration::Not(PROGRAM)),
    ("script_phase_pre_build", Migration::Not(PROGRAM)),
    ("script_phase_report", Migration::Not(PROGRAM)),
    ("script_phase_scan", Migration::Not(PROGRAM)),
    ("script_phase_upload", Migration::Not(PROGRAM)),
    ("sed", Migration::Not(TOOL)),
    ("skip_age_check", Migration::Not(AGE)),
    (
        "strict_mode",
        Migration::Same(&["no"], "packages with missing dependencies are left out, and the rest is built"),
    ),
    ("sync_buildlog", Migration::Same(&[":", ""], PROGRAM)),
    ("sync_package", Migration::Same(&["default_sync_package", ""], PROGRAM)),
    ("tar", Migration::Not(TOOL)),
    ("target_arch", Migration::Not(CROSS)),
    ("target_destdir", Migration::Not(CROSS)),
    ("unprivileged_user", Migration::Not("every root has its own build user")),
    ("use_unprivileged_checksum", Migration::Not("sources are fetched and checked outside builds")),
    ("varbase", Migration::Not(BY_THE_KIT)),
    ("xz", Migration::Not(TOOL)),
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
    pub fn moved(&self) -> Moved {
        let mut moved = Moved { not_carried: self.others.clone(), ..Moved::default() };
        if !self.settings.contains_key(LIMITED_LIST) {
            moved.wanted = Some(Wanted::All);
        }
        for (name, Setting { line, value }) in &self.settings {
            let migration =
                MIGRATIONS.iter().find(|(known, _)| known == name).map(|(_, migration)| *migration);
            match (value, migration) {
                (Err(reason), _) => moved.refuse(name, *line, reason),
                (Ok(value), _) if name == LIMITED_LIST => {
                    let wanted = if value.is_empty() { Wanted::All } else { Wanted::File(value.clone()) };
                    moved.want(name, *line, wanted);
                }
                (Ok(value), Some(migration)) => moved.settle(name, *line, value, migration),
                (Ok(_), None) => moved.refuse(name, *line, NO_SETTING),
            }
        }
        moved.sort();
        moved
    }

    fn assign(&mut self, name: &str, line: usize, value: Result<String, String>) {
        self.settings.insert(name.to_owned(), Setting { line, value });
    }

    fn value(&self, pieces: &[Piece]) -> Result<String, String> {
        let mut value = String::new();
        if matches!(pieces.first(), Some(Piece::Plain(text)) if text.starts_with('~')) {
            return Err("`~` is a home folder, which is unknown here".to_owned());
        }
        for piece in pieces {
            match piece {
                Piece::Plain(text) | Piece::Quoted(text) => value.push_str(text),
                Piece::Unknown(reason) => return Err((*reason).to_owned()),
                Piece::Reference(name) => match self.settings.get(name).map(|setting| &setting.value) {
                    Some(Ok(text)) => value.push_str(text),
                    Some(Err(_)) => {
                        return Err(format!("it refers to `{name}`, which is not carried over either"));
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
        self.conf.others.push(NotCarried { name: name.to_owned(), line, reason: reason.to_owned() });
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
