"""An emulated cluster: each host is a network namespace of this process, with a link to a bridge:

    rank 0  10.0.0.1 ══ tbf ══╗                ╔══ tbf ══ 10.0.0.3  rank 2
                              ╠════ bridge ════╣
    rank 1  10.0.0.2 ══ tbf ══╝                ╚══ tbf ══ 10.0.0.4  rank 3

Each host has one core. If there are more hosts than cores, hosts share cores. The kernel removes all namespaces when this process
ends, even after a crash."""
import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

from machine import busy

AGENT = """#!/bin/sh
# mpirun calls this instead of ssh: [options] h1 COMMAND. A separate host name makes the namespace a different host for mpirun.
while [ "${1#-}" != "$1" ]; do shift; done
host=${1#h} && shift
core=$(cut -d' ' -f"$host" %s)
exec ip netns exec "h$host" unshare --uts sh -c "hostname h$host && exec taskset -c $core sh -c '$*'"
"""
MTU = 9000              # bytes: jumbo frames, as clusters have them
SEND_BUFFER = 4194304   # maximum bytes in the kernel's send buffer: the default of Linux


def say(*words):
    subprocess.run([str(word) for word in words], check=True)


def adopt_orphans():
    """Makes processes that mpirun leaves on other hosts children of this process, so that it can count and wait for them."""
    PR_SET_CHILD_SUBREAPER = 36
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def enter_namespaces(program):
    """Moves this process to new network and mount namespaces, so that the kernel removes its networks and mounts when it ends. A
    signal ends the process with cleanup."""
    missing = [tool for tool in ("ip", "tc", "unshare", "taskset", "mpirun") if not shutil.which(tool)]
    if missing:
        sys.exit(f"{program}: {', '.join(missing)} not found (Debian: iproute2, util-linux, openmpi-bin)")
    if os.geteuid():
        sys.exit(f"{program}: making network namespaces needs root")
    if "BENCH_NETWORK" not in os.environ:
        os.environ["BENCH_NETWORK"] = "inside"
        os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, *sys.argv])
    os.makedirs("/run/netns", exist_ok=True)
    say("mount", "-t", "tmpfs", "none", "/run/netns")
    say("ip", "link", "set", "lo", "up")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))
    adopt_orphans()


def make_network(hosts, rate, send_buffer=SEND_BUFFER):
    """Creates the hosts, the bridge and the links. RATE: Mbit/s of each link in each direction."""
    shape = ["root", "tbf", "rate", f"{rate}mbit", "burst", "64kb", "latency", "50ms"]
    say("ip", "link", "add", "bridge", "mtu", MTU, "type", "bridge")
    say("ip", "link", "set", "bridge", "up")
    for n in range(1, hosts + 1):
        say("ip", "netns", "add", f"h{n}")
        say("ip", "link", "add", f"port{n}", "mtu", MTU, "type", "veth", "peer", "name", "eth0", "mtu", MTU, "netns", f"h{n}")
        say("ip", "link", "set", f"port{n}", "master", "bridge", "up")
        say("ip", "-n", f"h{n}", "address", "add", f"10.0.0.{n}/24", "dev", "eth0")
        for device in ("lo", "eth0"):
            say("ip", "-n", f"h{n}", "link", "set", device, "up")
        say("ip", "netns", "exec", f"h{n}", "sysctl", "-qw", f"net.ipv4.tcp_wmem=4096 16384 {send_buffer}")
        say("tc", "-n", f"h{n}", "qdisc", "add", "dev", "eth0", *shape)
        say("tc", "qdisc", "add", "dev", f"port{n}", *shape)


def wait_for_orphans():
    try:
        while True:
            os.wait()
    except ChildProcessError:
        pass


class Cluster:
    """Runs commands on the hosts."""

    def __init__(self, folder, hosts):
        self.folder = folder
        cores = sorted(os.sched_getaffinity(0))
        self.cores = [cores[n % len(cores)] for n in range(hosts)]
        (folder / "cores").write_text(" ".join(map(str, self.cores)))
        self.agent = folder / "agent"
        self.agent.write_text(AGENT % (folder / "cores"))
        self.agent.chmod(0o755)

    def run(self, commands, environment):
        """Runs all commands concurrently and returns their outputs. Sets self.others, the fraction of the machine that other
        programs used."""
        used_before, busy_before, started = sum(os.times()[2:4]), busy(), time.monotonic()
        files = [(self.folder / f"output{n}").open("w+") for n in range(len(commands))]
        running = [subprocess.Popen([str(word) for word in command], stdout=file, stderr=subprocess.STDOUT, cwd=self.folder,
                                    env=os.environ | {"TMPDIR": str(self.folder)} | environment)
                   for command, file in zip(commands, files)]
        try:
            for process, file in zip(running, files):
                if process.wait(300):
                    sys.exit(f"{pathlib.Path(file.name).read_text()}{pathlib.Path(sys.argv[0]).name}: exit status "
                             f"{process.returncode}: {' '.join(process.args)}")
        finally:
            for process in running:
                process.terminate()
            for process in running:
                process.wait()
            wait_for_orphans()
        others = busy() - busy_before - sum(os.times()[2:4]) + used_before
        self.others = max(0, others / (time.monotonic() - started) / os.cpu_count())
        return [pathlib.Path(file.name).read_text() for file in files]

    def on(self, rank, command):
        return ["ip", "netns", "exec", f"h{rank + 1}", "taskset", "-c", self.cores[rank], *command]

    def mpirun(self, ranks, command, more={}):
        """Returns the command that runs COMMAND on RANKS hosts. MORE: further parameters of Open MPI. Hosts must be names: Open
        MPI 5.0.7 does not count the slots of addresses."""
        hosts = ",".join(f"h{n + 1}:1" for n in range(ranks))
        mca = {"plm_rsh_agent": self.agent, "orte_leave_session_attached": 1, "btl": "tcp,self",
               "btl_tcp_if_include": "10.0.0.0/24", "oob_tcp_if_include": "10.0.0.0/24", **more}
        words = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-n", ranks, "-host", hosts,
                 *(word for name, value in mca.items() for word in ("--mca", name, value)), *command]
        return ["unshare", "--uts", "sh", "-c", 'hostname h1 && exec "$@"', "sh", *self.on(0, words)]
