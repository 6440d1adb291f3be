"""Odd values of every variable STARGRAD_* and STARPU_* of docs/reference/environment.md: one line names the variable, the reason
and the remedy, and the program goes on with a default, or ends with status 2, or 1 if a file is the reason. An empty value has the
same effect as an unset variable. A new variable of that page must be added to a table below."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "train"))

import run  # noqa: E402
from run import SOURCE, STARGRAD, TESTS, Skip, command, folder, main, pytest  # noqa: E402

if not pytest:
    main(())
BUILD = os.path.abspath(os.environ.get("builddir", "build"))
TRAIN = ("train", "--model", "mlp", "--data", "digits", "--batch", 64, "--steps", 1, "--quiet")
PLAN = ("plan", "--simulate", "--model", "mlp", "--data", "digits", "--machine", "titan", "--nodes", 1)
NOWHERE = "/proc/nowhere"       # cannot be created, not even by root


def whole(name, *more):
    """Cases of a variable that must be a whole number."""
    return [(value, TRAIN, 2, f"{name}={value} is not a whole number from .*; unset it") for value in ("abc", "-7", "1.5", "2x", *more)]


def unknown(name, value, words=TRAIN):
    """A case of a variable that must be one of some words."""
    return [(value, words, 0, f"warning: {name}={value} is unknown, so .*; give .* or .*, or unset it")]


def no_home(name):
    return [(NOWHERE, TRAIN, 0, f"warning: {name}={NOWHERE}: .*: StarPU cannot store measured times there and uses .*; set STARPU_HOME")]


def place(name):
    return [(value, TRAIN, 2, f"{name}={value} is not a (CPU|core) of this machine .*; unset it") for value in ("abc", "4096", "1.5")]


# Variable: cases of value, words, exit status and message without "stargrad: "; None: no message.
PROGRAM = {
    "STARGRAD_PICTURES": unknown("STARGRAD_PICTURES", "maybe"),
    "STARGRAD_MAX_ISA": [("mmx", TRAIN, 2, "STARGRAD_MAX_ISA=mmx is unknown; it must be baseline, .* or amx")],
    "STARGRAD_PROGRESS_SECONDS": [(value, TRAIN, 0, f"warning: STARGRAD_PROGRESS_SECONDS={value} is not a number of seconds, .*")
                                  for value in ("soon", "-1", "nan")],
    "STARGRAD_SNAPSHOTS": [(NOWHERE, (*TRAIN, "--snapshot-every", 1), 0,
                            f"warning: {NOWHERE}/stargrad-.*; this host stores no snapshots; set STARGRAD_SNAPSHOTS to another folder")],
    "STARGRAD_FAILURE": [(value, TRAIN, 0, "warning: STARGRAD_FAILURE=.* does not describe a failure, and is ignored; .*: unset it")
                         for value in ("abc", "{}", '{"time":1}', '{"time":1,"rank":"all"}', '{"time":1,"rank":1,"signal":9,"more":1}')],
    "STARGRAD_CPU_ALGORITHM": unknown("STARGRAD_CPU_ALGORITHM", "quick"),
    "STARGRAD_WAYS": unknown("STARGRAD_WAYS", "quick"),
    "STARGRAD_SIMULATED": [(NOWHERE, PLAN, 1, f"{NOWHERE}: the simulated trainer cannot be read .*STARGRAD_SIMULATED")],
    "STARGRAD_MESSAGE_LIMIT": whole("STARGRAD_MESSAGE_LIMIT", "0", "99999999999999999999"),
    "STARGRAD_SPILL_LIMIT": whole("STARGRAD_SPILL_LIMIT", "0", "99999999999999999999"),
    "STARGRAD_SPILL_IO": [("fast", (*TRAIN, "--memory", "1G", "--spill", "."), 2, "STARGRAD_SPILL_IO=fast is unknown; it must be io_uring or threads")],
    "STARGRAD_SIMULATION": [(NOWHERE, TRAIN, 0, None)],
    "STARPU_HOME": no_home("STARPU_HOME"),
    "STARPU_NCPU": whole("STARPU_NCPU", "4096") + [("0", TRAIN, 1, "StarPU found no worker: .*; STARPU_NCPU or STARPU_NCPUS is 0: unset it")],
    "STARPU_NCPUS": whole("STARPU_NCPUS", "4096"),
    "STARPU_NCUDA": whole("STARPU_NCUDA", "4096"),
    "STARPU_WORKERS_CUDAID": [(value, TRAIN, 2, f"STARPU_WORKERS_CUDAID={value} is not a list of CUDA devices, such as .0 1.; unset it")
                              for value in ("abc", "0,1", "-1", " ", "0 x")],
    "STARPU_SCHED": [("slurm", TRAIN, 2, "StarPU has no scheduler 'slurm' \\(STARPU_SCHED=help lists them\\)")],
    "STARPU_MAIN_THREAD_CPUID": place("STARPU_MAIN_THREAD_CPUID"),
    "STARPU_MAIN_THREAD_COREID": place("STARPU_MAIN_THREAD_COREID"),
    "STARPU_MPI_THREAD_CPUID": place("STARPU_MPI_THREAD_CPUID"),
    "STARPU_MPI_THREAD_COREID": place("STARPU_MPI_THREAD_COREID"),
    "STARPU_MPI_DRIVER_CALL_FREQUENCY": whole("STARPU_MPI_DRIVER_CALL_FREQUENCY"),
    "STARPU_MPI_DRIVER_TASK_FREQUENCY": whole("STARPU_MPI_DRIVER_TASK_FREQUENCY"),
    "STARPU_MPI_COOP_SENDS": whole("STARPU_MPI_COOP_SENDS"),
    "STARPU_MPI_NDETACHED_SEND": whole("STARPU_MPI_NDETACHED_SEND"),
    "STARPU_MPI_NOBIND": whole("STARPU_MPI_NOBIND"),
    "STARPU_SILENT": whole("STARPU_SILENT"),
    "STARPU_CALIBRATE": whole("STARPU_CALIBRATE", "3"),
    "STARPU_FXT_TRACE": whole("STARPU_FXT_TRACE"),
    "STARPU_WORKERS_NOBIND": whole("STARPU_WORKERS_NOBIND"),
    "STARPU_PERF_MODEL_DIR": [(NOWHERE, TRAIN, 0, f"warning: STARPU_PERF_MODEL_DIR={NOWHERE}: .*: measured times of tasks are stored in .*")],
    "STARPU_BACKOFF_MAX": [("abc", TRAIN, 1, "StarPU has aborted, possibly because of STARPU_BACKOFF_MAX=abc; correct or unset it")],
}
# Variables that others read; each has a test below, or a reason why no value is odd.
OTHERS = {
    "STARGRAD_CUDNN": "read on GPUs, by the function that reads STARGRAD_PICTURES",
    "STARGRAD_LIBRARY": "test_library",
    "STARGRAD_DATA": "tests skip what it does not contain, with its value",
    "STARGRAD_LONG": "any value",
    "STARGRAD_SEEDS": "test_seeds",
    "STARGRAD_MOST_SECONDS": "test_most_seconds",
    "STARGRAD_REHEARSAL": "a folder, which is created",
    "STARPU_FXT_PREFIX": "Stargrad sets it", "STARPU_FXT_SUFFIX": "Stargrad sets it", "STARPU_GENERATE_TRACE": "Stargrad sets it",
    "STARPU_HOSTNAME": "any name", "STARPU_SUBALLOCATOR": "read with --gpu-memory alone",
    "STARPU_TARBALL": "of quickstart, which checks that the file exists",
    **{f"STARGRAD_EMULATED_{name}": "test_emulator" for name in ("GPUS", "DELAY", "FAULT", "CAPTURE", "REFUSAL", "HEURISTICS", "CLOCK", "COUNT", "MEMORY")},
}


def call(words, env):
    clean = {name: value for name, value in os.environ.items() if not re.match("STARPU_|STARGRAD_|XDG_CACHE_HOME", name)}
    clean.update({"HOME": folder("home"), "TMPDIR": folder("tmp"), **env})
    for name in ("HOME", "TMPDIR"):
        if clean[name].startswith(run.FOLDER):
            os.makedirs(clean[name], exist_ok=True)
    out = ("--out", folder("out")) if words[0] == "train" else ()
    done = subprocess.run(command(*words, *out), capture_output=True, text=True, env=clean, timeout=120)
    # neither a program that is not installed nor few cores are odd values
    lines = [line for line in done.stderr.splitlines() if not re.search("gnuplot is not installed|workers share the", line)]
    return done, lines


@pytest.mark.parametrize("name, value, words, status, message", [(name, *case) for name, cases in PROGRAM.items() for case in cases])
def test_odd_value(name, value, words, status, message):
    done, lines = call(words, {name: value})
    told = [line for line in lines if line.startswith("stargrad: ")]
    assert done.returncode == status, f"{name}={value}: exit status {done.returncode}\n{done.stderr}"
    assert len(told) == bool(message), done.stderr
    assert not message or re.match(f"stargrad: {message}", told[0]), told[0]
    assert not status or not done.stdout, done.stdout
    assert len(lines) == len(told) or "has aborted" in told[0], done.stderr     # before that, StarPU prints its reason


def test_empty_values():
    done, lines = call(TRAIN, {name: "" for name in (*PROGRAM, "XDG_CACHE_HOME") if name != "STARGRAD_SIMULATED"})
    assert done.returncode == 0 and not lines, done.stderr
    assert not os.path.exists("/.starpu/sampling") or not os.access("/", os.W_OK), "an empty variable is used as the root folder"
    done, lines = call(PLAN, {"STARGRAD_SIMULATED": ""})
    assert done.returncode == 0 or "simulate/stargrad: the simulated trainer cannot be read" in lines[0], done.stderr


def test_empty_home():
    done, lines = call(TRAIN, {"HOME": ""})
    assert done.returncode == 0 and len(lines) == 1, done.stderr
    assert lines[0].startswith("stargrad: warning: HOME is not set: StarPU cannot store measured times there and uses"), lines[0]


def test_library():
    env = {**os.environ, "PYTHONPATH": os.path.join(SOURCE, "python"), "STARGRAD_LIBRARY": NOWHERE}
    done = subprocess.run([sys.executable, "-c", "import stargrad; stargrad.options()"], env=env, capture_output=True, text=True)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and f"STARGRAD_LIBRARY={NOWHERE}: is not a libstargrad" in last, done.stderr


def test_seeds():
    done = subprocess.run([sys.executable, os.path.join(TESTS, "laws", "ranks.py")], env={**os.environ, "STARGRAD_SEEDS": "1-5"},
                          capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("STARGRAD_SEEDS=1-5 is not a seed, such as 17, or a range"), done


def test_most_seconds():
    done = subprocess.run(["bash", os.path.join(TESTS, "summary.sh"), folder("none"), "/", "0"], capture_output=True, text=True,
                          env={**os.environ, "STARGRAD_MOST_SECONDS": "soon"})
    assert done.returncode == 2 and done.stderr.startswith("STARGRAD_MOST_SECONDS=soon is not a whole number of seconds"), done


@pytest.mark.parametrize("name", [name for name, how in OTHERS.items() if how == "test_emulator"])
def test_emulator(name):
    rules = os.path.join(BUILD, "tests", "gpu", "emulator", "rules")
    if not os.path.exists(rules):
        raise Skip("the emulated GPU is not built without CUDA")
    done = subprocess.run([rules], env={**os.environ, name: "many"}, capture_output=True, text=True, timeout=120)
    assert f"{name}=many is not a whole number" in done.stderr or done.returncode == 0, done.stderr


def test_every_variable_has_a_case():
    with open(os.path.join(SOURCE, "docs", "reference", "environment.md"), encoding="utf-8") as file:
        listed = set(re.findall(r"`(STAR(?:GRAD|PU)_[A-Z_]*[A-Z])[`=]", file.read()))
    known = {*PROGRAM, *OTHERS}
    assert "STARGRAD_MAX_ISA" in listed and not listed - known, f"odd values of these are not tested: {sorted(listed - known)}"
    assert not {name for name in known - listed if name.startswith("STARGRAD_")}, f"of no page: {sorted(known - listed)}"
    tests = {how for how in OTHERS.values() if how.startswith("test_")}
    assert tests <= set(globals()), tests - set(globals())


if __name__ == "__main__":
    main(globals())
