"""Second-order training equals a plain implementation in double precision (tests/reference/kfac.py made the files). Its results
do not depend on workers, ranks or interruptions. Options that cannot be combined are refused."""
import array
import json
import os
import re
import struct
import sys

from run import FOLDER, REFERENCE, content, events, folder, long, losses, main, ranks, stargrad

sys.path.insert(0, REFERENCE)
import weights  # noqa: E402

# The largest factors have 288 rows; a decomposition of each takes as long as a step.
SMALL = ("train", "--model", "resnet20", "--data", "synthetic:8x8x3,10,256", "--batch", 64, "--bn-group", "global", "--deterministic",
         "--optimizer", "kfac", "--lr", 0.02, "--kfac-factor-every", 2, "--kfac-eigen-every", 4, "--kfac-lag", 3, "--kfac-skip", "layer3.*")


def tensors(path):
    """{name: floats} of a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: array.array("f", data[slice(*is_["data_offsets"])]) for name, is_ in header.items() if is_["dtype"] == "F32"}


def reference(run):
    with open(os.path.join(REFERENCE, "kfac.json")) as f:
        how = json.load(f)[run]
    init = os.path.join(REFERENCE, f"{how['model']}.safetensors")
    if how["weights"]:
        init = os.path.join(FOLDER, f"{how['model']}.safetensors")
        weights.write(init, {name: [int(size) for size in shape.split()] for name, shape in how["weights"].items()})
    words = ("train", "--model", how["model"], "--data", f"{how['data']}:{os.path.join(REFERENCE, how['data'])}", "--init", init, "--batch", 16,
             "--no-shuffle", "--no-augment", "--optimizer", "kfac", "--lr", how["lr"], "--momentum", how["momentum"],
             "--kfac-damping", how["damping"], "--kfac-decay", how["decay"], "--kfac-clip", how["clip"],
             "--kfac-factor-every", how["factor_every"], "--kfac-eigen-every", how["eigen_every"], "--kfac-lag", how["lag"], *["--kfac-inverse"] * how.get("inverse", False))
    return how, words


def check_losses(run, *more, within=1e-4):
    how, words = reference(run)
    out = folder("reference")
    stargrad(*words, "--weight-decay", how["weight_decay"], "--steps", 10, "--checkpoint-every", 0, "--out", out, *more)
    got = losses(out)
    assert len(got) == 10
    for step, (a, b) in enumerate(zip(got, how["loss"])):
        assert abs(a - b) <= within * b, f"{run} {more}, step {step + 1}: {a} is not {b}, by {abs(a - b) / b:.1e}: {got} {how['loss']}"


def check_gradients(run, *more, within=1e-5):
    """The first step's are what the momentum is then, where there is no decay. What rounding, even of the plain gradients, comes to
    is in proportion to a layer's, and to curvature over damping, to which reference/kfac.py sees."""
    _, words = reference(run)
    out = folder("gradients")
    stargrad(*words, "--weight-decay", 0, "--steps", 1, "--checkpoint-every", "1s", "--out", out, *more)
    got = tensors(os.path.join(out, "checkpoint-1.safetensors"))
    wanted = {name.split("/")[1]: v for name, v in tensors(os.path.join(REFERENCE, "kfac.safetensors")).items() if name.startswith(run + "/")}
    assert wanted
    for layer in {name.rsplit(".", 1)[0] for name in wanted}:
        length = apart = 0
        for name, v in wanted.items():
            if name.rsplit(".", 1)[0] == layer:
                length += sum(x * x for x in v)
                apart += sum((x - y) ** 2 for x, y in zip(v, got["optimizer.momentum." + name]))
        assert apart <= within**2 * length, f"{run}, {layer}: {(apart / length) ** 0.5:.1e} of it apart"


def test_gradients():
    for run in ("mlp", "lenet", "lenet-free", "lenet-inverse", "resnet20", "resnet20-inverse"):
        check_gradients(run, within=5e-5 if "inverse" in run else 1e-5)
    check_gradients("resnet20", "--micro-batch", 4)


def test_losses():
    for run in ("mlp", "lenet", "lenet-free", "lenet-inverse", "resnet20", "resnet20-lag", "resnet20-inverse"):
        check_losses(run)
    check_losses("resnet20", "--micro-batch", 4)
    check_losses("resnet20", "--no-fuse")


