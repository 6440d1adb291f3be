"""Tables in a run: eval and predict match columns and classes with those of the run, by name."""
import csv
import io
import json
import os
import random
import shutil
import struct
import subprocess

from npz import array
from predict import make_folder, trained
from run import command, folder, losses, main, stargrad


def table(name, rows, titles):
    path = os.path.join(os.path.dirname(folder("x")), name)
    with open(path, "w") as f:
        csv.writer(f).writerows(([titles] if titles else []) + rows)
    return path


def flowers(count=200):
    draw = random.Random(3)
    made = []
    for i in range(count):
        kind = draw.choice(("no", "yes"))
        made.append([f"{draw.gauss(2 * (kind == 'yes'), .5):.4f}", f"{draw.gauss(90 - 60 * (kind == 'yes'), 20):.4f}", kind])
    return made


def told(*words, status=0):
    done = subprocess.run(command(*words, "--cpus", 1), capture_output=True, text=True, encoding="utf-8")
    assert done.returncode == status, (done.stdout, done.stderr)
    return done.stdout, done.stderr


def accuracy(*words):
    return json.loads(stargrad("eval", *words, "--json", "--cpus", 1))["test_top1"]


def test_classes():
    rows, run = flowers(), folder("run")
    data = table("flowers.csv", rows, ["a", "b", "label"])
    stargrad("train", "--model", "mlp", "--data", f"csv:{data}", "--batch", 10, "--epochs", 6, "--lr", .05, "--cpus", 1, "--out", run)
    features = json.load(open(f"{run}/config.json", encoding="utf-8"))["features"]
    assert features["titles"] == ["a", "b"] and features["target"] == "label" and len(features["mean"]) == 2, features
    own = accuracy(run)
    assert own > .9 and accuracy("--weights", f"{run}/model.safetensors", "--model", "mlp", "--data", f"csv:{data}") == own

    few = table("few.csv", [r for r in rows if r[2] == "yes"], ["a", "b", "label"])
    said, warned = told("eval", run, "--data", f"csv:{few}")
    assert "has no sample of the class 'no'" in warned and float(said.split()[2]) > 85, (said, warned)
    renamed = table("renamed.csv", [[a, b, k.replace("yes", "a_yes")] for a, b, k in rows], ["a", "b", "label"])
    for words in (("eval", run), ("eval", "--weights", f"{run}/model.safetensors", "--model", "mlp")):
        warned = told(*words, "--data", f"csv:{renamed}", status=1)[1]
        assert "was not trained on the class 'a_yes'" in warned and warned.count("\n") == 1, warned

    # All lines are predicted, and a target need not be there.
    predicted = list(csv.DictReader(io.StringIO(stargrad("predict", run, "--data", f"csv:{data}", "--cpus", 1))))
    assert [r["sample"] for r in predicted] == [str(i) for i in range(len(rows))] and len(list(rows)) == 200
    right = sum(r["class"] == k for r, (_, _, k) in zip(predicted, rows))
    assert right > 180
    # The same lines with other columns are other data, of which all lines are evaluated.
    turned = table("turned.csv", [[k, b, a] for a, b, k in rows], ["label", "b", "a"])
    assert accuracy(run, "--data", f"csv:{turned}") == right / 200
    bare = table("bare.csv", [r[:2] for r in rows], ["a", "b"])
    assert list(csv.DictReader(io.StringIO(stargrad("predict", run, "--data", f"csv:{bare}", "--cpus", 1)))) == predicted
    said, warned = told("predict", run, "--data", f"csv:{renamed}", "--json")
    assert "'a_yes'" in warned and len(said.splitlines()) == 200 and "label" not in said
    assert len(stargrad("predict", run).splitlines()) == 41        # the run's own test part
    assert "lacks the column 'b'" in told("predict", run, "--data", f"csv:{table('c.csv', rows, ['a', 'c', 'label'])}", status=1)[1]


