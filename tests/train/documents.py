"""--attend document: attention does not cross the borders of documents. Rotary positions are relative, so a llama that is trained on
samples of two documents each computes the losses of one that is trained on twice as many samples of one document."""
import json
import os
import random

from answers import files
from run import events, folder, losses, main, ranks, stargrad

ROWS, LINES, NEWLINE = 8, 210, 10       # 21 lines, an odd number, are the test set
LLAMA = "llama:layers=2,heads=4,kv_heads=2,width=32,hidden=64,context=40,vocabulary=256"
GPT = "gpt:layers=2,heads=4,width=32,context=40"


def lines(name):
    """A file of documents of ROWS bytes, each of which ends with a newline."""
    path, letters = folder(name), random.Random(1)
    with open(path, "w", encoding="ascii") as f:
        f.writelines("".join(letters.choices("abcdefgh", k=ROWS - 1)) + "\n" for _ in range(LINES))
    return path


def words(text, documents, model=LLAMA):
    """Options of training with samples of so many documents."""
    return ("train", "--model", model, "--data", f"text:{text},{ROWS * documents}", "--batch", 8 // documents, "--micro-batch", 4 // documents,
            "--no-shuffle", "--optimizer", "adamw", "--lr", 0.01, "--steps", 5, "--checkpoint-every", 0,
            *(("--attend", f"document:{NEWLINE}") if documents > 1 else ()))


def check(one, other, within, what):
    for a, b in zip(losses(one), losses(other), strict=True):
        assert abs(a - b) <= within * a, (what, losses(one), losses(other))
    tests = [events(out, "epoch")[-1]["test_loss"] for out in (one, other)]
    assert abs(tests[0] - tests[1]) <= within * tests[0], (what, tests)


def test_documents():
    text = lines("lines")
    for precision, within in ("bf16", 2e-3), ("f32", 5e-6):
        one = folder(f"one-{precision}")
        stargrad(*words(text, 1), "--precision", precision, "--out", one)
        for more in (), ("--recompute",):
            out = folder(f"two-{precision}{len(more)}")
            stargrad(*words(text, 2), "--precision", precision, *more, "--out", out)
            check(one, out, within, (precision, more))
    across = folder("across")
    stargrad(*words(text, 2)[:-2], "--out", across)
    assert abs(losses(one)[-1] - losses(across)[-1]) > 1e-3, "attention to other documents changes nothing"


def test_ranks():
    text = lines("lines-ranks")
    for model in LLAMA, GPT:
        one = folder("whole")
        stargrad(*words(text, 2, model), "--out", one)
        for count, mesh in (2, "pipe=2"), (2, "tensor=1d:2"), (4, "tensor=2d:2"), (2, "data=2"):
            out = folder(f"ranks-{mesh}")
            ranks(count, *words(text, 2, model)[:-2], "--attend", f"document:{NEWLINE}", "--mesh", mesh, "--out", out)
            check(one, out, 1e-5, (model, mesh))


def test_tokens():
    """tokens.json has the end token. eval, --resume and sample use the option of the run."""
    path, out, again = files("corpus"), folder("tokens-run"), folder("tokens-again")
    with open(os.path.join(path, "texts.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(json.dumps({"text": "abcdefgh"[i % 5:]}) + "\n" for i in range(300))
    stargrad("tokenize", "--tokenizer", f"{path}/tokenizer.json", f"{path}/texts.jsonl", "--out", f"{path}/tokens", "--end", "<e>")
    train = ("train", "--model", LLAMA.replace("256", "258"), "--data", f"tokens:{path}/tokens,32", "--batch", 4, "--optimizer", "adamw",
             "--attend", "document")
    stargrad(*train, "--steps", 6, "--out", out)
    stargrad(*train, "--steps", 3, "--out", again)
    stargrad(*train, "--steps", 6, "--resume", "--out", again)
    check(out, again, 1e-6, "resumed")
    with open(os.path.join(out, "config.json"), encoding="utf-8") as f:
        assert json.load(f)["options"]["attend"] == "document"
    evaluated = json.loads(stargrad("eval", out, "--json"))["test_loss"]
    assert abs(evaluated - events(out, "epoch")[-1]["test_loss"]) < 1e-6
    assert stargrad("sample", out, "--prompt", "abc", "--tokens", 5)
    across = json.loads(stargrad("eval", out, "--json", "--attend", "sample"))["test_loss"]
    assert abs(evaluated - across) > 1e-5, "eval --attend sample changes nothing"
    stargrad(*train[:-2], "--attend", "sample", "--steps", 7, "--resume", "--out", again)       # an option may change
    stargrad("export", out, folder("documents.onnx"))       # with attention over the whole input


def test_refused():
    text = lines("lines-refused")
    train = ("train", "--steps", 1, "--out", folder("refused"))
    data = ("--data", f"text:{text},16", "--model", GPT)
    for attend in "documents", "document:", "document:x", "document:1x", "document:12345678901":
        assert f"--attend '{attend}' must be sample, document or document:TOKEN" in stargrad(*train, *data, "--attend", attend, status=2)
    assert "token 999, the last of each document, does not occur" in stargrad(*train, *data, "--attend", "document:999", status=2)
    assert "give --attend document:BYTE" in stargrad(*train, *data, "--attend", "document", status=2)
    digits = ("--data", "digits", "--attend", "document", "--model")
    assert "--attend document requires --data tokens:DIR,T or text:FILE,T, not digits" in stargrad(*train, *digits, "convnet", status=2)


if __name__ == "__main__":
    main(globals())
