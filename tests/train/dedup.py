"""stargrad dedup: planted duplicates are found, counted by relation, and listed by the greedy rule; damaged, 16-bit and animated
images; stored hashes; ranks; several thresholds; the result of train --exclude."""
import json
import os
import random
import re
import shutil
import struct
import zlib

from run import folder, losses, main, ranks, stargrad

os.environ.pop("STARGRAD_PICTURES", None)      # pictures are looked at

SIDE = 24


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(rows, side=SIDE, depth=8, animated=False):
    control = chunk(b"acTL", struct.pack(">II", 1, 0)) if animated else b""
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, depth, 2, 0, 0, 0)) + control +
            chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in rows))) + chunk(b"IEND", b""))


def smooth(seed, brighter=0, side=SIDE, depth=8):
    """A picture that hardly another has: a few waves; sizes and brightness do not change its hash much."""
    draw = random.Random(seed)
    cells = [[draw.randrange(20, 220) for _ in range(5)] for _ in range(5)]
    rows = []
    for y in range(side):
        row = []
        for x in range(side):
            u, v = 3.999 * x / (side - 1), 3.999 * y / (side - 1)
            i, j = int(v), int(u)
            a, b = v - i, u - j
            at = (1 - a) * ((1 - b) * cells[i][j] + b * cells[i][j + 1]) + a * ((1 - b) * cells[i + 1][j] + b * cells[i + 1][j + 1])
            row += [int(at) + brighter] * 3
        rows.append(bytes(row) if depth == 8 else b"".join(bytes((v, v)) for v in row))
    return rows


def write(path, data):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(data)


def make_set():
    """Classes a and b of 20 images each, the n-th drawn from n, or 100 + n; a has 3 twice more, b has a's 5, test has a's 7 and b's 2."""
    place = folder("set")
    for n in range(20):
        write(f"{place}/train/a/{n:02}.png", png(smooth(n)))
        write(f"{place}/train/b/{n:02}.png", png(smooth(100 + n)))
    write(f"{place}/train/a/3-larger.png", png(smooth(3, side=40), 40))
    write(f"{place}/train/a/3-brighter.png", png(smooth(3, 20)))
    write(f"{place}/train/b/5-of-a.png", png(smooth(5, 10)))
    write(f"{place}/val/a/0.png", png(smooth(7, 5)))
    write(f"{place}/val/b/0.png", png(smooth(102)))
    write(f"{place}/val/b/1.png", png(smooth(500)))
    return place


SET = make_set()


def lines(path):
    with open(path) as f:
        return f.read().split("\n")[:-1]


def dedup(data, out, *words, **how):
    return json.loads(stargrad("dedup", "--data", data, "--out", out, "--json", *words, **how))


