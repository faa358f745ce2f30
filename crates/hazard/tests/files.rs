//! Files that real assemblers and archivers made.

use kilnyard_hazard::{Architecture, Found, Hazard, scan, scan_file};
use std::fs;
use std::path::Path;
use std::process::Command;

fn run(program: &str, arguments: &[&str], folder: &Path) {
    let output = Command::new(program).args(arguments).current_dir(folder).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

const ARM: &str = "arm-linux-gnueabihf-";

/// ARM and Thumb code with each hazard, and the same patterns as data.
const ARM_SOURCE: &str = "
.arch armv7-a
.syntax unified
.text
.globl _start
.arm
_start:
  push {r4, lr}
  mov r0, #0
  mcr p15, 0, r0, c7, c10, 5
  mcr p15, 0, r3, c7, c10, 4
  add r0, r0, #1
  swp r1, r2, [r3]
  swpb r4, r5, [r6]
  add r0, r0, #1
  sub r1, r1, #1
  setend be
  setend le
  mcr p15, 0, r0, c7, c5, 0
  pop {r4, pc}
  .word 0xe1013092, 0xb650b650, 0xf1010200
.thumb
second:
  push {r4, lr}
  mcr p15, 0, r0, c7, c5, 4
  setend be
  ldr.w r5, [r0, #0x650]
  pop {r4, pc}
.section .rodata
  .word 0xee070fba
";

fn arm(folder: &Path) -> Vec<u8> {
    fs::write(folder.join("arm.s"), ARM_SOURCE).unwrap();
    run(&format!("{ARM}as"), &["-o", "arm.o", "arm.s"], folder);
    run(&format!("{ARM}ld"), &["-o", "arm", "arm.o"], folder);
    fs::read(folder.join("arm")).unwrap()
}

fn counts(found: &Found) -> Vec<(Hazard, u64)> {
    found.counts.iter().map(|(hazard, count)| (*hazard, *count)).collect()
}

#[test]
fn arm_code_is_searched_as_its_symbols_say() {
    let folder = tempfile::tempdir().unwrap();
    let linked = arm(folder.path());
    let all = [(Hazard::Cp15Barrier, 3), (Hazard::Setend, 3), (Hazard::Swp, 2)];
    for content in [linked.clone(), fs::read(folder.path().join("arm.o")).unwrap()] {
        let (architecture, found) = scan_file(&content).unwrap();
        assert_eq!((architecture, &counts(&found)[..]), (Architecture::Arm, &all[..]));
        assert!(found.code_bytes > 60 && !found.asks_processor);
    }
    // Without symbols, data in code looks like instructions: SETEND is not believed.
    run(&format!("{ARM}strip"), &["arm"], folder.path());
    let (_, found) = scan_file(&fs::read(folder.path().join("arm")).unwrap()).unwrap();
    assert_eq!(found.counts[&Hazard::Cp15Barrier], 3);
    assert_eq!(found.counts.get(&Hazard::Setend), None);
    assert_eq!(found.counts[&Hazard::Swp], 2);
    // Without sections, segments are searched, and the constant is in the same one.
    let mut bare = linked;
    bare[32..36].fill(0);
    bare[46..52].fill(0);
    assert_eq!(scan_file(&bare).unwrap().1.counts[&Hazard::Cp15Barrier], 4);
}

/// Eight instructions that are on every processor.
const PLAIN: &str = "
  mov %rdi, %rax
  add $1, %rax
  imul %rsi, %rax
  xor %edx, %edx
  mov %rdi, %rax
  add $1, %rax
  imul %rsi, %rax
  tzcnt %rax, %rcx
";

fn x86(folder: &Path, instructions: &str) -> Found {
    let source = format!(".text\n.globl _start\n_start:\n{PLAIN}{instructions}{PLAIN}  ret\n");
    fs::write(folder.join("x86.s"), source).unwrap();
    run("as", &["--64", "-o", "x86.o", "x86.s"], folder);
    run("ld", &["-o", "x86", "x86.o"], folder);
    let (architecture, found) = scan_file(&fs::read(folder.join("x86")).unwrap()).unwrap();
    assert_eq!(architecture, Architecture::X86);
    found
}

#[test]
fn x86_instructions_have_the_level_that_they_need() {
    let folder = tempfile::tempdir().unwrap();
    let found = x86(folder.path(), "");
    assert!(found.is_empty() && !found.asks_processor, "{found:?}");
    for (instructions, hazard) in [
        ("popcnt %rax, %rax", Hazard::X86V2),
        ("pshufb %xmm1, %xmm2", Hazard::X86V2),
        ("vaddps %ymm0, %ymm1, %ymm2", Hazard::X86V3),
        ("lzcnt %rax, %rax", Hazard::X86V3),
        ("shlx %rax, %rbx, %rcx", Hazard::X86V3),
        ("vaddps %zmm0, %zmm1, %zmm2", Hazard::X86V4),
        ("aesenc %xmm0, %xmm1", Hazard::X86Extension),
    ] {
        let found = x86(folder.path(), &format!("  {instructions}\n"));
        assert_eq!(counts(&found), [(hazard, 1)], "{instructions}");
        assert_eq!(found.extensions.contains_key("AES"), hazard == Hazard::X86Extension);
    }
    assert!(x86(folder.path(), "  cpuid\n").asks_processor);
    // Bytes that are no code have no code around them.
    assert!(x86(folder.path(), "  .byte 0x06, 0xf3, 0x48, 0x0f, 0xb8, 0xc0, 0x06\n").is_empty());
}

#[test]
fn a_note_says_what_the_loader_needs() {
    let folder = tempfile::tempdir().unwrap();
    x86(folder.path(), "");
    run("ld", &["-z", "x86-64-v3", "-o", "x86", "x86.o"], folder.path());
    let (_, found) = scan_file(&fs::read(folder.path().join("x86")).unwrap()).unwrap();
    assert_eq!(found.needed, Some(Hazard::X86V3));
}

#[test]
fn packages_and_folders_are_searched_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    arm(path);
    fs::create_dir_all(path.join("tree/usr/bin")).unwrap();
    fs::rename(path.join("arm"), path.join("tree/usr/bin/arm")).unwrap();
    fs::write(path.join("tree/text"), "no program").unwrap();
    std::os::unix::fs::symlink("/", path.join("tree/usr/all")).unwrap();
    let names = |path: &Path| {
        let mut names = Vec::new();
        scan(path, &mut |name, _, found| {
            assert_eq!(found.counts[&Hazard::Cp15Barrier], 3);
            names.push(name.to_owned());
        })
        .unwrap();
        names
    };
    assert_eq!(names(&path.join("tree")), [path.join("tree/usr/bin/arm").display().to_string()]);
    for (option, name) in [("-cf", "a.tar"), ("-czf", "a.tgz"), ("-cJf", "a.tar.xz")] {
        run("tar", &[option, name, "-C", "tree", "."], path);
        assert_eq!(names(&path.join(name)), [format!("{}:./usr/bin/arm", path.join(name).display())]);
    }
    fs::create_dir(path.join("tree/DEBIAN")).unwrap();
    let control =
        "Package: a\nVersion: 1\nArchitecture: armhf\nMaintainer: A <a@example.org>\nDescription: a\n";
    fs::write(path.join("tree/DEBIAN/control"), control).unwrap();
    for compressor in ["xz", "zstd", "none"] {
        run("dpkg-deb", &["--root-owner-group", "-Z", compressor, "-b", "tree", "a.deb"], path);
        let found = names(&path.join("a.deb"));
        assert!(found.len() == 1 && found[0].ends_with(":./usr/bin/arm"), "{found:?}");
    }
    fs::remove_dir_all(path.join("tree/DEBIAN")).unwrap();
    let spec = format!(
        "Name: a\nVersion: 1\nRelease: 1\nSummary: a\nLicense: MIT\nBuildArch: noarch\n%description\na\n%install\n\
         mkdir -p %{{buildroot}}\ncp -r {}/. %{{buildroot}}/\n%files\n/text\n/usr/all\n/usr/bin/arm\n",
        path.join("tree").display()
    );
    fs::write(path.join("a.spec"), spec).unwrap();
    let top = format!("_topdir {}", path.join("rpm").display());
    for payload in ["w6.gzdio", "w2.xzdio", "w3.zstdio"] {
        let payload = format!("_binary_payload {payload}");
        let defines = [
            &top,
            &payload,
            "_binaries_in_noarch_packages_terminate_build 0",
            "__os_install_post %{nil}",
            "_build_id_links none",
        ];
        let defines: Vec<&str> = defines.into_iter().flat_map(|define| ["--define", define]).collect();
        run("rpmbuild", &[&["-bb", "--quiet", "a.spec"], &defines[..]].concat(), path);
        let found = names(&path.join("rpm/RPMS/noarch/a-1-1.noarch.rpm"));
        assert!(found.len() == 1 && found[0].ends_with(":usr/bin/arm"), "{found:?}");
    }
    let text = scan(&path.join("tree/text"), &mut |_, _, _| ()).unwrap_err().to_string();
    assert!(text.contains("neither an ELF file for ARM or x86-64 nor a package"), "{text}");
}

#[test]
fn damaged_files_end_with_an_error_or_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let whole = arm(folder.path());
    // Every byte of the header changed, and every length.
    for at in 0..52 {
        for value in [0, 0xff] {
            let mut content = whole.clone();
            content[at] = value;
            let _ = scan_file(&content);
        }
    }
    for length in (0..whole.len()).step_by(97) {
        let _ = scan_file(&whole[..length]);
    }
    let path = folder.path().join("a.deb");
    fs::write(&path, b"!<arch>\ndebian-binary   0           0     0     100644  99999999999`\n2.0").unwrap();
    assert!(scan(&path, &mut |_, _, _| ()).is_err());
    // The archive of files is in no form that is read: it is not taken for one without programs.
    fs::write(&path, b"!<arch>\ndata.tar.bz2    0           0     0     100644  4         `\nBZh9").unwrap();
    let error = scan(&path, &mut |_, _, _| ()).unwrap_err().to_string();
    assert!(error.ends_with("data.tar.bz2 is compressed in an unknown form"), "{error}");
    let path = folder.path().join("a.rpm");
    fs::write(&path, [&[0xed, 0xab, 0xee, 0xdb][..], &[0; 92], &[0x8e, 0xad, 0xe8, 1], &[0xff; 12]].concat())
        .unwrap();
    assert!(scan(&path, &mut |_, _, _| ()).is_err());
    // Each section is the whole file.
    let sections = u16::from_le_bytes([whole[48], whole[49]]);
    let table = u32::from_le_bytes(whole[32..36].try_into().unwrap()) as usize;
    let mut content = whole.clone();
    for number in 1..usize::from(sections) {
        let header = table + number * 40;
        content[header + 4..header + 12].copy_from_slice(&[1, 0, 0, 0, 4, 0, 0, 0]);
        content[header + 16..header + 20].fill(0);
        content[header + 20..header + 24].copy_from_slice(&(whole.len() as u32).to_le_bytes());
    }
    assert_eq!(scan_file(&content), None);
}
