"""The Python module in a program's memory: training on arrays, functions during a training, results per class, rows, and models."""
import contextlib
import io
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import zlib

import module
import run
from module import ENV, needs_numpy, numpy, on_ranks, refused
from run import FOLDER, Skip, folder, losses, main
from volumes import zarr

stargrad = getattr(module, "stargrad", None)
HOW = {"cpus": 1, "deterministic": True}


def images(count=90):
    """Grey images of three classes, by their brightness."""
    draw = numpy.random.default_rng(5)
    y = numpy.arange(count) % 3
    return (draw.integers(0, 90, (count, 9, 8, 1)) + 60 * y[:, None, None, None]).astype(numpy.uint8), y


def features(count=160):
    draw = numpy.random.default_rng(3)
    x = draw.standard_normal((count, 6), dtype=numpy.float32)
    return x, (x[:, 0] > x[:, 1]).astype(numpy.int64)


def png(path, pixels):
    """Writes a grey image (h,w)."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", pixels.shape[1], pixels.shape[0], 8, 0, 0, 0, 0)
    with open(path, "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
    return path


def test_arrays_train_as_files():
    """The same losses and predictions as of an npy file, for images, classes and numbers."""
    needs_numpy()
    x, y = features()
    pixels, labels = images()
    brightness = pixels.mean(axis=(1, 2)) / 255
    for name, model, x, y in (("images", "convnet", pixels, labels), ("classes", "mlp", x, y), ("numbers", "mlp", x, x[:, :2] - x[:, 2:4]),
                              ("brightness", "convnet", pixels, brightness), ("floats", "convnet", (pixels / 255).astype("f4"), labels)):
        train, test = (x[:64], y[:64]), (x[64:], y[64:])
        path = os.path.join(FOLDER, f"{name}.npz")
        numpy.savez(path, x_train=train[0], y_train=train[1], x_test=test[0], y_test=test[1])
        how = {"model": model, "batch": 16, "epochs": 2, "lr": 0.02, **HOW}
        filed = stargrad.train(data=f"npy:{path}", out=folder(f"{name}-file"), **how)
        one = stargrad.train(data=train, test=test, out=folder(f"{name}-memory"), **how)
        assert losses(one.folder) == losses(filed.folder) and one.metrics("epoch")[-1]["test_loss"] == filed.metrics("epoch")[-1]["test_loss"]
        assert one.config["options"]["data"] == "arrays"
        assert one.evaluate(data=test, cpus=1) == filed.evaluate(cpus=1)
        os.remove(path)
        assert (one.predict(test[0], cpus=1) == filed.predict(test[0], cpus=1)).all()       # neither needs its training set
        one.export(os.path.join(FOLDER, f"{name}.onnx"))


def test_other_layouts_of_arrays():
    """Views, other orders and other types have the same meaning; the arrays are not changed."""
    needs_numpy()
    x, y = images()
    how = {"model": "convnet", "batch": 16, "steps": 4, **HOW}
    wanted = losses(stargrad.train(data=(x[:60], y[:60]), test=(x[60:], y[60:]), out=folder("plain"), **how).folder)
    channels_first = numpy.ascontiguousarray(x.transpose(0, 3, 1, 2))
    others = ((numpy.asfortranarray(x), y.astype(">i2")), (channels_first.transpose(0, 2, 3, 1), y.astype("u1")),
              (x[..., 0], numpy.eye(3, dtype="f4")[y]), (numpy.repeat(x, 2, axis=0)[::2], list(y)))
    for number, (x2, y2) in enumerate(others):
        before = x2.copy()
        one = stargrad.train(data=(x2[:60], y2[:60]), test=(x2[60:], y2[60:]), out=folder(f"layout{number}"), **how)
        assert losses(one.folder) == wanted and (x2 == before).all()


def test_held_out_samples():
    """The samples that --split holds out of files, by class and seed. A continued run holds out the same, and refuses others."""
    needs_numpy()
    x, y = features()
    how = {"model": "mlp", "data": (x, y), "batch": 16, "cpus": 1}
    one = stargrad.train(steps=6, test=0.25, seed=7, out=folder("held"), **how)
    files = os.path.join(FOLDER, "held.npz")
    numpy.savez(files, x_train=x, y_train=y)
    of_files = stargrad.train(steps=6, split=0.25, seed=7, out=folder("held-files"), **{**how, "data": f"npy:{files}"})
    for run_of in (one, of_files):
        config = run_of.config
        assert (config["training_samples"], config["test_samples"], config["options"]["split"]) == (120, 40, 0.25), config
    assert one.config["identity"] == of_files.config["identity"] and losses(one.folder) == losses(of_files.folder)
    other = stargrad.train(steps=1, test=0.25, seed=8, out=folder("held-other"), **how)
    assert other.config["identity"]["data"] != one.config["identity"]["data"]
    samples = {c["name"]: c["samples"] for c in one.result["classes"]}
    assert all(abs(samples[str(c)] - 0.25 * (y == c).sum()) < 1 for c in numpy.unique(y)), samples
    assert (one.predict(x, cpus=1).shape, of_files.predict(cpus=1).shape) == ((160, 2), (40, 2))
    assert (of_files.predict(data=f"npy:{files}", cpus=1) == of_files.predict(cpus=1)).all()
    again = stargrad.train(epochs=2, test=0.25, out=one.folder, resume=True, **how)
    assert again.result["steps"] == 14
    refused(lambda: stargrad.train(epochs=3, test=0.2, out=one.folder, resume=True, **how), "config.json")
    refused(lambda: one.evaluate(), "arrays", "data=(x, y)")
    refused(lambda: stargrad.train(like=one, out=folder("like")), "arrays", "data=(x, y)")


def test_arrays_refused():
    needs_numpy()
    x, y = features()
    out = folder("refused")
    train = lambda **how: stargrad.train(**{"model": "mlp", "out": out, **how})
    refused(lambda: train(data=(x, y), on_step=5), "on_step must be a function")
    refused(lambda: train(data=x), "data must be a pair of arrays, (x, y)")
    refused(lambda: train(data=(x, y[1:])), "x has shape (160, 6) and y (159,)")
    refused(lambda: train(data=(x, y), test=(x,)), "test must be a pair")
    refused(lambda: train(data=(x, y), test=1.5), "test is 1.5")
    refused(lambda: train(data=(x[:1], y[:1]), test=0.5), "--split requires a class with two training samples")
    refused(lambda: train(data=(x.astype(complex), y)), "x of data has values of type complex128")
    refused(lambda: train(data=(x, numpy.array(["a"] * 160))), "y of data has values of type <U1", "numpy.unique(y, return_inverse=True)")
    refused(lambda: train(data=(x, numpy.array(["a"] * 160, object))), "y of data has values of type object", "numpy.unique")
    refused(lambda: train(data=(x, y - 1)), "y of data: number", "counted from 0")
    refused(lambda: train(data=(numpy.zeros((160, 9, 8)), y), model="convnet"), "requires images", "x[..., None]")
    refused(lambda: train(data=(numpy.where(x > 2, numpy.nan, x), y), test=(x, y)), "x of data: feature", "is nan")
    refused(lambda: train(data=(x, y), test=(x[:, :5], y)), "x of data and x of test have samples of different shapes")
    refused(lambda: train(data=(x, y), test=(x, y - 1)), "y of test: number")
    assert not os.path.exists(out)


def test_steps_and_epochs():
    """The functions get the lines of metrics.jsonl, when they have been written."""
    needs_numpy()
    out, steps, epochs, written = folder("lines"), [], [], []

    def step(event):
        steps.append(event)
        written.append(len(stargrad.Run(out).metrics()))
        if len(steps) == 1:
            refused(lambda: stargrad.Run(out).predict(), "only one can run at a time")
    one = stargrad.train(model="mlp", data="digits", epochs=2, on_step=step, on_epoch=epochs.append, out=out, cpus=1)
    assert steps == one.metrics() and epochs == one.metrics("epoch") and written == list(range(1, 23))


def test_stop():
    """Stop ends the run as after its last step; the run can be used and continued."""
    needs_numpy()
    how = {"model": "mlp", "data": "digits", "cpus": 1, "steps_in_flight": 1} if "steps_in_flight" in stargrad.options() else \
        {"model": "mlp", "data": "digits", "cpus": 1, "window": 1}

    def at_five(event):
        return stargrad.Stop if event["step"] == 5 else None
    one = stargrad.train(steps=30, on_step=at_five, out=folder("stop"), **how)
    assert one.result["steps"] in (5, 6) and one.metrics("epoch")[-1]["step"] == one.result["steps"]
    assert one.evaluate(cpus=1)["test_loss"] == one.result["test_loss"]
    assert stargrad.train(out=one.folder, resume=True, cpus=1).result["steps"] == 30

    def after_two(event):
        if event["epoch"] == 2:
            raise stargrad.Stop
    two = stargrad.train(epochs=9, on_epoch=after_two, out=folder("epochs"), **how)
    assert two.result["epochs"] == 2 and [line["epoch"] for line in two.metrics("epoch")] == [1, 2]
    assert (two.predict(cpus=1) == stargrad.train(epochs=2, out=folder("two"), **how).predict(cpus=1)).all()


def test_exceptions():
    """Another exception leaves a checkpoint, and is raised; also from the last epoch, which is complete."""
    needs_numpy()

    def fails(event):
        raise LookupError(f"at {event['event']}")
    for name, how in (("step", {"on_step": fails}), ("epoch", {"on_epoch": fails})):
        out = folder(f"raises-{name}")
        try:
            stargrad.train(model="mlp", data="digits", epochs=3, cpus=1, out=out, **how)
        except LookupError as why:
            assert str(why) == f"at {name}"
        else:
            raise AssertionError("not raised")
        assert any(file.startswith("checkpoint-") for file in os.listdir(out))
        assert stargrad.train(out=out, resume=True, cpus=1).result["steps"] == 33
    out = folder("raises-last")
    try:
        stargrad.train(model="mlp", data="digits", epochs=1, cpus=1, out=out, on_epoch=fails)
    except LookupError:
        assert stargrad.Run(out).predict(cpus=1).shape == (360, 10)


def test_stop_on_ranks():
    """Rank 0 calls the functions; all ranks end after the same step."""
    out = folder("stop-ranks")
    said = on_ranks(f"""import os
