#!/bin/bash
# Boots a systemd on this machine, in namespaces of its own, above a read-only view of an installation (tests/slurm/farm.sh makes it).
#
#   boot.sh ROOT WORK SHARED   runs until it is killed; SHARED is the same path inside and outside
set -euo pipefail

if [ "$1" != first ]; then
  mkdir -p "$2"
  # Its units get control groups below one of its own, not next to this machine's.
  for hierarchy in /sys/fs/cgroup/unified /sys/fs/cgroup/systemd /sys/fs/cgroup; do
    if [ -w "$hierarchy/cgroup.procs" ] && mkdir -p "$hierarchy/kilnyard-test-$$" 2>/dev/null; then
      echo $$ > "$hierarchy/kilnyard-test-$$/cgroup.procs" || true
    fi
  done
  exec unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child --propagation private \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C bash "$0" first "$@"
fi

root=$2 work=$3 shared=$4
mount -t tmpfs -o mode=755 none "$work"
mkdir "$work/upper" "$work/overlay" "$work/new"
mount -t overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/overlay" none "$work/new"
cd "$work/new"
mount -t proc none proc
mount -t sysfs none sys
# Devices of its own, without this machine's terminals: the console would be taken from whatever else uses it.
mount -t tmpfs -o mode=755 none dev
for device in null zero full random urandom; do
  touch "dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm
mount -t devpts -o newinstance,ptmxmode=666,mode=620 none dev/pts
ln -s pts/ptmx dev/ptmx
mount -t tmpfs -o mode=755 none run
mount -t tmpfs -o mode=1777 none tmp
mkdir -p ".$shared"
mount --bind "$shared" ".$shared"
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
  mount -t cgroup2 none sys/fs/cgroup
else
  mount -t tmpfs -o mode=755 none sys/fs/cgroup
  mkdir sys/fs/cgroup/systemd sys/fs/cgroup/unified
  mount -t cgroup -o none,name=systemd none sys/fs/cgroup/systemd
  mount -t cgroup2 none sys/fs/cgroup/unified
fi
mkdir -p old
pivot_root . old
cd /
umount -l /old
exec env -i container=kilnyard-test PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --unit=basic.target \
  --show-status=no </dev/null >/dev/null 2>&1
