"""unet2d in PyTorch, with Stargrad's names of weights, and functions that read and write safetensors files. chunkflow's
--convnet-model calls load_model with the path of a run's model.safetensors."""
import json
import pathlib
import struct

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

WIDTH, LEVELS = 16, 5


class UNet2d(nn.Module):
    def __init__(self, classes=2):
        super().__init__()
        def two(name, inputs, outputs):
            for i in (1, 2):
                self.add_module(f"{name}_conv{i}", nn.Conv2d(inputs if i == 1 else outputs, outputs, 3, padding=1, bias=False))
                self.add_module(f"{name}_bn{i}", nn.BatchNorm2d(outputs))
        for level in range(LEVELS):
            two(f"enc{level + 1}", 1 if level == 0 else WIDTH << (level - 1), WIDTH << level)
        for level in range(LEVELS - 1, 0, -1):
            self.add_module(f"up{level}", nn.ConvTranspose2d(WIDTH << level, WIDTH << (level - 1), 2, 2, bias=False))
            two(f"dec{level}", WIDTH << level, WIDTH << (level - 1))
        self.out = nn.Conv2d(WIDTH, classes, 1)

    def two(self, name, x):
        for i in (1, 2):
            x = F.relu(getattr(self, f"{name}_bn{i}")(getattr(self, f"{name}_conv{i}")(x)))
        return x

    def forward(self, x):       # (N,1,H,W) -> (N,classes,H,W)
        across = []
        for level in range(LEVELS):
            x = self.two(f"enc{level + 1}", F.max_pool2d(x, 2) if level else x)
            across.append(x)
        for level in range(LEVELS - 1, 0, -1):
            x = self.two(f"dec{level}", torch.cat((across[level - 1], getattr(self, f"up{level}")(x)), 1))
        return self.out(x)


def read(path):
    data = pathlib.Path(path).read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header, kinds = json.loads(data[8:8 + size]), {"F32": "<f4", "I64": "<i8"}
    header.pop("__metadata__", None)
    return {name: torch.tensor(np.frombuffer(data[8 + size:][slice(*is_["data_offsets"])], kinds[is_["dtype"]]).reshape(is_["shape"]).copy())
            for name, is_ in header.items()}


def write(path, tensors):
    header, body = {}, b""
    for name, tensor in tensors.items():
        data = tensor.detach().contiguous().numpy().tobytes()
        header[name] = {"dtype": "I64" if tensor.dtype == torch.int64 else "F32", "shape": list(tensor.shape),
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


def ours(name):
    """Returns Stargrad's name of a weight: enc1_conv1.weight -> enc1.conv1.weight"""
    return name.replace("_conv", ".conv").replace("_bn", ".bn")


def load(path):
    tensors = read(path)
    model = UNet2d(len(tensors["out.weight"]))
    model.load_state_dict({name: tensors[ours(name)].reshape(value.shape) for name, value in model.state_dict().items()})
    return model


class Volumes(nn.Module):
    """(N,1,D,H,W) in 0 to 1 -> (N,classes,D,H,W), as in stargrad segment: normalises, predicts slice by slice, then softmax."""
    def __init__(self, path):
        super().__init__()
        config = json.loads((pathlib.Path(path).parent / "config.json").read_text())
        self.net, self.mean, self.deviation = load(path).eval(), config["mean"][0], config["deviation"][0]

    def forward(self, x):
        n, _, d, h, w = x.shape
        y = self.net((x.reshape(n * d, 1, h, w) - self.mean) / self.deviation).softmax(1)
        return y.reshape(n, d, -1, h, w).transpose(1, 2)


def load_model(path):
    if not torch.cuda.is_available():       # chunkflow queries the name of the GPU even without one
        torch.cuda.get_device_name = lambda *_: "CPU"
    return Volumes(path)
