"""--exclude: a training without some samples equals, to the bit, a training on a set that never had them, with every reader and
on several ranks."""
import os
import random
import struct
import zlib

from run import content, events, folder, losses, main, ranks, stargrad

COUNT, SIDE = 200, 8
OUT = sorted(random.Random(5).sample(range(COUNT), 37))
RUN = ("--model", "convnet", "--batch", 24, "--epochs", 2, "--lr", 0.05, "--bn-group", "global", "--deterministic")


def images(count, seed):
    draw = random.Random(seed)
    return [(i % 4, bytes(min(255, draw.randrange(200) + 14 * (i % 4)) for _ in range(SIDE * SIDE))) for i in range(count)]


def write_idx(path, train, test):
    os.makedirs(path, exist_ok=True)
    for name, samples in (("train", train), ("t10k", test)):
        with open(f"{path}/{name}-images-idx3-ubyte", "wb") as f:
            f.write(struct.pack(">IIII", 0x803, len(samples), SIDE, SIDE) + b"".join(pixels for _, pixels in samples))
        with open(f"{path}/{name}-labels-idx1-ubyte", "wb") as f:
            f.write(struct.pack(">II", 0x801, len(samples)) + bytes(label for label, _ in samples))


def write_png(path, pixels):
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + pixels[SIDE * y:SIDE * (y + 1)] for y in range(SIDE))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 0, 0, 0, 0)) +
                chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def names(samples):
    return [f"{'abcd'[label]}/{i:03}.png" for i, (label, _) in enumerate(samples)]


def write_folder(path, samples, out=()):
    for i, name in enumerate(names(samples)):
        if i not in out:
            write_png(f"{path}/train/{name}", samples[i][1])
    for label in range(4):
        write_png(f"{path}/val/{'abcd'[label]}/0.png", samples[label][1])


def write_list(path, lines):
    with open(path, "w") as f:
        f.writelines(f"{line}\n" for line in lines)
    return path


def outcome(run, out):
    return losses(out), [(e["test_loss"], e["test_top1"]) for e in events(out, "epoch")], content(out)


def train(data, *words, count=1):
    out = folder("out")
    run = ("train", "--data", data, *RUN, *words, "--out", out)
    said = ranks(count, *run) if count > 1 else stargrad(*run)
    return outcome(run, out), said


def sets():
    """The whole set, the list, and the set that never had them: of idx files and of a folder."""
    train_set, test_set = images(COUNT, 1), images(40, 2)
    kept = [s for i, s in enumerate(train_set) if i not in OUT]
    place = folder("sets")
    write_idx(f"{place}/all", train_set, test_set)
    write_idx(f"{place}/kept", kept, test_set)
    write_folder(f"{place}/folder", train_set)
    write_folder(f"{place}/without", train_set, OUT)
    numbers = write_list(f"{place}/numbers", ["# what is left out", *map(str, OUT), "", OUT[0]])
    files = write_list(f"{place}/files", ["train/" + names(train_set)[i] for i in reversed(OUT)])
    return (f"idx:{place}/all", numbers, f"idx:{place}/kept"), (f"folder:{place}/folder", files, f"folder:{place}/without")


IDX, FOLDER = sets()


def test_idx():
    got, said = train(IDX[0], "--exclude", IDX[1])
    assert got == train(IDX[2])[0]
    assert f"{COUNT - len(OUT)} training and 40 test samples; {len(OUT)} left out by {IDX[1]}" in said, said
    assert got != train(IDX[0])[0]


def test_folder():
    assert train(FOLDER[0], "--exclude", FOLDER[1])[0] == train(FOLDER[2])[0]


def test_ranks():
    one = train(IDX[0], "--exclude", IDX[1])[0]
    for count, words in ((2, ()), (2, ("--data-placement", "partition")), (4, ("--data-placement", "partition"))):
        assert train(IDX[0], "--exclude", IDX[1], *words, count=count)[0] == one, (count, words)
    got = train(FOLDER[0], "--exclude", FOLDER[1], "--data-placement", "partition", count=2)[0]
    assert got == train(FOLDER[2])[0]


def test_resume():
    whole = train(IDX[0], "--exclude", IDX[1])[0]
    out = folder("resumed")
    run = ("train", "--data", IDX[0], *RUN, "--out", out)
    stargrad(*run, "--exclude", IDX[1], "--steps", 4)
    steps = len(whole[0])
    said = stargrad(*run, "--exclude", "", "--resume", status=2)
    assert f"the run was trained on {IDX[0]}" in said and f"without the samples of {IDX[1]}, so it cannot be continued with" in said, said
    assert said.count("sample") >= 2 and "give --data" in said and said.count("\n") == 1, said
    stargrad(*run, "--steps", steps, "--resume")
    assert (losses(out), content(out)) == (whole[0], whole[2])


def test_wrong():
    place = folder("wrong")
    os.makedirs(place)
    run = ("train", "--data", IDX[0], *RUN, "--out", f"{place}/out")
    for lines, what in ((["1", "200"], "line 2: '200' is not one of the 200 samples"), (["-1"], "line 1: '-1'"),
                        (["99999999999999999999"], "line 1: "), (["train/a/1.png"], "line 1: 'train/a/1.png' is not one"),
                        (range(COUNT), "excludes every sample")):
        said = stargrad(*run, "--exclude", write_list(f"{place}/list", lines), status=1)
        assert f"{place}/list: {what}" in said and said.count("\n") == 1, said
    said = stargrad("train", "--data", FOLDER[0], *RUN, "--exclude", write_list(f"{place}/list", ["train/a/999.png"]), status=1)
    assert "or its name, such as train/a/" in said, said
    assert "No such file" in stargrad(*run, "--exclude", f"{place}/none", status=1)
    assert not os.path.exists(f"{place}/out")


def test_nothing():
    place = folder("nothing")
    os.makedirs(place)
    assert train(IDX[0], "--exclude", write_list(f"{place}/list", []))[0] == train(IDX[0])[0]


if __name__ == "__main__":
    main(globals())
