"""convert.py: writes Stargrad's data sets from Parquet files and folders of the library `datasets`: python3 -m stargrad.convert.

The rows keep their order. All files are written to a new folder OUT.part-…, which gets its name OUT when they are complete."""
import argparse
import io
import json
import os
import shutil
import signal
import sys
import tarfile
import tempfile

import numpy

from . import image_folders, token_files
from .columns import check_columns, class_names, pyarrow, tables
from .library import Error

EXAMPLES = """KIND is one of:

  tar       images, the column --image, and labels, for train --data tar:OUT: train-000000.tar, val-000000.tar, …
  jsonl     all columns as JSON objects, one per line: train.jsonl, val.jsonl
  tokens    --text with --tokenizer, or lists of token numbers, for train --data tokens:OUT,T: train.bin, val.bin
  npy       columns of numbers, for train --data npy:OUT: x_train.npy, y_train.npy, …

tar also reads a folder of images, IN/train/CLASS/ and IN/val/CLASS/, in random order.
IN is a Parquet file, an Arrow file, a folder with Parquet files, such as a data set of the Hugging Face hub, or a folder that
Dataset.save_to_disk wrote. The splits are those of the names: train, val (validation), test.

  python3 -m stargrad.convert tar cifar10/ --out shards
  python3 -m stargrad.convert tar photos/ --out shards            # photos/train/CLASS/, photos/val/CLASS/
  python3 -m stargrad.convert tokens wiki/*.parquet --text text --tokenizer tokenizer.json --out tokens
  python3 -m stargrad.convert npy table.parquet --columns length,width --label species --out arrays
"""


def size_of(text):
    """Returns the bytes of a SIZE: 500M, 2G."""
    unit = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    number = text.upper().removesuffix("IB").removesuffix("B")
    try:
        size = int(float(number.rstrip("KMG")) * unit[number[len(number.rstrip("KMG")):]])
    except (ValueError, KeyError, OverflowError):
        size = 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size; give for example 500M or 2G")
    return size


def parser():
    p = argparse.ArgumentParser(prog="python3 -m stargrad.convert", epilog=EXAMPLES, formatter_class=argparse.RawDescriptionHelpFormatter,
                                description="write a data set of Stargrad from Parquet files or a data set of Hugging Face")
    p.add_argument("kind", metavar="KIND", choices=sorted(WRITERS), help="tar, jsonl, tokens or npy")
    p.add_argument("input", metavar="IN", nargs="+", help="files and folders, which are read in this order")
    p.add_argument("--out", metavar="DIR", required=True, help="folder for the result; must not exist")
    p.add_argument("--columns", metavar="NAMES", help="comma-separated columns: of jsonl and npy, those that are written [all]; of "
                   "tar, those that NAME.json has [none]; of tokens, one column with lists of token numbers")
    p.add_argument("--image", metavar="NAME", help="tar: column with the images [the only one with images]")
    p.add_argument("--label", metavar="NAME", help="tar, npy: column with the labels; none: no labels [the only column of classes; else label]")
    p.add_argument("--text", metavar="NAME", help="tokens: column with the texts [text]")
    p.add_argument("--tokenizer", metavar="FILE", help="tokens: tokenizer.json, or vocab.json with merges.txt in the same folder")
    p.add_argument("--end", metavar="TOKEN", help="tokens: token after each document, of lists of tokens its number; none: no token "
                   "[the tokenizer's; none for lists]")
    p.add_argument("--val", metavar="FRACTION", type=float, default=0.1, help="tokens: fraction of the documents for val.bin if the data have "
                   "neither a split validation nor test [0.1]")
    p.add_argument("--shuffle", metavar="SEED", type=int, help="tar of a folder of images: seed of the random order [1]")
    p.add_argument("--split", metavar="NAME", help="only this split [all]")
    p.add_argument("--shard-size", metavar="SIZE", type=size_of, default=256 << 20, help="tar: bytes of the images of a shard, for example "
                   "500M or 2G [256M]")
    return p


def listed(text):
    return [name.strip() for name in text.split(",") if name.strip()] if text else []


def label_of(found, wanted, needed=False):
    """Returns the column with the labels; None: there is none."""
    if wanted == "none":
        return None
    table = next(iter(found.values()))
    classes = table.of_type("ClassLabel")
    name = wanted or (classes[0] if len(classes) == 1 else None) or next((n for n in ("label", "labels", "target") if n in table.schema.names), None)
    if name:
        check_columns(found, [name])
    elif needed or len(classes) > 1:
        raise Error(f"{table.files[0]}: it is unclear which column has the labels; give --label NAME, or --label none")
    return name


