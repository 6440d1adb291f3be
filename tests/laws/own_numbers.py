"""The law of a run's own numbers: for any network, data and options, these results agree: the last result that train prints, eval
RUN, eval --weights, the accuracy of predict RUN, the Python module, and eval of the exported network. If Python has onnxruntime,
its logits must also agree."""
import json
import os
import struct
import subprocess
import sys
import zipfile

import law
from law import Broken
from run import FOLDER, SOURCE, command, events, folder

GPT = "gpt:layers=1,heads=2,width=16,context=12,vocabulary=256"
LLAMA = "llama:layers=1,heads=4,kv_heads=2,width=16,hidden=24,context=12,vocabulary=256,qk_norm=1"
# Networks, and the data that they take: functions of the Draw, or words.
NETWORKS = (
    ("mlp", "digits", "table", "numbers", "images", "drawn"),
    ("convnet", "digits", "images", "drawn"),
    ("lenet", "wide"),
    ("resnet20", "images", "drawn"),
    ("vit_tiny:layers=1,heads=2,width=16,dropout=0.1", "images", "drawn"),
    ("googlenet:aux=1", "large"),
    ("googlenet", "large"),
    ("unet2d:width=4,levels=2", "masks"),
    ("unet2d:width=4,levels=2,groups=2", "masks"),
    (GPT, "text"),
    (LLAMA, "text"),
)
OPTIONS = (
    (0.4, ("--label-smoothing", 0.1), ("--label-smoothing", 0.4)),
    (0.3, ("--augment", "flip"), ("--augment", "mixup"), ("--augment", "cutmix"), ("--augment", "none")),
    (0.2, ("--ema", 0.5),),
    (0.2, ("--freeze", "*.bias"), ("--freeze-after", "*.bias=0.5")),
    (0.2, ("--clip-norm", 0.5),),
    (0.2, ("--optimizer", "adamw", "--lr", 0.001), ("--momentum", 0)),
    (0.2, ("--recompute",),),
    (0.5, ("--seed", 7), ("--seed", 123456789)),
    (0.2, ("--mean", 0.3, "--deviation", 0.6),),
    (0.4, ("--evaluate-last",), ("--evaluate-every", 1), ("--evaluate-every", 2)),
    (0.3, ("--best",), ("--patience", 1), ("--patience", 2)),
    (0.2, ("--tta", "flip"), ("--tta", "translate"), ("--tta", "flip,translate")),
)
OF_VOXELS = ((0.5, ("--class-weights", "1,0.3")), (0.5, ("--dice", 0.5)))


def npy(kind, shape, data):
    header = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {tuple(shape)}, }}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header + data


def npz(name, parts):
    """Of (samples, x's type and shape, x, y's type and shape, y), for train and test."""
    path = os.path.join(FOLDER, name)
    os.makedirs(FOLDER, exist_ok=True)
    with zipfile.ZipFile(path, "w") as z:
        for part, (count, x_kind, x_shape, x, y_kind, y_shape, y) in parts.items():
            z.writestr(f"x_{part}.npy", npy(x_kind, (count, *x_shape), x))
            z.writestr(f"y_{part}.npy", npy(y_kind, (count, *y_shape), y))
    return f"npy:{path}"


def images(draw, side=None, classes=None):
    side, channels, classes = side or draw.choice((8, 11)), draw.choice((1, 3)), classes or draw.choice((3, 7))
    made = {}
    for part, count in (("train", 48), ("test", 21)):
        labels = [i % classes for i in range(count)]
        pixels = b"".join(bytes(min(255, 30 * label + draw.random.randrange(60)) for _ in range(side * side * channels)) for label in labels)
        kind = draw.choice(("|u1", "<i8"))
        made[part] = (count, "|u1", (side, side, channels), pixels, kind, (), struct.pack(f"<{count}{'B' if kind == '|u1' else 'q'}", *labels))
    return npz("images.npz", made)


def masks(draw):
    side, made = 16, {}
    for part, count in (("train", 16), ("test", 5)):
        pixels = bytes(draw.random.randrange(256) for _ in range(count * side * side))
        made[part] = (count, "|u1", (side, side, 1), pixels, "|u1", (side, side), bytes(p > 128 for p in pixels))
    return npz("masks.npz", made)


