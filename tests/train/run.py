"""Functions that the tests of training share: start the program, read the files of a run."""
import atexit
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time

try:
    import pytest
except ImportError:     # where only what reads runs is used
    pytest = None

STARGRAD = os.environ.get("STARGRAD", "build/stargrad")
SOURCE = os.environ.get("srcdir", ".")
REFERENCE = os.path.join(SOURCE, "tests", "reference")
DATA = os.environ.get("STARGRAD_DATA", "")      # a folder with fashion-mnist/ and cifar-10-batches-bin/
FOLDER = tempfile.mkdtemp(prefix="stargrad-test-")
atexit.register(shutil.rmtree, FOLDER, ignore_errors=True)
TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
Skip = pytest.skip.Exception if pytest else Exception
long = pytest.mark.long if pytest else lambda test: test     # a test of check-long alone


def folder(name):
    path = os.path.join(FOLDER, name)
    shutil.rmtree(path, ignore_errors=True)
    return path


def command(*arguments):
    return [STARGRAD, *(str(a) for a in arguments)]


def stargrad(*arguments, status=0, env=None):
    """Runs the program; returns its output. Its exit status has to be STATUS."""
    done = subprocess.run(command(*arguments), capture_output=True, text=True, env={**os.environ, **(env or {})}, timeout=900)
    if done.returncode != status:
        raise AssertionError(f"{' '.join(command(*arguments))}: exit status {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
    return done.stdout if status == 0 else done.stderr


# MPI as root and more ranks than cores, by Open MPI 4 and by 5: what tests need, and only they. tests/cli/expect.sh has the same.
RANKS = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
         "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe", "OMPI_MCA_btl_vader_single_copy_mechanism": "none"}


def by_rank(*commands):
    """A command that is another one on each rank. (The mpirun of Open MPI 5.0.7, Debian 13's, dies of "A : B", whatever A and B are.)"""
    cases = " ".join(f"{rank}) exec {shlex.join(map(str, words))} ;;" for rank, words in enumerate(commands))
    return ["sh", "-c", f"case $OMPI_COMM_WORLD_RANK in {cases} esac"]


def children_of(parent):
    """The processes that PARENT has started, in their order."""
    with open(f"/proc/{parent}/task/{parent}/children") as f:
        return [int(child) for child in f.read().split()]


def mpirun(count, words, status=0, env=None):
    """The words as a command, on COUNT ranks; STATUS None: which may end as it likes, and all that it says."""
    if not shutil.which("mpirun"):
        raise Skip("there is no mpirun")
    words = ["mpirun", "-n", str(count), *words]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **RANKS, **(env or {})}, timeout=600)
    if status is None:
        return done.stdout + done.stderr
    if bool(done.returncode) != bool(status):
        raise AssertionError(f"{' '.join(words)}: exit status {done.returncode}, not {status}\n{done.stdout}{done.stderr}")
    return (done.stdout if status == 0 else done.stderr).replace("\0", "")     # with which Open MPI 5 ends its own messages


def ranks(count, *arguments, status=0, env=None):
    """The same as stargrad() on COUNT ranks, one core each."""
    return mpirun(count, [*command(*arguments), "--cpus", "1"], status, env)


def resuming(path):
    """What continues the run in PATH, if one has begun there."""
    return ["--resume"] if os.path.exists(os.path.join(path, "config.json")) else []


def wait_until(condition, process, limit=600):
    """Until it holds, or the process has ended: no sleep decides anything, it only saves the processor. What it asks need not be there yet."""
    deadline = time.monotonic() + limit
    while process.poll() is None:
        assert time.monotonic() < deadline, f"waited in vain for {limit} s"
        try:
            if condition():
                return
        except OSError:
            pass
        time.sleep(0.005)


def wait_for_steps(path, steps, process):
    """Until the run in PATH has had so many steps, or has ended."""
    wait_until(lambda: content(path, "metrics.jsonl").count(b'"step","step"') >= steps, process)


def events(path, kind="step"):
    with open(os.path.join(path, "metrics.jsonl")) as f:
        return [e for e in map(json.loads, f) if e["event"] == kind]


def losses(path):
    return [e["loss"] for e in events(path)]


def content(path, name="model.safetensors"):
    with open(os.path.join(path, name), "rb") as f:
        return f.read()


def main(tests, *options):
    """Runs the file's tests by pytest, with these options, or those that the command line names; other words are pytest's options. Exit status 77:
    all were skipped."""
    if not pytest:
        sys.exit(f"{sys.argv[0]}: {sys.executable} has no pytest: install Debian's python3-pytest, or name another Python (make PYTHON=…)")
    file, ran = os.path.abspath(sys.argv[0]), []

    class Outcomes:
        def pytest_runtest_logreport(self, report):
            ran.extend([report] if report.when == "call" and not report.skipped else [])

    words = [f"{file}::{word}" if word.startswith("test_") and word.partition("[")[0] in tests else word for word in sys.argv[1:]]
    if not any("::" in word or os.path.exists(word) for word in words):
        words.append(file)
    status = pytest.main(["-c", os.path.join(TESTS, "pytest.ini"), "--rootdir", TESTS, "-v", *options, *words], [Outcomes()])
    sys.exit(77 if status == 0 and not ran else status)
