"""The CUDA code on CUDA devices made of CPU threads (tests/gpu/emulator): every operation's CUDA kernels against its CPU kernels,
and training on one such device and on two against training on CPUs. Of logic alone: what only a GPU can show is for
tests/gpu/run."""
import gzip
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "train"))
import pytest  # noqa: E402
import run  # noqa: E402
from run import FOLDER, REFERENCE, Skip, content, folder, losses, main, ranks, stargrad  # noqa: E402

PROGRAMS = os.path.join(os.environ.get("builddir", "build"), "tests", "gpu", "emulator")
HOME = os.path.join(FOLDER, "home")
CPU, CUDA, TWO = ("--gpus", 0), ("--cpus", 1, "--gpus", 1), ("--cpus", 1, "--gpus", 2)
SHARED = ("--scheduler", "eager")     # as tasks come, where a scheduler that measures would leave all to the CPU
SMALL = ("--model", "convnet", "--data", "synthetic:8x8x3,10,64", "--augment", "crop:4,flip", "--batch", 16, "--micro-batch", 4, "--lr", 0.05)


@pytest.fixture(autouse=True)
def emulator(monkeypatch):
    """The program of the emulator. What StarPU measures of these devices is worth nothing elsewhere. Every tensor has memory of its own, which
    begins as NaNs."""
    monkeypatch.setattr(run, "STARGRAD", os.path.join(PROGRAMS, "stargrad"))
    monkeypatch.setenv("STARPU_HOME", HOME)
    monkeypatch.setenv("STARPU_SUBALLOCATOR", "0")


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


