"""--mesh context=N: ranks that have different tokens of the same samples compute the losses, gradients and files of one rank, together
with the axes data, tensor and pipe, with documents, experts and adapters; a run can be resumed with another mesh; layers share the memory
of blocks; --print lists the memory and the messages, which equal the formulas of docs/scale/parallelism.md and the bytes sent; lengths
that cannot be split are refused."""
import os
import re

from mesh import close
from run import FOLDER, REFERENCE, Skip, events, folder, long, losses, main, mpirun, ranks, stargrad
from split import SPLIT

TEXT = os.path.join(REFERENCE, "text.txt")
TOKENS, BATCH, WIDTH = 48, 4, 32
GPT = f"gpt:layers=2,heads=4,width={WIDTH},context=64,vocabulary=256"
LLAMA = f"llama:layers=2,heads=8,kv_heads=4,width={WIDTH},hidden=64,context=64,vocabulary=256,head_size=8,qk_norm=1,tied=0,bias=1"
DATA = ("--data", f"text:{TEXT},{TOKENS}", "--batch", BATCH)
TRAIN = (*DATA, "--micro-batch", 2, "--optimizer", "adamw", "--lr", 0.01, "--steps", 4, "--checkpoint-every", 0, "--evaluate-last")
MESHES = ((2, "context=2"), (4, "context=4"), (4, "data=2,context=2"), (4, "context=2,tensor=1d:2"), (4, "context=2,pipe=2"))


def gradients(model, *meshes):
    """After one step the momentum is the gradient."""
    words = ("train", "--model", model, *DATA, "--micro-batch", 1, "--optimizer", "sgd", "--lr", 0.1, "--weight-decay", 0, "--steps", 1,
             "--checkpoint-every", "1s")
    one = folder("gradient")
    stargrad(*words, "--out", one)
    for count, mesh in meshes:
        out = folder(f"gradient-{mesh}")
        ranks(count, *words, "--mesh", mesh, "--out", out)
        close(one, out, f"{model}, {mesh}", "checkpoint-1.safetensors")


def test_gradients():
    gradients(LLAMA, *MESHES[:2])
    gradients(GPT, MESHES[1])


@long
def test_gradients_on_more_meshes():
    for model in GPT, LLAMA:
        gradients(model, *MESHES, (8, "context=2,tensor=2d:2"), (8, "context=8"))


def equal(model, count, mesh, *words, within=1e-5):
    """Losses of training and of the test are those of one rank."""
    train, one, out = ("train", "--model", model, *TRAIN, *words), folder("one"), folder(f"many-{mesh}")
    stargrad(*train, "--out", one)
    ranks(count, *train, "--mesh", mesh, "--out", out)
    pairs = [*zip(losses(one), losses(out), strict=True), [events(path, "epoch")[-1]["test_loss"] for path in (one, out)]]
    for a, b in pairs:
        assert abs(a - b) <= within * a, (model, mesh, words, pairs)
    return one, out


def test_training():
    """With clipped gradients, and dropped elements, which are those of one rank."""
    for count, mesh in MESHES[2:]:
        equal(f"{GPT},dropout=0.1", count, mesh, "--clip-norm", 1)
    equal(LLAMA, *MESHES[3])
    equal(LLAMA, *MESHES[4], "--recompute")


def test_bf16():
    equal(LLAMA, *MESHES[1], "--precision", "bf16", "--lr", 0.001, within=1e-3)
    equal(GPT, *MESHES[3], "--precision", "bf16", "--lr", 0.001, within=1e-3)


def test_options():
    """Experts, sharded parameters, updates that one rank computes, sums by a library, and layers that are not fused."""
    experts = LLAMA.replace("qk_norm=1", "experts=4,active=2,bias_rate=0.01")
    equal(experts, *MESHES[0])
    equal(LLAMA, *MESHES[2], "--shard", "parameters", "--no-fuse")
    equal(LLAMA, *MESHES[1], "--shard", "optimizer", "--optimizer", "muon")
    for mesh in MESHES[1:3]:
        equal(LLAMA, *mesh, "--allreduce", "mpi")


def test_adapters():
    base = folder("base")
    stargrad("train", "--model", LLAMA, *TRAIN, "--steps", 1, "--out", base)
    for on in "*.q_proj.weight,*.v_proj.weight", "*.q_proj.weight":
        equal(LLAMA, *MESHES[1], "--init", f"{base}/model.safetensors", "--lora", 2, "--lora-on", on)


