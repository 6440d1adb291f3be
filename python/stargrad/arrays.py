"""arrays.py: passes NumPy arrays to the library (struct sgrad_arrays, struct sgrad_json_samples), without copies where the library
can read them in place: arrays in C order and in the byte order of this machine."""
import ctypes
import os

import numpy

from .library import Arrays, Error, Samples

TYPES = {"b1", "u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"}


def _array(values, what):
    """Returns VALUES as an array that the library can read. Copies it only if it must."""
    array = numpy.asarray(values)
    if f"{array.dtype.kind}{array.dtype.itemsize}" not in TYPES:
        raise Error(f"{what} has values of type {array.dtype}; they must be integers or real numbers")
    return numpy.ascontiguousarray(array, array.dtype.newbyteorder("="))


def pair(data, what="data"):
    """Returns DATA, a pair of samples and targets, as arrays."""
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        raise Error(f"{what} must be a pair of arrays, (x, y)")
    x, y = (_array(values, f"{name} of {what}") for values, name in zip(data, "xy"))
    if x.ndim < 2 or y.ndim < 1 or len(x) != len(y):
        raise Error(f"{what}: x has shape {x.shape} and y {y.shape}; both must have the same number of samples in front, and x at "
                    "least two dimensions")
    return x, y


def arrays(train, test, names=("data", "test")):
    """Returns struct sgrad_arrays of two pairs, one of which may be None. The structure keeps the arrays alive. NAMES: of the pairs, for
    messages; a pair may be one array without targets."""
    struct = Arrays()
    struct.kept = []
    for split, (data, what) in enumerate(zip((train, test), names)):
        for field, letter, values in zip((struct.x, struct.y), "xy", data or ()):
            dim, name = (ctypes.c_int64 * values.ndim)(*values.shape), (f"{letter} of {what}" if len(data) > 1 else what).encode()
            struct.kept += [values, dim, name]
            one = field[split]
            one.data, one.type, one.rank, one.dim, one.name = values.ctypes.data, values.dtype.str[1:].encode(), values.ndim, dim, name
    return struct


def is_path(value):
    return isinstance(value, (str, os.PathLike))


def _masked(given, classes):
    """Returns struct sgrad_json_samples of images whose pixels have classes. The library recognises them by their targets, so these
    are some that contain the last class."""
    x = _array(given, "samples")
    if x.ndim not in (3, 4):
        raise Error(f"samples must be images, (n,H,W,C) or (n,H,W), not an array of shape {x.shape}")
    y = numpy.full(x.shape[:3], 0, numpy.int32)
    y.flat[0] = classes - 1
    return Samples(arrays=ctypes.pointer(arrays(None, (x, y))))


def samples(given, rows=False, classes_of_pixels=0):
    """Returns struct sgrad_json_samples of image files or of an array without targets. ROWS: the samples are features of any type,
    which the library normalises as in training. CLASSES_OF_PIXELS: they are images, and each pixel has one of so many classes. The
    structure keeps them alive."""
    if isinstance(given, (list, tuple)) and given and all(is_path(one) for one in given):
        files = (ctypes.c_char_p * len(given))(*map(os.fsencode, given))
        return Samples(file=files, count=len(given))
    if classes_of_pixels:
        return _masked(given, classes_of_pixels)
    if rows:
        return Samples(arrays=ctypes.pointer(arrays(None, (_array(given, "samples"),), (None, "samples"))))
    array = numpy.asarray(given)
    if array.ndim == 0 or array.dtype.kind not in "fiub":
        raise Error("samples must be an image file, a list of image files, or an array of numbers whose first axis is the sample")
    if array.dtype not in (numpy.uint8, numpy.uint16):
        array = array.astype(numpy.float32 if array.dtype.kind == "f" else numpy.int32)
    array = numpy.ascontiguousarray(array)
    dim = (ctypes.c_int64 * array.ndim)(*array.shape[1:])
    kind = {numpy.uint8: b"U8", numpy.uint16: b"U16", numpy.int32: b"I32", numpy.float32: b"F32"}[array.dtype.type]
    struct = Samples(count=len(array), array=array.ctypes.data, type=kind, rank=array.ndim - 1, dim=dim)
    struct.kept = [array, dim]
    return struct