def test_operations():
    needs("operations")
    done = subprocess.run([os.path.join(PROGRAMS, "operations")], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0 and re.search(r"OK.* cuda$", done.stdout + done.stderr, re.M), done.stdout + done.stderr
    assert "computed without" in done.stderr, "no convolution was refused by cuDNN, so the kernels for that did not run"


def test_losses():
    for precision, within in (("f32", 1e-4), ("tf32", 3e-2), ("bf16", 1e-2)):
        agree((*reference("lenet", "idx", 0.01), "--precision", precision), within)
        agree((*reference("resnet20", "cifar10", 0.002), "--precision", precision), within)


def test_two_devices():
    agree((*reference("resnet20", "cifar10", 0.002), "--bn-group", "rank"), 1e-4, TWO)


def test_shares():
    """A GPU and a core have shares of a batch, cut as each likes its tasks: it is the same batch."""
    arguments = ("--model", "convnet", "--data", "synthetic:8x8x3,10,256", "--batch", 64, "--lr", 0.05, "--steps", 6)
    needs("stargrad")
    said = stargrad("train", *arguments, *CUDA, "--print", env={"STARGRAD_EMULATED_GPUS": "1"})
    assert re.search(r"^training step of 64 samples: \d+ micro-batches of .* on GPUs, .* on CPUs", said, re.M), said
    agree(arguments, 1e-4)
    agree((*arguments, "--precision", "bf16"), 1e-2)


def test_shares_follow_rates():
    """A second run shares by what the first has measured: the slower a GPU, the less it has; and it is the same batch."""
    arguments = ("--model", "convnet", "--data", "synthetic:8x8x3,10,256", "--batch", 128, "--lr", 0.05)
    of_gpu = []
    needs("stargrad")
    for delay in (0, 3000):
        env = {"STARGRAD_EMULATED_GPUS": "1", "STARGRAD_EMULATED_DELAY": str(delay), "STARPU_HOME": new_home(),
               "STARPU_HISTORY_MAX_ERROR": "1000000"}     # %: StarPU forgets times that differ by more, as threads' do on a busy machine
        stargrad("train", *arguments, "--steps", 16, *CUDA, "--out", folder("first"), env=env)
        said = stargrad("train", *arguments, *CUDA, "--print", env=env)
        of_gpu.append(int(re.search(r"micro-batch(?:es)? of (\d+) on GPUs", said)[1]))
    assert of_gpu[0] > of_gpu[1], of_gpu


def test_shares_are_corrected():
    """Rates that are wrong at first are measured while the run goes on, and shares change then; it is the same batch."""
    arguments = ("--model", "convnet", "--data", "synthetic:8x8x3,10,256", "--batch", 128, "--lr", 0.01, "--steps", 32)
    needs("stargrad")
    env = [{"STARGRAD_EMULATED_GPUS": "1", "STARGRAD_EMULATED_DELAY": "3000", "STARPU_HISTORY_MAX_ERROR": "1000000",
            "STARPU_HOME": new_home()} for _ in range(2)]
    rates = [os.path.join(e["STARPU_HOME"], ".starpu", "stargrad", "shares") for e in env]
    stargrad("train", *arguments, *CUDA, "--out", folder("first"), env=env[0])
    with open(rates[0]) as file:
        network = file.readline().split("\t")[0]
    os.makedirs(os.path.dirname(rates[1]))
    with open(rates[1], "w") as file:
        file.write(f"{network}\t7 1\n")
    out = folder("second")
    said = stargrad("train", *arguments, *CUDA, "--out", out, env=env[1])
    assert re.search(r"^batch .* 112 on GPUs, 16 on CPUs", said, re.M), said
    corrected = re.search(r"^shares +from step 17 on, by what tasks have taken: micro-batches of (\d+).* on GPUs, ", said, re.M)
    assert corrected and int(corrected[1]) < 100, said
    error = [abs(a - b) / b for a, b in zip(losses(out), losses(train("cpu", *arguments, *CPU)), strict=True)]
    assert max(error[:3]) <= 1e-4 and max(error) <= 1e-3, error


def test_groups_of_gpus():
    """Of two GPUs each takes batch norm over its own part of a batch, as groups of so many samples on one GPU; a run that goes on
    keeps its groups."""
    arguments = ("--model", "convnet", "--data", "synthetic:8x8x3,10,256", "--batch", 64, "--lr", 0.05, *SHARED)
    needs("stargrad")
    out = folder("two")
    said = stargrad("train", *arguments, "--steps", 6, *TWO, "--out", out, env={"STARGRAD_EMULATED_GPUS": "2"})
    assert re.search("^batch .*; batch norm over 32 samples$", said, re.M), said
    one, whole = (losses(train("other", *arguments, "--steps", 6, "--bn-group", group, *where)) for group, where in ((32, CUDA), ("rank", TWO)))
    error, other = ([abs(a - b) / b for a, b in zip(losses(out), those, strict=True)] for those in (one, whole))
    assert max(error[:3]) <= 1e-4 and max(error) <= 1e-3 < max(other), (error, other)
    said = stargrad("train", *arguments, "--steps", 8, *CUDA, "--resume", "--out", out, env={"STARGRAD_EMULATED_GPUS": "1"})
    assert re.search("^batch .*; batch norm over 32 samples$", said, re.M), said
    groups = {("--micro-batch", 16): 32, ("--micro-batch", 64): 64, ("--deterministic",): 64, ("--bn-group", "global"): 64, ("--batch", 65): 65, ("--batch", 8): 8}
    for more, group in groups.items():
        said = stargrad("train", *arguments, *more, *TWO, "--print", env={"STARGRAD_EMULATED_GPUS": "2"})
        assert re.search(f"^batch .*; batch norm over {group} samples$", said, re.M), (more, said)


def test_cudnn_graphs():
    """Convolutions as cuDNN's graphs, with what comes before and after them, wherever the emulated cuDNN has one."""
    env = {"STARGRAD_CUDNN": "graph"}
    needs("operations")
    done = subprocess.run([os.path.join(PROGRAMS, "operations")], capture_output=True, text=True, timeout=600, env={**os.environ, **env})
    assert done.returncode == 0 and re.search(r"OK.* cuda$", done.stdout + done.stderr, re.M), done.stdout + done.stderr
    again = (*reference("resnet20", "cifar10", 0.002), "--recompute")      # batch norm before a convolution, in its graph
    for arguments in (reference("lenet", "idx", 0.01), reference("resnet20", "cifar10", 0.002), again):
        for precision, within in (("f32", 1e-4), ("tf32", 3e-2), ("bf16", 1e-2)):
            cpu = losses(train("cpu", *arguments, "--precision", precision, *CPU))
            for way in ("algorithms", "graph"):
                cuda = losses(train("cuda", *arguments, "--precision", precision, *SHARED, *CUDA, env={"STARGRAD_CUDNN": way}))
                error = [abs(a - b) / b for a, b in zip(cuda, cpu, strict=True)]
                assert max(error) <= 10 * within, f"{arguments} {precision} {way}: {cuda} is not {cpu}"


def test_which_graphs():
    """Each is asked for once, for each shape, and what came of it is remembered: by what it is beside its convolution."""
    home = new_home()
    relus = ("--model", "nin", "--data", "synthetic:32x32x3,10,8", "--batch", 2, "--steps", 1, "--lr", 0.01)
    for arguments in (reference("lenet", "idx", 0.01), reference("resnet20", "cifar10", 0.002), relus):
        train("which", *arguments, "--precision", "bf16", "--recompute", *SHARED, *CUDA, env={"STARPU_HOME": home})
    found = [os.path.join(where, "cudnn") for where, _, files in os.walk(home) if "cudnn" in files]
    with open(found[0]) as file:
        graphs_of = {int(number) for number in re.findall(r" graph of (\d+)", file.read())}
    alone, bias, relu, stats, scaled, mask, sums = 0, 4, 8, 16, 1 + 2, 32, 64 + 128
    for one in (alone, bias, bias + relu, stats, scaled + stats, mask, sums):
        assert one in graphs_of, (one, graphs_of)


def test_graphs_that_do_not_run():
    """Of what cuDNN will not run, whether it did before or not, a line says so, and all goes on without, as near as ever."""
    arguments = (*reference("resnet20", "cifar10", 0.002), "--recompute", "--precision", "bf16", *SHARED)
    cpu = losses(train("cpu", *arguments, *CPU))
    for first in (1, 100):
        env = {**os.environ, "STARGRAD_CUDNN": "graph", "STARGRAD_EMULATED_GPUS": "1", "STARGRAD_EMULATED_REFUSAL": str(first)}
        out = folder("refused")
        words = [run.STARGRAD, "train", *map(str, arguments), *map(str, CUDA), "--out", out]
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr
        assert ("graph of" in done.stderr and "does not run" in done.stderr) == (first > 1), done.stderr
        error = [abs(a - b) / b for a, b in zip(losses(out), cpu, strict=True)]
        assert max(error) <= 0.1, (first, error)


def test_parts():
    """What tests/gpu/run does, a little of it: a part that cannot run is a row like the others, and ends none of them."""
    needs("stargrad")
    table = os.path.join(folder("table"), "gpu.md")
    os.makedirs(os.path.dirname(table))
    words = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "parts.py"), "--emulated", "--part", "lenet f32", "trace"]
    for missing in (False, True):
        env = {**os.environ, "GPU_TABLE": table, "STARGRAD_EMULATED_GPUS": "0" if missing else "1"}
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=600)
        with open(table) as file:
            rows = [line for line in file if line.startswith("| ")][2:]
        assert done.returncode == missing and len(rows) == 2, done.stdout + done.stderr
        assert all(("FAILED" in row) == missing for row in rows), rows