def is_text(kind):
    """Whether the values of a type are texts; those of a dictionary are those that it lists."""
    kind = kind.value_type if pyarrow().types.is_dictionary(kind) else kind
    return str(kind) in ("string", "large_string", "string_view")


class Classes:
    """Numbers the classes of a column of labels: whole numbers, or texts, which are numbered in the order of their bytes."""

    def __init__(self, found, column):
        self.names, self.number = class_names(found, column), None
        first = next(iter(found.values()))
        if is_text(first.schema.field(column).type):
            texts = {row[0] for table in found.values() for _, row, _ in table.records([column])} - {None}
            self.names = sorted(texts, key=lambda text: str(text).encode())
            self.number = {name: i for i, name in enumerate(self.names)}

    def of(self, label, where):
        """Returns the number of a label."""
        number = self.number.get(label) if self.number is not None else label
        if isinstance(number, bool):
            number = int(number)
        if not isinstance(number, int) or number < 0:
            hidden = "; if the labels of this split are hidden, --split train leaves it out" if number == -1 else ""
            raise Error(f"{where}: the label is {label!r}, but must be a whole number from 0 on, or a text; --label none omits the labels{hidden}")
        if self.names and number >= len(self.names):
            raise Error(f"{where}: the label is {number}, but there are {len(self.names)} classes")
        return number

    def write(self, folder):
        """Writes the names of the classes, for the option --class-names."""
        if self.names:
            bad = next((name for name in self.names if not name or "\n" in name), None)
            if bad is not None:
                print(f"class-names.txt is not written: {bad!r} cannot be a line of it", file=sys.stderr)
                return
            with open(os.path.join(folder, "class-names.txt"), "w", encoding="utf-8") as file:
                file.writelines(name + "\n" for name in self.names)


ENDINGS = ((b"\xff\xd8\xff", "jpg"), (b"\x89PNG", "png"), (b"RIFF", "webp"), (b"GIF8", "gif"), (b"BM", "bmp"), (b"II*\0", "tif"), (b"MM\0*", "tif"))


def image_bytes(value, folder, where):
    """Returns the file of an image, and its ending."""
    data, path = (value.get("bytes"), value.get("path")) if isinstance(value, dict) else (value, None)
    if not data and path:
        try:
            with open(os.path.join(folder, path), "rb") as file:
                data = file.read()
        except OSError as why:
            raise Error(f"{where}: the image {path}: {why.strerror}") from None
    if not isinstance(data, bytes) or not data:
        raise Error(f"{where}: has no image")
    ending = next((ending for begin, ending in ENDINGS if data.startswith(begin)), None)
    if not ending:
        raise Error(f"{where}: the image begins with {data[:4].hex()}, which is not JPEG, PNG, WebP, GIF, BMP or TIFF")
    return data, ending


class Shards:
    """Tar archives of a split. A member has no owner and no time, so that the same rows give the same bytes."""

    def __init__(self, folder, split, most):
        self.folder, self.split, self.most, self.count, self.bytes, self.tar = folder, split, most, 0, 0, None

    def add(self, members):
        """Adds the members of one sample: pairs of a name and its content."""
        if self.tar is None or self.bytes >= self.most:
            self.close()
            self.tar = tarfile.open(os.path.join(self.folder, f"{self.split}-{self.count:06d}.tar"), "w", format=tarfile.USTAR_FORMAT)
            self.count, self.bytes = self.count + 1, 0
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            self.tar.addfile(info, io.BytesIO(data))
            self.bytes += len(data)

    def close(self):
        if self.tar:
            self.tar.close()


