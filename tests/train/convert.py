"""python -m stargrad.convert: what it writes has the rows of Parquet files and of data sets that the library `datasets` saved, in their
order, and trains. Nothing incomplete remains."""
import contextlib
import datetime
import glob
import hashlib
import io
import json
import os
import signal
import struct
import subprocess
import sys
import tarfile
import zlib

from module import ENV
from run import FOLDER, Skip, folder, main, stargrad, wait_until

try:
    import numpy
    import pyarrow
    import pyarrow.parquet
    from stargrad import convert as module
except ModuleNotFoundError as why:
    pyarrow, missing = None, f"Python has no {why.name}"



def needs_pyarrow():
    if pyarrow is None:
        raise Skip(missing)


def convert(*arguments, status=0):
    """Runs the command in this process, because importing pyarrow takes a second; returns its output."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            ended = module.main([str(word) for word in arguments])
        except SystemExit as end:
            ended = end.code
    assert ended == status, (arguments, ended, out.getvalue() + err.getvalue())
    return out.getvalue() if status == 0 else err.getvalue()


def put(name, columns, features=None, split="train", rows=None):
    """Writes a Parquet file; FEATURES are Hugging Face's."""
    path = os.path.join(FOLDER, name, f"{split}-00000.parquet")
    os.makedirs(os.path.dirname(path), exist_ok=True)
    table = pyarrow.table(columns)
    if features:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pyarrow.parquet.write_table(table, path, row_group_size=rows or 100)
    return path


