# Included by every package's Makefile: pkgsrc's rules in miniature.
#
# A package sets NAME and VERSION, or VERSIONS if its directory makes several versions: the first one unless
# VERSION_REQD names another. It may have targets do-configure, do-build, do-test and do-install, and in its directory
# distinfo, PLIST, files, patches, INSTALL and DEINSTALL.

MK:=		${.PARSEDIR}
MAKECONF?=	/usr/pkg/etc/mk.conf
.if exists(${MAKECONF})
.  include "${MAKECONF}"
.endif
.include "sites.mk"

.MAIN: all
.NOTPARALLEL:

LOCALBASE?=	/usr/pkg
PREFIX=		${LOCALBASE}
PKG_DBDIR?=	${LOCALBASE}/pkgdb
DISTDIR?=	${.CURDIR}/../../distfiles
PACKAGES?=	${.CURDIR}/../../packages
WRKOBJDIR?=	${.CURDIR}/../../work

VERSIONS?=	${VERSION}
PKGVERSION=	${VERSION_REQD:U${VERSIONS:[1]}}
PKGNAME=	${NAME}-${PKGVERSION}
PKGPATH=	${.CURDIR:H:T}/${.CURDIR:T}
PKGFILE=	${PACKAGES}/All/${PKGNAME}.tgz
CATEGORIES?=	${.CURDIR:H:T}
COMMENT?=	The ${NAME} of a miniature
HOMEPAGE?=	https://example.org/${NAME}/
LICENSE?=	mit
USE_DESTDIR?=	user-destdir
ALL_DEPENDS=	${BUILD_DEPENDS} ${DEPENDS}
# Tests run with the build, and have dependencies, only on request.
PKGSRC_RUN_TEST?=	no
.if ${PKGSRC_RUN_TEST:tl} == "yes"
_TEST_TARGET=	test
BUILD_DEPENDS+=	${TEST_DEPENDS}
.endif
# Only the patterns, quoted for the shell.
PATTERNS=	${DEPENDS:C/:.*//:O:u:@pattern@'${pattern}'@}
BUILD_PATTERNS=	${BUILD_DEPENDS:C/:.*//:O:u:@pattern@'${pattern}'@}

WRKDIR=		${WRKOBJDIR}/${PKGPATH}/work
WRKSRC?=	${WRKDIR}/${PKGNAME}
DESTDIR=	${WRKDIR}/.destdir
PLIST=		${WRKDIR}/.PLIST
METADATA=	${WRKDIR}/.metadata
PKG_INFO=	pkg_info -K ${PKG_DBDIR}

# The number of jobs that do-build passes to commands that run several jobs.
.if ${MAKE_JOBS_SAFE:U:tl} == "no"
_MAKE_JOBS=	1
.else
_MAKE_JOBS=	${MAKE_JOBS:U1}
.endif

.if ${INTERACTIVE_STAGE:U:Mfetch}
_FETCH_MESSAGE?=	${PKGNAME} has distfiles that must be fetched by hand into ${DISTDIR}
.endif

### The scan

# Records next to the tree which package was scanned, if that folder is writable.
note-asked: .PHONY
	@{ echo ${.CURDIR:T} >> ${.CURDIR}/../../../asked; } 2>/dev/null || :

.if ${VERSIONS:[\#]} == 1
pbulk-index: .PHONY note-asked pbulk-index-item
.else
pbulk-index: .PHONY note-asked
	@for version in ${VERSIONS}; do VERSION_REQD=$$version ${MAKE} pbulk-index-item || exit 1; done
.endif

pbulk-index-item: .PHONY
	@echo PKGNAME=${PKGNAME}
	@echo ALL_DEPENDS=${ALL_DEPENDS:M*:Q}
	@echo PKG_SKIP_REASON=${SKIP:Q}
	@echo PKG_FAIL_REASON=${FAIL:Q}
	@echo NO_BIN_ON_FTP=${NO_BIN_ON_FTP:Q}
	@echo RESTRICTED=${RESTRICTED:Q}
	@echo CATEGORIES=${CATEGORIES:Q}
	@test -d "${PBULK_CACHE_DIRECTORY}" && echo MAINTAINER=cache-yes || echo MAINTAINER=cache-no
	@echo USE_DESTDIR=${USE_DESTDIR:Q}
	@echo BOOTSTRAP_PKG=${BOOTSTRAP_PKG:Q}
	@echo USERGROUP_PHASE=${USERGROUP_PHASE:Q}
	@echo SCAN_DEPENDS=${.MAKE.MAKEFILES}
.if ${VERSIONS:[\#]} != 1
	@echo MULTI_VERSION= VERSION_REQD=${PKGVERSION}
.endif

show-var: .PHONY
	@echo ${${VARNAME}:Q}

### The stages: each runs the missing stages before it, and leaves a cookie

STEPS.extract=		do-extract
STEPS.configure=	check-depends do-configure
STEPS.build=		do-build
STEPS.stage-install=	make-destdir do-install make-plist
STEPS.package=		make-metadata do-package

.for stage before in extract checksum  configure extract  build configure  stage-install build  package stage-install
.  if exists(${WRKDIR}/.${stage}_done)
${stage}: .PHONY
.  else
${stage}: .PHONY ${before} ${STEPS.${stage}}
	@touch ${WRKDIR}/.${stage}_done
.  endif
.endfor

all: .PHONY build ${_TEST_TARGET}

test: .PHONY build
.if target(do-test)
	@${MAKE} do-test
.endif

clean: .PHONY
	@rm -rf ${WRKDIR}

check-reasons: .PHONY
.if !empty(SKIP) || !empty(FAIL)
	@printf 'ERROR: %s is not to be built: %s\n' ${PKGNAME} ${SKIP:Q}${FAIL:Q} >&2; exit 1
.endif
.if empty(VERSIONS:M${PKGVERSION})
	@echo "ERROR: ${PKGPATH} makes ${VERSIONS}, and not ${PKGVERSION}" >&2; exit 1
.endif

checksum: .PHONY check-reasons
	@DISTDIR=${DISTDIR:Q} DISTINFO=${.CURDIR:Q}/distinfo MASTER_SITES=${MASTER_SITE_OVERRIDE:D${MASTER_SITE_OVERRIDE} ${MASTER_SITES}:U${MASTER_SITES}:Q} \
	    FETCH_MESSAGE=${_FETCH_MESSAGE:Q} sh ${MK}/distfiles ${DISTFILES}

# Runs as root and writes only to /etc: the work folder belongs to the builder.
create-usergroup: .PHONY
.if !empty(USERGROUP_PHASE)
	@grep -q '^_${NAME}:' /etc/passwd || { \
	    id=$$(awk -F : 'BEGIN { id = 900 } $$3 >= id && $$3 < 60000 { id = $$3 + 1 } END { print id }' \
	        /etc/passwd /etc/group) && \
	    echo "_${NAME}:x:$$id:" >> /etc/group && \
	    echo "_${NAME}:x:$$id:$$id:${NAME}:/nonexistent:/usr/sbin/nologin" >> /etc/passwd; }
.endif

do-extract: .PHONY
	@mkdir -p ${WRKSRC}
.for file in ${DISTFILES}
	@tar --no-same-owner -C ${WRKDIR} -xf ${DISTDIR}/${file}
.endfor
	@test ! -d files || cp -R files/. ${WRKSRC}
	@for patch in patches/patch-*; do \
	    test ! -f $$patch || patch -d ${WRKSRC} -p0 --forward --batch < $$patch || exit 1; \
	done

check-depends: .PHONY
	@for pattern in ${BUILD_PATTERNS} ${PATTERNS}; do \
	    found=$$(${PKG_INFO} -e "$$pattern") || { echo "ERROR: $$pattern is not installed" >&2; exit 1; }; \
	    echo "=> $$pattern: found $$found"; \
	done

.if !target(do-configure)
do-configure: .PHONY
.endif

.if !target(do-build)
do-build: .PHONY
	@echo "building ${PKGNAME}"
.endif

make-destdir: .PHONY
	@mkdir -p ${DESTDIR}${PREFIX}

.if !target(do-install)
do-install: .PHONY
	@mkdir -p ${DESTDIR}${PREFIX}/bin ${DESTDIR}${PREFIX}/share/${NAME}
	@echo ${PKGVERSION} > ${DESTDIR}${PREFIX}/share/${NAME}/version
	@printf '#!/bin/sh\necho ${PKGNAME}\n' > ${DESTDIR}${PREFIX}/bin/${NAME}
	@chmod 755 ${DESTDIR}${PREFIX}/bin/${NAME}
.endif

make-plist: .PHONY
.if exists(${.CURDIR}/PLIST)
	@cp PLIST ${PLIST}
.else
	@{ echo '@comment $$NetBSD$$'; find ${DESTDIR}${PREFIX} ! -type d -printf '%P\n' | sort; } > ${PLIST}
.endif

### The package's file

BUILD_INFO=	CATEGORIES HOMEPAGE LICENSE LOCALBASE PKGPATH

make-metadata: .PHONY
	@mkdir -p ${METADATA}
	@{ ${BUILD_INFO:@key@echo ${key}=${${key}:Q};@} \
	    echo "BUILD_DATE=$$(date '+%Y-%m-%d %H:%M:%S %z')"; echo "BUILD_HOST=$$(uname -a)"; \
	    echo "MAINTAINER=${NAME}@example.org"; echo "MACHINE_ARCH=$$(uname -m)"; echo OBJECT_FMT=ELF; \
	    echo "OPSYS=$$(uname -s)"; echo "OS_VERSION=$$(uname -r | sed 's/-.*//')"; echo PKGTOOLS_VERSION=20091115; \
	} | sort > ${METADATA}/+BUILD_INFO
	@for file in Makefile distinfo PLIST INSTALL DEINSTALL files/* patches/patch-*; do \
	    test ! -f $$file || sed -n "s|^.*\([$$]NetBSD[^$$]*[$$]\).*|${PKGPATH}/$$file:	\1|p" $$file; \
	done | sort -u > ${METADATA}/+BUILD_VERSION
	@echo ${COMMENT:Q} > ${METADATA}/+COMMENT
	@printf '%s.\n\nHomepage:\n%s\n' ${COMMENT:Q} ${HOMEPAGE:Q} > ${METADATA}/+DESC
	@find ${DESTDIR}${PREFIX} -type f -printf '%s\n' | awk '{ sum += $$1 } END { print sum + 0 }' \
	    > ${METADATA}/+SIZE_PKG
	@{ cat ${METADATA}/+SIZE_PKG; for pattern in ${PATTERNS}; do ${PKG_INFO} -qs "$$pattern"; done; } \
	    | awk '{ sum += $$1 } END { print sum + 0 }' > ${METADATA}/+SIZE_ALL
	@{ echo '@name ${PKGNAME}'; \
	    for pattern in ${PATTERNS}; do echo "@blddep $$(${PKG_INFO} -e "$$pattern")"; echo "@pkgdep $$pattern"; done; \
	    for pattern in ${BUILD_PATTERNS}; do echo "@blddep $$(${PKG_INFO} -e "$$pattern")"; done; \
	    cat ${PLIST}; } > ${METADATA}/.PLIST

do-package: .PHONY
	@mkdir -p ${PACKAGES}/All
	@pkg_create -B ${METADATA}/+BUILD_INFO -b ${METADATA}/+BUILD_VERSION -c ${METADATA}/+COMMENT \
	    -d ${METADATA}/+DESC -f ${METADATA}/.PLIST -S ${METADATA}/+SIZE_ALL -s ${METADATA}/+SIZE_PKG \
	    ${exists(${.CURDIR}/INSTALL):?-i INSTALL:} ${exists(${.CURDIR}/DEINSTALL):?-k DEINSTALL:} \
	    ${USE_DESTDIR:Muser-destdir:S/user-destdir/-u root -g root/} -I ${PREFIX} -p ${DESTDIR}${PREFIX} ${PKGFILE}
