"""The law of limits: a run with --memory and --spill, with the least memory that it accepts, has the weights and losses of a run
without a limit, bit by bit, whatever its other options are."""
import os
import re

import law
from law import Broken, Refused
from run import REFERENCE, content, folder, losses

TEXT = os.path.join(REFERENCE, "text.txt")
NETWORKS = (
    ("--model", "resnet20", "--data", "synthetic:32x32x3,10,512", "--batch", 128),
    ("--model", "resnet18:small=1", "--data", "synthetic:32x32x3,10,256", "--batch", 64),
    ("--model", "vgg11:width=16,hidden=64", "--data", "synthetic:32x32x3,10,512", "--batch", 64),
    ("--model", "googlenet", "--data", "synthetic:64x64x3,10,96", "--batch", 16),
    ("--model", "densenet121", "--data", "synthetic:64x64x3,10,64", "--batch", 16),
    ("--model", "mobilenet_v2", "--data", "synthetic:64x64x3,10,64", "--batch", 16),
    ("--model", "efficientnet_b0", "--data", "synthetic:64x64x3,10,64", "--batch", 16),
    ("--model", "vit:patch=4,layers=2,heads=2,width=64", "--data", "synthetic:32x32x3,10,512", "--batch", 128),
    ("--model", "gpt:layers=3,heads=4,width=128,context=128,vocabulary=2048", "--data", f"text:{TEXT},64", "--batch", 32,
     "--micro-batch", 4),
    ("--model", "llama:layers=2,heads=4,kv_heads=2,width=128,hidden=256,context=128,vocabulary=2048", "--data", f"text:{TEXT},64",
     "--batch", 32, "--micro-batch", 4),
)
OPTIONS = (
    (0.3, ("--optimizer", "lamb"), ("--optimizer", "muon"), ("--optimizer", "adamw"),
     ("--optimizer", "kfac", "--kfac-factor-every", 2, "--kfac-eigen-every", 2)),
    (0.3, ("--window", 1), ("--window", 4)),
    (0.3, ("--cpus", 1), ("--cpus", 2), ("--cpus", 3)),
    (0.2, ("--micro-batch", 4), ("--micro-batch", 8)),
    (0.2, ("--recompute",)),
    (0.2, ("--precision", "bf16")),
    (0.2, ("--ema", 0.9), ("--lookahead", 2)),
    (0.2, ("--clip-norm", 1), ("--freeze", "*.bias"), ("--label-smoothing", 0.1)),
    (0.2, ("--bn-group", 16), ("--bn-group", "micro")),
    (0.2, ("--histograms", 2, "--tensorboard")),
    (0.3, ("--evaluate-every", 2), ("--evaluate-last",)),
)


def check(draw):
    words = ["train", *draw.choice(NETWORKS), "--steps", 4, "--deterministic", "--gpus", 0, "--checkpoint-every", 0, *draw.options(OPTIONS)]
    free, limited, spill = folder("free"), folder("limited"), folder("spill")
    os.makedirs(spill, exist_ok=True)
    draw.run([*words, "--out", free], refusable=True)
    try:
        draw.run([*words, "--out", limited, "--memory", "1M", "--spill", spill, "--print"])
        raise Refused("the run fits into 1 MiB")
    except Broken as refused:
        least = re.search(r"give --memory (\d+)M", str(refused))
    if not least:
        raise Broken("the program does not name the least memory")
    draw.run([*words, "--out", limited, "--memory", f"{least[1]}M", "--spill", spill])
    if losses(free) != losses(limited) or content(free) != content(limited):
        raise Broken(f"other bits: losses {losses(free)} and {losses(limited)}")


@law.seeds(4, 60)
def test_limits(seed):
    law.holds("limits", check, seed)


if __name__ == "__main__":
    law.main(globals())
