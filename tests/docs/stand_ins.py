"""What runs in place of the programs that the commands of pages call: tests/docs/commands.py places these first in PATH, and at build/stargrad.
stargrad is the true program with less work. What builds, installs, measures or needs other machines does not run: its options, and the files
that it names, are checked. The first two words are the stand-in's name and the path under which the page calls it."""
import fcntl
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
import time

SOURCE, BUILD, STARGRAD = os.environ["srcdir"], os.environ["builddir"], os.environ["STARGRAD"]
FIXTURES, SCRATCH, PAGE = os.environ["COMMANDS_FIXTURES"], os.environ["COMMANDS_SCRATCH"], os.environ["COMMANDS_PAGE"]

# The most samples of a step, by the network's name; others are small.
BATCHES = {"gpt": 4, "llama": 4, "resnet50": 2, "vgg": 8, "nin": 8, "airbench": 16, "resnet": 8, "unet": 2}
# Data sets that pages name by words like DIR, by their kind.
DATA = {"cifar10": "cifar10", "folder": "folder", "idx": "idx", "volume": "volume", "text": "text.txt", "csv": "table.csv", "onnx": "net.onnx"}
# The tokens of these data sets are less than this number. The weights of a whole vocabulary would be most of the work.
VOCABULARY = 1000
# Words for what a page adds to Stargrad's sources, and for a reader's own plug-in: what is there has the same form.
OWN = {
    "docs/develop/add-a-collective.md": {"star": "ring"},
    "docs/develop/add-a-dataset.md": {"table:DIR,8,1": "csv:FILE"},
    "docs/develop/add-an-augmentation.md": {"grey:.3,cutout:8": "cutout:8"},
    "docs/develop/add-an-optimizer.md": {"signum": "sgd"},
    "README.md": {"mine": "swishnet", "NAME": "swish"},
    "docs/reference/command-line.md": {"NAME": "swish"},
}
MPIRUN = {"-n": r"\d+", "-np": r"\d+", "--map-by": r"ppr:\d+:\w+(:pe=\d+)?", "--bind-to": r"none|core|socket", "--oversubscribe": None}


def fail(message):
    sys.stderr.write(f"tests/docs/stand_ins.py: {message}\n")
    sys.exit(2)


def run(words, env=None):
    print("+", " ".join(words), flush=True)
    try:
        return subprocess.run(words, env={**os.environ, **(env or {})}).returncode
    except OSError as error:
        fail(f"{words[0]}: {error.strerror}")


def value(words, option):
    """What the last --option says; None: it is not there."""
    found = None
    for i, word in enumerate(words):
        if word == option and i + 1 < len(words):
            found = words[i + 1]
        elif word.startswith(option + "="):
            found = word.partition("=")[2]
    return found


def dropped(words, *options):
    """The words without these options and their values."""
    left = list(words)
    for option in options:
        while option in left:
            at = left.index(option)
            del left[at:at + 2]
    return left


# ---- stargrad

def smaller(word):
    """A word that names data, with the path of a data set of its kind, and not more images than a few steps need."""
    word = re.sub(r"\bvocabulary=\d{4,}", f"vocabulary={VOCABULARY}", OWN.get(PAGE, {}).get(word, word))
    kind, _, rest = word.partition(":")
    if re.fullmatch(r"folder:(DIR|pets),224", word):
        return f"folder:{FIXTURES}/few,224"
    if kind in DATA and re.match(r"(DIR|FILE|OTHER)\b", rest):
        return f"{kind}:{FIXTURES}/{DATA[kind]}" + re.sub(r"^\w+", "", rest)
    synthetic = re.fullmatch(r"(synthetic:(\d+)x\d+x\d+,\d+),(\d+)", word)
    if synthetic:
        return f"{synthetic[1]},{min(int(synthetic[3]), 8 if int(synthetic[2]) > 100 else 256)}"
    return word


def options_of(folder):
    with open(os.path.join(folder, "config.json")) as file:
        return json.load(file)["options"]


