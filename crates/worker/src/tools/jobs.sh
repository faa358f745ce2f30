is_next=no
for argument do
  case $is_next$argument in
    yes[0-9]*) jobs=$argument ;;
  esac
  is_next=no
  case $argument in
    -j | --jobs) jobs=many is_next=yes ;;
    -j[0-9]*) jobs=${argument#-j} ;;
    --jobs=*) jobs=${argument#--jobs=} ;;
  esac
done
[ "$jobs" = 1 ] && exec "$real" "$@"

# Remove these arguments.
count=$# is_next=no
while [ "$count" -gt 0 ]; do
  argument=$1
  shift
  count=$((count - 1))
  case $is_next$argument in
    yes[0-9]*) is_next=no; continue ;;
  esac
  is_next=no
  case $argument in
    -j | --jobs) is_next=yes ;;
    -j[0-9]* | --jobs=*) ;;
    *) set -- "$@" "$argument" ;;
  esac
done

