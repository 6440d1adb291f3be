# cluster.sh FOLDER: a Slurm cluster of two nodes on this machine, for tests. Needs root, and Debian's packages iproute2, munge,
# slurm-client, slurmctld and slurmd.
#
#     unshare --fork --kill-child --mount --mount-proc --net --pid --uts bash cluster.sh FOLDER
#
#     node1: munged, slurmctld, slurmd         node2: slurmd
#     10.44.0.1 ──────────────── veth ──────────────── 10.44.0.2
#
# Each node has a host name and a network of its own. They share processes and files, as if all file systems were shared. The end
# of this shell, the first process of its namespace, ends all others. FOLDER/up appears when the cluster accepts jobs. FOLDER/node2
# contains the number of a process on node2: nsenter --target NUMBER --net --uts COMMAND runs a command there.
# shellcheck shell=bash
set -eu
folder=$1
mkdir -p "$folder"/{log,munge,spool-node1,spool-node2,state,tmp-node1,tmp-node2}
chmod 700 "$folder/munge"
printf '127.0.0.1 localhost\n10.44.0.1 node1\n10.44.0.2 node2\n' >"$folder/hosts"
mount --bind "$folder/hosts" /etc/hosts
mount -t tmpfs tmpfs /run

hostname node1
unshare --net --uts sleep infinity &
node2=$!
on_node2() { nsenter --target "$node2" --net --uts "$@"; }
until [ "$(readlink "/proc/$node2/ns/net")" != "$(readlink /proc/self/ns/net)" ]; do :; done
ip link set lo up
ip link add veth1 type veth peer name veth2 netns "$node2"
ip address add 10.44.0.1/24 dev veth1
ip link set veth1 up
on_node2 hostname node2
on_node2 ip link set lo up
on_node2 ip address add 10.44.0.2/24 dev veth2
on_node2 ip link set veth2 up

# A node is down after 10 seconds without an answer (SlurmdTimeout; default: 300). The nodes have more CPUs than this machine, so
# that all jobs run at once. KillWait has its default.
cat >"$folder/slurm.conf" <<END
ClusterName=test
SlurmctldHost=node1
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$folder/munge/socket
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmdTimeout=10
KillWait=30
MinJobAge=3600
SchedulerParameters=batch_sched_delay=0,sched_interval=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool-%n
TmpFS=$folder/tmp-%n
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd-%n.pid
SlurmctldLogFile=$folder/log/slurmctld
SlurmdLogFile=$folder/log/slurmd-%n
NodeName=node1 NodeAddr=10.44.0.1 CPUs=64
NodeName=node2 NodeAddr=10.44.0.2 CPUs=64
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE:64
END
export SLURM_CONF=$folder/slurm.conf

head -c 1024 /dev/urandom >"$folder/munge/key"
chmod 600 "$folder/munge/key"
munged --force --key-file="$folder/munge/key" --socket="$folder/munge/socket" --pid-file="$folder/munge/pid" \
	--seed-file="$folder/munge/seed" --log-file="$folder/log/munged"
slurmctld
slurmd
on_node2 slurmd
until [ "$(sinfo -h -t idle -o %D 2>/dev/null)" = 2 ]; do sleep 0.2; done
echo "$node2" >"$folder/node2"
touch "$folder/up"
sleep infinity
