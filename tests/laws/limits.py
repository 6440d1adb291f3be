"""The law of limits: a run with --memory and --spill, with the least memory that it accepts, has the weights and losses of a run
without a limit, bit by bit, whatever its other options are; also if only some of its ranks have a limit, and if it is killed,
stopped or meets an error of the disk, and is resumed."""
import os
import re
import shlex
import shutil
import signal
import subprocess
import time

import law
from faults import EIO, ENOSPC, faulty, read_calls
from interruption import processes
from law import Broken
from run import FOLDER, RANKS, REFERENCE, by_rank, command, content, folder, losses, ranks_of, resuming, wait_for_steps

TEXT = os.path.join(REFERENCE, "text.txt")
STEPS = 4
LANGUAGE = (
    ("--model", "gpt:layers=3,heads=4,width=128,context=128,vocabulary=2048", "--data", f"text:{TEXT},64", "--batch", 32,
     "--micro-batch", 4),
    ("--model", "llama:layers=2,heads=4,kv_heads=2,width=128,hidden=256,context=128,vocabulary=2048", "--data", f"text:{TEXT},64",
     "--batch", 32, "--micro-batch", 4),
)
NETWORKS = (
    ("--model", "resnet20", "--data", "synthetic:32x32x3,10,512", "--batch", 128),
    ("--model", "resnet18:small=1", "--data", "synthetic:32x32x3,10,256", "--batch", 64),
    ("--model", "vgg11:width=16,hidden=64", "--data", "synthetic:32x32x3,10,512", "--batch", 64),
    ("--model", "googlenet", "--data", "synthetic:64x64x3,10,96", "--batch", 16),
    ("--model", "densenet121", "--data", "synthetic:64x64x3,10,64", "--batch", 16),
    ("--model", "mobilenet_v2", "--data", "synthetic:64x64x3,10,64", "--batch", 16),
    ("--model", "efficientnet_b0", "--data", "synthetic:64x64x3,10,64", "--batch", 16),
    ("--model", "vit:patch=4,layers=2,heads=2,width=64", "--data", "synthetic:32x32x3,10,512", "--batch", 128),
    *LANGUAGE,
)
OPTIONS = (
    (0.3, ("--optimizer", "lamb"), ("--optimizer", "muon"), ("--optimizer", "adamw"),
     ("--optimizer", "kfac", "--kfac-factor-every", 2, "--kfac-eigen-every", 2)),
    (0.3, ("--window", 1), ("--window", 4)),
    (0.3, ("--cpus", 1), ("--cpus", 2), ("--cpus", 3)),
    (0.2, ("--micro-batch", 4), ("--micro-batch", 8)),
    (0.2, ("--recompute",)),
    (0.2, ("--precision", "bf16")),
    (0.2, ("--ema", 0.9), ("--lookahead", 2)),
    (0.2, ("--clip-norm", 1), ("--freeze", "*.bias"), ("--label-smoothing", 0.1)),
    (0.2, ("--bn-group", 16), ("--bn-group", "micro")),
    (0.2, ("--histograms", 2, "--tensorboard")),
    (0.3, ("--evaluate-every", 2), ("--evaluate-last",)),
)


MESHES = ((), ("--shard", "optimizer"), ("--shard", "parameters"), ("--mesh", "tensor=1d:2"), ("--mesh", "pipe=2"))
WAYS = ("kill", "end", "ask", "pause", "error", "error", "remove")
SPILL = os.path.join(FOLDER, "spill")


