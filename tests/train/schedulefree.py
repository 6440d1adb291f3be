"""--optimizer schedulefree: the average x equals its definition. Evaluations and the final weights use it; training continues from y.
The bits are the same after an interruption, on several ranks, with parameter servers and with shares."""
import json

from ema import tensors
from run import content, events, folder, losses, main, ranks, stargrad

RUN = ("train", "--model", "convnet", "--data", "digits", "--batch", 64, "--micro-batch", 32, "--bn-group", "global", "--deterministic",
       "--optimizer", "schedulefree", "--lr", 0.01)
BETA1, BETA2, LR = 0.9, 0.999, 0.01


def shares(rates):
    """Of each step's square in the sum so far."""
    total = 0
    for t, rate in enumerate(rates, 1):
        square = rate * rate * (1 - BETA2 ** t)
        total += square
        yield square / total if total else 1     # the warm-up starts at 0


def test_numbers():
    """x is the average of z = y + ahead over all steps, also while the rate warms up, and with another optimizer for some parameters."""
    steps, warm = 12, 6
    out = folder("numbers")
    stargrad(*RUN, "--warmup", warm / 22, "--optimizer-of", "fc=sgd", "--steps", steps, "--checkpoint-every", "1s", "--keep", steps, "--out", out)
    rates = [e["lr"] for e in events(out, "step")]
    assert len(set(rates[:warm])) == warm and set(rates[warm:]) == {LR}, rates
    average = {}
    for step, share in enumerate(shares(rates), 1):
        held = tensors(out, f"checkpoint-{step}.safetensors")
        for name in [name for name in held if f"optimizer.ahead.{name}" in held]:
            z = [y + d for y, d in zip(held[name], held[f"optimizer.ahead.{name}"])]
            average[name] = [x + share * (z - x) for x, z in zip(average.get(name, z), z)]
    got = tensors(out)
    assert "conv1.weight" in average and not any("fc" in name for name in average), average.keys()
    for name, wanted in average.items():
        assert all(abs(a - b) <= 1e-5 * (1 + abs(b)) for a, b in zip(got[name], wanted)), name
        assert got[name] == held[f"optimizer.average.{name}"] != held[name], name
        y = [0.1 * (y + d) + 0.9 * x for y, d, x in zip(held[name], held[f"optimizer.ahead.{name}"], wanted)]
        assert all(abs(a - b) <= 1e-5 * (1 + abs(b)) for a, b in zip(held[name], y)), name
    assert got["fc.weight"] == held["fc.weight"] and "optimizer.average.fc.weight" not in held
    statistics = [name for name in got if name.endswith("running_mean")]
    assert all(got[name] == held[f"optimizer.average.{name}"] for name in statistics) and statistics
    assert json.loads(stargrad("eval", out, "--json"))["test_loss"] == events(out, "epoch")[-1]["test_loss"]


def test_resumed():
    """From a checkpoint in the warm-up, after a longer schedule was planned: s depends only on the rates so far."""
    whole, halved = folder("whole"), folder("halved")
    words = (*RUN, "--warmup", 2, "--best", "--clip-norm", 1, "--weight-decay", 0.05, "--freeze", "conv1")
    stargrad(*words, "--epochs", 3, "--out", whole)
    stargrad(*words, "--epochs", 1, "--out", halved)
    stargrad(*words, "--epochs", 3, "--out", halved, "--resume")
    assert losses(whole) == losses(halved)
    for name in ("model.safetensors", "best.safetensors", "checkpoint-66.safetensors"):
        assert content(whole, name) == content(halved, name), name
    assert not any("average.conv1" in name for name in tensors(whole, "checkpoint-66.safetensors"))


def test_ranks():
    words = (*RUN, "--steps", 24, "--cpus", 1, "--checkpoint-every", "24s")
    one = folder("one")
    stargrad(*words, "--out", one)
    for more in ((), ("--strategy", "ps"), ("--shard", "optimizer"), ("--shard", "parameters")):
        two = folder("two")
        ranks(2, *words, *more, "--out", two)
        for name in ("model.safetensors", "checkpoint-24.safetensors"):
            assert content(one, name) == content(two, name), (more, name)
        assert events(one, "epoch")[-1]["test_loss"] == events(two, "epoch")[-1]["test_loss"], more


def test_refused():
    def refused(text, *words):
        assert text in stargrad(*RUN, *words, "--out", folder("refused"), status=2)

    refused("--ema cannot be combined with --optimizer schedulefree, which averages the weights itself", "--ema", 0.9)
    refused("--lookahead cannot be combined with --optimizer schedulefree, which averages", "--lookahead", 5)
    refused("--ema cannot be combined with --optimizer-of schedulefree", "--optimizer", "sgd", "--optimizer-of", "fc=schedulefree", "--ema", 0.9)
    assert "--optimizer schedulefree requires --strategy sync or ps, not async" in stargrad(
        "train", "--model", "mlp", "--data", "digits", "--optimizer", "schedulefree", "--strategy", "async", "--out", folder("async"), status=2)


if __name__ == "__main__":
    main(globals())
