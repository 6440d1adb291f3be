"""Networks of torchvision: from given weights, evaluation has torchvision's logits, and ten training steps have its losses, at any
micro-batch (tests/reference/vision.py made the files)."""
import json
import math
import os
import sys

from run import FOLDER, REFERENCE, folder, losses, main, pytest, stargrad

sys.path.insert(0, REFERENCE)
import weights  # noqa: E402

if not pytest:
    main(())
with open(os.path.join(REFERENCE, "vision.json"), encoding="utf-8") as _file:
    NETWORKS = json.load(_file)
CLASSES = "airplane automobile bird cat deer dog frog horse ship truck".split()
DATA = f"cifar10:{os.path.join(REFERENCE, 'cifar10')}"


def written(name):
    """The weights of the network, as a file with torchvision's names and layouts."""
    path = os.path.join(FOLDER, f"vision-{name}.safetensors")
    weights.write(path, {tensor: [int(size) for size in shape.split()] for tensor, shape in NETWORKS[name]["weights"].items()}, True)
    return path


def close(what, got, exact, within):
    assert len(got) == len(exact), (what, got)
    for i, (a, b) in enumerate(zip(got, exact)):
        assert abs(a - b) <= within * max(1, abs(b)), f"{what}, number {i + 1}: {a} is not {b}, by {abs(a - b):.1e}"


def train(name, *more):
    how, out = NETWORKS[name], folder("vision")
    stargrad("train", "--model", how["model"], "--data", DATA, "--init", written(name), "--batch", how["batch"], "--lr", how["lr"],
             "--no-shuffle", "--no-augment", "--checkpoint-every", 0, "--out", out, *more)
    return out


def check_losses(name, *more):
    """Rounding errors may be three times those of PyTorch, because they depend on the processor, and on the algorithms of convolutions,
    which are the fastest ones in a measurement. They grow from step to step, so in the last five they may be ten times as large."""
    within, got, exact = max(2e-5, 3 * NETWORKS[name]["spread"]), losses(train(name, "--steps", 10, *more)), NETWORKS[name]["loss"]
    close(f"{name} {more}", got[:5], exact[:5], within)
    close(f"{name} {more}", got, exact, 10 * within)


@pytest.mark.parametrize("name", NETWORKS)
def test_logits(name):
    how, run = NETWORKS[name], train(name, "--steps", 1)
    said = stargrad("predict", run, "--weights", written(name), "--top", 10, "--json")
    rows = [json.loads(line)["classes"] for line in said.splitlines()[:how["images"]]]
    for row, exact in zip(rows, how["start"], strict=True):
        of_class = {each["class"]: math.log(each["probability"]) for each in row}
        close(name, [of_class[each] for each in CLASSES], exact, 1e-4)


@pytest.mark.parametrize("name", NETWORKS)
def test_losses(name):
    check_losses(name, "--micro-batch", 8)


if __name__ == "__main__":
    main(globals())
