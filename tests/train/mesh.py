"""Transformers with 1-D, 2-D and 3-D tensor parallelism: losses, gradients and files are those of one rank; a run can be resumed
with another mesh; --print lists the memory and the messages of ranks, which equal the volumes of docs/scale/parallelism.md and
the bytes sent."""
import os
import re

from run import REFERENCE, Skip, events, folder, long, losses, main, mpirun, ranks, stargrad
from split import SPLIT, tensors

TEXT = os.path.join(REFERENCE, "text.txt")
LAYERS, WIDTH, TOKENS, CONTEXT, VOCABULARY, BATCH = 2, 32, 20, 24, 256, 4
MODEL = f"gpt:layers={LAYERS},heads=4,width={WIDTH},context={CONTEXT},vocabulary={VOCABULARY}"
LINE, SQUARE, CUBE, PIPE = (2, "tensor=1d:2"), (4, "tensor=2d:2"), (8, "tensor=3d:2"), (4, "tensor=1d:2,pipe=2")
GPT = ("train", "--model", MODEL, "--data", f"text:{TEXT},{TOKENS}", "--batch", BATCH, "--micro-batch", 1)
LLAMA = f"llama:layers=2,heads=8,kv_heads=4,width={WIDTH},hidden=64,context={CONTEXT},head_size=8,qk_norm=1,tied=0,bias=1"


def close(one, other, what, file="model.safetensors", within=1e-5):
    for a, b in zip(losses(one), losses(other), strict=True):
        assert abs(a - b) <= within * a, (what, losses(one), losses(other))
    whole, parts = tensors(one, file), tensors(other, file)
    assert {name: shape for name, (shape, _) in whole.items()} == {name: shape for name, (shape, _) in parts.items()}, what
    for name, (_, values) in whole.items():
        far = max(abs(a - b) for a, b in zip(values, parts[name][1]))
        assert far <= within * max(map(abs, values)) + 1e-7, f"{what}: {name} is off by {far}, of {max(map(abs, values))}"


def gradients(model, *meshes):
    """After one step the momentum is the gradient."""
    words = (*GPT[:2], model, *GPT[3:], "--optimizer", "sgd", "--lr", 0.1, "--weight-decay", 0, "--steps", 1, "--checkpoint-every", "1s")
    one = folder("gradient")
    stargrad(*words, "--out", one)
    for count, mesh in meshes:
        out = folder(f"gradient-{mesh}")
        ranks(count, *words, "--mesh", mesh, "--out", out)
        close(one, out, f"{model}, {mesh}", "checkpoint-1.safetensors")


def test_gradients():
    gradients(MODEL, LINE, SQUARE, CUBE)
    gradients(LLAMA, CUBE)


@long
def test_gradients_on_fewer_ranks():
    gradients(LLAMA, LINE, SQUARE)


def half(model, *meshes):
    """Messages between ranks are in bf16. Losses differ from those of one rank by the rounding of partial sums."""
    words = (*GPT[:2], model, *GPT[3:], "--optimizer", "adamw", "--steps", 5, "--checkpoint-every", 0, "--precision", "bf16")
    one = folder("half")
    stargrad(*words, "--out", one)
    for count, mesh in meshes:
        out = folder(f"half-{mesh}")
        ranks(count, *words, "--mesh", mesh, "--out", out)
        for a, b in zip(losses(one), losses(out), strict=True):
            assert abs(a - b) <= 1e-3 * a, (model, mesh, losses(one), losses(out))


def test_bf16():
    half(MODEL, SQUARE)
    half(LLAMA, CUBE, PIPE)


@long
def test_bf16_on_all_meshes():
    half(MODEL, CUBE, PIPE)
    half(LLAMA, SQUARE)


def training(*meshes):
    """With clipped gradients, dropout, and other samples along data."""
    words = ("train", "--model", f"{MODEL},dropout=0.1", *GPT[3:], "--optimizer", "adamw", "--clip-norm", 1, "--no-decay-1d", "--steps", 5, "--checkpoint-every", 0)
    one = folder("trained")
    stargrad(*words, "--out", one)
    for count, mesh in meshes:
        out = folder(f"trained-{mesh}")
        ranks(count, *words, "--mesh", mesh, "--out", out)
        for a, b in zip(losses(one), losses(out), strict=True):
            assert abs(a - b) <= 1e-5 * a, (mesh, losses(one), losses(out))
        tests = [events(path, "epoch")[-1]["test_loss"] for path in (one, out)]
        assert abs(tests[0] - tests[1]) <= 1e-5 * tests[0], (mesh, tests)