def test_every_gpu_has_a_micro_batch():
    """Where a core would have less than a sample GPUs have all; and where batch norm's groups are cut, each has a piece."""
    arguments = ("train", "--model", "convnet", "--data", "synthetic:8x8x3,10,256", *CUDA[:2], "--print")
    needs("stargrad")
    said = stargrad(*arguments, "--batch", 1, "--gpus", 1, env={"STARGRAD_EMULATED_GPUS": "1"})
    assert re.search(r"^training step of 1 samples?: 1 micro-batch(es)? of 1 on GPUs", said, re.M), said
    said = stargrad(*arguments, "--batch", 32, "--bn-group", 16, "--gpus", 4, env={"STARGRAD_EMULATED_GPUS": "4"})
    assert re.search(r"^training step of 32 samples: 4 micro-batches of 8", said, re.M), said


def test_slices():
    """Many samples of one GPU are read by several cores, and put together there."""
    arguments = ("--model", "mlp", "--data", "synthetic:64x64x3,10,128", "--batch", 128, "--micro-batch", 128, "--lr", 0.01, "--steps", 3)
    needs("stargrad")
    said = stargrad("train", *arguments, "--cpus", 2, "--gpus", 1, "--print", env={"STARGRAD_EMULATED_GPUS": "1"})
    assert re.search(r"^input +read 0 +2 ", said, re.M), said
    agree(arguments, 1e-4, ("--cpus", 2, "--gpus", 1))


