"""Training on CUDA against training on CPUs: the same losses from the same weights, the same bits twice, and how fast.
tests/gpu/run starts this; it prints one table."""
import json
import os
import re
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), "train"))
os.environ.setdefault("STARGRAD", os.path.join(ROOT, "build", "stargrad"))
os.environ.setdefault("srcdir", ROOT)
from run import FOLDER, REFERENCE, command, content, events, folder, losses  # noqa: E402

# Reading samples is work for a CPU, so one stays.
CPU, CUDA = ("--gpus", 0), ("--cpus", 1, "--gpus", 1)
FIRST, LATER = 3, 10        # rounding grows from step to step
WITHIN = {"f32": (1e-4, 1e-3), "bf16": (1e-2, 3e-2)}
WARM = 10                   # steps before the clock starts: descriptors, algorithms, performance models

agree = True


def row(what, cpu, cuda, verdict):
    print(f"{what:<34} {cpu:>14} {cuda:>14}   {verdict}", flush=True)


def train(name, *arguments, count_tasks=False):
    """Runs the program; returns the run's folder and, if told to count, the share of its tasks that a CUDA worker ran."""
    out = folder(name)
    counting = {"STARPU_PROFILING": "1", "STARPU_WORKER_STATS": "1"} if count_tasks else {}
    done = subprocess.run(command("train", *arguments, "--out", out), capture_output=True, text=True,
                          env={**os.environ, **counting}, timeout=900)
    if done.returncode:
        raise SystemExit(f"{' '.join(done.args)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    tasks = {"CPU": 0, "CUDA": 0}
    for kind, count in re.findall(r"^(CPU|CUDA) .*\n\t(\d+) task", done.stdout + done.stderr, re.M):
        tasks[kind] += int(count)
    return out, tasks["CUDA"] / max(1, sum(tasks.values()))


def check(model, case, precision):
    global agree
    with open(os.path.join(REFERENCE, "losses.json")) as f:
        reference = json.load(f)[case]
    arguments = ["--model", model, "--data", f"{reference['data']}:{os.path.join(REFERENCE, reference['data'])}",
                 "--init", os.path.join(REFERENCE, f"{model}.safetensors"), "--batch", 16, "--micro-batch", 8, "--steps", LATER,
                 "--no-shuffle", "--no-augment", "--lr", reference["lr"], "--precision", precision]
    cpu = losses(train("cpu", *arguments, *CPU)[0])
    out, share = train("cuda", *arguments, *CUDA, count_tasks=True)
    cuda = losses(out)
    error = [abs(a - b) / b for a, b in zip(cuda, cpu)]
    first, later = WITHIN[precision]
    good = len(error) == LATER and share > 0 and max(error[:FIRST]) <= first and max(error) <= later
    agree &= good
    row(f"{model} {precision}: loss of step {LATER}", f"{cpu[-1]:.6f}", f"{cuda[-1]:.6f}",
        f"{'agree' if good else 'DISAGREE'}, at most {max(error):.1e}; {share:.0%} of tasks on CUDA")


def check_bits():
    global agree
    arguments = ["--model", "resnet20", "--data", f"cifar10:{os.path.join(REFERENCE, 'cifar10')}", "--batch", 16, "--steps", 10,
                 "--lr", 0.002, "--deterministic", *CUDA]
    once, twice = (content(train(name, *arguments)[0]) for name in ("once", "twice"))
    good = once == twice
    agree &= good
    row("resnet20 --deterministic, twice", "", "", "the same bits" if good else "DISAGREE: not the same bits")


def speed(model, shape, batch, precision):
    """Images a second over the steps after the first ones: CPUs at a smaller batch, for fewer steps."""
    rate = []
    for where, samples, steps in ((CPU, 128, 6), (("--gpus", 1), batch, 60)):
        warm = min(WARM, steps // 3)
        out, _ = train("speed", "--model", model, "--data", f"synthetic:{shape},{8 * samples}", "--batch", samples,
                       "--steps", steps, "--precision", precision, "--no-augment", *where)
        seconds = [samples / event["samples_per_second"] for event in events(out)[warm:]]
        rate.append(samples * len(seconds) / sum(seconds))
    row(f"{model} {precision}: images/s", f"{rate[0]:.0f}", f"{rate[1]:.0f}", f"batch {batch} on CUDA")


def main():
    row("", "CPU", "CUDA", "")
    for precision in ("f32", "bf16"):
        check("lenet", "lenet", precision)
        check("resnet20", "resnet20-gentle", precision)
    check_bits()
    for precision in ("f32", "bf16"):
        speed("resnet20", "32x32x3,10", 512, precision)


try:
    main()
finally:
    shutil.rmtree(FOLDER, ignore_errors=True)
sys.exit(not agree)
