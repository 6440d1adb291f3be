"""Tables as JSON lines: the same rows as CSV give the same samples, in every order of the keys and compressed."""
import gzip
import json
import os
import random
import shutil
import subprocess

from rows import TITLES, people, written
from run import FOLDER, events, folder, losses, main, stargrad

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
        path = put("refused.jsonl", text)
        for status in (1, 2):
            try:
                said = stargrad(*TRAIN, "--print", "--data", f"jsonl:{path}{more}", status=status)
                break
            except AssertionError:
                if status == 2:
                    raise
        assert why in said and said.count("\n") == 1 and "jsonl:" in said, (why, said)


if __name__ == "__main__":
    main(globals())