def table(draw):
    path = os.path.join(FOLDER, "table.csv")
    os.makedirs(FOLDER, exist_ok=True)
    kinds = ("ant", "bee", "cat")
    with open(path, "w") as f:
        f.write("a,b,c,kind\n")
        for i in range(120):
            f.write(",".join(f"{draw.random.gauss(100 * (i % 3), 60):.4f}" for _ in range(3)) + f",{kinds[i % 3]}\n")
    return f"csv:{path}"


def numbers(draw):
    """A table whose targets are numbers."""
    path = os.path.join(FOLDER, "numbers.csv")
    os.makedirs(FOLDER, exist_ok=True)
    rows = [[draw.random.gauss(0, 3) for _ in range(4)] for _ in range(120)]
    with open(path, "w") as f:
        f.write("a,b,c,y\n")
        f.writelines(f"{a:.4f},{b:.4f},{c:.4f},{a - b + 0.1 * noise:.4f}\n" for a, b, c, noise in rows)
    return f"csv:{path}"


def error(path, lines):
    """The mean absolute error of what is predicted of the table's test part, every fifth line."""
    with open(path) as f:
        targets = [float(line.rsplit(",", 1)[1]) for line in f.readlines()[5::5]]
    if len(lines) != len(targets):
        raise Broken(f"predict tells of {len(lines)} lines, there are {len(targets)}")
    return sum(abs(line["numbers"][0] - target) for line, target in zip(lines, targets)) / len(targets)


def text(draw):
    path = os.path.join(FOLDER, "text.txt")
    os.makedirs(FOLDER, exist_ok=True)
    with open(path, "w") as f:
        f.write("".join(draw.choice("abcdefg \n") for _ in range(1500)))
    return f"text:{path},12"


DATA = {
    "digits": lambda draw: "digits", "images": images, "masks": masks, "table": table, "numbers": numbers, "text": text,
    "drawn": lambda draw: f"synthetic:{draw.choice(('8x8x3,5,64', '12x9x1,4,48', '16x16x3,23,92'))}",
    "wide": lambda draw: "synthetic:16x16x3,5,40",
    "large": lambda draw: "synthetic:64x64x3,5,24",
}


def close(one, other, limit):
    return one == other or (one is not None and other is not None and abs(one - other) <= limit * max(1, abs(one), abs(other)))


def compare(what, wanted, is_, limit):
    """Every number of the tests that both have."""
    names = [name for name in wanted if name.startswith("test_")]
    if not names or set(names) != {name for name in is_ if name.startswith("test_")}:
        raise Broken(f"{what} tells {sorted(is_)}, the run {sorted(wanted)}")
    for name in names:
        if wanted[name] is not None and not close(wanted[name], is_[name], limit):
            raise Broken(f"{what}: {name} is {is_[name]}, of the run {wanted[name]}")


PYTHON = """
import json, os, sys
sys.path.insert(0, os.path.join(sys.argv[1], "python"))
sys.dont_write_bytecode = True
import stargrad
run = stargrad.Run(sys.argv[2])
said = run.predict(cpus=1)
print(json.dumps([run.evaluate(cpus=1), list(said.shape), [float(x) for x in said.ravel()[:2000]]]))
"""


