//! Mounts an overlay: layer by layer if the kernel supports that (Linux 6.7), else with one option string.
//!
//! The string is limited to a page, and commas, colons and backslashes are special in it. A path that contains one of
//! these, or is too long for the kernel, is passed as a descriptor number instead.

use super::system::mount;
use crate::{Flushes, LAYERS_MAX};
use rustix::fs::{CWD, Mode, OFlags, open};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// The kernel's limit on the value of one option, including the NUL (`strndup_user` in fs/fsopen.c).
const VALUE_BYTES_MAX: usize = 256;
/// The limit on the options of mount(2), including the NUL; a longer string is silently truncated.
const OPTIONS_BYTES_MAX: usize = 4096;

/// Mounts an overlay of `lower`, uppermost first, below `upper`.
pub(super) fn overlay(
    lower: &[PathBuf],
    upper: &Path,
    work: &Path,
    target: &Path,
    flushes: Flushes,
) -> io::Result<()> {
    if lower.len() > LAYERS_MAX {
        let text = format!("{} layers are too many: an overlay has at most {LAYERS_MAX}", lower.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    // Remove the mark of an earlier `volatile` mount: the lost flushes that it warns of matter only if the machine
    // went down in between, and then the whole root is discarded.
    match std::fs::remove_dir_all(work.join("work/incompat")) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let names = Names::new(lower, upper, work, false)?;
    let flags = flags(flushes);
    match layer_by_layer(&names, target, flags) {
        // A kernel without these calls or this option, or a container that refuses unknown calls.
        Err(refused @ (Errno::NOSYS | Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP)) => {
            let is_short = options(&names, flags).len() < OPTIONS_BYTES_MAX;
            let names = if is_short { names } else { Names::new(lower, upper, work, true)? };
            by_options(&names, target, flags, refused)
        }
        other => Ok(other?),
    }
}

/// Mounts `lower`, uppermost first, for reading.
pub(super) fn layers(lower: &[PathBuf], target: &Path) -> io::Result<()> {
    if lower.len() > LAYERS_MAX {
        let text = format!("{} layers are too many: an overlay has at most {LAYERS_MAX}", lower.len());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let names = Names::of_layers(lower, false)?;
    match layer_by_layer(&names, target, &["userxattr"]) {
        Err(refused @ (Errno::NOSYS | Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP)) => {
            by_options(&Names::of_layers(lower, true)?, target, &["userxattr"], refused)
        }
        other => Ok(other?),
    }
}

/// Options without a value. In a user namespace an overlay can keep its marks only in user attributes.
fn flags(flushes: Flushes) -> &'static [&'static str] {
    match flushes {
        Flushes::Discard => &["userxattr", "volatile"],
        Flushes::Keep => &["userxattr"],
    }
}

/// Folder names as passed to the kernel.
struct Names {
    lower: Vec<String>,
    /// The writable layer and its scratch folder.
    written: Option<(String, String)>,
    /// The descriptors that names refer to by number.
    _open: Vec<OwnedFd>,
}

impl Names {
    /// `by_number` passes every folder as a descriptor, which makes all names short.
    fn new(lower: &[PathBuf], upper: &Path, work: &Path, by_number: bool) -> io::Result<Names> {
        let mut open = Vec::new();
        let mut name = |path: &Path| name(path, &mut open, by_number);
        let lower = lower.iter().map(|path| name(path)).collect::<io::Result<_>>()?;
        let written = Some((name(upper)?, name(work)?));
        Ok(Names { lower, written, _open: open })
    }

    fn of_layers(lower: &[PathBuf], by_number: bool) -> io::Result<Names> {
        let mut open = Vec::new();
        let lower = lower.iter().map(|path| name(path, &mut open, by_number)).collect::<io::Result<_>>()?;
        Ok(Names { lower, written: None, _open: open })
    }
}

fn name(path: &Path, descriptors: &mut Vec<OwnedFd>, by_number: bool) -> io::Result<String> {
    let is_plain =
        |text: &&str| !by_number && text.len() < VALUE_BYTES_MAX && !text.contains([',', ':', '\\']);
    if let Some(text) = path.to_str().filter(is_plain) {
        return Ok(text.to_owned());
    }
    let folder = open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let name = format!("/proc/self/fd/{}", folder.as_raw_fd());
    descriptors.push(folder);
    Ok(name)
}

fn layer_by_layer(names: &Names, target: &Path, flags: &[&str]) -> rustix::io::Result<()> {
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for layer in &names.lower {
        fsconfig_set_string(&context, "lowerdir+", layer.as_str())?;
    }
    let mut attributes = MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOSUID;
    match &names.written {
        Some((upper, work)) => {
            fsconfig_set_string(&context, "upperdir", upper.as_str())?;
            fsconfig_set_string(&context, "workdir", work.as_str())?;
        }
        None => attributes |= MountAttrFlags::MOUNT_ATTR_RDONLY,
    }
    for flag in flags {
        fsconfig_set_flag(&context, *flag)?;
    }
    fsconfig_create(&context)?;
    let mounted = fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    move_mount(mounted, "", CWD, target, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH)
}

fn options(names: &Names, flags: &[&str]) -> String {
    let Names { lower, written, .. } = names;
    let written = written.as_ref().map(|(upper, work)| format!("upperdir={upper},workdir={work},"));
    format!("lowerdir={},{}{}", lower.join(":"), written.unwrap_or_default(), flags.join(","))
}

/// `refused` is the error of the attempt to add layers one by one.
fn by_options(names: &Names, target: &Path, flags: &[&str], refused: Errno) -> io::Result<()> {
    let options = options(names, flags);
    if options.len() >= OPTIONS_BYTES_MAX {
        let text = format!(
            "{} layers are too many for one option string, and this machine refused to add them one by one, as Linux \
             6.7 can: {refused}",
            names.lower.len()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let access = if names.written.is_some() { 0 } else { libc::MS_RDONLY };
    mount("overlay", target, "overlay", libc::MS_NOSUID | libc::MS_NODEV | access, &options)
}

#[cfg(test)]
mod tests {
    use super::super::system;
    use super::*;
    use std::fs;

    fn names(lower: Vec<String>) -> Names {
        Names { lower, written: Some(("upper".to_owned(), "work".to_owned())), _open: Vec::new() }
    }

    #[test]
    fn an_option_string_that_would_be_truncated_is_refused() {
        let many = (0..450).map(|number| format!("layers/{number}")).collect();
        let error = by_options(&names(many), Path::new("merged"), &[], Errno::NOSYS).unwrap_err().to_string();
        assert!(error.starts_with("450 layers are too many for one option string"), "{error}");
    }

    #[test]
    fn too_many_layers_are_refused_and_the_limit_is_named() {
        let many = vec![PathBuf::from("layer"); LAYERS_MAX + 1];
        let error =
            overlay(&many, "upper".as_ref(), "work".as_ref(), "merged".as_ref(), Flushes::Keep).unwrap_err();
        assert_eq!(error.to_string(), "501 layers are too many: an overlay has at most 500");
    }

    /// Runs in the namespaces of a child process, as on an older kernel.
    #[test]
    fn an_option_string_mounts_paths_with_any_characters() {
        let folder = tempfile::tempdir().unwrap();
        let part = |name: &str| {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let (odd, plain) = (part("odd,:\\ name"), part("plain"));
        let (upper, work, merged) = (part("upper"), part("work"), part("merged"));
        fs::write(odd.join("odd"), "").unwrap();
        fs::write(plain.join("plain"), "").unwrap();
        let (user, group) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        // SAFETY: the child is a copy of this thread only; it makes system calls and exits without taking locks that
        // other threads may hold.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let mounted = system::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)
                .and_then(|()| fs::write("/proc/self/setgroups", "deny"))
                .and_then(|()| fs::write("/proc/self/uid_map", format!("0 {user} 1")))
                .and_then(|()| fs::write("/proc/self/gid_map", format!("0 {group} 1")))
                .and_then(|()| Names::new(&[odd, plain], &upper, &work, false))
                .and_then(|names| by_options(&names, &merged, flags(Flushes::Discard), Errno::NOSYS));
            let is_seen = merged.join("odd").exists() && merged.join("plain").exists();
            let code = match mounted {
                Ok(()) => i32::from(!is_seen),
                Err(error) => error.raw_os_error().unwrap_or(255),
            };
            // SAFETY: ends this process immediately.
            unsafe { libc::_exit(code) };
        }
        let (_, status, _) = system::wait(child, 0).unwrap();
        assert_eq!(system::code_of(status), (0, None));
    }
}
