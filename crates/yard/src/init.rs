//! Creates yards.

use crate::config::Config;
use crate::error::{Context, Error, Kind, Result};
use crate::family::FamilyEntry;
use crate::files::write_whole_by;
use crate::signing::SIGNER;
use crate::yard::{CONFIG, Yard};
use kilnyard_mirror::without_password;
use kilnyard_sign::YardKey;
use kilnyard_signer as signer;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Checks a configuration before a yard is created with it. `folder` is the yard's folder.
pub fn check(folder: &Path, text: &str, families: &[&'static dyn FamilyEntry]) -> Result<()> {
    let config = Config::parse(text, Path::new(CONFIG), families)?;
    config.package_names(folder).map(drop)
}

/// Creates a yard with a configuration that passed [`check`].
pub fn write(folder: &Path, text: &str) -> Result<()> {
    fs_err::create_dir_all(folder).context(Kind::Machine, format!("make {}", folder.display()))?;
    Yard::make_folders(folder)?;
    make_key(folder)?;
    write_whole_by(&folder.join(CONFIG), |out| {
        // An address may contain a password, which only the owner may read.
        if without_password(text) != text {
            out.get_ref().set_permissions(std::fs::Permissions::from_mode(0o600))?;
        }
        out.write_all(text.as_bytes())
    })
}

/// Makes the yard's signer, with a new key, unless the yard has one.
pub fn make_key(folder: &Path) -> Result<()> {
    let generate = || YardKey::generate("Kilnyard repository <kilnyard@localhost>");
    signer::setup::make(&folder.join(SIGNER), generate).context(Kind::Machine, "make the yard's signer")
}

/// Returns a path as absolute UTF-8 text, so that it is valid from any folder.
pub fn path_text(path: &Path) -> Result<String> {
    let absolute = std::path::absolute(path).context(Kind::Usage, format!("find {}", path.display()))?;
    let text = absolute.to_str().map(str::to_owned);
    text.ok_or_else(|| Error::usage(format!("{} is not UTF-8", path.display())))
}
