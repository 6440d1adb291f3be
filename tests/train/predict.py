"""predict, eval of a run's folder, train --like: commands that need only the folder of a run."""
import csv
import io
import json
import os
import random
import re
import shutil
import struct
import subprocess
import zlib

from run import command, content, events, folder, losses, main, ranks, stargrad

os.environ.pop("STARGRAD_PICTURES", None)      # pictures are looked at

SIDE, CLASSES = 8, ("ant", "bee, wild", 'cat "Tom"')


def write_png(path, pixels, side=SIDE, depth=8):
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    wide = pixels if depth == 8 else b"".join(bytes((p, 7)) for p in pixels)
    row = 3 * side * depth // 8
    rows = b"".join(b"\0" + wide[row * y:row * (y + 1)] for y in range(side))
    with open(path, "wb") as f:
        f.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, depth, 2, 0, 0, 0)) +
                chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def picture(draw, label, side=SIDE):
    return bytes(draw.randrange(120) + (110 if i % 3 == label else 0) for i in range(3 * side * side))


def make_folder(path):
    draw = random.Random(3)
    for part, count in (("train", 24), ("val", 6)):
        for label, name in enumerate(CLASSES):
            os.makedirs(f"{path}/{part}/{name}")
            for i in range(count):
                write_png(f"{path}/{part}/{name}/{i:02}.png", picture(draw, label))
    return path


def trained(pets, *more):
    out = folder("run")
    stargrad("train", "--model", "convnet", "--data", f"folder:{pets}", "--batch", 24, "--epochs", 6, "--lr",
             0.05, "--augment", "none", "--cpus", 1, "--out", out, *more)
    return out


def predict_without_run(pets, run, files, rows):
    """Images predicted by a file of weights, whose folder has a config.json or not, equal those of the run, whose rows are ROWS."""
    def predict(*words, status=0):
        said = stargrad("predict", *words, "--model", "convnet", "--cpus", 1, status=status)
        return said if status else [(row["class"], row["probability"]) for row in csv.DictReader(io.StringIO(said))]
    wanted, alone = [(row["class"], row["probability"]) for row in rows], os.path.join(folder("alone"), "alone.safetensors")
    os.mkdir(os.path.dirname(alone))
    os.link(f"{run}/model.safetensors", alone)
    with open(f"{run}/config.json") as file:
        config = json.load(file)
    mean, deviation = (",".join(map(str, config[key])) for key in ("mean", "deviation"))
    names = os.path.join(os.path.dirname(alone), "names.txt")
    with open(names, "w") as lines:
        lines.write("".join(f"{name}\n" for name in config["class_names"]))
    assert predict(*files, "--weights", f"{run}/model.safetensors") == wanted
    assert predict(*files, "--weights", alone, "--data", f"folder:{pets}") == wanted
    how = ("--weights", alone, "--image-size", SIDE, "--mean", mean, "--deviation", deviation)
    assert predict(*files, *how, "--class-names", names) == wanted
    assert [config["class_names"][int(number)] for number, _ in predict(f"{pets}/val", *how)] == [of for of, _ in predict(
        run, f"{pets}/val", "--weights", f"{run}/model.safetensors")]
    assert "has no effect" not in told("predict", run, files[0], "--eval-resize", SIDE + 2, "--exif", "apply")[1]
    for more, missing in (((), "give --image-size N, or --data"), (how[2:4], "give --mean and --deviation, or --data")):
        assert f"{alone}: no config.json beside it" in (said := predict(*files, "--weights", alone, *more, status=2)) and missing in said
    assert "is a file, not the folder of a run" in stargrad("predict", files[0], "--weights", alone, status=2)