def test_numbers():
    rows, run = [[f"{i % 7}", "4", f"{3 * (i % 7) + 1}"] for i in range(60)], folder("numbers")
    data = table("numbers.csv", rows, ["a", "same", "t"])
    stargrad("train", "--model", "mlp", "--data", f"csv:{data}", "--batch", 12, "--epochs", 3, "--lr", .01, "--cpus", 1, "--out", run)
    lines = stargrad("predict", run, "--data", f"csv:{data}", "--cpus", 1).splitlines()
    assert lines[0] == "sample,t" and len(lines) == 61 and "nan" not in "".join(lines)
    own = stargrad("predict", run, "--cpus", 1).splitlines()[1]
    assert abs(float(own.split(",")[1]) - float(lines[5].split(",")[1])) < 1e-4, (own, lines[5])
    bare = table("bare.csv", [r[:2] for r in rows], None)
    assert stargrad("predict", run, "--data", f"csv:{bare}", "--cpus", 1).splitlines() == lines
    single, alone = folder("single"), table("single.csv", [[r[0], r[2]] for r in rows], ["a", "t"])
    stargrad("train", "--model", "mlp", "--data", f"csv:{alone}", "--batch", 12, "--steps", 1, "--cpus", 1, "--out", single)
    for text, why in (("a\n1\n\"\"\n3\n", "line 3, column 1 (a): '' is not a number"), ("a\n1\n \n3\n", "")):     # a missing value, a blank line
        with open(alone, "w") as f:
            f.write(text)
        said, warned = told("predict", single, "--data", f"csv:{alone}", status=bool(why))
        assert why in warned and (why or said.count("\n") == 3), (said, warned)
    said = told("train", "--model", "mlp", "--data", f"csv:{table('one.csv', rows[:1] * 20, None)},classes", "--batch", 4, "--print")[1]
    assert "all training samples have the same class" in said and said.count("\n") == 1, said


def test_one_class():
    """A warning, whatever the data are."""
    path = folder("one_class")
    for part, folder_part in (("train", "train"), ("test", "val")):
        images = f"{path}/images/{folder_part}/only"
        os.makedirs(images)
        for i in range(4):
            with open(f"{images}/{i}.pgm", "wb") as f:
                f.write(b"P5 8 8 255\n" + bytes((i * 40 + j) % 256 for j in range(64)))
        for name, kind, shape, data in (("x", "|u1", "(8, 4)", bytes(range(32))), ("y", "<i4", "(8,)", bytes(32))):
            with open(f"{path}/{name}_{part}.npy", "wb") as f:
                f.write(array(kind, shape, data))
    for data, model in ((f"folder:{path}/images", "convnet"), (f"npy:{path}", "mlp")):
        said = told("train", "--model", model, "--data", data, "--batch", 4, "--print")[1]
        assert "all training samples have the same class" in said, (data, said)


def test_arrays():
    """Numbers in arrays are what the same table is."""
    rows = [[f"{(i * 37) % 11}", f"{i * i % 70 * 1000}", "7", str(i % 3)] for i in range(100)]
    path, out = folder("arrays"), {}
    os.makedirs(path)
    for part, mine in (("train", [r for i, r in enumerate(rows) if i % 5 != 4]), ("test", rows[4::5])):
        for name, kind, shape, data in (
                ("x", "<f4", f"({len(mine)}, 1, 3)", struct.pack(f"<{3 * len(mine)}f", *(float(c) for r in mine for c in r[:3]))),
                ("y", "<i2", f"({len(mine)}, 1)", struct.pack(f"<{len(mine)}h", *(int(r[3]) for r in mine)))):
            with open(f"{path}/{name}_{part}.npy", "wb") as f:
                f.write(array(kind, shape, data))
    for data in (f"csv:{table('arrays.csv', rows, None)},4,classes", f"npy:{path}"):
        run = folder(f"of_{data[:3]}")
        stargrad("train", "--model", "mlp", "--data", data, "--batch", 16, "--steps", 9, "--lr", .05, "--deterministic", "--cpus", 1, "--out", run)
        out[data[:3]] = losses(run), stargrad("predict", run, "--cpus", 1)
    assert out["npy"] == out["csv"]
    said = stargrad("train", "--model", "mlp", "--data", f"npy:{path}", "--batch", 16, "--print")
    assert "y contains classes" in said, said
    os.remove(f"{path}/y_test.npy")
    assert stargrad("predict", run, "--data", f"npy:{path}", "--cpus", 1) == out["npy"][1]


