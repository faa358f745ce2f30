# Makes the stacked packages known to dpkg as unpacked ones, and configures them.
admin=/var/lib/dpkg
cat "$TEXTS/layers.status" >> $admin/status
cat "$TEXTS/layers.unincorporated" >> $admin/triggers/Unincorp
cat "$TEXTS/layers.file-triggers" >> $admin/triggers/File
while read -r trigger package; do
  printf '%s\n' "$package" >> "$admin/triggers/$trigger"
done < "$TEXTS/layers.triggers"
# dpkg leaves a folder that is there as it is.
while read -r mode owner path; do
  chown "$owner" "/$path"
  chmod "$mode" "/$path"
done < "$TEXTS/layers.folders"
dpkg --force-unsafe-io --force-confnew --configure --pending
faults=$(dpkg --audit)
if [ -n "$faults" ]; then
  printf '%s\n' "E: dpkg finds faults:" "$faults"
  exit 1
fi
