"""The law of files: the same content in every legal encoding gives the same samples. The test draws a content and writes it
twice: plainly, and in a random encoding. Two training steps with learning rate 0 and an evaluation must give the same losses,
mean, standard deviation and number of samples for both. The files are written with Python's standard library only
(writers.py)."""
import json
import os
import re
import shutil

import law
import writers
from law import Broken
from run import events, folder


def told(draw, words, data):
    """What a training says of DATA: the line that counts samples, losses, mean and deviation."""
    out = folder("out")
    said = draw.run(["train", *words, "--data", data, "--steps", 2, "--lr", 0, "--no-shuffle", "--no-augment", "--cpus", 1, "--micro-batch", 4,
                     "--batch", 8, "--out", out])
    counts = re.findall(r"\d+ (?:images|samples|patches|rows|texts|windows)[^\n]*", said)
    config = json.load(open(f"{out}/config.json"))
    epoch = events(out, "epoch")[-1]
    counts = [re.sub(r"tokens of \d+ bits", "tokens", c) for c in counts if "/s" not in c]
    return {"counts": counts[:2], "losses": [e["loss"] for e in events(out)], "mean": config["mean"],
            "deviation": config["deviation"], "classes": config["class_names"],
            **{k: v for k, v in epoch.items() if k.startswith("test_")}}


def weights(draw, words, data):
    """What an evaluation says of weights: DATA is the file of them, or an ONNX network."""
    how = ["--model", f"onnx:{data}"] if data.endswith(".onnx") else ["--weights", data, "--model", "mlp"]
    return json.loads(draw.run(["eval", *how, "--data", "digits", "--cpus", 1, "--json"]))["test_loss"]


def check(draw):
    name = draw.choice(writers.CONTENTS)
    kind = writers.CONTENTS[name]
    root = folder("data")
    os.makedirs(f"{root}/plain"), os.makedirs(f"{root}/other")
    content = kind.draw(draw)
    tell = weights if kind.of_weights else told
    plain = kind.write(draw, content, f"{root}/plain", False)
    other = kind.write(draw, content, f"{root}/other", True)
    one, two = tell(draw, kind.words, plain), tell(draw, kind.words, other)
    draw.commands.append(f"{name}: {kind.how}")
    shutil.rmtree(root)
    if one != two:
        raise Broken(f"{name} as {kind.how}: {two}, plainly {one}")


@law.seeds(10, 600)
def test_files(seed):
    law.holds("files", check, seed)


if __name__ == "__main__":
    law.main(globals())
