"""A run with --gpu-memory and --spill ram trains on a device that has no more memory than the limit, and has the same weights, bit by
bit, as one on a device with enough. The emulated device fails every allocation that exceeds its memory."""
import json
import os
import re
import subprocess

import run
from emulation import CUDA, needs
from run import REFERENCE, content, events, folder, long, losses, main, ranks, stargrad

TEXT = os.path.join(REFERENCE, "text.txt")
BASE = ("--steps", 3, "--deterministic", "--checkpoint-every", 0, "--evaluate-last", *CUDA)
RESNET = ("--model", "resnet20", "--data", "synthetic:32x32x3,10,96", "--batch", 32, *BASE)
GPT = ("--model", "gpt:layers=3,heads=2,width=64,context=64,vocabulary=512", "--data", f"text:{TEXT},64", "--batch", 16,
       "--micro-batch", 8, "--optimizer", "adamw", *BASE)
WIDE = ("--model", "gpt:layers=2,heads=4,width=256,context=16,vocabulary=2048", "--data", f"text:{TEXT},16", "--batch", 4,
        "--optimizer", "adamw", *BASE)


def train(*words, memory=2048):
    """Trains on a device with MEMORY MiB. Returns the output, and the most MiB that were in use on the device."""
    needs("stargrad")
    env = {**os.environ, "STARGRAD_EMULATED_COUNT": "1", "STARGRAD_EMULATED_MEMORY": str(memory)}
    done = subprocess.run(run.command("train", *words), capture_output=True, text=True, env=env, timeout=600)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stdout + done.stderr
    return done.stdout, int(re.search(r"(\d+) bytes of device 0 at most", done.stderr)[1]) / (1 << 20)


def least(*words):
    """The MiB for which the program asks, if it is given far too little."""
    said = stargrad("train", *words, "--gpu-memory", "1M", "--spill", "ram", "--print", "--out", folder("print"), status=1)
    assert said.count("\n") == 1, said
    return int(re.search(r"give --gpu-memory (\d+)M", said)[1])


def equal(*words):
    """The smallest memory for which the program asks is enough, and gives the same weights. Returns the line about the limit."""
    free, limited = folder("free"), folder("limited")
    _, whole = train(*words, "--out", free)
    limit = least(*words)
    said, used = train(*words, "--out", limited, "--gpu-memory", f"{limit}M", "--spill", "ram", memory=limit)
    line = re.search("^limit .*", said, re.M)[0]
    print(f"{limit} of {whole:.0f} MiB: {line}")
    assert used <= limit < 0.9 * whole, (words, used, limit, whole)
    assert losses(limited) == losses(free) and content(limited) == content(free), (words, line)
    return line


def test_activations():
    for more in ((), ("--precision", "bf16")):
        assert "activations and gradients leave the GPU" in equal(*RESNET, *more)


if __name__ == "__main__":
    main(globals())