def write_tar(found, options, folder):
    first = next(iter(found.values()))
    images = first.of_type("Image") or [name for name in first.schema.names if is_image(first.schema.field(name).type)]
    image, label, more = options.image or (images[0] if len(images) == 1 else None), label_of(found, options.label), listed(options.columns)
    if not image:
        raise Error(f"{first.files[0]}: {'several columns have' if images else 'no column has'} images; give --image NAME, one of "
                    f"{', '.join(first.schema.names)}")
    names = [image, *([label] if label else []), *more]
    check_columns(found, names)
    classes = Classes(found, label) if label else None
    for split, table in found.items():
        shards = Shards(folder, split, options.shard_size)
        for at, row, path in table.records(names):
            where = f"{split}, row {at}"
            data, ending = image_bytes(row[0], os.path.dirname(path), where)
            members = [(f"{at:09d}.{ending}", data)]
            if label:
                members.append((f"{at:09d}.cls", str(classes.of(row[1], where)).encode()))
            if more:
                values = dict(zip(more, row[len(names) - len(more):]))
                members.append((f"{at:09d}.json", text_of(values, where).encode()))
            shards.add(members)
        shards.close()
        print(f"{split}: {table.rows} images in {shards.count} {'shard' if shards.count == 1 else 'shards'}")
    if classes:
        classes.write(folder)


def is_image(kind):
    arrow = pyarrow()
    return arrow.types.is_struct(kind) and {"bytes", "path"} <= {kind.field(i).name for i in range(kind.num_fields)}


def plain(value, where):
    """Returns a value that JSON has. Times become texts; numbers that JSON lacks become null."""
    if isinstance(value, dict):
        return {key: plain(item, where) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item, where) for item in value]
    if isinstance(value, float):
        return value if abs(value) < float("inf") else None
    if isinstance(value, (bytes, bytearray)):
        raise Error(f"{where}: has bytes, which JSON lacks; name the other columns by --columns")
    return value if value is None or isinstance(value, (bool, int, str)) else str(value)


def text_of(values, where):
    return json.dumps(plain(values, where), ensure_ascii=False)


def write_jsonl(found, options, folder):
    first = next(iter(found.values()))
    names = listed(options.columns) or first.schema.names
    check_columns(found, names)
    for split, table in found.items():
        with open(os.path.join(folder, f"{split}.jsonl"), "w", encoding="utf-8") as file:
            for at, row, _ in table.records(names):
                file.write(text_of(dict(zip(names, row)), f"{split}, row {at}") + "\n")
        print(f"{split}: {table.rows} lines")
    label = next((name for name in names if class_names(found, name)), None) if options.label is None else label_of(found, options.label)
    if label:
        Classes(found, label).write(folder)


def numbers_of(column, where):
    """Returns a column as an array (rows,…) of the type of its numbers. The lists of a row must have the same shape in all rows."""
    arrow = pyarrow()
    kind, shape = column.type, [len(column)]
    while True:
        if column.null_count:
            raise Error(f"{where}: {column.null_count} values are missing")
        if not is_list(column.type):
            break
        lengths = arrow.compute.list_value_length(column).unique().to_pylist()
        if len(lengths) > 1:
            raise Error(f"{where}: its lists differ in length")
        shape, column = [*shape, *(lengths or [0])], arrow.compute.list_flatten(column)
    column = column.dictionary_decode() if arrow.types.is_dictionary(column.type) else column
    array = column.to_numpy(zero_copy_only=False)
    if array.dtype.kind not in "biuf":
        raise Error(f"{where}: has values of type {kind}, but must have numbers")
    return array.reshape(shape)


def write_arrays(table, split, names, classes, label, folder):
    """Writes x, and y if LABEL is not None. Blocks of rows are copied to arrays on the disk, whose shape is known after the first."""
    x = y = None
    at = 0
    for _, batch in table.batches([*names, *([label] if label else [])]):
        parts = [numbers_of(batch.column(batch.schema.get_field_index(name)), f"{split}, column {name}") for name in names]
        block = parts[0] if len(parts) == 1 and parts[0].ndim > 1 else numpy.concatenate([p.reshape(len(p), -1) for p in parts], 1)
        if x is None:
            kind = block.dtype if block.dtype.kind != "b" else numpy.dtype("u1")
            x = numpy.lib.format.open_memmap(os.path.join(folder, f"x_{split}.npy"), "w+", kind, (table.rows, *block.shape[1:]))
        if block.shape[1:] != x.shape[1:]:
            raise Error(f"{split}, row {at}: has the shape {block.shape[1:]}, but the rows before it {x.shape[1:]}")
        x[at:at + len(block)] = block
        if label:
            column = batch.column(batch.schema.get_field_index(label))
            values = [classes.of(v, f"{split}, row {at + i}") for i, v in enumerate(column.to_pylist())] if classes else numbers_of(column, label)
            if y is None:
                kind = numpy.dtype("i8") if classes else numpy.asarray(values).dtype
                y = numpy.lib.format.open_memmap(os.path.join(folder, f"y_{split}.npy"), "w+", kind, (table.rows, *numpy.shape(values)[1:]))
            y[at:at + len(block)] = values
        at += len(block)
    for array in (x, y):
        if array is not None:
            array.flush()
    print(f"{split}: x {x.dtype} {x.shape}" + (f", y {y.dtype} {y.shape}" if label else ""))


