//! The signer itself: answers questions, one after another.

use crate::account::{self, Entry, seal_text};
use crate::hash;
use crate::judge::release::document;
use crate::judge::{self, Court, Fault, Prepared, SIGNED_PACKAGES, lists};
use crate::keys::{Credentials, Keys, with_cause};
use crate::memory::{Memory, MemoryError, Name, Remembered, Signed};
use crate::message::{
    self, Answer, Ask, Build, BuildTexts, Evidence, Form, Generation, PackageText, Question, Refusal, Rule,
    VERSION,
};
use crate::policy::{POLICY, Policy, Repository};
use crate::sources::{Vouchers, vouchers_of};
use kilnyard_sign::{sign_binary, sign_clear, sign_detached};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::path::Path;

/// The number of lines after which a seal follows.
const LINES_OF_A_SEAL: u64 = 64;

/// A signer.
#[derive(Debug)]
pub struct Service {
    policy: Policy,
    keys: Keys,
    vouchers: Vouchers,
    memory: Memory,
    /// Why an index or a commit was not accepted since the last question for them.
    doubt: Option<String>,
    /// A generation whose builds are awaited, with its repository.
    awaited: Option<(String, Generation, Prepared)>,
}

/// How long a new account takes over generations that were signed before it, in seconds.
const ADOPTION_SECONDS: i64 = 86_400;

/// Makes the signature of a text.
type SignText<'a> = dyn Fn(&[u8]) -> Result<String, String> + 'a;

/// Why a signer cannot start. The text reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The policy cannot be read.
    #[error("read {POLICY}: {0}")]
    Policy(String),
    /// The memory cannot be used.
    #[error(transparent)]
    Memory(#[from] MemoryError),
}

impl Service {
    /// Opens the signer of a folder.
    ///
    /// # Errors
    /// The policy or the memory cannot be used. A key that cannot be used is no error: what needs it fails.
    pub fn open(folder: &Path, credentials: &Credentials) -> Result<Service, StartError> {
        let text = fs_err::read_to_string(folder.join(POLICY))
            .map_err(|error| StartError::Policy(error.to_string()))?;
        let policy = Policy::parse(&text).map_err(StartError::Policy)?;
        let keys = Keys::open(folder, &policy, credentials);
        let vouchers = Vouchers::open(folder, &policy);
        Ok(Service { keys, vouchers, memory: Memory::open(folder)?, policy, doubt: None, awaited: None })
    }

    /// Answers questions until the other end is gone. `now` is the time in seconds since 1970.
    ///
    /// # Errors
    /// The other end sends what is no question, or does not take an answer.
    pub fn serve(
        &mut self,
        from: &mut impl Read,
        out: &mut impl Write,
        now: &dyn Fn() -> i64,
    ) -> io::Result<()> {
        while let Some(question) = message::read::<Question>(from)? {
            message::write(out, &self.answer(&question, now()))?;
        }
        Ok(())
    }

    /// Answers a question.
    pub fn answer(&mut self, question: &Question, now: i64) -> Answer {
        if question.version != VERSION {
            return failed(format!(
                "the signer has version {VERSION} of the messages, and the coordinator {}",
                question.version
            ));
        }
        let Some(repository) = self.policy.repository.get(&question.repository).cloned() else {
            let name: String = question.repository.chars().take(100).collect();
            let reason = format!("the policy has no repository {name:?}");
            return self.refuse(question, now, vec![refusal(Rule::Policy, reason)]);
        };
        let awaited = self.awaited.take();
        let answered = match &question.ask {
            Ask::Keys => Ok(self.tell_keys(&repository, now)),
            Ask::Memory { series } => {
                self.memory.shown(&question.repository, series).map(|indexes| Answer::Memory { indexes })
            }
            Ask::Adopt { generation, signature } => {
                self.adopt(&question.repository, &repository, generation, signature, now)
            }
            // These come between a generation and its builds.
            Ask::Evidence { keys } => {
                self.awaited = awaited;
                self.wanted_evidence(&repository, keys)
            }
            Ask::Sources(evidence) => {
                self.awaited = awaited;
                self.learn(&repository, evidence, now)
            }
            Ask::Generation(generation) => self.generation(question, &repository, generation, now),
            Ask::Builds { builds } => match awaited {
                Some((name, generation, prepared)) if name == question.repository => {
                    // Time has passed since it was prepared.
                    let still =
                        self.court(&name, &repository, now).check_time(&generation, prepared.read.date);
                    match still {
                        Ok(()) => self.sign(question, &repository, &generation, prepared, builds, now),
                        Err(Fault::Memory(error)) => Err(error),
                        Err(Fault::Refused(rule, reason)) => {
                            Ok(self.refuse(question, now, vec![refusal(rule, reason)]))
                        }
                    }
                }
                _ => Ok(failed("no builds were asked for".to_owned())),
            },
            Ask::Packages { builds } => self.packages(question, &repository, (Form::Checksums, builds), now),
            Ask::Headers { builds } => self.packages(question, &repository, (Form::Lists, builds), now),
            Ask::Document { text } => self.document(question, &repository, text, now),
        };
        answered.unwrap_or_else(|error| failed(format!("the signer failed to {}", with_cause(&error))))
    }

