//! Who a process believes to be: the rules of credentials(7) and setresuid(2) for a process that has begun as root.
//! Pure: ids before, ids after.

/// "Leave it as it is".
pub const UNCHANGED: u32 = u32::MAX;

/// Where exec keeps a user's ids, under the names that fakeroot gave them; in the order of [`Ids`].
pub const USER_VARIABLES: [&core::ffi::CStr; 4] =
    [c"FAKEROOTUID", c"FAKEROOTEUID", c"FAKEROOTSUID", c"FAKEROOTFUID"];
/// The same for a group's.
pub const GROUP_VARIABLES: [&core::ffi::CStr; 4] =
    [c"FAKEROOTGID", c"FAKEROOTEGID", c"FAKEROOTSGID", c"FAKEROOTFGID"];
/// Where exec keeps the groups beside the first one, as numbers with commas between them.
pub const GROUPS_VARIABLE: &core::ffi::CStr = c"FAKEROOTGROUPS";
/// How many of those a process may have: what fits into a variable of a page.
pub const GROUPS_MAX: usize = 256;

/// The ids of a process, as users or as groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ids {
    /// The real one.
    pub real: u32,
    /// The effective one.
    pub effective: u32,
    /// The saved one.
    pub saved: u32,
    /// The one for files.
    pub files: u32,
}

/// What a process asks to become.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Become {
    /// setuid(2), setgid(2).
    One(u32),
    /// setreuid(2), setregid(2): real, effective.
    Two(u32, u32),
    /// setresuid(2), setresgid(2): real, effective, saved.
    Three(u32, u32, u32),
    /// setfsuid(2), setfsgid(2).
    ForFiles(u32),
}

/// Why it is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It is no id.
    NotValid,
    /// Only the privileged may.
    NotPermitted,
}

impl Ids {
    /// The ids afterwards; the privileged may become whom they want.
    pub fn after(self, asked: Become, is_privileged: bool) -> Result<Ids, Refusal> {
        let may = |id: u32, among: &[u32]| id == UNCHANGED || is_privileged || among.contains(&id);
        let check = |is_allowed: bool| if is_allowed { Ok(()) } else { Err(Refusal::NotPermitted) };
        let or = |new: u32, old: u32| if new == UNCHANGED { old } else { new };
        let Ids { real, effective, saved, files } = self;
        match asked {
            Become::One(UNCHANGED) => Err(Refusal::NotValid),
            Become::One(id) => {
                check(may(id, &[real, saved]))?;
                Ok(if is_privileged {
                    Ids { real: id, effective: id, saved: id, files: id }
                } else {
                    Ids { effective: id, files: id, ..self }
                })
            }
            Become::Two(new_real, new_effective) => {
                check(may(new_real, &[real, effective]) && may(new_effective, &[real, effective, saved]))?;
                let takes_over =
                    new_real != UNCHANGED || (new_effective != UNCHANGED && new_effective != real);
                let effective = or(new_effective, effective);
                let saved = if takes_over { effective } else { saved };
                Ok(Ids { real: or(new_real, real), effective, saved, files: effective })
            }
            Become::Three(new_real, new_effective, new_saved) => {
                let any = [real, effective, saved];
                check(may(new_real, &any) && may(new_effective, &any) && may(new_saved, &any))?;
                let effective = or(new_effective, effective);
                Ok(Ids { real: or(new_real, real), effective, saved: or(new_saved, saved), files: effective })
            }
            Become::ForFiles(id) => {
                check(may(id, &[real, effective, saved, files]))?;
                Ok(Ids { files: or(id, files), ..self })
            }
        }
    }
}
