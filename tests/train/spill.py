"""A run with --memory stays within it, and has the same weights, bit by bit, as one without: data move to --spill."""
import contextlib
import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys

from faults import faulty, read_calls
from run import (FOLDER, RANKS, REFERENCE, Skip, by_rank, command, content, events, folder, long, losses, main, mpirun, pytest, ranks, resuming, stargrad,
                 wait_for_steps)

if not pytest:
    main(())

TEXT = os.path.join(REFERENCE, "text.txt")
BASE = ("--gpus", 0, "--cpus", 2, "--steps", 4, "--deterministic", "--checkpoint-every", 0, "--evaluate-last")
RESNET = ("--model", "resnet20", "--data", "synthetic:32x32x3,10,512", "--batch", 128, *BASE)
GPT = ("--model", "gpt:layers=3,heads=4,width=128,context=128,vocabulary=2048", "--data", f"text:{TEXT},128", "--batch", 32,
       "--micro-batch", 4, "--optimizer", "adamw", *BASE)
WIDE = ("--model", "gpt:layers=2,heads=4,width=512,context=64,vocabulary=8192", "--data", f"text:{TEXT},64", "--batch", 8,
        "--micro-batch", 2, "--optimizer", "adamw", *BASE)
LLAMA = ("--model", "llama:layers=2,heads=4,kv_heads=2,width=128,hidden=256,context=128,vocabulary=2048", "--data", f"text:{TEXT},128",
         "--batch", 32, "--micro-batch", 4, "--optimizer", "adamw", *BASE)


def has_cuda():
    """The program is linked with CUDA, whose libraries use about 100 MB of memory for a moment when a process ends."""
    return "libcudart" in subprocess.run(["ldd", command()[0]], capture_output=True, text=True).stdout


# Starts a command and prints its largest resident memory in KiB. The kernel counts the memory of a process from which another one is started
# to that of the latter. Thus a test, which may use more memory than the program, must not start the program itself.
MEASURE = """import resource, subprocess, sys
status = subprocess.call(sys.argv[1:])
print("peak", resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(status)"""