def test_predict():
    pets = make_folder(folder("pets"))
    run = trained(pets)
    told = json.loads(stargrad("eval", run, "--json", "--details"))
    rows = list(csv.DictReader(io.StringIO(stargrad("predict", run))))
    lines = [json.loads(line) for line in stargrad("predict", run, "--json", "--top", 3).splitlines()]
    assert [row["sample"] for row in rows] == [line["sample"] for line in lines] and len(rows) == 18
    for row, line in zip(rows, lines):
        assert row["class"] == line["classes"][0]["class"] and abs(sum(c["probability"] for c in line["classes"]) - 1) < 1e-6
    right = [line["label"] == line["classes"][0]["class"] for line in lines]
    assert sum(right) / 18 == told["test_top1"] > 0.9 and {line["label"] for line in lines} == set(CLASSES)
    assert [sum(row) for row in told["confusion"]] == [6, 6, 6] and "top5" not in told and told["not_finite"] == 0
    assert sum(told["confusion"][i][i] for i in range(3)) == sum(right)
    assert [c["name"] for c in told["classes"]] == sorted(CLASSES) and sum(c["samples"] for c in told["calibration"]) == 18
    assert json.loads(stargrad("eval", "--weights", f"{run}/model.safetensors", "--model", "convnet", "--data", f"folder:{pets}",
                               "--json"))["test_loss"] == told["test_loss"]

    files = [f"{pets}/{line['sample']}" for line in lines]
    of_files = list(csv.DictReader(io.StringIO(stargrad("predict", run, *files))))
    assert [(row["class"], row["probability"]) for row in of_files] == [(row["class"], row["probability"]) for row in rows]
    assert list(csv.DictReader(io.StringIO(ranks(2, "predict", run, *files)))) == of_files
    of_folder = list(csv.DictReader(io.StringIO(stargrad("predict", run, f"{pets}/val/ant"))))
    assert [row["class"] for row in of_folder] == ["ant"] * 6, of_folder
    write_png(f"{pets}/large.png", picture(random.Random(4), 1, 50), 50)
    assert stargrad("predict", run, f"{pets}/large.png").splitlines()[1].split(",", 1)[1].startswith('"bee, wild",')

    predict_without_run(pets, run, files, rows)
    assert "nothing.png: No such file" in stargrad("predict", run, "nothing.png", status=1)
    assert "run.py: " in stargrad("predict", run, os.path.join(os.path.dirname(__file__), "run.py"), status=1)
    assert "is not the folder of a run" in stargrad("predict", folder("nowhere"), status=1)
    assert "RUN-DIR" in stargrad("predict", status=2) and "--model NAME is missing" in stargrad("eval", "--data", "digits", "--weights",
                                                                                             "x", status=2)


def test_details():
    """What eval --details leaves is in the report; what others have made of it is refused."""
    run = trained(make_folder(folder("details")))
    assert "details" not in json.loads(stargrad("report", run, "--json"))
    names = f"{run}/wide.txt"
    with open(names, "w", encoding="utf-8") as file:
        file.write("bee lärm\n日本\ne\u0301te\u0301\n")
    table = stargrad("eval", run, "--details", "--class-names", names, env={"LC_ALL": "C"}).split("\n\n")[1].splitlines()
    assert table[1].startswith("bee lärm" + 16 * " " + "6 ") and table[2].startswith("日本" + 20 * " " + "6 ") and \
        table[3].startswith("e\u0301te\u0301" + 21 * " " + "6 ") and table[0].startswith("class" + 13 * " " + "samples "), table
    told = json.loads(stargrad("eval", run, "--json", "--details"))
    assert "top-5" not in stargrad("eval", run, "--details")        # of three classes
    said, report = stargrad("report", run), json.loads(stargrad("report", run, "--json"))
    assert report["details"] == told and "calibration error" in said and "details.png" in said, said
    with open(f"{run}/report.html") as page, open(f"{run}/details.svg") as picture:
        svg = picture.read()
        assert svg[svg.index("<svg"):] in page.read() and all(name.split()[0] in svg for name in ("ant", "bee, wild", "cat"))
    whole = json.dumps(told)
    damages = (("[", "line 1"), ("[7]", "was not written by stargrad eval --details"), (whole[:-1] + "} x", "line 1"),
               *((json.dumps(told | change), "was not written by stargrad eval --details") for change in (
                   {"classes": []}, {"classes": told["classes"][:2]}, {"confusion": [[1, 2, 3]] * 2}, {"confusion": [[1, 2, -3]] * 3},
                   {"calibration": [{"samples": 1}]}, {"top5": "x"}, {"data": None})))
    for content, why in damages:
        with open(f"{run}/details.json", "w") as f:
            f.write(content)
        said = stargrad("report", run, status=1)
        assert "details.json" in said and why in said and said.count("\n") == 1, (content, said)


