"""Language models: ten steps from given weights have PyTorch's losses (tests/reference/gpt.py made them), at any micro-batch and
on several ranks. Weights with Hugging Face's names load with and without their prefix. The progress is printed. Sampling with
cached keys and values equals the whole network. Invalid options and files are refused."""
import array
import json
import math
import os
import random
import re
import struct
import subprocess
import sys

from run import FOLDER, REFERENCE, SOURCE, Skip, command, events, folder, losses, main, ranks, stargrad

sys.path.insert(0, REFERENCE)
import weights  # noqa: E402

TEXT = os.path.join(REFERENCE, "text.txt")
TINY = "gpt:layers=2,heads=2,width=32,context=24"


def read(path):
    """{name: (shape, floats)} of a safetensors file."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (is_["shape"], array.array("f", data[slice(*is_["data_offsets"])])) for name, is_ in header.items()}


def write(path, tensors):
    header, end = {}, 0
    for name, (shape, values) in tensors.items():
        dtype = "F32" if values.typecode == "f" else "BOOL"
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end := end + values.itemsize * len(values)]}
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, values in tensors.values():
            values.tofile(file)


def reference(run):
    """Its options, and the words that make the same of stargrad train."""
    with open(os.path.join(REFERENCE, "gpt.json")) as f:
        how = json.load(f)[run]
    init = os.path.join(FOLDER, f"gpt-{run}.safetensors")
    weights.write(init, {name: [int(size) for size in shape.split()] for name, shape in how["weights"].items()})
    model = "gpt:" + ",".join(f"{key}={how[key]}" for key in ("layers", "heads", "width", "context", "vocabulary"))
    return how, ("train", "--model", model, "--data", f"text:{TEXT},{how['length']}", "--init", init, "--batch", how["batch"], "--no-shuffle",
                 "--optimizer", "adamw", "--lr", how["lr"], "--beta2", how["beta2"], "--weight-decay", how["weight_decay"], "--no-decay-1d",
                 "--clip-norm", how["clip_norm"], "--steps", 10, "--checkpoint-every", 0)


def check(run, *more, start=stargrad, within=2e-5):
    how, words = reference(run)
    out = folder("reference")
    start(*words, "--out", out, *more)
    got = losses(out)
    assert len(got) == 10
    for step, (a, b) in enumerate(zip(got, how["loss"])):
        assert abs(a - b) <= within * b, f"{run} {more}, step {step + 1}: {a} is not PyTorch's {b}, by {abs(a - b) / b:.1e}"
    return out


def test_reference():
    check("small")
    check("small", "--micro-batch", 1)
    check("small", "--no-fuse", "--recompute")
    check("small", "--precision", "bf16", within=0.02)


def test_large():
    if not os.environ.get("STARGRAD_LONG"):
        raise Skip("ten steps of a larger network are for make check-long")
    check("large")


def test_ranks():
    check("small", start=lambda *words: ranks(2, *words))


def test_tensor():
    """Layers split over ranks: PyTorch's losses, one rank's weights and test loss, and a run that goes on without the other rank."""
    one = check("small", "--micro-batch", 2)
    for count, mesh in ((2, "tensor=1d:2"), (4, "data=2,tensor=2"), (4, "tensor=2d:2")):
        parts = check("small", "--mesh", mesh, "--micro-batch", 2, start=lambda *words, count=count: ranks(count, *words))
        whole, other = (read(os.path.join(path, "model.safetensors")) for path in (one, parts))
        assert {name: is_[0] for name, is_ in whole.items()} == {name: is_[0] for name, is_ in other.items()}
        for name, (_, values) in whole.items():
            far = max(abs(a - b) for a, b in zip(values, other[name][1]))
            assert far <= 1e-5 * max(map(abs, values)) + 1e-6, f"{mesh}: {name} is off by {far}"
        tests = [events(path, "epoch")[-1]["test_loss"] for path in (one, parts)]
        assert abs(tests[0] - tests[1]) <= 1e-5 * tests[0], (mesh, tests)
    _, words = reference("small")
    half = folder("half")
    words = [*words[:words.index("--checkpoint-every")], "--checkpoint-every", "5s", "--out", half]
    at = words.index("--steps") + 1
    ranks(2, *words[:at], 5, *words[at + 1:], "--mesh", "tensor=2")
    stargrad(*words, "--resume")
    assert all(abs(a - b) <= 1e-5 * b for a, b in zip(losses(half), losses(one), strict=True)), (losses(half), losses(one))


def test_tensor_refused():
    def refused(what, *more, count=2):
        said = ranks(count, "train", "--model", "gpt:heads=4,width=32,context=24", "--data", f"text:{TEXT},24", "--print", *more, status=2)
        assert what in said, said

    refused("heads: 4 cannot be split over the 3 ranks of axis tensor; use 2 or 4", "--mesh", "tensor=3", count=3)
    refused("kv_heads: 2 cannot be split over the 3 ranks of axis tensor; use 2\n", "--model", "llama:layers=1,heads=6,kv_heads=2,width=48,context=24",
            "--mesh", "tensor=3", count=3)
    refused("give AXIS=RANKS, separated by commas, for example data=2,tensor=1d:2 (or tensor=2d:2, tensor=3d:2)", "--mesh", "tensor=4d:2")
    refused("the mesh requires a multiple of 4 ranks, but there are 2", "--mesh", "tensor=4")
    refused("does not divide its work over axis depth", "--mesh", "depth=2")


def test_metrics():
    out = check("small")
    end = events(out, "epoch")[-1]
    assert abs(end["test_perplexity"] - math.exp(end["test_loss"])) < 1e-6 * end["test_perplexity"]
    assert end["perplexity"] == end["test_perplexity"] and end["bits_per_byte"] == end["test_bits_per_byte"]
    assert abs(end["test_bits_per_byte"] - end["test_loss"] / math.log(2)) < 1e-6


def test_names():
    """Without the prefix, with masks of booleans and the head that is the embedding; another head is refused, and so are weights of booleans."""
    _, words = reference("small")
    at = words.index("--init") + 1
    tensors = read(words[at])
    bare = {name.removeprefix("transformer."): value for name, value in tensors.items()}
    bare["h.0.attn.bias"] = ([1, 1, 24, 24], array.array("B", bytes(24 * 24)))
    bare["lm_head.weight"] = bare["wte.weight"]
    other = os.path.join(FOLDER, "bare.safetensors")
    write(other, bare)
    with open(os.path.join(FOLDER, "config.json"), "w") as f:
        f.write('{"n_layer": 2}')       # Hugging Face's, which lies beside its weights
    stargrad("eval", "--weights", other, "--model", TINY, "--data", words[words.index("--data") + 1])
    outs = []
    for init in (words[at], other):
        outs.append(folder(f"names-{len(outs)}"))
        stargrad(*words[:at], init, *words[at + 1:], "--deterministic", "--out", outs[-1])
    assert losses(outs[0]) == losses(outs[1])
    saved = read(os.path.join(outs[1], "model.safetensors"))
    assert {name: shape for name, (shape, _) in saved.items()} == {name: shape for name, (shape, _) in tensors.items()}
    bare["lm_head.weight"] = (bare["wte.weight"][0], array.array("f", reversed(bare["wte.weight"][1])))
    write(other, bare)
    said = stargrad(*words[:at], other, *words[at + 1:], "--out", folder("names-2"), status=1)
    assert "lm_head.weight and transformer.wte.weight must be equal" in said, said
    del bare["lm_head.weight"]
    bare["ln_f.bias"] = (bare["ln_f.bias"][0], array.array("B", bytes(len(bare["ln_f.bias"][1]))))
    write(other, bare)
    said = stargrad(*words[:at], other, *words[at + 1:], "--out", folder("names-3"), status=1)
    assert "ln_f.bias" in said and "BOOL" in said, said


def learn():
    """Weights that know some of the text."""
    model = os.path.join(FOLDER, "learned", "model.safetensors")
    if not os.path.exists(model):
        stargrad("train", "--model", TINY, "--data", f"text:{TEXT},24", "--batch", 16, "--optimizer", "adamw", "--lr", 0.01, "--epochs", 4,
                 "--deterministic", "--checkpoint-every", 0, "--out", os.path.dirname(model))
    return model


def test_sample():
    """The likeliest bytes, beyond the context; the same seed says the same."""
    say = ("sample", "--weights", learn(), "--model", TINY, "--prompt", "a", "--tokens", 60)
    greedy = stargrad(*say, "--temperature", 0)
    assert greedy == stargrad(*say, "--temperature", 0) == stargrad(*say, "--top-k", 1) and len(greedy) == 62
    run = os.path.dirname(learn())
    assert stargrad("sample", run, *say[5:], "--temperature", 0) == greedy      # weights and network are the run's
    assert stargrad("sample", run, *say[1:3], *say[5:], "--temperature", 0) == greedy
    assert "--model NAME is missing" in stargrad("sample", *say[1:3], "--prompt", "a", status=2)
    picture = folder("picture")
    stargrad("train", "--model", "mlp", "--data", "digits", "--batch", 96, "--steps", 1, "--out", picture)
    assert "model mlp is not a language model" in stargrad("sample", picture, "--prompt", "a", status=2)
    other = os.path.join(REFERENCE, "tokenizer.json")
    assert "the tokenizer has 700 tokens, but the network has 256; give the tokenizer of this network" in stargrad(*say, "--tokenizer", other, status=2)
    assert "no.so" in stargrad("sample", *say[1:], "--plugin", os.path.join(FOLDER, "no.so"), status=2)
    assert stargrad(*say, "--seed", 2) == stargrad(*say, "--seed", 2) != stargrad(*say, "--seed", 3)
    assert "--prompt: .. is not a valid TEXT" in stargrad(*say[:5], "--prompt", "", status=2).replace("''", "..")
    assert "is not a token number; to use text, specify a tokenizer" in stargrad(*say[:4], TINY + ",vocabulary=300", "--prompt", "a", status=2)


def test_sample_together():
    """Texts that are generated together are those generated alone, whatever the lengths of their prompts."""
    say = ("sample", "--weights", learn(), "--model", TINY, "--tokens", 60)
    prompts = ["a", "to ", "the king and the queen of the whole country"]       # the last one is longer than the context
    path = os.path.join(FOLDER, "prompts.txt")
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(prompts))
    lines = [json.loads(line) for line in stargrad(*say, "--prompts", path, "--temperature", 0).splitlines()]
    assert [line["prompt"] for line in lines] == prompts
    assert all(line["tokens"] == 60 and not line["stopped"] for line in lines)
    for line in lines:
        alone = stargrad(*say, "--prompt", line["prompt"], "--temperature", 0)
        assert alone == line["prompt"] + line["text"] + "\n", (alone, line)
    both = [json.loads(line)["text"] for line in stargrad(*say, "--prompts", path).splitlines()]
    assert stargrad(*say, "--prompt", prompts[0]) == prompts[0] + both[0] + "\n"
    with open(path, "w", encoding="utf-8") as f:
        f.write("a\n\nb\n")
    assert f"line 2 of {path} is empty" in stargrad(*say, "--prompts", path, status=2)
    assert "--prompt and --prompts cannot be combined" in stargrad(*say, "--prompts", path, "--prompt", "a", status=2)
    assert "--prompts: nowhere: No such file" in stargrad(*say, "--prompts", "nowhere", status=1)


def test_sample_until():
    """A text ends before --stop, also where the text continues like it; --template surrounds the prompt."""
    say = ("sample", "--weights", learn(), "--model", TINY, "--tokens", 60, "--temperature", 0)
    whole = stargrad(*say, "--prompt", "a")[1:-1]
    for stop in whole[20:21], whole[20:23], whole[40:50], whole[:2]:
        assert stargrad(*say, "--prompt", "a", "--stop", stop) == "a" + whole[:whole.index(stop)] + "\n", stop
    assert stargrad(*say, "--prompt", "a", "--stop", whole[-3:] + "?") == f"a{whole}\n"      # a beginning of it at the end of the text
    path = os.path.join(FOLDER, "template.txt")
    with open(path, "w", encoding="utf-8") as f:
        f.write("to {prompt}\n")
    assert stargrad(*say, "--prompt", "be", "--template", path) == stargrad(*say, "--prompt", "to be\n").removeprefix("to be\n")
    with open(path, "w", encoding="utf-8") as f:
        f.write("{prompt}{prompt}")
    assert "must contain {prompt} exactly once" in stargrad(*say, "--prompt", "a", "--template", path, status=1)


def test_sample_choices():
    say = ("sample", "--weights", learn(), "--model", TINY, "--tokens", 60, "--prompt", "a")
    greedy = stargrad(*say, "--temperature", 0)
    assert stargrad(*say, "--top-p", 0.0001) == greedy != stargrad(*say, "--top-p", 0.9)
    assert stargrad(*say, "--top-p", 1) == stargrad(*say) == stargrad(*say, "--repetition-penalty", 1)
    varied = stargrad(*say, "--temperature", 0, "--repetition-penalty", 100)
    assert len(set(varied)) > len(set(greedy)), (varied, greedy)


def test_sample_with_a_plug_in():
    """A run that had a plug-in is sampled with it, by the run's folder; without it a warning names it."""
    library, build = os.path.join(FOLDER, "swish.so"), os.environ.get("builddir", "build")
    subprocess.run([os.environ.get("CC", "cc"), "-shared", "-fPIC", f"-I{SOURCE}", f"-I{build}", os.path.join(SOURCE, "examples/plug-ins/swish.c"),
                    "-o", library, "-lm"], check=True)
    out = folder("plugged")
    stargrad("train", "--plugin", library, "--model", TINY, "--data", f"text:{TEXT},24", "--steps", 2, "--batch", 8, "--out", out)
    words = ("sample", out, "--prompt", "ab", "--tokens", 8)
    for more, warned in ((), True), (("--plugin", library), False):
        done = subprocess.run(command(*words, *more), capture_output=True, check=True)      # bytes: it has learned no text yet
        assert done.stdout.startswith(b"ab") and (b"swish.so" in done.stderr) == warned, (more, done)


