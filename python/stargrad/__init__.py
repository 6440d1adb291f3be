"""Stargrad in Python: training, evaluation, prediction, generation of text and export with the C library. Arrays are NumPy arrays.

    import stargrad
    run = stargrad.train(model="convnet", data="digits", epochs=5, lr=0.1)
    run.metrics("epoch")[-1]["test_top1"]
    run.predict(["seven.png"]).argmax(axis=1)
    run.weights()["fc.weight"].shape
    run.export("digits.onnx")
    stargrad.Run("runs/gpt").sample("To be", tokens=50, temperature=0.8)
    stargrad.Tokenizer("tokenizer.json").encode("To be")

Options have the names of `stargrad train --help`, with _ for -, and the values of a run's config.json. options() returns all of
them. A run is a folder. The command and this module can read each other's runs. See docs/guides/python.md."""
import ctypes
import functools
import json
import os

import numpy

from .library import Answers, Error, Samples, call, library, take_text
from .tokenizer import Tokenizer
from .weights import load, save

__all__ = ["Error", "Run", "Tokenizer", "evaluate", "load", "names", "options", "plugin", "probabilities", "sample", "save", "train"]


def options():
    """Returns all options of a training and their defaults."""
    return json.loads(take_text(library().sgrad_json_defaults()))


def names(kind):
    """Returns all names of a kind: "models", "ops", "optimizers", "datasets" or "augmentations"."""
    symbols = {"datasets": "sgrad_readers", **{k: f"sgrad_{k}" for k in ("models", "ops", "optimizers", "augmentations")}}
    if kind not in symbols:
        raise Error(f"unknown list '{kind}'; use one of {', '.join(sorted(symbols))}")
    records = ctypes.POINTER(ctypes.POINTER(ctypes.c_char_p)).in_dll(library(), symbols[kind])
    found = []
    while records[len(found)]:                          # a record begins with its name; the list ends with NULL
        found.append(records[len(found)][0].decode())
    return found


def plugin(path):
    """Loads a plug-in: its operations, networks, readers and optimizers can be used after this call
    (docs/develop/add-a-plug-in.md)."""
    call("sgrad_plugin_open", os.fsencode(path))


def train(like=None, **options):
    """Trains and returns the Run. Progress is printed to standard output, as by the command. LIKE is a run or its folder; its
    options are the defaults. Ctrl-C ends the training after a checkpoint. out=…, resume=True continues it."""
    result = ctypes.c_void_p()
    call("sgrad_json_train", _folder(like), _text(options), ctypes.byref(result))
    result = json.loads(take_text(result))
    return Run(result["folder"], result)


def evaluate(run=None, **options):
    """Returns the loss and the metrics of a run, or of model=…, init=WEIGHTS, data=…, on the test set."""
    result = ctypes.c_void_p()
    call("sgrad_json_predict", _folder(run), _text(options), None, ctypes.byref(result), None)
    return json.loads(take_text(result))


def sample(prompts, run=None, tokens=256, temperature=1, top_k=0, top_p=1, repetition_penalty=1, stop=None, tokenizer=None, **options):
    """Generates texts with the language model of a run, or of model=…, init=WEIGHTS. PROMPTS is a text or a list of texts. Returns
    the continuation of the text, or a list of the continuations. Arguments have the meaning and the defaults of the options of
    `stargrad sample`: seed=… too. TOKENIZER is a Tokenizer or its file; default: the run's."""
    wanted = {"prompts": [prompts] if isinstance(prompts, str) else list(prompts), "tokens": tokens, "temperature": temperature,
              "top_k": top_k, "top_p": top_p, "repetition_penalty": repetition_penalty, "stop": stop,
              "tokenizer": tokenizer.path if isinstance(tokenizer, Tokenizer) else tokenizer}
    wanted, result = {key: value for key, value in wanted.items() if value is not None}, ctypes.c_void_p()
    call("sgrad_json_sample", _folder(run), _text(options), _text(wanted), ctypes.byref(result))
    texts = [line["text"] for line in json.loads(take_text(result))]
    return texts[0] if isinstance(prompts, str) else texts


