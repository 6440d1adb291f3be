"""library.py: loads libstargrad at its first use and declares its functions (graphs/json/json_calls.h,
datasets/tokenizers/tokenizer.h). Warnings of the library are printed to sys.stderr; errors are raised as Error."""
import ctypes
import ctypes.util
import functools
import glob
import os
import sys
import threading

HERE = os.path.dirname(__file__)


class Error(Exception):
    """A call of the library failed. The message is the library's."""


class Array(ctypes.Structure):
    """struct sgrad_array"""
    _fields_ = [("data", ctypes.c_void_p), ("type", ctypes.c_char_p), ("rank", ctypes.c_int), ("dim", ctypes.POINTER(ctypes.c_int64)),
                ("name", ctypes.c_char_p)]


class Arrays(ctypes.Structure):
    """struct sgrad_arrays"""
    _fields_ = [("x", Array * 2), ("y", Array * 2)]


class Samples(ctypes.Structure):
    """struct sgrad_json_samples"""
    _fields_ = [("file", ctypes.POINTER(ctypes.c_char_p)), ("count", ctypes.c_int64), ("array", ctypes.c_void_p), ("type", ctypes.c_char_p),
                ("rank", ctypes.c_int), ("dim", ctypes.POINTER(ctypes.c_int64)), ("arrays", ctypes.POINTER(Arrays))]


Start = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_char_p)
Event = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p)


class Events(ctypes.Structure):
    """struct sgrad_train_events"""
    _fields_ = [("start", Start), ("step", Event), ("epoch", Event), ("arg", ctypes.c_void_p)]


class Training(ctypes.Structure):
    """struct sgrad_json_training"""
    _fields_ = [("arrays", ctypes.POINTER(Arrays)), ("events", Events), ("quiet", ctypes.c_bool)]


class Shape(ctypes.Structure):
    """struct sgrad_shape"""
    _fields_ = [("rank", ctypes.c_int), ("dim", ctypes.c_int64 * 5)]


class Answers(ctypes.Structure):
    """struct sgrad_predictions"""
    _fields_ = [("samples", ctypes.c_int64), ("numbers", ctypes.c_int64), ("said", ctypes.POINTER(ctypes.c_float)),
                ("labels", ctypes.c_int64), ("label", ctypes.POINTER(ctypes.c_int32)), ("name", ctypes.POINTER(ctypes.c_char_p)),
                ("numbered", ctypes.c_bool), ("shape", Shape)]


def path():
    """Returns the file of the library: STARGRAD_LIBRARY, else the one in a binary wheel, else the one that `make install` noted in
    library.txt, else the system's."""
    named = os.environ.get("STARGRAD_LIBRARY")
    if named:
        return named
    packed = glob.glob(os.path.join(glob.escape(HERE), "lib", "libstargrad.so.*"))
    if packed:
        return packed[0]
    noted = os.path.join(HERE, "library.txt")
    if os.path.exists(noted):
        with open(noted) as file:
            return file.read().strip()
    found = ctypes.util.find_library("stargrad")
    if found:
        return found
    raise Error("libstargrad.so was not found; set STARGRAD_LIBRARY=DIR/lib/libstargrad.so, or install the module "
                "from DIR/share/stargrad/python (docs/guides/python.md)")


Hear = ctypes.CFUNCTYPE(None, ctypes.c_char_p)
_said = []


@Hear
def _hear(line):
    text = line.decode("utf-8", "replace").rstrip("\n").removeprefix("stargrad: ")
    if text.startswith("warning: "):
        print(f"stargrad: {text}", file=sys.stderr, flush=True)
    else:
        _said.append(text)


@functools.cache
def library():
    try:
        lib = ctypes.CDLL(path(), mode=ctypes.RTLD_GLOBAL)      # plug-ins, those of MPI too, need its symbols
        text, texts = ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)
        lib.sgrad_json_train.argtypes = [text, text, ctypes.POINTER(Training), texts]
        lib.sgrad_json_predict.argtypes = [text, text, ctypes.POINTER(Samples), texts, ctypes.POINTER(Answers)]
        lib.sgrad_json_export.argtypes = [text, text, text]
        lib.sgrad_json_sample.argtypes = [text, text, text, texts]
        lib.sgrad_plugin_open.argtypes = [text]
        lib.sgrad_json_defaults.restype = ctypes.c_void_p
        lib.sgrad_strerror.restype = text
        lib.sgrad_image_endings.restype = ctypes.c_void_p
        lib.sgrad_run_tokenizer.argtypes, lib.sgrad_run_tokenizer.restype = [text, text], ctypes.c_void_p
        _declare_tokenizer(lib)
    except (OSError, AttributeError) as why:
        variable = "STARGRAD_LIBRARY=" if os.environ.get("STARGRAD_LIBRARY") else ""
        raise Error(f"{variable}{path()}: is not a libstargrad that this version of the module can load: {why}") from None
    lib.sgrad_log_set_callback(_hear)
    return lib


def _declare_tokenizer(lib):
    handle, size, count = ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t), ctypes.POINTER(ctypes.c_int)
    tokens, nothing = ctypes.POINTER(ctypes.c_int32), None
    for name, result, *arguments in (
            ("tokenizer_open", ctypes.c_int, ctypes.c_char_p, ctypes.POINTER(handle)), ("tokenizer_close", nothing, handle),
            ("tokenizer_tokens", ctypes.c_int, handle), ("tokenizer_begin", tokens, handle, count),
            ("tokenizer_is_special", ctypes.c_bool, handle, ctypes.c_int),
            ("tokenizer_find", ctypes.c_int, handle, ctypes.c_char_p, ctypes.c_bool), ("encoder_dropped", ctypes.c_size_t, handle),
            ("encoder_create", handle, handle), ("encoder_destroy", nothing, handle),
            ("encode", tokens, handle, ctypes.c_char_p, ctypes.c_size_t, size),
            ("decoder_create", handle, handle, ctypes.c_bool), ("decoder_destroy", nothing, handle),
            ("decode", handle, handle, ctypes.c_int, size), ("decode_end", handle, handle, size)):
        function = getattr(lib, f"sgrad_{name}")
        function.restype, function.argtypes = result, arguments


_free = ctypes.CDLL(None).free
_free.argtypes = [ctypes.c_void_p]


def take_text(pointer):
    """Returns the text at a C pointer, and frees it."""
    try:
        return ctypes.string_at(pointer).decode()
    finally:
        _free(pointer)


_running = threading.Lock()


def call(name, *arguments):
    """Calls a function that returns 0 or an error code. Raises Error, or KeyboardInterrupt after a signal."""
    if not name.startswith("sgrad_json_"):
        return _call(name, *arguments)
    if not _running.acquire(blocking=False):        # also by a function that is called during a training
        raise Error("a training or another use of a network is running in this process; only one can run at a time")
    try:
        return _call(name, *arguments)
    finally:
        _running.release()


def _call(name, *arguments):
    function = getattr(library(), name)
    _said.clear()
    error = function(*arguments)
    if not error:
        return
    why = library().sgrad_strerror(error).decode()
    if why == "interrupted by a signal":
        raise KeyboardInterrupt("; ".join(_said) or why)
    raise Error("; ".join(_said) or why)