def test_training():
    training(SQUARE, (8, "data=2,tensor=2d:2"))


@long
def test_training_on_a_cube():
    training(CUBE)


def test_resume():
    """From a cube to a square to one rank."""
    words = (*GPT, "--optimizer", "adamw", "--checkpoint-every", "2s")
    one, out = folder("whole"), folder("resumed")
    stargrad(*words, "--steps", 6, "--out", one)
    ranks(8, *words, "--steps", 2, "--mesh", "tensor=3d:2", "--out", out)
    ranks(4, *words, "--steps", 4, "--mesh", "tensor=2d:2", "--out", out, "--resume")
    stargrad(*words, "--steps", 6, "--out", out, "--resume")
    for a, b in zip(losses(one), losses(out), strict=True):
        assert abs(a - b) <= 1e-5 * a, (losses(one), losses(out))


def recomputed(count, mesh):
    one, out = folder("kept"), folder("again")
    ranks(count, *GPT, "--steps", 3, "--mesh", mesh, "--deterministic", "--out", one)
    ranks(count, *GPT, "--steps", 3, "--mesh", mesh, "--deterministic", "--recompute", "--out", out)
    assert losses(one) == losses(out)


def test_recomputed():
    recomputed(*SQUARE)


@long
def test_recomputed_on_a_cube():
    recomputed(*CUBE)


def images(*meshes):
    """A vision transformer, too; ranks drop the elements of their parts that one rank drops."""
    words = ("train", "--model", "vit_tiny:layers=2,heads=4,width=16,dropout=0.1", "--data", "synthetic:8x8x3,10,64", "--batch", 8, "--micro-batch", 2,
             "--steps", 3, "--checkpoint-every", 0)
    one = folder("images")
    stargrad(*words, "--out", one)
    for count, mesh in meshes:
        out = folder(f"images-{mesh}")
        ranks(count, *words, "--mesh", mesh, "--out", out)
        close(one, out, mesh)


def test_images():
    images(LINE, SQUARE)


@long
def test_images_on_a_cube():
    images(CUBE)