    /// The policy.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// What it remembers.
    pub fn memory(&mut self) -> &mut Memory {
        &mut self.memory
    }

    fn tell_keys(&self, repository: &Repository, now: i64) -> Answer {
        let mut keys: Vec<_> = repository.keys.iter().map(|name| self.keys.state(name, now)).collect();
        keys.extend(repository.package_key.iter().map(|name| self.keys.state_of_packages(name, now)));
        let of_packages = repository.package_key.as_ref().map(|name| self.keys.of_packages(name, now));
        let packages =
            of_packages.transpose().map(|found| found.map(|(_, certificates)| certificates.to_owned()));
        let names = [&repository.keys[..], &repository.revoked].concat();
        let armored = self.keys.named(&names).and_then(|keys| {
            let armored = keys.into_iter().map(|key| key.public_armored().map_err(|error| error.to_string()));
            armored.collect::<Result<String, String>>()
        });
        let trouble = armored.as_ref().err().or(packages.as_ref().err()).cloned();
        let (armored, packages) = (armored.unwrap_or_default(), packages.unwrap_or_default());
        Answer::Keys { armored, keys, packages, trouble }
    }

    fn adopt(
        &mut self,
        name: &str,
        repository: &Repository,
        generation: &Generation,
        signature: &str,
        now: i64,
    ) -> Result<Answer, MemoryError> {
        let series = &generation.series;
        if !self.memory.shown(name, series)?.is_empty() {
            let reason = format!("the signer remembers the series {series}");
            return Ok(Answer::Refused { refusals: vec![refusal(Rule::Policy, reason)] });
        }
        if self.memory.text(name, series)?.is_some_and(|last| last != hash(generation.text.as_bytes())) {
            let reason = format!("the generation of {series} is not the one that the account ends with");
            return Ok(Answer::Refused { refusals: vec![refusal(Rule::Text, reason)] });
        }
        let ring = self.keys.ring(&repository.keys);
        let verified =
            ring.map(|ring| ring.verify_detached(generation.text.as_bytes(), signature.as_bytes()));
        if !matches!(verified, Some(Ok(_))) {
            let reason = "the generation to remember is not signed with a key of the repository".to_owned();
            return Ok(Answer::Refused { refusals: vec![refusal(Rule::Text, reason)] });
        }
        if let Some(refusal) = self.fault_of_adoption(name, generation, now)? {
            self.memory.refuse(now, name, std::slice::from_ref(&refusal))?;
            return Ok(Answer::Refused { refusals: vec![refusal] });
        }
        let prepared = match self.court(name, repository, now).prepare(generation, true) {
            Ok(prepared) => prepared,
            Err(Fault::Memory(error)) => return Err(error),
            Err(Fault::Refused(rule, reason)) => {
                return Ok(Answer::Refused { refusals: vec![refusal(rule, reason)] });
            }
        };
        let entry = Entry::Adopted {
            repository: name.to_owned(),
            series: series.clone(),
            text: hash(generation.text.as_bytes()),
            indexes: hashes(&prepared),
            packages: prepared.read.packages.len() as u64,
        };
        let packages = prepared.all();
        self.record(now, vec![entry], repository, Some((name, generation, prepared, packages)))?;
        Ok(Answer::Adopted)
    }

