//! Files in a root: the content of layers appears unchanged, and all file operations work.

use crate::Test;
use crate::stand::{PLAIN, Stand};
use kilnyard_root::User;
use std::fs;

pub const TESTS: &[Test] = &[
    ("layers_are_seen_as_they_are", layers_are_seen_as_they_are),
    ("upper_layers_hide_what_they_should", upper_layers_hide_what_they_should),
    ("owners_and_modes_can_be_changed", owners_and_modes_can_be_changed),
    ("links_go_across_folders", links_go_across_folders),
    ("attributes_and_capabilities_are_kept", attributes_and_capabilities_are_kept),
    ("folders_of_layers_can_be_moved", folders_of_layers_can_be_moved),
    ("removed_files_can_be_made_again", removed_files_can_be_made_again),
    ("programs_run", programs_run),
    ("sockets_and_pipes_connect", sockets_and_pipes_connect),
    ("large_files_have_holes", large_files_have_holes),
    ("written_files_are_found_outside", written_files_are_found_outside),
];

fn layers_are_seen_as_they_are(stand: &Stand) {
    let types = "stat -c '%n %F' file folder folder/link pipe socket";
    let expected =
        "file regular file\nfolder directory\nfolder/link symbolic link\npipe fifo\nsocket socket\n";
    assert_eq!(stand.run(PLAIN, types), expected);
    // The ACL's mask replaces the group permission bits.
    let described =
        stand.run(User::Root, "stat -c '%u:%g %a %y' file; cat file; getfacl -cn file | grep 1234");
    assert_eq!(described, "7:8 4750 2001-02-03 04:05:06.789000000 +0000\nbelow\nuser:1234:r--\n");
    assert_eq!(
        stand.run(PLAIN, "stat -c '%u:%g %a' folder folder/deeper tmp"),
        "5:6 2775\n1000:1000 755\n0:0 1777\n"
    );
    let same =
        stand.run(User::Root, "stat -c '%h' first folder/second; cat folder/second; readlink folder/link");
    assert_eq!(same, "2\n2\nshared\n../file\n");
}

fn upper_layers_hide_what_they_should(stand: &Stand) {
    assert_eq!(stand.run(PLAIN, "ls folder opaque; ls gone 2>/dev/null || echo gone"), {
        "folder:\nabove\ndeeper\nlink\nsecond\n\nopaque:\nshown\ngone\n"
    });
    assert_eq!(stand.run(PLAIN, "stat -c %F becomes-folder becomes-file"), "directory\nregular file\n");
}

fn owners_and_modes_can_be_changed(stand: &Stand) {
    stand.run(
        User::Root,
        "chown 9:10 file folder/deeper; chmod 2711 folder/deeper; chmod 0604 file; chown -h 3:4 folder/link",
    );
    assert_eq!(stand.run(PLAIN, "stat -c '%u:%g %a' file folder/deeper"), "9:10 604\n9:10 2711\n");
    assert_eq!(stand.run(PLAIN, "stat -c '%u:%g' folder/link"), "3:4\n");
    // An ordinary user can change only its own files.
    stand.run(PLAIN, "chmod 700 folder/deeper/text");
    assert_ne!(stand.fails(PLAIN, "chmod 700 file").0, 0);
    assert_ne!(stand.fails(PLAIN, "chown 1000 file").0, 0);
}

fn links_go_across_folders(stand: &Stand) {
    // For a file of a layer, an overlay shows two inode numbers after that, so this is checked only for a new file.
    let script = "cp file fresh && ln fresh folder/again && mkdir new && ln folder/above new/above &&
        echo more >> new/above && cat folder/above && test fresh -ef folder/again && stat -c %h fresh new/above";
    assert_eq!(stand.run(User::Root, script), "above\nmore\n2\n2\n");
    // A file with two names in a layer is never changed, whatever happens in the layer above.
    stand.run(User::Root, "echo changed > first");
    assert_eq!(fs::read_to_string(stand.path("layers/below/first")).unwrap(), "shared\n");
    assert_eq!(fs::read_to_string(stand.path("layers/below/folder/second")).unwrap(), "shared\n");
}

