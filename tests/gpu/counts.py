"""Count the work of a GPU in a training step, without a GPU (tests/gpu/emulator): python3 tests/gpu/counts.py [MODEL…] [OPTION…]

For each network, in bf16 and for a number of samples on one GPU, the script prints: StarPU's tasks of a step, kernels, calls of
cuDNN and cuBLAS, launches (a whole CUDA graph is one launch), and the bytes that kernels move, in total and for the passes of
batch norm.

Tasks and bytes come from the output of train --print. Launches are those of a run of six steps minus those of five steps, after
all graphs are recorded. They use two samples of 32x32, because launches do not depend on the samples. OPTIONS that begin with --
are passed to train."""
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PROGRAM = os.path.join(os.environ.get("builddir", os.path.join(ROOT, "build")), "tests", "gpu", "emulator", "stargrad")
NETWORKS = {"resnet20": ("32x32x3,10", 128), "resnet50": ("224x224x3,1000", 256)}
UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
OPTIONS = [word for word in sys.argv[1:] if word.startswith("--")]
CACHE = tempfile.TemporaryDirectory()


def stargrad(*arguments):
    environment = {**os.environ, "STARGRAD_EMULATED_GPUS": "1", "STARGRAD_EMULATED_COUNT": "1", "STARPU_HOME": CACHE.name}
    words = [PROGRAM, "train", *map(str, arguments), *OPTIONS, "--precision", "bf16", "--gpus", "1", "--cpus", "1", "--no-augment"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout, done.stderr


def printed(model, shape, batch, *arguments):
    """Tasks of a step, and (name, times, bytes) of each kind of task."""
    said, _ = stargrad("--model", model, "--data", f"synthetic:{shape},{batch}", "--batch", batch, "--micro-batch", batch, "--print",
                       *arguments)
    step = said[said.index("\ntraining step"):]
    rows = re.findall(r"^\w+ +(\S.*?) +(\d+)  \S+ +([\d.]+)([kMGT]?) +\(", step, re.M)
    return int(re.search(r"^(\d+) tasks?, ", step, re.M)[1]), [(name, int(n), float(b) * UNITS[u]) for name, n, b, u in rows]


def launched(model, steps):
    with tempfile.TemporaryDirectory() as out:
        _, said = stargrad("--model", model, "--data", "synthetic:32x32x3,10,16", "--batch", 2, "--steps", steps,
                           "--out", os.path.join(out, "run"))
    counted = re.search(r"emulated GPUs: (\d+) kernels, (\d+) calls of libraries, (\d+) of these in (\d+) launches of graphs", said)
    kernels, calls, within, graphs = map(int, counted.groups())
    return kernels, calls, kernels + calls - within + graphs


def count(model):
    shape, batch = NETWORKS[model]
    tasks, _ = printed(model, shape, batch)
    _, rows = printed(model, shape, batch, "--no-fuse")
    launched(model, 2)      # what is measured once, cuDNN's ways, is no part of a step
    kernels, calls, launches = (b - a for a, b in zip(launched(model, 5), launched(model, 6)))

    def gigabytes(pattern):
        return sum(n * b for name, n, b in rows if re.search(pattern, name)) / 1e9
    norm = gigabytes(r" (stats|apply|sums|data)$")
    print(f"{model:<10} {batch:>7} {tasks:>6} {kernels:>8} {calls:>6} {launches:>9} {gigabytes(''):>8.2f} {norm:>11.2f}", flush=True)


print("network    samples  tasks  kernels  calls  launches  GB moved  batch norm")
for model in [word for word in sys.argv[1:] if not word.startswith("--")] or NETWORKS:
    count(model)
