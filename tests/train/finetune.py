"""Fine-tuning: --init-skip, --freeze, --optimizer-of, --lr-of, --mean and --deviation."""
import json
import os
import shutil
import struct

from predict import told
from run import FOLDER, content, events, folder, losses, main, ranks, stargrad

WORDS = ("--batch", 64, "--deterministic", "--weight-decay", 0, "--momentum", 0, "--cpus", 1)


def tensors(path, name="model.safetensors"):
    data = content(path, name)
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: struct.unpack(f"<{(e - b) // 4}f", data[8 + size + b:8 + size + e])
            for name, (b, e) in ((n, t["data_offsets"]) for n, t in header.items()) if header[name]["dtype"] == "F32"}


def train(*words, count=1, **more):
    out = folder("out")
    said = (stargrad if count == 1 else lambda *a, **k: ranks(count, *a, **k))("train", *words, *WORDS, "--out", out, **more)
    return said, out


def base():
    said, out = train("--model", "convnet", "--data", "digits", "--steps", 4)
    return tensors(out), f"{out}/model.safetensors"


def test_freeze():
    for count in (1, 2):
        start = tensors(train("--model", "convnet", "--data", "digits", "--steps", 1, "--lr", 0)[1])
        said, out = train("--model", "convnet", "--data", "digits", "--steps", 3, "--freeze", "conv1,bn?,fc.bias", count=count)
        after = tensors(out)
        assert "frozen " in said
        for name, values in start.items():
            frozen = name.split(".")[0] in ("conv1", "bn1", "bn2", "bn3", "bn4") or name == "fc.bias"
            if "running" not in name:
                assert (after[name] == values) == frozen, name
    train("--model", "mlp", "--data", "digits", "--steps", 2, "--optimizer", "kfac", "--freeze", "fc1.bias")
    assert "leaves no parameter to train" in train("--model", "mlp", "--data", "digits", "--steps", 1, "--freeze", "*", status=2)[0]
    assert "'fd' matches no parameter" in train("--model", "mlp", "--data", "digits", "--steps", 1, "--freeze", "fc1,fd", status=2)[0]


def test_prefix_costs_nothing():
    said = stargrad("train", "--model", "convnet", "--data", "digits", "--print", "--no-fuse", "--freeze", "conv1,bn1,conv2,bn2")
    assert "conv3 backward-weight" in said and "fc backward-weight" in said
    assert "conv2 backward" not in said and "conv3 backward-data" not in said and "conv1.weight update" not in said


def test_rates():
    """Without momentum and decay a step is the rate times the gradient: of the first step it can be compared."""
    start = tensors(train("--model", "mlp", "--data", "digits", "--steps", 1, "--lr", 0)[1])
    once = tensors(train("--model", "mlp", "--data", "digits", "--steps", 1, "--lr", 0.01)[1])
    name = next(n for n in start if n.endswith("weight"))
    layer = name.rsplit(".", 1)[0]
    four = tensors(train("--model", "mlp", "--data", "digits", "--steps", 1, "--lr", 0.01, "--lr-of", f"{layer}=4")[1])
    for n, values in start.items():
        for a, b, c in zip(values, once[n], four[n]):
            assert abs((c - a) - (4 if n.startswith(layer) else 1) * (b - a)) < 1e-6, n
    for wrong in ("fc1", "fc1=", "fc1=0", "fc1=-1", "fc1=x", "=2,fc1"):
        assert "--lr-of" in train("--model", "mlp", "--data", "digits", "--steps", 1, "--lr-of", wrong, status=2)[0]


def test_optimizer_of():
    """Where all parameters have another optimizer it is as if that were asked for; others keep what theirs keeps, and go on so."""
    run = ("--model", "mlp", "--data", "digits", "--steps", 6, "--lr", 0.01)
    adamw = tensors(train(*run, "--optimizer", "adamw")[1])
    assert tensors(train(*run, "--optimizer", "muon", "--optimizer-of", "*=adamw")[1]) == adamw
    for words in (("normuon", "--optimizer-of", "*=adamw"), ("adamw", "--beta1", 0.9, "--beta2", 0.999)):
        assert tensors(train(*run, "--optimizer", *words)[1]) == adamw, f"{words}: each optimizer has its own defaults"
    some = (*run, "--optimizer", "muon", "--optimizer-of", "*.bias=adamw,fc2=sgd", "--checkpoint-every", 3)
    said, out = train(*some)
    assert "optimizer  for some parameters: *.bias=adamw,fc2=sgd" in said
    kept = [n.split(".", 2)[1:] for n in tensors(out, "checkpoint-6.safetensors") if n.startswith("optimizer.")]
    assert {state for state, of in kept if of.endswith(".bias")} == {"exp_avg", "exp_avg_sq"}
    assert {state for state, of in kept if of.endswith(".weight")} == {"momentum"}
    _, again = train(*some, "--steps", 3)
    stargrad("train", *some, *WORDS, "--out", again, "--resume")
    assert tensors(again) == tensors(out)
    for wrong, says in (("fc1", "--optimizer-of"), ("x=sgd", "'x=sgd'"), ("fc1=kfac", "all layers or none"), ("fc1=", "unknown optimizer ''"),
                        ("fc1=sdg", "did you mean 'sgd'")):
        assert says in train(*run, "--optimizer-of", wrong, status=2)[0], wrong


