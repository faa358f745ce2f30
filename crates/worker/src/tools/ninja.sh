[ -p "$server" ] || exec "$real" "$@"

# ninja knows jobservers from 1.13 on, and only where it is not told the number of jobs.
case $("$real" --version 2>/dev/null) in
  1.[0-9] | 1.[0-9].* | 1.1[0-2] | 1.1[0-2].*) exec "$real" "$@" ;;
esac
jobs=many

