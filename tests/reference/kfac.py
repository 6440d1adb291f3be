#!/usr/bin/env python3
"""Make kfac.json and kfac.safetensors: second-order training, computed directly in double precision. Needs PyTorch 2; the tests
do not run this. Run make.py first, because this script uses its data sets and weights.

kfac.json           for each run: its options and the losses of ten steps
kfac.safetensors    RUN/PARAMETER: the preconditioned gradient of the first step, only the first rows for a weight

For a layer, with a: patches of the input, followed by a 1 if there is a bias; g: gradients of the mean loss with respect to the
outputs; B samples (rows, for a linear layer), S positions:

    A = aᵀa / (B S²)    G = B S gᵀg    both running averages    V = Q_G ((Q_Gᵀ ∇ Q_A) / (d_G d_Aᵀ + γ)) Q_Aᵀ

or, "inverse", V = (G + γI)⁻¹ ∇ (A + γI)⁻¹. (Pauloski et al., 2020.) V is scaled by min(1, sqrt(κ / |Σ lr² V·∇|)). Weight decay
and momentum follow.
"""
import gzip
import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

HERE = pathlib.Path(__file__).parent
sys.path.insert(0, str(HERE.parent.parent / "bench"))
import torch_models  # noqa: E402
import weights  # noqa: E402

ROWS = 4        # of a weight that are kept


def cifar10():
    rows = np.concatenate([np.fromfile(HERE / "cifar10" / f"data_batch_{i}.bin", np.uint8) for i in range(1, 6)]).reshape(-1, 3073)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]


def idx():
    pixels, labels = (np.frombuffer(gzip.decompress((HERE / "idx" / f"train-{kind}-ubyte.gz").read_bytes()), np.uint8)
                      for kind in ("images-idx3", "labels-idx1"))
    return pixels[16:].reshape(-1, 1, 28, 28), labels[8:]


def batches(data):
    pixels, labels = data
    x = torch.from_numpy(pixels.copy()).double() / 255
    x = (x - x.mean((0, 2, 3))[:, None, None]) / x.std((0, 2, 3), correction=0)[:, None, None]
    return list(zip(x.split(16), torch.from_numpy(labels.astype(np.int64)).split(16)))


def patches(layer, x):
    """Rows of a, and S."""
    if isinstance(layer, nn.Conv2d):
        x = F.unfold(x, layer.kernel_size, layer.dilation, layer.padding, layer.stride).transpose(1, 2)
        positions, rows = x.shape[1], x.reshape(-1, x.shape[2])
    else:
        positions, rows = 1, x.reshape(-1, x.shape[-1])
    return (torch.cat([rows, torch.ones(len(rows), 1).double()], 1) if layer.bias is not None else rows), positions


class Kfac:
    def __init__(self, model, how):
        self.how, self.layers = how, {name: m for name, m in model.named_modules() if isinstance(m, (nn.Conv2d, nn.Linear))}
        self.factor, self.used, self.next, self.input, self.output = {}, {}, {}, {}, {}
        for name, layer in self.layers.items():
            layer.register_forward_pre_hook(lambda _, x, name=name: self.input.__setitem__(name, x[0].detach()))
            layer.register_full_backward_hook(lambda _, __, g, name=name: self.output.__setitem__(name, g[0].detach()))

    def follow(self, name, layer, decay):
        a, positions = patches(layer, self.input[name])
        g = self.output[name]
        g = g.movedim(1, -1).reshape(-1, g.shape[1]) if g.dim() == 4 else g.reshape(-1, g.shape[-1])
        samples = len(a) / positions
        new = a.T @ a / (samples * positions**2), samples * positions * (g.T @ g)
        old = self.factor.get(name, new)
        self.factor[name] = [decay * before + (1 - decay) * now for before, now in zip(old, new)]

    def make(self, factor):
        if self.how.get("inverse"):
            return torch.linalg.inv(factor + self.how["damping"] * torch.eye(len(factor)).double())
        return torch.linalg.eigh(factor)

    def divide(self, gradient, a, g):
        if self.how.get("inverse"):
            return g @ gradient @ a
        (da, qa), (dg, qg) = a, g
        d = dg.clamp(min=0)[:, None] * da.clamp(min=0)[None] + self.how["damping"]
        return qg @ ((qg.T @ gradient @ qa) / d) @ qa.T

    def gradients(self, step):
        """{parameter: V}, scaled; STEP is 0 at first."""
        how, change, v = self.how, 0, {}
        for name, layer in self.layers.items():
            if step % how["factor_every"] == 0:
                self.follow(name, layer, how["decay"])
            if step % how["eigen_every"] == how["lag"] % how["eigen_every"] and step >= how["lag"] > 0:
                self.used[name] = self.next[name]
            if step % how["eigen_every"] == 0:
                self.next[name] = [self.make(f) for f in self.factor[name]]
            if how["lag"] == 0 or step == 0:
                self.used[name] = self.next[name]
            gradient = layer.weight.grad.flatten(1)
            if isinstance(layer, nn.Conv2d):
                gradient = layer.weight.grad.reshape(len(gradient), -1)
            if layer.bias is not None:
                gradient = torch.cat([gradient, layer.bias.grad[:, None]], 1)
            full = self.divide(gradient, *self.used[name])
            change += (full * gradient).sum().item() * how["lr"] ** 2
            if layer.bias is not None:
                v[f"{name}.bias"], full = full[:, -1].clone(), full[:, :-1]
            v[f"{name}.weight"] = full.reshape(layer.weight.shape)
        scale = min(1, (how["clip"] / abs(change)) ** 0.5) if how["clip"] else 1
        return {name: scale * value for name, value in v.items()}


