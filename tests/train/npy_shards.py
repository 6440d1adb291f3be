"""NumPy arrays in tar archives: tar:PATTERN trains as npy:DIR does with the same arrays; arrays of another shape or type are named."""
import io
import json
import os
import subprocess
import tarfile

import pytest
from run import Skip, command, events, folder, losses, main, ranks, stargrad

numpy = pytest.importorskip("numpy")

RUN = ("train", "--batch", 20, "--epochs", 2, "--lr", 0.02, "--deterministic", "--bn-group", "global", "--checkpoint-every", 0, "--no-shuffle")
COUNT = {"train": 60, "test": 20}


def setup_module():
    if "libarchive" not in subprocess.run(command("--version"), capture_output=True, text=True).stdout:
        raise Skip("this build has no libarchive")


def arrays(shape, dtype):
    """For each split, samples and labels."""
    random = numpy.random.default_rng(1)
    found = {}
    for split, count in COUNT.items():
        label = numpy.arange(count) % 3
        x = random.integers(0, 80, (count, *shape)) + 80 * label.reshape(-1, *[1] * len(shape))
        found[split] = (x.astype(dtype), label.astype("i4"))
    return found


def stored(place, found):
    os.makedirs(place)
    for split, (x, y) in found.items():
        numpy.save(f"{place}/x_{split}.npy", x)
        numpy.save(f"{place}/y_{split}.npy", y)
    return place


def packed(x, **more):
    file = io.BytesIO()
    numpy.save(file, x, **more)
    return file.getvalue()


def write(path, members):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with tarfile.open(path, "w:gz" if path.endswith(".gz") else "w") as archive:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def shards(place, found, form=packed, ending="tar"):
    for split, (x, y) in found.items():
        for first in range(0, len(x), 25):
            members = []
            for i in range(first, min(first + 25, len(x))):
                members.append((f"{i:03d}.npy", form(x[i])))
                members.append((f"{i:03d}.cls", b"%d" % y[i]) if i % 2 else (f"{i:03d}.json", json.dumps({"label": int(y[i])}).encode()))
            write(f"{place}/{split}-{first // 25}.{ending}", members)
    return place


def trained(data, model, *more, count=1):
    out = folder("run")
    words = (*RUN, "--model", model, "--data", data, *more, "--out", out)
    printed = ranks(count, *words) if count > 1 else stargrad(*words, "--cpus", 1)
    return (losses(out), [(e["test_loss"], e["test_top1"]) for e in events(out, "epoch")]), printed, out


@pytest.mark.parametrize("shape, dtype, model", [((8, 8, 3), "u1", "convnet"), ((8, 8), "u1", "convnet"), ((8, 8, 2), "<f4", "convnet"),
                                                 ((7,), ">i2", "mlp"), ((6,), "<f8", "mlp"), ((3, 4), "<f2", "mlp")])
def test_as_arrays(shape, dtype, model):
    found = arrays(shape, dtype)
    where = shards(folder("shards"), found)
    expected, _, _ = trained(f"npy:{stored(folder('arrays'), found)}", model)
    data = f"tar:{where}/{{train,test}}-*.tar"
    assert trained(data, model, count=2)[0] == expected
    fortran = shards(folder("fortran"), found, lambda x: packed(numpy.asfortranarray(x)))
    assert trained(f"tar:{fortran}/{{train,test}}-*.tar", model)[0] == expected
    compressed = shards(folder("compressed"), found, ending="tar.gz")
    assert trained(f"tar:{compressed}/{{train,test}}-*.tar.gz", model)[0] == expected
    same, printed, out = trained(data, model)
    assert same == expected, printed
    assert f"test accuracy {100 * expected[1][-1][1]:.2f} %" in stargrad("eval", out)
    assert len(stargrad("predict", out, "--data", f"tar:{where}/test-0.tar").splitlines()) == 21


def test_augmented():
    """uint8 images are augmented only on request, others not at all."""
    found = arrays((8, 8, 3), "u1")
    plain, printed, _ = trained(f"tar:{shards(folder('shards'), found)}/{{train,test}}-*.tar", "convnet")
    assert "augmentation none: samples are arrays" in printed and "samples are arrays of uint8 (8,8,3)" in printed, printed
    flipped = trained(f"tar:{shards(folder('shards'), found)}/{{train,test}}-*.tar", "convnet", "--augment", "flip")[0]
    assert flipped != plain and flipped == trained(f"npy:{stored(folder('arrays'), found)}", "convnet", "--augment", "flip")[0]


