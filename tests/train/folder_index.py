"""The index of a folder of images: a second start lists no files; added, removed and renamed files are noticed; a damaged index is made
again; ranks share it; a missing or full cache folder only costs time."""
import os
import random
import re
import shutil
import subprocess

import pytest
from run import command, folder, losses, main, ranks, stargrad

RUN = ("train", "--model", "convnet", "--batch", 20, "--steps", 2, "--deterministic", "--bn-group", "global", "--checkpoint-every", 0)
DATA = re.compile(r"^data .*?(\d+) training", re.M)


def image(seed):
    return b"P6\n8 8\n255\n" + random.Random(seed).randbytes(192)


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(data)


def age(place, time=10**9):
    """Makes all folders old: an index of folders that have just changed is not stored."""
    for path, _, _ in os.walk(place):
        os.utime(path, (time, time))


@pytest.fixture
def place():
    path = folder("images")
    for label in range(3):
        for i in range(100):
            write(f"{path}/train/{'abc'[label]}/{'old/' if i > 80 else ''}{i:03d}.ppm", image(100 * label + i))
        for i in range(5):
            write(f"{path}/val/{'abc'[label]}/{i}.ppm", image(1000 + 5 * label + i))
    write(f"{path}/train/a/notes.txt", b"")
    age(path)
    return path


@pytest.fixture
def cache():
    return folder("cache")


def start(place, cache, *more):
    """A run with the cache folder; returns its training samples, its losses, and its messages."""
    out = folder("run")
    done = subprocess.run(command(*RUN, "--data", f"folder:{place}", *more, "--cpus", 1, "--out", out), capture_output=True, text=True,
                          env={**os.environ, "XDG_CACHE_HOME": cache})
    assert not done.returncode, done.stderr
    return int(DATA.search(done.stdout)[1]), losses(out), done.stderr


def indexes(cache):
    path = f"{cache}/.starpu/stargrad/indexes"
    return {f"{path}/{name}": os.stat(f"{path}/{name}").st_ino for name in os.listdir(path) if not name.startswith(".")}


def test_second_start(place, cache):
    """The first start stores one index: that of train, because val has few images. The second start uses it."""
    first = start(place, cache)
    stored = indexes(cache)
    assert len(stored) == 1 and first[0] == 300 and not first[2], first
    assert start(place, cache) == first and indexes(cache) == stored
    if not shutil.which("strace") or subprocess.run(["strace", "-f", "true"], capture_output=True).returncode:
        return
    log = folder("log")
    words = command(*RUN, "--data", f"folder:{place}", "--cpus", 1, "--out", folder("run"))
    subprocess.run(["strace", "-f", "-y", "-e", "trace=getdents64", "-o", log, *words], check=True, capture_output=True,
                   env={**os.environ, "XDG_CACHE_HOME": cache})
    with open(log) as file:
        listed = file.read()
    assert "images/val/a>" in listed and "images/train" not in listed, listed


def test_changes(place, cache):
    """Each change of the files is noticed, also in a subfolder, and behind a link."""
    start(place, cache)

    def expect(count, *more):
        assert start(place, cache, *more)[0] == count
        age(place)
        assert start(place, cache, *more)[0] == count

    write(f"{place}/train/a/new.ppm", image(9))
    expect(301)
    write(f"{place}/train/b/old/new.ppm", image(10))
    expect(302)
    os.remove(f"{place}/train/a/new.ppm")
    expect(301)
    os.rename(f"{place}/train/b/old/new.ppm", f"{place}/train/b/old/other.ppm")
    write(f"{place}/out.txt", b"train/b/old/other.ppm\n")
    expect(300, "--exclude", f"{place}/out.txt")
    os.rename(f"{place}/train/b/old/other.ppm", f"{place}/train/b/old/other.txt")
    expect(300)
    os.symlink("../../more", f"{place}/train/c/link")       # to no folder yet
    expect(300)
    write(f"{place}/more/1.ppm", image(11))
    expect(301)
    write(f"{place}/more/2.ppm", image(12))
    expect(302)
    shutil.rmtree(f"{place}/more")
    expect(300)
    write(f"{place}/train/d/1.ppm", image(13))
    expect(301)
    refused = stargrad(*RUN, "--data", f"folder:{place}", status=0, env={"XDG_CACHE_HOME": cache})
    assert "4 classes" in refused, refused
    shutil.rmtree(f"{place}/train/d")
    os.mkdir(f"{place}/train/e")
    refused = stargrad(*RUN, "--data", f"folder:{place}", status=1, env={"XDG_CACHE_HOME": cache})
    assert refused.count("\n") == 1 and "train/e: has no image" in refused, refused


def test_damaged(place, cache):
    """An index with a flipped bit, or without its end, is made again, with a message; one that is empty, without."""
    first = start(place, cache)
    path = next(iter(indexes(cache)))
    with open(path, "rb") as file:
        whole = file.read()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 8
    for data in (bytes(flipped), whole[:-1], whole[:100], whole + b"\0", b""):
        write(path, data)
        count, loss, said = start(place, cache)
        assert (count, loss) == first[:2]
        assert not data or said.count("\n") == 1 and "indexes/ was damaged, and is made again" in said, said
        with open(path, "rb") as file:
            assert file.read() == whole


def test_ranks(place, cache):
    """Ranks that start together store one index, with the result of one rank."""
    first = start(place, folder("other"))
    out = folder("run")
    ranks(2, *RUN, "--data", f"folder:{place}", "--out", out, env={"XDG_CACHE_HOME": cache})
    assert len(indexes(cache)) == 1 and losses(out) == first[1]


def test_no_times(place, cache):
    """A file system without times of folders: no index is stored, because it would hide changes."""
    age(place, 0)
    assert start(place, cache)[0] == 300 and not indexes(cache)
    write(f"{place}/train/a/new.ppm", image(1))
    age(place, 0)
    assert start(place, cache)[0] == 301


def test_unwritable_cache(place, cache):
    """An index that cannot be stored is a warning, and no error."""
    path = f"{cache}/.starpu/stargrad/indexes"
    start(place, cache)
    name = os.path.basename(*indexes(cache))
    os.remove(f"{path}/{name}")
    write(f"{path}/{name}/in-the-way", b"")
    samples, _, said = start(place, cache)
    assert samples == 300 and said and all("warning: folder: the index of" in line for line in said.splitlines()), said


def test_no_cache(place, cache):
    """Without a usable folder of indexes, each start lists the files, and a warning states the reason."""
    first = start(place, cache)
    shutil.rmtree(cache)
    write(f"{cache}/.starpu/stargrad/indexes", b"")
    count, loss, said = start(place, cache)
    assert (count, loss) == first[:2]
    assert said.count("\n") == 1 and "indexes cannot be created: Not a directory; measurements and indexes" in said, said


if __name__ == "__main__":
    main(globals())
