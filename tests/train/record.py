"""The options of the record's recipe (docs/performance/record.md): whitening filters, --lookahead, --freeze-after,
--weight-decay-of, --tta and --evaluate-last: their values, and the same bits on several ranks and after --resume."""
import json
import os
import shutil
import struct

from run import FOLDER, SOURCE, Skip, content, events, folder, long, losses, main, ranks, stargrad

RUN = ("train", "--model", "convnet", "--data", "digits", "--batch", 64, "--bn-group", "global", "--deterministic")
RECORD = ("train", "--config", os.path.join(SOURCE, "examples/airbench94.json"), "--data", "synthetic:16x16x3,4,640", "--batch", 64,
          "--bn-group", "global", "--deterministic", "--epochs", 3, "--freeze-after", "whiten.bias=1.5")


def tensors(path, name="model.safetensors"):
    file = content(path, name)
    length = struct.unpack("<Q", file[:8])[0]
    header = json.loads(file[8:8 + length])
    header.pop("__metadata__", None)
    data = memoryview(file)[8 + length:]      # a slice of bytes would be a copy, for each tensor
    return {key: struct.unpack(f"<{(t['data_offsets'][1] - t['data_offsets'][0]) // 4}f", data[slice(*t["data_offsets"])])
            for key, t in header.items() if t["dtype"] == "F32"}


def test_lookahead():
    """From one checkpoint to the next the optimizer makes a plain step; the slow weights follow of what the others were before they
    went back, which a run that ends there without slow weights tells."""
    out, plain = folder("lookahead"), folder("plain")
    words = (*RUN, "--lr", 0.02, "--momentum", 0, "--no-shuffle", "--no-augment", "--checkpoint-every", "1s", "--keep", 9)
    stargrad(*words, "--steps", 5, "--lookahead", "2:.8:1", "--out", out)
    stargrad(*words, "--steps", 2, "--out", plain)
    assert losses(out)[:2] == losses(plain)
    start = tensors(out, "checkpoint-1.safetensors")
    fast, back = tensors(plain), tensors(out, "checkpoint-2.safetensors")
    keep = 0.8 * 2 / 5
    for name, values in fast.items():
        slow = start[f"optimizer.lookahead.{name}"]
        assert all(abs(b - (keep * s + (1 - keep) * f)) <= 1e-6 * (1 + abs(b)) for b, s, f in zip(back[name], slow, values)), name
        assert back[name] == back[f"optimizer.lookahead.{name}"], name
        if not name.startswith("optimizer"):
            assert slow != values or name.endswith("bias"), name
    four, end = tensors(out, "checkpoint-4.safetensors"), tensors(out)
    for name, values in end.items():
        assert values == four[f"optimizer.lookahead.{name}"], name      # the fifth step is given up: the run ends with the slow weights
    for wrong in ("0", "x", "5:1", "5:-.5", "5:.5:", "5:.5:-1", "-5", "5:nan"):
        assert "--lookahead" in stargrad(*RUN, "--lookahead", wrong, "--out", folder("wrong"), status=2), wrong
    assert "requires --strategy sync, not ps" in stargrad(*RUN, "--lookahead", 5, "--strategy", "ps", "--out", folder("ps"), status=2)


def test_texts_of_older_versions():
    """Older versions wrote --lookahead and --mean as they were given: such a run is resumed, and nothing of it has changed."""
    out = folder("older")
    stargrad(*RUN, "--steps", 3, "--lookahead", "2:.8", "--mean", ".5", "--trace", "1-2", "--out", out)
    config = json.load(open(f"{out}/config.json"))
    assert config["options"]["lookahead"] == "2:0.8" and config["options"]["mean"] == "0.5"
    config["identity"]["optimizer"] = config["identity"]["optimizer"].replace("2:0.8", "2:.8")
    config["options"].update(lookahead="2:.8", mean=".50")
    json.dump(config, open(f"{out}/config.json", "w"))
    stargrad(*RUN, "--resume", "--steps", 5, "--out", out)
    again = json.load(open(f"{out}/config.json"))["continued"][0]
    assert set(again["options"]) == {"steps"}, again
    assert "cannot be continued" in stargrad(*RUN, "--resume", "--steps", 6, "--lookahead", "2:.7", "--out", out, status=2)


def test_freeze_after():
    out = folder("frozen")
    stargrad(*RUN, "--steps", 6, "--checkpoint-every", "1s", "--keep", 9, "--freeze-after", "conv1=.1,fc.bias=.2", "--out", out)
    at = [None] + [tensors(out, f"checkpoint-{step}.safetensors") for step in range(1, 7)]     # an epoch is 22 steps
    for name, until in (("conv1.weight", 2), ("fc.bias", 4), ("fc.weight", 9)):
        for step in range(1, 6):
            assert (at[step][name] == at[step + 1][name]) == (step >= until), (name, step)
    for wrong in ("conv1", "conv1=0", "conv1=x"):
        assert "--freeze-after" in stargrad(*RUN, "--freeze-after", wrong, "--out", folder("wrong"), status=2), wrong
    assert "leaves no parameter to train" in stargrad(*RUN, "--freeze-after", "*=1", "--out", folder("wrong"), status=2)
    assert "'cnv1=1' matches no parameter" in stargrad(*RUN, "--freeze-after", "cnv1=1", "--out", folder("wrong"), status=2)
    assert "--freeze-after cannot be combined with --optimizer kfac" in stargrad(*RUN, "--freeze-after", "conv1=1", "--optimizer", "kfac", "--out", folder("wrong"), status=2)


