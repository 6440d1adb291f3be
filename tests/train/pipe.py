"""Pipeline stages on ranks: losses and files are those of one rank, also with axes data and tensor; a run can be resumed with
another mesh; networks that cannot be divided are refused; --print lists the stages and the waiting time of ranks."""
import gzip
import json
import os
import re
import struct

from mesh import close
from run import REFERENCE, events, folder, losses, main, ranks, stargrad
from split import tensors

TEXT = os.path.join(REFERENCE, "text.txt")
GPT = ("train", "--model", "gpt:layers=2,heads=4,width=32,context=24,vocabulary=256", "--data", f"text:{TEXT},20", "--batch", 8,
       "--micro-batch", 1)
CONVNET = ("train", "--model", "convnet", "--data", "digits", "--batch", 64, "--steps", 4, "--checkpoint-every", 0)


def alike(one, other, what):
    """Losses and what files name; what adam makes of gradients that are nothing but rounding, as a key's bias has them, may be anything."""
    for a, b in zip([*losses(one), events(one, "epoch")[-1]["test_loss"]], [*losses(other), events(other, "epoch")[-1]["test_loss"]], strict=True):
        assert abs(a - b) <= 1e-5 * abs(a), (what, losses(one), losses(other))
    shapes = [{name: shape for name, (shape, _) in tensors(path).items()} for path in (one, other)]
    assert shapes[0] == shapes[1], (what, shapes)


def same_bits(count, mesh, *words):
    words, one, out = (*CONVNET, "--deterministic", *words), folder("whole"), folder("split")
    stargrad(*words, "--out", one)
    ranks(count, *words, "--mesh", mesh, "--out", out)
    assert losses(one) == losses(out), (mesh, words, losses(one), losses(out))
    assert tensors(one) == tensors(out), (mesh, words)
    return one, out


def test_language():
    """Its embedding is the head's weight, too: the first stage and the last have it, and add their gradients."""
    words = (*GPT, "--optimizer", "adamw", "--clip-norm", 1, "--steps", 5, "--checkpoint-every", 0)
    one = folder("language")
    stargrad(*words, "--out", one)
    for count, mesh, more in ((2, "pipe=2", ("--recompute",)), (4, "pipe=4", ()), (4, "data=2,pipe=2", ("--shard", "optimizer")),
                              (4, "pipe=2,tensor=1d:2", ())):
        out = folder("language-split")
        ranks(count, *words, "--mesh", mesh, *more, "--out", out)
        alike(one, out, mesh)


def test_gradients():
    """After one step the momentum is the gradient."""
    words = (*GPT, "--optimizer", "sgd", "--lr", 0.1, "--weight-decay", 0, "--steps", 1, "--checkpoint-every", "1s")
    one, out = folder("gradient"), folder("gradient-split")
    stargrad(*words, "--out", one)
    ranks(4, *words, "--mesh", "pipe=4", "--out", out)
    close(one, out, "pipe=4", "checkpoint-1.safetensors")


def test_convolutions():
    """Batch norm over micro-batches, groups of them, or the rank's share. No two stages share a parameter: the bits are the same."""
    for group, micro, count, mesh in (("micro", 8, 4, "pipe=4"), (16, 8, 4, "data=2,pipe=2"), ("rank", 16, 2, "pipe=2")):
        same_bits(count, mesh, "--bn-group", group, "--micro-batch", micro)


def test_beside():
    """What goes with stages: bf16, averages of the weights, slow weights, a method for the sums over data; a run with these goes on."""
    same_bits(2, "pipe=2", "--bn-group", "micro", "--micro-batch", 8, "--precision", "bf16")
    same_bits(4, "data=2,pipe=2", "--bn-group", "micro", "--micro-batch", 8, "--allreduce", "tree")
    words = ("--bn-group", "micro", "--micro-batch", 8, "--ema", 0.9, "--lookahead", "2:.5", "--checkpoint-every", "2s")
    one, out = same_bits(2, "pipe=2", *words)
    assert tensors(one, "checkpoint-4.safetensors") == tensors(out, "checkpoint-4.safetensors")
    words = (*CONVNET, *words, "--deterministic", "--steps", 6)
    stargrad(*words, "--out", out, "--resume")
    ranks(2, *words, "--mesh", "pipe=2", "--out", one, "--resume")
    assert losses(one) == losses(out) and tensors(one) == tensors(out)


def skips(model, data, count):
    """Compares the losses on COUNT ranks with those on one, in f32 and in bf16. f32 and bf16 are not compared: rounding grows."""
    words = ("train", "--model", model, "--data", data, "--batch", 8, "--micro-batch", 2, "--bn-group", "micro", "--steps", 2, "--lr", 0.01,
             "--checkpoint-every", 0)
    for precision in ("f32", "bf16"):
        one, out = folder("skips"), folder("skips-split")
        stargrad(*words, "--precision", precision, "--out", one)
        ranks(count, *words, "--precision", precision, "--mesh", f"pipe={count}", "--out", out)
        alike(one, out, (model, precision))