def locked(name, make):
    """FIXTURES/NAME, which make(path) makes where it is not there."""
    path = os.path.join(FIXTURES, name)
    with open(path + ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(path):
            make(path)
    return path


def quiet(words):
    done = subprocess.run([STARGRAD, *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        fail(f"{' '.join(words)}: {done.stdout}")


def users_runs(words):
    """The runs and weights that a page takes from its reader are made when a command names them."""
    with open(os.path.join(SCRATCH, ".runs.json")) as file:
        runs = json.load(file)
    for word in words:
        for folder, train in runs.items():
            if (word == folder or word.startswith(folder + "/")) and not os.path.exists(os.path.join(SCRATCH, folder)):
                train = limited(train.split(), 1)
                name = "run-" + re.sub(r"\W+", "-", " ".join(train).replace(FIXTURES, ""))
                made = locked(name, lambda path: quiet([*train, "--best", "--out", path]))
                shutil.copytree(made, os.path.join(SCRATCH, folder))
    init = value(words, "--init")
    if init and not os.path.exists(init) and re.fullmatch(r"FILE|resnet\d+.safetensors", init):
        model, data = value(words, "--model"), smaller(value(words, "--data"))
        data = re.sub("(folder:.*),224", r"\1,32", data)
        small = ["train", "--model", model, "--data", data, "--steps", "1", "--batch", "2", "--evaluate-last"]
        made = locked("weights-" + re.sub(r"\W+", "-", model), lambda path: quiet([*small, "--out", path]))
        words[words.index("--init") + 1] = os.path.join(made, "model.safetensors")


def limited(words, ranks):
    """The words of a training with few steps of few samples. Options that come later hold."""
    resumed = {}
    if "--resume" in words and os.path.exists(value(words, "--out") or ""):
        resumed = options_of(value(words, "--out"))
    elif value(words, "--like"):
        resumed = options_of(value(words, "--like"))
    config = {}
    if value(words, "--config"):
        with open(value(words, "--config")) as file:
            config = json.load(file)
    words = [smaller(word) for word in words]
    model = value(words, "--model") or config.get("model") or resumed.get("model") or ""
    data = value(words, "--data") or ""
    batch = int(value(words, "--batch") or config.get("batch") or resumed.get("batch") or 128)
    if model.startswith("gpt") and "width=" not in model and value(words, "--model"):
        words += ["--model", model + (",width=96" if ":" in model else ":width=96")]
    if "--print" in words or "--show-batch" in words:
        return words + (["--batch", "128"] if batch > 128 else [])
    most = next((most for name, most in BATCHES.items() if model.startswith(name)), batch)
    most = 2 if re.search(r"224|256x256", data + (value(words, "--image-size") or "")) else most
    least = int(value(words, "--micro-batch") or 1) * ranks
    if "--mesh" in words and "pipe" in value(words, "--mesh"):
        least = max(least, 8)
    if most < batch:
        words += ["--batch", str(max(1, math.ceil(most / least)) * least)]
    steps = 10 if words[0] == "find-lr" else 1 if most <= 4 else 2
    trace = re.search(r"\d+$", value(words, "--trace") or "")
    if trace:
        steps = int(trace[0]) + 1
    if "--resume" in words and resumed:
        steps += resumed["steps"]
    words += ["--steps", str(min(steps, int(value(words, "--steps") or steps)))]
    return words + (["--cpus", "1"] if ranks > 1 and "--cpus" not in words else [])


def search(words):
    """Three candidates for an epoch."""
    words = [smaller(word) for word in words]
    for i, word in enumerate(words):
        if word.endswith(".json") and os.path.exists(word):
            with open(word) as file:
                what = json.load(file)
            what["epochs"], what["stop"] = 1, {"rule": "none"}
            what.get("random", {}).update(count=3, batch=[16, 32])
            words[i] = os.path.join(SCRATCH, ".search.json")
            with open(words[i], "w") as file:
                json.dump(what, file)
        elif word == "DIR/NAME":
            best = json.load(open(os.path.join(SCRATCH, "search/leaderboard.json")))
            best = best.get("candidates", best) if isinstance(best, dict) else best
            words[i] = "search/" + best[0]["name"]
    return words


def only_parsed(words):
    """Options are read in their order, and --help ends the program: an unknown one is an error before."""
    done = subprocess.run([STARGRAD, *words, "--help"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    files = [word for word in words if word.endswith(".json") and "/" in word and not os.path.exists(word)]
    if done.returncode or files:
        fail(f"{' '.join(words)}: " + (f"no file {files}" if files else done.stdout))


def stargrad(_, *words, ranks=1):
    """Runs the true program; of several ranks its words only are returned."""
    words = list(words)
    if "…" in words and "--resume" in words and os.path.exists(value(words, "--out") or ""):
        words.remove("…")      # the options of the run
    if "…" in words:
        gpt = any("wte" in word for word in words)
        at = words.index("…")
        words[at:at + 1] = ["--model", "gpt:layers=1,heads=1,width=32,context=32", "--data", "text:FILE,32"] if gpt else \
            ["--model", "convnet", "--data", "digits"]
    users_runs(words)
    name = words[0] if words else ""
    if name == "config":        # its output is a part of a command
        return subprocess.run([STARGRAD, *words]).returncode
    if name == "bench" or name == "doctor" and len(words) > 1 or "--simulate" in words:
        only_parsed(words)      # measures for minutes, or needs the trainer for simulated machines
        words = [name, "--help"]
    elif name in ("train", "find-lr"):
        if int(value(words, "--gpus") or 0):      # where there is no device
            only_parsed(words)
            words = dropped(words, "--gpus", "--gpu-memory", *(["--allreduce"] if value(words, "--allreduce") == "nccl" else []),
                            *(["--spill"] if value(words, "--spill") == "ram" else []))
        words = limited(words, ranks)
    elif name == "launch" and "--" in words:
        at = words.index("--") + 1
        words[at:] = limited(words[at:], int(value(words, "-n") or 1))
    elif name == "search":
        words = search(words)
    elif name == "sample":
        words += ["--tokens", "8"]
    elif name == "queue":      # of what runs in the background
        if PAGE == "docs/reference/command-line.md":
            quiet("segment --weights runs/cells/model.safetensors --model unet2d --in stack.tif --out queued.zarr --queue".split() + words[-1:])
        until = time.monotonic() + 30
        while not os.path.exists(words[-1]) and time.monotonic() < until:
            time.sleep(0.05)
    else:
        words = [word if name == "plan" else smaller(word) for word in words]
        if name == "plan":
            words = [re.sub(r"^text:FILE", f"text:{FIXTURES}/text.txt", word) for word in words]
    if ranks > 1:
        return words
    return run([STARGRAD, *words])


def mpirun(_, *words):
    words, count = list(words), 1
    while words and words[0].startswith("-"):
        option = words.pop(0)
        if option not in MPIRUN:
            fail(f"mpirun: {option}: not in the table MPIRUN")
        if MPIRUN[option] and not re.fullmatch(MPIRUN[option], words[0]):
            fail(f"mpirun: {option} {words[0]}")
        if option in ("-n", "-np"):
            count = int(words[0])
        if MPIRUN[option]:
            words.pop(0)
    if not words or os.path.basename(words[0]) != "stargrad":
        return run(["mpirun", "-n", str(count), *words], without_stand_ins())
    words, program = words[1:], words[0]
    if not shutil.which(program):
        fail(f"mpirun: no program {program}")
    if count > 4:      # takes too long on few cores: the network and the tasks of a step only, of as many ranks where the mesh needs them
        given = words
        words = limited([*words, *([] if "--print" in words else ["--print"])], count)
        status = run(["mpirun", "-n", str(count), STARGRAD, *words], without_stand_ins()) if "--mesh" in words else run([STARGRAD, *words])
        out, trace = value(given, "--out"), value(given, "--trace")
        if out:      # for the commands that follow
            quiet(limited(["train", "--model", "convnet", "--data", "digits", *(["--trace", trace] if trace else []), "--out", out], 1))
        return status
    if count == 1:
        return stargrad("stargrad", *words)
    return run(["mpirun", "-n", str(count), STARGRAD, *stargrad(program, *words, ranks=count)], without_stand_ins())


def sbatch(_, *words):
    """Options of Slurm and the script are not run (tests/slurm does that); the script's training is."""
    words = list(words)
    while words and words[0].startswith("-"):
        if not re.fullmatch(r"--(nodes|time|array)=[\d:%-]+", words.pop(0)):
            fail(f"sbatch {words}: no such option")
    if not words or not os.access(words[0], os.X_OK):
        fail(f"sbatch: no script {words[:1]}")
    return stargrad("stargrad", "train", *words[1:])


def without_stand_ins():
    return {"PATH": os.environ["COMMANDS_PATH"]}


# ---- what does not run

def script(path, *words):
    """A program of bench/ or tests/: that it takes these options. One in Python reads them, if what it imports is there."""
    source = os.path.join(SOURCE, path)
    if not os.path.isfile(source):
        fail(f"{path}: no such file")
    with open(source) as file:
        text = file.read()
    if "--" in words:
        at = words.index("--")
        return script("bench/gpu", *words[at + 1:]) or script(path, *words[:at])
    options = [word.partition("=")[0] for word in words if word.startswith("--")]
    shared = [open(os.path.join(SOURCE, "bench", name)).read() for name in ("cluster.py", "machine.py")]
    known = {option for one in (text, *shared) for option in re.findall(r"[\"'](--[a-z][a-z0-9-]*)[\"']", one)}
    known |= set(re.findall(r"^\s*(--[a-z0-9-]+)\)", text, flags=re.M))      # of a shell
    unknown = [option for option in options if option not in known]
    if unknown and 'word.startswith("--")' in text:      # which it hands on to train
        only_parsed(["train", *options])
    elif unknown:
        fail(f"{path}: no option {unknown}")
    if "parse_args(" in text:
        read = ("import argparse, os, runpy, sys\ntrue = argparse.ArgumentParser.parse_args\n"
                "def parse(*a, **k):\n    true(*a, **k)\n    os._exit(0)\n"
                f"argparse.ArgumentParser.parse_args = parse\nsys.argv = {[source, *words]!r}\nsys.path.insert(0, {os.path.dirname(source)!r})\n"
                "sys.dont_write_bytecode = True\n"
                "try:\n    runpy.run_path(sys.argv[0], run_name='__main__')\nexcept ImportError:\n    os._exit(0)\nos._exit(1)\n")
        return subprocess.run([sys.executable, "-c", read], env={**os.environ, **without_stand_ins()}).returncode
    return 0


def python3(path, *words):
    words = list(words)
    if not words:      # in which the page's reader types
        words = ["-c", "import stargrad"]
    if words[:2] == ["-m", "venv"]:      # pip needs a network
        shutil.copytree(os.path.join(FIXTURES, "venv"), words[2], symlinks=True)
        return 0
    if words[:2] == ["-m", "stargrad.convert"]:      # needs pyarrow, and the reader's data: options are read
        read = "import sys; from stargrad.convert import parser; parser().parse_args(sys.argv[1:])"
        return notebook(None, "-c", read, *words[2:]) if importlib.util.find_spec("numpy") else 0
    if re.match(r"(bench|tests)/", words[0]):
        return script(*words)
    if words[0] in ("-c", "-m"):
        return run([sys.executable, *words])
    return fail(f"python3 {' '.join(words)}: no stand-in")


def notebook(_, *words):
    env = {"STARGRAD_LIBRARY": os.path.join(BUILD, ".libs/libstargrad.so"), "PYTHONPATH": os.path.join(SOURCE, "python")}
    return run([sys.executable, *words], env)


def pip(_, install, folder):
    return 0 if install == "install" and os.path.exists(os.path.join(folder, "pyproject.toml")) else fail(f"pip {install} {folder}")


def make(_, *words):
    """Targets are in Makefile.am, or of automake; tests and parts are there."""
    with open(os.path.join(SOURCE, "Makefile.am")) as file:
        makefile = file.read()
    with open(os.path.join(SOURCE, "tests/parts.txt")) as file:
        parts = re.findall(r"^([a-z]+) ", file.read(), flags=re.M)
    words = list(words)
    if words[:1] == ["-C"]:
        if words[1] not in ("build", "build/install"):
            fail(f"make -C {words[1]}")
        del words[:2]
    for word in words:
        name, is_variable, text = word.partition("=")
        if is_variable:
            things = text.split()
            if not (name == "TESTS" and all(os.path.exists(os.path.join(SOURCE, thing)) for thing in things) or
                    name == "PARTS" and set(things) <= set(parts)):
                fail(f"make {word}")
        elif not re.fullmatch(r"-j\d+|all|check|install|uninstall|clean", word) and \
                not re.search(rf"^[^\t#=\n]*(?<![\w/-]){re.escape(word)}(-local|(?![\w/-]))[^=\n]*:|^\t{re.escape(word)}( \\|$)", makefile,
                              flags=re.M):
            fail(f"make: no target {word}")
    return 0


def quickstart(_, *words):
    with open(os.path.join(SOURCE, "quickstart")) as file:
        modes = dict(re.findall(r"^# +\./quickstart +([a-z-]+)( DIR| \[PART…\])?", file.read(), flags=re.M))
    words = list(words)
    if words and (words[0] not in modes or len(words) > 1 and not modes[words[0]] or modes[words[0]] == " DIR" and len(words) != 2):
        fail(f"quickstart {words}: modes are {modes}")
    if words[:1] == ["check-long"]:
        return make("make", f"PARTS={' '.join(words[1:])}")
    if words[:1] == ["install"] and not os.path.exists(os.path.join(words[1], "bin")):
        shutil.copytree(os.path.join(FIXTURES, "DIR"), words[1], symlinks=True, dirs_exist_ok=True)
    return 0


def git(_, *words):
    if len(words) != 3 or words[0] != "clone" or words[1] != ".":
        fail(f"git {words}")
    os.makedirs(words[2])
    shutil.copy(os.path.join(SCRATCH, "quickstart"), words[2])
    return 0


def pkg_config(_, *words):
    """As if Stargrad were installed."""
    if words[-1] != "stargrad" or not set(words) <= {"--cflags", "--libs", "stargrad"}:
        fail(f"pkg-config {words}")
    print(*([f"-I{BUILD} -I{SOURCE}"] if "--cflags" in words else []),
          *([f"-L{BUILD}/.libs -Wl,-rpath,{BUILD}/.libs -lstargrad -lm"] if "--libs" in words else []))
    return 0


def sudo(_, *words):
    return run(list(words))


def timed(_, *words):
    return run(list(words[1:])) if words[0] == "-v" else fail(f"time {words}")


def taskset(_, *words):
    """A core that a page keeps busy is left to others."""
    return 0 if words[0] == "-c" and words[1].isdigit() and shutil.which(words[2]) and not time.sleep(60) else 2


def files(_, *words):
    """readelf, vite: the files are there."""
    there = [word for word in words if os.path.exists(word)]
    print(*(f"{word}: PATH" for word in there))
    return 0 if there else fail(f"no file: {words}")


def program_of_tests(path, *words):
    """A test program of the build, which `make check` runs; or stargrad with an emulated GPU."""
    if path.endswith("emulator/stargrad"):
        only_parsed(list(words))
    return 0


sys.exit(globals()[sys.argv[1]](*sys.argv[2:]))
