#!/bin/sh
# pod.sh CGROUP NETNS FOLDER HOST COMMAND...
# Becomes COMMAND inside what a pod gives a process: its own cgroup (joined before the first socket exists), network
# namespace, host name, resolv.conf and hosts file (FOLDER holds both). The process keeps this shell's pid.
set -eu
cgroup=$1 netns=$2 folder=$3 host=$4
shift 4
echo $$ >"$cgroup/cgroup.procs"
# Slave propagation: a network namespace deleted later must not live on in this process's copy of /run/netns.
# shellcheck disable=SC2016 # the inner shell expands its own parameters
exec nsenter --net="$netns" unshare --mount --propagation slave --uts sh -euc '
    mount --bind "$1/resolv.conf" /etc/resolv.conf
    mount --bind "$1/hosts" /etc/hosts
    hostname "$2"
    shift 2
    exec "$@"' sh "$folder" "$host" "$@"
