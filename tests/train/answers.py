"""Conversations: tokenize --template writes their tokens and marks the answers, and --loss-on answers counts only these."""
import array
import json
import os
import random
import shutil

from run import FOLDER, content, events, folder, losses, main, ranks, stargrad

START, END = 256, 257                               # of a turn; the other tokens are bytes
TEMPLATE = "<s>{prompt}\n<s>{answer}<e>\n"
CHATS = [{"prompt": "one two", "response": "two one"},
         {"messages": [{"role": "user", "content": "a b"}, {"role": "assistant", "content": "b a"},
                       {"role": "user", "content": "c"}, {"role": "assistant", "content": "d"}]}]


def byte_characters():
    """The visible character of each byte in GPT-2's files."""
    visible = [*range(33, 127), *range(161, 173), *range(174, 256)]
    hidden = [byte for byte in range(256) if byte not in visible]
    return {byte: chr(byte) if byte in visible else chr(256 + hidden.index(byte)) for byte in range(256)}


def files(name, chats=None, template=TEMPLATE):
    path = folder(name)
    os.makedirs(path)
    tokens = {character: byte for byte, character in byte_characters().items()}
    added = [{"id": START, "content": "<s>", "special": True}, {"id": END, "content": "<e>", "special": True}]
    with open(os.path.join(path, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump({"added_tokens": added, "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
                   "decoder": {"type": "ByteLevel"}, "model": {"type": "BPE", "vocab": tokens, "merges": []}}, f)
    with open(os.path.join(path, "template.txt"), "w", encoding="utf-8") as f:
        f.write(template)
    with open(os.path.join(path, "chats.jsonl"), "w", encoding="utf-8") as f:
        f.writelines(json.dumps(chat) + "\n" for chat in chats or CHATS)
    return path


def tokenize(path, *more, **how):
    return stargrad("tokenize", "--tokenizer", f"{path}/tokenizer.json", "--template", f"{path}/template.txt", f"{path}/chats.jsonl",
                    "--out", f"{path}/tokens", "--end", "none", *more, **how)


def read(path, part):
    """The tokens of a part, and whether each belongs to an answer."""
    tokens = array.array("H", content(f"{path}/tokens", f"{part}.bin")[1024:])
    return list(tokens), list(content(f"{path}/tokens", f"{part}.answers"))


def exchange(prompt, answer):
    before, after = [START, *prompt.encode(), 10, START], [*answer.encode(), END, 10]
    return before + after, [0] * len(before) + [1] * len(after)


def test_tokens():
    path = files("tokens")
    tokenize(path, "--val", 1)
    assert read(path, "val") == exchange("one two", "two one")
    first, second = exchange("a b", "b a"), exchange("c", "d")
    assert read(path, "train") == (first[0] + second[0], first[1] + second[1])


def test_system_message():
    """The section of the template is used in the first exchange of conversations with a system message, and nowhere else."""
    form = "{#system}<s>S{system}<e>{/system}" + TEMPLATE
    turns = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    chats = [{"system": "be brief", "prompt": "one", "response": "two"},
             {"messages": [{"role": "system", "content": "be kind"}, *turns, *turns]}, {"messages": turns}]
    path = files("system", chats, form)
    tokenize(path, "--val", 1)
    first, turn = exchange("one", "two"), exchange("a", "b")
    brief, kind = [START, *b"Sbe brief", END], [START, *b"Sbe kind", END]
    assert read(path, "val") == (brief + first[0], [0] * len(brief) + first[1])
    assert read(path, "train") == (kind + 3 * turn[0], [0] * len(kind) + 3 * turn[1])
    shutil.rmtree(f"{path}/tokens")
    with open(f"{path}/template.txt", "w", encoding="utf-8") as f:
        f.write(TEMPLATE)
    assert "line 1: has a system message, but the template has no place for it" in tokenize(path, status=1)
    for wrong, why in (("{system}" + TEMPLATE, "must contain {#system}, {system} and {/system} together"),
                       (TEMPLATE + "{#system}{system}{/system}", "{system}, {prompt} and {answer} in this order")):
        with open(f"{path}/template.txt", "w", encoding="utf-8") as f:
            f.write(wrong)
        assert why in tokenize(path, status=1)


def capitals(name):
    """Random letters, whose answers are their capitals."""
    letters = random.Random(1)
    path = files(name, [{"prompt": letter, "response": letter.upper()} for letter in letters.choices("abcdefgh", k=800)])
    tokenize(path)
    return path, ("train", "--model", "llama:layers=1,width=32,heads=2,hidden=64,context=64,vocabulary=258", "--data", f"tokens:{path}/tokens,42",
                  "--batch", 8, "--optimizer", "adamw", "--lr", 0.01, "--loss-on", "answers", "--cpus", 1)


def test_loss():
    """The network learns the answers, not the prompts, which are random; on two ranks, too. eval and --resume use the run's option."""
    path, words = capitals("loss")
    out, both = folder("answers"), folder("both")
    stargrad(*words, "--steps", 300, "--checkpoint-every", "200s", "--out", out)
    tested = events(out, "epoch")[-1]["test_loss"]
    assert tested < 0.15, tested                    # of all tokens, prompts included, it could not fall below log(8) / 7 = 0.3
    assert abs(json.loads(stargrad("eval", out, "--json"))["test_loss"] - tested) < 1e-6
    ranks(2, *words, "--steps", 5, "--mesh", "tensor=1d:2", "--out", both)
    assert all(abs(a - b) <= 1e-5 * a for a, b in zip(losses(both), losses(out)[:5], strict=True))
    stargrad("train", "--resume", "--steps", 310, "--out", out)
    assert events(out, "epoch")[-1]["test_loss"] < 0.15
    answer = stargrad("sample", out, "--template", f"{path}/template.txt", "--prompt", "c",
                      "--stop", "<e>", "--temperature", 0, "--tokens", 20)
    assert answer == "C\n", answer
    assert "requires a --template with {#system}" in stargrad("sample", out, "--template", f"{path}/template.txt", "--system", "x",
                                                              "--prompt", "c", status=2)


def test_steps_without_answers():
    """Short samples of one prompt have no loss; the run continues, and the mean of the epoch ignores them."""
    path, words = capitals("short")
    out = folder("short-run")
    stargrad(*words[:4], f"tokens:{path}/tokens,2", "--batch", 1, *words[7:], "--steps", 40, "--out", out)
    steps = events(out, "step")
    assert any(step["loss"] is None for step in steps) and any(step["loss"] is not None for step in steps)
    assert all(step.get("empty", False) == (step["loss"] is None) for step in steps)
    assert events(out, "epoch")[-1]["train_loss"] is not None


def test_refused():
    path = files("refused")
    for chat, why in (({"text": "a"}, "line 1: must have the texts 'prompt' and 'response', or an array 'messages'"),
                      ({"messages": []}, "line 1: 'messages' is not an array with a message"),
                      ({"messages": [{"role": "system", "content": "a"}]}, "'messages' is not an array with a message of a user"),
                      ({"messages": [{"role": "tool", "content": "a"}]}, "message 1 has role 'tool', but must have role 'user'"),
                      ({"system": 1, "prompt": "a", "response": "b"}, "has a field 'system' that is not a text"),
                      ({"messages": [{"role": "user", "content": "a"}]}, "the last one must be of role 'assistant'"),
                      ({"messages": [{"role": "user", "content": 1}, {"role": "assistant"}]}, "message 1 has no text 'content'")):
        with open(f"{path}/chats.jsonl", "w", encoding="utf-8") as f:
            f.write(json.dumps(chat) + "\n")
        said = tokenize(path, status=1)
        assert why in said and not os.path.exists(f"{path}/tokens/train.bin"), said
    for template, why in (("{prompt}", "must contain {answer} exactly once"), ("{answer}{prompt}", "{prompt} and {answer} in this order"),
                          ("{prompt}{prompt}{answer}", "must contain {prompt} exactly once")):
        with open(f"{path}/template.txt", "w", encoding="utf-8") as f:
            f.write(template)
        assert why in tokenize(path, status=1)
    text = os.path.join(FOLDER, "plain.txt")
    with open(text, "w", encoding="utf-8") as f:
        f.write("a text\n" * 100)
    train = ("train", "--model", "llama:layers=1,width=32,heads=2", "--steps", 1, "--loss-on", "answers", "--data")
    assert "--loss-on answers requires --data tokens:DIR,T" in stargrad(*train, f"text:{text},8", status=2)
    tokens = folder("unmarked")
    os.makedirs(tokens)
    for part in "train", "val":
        with open(f"{tokens}/{part}.bin", "wb") as f:
            f.write(array.array("H", range(200)).tobytes())
    assert "train.answers, which stargrad tokenize --template writes" in stargrad(*train, f"tokens:{tokens},8", status=2)
    for data, why in ((bytes(200), "no token belongs to an answer"), (bytes([1]) * 199, "must have one for each of the 200 tokens"),
                      (bytes([2]) * 200, "byte 0 is 2, not 0 or 1")):
        for part in "train", "val":
            with open(f"{tokens}/{part}.answers", "wb") as f:
                f.write(data)
        assert why in stargrad(*train, f"tokens:{tokens},8", status=1)


if __name__ == "__main__":
    main(globals())