def train(name, *more, count=1, steps=9):
    out = folder(name)
    words = (*SMALL, "--steps", steps, *more, "--out", out)
    if count > 1:
        ranks(count, *words)
    else:
        stargrad(*words)
    return losses(out), content(out)


def test_same_bits():
    """Whatever the workers, the window, how many decompositions are late, and the ranks."""
    first = train("first", "--cpus", 1)
    assert len(first[0]) == 9
    for more in (("--cpus", 2), ("--cpus", 2, "--window", 4, "--scheduler", "prio"), ("--cpus", 2, "--no-fuse")):
        again = train("again", *more)
        assert again == first or "--no-fuse" in more and all(abs(a - b) <= 1e-4 * b for a, b in zip(again[0], first[0])), more
    assert train("recompute", "--recompute") == first
    for count in (2, 4):
        assert train("ranks", count=count) == first, f"{count} ranks"
    assert train("waits", "--kfac-lag", 0) != first


def test_variants():
    """Who preconditions what has no part in the bits, nor in what a checkpoint holds: it goes on with any other variant."""
    for more, variants in (((), ("opt", 0.5, "lw")), (("--kfac-inverse",), (0.5,))):
        first = train("first", *more, steps=7)
        for variant in variants:
            assert train("variant", "--kfac-variant", variant, *more, count=4, steps=7) == first, f"{variant}, {more}"


def printed(*more, latency=1e-5):
    """On four ranks and a network that is told, not measured."""
    network = os.path.join(FOLDER, "network.json")
    with open(network, "w") as file:
        json.dump({"latency": latency, "bandwidth": 1e9, "host_latency": latency, "host_bandwidth": 1e9}, file)
    return ranks(4, *SMALL, "--network", network, *more, "--print")


def test_auto():
    """Where each message takes long fewer are sent."""
    assert "variant lw, the cheapest that fits in memory: a layer is preconditioned by 1 of 4 ranks" in printed()
    assert "variant opt, the cheapest that fits in memory: a layer is preconditioned by 4 of 4 ranks" in printed(latency=0.1)


def messages(*more):
    """Of rank 0, in every step: (task, times, bytes)."""
    said = printed(*more)
    lines = re.findall(r"^reduction +(\S.*? (?:send|receive) (?:to|from) \d) +(\d+) +\S+ +(\S+) +\([\d,]+\)$", said, re.M)
    assert lines, said
    return sorted(lines)


def test_messages():
    """In steps in which no factor and no decomposition is due opt sends what sgd sends, and nothing else."""
    plain = messages("--optimizer", "sgd")
    assert messages("--kfac-variant", "opt") == plain
    assert len(messages("--kfac-variant", 0.5)) > len(plain)


def resumed(*cases):
    whole = train("whole")
    for before, variant, count in cases:
        out = folder("parted")
        words = (*SMALL, "--kfac-variant", variant, "--steps", 9, "--checkpoint-every", "6s", "--out", out)
        ranks(before, *words) if before > 1 else stargrad(*words)
        for name in ("checkpoint-9.safetensors", "model.safetensors"):
            os.remove(os.path.join(out, name))
        kept = tensors(os.path.join(out, "checkpoint-6.safetensors"))
        assert kept["optimizer.next_a.fc"] != kept["optimizer.eigen_a.fc"] and len(kept["optimizer.factor_a.fc"]) == 65 * 66 // 2
        words = (*SMALL, "--steps", 9, "--out", out, "--resume")
        ranks(count, *words) if count > 1 else stargrad(*words)
        assert (losses(out), content(out)) == whole, f"{before} ranks, {variant}, resumed on {count} ranks"


def test_resume():
    """While a decomposition has begun and is not used yet: the factors, the decomposition in use and the next one are in the checkpoint."""
    resumed((1, "opt", 2), (4, "lw", 1))


@long
def test_resume_on_other_ranks():
    resumed((1, "opt", 1), (2, "lw", 4))


# One layer has factors of 576 rows, so that the memory of factors is more than the 0.1 MB to which it is printed.
LARGE = (*SMALL, "--kfac-skip", "layer3.1.*,layer3.2.*")


def states(*options):
    """Bytes of parameters and states that a run on four ranks says."""
    said = ranks(4, *LARGE, *options, "--steps", 1, "--out", folder("memory"))
    return float(re.search(r"([\d.]+) parameters and states", said)[1]) * 1e6


