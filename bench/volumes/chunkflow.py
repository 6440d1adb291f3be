#!/usr/bin/env python3
"""Compare stargrad segment with chunkflow (PyPI): same network (in PyTorch for chunkflow), same patches and overlap, whole
commands in turn:

    chunkflow.py STARGRAD CHUNKFLOW SIDES PATCH OVERLAP [TURNS]
    example: chunkflow.py build/stargrad chunkflow 16x1024x1024 1x256x256 0x64x64 3

Both programs read a TIFF stack and write HDF5. chunkflow has the whole volume in memory. The weights come from a short training
on blobs. The script prints medians of elapsed and processor time, Mvoxel/s of the whole command, and the difference of the two
results. With a volume of one patch, the difference shows that the networks are the same. In overlaps, the two programs weight
patches differently (volumes/patches.h)."""
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time

import h5py
import numpy as np
import tifffile

stargrad, chunkflow, *sizes = sys.argv[1:6]
sides, patch, overlap = ([int(x) for x in size.split("x")] for size in sizes)
turns = int(sys.argv[6]) if len(sys.argv) > 6 else 3
here = pathlib.Path(__file__).resolve().parent


def blobs(shape, seed):
    """Returns a volume of random bright blobs, as bytes, and its labels: 1 for bright voxels."""
    draw = np.random.default_rng(seed).random((shape[0], -(-shape[1] // 8), -(-shape[2] // 8)), "f4")
    image = draw.repeat(8, 1).repeat(8, 2)[:, :shape[1], :shape[2]]
    image = (image + np.roll(image, 4, 1) + np.roll(image, 4, 2)) / 3
    return (255 * image).astype("u1"), (image > 0.5).astype("u1")


def measured(words):
    begin, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stdout[-2000:], done.stderr[-2000:])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.monotonic() - begin, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


with tempfile.TemporaryDirectory() as scratch:
    work = pathlib.Path(scratch)
    for part, seed in (("train", 1), ("val", 2)):
        (work / "set" / part).mkdir(parents=True)
        for name, voxels in zip(("image", "label"), blobs((4, 128, 128), seed)):
            tifffile.imwrite(work / "set" / part / f"{name}.tif", voxels, photometric="minisblack")
    tifffile.imwrite(work / "in.tif", blobs(sides, 3)[0], photometric="minisblack")
    measured((stargrad, "train", "--model", "unet2d", "--data", f"volume:{work}/set,1x128x128", "--batch", 4, "--steps", 20,
              "--optimizer", "adam", "--out", work / "run"))
    weights = work / "run/model.safetensors"
    commands = {
        "stargrad": (stargrad, "segment", "--weights", weights, "--model", "unet2d", "--in", work / "in.tif", "--patch", sizes[1],
                     "--overlap", sizes[2], "--out", work / "stargrad.h5"),
        "chunkflow": (chunkflow, "load-tif", "--file-name", work / "in.tif", "inference", "--convnet-model", here / "unet2d.py",
                      "--convnet-weight-path", weights, "--input-patch-size", *patch, "--output-patch-overlap", *overlap,
                      "--num-output-channels", 2, "--framework", "pytorch", "--batch-size", 1, "--mask-output-chunk", "save-h5",
                      "--file-name", work / "chunkflow.h5"),
    }
    times = {name: [] for name in commands}
    for turn in range(turns):
        for name, words in commands.items():
            (work / f"{name}.h5").unlink(missing_ok=True)
            times[name].append(measured(words))
    results = {}
    for name in commands:
        with h5py.File(work / f"{name}.h5") as file:
            results[name] = file["volume" if name == "stargrad" else "main"][:]
        clock, used = np.median(times[name], axis=0)
        print(f"{name}: {clock:.3g} s, processor time {used:.3g} s: {np.prod(sides) / 1e6 / clock:.3g} Mvoxel/s for the whole command")
    print("stargrad is {:.2f} times as fast".format(np.median(times["chunkflow"], axis=0)[0] / np.median(times["stargrad"], axis=0)[0]))
    apart = np.abs(results["stargrad"] - results["chunkflow"])
    print(f"largest difference {apart.max():.2g}, mean {apart.mean():.2g}")
