//! The cases that run in a session.

use crate::Installed::{self, Fails, Passes};
use crate::client::{self, by_path, call, error, look, path, really};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::process::Command;

/// A case: its name, whether the installed fakeroot passes, and the function.
pub type Case = (&'static str, Installed, fn());

pub const ALL: &[Case] = &[
    ("unknown_files_belong_to_root", Passes, unknown_files_belong_to_root),
    ("chown_by_every_call", Passes, chown_by_every_call),
    ("chown_of_links", Passes, chown_of_links),
    ("chown_of_one_id_leaves_the_other", Passes, chown_of_one_id_leaves_the_other),
    ("chown_clears_set_id_bits", Fails, chown_clears_set_id_bits),
    ("chmod_by_every_call", Passes, chmod_by_every_call),
    ("chmod_keeps_the_file_usable", Passes, chmod_keeps_the_file_usable),
    ("set_id_bits_outlive_writing", Passes, set_id_bits_outlive_writing),
    ("chmod_without_following_by_fchmodat", Fails, chmod_without_following_by_fchmodat),
    ("folders_of_any_mode", Passes, folders_of_any_mode),
    ("devices", Passes, devices),
    ("mknod_over_a_file_fails", Fails, mknod_over_a_file_fails),
    ("pipes_are_pipes", Passes, pipes_are_pipes),
    ("removed_files_are_forgotten", Passes, removed_files_are_forgotten),
    ("replaced_files_are_forgotten", Passes, replaced_files_are_forgotten),
    ("exchanged_files_are_kept", Passes, exchanged_files_are_kept),
    ("links_keep_the_owner", Passes, links_keep_the_owner),
    ("a_reused_inode_is_a_new_file", Fails, a_reused_inode_is_a_new_file),
    ("identities_start_as_root", Passes, identities_start_as_root),
    ("identities_over_exec", Passes, identities_over_exec),
    ("identities_are_checked", Fails, identities_are_checked),
    ("groups_are_kept", Fails, groups_are_kept),
    ("priorities_and_capabilities_are_granted", Passes, priorities_and_capabilities_are_granted),
    ("attributes_of_security", Passes, attributes_of_security),
    ("attributes_by_every_call", Passes, attributes_by_every_call),
    ("attributes_of_any_size", Fails, attributes_of_any_size),
    ("attributes_do_not_change_the_owner", Fails, attributes_do_not_change_the_owner),
    ("chown_removes_capabilities", Fails, chown_removes_capabilities),
    ("access_lists_are_refused", Passes, access_lists_are_refused),
    ("access_lists_are_refused_as_attributes", Fails, access_lists_are_refused_as_attributes),
    ("walks_by_fts", Passes, walks_by_fts),
    ("walks_by_nftw", Fails, walks_by_nftw),
    ("calls_by_their_numbers", Fails, calls_by_their_numbers),
    ("children_see_changes_at_once", Passes, children_see_changes_at_once),
    ("owners_are_real_without_the_library", Passes, owners_are_real_without_the_library),
    ("thousands_of_entries", Passes, thousands_of_entries),
];

/// Cases that need the library, and are not run where the launcher answers. There, ids belong to the process, as in
/// the kernel, so that a shell drops its effective ones; with the library, the environment keeps them.
pub const ONLY_WITH_THE_LIBRARY: &[&str] = &[
    "access_lists_are_refused",
    "identities_over_exec",
    "unknown_files_belong_to_root",
    "owners_are_real_without_the_library",
];

fn make(name: &str) -> File {
    File::create(name).unwrap()
}

fn chown(name: &str, user: u32, group: u32) {
    std::os::unix::fs::chown(name, Some(user), Some(group)).unwrap();
}

fn chmod(name: &str, mode: u32) {
    fs::set_permissions(name, PermissionsExt::from_mode(mode)).unwrap();
}

fn owner(name: &str) -> (u32, u32) {
    let (user, group, _) = look(name);
    (user, group)
}

fn unknown_files_belong_to_root() {
    make("file");
    assert_eq!(owner("file"), (0, 0));
    assert_eq!(owner("."), (0, 0));
    assert_ne!(really("file").0, 0);
}

fn chown_by_every_call() {
    let file = make("file");
    let name = path("file");
    let name = name.as_ptr();
    assert_eq!(call!(c"chown", name => *const c_char, 1 => u32, 2 => u32), 0);
    assert_eq!(owner("file"), (1, 2));
    assert_eq!(call!(c"lchown", name => *const c_char, 3 => u32, 4 => u32), 0);
    assert_eq!(owner("file"), (3, 4));
    assert_eq!(call!(c"fchown", file.as_raw_fd() => c_int, 5 => u32, 6 => u32), 0);
    assert_eq!(owner("file"), (5, 6));
    let at = libc::AT_FDCWD;
    assert_eq!(call!(c"fchownat", at => c_int, name => *const c_char, 7 => u32, 8 => u32, 0 => c_int), 0);
    assert_eq!(owner("file"), (7, 8));
    chown("file", 0, 0);
    assert_eq!(owner("file"), (0, 0));
    let missing = path("missing");
    assert_eq!(call!(c"chown", missing.as_ptr() => *const c_char, 1 => u32, 2 => u32), -1);
    assert_eq!(error(), libc::ENOENT);
}

fn chown_of_links() {
    make("file");
    symlink("file", "link").unwrap();
    let link = path("link");
    assert_eq!(call!(c"lchown", link.as_ptr() => *const c_char, 1 => u32, 1 => u32), 0);
    assert_eq!(by_path(c"lstat", "link").0, 1);
    assert_eq!(by_path(c"stat", "link").0, 0);
    assert_eq!(call!(c"chown", link.as_ptr() => *const c_char, 2 => u32, 2 => u32), 0);
    assert_eq!((by_path(c"lstat", "link").0, owner("file")), (1, (2, 2)));
}

fn chown_of_one_id_leaves_the_other() {
    make("file");
    std::os::unix::fs::chown("file", Some(5), None).unwrap();
    assert_eq!(owner("file"), (5, 0));
    std::os::unix::fs::chown("file", None, Some(6)).unwrap();
    assert_eq!(owner("file"), (5, 6));
}

fn chown_clears_set_id_bits() {
    make("file");
    chmod("file", 0o6755);
    chown("file", 1, 1);
    assert_eq!(look("file"), (1, 1, 0o755));
    chmod("file", 0o2644);
    chown("file", 2, 2);
    assert_eq!(look("file"), (2, 2, 0o2644), "without group execution, the bit is not set-group-id");
    fs::create_dir("folder").unwrap();
    chmod("folder", 0o6755);
    chown("folder", 1, 1);
    assert_eq!(look("folder"), (1, 1, 0o6755));
}

fn chmod_by_every_call() {
    let file = make("file");
    let name = path("file");
    assert_eq!(call!(c"chmod", name.as_ptr() => *const c_char, 0o4711 => u32), 0);
    assert_eq!(look("file"), (0, 0, 0o4711));
    assert_eq!(call!(c"fchmod", file.as_raw_fd() => c_int, 0o2750 => u32), 0);
    assert_eq!(look("file").2, 0o2750);
    let at = libc::AT_FDCWD;
    assert_eq!(call!(c"fchmodat", at => c_int, name.as_ptr() => *const c_char, 0o1644 => u32, 0 => c_int), 0);
    assert_eq!(look("file").2, 0o1644);
}

fn chmod_keeps_the_file_usable() {
    make("file");
    chmod("file", 0);
    assert_eq!(look("file").2, 0);
    fs::write("file", "still").unwrap();
    fs::create_dir("folder").unwrap();
    chmod("folder", 0);
    assert_eq!(look("folder").2, 0);
    make("folder/file");
    chmod("folder", 0o755);
    assert_eq!(look("folder").2, 0o755);
}

/// The kernel clears them when a user other than root writes to the file.
fn set_id_bits_outlive_writing() {
    make("file");
    chmod("file", 0o4755);
    fs::write("file", "written").unwrap();
    assert_eq!(look("file"), (0, 0, 0o4755));
}

fn chmod_without_following_by_fchmodat() {
    make("file");
    symlink("file", "link").unwrap();
    let (at, flags, link, file) = (libc::AT_FDCWD, libc::AT_SYMLINK_NOFOLLOW, path("link"), path("file"));
    let result =
        call!(c"fchmodat", at => c_int, link.as_ptr() => *const c_char, 0o600 => u32, flags => c_int);
    assert_eq!((result, error()), (-1, libc::ENOTSUP));
    let result =
        call!(c"fchmodat", at => c_int, file.as_ptr() => *const c_char, 0o4700 => u32, flags => c_int);
    assert_eq!((result, look("file").2), (0, 0o4700));
}

fn folders_of_any_mode() {
    // SAFETY: umask has no preconditions.
    unsafe { libc::umask(0o022) };
    let (at, name, other) = (libc::AT_FDCWD, path("folder"), path("other"));
    assert_eq!(call!(c"mkdir", name.as_ptr() => *const c_char, 0o777 => u32), 0);
    assert_eq!(look("folder"), (0, 0, 0o755));
    assert_eq!(call!(c"mkdirat", at => c_int, other.as_ptr() => *const c_char, 0o070 => u32), 0);
    assert_eq!(look("other"), (0, 0, 0o050));
    make("other/file");
}

fn devices() {
    // SAFETY: umask has no preconditions.
    unsafe { libc::umask(0o022) };
    let (at, number) = (libc::AT_FDCWD, libc::makedev(259, 70_000));
    let names = ["a", "b", "c", "d"].map(path);
    let [a, b, c, d] = [0, 1, 2, 3].map(|at| names[at].as_ptr());
    let mode = libc::S_IFCHR | 0o666;
    assert_eq!(call!(c"mknod", a => *const c_char, mode => u32, number => u64), 0);
    assert_eq!(call!(c"mknodat", at => c_int, b => *const c_char, mode => u32, number => u64), 0);
    assert_eq!(call!(c"__xmknod", 0 => c_int, c => *const c_char, mode => u32, &number => *const u64), 0);
    let mode = libc::S_IFBLK | 0o666;
    assert_eq!(
        call!(c"__xmknodat", 0 => c_int, at => c_int, d => *const c_char, mode => u32, &number => *const u64),
        0
    );
    for name in ["a", "b", "c", "d"] {
        let facts = fs::symlink_metadata(name).unwrap();
        assert_eq!((facts.rdev(), facts.uid(), facts.mode() & 0o7777), (number, 0, 0o644), "{name}");
        assert_eq!(
            (facts.file_type().is_block_device(), facts.file_type().is_char_device()),
            (name == "d", name != "d")
        );
    }
    chown("a", 3, 4);
    chmod("a", 0o600);
    let facts = fs::metadata("a").unwrap();
    assert!(facts.file_type().is_char_device());
    assert_eq!((facts.uid(), facts.rdev(), facts.mode() & 0o7777), (3, number, 0o600));
}

fn mknod_over_a_file_fails() {
    fs::write("file", "content").unwrap();
    let name = path("file");
    let mode = libc::S_IFCHR | 0o666;
    let result = call!(c"mknod", name.as_ptr() => *const c_char, mode => u32, 259 => u64);
    assert_eq!((result, error()), (-1, libc::EEXIST));
    assert_eq!(fs::read("file").unwrap(), b"content");
    assert!(fs::metadata("file").unwrap().is_file());
}

fn pipes_are_pipes() {
    let (name, mode) = (path("pipe"), libc::S_IFIFO | 0o644);
    assert_eq!(call!(c"mkfifo", name.as_ptr() => *const c_char, 0o600 => u32), 0);
    assert!(fs::metadata("pipe").unwrap().file_type().is_fifo());
    fs::remove_file("pipe").unwrap();
    assert_eq!(call!(c"mknod", name.as_ptr() => *const c_char, mode => u32, 0 => u64), 0);
    assert!(fs::metadata("pipe").unwrap().file_type().is_fifo());
}

/// Creates files until one has the inode of a removed one; returns whether that happened.
fn inode_again(inode: u64) -> bool {
    (0..64).any(|number| {
        let name = format!("again-{number}");
        make(&name);
        fs::metadata(name).unwrap().ino() == inode
    })
}

fn removed_files_are_forgotten() {
    for (call, number) in [(c"unlink", 0), (c"remove", 1)] {
        let name = format!("file-{number}");
        make(&name);
        chown(&name, 5, 6);
        let inode = fs::metadata(&name).unwrap().ino();
        let gone = path(&name);
        assert_eq!(call!(call, gone.as_ptr() => *const c_char), 0);
        inode_again(inode);
        for entry in fs::read_dir(".").unwrap() {
            assert_eq!(owner(entry.unwrap().file_name().to_str().unwrap()), (0, 0));
        }
    }
    fs::create_dir("folder").unwrap();
    chown("folder", 5, 6);
    let (at, folder, flag) = (libc::AT_FDCWD, path("folder"), libc::AT_REMOVEDIR);
    assert_eq!(call!(c"unlinkat", at => c_int, folder.as_ptr() => *const c_char, flag => c_int), 0);
    fs::create_dir("folder").unwrap();
    assert_eq!(owner("folder"), (0, 0));
    chown("folder", 5, 6);
    assert_eq!(call!(c"rmdir", folder.as_ptr() => *const c_char), 0);
    fs::create_dir("folder").unwrap();
    assert_eq!(owner("folder"), (0, 0));
}

fn replaced_files_are_forgotten() {
    for number in 0..2 {
        make("old");
        make("new");
        chown("old", 5, 6);
        chown("new", 7, 8);
        let (at, old, new) = (libc::AT_FDCWD, path("old"), path("new"));
        let (old, new) = (old.as_ptr(), new.as_ptr());
        let result = match number {
            0 => call!(c"rename", old => *const c_char, new => *const c_char),
            _ => call!(c"renameat", at => c_int, old => *const c_char, at => c_int, new => *const c_char),
        };
        assert_eq!((result, owner("new")), (0, (5, 6)));
        make("fresh");
        assert_eq!(owner("fresh"), (0, 0));
        fs::remove_file("fresh").unwrap();
    }
}

fn exchanged_files_are_kept() {
    make("old");
    make("new");
    chown("old", 5, 6);
    chown("new", 7, 8);
    let (at, old, new) = (libc::AT_FDCWD, path("old"), path("new"));
    let flags = libc::RENAME_EXCHANGE;
    let result = call!(c"renameat2", at => c_int, old.as_ptr() => *const c_char, at => c_int,
        new.as_ptr() => *const c_char, flags => u32);
    assert_eq!(result, 0);
    assert_eq!((owner("old"), owner("new")), ((7, 8), (5, 6)));
}

fn links_keep_the_owner() {
    make("file");
    chown("file", 5, 6);
    fs::hard_link("file", "second").unwrap();
    fs::remove_file("file").unwrap();
    assert_eq!(owner("second"), (5, 6));
}

fn a_reused_inode_is_a_new_file() {
    for attempt in 0..16 {
        let name = format!("file-{attempt}");
        make(&name);
        chown(&name, 5, 6);
        chmod(&name, 0o4711);
        let inode = fs::metadata(&name).unwrap().ino();
        // The library does not notice this removal.
        let gone = path(&name);
        let status =
            Command::new("sh").args(["-c", "rm \"$0\"", &name]).env_remove("LD_PRELOAD").status().unwrap();
        assert!(status.success() && !gone.is_empty());
        inode_again(inode);
        for entry in fs::read_dir(".").unwrap() {
            let name = entry.unwrap().file_name();
            assert_eq!(look(name.to_str().unwrap()), (0, 0, 0o644));
        }
    }
}

fn ids(name: &CStr) -> (u32, u32, u32) {
    let (mut real, mut effective, mut saved) = (9, 9, 9);
    let result =
        call!(name, &raw mut real => *mut u32, &raw mut effective => *mut u32, &raw mut saved => *mut u32);
    assert_eq!(result, 0);
    (real, effective, saved)
}

fn identities_start_as_root() {
    for name in [c"getuid", c"geteuid", c"getgid", c"getegid"] {
        assert_eq!(call!(name), 0, "{name:?}");
    }
    assert_eq!((ids(c"getresuid"), ids(c"getresgid")), ((0, 0, 0), (0, 0, 0)));
    assert_eq!(Command::new("id").arg("-u").output().unwrap().stdout, b"0\n");
}

fn identities_over_exec() {
    assert_eq!(call!(c"setresgid", 1 => u32, 2 => u32, 3 => u32), 0);
    assert_eq!(call!(c"setresuid", 4 => u32, 5 => u32, 6 => u32), 0);
    assert_eq!((ids(c"getresgid"), ids(c"getresuid")), ((1, 2, 3), (4, 5, 6)));
    // SAFETY: there is one thread, and the variables are libc's own.
    let output = unsafe { libc_output("id -u; id -ru; id -g; id -rg") };
    assert_eq!(output, "5\n4\n2\n1\n");
}

/// The output of a shell that gets libc's environment instead of Rust's copy.
unsafe fn libc_output(script: &str) -> String {
    let (script, mode) = (path(script), c"r");
    let mut text = vec![0; 4096];
    // SAFETY: NUL-terminated strings and a buffer of ours.
    let length = unsafe {
        let pipe = libc::popen(script.as_ptr(), mode.as_ptr());
        let length = libc::fread(text.as_mut_ptr().cast(), 1, text.len(), pipe);
        libc::pclose(pipe);
        length
    };
    text.truncate(length);
    String::from_utf8(text).unwrap()
}

fn identities_are_checked() {
    assert_eq!(call!(c"seteuid", 5 => u32), 0);
    assert_eq!(ids(c"getresuid"), (0, 5, 0));
    assert_eq!(call!(c"seteuid", 0 => u32), 0);
    assert_eq!(call!(c"setegid", 7 => u32), 0);
    assert_eq!(call!(c"setgid", 8 => u32), 0);
    assert_eq!(ids(c"getresgid"), (8, 8, 8));
    assert_eq!(call!(c"setregid", 9 => u32, 10 => u32), 0);
    assert_eq!(ids(c"getresgid"), (9, 10, 10));
    assert_eq!(call!(c"setfsgid", 3 => u32), 10);
    assert_eq!(call!(c"setfsgid", u32::MAX => u32), 3);
    assert_eq!(call!(c"setfsuid", 4 => u32), 0);
    assert_eq!(call!(c"setuid", 5 => u32), 0);
    assert_eq!(ids(c"getresuid"), (5, 5, 5));
    assert_eq!((call!(c"setuid", 0 => u32), error()), (-1, libc::EPERM));
    assert_eq!((call!(c"setreuid", 0 => u32, 5 => u32), error()), (-1, libc::EPERM));
    let name = path("folder");
    assert_eq!(call!(c"mkdir", name.as_ptr() => *const c_char, 0o755 => u32), 0);
    assert_eq!(owner("folder"), (5, 3));
}

fn groups_are_kept() {
    let mut list = [0u32; 4];
    let groups = [5u32, 6, 7];
    assert_eq!(call!(c"setgroups", 3 => usize, groups.as_ptr() => *const u32), 0);
    assert_eq!(call!(c"getgroups", 4 => c_int, list.as_mut_ptr() => *mut u32), 3);
    assert_eq!(list, [5, 6, 7, 0]);
    assert_eq!((call!(c"getgroups", 1 => c_int, list.as_mut_ptr() => *mut u32), error()), (-1, libc::EINVAL));
    // SAFETY: as in `identities_over_exec`.
    assert_eq!(unsafe { libc_output("id -G") }, "0 5 6 7\n");
    let root = path("root");
    assert_eq!(call!(c"initgroups", root.as_ptr() => *const c_char, 9 => u32), 0);
    assert_eq!(call!(c"getgroups", 4 => c_int, list.as_mut_ptr() => *mut u32), 1);
    assert_eq!(list[0], 9);
}

fn priorities_and_capabilities_are_granted() {
    let (which, who) = (libc::PRIO_PROCESS, 0);
    assert_eq!(call!(c"setpriority", which as c_int => c_int, who => u32, -5 => c_int), 0);
    const VERSION_3: u32 = 0x2008_0522;
    let (header, data) = ([VERSION_3, 0], [u32::MAX, u32::MAX, 0, 0, 0, 0]);
    assert_eq!(call!(c"capset", header.as_ptr() => *const u32, data.as_ptr() => *const u32), 0);
}

/// The value of an attribute, or the error number.
fn attribute(call: &CStr, file: &str, name: &CStr) -> Result<Vec<u8>, i32> {
    let (file, mut value) = (path(file), vec![0u8; 70_000]);
    // SAFETY: the type is that of libc's headers.
    let length = unsafe {
        let function: unsafe extern "C" fn(*const c_char, *const c_char, *mut c_void, usize) -> isize =
            std::mem::transmute(client::find(call));
        function(file.as_ptr(), name.as_ptr(), value.as_mut_ptr().cast(), value.len())
    };
    if length < 0 {
        return Err(error());
    }
    value.truncate(length as usize);
    Ok(value)
}

fn set_attribute(file: &str, name: &CStr, value: &[u8], flags: c_int) -> Result<(), i32> {
    let file = path(file);
    let result = call!(c"setxattr", file.as_ptr() => *const c_char, name.as_ptr() => *const c_char,
        value.as_ptr() => *const u8, value.len() => usize, flags => c_int);
    if result == 0 { Ok(()) } else { Err(error()) }
}

fn names(file: &str) -> Vec<String> {
    let (file, mut list) = (path(file), vec![0u8; 4096]);
    // SAFETY: a path and a buffer.
    let length = unsafe { libc::listxattr(file.as_ptr(), list.as_mut_ptr().cast(), list.len()) };
    assert!(length >= 0, "{}", error());
    let text = String::from_utf8(list[..length as usize].to_vec()).unwrap();
    let mut names: Vec<String> = text.split_terminator('\0').map(str::to_owned).collect();
    names.retain(|name| !name.starts_with("security.selinux"));
    names.sort();
    names
}

fn attributes_of_security() {
    make("file");
    assert_eq!(attribute(c"getxattr", "file", c"security.one"), Err(libc::ENODATA));
    set_attribute("file", c"security.one", b"1", 0).unwrap();
    set_attribute("file", c"security.two", b"22", libc::XATTR_CREATE).unwrap();
    assert_eq!(set_attribute("file", c"security.two", b"3", libc::XATTR_CREATE), Err(libc::EEXIST));
    assert_eq!(set_attribute("file", c"security.three", b"3", libc::XATTR_REPLACE), Err(libc::ENODATA));
    assert_eq!(attribute(c"getxattr", "file", c"security.two"), Ok(b"22".to_vec()));
    assert_eq!(names("file"), ["security.one", "security.two"]);
    let (file, name) = (path("file"), c"security.one");
    assert_eq!(call!(c"removexattr", file.as_ptr() => *const c_char, name.as_ptr() => *const c_char), 0);
    assert_eq!(names("file"), ["security.two"]);
    assert_eq!(attribute(c"getxattr", "file", c"security.one"), Err(libc::ENODATA));
}

fn attributes_by_every_call() {
    let open = make("file");
    let (file, name, value) = (path("file"), c"trusted.x", b"value");
    let (file, name, descriptor) = (file.as_ptr(), name.as_ptr(), open.as_raw_fd());
    let (text, length) = (value.as_ptr(), value.len());
    let mut room = [0u8; 64];
    let to = room.as_mut_ptr();
    assert_eq!(
        call!(c"fsetxattr", descriptor => c_int, name => *const c_char, text => *const u8, length => usize,
        0 => c_int),
        0
    );
    assert_eq!(attribute(c"lgetxattr", "file", c"trusted.x"), Ok(value.to_vec()));
    assert_eq!(
        call!(c"fgetxattr", descriptor => c_int, name => *const c_char, to => *mut u8, 64 => usize),
        5
    );
    assert_eq!(call!(c"fgetxattr", descriptor => c_int, name => *const c_char, to => *mut u8, 0 => usize), 5);
    assert_eq!(
        call!(c"fgetxattr", descriptor => c_int, name => *const c_char, to => *mut u8, 2 => usize),
        -1
    );
    assert_eq!(error(), libc::ERANGE);
    assert!(call!(c"flistxattr", descriptor => c_int, to => *mut u8, 64 => usize) >= 10);
    assert!(call!(c"llistxattr", file => *const c_char, to => *mut u8, 64 => usize) >= 10);
    assert_eq!(call!(c"fremovexattr", descriptor => c_int, name => *const c_char), 0);
    assert_eq!(
        call!(c"lsetxattr", file => *const c_char, name => *const c_char, text => *const u8, length => usize,
        0 => c_int),
        0
    );
    assert_eq!(call!(c"lremovexattr", file => *const c_char, name => *const c_char), 0);
    assert_eq!(names("file"), [""; 0]);
}

fn attributes_of_any_size() {
    make("file");
    let large: Vec<u8> = (0..65_536u32).map(|number| number as u8).collect();
    set_attribute("file", c"security.large", &large, 0).unwrap();
    assert_eq!(attribute(c"getxattr", "file", c"security.large"), Ok(large.clone()));
    assert_eq!(set_attribute("file", c"security.larger", &[&large[..], &[1]].concat(), 0), Err(libc::E2BIG));
}

/// A capability as setcap(8) writes it: version 2, effective, `cap_net_raw`.
const CAPABILITY: [u8; 20] = [1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];

fn attributes_do_not_change_the_owner() {
    make("file");
    set_attribute("file", c"security.capability", &CAPABILITY, 0).unwrap();
    assert_eq!(owner("file"), (0, 0));
    assert_eq!(attribute(c"getxattr", "file", c"security.capability"), Ok(CAPABILITY.to_vec()));
    make("other");
    chown("other", 3, 4);
    set_attribute("other", c"security.capability", &CAPABILITY, 0).unwrap();
    assert_eq!(owner("other"), (3, 4));
}

fn chown_removes_capabilities() {
    make("file");
    set_attribute("file", c"security.capability", &CAPABILITY, 0).unwrap();
    set_attribute("file", c"security.other", b"kept", 0).unwrap();
    chown("file", 3, 4);
    assert_eq!(names("file"), ["security.other"]);
}

fn access_lists_are_refused_as_attributes() {
    make("file");
    let list = [2u8, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255];
    let refused = set_attribute("file", c"system.posix_acl_access", &list, 0);
    assert_eq!(refused, Err(libc::ENOTSUP));
}

fn access_lists_are_refused() {
    make("file");
    let (file, kind) = (path("file"), 0x8000);
    assert_eq!(
        call!(c"acl_set_file", file.as_ptr() => *const c_char, kind => c_int, file.as_ptr() => *const c_char),
        -1
    );
    assert_eq!(error(), libc::ENOTSUP);
    assert_eq!(call!(c"acl_set_fd", 0 => c_int, file.as_ptr() => *const c_char), -1);
    assert_eq!((call!(c"acl_get_fd", 0 => c_int), error()), (0, libc::ENOTSUP));
    assert_eq!(
        (call!(c"acl_get_file", file.as_ptr() => *const c_char, kind => c_int), error()),
        (0, libc::ENOTSUP)
    );
}

fn tree() {
    fs::create_dir_all("tree/inner").unwrap();
    make("tree/known");
    chown("tree/known", 5, 6);
    make("tree/inner/unknown");
}

fn check_visited(name: &str, user: u32) {
    assert_eq!(user, if name == "known" { 5 } else { 0 }, "{name}");
}

fn walks_by_fts() {
    tree();
    let root = path("tree");
    let list = [root.as_ptr().cast_mut(), std::ptr::null_mut()];
    let mut seen = 0;
    // SAFETY: a null-terminated list of paths; the records are fts's own.
    let walk = unsafe {
        let open: unsafe extern "C" fn(*const *mut c_char, c_int, *const c_void) -> *mut c_void =
            std::mem::transmute(client::find(c"fts_open"));
        let read: unsafe extern "C" fn(*mut c_void) -> *mut c_void =
            std::mem::transmute(client::find(c"fts_read"));
        const PHYSICAL: c_int = 0x10;
        let walk = open(list.as_ptr(), PHYSICAL, std::ptr::null());
        loop {
            let found = read(walk);
            if found.is_null() {
                break;
            }
            let (stat, name) = if cfg!(target_arch = "x86_64") { (104, 112) } else { (96, 104) };
            let stat = *found.byte_add(stat).cast::<*const libc::stat>();
            let name = CStr::from_ptr(found.byte_add(name).cast()).to_str().unwrap();
            check_visited(name, (*stat).st_uid);
            seen += 1;
        }
        walk
    };
    call!(c"fts_close", walk => *mut c_void);
    assert_eq!(seen, 6, "two files, and two folders twice");
}

unsafe extern "C" fn visited(
    name: *const c_char,
    stat: *const libc::stat,
    _: c_int,
    place: *mut c_void,
) -> c_int {
    // SAFETY: the arguments are nftw's.
    let (name, user) = unsafe { (CStr::from_ptr(name).to_str().unwrap(), (*stat).st_uid) };
    check_visited(name.rsplit('/').next().unwrap(), user);
    if !place.is_null() && name.ends_with("inner") {
        // A nested walk.
        let inner = path("tree/inner");
        let visit = visited_within as *const c_void;
        assert_eq!(call!(c"ftw", inner.as_ptr() => *const c_char, visit => *const c_void, 4 => c_int), 0);
    }
    0
}

unsafe extern "C" fn visited_within(name: *const c_char, stat: *const libc::stat, kind: c_int) -> c_int {
    // SAFETY: the arguments are ftw's.
    unsafe { visited(name, stat, kind, std::ptr::null_mut()) }
}

fn walks_by_nftw() {
    tree();
    let root = path("tree");
    let visit = visited as *const c_void;
    const FTW_PHYS: c_int = 1;
    for name in [c"nftw", c"nftw64"] {
        let result = call!(name, root.as_ptr() => *const c_char, visit => *const c_void, 4 => c_int,
            FTW_PHYS => c_int);
        assert_eq!(result, 0);
    }
}

/// The result of `syscall`.
fn by_number(number: libc::c_long, a: i64, b: i64, c: i64, d: i64, e: i64) -> i64 {
    // SAFETY: the callers pass the arguments of the call.
    unsafe { libc::syscall(number, a, b, c, d, e) }
}

fn calls_by_their_numbers() {
    const FCHMODAT2: i64 = 452;
    make("file");
    let file = path("file");
    let (at, name) = (i64::from(libc::AT_FDCWD), file.as_ptr() as i64);
    assert_eq!(by_number(libc::SYS_getuid, 0, 0, 0, 0, 0), 0);
    assert_eq!(by_number(libc::SYS_fchownat, at, name, 5, 6, 0), 0);
    assert_eq!(owner("file"), (5, 6));
    assert_eq!(by_number(libc::SYS_fchmodat, at, name, 0o4711, 0, 0), 0);
    assert_eq!(look("file").2, 0o4711);
    let nofollow = i64::from(libc::AT_SYMLINK_NOFOLLOW);
    match by_number(FCHMODAT2, at, name, 0o2640, nofollow, 0) {
        0 => assert_eq!(look("file").2, 0o2640),
        // A kernel before 6.6 does not have the call.
        _ => assert_eq!(error(), libc::ENOSYS),
    }
    let mut stat = client::empty();
    assert_eq!(by_number(libc::SYS_newfstatat, at, name, &raw mut stat as i64, 0, 0), 0);
    assert_eq!((stat.st_uid, stat.st_gid), (5, 6));
    let folder = path("folder");
    assert_eq!(by_number(libc::SYS_mkdirat, at, folder.as_ptr() as i64, 0o050, 0, 0), 0);
    assert_eq!(look("folder").2 & 0o700, 0);
    assert_eq!(by_number(libc::SYS_unlinkat, at, name, 0, 0, 0), 0);
    make("file");
    assert_eq!(owner("file"), (0, 0));
    assert!(by_number(libc::SYS_getpid, 0, 0, 0, 0, 0) > 1);
    let mut numbers = [9u32; 3];
    let [real, effective, saved] = [0, 1, 2].map(|at| &raw mut numbers[at] as i64);
    assert_eq!(by_number(libc::SYS_setresgid, 3, 4, 5, 0, 0), 0);
    assert_eq!(by_number(libc::SYS_getresgid, real, effective, saved, 0, 0), 0);
    assert_eq!(numbers, [3, 4, 5]);
    assert_eq!(by_number(libc::SYS_getegid, 0, 0, 0, 0, 0), 4);
    let (attribute, value) = (path("security.x"), [7u8; 4]);
    let (attribute, from) = (attribute.as_ptr() as i64, value.as_ptr() as i64);
    assert_eq!(by_number(libc::SYS_setxattr, name, attribute, from, 4, 0), 0);
    let mut back = [0u8; 4];
    assert_eq!(by_number(libc::SYS_lgetxattr, name, attribute, back.as_mut_ptr() as i64, 4, 0), 4);
    assert_eq!(back, value);
    assert_eq!(by_number(libc::SYS_removexattr, name, attribute, 0, 0, 0), 0);
    assert_eq!(by_number(libc::SYS_getxattr, name, attribute, 0, 0, 0), -1);
    #[cfg(target_arch = "x86_64")]
    calls_by_their_old_numbers();
}

/// Calls that newer machines do not have.
#[cfg(target_arch = "x86_64")]
fn calls_by_their_old_numbers() {
    make("old");
    let (old, new, folder) = (path("old"), path("new"), path("folder-again"));
    let [old, new, folder] = [&old, &new, &folder].map(|path| path.as_ptr() as i64);
    assert_eq!(by_number(libc::SYS_chown, old, 5, 6, 0, 0), 0);
    assert_eq!(by_number(libc::SYS_chmod, old, 0o4711, 0, 0, 0), 0);
    let mut stat = client::empty();
    for number in [libc::SYS_stat, libc::SYS_lstat] {
        assert_eq!(by_number(number, old, &raw mut stat as i64, 0, 0, 0), 0);
        assert_eq!((stat.st_uid, stat.st_gid, stat.st_mode & 0o7777), (5, 6, 0o4711));
    }
    assert_eq!(by_number(libc::SYS_rename, old, new, 0, 0, 0), 0);
    assert_eq!(owner("new"), (5, 6));
    assert_eq!(by_number(libc::SYS_mkdir, folder, 0o070, 0, 0, 0), 0);
    assert_eq!(look("folder-again").2 & 0o700, 0);
    assert_eq!(by_number(libc::SYS_rmdir, folder, 0, 0, 0, 0), 0);
    assert_eq!(by_number(libc::SYS_unlink, new, 0, 0, 0, 0), 0);
    assert_eq!(by_number(libc::SYS_mknod, new, i64::from(libc::S_IFCHR | 0o600), 0x103, 0, 0), 0);
    assert_eq!(look("new").2, 0o600);
    assert_eq!(by_number(libc::SYS_lchown, new, 8, 9, 0, 0), 0);
    assert_eq!(owner("new"), (8, 9));
}

fn children_see_changes_at_once() {
    make("file");
    for user in 1..20 {
        chown("file", user, user);
        let output = Command::new("stat").args(["-c", "%u %g", "file"]).output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{user} {user}\n"));
    }
}

fn owners_are_real_without_the_library() {
    make("file");
    chown("file", 5, 6);
    let output = Command::new("stat").args(["-c", "%u", "file"]).env_remove("LD_PRELOAD").output().unwrap();
    assert_eq!(String::from_utf8(output.stdout).unwrap(), format!("{}\n", really("file").0));
}

fn thousands_of_entries() {
    const FILES: u32 = 6000;
    let name = |number: u32| format!("folder-{}/file-{number}", number % 7);
    (0..7).for_each(|number| fs::create_dir(format!("folder-{number}")).unwrap());
    for number in 0..FILES {
        make(&name(number));
        chown(&name(number), number + 1, number + 2);
    }
    for number in (0..FILES).step_by(2) {
        fs::remove_file(name(number)).unwrap();
    }
    for number in (1..FILES).step_by(2) {
        let facts = fs::metadata(name(number)).unwrap();
        assert_eq!((facts.uid(), facts.gid()), (number + 1, number + 2));
    }
}
