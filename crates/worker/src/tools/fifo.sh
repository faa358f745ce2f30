exec "$real" --jobserver-auth="fifo:$server" "$@"