class Run:
    """A run, stored in a folder. result: the result of its training; None if the run was opened from its folder."""

    def __init__(self, folder, result=None):
        self.folder, self.result = os.fspath(folder), result
        if not os.path.exists(os.path.join(self.folder, "config.json")):
            raise Error(f"{self.folder}: is not the folder of a run: it has no config.json")

    def __repr__(self):
        return f"Run({self.folder!r})"

    @property
    def config(self):
        """The content of config.json: options, versions, mean and standard deviation, class names."""
        with open(os.path.join(self.folder, "config.json")) as file:
            return json.load(file)

    @property
    def classes(self):
        """The names of the classes. Without names: "0", "1", …"""
        config = self.config
        return config["class_names"] or [str(c) for c in range(config["classes"])]

    def metrics(self, event="step"):
        """Returns the lines of metrics.jsonl of a kind, "step" or "epoch". A line that is not complete yet is left out."""
        with open(os.path.join(self.folder, "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        return [line for line in lines if line["event"] == event]

    def weights(self, name="model.safetensors"):
        """Returns the final weights, or those in another file of the folder (best.safetensors, a checkpoint): arrays by name."""
        return load(os.path.join(self.folder, name))

    def evaluate(self, **options):
        """Returns the loss and the metrics on the run's test set. data=… selects another test set, init=… other weights."""
        return evaluate(self, **options)

    def predict(self, samples=None, **options):
        """Returns the predictions as float32 (samples, numbers): the logits of the classes, or the predicted numbers. SAMPLES
        must be a list of image files or an array (samples, …): images as uint8 (n,H,W,C), numbers as float32. None: the run's
        test set."""
        answers, keeps = Answers(), []
        given = None if samples is None else _samples(samples, keeps)
        call("sgrad_json_predict", _folder(self), _text(options), given, None, ctypes.byref(answers))
        try:
            said = numpy.ctypeslib.as_array(answers.said, (answers.samples, answers.numbers)).copy()
        finally:
            library().sgrad_predictions_free(ctypes.byref(answers))
        return said

    @functools.cached_property
    def tokenizer(self):
        """The Tokenizer of a language model: that in the folder, or that of the token files; None if neither has one."""
        path = library().sgrad_run_tokenizer(_folder(self), (self.config["options"]["data"] or "").encode())
        return Tokenizer(os.fsdecode(take_text(path))) if path else None

    def sample(self, prompts, **options):
        """Generates texts with the run's language model: sample(prompts, self, **options)."""
        return sample(prompts, self, **options)

    def export(self, path, **options):
        """Writes the network and its weights to an ONNX file (docs/guides/onnx.md), or only the weights to a .safetensors file."""
        call("sgrad_json_export", _folder(self), _text(options), os.fsencode(path))


def probabilities(logits):
    """Returns the softmax of logits over the last axis."""
    shifted = numpy.exp(logits - logits.max(axis=-1, keepdims=True))
    return shifted / shifted.sum(axis=-1, keepdims=True)


def _folder(run):
    return None if run is None else os.fsencode(run.folder if isinstance(run, Run) else run)


def _plain(value):
    """Converts paths and NumPy numbers to Python values."""
    return value.item() if isinstance(value, numpy.generic) else os.fspath(value)


def _text(options):
    return json.dumps(options, default=_plain).encode()


def _samples(samples, keeps):
    """Returns a struct sgrad_json_samples. Appends the arrays that it points to to KEEPS, so that they are not freed."""
    if isinstance(samples, (list, tuple)) and samples and all(isinstance(s, (str, os.PathLike)) for s in samples):
        files = (ctypes.c_char_p * len(samples))(*map(os.fsencode, samples))
        return ctypes.byref(Samples(file=files, count=len(samples)))
    array = numpy.asarray(samples)
    if array.ndim == 0 or array.dtype.kind not in "fiub":
        raise Error("samples must be a list of image files, or an array of numbers whose first axis is the sample")
    if array.dtype not in (numpy.uint8, numpy.uint16):
        array = array.astype(numpy.float32 if array.dtype.kind == "f" else numpy.int32)
    array = numpy.ascontiguousarray(array)
    keeps.append(array)
    dim = (ctypes.c_int64 * array.ndim)(*array.shape[1:])
    kind = {numpy.uint8: b"U8", numpy.uint16: b"U16", numpy.int32: b"I32", numpy.float32: b"F32"}[array.dtype.type]
    return ctypes.byref(Samples(count=len(array), array=array.ctypes.data, type=kind, rank=array.ndim - 1, dim=dim))
