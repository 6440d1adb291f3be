"""weights.py: reads and writes safetensors files as NumPy arrays (format: github.com/huggingface/safetensors)."""
import json

import numpy

from .library import Error

KINDS = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1", "BOOL": "?"}
NAMES = {numpy.dtype(kind): name for name, kind in KINDS.items()}


def load(path):
    """Returns the arrays in a file by name. bfloat16, which NumPy does not have, is converted to float32."""
    with open(path, "rb") as file:
        data = file.read()
    length = int.from_bytes(data[:8], "little")
    try:
        if length > len(data) - 8:
            raise ValueError(f"its header has {length} bytes, but the file has {len(data)}")
        header = json.loads(data[8:8 + length])
        return {name: _array(data[8 + length:], **entry) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, KeyError, TypeError, AttributeError) as why:
        raise Error(f"{path}: is not a safetensors file: {why}") from None


def _array(data, dtype, shape, data_offsets):
    begin, end = data_offsets
    if not 0 <= begin <= end <= len(data):
        raise ValueError(f"data_offsets are {begin} to {end}, but there are {len(data)} bytes")
    kind = "<u2" if dtype == "BF16" else KINDS[dtype]
    array = numpy.frombuffer(data[begin:end], kind).reshape(shape)
    return (array.astype("<u4") << 16).view("<f4") if dtype == "BF16" else array.copy()


def save(path, arrays):
    """Writes arrays by name, for `train(init=path)` and `predict(…, init=path)`. Names and layouts must be those of PyTorch."""
    header, parts, at = {}, [], 0
    for name, array in arrays.items():
        array = numpy.asarray(array)
        kind = array.dtype.newbyteorder("<")
        if kind not in NAMES:
            raise Error(f"{name}: type {array.dtype} is not supported; use one of "
                        f"{', '.join(str(numpy.dtype(k)) for k in KINDS.values())}")
        part = array.astype(kind).tobytes()
        header[name] = {"dtype": NAMES[kind], "shape": array.shape, "data_offsets": (at, at + len(part))}
        at += len(part)
        parts.append(part)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.writelines([len(text).to_bytes(8, "little"), text, *parts])