    /// Remembers what vouches for sources. What is wrong with it is in the judgement of packages.
    fn learn(
        &mut self,
        repository: &Repository,
        evidence: &Evidence,
        now: i64,
    ) -> Result<Answer, MemoryError> {
        match self.vouchers.learn(&mut self.memory, repository, evidence)? {
            Ok(Some(entry)) => self.record(now, vec![entry], repository, None)?,
            Ok(None) => {}
            Err(doubt) => self.doubt = Some(doubt),
        }
        Ok(Answer::Evidence { wanted: Vec::new() })
    }

    /// What it has not seen, if it has to know sources at all.
    fn wanted_evidence(&mut self, repository: &Repository, keys: &[String]) -> Result<Answer, MemoryError> {
        // The commits of packages are asked for after the indexes of archives, whose doubts stay.
        if self.awaited.is_none() {
            self.doubt = None;
        }
        let vouchers = vouchers_of(repository);
        let mut wanted = Vec::new();
        for key in keys.iter().filter(|_| !vouchers.is_empty()) {
            if !self.memory.knows_evidence(&vouchers, key)? {
                wanted.push(key.clone());
            }
        }
        Ok(Answer::Evidence { wanted })
    }

    /// Why a person has to approve that a generation is taken as what is published. An account that has just begun belongs to a
    /// repository that is moved to the signer; later, an old generation could be offered as the present one.
    fn fault_of_adoption(
        &self,
        name: &str,
        generation: &Generation,
        now: i64,
    ) -> Result<Option<Refusal>, MemoryError> {
        let (series, text) = (&generation.series, hash(generation.text.as_bytes()));
        let is_new = self.memory.began()?.is_none_or(|began| now - began < ADOPTION_SECONDS);
        // The account itself ends with this generation.
        let is_known = self.memory.text(name, series)?.is_some();
        let id = hash(format!("adopt\n{name}\n{series}\n{text}").as_bytes())[..16].to_owned();
        if is_new || is_known || self.memory.approved(&id)?.is_some() {
            return Ok(None);
        }
        let reason = format!(
            "the account knows nothing of {series}: a person approves that what is published now is the present generation"
        );
        Ok(Some(Refusal { id: Some(id), package: None, variant: None, rule: Rule::Approval, reason }))
    }

