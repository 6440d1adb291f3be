"""stargrad tokenize: the tokens of generated text in all scripts are those of the library `tokenizers`, for tokenizers of every kind
that it trained here: 22,000 documents, and 1,000,000 in check-long. Files of tokens do not depend on threads, on the kind of input, or
on the blocks into which a text is divided. A killed command leaves no files of tokens. Bad input is refused by file and line."""
import array
import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "train"))

from run import FOLDER, REFERENCE, command, folder, long, main, pytest, stargrad  # noqa: E402

if not pytest:
    main(())
sys.path.insert(0, REFERENCE)
with open(os.path.join(REFERENCE, "tokenizer_kinds.json"), encoding="utf-8") as _file:
    KINDS = json.load(_file)
END = "<|endoftext|>"

# Ranges of characters: scripts, marks that NFC moves, numbers, blanks, and anything; with weights.
RANGES = [(0x20, 0x7e, 50), (0x09, 0x0d, 3), (0xa0, 0x24f, 6), (0x300, 0x36f, 3), (0x370, 0x3ff, 2), (0x400, 0x4ff, 3), (0x590, 0x5ff, 2),
          (0x600, 0x6ff, 3), (0x900, 0x97f, 3), (0x980, 0x9ff, 1), (0xb80, 0xbff, 1), (0xe00, 0xe7f, 2), (0x1100, 0x11ff, 2),
          (0x1e00, 0x1fff, 2), (0x2000, 0x206f, 3), (0x2150, 0x218f, 1), (0x24b6, 0x24e9, 1), (0x3000, 0x30ff, 3), (0x4e00, 0x9fff, 3),
          (0xac00, 0xd7a3, 3), (0xf900, 0xfb4f, 1), (0x1f300, 0x1f6ff, 2), (0x1d400, 0x1d7ff, 1), (0x10000, 0x1ffff, 1), (0, 0x10ffff, 1)]
WORDS = ("the of and to in is that it's I'll we've don't can't he'd you're I'm She'S 'Re hello world 12 12345 2026 3.14 x_y <s> </s> <tool> "
         f"naïve café cafe\u0301 {END} \n\n \r\n \t").split(" ")
JOINTS = [" ", "\n", "  ", "\n\n", "", "\u00a0", "'s", "\u3000", "▁"]


def document(drawn):
    parts = []
    for _ in range(drawn.randrange(1, 14)):
        if drawn.random() < 0.35:
            parts.append(" ".join(drawn.choice(WORDS) for _ in range(drawn.randrange(1, 8))))
        else:
            low, high, _ = drawn.choices(RANGES, [weight for *_, weight in RANGES])[0]
            codes = (drawn.randint(low, high) for _ in range(drawn.randrange(1, 12)))
            parts.append("".join(chr(code) for code in codes if not 0xd800 <= code < 0xe000))
        if drawn.random() < 0.4:
            parts.append(drawn.choice(JOINTS))
    return "".join(parts)


def documents(count, seed):
    drawn = random.Random(seed)
    return [document(drawn) for _ in range(count)]


def write_lines(name, texts):
    path = os.path.join(FOLDER, name)
    with open(path, "w", encoding="utf-8") as file:
        for number, text in enumerate(texts):
            file.write(json.dumps({"id": number, "text": text}, ensure_ascii=number % 2 == 0) + "\n")
    return path


def write_text(name, text):
    path = os.path.join(FOLDER, name)
    with open(path, "wb") as file:
        file.write(text.encode())
    return path