def test_weight_decay_of():
    """A step without momentum takes the rate times decay times the weight besides what the gradient takes."""
    words = ("train", "--model", "mlp", "--data", "digits", "--steps", 1, "--momentum", 0, "--lr", 0.1, "--cpus", 1, "--deterministic")
    start, none, some = folder("start"), folder("none"), folder("some")
    stargrad(*words[:-4], 0, *words[-3:], "--out", start)
    stargrad(*words, "--weight-decay", 0, "--out", none)
    stargrad(*words, "--weight-decay", 0.1, "--weight-decay-of", "*.bias=0,fc2=3", "--out", some)
    start, none, some = tensors(start), tensors(none), tensors(some)
    for name, values in start.items():
        times = 0 if name.endswith("bias") else 3 if name.startswith("fc2") else 1
        for w, a, b in zip(values, none[name], some[name]):
            assert abs((a - b) - 0.1 * 0.1 * times * w) < 1e-6, name
    for wrong in ("fc1", "fc1=", "fc1=,fc2=1", "fc1=-1", "fc1= 1", "fc1=nan"):
        assert "--weight-decay-of" in stargrad(*words, "--weight-decay-of", wrong, "--out", folder("wrong"), status=2), wrong


def resumed(*steps):
    whole = folder("whole")
    stargrad(*RECORD, "--checkpoint-every", "1s", "--keep", 40, "--out", whole)
    for step in steps:
        cut = folder("cut")
        shutil.copytree(whole, cut)
        for name in ["model.safetensors"] + [f"checkpoint-{later}.safetensors" for later in range(step + 1, 31)]:
            os.remove(os.path.join(cut, name))
        stargrad(*RECORD, "--checkpoint-every", "1s", "--keep", 40, "--out", cut, "--resume")
        assert losses(whole) == losses(cut) and content(whole) == content(cut), step
        assert [(e["step"], e["test_loss"]) for e in events(whole, "epoch")] == [(e["step"], e["test_loss"]) for e in events(cut, "epoch")]


def test_resumed():
    resumed(15)


@long
def test_resumed_at_other_steps():
    """Before parameters freeze, between two steps back of the slow weights, at the last step."""
    resumed(7, 21, 30)


def test_whitening():
    """What the first layer begins with, by NumPy, of the images as the run normalises them."""
    try:
        import numpy
    except ImportError:
        raise Skip("Python has no numpy")
    draw = numpy.random.default_rng(3)
    x = draw.integers(0, 256, (160, 12, 12, 3)).astype(float)
    x = (x + numpy.roll(x, 1, 1) + numpy.roll(x, 1, 2)).clip(0, 700) / 700 * 255
    x, y = x.astype(numpy.uint8), numpy.arange(160) % 4
    path, out = os.path.join(FOLDER, "images.npz"), folder("whitened")
    numpy.savez(path, x_train=x[:128], y_train=y[:128], x_test=x[128:], y_test=y[128:])
    stargrad("train", "--model", "airbench94", "--data", f"npy:{path}", "--batch", 64, "--steps", 1, "--lr", 0, "--out", out)
    config = json.load(open(os.path.join(out, "config.json")))
    images = (x[:128] / 255 - numpy.array(config["mean"])) / numpy.array(config["deviation"])
    patches = numpy.lib.stride_tricks.sliding_window_view(images, (2, 2), axis=(1, 2)).reshape(-1, 12)      # C, R, S as in files
    values, vectors = numpy.linalg.eigh(patches.T @ patches / len(patches))
    wanted = (vectors / numpy.sqrt(values + 5e-4)).T[::-1]
    got = numpy.array(tensors(out)["whiten.weight"]).reshape(24, 12)
    for i in range(12):
        sign = numpy.sign(wanted[i][abs(wanted[i]).argmax()])
        assert numpy.allclose(got[i], sign * wanted[i], atol=1e-3 * abs(wanted[i]).max()) and (got[12 + i] == -got[i]).all(), i


def test_resnet18():
    """The recipe of a ResNet-18 for small images: it trains, and evaluates over views."""
    recipe, out = os.path.join(SOURCE, "examples/resnet18.json"), folder("resnet18")
    stargrad("train", "--config", recipe, "--data", "synthetic:16x16x3,10,64", "--batch", 16, "--steps", 2, "--out", out)
    assert len(losses(out)) == 2 and events(out, "epoch")[-1]["tta"] == "flip,translate"
    assert len(tensors(out)["conv1.weight"]) == 64 * 3 * 3 * 3
    for model, why in (("resnet18:small=2", "must be a whole number from 0 to 1"), ("resnet20:small=1", "this model has no options")):
        assert why in stargrad("train", "--model", model, "--data", "digits", "--print", status=2), model


def test_ranks():
    one, two = folder("one"), folder("two")
    stargrad(*RECORD, "--out", one)
    ranks(2, *RECORD, "--out", two)
    assert losses(one) == losses(two) and content(one) == content(two)
    assert events(one, "epoch") and len(events(one, "epoch")) == 1
    ends = [events(out, "epoch")[-1] for out in (one, two)]
    assert ends[0]["tta"] == "flip,translate" and ends[0]["test_top1"] == ends[1]["test_top1"]
    assert ends[0]["test_loss"] == ends[1]["test_loss"]
    said = json.loads(stargrad("eval", one, "--tta", "flip,translate", "--json"))
    assert abs(said["test_loss"] - ends[0]["test_loss"]) < 1e-5 and said["test_top1"] == ends[0]["test_top1"]
    plain = json.loads(stargrad("eval", one, "--json"))
    assert plain["test_loss"] != said["test_loss"]


if __name__ == "__main__":
    main(globals())