def test_memory():
    """A rank keeps what the print says; which is less where fewer precondition a layer."""
    plain, kept = states("--optimizer", "sgd"), []
    for variant in ("opt", 0.5, "lw"):
        said = ranks(4, *LARGE, "--kfac-variant", variant, "--print")
        kept.append(float(re.search(r"preconditioned: ([\d.]+) MB stored on the rank that stores most", said)[1]) * 1e6)
        factor, used = [0] * 4, [0] * 4
        for a, rank_a, g, rank_g in re.findall(r"^  \S+ +(\d+)x\d+ +[\d.]+ Mflop, rank (\d) +(\d+)x\d+ +[\d.]+ Mflop, rank (\d)$", said, re.M):
            columns = {"opt": 1, 0.5: 2, "lw": 4}[variant]
            for n, rank in ((int(a), int(rank_a)), (int(g), int(rank_g))):
                factor[rank] += 4 * n * (n + 1) // 2
                for other in range(rank % columns, 4, columns):
                    used[other] += 2 * 4 * n * (n + 1)
        assert abs(max(x + y for x, y in zip(factor, used)) - kept[-1]) <= 5e4, (variant, kept, factor, used)      # to 0.1 MB
        taken = states("--kfac-variant", variant) - plain
        assert abs(taken - factor[0] - used[0]) <= 0.05 * (factor[0] + used[0]), (variant, taken, factor, used)
    assert kept[0] > kept[1] > kept[2]


def test_any_number_of_ranks():
    run = [*SMALL]
    run[run.index("--batch") + 1] = 48
    run.remove("--deterministic")
    got = []
    for count in (1, 3):
        out = folder("any")
        ranks(count, *run, "--steps", 4, "--kfac-damping", 0.1, "--out", out) if count > 1 else stargrad(
            *run, "--steps", 4, "--kfac-damping", 0.1, "--out", out)
        got.append(losses(out))
    assert all(abs(a - b) <= 1e-4 * b for a, b in zip(*got)), got


def test_bf16():
    """Factors stay f32, whatever computes."""
    out = folder("bf16")
    stargrad(*SMALL, "--precision", "bf16", "--steps", 4, "--out", out)
    other = train("f32", steps=4)[0]
    assert all(abs(a - b) <= 0.05 * b for a, b in zip(losses(out), other)), (losses(out), other)


def test_skip():
    """What is skipped is trained as by sgd."""
    skipped, plain = folder("skipped"), folder("plain")
    run = [*SMALL[:SMALL.index("--optimizer")], "--lr", 0.02, "--steps", 3]
    stargrad(*run, "--optimizer", "kfac", "--kfac-skip", "*conv*,fc", "--out", skipped)
    stargrad(*run, "--out", plain)
    assert content(skipped) == content(plain)
    assert "layer1.0.conv1 A" not in stargrad(*SMALL, "--kfac-skip", "layer1.*", "--print")


def test_what_does_not_go_together():
    for words, why in ((("--kfac-lag", 5), "--kfac-lag 5 must not exceed --kfac-eigen-every 4"), (("--clip-norm", 1), "--kfac-clip"),
                       (("--strategy", "ps"), "--strategy sync"), (("--kfac-damping", 0), "--kfac-damping"),
                       (("--kfac-damping-schedule", "stairs"), "stairs"), (("--kfac-variant", "1.5"), "--kfac-variant 1.5 must be auto"),
                       (("--kfac-variant", "0.5x"), "--kfac-variant 0.5x must be auto"), (("--kfac-variant", "0"), "--kfac-variant 0")):
        said = stargrad(*SMALL, "--steps", 1, *words, "--out", folder("wrong"), status=2)
        assert why in said, said


def test_learns():
    """Faster than sgd on digits, at the same rate."""
    end = {}
    for optimizer in ("sgd", "kfac"):
        out = folder("digits")
        stargrad("train", "--model", "convnet", "--data", "digits", "--batch", 64, "--epochs", 2, "--optimizer", optimizer, "--lr", 0.02,
                 "--out", out)
        end[optimizer] = events(out, "epoch")[-1]["train_loss"]
    assert end["kfac"] < end["sgd"], end


if __name__ == "__main__":
    main(globals())
