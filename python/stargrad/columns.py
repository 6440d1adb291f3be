"""columns.py: rows of Parquet files and of data sets that the library `datasets` saved to a folder, in their order. For convert.py.

    file.parquet                    rows of one split, which its name has as a word; "train" if no file has one
    DIR/[data/]train-00000.parquet  a repository of the Hugging Face hub, or any folder with Parquet files of one configuration
    DIR/default/train/0000.parquet  if the name of the file has no split, the nearest folder below DIR that has one names it
    DIR/dataset_info.json           saved by Dataset.save_to_disk
    DIR/dataset_dict.json           saved by DatasetDict.save_to_disk: a folder for each split
    file.arrow                      a file of such a folder"""
import glob
import json
import os
import re

from .library import Error

SPLITS = {"train": "train", "training": "train", "validation": "val", "valid": "val", "val": "val", "dev": "val", "test": "test",
          "testing": "test"}
ALIGN = "number the classes alike with dataset.align_labels_with_mapping(…)"
ROWS = 256      # rows of a batch: images of a batch are in memory


def pyarrow():
    """Returns the module pyarrow."""
    try:
        import pyarrow as module
        import pyarrow.compute
        import pyarrow.parquet
    except ModuleNotFoundError as why:
        raise Error(f"Python has no {why.name}, which reads Parquet and Arrow files; install it with: pip install pyarrow") from None
    return module


def split_of(name):
    """Returns "train", "val" or "test" of the name of a file or folder; None: it names no split."""
    return next((SPLITS[word.lower()] for word in re.findall("[A-Za-z]+", name) if word.lower() in SPLITS), None)


def split_of_path(path):
    """Returns the split of a file: that of its name, or of the nearest of its folders that has one. None: it has none."""
    return next(filter(None, map(split_of, reversed(path.split(os.sep)))), None)


def configuration_of(path):
    """Returns the folders of a file without the words that name a split: en of en/train/0.parquet."""
    folders = [re.sub("[A-Za-z]+", lambda word: "" if split_of(word[0]) else word[0], name).strip(" -_.") for name in path.split(os.sep)[:-1]]
    return os.path.join("", *folders).rstrip(os.sep)


class Table:
    """The rows of one split: the files of a data set, one after another."""

    def __init__(self):
        self.files, self.schemas, self.rows = [], [], 0

    @property
    def schema(self):
        """The columns of the first file."""
        return self.schemas[0]

    def add(self, path):
        """Appends a Parquet or Arrow file. All files must have the columns of the first."""
        try:
            if path.endswith(".parquet"):
                with pyarrow().parquet.ParquetFile(path) as file:
                    schema, rows = file.schema_arrow, file.metadata.num_rows
            else:
                schema, rows = None, 0
                for batch in read_arrow(path):
                    schema, rows = batch.schema, rows + batch.num_rows
        except (OSError, ValueError) as why:            # pyarrow's errors are of these classes
            raise Error(f"{path}: {str(why).splitlines()[0] if str(why) else type(why).__name__}") from None
        if schema is None:
            raise Error(f"{path}: has no rows")
        double = next((name for name in schema.names if schema.names.count(name) > 1), None)
        if double is not None:
            raise Error(f"{path}: has several columns with the name '{double}'; rename one of them")
        if self.schemas and schema.names != self.schema.names:
            raise Error(f"{path}: has the columns {', '.join(schema.names)}, but {self.files[0]} has {', '.join(self.schema.names)}")
        self.schemas.append(schema)
        self.files.append(path)
        self.rows += rows

    def batches(self, columns):
        """Yields the path of a file and a record batch with these columns."""
        for path in self.files:
            try:
                if path.endswith(".parquet"):
                    with pyarrow().parquet.ParquetFile(path) as file:
                        yield from ((path, batch) for batch in file.iter_batches(batch_size=ROWS, columns=list(columns)))
                else:
                    for batch in read_arrow(path):
                        batch = batch.select(list(columns))
                        for at in range(0, batch.num_rows, ROWS):
                            yield path, batch.slice(at, ROWS)
            except (OSError, ValueError) as why:
                raise Error(f"{path}: {str(why).splitlines()[0] if str(why) else type(why).__name__}") from None

    def records(self, columns):
        """Yields the number of a row, from 0, its values, and the path of its file."""
        at = 0
        for path, batch in self.batches(columns):
            values = [batch.column(batch.schema.get_field_index(name)).to_pylist() for name in columns]
            for row in zip(*values):
                yield at, row, path
                at += 1

    def of_type(self, kind):
        """Returns the columns that Hugging Face describes as KIND, "Image" or "ClassLabel"."""
        return [name for name, is_ in features(self.schema).items() if isinstance(is_, dict) and is_.get("_type") == kind and name in self.schema.names]


