"""Unbalanced classes: class weights, the focal loss and the scores of classes have the numbers of PyTorch and scikit-learn
(tests/reference/classes.py), on ranks, too; the balanced sampler; --best and --patience by any metric."""
import json
import os
import random
import re
import subprocess

from run import FOLDER, REFERENCE, command, content, events, folder, losses, main, ranks, stargrad

IDX = ("--model", "lenet", "--data", f"idx:{REFERENCE}/idx", "--init", f"{REFERENCE}/lenet.safetensors", "--batch", 16, "--steps", 10,
       "--no-shuffle", "--no-augment", "--lr", 0.05, "--checkpoint-every", 0)
with open(os.path.join(REFERENCE, "classes.json")) as file:
    WANTED = json.load(file)
WEIGHTS = ",".join(map(str, WANTED["class_weights"]))
CASES = {"weights": ("--class-weights", WEIGHTS), "balanced": ("--class-weights", "balanced"),
         "smoothed": ("--class-weights", WEIGHTS, "--label-smoothing", 0.1),
         "focal": ("--class-weights", WEIGHTS, "--focal-gamma", 2), "focal-plain": ("--focal-gamma", 0.5)}


def near(a, b, within):
    return abs(a - b) <= within * abs(b)


def check(case, out):
    wanted, got = WANTED[case], losses(out)
    assert len(got) == 10 and all(near(a, b, 1e-4 if i < 3 else 1e-3) for i, (a, b) in enumerate(zip(got, wanted["loss"]))), (
        case, got, wanted["loss"])
    end, classes = events(out, "epoch")[-1], events(out, "classes")[-1]
    assert (classes["step"], classes["samples"]) == (end["step"], wanted["samples"]), classes
    for metric in ("macro_f1", "balanced_accuracy"):
        assert near(end[f"test_{metric}"], wanted[metric], 1e-6), (case, metric, end)
    for score in ("precision", "recall", "f1"):
        assert all(near(a, b, 1e-6) for a, b in zip(classes[score], wanted[score])), (case, classes, wanted)


def test_losses_and_scores_are_those_of_pytorch_and_scikit_learn():
    for case, words in CASES.items():
        out = folder("pytorch")
        stargrad("train", *IDX, *words, "--cpus", 1, "--out", out)
        check(case, out)


def test_micro_batches_and_ranks():
    for case in ("weights", "smoothed"):
        for micro in (1, 4):
            out = folder("micro")
            stargrad("train", *IDX, *CASES[case], "--micro-batch", micro, "--out", out)
            check(case, out)
    out, two = folder("one"), folder("two")
    stargrad("train", *IDX, *CASES["balanced"], "--deterministic", "--out", out)
    ranks(2, "train", *IDX, *CASES["balanced"], "--deterministic", "--out", two)
    check("balanced", two)
    assert losses(out) == losses(two) and content(out) == content(two)


def table(name, sizes):
    """A table with as many lines of each class as SIZES has, in random order; the classes can be told apart."""
    lines = [f"{c + i % 7 / 10},{c - i % 5 / 10},{'abcdefg'[c]}" for c, size in enumerate(sizes) for i in range(size)]
    random.Random(1).shuffle(lines)
    path = os.path.join(FOLDER, f"{name}.csv")
    with open(path, "w") as csv:
        csv.write("x,y,class\n" + "\n".join(lines) + "\n")
    return f"csv:{path}"


