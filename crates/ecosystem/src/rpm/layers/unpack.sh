# Unpacks each package into a folder of its own, with the header that rpm would keep in its database.
umask 022
while read -r file hash; do
  layer=/kilnyard/added/$hash
  mkdir -p "$layer/kilnyard/headers"
  # What the package runs, and what it requires, is of the stack that it becomes a part of.
  rpm --root "$layer" --define '_dbpath /kilnyard/database' -i --nodeps --noscripts --notriggers --noorder --nosignature \
    "$INPUTS/$file"
  rpmdb --root "$layer" --define '_dbpath /kilnyard/database' --exportdb > "$layer/kilnyard/headers/$hash"
  rm -r "$layer/kilnyard/database"
  merge_usr "$layer"
  chown 0:0 "$layer"
  chmod 755 "$layer"
done < "$TEXTS/layers.unpack"
