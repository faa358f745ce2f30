//! `kilnyard init`: makes a yard, with the arguments of its family.

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
        return Err(Error::usage(format!("there is already a yard in {}", folder.display()))
            .hint(format!("edit {}", folder.join(CONFIG).display())));
    }
    let new = options.family.init(folder, &options.arguments, console)?;
    init::write(folder, &new.configuration)?;
    say!("{}", new.made);
    (new.afterwards)(console)?;
    say!("next: kilnyard --yard {} {}", folder.display(), new.next);
    print("")
}