def test_balanced_sampler():
    """The same run on one rank, on two and after a resume; another one without it."""
    data = table("rare", (300, 40, 20))
    words = ("train", "--model", "mlp", "--data", data, "--batch", 16, "--epochs", 2, "--deterministic", "--lr", 0.05)
    out, two, halves, plain = (folder(name) for name in ("balanced", "balanced2", "halves", "plain"))
    stargrad(*words, "--sampler", "balanced", "--out", out)
    ranks(2, *words, "--sampler", "balanced", "--out", two)
    stargrad(*words, "--sampler", "balanced", "--out", halves, "--epochs", 1)
    stargrad("train", "--out", halves, "--resume", "--epochs", 2)
    stargrad(*words, "--out", plain)
    assert losses(out) == losses(two) and content(out) == content(two)
    assert losses(out) == losses(halves) and content(out) == content(halves)
    assert len(losses(out)) == len(losses(plain)) and losses(out) != losses(plain)
    for more, why in ((("--no-shuffle",), "--no-shuffle"), (("--data-placement", "partition"), "--data-placement partition")):
        assert why in stargrad(*words, "--sampler", "balanced", *more, "--out", folder("no"), status=2)
    assert "shuffle or balanced" in stargrad(*words, "--sampler", "fair", "--out", folder("no"), status=2)


def test_wrong_weights():
    words = ("train", *IDX, "--out", folder("no"))
    for text in ("1,2", "1,2,3,4,5,6,7,8,9,10,11", "1,1,1,1,1,1,1,1,1,0", "1,1,1,1,1,1,1,1,1,-1", "fair", "1,1,1,1,1,1,1,1,1,", ""):
        if text:
            assert f"--class-weights '{text}' must have 10 numbers above 0" in stargrad(*words, "--class-weights", text, status=2), text
    said = stargrad(*words, "--focal-gamma", 2, "--label-smoothing", 0.1, status=2)
    assert "the focal loss requires one class per sample" in said, said


def test_features_together():
    """Weights with test-time augmentation, a moving average, bf16, evaluation, prediction and export."""
    out = folder("together")
    stargrad("train", "--model", "convnet", "--data", "digits", "--epochs", 1, "--class-weights", "balanced", "--sampler", "balanced",
             "--focal-gamma", 1, "--ema", 0.9, "--tta", "translate", "--out", out)
    end = events(out, "epoch")[-1]
    told = json.loads(stargrad("eval", out, "--tta", "translate", "--json"))
    assert near(told["test_macro_f1"], end["test_macro_f1"], 1e-6) and near(told["test_loss"], end["test_loss"], 1e-5), (told, end)
    assert near(told["test_balanced_accuracy"], end["test_balanced_accuracy"], 1e-6), (told, end)
    details = json.loads(stargrad("eval", out, "--details", "--json"))
    f1 = [c["f1"] for c in details["classes"]]
    assert near(sum(f1) / len(f1), details["test_macro_f1"], 1e-6), details
    stargrad("export", out, os.path.join(FOLDER, "together.onnx"))
    assert stargrad("predict", out).count("\n") == sum(c["samples"] for c in details["classes"]) + 1


def test_mixed_classes():
    out = folder("mixed")
    stargrad("train", "--model", "convnet", "--data", "digits", "--epochs", 1, "--class-weights", "1,2,1,2,1,2,1,2,1,2", "--augment", "mixup:1",
             "--out", out)
    assert events(out, "epoch")[-1]["test_macro_f1"] > 0


WORDS = ("--model", "convnet", "--data", "digits", "--batch", 64, "--lr", 0.4, "--deterministic", "--cpus", 1)


def test_best_of_any_metric():
    for metric, key, better in (("macro_f1", "test_macro_f1", max), ("loss", "test_loss", min), ("accuracy", "test_top1", max)):
        out = folder("best")
        said = json.loads(stargrad("train", *WORDS, "--epochs", 4, "--best", metric, "--out", out, "--json"))
        values = [e[key] for e in events(out, "epoch")]
        assert said[key] == better(values) and said["best_step"] == events(out, "epoch")[values.index(better(values))]["step"], (said, values)
        told = json.loads(stargrad("eval", out, "--details", "--json"))
        assert near(told[key], better(values), 1e-5), (told, values)
        for own, of_eval in zip(said["classes"], told["classes"], strict=True):
            assert own.keys() == of_eval.keys() >= {"precision", "recall", "f1"} and own["name"] == of_eval["name"], (own, of_eval)
            assert all(near(own[score], of_eval[score], 1e-6) for score in own if score != "name"), (own, of_eval)
    assert "it has loss, top1, macro_f1, balanced_accuracy, accuracy" in stargrad("train", *WORDS, "--best", "f1", "--out", folder("no"), status=2)


