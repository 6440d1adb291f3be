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
        names = array.dtype.kind in "OSU" and what.startswith("y ")
        raise Error(f"{what} has values of type {array.dtype}; they must be integers or real numbers" +
                    ("; names, y = numpy.unique(y, return_inverse=True) converts names of classes" if names else ""))
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


class Input:
    """The input of a network. channels: of its images, 0 if it has none. shape: of its features; None: the input is not features.
    rows: they may have any type, and the library normalises them as in training. classes_of_pixels: of images with a class for each
    pixel; otherwise 0."""

    def __init__(self, channels, shape=None, rows=False, classes_of_pixels=0):
        self.channels, self.shape, self.rows, self.classes_of_pixels = channels, shape, rows, classes_of_pixels

    @classmethod
    def of_run(cls, config):
        """Returns the input that config.json describes."""
        features, in_arrays = config.get("features"), (config["options"]["data"] or "").split(":")[0] in ("arrays", "npy")
        if features:
            return cls(0, tuple(features.get("shape", [features["count"]])), in_arrays)
        pixels = in_arrays and any(metric["name"] == "iou" for metric in config["metrics"])
        return cls(len(config["mean"]), classes_of_pixels=config["classes"] if pixels else 0)

    def is_one(self, array):
        """Returns whether ARRAY is one sample, without an axis of samples. Grey images may lack their axis of one channel."""
        if self.shape:
            grey = self.shape[-1] == 1 and array.shape == self.shape[:-1]
            return self.shape != (1,) and (array.shape == self.shape or grey)
        if self.channels:
            return array.shape[2:] == (self.channels,) or (array.ndim == 2 and self.channels == 1)
        return array.ndim == 1


def is_path(value):
    return isinstance(value, (str, os.PathLike))


def like(samples, classes):
    """Returns the name of a data set with images as SAMPLES, (n,H,W,C) or (n,H,W)."""
    shape = numpy.shape(samples)[1:]
    shape = shape if len(shape) == 3 else (*shape, 1)
    if len(shape) != 3:
        raise Error("samples must be an array of images, (n,H,W,C) or (n,H,W), or image files")
    return f"synthetic:{shape[0]}x{shape[1]}x{shape[2]},{classes},1"


def _masked(x, classes):
    """Returns struct sgrad_json_samples of images whose pixels have classes. The library recognises them by their targets, so these
    are some that contain the last class."""
    if x.ndim not in (3, 4):
        raise Error(f"samples must be images, (n,H,W,C) or (n,H,W), not an array of shape {x.shape}")
    if not x.size:
        raise Error("samples must contain at least one image")
    y = numpy.full(x.shape[:3], 0, numpy.int32)
    y.flat[0] = classes - 1
    return Samples(arrays=ctypes.pointer(arrays(None, (x, y), (None, "samples"))))


def files(given):
    """Returns GIVEN, a path or a list of paths, as a list of paths; None: it is something else."""
    paths = [given] if is_path(given) else given
    return paths if isinstance(paths, (list, tuple)) and paths and all(is_path(one) for one in paths) else None


def array(given, of):
    """Returns GIVEN, samples for the Input OF, as an array with an axis of samples, and whether it had none."""
    values = numpy.asarray(given)
    if values.ndim == 0 or values.dtype.kind not in "fiub":
        raise Error("samples must be an image file, a list of image files, or an array of numbers whose first axis is the sample")
    one = of.is_one(values)
    return values[None] if one else values, one


def samples(array, of):
    """Returns struct sgrad_json_samples of an array without targets for the Input OF. The structure keeps the array alive."""
    if of.classes_of_pixels:
        return _masked(_array(array, "samples"), of.classes_of_pixels)
    if of.rows:
        return Samples(arrays=ctypes.pointer(arrays(None, (_array(array, "samples"),), (None, "samples"))))
    if array.dtype not in (numpy.uint8, numpy.uint16):
        array = array.astype(numpy.float32 if array.dtype.kind == "f" else numpy.int32)
    array = numpy.ascontiguousarray(array)
    dim = (ctypes.c_int64 * array.ndim)(*array.shape[1:])
    kind = {numpy.uint8: b"U8", numpy.uint16: b"U16", numpy.int32: b"I32", numpy.float32: b"F32"}[array.dtype.type]
    struct = Samples(count=len(array), array=array.ctypes.data, type=kind, rank=array.ndim - 1, dim=dim)
    struct.kept = [array, dim]
    return struct


def samples_of_files(paths):
    """Returns struct sgrad_json_samples of image files and folders. The structure keeps their names alive."""
    return Samples(file=(ctypes.c_char_p * len(paths))(*map(os.fsencode, paths)), count=len(paths))
