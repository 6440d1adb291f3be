"""Functions that all benchmarks use: find PyTorch, run a command, measure the load by other programs."""
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
VENV = pathlib.Path(os.environ.get("BENCH_VENV") or ROOT / "build/bench-venv")
BARE = not VENV.exists() and importlib.util.find_spec("torch")      # this Python has PyTorch already
PYTHON = pathlib.Path(sys.executable) if BARE else VENV / "bin/python"

# On CPUs, PyTorch loses most time in page faults. With these settings, malloc does not return memory to the system.
KEEP = {"MALLOC_MMAP_THRESHOLD_": "2000000000", "MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_TOP_PAD_": "268435456"}
HUGE = KEEP | {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


def find_torch(program, install=True):
    """Finds PyTorch, or installs it if INSTALL allows this. Ends the program with a message if there is no PyTorch that works."""
    if not PYTHON.exists() and not install:
        sys.exit(f"{program}: there is no PyTorch in {sys.executable}, nor in {VENV}")
    if not PYTHON.exists():
        print(f"{program}: installing PyTorch into {VENV}", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", VENV], check=True)
        if subprocess.run([VENV / "bin/pip", "install", "--quiet", "torch", "numpy"]).returncode:
            shutil.rmtree(VENV)
            sys.exit(f"{program}: PyTorch cannot be installed; BENCH_VENV may name a virtual environment that has it")
    if subprocess.run([PYTHON, "-c", "import torch"]).returncode:
        sys.exit(f"{program}: PyTorch of {PYTHON} does not work; remove {VENV} to install it again")


def busy():
    """Returns the processor seconds that all programs of this machine have used since its start."""
    fields = [int(field) for field in pathlib.Path("/proc/stat").read_text().split()[1:9]]
    return (sum(fields) - fields[3] - fields[4]) / os.sysconf("SC_CLK_TCK")  # without idle and iowait


class Energy:
    """Measures the energy of the processors within a block, by the machine's counters (RAPL). joules: the energy; None if the
    counters cannot be read, with the reason in why. Counters overflow within minutes, so a thread reads them regularly."""
    FOLDER = pathlib.Path("/sys/class/powercap")

    def __init__(self):
        self.joules, self.why, self.files = None, None, sorted(self.FOLDER.glob("*-rapl:?/energy_uj"))
        if not self.files:
            self.why = f"{self.FOLDER} has no energy counters"
        elif not all(os.access(file, os.R_OK) for file in self.files):
            self.why = f"only root can read {self.files[0]}"

    def read(self):
        now = [int(file.read_text()) for file in self.files]
        for file, before, after in zip(self.files, self.last, now):
            around = int(file.with_name("max_energy_range_uj").read_text()) if after < before else 0
            self.joules += (after - before + around) / 1e6
        self.last = now

    def watch(self):
        while not self.over.wait(20):
            self.read()

    def __enter__(self):
        if not self.why:
            self.joules, self.last = 0, [int(file.read_text()) for file in self.files]
            self.over, self.thread = threading.Event(), threading.Thread(target=self.watch, daemon=True)
            self.thread.start()
        return self

    def __exit__(self, *_):
        if not self.why:
            self.over.set()
            self.thread.join()
            self.read()


def steps_s(out, batch):
    """Returns the seconds of every step of the run in folder OUT."""
    events = map(json.loads, (out / "metrics.jsonl").read_text().splitlines())
    return [batch / event["samples_per_second"] for event in events if event["event"] == "step"]


class Failed(SystemExit):
    """A command failed. If it is not caught, it ends this program with the command's message. late: the command exceeded its time
    limit."""
    late = False


def run(command, environment={}, limit_s=None):
    """Returns standard output, peak memory in MiB, and the fraction of the machine that other programs used during the run."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        busy_before, started = busy(), time.monotonic()
        process = subprocess.Popen(list(map(str, command)), env=os.environ | environment, stdout=output, stderr=errors)
        alarm = threading.Timer(limit_s or threading.TIMEOUT_MAX, process.kill)
        alarm.daemon = True
        alarm.start()
        _, status, usage = os.wait4(process.pid, 0)
        alarm.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            errors.seek(0)
            failure = Failed(f"{errors.read()}{pathlib.Path(sys.argv[0]).name}: exit status {process.returncode}: "
                             f"{' '.join(process.args)}")
            failure.late = bool(limit_s) and time.monotonic() - started >= limit_s
            raise failure
        others = busy() - busy_before - usage.ru_utime - usage.ru_stime
        output.seek(0)
        return (output.read(), usage.ru_maxrss / 1024,
                max(0, others / (time.monotonic() - started) / os.cpu_count()))


def train_speed(stargrad, arguments, batch, steps, warm, environment={}, limit_s=None):
    """Returns the samples per second of Stargrad's STEPS steps after WARM steps, and memory and others as in run()."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "run")
        _, memory, others = run([stargrad, "train", "--batch", batch, "--no-augment", "--steps", warm + steps, "--out", out,
                                 *arguments], environment, limit_s)
        seconds = steps_s(out, batch)[warm:]
    return batch * len(seconds) / sum(seconds), memory, others
