"""Runs on emulated GPUs give the same bits: recorded as CUDA graphs, repeated, on several ranks, with sums by NCCL."""
import os
import re
import shutil

from emulation import CUDA, SHARED, SMALL, TWO, graphs, needs, train
from run import FOLDER, Skip, content, folder, losses, main, ranks


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
    assert re.search(r"^allreduce  nccl, set by --allreduce; gradients in (\d\d|[2-9]) buckets", said, re.M) and "ncclAllReduce" in said, said
    ring = folder("ring")
    ranks(2, "train", *arguments, "--gpus", 1, "--allreduce", "ring", "--out", ring, env={"STARGRAD_EMULATED_GPUS": "1"})
    for gpus, delay in ((1, 0), (1, 300), (2, 300)):
        out = folder("nccl")
        ranks(2, "train", *arguments, "--gpus", gpus, "--allreduce", "nccl", "--out", out,
              env={"STARGRAD_EMULATED_GPUS": str(gpus), "STARGRAD_EMULATED_DELAY": str(delay)})
        error = [abs(a - b) / b for a, b in zip(losses(out), losses(ring), strict=True)]
        assert max(error) < 1e-4, (gpus, delay, error)
    for more, why in ((("--gpus", 0), r"NCCL requires GPUs, but rank \d has none; give --gpus 1"),
                      (("--gpus", 1, "--deterministic"), "--allreduce nccl cannot be combined with --deterministic: its order of sums varies")):
        said = ranks(2, "train", *arguments, *more, "--allreduce", "nccl", "--out", folder("not"), status=1, env={"STARGRAD_EMULATED_GPUS": "1"})
        assert re.search(why, said), said


if __name__ == "__main__":
    main(globals())
