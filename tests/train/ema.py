"""--ema: the moving average of the weights equals its definition and does not change training. Evaluations and the final weights
use it. With --resume, on several ranks and with parameter servers, the bits are the same."""
import json
import os
import struct

from run import content, events, folder, losses, main, ranks, stargrad

DECAY = 0.9
RUN = ("train", "--model", "convnet", "--data", "digits", "--batch", 64, "--micro-batch", 32, "--bn-group", "global",
       "--deterministic")
EMA = (*RUN, "--ema", DECAY)
NUMBERS = {"F32": "f", "I64": "q"}


def tensors(path, name="model.safetensors"):
    file = content(path, name)
    length = struct.unpack("<Q", file[:8])[0]
    header = json.loads(file[8:8 + length])
    header.pop("__metadata__", None)
    data = file[8 + length:]
    return {key: struct.unpack(f"<{(t['data_offsets'][1] - t['data_offsets'][0]) // (4 if t['dtype'] == 'F32' else 8)}{NUMBERS[t['dtype']]}",
                               data[slice(*t["data_offsets"])]) for key, t in header.items()}


def averaged(out, steps):
    """Of what the checkpoints hold, as torch.optim.swa_utils.AveragedModel with this avg_fn and use_buffers has it."""
    average = {}
    for step in range(1, steps + 1):
        held = {k: v for k, v in tensors(out, f"checkpoint-{step}.safetensors").items() if not k.startswith("optimizer.")}
        decay = min(DECAY, step / (step + 9))
        for name, value in held.items():
            if step == 1 or name.endswith("num_batches_tracked"):
                average[name] = value
            else:
                average[name] = [a + (1 - decay) * (x - a) for a, x in zip(average[name], value)]
    return average


def test_numbers():
    """Of weights and of running statistics; the training is what it is without."""
    steps = 12
    out, plain = folder("numbers"), folder("plain")
    stargrad(*EMA, "--steps", steps, "--checkpoint-every", "1s", "--keep", steps, "--out", out)
    stargrad(*RUN, "--steps", steps, "--checkpoint-every", "12s", "--out", plain)
    assert losses(out) == losses(plain)
    wanted, got, checkpoint = averaged(out, steps), tensors(out), tensors(out, f"checkpoint-{steps}.safetensors")
    assert wanted.keys() == got.keys()
    for name, values in wanted.items():
        assert all(abs(a - b) <= 1e-6 * (1 + abs(b)) for a, b in zip(got[name], values)), name
        if not name.endswith("num_batches_tracked"):
            assert got[name] == checkpoint[f"optimizer.ema.{name}"] != checkpoint[name], name
    before = tensors(plain, f"checkpoint-{steps}.safetensors")
    assert before == {name: value for name, value in checkpoint.items() if not name.startswith("optimizer.ema.")}
    assert json.loads(stargrad("eval", out, "--json"))["test_loss"] == events(out, "epoch")[-1]["test_loss"]


def test_resumed():
    whole, halved = folder("whole"), folder("halved")
    words = (*EMA, "--epochs", 3, "--best", "--freeze", "conv1")
    stargrad(*words, "--out", whole)
    stargrad(*words, "--steps", 30, "--out", halved)
    stargrad(*words, "--out", halved, "--resume")
    for name in ("model.safetensors", "best.safetensors"):
        assert content(whole, name) == content(halved, name), name
    assert not any("ema.conv1" in name for name in tensors(whole, "checkpoint-66.safetensors"))
    for other in (("--ema", 0), ("--ema", 0.5)):
        said = stargrad(*RUN, *other, "--epochs", 4, "--freeze", "conv1", "--out", halved, "--resume", status=2)
        assert "has optimizer sgd --ema 0.9, so it cannot be continued with sgd" in said, said


def test_ranks():
    one = folder("one")
    stargrad(*EMA, "--steps", 24, "--out", one)
    for strategy in ("sync", "ps"):
        two = folder("two")
        ranks(2, *EMA, "--steps", 24, "--strategy", strategy, "--out", two)
        assert content(one) == content(two), strategy
        assert events(one, "epoch")[-1]["test_loss"] == events(two, "epoch")[-1]["test_loss"]


def test_refused():
    assert "--ema requires --strategy sync or ps, not async" in stargrad(
        "train", "--model", "mlp", "--data", "digits", "--ema", 0.9, "--strategy", "async", "--out", folder("async"), status=2)
    text = os.path.join(os.path.dirname(folder("text")), "text")
    with open(text, "w") as f:
        f.write("to be or not to be " * 200)
    assert "is sharded over ranks" in ranks(
        2, "train", "--model", "gpt:layers=1,heads=2,width=16,context=16", "--data", f"text:{text},16", "--batch", 8, "--mesh",
        "data=1,tensor=1d:2", "--ema", 0.9, "--steps", 1, "--out", folder("mesh"), status=1)


if __name__ == "__main__":
    main(globals())