fn attributes_and_capabilities_are_kept(stand: &Stand) {
    let look = "getfattr --only-values -n user.colour file; echo; getcap capable";
    assert_eq!(stand.run(User::Root, look), "blue\ncapable cap_chown=ep\n");
    let change = "cp -a file copy && setfattr -n user.colour -v red file && setcap cap_fowner=ep capable";
    stand.run(User::Root, change);
    assert_eq!(stand.run(User::Root, look), "red\ncapable cap_fowner=ep\n");
    assert_eq!(stand.run(User::Root, "getfattr --only-values -n user.colour copy"), "blue");
}

fn folders_of_layers_can_be_moved(stand: &Stand) {
    stand.run(User::Root, "mv folder moved && mv moved/deeper/text moved/text");
    let seen = "ls -d folder 2>/dev/null; ls moved; cat moved/text moved/above; stat -c '%u:%g %a' moved";
    assert_eq!(stand.run(PLAIN, seen), "above\ndeeper\nlink\nsecond\ntext\ndeep\nabove\n5:6 2775\n");
}

fn removed_files_can_be_made_again(stand: &Stand) {
    stand.run(User::Root, "rm -r folder file && mkdir folder && echo new > file && echo back > gone");
    assert_eq!(
        stand.run(PLAIN, "ls -A folder; cat file gone; stat -c '%u %a' folder file"),
        "new\nback\n0 755\n0 644\n"
    );
    stand.run(User::Root, "rm -r folder file && mkdir file && echo folder > folder && rm gone");
    assert_eq!(
        stand.run(PLAIN, "ls -A file; cat folder; ls gone 2>/dev/null || echo gone"),
        "folder\ngone\n"
    );
    for _ in 0..3 {
        stand.run(User::Root, "rm -rf opaque && mkdir -p opaque/a/b && echo x > opaque/a/b/c");
    }
    assert_eq!(stand.run(PLAIN, "find opaque | sort"), "opaque\nopaque/a\nopaque/a/b\nopaque/a/b/c\n");
}

fn programs_run(stand: &Stand) {
    let script = "cp /usr/bin/cat own && printf '#!/own\\nthis\\n' > script && chmod 755 script && ./script && /tmp/x 2>/dev/null || echo none";
    assert_eq!(stand.run(User::Root, script), "#!/own\nthis\nnone\n");
    // Programs do not gain ids or capabilities from their files.
    assert_eq!(stand.run(PLAIN, "./capable && ./setuid-id -u"), "1000\n");
    assert_eq!(stand.run(User::Root, "./capable && ./setuid-id -u"), "0\n");
}

fn sockets_and_pipes_connect(stand: &Stand) {
    let script = r#"python3 -c '
import os, socket
server = socket.socket(socket.AF_UNIX)
server.bind("/tmp/new")
server.listen()
client = socket.socket(socket.AF_UNIX)
client.connect("/tmp/new")
client.send(b"heard")
print(server.accept()[0].recv(9).decode())
'
mkfifo /tmp/new-pipe
echo through > /tmp/new-pipe & cat /tmp/new-pipe; wait"#;
    assert_eq!(stand.run(PLAIN, script), "heard\nthrough\n");
}

fn large_files_have_holes(stand: &Stand) {
    let script = "truncate -s 5G /tmp/large && printf end | dd of=/tmp/large bs=1 seek=4294967300 conv=notrunc 2>/dev/null &&
        stat -c '%s' /tmp/large && dd if=/tmp/large bs=1 skip=4294967300 count=3 2>/dev/null &&
        test $(stat -c %b /tmp/large) -lt 1000";
    assert_eq!(stand.run(PLAIN, script), "5368709120\nend");
}

fn written_files_are_found_outside(stand: &Stand) {
    stand.run(PLAIN, "echo out > /tmp/output && umask 022 && mkdir /tmp/outputs && echo 1 > /tmp/outputs/1");
    assert_eq!(fs::read_to_string(stand.written("tmp/output")).unwrap(), "out\n");
    assert_eq!(fs::read_dir(stand.written("tmp/outputs")).unwrap().count(), 1);
    // The layers are unchanged.
    assert!(!stand.path("layers/below/tmp/output").exists() && !stand.path("layers/above/tmp").exists());
}
