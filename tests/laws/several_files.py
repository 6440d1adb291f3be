"""Data sets in several files, for the laws: images in tar archives, and a mixture of two folders of token files."""
import array
import io
import os
import subprocess
import tarfile

from run import FOLDER, command


def has_archives():
    return "libarchive" in subprocess.run(command("--version"), capture_output=True, text=True).stdout


def images():
    """Seven archives of 6x6 images in three classes, the last one as the test set. They have 9 to 27 images, and one is compressed."""
    place = os.path.join(FOLDER, "shards")
    if not os.path.exists(place):
        os.makedirs(place)
        for shard in range(7):
            name = "val-0.tar" if shard == 6 else f"train-{shard}.tar{'.gz' if shard == 2 else ''}"
            with tarfile.open(os.path.join(place, name), "w:gz" if name.endswith("gz") else "w") as archive:
                for i in range(9 + 3 * shard):
                    pixels = bytes((37 * shard + 11 * i + 60 * (i % 3) + k * k) % 256 for k in range(108))
                    for ending, data in (("ppm", b"P6\n6 6\n255\n" + pixels), ("cls", b"%d" % (i % 3))):
                        member = tarfile.TarInfo(f"{i:03}.{ending}")
                        member.size = len(data)
                        archive.addfile(member, io.BytesIO(data))
    return f"tar:{place}"


def mixture():
    """Samples of 16 tokens below 256: 0.7 of a large source in three files, 0.3 of a small one, which repeats."""
    places = [os.path.join(FOLDER, name) for name in ("large", "small")]
    for place, count in zip(places, (900, 150)):
        if not os.path.exists(place):
            os.makedirs(place)
            for name in ("train_0", "train_1", "train_2", "val_0"):
                with open(os.path.join(place, f"{name}.bin"), "wb") as f:
                    array.array("H", (97 + (i * i // 7 + i // 3 + count) % 26 for i in range(count))).tofile(f)
    return f"tokens:{places[0]}*0.7,{places[1]}*0.3,16"