def test_cache():
    """Keys and values kept from step to step give what the whole network gives: of all bytes, that which is drawn as the likeliest has
    the least loss."""
    model = learn()
    text = stargrad("sample", "--weights", model, "--model", TINY, "--prompt", "ab", "--tokens", 12, "--temperature", 0)[:14].encode()

    def loss(last):
        path = os.path.join(FOLDER, "said.txt")
        with open(path, "wb") as f:
            f.write(bytes(126) + text[:13] + bytes([last]))      # the last tenth: what was said
        tested = json.loads(stargrad("eval", "--weights", model, "--model", TINY, "--data", f"text:{path},13", "--json"))
        return tested["test_loss"]

    assert len(text) == 14
    drawn = loss(text[13])
    for other in {*b" aeiourstn,.\n"} - {text[13]}:
        assert drawn < loss(other), (text, other)


def test_tokenizer():
    """Text becomes GPT-2's tokens and back, from either file: as the tokens' numbers have it."""
    words = [*"abcdefghijklmnopqrstuvwxyz.\u0120", "th", "the", "\u0120the"]
    merges, path = ["t h", "th e", "\u0120 the"], folder("tokenizer")
    os.makedirs(path)
    with open(os.path.join(path, "vocab.json"), "w") as f:
        json.dump({word: number for number, word in enumerate(words)}, f)
    with open(os.path.join(path, "merges.txt"), "w") as f:
        f.write("#version: 0.2\n" + "\n".join(merges) + "\n")
    with open(os.path.join(path, "tokenizer.json"), "w") as f:
        json.dump({"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
                   "model": {"vocab": {word: number for number, word in enumerate(words)}, "merges": [pair.split() for pair in merges]}}, f)
    how, _ = reference("small")
    shapes = {name: [int(size) for size in shape.split()] for name, shape in how["weights"].items()}
    init = os.path.join(FOLDER, "gpt-words.safetensors")
    weights.write(init, shapes | {"transformer.wte.weight": [len(words), 32]})
    say = ("sample", "--weights", init, "--model", TINY + f",vocabulary={len(words)}", "--tokens", 8)
    numbers = stargrad(*say, "--prompt", " ".join(str(words.index(word)) for word in ("the", "\u0120the", "\u0120", "a")))
    said = "the the a" + "".join(words[int(number)] for number in numbers.split()).replace("\u0120", " ") + "\n"
    for file in ("vocab.json", "tokenizer.json"):
        assert stargrad(*say, "--prompt", "the the a", "--tokenizer", os.path.join(path, file)) == said, said
    with open(os.path.join(path, "tokenizer.json")) as f:
        added = json.load(f) | {"added_tokens": [{"id": len(words), "content": "[PAD]"}]}
    with open(os.path.join(path, "added.json"), "w") as f:       # a token more than the network knows, which matters where it is used
        json.dump(added, f)
    assert stargrad(*say, "--prompt", "the the a", "--tokenizer", os.path.join(path, "added.json")) == said
    wrong = stargrad(*say, "--prompt", "the[PAD]", "--tokenizer", os.path.join(path, "added.json"), status=2)
    assert f"token {len(words)} of the prompt is invalid: it must be from 0 to {len(words) - 1}" in wrong, wrong
    for vocabulary in ('{"a": -1}', '{"a": 5, "b": 2000000}'):
        with open(os.path.join(path, "vocab.json"), "w") as f:
            f.write(vocabulary)
        assert "a token whose number is not from 0" in stargrad(*say, "--prompt", "a", "--tokenizer", os.path.join(path, "vocab.json"), status=1)


