"""python -m stargrad.convert tar of a folder of images writes shards that train as the folder."""
import glob
import json
import os
import tarfile

from convert import convert, png
from run import FOLDER, Skip, folder, main, stargrad

try:
    import numpy  # noqa: F401
except ModuleNotFoundError:
    numpy = None


def setup_module():
    if numpy is None:
        raise Skip("Python has no numpy")


def test_folder_of_images():
    """The shards of a folder have its images and classes, in another order, and are the same each time. This needs no pyarrow."""
    place = folder("pictures")
    for split, count in (("train", 12), ("val", 3)):
        for c, name in enumerate(("ant", "bee")):
            for i in range(count):
                path = os.path.join(place, split, name, f"{i}.png")
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as f:
                    f.write(png(100 * c + i))
    with open(os.path.join(place, "train", "ant", "notes.txt"), "w") as f:
        f.write("no image")
    out, again, other = (os.path.join(FOLDER, name) for name in ("of-folder", "of-folder-2", "of-folder-3"))
    said = convert("tar", place, "--out", out, "--shard-size", 500)
    assert "train: 24 images of 2 classes in" in said and "1 other files are left out" in said, said
    convert("tar", place, "--out", again, "--shard-size", 500)
    convert("tar", place, "--out", other, "--shard-size", 500, "--shuffle", 2)
    orders = []
    for shards in (out, again, other):
        order = []
        for path in sorted(glob.glob(os.path.join(shards, "train-*.tar"))):
            with tarfile.open(path) as archive:
                order += [json.load(archive.extractfile(m))["file"] for m in archive if m.name.endswith(".json")]
        orders.append(order)
    assert orders[0] == orders[1] != orders[2] and sorted(orders[0]) == sorted(orders[2]) and orders[0] != sorted(orders[0])
    words = ("train", "--model", "mlp", "--batch", 8, "--steps", 2, "--print")
    if "libarchive" in stargrad("--version"):
        assert "2 classes, 24 training and 6 test samples" in stargrad(*words, "--data", f"tar:{out}")
    assert "does not apply to a folder of images" in convert("tar", place, "--label", "x", "--out", os.path.join(FOLDER, "never"), status=1)


if __name__ == "__main__":
    main(globals())