def features(schema):
    """Returns Hugging Face's description of the columns, by name; {}: there is none."""
    metadata = (schema.metadata or {}).get(b"huggingface")
    try:
        found = json.loads(metadata)["info"]["features"] if metadata else {}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def class_names(found, column):
    """Returns the names of the classes of a column, which must be the same in all files that have names; None: it has none."""
    first = known = None
    for path, schema in (file for table in found.values() for file in zip(table.files, table.schemas)):
        feature = features(schema).get(column)
        names = feature.get("names") if isinstance(feature, dict) and feature.get("_type") == "ClassLabel" else None
        if not isinstance(names, list):
            continue
        names = [str(name) for name in names]
        if known is None:
            first, known = path, names
        if len(names) != len(known):
            raise Error(f"{path}: column '{column}' has {len(names)} classes, but {len(known)} in {first}; {ALIGN}")
        at = next((i for i, name in enumerate(names) if name != known[i]), None)
        if at is not None:
            raise Error(f"{path}: class {at} of column '{column}' is {names[at]!r}, but {known[at]!r} in {first}; {ALIGN}")
    return known


def check_columns(found, names):
    """The files of all tables must have the columns NAMES, with the same types and names of classes."""
    files = [file for table in found.values() for file in zip(table.files, table.schemas)]
    first, wanted = files[0]
    for path, schema in files:
        for name in names:
            if name not in schema.names:
                raise Error(f"{path}: has no column '{name}', but {', '.join(schema.names)}")
            kind, other = schema.field(name).type, wanted.field(name).type
            if kind != other:
                raise Error(f"{path}: column '{name}' has the type {kind}, but {other} in {first}; convert one of them, or leave the column out")
    for name in names:
        class_names(found, name)


def read_arrow(path):
    """Yields the record batches of an Arrow file, which is a stream or has the file format."""
    arrow = pyarrow()
    with arrow.memory_map(path) as source:
        if source.size() >= 6 and source.read(6) == b"ARROW1":
            reader = arrow.ipc.open_file(source)
            yield from (reader.get_batch(i) for i in range(reader.num_record_batches))
        else:
            source.seek(0)
            yield from arrow.ipc.open_stream(source)


def description(path):
    """Returns the object of a JSON file that save_to_disk wrote."""
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError, RecursionError) as why:
        raise Error(f"{path}: cannot be read: {getattr(why, 'strerror', None) or why}") from None
    if not isinstance(content, dict):
        raise Error(f"{path}: must be a JSON object; save the data set again by save_to_disk")
    return content


def saved(folder):
    """Returns the Arrow files of a folder that Dataset.save_to_disk wrote, in their order."""
    state = description(os.path.join(folder, "state.json"))
    if state.get("_indices_data_files"):
        raise Error(f"{folder}: its rows are selected by a file of indices; save it with dataset.flatten_indices().save_to_disk(…)")
    try:
        names = [str(part["filename"]) for part in state["_data_files"]]
    except (KeyError, TypeError):
        raise Error(f"{folder}/state.json: has no list of files, _data_files; save the data set again by save_to_disk") from None
    outside = [name for name in names if os.path.basename(name) != name]
    if outside:
        raise Error(f"{folder}/state.json: names the file {outside[0]}, which is not in the folder")
    return [os.path.join(folder, name) for name in names]


