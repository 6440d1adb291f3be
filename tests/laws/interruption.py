"""The law of interruption: a run that is killed or stopped at any step, then resumed without further options, equals the
uninterrupted run. Losses, metrics and weights are equal bit for bit, and no row occurs twice in metrics.jsonl."""
import os
import re
import shlex
import signal
import subprocess
import time

import law
import several_files
from law import Broken
from run import FOLDER, RANKS, STARGRAD, command, content, events, folder, wait_until

STEPS = 40      # at most
os.environ["STARGRAD_SNAPSHOTS"] = FOLDER

NETWORKS = (
    (("--model", "mlp", "--data", "digits"), ("--batch", 64), 0.1),
    (("--model", "convnet", "--data", "digits"), ("--batch", 96), 0.05),
    (("--model", "lenet", "--data", "synthetic:28x28x1,10,320"), ("--batch", 32), 0.02),
    (("--model", "mlp", "--data", "synthetic:4x4x1,20,200"), ("--batch", 20), 0.05),
    (("--model", "mlp", "--data", "table"), ("--batch", 20), 0.02),
    (("--model", "convnet", "--data", "shards", "--shuffle-window", 20), ("--batch", 12), 0.02),
    (("--model", "gpt:layers=1,heads=2,width=16,context=16,vocabulary=256", "--data", "mixture"), ("--batch", 16), 0.05),
    (("--model", "gpt:layers=1,heads=2,width=16,context=8,vocabulary=256", "--data", "text"), ("--batch", 16), 0.05),
    (("--model", "llama:layers=1,heads=4,kv_heads=2,width=16,hidden=24,context=8,vocabulary=256", "--data", "text"), ("--batch", 16), 0.05),
)
OPTIONS = (
    (0.3, ("--optimizer", "adamw", "--lr", 0.002), ("--optimizer", "lamb"), ("--optimizer", "muon"), ("--optimizer", "normuon"),
     ("--optimizer", "schedulefree"), ("--optimizer", "soap", "--soap-every", 2), ("--optimizer", "lars"),
     ("--nesterov",), ("--optimizer", "kfac", "--kfac-factor-every", 2, "--kfac-eigen-every", 4),
     ("--optimizer", "kfac", "--kfac-factor-every", 3, "--kfac-eigen-every", 3, "--kfac-lag", 0)),
    (0.3, ("--schedule", "cosine"), ("--schedule", "onecycle"), ("--schedule", "step:1,2:0.1"), ("--schedule", "poly:2")),
    (0.2, ("--warmup", 0.5), ("--warmup", 1)),
    (0.2, ("--ema", 0.9), ("--ema", 0.99)),
    (0.2, ("--lookahead", 3), ("--lookahead", "5:.8"), ("--lookahead", "4:.77:3")),
    (0.2, ("--augment", "crop:1"), ("--augment", "crop:1,flip"), ("--augment", "mixup")),
    (0.2, ("--label-smoothing", 0.1), ("--clip-norm", 0.5), ("--weight-decay", 0.01, "--no-decay-1d")),
    (0.2, ("--freeze", "*.bias"), ("--freeze-after", "*.bias=0.5"), ("--lr-of", "*.weight=.5"), ("--optimizer-of", "*.bias=adam")),
    (0.3, ("--best",), ("--patience", 1), ("--patience", 2, "--best")),
    (0.3, ("--evaluate-every", 5), ("--evaluate-every", 3), ("--evaluate-last",), ("--tta", "flip")),
    (0.2, ("--window", 1), ("--window", 4)),
    (0.2, ("--no-shuffle",), ("--seed", 7), ("--no-fuse",), ("--micro-batch", 4), ("--recompute",)),
    (0.1, ("--precision", "bf16")),
    (0.2, ("--tensorboard",), ("--tensorboard", "--histograms", 4)),
    (0.2, ("--keep", 1), ("--keep", 2)),
    (0.3, ("--snapshot-every", 1), ("--snapshot-every", 2), ("--snapshot-every", "auto")),
    (0.1, ("--mean", 0.5, "--deviation", 0.25)),
)
WAYS = (
    ("kill", signal.SIGKILL), ("stop", signal.SIGTERM), ("stop", signal.SIGINT), ("stop", signal.SIGUSR1), ("stop", signal.SIGHUP),
)
# Of two ranks: mpirun hands SIGUSR1 on, and ends the ranks at once by other signals; stargrad launch makes SIGUSR1 of them. A rank that is
# killed takes the other along.
WAYS_OF_RANKS = (
    ("stop", signal.SIGUSR1), ("kill", signal.SIGTERM), ("kill", signal.SIGINT), ("kill", signal.SIGHUP), ("kill", signal.SIGKILL),
    ("kill a rank", signal.SIGKILL), ("stop launch", signal.SIGUSR1), ("stop launch", signal.SIGTERM), ("stop launch", signal.SIGINT),
    ("stop launch", signal.SIGHUP), ("kill launch", signal.SIGKILL),
)


