"""The time from the loss of a rank to the next finished step, and the cost of snapshots in a run without failures.

    python3 bench/recovery.py kills PROGRAM [KILLS]      kills a random rank of four, KILLS times
    python3 bench/recovery.py cost PROGRAM [ROUNDS]      trains with and without snapshots on one rank, side by side

PROGRAM is build/stargrad, also of an older version: it is started by launch --retries, and restarts from what it has."""
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "tests", "train"))

from run import RANKS, ranks_of  # noqa: E402

COUNT = 4
STEPS = 60       # of a run of cost
WORK = tempfile.mkdtemp(prefix="stargrad-recovery-")
NETWORKS = {
    "resnet20": ("--model", "resnet20", "--data", "synthetic:32x32x3,10,3200", "--batch", "64", "--lr", "0.05", "--bn-group", "global"),
    "gpt": ("--model", "gpt:layers=4,heads=4,width=128,context=64,vocabulary=256", "--data", f"text:{WORK}/text,64", "--batch", "32",
            "--optimizer", "adamw", "--lr", "0.001"),
}
COMMON = ("--deterministic", "--cpus", "1", "--epochs", "1000")


def steps(out):
    try:
        with open(f"{out}/metrics.jsonl", "rb") as file:
            found = re.findall(rb'"step","step":(\d+).*\n', file.read())
    except OSError:
        return []
    return [int(step) for step in found]


def median(times):
    return f"median {statistics.median(times):.2f} s, {min(times):.2f} to {max(times):.2f} s"


def kills(program, name, times):
    """Kills a rank after 20 to 40 further steps. The file is shortened by a restart: its next line is the next finished step."""
    out, dice = f"{WORK}/{name}", random.Random(1)
    words = [program, "launch", "-n", str(COUNT), "--retries", "1000", "--", "train", *NETWORKS[name], *COMMON, "--out", out]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **RANKS})
    again, back, repeated = [], [], []
    for _ in range(times):
        begin, wait = (steps(out) or [0])[-1], dice.randrange(20, 40)
        while (steps(out) or [0])[-1] < begin + wait:
            time.sleep(0.01)
        before = steps(out)[-1]
        old = set(ranks_of(process.pid).values())
        os.kill(ranks_of(process.pid)[dice.randrange(COUNT)], signal.SIGKILL)
        killed, inode = time.monotonic(), os.stat(f"{out}/metrics.jsonl").st_ino
        before = max(before, (steps(out) or [0])[-1])
        while os.stat(f"{out}/metrics.jsonl").st_ino == inode:      # replaced when the run is resumed
            time.sleep(0.002)
        kept = len(steps(out))
        while len(steps(out)) <= kept:
            time.sleep(0.002)
        again.append(time.monotonic() - killed)
        repeated.append(before - kept)
        while (steps(out) or [0])[-1] < before:
            time.sleep(0.002)
        back.append(time.monotonic() - killed)
        assert old.isdisjoint(ranks_of(process.pid).values())
    process.send_signal(signal.SIGTERM)
    process.wait()
    print(f"{name}: {times} kills; to the next finished step {median(again)}; to the step at the kill {median(back)}; "
          f"steps repeated: median {statistics.median(repeated):.0f}, at most {max(repeated)}", flush=True)


def start_up(program, name):
    """The processes, MPI and StarPU start, and the program of a step is built, but no step runs."""
    times = []
    for _ in range(9):
        begin = time.monotonic()
        subprocess.run(["mpirun", "-n", str(COUNT), program, "train", *NETWORKS[name], *COMMON, "--print", "--out", f"{WORK}/none"],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True, env={**os.environ, **RANKS})
        times.append(time.monotonic() - begin)
    print(f"{name}: start-up and end of {COUNT} processes without a step: {median(times)}", flush=True)


def begin(program, name, every, core):
    """Starts a run of one rank on a core. Returns its folder and its process."""
    out = tempfile.mkdtemp(dir=WORK)
    words = ["taskset", "-c", str(core), program, "train", *NETWORKS[name], *COMMON, "--steps", str(STEPS), "--checkpoint-every", "0",
             "--evaluate-last", "--snapshot-every", every, "--out", out]
    return out, subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, "STARGRAD_PICTURES": "no"}).pid


def end(name, out, process):
    """Waits for the run. Returns the mean seconds of the steps after the first tenth, and the processor seconds of the run."""
    _, status, usage = os.wait4(process, 0)
    if status:
        sys.exit(f"{name}: the run ended with exit status {os.waitstatus_to_exitcode(status)}")
    with open(f"{out}/metrics.jsonl", encoding="utf-8") as file:
        lines = [e for e in map(json.loads, file) if e["event"] == "step"][STEPS // 10:]
    batch = int(NETWORKS[name][NETWORKS[name].index("--batch") + 1])
    return statistics.mean(batch / e["samples_per_second"] for e in lines), usage.ru_utime + usage.ru_stime


def cost(program, name, rounds):
    """Runs with and without snapshots, at the same time on one core, so that other work on the machine disturbs both alike."""
    ratios = {"time of a step": [], "processor time": []}
    for i in range(rounds):
        runs = {every: begin(program, name, every, i % 2) for every in (("0", "auto"), ("auto", "0"))[i % 2]}
        (step, processor), (step_with, processor_with) = (end(name, *runs[every]) for every in ("0", "auto"))
        ratios["time of a step"].append(100 * (step_with / step - 1))
        ratios["processor time"].append(100 * (processor_with / processor - 1))
        print(f"{name}: {1e3 * step:.1f} ms per step without snapshots, {1e3 * step_with:.1f} ms with; "
              f"{processor:.2f} s and {processor_with:.2f} s of a processor", flush=True)
    for what, percent in ratios.items():
        low, middle, high = statistics.quantiles(percent)
        print(f"{name}: {what} with snapshots: median {middle:+.2f} %, quartiles {low:+.2f} and {high:+.2f} %, of {rounds} rounds", flush=True)


if __name__ == "__main__":
    what, program = sys.argv[1], os.path.abspath(sys.argv[2])
    number = int(sys.argv[3]) if len(sys.argv) > 3 else 9 if what == "kills" else 8
    with open(f"{WORK}/text", "w", encoding="utf-8") as file:
        file.write("".join(chr(97 + (i * i // 7 + i // 3) % 26) for i in range(60000)))
    try:
        for network in NETWORKS:
            if what == "cost":
                cost(program, network, number)
            else:
                kills(program, network, number)
                start_up(program, network)
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