def png(grey):
    """An image of 8x8 pixels of one grey."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = b"".join(b"\0" + bytes([grey]) * 8 for _ in range(8))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 8, 8, 8, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) +
            chunk(b"IEND", b""))


def images(count, first=0):
    return [{"bytes": png((first + i) % 256), "path": f"{i}.png"} for i in range(count)], [i % 2 for i in range(count)]


def refuse(why, *arguments):
    """The command fails with one line that has the text WHY, and no file remains."""
    said = convert(*arguments, "--out", folder("refused"), status=1)
    assert why in said and said.count("\n") == 1 and said.startswith("stargrad.convert: "), (why, said)
    assert not [name for name in os.listdir(FOLDER) if name.startswith("refused")], why


LABELS = {"image": {"_type": "Image"}, "label": {"_type": "ClassLabel", "names": ["cat", "dog"]}}


def test_tar():
    """Images and labels in the order of the rows, in shards of a size; the names of the classes."""
    needs_pyarrow()
    for split, count in ("train", 300), ("validation", 40):
        image, label = images(count)
        put("pets", {"image": image, "label": label}, LABELS, split)
    out = folder("pets-tar")
    said = convert("tar", os.path.join(FOLDER, "pets"), "--out", out, "--shard-size", "8K")
    assert said.startswith("train: 300 images in ") and "val: 40 images in " in said, said
    names = sorted(os.listdir(out))
    assert names[:2] == ["class-names.txt", "train-000000.tar"] and "val-000000.tar" in names and len(names) == 5, names
    found = []
    for name in names[1:]:
        with tarfile.open(os.path.join(out, name)) as tar:
            members = [(m.name, tar.extractfile(m).read()) for m in tar]
        assert sum(len(data) for _, data in members) < 8192 + 80
        found += [(name.split("-")[0], *member) for member in members]
    train = [(n, data) for split, n, data in found if split == "train"]
    assert train == [member for i in range(300) for member in ((f"{i:09d}.png", png(i % 256)), (f"{i:09d}.cls", str(i % 2).encode()))]
    with open(os.path.join(out, "class-names.txt"), encoding="utf-8") as f:
        assert f.read() == "cat\ndog\n"
    again = folder("pets-again")
    convert("tar", os.path.join(FOLDER, "pets"), "--out", again, "--shard-size", "8K")
    for name in names:
        assert open(os.path.join(out, name), "rb").read() == open(os.path.join(again, name), "rb").read(), name


def test_text_labels():
    needs_pyarrow()
    image, _ = images(4)
    path = put("texts", {"image": image, "kind": ["b", "a", "b", "c"], "more": [1.5, None, float("nan"), 2.0]})
    out = folder("texts-tar")
    convert("tar", path, "--label", "kind", "--columns", "more", "--out", out)
    with tarfile.open(os.path.join(out, "train-000000.tar")) as tar:
        found = {m.name: tar.extractfile(m).read() for m in tar}
    assert [found[f"{i:09d}.cls"] for i in range(4)] == [b"1", b"0", b"1", b"2"]
    assert [found[f"{i:09d}.json"] for i in range(4)] == [b'{"more": 1.5}', b'{"more": null}', b'{"more": null}', b'{"more": 2.0}']
    with open(os.path.join(out, "class-names.txt"), encoding="utf-8") as f:
        assert f.read() == "a\nb\nc\n"


def test_paths_of_images():
    """The path of an image is in the folder of the file that has it."""
    needs_pyarrow()
    paths = [put(os.path.join("pictures", name), {"image": [{"bytes": None, "path": "a.png"}], "label": [grey]}) for grey, name in enumerate("xy")]
    for grey, path in enumerate(paths):
        with open(os.path.join(os.path.dirname(path), "a.png"), "wb") as f:
            f.write(png(grey))
    out = folder("pictures-tar")
    convert("tar", *paths, "--out", out)
    with tarfile.open(os.path.join(out, "train-000000.tar")) as tar:
        assert [tar.extractfile(f"{i:09d}.png").read() for i in range(2)] == [png(0), png(1)]


def put_arrow(name, columns):
    """Writes an Arrow file, whose types are those of COLUMNS."""
    path = os.path.join(FOLDER, name)
    with pyarrow.OSFile(path, "wb") as file, pyarrow.ipc.new_stream(file, pyarrow.table(columns).schema) as stream:
        stream.write_table(pyarrow.table(columns))
    return path


def test_types_of_labels():
    """Numbers of a dictionary remain these numbers; texts of all types are numbered in the order of their bytes."""
    needs_pyarrow()
    numbers, texts = [10, 2, 1, 2], ["b", "a", "b", "ab"]
    for kind, values, wanted in (
            (pyarrow.dictionary(pyarrow.int8(), pyarrow.int64()), numbers, numbers), (pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), texts, [2, 0, 2, 1]),
            (pyarrow.string_view(), texts, [2, 0, 2, 1]), (pyarrow.large_string(), texts, [2, 0, 2, 1])):
        out = folder("typed-npy")
        convert("npy", put_arrow("typed.arrow", {"x": [1, 2, 3, 4], "label": pyarrow.array(values, kind)}), "--out", out)
        assert numpy.load(os.path.join(out, "y_train.npy")).tolist() == wanted, kind
        assert os.path.exists(os.path.join(out, "class-names.txt")) == (values == texts), kind
    put("hidden-labels", {"x": [1, 2], "label": [0, 1]})
    put("hidden-labels", {"x": [1, 2], "label": [-1, -1]}, split="test")
    root = os.path.join(FOLDER, "hidden-labels")
    refuse("test, row 0: the label is -1, but must be a whole number from 0 on, or a text; --label none omits the labels; if the labels of this split "
           "are hidden, --split train leaves it out", "npy", root)
    convert("npy", root, "--split", "train", "--out", folder("typed-npy"))


def test_jsonl():
    needs_pyarrow()
    path = put("lines", {"text": ["é\n", None, "c"], "n": [1, 2, 3], "list": [[1], [], None], "day": [datetime.date(2026, 1, d) for d in (1, 2, 3)]})
    out = folder("lines-jsonl")
    assert convert("jsonl", path, "--out", out) == "train: 3 lines\n"
    with open(os.path.join(out, "train.jsonl"), encoding="utf-8") as f:
        lines = f.read()
    assert lines.splitlines()[0] == '{"text": "é\\n", "n": 1, "list": [1], "day": "2026-01-01"}'
    assert [json.loads(line)["n"] for line in lines.splitlines()] == [1, 2, 3]
    picked = folder("lines-picked")
    convert("jsonl", path, "--columns", "n,text", "--out", picked)
    with open(os.path.join(picked, "train.jsonl"), encoding="utf-8") as f:
        assert f.readline() == '{"n": 1, "text": "é\\n"}\n'


def test_npy():
    """Numbers with classes, and numbers to predict; then training."""
    needs_pyarrow()
    draw = numpy.random.default_rng(1)
    x = draw.standard_normal((1000, 2), dtype=numpy.float32)
    kind = ["high" if a > b else "low" for a, b in x]
    for split, part in ("train", slice(0, 800)), ("test", slice(800, 1000)):
        put("numbers", {"a": x[part, 0], "b": x[part, 1], "kind": kind[part]}, split=split, rows=300)
    out = folder("numbers-npy")
    said = convert("npy", os.path.join(FOLDER, "numbers"), "--label", "kind", "--out", out)
    assert said == "test: x float32 (200, 2), y int64 (200,)\ntrain: x float32 (800, 2), y int64 (800,)\n", said
    assert (numpy.load(os.path.join(out, "x_train.npy")) == x[:800]).all() and numpy.load(os.path.join(out, "y_train.npy")).sum() == kind[:800].count("low")
    said = stargrad("train", "--model", "mlp", "--data", f"npy:{out}", "--class-names", f"{out}/class-names.txt", "--epochs", 3, "--batch", 20,
                    "--lr", 0.1, "--out", folder("numbers-run"), "--json")
    assert json.loads(said)["test_top1"] > 0.8
    lists = put("lists", {"pixels": [[[i, 2], [3, 4]] for i in range(5)], "y": [0.5 * i for i in range(5)]})
    out = folder("lists-npy")
    assert convert("npy", lists, "--label", "y", "--out", out) == "train: x int64 (5, 2, 2), y float64 (5,)\n"
    assert numpy.load(os.path.join(out, "x_train.npy"))[4].tolist() == [[4, 2], [3, 4]]


def test_types_of_numbers():
    """Arrays have the type of the numbers of a column, also in lists. A number that a list lacks is refused."""
    needs_pyarrow()
    rows = [[[i % 250, 2, 3], [4, 5, 255]] for i in range(300)]
    byte = pyarrow.uint8()
    for kind in (pyarrow.list_(pyarrow.list_(byte)), pyarrow.large_list(pyarrow.list_(byte)), pyarrow.list_(pyarrow.list_(byte, 3), 2)):
        out = folder("bytes-npy")
        said = convert("npy", put_arrow("bytes.arrow", {"x": pyarrow.array(rows, kind)}), "--label", "none", "--out", out)
        assert said == "train: x uint8 (300, 2, 3)\n" and numpy.load(os.path.join(out, "x_train.npy")).tolist() == rows, (kind, said)
    convert("npy", put("halves", {"x": pyarrow.array([[0.5], [1.5]], pyarrow.list_(pyarrow.float32())), "y": [True, False]}), "--label", "y",
            "--out", folder("bytes-npy"))
    assert numpy.load(os.path.join(out, "x_train.npy")).dtype == numpy.float32
    refuse("train, column x: 1 values are missing", "npy", put("holes", {"x": [[1.0, None], [2.0, 3.0]]}), "--label", "none")
    refuse("train, column x: its lists differ in length", "npy", put("holes", {"x": [[[1], [2, 3]], [[1], [2]]]}), "--label", "none")


def corpus():
    return [f"a text number {i} of the corpus\n" for i in range(300)]


def test_tokens_of_text():
    """The files are those that stargrad tokenize writes from the same documents."""
    needs_pyarrow()
    tokenizer = os.path.join(FOLDER, "tokenizer.json")
    words = {chr(33 + i): i for i in range(94)} | {"\u0120": 94, "\u010a": 95}
    with open(tokenizer, "w", encoding="utf-8") as f:
        json.dump({"added_tokens": [{"id": 96, "content": "</s>", "special": True, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}],
                   "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
                   "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
                   "model": {"type": "BPE", "vocab": words, "merges": []}}, f)
    path, lines = put("corpus", {"text": corpus()}), os.path.join(FOLDER, "corpus.jsonl")
    with open(lines, "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": text}) + "\n" for text in corpus())
    for more in (), ("--val", 0.03), ("--end", "none"), ("--end", "</s>"):
        out, wanted = folder("corpus-tokens"), folder("corpus-wanted")
        convert("tokens", path, "--tokenizer", tokenizer, *more, "--out", out)
        stargrad("tokenize", "--tokenizer", tokenizer, lines, *more, "--out", wanted)
        assert sorted(os.listdir(out)) == sorted(os.listdir(wanted)), (os.listdir(out), os.listdir(wanted))
        for name in "train.bin", "val.bin", "tokenizer.json":
            assert open(os.path.join(out, name), "rb").read() == open(os.path.join(wanted, name), "rb").read(), (name, more)
        one, other = (json.load(open(os.path.join(root, "tokens.json"), encoding="utf-8")) for root in (out, wanted))
        assert one == other, (one, other)


def test_tokens_of_lists():
    needs_pyarrow()
    lists = [[(i * k) % 60000 for k in range(20)] for i in range(100)]
    path = put("ids", {"input_ids": lists})
    put("ids", {"input_ids": lists[:10]}, split="test")
    out = folder("ids-tokens")
    said = convert("tokens", os.path.dirname(path), "--columns", "input_ids", "--end", 50256, "--out", out)
    assert "the split test is written as val" in said and "train.bin: 100 documents, 2100 tokens of 16 bits" in said, said
    tokens = numpy.fromfile(os.path.join(out, "train.bin"), "<u2")[512:]
    assert tokens.tolist() == [token for one in lists for token in one + [50256]]
    stargrad("train", "--model", "gpt:layers=1,heads=2,width=8,context=16,vocabulary=60000", "--data", f"tokens:{out},16", "--batch", 4, "--steps", 1,
             "--out", folder("ids-run"))
    wide = folder("ids-wide")
    assert "train.bin: 19 documents, 19 tokens of 32 bits" in convert("tokens", put("wide", {"input_ids": [[70000 + i] for i in range(22)]}), "--columns", "input_ids",
                                             "--out", wide)
    assert numpy.fromfile(os.path.join(wide, "train.bin"), "<u4")[:3].tolist() == [20240801, 7, 19]


def test_token_numbers():
    """Numbers of tokens that do not fit in a vocabulary are refused."""
    needs_pyarrow()
    path = put("few", {"ids": [[1], [2], [3]]})
    for end in 2**31 - 1, 2**32 + 1, "9" * 5000, "-1", "x", "":
        refuse(f"--end {end}: must be the number of a token, from 0 to 2147483646", "tokens", path, "--columns", "ids", f"--end={end}")
    for bad in 2**31 - 1, 2**32 + 1, -1:
        refuse("train, row 0: must be a list of numbers from 0 to 2147483646", "tokens", put("bad", {"ids": [[1, bad]]}), "--columns", "ids")
    out = folder("few-tokens")
    convert("tokens", path, "--columns", "ids", "--end", 2**31 - 2, "--out", out)
    assert numpy.fromfile(os.path.join(out, "train.bin"), "<u4")[256:].tolist() == [2, 2**31 - 2, 3, 2**31 - 2]


def test_sizes_of_token_files():
    """Too many tokens are refused before a file is written, if lists state their number. Empty files have a way out."""
    needs_pyarrow()
    files = module.token_files
    lists, most, opened, check_lengths = put("many", {"ids": [[1, 2, 3], None, [4, 5, 6], [7]]}), files.MOST, files.File, files.check_lengths
    try:
        files.MOST, files.File = 6, None
        refuse("train.bin would have more than 6 tokens, the most of a file; convert the input files in parts", "tokens", lists, "--columns", "ids",
               "--end", 0)
        files.File = opened
        convert("tokens", lists, "--columns", "ids", "--out", folder("many-tokens"))
        files.check_lengths = lambda *_: None
        refuse("train.bin would have more than 6 tokens", "tokens", lists, "--columns", "ids", "--end", 0)
    finally:
        files.MOST, files.File, files.check_lengths = most, opened, check_lengths
    put("many", {"ids": pyarrow.array([[], []], pyarrow.list_(pyarrow.int64()))}, split="validation")
    refuse("val.bin would have no tokens, because no document of the split val has one; ", "tokens", os.path.dirname(lists), "--columns", "ids")
    convert("tokens", os.path.dirname(lists), "--columns", "ids", "--split", "train", "--out", folder("many-tokens"))


def test_saved_by_datasets():
    """Folders of Dataset.save_to_disk and DatasetDict.save_to_disk, with several files."""
    needs_pyarrow()
    try:
        import datasets
    except ModuleNotFoundError:
        raise Skip("Python has no datasets") from None
    datasets.disable_progress_bars()
    names = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["no", "yes"])})
    one = datasets.Dataset.from_dict({"text": [f"t{i}" for i in range(50)], "label": [i % 2 for i in range(50)]}, features=names)
    root = os.path.join(FOLDER, "saved")
    datasets.DatasetDict({"train": one, "validation": one.select(range(7))}).save_to_disk(root, num_shards={"train": 3, "validation": 1})
    out = folder("saved-jsonl")
    assert convert("jsonl", root, "--out", out) == "train: 50 lines\nval: 7 lines\n"
    with open(os.path.join(out, "train.jsonl"), encoding="utf-8") as f:
        assert [json.loads(line) for line in f] == [{"text": f"t{i}", "label": i % 2} for i in range(50)]
    with open(os.path.join(out, "class-names.txt"), encoding="utf-8") as f:
        assert f.read() == "no\nyes\n"
    alone = os.path.join(FOLDER, "saved-alone")
    one.save_to_disk(alone)
    out = folder("alone-jsonl")
    assert convert("jsonl", alone, "--out", out) == "train: 50 lines\n"
    assert convert("jsonl", root, "--split", "validation", "--out", folder("split-jsonl")) == "val: 7 lines\n"


def test_refused():
    """One line states the reason, and no file remains."""
    needs_pyarrow()
    image, label = images(4)
    good = put("good", {"image": image, "label": label})
    text = os.path.join(FOLDER, "text.parquet")
    with open(text, "w", encoding="utf-8") as f:
        f.write("no parquet")
    several = put("several", {"a": image, "b": image, "label": label})
    for words, why in (
            (("tar", os.path.join(FOLDER, "absent")), "absent: no such file or folder"), (("tar", text), "text.parquet: "),
            (("tar", good, "--label", "kind"), "has no column 'kind', but image, label"),
            (("tar", several), "several columns have images; give --image NAME, one of a, b, label"),
            (("tar", put("none", {"x": [1]})), "no column has images; give --image NAME"),
            (("tar", put("null", {"image": [image[0], None], "label": [0, 1]})), "train, row 1: has no image"),
            (("tar", put("negative", {"image": image, "label": [0, 1, -1, 0]})), "train, row 2: the label is -1, but must be a whole number from 0"),
            (("tar", put("odd", {"image": [{"bytes": b"abcdef", "path": None}], "label": [0]})), "row 0: the image begins with 61626364, which is not JPEG"),
            (("jsonl", good), "train, row 0: has bytes, which JSON lacks; name the other columns by --columns"),
            (("npy", good), "has values of type struct"), (("npy", put("gap", {"x": [1, None], "y": [0, 1]}), "--label", "y"), "column x: 1 values are missing"),
            (("npy", put("ragged", {"x": [[1], [1, 2]], "y": [0, 1]}), "--label", "y"), "column x: its lists differ in length"),
            (("tokens", good), "tokens requires either --tokenizer FILE with --text NAME, or --columns NAME"),
            (("tokens", put("far", {"ids": [[1], [2**31 - 1]]}), "--columns", "ids"), "train, row 1: must be a list of numbers from 0 to 2147483646"),
            (("tokens", put("lone", {"ids": [[1]]}), "--columns", "ids"), "train.bin would have no tokens with --val 0.1, of 1 documents; give"),
            (("tar", good, "--split", "test"), "has no split test")):
        refuse(why, *words)
    out = folder("refused")
    os.makedirs(out)
    assert "refused: exists; remove it, or give another --out" in convert("tar", good, "--out", out, status=1)
    assert "invalid choice: 'zip'" in convert("zip", good, "--out", out, status=2)
    assert "is not a size; give for example 500M" in convert("tar", good, "--out", out, "--shard-size", "many", status=2)


def test_label_in_every_split():
    """A split without the column of the labels is refused; another column does not take its place."""
    needs_pyarrow()
    put("unlabelled", {"a": [1.0, 2.0], "label": [0, 1]}, split="test")
    put("unlabelled", {"a": [3.0, 4.0], "b": [5, 6]})
    refuse("train-00000.parquet: has no column 'label', but a, b", "npy", os.path.join(FOLDER, "unlabelled"), "--columns", "a", "--label", "label")


def test_types_of_files():
    """Columns that are read have the same type in all files; others may differ."""
    needs_pyarrow()
    for name, columns in ("train-0", {"x": [1, 2], "label": [0, 1], "more": ["a", "b"]}), ("train-1", {"x": [1.7, 2.7], "label": [0, 1], "more": [1, 2]}):
        put("kinds", columns, split=name)
    root = os.path.join(FOLDER, "kinds")
    for words in ("npy", root, "--columns", "x"), ("jsonl", root, "--columns", "x"), ("npy", root, "--columns", "label", "--label", "x"):
        refuse("train-1-00000.parquet: column 'x' has the type double, but int64 in ", *words)
    refuse("train-1-00000.parquet: column 'more' has the type int64, but string in ", "npy", root, "--columns", "label", "--label", "more")
    put("kinds-of-splits", {"text": ["a"]}), put("kinds-of-splits", {"text": [1]}, split="test")
    refuse("train-00000.parquet: column 'text' has the type string, but int64 in ", "jsonl", os.path.join(FOLDER, "kinds-of-splits"))
    out = folder("kinds-jsonl")
    convert("jsonl", root, "--columns", "label", "--out", out)
    twice = os.path.join(FOLDER, "twice.arrow")
    table = pyarrow.Table.from_arrays([pyarrow.array([1]), pyarrow.array([2]), pyarrow.array([3])], ["x", "x", "y"])
    with pyarrow.OSFile(twice, "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)
    refuse("twice.arrow: has several columns with the name 'x'; rename one of them", "jsonl", twice)


def test_names_of_classes_of_files():
    """Splits and files that number the classes in another order are refused."""
    needs_pyarrow()
    image, label = images(2)
    root = os.path.join(FOLDER, "named")
    put("named", {"image": image, "label": label, "x": [1, 2]}, LABELS, split="test")
    for names, why in (["dog", "cat"], "class 0 of column 'label' is 'dog', but 'cat' in "), (["cat"], "column 'label' has 1 classes, but 2 in "):
        put("named", {"image": image, "label": label, "x": [1, 2]}, {**LABELS, "label": {"_type": "ClassLabel", "names": names}})
        for words in ("tar", root), ("npy", root, "--columns", "x"), ("jsonl", root, "--columns", "label"), ("npy", root, "--columns", "label", "--label", "x"):
            refuse(f"train-00000.parquet: {why}", *words)
        assert convert("tar", root, "--split", "train", "--label", "none", "--out", folder("named-out"))
    put("named", {"image": image, "label": label, "x": [1, 2]}, [1, 2])
    assert convert("npy", root, "--columns", "x", "--out", folder("named-out"))


def placed(*paths, root="placed"):
    """Writes a Parquet file with its path as a text for each of PATHS; returns their folder."""
    for path in paths:
        path = os.path.join(folder(root) if path == paths[0] else os.path.join(FOLDER, root), path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.table({"text": [os.path.relpath(path, os.path.join(FOLDER, root))]}), path)
    return os.path.join(FOLDER, root)


def split_texts(*arguments):
    """Converts to JSON lines; returns the texts of each split."""
    out, found = folder("texts-of-splits"), {}
    convert("jsonl", *arguments, "--out", out)
    for name in os.listdir(out):
        with open(os.path.join(out, name), encoding="utf-8") as f:
            found[name.removesuffix(".jsonl")] = [json.loads(line)["text"] for line in f]
    return found


def test_splits_of_folders():
    """A folder names the split of files whose names have none; neither splits nor configurations are mixed."""
    needs_pyarrow()
    paths = {"train": "default/train/0000.parquet", "val": "default/validation/0000.parquet", "test": "default/test/0000.parquet"}
    root = placed(*paths.values())
    for given in ([root], [os.path.join(root, "default")], [os.path.join(root, path) for path in paths.values()],
                  [os.path.join(root, os.path.dirname(path)) for path in paths.values()]):
        assert split_texts(*given) == {split: [path] for split, path in paths.items()}, given
    assert split_texts(placed("test/train-0.parquet")) == {"train": ["test/train-0.parquet"]}
    assert split_texts(placed("data/a.parquet", "data/b.parquet")) == {"train": ["data/a.parquet", "data/b.parquet"]}
    root = placed("test/a.parquet", "train/b.parquet", "c.parquet")
    refuse("c.parquet: its name and its folders name no split, but ", "jsonl", root)
    assert split_texts(root, "--split", "test") == {"test": ["test/a.parquet"]}
    for paths in ("en/train-0.parquet", "de/train-0.parquet"), ("en/train/0.parquet", "de/train/0.parquet"), ("train/en/0.parquet", "test/de/0.parquet"):
        refuse("placed: has files of 2 configurations: de, en; give the folder or the files of one as IN", "jsonl", placed(*paths))
        given = [os.path.join(FOLDER, "placed", path) for path in paths]
        assert sorted(sum(split_texts(*given).values(), [])) == sorted(paths)


def test_descriptions():
    """Descriptions of save_to_disk that are malformed, or that name splits outside the folder."""
    needs_pyarrow()
    root = os.path.join(FOLDER, "described")
    os.makedirs(os.path.join(root, "train"))

    def put_json(name, text):
        with open(os.path.join(root, name), "w", encoding="utf-8") as f:
            f.write(text)

    put_json("state.json", '{"_data_files": []}')
    for name in "../refused-too", "..", "/tmp/x", ".hidden", "", "a/b", "train\n", None, 1, ["a"]:
        put_json("dataset_dict.json", json.dumps({"splits": [name]}))
        refuse(f"dataset_dict.json: the split {name!r} must be a name of letters", "jsonl", root)
        if name is not None:
            put_json("train/state.json", json.dumps({"_split": name, "_data_files": [{"filename": "a.arrow"}]}))
            refuse(f"state.json: the split {name!r} must be a name of letters", "jsonl", os.path.join(root, "train"))
    for text, why in ("[]", "must be a JSON object"), ("{", "cannot be read: "), ("{}", "has no list of splits"), ('{"splits": "ab"}', "has no list of splits"):
        put_json("dataset_dict.json", text)
        refuse(f"dataset_dict.json: {why}", "jsonl", root)
    for text, why in (("[]", "must be a JSON object"), ("{", "cannot be read: "), ("[" * 100000, "cannot be read: "), ("{}", "has no list of files"),
                      ('{"_data_files": [1]}', "has no list of files"), ('{"_data_files": [{"filename": "../a.arrow"}]}', "names the file ../a.arrow")):
        put_json("train/state.json", text)
        refuse(f"state.json: {why}", "jsonl", os.path.join(root, "train"))


def test_without_pyarrow():
    """The message names the package."""
    needs_pyarrow()
    hidden = os.path.join(FOLDER, "hidden", "pyarrow")
    os.makedirs(hidden)
    with open(os.path.join(hidden, "__init__.py"), "w", encoding="utf-8") as f:
        f.write("raise ModuleNotFoundError('No module', name='pyarrow')")
    done = subprocess.run([sys.executable, "-m", "stargrad.convert", "tar", put("hides", {"a": [1]}), "--out", folder("without")], text=True,
                          capture_output=True, env={**os.environ, **ENV, "PYTHONPATH": f"{os.path.dirname(hidden)}:{ENV['PYTHONPATH']}"})
    assert done.returncode == 1 and "Python has no pyarrow, which reads Parquet and Arrow files; install it with: pip install pyarrow" in done.stderr


def test_killed():
    """After SIGTERM nothing remains; after SIGKILL only the folder with another name."""
    needs_pyarrow()
    path = put("long", {"text": [hashlib.sha256(str(i).encode()).hexdigest() * 20 for i in range(30000)]})
    for kill, remains in (signal.SIGTERM, 0), (signal.SIGKILL, 1):
        out = folder(f"killed-{remains}")
        with subprocess.Popen([sys.executable, "-m", "stargrad.convert", "jsonl", path, "--out", out], env={**os.environ, **ENV},
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            parts = f"{out}.part-*"
            wait_until(lambda parts=parts: any(map(os.path.getsize, glob.glob(os.path.join(parts, "train.jsonl")))), process)
            process.send_signal(kill)
        assert process.returncode != 0 and not os.path.exists(out) and len(glob.glob(parts)) == remains, (kill, os.listdir(FOLDER))


def test_folder_of_another():
    """A folder OUT.part-… of another process remains. The result has the permissions of a new folder. Messages name the path."""
    needs_pyarrow()
    path, out = put("owned", {"text": ["a"]}), os.path.join(folder("owner"), "deeper", "out")
    other = f"{out}.part-{os.getpid()}"
    os.makedirs(other)
    with open(os.path.join(other, "file"), "w", encoding="utf-8") as f:
        f.write("of another process")
    convert("jsonl", path, "--out", out)
    assert os.listdir(other) == ["file"] and sorted(os.listdir(os.path.dirname(out))) == ["out", os.path.basename(other)]
    assert os.stat(out).st_mode == os.stat(other).st_mode
    blocked = os.path.join(other, "file", "out")
    said = convert("jsonl", path, "--out", blocked, status=1)
    assert f"{os.path.dirname(blocked)}: cannot be written: " in said and said.count("\n") == 1, said


if __name__ == "__main__":
    main(globals())
