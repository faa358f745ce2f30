//! The ids that a process appears to have: the rules of credentials(7) and setresuid(2) for a process that started
//! as root. Pure: ids before, ids after.

/// Leaves an id unchanged.
pub const UNCHANGED: u32 = u32::MAX;

/// The variables that preserve user ids across exec, with the names that fakeroot gave them; in the order of
/// [`Ids`].
pub const USER_VARIABLES: [&core::ffi::CStr; 4] =
    [c"FAKEROOTUID", c"FAKEROOTEUID", c"FAKEROOTSUID", c"FAKEROOTFUID"];
/// Like [`USER_VARIABLES`], for group ids.
pub const GROUP_VARIABLES: [&core::ffi::CStr; 4] =
    [c"FAKEROOTGID", c"FAKEROOTEGID", c"FAKEROOTSGID", c"FAKEROOTFGID"];
/// The variable that preserves supplementary groups across exec, as comma-separated numbers.
pub const GROUPS_VARIABLE: &core::ffi::CStr = c"FAKEROOTGROUPS";
/// Limit of supplementary groups: what fits into a variable of one page.
pub const GROUPS_MAX: usize = 256;

/// The ids of a process, either of users or of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Ids {
    /// The real id.
    pub real: u32,
    /// The effective id.
    pub effective: u32,
    /// The saved set-user-id or set-group-id.
    pub saved: u32,
    /// The id for file access.
    pub files: u32,
}

/// A request to change ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdChange {
    /// setuid(2), setgid(2).
    One(u32),
    /// setreuid(2), setregid(2): real, effective.
    Two(u32, u32),
    /// setresuid(2), setresgid(2): real, effective, saved.
    Three(u32, u32, u32),
    /// setfsuid(2), setfsgid(2).
    ForFiles(u32),
}

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The id is not valid.
    NotValid,
    /// The process is not privileged.
    NotPermitted,
}

impl Ids {
    /// The ids after a request. A privileged process may assume any id.
    pub fn after(self, asked: IdChange, is_privileged: bool) -> Result<Ids, Refusal> {
        let may = |id: u32, among: &[u32]| id == UNCHANGED || is_privileged || among.contains(&id);
        let check = |is_allowed: bool| if is_allowed { Ok(()) } else { Err(Refusal::NotPermitted) };
        let or = |new: u32, old: u32| if new == UNCHANGED { old } else { new };
        let Ids { real, effective, saved, files } = self;
        match asked {
            IdChange::One(UNCHANGED) => Err(Refusal::NotValid),
            IdChange::One(id) => {
                check(may(id, &[real, saved]))?;
                Ok(if is_privileged {
                    Ids { real: id, effective: id, saved: id, files: id }
                } else {
                    Ids { effective: id, files: id, ..self }
                })
            }
            IdChange::Two(new_real, new_effective) => {
                check(may(new_real, &[real, effective]) && may(new_effective, &[real, effective, saved]))?;
                let takes_over =
                    new_real != UNCHANGED || (new_effective != UNCHANGED && new_effective != real);
                let effective = or(new_effective, effective);
                let saved = if takes_over { effective } else { saved };
                Ok(Ids { real: or(new_real, real), effective, saved, files: effective })
            }
            IdChange::Three(new_real, new_effective, new_saved) => {
                let any = [real, effective, saved];
                check(may(new_real, &any) && may(new_effective, &any) && may(new_saved, &any))?;
                let effective = or(new_effective, effective);
                Ok(Ids { real: or(new_real, real), effective, saved: or(new_saved, saved), files: effective })
            }
            IdChange::ForFiles(id) => {
                check(may(id, &[real, effective, saved, files]))?;
                Ok(Ids { files: or(id, files), ..self })
            }
        }
    }
}
