#!/usr/bin/env python3
"""Make gpt.json and text.txt: ten training steps of language models in double precision. Needs PyTorch 2; the tests do not run
this.

text.txt    words of a small artificial language, read byte by byte
gpt.json    for each run: its options, the shapes of its weights (weights.py makes the values) and the losses of ten steps;
            "spread" is the largest relative difference of PyTorch's single precision from each loss

AdamW is that of nanoGPT: weights with one dimension do not decay, and gradients are clipped.
"""
import json
import pathlib
import random
import sys

import torch
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "bench"))
import torch_models  # noqa: E402
import weights  # noqa: E402

STEPS = 10


def text():
    drawn = random.Random(1)
    words = ["".join(drawn.choice("aeiou") if i % 2 else drawn.choice("bcdfglmnprst") for i in range(drawn.randint(2, 6))) for _ in range(60)]
    return "".join(drawn.choice(words) + drawn.choice("    ,.\n") for _ in range(1400))


def run(how):
    data = (HERE / "text.txt").read_bytes()
    train = torch.tensor(list(data[:len(data) * 9 // 10]))
    length, batch = how["length"], how["batch"]
    sizes = {key: how[key] for key in ("layers", "heads", "width", "context", "vocabulary")}
    shapes = {name: list(tensor.shape) for name, tensor in torch_models.Gpt(**sizes).state_dict().items()}

    def once(dtype):
        model = torch_models.Gpt(**sizes)
        model.load_state_dict({name: torch.tensor(weights.values(name, shape)).reshape(shape) for name, shape in shapes.items()})
        model = model.to(dtype)
        decay = [p for p in model.parameters() if p.dim() > 1]
        rest = [p for p in model.parameters() if p.dim() < 2]
        optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": how["weight_decay"]}, {"params": rest, "weight_decay": 0}],
                                      lr=how["lr"], betas=(0.9, how["beta2"]), eps=1e-8)
        losses = []
        for step in range(STEPS):
            at = [(step * batch + i) * length for i in range(batch)]
            x, y = (torch.stack([train[a + later:a + later + length] for a in at]) for later in (0, 1))
            loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), how["clip_norm"])
            optimizer.step()
            losses.append(loss.item())
        return losses

    exact, single = once(torch.float64), once(torch.float32)
    spread = max(abs(a - b) / b for a, b in zip(single, exact))
    print(how, "spread", spread, exact)
    return how | {"loss": exact, "spread": spread, "weights": {name: " ".join(map(str, shape)) for name, shape in shapes.items()}}


def main():
    torch.manual_seed(1)
    torch.set_num_threads(1)
    (HERE / "text.txt").write_text(text())
    common = dict(vocabulary=256, beta2=0.99, weight_decay=0.1, clip_norm=1.0)
    runs = {"small": dict(layers=2, heads=2, width=32, context=24, length=20, batch=4, lr=0.001),
            "large": dict(layers=6, heads=6, width=384, context=256, length=256, batch=2, lr=0.0001)}
    (HERE / "gpt.json").write_text(json.dumps({name: run(common | how) for name, how in runs.items()}, indent=1) + "\n")


main()
