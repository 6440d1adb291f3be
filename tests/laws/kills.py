"""The law of kills: a run that stargrad launch restarts equals the undisturbed run, at whatever moments its ranks are lost. Losses and weights are
equal bit for bit, and each step counts once. A seed is a run of four ranks that are struck five times."""
import functools
import glob
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import time

import law
from law import Broken
from run import FOLDER, RANKS, Skip, command, content, events, folder, losses, ranks_of, stargrad, wait_until

COUNT = 4       # of ranks
STRIKES = 5     # of a run
STEPS = 60
LIMIT = 300     # seconds: a run that completes no step and starts no ranks for so long hangs
SLOW = 15       # seconds from a failure to the next step that are printed
TEXT = os.path.join(FOLDER, "text")
MEMORY = os.path.join(FOLDER, "memory")     # of the host, instead of /dev/shm
COMMON = ("--batch", 16, "--steps", STEPS, "--evaluate-last", "--deterministic", "--cpus", 1)
NETWORKS = (
    ("--model", "resnet20", "--data", "synthetic:16x16x3,10,160", "--lr", 0.05, "--bn-group", "global"),
    ("--model", "gpt:layers=2,heads=2,width=32,context=32,vocabulary=256", "--data", f"text:{TEXT},32", "--optimizer", "adamw", "--lr", 0.002),
)
STATES = ((), (), ("--ema", 0.9), ("--shard", "optimizer"))
CHECKPOINTS = (("--checkpoint-every", 0), ("--checkpoint-every", 0), ("--checkpoint-every", "1s"))
SNAPSHOTS = (1, 2, 3, 7, "auto")
WAYS = ("one", "one", "first", "two", "stop", "start", "write")     # see strike


