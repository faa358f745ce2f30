# FOLDER: moves the files of an unpacked package to where they are found in the root: where that has a link, a folder of the
# layer would hide it.
merge_usr() {
  for top in bin sbin lib lib32 lib64 libo32 libx32; do
    if [ -L "/$top" ] && [ -d "$1/$top" ] && [ ! -L "$1/$top" ]; then
      mkdir -p "$1/usr/$top"
      cp -al "$1/$top/." "$1/usr/$top/"
      rm -r "$1/$top"
    fi
  done
}