def test_volumes():
    """Convolutions of volumes, which the emulated cuDNN knows none of, transposed ones, group norm, crops."""
    data = folder("volume")
    os.makedirs(data)
    voxels = [(37 * i) % 251 for i in range(5 * 40 * 40)]
    for name, values in (("volume", voxels), ("labels", [255 * (v > 120) for v in voxels])):
        with gzip.open(os.path.join(data, f"train-{name}-idx3-ubyte.gz"), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, 5, 40, 40) + bytes(values))
    for model, patch in (("unet2d:groups=4", "1x18x17"), ("unet3d", "2x17x16")):
        agree(("--model", model, "--data", f"volume:{data},{patch}", "--batch", 4, "--micro-batch", 2, "--steps", 3, "--lr", 0.01), 1e-3)


def test_every_optimizer():
    for name, lr in (("sgd", 0.05), ("adam", 1e-3), ("adamw", 1e-3), ("lamb", 1e-2), ("lars", 0.1)):
        agree((*SMALL, "--bn-group", "rank", "--optimizer", name, "--lr", lr, "--clip-norm", 0.5, "--steps", 6), 1e-4, TWO)


def test_second_order():
    """Devices precondition and update; factors and what is made of them come from the CPU."""
    for more in ((), ("--kfac-inverse",)):
        agree((*SMALL, "--bn-group", "rank", "--optimizer", "kfac", "--lr", 0.02, "--kfac-damping", 0.1, "--kfac-factor-every", 2, "--kfac-eigen-every", 4,
               "--kfac-lag", 2, "--steps", 6, *more), 1e-4, TWO)


def test_fault():
    """A kernel that goes wrong ends the run with a line that names its task, though StarPU waits for it for ever."""
    needs("stargrad")
    for where in (CUDA, TWO):
        said = stargrad("train", *SMALL, "--steps", 6, "--deterministic", *where, "--out", folder("fault"), status=-6,
                        env={"STARGRAD_EMULATED_GPUS": "2", "STARGRAD_EMULATED_FAULT": "300"})
        assert re.search(r"stargrad: CUDA: an illegal memory access was encountered, in .*, task [a-z0-9.]+ ", said), said


def test_deterministic():
    """The same bits twice, on one device and on two, and from streams that dawdle."""
    arguments = (*SMALL, "--steps", 6, "--deterministic")
    first = content(train("first", *arguments, *CUDA))
    for where, delay in ((CUDA, 0), (TWO, 0), (TWO, 300)):
        assert content(train("again", *arguments, *where, env={"STARGRAD_EMULATED_DELAY": str(delay)})) == first, (where, delay)


TEXT = os.path.join(FOLDER, "text")
DROPOUT = ("--model", "gpt:layers=2,heads=2,width=32,context=16,dropout=0.2", "--data", f"text:{TEXT},16", "--batch", 8,
           "--micro-batch", 8, "--optimizer", "adamw", "--lr", 0.01, "--schedule", "cosine", "--warmup", 0.5)


def test_graphs():
    """What is recorded and launched as CUDA graphs leaves the bits of what is launched one by one: each step has its learning
    rate and its chances, which recordings hold none of."""
    with open(TEXT, "w") as file:
        file.write("".join(f"{i * i} is the square of {i}. " for i in range(200)))
    for more in ((*DROPOUT, "--clip-norm", 0.5, "--ema", 0.9), (*SMALL, "--schedule", "cosine", "--precision", "bf16", "--micro-batch", 16)):
        without, none, _ = graphs(*more, "--steps", 8, "--no-cuda-graphs", *CUDA)
        assert none == 0, none
        for where, delay in ((CUDA, 0), (CUDA, 300), (TWO, 0), (TWO, 300)):
            bits, share, warned = graphs(*more, "--steps", 8, *where, env={"STARGRAD_EMULATED_DELAY": str(delay)})
            assert share > 0.3 and not warned, (more, where, delay, share)     # of two, each has its micro-batches for good
            assert bits == without, (more, where, delay)


