"""Mixtures of token files: each source has its share of every epoch, whatever its size, on any number of ranks, in a resumed run."""
import array
import json
import os
import re
import subprocess

from run import command, events, folder, losses, main, ranks, stargrad
from token_shards import T, TRAIN, drawn, put, trained


def constant(windows, token):
    return array.array("H", [token] * (windows * T + 1))


def sources(name="sources"):
    """A with 30 and B with 10 windows of training, 8 and 8 of test."""
    return [put(f"{name}-{letter}", {"train.bin": constant(n, token), "val.bin": constant(8, token)}) for letter, n, token in (("a", 30, 1), ("b", 10, 2))]


def test_printed():
    a, b = sources()
    said = stargrad(*TRAIN, "--data", f"tokens:{a}*7,{b}*3,{T},16", "--print")
    assert re.search(r"sources +\S+-a: weight 0.7, 30 training samples, of which an epoch has 28; 8 test samples\n"
                     r" +\S+-b: weight 0.3, 10 training samples, of which an epoch has 12 with repetitions; 3 test samples\n", said), said
    assert "40 training and 11 test samples" in said
    assert "\nsources " not in stargrad(*TRAIN, "--data", f"tokens:{a},{T},16", "--print")


def test_ranks_and_resume():
    """One rank, two ranks, and a run that is resumed in its second epoch on two ranks have the same losses."""
    a, b = (put(f"mixed-{i}", {"train.bin": drawn(n * T + 1, i), "val.bin": drawn(5 * T + 1, i + 5)}) for i, n in ((1, 30), (2, 10)))
    data, out = f"tokens:{a}*0.6,{b}*0.4,{T}", folder("mixed-resumed")
    wanted = trained(data, "--epochs", 3)
    assert len(wanted[0]) == 30
    assert trained(data, "--epochs", 3, start=lambda *words: ranks(2, *words)) == wanted
    stargrad(*TRAIN, "--data", data, "--epochs", 3, "--steps", 14, "--out", out)
    ranks(2, "train", "--resume", "--steps", 30, "--out", out)
    assert (losses(out), events(out, "epoch")[-1]["test_loss"]) == wanted
    other = trained(f"tokens:{a}*0.5,{b}*0.5,{T}", "--epochs", 3)
    assert other[0] != wanted[0]
    again = folder("mixed-again")
    stargrad(*TRAIN, "--data", data, "--steps", 5, "--out", again)
    said = stargrad("train", "--resume", "--data", f"tokens:{a}*0.5,{b}*0.5,{T}", "--steps", 9, "--out", again, status=2)
    assert "so it cannot be continued with" in said and said.count("\n") == 1, said


def test_loss_of_each_source():
    """An evaluation states the loss of each source: that of eval on this source alone. Two ranks state the same."""
    a, b = (put(f"each-{i}", {"train.bin": drawn(20 * T + 1, i), "val.bin": drawn(n * T + 1, i + 5)}) for i, n in ((1, 37), (2, 12)))
    data, out = f"tokens:{a}*37,{b}*12,{T}", folder("each")
    stargrad(*TRAIN, "--data", data, "--epochs", 2, "--out", out)
    whole = json.loads(stargrad("eval", out, "--json"))
    assert [(s["name"], s["test_samples"]) for s in whole["sources"]] == [(a, 37), (b, 12)]
    found = [s["test_loss"] for s in whole["sources"]]
    assert json.loads(ranks(2, "eval", out, "--json")) == whole
    for source, loss in zip((a, b), found):
        alone = json.loads(stargrad("eval", out, "--json", "--data", f"tokens:{source},{T}"))
        assert abs(alone["test_loss"] - loss) < 1e-5 and "sources" not in alone, (alone, whole)
    assert found[0] != found[1] and abs((37 * found[0] + 12 * found[1]) / 49 - whole["test_loss"]) < 1e-6, whole
    last = events(out, "epoch")[-1]
    assert all(abs(x - y) < 1e-6 for x, y in zip(last["source_losses"], found)) and len(last["source_losses"]) == 2, last
    said = stargrad("eval", out).splitlines()
    assert said[1].startswith(f"  {a}: loss ") and said[1].endswith(", 37 samples") and said[2].startswith(f"  {b}: loss "), said


def test_single_source():
    """Both sources are one folder: its samples, and a test set of both."""
    a, _ = sources("single")
    said = stargrad(*TRAIN, "--data", f"tokens:{a}*1,{a}*1,{T},16", "--print")
    assert "60 training and 16 test samples" in said, said


def test_patterns():
    a, b = sources("patterns")
    said = stargrad(*TRAIN, "--data", f"tokens:{a}/{{train,val}}.bin*0.25,{b}/*.bin*0.75,{T},16", "--print")
    assert said.count("weight 0.25") == said.count("weight 0.75") == 1, said


def test_comma_in_name():
    """A folder whose name has a comma is no mixture."""
    root = put("with,comma", {"train.bin": drawn(200), "val.bin": drawn(50)})
    assert "12 training and 3 test samples" in stargrad(*TRAIN, "--data", f"tokens:{root},{T}", "--print")


def test_tokenizer():
    """A run finds the tokenizer beside the files of its first source, whether a folder or a pattern."""
    a, b = sources("tokenizer")
    with open(os.path.join(a, "tokenizer.json"), "w", encoding="utf-8") as f:
        f.write('{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []}}')
    for data in f"tokens:{a}*0.5,{b}*0.5,{T},16", f"tokens:{a}/*.bin,{T},16":
        out = folder("with-tokenizer")
        stargrad(*TRAIN, "--data", data, "--steps", 1, "--out", out)
        done = subprocess.run(command("sample", out, "--prompt", "abc", "--tokens", 3), capture_output=True, text=True)
        assert "tokenizer" not in done.stderr or "a/tokenizer.json" in done.stderr, done.stderr


def test_refused():
    a, b = sources("refused-mixture")
    short = put("refused-short", {"train.bin": drawn(9), "val.bin": drawn(100)})
    for data, why, status in ((f"{a}*0.7,{b},{T}", f"{b} has no weight; give a mixture as tokens:A*0.7,B*0.3,T", 2),
                              (f"{a}*0.7,{b}*0,{T}", "*0: the weight must be a number above 0", 2),
                              (f"{a}*0.7,{b}*-1,{T}", "*-1: the weight must be a number above 0", 2),
                              (f"{a}*0.7,{b}*1e-9,{T},16", "its weight is 1.43e-09 of all, which is less than one of the 40 training samples", 2),
                              (f"{a}*0.7,{short}*0.3,{T},16", "its training files have no sample of 16 tokens; give shorter samples", 1),
                              (f"{a}*0.7,absent*0.3,{T}", "absent: No such file or directory", 1)):
        said = stargrad(*TRAIN, "--print", "--data", f"tokens:{data}", status=status)
        assert why in said and said.count("\n") == 1, (why, said)
    said = ranks(2, *TRAIN, "--steps", 1, "--data", f"tokens:{a}*0.7,{b}*0.3,{T},16", "--data-placement", "partition", "--out", folder("p"), status=2)
    assert "--data-placement partition is not supported for a mixture" in said, said


if __name__ == "__main__":
    main(globals())
