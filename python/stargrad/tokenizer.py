"""tokenizer.py: converts text to tokens and back (datasets/tokenizers/tokenizer.h)."""
import ctypes
import os
import threading
import weakref

import numpy

from .library import Error, call, library


class Tokenizer:
    """A tokenizer, read from Hugging Face's tokenizer.json, or from vocab.json with merges.txt in the same folder. Its results are
    those of the library `tokenizers`. Several threads may share it.

    vocabulary: the number of tokens, including added ones: the option vocabulary of a network. begin: the tokens that the
    tokenizer's template puts before a text, an int32 array."""

    def __init__(self, path):
        self.path = os.path.abspath(path)
        self._handle, self._lock = ctypes.c_void_p(), threading.Lock()
        call("sgrad_tokenizer_open", os.fsencode(path), ctypes.byref(self._handle))
        self._encoder = ctypes.c_void_p(library().sgrad_encoder_create(self._handle))
        weakref.finalize(self, _close, self._encoder, self._handle)
        self.vocabulary = library().sgrad_tokenizer_tokens(self._handle)
        begins = ctypes.c_int()
        begin = library().sgrad_tokenizer_begin(self._handle, ctypes.byref(begins))
        self.begin = numpy.ctypeslib.as_array(begin, (begins.value,)).copy() if begins.value else numpy.empty(0, numpy.int32)

    def __repr__(self):
        return f"Tokenizer({self.path!r})"

    def encode(self, text, add_special_tokens=True):
        """Returns the tokens of a text as int32. add_special_tokens: with those that the tokenizer's template puts before a text."""
        data, count = text.encode(), ctypes.c_size_t()
        with self._lock:                                # the library overwrites the tokens in its next call
            tokens = library().sgrad_encode(self._encoder, data, len(data), ctypes.byref(count))
            tokens = numpy.ctypeslib.as_array(tokens, (count.value,)).copy()
        return numpy.concatenate([self.begin, tokens]) if add_special_tokens else tokens

    def token(self, text):
        """Returns the token with this text, for example <|endoftext|>; None: there is none."""
        token = library().sgrad_tokenizer_find(self._handle, text.encode(), False)
        return token if token >= 0 else None

    @property
    def dropped(self):
        """The number of characters, of all calls of encode, that have no token and were left out."""
        return library().sgrad_encoder_dropped(self._encoder)

    def decode(self, tokens, skip_special_tokens=True):
        """Returns the text of tokens. Bytes that belong to no character become U+FFFD. Unknown tokens have no text.
        skip_special_tokens: those that the file marks as special, for example <|end_of_text|>, have no text either."""
        tokens, parts, lib = numpy.asarray(tokens), [], library()
        if tokens.ndim != 1 or tokens.size and tokens.dtype.kind not in "iu":
            raise Error("tokens must be a list of whole numbers")
        size, decoder = ctypes.c_size_t(), ctypes.c_void_p(lib.sgrad_decoder_create(self._handle, False))
        try:
            for token in tokens[(tokens >= 0) & (tokens < self.vocabulary)].tolist():
                if not (skip_special_tokens and lib.sgrad_tokenizer_is_special(self._handle, token)):
                    text = lib.sgrad_decode(decoder, token, ctypes.byref(size))
                    parts.append(ctypes.string_at(text, size.value))
            text = lib.sgrad_decode_end(decoder, ctypes.byref(size))
            parts.append(ctypes.string_at(text, size.value))
        finally:
            lib.sgrad_decoder_destroy(decoder)
        return b"".join(parts).decode()


def _close(encoder, handle):
    library().sgrad_encoder_destroy(encoder)
    library().sgrad_tokenizer_close(handle)
