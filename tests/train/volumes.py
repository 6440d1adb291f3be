#!/usr/bin/env python3
"""Volumes by the command: trained on, segmented by processes that share a queue and die, with one chunk that cannot be read."""
import gzip
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time

STARGRAD = os.environ["STARGRAD"]
KILLS = int(os.environ.get("STARGRAD_KILLS", "6"))


def stargrad(*words, status=0):
    run = subprocess.run([STARGRAD, *map(str, words)], capture_output=True, text=True)
    assert run.returncode == status, (words, run.returncode, run.stdout, run.stderr)
    return run.stdout + run.stderr


def idx(path, array, sides):
    path.write_bytes(gzip.compress(struct.pack(">IIII", 0x803, *sides) + bytes(array)))


def zarr(folder, sides, chunks, voxel):
    """Version 2, uncompressed; voxel(z, y, x)."""
    folder.mkdir()
    (folder / ".zarray").write_text(json.dumps({"zarr_format": 2, "shape": sides, "chunks": chunks, "dtype": "|u1", "compressor": None,
                                                "fill_value": 0, "order": "C", "filters": None}))
    counts = [-(-side // chunk) for side, chunk in zip(sides, chunks)]
    for z in range(counts[0]):
        for y in range(counts[1]):
            for x in range(counts[2]):
                (folder / f"{z}.{y}.{x}").write_bytes(bytes(
                    voxel(z * chunks[0] + i, y * chunks[1] + j, x * chunks[2] + k)
                    for i in range(chunks[0]) for j in range(chunks[1]) for k in range(chunks[2])))


def blocks(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name[0] != "." and ".part" not in path.name}


with tempfile.TemporaryDirectory() as scratch:
    work = pathlib.Path(scratch)
    data = work / "data"
    data.mkdir()
    slices = [[255 if (y // 8 + x // 8 + z) % 2 else 40 for y in range(64) for x in range(64)] for z in range(5)]
    idx(data / "train-volume-idx3-ubyte.gz", [v for s in slices for v in s], (5, 64, 64))
    idx(data / "train-labels-idx3-ubyte.gz", [255 if v > 100 else 0 for s in slices for v in s], (5, 64, 64))

    # Trained, with what the metrics are called; patches of another shape are refused in a line.
    stargrad("train", "--model", "unet2d", "--data", f"volume:{data},1x32x32", "--batch", 8, "--steps", 12, "--optimizer", "adam",
             "--class-weights", "1,0.5", "--dice", 0.5, "--out", work / "run")
    epoch = [json.loads(line) for line in (work / "run/metrics.jsonl").read_text().splitlines()][-1]
    assert 0 <= epoch["iou"] <= 1 and 0 <= epoch["rand"] <= 1 and epoch["voi"] >= 0 and 0 <= epoch["test_accuracy"] <= 1, epoch
    for patch, says in (("1x30x30", "multiples of 16"), ("0x32x32", "takes ZxYxX")):
        told = stargrad("train", "--model", "unet2d", "--data", f"volume:{data},{patch}", "--batch", 4, "--steps", 1, "--out", work / "no",
                        status=1 if patch[0] == "1" else 2)
        assert says in told, told
    told = stargrad("train", "--model", "unet2d", "--data", f"volume:{data},1x32x32", "--batch", 4, "--class-weights", "1", "--out", work / "no", status=2)
    assert "--class-weights '1'" in told, told

    # Alone: what all others have to come to.
    source = work / "in.zarr"
    zarr(source, [40, 140, 150], [20, 64, 64], lambda z, y, x: (7 * z + 3 * y + 5 * x) % 251)
    how = ["segment", "--weights", work / "run/model.safetensors", "--model", "unet2d", "--in", source, "--patch", "8x32x32", "--overlap",
           "1x4x4", "--memory", "0.05", "--cpus", 1]
    told = stargrad(*how, "--out", work / "alone.zarr")
    assert "Mvoxel/s" in told and "blend" in told, told
    alone = blocks(work / "alone.zarr")
    assert alone and "0 chunks" in stargrad(*how, "--out", work / "alone.zarr")

    # By two processes at a time, killed or stopped now and then.
    shared = how + ["--out", work / "shared.zarr", "--queue", work / "queue", "--lease", 2]
    random.seed(1)
    running, kills = [], 0
    while True:
        running = [process for process in running if process.poll() is None]
        if kills >= KILLS and not running:
            break
        while len(running) < 2:
            running.append(subprocess.Popen([STARGRAD, *map(str, shared)], stdout=subprocess.DEVNULL))
            if kills >= KILLS:
                break
        if kills < KILLS:
            time.sleep(random.uniform(0.2, 1.5))
            victim = random.choice(running)
            if kills % 3 == 2:
                victim.send_signal(signal.SIGSTOP)
                time.sleep(2.5)
                victim.send_signal(signal.SIGCONT)
            else:
                victim.kill()
                victim.wait()
            kills += 1
        else:
            for process in running:
                assert process.wait() == 0
    assert blocks(work / "shared.zarr") == alone
    state = json.loads(stargrad("queue", work / "queue", "--json"))
    assert state["todo"] == state["leased"] == state["failed"] == 0 and state["done"] > 1, state
    assert "0 chunks" in stargrad(*shared)

    # A chunk that is damaged: what needs it is put aside and named, all else is there.
    (source / "0.0.0").write_bytes(b"short")
    stargrad(*how, "--out", work / "poisoned.zarr", "--queue", work / "poisoned")
    told = stargrad("queue", work / "poisoned")
    assert "is put aside" in told and str(work / "poisoned" / "logs") in told, told
    poisoned = blocks(work / "poisoned.zarr")
    assert poisoned and len(poisoned) < len(alone) and all(alone[name] == block for name, block in poisoned.items())
sys.exit(0)
