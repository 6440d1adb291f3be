"""Stargrad in Python: training, evaluation, prediction, generation of text and export with the C library. Arrays are NumPy arrays.

    import stargrad
    run = stargrad.train(model="convnet", data="digits", epochs=5, lr=0.1)
    run.metrics("epoch")[-1]["test_top1"]
    run.predict(["seven.png"]).argmax(axis=1)
    run.weights()["fc.weight"].shape
    run.export("digits.onnx")
    stargrad.train(model="mlp", data=(x, y), on_epoch=print)
    stargrad.Model.load("runs/pets").logits(images)
    stargrad.Run("runs/gpt").sample("To be", tokens=50, temperature=0.8)
    stargrad.Tokenizer("tokenizer.json").encode("To be")

Options have the names of `stargrad train --help`, with _ for -, and the values of a run's config.json. options() returns all of
them. A run is a folder. The command and this module can read each other's runs. See docs/guides/python.md."""
import ctypes
import functools
import json
import os

import numpy

from . import arrays, results
from .callbacks import Callbacks, Progress, Stop
from .library import Answers, Error, Samples, Training, call, library, take_text
from .model import Model
from .results import probabilities
from .tokenizer import Tokenizer
from .weights import load, save

__all__ = ["Error", "Model", "Run", "Stop", "Tokenizer", "evaluate", "load", "names", "options", "plugin", "probabilities", "sample", "save",
           "train"]
__version__ = "0.2.0"


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


def train(like=None, data=None, test=0.1, on_step=None, on_epoch=None, progress=False, **options):
    """Trains and returns the Run. LIKE is a run or its folder; its options are the defaults.

    data: the name of a data set, or a pair of arrays (x, y). test: with arrays, the pair of the test set, or the fraction of the
    samples that are held out for it, as by the option split. on_step, on_epoch: functions that are called with a dictionary, the line of metrics.jsonl,
    after each step and after each evaluation. If one returns or raises Stop, the run ends as after its last step. If it raises
    another exception, the run ends with a checkpoint, and the exception is raised. progress: a line with the current step and
    the remaining time, instead of the output of the command; or an open file for it. Ctrl-C ends the training after a checkpoint.
    out=…, resume=True continues it."""
    line = Progress(None if progress is True else progress) if progress else None
    calls, struct, result = Callbacks(on_step, on_epoch, line), None, ctypes.c_void_p()
    if data is not None and not isinstance(data, str):
        held_out = isinstance(test, (int, float))
        if held_out and "split" not in options and not 0 < test < 1:
            raise Error(f"test is {test}; it must be a pair of arrays, or a fraction between 0 and 1")
        if held_out:
            options.setdefault("split", test)
        struct = arrays.arrays(arrays.pair(data), None if held_out else arrays.pair(test, "test"))
    elif data is not None:
        options["data"] = data
    training = Training(arrays=struct and ctypes.pointer(struct), events=calls.events, quiet=bool(progress))
    try:
        call("sgrad_json_train", _folder(like), _options(options), ctypes.byref(training), ctypes.byref(result))
    except (Error, KeyboardInterrupt):
        if calls.raised is None:
            raise
    if calls.raised is not None:
        raise calls.raised
    result = json.loads(take_text(result))
    return Run(result["folder"], result)


def evaluate(run=None, data=None, details=False, **options):
    """Returns the loss and the metrics of a run, or of model=…, init=WEIGHTS, on the test set of DATA: the name of a data set, or a
    pair of arrays (x, y); default: the run's. details: also the results of each class, the confusion matrix and the calibration
    error."""
    given, result, answers = None, ctypes.c_void_p(), Answers()
    if data is not None and not isinstance(data, str):
        given = Samples(arrays=ctypes.pointer(arrays.arrays(None, arrays.pair(data), (None, "data"))))
    elif data is not None:
        options["data"] = data
    call("sgrad_json_predict", _folder(run), _options(options), given, ctypes.byref(result), ctypes.byref(answers) if details else None)
    metrics = json.loads(take_text(result))
    if not details:
        return metrics
    logits, labels, _ = _take(answers)
    if labels is None or labels.ndim != 1:
        raise Error("details requires samples with one class each")
    known = run if isinstance(run, Run) or run is None else Run(run)
    names = known.classes if known else [str(c) for c in range(logits.shape[1])]
    return {**metrics, **results.details(logits, labels, names)}


def _take(answers):
    """Returns the logits, the labels and the names of the samples of a struct sgrad_predictions, and frees it."""
    try:
        shape = (answers.samples, *answers.shape.dim[:answers.shape.rank])
        logits = numpy.ctypeslib.as_array(answers.said, shape).copy()
        shape = shape[:-1] if len(shape) > 2 else (answers.samples,)
        labels = numpy.ctypeslib.as_array(answers.label, shape).copy() if answers.labels else None
        names = [os.fsdecode(answers.name[i]) for i in range(answers.samples)]
        return logits, labels, [int(name) for name in names] if answers.numbered else names
    finally:
        library().sgrad_predictions_free(ctypes.byref(answers))


