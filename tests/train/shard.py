"""--shard: a run equals one with --strategy sync. Its checkpoint has whole states and can be resumed without --shard or on other
ranks. Also with clipping, with sizes that the number of ranks does not divide, and on a mesh. --print shows the memory saved. For
optimizers that need whole parameters, the shards are whole parameters. muon is also sharded with --strategy sync, with the bits
of one rank."""
import os
import re

from mesh import GPT, close
from run import content, folder, losses, main, ranks, stargrad

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


MUON = ("train", "--model", "convnet", "--data", "digits", "--batch", 64, "--bn-group", "global", "--deterministic", "--optimizer", "muon",
        "--lr", 0.02, "--nesterov", "--checkpoint-every", "3s")


def test_whole_parameters():
    alike(2, "lamb", "--optimizer", "lamb")
    alike(3, "muon, clipped", "--optimizer", "muon", "--clip-norm", 0.5)
    alike(3, "some of lars", "--optimizer-of", "conv?=lars,fc1.weight=muon")


def test_dealt_out():
    """Muon's updates are done by one rank each, whoever asks for shares: with the same bits, clipped, some by another optimizer, and with
    weights that look back."""
    for words in ((), ("--clip-norm", 0.5), ("--optimizer-of", "*.bias=adamw,fc=sgd", "--lookahead", "2:.5"), ("--shard", "optimizer")):
        got = []
        for count in (1, 2, 4):
            out = folder("dealt")
            ranks(count, *MUON, *words, "--steps", 5, "--out", out)
            got.append((losses(out), content(out), len(content(out, "checkpoint-3.safetensors"))))
        assert got[0] == got[1] == got[2], words


def test_dealt_out_resumes():
    """States that ranks keep some of each are whole in files."""
    whole = folder("whole")
    stargrad(*MUON, "--steps", 6, "--out", whole)
    for before, after in ((4, 1), (1, 4), (2, 4)):
        cut = folder("cut")
        ranks(before, *MUON, "--steps", 6, "--out", cut)
        for name in ("model.safetensors", "checkpoint-6.safetensors"):
            os.remove(os.path.join(cut, name))
        ranks(after, *MUON, "--steps", 6, "--out", cut, "--resume")
        assert (losses(cut), content(cut)) == (losses(whole), content(whole)), (before, after)


def test_dealt_out_in_stages():
    """Each stage's are its ranks' own to deal out."""
    one, other = folder("flat"), folder("stages")
    start = (*GPT, "--optimizer", "muon", "--lr", 0.02, "--steps", 4, "--checkpoint-every", "4s")
    stargrad(*start, "--out", one)
    ranks(4, *start, "--mesh", "data=2,pipe=2", "--out", other)
    close(one, other, "stages")
    close(one, other, "stages", "checkpoint-4.safetensors")


def test_dealt_out_by_cost():
    """What --print says: every matrix, the largest first, goes to who has least to do; a rank keeps its own states alone."""
    words = (*MUON, "--model", "airbench94", "--data", "synthetic:32x32x3,10,240")
    said = ranks(4, *words, "--print")
    dealt = [(float(mflop), int(rank)) for mflop, rank in re.findall(r" ([\d.]+) Mflop, rank (\d)$", said, re.M)]
    load, wanted = [0] * 4, [0] * 4
    for mflop, rank in dealt:
        load[rank] += mflop
    for mflop, _ in sorted(dealt, reverse=True):
        wanted[wanted.index(min(wanted))] += mflop
    assert len(dealt) == 14 and max(load) <= max(wanted) + 0.5, (load, wanted)
    told = re.search(r"of 14 parameters distributed by cost: ([\d.]+) Mflop per step, at most ([\d.]+) of them", said)
    assert abs(float(told[1]) - sum(load)) < 1 and abs(float(told[2]) - max(load)) < 1, (told[0], load)
    assert float(told[2]) < 0.5 * float(told[1])

    def kept(*more):
        return float(re.search(r"([\d.]+) parameters and states", ranks(4, *words, *more, "--print"))[1])

    assert kept() < 0.75 * kept("--optimizer", "sgd")     # of two numbers a weight a rank has one, and some


def test_refused():
    for words, why in ((("--shard", "all"), "--shard all must be none, optimizer or gradients"),
                       (("--shard", "optimizer", "--strategy", "ps"), "--shard optimizer requires --strategy sync, not ps"),
                       (("--shard", "optimizer", "--optimizer", "kfac"), "--optimizer kfac requires all parameters at once"),
                       (("--shard", "optimizer", "--optimizer-of", "fc3=kfac"), "--optimizer-of kfac requires all parameters at once"),
                       (("--shard", "optimizer", "--allreduce", "ring"), "--allreduce cannot be combined with --shard")):
        said = ranks(2, *CONVNET, *words, "--print", status=2)
        assert why in said, (words, said)
    one, other = folder("alone"), folder("alone-shared")
    stargrad(*CONVNET, "--deterministic", "--out", one)
    stargrad(*CONVNET, "--deterministic", "--shard", "optimizer", "--out", other)
    assert losses(one) == losses(other) and os.path.exists(os.path.join(other, "model.safetensors"))


if __name__ == "__main__":
    main(globals())
