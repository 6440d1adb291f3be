#!/usr/bin/env python3
"""Compare the hashes of stargrad and imagededup bit by bit, on real images: bits.py STARGRAD CIFAR-10-DIR FOLDER [COUNT]

Needs imagededup, numpy and Pillow (pip install --no-deps imagededup; pip install numpy pillow scipy PyWavelets tqdm). FOLDER must
have the layout of --data folder:FOLDER. The script reads stargrad's hashes from hashes.bin, in the order of the images."""
import glob
import struct
import subprocess
import sys
import tempfile

import numpy
from peer import KINDS

stargrad, cifar, tree = sys.argv[1:4]
count = int(sys.argv[4]) if len(sys.argv) > 4 else 1000


def hashes(data, kind):
    with tempfile.TemporaryDirectory() as out:
        subprocess.run([stargrad, "dedup", "--data", data, "--hash", kind, "--threshold", "0", "--out", out, "--no-test"], check=True,
                       stdout=subprocess.DEVNULL)
        with open(f"{out}/hashes.bin", "rb") as f:
            content = f.read()
    assert content[:8] == b"SGRADHSH"
    records = struct.unpack_from("<Q", content, 32)[0]
    return [struct.unpack_from("<Q", content, 40 + 24 * i + 16)[0] for i in range(records)]


def pixels():
    records = numpy.fromfile(glob.glob(f"{cifar}/**/data_batch_1.bin", recursive=True)[0], numpy.uint8).reshape(-1, 3073)
    return records[:count, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


files = sorted(glob.glob(f"{tree}/train/*/*"))
step = max(1, len(files) // count)
for kind, peer in KINDS.items():
    encoder = peer(verbose=False)
    for name, mine, theirs in (
            ("CIFAR-10", hashes(f"cifar10:{cifar}", kind)[:count], [encoder.encode_image(image_array=x) for x in pixels()]),
            ("JPEGs", hashes(f"folder:{tree}", kind)[::step], [encoder.encode_image(image_file=f) for f in files[::step]])):
        different = [bin(a ^ int(b, 16)).count("1") for a, b in zip(mine, theirs)]
        print(f"{kind} {name}: {len(different)} images, {sum(d == 0 for d in different)} with identical hashes, "
              f"{100 - 100 * sum(different) / 64 / len(different):.4f} % of bits equal, at most {max(different)} bits differ", flush=True)
