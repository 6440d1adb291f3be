"""Ranks build programs with the same messages for any network: also with batch norm over several ranks and frozen parts. Each
trains as one rank does, and no rank waits for a message that is never sent."""
import json
import os
import struct

from run import FOLDER, REFERENCE, content, events, folder, losses, main, mpirun, ranks, stargrad

AGREEMENT = os.path.join(os.environ.get("builddir", "build"), "tests/graphs/engine/agreement")

WAITS = ("--stall-timeout", 60)
FROZEN = ("--freeze", "conv1")
CONVNET = ("--model", "convnet", "--data", "digits", "--batch", 64, "--bn-group", "global", "--lr", 0.02, "--steps", 3, *WAITS)


def outcome(out):
    return losses(out) + [e["test_loss"] for e in events(out, "epoch")]


def near(one, other, limit=1e-4):
    assert len(one) == len(other) > 1 and all(abs(a - b) <= limit * abs(a) for a, b in zip(one, other)), (one, other)


def train(count, *words):
    """What COUNT ranks come to; of one, the first time that it is asked for."""
    out = folder("out")
    if count > 1:
        ranks(count, "train", *words, "--out", out)
    elif words not in alone:
        stargrad("train", *words, "--cpus", 1, "--out", out)
        alone[words] = outcome(out)
    return outcome(out) if count > 1 else alone[words]


alone = {}


def test_frozen_below():
    one = train(1, *CONVNET, *FROZEN)
    for count, words in ((2, ()), (4, ("--shard", "gradients")), (4, ("--recompute",)), (2, ("--strategy", "ps")),
                         (4, ("--mesh", "data=2,pipe=2")), (2, ("--clip-norm", 1e6)), (2, ("--allreduce", "ring")),
                         (4, ("--shard", "parameters"))):
        near(one, train(count, *CONVNET, *FROZEN, *words))


def test_groups_of_two_ranks():
    words = (*CONVNET, *FROZEN, "--bn-group", 32)
    near(train(1, *words), train(4, *words))


def test_frozen_in_the_course_of_a_run():
    words = (*CONVNET, "--freeze-after", "conv1=0.05")
    near(train(1, *words), train(4, *words))


def test_second_order():
    words = (*CONVNET, *FROZEN, "--optimizer", "kfac", "--kfac-factor-every", 1, "--kfac-eigen-every", 2, "--kfac-lag", 1)
    near(train(1, *words), train(2, *words), 1e-3)


def test_with_servers():
    """Whatever order pushes come in: what answers them is compared, too. Groups of batch norm stay within a rank."""
    words = (*CONVNET, *FROZEN, "--bn-group", "rank")
    for strategy in (("async",), ("backup", "--backup", 1), ("mixed", "--group", 2)):
        assert len(train(4, *words, "--strategy", *strategy)) == 4


def test_a_difference_is_an_error():
    """Whichever rank has built another program: all end at once, and one of them names the ranks."""
    for odd in (0, 2):
        said = mpirun(3, [AGREEMENT, str(odd)], status=None)
        assert said.count("have built different programs") == 1, said
        assert f"ranks 0 and {odd or 1} have" in said, said
        assert all(f"rank {r}: invalid" in said for r in range(3)), said


def test_long_messages_are_cut():
    """What is longer than MPI counts goes in pieces, here of 30,000 bytes: the same bits come of it."""
    mlp = ("train", "--model", "mlp", "--data", "digits", "--batch", 64, "--steps", 3, "--evaluate-last", "--deterministic", *WAITS)
    for words in ((), ("--shard", "gradients"), ("--shard", "parameters"), ("--optimizer", "muon"), ("--mesh", "pipe=2", "--micro-batch", 16)):
        whole, cut = folder("whole"), folder("cut")
        ranks(2, *mlp, *words, "--out", whole)
        ranks(2, *mlp, *words, "--out", cut, env={"STARGRAD_MESSAGE_LIMIT": "30000"})
        assert losses(whole) == losses(cut) and content(whole) == content(cut), words


