//! Compiles the preload library and the gate, which are embedded in the launcher.
//!
//! Cargo cannot embed one artifact of a workspace in another on the stable compiler, so this script calls the
//! compiler itself. The linker flags and the linker script keep an exec with the library cheap: as few segments,
//! pages and relocations as possible, no dependency on other libraries, and no work at load time.

#![allow(clippy::disallowed_methods, reason = "Cargo passes its settings in variables")]

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    for folder in ["preload", "gate", "src/shared"] {
        println!("cargo::rerun-if-changed={folder}");
    }
    let script = format!("-Wl,-T,{}/preload/layout.ld", variable("CARGO_MANIFEST_DIR"));
    let library = [
        &script[..],
        "-nostartfiles",
        "-nostdlib",
        // The script is written for this linker.
        "-fuse-ld=bfd",
        "-Wl,-z,norelro",
        "-Wl,--hash-style=gnu",
        "-Wl,--build-id=none",
        // Calls to its own functions need no symbol.
        "-Wl,-Bsymbolic-functions",
        "-Wl,-soname,libfakeroot-kilnyard.so",
        "-s",
    ];
    let is_x86_64 = env::var("CARGO_CFG_TARGET_ARCH").is_ok_and(|architecture| architecture == "x86_64");
    let own = ["memcpy", "memmove", "memset", "bcmp", "strlen"]
        .map(|name| format!("-Wl,--defsym={name}=kilnyard_{name}"));
    let own = own.iter().map(String::as_str).filter(|_| is_x86_64);
    let library: Vec<&str> = library.into_iter().chain(own).collect();
    compile("cdylib", "preload/lib.rs", "libfakeroot-kilnyard.so", &library, &[]);
    let program =
        ["-nostartfiles", "-nostdlib", "-static", "-no-pie", "-fuse-ld=bfd", "-Wl,--build-id=none", "-s"];
    let more = ["-C", "relocation-model=static", "-C", "target-feature=+crt-static"];
    compile("bin", "gate/main.rs", "gate", &program, &more);
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo must set {name}"))
}

fn compile(kind: &str, source: &str, to: &str, link: &[&str], more: &[&str]) {
    let out = PathBuf::from(variable("OUT_DIR")).join(to);
    let mut compiler = Command::new(variable("RUSTC"));
    compiler.args(["--edition", "2024", "--crate-type", kind, "--crate-name", "fakeroot_part"]);
    compiler.args(["--target", &variable("TARGET"), "-o"]).arg(&out);
    compiler.args(["-C", "opt-level=s", "-C", "panic=abort", "-C", "lto=fat", "-C", "codegen-units=1"]);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        compiler.arg("-C").arg(format!("linker={linker}"));
    }
    for flag in link {
        compiler.arg("-C").arg(format!("link-arg={flag}"));
    }
    compiler.args(["-C", "default-linker-libraries=no", "-C", "relro-level=off"]).args(more);
    compiler.arg(source);
    let status = compiler.status().unwrap_or_else(|error| panic!("failed to start the compiler: {error}"));
    assert!(status.success(), "failed to compile {source}: {status}");
}
