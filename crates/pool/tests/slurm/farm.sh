#!/bin/bash
# A Slurm cluster of two nodes on this machine: munged, slurmctld and two slurmd of Debian's packages, in private mount, pid and
# network namespaces whose root is a copy-on-write view of a cached installation.
#
#   farm.sh make ROOT              installs Slurm and systemd into the folder ROOT, if they are not there yet (mmdebstrap)
#   farm.sh run ROOT WORK SHARED   runs the cluster until its standard input ends; "ready" on standard output when both nodes are idle
#
# The root is entered by pivot_root, since the kernel refuses user namespaces in a chroot, and jobs need them. WORK gets state and
# logs; SHARED is the same path inside and outside. Commands are
# run inside by `nsenter -t PID -m -p -n`, where PID is the child of unshare. Lines on standard input: "kill NAME" and "start NAME" for slurmctld, n1 and n2
# (a node with its jobs), "kill-slurmd NAME" for the daemon of a node alone, always with SIGKILL.
set -euo pipefail

make_root() {
  local root=$1
  # Not usr/sbin/slurmctld and sbin/init: absolute links, which would be followed outside of the root.
  [ -x "$root/usr/sbin/slurmctld-wlm" ] && [ -x "$root/lib/systemd/systemd" ] && return
  rm -rf "$root"
  mkdir -p "$(dirname "$root")"
  local new
  new=$(mktemp -d "$root.XXXXXX")
  mmdebstrap --quiet --variant=apt --include=slurm-wlm,munge,mount,iproute2,procps,systemd,systemd-sysv bookworm "$new/root" >&2
  # Another process may have been faster.
  mv -T "$new/root" "$root" 2>/dev/null || rm -rf "$new/root"
  rmdir "$new"
}

run() {
  local root=$1 work=$2 shared=$3
  mkdir -p "$work/root"
  exec unshare --mount --pid --net --fork --kill-child --propagation private \
    env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C bash "$0" first "$root" "$work" "$shared"
}

first() {
  local root=$1 work=$2 shared=$3
  mount -t tmpfs -o mode=755 none "$work/root"
  mkdir "$work/root/upper" "$work/root/overlay" "$work/root/new"
  mount -t overlay -o "lowerdir=$root,upperdir=$work/root/upper,workdir=$work/root/overlay" none "$work/root/new"
  local new="$work/root/new" folder
  mount -t proc none "$new/proc"
  mount --rbind /sys "$new/sys"
  mount --rbind /dev "$new/dev"
  mount -t tmpfs -o mode=1777 none "$new/tmp"
  mount -t tmpfs -o mode=755 none "$new/run"
  for folder in "$work" "$shared"; do
    mkdir -p "$new$folder"
    # Not recursive: the new root is below it.
    mount --bind "$folder" "$new$folder"
  done
  cp /etc/hosts /etc/passwd /etc/group "$new/etc/" 2>/dev/null || true
  # Daemons' users are of the installation.
  grep -E '^(slurm|munge):' "$root/etc/passwd" >> "$new/etc/passwd"
  grep -E '^(slurm|munge):' "$root/etc/group" >> "$new/etc/group"
  grep -q "$(hostname)" "$new/etc/hosts" || echo "127.0.0.1 $(hostname)" >> "$new/etc/hosts"
  cp "$0" "$new/run/farm.sh"
  mkdir "$new/old"
  cd "$new"
  pivot_root . old
  cd /
  umount -l /old
  exec bash /run/farm.sh daemons "$work"
}

configuration() {
  local work=$1
  cat <<END
ClusterName=kilnyard
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=17000
SlurmUser=root
AuthType=auth/munge
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool/%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd-%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_min_interval=100000,batch_sched_delay=0
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=10
SlurmdParameters=config_overrides
BatchStartTimeout=5
KillWait=5
MessageTimeout=5
MinJobAge=30
InactiveLimit=0
JobRequeue=1
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
NodeName=n[1-2] NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=17001-17002 CPUs=16 RealMemory=4000 State=UNKNOWN
PartitionName=lab Nodes=n[1-2] Default=YES MaxTime=60 State=UP OverTimeLimit=0
END
}

start() {
  case $1 in
    slurmctld) slurmctld ;;
    n1 | n2) slurmd -N "$1" ;;
    *) return 1 ;;
  esac
}

# The power of a node fails: its slurmd, and all that has a job's environment, which names the node.
kill_node() {
  local process parent
  pkill -KILL -f "^slurmd -N $1" || true
  for process in /proc/[0-9]*; do
    if tr "\0" "\n" 2>/dev/null < "$process/environ" | grep -qx "SLURMD_NODENAME=$1"; then
      # The parent of a job's script is slurmstepd, which does not have the variable.
      parent=$(awk '$1 == "PPid:" { print $2 }' "$process/status" 2>/dev/null || true)
      if [ "$(cat "/proc/$parent/comm" 2>/dev/null)" = slurmstepd ]; then
        kill -KILL "$parent" 2>/dev/null || true
      fi
      kill -KILL "${process#/proc/}" 2>/dev/null || true
    fi
  done 2>/dev/null
}

daemons() {
  local work=$1 pid
  ip link set lo up
  # Without an address beyond the loopback, Slurm does not even resolve 127.0.0.1 (AI_ADDRCONFIG).
  ip address add 10.17.0.1/32 dev lo
  mkdir -p "$work/state" "$work/spool/n1" "$work/spool/n2" /run/munge /etc/munge /etc/slurm /var/log/munge /var/lib/munge
  configuration "$work" > /etc/slurm/slurm.conf
  # On a private tmpfs: the copy of the host's accounts need not have the user munge.
  head -c 1024 /dev/urandom > /etc/munge/munge.key
  chmod 400 /etc/munge/munge.key
  chmod 755 /run /run/munge
  chown -R root:root /run/munge /etc/munge /var/log/munge /var/lib/munge
  chmod 700 /var/log/munge /var/lib/munge
  munged --force
  start slurmctld
  start n1
  start n2
  local deadline=$((SECONDS + 60))
  until [ "$(sinfo --noheader --Node --format '%N %t' 2>/dev/null | sort | tr '\n' ' ')" = "n1 idle n2 idle " ]; do
    [ "$SECONDS" -lt "$deadline" ] || { echo "the nodes are not idle within 60 s" >&2; sinfo >&2; exit 1; }
    sleep 0.1
  done
  echo ready
  local verb name
  while read -r verb name; do
    case $verb in
      kill)
        case $name in
          slurmctld) pkill -KILL -x slurmctld || true ;;
          *) kill_node "$name" ;;
        esac
        ;;
      kill-slurmd) pkill -KILL -f "^slurmd -N $name" ;;
      start) start "$name" ;;
    esac
    echo "done $verb $name"
  done
}

verb=$1
shift
case $verb in
  make) make_root "$@" ;;
  run) run "$@" ;;
  first) first "$@" ;;
  daemons) daemons "$@" ;;
  *) echo "usage: farm.sh make|run" >&2; exit 2 ;;
esac