def test_min_delta():
    out = folder("delta")
    said = stargrad("train", *WORDS, "--epochs", 30, "--best", "loss", "--patience", 2, "--min-delta", 100, "--out", out)
    assert "without an improvement of the loss of more than 100" in said and len(events(out, "epoch")) == 3, said
    lines = [e["test_loss"] for e in events(out, "epoch")]
    told = json.loads(stargrad("eval", out, "--json"))
    assert near(told["test_loss"], min(lines), 1e-5), (told, lines)


def test_lines_of_epochs_and_within_them():
    out = folder("lines")
    env = {"STARGRAD_PROGRESS_SECONDS": "1e-9"}
    said = stargrad("train", *WORDS, "--epochs", 1, "--best", "macro_f1", "--out", out, env=env)
    end = events(out, "epoch")[-1]
    line = next(line for line in said.splitlines() if line.startswith("epoch 1/1"))
    assert f"  top-1 {100 * end['train_top1']:.2f} %  test loss " in line and f"  macro F1 {100 * end['test_macro_f1']:.2f} %  " in line, line
    assert re.search(r"^step 2/\d+  loss \S+  \d+:\d\d left  \d+ images/s$", said, flags=re.M), said
    assert not re.search("^step", stargrad("train", *WORDS, "--epochs", 1, "--out", folder("plain")), flags=re.M)
    report = json.loads(stargrad("report", out, "--json"))
    assert report["main"] == "macro_f1" and report["epochs"][0]["train_top1"] == end["train_top1"], report
    assert report["classes"]["f1"] == events(out, "classes")[-1]["f1"], report["classes"]


def test_prediction_without_a_run():
    out, alone = folder("whole"), os.path.join(FOLDER, "alone.safetensors")
    stargrad("train", *WORDS, "--epochs", 1, "--out", out)
    os.link(f"{out}/model.safetensors", alone)
    words = ("--weights", alone, "--model", "convnet", "--data", "digits")
    told, wanted = stargrad("predict", *words).splitlines(), stargrad("predict", out).splitlines()
    assert [line.split(",")[:2] for line in told] == [line.split(",")[:2] for line in wanted]
    assert json.loads(stargrad("eval", *words, "--json"))["test_top1"] == events(out, "epoch")[-1]["test_top1"]
    for missing in ("--model", "--data", "--weights"):
        at = words.index(missing)
        assert f"{missing} " in stargrad("predict", *words[:at], *words[at + 2:], status=2)


def test_warnings_of_empty_classes():
    path = os.path.join(FOLDER, "one.csv")
    with open(path, "w") as csv:
        csv.write("x,y,class\n" + "1,2,a\n2,1,a\n" * 20)
    said = subprocess.run(command("train", "--model", "mlp", "--data", f"csv:{path}", "--batch", 8, "--steps", 1, "--out", folder("one")),
                          capture_output=True, text=True, check=False).stderr
    assert "all training samples have the same class" in said, said
    with open(path, "w") as csv:
        csv.write("x,y,class\n" + "2,1,b\n3,1,c\n" * 2 + "1,2,a\n" * 90)
    said = subprocess.run(command("train", "--model", "mlp", "--data", f"csv:{path}", "--batch", 8, "--steps", 1, "--no-shuffle",
                                  "--out", folder("some")), capture_output=True, text=True, check=True).stderr
    assert "2 of 3 classes have no test sample: b, c" in said, said


if __name__ == "__main__":
    main(globals())
