"""--mesh expert=N: ranks that have different experts of a mixture compute the losses, gradients and files of one rank, together with the
axes data, pipe and context, with other routers, and if all rows use the experts of one rank; ten steps have the losses of transformers; a
run can be resumed with another mesh; only rows in use are sent; numbers of experts that cannot be divided are refused."""
import os
import re

from context import equal, gradients
from llama import check
from run import FOLDER, REFERENCE, Skip, content, folder, losses, main, mpirun, pytest, ranks, stargrad
from split import SPLIT

if not pytest:
    main(())
TEXT = os.path.join(REFERENCE, "text.txt")
MODEL = "llama:layers=2,heads=4,kv_heads=2,width=32,hidden=40,context=64,vocabulary=256,experts=8,active=2"
MESHES = ((2, "expert=2"), (4, "expert=4"), (4, "data=2,expert=2"), (4, "pipe=2,expert=2"), (4, "context=2,expert=2"))
DATA = ("--data", f"text:{TEXT},48", "--batch", 8, "--micro-batch", 2)


def test_gradients():
    gradients(MODEL, (2, "expert=2"), (4, "expert=4"))
    gradients(f"{MODEL},bias_rate=0.01,sigmoid=1,shared=24,normalize=0", (4, "data=2,expert=2"), (4, "context=2,expert=2"))


@pytest.mark.parametrize("count, mesh", MESHES)
def test_training(count, mesh):
    equal(MODEL, count, mesh, "--optimizer", "sgd", "--batch", 8)


@pytest.mark.parametrize("model, words, within", [
    (f"{MODEL},balance=0.1,mixtral=1", ("--bn-group", "global", "--recompute"), 1e-5),
    (f"{MODEL},active=8,bias_rate=0.01", ("--shard", "parameters"), 1e-5),
    (f"{MODEL},active=1", ("--precision", "bf16", "--no-fuse"), 1e-3),
    (MODEL, ("--shard", "optimizer", "--clip-norm", 1), 1e-5),
])
def test_ways(model, words, within):
    equal(model, 4, "expert=4", "--optimizer", "sgd", "--batch", 8, *words, within=within)


@pytest.mark.parametrize("name, count", [("mixtral", 2), ("mixtral", 4), ("qwen2_moe", 2), ("olmoe", 4)])
def test_reference(name, count):
    """The losses of transformers."""
    words = ("--bn-group", "global") if name in ("mixtral", "olmoe") else ()
    check(name, *words, "--mesh", f"expert={count}", start=lambda *all_words: ranks(count, *all_words))


def test_resumed():
    """Two steps on 4 ranks, two on 2, two on one: the losses of one rank. Files contain all experts."""
    run = ("train", "--model", MODEL, *DATA, "--optimizer", "adamw", "--lr", 0.001, "--checkpoint-every", "2s", "--evaluate-last")
    one, out = folder("one"), folder("moved")
    stargrad(*run, "--steps", 6, "--out", one)
    ranks(4, *run, "--steps", 2, "--mesh", "expert=4", "--out", out)
    ranks(2, *run, "--steps", 4, "--mesh", "expert=2", "--out", out, "--resume")
    stargrad(*run, "--steps", 6, "--out", out, "--resume")
    for a, b in zip(losses(one), losses(out), strict=True):
        assert abs(a - b) <= 1e-5 * a, (losses(one), losses(out))
    file = os.path.join(FOLDER, "experts.safetensors")
    stargrad("export", out, file)
    assert content(FOLDER, "experts.safetensors").count(b"mlp.experts.7.down_proj.weight") == 2


