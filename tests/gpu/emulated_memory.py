"""A run with --gpu-memory and --spill ram trains on a device that has no more memory than the limit, and has the same weights, bit by
bit, as one on a device with enough. The emulated device fails every allocation that exceeds its memory."""
import os
import re
import subprocess

from emulation import CUDA, needs
from run import REFERENCE, by_rank, command, content, events, folder, losses, main, mpirun, ranks, stargrad

TEXT = os.path.join(REFERENCE, "text.txt")
BASE = ("--steps", 3, "--deterministic", "--checkpoint-every", 0, "--evaluate-last")
RESNET = ("--model", "resnet20", "--data", "synthetic:32x32x3,10,96", "--batch", 32, *BASE)
GPT = ("--model", "gpt:layers=3,heads=2,width=64,context=64,vocabulary=512", "--data", f"text:{TEXT},64", "--batch", 16,
       "--micro-batch", 8, "--optimizer", "adamw", *BASE)
WIDE = ("--model", "gpt:layers=2,heads=4,width=256,context=16,vocabulary=2048", "--data", f"text:{TEXT},16", "--batch", 4,
        "--optimizer", "adamw", *BASE)
MOVES = "--spill", "ram"


def train(*words, memory=2048):
    """Trains on a device with MEMORY MiB. Returns the output, the launches of graphs, and the most MiB in use on the device."""
    needs("stargrad")
    env = {**os.environ, "STARGRAD_EMULATED_COUNT": "1", "STARGRAD_EMULATED_MEMORY": str(memory)}
    done = subprocess.run(command("train", *words, *CUDA), capture_output=True, text=True, env=env, timeout=600)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stdout + done.stderr
    launches, most = re.search(r" in (\d+) launches of graphs, .* (\d+) bytes of device 0 at most", done.stderr).groups()
    return done.stdout, int(launches), int(most) / (1 << 20)


def printed(*words, status=1):
    needs("stargrad")
    said = stargrad("train", *words, "--print", "--out", folder("print"), status=status)
    assert not status or said.count("\n") == 1, said
    return said


def least(*words):
    """The MiB for which the program asks, if it is given far too little."""
    return int(re.search(r"give --gpu-memory (\d+)M", printed(*words, *CUDA, "--gpu-memory", "1M", *MOVES))[1])


def least_with_moves(*words):
    """The fewest MiB, to a few percent, with which data move and no layer is recomputed."""
    limit = least(*words)
    while "leave the GPU" not in printed(*words, *CUDA, "--gpu-memory", f"{limit}M", *MOVES, status=0):
        limit += 1 + limit // 50
    return limit


def equal(*words):
    """The smallest memory with which data move is enough, and gives the same weights. Returns the line about the limit."""
    free, limited = folder("free"), folder("limited")
    _, launches, whole = train(*words, "--out", free)
    limit = least_with_moves(*words)
    said, replayed, used = train(*words, "--out", limited, "--gpu-memory", f"{limit}M", *MOVES, memory=limit)
    line = re.search("^limit .*", said, re.M)[0]
    assert used <= limit < 0.9 * whole and bool(replayed) == bool(launches), (words, used, limit, whole, launches, replayed)
    assert losses(limited) == losses(free) and content(limited) == content(free), (words, line)
    written, read = map(float, re.search(r"a step writes ([\d.]+) MB to main memory and reads ([\d.]+) ", line).groups())
    for key, planned in (("written_mbyte", written), ("read_mbyte", read)):
        assert abs(sum(step[key] for step in events(limited)) - 3 * planned) < 0.01 * 3 * planned, (key, line)
    return line


def test_activations():
    assert "activations and gradients leave the GPU" in equal(*RESNET)
    for more in ((), ("--precision", "bf16"), ("--no-cuda-graphs",)):
        equal(*GPT, *more)


def test_states():
    """Optimizer states live in main memory; the GPU updates copies of them."""
    assert "MB of optimizer states leave the GPU" in equal(*WIDE)


def test_recomputed():
    """Without moves, as few layers are recomputed as the limit requires."""
    free, limited = folder("free"), folder("limited")
    _, _, whole = train(*RESNET, "--out", free)
    limit = int(re.search(r"give --gpu-memory (\d+)M, --spill ram", printed(*RESNET, *CUDA, "--gpu-memory", "1M"))[1])
    said, _, used = train(*RESNET, "--out", limited, "--gpu-memory", f"{limit}M", memory=limit)
    assert re.search(r"^recompute .*: --gpu-memory is too little without this$", said, re.M) and used <= limit < whole, (said, used, limit, whole)
    assert losses(limited) == losses(free) and content(limited) == content(free)


def test_two_ranks():
    """Each rank limits its own GPU. Gradients are summed over the ranks, in main memory."""
    words = ("train", *GPT, *CUDA[2:])
    free, limited = folder("free"), folder("limited")
    limit = str(least_with_moves(*GPT) + 4)
    ranks(2, *words, "--out", free)
    said = ranks(2, *words, "--out", limited, "--gpu-memory", f"{limit}M", *MOVES, env={"STARGRAD_EMULATED_MEMORY": limit})
    assert "leave the GPU" in said and content(limited) == content(free), said


def test_a_rank_of_two():
    """One rank limits its GPU. Both take part in the decision which layers are recomputed, because they share parameters."""
    words = ("train", *GPT, *CUDA[2:], "--shard", "parameters")
    free, limited, limit = folder("free"), folder("limited"), least(*GPT) + 60
    ranks(2, *words, "--out", free)
    run = command(*words, "--out", limited)
    mpirun(2, by_rank([*run, "--gpu-memory", f"{limit}M", *MOVES], run))
    assert content(limited) == content(free)


def test_refused():
    small = ("--model", "convnet", "--data", "synthetic:8x8x3,10,64", "--batch", 16, "--steps", 1)
    alone = ("--cpus", 1, "--gpus", 1, "--deterministic")
    for words, status, reason in ((("--gpus", 0, "--gpu-memory", "1G"), 2, "this rank uses none; use --memory, or --gpus 1"),
                                  ((*CUDA, "--gpu-memory", "1G"), 2, "add --cpus-share none"),
                                  ((*alone, "--gpu-memory", "3G"), 2, "the GPU has 2048M"),
                                  ((*alone, "--gpu-memory", "1G", "--spill", "/tmp"), 2, "give --spill ram"),
                                  ((*alone, "--gpu-memory", "1G", "--memory", "1G"), 2, "--memory limits a rank without GPUs"),
                                  ((*alone, "--gpu-memory", "1G", "--no-fuse"), 2, "omit --no-fuse"),
                                  ((*alone, *MOVES), 2, "requires --gpu-memory SIZE"),
                                  ((*alone, "--gpu-memory", "1M"), 1, "--spill ram, or a smaller --micro-batch")):
        said = printed(*small, *words, status=status)
        assert reason in said, said


if __name__ == "__main__":
    main(globals())