def test_documents():
    """Documents of different lengths, some of which are longer than the tokens of a rank."""
    text = os.path.join(FOLDER, "documents.txt")
    with open(text, "w", encoding="ascii") as file:
        for i in range(120):
            file.write("".join(chr(97 + (i * i + j * j // 3) % 26) for j in range((3, 17, 40, 9)[i % 4])) + "\n")
    data = ("--data", f"text:{text},{TOKENS}", "--attend", "document:10")
    for model in GPT, LLAMA:
        one, _ = equal(model, *MESHES[1], *data)
    equal(LLAMA, *MESHES[4], *data)
    across = folder("across")
    stargrad("train", "--model", LLAMA, *TRAIN, *data[:2], "--out", across)
    assert abs(losses(one)[-1] - losses(across)[-1]) > 1e-4 * losses(one)[-1], "attention to other documents changes nothing"


def test_same_bits():
    """With --deterministic, a run with the same mesh gives the same bits, with any number of workers, and resumed."""
    words = ("train", "--model", LLAMA, *TRAIN, "--checkpoint-every", "2s", "--deterministic", "--mesh", "data=2,context=2")
    one, out, twice = folder("bits"), folder("workers"), folder("twice")
    ranks(4, *words, "--out", one)
    ranks(4, *words, "--cpus", 1, "--no-fuse", "--out", out)
    close(one, out, "workers", within=0)
    ranks(4, *words, "--steps", 2, "--out", twice)
    ranks(4, "train", "--out", twice, "--resume", "--steps", 4)
    close(one, twice, "resumed", within=0)


def test_resume():
    """From four ranks to two to one."""
    words = ("train", "--model", GPT, *TRAIN, "--checkpoint-every", "2s")
    one, out = folder("whole"), folder("resumed")
    stargrad(*words, "--steps", 6, "--out", one)
    ranks(4, *words, "--steps", 2, "--mesh", "context=4", "--out", out)
    ranks(2, *words, "--steps", 4, "--mesh", "context=2", "--out", out, "--resume")
    stargrad(*words, "--steps", 6, "--out", out, "--resume")
    for a, b in zip(losses(one), losses(out), strict=True):
        assert abs(a - b) <= 1e-5 * a, (losses(one), losses(out))


def test_bytes():
    """The printed bytes of attention are those of the formula, and all printed bytes those sent. Activations are those of one rank, divided by
    the number of ranks."""
    if not os.path.exists(SPLIT):
        raise Skip(f"{SPLIT} is not built: cmocka is not installed")
    made = {}
    for count, precision in (1, ()), (2, ()), (4, ()), (4, ("bf16",)):
        mesh = f"context={count}"

        def said(*words):
            return mpirun(count, [SPLIT, "whole", mesh, folder("bytes"), "doubling", *map(str, precision), *map(str, words), GPT, f"text:{TEXT},{TOKENS}"])

        table = {row[1]: [int(number) for number in row[2].split()]
                 for row in re.finditer(r"^(\S.*?) +((?:\d+ +){3}\d+)$", said("print").partition("bytes of this rank")[2], re.M)}
        numbers = (count - 1) * 2 * WIDTH * TOKENS * BATCH // count
        assert table["transformer.h.0.attn"][3] == (2 * (2 if precision else 4) + 4) * numbers, (count, precision, table)
        made[count, precision] = table["total"][2]
        counted = [int(re.search(r"rank 0 sent (\d+) bytes", said(steps))[1]) for steps in (1, 2)]
        assert counted[1] - counted[0] == table["total"][3], (count, precision, counted, table["total"])
    for count in 2, 4:
        assert abs(count * made[count, ()] / made[1, ()] - 1) < 0.01, made


def test_memory():
    """Blocks of all layers use the same memory, also if layers are recomputed. The losses of many layers remain those of one rank."""
    model = f"gpt:layers={{}},heads=2,width=16,context={TOKENS * 8},vocabulary=256"
    data = ("--data", f"text:{TEXT},{TOKENS * 8}", "--micro-batch", 1)
    for more in (), ("--recompute",):
        needs = {}
        for layers in 2, 8:
            said = ranks(4, "train", "--model", model.format(layers), *TRAIN, *data, *more, "--mesh", "context=4", "--print")
            needs[layers] = float(re.search(r"^memory .* ([\d.]+) messages", said, re.M)[1])
        assert needs[8] < 2 * needs[2], (more, needs)
        equal(model.format(8), *MESHES[1], *data, *more)


def test_chosen():
    """--mesh auto and plan estimate meshes with the axis context. With --shard, ranks along it divide optimizer states like those along data."""
    said = ranks(2, "train", "--model", GPT, *DATA, "--mesh", "auto", "--print")
    assert re.search(r"^ {11}context=2 +[\d.]+ ms a step", said, re.M), said
    said = ranks(3, "train", "--model", GPT, *DATA, "--mesh", "auto", "--print")
    assert re.search(r"^ {11}context=3 +[\d.]+ ms a step", said, re.M), said
    plan = "plan", "--model", GPT.replace(f"={WIDTH}", "=1024"), *DATA, "--machine", "longhorn-v100", "--nodes", "1", "--optimizer", "adamw"
    assert re.search(r"^ *4 context +\S*context=\d", said := stargrad(*plan, "--mesh", "auto"), re.M), said

    def saves(mesh):
        memory = [re.search(r"([\d.]+) +[\d.]+ +best$", stargrad(*plan, "--mesh", mesh, *more), re.M)[1] for more in ((), ("--shard", "optimizer"))]
        return float(memory[0]) - float(memory[1])

    assert saves("data=4") > 0.1 and abs(saves("context=4") - saves("data=4")) <= 0.02, (saves("context=4"), saves("data=4"))


def test_refused():
    def refused(what, count, mesh, *more, model=GPT):
        said = ranks(count, "train", "--model", model, *DATA, "--print", "--mesh", mesh, *more, status=2)
        assert what in said, said

    refused("tokens per sample: 30 cannot be split over the 4 ranks of axis context, which requires a multiple of 8; use 24 or 32",
            4, "context=4", "--data", f"text:{TEXT},30")
    refused("tokens per sample: 3 cannot be split over the 2 ranks of axis context, which requires a multiple of 4; use 4", 2, "context=2",
            "--data", f"text:{TEXT},3")
    refused("--allreduce mpi sums over all ranks, but mesh context=2,tensor=1d:2 requires sums over some", 4, "context=2,tensor=1d:2",
            "--allreduce", "mpi")
    refused("mesh context=2d:2: context must have one dimension, like context=2", 4, "context=2d:2")
    refused("optimizer kfac cannot be combined with axis context", 2, "context=2", "--optimizer", "kfac")
    refused("balance=0.1 requires all tokens of a sample on a rank", 2, "context=2", model=f"{LLAMA},experts=4,balance=0.1")
    said = ranks(2, "train", "--model", "convnet", "--data", "digits", "--print", "--mesh", "context=2", status=2)
    assert "model convnet does not divide its work over axis context" in said, said


if __name__ == "__main__":
    main(globals())