class Job:
    """A run of several ranks, of which some have a limit."""

    def __init__(self, draw, words, ranks):
        self.draw, self.words, self.ranks = draw, words, ranks
        self.limits = [()] * ranks

    def command(self, out, *more, faulty_rank=-1, fault=None):
        """The command that starts or continues the run in OUT. The calls of FAULTY_RANK fail, and are counted."""
        words = [command(*self.words, *limit, *more, "--out", out, *resuming(out)) for limit in self.limits]
        if faulty_rank >= 0:
            words[faulty_rank] = faulty(words[faulty_rank], fault)
        words = words[0] if self.ranks == 1 else ["mpirun", "-n", str(self.ranks), *by_rank(*words)]
        self.draw.commands.append(shlex.join(words))
        return words

    def run(self, words, expect=0):
        """Returns what the command printed."""
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", env={**os.environ, **RANKS}, timeout=600)
        if bool(done.returncode) != bool(expect):
            raise Broken(f"exit status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stderr if expect else done.stdout

    def least(self, rank):
        """The options by which RANK alone has the least memory."""
        self.limits = [("--memory", "1M", "--spill", SPILL) if r == rank else () for r in range(self.ranks)]
        found = re.search(r"give --memory (\d+)M", self.run(self.command(folder("print"), "--print"), 1))
        if not found:
            raise Broken("the program does not name the least memory")
        margin = 1.06 if self.ranks > 1 else 1      # a rank's own memory, apart from its steps, varies by up to 20 MB between starts
        return ("--memory", f"{margin * int(found[1]):.0f}M", "--spill", SPILL)


def said_by_program(text):
    """Its errors, without warnings and what mpirun adds."""
    return [line for line in text.splitlines() if line.startswith("stargrad: ") and not line.startswith("stargrad: warning: ")]


def meet_error(job, out, rank, calls):
    """The run ends with one message, because a call of RANK fails, unless it makes fewer calls now than before."""
    name = job.draw.choice(calls)
    fault = (name, job.draw.random.randrange(1, calls[name] + 1), job.draw.choice((EIO, ENOSPC)))
    words = job.command(out, faulty_rank=rank, fault=fault)
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", env={**os.environ, **RANKS}, timeout=600)
    lines = said_by_program(done.stderr)
    if done.returncode and (len(lines) != 1 or f"--spill {SPILL}: " not in lines[0]):
        raise Broken(f"{len(lines)} messages\n{done.stderr}")


def interrupt(job, out, way, step):
    """Starts or continues the run, and interrupts it after STEP."""
    process = subprocess.Popen(job.command(out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace",
                               env={**os.environ, **RANKS})
    wait_for_steps(out, step, process)
    victims = list(ranks_of(process.pid).values()) or [process.pid]
    victim = victims[step % len(victims)]
    numbers = {"kill": [signal.SIGKILL], "end": [signal.SIGTERM], "ask": [signal.SIGUSR1], "pause": [signal.SIGSTOP, signal.SIGCONT]}.get(way, ())
    if way == "remove":
        shutil.rmtree(SPILL)
    for number in numbers:
        try:
            os.kill(victim, number)
        except ProcessLookupError:
            pass
    said = process.communicate(timeout=600)[1]
    if process.returncode and way in ("pause", "remove"):
        raise Broken(f"{way}: exit status {process.returncode}\n{said}")


def disturb(job, out, calls):
    """Interrupts the run once or twice."""
    for _ in range(job.draw.random.randrange(1, 3)):
        way, step = job.draw.choice(WAYS), job.draw.random.randrange(0, STEPS)
        rank = job.draw.choice([r for r, limit in enumerate(job.limits) if limit])
        job.draw.commands.append(f"# {way} of rank {rank} after step {step}")
        if way == "error":
            meet_error(job, out, rank, calls[rank])
        else:
            interrupt(job, out, way, step)
        deadline = time.monotonic() + 60
        while processes(out):
            if time.monotonic() > deadline:
                raise Broken(f"{way} left processes {processes(out)}")
            time.sleep(0.02)
        os.makedirs(SPILL, exist_ok=True)
        if os.listdir(SPILL):
            raise Broken(f"{way} left {os.listdir(SPILL)}")


def compare(free, limited):
    if losses(free) != losses(limited) or content(free) != content(limited):
        raise Broken(f"other bits: losses {losses(free)} and {losses(limited)}")


def check(draw):
    network = draw.choice(NETWORKS)
    ranks = 2 if draw.chance(0.4) else 1
    divided = draw.choice(MESHES if network in LANGUAGE else MESHES[:3]) if ranks > 1 else ()
    disturbed = draw.chance(0.5)
    words = ["train", *network, "--steps", STEPS, "--deterministic", "--gpus", 0, "--checkpoint-every", "1s" if disturbed else 0, *divided,
             *draw.options(OPTIONS)]
    if "kfac" in words:     # decompositions of the factors of larger networks take minutes
        words[1:1 + len(network)] = NETWORKS[0]
    free, limited = folder("free"), folder("limited")
    os.makedirs(SPILL, exist_ok=True)
    draw.run([*words, "--out", free], ranks, refusable=True)
    job = Job(draw, words, ranks)
    least = [job.least(rank) for rank in range(ranks)]
    without = draw.random.randrange(-1, ranks) if ranks > 1 else -1
    job.limits = [() if rank == without else least[rank] for rank in range(ranks)]
    calls = {}
    for rank in (r for r in range(ranks) if job.limits[r]):
        job.run(job.command(folder("limited"), faulty_rank=rank))
        calls[rank] = read_calls()
        compare(free, limited)
    if disturbed:
        disturb(job, folder("disturbed"), calls)
        job.run(job.command(os.path.join(FOLDER, "disturbed")))
        compare(free, os.path.join(FOLDER, "disturbed"))


@law.seeds(2, 25)
def test_limits(seed):
    law.holds("limits", check, seed)


if __name__ == "__main__":
    law.main(globals())
