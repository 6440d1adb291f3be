"""The law of kills: a run that stargrad launch restarts equals the undisturbed run, at whatever moments its ranks are lost. Losses and weights are
equal bit for bit, and each step counts once. A seed is a run of four ranks that are struck five times."""
import functools
import glob
import os
import re
import shlex
import signal
import subprocess
import time

import law
from law import Broken
from run import FOLDER, RANKS, command, content, events, folder, losses, ranks_of, stargrad, wait_until

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
        strike(process, out, "one", dice)


def run_and_strike(words, out, draw):
    with open(f"{out}.log", "w", encoding="utf-8") as log:
        process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=log, env={**os.environ, **RANKS, "STARGRAD_SNAPSHOTS": MEMORY})
    try:
        for _ in range(STRIKES):
            at, way = min(recorded(out) + draw.random.randrange(1, 9), STEPS - 1), draw.choice(WAYS)
            draw.commands.append(f"# {way} after step {at}")
            wait_until(lambda at=at: recorded(out) >= at, process, LIMIT)
            strike(process, out, way, draw.random)
        process.wait(LIMIT)
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()
    if process.returncode:
        raise Broken(f"launch ended with exit status {process.returncode}")


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
    steps = [e["step"] for e in events(out)]
    assert steps == list(range(1, STEPS + 1)), steps
    assert losses(out) == losses(reference), "the losses differ"
    assert content(out) == content(reference), "the weights differ"
    assert not os.listdir(MEMORY), os.listdir(MEMORY)
    seconds = [e["seconds"] for e in events(out, "failure")]
    print("seconds from a failure to the next step:", *(f"{s:.2f}{' slow' if s > SLOW else ''}" for s in seconds))


@law.seeds(1, 6)
def test_kills(seed):
    law.holds("kills", check, seed)


if __name__ == "__main__":
    law.main(globals())
