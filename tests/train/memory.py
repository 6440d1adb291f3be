"""The memory of tensors that a run prints at its start is correct to 5 %: on one rank, on several ranks, on meshes. The progress
of other ranks determines how long messages are in memory; if that makes a difference, a run prints a range."""
import os
import re

from run import REFERENCE, events, folder, main, ranks

TEXT = os.path.join(REFERENCE, "text.txt")
LENET = ("--model", "lenet", "--data", "synthetic:32x32x3,10,640", "--batch", 64)
RESNET = ("--model", "resnet20", "--data", "synthetic:32x32x3,10,64", "--batch", 32, "--micro-batch", 8)
GPT = ("--model", "gpt:layers=2,heads=4,width=32,context=24,vocabulary=256", "--data", f"text:{TEXT},20", "--batch", 8, "--micro-batch", 2,
       "--optimizer", "adamw")


def alike(count, *words):
    out = folder("memory")
    said = ranks(count, "train", *words, "--gpus", 0, "--steps", 3, "--checkpoint-every", 0, "--out", out)
    most, least = re.search(r"^memory +up to ([\d.]+) MB on this rank(?:, ([\d.]+) if no rank is late)?:", said, re.M).groups()
    most, least = float(most), float(least or most)
    taken = events(out, "epoch")[0]["memory_mbyte"]         # before the evaluation
    assert least <= most <= 1.15 * least, (words, least, most)      # K-FAC on four ranks: 1.07 to 1.11, as it places its factors
    assert 0.95 * taken <= most and least <= 1.05 * taken, (words, least, most, taken)


def test_one_rank():
    for words in (LENET, RESNET, GPT, (*RESNET, "--recompute"), (*GPT, "--recompute")):
        alike(1, *words)


def test_data():
    alike(2, *LENET)
    alike(2, *LENET, "--allreduce", "mpi")
    alike(2, *GPT)
    alike(2, *GPT, "--shard", "optimizer")


def test_second_order():
    """Factors, decompositions and what is made of them, in steps with all of these, by each way to share them."""
    kfac = ("--optimizer", "kfac", "--kfac-factor-every", 1, "--kfac-eigen-every", 2, "--kfac-lag", 1)
    for count, variant in ((1, "auto"), (2, "opt"), (4, 0.5), (4, "lw")):
        alike(count, *RESNET, *kfac, "--kfac-variant", variant)
    alike(2, *LENET, *kfac, "--kfac-inverse")


def test_muon():
    alike(2, *GPT, "--optimizer", "muon")
    alike(2, *GPT, "--optimizer", "muon", "--shard", "optimizer")


def test_meshes():
    for count, mesh in ((2, "tensor=1d:2"), (4, "tensor=2d:2"), (8, "tensor=3d:2"), (2, "pipe=2"), (2, "context=2")):
        alike(count, *GPT, "--mesh", mesh)
    for mesh in "pipe=2", "context=2":
        alike(2, *GPT, "--mesh", mesh, "--recompute")


if __name__ == "__main__":
    main(globals())
