"""Training on one emulated GPU and on two, against training on CPUs."""
import gzip
import json
import os
import re
import struct
import subprocess
import sys

from emulation import CUDA, SHARED, SMALL, TWO, agree, needs, reference, train
from run import content, folder, main, stargrad


def test_losses():
    for precision, within in (("f32", 1e-4), ("tf32", 3e-2), ("bf16", 1e-2)):
        agree((*reference("lenet", "idx", 0.01), "--precision", precision), within)
        agree((*reference("resnet20", "cifar10", 0.002), "--precision", precision), within)


def test_two_devices():
    agree((*reference("resnet20", "cifar10", 0.002), "--bn-group", "rank"), 1e-4, TWO)


def test_volumes():
    """Convolutions of volumes, which the emulated cuDNN knows none of, transposed ones, group norm, crops."""
    data = folder("volume")
    os.makedirs(data)
    voxels = [(37 * i) % 251 for i in range(5 * 40 * 40)]
    for name, values in (("volume", voxels), ("labels", [255 * (v > 120) for v in voxels])):
        with gzip.open(os.path.join(data, f"train-{name}-idx3-ubyte.gz"), "wb") as file:
            file.write(struct.pack(">IIII", 0x803, 5, 40, 40) + bytes(values))
    for model, patch in (("unet2d:groups=4", "1x18x17"), ("unet3d", "2x17x16")):
        agree(("--model", model, "--data", f"volume:{data},{patch}", "--batch", 4, "--micro-batch", 2, "--steps", 3, "--lr", 0.01), 1e-3)


def test_every_optimizer():
    for name, lr in (("sgd", 0.05), ("adam", 1e-3), ("adamw", 1e-3), ("lamb", 1e-2), ("lars", 0.1), ("schedulefree", 2e-3)):
        agree((*SMALL, "--bn-group", "rank", "--optimizer", name, "--lr", lr, "--clip-norm", 0.5, "--steps", 6), 1e-4, TWO)


def test_second_order():
    """Devices precondition and update; factors and what is made of them come from the CPU."""
    for more in ((), ("--kfac-inverse",)):
        agree((*SMALL, "--bn-group", "rank", "--optimizer", "kfac", "--lr", 0.02, "--kfac-damping", 0.1, "--kfac-factor-every", 2, "--kfac-eigen-every", 4,
               "--kfac-lag", 2, "--steps", 6, *more), 1e-4, TWO)


def test_resume():
    arguments = (*SMALL, "--deterministic", "--checkpoint-every", "3s")
    whole = content(train("whole", *arguments, "--steps", 6, *CUDA))
    out = train("part", *arguments, "--steps", 3, *CUDA)
    stargrad("train", *arguments, "--steps", 6, *CUDA, "--resume", "--out", out)
    assert content(out) == whole


def test_fault():
    """A kernel that goes wrong ends the run with a line that names its task, though StarPU waits for it for ever."""
    needs("stargrad")
    for where in (CUDA, TWO):
        said = stargrad("train", *SMALL, "--steps", 6, "--deterministic", *where, "--out", folder("fault"), status=-6,
                        env={"STARGRAD_EMULATED_GPUS": "2", "STARGRAD_EMULATED_FAULT": "300"})
        assert re.search(r"stargrad: CUDA: an illegal memory access was encountered, in .*, task [a-z0-9.]+ ", said), said


def test_trace():
    out = train("trace", *SMALL, *SHARED, "--cpus-share", "none", "--steps", 4, "--trace", "3-4", *CUDA)
    report = json.loads(stargrad("report", "--json", out))["trace"]
    assert report["tasks"] > 0 and report["copies"]["all"]["to_devices_mb"] > 0, report


def test_parts():
    """What tests/gpu/run does, a little of it: a part that cannot run is a row like the others, and ends none of them."""
    needs("stargrad")
    table = os.path.join(folder("table"), "gpu.md")
    os.makedirs(os.path.dirname(table))
    words = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "parts.py"), "--emulated", "--part", "lenet f32", "trace"]
    for missing in (False, True):
        env = {**os.environ, "GPU_TABLE": table, "GPU_OUT": os.path.dirname(table), "STARGRAD_EMULATED_GPUS": "0" if missing else "1"}
        done = subprocess.run(words, capture_output=True, text=True, env=env, timeout=600)
        with open(table) as file:
            rows = [line for line in file if line.startswith("| ")][2:]
        assert done.returncode == missing and len(rows) == 2, done.stdout + done.stderr
        assert all(("FAILED" in row) == missing for row in rows), rows


if __name__ == "__main__":
    main(globals())