import stargrad
calls = []
def stop(event):
    calls.append(event)
    raise stargrad.Stop
run = stargrad.train(model="mlp", data="digits", epochs=5, batch=64, out={out!r}, cpus=1, on_epoch=stop)
assert run.result["epochs"] == 1, run.result
os.write(1, f"{{len(calls)}} calls\\n".encode())    # one write, so that lines of two ranks do not mix
""")
    assert sorted(line for line in said.splitlines() if line.endswith("calls")) == ["0 calls", "1 calls"], said


def test_progress():
    """The progress line replaces the output of the command. It is drawn on a terminal; other files get a line for each epoch."""
    needs_numpy()

    class Terminal(io.StringIO):
        def isatty(self):
            return True
    how = {"model": "mlp", "data": "digits", "epochs": 2, "cpus": 1}
    for kind in (io.StringIO, Terminal):
        text = kind()
        stargrad.train(progress=text, out=folder("progress"), **how)
        lines = [line.rsplit("\r", 1)[-1] for line in text.getvalue().split("\n")[:-1]]
        assert [line[:9] for line in lines] == ["epoch 1/2", "epoch 2/2"] and "test top1 0." in lines[0], lines
    program = f"import stargrad; stargrad.train(progress=open('{FOLDER}/progress.txt', 'w'), out={folder('quiet')!r}, **{how!r})"
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **ENV}, capture_output=True, text=True)
    assert done.returncode == 0 and not done.stdout, done


def test_details():
    """As of stargrad eval --details."""
    needs_numpy()
    one = stargrad.train(model="mlp", data="digits", epochs=1, cpus=1, out=folder("details"))
    own, command = one.evaluate(details=True, cpus=1), json.loads(run.stargrad("eval", one.folder, "--details", "--json", "--cpus", 1))
    for key in ("test_loss", "test_top1", "top5", "calibration_error", "not_finite"):
        assert abs(own[key] - command[key]) < 1e-6, (key, own[key], command[key])
    assert own["confusion"].tolist() == command["confusion"]
    for row, other in zip(own["classes"], command["classes"], strict=True):
        assert all(abs(row[key] - other[key]) < 1e-6 if key != "name" else row[key] == other[key] for key in ("name", "samples", "accuracy"))
    truth, predicted = (numpy.repeat(numpy.arange(10), own["confusion"].sum(axis=axis)) for axis in (1, 0))
    assert len(truth) == len(predicted) == 360
    refused(lambda: stargrad.evaluate(one, details=True, data=(numpy.zeros((4, 8, 8), "u1"), numpy.zeros((4, 8, 8), int))), "")


def test_details_beside_scikit_learn():
    needs_numpy()
    try:
        from sklearn.metrics import precision_recall_fscore_support
    except ModuleNotFoundError:
        raise Skip("Python has no sklearn") from None
    from stargrad.results import details
    draw = numpy.random.default_rng(1)
    labels, logits = draw.integers(0, 6, 200), draw.standard_normal((200, 7)).astype("f4")
    own = details(logits, labels, "abcdefg")["classes"]
    precision, recall, f1, samples = precision_recall_fscore_support(labels, logits.argmax(axis=1), labels=range(7), zero_division=numpy.nan)
    for key, theirs in (("precision", precision), ("accuracy", recall), ("recall", recall), ("f1", f1), ("samples", samples)):
        assert numpy.allclose([row[key] for row in own], theirs, equal_nan=True), key


def test_tables():
    """Rows with the same keys, with the values of stargrad predict."""
    needs_numpy()
    x, y = images()
    data = os.path.join(FOLDER, "table.npz")
    numpy.savez(data, x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    one = stargrad.train(model="convnet", data=f"npy:{data}", batch=20, steps=3, cpus=1, out=folder("table"))
    rows = one.table(top=2, cpus=1)
    command = [json.loads(line) for line in run.stargrad("predict", one.folder, "--top", 2, "--json", "--cpus", 1).splitlines()]
    assert len(rows) == 60 and {*rows[0]} == {"sample", "label", "class", "probability"}
    for i, (row, other) in enumerate(zip(rows, [best for line in command for best in line["classes"]], strict=True)):
        assert row["sample"] == i // 2 and row["class"] == other["class"] and abs(row["probability"] - other["probability"]) < 1e-6
        assert row["label"] == command[i // 2]["label"]
    files = [png(os.path.join(FOLDER, f"{i}.png"), x[i, :, :, 0]) for i in range(2)]
    assert [row["sample"] for row in one.table(files)] == files == [row["sample"] for file in files for row in one.table(file)]
    assert numpy.allclose(one.predict(files[0], cpus=1), one.predict(files, cpus=1)[0], atol=1e-5) and one.predict(files[0]).shape == (3,)
    x, y = features()
    numbers = stargrad.train(model="mlp", data=(x, x[:, 0]), steps=2, batch=16, cpus=1, out=folder("number"))
    assert [*numbers.table(x[:3])[2]] == ["sample", "number"] and numbers.table(x[:3])[2]["sample"] == 2
    with contextlib.suppress(ModuleNotFoundError):
        import pandas
        assert pandas.DataFrame(rows).shape == (60, 4) and pandas.DataFrame(one.metrics("epoch")).shape[0] == 1


def command_rows(*words):
    """The samples and classes that stargrad predict prints."""
    return [(line["sample"], line["classes"][0]["class"]) for line in map(json.loads, run.stargrad("predict", *words, "--json").splitlines())]


def test_samples_have_their_names():
    """Rows of the run's test set, of held-out files and of a table name the samples as the command does."""
    needs_numpy()
    x, y = images(36)
    pets = folder("named")
    for part in ("train", "val"):
        for number, (pixels, label) in enumerate(zip(x[..., 0], y)):
            os.makedirs(f"{pets}/{part}/k{label}", exist_ok=True)
            png(f"{pets}/{part}/k{label}/ü {number}.png", pixels)
    how = {"model": "convnet", "batch": 9, "steps": 2, "cpus": 1}
    one = stargrad.train(data=f"folder:{pets}", out=folder("named-run"), **how)
    rows = one.table()
    assert [(row["sample"], row["class"]) for row in rows] == command_rows(one.folder) and rows[0]["sample"] == "val/k0/ü 0.png"
    photos = [f"{pets}/val/k1", f"{pets}/val/k0/ü 0.png"]       # folders as in the command
    assert [(row["sample"], row["class"]) for row in one.table(photos)] == command_rows(one.folder, *photos)
    assert one.predict(f"{pets}/val", cpus=1).shape == (36, 3) and one.predict(photos[0], cpus=1).shape == (12, 3)
    assert numpy.allclose(one.predict(photos[1], cpus=1), one.predict(photos, cpus=1)[-1], atol=1e-5)
    refused(lambda: one.predict(FOLDER + "/empty"), "No such file")
    os.makedirs(f"{pets}/empty")
    refused(lambda: one.predict(f"{pets}/empty"), "empty: contains no image")
    shutil.rmtree(f"{pets}/val")
    held = stargrad.train(data=f"folder:{pets}", split=0.25, out=folder("named-held"), **how)
    assert [(row["sample"], row["class"]) for row in held.table()] == command_rows(held.folder) and len(held.table()) == 9
    table = os.path.join(FOLDER, "named.csv")
    with open(table, "w") as file:
        file.write("id,a,b,class\n" + "".join(f"00{i},{i % 3},{i % 5},{'xy'[i % 2]}\n" for i in range(30)))
    rows = stargrad.train(**{**how, "model": "mlp"}, data=f"csv:{table},-id,classes", out=folder("named-table"))
    assert [row["sample"] for row in rows.table(data=f"csv:{table}", id="id")] == [f"00{i}" for i in range(30)]


