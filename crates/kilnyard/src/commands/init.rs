//! `kilnyard init`: makes a yard. What it needs to know is its family's.

use super::{Console, print};
use crate::cli::Init;
use crate::error::{Error, Result};
use crate::init;
use crate::signals;
use crate::yard::CONFIG;
use std::path::Path;
use std::process::ExitCode;

pub fn run(folder: &Path, options: &Init, console: &Console) -> Result<ExitCode> {
    signals::install();
    if folder.join(CONFIG).exists() {
        return Err(Error::usage(format!("there is a yard in {} already", folder.display()))
            .hint(format!("an editor on {}", folder.join(CONFIG).display())));
    }
    let new = options.family.init(folder, &options.arguments, console)?;
    init::write(folder, &new.configuration)?;
    tell!("{}", new.made);
    (new.afterwards)(console)?;
    tell!("next: kilnyard --yard {} build", folder.display());
    print("")
}
