"""Ten training steps from given weights have PyTorch's losses, at any micro-batch. tests/reference/make.py made the files."""
import json
import os
import subprocess
import sys

from run import FOLDER, REFERENCE, events, folder, losses, main, stargrad

ROWS = os.path.join(os.environ.get("builddir", "build"), "tests/graphs/train/rows")
sys.path.insert(0, REFERENCE)
import weights  # noqa: E402


def train(model, data, init, micro_batch, lr, out):
    stargrad("train", "--model", model, "--data", data, "--init", init, "--batch", 16, "--micro-batch", micro_batch, "--steps", 10,
             "--no-shuffle", "--no-augment", "--lr", lr, "--checkpoint-every", 0, "--out", out)


def train_rows(model, data, init, micro_batch, lr, out):
    assert lr == 0.05
    subprocess.run([ROWS, data, init, str(micro_batch), out], check=True, stdout=subprocess.DEVNULL)


def check(case, model, data, micro_batch, within=(1e-4, 1e-3), train=train):
    with open(os.path.join(REFERENCE, "losses.json")) as f:
        wanted = json.load(f)[case]
    out, init = folder("reference"), os.path.join(REFERENCE, f"{model}.safetensors")
    if "weights" in wanted:
        init = os.path.join(FOLDER, f"{model}.safetensors")
        weights.write(init, {name: [int(size) for size in shape.split()] for name, shape in wanted["weights"].items()})
    train(model, f"{data}:{os.path.join(REFERENCE, data)}", init, micro_batch, wanted["lr"], out)
    got = losses(out)
    assert len(got) == 10
    for step, (a, b) in enumerate(zip(got, wanted["loss"])):
        assert abs(a - b) <= within[step >= 3] * b, f"{case}, micro-batch {micro_batch}, step {step + 1}: {a} is not PyTorch's {b}"
    end = events(out, "epoch")[-1]
    assert abs(end["test_loss"] - wanted["test_loss"][0]) <= 1e-3 * wanted["test_loss"][0], (end, wanted["test_loss"])
    assert end["test_top1"] == wanted["test_top1"][0]


def test_lenet():
    for micro_batch in (16, 8, 2, 1):
        check("lenet", "lenet", "idx", micro_batch)


def test_resnet20():
    for micro_batch in (16, 8, 2, 1):
        check("resnet20-gentle", "resnet20", "cifar10", micro_batch)


def test_large_resnets():
    check("resnet18", "resnet18", "cifar10", 4)
    check("resnet50", "resnet50", "cifar10", 8)


def test_whitened():
    for micro_batch in (16, 2):
        check("airbench94", "airbench94", "cifar10", micro_batch)


def test_transformer():
    for micro_batch in (16, 2):
        check("vit_tiny", "vit_tiny:layers=2,heads=2,width=48", "cifar10", micro_batch, within=(2e-5, 1e-4))


def test_rows():
    """Linear layers on rows, two that share their parameters, a value used twice."""
    for micro_batch in (16, 4, 1):
        check("rows", "rows", "cifar10", micro_batch, within=(1e-5, 1e-5), train=train_rows)


if __name__ == "__main__":
    main(globals())