def refused(members, text, *more, status=1):
    path = write(f"{folder('bad')}/train-0.tar", members)
    said = stargrad(*RUN, "--model", "mlp", "--data", f"tar:{path}", "--split", 0.2, *more, status=status)
    assert said.count("\n") == 1 and text in said, said


def test_refused():
    good = [(f"{i}.{ending}", data) for i in range(20) for ending, data in (("npy", packed(numpy.ones((2, 3), "f4"))), ("cls", b"%d" % (i % 2)))]
    odd = [*good, ("20.npy", packed(numpy.ones((2, 4), "f4"))), ("20.cls", b"0")]
    refused(odd, f"train-0.tar: 20.npy at byte {512 * (3 * 20 + 20 + 1)}: the array is float32 (2,4), but that of ")
    refused(odd, "train-0.tar: 0.npy at byte 512 is float32 (2,3); all samples of a data set must have the same type and shape")
    refused([*good, ("20.npy", packed(numpy.ones((2, 3), "f8"))), ("20.cls", b"0")], "the array is float64 (2,3), but")
    refused([*good, ("20.npy", packed(numpy.full((2, 3), numpy.nan, "f4"))), ("20.cls", b"0")], "number 0 (counted from 0) is nan")
    refused([*good, ("20.npy", packed(numpy.ones((2, 0), "f4"))), ("20.cls", b"0")], "the array has no numbers")
    refused([*good, ("20.npy", packed(numpy.ones(3, "c8"))), ("20.cls", b"0")], "20.npy at byte")
    refused([*good, ("20.npy", packed(numpy.array([{}, None]), allow_pickle=True)), ("20.cls", b"0")], "values of type '|O'")
    whole = packed(numpy.ones((2, 3), "f4"))
    for size in (0, 5, 11, 50, len(whole) - 1):
        refused([*good, ("20.npy", whole[:size]), ("20.cls", b"0")], "20.npy at byte")
    refused([*good, ("20.ppm", b"P6\n1 1\n255\nabc"), ("20.cls", b"0")], "the input is an image, but earlier samples have arrays")
    refused([*good, ("20.npy", whole), ("20.NPY", whole), ("20.cls", b"0")], "the sample has two arrays")
    refused(good, "its samples are arrays, which are not resized; omit the image size", "--image-size", 8, status=2)
    first = write(f"{folder('mixed')}/0.tar", good)
    second = write(f"{os.path.dirname(first)}/1.tar", [("a.ppm", b"P6\n1 1\n255\nabc"), ("a.cls", b"0")])
    said = stargrad(*RUN, "--model", "mlp", "--data", f"tar:{os.path.dirname(first)}/{{0..1}}.tar", "--split", 0.2, status=1)
    assert f"{second}: has images, but {first} has arrays" in said, said


def test_beside_images():
    """An array beside an image is another member, and so is one without a label."""
    members = [(f"{i}.{ending}", data) for i in range(30)
               for ending, data in (("npy", b"any"), ("ppm", b"P6\n2 2\n255\n" + bytes([8 * i] * 12)), ("cls", b"%d" % (i % 2)))]
    path = write(f"{folder('beside')}/train-0.tar", [*members, ("mean.npy", b"any")])
    printed = stargrad(*RUN, "--model", "mlp", "--data", f"tar:{path}", "--split", 0.2)
    assert "24 training and 6 test samples" in printed and "31 other files: 31 .npy" in printed, printed


def test_damaged():
    """--damaged skip leaves out a damaged array, also the first one."""
    x = packed(numpy.arange(6, dtype="f4"))
    members = [(f"{i}.{ending}", data) for i in range(30) for ending, data in (("npy", x[:90] if i in (0, 7) else x), ("cls", b"%d" % (i % 2)))]
    path = write(f"{folder('damaged')}/train-0.tar", members)
    out = folder("run")
    printed = stargrad(*RUN, "--model", "mlp", "--data", f"tar:{path}", "--split", 0.2, "--damaged", "skip", "--out", out)
    with open(f"{out}/damaged.txt") as file:
        assert file.read().count(f"{path}: ") == 2
    assert "damaged" in printed


if __name__ == "__main__":
    main(globals())
