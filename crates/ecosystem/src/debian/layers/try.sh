# FILE PACKAGE: runs the script that dpkg runs before it unpacks the package for the first time.
dpkg-deb --control "$INPUTS/$1" /kilnyard/added/control
export DPKG_MAINTSCRIPT_PACKAGE="$2" DPKG_MAINTSCRIPT_NAME=preinst DPKG_MAINTSCRIPT_PACKAGE_REFCOUNT=1
DPKG_MAINTSCRIPT_ARCH=$(dpkg --print-architecture)
export DPKG_MAINTSCRIPT_ARCH
exec /kilnyard/added/control/preinst install