def test_classes_of_pixels():
    """A network with a class for each pixel returns images of logits: for its test set, and for arrays, without its data."""
    needs_numpy()
    draw = numpy.random.default_rng(1)
    x = draw.integers(0, 255, (24, 16, 32, 3)).astype(numpy.uint8)
    y = (x[..., 0] > 127).astype(int)
    data = os.path.join(FOLDER, "pixels.npz")
    numpy.savez(data, x_train=x[:16], y_train=y[:16], x_test=x[16:], y_test=y[16:])
    how = {"model": "unet2d:width=8,levels=2", "batch": 8, "epochs": 30, "optimizer": "adam", "lr": 0.01, "cpus": 1, "deterministic": True}
    one, two = (stargrad.train(data=data, test=(x[16:], y[16:]), out=folder(name), **how)
                for name, data in (("pixels", f"npy:{data}"), ("pixels-memory", (x[:16], y[:16]))))
    logits, score = one.predict(cpus=1), one.evaluate(cpus=1)["test_accuracy"]
    assert logits.shape == (8, 16, 32, 2) and abs((logits.argmax(axis=-1) == y[16:]).mean() - score) < 1e-6 and score > 0.9, score
    os.remove(data)
    assert (one.predict(x[16:], cpus=1) == logits).all() and (two.predict(x[16:], cpus=1) == logits).all()
    model = stargrad.Model.load(two.folder, cpus=1)
    assert (model.logits(x[16:]) == logits).all() and numpy.allclose(model.probabilities(x[16:]).sum(axis=-1), 1)
    grey = stargrad.train(data=(x[..., 0], y), out=folder("pixels-grey"), **{**how, "epochs": 1})
    assert grey.predict(x[:3, ..., 0], cpus=1).shape == grey.predict(x[:3, ..., :1], cpus=1).shape == (3, 16, 32, 2)
    for samples in (x[16:], x[16]):
        refused(lambda samples=samples: two.table(samples), "classes for each of 16x32 pixels", "argmax")
    refused(lambda: two.predict(x[:0]), "at least one image")
    refused(lambda: two.predict(x[16:, :, :, 0]), "network")
    refused(lambda: two.predict([5]), "samples must be images, (n,H,W,C) or (n,H,W)")