def test_init_skip():
    start, weights = base()
    keep = folder("keep") + ".safetensors"
    with open(keep, "wb") as f:
        f.write(content(weights.rsplit("/", 1)[0]))
    data = "synthetic:8x8x1,4,256"
    words = ("--model", "convnet", "--data", data, "--init", keep, "--steps", 1, "--lr", 0)
    assert "fc.weight has shape (10,64), but the network requires (4,64); train with --init-skip to initialise it randomly instead" in train(*words, status=1)[0]
    said, out = train(*words, "--init-skip", "fc")
    assert "random: fc.weight, fc.bias" in said
    after = tensors(out)
    assert len(after["fc.bias"]) == 4 and all(after[n] == start[n] for n in start if "fc" not in n and "running" not in n)
    assert "--init-skip" in train("--model", "convnet", "--data", data, "--init-skip", "fc", "--steps", 1, status=2)[0]


def test_onnx_head():
    """The head of a file's network for other classes begins anew without other weights."""
    start, weights = base()
    path = os.path.join(FOLDER, "net.onnx")
    stargrad("export", os.path.dirname(weights), path)
    words = ("--model", f"onnx:{path}", "--data", "synthetic:8x8x1,4,256", "--steps", 1, "--lr", 0)
    assert "train with --init-skip" in train(*words, status=1)[0]
    said, out = train(*words, "--init-skip", "fc")
    assert f"{path}: " in said and "random: fc.weight, fc.bias" in said, said
    after = tensors(out)
    assert len(after["fc.bias"]) == 4 and all(after[n] == start[n] for n in start if "fc" not in n and "running" not in n)
    assert json.loads(stargrad("eval", out, "--json"))["test_top1"] <= 1


def test_own_weights():
    """What a run leaves out of others' weights is in its own: eval, predict and export take all of that."""
    start, weights = base()
    keep = folder("keep") + ".safetensors"
    with open(keep, "wb") as f:
        f.write(content(weights.rsplit("/", 1)[0]))
    said, out = train("--model", "convnet", "--data", "digits", "--init", keep, "--init-skip", "fc,conv1", "--steps", 9)
    accuracy = json.loads(stargrad("eval", out, "--json"))["test_top1"]
    assert abs(accuracy - events(out, "epoch")[-1]["test_top1"]) < 1e-6, (accuracy, events(out, "epoch"))
    lines = [json.loads(line) for line in stargrad("predict", out, "--json").splitlines()]
    assert abs(sum(line["label"] == line["classes"][0]["class"] for line in lines) / len(lines) - accuracy) < 1e-6
    stargrad("export", out, f"{out}/net.onnx")
    assert json.loads(stargrad("eval", "--model", f"onnx:{out}/net.onnx", "--data", "digits", "--json"))["test_top1"] == accuracy


def test_mean_and_deviation():
    words = ("--model", "mlp", "--data", "digits", "--steps", 2)
    out = train(*words)[1]
    plain, config = losses(out), json.load(open(f"{out}/config.json"))
    same = train(*words, "--mean", repr(config["mean"][0]), "--deviation", repr(config["deviation"][0]))[1]
    assert losses(same) == plain
    other = train(*words, "--mean", 0, "--deviation", 1)[1]
    assert losses(other) != plain and json.load(open(f"{other}/config.json"))["deviation"] == [1]
    warned = told("train", *words, "--mean", 120, "--print")[1]
    assert "--mean 120: pixels from 0 to 16 are divided by 16 first" in warned, warned
    for wrong in (("--mean", "1,2"), ("--deviation", "0")):
        assert "must have 1 number" in train(*words, *wrong, status=2)[0], wrong
    for wrong in (("--mean", "x"), ("--mean", "1,"), ("--deviation", "nan")):
        assert "is not up to 8 numbers separated by commas" in train(*words, *wrong, status=2)[0], wrong


def test_shards():
    """Weights that were exported to several files are read by their index, and are the same. The next export leaves no file of them."""
    _, weights = base()
    path = folder("shards")
    os.makedirs(path)
    file = os.path.join(path, "model.safetensors")
    stargrad("export", os.path.dirname(weights), file, "--shard-size", "20K")
    files = sorted(os.listdir(path))
    assert files[-1] == "model.safetensors.index.json" and files[0] == f"model-00001-of-0000{len(files) - 1}.safetensors", files
    for name in files[:-1]:
        assert os.path.getsize(os.path.join(path, name)) < 22000 or len(tensors(path, name)) == 1, name
    results = [json.loads(stargrad("eval", "--weights", name, "--model", "convnet", "--data", "digits", "--json"))["test_loss"]
               for name in (weights, f"{file}.index.json")]
    assert results[0] == results[1]
    other = os.path.join(path, "model-card.safetensors")
    shutil.copy(weights, other)
    with open(f"{file}.index.json") as index:
        listed = json.load(index)
    listed["weight_map"]["of/others"] = listed["weight_map"]["of others"] = "../shards/model-card.safetensors"
    other_index = {**listed, "metadata": {"total_size": 1}}
    for content in other_index, listed:
        with open(f"{file}.index.json", "w") as index:
            json.dump(content, index)
        if content is other_index:
            refused = stargrad("export", os.path.dirname(weights), file, status=2)
            assert "Stargrad did not write this index" in refused and sorted(os.listdir(path)) == sorted([*files, "model-card.safetensors"])
    stargrad("export", os.path.dirname(weights), file, "--shard-size", "100K")
    fewer = sorted(os.listdir(path))
    assert 4 < len(fewer) < len(files) + 1 and fewer[0] == f"model-00001-of-0000{len(fewer) - 2}.safetensors", fewer
    stargrad("export", os.path.dirname(weights), file, "--shard-size", "1G")
    assert sorted(os.listdir(path)) == ["model-card.safetensors", "model.safetensors"]
    assert tensors(path) == tensors(os.path.dirname(weights))
    assert "is not a number of bytes" in stargrad("export", os.path.dirname(weights), file, "--shard-size", "1X", status=2)
    assert "an ONNX network is one file" in stargrad("export", os.path.dirname(weights), "a.onnx", "--shard-size", "1G", status=2)


if __name__ == "__main__":
    main(globals())