def test_graphs_that_cannot_be():
    """A stream that cannot be captured, or whose convolutions cannot: a warning, and the same bits, by cuDNN as before."""
    arguments = (*SMALL, "--steps", 6, *CUDA)
    without = graphs(*arguments, "--no-cuda-graphs")[0]
    for way in ("0", "2"):
        bits, share, warned = graphs(*arguments, env={"STARGRAD_EMULATED_CAPTURE": way})
        assert (share == 0 or way == "2") and warned, way
        assert bits == without, way


def test_resume():
    arguments = (*SMALL, "--deterministic", "--checkpoint-every", "3s")
    whole = content(train("whole", *arguments, "--steps", 6, *CUDA))
    out = train("part", *arguments, "--steps", 3, *CUDA)
    stargrad("train", *arguments, "--steps", 6, *CUDA, "--resume", "--out", out)
    assert content(out) == whole


def test_ranks():
    """Two ranks with a device each have the bits of one with one, where batch norm does not ask how many ranks there are."""
    arguments = (*SMALL, "--steps", 6, "--deterministic", "--bn-group", 8)
    one, two = train("one", *arguments, *CUDA), folder("two")
    for strategy in ("sync", "ps"):
        ranks(2, "train", *arguments, "--strategy", strategy, "--gpus", 1, "--out", two, env={"STARGRAD_EMULATED_GPUS": "1"})
        assert content(two) == content(one), strategy
        shutil.rmtree(two)


def test_nccl():
    """Sums by NCCL, from GPU to GPU, are those of our own plans, to rounding; with streams that dawdle, and two GPUs a rank, too."""
    arguments = (*SMALL[:-1], 0.02, "--steps", 8, "--bucket", 0.01, *SHARED)
    needs("stargrad")
    said = ranks(2, "train", *arguments, "--gpus", 1, "--allreduce", "nccl", "--print", status=None, env={"STARGRAD_EMULATED_GPUS": "1"})
    if "built without NCCL" in said:
        raise Skip("configured without NCCL")
    assert re.search(r"^allreduce  nccl, as asked; gradients in (\d\d|[2-9]) buckets", said, re.M) and "ncclAllReduce" in said, said
    ring = folder("ring")
    ranks(2, "train", *arguments, "--gpus", 1, "--allreduce", "ring", "--out", ring, env={"STARGRAD_EMULATED_GPUS": "1"})
    for gpus, delay in ((1, 0), (1, 300), (2, 300)):
        out = folder("nccl")
        ranks(2, "train", *arguments, "--gpus", gpus, "--allreduce", "nccl", "--out", out,
              env={"STARGRAD_EMULATED_GPUS": str(gpus), "STARGRAD_EMULATED_DELAY": str(delay)})
        error = [abs(a - b) / b for a, b in zip(losses(out), losses(ring), strict=True)]
        assert max(error) < 1e-4, (gpus, delay, error)
    for more, why in ((("--gpus", 0), r"NCCL sums on GPUs, and rank \d has none: --gpus 1"),
                      (("--gpus", 1, "--deterministic"), "--allreduce nccl does not keep to one order of sums")):
        said = ranks(2, "train", *arguments, *more, "--allreduce", "nccl", "--out", folder("not"), status=1, env={"STARGRAD_EMULATED_GPUS": "1"})
        assert re.search(why, said), said


def test_trace():
    out = train("trace", *SMALL, *SHARED, "--steps", 4, "--trace", "3-4", *CUDA)
    report = json.loads(stargrad("report", "--json", out))["trace"]
    assert report["tasks"] > 0 and report["copies"]["all"]["to_devices_mb"] > 0, report


if __name__ == "__main__":
    main(globals())
