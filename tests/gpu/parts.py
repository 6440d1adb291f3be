"""What tests/gpu/run does on a GPU, part by part: kernels against CPU kernels, losses against training on CPUs, the same bits
twice, a trace, how fast. Each part has so many seconds; one that fails, or has none left, is a row that says so, and the next one
begins.

    tests/gpu/run                        starts this with what it needs
    tests/gpu/parts.py --emulated        on CPU threads in place of a GPU, smaller: tests the parts, measures nothing
    tests/gpu/parts.py --part WORD…      only parts whose names have one of these words

Rows are printed as they come, and kept in a table: $GPU_TABLE, or gpu.md (bench/table.py). Exit status: 0 all that ran agrees and
nothing failed, 1 otherwise."""
import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(ROOT, "tests", "train"), os.path.join(ROOT, "bench")]
PARSER = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
PARSER.add_argument("--emulated", action="store_true")
PARSER.add_argument("--part", nargs="+", default=[""])
PARSER.add_argument("--minutes", type=float, default=9.5, help="for everything (default %(default)s)")
OPTIONS = PARSER.parse_args()
BUILD = os.path.join(os.environ.get("builddir", os.path.join(ROOT, "build")))
OPERATIONS = os.path.join(BUILD, "tests", "codelets", "operations")
if OPTIONS.emulated:
    BUILD = os.path.join(BUILD, "tests", "gpu", "emulator")
    OPERATIONS = os.path.join(BUILD, "operations")
os.environ["STARGRAD"] = os.path.join(BUILD, "stargrad")
os.environ.setdefault("srcdir", ROOT)
if OPTIONS.emulated:
    os.environ.setdefault("STARGRAD_EMULATED_GPUS", "1")
from run import FOLDER, REFERENCE, command, content, events, folder, losses  # noqa: E402
from table import Table  # noqa: E402

# Reading samples is work for a CPU, so one stays.
CPU, CUDA, TWO = ("--gpus", 0), ("--cpus", 1, "--gpus", 1), ("--cpus", 1, "--gpus", 2)
EAGER = ("--scheduler", "eager") if OPTIONS.emulated else ()     # one that measures would leave all to the CPU
FIRST, LATER = 3, 5 if OPTIONS.emulated else 10        # steps; rounding grows from step to step
WITHIN = {"f32": (1e-4, 1e-3), "tf32": (3e-2, 1e-1), "bf16": (1e-2, 3e-2)}
TEXT = f"text:{os.path.join(REFERENCE, 'text.txt')}"


class Failed(Exception):
    pass


class Clock:
    """Until when the part that runs now may go on."""
    end = None

    @classmethod
    def left(cls):
        return max(1, cls.end - time.monotonic())


def run(words, env=None):
    try:
        done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env={**os.environ, **(env or {})},
                              timeout=Clock.left())
    except subprocess.TimeoutExpired:
        raise Failed("out of time") from None
    said = done.stdout + done.stderr
    if done.returncode:
        print(f"{' '.join(done.args)}: exit status {done.returncode}\n{said}", file=sys.stderr)
        lines = [line for line in said.splitlines() if line.strip()] or [f"exit status {done.returncode}"]
        why = [line for line in lines if "stargrad: " in line or "FAILED" in line] or lines[-1:]
        raise Failed("; ".join(why[:5]))
    return said


def train(name, *arguments, count_tasks=False):
    """Runs the program; returns the run's folder and, if told to count, the share of its tasks that a CUDA worker ran."""
    out = folder(name)
    counting = {"STARPU_PROFILING": "1", "STARPU_WORKER_STATS": "1"} if count_tasks else {}
    said = run(command("train", *arguments, "--out", out), counting)
    tasks = {"CPU": 0, "CUDA": 0}
    for kind, count in re.findall(r"^(CPU|CUDA) .*\n\t(\d+) task", said, re.M):
        tasks[kind] += int(count)
    return out, tasks["CUDA"] / max(1, sum(tasks.values()))


# ---- parts: each returns what the row says of CPUs, of GPUs, and as a whole ------------------------------------------------


def operations():
    said = run([OPERATIONS, "on a GPU"])
    if "OK ] every operation on a GPU equals the CPU" not in said:
        raise Failed("no CUDA kernel was compared")
    return "", f"{len(re.findall(r'computed without', said))} convolutions without cuDNN", "agree"


def same_losses(arguments, precision, where=CUDA):
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


def bits():
    arguments = [*reference(*RESNET), "--deterministic", "--steps", LATER, *CUDA]
    once, twice = (content(train(name, *arguments)[0]) for name in ("once", "twice"))
    return "", "", "the same bits" if once == twice else "DISAGREE: not the same bits"


