#!/usr/bin/env python3
"""Segment a synthetic volume of several GB in little memory, and compare its first slice with a segmentation without patches:

    memory.py STARGRAD SIDES [MEMORY-GB [PATCH OVERLAP [MODEL]]]
    example: memory.py build/stargrad 512x2048x2048 0.5        segments 2 GB

The volume is a raw file, written slice by slice. The output is Zarr, with two classes as bytes. The script prints the peak
resident memory of the command and its Mvoxel/s.

It also prints the difference between the first slice segmented in patches and as a whole. A patch must be one slice deep. Margins
of half an overlap are left out, because the surroundings of these voxels differ. The default MODEL is a small unet2d with a
receptive field of ten pixels in each direction."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

stargrad = sys.argv[1]
sides = [int(x) for x in sys.argv[2].split("x")]
memory = sys.argv[3] if len(sys.argv) > 3 else "0.7"
patch, overlap = sys.argv[4:6] if len(sys.argv) > 5 else ("1x512x512", "0x64x64")
model = sys.argv[6] if len(sys.argv) > 6 else "unet2d:width=4,levels=2"


def run(*words):
    """Returns the output of the command, and its peak resident memory in GB."""
    process = subprocess.Popen([stargrad, *map(str, words)], stdout=subprocess.PIPE, text=True)
    told = process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    assert status == 0, words
    return told, used.ru_maxrss / 1e6


def slab(z, draw, sides):
    coarse = draw.random((-(-sides[1] // 16), -(-sides[2] // 16)), "f4").repeat(16, 0).repeat(16, 1)[:sides[1], :sides[2]]
    return (1 + 254 * coarse).astype("u1")


with tempfile.TemporaryDirectory(dir=".") as scratch:
    work, draw = pathlib.Path(scratch), np.random.default_rng(1)
    with open(work / "in.raw", "wb") as file:
        for z in range(sides[0]):
            slab(z, draw, sides).tofile(file)
    small = slab(0, draw, (1, 64, 64))
    for part in ("train", "val"):
        for name, voxels in (("image", small), ("label", small > 128)):
            folder = work / part / f"{name}.zarr"
            folder.mkdir(parents=True)
            (folder / ".zarray").write_text(json.dumps({"zarr_format": 2, "shape": [1, 64, 64], "chunks": [1, 64, 64], "dtype": "|u1",
                                                        "compressor": None, "fill_value": 0, "order": "C", "filters": None}))
            (folder / "0.0.0").write_bytes(voxels.astype("u1").tobytes())
    run("train", "--model", model, "--data", f"volume:{work},1x64x64", "--batch", 1, "--steps", 20, "--optimizer", "adam", "--no-augment",
        "--out", work / "run")
    how = ("segment", "--weights", work / "run/model.safetensors", "--model", model, "--json")
    told, most = run(*how, "--in", f"{work}/in.raw:{sys.argv[2]}", "--patch", patch, "--overlap", overlap, "--memory", memory, "--dtype",
                     "u8", "--out", work / "out.zarr")
    told = json.loads(told)
    print(f"{np.prod(sides) / 1e9:.3g} GB in {told['seconds']:.3g} s, {told['voxels'] / 1e6 / told['seconds']:.3g} Mvoxel/s, "
          f"peak resident memory {most:.3g} GB", flush=True)

    # The first slice, in patches and as a whole, as F32.
    area = sides[1] * sides[2]
    with open(work / "in.raw", "rb") as file:
        (work / "slice.raw").write_bytes(file.read(area))
    source = f"{work}/slice.raw:1x{sides[1]}x{sides[2]}"
    results = []
    for name, own, lap in (("parts", patch, overlap), ("whole", f"1x{sides[1]}x{sides[2]}", "0x0x0")):
        run(*how, "--in", source, "--patch", own, "--overlap", lap, "--memory", 8, "--out", work / f"{name}.raw")
        results.append(np.fromfile(work / f"{name}.raw", "<f4").reshape(2, sides[1], sides[2]))
    y, x = (int(n) // 2 for n in overlap.split("x")[1:])
    apart = np.abs(results[0] - results[1])[:, y:sides[1] - y, x:sides[2] - x]
    print(f"patches against whole slice, without margins of {y}x{x}: largest difference {apart.max():.2g}, mean {apart.mean():.2g}")