def peak(*words):
    """Runs the program; returns its output and its largest resident memory in bytes."""
    done = subprocess.run([sys.executable, "-c", MEASURE, *command(*words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=900)
    assert done.returncode == 0, done.stdout
    said, _, used = done.stdout.rpartition("peak ")
    return said, int(used) * 1024


def disk():
    path = folder("spill")
    os.makedirs(path, exist_ok=True)
    return path


def test_peak():
    """The measured memory does not include that of the test."""
    large = b"1" * (400 << 20)
    assert peak("--version")[1] < len(large)


def least(*words):
    """The memory in MiB for which the program asks, if it is given far too little."""
    said = stargrad("train", *words, "--memory", "1M", "--spill", disk(), "--print", status=1)
    assert said.count("\n") == 1, said
    return int(re.search(r"give --memory (\d+)M", said)[1])


def moved(said):
    """Megabytes that a step writes and reads; zeros, if the memory suffices once buffers share it more tightly."""
    if ": all buffers stay in memory" in said:
        return [0, 0]
    return [float(x) for x in re.search(r"^limit .* a step writes ([\d.]+) MB to \S+ and reads ([\d.]+) ", said, re.M).groups()]


def equal(*words):
    """The smallest memory for which the program asks is enough, and gives the same weights. Returns the megabytes that are moved."""
    free, limited = folder("free"), folder("limited")
    _, whole = peak("train", *words, "--out", free)
    limit = least(*words, "--out", folder("print"))
    said, used = peak("train", *words, "--out", limited, "--memory", f"{limit}M", "--spill", disk())
    assert has_cuda() or used <= limit << 20 and used < 0.8 * whole, (words, used, limit << 20, whole)
    assert losses(limited) == losses(free), words
    assert content(limited) == content(free), words
    return moved(said)


def test_batch_norm():
    """Micro-batches of a batch-norm group are one sequence."""
    for more in ((), ("--precision", "bf16"), ("--micro-batch", 8, "--cpus", 1)):
        written, read = equal(*RESNET, *more)
        assert read >= written > 20 / (3 if more else 1), (more, written, read)


def test_language():
    """As many micro-batches as there are workers are computed layer by layer."""
    assert equal(*GPT)[0] > 10
    equal(*LLAMA)
    equal(*GPT, "--recompute")


@long
def test_other_options():
    for more in (("--ema", 0.9), ("--optimizer", "kfac", "--kfac-factor-every", 1, "--kfac-eigen-every", 2), ("--clip-norm", 1)):
        equal(*RESNET, *more)


DROPS = ("--model", "gpt:layers=3,heads=4,width=256,context=128,vocabulary=1024,dropout=0.1", "--data", f"text:{TEXT},128", "--batch", 32,
         "--micro-batch", 8, "--optimizer", "adamw", *BASE)
SLOW = {"STARGRAD_SPILL_LIMIT": "60"}


def again(said):
    """The number of layers that a run recomputes, and the reason."""
    found = re.search(r"^recompute  the activations of (\d+) of \d+ layers in the backward pass(.*)$", said, re.M)
    return (int(found[1]), found[2]) if found else (0, "")


@pytest.mark.parametrize("network", (RESNET, pytest.param((*RESNET, "--precision", "bf16"), marks=long), DROPS), ids=("resnet", "bf16", "gpt"))
def test_recomputed(network):
    """With a slow disk, layers are recomputed instead of moved. Without a folder, they are recomputed so that a step fits. Both have
    the same bits."""
    free, limited, fitting = folder("free"), folder("limited"), folder("fitting")
    stargrad("train", *network, "--out", free)
    limit = least(*network, "--out", folder("print")) + 10
    slow = ("train", *network, "--memory", f"{limit}M", "--spill", disk())
    said = stargrad(*slow, "--out", limited, env=SLOW)
    moved_less, reason = again(said)
    assert moved_less and re.search(r": predicted [\d.]+ s with this, [\d.]+ s if they are moved$", reason), said
    assert again(stargrad(*slow, "--recompute", "--print", env=SLOW))[1] == ""
    least_alone = stargrad("train", *network, "--memory", "1M", "--print", status=1)
    limit = int(re.search(r"give --memory (\d+)M, --spill DIR, or a smaller", least_alone)[1])
    said = stargrad("train", *network, "--out", fitting, "--memory", f"{limit}M")
    layers, reason = again(said)
    assert layers and reason == ": --memory is too little without this", said
    for out in (limited, fitting):
        assert losses(out) == losses(free) and content(out) == content(free), out
    assert f"{moved_less} layers are recomputed instead of moved" in stargrad("report", limited)


def test_enough():
    """Nothing is moved or recomputed if all of it fits. Without a folder, too little memory is an error."""
    said = stargrad("train", *RESNET, "--memory", "4G", "--spill", disk(), "--print")
    assert "all buffers stay in memory" in said and "store" not in said and not again(said)[0], said
    said = stargrad("train", *RESNET, "--memory", "90M", "--print", status=1)
    assert said.count("\n") == 1 and "--memory 90M is too little" in said and "--spill DIR" in said, said


def test_waits():
    """A step of a slow disk waits for moves. metrics.jsonl and the report have the moved bytes and the time of waits."""
    limit = least(*RESNET, "--out", folder("print"))
    waits = []
    for words, env in (((), {}), ((), {"STARGRAD_SPILL_LIMIT": "50"})):
        out = folder("waits")
        said = stargrad("train", *RESNET, *words, "--out", out, "--memory", f"{limit}M", "--spill", disk(), env=env)
        steps, told = events(out), moved(said)
        for key, planned in zip(("written_mbyte", "read_mbyte"), told):
            assert abs(sum(step[key] for step in steps) - len(steps) * planned) < 0.01 * len(steps) * planned, (key, steps)
        seconds = [128 / step["samples_per_second"] for step in steps]
        assert all(0 <= step["waiting_seconds"] <= 1.01 * s + 0.01 for step, s in zip(steps, seconds)), steps
        waits.append(sum(step["waiting_seconds"] for step in steps) / sum(seconds))
    # the last run, with the slow disk
    assert waits[1] > 0.2 and waits[1] > waits[0], waits
    text, found = stargrad("report", out), json.loads(stargrad("report", out, "--json"))["moves"]
    line = re.search(r"a step writes ([\d.]+) MB to --spill and reads ([\d.]+), at 0\.0\d GB/s; .* \((\d+\.\d) %\) for moves", text)
    assert [float(line[1]), float(line[2])] == told and abs(float(line[3]) - 100 * waits[1]) < 0.1, (text, waits)
    assert "the disk would have to move" in found["finding"] and found["finding"] in text, found


def file_size(process, spill):
    """The size of the process's file in the folder."""
    files = f"/proc/{process.pid}/fd"
    return sum(os.stat(os.path.join(files, file)).st_size for file in os.listdir(files) if os.readlink(os.path.join(files, file)).startswith(spill))


def test_planned_again():
    """A step that is planned again, because parameters are frozen, uses the space of the one before: the file hardly grows."""
    words, spill, out, sizes = (*RESNET, "--steps", 1000, "--freeze-after", "conv1*=1,layer1.*=2"), disk(), folder("frozen"), []
    process = start(command("train", *words, "--memory", f"{least(*words)}M", "--spill", spill, "--out", out))
    for steps in (2, 6, 10):        # an epoch has 4
        wait_for_steps(out, steps, process)
        sizes.append(file_size(process, spill))
    process.kill()
    process.wait()
    assert (has_cuda() or sizes[0] > 10e6) and max(sizes) < 1.1 * sizes[0], sizes


def test_refused():
    for words, status, reason in ((("--spill", "/tmp"), 2, "requires --memory SIZE"), (("--memory", "1G", "--no-fuse"), 2, "omit --no-fuse"),
                                  (("--memory", "150M", "--spill", "/nonexistent"), 1, "/nonexistent: cannot be opened")):
        said = stargrad("train", *RESNET, *words, "--print", status=status)
        assert said.count("\n") == 1 and reason in said, said


@pytest.mark.parametrize("network,moved", ((GPT, "MB of optimizer states"), (WIDE, "of weights leave memory")), ids=("states", "weights"))
def test_homes(network, moved):
    """Optimizer states are in the file, and if necessary weights. Evaluations, averages and checkpoints use them within the limit."""
    words = (*network, "--evaluate-every", 2, "--best", "--ema", 0.9, "--checkpoint-every", 2)
    free, limited = folder("free"), folder("limited")
    stargrad("train", *words, "--out", free)
    limit = least(*words)
    said, used = peak("train", *words, "--out", limited, "--memory", f"{limit}M", "--spill", disk())
    assert has_cuda() or used <= limit << 20, (used, limit << 20)
    assert has_cuda() or moved in said, said     # CUDA's libraries are large, and so is the margin of the limit
    assert losses(limited) == losses(free)
    for name in ("model.safetensors", "best.safetensors"):
        assert content(limited, name) == content(free, name), name


def test_some_homes():
    """With more memory, fewer states and weights are in the file, and the weights of the result are the same."""
    free, limit, before = folder("free"), least(*WIDE), [float("inf")] * 2
    stargrad("train", *WIDE, "--out", free)
    for more in (5, 40, 80):
        limited = folder(f"limited{more}")
        said = stargrad("train", *WIDE, "--out", limited, "--memory", f"{limit + more}M", "--spill", disk())
        assert all(now < then for now, then in zip(moved(said), before)), (more, said, before)
        assert content(limited) == content(free), more
        before = moved(said)
    assert before[0] > 0


def test_return_to_memory():
    """Weights that are in the file from the start, because they are more than 2/5 of the limit, return to memory if all fits."""
    words, free, limited = (*WIDE, "--batch", 2), folder("free"), folder("limited")
    stargrad("train", *words, "--out", free)
    said = stargrad("train", *words, "--out", limited, "--memory", "440M" if has_cuda() else "280M", "--spill", disk())
    assert has_cuda() or ": all buffers stay in memory" in said, said
    assert losses(limited) == losses(free) and content(limited) == content(free)


@pytest.mark.parametrize("network", (pytest.param(RESNET, marks=long), GPT), ids=("resnet", "gpt"))
def test_killed(network):
    """A killed run leaves nothing in the folder, and continues to the same weights, with another limit."""
    words = ("train", *network, "--steps", 12, "--checkpoint-every", "3s", "--spill")
    free, killed, spill, dice = folder("free"), folder("killed"), disk(), random.Random(3)
    stargrad("train", *network, "--steps", 12, "--checkpoint-every", "3s", "--out", free)
    limit = least(*network, "--steps", 12, "--checkpoint-every", "3s")
    for more in (10, 30):
        process = subprocess.Popen(command(*words, spill, "--memory", f"{limit + more}M", "--out", killed, *resuming(killed)),
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for_steps(killed, dice.randrange(1, 8), process)
        process.kill()
        process.wait()
        assert os.listdir(spill) == []
    stargrad(*words, spill, "--memory", f"{limit + 20}M", "--out", killed, *resuming(killed))
    assert losses(killed) == losses(free) and content(killed) == content(free)


def equal_on_ranks(*words):
    """Each rank has its own limit and its own file. Returns the megabytes that rank 0 moves."""
    free, limited, spill = folder("free"), folder("limited"), disk()
    ranks(2, "train", *words, "--cpus", 1, "--out", free)
    said = ranks(2, "train", *words, "--cpus", 1, "--out", folder("print"), "--memory", "1M", "--spill", spill, "--print", status=None)
    limit = max(int(needed) for needed in re.findall(r"give --memory (\d+)M", said))
    said = ranks(2, "train", *words, "--cpus", 1, "--out", limited, "--memory", f"{limit + 5}M", "--spill", spill)
    assert losses(limited) == losses(free) and content(limited) == content(free), words
    return moved(said)


def test_ranks():
    assert equal_on_ranks(*RESNET)[0] > 1
    equal_on_ranks(*GPT, "--shard", "parameters")


@long
@pytest.mark.parametrize("more", (("--mesh", "tensor=1d:2"), ("--mesh", "pipe=2"), ("--shard", "optimizer")), ids=lambda more: more[1])
def test_more_ranks(more):
    equal_on_ranks(*GPT, *more)


MEASURED = 32       # reads, and writes, by which a run measures the disk
# Large enough to move data also in a program with CUDA, whose libraries widen the limit.
SOME = (*GPT, "--model", "gpt:layers=6,heads=4,width=128,context=64,vocabulary=2048", "--data", f"text:{TEXT},64", "--batch", 64, "--micro-batch", 32,
        "--cpus", 1)
KFAC = (*RESNET, "--cpus", 1, "--optimizer", "kfac", "--kfac-factor-every", 1, "--kfac-eigen-every", 2)
MESHES = ((2, (*SOME, "--mesh", "tensor=1d:2")), (2, (*SOME, "--mesh", "pipe=2")))
MORE_MESHES = ((2, (*SOME, "--shard", "parameters")), (2, (*SOME, "--shard", "optimizer")), (4, (*SOME, "--mesh", "tensor=2d:2")),
               (4, (*SOME, "--mesh", "data=2,pipe=2")), (2, KFAC))


def on_ranks(commands, status=0):
    return mpirun(len(commands), by_rank(*commands), status)


def limited_rank(count, words, out, rank):
    """The commands of COUNT ranks, of which RANK alone has the least memory."""
    run = [command("train", *words, "--out", out) for _ in range(count)]
    asks = [[*r, "--print"] for r in run]
    asks[rank] += ["--memory", "1M", "--spill", disk()]
    needed = int(re.search(r"give --memory (\d+)M", on_ranks(asks, 1))[1])
    folder(out)
    needed += needed // 4 * ("kfac" in words)      # K-FAC's process is larger than with --print
    run[rank] += ["--memory", f"{needed}M", "--spill", disk()]
    return run


def same_on_all(count, words):
    """One rank has a limit, and moves data. All ranks have the same order of messages."""
    free, limited = folder("free"), folder("limited")
    on_ranks([command("train", *words, "--out", free)] * count)
    for rank in (0, count - 1):
        run = limited_rank(count, words, limited, rank)
        run[rank] = faulty(run[rank])
        on_ranks(run)
        calls = read_calls()
        assert calls["pwrite"] > MEASURED and calls["pread"] > MEASURED, (words, rank, calls)
        assert losses(limited) == losses(free) and content(limited) == content(free), (words, rank)


@pytest.mark.parametrize("mesh", MESHES, ids=("tensor-1d", "pipe"))
def test_a_rank_of_several(mesh):
    same_on_all(*mesh)


@long
@pytest.mark.parametrize("mesh", MORE_MESHES, ids=("shard", "optimizer", "tensor-2d", "data-pipe", "kfac"))
def test_a_rank_of_more(mesh):
    same_on_all(*mesh)


# ---- failures ----

LONG = ("train", "--model", "gpt:layers=1,heads=4,width=256,context=64,vocabulary=8192", *WIDE[2:], "--steps", 6, "--checkpoint-every", "1s")
SLOW = {"STARGRAD_SPILL_LIMIT": "200"}      # MB/s: a step mostly moves data


def start(words, env=None):
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, **RANKS, **(env or {})})


def finish(process, status=0):
    """Waits for the end of the process. Returns its errors, without warnings, and without messages of mpirun."""
    said = process.communicate(timeout=600)[1]
    assert bool(process.returncode) == bool(status), (process.returncode, said)
    return "".join(line + "\n" for line in said.splitlines() if re.match("stargrad: (?!warning)", line))


@pytest.fixture(name="whole", scope="module")
def fixture_whole():
    """The folder of a run without a limit, and the words of one with the least memory."""
    free = folder("whole")
    stargrad(*LONG, "--out", free)
    return free, command(*LONG, "--memory", f"{least(*LONG[1:])}M", "--spill")


def resume(whole, out):
    """The run in OUT continues, and equals the undisturbed run. Nothing is left in the folder of moves."""
    free, words = whole
    spill = os.path.join(FOLDER, "spill")
    os.makedirs(spill, exist_ok=True)
    assert os.listdir(spill) == []
    finish(start([*words, spill, "--out", out, *resuming(out)]))
    assert losses(out) == losses(free) and content(out) == content(free)
    assert os.listdir(spill) == [] and not [name for name in os.listdir(out) if ".part" in name], os.listdir(out)


@pytest.mark.parametrize("call,number,io", (("pread", errno.EIO, "io_uring"), ("pwrite", errno.ENOSPC, "threads"),
                                            pytest.param("pread", errno.EIO, "threads", marks=long),
                                            pytest.param("pwrite", errno.ENOSPC, "io_uring", marks=long)))
def test_errors(whole, call, number, io):
    """A call fails while a step moves data. The run ends with one message, and continues from its last checkpoint."""
    spill, out = disk(), folder("failed")
    words = ["env", f"STARGRAD_SPILL_IO={io}", *whole[1], spill, "--out", out]
    finish(start(faulty(words)))
    calls = read_calls()[call]
    assert calls > 2 * MEASURED
    folder("failed")
    said = finish(start(faulty(words, (call, MEASURED + (calls - MEASURED) * 3 // 4, number))), 1)
    way_out = f": {os.strerror(number)}; check the disk, or give another folder; checkpoints are not affected\n"
    assert said.count("\n") == 1 and f"--spill {spill}: " in said and said.endswith(way_out), said
    assert 0 < len(losses(out)) < 6
    resume(whole, out)


def test_a_system_without_io_uring(whole):
    """Threads move the data if the system refuses io_uring. Containers do so by default."""
    for fault, engines in ((None, ("io_uring", "threads")), (("io_uring", 1, errno.EPERM), ("threads",))):
        words = [*whole[1], disk(), "--out", folder("refused"), "--steps", "2"]
        done = subprocess.run(faulty(words, fault), capture_output=True, text=True, timeout=600, check=True)
        engine = re.search(r" GB/s, (\w+)\); predicted ", done.stdout)[1]
        assert engine in engines and "io_uring" not in done.stderr, (engine, done.stderr)
        assert engine == "threads" or read_calls()["io_uring"] == 3         # the file, and two passes of a measurement


def test_errors_of_a_rank():
    """One rank cannot read its file: all end, with one message."""
    spill, out = disk(), folder("failed")
    run = limited_rank(2, (*MESHES[0][1], "--steps", 50), out, 1)
    run[1] = faulty(run[1], ("pread", MEASURED + 20, errno.EIO))
    said = finish(start(["mpirun", "-n", "2", *by_rank(*run)]), 1)
    assert said.count("\n") == 1 and f"--spill {spill}: " in said and "cannot be read: Input/output error" in said, said
    assert os.listdir(spill) == []


def test_a_folder_that_is_lost(whole):
    """Once a run has begun, it does not need the folder any more, and no further space: the disk may be full."""
    spill, out = disk(), folder("lost")
    process = start([*whole[1], spill, "--out", out], SLOW)
    wait_for_steps(out, 2, process)
    shutil.rmtree(spill)
    assert finish(process) == ""
    resume(whole, out)


def test_a_full_disk(whole):
    """A file system that is full after the start of a run."""
    spill, out = disk(), folder("full")
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1G", "none", spill], check=False).returncode:
        raise Skip("no file system can be mounted")
    try:
        process = start([*whole[1], spill, "--out", out], SLOW)
        wait_for_steps(out, 2, process)
        with open(os.path.join(spill, "other"), "wb") as file, contextlib.suppress(OSError):
            while file.write(bytes(1 << 20)):
                pass
        subprocess.run(["umount", "--lazy", spill], check=True)
        assert finish(process) == ""
    finally:
        subprocess.run(["umount", "--lazy", spill], check=False, stderr=subprocess.DEVNULL)
    resume(whole, out)


def test_two_runs(whole):
    """Two runs use the same folder at once."""
    spill, outs = disk(), [folder("one"), folder("other")]
    for process in [start([*whole[1], spill, "--out", out]) for out in outs]:
        finish(process)
    for out in outs:
        resume(whole, out)


def test_signals(whole):
    """A run on a slow disk is stopped for a while, is requested to end, and continues."""
    for number in (signal.SIGTERM, signal.SIGUSR1):
        spill, out = disk(), folder("signalled")
        process = start([*whole[1], spill, "--out", out], SLOW)
        wait_for_steps(out, 1, process)
        process.send_signal(signal.SIGSTOP)
        process.send_signal(signal.SIGCONT)
        wait_for_steps(out, 2, process)
        process.send_signal(number)
        said = finish(process, 1)
        assert said.count("\n") == 1 and "checkpoint written; continue with" in said, said
        resume(whole, out)


if __name__ == "__main__":
    main(globals())
