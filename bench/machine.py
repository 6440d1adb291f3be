"""What the measurements here share: which PyTorch they measure against, and who else was at work meanwhile."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = pathlib.Path(os.environ.get("BENCH_VENV", ROOT / "build/bench-venv"))
PYTHON = VENV / "bin/python"

# What PyTorch loses on CPUs it loses in page faults: each of these makes malloc keep its memory.
KEEP = {"MALLOC_MMAP_THRESHOLD_": "2000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_TOP_PAD_": "268435456"}
HUGE = KEEP | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def find_torch(program):
    """Installs PyTorch where it is looked for, if it is not there."""
    if not VENV.exists():
        print(f"{program}: installing PyTorch into {VENV}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        subprocess.run([VENV / "bin/pip", "install", "--quiet", "torch", "numpy"], check=True)
    if subprocess.run([PYTHON, "-c", "import torch"]).returncode:
        sys.exit(f"{program}: PyTorch in {VENV} does not work; remove that folder to install it anew")


def busy():
    """Processor seconds that this machine has spent so far on anything."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")  # less idle, less waiting


def steps_s(out, batch):
    """Seconds of every step of the run in folder OUT."""
    events = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [batch / event["samples_per_second"] for event in events if event["event"] == "step"]


def run(command, environment={}):
    """Standard output, peak memory in MiB, and the share of the machine that other programs took meanwhile."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        busy_before, started = busy(), time.monotonic()
        process = subprocess.Popen(list(map(str, command)), env=os.environ | environment, stdout=output, stderr=errors)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            sys.exit(f"{errors.read()}{pathlib.Path(sys.argv[0]).name}: exit status {process.returncode}: {' '.join(process.args)}")
        others = busy() - busy_before - usage.ru_utime - usage.ru_stime
        output.seek(0)
        return (output.read(), usage.ru_maxrss / 1024,
                max(0, others / (time.monotonic() - started) / os.cpu_count()))
