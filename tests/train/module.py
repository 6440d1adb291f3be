"""The Python module: its results are those of the command; arrays, weights, tokens, texts, errors, Ctrl-C, ranks,
installation by pip."""
import json
import os
import re
import signal
import subprocess
import sys
import venv

import run
from run import FOLDER, SOURCE, Skip, folder, losses, main, mpirun, resuming, wait_for_steps

LIBRARY = os.path.join(os.environ.get("builddir", "build"), ".libs", "libstargrad.so")
MODULE = os.path.join(SOURCE, "python")
os.environ["STARGRAD_LIBRARY"] = LIBRARY
ENV = {"PYTHONPATH": MODULE, "PYTHONDONTWRITEBYTECODE": "1"}
sys.path.insert(0, MODULE)
sys.dont_write_bytecode = True
try:
    import numpy
    import stargrad
except ModuleNotFoundError as why:
    numpy, missing = None, f"Python has no {why.name}"


def needs_numpy():
    if numpy is None:
        raise Skip(missing)


def refused(call, *wanted):
    try:
        call()
    except stargrad.Error as why:
        assert all(part in str(why) for part in wanted), why
    else:
        raise AssertionError(f"not refused: {wanted}")


def numbers(name, classes=None):
    """A data set that NumPy wrote: features, and what is a simple function of them."""
    draw = numpy.random.default_rng(3)
    x = draw.standard_normal((160, 6), dtype=numpy.float32)
    y = (x[:, 0] > x[:, 1]).astype(numpy.int64) if classes else x[:, :2] - x[:, 2:4]
    path = os.path.join(FOLDER, name)
    numpy.savez(path, x_train=x[:128], y_train=y[:128], x_test=x[128:], y_test=y[128:])
    return path, x[128:], y[128:]


def test_classes():
    needs_numpy()
    data, x, y = numbers("classes.npz", classes=2)
    one = stargrad.train(model="mlp", data=f"npy:{data}", epochs=12, batch=32, lr=0.1, cpus=1, deterministic=True, out=folder("one"))
    assert one.result["steps"] == 48 == len(one.metrics()) and one.metrics("epoch")[-1]["test_top1"] == one.result["test_top1"] > 0.8
    told = one.evaluate(cpus=1)
    assert told.items() <= json.loads(run.stargrad("eval", one.folder, "--json", "--cpus", 1)).items()
    assert told["test_top1"] == one.result["test_top1"]
    said = one.predict(cpus=1)
    assert said.shape == (32, 2) and said.dtype == numpy.float32 and abs((said.argmax(axis=1) == y).mean() - told["test_top1"]) < 1e-6
    assert (one.predict(x, cpus=1) == said).all()
    assert abs(one.predict(x.astype("f8")[::2], cpus=1) - said[::2]).max() < 1e-5       # other places in a batch, other rounding
    assert numpy.allclose(stargrad.probabilities(said).sum(axis=1), 1)
    again = stargrad.train(like=one, out=folder("again"))
    assert losses(again.folder) == losses(one.folder) and repr(again) == f"Run({again.folder!r})"
    less = stargrad.train(like=one.folder, steps=numpy.int64(3), out=folder("less"))
    assert losses(less.folder) == losses(one.folder)[:3] and stargrad.Run(less.folder).config["options"]["steps"] == 3


