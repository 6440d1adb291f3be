"""tests/gpu/run, its pack, and bench/gpu: the plan, the choice of the Python, the order of measurements, the results of an
interrupted run. The emulated GPU replaces a GPU, and a script replaces PyTorch."""
import os
import re
import shutil
import signal
import subprocess
import sys
import time

from emulation import HOME, PROGRAMS, needs
from run import FOLDER, SOURCE, folder, main

RUN = os.path.join(SOURCE, "tests", "gpu", "run")
BENCH = os.path.join(SOURCE, "bench", "gpu")
PLAN = ["operations", "lenet f32", "lenet tf32", "lenet bf16", "resnet20 f32", "resnet20 tf32", "resnet20 bf16", "gpt f32", "gpt bf16",
        "attention bf16", "resnet50 against PyTorch", "gpt against PyTorch", "resnet20 against PyTorch", "resnet20 bf16: trace"]


def call(*words, env=None, status=0):
    environment = {**os.environ, "STARPU_HOME": HOME, "PYTHON": sys.executable, **(env or {})}
    environment = {name: value for name, value in environment.items() if value is not None}
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, env=environment, timeout=900)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def script(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o755)


def rows(table):
    with open(table) as file:
        return [line for line in file if line.startswith("| ") and not line.startswith(("| ---", "| part", "| network"))]


def test_plan():
    """The plan takes at most 8 minutes, in the order of worth, and needs no GPU to be printed."""
    said = call(RUN, "--plan").splitlines()
    assert [line.startswith(name) for line, name in zip(said[1:], PLAN)] == [True] * len(PLAN), said
    assert float(re.search(r"in all at most (\d+) s", said[-1])[1]) <= 480, said
    for line, after in zip(said[1:-2], said[2:-1]):     # one begins where the other ends
        assert line.split()[-1] == after.split()[-2], (line, after)
    assert "in all at most 300 s" in call(RUN, "--plan", "--minutes", 5)


def test_wrong_command_lines():
    for words, why in ((("--frobnicate",), "unknown option"), (("--out",), "takes a directory"), (("--minutes", "x"), "takes a number"),
                       (("pack",), "takes the name"), (("a", "b"), "one file")):
        assert why in call(RUN, *words, status=2)


def test_python():
    """Without PYTHON and BENCH_VENV: the python3 on PATH that has PyTorch, not /bin/python3."""
    tools, used = folder("tools"), folder("used")
    script(os.path.join(tools, "python3"), f'#!/bin/sh\ncase "$*" in *find_spec*torch) exit 0 ;; esac\necho "$*" >>{used}\n'
           f'exec {sys.executable} "$@"\n')
    path = f"{tools}:{os.environ['PATH']}"
    call(RUN, "--plan", env={"PATH": path, "PYTHON": None, "BENCH_VENV": None})
    with open(used) as file:
        assert "tests/gpu/parts.py --plan" in file.read()
    os.remove(used)
    call(RUN, "--plan", env={"PATH": path, "BENCH_VENV": None})      # PYTHON is asked for
    assert not os.path.exists(used)


def test_torch():
    """Without BENCH_VENV, or with an empty one: the PyTorch of the Python that runs bench/gpu."""
    where, own = folder("torch"), os.path.join(SOURCE, "build", "bench-venv")
    script(os.path.join(where, "torch.py"), "")
    for venv in (None, ""):
        env = {"PYTHONPATH": where, "BENCH_VENV": venv, "PYTHONDONTWRITEBYTECODE": "1"}
        said = call(sys.executable, "-c", f"import sys; sys.path.insert(0, {os.path.dirname(BENCH)!r}); import machine; print(machine.PYTHON)", env=env)
        assert said.strip() == (os.path.join(own, "bin", "python") if os.path.exists(own) else sys.executable), said


def test_no_gpu():
    tools = folder("tools")
    script(os.path.join(tools, "nvidia-smi"), "#!/bin/sh\nexit 9\n")
    assert "no GPU here" in call(RUN, env={"PATH": f"{tools}:{os.environ['PATH']}"}, status=77)


def test_pack():
    """What was packed runs elsewhere, needs no xz, has neither CUDA nor NCCL in it, and puts all files where --out says."""
    needs("stargrad")
    pack, out, tools = folder("pack") + ".tar.gz", folder("out"), folder("tools")
    assert re.search(r"pack.tar.gz: \d+ MB", call(RUN, "pack", "--emulated", pack))
    assert os.path.getsize(pack) < 55e6
    names = call("tar", "-tzf", pack)
    assert "lib/stargrad-pack" in names and "build/tests/gpu/emulator/stargrad" in names, names
    assert not re.search(r"lib(nccl|cudart|cudnn|cublas)", names), names
    script(os.path.join(tools, "xz"), "#!/bin/sh\nexit 1\n")
    env = {"PATH": f"{tools}:{os.environ['PATH']}", "builddir": os.path.join(FOLDER, "nowhere")}
    said = call(RUN, "--emulated", "--out", out, pack, "--part", "lenet f32", "trace", env=env)
    assert sorted(os.listdir(out)) == ["gpu.md", "logs", "trace"], said
    table = rows(os.path.join(out, "gpu.md"))
    assert len(table) == 2 and "FAILED" not in said, said
    assert int(re.search(r"(\d+)% of tasks on CUDA", table[0])[1]) >= 60, table        # all that compute samples, however busy the CPU is
    assert "$ " in open(os.path.join(out, "logs", "01-lenet-f32-loss-of-step-5.log")).read()


