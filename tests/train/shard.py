"""--shard: a run equals one with --strategy sync. Its checkpoint has whole states and can be resumed without --shard or on other
ranks. Also with clipping, with sizes that the number of ranks does not divide, and on a mesh. --print shows the memory saved. For
optimizers that need whole parameters, the shards are whole parameters. muon is also sharded with --strategy sync, with the bits
of one rank.

--shard parameters has the bits of --shard optimizer: on 2 to 4 ranks, on meshes, recomputed, in bf16. Its ranks store a quarter, use
the memory that they print, and send the bytes that they print."""
import os
import re

from mesh import GPT, LLAMA, TEXT, TOKENS, close
from run import Skip, content, events, folder, losses, main, mpirun, ranks, stargrad
from split import SPLIT

CONVNET = ("train", "--model", "lenet", "--data", "synthetic:16x16x3,10,240", "--batch", 24, "--micro-batch", 4, "--steps", 4, "--checkpoint-every", "2s")
SIX_LAYERS = "gpt:layers=6,heads=4,width=128,context=24,vocabulary=256"


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


def test_states_of_their_own_shape():
    """NorMuon has a number for each row of a matrix, SOAP matrices for each side. One rank stores them, whoever asks for shares; in files
    they are whole."""
    for optimizer in (("normuon",), ("soap", "--lr", 0.003, "--soap-every", 2)):
        words = (*MUON, "--optimizer", *optimizer, "--steps", 5, "--cpus", 1)
        whole = folder("whole")
        stargrad(*words, "--out", whole)
        for count, more in ((2, ()), (4, ("--shard", "optimizer")), (2, ("--shard", "parameters"))):
            out = folder("dealt")
            ranks(count, *words, *more, "--out", out)
            for name in ("model.safetensors", "checkpoint-3.safetensors"):
                assert content(out, name) == content(whole, name), (optimizer, count, more, name)
            for name in ("model.safetensors", "checkpoint-5.safetensors"):
                os.remove(os.path.join(out, name))
            ranks(3 - count // 2, *words, "--out", out, "--resume")
            assert (losses(out), content(out)) == (losses(whole), content(whole)), (optimizer, count, more)
    whole, stages = folder("flat"), folder("stages")
    start = (*GPT, "--optimizer", "normuon", "--steps", 4, "--checkpoint-every", "4s")
    stargrad(*start, "--out", whole)
    ranks(4, *start, "--mesh", "data=2,pipe=2", "--out", stages)
    close(whole, stages, "stages")
    close(whole, stages, "stages", "checkpoint-4.safetensors")


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


RESNET = ("train", "--model", "resnet20", "--data", "synthetic:16x16x3,10,96", "--batch", 24, "--micro-batch", 3)


def equal(count, *words):
    """Losses of all steps, of the evaluation and all values, to the bit. 24 test samples are no multiple of the batches of three ranks."""
    words = (*words, "--steps", 3, "--checkpoint-every", "3s", "--deterministic", "--cpus", 1)
    got = []
    for shard in ("optimizer", "parameters"):
        out = folder(shard)
        ranks(count, *words, "--shard", shard, "--out", out)
        got.append((losses(out), [e["test_loss"] for e in events(out, "epoch")], content(out), len(content(out, "checkpoint-3.safetensors"))))
    assert got[0] == got[1], (words, got[0][:2], got[1][:2])


def test_parameters():
    equal(2, *CONVNET, "--optimizer", "adam", "--clip-norm", 0.5, "--ema", 0.9)
    equal(3, *CONVNET, "--bucket", 0.01)
    equal(4, *RESNET, "--recompute", "--optimizer", "sgd")
    equal(2, *RESNET, "--bn-group", 6, "--freeze", "conv1*")
    equal(4, *GPT, "--batch", 8, "--optimizer", "adamw")
    equal(2, *GPT, "--batch", 8, "--optimizer", "muon", "--precision", "bf16")
    equal(2, *GPT[:2], LLAMA, *GPT[3:], "--batch", 8, "--optimizer", "adamw", "--precision", "bf16", "--recompute", "--bucket", 0.02)


def test_parameters_on_a_mesh():
    for count, mesh in ((4, "data=2,tensor=1d:2"), (8, "tensor=3d:2"), (4, "data=2,pipe=2")):
        equal(count, *GPT, "--optimizer", "adamw", "--clip-norm", 0.1, "--mesh", mesh)


def test_parameters_resumed():
    """From four ranks to two, with another --shard to three, to one, and back to four."""
    whole, cut = folder("whole"), folder("cut")
    words = (*CONVNET[:-4], "--micro-batch", 2, "--optimizer", "adam", "--ema", 0.9, "--checkpoint-every", "2s")
    stargrad(*words, "--steps", 6, "--out", whole)
    for count, steps, shard in ((4, 2, "parameters"), (2, 3, "parameters"), (3, 4, "optimizer"), (1, 5, "none"), (4, 6, "parameters")):
        ranks(count, *words, "--steps", steps, "--shard", shard, "--out", cut, *(("--resume",) if steps > 2 else ()))
    for a, b in zip(losses(whole), losses(cut), strict=True):
        assert abs(a - b) <= 1e-5 * a, (losses(whole), losses(cut))
    close(whole, cut, "resumed", "checkpoint-6.safetensors", 1e-4)
    assert stargrad("eval", cut).splitlines()[-1] == ranks(2, "eval", cut).splitlines()[-1]


def test_memory_of_parameters():
    """Each of four ranks stores a quarter of weights and states. Of gradients and whole weights, few buckets are in memory."""
    model = ("train", "--model", SIX_LAYERS, *GPT[3:], "--batch", 8, "--optimizer", "adamw")

    def kept(shard):
        out = folder("kept")
        said = ranks(4, *model, "--shard", shard, "--steps", 3, "--checkpoint-every", 0, "--gpus", 0, "--out", out)
        most, least, stored = re.search(r"up to ([\d.]+) MB on this rank(?:, ([\d.]+) if no rank is late)?: ([\d.]+) parameters", said).groups()
        return float(stored), float(least or most), events(out, "epoch")[0]["memory_mbyte"], float(most)

    (whole, *_, all_of_it), (stored, least, taken, most) = kept("none"), kept("parameters")
    assert abs(4 * stored / whole - 1) < 0.02, (whole, stored)
    assert 0.95 * least <= taken <= 1.05 * most and most < 0.7 * all_of_it, (least, taken, most, all_of_it)


def test_bytes_of_parameters():
    """A step gathers weights twice, but for the last buckets of forward, and scatters gradients once. The print has the bytes sent."""
    if not os.path.exists(SPLIT):
        raise Skip(f"{SPLIT} is not built: cmocka is not installed")

    def said(*words):
        return mpirun(4, [SPLIT, "whole", "", folder("bytes"), *map(str, words), "shared", SIX_LAYERS, f"text:{TEXT},{TOKENS}"])

    table = [(row[1], [int(number) for number in row[2].split()])
             for row in re.finditer(r"^(\S.*?) +((?:\d+ +){3}\d+)$", said("print").partition("bytes of this rank")[2], re.M)]
    stored, used, _, total = dict(table)["total"]
    gathered, scattered = (sum(row[3] for name, row in table if name.startswith(what)) for what in ("weights", "bucket"))
    assert 4 * stored == used and scattered == 3 * stored and 3 * stored < gathered <= 6 * stored, table
    counted = [int(re.search(r"rank 0 sent (\d+) bytes", said(steps))[1]) for steps in (1, 2)]
    assert counted[1] - counted[0] == total, (counted, table)


def test_refused():
    for words, why in ((("--shard", "all"), "--shard all must be none, optimizer, gradients or parameters"),
                       (("--shard", "parameters", "--strategy", "async"), "--shard parameters requires --strategy sync, not async"),
                       (("--shard", "parameters", "--optimizer", "kfac"), "--optimizer kfac requires all parameters at once"),
                       (("--shard", "parameters", "--lookahead", 2), "--lookahead requires --strategy sync"),
                       (("--shard", "parameters", "--histograms", 2), "--histograms cannot be combined with --shard"),
                       (("--shard", "parameters", "--best"), "--best cannot be combined with --shard parameters"),
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
