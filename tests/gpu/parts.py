"""The parts of tests/gpu/run, in this order: kernels against CPU kernels, losses against training on CPUs, speed against PyTorch,
a trace, a batch divided between CPU and GPU, reproducible bits. The plan is printed first, with the seconds of each part.

A part ends at its planned time at the latest. Time that a part does not use is available to later parts, so no part takes time
from another. A part that fails, or has no time left, adds a row with the reason, and the next part begins.

    tests/gpu/run                        starts this script with its environment
    tests/gpu/parts.py --plan            only prints the plan
    tests/gpu/parts.py --emulated        on CPU threads instead of a GPU, smaller: tests the parts, measures nothing
    tests/gpu/parts.py --part WORD…      only parts whose names contain one of these words

Rows are printed at once and stored in a table: $GPU_TABLE (default gpu.md; bench/table.py). The trace (trace/) and the output
of each part's programs (logs/) are written to $GPU_OUT, by default the current directory. PyTorch compiles its networks during
the comparison of losses, which does not need an idle machine. Exit status: 0 all parts that ran agree and none failed, 1
otherwise."""
import argparse
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", "train"), os.path.join(ROOT, "bench")]
PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("--emulated", action="store_true")
PARSER.add_argument("--plan", action="store_true")
PARSER.add_argument("--part", nargs="+", default=[""])
PARSER.add_argument("--minutes", type=float, help="for everything (default 8, 40 with --emulated)")
OPTIONS = PARSER.parse_args()
MINUTES = OPTIONS.minutes or (40 if OPTIONS.emulated else 8)
OUT = pathlib.Path(os.environ.get("GPU_OUT", "."))
BUILD = os.environ.get("builddir", os.path.join(ROOT, "build"))
PROGRAMS = os.environ.get("GPU_PROGRAMS", os.path.join(BUILD, "tests/gpu/emulator") if OPTIONS.emulated else BUILD)
OPERATIONS = [path for path in (os.path.join(PROGRAMS, "operations"), os.path.join(BUILD, "tests/codelets/operations"))
              if os.path.exists(path)][:1] or ["operations"]
os.environ["STARGRAD"] = os.path.join(PROGRAMS, "stargrad")
os.environ.setdefault("srcdir", ROOT)
if OPTIONS.emulated:
    os.environ.setdefault("STARGRAD_EMULATED_GPUS", "1")
from run import FOLDER, REFERENCE, command, content, folder, losses  # noqa: E402
from table import Table  # noqa: E402

# Reading samples is work for a CPU, so one stays.
CPU, CUDA, TWO = ("--gpus", 0), ("--cpus", 1, "--gpus", 1), ("--cpus", 1, "--gpus", 2)
EAGER = ("--scheduler", "eager") if OPTIONS.emulated else ()     # one that measures would leave all to the CPU
# On a busy machine, the thread of an emulated GPU may get no processor until the CPU worker has done the tasks that both may do.
ON_GPUS = ("--cpus-share", "none") if OPTIONS.emulated else ()
FIRST, LATER = 3, 5 if OPTIONS.emulated else 10        # steps; rounding grows from step to step
WITHIN = {"f32": (1e-4, 1e-3), "tf32": (3e-2, 1e-1), "bf16": (1e-2, 3e-2)}
TEXT = f"text:{os.path.join(REFERENCE, 'text.txt')}"


class Failed(Exception):
    pass


class Now:
    """The part that runs: until when it may go on, and its log."""
    end, log = None, None

    @classmethod
    def left(cls):
        return max(1, cls.end - time.monotonic())