    fn court<'a>(&'a self, name: &'a str, repository: &'a Repository, now: i64) -> Court<'a> {
        Court {
            policy: &self.policy,
            name,
            repository,
            memory: &self.memory,
            doubt: self.doubt.as_deref(),
            now,
        }
    }

    fn generation(
        &mut self,
        question: &Question,
        repository: &Repository,
        generation: &Generation,
        now: i64,
    ) -> Result<Answer, MemoryError> {
        let name = &question.repository;
        let prepared = match self.court(name, repository, now).prepare(generation, false) {
            Ok(prepared) => prepared,
            Err(Fault::Memory(error)) => return Err(error),
            Err(Fault::Refused(rule, reason)) => {
                return Ok(self.refuse(question, now, vec![refusal(rule, reason)]));
            }
        };
        let name_of = |package: &judge::Package| (package.name.name.clone(), package.name.variant.clone());
        let packages: Vec<_> = prepared.new_packages().map(name_of).collect();
        if packages.is_empty() {
            return self.sign(question, repository, generation, prepared, &[], now);
        }
        self.awaited = Some((name.clone(), generation.clone(), prepared));
        Ok(Answer::Wanted { packages })
    }

    fn sign(
        &mut self,
        question: &Question,
        repository: &Repository,
        generation: &Generation,
        prepared: Prepared,
        builds: &[Build],
        now: i64,
    ) -> Result<Answer, MemoryError> {
        let name = &question.repository;
        let judged = self.court(name, repository, now).judge(&prepared, builds.iter())?;
        if !judged.refusals.is_empty() {
            return Ok(self.refuse(question, now, judged.refusals));
        }
        let signed = self.keys.named(&repository.keys).and_then(|keys| {
            let sign = || -> Result<_, kilnyard_sign::SignError> {
                let clear = match generation.form {
                    Form::Release => Some(sign_clear(&keys, &generation.text)?),
                    Form::Checksums | Form::Lists => None,
                };
                Ok((clear, sign_detached(&keys, generation.text.as_bytes())?))
            };
            let (clear, detached) = sign().map_err(|error| with_cause(&error))?;
            Ok((clear, detached, keys.iter().map(|key| key.fingerprint()).collect()))
        });
        let (clear, detached, keys) = match signed {
            Ok(signed) => signed,
            Err(reason) => return Ok(failed(reason)),
        };
        let entry = Entry::Generation {
            repository: name.clone(),
            series: generation.series.clone(),
            text: hash(generation.text.as_bytes()),
            keys,
            indexes: hashes(&prepared),
            packages: judged.explained,
        };
        // The signature leaves only after its line is on disk.
        self.record(now, vec![entry], repository, Some((name, generation, prepared, judged.packages)))?;
        Ok(Answer::Signed { clear, detached })
    }

    fn packages(
        &mut self,
        question: &Question,
        repository: &Repository,
        (form, builds): (Form, &[BuildTexts]),
        now: i64,
    ) -> Result<Answer, MemoryError> {
        let name = &question.repository;
        let judged = match self.court(name, repository, now).judge_texts(form, builds) {
            Ok(judged) => judged,
            Err(Fault::Memory(error)) => return Err(error),
            Err(Fault::Refused(rule, reason)) => {
                return Ok(self.refuse(question, now, vec![refusal(rule, reason)]));
            }
        };
        let refused = judged.refused;
        let is_refused = |package: &account::Package| {
            refused.contains(&Name { name: package.name.clone(), variant: package.variant.clone() })
        };
        let signed = self.signer_of_packages(repository, form, now).and_then(|(keys, sign)| {
            let sign = |(text, package): (&PackageText, &account::Package)| match is_refused(package) {
                true => Ok(None),
                false => sign(text.text.as_bytes()).map(Some),
            };
            let texts = builds.iter().flat_map(|build| &build.texts);
            let signatures = texts.zip(&judged.explained).map(sign).collect::<Result<Vec<_>, _>>()?;
            Ok((signatures, keys))
        });
        let (signatures, keys) = match signed {
            Ok(signed) => signed,
            Err(reason) => return Ok(failed(reason)),
        };
        if !judged.refusals.is_empty() {
            self.memory.refuse(now, name, &judged.refusals)?;
        }
        let explained: Vec<_> =
            judged.explained.iter().filter(|package| !is_refused(package)).cloned().collect();
        let remembered: Vec<Remembered> =
            judged.packages.into_iter().filter(|(package, ..)| !refused.contains(package)).collect();
        if !explained.is_empty() {
            let entry = Entry::Packages { repository: name.clone(), keys, packages: explained };
            let none = BTreeMap::new();
            let signed = Signed {
                repository: name,
                series: SIGNED_PACKAGES,
                date: now,
                text: "",
                indexes: &none,
                derived: &none,
                all: None,
                packages: remembered,
            };
            self.memory.record(now, vec![entry], Some(&signed))?;
            if self.memory.unsealed() >= LINES_OF_A_SEAL {
                self.seal(now, repository)?;
            }
        }
        Ok(Answer::Packages { signatures, refusals: judged.refusals })
    }

    /// What signs packages one by one: the fingerprints of its keys, and the way.
    fn signer_of_packages<'a>(
        &'a self,
        repository: &Repository,
        form: Form,
        now: i64,
    ) -> Result<(Vec<String>, Box<SignText<'a>>), String> {
        if form == Form::Lists {
            // A package of RPM has one signature.
            let keys = self.keys.named(repository.keys.get(..1).unwrap_or_default())?;
            let key = *keys.first().ok_or("the repository has no key")?;
            let sign = move |text: &[u8]| {
                let header = std::str::from_utf8(text).ok().and_then(lists::bytes_of).unwrap_or_default();
                let packet = sign_binary(key, &header).map_err(|error| with_cause(&error))?;
                Ok(packet.iter().map(|byte| format!("{byte:02x}")).collect())
            };
            return Ok((vec![key.fingerprint()], Box::new(sign)));
        }
        if let Some(name) = &repository.package_key {
            let (key, _) = self.keys.of_packages(name, now)?;
            return Ok((vec![key.fingerprint()], Box::new(|text| key.sign(text))));
        }
        let keys = self.keys.named(&repository.keys)?;
        let fingerprints = keys.iter().map(|key| key.fingerprint()).collect();
        let sign = move |text: &[u8]| sign_detached(&keys, text).map_err(|error| with_cause(&error));
        Ok((fingerprints, Box::new(sign)))
    }

    fn document(
        &mut self,
        question: &Question,
        repository: &Repository,
        text: &str,
        now: i64,
    ) -> Result<Answer, MemoryError> {
        let in_last_hour = self.memory.signatures_since(now - 3600)?;
        if !repository.documents {
            let reason = "the policy does not allow signatures of documents (documents = true)".to_owned();
            return Ok(self.refuse(question, now, vec![refusal(Rule::Policy, reason)]));
        }
        let document = match document::read(text) {
            Ok(document) => document,
            Err(reason) => return Ok(self.refuse(question, now, vec![refusal(Rule::Text, reason)])),
        };
        // Documents belong to no series.
        let any = Repository { series: crate::policy::all(), ..repository.clone() };
        if let Some((rule, reason)) = any.refuses("", now, in_last_hour) {
            return Ok(self.refuse(question, now, vec![refusal(rule, reason)]));
        }
        let signed = self.keys.named(&repository.keys).and_then(|keys| {
            let clear = sign_clear(&keys, text).map_err(|error| with_cause(&error))?;
            let detached = sign_detached(&keys, text.as_bytes()).map_err(|error| with_cause(&error))?;
            Ok((clear, detached, keys.iter().map(|key| key.fingerprint()).collect()))
        });
        let (clear, detached, keys) = match signed {
            Ok(signed) => signed,
            Err(reason) => return Ok(failed(reason)),
        };
        let entry = Entry::Document {
            repository: question.repository.clone(),
            source: document.source,
            version: document.version,
            text: hash(text.as_bytes()),
            keys,
        };
        self.record(now, vec![entry], repository, None)?;
        Ok(Answer::Signed { clear: Some(clear), detached })
    }

    fn refuse(&mut self, question: &Question, now: i64, refusals: Vec<Refusal>) -> Answer {
        match self.memory.refuse(now, &question.repository, &refusals) {
            Ok(()) => Answer::Refused { refusals },
            Err(error) => failed(format!("the signer failed to {}", with_cause(&error))),
        }
    }

    /// Records entries, with what is signed, and a seal if one is due.
    fn record(
        &mut self,
        now: i64,
        entries: Vec<Entry>,
        repository: &Repository,
        signed: Option<(&str, &Generation, Prepared, Vec<Remembered>)>,
    ) -> Result<(), MemoryError> {
        match signed {
            None => self.memory.record(now, entries, None)?,
            Some((repository, generation, prepared, packages)) => {
                let Prepared { indexes, read, .. } = &prepared;
                let (date, derived, series) = (read.date, &read.derived, generation.series.as_str());
                let text = &hash(generation.text.as_bytes());
                let all = Some(read.packages.iter().map(|package| package.name.clone()).collect());
                let signed = Signed { repository, series, date, text, indexes, derived, all, packages };
                self.memory.record(now, entries, Some(&signed))?;
            }
        }
        if self.memory.unsealed() < LINES_OF_A_SEAL {
            return Ok(());
        }
        self.seal(now, repository)
    }

    /// Seals the account with the keys of a repository. A key that cannot sign leaves it for the next time.
    fn seal(&mut self, now: i64, repository: &Repository) -> Result<(), MemoryError> {
        let (number, last) = self.memory.last();
        let text = seal_text(number, last);
        let signature = self
            .keys
            .named(&repository.keys)
            .and_then(|keys| sign_detached(&keys, text.as_bytes()).map_err(|error| with_cause(&error)));
        match signature {
            Ok(signature) => self.memory.record(now, vec![Entry::Seal { signature }], None),
            Err(_) => Ok(()),
        }
    }
}

fn hashes(prepared: &Prepared) -> BTreeMap<String, String> {
    prepared.indexes.iter().map(|(path, text)| (path.clone(), hash(text.as_bytes()))).collect()
}

fn refusal(rule: Rule, reason: String) -> Refusal {
    Refusal { id: None, package: None, variant: None, rule, reason }
}

fn failed(reason: String) -> Answer {
    Answer::Failed { reason }
}
