"""Functions that the tests of CUDA code on emulated GPUs share. Emulated GPUs are CPU threads (tests/gpu/emulator), so these
tests check only logic. tests/gpu/run tests the behaviour of a real GPU."""
import os
import re
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "train"))
import run  # noqa: E402
from run import FOLDER, REFERENCE, Skip, content, folder, losses, stargrad  # noqa: E402

PROGRAMS = os.path.join(os.environ.get("builddir", "build"), "tests", "gpu", "emulator")
HOME = os.path.join(FOLDER, "home")
CPU, CUDA, TWO = ("--gpus", 0), ("--cpus", 1, "--gpus", 1), ("--cpus", 1, "--gpus", 2)
SHARED = ("--scheduler", "eager")     # as tasks come, where a scheduler that measures would leave all to the CPU
SMALL = ("--model", "convnet", "--data", "synthetic:8x8x3,10,64", "--augment", "crop:4,flip", "--batch", 16, "--micro-batch", 4, "--lr", 0.05)


def new_home():
    """A home of StarPU without what runs have measured, but for the speed of copies, whose measurement takes seconds."""
    home = tempfile.mkdtemp(dir=FOLDER)
    copies = os.path.join(".starpu", "sampling", "bus")
    if os.path.exists(os.path.join(HOME, copies)):
        shutil.copytree(os.path.join(HOME, copies), os.path.join(home, copies))
    return home


def needs(program):
    if not os.path.exists(os.path.join(PROGRAMS, program)):
        raise Skip("there are no CUDA kernels: configured without CUDA, or without cmocka")


def train(name, *arguments, env=None):
    needs("stargrad")
    gpus = "2" if arguments[-4:] == TWO else "1"
    out = folder(name)
    said = stargrad("train", *arguments, "--out", out, env={"STARGRAD_EMULATED_GPUS": gpus, **(env or {})})
    assert ("emulated GPU" in said) == (arguments[-2:] != CPU), said
    return out


def agree(arguments, within, where=CUDA):
    """The losses on CUDA are those on CPUs, to WITHIN in the first three steps, and ten times that later: rounding grows."""
    cpu, cuda = losses(train("cpu", *arguments, *CPU)), losses(train("cuda", *arguments, *SHARED, *where))
    error = [abs(a - b) / b for a, b in zip(cuda, cpu, strict=True)]
    assert max(error[:3]) <= within and max(error) <= 10 * within, f"{arguments}: {cuda} is not {cpu}"


def graphs(*arguments, env=None):
    """Weights of a deterministic run, how much of what it gave its devices was in CUDA graphs, and what it warned of."""
    needs("stargrad")
    out = folder("graphs")
    words = [run.STARGRAD, "train", *map(str, arguments), "--deterministic", "--out", out]
    env = {**os.environ, "STARGRAD_EMULATED_GPUS": "2", "STARGRAD_EMULATED_COUNT": "1", **(env or {})}
    done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=600)
    assert done.returncode == 0 and "computed without" not in done.stderr, done.stdout + done.stderr
    kernels, calls, recorded, launches = map(int, re.search(
        r"emulated GPUs: (\d+) kernels, (\d+) calls of libraries, (\d+) of these in (\d+) launches", done.stderr).groups())
    assert (recorded > 0) == (launches > 0), done.stderr
    return content(out), recorded / (kernels + calls), "cannot be recorded" in done.stderr


def reference(model, data, lr):
    return ("--model", model, "--data", f"{data}:{os.path.join(REFERENCE, data)}",
            "--init", os.path.join(REFERENCE, f"{model}.safetensors"), "--batch", 16, "--micro-batch", 8, "--steps", 5,
            "--no-shuffle", "--no-augment", "--lr", lr)
