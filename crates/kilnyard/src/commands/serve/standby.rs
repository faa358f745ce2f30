//! `kilnyard serve --standby`: makes the yard of another machine here, from the stores that the machines share.

use crate::cli;
use crate::config::artifacts::ArtifactsTable;
use crate::config::quoted;
use crate::config::store::StoreTable;
use crate::error::{Context, Error, Kind, Result};
use crate::signals;
use crate::yard::{CONFIG, Yard};
use kilnyard_yard::image::begin;
use std::path::{Path, PathBuf};

/// The file that says that the folder was empty when this began.
const BEGUN: &str = "state/standby";

/// Makes the yard in an empty folder; nothing without `--standby`, or if the folder has a yard.
pub fn prepare(folder: &Path, options: &cli::Serve) -> Result<()> {
    let cli::Serve { stores, .. } = options;
    if !stores.standby || folder.join(CONFIG).exists() {
        return Ok(());
    }
    signals::install();
    let absolute = |file: &Option<PathBuf>| -> Result<Option<PathBuf>> {
        file.as_ref().map(|file| std::path::absolute(file).context(Kind::Usage, "find a file")).transpose()
    };
    let store = StoreTable {
        url: stores.store.clone(),
        password_file: absolute(&stores.password_file)?,
        certificates: absolute(&stores.certificates)?,
        schema: stores.schema.clone(),
    };
    let artifacts = ArtifactsTable {
        url: stores.artifacts.clone(),
        endpoint: stores.endpoint.clone(),
        region: stores.region.clone(),
        credentials_file: absolute(&stores.credentials_file)?,
        direct: false,
        keep_days: None,
        certificates: None,
    };
    store.check().and_then(|()| artifacts.check()).map_err(Error::usage)?;
    let own = tables(&store, &artifacts);
    // An earlier attempt may have been killed.
    let has_begun = folder.join(BEGUN).exists();
    if let Ok(mut entries) = fs_err::read_dir(folder)
        && entries.next().is_some()
        && !has_begun
    {
        return Err(Error::usage(format!("{} has files, but no yard", folder.display()))
            .hint("--yard FOLDER, with an empty folder, or one that does not exist"));
    }
    Yard::make_folders(folder)?;
    fs_err::write(folder.join(BEGUN), "").context(Kind::Machine, "make the yard")?;
    let folder = fs_err::canonicalize(folder).or_internal("find the yard")?;
    begin(&folder, (&store, &artifacts), &own, signals::cancel())
}

/// The tables of this machine for the configuration.
fn tables(store: &StoreTable, artifacts: &ArtifactsTable) -> String {
    let text = |file: &Option<PathBuf>| file.as_ref().map(|file| file.display().to_string());
    let table = |name: &str, settings: &[(&str, Option<String>)]| {
        let set = settings.iter().filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let lines: String = set.map(|(key, value)| format!("{key} = {}\n", quoted(value))).collect();
        format!("\n[{name}]\n{lines}")
    };
    let store = table(
        "store",
        &[
            ("url", store.url.clone()),
            ("password-file", text(&store.password_file)),
            ("certificates", text(&store.certificates)),
            ("schema", store.schema.clone()),
        ],
    );
    let artifacts = table(
        "artifacts",
        &[
            ("url", artifacts.url.clone()),
            ("endpoint", artifacts.endpoint.clone()),
            ("region", artifacts.region.clone()),
            ("credentials-file", text(&artifacts.credentials_file)),
        ],
    );
    store + &artifacts
}
