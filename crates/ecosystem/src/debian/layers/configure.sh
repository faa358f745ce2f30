# Makes the stacked packages known to dpkg as unpacked ones, and configures them.
admin=/var/lib/dpkg
cat "$INPUTS/layers.status" >> $admin/status
cat "$INPUTS/layers.unincorporated" >> $admin/triggers/Unincorp
cat "$INPUTS/layers.file-triggers" >> $admin/triggers/File
while read -r trigger package; do
  printf '%s\n' "$package" >> "$admin/triggers/$trigger"
done < "$INPUTS/layers.triggers"
# dpkg leaves a folder that is there as it is.
while read -r mode owner path; do
  chown "$owner" "/$path"
  chmod "$mode" "/$path"
done < "$INPUTS/layers.folders"
dpkg --force-unsafe-io --force-confnew --configure --pending
faults=$(dpkg --audit)
if [ -n "$faults" ]; then
  printf '%s\n' "E: dpkg finds faults:" "$faults"
  exit 1
fi
