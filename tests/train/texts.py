"""Texts in JSON lines with a tokenizer: the samples are those of the token files that stargrad tokenize writes, on any number of ranks;
files are tokenized once, again only if they change, and a killed run leaves no file that is incomplete."""
import glob
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import time

from run import FOLDER, REFERENCE, command, events, folder, losses, main, ranks, stargrad

with open(os.path.join(REFERENCE, "tokenizer_kinds.json"), encoding="utf-8") as _file:
    KINDS = {case["name"]: case["tokenizer"] for case in json.load(_file)["cases"]}
TRAIN = ("train", "--model", "llama:layers=1,heads=2,width=16,context=16,vocabulary=512", "--batch", 8, "--steps", 4, "--optimizer", "adam",
         "--lr", 0.01, "--cpus", 1, "--deterministic", "--checkpoint-every", 0)
CACHE = os.path.join(FOLDER, "cache")
os.environ["STARPU_HOME"] = CACHE
PAST = time.time() - 1000


def tokenizer(name="gpt2"):
    path = os.path.join(FOLDER, f"{name}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(KINDS[name], file)
    return path


def documents(count, seed):
    drawn = random.Random(seed)
    words = "To be or not that is the question whether 12 it's nobler naïve".split()
    return [" ".join(drawn.choice(words) for _ in range(drawn.randrange(5, 60))) for _ in range(count)]


def put(path, texts, field="text", past=PAST):
    """Writes JSON lines, with a time in the past, because a file that was just written is not tokenized at once."""
    path = os.path.join(FOLDER, path)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    content = "".join(json.dumps({"n": n, field: text}) + "\n" for n, text in enumerate(texts)).encode()
    with open(path, "wb") as file:
        file.write(gzip.compress(content) if path.endswith(".gz") else content)
    os.utime(path, (past, past))
    return path


def clear():
    shutil.rmtree(os.path.join(CACHE, ".starpu", "stargrad", "tokens"), ignore_errors=True)


def cached():
    """The token files and their times."""
    return {path: os.stat(path).st_mtime_ns for path in glob.glob(os.path.join(CACHE, ".starpu", "stargrad", "tokens", "*.bin*"))}


def trained(data, *more, run=stargrad):
    out = folder("texts-run")
    run(*TRAIN, "--data", data, "--out", out, *more)
    return losses(out), events(out, "epoch")[-1]["test_loss"]


def as_tokens(name, texts):
    """Token files of TEXTS, a list per file, as stargrad tokenize writes them: FOLDER/NAME/train-0.bin … and val-0.bin."""
    to = folder(name)
    os.makedirs(to)
    for split in texts:
        for i, some in enumerate(texts[split]):
            out = folder("one")
            stargrad("tokenize", "--tokenizer", tokenizer(), put("one.jsonl", ["first", *some]), "--val", 1, "--out", out)
            shutil.copy(os.path.join(out, "train.bin"), os.path.join(to, f"{split}-{i}.bin"))
    return to


TEXTS = {"train": [documents(40, 1), documents(30, 2), documents(50, 3)], "val": [documents(20, 4), documents(10, 5)]}


def write_shards(name, field="text", packed=False):
    for split in TEXTS:
        for i, some in enumerate(TEXTS[split]):
            put(f"{name}/{split}-{i}.jsonl" + (".gz" if packed and i % 2 else ""), some, field)
    return os.path.join(FOLDER, name)


def test_as_tokens():
    """Patterns, a folder, compressed files, other fields, two ranks."""
    wanted = trained(f"tokens:{as_tokens('tokens', TEXTS)},16")
    plain, packed, words = write_shards("plain"), write_shards("packed", "body", True), ("--tokenizer", tokenizer())
    clear()
    assert trained(f"jsonl:{plain},16", *words) == wanted
    before = cached()
    assert len(before) == 5 and not any(".part" in path for path in before)
    assert trained(f"jsonl:{plain}/{{train,val}}-*.jsonl,16", *words, "--field", "text") == wanted and cached() == before
    assert trained(f"jsonl:{packed}/{{train,val}}-*.jsonl*,16", *words, "--field", "body") == wanted and len(cached()) == 10
    clear()
    got = trained(f"jsonl:{plain},16", *words, run=lambda *all: ranks(2, *all))
    assert got[0] == wanted[0] and abs(got[1] - wanted[1]) < 1e-5 and len(cached()) == 5


def test_pair():
    """vocab.json and merges.txt are a tokenizer, whatever the first one is called; the run directory has both, and the results are the same."""
    plain, out, pair = write_shards("plain"), folder("whole"), folder("pair")
    os.makedirs(pair)
    model = KINDS["gpt2"]["model"]
    with open(os.path.join(pair, "words.json"), "w", encoding="utf-8") as file:
        json.dump(model["vocab"], file)
    with open(os.path.join(pair, "merges.txt"), "w", encoding="utf-8") as file:
        file.writelines((merge if isinstance(merge, str) else " ".join(merge)) + "\n" for merge in ["#version: 0.2", *model["merges"]])
    words = (*TRAIN[:-1], 2, "--data", f"jsonl:{plain},16")
    stargrad(*words, "--tokenizer", os.path.join(pair, "words.json"), "--out", out)
    shutil.rmtree(pair)
    assert {"vocab.json", "merges.txt"} < set(os.listdir(out)) and "tokenizer.json" not in os.listdir(out)
    assert "To be" in stargrad("sample", out, "--prompt", "To be", "--tokens", 3)
    whole = folder("as-one-file")
    stargrad(*words, "--tokenizer", tokenizer(), "--out", whole)
    assert losses(whole) == losses(out)


def test_run():
    """The run directory has the tokenizer; evaluation, generation, continuation; documents."""
    plain, out = write_shards("plain"), folder("whole")
    data, path = f"jsonl:{plain},16", tokenizer()
    stargrad(*TRAIN[:-1], 2, "--data", data, "--tokenizer", path, "--out", out, "--attend", "document")
    with open(path, "rb") as one, open(os.path.join(out, "tokenizer.json"), "rb") as other:
        assert one.read() == other.read()
    tested = events(out, "epoch")[-1]["test_loss"]
    assert abs(json.loads(stargrad("eval", out, "--json"))["test_loss"] - tested) < 1e-6
    odd, copied = shutil.copy(path, os.path.join(FOLDER, "my-vocab.json")), folder("copied")
    stargrad(*TRAIN[:-1], 2, "--data", data, "--tokenizer", odd, "--out", copied)
    assert os.path.exists(os.path.join(copied, "tokenizer.json"))
    clear()
    assert abs(json.loads(stargrad("eval", out, "--json"))["test_loss"] - tested) < 1e-6 and len(cached()) == 2
    one = stargrad("eval", out, "--json", "--data", f"jsonl:{plain}/val-0.jsonl,16")
    assert json.loads(one)["test_loss"] != tested
    assert "To be" in stargrad("sample", out, "--prompt", "To be", "--tokens", 3)
    stargrad(*TRAIN, "--data", data, "--tokenizer", path, "--attend", "document", "--out", out, "--resume", "--steps", 6)
    assert len(losses(out)) == 6


def test_held_out():
    """Without val, a tenth of the tokens of each file, or --split."""
    whole, words = put("alone/part-0.jsonl", documents(100, 7)), ("--tokenizer", tokenizer())
    put("alone/part-1.jsonl", documents(100, 8))
    counts = []
    for more in (), ("--split", 0.1), ("--split", 0.4):
        said = stargrad(*TRAIN, "--data", f"jsonl:{FOLDER}/alone/part-*.jsonl,16", *words, *more, "--print")
        line = next(line for line in said.splitlines() if line.startswith("data"))
        counts.append([int(word) for word in line.split(" classes, ")[1].split(";")[0].split() if word.isdigit()])
        assert ("held out by --split" in line) == bool(more), line
    assert counts[0] == counts[1] and 8 < counts[0][0] / counts[0][1] < 10 and 1.4 < counts[2][0] / counts[2][1] < 1.6, counts
    done = subprocess.run(command(*TRAIN, "--data", f"jsonl:{{{whole},{put('alone/few.jsonl', ['a'])}}},16", *words, "--print"), check=True,
                          capture_output=True, text=True)
    assert "1 of 2 files has no sample" in done.stderr, done.stderr


def test_changed():
    """A file that changes, and another tokenizer, are tokenized again; the other files are not. Damaged token files are replaced."""
    plain, words = write_shards("changing"), ("--tokenizer", tokenizer())
    clear()
    first, before = trained(f"jsonl:{plain},16", *words), cached()
    put("changing/train-1.jsonl", TEXTS["train"][0], past=PAST + 5)
    second, after = trained(f"jsonl:{plain},16", *words), cached()
    assert second != first and after.keys() == before.keys() and sum(after[path] != before[path] for path in after) == 1
    put("changing/train-1.jsonl", TEXTS["train"][1])
    path = next(path for path in after if after[path] != before[path])
    os.truncate(path, os.path.getsize(path) - 2)
    assert trained(f"jsonl:{plain},16", *words) == first
    os.utime(os.path.join(plain, "train-1.jsonl"))
    assert trained(f"jsonl:{plain},16", *words) == first
    trained(f"jsonl:{plain},16", "--tokenizer", tokenizer("llama3"))
    assert len(cached()) == 10


def test_killed():
    """A signal removes the unfinished file. What SIGKILL leaves is removed by the next run, which keeps the complete files."""
    words = ("--tokenizer", tokenizer())
    texts = documents(2000, 9) * 20
    for i in range(3):
        put(f"large/train-{i}.jsonl", texts)
    put("large/val-0.jsonl", documents(50, 10))
    data = ("--data", f"jsonl:{FOLDER}/large,16", *words)
    for number in signal.SIGTERM, signal.SIGKILL:
        clear()
        process = subprocess.Popen(command(*TRAIN, *data, "--out", folder("killed")), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while not any(".part" in path for path in cached()) and process.poll() is None:
            pass
        process.send_signal(number)
        assert process.wait() in (-number, 0)
        assert number == signal.SIGKILL or not any(".part" in path for path in cached())
    before = {path: date for path, date in cached().items() if ".part" not in path}
    trained(data[1], *words)
    after = cached()
    assert len(after) == 4 and not any(".part" in path for path in after) and all(after[path] == before[path] for path in before)


def refused(data, *words):
    """The message about DATA."""
    done = subprocess.run(command(*TRAIN, "--data", data, *words, "--out", folder("refused")), capture_output=True, text=True)
    assert done.returncode in (1, 2), done
    return done.stderr


def test_refused():
    good, words = put("bad/good.jsonl", documents(20, 11)), ("--tokenizer", tokenizer())
    bad = os.path.join(FOLDER, "bad", "bad.jsonl")
    for content, more, why in (
            (b'{"text": "a"}\n\n{"text": \n', (), "bad.jsonl: line 3: is not JSON: "),
            (b'{"text": "a"}\n[1]\n', (), "bad.jsonl: line 2: is not an object"),
            (b'{"text": 1}\n', (), "bad.jsonl: line 1: its field 'text' is not a text; set --field"),
            (b'{"body": "a"}\n', (), "bad.jsonl: line 1: has no field 'text'; set --field, for example to 'body'"),
            (b'{"text": "\xe9"}\n', (), "bad.jsonl: line 1: is not JSON: unable to decode"),
            (b"", (), "bad.jsonl: has no document"), (b"\n \n", (), "bad.jsonl: has no document"),
            (gzip.compress(b'{"text": "a"}\n')[:-9], (), "bad.jsonl: the compressed data end early"),
            (b'{"text": "a"}\n', ("--loss-on", "answers"), "--loss-on answers requires --data tokens:DIR,T")):
        with open(bad, "wb") as file:
            file.write(content)
        os.utime(bad, (PAST, PAST))
        said = refused(f"jsonl:{{{good},{bad}}},16", *words, *more)
        assert why in said and said.count("\n") == 1, (why, said)
        assert not any(".part" in path for path in cached())
    for data, why in (f"jsonl:{good}", "must end with ,T, where T is the length of a sample"), (f"jsonl:{FOLDER}/none,16", "none: No such file"):
        said = refused(data, *words)
        assert why in said, said
    small = ("--model", "llama:layers=1,heads=2,width=16,context=16,vocabulary=100")
    assert "vocabulary=100 is too small" in refused(f"jsonl:{good},16", *words, *small)
    done = subprocess.run(command("train", "--model", "mlp", "--data", "digits", "--steps", 1, *words, "--out", folder("digits")), check=True,
                          capture_output=True, text=True)
    assert "--tokenizer has no effect" in done.stderr, done.stderr


if __name__ == "__main__":
    main(globals())
