"""Tables as JSON lines: the same rows as CSV give the same samples, in every order of the keys and compressed."""
import gzip
import json
import os
import random
import shutil
import subprocess

from rows import TITLES, people, written
from run import FOLDER, command, events, folder, losses, main, ranks, stargrad

TRAIN = ("train", "--model", "mlp", "--batch", 20, "--epochs", 2, "--lr", 0.05, "--cpus", 1, "--deterministic", "--checkpoint-every", 0)


def value_of(cell):
    """The value of a cell: a number, a text, or null."""
    try:
        return None if cell in ("", "NA") else int(cell) if cell.isdecimal() else float(cell)
    except ValueError:
        return cell


def lines_of(rows, draw=None):
    """JSON lines of rows. DRAW: the keys of all lines but the first are in a random order, and missing values have no key."""
    said = []
    for i, row in enumerate(rows):
        fields = {title: value_of(cell) for title, cell in zip(TITLES, row)}
        if draw and i:
            keys = [key for key in fields if fields[key] is not None]
            fields = {key: fields[key] for key in draw.sample(keys, len(keys))}
        said.append(json.dumps(fields) + "\n")
    return "".join(said)


def put(name, text):
    path = folder(name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as f:
        f.write(text if isinstance(text, bytes) else text.encode())
    return path


def trained(data):
    out = folder("table")
    stargrad(*TRAIN, "--data", data, "--out", out)
    with open(os.path.join(out, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    end = events(out, "epoch")[-1]
    return losses(out), end["test_loss"], config["features"], config.get("classes")


def test_as_csv():
    rows = people()
    plain, mixed = lines_of(rows), lines_of(rows, random.Random(1))
    table = written("people.csv", rows, TITLES)
    for target in ",-id,missing=mean,kind", ",-id,missing=frequent,-kind,price,scale", ",-id,-age,category=colour,missing=mean,kind":
        wanted = trained(f"csv:{table}{target}")
        assert trained(f"jsonl:{put('people.jsonl', plain)}{target}") == wanted, target
        assert trained(f"jsonl:{put('mixed.jsonl', mixed)}{target}") == wanted, target
    packed = gzip.compress(mixed.encode()[:5000]) + gzip.compress(mixed.encode()[5000:])
    assert trained(f"jsonl:{put('people.jsonl.gz', packed)}{target}") == wanted
    if shutil.which("zstd") and "Zstandard" in stargrad("--version").split("without:")[0]:
        subprocess.run(["zstd", "-q", "-f", put("zst.jsonl", "\ufeff" + mixed)], check=True)
        assert trained(f"jsonl:{FOLDER}/zst.jsonl.zst{target}") == wanted


def test_folder():
    """train.jsonl and val.jsonl.gz; then evaluation and prediction of other lines."""
    rows = people()
    path = os.path.dirname(put("both/train.jsonl", lines_of(rows[:150])))
    put("both/val.jsonl.gz", gzip.compress(lines_of(rows[150:]).encode()))
    out, data = folder("both-run"), f"jsonl:{path},-id,missing=mean,kind"
    stargrad(*TRAIN[:-1], 1, "--data", data, "--out", out)
    tested = events(out, "epoch")[-1]
    assert abs(json.loads(stargrad("eval", out, "--json"))["test_loss"] - tested["test_loss"]) < 1e-6
    said = stargrad("predict", out, "--data", f"jsonl:{put('new.jsonl', lines_of(rows[:5]))}", "--id", "id")
    assert [line.split(",")[0] for line in said.splitlines()] == ["id", *(row[0] for row in rows[:5])], said
    assert "JSON lines, target 'kind'" in stargrad(*TRAIN, "--data", data, "--print")


def shards(name, rows, count, draw=None):
    """Writes ROWS to COUNT files NAME-0.jsonl, NAME-1.jsonl.gz, …; every second one is compressed."""
    size = -(-len(rows) // count)
    for i in range(count):
        text = lines_of(rows[i * size:(i + 1) * size], draw).encode()
        path = put(f"{name}-{i}.jsonl" + (".gz" if i % 2 else ""), gzip.compress(text) if i % 2 else text)
    return os.path.dirname(path)


def test_shards():
    """Several files are as one, in the order of their names, whatever the order of their keys."""
    rows, words = people(), ",-id,missing=mean,kind"
    wanted = trained(f"jsonl:{put('whole.jsonl', lines_of(rows))}{words}")
    path = shards("shards/part", rows, 4, random.Random(2))
    for pattern in "part-*.jsonl*", "part-{0,1,2,3}.jsonl*", "part-{0..3}.jsonl*", "p[a]rt-?.jsonl*":
        assert trained(f"jsonl:{path}/{pattern}{words}") == wanted, pattern
    said = stargrad(*TRAIN, "--data", f"jsonl:{path}/part-*.jsonl*{words}", "--split", 0.1, "--print")
    assert "JSON lines, target 'kind'" in said, said
    out = folder("shards-run")
    ranks(2, *TRAIN[:-1], 1, "--data", f"jsonl:{path}/part-*.jsonl*{words}", "--out", out)
    assert losses(out)[-1] == wanted[0][-1]
    said = stargrad("predict", out, "--data", f"jsonl:{path}/part-{{0,1}}.jsonl*", "--id", "id")
    assert [line.split(",")[0] for line in said.splitlines()] == ["id", *(row[0] for row in rows[:2 * -(-len(rows) // 4)])], said


def test_shards_of_splits():
    """train-*, val-* and test-*, as a pattern and as a folder, are train.jsonl, val.jsonl and test.jsonl."""
    rows, words = people(), ",-id,missing=mean,kind"
    path = os.path.dirname(put("three/train.jsonl", lines_of(rows[:120])))
    put("three/val.jsonl", lines_of(rows[120:160])), put("three/test.jsonl", lines_of(rows[160:]))
    wanted, out = trained(f"jsonl:{path}{words}"), os.path.join(FOLDER, "table")
    tested = json.loads(stargrad("eval", out, "--on", "test", "--json"))
    parted = shards("parted/train", rows[:120], 3)
    shards("parted/val", rows[120:160], 2), shards("parted/test", rows[160:], 2)
    for pattern in "", "/{train,val,test}-*.jsonl*", "/{train-{0,1,2},val-{0..1},test-*}.jsonl*":
        assert trained(f"jsonl:{parted}{pattern}{words}") == wanted, pattern
        assert json.loads(stargrad("eval", out, "--on", "test", "--json"))["test_loss"] == tested["test_loss"]
    assert "names no shards of the split test" in stargrad("eval", out, "--on", "test", "--data", f"jsonl:{parted}/train-*.jsonl*{words}", status=1)
    os.remove(os.path.join(parted, "val-0.jsonl"))
    assert trained(f"jsonl:{parted}{words}") != wanted


def test_unread_files():
    """A folder's train.jsonl is the training file; a warning names others like it."""
    path = os.path.dirname(put("unread/train.jsonl", lines_of(people()[:120])))
    put("unread/val.jsonl", lines_of(people()[120:])), put("unread/train-2.jsonl", lines_of(people()[:20]))
    done = subprocess.run(command(*TRAIN, "--data", f"jsonl:{path},-id,missing=mean,kind", "--out", os.path.join(FOLDER, "unread-run")),
                          capture_output=True, text=True)
    assert not done.returncode and "120 training" in done.stdout and done.stderr.count("only train.jsonl is read") == 1, done.stderr


def test_differing_shards():
    """Messages name both files."""
    numbers = '{"a": 1, "b": 2}\n' * 10
    where = os.path.dirname(put("odd/1.jsonl", numbers))
    for text, why, more in (
            ('{"a": 1}\n', "2.jsonl: lacks the column 'b' of {}/1.jsonl; all files must have the same keys; ,-b in --data", ""),
            ('{"a": 1, "b": 2, "c": 3}\n', "1.jsonl: lacks the column 'c' of {}/2.jsonl", ""),
            ('{"a": "x", "b": 2}\n', "2.jsonl: the values of 'a' are texts, but those of {}/1.jsonl are numbers; ,category=a", ""),
            ('{"a": 1, "b": "x"}\n', "2.jsonl: the values of 'b' are texts, but those of {}/1.jsonl are numbers; ,classes", ""),
            ('{"a": 1, "b": 2}\n{"a": "x", "b": 2}\n', "2.jsonl: line 2, column 1 (a): 'x' is not a number", ""),
            ('{"b": 2, "a": 1}\n\n{"b": 2}\n', "2.jsonl: line 3, column 1 (a): '' is not a number: it is a missing value", ""),
            ('{"a": 1, "b": 2}\n{"a": 1, b}\n', "2.jsonl: line 2, byte ", ""), ("\n", "2.jsonl: has no line with values", ""),
            (numbers, "1.jsonl and 1 more file: has no column 'c'; give jsonl:", ",c")):
        put("odd/2.jsonl", text)
        said = refused(f"jsonl:{where}/*.jsonl{more}")
        assert why.format(where) in said and said.count("\n") == 1, (why, said)
    put("odd/1.jsonl", '{"a": 1, "d": 3, "b": 2}\n' * 10)
    for text, more in (('{"a": 1, "d": 4, "b": 2, "c": 3}\n', ",-c"), ('{"b": 2, "d": 4}\n', ",-a,b"),
                       ('{"a": "x", "d": 4, "b": 2}\n', ",category=a"), ('{"a": 1, "d": 4, "b": "x"}\n', ",classes")):
        put("odd/2.jsonl", text)
        stargrad(*TRAIN, "--batch", 8, "--print", "--data", f"jsonl:{where}/*.jsonl{more}")
    assert "no file matches" in refused(f"jsonl:{where}/none-*.jsonl")
    put("odd/1.jsonl.gz", gzip.compress(numbers.encode()))
    assert "names a shard twice" in refused(f"jsonl:{where}/1.jsonl*")


def refused(data):
    """The message about DATA, which is an error of status 1 or 2."""
    try:
        return stargrad(*TRAIN, "--print", "--data", data, status=1)
    except AssertionError:
        return stargrad(*TRAIN, "--print", "--data", data, status=2)


def test_refused():
    good = '{"a": 1, "b": 2}\n' * 10
    for text, why, more in (
            (good + '{"a": [1], "b": 2}\n', "line 11: 'a' is an array or an object; its value must be a number", ""),
            (good + "[1, 2]\n", "line 11: is not an object, such as", ""), (good + "\n{a: 1}\n", "line 12, byte ", ""),
            (good + '{"a": 1, "a": 2}\n', "line 11, byte ", ""), (good + '{"a": "x", "b": 2}\n', "line 11, column 1 (a): 'x' is not a number", ""),
            ("\n", "has no line with values", ""), (good, "has no column 'c'; give jsonl:FILE", ",c"),
            (good, "has no header, because the keys are the titles; omit header", ",header"),
            (gzip.compress(good.encode())[:-12], "of the decompressed data: the compressed data end early", ""),
            (b"\x28\xb5\x2f\xfd" + good.encode(), "refused.jsonl", "")):
        said = refused(f"jsonl:{put('refused.jsonl', text)}{more}")
        assert why in said and said.count("\n") == 1 and "jsonl:" in said, (why, said)


if __name__ == "__main__":
    main(globals())
