#!/usr/bin/env python3
"""Train unet2d in PyTorch for SECONDS of processor time, for isbi.sh: isbi_torch.py ISBI2012-DIR OUT SECONDS

It trains with one thread on random 256x256 patches of the first four fifths of the slices, with the augmentations of Stargrad:
flips, rotation, elastic deformation, brightness. Adam, learning rate 0.001, cosine schedule over the time. The first steps select
the faster memory layout.

Writes OUT/torch/model.safetensors with Stargrad's names of weights, and part-N.safetensors after each tenth of the time. Copies
OUT/trial/config.json to the same folder."""
import gzip
import math
import pathlib
import shutil
import sys
import time

import numpy as np
import torch
from torch.nn import functional as F
from unet2d import UNet2d, ours, write

data, out, seconds = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), float(sys.argv[3])
SIDE, BATCH = 256, 4


def stack(name):
    raw = gzip.decompress((data / f"train-{name}-idx3-ubyte.gz").read_bytes())
    sides = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(3)]
    return torch.tensor(np.frombuffer(raw[16:], "u1").reshape(sides).copy())


image, label = stack("volume"), stack("labels") > 0
train = len(image) - max(1, len(image) // 5)
image, label = image[:train].float() / 255, label[:train].float()
mean, deviation = image.mean(), image.std(correction=0)
torch.manual_seed(1)


def draw():
    """Returns a random patch, sampled with a rotated and deformed grid: image bilinear, labels nearest, label -1 outside the
    slice."""
    z, room = torch.randint(train, ()), [n - SIDE for n in image.shape[1:]]
    y, x = (int(torch.randint(n + 1, ())) for n in room)
    v, u = torch.meshgrid(torch.arange(SIDE) + 0.0, torch.arange(SIDE) + 0.0, indexing="ij")
    if torch.rand(()) < 0.5:
        v = SIDE - 1 - v
    if torch.rand(()) < 0.5:
        u = SIDE - 1 - u
    if torch.rand(()) < 0.5:
        v, u = u, v
    angle, middle = (2 * torch.rand(()) - 1) * math.pi, (SIDE - 1) / 2
    moves = F.interpolate((4 * torch.randn(1, 2, SIDE // 32 + 2, SIDE // 32 + 2)).clamp(-12, 12), scale_factor=32, mode="bilinear")[0]
    dv, du = v - middle, u - middle
    at_y = y + middle + torch.cos(angle) * dv - torch.sin(angle) * du + moves[0, :SIDE, :SIDE]
    at_x = x + middle + torch.sin(angle) * dv + torch.cos(angle) * du + moves[1, :SIDE, :SIDE]
    height, width = image.shape[1:]
    grid = torch.stack((2 * at_x / (width - 1) - 1, 2 * at_y / (height - 1) - 1), -1)[None]
    pixels = F.grid_sample(image[z][None, None], grid, padding_mode="reflection", align_corners=True)[0]
    classes = F.grid_sample(label[z][None, None], grid, mode="nearest", align_corners=True)[0, 0].long()
    classes[(grid[0].abs() > 1).any(-1)] = -1
    return (pixels * (0.8 + 0.4 * torch.rand(())) + 0.1 * (2 * torch.rand(()) - 1)).clamp(0, 1), classes


net = UNet2d()
adam = torch.optim.Adam(net.parameters(), 0.001, weight_decay=1e-4)


def step(layout, rate):
    for group in adam.param_groups:
        group["lr"] = rate
    pixels, classes = (torch.stack(part) for part in zip(*(draw() for _ in range(BATCH))))
    loss = F.cross_entropy(net(((pixels - mean) / deviation).to(memory_format=layout)), classes, ignore_index=-1)
    adam.zero_grad()
    loss.backward()
    adam.step()
    return loss.item()


def leave(name):
    write(out / "torch" / f"{name}.safetensors", {ours(key): value for key, value in net.state_dict().items()})


def faster():
    """Returns the faster memory layout, from four steps of each."""
    times = {}
    for layout in (torch.contiguous_format, torch.channels_last):
        net.to(memory_format=layout)
        for i in range(4):
            before = time.process_time()
            step(layout, 0.001)
            times[layout] = min(times.get(layout, math.inf), time.process_time() - before)
    return min(times, key=times.get)


torch.set_num_threads(1)
(out / "torch").mkdir(exist_ok=True)
shutil.copy(out / "trial/config.json", out / "torch/config.json")
layout = faster()
net.to(memory_format=layout)
steps, parts = 8, 1
while (spent := time.process_time() / seconds) < 1:
    loss = step(layout, 0.0005 * (1 + math.cos(math.pi * spent)))
    steps += 1
    if 10 * spent >= parts:
        leave(f"part-{parts}")
        print(f"part {parts} of 10: {steps} steps, {time.process_time():.0f} s of processor time, loss {loss:.4f}", flush=True)
        parts += 1
leave("model")
print(f"PyTorch {torch.__version__}, {layout}: {steps} steps of {BATCH} patches in {time.process_time():.0f} s of processor time")