def stop(process):
    """With all that it has started."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def run(words, env=None, statuses=(0,)):
    """Standard output, and both outputs; in the log of the part, too. The exit status has to be one of STATUSES."""
    words = list(map(str, words))
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})},
                               start_new_session=True)
    try:
        out, errors = process.communicate(timeout=Now.left())
        late = False
    except subprocess.TimeoutExpired:
        stop(process)
        out, errors = process.communicate()
        late = True
    except BaseException:
        stop(process)
        raise
    with open(Now.log, "a") as log:
        print(f"$ {' '.join(words)}\n{out}{errors}exit status {'none: out of time' if late else process.returncode}\n", file=log)
    if late:
        raise Failed("out of time")
    if process.returncode not in statuses:
        lines = [line for line in (out + errors).splitlines() if line.strip()] or [f"exit status {process.returncode}"]
        why = [line for line in lines if ("stargrad: " in line or "FAILED" in line) and "stargrad: warning" not in line] or lines[-1:]
        raise Failed("; ".join(why[:5]))
    return out, out + errors


def train(name, *arguments, count_tasks=False, env=None):
    """Runs the program; returns the run's folder and, if told to count, the share of its tasks that a CUDA worker ran."""
    out = folder(name)
    counting = {"STARPU_PROFILING": "1", "STARPU_WORKER_STATS": "1"} if count_tasks else {}
    _, said = run(command("train", *arguments, "--out", out), {**counting, **(env or {})})
    tasks = {"CPU": 0, "CUDA": 0}
    for kind, count in re.findall(r"^(CPU|CUDA) .*\n\t(\d+) task", said, re.M):
        tasks[kind] += int(count)
    return out, tasks["CUDA"] / max(1, sum(tasks.values()))


# ---- parts: each returns what the row says of the reference, of GPUs, and as a whole ---------------------------------------


def operations():
    _, said = run([*OPERATIONS, "on a GPU"])
    if "OK ] every operation on a GPU equals the CPU" not in said:
        raise Failed("no CUDA kernel was compared")
    return "", f"{len(re.findall(r'computed without', said))} convolutions without cuDNN", "agree"


def same_losses(arguments, precision, where=(*CUDA, *ON_GPUS)):
    arguments = [*arguments, "--steps", LATER, "--precision", precision]
    cpu = losses(train("cpu", *arguments, *CPU)[0])
    out, share = train("cuda", *arguments, *EAGER, *where, count_tasks=True)
    cuda = losses(out)
    error = [abs(a - b) / b for a, b in zip(cuda, cpu)]
    first, later = WITHIN[precision]
    good = len(error) == LATER and share > 0 and max(error[:FIRST]) <= first and max(error) <= later
    says = f"at most {max(error):.1e} apart; {share:.0%} of tasks on CUDA"
    return f"{cpu[-1]:.6f}", f"{cuda[-1]:.6f}", says if good else f"DISAGREE: {says}"


def reference(model, case):
    with open(os.path.join(REFERENCE, "losses.json")) as f:
        known = json.load(f)[case]
    return ["--model", model, "--data", f"{known['data']}:{os.path.join(REFERENCE, known['data'])}",
            "--init", os.path.join(REFERENCE, f"{model}.safetensors"), "--batch", 16, "--micro-batch", 8,
            "--no-shuffle", "--no-augment", "--lr", known["lr"]]


LENET, RESNET = ("lenet", "lenet"), ("resnet20", "resnet20-gentle")
GPT = ["--model", "gpt:layers=2,heads=2,width=32,context=32", "--data", f"{TEXT},32", "--batch", 8, "--micro-batch", 4,
       "--optimizer", "adamw", "--lr", 1e-3, "--no-shuffle"]
SHARED = ["--model", "convnet", "--data", "synthetic:8x8x3,10,256", "--batch", 64, "--lr", 0.05]


