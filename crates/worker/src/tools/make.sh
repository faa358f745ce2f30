[ -p "$server" ] || exec "$real" "$@"

# What cargo is told comes here by build scripts that pass it on. make before 4.4 knows descriptors alone.
case ${MAKEFLAGS-} in
  *--jobserver-auth=fifo:"$server"*)
    exec 9<>"$server"
    MAKEFLAGS="${MAKEFLAGS%%fifo:"$server"*}9,9${MAKEFLAGS#*fifo:"$server"}"
    export MAKEFLAGS
    ;;
esac
# Without a number make runs one job at a time.
jobs=1

