[ -p "$server" ] || exec "$real" "$@"

# ninja 1.13 and later use a jobserver, but only if the number of jobs is not given.
case $("$real" --version 2>/dev/null) in
  1.[0-9] | 1.[0-9].* | 1.1[0-2] | 1.1[0-2].*) exec "$real" "$@" ;;
esac
jobs=many

