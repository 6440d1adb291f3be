"""A network with layers split over ranks (tests/graphs/train/split.c) trains as the whole network does on one rank."""
import json
import os
import re
import struct

from array import array
from run import Skip, content, events, folder, losses, main, mpirun

SPLIT = os.path.join(os.environ.get("builddir", "build"), "tests/graphs/train/split")
NETWORKS = ("reduced", "gathered", "shared", "scattered", "inner", "rooted", "shifted", "kept", "sections")


def split(network, mesh, count, *words, status=0, out=None):
    """The folder of that run; where it has to fail, what it says."""
    if not os.path.exists(SPLIT):
        raise Skip(f"{SPLIT} is not built: cmocka is not installed")
    path = out or folder(f"{network}-{mesh}-{count}-{'-'.join(map(str, words))}")
    said = mpirun(count, [SPLIT, network, mesh, path, *map(str, words)], status)
    return said if status or "eval" in words else path


def tensors(path, name="model.safetensors"):
    file = content(path, name)
    length = struct.unpack("<Q", file[:8])[0]
    data = memoryview(file)[8 + length:]      # a slice of bytes would be a copy, for each tensor
    return {name: (is_["shape"], array("f", bytes(data[slice(*is_["data_offsets"])])))
            for name, is_ in json.loads(file[8:8 + length]).items() if name != "__metadata__" and is_["dtype"] == "F32"}


def compare(one, other, what, file="model.safetensors"):
    """To rounding, which is what another order of sums leaves of 4 steps: losses, the test's too, and everything that is saved."""
    pairs = [*zip(losses(one), losses(other)), [events(path, "epoch")[-1]["test_loss"] for path in (one, other)]]
    assert len(losses(one)) == len(losses(other)), what
    for a, b in pairs:
        assert abs(a - b) <= 1e-5 * abs(a), (what, pairs)
    whole, parts = tensors(one, file), tensors(other, file)
    assert whole.keys() == parts.keys(), (what, whole.keys() ^ parts.keys())
    for name, (shape, values) in whole.items():
        assert shape == parts[name][0], (what, name, shape, parts[name][0])
        far = max(abs(a - b) for a, b in zip(values, parts[name][1]))
        assert far <= 1e-5 * max(map(abs, values)) + 1e-7, f"{what}: {name} is off by {far}"


def test_as_on_one_rank():
    for network in NETWORKS:
        one = split(network, "", 1)
        for count in (2, 3):
            compare(one, split(network, f"tensor={count}", count), f"{network} on {count} ranks")


def test_two_axes():
    """Ranks of one place on axis data have the same samples, those of the other two other ones."""
    one = split("shared", "", 1, "normed")
    for mesh in ("tensor=2", "tensor=2,data=2", "data=2,tensor=2"):
        compare(one, split("shared", mesh, 4, "normed"), mesh)


def test_states_and_clipping():
    """The norm of all gradients is that of the whole network's, and a checkpoint has whole states."""
    for words in (("clip",), ("adam", "recompute")):
        one, other = split("reduced", "", 1, *words), split("reduced", "tensor=3", 3, *words)
        compare(one, other, words)
        compare(one, other, words, "checkpoint-4.safetensors")


def test_resume_on_other_ranks():
    whole = split("scattered", "", 1)
    for mesh, count in (("tensor=2", 2), ("", 1), ("tensor=3", 3)):
        parted = split("scattered", "tensor=2", 2, 2)
        os.remove(os.path.join(parted, "model.safetensors"))
        split("scattered", mesh, count, "resume", out=parted)
        compare(whole, parted, f"two steps on two ranks, then two on {count}", "checkpoint-4.safetensors")


def test_weights():
    """Rank 0's file is that of the whole network, and every rank takes its part of it."""
    path = split("reduced", "tensor=2", 2)
    loss = events(path, "epoch")[-1]["test_loss"]
    for mesh, count in (("tensor=2", 2), ("", 1), ("tensor=3", 3), ("tensor=2", 4)):
        said = re.search(r"^test loss (.*)$", split("reduced", mesh, count, "eval", out=path), re.M)
        assert abs(float(said[1]) - loss) <= 1e-5 * loss, (mesh, count, said[1], loss)


def test_what_is_refused():
    for network, mesh, why in (("odd", "tensor=2", "part: dimension 1 of (1,7) cannot be split over the 2 ranks of axis tensor"),
                               ("nowhere", "tensor=2", "root: root 5 is not one of the 2 ranks along axis tensor"),
                               ("samples", "tensor=2", "all: cannot be split along dimension 9 of (1,144); the dimension must exist and must not be 0"),
                               ("unnamed", "tensor=2", "sum: .axis is empty; set it to the name of an axis of the mesh"),
                               ("unknown", "tensor=2", "nobody.weight: cannot be split over axis tensor: no layer has this parameter"),
                               ("third", "tensor=2", "up.weight: cannot be split along dimension 2: its shape is (6,144)"),
                               ("uneven", "tensor=2", "up.weight: dimension 0 of (7,144) cannot be divided among the 2 ranks of axis tensor"),
                               ("normed", "tensor=2", "bn.weight: cannot be split"),
                               ("whole", "tensor=2", "model split does not divide its work over axis tensor"),
                               ("reduced", "tensor=3", "the mesh requires a multiple of 3 ranks, but there are 2"),
                               ("reduced", "tensor=2,data=3", "the mesh requires 6 ranks, but there are 2"),
                               ("reduced", "tensor", "mesh 'tensor' is invalid; give AXIS=RANKS")):
        said = split(network, mesh, 2, status=1)
        assert why in said, (network, mesh, said)
    for word, why in (("ps", "mesh tensor=2 requires --strategy sync, not ps"),
                      ("lamb", "optimizer lamb requires norms of whole parameters, but up.weight is sharded over axis tensor")):
        said = split("reduced", "tensor=2", 2, word, status=1)
        assert why in said, (word, said)


if __name__ == "__main__":
    main(globals())