def test_weights():
    """Its network once more in NumPy; other weights; a file that NumPy wrote trains on."""
    needs_numpy()
    data, x, y = numbers("numbers.npz")
    one = stargrad.train(model="mlp", data=f"npy:{data}", epochs=2, batch=32, lr=0.01, cpus=1, out=folder("numbers"))
    said, w, features = one.predict(cpus=1), one.weights(), one.config["features"]

    def by_hand(w):
        h, layers = (x - features["mean"]) / features["deviation"], sorted(name[:-7] for name in w if name.endswith(".weight"))
        for layer in layers:
            h = h @ w[f"{layer}.weight"].T + w[f"{layer}.bias"]
            h = h if layer == layers[-1] else numpy.maximum(h, 0)
        return h
    assert numpy.allclose(by_hand(w), said, atol=1e-4), abs(by_hand(w) - said).max()
    assert abs(((said - y) ** 2).mean() - one.evaluate(cpus=1)["test_loss"]) < 1e-4
    other = {name: array * 0.5 for name, array in w.items()}
    path = os.path.join(FOLDER, "other.safetensors")
    stargrad.save(path, other)
    assert all((stargrad.load(path)[name] == other[name]).all() for name in w)
    assert numpy.allclose(by_hand(other), one.predict(init=path, cpus=1), atol=1e-4)
    on = stargrad.train(like=one, init=path, steps=1, lr=0.0, weight_decay=0.0, out=folder("on"))
    assert all((on.weights()[name] == other[name]).all() for name in w)
    onnx = os.path.join(FOLDER, "numbers.onnx")
    one.export(onnx)
    assert numpy.allclose(stargrad.evaluate(model=f"onnx:{onnx}", data=f"npy:{data}", cpus=1)["test_loss"], one.evaluate(cpus=1)["test_loss"], atol=1e-5)


def test_images():
    needs_numpy()
    draw = numpy.random.default_rng(5)
    y = numpy.arange(90) % 3
    x = (draw.integers(0, 90, (90, 9, 8, 1)) + 60 * y[:, None, None, None]).astype(numpy.uint8)
    data = os.path.join(FOLDER, "images.npz")
    numpy.savez(data, x_train=x[:60], y_train=y[:60], x_test=x[60:], y_test=y[60:])
    one = stargrad.train(model="convnet", data=f"npy:{data}", epochs=3, batch=20, cpus=1, out=folder("images"))
    said = one.predict(cpus=1)
    assert one.classes == ["0", "1", "2"]
    assert (one.predict(x[60:], cpus=1) == said).all() and (one.predict(x[60:, :, :, 0], cpus=1) == said).all()     # grey
    refused(lambda: one.predict(x[60:, :, :5]), "samples of U8 (9,5,1)", "pixels of U8 (9,8,1)")
    refused(lambda: one.predict(x[60:].astype("f4")), "samples of F32 (9,8,1)", "U8")
    refused(lambda: one.predict([os.path.join(FOLDER, "nothing.png")]), "nothing.png", "No such file")
    refused(lambda: one.predict("nothing.png"), "nothing.png", "No such file")
    refused(lambda: one.predict([1, "nothing.png"]), "samples must be an image file, a list of image files")


def on_ranks(program, status=0):
    """The output of a program in Python on two ranks."""
    needs_numpy()
    return mpirun(2, [sys.executable, "-c", program], status=status, env=ENV)


def test_several_calls_on_ranks():
    """Train, evaluate, predict and resume in one process per rank, as on one rank."""
    out = folder("calls")
    said = on_ranks(f"""import stargrad
run = stargrad.train(model="mlp", data="digits", epochs=2, batch=64, out={out!r}, cpus=1)
result = run.evaluate(cpus=1)
rows = run.predict(cpus=1)
assert result["test_top1"] == run.result["test_top1"] and len(rows) == 360, (result, run.result, len(rows))
again = stargrad.train(out={out!r}, resume=True, epochs=3, cpus=1)
assert again.result["steps"] == 66, again.result
print("all done")
""")
    assert said.count("all done") == 2, said


def test_a_rank_that_fails_between_calls():
    """If one rank ends with an error after a call, the others do not wait for it in the next call without end."""
    said = on_ranks(f"""import os, stargrad
run = stargrad.train(model="mlp", data="digits", steps=2, batch=64, out={folder("fails")!r}, cpus=1)
if (os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["PMI_RANK"]) == "1":
    raise SystemExit(3)
try:
    run.evaluate(cpus=1, stall_timeout=5)
except stargrad.Error as why:
    print(why, flush=True)
    raise
""", status=None)
    assert "all ranks must make the same calls" in said, said


