"""token_files.py: writes token files as `stargrad tokenize` does: train.bin, val.bin and tokens.json. For convert.py."""
import json
import os
import shutil

import numpy

from .library import Error
from .tokenizer import Tokenizer

ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<|im_end|>")
MOST = (1 << 32) - 1        # tokens of a file: its header has 32 bits for their number
LARGEST = (1 << 31) - 2     # token: the size of a vocabulary has 31 bits


class File:
    """A file of tokens with llm.c's header, which is written at the end."""

    def __init__(self, path, bits):
        self.path, self.bits, self.tokens, self.documents, self.bytes, self.largest = path, bits, 0, 0, 0, 0
        self.file = open(path, "wb")
        self.file.write(bytes(1024))

    def add(self, tokens):
        if tokens.size:
            self.largest = max(self.largest, int(tokens.max()))
            self.file.write(tokens.astype(f"<u{self.bits // 8}").tobytes())
        self.tokens += tokens.size
        self.documents += 1
        check_most(self.tokens, self.path)

    def close(self):
        self.file.seek(0)
        self.file.write(numpy.array([20240520, 1, self.tokens] if self.bits == 16 else [20240801, 7, self.tokens], "<u4").tobytes())
        self.file.close()

    def narrow(self):
        """Rewrites the file, which is closed and has 32 bits, with 16 bits."""
        wide, self.bits = self.path, 16
        with open(wide, "rb") as source, open(wide + ".16", "wb") as file:
            source.seek(1024)
            file.write(numpy.array([20240520, 1, self.tokens] + [0] * 253, "<u4").tobytes())
            while block := source.read(1 << 22):
                file.write(numpy.frombuffer(block, "<u4").astype("<u2").tobytes())
        os.replace(wide + ".16", wide)


def check_most(tokens, path):
    """A file must not have more tokens than its header can state."""
    if tokens > MOST:
        raise Error(f"{os.path.basename(path)} would have more than {MOST} tokens, the most of a file; convert the input files in parts")


def check_some(files, documents, options):
    """Each file must have a token."""
    for split, file in files.items():
        if file.tokens:
            continue
        if "val" in documents:
            raise Error(f"{split}.bin would have no tokens, because no document of the split {split} has one; add documents, or, without validation "
                        "documents, give --split train, which divides those of train")
        raise Error(f"{split}.bin would have no tokens with --val {options.val}, of {sum(f.documents for f in files.values())} documents; give another "
                    "--val, more documents, or files of a split validation")


def check_lengths(lengths, options, more):
    """Refuses documents whose files would be too large. LENGTHS: of each split, the tokens of each document, to which MORE are added."""
    total = {"train": 0, "val": 0}
    for split, counts in lengths.items():
        for i, count in enumerate(counts):
            total[file_of(split, i, lengths, options)] += count + more
    for split, tokens in total.items():
        check_most(tokens, f"{split}.bin")


def file_of(split, i, splits, options):
    """Returns "train" or "val" of document I of a split."""
    return "val" if "val" not in splits and is_val(i, options.val) else split


def end_of(tokenizer, name):
    """Returns the token after each document; None: none."""
    if name == "none":
        return None
    end = next((token for token in map(tokenizer.token, [name] if name else ENDS) if token is not None), None)
    if end is None:
        raise Error(f"the tokenizer has no token '{name}'" if name else f"the tokenizer has none of the tokens {', '.join(ENDS)}, one of which would "
                    "follow each document; give --end TOKEN, or --end none")
    return end


def end_number(text):
    """Returns the number of the token after each document, of lists of tokens; None: none."""
    if text in (None, "none"):
        return None
    if not (text.isdecimal() and len(text) < 20 and int(text) <= LARGEST):
        raise Error(f"--end {text}: must be the number of a token, from 0 to {LARGEST}, because there is no tokenizer; or none")
    return int(text)


def whole(value, where):
    """Returns a list of tokens as an array."""
    tokens = numpy.asarray(value if value is not None else [])
    if tokens.ndim != 1 or tokens.size and (tokens.dtype.kind not in "iu" or tokens.min() < 0 or tokens.max() > LARGEST):
        raise Error(f"{where}: must be a list of numbers from 0 to {LARGEST}")
    return tokens.astype(numpy.int64)


def is_val(i, fraction):
    """Every (1 / FRACTION)-th document is for validation, from the first on, as of stargrad tokenize."""
    unit = 1000000000
    share = round(fraction * unit)
    return -(-(i + 1) * share // unit) > -(-i * share // unit)


def write(documents, lengths, options, folder):
    """Writes the documents of each split, texts or lists of tokens, to FOLDER. LENGTHS: the numbers of tokens of lists by split; None: unknown."""
    tokenizer = Tokenizer(options.tokenizer) if options.tokenizer else None
    if tokenizer:
        end, vocabulary = end_of(tokenizer, options.end), tokenizer.vocabulary
    else:
        end, vocabulary = end_number(options.end), None
    if "val" not in documents and not 0 < options.val < 1:
        raise Error(f"--val {options.val}: must be a fraction between 0 and 1")
    if lengths:
        check_lengths(lengths, options, 0 if end is None else 1)
    bits = 16 if vocabulary and vocabulary <= 65536 else 32
    files = {split: File(os.path.join(folder, f"{split}.bin"), bits) for split in ("train", "val")}
    tail = numpy.array([] if end is None else [end], numpy.int64)
    for split, texts in documents.items():
        for i, text in enumerate(texts):
            where = f"{split}, row {i}"
            if tokenizer and not isinstance(text, str):
                raise Error(f"{where}: has no text")
            file = files[file_of(split, i, documents, options)]
            file.add(numpy.concatenate([tokenizer.encode(text) if tokenizer else whole(text, where), tail]))
            file.bytes += len(text.encode()) if tokenizer else 0
    check_some(files, documents, options)
    for file in files.values():
        file.close()
    if not vocabulary:
        vocabulary = 1 + max(file.largest for file in files.values())
        if vocabulary <= 65536:
            for file in files.values():
                file.narrow()
    finish(files, tokenizer, vocabulary, end, folder)


def finish(files, tokenizer, vocabulary, end, folder):
    """Writes tokens.json, and copies the tokenizer."""
    name = os.path.basename(tokenizer.path) if tokenizer else None
    about = {"tokenizer": name, "vocabulary": vocabulary, "bits": files["train"].bits, "begin": tokenizer.begin.tolist() if tokenizer else [],
             "end": end, "dropped": tokenizer.dropped if tokenizer else 0}
    for split, file in files.items():
        about[split] = {"documents": file.documents, "tokens": file.tokens, "bytes": file.bytes}
        print(f"{split}.bin: {file.documents} documents, {file.tokens} tokens of {file.bits} bits")
    if tokenizer:
        pair = name == "vocab.json"
        shutil.copyfile(tokenizer.path, os.path.join(folder, name if pair else "tokenizer.json"))
        if pair:
            shutil.copyfile(os.path.join(os.path.dirname(tokenizer.path), "merges.txt"), os.path.join(folder, "merges.txt"))
        about["tokenizer"] = name if pair else "tokenizer.json"
    with open(os.path.join(folder, "tokens.json"), "w", encoding="utf-8") as file:
        json.dump(about, file, indent=1)
        file.write("\n")