def text_of(words, tokens):
    """The text of tokens, by the words of a vocabulary: of bytes as characters (GPT-2), or of characters (Llama 2)."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xa1, 0xad), *range(0xae, 0x100)]
    byte = {chr(code): code for code in shown}
    byte |= {chr(0x100 + number): code for number, code in enumerate(code for code in range(256) if code not in shown)}
    levels = "\u0120" in words.values()
    content = b""
    for word in (words[token] for token in tokens):
        if levels:
            content += bytes(byte[character] for character in word)
        elif re.fullmatch("<0x..>", word):
            content += bytes([int(word[3:5], 16)])
        else:
            content += word.replace("\u2581", " ").encode()
    return content.decode(errors="replace")


def test_tokenizers_of_other_models():
    """The prompt follows the template's token, and the generated text has only complete characters: it is that of the numbers."""
    with open(os.path.join(REFERENCE, "tokenizer_kinds.json"), encoding="utf-8") as f:
        kinds = json.load(f)
    prompt, (how, _) = kinds["texts"][0], reference("small")
    shapes = {tensor: [int(size) for size in shape.split()] for tensor, shape in how["weights"].items()}
    for name, begin in (("llama3", [1]), ("qwen", []), ("llama2", [1])):
        kind = next(case for case in kinds["cases"] if case["name"] == name)
        words = {number: word for word, number in kind["tokenizer"]["model"]["vocab"].items()}
        path, init = (os.path.join(FOLDER, f"{name}{ending}") for ending in (".json", ".safetensors"))
        with open(path, "w", encoding="utf-8") as f:
            json.dump(kind["tokenizer"], f)
        weights.write(init, shapes | {"transformer.wte.weight": [len(words), 32]})
        say = ("sample", "--weights", init, "--model", TINY + f",vocabulary={len(words)}", "--tokens", 60)
        numbers = stargrad(*say, "--prompt", " ".join(map(str, begin + kind["ids"][0])))
        text = stargrad(*say, "--prompt", prompt, "--tokenizer", path)        # UTF-8, or Python refuses it
        wanted = prompt + text_of(words, [int(number) for number in numbers.split()]) + "\n"
        assert text == wanted.replace("\r\n", "\n").replace("\r", "\n"), name        # as Python reads output