@functools.cache
def whole(words):
    with open(TEXT, "w", encoding="utf-8") as file:
        file.write("".join(chr(97 + (i * i // 7 + i // 3) % 26) for i in range(6000)))
    out = folder(f"whole-{abs(hash(words))}")
    stargrad("train", *words, "--out", out)
    return out


def recorded(out):
    """The number of the last step, also of one that is repeated later."""
    found = re.findall(rb'"step","step":(\d+)', content(out, "metrics.jsonl")) if os.path.exists(os.path.join(out, "metrics.jsonl")) else []
    return int(found[-1]) if found else 0


def retries(out):
    """The number of restarts so far."""
    with open(f"{out}.log", encoding="utf-8", errors="replace") as file:
        return file.read().count("; retry ")


def send(process, chosen, number):
    """Sends the signal to these of the ranks that there are. Returns whether there was one."""
    there, sent = ranks_of(process.pid), False
    for rank in chosen:
        try:
            os.kill(there[rank], number)
            sent = True
        except (KeyError, ProcessLookupError):
            pass
    return sent


def strike(process, out, way, dice):
    """Loses ranks: one, rank 0 ("first"), two at once, one that hangs ("stop"), one during the restart after another one ("start"), one while a
    snapshot is written ("write"). Waits until launch restarts the run."""
    before = retries(out)
    if way == "write":
        wait_until(lambda: glob.glob(f"{MEMORY}/*/*.part.*") or recorded(out) >= STEPS, process, LIMIT)
    chosen = [0] if way in ("first", "write") else dice.sample(range(COUNT), 2 if way == "two" else 1)
    if not send(process, chosen, signal.SIGSTOP if way == "stop" else signal.SIGKILL):
        return
    wait_until(lambda: retries(out) > before, process, LIMIT)
    if way == "start":
        wait_until(lambda: ranks_of(process.pid), process, LIMIT)
        time.sleep(dice.choice((0, 0.1, 0.3, 0.6, 1)))      # another moment of the start
        strike(process, out, dice.choice(("one", "stop")), dice)


def finish(process):
    """Waits for the end of launch, which must succeed."""
    try:
        process.wait(LIMIT)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode:
        raise Broken(f"launch ended with exit status {process.returncode}")


def run_and_strike(words, out, draw):
    with open(f"{out}.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log, env={**os.environ, **RANKS, "STARGRAD_SNAPSHOTS": MEMORY})
    for _ in range(STRIKES):
        at, way = min(recorded(out) + draw.random.randrange(1, 9), STEPS - 1), draw.choice(WAYS)
        draw.commands.append(f"# {way} after step {at}")
        wait_until(lambda at=at: recorded(out) >= at, process, LIMIT)
        strike(process, out, way, draw.random)
    finish(process)


def compare(out, reference):
    """The run has each step once, with the bits of the undisturbed run, and has freed the memory."""
    steps = [e["step"] for e in events(out)]
    assert steps == list(range(1, STEPS + 1)), steps
    assert losses(out) == losses(reference), "the losses differ"
    assert content(out) == content(reference), "the weights differ"


def check(draw):
    words = (*draw.choice(NETWORKS), *COMMON, *draw.choice(STATES))
    out, reference = folder("struck"), whole(words)
    os.makedirs(MEMORY, exist_ok=True)
    job = command("launch", "-n", COUNT, "--retries", 1000, "--", "train", *words, "--snapshot-every", draw.choice(SNAPSHOTS), *draw.choice(CHECKPOINTS),
                  "--stall-timeout", 4, "--out", out)
    draw.commands.append(shlex.join(job))
    try:
        run_and_strike(job, out, draw)
    finally:
        with open(f"{out}.log", encoding="utf-8", errors="replace") as log:
            draw.commands.append(log.read())
    compare(out, reference)
    assert not os.listdir(MEMORY), os.listdir(MEMORY)
    seconds = [e["seconds"] for e in events(out, "failure")]
    print("seconds from a failure to the next step:", *(f"{s:.2f}{' slow' if s > SLOW else ''}" for s in seconds))


@law.seeds(1, 6)
def test_kills(seed):
    law.holds("kills", check, seed)


AGENT = """#!/bin/sh
# mpirun calls this instead of ssh: [options] HOST COMMAND
while [ "${1#-}" != "$1" ]; do shift; done
host=$1 && shift
export STARGRAD_SNAPSHOTS=%s/$host
exec nsenter --target "$(cat %s/$host)" --net --uts sh -c "$*"
"""


def ip(host, *words):
    subprocess.run(["nsenter", "--target", str(host.pid), "--net", "ip", *map(str, words)], check=True)


def make_hosts(count, place):
    """Hosts h1, h2, … with a network and a name of their own, and their links to h0. Files in PLACE have the numbers of processes on them."""
    hosts = []
    for i in range(count + 1):
        hosts.append(subprocess.Popen(["unshare", "--net", "--uts", "sh", "-c", f"hostname h{i} && echo && exec sleep infinity"], stdout=subprocess.PIPE))
        if not hosts[i].stdout.readline():
            raise Skip("unshare cannot rename the host")
        with open(f"{place}/h{i}", "w", encoding="ascii") as file:
            file.write(str(hosts[i].pid))
        os.makedirs(f"{MEMORY}/h{i}")
        ip(hosts[i], "link", "set", "lo", "up")
    ip(hosts[0], "link", "add", "bridge", "type", "bridge")
    ip(hosts[0], "address", "add", "10.0.0.100/24", "dev", "bridge")
    ip(hosts[0], "link", "set", "bridge", "up")
    for i in range(1, count + 1):
        ip(hosts[0], "link", "add", f"port{i}", "type", "veth", "peer", "name", "eth0", "netns", hosts[i].pid)
        ip(hosts[0], "link", "set", f"port{i}", "master", "bridge", "up")
        ip(hosts[i], "address", "add", f"10.0.0.{i}/24", "dev", "eth0")
        ip(hosts[i], "link", "set", "eth0", "up")
    return hosts


def cut_links(hosts, process, out, dice):
    """Cuts the link of a host. The run continues without it. Then the link returns, and a rank is killed: the run continues with all hosts."""
    cut = dice.randrange(1, COUNT + 1)
    wait_until(lambda: recorded(out) >= 5, process, LIMIT)
    ip(hosts[0], "link", "set", f"port{cut}", "down")
    wait_until(lambda: retries(out) > 0 and len(events(out, "failure")) > 0, process, LIMIT)
    ip(hosts[0], "link", "set", f"port{cut}", "up")
    before = retries(out)
    send(process, [0], signal.SIGKILL)
    wait_until(lambda: retries(out) > before, process, LIMIT)
    finish(process)


@law.seeds(1, 2)
def test_links(seed):
    """A link is cut: its host does not answer, and is left out until it does. Another host has the snapshot."""
    if not os.environ.get("STARGRAD_LONG") and not os.environ.get("STARGRAD_SEEDS"):
        raise Skip("links are cut for make check-long")
    if os.geteuid() or not all(map(shutil.which, ("ip", "nsenter", "unshare", "mpirun"))):
        raise Skip("network namespaces need root, iproute2 and mpirun")
    dice, place, out, words = random.Random(seed), folder("hosts"), folder("cut"), (*NETWORKS[seed % 2], *COMMON)
    reference = whole(words)
    os.makedirs(place)
    shutil.rmtree(MEMORY, ignore_errors=True)
    hosts = make_hosts(COUNT, place)
    with open(f"{place}/agent", "w", encoding="ascii") as file:
        file.write(AGENT % (MEMORY, place))
    os.chmod(f"{place}/agent", 0o755)
    job = command("launch", "-n", COUNT, "--host", ",".join(f"h{i}" for i in range(1, COUNT + 1)), "--retries", 20, "--", "train", *words,
                  "--snapshot-every", 2, "--checkpoint-every", 0, "--stall-timeout", 5, "--out", out)
    environment = {**os.environ, **RANKS, "OMPI_MCA_plm_rsh_agent": f"{place}/agent", "PRTE_MCA_plm_ssh_agent": f"{place}/agent"}
    environment.pop("STARGRAD_SNAPSHOTS", None)
    with open(f"{out}.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(["nsenter", "--target", str(hosts[0].pid), "--net", "--uts", *job], stdout=subprocess.DEVNULL, stderr=log, env=environment)
    try:
        cut_links(hosts, process, out, dice)
        compare(out, reference)
    finally:
        with open(f"{out}.log", encoding="utf-8", errors="replace") as log:
            print(log.read())
        for host in hosts:
            host.kill()
            host.wait()


if __name__ == "__main__":
    law.main(globals())
