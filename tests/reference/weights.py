"""Weights of networks that are too large for files: computed from names and shapes. The bits do not depend on PyTorch."""
import array
import json
import math
import random
import struct

PERIOD = 8191       # numbers drawn for a tensor; it repeats them


def values(name, shape):
    """An array of floats: weights uniform with the deviation of He et al. 2015. Lest rounding errors grow from layer to layer,
    batch norm leaves most values above 0, and blocks count little beside their shortcuts."""
    kind, count = name.rsplit(".", 1)[1], math.prod(shape)
    if len(shape) == 4:
        middle, deviation = 0, math.sqrt(2 / (shape[0] * shape[2] * shape[3]))
    elif len(shape) == 2:
        middle, deviation = 0, math.sqrt(1 / (3 * shape[1]))
    else:
        scale = 0.2 if ".bn" in name else 0 if kind == "bias" and name.startswith("transformer.") else 1
        middle, deviation = {"weight": scale, "bias": 2 * scale, "running_mean": 0, "running_var": 1}[kind], 0.05
    drawn = random.Random(name)
    some = array.array("f", (middle + deviation * math.sqrt(3) * (2 * drawn.random() - 1) for _ in range(min(count, PERIOD))))
    return (some * (count // len(some) + 1))[:count]


def write(path, tensors):
    """A safetensors file of {name: shape}."""
    header, end = {}, 0
    for name, shape in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end := end + 4 * math.prod(shape)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors.items():
            values(name, shape).tofile(file)
