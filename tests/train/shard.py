"""Shares of an optimizer's states: the run is that of --strategy sync, its checkpoint has whole states, and goes on without shares, or
on other ranks; with clipping, with sizes that no number of ranks divides, and on a mesh; --print tells what it saves."""
import os
import re

from mesh import GPT, close
from run import folder, losses, main, ranks, stargrad

CONVNET = ("train", "--model", "lenet", "--data", "synthetic:16x16x3,10,240", "--batch", 24, "--micro-batch", 4, "--steps", 4, "--checkpoint-every", "2s")


def alike(count, what, *words, mesh=(), start=CONVNET):
    one, other = folder("alike"), folder("shared")
    ranks(count, *start, *mesh, *words, "--out", one)
    ranks(count, *start, *mesh, *words, "--shard", "optimizer", "--out", other)
    close(one, other, what)
    close(one, other, what, "checkpoint-4.safetensors")


def test_as_without():
    """LeNet has 6 and 16 maps, 10 classes: of most parameters three ranks have unequal shares, of some none."""
    alike(2, "sgd")
    alike(3, "adam, clipped", "--optimizer", "adamw", "--clip-norm", 0.5)
    alike(3, "small buckets", "--bucket", 0.01)


def test_on_a_mesh():
    """What is split, too; norms' weights are four ranks' to share, parts two's."""
    start = (*GPT, "--steps", 4, "--checkpoint-every", "4s")
    alike(4, "line", "--optimizer", "sgd", "--clip-norm", 0.1, mesh=("--mesh", "data=2,tensor=1d:2"), start=start)
    alike(8, "cube", "--optimizer", "sgd", mesh=("--mesh", "tensor=3d:2"), start=start)


def test_resume():
    whole, cut = folder("whole"), folder("cut")
    words = (*CONVNET[:-4], "--optimizer", "adam", "--checkpoint-every", "2s")
    ranks(2, *words, "--steps", 6, "--out", whole)
    ranks(3, *words, "--steps", 2, "--out", cut, "--shard", "optimizer")
    ranks(2, *words, "--steps", 4, "--out", cut, "--shard", "gradients", "--resume")
    stargrad(*words, "--steps", 6, "--out", cut, "--resume")
    for a, b in zip(losses(whole), losses(cut), strict=True):
        assert abs(a - b) <= 1e-5 * a, (losses(whole), losses(cut))


def test_memory():
    """Of adam's two states a rank of two has half: of three numbers a weight two."""
    def kept(*words):
        said = ranks(2, *CONVNET, "--model", "vgg11", "--data", "synthetic:32x32x3,10,240", "--optimizer", "adam", "--print", *words)
        return re.search(r"([\d.]+) parameters and states", said)[1]

    assert abs(float(kept("--shard", "optimizer")) / float(kept()) - 2 / 3) < 1e-3


def test_refused():
    for words, why in ((("--shard", "all"), "--shard all: takes none, optimizer or gradients"),
                       (("--shard", "optimizer", "--strategy", "ps"), "--shard optimizer goes with --strategy sync, not with ps"),
                       (("--shard", "optimizer", "--optimizer", "lamb"), "--optimizer lamb takes whole parameters"),
                       (("--shard", "optimizer", "--allreduce", "ring"), "--allreduce does not go with --shard")):
        said = ranks(2, *CONVNET, *words, "--print", status=2)
        assert why in said, (words, said)
    one, other = folder("alone"), folder("alone-shared")
    stargrad(*CONVNET, "--deterministic", "--out", one)
    stargrad(*CONVNET, "--deterministic", "--shard", "optimizer", "--out", other)
    assert losses(one) == losses(other) and os.path.exists(os.path.join(other, "model.safetensors"))


if __name__ == "__main__":
    main(globals())