def test_text_that_is_none():
    """Other kinds of files are read as bytes, with a warning."""
    path = os.path.join(FOLDER, "kind")
    say = command("train", "--model", TINY, "--data", f"text:{path},16", "--batch", 2, "--print")
    drawn = random.Random(4).randbytes(900)
    for content, why in ((b"\x1f\x8b\x08" + drawn, "is a gzip file"), (b"PK\3\4" + drawn, "is a zip archive"), (b"PAR1" + drawn, "is a Parquet"),
                         (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\n" * 9, "is a Git LFS pointer"),
                         (b"<!DOCTYPE html><html>" * 40, ""), (b'{"a": 1}' * 100, ""), (b"#!/bin/sh\n" * 90, ""), (drawn, "")):
        with open(path, "wb") as f:
            f.write(content)
        done = subprocess.run(say, capture_output=True, text=True)
        assert done.returncode == 0 and why in done.stderr and done.stderr.count("warning: text:") == bool(why), (content[:20], done.stderr)


def test_resume():
    """The model's options belong to a run: it goes on with the same, and with no other."""
    words = ("train", "--model", TINY, "--data", f"text:{TEXT},24", "--batch", 16, "--optimizer", "adamw", "--deterministic", "--checkpoint-every", "3s")
    whole, cut = folder("whole"), folder("cut")
    stargrad(*words, "--steps", 20, "--out", whole)
    stargrad(*words, "--steps", 6, "--out", cut)
    stargrad(*words, "--steps", 20, "--out", cut, "--resume")
    assert losses(whole) == losses(cut)
    other = ("train", "--model", TINY + ",dropout=0.5", *words[3:])
    said = stargrad(*other, "--steps", 30, "--out", cut, "--resume", status=2)
    assert "dropout=0" in said and "cannot be continued" in said, said


def test_wrong():
    def refused(model, data, what, status=2):
        said = stargrad("train", "--model", model, "--data", data, "--print", status=status)
        assert what in said and said.count("\n") == 1, said

    data = f"text:{TEXT},16"
    refused("gpt:layer=2", data, "did you mean layers?")
    refused("gpt:layers=two", data, "layers=two must be a whole number from 1 to 1000")
    refused("gpt:layers", data, "layers= must be a whole number")
    refused("gpt:dropout=1", data, "must be a number from 0 to 0.99")
    refused("gpt:heads=5", data, "width=384 must be a multiple of heads=5")
    refused("gpt:context=8", data, "samples have 16 positions, but the network has context=8", 1)
    refused("resnet20:layers=2", "digits", "model resnet20: unknown option 'layers': this model has no options")
    refused("gpt", "text:nothing.txt,16", "nothing.txt", 1)
    refused("gpt", f"text:{TEXT}", "must end with ,T")
    refused("gpt", f"text:{TEXT},0", "must end with ,T")
    refused("gpt", f"text:{TEXT},100000", "samples of 100000 require at least 100001", 1)


if __name__ == "__main__":
    main(globals())