def saved_split(name, where):
    """Returns a split that save_to_disk named. Files of the result and of the input have its name, so that it must not lead elsewhere."""
    if not isinstance(name, str) or not re.fullmatch("[A-Za-z0-9_-][A-Za-z0-9_.-]*", name):
        raise Error(f"{where}: the split {name!r} must be a name of letters, digits, '_', '-' and '.', which does not begin with '.'")
    return SPLITS.get(name.lower(), name)


def files_in(folder):
    """Returns the files of a folder, which must be of one configuration."""
    place = glob.escape(folder)
    found = sorted(glob.glob(os.path.join(place, "**", "*.parquet"), recursive=True)) or sorted(glob.glob(os.path.join(place, "*.arrow")))
    if not found:
        raise Error(f"{folder}: has neither Parquet files nor a data set of save_to_disk")
    configurations = sorted({configuration_of(os.path.relpath(path, folder)) or "." for path in found})
    if len(configurations) > 1:
        raise Error(f"{folder}: has files of {len(configurations)} configurations: {', '.join(configurations)}; give the folder or the files of one as IN")
    return found


def files_of(path, base):
    """Yields pairs of a split, or None, and a file. BASE: the folders below it name splits."""
    def split(part):
        return split_of_path(os.path.relpath(os.path.abspath(part), base))

    if os.path.isfile(path):
        yield split(path), path
    elif not os.path.isdir(path):
        raise Error(f"{path}: no such file or folder")
    elif os.path.exists(os.path.join(path, "dataset_dict.json")):
        where = os.path.join(path, "dataset_dict.json")
        names = description(where).get("splits")
        if not isinstance(names, list):
            raise Error(f"{where}: has no list of splits; save the data set again by save_to_disk")
        for name in names:
            of = saved_split(name, where)
            yield from ((of, part) for part in saved(os.path.join(path, name)))
    elif os.path.exists(os.path.join(path, "state.json")):
        where = os.path.join(path, "state.json")
        name = description(where).get("_split")
        of = split(os.path.join(path, "")) if name is None else saved_split(name, where)
        yield from ((of, part) for part in saved(path))
    else:
        yield from ((split(part), part) for part in files_in(path))


def by_split(paths, only):
    """Returns the files of PATHS by split. Files without a split are training data if none has one."""
    base = os.path.commonpath([os.path.abspath(path if os.path.isdir(path) else os.path.dirname(path)) for path in paths])
    found = {}
    for path in paths:
        for split, part in files_of(path, base):
            if not part.endswith((".parquet", ".arrow")):
                raise Error(f"{part}: is neither a .parquet nor an .arrow file")
            found.setdefault(split, []).append(part)
    bare = found.pop(None, None)
    if bare and not found:
        found["train"] = bare
    elif bare and only is None:
        split, parts = next(iter(found.items()))
        raise Error(f"{bare[0]}: its name and its folders name no split, but {parts[0]} is of the split {split}; rename it, or give --split "
                    f"{split}, which leaves it out")
    return {split: parts for split, parts in found.items() if only is None or split == SPLITS.get(only, only)}


def tables(paths, only=None):
    """Returns the tables of PATHS by split. ONLY: the name of the split to read."""
    found = by_split(paths, only)
    if not found:
        raise Error(f"{', '.join(paths)}: has no split {only}")
    result = {}
    for split, parts in found.items():
        result[split] = Table()
        for part in parts:
            result[split].add(part)
        if not result[split].rows:
            raise Error(f"{', '.join(parts)}: has no rows")
    return result