def made(word):
    """A file for --data, the same in each combination."""
    os.makedirs(FOLDER, exist_ok=True)
    path = os.path.join(FOLDER, word)
    if not os.path.exists(path):
        lines = [f"{i % 7},{i * i % 11}.5,{('ant', 'bee', 'cat')[i * i % 7 % 3]}\n" for i in range(250)]
        with open(path, "w") as f:
            f.write("a,b,kind\n" + "".join(lines) if word == "table" else "".join(chr(97 + (i * i // 7 + i // 3) % 26) for i in range(3000)))
    return f"csv:{path}" if word == "table" else f"text:{path},8"


def processes(out):
    """Those of the run in this folder that are still there, whoever started them, but for launchers."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as f:
                words = f.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        if words[1:2] == ["train"] and out in words:
            found.append(int(name))
    return found


def rows(out, kind):
    """The rows of metrics.jsonl without what is time or memory, in the order of their steps; each once."""
    found = [{k: v for k, v in e.items() if k not in ("seconds", "samples_per_second", "memory_mbyte")} for e in events(out, kind)]
    steps = [row["step"] for row in found]
    assert len(set(steps)) == len(steps), f"{kind}s twice: {steps}"
    return sorted(found, key=lambda row: row["step"])


def ending(said):
    """The last line, without the run's folder."""
    return said.strip().splitlines()[-1].split(": ", 1)[1]


def interrupt(words, ranks, way, number, steps):
    """Sends the signal once there are so many steps. Returns what was said on standard error."""
    launch = [] if ranks == 1 else command("launch", "-n", ranks, "--") if "launch" in way else ["mpirun", "-n", str(ranks), STARGRAD]
    out = words[words.index("--out") + 1]
    process = subprocess.Popen([*launch, *(words if ranks > 1 else command(*words))], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                               errors="replace", env={**os.environ, **RANKS})
    wait_until(lambda: content(out, "metrics.jsonl").count(b'"step","step"') >= steps, process)
    victims = processes(out) if way == "kill a rank" else []
    if victims:
        os.kill(victims[steps % len(victims)], number)
    else:
        process.send_signal(number)
    said = process.communicate()[1]
    deadline = time.monotonic() + 60
    while processes(out):
        if time.monotonic() > deadline:
            raise Broken(f"{way} by {signal.Signals(number).name} left processes {processes(out)}")
        time.sleep(0.02)
    return said


def check(draw):
    network, batch, rate = draw.choice(NETWORKS)
    if "shards" in network and not several_files.has_archives():
        network = NETWORKS[1][0]
    places = {"table": made, "text": made, "shards": lambda _: several_files.images(), "mixture": lambda _: several_files.mixture()}
    network = [places[word](word) if word in places else word for word in network]
    every = draw.choice(("1", "2s", "3s", "7s", "1s", "1h"))
    steps = draw.random.randrange(8, STEPS)
    ranks = 2 if draw.chance(0.25) else 1
    words = ["train", *network, *batch, "--lr", rate, "--steps", steps, "--checkpoint-every", every, "--deterministic", "--cpus", 1,
             *(("--bn-group", "global") if ranks > 1 else ()), *draw.options(OPTIONS)]
    words = [str(w) for w in words]
    whole, out = folder("whole"), folder("parted")
    said = draw.run([*words, "--out", whole], ranks, refusable=True)
    stops = draw.random.randrange(1, 3)
    for _ in range(stops):
        way, number = draw.choice(WAYS if ranks == 1 else WAYS_OF_RANKS)
        at = draw.random.randrange(0, steps)
        begun = os.path.exists(os.path.join(out, "config.json"))
        again = ["train", "--out", out, "--resume"] if begun else [*words, "--out", out]
        draw.commands.append(f"{shlex.join(command(*again))}  # {way} by {signal.Signals(number).name} after step {at}")
        complained = interrupt(again, ranks, way, number, at)
        told = re.search("continue with (.*)", complained)
        if told and ranks == 1 and shlex.split(told[1]) != command("train", "--out", out, "--resume"):
            raise Broken(f"is told to continue with {told[1]}")
    if os.path.exists(os.path.join(out, "config.json")):
        again = draw.run(["train", "--out", out, "--resume"], ranks)
    else:
        again = draw.run([*words, "--out", out], ranks)
    for kind in ("step", "epoch"):
        one, other = rows(whole, kind), rows(out, kind)
        assert one == other, f"{kind}s differ: {[(a, b) for a, b in zip(one, other) if a != b][:3]}, {len(one)} and {len(other)}"
    for name in ("model.safetensors", "best.safetensors"):
        there = [os.path.exists(os.path.join(run, name)) for run in (whole, out)]
        assert there[0] == there[1] and (not there[0] or content(whole, name) == content(out, name)), f"{name} differs"
    assert ending(said) == ending(again), (ending(said), ending(again))


@law.seeds(10, 120)
def test_interruption(seed):
    law.holds("interruption", check, seed)


if __name__ == "__main__":
    law.main(globals())