def test_arrays_of_another_shape():
    """As many numbers in other dimensions are other samples."""
    path = folder("shapes")
    for name, sides in (("turned", "4, 3"), ("flat", "12"), ("same", "3, 4")):
        os.makedirs(f"{path}/{name}")
        for part in ("train", "test"):
            for what, kind, shape, data in (("x", "<f4", f"(20, {sides})", struct.pack("<240f", *(i % 7 for i in range(240)))),
                                            ("y", "|u1", "(20,)", bytes(i % 2 for i in range(20)))):
                with open(f"{path}/{name}/{what}_{part}.npy", "wb") as f:
                    f.write(array(kind, shape, data))
    run = folder("shape")
    stargrad("train", "--model", "mlp", "--data", f"npy:{path}/same", "--batch", 10, "--steps", 2, "--cpus", 1, "--out", run)
    for name, shape in (("turned", "(4,3)"), ("flat", "(12)")):
        said = told("eval", run, "--data", f"npy:{path}/{name}", status=1)[1]
        assert f"has samples of {shape}, but the run's data have samples of (3,4)" in said, said
    assert accuracy(run, "--data", f"npy:{path}/same") == accuracy(run)


def test_folders():
    """The same of images in folders: classes are found by name."""
    pets = make_folder(folder("pets"))
    run, own = trained(pets), None
    own = accuracy(run)
    other = folder("other")
    shutil.copytree(f"{pets}/val", f"{other}/val")
    shutil.rmtree(f"{other}/val/ant")
    said, warned = told("eval", run, "--data", f"folder:{other}")
    assert "has no sample of the class 'ant'" in warned and own > .9 and float(said.split()[2]) > 80, (said, warned)
    os.rename(f"{other}/val/bee, wild", f"{other}/val/zebra")
    assert "was not trained on the class 'zebra'" in told("eval", run, "--data", f"folder:{other}", status=1)[1]


def test_names_that_are_not_utf8():
    """A run knows its own classes and columns whatever their letters' encoding, and the same names in UTF-8."""
    rows = flowers(60)
    latin, plain = (os.path.join(os.path.dirname(folder("x")), name) for name in ("latin.csv", "plain.csv"))
    text = "\n".join(["gr\u00f6\u00dfe,b,art", *(",".join(r).replace("yes", "wei\u00df") for r in rows)]) + "\n"
    for path, encoding in ((latin, "latin-1"), (plain, "utf-8")):
        with open(path, "w", encoding=encoding) as f:
            f.write(text)
    run = folder("latin")
    said = told("train", "--model", "mlp", "--data", f"csv:{latin}", "--batch", 8, "--epochs", 3, "--lr", .05, "--out", run)[1]
    assert "latin.csv: is not UTF-8; it is read as Latin-1" in said and said.count("\n") == 1, said
    assert json.load(open(f"{run}/config.json", encoding="utf-8"))["class_names"] == ["no", "wei\u00df"]
    assert accuracy(run) == accuracy(run, "--data", f"csv:{plain}")

    pets = make_folder(folder("pets"))
    for part in ("train", "val"):
        os.rename(f"{pets}/{part}/ant".encode(), f"{pets}/{part}/".encode() + b"\xe4nt")
    run = trained(pets)
    assert json.load(open(f"{run}/config.json", encoding="utf-8"))["class_names"][2] == "\u00e4nt"
    own = accuracy(run)
    for part in ("train", "val"):
        os.rename(f"{pets}/{part}/".encode() + b"\xe4nt", f"{pets}/{part}/\u00e4nt".encode())
    assert accuracy(run, "--data", f"folder:{pets}") == own > .9
    shutil.rmtree(f"{pets}/val/\u00e4nt".encode())
    assert "/val: has no image of 1 of the 3 classes: '\u00e4nt'" in told("eval", run, "--data", f"folder:{pets}")[1]


if __name__ == "__main__":
    main(globals())
