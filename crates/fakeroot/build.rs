//! Compiles the preload library, which the launcher carries in itself.
//!
//! Cargo cannot put one artifact of a workspace into another on the stable compiler, so the compiler is called
//! here. The linker's flags are what makes an exec with the library cheap: as few segments and relocations as can
//! be, no library beside it, nothing to be done when it is loaded.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=preload");
    println!("cargo::rerun-if-changed=src/shared");
    let variable = |name: &str| env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"));
    let out = PathBuf::from(variable("OUT_DIR")).join("libfakeroot-kilnyard.so");
    let mut compiler = Command::new(variable("RUSTC"));
    compiler.args(["--edition", "2024", "--crate-type", "cdylib", "--crate-name", "fakeroot_preload"]);
    compiler.args(["--target", &variable("TARGET"), "-o"]).arg(&out);
    compiler.args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "lto=fat", "-C", "codegen-units=1"]);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        compiler.arg("-C").arg(format!("linker={linker}"));
    }
    let flags = [
        "-nostartfiles",
        "-nostdlib",
        // It puts everything into two segments, and the compiler's own linker into three.
        "-fuse-ld=bfd",
        "-Wl,-z,noseparate-code",
        "-Wl,-z,norelro",
        "-Wl,--hash-style=gnu",
        "-Wl,--build-id=none",
        "-Wl,-soname,libfakeroot-kilnyard.so",
        "-s",
    ];
    for flag in flags {
        compiler.arg("-C").arg(format!("link-arg={flag}"));
    }
    compiler.args(["-C", "default-linker-libraries=no", "-C", "relro-level=off"]);
    compiler.arg("preload/lib.rs");
    let status = compiler.status().unwrap_or_else(|error| panic!("failed to start the compiler: {error}"));
    assert!(status.success(), "failed to compile the preload library: {status}");
}
