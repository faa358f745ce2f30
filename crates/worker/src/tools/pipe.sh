exec 9<>"$server"
exec "$real" --jobserver-auth=9,9 "$@"