def kind(name):
    """A folder's tokenizer.json of a kind of tests/reference/tokenizer_kinds.json."""
    path = os.path.join(FOLDER, f"{name}.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(next(case["tokenizer"] for case in KINDS["cases"] if case["name"] == name), file)
    return path


def read(path):
    """The tokens of a file with llm.c's header."""
    with open(path, "rb") as file:
        header, content = array.array("I", file.read(1024)), file.read()
    tokens = array.array({(20240520, 1): "H", (20240801, 7): "I"}[header[0], header[1]], content)
    assert len(tokens) == header[2] and not any(header[3:])
    return tokens


def tokens_of(*words, val=1):
    """The tokens of val.bin, which has the first document, and of train.bin."""
    out = folder("out")
    stargrad("tokenize", *words, "--out", out, "--val", val)
    return read(os.path.join(out, "val.bin")) + read(os.path.join(out, "train.bin"))


def compare(each):
    """All kinds of tokenizers, with EACH documents for each, in portions that fit into memory."""
    pytest.importorskip("tokenizers", reason="Python has no tokenizers")
    import tokenizer_kinds
    for number, (name, tokenizer) in enumerate(tokenizer_kinds.make_all(documents(400, 1), 1500)):
        mark = "\U0010fffd<END>"       # no document has it
        tokenizer.add_special_tokens([mark])
        end, path = tokenizer.token_to_id(mark), os.path.join(FOLDER, "tokenizer.json")
        tokenizer.save(path)
        for first in range(0, each, 20000):
            texts = documents(min(each - first, 20000), f"{number} {first}")
            got = tokens_of("--tokenizer", path, write_lines("in.jsonl", texts), "--begin", "none", "--end", mark)
            at = 0
            for text, encoding in zip(texts, tokenizer.encode_batch(texts, add_special_tokens=False)):
                wanted = array.array(got.typecode, [*encoding.ids, end])
                assert got[at:at + len(wanted)] == wanted, (name, text, list(wanted), list(got[at:at + len(wanted) + 5]))
                at += len(wanted)
            assert at == len(got)


def test_ids():
    """22,000 documents."""
    compare(2000)


@long
def test_many_ids():
    """1,000,000 documents."""
    compare(91000)


def test_blocks_and_threads():
    """A text of 5 MB is divided into blocks; as a line of JSON it is not. Both give the same tokens, on any number of threads."""
    drawn = random.Random(5)
    text = "".join(drawn.choice(["the", "of", "it's", "Été", "  ", "\n", "\n\n", " \n", "12\n34", ".\n", "a\nb", "x\ny", " "]) + drawn.choice("  \n")
                   for _ in range(1300000))
    whole = write_lines("whole.jsonl", ["first", text])
    first, second = write_text("first.txt", "first"), write_text("second.txt", text)
    for name in ("gpt2", "llama3", "qwen", "gpt2-prefix"):
        path = kind(name)
        wanted = tokens_of("--tokenizer", path, whole, "--threads", 1)
        assert wanted == tokens_of("--tokenizer", path, first, second, "--threads", 1), name
        assert wanted == tokens_of("--tokenizer", path, first, second, "--threads", 5), name


def test_inputs():
    """Text, JSON lines and standard input; tokens between documents; the files beside the tokens."""
    texts, path = KINDS["texts"][:12], kind("llama3")
    case = next(case for case in KINDS["cases"] if case["name"] == "llama3")
    names = [write_text(f"{number}.txt", text) for number, text in enumerate(texts)]
    begin, end = 1, 0
    wanted = [token for ids in case["ids"][:12] for token in (begin, *ids, end)]
    assert list(tokens_of("--tokenizer", path, *names)) == wanted
    lines = write_lines("in.jsonl", texts)
    assert list(tokens_of("--tokenizer", path, lines)) == wanted
    with open(lines, "rb") as file:
        content = file.read()
    with open(lines + ".gz", "wb") as file:
        file.write(gzip.compress(content[:99]) + gzip.compress(content[99:]))
    assert list(tokens_of("--tokenizer", path, lines + ".gz")) == wanted
    if shutil.which("zstd") and "Zstandard" in stargrad("--version").split("without:")[0]:
        subprocess.run(["zstd", "-q", "-f", lines], check=True)
        assert list(tokens_of("--tokenizer", path, lines + ".zst")) == wanted
    out = folder("standard")
    with open(lines, encoding="utf-8") as file:
        content = " \n\n" + file.read().replace('"text"', '"body"').rstrip()        # blank lines are no documents; no last line end
    done = subprocess.run(command("tokenize", "--tokenizer", path, "-", "--field", "body", "--out", out, "--val", 1, "--json"),
                          input=content.encode(), capture_output=True, check=True)
    assert list(read(os.path.join(out, "val.bin")) + read(os.path.join(out, "train.bin"))) == wanted
    with open(os.path.join(out, "tokens.json"), encoding="utf-8") as file:
        result = json.load(file)
    assert result == json.loads(done.stdout) and result["begin"] == [begin] and result["end"] == end and result["bits"] == 16
    assert result["val"]["documents"] == 1 and result["train"]["documents"] == 11
    assert result["val"]["tokens"] + result["train"]["tokens"] == len(wanted)
    assert result["val"]["bytes"] + result["train"]["bytes"] == sum(len(text.encode()) for text in texts)
    assert sorted(os.listdir(out)) == ["tokenizer.json", "tokens.json", "train.bin", "val.bin"]
    with open(path, "rb") as one, open(os.path.join(out, "tokenizer.json"), "rb") as other:
        assert one.read() == other.read()
    none = [token for ids in case["ids"][:12] for token in ids]
    assert list(tokens_of("--tokenizer", path, lines, "--begin", "none", "--end", "none")) == none
    stargrad("train", "--model", "gpt:layers=1,heads=1,width=16,context=8,vocabulary=512", "--data", f"tokens:{out},8", "--batch", 2, "--print")


def test_validation():
    """A fraction of the documents, spread evenly; the first documents; the last part of a text, from the beginning of a line."""
    path, out = kind("gpt2"), folder("fraction")
    lines = write_lines("ten.jsonl", [str(number) for number in range(10)])
    stargrad("tokenize", "--tokenizer", path, lines, "--out", out, "--val", 0.2)
    digit = {number: tokens_of("--tokenizer", path, lines)[2 * number] for number in range(10)}
    assert [token for token in read(os.path.join(out, "val.bin"))[::2]] == [digit[0], digit[5]]
    assert [token for token in read(os.path.join(out, "train.bin"))[::2]] == [digit[number] for number in (1, 2, 3, 4, 6, 7, 8, 9)]
    out = folder("text")
    text = write_text("lines.txt", "".join(f"{number}\n" for number in range(10)))
    stargrad("tokenize", "--tokenizer", path, text, "--out", out)
    assert read(os.path.join(out, "train.bin"))[0] == digit[0] and read(os.path.join(out, "val.bin"))[0] == digit[9]
    assert read(os.path.join(out, "val.bin"))[-1] == read(os.path.join(out, "train.bin"))[-1] == 0      # the end token


def test_wide():
    """A vocabulary of more than 65,536 tokens has tokens of 32 bits."""
    with open(kind("gpt2"), encoding="utf-8") as file:
        content = json.load(file)
    vocabulary = content["model"]["vocab"]
    for number in range(len(vocabulary), 70000):
        vocabulary[f"unused {number}"] = number
    path = os.path.join(FOLDER, "wide.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)
    tokens = tokens_of("--tokenizer", path, write_lines("in.jsonl", ["To be", "or not"]))
    assert tokens.typecode == "I" and list(tokens) == list(tokens_of("--tokenizer", kind("gpt2"), os.path.join(FOLDER, "in.jsonl")))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_killed(number):
    """A command that is killed leaves no train.bin and no val.bin. Other signals leave no temporary files either."""
    out = folder("killed")
    process = subprocess.Popen(command("tokenize", "--tokenizer", kind("gpt2"), "-", "--out", out), stdin=subprocess.PIPE)
    for _ in range(40):         # more blocks than may wait, so that some are written
        process.stdin.write(b"some text\nof some lines\n" * 50000)
    process.send_signal(number)
    process.stdin.close()
    assert process.wait() == -number
    assert not {"train.bin", "val.bin", "tokens.json"} & set(os.listdir(out))
    assert number == signal.SIGKILL or not os.listdir(out)


REFUSED = [
    ("bad.jsonl", b'{"text": "a"}\n\n{"text": \n', (), "bad.jsonl: line 3: is not JSON: "),
    ("bad.jsonl", b'{"text": "a"}\n[1]\n', (), "bad.jsonl: line 2: is not an object; each line must be one"),
    ("bad.jsonl", b'{"body": "a"}\n', (), "bad.jsonl: line 1: has no field 'text'; set --field, for example to 'body'"),
    ("bad.jsonl", b'{"text": "a"}\n{"text": 5}\n', (), "bad.jsonl: line 2: its field 'text' is not a text; set --field"),
    ("bad.jsonl", b'{"text": "\xe9"}\n', (), "bad.jsonl: line 1: is not JSON: unable to decode byte 0xe9"),
    ("bad.jsonl.gz", gzip.compress(b'{"text": "a"}\n' * 99)[:-12], (), "bad.jsonl.gz: the compressed data end early"),
    ("bad.jsonl.gz", b"\x1f\x8b" + bytes(30), (), "bad.jsonl.gz: unknown compression method"),
    ("bad.jsonl.zst", b"\x28\xb5\x2f\xfd" + bytes(2), (), "bad.jsonl.zst"),
    ("bad.txt", b"a\nb\xe9c\n" * 9, (), "bad.txt: line 2: byte 0xE9 is not UTF-8; convert the file"),
    ("bad.txt", b"\x1f\x8b\x08" + bytes(600), (), "bad.txt: is a gzip file, not text; unpack it"),
    ("bad.txt", b"a line", (), "bad.txt: no line begins in the last 0.1 of the file, so there is no text for val.bin; set another --val"),
    ("bad.jsonl", b'{"text": "a"}\n\n{"text": "b"}', ("--val", "5"), "train.bin would have no tokens: 0 documents of 2 are for it; set another --val"),
    ("bad.json", b'{"text": "a"}\n', (), "the input has 1 document, but train.bin and val.bin need at least one each; give several"),
    ("bad.json", b'[{"text": "a"},\n', (), "bad.json: line 1: is not JSON"),
    ("bad.txt", b"a\nb\n", ("--val", "half"), "--val: 'half' is neither a fraction between 0 and 1 nor a number of documents"),
    ("bad.txt", b"a\nb\n", ("--end", "<no>"), "--end: the tokenizer has no token '<no>'"),
    ("bad.txt", b"a\nb\n", ("--begin", "<no>"), "--begin: the tokenizer has no token '<no>'"),
]


@pytest.mark.parametrize("name, content, more, why", REFUSED, ids=map(str, range(len(REFUSED))))
def test_refused(name, content, more, why):
    out, path = folder("refused"), os.path.join(FOLDER, name)
    with open(path, "wb") as file:
        file.write(content)
    done = subprocess.run(command("tokenize", "--tokenizer", kind("gpt2"), path, "--out", out, *more), capture_output=True, text=True)
    assert done.returncode == (2 if more and more[0] != "--val" or "half" in more else 1) and why in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not done.stdout
    assert not os.path.exists(out) or not os.listdir(out)


def test_refused_folders():
    """A folder as input, an absent file, files of an earlier call, a tokenizer without an end token."""
    path, text = kind("gpt2"), write_text("lines.txt", "a\nb\n")
    words = ("tokenize", "--tokenizer", path)
    assert "is a folder; give its files" in stargrad(*words, FOLDER, "--out", folder("out"), status=1)
    assert "absent.txt: No such file" in stargrad(*words, os.path.join(FOLDER, "absent.txt"), "--out", folder("out"), status=1)
    out = folder("twice")
    stargrad(*words, text, "--out", out, "--val", 0.5)
    assert "train.bin exists; remove it, or give another folder" in stargrad(*words, text, "--out", out, status=2)
    with open(path, encoding="utf-8") as file:
        content = json.load(file)
    content["added_tokens"] = []
    with open(path, "w", encoding="utf-8") as file:
        json.dump(content, file)
    assert "one of which would follow each document; set --end TOKEN, or --end none" in stargrad(*words, text, "--out", folder("out"), status=2)


if __name__ == "__main__":
    main(globals())
