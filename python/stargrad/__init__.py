"""Stargrad in Python: training, and what comes after it, by the C library; numbers are NumPy's.

    import stargrad
    run = stargrad.train(model="convnet", data="digits", epochs=5, lr=0.1)
    run.metrics("epoch")[-1]["test_top1"]
    run.predict(["seven.png"]).argmax(axis=1)
    run.weights()["fc.weight"].shape
    run.export("digits.onnx")

Options are called and written as in a run's config.json: those of `stargrad train --help`, with _ for -. options() has them all. A run
is its folder: what the command can do with it, this can, and the other way round. docs/guides/python.md says more."""
import ctypes
import json
import os

import numpy

from .library import Answers, Error, Samples, call, library, take_text
from .weights import load, save

__all__ = ["Error", "Run", "evaluate", "load", "names", "options", "plugin", "probabilities", "save", "train"]


def options():
    """Every option of a training, and what holds where it is not given."""
    return json.loads(take_text(library().sgrad_json_defaults()))


def names(kind):
    """What there is of a kind: "models", "ops", "optimizers", "datasets", "augmentations"."""
    symbols = {"datasets": "sgrad_readers", **{k: f"sgrad_{k}" for k in ("models", "ops", "optimizers", "augmentations")}}
    if kind not in symbols:
        raise Error(f"unknown list '{kind}'; use one of {', '.join(sorted(symbols))}")
    records = ctypes.POINTER(ctypes.POINTER(ctypes.c_char_p)).in_dll(library(), symbols[kind])
    found = []
    while records[len(found)]:                          # each begins with its name; NULL ends
        found.append(records[len(found)][0].decode())
    return found


def plugin(path):
    """Opens a plug-in: its operations, networks, readers, optimizers are there from here on (docs/develop/add-a-plug-in.md)."""
    call("sgrad_plugin_open", os.fsencode(path))


def train(like=None, **options):
    """Trains, and returns the Run; what the command tells goes to standard output. LIKE: a run, or its folder, whose options hold where
    none is given. Ctrl-C ends a training as it ends the command's: a checkpoint is written, and out=…, resume=True goes on."""
    result = ctypes.c_void_p()
    call("sgrad_json_train", _folder(like), _text(options), ctypes.byref(result))
    result = json.loads(take_text(result))
    return Run(result["folder"], result)


def evaluate(run=None, **options):
    """Loss and metrics on a test set: of a run, or of model=…, init=WEIGHTS, data=…."""
    result = ctypes.c_void_p()
    call("sgrad_json_predict", _folder(run), _text(options), None, ctypes.byref(result), None)
    return json.loads(take_text(result))


class Run:
    """A run, which is its folder. result: what the training that made it came to; None of one that was opened."""

    def __init__(self, folder, result=None):
        self.folder, self.result = os.fspath(folder), result
        if not os.path.exists(os.path.join(self.folder, "config.json")):
            raise Error(f"{self.folder}: is not the folder of a run: it has no config.json")

    def __repr__(self):
        return f"Run({self.folder!r})"

    @property
    def config(self):
        """config.json: options, versions, mean and deviation, names of classes."""
        with open(os.path.join(self.folder, "config.json")) as file:
            return json.load(file)

    @property
    def classes(self):
        """What the classes are called."""
        config = self.config
        return config["class_names"] or [str(c) for c in range(config["classes"])]

    def metrics(self, event="step"):
        """The lines of metrics.jsonl of a kind, "step" or "epoch", as far as they are written."""
        with open(os.path.join(self.folder, "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        return [line for line in lines if line["event"] == event]

    def weights(self, name="model.safetensors"):
        """Arrays by name, of the final weights or of another file in the folder: "best.safetensors", a checkpoint."""
        return load(os.path.join(self.folder, name))

    def evaluate(self, **options):
        """Loss and metrics on its test set, or on that of data=…; init=…: of other weights."""
        return evaluate(self, **options)

    def predict(self, samples=None, **options):
        """What it says (samples, numbers), float32: logits of classes, or the numbers themselves. SAMPLES are a list of image files, or
        an array (samples, …) of what it was trained on: images as uint8 (n,H,W,C), numbers as float32; None: its test set."""
        answers, keeps = Answers(), []
        given = None if samples is None else _samples(samples, keeps)
        call("sgrad_json_predict", _folder(self), _text(options), given, None, ctypes.byref(answers))
        try:
            said = numpy.ctypeslib.as_array(answers.said, (answers.samples, answers.numbers)).copy()
        finally:
            library().sgrad_predictions_free(ctypes.byref(answers))
        return said

    def export(self, path, **options):
        """Writes its network and weights as an ONNX file (docs/guides/onnx.md)."""
        call("sgrad_json_export", _folder(self), _text(options), os.fsencode(path))


def probabilities(logits):
    """The softmax of logits, over the last axis."""
    shifted = numpy.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def _folder(run):
    return None if run is None else os.fsencode(run.folder if isinstance(run, Run) else run)


def _plain(value):
    """Paths and NumPy's numbers are given as Python's."""
    return value.item() if isinstance(value, numpy.generic) else os.fspath(value)


def _text(options):
    return json.dumps(options, default=_plain).encode()


def _samples(samples, keeps):
    """struct sgrad_json_samples; KEEPS holds what it points to."""
    if isinstance(samples, (list, tuple)) and samples and all(isinstance(s, (str, os.PathLike)) for s in samples):
        files = (ctypes.c_char_p * len(samples))(*map(os.fsencode, samples))
        return ctypes.byref(Samples(file=files, count=len(samples)))
    array = numpy.asarray(samples)
    if array.ndim == 0 or array.dtype.kind not in "fiub":
        raise Error("samples must be a list of image files, or an array of numbers whose first axis is that of samples")
    if array.dtype not in (numpy.uint8, numpy.uint16):
        array = array.astype(numpy.float32 if array.dtype.kind == "f" else numpy.int32)
    array = numpy.ascontiguousarray(array)
    keeps.append(array)
    dim = (ctypes.c_int64 * array.ndim)(*array.shape[1:])
    kind = {numpy.uint8: b"U8", numpy.uint16: b"U16", numpy.int32: b"I32", numpy.float32: b"F32"}[array.dtype.type]
    return ctypes.byref(Samples(count=len(array), array=array.ctypes.data, type=kind, rank=array.ndim - 1, dim=dim))
