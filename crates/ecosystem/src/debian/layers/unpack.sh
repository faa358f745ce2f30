# Unpacks each package into a folder of its own, with what dpkg keeps of it under a name.
umask 022
while read -r file hash name; do
  file=$INPUTS/$file
  layer=/kilnyard/added/$hash
  mkdir "$layer"
  dpkg-deb --extract "$file" "$layer"
  dpkg-deb --control "$file" "$layer/DEBIAN"
  # dpkg works out the checksums of a package that brings none, but for those of its configuration files.
  if [ ! -e "$layer/DEBIAN/md5sums" ]; then
    while IFS= read -r path; do
      if [ -f "$layer$path" ] && [ ! -L "$layer$path" ] && ! grep -Fqx -e "${path#/}" "$TEXTS/$hash.conffiles"; then
        sum=$(md5sum < "$layer$path")
        printf '%s  %s\n' "${sum%% *}" "${path#/}"
      fi
    done < "$TEXTS/$hash.list" > "$layer/DEBIAN/md5sums"
  fi
  merge_usr "$layer"
  info=$layer/var/lib/dpkg/info
  mkdir -p "$info"
  rm "$layer/DEBIAN/control"
  for member in "$layer"/DEBIAN/*; do
    [ ! -e "$member" ] || mv "$member" "$info/$name.${member##*/}"
  done
  rmdir "$layer/DEBIAN"
  cp "$TEXTS/$hash.list" "$info/$name.list"
  # A configuration file gets its name when the package is configured.
  while IFS= read -r path; do
    mv "$layer/$path" "$layer/$path.dpkg-new"
  done < "$TEXTS/$hash.conffiles"
  chmod -R u=rwX,go=rX "$info"
  # Whatever the package says of the root itself: what is there keeps its owner.
  chown 0:0 "$layer"
  chmod 755 "$layer"
done < "$TEXTS/layers.unpack"
