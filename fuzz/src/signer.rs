//! What a signer reads: messages, changes of indexes, texts, and its own account.

use crate::text;
use kilnyard_signer::account::Account;
use kilnyard_signer::judge::{checksums, release};
use kilnyard_signer::message::{self, Answer, Form, Generation, PackageText, Question};
use kilnyard_signer::{change, hash};
use std::collections::BTreeMap;

/// Any input is read or refused: as a frame, as a message, as a text to sign, as an account.
pub fn messages(data: &[u8]) {
    let _ = message::read::<Question>(&mut &data[..]);
    let _ = message::parse::<Answer>(data);
    let Ok(packed) = zstd::encode_all(data, 1) else { return };
    if let Ok(question) = message::parse::<Question>(&packed) {
        let mut frame = Vec::new();
        message::write(&mut frame, &question).unwrap();
        // What was read once is read again as the same.
        assert_eq!(message::read::<Question>(&mut &frame[..]).unwrap().as_ref(), Some(&question));
    }
    let Some(text) = text(data) else { return };
    let _ = Account::check(text, None);
    let _ = release::document::read(text);
    let middle = (text.len() / 2..).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let (first, second) = text.split_at(middle);
    assert_eq!(change::apply(first, &change::between(first, second), usize::MAX).as_deref(), Ok(second));
    let generation =
        |form| Generation { series: "s".to_owned(), form, text: first.to_owned(), indexes: Vec::new() };
    for path in ["main/binary-amd64/Packages", "main/source/Sources"] {
        let indexes = BTreeMap::from([(path.to_owned(), second.to_owned())]);
        let shown = BTreeMap::from([(path.to_owned(), hash(second.as_bytes()))]);
        let _ = release::read(&generation(Form::Release), &indexes, &shown);
    }
    let mut packages = Vec::new();
    if release::packages("main/binary-amd64/Packages", text, &mut packages).is_ok() {
        for package in packages {
            assert!(package.file.starts_with(&format!("{}_", package.name.name)), "{package:?}");
            assert!(!package.file.contains('/') && package.listed.len() == 64);
        }
    }
    if let Ok(mut listed) = checksums::listing(first) {
        let _ = checksums::packages(second, &mut listed);
    }
    let asked = PackageText { text: text.to_owned(), file: "a-1.tgz".to_owned() };
    if let Ok(package) = checksums::package_of(&asked, "") {
        assert_eq!((&*package.name.name, &*package.version), ("a", "1"));
    }
}