def write_npy(found, options, folder):
    first, arrow = next(iter(found.values())), pyarrow()
    label = label_of(found, options.label, needed=True)
    names = listed(options.columns) or [name for name in first.schema.names if name != label]
    check_columns(found, [*names, *([label] if label else [])])
    kind = first.schema.field(label).type if label else None
    numbers = label and (arrow.types.is_floating(kind) or arrow.types.is_nested(kind))
    classes = Classes(found, label) if label and not numbers else None
    for split, table in found.items():
        write_arrays(table, split, names, classes, label, folder)
    if classes:
        classes.write(folder)


def write_tokens(found, options, folder):
    first = next(iter(found.values()))
    lists = listed(options.columns)
    if options.tokenizer and lists or not options.tokenizer and len(lists) != 1:
        raise Error("tokens requires either --tokenizer FILE with --text NAME, or --columns NAME, a column with lists of token numbers")
    column = lists[0] if lists else options.text or "text"
    check_columns(found, [column])
    if "val" not in found and "test" in found:
        print("the split test is written as val")
        found["val"] = found.pop("test")
    for split in [split for split in found if split not in ("train", "val")]:
        print(f"the split {split} is left out; give --split {split} to convert it")
        del found[split]
    if "train" not in found:
        raise Error(f"{first.files[0]}: has no training split; name the files train…")
    documents = {split: (row[0] for _, row, _ in table.records([column])) for split, table in found.items()}
    kind, lengths = first.schema.field(column).type, None
    if lists and is_list(kind):
        lengths = {split: lengths_of(table, column) for split, table in found.items()}
    token_files.write(documents, lengths, options, folder)


def is_list(kind):
    types = pyarrow().types
    return types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)


def lengths_of(table, column):
    """Yields the number of elements of each list of a column."""
    for _, batch in table.batches([column]):
        yield from (count or 0 for count in pyarrow().compute.list_value_length(batch.column(0)).to_pylist())


WRITERS = {"tar": write_tar, "jsonl": write_jsonl, "tokens": write_tokens, "npy": write_npy}


def convert(options):
    """Writes the data set. OPTIONS: those of parser()."""
    out = os.path.abspath(options.out)
    if os.path.lexists(out):
        raise Error(f"{options.out}: exists; remove it, or give another --out")
    folder = options.input[0] if options.kind == "tar" and len(options.input) == 1 and image_folders.is_one(options.input[0]) else None
    unused = [name for name in ("image", "label", "columns") if getattr(options, name)] if folder else ["shuffle"] * (options.shuffle is not None)
    if unused:
        raise Error(f"--{unused[0]} {'does not apply' if folder else 'applies only'} to a folder of images, IN/train/CLASS/")
    found = None if folder else tables(options.input, options.split)
    part = None
    try:
        os.makedirs(os.path.dirname(out), exist_ok=True)
        part = tempfile.mkdtemp(prefix=f"{os.path.basename(out)}.part-", dir=os.path.dirname(out))
        if folder:
            seed = 1 if options.shuffle is None else options.shuffle
            image_folders.write(folder, seed, options.split, lambda split: Shards(part, split, options.shard_size))
        else:
            WRITERS[options.kind](found, options, part)
        for name in os.listdir(part):
            with open(os.path.join(part, name), "rb") as file:
                os.fsync(file.fileno())
        os.chmod(part, 0o777 & ~umask())    # mkdtemp permits only the owner
        os.rename(part, out)
    except OSError as why:
        raise Error(f"{why.filename or part or out}: cannot be written: {why.strerror or why}") from None
    finally:
        if part:
            shutil.rmtree(part, ignore_errors=True)


def umask():
    """Returns the permissions that new files do not get."""
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def main(arguments=None):
    """The command. Returns its exit status."""
    options = parser().parse_args(arguments)
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))    # removes the incomplete files
    try:
        convert(options)
    except Error as why:
        print(f"stargrad.convert: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)
    return 0


if __name__ == "__main__":
    sys.exit(main())