def test_skips():
    """Values that stages in between do not take."""
    work = folder("slices")
    os.makedirs(work)
    slices = [255 if (y // 8 + x // 8 + z) % 2 else 40 for z in range(16) for y in range(32) for x in range(32)]
    for name, voxels in (("volume", slices), ("labels", [255 if v > 100 else 0 for v in slices])):
        with gzip.open(os.path.join(work, f"train-{name}-idx3-ubyte.gz"), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, 16, 32, 32) + bytes(voxels))
    skips("unet2d", f"volume:{work},1x32x32", 3)


def test_loss_of_several_stages():
    skips("googlenet:aux=1", "synthetic:64x64x3,4,16", 4)


def test_resume():
    """From two stages to one rank to two ranks of other samples."""
    words = (*GPT, "--optimizer", "adamw", "--checkpoint-every", "2s")
    one, out = folder("whole"), folder("resumed")
    stargrad(*words, "--steps", 6, "--out", one)
    ranks(2, *words, "--steps", 2, "--mesh", "pipe=2", "--out", out)
    stargrad(*words, "--steps", 4, "--out", out, "--resume")
    ranks(2, *words, "--steps", 6, "--mesh", "data=2", "--out", out, "--resume")
    alike(one, out, "resumed")
    out = folder("resumed")
    stargrad(*words, "--steps", 2, "--out", out)
    ranks(4, *words, "--steps", 6, "--mesh", "data=2,pipe=2", "--shard", "optimizer", "--out", out, "--resume")
    alike(one, out, "resumed in stages")


def test_weights():
    """Stages begin with a file's."""
    words = (*GPT, "--steps", 2, "--checkpoint-every", 0)
    one, out = folder("begin"), folder("begun")
    stargrad(*words, "--out", one)
    words = (*words, "--init", os.path.join(one, "model.safetensors"))
    ranks(2, *words, "--mesh", "pipe=2", "--out", out)
    one = folder("begun-whole")
    stargrad(*words, "--out", one)
    close(one, out, "--init")


def test_print():
    said = ranks(4, *GPT, "--mesh", "pipe=4", "--print")
    assert "stages     4, each with some of the layers; in a step of 8 micro-batches, ranks wait for each other" in said, said
    rows = re.findall(r"^([0-3]) +(\S+) +(\S+) +(\d+) % +(\d+) +(\d+) +(\d+)$", said, re.M)
    assert [row[0] for row in rows] == list("0123") and rows[0][1] == "transformer.wte" and rows[3][2] == "loss", said
    assert abs(sum(int(row[3]) for row in rows) - 100) <= 2, said
    assert [int(row[6]) for row in rows] == [5, 4, 3, 2], said          # one more for each later stage: 1F1B
    whole = int(re.search(r"(\d+) parameters", said).group(1))
    assert sum(int(row[4]) for row in rows) == whole + 256 * 32, said     # the embedding twice
    said = ranks(2, *CONVNET, "--mesh", "pipe=2", "--print")
    assert "1 group of batch norm, ranks wait for each other 50 % of the time; --bn-group micro reduces it" in said, said


def test_one_rank_has_the_whole():
    """A run of a mesh is evaluated, predicted and exported without it."""
    for mesh, words in (("pipe=2", CONVNET), ("tensor=1d:2", (*GPT, "--steps", 2))):
        out = folder("of-a-mesh")
        ranks(2, *words, "--mesh", mesh, "--out", out)
        wanted = events(out, "epoch")[-1]["test_loss"]
        for said in (stargrad("eval", out, "--json"), ranks(2, "eval", out, "--json")):
            assert abs(json.loads(said)["test_loss"] - wanted) <= 1e-5 * wanted, (mesh, said, wanted)
        assert len(stargrad("predict", out).splitlines()) > 1
        stargrad("export", out, os.path.join(out, "whole.onnx"))


def test_refused():
    def refused(what, count, mesh, *words):
        said = ranks(count, *words, "--mesh", mesh, "--print", status=2)
        assert what in said, said

    mlp = ("train", "--model", "mlp", "--data", "digits", "--batch", 64)
    refused("mesh pipe=4: mlp has 3 layers with parameters, so at most 3 stages are possible; use pipe=3", 4, "pipe=4", *mlp)
    refused("mesh pipe=4: 2 micro-batches cannot keep 4 stages busy; give --micro-batch 16 for 4 micro-batches", 4, "pipe=4", *CONVNET, "--micro-batch", 32)
    refused("mesh pipe=4: 3 samples per rank cannot keep 4 stages busy; give --batch 4", 4, "pipe=4", *CONVNET, "--batch", 3)
    refused("mesh pipe=2d:2: pipe must have one dimension, like pipe=2", 4, "pipe=2d:2", *CONVNET)
    refused("optimizer kfac requires all layers on one rank", 2, "pipe=2", *CONVNET, "--optimizer", "kfac")
    refused("--best cannot be combined with the pipeline stages", 2, "pipe=2", *CONVNET, "--best")
    refused("--histograms cannot be combined with the pipeline stages", 2, "pipe=2", *CONVNET, "--histograms", 2, "--tensorboard")
    refused("the mesh requires a multiple of 3 ranks, but there are 4; use mpirun -n 3", 4, "pipe=3", *CONVNET)


if __name__ == "__main__":
    main(globals())
