#!/usr/bin/env python3
"""Segments a synthetic volume of some GB in little memory, and the first of it whole, to see seams:

    memory.py STARGRAD SIDES [MEMORY-GB [PATCH OVERLAP [MODEL]]]        as: build/stargrad 512x2048x2048 0.5: 2 GB

The volume is a raw file, written slab by slab; the output, two classes of bytes, is Zarr. Prints the largest resident memory of the
command, its Mvoxel/s, and the difference of the patchwise from the whole run on the first slice, patches being of one slice: inside
margins of half an overlap from the slice's ends, where both see the same of what is around. MODEL is a small unet2d, which looks ten
pixels far."""
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
    """What it prints, and the GB that were resident at most."""
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
          f"{most:.3g} GB resident at most", flush=True)

    # The first slice, patchwise and whole, as real numbers.
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
    print(f"patchwise against whole, inside margins of {y}x{x}: largest difference {apart.max():.2g}, mean {apart.mean():.2g}")