def traced():
    """What a trace of GPU workers says: how busy they are, what is copied, what holds the step."""
    size = "8x8x3,10,64" if OPTIONS.emulated else "32x32x3,10,8192"
    batch, steps, of = (16, 6, "4-5") if OPTIONS.emulated else (1024, 40, "31-35")
    out, _ = train("trace", "--model", "resnet20", "--data", f"synthetic:{size}", "--batch", batch, "--steps", steps,
                   "--precision", "bf16", "--no-augment", "--trace", of, *EAGER, *CUDA)
    trace = json.loads(run(command("report", "--json", out)))["trace"]
    copies = trace.get("copies", {}).get("all", {})
    if not trace["tasks"] or not copies.get("to_devices_mb"):
        raise Failed("the trace has no task, or no copy to the GPU")
    work = ("forward", "backward", "reduction", "update")
    busy = [100 * sum(worker["ms"].get(kind, 0) for kind in work) / trace["ms"] for worker in trace["workers"]]
    keep = os.path.join(os.path.dirname(os.path.abspath(os.environ.get("GPU_TABLE", "gpu.md"))), "gpu-trace")
    shutil.rmtree(keep, ignore_errors=True)
    shutil.copytree(out, keep, ignore=shutil.ignore_patterns("*.safetensors", "checkpoints"))
    steps = trace["steps"]
    says = (f"{trace['ms'] / steps:.1f} ms a step, {trace['tasks'] / steps:.0f} tasks, "
            f"{copies['to_devices_mb'] / steps:.1f} MB to it")
    return f"busiest worker {max(busy):.0f} %", says, trace["findings"][0] if trace["findings"] else "no finding"


def speed(model, shape, batch, steps, precision):
    """Samples a second by the median of the later half's steps."""
    if OPTIONS.emulated:
        batch, steps, shape = 2, 4, re.sub(r"^\d+x\d+", "32x32", shape)
    text = model.startswith("gpt")
    data = f"{TEXT},{shape}" if text else f"synthetic:{shape},{4 * batch}"
    out, _ = train("speed", "--model", model, "--data", data, "--batch", batch, "--steps", steps, "--precision", precision,
                   *(("--optimizer", "adamw") if text else ("--no-augment",)), "--gpus", 1)
    rates = [event["samples_per_second"] for event in events(out)]
    late = rates[len(rates) // 2:]
    return "", f"{statistics.median(late):.0f} samples/s", f"batch {batch}, median of {len(late)} steps"


def several():
    if OPTIONS.emulated:
        os.environ["STARGRAD_EMULATED_GPUS"] = "2"
    elif len(run(["nvidia-smi", "-L"]).splitlines()) < 2:
        return "", "", "left out: one GPU"
    return same_losses([*reference(*RESNET), "--bn-group", "rank"], "f32", TWO)


# (name, seconds at most, what)
GPT_SIZE = "gpt:layers=2,heads=2,width=64,context=64" if OPTIONS.emulated else "gpt:layers=12,heads=12,width=768,context=512"
PARTS = [
    ("operations: CUDA kernels against CPU kernels, every test shape", 200, operations),
    *((f"{case[0]} {precision}: loss of step {LATER}", 60, lambda case=case, p=precision: same_losses(reference(*case), p))
      for case in (LENET, RESNET) for precision in WITHIN),
    *((f"gpt {precision}: loss of step {LATER}", 60, lambda p=precision: same_losses(GPT, p)) for precision in ("f32", "bf16")),
    ("CPU and GPU, one batch: loss", 60, lambda: same_losses(SHARED, "f32", ("--cpus", 2, "--gpus", 1))),
    ("two GPUs: loss", 60, several),
    ("resnet20 --deterministic, twice", 60, bits),
    ("resnet20 bf16: trace of GPU workers", 60, traced),
    *((f"{model.partition(':')[0]} {precision}: speed", 60, lambda a=(model, shape, batch, steps, precision): speed(*a))
      for model, shape, batch, steps in (
          ("resnet20", "32x32x3,10", 128, 200), ("resnet44", "32x32x3,10", 128, 150), ("resnet50", "224x224x3,1000", 256, 30),
          (GPT_SIZE, "64" if OPTIONS.emulated else "512", 8, 40))
      for precision in ("bf16", "f32")),
]


def main():
    version = subprocess.run(command("--version"), capture_output=True, text=True).stdout.strip()
    table = Table("tests/gpu/run", ["part", "CPU", "GPU", "result", "s"], version)
    end, good = time.monotonic() + 60 * OPTIONS.minutes, True
    for name, limit, part in PARTS:
        if not any(word in name for word in OPTIONS.part):
            continue
        started = time.monotonic()
        if started > end - 5:
            row, good = ("", "", "left out: no time left"), False
        else:
            Clock.end = min(started + limit, end)
            try:
                row = part()
            except (Failed, OSError, ValueError, KeyError, IndexError) as failure:
                row = "", "", f"FAILED: {failure}"
            good &= not row[2].startswith(("FAILED", "DISAGREE"))
        print(f"{name:<64} {row[0]:>12} {row[1]:>14}   {row[2]}", flush=True)
        table.add(name, *row, f"{time.monotonic() - started:.0f}")
    print(f"the table: {os.environ.get('GPU_TABLE', 'gpu.md')}")
    return 0 if good else 1


try:
    status = main()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(status)