def change(path, name, values):
    """Tensor NAME of the file begins with these floats; its checksum no longer fits, which is a warning."""
    with open(path, "rb") as f:
        data = bytearray(f.read())
    size = struct.unpack("<Q", data[:8])[0]
    at = 8 + size + json.loads(data[8:8 + size])[name]["data_offsets"][0]
    data[at:at + 4 * len(values)] = struct.pack(f"<{len(values)}f", *values)
    with open(path, "wb") as f:
        f.write(data)


def told(*words):
    """What the command prints, and its warnings."""
    done = subprocess.run(command(*words), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def test_images_of_another_size():
    """A network that takes any size says so, where it is not the one of its training; others refuse."""
    run = folder("size")
    stargrad("train", "--model", "convnet", "--data", "synthetic:8x8x3,5,50", "--batch", 10, "--steps", 2, "--cpus", 1, "--out", run)
    for size, warned in (("8x8", False), ("8x12", True), ("12x8", True)):
        warnings = told("eval", run, "--data", f"synthetic:{size}x3,5,50", "--cpus", 1)[1]
        assert ("the network was trained on images of 8x8" in warnings) == warned, warnings
    # Images of another folder are scaled as those of the run.
    pets, run, other = folder("pets"), folder("scaled"), folder("other")
    make_folder(pets)
    shutil.copytree(pets, other)
    stargrad("train", "--model", "convnet", "--data", f"folder:{pets},{SIDE // 2}", "--batch", 10, "--steps", 2, "--cpus", 1, "--out", run)
    own = stargrad("eval", run, "--cpus", 1)
    for data in (other, f"{other},{SIDE // 2}"):
        assert told("eval", run, "--data", f"folder:{data}", "--cpus", 1) == (own, "")


def test_not_finite():
    """A sample whose logits are NaN, or infinite, is of no class, and counts as wrong everywhere."""
    run = folder("nan")
    stargrad("train", "--model", "mlp", "--data", "digits", "--batch", 64, "--epochs", 1, "--cpus", 1, "--out", run)
    for value in (float("nan"), float("inf")):
        change(f"{run}/model.safetensors", "fc3.bias", [value])
        said, warned = told("eval", run, "--details", "--json")
        said = json.loads(said)
        assert said["test_top1"] == 0 and said["not_finite"] == 360 and said["calibration_error"] is None and "top5" in said, said
        assert said["top5"] == 0 and all(c["accuracy"] == 0 for c in said["classes"]) and "360 of 360 samples" in warned, (said, warned)
        assert sum(c["samples"] for c in said["classes"]) == 360 and not any(map(any, said["confusion"]))
        assert json.loads(told("report", run, "--json")[0])["details"] == said
        said, warned = told("predict", run)
        assert said.splitlines()[1] == "0,,nan" and len(said.splitlines()) == 361 and "360 of 360 samples" in warned, (said, warned)
        assert all(json.loads(line)["classes"] == [] for line in told("predict", run, "--json")[0].splitlines())


def test_numbers_have_titles():
    """The first line names the columns, of numbers, of tokens' and of pixels' logits, too: no reader takes a sample for it. Numbers that
    are not finite are counted."""
    draw, out, text = random.Random(6), folder("numbers"), os.path.join(folder("texts"), "text")
    os.makedirs(os.path.dirname(text))
    with open(text, "wb") as f:
        f.write(bytes(draw.randrange(97, 123) for _ in range(400)))
    stargrad("train", "--model", "gpt:layers=1,heads=1,width=8,context=4", "--data", f"text:{text},4", "--batch", 4, "--steps", 1, "--out", out)
    lines = stargrad("predict", out).splitlines()
    assert lines[0].startswith("sample,number 1,number 2,") and len(lines[0].split(",")) == 1 + 4 * 256 == len(lines[1].split(","))
    assert [line.split(",")[0] for line in lines[1:]] == [str(i) for i in range(len(lines) - 1)] and len(lines) == 10
    table = os.path.join(os.path.dirname(text), "table.csv")
    with open(table, "w") as f:
        f.writelines(["a,b,price\n", *(f"{draw.random()},{draw.random()},{draw.random()}\n" for _ in range(50))])
    shutil.rmtree(out)
    stargrad("train", "--model", "mlp", "--data", f"csv:{table}", "--batch", 5, "--steps", 2, "--out", out)
    said, warned = told("predict", out)
    assert said.splitlines()[0] == "sample,price" and "finite" not in warned
    change(f"{out}/model.safetensors", "fc3.bias", [float("inf")])
    said, warned = told("predict", out)
    assert "10 of 10 samples have numbers that are NaN or infinite" in warned, warned


def test_auxiliary():
    """Of a network with auxiliary classifiers the main one's logits are what it says."""
    run, data = folder("aux"), "synthetic:64x64x3,5,40"
    stargrad("train", "--model", "googlenet:aux=1", "--data", data, "--batch", 8, "--steps", 2, "--lr", 0.01, "--out", run)
    said = json.loads(stargrad("eval", run, "--details", "--json"))
    lines = [json.loads(line) for line in stargrad("predict", run, "--json", "--top", 9).splitlines()]
    assert len(said["confusion"]) == 5 and all(len(line["classes"]) == 5 for line in lines)
    assert sum(line["label"] == line["classes"][0]["class"] for line in lines) / len(lines) == said["test_top1"]
    stargrad("export", run, f"{run}/aux.onnx")
    again = json.loads(stargrad("eval", "--model", f"onnx:{run}/aux.onnx", "--data", data, "--json"))
    assert abs(again["test_loss"] - said["test_loss"]) <= 1e-4 * said["test_loss"] and again["test_top1"] == said["test_top1"]
    assert again["weights"] == f"{run}/aux.onnx", again


def test_one_loss():
    """Evaluation never smooths labels: the run, its folder and its weights have one loss."""
    run = folder("smooth")
    for words in (("--label-smoothing", 0.3), ("--label-smoothing", 0.2, "--augment", "cutmix", "--tta", "flip")):
        shutil.rmtree(run, ignore_errors=True)
        model = "convnet" if "--tta" in words else "mlp"
        stargrad("train", "--model", model, "--data", "digits", "--batch", 64, "--steps", 9, "--cpus", 1, *words, "--out", run)
        tta = words[-2:] if "--tta" in words else ()
        said = [json.loads(stargrad("eval", *how, "--json", *tta))["test_loss"]
                for how in ((run,), ("--weights", f"{run}/model.safetensors", "--model", model, "--data", "digits"))]
        assert said[0] == said[1] and abs(said[0] - events(run, "epoch")[-1]["test_loss"]) < 1e-6, (said, words, events(run, "epoch"))


def write_tiff(path, pixels, side=SIDE):
    """16 bits a channel, the upper byte first, as a PNG has them."""
    wide = b"".join(bytes((p, 7)) for p in pixels)
    tags = [(256, 3, side), (257, 3, side), (258, 3, 16), (259, 3, 1), (262, 3, 2), (273, 4, 8), (277, 3, 3), (278, 3, side), (279, 4, len(wide))]
    entries = b"".join(struct.pack(">HHI", tag, kind, 1) + (struct.pack(">HH", value, 0) if kind == 3 else struct.pack(">I", value))
                       for tag, kind, value in tags)
    with open(path, "wb") as f:
        f.write(b"MM\0*" + struct.pack(">I", 8 + len(wide)) + wide + struct.pack(">H", len(tags)) + entries + struct.pack(">I", 0))


def test_deep():
    """Images of 16 bits a channel are 16 bits deep, as PNG and as TIFF, wherever they stand, and normalised by what they are."""
    pets, run, losses_of = make_folder(folder("pets")), folder("deep"), {}
    for write, ending in ((write_png, "png"), (write_tiff, "tif")):
        total, count = [0, 0, 0], 0
        for part in ("train", "val"):
            for label, name in enumerate(CLASSES):
                for i, old in enumerate(sorted(os.listdir(f"{pets}/{part}/{name}"))):
                    pixels = picture(random.Random(100 * label + i), label)
                    os.remove(f"{pets}/{part}/{name}/{old}")
                    write(f"{pets}/{part}/{name}/{i:02}.{ending}", pixels, **({"depth": 16} if ending == "png" else {}))
                    if part == "train":
                        total, count = [t + sum(256 * p + 7 for p in pixels[c::3]) for c, t in enumerate(total)], count + SIDE * SIDE
        shutil.rmtree(run, ignore_errors=True)
        done = subprocess.run(command("train", "--model", "convnet", "--data", f"folder:{pets}", "--batch", 24, "--epochs", 2, "--cpus", 1,
                                      "--deterministic", "--augment", "crop:1,flip,jitter", "--out", run), capture_output=True, text=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
        config = json.load(open(f"{run}/config.json"))
        assert config["input"]["full_scale"] == 65535
        assert all(abs(m - t / count / 65535) < 1e-6 for m, t in zip(config["mean"], total)), (config["mean"], total, count)
        losses_of[ending] = losses(run)
    assert losses_of["png"] == losses_of["tif"]
    rows = list(csv.DictReader(io.StringIO(stargrad("predict", run, "--cpus", 1))))
    of_files = list(csv.DictReader(io.StringIO(stargrad("predict", run, "--cpus", 1, *(f"{pets}/{row['sample']}" for row in rows)))))
    assert [row["probability"] for row in rows] == [row["probability"] for row in of_files]
    stargrad("train", "--like", run, "--show-batch", f"{pets}/batch.png")        # tests/datasets/depth.c looks at such a picture
    assert os.path.getsize(f"{pets}/batch.png") > 1000


def test_deep_among_others():
    """Where no training image has 16 bits, 8 are read: told once of the test images, and of each file."""
    pets, run = make_folder(folder("pets")), folder("deep")
    for i in range(2, 5):
        write_png(f"{pets}/val/ant/0{i}.png", picture(random.Random(i), 0), depth=16)
    for words, told in ((("train", "--model", "convnet", "--data", f"folder:{pets}", "--batch", 24, "--epochs", 2, "--out", run), 1),
                        (("predict", run, f"{pets}/val/ant/02.png", f"{pets}/val/ant/03.png"), 2)):
        done = subprocess.run(command(*words), capture_output=True, text=True)
        assert done.returncode == 0 and done.stderr.count("has more than 8 bits per channel") == told, done.stderr
    write_png(f"{pets}/train/bee, wild/07.png", picture(random.Random(7), 1), depth=16)     # one of 72 decides for all
    done = subprocess.run(command("train", "--model", "convnet", "--data", f"folder:{pets}", "--batch", 24, "--steps", 1, "--out",
                                  folder("deeper")), capture_output=True, text=True)
    assert done.returncode == 0 and "has more than 8 bits" not in done.stderr, done.stderr


def test_damaged():
    """One damaged file costs no other its prediction; training stops there, and names it, or leaves it out, alike on all ranks."""
    pets = make_folder(folder("pets"))
    run, again = trained(pets), folder("again")
    os.makedirs(f"{pets}/val/ant/more")
    shutil.copy(f"{pets}/val/ant/00.png", f"{pets}/val/ant/more/00.png")
    for path in ("val/ant/03.png", "train/ant/00.png"):
        with open(f"{pets}/{path}", "r+b") as f:
            f.truncate(60)
    os.symlink("nowhere", f"{pets}/val/ant/zz.png")
    with open(f"{pets}/val/ant/Thumbs.db", "w") as f:
        f.write("x")
    for words in ((), ("--json",)):
        done = subprocess.run(command("predict", run, f"{pets}/val/ant", *words), capture_output=True, text=True)
        lines = done.stdout.splitlines()[not words:]
        assert done.returncode == 1 and len(lines) == 6, done
        assert "ant/more/00.png" in lines[5] and "val/ant/03.png" not in done.stdout
        for told in ("val/ant/03.png: ", "val/ant/zz.png: No such file", "2 of 8 files cannot be read", "1 other file: 1 .db"):
            assert told in done.stderr, done.stderr
    assert ranks(2, "predict", run, f"{pets}/val/ant", status=1).count("val/ant/03.png: ") == 1

    words = ("--model", "convnet", "--data", f"folder:{pets}", "--batch", 24, "--steps", 3, "--cpus", 1)
    said = stargrad("train", *words, "--out", folder("none"), status=1)
    assert "train/ant/00.png: byte 60: the file ends early; give --damaged skip to leave out such samples" in said, said
    one = stargrad("train", *words, "--damaged", "skip", "--out", again)
    for told in ("71 training and 18 test samples; 1 training and 2 test samples damaged and left out", "1 .db"):
        assert told in one, one
    assert [line.split(": ")[1].split("/val/")[-1].split("/train/")[-1] for line in open(f"{again}/damaged.txt")][0] == "ant/00.png"
    assert "samples" in stargrad("eval", again, "--json", "--details")
    # Of another data set eval and predict stop, too, or leave out.
    plain = trained(make_folder(folder("plain")))
    for name, lines in (("eval", 1), ("predict", 1 + 18)):
        for more in ((), ("--tta", "flip")) if name == "eval" else ((),):
            said = stargrad(name, plain, "--data", f"folder:{pets}", *more, status=1)
            assert re.search("val/ant/03.png: byte .*; give --damaged skip to leave out such samples$", said, re.M), said
        done = subprocess.run(command(name, plain, "--data", f"folder:{pets}", "--damaged", "skip"), capture_output=True, text=True)
        assert done.returncode == 0 and len(done.stdout.splitlines()) == lines and done.stderr.count("left out") == 2, done
    shared = folder("shared")
    assert "71 training and 18 test samples" in ranks(2, "train", *words, "--damaged", "skip", "--out", shared)
    assert open(f"{shared}/damaged.txt").read() == open(f"{again}/damaged.txt").read()

    shutil.copy(f"{pets}/val/ant/01.png", f"{pets}/val/ant/00.png")
    for path in sorted(os.listdir(f"{pets}/val/ant")):
        os.remove(f"{pets}/val/ant/{path}") if path.endswith("png") else None
    write_png(f"{pets}/val/ant/00.png", picture(random.Random(1), 0, 9), 9)
    said = stargrad("train", *words, "--out", folder("none"), status=1)
    assert "but in the test set it is pixels, U8 (9,9,3): folder:DIR,SIZE resizes all to one size" in said, said


def test_files_of_a_run_are_kept():
    """An ONNX file does not take the place of what a run needs; a run's file without data ends nothing but the command."""
    out = folder("kept")
    stargrad("train", "--model", "mlp", "--data", "digits", "--batch", 96, "--steps", 1, "--out", out)
    before = {name: content(out, name) for name in ("config.json", "model.safetensors", "metrics.jsonl")}
    for name in before:
        said = stargrad("export", out, os.path.join(out, name), status=2)
        assert ("could replace" if name.endswith(".safetensors") else "FILE must end with .onnx or .safetensors, not '") in said, said
    assert before == {name: content(out, name) for name in before}
    stargrad("export", out, os.path.join(out, "mlp.onnx"))
    path = os.path.join(out, "config.json")
    for options in ({}, {"model": "mlp"}, {"model": "mlp", "data": None}):
        with open(path, "w") as f:
            json.dump({**json.loads(before["config.json"]), "input": None, "options": options}, f)
        for name in ("predict", "eval"):
            said = stargrad(name, out, status=2)
            assert "no data set is named" in said, (options, name, said)


def test_like():
    first, again, other = folder("first"), folder("again"), folder("other")
    words = ("--deterministic", "--cpus", 1)
    stargrad("train", "--model", "mlp", "--data", "digits", "--batch", 64, "--steps", 6, "--lr", 0.03, "--momentum", 0.5, "--seed", 7,
             "--schedule", "cosine", "--precision", "bf16", *words, "--out", first)
    stargrad("train", "--like", first, "--out", again)
    assert losses(again) == losses(first)
    stargrad("train", "--out", other, "--steps", 3, "--like", first, "--lr", 0.5)
    options = json.load(open(f"{other}/config.json"))["options"]
    assert (options["steps"], options["lr"], options["momentum"], options["seed"]) == (3, 0.5, 0.5, "7")
    assert len(events(other, "step")) == 3
    with open(f"{other}/config.json", "w") as f:
        f.write('{"options": {"batch": "many"}}')
    assert "option batch has a value of the wrong type" in stargrad("train", "--like", other, status=1)
    assert "is not the folder of a run" in stargrad("train", "--like", folder("nowhere"), status=1)


if __name__ == "__main__":
    main(globals())