def attention():
    """Attention by our own kernels, and by cuDNN where it can: each against the CPU's, and the speed of a GPT, as the median of later steps."""
    size, batch, steps = ("layers=1,heads=2,width=32,context=32", 4, 4) if OPTIONS.emulated else ("layers=12,heads=12,width=768,context=512", 16, 40)
    text, speed = os.path.join(FOLDER, "text.txt"), {}
    with open(os.path.join(REFERENCE, "text.txt")) as file, open(text, "w") as to:
        to.write(100 * file.read())
    for way in ("algorithms", "graph"):
        env = {"STARGRAD_CUDNN": way}
        _, said = run([*OPERATIONS, "on a GPU"], {**env, "OPERATIONS": "attention,document_attention"})
        if "OK ] every operation on a GPU equals the CPU" not in said:
            raise Failed(f"STARGRAD_CUDNN={way}: no CUDA kernel was compared")
        out, _ = train("attention", "--model", f"gpt:{size}", "--data", f"text:{text},{size.rpartition('=')[2]}", "--batch", batch,
                       "--steps", steps, "--optimizer", "adamw", "--precision", "bf16", *EAGER, *CUDA, *ON_GPUS, env=env)
        with open(os.path.join(out, "metrics.jsonl")) as file:
            events = [json.loads(line) for line in file]
        speed[way] = statistics.median([event["samples_per_second"] for event in events if event["event"] == "step"][steps // 2:])
    own, cudnn = speed["algorithms"], speed["graph"]
    return f"own kernels {own:.0f}", f"cuDNN {cudnn:.0f} samples/s", f"agree; GPT with cuDNN over own kernels: {cudnn / own:.2f}"


def bits():
    arguments = [*reference(*RESNET), "--deterministic", "--steps", LATER, *CUDA]
    once, twice = (content(train(name, *arguments)[0]) for name in ("once", "twice"))
    return "", "", "the same bits" if once == twice else "DISAGREE: not the same bits"


def traced():
    """What a trace of GPU workers says: how busy they are, what is copied, what holds the step."""
    size = "8x8x3,10,64" if OPTIONS.emulated else "32x32x3,10,8192"
    batch, steps, of = (16, 6, "4-5") if OPTIONS.emulated else (1024, 40, "31-35")
    out, _ = train("trace", "--model", "resnet20", "--data", f"synthetic:{size}", "--batch", batch, "--steps", steps,
                   "--precision", "bf16", "--no-augment", "--trace", of, *EAGER, *CUDA, *ON_GPUS)
    shutil.rmtree(OUT / "trace", ignore_errors=True)
    shutil.copytree(out, OUT / "trace", ignore=shutil.ignore_patterns("*.safetensors", "checkpoints"))
    trace = json.loads(run(command("report", "--json", out))[0])["trace"]
    copies = trace.get("copies", {}).get("all", {})
    if not trace["tasks"] or not copies.get("to_devices_mb"):
        raise Failed("the trace has no task, or no copy to the GPU")
    work = ("forward", "backward", "reduction", "update")
    busy = [100 * sum(worker["ms"].get(kind, 0) for kind in work) / trace["ms"] for worker in trace["workers"]]
    steps = trace["steps"]
    says = (f"{trace['ms'] / steps:.1f} ms a step, {trace['tasks'] / steps:.0f} tasks, "
            f"{copies['to_devices_mb'] / steps:.1f} MB to it")
    return f"busiest worker {max(busy):.0f} %", says, trace["findings"][0] if trace["findings"] else "no finding"


def several():
    if OPTIONS.emulated:
        os.environ["STARGRAD_EMULATED_GPUS"] = "2"
    elif len(run(["nvidia-smi", "-L"])[0].splitlines()) < 2:
        return "", "", "left out: one GPU"
    return same_losses([*reference(*RESNET), "--bn-group", "rank"], "f32", (*TWO, *ON_GPUS))


# ---- beside PyTorch: bench/gpu, which keeps a section of the table for each network ----------------------------------------

BENCHES = {"resnet50": ["resnet50"], "gpt": ["gpt"], "resnet20": ["resnet20"]}


def bench_words(*more):
    emulated = ("--device", "emulated", "--precision", "bf16", "--rounds", 1) if OPTIONS.emulated else ()
    return [sys.executable, os.path.join(ROOT, "bench", "gpu"), "--no-install", "--stargrad", os.environ["STARGRAD"], *emulated, *more]


def bench(model):
    END = 8       # seconds to end in
    out, _ = run(bench_words("--model", *BENCHES[model], "--minutes", f"{max(0, Now.left() - END) / 60:.2f}", "--json"),
                 statuses=(0, 1))
    rows = json.loads(out)["results"]
    speeds = {who: [f"{row['precision']} {best['images_per_second']:.0f}" for row in rows if row["precision"] and
                    (best := row["stargrad"] if who == "stargrad" else (row["pytorch"] or [None])[0])]
              for who in ("stargrad", "pytorch")}
    ratios = [f"{row['precision']} {row['of_best_pytorch']:.2f}" for row in rows if row["of_best_pytorch"]]
    if not speeds["stargrad"]:
        raise Failed(f"Stargrad was not measured: {'; '.join(json.loads(out)['notes'])}")
    return (f"PyTorch {', '.join(speeds['pytorch']) or 'not measured'}", f"{', '.join(speeds['stargrad'])} samples/s",
            f"Stargrad over PyTorch: {', '.join(ratios)}" if ratios else "measured")


class Compilation:
    """PyTorch's networks are compiled beside the parts that measure no time, into its cache on disk (TORCHINDUCTOR_CACHE_DIR)."""
    process = None

    @classmethod
    def begin(cls, parts):
        models = [model for part in parts for model in BENCHES if part[2] == BENCH[model]]
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(FOLDER, "inductor"))
        if OPTIONS.emulated or not models:
            return
        with open(OUT / "logs" / "compilation.log", "w") as log:
            words = bench_words("--compile-only", "--model", *models)
            cls.process = subprocess.Popen(list(map(str, words)), stdout=log, stderr=log, start_new_session=True)

    @classmethod
    def end(cls):
        if cls.process:
            stop(cls.process)
        cls.process = None


# (name, seconds of the plan, what)
BENCH = {model: (lambda model=model: bench(model)) for model in BENCHES}
PARTS = [
    ("operations: CUDA kernels against CPU kernels, every test shape", 75, operations),
    *((f"{case[0]} {precision}: loss of step {LATER}", seconds, lambda case=case, p=precision: same_losses(reference(*case), p))
      for case, seconds in ((LENET, 12), (RESNET, 15)) for precision in WITHIN),
    *((f"gpt {precision}: loss of step {LATER}", 12, lambda p=precision: same_losses(GPT, p)) for precision in ("f32", "bf16")),
    ("attention bf16: own kernels and cuDNN's", 20, attention),
    ("resnet50 against PyTorch", 90, BENCH["resnet50"]),
    ("gpt against PyTorch", 70, BENCH["gpt"]),
    ("resnet20 against PyTorch", 55, BENCH["resnet20"]),
    ("resnet20 bf16: trace of GPU workers", 25, traced),
    ("CPU and GPU, one batch: loss", 15, lambda: same_losses(SHARED, "f32", ("--cpus", 2, "--gpus", 1))),
    ("resnet20 --deterministic, twice", 15, bits),
    ("two GPUs: loss", 10, several),
]
assert sum(seconds for _, seconds, _ in PARTS) <= 480, "the plan takes at most 8 minutes"


def plan():
    """(name, second of the end, what) of the parts that are asked for. Prints them."""
    chosen = [part for part in PARTS if any(word in part[0] for word in OPTIONS.part)]
    stretch = 60 * MINUTES / sum(seconds for _, seconds, _ in PARTS)
    at, found = 0, []
    print(f"{'part':<64} {'from s':>7} {'to s':>6}")
    for name, seconds, what in chosen:
        print(f"{name:<64} {at:>7.0f} {at + stretch * seconds:>6.0f}")
        at += stretch * seconds
        found.append((name, at, what))
    print(f"in all at most {at:.0f} s = {at / 60:.1f} minutes", flush=True)
    return found


def do(name, part):
    """The row of a part that has time."""
    try:
        return part()
    except (Failed, OSError, ValueError, KeyError, IndexError, TypeError) as failure:
        return "", "", f"FAILED: {failure}"


def main():
    parts, good = plan(), True
    if OPTIONS.plan:
        return 0
    (OUT / "logs").mkdir(parents=True, exist_ok=True)
    version = subprocess.run(command("--version"), capture_output=True, text=True).stdout.partition("\n")[0]
    table = Table("tests/gpu/run", ["part", "reference", "GPU", "result", "s"], version)
    begun = time.monotonic()
    Compilation.begin(parts)
    for number, (name, end, part) in enumerate(parts):
        started = time.monotonic()
        if part in BENCH.values():
            Compilation.end()
        Now.end, Now.log = begun + end, OUT / "logs" / f"{number + 1:02}-{re.sub('[^a-z0-9]+', '-', name.lower())[:40]}.log"
        row = do(name, part) if started < Now.end - 1 else ("", "", "FAILED: no time left")
        good &= not row[2].startswith(("FAILED", "DISAGREE"))
        print(f"{name:<64} {row[0]:>12} {row[1]:>14}   {row[2]}", flush=True)
        table.add(name, *row, f"{time.monotonic() - started:.0f}")
    print(f"the table: {os.environ.get('GPU_TABLE', 'gpu.md')}")
    return 0 if good else 1


def interrupted(*_):
    raise KeyboardInterrupt


signal.signal(signal.SIGTERM, interrupted)
try:
    status = main()
except KeyboardInterrupt:
    print("interrupted; the table has what was done before", file=sys.stderr)
    status = 1
finally:
    Compilation.end()
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(status)