def test_lists():
    for name in ("phash", "dhash", "ahash", "whash"):
        for bits in (64, 256):
            out = folder("lists")
            if (name, bits) == ("phash", 256):
                continue        # whose high frequencies a picture of 24 pixels lacks
            told = dedup(f"folder:{SET}", out, "--hash", name, "--bits", bits, "--threshold", 4 * bits // 64)
            assert (told["train"], told["test"], told["damaged"]) == (43, 3, 0)
            assert told["within"] == {"pairs": 3, "images": 3}, (name, bits, told)
            assert told["across"] == {"pairs": 1, "images": 2}, (name, bits, told)
            assert told["leaks"] == {"pairs": 2, "images": 2, "tests": 2, "pairs_of_one_class": 2}, (name, bits, told)
            # In the order of names: 03.png, 3-brighter.png, 3-larger.png; the first stays.
            assert lines(f"{out}/drop.txt") == ["train/a/3-brighter.png", "train/a/3-larger.png"]
            assert lines(f"{out}/leaks.txt") == ["train/a/07.png", "train/b/02.png"]
            keep = lines(f"{out}/keep.txt")
            assert len(keep) == 41 and "train/a/03.png" in keep
            pairs = [json.loads(line) for line in lines(f"{out}/pairs.jsonl")]
            assert len(pairs) == 6 and {p["b"] for p in pairs} >= {"val/a/0.png", "val/b/0.png", "train/b/5-of-a.png"}
            dedup(f"folder:{SET}", out, "--hash", name, "--bits", bits, "--threshold", 4 * bits // 64, "--across")
            assert lines(f"{out}/drop.txt") == ["train/a/07.png", "train/a/3-brighter.png", "train/a/3-larger.png", "train/b/02.png",
                                                "train/b/5-of-a.png"]


def test_numbers():
    """Of a set without names: numbers, and which are the test set's."""
    out = folder("numbers")
    told = dedup("digits", out, "--threshold", 4)
    drop, keep = [int(n) for n in lines(f"{out}/drop.txt")], [int(n) for n in lines(f"{out}/keep.txt")]
    assert sorted(drop + keep) == list(range(told["train"])) and len(drop) == told["dropped"] > 0
    pairs = [json.loads(line) for line in lines(f"{out}/pairs.jsonl")]
    assert all(p["distance"] <= 4 and isinstance(p["a"], int) for p in pairs)
    leaks = {p["a"] for p in pairs if str(p["b"]).startswith("test:")}
    assert leaks == {int(n) for n in lines(f"{out}/leaks.txt")} and len(leaks) == told["leaks"]["images"] > 0
    run = ("train", "--model", "convnet", "--data", "digits", "--steps", 2, "--out", folder("trained"))
    assert f"{len(keep)} training and 360 test samples" in stargrad(*run, "--exclude", f"{out}/drop.txt")


def test_known():
    """What was hashed once is not again; what has changed is; another hash begins anew; a damaged file is refused."""
    place, out = folder("growing"), folder("known")
    for n in range(6):
        write(f"{place}/train/a/{n}.png", png(smooth(n)))
    args = (f"folder:{place}", out, "--no-test")
    assert dedup(*args)["known"] == 0
    assert dedup(*args)["known"] == 6
    write(f"{place}/train/a/6.png", png(smooth(0)))
    write(f"{place}/train/a/5.png", png(smooth(99, side=30), 30))
    told = dedup(*args)
    assert (told["known"], told["within"]["pairs"]) == (5, 1)
    assert dedup(*args, "--hash", "dhash")["known"] == 0
    with open(f"{out}/hashes.bin", "r+b") as f:
        f.seek(50)
        f.write(b"x")
    said = stargrad("dedup", "--data", args[0], "--out", out, "--no-test", "--hash", "dhash", status=1)
    assert said.count("\n") == 1 and "hashes.bin: byte " in said, said


def test_unusual():
    place, out = folder("unusual"), folder("found")
    good = png(smooth(1))
    write(f"{place}/train/a/0-empty.png", b"")
    write(f"{place}/train/a/1-short.png", good[:len(good) // 2])
    write(f"{place}/train/a/2-text.jpg", b"this is no image")
    write(f"{place}/train/a/3-good.png", good)
    write(f"{place}/train/a/4-deep.png", png(smooth(1, depth=16), depth=16))
    write(f"{place}/train/a/5-moves.png", png(smooth(2), animated=True))
    os.symlink("nowhere", f"{place}/train/a/6-gone.png")
    args = ("dedup", "--data", f"folder:{place}", "--out", out, "--no-test")
    told = json.loads(stargrad(*args, "--json"))
    assert (told["damaged"], told["deep"], told["animated"], told["within"]["pairs"], told["dropped"]) == (4, 1, 1, 1, 1), told
    assert lines(f"{out}/unusual.txt") == ["train/a/0-empty.png\tdamaged", "train/a/1-short.png\tdamaged", "train/a/2-text.jpg\tdamaged",
                                           "train/a/4-deep.png\t16 bits ", "train/a/5-moves.png\tanimated ", "train/a/6-gone.png\tdamaged"]
    assert lines(f"{out}/keep.txt") == ["train/a/3-good.png", "train/a/5-moves.png"]
    assert dedup(f"folder:{place}", out, "--no-test")["known"] == 3        # the damaged are looked at, and named, again
    dedup(f"folder:{place}", out, "--no-test", "--odd", "skip")
    assert lines(f"{out}/keep.txt") == ["train/a/3-good.png"]
    # Training stops at the damaged first, and goes on without those that dedup lists: its size is that of the first that stays.
    train = ("train", "--model", "convnet", "--data", f"folder:{place}", "--steps", 2, "--batch", 1, "--out", folder("trained"))
    write(f"{place}/val/a/0.png", good)
    said = stargrad(*train, status=1)
    assert said.count("\n") == 1 and "0-empty.png" in said, said
    assert "1 training and 1 test sample; 6 left out" in stargrad(*train, "--exclude", f"{out}/drop.txt")
    assert "0-empty.png" in stargrad(*args, "--damaged", "refuse", status=1)
    assert "4-deep.png: has more than 8 bits" in stargrad(*args, "--odd", "refuse", "--cpus", 1, status=1)


def test_ranks():
    """Every rank hashes its share; rank 0 tells."""
    one, other = folder("one"), folder("other")
    dedup("synthetic:16x16x3,5,2000", one, "--hash", "ahash", "--threshold", 14)
    ranks(2, "dedup", "--data", "synthetic:16x16x3,5,2000", "--out", other, "--hash", "ahash", "--threshold", 14)
    for name in ("keep.txt", "drop.txt", "pairs.jsonl", "hashes.bin"):
        with open(f"{one}/{name}", "rb") as a, open(f"{other}/{name}", "rb") as b:
            assert a.read() == b.read(), name
    assert lines(f"{one}/drop.txt")


def test_auto():
    told = dedup("digits", folder("auto"), "--threshold", "auto")
    assert told["auto"] and told["threshold"] == told["auto_threshold"] >= 0 and told["false_rate"] < 1e-4


def test_no_threshold_is_rare_enough():
    """Where unrelated pictures are as near as copies, the summary has no threshold, not one of -1."""
    place = folder("near")
    for n in range(20):
        for label in "ab":
            write(f"{place}/train/{label}/{n:02}.png", png(smooth(1)))
            write(f"{place}/val/{label}/{n:02}.png", png(smooth(1)))
    told = stargrad("dedup", "--data", f"folder:{place}", "--out", folder("near-out"), "--threshold", 0)
    assert "; not below 0.01 % at any threshold" in told and not re.search(r"^threshold .*-1", told, re.M), told


def test_sweep():
    out = folder("sweep")
    words = ("dedup", "--data", "digits", "--sweep", "0-3", "--model", "convnet", "--steps", 20, "--out", out, "--threshold", 3, "--epsilon", 1)
    said = stargrad(*words)
    with open(f"{out}/sweep.json") as f:
        points = json.load(f)
    assert [p["threshold"] for p in points] == [None, 0, 1, 2, 3]
    assert all(a["dropped"] <= b["dropped"] for a, b in zip(points, points[1:]))
    assert points[3]["dropped"] > 0 and points[2]["test_top1"] == points[1]["test_top1"], points
    assert [p["best"] for p in points].index(True) == 3, points        # 2 and 3 drop the same: distances are even
    assert "loses at most epsilon" in said and os.path.exists(f"{out}/sweep.svg")
    assert len(losses(f"{out}/sweep/none-1")) == 20

    # What could not be hashed is in no training, with any threshold.
    place, out = folder("short"), folder("sweep-short")
    for n in range(4):
        write(f"{place}/train/{'ab'[n % 2]}/{n}.png", png(smooth(n)))
        write(f"{place}/val/{'ab'[n % 2]}/{n}.png", png(smooth(100 + n)))
    write(f"{place}/train/a/0-short.png", png(smooth(1))[:99])
    stargrad("dedup", "--data", f"folder:{place}", "--sweep", "0-1", "--model", "convnet", "--steps", 2, "--batch", 4, "--out", out)
    assert lines(f"{out}/sweep/none.txt") == ["train/a/0-short.png"]
    assert len(losses(f"{out}/sweep/none-1")) == 2


def test_split():
    """The training set and the test set are those of train --split. The list suits it."""
    place, out, run = folder("undivided"), folder("split"), folder("split-run")
    shutil.copytree(f"{SET}/train", f"{place}/train")
    said = stargrad("dedup", "--data", f"folder:{place}", "--split", .25, "--seed", 3, "--out", out)
    assert re.search(r"^data .*: 32 training and 11 test images$", said, flags=re.M), said
    words = ("train", "--model", "convnet", "--data", f"folder:{place},{SIDE}", "--split", .25, "--seed", 3, "--batch", 8, "--steps", 1)
    stargrad(*words, "--exclude", f"{out}/drop.txt", "--out", run)
    with open(f"{run}/config.json") as file:
        config = json.load(file)
    dropped, kept = lines(f"{out}/drop.txt"), lines(f"{out}/keep.txt")
    assert len(kept) + len(dropped) == 32 and (config["training_samples"], config["test_samples"]) == (len(kept), 11), config
    held_out = {line.split(",")[0] for line in stargrad("predict", run).splitlines()[1:]}
    everything = {f"train/{label}/{name}" for label in "ab" for name in os.listdir(f"{place}/train/{label}")}
    assert held_out == everything - set(kept) - set(dropped)
    assert "--split 0.1" in stargrad("dedup", "--data", f"folder:{place}", "--out", out, status=1)
    assert "other seeds hold out other samples" in stargrad("dedup", "--data", f"folder:{place}", "--split", .25, "--seeds", 2,
                                                            "--sweep", "0-2", "--model", "convnet", "--out", out, status=2)


def test_wrong():
    out = folder("wrong")
    args = ("dedup", "--data", "digits", "--out", out)
    assert "unknown hash 'fash'" in stargrad(*args, "--hash", "fash", status=2)
    for text in ("65", "-1", "x", "1x"):
        assert "is not auto or a whole number from 0 to 64" in stargrad(*args, f"--threshold={text}", status=2)
    for text in ("3", "5-2", "0-64", "a-b"):
        assert "is not a range of thresholds" in stargrad(*args, "--sweep", text, "--model", "convnet", status=2)
    assert "--sweep requires --model" in stargrad(*args, "--sweep", "0-2", status=2)
    assert not os.path.exists(out)


if __name__ == "__main__":
    main(globals())