def test_interruption():
    """What was done before stays, and nothing goes on."""
    needs("stargrad")
    out = folder("out")
    words = [RUN, "--emulated", "--out", out, "--part", "lenet f32", "resnet20 f32"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
                          env={**os.environ, "STARPU_HOME": HOME, "PYTHON": sys.executable}) as process:
        table, deadline = os.path.join(out, "gpu.md"), time.monotonic() + 300
        while not (os.path.exists(table) and rows(table)) and time.monotonic() < deadline:
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGTERM)
        said = process.communicate(timeout=60)[0]
    assert process.returncode != 0 and len(rows(table)) == 1 and "lenet f32" in rows(table)[0], said


# In place of bench/peer_torch.py: its first answer is an error, its fourth request ends it.
PEER = '''
import json, os, sys
for line in sys.stdin:
    with open({log!r}, "a+") as file:
        file.write(" ".join(sys.argv[1:]) + line)
        file.seek(0)
        number = len(file.readlines())
    if number == 4:
        os._exit(1)
    print(json.dumps({{"error": "ValueError: not now"}} if number == 1 else {{"images_per_second": 10, "version": "2"}}), flush=True)
'''


def venv():
    place, log = folder("venv"), folder("log")
    peer = os.path.join(place, "peer.py")
    script(peer, PEER.format(log=log))
    for name in ("python", "python3"):
        script(os.path.join(place, "bin", name), f'#!/bin/sh\ncase "$*" in *peer_torch.py*) exec {sys.executable} {peer} "$@" ;; '
               f'*"import torch"*) exit 0 ;; esac\nexec {sys.executable} "$@"\n')
    return place


def test_bench():
    """Network by network, PyTorch first, each contestant once more where it failed; the table has all of them."""
    needs("stargrad")
    table = folder("table") + ".md"
    words = (sys.executable, BENCH, "--device", "emulated", "--model", "resnet20", "gpt", "--precision", "bf16", "--rounds", 1,
             "--stargrad", os.path.join(PROGRAMS, "stargrad"), "--mode", "eager", "compiled", "--no-install")
    said = call(*words, env={"BENCH_VENV": venv(), "GPU_TABLE": table})
    order = re.findall(r"s: (\w+), batch \d+, bf16, (\w+): (\S+)", said)
    assert [each[:2] for each in order] == [
        ("resnet20", "eager"), ("resnet20", "eager"), ("resnet20", "Stargrad"), ("resnet20", "compiled"),
        ("gpt", "eager"), ("gpt", "eager"), ("gpt", "Stargrad"), ("gpt", "compiled")], said
    assert order[0][2] == "ValueError:" and order[4][2] == "the" and all(each[2].isdigit() for each in order[1:4] + order[5:]), order
    kept = rows(table)
    assert len(kept) == 2 and all("eager" in row or "compiled" in row for row in kept), kept
    with open(table) as file:
        assert "## bench/gpu: resnet20, gpt\n" in file.read()


def test_bench_alone():
    """Where there is no PyTorch, Stargrad is measured alone; GPT's text is longer than the run, so no evaluation comes between."""
    needs("stargrad")
    table = folder("alone") + ".md"
    said = call(sys.executable, BENCH, "--device", "emulated", "--model", "gpt", "--precision", "bf16", "--rounds", 1, "--no-install",
                "--stargrad", os.path.join(PROGRAMS, "stargrad"), env={"BENCH_VENV": folder("nowhere"), "GPU_TABLE": table})
    assert len(rows(table)) == 1 and re.search(r"\| bf16 \| \d", rows(table)[0]), said


def test_ranks_from_a_pack():
    """Several ranks from a pack, where its Open MPI has no components: one line says so, in place of a death in MPI_Init."""
    libraries, program = folder("lib"), os.environ["STARGRAD"]
    os.makedirs(libraries)
    mpi = re.search(r"(libmpi\.so\S*) => (\S+)", call("ldd", program))
    shutil.copy(mpi[2], os.path.join(libraries, mpi[1]))
    rank = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0", "OPAL_PREFIX": None, "LD_LIBRARY_PATH": libraries}
    nowhere = os.path.join(FOLDER, "nowhere")
    for components, why in ((nowhere, f"looks for components in {nowhere}, which does not exist"),
                            ("", "looks for components in its installation")):
        with open(os.path.join(libraries, "stargrad-pack"), "w") as file:
            file.write(components + "\n")
        said = call(program, "train", "--model", "lenet", "--data", "synthetic:28x28x1,10,8", "--batch", 8, "--gpus", 0, env=rank, status=1)
        assert re.search(f"^stargrad: .*several ranks cannot start: .*{why}", said, re.M), said


if __name__ == "__main__":
    main(globals())
