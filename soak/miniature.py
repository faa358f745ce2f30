"""A pkgsrc tree of small C programs, with the makefiles and tools of the tests, for trials of a farm."""

import os
import shutil
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
RULES = os.path.join(ROOT, "crates/kilnyard/tests/support/pkgsrc")
PACKAGES = 90
CATEGORIES = ("apps", "devel", "libs")
# Seconds that make of a directory takes, as that of pkgsrc's own makefiles does.
SCAN_SECONDS = 0.4

PROGRAM = r"""
#include <stdio.h>
#include <string.h>

static unsigned long mixed(const char *text) {
    unsigned long sum = NUMBER;
    for (size_t at = 0; at < strlen(text); at++) sum = sum * 31 + (unsigned char)text[at];
    return sum;
}

int main(int count, char **words) {
    for (int at = 0; at < count; at++) printf("%lu\n", mixed(words[at]));
    return 0;
}
"""

MAKEFILE = """# $NetBSD$
NAME= {name}
VERSION= 1.0
WAITED!= sleep {scan}; echo waited
DEPENDS= {depends}
do-build:
\t@sed s/NUMBER/{number}ul/ ${{.CURDIR}}/files/program.c > ${{WRKSRC}}/program.c
\t@cc -O2 -g0 -o ${{WRKSRC}}/{name} ${{WRKSRC}}/program.c
\t@sleep {pause}
do-install:
\t@mkdir -p ${{DESTDIR}}${{PREFIX}}/bin ${{DESTDIR}}${{PREFIX}}/share/{name}
\t@cp ${{WRKSRC}}/{name} ${{DESTDIR}}${{PREFIX}}/bin/{name}
\t@for needed in {needed}; do /usr/pkg/bin/$$needed a b; done > ${{DESTDIR}}${{PREFIX}}/share/{name}/sums
.include "../../mk/pkg.mk"
"""


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)


def location(number):
    return f"{CATEGORIES[number % len(CATEGORIES)]}/p{number:02}"


def needs(number):
    """A few packages at the bottom, and chains of up to seven above them."""
    return sorted({number // 2, number // 3} - {number}) if number > 5 else []


def makefile(number):
    needed = [location(other) for other in needs(number)]
    return MAKEFILE.format(
        name=f"p{number:02}",
        number=number + 7,
        scan=SCAN_SECONDS,
        pause=number % 4,
        depends=" ".join(f"{path.split('/')[1]}>=1:../../{path}" for path in needed),
        needed=" ".join(path.split("/")[1] for path in needed),
    )


def make_tree(folder, packages=PACKAGES, makefile=makefile):
    """Makes the tree, and the kit of its tools; returns their paths. `makefile` returns that of a package, by its number."""
    tree, kit = os.path.join(folder, "tree"), os.path.join(folder, "kit")
    for name in ("pkg.mk", "subdir.mk", "distfiles"):
        os.makedirs(os.path.join(tree, "mk"), exist_ok=True)
        shutil.copy(os.path.join(RULES, name), os.path.join(tree, "mk"))
    write(os.path.join(tree, "mk/sites.mk"), "MASTER_SITES?=\tfile:///sites/\n")
    write(os.path.join(tree, "Makefile"), f"SUBDIR= {' '.join(CATEGORIES)}\n.include \"mk/subdir.mk\"\n")
    for category in CATEGORIES:
        members = [location(n) for n in range(packages) if location(n).startswith(category)]
        names = " ".join(member.split("/")[1] for member in members)
        write(os.path.join(tree, category, "Makefile"), f"SUBDIR= {names}\n.include \"../mk/subdir.mk\"\n")
    for number in range(packages):
        write(os.path.join(tree, location(number), "Makefile"), makefile(number))
        write(os.path.join(tree, location(number), "files/program.c"), PROGRAM)
    for tool in ("pkg_add", "pkg_admin", "pkg_create", "pkg_delete", "pkg_info"):
        with open(os.path.join(RULES, tool)) as file:
            write(os.path.join(kit, "usr/pkg/sbin", tool), file.read(), 0o755)
    write(os.path.join(kit, "usr/pkg/etc/mk.conf"), "PKG_DBDIR=\t/usr/pkg/pkgdb\nLOCALBASE=\t/usr/pkg\n")
    os.makedirs(os.path.join(kit, "usr/pkg/pkgdb"))
    archive = os.path.join(folder, "kit.tar.gz")
    subprocess.run(
        ["tar", "--sort=name", "--owner=0", "--group=0", "--numeric-owner", "-czf", archive, "./usr"], cwd=kit, check=True
    )
    return tree, archive
