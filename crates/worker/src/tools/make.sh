[ -p "$server" ] || exec "$real" "$@"

# Build scripts of cargo pass its jobserver on to make. make before 4.4 only knows descriptors.
case ${MAKEFLAGS-} in
  *--jobserver-auth=fifo:"$server"*)
    exec 9<>"$server"
    MAKEFLAGS="${MAKEFLAGS%%fifo:"$server"*}9,9${MAKEFLAGS#*fifo:"$server"}"
    export MAKEFLAGS
    ;;
esac
# Without a number make runs one job at a time.
jobs=1

