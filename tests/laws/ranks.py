"""The law of ranks: valid options on 1, 2, 3 or 4 ranks, in step, give the losses and the weights of one rank: to the same bits with
--deterministic on 2 or 4 ranks that share the samples alone, and to rounding otherwise."""
import os

import law
from law import Broken, differ
from run import FOLDER, content, events, folder, losses
from split import tensors

NETWORKS = (
    (("--model", "mlp", "--data", "digits"), False),
    (("--model", "convnet", "--data", "digits"), True),
    (("--model", "convnet", "--data", "synthetic:9x7x3,5,160"), True),
    (("--model", "resnet20", "--data", "synthetic:8x8x3,10,128", "--augment", "crop:2,flip"), True),
    (("--model", "vit_tiny:layers=2,heads=2,width=16,dropout=0.1", "--data", "synthetic:8x8x3,10,128"), False),
    (("--model", "gpt:layers=2,heads=2,width=32,context=16,vocabulary=256", "--data", "tokens"), False),
)
RATES = {"sgd": 0.02, "adam": 1e-3, "adamw": 1e-3, "kfac": 0.01, "lars": 0.1, "lamb": 1e-3, "muon": 5e-3}
# Their steps do not shrink with the gradient, so that a rounding error of a small gradient is one of the weight.
NORMALISED = ("adam", "adamw", "lamb", "*.bias=adamw")

OPTIONS = (
    (0.3, ("--micro-batch", 4), ("--micro-batch", 6), ("--micro-batch", 12)),
    (0.2, ("--clip-norm", 0.5), ("--clip-norm", 100)),
    (0.2, ("--weight-decay", 0), ("--weight-decay", 0.01), ("--no-decay-1d",)),
    (0.2, ("--ema", 0.9),),
    (0.2, ("--lookahead", 2), ("--lookahead", "3:.3:1")),
    (0.2, ("--label-smoothing", 0.1),),
    (0.2, ("--schedule", "cosine"), ("--schedule", "step:0.5:0.5"), ("--warmup", 0.5)),
    (0.25, ("--freeze", "conv1*"), ("--freeze", "*.bias"), ("--freeze", "fc*"), ("--freeze-after", "conv1*=0.2")),
    (0.15, ("--lr-of", "*.bias=2,*=.5"), ("--weight-decay-of", "*.bias=0")),
    (0.15, ("--optimizer-of", "*.bias=adamw"), ("--optimizer-of", "*.weight=sgd")),
    (0.15, ("--momentum", 0), ("--nesterov",)),
    (0.15, ("--no-shuffle",),),
    (0.15, ("--recompute",),),
    (0.15, ("--no-fuse",),),
    (0.3, ("--window", 1), ("--window", 4)),
    (0.3, ("--seed", 7), ("--seed", 123456789)),
)
ON_RANKS = (
    (0.3, ("--allreduce", "ring"), ("--allreduce", "doubling"), ("--allreduce", "tree"), ("--allreduce", "multicolor"),
     ("--allreduce", "hierarchical"), ("--allreduce", "mpi"), ("--allreduce", "halving")),
    (0.3, ("--bucket", 0.01), ("--bucket", 0.1), ("--bucket", 10)),
    (0.3, ("--shard", "optimizer"), ("--shard", "gradients")),
    (0.15, ("--data-placement", "partition"),),
)


def mesh(draw, ranks):
    if ranks == 1 or not draw.chance(0.25):
        return []
    kinds = [f"pipe={ranks}", f"data={ranks}", f"tensor=1d:{ranks}"]
    kinds += ["data=2,pipe=2", "data=2,tensor=1d:2", "pipe=2,tensor=1d:2"] if ranks == 4 else []
    return ["--mesh", draw.choice(kinds)]


def tokens():
    """A file of text, for the language model."""
    path = os.path.join(FOLDER, "text.txt")
    if not os.path.exists(path):
        os.makedirs(FOLDER, exist_ok=True)
        with open(path, "w") as f:
            f.write("".join(chr(97 + (i * i // 7 + i // 3) % 26) for i in range(2000)))
    return f"text:{path},16"


def check(draw):
    network, norms = draw.choice(NETWORKS)
    network = [tokens() if word == "tokens" else word for word in network]
    optimizer, ranks, deterministic = draw.choice(RATES), draw.choice((2, 2, 3, 4)), draw.chance(0.4)
    words = ["train", *network, "--batch", draw.choice((12, 24, 48)), "--steps", 3, "--evaluate-last", "--optimizer", optimizer,
             "--lr", RATES[optimizer], "--stall-timeout", 60, "--cpus", 1, *draw.options(OPTIONS)]
    if optimizer == "kfac":
        words += ["--kfac-factor-every", 1, "--kfac-eigen-every", 2, "--kfac-lag", draw.choice((0, 1))]
    if norms:
        words += ["--bn-group", draw.choice(("global", "global", 12))]
    if deterministic:
        words += ["--deterministic"]
    placed = mesh(draw, ranks)
    exact = deterministic and ranks in (2, 4) and (not placed or placed[1] == f"data={ranks}")
    if exact and draw.chance(0.3):
        words += ["--precision", "bf16"]
    on_ranks = [*draw.options(ON_RANKS), *placed]
    if network[1].startswith("gpt") and "partition" in on_ranks:     # which keeps text's windows where they are: other samples
        on_ranks[on_ranks.index("partition")] = "replicate"
    one, some = folder("one"), folder("some")
    draw.run([*words, *on_ranks, "--out", some], ranks, refusable=True)
    draw.run([*words, "--out", one])
    compare(one, some, exact, 0.1 if any(word in NORMALISED for word in words) else 1e-3)


def compare(one, some, exact, limit):
    if exact:
        if losses(one) != losses(some) or content(one) != content(some):
            raise Broken(f"other bits: losses {losses(one)} and {losses(some)}")
        return
    for what, of in (("losses", losses), ("test losses", lambda out: [e["test_loss"] for e in events(out, "epoch")])):
        if differ(of(one), of(some), 1e-4):
            raise Broken(f"{what} {of(one)} and {of(some)}")
    whole, other = tensors(one), tensors(some)
    if whole.keys() != other.keys():
        raise Broken(f"other parameters: {whole.keys() ^ other.keys()}")
    for name, (shape, values) in whole.items():
        far = differ(values, other[name][1], limit)
        if far or shape != other[name][0]:
            raise Broken(f"{name} differs by {far}")


@law.seeds(10, 250)
def test_ranks(seed):
    law.holds("ranks", check, seed)


if __name__ == "__main__":
    law.main(globals())