def _predict(run, samples, options, classes=None):
    """Returns the logits of the samples, their labels, if they are known, their names, and whether SAMPLES is one sample: an image
    file, or an array without an axis of samples. Without a run, SAMPLES are images, and CLASSES is the number of classes."""
    answers, given, one = Answers(), None, False
    paths = arrays.files(samples)
    if paths:
        given, one = arrays.samples_of_files(paths), arrays.is_path(samples) and not os.path.isdir(samples)
    elif samples is not None:
        of = arrays.Input(_channels(options)) if run is None else arrays.Input.of_run((run if isinstance(run, Run) else Run(run)).config)
        array, one = arrays.array(samples, of)
        given, options = arrays.samples(array, of), options if run is not None else {"data": arrays.like(array, classes), **options}
    if not isinstance(options.get("data", ""), str):
        raise Error("data must be the name of a data set; pass an array as samples")
    call("sgrad_json_predict", _folder(run), _options(options), given, None, ctypes.byref(answers))
    logits, labels, names = _take(answers)
    return logits, labels if samples is None else None, names, one


def _channels(options):
    """Returns the number of channels of the option mean, a text or numbers."""
    mean = options.get("mean", ())
    return mean.count(",") + 1 if isinstance(mean, str) else numpy.size(mean)


def sample(prompts, run=None, tokens=256, temperature=1, top_k=0, top_p=1, repetition_penalty=1, stop=None, tokenizer=None, **options):
    """Generates texts with the language model of a run, or of model=…, init=WEIGHTS. PROMPTS is a text or a list of texts. Returns
    the continuation of the text, or a list of the continuations. Arguments have the meaning and the defaults of the options of
    `stargrad sample`: seed=… too. TOKENIZER is a Tokenizer or its file; default: the run's."""
    wanted = {"prompts": [prompts] if isinstance(prompts, str) else list(prompts), "tokens": tokens, "temperature": temperature,
              "top_k": top_k, "top_p": top_p, "repetition_penalty": repetition_penalty, "stop": stop,
              "tokenizer": tokenizer.path if isinstance(tokenizer, Tokenizer) else tokenizer}
    wanted, result = {key: value for key, value in wanted.items() if value is not None}, ctypes.c_void_p()
    call("sgrad_json_sample", _folder(run), _options(options), _text(wanted), ctypes.byref(result))
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
        """The names of the classes: of class_names=FILE, or else of the data set. Without names: "0", "1", …"""
        config = self.config
        return config.get("class_titles") or config["class_names"] or [str(c) for c in range(config["classes"])]

    def metrics(self, event="step"):
        """Returns the lines of metrics.jsonl of a kind, "step" or "epoch". A line that is not complete yet is left out."""
        with open(os.path.join(self.folder, "metrics.jsonl")) as file:
            lines = [json.loads(line) for line in file if line.endswith("\n")]
        return [line for line in lines if line["event"] == event]

    def weights(self, name="model.safetensors"):
        """Returns the final weights, or those in another file of the folder (best.safetensors, a checkpoint): arrays by name."""
        return load(os.path.join(self.folder, name))

    def evaluate(self, data=None, details=False, **options):
        """Returns the loss and the metrics on the run's test set: evaluate(self, …). init=… selects other weights."""
        return evaluate(self, data, details, **options)

    def predict(self, samples=None, **options):
        """Returns the predictions as float32 (samples, numbers): the logits of the classes, or the predicted numbers. If pixels
        have classes, they are (samples,H,W,classes), or (samples,D,H,W,classes) for volumes; of texts, (samples,tokens,classes).
        SAMPLES must be image files and folders of images, or an array (samples, …): images as uint8 (n,H,W,C), numbers as float32.
        Of one file, or an array that is one sample, the result is (numbers). None: the run's test set."""
        logits, _, _, one = _predict(self, samples, options)
        return logits[0] if one else logits

    def table(self, samples=None, top=1, **options):
        """Returns the predictions as a list of dictionaries, rows of a pandas.DataFrame: sample, class and probability, for the
        TOP most probable classes of each sample, and label, if it is known; or sample and number. SAMPLES: as of predict. A
        sample has the name that `stargrad predict` prints; a sample without a name has its number, from 0."""
        logits, labels, samples, _ = _predict(self, samples, options)
        names = self.classes if self.config["classes"] else []
        return results.table(logits, labels if names else None, names, samples, top)

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
        call("sgrad_json_export", _folder(self), _options(options), os.fsencode(path))


def _folder(run):
    return None if run is None else os.fsencode(run.folder if isinstance(run, Run) else run)


def _value(value):
    """Returns the value of an option: lists of numbers become texts, "0.5,1"."""
    value = value.tolist() if isinstance(value, numpy.ndarray) else value
    numbers = isinstance(value, (list, tuple)) and value and all(isinstance(one, (int, float, numpy.number)) for one in value)
    return ",".join(map(str, numpy.asarray(value).tolist())) if numbers else value


def _plain(value):
    """Converts NumPy numbers and paths to Python values."""
    return value.item() if isinstance(value, numpy.generic) else os.fsdecode(value)


def _text(values):
    """Returns the JSON object of named values."""
    for name, value in values.items():
        try:
            text = json.dumps(value, default=_plain, allow_nan=False)
        except (TypeError, ValueError) as why:
            raise Error(f"{name}: {value!r} is not supported: {why}") from None
        if "\\u0000" in text.replace("\\\\", ""):
            raise Error(f"{name} must not contain the character NUL")
    return json.dumps(values, default=_plain).encode()


def _options(options):
    return _text({name: _value(value) for name, value in options.items()})