def test_refused():
    needs_numpy()
    how = {"model": "mlp", "data": "digits", "out": folder("refused")}
    refused(lambda: stargrad.train(**how, epoch=2), "unknown option 'epoch'; did you mean 'epochs'?")
    refused(lambda: stargrad.train(**how, epochs="two"), "option epochs has a value of the wrong type")
    refused(lambda: stargrad.train(**how, precision="f64"), "option precision has a value of the wrong type")
    refused(lambda: stargrad.train(**how, seed=-1), "option seed has a value of the wrong type")
    refused(lambda: stargrad.train(data="digits", model="mlpp"), "mlpp", "did you mean 'mlp'")
    refused(lambda: stargrad.train(model="mlp"), "no data set is named")
    refused(lambda: stargrad.Run(FOLDER), "is not the folder of a run")
    refused(lambda: stargrad.evaluate(folder("nowhere")), "is not the folder of a run")
    refused(lambda: stargrad.names("weights"), "unknown list 'weights'")
    refused(lambda: stargrad.plugin("nowhere.so"), "nowhere.so: No such file")
    assert not os.path.exists(how["out"]) and {"convnet", "mlp"} <= set(stargrad.names("models"))
    assert "digits" in stargrad.names("datasets") and stargrad.options()["batch"] == 128
    path = os.path.join(FOLDER, "bad.safetensors")
    header = lambda text, more=b"": len(text).to_bytes(8, "little") + text + more
    for data in (b"", b"short", header(b"{"), header(b"[]"), header(b"{}")[:-1] + b"\xff" * 9, header(b'{"a": 1}'),
                 header(b'{"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}', b"1234"),
                 header(b'{"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}', b"12345678"),
                 header(b'{"a": {"dtype": "C64", "shape": [1], "data_offsets": [0, 8]}}', b"12345678")):
        with open(path, "wb") as file:
            file.write(data)
        refused(lambda: stargrad.load(path), "bad.safetensors: is not a safetensors file")
    refused(lambda: stargrad.save(path, {"z": numpy.zeros(2, complex)}), "z: type complex128 is not supported")


def python(text, **how):
    return subprocess.Popen([sys.executable, "-c", text], env={**os.environ, **ENV}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **how)


def test_interrupted():
    needs_numpy()
    out = folder("interrupted")
    text = ("import stargrad\ntry:\n    stargrad.train(model='mlp', data='digits', steps=1000000, cpus=1, out=%r)\n"
            "except KeyboardInterrupt as why:\n    print('interrupted:', why)" % out)
    process = python(text)
    wait_for_steps(out, 3, process)
    process.send_signal(signal.SIGINT)
    told, said = process.communicate(timeout=300)
    assert process.returncode == 0 and "interrupted:" in told, (told, said)
    done = len(losses(out))
    with_more = stargrad.train(model="mlp", data="digits", steps=done + 2, cpus=1, out=out, resume=bool(resuming(out)))
    assert with_more.result["steps"] == done + 2


def test_ranks():
    out = folder("ranks")
    on_ranks(f"import stargrad; stargrad.train(model='mlp', data='digits', steps=3, deterministic=True, cpus=1, out={out!r})")
    alone = stargrad.train(model="mlp", data="digits", steps=3, deterministic=True, cpus=1, out=folder("alone"))
    assert losses(alone.folder) == losses(out)


KINDS = os.path.join(run.REFERENCE, "tokenizer_kinds.json")
TINY = "llama:layers=1,width=32,heads=2,hidden=64,context=48"