def volumes(i, j, k):
    """Numbers that a rank sends for each layer in a step: forward and backward, of each operand n - 1 times what it has along n ranks."""
    p, rows = i * j * k, BATCH * TOKENS

    def column(inputs, outputs):
        return 2 * ((j - 1) * rows * inputs + (i - 1) * inputs * outputs + (k - 1) * rows * outputs) // p

    def row(inputs, outputs):
        return 2 * ((k - 1) * rows * inputs + (i - 1) * inputs * outputs + (j - 1) * rows * outputs) // p

    sent = {"transformer.wte": 2 * (i * j - 1) * VOCABULARY * WIDTH // p, "transformer.wpe": 2 * (i * j - 1) * CONTEXT * WIDTH // p,
            "lm_head": 2 * (k - 1) * rows * VOCABULARY // p, "transformer.ln_f": 2 * (k - 1) * 2 * rows // (i * j)}
    for block in range(LAYERS):
        name = f"transformer.h.{block}"
        sent |= {f"{name}.attn.c_attn": column(WIDTH, 3 * WIDTH), f"{name}.attn.c_proj": row(WIDTH, WIDTH),
                 f"{name}.mlp.c_fc": column(WIDTH, 4 * WIDTH), f"{name}.mlp.c_proj": row(4 * WIDTH, WIDTH),
                 f"{name}.ln_1": sent["transformer.ln_f"], f"{name}.ln_2": sent["transformer.ln_f"]}
    return sent


def sent_bytes(count, mesh, axes, *precisions):
    """The print lists the memory and the messages of this rank, which equal the formulas and the bytes sent. AXES: the ranks along I, J
    and K of layers.h."""
    if not os.path.exists(SPLIT):
        raise Skip(f"{SPLIT} is not built: cmocka is not installed")

    def said(*words):
        return mpirun(count, [SPLIT, "whole", mesh, folder("bytes"), *map(str, words), MODEL, f"text:{TEXT},{TOKENS}"])

    table = {row[1]: [int(number) for number in row[2].split()]
             for row in re.finditer(r"^(\S.*?) +((?:\d+ +){3}\d+)$", said("print").partition("bytes of this rank")[2], re.M)}
    for name, numbers in volumes(*axes).items():
        assert table[name][3] == 4 * numbers, (mesh, name, table[name], 4 * numbers)
    for name in ("attn.c_attn", "attn.c_proj", "mlp.c_fc", "mlp.c_proj"):
        kept = 4 * WIDTH * {"attn.c_attn": 3, "attn.c_proj": 1}.get(name, 4) * WIDTH // count
        bias = table[f"transformer.h.0.{name}"][0] - kept
        assert 0 < bias <= 4 * 4 * WIDTH, (mesh, name, table[f"transformer.h.0.{name}"], kept)
    assert table["transformer.wte"][0] == 4 * VOCABULARY * WIDTH // count, (mesh, table["transformer.wte"])
    assert [sum(row[i] for name, row in table.items() if name != "total") for i in range(4)] == table["total"]
    for precision in precisions:
        total = table["total"][3]
        if precision:
            total = int(re.search(r"^total +.* (\d+)$", said(*precision, "print"), re.M)[1])
            assert total < table["total"][3]
        counted = [int(re.search(r"rank 0 sent (\d+) bytes", said(*precision, steps))[1]) for steps in (1, 2)]
        assert counted[1] - counted[0] == total, (mesh, precision, counted, total)


def test_bytes():
    sent_bytes(*LINE, (1, 2, 1), ("bf16",))
    sent_bytes(*SQUARE, (2, 2, 1), ())
    sent_bytes(*CUBE, (2, 2, 2), ())


@long
def test_bytes_in_both_precisions():
    sent_bytes(*LINE, (1, 2, 1), ())
    sent_bytes(*SQUARE, (2, 2, 1), ("bf16",))
    sent_bytes(*CUBE, (2, 2, 2), ("bf16",))


def test_refused():
    def refused(what, mesh, count, model="gpt:heads=4,width=32,context=24", tokens=24, *more):
        words = ("train", "--model", model, "--data", f"text:{TEXT},{tokens}", "--batch", 16, "--print", "--mesh", mesh, *more)
        said = ranks(count, *words, status=2) if count > 1 else stargrad(*words, status=2)
        assert what in said, said

    refused("heads: 4 cannot be split over 9 ranks, as tensor=3d:3 requires; use 9 or 18", "tensor=3d:3", 1)
    refused("heads: 6 cannot be split over 4 ranks, as tensor=3d:2 requires; use 4 or 8", "tensor=3d:2", 1, "gpt:heads=6,width=48")
    refused("tokens per sample: 22 cannot be split over 4 ranks, as tensor=3d:2 requires; use 20 or 24", "tensor=3d:2", 1,
            "gpt:heads=4,width=32", 22)
    refused("width: 36 cannot be split over 8 ranks, as tensor=3d:2 requires; use 32 or 40", "tensor=3d:2", 1, "gpt:heads=4,width=36")
    refused("the mesh requires a multiple of 8 ranks, but there are 2; use mpirun -n 8", "tensor=3d:2", 2)
    refused("--batch 18 cannot be divided among 4 ranks; give --batch 20", "data=2,tensor=2d:2", 8, "gpt:heads=4,width=32", 24, "--batch", 18)
    refused("--allreduce mpi sums over all ranks, but mesh data=2,tensor=2 requires sums over some of them", "data=2,tensor=2", 4,
            "gpt:heads=4,width=32", 24, "--allreduce", "mpi")
    refused("optimizer muon requires norms of whole parameters", "tensor=1d:2", 2, "gpt:heads=4,width=32", 24, "--optimizer", "muon")
    said = ranks(2, "train", "--model", "convnet", "--data", "digits", "--print", "--mesh", "tensor=1d:2", status=2)
    assert "model convnet does not divide its work over axis tensor" in said, said


if __name__ == "__main__":
    main(globals())
