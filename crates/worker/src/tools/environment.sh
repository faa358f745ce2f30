MAKEFLAGS="-j --jobserver-auth=fifo:$server"
export MAKEFLAGS
exec "$real" "$@"