def kinds():
    """Tokenizers of all kinds: their files, tokens and decoded texts by the library `tokenizers`."""
    with open(KINDS, encoding="utf-8") as file:
        all_kinds = json.load(file)
    for case in all_kinds["cases"]:
        path = os.path.join(FOLDER, f"{case['name']}.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(case["tokenizer"], file)
        yield path, case, all_kinds["texts"]


def misread(case, tokens):
    """The library decodes an added token with the letters of bytes as these bytes: é becomes U+FFFD. Stargrad does not."""
    return any(added["id"] in tokens and not added["content"].isascii() for added in case["tokenizer"]["added_tokens"])


def test_tokenizer():
    needs_numpy()
    for path, case, texts in kinds():
        tokenizer = stargrad.Tokenizer(path)
        for text, tokens, decoded in zip(texts, case["ids"], case["decoded"], strict=True):
            own = tokenizer.encode(text, add_special_tokens=False)
            assert own.tolist() == tokens and own.dtype == numpy.int32, (path, text)
            assert misread(case, tokens) or tokenizer.decode(own, skip_special_tokens=False) == decoded, (path, text)
    assert repr(tokenizer) == f"Tokenizer({path!r})"
    assert tokenizer.decode([]) == "" == tokenizer.decode([-1, tokenizer.vocabulary, 1 << 40])      # no such tokens
    refused(lambda: tokenizer.decode(["a"]), "tokens must be a list of whole numbers")
    refused(lambda: stargrad.Tokenizer(os.path.join(FOLDER, "nowhere.json")), "nowhere.json: No such file")
    refused(lambda: stargrad.Tokenizer(KINDS), "tokenizer_kinds.json")


def test_tokenizer_beside_the_library():
    """With their defaults, both add and skip special tokens."""
    needs_numpy()
    try:
        from tokenizers import Tokenizer
    except ModuleNotFoundError:
        raise Skip("Python has no tokenizers") from None
    for path, case, texts in kinds():
        theirs, own = Tokenizer.from_file(path), stargrad.Tokenizer(path)
        assert own.vocabulary == max(theirs.get_vocab().values()) + 1
        for text in texts:
            tokens = theirs.encode(text).ids
            assert own.encode(text).tolist() == tokens, (path, text)
            assert misread(case, tokens) or own.decode(tokens) == theirs.decode(tokens), (path, text)


def test_sample():
    """The texts are those of the command, with the run's tokenizer, or without one."""
    needs_numpy()
    out, data = folder("bytes"), os.path.join(FOLDER, "bytes.txt")
    with open(data, "w", encoding="utf-8") as file:
        file.write("to be or not to be, that is the question\n" * 100)
    one = stargrad.train(model=TINY, data=f"text:{data},40", batch=16, optimizer="adamw", lr=0.01, epochs=4, cpus=1, out=out)
    command = lambda *words: run.stargrad("sample", *words, "--prompt", "to", "--tokens", 30)[:-1]
    greedy = one.sample("to", tokens=30, temperature=0)
    assert one.tokenizer is None and "to" + greedy == command(out, "--temperature", 0) and len(greedy) == 30
    how = dict(tokens=30, temperature=1.5, top_k=20, top_p=0.9, repetition_penalty=1.1, seed=3)
    words = [word for key, value in how.items() for word in (f"--{key.replace('_', '-')}", value)]
    drawn = one.sample("to", **how)
    assert "to" + drawn == command(out, *words) != command(out, *words, "--seed", 4)
    assert one.sample(["to", "that"], **how) == [drawn, one.sample(["be", "that"], **how)[1]]
    assert stargrad.sample("to", tokens=30, temperature=0, model=TINY, init=f"{out}/model.safetensors") == greedy
    stop = greedy[4:7]
    assert one.sample("to", tokens=30, temperature=0, stop=stop) == greedy[:greedy.index(stop)]


def test_sample_with_a_tokenizer():
    needs_numpy()
    path, _, texts = next(kind for kind in kinds() if kind[1]["name"] == "llama3")
    tokenizer, tokens, out = stargrad.Tokenizer(path), folder("to,kens"), folder("words")      # a comma in the name of the token files
    data = os.path.join(FOLDER, "words.txt")
    with open(data, "w", encoding="utf-8") as file:
        file.write("to be or not to be\n" * 200)
    run.stargrad("tokenize", "--tokenizer", path, data, "--out", tokens)
    one = stargrad.train(model=f"{TINY},vocabulary={tokenizer.vocabulary}", data=f"tokens:{tokens},32", batch=8, steps=20, cpus=1, out=out)
    assert one.tokenizer.path == os.path.join(tokens, "tokenizer.json")
    text = one.sample("to be", tokens=20)
    assert run.stargrad("sample", out, "--prompt", "to be", "--tokens", 20) == f"to be{text}\n"
    assert text == one.sample("to be", tokens=20, tokenizer=path) == one.sample("to be", tokens=20, tokenizer=tokenizer)


def test_sample_refused():
    needs_numpy()
    out = folder("refused-text")
    one = stargrad.train(model=f"{TINY},vocabulary=300", data="text:" + run.REFERENCE + "/text.txt,40", steps=1, batch=4, cpus=1, out=out)
    refused(lambda: one.sample("to"), "the prompt 'to' is not a token number; to use text, specify a tokenizer")
    assert len(one.sample("1 2", tokens=3).split()) == 3
    refused(lambda: one.sample(["1", ""]), "prompt 2 is empty")
    refused(lambda: one.sample([]), "sample requires at least one prompt")
    refused(lambda: one.sample([1]), "prompt 1 is not a text")
    refused(lambda: one.sample("1", temperature=-1), "temperature -1")
    refused(lambda: one.sample("1", tokens="many"), "tokens must be a whole number")
    refused(lambda: one.sample("1", topk=1), "unknown option 'topk'")
    refused(lambda: one.sample("1", tokenizer="nowhere.json"), "nowhere.json: No such file")
    refused(lambda: stargrad.sample("1", model=TINY), "option init, a file of weights, is missing")
    refused(lambda: stargrad.sample("1", model="mlp", init=f"{out}/model.safetensors"), "model mlp is not a language model")


def test_sample_interrupted():
    needs_numpy()
    out = folder("interrupted-text")
    stargrad.train(model=TINY, data="text:" + run.REFERENCE + "/text.txt,40", steps=1, batch=4, cpus=1, out=out)
    process = python("import stargrad\ntry:\n    stargrad.Run(%r).sample('to', tokens=2000000, cpus=1)\n"
                     "except KeyboardInterrupt:\n    print('interrupted')" % out)
    names = lambda: [open(f"/proc/{process.pid}/task/{task}/comm").read() for task in os.listdir(f"/proc/{process.pid}/task")]
    run.wait_until(lambda: "CPU 0\n" in names(), process)      # StarPU's worker has started
    process.send_signal(signal.SIGINT)
    said, problems = process.communicate(timeout=300)
    assert process.returncode == 0 and said == "interrupted\n", (said, problems)


def test_pip():
    """In a new virtual environment, by pip, without network."""
    needs_numpy()
    place = folder("venv")
    try:
        venv.create(place, with_pip=True)
    except subprocess.CalledProcessError:
        raise Skip("Python has no ensurepip") from None
    there = os.path.join(place, "bin", "python")
    subprocess.run([there, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--disable-pip-version-check", MODULE], check=True)
    env = {**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(numpy.__file__))}
    done = subprocess.run([there, "-c", "import stargrad; print(stargrad.__file__, *stargrad.names('models'))"], env=env, cwd=FOLDER,
                          capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith(place) and "convnet" in done.stdout, done
    env["STARGRAD_LIBRARY"] = os.path.join(FOLDER, "nowhere.so")
    done = subprocess.run([there, "-c", "import stargrad; stargrad.options()"], env=env, capture_output=True, text=True)
    assert "nowhere.so: is not a libstargrad" in done.stderr, done.stderr


def test_version():
    with open(os.path.join(SOURCE, "configure.ac")) as file:
        version = re.search(r"AC_INIT\(\[stargrad\], \[(.*)\]\)", file.read())[1]
    with open(os.path.join(MODULE, "pyproject.toml")) as file:
        assert f'version = "{version}"\n' in file.read()
    needs_numpy()
    assert stargrad.__version__ == version


if __name__ == "__main__":
    main(globals())
