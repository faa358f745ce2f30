#!/bin/sh
# Replaces fakeroot in a root that has only one id. The session lasts as long as the root, so that files keep their
# owners from one call to the next: there is no state to save or to load.
saved=
while [ $# -gt 0 ]; do
  case "$1" in
    -s) saved=$2; shift 2 ;;
    -s?*) saved=${1#-s}; shift ;;
    -[ibfl] | --lib | --faked | --fd-base) shift 2 ;;
    -[ibfl]?* | --lib=* | --faked=* | --fd-base=* | --static=*) shift ;;
    -u | --unknown-is-real) echo 'fakeroot: unknown files belong to root here' >&2; shift ;;
    -v | --version) echo 'fakeroot version 1.31 (Kilnyard)'; exit ;;
    -h | --help) echo 'usage: fakeroot [COMMAND [ARGUMENT...]]'; exit ;;
    --) shift; break ;;
    -*) echo "fakeroot: $1 is not an option of fakeroot" >&2; exit 1 ;;
    *) break ;;
  esac
done
[ $# -gt 0 ] || set -- "${SHELL:-/bin/sh}"
[ -z "$saved" ] || : > "$saved" || exit