def python(path):
    """What Python says of the run: its evaluation, and logits; None: it has no numpy, or there is no library."""
    library = os.path.join(os.environ.get("builddir", "build"), ".libs", "libstargrad.so")
    if not os.path.exists(library) or subprocess.run([sys.executable, "-c", "import numpy"], capture_output=True).returncode:
        return None
    done = subprocess.run([sys.executable, "-c", PYTHON, SOURCE, path], capture_output=True, text=True,
                          env={**os.environ, "STARGRAD_LIBRARY": library})
    if done.returncode:
        raise Broken(f"Python: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def onnxruntime(path, data):
    """The logits that it computes of the test set's images; None: it is not there, or the data are no images of an archive."""
    try:
        import numpy
        import onnxruntime as runtime
    except ImportError:
        return None
    if not data.endswith("images.npz"):
        return None
    session = runtime.InferenceSession(path)
    x = numpy.load(data.split(":", 1)[1])["x_test"]
    return session.run(None, {session.get_inputs()[0].name: numpy.moveaxis(x, -1, 1)})[0]


def check(draw):
    model, *kinds = draw.choice(NETWORKS)
    kind = draw.choice(kinds)
    data, out, bf16 = DATA[kind](draw), folder("run"), draw.chance(0.25)
    voxels = kind == "masks"
    how = ["--precision", "bf16"] if bf16 else []
    words = ["train", "--model", model, "--data", data, "--batch", draw.choice((4, 8, 12)), "--steps", draw.choice((2, 5)), "--lr", 0.01,
             "--cpus", 1, *how, *draw.options(OPTIONS), *(draw.options(OF_VOXELS) if voxels else [])]
    if model == "convnet" and draw.chance(0.3):
        words += ["--bn-group", draw.choice(("micro", 2, 4))]
    if draw.chance(0.3) and model in ("mlp", "convnet"):        # from others' weights, without the head, or with adapters
        first = folder("first")
        draw.run(["train", "--model", model, "--data", data, "--batch", 4, "--steps", 1, "--cpus", 1, "--out", first], refusable=True)
        words += ["--init", f"{first}/model.safetensors",
                  *draw.choice((("--init-skip", "fc*"), ("--init-skip", "*.bias"), ("--lora", "2:3", "--lora-on", "fc*")))]
    alike = words[words.index("--tta"):][:2] if "--tta" in words else []
    told = json.loads(draw.run([*words, "--json", "--out", out], refusable=True))
    wanted = {name: value for name, value in told.items() if name.startswith("test_")}
    rows = [row for row in events(out, "epoch") if row["step"] == told.get("best_step", row["step"])]
    compare("metrics.jsonl", wanted, {**rows[-1], "test_samples": told["test_samples"]}, 1e-6)
    limit = 0.02 if bf16 else 1e-5      # in bf16 what is rounded depends on how many samples a task has
    if bf16:
        wanted = {name: value if name in ("test_loss", "test_perplexity") else None for name, value in wanted.items()}
    compare("eval RUN", wanted, json.loads(draw.run(["eval", out, "--json", "--cpus", 1, *alike])), limit)
    mean = words[words.index("--mean"):][:4] if "--mean" in words else []
    compare("eval --weights", wanted, json.loads(draw.run(["eval", "--weights", f"{out}/model.safetensors", "--model", model, "--data", data,
                                                           "--cpus", 1, "--json", *how, *mean, *alike])), limit)
    if alike:       # which predict and Python do not take
        return exports(draw, out, data, wanted, 0.05 if bf16 else 1e-3, None, alike)
    lines = [json.loads(line) for line in draw.run(["predict", out, "--json", "--cpus", 1]).splitlines()] if kind not in ("text", "masks") else []
    if wanted.get("test_mae") is not None and not close(error(data[4:], lines), wanted["test_mae"], 1e-4):
        raise Broken(f"predict is {error(data[4:], lines)} off, the run {wanted['test_mae']}")
    if wanted.get("test_top1") is not None and lines:
        right = sum(line["classes"][0]["class"] == line["label"] for line in lines) / len(lines)
        if not close(right, wanted["test_top1"], 1e-6):
            raise Broken(f"predict is right {right} times, the run {wanted['test_top1']}")
    said = python(out)
    if said:
        compare("Python", wanted, said[0], limit)
    exports(draw, out, data, wanted, 0.05 if bf16 else 1e-3, None if bf16 else said, [])


def content(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def exports(draw, out, data, wanted, limit, said, alike):
    """The network that is exported, read again, and by onnxruntime. In bf16 a run rounds what the other does not."""
    path = f"{out}/net.onnx"
    draw.commands.append(" ".join(command("export", out, path)))
    done = subprocess.run(command("export", out, path), capture_output=True, text=True)
    if done.returncode and "cannot be written as ONNX" in done.stderr:
        return
    if done.returncode:
        raise Broken(done.stderr)
    if '"llama:' not in content(f"{out}/config.json"):      # Stargrad cannot read that network from ONNX
        again = json.loads(draw.run(["eval", "--model", f"onnx:{path}", "--data", data, "--cpus", 1, "--json", *alike]))
        compare("the exported network", wanted, again, limit)
    logits = onnxruntime(path, data) if said else None
    if logits is not None:
        mine, theirs = said[2], [float(x) for x in logits.ravel()[:2000]]
        worst = max(abs(a - b) for a, b in zip(mine, theirs))
        if worst > 1e-3 * max(1, max(map(abs, mine))):
            raise Broken(f"onnxruntime's logits differ by {worst}")


@law.seeds(10, 100)
def test_own_numbers(seed):
    law.holds("own_numbers", check, seed)


if __name__ == "__main__":
    law.main(globals())
