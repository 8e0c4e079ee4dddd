# shellcheck shell=bash disable=SC2034
# What the scripts beside this file share. Sourced.

. "$(dirname "${BASH_SOURCE[0]}")/../../../.ci/lib.sh"

HERE=$PWD/tests/kubernetes
KUBERNETES=${KUBERNETES:-v1.37.2}
CONTAINERD=${CONTAINERD:-v2.3.7} # or `system`: the distribution's own
ETCD=${ETCD:-v3.7.3}             # 3.4 of Debian 12 is too old for 1.37: its watches hang
HELM=${HELM:-v3.22.0}
COREDNS=${COREDNS:-v1.15.0}
CGROUPS=${CGROUPS:-hybrid} # as the machine has them; or v2: a view with the v2 hierarchy alone
SHAPE=${SHAPE:-cgroupfs}   # or systemd: containers' cgroups as the kubelet's other driver names them

CACHE=${STOREWATCH_KUBERNETES:-${XDG_CACHE_HOME:-$HOME/.cache}/storewatch/kubernetes}
BIN=$CACHE/out/$KUBERNETES # kube-all, and its names
TOOLS=$CACHE/out/tools

# One node at a time on a machine, unless another name is given.
STAGE=${STAGE:-swk8s}
RUN=${RUN:-$CACHE/run-$STAGE}
NODE=${NODE:-node-1}
NODE_IP=10.90.0.1
POD_NET=10.88.0.0/24
SERVICE_NET=10.96.0.0/16
DNS_IP=10.96.0.10

# The one group that all of the node's own processes are in, by which they are found again.
DAEMONS=/sys/fs/cgroup/$STAGE-daemons
[ ! -d /sys/fs/cgroup/unified ] || DAEMONS=/sys/fs/cgroup/unified/$STAGE-daemons

in_node() { nsenter --net="/run/netns/$STAGE" "$@"; }
k() { in_node env KUBECONFIG="$RUN/conf/admin.conf" "$BIN/kubectl" "$@"; }
since_start() { echo "$((($(date +%s%N) - STARTED) / 1000000)) ms"; }
