"""Weights of networks that are too large for files: computed from names and shapes. The bits do not depend on PyTorch."""
import array
import json
import math
import random
import struct

PERIOD = 8191       # numbers drawn for a tensor; it repeats them


def values(name, shape, fan_in=False):
    """An array of floats: weights uniform with the deviation of He et al. 2015, of filters for their outputs, or for their inputs
    (FAN_IN). Lest rounding errors grow from layer to layer, batch norm leaves most values above 0, and blocks count little beside
    their shortcuts. With FAN_IN the variances of batch norm are about those of the values, so that evaluation of many layers does
    not overflow."""
    kind, count = name.rsplit(".", 1)[-1], math.prod(shape)
    if len(shape) == 4:
        middle, deviation = 0, math.sqrt(2 / (shape[fan_in] * shape[2] * shape[3]))
    elif len(shape) == 2:
        middle, deviation = 0, math.sqrt(1 / (3 * shape[1]))
    elif len(shape) == 3:                           # class tokens, positions, factors of layers (C,1,1)
        middle, deviation = 0.5 if shape[2] == 1 else 0, 0.2
    else:
        scale = 0.2 if ".bn" in name or ".f.c.1." in name else 0 if "bias" in kind and name.startswith(("transformer.", "encoder.")) else 1
        middle, deviation = {"weight": scale, "running_mean": 0, "running_var": 10 if fan_in else 1}.get(kind, 2 * scale), 0.05
    drawn = random.Random(name)
    some = array.array("f", (middle + deviation * math.sqrt(3) * (2 * drawn.random() - 1) for _ in range(min(count, PERIOD))))
    return (some * (count // len(some) + 1))[:count]


def write(path, tensors, fan_in=False):
    """A safetensors file of {name: shape}."""
    header, end = {}, 0
    for name, shape in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [end, end := end + 4 * math.prod(shape)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for name, shape in tensors.items():
            values(name, shape, fan_in).tofile(file)