def test_bytes():
    """Messages contain only the rows in use: with one of 8 experts active, most rows are sent to one of four ranks."""
    if not os.path.exists(SPLIT):
        raise Skip(f"{SPLIT} is not built: cmocka is not installed")

    def said(what, active):
        model = MODEL.replace("active=2", f"active={active}")
        return mpirun(4, [SPLIT, "whole", "expert=4", folder("bytes"), "doubling", what, model, f"text:{TEXT},48"])

    def sent(active):
        counted = [int(re.search(r"rank 0 sent (\d+) bytes", said(steps, active))[1]) for steps in "12"]
        return counted[1] - counted[0]

    few, all_of_them = sent(1), sent(8)
    most = int(re.search(r"^total +(?:\d+ +){3}(\d+)$", said("print", 8), re.M)[1])
    assert all_of_them == most, "if all experts are active, all rows are sent to all ranks, and these are the printed bytes"
    assert few < 0.6 * most, (few, most)


def test_memory():
    """The number of micro-batches does not change the memory of messages."""
    needs = set()
    for batch in 16, 64:
        said = ranks(2, "train", "--model", MODEL, *DATA, "--batch", batch, "--gpus", 0, "--cpus", 1, "--mesh", "expert=2", "--print")
        needs.add(re.search(r"^memory .* ([\d.]+) messages", said, re.M)[1])
    assert len(needs) == 1, needs


def test_unequal_ranks():
    """Ranks with different numbers of cores use the same micro-batches."""
    words = [os.environ["STARGRAD"], "train", "--model", MODEL, "--data", f"text:{TEXT},48", "--batch", "64", "--steps", "2", "--mesh", "expert=2",
             "--gpus", "0", "--checkpoint-every", "0", "--out", folder("unequal"), "--cpus"]
    mpirun(1, [*words, "1", ":", "-n", "1", *words, "4"])


def test_refused():
    for model, count, reason in [
            (MODEL.replace("experts=8", "experts=6"), 4, "experts=6 cannot be divided over the 4 ranks of axis expert; use 4 or 8"),
            (MODEL.replace("experts=8", "experts=2"), 4, "experts=2 cannot be divided over the 4 ranks of axis expert; use 4"),
            (re.sub(",experts=8.*", "", MODEL), 2, "model llama has no experts to divide over axis expert")]:
        said = ranks(count, "train", "--model", model, *DATA, "--steps", 1, "--mesh", f"expert={count}", "--out", folder("refused"), status=2)
        assert reason in said, said
    for words, reason in [
            (("--mesh", "expert=2d:2"), "expert must have one dimension"),
            (("--optimizer", "muon"), "optimizer muon requires norms of whole parameters"),
            (("--optimizer", "kfac"), "optimizer kfac cannot be combined with axis expert of mesh expert=4"),
            (("--strategy", "async"), "mesh expert=4 requires --strategy sync, not async"),
            (("--allreduce", "mpi"), "--allreduce mpi sums over all ranks, but mesh expert=4 requires sums over some of them"),
            (("--data-placement", "partition"), "mesh expert=4 requires --data-placement replicate")]:
        said = ranks(4, "train", "--model", MODEL, *DATA, "--steps", 1, "--mesh", "expert=4", *words, "--out", folder("refused"), status=2)
        assert reason in said, said


def test_limited_memory():
    """Tensors of messages are in the memory that a limit plans."""
    model = "llama:layers=3,heads=4,width=128,hidden=256,context=128,vocabulary=2048,experts=4,active=2"
    words = ("train", "--model", model, "--data", f"text:{TEXT},128", "--batch", 16, "--micro-batch", 2, "--optimizer", "sgd", "--lr", 0.1, "--steps", 3,
             "--mesh", "expert=2", "--checkpoint-every", 0, "--gpus", 0, "--cpus", 1)
    free, tight = folder("free"), folder("tight")
    ranks(2, *words, "--out", free)
    least = re.search(r"give --memory (\d+)M", ranks(2, *words, "--memory", "1M", "--spill", FOLDER, "--out", tight, status=2))
    ranks(2, *words, "--memory", f"{int(least[1]) + 20}M", "--spill", FOLDER, "--out", tight)
    for a, b in zip(losses(free), losses(tight), strict=True):
        assert abs(a - b) <= 1e-6 * a, (losses(free), losses(tight))


if __name__ == "__main__":
    main(globals())
