//! One package for each oddity of bulk builds. Each builds, or fails, in well under a second.

use super::{MiniTree, source};

/// Builds forever; only in trees that add it.
pub const HANGS: (&str, &str) = ("odd/hangs", "do-build:\n\t@echo waiting; sleep 100000");

/// Location, and lines of the Makefile. The name of a package is that of its folder, unless NAME is set.
const PACKAGES: [(&str, &str); 38] = [
    ("chain/app", "DEPENDS= lib>=1.0:../../chain/lib\ndo-build:\n\t@${PREFIX}/bin/lib"),
    ("chain/lib", "DEPENDS= base-[0-9]*:../../chain/base\ndo-build:\n\t@${PREFIX}/bin/base"),
    ("chain/base", ""),
    // A pure build dependency: dependents are built after it, but installed without it.
    ("chain/built-with", "BUILD_DEPENDS= base-[0-9]*:../../chain/base\ndo-build:\n\t@${PREFIX}/bin/base"),
    ("many/versions", "VERSIONS= 1.0 2.0"),
    ("many/on-second", "DEPENDS= versions>=2.0:../../many/versions"),
    ("many/on-first", "DEPENDS= versions-1.0:../../many/versions"),
    ("legal/restricted", "RESTRICTED= it must not be redistributed\nNO_BIN_ON_FTP= ${RESTRICTED}"),
    ("legal/on-restricted", "DEPENDS= restricted-[0-9]*:../../legal/restricted"),
    ("left-out/skipped", "SKIP= it is not for this system"),
    ("left-out/failed", "FAIL= it needs a compiler that does not exist"),
    ("left-out/on-skipped", "DEPENDS= skipped-[0-9]*:../../left-out/skipped"),
    ("left-out/on-missing", "DEPENDS= nowhere-[0-9]*:../../left-out/nowhere"),
    ("left-out/round-a", "DEPENDS= round-b-[0-9]*:../../left-out/round-b"),
    ("left-out/round-b", "DEPENDS= round-a-[0-9]*:../../left-out/round-a"),
    ("best/old", "NAME= best"),
    ("best/new", "NAME= best\nVERSION= 2.0"),
    ("best/on-old", "DEPENDS= best-[0-9]*:../../best/old"),
    ("fails/at-fetch", "DISTFILES= absent-1.0.tar.gz"),
    ("fails/at-checksum", "DISTFILES= other-1.0.tar.gz"),
    (
        "fails/at-configure",
        "do-configure:\n\t@echo 'configure: error: no acceptable moon found' >&2; exit 77",
    ),
    ("fails/at-build", "do-build:\n\t@echo 'main.c:1: error: expected a program' >&2; exit 1"),
    ("fails/at-install", "do-install:\n\t@install -m 644 absent ${DESTDIR}${PREFIX}/absent"),
    ("fails/at-package", ""),
    ("fails/at-add", ""),
    ("fails/at-delete", ""),
    ("fails/by-another", "DEPENDS= at-build-[0-9]*:../../fails/at-build"),
    ("distfile/single", "DISTFILES= single-1.0.tar.gz\ndo-build:\n\t@cat ${WRKSRC}/content"),
    (
        "distfile/shared-a",
        "DISTFILES= shared-1.0.tar.gz\nWRKSRC= ${WRKDIR}/shared-1.0\ndo-build:\n\t@cat ${WRKSRC}/content",
    ),
    (
        "distfile/shared-b",
        "DISTFILES= shared-1.0.tar.gz\nWRKSRC= ${WRKDIR}/shared-1.0\ndo-build:\n\t@cat ${WRKSRC}/content",
    ),
    (
        "distfile/by-hand",
        "DISTFILES= by-hand-1.0.tar.gz\nINTERACTIVE_STAGE= fetch\n_FETCH_MESSAGE= sign the contract and fetch it",
    ),
    ("distfile/patched", "DISTFILES= patched-1.0.tar.gz\ndo-build:\n\t@grep after ${WRKSRC}/content"),
    ("odd/user", "USERGROUP_PHASE= pre-configure\ndo-configure:\n\t@grep '^_user:' /etc/passwd"),
    (
        "odd/as-root",
        "USE_DESTDIR= destdir\ndo-install:\n\t@test $$(id -u) = 0\n\t@install -o 1 -m 600 /dev/null ${DESTDIR}${PREFIX}/of-another",
    ),
    (
        "odd/loud",
        "do-build:\n\t@seq -f '%.0f: a line such as compilers print, of about eighty characters' 60000",
    ),
    // The process keeps the log open. The short sleep gives it time to start.
    ("odd/leaves-a-process", "do-build:\n\t@setsid sleep 1000 & sleep 0.2"),
    ("odd/one-job", "MAKE_JOBS_SAFE= no\ndo-build:\n\t@echo ${_MAKE_JOBS} jobs; test ${_MAKE_JOBS} = 1"),
    ("odd/not-parallel", "do-build:\n\t@echo ${_MAKE_JOBS} jobs; test ${_MAKE_JOBS} = 1"),
];

/// A patch in the format of pkgsrc.
const PATCH: &str = "\
$NetBSD$

--- content.orig\t2026-01-01 00:00:00
+++ content
@@ -1 +1 @@
-before
+after
";

impl MiniTree {
    /// A tree of all odd packages.
    pub fn odd() -> MiniTree {
        MiniTree::odd_and(&[])
    }

    /// A tree of all odd packages and some more.
    pub fn odd_and(more: &[(&str, &str)]) -> MiniTree {
        let tree = MiniTree::new(&[&PACKAGES[..], more].concat());
        tree.write("fails/at-package/PLIST", "@comment $NetBSD$\nbin/at-package\nshare/at-package/absent\n");
        let install = "#!/bin/sh\necho \"$1: $2\"\ntest \"$2\" != POST-INSTALL\n";
        tree.write("fails/at-add/INSTALL", install);
        let deinstall = "#!/bin/sh\necho \"$1: $2\"\ntest \"$2\" != DEINSTALL\n";
        tree.write("fails/at-delete/DEINSTALL", deinstall);
        tree.write("distfile/patched/patches/patch-content", PATCH);
        for (location, name, text) in [
            ("fails/at-checksum", "other", "what was meant\n"),
            ("distfile/single", "single", "a source\n"),
            ("distfile/shared-a", "shared", "a source of two\n"),
            ("distfile/shared-b", "shared", "a source of two\n"),
            ("distfile/patched", "patched", "before\n"),
            // In distinfo, but not on any site.
            ("fails/at-fetch", "absent", "never to be seen\n"),
            ("distfile/by-hand", "by-hand", "only for who signed\n"),
        ] {
            let source = source(&format!("{name}-1.0"), text);
            tree.distfile(location, &format!("{name}-1.0.tar.gz"), &source);
        }
        for name in ["absent", "by-hand"] {
            std::fs::remove_file(tree.sites().join(format!("{name}-1.0.tar.gz"))).unwrap();
        }
        // The same length as the correct file, so that only the hash differs.
        let path = tree.sites().join("other-1.0.tar.gz");
        let mut bytes = std::fs::read(&path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(path, bytes).unwrap();
        tree.settle();
        tree
    }
}