def test_long_messages_of_other_layouts_are_cut():
    """Split layers, parameter servers, factors of K-FAC, samples that move."""
    gpt = ("train", "--model", "gpt:layers=1,heads=4,width=64,context=24", "--data", f"text:{os.path.join(REFERENCE, 'text.txt')},20", "--batch", 8,
           "--steps", 3, *WAITS)
    mlp = ("train", "--model", "mlp", "--data", "digits", "--batch", 64, "--steps", 3, *WAITS)
    for count, words in ((2, (*gpt, "--mesh", "tensor=1d:2")), (4, (*gpt, "--mesh", "tensor=2d:2")), (2, (*mlp, "--strategy", "ps")),
                         (2, (*mlp, "--optimizer", "kfac")), (2, (*mlp, "--data-placement", "partition"))):
        whole, cut = folder("whole"), folder("cut")
        ranks(count, *words, "--out", whole)
        ranks(count, *words, "--out", cut, env={"STARGRAD_MESSAGE_LIMIT": "10000"})
        near(losses(whole), losses(cut))


def test_candidates_move_in_pieces():
    os.makedirs(FOLDER, exist_ok=True)
    path = os.path.join(FOLDER, "candidates.json")
    with open(path, "w") as f:
        json.dump({"model": "mlp", "batch": 64, "epochs": 1, "partitions": 2, "candidates": [{"lr": 0.05}, {"lr": 0.02}]}, f)
    whole, cut = folder("whole"), folder("cut")
    for out, env in ((whole, {}), (cut, {"STARGRAD_MESSAGE_LIMIT": "30000"})):
        ranks(2, "search", path, "--data", "digits", "--out", out, env=env)
    for name in ("1", "2"):
        assert content(os.path.join(whole, name)) == content(os.path.join(cut, name)), name


# ---- a network that begins with batch norm ----

def varint(value):
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)


def field(number, value):
    """Of a protocol buffer: a number, or bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    value = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor(name, dims, numbers):
    return b"".join(field(1, d) for d in dims) + field(2, 1) + field(8, name) + field(9, struct.pack(f"<{len(numbers)}f", *numbers))


def value(name, dims):
    shape = b"".join(field(1, field(1, d)) for d in dims)
    return field(1, name) + field(2, field(1, field(1, 1) + field(2, shape)))


def node(kind, inputs, output, *attributes):
    return b"".join(field(1, i) for i in inputs) + field(2, output) + field(4, kind) + b"".join(field(5, a) for a in attributes)


def test_a_network_that_begins_with_batch_norm():
    os.makedirs(FOLDER, exist_ok=True)
    path = os.path.join(FOLDER, "first.onnx")
    ones = [("gamma", [1.5]), ("beta", [0.5]), ("mean", [0.0]), ("variance", [1.0])]
    graph = b"".join(field(1, n) for n in (node("BatchNormalization", ["x", "gamma", "beta", "mean", "variance"], "b"),
                                           node("Flatten", ["b"], "f"), node("Gemm", ["f", "w", "c"], "y", transpose())))
    graph += field(2, "net") + b"".join(field(5, tensor(name, [1], v)) for name, v in ones)
    graph += field(5, tensor("w", [10, 64], [((i * 37) % 101 - 50) / 500 for i in range(640)])) + field(5, tensor("c", [10], [0.0] * 10))
    graph += field(11, value("x", [1, 1, 8, 8])) + field(12, value("y", [1, 10]))
    with open(path, "wb") as f:
        f.write(field(1, 8) + field(7, graph) + field(8, field(2, 13)))
    words = ("--model", f"onnx:{path}", *CONVNET[2:])
    one = train(1, *words)
    for count, more in ((2, ()), (4, ("--bn-group", 32)), (2, ("--strategy", "ps"))):
        near(one if not more or more[0] != "--bn-group" else train(1, *words, *more), train(count, *words, *more))


def transpose():
    return field(1, "transB") + field(3, 1) + field(20, 2)


if __name__ == "__main__":
    main(globals())
