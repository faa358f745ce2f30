//! The table `store`: where the yard's records are.

use serde::Deserialize;
use std::path::PathBuf;
use toml_edit::DocumentMut;

/// The tables that say how a machine reaches the stores.
pub(crate) const TABLES: [&str; 2] = ["store", "artifacts"];

/// The table `store`.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct StoreTable {
    /// The URL of a PostgreSQL database. Without it, the records are in a file of the yard.
    pub url: Option<String>,
    /// A file with the password for the database, relative to the yard.
    pub password_file: Option<PathBuf>,
    /// A file with the certificates of which one must have signed the server's, relative to the yard. Without it, a public
    /// authority must have.
    pub certificates: Option<PathBuf>,
    /// The schema of the tables, for several yards in one database.
    pub schema: Option<String>,
}

impl StoreTable {
    /// Checks that the settings fit together. The error is a sentence.
    pub fn check(&self) -> Result<(), String> {
        let others = [
            ("password-file", self.password_file.is_some()),
            ("certificates", self.certificates.is_some()),
            ("schema", self.schema.is_some()),
        ];
        match others.into_iter().find(|(_, is_set)| *is_set) {
            Some((name, _)) if self.url.is_none() => {
                Err(format!("store: {name} is for a database, but there is no url"))
            }
            _ if self.schema.as_ref().is_some_and(String::is_empty) => {
                Err("store: the name of the schema is empty".to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// A configuration without the tables of its stores, for a yard with others. A text that is not TOML stays.
pub fn without_stores(text: &str) -> String {
    let Ok(mut document) = text.parse::<DocumentMut>() else { return text.to_owned() };
    let removed = TABLES.map(|table| document.remove(table));
    match removed.iter().any(Option::is_some) {
        true => document.to_string(),
        false => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_a_yard_has_a_store_of_its_own() {
        let text = "packages = [\"a\"] # all\n[store]\nurl = \"postgres://a/b\"\n[artifacts]\nurl = \"s3://c\"\n[farm]\nverify = 0.5\n";
        assert_eq!(without_stores(text), "packages = [\"a\"] # all\n[farm]\nverify = 0.5\n");
        assert_eq!(without_stores("store.url = \"postgres://a/b\"\n"), "");
        assert_eq!(without_stores("[farm]\n"), "[farm]\n");
    }

    #[test]
    fn settings_of_a_database_need_one() {
        let check =
            |text: &str| toml::from_str::<StoreTable>(text).map_err(|error| error.to_string())?.check();
        check("").unwrap();
        check("url = \"postgres://a/b\"\nschema = \"x\"").unwrap();
        assert!(check("schema = \"x\"").unwrap_err().contains("there is no url"));
        assert!(check("url = \"postgres://a/b\"\nschema = \"\"").unwrap_err().contains("empty"));
        assert!(check("uri = \"postgres://a/b\"").unwrap_err().contains("unknown field"));
    }
}