def test_classes_of_voxels():
    needs_numpy()
    data = pathlib.Path(folder("voxels"))
    for part in ("train", "val"):
        (data / part).mkdir(parents=True)
        zarr(data / part / "image.zarr", [2, 16, 32], [2, 16, 32], lambda z, y, x: 255 if (y // 8 + z) % 2 else 40)
        zarr(data / part / "label.zarr", [2, 16, 32], [2, 16, 32], lambda z, y, x: (y // 8 + z) % 2)
    one = stargrad.train(model="unet3d:groups=8", data=f"volume:{data},2x16x32", batch=1, steps=1, cpus=1, out=folder("voxels-run"))
    assert one.predict(cpus=1).shape == (1, 2, 16, 32, 2)


def test_one_sample_in_an_array():
    """An array that is one sample has one row of outputs, as an image file has."""
    needs_numpy()
    x, y = images()
    colour, rows = numpy.repeat(x, 3, axis=3), features()
    how = {"batch": 20, "steps": 2, "cpus": 1}

    def same(model, given, one=None):
        wanted = model(given)[1]
        for sample in (given[1],) if one is None else (given[1], one):
            assert model(sample).shape == wanted.shape and numpy.allclose(model(sample), wanted, atol=1e-4)
    grey = stargrad.train(model="convnet", data=(x, y), out=folder("one-grey"), **how)
    same(grey.predict, x, x[1, ..., 0])
    assert len(grey.table(x[1], top=2)) == 2
    same(stargrad.train(model="convnet", data=(colour, y), out=folder("one-colour"), **how).predict, colour)
    floats = (x / 255).astype("f4")
    same(stargrad.train(model="convnet", data=(floats, y), out=folder("one-float"), **how).predict, floats, floats[1, ..., 0])
    same(stargrad.train(model="mlp", data=rows, out=folder("one-row"), **how).predict, rows[0])
    number = stargrad.train(model="mlp", data=(rows[0][:, :1], rows[1]), out=folder("one-number"), **how)
    assert number.predict(rows[0][:, 0]).shape == (160, 2)          # many samples of one number
    pixels = stargrad.train(model="unet2d:width=8,levels=2", data=(numpy.zeros((20, 16, 32, 3), "u1"), numpy.arange(10240).reshape(20, 16, 32) % 2),
                            out=folder("one-mask"), **{**how, "batch": 4})
    assert pixels.predict(numpy.zeros((16, 32, 3), "u1"), cpus=1).shape == (16, 32, 2)
    alone = os.path.join(folder("one-alone"), "weights.safetensors")
    os.makedirs(os.path.dirname(alone))
    stargrad.save(alone, grey.weights())
    same(stargrad.Model.load(alone, model="convnet", classes=3, cpus=1, mean=grey.config["mean"], deviation=grey.config["deviation"]).logits,
         x, x[1, ..., 0])


def test_files_without_a_run():
    """Image files with weights from elsewhere, as in stargrad predict FILES --weights W --model M."""
    needs_numpy()
    x = numpy.random.default_rng(2).integers(0, 255, (24, 8, 8, 1)).astype(numpy.uint8)
    one = stargrad.train(model="convnet", data=(numpy.repeat(x, 3, axis=3), numpy.arange(24) % 3), batch=8, steps=3, cpus=1, out=folder("of-files"))
    alone = os.path.join(folder("files-alone"), "weights.safetensors")
    os.makedirs(f"{os.path.dirname(alone)}/photos")
    stargrad.save(alone, one.weights())
    files = [png(f"{os.path.dirname(alone)}/photos/{i}.png", x[i, :, :, 0]) for i in range(3)]
    wanted = one.predict(numpy.repeat(x[:3], 3, axis=3), cpus=1)
    how = {"model": "convnet", "mean": one.config["mean"], "deviation": one.config["deviation"], "cpus": 1}
    model = stargrad.Model.load(alone, classes="abc", image_size=8, **how)
    for given in (files, os.path.dirname(files[0]), [os.path.dirname(files[0])]):
        assert numpy.allclose(model.logits(given), wanted, atol=1e-4)
    assert numpy.allclose(model.logits(files[1]), wanted[1], atol=1e-4) and numpy.allclose(model.logits(x[:3].repeat(3, axis=3)), wanted, atol=1e-4)
    rows = model.table(files)
    assert [row["sample"] for row in rows] == files and [row["class"] for row in rows] == ["abc"[c] for c in wanted.argmax(axis=1)]
    larger = stargrad.Model.load(alone, classes=3, image_size=8, eval_resize=12, **how).logits(files)
    assert larger.shape == (3, 3) and not numpy.allclose(larger, wanted, atol=1e-4)
    refused(lambda: stargrad.Model.load(alone, classes=3, **how).logits(files), "weights.safetensors", "--image-size")
    refused(lambda: stargrad.Model.load(alone, classes=4, image_size=8, **how).logits(files), "has 3 classes, but 4 were given")


def test_models():
    """The outputs of the run, from its folder, from its weights, and from weights without a run."""
    needs_numpy()
    x, y = images()
    one = stargrad.train(model="convnet", data=(x, y), batch=20, steps=3, cpus=1, out=folder("model"))
    wanted = one.predict(x, cpus=1)
    model = stargrad.Model.load(one.folder, cpus=1)
    assert (model.logits(x) == wanted).all() and model.classes == ["0", "1", "2"] and repr(model) == f"Model({one.folder!r})"
    assert numpy.allclose(model.probabilities(x).sum(axis=1), 1) and len(model.table(x, top=2)) == 180
    assert (stargrad.Model.load(os.path.join(one.folder, "model.safetensors"), cpus=1).logits(x) == wanted).all()
    alone = os.path.join(folder("alone"), "weights.safetensors")
    os.makedirs(os.path.dirname(alone))
    stargrad.save(alone, one.weights())
    about = {"classes": ["a", "b", "c"], "mean": one.config["mean"], "deviation": one.config["deviation"], "cpus": 1}
    other = stargrad.Model.load(alone, model="convnet", **about)
    assert numpy.allclose(other.logits(x), wanted, atol=1e-4) and other.table(x)[0]["class"] in "abc"
    onnx = os.path.join(os.path.dirname(alone), "net.onnx")
    one.export(onnx)
    assert numpy.allclose(stargrad.Model.load(onnx, **about).logits(x), wanted, atol=1e-4)
    refused(lambda: stargrad.Model.load(alone), "model, mean, deviation, classes must be given")
    refused(lambda: stargrad.Model.load(alone + "x"), "No such file")
    refused(lambda: other.logits(numpy.zeros(3)), "samples must be an array of images")
    refused(lambda: model.logits(x[:, :5]), "samples of U8 (5,8,1)")
    assert "torch" not in sys.modules


def test_arguments_are_named():
    needs_numpy()
    how = {"model": "mlp", "data": "digits"}
    refused(lambda: stargrad.train(**how, out="a\0b"), "out must not contain the character NUL")
    refused(lambda: stargrad.train(**how, lr=float("nan")), "lr: nan")
    refused(lambda: stargrad.train(**how, augment={"crop": 4}), "option augment has a value of the wrong type")
    refused(lambda: stargrad.train(**how, freeze=stargrad), "freeze: ")
    one = stargrad.train(model="convnet", data="synthetic:8x8x3,2,64", mean=[0.1, 0.2, 0.3], steps=1, batch=8, cpus=1, out=folder("mean"))
    assert one.config["options"]["mean"] == "0.1,0.2,0.3"
    for argument, value, why in (("tokens", 2.5, "tokens must be a whole number"), ("temperature", "1", "temperature must be a number"),
                                 ("top_k", 0.5, "top_k must be a whole number"), ("stop", 1, "stop must be a text"),
                                 ("stop", "a\0", "stop must not contain the character NUL")):
        refused(lambda: stargrad.sample("1", one, **{argument: value}), why)
    refused(lambda: stargrad.sample("a\0b", one), "prompts must not contain the character NUL")


if __name__ == "__main__":
    main(globals())