def train(name, data, how):
    model = torch_models.build(name, tuple(data[0][0].shape[1:])).double()
    start = {key: tensor for key, tensor in model.state_dict().items() if tensor.is_floating_point()}
    file = HERE / f"{name}.safetensors"
    made = {} if file.exists() else {key: list(tensor.shape) for key, tensor in start.items()}
    model.load_state_dict(load_file(file) if file.exists() else
                          {key: torch.tensor(weights.values(key, shape)).reshape(shape) for key, shape in made.items()}, strict=False)
    kfac = Kfac(model, how)
    optimizer = torch.optim.SGD(model.parameters(), lr=how["lr"], momentum=how["momentum"], weight_decay=how["weight_decay"])
    losses, first = [], {}
    for step, (x, y) in enumerate(data):
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        losses.append(loss.item())
        v = kfac.gradients(step)
        for key, parameter in model.named_parameters():
            parameter.grad = v.get(key, parameter.grad)
            if step == 0:
                first[key] = parameter.grad.clone()
        optimizer.step()
    kept = {key: (value[:ROWS] if value.dim() > 1 else value).float().contiguous() for key, value in first.items() if ".bn" not in key}
    return {"model": name, **how, "loss": losses, "weights": {key: " ".join(map(str, shape)) for key, shape in made.items()}}, kept


def main():
    torch.set_num_threads(1)
    common = dict(momentum=0.9, weight_decay=1e-4, decay=0.95, damping=0.03, clip=0.001, factor_every=2, eigen_every=4, lag=0)
    runs, tensors = {}, {}
    for run, name, data, how in (
            ("mlp", "mlp", "idx", dict(lr=0.01, damping=1)), ("lenet", "lenet", "idx", dict(lr=0.002)),
            ("resnet20", "resnet20", "cifar10", dict(lr=0.001, clip=1e-6)),
            ("resnet20-lag", "resnet20", "cifar10", dict(lr=0.001, clip=1e-6, lag=3)),
            ("lenet-inverse", "lenet", "idx", dict(lr=0.002, inverse=True)),
            ("resnet20-inverse", "resnet20", "cifar10", dict(lr=0.001, clip=1e-6, inverse=True)),
            ("lenet-free", "lenet", "idx", dict(lr=0.005, damping=0.1, clip=0, momentum=0, weight_decay=0))):
        runs[run], first = train(name, batches(globals()[data]()), common | how)
        runs[run]["data"] = data
        if "lag" not in run:
            tensors |= {f"{run}/{key}": value for key, value in first.items()}
        print(run, " ".join(f"{x:.4f}" for x in runs[run]["loss"]))
    (HERE / "kfac.json").write_text(json.dumps(runs, indent=1) + "\n")
    save_file(tensors, HERE / "kfac.safetensors")


main()
